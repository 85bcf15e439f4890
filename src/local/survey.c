#include "local/survey.h"

#include <math.h>
#include <string.h>

#include "base/stats.h"
#include "calib/rows.h"

/* The least and the second least of times, each with the reference beside it. */
typedef struct {
  double *s, *next_s, *flops;
} Kept;

static double at(double s, double flops) { return flops > 0 ? s * flops : s; }

/* The least is chosen by time alone: noise lengthens a step and lowers a reference, so that the least product of both
 * would be that of a disturbed reference. `next_s` is at the speed of the least. */
static void keep_two(double s, double flops, const Kept *k) {
  if (s < *k->s) {
    *k->next_s = at(*k->s, *k->flops) / at(1, flops);
    *k->s = s, *k->flops = flops;
  } else *k->next_s = MIN(*k->next_s, at(s, flops) / at(1, *k->flops));
}

static gboolean same_rows(const GArray *a, const GArray *b) {
  if (a->len != b->len) return FALSE;
  for (guint i = 0; i < a->len; i++) {
    const MsOp *p = &g_array_index(a, MsRunRow, i).op, *q = &g_array_index(b, MsRunRow, i).op;
    if (p->kind != q->kind || p->pass != q->pass || p->m != q->m || p->n != q->n || p->k != q->k) return FALSE;
  }
  return TRUE;
}

static void merge_rows(MsMeasuredStep *m, MsStepRun *run) {
  if (!m->rows) {
    m->rows = g_steal_pointer(&run->rows);
    m->row_next_s = g_array_sized_new(FALSE, FALSE, sizeof(double), m->rows->len);
    m->row_flops = g_array_sized_new(FALSE, FALSE, sizeof(double), m->rows->len);
    for (guint i = 0; i < m->rows->len; i++) {
      g_array_append_vals(m->row_next_s, &(double){HUGE_VAL}, 1);
      g_array_append_val(m->row_flops, run->reference_flops);
    }
    return;
  }
  if (!same_rows(m->rows, run->rows)) return; /* cannot be: the same scenario */
  for (guint i = 0; i < m->rows->len; i++) {
    MsRunRow *to = &g_array_index(m->rows, MsRunRow, i), *from = &g_array_index(run->rows, MsRunRow, i);
    Kept kept = {&to->cpu_s, &g_array_index(m->row_next_s, double, i), &g_array_index(m->row_flops, double, i)};
    keep_two(from->cpu_s, run->reference_flops, &kept);
    to->wall_s = MIN(to->wall_s, from->wall_s);
  }
}

/* Quiet runs count before all others, of which the CPU time counts: a rank that waits polls, so that on cores of its
 * own it is the wall time. */
static void merge(MsMeasuredStep *m, MsStepRun *run) {
  double s = run->ranks == 1 || !run->quiet ? run->step_cpu_s : run->step_s;
  gboolean quiet = run->ranks == 1 || run->quiet;
  if (quiet && m->quiet_runs == 0) m->step_s = m->next_s = HUGE_VAL;
  if (quiet || m->quiet_runs == 0) keep_two(s, run->reference_flops, &(Kept){&m->step_s, &m->next_s, &m->step_flops});
  m->quiet_runs += quiet, m->runs++;
  m->kept_B = MAX(m->kept_B, run->kept_B);
  merge_rows(m, run);
}

/* A reference takes milliseconds, a run of a step a second: what disturbs it for a moment says nothing of the step, and
 * can only lower it. So the speed beside a run is the best that it or the runs before and after it in the pass saw. */
static void lend_references(MsStepRun *const *run, int n) {
  g_autofree double *own = g_new(double, MAX(n, 1));
  for (int i = 0; i < n; i++) own[i] = run[i] ? run[i]->reference_flops : 0;
  for (int i = 0; i < n; i++)
    for (int j = MAX(i - 1, 0); run[i] && own[i] > 0 && j <= MIN(i + 1, n - 1); j++)
      run[i]->reference_flops = MAX(run[i]->reference_flops, own[j]);
}

MsSurveyed *ms_survey(const MsLocalStep *step, int n, int passes, MsPassFunc pass, gpointer data, MsTick tick,
                      gpointer tick_data, GError **error) {
  g_autoptr(MsSurveyed) survey = g_new0(MsSurveyed, 1);
  survey->n = n, survey->step = g_new0(MsMeasuredStep, MAX(n, 1));
  for (int i = 0; i < n; i++)
    survey->step[i] = (MsMeasuredStep){.step = &step[i], .step_s = HUGE_VAL, .next_s = HUGE_VAL};
  g_autofree MsStepRun **run = g_new0(MsStepRun *, MAX(n, 1));
  g_autofree char **why = g_new0(char *, MAX(n, 1));
  for (; survey->passes < passes && !survey->interrupted; survey->passes++) {
    GError *cause = NULL;
    gboolean ok = pass(step, n, run, why, tick, tick_data, data, &cause);
    lend_references(run, n);
    for (int i = 0; i < n; i++) {
      MsMeasuredStep *m = &survey->step[i];
      if (run[i]) merge(m, run[i]);
      if (why[i] && !m->why) m->why = g_steal_pointer(&why[i]);
      g_clear_pointer(&run[i], ms_step_run_free);
      g_clear_pointer(&why[i], g_free);
    }
    if (cause) {
      g_propagate_error(error, cause);
      return NULL;
    }
    survey->interrupted = !ok || ms_interrupted();
  }
  return g_steal_pointer(&survey);
}

void ms_surveyed_free(MsSurveyed *survey) {
  if (!survey) return;
  for (int i = 0; i < survey->n; i++) {
    MsMeasuredStep *m = &survey->step[i];
    if (m->rows) g_array_unref(m->rows), g_array_unref(m->row_next_s), g_array_unref(m->row_flops);
    g_free(m->why);
  }
  g_free(survey->step);
  g_free(survey);
}

/* --- what was measured ----------------------------------------------------------------------------------------- */
static gboolean computes(const MsRunRow *row) { return ms_op_families[row->op.kind] < MS_FAMILY_COMM; }

static MsRepeat repeat_of(GArray *ratio) {
  double *x = (double *)(void *)ratio->data;
  MsRepeat r = {ms_quantile(x, ratio->len, 0.5), ms_quantile(x, ratio->len, 0.9), ratio->len};
  g_array_unref(ratio);
  return r;
}

MsRepeat ms_survey_row_repeat(const MsSurveyed *survey) {
  GArray *ratio = g_array_new(FALSE, FALSE, sizeof(double));
  for (int i = 0; i < survey->n; i++) {
    const MsMeasuredStep *m = &survey->step[i];
    for (guint j = 0; m->rows && m->runs > 1 && j < m->rows->len; j++) {
      const MsRunRow *row = &g_array_index(m->rows, MsRunRow, j);
      double r = fabs(g_array_index(m->row_next_s, double, j) / row->cpu_s - 1);
      if (computes(row) && isfinite(r)) g_array_append_val(ratio, r);
    }
  }
  return repeat_of(ratio);
}

MsRepeat ms_survey_step_repeat(const MsSurveyed *survey, gboolean several_ranks) {
  GArray *ratio = g_array_new(FALSE, FALSE, sizeof(double));
  for (int i = 0; i < survey->n; i++) {
    const MsMeasuredStep *m = &survey->step[i];
    double r = fabs(m->next_s / m->step_s - 1);
    if (isfinite(r) && (ms_local_ranks(m->step) > 1) == several_ranks) g_array_append_val(ratio, r);
  }
  return repeat_of(ratio);
}

void ms_survey_samples(const MsSurveyed *survey, GArray *samples) {
  for (int i = 0; i < survey->n; i++) {
    const MsMeasuredStep *m = &survey->step[i];
    for (guint j = 0; m->rows && j < m->rows->len; j++) {
      const MsRunRow *row = &g_array_index(m->rows, MsRunRow, j);
      MsRowSample s = {.op = row->op,
                       .time_s = row->cpu_s,
                       .share = row->calls * row->cpu_s,
                       .reference_flops = g_array_index(m->row_flops, double, j)};
      if (computes(row) && row->cpu_s > 0) g_array_append_val(samples, s);
    }
  }
}

/* --- tables ---------------------------------------------------------------------------------------------------- */
static const char *role_of(const MsOp *op) {
  return op->pass == MS_PASS_WGRAD ? "wgrad" : op->pass == MS_PASS_DGRAD ? "dgrad" : "fwd";
}

static void put_row(GString *gemm, GString *grouped, GString *all, const MsLocalStep *step, const MsRunRow *row,
                    double flops) {
  const MsOp *op = &row->op;
  double us = row->cpu_s * 1e6;
  gboolean wgrad = op->pass == MS_PASS_WGRAD;
  if (op->kind == MS_OP_GEMM && op->groups <= 1)
    g_string_append_printf(gemm, "%s,%.0f,%.0f,%.0f,%.6g,%.6g\n", role_of(op), op->m, op->n, op->k, us, flops);
  if (op->kind == MS_OP_GROUPED_GEMM && op->groups > 0) /* rows per group, then the weight as forward has it */
    g_string_append_printf(grouped, "%s,%d,%.0f,%.0f,%.0f,fp32,%.6g,%.6g\n", role_of(op), op->groups,
                           (wgrad ? op->k : op->m) / op->groups, wgrad ? op->m : op->n, wgrad ? op->n : op->k, us,
                           flops);
  g_string_append_printf(all, "%s,%s,%s,%s,%.0f,%.0f,%.0f,%d,%d,%.0f,%.0f,%.0f,%.6g,%.6g,%.6g\n", step->name,
                         ms_op_words[op->kind], op->name, ms_pass_words[op->pass], op->m, op->n, op->k, op->groups,
                         op->kv_groups, op->flop, op->read_B + op->write_B, row->calls, us, row->wall_s * 1e6, flops);
}

static gboolean write_table(const char *folder, const char *name, const GString *text, GError **error) {
  g_autofree char *file = g_build_filename(folder, name, NULL);
  return ms_write_file(file, text->str, (gssize)text->len, error);
}

gboolean ms_survey_write_csv(const MsSurveyed *survey, const char *folder, GError **error) {
  g_autoptr(GString) gemm = g_string_new("role,m,n,k,latency_us,reference_flops\n"),
                     grouped = g_string_new("role,groups,m_per_group,n,k,main_grad_dtype,latency_us,reference_flops\n"),
                     all = g_string_new("step,op,name,pass,m,n,k,groups,kv_groups,flop,bytes,calls,cpu_us,wall_us,"
                                        "reference_flops\n");
  for (int i = 0; i < survey->n; i++) {
    const MsMeasuredStep *m = &survey->step[i];
    for (guint j = 0; m->rows && j < m->rows->len; j++) {
      const MsRunRow *row = &g_array_index(m->rows, MsRunRow, j);
      if (computes(row)) put_row(gemm, grouped, all, m->step, row, g_array_index(m->row_flops, double, j));
    }
  }
  return write_table(folder, "cpu-train-gemm.csv", gemm, error) &&
         write_table(folder, "cpu-grouped-gemm.csv", grouped, error) && write_table(folder, "cpu-rows.csv", all, error);
}
