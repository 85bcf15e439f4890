/* tests/unit/test_local.c - calibrating a CPU that exists on paper only: a clock made of formulas and noise stands in
 * for the executor. What comes out of measuring, fitting and writing a profile must predict that machine. */
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "base/err.h"
#include "calib/measure.h"
#include "cost/terms.h"
#include "layout/layout.h"
#include "local/calibrate.h"
#include "local/check.h"
#include "local/messages.h"

#include <glib/gstdio.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static char *folder;

/* --- the machine on paper -------------------------------------------------------------------------------------- */
static double row_s(const MsOp *op) {
  MsTerms t = ms_op_terms(op);
  switch (ms_op_families[op->kind]) {
  case MS_FAMILY_GEMM: return 2e-6 + t.flop / 120e9 + 0.2e-9 * t.mn + 0.1e-9 * (t.mk + t.nk);
  case MS_FAMILY_GROUPED: return 1e-6 + 1e-6 * t.groups + t.flop / 100e9 + 0.3e-9 * t.nk;
  case MS_FAMILY_ATTENTION: return 1e-6 + t.flop / 60e9 + 1e-9 * t.mn;
  default: return 0.4e-6 + t.bytes_B / 20e9 + MAX(0, t.bytes_B - 2097152) / 30e9;
  }
}

typedef struct {
  GRand *rand;
  double noise;   /* a run is slower by up to this share */
  int passes;     /* so far */
  gboolean fails; /* the second step of a list cannot be run */
  GError *broken; /* every pass fails with a copy of it */
  double speed;   /* of the host: everything takes its time over that, the reference too; 0: 1 */
  double drift;   /* it swings by so much around that, run by run */
  double skew;    /* rows that are no products follow the host's speed to that power; 0: 1 */
  int runs;       /* so far */
} Paper;

#define REFERENCE_FLOPS 100e9

/* Of the host at the next run: a clock that swings slowly. */
static double next_speed(Paper *paper) {
  double speed = paper->speed > 0 ? paper->speed : 1;
  return speed * (1 + paper->drift * sin(0.7 * paper->runs++));
}

static void add_rows(MsStepRun *run, const MsOpList *list, double calls, Paper *paper, double speed) {
  for (int i = 0; i < list->n; i++) {
    MsRunRow row = {.op = list->op[i], .ranks = 1, .calls = calls};
    gboolean product = ms_op_families[row.op.kind] <= MS_FAMILY_GROUPED;
    double s = row_s(&row.op) / (product || !(paper->skew > 0) ? speed : pow(speed, paper->skew));
    row.cpu_s = s * (1 + paper->noise * g_rand_double(paper->rand));
    row.wall_s = row.cpu_s;
    g_array_append_val(run->rows, row);
    run->step_cpu_s += calls * s;
  }
}

static MsStepRun *run_on_paper(const MsScenario *s, Paper *paper) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, &error);
  g_autoptr(MsWork) work = layout ? ms_work_new(s, layout, &error) : NULL;
  if (!work) fail_msg("%s", error->message);
  MsStepRun *run = g_new0(MsStepRun, 1);
  double speed = next_speed(paper);
  run->reference_flops = REFERENCE_FLOPS * speed;
  run->ranks = layout->world;
  run->rows = g_array_new(FALSE, FALSE, sizeof(MsRunRow));
  for (int c = 0; c < layout->num_chunks; c++)
    for (int i = 0; i < ms_work_chunk_length(work, &layout->chunks[c]); i++) {
      const MsPiece *piece = &work->pieces[ms_work_chunk_piece(work, &layout->chunks[c], i)];
      add_rows(run, &piece->forward, layout->microbatches, paper, speed);
      add_rows(run, &piece->backward, layout->microbatches, paper, speed);
      run->kept_B += piece->kept_B;
    }
  MsStepOps step;
  ms_work_step_ops(work, 0, &step);
  add_rows(run, &step.before, 1, paper, speed), add_rows(run, &step.after, 1, paper, speed);
  ms_step_ops_clear(&step);
  run->step_cpu_s *= 1 + paper->noise * g_rand_double(paper->rand);
  run->step_s = run->step_cpu_s * 1.5; /* somebody else had the core */
  run->quiet = FALSE;
  return run;
}

static gboolean pass_on_paper(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick,
                              gpointer tick_data, gpointer data, GError **error) {
  Paper *paper = data;
  paper->passes++;
  if (paper->broken) {
    g_propagate_error(error, g_error_copy(paper->broken));
    return FALSE;
  }
  g_autoptr(MsMachine) machine = g_new0(MsMachine, 1);
  machine->cpu = g_strdup("paper"), machine->blas = g_strdup("paper"), machine->cores = 2, machine->memory_B = 1e10;
  g_autofree char *hardware = ms_local_bare_profile(machine);
  for (int i = 0; i < n; i++) {
    if (ms_local_ranks(&step[i]) > 1) continue;
    if (paper->fails && i == 1) {
      why[i] = g_strdup("no");
      continue;
    }
    g_autoptr(GError) problem = NULL;
    g_autoptr(MsScenario) s = ms_local_scenario(&step[i], hardware, &problem);
    if (!s) fail_msg("%s", problem->message);
    run[i] = run_on_paper(s, paper);
    if (tick) tick(step[i].name, tick_data);
  }
  return TRUE;
}

static MsSurveyed *survey_on(Paper paper, const MsLocalStep *steps, int n, int passes) {
  paper.rand = g_rand_new_with_seed(5);
  g_autoptr(GError) error = NULL;
  MsSurveyed *survey = ms_survey(steps, n, passes, pass_on_paper, &paper, NULL, NULL, &error);
  if (!survey) fail_msg("%s", error->message);
  assert_int_equal(paper.passes, passes);
  g_rand_free(paper.rand);
  return survey;
}

static MsSurveyed *survey_of(const MsLocalStep *steps, int n, int passes, double noise) {
  return survey_on((Paper){.noise = noise}, steps, n, passes);
}

static MsMachine machine = {.cpu = (char *)"Paper CPU",
                            .cores = 2,
                            .l2_B = 2097152,
                            .l3_B = 1e8,
                            .memory_B = 24e9,
                            .blas = (char *)"openblas 0.3.21, kernels for SkylakeX"};

static void add_messages(GArray *samples) {
  static const MsOpKind kinds[] = {MS_OP_ALL_GATHER, MS_OP_REDUCE_SCATTER, MS_OP_ALL_REDUCE, MS_OP_ALL_TO_ALL,
                                   MS_OP_P2P};
  for (guint k = 0; k < G_N_ELEMENTS(kinds); k++)
    for (int i = 0; i < 40; i++)
      for (int fp32 = 0; fp32 < 2; fp32++) {
        MsRowSample s = {.op = {.name = "paper", .kind = (guint8)kinds[k], .dtype = fp32 ? MS_ODT_FP32 : MS_ODT_BF16},
                         .ranks = 2};
        s.op.message_B = 64 * exp2(i / 2.0);
        s.time_s = 0.5e-6 + ms_row_bus_B(&s) * (fp32 ? 1 : 2) / 5e9;
        g_array_append_val(samples, s);
      }
}

static MsLocalProfile *profile_of(const MsSurveyed *survey) {
  g_autoptr(GArray) samples = g_array_new(FALSE, FALSE, sizeof(MsRowSample));
  g_autoptr(GError) error = NULL;
  ms_survey_samples(survey, samples);
  add_messages(samples);
  MsLocalFacts facts = {&machine, 18e9, 0.05, "moesim calibrate", "2026-11-21"};
  MsLocalProfile *p = ms_local_profile((const MsRowSample *)(void *)samples->data, samples->len, &facts,
                                       ms_survey_row_repeat(survey), &error);
  if (!p) fail_msg("%s", error->message);
  return p;
}

/* --- measuring ------------------------------------------------------------------------------------------------- */
static void the_least_of_the_passes(void **state) {
  (void)state;
  int n;
  const MsLocalStep *steps = ms_local_check_steps(&n);
  g_autoptr(MsSurveyed) one = survey_of(steps, 3, 1, 0.5), many = survey_of(steps, 3, 12, 0.5),
                        exact = survey_of(steps, 3, 1, 0);
  for (int i = 0; i < 3; i++) {
    assert_true(many->step[i].step_s <= one->step[i].step_s);
    assert_close(many->step[i].step_s, exact->step[i].step_s, 0.15); /* the least of 12 */
    assert_int_equal(many->step[i].runs, 12);
    assert_true(many->step[i].next_s >= many->step[i].step_s);
    for (guint j = 0; j < exact->step[i].rows->len; j++) {
      double got = g_array_index(many->step[i].rows, MsRunRow, j).cpu_s,
             want = g_array_index(exact->step[i].rows, MsRunRow, j).cpu_s;
      assert_true(got >= want && got < 1.3 * want);
    }
  }
  MsRepeat repeat = ms_survey_row_repeat(many), none = ms_survey_row_repeat(one);
  assert_true(repeat.n > 100 && repeat.median > 0 && repeat.median < 0.1);
  assert_int_equal(none.n, 0);
}

static void the_filter(void **state) {
  (void)state;
  assert_true(ms_machine_quiet(0.99, 1));
  assert_false(ms_machine_quiet(0.97, 1));
  assert_false(ms_machine_quiet(1, 0));
}

/* Several ranks: the wall time of a quiet run counts before the CPU time of those that were disturbed, and the least of
 * the quiet ones. */
static double wall[] = {2.0, 1.0, 3.0, 2.5};
static gboolean quiet[] = {FALSE, FALSE, TRUE, TRUE};
static const double *beside; /* of the reference; NULL: not measured */
static gboolean pass_of_two(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick,
                            gpointer tick_data, gpointer data, GError **error) {
  (void)step, (void)n, (void)why, (void)tick, (void)tick_data, (void)error;
  int *at = data;
  run[0] = g_new0(MsStepRun, 1);
  *run[0] = (MsStepRun){.ranks = 2,
                        .step_s = wall[*at],
                        .step_cpu_s = wall[*at] / 2,
                        .quiet = quiet[*at],
                        .reference_flops = beside ? beside[*at] : 0,
                        .rows = g_array_new(FALSE, FALSE, sizeof(MsRunRow))};
  ++*at;
  return TRUE;
}

static void quiet_runs_count_first(void **state) {
  (void)state;
  int at = 0, n;
  const MsLocalStep *steps = ms_local_check_steps(&n);
  g_autoptr(MsSurveyed) two = ms_survey(steps, 1, 2, pass_of_two, &at, NULL, NULL, NULL);
  assert_close(two->step[0].step_s, 0.5, 0);
  at = 0;
  g_autoptr(MsSurveyed) four = ms_survey(steps, 1, 4, pass_of_two, &at, NULL, NULL, NULL);
  assert_close(four->step[0].step_s, 2.5, 0);
  assert_close(four->step[0].next_s, 3.0, 0);
  assert_int_equal(four->step[0].quiet_runs, 2);
}

/* A reference that somebody disturbed is beside a step that is not faster for it. */
static void a_disturbed_reference(void **state) {
  (void)state;
  int at = 0, n;
  const MsLocalStep *steps = ms_local_check_steps(&n);
  beside = (const double[]){100e9, 60e9, 90e9, 95e9};
  g_autoptr(MsSurveyed) two = ms_survey(steps, 1, 2, pass_of_two, &at, NULL, NULL, NULL);
  assert_close(two->step[0].step_flops, 60e9, 0); /* 1 s there, 2 s beside the other */
  at = 2;
  g_autoptr(MsSurveyed) drift = ms_survey(steps, 1, 2, pass_of_two, &at, NULL, NULL, NULL);
  assert_close(drift->step[0].step_flops, 95e9, 0); /* 2.5 s: 3 s x 90e9 is more */
  at = 2;
  beside = (const double[]){0, 0, 50e9, 95e9};
  g_autoptr(MsSurveyed) low = ms_survey(steps, 1, 2, pass_of_two, &at, NULL, NULL, NULL);
  assert_close(low->step[0].step_flops, 95e9, 0); /* although 3 s x 50e9 is less than 2.5 s x 95e9 */
  assert_close(low->step[0].next_s, 3.0 * 50 / 95, 1e-12);
  beside = NULL;
}

static gboolean pass_of_references(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick,
                                   gpointer tick_data, gpointer data, GError **error) {
  (void)step, (void)why, (void)tick, (void)tick_data, (void)error;
  const double *flops = data;
  for (int i = 0; i < n; i++) {
    if (flops[i] < 0) continue; /* a step of other ranks */
    run[i] = g_new0(MsStepRun, 1);
    *run[i] = (MsStepRun){
        .ranks = 1, .step_cpu_s = 1, .reference_flops = flops[i], .rows = g_array_new(FALSE, FALSE, sizeof(MsRunRow))};
  }
  return TRUE;
}

static void neighbours_lend_their_references(void **state) {
  (void)state;
  enum { N = 8 };
  double flops[N] = {98e9, 60e9, 99e9, 97e9, -1, 70e9, 0, 80e9}, want[N] = {98e9, 99e9, 99e9, 99e9, 0, 70e9, 0, 80e9};
  int n;
  const MsLocalStep *steps = ms_local_check_steps(&n);
  assert_true(n >= N);
  g_autoptr(MsSurveyed) survey = ms_survey(steps, N, 1, pass_of_references, flops, NULL, NULL, NULL);
  for (int i = 0; i < N; i++) assert_close(survey->step[i].step_flops, want[i], 0);
}

static void what_fails_is_said(void **state) {
  (void)state;
  int n;
  const MsLocalStep *steps = ms_local_check_steps(&n);
  Paper paper = {.rand = g_rand_new_with_seed(5), .fails = TRUE};
  g_autoptr(MsSurveyed) survey = ms_survey(steps, 3, 2, pass_on_paper, &paper, NULL, NULL, NULL);
  assert_string_equal(survey->step[1].why, "no");
  assert_int_equal(survey->step[1].runs, 0);
  assert_int_equal(survey->step[2].runs, 2);
  paper.broken = g_error_new(MS_ERROR, MS_ERROR_ENV, "no library");
  g_autoptr(GError) error = NULL;
  assert_null(ms_survey(steps, 3, 2, pass_on_paper, &paper, NULL, NULL, &error));
  assert_string_equal(error->message, "no library");
  g_error_free(paper.broken);
  g_rand_free(paper.rand);
}

/* --- steps ----------------------------------------------------------------------------------------------------- */
static void steps_are_scenarios(void **state) {
  (void)state;
  int n, one = 0, several = 0;
  const MsLocalStep *check = ms_local_check_steps(&n);
  g_autofree MsLocalStep *calibration = ms_local_calibration_steps(40);
  g_autofree char *hardware = ms_local_bare_profile(&machine);
  for (int i = 0; i < n + 40; i++) {
    const MsLocalStep *step = i < n ? &check[i] : &calibration[i - n];
    g_autoptr(GError) error = NULL;
    g_autoptr(MsScenario) s = ms_local_scenario(step, hardware, &error);
    if (!s) fail_msg("%s", error->message);
    assert_int_equal(s->cluster.expected, ms_local_ranks(step) > 1); /* they wait for one another */
    g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, &error);
    if (!layout) fail_msg("%s", error->message);
    assert_int_equal(layout->world, ms_local_ranks(step));
    if (i < n) *(ms_local_ranks(step) > 1 ? &several : &one) += 1;
    for (int j = 0; j < n && i >= n; j++) /* what checks was not measured */
      assert_false(step->hidden == check[j].hidden && step->seq == check[j].seq && step->ffn == check[j].ffn);
  }
  assert_true(one >= 12 && several >= 8);
}

static void texts_come_back(void **state) {
  (void)state;
  int n;
  g_autoptr(MsSurveyed) survey = survey_of(ms_local_check_steps(&n), 5, 1, 0.1);
  const MsMeasuredStep *m = &survey->step[4];
  MsStepRun run = {.ranks = 2,
                   .step_s = 0.25,
                   .step_cpu_s = 0.24,
                   .quiet = TRUE,
                   .reference_flops = 1e11,
                   .kept_B = m->kept_B,
                   .rows = m->rows};
  g_autofree char *text = ms_step_run_text(&run);
  g_autoptr(GError) error = NULL;
  g_autoptr(MsStepRun) again = ms_step_run_parse(text, "here", &error);
  assert_non_null(again);
  g_autofree char *second = ms_step_run_text(again);
  assert_string_equal(text, second);
  assert_int_equal(again->rows->len, m->rows->len);
  static const char *const bad[] = {"", "step", "step 2 1 1 1 1 1\nrow 1 2\n",
                                    "step 2 1 1 1 1 1\nrow 200 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 x\n"};
  for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) why = NULL;
    assert_null(ms_step_run_parse(bad[i], "here", &why));
    assert_true(g_error_matches(why, MS_ERROR, MS_ERROR_INPUT));
  }
}

static void messages_come_back(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autoptr(GArray) samples =
      ms_messages_parse("op,num_gpus,bytes,latency_us\nall_gather,2,1024,3.5\np2p,2,64,0.5\n", "here", &error);
  assert_non_null(samples);
  assert_int_equal(samples->len, 4); /* each as FP32 and as BF16 */
  g_autofree char *text = ms_messages_text(samples);
  assert_string_equal(text, "op,num_gpus,bytes,latency_us,reference_flops\nall_gather,2,1024,3.5,0\np2p,2,64,0.5,0\n");
  const MsRowSample *s = &g_array_index(samples, MsRowSample, 0);
  assert_int_equal(s->op.dtype, MS_ODT_BF16);
  assert_close(s->op.message_B, 512, 0);
  assert_close(s->time_s, 3.5e-6, 1e-12);
  assert_null(ms_messages_parse("op,num_gpus,bytes,latency_us\nbroadcast,2,1024,3.5\n", "here", &error));
  assert_string_equal(error->message,
                      "here:2: op: must be one of all_gather, reduce_scatter, all_reduce, alltoall, p2p");
}

/* --- the whole ------------------------------------------------------------------------------------------------- */
static void the_profile_predicts_the_machine(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  int n;
  const MsLocalStep *check = ms_local_check_steps(&n);
  g_autofree MsLocalStep *steps = ms_local_calibration_steps(24);
  g_autoptr(MsSurveyed) survey = survey_of(steps, 24, 5, 0.05), held = survey_of(check, n, 5, 0.05);
  g_autoptr(MsLocalProfile) profile = profile_of(survey);
  assert_non_null(strstr(profile->text, "\"kernel_jitter\": 0.05,"));
  assert_non_null(strstr(profile->text, "\"clock_spread\": 0,"));
  for (guint i = 0; i < profile->distrust->len; i++) fail_msg("%s", (char *)profile->distrust->pdata[i]);
  g_autofree char *file = g_build_filename(folder, "paper.json", NULL);
  assert_true(g_file_set_contents(file, profile->text, -1, NULL));
  g_autoptr(GError) error = NULL;
  g_autoptr(MsHardware) hardware = ms_hardware_load(file, &error);
  if (!hardware) fail_msg("%s", error->message);
  assert_true(hardware->serial && hardware->kernel_launch_s == 0 && hardware->num_curves > 20);
  for (int i = 0; i < hardware->num_curves; i++) {
    assert_non_null(hardware->curves[i].provenance.data);
    assert_string_equal(hardware->curves[i].provenance.command, "moesim calibrate");
  }
  MsLocalCheck *compared = ms_local_compare(file, held, NULL, &error);
  if (!compared) fail_msg("%s", error->message);
  for (int i = 0; i < compared->n; i++)
    if (compared->step[i].why) fail_msg("%s: %s", compared->step[i].step->name, compared->step[i].why);
  print_message("steps %.2f %%, %.2f %%; GEMM %.2f %%; all rows %.2f %%\n", 100 * compared->one.median,
                100 * compared->one.p90, 100 * compared->gemm.median, 100 * compared->all_ops.median);
  assert_true(compared->one.n >= 12);
  assert_true(compared->one.median < 0.02 && compared->one.p90 < 0.04);
  assert_true(compared->gemm.median < 0.02 && compared->all_ops.median < 0.03);
  assert_close(compared->speed, 1, 1e-12);
  assert_true(ms_local_check_met(compared));
  compared->one.median = 0.06;
  assert_false(ms_local_check_met(compared));
  assert_true(ms_local_check_write(compared, file, folder, "2026-11-21", &error));
  g_autofree char *written = g_build_filename(folder, "dense-gqa-384.json", NULL);
  g_autoptr(MsScenario) again = ms_scenario_load(written, &error);
  if (!again) fail_msg("%s", error->message);
  assert_close(again->measured.step_time_s, compared->step[0].measured_s, 1e-12);
  ms_local_check_free(compared);
}

/* A host that swings by 10 % while it is calibrated, and runs at 0.9 of that, swinging again, while it is checked. */
static MsLocalCheck *check_after_drift(const char *file, double skew) {
  int n;
  const MsLocalStep *check = ms_local_check_steps(&n);
  g_autofree MsLocalStep *steps = ms_local_calibration_steps(24);
  Paper then = {.noise = 0.03, .drift = 0.1, .skew = skew},
        now = {.noise = 0.03, .drift = 0.1, .speed = 0.9, .skew = skew};
  g_autoptr(MsSurveyed) survey = survey_on(then, steps, 24, 5), held = survey_on(now, check, n, 5);
  g_autoptr(MsLocalProfile) profile = profile_of(survey);
  assert_close(profile->reference_flops, 1.1 * REFERENCE_FLOPS, 0.01);
  assert_true(profile->slowest_flops > REFERENCE_FLOPS && profile->slowest_flops < profile->reference_flops);
  g_autoptr(GError) error = NULL;
  assert_true(g_file_set_contents(file, profile->text, -1, NULL));
  MsLocalCheck *compared = ms_local_compare(file, held, NULL, &error);
  if (!compared) fail_msg("%s", error->message);
  return compared;
}

static void a_host_that_drifts(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *file = g_build_filename(folder, "drift.json", NULL);
  g_autoptr(MsLocalCheck) all = check_after_drift(file, 1), partly = check_after_drift(file, 0.5);
  print_message("steps %.2f %%, %.2f %%, plain %.2f %%, %.2f %%; partly %.2f %%, %.2f %%\n", 100 * all->one.median,
                100 * all->one.p90, 100 * all->one_plain.median, 100 * all->one_plain.p90, 100 * partly->one.median,
                100 * partly->one.p90);
  assert_true(all->speed > 0.82 && all->speed < 0.91); /* the fastest moments of both: 0.9 */
  assert_true(all->least_speed < all->speed && all->speed < all->most_speed);
  assert_true(all->one.median < 0.02 && all->one.p90 < 0.04 && all->all_ops.median < 0.03);
  assert_true(all->one_plain.median > 0.08 &&
              all->one_plain.bias < -0.08);                         /* the profile alone is that much too fast */
  assert_true(partly->one.median < 0.03 && partly->one.p90 < 0.06); /* where products are most of a step */
}

static void an_old_profile_has_no_speed(void **state) {
  (void)state;
  int n;
  const MsLocalStep *check = ms_local_check_steps(&n);
  g_autofree char *file = g_build_filename(folder, "old.json", NULL), *text = ms_local_bare_profile(&machine);
  g_autoptr(MsSurveyed) held = survey_of(check, 2, 2, 0);
  g_autoptr(GError) error = NULL;
  assert_true(g_file_set_contents(file, text, -1, NULL));
  g_autoptr(MsLocalCheck) c = ms_local_compare(file, held, NULL, &error);
  if (!c) fail_msg("%s", error->message);
  assert_true(isnan(c->speed) && isnan(c->step[0].speed) && c->one.n == 2);
  assert_close(c->one.median, c->one_plain.median, 0);
}

static void bad_fits_are_named(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree MsLocalStep *steps = ms_local_calibration_steps(16);
  g_autoptr(MsSurveyed) noisy = survey_of(steps, 16, 2, 8);
  g_autoptr(MsLocalProfile) profile = profile_of(noisy);
  assert_true(profile->distrust->len >= 2);
  assert_true(g_str_has_prefix(profile->distrust->pdata[0], "the machine is too busy"));
  gboolean named = FALSE;
  for (guint i = 1; i < profile->distrust->len; i++)
    named |= strstr(profile->distrust->pdata[i], "shapes held back are off by") != NULL;
  assert_true(named);
}

static void tables_are_readable(void **state) {
  (void)state;
  g_autofree MsLocalStep *steps = ms_local_calibration_steps(6);
  g_autoptr(MsSurveyed) survey = survey_of(steps, 6, 1, 0);
  g_autoptr(GError) error = NULL;
  assert_true(ms_survey_write_csv(survey, folder, &error));
  static const char *const tables[] = {"cpu-train-gemm.csv", "cpu-grouped-gemm.csv"};
  for (guint i = 0; i < G_N_ELEMENTS(tables); i++) {
    g_autofree char *file = g_build_filename(folder, tables[i], NULL), *note = NULL;
    g_autoptr(GPtrArray) series = g_ptr_array_new_with_free_func((GDestroyNotify)ms_series_free);
    assert_true(ms_measure_read(file, (const char *const[]){"local", NULL}, series, &note, &error));
    assert_null(note);
    assert_int_equal(series->len, i == 0 ? 3 : 0 + 3); /* forward, dgrad, wgrad */
  }
}

static int setup(void **state) {
  (void)state;
  folder = g_dir_make_tmp("moesim-local-XXXXXX", NULL);
  return folder ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  GDir *dir = g_dir_open(folder, 0, NULL);
  for (const char *name; (name = g_dir_read_name(dir));) {
    g_autofree char *file = g_build_filename(folder, name, NULL);
    g_remove(file);
  }
  g_dir_close(dir);
  g_rmdir(folder);
  g_free(folder);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_least_of_the_passes),
                                     cmocka_unit_test(the_filter),
                                     cmocka_unit_test(quiet_runs_count_first),
                                     cmocka_unit_test(a_disturbed_reference),
                                     cmocka_unit_test(neighbours_lend_their_references),
                                     cmocka_unit_test(what_fails_is_said),
                                     cmocka_unit_test(steps_are_scenarios),
                                     cmocka_unit_test(texts_come_back),
                                     cmocka_unit_test(messages_come_back),
                                     cmocka_unit_test(the_profile_predicts_the_machine),
                                     cmocka_unit_test(a_host_that_drifts),
                                     cmocka_unit_test(an_old_profile_has_no_speed),
                                     cmocka_unit_test(bad_fits_are_named),
                                     cmocka_unit_test(tables_are_readable)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
