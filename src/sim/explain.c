/* src/sim/explain.c - why the step is longer than its model FLOP at peak. */
#include "sim/explain.h"

#include "base/units.h"
#include "cost/curve.h"

#include <math.h>
#include <string.h>

enum { TOP_MEMORY = 4 }; /* kinds of memory-bound kernels that have a part of their own */

typedef struct {
  const MsProgram *p;
  gboolean chunks;           /* step rows count as optimizer whatever their pass (fast, bound) */
  double own_peak[MS_N_ODT]; /* FLOP/s of each type on the machine of the stage */
  double peak;               /* FLOP/s of the run's precision on it */
  double mean_peak, even_s;  /* the mean over stages; what useful_s and beside_s would be at it */
  double useful_s; /* executed FLOP at that peak, no recomputation; and of rows that run beside the compute stream: */
  double beside_s;
  double wider_s;     /* rows in a wider type: at their own peak instead */
  double beyond_s[3]; /* GEMM, grouped GEMM, attention: beyond their FLOP at peak */
  double recompute_s, quantise_s;
  double memory_s[MS_N_OPS];
} Explain;

/* --- rows ------------------------------------------------------------------------------------------------------ */
static void matrix_row(Explain *x, const MsOp *op, double time_s, double times) {
  double at_peak = times * op->flop / x->peak, at_own = times * op->flop / x->own_peak[op->dtype];
  x->useful_s += at_peak, x->even_s += times * op->flop / x->mean_peak;
  x->wider_s += at_own - at_peak;
  x->beyond_s[ms_op_families[op->kind]] += time_s - at_own;
}

static void row(Explain *x, const MsOp *op, double alone_s, double times) {
  MsOpFamily family = ms_op_families[op->kind];
  gboolean matrix = family <= MS_FAMILY_ATTENTION;
  double time_s = times * alone_s;
  if (op->stream != MS_STREAM_COMPUTE) {
    if (!matrix || op->pass == MS_PASS_RECOMPUTE) return;
    x->beside_s += times * op->flop / x->peak, x->even_s += times * op->flop / x->mean_peak;
  } else if (op->pass == MS_PASS_RECOMPUTE) {
    x->recompute_s += time_s;
  } else if (matrix) {
    matrix_row(x, op, time_s, times);
  } else if (op->kind == MS_OP_QUANTIZE || op->kind == MS_OP_AMAX || op->kind == MS_OP_TRANSPOSE) {
    x->quantise_s += time_s;
  } else if (family == MS_FAMILY_MEMORY) {
    x->memory_s[op->kind] += time_s;
  }
}

static void list_rows(Explain *x, const MsCosted *c, double times) {
  for (int i = 0; i < c->list->n; i++) row(x, &c->list->op[i], (double)c->duration[i] / MS_PS_PER_S, times);
}

/* Weight gradients of the head that are among the rows of the step instead. */
static void left_rows(Explain *x, const MsCosted *c, double times) {
  for (int i = 0; i < c->list->n; i++)
    if (c->list->op[i].pass == MS_PASS_WGRAD) row(x, &c->list->op[i], (double)c->duration[i] / MS_PS_PER_S, -times);
}

static void step_rows(Explain *x, const MsCosted *c) {
  for (int i = 0; i < c->list->n && !x->chunks; i++)
    if (c->list->op[i].pass != MS_PASS_OPTIMIZER) row(x, &c->list->op[i], (double)c->duration[i] / MS_PS_PER_S, 1);
}

static void stage_rows(Explain *x, const MsSchedule *schedule, int stage) {
  const MsHardware *machine = ms_program_machine_of(x->p, stage);
  gboolean fp16 = ms_precision(&x->p->scenario->training)->dtype == MS_DT_FP16;
  for (int dtype = 0; dtype < MS_N_ODT; dtype++) x->own_peak[dtype] = ms_device_rates(machine, dtype, fp16).peak_flops;
  x->peak = ms_hardware_peak_flops(machine, x->p->scenario->training.precision);
  for (MsStagePiece at = ms_stage_pieces(x->p->work, stage); ms_next_piece(&at);) {
    const MsCostedPiece *piece = &x->p->piece[at.piece];
    int first, count;
    ms_chunk_microbatches(schedule, at.chunk_index, &first, &count);
    list_rows(x, &piece->forward, count);
    list_rows(x, &piece->backward, count);
    if (ms_work_is_head(x->p->work, at.piece)) left_rows(x, &piece->backward, ms_work_deferred(x->p->work, count));
  }
  const MsCostedStep *step = &x->p->step[stage];
  step_rows(x, &step->before), step_rows(x, &step->gather), step_rows(x, &step->reduce), step_rows(x, &step->after);
}

/* --- parts ----------------------------------------------------------------------------------------------------- */
static void part(MsResult *r, const char *name, double time_s, gboolean always) {
  double fraction = time_s / r->step_time_s;
  if (!always && fabs(fraction) < 1e-12) return; /* rounding */
  r->gap = g_renew(MsGapPart, r->gap, r->n_gap + 1);
  MsGapPart *part = &r->gap[r->n_gap++];
  g_strlcpy(part->name, name, sizeof part->name);
  part->fraction = fraction;
}

static double sum_of(const double *value, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += value[i];
  return sum;
}

/* The kinds that take longest, then the rest together. */
static void memory_parts(MsResult *r, Explain *x, double n) {
  for (int k = 0; k < TOP_MEMORY; k++) {
    int most = 0;
    char name[48];
    for (int op = 1; op < MS_N_OPS; op++)
      if (x->memory_s[op] > x->memory_s[most]) most = op;
    if (!(x->memory_s[most] > 0)) return;
    g_snprintf(name, sizeof name, "memory-bound: %s", ms_op_words[most]);
    part(r, name, x->memory_s[most] / n, FALSE);
    x->memory_s[most] = 0;
  }
  part(r, "memory-bound: other kernels", sum_of(x->memory_s, MS_N_OPS) / n, FALSE);
}

/* Waiting that more even stages would not have: up to the busiest stage; the rest is the schedule's. */
static double imbalance_s(const MsResult *r) {
  double most = 0, sum = 0;
  for (int s = 0; s < r->stages; s++) {
    const MsTimeParts *t = &r->stage_time[s];
    most = MAX(most, t->compute_s + t->host_s + t->optimizer_s);
  }
  for (int s = 0; s < r->stages; s++) {
    const MsTimeParts *t = &r->stage_time[s];
    sum += CLAMP(most - (t->compute_s + t->host_s + t->optimizer_s), 0, MAX(t->bubble_s, 0));
  }
  return sum / r->stages;
}

static void waiting_parts(MsResult *r) {
  const MsTimeParts *t = &r->time;
  double uneven = imbalance_s(r), exposed = 0;
  for (int c = 0; c < MS_N_COMMS; c++) {
    char name[48];
    g_snprintf(name, sizeof name, "exposed communication: %s", ms_comm_words[c]);
    part(r, name, t->comm_exposed_s[c], FALSE);
    exposed += t->comm_exposed_s[c];
  }
  part(r, "pipeline bubble", t->bubble_s - uneven, FALSE);
  part(r, "uneven stages", uneven, FALSE);
  part(r, "host", t->host_s, FALSE);
  part(r, "optimizer", t->optimizer_s, FALSE);
  double waited_s = r->scale.alike_s > 0 ? r->step_time_s - r->scale.alike_s : 0;
  part(r, "waiting for slower ranks", waited_s, FALSE);
  part(r, "other", r->step_time_s - waited_s - (t->compute_s + exposed + t->bubble_s + t->host_s + t->optimizer_s),
       FALSE);
}

void ms_explain(MsResult *r, const MsProgram *p, const MsSchedule *schedule) {
  static const char *const kernels[] = {"kernels: GEMM", "kernels: grouped GEMM", "kernels: attention"};
  Explain x = {.p = p, .chunks = r->fidelity != MS_FIDELITY_FULL, .mean_peak = r->peak_flops};
  if (!(r->peak_flops > 0) || !(r->step_time_s > 0) || !isfinite(r->mfu)) return;
  for (int s = 0; s < r->stages; s++) stage_rows(&x, schedule, s);
  double n = r->stages, counted_s = r->mfu * r->step_time_s;
  double rows_s =
      x.useful_s + x.wider_s + sum_of(x.beyond_s, 3) + x.recompute_s + x.quantise_s + sum_of(x.memory_s, MS_N_OPS);
  double run_s = x.useful_s + x.beside_s, even_s = p->layout->n_pools > 0 ? x.even_s : run_s;
  if (even_s > 0) r->counted_over_run = counted_s * n / even_s;
  part(r, "model FLOP at peak", counted_s, TRUE);
  part(r, "FLOP beyond the convention", even_s / n - counted_s, FALSE);
  part(r, "FLOP on machines below the mean peak", (run_s - even_s) / n, FALSE);
  part(r, "FLOP beside other work", -x.beside_s / n, FALSE);
  part(r, "wider types than the run's", x.wider_s / n, FALSE);
  for (int f = 0; f < 3; f++) part(r, kernels[f], x.beyond_s[f] / n, FALSE);
  part(r, "recomputation", x.recompute_s / n, FALSE);
  part(r, "quantisation", x.quantise_s / n, FALSE);
  memory_parts(r, &x, n);
  part(r, "slowed by communication beside it", r->time.compute_s - rows_s / n, FALSE);
  waiting_parts(r);
}
