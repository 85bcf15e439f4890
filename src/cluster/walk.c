/* src/cluster/walk.c - one pass over the tasks of the full step, in the order of their creation, for all units. */
#include "cluster/walk.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/units.h"
#include "step/program.h"

#include <math.h>
#include <string.h>

#define NONE G_MAXUINT32

/* --- what all draws share --- */

static MsRole role_of(const MsDetail *d, const MsTask *task, const MsOp *op) {
  gboolean link = task->use == MS_USE_LINK0 || task->use == MS_USE_LINK1;
  if (task->use == MS_USE_COMPUTE) {
    MsOpFamily family = op ? ms_op_families[op->kind] : MS_FAMILY_MEMORY;
    return family == MS_FAMILY_ATTENTION ? MS_ROLE_ATTENTION
           : family < MS_FAMILY_MEMORY   ? MS_ROLE_CLOCKED
                                         : MS_ROLE_COMPUTE;
  }
  if (!link || !op) return MS_ROLE_OTHER;
  if (op->group == MS_GROUP_PP) return MS_ROLE_PASSES;
  if (op->group == MS_GROUP_WORLD) return MS_ROLE_WORLD;
  gboolean meets = ms_meets_in_stage(op->group) && d->layout->group[op->group].size > 1;
  return meets ? MS_ROLE_MEETS : MS_ROLE_OTHER;
}

/* That its messages are on a fabric. */
static MsPattern pattern_of(const MsDetail *d, const MsOp *op) {
  switch ((MsOpKind)op->kind) {
  case MS_OP_ALL_TO_ALL:
  case MS_OP_DISPATCH:
  case MS_OP_COMBINE: return MS_PATTERN_EXCHANGE;
  case MS_OP_P2P: return MS_PATTERN_PAIR;
  default: return ms_pattern_of_rings(d->work->scenario->hardware, &d->layout->group[op->group]);
  }
}

static gboolean is_kernel(MsRole role) {
  return role == MS_ROLE_COMPUTE || role == MS_ROLE_CLOCKED || role == MS_ROLE_ATTENTION;
}

/* Of each row on the tokens of experts, where routing is drawn, 1 + its layer; of the others 0. (transfer full) */
static guint16 *layers_of_tags(const MsDetail *d) {
  guint16 *layer = g_new0(guint16, MAX(d->n_tags, 1));
  const MsWork *w = d->work;
  for (int l = 0; w->draw && l < w->draw->layers; l++) {
    int piece = l + 1 < w->draw->layers ? w->piece_of_layer[l] : w->piece_mtp;
    if (piece < 0 || !(ms_routing_hottest(w->draw, l) > 0)) continue;
    const MsOpList *list[] = {&w->pieces[piece].forward, &w->pieces[piece].backward};
    for (guint32 tag = 0; tag < d->n_tags; tag++)
      for (int k = 0; k < 2; k++) {
        const MsOp *op = d->tag_op[tag];
        if (op >= list[k]->op && op < list[k]->op + list[k]->n && op->node == MS_NODE_EXPERTS &&
            op->module == MS_MODULE_MOE)
          layer[tag] = (guint16)(1 + l);
      }
  }
  return layer;
}

static void note_uses(MsStepPlan *p) {
  const MsGraph *g = p->detail->graph;
  g_autofree guint32 *last = g_new(guint32, (gsize)p->detail->layout->pp * MS_N_STREAMS);
  memset(last, 0xff, sizeof *last * (gsize)p->detail->layout->pp * MS_N_STREAMS);
  for (guint32 i = 0; i < p->n; i++) {
    const MsTask *task = ms_graph_task(g, i);
    const guint32 *wait;
    guint n = ms_graph_waits(g, i, &wait);
    guint32 *before = &last[task->device * MS_N_STREAMS + task->stream];
    for (guint k = 0; k < n; k++) {
      p->task[wait[k]].last_use = i;
      if (p->task[wait[k]].role == MS_ROLE_PASSES && ms_graph_task(g, wait[k])->device != task->device)
        p->task[wait[k]].to = (guint16)task->device;
    }
    if (*before != NONE) p->task[*before].last_use = i;
    *before = i;
  }
}

MsStepPlan *ms_step_plan_new(const MsDetail *d, double step_time_s) {
  MsStepPlan *p = g_new0(MsStepPlan, 1);
  p->detail = d, p->n = ms_graph_count(d->graph), p->task = g_new0(MsStepTask, MAX(p->n, 1));
  p->makespan = d->trajectory->makespan;
  p->period = ms_steps_overlap(d->work->scenario) ? ms_time_of(step_time_s) : p->makespan;
  g_autofree guint16 *layer = layers_of_tags(d);
  for (guint32 i = 0; i < p->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    const MsOp *op = d->tag_op[task->tag];
    MsRole role = role_of(d, task, op);
    p->task[i] = (MsStepTask){.duration = d->trajectory->end[i] - d->trajectory->start[i],
                              .last_use = i,
                              .to = is_kernel(role) ? layer[task->tag] : (guint16)task->device,
                              .role = (guint8)role,
                              .pattern = role >= MS_ROLE_MEETS ? (guint8)pattern_of(d, op) : 0,
                              .group = role == MS_ROLE_MEETS ? op->group : MS_GROUP_NONE};
  }
  note_uses(p);
  return p;
}

void ms_step_plan_free(MsStepPlan *p) {
  if (!p) return;
  g_free(p->task);
  g_free(p);
}

/* --- chance: numbers that depend on seed, rank and task alone --- */

/* Of mean 0 and standard deviation 1: four uniform numbers of 16 bits added, nearly normal and never beyond 3.5. */
static inline double deviate(guint64 of_rank, guint64 task) {
  const double mean = 2 * 65535.0, sd = 37837.227; /* 65536 sqrt(4 / 12) */
  guint64 x = ms_mixed(of_rank + task * MS_DRAW_STEP);
  return ((double)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48)) - mean) / sd;
}

/* --- the walk --- */

enum { BY_STREAM = 124, BY_HOST, BY_NOTHING, MOVED_HOST = 128 }; /* in why[]; less: number of the wait */

typedef struct {      /* why a task over all ranks began */
  guint32 task, unit; /* NONE: nothing, or the host of `unit` */
  gboolean host;
} World;

typedef struct {
  const MsStepPlan *plan;
  const MsUnits *units;
  const MsRankStates *states;
  MsSlowRow slow;
  gconstpointer data;
  gboolean any_slow;
  guint32 n;                               /* units */
  double *clock, *attention, *gpu;         /* [stages * n] */
  int *expert;                             /* [stages * n] place in the expert group */
  guint64 *chance, *host_chance;           /* [stages * n] */
  double *nic[MS_N_GROUPS][MS_N_PATTERNS]; /* [stages * groups that differ] how
                                              slow the network of each is */
  MsTime *cursor;                          /* [stages * n] of the hosts */
  guint32 *last;                           /* [stages * streams] last task, NONE */
  guint32 *slot;                           /* [tasks] where its ends are */
  GPtrArray *ends;                         /* slots: MsTime[n] */
  GArray *free_slots;                      /* guint32 */
  MsTime *ready, *most;                    /* [n], [most groups of a kind] */
  guint32 *who;                            /* [most groups of a kind] */
  guint8 *why;                             /* [tasks * n], NULL: not kept */
  guint32 *met;                            /* [tasks] where in `last_of` those of its groups begin */
  GArray *last_of;                         /* guint32: of each group of a collective the unit that came
                                              last */
  GHashTable *world;                       /* task -> World */
  MsTime makespan;
  guint32 end_task, end_unit;
  double *awaited;    /* [stages * n] */
  MsRankTimes *times; /* NULL: not asked for */
  guint32 *timed;     /* [times->n * 2] stage and unit */
  MsWalked *out;
} Walk;

static MsTime *ends_of(const Walk *w, guint32 task) { return w->ends->pdata[w->slot[task]]; }

static MsTime *open_slot(Walk *w, guint32 task) {
  if (w->free_slots->len > 0) {
    w->slot[task] = g_array_index(w->free_slots, guint32, w->free_slots->len - 1);
    g_array_set_size(w->free_slots, w->free_slots->len - 1);
  } else {
    w->slot[task] = w->ends->len;
    g_ptr_array_add(w->ends, g_new(MsTime, w->n));
  }
  return ends_of(w, task);
}

static void close_slot(Walk *w, guint32 task, guint32 now) {
  if (task == NONE || w->plan->task[task].last_use != now || w->slot[task] == NONE) return;
  g_array_append_val(w->free_slots, w->slot[task]);
  w->slot[task] = NONE;
}

/* A rank of the unit; of several the first, so that what it draws does not depend on how they are taken together. */
static int rank_of(const Walk *w, guint32 stage, guint32 unit) { return ms_unit_rank(w->units, (int)stage, unit); }

/* --- when each unit is ready --- */

static inline void later(MsTime *ready, guint8 *why, const MsTime *end, guint32 n, guint8 by) {
  if (!why)
    for (guint32 u = 0; u < n; u++) ready[u] = MAX(ready[u], end[u]);
  else
    for (guint32 u = 0; u < n; u++)
      if (end[u] > ready[u]) ready[u] = end[u], why[u] = (guint8)((why[u] & MOVED_HOST) | by);
}

static void issue(Walk *w, const MsTask *task, guint32 i, guint8 *why) {
  MsTime *cursor = w->cursor + task->device * w->n;
  const guint64 *chance = w->host_chance + task->device * w->n;
  double sd = ms_host_deviation(w->states->host_jitter, task->launch, w->states->operator_of_host),
         launch = (double)task->launch;
  for (guint32 u = 0; u < w->n; u++)
    cursor[u] += sd > 0 ? (MsTime)(launch * (1 + sd * deviate(chance[u], i)) + 0.5) : task->launch;
  later(w->ready, why, cursor, w->n, BY_HOST);
}

static void find_ready(Walk *w, const MsTask *task, guint32 i, guint8 *why) {
  const guint32 *wait;
  guint n = ms_graph_waits(w->plan->detail->graph, i, &wait);
  guint32 before = w->last[task->device * MS_N_STREAMS + task->stream];
  memset(w->ready, 0, sizeof *w->ready * w->n);
  if (why) memset(why, BY_NOTHING, w->n);
  if (before != NONE) later(w->ready, why, ends_of(w, before), w->n, BY_STREAM);
  if (n >= BY_STREAM) MS_BUG("task %u waits for %u", i, n);
  for (guint k = 0; k < n; k++) later(w->ready, why, ends_of(w, wait[k]), w->n, (guint8)k);
  if (task->launch > 0) issue(w, task, i, why);
}

/* Over all ranks of the stages that meet. */
static void meet_world(Walk *w, const MsTask *task, guint32 i) {
  const guint32 *wait;
  guint n = ms_graph_waits(w->plan->detail->graph, i, &wait);
  guint32 before = w->last[task->device * MS_N_STREAMS + task->stream];
  World by = {NONE, 0, FALSE};
  MsTime most = 0;
  for (guint k = 0; k <= n; k++) {
    guint32 from = k < n ? wait[k] : before;
    const MsTime *end = from != NONE ? ends_of(w, from) : NULL;
    for (guint32 u = 0; end && u < w->n; u++)
      if (end[u] > most) most = end[u], by = (World){from, u, FALSE};
  }
  memset(w->ready, 0, sizeof *w->ready * w->n);
  if (task->launch > 0) issue(w, task, i, NULL);
  for (guint32 u = 0; u < w->n; u++)
    if (w->ready[u] > most) most = w->ready[u], by = (World){NONE, u, TRUE};
  for (guint32 u = 0; u < w->n; u++) w->ready[u] = most;
  if (w->world) g_hash_table_insert(w->world, GUINT_TO_POINTER(i), g_memdup2(&by, sizeof by));
}

/* --- how long it takes --- */

/* Of each rank of an expert group, over the hottest's; NULL: the kernel is not one of theirs. */
static const double *rows_of(const Walk *w, const MsStepTask *t) {
  return w->states->rows && t->to > 0 ? w->states->rows + (gsize)(t->to - 1) * (gsize)w->plan->detail->layout->ep
                                      : NULL;
}

static void kernels(const Walk *w, guint32 stage, guint32 i, MsTime *end) {
  const MsStepTask *t = &w->plan->task[i];
  const double *clock = t->role == MS_ROLE_CLOCKED ? w->clock : t->role == MS_ROLE_ATTENTION ? w->attention : NULL;
  const double *gpu = w->gpu + stage * w->n;
  const guint64 *chance = w->chance + stage * w->n;
  double sd = w->states->kernel_jitter, alone = (double)t->duration;
  const double *rows = rows_of(w, t);
  if (clock) clock += stage * w->n;
  for (guint32 u = 0; u < w->n; u++) {
    double took = alone * (clock ? clock[u] * gpu[u] : gpu[u]);
    if (rows) took *= rows[w->expert[stage * w->n + u]];
    if (sd > 0) took *= 1 + sd * deviate(chance[u], i);
    end[u] = w->ready[u] + (MsTime)(took + 0.5);
  }
}

static MsTime over_network(const Walk *w, const MsTask *task, MsTime duration, double nic) {
  if (task->use != MS_USE_LINK1 || nic == 1) return duration;
  return (MsTime)((double)duration * w->slow(w->data, task->tag, nic) + 0.5);
}

static void note_waits(Walk *w, guint32 stage, const MsStepTask *t, const MsMeet *meet) {
  double waited = 0;
  for (guint32 u = 0; u < w->n; u++) {
    guint32 g = meet->of[u], last = w->who[g];
    double s = (double)(w->most[g] - w->ready[u]) * w->units->places_of[u];
    waited += s;
    if (w->awaited) w->awaited[stage * w->n + last] += s / w->units->places_of[last];
  }
  w->out->waits_s[t->group] += waited;
}

static void meet(Walk *w, const MsTask *task, guint32 i, MsTime *end) {
  const MsStepTask *t = &w->plan->task[i];
  const MsMeet *m = &w->units->meet[t->group];
  for (guint32 g = 0; g < m->n; g++) w->most[g] = -1;
  for (guint32 u = 0; u < w->n; u++)
    if (w->ready[u] > w->most[m->of[u]]) w->most[m->of[u]] = w->ready[u], w->who[m->of[u]] = u;
  note_waits(w, task->device, t, m);
  if (w->why) {
    w->met[i] = w->last_of->len;
    g_array_append_vals(w->last_of, w->who, m->n);
  }
  const double *nic = w->any_slow ? w->nic[t->group][t->pattern] + task->device * m->n : NULL;
  for (guint32 g = 0; g < m->n; g++) w->most[g] += over_network(w, task, t->duration, nic ? nic[g] : 1);
  for (guint32 u = 0; u < w->n; u++) end[u] = w->most[m->of[u]];
}

/* What the fabric says of a message is told of the rank that sends forward. */
static double message_nic(const Walk *w, const MsTask *task, const MsStepTask *t, guint32 unit) {
  int from = rank_of(w, task->device, unit), to = rank_of(w, t->to, unit);
  const double *fabric = w->states->fabric[MS_GROUP_PP][MS_PATTERN_PAIR];
  gboolean first = ms_layout_pair(w->plan->detail->layout, (int)task->device, t->to) == (int)task->device;
  return MAX(w->states->nic[from], w->states->nic[to]) * (fabric ? fabric[first ? from : to] : 1);
}

static void pass(const Walk *w, const MsTask *task, guint32 i, MsTime *end) {
  const MsStepTask *t = &w->plan->task[i];
  for (guint32 u = 0; u < w->n; u++)
    end[u] = w->ready[u] + over_network(w, task, t->duration, w->any_slow ? message_nic(w, task, t, u) : 1);
}

static double slowest_nic(const Walk *w) {
  double most = 1;
  for (int r = 0; r < w->units->stages * w->units->places; r++) most = MAX(most, w->states->nic[r]);
  return most;
}

static void whole_world(const Walk *w, const MsTask *task, guint32 i, double nic, MsTime *end) {
  MsTime took = over_network(w, task, w->plan->task[i].duration, nic);
  for (guint32 u = 0; u < w->n; u++) end[u] = w->ready[u] + took;
}

/* --- one task --- */

static void note_end(Walk *w, guint32 i, const MsTime *end) {
  for (guint32 u = 0; u < w->n; u++)
    if (end[u] > w->makespan) w->makespan = end[u], w->end_task = i, w->end_unit = u;
}

static void hold_host(Walk *w, guint32 stage, const MsTime *end, guint8 *why) {
  MsTime *cursor = w->cursor + stage * w->n;
  for (guint32 u = 0; u < w->n; u++)
    if (end[u] > cursor[u]) {
      cursor[u] = end[u];
      if (why) why[u] |= MOVED_HOST;
    }
}

static void note_times(Walk *w, guint32 i, guint32 stage, const MsTime *end) {
  for (int k = 0; k < w->times->n; k++) {
    if (w->timed[2 * k] != stage) continue;
    w->times->ran[k]->start[i] = w->ready[w->timed[2 * k + 1]], w->times->ran[k]->end[i] = end[w->timed[2 * k + 1]];
  }
}

static void walk_task(Walk *w, guint32 i, double nic) {
  const MsTask *task = ms_graph_task(w->plan->detail->graph, i);
  const MsStepTask *t = &w->plan->task[i];
  guint8 *why = w->why ? w->why + (gsize)i * w->n : NULL;
  guint32 *last = &w->last[task->device * MS_N_STREAMS + task->stream];
  if (t->role == MS_ROLE_WORLD) {
    if (why) memset(why, BY_NOTHING, w->n);
    meet_world(w, task, i);
  } else find_ready(w, task, i, why);
  MsTime *end = open_slot(w, i);
  switch ((MsRole)t->role) {
  case MS_ROLE_MEETS: meet(w, task, i, end); break;
  case MS_ROLE_WORLD: whole_world(w, task, i, nic, end); break;
  case MS_ROLE_PASSES: pass(w, task, i, end); break;
  case MS_ROLE_OTHER:
    for (guint32 u = 0; u < w->n; u++) end[u] = w->ready[u] + t->duration;
    break;
  default: kernels(w, task->device, i, end);
  }
  note_end(w, i, end);
  if (w->times) note_times(w, i, task->device, end);
  if (task->host_sync) hold_host(w, task->device, end, why);
  const guint32 *wait;
  guint n = ms_graph_waits(w->plan->detail->graph, i, &wait);
  for (guint k = 0; k < n; k++) close_slot(w, wait[k], i);
  close_slot(w, *last, i), close_slot(w, i, i);
  *last = i;
}

/* --- the critical path over the ranks --- */

static double seconds(MsTime t) { return (double)t / MS_PS_PER_S; }

/* What the task took on that unit; drawn again. */
static MsTime took(const Walk *w, const MsTask *task, guint32 i, guint32 unit, double nic) {
  const MsStepTask *t = &w->plan->task[i];
  if (t->role == MS_ROLE_WORLD) return over_network(w, task, t->duration, nic);
  if (t->role == MS_ROLE_MEETS && w->any_slow) {
    const MsMeet *m = &w->units->meet[t->group];
    return over_network(w, task, t->duration, w->nic[t->group][t->pattern][task->device * m->n + m->of[unit]]);
  }
  if (t->role == MS_ROLE_PASSES && w->any_slow)
    return over_network(w, task, t->duration, message_nic(w, task, t, unit));
  if (!is_kernel((MsRole)t->role)) return t->duration;
  guint32 at = task->device * w->n + unit;
  double s = (double)t->duration * w->gpu[at] *
             (t->role == MS_ROLE_CLOCKED     ? w->clock[at]
              : t->role == MS_ROLE_ATTENTION ? w->attention[at]
                                             : 1);
  if (rows_of(w, t)) s *= rows_of(w, t)[w->expert[at]];
  if (w->states->kernel_jitter > 0) s *= 1 + w->states->kernel_jitter * deviate(w->chance[at], i);
  return (MsTime)(s + 0.5);
}

typedef struct {
  guint32 task, unit; /* NONE: the beginning */
} Point;

/* Launches of the host back to where it was last held; they are on the path. */
static Point back_over_host(const Walk *w, const MsTask *of, guint32 i, guint32 unit, double *path) {
  guint32 at = of->device * w->n + unit;
  for (guint32 k = i + 1; k-- > 0;) {
    const MsTask *task = ms_graph_task(w->plan->detail->graph, k);
    if (task->device != of->device) continue;
    if (k < i && task->host_sync && w->why[(gsize)k * w->n + unit] & MOVED_HOST) return (Point){k, unit};
    if (task->launch == 0) continue;
    double s = (double)task->launch / MS_PS_PER_S;
    if (w->states->host_jitter > 0)
      s *= 1 + ms_host_deviation(w->states->host_jitter, task->launch, w->states->operator_of_host) *
                   deviate(w->host_chance[at], k);
    path[at] += s, w->out->path_host_s += s;
  }
  return (Point){NONE, 0};
}

static Point before(const Walk *w, const MsTask *task, guint32 i, guint32 unit, double *path) {
  const MsStepTask *t = &w->plan->task[i];
  if (t->role == MS_ROLE_WORLD) {
    const World *by = g_hash_table_lookup(w->world, GUINT_TO_POINTER(i));
    return by->host ? back_over_host(w, task, i, by->unit, path) : (Point){by->task, by->unit};
  }
  if (t->role == MS_ROLE_MEETS)
    unit = g_array_index(w->last_of, guint32, w->met[i] + w->units->meet[t->group].of[unit]);
  guint8 why = w->why[(gsize)i * w->n + unit] & (MOVED_HOST - 1);
  if (why == BY_NOTHING) return (Point){NONE, 0};
  if (why == BY_HOST) return back_over_host(w, task, i, unit, path);
  const guint32 *wait;
  ms_graph_waits(w->plan->detail->graph, i, &wait);
  return (Point){why == BY_STREAM ? w->last[i] : wait[why], unit};
}

/* Each task's forerunner on its stream, in place of the last task of each stream. */
static void link_streams(Walk *w) {
  guint32 streams = (guint32)w->units->stages * MS_N_STREAMS;
  g_autofree guint32 *last = w->last;
  w->last = g_new(guint32, MAX(w->plan->n, 1));
  memset(last, 0xff, sizeof *last * streams);
  for (guint32 i = 0; i < w->plan->n; i++) {
    const MsTask *task = ms_graph_task(w->plan->detail->graph, i);
    guint32 *at = &last[task->device * MS_N_STREAMS + task->stream];
    w->last[i] = *at, *at = i;
  }
}

static void walk_back(Walk *w, double nic) {
  g_autofree double *path = g_new0(double, (gsize)w->units->stages * w->n);
  link_streams(w);
  for (Point p = {w->plan->n > 0 ? w->end_task : NONE, w->end_unit}; p.task != NONE;) {
    const MsTask *task = ms_graph_task(w->plan->detail->graph, p.task);
    const MsStepTask *t = &w->plan->task[p.task];
    Point next = before(w, task, p.task, p.unit, path);
    guint32 unit = t->role == MS_ROLE_MEETS
                       ? g_array_index(w->last_of, guint32, w->met[p.task] + w->units->meet[t->group].of[p.unit])
                       : p.unit;
    double s = seconds(took(w, task, p.task, p.unit, nic));
    path[task->device * w->n + unit] += s;
    if (t->role >= MS_ROLE_MEETS) w->out->path_comm_s += s;
    else *(t->role == MS_ROLE_OTHER ? &w->out->path_other_s : &w->out->path_compute_s) += s;
    p = next;
  }
  const MsUnits *x = w->units;
  w->out->share = g_new(MsRankShare, (gsize)x->stages * (gsize)x->places);
  for (int s = 0; s < x->stages; s++)
    for (int i = 0; i < x->places; i++) {
      guint32 unit = x->unit_of[i], at = (guint32)s * w->n + unit;
      gboolean first = x->place[unit] == i;
      w->out->share[s * x->places + i] =
          (MsRankShare){x->rank[s * x->places + i], s, first ? path[at] : 0, w->awaited[at] / MS_PS_PER_S};
    }
}

/* --- opening and closing --- */

static guint32 most_groups(const MsUnits *x) {
  guint32 most = 1;
  for (int kind = 0; kind < MS_N_GROUPS; kind++) most = MAX(most, x->meet[kind].n);
  return most;
}

static gboolean any_slow(const Walk *w) {
  gboolean any = slowest_nic(w) > 1;
  for (int k = 0; k < MS_N_GROUPS * MS_N_PATTERNS; k++) any |= ((const double *const *)w->states->fabric)[k] != NULL;
  return any;
}

/* How slow the network of each group that differs is, on each stage: its slowest NIC, its share of the fabric. */
static void find_nics(Walk *w, MsGroupKind kind, MsPattern pattern) {
  const MsMeet *m = &w->units->meet[kind];
  const double *fabric = w->states->fabric[kind][pattern];
  guint32 stages = (guint32)w->units->stages;
  double *nic = w->nic[kind][pattern] = g_new(double, (gsize)stages * m->n);
  for (guint32 k = 0; k < stages * m->n; k++) nic[k] = 1;
  for (guint32 s = 0; s < stages; s++) {
    for (guint32 u = 0; u < w->n; u++)
      nic[s * m->n + m->of[u]] = MAX(nic[s * m->n + m->of[u]], w->states->nic[rank_of(w, s, u)]);
    for (guint32 g = 0; fabric && g < m->n; g++) nic[s * m->n + g] *= fabric[rank_of(w, s, m->example[g])];
  }
}

static void take_states(Walk *w) {
  gsize all = (gsize)w->units->stages * w->n;
  w->clock = g_new(double, all), w->attention = g_new(double, all), w->gpu = g_new(double, all);
  w->expert = g_new(int, all);
  w->chance = g_new(guint64, all), w->host_chance = g_new(guint64, all);
  for (guint32 s = 0; s < (guint32)w->units->stages; s++)
    for (guint32 u = 0; u < w->n; u++) {
      guint32 at = s * w->n + u;
      int rank = rank_of(w, s, u);
      int coord[4];
      ms_rank_coords(w->plan->detail->layout, TRUE, rank, coord);
      w->expert[at] = coord[1];
      w->clock[at] = w->states->clock[rank], w->attention[at] = w->states->attention[rank];
      w->gpu[at] = w->states->gpu[rank];
      w->chance[at] = ms_mixed(ms_mixed(w->states->seed * MS_DRAW_STEP + 1) + 2 * (guint64)rank);
      w->host_chance[at] = ms_mixed(ms_mixed(w->states->seed * MS_DRAW_STEP + 1) + 2 * (guint64)rank + 1);
    }
}

static void open_walk(Walk *w, gboolean shares) {
  guint32 stages = (guint32)w->units->stages, tasks = MAX(w->plan->n, 1), groups = most_groups(w->units);
  w->n = w->units->units;
  take_states(w);
  w->any_slow = any_slow(w);
  for (int kind = 0; kind < MS_N_GROUPS && w->any_slow; kind++)
    for (int pattern = 0; pattern < MS_N_PATTERNS && w->units->meet[kind].n > 0; pattern++)
      find_nics(w, (MsGroupKind)kind, (MsPattern)pattern);
  w->cursor = g_new0(MsTime, (gsize)stages * w->n), w->last = g_new(guint32, (gsize)stages * MS_N_STREAMS);
  memset(w->last, 0xff, sizeof *w->last * stages * MS_N_STREAMS);
  w->slot = g_new(guint32, tasks);
  memset(w->slot, 0xff, sizeof *w->slot * tasks);
  w->ends = g_ptr_array_new_with_free_func(g_free), w->free_slots = g_array_new(FALSE, FALSE, sizeof(guint32));
  w->ready = g_new(MsTime, w->n), w->most = g_new(MsTime, groups), w->who = g_new0(guint32, groups);
  if (!shares) return;
  w->why = g_malloc((gsize)tasks * w->n), w->met = g_new(guint32, tasks);
  w->last_of = g_array_new(FALSE, FALSE, sizeof(guint32));
  w->world = g_hash_table_new_full(NULL, NULL, NULL, g_free);
  w->awaited = g_new0(double, (gsize)stages * w->n);
}

static void open_times(Walk *w) {
  const MsUnits *x = w->units;
  w->timed = g_new(guint32, 2 * (gsize)w->times->n);
  for (int k = 0; k < w->times->n; k++) {
    int at = 0;
    while (x->rank[at] != w->times->rank[k]) at++;
    MsTrajectory *ran = w->times->ran[k] = g_new0(MsTrajectory, 1);
    ran->n = w->plan->n;
    ran->start = g_new0(MsTime, MAX(ran->n, 1)), ran->end = g_new0(MsTime, MAX(ran->n, 1));
    w->timed[2 * k] = (guint32)(at / x->places), w->timed[2 * k + 1] = x->unit_of[at % x->places];
  }
}

static void close_walk(Walk *w) {
  g_free(w->clock), g_free(w->attention), g_free(w->gpu), g_free(w->chance), g_free(w->host_chance), g_free(w->cursor),
      g_free(w->expert);
  g_free(w->last), g_free(w->slot), g_free(w->ready), g_free(w->most), g_free(w->who);
  g_ptr_array_unref(w->ends), g_array_unref(w->free_slots);
  for (int k = 0; k < MS_N_GROUPS * MS_N_PATTERNS; k++) g_free(((double **)w->nic)[k]);
  g_free(w->why), g_free(w->met), g_free(w->awaited), g_free(w->timed);
  if (w->last_of) g_array_unref(w->last_of);
  if (w->world) g_hash_table_unref(w->world);
}

MsWalked ms_walk_step(const MsStepPlan *plan, const MsUnits *units, const MsRankStates *states, MsSlowRow slow,
                      gconstpointer data, gboolean shares, MsRankTimes *times) {
  MsWalked out = {.tasks = (guint64)plan->n * units->units};
  Walk w = {.plan = plan, .units = units, .states = states, .slow = slow, .data = data, .out = &out, .times = times};
  open_walk(&w, shares);
  if (times) open_times(&w);
  double nic = slowest_nic(&w);
  for (guint32 i = 0; i < plan->n; i++) walk_task(&w, i, nic);
  out.step_s = seconds(w.makespan - (plan->makespan - plan->period));
  for (int kind = 0; kind < MS_N_GROUPS; kind++)
    out.waits_s[kind] /= (double)units->stages * units->places * MS_PS_PER_S;
  for (int k = 0; times && k < times->n; k++) times->ran[k]->makespan = w.makespan;
  if (shares) walk_back(&w, nic);
  close_walk(&w);
  return out;
}

void ms_walked_clear(MsWalked *walked) { g_clear_pointer(&walked->share, g_free); }
