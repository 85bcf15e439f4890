/* src/describe/request.c - plan requests: the open keys are taken out first, then the rest is an ordinary
 * scenario. */
#include "describe/rows.h"
#include "describe/scenario.h"

#include <string.h>

#define VALUES_MAX 4096

static gboolean under_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsRequest *request = member;
  ms_disturbances_free(request->under); /* a key twice in overrides */
  return (request->under = ms_disturbances_from_list(doc, node, path, error)) != NULL;
}

#define S MsRequest
const MsFieldTable ms_plan_table = MS_FIELD_TABLE(
    "request.plan", "how a plan request is searched",
    MS_INT(S, top, 0, 1000000, "0", MS_NULLABLE, "how many plans to print; 0 = the program's default"),
    MS_F64(S, max_memory_fraction, "", 0.01, 1, "0.94", MS_NULLABLE, "share of the device memory that a plan may use"),
    {MS_CUSTOM(under, "", 0, "states of the cluster to choose under, as in a file of --under: list of disturbances"),
     .parse = under_parse},
    MS_ENUM(S, objective, ms_goal_words, "\"step_time\"", 0, "what plans are ranked by; gpus may be a list or a range"),
    MS_F64(S, gpu_hour_price, "", 1e-6, 1e9, NULL, MS_NULLABLE,
           "price of one GPU for one hour, any currency; beside a list of `hardware` also a list, one for each"),
    MS_STRING(S, gpu_hour_price_source, MS_NULLABLE, "where that price comes from; required with it"),
    MS_F64(S, gpu_power_W, "W", 1, 1e6, NULL, MS_NULLABLE,
           "power per GPU while it trains; null = tdp_W of the hardware"),
    MS_F64(S, training_tokens, "", 1, 1e18, NULL, MS_NULLABLE,
           "tokens of the whole training: days, GPU-hours, energy and price are then said of every choice"),
    MS_F64(S, critical_batch_tokens, "", 1, 1e18, NULL, MS_NULLABLE,
           "critical batch size: training_tokens are those that small batches need, a batch of B tokens needs 1 + B / "
           "critical_batch_tokens times as many; null = as many"),
    MS_F64(S, deadline_s, "s", 1, 1e12, NULL, MS_NULLABLE, "longest time for all of them"),
    MS_F64(S, max_power_W, "W", 1, 1e12, NULL, MS_NULLABLE, "of all GPUs together; more GPUs than that are refused"),
    MS_F64(S, goodput, "", 0.01, 1, NULL, MS_NULLABLE,
           "share of the time that trains; null = by `reliability`, with checkpoints at their optimal interval"),
    MS_STRING(S, reliability, MS_NULLABLE, "failures that the days of training include; null = llama3-h100"),
    MS_F64(S, grid_kg_per_kWh, "", 0, 10, "0.48", MS_NULLABLE,
           "CO2e of electricity, kg per kWh; the world's mean in 2023 (Ember, Global Electricity Review 2024, "
           "ember-climate.org: 480 g/kWh); a contract or a country may differ tenfold"));
#undef S

typedef struct {
  const MsJson *doc;
  MsRequest *request;
  GArray *open; /* of MsOpenKey */
  GError **error;
} Reader;

static gboolean is_string(JsonNode *node, const char *text) { return g_strcmp0(ms_json_string(node), text) == 0; }

/* --- the values of an open key ------------------------------------------------------------------------------------ */
/* The whole object that a partial one means, so that setting it later leaves nothing of the value before. */
static JsonNode *completed(const MsField *field, const void *object) {
  return ms_fields_node(field->sub, (const char *)object + field->offset, TRUE);
}

static JsonNode *int_node(gint64 value) {
  JsonNode *node = json_node_new(JSON_NODE_VALUE);
  json_node_set_int(node, value);
  return node;
}

/* A copy of the node; of "8k" the number that it is. */
static JsonNode *as_number(const MsField *field, const void *object, JsonNode *node) {
  if (field->type == MS_T_INT && !ms_json_is(node, G_TYPE_INT64))
    return int_node(*(const int *)((const char *)object + field->offset));
  return ms_json_copy(node);
}

/* Checks one value; a node to keep, or NULL and *error. */
static JsonNode *check_value(Reader *r, const MsField *field, JsonNode *node, const char *path) {
  const MsField one[] = {*field, {0}};
  const MsFieldTable table = {"value", "", one};
  MsScenario scratch; /* as large as any struct of the tables */
  memset(&scratch, 0, sizeof scratch);
  ms_fields_defaults(&table, &scratch);
  JsonNode *kept = NULL;
  if (ms_field_set(field, r->doc, node, path, &scratch, r->error))
    kept = field->type == MS_T_OBJECT ? completed(field, &scratch) : as_number(field, &scratch, node);
  ms_fields_clear(&table, &scratch);
  return kept;
}

/* Of a bool that the sizes may settle null is a value like the others; of other keys the planner's "auto" tries more.
 */
static gboolean null_is_a_value(const MsField *field) {
  return field->type == MS_T_BOOL && (field->flags & MS_NULLABLE);
}

static gboolean add_value(Reader *r, MsOpenKey *key, JsonNode *node, const char *path) {
  if (ms_field_is_auto(key->field, node) ||
      ((key->field->flags & MS_AUTO) && JSON_NODE_HOLDS_NULL(node) && !null_is_a_value(key->field)))
    return ms_json_error(r->doc, path, r->error,
                         "must be a value to try; null and \"auto\" stand alone, not in a list");
  JsonNode *kept = check_value(r, key->field, node, path);
  if (!kept) return FALSE;
  key->values[key->n++] = kept;
  for (int i = 0; i + 1 < key->n; i++)
    if (json_node_equal(key->values[i], kept))
      return ms_json_error(r->doc, path, r->error, "the same value is given twice");
  return TRUE;
}

static gboolean add_list(Reader *r, MsOpenKey *key, JsonArray *array) {
  guint length = json_array_get_length(array);
  if (length < 1 || length > VALUES_MAX)
    return ms_json_error(r->doc, key->path, r->error, "is a list of %u values, must hold 1 to %d", length, VALUES_MAX);
  key->values = g_new0(JsonNode *, length);
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < length; i++) {
    char *item = g_strdup_printf("%s[%u]", key->path, i);
    ok = add_value(r, key, json_array_get_element(array, i), item);
    g_free(item);
  }
  return ok;
}

static gboolean expand_range(Reader *r, MsOpenKey *key, gint64 from, gint64 to) {
  key->values = g_new0(JsonNode *, (gsize)(to - from + 1));
  for (gint64 value = from; value <= to; value++) key->values[key->n++] = int_node(value);
  JsonNode *first = check_value(r, key->field, key->values[0], key->path);
  JsonNode *last = first ? check_value(r, key->field, key->values[key->n - 1], key->path) : NULL;
  if (first) json_node_unref(first);
  if (last) json_node_unref(last);
  return last != NULL;
}

static gboolean add_range(Reader *r, MsOpenKey *key, JsonObject *json) {
  JsonNode *from = json_object_get_member(json, "from"), *to = json_object_get_member(json, "to");
  if (key->field->type != MS_T_INT)
    return ms_json_error(r->doc, key->path, r->error, "is a range, which only integer keys take; give a list");
  if (!ms_json_is(from, G_TYPE_INT64) || !ms_json_is(to, G_TYPE_INT64) || json_object_get_size(json) != 2)
    return ms_json_error(r->doc, key->path, r->error, "must be a range {\"from\": integer, \"to\": integer}");
  gint64 lo = json_node_get_int(from), hi = json_node_get_int(to);
  if (lo > hi || hi - lo >= VALUES_MAX)
    return ms_json_error(r->doc, key->path, r->error,
                         "range from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT ", must hold 1 to %d values", lo, hi,
                         VALUES_MAX);
  return expand_range(r, key, lo, hi);
}

void ms_open_key_clear(MsOpenKey *key) {
  for (int i = 0; i < key->n; i++) json_node_unref(key->values[i]);
  g_free(key->values);
  g_free(key->path);
}

/* Records an open key; *first is its first value, NULL for "auto". */
static gboolean read_open(Reader *r, const MsField *field, JsonNode *node, const char *path, JsonNode **first) {
  if (is_string(node, "auto") && strcmp(path, "gpus") == 0)
    return ms_json_error(r->doc, path, r->error, "\"auto\" is not offered for this key, give a list or a range");
  MsOpenKey key = {.path = g_strdup(path), .field = field};
  gboolean ok = TRUE;
  if (JSON_NODE_HOLDS_ARRAY(node)) ok = add_list(r, &key, json_node_get_array(node));
  else if (JSON_NODE_HOLDS_OBJECT(node)) ok = add_range(r, &key, json_node_get_object(node));
  if (!ok) {
    ms_open_key_clear(&key);
    return FALSE;
  }
  *first = key.n > 0 ? ms_json_copy(key.values[0]) : NULL;
  g_array_append_val(r->open, key);
  return TRUE;
}

/* --- the scenario that is left ------------------------------------------------------------------------------------ */
static JsonObject *close_object(Reader *r, const MsFieldTable *table, JsonObject *json, const char *path);

static void mark_given(Reader *r, const MsFieldTable *table, const MsField *field, JsonNode *node) {
  if (table == &ms_layout_table && !JSON_NODE_HOLDS_NULL(node))
    r->request->layout_given |= (guint64)1 << (field - table->fields);
}

/* The node that stands for `node` in the closed scenario, in *closed; NULL leaves the key out. */
static gboolean close_member(Reader *r, const MsFieldTable *table, const char *name, JsonNode *node, const char *path,
                             JsonNode **closed) {
  const MsField *field = ms_field_find(table, name);
  if (field && ms_field_is_open(field, node)) return read_open(r, field, node, path, closed);
  if (field && field->type == MS_T_OBJECT && JSON_NODE_HOLDS_OBJECT(node)) {
    JsonObject *inner = close_object(r, field->sub, json_node_get_object(node), path);
    if (!inner) return FALSE;
    *closed = json_node_new(JSON_NODE_OBJECT);
    json_node_take_object(*closed, inner);
    return TRUE;
  }
  if (field) mark_given(r, table, field, node);
  *closed = ms_json_copy(node);
  return TRUE;
}

/* A copy of `json` with one value for every open key. NULL and *error on failure. (transfer full) */
static JsonObject *close_object(Reader *r, const MsFieldTable *table, JsonObject *json, const char *path) {
  JsonObject *result = json_object_new();
  gboolean ok = TRUE;
  for (MsJsonMember at = ms_json_members(json); ok && ms_json_next(&at);) {
    char *full = *path ? g_strconcat(path, ".", at.key, NULL) : g_strdup(at.key);
    JsonNode *closed = NULL;
    ok = close_member(r, table, at.key, at.value, full, &closed);
    if (closed) json_object_set_member(result, at.key, closed);
    g_free(full);
  }
  if (!ok) g_clear_pointer(&result, json_object_unref);
  return result;
}

static gboolean read_plan(Reader *r, JsonObject *json) {
  JsonNode *node = json_object_get_member(json, "plan");
  if (!node) return TRUE;
  if (!ms_json_need_object(r->doc, node, "plan", r->error)) return FALSE;
  return ms_fields_load(&ms_plan_table, r->doc, json_node_get_object(node), "plan", TRUE, r->request, r->error);
}

static gboolean has_open(const Reader *r, const char *path) {
  for (guint i = 0; i < r->open->len; i++)
    if (strcmp(g_array_index(r->open, MsOpenKey, i).path, path) == 0) return TRUE;
  return FALSE;
}

/* Takes what is searched out of a copy of a closed request, where a scenario can do without it. */
static void leave_open(JsonObject *closed, const char *path) {
  static const char *const sections[] = {"layout", "options"};
  for (guint i = 0; i < G_N_ELEMENTS(sections); i++) {
    gsize length = strlen(sections[i]);
    if (strncmp(path, sections[i], length) == 0 && path[length] == '.')
      json_object_remove_member(json_object_get_object_member(closed, sections[i]), path + length + 1);
  }
}

/* What trains by the name of the software, if that has what the request asks of all layouts: not by what stands first
 * in a list. -1 where nothing is searched, or no software named. */
static int framework_of_all(const Reader *r, JsonObject *closed) {
  if (r->open->len == 0 || !json_object_has_member(closed, "software")) return -1;
  g_autoptr(JsonNode) node = json_node_new(JSON_NODE_OBJECT);
  json_node_set_object(node, closed);
  g_autoptr(JsonNode) copy = ms_json_copy(node);
  for (guint i = 0; i < r->open->len; i++)
    leave_open(json_node_get_object(copy), g_array_index(r->open, MsOpenKey, i).path);
  MsScenario *s = ms_scenario_from_object(r->doc, json_node_get_object(copy), FALSE, -1, NULL);
  int framework = s ? (int)s->framework : -1;
  ms_scenario_free(s);
  return framework;
}

static gboolean read_request(Reader *r, JsonObject *json) {
  if (!read_plan(r, json)) return FALSE;
  JsonObject *rest = ms_object_without(json, "plan");
  JsonObject *closed = close_object(r, &ms_scenario_table, rest, "");
  if (closed) r->request->base = ms_scenario_from_object(r->doc, closed, FALSE, framework_of_all(r, closed), r->error);
  if (r->request->base && !has_open(r, "layout.pp")) ms_scenario_take_sharding(r->request->base);
  if (r->request->base && has_open(r, "options.recompute.granularity"))
    ms_scenario_take_modules(r->request->base, r->request->base);
  if (closed) json_object_unref(closed);
  json_object_unref(rest);
  if (r->request->base && r->request->base->cluster.expected)
    return ms_json_error(
        r->doc, "cluster.expected", r->error,
        "a search ranks steps of GPUs that are alike; judge its best by a state of `--under` with gpus_differ");
  return r->request->base != NULL;
}

static MsRequest *from_object(const MsJson *doc, JsonObject *json, GError **error) {
  MsRequest *request = g_new0(MsRequest, 1);
  Reader r = {doc, request, g_array_new(FALSE, FALSE, sizeof(MsOpenKey)), error};
  ms_fields_defaults(&ms_plan_table, request);
  gboolean ok = read_request(&r, json);
  request->n_open = (int)r.open->len;
  request->open = (MsOpenKey *)(void *)g_array_free(r.open, FALSE);
  if (!ok) g_clear_pointer(&request, ms_request_free);
  return request;
}

MsRequest *ms_request_from_doc_mixed(const MsJson *doc, GError **error) {
  if (!JSON_NODE_HOLDS_OBJECT(ms_json_root(doc))) return ms_json_error(doc, "", error, "must be one JSON object"), NULL;
  return from_object(doc, json_node_get_object(ms_json_root(doc)), error);
}

MsRequest *ms_request_from_doc(const MsJson *doc, GError **error) {
  MsRequest *request = ms_request_from_doc_mixed(doc, error);
  if (request && !ms_scenario_refuse_pools(request->base, "this is", error)) g_clear_pointer(&request, ms_request_free);
  return request;
}

MsRequest *ms_request_load(const char *filename, GError **error) {
  MsJson *doc = ms_json_load(filename, error);
  MsRequest *request = doc ? ms_request_from_doc(doc, error) : NULL;
  ms_json_free(doc);
  return request;
}

/* --- several requests in one file --------------------------------------------------------------------------------- */
static const char placement_key[] = "hardware.fabric.placement"; /* a list of words; of numbers it is the job's nodes */
static const char *const listed_keys[] = {
    "model", "hardware", "gpus", "training.seq_length", "training.global_batch_size", placement_key};

/* Numbers of GPUs are one search when it is ranked by something else than step time, as the GPUs that a deadline needs.
 */
static gboolean one_search(JsonObject *json, const char *key) {
  JsonNode *plan = json_object_get_member(json, "plan");
  if (strcmp(key, "gpus") != 0 || !plan || !JSON_NODE_HOLDS_OBJECT(plan)) return FALSE;
  JsonNode *objective = json_object_get_member(json_node_get_object(plan), "objective");
  return objective && !JSON_NODE_HOLDS_NULL(objective) && !is_string(objective, "step_time");
}

/* "training.seq_length": the member of the object inside; *inside NULL where there is none. */
static const char *place_of(JsonObject *json, const char *path, JsonObject **inside) {
  const char *dot = strchr(path, '.');
  if (!dot) return *inside = json, path;
  g_autofree char *section = g_strndup(path, (gsize)(dot - path));
  JsonNode *node = json_object_get_member(json, section);
  if (node && JSON_NODE_HOLDS_OBJECT(node)) return place_of(json_node_get_object(node), dot + 1, inside);
  return *inside = NULL, dot + 1;
}

/* A copy with another value there. (transfer full) */
static JsonObject *with_value(JsonObject *json, const char *path, JsonNode *value) {
  const char *dot = strchr(path, '.');
  g_autofree char *key = dot ? g_strndup(path, (gsize)(dot - path)) : g_strdup(path);
  JsonObject *copy = ms_object_without(json, key);
  if (!dot) json_object_set_member(copy, key, ms_json_copy(value));
  else json_object_set_object_member(copy, key, with_value(json_object_get_object_member(json, key), dot + 1, value));
  return copy;
}

/* With a word of the placement, which the name of the machine then says as well. (transfer full) */
static JsonObject *with_placement(JsonObject *json, JsonNode *word) {
  JsonObject *one = with_value(json, placement_key, word), *machine = json_object_get_object_member(one, "hardware");
  JsonNode *name = json_object_get_member(machine, json_object_has_member(machine, "name") ? "name" : "base");
  g_autofree char *said =
      g_strdup_printf("%s %s", ms_json_is(name, G_TYPE_STRING) ? json_node_get_string(name) : "inline",
                      ms_json_is(word, G_TYPE_STRING) ? json_node_get_string(word) : "");
  json_object_set_string_member(machine, "name", said);
  return one;
}

/* `json` with machine `i` of `n`: also with its price where prices are a list. NULL and *error where they are not as
 * many. (transfer full) */
static JsonObject *with_machine(const MsJson *doc, JsonObject *json, JsonArray *machines, guint i, GError **error) {
  JsonObject *plan, *one = with_value(json, "hardware", json_array_get_element(machines, i));
  const char *name = place_of(one, "plan.gpu_hour_price", &plan);
  JsonNode *price = ms_json_member(plan, name);
  if (!price || !JSON_NODE_HOLDS_ARRAY(price)) return one;
  guint n = json_array_get_length(machines), prices = json_array_get_length(json_node_get_array(price));
  JsonObject *priced = NULL;
  if (prices != n)
    ms_json_error(doc, "plan.gpu_hour_price", error,
                  "is a list of %u prices, must hold one for each of the %u machines", prices, n);
  else priced = with_value(one, "plan.gpu_hour_price", json_array_get_element(json_node_get_array(price), i));
  json_object_unref(one);
  return priced;
}

static gboolean is_job_nodes(const char *path, JsonNode *list) {
  JsonArray *nodes = json_node_get_array(list);
  return path == placement_key && json_array_get_length(nodes) > 0 &&
         !ms_json_is(json_array_get_element(nodes, 0), G_TYPE_STRING);
}

/* Adds the requests of `json` whose keys from `key` on are still to be taken from their lists. */
static gboolean expand(const MsJson *doc, JsonObject *json, guint key, GPtrArray *out, GError **error) {
  if (key == G_N_ELEMENTS(listed_keys)) {
    MsRequest *request = from_object(doc, json, error);
    if (request) g_ptr_array_add(out, request);
    return request != NULL;
  }
  const char *path = listed_keys[key];
  JsonObject *inside;
  const char *name = place_of(json, path, &inside);
  JsonNode *node = ms_json_member(inside, name);
  if (!node || !JSON_NODE_HOLDS_ARRAY(node) || one_search(json, path) || is_job_nodes(path, node))
    return expand(doc, json, key + 1, out, error);
  JsonArray *list = json_node_get_array(node);
  guint n = json_array_get_length(list);
  if (n < 1 || n > MS_REQUESTS_MAX)
    return ms_json_error(doc, path, error, "is a list of %u values, must hold 1 to %d", n, MS_REQUESTS_MAX);
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < n; i++) {
    JsonNode *value = json_array_get_element(list, i);
    JsonObject *one = strcmp(path, "hardware") == 0 ? with_machine(doc, json, list, i, error)
                      : path == placement_key       ? with_placement(json, value)
                                                    : with_value(json, path, value);
    ok = one && expand(doc, one, key + 1, out, error);
    g_clear_pointer(&one, json_object_unref);
    if (ok && out->len > MS_REQUESTS_MAX)
      ok = ms_json_error(doc, path, error, "makes more than %d requests of models, machines, GPUs and batches",
                         MS_REQUESTS_MAX);
  }
  return ok;
}

GPtrArray *ms_requests_from_doc(const MsJson *doc, GError **error) {
  g_autoptr(GPtrArray) out = g_ptr_array_new_with_free_func((GDestroyNotify)ms_request_free);
  if (!JSON_NODE_HOLDS_OBJECT(ms_json_root(doc))) {
    ms_json_error(doc, "", error, "must be one JSON object");
    return NULL;
  }
  return expand(doc, json_node_get_object(ms_json_root(doc)), 0, out, error) ? g_steal_pointer(&out) : NULL;
}

GPtrArray *ms_requests_load(const char *filename, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(filename, error);
  return doc ? ms_requests_from_doc(doc, error) : NULL;
}

int ms_open_place(const MsRequest *r, const char *path) {
  for (int i = 0; i < r->n_open; i++)
    if (!strcmp(r->open[i].path, path)) return i;
  return -1;
}

gboolean ms_request_leaves_open(const MsRequest *r, const char *path) { return ms_open_place(r, path) >= 0; }

void ms_request_free(MsRequest *request) {
  if (!request) return;
  for (int i = 0; i < request->n_open; i++) ms_open_key_clear(&request->open[i]);
  g_free(request->open);
  ms_disturbances_free(request->under);
  ms_fields_clear(&ms_plan_table, request);
  ms_scenario_free(request->base);
  g_free(request);
}
