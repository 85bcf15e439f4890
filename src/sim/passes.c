/* src/sim/passes.c - seconds of every kind of slot, from the tasks that each slot laid down. */
#include "sim/passes.h"

#include "base/order.h"
#include "base/units.h"
#include "step/program.h"

typedef struct {
  MsTime start, end;
} Interval;

/* Rows that are the pass itself. What runs beside passes: messages between stages, reductions and gathers of
 * parameters, copies to and from the host. */
static gboolean in_pass(const MsTask *task) {
  switch ((MsStream)task->stream) {
  case MS_STREAM_COMPUTE:
  case MS_STREAM_TP:
  case MS_STREAM_CP:
  case MS_STREAM_EP: return TRUE;
  case MS_STREAM_SIDE: return task->duration > 0; /* else a join, or the wait for a message */
  default: return FALSE;
  }
}

/* Tasks of a slot follow one another in the graph, by their numbers. */
static Interval slot_interval(const MsTask *task, const MsTrajectory *t, int stage, guint32 from, guint32 to) {
  Interval slot = {G_MAXINT64, 0};
  for (guint32 number = from; number < to; number++) {
    guint32 rounds, i = ms_fold_task(&t->fold, number, &rounds);
    if ((int)task[i].device != stage) break;
    if (!in_pass(&task[i])) continue;
    MsTime later = rounds * t->fold.by;
    slot.start = MIN(slot.start, t->start[i] + later), slot.end = MAX(slot.end, t->end[i] + later);
  }
  return slot;
}

/* Slot `then` is slot `slot` a round later, among those that were not laid down. */
static gboolean is_later(const MsFold *fold, const guint32 *slot, const guint32 *then) {
  guint32 first = fold->cut - fold->period, end = fold->cut + fold->times * fold->period;
  return fold->times > 0 && slot[0] >= first && then[1] <= end && then[0] == slot[0] + fold->period &&
         then[1] == slot[1] + fold->period;
}

static Interval later(Interval slot, MsTime by) {
  return slot.end > 0 ? (Interval){slot.start + by, slot.end + by} : slot;
}

static Interval slots_of_stage(const MsSchedule *schedule, const MsGraph *graph, const MsTrajectory *t, int stage,
                               const guint32 *first, MsPasses *passes) {
  Interval all = {G_MAXINT64, 0};
  g_autofree Interval *of = g_new(Interval, MAX(schedule->n[stage], 1));
  for (int i = 0, before = 0; i < schedule->n[stage]; i++) {
    while (before < i && first[before] + t->fold.period < first[i]) before++;
    gboolean again = before < i && is_later(&t->fold, &first[before], &first[i]);
    Interval slot = of[i] =
        again ? later(of[before], t->fold.by) : slot_interval(ms_graph_tasks(graph), t, stage, first[i], first[i + 1]);
    int kind = schedule->slot[stage][i].kind;
    passes->count[kind]++;
    if (slot.end <= all.end) continue; /* no rows, or hidden behind the slot before it */
    passes->total_s[kind] += (double)(slot.end - MAX(slot.start, all.end)) / MS_PS_PER_S;
    all.start = MIN(all.start, slot.start), all.end = slot.end;
  }
  return all;
}

/* Their tags follow one another, stage after stage. */
static gboolean of_step(const MsProgram *p, guint32 tag) { return tag >= p->step[0].before.tag && tag < p->p2p_tag; }

MS_ORDER(by_start, Interval, MS_LESS(x->start, y->start), 0)

/* Time in which at least one of the step's own rows is issued or runs before or after the slots. */
static double outside(GArray *rows, Interval slots) {
  MsTime sum = 0, done = 0;
  g_array_sort(rows, by_start);
  for (guint i = 0; i < rows->len; i++) {
    Interval row = g_array_index(rows, Interval, i);
    MsTime from = MAX(row.start, done), before = MIN(row.end, slots.start) - from,
           after = row.end - MAX(from, slots.end);
    sum += MAX(before, 0) + MAX(after, 0);
    done = MAX(done, row.end);
  }
  return (double)sum / MS_PS_PER_S;
}

void ms_passes_of_step(const struct MsProgram *p, const MsSchedule *schedule, const MsGraph *graph,
                       const MsTrajectory *t, const guint32 *slot_task, const guint32 *slot_base, MsPasses *passes) {
  int stages = schedule->stages;
  g_autofree GArray **rows = g_new(GArray *, stages);
  for (int s = 0; s < stages; s++) rows[s] = g_array_new(FALSE, FALSE, sizeof(Interval)), passes[s] = (MsPasses){0};
  const MsTask *task = ms_graph_tasks(graph);
  for (guint32 i = 0; i < t->n; i++) {
    if (!of_step(p, task[i].tag)) continue;
    guint32 again = i < t->fold.cut && i + t->fold.period >= t->fold.cut ? t->fold.times : 0;
    for (guint32 round = 0; round <= again; round++) {
      MsTime by = round * t->fold.by;
      Interval row = {MAX(t->start[i] + by - task[i].launch, 0), t->end[i] + by};
      g_array_append_val(rows[task[i].device], row);
    }
  }
  for (int s = 0; s < stages; s++) {
    passes[s].optimizer_s =
        outside(rows[s], slots_of_stage(schedule, graph, t, s, slot_task + slot_base[s], &passes[s]));
    g_array_unref(rows[s]);
  }
}

void ms_passes_close(MsPasses *passes, int stages, double step_s) {
  for (int s = 0; s < stages; s++) {
    MsPasses *p = &passes[s];
    double slots_s = 0;
    for (int kind = 0; kind < MS_N_SLOTS; kind++) slots_s += p->total_s[kind];
    p->optimizer_s = MIN(p->optimizer_s, MAX(step_s - slots_s, 0));
    p->bubble_s = MAX(step_s - slots_s - p->optimizer_s, 0);
  }
}

MsPasses ms_passes_mean(const MsPasses *passes, int stages) {
  MsPasses mean = {{0}};
  for (int s = 0; s < stages; s++) {
    for (int kind = 0; kind < MS_N_SLOTS; kind++) {
      mean.total_s[kind] += passes[s].total_s[kind] / stages;
      mean.count[kind] = MAX(mean.count[kind], passes[s].count[kind]);
    }
    mean.optimizer_s += passes[s].optimizer_s / stages, mean.bubble_s += passes[s].bubble_s / stages;
  }
  return mean;
}
