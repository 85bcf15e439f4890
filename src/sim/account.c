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

typedef struct { /* a stage, as far as it was accounted */
  MsTime cursor, latest_end;
  gint32 latest, last_sync; /* task of the device that ends last, that its host waited for last */
} Stage;

typedef struct { /* what one task adds to a part */
  double *to, s;
} Sum;

typedef struct {
  const MsGraph *graph;
  const MsTrajectory *t;
  const MsOp *const *tag_op;
  MsTimeParts *stage;
  int stages;
  Stage *at;     /* [stages] */
  gint32 *sync;  /* [tasks] the last task of its device that the host waited for before it issued this one, -1 none */
  GArray *sums;  /* Sum of the tasks of a round; NULL: nobody asks */
  gint32 oldest; /* of the tasks whose times it follows from */
} Account;

static double seconds(MsTime ps) { return (double)ps / MS_PS_PER_S; }

static void add(Account *a, double *to, MsTime span) {
  const Sum sum = {to, seconds(span)};
  *to += sum.s;
  if (a->sums) g_array_append_val(a->sums, sum);
}

/* --- tasks by their numbers --- */

typedef struct { /* where the times of a task stand, and by how much it is later than that */
  gint32 number;
  guint32 index;
  MsTime later;
  gint32 further; /* all numbers that it names */
} Place;

static Place place_of(const Account *a, gint32 number) {
  const MsFold *fold = &a->t->fold;
  guint32 rounds, index = ms_fold_task(fold, (guint32)number, &rounds);
  return (Place){number, index, rounds * fold->by, (gint32)(rounds * fold->period)};
}

static gint32 bound_of(const Account *a, const Place *p) {
  gint32 bound = a->t->bound_by[p->index];
  return bound < 0 ? bound : bound + p->further;
}

/* Of a device whose host waits for something in every round it is that. */
static gint32 sync_of(const Account *a, gint32 number) {
  Place p = place_of(a, number);
  gint32 sync = a->sync[p.index], rounds = (gint32)a->t->fold.cut - 2 * (gint32)a->t->fold.period;
  return sync >= rounds ? sync + p.further : sync;
}

/* --- parts --- */

static gboolean is_comm(const Account *a, const MsTask *task) {
  const MsOp *op = a->tag_op[task->tag];
  return op && ms_op_families[op->kind] >= MS_FAMILY_COMM; /* work on the host belongs to the copies around it */
}

static void expose(Account *a, int stage, const MsTask *task, MsTime span) {
  MsTimeParts *p = &a->stage[stage];
  add(a, &p->exposed_comm_s, span);
  add(a, &p->comm_exposed_s[ms_comm_class(a->tag_op[task->tag])], span);
}

/* A task of no row is told elsewhere. */
static void busy(Account *a, int stage, const MsTask *task, MsTime span) {
  const MsOp *op = a->tag_op[task->tag];
  MsTimeParts *p = &a->stage[stage];
  if (!op) return;
  if (op->pass == MS_PASS_OPTIMIZER) {
    add(a, &p->optimizer_s, span);
    return;
  }
  add(a, &p->compute_s, span);
  int family = ms_op_families[op->kind];
  if (family <= MS_FAMILY_MEMORY) add(a, &p->family_s[family], span);
}

/* When the host went on after what it waited for. */
static MsTime host_since(Account *a, MsTime from, gint32 waited) {
  if (waited < 0) return from;
  Place p = place_of(a, waited);
  MsTime end = a->t->end[p.index] + p.later;
  if (end > from) a->oldest = MIN(a->oldest, waited);
  return MAX(from, end);
}

/* The gap [from, to) on `stage` before task `next`, whose start `bound` decided. */
static void attribute(Account *a, int stage, MsTime from, MsTime to, gint32 next, gint32 bound) {
  while (to > from) {
    if (bound == -1) {
      gint32 waited = sync_of(a, next);
      MsTime since = host_since(a, from, waited);
      add(a, &a->stage[stage].host_s, to - since);
      to = since;
      next = bound = waited;
      continue;
    }
    if (bound < 0) break;
    Place at = place_of(a, bound);
    const MsTask *task = ms_graph_task(a->graph, at.index);
    gboolean here = (int)task->device == stage;
    gboolean comm = is_comm(a, task);
    MsTime start = MAX(from, a->t->start[at.index] + at.later);
    a->oldest = MIN(a->oldest, bound);
    if (!here && !comm) break; /* another stage computes: bubble */
    if (comm) expose(a, stage, task, to - start);
    else busy(a, stage, task, to - start); /* kernels on a stream beside that of compute */
    to = start;
    next = bound;
    bound = bound_of(a, &at);
    if (!here) break; /* before the message left, the other stage was busy or idle: bubble */
  }
  if (to > from) add(a, &a->stage[stage].bubble_s, to - from);
}

static Account open_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t,
                            const MsOp *const *tag_op, MsTimeParts *stage) {
  int stages = program->layout->pp;
  Account a = {.graph = graph, .t = t, .tag_op = tag_op, .stage = stage, .stages = stages};
  memset(stage, 0, (size_t)stages * sizeof *stage);
  a.at = g_new(Stage, stages), a.sync = g_new(gint32, MAX(t->n, 1));
  for (int s = 0; s < stages; s++) a.at[s] = (Stage){.latest_end = -1, .latest = -2, .last_sync = -1};
  return a;
}

static void close_account(Account *a) { g_free(a->at), g_free(a->sync); }

static void account_task(Account *a, const MsTask *task, const Place *p) {
  MsTime start = a->t->start[p->index] + p->later, end = a->t->end[p->index] + p->later;
  int s = (int)task->device;
  Stage *at = &a->at[s];
  if (task->host_sync) at->last_sync = p->number;
  if (end > at->latest_end) at->latest = p->number, at->latest_end = end;
  const MsOp *op = a->tag_op[task->tag];
  if (is_comm(a, task)) add(a, &a->stage[s].comm_total_s[ms_comm_class(op)], end - start);
  if (task->stream != MS_STREAM_COMPUTE) return;
  if (start > at->cursor) attribute(a, s, at->cursor, start, p->number, bound_of(a, p));
  if (op && ms_op_families[op->kind] == MS_FAMILY_COMM)
    expose(a, s, task, end - start); /* a serial machine: the cores move it */
  else busy(a, s, task, end - start);
  at->cursor = end;
}

/* Those [from, to), behind the ones before; their numbers are so many more. */
static void account_tasks(Account *a, guint32 from, guint32 to, guint32 more) {
  const MsTask *all = ms_graph_tasks(a->graph);
  for (guint32 i = from; i < to; i++) {
    const Place place = {.number = (gint32)(i + more), .index = i};
    a->sync[i] = a->at[all[i].device].last_sync;
    account_task(a, &all[i], &place);
  }
}

/* --- rounds that were not laid down --- */

static void account_round(Account *a, guint32 round) {
  const MsFold *fold = &a->t->fold;
  const MsTask *all = ms_graph_tasks(a->graph);
  g_array_set_size(a->sums, 0), a->oldest = G_MAXINT32;
  for (guint32 i = fold->cut - fold->period; i < fold->cut; i++) {
    const Place place = place_of(a, (gint32)(i + round * fold->period));
    account_task(a, &all[i], &place);
  }
}

/* What one round does to a stage; becomes what `times` do. */
static Stage moved(const Stage *from, const Stage *to, gint32 times) {
  return (Stage){times * (to->cursor - from->cursor), times * (to->latest_end - from->latest_end),
                 times * (to->latest - from->latest), times * (to->last_sync - from->last_sync)};
}

/* All stages are where they were a round ago, and nothing was looked at but the rounds: the next one adds the same. */
static gboolean is_steady(const Account *a, const Stage *before) {
  const MsFold *fold = &a->t->fold;
  const MsTask *all = ms_graph_tasks(a->graph);
  g_autofree Stage *same = g_new0(Stage, a->stages);
  for (guint32 i = fold->cut - fold->period; i < fold->cut; i++) {
    Stage *own = &same[all[i].device];
    own->latest = (gint32)fold->period, own->latest_end = fold->by;
    if (all[i].host_sync) own->last_sync = (gint32)fold->period;
    if (all[i].stream == MS_STREAM_COMPUTE) own->cursor = fold->by;
  }
  for (int s = 0; s < a->stages; s++) {
    const Stage now = moved(&before[s], &a->at[s], 1);
    if (memcmp(&now, &same[s], sizeof now) != 0) return FALSE;
  }
  return a->oldest >= (gint32)(fold->cut - fold->period);
}

static void account_rounds(Account *a) {
  const guint32 times = a->t->fold.times;
  g_autofree Stage *before = g_new(Stage, a->stages);
  guint32 done = 0;
  for (gboolean steady = FALSE; done < times && !steady; done++) {
    memcpy(before, a->at, sizeof *before * (size_t)a->stages);
    account_round(a, done + 1);
    steady = is_steady(a, before);
  }
  for (guint32 k = done; k < times; k++)
    for (guint i = 0; i < a->sums->len; i++) {
      const Sum *sum = &g_array_index(a->sums, Sum, i);
      *sum->to += sum->s;
    }
  for (int s = 0; s < a->stages && done < times; s++) {
    const Stage by = moved(&before[s], &a->at[s], (gint32)(times - done));
    Stage *at = &a->at[s];
    at->cursor += by.cursor, at->latest_end += by.latest_end, at->latest += by.latest, at->last_sync += by.last_sync;
  }
}

static void account_all(Account *a) {
  const MsFold *fold = &a->t->fold;
  if (fold->times == 0) {
    account_tasks(a, 0, a->t->n, 0);
    return;
  }
  account_tasks(a, 0, fold->cut, 0);
  a->sums = g_array_new(FALSE, FALSE, sizeof(Sum));
  account_rounds(a);
  g_clear_pointer(&a->sums, g_array_unref);
  account_tasks(a, fold->cut, a->t->n, fold->times * fold->period);
}

/* After the last compute task: what still runs here, then waiting for other stages until `end`. */
static void account_end(Account *a, MsTime end) {
  for (int s = 0; s < a->stages; s++) {
    const Stage *at = &a->at[s];
    MsTime own_end = at->latest >= 0 ? MAX(at->cursor, at->latest_end) : 0;
    if (own_end > at->cursor) attribute(a, s, at->cursor, own_end, at->latest, at->latest);
    add(a, &a->stage[s].bubble_s, end - own_end);
  }
}

void ms_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t, const MsOp *const *tag_op,
                MsTimeParts *stage) {
  Account a = open_account(program, graph, t, tag_op, stage);
  account_all(&a), account_end(&a, t->makespan);
  close_account(&a);
}

void ms_account_first(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t, const MsOp *const *tag_op,
                      guint32 n, MsTime end, MsTimeParts *first, MsTimeParts *stage) {
  Account a = open_account(program, graph, t, tag_op, stage);
  account_tasks(&a, 0, n, 0);
  memcpy(first, stage, (size_t)a.stages * sizeof *stage);
  a.stage = first, account_end(&a, end), a.stage = stage;
  account_tasks(&a, n, t->n, 0), account_end(&a, t->makespan);
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
