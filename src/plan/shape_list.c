/* src/plan/shape_list.c - the shapes that pieces may take at one pipeline size: every VPP and every combination of the
 * keys of MS_ROLE_SHAPE, equal shapes together. Most are equal or refused (rank orders, schedules without a bubble of
 * their own, VPP that does not divide), and which are is the same for many pieces. */
#include "base/hash.h"
#include "plan/cuts_priv.h"
#include "plan/tree.h"
#include <string.h>

void ms_tree_write_shape(const MsTree *t, MsTreeWorker *w, const MsCandidate *c) {
  MsScenario *s = w->scratch;
  s->layout.microbatch_group_size_per_virtual_pipeline_stage =
      t->space->request->base->layout.microbatch_group_size_per_virtual_pipeline_stage;
  ms_space_apply_choices(t->space, MS_ROLE_SHAPE, c->combo, s);
  ms_space_apply_axes(c->value, s);
}

typedef struct {
  gint32 pp, microbatches, flush, map, costs, shape_of;
} ListKey; /* shape_of: of the node, which has settled its shape where nothing is shared */

typedef struct {
  gint32 pp, flush, shape_of;
} LiveKey;

struct MsShapeLists {
  GHashTable *known; /* ListKey -> GArray of MsShapeGroup */
  GHashTable *lives; /* LiveKey -> GArray of MsLive */
  gint64 uses;       /* in all that are known */
  gint64 cut_choice; /* the first combination that leaves the cut to the planner; none before it does */
};

MS_HASHED(key, ListKey)
MS_HASHED(live, LiveKey)
static void clear_live(gpointer live) { g_free((gpointer)((MsLive *)live)->live); }
static void clear_group(gpointer group) { g_array_unref(((MsShapeGroup *)group)->use); }
static void free_list(gpointer list) { g_array_unref(list); }

MsShapeLists *ms_shape_lists_new(void) {
  MsShapeLists *l = g_new0(MsShapeLists, 1);
  l->known = g_hash_table_new_full(hash_key, equal_key, g_free, free_list);
  l->lives = g_hash_table_new_full(hash_live, equal_live, g_free, free_list);
  return l;
}

enum { MOST_USES = 1 << 22 }; /* 64 MiB of one thread's lists */

void ms_shape_lists_trim(MsShapeLists *l) {
  if (l->uses < MOST_USES) return;
  g_hash_table_remove_all(l->known);
  l->uses = 0;
}

void ms_shape_lists_free(MsShapeLists *l) {
  g_hash_table_unref(l->known);
  g_hash_table_unref(l->lives);
  g_free(l);
}

static int costs_of(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, MsCandidate c, gint64 choice) {
  c.combo += choice * t->space->stride[MS_ROLE_SHAPE];
  ms_tree_write_shape(t, w, &c);
  return ms_cut_costs(t->space, c.value, c.combo, memo, w->scratch);
}

/* Number of what the layers cost where the planner cuts them. */
static int costs_of_cut(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, const MsCandidate *c) {
  MsShapeLists *l = w->lists;
  if (c->value[MS_AXIS_PP] < 2) return -1;
  for (gint64 i = l->cut_choice, n = t->space->n_of_role[MS_ROLE_SHAPE]; i < n; i++) {
    int costs = costs_of(t, w, memo, *c, i);
    if (n > 1) l->cut_choice = costs < 0 ? i + 1 : i; /* of one it is up to the node */
    if (costs >= 0) return costs;
  }
  return -1;
}

static void add_use(GArray *list, int rule, int schedule, MsShapeUse use) {
  const MsShape *shape = use.shape;
  MsShapeGroup *group = NULL;
  for (guint i = 0; i < list->len && !group; i++) {
    MsShapeGroup *other = &g_array_index(list, MsShapeGroup, i);
    if (shape ? other->shape && (other->shape == shape || ms_shape_same(other->shape, shape))
              : !other->shape && other->rule == rule)
      group = other;
  }
  if (!group) {
    MsShapeGroup own = {.shape = shape, .rule = rule, .use = g_array_new(FALSE, FALSE, sizeof use)};
    g_array_append_val(list, own);
    group = &g_array_index(list, MsShapeGroup, list->len - 1);
  }
  group->schedules |= 1u << schedule, group->uses_of[schedule]++;
  g_array_append_val(group->use, use);
}

typedef struct {
  const MsShape *shape;
  int rule;
} Made;

/* The combination before this one, of keys of MS_ROLE_SHAPE, that has the same shape: it differs in the rank order
 * alone, or in keys that make no difference. -1: there is none. The axes and the combination are written in. */
static gint64 made_before(const MsTree *t, const MsTreeWorker *w, const MsCandidate *c, gint64 i) {
  gint64 stride = t->space->stride[MS_ROLE_SHAPE], node = c->combo - i * stride, n = t->space->n_of_role[MS_ROLE_SHAPE];
  if (t->of_order[i] < i) return t->of_order[i];
  gint64 beyond = ms_space_standing(t->space, c->combo, w->scratch) - node, stands = beyond / stride;
  return beyond >= 0 && beyond % stride == 0 && stands < MIN(i, n) ? stands : -1;
}

static GArray *list_new(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, int map, MsCandidate c) {
  const MsSpace *space = t->space;
  GArray *list = g_array_new(FALSE, FALSE, sizeof(MsShapeGroup));
  g_array_set_clear_func(list, clear_group);
  gint64 node = c.combo, n = space->n_of_role[MS_ROLE_SHAPE];
  g_autofree Made *made = g_new(Made, n);
  for (int k = 0; k < space->axis[MS_AXIS_VPP].n; k++)
    for (gint64 i = 0; i < n; i++) {
      Made *own = &made[i];
      c.value[MS_AXIS_VPP] = space->axis[MS_AXIS_VPP].value[k], c.combo = node + i * space->stride[MS_ROLE_SHAPE];
      ms_tree_write_shape(t, w, &c);
      gint64 before = made_before(t, w, &c, i);
      if (before >= 0) *own = made[before];
      else own->shape = ms_shapes_make(w->shapes, map, memo, space, &c, w->scratch, &own->rule);
      add_use(list, own->rule, t->schedule_of[i], (MsShapeUse){own->shape, c.value[MS_AXIS_VPP], (gint32)i});
    }
  return list;
}

static int microbatches_of(const MsTree *t, const gint32 *v) {
  gint64 dp = v[MS_AXIS_GPUS] / ((gint64)v[MS_AXIS_TP] * v[MS_AXIS_CP] * v[MS_AXIS_PP]);
  return (int)(t->space->request->base->training.global_batch_size / (v[MS_AXIS_MBS] * dp));
}

const GArray *ms_shape_list(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, int map, const MsCandidate *c) {
  const gint32 *v = c->value;
  int microbatches = microbatches_of(t, v), flush = ms_layout_flush(w->scratch, microbatches);
  const ListKey key = {
      v[MS_AXIS_PP], microbatches, flush, map, costs_of_cut(t, w, memo, c), ms_space_shape_of(t->space, c->combo)};
  GArray *list = g_hash_table_lookup(w->lists->known, &key);
  if (!list) {
    g_hash_table_insert(w->lists->known, g_memdup2(&key, sizeof key), list = list_new(t, w, memo, map, *c));
    w->lists->uses += (gint64)t->space->axis[MS_AXIS_VPP].n * t->space->n_of_role[MS_ROLE_SHAPE];
  }
  return list;
}

/* --- microbatches alive, whatever the cut --- */

/* Takes `live`. */
static void add_live(GArray *lives, int pp, int copies, double *live) {
  for (guint i = 0; i < lives->len; i++) {
    MsLive *known = &g_array_index(lives, MsLive, i);
    double *least = (double *)known->live;
    if (known->copies != copies) continue;
    for (int k = 0; k < pp; k++) least[k] = MIN(least[k], live[k]);
    g_free(live);
    return;
  }
  const MsLive own = {pp, copies, live};
  g_array_append_val(lives, own);
}

static GArray *lives_new(const MsTree *t, MsTreeWorker *w, MsCandidate c) {
  const MsSpace *space = t->space;
  GArray *lives = g_array_new(FALSE, FALSE, sizeof(MsLive));
  g_array_set_clear_func(lives, clear_live);
  gint64 node = c.combo;
  for (int k = 0; k < space->axis[MS_AXIS_VPP].n; k++)
    for (gint64 i = 0; i < space->n_of_role[MS_ROLE_SHAPE]; i++) {
      if (t->of_order[i] < i) continue;
      c.value[MS_AXIS_VPP] = space->axis[MS_AXIS_VPP].value[k], c.combo = node + i * space->stride[MS_ROLE_SHAPE];
      ms_tree_write_shape(t, w, &c);
      double *live = g_new(double, c.value[MS_AXIS_PP]);
      if (!ms_fewest_live(w->scratch, live)) g_free(live);
      else add_live(lives, c.value[MS_AXIS_PP], ms_schedule_row(w->scratch->layout.schedule)->copies, live);
    }
  return lives;
}

const GArray *ms_shape_lives(const MsTree *t, MsTreeWorker *w, const MsCandidate *c) {
  const LiveKey key = {c->value[MS_AXIS_PP], ms_layout_flush(w->scratch, microbatches_of(t, c->value)),
                       ms_space_shape_of(t->space, c->combo)};
  GArray *lives = g_hash_table_lookup(w->lists->lives, &key);
  if (!lives) g_hash_table_insert(w->lists->lives, g_memdup2(&key, sizeof key), lives = lives_new(t, w, *c));
  return lives;
}
