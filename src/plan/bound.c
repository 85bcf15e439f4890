/* src/plan/bound.c - step time and device memory of a layout from below, in a few dozen multiplications.
 *
 * The step of stage i is at least what its own pieces take for all microbatches, after the first chunk of every stage
 * before it has let the first microbatch through and before their last backwards (bound/bound.c). That is a sum over
 * pieces of a whole number times a time of the piece:
 *   - the times depend on the outer axes and the work keys: the memo, costed once for all (pp, vpp);
 *   - the whole numbers depend on pp, vpp and the number of microbatches: the shape, counted once for all memos.
 * Memory is the same kind of sum over parameters and kept bytes; beside it stand the largest buffers that a piece there
 * brings with it, what chunks receive, and transients: no stage keeps more than at the end of some forward, and the
 * last piece of that chunk still has its own then. A stage whose numbers are all no larger than another's decides
 * nothing and is left out of the shape, which is then two to five stages long whatever PP is. */
#include "plan/bound_priv.h"
#include "base/hash.h"
#include "base/kept.h"
#include "plan/cuts_priv.h"
#include "memory/memory.h"
#include "step/meeting.h"
#include "step/walk.h"
#include <math.h>
#include <string.h>

/* --- shapes ---------------------------------------------------------------------------------------------------- */

enum {
  RUN,
  STARTS,
  ENDS,
  AHEAD,
  LATE,
  LONE_F,
  LONE_B,
  N_COUNTS
};               /* of pieces in the time of a stage: that it runs; at the start and at the end of a chunk; on the way
                  * to and from it; first in the chunk that ends the stage's work; with EP overlap, forwards and
                  * backwards with no other beside them */
typedef struct { /* of one stage, by piece */
  gint64 *time;  /* [N_COUNTS][n] */
  gint32 *count; /* pieces that stand there */
  gint64 *live;  /* microbatches of them that are alive at once */
  guint8 *last;  /* TRUE: a chunk ends with it */
  int received;  /* chunks that get their input from another stage */
} StageCounts;

struct MsShape {
  int n, n_time, n_memory; /* pieces; stages that may decide the time, and the memory */
  int owners;              /* copies of the model that share its optimizer states */
  gboolean splits;         /* the schedule may run a backward in two parts */
  gboolean overlaps;       /* its steps may overlap */
  gint64 *time;            /* [n_time][N_COUNTS][n] */
  gint32 *count;           /* [n_memory][n] */
  gint64 *live;            /* [n_memory][n] */
  guint8 *last;            /* [n_memory][n] */
  int *received;           /* [n_memory] */
};

typedef struct {
  gint32 pp, vpp, microbatches, flush, shape_of, map, costs;
} ShapeKey;
typedef struct {
  MsShape *shape;
  int rule;
} ShapeEntry;

struct MsShapes {
  GHashTable *known;   /* ShapeKey -> ShapeEntry */
  GHashTable *by_cut;  /* the key without the costs, and the layout string -> the same entries, owned */
  GHashTable *by_rule; /* that refuses all of its cuts -> the same */
  GPtrArray *maps;     /* which layer is which piece, as bytes */
};

MS_HASHED(key, ShapeKey)

static void free_entry(gpointer data) {
  ShapeEntry *e = data;
  if (e->shape) {
    g_free(e->shape->time);
    g_free(e->shape->count);
    g_free(e->shape->live);
    g_free(e->shape->last);
    g_free(e->shape->received);
  }
  g_free(e->shape);
  g_free(e);
}

MsShapes *ms_shapes_new(void) {
  MsShapes *s = g_new0(MsShapes, 1);
  s->known = g_hash_table_new_full(hash_key, equal_key, g_free, NULL);
  s->by_cut = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_entry);
  s->by_rule = g_hash_table_new_full(NULL, NULL, NULL, free_entry);
  s->maps = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
  return s;
}

void ms_shapes_free(MsShapes *s) {
  if (!s) return;
  g_hash_table_unref(s->known);
  g_hash_table_unref(s->by_cut);
  g_hash_table_unref(s->by_rule);
  g_ptr_array_unref(s->maps);
  g_free(s);
}

int ms_shapes_map(MsShapes *s, const MsPieceMemo *memo) {
  const MsWork *w = memo->work;
  int layers = w->scenario->model->num_layers;
  const int ends[] = {w->n_pieces, w->piece_embedding, w->piece_head, w->piece_mtp, w->piece_mtp_again};
  size_t size = sizeof ends + sizeof(int) * (size_t)layers;
  g_autofree char *bytes = g_malloc(size);
  memcpy(bytes, ends, sizeof ends);
  memcpy(bytes + sizeof ends, w->piece_of_layer, size - sizeof ends);
  for (guint i = 0; i < s->maps->len; i++) {
    gsize n;
    const void *known = g_bytes_get_data(s->maps->pdata[i], &n);
    if (n == size && !memcmp(known, bytes, size)) return (int)i;
  }
  g_ptr_array_add(s->maps, g_bytes_new(bytes, size));
  return (int)s->maps->len - 1;
}

/* --- microbatches that are alive at some moment, behind a forward of the stage that no backward runs beside --- */

static MsKeep lives = {.most = 4096}; /* of schedules that have to be built to know it */

static gint64 *new_live(const MsScheduleNumbers *numbers) {
  return g_atomic_rc_box_alloc(MAX(1, sizeof(gint64) * (gsize)numbers->stages * (gsize)MAX(numbers->chunks, 0)));
}

static gint64 *live_of_schedule(MsScheduleKind kind, const MsScheduleNumbers *numbers) {
  char why[192];
  const gint64 is[] = {kind, numbers->stages, numbers->microbatches, numbers->chunks, numbers->group};
  g_autoptr(GByteArray) key = g_byte_array_append(g_byte_array_sized_new(sizeof is), (const guint8 *)is, sizeof is);
  gint64 *live = ms_kept_of(&lives, key);
  if (live) return live;
  g_autoptr(MsSchedule) schedule = ms_schedule_shared(kind, numbers, why, sizeof why);
  if (!schedule) return NULL;
  live = new_live(numbers);
  for (int s = 0; s < numbers->stages; s++) ms_schedule_most_in_flight(schedule, s, live + s * numbers->chunks);
  ms_kept_as(&lives, g_steal_pointer(&key), live);
  return live;
}

/* [stages][chunks]; where costs decide the schedule one is alive, behind the first forward. NULL: there is no such
 * schedule. To be given back to `lives`. */
static gint64 *alive_in(MsScheduleKind kind, const MsScheduleNumbers *numbers) {
  const MsScheduleRow *row = ms_schedule_row(kind);
  gboolean closed = row->live(numbers, 0, 0) > 0;
  if (!closed && row->costs != MS_COSTS_DECIDE) return live_of_schedule(kind, numbers);
  gint64 *live = new_live(numbers);
  for (int s = 0; s < numbers->stages; s++)
    for (int c = 0; c < numbers->chunks; c++) live[s * numbers->chunks + c] = closed ? row->live(numbers, s, c) : 1;
  return live;
}

static void count_stage(const MsScenario *s, const MsWork *w, const MsLayout *l, int stage, const gint64 *alive,
                        gint64 *before, StageCounts *out) {
  gint64 microbatches = ms_schedule_share(s->layout.schedule, l->microbatches);
  int n = w->n_pieces;
  memset(out->time, 0, sizeof *out->time * N_COUNTS * (size_t)n);
  memset(out->count, 0, sizeof *out->count * (size_t)n);
  memset(out->live, 0, sizeof *out->live * (size_t)n);
  memset(out->last, 0, sizeof *out->last * (size_t)n);
  out->received = 0;
  for (int c = 0; c < l->vpp; c++) {
    const MsChunk *chunk = ms_layout_chunk(l, stage, c);
    int length = ms_work_chunk_length(w, chunk);
    out->received += !chunk->has_embedding;
    if (length > 0) out->last[ms_work_chunk_piece(w, chunk, length - 1)] = TRUE;
    for (int i = 0; i < length; i++) {
      int piece = ms_work_chunk_piece(w, chunk, i);
      out->count[piece]++;
      out->live[piece] += alive[c];
      out->time[RUN * n + piece] += microbatches;
      if (i == 0) out->time[STARTS * n + piece] += microbatches;
      if (i == length - 1) out->time[ENDS * n + piece] += microbatches;
    }
  }
  if (!ms_schedule_ends_in_turn(s->layout.schedule)) return;
  for (int i = 0; i < n; i++) out->time[AHEAD * n + i] = before[i];
  const MsChunk *first = ms_layout_chunk(l, stage, 0);
  for (int i = 0; i < ms_work_chunk_length(w, first); i++) before[ms_work_chunk_piece(w, first, i)]++;
  if (stage > 0 && ms_work_chunk_length(w, first) > 0) out->time[LATE * n + ms_work_chunk_piece(w, first, 0)] = 1;
}

/* Turns of each two chunks of one stage, [vpp + 1][vpp + 1]: the last are those without a forward, or a backward. A
 * backward in two parts counts once. */
static void count_turns(const MsSchedule *schedule, int stage, int *turns) {
  int none = schedule->chunks, n = none + 1;
  memset(turns, 0, sizeof *turns * (size_t)(n * n));
  for (int i = 0; i < schedule->n[stage]; i++) {
    const MsSlot *slot = &schedule->slot[stage][i];
    if (slot->kind == MS_SLOT_FB) turns[slot->chunk * n + slot->chunk2]++;
    else if (slot->kind == MS_SLOT_F) turns[slot->chunk * n + none]++;
    else if (slot->kind != MS_SLOT_W) turns[none * n + slot->chunk]++;
  }
}

/* `times` one turn: pieces that run alone in it. */
static void count_lone(const MsWork *w, MsChunks of, gint64 times, gint64 *time) {
  MsPieceWalk walk = ms_piece_walk(w, of);
  while (ms_piece_next(&walk)) {
    if (walk.backward.at < 0) time[LONE_F * w->n_pieces + walk.forward.piece] += times;
    if (walk.forward.at < 0) time[LONE_B * w->n_pieces + walk.backward.piece] += times;
  }
}

/* Where passes run in pairs: those that do not, by the schedule alone. */
static void count_alone(const MsScenario *s, const MsWork *w, const MsLayout *l, StageCounts *stage) {
  char why[192];
  MsScheduleNumbers numbers = ms_layout_schedule_numbers(s, l);
  numbers.ep_overlap = TRUE;
  if (ms_schedule_row(s->layout.schedule)->costs == MS_COSTS_DECIDE) return;
  g_autoptr(MsSchedule) schedule = ms_schedule_shared(s->layout.schedule, &numbers, why, sizeof why);
  int n = l->vpp + 1;
  g_autofree int *turns = g_new(int, n *n);
  for (int i = 0; schedule && i < l->pp; i++) {
    count_turns(schedule, i, turns);
    for (int k = 0; k < n * n - 1; k++) {
      MsChunks of = {.forward = k / n < l->vpp ? ms_layout_chunk(l, i, k / n) : NULL,
                     .backward = k % n < l->vpp ? ms_layout_chunk(l, i, k % n) : NULL,
                     .kind = MS_SLOT_B};
      if (turns[k] > 0) count_lone(w, of, turns[k], stage[i].time);
    }
  }
}

static gboolean no_larger_time(const StageCounts *a, const StageCounts *b, int n) {
  static const gboolean takes_off[N_COUNTS] = {[STARTS] = TRUE, [ENDS] = TRUE, [LATE] = TRUE};
  for (int kind = 0; kind < N_COUNTS; kind++)
    for (int i = kind * n; i < (kind + 1) * n; i++)
      if (takes_off[kind] ? a->time[i] < b->time[i] : a->time[i] > b->time[i]) return FALSE;
  return TRUE;
}

static gboolean no_larger_memory(const StageCounts *a, const StageCounts *b, int n) {
  for (int i = 0; i < n; i++)
    if (a->count[i] > b->count[i] || a->live[i] > b->live[i] || a->last[i] < b->last[i]) return FALSE;
  return a->received <= b->received;
}

/* TRUE when stage k decides nothing: another is no smaller in everything (of equals the first stays). */
static gboolean decided(const StageCounts *stage, int stages, int k, int n,
                        gboolean (*no_larger)(const StageCounts *, const StageCounts *, int)) {
  for (int i = 0; i < stages; i++)
    if (i != k && no_larger(&stage[k], &stage[i], n) && (i < k || !no_larger(&stage[i], &stage[k], n))) return TRUE;
  return FALSE;
}

/* `pairs`: some of the space run with EP overlap. */
static MsShape *count_shape(const MsScenario *s, const MsWork *w, const MsLayout *l, gboolean pairs) {
  int n = w->n_pieces, stages = l->pp;
  size_t cells = (size_t)n * (size_t)stages;
  g_autofree gint64 *time = g_new(gint64, N_COUNTS * cells), *live = g_new(gint64, cells),
                    *before = g_new0(gint64, (gsize)n);
  g_autofree gint32 *count = g_new(gint32, cells);
  g_autofree guint8 *last = g_new(guint8, cells);
  g_autofree StageCounts *stage = g_new(StageCounts, stages);
  const MsScheduleNumbers numbers = {
      .stages = l->pp, .microbatches = l->flush, .chunks = l->vpp, .group = l->group_size, .f = 1, .i = 1, .w = 1};
  gint64 *alive = alive_in(s->layout.schedule, &numbers);
  g_autofree gint64 *none = g_new0(gint64, l->vpp);
  for (int i = 0; i < stages; i++) {
    size_t at = (size_t)i * (size_t)n;
    stage[i] = (StageCounts){time + N_COUNTS * at, count + at, live + at, last + at, 0};
    count_stage(s, w, l, i, alive ? alive + i * l->vpp : none, before, &stage[i]);
  }
  ms_kept_release(&lives, alive);
  if (pairs) count_alone(s, w, l, stage);
  MsShape *shape = g_new0(MsShape, 1);
  shape->n = n;
  shape->owners = ms_schedule_row(s->layout.schedule)->copies;
  shape->splits = ms_schedule_may_split(s->layout.schedule);
  shape->overlaps = ms_schedule_row(s->layout.schedule)->steps == MS_STEPS_OVERLAP && stages > 1;
  size_t row = N_COUNTS * (size_t)n;
  shape->time = g_new(gint64, row * (size_t)stages), shape->count = g_new(gint32, cells),
  shape->live = g_new(gint64, cells), shape->last = g_new(guint8, cells), shape->received = g_new(int, stages);
  for (int i = 0; i < stages; i++) {
    if (!decided(stage, stages, i, n, no_larger_time))
      memcpy(shape->time + (size_t)shape->n_time++ * row, stage[i].time, sizeof(gint64) * row);
    if (decided(stage, stages, i, n, no_larger_memory)) continue;
    memcpy(shape->count + shape->n_memory * n, stage[i].count, sizeof(gint32) * (size_t)n);
    memcpy(shape->live + shape->n_memory * n, stage[i].live, sizeof(gint64) * (size_t)n);
    memcpy(shape->last + shape->n_memory * n, stage[i].last, (size_t)n);
    shape->received[shape->n_memory++] = stage[i].received;
  }
  return shape;
}

gboolean ms_shape_same(const MsShape *a, const MsShape *b) {
  size_t cells = (size_t)a->n_memory * (size_t)a->n;
  return a->n == b->n && a->n_time == b->n_time && a->n_memory == b->n_memory && a->owners == b->owners &&
         a->splits == b->splits && a->overlaps == b->overlaps &&
         !memcmp(a->time, b->time, sizeof(gint64) * N_COUNTS * (size_t)a->n_time * (size_t)a->n) &&
         !memcmp(a->count, b->count, sizeof(gint32) * cells) && !memcmp(a->live, b->live, sizeof(gint64) * cells) &&
         !memcmp(a->last, b->last, cells) && !memcmp(a->received, b->received, sizeof(int) * (size_t)a->n_memory);
}

static ShapeEntry *refused_entry(MsShapes *shapes, int rule) {
  ShapeEntry *e = g_hash_table_lookup(shapes->by_rule, GINT_TO_POINTER(rule));
  if (e) return e;
  e = g_new0(ShapeEntry, 1);
  e->rule = rule;
  g_hash_table_insert(shapes->by_rule, GINT_TO_POINTER(rule), e);
  return e;
}

/* Of the cut that is written in. Rules about the split read nothing but what the key says. */
static ShapeEntry *entry_of(MsShapes *shapes, const ShapeKey *k, const MsPieceMemo *memo, const MsSpace *space,
                            const MsScenario *s) {
  g_autofree char *cut = g_strdup_printf("%d %d %d %d %d %d %s", k->pp, k->vpp, k->microbatches, k->flush, k->shape_of,
                                         k->map, s->layout.pipeline_layout ? s->layout.pipeline_layout : "");
  ShapeEntry *e = g_hash_table_lookup(shapes->by_cut, cut);
  if (e) return e;
  e = g_new0(ShapeEntry, 1);
  e->rule = ms_layout_check_kinds(s, MS_RULE_SPLIT);
  if (e->rule < 0) {
    g_autoptr(MsLayout) layout = ms_layout_build(s);
    gboolean pairs =
        space->request->base->options.ep_overlap || ms_request_leaves_open(space->request, "options.ep_overlap");
    e->shape = count_shape(s, memo->work, layout, pairs);
  }
  g_hash_table_insert(shapes->by_cut, g_steal_pointer(&cut), e);
  return e;
}

/* No cut is made where there is no schedule for it. */
static ShapeEntry *new_entry(MsShapes *shapes, const ShapeKey *k, const MsPieceMemo *memo, const MsSpace *space,
                             gint64 combo, MsScenario *s) {
  int rule = ms_layout_check_kinds(s, MS_RULE_PIPELINE);
  if (rule >= 0) return refused_entry(shapes, rule);
  const MsUnbalanced before = ms_space_try_balance(space, k->costs, ms_space_cut_of(space, combo), s);
  ShapeEntry *e =
      before.same ? refused_entry(shapes, ms_num_rules + MS_REFUSED_SAME) : entry_of(shapes, k, memo, space, s);
  ms_space_undo_balance(before, s);
  return e;
}

static ShapeKey key_of(int map, MsPieceMemo *memo, const MsSpace *space, const MsCandidate *c, const MsScenario *s) {
  const MsLayoutSpec *spec = &s->layout;
  int costs = ms_cut_costs(space, c->value, c->combo, ms_pieces_depend_on_cut(s) ? NULL : memo, s);
  gint64 dp = s->gpus / ((gint64)spec->tp * spec->cp * spec->pp);
  gint32 microbatches = (gint32)(s->training.global_batch_size / (s->training.micro_batch_size * dp));
  return (ShapeKey){
      spec->pp, spec->vpp, microbatches, ms_layout_flush(s, microbatches), ms_space_shape_of(space, c->combo),
      map,      costs};
}

const MsShape *ms_shapes_make(MsShapes *shapes, int map, MsPieceMemo *memo, const MsSpace *space, const MsCandidate *c,
                              MsScenario *s, int *rule) {
  const ShapeKey key = key_of(map, memo, space, c, s);
  const ShapeEntry *e = new_entry(shapes, &key, memo, space, c->combo, s);
  *rule = e->rule;
  return e->shape;
}

const MsShape *ms_shapes_get(MsShapes *shapes, int map, MsPieceMemo *memo, const MsSpace *space, const MsCandidate *c,
                             MsScenario *s, int *rule) {
  const ShapeKey key = key_of(map, memo, space, c, s);
  ShapeEntry *e = g_hash_table_lookup(shapes->known, &key);
  if (!e) {
    e = new_entry(shapes, &key, memo, space, c->combo, s);
    g_hash_table_insert(shapes->known, g_memdup2(&key, sizeof key), e);
  }
  *rule = e->rule;
  return e->shape;
}

/* --- the bounds ------------------------------------------------------------------------------------------------ */

MsTime ms_bound_time(const MsShape *shape, MsPieceMemo *memo) {
  const MsPieceTime *time = ms_memo_times(memo, shape->splits);
  MsTime step = 0;
  int n = shape->n;
  for (int k = 0; k < shape->n_time; k++) {
    const gint64 *times = shape->time + (size_t)k * N_COUNTS * (size_t)n;
    MsTime direct = 0, line = 0, ahead = 0, issue = 0;
    for (int i = 0; i < n; i++) {
      const MsPieceTime *t = &time[i];
      direct +=
          times[RUN * n + i] * t->direct + times[LONE_F * n + i] * t->lone[0] + times[LONE_B * n + i] * t->lone[1];
      line += times[RUN * n + i] * t->line - times[STARTS * n + i] * t->start - times[ENDS * n + i] * t->end;
      ahead += times[AHEAD * n + i] * t->ahead - times[LATE * n + i] * t->late;
      issue += times[RUN * n + i] * t->issue;
    }
    step = MAX(MAX(step, issue), MAX(direct - memo->ends[shape->splits], line) + ahead);
  }
  return step;
}

static MsTime most_of(const MsTime *time, int n) {
  MsTime most = 0;
  for (int i = 0; i < n; i++) most = MAX(most, time[i]);
  return most;
}

/* Links as ms_bound_streams has them: not where steps overlap, and not the network of a fabric. */
MsTime ms_bound_moved(const MsShape *shape, MsPieceMemo *memo, const MsBusy *unit) {
  const MsScenario *s = memo->scenario;
  const MsBusy *passes = ms_memo_busy(memo);
  int n = shape->n;
  MsTime most = 0;
  for (int k = 0; k < shape->n_time; k++) {
    const gint64 *run = shape->time + (size_t)k * N_COUNTS * (size_t)n + (size_t)RUN * (size_t)n;
    MsTime stream[MS_N_STREAMS] = {0}, link[2] = {0};
    for (int i = 0; i < n; i++) {
      for (int q = 0; q < MS_N_STREAMS; q++) stream[q] += run[i] * unit[i].stream[q];
      for (int q = 0; q < 2; q++) link[q] += run[i] * (unit[i].use[MS_USE_LINK0 + q] + passes[i].use[MS_USE_LINK0 + q]);
    }
    if (ms_program_meets(s)) link[1] = 0;
    most = MAX(most, MAX(most_of(stream, MS_N_STREAMS), shape->overlaps ? 0 : most_of(link, 2)));
  }
  return most;
}

MsTime ms_bound_passes(MsPieceMemo *memo, const MsScenario *s, MsTime limit) {
  return ms_relaxed_passes(s, memo->work, memo->piece, memo->lags, limit);
}

MsStateBytes ms_state_bytes(MsPieceMemo *memo, const MsScenario *s) {
  const MsOptions *o = &s->options;
  memo->scenario->options = *o;
  MsParamBytes b = ms_memory_param_bytes(ms_work_on_pool(memo->work, 0));
  for (int i = 1; i < s->pools.n; i++) { /* what differs between machines is how weights in low precision are kept */
    MsParamBytes there = ms_memory_param_bytes(ms_work_on_pool(memo->work, i));
    b.low_whole = MIN(b.low_whole, there.low_whole), b.low_unit = MIN(b.low_unit, there.low_unit);
    b.low_cached = MIN(b.low_cached, there.low_cached);
  }
  if (!ms_optimizer_matrix_second(s->training.optimizer) && !o->offload_optimizer_states)
    b.optimizer -= ms_dtype_B(o->exp_avg_sq_dtype) * (1 - o->optimizer_offload_fraction);
  MsStateBytes r = {.shared_B = b.optimizer,
                    .unit_gradient_B = b.unit_gradient,
                    .unit_expert_B = b.expert_unit_gradient,
                    .unit_B = b.unit,
                    .unit_low_B = b.low_unit,
                    .ends_B = b.ends,
                    .low_B = b.low_cached,
                    .shards = o->distributed_optimizer || o->fsdp != MS_FSDP_NONE,
                    .around = o->fsdp >= MS_FSDP_OPTIM_GRADS ? o->fsdp : MS_FSDP_NONE};
  if (o->fsdp < MS_FSDP_OPTIM_GRADS) r.whole_B += b.gradient;
  if (o->fsdp < MS_FSDP_OPTIM_GRADS_PARAMS) r.whole_B += b.whole, r.frozen_B = b.whole, r.low_B = b.low_whole - b.whole;
  return r;
}

/* Of a stage on `machine`, in bytes of `first`: the share of the memory is the same. */
static double on_machine(double allocated_B, const MsHardware *machine, const MsHardware *first) {
  double device_B = allocated_B * MAX(1, machine->reserve_ratio) + machine->context_B;
  return machine->hbm_B == first->hbm_B ? device_B : device_B * (first->hbm_B / machine->hbm_B);
}

typedef struct {
  double dense, expert, low, frozen;
} PerParam; /* bytes of a rank's states for each of its parameters */

/* `copies` of the model share the optimizer's. */
static PerParam per_param(const MsStateBytes *bytes, double dp_cp, double edp, int copies) {
  double dense_shards = bytes->shards ? MAX(1.0, dp_cp) * copies : 1,
         expert_shards = bytes->shards ? MAX(1.0, edp) * copies : 1;
  return (PerParam){bytes->whole_B + bytes->shared_B / dense_shards, bytes->whole_B + bytes->shared_B / expert_shards,
                    bytes->low_B, bytes->frozen_B};
}

static double states_of(const MsPieceMemo *memo, const PerParam *b, int i) {
  return b->dense * memo->dense[i] + b->expert * memo->expert[i] + b->low * memo->low[i] + b->frozen * memo->frozen[i];
}

/* What stands beside the states and what microbatches keep. */
typedef struct {
  double buffers, unit, ends, transient;
} Beside;

static void add_beside(Beside *b, const MsPieceMemo *memo, const MsStateBytes *bytes, int piece, gboolean last) {
  double dense = memo->dense[piece], expert = memo->expert[piece], low = memo->low[piece],
         all = dense + expert + memo->frozen[piece];
  b->buffers = MAX(b->buffers, memo->buffers[piece]);
  if (last) b->transient = MIN(b->transient, memo->transient[piece]);
  double unit = bytes->unit_gradient_B * dense + bytes->unit_expert_B * expert + bytes->unit_B * (all - low) +
                bytes->unit_low_B * low;
  if (memo->unit[piece]) b->unit = MAX(b->unit, unit);
  else b->ends += bytes->ends_B * all;
}

static double beside_B(const Beside *b) {
  return b->buffers + b->unit + b->ends + (isfinite(b->transient) ? b->transient : 0);
}

double ms_bound_device_B(const MsShape *shape, const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp,
                         double edp, const MsScenario *s) {
  const PerParam each = per_param(bytes, dp_cp, edp, shape->owners);
  double most = 0;
  int n = shape->n;
  for (int k = 0; k < shape->n_memory; k++) {
    const gint32 *count = shape->count + k * n;
    const gint64 *live = shape->live + k * n;
    Beside beside = {.transient = INFINITY};
    double sum = 0;
    int pool = 0;
    for (int i = 0; i < n; i++) {
      if (count[i] == 0) continue;
      pool = ms_work_pool_of_piece(memo->work, i);
      sum += count[i] * states_of(memo, &each, i) + (double)live[i] * memo->kept[i];
      add_beside(&beside, memo, bytes, i, shape->last[k * n + i]);
    }
    sum += beside_B(&beside) + shape->received[k] * ms_memory_received_B(ms_work_on_pool(memo->work, pool));
    if (s->pools.n > 0) most = MAX(most, on_machine(sum, s->pools.pool[pool].hardware, s->hardware));
    else most = MAX(most, sum);
  }
  return MS_ROUNDING * (s->pools.n > 0 ? most : on_machine(most, s->hardware, s->hardware));
}

double ms_bound_states_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp, int pp,
                         const MsScenario *s) {
  const PerParam each = per_param(bytes, dp_cp, edp, 1); /* more copies take no less */
  double sum = 0;
  if (s->pools.n > 0) return 0;
  for (int i = 0; i < memo->n; i++) sum += memo->in_model[i] * states_of(memo, &each, i);
  return (1 - 1e-9) * on_machine(sum / pp, s->hardware, s->hardware);
}

double ms_memo_kept_B(const MsPieceMemo *memo) {
  double sum = 0;
  for (int i = 0; i < memo->n; i++) sum += memo->in_model[i] * memo->kept[i];
  return sum;
}

gboolean ms_fewest_live(const MsScenario *s, double *live) {
  const MsLayoutSpec *l = &s->layout;
  gint64 replicas = s->gpus / ((gint64)l->tp * l->cp * l->pp);
  int group = l->microbatch_group_size_per_virtual_pipeline_stage;
  MsScheduleNumbers numbers = {.stages = l->pp,
                               .microbatches = ms_layout_flush(
                                   s, (int)(s->training.global_batch_size / (s->training.micro_batch_size * replicas))),
                               .chunks = ms_layout_chunks_per_rank(s),
                               .group = group > 0 ? group : l->pp,
                               .f = 1,
                               .i = 1,
                               .w = 1};
  gint64 *alive = alive_in(l->schedule, &numbers);
  for (int k = 0; alive && k < l->pp; k++) {
    gint64 least = G_MAXINT64;
    for (int c = 0; c < numbers.chunks; c++) least = MIN(least, alive[k * numbers.chunks + c]);
    live[k] = (double)least;
  }
  ms_kept_release(&lives, alive);
  return alive != NULL;
}

/* Weak duality. A piece i takes W(i, k) on stage k, its states and what live microbatches keep; with any weights y(k)
 * the stages together take at least the sum over pieces of the least y(k) W(i, k), and the fullest one no less than
 * that over the sum of y(k). With y(k) = 1 / W(last layer, k) the ratios W(i, k) / W(last layer, k) are monotonous in
 * the number of live microbatches, so that the fewest and the most decide. */
double ms_bound_cut_of_live_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp,
                              const MsLive *of, const MsScenario *s) {
  int layer = memo->work->piece_of_layer[s->model->num_layers - 1];
  if (s->pools.n > 0) return 0;
  const PerParam each = per_param(bytes, dp_cp, edp, of->copies);
  double few = INFINITY, many = 0, weights = 0, sum = 0, state = states_of(memo, &each, layer);
  for (int k = 0; k < of->pp; k++) {
    few = MIN(few, of->live[k]), many = MAX(many, of->live[k]);
    weights += 1 / (state + of->live[k] * memo->kept[layer]);
  }
  for (int i = 0; i < memo->n; i++) {
    double own = states_of(memo, &each, i), kept = memo->kept[i],
           with_few = (own + few * kept) / (state + few * memo->kept[layer]),
           with_many = (own + many * kept) / (state + many * memo->kept[layer]);
    sum += memo->in_model[i] * of->copies * MIN(with_few, with_many);
  }
  double buffers = INFINITY; /* of any piece */
  for (int i = 0; i < memo->n; i++) buffers = MIN(buffers, memo->buffers[i]);
  return isfinite(weights) ? (1 - 1e-9) * on_machine(sum / weights + buffers, s->hardware, s->hardware) : 0;
}

double ms_bound_any_cut_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp,
                          const MsScenario *s) {
  g_autofree double *live = g_new(double, s->layout.pp);
  if (!ms_fewest_live(s, live)) return 0;
  const MsLive own = {s->layout.pp, ms_schedule_row(s->layout.schedule)->copies, live};
  return ms_bound_cut_of_live_B(memo, bytes, dp_cp, edp, &own, s);
}
