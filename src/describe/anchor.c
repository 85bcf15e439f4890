#include "describe/anchor.h"
#include "describe/rows.h"

#include <math.h>

#define FACTOR(k, i, d)                                                                                  \
  {                                                                                                      \
    .key = k, .type = MS_T_F64, .unit = "", .offset = offsetof(MsAnchor, factor) + (i) * sizeof(double), \
    .lo = MS_ANCHOR_LEAST, .hi = MS_ANCHOR_MOST, .fallback = "1", .doc = d                               \
  }
const MsFieldTable ms_anchor_table = MS_FIELD_TABLE(
    "anchor", "what was learned from runs on a machine, hardware.anchor",
    FACTOR("gemm", MS_ANCHOR_GEMM, "factor on the time of dense GEMMs"),
    FACTOR("grouped_gemm", MS_ANCHOR_GROUPED_GEMM, "factor on the time of expert GEMMs"),
    FACTOR("attention", MS_ANCHOR_ATTENTION, "factor on the time of attention"),
    FACTOR("memory_bound", MS_ANCHOR_MEMORY_BOUND, "factor on the time of memory-bound kernels"),
    FACTOR("communication", MS_ANCHOR_COMMUNICATION, "factor on the time of communication"),
    FACTOR("host", MS_ANCHOR_HOST, "factor on the host time per framework operator"),
    MS_FREE(MsAnchor, models, "object: name of a model -> factor on all of its time, beside those above"),
    MS_FREE(MsAnchor, rested,
            "object: assumed figure of the machine -> share of a step of these runs that followed it: so far the "
            "factors hold what it is off, and bands do not count it again"),
    MS_FREE(MsAnchor, runs,
            "list of {model, gpus, step_s, left, keys}: runs that were seen, what the factors leave of their errors "
            "(natural logarithm of measured over predicted), and their layouts, for plan --decide"),
    MS_F64(MsAnchor, band, "", 0, 2, NULL, MS_NULLABLE,
           "what errors of all runs on it have in common, 90 %; null = as without"),
    MS_F64(MsAnchor, models_band, "", 0, 2, NULL, MS_NULLABLE, "the same of the models named in `models`"));

static gboolean is_run(JsonNode *node) {
  JsonObject *run = ms_json_object(node);
  JsonNode *left = ms_json_member(run, "left"), *keys = ms_json_member(run, "keys");
  if (!run || !ms_json_is(json_object_get_member(run, "model"), G_TYPE_STRING) ||
      isnan(ms_json_number(json_object_get_member(run, "gpus"))) ||
      isnan(ms_json_number(json_object_get_member(run, "step_s"))) || isnan(ms_json_number(left)) ||
      !(fabs(json_node_get_double(left)) <= 3) || !keys || !JSON_NODE_HOLDS_OBJECT(keys))
    return FALSE;
  g_autoptr(GList) values = json_object_get_values(json_node_get_object(keys));
  for (GList *l = values; l; l = l->next)
    if (!ms_json_is(l->data, G_TYPE_STRING)) return FALSE;
  return TRUE;
}

static gboolean check_runs(const MsAnchor *anchor, const MsJson *doc, const char *path, GError **error) {
  g_autofree char *at = g_strconcat(path, ".runs", NULL);
  if (!anchor->runs) return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY(anchor->runs)) return ms_json_error(doc, at, error, "must be a list");
  JsonArray *runs = json_node_get_array(anchor->runs);
  for (guint i = 0; i < json_array_get_length(runs); i++) {
    g_autofree char *deeper = g_strdup_printf("%s[%u]", at, i);
    if (!is_run(json_array_get_element(runs, i))) return ms_json_error(doc, deeper, error, "must be " MS_ANCHOR_RUN);
  }
  return TRUE;
}

/* Every member a number of that range. */
static gboolean check_numbers(JsonNode *object, double least, double most, const char *what, const MsJson *doc,
                              const char *at, GError **error) {
  if (!object) return TRUE;
  if (!ms_json_need_object(doc, object, at, error)) return FALSE;
  g_autoptr(GList) names = json_object_get_members(json_node_get_object(object));
  for (GList *l = names; l; l = l->next) {
    double value = ms_json_number(json_object_get_member(json_node_get_object(object), l->data));
    g_autofree char *deeper = g_strconcat(at, ".", (const char *)l->data, NULL);
    if (!(value >= least && value <= most)) return ms_json_error(doc, deeper, error, "must be %s", what);
  }
  return TRUE;
}

gboolean ms_anchor_check(const MsAnchor *anchor, const MsJson *doc, const char *path, GError **error) {
  g_autofree char *models = g_strconcat(path, ".models", NULL), *rested = g_strconcat(path, ".rested", NULL);
  return check_runs(anchor, doc, path, error) &&
         check_numbers(anchor->models, MS_ANCHOR_LEAST, MS_ANCHOR_MOST, "a factor on time, 0.05 to 20", doc, models,
                       error) &&
         check_numbers(anchor->rested, 0, 1, "a share of a step, 0 to 1", doc, rested, error);
}

static JsonNode *of_model(const MsAnchor *anchor, const char *model) {
  return anchor->models && model ? json_object_get_member(json_node_get_object(anchor->models), model) : NULL;
}

double ms_anchor_factor(const MsAnchor *anchor, MsAnchorClass class_index, const char *model) {
  double factor = anchor->factor[class_index] > 0 ? anchor->factor[class_index] : 1; /* 0: built by hand */
  JsonNode *node = of_model(anchor, model);
  return node ? factor * json_node_get_double(node) : factor;
}

double ms_anchor_rested(const MsAnchor *anchor, const char *key) {
  double share = anchor->rested ? ms_json_number(ms_json_member(json_node_get_object(anchor->rested), key)) : NAN;
  return share > 0 ? share : 0;
}

double ms_anchor_band(const MsAnchor *anchor, const char *model) {
  return of_model(anchor, model) && anchor->models_band > 0 ? anchor->models_band
         : anchor->band > 0                                 ? anchor->band
                                                            : NAN;
}
