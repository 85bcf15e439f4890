/* src/sched/run.c - checks a schedule's lists, executes them with fixed durations, and counts what is live. */
#include "base/err.h"
#include "sched/build.h"
#include "sched/walk.h"

#include <string.h>

enum { HAS_F = 1, HAS_INPUT = 2, HAS_WEIGHT = 4, HAS_ALL = 7 };

/* What a slot does to the forward pass (mb, chunk) and the backward pass (mb2, chunk2). */
static gboolean has_input_gradient(const MsSlot *slot) {
  return slot->kind == MS_SLOT_B || slot->kind == MS_SLOT_I || slot->kind == MS_SLOT_FB;
}
static gboolean has_weight_gradient(const MsSlot *slot) {
  return slot->kind == MS_SLOT_B || slot->kind == MS_SLOT_W || slot->kind == MS_SLOT_FB;
}
static int backward_mb(const MsSlot *slot) { return slot->kind == MS_SLOT_FB ? slot->mb2 : slot->mb; }
static int backward_chunk(const MsSlot *slot) { return slot->kind == MS_SLOT_FB ? slot->chunk2 : slot->chunk; }

/* --- lists ----------------------------------------------------------------------------------------------------- */

static guint8 *pass_of(const MsSchedule *schedule, guint8 *seen, int mb, int chunk) {
  if (chunk < 0 || chunk >= schedule->chunks) return NULL;
  int first, count;
  ms_chunk_microbatches(schedule, chunk, &first, &count);
  if (mb < first || mb >= first + count) return NULL;
  return &seen[(size_t)chunk * schedule->microbatches + mb];
}

/* Marks what the slot does; the reason when it may not do so now, else NULL. */
static const char *mark_slot(const MsSchedule *schedule, guint8 *seen, const MsSlot *slot) {
  if (slot->kind >= MS_N_SLOTS) return "is of no known kind";
  if (has_input_gradient(slot) ||
      has_weight_gradient(slot)) { /* before the forward: a pair may not hold both passes of one microbatch and chunk */
    guint8 *pass = pass_of(schedule, seen, backward_mb(slot), backward_chunk(slot));
    if (!pass) return "names a backward pass that does not exist on this stage";
    if (!(*pass & HAS_F)) return "comes before its forward pass";
    if (has_input_gradient(slot) && *pass & HAS_INPUT) return "repeats an input gradient";
    if (has_weight_gradient(slot) && *pass & HAS_WEIGHT) return "repeats a weight gradient";
    if (!has_input_gradient(slot) && !(*pass & HAS_INPUT)) return "comes before its input gradient";
    *pass |= (has_input_gradient(slot) ? HAS_INPUT : 0) | (has_weight_gradient(slot) ? HAS_WEIGHT : 0);
  }
  if (ms_slot_has_forward(slot)) {
    guint8 *pass = pass_of(schedule, seen, slot->mb, slot->chunk);
    if (!pass) return "names a forward pass that does not exist on this stage";
    if (*pass & HAS_F) return "repeats a forward pass";
    *pass |= HAS_F;
  }
  return NULL;
}

static gboolean stage_complete(const MsSchedule *schedule, int stage, const guint8 *seen, char *why, size_t size) {
  for (int c = 0; c < schedule->chunks; c++) {
    int first, count;
    ms_chunk_microbatches(schedule, c, &first, &count);
    for (int mb = first; mb < first + count; mb++) {
      guint8 has = seen[(size_t)c * schedule->microbatches + mb];
      if (has != HAS_ALL)
        return ms_schedule_refuse(why, size, "stage %d: microbatch %d of chunk %d has no %s", stage, mb, c,
                                  !(has & HAS_F)    ? "forward pass"
                                  : has & HAS_INPUT ? "weight gradient"
                                                    : "backward pass");
    }
  }
  return TRUE;
}

static gboolean lists_valid(const MsSchedule *schedule, char *why, size_t size) {
  size_t passes = (size_t)schedule->chunks * schedule->microbatches;
  if (schedule->stages < 1 || schedule->microbatches < 1 || schedule->chunks < 1)
    return ms_schedule_refuse(why, size, "no stages, microbatches or chunks");
  if (schedule->placement != MS_PLACE_ROUND_ROBIN && schedule->chunks != 2)
    return ms_schedule_refuse(why, size, "this placement has 2 chunks per stage, not %d", schedule->chunks);
  if (schedule->placement == MS_PLACE_BIDIRECTIONAL && schedule->microbatches % 2)
    return ms_schedule_refuse(why, size, "bidirectional placement needs an even number of microbatches");
  g_autofree guint8 *seen = g_malloc(passes);
  for (int s = 0; s < schedule->stages; s++) {
    memset(seen, 0, passes);
    for (int k = 0; k < schedule->n[s]; k++) {
      const MsSlot *slot = &schedule->slot[s][k];
      const char *reason = mark_slot(schedule, seen, slot);
      if (reason)
        return ms_schedule_refuse(why, size, "stage %d, slot %d (%s of microbatch %d, chunk %d) %s", s, k,
                                  slot->kind < MS_N_SLOTS ? ms_slot_words[slot->kind] : "?", slot->mb, slot->chunk,
                                  reason);
    }
    if (!stage_complete(schedule, s, seen, why, size)) return FALSE;
  }
  return TRUE;
}

/* --- execution ------------------------------------------------------------------------------------------------- */

typedef struct {
  const MsSchedule *schedule;
  double duration[MS_N_SLOTS], comm;
  double *start, *end; /* of every slot, stage after stage */
} Run;

static double turn_time(const Run *run, const MsTurn *turn) {
  const MsSlotPass *f = turn->forward, *b = turn->backward;
  return run->duration[f && b ? MS_SLOT_FB : f ? MS_SLOT_F : b->kind];
}

static void hand_over(const Run *run, double *made, const MsSlotPass *pass, double end) {
  if (pass->out >= 0) made[pass->out] = end + (pass->goes ? run->comm : 0);
  if (pass->kept >= 0) made[pass->kept] = end;
}

/* Fills run->start and run->end. FALSE with why on deadlock. */
static gboolean run_lists(Run *run, char *why, size_t size) {
  const MsSchedule *schedule = run->schedule;
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(schedule, MS_ALL_STAGES, TRUE);
  g_autofree double *clock = g_new0(double, schedule->stages), *made = g_new(double, ms_slot_walk_tensors(walk));
  g_autofree size_t *base = g_new(size_t, schedule->stages);
  size_t slots = 0;
  for (int s = 0; s < schedule->stages; s++) base[s] = slots, slots += schedule->n[s];
  run->start = g_new(double, slots), run->end = g_new(double, slots);
  for (const MsTurn *turn; (turn = ms_slot_walk_next(walk));) {
    const MsSlotPass *f = turn->forward, *b = turn->backward;
    double start = clock[turn->stage];
    if (f && f->in >= 0) start = MAX(start, made[f->in]);
    if (b) start = MAX(start, made[b->in]);
    size_t i = base[turn->stage] + turn->index;
    run->start[i] = start, run->end[i] = clock[turn->stage] = start + turn_time(run, turn);
    if (f) hand_over(run, made, f, run->end[i]);
    if (b) hand_over(run, made, b, run->end[i]);
  }
  int at, stuck = ms_slot_walk_stuck(walk, &at);
  if (stuck < 0) return TRUE;
  const MsSlot *slot = &schedule->slot[stuck][at];
  return ms_schedule_refuse(why, size, "deadlock: stage %d waits for ever in slot %d (%s of microbatch %d, chunk %d)",
                            stuck, at, ms_slot_words[slot->kind], slot->mb, slot->chunk);
}

gboolean ms_schedule_valid(const MsSchedule *schedule, char *why, size_t size) {
  if (!lists_valid(schedule, why, size)) return FALSE;
  Run run = {.schedule = schedule, .duration = {1, 2, 1, 1, 3}};
  gboolean ok = run_lists(&run, why, size);
  g_free(run.start), g_free(run.end);
  return ok;
}

static void summarize(const MsSchedule *schedule, MsScheduleRun *result, double pass_time) {
  size_t base = 0;
  for (int s = 0; s < schedule->stages; base += schedule->n[s++]) {
    double last = result->end[base + schedule->n[s] - 1];
    result->makespan = MAX(result->makespan, last);
    result->span = MAX(result->span, last - result->start[base]);
  }
  int first, count, passes = 0;
  for (int c = 0; c < schedule->chunks; c++) ms_chunk_microbatches(schedule, c, &first, &count), passes += count;
  result->bubble_fraction = result->span > 0 ? 1 - passes * pass_time / result->span : 0;
}

MsScheduleRun *ms_schedule_run(const MsSchedule *schedule, double f, double i, double w, double pair, double comm) {
  if (!lists_valid(schedule, NULL, 0)) return NULL;
  Run run = {.schedule = schedule, .duration = {f, i + w, i, w, pair}, .comm = comm};
  MsScheduleRun *result = g_new0(MsScheduleRun, 1);
  gboolean ok = run_lists(&run, NULL, 0);
  result->start = run.start, result->end = run.end;
  if (!ok) return ms_schedule_run_free(result), NULL;
  summarize(schedule, result, f + i + w);
  return result;
}

/* --- executed again and again ---------------------------------------------------------------------------------- */

enum { FORWARD, BACKWARD, HALF, N_TIMES }; /* of each stage of the model: what a pass takes */

typedef struct { /* places in `time` and `made`; what a turn does not have takes nothing, is there, goes nowhere */
  gint32 stage, time[2], in[2], comes[2], out[2], kept; /* comes: of `in` what a message brings */
} Turn;

/* Of one pass that leaves nothing for a weight gradient. Other turns by their number, [n] = none: the one before it on
 * its stage, the one that makes its input, and that one where a message brings it. */
typedef struct {
  gint32 time, before, in, comes;
} PlainTurn;

struct MsScheduleTurns {
  int stages, model_stages, n, tensors; /* tensors: behind them one that is there from the start, one nobody takes */
  Turn *turn;                           /* [n] */
  PlainTurn *plain;                     /* [n] the same, NULL: some are not */
  int *last;                            /* [stages] last turn; with `plain` */
};

void ms_schedule_turns_free(MsScheduleTurns *t) {
  if (!t) return;
  g_free(t->turn);
  g_free(t->plain);
  g_free(t->last);
  g_free(t);
}

static void add_pass(const MsScheduleTurns *t, const MsSlotPass *pass, int half, Turn *turn) {
  turn->time[half] = N_TIMES * t->model_stages, turn->out[half] = t->tensors + 1;
  turn->in[half] = turn->comes[half] = t->tensors;
  if (!pass) return;
  int what = pass->kind == MS_SLOT_F ? FORWARD : pass->kind == MS_SLOT_B ? BACKWARD : HALF;
  turn->time[half] = what * t->model_stages + pass->here % t->model_stages;
  if (pass->in >= 0) turn->in[half] = pass->in;
  if (pass->in >= 0 && pass->comes) turn->comes[half] = pass->in;
  if (pass->out >= 0) turn->out[half] = pass->out;
  if (pass->kept >= 0) turn->kept = pass->kept;
}

/* Turns that wait for none of one another stand side by side: a processor runs several of them at once. */
static void sort_by_depth(MsScheduleTurns *t) {
  g_autofree int *depth = g_new(int, t->n), *of_stage = g_new0(int, t->stages),
                 *of_tensor = g_new0(int, t->tensors + 2), *first = g_new0(int, t->n + 2);
  for (int i = 0; i < t->n; i++) {
    const Turn *turn = &t->turn[i];
    int own = MAX(of_stage[turn->stage], MAX(of_tensor[turn->in[0]], of_tensor[turn->in[1]]));
    depth[i] = own, first[own + 1]++;
    of_stage[turn->stage] = of_tensor[turn->out[0]] = of_tensor[turn->out[1]] = of_tensor[turn->kept] = own + 1;
    of_tensor[t->tensors + 1] = 0;
  }
  for (int i = 0; i < t->n; i++) first[i + 1] += first[i];
  Turn *sorted = g_new(Turn, MAX(t->n, 1));
  for (int i = 0; i < t->n; i++) sorted[first[depth[i]]++] = t->turn[i];
  g_free(t->turn);
  t->turn = sorted;
}

static gboolean is_plain(const MsScheduleTurns *t, const Turn *turn) {
  const int nothing = N_TIMES * t->model_stages;
  return turn->kept == t->tensors + 1 && (turn->time[0] == nothing || turn->time[1] == nothing);
}

static void make_plain(MsScheduleTurns *t) {
  for (int i = 0; i < t->n; i++)
    if (!is_plain(t, &t->turn[i])) return;
  g_autofree int *maker = g_new(int, t->tensors + 2);
  for (int i = 0; i < t->tensors + 2; i++) maker[i] = t->n;
  t->plain = g_new(PlainTurn, MAX(t->n, 1)), t->last = g_new(int, t->stages);
  for (int i = 0; i < t->stages; i++) t->last[i] = t->n;
  for (int i = 0; i < t->n; i++) {
    const Turn *turn = &t->turn[i];
    int half = turn->time[0] == N_TIMES * t->model_stages;
    t->plain[i] = (PlainTurn){turn->time[half], t->last[turn->stage], maker[turn->in[half]], maker[turn->comes[half]]};
    t->last[turn->stage] = i;
    if (turn->out[half] < t->tensors) maker[turn->out[half]] = i;
  }
}

MsScheduleTurns *ms_schedule_turns_new(const MsSchedule *s) {
  gboolean copies = s->placement == MS_PLACE_BIDIRECTIONAL;
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(s, MS_ALL_STAGES, TRUE);
  MsScheduleTurns *t = g_new0(MsScheduleTurns, 1);
  int slots = 0, at;
  for (int i = 0; i < s->stages; i++) slots += s->n[i];
  t->stages = s->stages, t->model_stages = copies ? s->stages : s->stages * s->chunks;
  t->tensors = ms_slot_walk_tensors(walk);
  t->turn = g_new(Turn, MAX(slots, 1));
  for (const MsTurn *turn; (turn = ms_slot_walk_next(walk));) {
    Turn *own = &t->turn[t->n++];
    own->stage = turn->stage, own->kept = t->tensors + 1;
    add_pass(t, turn->forward, 0, own), add_pass(t, turn->backward, 1, own);
  }
  if (ms_slot_walk_stuck(walk, &at) >= 0) return ms_schedule_turns_free(t), NULL;
  sort_by_depth(t), make_plain(t);
  return t;
}

int ms_schedule_turns_count(const MsScheduleTurns *t) { return t->n; }

/* What a pass takes and its host, of each stage of the model; the clocks; and of turns what they make, or when they
 * have ended and had been issued. */
size_t ms_schedule_turns_scratch(const MsScheduleTurns *t) {
  size_t of_turns = t->plain ? 2 * ((size_t)t->n + 1) : (size_t)t->tensors + 2;
  return 4 * ((size_t)N_TIMES * (size_t)t->model_stages + 1) + (size_t)t->stages + of_turns;
}

/* time[N_TIMES * n + 1] */
static void write_times(const MsScheduleTurns *t, const MsPassTimes *passes, double *time) {
  size_t n = (size_t)t->model_stages;
  memcpy(time + FORWARD * n, passes->forward, sizeof *time * n);
  memcpy(time + BACKWARD * n, passes->backward, sizeof *time * n);
  for (size_t k = 0; k < n; k++) time[HALF * n + k] = passes->backward[k] / 2;
  time[N_TIMES * n] = 0;
}

/* issue, late, early, issued: NULL, the host is always ahead. made: [tensors + 2], of plain turns when each has ended,
 * [n + 1]. issued: of plain turns when each had been issued, [n + 1]. */
typedef struct {
  double *time, *issue, *late, *early, *clock, *made, *issued;
  gboolean waits;
} TurnTimes;

static void take_clocks(const MsScheduleTurns *t, const TurnTimes *x) {
  for (int s = 0; s < t->stages; s++) x->clock[s] = x->made[t->last[s]];
}

static void run_plain(const MsScheduleTurns *t, const TurnTimes *x) {
  const double *restrict time = x->time;
  double *made = x->made;
  made[t->n] = 0;
  for (int i = 0; i < t->n; i++) {
    const PlainTurn *turn = &t->plain[i];
    made[i] = MAX(made[turn->before], made[turn->in]) + time[turn->time];
  }
  take_clocks(t, x);
}

static inline double begins_at(const TurnTimes *x, const PlainTurn *turn) {
  return MAX(x->made[turn->before], x->made[turn->in]);
}

/* When the host may begin with a turn, whatever the device does: it has issued the one before it. */
static inline double ready_at(const TurnTimes *x, const PlainTurn *turn) {
  return x->waits ? MAX(x->issued[turn->before], x->made[turn->comes]) : x->issued[turn->before];
}

static inline double issued_at(const TurnTimes *x, const PlainTurn *turn) {
  return MAX(ready_at(x, turn), begins_at(x, turn) - x->early[turn->time]) + x->issue[turn->time];
}

static void run_plain_issued(const MsScheduleTurns *t, const TurnTimes *x) {
  double *made = x->made, *issued = x->issued;
  made[t->n] = issued[t->n] = 0;
  for (int i = 0; i < t->n; i++) {
    const PlainTurn *turn = &t->plain[i];
    issued[i] = issued_at(x, turn);
    made[i] = MAX(begins_at(x, turn) + x->time[turn->time], issued[i] + x->late[turn->time]);
  }
  take_clocks(t, x);
}

static void run_any(const MsScheduleTurns *t, const TurnTimes *x) {
  memset(x->clock, 0, sizeof *x->clock * (size_t)t->stages);
  x->made[t->tensors] = 0;
  for (const Turn *turn = t->turn, *end = turn + t->n; turn < end; turn++) {
    double at = x->clock[turn->stage];
    at = MAX(at, x->made[turn->in[0]]), at = MAX(at, x->made[turn->in[1]]);
    at += x->time[turn->time[0]] + x->time[turn->time[1]];
    x->clock[turn->stage] = x->made[turn->out[0]] = x->made[turn->out[1]] = x->made[turn->kept] = at;
  }
}

/* Where they stand in the scratch. */
static TurnTimes times_in(const MsScheduleTurns *t, double *scratch, gboolean issued, gboolean waits) {
  size_t own = (size_t)N_TIMES * (size_t)t->model_stages + 1;
  TurnTimes x = {.time = scratch, .clock = scratch + 4 * own, .waits = waits};
  x.made = x.clock + t->stages;
  if (!issued) return x;
  x.issue = scratch + own, x.late = scratch + 2 * own, x.early = scratch + 3 * own;
  x.issued = x.made + t->n + 1;
  return x;
}

double ms_schedule_turns_end(const MsScheduleTurns *t, const MsPassTimes *passes, const MsPassHost *host,
                             double *scratch) {
  TurnTimes x = times_in(t, scratch, host != NULL, host && host->waits);
  double last = 0;
  write_times(t, passes, x.time);
  if (host) {
    if (!t->plain) MS_BUG("a schedule whose slots have two passes, or half a backward, has a host");
    write_times(t, &host->issue, x.issue), write_times(t, &host->late, x.late), write_times(t, &host->early, x.early);
  }
  (!t->plain ? run_any : host ? run_plain_issued : run_plain)(t, &x);
  for (int s = 0; s < t->stages; s++) last = MAX(last, x.clock[s]);
  return last;
}

const double *ms_schedule_turns_clock(const MsScheduleTurns *t, const double *scratch) {
  return scratch + 4 * (N_TIMES * t->model_stages + 1);
}

gboolean ms_schedule_turns_path(const MsScheduleTurns *t, int stage, gboolean issued, gboolean waits, double *scratch,
                                int *count) {
  const TurnTimes x = times_in(t, scratch, issued, waits);
  size_t n = (size_t)t->model_stages;
  memset(count, 0, sizeof *count * MS_N_PASS_TIMES * n);
  if (!t->plain) return FALSE;
  gboolean on_host = FALSE; /* what is asked is when turn i was issued */
  for (int i = t->last[stage]; i < t->n;) {
    const PlainTurn *turn = &t->plain[i];
    int *own = count + turn->time;
    if (!on_host && issued && x.made[i] == x.issued[i] + x.late[turn->time]) own[MS_PASS_IS_LATE * n]++, on_host = TRUE;
    own[(on_host ? MS_PASS_ISSUES : MS_PASS_TAKES) * n]++;
    if (on_host && ready_at(&x, turn) < begins_at(&x, turn) - x.early[turn->time])
      own[MS_PASS_IS_EARLY * n]++, on_host = FALSE;
    if (!on_host) {
      i = x.made[turn->before] >= x.made[turn->in] ? turn->before : turn->in;
    } else {
      on_host = !waits || x.issued[turn->before] >= x.made[turn->comes];
      i = on_host ? turn->before : turn->comes;
    }
  }
  return TRUE;
}

void ms_schedule_run_free(MsScheduleRun *run) {
  if (!run) return;
  g_free(run->start), g_free(run->end), g_free(run);
}

/* --- live forwards --------------------------------------------------------------------------------------------- */

int ms_schedule_peak_in_flight(const MsSchedule *schedule, int stage) {
  int live = 0, peak = 0;
  for (int k = 0; k < schedule->n[stage]; k++) {
    const MsSlot *slot = &schedule->slot[stage][k];
    if (ms_slot_has_forward(slot)) live++;
    peak = MAX(peak, live);
    if (has_weight_gradient(slot)) live--;
  }
  return peak;
}

void ms_schedule_most_in_flight(const MsSchedule *schedule, int stage, gint64 *live) {
  size_t size = sizeof *live * (size_t)schedule->chunks;
  g_autofree gint64 *now = g_malloc0(size);
  gint64 sum = 0, most = 0;
  memset(live, 0, size);
  for (int k = 0; k < schedule->n[stage]; k++) {
    const MsSlot *slot = &schedule->slot[stage][k];
    if (ms_slot_has_forward(slot)) now[slot->chunk]++, sum++;
    if (has_weight_gradient(slot)) now[backward_chunk(slot)]--, sum--;
    if (slot->kind == MS_SLOT_F && sum > most) most = sum, memcpy(live, now, size);
  }
}
