/* src/plan/space.c - a request as axes of integers times combinations of everything else that is open. */
#include "plan/plan_priv.h"
#include "base/err.h"
#include <math.h>
#include <string.h>

const char *const ms_axis_paths[] = {"layout.tp", "layout.cp", "layout.pp", "layout.vpp", "layout.ep", "layout.etp", "training.micro_batch_size", NULL};

static int axis_of(const char *path) {
  for (int i = 0; i < MS_N_AXES; i++)
    if (!strcmp(path, ms_axis_paths[i])) return i;
  return -1;
}

static void push(MsIntAxis *a, int value) {
  for (int i = 0; i < a->n; i++)
    if (a->value[i] == value) return;
  a->value = g_renew(int, a->value, a->n + 1);
  a->value[a->n++] = value;
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* --- the planner's own candidates --- */

static void powers(MsIntAxis *a, int limit) {
  for (int v = 1; v <= limit; v *= 2) push(a, v);
}
static void divisors(MsIntAxis *a, int of, int limit) {
  for (int v = 1; v <= MIN(of, limit); v++)
    if (of % v == 0) push(a, v);
}

static void automatic(MsIntAxis *a, int axis, const MsScenario *s) {
  const MsModel *m = s->model;
  switch (axis) {
  case MS_AXIS_TP: powers(a, MIN(MIN(m->num_attention_heads, s->gpus), MAX(s->hardware->gpus_per_node, 8))); break;
  case MS_AXIS_CP: powers(a, MIN(s->gpus, MAX(1, s->training.seq_length / 2048))); break;
  case MS_AXIS_PP: divisors(a, s->gpus, MIN(m->num_layers + 2, 128)); break;
  case MS_AXIS_VPP:
    for (int v = 1; v <= MIN(m->num_layers, 16); v++) push(a, v);
    break;
  case MS_AXIS_EP:
    if (m->num_experts > 0) divisors(a, m->num_experts, s->gpus);
    else push(a, 1);
    break;
  case MS_AXIS_ETP:
    if (m->num_experts > 0) powers(a, MIN(s->gpus, MAX(s->hardware->gpus_per_node, 8)));
    else push(a, 1);
    break;
  case MS_AXIS_MBS: powers(a, MIN(8, s->training.global_batch_size)); break;
  }
}

/* --- the other open keys --- */

typedef struct { MsFieldType type; int n; MsScenario **out; } Combos;

static void *object_of(MsScenario *s, const char *path) {
  if (g_str_has_prefix(path, "layout.")) return &s->layout;
  if (g_str_has_prefix(path, "options.recompute.")) return &s->options.recompute;
  if (g_str_has_prefix(path, "options.")) return &s->options;
  return &s->training;
}

static gboolean recompute_choice(MsScenario *s, int i) {
  MsRecomputeSpec *r = &s->options.recompute;
  gboolean mla = ms_model_has_mla(s->model), moe = s->model->num_experts > 0;
  *r = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_SELECTIVE, .num_layers = 1};
  switch (i) {
  case 0: r->granularity = MS_RECOMPUTE_NONE; return TRUE;
  case 1: r->modules = MS_RM_MOE_ACT; return moe;
  case 2: r->modules = MS_RM_MOE_ACT | MS_RM_LAYERNORM; return moe;
  case 3: r->modules = MS_RM_MLA_UP_PROJ; return mla;
  case 4: r->modules = MS_RM_MLA_UP_PROJ | MS_RM_MOE_ACT | MS_RM_LAYERNORM; return mla && moe;
  case 5: r->modules = MS_RM_MLA_UP_PROJ | MS_RM_MLP | MS_RM_MOE_ACT | MS_RM_LAYERNORM; return mla && moe;
  case 6: r->modules = MS_RM_MOE | MS_RM_LAYERNORM; return moe;
  case 7: r->modules = MS_RM_MLP; return !moe;
  case 8: r->granularity = MS_RECOMPUTE_FULL; return TRUE;
  default: return FALSE;
  }
}

/* Value i of what the planner tries for an "auto" of this key; FALSE past the last; skips what does not apply by leaving *usable FALSE. */
static gboolean automatic_choice(MsScenario *s, const MsOpenKey *open, int i, gboolean *usable, GError **error) {
  *usable = TRUE;
  if (!strcmp(open->path, "layout.pipeline_layout")) { /* the planner balances one where layers do not divide evenly */
    g_clear_pointer(&s->layout.pipeline_layout, g_free);
    return i == 0;
  }
  if (!strcmp(open->path, "options.recompute")) {
    if (i > 8) return FALSE;
    *usable = recompute_choice(s, i);
    return TRUE;
  }
  if (!strcmp(open->path, "training.precision")) {
    if (i >= MS_N_PRECISIONS) return FALSE;
    *usable = i != MS_FP16 && !(s->hardware->unsupported_precisions & (1u << i)) && ms_hardware_peak_flops(s->hardware, (MsPrecision)i) > 0;
    s->training.precision = (MsPrecision)i;
    return TRUE;
  }
  if (!strcmp(open->path, "options.dispatcher")) {
    if (i > MS_DISPATCH_HYBRIDEP) return FALSE;
    *usable = i == MS_DISPATCH_ALLTOALL || (i == MS_DISPATCH_DEEPEP && s->hardware->deepep) || (i == MS_DISPATCH_HYBRIDEP && s->hardware->hybridep);
    s->options.dispatcher = (MsDispatcher)i;
    return TRUE;
  }
  if (open->field->type == MS_T_BOOL) {
    if (i > 1) return FALSE;
    *(gboolean *)((char *)object_of(s, open->path) + open->field->offset) = i;
    return TRUE;
  }
  ms_input_error(error, s->file, 0, open->path, "\"auto\" is not offered for this key, give a list of values");
  return FALSE;
}

static void put(Combos *out, MsScenario *s) {
  out->out = g_renew(MsScenario *, out->out, out->n + 1);
  out->out[out->n++] = s;
}

/* Multiplies the combinations in `from` by the values of one open key. */
static gboolean multiply(const Combos *from, const MsOpenKey *open, Combos *to, GError **error) {
  for (int c = 0; c < from->n; c++)
    for (int i = 0; open->n == 0 || i < open->n; i++) {
      MsScenario *s = ms_scenario_copy(from->out[c], TRUE);
      gboolean usable = TRUE;
      GError *why = NULL;
      if (open->n > 0) {
        if (!ms_field_set(open->field, NULL, open->values[i], open->path, object_of(s, open->path), error)) {
          ms_scenario_free(s);
          return FALSE;
        }
      } else if (!automatic_choice(s, open, i, &usable, &why)) {
        ms_scenario_free(s);
        if (!why) break;
        g_propagate_error(error, why);
        return FALSE;
      }
      if (usable) put(to, s);
      else ms_scenario_free(s);
      if (to->n > 100000) return ms_input_error(error, from->out[0]->file, 0, open->path, "more than 100000 combinations of open options, close some");
    }
  return TRUE;
}

static void combos_clear(Combos *c) {
  for (int i = 0; i < c->n; i++) ms_scenario_free(c->out[i]);
  g_free(c->out);
  c->out = NULL, c->n = 0;
}

static gboolean make_combos(MsSpace *space, GError **error) {
  Combos now = {0};
  put(&now, ms_scenario_copy(space->request->base, TRUE));
  for (int i = 0; i < space->request->n_open; i++) {
    const MsOpenKey *open = &space->request->open[i];
    if (axis_of(open->path) >= 0) continue;
    Combos next = {0};
    gboolean ok = multiply(&now, open, &next, error);
    combos_clear(&now);
    now = next;
    if (!ok) {
      combos_clear(&now);
      return FALSE;
    }
  }
  space->n_combos = now.n;
  space->combo = now.out;
  return TRUE;
}

/* --- axes --- */

static gboolean given_values(MsIntAxis *a, const MsOpenKey *open, const MsRequest *request, GError **error) {
  g_autoptr(MsScenario) scratch = ms_scenario_copy(request->base, TRUE);
  void *object = object_of(scratch, open->path);
  for (int i = 0; i < open->n; i++) {
    if (!ms_field_set(open->field, NULL, open->values[i], open->path, object, error)) return FALSE;
    push(a, *(int *)((char *)object + open->field->offset));
  }
  return TRUE;
}

static gboolean layout_key_given(const MsRequest *request, const char *key) {
  for (int i = 0; ms_layout_table.fields[i].key; i++)
    if (!strcmp(ms_layout_table.fields[i].key, key)) return (request->layout_given >> i) & 1;
  return FALSE;
}

static int base_value(const MsScenario *s, int axis) {
  const MsLayoutSpec *l = &s->layout;
  const int value[MS_N_AXES] = {l->tp, l->cp, l->pp, l->vpp, l->ep, l->etp, s->training.micro_batch_size};
  return value[axis];
}

static gboolean make_axis(MsSpace *space, int axis, GError **error) {
  const MsRequest *r = space->request;
  MsIntAxis *a = &space->axis[axis];
  for (int i = 0; i < r->n_open; i++)
    if (!strcmp(r->open[i].path, ms_axis_paths[axis])) {
      if (r->open[i].n > 0) {
        if (!given_values(a, &r->open[i], r, error)) return FALSE;
      } else {
        automatic(a, axis, r->base);
      }
      qsort(a->value, (size_t)a->n, sizeof(int), ascending);
      return TRUE;
    }
  gboolean fixed = axis == MS_AXIS_MBS || layout_key_given(r, strchr(ms_axis_paths[axis], '.') + 1);
  /* a pipeline layout fixes how many virtual stages there are; with pp open, every pp that divides them is tried */
  if (fixed) push(a, base_value(r->base, axis));
  else automatic(a, axis, r->base);
  qsort(a->value, (size_t)a->n, sizeof(int), ascending);
  return TRUE;
}

MsSpace *ms_space_new(const MsRequest *request, GError **error) {
  MsSpace *space = g_new0(MsSpace, 1);
  space->request = request;
  const MsModel *m = request->base->model;
  space->tail = ms_head_weight(m, request->base->training.seq_length) + m->mtp_num_layers;
  gboolean ok = TRUE;
  for (int i = 0; ok && i < MS_N_AXES; i++) ok = make_axis(space, i, error);
  if (!ok || !make_combos(space, error)) {
    ms_space_free(space);
    return NULL;
  }
  return space;
}

void ms_space_free(MsSpace *space) {
  if (!space) return;
  for (int i = 0; i < MS_N_AXES; i++) g_free(space->axis[i].value);
  for (int i = 0; i < space->n_combos; i++) ms_scenario_free(space->combo[i]);
  g_free(space->combo);
  g_free(space);
}

double ms_space_size(const MsSpace *space) {
  double n = space->n_combos;
  for (int i = 0; i < MS_N_AXES; i++) n *= space->axis[i].n;
  return n;
}

/* --- candidates --- */

static gboolean splits_evenly(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  if (l->pipeline_layout || l->account_for_embedding_in_pipeline_split || l->account_for_loss_in_pipeline_split ||
      l->decoder_first_pipeline_num_layers > 0 || l->decoder_last_pipeline_num_layers > 0)
    return TRUE; /* the request says how */
  return s->model->num_layers % (l->pp * l->vpp) == 0 && s->model->mtp_num_layers == 0;
}

void ms_candidate_apply(const MsSpace *space, const MsCandidate *c, MsScenario *s) {
  MsLayoutSpec *l = &s->layout;
  l->tp = c->value[MS_AXIS_TP], l->cp = c->value[MS_AXIS_CP], l->pp = c->value[MS_AXIS_PP], l->vpp = c->value[MS_AXIS_VPP];
  l->ep = c->value[MS_AXIS_EP], l->etp = c->value[MS_AXIS_ETP];
  s->training.micro_batch_size = c->value[MS_AXIS_MBS];
  int stages = l->pp * l->vpp;
  if (l->pp == 1 || splits_evenly(s) || stages > s->model->num_layers + 2) return;
  int *counts = g_new(int, stages);
  if (ms_partition(s->model->num_layers, stages, 0.3, space->tail, counts)) {
    g_free(l->pipeline_layout);
    l->pipeline_layout = ms_partition_text(counts, stages, s->model->mtp_num_layers);
  }
  g_free(counts);
}

int ms_candidate_compare(const void *a, const void *b) {
  const MsCandidate *x = a, *y = b;
  if (x->bound != y->bound) return x->bound < y->bound ? -1 : 1;
  if (x->combo != y->combo) return x->combo < y->combo ? -1 : 1;
  for (int i = 0; i < MS_N_AXES; i++)
    if (x->value[i] != y->value[i]) return x->value[i] < y->value[i] ? -1 : 1;
  return 0;
}
