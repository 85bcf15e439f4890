/* src/describe/pools.c - the row `pools` of scenarios and requests. */
#include "describe/pools.h"

#include "describe/rows.h"

#include <string.h>

static gboolean machine_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsPool *pool = member;
  g_clear_pointer(&pool->hardware, ms_hardware_free);
  pool->hardware = ms_hardware_from_json(doc, node, path, error);
  if (!pool->json) pool->json = json_node_ref(node);
  return pool->hardware != NULL;
}

static void machine_print(MsJsonOut *out, const char *key, const void *member) {
  const MsPool *pool = member;
  if (pool->json) ms_json_out_node(out, key, pool->json);
  else ms_json_out_string(out, key, pool->hardware->name);
}

static gboolean batch_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  static const MsField number = MS_INT(MsPool, batch, 1, 1 << 24, NULL, 0, "");
  MsPool *pool = member;
  gboolean word = ms_json_is(node, G_TYPE_STRING);
  if (!word || strcmp(json_node_get_string(node), "auto") != 0)
    return ms_field_set(&number, doc, node, path, pool, error);
  pool->batch = MS_POOL_SEARCHED;
  return TRUE;
}

static void batch_print(MsJsonOut *out, const char *key, const void *member) {
  const MsPool *pool = member;
  if (pool->batch == MS_POOL_SEARCHED) ms_json_out_string(out, key, "auto");
  else if (pool->batch > 0) ms_json_out_int(out, key, pool->batch);
}

const MsFieldTable ms_pool_table = MS_FIELD_TABLE(
    "scenario.pools", "one of several kinds of machines in a job",
    {MS_CUSTOM(hardware, "", MS_REQUIRED, "a name in hardware/, a path, or {\"base\": NAME, ...overrides}"),
     .parse = machine_parse, .print = machine_print},
    MS_INT(MsPool, gpus, 1, 1 << 20, NULL, MS_REQUIRED, "devices of this machine"),
    {MS_CUSTOM(batch, "", MS_NULLABLE,
               "the machine holds whole data-parallel replicas, which do this many of "
               "the sequences of a step; of all pools together global_batch_size; in a "
               "request \"auto\": searched. Left out: it holds pipeline stages"),
     .parse = batch_parse, .print = batch_print});

static void pool_clear(MsPool *pool) {
  ms_hardware_free(pool->hardware);
  g_clear_pointer(&pool->json, json_node_unref);
  *pool = (MsPool){0};
}

/* Both hold stages, both a number of sequences, or both a share that is searched. */
static gboolean alike(int a, int b) { return (a > 0) - (a < 0) == (b > 0) - (b < 0); }

/* Appends, or adds to a last pool of the same machine and the same share in the batch. */
static gboolean add_pool(const MsJson *doc, MsPool *own, const char *path, MsPools *pools, GError **error) {
  MsPool *last = pools->n > 0 ? &pools->pool[pools->n - 1] : NULL;
  if (last && alike(last->batch, own->batch) && json_node_equal(last->json, own->json)) {
    last->gpus += own->gpus;
    if (last->batch != MS_POOL_SEARCHED) last->batch += own->batch;
    pool_clear(own);
    return TRUE;
  }
  if (pools->n == MS_MAX_POOLS) {
    pool_clear(own);
    return ms_json_error(doc, path, error, "is one kind of machine too many, at most %d in a job", MS_MAX_POOLS);
  }
  pools->pool[pools->n++] = *own;
  return TRUE;
}

gboolean ms_pools_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsPools *pools = member;
  ms_pools_clear(pools);
  if (!JSON_NODE_HOLDS_ARRAY(node) || json_array_get_length(json_node_get_array(node)) == 0)
    return ms_json_error(doc, path, error, "must be a list of {\"hardware\": NAME, \"gpus\": N}");
  JsonArray *list = json_node_get_array(node);
  for (guint i = 0; i < json_array_get_length(list); i++) {
    g_autofree char *at = g_strdup_printf("%s[%u]", path, i);
    JsonNode *item = json_array_get_element(list, i);
    MsPool own = {0};
    if (!ms_json_need_object(doc, item, at, error)) return FALSE;
    if (!ms_fields_load(&ms_pool_table, doc, json_node_get_object(item), at, TRUE, &own, error)) {
      pool_clear(&own);
      return FALSE;
    }
    if (!add_pool(doc, &own, at, pools, error)) return FALSE;
  }
  return TRUE;
}

void ms_pools_print(MsJsonOut *out, const char *key, const void *member) {
  const MsPools *pools = member;
  if (ms_pools_count(pools) == 0) return;
  ms_json_out_array(out, key);
  for (int i = 0; i < ms_pools_count(pools); i++) ms_fields_object(&ms_pool_table, &pools->pool[i], TRUE, NULL, out);
  ms_json_out_end(out);
}

static JsonObject *settle(const MsJson *doc, const MsPools *pools, JsonObject *json, GError **error) {
  gint64 gpus = 0;
  if (pools->n == 1 && pools->pool[0].batch != 0)
    return ms_json_error(doc, "pools[0].batch", error, "is of several machines; of one it is global_batch_size"), NULL;
  for (int i = 0; i < pools->n; i++) gpus += pools->pool[i].gpus;
  JsonObject *out = ms_object_without(json, pools->n > 1 ? "" : "pools");
  json_object_set_member(out, "hardware", ms_json_copy(pools->pool[0].json));
  json_object_set_int_member(out, "gpus", gpus);
  return out;
}

JsonObject *ms_pools_settled(const MsJson *doc, JsonObject *json, GError **error) {
  static const char *const said[] = {"hardware", "gpus"};
  JsonNode *node = json_object_get_member(json, "pools");
  if (!node || JSON_NODE_HOLDS_NULL(node)) return json_object_ref(json);
  for (guint i = 0; i < G_N_ELEMENTS(said); i++)
    if (json_object_has_member(json, said[i]))
      return ms_json_error(doc, said[i], error, "stands beside `pools`, which says it; leave one of them out"), NULL;
  MsPools pools = {0};
  JsonObject *out = ms_pools_parse(doc, node, "pools", &pools, error) ? settle(doc, &pools, json, error) : NULL;
  ms_pools_clear(&pools);
  return out;
}

void ms_pools_own(MsPools *pools, MsHardware *own) {
  for (int i = 0; i < ms_pools_count(pools); i++) {
    MsPool *pool = &pools->pool[i];
    pool->hardware = i == pools->own ? own : ms_hardware_copy(pool->hardware);
    if (pool->json) json_node_ref(pool->json);
  }
}

void ms_pools_clear(MsPools *pools) {
  for (int i = 0; i < ms_pools_count(pools); i++) pool_clear(&pools->pool[i]);
  pools->n = pools->shares = pools->own = 0;
}

gint64 ms_pools_batch(const MsPools *pools) {
  gint64 sum = 0;
  for (int i = 0; i < pools->shares; i++) sum += pools->pool[i].batch;
  return sum;
}

int ms_pool_of_stage(const MsPools *pools, int gpus, int pp, int stage) {
  gint64 first = (gint64)gpus * stage / pp;
  int pool = 0;
  while (pool + 1 < pools->n && first >= pools->pool[pool].gpus) first -= pools->pool[pool++].gpus;
  return pool;
}
