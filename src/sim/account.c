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
  case MS_GROUP_EDP:
  case MS_GROUP_INTRA_EDP: return MS_COMM_EDP;
  case MS_GROUP_INTER: return op->stream == MS_STREAM_EDP ? MS_COMM_EDP : MS_COMM_DP; /* experts' gradients too */
  case MS_GROUP_NONE: return MS_COMM_OFFLOAD;
  default: return MS_COMM_DP;
  }
}

typedef struct {
  const MsGraph *graph;
  const MsTrajectory *t;
  const MsOp *const *tag_op;
  MsTimeParts *stage;
  int stages;
  MsTime *cursor;             /* [stages] accounted until then */
  gint32 *latest, *last_sync; /* [stages] task of the device that ends last, that its host waited for last */
  gint32 *sync; /* [tasks] the last task of its device that the host waited for before it issued this one, -1 none */
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

static Account open_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t,
                            const MsOp *const *tag_op, MsTimeParts *stage) {
  int stages = program->layout->pp;
  Account a = {.graph = graph, .t = t, .tag_op = tag_op, .stage = stage, .stages = stages};
  memset(stage, 0, (size_t)stages * sizeof *stage);
  a.cursor = g_new0(MsTime, stages), a.latest = g_new(gint32, 2 * stages), a.last_sync = a.latest + stages;
  a.sync = g_new(gint32, MAX(t->n, 1));
  for (int s = 0; s < stages; s++) a.latest[s] = -2, a.last_sync[s] = -1;
  return a;
}

static void close_account(Account *a) { g_free(a->cursor), g_free(a->latest), g_free(a->sync); }

/* Those [from, to), behind the ones before. */
static void account_tasks(Account *a, guint32 from, guint32 to) {
  const MsTrajectory *t = a->t;
  const MsTask *all = ms_graph_tasks(a->graph);
  for (guint32 i = from; i < to; i++) {
    const MsTask *task = &all[i];
    int s = (int)task->device;
    a->sync[i] = a->last_sync[s];
    if (task->host_sync) a->last_sync[s] = (gint32)i;
    if (a->latest[s] < 0 || t->end[i] > t->end[a->latest[s]]) a->latest[s] = (gint32)i;
    const MsOp *op = a->tag_op[task->tag];
    gboolean comm = is_comm(a, task);
    if (comm) a->stage[s].comm_total_s[ms_comm_class(op)] += seconds(t->end[i] - t->start[i]);
    if (task->stream != MS_STREAM_COMPUTE) continue;
    if (t->start[i] > a->cursor[s]) attribute(a, s, a->cursor[s], t->start[i], (gint32)i, t->bound_by[i]);
    if (op && ms_op_families[op->kind] == MS_FAMILY_COMM)
      expose(a, s, task, t->end[i] - t->start[i]); /* a serial machine: the cores move it */
    else busy(a, s, task, t->end[i] - t->start[i]);
    a->cursor[s] = t->end[i];
  }
}

/* After the last compute task: what still runs here, then waiting for other stages until `end`. */
static void account_end(Account *a, MsTime end) {
  for (int s = 0; s < a->stages; s++) {
    gint32 last = a->latest[s];
    MsTime own_end = last >= 0 ? MAX(a->cursor[s], a->t->end[last]) : 0;
    if (own_end > a->cursor[s]) attribute(a, s, a->cursor[s], own_end, last, last);
    a->stage[s].bubble_s += seconds(end - own_end);
  }
}

void ms_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t, const MsOp *const *tag_op,
                MsTimeParts *stage) {
  Account a = open_account(program, graph, t, tag_op, stage);
  account_tasks(&a, 0, t->n), account_end(&a, t->makespan);
  close_account(&a);
}

void ms_account_first(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t, const MsOp *const *tag_op,
                      guint32 n, MsTime end, MsTimeParts *first, MsTimeParts *stage) {
  Account a = open_account(program, graph, t, tag_op, stage);
  account_tasks(&a, 0, n);
  memcpy(first, stage, (size_t)a.stages * sizeof *stage);
  a.stage = first, account_end(&a, end), a.stage = stage;
  account_tasks(&a, n, t->n), account_end(&a, t->makespan);
  close_account(&a);
}

static void take(double *from, double *left) {
  double x = MIN(*from, *left);
  *from -= x, *left -= x;
}

/* First what the stage waited without a message on its way, then messages between stages, then its host, which tells of
 * the next step earlier; then rounding. */
void ms_parts_shorten(MsTimeParts *stage, int stages, MsTime by) {
  for (int s = 0; s < stages; s++) {
    MsTimeParts *p = &stage[s];
    double left = seconds(by), exposed;
    take(&p->bubble_s, &left);
    exposed = left;
    take(&p->comm_exposed_s[MS_COMM_PP], &left);
    p->exposed_comm_s -= exposed - left;
    take(&p->host_s, &left);
    p->other_s -= left;
  }
}

void ms_parts_add(MsTimeParts *to, const MsTimeParts *parts, double times) {
  const double *from = (const double *)parts;
  double *sum = (double *)to;
  for (size_t i = 0; i < sizeof *to / sizeof(double); i++) sum[i] += times * from[i];
}
