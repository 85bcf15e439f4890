/* src/report/robust.c - layouts ranked under disturbances, as text and JSON. */
#include <math.h>

#include "base/text.h"
#include "report/report.h"

static void seconds_cell(MsTable *table, double time_s) {
  char text[MS_TEXT];
  ms_table_cell(table, isfinite(time_s) ? ms_text_seconds(time_s, text) : "no memory");
}

static char *layout_text(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  g_autofree char *recompute = ms_report_recompute(&s->options.recompute);
  return g_strdup_printf("tp %d cp %d pp %d vpp %d ep %d etp %d mbs %d %s", l->tp, l->cp, l->pp, l->vpp, l->ep, l->etp,
                         s->training.micro_batch_size, recompute);
}

static void append_proof(GString *out, const MsRobust *r) {
  char a[MS_TEXT], b[MS_TEXT];
  if (r->proven && !isfinite(r->outside_s))
    g_string_append_printf(out, "the best of all layouts that fit: all %d were judged\n", r->n);
  else if (r->proven)
    g_string_append_printf(out, "the best of all layouts: one outside these %d expects at least %s\n", r->n,
                           ms_text_seconds(r->outside_s, a));
  else if (!isfinite(r->row[0].expected_s)) g_string_append(out, "every candidate runs out of memory in some state\n");
  else
    g_string_append_printf(out,
                           "the best of the %d layouts that are fastest nominally; not proven for the others: one of "
                           "them expects at least %s, the best here %s (--top looks at more)\n",
                           r->n, ms_text_seconds(r->outside_s, a), ms_text_seconds(r->row[0].expected_s, b));
}

char *ms_report_robust(const MsRobust *r, int top) {
  GString *out = g_string_new("\nunder disturbances, by expected step time\n");
  static const char *const number[] = {"#", "by p95", "by nominal"};
  MsTable *table = ms_table_new();
  for (guint i = 0; i < G_N_ELEMENTS(number); i++) ms_table_column(table, number[i], TRUE);
  ms_table_column(table, "layout", FALSE);
  ms_table_column(table, "expected", TRUE), ms_table_column(table, "p95", TRUE),
      ms_table_column(table, "nominal", TRUE);
  for (int d = 0; d < r->disturbances->n; d++) ms_table_column(table, r->disturbances->row[d].name, TRUE);
  for (int i = 0; i < r->n && (top <= 0 || i < top); i++) {
    const MsRobustRow *row = &r->row[i];
    g_autofree char *layout = layout_text(row->entry->scenario);
    ms_table_cellf(table, "%d", i + 1), ms_table_cellf(table, "%d", row->place_p95),
        ms_table_cellf(table, "%d", row->place);
    ms_table_cell(table, layout);
    seconds_cell(table, row->expected_s), seconds_cell(table, row->p95_s),
        seconds_cell(table, row->entry->result->step_time_s);
    for (int d = 0; d < r->disturbances->n; d++) seconds_cell(table, row->state_s[d]);
  }
  g_autofree char *text = ms_table_take(table);
  g_string_append(out, text);
  append_proof(out, r);
  return g_string_free(out, FALSE);
}

static void write_row(const MsRobust *r, const MsRobustRow *row, MsJsonOut *out) {
  ms_json_out_object(out, NULL);
  ms_json_out_double(out, "expected_s", row->expected_s);
  ms_json_out_double(out, "p95_s", row->p95_s);
  ms_json_out_double(out, "step_time_s", row->entry->result->step_time_s);
  ms_json_out_int(out, "place_nominal", row->place);
  ms_json_out_int(out, "place_p95", row->place_p95);
  ms_json_out_array(out, "states_s");
  for (int d = 0; d < r->disturbances->n; d++) ms_json_out_double(out, NULL, row->state_s[d]);
  ms_json_out_end(out);
  ms_scenario_write(row->entry->scenario, "scenario", out);
  ms_json_out_end(out);
}

void ms_report_robust_json(const MsRobust *r, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_bool(out, "proven", r->proven);
  ms_json_out_double(out, "outside_s", r->outside_s); /* null: nothing is outside */
  ms_json_out_array(out, "states");
  for (int d = 0; d < r->disturbances->n; d++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "name", r->disturbances->row[d].name);
    ms_json_out_double(out, "probability", r->disturbances->row[d].weight);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_array(out, "ranking");
  for (int i = 0; i < r->n; i++) write_row(r, &r->row[i], out);
  ms_json_out_end(out);
  ms_json_out_end(out);
}
