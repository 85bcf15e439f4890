/* src/bound/cycle.c - two moments of a walk compared, and what would come between two such moments left out. */
#include "bound/cycle.h"
#include <math.h>
#include <string.h>

typedef union {
  gint64 whole;
  double figure;
} Value;

typedef enum { KEEP, TAKE, COMPARE, MOVE } Mode;

/* A moment of the walk is a slot that comes next on each stage. The later one is as many periods behind the kept one on
 * all of them, so that it does not matter in which order the walk comes there. */
struct MsCycle {
  MsStages *stages;
  const MsSchedule *schedule;
  MsCycleTell tell;
  gpointer visitor;
  const MsPeriodOf *of; /* [stages] */
  int n;                /* periods between the two moments */
  int unlike_in_a_row;  /* pairs of moments of so many periods that were not alike */
  int settling;         /* slots of the first stage, behind its warm-up, that still show it */
  gboolean *free_host;  /* [stages] it waits for nothing on the device */
  gboolean *decides;    /* [stages] some moment between the two was that of the host */
  int *kept_at;         /* [stages] slots that came next at the kept moment */
  int *told;            /* [stages] values told before those of the stage */
  Value *kept, *now;    /* [values] of the kept moment, of the later one */
  double *figure;       /* [values] what each figure grew by from the moment before the kept one */
  guint values, most;   /* that were told; room for them */
  int *waiting;         /* [room] tensors that were waited for at the kept one: the first n_waiting */
  MsTime *made;         /* [room] when they were there */
  int room, n_waiting;
  int missing; /* stages that have not come to the later moment; 0: none is kept */
  Mode mode;
  guint at;         /* value that is told next */
  gboolean differs; /* the two moments, by more than time */
  gboolean slower;  /* some host is, and decided something */
  gboolean unlike;  /* figures did not grow by the same from the moment before */
  MsTime shift;     /* from one to the other; -1: not known yet */
  MsTime before;    /* the same from the moment before the kept one; 0: they were not alike */
  gint64 times;     /* that what lies between them is left out */
};

/* --- what is told ---------------------------------------------------------------------------------------------- */

/* What it grew by from the kept moment to the later one. */
static Value told(MsCycle *c, Value value) {
  if (c->mode == KEEP && c->at == c->most) {
    c->most = MAX(2 * c->most, 512);
    c->kept = g_renew(Value, c->kept, c->most), c->now = g_renew(Value, c->now, c->most);
    c->figure = g_renew(double, c->figure, c->most);
  }
  if (c->mode == KEEP) c->kept[c->at] = value;
  else if (c->mode == TAKE) c->now[c->at] = value;
  return c->kept[c->at++];
}

static MsTime grown(MsCycle *c, MsTime value) {
  guint at = c->at;
  MsTime kept = told(c, (Value){.whole = value}).whole;
  return c->mode == KEEP ? 0 : c->now[at].whole - kept;
}

static gboolean is_never(MsTime at) { return at < MS_NEVER / 2; }

/* It may rest. `decides`: it is a host's, which may be slower than others; NULL: it may not. */
static void moment(MsCycle *c, MsTime *at, gboolean rests, const gboolean *decides) {
  guint place = c->at;
  MsTime by = grown(c, *at);
  if (c->mode == MOVE && !is_never(*at)) *at += c->times * (rests ? by : c->shift);
  if (c->mode != COMPARE || (by == 0 && (rests || is_never(c->now[place].whole)))) return;
  if (c->shift < 0) c->shift = by;
  if (decides && by > 0 && by < c->shift) c->slower |= *decides;
  else if (by != c->shift) c->differs = TRUE;
}

void ms_cycle_moments(MsCycle *c, MsTime *at, int n) {
  for (int i = 0; i < n; i++) moment(c, &at[i], FALSE, NULL);
}

void ms_cycle_end(MsCycle *c, MsTime *at) {
  if (c->mode == MOVE) *at += c->times * c->shift;
}

void ms_cycle_sum(MsCycle *c, MsTime *sum) {
  MsTime by = grown(c, *sum);
  if (c->mode == MOVE) *sum += c->times * by;
}

void ms_cycle_counts(MsCycle *c, int *sum, int n) {
  for (int i = 0; i < n; i++) {
    MsTime now = sum[i];
    ms_cycle_sum(c, &now);
    sum[i] = (int)now;
  }
}

/* Of a slower host figures may still tell that something waits for it, though nothing does in the end. */
static gboolean figure_differs(const MsCycle *c, guint at, double by) {
  return c->before > 0 && fabs(by - c->figure[at]) > 1e-9 * fabs(by) + 1e-12 * fabs(c->now[at].figure);
}

void ms_cycle_figures(MsCycle *c, double *sum, int n) {
  for (int i = 0; i < n; i++) {
    guint at = c->at;
    double kept = told(c, (Value){.figure = sum[i]}).figure;
    if (c->mode == KEEP || c->mode == TAKE) continue;
    double by = c->now[at].figure - kept;
    if (c->mode == MOVE) sum[i] += (double)c->times * by;
    else if (figure_differs(c, at, by)) c->unlike = TRUE;
    if (c->mode == COMPARE) c->figure[at] = by;
  }
}

void ms_cycle_same(MsCycle *c, gint64 number) {
  if (grown(c, number) != 0 && c->mode == COMPARE) c->differs = TRUE;
}

void ms_cycle_until(MsCycle *c, MsTime number, MsTime limit) {
  MsTime by = grown(c, number);
  if (c->mode == COMPARE && by > 0) c->times = MIN(c->times, MAX(0, limit - number) / by);
}

static void tell(MsCycle *c, int stage, Mode mode) {
  MsStages *s = c->stages;
  c->mode = mode;
  if (mode == KEEP) c->told[stage] = (int)c->values;
  c->at = (guint)c->told[stage];
  if (mode == KEEP || mode == TAKE) c->decides[stage] = s->host_decides[stage], s->host_decides[stage] = FALSE;
  ms_cycle_moments(c, &s->compute[stage], 1);
  ms_cycle_moments(c, &s->tip[stage], 1);
  moment(c, &s->host[stage], c->free_host[stage], c->free_host[stage] ? &c->decides[stage] : NULL);
  moment(c, &s->stream_f[stage], TRUE, NULL), moment(c, &s->stream_b[stage], TRUE, NULL);
  ms_cycle_moments(c, &s->send[2 * stage], 2);
  c->tell(c->visitor, stage, c);
  if (mode == KEEP) c->values = c->at;
}

/* --- the two moments ------------------------------------------------------------------------------------------- */

static int slots_of(const MsCycle *c, int stage) { return c->n * c->of[stage].slots; }

static void list_waiting(MsCycle *c) {
  c->n_waiting = ms_slot_walk_waiting(c->stages->walk, c->waiting, c->room);
  if (c->n_waiting <= c->room) return;
  c->room = 2 * c->n_waiting;
  c->waiting = g_renew(int, c->waiting, c->room), c->made = g_renew(MsTime, c->made, c->room);
  ms_slot_walk_waiting(c->stages->walk, c->waiting, c->room);
}

/* It is kept behind the first forwards of all chunks, and behind backwards that leave their head where others do not.
 */
static gboolean may_keep(const MsCycle *c) {
  MsTaken taken;
  int all = c->schedule->microbatches, deferred = ms_work_deferred(c->stages->p->work, all);
  for (int s = 0; s < c->schedule->stages; s++)
    if (ms_slot_walk_at(c->stages->walk, s) < c->of[s].from + (s == 0 ? c->settling : 0)) return FALSE;
  return ms_slot_walk_taken(c->stages->walk, &taken) && taken.forward > 0 &&
         (taken.back >= deferred || deferred == all);
}

static void keep(MsCycle *c) {
  if (!may_keep(c)) return;
  c->values = 0;
  for (int s = 0; s < c->schedule->stages; s++) {
    c->kept_at[s] = ms_slot_walk_at(c->stages->walk, s);
    tell(c, s, KEEP);
  }
  list_waiting(c);
  for (int i = 0; i < c->n_waiting; i++) c->made[i] = c->stages->made[c->waiting[i]];
  c->missing = c->schedule->stages;
}

/* Stages may be so far apart that some is beyond the moment after the later one; or what they do repeats itself every
 * few periods only. */
static gboolean too_few(const MsCycle *c) {
  enum { MOST_UNLIKE = 8 };
  for (int s = 0; s < c->schedule->stages; s++)
    if (ms_slot_walk_at(c->stages->walk, s) >= c->kept_at[s] + 2 * slots_of(c, s)) return TRUE;
  return c->unlike_in_a_row == MOST_UNLIKE;
}

/* The later moment becomes the kept one, or the next one is twice as far behind a new one. */
static void go_on(MsCycle *c) {
  c->missing = 0, c->unlike_in_a_row++;
  if (too_few(c)) {
    c->before = 0, c->unlike_in_a_row = 0, c->n *= 2;
    return;
  }
  memcpy(c->kept, c->now, c->values * sizeof *c->kept);
  for (int s = 0; s < c->schedule->stages; s++) c->kept_at[s] += slots_of(c, s);
  for (int i = 0; i < c->n_waiting; i++)
    c->waiting[i] += c->n * c->schedule->period, c->made[i] = c->stages->made[c->waiting[i]];
  c->missing = c->schedule->stages;
}

/* The same tensors are waited for some microbatches later. */
static void compare(MsCycle *c) {
  c->differs = c->slower = c->unlike = FALSE, c->shift = -1;
  for (int s = 0; s < c->schedule->stages && !c->differs; s++) tell(c, s, COMPARE);
  for (int i = 0; i < c->n_waiting && !c->differs; i++)
    c->differs = c->stages->made[c->waiting[i] + c->n * c->schedule->period] - c->made[i] != c->shift;
  c->differs |= c->shift <= 0;
}

/* As often as all that is left out lies within the repetition, and is nobody's last backward. */
static gint64 most_times(const MsCycle *c) {
  MsTaken taken;
  if (!ms_slot_walk_taken(c->stages->walk, &taken)) return 0;
  gint64 times = (taken.left - 1) / (c->n * c->schedule->period);
  for (int s = 0; s < c->schedule->stages; s++)
    times = MIN(times, (c->of[s].to - ms_slot_walk_at(c->stages->walk, s)) / slots_of(c, s));
  return MAX(0, times);
}

static gint refused;
static gsize left_out;

void ms_cycle_allow(gboolean allow) { g_atomic_int_set(&refused, !allow); }
gsize ms_cycle_left_out(void) { return (gsize)g_atomic_pointer_get(&left_out); }

static void leave_out(MsCycle *c) {
  int more = (int)c->times * c->n, microbatches = more * c->schedule->period;
  g_autofree int *slots = g_new(int, c->schedule->stages);
  MsTime *made = c->stages->made;
  for (int s = 0; s < c->schedule->stages; s++) {
    tell(c, s, MOVE);
    slots[s] = more * c->of[s].slots;
    g_atomic_pointer_add(&left_out, slots[s]);
  }
  list_waiting(c);
  for (int i = c->n_waiting; i-- > 0;) {
    MsTime at = made[c->waiting[i]];
    made[c->waiting[i] + microbatches] = is_never(at) ? at : at + c->times * c->shift;
  }
  ms_slot_walk_skip(c->stages->walk, slots, microbatches);
}

/* TRUE: what could be left out was. Where hosts that decide are slower the two moments have to be alike twice in a row.
 */
static gboolean ended(MsCycle *c) {
  c->times = most_times(c);
  if (c->times == 0) return TRUE;
  compare(c);
  if (c->differs || (c->slower && (c->before != c->shift || c->unlike))) {
    c->before = c->differs ? 0 : c->shift;
    go_on(c);
    return FALSE;
  }
  leave_out(c);
  return TRUE;
}

void ms_cycle_turn(MsCycle *c, const MsTurn *turn) {
  if (!c || c->n == 0 || !turn->closes) return;
  if (c->missing == 0) {
    if (turn->stage == 0 && turn->backward) keep(c);
  } else if (turn->index + 1 == c->kept_at[turn->stage] + slots_of(c, turn->stage)) {
    tell(c, turn->stage, TAKE);
    if (--c->missing == 0 && ended(c)) c->n = 0;
  }
}

/* --- */

static gboolean waits_for_device(const MsOpList *list) {
  for (int i = 0; i < list->n; i++)
    if (list->op[i].flags & MS_OPF_SYNC) return TRUE;
  return FALSE;
}

static void find_free_hosts(MsCycle *c) {
  const MsProgram *p = c->stages->p;
  g_autofree gboolean *waits = g_new(gboolean, MAX(1, p->work->n_pieces));
  for (int i = 0; i < p->work->n_pieces; i++)
    waits[i] = waits_for_device(&p->work->pieces[i].forward) || waits_for_device(&p->work->pieces[i].backward);
  for (int s = 0; s < c->schedule->stages; s++) {
    c->free_host[s] = !p->p2p_blocks;
    for (MsStagePiece at = ms_stage_pieces(p->work, s); ms_next_piece(&at);) c->free_host[s] &= !waits[at.piece];
  }
}

void ms_cycle_settle(MsCycle *c) {
  if (c) c->settling = 12;
}

MsCycle *ms_cycle_new(MsStages *stages, const MsSchedule *schedule, MsCycleTell own, gpointer visitor) {
  gsize n = (gsize)schedule->stages;
  if (schedule->period == 0 || g_atomic_int_get(&refused)) return NULL;
  MsCycle *c = g_new0(MsCycle, 1);
  *c = (MsCycle){
      .stages = stages, .schedule = schedule, .tell = own, .visitor = visitor, .of = schedule->repeat, .n = 1};
  c->kept_at = g_new(int, 4 * n), c->told = c->kept_at + n, c->free_host = c->told + n, c->decides = c->free_host + n;
  find_free_hosts(c);
  return c;
}

void ms_cycle_free(MsCycle *c) {
  if (!c) return;
  g_free(c->kept_at), g_free(c->kept), g_free(c->now), g_free(c->figure), g_free(c->waiting), g_free(c->made);
  g_free(c);
}
