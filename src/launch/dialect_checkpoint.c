/* src/launch/dialect_checkpoint.c - what a script leaves to the checkpoint it starts from: sizes of layers that a
 * specification of slime's or miles' takes from there, and whole models.
 *
 * The sizes are those of the published config.json files. */
#include <string.h>

#include "base/text.h"
#include "launch/dialect.h"

static gint64 said(MsArgs *args, const char *flag, gboolean take) {
  gint64 value = 0;
  for (guint i = 0; i < args->list->len; i++) {
    MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, flag) != 0) continue;
    if (!ms_arg_int(args, arg, 1, 1 << 24, &value, NULL)) return 0;
    arg->used = arg->used || take;
  }
  return value;
}

/* --- layers ---------------------------------------------------------------------------------------------------- */
#define GATED_DELTA_NETS(heads)                                                               \
  "--experimental-attention-variant gdn --linear-attention-freq 4 --linear-num-key-heads 16 " \
  "--linear-num-value-heads " heads " --linear-key-head-dim 128 --linear-value-head-dim 128 " \
  "--linear-conv-kernel-dim 4"
#define INDEXER \
  "--experimental-attention-variant dsa --dsa-indexer-n-heads 32 --dsa-indexer-head-dim 128 --dsa-indexer-topk 2048"

/* Modules of slime_plugins.models and miles_plugins.models, told apart by the width, and by a word in the name of the
 * checkpoint where that is not enough. The first row that fits counts. */
static const struct {
  const char *module;
  int hidden, experts; /* -1: any */
  const char *checkpoint, *sizes;
} layers[] = {{"qwen3_next", 2048, 512, NULL, GATED_DELTA_NETS("32")},
              {"qwen3_5", 1024, 0, NULL, GATED_DELTA_NETS("16")},   /* 0.8B */
              {"qwen3_5", 2560, 0, NULL, GATED_DELTA_NETS("32")},   /* 4B */
              {"qwen3_5", 4096, 0, NULL, GATED_DELTA_NETS("32")},   /* 9B */
              {"qwen3_5", 5120, 0, NULL, GATED_DELTA_NETS("48")},   /* 27B */
              {"qwen3_5", 2048, 256, NULL, GATED_DELTA_NETS("32")}, /* 35B-A3B */
              {"qwen3_5", 3072, 256, NULL, GATED_DELTA_NETS("64")}, /* 122B-A10B */
              {"qwen3_5", 4096, 512, NULL, GATED_DELTA_NETS("64")}, /* 397B-A17B */
              {"deepseek_v32", 7168, 256, NULL,
               "--experimental-attention-variant dsa --dsa-indexer-n-heads 64 --dsa-indexer-head-dim 128 "
               "--dsa-indexer-topk 2048"},
              {"glm5.glm5", 6144, 256, "5.2", INDEXER " --dsa-indexer-topk-freq 4 --dsa-indexer-skip-topk-offset 3"},
              {"glm5.glm5", 6144, 256, NULL, INDEXER}};

static const char *module_of(const MsArg *arg) {
  static const char *const plugins[] = {"slime_plugins.models.", "miles_plugins.models."};
  for (guint i = 0; i < G_N_ELEMENTS(plugins); i++)
    if (strcmp(arg->flag, "--spec") == 0 && arg->values[0] && g_str_has_prefix(arg->values[0], plugins[i]))
      return arg->values[0] + strlen(plugins[i]);
  return NULL;
}

static gboolean checkpoint_is(const MsArgs *args, const char *word) {
  for (guint i = 0; i < args->list->len; i++) {
    const MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, "--hf-checkpoint") == 0 && arg->values[0] && strstr(arg->values[0], word)) return TRUE;
  }
  return FALSE;
}

static const char *sizes_of(MsArgs *args, const char *module) {
  gint64 hidden = said(args, "--hidden-size", FALSE), experts = said(args, "--num-experts", FALSE);
  for (guint i = 0; i < G_N_ELEMENTS(layers); i++)
    if (strcmp(layers[i].module, module) == 0 && layers[i].hidden == hidden && layers[i].experts == experts &&
        (!layers[i].checkpoint || checkpoint_is(args, layers[i].checkpoint)))
      return layers[i].sizes;
  return NULL;
}

void ms_dialect_checkpoint(MsArgs *args, GPtrArray *remarks) {
  for (guint i = 0, n = args->list->len; i < n; i++) {
    MsArg *spec = args->list->pdata[i];
    const char *module = module_of(spec), *sizes = module ? sizes_of(args, module) : NULL;
    if (!sizes) continue;
    g_auto(GStrv) words = g_strsplit(sizes, " ", -1);
    for (int k = 0; words[k]; k += 2)
      if (!ms_args_has(args, words[k])) ms_args_say(args, spec, words[k], words[k + 1]);
    spec->used = TRUE;
    g_ptr_array_add(remarks, g_strdup_printf("--spec %s: sizes that the checkpoint says are those of the published "
                                             "model of this width: %s",
                                             spec->values[0], sizes));
    return;
  }
}

/* --- whole models ---------------------------------------------------------------------------------------------- */
static const struct {
  const char *flag;
  size_t offset;   /* of an int of MsModel */
  gboolean needed; /* or compared only where the script says it */
} shape[] = {{"--num-layers", offsetof(MsModel, num_layers), TRUE},
             {"--hidden-size", offsetof(MsModel, hidden_size), TRUE},
             {"--ffn-hidden-size", offsetof(MsModel, ffn_hidden_size), TRUE},
             {"--num-attention-heads", offsetof(MsModel, num_attention_heads), TRUE},
             {"--num-query-groups", offsetof(MsModel, num_query_groups), FALSE},
             {"--moe-ffn-hidden-size", offsetof(MsModel, moe_ffn_hidden_size), FALSE},
             {"--num-experts", offsetof(MsModel, num_experts), FALSE}};

static gboolean fits(MsArgs *args, const MsModel *m) {
  gboolean experts = ms_args_has(args, "--num-experts") || ms_args_has(args, "--moe-ffn-hidden-size");
  if (experts != (m->num_experts > 0)) return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(shape); i++) {
    gint64 value = said(args, shape[i].flag, FALSE);
    int its = *(const int *)(const void *)((const char *)m + shape[i].offset);
    if (value ? value != its : shape[i].needed) return FALSE;
  }
  return TRUE;
}

char *ms_dialect_model(MsArgs *args, GPtrArray *remarks) {
  g_autofree char *found = NULL;
  if (!ms_args_has(args, "--bridge-hf-model") && !ms_args_has(args, "--use-checkpoint-args")) return NULL;
  g_autoptr(GPtrArray) names = ms_data_names("models");
  for (guint i = 0; i + 1 < names->len; i++) {
    g_autoptr(MsModel) shipped = ms_model_load(names->pdata[i], NULL);
    if (!shipped || !fits(args, shipped)) continue;
    if (found) return NULL; /* several have these sizes */
    found = g_strdup(names->pdata[i]);
  }
  if (!found) return NULL;
  for (guint i = 0; i < G_N_ELEMENTS(shape); i++) said(args, shape[i].flag, TRUE);
  ms_args_take_any(args, "--bridge-hf-model --use-bridge --use-checkpoint-args");
  g_ptr_array_add(remarks, g_strdup_printf("the model is the checkpoint's: %s alone has the sizes that the script says "
                                           "and is assumed; --model NAME says another",
                                           found));
  return g_steal_pointer(&found);
}
