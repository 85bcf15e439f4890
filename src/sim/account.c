/* src/sim/account.c - where the time of a stage went.
 *
 * On the compute stream of a stage every moment of the step is either busy or a gap before the next compute task. A gap
 * is given to what the task waited for, walking back along the tasks that decided its start: communication on this
 * device is exposed, a message from another stage is exposed pipeline communication while it travels and bubble before,
 * the host is host from when it stopped waiting for the device (what it waited for is followed like any other wait).
 * The parts of a stage add up to the step exactly. */
#include "sim/account.h"
#include "base/units.h"
#include <string.h>

MsCommClass ms_comm_class(const MsOp *op) {
  switch ((MsGroupKind)op->group) {
  case MS_GROUP_TP: return MS_COMM_TP;
  case MS_GROUP_CP:
  case MS_GROUP_CP_INNER:
  case MS_GROUP_CP_OUTER: return MS_COMM_CP;
  case MS_GROUP_EP:
  case MS_GROUP_TP_EP: return MS_COMM_EP;
  case MS_GROUP_ETP: return MS_COMM_ETP;
  case MS_GROUP_PP:
    return op->stream == MS_STREAM_DP ? MS_COMM_DP : MS_COMM_PP; /* the other owner of DualPipe's stages */
  case MS_GROUP_EDP: return MS_COMM_EDP;
  case MS_GROUP_NONE: return MS_COMM_OFFLOAD;
  default: return MS_COMM_DP;
  }
}

typedef struct {
  const MsGraph *graph;
  const MsTrajectory *t;
  const MsOp *const *tag_op;
  MsTimeParts *stage;
  const gint32
      *sync; /* [tasks] the last task of its device that the host waited for before it issued this one, -1 none */
} Account;

static double seconds(MsTime ps) { return (double)ps / MS_PS_PER_S; }

static gboolean is_comm(const Account *a, const MsTask *task) {
  const MsOp *op = a->tag_op[task->tag];
  return op && ms_op_families[op->kind] >= MS_FAMILY_COMM; /* work on the host belongs to the copies around it */
}

static void expose(Account *a, int stage, const MsTask *task, MsTime span) {
  MsTimeParts *p = &a->stage[stage];
  p->exposed_comm_s += seconds(span);
  p->comm_exposed_s[ms_comm_class(a->tag_op[task->tag])] += seconds(span);
}

/* A task of no row is told elsewhere. */
static void busy(Account *a, int stage, const MsTask *task, MsTime span) {
  const MsOp *op = a->tag_op[task->tag];
  MsTimeParts *p = &a->stage[stage];
  if (!op) return;
  if (op->pass == MS_PASS_OPTIMIZER) {
    p->optimizer_s += seconds(span);
    return;
  }
  p->compute_s += seconds(span);
  int family = ms_op_families[op->kind];
  if (family <= MS_FAMILY_MEMORY) p->family_s[family] += seconds(span);
}

/* The gap [from, to) on `stage` before task `next`, whose start `bound` decided. */
static void attribute(Account *a, int stage, MsTime from, MsTime to, gint32 next, gint32 bound) {
  while (to > from) {
    if (bound == -1) {
      gint32 waited = a->sync[next];
      MsTime since = waited >= 0 ? MAX(from, a->t->end[waited]) : from;
      a->stage[stage].host_s += seconds(to - since);
      to = since;
      next = bound = waited;
      continue;
    }
    if (bound < 0) break;
    const MsTask *task = ms_graph_task(a->graph, (guint32)bound);
    gboolean here = (int)task->device == stage;
    gboolean comm = is_comm(a, task);
    MsTime start = MAX(from, a->t->start[bound]);
    if (!here && !comm) break; /* another stage computes: bubble */
    if (comm) expose(a, stage, task, to - start);
    else busy(a, stage, task, to - start); /* kernels on a stream beside that of compute */
    to = start;
    next = bound;
    bound = a->t->bound_by[bound];
    if (!here) break; /* before the message left, the other stage was busy or idle: bubble */
  }
  if (to > from) a->stage[stage].bubble_s += seconds(to - from);
}

void ms_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t, const MsOp *const *tag_op,
                MsTimeParts *stage) {
  int stages = program->layout->pp;
  Account a = {.graph = graph, .t = t, .tag_op = tag_op, .stage = stage};
  memset(stage, 0, (size_t)stages * sizeof *stage);
  g_autofree MsTime *cursor = g_new0(MsTime, stages);
  g_autofree gint32 *latest = g_new(gint32, stages); /* task of the device that ends last */
  g_autofree gint32 *sync = g_new(gint32, MAX(t->n, 1)), *last_sync = g_new(gint32, stages);
  for (int s = 0; s < stages; s++) latest[s] = -2, last_sync[s] = -1;
  a.sync = sync;
  const MsTask *all = ms_graph_tasks(graph);
  for (guint32 i = 0; i < t->n; i++) {
    const MsTask *task = &all[i];
    int s = (int)task->device;
    sync[i] = last_sync[s];
    if (task->host_sync) last_sync[s] = (gint32)i;
    if (latest[s] < 0 || t->end[i] > t->end[latest[s]]) latest[s] = (gint32)i;
    const MsOp *op = tag_op[task->tag];
    if (op && is_comm(&a, task)) stage[s].comm_total_s[ms_comm_class(op)] += seconds(t->end[i] - t->start[i]);
    if (task->stream != MS_STREAM_COMPUTE) continue;
    if (t->start[i] > cursor[s]) attribute(&a, s, cursor[s], t->start[i], (gint32)i, t->bound_by[i]);
    if (op && ms_op_families[op->kind] == MS_FAMILY_COMM)
      expose(&a, s, task, t->end[i] - t->start[i]); /* a serial machine: the cores move it */
    else busy(&a, s, task, t->end[i] - t->start[i]);
    cursor[s] = t->end[i];
  }
  for (int s = 0; s < stages;
       s++) { /* after the last compute task: what still runs here, then waiting for other stages */
    MsTime own_end = latest[s] >= 0 ? MAX(cursor[s], t->end[latest[s]]) : 0;
    if (own_end > cursor[s]) attribute(&a, s, cursor[s], own_end, latest[s], latest[s]);
    stage[s].bubble_s += seconds(t->makespan - own_end);
  }
}

static void take(double *from, double *left) {
  double x = MIN(*from, *left);
  *from -= x, *left -= x;
}

/* First what the stage waited without a message on its way, then messages between stages, then rounding. */
void ms_parts_shorten(MsTimeParts *stage, int stages, MsTime by) {
  for (int s = 0; s < stages; s++) {
    MsTimeParts *p = &stage[s];
    double left = seconds(by), exposed;
    take(&p->bubble_s, &left);
    exposed = left;
    take(&p->comm_exposed_s[MS_COMM_PP], &left);
    p->exposed_comm_s -= exposed - left;
    p->other_s -= left;
  }
}

void ms_parts_add(MsTimeParts *to, const MsTimeParts *parts, double times) {
  const double *from = (const double *)parts;
  double *sum = (double *)to;
  for (size_t i = 0; i < sizeof *to / sizeof(double); i++) sum[i] += times * from[i];
}
