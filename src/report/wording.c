/* src/report/wording.c - a setting, and a change of settings, as people write them. */
#include <string.h>

#include "report/report.h"

char *ms_report_value(const char *json) {
  if (!json || strcmp(json, "null") == 0) return g_strdup("-");
  if (strcmp(json, "true") == 0 || strcmp(json, "false") == 0) return g_strdup(*json == 't' ? "yes" : "no");
  if (strcmp(json, "[]") == 0) return g_strdup("none");
  GString *out = g_string_new(NULL);
  for (const char *c = json; *c; c++)
    if (*c == ',') g_string_append_c(out, '+');
    else if (!strchr("[]\" ", *c)) g_string_append_c(out, *c);
  return g_string_free(out, FALSE);
}

char *ms_report_setting(const char *json) {
  if (json[0] == '"') return g_strndup(json + 1, strlen(json) - 2);
  if (!g_str_has_prefix(json, "{\"granularity\"")) return ms_report_value(json);
  MsRecomputeSpec spec = {0};
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, NULL, NULL);
  ms_fields_defaults(&ms_recompute_table, &spec);
  if (!doc || !ms_fields_load(&ms_recompute_table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, &spec, NULL))
    return g_strdup(json);
  return ms_report_recompute(&spec);
}

/* The pipeline layout follows from the sizes, sequence parallelism from tp: said only when they are all that changed.
 */
static gboolean follows(const MsComparison *c, const MsComparedKey *key) {
  return c->n_keys > 1 &&
         (strcmp(key->path, "layout.pipeline_layout") == 0 || strcmp(key->path, "options.sequence_parallel") == 0);
}

char *ms_report_change(const MsComparison *change) {
  GString *out = g_string_new(NULL);
  for (int i = 0; i < change->n_keys; i++) {
    const MsComparedKey *k = &change->key[i];
    if (follows(change, k)) continue;
    g_autofree char *a = ms_report_setting(k->a), *b = ms_report_setting(k->b);
    g_string_append_printf(out, "%s%s %s -> %s", out->len ? ", " : "",
                           strchr(k->path, '.') ? strchr(k->path, '.') + 1 : k->path, a, b);
  }
  return g_string_free(out, FALSE);
}
