/* src/launch/import.c - what all imports share: notes, hardware, GPUs, the vocabulary, the finished scenario. */
#include "launch/import.h"

#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "launch/dialect.h"
#include "launch/mention.h"

char *ms_import_text(const char *text, gsize length, const char *file, GError **error) {
  if (length > MS_IMPORT_MOST_BYTES) ms_input_error(error, file, 0, "", "is larger than 4 MiB");
  else if (memchr(text, 0, length)) ms_input_error(error, file, 0, "", "holds a NUL character");
  else if (!g_utf8_validate(text, (gssize)length, NULL)) ms_input_error(error, file, 0, "", "is not UTF-8 text");
  else return g_strndup(text, length);
  return NULL;
}

/* --- notes --- */
static gboolean read_note(MsArgs *args, const char *line, int number, GError **error) {
  static const char *const keys[] = {"name", "doc",   "framework", "software",     "hardware",
                                     "gpus", "model", "routing",   "rope_scaling", "cuda_device_max_connections",
                                     NULL};
  g_auto(GStrv) parts = g_strsplit(line, " ", 2);
  if (!parts[0] || !g_strv_contains(keys, parts[0]) || !parts[1])
    return ms_input_error(
        error, args->file, number, "#moesim",
        "must be a key and a value; keys are name, doc, framework, software, hardware, gpus, model, routing, "
        "rope_scaling, cuda_device_max_connections");
  g_autoptr(GError) why = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(parts[1], -1, "", &why);
  if (!doc) return ms_input_error(error, args->file, number, parts[0], "is not JSON");
  JsonNode *root = ms_json_root(doc);
  gboolean text = ms_json_is(root, G_TYPE_STRING);
  gboolean any = strcmp(parts[0], "hardware") == 0 || strcmp(parts[0], "routing") == 0 ||
                 strcmp(parts[0], "rope_scaling") == 0,
           integer = strcmp(parts[0], "gpus") == 0 || strcmp(parts[0], "cuda_device_max_connections") == 0;
  if (!any && !integer && !text) return ms_input_error(error, args->file, number, parts[0], "must be a string");
  if (integer && !ms_json_is(root, G_TYPE_INT64))
    return ms_input_error(error, args->file, number, parts[0], "must be an integer");
  json_object_set_member(args->notes, parts[0], ms_json_copy(root));
  return TRUE;
}

gboolean ms_import_notes(MsArgs *args, const char *text, GError **error) {
  static const char mark[] = "#moesim ";
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  for (int i = 0; lines[i]; i++) {
    const char *line = g_strchomp(lines[i]);
    line += strspn(line, " \t");
    if (g_str_has_prefix(line, mark) && !read_note(args, line + strlen(mark), i + 1, error)) return FALSE;
  }
  return TRUE;
}

const char *ms_import_note(const MsArgs *args, const char *key) {
  return json_object_has_member(args->notes, key) ? json_object_get_string_member(args->notes, key) : NULL;
}

/* --- hardware --- */
JsonNode *ms_import_hardware(MsImport *import, const MsArgs *args, const MsImportOptions *options) {
  JsonNode *mention = json_object_get_member(args->notes, "hardware");
  if (mention && !options->hardware) return ms_json_copy(mention);
  if (!options->hardware)
    ms_import_remark(import, "hardware: the file does not say it, " MS_IMPORT_HARDWARE
                             " is assumed; --hardware NAME says another");
  JsonNode *name = json_node_new(JSON_NODE_VALUE);
  json_node_set_string(name, options->hardware ? options->hardware : MS_IMPORT_HARDWARE);
  return name;
}

static gboolean load_hardware(MsScenario *s, const MsArgs *args, MsImport *import, const MsImportOptions *options,
                              GError **error) {
  s->hardware_json = ms_import_hardware(import, args, options);
  g_autoptr(MsJson) doc = ms_json_doc(s->hardware_json, args->file);
  s->hardware = ms_hardware_from_json(doc, ms_json_root(doc), "hardware", error);
  return s->hardware != NULL;
}

/* --- GPUs and batch --- */
static gint64 plain_int(MsArgs *args, const char *flag, gint64 absent) {
  const MsArg *arg = ms_args_take(args, flag);
  gint64 value = absent;
  return arg && ms_arg_int(args, arg, 1, MS_IMPORT_MOST_GPUS, &value, NULL) ? value : absent;
}

/* Ranks that share one copy of the attention and expert grids: the fewest the layout can run on. */
static gint64 fewest_gpus(MsArgs *args) {
  gint64 tp = plain_int(args, "--tensor-model-parallel-size", 1),
         pp = plain_int(args, "--pipeline-model-parallel-size", 1);
  gint64 dense = tp * plain_int(args, "--context-parallel-size", 1),
         expert =
             plain_int(args, "--expert-tensor-parallel-size", tp) * plain_int(args, "--expert-model-parallel-size", 1);
  if (dense > MS_IMPORT_MOST_GPUS || expert > MS_IMPORT_MOST_GPUS || pp > MS_IMPORT_MOST_GPUS) return 1;
  gint64 shared = dense / ms_gcd(dense, expert) * expert;
  return shared > MS_IMPORT_MOST_GPUS / pp ? 1 : shared * pp;
}

static int count_gpus(MsArgs *args, int launcher, const MsImportOptions *options, MsImport *import) {
  gint64 noted = json_object_has_member(args->notes, "gpus") ? json_object_get_int_member(args->notes, "gpus") : 0;
  if (options->gpus > 0) return options->gpus;
  if (launcher > 0) return launcher;
  if (noted > 0 && noted <= MS_IMPORT_MOST_GPUS) return (int)noted;
  int fewest = (int)fewest_gpus(args);
  ms_import_remark(
      import,
      "gpus: the file does not say them, %d are assumed, the fewest this layout runs on; --gpus N says another number",
      fewest);
  return fewest;
}

/* Megatron's own default: one microbatch on every data-parallel rank. */
static void default_batch(MsArgs *args, int gpus) {
  if (ms_args_has(args, "--global-batch-size")) return;
  gint64 ranks = plain_int(args, "--tensor-model-parallel-size", 1) * plain_int(args, "--context-parallel-size", 1);
  ranks =
      ranks > MS_IMPORT_MOST_GPUS ? MS_IMPORT_MOST_GPUS : ranks * plain_int(args, "--pipeline-model-parallel-size", 1);
  gint64 batch = plain_int(args, "--micro-batch-size", 1) * MAX(1, gpus / ranks);
  ms_args_addf(args, MS_SECTION_TRAINING, "--global-batch-size", "%d", (int)MIN(batch, 1 << 24));
}

/* --- the model --- */
/* Entries of what a tokenizer is commonly run with, padding of Pai-Megatron-Patch aside (--extra-vocab-size). */
static const struct {
  const char *word;
  int entries;
} tokenizers[] = {{"GPT2BPETokenizer", 50257},      {"Llama2Tokenizer", 32000},      {"LLamaTokenizer", 32000},
                  {"LLama2Tokenizer", 32000},       {"LLama3Tokenizer", 128000},     {"Qwen2Tokenizer", 151643},
                  {"Qwen3Tokenizer", 151643},       {"DeepSeekV2Tokenizer", 100000}, {"BertWordPieceLowerCase", 30522},
                  {"FalconTokenizer", 65024},       {"QwenTokenizer", 151851},       {"QwenVLTokenizer", 151851},
                  {"IcetkGLM130BTokenizer", 150528}};

/* The same by a word in the name of its file or folder. */
static const struct {
  const char *word;
  int entries;
} tokenizer_files[] = {
    {"gpt2", 50257},         {"t5-small", 32100},       {"llama-2", 32000},      {"llama2", 32000},
    {"llama-3", 128256},     {"llama3", 128256},        {"qwen1.5", 151936},     {"qwen2", 151936},
    {"qwen3.5", 248320},     {"qwen3", 151936},         {"qwen35", 248320},      {"mistral-nemo", 131072},
    {"minitron-8b", 256000}, {"nemotron-mini", 256000}, {"deepseek-v2", 102400}, {"deepseek-v3", 129280},
    {"mamba2-2.7b", 50288},  {"mamba2-8b", 256000},     {"gemma3", 262144},      {"gemma-3", 262144},
    {"gemma", 256000},       {"llama-4", 202048},       {"minimax-m2", 200064},  {"minimax-m3", 200064},
    {"kimi-k", 163840},      {"mixtral", 32000},        {"gpt-oss", 201088}};

static int vocabulary_of_name(const char *text) {
  g_autofree char *name = text ? g_ascii_strdown(text, -1) : NULL;
  for (guint i = 0; name && i < G_N_ELEMENTS(tokenizer_files); i++)
    if (strstr(name, tokenizer_files[i].word)) return tokenizer_files[i].entries;
  return 0;
}

/* What the name of a tokenizer's file or folder says; 0: nothing. *by (transfer full) is where it says so. */
static int vocabulary_of_file(MsArgs *args, char **by) {
  static const char *const flags[] = {"--tokenizer-name-or-path", "--tokenizer-model", "--vocab-file"};
  for (guint f = 0; f < G_N_ELEMENTS(flags); f++) {
    const MsArg *arg = ms_args_take(args, flags[f]);
    int entries = vocabulary_of_name(arg ? arg->values[0] : NULL);
    if (entries == 0) continue;
    *by = g_strdup_printf("%s %s", flags[f], arg->values[0]);
    return entries;
  }
  return 0;
}

/* The same of the script's own name, of a script that says no tokenizer at all. */
static int vocabulary_of_script(const MsArgs *args, char **by) {
  g_autofree char *base = g_path_get_basename(args->file);
  int entries = vocabulary_of_name(g_strdelimit(base, "_", '-'));
  if (entries > 0) *by = g_path_get_basename(args->file);
  return entries;
}

/* The same of its kind. */
static int vocabulary_of_tokenizer(MsArgs *args, char **by) {
  const MsArg *type = ms_args_take_any(args, "--patch-tokenizer-type"),
              *extra = ms_args_take(args, "--extra-vocab-size");
  gint64 more = 0;
  if (!type) type = ms_args_take(args, "--tokenizer-type");
  const MsArg merges = {.values = (char *[]){(char *)"GPT2BPETokenizer", NULL}};
  if (!type && ms_args_take(args, "--merge-file")) type = &merges; /* the default of pretrain_gpt.py */
  if (!type || (extra && !ms_arg_int(args, extra, 0, 1 << 20, &more, NULL))) return 0;
  for (guint i = 0; i < G_N_ELEMENTS(tokenizers); i++) {
    if (g_strcmp0(type->values[0], tokenizers[i].word) != 0) continue;
    *by = g_strdup(type->values[0]);
    return tokenizers[i].entries + (int)more;
  }
  return 0;
}

/* Models pad what their tokenizer has by up to a few hundred entries: within 2 % it is the same vocabulary. */
static gboolean same_vocabulary(int a, int b) { return ABS(a - b) <= b / 50; }

/* How many more of a shipped model's sizes are a model's own. */
static int alikeness(const MsModel *m, const MsModel *shipped) {
  return 4 * (m->num_layers == shipped->num_layers) + 2 * (m->ffn_hidden_size == shipped->ffn_hidden_size) +
         (m->num_query_groups == shipped->num_query_groups);
}

/* The vocabulary of the shipped model with the same width, heads, experts and, if possible, layers and MLPs; of those
 * that have another one than the tokenizer's name says, none. */
static gboolean find_vocabulary(MsModel *m, MsArgs *args, const MsImportOptions *options, MsImport *import,
                                GError **error) {
  if (options->vocab_size > 0) m->vocab_size = options->vocab_size;
  if (m->vocab_size > 0) return TRUE;
  g_autofree char *by = NULL;
  int said = vocabulary_of_file(args, &by);
  if (said == 0) said = vocabulary_of_tokenizer(args, &by);
  if (said == 0) said = vocabulary_of_script(args, &by);
  g_autoptr(GPtrArray) names = ms_data_names("models");
  g_autoptr(MsModel) best = NULL;
  for (guint i = 0; i + 1 < names->len; i++) {
    g_autoptr(MsModel) shipped = ms_model_load(names->pdata[i], NULL);
    gboolean near = shipped && ms_model_is_near(m, shipped) &&
                    !m->hybrid_layer_pattern == !shipped->hybrid_layer_pattern &&
                    (said == 0 || same_vocabulary(said, shipped->vocab_size));
    if (!near || (best && alikeness(m, shipped) <= alikeness(m, best))) continue;
    g_clear_pointer(&best, ms_model_free);
    best = g_steal_pointer(&shipped);
  }
  if (!best && said == 0)
    return ms_input_error(
        error, args->file, 0, "--vocab-size",
        "is missing (the tokenizer knows it), and no shipped model looks like this one; give --vocab-size N");
  m->vocab_size = best ? best->vocab_size : said;
  if (best && !ms_args_has(args, "--make-vocab-size-divisible-by"))
    m->make_vocab_size_divisible_by = best->make_vocab_size_divisible_by;
  ms_import_remark(import, "vocabulary: the file does not say it, %d of %s is assumed; --vocab-size N says another",
                   m->vocab_size, best ? best->name : by);
  return TRUE;
}

static char *name_of_file(const char *file) {
  if (strcmp(file, "-") == 0) return g_strdup("imported");
  g_autofree char *base = g_path_get_basename(file);
  char *dot = strrchr(base, '.');
  if (dot && dot != base) *dot = '\0';
  return g_strdup(base);
}

static gboolean finish_model(MsScenario *s, MsArgs *args, const MsImportOptions *options, MsImport *import,
                             GError **error) {
  const char *name = ms_import_note(args, "model");
  g_autoptr(GError) why = NULL;
  if (s->model->moe_router_group_topk == 0) s->model->moe_router_num_groups = 0; /* limits nothing, as the release */
  if (!find_vocabulary(s->model, args, options, import, error)) return FALSE;
  if (!ms_model_finish(s->model, NULL, "model", &why))
    return ms_input_error(error, args->file, 0, "", "%s", why->message);
  if (options->model) return TRUE;
  g_free(s->model->name);
  s->model->name = name ? g_strdup(name) : g_strdup_printf("%s-model", s->name);
  return TRUE;
}

/* A skew that no argument says counts as long as the arguments leave routing to the router. */
static gboolean note_routing(MsScenario *s, const MsArgs *args, GError **error) {
  JsonNode *node = json_object_get_member(args->notes, "routing");
  gboolean open = s->training.routing.kind == MS_ROUTING_NATURAL || s->training.routing.kind == MS_ROUTING_CAPACITY;
  g_autoptr(GError) why = NULL;
  if (!node || !open) return TRUE;
  if (ms_field_set(ms_field_find(&ms_training_table, "routing"), NULL, node, "routing", &s->training, &why))
    return TRUE;
  return ms_input_error(error, args->file, 0, "#moesim", "%s", why->message);
}

/* Stretched frequencies that no argument says count as long as the arguments say what those of the note would. */
static gboolean note_rope_scaling(MsScenario *s, const MsArgs *args, GError **error) {
  JsonNode *node = json_object_get_member(args->notes, "rope_scaling");
  g_autoptr(GError) why = NULL;
  if (!node) return TRUE;
  const MsRopeScaling read = s->model->rope_scaling;
  if (!ms_field_set(ms_field_find(&ms_model_table, "rope_scaling"), NULL, node, "rope_scaling", s->model, &why))
    return ms_input_error(error, args->file, 0, "#moesim", "%s", why->message);
  ms_rope_scaling_canonical(s->model);
  for (int release = 0; release < MS_N_RELEASES; release++) {
    MsRopeScaling said = ms_rope_scaling_said(s->model, (MsRelease)release);
    if (ms_rope_scaling_is(&said, &read)) return TRUE;
  }
  s->model->rope_scaling = read;
  return TRUE;
}

/* Documents of one length in every sequence (dialect_mindspeed.c). */
static gboolean read_lengths(MsScenario *s, MsArgs *args, GError **error) {
  const MsArg *arg = ms_args_take(args, MS_FIXED_LENGTH);
  gint64 tokens;
  if (!arg) return TRUE;
  if (!ms_arg_int(args, arg, 1, 1 << 27, &tokens, error)) return FALSE;
  s->training.sequence_lengths = (MsLengths){.n = 1, .length = {(int)tokens}, .weight = {1}};
  return TRUE;
}

/* Of a script that does not say it, Megatron-LM. */
static gboolean note_framework(MsScenario *s, const MsArgs *args, GError **error) {
  const char *word = ms_import_note(args, "framework");
  for (int i = 0; word && ms_framework_words[i]; i++) {
    if (strcmp(word, ms_framework_words[i]) != 0) continue;
    s->framework = (MsFramework)i;
    return TRUE;
  }
  g_autofree char *words = g_strjoinv(", ", (char **)ms_framework_words);
  return !word ||
         ms_input_error(error, args->file, 0, "#moesim framework", "is \"%s\", must be one of %s", word, words);
}

/* --- what must not be lost --- */
/* Arguments that moesim does not read and that change the model or its time. One that ends in '-' stands for all that
 * begin so. */
static const char *const changing_model[] = {"--spec",
                                             "--noop-layers",
                                             "--heterogeneous-layers-config-path",
                                             "--heterogeneous-layers-config-encoded-json",
                                             "--hybrid-",
                                             "--mamba-",
                                             "--experimental-attention-variant",
                                             "--dsa-indexer-",
                                             "--dsv4-",
                                             "--linear-",
                                             "--use-checkpoint-args",
                                             "--custom-model-provider-path",
                                             "--bridge-hf-model",
                                             "--num-experts-per-layer",
                                             "--enable-hyper-connections",
                                             "--num-zero-experts",
                                             "--share-kvstates",
                                             "--cla-share-factor",
                                             "--kv-compress",
                                             "--enable-mhc",
                                             "--glu-activation",
                                             NULL};
static const char *const changing_run[] = {"--yaml-cfg",
                                           "--lora-",
                                           "--lu-lora-",
                                           "--tp-2d",
                                           "--encoder-",
                                           "--num-layer-list",
                                           "--kd",
                                           "--mos",
                                           "--ds-sequence-parallel-fpdt",
                                           "--freeze-",
                                           "--tune-mm-mlp-adapter",
                                           "--retro-",
                                           "--retriever-",
                                           "--export-quant-cfg",
                                           "--fp32-residual-connection",
                                           "--tensor-parallel-num-weight-shards",
                                           "--expert-tensor-parallel-num-weight-shards",
                                           NULL};

static gboolean is_among(const char *const *flags, const char *flag) {
  for (; *flags; flags++)
    if (g_str_has_suffix(*flags, "-") ? g_str_has_prefix(flag, *flags) : strcmp(flag, *flags) == 0) return TRUE;
  return FALSE;
}

static gboolean check_ignored(const MsArgs *args, const MsImportOptions *options, GError **error) {
  const char *const *allow = options->allow;
  for (guint i = 0; i < args->list->len; i++) {
    const MsArg *arg = args->list->pdata[i];
    gboolean model = is_among(changing_model, arg->flag);
    if (arg->used || arg->plain || (allow && g_strv_contains(allow, arg->flag))) continue;
    if (model && !options->model)
      return ms_arg_error(args, arg, error,
                          "changes the model, and moesim does not read it; --model NAME says the whole model, --allow "
                          "%s imports the rest",
                          arg->flag);
    if (is_among(changing_run, arg->flag))
      return ms_arg_error(args, arg, error,
                          "changes the model or its time, and moesim does not read it; --allow %s imports the rest",
                          arg->flag);
  }
  return TRUE;
}

/* --- the whole --- */
static MsScenario *empty_scenario(const MsArgs *args, const MsImportOptions *options) {
  MsScenario *s = g_new0(MsScenario, 1);
  const char *name = options->name ? options->name : ms_import_note(args, "name");
  ms_fields_defaults(&ms_scenario_table, s);
  s->file = g_strdup(args->file);
  s->name = name ? g_strdup(name) : name_of_file(args->file);
  s->software = g_strdup(ms_import_note(args, "software"));
  s->doc = g_strdup(ms_import_note(args, "doc"));
  if (options->model) return s;
  s->model = g_new0(MsModel, 1);
  ms_fields_defaults(&ms_model_table, s->model);
  return s;
}

static gboolean read_scenario(MsImport *import, MsArgs *args, int gpus, const MsImportOptions *options,
                              GError **error) {
  g_autoptr(MsScenario) s = empty_scenario(args, options);
  if (!note_framework(s, args, error) || !load_hardware(s, args, import, options, error) ||
      !ms_stack_find(s->software, &s->stack, error) || !ms_laws_load(&s->laws, error))
    return FALSE;
  if (options->model && !(s->model = ms_model_load(options->model, error))) return FALSE;
  g_autoptr(MsModel) found = g_new0(MsModel, 1);
  if (!options->model && !ms_import_compressed(import, args, found, error)) return FALSE;
  if (!ms_dialect_translate(args, import->remarks, &gpus, error)) return FALSE;
  s->gpus = count_gpus(args, gpus, options, import);
  default_batch(args, s->gpus);
  if (!(options->model ? ms_args_read_around : ms_args_read)(args, s, error) ||
      !ms_import_lora(import, args, s, error) || !check_ignored(args, options, error) ||
      !read_lengths(s, args, error) || !note_routing(s, args, error) || !note_rope_scaling(s, args, error))
    return FALSE;
  ms_import_put_compressed(found, s->model);
  if (!finish_model(s, args, options, import, error)) return FALSE;
  import->scenario = ms_launch_canonical(s);
  ms_import_list_ignored(import, args);
  return TRUE;
}

gboolean ms_import_scenario(MsImport *import, MsArgs *args, int gpus, const MsImportOptions *options, GError **error) {
  MsImportOptions with = *options;
  g_autofree char *model = options->model ? NULL : ms_dialect_model(args, import->remarks);
  if (model) with.model = model;
  if (read_scenario(import, args, gpus, &with, error)) return TRUE;
  ms_import_list_ignored(import, args);
  ms_import_blame_misspelt(import, error);
  return FALSE;
}
