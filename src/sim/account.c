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
  gint32 latest, last_sync; /* numbers: task of the device that ends last, that its host waited for last */
} Stage;

typedef struct { /* what one task adds to a part */
  double *to, s;
} Sum;

typedef struct {
  const MsTask *tasks;
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

/* --- tasks by their numbers, those of rounds that were not laid down among them --- */

typedef struct {
  const MsTask *task;
  gint32 number, bound; /* bound: number of what decided its start, or as MsTrajectory.bound_by says */
  MsTime start, end;
  guint32 laid;   /* the task that stands for it, */
  gint32 further; /* by how much its number, and all that it names, is beyond that */
} Ran;

static Ran task_at(const Account *a, gint32 number) {
  const MsFold *fold = &a->t->fold;
  guint32 rounds, laid = ms_fold_task(fold, (guint32)number, &rounds);
  MsTime later = rounds * fold->by;
  gint32 further = (gint32)(rounds * fold->period), bound = a->t->bound_by[laid];
  return (Ran){.task = &a->tasks[laid],
               .number = number,
               .bound = bound < 0 ? bound : bound + further,
               .start = a->t->start[laid] + later,
               .end = a->t->end[laid] + later,
               .laid = laid,
               .further = further};
}

/* Of a device whose host waits for something in every round it is that. */
static gint32 sync_of(const Account *a, gint32 number) {
  Ran ran = task_at(a, number);
  gint32 sync = a->sync[ran.laid], rounds = (gint32)a->t->fold.cut - 2 * (gint32)a->t->fold.period;
  return sync >= rounds ? sync + ran.further : sync;
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
  MsTime end = task_at(a, waited).end;
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
    Ran ran = task_at(a, bound);
    gboolean here = (int)ran.task->device == stage, comm = is_comm(a, ran.task);
    MsTime start = MAX(from, ran.start);
    a->oldest = MIN(a->oldest, bound);
    if (!here && !comm) break; /* another stage computes: bubble */
    if (comm) expose(a, stage, ran.task, to - start);
    else busy(a, stage, ran.task, to - start); /* kernels on a stream beside that of compute */
    to = start;
    next = bound;
    bound = ran.bound;
    if (!here) break; /* before the message left, the other stage was busy or idle: bubble */
  }
  if (to > from) add(a, &a->stage[stage].bubble_s, to - from);
}

static Account open_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *t,
                            const MsOp *const *tag_op, MsTimeParts *stage) {
  int stages = program->layout->pp;
  Account a = {.tasks = ms_graph_tasks(graph), .t = t, .tag_op = tag_op, .stage = stage, .stages = stages};
  memset(stage, 0, (size_t)stages * sizeof *stage);
  a.at = g_new(Stage, stages), a.sync = g_new(gint32, MAX(t->n, 1));
  for (int s = 0; s < stages; s++) a.at[s] = (Stage){.latest_end = -1, .latest = -2, .last_sync = -1};
  return a;
}

static void close_account(Account *a) { g_free(a->at), g_free(a->sync); }

static void account_task(Account *a, gint32 number) {
  const Ran ran = task_at(a, number);
  const MsTask *task = ran.task;
  const MsOp *op = a->tag_op[task->tag];
  int s = (int)task->device;
  Stage *at = &a->at[s];
  if (ran.further == 0) a->sync[ran.laid] = at->last_sync;
  if (task->host_sync) at->last_sync = number;
  if (ran.end > at->latest_end) at->latest = number, at->latest_end = ran.end;
  if (is_comm(a, task)) add(a, &a->stage[s].comm_total_s[ms_comm_class(op)], ran.end - ran.start);
  if (task->stream != MS_STREAM_COMPUTE) return;
  if (ran.start > at->cursor) attribute(a, s, at->cursor, ran.start, number, ran.bound);
  if (op && ms_op_families[op->kind] == MS_FAMILY_COMM)
    expose(a, s, task, ran.end - ran.start); /* a serial machine: the cores move it */
  else busy(a, s, task, ran.end - ran.start);
  at->cursor = ran.end;
}

/* Those of the numbers [from, to), behind the ones before. */
static void account_tasks(Account *a, guint32 from, guint32 to) {
  for (guint32 number = from; number < to; number++) account_task(a, (gint32)number);
}

/* --- rounds: one after another until each adds the same, then that as often as there are more --- */

/* What one round does to a stage; becomes what `times` do. */
static Stage moved(const Stage *from, const Stage *to, gint32 times) {
  return (Stage){times * (to->cursor - from->cursor), times * (to->latest_end - from->latest_end),
                 times * (to->latest - from->latest), times * (to->last_sync - from->last_sync)};
}

/* All stages are where they were a round ago, and nothing was looked at but the rounds: the next one adds the same. */
static gboolean is_steady(const Account *a, const Stage *before) {
  const MsFold *fold = &a->t->fold;
  g_autofree Stage *same = g_new0(Stage, a->stages);
  for (guint32 i = fold->cut - fold->period; i < fold->cut; i++) {
    Stage *own = &same[a->tasks[i].device];
    own->latest = (gint32)fold->period, own->latest_end = fold->by;
    if (a->tasks[i].host_sync) own->last_sync = (gint32)fold->period;
    if (a->tasks[i].stream == MS_STREAM_COMPUTE) own->cursor = fold->by;
  }
  for (int s = 0; s < a->stages; s++) {
    const Stage now = moved(&before[s], &a->at[s], 1);
    if (memcmp(&now, &same[s], sizeof now) != 0) return FALSE;
  }
  return a->oldest >= (gint32)(fold->cut - fold->period);
}

/* What the last round did to parts and stages. */
static void repeat_round(Account *a, const Stage *before, guint32 times) {
  for (guint32 k = 0; k < times; k++)
    for (guint i = 0; i < a->sums->len; i++) {
      const Sum *sum = &g_array_index(a->sums, Sum, i);
      *sum->to += sum->s;
    }
  for (int s = 0; s < a->stages; s++) {
    Stage *at = &a->at[s];
    const Stage by = moved(&before[s], at, (gint32)times);
    at->cursor += by.cursor, at->latest_end += by.latest_end, at->latest += by.latest, at->last_sync += by.last_sync;
  }
}

static void account_rounds(Account *a) {
  const MsFold *fold = &a->t->fold;
  g_autofree Stage *before = g_new(Stage, a->stages);
  g_autoptr(GArray) sums = a->sums = g_array_new(FALSE, FALSE, sizeof(Sum));
  gboolean steady = FALSE;
  for (guint32 done = 0; done < fold->times && !steady; done++) {
    memcpy(before, a->at, sizeof *before * (size_t)a->stages);
    g_array_set_size(sums, 0), a->oldest = G_MAXINT32;
    account_tasks(a, fold->cut + done * fold->period, fold->cut + (done + 1) * fold->period);
    steady = is_steady(a, before);
    if (steady) repeat_round(a, before, fold->times - done - 1);
  }
  a->sums = NULL;
}

static void account_all(Account *a) {
  const MsFold *fold = &a->t->fold;
  guint32 cut = fold->times > 0 ? fold->cut : 0, rounds = fold->times * fold->period;
  account_tasks(a, 0, cut);
  account_rounds(a);
  account_tasks(a, cut + rounds, a->t->n + rounds);
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
  account_tasks(&a, 0, n);
  memcpy(first, stage, (size_t)a.stages * sizeof *stage);
  a.stage = first, account_end(&a, end), a.stage = stage;
  account_tasks(&a, n, t->n), account_end(&a, t->makespan);
  close_account(&a);
}

void ms_part_take(double *from, double *left_s) {
  double x = CLAMP(*left_s, 0, *from);
  *from -= x, *left_s -= x;
}

/* First what the stage waited without a message on its way, then messages between stages, then its host, which tells of
 * the next step earlier; then rounding. */
void ms_parts_shorten(MsTimeParts *stage, int stages, MsTime by) {
  for (int s = 0; s < stages; s++) {
    MsTimeParts *p = &stage[s];
    double left = seconds(by), exposed;
    ms_part_take(&p->bubble_s, &left);
    exposed = left;
    ms_part_take(&p->comm_exposed_s[MS_COMM_PP], &left);
    p->exposed_comm_s -= exposed - left;
    ms_part_take(&p->host_s, &left);
    p->other_s -= left;
  }
}

void ms_parts_add(MsTimeParts *to, const MsTimeParts *parts, double times) {
  const double *from = (const double *)parts;
  double *sum = (double *)to;
  for (size_t i = 0; i < sizeof *to / sizeof(double); i++) sum[i] += times * from[i];
}
