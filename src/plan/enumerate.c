/* src/plan/enumerate.c - every layout of the space: ruled out, or bounded in time and memory.
 *
 * A unit is one setting of the outer axes (GPUs, TP, CP, EP, ETP, microbatch size). Within it the rules are asked once
 * for each (pp, vpp) and class of combinations that look alike to them; the pieces of work are costed once for each
 * combination of work keys; a bound is computed once for each combination of state keys, and combinations that differ
 * only in blind keys share it. Units are independent: threads and ranks share them out. */
#include "plan/enumerate_priv.h"
#include "plan/bins_priv.h"
#include "plan/bound_priv.h"
#include "plan/cuts_priv.h"
#include "plan/parallel_priv.h"
#include "base/err.h"
#include "base/ranks.h"
#include "base/io.h"
#include "base/units.h"
#include <math.h>
#include <string.h>

typedef struct { /* what one thread found */
  GArray *candidates;
  MsRefusedTable refused;
  guint64 valid, bounded;
  MsShapes *shapes;
  MsScenario *scratch, *second;
  gboolean *passes;  /* [pp][vpp][class] obeys the rules about ranks */
  MsPieceMemo *last; /* the next one is much like it */
} Finder;

typedef struct {
  MsSearch *search;
  MsSpace *space;
  gint64 n_work;  /* combinations of keys that change rows */
  Finder *finder; /* [threads] */
  int n_units, threads;
  gint done;
} Enumeration;

/* Writes axis values over whatever was there: the microbatch group may have been a multiple of another PP. */
static void write_axes(const gint32 *value, int group, MsScenario *s) {
  s->layout.microbatch_group_size_per_virtual_pipeline_stage = group;
  ms_space_apply_axes(value, s);
}

/* --- rules about ranks, by class --- */

/* Place of a layout in the whole space: the same whoever meets it. */
static guint64 order_of(const MsSpace *space, int unit, gint64 combo, int inner) {
  return ((guint64)unit * (guint64)space->n_combos + (guint64)combo) * (guint64)ms_space_inners(space) + (guint64)inner;
}

static void ask_rules(Enumeration *e, Finder *f, int unit, MsCandidate *c) {
  const MsSpace *space = e->space;
  int inner = ms_space_inners(space);
  for (int class = 0; class < space->n_classes; class ++) {
    c->combo = space->class_example[class];
    if (c->combo < 0) continue;
    ms_space_apply_combo(space, c->combo, f->scratch);
    int group = f->scratch->layout.microbatch_group_size_per_virtual_pipeline_stage;
    for (int i = 0; i < inner; i++) {
      ms_space_inner(space, i, c->value);
      write_axes(c->value, group, f->scratch);
      int row = ms_layout_check_kinds(f->scratch, MS_RULE_RANKS | MS_RULE_PIPELINE);
      if (row < 0 && ms_shortcut_on(e->search->options, MS_SHORT_SAME) &&
          ms_space_same_as_another(space, c->combo, f->scratch))
        row = ms_num_rules + MS_REFUSED_SAME;
      f->passes[i * space->n_classes + class] = row < 0;
      if (row >= 0)
        ms_refused_add(&f->refused, row, space->class_count[class], INFINITY, order_of(space, unit, c->combo, i), c);
    }
  }
}

/* --- bounds --- */

typedef struct { /* one combination of work keys in one unit */
  Enumeration *e;
  Finder *f;
  int unit, map;
  gint64 work, written;    /* written: combination in the finder's scratch */
  gboolean per_cut, ready; /* ready: some cut obeys the rules */
  MsPieceMemo *memo;
} Bench;

/* First combination of one choice of the shape's keys, in the bench's work. */
static gint64 combo_of_shape(const Bench *b, int shape) {
  const MsSpace *space = b->e->space;
  return b->work * space->stride[MS_ROLE_ADDED] + shape * space->stride[MS_ROLE_SHAPE];
}

/* What was made last is much like the next one. */
static const MsPieceMemo *keep_last(Bench *b) {
  if (b->memo) ms_memo_free(b->f->last), b->f->last = b->memo;
  b->memo = NULL;
  return b->f->last ? b->f->last : b->e->search->first;
}

/* Of all cuts, which are made of what its layers cost. */
static void make_flat(Bench *b) {
  g_autoptr(MsScenario) s = ms_scenario_copy(b->f->scratch, TRUE);
  ms_leave_pipeline_out(s);
  b->memo = ms_memo_new(s, keep_last(b));
}

/* Pieces of the cut that is written in, once for the bench, or once for every cut; FALSE with the rule that the split
 * breaks, or with MS_REFUSED_ERROR where it cannot be costed (a figure of the machine that it needs is unknown). */
static gboolean memo_for(Bench *b, const gint32 *value, gint64 combo, int *rule) {
  if (b->ready && !b->per_cut) return TRUE;
  if (b->per_cut) {
    const MsPieceMemo *like = keep_last(b);
    *rule = ms_try_cut(b->e->space, value, combo, NULL, b->f->scratch, like, &b->memo);
  } else {
    if (!b->memo) make_flat(b);
    *rule = ms_try_cut(b->e->space, value, combo, b->memo, b->f->scratch, NULL, NULL);
    if (*rule < 0 && !b->memo) *rule = ms_num_rules + MS_REFUSED_ERROR;
  }
  b->ready = *rule < 0;
  if (b->ready) b->map = ms_shapes_map(b->f->shapes, b->memo);
  return b->ready;
}

static gboolean fits(Bench *b, const MsCandidate *c, int inner, double device_B) {
  double miss_B = device_B - b->e->search->plan->memory_limit_B;
  b->f->valid++;
  if (!(miss_B > 0) || !ms_shortcut_on(b->e->search->options, MS_SHORT_MEMORY)) return TRUE;
  ms_refused_add(&b->f->refused, ms_num_rules + MS_REFUSED_MEMORY, 1, miss_B,
                 order_of(b->e->space, b->unit, c->combo, inner), c);
  return FALSE;
}

static void put(Bench *b, MsCandidate *c, int inner, MsTime time, double device_B) {
  const MsRequest *request = b->e->space->request;
  double seconds = (double)time / MS_PS_PER_S;
  int gpus = c->value[MS_AXIS_GPUS];
  guint64 order = order_of(b->e->space, b->unit, c->combo, inner);
  c->bound = time;
  c->cost = ms_objective_cost(request, gpus, seconds);
  if (b->e->search->bins) ms_bins_add(b->e->search->bins, c, device_B, (int)(b->f - b->e->finder));
  if (isinf(c->cost))
    ms_refused_add(&b->f->refused, ms_num_rules + MS_REFUSED_DEADLINE, 1,
                   ms_objective_figure(request, gpus, seconds) - request->deadline_s, order, c);
  else g_array_append_val(b->f->candidates, *c);
}

/* One (pp, vpp) and one choice of the shape's keys, gone through class by class of the rules and state by state. */
typedef struct {
  Bench *b;
  MsCandidate *c;
  int inner, class, rule;
  double dp_cp, edp;
  const MsStateBytes *bytes;  /* of the state */
  const MsShape *shape;       /* of the class; NULL with `shaped`: `rule` refuses it */
  gboolean shaped, cuts;      /* cuts: it takes one to make it */
  MsTime time;                /* of the class, -1: not asked for */
  double device_B, any_cut_B; /* of the state, -1: not asked for */
} Place;

static void enter_class(Place *p, int class) {
  Bench *b = p->b;
  if (p->c->combo != b->written) {
    ms_space_apply_combo(b->e->space, p->c->combo, b->f->scratch);
    ms_space_apply_axes(p->c->value, b->f->scratch);
    b->written = p->c->combo;
  }
  p->cuts = !b->per_cut && ms_shortcut_on(b->e->search->options, MS_SHORT_MEMORY) &&
            ms_space_makes_cut(b->f->scratch, ms_space_cut_of(b->e->space, p->c->combo));
  p->class = class, p->shaped = FALSE, p->time = -1, p->device_B = p->any_cut_B = -1;
}

static const MsShape *shape_at(Place *p) {
  Bench *b = p->b;
  if (!p->shaped) p->shape = ms_shapes_get(b->f->shapes, b->map, b->memo, b->e->space, p->c, b->f->scratch, &p->rule);
  p->shaped = TRUE;
  return p->shape;
}

static double device_at(Place *p) {
  Bench *b = p->b;
  if (p->device_B < 0)
    p->device_B = ms_bound_device_B(p->shape, b->memo, p->bytes, p->dp_cp, p->edp, b->e->space->request->base);
  return p->device_B;
}

/* It fits in no cut, so none is made: most layouts of a large model are refused here. But of what may be the nearest
 * miss the cut is made, to say by how much. */
static gboolean fits_in_no_cut(Place *p) {
  Bench *b = p->b;
  const MsRefused *nearest = &b->f->refused.row[ms_num_rules + MS_REFUSED_MEMORY];
  if (!p->cuts) return FALSE;
  gboolean asked = p->any_cut_B >= 0;
  if (!asked) p->any_cut_B = ms_bound_any_cut_B(b->memo, p->bytes, p->dp_cp, p->edp, b->f->scratch);
  double miss_B = p->any_cut_B - b->e->search->plan->memory_limit_B;
  if (!(miss_B > 0)) return FALSE;
  if (!asked) b->f->bounded++;
  if (nearest->count == 0 || miss_B <= nearest->miss)
    miss_B = shape_at(p) ? device_at(p) - b->e->search->plan->memory_limit_B : INFINITY;
  b->f->valid++;
  ms_refused_add(&b->f->refused, ms_num_rules + MS_REFUSED_MEMORY, 1, miss_B,
                 order_of(b->e->space, b->unit, p->c->combo, p->inner), p->c);
  return TRUE;
}

static void bound_layout(Place *p) {
  Bench *b = p->b;
  if (fits_in_no_cut(p)) return;
  if (!shape_at(p)) {
    ms_refused_add(&b->f->refused, p->rule, 1, INFINITY, order_of(b->e->space, b->unit, p->c->combo, p->inner), p->c);
    return;
  }
  if (p->device_B < 0) b->f->bounded++;
  if (!fits(b, p->c, p->inner, device_at(p))) return;
  if (p->time < 0) p->time = ms_bound_time(p->shape, b->memo);
  put(b, p->c, p->inner, p->time, p->device_B);
}

/* Every combination of state and blind keys. */
static void bound_shape(Bench *b, MsCandidate *c, int inner, int choice, const MsStateBytes *bytes) {
  const MsSpace *space = b->e->space;
  const gint32 *v = c->value;
  Place p = {.b = b,
             .c = c,
             .inner = inner,
             .class = -1,
             .dp_cp = (double)v[MS_AXIS_GPUS] / v[MS_AXIS_TP] / v[MS_AXIS_PP],
             .edp = (double)v[MS_AXIS_GPUS] / v[MS_AXIS_ETP] / v[MS_AXIS_EP] / v[MS_AXIS_PP]};
  gint64 blinds = space->n_of_role[MS_ROLE_BLIND], first = combo_of_shape(b, choice);
  for (gint64 i = 0; i < space->stride[MS_ROLE_SHAPE]; i++) {
    gint64 combo = first + i;
    if (i % blinds == 0) p.device_B = p.any_cut_B = -1;
    int class = space->class_of[combo];
    if (space->refused_by[combo] >= 0 || !b->f->passes[inner * space->n_classes + class]) continue;
    c->combo = combo;
    p.bytes = &bytes[i / blinds % space->n_of_role[MS_ROLE_STATE]];
    if (class != p.class) enter_class(&p, class);
    bound_layout(&p);
  }
}

static gboolean passes(const Bench *b, int inner, gint64 combo) {
  const MsSpace *space = b->e->space;
  return space->refused_by[combo] < 0 && b->f->passes[inner * space->n_classes + space->class_of[combo]];
}

/* The first combination of one choice of the shape's keys that obeys the rules about ranks; -1 = none. */
static gint64 first_that_passes(const Bench *b, int inner, int choice) {
  gint64 first = combo_of_shape(b, choice), n = b->e->space->stride[MS_ROLE_SHAPE];
  for (gint64 i = first; i < first + n; i++)
    if (passes(b, inner, i)) return i;
  return -1;
}

static void refuse_shape(Bench *b, MsCandidate *c, int inner, int choice, int rule) {
  const MsSpace *space = b->e->space;
  gint64 first = combo_of_shape(b, choice), n = space->stride[MS_ROLE_SHAPE];
  for (c->combo = first; c->combo < first + n; c->combo++)
    if (passes(b, inner, c->combo))
      ms_refused_add(&b->f->refused, rule, 1, INFINITY, order_of(space, b->unit, c->combo, inner), c);
}

static void state_bytes(Bench *b, MsStateBytes *bytes) {
  const MsSpace *space = b->e->space;
  for (int state = 0; state < space->n_of_role[MS_ROLE_STATE]; state++) {
    ms_space_apply_combo(space, b->work * space->stride[MS_ROLE_ADDED] + state * space->stride[MS_ROLE_STATE],
                         b->f->second);
    ms_space_write_least(space, b->f->second);
    bytes[state] = ms_state_bytes(b->memo, b->f->second);
  }
}

/* One (pp, vpp): the split is another for every choice of the shape's keys (schedule, ways to split), so one that
 * breaks a rule says nothing of the next. */
static void bound_inner(Bench *b, MsCandidate *c, int inner, MsStateBytes *bytes) {
  const MsSpace *space = b->e->space;
  MsScenario *s = b->f->scratch;
  for (int choice = 0; choice < space->n_of_role[MS_ROLE_SHAPE]; choice++) {
    gint64 combo = first_that_passes(b, inner, choice);
    if (combo < 0) continue;
    ms_space_apply_combo(space, combo, s);
    write_axes(c->value, s->layout.microbatch_group_size_per_virtual_pipeline_stage, s);
    b->written = combo;
    gboolean fresh = !b->ready || b->per_cut;
    int rule = -1;
    if (memo_for(b, c->value, combo, &rule)) {
      if (fresh) state_bytes(b, bytes);
      bound_shape(b, c, inner, choice, bytes);
    } else {
      refuse_shape(b, c, inner, choice, rule);
    }
  }
}

static void bound_work(Bench *b, MsCandidate *c) {
  const MsSpace *space = b->e->space;
  g_autofree MsStateBytes *bytes = g_new(MsStateBytes, space->n_of_role[MS_ROLE_STATE]);
  ms_space_apply_combo(space, b->work * space->stride[MS_ROLE_ADDED], b->f->scratch);
  b->per_cut = ms_pieces_depend_on_cut(b->f->scratch);
  for (int i = 0; i < ms_space_inners(space); i++) {
    ms_space_inner(space, i, c->value);
    bound_inner(b, c, i, bytes);
  }
}

static void do_unit(int unit, int thread, gpointer data) {
  Enumeration *e = data;
  Finder *f = &e->finder[thread];
  MsCandidate c = {0};
  if (ms_interrupted()) return;
  ms_space_unit(e->space, unit, c.value);
  ask_rules(e, f, unit, &c);
  for (gint64 work = 0; work < e->n_work; work++) {
    Bench b = {.e = e, .f = f, .unit = unit, .work = work};
    bound_work(&b, &c);
    if (b.memo) ms_memo_free(f->last), f->last = b.memo;
  }
  int done = g_atomic_int_add(&e->done, 1) + 1;
  if (thread != 0) return;
  char note[48];
  g_snprintf(note, sizeof note, "bounding layouts, %.0f %%", MIN(100.0, 100.0 * done * ms_ranks_count() / e->n_units));
  ms_progress_update(e->search->progress, done, note);
}

/* --- all of it --- */

/* The first layout that obeys the rules: its kernel curves serve all. */
static void find_first(Enumeration *e) {
  const MsSpace *space = e->space;
  g_autoptr(MsScenario) s = ms_space_scratch(space);
  int inner = ms_space_inners(space);
  for (int unit = 0; unit < e->n_units && !e->search->first; unit++)
    for (int class = 0; class < space->n_classes && !e->search->first; class ++)
      for (int i = 0; i < inner && !e->search->first; i++) {
        MsCandidate c = {.combo = space->class_example[class]};
        if (c.combo < 0) continue;
        ms_space_unit(space, unit, c.value);
        ms_space_inner(space, i, c.value);
        ms_space_apply_combo(space, c.combo, s);
        ms_space_apply_axes(c.value, s);
        if (ms_layout_check_kinds(s, MS_RULE_RANKS | MS_RULE_PIPELINE) >= 0) continue;
        g_autoptr(MsScenario) whole = ms_candidate_scenario(space, &c, NULL);
        MsRefusal refusal;
        if (ms_layout_check(whole, &refusal)) e->space->like = e->search->first = ms_memo_new(whole, NULL);
      }
}

/* Combinations that a rule about options refuses, with all axes. */
static void count_refused_options(MsSearch *x) {
  const MsSpace *space = x->space;
  guint64 layouts = 1;
  MsCandidate c = {0};
  for (int axis = 0; axis < MS_N_AXES; axis++)
    layouts *= (guint64)space->axis[axis].n, c.value[axis] = space->axis[axis].value[0];
  x->plan->searched = layouts * (guint64)space->n_combos;
  for (c.combo = 0; c.combo < space->n_combos; c.combo++)
    if (space->refused_by[c.combo] >= 0)
      ms_refused_add(&x->refused, space->refused_by[c.combo], layouts, INFINITY, (guint64)c.combo, &c);
}

typedef struct {
  guint64 valid, bounded, candidates;
} Counts;

/* What the threads found; of the candidates every rank keeps its own, which are most of all the numbers. */
static void put_together(Enumeration *e) {
  MsSearch *x = e->search;
  MsRefusedTable own;
  ms_refused_init(&own);
  Counts sum = {0};
  for (int i = 0; i < e->threads; i++) {
    Finder *f = &e->finder[i];
    sum.valid += f->valid, sum.bounded += f->bounded, sum.candidates += f->candidates->len;
    g_array_append_vals(x->candidates, f->candidates->data, f->candidates->len);
    g_array_set_size(f->candidates, 0);
    ms_refused_merge(&own, &f->refused);
  }
  g_autoptr(GArray) counts = g_array_new(FALSE, FALSE, sizeof(Counts));
  g_array_append_val(counts, sum);
  ms_refused_gather(&x->refused, &own);
  ms_ranks_gather(counts);
  for (guint i = 0; i < counts->len; i++) {
    const Counts *c = &g_array_index(counts, Counts, i);
    x->plan->valid += c->valid, x->plan->bounded += c->bounded, x->n_candidates += c->candidates;
  }
  ms_refused_clear(&own);
}

gboolean ms_enumerate(MsSearch *x, GError **error) {
  if (!ms_space_tabulate(x->space))
    return ms_input_error(error, x->space->request->base->file, 0, "options",
                          "are too many combinations to look at each");
  Enumeration e = {.search = x,
                   .space = x->space,
                   .n_work = x->space->n_combos / x->space->stride[MS_ROLE_ADDED],
                   .n_units = ms_space_units(x->space),
                   .threads = ms_parallel_threads(x->options->threads)};
  e.finder = g_new0(Finder, e.threads);
  for (int i = 0; i < e.threads; i++) {
    Finder *f = &e.finder[i];
    f->candidates = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
    f->shapes = ms_shapes_new();
    f->scratch = ms_space_scratch(x->space), f->second = ms_space_scratch(x->space);
    f->passes = g_new(gboolean, (gsize)ms_space_inners(x->space) * (gsize)x->space->n_classes);
    ms_refused_init(&f->refused);
  }
  find_first(&e);
  ms_parallel(e.n_units, e.threads, do_unit, &e);
  count_refused_options(x);
  put_together(&e);
  for (int i = 0; i < e.threads; i++) {
    Finder *f = &e.finder[i];
    g_array_unref(f->candidates);
    ms_shapes_free(f->shapes);
    ms_scenario_free(f->scratch), ms_scenario_free(f->second);
    g_free(f->passes);
    ms_memo_free(f->last);
    ms_refused_clear(&f->refused);
  }
  g_free(e.finder);
  return TRUE;
}
