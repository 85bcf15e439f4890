/* src/report/wording.c - a setting, a change of settings, and what several layouts differ in, as people write them. */
#include <string.h>

#include "base/text.h"
#include "report/report.h"
#include "study/knobs.h"

const char *ms_report_key(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

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

/* --- layouts side by side -------------------------------------------------------------------------------------- */
/* What ms_report_layout says, and what follows from it. */
static gboolean is_said(const char *path) {
  return g_str_has_prefix(path, "model") || g_str_has_prefix(path, "hardware") ||
         ms_text_has_word("layout.tp layout.cp layout.pp layout.vpp layout.ep layout.etp layout.pipeline_layout "
                          "training.micro_batch_size options.recompute options.sequence_parallel",
                          path);
}

/* "ep_overlap", "precision mxfp8"; nothing of what is off. */
static void append_key(GString *out, const char *path, const char *json) {
  g_autofree char *value = ms_report_value(json);
  if (ms_text_has_word("no none -", value)) return;
  g_string_append_printf(out, "%s%s", out->len ? ", " : "", ms_report_key(path));
  if (strcmp(value, "yes") != 0) g_string_append_printf(out, " %s", value);
}

/* Strings. (transfer full) */
static GPtrArray *keys_apart(const GPtrArray *scenarios) {
  GPtrArray *texts = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GPtrArray) knobs = g_ptr_array_new_with_free_func((GDestroyNotify)g_hash_table_unref);
  if (scenarios->len == 0) return texts;
  for (guint i = 0; i < scenarios->len; i++) g_ptr_array_add(knobs, ms_knobs_of_scenario(scenarios->pdata[i]));
  g_autoptr(GList) paths = g_list_sort(g_hash_table_get_keys(knobs->pdata[0]), (GCompareFunc)strcmp);
  for (guint i = 0; i < scenarios->len; i++) {
    GString *text = g_string_new(NULL);
    for (GList *at = paths; at; at = at->next)
      if (!is_said(at->data) && ms_knobs_differ((GHashTable *const *)knobs->pdata, knobs->len, at->data))
        append_key(text, at->data, g_hash_table_lookup(knobs->pdata[i], at->data));
    g_ptr_array_add(texts, g_string_free(text, FALSE));
  }
  return texts;
}

void ms_report_append_apart(GString *out, const GPtrArray *scenarios, const int *place) {
  g_autoptr(GPtrArray) apart = keys_apart(scenarios);
  for (guint i = 0; i < apart->len; i++)
    if (*(const char *)apart->pdata[i])
      ms_text_paragraph(out, 6, "%-5d with %s", place[i], (const char *)apart->pdata[i]);
}
