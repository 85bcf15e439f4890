/* src/cli/calibrate.c - moesim calibrate: this CPU; --check; --gpu is a file of its own. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/ranks.h"
#include "base/text.h"
#include "cli/cli.h"
#include "local/calibrate.h"
#include "local/check.h"

typedef struct {
  char *out, *csv, *blas, *hardware, *vendor, *date;
  int device, passes;
  gboolean gpu, check, quick, json;
} Options;

/* --- what a rank under mpirun does; not for people ------------------------------------------------------------- */
static int job(const char *folder) {
  GError *error = NULL;
  gboolean ok = ms_ranks_begin(&error) && ms_job_work(folder, &error);
  ms_ranks_end();
  return ok ? 0 : ms_cli_fail(error);
}

/* --- progress -------------------------------------------------------------------------------------------------- */
typedef struct {
  MsProgress *progress;
  double done;
} Ticks;

static void tick(const char *what, gpointer data) {
  Ticks *t = data;
  ms_progress_update(t->progress, ++t->done, what);
}

/* --- calibrate ------------------------------------------------------------------------------------------------- */
static const char *percent(double share, char *buf) { return isfinite(share) ? ms_text_percent(share, buf) : "-"; }

static void print_curves(const MsLocalProfile *profile) {
  MsTable *table = ms_table_of("  curve|form|>of the time|>fitted|>held back|>median|>p90");
  for (guint i = 0; i < profile->curves->len; i++) {
    const MsRowCurve *r = &g_array_index(profile->curves, MsRowCurve, i);
    const MsCurve *c = &r->curve;
    g_autofree char *name = ms_row_curve_name(c);
    ms_table_cellf(table, "  %s", name);
    ms_table_cellf(table, "%s%s", ms_curve_form_words[c->form], c->grid.dims ? " + grid" : "");
    MS_TABLE_ROW(table, percent(c->form == MS_FORM_SEGMENTS ? NAN : r->share, MS_ROOM),
                 MS_FORMAT("%.0f", c->provenance.n_fitted), MS_FORMAT("%.0f", c->provenance.n_held_back),
                 percent(c->provenance.residual_median, MS_ROOM), percent(c->provenance.residual_p90, MS_ROOM));
  }
  ms_cli_print(ms_table_take(table));
}

static void print_repeat(const char *what, MsRepeat r) {
  if (r.n > 0)
    printf("  %s repeat to %.1f %% (median), %.1f %% (p90): second fastest over fastest of %u\n", what, 100 * r.median,
           100 * r.p90, r.n);
}

/* `out`: where the user wanted it, NULL = where `local` is found. */
static void print_calibration(const MsCalibration *c, const char *file, const char *out) {
  const MsMachine *m = c->machine;
  printf("%s, %d cores, L2 %.0f KiB, L3 %.0f MiB, %.1f GiB\n%s\n", m->cpu, m->cores, m->l2_B / 1024, m->l3_B / 1048576,
         m->memory_B / 1073741824, m->blas);
  printf("%d steps in %d passes, %d rows, %d messages in %.0f s; a copy at %.1f GB/s\n", c->steps, c->passes, c->rows,
         c->messages, c->elapsed_s, c->copy_Bps / 1e9);
  if (c->profile && c->profile->reference_flops > 0)
    printf("the reference beside them, a product of 384, ran at %.1f to %.1f GFLOP/s; the profile is of the latter\n",
           c->profile->slowest_flops / 1e9, c->profile->reference_flops / 1e9);
  if (c->kernel_jitter >= 0)
    printf("a product takes %.1f %% more or less on one core than on the next (standard deviation)\n",
           100 * c->kernel_jitter);
  print_repeat("rows", c->row_repeat);
  if (c->refused) printf("  not all steps were run: %s\n", c->refused);
  if (c->no_messages) printf("  messages were not measured: %s; the profile serves one rank\n", c->no_messages);
  putchar('\n');
  if (c->profile) print_curves(c->profile);
  for (guint i = 0; c->profile && i < c->profile->notes->len; i++)
    printf("  no curve: %s\n", (const char *)c->profile->notes->pdata[i]);
  if (c->interrupted) return;
  printf("\nwritten to %s; next: moesim calibrate --check%s%s\n", file, out ? " --hardware " : "", out ? out : "");
}

static const MsFigures repeat_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(UINT, MsRepeat, n, "", "that were measured twice"),
                      MS_FIGURE(F64, MsRepeat, median, "1", "of their relative difference", MS_OR_NULL),
                      MS_FIGURE(F64, MsRepeat, p90, "1", "a tenth differs by more", MS_OR_NULL));
static const void *curves_of(const void *calibration) {
  const MsLocalProfile *profile = ((const MsCalibration *)calibration)->profile;
  return profile ? profile->curves : NULL;
}
static const void *word_at(const GPtrArray *of, guint i) { return i < of->len ? &of->pdata[i] : NULL; }
static const void *note_at(const void *calibration, guint i, MsFigureCursor *room) {
  (void)room;
  const MsLocalProfile *profile = ((const MsCalibration *)calibration)->profile;
  return profile ? word_at(profile->notes, i) : NULL;
}
static const void *distrust_at(const void *calibration, guint i, MsFigureCursor *room) {
  (void)room;
  const MsLocalProfile *profile = ((const MsCalibration *)calibration)->profile;
  return profile ? word_at(profile->distrust, i) : NULL;
}

#define S MsRowCurve
static const MsFigures curve_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_AS("op", STRING, S, curve.op, "", "operator of the curve", MS_OR_NULL),
    MS_FIGURE_AS("pass", STRING, S, curve.pass, "", "of the curve", MS_OR_NULL),
    MS_FIGURE_AS("dtype", STRING, S, curve.dtype, "", "of its operands", MS_OR_NULL),
    MS_FIGURE_WORDS("form", S, curve.form, ms_curve_form_words, "of the curve"),
    MS_FIGURE(F64, S, share, "1", "of the time of all rows"),
    MS_FIGURE_AS("n_fitted", F64, S, curve.provenance.n_fitted, "", "shapes", MS_OR_NULL),
    MS_FIGURE_AS("n_held_back", F64, S, curve.provenance.n_held_back, "", "shapes", MS_OR_NULL),
    MS_FIGURE_AS("residual_median", F64, S, curve.provenance.residual_median, "1", "of those held back", MS_OR_NULL),
    MS_FIGURE_AS("residual_p90", F64, S, curve.provenance.residual_p90, "1", "of those held back", MS_OR_NULL));
#undef S
static const MsFigures calibration_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(INT, MsCalibration, steps, "", "measured"), MS_FIGURE(INT, MsCalibration, passes, "", "over them"),
    MS_FIGURE(INT, MsCalibration, rows, "", "measured"), MS_FIGURE(INT, MsCalibration, messages, "", "measured"),
    MS_FIGURE(STRING, MsCalibration, refused, "", "the first step that could not be run, and why", MS_OR_NULL),
    MS_FIGURE(STRING, MsCalibration, no_messages, "", "why messages were not measured", MS_OR_NULL),
    MS_FIGURE(F64, MsCalibration, elapsed_s, "s", "of the whole calibration"),
    MS_FIGURE_PART("row_repeat", MsCalibration, row_repeat, &repeat_figures,
                   .doc = "how well the machine repeats itself"),
    {.key = "curves",
     .type = MS_FIGURE_LIST,
     .at = curves_of,
     .garray = TRUE,
     .stride = sizeof(MsRowCurve),
     .sub = &curve_figures},
    MS_FIGURE_EACH("notes", LIST, note_at, &ms_figure_texts, .doc = "what got no curve"),
    MS_FIGURE_EACH("distrust", LIST, distrust_at, &ms_figure_texts,
                   .doc = "curves that the held-back rows contradict"));
typedef struct {
  const MsCalibration *calibration;
  const char *file;
} Calibrated;
const MsFigures ms_calibrate_figures = MS_FIGURE_TABLE(
    "calibrate", "`moesim calibrate --json`.",
    MS_FIGURE_ROWS_AT(
        Calibrated, calibration,
        MS_FIGURES(MS_FIGURE_ROWS_AT(MsCalibration, machine,
                                     MS_FIGURES(MS_FIGURE(STRING, MsMachine, cpu, "", "as it names itself"),
                                                MS_FIGURE(INT, MsMachine, cores, "", "of the machine"),
                                                MS_FIGURE(STRING, MsMachine, blas, "", "library of the products"))),
                   MS_FIGURE(BOOL, MsCalibration, interrupted, "", "before all was measured"))),
    MS_FIGURE_AS("profile", STRING, Calibrated, file, "", "where it was written", MS_OR_NULL),
    MS_FIGURE_ROWS_AT(Calibrated, calibration, &calibration_figures));

/* Before the work: 0, or the status after a message. */
static int can_write_profile(const char *file) {
  g_autofree char *folder = g_path_get_dirname(file);
  if (strcmp(file, "-") != 0)
    g_mkdir_with_parents(folder, 0777); /* what fails here fails below with a better message */
  return ms_cli_outputs(file);
}

/* An untrusted profile is written all the same: it may be looked at, but the exit status says 1. */
static int calibrate(const Options *o) {
  GError *error = NULL;
  g_autofree char *file = o->out ? g_strdup(o->out) : ms_user_data_file("hardware", "local"),
                  *date = ms_cli_date_of(o->date);
  g_autofree char *command = g_strdup_printf("moesim calibrate%s", o->quick ? " --quick" : "");
  int status = can_write_profile(file);
  if (status != 0) return status;
  Ticks ticks = {ms_progress_begin("calibrating", ms_calibrate_ticks(o->quick)), 0};
  g_autoptr(MsCalibration) c = ms_calibrate(&(MsCalibrateOptions){.quick = o->quick,
                                                                  .blas = o->blas,
                                                                  .command = command,
                                                                  .date = date,
                                                                  .csv = o->csv,
                                                                  .tick = tick,
                                                                  .tick_data = &ticks},
                                            &error);
  ms_progress_end(ticks.progress);
  if (!c) return ms_cli_fail(error);
  if (!c->interrupted && !ms_write_file(file, c->profile->text, -1, &error)) return ms_cli_fail(error);
  if (o->json) ms_cli_print(ms_figures_json(&ms_calibrate_figures, &(Calibrated){c, c->interrupted ? NULL : file}));
  else if (c->interrupted || strcmp(file, "-") != 0) print_calibration(c, file, o->out);
  if (c->interrupted) {
    fputs("moesim: not all was measured: no profile is written\n", stderr);
    return MS_ERROR_NOTHING;
  }
  for (guint i = 0; i < c->profile->distrust->len; i++)
    fprintf(stderr, "moesim: not to be trusted: %s\n", (const char *)c->profile->distrust->pdata[i]);
  return c->profile->distrust->len > 0 ? MS_ERROR_NOTHING : 0;
}

/* --- check ----------------------------------------------------------------------------------------------------- */
static void print_steps(const MsLocalCheck *c) {
  MsTable *table = ms_table_of("  step|>ranks|>measured|>speed|>predicted|>error|>beside rows|>kept|>error");
  for (int i = 0; i < c->n; i++) {
    const MsCheckedStep *s = &c->step[i];
    gboolean ran = !s->why && s->predicted_s > 0;
    ms_table_cellf(table, "  %s", s->step->name);
    MS_TABLE_ROW(table, MS_FORMAT("%d", ms_local_ranks(s->step)), ran ? MS_SECONDS(s->measured_s) : "-",
                 ran && s->speed > 0 ? MS_FORMAT("%.3f", s->speed) : "-", ran ? MS_SECONDS(s->predicted_s) : "-",
                 ran ? MS_FORMAT("%+.1f %%", 100 * (s->predicted_s / s->measured_s - 1)) : "-",
                 ran && ms_local_ranks(s->step) == 1 ? MS_FORMAT("%+.1f %%", 100 * (s->measured_s / s->rows_s - 1))
                                                     : "-",
                 ran ? MS_BYTES(s->measured_kept_B) : "-",
                 ran ? MS_FORMAT("%+.1f %%", 100 * (s->predicted_kept_B / s->measured_kept_B - 1)) : "-");
  }
  ms_cli_print(ms_table_take(table));
  int disturbed = 0;
  for (int i = 0; i < c->n; i++) disturbed += c->step[i].disturbed;
  if (disturbed > 0)
    printf("  %d steps never had their cores to themselves; what is compared is the CPU time of the rank that had "
           "least\n",
           disturbed);
  for (int i = 0; i < c->n; i++)
    if (c->step[i].why) printf("  %s was not run: %s\n", c->step[i].step->name, c->step[i].why);
}

static void print_ops(const MsLocalCheck *c) {
  MsTable *table = ms_table_of("  operator|pass|>of the time|>rows|>median|>p90|>bias");
  for (guint i = 0; i < c->ops->len; i++) {
    const MsCheckedOp *op = &g_array_index(c->ops, MsCheckedOp, i);
    ms_table_cellf(table, "  %s", op->op);
    MS_TABLE_ROW(table, op->pass, percent(op->share, MS_ROOM), MS_FORMAT("%u", op->error.n),
                 percent(op->error.median, MS_ROOM), percent(op->error.p90, MS_ROOM),
                 MS_FORMAT("%+.1f %%", 100 * op->error.bias));
  }
  ms_cli_print(ms_table_take(table));
}

static void print_verdict(const char *what, const MsErrors *e, double median, double p90, MsRepeat repeat) {
  if (e->n == 0) return;
  printf("  %-28s %3u   median %5.1f %% (at most %.0f)   p90 %5.1f %%", what, e->n, 100 * e->median, 100 * median,
         100 * e->p90);
  if (isfinite(p90)) printf(" (at most %.0f)", 100 * p90);
  printf("   bias %+.1f %%", 100 * e->bias);
  if (repeat.n > 0) printf("   the machine itself repeats to %.1f %%, %.1f %%", 100 * repeat.median, 100 * repeat.p90);
  putchar('\n');
}

static void print_plain(const char *what, const MsErrors *e, const char *end) {
  if (e->n > 0) printf("%s %.1f %% and %.1f %%%s", what, 100 * e->median, 100 * e->p90, end);
}

/* What the host did meanwhile, and what errors would be without regard to it. */
static void print_speed(const MsLocalCheck *c) {
  if (!(c->speed > 0)) {
    puts("  the profile does not say how fast the host was while calibrating: calibrate again to see the drift");
    return;
  }
  printf("  the host ran at %.2f of its speed while calibrating (%.2f to %.2f), and is predicted so; without that: ",
         c->speed, c->least_speed, c->most_speed);
  print_plain("one rank", &c->one_plain, c->several_plain.n > 0 ? ", " : "");
  print_plain("several", &c->several_plain, "");
  putchar('\n');
}

static void print_check(const MsLocalCheck *c) {
  print_steps(c);
  putchar('\n');
  print_ops(c);
  putchar('\n');
  print_verdict("steps on one rank", &c->one, MS_CHECK_ONE_MEDIAN, MS_CHECK_ONE_P90, c->one_repeat);
  print_verdict("steps on several ranks", &c->several, MS_CHECK_RANKS_MEDIAN, MS_CHECK_RANKS_P90, c->several_repeat);
  print_speed(c);
  print_verdict("GEMM rows", &c->gemm, MS_CHECK_GEMM_MEDIAN, HUGE_VAL, (MsRepeat){0});
  print_verdict("all rows that compute", &c->all_ops, MS_CHECK_OPS_MEDIAN, HUGE_VAL, c->row_repeat);
  if (c->all_ops.n > 0)
    printf("  by time, GEMM rows are off by %.1f %%, all rows by %.1f %%\n", 100 * c->gemm_weighted,
           100 * c->all_weighted);
  if (c->no_ranks) printf("  several ranks were not run: %s\n", c->no_ranks);
}

static const MsFigures error_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(UINT, MsErrors, n, "", "compared"),
                      MS_FIGURE(F64, MsErrors, median, "1", "of |predicted / measured - 1|", MS_OR_NULL),
                      MS_FIGURE(F64, MsErrors, p90, "1", "a tenth is larger", MS_OR_NULL),
                      MS_FIGURE(F64, MsErrors, bias, "1", "median of the signed error", MS_OR_NULL));
static const MsCheckedStep *checked(const void *step) { return step; }
static const char *step_name(const void *step) { return checked(step)->step->name; }
static double step_ranks(const void *step) { return ms_local_ranks(checked(step)->step); }
static double measured_s(const void *step) { return checked(step)->why ? NAN : checked(step)->measured_s; }
static double predicted_s(const void *step) { return checked(step)->why ? NAN : checked(step)->predicted_s; }
static double is_met(const void *check) { return ms_local_check_met(check); }

static const MsFigures step_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_TEXT("name", step_name, "of the step"), MS_FIGURE_OF("ranks", INT, step_ranks, "", "it ran on"),
    MS_FIGURE(STRING, MsCheckedStep, why, "", "it was not run or not predicted", MS_OR_NULL),
    MS_FIGURE_OF("measured_s", F64, measured_s, "s", "of the step", MS_OR_NULL),
    MS_FIGURE(BOOL, MsCheckedStep, disturbed, "", "no run had its cores to itself: that is CPU time"),
    MS_FIGURE(F64, MsCheckedStep, speed, "1", "of the host beside it, over that of the profile", MS_OR_NULL),
    MS_FIGURE_OF("predicted_s", F64, predicted_s, "s", "of the step at that speed", MS_OR_NULL),
    MS_FIGURE(F64, MsCheckedStep, measured_kept_B, "B", "held for backward at most", MS_OR_NULL),
    MS_FIGURE(F64, MsCheckedStep, predicted_kept_B, "B", "the same, predicted", MS_OR_NULL));
static const MsFigures op_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, MsCheckedOp, op, "", "operator"), MS_FIGURE(STRING, MsCheckedOp, pass, "", "its pass"),
    MS_FIGURE(F64, MsCheckedOp, share, "1", "of the measured time of all rows"),
    MS_FIGURE_PART("error", MsCheckedOp, error, &error_figures));
#define S               MsLocalCheck
#define ERRORS(k, m, d) MS_FIGURE_PART(k, S, m, &error_figures, .doc = d)
const MsFigures ms_local_check_figures = MS_FIGURE_TABLE(
    "calibrate-check", "`moesim calibrate --check --json`.", MS_FIGURE_ARRAY("steps", LIST, S, step, n, &step_figures),
    MS_FIGURE_GARRAY("operators", S, ops, MsCheckedOp, &op_figures), ERRORS("one_rank", one, "steps of one rank"),
    ERRORS("several_ranks", several, "steps of several"),
    ERRORS("one_rank_plain", one_plain, "steps of one rank, without regard to the speed of the host"),
    ERRORS("several_ranks_plain", several_plain, "steps of several, likewise"),
    MS_FIGURE(F64, S, speed, "1", "of the host over that of the profile, median over the steps", MS_OR_NULL),
    MS_FIGURE(F64, S, least_speed, "1", "the slowest of them", MS_OR_NULL),
    MS_FIGURE(F64, S, most_speed, "1", "the fastest", MS_OR_NULL), ERRORS("gemm", gemm, "dense products"),
    ERRORS("all_operators", all_ops, "all rows"),
    MS_FIGURE(F64, S, gemm_weighted, "1", "sum of |predicted - measured| of products over what was measured"),
    MS_FIGURE(F64, S, all_weighted, "1", "the same of all rows"),
    MS_FIGURE_PART("row_repeat", S, row_repeat, &repeat_figures, .doc = "how well the machine repeats itself"),
    MS_FIGURE_PART("one_rank_repeat", S, one_repeat, &repeat_figures),
    MS_FIGURE_PART("several_ranks_repeat", S, several_repeat, &repeat_figures),
    MS_FIGURE(STRING, S, no_ranks, "", "why steps of several ranks were not run", MS_OR_NULL),
    MS_FIGURE(BOOL, S, interrupted, "", "fewer passes than asked for"),
    MS_FIGURE_OF("met", BOOL, is_met, "", "errors are what they should be on a quiet machine"));
#undef S

static int check(const Options *o) {
  GError *error = NULL;
  const char *hardware = o->hardware ? o->hardware : "local";
  g_autofree char *profile = o->hardware ? NULL : ms_find_data_file("hardware", hardware, NULL);
  if (!o->hardware && !profile) {
    ms_error(&error, MS_ERROR_ENV, "there is no profile of this machine to check: `moesim calibrate` measures one");
    return ms_cli_fail(error);
  }
  g_autofree char *date = ms_cli_date_of(o->date);
  int passes = o->passes != MS_CLI_UNSET ? o->passes : o->quick ? 3 : 5;
  if (!ms_make_folder(o->out, &error)) return ms_cli_fail(error); /* before the work */
  Ticks ticks = {ms_progress_begin("checking", ms_local_check_ticks(passes)), 0};
  g_autoptr(MsLocalCheck) c = ms_local_check(hardware, o->blas, passes, tick, &ticks, &error);
  ms_progress_end(ticks.progress);
  if (!c) return ms_cli_fail(error);
  if (o->out && !ms_local_check_write(c, hardware, o->out, date, &error)) return ms_cli_fail(error);
  if (o->json) ms_cli_print(ms_figures_json(&ms_local_check_figures, c));
  else print_check(c);
  if (o->out && !o->json) printf("\nwritten to %s/: moesim validate %s compares them again\n", o->out, o->out);
  return ms_local_check_met(c) ? 0 : MS_ERROR_NOTHING;
}

/* --- the verb -------------------------------------------------------------------------------------------------- */
int ms_cli_calibrate(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("calibrate");
  if (argc == 3 && strcmp(argv[1], "--job") == 0) return job(argv[2]);
  Options o = {.passes = MS_CLI_UNSET};
  const GOptionEntry entries[] = {
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &o.out,
       "profile to write, default the user's hardware/local.json; --check: folder for the steps as validation "
       "scenarios; --gpu: folder for tables",
       "FILE"},
      {"quick", 'q', 0, G_OPTION_ARG_NONE, &o.quick, "under a minute: fewer steps and passes", NULL},
      {"check", 'c', 0, G_OPTION_ARG_NONE, &o.check, "predict training steps that were not measured, run them, compare",
       NULL},
      {"hardware", 0, 0, G_OPTION_ARG_STRING, &o.hardware, "--check: the profile, default local", "NAME"},
      {"passes", 0, 0, G_OPTION_ARG_INT, &o.passes, "--check: how often every step is run (default 5, with --quick 3)",
       "N"},
      {"csv", 0, 0, G_OPTION_ARG_FILENAME, &o.csv, "write everything measured as tables into FOLDER", "FOLDER"},
      {"blas", 'b', 0, G_OPTION_ARG_STRING, &o.blas, "library for matrix products, default the first found",
       "openblas|blis|mkl|onednn"},
      {"gpu", 'g', 0, G_OPTION_ARG_NONE, &o.gpu, "measure a GPU of this machine through its own libraries", NULL},
      {"vendor", 0, 0, G_OPTION_ARG_STRING, &o.vendor, "--gpu: default the first that answers", "cuda|musa"},
      {"device", 'd', 0, G_OPTION_ARG_INT, &o.device, "--gpu: which one (default 0)", "N"},
      {"date", 0, 0, G_OPTION_ARG_STRING, &o.date, "date of the provenance (default: $SOURCE_DATE_EPOCH, else today)",
       "YYYY-MM-DD"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    if (o.blas) g_setenv("MOESIM_BLAS", o.blas, TRUE); /* ranks under mpirun inherit it */
    if (argc > 1) status = ms_cli_usage(verb, "takes no file, not %s", argv[1]);
    else if (o.gpu && o.check) status = ms_cli_usage(verb, "--check is of a CPU: give it without --gpu");
    else if (!o.gpu && (o.vendor || o.device)) status = ms_cli_usage(verb, "--vendor and --device go with --gpu");
    else if (ms_cli_date(o.date)) status = ms_cli_usage(verb, "%s", ms_cli_date(o.date));
    else if (!o.check && (o.hardware || o.passes != MS_CLI_UNSET))
      status = ms_cli_usage(verb, "--hardware and --passes go with --check");
    else if (o.passes != MS_CLI_UNSET && (o.passes < 1 || o.passes > 1000))
      status = ms_cli_usage(verb, "--passes must be 1 to 1000");
    else if (o.gpu && (o.blas || o.date))
      status = ms_cli_usage(verb, "--blas and --date go with the calibration of a CPU");
    else if (o.csv && (o.check || o.gpu)) status = ms_cli_usage(verb, "--csv goes with the calibration of a CPU");
    else if (o.gpu) status = ms_cli_calibrate_gpu(verb, o.out, o.vendor, o.device, o.quick, o.json);
    else status = o.check ? check(&o) : calibrate(&o);
  }
  return ms_cli_done(entries, status);
}
