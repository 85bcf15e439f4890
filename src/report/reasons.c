/* src/report/reasons.c - why the winner of a plan is the winner: two layouts side by side, what would help. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "report/report.h"
#include "study/parts.h"

enum { MOST_VALUE = 44 /* columns of a value that is compared */ };

static void take_table(GString *out, MsTable *table) {
  g_autofree char *text = ms_table_take(table);
  g_string_append(out, text);
}

/* A value as people write it: recomputation by its modules, words without quotes. (transfer full) */
static char *readable(const char *json) {
  if (json[0] == '"') return g_strndup(json + 1, strlen(json) - 2);
  if (!g_str_has_prefix(json, "{\"granularity\"")) return g_strdup(json);
  MsRecomputeSpec spec = {0};
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, NULL, NULL);
  ms_fields_defaults(&ms_recompute_table, &spec);
  if (!doc || !ms_fields_load(&ms_recompute_table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, &spec, NULL))
    return g_strdup(json);
  return ms_report_recompute(&spec);
}

/* --- side by side ---------------------------------------------------------------------------------------------- */
static void value_cell(MsTable *table, const char *json) {
  g_autofree char *text = readable(json);
  if (g_utf8_strlen(text, -1) <= MOST_VALUE) {
    ms_table_cell(table, text);
    return;
  }
  g_autofree char *start = g_utf8_substring(text, 0, MOST_VALUE - 3);
  ms_table_cellf(table, "%s...", start);
}

static void append_keys(GString *out, const MsComparison *c, const char *a, const char *b) {
  MsTable *table = ms_table_new();
  ms_table_column(table, "differs in", FALSE);
  ms_table_column(table, a, FALSE);
  ms_table_column(table, b, FALSE);
  for (int i = 0; i < c->n_keys; i++) {
    ms_table_cell(table, c->key[i].path);
    value_cell(table, c->key[i].a);
    value_cell(table, c->key[i].b);
  }
  take_table(out, table);
}

typedef const char *(*UnitText)(double value, char *buf);

enum { NOTHING = 1000000 }; /* a difference below 1 / NOTHING of the whole is rounding, a part below it is none */

static void part_row(MsTable *table, const char *name, double a, double b, UnitText unit, double whole) {
  char text[MS_TEXT];
  if (fabs(a) * NOTHING < whole && fabs(b) * NOTHING < whole) return;
  if (fabs(b - a) * NOTHING < whole) b = a;
  ms_table_cell(table, name);
  ms_table_cell(table, unit(a, text));
  ms_table_cell(table, unit(b, text));
  if (a == b) {
    ms_table_cell(table, "same");
    ms_table_cell(table, "-");
    return;
  }
  ms_table_cellf(table, "%s%s", b > a ? "+" : "-", unit(fabs(b - a), text));
  if (whole > 0) ms_table_cellf(table, "%+.2f %%", 100 * (b - a) / whole);
  else ms_table_cell(table, "-");
}

static void append_parts(GString *out, const char *title, const MsComparedPart *part, int n, const char *a,
                         const char *b, UnitText unit) {
  double sum_a = 0, sum_b = 0;
  MsTable *table = ms_table_new();
  ms_table_column(table, title, FALSE);
  ms_table_column(table, a, TRUE);
  ms_table_column(table, b, TRUE);
  ms_table_column(table, "difference", TRUE);
  ms_table_column(table, "of the whole", TRUE);
  for (int i = 0; i < n; i++) sum_a += part[i].a, sum_b += part[i].b;
  for (int i = 0; i < n; i++) part_row(table, part[i].name, part[i].a, part[i].b, unit, sum_a);
  part_row(table, "sum", sum_a, sum_b, unit, sum_a);
  g_string_append_c(out, '\n');
  take_table(out, table);
}

/* Two layouts under the names `a` and `b` of their columns (keys in JSON): keys that differ, parts of time and memory.
 */
static char *comparison_text(const MsComparison *c, const char *a, const char *b) {
  GString *out = g_string_new(NULL);
  append_keys(out, c, a, b);
  append_parts(out, "step time, mean over stages", c->time, c->n_time, a, b, ms_text_seconds);
  append_parts(out, "memory of the fullest stage", c->memory, c->n_memory, a, b, ms_text_bytes);
  return g_string_free(out, FALSE);
}

static void write_parts(const MsComparedPart *part, int n, const char *key, const char *a, const char *b,
                        MsJsonOut *out) {
  ms_json_out_array(out, key);
  for (int i = 0; i < n; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "part", part[i].name);
    ms_json_out_double(out, a, part[i].a);
    ms_json_out_double(out, b, part[i].b);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

static void put_comparison(const MsComparison *c, const char *key, const char *a, const char *b, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_array(out, "keys");
  for (int i = 0; i < c->n_keys; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "key", c->key[i].path);
    ms_json_out_string(out, a, c->key[i].a);
    ms_json_out_string(out, b, c->key[i].b);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  write_parts(c->time, c->n_time, "time_s", a, b, out);
  write_parts(c->memory, c->n_memory, "memory_B", a, b, out);
  ms_json_out_end(out);
}

/* --- what would help ------------------------------------------------------------------------------------------- */
/* The pipeline layout follows from the sizes, sequence parallelism from tp: said only when they are all that changed.
 */
static gboolean follows(const MsComparison *c, const MsComparedKey *key) {
  return c->n_keys > 1 &&
         (strcmp(key->path, "layout.pipeline_layout") == 0 || strcmp(key->path, "options.sequence_parallel") == 0);
}

static char *change_text(const MsSensitivity *row) {
  if (!row->change) return g_strdup(row->planned ? "no other layout nearby is faster" : "");
  GString *out = g_string_new(NULL);
  for (int i = 0; i < row->change->n_keys; i++) {
    const MsComparedKey *k = &row->change->key[i];
    if (follows(row->change, k)) continue;
    g_autofree char *a = readable(k->a), *b = readable(k->b);
    g_string_append_printf(out, "%s%s %s -> %s", out->len ? ", " : "",
                           strchr(k->path, '.') ? strchr(k->path, '.') + 1 : k->path, a, b);
  }
  return g_string_free(out, FALSE);
}

static void append_sensitivities(GString *out, const MsSensitivities *s) {
  char text[MS_TEXT];
  MsTable *table = ms_table_new();
  ms_table_column(table, "what would help the winner", FALSE);
  ms_table_column(table, "step time", TRUE);
  ms_table_column(table, "gain", TRUE);
  ms_table_column(table, "with", FALSE);
  for (int i = 0; i < s->n; i++) {
    g_autofree char *change = change_text(&s->row[i]);
    ms_table_cell(table, s->row[i].what);
    ms_table_cell(table, ms_text_seconds(s->row[i].step_time_s, text));
    ms_table_cellf(table, "%.2f %%", 100 * s->row[i].gain);
    ms_table_cell(table, change);
  }
  g_string_append_c(out, '\n');
  take_table(out, table);
}

static void append_named(GString *out, const MsPlan *plan, const MsReasons *r) {
  char text[MS_TEXT], memory[MS_TEXT];
  const MsResult *named = ms_reasons_named(r);
  double device_B = ms_device_B(named), over_B = device_B - plan->memory_limit_B;
  g_string_append_printf(out, "\n%s: %s, %s on the fullest stage", r->named->name,
                         ms_text_seconds(named->step_time_s, text), ms_text_bytes(device_B, memory));
  if (over_B > 0) g_string_append_printf(out, ", which is %s too much", ms_text_bytes(over_B, text));
  if (r->compared) {
    double slower = named->step_time_s / plan->best[0].result->step_time_s - 1;
    g_string_append_printf(out, "; %.2f %% %s than the winner\n", 100 * fabs(slower),
                           slower >= 0 ? "slower" : "faster");
    g_autofree char *side = comparison_text(r->compared, "winner", "named");
    g_string_append(out, side);
  } else {
    g_string_append_c(out, '\n');
  }
}

char *ms_report_reasons(const MsPlan *plan, const MsReasons *r) {
  char text[MS_TEXT];
  GString *out = g_string_new(NULL);
  if (r->sensitivities) append_sensitivities(out, r->sensitivities);
  if (r->runner_up) {
    double gap_s = plan->best[1].result->step_time_s - plan->best[0].result->step_time_s;
    g_string_append_printf(out, "\nthe runner-up takes %s (%.2f %%) longer\n", ms_text_seconds(gap_s, text),
                           100 * gap_s / plan->best[0].result->step_time_s);
    g_autofree char *side = comparison_text(r->runner_up, "winner", "runner-up");
    g_string_append(out, side);
  }
  if (r->named) append_named(out, plan, r);
  return g_string_free(out, FALSE);
}

static void write_sensitivities(const MsSensitivities *s, MsJsonOut *out) {
  ms_json_out_array(out, "sensitivities");
  for (int i = 0; i < s->n; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "what", s->row[i].what);
    ms_json_out_bool(out, "planned_again", s->row[i].planned);
    ms_json_out_double(out, "step_time_s", s->row[i].step_time_s);
    ms_json_out_double(out, "gain", s->row[i].gain);
    if (s->row[i].change) put_comparison(s->row[i].change, "change", "winner", "new", out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

static void write_named(const MsPlan *plan, const MsReasons *r, MsJsonOut *out) {
  const MsResult *named = ms_reasons_named(r);
  double device_B = ms_device_B(named);
  ms_json_out_object(out, "named");
  ms_json_out_string(out, "name", r->named->name);
  ms_json_out_string(out, "file", r->named->file);
  ms_json_out_double(out, "step_time_s", named->step_time_s);
  ms_json_out_double(out, "device_B", device_B);
  ms_json_out_bool(out, "fits", device_B <= plan->memory_limit_B);
  if (r->compared)
    ms_json_out_double(out, "slower_than_winner", named->step_time_s / plan->best[0].result->step_time_s - 1);
  if (r->compared) put_comparison(r->compared, "compared", "winner", "named", out);
  ms_scenario_write(r->named, "scenario", out);
  ms_json_out_end(out);
}

void ms_report_reasons_json(const MsPlan *plan, const MsReasons *r, MsJsonOut *out) {
  if (r->sensitivities) write_sensitivities(r->sensitivities, out);
  if (r->runner_up) put_comparison(r->runner_up, "runner_up", "winner", "runner_up", out);
  if (r->named) write_named(plan, r, out);
}
