/* src/launch/titan_python.c - configurations of TorchTitan's main branch, functions that return a Trainer.Config, read
 * and never run, as the tables of its TOML.
 *
 * Facts: pytorch/torchtitan of August 2026, torchtitan/config (configs.py and what is written about it there),
 * trainer.py and models/NAME/config_registry.py. */
#include "launch/titan.h"

#include <string.h>

#include "base/err.h"
#include "launch/import.h"
#include "launch/python_text.h"
#include "launch/shell_eval.h"

enum { DEEPEST = 24, MOST_FUNCTIONS = 200 };
#define CALL "call" /* member of an object that a call makes: its name; "0", "1": arguments without a name */

typedef struct {
  char *text;             /* without comments and strings of several lines */
  const char *file, *set; /* set: NAME of CONFIG=NAME, or NULL */
  MsImport *import;
  GError **error;
  GHashTable *values; /* char * -> JsonNode *, of the function that is read */
  int depth;
} Python;

static JsonNode *evaluate(Python *p, const char *raw);
static JsonNode *run(Python *p, const char *name);

/* --- values ----------------------------------------------------------------------------------------------------- */
static JsonNode *string_node(const char *text) { return json_node_init_string(json_node_alloc(), text); }

static JsonNode *call_node(const char *name) {
  JsonObject *object = json_object_new();
  json_object_set_string_member(object, CALL, name);
  JsonNode *node = json_node_init_object(json_node_alloc(), object);
  json_object_unref(object);
  return node;
}

static const char *call_of(JsonNode *node) {
  JsonObject *object = ms_json_object(node);
  return object ? json_object_get_string_member_with_default(object, CALL, "") : "";
}

static gboolean is_word(const char *text, gsize n) {
  return n > 0 && !g_ascii_isdigit(*text) && strspn(text, "._" G_CSET_a_2_z G_CSET_A_2_Z G_CSET_DIGITS) >= n;
}

static char *number_of(const void *data, const char *name) {
  JsonNode *node = g_hash_table_lookup((GHashTable *)data, name);
  return ms_json_is(node, G_TYPE_INT64) ? g_strdup_printf("%" G_GINT64_FORMAT, json_node_get_int(node)) : NULL;
}

/* The parts of a list, each evaluated: `name` (of NAME=VALUE, else NULL) and what it is, which is taken. */
static gboolean each(Python *p, const char *list, JsonObject *named, JsonArray *items) {
  for (const char *at = list, *end; *at; at = *end ? end + 1 : end) {
    if (!(end = ms_python_span(at, ","))) return FALSE;
    g_autofree char *one = g_strstrip(g_strndup(at, (gsize)(end - at)));
    gsize n = strcspn(one, " =");
    const char *equals = one + n + strspn(one + n, " ");
    gboolean keyword = named && is_word(one, n) && *equals == '=' && equals[1] != '=';
    g_autofree char *key = keyword ? g_strndup(one, n)
                           : named ? g_strdup_printf("%u", json_object_get_size(named) - 1)
                                   : NULL;
    if (!*one) continue;
    JsonNode *value = evaluate(p, keyword ? equals + 1 : one);
    if (named) json_object_set_member(named, key, value);
    else json_array_add_element(items, value);
  }
  return TRUE;
}

static JsonNode *list_of(Python *p, const char *inside) {
  JsonArray *items = json_array_new();
  JsonNode *node = json_node_init_array(json_node_alloc(), items);
  each(p, inside, NULL, items);
  json_array_unref(items);
  return node;
}

static JsonNode *called(Python *p, const char *name, const char *inside) {
  g_autofree char *defined = g_strdup_printf("\ndef %s(", name);
  if (!*inside && strstr(p->text, defined)) return run(p, name);
  JsonNode *node = call_node(name);
  each(p, inside, json_node_get_object(node), NULL);
  return node;
}

/* [ ITEMS ], ( VALUE ) or NAME( ARGUMENTS ), where the whole of the text is one. NULL: it is not. */
static JsonNode *bracketed(Python *p, const char *text) {
  gboolean list = *text == '[';
  gsize n = list ? 0 : strcspn(text, "(");
  const char *close = list || text[n] == '(' ? ms_python_span(text + n + 1, list ? "]" : ")") : NULL;
  if (!close || !*close || close[1]) return NULL;
  g_autofree char *inside = g_strstrip(g_strndup(text + n + 1, (gsize)(close - text) - n - 1)),
                  *name = g_strndup(text, n);
  if (list) return list_of(p, inside);
  if (n == 0) return evaluate(p, inside);
  return is_word(name, n) ? called(p, name, inside) : NULL;
}

static JsonNode *constant(const Python *p, const char *text) {
  gsize whole = strlen(text);
  gint64 number;
  if (strcmp(text, "None") == 0) return json_node_init_null(json_node_alloc());
  if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0)
    return json_node_init_boolean(json_node_alloc(), *text == 'T');
  if (*text && strchr("\"'", *text) && ms_python_string_end(text) == text + whole - 1) {
    g_autofree char *inner = g_strndup(text + 1, whole - 2);
    return string_node(inner);
  }
  return ms_shell_arithmetic(text, number_of, p->values, &number) ? json_node_init_int(json_node_alloc(), number)
                                                                  : NULL;
}

/* What is not understood is a call of no name. */
static JsonNode *evaluate(Python *p, const char *raw) {
  g_auto(GStrv) lines = g_strsplit(raw, "\n", -1);
  g_autofree char *text = g_strstrip(g_strjoinv(" ", lines));
  JsonNode *known = g_hash_table_lookup(p->values, text), *node = NULL;
  if (known) return ms_json_copy(known);
  if (++p->depth <= DEEPEST && !(node = bracketed(p, text))) node = constant(p, text);
  p->depth--;
  return node ? node : call_node("");
}

/* --- a function ------------------------------------------------------------------------------------------------- */
/* The object that the path leads to, made where it is not there; the last name is *key. */
static JsonObject *reach(JsonObject *at, char **names, int n, const char **key) {
  for (int i = 0; i + 1 < n; i++) {
    JsonNode *node = json_object_get_member(at, names[i]);
    if (!node || !JSON_NODE_HOLDS_OBJECT(node)) json_object_set_member(at, names[i], call_node(names[i]));
    at = json_object_get_object_member(at, names[i]);
  }
  return *key = names[n - 1], at;
}

static void assign(Python *p, const char *target, JsonNode *value) {
  g_auto(GStrv) names = g_strsplit(target, ".", -1);
  int n = (int)g_strv_length(names);
  JsonNode *variable = g_hash_table_lookup(p->values, names[0]);
  const char *key;
  if (n == 1) g_hash_table_insert(p->values, g_strdup(target), value);
  else if (!variable || !JSON_NODE_HOLDS_OBJECT(variable)) json_node_unref(value);
  else json_object_set_member(reach(json_node_get_object(variable), names + 1, n - 1, &key), names[n - 1], value);
}

/* One statement of the body. The returned value, NULL: goes on. */
static JsonNode *statement(Python *p, const char *text) {
  static const char *const passed[] = {"assert ", "import ", "from ", "pass", NULL};
  for (int i = 0; passed[i]; i++)
    if (g_str_has_prefix(text, passed[i])) return NULL;
  if (g_str_has_prefix(text, "return ")) return evaluate(p, text + strlen("return "));
  gsize n = strcspn(text, " =(");
  const char *equals = text + n + strspn(text + n, " ");
  g_autofree char *target = g_strndup(text, n);
  if (is_word(target, n) && *equals == '=' && equals[1] != '=') assign(p, target, evaluate(p, equals + 1));
  else if (*text) ms_import_remark(p->import, "\"%.60s\" is not understood and left out", text);
  return NULL;
}

static JsonNode *run_body(Python *p, const char *body) {
  JsonNode *value = NULL;
  for (const char *at = body, *end; *at && !value; at = *end ? end + 1 : end) {
    if (*at != ' ' && *at != '\n') return NULL; /* the next definition */
    if (!(end = ms_python_span(at, "\n"))) return NULL;
    gsize indent = strspn(at, " ");
    g_autofree char *line = g_strstrip(g_strndup(at, (gsize)(end - at)));
    if (indent <= 4) value = statement(p, line);
  }
  return value;
}

/* What the function returns; a call of no name where that is not understood. */
static JsonNode *run(Python *p, const char *name) {
  g_autofree char *definition = g_strdup_printf("\ndef %s(", name);
  const char *at = strstr(p->text, definition), *end = at ? ms_python_span(at + strlen(definition), ")") : NULL;
  const char *body = end && *end ? strchr(end, '\n') : NULL;
  if (!body || ++p->depth > DEEPEST) return call_node("");
  GHashTable *outer = p->values;
  p->values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)json_node_unref);
  JsonNode *value = run_body(p, body + 1);
  g_hash_table_unref(p->values);
  p->values = outer, p->depth--;
  return value ? value : call_node("");
}

/* Names of the functions that return a Trainer.Config. (transfer full) */
static char **functions_of(const Python *p) {
  GPtrArray *names = g_ptr_array_new();
  for (const char *at = p->text; (at = strstr(at, "\ndef ")) && names->len < MOST_FUNCTIONS; at++) {
    const char *name = at + strlen("\ndef "), *colon = strchr(name, ':'), *returns = strstr(name, "-> Trainer.Config");
    gsize n = strcspn(name, "(");
    if (returns && colon && returns < colon && name[n + 1] == ')') g_ptr_array_add(names, g_strndup(name, n));
  }
  g_ptr_array_add(names, NULL);
  return (char **)g_ptr_array_free(names, FALSE);
}

/* --- as tables -------------------------------------------------------------------------------------------------- */
static JsonObject *table_of(JsonObject *root, const char *name) {
  if (!json_object_has_member(root, name)) json_object_set_object_member(root, name, json_object_new());
  return json_object_get_object_member(root, name);
}

static JsonNode *member(JsonObject *config, const char *section, const char *key) {
  JsonObject *in = ms_json_object(json_object_get_member(config, section));
  return in ? json_object_get_member(in, key) : NULL;
}

static gint64 tokens(JsonObject *config, const char *key, gint64 absent) {
  JsonNode *node = member(config, "training", key);
  return ms_json_is(node, G_TYPE_INT64) ? json_node_get_int(node) : absent;
}

/* Plain values and lists of a section; None is as if it were not said. */
static void copy_section(JsonObject *config, const char *section, JsonObject *root) {
  JsonObject *from = ms_json_object(json_object_get_member(config, section));
  g_autoptr(GList) keys = from ? json_object_get_members(from) : NULL;
  for (GList *k = keys; k; k = k->next) {
    JsonNode *node = json_object_get_member(from, k->data);
    gboolean plain = JSON_NODE_HOLDS_VALUE(node) || JSON_NODE_HOLDS_ARRAY(node);
    if (plain && strcmp(k->data, CALL) != 0)
      json_object_set_member(table_of(root, section), k->data, ms_json_copy(node));
  }
}

static gint64 parallel(JsonObject *config, const char *key) {
  JsonNode *node = member(config, "parallelism", key);
  return ms_json_is(node, G_TYPE_INT64) ? MAX(json_node_get_int(node), 1) : 1;
}

/* Tokens of a microbatch and of a step are sequences there. */
static gboolean put_batch(Python *p, JsonObject *config, JsonObject *root) {
  gint64 sequence = tokens(config, "max_context_length", 2048),
         microbatch = tokens(config, "num_tokens_per_microbatch_per_dp_rank", 16384),
         step = tokens(config, "num_tokens_per_train_step", -1);
  gboolean pipeline = parallel(config, "pipeline_parallel_degree") > 1;
  gint64 many = pipeline ? MIN(parallel(config, "num_pp_microbatches"), 1 << 24) : 1;
  if (sequence < 1 || microbatch > G_MAXINT32 || microbatch % sequence || microbatch < sequence ||
      (step > 0 && step % sequence))
    return ms_input_error(
        p->error, p->file, 0, "training.num_tokens_per_microbatch_per_dp_rank",
        "or num_tokens_per_train_step is no number of sequences of max_context_length = %" G_GINT64_FORMAT, sequence);
  JsonObject *training = table_of(root, "training"), *parallelism = table_of(root, "parallelism");
  static const char *const said[] = {"max_context_length", "num_tokens_per_microbatch_per_dp_rank",
                                     "num_tokens_per_train_step"};
  for (guint i = 0; i < G_N_ELEMENTS(said); i++)
    if (json_object_has_member(training, said[i])) json_object_remove_member(training, said[i]);
  if (json_object_has_member(parallelism, "num_pp_microbatches"))
    json_object_remove_member(parallelism, "num_pp_microbatches");
  json_object_set_int_member(training, "seq_len", sequence);
  json_object_set_int_member(training, "local_batch_size", microbatch / sequence * many);
  json_object_set_int_member(training, "global_batch_size", step > 0 ? step / sequence : -1);
  if (pipeline) json_object_set_int_member(parallelism, "pipeline_parallel_microbatch_size", microbatch / sequence);
  return TRUE;
}

static const struct {
  const char *call, *word, *table;
} converters[] = {{"Float8LinearConverter.Config", "quantize.linear.float8", "quantize.linear.float8"},
                  {"MXFP8LinearConverter.Config", "quantize.linear.mx", NULL}};

/* Those that are not known, and a list that is not understood, are left to be refused by their name. */
static void put_converters(JsonNode *given, JsonObject *root) {
  JsonArray *out = json_array_new(), *list = ms_json_array(given);
  if (given && !list && !JSON_NODE_HOLDS_NULL(given)) json_array_add_string_element(out, call_of(given));
  for (guint i = 0; list && i < json_array_get_length(list); i++) {
    JsonNode *node = json_array_get_element(list, i);
    const char *word = call_of(node);
    for (guint k = 0; k < G_N_ELEMENTS(converters); k++) {
      if (strcmp(call_of(node), converters[k].call) != 0) continue;
      word = converters[k].word;
      JsonObject *table = converters[k].table ? table_of(root, converters[k].table) : NULL,
                 *from = ms_json_object(node);
      JsonNode *recipe = json_object_get_member(from, "recipe_name");
      if (table) json_object_set_string_member(table, "recipe_name", recipe ? json_node_get_string(recipe) : "rowwise");
    }
    json_array_add_string_element(out, word);
  }
  json_object_set_array_member(table_of(root, "model"), "converters", out);
}

/* The folder in models/ whose model_registry the file takes: that of its import, else its own. (transfer full) */
static char *model_name(const Python *p) {
  static const char from[] = "from torchtitan.models.";
  const char *at = strstr(p->text, from);
  if (at && g_str_has_prefix(at + strlen(from) + strcspn(at + strlen(from), " .\n"), " import"))
    return g_strndup(at + strlen(from), strcspn(at + strlen(from), " .\n"));
  g_autofree char *folder = g_path_get_dirname(p->file);
  return g_path_get_basename(folder);
}

static gboolean put_model(Python *p, JsonObject *config, JsonObject *root) {
  JsonObject *spec = ms_json_object(json_object_get_member(config, "model_spec"));
  JsonNode *flavor = spec ? json_object_get_member(spec, "0") : NULL, *backend;
  if (!flavor || !ms_json_is(flavor, G_TYPE_STRING))
    return ms_input_error(p->error, p->file, 0, "model_spec", "is not model_registry(\"FLAVOR\", ...)");
  g_autofree char *name = model_name(p);
  json_object_set_string_member(table_of(root, "model"), "name", name);
  json_object_set_string_member(table_of(root, "model"), "flavor", json_node_get_string(flavor));
  put_converters(json_object_get_member(spec, "converters"), root);
  if ((backend = json_object_get_member(spec, "moe_comm_backend")))
    json_object_set_member(table_of(root, "parallelism"), "expert_parallel_comm_backend", ms_json_copy(backend));
  return TRUE;
}

static void put_checkpointing(JsonObject *config, JsonObject *root) {
  static const struct {
    const char *call, *mode;
  } modes[] = {{"SelectiveAC.Config", "selective"}, {"FullAC.Config", "full"}};
  JsonNode *node = json_object_get_member(config, "activation_checkpoint");
  const char *mode = !node ? "selective" : JSON_NODE_HOLDS_NULL(node) ? "none" : call_of(node);
  for (guint i = 0; i < G_N_ELEMENTS(modes); i++)
    if (strcmp(mode, modes[i].call) == 0) mode = modes[i].mode;
  JsonObject *table = table_of(root, "activation_checkpoint");
  json_object_set_string_member(table, "mode", mode);
  json_object_set_string_member(table, "selective_ac_option", "op");
}

static void move_async_tp(JsonObject *root) {
  static const char key[] = "enable_async_tensor_parallel";
  JsonObject *compile = table_of(root, "compile");
  JsonNode *node = json_object_get_member(compile, key);
  if (!node) return;
  json_object_set_member(table_of(root, "parallelism"), key, ms_json_copy(node));
  json_object_remove_member(compile, key);
}

/* What the step of this branch does besides. */
static void remark_others(Python *p, JsonObject *config, gboolean pipeline) {
  static const char *const read[] = {CALL,         "training",  "parallelism",           "compile", "debug",
                                     "model_spec", "optimizer", "activation_checkpoint", "loss",    NULL};
  JsonNode *graphs = member(config, "training", "disable_cuda_graphs");
  g_autoptr(GList) keys = json_object_get_members(config);
  for (GList *k = keys; k; k = k->next)
    if (!g_strv_contains(read, k->data)) g_ptr_array_add(p->import->ignored, g_strdup(k->data));
  if (g_str_has_prefix(call_of(json_object_get_member(config, "loss")), "Chunked"))
    ms_import_remark(p->import, "loss: logits in chunks are not modelled: memory is predicted too high");
  gboolean off = ms_json_is(graphs, G_TYPE_BOOLEAN) && json_node_get_boolean(graphs);
  if (!off && !pipeline)
    ms_import_remark(p->import,
                     "training.disable_cuda_graphs: is not set; a step in one CUDA graph is not modelled, the "
                     "host is predicted as without");
}

static const char *const sections[] = {"training", "parallelism", "compile", "debug", NULL};

static gboolean put_all(Python *p, JsonObject *config, JsonObject *root) {
  for (int i = 0; sections[i]; i++) copy_section(config, sections[i], root);
  JsonNode *optimizer = json_object_get_member(config, "optimizer");
  gboolean adam = !optimizer || strcmp(call_of(optimizer), "default_adamw") == 0;
  json_object_set_string_member(table_of(root, "optimizer"), "name", adam ? "AdamW" : call_of(optimizer));
  put_checkpointing(config, root);
  move_async_tp(root);
  remark_others(p, config, parallel(config, "pipeline_parallel_degree") > 1);
  return put_model(p, config, root) && put_batch(p, config, root);
}

/* Words behind the file, --SECTION.KEY VALUE or --SECTION.KEY=VALUE: a value, or else a word. */
static gboolean put_words(Python *p, JsonObject *config, const char *const *words) {
  for (int i = 0; words && words[i]; i++) {
    gsize n = strcspn(words[i], "=");
    g_autofree char *path = g_strndup(words[i], n);
    const char *text = words[i][n] ? words[i] + n + 1 : words[i + 1], *key;
    if (!g_str_has_prefix(path, "--") || !strchr(path, '.') || !text)
      return ms_input_error(p->error, p->file, 0, "", "is followed by \"%.60s\", must be --SECTION.KEY VALUE",
                            words[i]);
    g_auto(GStrv) names = g_strsplit(path + 2, ".", -1);
    if (!g_strv_contains(sections, names[0]))
      return ms_input_error(p->error, p->file, 0, path, "is not read behind the file: write it into the function");
    JsonNode *value = evaluate(p, text);
    gboolean word = JSON_NODE_HOLDS_OBJECT(value);
    if (word) json_node_unref(value);
    JsonObject *in = reach(config, names, (int)g_strv_length(names), &key);
    json_object_set_member(in, key, word ? string_node(text) : value);
    i += !words[i][n];
  }
  return TRUE;
}

/* The configuration that is asked for, the only one where there is no more. (transfer full) or NULL and the error */
static JsonNode *config_of(Python *p) {
  g_auto(GStrv) names = functions_of(p);
  g_autofree char *all = g_strjoinv(", ", names);
  const char *name = p->set ? p->set : names[0] && !names[1] ? names[0] : NULL;
  if (!names[0]) ms_input_error(p->error, p->file, 0, "", "has no function that returns a Trainer.Config");
  else if (!name || !g_strv_contains((const char *const *)names, name))
    ms_input_error(p->error, p->file, 0, "", "has the configurations %.500s: --set CONFIG=NAME says which", all);
  else {
    JsonNode *node = run(p, name);
    if (g_str_has_suffix(call_of(node), ".Config")) return node;
    json_node_unref(node);
    ms_input_error(p->error, p->file, 0, name, "is no Trainer.Config(...) that moesim can read");
  }
  return NULL;
}

const char *ms_titan_config_name(const char *const *set) {
  for (int i = 0; set && set[i]; i++)
    if (g_str_has_prefix(set[i], "CONFIG=")) return set[i] + strlen("CONFIG=");
  return NULL;
}

MsJson *ms_titan_python(const char *text, const char *file, const MsImportOptions *options, MsImport *import,
                        GError **error) {
  g_autofree char *before = g_strconcat("\n", text, NULL), *plain = ms_python_without_comments(before);
  g_autoptr(GHashTable) values =
      g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)json_node_unref);
  Python p = {.text = plain,
              .file = file,
              .set = ms_titan_config_name(options->set),
              .import = import,
              .error = error,
              .values = values};
  if (!plain) return ms_input_error(error, file, 0, "", "has a string without its end"), NULL;
  g_autoptr(JsonNode) config = config_of(&p);
  if (!config || !put_words(&p, json_node_get_object(config), options->words)) return NULL;
  JsonObject *root = json_object_new();
  g_autoptr(JsonNode) node = json_node_init_object(json_node_alloc(), root);
  json_object_unref(root);
  return put_all(&p, json_node_get_object(config), root) ? ms_json_doc(node, file) : NULL;
}
