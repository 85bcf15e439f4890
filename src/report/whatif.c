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
  ms_table_cellf(table, "  %s", row->label);
  if (run->whatif->plan == MS_WHATIF_PLAN_POINTS) layout_cell(table, row);
  MS_TABLE_ROW(table, r ? MS_SECONDS(r->step_time_s) : "-", r ? MS_FORMAT("%.0f", r->tokens_per_s_per_gpu) : "-",
               r && isfinite(r->mfu) ? MS_PERCENT(r->mfu) : "-", r ? MS_FORMAT("%.1f", ms_device_B(r) / MS_GIB) : "-");
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
  MsTable *table = ms_table_of("  point");
  if (run->whatif->plan == MS_WHATIF_PLAN_POINTS) ms_table_column(table, "layout", FALSE);
  ms_table_columns(table, ">step time|>tokens/s/GPU|>MFU|>GiB|>change");
  for (int p = 0; p < MS_N_PARTS; p++)
    if ((shown[p] = part_moves(run, p))) ms_table_column(table, ms_part_words[p], TRUE);
  ms_table_column(table, "rest", TRUE);
  for (int i = -1; i < run->n; i++) {
    if (!row_at(run, i)->done) continue;
    head_cells(table, run, row_at(run, i));
    part_cells(table, run, row_at(run, i), shown);
  }
  ms_table_append(table, out);
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
  MsTable *table = ms_table_of("  GiB of the fullest stage|>device|>change");
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
  ms_table_append_below(table, out);
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
  g_autofree char *name = ms_report_name(w->name);
  g_string_append_printf(out, "%s%s%s   [%s]\n", colour ? "\033[1m" : "", name, colour ? "\033[0m" : "",
                         ms_fidelity_words[w->fidelity]);
  if (w->doc) g_string_append_printf(out, "  %s\n", w->doc);
  g_autoptr(GString) layout = g_string_new(NULL);
  layout_text(s, layout);
  g_autofree char *machines = ms_scenario_machines_text(s);
  g_string_append_printf(out, "  base: %s on %s, %s, %s\n", s->model->name, machines,
                         ms_precision_words[s->training.precision], layout->str);
  g_string_append_printf(
      out, "  change and parts in %% of the %s of the base: the base's own, then what each point adds\n\n",
      w->per == MS_WHATIF_TOKEN ? "GPU time per token" : "step");
  ms_report_extent(out, &run->extent);
  if (run->base.result && run->base.result->caveat)
    g_string_append_printf(out, "  caveat: %s\n\n", run->base.result->caveat);
  time_table(out, run);
  memory_table(out, run);
  reasons(out, run);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
/* A point is a place of the run: 0 its base, then the points. */
static const MsWhatifRun *run_of(const void *point) { return MS_FIGURE_OWNER(MsWhatifRun, point); }
static const MsWhatifRow *row_of(const void *point) { return row_at(run_of(point), (int)MS_FIGURE_I(point) - 1); }
static const void *row(const void *point) { return row_of(point); }
static const void *row_with_result(const void *point) { return row_of(point)->result ? row_of(point) : NULL; }
static const void *result(const void *point) { return row_of(point)->result; }
static const void *scenario_that_runs(const void *point) {
  return row_of(point)->result ? row_of(point)->scenario : NULL;
}
static const void *point_itself(const void *point) { return point; }
static const void *point_with_result(const void *point) { return result(point) ? point : NULL; }
static gboolean is_no_base(const void *point) { return MS_FIGURE_I(point) > 0; }

static double change_s(const void *point) { return row_of(point)->value_s - run_of(point)->base.value_s; }
static double change_B(const void *point) {
  return ms_device_B(row_of(point)->result) - ms_device_B(run_of(point)->base.result);
}
static const void *part(const void *point, guint i, MsFigureCursor *room) {
  return ms_figure_place(point, i, MS_N_PARTS, room);
}
static const void *memory_part(const void *point, guint i, MsFigureCursor *room) {
  return ms_figure_place(point, i, MS_N_MEMS, room);
}
static double part_change_s(const void *part) {
  const MsFigureCursor *point = MS_FIGURE_OWNER(MsFigureCursor, part);
  return row_of(point)->part_s[MS_FIGURE_I(part)] - run_of(point)->base.part_s[MS_FIGURE_I(part)];
}
static double part_change_B(const void *part) {
  const MsFigureCursor *point = MS_FIGURE_OWNER(MsFigureCursor, part);
  return row_of(point)->memory_B[MS_FIGURE_I(part)] - run_of(point)->base.memory_B[MS_FIGURE_I(part)];
}

static void put_settings(const void *point, const char *key, MsJsonOut *out) {
  const MsWhatif *w = run_of(point)->whatif;
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  ms_json_out_object(out, key);
  for (int a = w->n_axes - 1; a >= 0; a--) { /* the last axis wins */
    const MsAxisPoint *at = ms_whatif_at(w, (int)MS_FIGURE_I(point) - 1, a);
    for (int i = 0; i < at->n; i++)
      if (g_hash_table_add(seen, at->key[i])) ms_json_out_node(out, at->key[i], at->value[i]);
  }
  ms_json_out_end(out);
}

#define OF_ROW(...) MS_FIGURE_ROWS_OF(row, MS_FIGURES(__VA_ARGS__))
static const MsFigures point_figures = MS_FIGURE_TABLE(
    "point", "Of a what-if study; its base is one too.",
    OF_ROW(MS_FIGURE(STRING, MsWhatifRow, label, "", "of the point")),
    MS_FIGURE_FILE_OF("set", point_itself, put_settings, "keys that the point sets, with their values",
                      .when = is_no_base, .only = "not of the base"),
    OF_ROW(MS_FIGURE(STRING, MsWhatifRow, why, "", "why there is no result", MS_OR_NULL),
           MS_FIGURE(F64, MsWhatifRow, value_s, "s", "of a step or token, as `per` says", MS_OR_NULL)),
    MS_FIGURE_ROWS_OF(
        row_with_result,
        MS_FIGURES(
            MS_FIGURE_BY_WORD("parts_s", MsWhatifRow, part_s, ms_part_words, "s", "parts of the value, they add up"),
            MS_FIGURE_BY_WORD("memory_B", MsWhatifRow, memory_B, ms_mem_part_words, "B", "of the fullest stage")),
        .only = "with a result"),
    MS_FIGURE_FOUND(
        "change", point_with_result,
        MS_FIGURES(MS_FIGURE_OF("value_s", F64, change_s, "s", "against the base"),
                   MS_FIGURE_EACH("parts_s", MAP, part, MS_FIGURES(MS_FIGURE_OF("", F64, part_change_s, "s", NULL)),
                                  .words = ms_part_words, .unit = "s", .doc = "of each part"),
                   MS_FIGURE_OF("device_B", F64, change_B, "B", "of the fullest stage"),
                   MS_FIGURE_EACH("memory_B", MAP, memory_part,
                                  MS_FIGURES(MS_FIGURE_OF("", F64, part_change_B, "B", NULL)),
                                  .words = ms_mem_part_words, .unit = "B", .doc = "of each part")),
        .when = is_no_base, .only = "not of the base"),
    MS_FIGURE_FOUND("result", result, &ms_result_figures, MS_OR_NULL, .doc = "null where there is none"),
    MS_FIGURE_FILE_OF("scenario", scenario_that_runs, ms_report_scenario, "complete: it runs",
                      .only = "with a result"));

typedef struct {
  const MsWhatifRun *run;
  MsFigureCursor base;
} Printed;

static const void *extent(const void *printed) { return &((const Printed *)printed)->run->extent; }
static const void *study(const void *printed) { return ((const Printed *)printed)->run->whatif; }
static const void *point_at(const void *printed, guint i, MsFigureCursor *room) {
  const MsWhatifRun *run = ((const Printed *)printed)->run;
  if (i < (guint)run->n && !run->row[i].done) return ms_figure_skip;
  return ms_figure_place(run, i + 1, (guint)run->n + 1, room);
}
const MsFigures ms_whatif_figures = MS_FIGURE_TABLE(
    "whatif", "`moesim whatif --json`.", MS_FIGURE_ROWS_OF(extent, &ms_extent_figures),
    MS_FIGURE_ROWS_OF(
        study,
        MS_FIGURES(MS_FIGURE(STRING, MsWhatif, name, "", "of the study"),
                   MS_FIGURE(STRING, MsWhatif, doc, "", "what it is about", MS_OR_NULL),
                   MS_FIGURE_WORDS("fidelity", MsWhatif, fidelity, ms_fidelity_words, "bound, fast or full"),
                   MS_FIGURE_WORDS("per", MsWhatif, per, ms_whatif_per_words, "what value_s is of: step or token"),
                   MS_FIGURE_ARRAY("axes", LIST, MsWhatif, axis, n_axes,
                                   MS_FIGURES(MS_FIGURE_AS("", STRING, MsAxis, name, "", NULL)),
                                   .doc = "their names"))),
    MS_FIGURE_PART("base", Printed, base, &point_figures), MS_FIGURE_EACH("points", LIST, point_at, &point_figures));

char *ms_report_whatif_json(const MsWhatifRun *run) {
  return ms_figures_json(&ms_whatif_figures, &(Printed){run, {run, 0}});
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
  ms_csv_cell_text(out, w->name, ',');
  ms_csv_cell_text(out, row->label, ',');
  for (int a = 0; a < MS_WHATIF_MAX_AXES; a++)
    ms_csv_cell_text(out, index >= 0 && a < w->n_axes ? ms_whatif_at(w, index, a)->label : "", ',');
  ms_csv_cell_number(out, r != NULL, ',');
  ms_csv_cell_number(out, r && r->feasible, ',');
  ms_csv_cell_text(out, row->why ? row->why : "", ',');
  ms_csv_cell_number(out, row->scenario ? row->scenario->gpus : NAN, ',');
  const double figure[] = {r ? r->step_time_s : NAN, r ? r->tokens_per_s_per_gpu : NAN, r ? r->tflops_per_gpu : NAN,
                           r ? r->mfu : NAN,         r ? ms_device_B(r) : NAN,          r ? r->capacity_B : NAN};
  for (guint i = 0; i < G_N_ELEMENTS(figure); i++) ms_csv_cell_number(out, figure[i], ',');
  ms_csv_cell_number(out, row->value_s, ',');
  for (int p = 0; p < MS_N_PARTS; p++) ms_csv_cell_number(out, r ? row->part_s[p] : NAN, ',');
  for (int m = 0; m < MS_N_MEMS; m++)
    ms_csv_cell_number(out, r ? row->memory_B[m] : NAN, m + 1 < MS_N_MEMS ? ',' : '\n');
}

char *ms_report_whatif_csv(MsWhatifRun *const *runs, guint n) {
  GString *out = g_string_new(NULL);
  csv_head(out);
  for (guint r = 0; r < n; r++)
    for (int i = -1; i < runs[r]->n; i++)
      if (row_at(runs[r], i)->done) csv_row(out, runs[r], i);
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
