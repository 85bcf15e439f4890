/* src/launch/import_primus.c - the YAML of Primus (AMD's framework around Megatron-LM and TorchTitan): presets of a
 * module and of a model, each upon others, and overrides, as options of Megatron-LM or keys of TorchTitan.
 *
 * Facts: primus/configs, primus/core/config and primus/backends/megatron of AMD-AGI/Primus at a098ca5 (2025-12). */
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "describe/hardware.h"
#include "launch/import.h"
#include "launch/shell.h"
#include "launch/titan.h"
#include "launch/yaml.h"

typedef struct {
  const char *file;
  const char *module;  /* pre_trainer, post_trainer */
  const char *backend; /* megatron, torchtitan: the folder of the presets */
  MsShell *variables;  /* values given from outside */
  gboolean presets;    /* files of the checkout may be read */
  GHashTable *values;  /* char * -> Value *: the later file wins */
  GPtrArray *order;    /* char *: keys as they first came */
  int loaded;          /* presets, each as often as another names it */
  GError **error;
} Primus;

typedef struct {
  char *text;     /* NULL: null */
  int line;       /* in the file that is imported, 0: of a preset */
  gboolean plain; /* a default of the framework, of which nothing is said when it means nothing here */
  gboolean list;  /* words with blanks between */
} Value;

enum { DEEPEST_PRESET = 16, MOST_PRESETS = 256, HIGHEST_FOLDER = 24 };

static void value_free(gpointer data) {
  g_free(((Value *)data)->text);
  g_free(data);
}

/* ${NAME:default} and ${NAME} as Primus replaces them; one without a value stays. (transfer full) */
static char *substitute(const MsShell *variables, const char *text) {
  GString *out = g_string_new(NULL);
  for (const char *at; (at = strstr(text, "${")); text = strchr(at, '}') + 1) {
    const char *end = strchr(at, '}');
    if (!end) break;
    g_string_append_len(out, text, at - text);
    g_autofree char *inside = g_strndup(at + 2, (gsize)(end - at - 2));
    char *absent = strchr(inside, ':');
    if (absent) *absent++ = '\0';
    const char *value = ms_shell_given(variables, inside);
    if (value || absent) g_string_append(out, value ? value : absent);
    else g_string_append_len(out, at, end - at + 1);
  }
  g_string_append(out, text);
  return g_string_free(out, FALSE);
}

static gboolean is_null(const char *text) {
  return !text || !*text || strcmp(text, "null") == 0 || strcmp(text, "None") == 0;
}

static Value *put(Primus *p, const char *key, const char *text, int line, gboolean plain) {
  Value *value = g_new0(Value, 1);
  *value = (Value){is_null(text) ? NULL : g_strdup(text), line, plain, FALSE};
  if (!g_hash_table_contains(p->values, key)) g_ptr_array_add(p->order, g_strdup(key));
  g_hash_table_insert(p->values, g_strdup(key), value);
  return value;
}

static const char *value_of(const Primus *p, const char *key) {
  const Value *value = g_hash_table_lookup(p->values, key);
  return value ? value->text : NULL;
}

static gboolean is_on(const Primus *p, const char *key) {
  const char *text = value_of(p, key);
  return text && g_ascii_strcasecmp(text, "true") == 0;
}

/* --- presets --- */
static gboolean load_preset(Primus *p, const char *path, gboolean module, int depth);

static gboolean load_parents(Primus *p, const char *path, const char *names, gboolean module, int depth) {
  g_autofree char *folder = g_path_get_dirname(path);
  g_auto(GStrv) list = g_strsplit(names, " ", -1);
  for (int i = 0; list[i]; i++) {
    g_autofree char *parent = g_build_filename(folder, list[i], NULL);
    if (*list[i] && !load_preset(p, parent, module, depth + 1)) return FALSE;
  }
  return TRUE;
}

static gboolean load_preset(Primus *p, const char *path, gboolean module, int depth) {
  gsize length;
  if (depth > DEEPEST_PRESET) return ms_input_error(p->error, path, 0, "extends", "goes round in a circle");
  if (++p->loaded > MOST_PRESETS)
    return ms_input_error(p->error, path, 0, "extends", "is one of more than %d presets that extend each other",
                          MOST_PRESETS);
  g_autofree char *text = ms_read_file(path, MS_IMPORT_MOST_BYTES, &length, p->error),
                  *base = g_path_get_basename(path);
  g_autoptr(GPtrArray) pairs = text ? ms_yaml_flatten(text, length, path, p->error) : NULL;
  if (!pairs) return FALSE;
  gboolean plain = module || g_str_has_prefix(base, "language_model.") || g_str_has_prefix(base, "primus_");
  for (guint i = 0; i < pairs->len; i++) {
    const MsYamlPair *pair = pairs->pdata[i];
    gboolean parents = strcmp(pair->key, "extends") == 0 || strcmp(pair->key, "bases") == 0;
    if (parents && pair->value && !load_parents(p, path, pair->value, module, depth)) return FALSE;
  }
  for (guint i = 0; i < pairs->len; i++) {
    const MsYamlPair *pair = pairs->pdata[i];
    g_autofree char *value = pair->value ? substitute(p->variables, pair->value) : NULL;
    if (strcmp(pair->key, "extends") != 0 && strcmp(pair->key, "bases") != 0)
      put(p, pair->key, value, 0, plain)->list = pair->list;
  }
  return TRUE;
}

/* primus/configs/KIND/BACKEND/NAME in the checkout that the file lies in. (transfer full) */
static char *find_preset(const Primus *p, const char *kind, const char *name) {
  g_autofree char *folder = g_path_get_dirname(p->file), *whole = g_canonicalize_filename(folder, NULL);
  for (int i = 0; i < HIGHEST_FOLDER && p->presets; i++) {
    char *path = g_build_filename(whole, "primus", "configs", kind, p->backend, name, NULL);
    if (g_file_test(path, G_FILE_TEST_IS_REGULAR)) return path;
    g_free(path);
    char *above = g_path_get_dirname(whole);
    g_free(whole);
    whole = above;
  }
  return NULL;
}

static gboolean read_preset(Primus *p, const GHashTable *top, const char *key, const char *kind) {
  const MsYamlPair *pair = g_hash_table_lookup((GHashTable *)top, key);
  g_autofree char *path = g_strdup_printf("modules.%s.%s", p->module, key);
  if (!pair || is_null(pair->value)) return ms_input_error(p->error, p->file, 0, path, "is missing");
  g_autofree char *name = substitute(p->variables, pair->value), *file = find_preset(p, kind, name);
  if (!file)
    return ms_input_error(p->error, p->file, pair->line, path,
                          "is \"%.100s\", which is in no primus/configs/%s/%s above the file: import it where it "
                          "lies in a checkout of Primus",
                          name, kind, p->backend);
  return load_preset(p, file, strcmp(key, "config") == 0, 0);
}

/* --- the file --- */
enum { N_MODULES = 2, N_BACKENDS = 2 };
static const char *const modules[N_MODULES] = {"pre_trainer", "post_trainer"};
static const char *const backends[N_BACKENDS] = {"megatron", "torchtitan"};

/* Keys of the module, without what is in front of them -> MsYamlPair; the first module that the file has. (transfer
 * full) */
static GHashTable *read_module(Primus *p, const GPtrArray *pairs) {
  GHashTable *top = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (int m = 0; m < N_MODULES && g_hash_table_size(top) == 0; m++) {
    g_autofree char *inside = g_strdup_printf("modules.%s.", modules[m]);
    p->module = modules[m];
    for (guint i = 0; i < pairs->len; i++) {
      MsYamlPair *pair = pairs->pdata[i];
      if (g_str_has_prefix(pair->key, inside)) g_hash_table_insert(top, g_strdup(pair->key + strlen(inside)), pair);
    }
  }
  return top;
}

static gboolean read_framework(Primus *p, const GHashTable *top) {
  const MsYamlPair *pair = g_hash_table_lookup((GHashTable *)top, "framework");
  const char *word = pair && pair->value ? pair->value : pair ? "" : backends[0];
  g_autofree char *path = g_strdup_printf("modules.%s.framework", p->module);
  for (int i = 0; i < N_BACKENDS; i++)
    if (strcmp(word, backends[i]) == 0) return p->backend = backends[i], TRUE;
  return ms_input_error(p->error, p->file, pair->line, path,
                        "is \"%.40s\", moesim reads megatron and torchtitan of Primus", word);
}

static gboolean read_file(Primus *p, const char *text) {
  static const char overrides[] = "overrides.";
  g_autoptr(GPtrArray) pairs = ms_yaml_flatten(text, strlen(text), p->file, p->error);
  if (!pairs) return FALSE;
  g_autoptr(GHashTable) top = read_module(p, pairs);
  if (g_hash_table_size(top) == 0)
    return ms_input_error(p->error, p->file, 0, "modules.pre_trainer",
                          "and modules.post_trainer are missing: moesim reads pretraining and fine-tuning of Primus");
  if (!read_framework(p, top) || !read_preset(p, top, "config", "modules") || !read_preset(p, top, "model", "models"))
    return FALSE;
  for (guint i = 0, skip = (guint)(strlen("modules..") + strlen(p->module)); i < pairs->len; i++) {
    const MsYamlPair *pair = pairs->pdata[i];
    const char *key = strlen(pair->key) > skip ? pair->key + skip : "";
    if (!g_str_has_prefix(key, overrides) || g_hash_table_lookup(top, key) != pair) continue;
    g_autofree char *value = pair->value ? substitute(p->variables, pair->value) : NULL;
    put(p, key + strlen(overrides), value, pair->line, FALSE)->list = pair->list;
  }
  return TRUE;
}

/* --- keys as options --- */
/* Destinations of argparse whose option has another name; `off` is what says false where true is the default. */
static const struct {
  const char *key, *on, *off;
} names[] = {
    {"add_bias_linear", "", "--disable-bias-linear"},
    {"apply_rope_fusion", "", "--no-rope-fusion"},
    {"gradient_accumulation_fusion", "", "--no-gradient-accumulation-fusion"},
    {"bias_swiglu_fusion", "", "--no-bias-swiglu-fusion"},
    {"bias_gelu_fusion", "", "--no-bias-gelu-fusion"},
    {"bias_dropout_fusion", "", "--no-bias-dropout-fusion"},
    {"masked_softmax_fusion", "", "--no-masked-softmax-fusion"},
    {"overlap_p2p_comm", "", "--no-overlap-p2p-communication"},
    {"overlap_p2p_comm_warmup_flush", "--overlap-p2p-communication-warmup-flush", NULL},
    {"check_for_nan_in_loss_and_grad", "", "--no-check-for-nan-in-loss-and-grad"},
    {"scatter_gather_tensors_in_pipeline", "", "--no-scatter-gather-tensors-in-pipeline"},
    {"fp8", "--fp8-format", NULL},
    {"fp4", "--fp4-format", NULL},
};

/* What counts only beside another key. */
static const struct {
  const char *prefix, *with;
} offload_parts[] = {{"optimizer_offload_fraction", "optimizer_cpu_offload"},
                     {"cuda_graph_", "enable_cuda_graph"},
                     {"q_lora_rank", "multi_latent_attention"},
                     {"kv_lora_rank", "multi_latent_attention"},
                     {"qk_head_dim", "multi_latent_attention"},
                     {"qk_pos_emb_head_dim", "multi_latent_attention"},
                     {"v_head_dim", "multi_latent_attention"},
                     {"mscale", "multi_latent_attention"},
                     {"rotary_scaling_factor", "multi_latent_attention"},
                     {"moe_", "num_experts"},
                     {"expert_", "num_experts"}};

static gboolean counts(const Primus *p, const char *key) {
  for (guint i = 0; i < G_N_ELEMENTS(offload_parts); i++) {
    const char *with = value_of(p, offload_parts[i].with);
    if (g_str_has_prefix(key, offload_parts[i].prefix) && (!with || strcmp(with, "false") == 0)) return FALSE;
  }
  return TRUE;
}

/* Options whose value is one list, not words: as Python writes it there. (transfer full) */
static char *text_of(const char *key, const Value *value) {
  static const char *const bracketed[] = {"moe_layer_freq", "window_attn_skip_freq", "linear_attention_freq",
                                          "no_rope_freq", NULL};
  if (strcmp(key, "window_size") == 0) return g_strdelimit(g_strdup(value->text), " ", ',');
  if (!value->list || !g_strv_contains(bracketed, key)) return g_strdup(value->text);
  g_autofree char *items = g_strdelimit(g_strdup(value->text), " ", ',');
  return g_strdup_printf("[%s]", items);
}

/* The option of a key; "": the value says none. */
static const char *option_of(const char *key, const char *flag, gboolean off) {
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (strcmp(names[i].key, key) == 0) return off ? (names[i].off ? names[i].off : "") : names[i].on;
  return off ? "" : flag;
}

static void add_value(Primus *p, MsArgs *args, const char *key, const Value *value) {
  if (!value->text || !counts(p, key)) return;
  gboolean on = g_ascii_strcasecmp(value->text, "true") == 0, off = g_ascii_strcasecmp(value->text, "false") == 0;
  g_autofree char *flag = g_strdelimit(g_strconcat("--", key, NULL), "_", '-');
  const char *say = option_of(key, flag, off);
  if (!*say) return;
  g_autofree char *text = text_of(key, value);
  g_auto(GStrv) words = g_strsplit(on || off ? say : text, " ", -1);
  g_autoptr(GPtrArray) all = g_ptr_array_new();
  if (!on && !off) g_ptr_array_add(all, (gpointer)say);
  for (int i = 0; words[i]; i++)
    if (*words[i]) g_ptr_array_add(all, words[i]);
  g_ptr_array_add(all, NULL);
  guint first = args->list->len;
  ms_args_add_words(args, (char *const *)all->pdata, value->line);
  for (guint i = first; i < args->list->len; i++) ((MsArg *)args->list->pdata[i])->plain = value->plain;
}

/* --- Primus's own keys --- */
static gboolean refuse(const Primus *p, const char *key, const char *why) {
  const Value *value = g_hash_table_lookup(p->values, key);
  return ms_input_error(p->error, p->file, value->line, key, "is %.60s; moesim has no %s", value->text, why);
}

static gboolean check_own(const Primus *p, const MsImportOptions *options) {
  static const struct {
    const char *key, *why;
    gboolean any; /* refused with every value, not only with true */
  } rows[] = {
      {"recompute_layer_ids", "recomputation of layers one by one", TRUE},
      {"decoder_pipeline_manual_split_list", "reading of such a list; write pipeline_model_parallel_layout", TRUE},
      {"lfm_layer_types", "short convolutions in place of attention", TRUE},
      {"patch_zero_bubble", "reading of Primus's zero-bubble schedules", FALSE},
      {"patch_primus_pipeline", "reading of Primus's schedules", FALSE},
      {"use_turbo_mega_moe", "fused kernel of a whole expert layer", FALSE},
      {"enable_odc", "communication on demand", FALSE}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    if (rows[i].any ? value_of(p, rows[i].key) != NULL : is_on(p, rows[i].key))
      return refuse(p, rows[i].key, rows[i].why);
  const char *spec = value_of(p, "spec");
  gboolean allowed = options->model || (options->allow && g_strv_contains(options->allow, "--spec"));
  return !spec || allowed || !g_str_has_prefix(spec, "primus.") ||
         refuse(p, "spec",
                "reading of Primus's own layers; --model NAME says the whole model, --allow --spec imports the "
                "rest");
}

/* A key that is read here is no argument of Megatron-LM. (transfer full) */
static char *take(Primus *p, const char *key) {
  Value *value = g_hash_table_lookup(p->values, key);
  return value ? g_steal_pointer(&value->text) : NULL;
}

static gboolean take_switch(Primus *p, const char *key) {
  g_autofree char *text = take(p, key);
  return text && g_ascii_strcasecmp(text, "true") == 0;
}

/* What turbo_sync_free_moe_stage switches on (primus/backends/megatron/patches/args/rocm_arg_validation.py). */
static void add_stage(Primus *p, gint64 stage) {
  if (stage < 1) return;
  put(p, "moe_permute_fusion", "true", 0, FALSE);
  put(p, "moe_router_fusion", "true", 0, FALSE);
  if (value_of(p, "fp8")) put(p, "moe_router_padding_for_quantization", "true", 0, FALSE);
}

/* *grouped: the products of experts are Primus-Turbo's. */
static void add_turbo(Primus *p, MsImport *import, gboolean *grouped) {
  gboolean turbo = is_on(p, "enable_primus_turbo"), deepep = take_switch(p, "use_turbo_deepep");
  gboolean products = take_switch(p, "use_turbo_grouped_gemm"), older = take_switch(p, "use_turbo_grouped_mlp");
  g_autofree char *stage = take(p, "turbo_sync_free_moe_stage"), *units = take(p, "turbo_deepep_num_cu");
  gint64 level = stage ? g_ascii_strtoll(stage, NULL, 10) : 0;
  *grouped = FALSE;
  if (!turbo) return;
  *grouped = value_of(p, "num_experts") && (products || older || level > 1);
  ms_import_remark(import, "enable_primus_turbo: its kernels%s are read as Transformer Engine's",
                   *grouped ? " but those of grouped GEMM" : "");
  if (!value_of(p, "num_experts")) return;
  add_stage(p, level);
  if (!(deepep || level > 1)) return;
  put(p, "moe_token_dispatcher_type", "flex", 0, FALSE);
  put(p, "moe_enable_deepep", "true", 0, FALSE);
  put(p, "moe_deepep_num_sms", units, 0, FALSE);
}

/* Sinks and windows of Primus-Turbo's attention (primus/backends/megatron/core/extensions/primus_turbo.py). */
static void add_sinks(Primus *p, MsImport *import) {
  static const char key[] = "use_sink_attention";
  gboolean sinks = take_switch(p, key), every = !take_switch(p, "sink_window_even_layers_only");
  g_autofree char *earlier = take(p, "sink_sliding_window");
  const char *cp = value_of(p, "context_parallel_size");
  if (!sinks) return;
  if (!is_on(p, "enable_primus_turbo") || !is_on(p, "use_turbo_attention")) {
    ms_import_remark(import, "%s: only use_turbo_attention reads it: no sinks", key);
    return;
  }
  if (cp && g_ascii_strtoll(cp, NULL, 10) > 1) {
    ms_import_remark(import, "%s: Primus switches it off beside context parallelism", key);
    return;
  }
  put(p, "softmax_type", "learnable", 0, FALSE);
  if (!earlier || g_ascii_strtoll(earlier, NULL, 10) < 1) return;
  g_autofree char *window = g_strconcat(earlier, " 0", NULL);
  put(p, "window_size", window, 0, FALSE);
  put(p, "window_attn_skip_freq", every ? NULL : "2", 0, FALSE); /* its even layers count from 0 */
}

/* --- adapters --- */
/* The list, without what latent attention does not have: names that fit no layer train nothing there. (transfer full)
 */
static char *targets_of(const Primus *p, const char *list) {
  g_auto(GStrv) words = g_strsplit(list, " ", -1);
  g_autoptr(GPtrArray) kept = g_ptr_array_new();
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], "linear_qkv") != 0 || !is_on(p, "multi_latent_attention")) g_ptr_array_add(kept, words[i]);
  g_ptr_array_add(kept, NULL);
  return g_strjoinv(",", (char **)kept->pdata);
}

/* Members of `lora` that change neither the parameters nor the step, with the values that do not. */
static gboolean is_lora_default(const char *member, const char *text) {
  static const char *const any[] = {"enabled", "dropout_position", "lora_A_init_method", "lora_B_init_method", NULL};
  return !text || g_strv_contains(any, member) ||
         (strcmp(member, "a2a_experimental") == 0 && g_ascii_strcasecmp(text, "false") == 0);
}

/* primus/backends/megatron/megatron_sft_trainer.py and peft/lora.py: their words and defaults. */
static gboolean add_lora(Primus *p, MsImport *import, MsArgs *args) {
  static const struct {
    const char *member, *flag, *absent;
  } members[] = {{"dim", MS_LORA_DIM, "32"},
                 {"alpha", "--lora-alpha", "32"},
                 {"dropout", "--lora-dropout", "0"},
                 {"target_modules", "--lora-target-modules", "linear_qkv linear_proj linear_fc1 linear_fc2"}};
  if (!is_on(p, "lora.enabled")) return TRUE;
  if (g_strcmp0(value_of(p, "stage"), "sft") != 0) {
    ms_import_remark(import, "lora.enabled: only the trainer of \"stage: sft\" reads it: all weights are trained");
    return TRUE;
  }
  for (guint i = 0; i < p->order->len; i++) {
    const char *key = p->order->pdata[i], *member = key + strlen("lora.");
    if (!g_str_has_prefix(key, "lora.") || is_lora_default(member, value_of(p, key))) continue;
    guint k = 0;
    while (k < G_N_ELEMENTS(members) && strcmp(members[k].member, member) != 0) k++;
    if (k == G_N_ELEMENTS(members)) return refuse(p, key, "such adapters");
  }
  for (guint k = 0; k < G_N_ELEMENTS(members); k++) {
    g_autofree char *key = g_strconcat("lora.", members[k].member, NULL);
    const Value *value = g_hash_table_lookup(p->values, key);
    const char *text = value && value->text ? value->text : members[k].absent;
    g_autofree char *targets = targets_of(p, text);
    ms_args_say(args, &(MsArg){.line = value ? value->line : 0, .section = MS_SECTION_TRAINING}, members[k].flag,
                targets);
  }
  return TRUE;
}

/* Samples packed into a sequence: attention within each alone costs less than the sequence as one. */
static void remark_packing(Primus *p, MsImport *import) {
  gboolean packed = take_switch(p, "enable_packed_sequences"), apart = take_switch(p, "use_packed_attention");
  if (packed && apart)
    ms_import_remark(import, "use_packed_attention: samples have lengths that no key says and are read as whole "
                             "sequences; training.sequence_lengths of the run says them");
}

static int count_of(const Primus *p, const char *name, int absent) {
  const char *text = ms_shell_given(p->variables, name);
  gint64 value;
  return text && g_ascii_string_to_signed(text, 10, 1, 1 << 16, &value, NULL) ? (int)value : absent;
}

/* The machine of examples/megatron/configs/MI300X, when moesim ships it. (transfer full) */
static char *machine_of(const char *file) {
  g_autofree char *folder = g_path_get_dirname(file), *base = g_path_get_basename(folder),
                  *name = g_ascii_strdown(base, -1);
  g_autoptr(MsHardware) machine = g_str_has_prefix(name, "mi3") ? ms_hardware_load(name, NULL) : NULL;
  return machine ? g_steal_pointer(&name) : NULL;
}

/* What a key is given behind the file: all words up to the next key, `true` where there is none; *i: the last of them.
 * (transfer full) */
static char *value_behind(const char *const *words, int *i) {
  const char *is = strchr(words[*i], '=');
  if (is) return g_strdup(is + 1);
  g_autoptr(GString) value = g_string_new(NULL);
  while (words[*i + 1] && !g_str_has_prefix(words[*i + 1], "--"))
    g_string_append_printf(value, "%s%s", value->len ? " " : "", words[++*i]);
  return g_strdup(value->len ? value->str : "true");
}

/* Keys behind the file, --global_batch_size 512 or --use_turbo_deepep=true: over those of the file, so that all that
 * reads a key reads them. */
static gboolean put_keys(Primus *p, const char *const *words) {
  for (int i = 0; words && words[i]; i++) {
    if (!g_str_has_prefix(words[i], "--"))
      return ms_input_error(p->error, p->file, 0, "", "is followed by \"%.60s\", must be --KEY VALUE", words[i]);
    g_autofree char *key = g_strdelimit(g_strndup(words[i] + 2, strcspn(words[i] + 2, "=")), "-", '_'),
                    *value = value_behind(words, &i);
    put(p, key, value, 0, FALSE);
  }
  return TRUE;
}

/* --set of a key of the presets or overrides, as Primus takes it on its command line. */
static void add_set(Primus *p) {
  const MsShell *given = p->variables;
  for (int i = 0; given->set && given->set[i]; i++) {
    g_autofree char *name = g_strndup(given->set[i], strcspn(given->set[i], "="));
    if (!g_hash_table_contains(given->asked, name) && g_hash_table_contains(p->values, name))
      put(p, name, ms_shell_given(given, name), 0, FALSE);
  }
}

/* The machine and the GPUs, which the folder of the file and the environment say. FALSE: more than there can be. */
static gboolean place(const Primus *p, MsImport *import, MsImportOptions *with, char **machine, int *gpus) {
  *machine = with->hardware ? NULL : machine_of(p->file);
  if (*machine) {
    with->hardware = *machine;
    ms_import_remark(import, "the machine is %s, after the folder of the file", *machine);
  }
  int nodes = count_of(p, "NNODES", 0), node = count_of(p, "GPUS_PER_NODE", 8);
  if (node > MS_IMPORT_MOST_GPUS / MAX(nodes, 1))
    return ms_input_error(p->error, p->file, 0, "NNODES", "times GPUS_PER_NODE is more than %d", MS_IMPORT_MOST_GPUS);
  if (nodes == 0 && with->gpus == 0)
    ms_import_remark(import, "NNODES is not given: one node of %d GPUs, as Primus starts by itself", node);
  *gpus = MAX(nodes, 1) * node;
  return TRUE;
}

static gboolean convert(Primus *p, MsImport *import, const MsImportOptions *options) {
  MsImportOptions with = *options;
  int gpus;
  g_autofree char *machine = NULL;
  g_autoptr(MsArgs) args = ms_args_new(p->file);
  if (!place(p, import, &with, &machine, &gpus)) return FALSE;
  gboolean grouped;
  add_turbo(p, import, &grouped);
  add_sinks(p, import);
  g_free(take(p, "enable_primus_turbo")); /* read above */
  remark_packing(p, import);
  if (!add_lora(p, import, args)) return FALSE;
  gboolean turns = take_switch(p, "no_fp8_weight_transpose_cache");
  for (guint i = 0; i < p->order->len; i++) {
    const char *key = p->order->pdata[i];
    if (!g_str_has_prefix(key, "lora.")) add_value(p, args, key, g_hash_table_lookup(p->values, key));
  }
  if (!ms_import_scenario(import, args, gpus, &with, p->error)) return FALSE;
  /* a patch of TransformerEngine's layers but experts (primus/backends/megatron/patches/te_patches) */
  import->scenario->options.disable_parameter_transpose_cache =
      turns && ms_precision(&import->scenario->training)->per_tensor && import->scenario->model->num_experts == 0;
  if (grouped && import->scenario->options.moe_grouped_gemm &&
      ms_hardware_has_library(import->scenario->hardware, ms_grouped_library_words[MS_GROUPED_TURBO]))
    import->scenario->options.grouped_gemm_library = MS_GROUPED_TURBO;
  return TRUE;
}

/* --- keys of TorchTitan --- */
static JsonNode *string_node(const char *text) { return json_node_init_string(json_node_alloc(), text); }

/* A plain value of YAML: a switch, a number, else a word. (transfer full) */
static JsonNode *node_of(const Value *value) {
  gboolean on = g_ascii_strcasecmp(value->text, "true") == 0;
  gint64 number;
  if (value->list) {
    g_auto(GStrv) words = g_strsplit(value->text, " ", -1);
    JsonArray *list = json_array_new();
    for (int i = 0; words[i]; i++)
      if (*words[i]) json_array_add_string_element(list, words[i]);
    JsonNode *node = json_node_init_array(json_node_alloc(), list);
    json_array_unref(list);
    return node;
  }
  if (on || g_ascii_strcasecmp(value->text, "false") == 0) return json_node_init_boolean(json_node_alloc(), on);
  if (g_ascii_string_to_signed(value->text, 10, G_MININT64, G_MAXINT64, &number, NULL))
    return json_node_init_int(json_node_alloc(), number);
  return string_node(value->text);
}

/* The keys in tables, those of no table and of Primus-Turbo left out, and where the file says them. (transfer full) */
static JsonNode *tables_of(const Primus *p, GHashTable *lines) {
  JsonObject *root = json_object_new();
  for (guint i = 0; i < p->order->len; i++) {
    const char *key = p->order->pdata[i], *dot = strrchr(key, '.');
    const Value *value = g_hash_table_lookup(p->values, key);
    if (!dot || !value->text || g_str_has_prefix(key, "primus_turbo.")) continue;
    g_autofree char *table = g_strndup(key, (gsize)(dot - key));
    JsonNode *in = json_object_get_member(root, table);
    if (!in) json_object_set_object_member(root, table, json_object_new());
    json_object_set_member(json_object_get_object_member(root, table), dot + 1, node_of(value));
    g_hash_table_insert(lines, (gpointer)key, GINT_TO_POINTER(value->line));
  }
  JsonNode *node = json_node_init_object(json_node_alloc(), root);
  json_object_unref(root);
  return node;
}

/* Primus-Turbo's linear layers in FP8 gather their weights in BF16, whatever TorchTitan's own would do
 * (primus/backends/torchtitan/components/quantization/float8.py). */
static void drop_low_gather(Primus *p, MsImport *import) {
  static const char key[] = "quantize.linear.float8.enable_fsdp_float8_all_gather";
  if (!is_on(p, "primus_turbo.use_turbo_float8_linear") || !is_on(p, key)) return;
  put(p, key, "false", 0, FALSE);
  ms_import_remark(import, "%s: primus_turbo.use_turbo_float8_linear does not read it: weights are gathered in BF16",
                   key);
}

/* Primus-Turbo's converter exchanges attention; what it exchanges elsewhere is said by its switches. */
static gboolean add_turbo_of_titan(Primus *p, MsImport *import) {
  Value *converters = g_hash_table_lookup(p->values, "model.converters");
  gboolean turbo = is_on(p, "primus_turbo.enable_primus_turbo");
  if (converters && converters->text) {
    g_auto(GStrv) words = g_strsplit(converters->text, " ", -1);
    GString *kept = g_string_new(NULL);
    gboolean blocks = turbo && is_on(p, "primus_turbo.use_turbo_mx_linear");
    for (int i = 0; words[i]; i++) {
      if (blocks && strcmp(words[i], "quantize.linear.mx") == 0)
        return g_string_free(kept, TRUE), refuse(p, "primus_turbo.use_turbo_mx_linear", "such products of TorchTitan");
      if (strcmp(words[i], "primus_turbo") != 0) g_string_append_printf(kept, "%s%s", kept->len ? " " : "", words[i]);
    }
    g_free(converters->text);
    converters->text = g_string_free(kept, FALSE);
  }
  if (!turbo) return TRUE;
  if (is_on(p, "primus_turbo.enable_attention_float8"))
    return refuse(p, "primus_turbo.enable_attention_float8", "attention in FP8 of TorchTitan");
  ms_import_remark(import, "primus_turbo: its kernels are read as PyTorch's");
  drop_low_gather(p, import);
  if (is_on(p, "primus_turbo.use_turbo_grouped_mm") && is_on(p, "primus_turbo.use_moe_fp8"))
    ms_import_remark(import, "primus_turbo.use_moe_fp8: experts are read in BF16, as TorchTitan itself has them");
  return TRUE;
}

/* Words behind the file, --TABLE.KEY VALUE or --TABLE.KEY=VALUE. */
static gboolean put_words(Primus *p, const char *const *words) {
  for (int i = 0; words && words[i]; i++) {
    gsize n = strcspn(words[i], "=");
    g_autofree char *key = g_strndup(words[i], n);
    const char *value = words[i][n] ? words[i] + n + 1 : words[i + 1];
    if (!g_str_has_prefix(key, "--") || !strchr(key, '.') || !value)
      return ms_input_error(p->error, p->file, 0, "", "is followed by \"%.60s\", must be --TABLE.KEY VALUE", words[i]);
    put(p, key + 2, value, 0, FALSE);
    i += !words[i][n];
  }
  return TRUE;
}

static gboolean convert_titan(Primus *p, MsImport *import, const MsImportOptions *options) {
  MsImportOptions with = *options;
  int gpus;
  g_autofree char *machine = NULL;
  if (!place(p, import, &with, &machine, &gpus) || !put_words(p, options->words) || !add_turbo_of_titan(p, import))
    return FALSE;
  if (with.gpus == 0) with.gpus = gpus;
  g_autoptr(GHashTable) lines = g_hash_table_new(g_str_hash, g_str_equal);
  g_autoptr(JsonNode) node = tables_of(p, lines);
  g_autoptr(MsJson) doc = ms_json_doc(node, p->file);
  g_autoptr(MsArgs) args = ms_args_new(p->file);
  return ms_import_titan_keys(import, doc, lines, args, &with, p->error);
}

MsImport *ms_import_primus(const char *text, gsize length, const char *file, const MsImportOptions *options,
                           GError **error) {
  g_autofree char *copy = ms_import_text(text, length, file, error);
  if (!copy) return NULL;
  g_autoptr(MsImport) import = ms_import_new();
  g_autoptr(MsShell) variables = ms_shell_new(file);
  variables->set = options->set;
  variables->environment = options->environment;
  g_autoptr(GHashTable) values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, value_free);
  g_autoptr(GPtrArray) order = g_ptr_array_new_with_free_func(g_free);
  Primus p = {.file = file,
              .variables = variables,
              .presets = options->environment,
              .values = values,
              .order = order,
              .error = error};
  if (!read_file(&p, copy)) return NULL;
  add_set(&p);
  gboolean titan = strcmp(p.backend, "torchtitan") == 0;
  if (titan ? !convert_titan(&p, import, options)
            : !put_keys(&p, options->words) || !check_own(&p, options) || !convert(&p, import, options))
    return NULL;
  ms_import_remark_unasked(import, variables);
  return g_steal_pointer(&import);
}
