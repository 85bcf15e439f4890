/* src/launch/modelzoo.c - the assembly of sbatch_benchmarking.sh, as data. */
#include "launch/modelzoo.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *variable, *value; /* when it has this value */
  const char *arguments;        /* these are appended; a later one wins over the file's */
} Rule;

#define PRECISION_AWARE                                                                                     \
  " --use-precision-aware-optimizer --main-grads-dtype fp32 --main-params-dtype fp32 --exp-avg-dtype bf16 " \
  "--exp-avg-sq-dtype bf16"
static const Rule rules[] = {
    {"OPTIMIZER_OFFLOAD", "1", "--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d"},
    {"DISPATCHER", "alltoall", "--moe-token-dispatcher-type alltoall"},
    {"DISPATCHER", "deepep", "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep"},
    {"DISPATCHER", "hybridep",
     "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-flex-dispatcher-num-sms 32"},
    {"PR", "fp8", "--fp8-recipe blockwise --fp8-format e4m3" PRECISION_AWARE " --moe-router-padding-for-quantization"},
    {"PR", "mxfp8", "--fp8-recipe mxfp8 --fp8-format e4m3" PRECISION_AWARE " --moe-router-padding-for-quantization"},
    {"PR", "bf16", "--tp-comm-overlap"},
    {"A2A_OVERLAP", "1", "--delay-wgrad-compute --overlap-moe-expert-parallel-comm"},
};
/* Without an optimizer on the host the FP8 modes keep FP8 parameters too. */
static const Rule fp8_parameters[] = {
    {"PR", "fp8", "--fp8-param-gather"},
    {"PR", "mxfp8",
     "--fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag --overlap-grad-reduce --overlap-param-gather"},
};

static void append_words(MsArgs *args, const char *text) {
  g_auto(GStrv) words = g_strsplit(text, " ", -1);
  ms_args_add_words(args, words, 0);
}

static void apply(MsArgs *args, const Rule *rule, MsVariableLookup lookup, void *data) {
  const char *value = lookup(rule->variable, data);
  if (value && strcmp(value, rule->value) == 0) append_words(args, rule->arguments);
}

static int number(MsVariableLookup lookup, void *data, const char *name) {
  const char *text = lookup(name, data);
  return text ? (int)CLAMP(strtol(text, NULL, 10), 0, 1 << 30) : 0;
}

/* VPP and uneven ends, where the file says neither. */
static void assemble_pipeline(MsArgs *args, MsVariableLookup lookup, void *data) {
  int vpp = number(lookup, data, "VPP"), pp = number(lookup, data, "PP"), layers = number(lookup, data, "NUM_LAYERS");
  gboolean string = ms_args_has(args, "--pipeline-model-parallel-layout");
  gboolean said = string || ms_args_has(args, "--num-virtual-stages-per-pipeline-rank") ||
                  ms_args_has(args, "--num-layers-per-virtual-pipeline-stage");
  if (vpp > 1 && !said) ms_args_addf(args, MS_SECTION_PARALLEL, "--num-virtual-stages-per-pipeline-rank", "%d", vpp);
  if (pp < 1 || layers < 1 || layers % pp == 0 || string) return;
  int first = number(lookup, data, "PP_FIRST"), last = number(lookup, data, "PP_LAST");
  if (first > 0) ms_args_addf(args, MS_SECTION_PARALLEL, "--decoder-first-pipeline-num-layers", "%d", first);
  if (last > 0) ms_args_addf(args, MS_SECTION_PARALLEL, "--decoder-last-pipeline-num-layers", "%d", last);
}

static void assemble_environment(MsArgs *args, MsVariableLookup lookup, void *data) {
  const char *overlap = lookup("A2A_OVERLAP", data);
  if (overlap) ms_args_setenv(args, "CUDA_DEVICE_MAX_CONNECTIONS", strcmp(overlap, "1") == 0 ? "32" : "1");
}

void ms_modelzoo_assemble(MsArgs *args, MsVariableLookup lookup, void *data) {
  const char *offload = lookup("OPTIMIZER_OFFLOAD", data);
  assemble_pipeline(args, lookup, data);
  for (guint i = 0; i < G_N_ELEMENTS(rules); i++) apply(args, &rules[i], lookup, data);
  if (!offload || strcmp(offload, "1") != 0)
    for (guint i = 0; i < G_N_ELEMENTS(fp8_parameters); i++) apply(args, &fp8_parameters[i], lookup, data);
  assemble_environment(args, lookup, data);
}

/* --- what the script would change --- */
static const char *lookup_word(const char *name, void *data) {
  char **words = data;
  gsize length = strlen(name);
  for (; *words; words++)
    if (strncmp(*words, name, length) == 0 && (*words)[length] == '=') return *words + length + 1;
  return NULL;
}

static void append_change(GString *out, const MsArg *its, const MsArg *ours) {
  g_autofree char *value = g_strjoinv(" ", its->values), *mine = ours ? g_strjoinv(" ", ours->values) : NULL;
  if (mine && strcmp(value, mine) == 0) return;
  g_string_append_printf(out, "#   %s%s%s", its->flag, *value ? " " : "", value);
  if (mine) g_string_append_printf(out, "   (this file: %s)", mine);
  if (strcmp(its->flag, "--tp-comm-overlap") == 0)
    g_string_append(out, "   (the release rejects it without sequence parallelism: take it out of the script at TP 1)");
  g_string_append_c(out, '\n');
}

void ms_modelzoo_append_overrides(GString *out, const MsArgs *args, const char *variables) {
  g_auto(GStrv) words = g_strsplit(variables, " ", -1);
  g_autoptr(MsArgs) added = ms_args_new("");
  for (guint i = 0; i < args->list->len; i++)
    ms_args_add(added, MS_SECTION_DATA, ((const MsArg *)args->list->pdata[i])->flag, NULL);
  guint own_count = added->list->len; /* the script looks at what the file says before it appends */
  ms_modelzoo_assemble(added, lookup_word, words);
  g_autoptr(GString) changes = g_string_new(NULL);
  for (guint i = own_count; i < added->list->len; i++) {
    const MsArg *its = added->list->pdata[i];
    append_change(changes, its, ms_args_find(args, its->flag));
  }
  const char *own = NULL, *theirs = ms_args_getenv(added, "CUDA_DEVICE_MAX_CONNECTIONS");
  for (guint i = 0; i < args->env->len; i++)
    if (strcmp(((const MsVariable *)args->env->pdata[i])->name, "CUDA_DEVICE_MAX_CONNECTIONS") == 0)
      own = ((const MsVariable *)args->env->pdata[i])->value;
  if (theirs && g_strcmp0(own, theirs) != 0)
    g_string_append_printf(changes, "#   CUDA_DEVICE_MAX_CONNECTIONS=%s   (this file: %s)\n", theirs,
                           own ? own : "unset");
  if (changes->len)
    g_string_append_printf(out, "# That script then adds or overrides, against this file:\n%s", changes->str);
}
