#include "describe/anchor.h"

#include <math.h>

#define FACTOR(k, i, d)                                                                                              \
  {                                                                                                                  \
    .key = k, .type = MS_T_F64, .unit = "", .offset = offsetof(MsAnchor, factor) + (i) * sizeof(double), .lo = 0.05, \
    .hi = 20, .fallback = "1", .doc = d                                                                              \
  }
#define BAND(k, d)                                                                                                    \
  {                                                                                                                   \
    .key = #k, .type = MS_T_F64, .unit = "", .offset = offsetof(MsAnchor, k), .lo = 0, .hi = 2, .flags = MS_NULLABLE, \
    .doc = d                                                                                                          \
  }
static const MsField anchor_fields[] = {
    FACTOR("gemm", MS_ANCHOR_GEMM, "factor on the time of dense GEMMs"),
    FACTOR("grouped_gemm", MS_ANCHOR_GROUPED_GEMM, "factor on the time of expert GEMMs"),
    FACTOR("attention", MS_ANCHOR_ATTENTION, "factor on the time of attention"),
    FACTOR("memory_bound", MS_ANCHOR_MEMORY_BOUND, "factor on the time of memory-bound kernels"),
    FACTOR("communication", MS_ANCHOR_COMMUNICATION, "factor on the time of communication"),
    FACTOR("host", MS_ANCHOR_HOST, "factor on the host time per framework operator"),
    {.key = "models",
     .type = MS_T_FREE,
     .unit = "",
     .offset = offsetof(MsAnchor, models),
     .flags = MS_NULLABLE,
     .doc = "object: name of a model -> factor on all of its time, beside those above"},
    BAND(band, "what errors of all runs on it have in common, 90 %; null = as without"),
    BAND(models_band, "the same of the models named in `models`"),
    {0}};
const MsFieldTable ms_anchor_table = {"anchor", "what was learned from runs on a machine, hardware.anchor",
                                      anchor_fields};

gboolean ms_anchor_check(const MsAnchor *anchor, const MsJson *doc, const char *path, GError **error) {
  if (!anchor->models) return TRUE;
  g_autofree char *at = g_strconcat(path, ".models", NULL);
  if (!ms_json_need_object(doc, anchor->models, at, error)) return FALSE;
  JsonObject *models = json_node_get_object(anchor->models);
  g_autoptr(GList) names = json_object_get_members(models);
  for (GList *l = names; l; l = l->next) {
    JsonNode *node = json_object_get_member(models, l->data);
    gboolean is_number = JSON_NODE_HOLDS_VALUE(node) && (json_node_get_value_type(node) == G_TYPE_DOUBLE ||
                                                         json_node_get_value_type(node) == G_TYPE_INT64);
    double factor = is_number ? json_node_get_double(node) : 0;
    g_autofree char *deeper = g_strconcat(at, ".", (const char *)l->data, NULL);
    if (!(factor >= 0.05 && factor <= 20))
      return ms_json_error(doc, deeper, error, "must be a factor on time, 0.05 to 20");
  }
  return TRUE;
}

static JsonNode *of_model(const MsAnchor *anchor, const char *model) {
  return anchor->models && model ? json_object_get_member(json_node_get_object(anchor->models), model) : NULL;
}

double ms_anchor_factor(const MsAnchor *anchor, MsAnchorClass class_index, const char *model) {
  double factor = anchor->factor[class_index] > 0 ? anchor->factor[class_index] : 1; /* 0: built by hand */
  JsonNode *node = of_model(anchor, model);
  return node ? factor * json_node_get_double(node) : factor;
}

double ms_anchor_band(const MsAnchor *anchor, const char *model) {
  return of_model(anchor, model) && anchor->models_band > 0 ? anchor->models_band
         : anchor->band > 0                                 ? anchor->band
                                                            : NAN;
}
