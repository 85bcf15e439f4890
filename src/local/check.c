#include "local/check.h"

#include <math.h>

#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/order.h"
#include "base/stats.h"
#include "layout/layout.h"
#include "local/machine.h"
#include "sim/simulate.h"

typedef struct {
  double predicted_s, measured_s, calls;
  int kind;
  const char *pass;
} Row;

typedef struct {
  MsLocalCheck *check;
  char *hardware;         /* quoted path of the profile */
  double reference_flops; /* of the profile; NaN */
  GArray *rows;           /* Row, of steps of one rank */
} Work;

static MsErrors errors_of(const GArray *signed_errors) {
  MsErrors e = {NAN, NAN, NAN, signed_errors->len};
  g_autofree double *x = g_new(double, signed_errors->len + 1);
  for (guint i = 0; i < e.n; i++) x[i] = g_array_index(signed_errors, double, i);
  e.bias = ms_quantile(x, e.n, 0.5);
  for (guint i = 0; i < e.n; i++) x[i] = fabs(x[i]);
  e.median = ms_quantile(x, e.n, 0.5), e.p90 = ms_quantile(x, e.n, 0.9);
  return e;
}

/* Of the host beside a measurement, over that which the profile is of. */
static double speed_of(const Work *w, double flops) {
  return flops > 0 && w->reference_flops > 0 ? flops / w->reference_flops : NAN;
}

static double at_speed(double time_s, double speed) { return speed > 0 ? time_s / speed : time_s; }

/* --- one step -------------------------------------------------------------------------------------------------- */
static gboolean predict(Work *w, MsCheckedStep *to, const MsMeasuredStep *m, GError **error) {
  g_autoptr(MsScenario) s = ms_local_scenario(to->step, w->hardware, error);
  g_autoptr(MsResult) r = s ? ms_simulate(s, MS_FIDELITY_FULL, NULL, error) : NULL;
  if (!r) return FALSE;
  to->predicted_s = at_speed(r->step_time_s, to->speed);
  for (int i = 0; i < r->stages; i++)
    to->predicted_kept_B = MAX(to->predicted_kept_B, r->memory->stage[i].activations_B);
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, error);
  g_autoptr(MsCost) cost = layout ? ms_cost_new(s, layout, error) : NULL;
  if (!cost) return FALSE;
  for (guint i = 0; m->rows && i < m->rows->len; i++) {
    const MsRunRow *run = &g_array_index(m->rows, MsRunRow, i);
    to->rows_s += run->calls * run->cpu_s;
    if (ms_local_ranks(to->step) > 1 || ms_op_families[run->op.kind] >= MS_FAMILY_COMM || run->cpu_s <= 0) continue;
    double speed = speed_of(w, g_array_index(m->row_flops, double, i));
    Row row = {at_speed(ms_cost_op(cost, &run->op).time_s, speed), run->cpu_s, run->calls, run->op.kind,
               ms_pass_words[run->op.pass]};
    g_array_append_val(w->rows, row);
  }
  return TRUE;
}

static void add_step(Work *w, const MsMeasuredStep *m) {
  MsCheckedStep *to = &w->check->step[w->check->n++];
  GError *cause = NULL;
  to->step = m->step, to->why = g_strdup(m->why);
  to->disturbed = m->runs > 0 && m->quiet_runs == 0;
  to->speed = speed_of(w, m->step_flops);
  to->measured_s = m->step_s, to->measured_kept_B = m->kept_B;
  if (to->why || m->runs == 0) return;
  if (!predict(w, to, m, &cause)) to->why = g_strdup(cause->message);
  g_clear_error(&cause);
}

/* --- over all -------------------------------------------------------------------------------------------------- */
/* `plain`: by the profile alone. */
static MsErrors step_errors(const MsLocalCheck *check, gboolean several, gboolean plain) {
  g_autoptr(GArray) error = g_array_new(FALSE, FALSE, sizeof(double));
  for (int i = 0; i < check->n; i++) {
    const MsCheckedStep *s = &check->step[i];
    if (s->why || !(s->predicted_s > 0) || (ms_local_ranks(s->step) > 1) != several) continue;
    double by_profile_s = s->speed > 0 ? s->predicted_s * s->speed : s->predicted_s;
    g_array_append_vals(error, &(double){(plain ? by_profile_s : s->predicted_s) / s->measured_s - 1}, 1);
  }
  return errors_of(error);
}

/* kind < 0: all; pass NULL: any. */
static MsCheckedOp op_errors(const GArray *rows, int kind, const char *pass) {
  g_autoptr(GArray) error = g_array_new(FALSE, FALSE, sizeof(double));
  double own = 0, all = 0;
  for (guint i = 0; i < rows->len; i++) {
    const Row *r = &g_array_index(rows, Row, i);
    all += r->calls * r->measured_s;
    if ((kind >= 0 && r->kind != kind) || (pass && r->pass != pass)) continue;
    own += r->calls * r->measured_s;
    g_array_append_vals(error, &(double){r->predicted_s / r->measured_s - 1}, 1);
  }
  return (MsCheckedOp){kind < 0 ? "all" : ms_op_words[kind], pass, errors_of(error), all > 0 ? own / all : 0};
}

static double weighted(const GArray *rows, int kind) {
  double off = 0, all = 0;
  for (guint i = 0; i < rows->len; i++) {
    const Row *r = &g_array_index(rows, Row, i);
    if (kind < 0 || r->kind == kind)
      off += r->calls * fabs(r->predicted_s - r->measured_s), all += r->calls * r->measured_s;
  }
  return all > 0 ? off / all : NAN;
}

MS_ORDER(by_share, MsCheckedOp, MS_MORE(x->share, y->share), 0)

static void find_speed(MsLocalCheck *check) {
  g_autofree double *x = g_new(double, check->n + 1);
  guint n = 0;
  for (int i = 0; i < check->n; i++)
    if (!check->step[i].why && check->step[i].speed > 0) x[n++] = check->step[i].speed;
  check->speed = ms_quantile(x, n, 0.5), check->least_speed = ms_quantile(x, n, 0),
  check->most_speed = ms_quantile(x, n, 1);
}

static void sum_up(Work *w) {
  MsLocalCheck *check = w->check;
  check->one = step_errors(check, FALSE, FALSE), check->several = step_errors(check, TRUE, FALSE);
  check->one_plain = step_errors(check, FALSE, TRUE), check->several_plain = step_errors(check, TRUE, TRUE);
  find_speed(check);
  check->gemm = op_errors(w->rows, MS_OP_GEMM, NULL).error, check->all_ops = op_errors(w->rows, -1, NULL).error;
  check->gemm_weighted = weighted(w->rows, MS_OP_GEMM), check->all_weighted = weighted(w->rows, -1);
  for (int kind = 0; kind < MS_N_OPS; kind++)
    for (int pass = 0; pass < MS_N_PASSES; pass++) {
      MsCheckedOp op = op_errors(w->rows, kind, ms_pass_words[pass]);
      if (op.error.n > 0) g_array_append_val(check->ops, op);
    }
  if (check->ops->len > 0) qsort(check->ops->data, check->ops->len, sizeof(MsCheckedOp), by_share);
}

/* A file as other files may mention it from anywhere. */
static char *absolute(const char *file) {
  g_autofree char *full =
      strchr(file, '/') || g_file_test(file, G_FILE_TEST_EXISTS) ? g_canonicalize_filename(file, NULL) : g_strdup(file);
  return ms_json_quoted(full);
}

MsLocalCheck *ms_local_compare(const char *hardware, const MsSurveyed *one, const MsSurveyed *several, GError **error) {
  g_autoptr(MsHardware) known = ms_hardware_load(hardware, error); /* a bad file is said once */
  if (!known) return NULL;
  MsLocalCheck *check = g_new0(MsLocalCheck, 1);
  check->step = g_new0(MsCheckedStep, one->n + (several ? several->n : 0) + 1);
  check->ops = g_array_new(FALSE, FALSE, sizeof(MsCheckedOp));
  g_autofree char *path = absolute(hardware);
  Work w = {check, path, known->reference_flops, g_array_new(FALSE, FALSE, sizeof(Row))};
  for (int i = 0; i < one->n; i++)
    if (ms_local_ranks(one->step[i].step) == 1) add_step(&w, &one->step[i]);
  for (int i = 0; several && i < several->n; i++)
    if (ms_local_ranks(several->step[i].step) > 1) add_step(&w, &several->step[i]);
  sum_up(&w);
  g_array_unref(w.rows);
  check->row_repeat = ms_survey_row_repeat(one), check->one_repeat = ms_survey_step_repeat(one, FALSE);
  check->several_repeat = several ? ms_survey_step_repeat(several, TRUE) : (MsRepeat){NAN, NAN, 0};
  return check;
}

/* Steps of several ranks first: their processes choose cores of their own, before this one is bound to one. */
MsLocalCheck *ms_local_check(const char *hardware, const char *blas, int passes, MsTick tick, gpointer tick_data,
                             GError **error) {
  int n;
  const MsLocalStep *steps = ms_local_check_steps(&n);
  const char *no_ranks = NULL;
  g_autofree char *path = absolute(hardware);
  MsPassData data = {path, blas, NULL};
  g_autoptr(MsHardware) known = ms_hardware_load(hardware, error);
  g_autoptr(MsSurveyed) several = NULL;
  if (!known) return NULL;
  if (ms_job_possible(&no_ranks) &&
      !(several = ms_survey(steps, n, passes, ms_pass_ranks, &data, tick, tick_data, error)))
    return NULL;
  MsPin pin = ms_machine_pin();
  g_autoptr(MsSurveyed) one = ms_survey(steps, n, passes, ms_pass_here, &data, tick, tick_data, error);
  ms_machine_unpin(&pin);
  if (!one) return NULL;
  MsLocalCheck *check = ms_local_compare(hardware, one, several, error);
  if (!check) return NULL;
  check->no_ranks = no_ranks;
  check->interrupted = one->interrupted || (several && several->interrupted);
  return check;
}

double ms_local_check_ticks(int passes) {
  int n;
  ms_local_check_steps(&n);
  return (double)n * passes;
}

static gboolean within(const MsErrors *e, double median, double p90) {
  return e->n == 0 || (e->median <= median && e->p90 <= p90);
}

gboolean ms_local_check_met(const MsLocalCheck *c) {
  return c->one.n > 0 && within(&c->one, MS_CHECK_ONE_MEDIAN, MS_CHECK_ONE_P90) &&
         within(&c->several, MS_CHECK_RANKS_MEDIAN, MS_CHECK_RANKS_P90) &&
         within(&c->gemm, MS_CHECK_GEMM_MEDIAN, HUGE_VAL) && within(&c->all_ops, MS_CHECK_OPS_MEDIAN, HUGE_VAL);
}

void ms_local_check_free(MsLocalCheck *check) {
  if (!check) return;
  for (int i = 0; i < check->n; i++) g_free(check->step[i].why);
  g_array_unref(check->ops);
  g_free(check->step);
  g_free(check);
}

/* --- as published runs ----------------------------------------------------------------------------------------- */
gboolean ms_local_check_write(const MsLocalCheck *check, const char *hardware, const char *folder, const char *date,
                              GError **error) {
  g_autofree char *path = absolute(hardware);
  if (!ms_make_folder(folder, error)) return FALSE;
  for (int i = 0; i < check->n; i++) {
    const MsCheckedStep *s = &check->step[i];
    char time[32], kept[32];
    if (s->why || !(s->measured_s > 0) || !isfinite(s->measured_s)) continue;
    double speed = s->speed > 0 ? s->speed : 1;
    g_autofree char *measured = g_strdup_printf(
        "{\"step_time_s\": %s, \"time_from\": \"published\", \"activation_memory_GiB\": %s, \"flops_convention\": "
        "\"causal-half\", "
        "\"source\": \"moesim calibrate --check, %s; measured at %.4g of the speed that the profile is of, brought to "
        "it\", \"config_confidence\": \"exact\", \"weight\": 1}",
        ms_double_text(s->measured_s * speed, time), ms_double_text(s->measured_kept_B / 1073741824, kept), date,
        speed);
    g_autofree char *text = ms_local_scenario_text(s->step, path, measured),
                    *base = g_strconcat(s->step->name, ".json", NULL), *file = g_build_filename(folder, base, NULL);
    if (!ms_write_file(file, text, -1, error)) return FALSE;
  }
  return TRUE;
}
