/* src/sched/run.c - checks a schedule's lists, executes them with fixed durations, and counts what is live. */
#include "sched/build.h"

#include <string.h>

enum { HAS_F = 1, HAS_INPUT = 2, HAS_WEIGHT = 4, HAS_ALL = 7 };

/* What a slot does to the forward pass (mb, chunk) and the backward pass (mb2, chunk2). */
static gboolean has_forward(const MsSlot *slot) { return slot->kind == MS_SLOT_F || slot->kind == MS_SLOT_FB; }
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
  if (has_forward(slot)) {
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
  int owner, before, after, model;
} Place; /* of a virtual stage: its stage, its neighbours (-1 = none), which part of the model it is */

typedef struct {
  const MsSchedule *schedule;
  double duration[MS_N_SLOTS], comm;
  const double *forward, *backward; /* [model stages] instead of `duration`, when not NULL */
  int *here;                        /* [stages][chunks] virtual stage */
  Place *place;                     /* [virtual stages] */
  double *f_end, *b_end; /* [virtual stage][microbatch] end of forward and of input gradient; negative: not yet */
  double *clock;         /* [stages] end of the last slot that ran */
  size_t *base;          /* [stages] first slot of the stage in start and end */
  int *at;               /* [stages] next slot */
  int *queue;            /* stages that may be able to go on: a ring, each at most once */
  guint8 *queued;
  int head, length;
  double *start, *end;
} Run;

static double *pass_end(const Run *run, double *end, int virtual_stage, int mb) {
  return &end[(size_t)virtual_stage * run->schedule->microbatches + mb];
}
static int here(const Run *run, int stage, int chunk) { return run->here[stage * run->schedule->chunks + chunk]; }

/* Raises *ready to when the tensor made by (virtual_stage, mb) is here; FALSE when it is not made yet. No virtual
 * stage: nothing to wait for. */
static gboolean arrived(const Run *run, double *made, int virtual_stage, int mb, int stage, double *ready) {
  if (virtual_stage < 0) return TRUE;
  double end = *pass_end(run, made, virtual_stage, mb);
  if (end < 0) return FALSE;
  if (run->place[virtual_stage].owner != stage) end += run->comm;
  if (end > *ready) *ready = end;
  return TRUE;
}

static gboolean slot_ready(const Run *run, int stage, const MsSlot *slot, double *ready) {
  *ready = run->clock[stage];
  if (has_forward(slot) &&
      !arrived(run, run->f_end, run->place[here(run, stage, slot->chunk)].before, slot->mb, stage, ready))
    return FALSE;
  if (!has_input_gradient(slot)) return TRUE;
  return arrived(run, run->b_end, run->place[here(run, stage, backward_chunk(slot))].after, backward_mb(slot), stage,
                 ready);
}

static void wake(Run *run, int virtual_stage) {
  int stage = virtual_stage < 0 ? -1 : run->place[virtual_stage].owner;
  if (stage < 0 || run->queued[stage]) return;
  run->queued[stage] = 1;
  int end = run->head + run->length++;
  run->queue[end < run->schedule->stages ? end : end - run->schedule->stages] = stage;
}

static double slot_time(const Run *run, int stage, const MsSlot *slot) {
  if (!run->forward) return run->duration[slot->kind];
  double time = has_forward(slot) ? run->forward[run->place[here(run, stage, slot->chunk)].model] : 0;
  if (!has_input_gradient(slot) && !has_weight_gradient(slot)) return time;
  return time + run->backward[run->place[here(run, stage, backward_chunk(slot))].model] *
                    (has_input_gradient(slot) && has_weight_gradient(slot) ? 1 : 0.5);
}

static void execute_slot(Run *run, int stage, const MsSlot *slot, double start) {
  double end = run->clock[stage] = start + slot_time(run, stage, slot);
  size_t index = run->base[stage] + run->at[stage]++;
  run->start[index] = start, run->end[index] = end;
  if (has_forward(slot)) {
    int v = here(run, stage, slot->chunk);
    *pass_end(run, run->f_end, v, slot->mb) = end;
    wake(run, run->place[v].after);
  }
  if (has_input_gradient(slot)) {
    int v = here(run, stage, backward_chunk(slot));
    *pass_end(run, run->b_end, v, backward_mb(slot)) = end;
    wake(run, run->place[v].before);
  }
}

/* Runs every stage as far as it goes until none can go on. */
static void execute(Run *run) {
  const MsSchedule *schedule = run->schedule;
  for (int s = 0; s < schedule->stages; s++) run->queue[s] = s, run->queued[s] = 1;
  run->length = schedule->stages;
  while (run->length) {
    int stage = run->queue[run->head];
    double ready;
    run->head = run->head + 1 < schedule->stages ? run->head + 1 : 0, run->length--;
    run->queued[stage] = 0;
    while (run->at[stage] < schedule->n[stage] &&
           slot_ready(run, stage, &schedule->slot[stage][run->at[stage]], &ready))
      execute_slot(run, stage, &schedule->slot[stage][run->at[stage]], ready);
  }
}

/* Asked for in every slot, so worked out once. */
static void place_stages(Run *run) {
  const MsSchedule *schedule = run->schedule;
  run->here = g_new(int, schedule->stages * schedule->chunks);
  run->place = g_new(Place, schedule->stages * schedule->chunks);
  for (int stage = 0; stage < schedule->stages; stage++)
    for (int chunk = 0; chunk < schedule->chunks; chunk++) {
      int v = run->here[stage * schedule->chunks + chunk] = ms_virtual_stage(schedule, stage, chunk);
      run->place[v] = (Place){.owner = stage,
                              .before = ms_virtual_before(schedule, v),
                              .after = ms_virtual_after(schedule, v),
                              .model = schedule->placement == MS_PLACE_BIDIRECTIONAL ? v % schedule->stages : v};
    }
}

static void run_clear(Run *run) {
  g_free(run->here), g_free(run->place);
  g_free(run->f_end), g_free(run->b_end), g_free(run->clock), g_free(run->base), g_free(run->at), g_free(run->queue),
      g_free(run->queued);
}

/* Fills run->start and run->end. FALSE with why on deadlock. */
static gboolean run_lists(Run *run, char *why, size_t size) {
  const MsSchedule *schedule = run->schedule;
  size_t passes = (size_t)schedule->stages * schedule->chunks * schedule->microbatches, slots = 0;
  run->f_end = g_new(double, passes), run->b_end = g_new(double, passes);
  for (size_t k = 0; k < passes; k++) run->f_end[k] = run->b_end[k] = -1;
  place_stages(run);
  run->clock = g_new0(double, schedule->stages);
  run->base = g_new(size_t, schedule->stages);
  run->at = g_new0(int, schedule->stages);
  run->queue = g_new(int, schedule->stages);
  run->queued = g_new(guint8, schedule->stages);
  for (int s = 0; s < schedule->stages; s++) run->base[s] = slots, slots += schedule->n[s];
  run->start = g_new(double, slots), run->end = g_new(double, slots);
  execute(run);
  gboolean ok = TRUE;
  for (int s = 0; s < schedule->stages && ok; s++)
    if (run->at[s] < schedule->n[s]) {
      const MsSlot *slot = &schedule->slot[s][run->at[s]];
      ok = ms_schedule_refuse(why, size, "deadlock: stage %d waits for ever in slot %d (%s of microbatch %d, chunk %d)",
                              s, run->at[s], ms_slot_words[slot->kind], slot->mb, slot->chunk);
    }
  run_clear(run);
  return ok;
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

double ms_schedule_makespan(const MsSchedule *schedule, const double *forward, const double *backward) {
  Run run = {.schedule = schedule, .forward = forward, .backward = backward};
  double last = -1;
  if (run_lists(&run, NULL, 0))
    for (int s = 0, slots = 0; s < schedule->stages; s++) slots += schedule->n[s], last = MAX(last, run.end[slots - 1]);
  g_free(run.start), g_free(run.end);
  return last;
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
    if (has_forward(slot)) live++;
    peak = MAX(peak, live);
    if (has_weight_gradient(slot)) live--;
  }
  return peak;
}
