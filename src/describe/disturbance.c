#include "describe/disturbance.h"

#include "describe/rows.h"
#include "describe/scenario.h"

#include <string.h>

/* --- tables ---------------------------------------------------------------------------------------------------- */
typedef struct {
  double rate, slowdown;
} SlowRow;
typedef struct {
  int samples, seed;
} ErrorRow;
typedef struct {
  char *name;
  double weight;
  gboolean gpus_differ;
  JsonNode *routing, *scale, *slow_gpu, *uncertainty;
} Row;

static const MsFieldTable slow_table = MS_FIELD_TABLE(
    "disturbances[].slow_gpu", "slow GPUs",
    MS_F64(SlowRow, rate, "", 0, 1, NULL, MS_REQUIRED, "probability of each GPU to be slow, 0.001: one in a thousand"),
    MS_F64(SlowRow, slowdown, "", 1, 100, NULL, MS_REQUIRED, "its kernels take so many times as long"));

static const MsFieldTable error_table =
    MS_FIELD_TABLE("disturbances[].uncertainty", "errors of the profile's curves, drawn from their residuals",
                   MS_INT(ErrorRow, samples, 1, 1024, "16", 0, "how many draws of the errors"),
                   MS_INT(ErrorRow, seed, 0, G_MAXINT, "1", 0, "of the draws"));

const MsFieldTable ms_disturbance_table = MS_FIELD_TABLE(
    "disturbances[]", "one state of the cluster", MS_STRING(Row, name, MS_REQUIRED, "what tables call it"),
    MS_F64(Row, weight, "", 1e-9, 1e9, "1", 0, "share of the time, relative to the other states"),
    MS_FREE(Row, routing, "value of training.routing in this state; null = as planned"),
    MS_FREE(Row, scale, "object: key of the machine's profile -> factor, {\"nic_Bps\": 0.8}; null = none"),
    {MS_ROW(Row, slow_gpu, MS_T_FREE, "", NULL, MS_NULLABLE,
            "object {rate, slowdown}: each GPU is slow with this probability, its kernels take so many times as long; "
            "null = none"),
     .sub = &slow_table},
    MS_BOOL(
        Row, gpus_differ, "false", 0,
        "the step that is expected of GPUs that differ (cluster.expected), slow_gpu among what they differ by; false: "
        "of GPUs that are all as slow as the slowest"),
    {MS_ROW(Row, uncertainty, MS_T_FREE, "", NULL, MS_NULLABLE,
            "object {samples, seed}: the errors of the profile's curves, drawn from their residuals; null = none"),
     .sub = &error_table});

typedef struct {
  JsonNode *disturbances;
} File;
const MsFieldTable ms_under_table = MS_FIELD_TABLE(
    "under", "what may go otherwise than planned, for `moesim plan --under`", MS_SCHEMA(MS_REQUIRED),
    MS_IGNORED(doc, "free text"),
    {MS_ROW(File, disturbances, MS_T_FREE, "", NULL, MS_REQUIRED, "list of states that exclude one another"),
     .sub = &ms_disturbance_table});

/* --- one state ------------------------------------------------------------------------------------------------- */
typedef struct {
  const MsJson *doc;
  GError **error;
} Reader;

static gboolean absent(JsonNode *node) { return !node || JSON_NODE_HOLDS_NULL(node); }

static gboolean read_object(const Reader *r, const MsFieldTable *table, JsonNode *node, const char *path,
                            const char *key, void *into) {
  g_autofree char *full = g_strconcat(path, ".", key, NULL);
  ms_fields_defaults(table, into);
  return ms_json_need_object(r->doc, node, full, r->error) &&
         ms_fields_load(table, r->doc, json_node_get_object(node), full, TRUE, into, r->error);
}

static gboolean read_routing(const Reader *r, JsonNode *node, const char *path, MsDisturbance *d) {
  g_autofree char *full = g_strconcat(path, ".routing", NULL);
  d->has_routing = TRUE;
  return ms_routing_parse(r->doc, node, full, &d->routing, r->error);
}

static gboolean scaled_key(const Reader *r, const char *key, JsonNode *node, const char *path, MsDisturbance *d) {
  g_autofree char *full = g_strconcat(path, ".scale.", key, NULL);
  const MsField *field = ms_field_find(&ms_hardware_table, key);
  if (!field || field->type != MS_T_F64)
    return ms_json_error(r->doc, full, r->error,
                         "is no number of a machine's profile; `moesim schema hardware` lists its keys");
  double factor = ms_json_number(node);
  if (!(factor >= 0.01 && factor <= 100))
    return ms_json_error(r->doc, full, r->error, "must be a factor from 0.01 to 100");
  d->scale = g_renew(MsScaledKey, d->scale, d->n_scale + 1);
  d->scale[d->n_scale++] = (MsScaledKey){g_strdup(key), factor};
  return TRUE;
}

static gboolean read_scale(const Reader *r, JsonNode *node, const char *path, MsDisturbance *d) {
  g_autofree char *full = g_strconcat(path, ".scale", NULL);
  if (!ms_json_need_object(r->doc, node, full, r->error)) return FALSE;
  for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);)
    if (!scaled_key(r, at.key, at.value, path, d)) return FALSE;
  return TRUE;
}

static gboolean read_changes(const Reader *r, const Row *row, const char *path, MsDisturbance *d) {
  SlowRow slow = {0};
  ErrorRow errors = {0};
  if (!absent(row->routing) && !read_routing(r, row->routing, path, d)) return FALSE;
  if (!absent(row->scale) && !read_scale(r, row->scale, path, d)) return FALSE;
  if (!absent(row->slow_gpu) && !read_object(r, &slow_table, row->slow_gpu, path, "slow_gpu", &slow)) return FALSE;
  if (!absent(row->uncertainty) && !read_object(r, &error_table, row->uncertainty, path, "uncertainty", &errors))
    return FALSE;
  d->slow_rate = slow.rate, d->slow_factor = slow.rate > 0 ? slow.slowdown : 1;
  d->differ = row->gpus_differ;
  d->samples = errors.samples, d->seed = errors.seed;
  return TRUE;
}

static gboolean read_row(const Reader *r, JsonNode *node, const char *path, MsDisturbance *d) {
  Row row;
  if (!ms_json_need_object(r->doc, node, path, r->error)) return FALSE;
  ms_fields_defaults(&ms_disturbance_table, &row);
  gboolean ok = ms_fields_load(&ms_disturbance_table, r->doc, json_node_get_object(node), path, TRUE, &row, r->error);
  if (ok) {
    d->name = g_strdup(row.name), d->weight = row.weight;
    ok = read_changes(r, &row, path, d);
  }
  ms_fields_clear(&ms_disturbance_table, &row);
  return ok;
}

/* --- the list -------------------------------------------------------------------------------------------------- */
MsDisturbances *ms_disturbances_from_list(const MsJson *doc, JsonNode *list, const char *path, GError **error) {
  g_autoptr(MsDisturbances) all = g_new0(MsDisturbances, 1);
  Reader r = {doc, error};
  guint length = list && JSON_NODE_HOLDS_ARRAY(list) ? json_array_get_length(json_node_get_array(list)) : 0;
  if (length < 1 || length > MS_DISTURBANCES_MAX) {
    ms_json_error(doc, path, error, "must be a list of 1 to %d states", MS_DISTURBANCES_MAX);
    return NULL;
  }
  all->row = g_new0(MsDisturbance, length);
  double sum = 0;
  for (guint i = 0; i < length; i++) {
    g_autofree char *item = g_strdup_printf("%s[%u]", path, i);
    all->n++;
    if (!read_row(&r, json_array_get_element(json_node_get_array(list), i), item, &all->row[i])) return NULL;
    sum += all->row[i].weight;
  }
  for (int i = 0; i < all->n; i++) all->row[i].weight /= sum;
  return g_steal_pointer(&all);
}

MsDisturbances *ms_disturbances_from_doc(const MsJson *doc, GError **error) {
  File file = {NULL};
  if (!JSON_NODE_HOLDS_OBJECT(ms_json_root(doc))) {
    ms_json_error(doc, "", error, "must be one JSON object");
    return NULL;
  }
  gboolean ok = ms_fields_load(&ms_under_table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, &file, error);
  MsDisturbances *all = ok ? ms_disturbances_from_list(doc, file.disturbances, "disturbances", error) : NULL;
  ms_fields_clear(&ms_under_table, &file);
  return all;
}

MsDisturbances *ms_disturbances_load(const char *filename, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(filename, error);
  return doc ? ms_disturbances_from_doc(doc, error) : NULL;
}

void ms_disturbances_free(MsDisturbances *all) {
  if (!all) return;
  for (int i = 0; i < all->n; i++) {
    MsDisturbance *d = &all->row[i];
    for (int k = 0; k < d->n_scale; k++) g_free(d->scale[k].key);
    g_free(d->scale);
    g_free(d->name);
    g_clear_pointer(&d->routing.histogram, ms_histogram_unref);
  }
  g_free(all->row);
  g_free(all);
}
