/* src/report/sweep.c - plans of several clusters and models: a table, the front of time, memory and GPUs, its picture.
 */
#include <math.h>

#include "base/err.h"
#include "base/text.h"
#include "base/units.h"
#include "report/budget.h"
#include "report/gnuplot.h"
#include "report/report.h"
#include "study/advice.h"
#include "study/parts.h"

/* Of the best layout; NULL: there is none. */
static const MsScenario *winner_of(const MsSweepCell *cell) {
  return cell->plan && cell->plan->n_best > 0 ? cell->plan->best[0].scenario : NULL;
}

/* What is told of each cell because it differs: sizes of the task, and precisions that the plan has chosen. */
typedef struct {
  gboolean seq, batch, precision;
} Sizes;

static Sizes sizes_of(const MsSweep *s) {
  Sizes sizes = {FALSE, FALSE, FALSE};
  for (int i = 0; i < s->n_cells; i++) {
    const MsScenario *best = winner_of(&s->cell[i]);
    sizes.precision |= best && best->training.precision != s->cell[i].request->base->training.precision;
  }
  for (int i = 1; i < s->n_cells; i++) {
    const MsTraining *a = &s->cell[0].request->base->training, *b = &s->cell[i].request->base->training;
    sizes.seq |= a->seq_length != b->seq_length;
    sizes.batch |= a->global_batch_size != b->global_batch_size;
  }
  return sizes;
}

/* Of the best where the number of GPUs is searched. */
static void place_cell(MsTable *table, const MsSweepCell *cell) {
  const MsScenario *base = cell->request->base;
  const MsScenario *best = winner_of(cell);
  g_autofree char *gpus = best ? g_strdup_printf("%d", best->gpus) : ms_report_gpus(cell->request);
  MS_TABLE_ROW(table, base->model->name, base->hardware->name, gpus);
}

static void place_cells(MsTable *table, const MsScenario *s) {
  MS_TABLE_ROW(table, s->model->name, s->hardware->name, MS_FORMAT("%d", s->gpus));
}

/* --- cells ----------------------------------------------------------------------------------------------------- */
static void size_columns(MsTable *table, Sizes sizes) {
  if (sizes.seq) ms_table_column(table, "sequence", TRUE);
  if (sizes.batch) ms_table_column(table, "batch", TRUE);
}

static void size_cells(MsTable *table, Sizes sizes, const MsScenario *s) {
  if (sizes.seq) ms_table_cellf(table, "%d", s->training.seq_length);
  if (sizes.batch) ms_table_cellf(table, "%d", s->training.global_batch_size);
}

static const char *why_not(const MsSweepCell *cell) {
  return cell->why                          ? cell->why
         : cell->plan->interrupted          ? "nothing found yet"
         : ms_sweep_late_s(cell) < INFINITY ? "nothing in time"
                                            : "nothing feasible";
}

static void cell_row(MsTable *table, Sizes sizes, const MsSweepCell *cell) {
  place_cell(table, cell);
  size_cells(table, sizes, cell->request->base);
  if (!winner_of(cell)) {
    for (int i = 0; i < 4; i++) ms_table_cell(table, "-");
    ms_table_cell(table, why_not(cell));
    return;
  }
  const MsPlanEntry *best = &cell->plan->best[0];
  g_autofree char *layout = ms_report_layout(best->scenario);
  MS_TABLE_ROW(table, MS_SECONDS(best->result->step_time_s), MS_FORMAT("%.0f", best->result->tokens_per_s_per_gpu),
               MS_PERCENT(best->result->mfu), MS_BYTES(best->scenario->hardware->hbm_B - ms_device_B(best->result)));
  ms_table_cellf(table, "%s%s%s", layout, sizes.precision ? ", " : "",
                 sizes.precision ? ms_precision_words[best->scenario->training.precision] : "");
}

static void append_front(GString *out, const MsSweep *s) {
  MsTable *table = ms_table_of("model|hardware|>GPUs|>step time|>tokens/s/GPU|>free memory|layout");
  int dominated = 0;
  for (int i = 0; i < s->n_points; i++) {
    const MsParetoPoint *p = &s->point[i];
    if (!p->on_front) dominated++;
    if (!p->on_front) continue;
    g_autofree char *layout = ms_report_layout(p->scenario);
    double tokens = (double)p->scenario->training.global_batch_size * p->scenario->training.seq_length;
    place_cells(table, p->scenario);
    MS_TABLE_ROW(table, MS_SECONDS(p->step_time_s), MS_FORMAT("%.0f", tokens / p->step_time_s / p->gpus),
                 MS_BYTES(p->free_B), layout);
  }
  g_string_append(out,
                  "\nfront of step time, free memory and GPUs: no layout of the same model is better in all three\n");
  ms_table_append(table, out);
  if (dominated > 0)
    g_string_append_printf(out, "%d more layouts are the best of their cluster and limit, but beaten by one of these\n",
                           dominated);
}

/* What was stopped: which clusters are missing, and what is proven of the one that was at work. */
static void append_interrupted(GString *out, const MsSweep *s) {
  const MsParetoPoint *open = NULL;
  const MsSweepCell *last = &s->cell[s->n_cells - 1];
  for (int i = 0; i < s->n_points; i++)
    if (s->point[i].interrupted) open = &s->point[i];
  double gap = open ? open->proven_within : last->plan ? ms_plan_gap(last->plan, last->request) : NAN;
  g_string_append_printf(out, "INTERRUPTED: %d of %d clusters begun; of the last one ", s->n_cells, s->n_requests);
  if (gap >= 0)
    g_string_append_printf(out, "no layout is better than %s by more than %.2g %% (proven)\n",
                           open ? "its last point" : "its best", 100 * gap);
  else g_string_append(out, "better layouts may be missing\n");
}

/* What the training takes on each, where the request says how many tokens. */
static void append_training(GString *out, const MsSweep *s, Sizes sizes) {
  g_autofree MsBudgetOf *known = g_new(MsBudgetOf, s->n_cells);
  int n = 0;
  for (int i = 0; i < s->n_cells; i++)
    if (ms_budget_known(&s->cell[i].budget)) known[n++] = (MsBudgetOf){s->cell[i].request, &s->cell[i].budget};
  if (n == 0) return;
  MsTable *table = ms_table_of("model|hardware|>GPUs");
  size_columns(table, sizes);
  ms_report_budget_columns(table);
  for (int i = 0; i < s->n_cells; i++) {
    place_cell(table, &s->cell[i]);
    size_cells(table, sizes, s->cell[i].request->base);
    ms_report_budget_cells(table, &s->cell[i].budget);
  }
  g_autofree char *note = ms_report_budget_note(known, n);
  g_string_append(out, "\nthe whole training:\n");
  ms_table_append(table, out);
  ms_text_paragraph(out, 2, "%s", note);
}

/* Of every machine once, as of its first cell. */
static void append_caveats(GString *out, const MsSweep *s) {
  g_autoptr(GHashTable) told = g_hash_table_new(g_str_hash, g_str_equal);
  for (int i = 0; i < s->n_cells; i++) {
    const MsPlan *plan = s->cell[i].plan;
    const char *caveat = plan && plan->n_best > 0 ? plan->best[0].result->caveat : NULL;
    if (caveat && g_hash_table_add(told, s->cell[i].request->base->hardware->name))
      ms_text_paragraph(out, 2, "caveat: %s", caveat);
  }
}

char *ms_report_sweep(const MsSweep *s) {
  GString *out = g_string_new(NULL);
  MsTable *table = ms_table_of("model|hardware|>GPUs");
  Sizes sizes = sizes_of(s);
  for (int i = 0; i < s->n_advice; i++)
    g_string_append_printf(out, "%s%s%s", i ? "      " : "do:   ", s->advice[i], i + 1 < s->n_advice ? "\n" : "\n\n");
  size_columns(table, sizes);
  ms_table_columns(table, ">step time|>tokens/s/GPU|>MFU|>free memory|best layout");
  for (int i = 0; i < s->n_cells; i++) cell_row(table, sizes, &s->cell[i]);
  ms_table_append(table, out);
  append_caveats(out, s);
  append_training(out, s, sizes);
  if (s->n_points > 0) append_front(out, s);
  if (s->interrupted) append_interrupted(out, s);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
typedef struct {
  MsPrintedPlan plan;
  const char *why;
  const MsBudget *budget;
} Cell;
typedef struct {
  const MsSweep *sweep;
  int n;
  Cell *cell;
} Printed;

static const void *request_base(const void *cell) { return ((const Cell *)cell)->plan.request->base; }
static const void *cell_budget(const void *cell) {
  const MsBudget *b = ((const Cell *)cell)->budget;
  return ms_budget_known(b) ? b : NULL;
}
static const void *cell_plan(const void *cell) { return ((const Cell *)cell)->plan.plan ? cell : NULL; }
static double elapsed_s(const void *printed) {
  const MsSweep *s = ((const Printed *)printed)->sweep;
  double sum_s = 0;
  for (int i = 0; i < s->n_cells; i++) sum_s += s->cell[i].plan ? s->cell[i].plan->elapsed_s : 0;
  return sum_s;
}
static double not_begun(const void *printed) {
  const MsSweep *s = ((const Printed *)printed)->sweep;
  return s->n_requests - s->n_cells;
}
static gboolean is_on_front(const void *point) { return ((const MsParetoPoint *)point)->on_front; }
static const char *model(const void *scenario) { return ((const MsScenario *)scenario)->model->name; }
static const char *hardware(const void *scenario) { return ((const MsScenario *)scenario)->hardware->name; }
static const MsFigures place_figures = MS_FIGURE_UNNAMED(MS_FIGURE_TEXT("model", model, "of this cell"),
                                                         MS_FIGURE_TEXT("hardware", hardware, "the machine"),
                                                         MS_FIGURE(INT, MsScenario, gpus, "", "how many"));
static const MsFigures task_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_AS("seq_length", INT, MsScenario, training.seq_length, "tokens", "of a sequence"),
    MS_FIGURE_AS("global_batch_size", INT, MsScenario, training.global_batch_size, "", "sequences of a step"));

#define P MsParetoPoint
const MsFigures ms_sweep_figures = MS_FIGURE_TABLE(
    "sweep", "`moesim plan --json` of a request with lists of models, machines or GPUs, or with `--front`.",
    MS_FIGURE_ROWS_AT(
        Printed, sweep,
        MS_FIGURES(MS_FIGURE(BOOL, MsSweep, interrupted, "", "stopped early: what was found until then"),
                   MS_FIGURE_ARRAY("advice", LIST, MsSweep, advice, n_advice, &ms_figure_texts,
                                   .doc = "which cluster to take, a sentence each; empty where tasks differ"))),
    MS_FIGURE_OF("not_begun", F64, not_begun, "", "clusters that are missing in `cells`"),
    MS_FIGURE_OF("elapsed_s", F64, elapsed_s, "s", "of all searches; the only figure that differs between two calls"),
    MS_FIGURE_ARRAY(
        "cells", LIST, Printed, cell, n,
        MS_FIGURES(
            MS_FIGURE_ROWS_OF(request_base, &place_figures), MS_FIGURE_ROWS_OF(request_base, &task_figures),
            MS_FIGURE_FOUND("training", cell_budget, &ms_budget_figures, .only = "plan.training_tokens"),
            MS_FIGURE(STRING, Cell, why, "", "why nothing could be planned there", MS_OR_NULL),
            MS_FIGURE_ROWS_OF(
                cell_plan, &ms_plan_figures, .only = "",
                .doc =
                    "one for each model, machine and number of GPUs; these keys stand alone where `why` is no null"))),
    MS_FIGURE_ROWS_AT(
        Printed, sweep,
        MS_FIGURES(MS_FIGURE_ARRAY(
            "front", LIST, MsSweep, point, n_points,
            MS_FIGURES(MS_FIGURE_ROWS_AT(P, scenario, &place_figures, .only = "`--front`"),
                       MS_FIGURE(F64, P, step_time_s, "s",
                                 "no other layout of the same model is better in it, free memory and GPUs at once",
                                 .only = ""),
                       MS_FIGURE(F64, P, proven_within, "1",
                                 "no layout within its memory is better by more; 0 unless interrupted", MS_OR_NULL,
                                 .only = ""),
                       MS_FIGURE(F64, P, device_B, "B", "memory of the fullest stage", .only = ""),
                       MS_FIGURE(F64, P, free_B, "B", "what is left of the device", .only = ""),
                       MS_FIGURE_FILE_AT("scenario", P, scenario, ms_report_scenario, "complete: it runs", .only = "")),
            .keep = is_on_front))));

char *ms_report_sweep_json(const MsSweep *s) {
  g_autofree Cell *cell = g_new0(Cell, s->n_cells);
  for (int i = 0; i < s->n_cells; i++) {
    const MsSweepCell *from = &s->cell[i];
    if (from->plan)
      cell[i].plan = ms_printed_plan(from->request, from->plan, &from->extras, 0), cell[i].plan.in_sweep = TRUE;
    cell[i].plan.request = from->request, cell[i].why = from->why, cell[i].budget = &from->budget;
  }
  char *text = ms_figures_json(&ms_sweep_figures, &(Printed){s, s->n_cells, cell});
  for (int i = 0; i < s->n_cells; i++) g_free(cell[i].plan.assumes);
  return text;
}

/* --- while it is searched -------------------------------------------------------------------------------------- */
typedef struct {
  const MsSweep *sweep;
  double done, searched, simulated;
} SoFar;

static const MsPlan *plan_so_far(const MsSweepCell *cell) { return cell->plan ? cell->plan : cell->so_far; }

static const void *base_of_cell(const void *cell) { return ((const MsSweepCell *)cell)->request->base; }
static const void *best_of_cell(const void *cell) {
  static const MsResult unknown = {.step_time_s = NAN, .tokens_per_s_per_gpu = NAN, .mfu = NAN};
  const MsPlan *plan = plan_so_far(cell);
  return plan && plan->n_best > 0 ? plan->best[0].result : &unknown;
}
static const MsFigures sweep_so_far_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(F64, SoFar, done, "1", NULL), MS_FIGURE(F64, SoFar, searched, "", NULL),
    MS_FIGURE(F64, SoFar, simulated, "", NULL),
    MS_FIGURE_ROWS_AT(
        SoFar, sweep,
        MS_FIGURES(MS_FIGURE_ARRAY(
            "cells", LIST, MsSweep, cell, n_cells,
            MS_FIGURES(
                MS_FIGURE_ROWS_OF(base_of_cell, &place_figures), MS_FIGURE_ROWS_OF(base_of_cell, &task_figures),
                MS_FIGURE_ROWS_OF(best_of_cell, MS_FIGURES(MS_FIGURE(F64, MsResult, step_time_s, "s", NULL),
                                                           MS_FIGURE(F64, MsResult, tokens_per_s_per_gpu, "", NULL),
                                                           MS_FIGURE(F64, MsResult, mfu, "1", NULL))))))));

char *ms_report_sweep_so_far(const MsSweep *s, double done) {
  SoFar so_far = {.sweep = s, .done = done};
  for (int i = 0; i < s->n_cells; i++) {
    const MsPlan *plan = plan_so_far(&s->cell[i]);
    if (plan) so_far.searched += (double)plan->searched, so_far.simulated += (double)plan->simulated;
  }
  return ms_figures_json(&sweep_so_far_figures, &so_far);
}

char *ms_report_sweep_best_so_far(const MsSweep *s, double done) {
  const MsSweepCell *cell = &s->cell[s->n_cells - 1];
  const MsScenario *base = cell->request->base;
  g_autofree char *best = ms_report_plan_best_so_far(plan_so_far(cell), done);
  return g_strdup_printf("%s on %d x %s, sequence %d, batch %d: %s", base->model->name, base->gpus,
                         base->hardware->name, base->training.seq_length, base->training.global_batch_size, best);
}

/* --- picture --------------------------------------------------------------------------------------------------- */
/* (transfer full) without the quotes that gnuplot's list of words is made with */
static char *series_of(const MsScenario *s) {
  char *name = g_strdup_printf("%s, %d x %s", s->model->name, s->gpus, s->hardware->name);
  return g_strdelimit(name, "\"", '\'');
}

gboolean ms_report_sweep_plot(const MsSweep *s, const char *filename, GError **error) {
  if (s->n_points == 0) return ms_error(error, MS_ERROR_INPUT, "%s: nothing feasible to plot", filename);
  g_autoptr(GString) rows = g_string_new("cluster,gpus,step_time_s,free_GiB,on_front\n"), names = g_string_new(NULL);
  for (int i = 0; i < s->n_cells; i++) {
    g_autofree char *series = series_of(s->cell[i].request->base);
    g_string_append_printf(names, "%s\"%s\"", names->len ? " " : "", series);
  }
  for (int i = 0; i < s->n_points; i++) {
    const MsParetoPoint *p = &s->point[i];
    ms_csv_cell_number(rows, p->cell + 1, ',');
    ms_csv_cell_number(rows, p->gpus, ','), ms_csv_cell_number(rows, p->step_time_s, ','),
        ms_csv_cell_number(rows, p->free_B / MS_GIB, ','), ms_csv_cell_number(rows, p->on_front, '\n');
  }
  return ms_gnuplot("front.gp", rows->str, filename, (const char *const[]){"names", names->str, NULL}, error);
}
