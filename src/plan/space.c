/* src/plan/space.c - a request as axes of integers times combinations of everything else that is open. */
#include "plan/space_priv.h"
#include "plan/cut_store_priv.h"
#include "plan/cuts_priv.h"
#include "base/err.h"
#include "base/order.h"
#include "layout/layout.h"
#include <math.h>
#include <string.h>

const char *const ms_axis_paths[] = {"gpus",      "layout.tp",  "layout.cp",
                                     "layout.ep", "layout.etp", "training.micro_batch_size",
                                     "layout.pp", "layout.vpp", NULL};

static int axis_of(const char *path) {
  for (int i = 0; i < MS_N_AXES; i++)
    if (!strcmp(path, ms_axis_paths[i])) return i;
  return -1;
}

int ms_axis_place(const MsIntAxis *a, int value) {
  for (int i = 0; i < a->n; i++)
    if (a->value[i] == value) return i;
  return -1;
}

static void push(MsIntAxis *a, int value) {
  if (ms_axis_place(a, value) >= 0) return;
  a->value = g_renew(int, a->value, a->n + 1);
  a->value[a->n++] = value;
}

MS_ORDER(ascending, int, MS_LESS(*x, *y), 0)

/* --- the planner's own candidates --- */

static void powers(MsIntAxis *a, int limit) {
  for (int v = 1; v <= limit; v *= 2) push(a, v);
}
static void divisors(MsIntAxis *a, int of, int limit) {
  for (int v = 1; v <= MIN(of, limit); v++)
    if (of % v == 0) push(a, v);
}

/* For one number of GPUs; the candidates of several are put together, the rules sort out which go with which. */
static void automatic(MsIntAxis *a, int axis, const MsScenario *s, int gpus) {
  const MsModel *m = s->model;
  switch (axis) {
  case MS_AXIS_TP: powers(a, MIN(MIN(m->num_attention_heads, gpus), MAX(s->hardware->gpus_per_node, 8))); break;
  case MS_AXIS_CP: powers(a, MIN(gpus, MAX(1, s->training.seq_length / 2048))); break;
  case MS_AXIS_PP: divisors(a, gpus, MIN(m->num_layers + 2, 128)); break;
  case MS_AXIS_VPP:
    for (int v = 1; v <= MIN(m->num_layers, 16); v++) push(a, v);
    break;
  case MS_AXIS_EP:
    if (m->num_experts > 0) divisors(a, m->num_experts, gpus);
    else push(a, 1);
    break;
  case MS_AXIS_ETP:
    if (m->num_experts > 0) powers(a, MIN(gpus, MAX(s->hardware->gpus_per_node, 8)));
    else push(a, 1);
    break;
  case MS_AXIS_MBS: powers(a, MIN(8, s->training.global_batch_size)); break;
  }
}

/* --- the other open keys --------------------------------------------------------------------------------------- */

enum { MOST_TABULATED = 4000000 };
#define MOST_COMBOS  1e15
#define MOST_LAYOUTS 1e18

MS_ORDER(compare_roles, MsChoice, MS_LESS(x->role, y->role), 0)

static gboolean path_is(const MsChoice *c, const char *path) { return !strcmp(c->open->path, path); }

/* The request says nothing of how layers are cut into stages, which there may be several of: then it is "auto". Of what
 * is open the base has some value; layouts with one that settles the cut have no other. */
static gboolean leaves_cut(const MsSpace *space) {
  const MsRequest *r = space->request;
  const MsLayoutSpec *l = &r->base->layout;
  const MsIntAxis *pp = &space->axis[MS_AXIS_PP];
  const struct {
    const char *path;
    gboolean settles;
  } key[] = {{"layout.account_for_embedding_in_pipeline_split", l->account_for_embedding_in_pipeline_split},
             {"layout.account_for_loss_in_pipeline_split", l->account_for_loss_in_pipeline_split},
             {"layout.decoder_first_pipeline_num_layers", l->decoder_first_pipeline_num_layers > 0},
             {"layout.decoder_last_pipeline_num_layers", l->decoder_last_pipeline_num_layers > 0}};
  for (guint k = 0; k < G_N_ELEMENTS(key); k++)
    if (key[k].settles && !ms_request_leaves_open(r, key[k].path)) return FALSE;
  return pp->value[pp->n - 1] > 1 && !l->pipeline_layout && !ms_request_leaves_open(r, "layout.pipeline_layout");
}

static gboolean make_choices(MsSpace *space, gboolean shared, GError **error) {
  const MsRequest *r = space->request;
  space->choice = g_new0(MsChoice, r->n_open + 1);
  double combos = 1;
  if (leaves_cut(space)) {
    space->cut = (MsOpenKey){.path = (char *)"layout.pipeline_layout",
                             .field = ms_field_find(&ms_layout_table, "pipeline_layout")};
    if (!ms_choice_init(&space->choice[space->n_choices++], r, &space->cut, error)) return FALSE;
    combos *= space->choice[0].n;
  }
  for (int i = 0; i < r->n_open; i++) {
    if (axis_of(r->open[i].path) >= 0) continue;
    MsChoice *c = &space->choice[space->n_choices++];
    if (!ms_choice_init(c, r, &r->open[i], error)) return FALSE;
    combos *= c->n;
    if (combos > MOST_COMBOS)
      return ms_input_error(error, r->base->file, 0, r->open[i].path,
                            "more than %g combinations of open options, close some", MOST_COMBOS);
  }
  qsort(space->choice, (size_t)space->n_choices, sizeof *space->choice, compare_roles);
  gint64 behind = 1;
  for (int i = space->n_choices - 1; i >= 0; i--) space->choice[i].stride = behind, behind *= space->choice[i].n;
  for (int role = 0; role < MS_N_ROLES; role++) space->n_of_role[role] = 1;
  for (int i = 0; i < space->n_choices; i++)
    space->n_of_role[shared ? space->choice[i].role : MS_ROLE_WORK] *= space->choice[i].n;
  space->n_combos = 1;
  for (int role = MS_N_ROLES - 1; role >= 0; role--)
    space->stride[role] = space->n_combos, space->n_combos *= space->n_of_role[role];
  return TRUE;
}

const MsChoice *ms_space_choice(const MsSpace *space, const char *path) {
  for (int i = 0; i < space->n_choices; i++)
    if (path_is(&space->choice[i], path)) return &space->choice[i];
  return NULL;
}

static int class_of(const MsSpace *space, gint64 combo) {
  int class = 0;
  for (int i = 0; i < space->n_choices; i++) {
    const MsChoice *c = &space->choice[i];
    if (c->in_rules) class = class * c->n + ms_choice_value(c, combo);
  }
  return class;
}

int ms_space_shape_of(const MsSpace *space, gint64 combo) {
  return (int)(combo / space->stride_of_shape % space->n_shapes);
}

MsCut ms_space_cut_of(const MsSpace *space, gint64 combo) {
  const MsChoice *c = space->own_cut;
  return c ? (MsCut)ms_choice_value(c, combo) : MS_CUT_BALANCED;
}

gboolean ms_space_tabulate(MsSpace *space) {
  double classes = 1;
  for (int i = 0; i < space->n_choices; i++)
    if (space->choice[i].in_rules) classes *= space->choice[i].n;
  if (space->n_combos > MOST_TABULATED || classes > G_MAXUINT16) return FALSE;
  space->n_classes = (int)classes;
  space->class_of = g_new(guint16, space->n_combos);
  space->refused_by = g_new(gint16, space->n_combos);
  space->class_count = g_new0(guint32, space->n_classes);
  space->class_example = g_new(int, space->n_classes);
  for (int i = 0; i < space->n_classes; i++) space->class_example[i] = -1;
  g_autoptr(MsScenario) s = ms_space_scratch(space);
  for (int i = 0; i < space->n_combos; i++) {
    ms_space_apply_combo(space, i, s);
    int class = class_of(space, i);
    space->class_of[i] = (guint16) class;
    space->refused_by[i] = (gint16)ms_layout_check_kinds(s, MS_RULE_OPTIONS);
    if (space->refused_by[i] >= 0) continue;
    if (space->class_count[class]++ == 0) space->class_example[class] = i;
  }
  return TRUE;
}

MsScenario *ms_space_scratch(const MsSpace *space) { return ms_scenario_copy(space->request->base, TRUE); }

void ms_space_apply_combo(const MsSpace *space, gint64 combo, MsScenario *s) {
  for (int i = space->n_choices - 1; i >= 0; i--) {
    const MsChoice *c = &space->choice[i];
    ms_choice_apply(c, ms_choice_value(c, combo), s);
  }
}

void ms_space_apply_choices(const MsSpace *space, MsRole role, gint64 combo, MsScenario *s) {
  for (int i = space->n_choices - 1; i >= 0; i--) {
    const MsChoice *c = &space->choice[i];
    if (c->role == role) ms_choice_apply(c, ms_choice_value(c, combo), s);
  }
}

/* --- combinations that differ in what makes no difference ------------------------------------------------------ */

static gboolean without_cp(const MsScenario *s) { return s->layout.cp == 1; }
static gboolean without_tp(const MsScenario *s) { return s->layout.tp == 1; }
static gboolean without_pp(const MsScenario *s) { return s->layout.pp == 1; }
static gboolean without_chunks(const MsScenario *s) {
  return s->layout.vpp == 1 || s->layout.pp == 1 || ms_schedule_chunks(s->layout.schedule) != 0;
}
static gboolean without_experts(const MsScenario *s) { return s->layout.ep * s->layout.etp == 1; }

static const struct {
  const char *path;
  gboolean (*idle)(const MsScenario *s);
} idle_keys[] = {
    {"layout.cp_comm_type", without_cp},
    {"layout.order", without_pp},
    {"layout.microbatch_group_size_per_virtual_pipeline_stage", without_chunks},
    {"options.dispatcher", without_experts},
    {"options.sequence_parallel", without_tp},
    {"options.tp_comm_overlap", without_tp},
};

static int idle_row(const MsChoice *c) {
  for (guint k = 0; c->in_rules && k < G_N_ELEMENTS(idle_keys); k++)
    if (path_is(c, idle_keys[k].path)) return (int)k;
  return -1;
}

/* Of those that need nobody to talk to the first row, whatever the order of the list; -1 = none. */
static int standing_dispatcher(const MsChoice *c) {
  int best = -1;
  for (int i = 0; i < c->n; i++)
    if (ms_dispatchers[c->value[i].value.i].least_ranks <= 1 &&
        (best < 0 || c->value[i].value.i < c->value[best].value.i))
      best = i;
  return best;
}

/* The first value of these words or switches that is `word`; -1: none. */
static int place_of(const MsChoice *c, int word) {
  for (int i = 0; i < c->n; i++)
    if (c->value[i].value.i == word) return i;
  return -1;
}

/* The value that stands for value `own` when a key is idle: one that other options do not forbid, as they may be open.
 * An overlap that is on cannot stand where it may be off (deterministic_mode). Dispatchers that need nobody sort tokens
 * each in its own way. */
static int standing_value(const MsChoice *c, int own, const MsScenario *s) {
  if (path_is(c, "options.dispatcher")) {
    gboolean sorts = s->model->num_experts > 0 && ms_dispatchers[c->value[own].value.i].least_ranks <= 1;
    return sorts ? own : standing_dispatcher(c);
  }
  return path_is(c, "options.tp_comm_overlap") ? MAX(0, place_of(c, FALSE)) : 0;
}

/* Schedules with two chunks on every rank take VPP 1 and 2 alike. */
static gboolean same_chunks(const MsSpace *space, const MsScenario *s) {
  return ms_schedule_chunks(s->layout.schedule) == 2 && s->layout.vpp == 2 && space->axis[MS_AXIS_VPP].value[0] == 1;
}

/* A layout string says VPP itself, so that VPP 1 beside it means the same: one of them is searched where both are
 * offered. */
static gboolean vpp_of_string(const MsSpace *space, const MsScenario *s) {
  if (!s->layout.pipeline_layout || s->layout.vpp > 1 || ms_schedule_chunks(s->layout.schedule) == 2)
    return FALSE; /* of those VPP 1 is the one that is searched */
  int own = ms_layout_chunks_per_rank(s);
  return own > 1 && ms_axis_place(&space->axis[MS_AXIS_VPP], own) >= 0;
}

/* With TP null means true: one of them is searched where both are offered. */
static gboolean sequence_parallel_again(const MsChoice *c, int value, const MsScenario *s) {
  return s->layout.tp > 1 && path_is(c, "options.sequence_parallel") && c->value[value].value.i < 0 &&
         place_of(c, TRUE) >= 0;
}

gboolean ms_space_idle_before(const MsSpace *space, gint64 combo, const MsScenario *s, MsRole before) {
  for (int i = 0; i < space->n_choices; i++) {
    const MsChoice *c = &space->choice[i];
    if (c->role >= before) continue;
    int value = ms_choice_value(c, combo);
    if (sequence_parallel_again(c, value, s)) return TRUE;
    if (c->idle < 0 || !idle_keys[c->idle].idle(s)) continue;
    int stands = standing_value(c, value, s);
    if (stands >= 0 && value != stands) return TRUE;
  }
  return FALSE;
}

gint64 ms_space_standing(const MsSpace *space, gint64 combo, const MsScenario *s) {
  for (int i = 0; i < space->n_choices; i++) {
    const MsChoice *c = &space->choice[i];
    if (c->idle < 0 || !idle_keys[c->idle].idle(s)) continue;
    int stands = standing_value(c, ms_choice_value(c, combo), s);
    if (stands >= 0) combo = ms_choice_with(c, combo, stands);
  }
  return combo;
}

static gboolean same_as_another(const MsSpace *space, gint64 combo, const MsScenario *s, MsRole before) {
  return same_chunks(space, s) || vpp_of_string(space, s) || ms_space_idle_before(space, combo, s, before);
}

gboolean ms_space_same_as_another(const MsSpace *space, gint64 combo, const MsScenario *s) {
  return same_as_another(space, combo, s, MS_N_ROLES);
}
gboolean ms_space_same_as_another_shape(const MsSpace *space, gint64 combo, const MsScenario *s) {
  return same_as_another(space, combo, s, MS_ROLE_STATE);
}

/* --- axes --- */

static int value_on(const MsScenario *s, int axis) {
  const MsLayoutSpec *l = &s->layout;
  const int value[MS_N_AXES] = {s->gpus, l->tp, l->cp, l->ep, l->etp, s->training.micro_batch_size, l->pp, l->vpp};
  return value[axis];
}

static gboolean given_values(MsIntAxis *a, int axis, const MsOpenKey *open, const MsRequest *request, GError **error) {
  g_autoptr(MsScenario) scratch = ms_scenario_copy(request->base, TRUE);
  void *object = axis == MS_AXIS_GPUS  ? (void *)scratch
                 : axis == MS_AXIS_MBS ? (void *)&scratch->training
                                       : (void *)&scratch->layout;
  for (int i = 0; i < open->n; i++) {
    if (!ms_field_set(open->field, NULL, open->values[i], open->path, object, error)) return FALSE;
    push(a, value_on(scratch, axis));
  }
  return TRUE;
}

static gboolean layout_key_given(const MsRequest *request, const char *key) {
  for (int i = 0; ms_layout_table.fields[i].key; i++)
    if (!strcmp(ms_layout_table.fields[i].key, key)) return (request->layout_given >> i) & 1;
  return FALSE;
}

static void own_candidates(const MsSpace *space, MsIntAxis *a, int axis) {
  const MsIntAxis *gpus = &space->axis[MS_AXIS_GPUS];
  for (int i = 0; i < gpus->n; i++) automatic(a, axis, space->request->base, gpus->value[i]);
}

void ms_axis_candidates(const MsScenario *s, int axis, MsIntAxis *a) {
  automatic(a, axis, s, s->gpus);
  push(a, value_on(s, axis));
  qsort(a->value, (size_t)a->n, sizeof(int), ascending);
}

static gboolean make_axis(MsSpace *space, int axis, GError **error) {
  const MsRequest *r = space->request;
  MsIntAxis *a = &space->axis[axis];
  int at = ms_open_place(r, ms_axis_paths[axis]);
  const MsOpenKey *open = at < 0 ? NULL : &r->open[at];
  gboolean fixed = !open && (axis == MS_AXIS_MBS || axis == MS_AXIS_GPUS ||
                             layout_key_given(r, strchr(ms_axis_paths[axis], '.') + 1));
  /* a pipeline layout fixes how many virtual stages there are; with pp open, every pp that divides them is tried */
  if (open && open->n > 0) {
    if (!given_values(a, axis, open, r, error)) return FALSE;
  } else if (fixed) push(a, value_on(r->base, axis));
  else own_candidates(space, a, axis);
  qsort(a->value, (size_t)a->n, sizeof(int), ascending);
  return TRUE;
}

/* What is asked of many combinations. */
static void find_places(MsSpace *space) {
  space->stride_of_shape = space->n_shapes = 1;
  for (int i = space->n_choices - 1; i >= 0; i--) {
    MsChoice *c = &space->choice[i];
    c->idle = idle_row(c);
    if (c->role > MS_ROLE_SHAPE) space->stride_of_shape *= c->n;
    if (c->role == MS_ROLE_SHAPE) space->n_shapes *= c->n;
    if (path_is(c, "layout.pipeline_layout") && c->open->n == 0) space->own_cut = c;
  }
}

MsSpace *ms_space_new(const MsRequest *request, gboolean shared, GError **error) {
  MsSpace *space = g_new0(MsSpace, 1);
  space->request = request;
  gboolean ok = TRUE;
  for (int i = 0; ok && i < MS_N_AXES; i++) ok = make_axis(space, i, error);
  if (!ok || !make_choices(space, shared, error)) {
    ms_space_free(space);
    return NULL;
  }
  find_places(space);
  space->cuts = ms_cuts_new();
  if (ms_space_size(space) <= MOST_LAYOUTS) return space;
  ms_input_error(error, request->base->file, 0, "", "leaves open %.3g layouts (at most %g), close some options",
                 ms_space_size(space), MOST_LAYOUTS);
  ms_space_free(space);
  return NULL;
}

MsRole ms_latest_role_read(const MsSpace *space, const MsRule *rule) {
  MsRole latest = MS_ROLE_WORK;
  for (int i = 0; i < space->n_choices; i++)
    if (ms_rule_reads(rule, space->choice[i].open->path)) latest = MAX(latest, space->choice[i].role);
  return latest;
}

void ms_space_free(MsSpace *space) {
  if (!space) return;
  for (int i = 0; i < MS_N_AXES; i++) g_free(space->axis[i].value);
  for (int i = 0; i < space->n_choices; i++) ms_choice_clear(&space->choice[i]);
  g_free(space->choice);
  ms_cuts_free(space->cuts);
  g_free(space->class_of);
  g_free(space->refused_by);
  g_free(space->class_count);
  g_free(space->class_example);
  g_free(space);
}

double ms_space_size(const MsSpace *space) {
  double n = (double)space->n_combos;
  for (int i = 0; i < MS_N_AXES; i++) n *= space->axis[i].n;
  return n;
}

/* --- candidates --- */

int ms_space_units(const MsSpace *space) {
  int n = 1;
  for (int axis = 0; axis < MS_N_OUTER; axis++) n *= space->axis[axis].n;
  return n;
}

void ms_space_unit(const MsSpace *space, int unit, gint32 *value) {
  for (int axis = MS_N_OUTER - 1; axis >= 0; axis--)
    value[axis] = space->axis[axis].value[unit % space->axis[axis].n], unit /= space->axis[axis].n;
  ms_space_inner(space, 0, value);
}

int ms_space_inners(const MsSpace *space) { return space->axis[MS_AXIS_PP].n * space->axis[MS_AXIS_VPP].n; }

void ms_space_inner(const MsSpace *space, int inner, gint32 *value) {
  const MsIntAxis *pp = &space->axis[MS_AXIS_PP], *vpp = &space->axis[MS_AXIS_VPP];
  value[MS_AXIS_PP] = pp->value[inner / vpp->n], value[MS_AXIS_VPP] = vpp->value[inner % vpp->n];
}

double ms_space_shapes(const MsSpace *space) {
  gint32 v[MS_N_AXES];
  double sizes = 0;
  for (int unit = 0; unit < ms_space_units(space); unit++) {
    ms_space_unit(space, unit, v);
    for (int i = 0; i < ms_space_inners(space); i++) {
      ms_space_inner(space, i, v);
      sizes += v[MS_AXIS_GPUS] % ((gint64)v[MS_AXIS_TP] * v[MS_AXIS_CP] * v[MS_AXIS_PP]) == 0 &&
               v[MS_AXIS_GPUS] % ((gint64)v[MS_AXIS_ETP] * v[MS_AXIS_EP] * v[MS_AXIS_PP]) == 0;
    }
  }
  return sizes * (double)(space->n_combos / space->stride[MS_ROLE_SHAPE]);
}

void ms_space_apply_axes(const gint32 *value, MsScenario *s) {
  MsLayoutSpec *l = &s->layout;
  s->gpus = value[MS_AXIS_GPUS];
  l->tp = value[MS_AXIS_TP], l->cp = value[MS_AXIS_CP], l->pp = value[MS_AXIS_PP], l->vpp = value[MS_AXIS_VPP];
  l->ep = value[MS_AXIS_EP], l->etp = value[MS_AXIS_ETP];
  s->training.micro_batch_size = value[MS_AXIS_MBS];
  if (l->microbatch_group_size_per_virtual_pipeline_stage < 0)
    l->microbatch_group_size_per_virtual_pipeline_stage *= -l->pp;
}

void ms_space_write_least(const MsSpace *space, MsScenario *s) {
  if (ms_request_leaves_open(space->request, "options.grad_reduce_dtype")) s->options.grad_reduce_dtype = MS_DT_BF16;
  if (ms_request_leaves_open(space->request, "options.optimizer_post_validation"))
    s->options.optimizer_post_validation = -1;
  if (ms_request_leaves_open(space->request, "options.overlap_p2p_comm")) s->options.overlap_p2p_comm = TRUE;
  if (ms_request_leaves_open(space->request, "options.overlap_p2p_comm_warmup_flush"))
    s->options.overlap_p2p_comm_warmup_flush = TRUE;
}
