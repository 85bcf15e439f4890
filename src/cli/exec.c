/* src/cli/exec.c - moesim exec SCENARIO: a step of the operator list, run for real on this CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/order.h"
#include "base/ranks.h"
#include "base/text.h"
#include "cli/cli.h"
#include "exec/exec.h"
#include "report/report.h"

enum { MOST_STEPS = 100000, MOST_THREADS = 1024 };

typedef struct {
  char *dtype, *blas, *dump, *compare, *trace;
  int steps, threads, top;
  gboolean json, no_check;
} Options;

static const char *list_text(const MsExecRow *r, char *buf, size_t size) {
  g_snprintf(buf, size, "%s %s", ms_exec_list_words[r->list],
             r->list == MS_EXEC_FORWARD || r->list == MS_EXEC_BACKWARD ? ms_pass_words[r->op.pass] : "");
  return g_strchomp(buf);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const MsScenario *scenario;
  const Options *options;
  const MsExecResult *result;
} Executed;

static const MsExecRow *row_of(const void *row) { return row; }
static gboolean has_piece(const void *row) { return row_of(row)->piece >= 0; }
static gboolean has_run(const void *row) { return row_of(row)->calls > 0; }
static const char *dtype(const void *run) { return ((const Executed *)run)->options->dtype; }
static double is_checked(const void *run) { return !((const Executed *)run)->options->no_check; }
static double is_interrupted(const void *run) {
  const MsExecResult *r = ((const Executed *)run)->result;
  return r->steps < r->steps_asked;
}
static gboolean is_compared(const void *run) { return ((const Executed *)run)->options->compare != NULL; }

#define S MsExecRow
static const MsFigures row_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_WORDS("list", S, list, ms_exec_list_words, "of rows that it is from"),
    MS_FIGURE(INT, S, piece, "", "of the model", .when = has_piece, .only = "lists of a piece"),
    MS_FIGURE(INT, S, row, "", "index in the list"), MS_FIGURE_WORDS("kind", S, op.kind, ms_op_words, "operator"),
    MS_FIGURE_AS("name", STRING, S, op.name, "", "of the row"),
    MS_FIGURE_WORDS("module", S, op.module, ms_module_words, "of the model"),
    MS_FIGURE_WORDS("pass", S, op.pass, ms_pass_words, "it belongs to"), MS_FIGURE(INT, S, calls, "", "in all steps"),
    MS_FIGURE(F64, S, cpu_s, "s", "CPU time of the calls"), MS_FIGURE(F64, S, wall_s, "s", "of the calls"),
    MS_FIGURE(F64, S, least_wall_s, "s", "of the fastest call"), MS_FIGURE(F64, S, flop, "FLOP", "of a call, as done"),
    MS_FIGURE(F64, S, message_B, "B", "of a call, as sent"),
    MS_FIGURE_AS("keep_B", F64, S, op.keep_B, "B", "kept for backward from its end on"),
    MS_FIGURE_AS("free_B", F64, S, op.free_B, "B", "no longer kept from its end on"));
#undef S
#define EACH(k, m, n, ...) MS_FIGURE_ARRAY(k, LIST, MsExecResult, m, n, &ms_figure_numbers, __VA_ARGS__)
static const MsFigures loss_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(INT, MsExecResult, ranks, "", "in the run"),
                      MS_FIGURE(F64, MsExecResult, loss, "", "of the last step, before its update", MS_OR_NULL),
                      MS_FIGURE(F64, MsExecResult, gradient_norm, "", "of the last step", MS_OR_NULL));
static const MsFigures times_figures = MS_FIGURE_UNNAMED(
    EACH("step_s", step_s, steps, .unit = "s", .doc = "of the slowest rank"),
    EACH("step_cpu_s", step_cpu_s, steps, .unit = "s", .doc = "least CPU time of a rank"),
    EACH("reference_flops", reference_flops, steps, .unit = "FLOP/s",
         .doc = "of a product of 384 x 384 beside each, on the slowest rank: how fast its core was just then"),
    EACH("peak_kept_B", peak_kept_B, ranks, .unit = "B", .doc = "of each rank"),
    EACH("flop", rank_flop, ranks, .unit = "FLOP", .doc = "of a step, of each rank"),
    EACH("message_B", rank_message_B, ranks, .unit = "B", .doc = "of a step, of each rank"));
#define COMPARED(t, m, u, d) MS_FIGURE(t, MsExecResult, m, u, d, MS_OR_NULL)
static const MsFigures difference_figures = MS_FIGURE_UNNAMED(
    COMPARED(F64, gradient_difference, "1", "largest, relative"), COMPARED(STRING, gradient_worst, "", "tensor where"),
    COMPARED(F64, parameter_difference, "1", "largest, relative"),
    COMPARED(STRING, parameter_worst, "", "tensor where"));
static const MsFigures rows_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_ARRAY("rows", LIST, MsExecResult, rows, n_rows, &row_figures, .keep = has_run));
#define OF_RESULT(s, ...) \
  { .type = MS_FIGURE_MEMBERS, .offset = offsetof(Executed, result), .pointer = TRUE, .sub = s, __VA_ARGS__ }
const MsFigures ms_exec_figures = MS_FIGURE_TABLE(
    "exec", "`moesim exec --json`: a step that was run, on rank 0.",
    MS_FIGURE_ROWS_AT(Executed, scenario, MS_FIGURES(MS_FIGURE(STRING, MsScenario, name, "", "of the scenario"))),
    MS_FIGURE_TEXT("dtype", dtype, "of the arithmetic"),
    MS_FIGURE_OF("interrupted", BOOL, is_interrupted, "", "fewer steps than asked for"), OF_RESULT(&loss_figures),
    MS_FIGURE_OF("checked", BOOL, is_checked, "", "every row against its counts"), OF_RESULT(&times_figures),
    OF_RESULT(&difference_figures, .when = is_compared, .only = "`--compare`"), OF_RESULT(&rows_figures));

/* --- for people ------------------------------------------------------------------------------------------------ */

MS_ORDER_AT(by_time, MsExecRow, MS_MORE(x->wall_s, y->wall_s), MS_LESS(x, y))

static double largest(const double *values, int n) {
  double most = 0;
  for (int i = 0; i < n; i++) most = MAX(most, values[i]);
  return most;
}

static void print_rows(const MsExecResult *r, int top) {
  g_autofree const MsExecRow **row = g_new(const MsExecRow *, MAX(r->n_rows, 1));
  char list[64];
  double all = 0;
  int n = 0;
  for (int i = 0; i < r->n_rows; i++)
    if (r->rows[i].calls > 0) row[n++] = &r->rows[i], all += r->rows[i].wall_s;
  qsort(row, (size_t)n, sizeof *row, by_time);
  MsTable *table = ms_table_of("row|module|list|>calls|>time|>share|>CPU|>GFLOP/s|>message");
  for (int i = 0; i < MIN(n, top); i++) {
    ms_table_cellf(table, "%s \"%s\"", ms_op_words[row[i]->op.kind], row[i]->op.name);
    MS_TABLE_ROW(table, ms_module_words[row[i]->op.module], list_text(row[i], list, sizeof list),
                 MS_FORMAT("%d", row[i]->calls), MS_SECONDS(row[i]->wall_s / row[i]->calls),
                 MS_PERCENT(row[i]->wall_s / all), MS_SECONDS(row[i]->cpu_s / row[i]->calls),
                 row[i]->flop > 0 ? MS_FORMAT("%.2f", 1e-9 * row[i]->flop * row[i]->calls / row[i]->wall_s) : "",
                 row[i]->message_B > 0 ? MS_BYTES(row[i]->message_B) : "");
  }
  ms_cli_print(ms_table_take(table));
  if (n > top) printf("(%d further rows: --rows N, or --json)\n", n - top);
}

static void print_result(const MsScenario *scenario, const Options *o, const MsExecResult *r) {
  g_autofree char *name = ms_report_name(scenario->name);
  printf("%s: %d rank%s, %d step%s in %s\n\n", name, r->ranks, r->ranks == 1 ? "" : "s", r->steps,
         r->steps == 1 ? "" : "s", o->dtype);
  printf("loss           %.12g\ngradient norm  %.12g\nlast step      %s\nper rank       %s kept for backward at most, "
         "%sFLOP, %s handed to MPI\n",
         r->loss, r->gradient_norm, MS_SECONDS(r->step_s[r->steps - 1]), MS_BYTES(largest(r->peak_kept_B, r->ranks)),
         MS_COUNT(largest(r->rank_flop, r->ranks)), MS_BYTES(largest(r->rank_message_B, r->ranks)));
  printf("checks         %s\n", o->no_check ? "off" : "ledger, messages and FLOP of every row are what the list says");
  if (o->compare)
    printf("compared with  %s: gradients differ by at most %.3g (%s), parameters by %.3g (%s)\n", o->compare,
           r->gradient_difference, r->gradient_worst ? r->gradient_worst : "none", r->parameter_difference,
           r->parameter_worst ? r->parameter_worst : "none");
  putchar('\n');
  print_rows(r, o->top);
}

/* --- the trace ------------------------------------------------------------------------------------------------- */

/* Of a rank among several: its number in front of the suffix, step.json -> step-rank3.json. (transfer full) */
static char *trace_file(const char *file, int rank, int ranks) {
  const char *base = strrchr(file, '/'), *suffix = strrchr(base ? base : file, '.');
  if (ranks == 1 || g_str_equal(file, "-")) return g_strdup(file);
  int stem = (int)(suffix ? (gsize)(suffix - file) : strlen(file));
  return g_strdup_printf("%.*s-rank%d%s", stem, file, rank, suffix ? suffix : "");
}

static gboolean write_trace(const MsScenario *scenario, const MsExecResult *r, const char *file, GError **error) {
  g_autofree MsKinetoRow *row = g_new(MsKinetoRow, MAX(r->n_spans, 1));
  for (int i = 0; i < r->n_spans; i++)
    row[i] = (MsKinetoRow){&r->rows[r->span[i].row].op, r->span[i].start_s, r->span[i].end_s};
  const MsKinetoRun run = {.device = "CPU, by moesim exec",
                           .rank = r->own,
                           .ranks = r->ranks,
                           .n_rows = r->n_spans,
                           .steps = r->steps,
                           .row = row,
                           .step_start_s = r->own_start_s,
                           .step_s = r->step_s,
                           .reference_flops = r->own_reference_flops};
  return ms_report_trace_run(scenario, &run, file, error);
}

/* --- the verb -------------------------------------------------------------------------------------------------- */

static int run(const Options *o, const char *file, int type) {
  GError *error = NULL;
  MsExecOptions options = {.type = (MsBlasType)type,
                           .blas = o->blas,
                           .threads = o->threads,
                           .steps = o->steps,
                           .unchecked = o->no_check,
                           .progress = TRUE,
                           .reference = o->trace || o->json,
                           .spans = o->trace != NULL,
                           .warm_steps = o->trace && !o->dump && !o->compare, /* as a profiler's schedule has one */
                           .dump = o->dump,
                           .compare = o->compare};
  if (!ms_ranks_begin(&error)) return ms_cli_fail(error);
  g_autofree char *trace = o->trace ? trace_file(o->trace, ms_ranks_own(), ms_ranks_count()) : NULL;
  gboolean first = ms_ranks_own() == 0,
           lost = !((!first || ms_can_write(o->dump, &error)) && ms_can_write(trace, &error)); /* before the work */
  lost = ms_ranks_any(lost);
  if (lost && !error) g_set_error_literal(&error, MS_ERROR, MS_ERROR_ENV, "another rank cannot write its file");
  g_autoptr(MsScenario) scenario = lost ? NULL : ms_scenario_load(file, &error);
  g_autoptr(MsExecResult) result = scenario ? ms_exec_run(scenario, &options, &error) : NULL;
  int status = 0;
  lost = ms_ranks_any(result && trace && !write_trace(scenario, result, trace, &error));
  if (lost && !error) g_set_error_literal(&error, MS_ERROR, MS_ERROR_ENV, "another rank could not write its file");
  if (!result || lost) {
    status = error->code;
    if (first) ms_cli_fail(error);
    else g_error_free(error);
  } else if (first && o->json) {
    ms_cli_print(ms_figures_json(&ms_exec_figures, &(Executed){scenario, o, result}));
  } else if (first) {
    print_result(scenario, o, result);
  }
  ms_ranks_end();
  return status;
}

int ms_cli_exec(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("exec");
  Options o = {.steps = 1, .threads = 1, .top = 20};
  const GOptionEntry entries[] = {
      {"dtype", 0, 0, G_OPTION_ARG_STRING, &o.dtype, "of all tensors (default f32)", "f32|f64"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &o.steps, "training steps, all with the same batch (default 1)", "N"},
      {"blas", 0, 0, G_OPTION_ARG_STRING, &o.blas,
       "library of the matrix products (default: the first that is installed)", "NAME"},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "threads of that library on each rank (default 1)", "N"},
      {"no-check", 0, 0, G_OPTION_ARG_NONE, &o.no_check, "do not compare bytes, messages and FLOP with the list", NULL},
      {"dump", 0, 0, G_OPTION_ARG_FILENAME, &o.dump, "write gradients and updated parameters of the whole model",
       "FILE"},
      {"compare", 0, 0, G_OPTION_ARG_FILENAME, &o.compare, "compare them with such a file", "FILE"},
      {"trace", 0, 0, G_OPTION_ARG_FILENAME, &o.trace,
       "write when every row ran, in the form of the PyTorch profiler, behind a step that warms up (without --dump and "
       "--compare); of several ranks each writes its own, FILE with -rankN in front of the suffix",
       "FILE"},
      {"rows", 0, 0, G_OPTION_ARG_INT, &o.top, "rows to print, the slowest first (default 20)", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object with all rows", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    if (!o.dtype) o.dtype = g_strdup("f32");
    int type = g_str_equal(o.dtype, "f64") ? MS_BLAS_F64 : g_str_equal(o.dtype, "f32") ? MS_BLAS_F32 : -1;
    if (argc != 2) status = ms_cli_usage(verb, "which scenario? Give one file");
    else if (type < 0) status = ms_cli_usage(verb, "--dtype takes f32 or f64, not \"%s\"", o.dtype);
    else if (o.steps < 1 || o.steps > MOST_STEPS)
      status = ms_cli_usage(verb, "--steps takes a number from 1 to %d", MOST_STEPS);
    else if (o.threads < 1 || o.threads > MOST_THREADS)
      status = ms_cli_usage(verb, "--threads takes a number from 1 to %d", MOST_THREADS);
    else if (o.trace && g_str_equal(o.trace, "-"))
      status = ms_cli_usage(verb, "--trace - would mix with what is printed: give a file");
    else if (o.top < 0) status = ms_cli_usage(verb, "--rows takes a number from 0");
    else status = run(&o, argv[1], type);
  }
  return ms_cli_done(entries, status);
}
