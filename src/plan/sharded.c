/* src/plan/sharded.c - what sharded gradients and parameters move around every pass, of shapes that fit in no other
 * way.
 *
 * The first bound knows nothing of how states are sharded. A shape whose states fit only where FSDP reduces the
 * gradients of every pass, or gathers its parameters as well, takes at least what these rows keep a stream or a link
 * busy with, for all microbatches of a stage; of all ways that may fit the least. They depend on the sizes of the
 * groups, so that they are found once for all pieces of the same sizes. */
#include "plan/tree.h"
#include "base/hash.h"
#include <math.h>
#include <string.h>

typedef struct {
  gint32 value[MS_AXIS_PP + 1], map, work[2]; /* the combination of the keys of MS_ROLE_WORK */
} MovedKey;

typedef struct {
  MsFsdp fsdp;
  MsBusy *of; /* [n_pieces] */
} Moved;

MS_HASHED(key, MovedKey)
static void clear_moved(gpointer moved) { g_free(((Moved *)moved)->of); }
static void free_list(gpointer list) { g_array_unref(list); }

GHashTable *ms_sharded_new(void) { return g_hash_table_new_full(hash_key, equal_key, g_free, free_list); }

static MovedKey key_of(const MsSpace *space, const MsCandidate *c, int map) {
  gint64 work = c->combo / space->stride[MS_ROLE_WORK];
  MovedKey key = {.map = map, .work = {(gint32)(work >> 32), (gint32)work}};
  memcpy(key.value, c->value, sizeof key.value);
  return key;
}

static void add_moved(GArray *list, MsFsdp fsdp, const MsProgram *program) {
  int n = program->work->n_pieces;
  Moved own = {fsdp, g_new(MsBusy, n)};
  ms_bound_units(program, own.of);
  for (guint i = 0; i < list->len; i++) {
    const Moved *known = &g_array_index(list, Moved, i);
    if (known->fsdp != fsdp || memcmp(known->of, own.of, sizeof *own.of * (size_t)n)) continue;
    g_free(own.of);
    return;
  }
  g_array_append_val(list, own);
}

/* Some pipeline of that size: what is moved around the passes of a piece does not depend on where it stands. */
static void write_pipeline(int pp, MsScenario *s) {
  int layers = s->model->num_layers;
  ms_leave_pipeline_out(s);
  s->layout.pp = pp;
  if (pp == 1 || layers % pp == 0) return;
  GString *cut = g_string_new("E");
  for (int stage = 0; stage < pp; stage++) {
    if (stage > 0) g_string_append_c(cut, '|');
    for (int i = stage * layers / pp; i < (stage + 1) * layers / pp; i++) g_string_append_c(cut, 't');
  }
  for (int i = 0; i < s->model->mtp_num_layers; i++) g_string_append_c(cut, 'm');
  s->layout.pipeline_layout = g_string_free(g_string_append_c(cut, 'L'), FALSE);
}

/* One way of FSDP in all states, with the ranks in the order of `first`. */
static void add_way(const MsTree *t, const MsWork *work, MsCost *cost, const MsProgram *plain, MsScenario *s,
                    gint64 first, GArray *list) {
  const MsSpace *space = t->space;
  ms_space_apply_choices(space, MS_ROLE_WORK, first, s);
  for (gint64 state = 0; state < space->n_of_role[MS_ROLE_STATE]; state++) {
    ms_space_apply_choices(space, MS_ROLE_STATE, first + state * space->stride[MS_ROLE_STATE], s);
    if (s->options.fsdp < MS_FSDP_OPTIM_GRADS) continue;
    g_autoptr(MsProgram) program = ms_program_new_like(work, cost, plain->piece);
    add_moved(list, s->options.fsdp, program);
  }
}

/* All ways to shard with the ranks in the order of `c`. FALSE: there is no such pipeline, or the machine cannot. */
static gboolean add_order(const MsTree *t, MsPieceMemo *memo, const MsCandidate *c, GArray *list) {
  const MsSpace *space = t->space;
  g_autoptr(MsScenario) s = ms_space_scratch(space);
  gint64 stride = space->stride[MS_ROLE_STATE], own,
         first = c->combo - c->combo / stride % space->n_of_role[MS_ROLE_STATE] * stride;
  ms_space_apply_combo(space, first, s);
  ms_space_apply_axes(c->value, s);
  ms_space_write_least(space, s);
  write_pipeline(c->value[MS_AXIS_PP], s);
  if (ms_layout_check_kinds(s, MS_RULE_SPLIT) >= 0) return FALSE;
  g_autoptr(MsLayout) layout = ms_layout_build(s);
  MsCost *cost = ms_cost_new_like(memo->cost, s, layout, NULL);
  MsWork *work = ms_work_new_like(memo->work, s, layout, NULL);
  gboolean ok = cost && work && work->n_pieces == memo->n;
  g_autoptr(MsProgram) plain = ok ? ms_program_new(work, cost) : NULL;
  for (int i = 0; ok && (own = ms_gradients_nth(t, first, MS_LEVEL_ADDED, i)) >= 0; i++)
    add_way(t, work, cost, plain, s, own, list);
  g_clear_pointer(&plain, ms_program_free);
  ms_cost_free(cost);
  ms_work_free(work);
  return ok;
}

/* NULL: not known of them. */
static GArray *list_new(const MsTree *t, MsPieceMemo *memo, const MsCandidate *c) {
  const MsSpace *space = t->space;
  GArray *list = g_array_new(FALSE, FALSE, sizeof(Moved));
  gboolean known = space->request->base->pools.n == 0 && !memo->work->draw &&
                   !ms_space_choice(space, "options.num_distributed_optimizer_instances");
  const MsChoice *order = ms_space_choice(space, "layout.order");
  g_array_set_clear_func(list, clear_moved);
  for (int i = 0; known && i < (order ? order->n : 1); i++) {
    MsCandidate own = *c;
    if (order) own.combo = ms_choice_with(order, own.combo, i);
    known = add_order(t, memo, &own, list);
  }
  if (!known) g_array_set_size(list, 0);
  return list;
}

static const GArray *moved_of(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, int map, const MsCandidate *c) {
  const MovedKey key = key_of(t->space, c, map);
  GArray *list = g_hash_table_lookup(w->sharded, &key);
  if (!list) g_hash_table_insert(w->sharded, g_memdup2(&key, sizeof key), list = list_new(t, memo, c));
  return list;
}

MsTime ms_sharded_least(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, int map, const MsCandidate *c,
                        const MsShape *shape, guint ways) {
  const GArray *list = moved_of(t, w, memo, map, c);
  MsTime least = G_MAXINT64;
  for (guint i = 0; i < list->len; i++) {
    const Moved *own = &g_array_index(list, Moved, i);
    if (ways & 1u << own->fsdp) least = MIN(least, ms_bound_moved(shape, memo, own->of));
  }
  return least < G_MAXINT64 ? least : 0;
}

static double most_moved(const MsPieceMemo *memo, const MsBusy *of) {
  double most = 0;
  for (int q = 0; q < MS_N_STREAMS; q++) {
    double sum = 0;
    for (int i = 0; i < memo->n; i++) sum += (double)memo->in_model[i] * (double)of[i].stream[q];
    most = MAX(most, sum);
  }
  return most;
}

double ms_sharded_share(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, int map, const MsCandidate *c,
                        double microbatches, guint ways) {
  const GArray *list = moved_of(t, w, memo, map, c);
  double least = INFINITY;
  for (guint i = 0; i < list->len; i++) {
    const Moved *own = &g_array_index(list, Moved, i);
    if (ways & 1u << own->fsdp) least = MIN(least, microbatches * most_moved(memo, own->of));
  }
  return isfinite(least) ? least : 0;
}
