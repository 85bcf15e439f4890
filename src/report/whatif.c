/* src/report/whatif.c - a what-if study as table, JSON, CSV and picture. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "report/gnuplot.h"
#include "report/report.h"

#define SHOWN 0.0005 /* a part has a column when it moves by this share of the base somewhere */

static const MsWhatifRow *row_at(const MsWhatifRun *run, int i) { return i < 0 ? &run->base : &run->row[i]; }

/* --- table ----------------------------------------------------------------------------------------------------- */
static void layout_text(const MsScenario *s, GString *out) {
  const MsLayoutSpec *l = &s->layout;
  const struct {
    const char *name;
    int size;
  } part[] = {{"tp", l->tp}, {"cp", l->cp}, {"pp", l->pp}, {"vpp", l->vpp}, {"ep", l->ep}, {"etp", l->etp}};
  for (guint i = 0; i < G_N_ELEMENTS(part); i++)
    if (part[i].size > 1) g_string_append_printf(out, "%s%s%d", out->len ? " " : "", part[i].name, part[i].size);
  g_string_append_printf(out, "%smbs%d", out->len ? " " : "", s->training.micro_batch_size);
}

static void layout_cell(MsTable *table, const MsWhatifRow *row) {
  g_autoptr(GString) text = g_string_new(NULL);
  if (row->result) layout_text(row->scenario, text);
  ms_table_cell(table, row->result ? text->str : "-");
}

static void head_cells(MsTable *table, const MsWhatifRun *run, const MsWhatifRow *row) {
  const MsResult *r = row->result;
  char buf[MS_TEXT];
  ms_table_cellf(table, "  %s", row->label);
  if (run->whatif->plan == MS_WHATIF_PLAN_POINTS) layout_cell(table, row);
  ms_table_cell(table, r ? ms_text_seconds(r->step_time_s, buf) : "-");
  if (r) ms_table_cellf(table, "%.0f", r->tokens_per_s_per_gpu);
  else ms_table_cell(table, "-");
  ms_table_cell(table, r && isfinite(r->mfu) ? ms_text_percent(r->mfu, buf) : "-");
  if (r) ms_table_cellf(table, "%.1f", ms_device_B(r) / MS_GIB);
  else ms_table_cell(table, "-");
}

static gboolean part_moves(const MsWhatifRun *run, int part) {
  for (int i = 0; i < run->n; i++)
    if (run->row[i].result && fabs(run->row[i].part_s[part] - run->base.part_s[part]) >= SHOWN * run->base.value_s)
      return TRUE;
  return FALSE;
}

static void percent_cell(MsTable *table, double share, gboolean change) {
  if (fabs(share) < 5e-4) ms_table_cell(table, change ? "0" : "0.0");
  else ms_table_cellf(table, change ? "%+.1f" : "%.1f", 100 * share);
}

/* The base shows its parts, a point what it changes; all in percent of the base. */
static void part_cells(MsTable *table, const MsWhatifRun *run, const MsWhatifRow *row, const gboolean *shown) {
  gboolean base = row == &run->base;
  double rest = 0;
  if (row->result)
    percent_cell(table, (base ? row->value_s : row->value_s - run->base.value_s) / run->base.value_s, !base);
  else ms_table_cell(table, "-");
  for (int p = 0; p < MS_N_PARTS; p++) {
    double part = (base ? row->part_s[p] : row->part_s[p] - run->base.part_s[p]) / run->base.value_s;
    if (!shown[p]) rest += part;
    else if (row->result) percent_cell(table, part, !base);
    else ms_table_cell(table, "-");
  }
  if (row->result) percent_cell(table, rest, !base);
  else ms_table_cell(table, "-");
}

/* MFU of rows with different peaks cannot be compared; nor where the convention counts FLOP that do not run. */
static void mfu_notes(GString *out, const MsWhatifRun *run) {
  const MsResult *base = run->base.result;
  gboolean differ = FALSE;
  for (int i = 0; i < run->n && base; i++)
    differ |= run->row[i].result && run->row[i].result->peak_flops != base->peak_flops;
  if (differ)
    g_string_append(out, "  MFU is of the dense peak of each point's own precision and machine: compare tokens/s\n");
  for (int i = -1; i < run->n; i++) {
    const MsWhatifRow *row = row_at(run, i);
    g_autofree char *note = row->result ? ms_report_mfu_note(row->result) : NULL;
    if (note) g_string_append_printf(out, "  %s: %s\n", row->label, note);
  }
}

static void time_table(GString *out, const MsWhatifRun *run) {
  gboolean shown[MS_N_PARTS];
  MsTable *table = ms_table_new();
  ms_table_column(table, "  point", FALSE);
  if (run->whatif->plan == MS_WHATIF_PLAN_POINTS) ms_table_column(table, "layout", FALSE);
  static const char *const title[] = {"step time", "tokens/s/GPU", "MFU", "GiB", "change"};
  for (guint i = 0; i < G_N_ELEMENTS(title); i++) ms_table_column(table, title[i], TRUE);
  for (int p = 0; p < MS_N_PARTS; p++)
    if ((shown[p] = part_moves(run, p))) ms_table_column(table, ms_part_words[p], TRUE);
  ms_table_column(table, "rest", TRUE);
  for (int i = -1; i < run->n; i++) {
    head_cells(table, run, row_at(run, i));
    part_cells(table, run, row_at(run, i), shown);
  }
  g_autofree char *text = ms_table_take(table);
  g_string_append(out, text);
  mfu_notes(out, run);
}

static double memory_sum(const MsWhatifRow *row) {
  double sum = 0;
  for (int m = 0; m < MS_N_MEMS; m++) sum += row->memory_B[m];
  return sum;
}

static gboolean memory_moves(const MsWhatifRun *run) {
  for (int i = 0; i < run->n; i++)
    if (run->row[i].result && fabs(memory_sum(&run->row[i]) - memory_sum(&run->base)) > 0.05 * MS_GIB) return TRUE;
  return FALSE;
}

static void memory_table(GString *out, const MsWhatifRun *run) {
  if (!memory_moves(run)) return;
  MsTable *table = ms_table_new();
  ms_table_column(table, "  GiB of the fullest stage", FALSE);
  ms_table_column(table, "device", TRUE);
  ms_table_column(table, "change", TRUE);
  for (int m = 0; m < MS_N_MEMS; m++) ms_table_column(table, ms_mem_part_words[m], TRUE);
  for (int i = -1; i < run->n; i++) {
    const MsWhatifRow *row = row_at(run, i);
    double sum = memory_sum(row), was = memory_sum(&run->base);
    if (!row->result || (i >= 0 && sum == was)) continue;
    ms_table_cellf(table, "  %s", row->label);
    ms_table_cellf(table, "%.2f", sum / MS_GIB);
    ms_table_cellf(table, i < 0 ? "%.2f" : "%+.2f", (i < 0 ? sum : sum - was) / MS_GIB);
    for (int m = 0; m < MS_N_MEMS; m++)
      ms_table_cellf(table, i < 0 ? "%.2f" : "%+.2f",
                     (row->memory_B[m] - (i < 0 ? 0 : run->base.memory_B[m])) / MS_GIB);
  }
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out, "\n%s", text);
}

static void reasons(GString *out, const MsWhatifRun *run) {
  gboolean first = TRUE;
  for (int i = -1; i < run->n; i++) {
    const MsWhatifRow *row = row_at(run, i);
    if (!row->why) continue;
    g_string_append_printf(out, "%s  ! %s: %s\n", first ? "\n" : "", row->label, row->why);
    first = FALSE;
  }
}

char *ms_report_whatif(const MsWhatifRun *run, unsigned flags) {
  const MsWhatif *w = run->whatif;
  const MsScenario *s = run->base.scenario;
  GString *out = g_string_new(NULL);
  gboolean colour = (flags & MS_REPORT_COLOUR) != 0;
  g_string_append_printf(out, "%s%s%s   [%s]\n", colour ? "\033[1m" : "", w->name, colour ? "\033[0m" : "",
                         ms_fidelity_words[w->fidelity]);
  if (w->doc) g_string_append_printf(out, "  %s\n", w->doc);
  g_autoptr(GString) layout = g_string_new(NULL);
  layout_text(s, layout);
  g_string_append_printf(out, "  base: %s on %d x %s, %s, %s\n", s->model->name, s->gpus, s->hardware->name,
                         ms_precision_words[s->training.precision], layout->str);
  g_string_append_printf(
      out, "  change and parts in %% of the %s of the base: the base's own, then what each point adds\n\n",
      w->per == MS_WHATIF_TOKEN ? "GPU time per token" : "step");
  time_table(out, run);
  memory_table(out, run);
  reasons(out, run);
  return g_string_free(out, FALSE);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */
static void put_parts(MsJsonOut *out, const char *key, const char *const *word, int n, const double *part,
                      const double *base) {
  ms_json_out_object(out, key);
  for (int p = 0; p < n; p++) ms_json_out_double(out, word[p], base ? part[p] - base[p] : part[p]);
  ms_json_out_end(out);
}

static void put_settings(const MsWhatif *w, int index, MsJsonOut *out) {
  ms_json_out_object(out, "set");
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  for (int a = w->n_axes - 1; a >= 0; a--) { /* the last axis wins */
    const MsAxisPoint *point = ms_whatif_at(w, index, a);
    for (int i = 0; i < point->n; i++)
      if (g_hash_table_add(seen, point->key[i])) ms_json_out_node(out, point->key[i], point->value[i]);
  }
  ms_json_out_end(out);
}

static void put_row(const MsWhatifRun *run, int index, MsJsonOut *out) {
  const MsWhatifRow *row = row_at(run, index);
  ms_json_out_object(out, index < 0 ? "base" : NULL);
  ms_json_out_string(out, "label", row->label);
  if (index >= 0) put_settings(run->whatif, index, out);
  ms_json_out_string(out, "why", row->why);
  ms_json_out_double(out, "value_s", row->value_s);
  if (row->result) {
    put_parts(out, "parts_s", ms_part_words, MS_N_PARTS, row->part_s, NULL);
    put_parts(out, "memory_B", ms_mem_part_words, MS_N_MEMS, row->memory_B, NULL);
    if (index >= 0) {
      ms_json_out_object(out, "change");
      ms_json_out_double(out, "value_s", row->value_s - run->base.value_s);
      put_parts(out, "parts_s", ms_part_words, MS_N_PARTS, row->part_s, run->base.part_s);
      ms_json_out_double(out, "device_B", ms_device_B(row->result) - ms_device_B(run->base.result));
      put_parts(out, "memory_B", ms_mem_part_words, MS_N_MEMS, row->memory_B, run->base.memory_B);
      ms_json_out_end(out);
    }
    ms_figures_write(&ms_result_figures, row->result, "result", out);
    ms_scenario_write(row->scenario, "scenario", out);
  } else {
    ms_json_out_null(out, "result");
  }
  ms_json_out_end(out);
}

char *ms_report_whatif_json(const MsWhatifRun *run) {
  const MsWhatif *w = run->whatif;
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "name", w->name);
  ms_json_out_string(out, "doc", w->doc);
  ms_json_out_string(out, "per", ms_whatif_per_words[w->per]);
  ms_json_out_array(out, "axes");
  for (int a = 0; a < w->n_axes; a++) ms_json_out_string(out, NULL, w->axis[a].name);
  ms_json_out_end(out);
  put_row(run, -1, out);
  ms_json_out_array(out, "points");
  for (int i = 0; i < run->n; i++) put_row(run, i, out);
  ms_json_out_end(out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

/* --- CSV ------------------------------------------------------------------------------------------------------- */
static void csv_head(GString *out) {
  g_string_append(out, "study,point,");
  for (int a = 0; a < MS_WHATIF_MAX_AXES; a++) g_string_append_printf(out, "axis_%d,", a + 1);
  g_string_append(out,
                  "runs,fits,why,gpus,step_time_s,tokens_per_s_per_gpu,tflops_per_gpu,mfu,device_B,capacity_B,value_s");
  for (int p = 0; p < MS_N_PARTS; p++) g_string_append_printf(out, ",%s_s", ms_part_words[p]);
  for (int m = 0; m < MS_N_MEMS; m++) g_string_append_printf(out, ",%s_B", ms_mem_part_words[m]);
  g_string_append_c(out, '\n');
}

static void csv_row(GString *out, const MsWhatifRun *run, int index) {
  const MsWhatifRow *row = row_at(run, index);
  const MsResult *r = row->result;
  const MsWhatif *w = run->whatif;
  ms_rows_text(out, w->name);
  ms_rows_text(out, row->label);
  for (int a = 0; a < MS_WHATIF_MAX_AXES; a++)
    ms_rows_text(out, index >= 0 && a < w->n_axes ? ms_whatif_at(w, index, a)->label : "");
  ms_rows_number(out, r != NULL, ',');
  ms_rows_number(out, r && r->feasible, ',');
  ms_rows_text(out, row->why ? row->why : "");
  ms_rows_number(out, row->scenario ? row->scenario->gpus : NAN, ',');
  const double figure[] = {r ? r->step_time_s : NAN, r ? r->tokens_per_s_per_gpu : NAN, r ? r->tflops_per_gpu : NAN,
                           r ? r->mfu : NAN,         r ? ms_device_B(r) : NAN,          r ? r->capacity_B : NAN};
  for (guint i = 0; i < G_N_ELEMENTS(figure); i++) ms_rows_number(out, figure[i], ',');
  ms_rows_number(out, row->value_s, ',');
  for (int p = 0; p < MS_N_PARTS; p++) ms_rows_number(out, r ? row->part_s[p] : NAN, ',');
  for (int m = 0; m < MS_N_MEMS; m++) ms_rows_number(out, r ? row->memory_B[m] : NAN, m + 1 < MS_N_MEMS ? ',' : '\n');
}

char *ms_report_whatif_csv(MsWhatifRun *const *runs, guint n) {
  GString *out = g_string_new(NULL);
  csv_head(out);
  for (guint r = 0; r < n; r++)
    for (int i = -1; i < runs[r]->n; i++) csv_row(out, runs[r], i);
  return g_string_free(out, FALSE);
}

/* --- picture --------------------------------------------------------------------------------------------------- */
gboolean ms_report_whatif_plot(MsWhatifRun *run, const char *filename, GError **error) {
  g_autofree char *rows = ms_report_whatif_csv(&run, 1);
  g_autofree char *parts = g_strjoinv(" ", (char **)ms_part_words);
  const char *unit = run->whatif->per == MS_WHATIF_TOKEN ? "GPU us per token" : "step time, s";
  const char *const variables[] = {"study", run->whatif->name, "unit", unit, "parts", parts, NULL};
  return ms_gnuplot("whatif.gp", rows, filename, variables, error);
}
