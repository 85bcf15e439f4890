/* Studies: rank order on made-up rows, golden section, the error band, cross-validation and the plot on a few published
 * runs. */
#include "lib/close.h"
#include "lib/tier.h"

#include "base/err.h"
#include "base/io.h"
#include "base/stats.h"
#include "report/report.h"
#include "study/band_fit.h"
#include "study/joint.h"

#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *folder;

static int setup(void **state) {
  (void)state;
  folder = g_dir_make_tmp("moesim-study-XXXXXX", NULL);
  return folder == NULL;
}

static char *write_text(const char *name, const char *text) {
  char *path = g_build_filename(folder, name, NULL);
  assert_true(g_file_set_contents(path, text, -1, NULL));
  return path;
}

static int teardown(void **state) {
  (void)state;
  GDir *dir = g_dir_open(folder, 0, NULL);
  const char *name;
  while ((name = g_dir_read_name(dir))) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    g_unlink(path);
  }
  g_dir_close(dir);
  g_rmdir(folder);
  g_free(folder);
  return 0;
}

/* --- ladders --------------------------------------------------------------------------------------------------- */
enum { RUNS = 4 };
static const double measured[RUNS] = {1, 2, 3, 3.01}, predicted[RUNS] = {1, 2.5, 2.4, 5};
static const char *const body[RUNS] = {"{\"gpus\": 8, \"layout\": {\"tp\": 1, \"pp\": 1}}",
                                       "{\"gpus\": 8, \"layout\": {\"tp\": 2, \"pp\": 1}}",
                                       "{\"gpus\": 8, \"layout\": {\"tp\": 4}}",
                                       "{\"gpus\": 8, \"layout\": {\"tp\": 4}, \"options\": {\"recompute\": "
                                       "{\"granularity\": \"full\", \"num_layers\": 2}}}"};

static MsLadders *ladders_of(const char *text, GError **error) {
  MsValidateRow rows[RUNS] = {{0}};
  MsValidation v = {.n_rows = RUNS, .rows = rows};
  for (int i = 0; i < RUNS; i++) {
    g_autofree char *name = g_strdup_printf("run%d.json", i);
    rows[i] = (MsValidateRow){.file = write_text(name, body[i]),
                              .metric = MS_METRIC_STEP_TIME,
                              .measured = measured[i],
                              .predicted = predicted[i]};
  }
  g_autofree char *file = write_text("ladders.json", text);
  g_autoptr(MsJson) sets = ms_json_load(file, error);
  MsLadders *ladders = sets ? ms_ladders(&v, sets, error) : NULL;
  for (int i = 0; i < RUNS; i++) g_free(rows[i].file);
  return ladders;
}

#define ALL                                                                                                      \
  "{\"path\": \"run0.json\"}, {\"path\": \"run1.json\"}, {\"path\": \"run2.json\"}, {\"path\": \"run3.json\"}, " \
  "{\"path\": \"absent.json\"}"

static void pairs_are_counted_by_order_and_by_knob(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsLadders) l = ladders_of(
      "{\"ladders\": [{\"name\": \"a\", \"kind\": \"ablation\", \"published\": true, \"scenarios\": [" ALL "]},"
      "{\"name\": \"b\", \"scenarios\": [{\"path\": \"run0.json\"}]}]}",
      &error);
  if (!l) fail_msg("%s", error->message);
  assert_int_equal(l->n, 1);
  assert_int_equal(l->skipped, 1);
  assert_int_equal(l->ladders[0].listed, 5);
  assert_int_equal(l->ladders[0].found, 4);
  assert_int_equal(l->all.pairs, 6); /* only (run1, run2) is the wrong way round */
  assert_int_equal(l->all.right, 5);
  assert_close(ms_order_tau(&l->all), 4.0 / 6, 1e-12);
  assert_close(l->mean_tau, 4.0 / 6, 1e-12);
  assert_int_equal(l->clear.pairs, 5); /* run2 and run3 lie 0.3 % apart */
  assert_int_equal(l->single_all.pairs,
                   2); /* tp of run0 and run1; recompute of run2 and run3, one knob with two keys */
  assert_int_equal(l->single.pairs, 1);
  assert_int_equal(l->n_knobs, 1);
  assert_string_equal(l->knobs[0].knob, "layout.tp");
  assert_int_equal(l->single_published.right, 1);
}

static void scaling_is_ordered_by_rate(void **state) {
  (void)state;
  g_autoptr(MsLadders) l =
      ladders_of("{\"ladders\": [{\"name\": \"a\", \"kind\": \"scaling\", \"published\": true, \"scenarios\": ["
                 "{\"path\": \"run0.json\", \"tokens_per_s_per_gpu\": 100}, {\"path\": \"run1.json\", "
                 "\"tokens_per_s_per_gpu\": 110}]}]}",
                 NULL);
  assert_non_null(l);
  assert_int_equal(l->all.wrong, 1); /* predicted 100 and 110 x 2 / 2.5 = 88 */
}

/* --- regret ---------------------------------------------------------------------------------------------------- */
enum { CHOICES = 6 };

/* Two tasks of two runs and of three, and one run that is alone in its own. */
static MsRegret *regret_over(gboolean counted, GError **error) {
  static const char *const text[CHOICES] = {
      "{\"gpus\": 8, \"layout\": {\"tp\": 1}}",
      "{\"gpus\": 8, \"layout\": {\"tp\": 2}, \"training\": {\"micro_batch_size\": 2}}",
      "{\"gpus\": 16, \"layout\": {\"tp\": 1}}",
      "{\"gpus\": 16, \"options\": {\"recompute\": {\"granularity\": \"full\"}}}",
      "{\"gpus\": 16, \"layout\": {\"tp\": 2}}",
      "{\"gpus\": 16, \"training\": {\"global_batch_size\": 32}}"};
  static const double took[CHOICES] = {1.2, 1, 3, 2, 2.5, 1}, said[CHOICES] = {1, 1.1, 2, 2.5, 2, 9};
  MsValidateRow rows[CHOICES] = {{0}};
  MsValidation v = {.n_rows = CHOICES, .rows = rows};
  for (int i = 0; i < CHOICES; i++) {
    char *name = g_strdup_printf("choice%d.json", i);
    rows[i] = (MsValidateRow){.name = name,
                              .file = write_text(name, text[i]),
                              .counted = counted,
                              .measured = took[i],
                              .predicted = said[i],
                              .label.of[MS_BY_STACK] = (char *)"default"};
  }
  MsRegret *regret = ms_regret(&v, error);
  for (int i = 0; i < CHOICES; i++) g_free(rows[i].name), g_free(rows[i].file);
  return regret;
}

static void regret_is_of_runs_of_one_task(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsRegret) r = regret_over(TRUE, &error);
  if (!r) fail_msg("%s", error->message);
  assert_int_equal(r->n, 2);
  assert_int_equal(r->runs, 5);
  assert_int_equal(r->right, 0);
  assert_string_equal(r->tasks[0].chosen, "choice2.json"); /* predicted like choice4, which was measured faster */
  assert_string_equal(r->tasks[0].best, "choice3.json");
  assert_close(r->tasks[0].regret, 0.5, 1e-12);
  assert_close(r->tasks[1].regret, 0.2, 1e-12);
  assert_close(r->mean, 0.35, 1e-12);
  assert_close(r->max, 0.5, 1e-12);
  g_autoptr(GError) none = NULL;
  assert_null(regret_over(FALSE, &none));
  assert_true(g_error_matches(none, MS_ERROR, MS_ERROR_INPUT));
}

static void wrong_ladders_are_named(void **state) {
  (void)state;
  static const char *const text[] = {"[]",
                                     "{\"ladders\": {}}",
                                     "{\"ladders\": [3]}",
                                     "{\"ladders\": [{\"scenarios\": 1}]}",
                                     "{\"ladders\": [{\"scenarios\": [1]}]}",
                                     "{\"ladders\": []}",
                                     "{\"ladders\": [{\"scenarios\": [{\"path\": \"absent.json\"}]}]}"};
  for (guint i = 0; i < G_N_ELEMENTS(text); i++) {
    g_autoptr(GError) error = NULL;
    assert_null(ladders_of(text[i], &error));
    assert_true(g_error_matches(error, MS_ERROR, MS_ERROR_INPUT));
  }
}

/* --- golden section, band -------------------------------------------------------------------------------------- */
static double valley(double x, gpointer data) { return fabs(x - *(double *)data); }

static void golden_section_finds_the_minimum(void **state) {
  (void)state;
  for (double at = -0.95; at < 1; at += 0.1) {
    double want = at;
    assert_true(fabs(ms_golden_minimum(valley, &want, -1, 1, 1e-6) - at) < 1e-6);
  }
}

static void bands_add_up_as_squares(void **state) {
  (void)state;
  MsCurve lent = {.provenance.lent_by = (char *)"h100-sxm"};
  MsOrigin origins[] = {{.time_s = 0.5, .band = 0.06},
                        {.time_s = 0.4, .band = 0.2, .communication = TRUE},
                        {.curve = &lent, .time_s = 0.2, .band = 0.1}};
  MsScenario s = {.laws = {.lent_band = 1.5}};
  MsResult r = {.step_time_s = 1, .n_origins = 2, .origins = origins};
  MsTimeParts stage = {.comm_total_s[MS_COMM_EP] = 0.4, .comm_exposed_s[MS_COMM_EP] = 0.2};
  assert_close(ms_band_of_curves(&s, &r, &stage), hypot(0.5 * 0.06, 0.4 * 0.2 * 0.5), 1e-12);
  r.n_origins = 3;
  assert_close(ms_band_of_curves(&s, &r, &stage), sqrt(0.03 * 0.03 + 0.04 * 0.04 + 0.03 * 0.03),
               1e-12); /* lent: half as much again */
}

static void what_nobody_has_seen_widens_the_band(void **state) {
  (void)state;
  const MsLaws laws = {
      .site_band = 0.03, .host_band = 0.5, .bubble_band = 0.2, .last_gradients_band = 0.12, .unseen_machine_band = 0.4};
  MsBandGround ground = {.curves = 0.04};
  assert_close(ms_band_common(&laws, &ground), 0.03, 1e-12);
  assert_close(ms_band_of(&laws, &ground), 0.05, 1e-12);
  ground.host = 0.08, ground.curves = 0;
  assert_close(ms_band_of(&laws, &ground), 0.05, 1e-12);
  ground.host = 0, ground.bubble = 0.2;
  assert_close(ms_band_of(&laws, &ground), 0.05, 1e-12);
  ground.single = TRUE, ground.bubble = 0, ground.assumed = 0.04;
  assert_close(ms_band_of(&laws, &ground), 0.13, 1e-12);
  const MsHardware none = {0}, three = {.published_runs = 3};
  ground = (MsBandGround){.unseen = ms_band_unseen(&none)};
  assert_close(ms_band_of(&laws, &ground), hypot(0.03, 0.4), 1e-12);
  ground.unseen = ms_band_unseen(&three);
  assert_close(ms_band_of(&laws, &ground), hypot(0.03, 0.2), 1e-12);
}

/* Errors of one machine are one error, its clock: of it alone half lie within 0.41 of what 90 % do, as of a normal,
 * whatever the shape of the others; a machine that learned from its own runs has none of it. */
static void an_unseen_machine_errs_like_a_normal(void **state) {
  (void)state;
  const MsLaws laws = {.site_band = 0.03, .unseen_machine_band = 0.04, .band_80_share = 0.7, .band_50_share = 0.3};
  double width[MS_N_BAND_LEVELS];
  MsBandGround ground = {.unseen = 1};
  ms_band_levels_of(&laws, &ground, width);
  assert_close(width[0], 0.05, 1e-12);
  assert_close(width[1], hypot(0.7 * 0.03, 0.77914 * 0.04), 1e-4);
  assert_close(width[2], hypot(0.3 * 0.03, 0.41005 * 0.04), 1e-4);
  ground.learned = 0.1;
  ms_band_levels_of(&laws, &ground, width);
  assert_close(width[1], 0.07, 1e-12);
  assert_close(width[2], 0.03, 1e-12);
}

/* What a normal deviate's size is below with this probability. */
static double normal_size(double p) {
  double low = 0, high = 8;
  for (int i = 0; i < 60; i++) {
    double mid = (low + high) / 2;
    if (2 * ms_normal_below(mid) - 1 < p) low = mid;
    else high = mid;
  }
  return low;
}

/* Misses that are drawn evenly from 0 to a width that grows with the host's share: the fit finds the widths. */
static void bands_are_fitted_to_what_runs_miss(void **state) {
  (void)state;
  enum { N = 400 };
  MsBandRun runs[2 * N];
  MsLaws laws = {.site_band = 0.5,
                 .host_band = 0.1,
                 .bubble_band = 0.3,
                 .last_gradients_band = 0.4,
                 .unseen_machine_band = 0.7,
                 .band_80_share = 0.5,
                 .band_50_share = 0.2};
  for (int i = 0; i < N; i++) {
    double at = (i + 0.5) / N;
    runs[i] = (MsBandRun){"a", {0}, 0.1 / 0.9 * at};
    runs[N + i] = (MsBandRun){"b", {.host = 0.5}, hypot(0.1, 0.3) / 0.9 * at};
  }
  MsLaws half = laws;
  ms_band_fit(runs, 2 * N, NULL, FALSE, &laws);
  assert_close(laws.site_band, 0.1, 0.05);
  assert_close(laws.host_band, 0.6, 0.05);
  assert_close(laws.band_80_share, 8.0 / 9, 0.05);
  assert_close(laws.band_50_share, 5.0 / 9, 0.05);
  assert_close(laws.bubble_band, 0.3, 0); /* no run tells of these */
  assert_close(laws.unseen_machine_band, 0.7, 0);
  gboolean inside[MS_N_BAND_LEVELS];
  int n[MS_N_BAND_LEVELS] = {0};
  for (int i = 0; i < 2 * N; i++) {
    ms_band_inside(&runs[i], &laws, inside);
    for (int q = 0; q < MS_N_BAND_LEVELS; q++) n[q] += inside[q] != 0;
  }
  for (int q = 0; q < MS_N_BAND_LEVELS; q++) assert_true(fabs((double)n[q] / (2 * N) - ms_band_levels[q]) < 0.03);
  ms_band_fit(runs, 2 * N, "b", FALSE, &half);
  assert_close(half.site_band, 0.1, 0.05);
  assert_close(half.host_band, 0.1, 0);
  /* of runs on machines that nobody has seen: that law and no other */
  MsLaws unseen = laws, before = laws;
  unseen.site_band = 0;
  for (int i = 0; i < 2 * N; i++)
    runs[i] = (MsBandRun){"c", {.unseen = 1}, 0.3 / normal_size(0.9) * normal_size((i + 0.5) / (2 * N))};
  ms_band_fit(runs, 2 * N, NULL, FALSE, &before);
  assert_close(before.unseen_machine_band, laws.unseen_machine_band, 0);
  ms_band_fit(runs, 2 * N, NULL, TRUE, &unseen);
  assert_close(unseen.unseen_machine_band, 0.3, 0.03);
  assert_close(unseen.site_band, 0, 0);
}

/* --- on published runs ----------------------------------------------------------------------------------------- */
static const char *const few[] = {"scenarios/published/simumax", NULL};

static MsValidation *validate_few(gboolean exact) {
  MsValidateOptions options;
  GError *error = NULL;
  ms_validate_options_init(&options);
  options.fidelity = MS_FIDELITY_FAST, options.exact = exact;
  MsValidation *v = ms_validate(few, &options, &error);
  if (!v) fail_msg("%s", error->message);
  return v;
}

static void exact_counts_exact_rows_only(void **state) {
  (void)state;
  g_autoptr(MsValidation) all = validate_few(FALSE), exact = validate_few(TRUE);
  const MsErrorSummary *s = &exact->metric[MS_METRIC_STEP_TIME];
  assert_int_equal(all->n_rows, exact->n_rows);
  assert_true(s->n < all->metric[MS_METRIC_STEP_TIME].n && s->n > 0);
  assert_int_equal(exact->n_confidence, 1);
  assert_true(s->inside > 0 && s->inside <= 1);
  for (guint i = 0; i < all->n_rows; i++) {
    const MsValidateRow *row = &all->rows[i];
    assert_true(row->metric != MS_METRIC_STEP_TIME || (row->band > row->band_curves && row->band < 1));
    assert_true(!row->inside || fabs(row->measured / row->predicted - 1) <= row->band);
  }
}

static void csv_has_a_line_per_row(void **state) {
  (void)state;
  g_autoptr(MsValidation) v = validate_few(FALSE);
  g_autofree char *csv = ms_report_validation_csv(v);
  g_auto(GStrv) line = g_strsplit(csv, "\n", -1);
  assert_int_equal(g_strv_length(line), v->n_rows + 2);
  assert_true(g_str_has_prefix(line[0], "name,file,gpu,model,"));
}

static void plot_without_gnuplot_says_so(void **state) {
  (void)state;
  g_autoptr(MsValidation) v = validate_few(FALSE);
  g_autofree char *path = g_strdup(g_getenv("PATH")), *file = g_build_filename(folder, "plot.svg", NULL);
  g_setenv("PATH", folder, TRUE);
  g_autoptr(GError) error = NULL;
  gboolean may = ms_report_can_plot(file, NULL), ok = ms_report_validation_plot(v, file, &error);
  g_setenv("PATH", path, TRUE);
  assert_false(may);
  assert_false(ok);
  assert_true(g_error_matches(error, MS_ERROR, MS_ERROR_ENV));
  assert_non_null(strstr(error->message, "gnuplot"));
}

static void plot_is_drawn_where_gnuplot_is(void **state) {
  (void)state;
  g_autofree char *gnuplot = g_find_program_in_path("gnuplot");
  if (!gnuplot) skip();
  g_autoptr(MsValidation) v = validate_few(FALSE);
  g_autofree char *file = g_build_filename(folder, "plot of 'few'.svg", NULL), *text = NULL;
  GError *error = NULL;
  if (!ms_report_validation_plot(v, file, &error)) fail_msg("%s", error->message);
  assert_true(g_file_get_contents(file, &text, NULL, NULL));
  assert_non_null(strstr(text, "b200-sxm"));
}

static void cross_validation_is_the_same_twice_and_better_seen(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  MsValidateOptions options;
  ms_validate_options_init(&options);
  g_autoptr(MsCrossval) a = ms_crossval(few, &options, MS_LEAVE_GROUP, NULL);
  options.threads = 1;
  g_autoptr(MsCrossval) b = ms_crossval(few, &options, MS_LEAVE_GROUP, NULL);
  assert_non_null(a);
  assert_non_null(b);
  assert_int_equal(a->runs, 26);
  assert_int_equal(a->groups, 3); /* models on one GPU */
  assert_true(a->all.left_out.mape == b->all.left_out.mape && a->all.in_sample.mape == b->all.in_sample.mape);
  assert_true(a->all.in_sample.mape < a->all.left_out.mape); /* as shipped may be less: here all runs are of one site */
  for (guint i = 0; i < a->n_shared; i++) {
    gboolean band = strstr(a->shared[i].name, "band") != NULL; /* may be nothing where few runs tell of it */
    assert_true(a->shared[i].factor > (band ? -1e-9 : 0.2) && a->shared[i].factor < (band ? 20 : 5));
  }
  g_autofree char *text = ms_report_crossval(a), *json = ms_figures_json(&ms_crossval_figures, a);
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "json", NULL);
  assert_non_null(doc);
  assert_non_null(strstr(text, "left out"));
}

static const MsCrossShared *shared_of(const MsCrossval *c, const char *name) {
  for (guint i = 0; i < c->n_shared; i++)
    if (strcmp(c->shared[i].name, name) == 0) return &c->shared[i];
  fail_msg("nothing named %s is refitted", name);
  return NULL;
}

/* The first number behind `key` in a file of what was written; of the tree where nothing in it moved. */
static double number_in(const char *in, const char *file, const char *object, const char *key) {
  g_autofree char *new = g_build_filename(in, file, NULL), *old = g_build_filename(MS_SOURCE_DIR, file, NULL),
                  *text = NULL;
  const char *path = g_file_test(new, G_FILE_TEST_EXISTS) ? new : old;
  assert_true(g_file_get_contents(path, &text, NULL, NULL));
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, path, NULL);
  assert_non_null(doc); /* it still reads */
  const char *from = strstr(text, object), *at = from ? strstr(from, key) : NULL;
  if (!at) fail_msg("%s: no %s in %s", path, key, object);
  return g_ascii_strtod(strchr(at, ':') + 1, NULL);
}

static void written_as_fitted(const MsCrossval *c, const MsCrossShared *spread) {
  const MsCrossShared *clock = shared_of(c, "sustained_derate of h100-sxm"),
                      *stack = shared_of(c, "speed of stack modelzoo-e865051");
  MsCrossShared twice = {.kind = MS_SHARED_STACK, .of = (char *)"nemo-25.09", .factor = 2};
  MsCrossval other = {.n_shared = 1, .shared = &twice};
  GError *error = NULL;
  g_autofree char *to = g_dir_make_tmp("moesim-fitted-XXXXXX", NULL);
  assert_true(ms_crossval_can_write(to, &error) && ms_crossval_write(c, to, &error));
  assert_close(number_in(to, "software/laws.json", "\"natural_spread\"", "\"value\""), spread->shipped * spread->factor,
               5e-3);
  static const char machine[] = "hardware/h100-sxm.json", stacks[] = "software/stacks.json",
                    derate[] = "\"sustained_derate\"", host[] = "\"kernel_launch_s\"",
                    of[] = "\"name\": \"modelzoo-e865051\"", gemm[] = "\"gemm\"";
  assert_close(number_in(to, machine, "", derate), number_in(MS_SOURCE_DIR, machine, "", derate) * clock->factor, 5e-3);
  assert_close(number_in(to, machine, "", host),
               number_in(MS_SOURCE_DIR, machine, "", host) * shared_of(c, "kernel_launch_s")->factor, 5e-3);
  assert_close(number_in(to, stacks, of, gemm), number_in(MS_SOURCE_DIR, stacks, of, gemm) / stack->factor, 5e-3);
  assert_true(ms_crossval_write(&other, to, &error));
  static const char row[] = "\"name\": \"nemo-25.09\"", attention[] = "\"attention\"";
  assert_close(number_in(to, stacks, row, gemm), number_in(MS_SOURCE_DIR, stacks, row, gemm) / 2, 5e-3);
  double loss = number_in(MS_SOURCE_DIR, "software/laws.json", "\"attention_clock_loss\"", "\"value\"");
  assert_close(number_in(to, stacks, row, attention), number_in(MS_SOURCE_DIR, stacks, row, attention) / (1 + loss),
               5e-3); /* of a clock twice as fast */
  twice.of = (char *)"megatron-deepspeed";
  assert_true(ms_crossval_write(&other, to, &error));
  static const char other_row[] = "\"name\": \"megatron-deepspeed\"";
  assert_close(number_in(to, stacks, other_row, gemm), number_in(MS_SOURCE_DIR, stacks, other_row, gemm) / 2, 5e-3);
  g_autofree char *gone = g_strdup_printf("rm -r %s", to);
  assert_int_equal(system(gone), 0);
}

static void cross_validation_refits_laws(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  static const char *const natural[] = {"scenarios/published/modelzoo", NULL};
  MsValidateOptions options;
  ms_validate_options_init(&options);
  g_autoptr(MsCrossval) c = ms_crossval(natural, &options, MS_LEAVE_SOURCE, NULL);
  assert_non_null(c);
  assert_int_equal(c->groups, 1); /* one folder: nothing is left to fit, clocks are those of benchmarks */
  assert_int_equal(c->all.left_out.n, c->runs);
  assert_true(c->configurations > 0 && c->configurations <= c->runs);
  const MsCrossShared *spread = shared_of(c, "law natural_spread"), *idle = shared_of(c, "law biased_spread");
  assert_true(spread->runs > 0 && spread->factor > 0.5 && spread->factor < 2 && spread->factor != 1);
  assert_true(idle->runs == 0 && idle->factor == 1);
  written_as_fitted(c, spread);
}

/* The slope of the errors over log2(GPUs) of a ladder is that of the rows that `validate` prints. */
static void slope_is_that_of_the_rows(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  static const char *const ladder[] = {"scenarios/published/mlperf-v4.0", NULL};
  MsValidateOptions options;
  ms_validate_options_init(&options);
  g_autoptr(MsCrossval) c = ms_crossval(ladder, &options, MS_LEAVE_SOURCE, NULL);
  g_autoptr(MsValidation) v = ms_validate(ladder, &options, NULL);
  assert_true(c && v && v->n_rows == 3);
  double x[3], x_mean = 0, e_mean = 0, xx = 0, xe = 0;
  for (int i = 0; i < 3; i++) {
    g_autoptr(MsScenario) s = ms_scenario_load(v->rows[i].file, NULL);
    x[i] = log2(s->gpus), x_mean += x[i] / 3, e_mean += v->rows[i].error / 3;
  }
  for (int i = 0; i < 3; i++) xx += pow(x[i] - x_mean, 2), xe += (x[i] - x_mean) * (v->rows[i].error - e_mean);
  assert_int_equal(c->slope.n, 3);
  assert_true(fabs(c->slope.shipped - xe / xx) < 2e-4); /* interpolated */
  assert_true(c->n_parts == 1 && c->parts[0].slope.left_out == c->slope.left_out);
  g_autofree char *text = ms_report_crossval(c), *json = ms_figures_json(&ms_crossval_figures, c);
  assert_non_null(strstr(text, "for each doubling of the GPUs"));
  assert_non_null(strstr(json, "\"slope\""));
}

/* Two machines of a kind, five runs of each, a tenth of them wild; y is what was measured. */
typedef struct {
  double y[10], weight[10];
} Joint;

static double joint_residual(guint run, const double *x, gconstpointer data) {
  const Joint *j = data;
  return x[run / 5] + x[2] - j->y[run];
}

static guint joint_depends(guint run, guint on[MS_JOINT_DEPENDS], gconstpointer data) {
  (void)data;
  on[0] = run / 5, on[1] = 2;
  return 2;
}

static void joint_fit_is_robust_and_shrinks(void **state) {
  (void)state;
  Joint j = {.y = {0.1, 0.1, 0.1, 0.1, 5, 0.3, 0.3, 0.3, 0.3, 0.3}, .weight = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
  static const double step[] = {0.01, 0.01, 0.01}, low[] = {-1, -1, -1}, high[] = {1, 1, 1};
  static const MsJointBelief belief[] = {{0, -1, 0, 0.5}, {1, 0, 0, 0.5}, {2, -1, 0, 1e-3}};
  MsJoint joint = {.n = 3,
                   .n_runs = 10,
                   .n_beliefs = 3,
                   .weight = j.weight,
                   .scale = 0.04,
                   .step = step,
                   .low = low,
                   .high = high,
                   .belief = belief,
                   .residual = joint_residual,
                   .depends = joint_depends,
                   .data = &j};
  double x[3] = {0};
  ms_joint_fit(&joint, x);
  assert_close(x[0], 0.1, 5e-2); /* the wild run moves nothing */
  assert_close(x[1], 0.3, 5e-2);
  assert_true(fabs(x[2]) < 1e-3);
  for (guint i = 5; i < 10; i++) j.weight[i] = 0;
  x[0] = x[1] = x[2] = 0;
  ms_joint_fit(&joint, x);
  assert_close(x[1], x[0], 1e-2); /* nothing is left of the second: it is as the first */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pairs_are_counted_by_order_and_by_knob),
                                     cmocka_unit_test(scaling_is_ordered_by_rate),
                                     cmocka_unit_test(wrong_ladders_are_named),
                                     cmocka_unit_test(regret_is_of_runs_of_one_task),
                                     cmocka_unit_test(golden_section_finds_the_minimum),
                                     cmocka_unit_test(joint_fit_is_robust_and_shrinks),
                                     cmocka_unit_test(bands_add_up_as_squares),
                                     cmocka_unit_test(what_nobody_has_seen_widens_the_band),
                                     cmocka_unit_test(an_unseen_machine_errs_like_a_normal),
                                     cmocka_unit_test(bands_are_fitted_to_what_runs_miss),
                                     cmocka_unit_test(exact_counts_exact_rows_only),
                                     cmocka_unit_test(csv_has_a_line_per_row),
                                     cmocka_unit_test(plot_without_gnuplot_says_so),
                                     cmocka_unit_test(plot_is_drawn_where_gnuplot_is),
                                     cmocka_unit_test(cross_validation_refits_laws),
                                     cmocka_unit_test(slope_is_that_of_the_rows),
                                     cmocka_unit_test(cross_validation_is_the_same_twice_and_better_seen)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
