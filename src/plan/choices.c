/* src/plan/choices.c - the values of one open key: those of the request, or for "auto" the planner's own. */
#include "plan/choices_priv.h"
#include "plan/cuts_priv.h"
#include "plan/plan.h"
#include "base/err.h"
#include "describe/module_sets.h"
#include "describe/recompute.h"
#include "describe/rows.h"
#include <stddef.h>
#include <string.h>

/* --- which kind of key it is ----------------------------------------------------------------------------------- */

typedef struct {
  const char *path;
  MsRole role;
} Known;

/* Keys that are not here are of MS_ROLE_WORK. tests/unit/test_plan.c changes each key alone
 * and looks whether a bound moves that should not; tests/unit/test_tree.c, whether a relaxed bound is above one of
 * those below it. */
static const Known known[] = {
    {"options.sequence_parallel", MS_ROLE_WORK},
    {"options.cpu_offloading_num_layers", MS_ROLE_WORK},
    {"options.hybrid_context_parallel", MS_ROLE_WORK},
    {"options.max_seqlen_per_dp_cp_rank", MS_ROLE_WORK},
    {"options.fsdp", MS_ROLE_WORK},              /* products overwrite sharded gradients and add to whole ones */
    {"options.grad_reduce_dtype", MS_ROLE_WORK}, /* what sharded gradients are written in */
    {MS_LATE_KEY, MS_ROLE_WORK},                 /* a state, but cuts count the host's share of it */
    {"options.dispatcher", MS_ROLE_KERNELS},
    {"options.ep_overlap", MS_ROLE_BESIDE},
    {"options.delay_wgrad", MS_ROLE_BESIDE}, /* the order of pairs */
    {"options.tp_comm_overlap", MS_ROLE_BESIDE},
    {"options.cross_entropy_fusion", MS_ROLE_KERNELS},
    {"layout.cp_comm_type", MS_ROLE_KERNELS},
    {"options.recompute", MS_ROLE_ADDED},
    {"options.offload_modules", MS_ROLE_ADDED},
    {"options.cuda_graph_scope", MS_ROLE_BESIDE}, /* a host that lags behind is part of a piece; outputs are kept */
    {"options.cuda_graph_shared_experts", MS_ROLE_BESIDE},
    {"layout.schedule", MS_ROLE_SHAPE},
    {"layout.microbatch_group_size_per_virtual_pipeline_stage", MS_ROLE_SHAPE},
    {"layout.pipeline_layout", MS_ROLE_SHAPE},
    {"layout.account_for_embedding_in_pipeline_split", MS_ROLE_SHAPE},
    {"layout.account_for_loss_in_pipeline_split", MS_ROLE_SHAPE},
    {"layout.decoder_first_pipeline_num_layers", MS_ROLE_SHAPE},
    {"layout.decoder_last_pipeline_num_layers", MS_ROLE_SHAPE},
    {"layout.order", MS_ROLE_SHAPE}, /* not where pieces stand, but how far their messages go */
    {"options.num_distributed_optimizer_instances", MS_ROLE_SHAPE}, /* no piece, but groups of messages */
    {"options.fp8_param_gather", MS_ROLE_STATE},
    {"options.exp_avg_dtype", MS_ROLE_STATE},
    {"options.exp_avg_sq_dtype", MS_ROLE_STATE},
    {"options.main_params_dtype", MS_ROLE_STATE},
    {"options.reuse_fp32_param", MS_ROLE_STATE},
    {"options.distributed_optimizer", MS_ROLE_STATE},
    {"options.offload_optimizer_states", MS_ROLE_STATE},
    {"options.swap_optimizer_times", MS_ROLE_STATE},
    {"options.outer_dp_sharding_strategy", MS_ROLE_STATE},
    {"options.overlap_param_gather",
     MS_ROLE_STATE}, /* no byte, but what follows the gradient norm, as the bound with state sees it */
    {"options.overlap_param_gather_with_optimizer_step", MS_ROLE_STATE},
    {"options.overlap_p2p_comm", MS_ROLE_BLIND},
    {"options.overlap_p2p_comm_warmup_flush", MS_ROLE_BLIND},
    {"options.overlap_grad_reduce", MS_ROLE_BLIND},
    {"options.cuda_device_max_connections", MS_ROLE_BLIND},
    {"options.optimizer_post_validation", MS_ROLE_BLIND},
};

MsRole ms_role_of_key(const char *path) {
  for (guint i = 0; i < G_N_ELEMENTS(known); i++)
    if (!strcmp(known[i].path, path)) return known[i].role;
  return g_str_has_prefix(path, "options.recompute.") ? MS_ROLE_ADDED : MS_ROLE_WORK;
}

/* Some rule reads it together with sizes. */
static gboolean in_rules(const char *path) {
  for (int i = 0; i < ms_num_rules; i++)
    if (ms_rules[i].kind & (MS_RULE_RANKS | MS_RULE_PIPELINE) && ms_rule_reads(&ms_rules[i], path)) return TRUE;
  return FALSE;
}

/* --- the planner's own candidates ------------------------------------------------------------------------------ */

gboolean ms_recompute_candidate(const MsScenario *s, int i, MsRecomputeSpec *spec) {
  for (int k = 0; k < MS_N_TRIED; k++) {
    const MsRecomputeSearched *row = &ms_recompute_searched[k];
    if (!row->tried(s->model) || i-- > 0) continue;
    *spec = (MsRecomputeSpec){
        .granularity = row->granularity, .modules = ms_recompute_tried((MsRecomputeTried)k), .num_layers = 1};
    return TRUE;
  }
  return FALSE;
}

/* What a job on machines of several kinds can do is what each of them can. */
static gboolean has_graphs(const MsHardware *h, int of G_GNUC_UNUSED) { return h->cuda_graphs; }
static gboolean has_host_link(const MsHardware *h, int of G_GNUC_UNUSED) { return h->host_link_Bps > 0; }
static gboolean has_precision(const MsHardware *h, int precision) {
  return !(h->unsupported_precisions & (1u << precision)) && ms_hardware_peak_flops(h, (MsPrecision)precision) > 0;
}
static gboolean has_dispatcher(const MsHardware *h, int i) { return ms_dispatcher_exists(&ms_dispatchers[i], h); }
static gboolean all_machines(const MsScenario *s, gboolean (*has)(const MsHardware *, int), int of) {
  for (int i = 0; i < ms_scenario_machines(s); i++)
    if (!has(ms_scenario_machine(s, i), of)) return FALSE;
  return TRUE;
}

static gboolean graphs_auto(const MsScenario *s, int i, MsPatch *p) {
  int n = all_machines(s, has_graphs, 0) ? MS_N_SETS_SEARCHED : 1;
  p->value.bits = ms_graphs_tried(s->model->num_experts > 0, i);
  return i < n;
}

static gboolean offload_auto(const MsScenario *s, int i, MsPatch *p) {
  int n = all_machines(s, has_host_link, 0) ? MS_N_SETS_SEARCHED : 1;
  p->value.bits = ms_offloads_tried(s->model->num_experts > 0, i);
  return i < n;
}

/* Value i of a list that leaves some words of an enumeration out. */
static gboolean words_auto(int n, gboolean (*usable)(const MsScenario *, int), const MsScenario *s, int i, MsPatch *p) {
  for (int word = 0; word < n; word++) {
    if (!usable(s, word) || i-- > 0) continue;
    p->value.i = word;
    return TRUE;
  }
  return FALSE;
}

gboolean ms_precision_tried(const MsScenario *s, int i) {
  return ms_precisions[i].in_auto && all_machines(s, has_precision, i);
}
static gboolean dispatcher_usable(const MsScenario *s, int i) {
  if (s->model->num_experts == 0) return i == MS_DISPATCH_ALLTOALL; /* the default */
  return ms_dispatchers[i].in_auto && all_machines(s, has_dispatcher, i);
}
static gboolean schedule_usable(const MsScenario *s, int i) {
  (void)s;
  return ms_schedule_rows[i].search == MS_SEARCH_TRIES;
}
static gboolean any_usable(const MsScenario *s, int i) {
  (void)s, (void)i;
  return TRUE;
}

/* Value i of an "auto"; FALSE past the last. *offered FALSE: there is no "auto" for this key. */
static gboolean automatic(const MsScenario *s, const MsOpenKey *open, int i, MsPatch *p, gboolean *offered) {
  static const int groups[] = {0, -2, -4}; /* microbatches per group: PP, and twice and four times as many */
  static const double fractions[] = {0, 0.5, 1};
  const char *path = open->path;
  *offered = TRUE;
  if (!strcmp(path, "layout.pipeline_layout")) /* no text: it is written by ms_space_balance */
    return i < (s->pools.n > 0 ? MS_N_POOL_CUTS : MS_N_CUTS);
  if (!strcmp(path, "options.recompute")) return ms_recompute_candidate(s, i, &p->value.recompute);
  if (!strcmp(path, "options.cuda_graph_scope")) return graphs_auto(s, i, p);
  if (!strcmp(path, "options.offload_modules")) return offload_auto(s, i, p);
  if (!strcmp(path, "training.precision")) return words_auto(MS_N_PRECISIONS, ms_precision_tried, s, i, p);
  if (!strcmp(path, "options.dispatcher")) return words_auto(MS_N_DISPATCHERS, dispatcher_usable, s, i, p);
  if (!strcmp(path, "options.fsdp")) return words_auto(MS_FSDP_OPTIM_GRADS_PARAMS + 1, any_usable, s, i, p);
  if (!strcmp(path, "layout.schedule")) return words_auto(MS_N_SCHEDULES, schedule_usable, s, i, p);
  if (!strcmp(path, "layout.cp_comm_type")) return words_auto(MS_N_CP_COMMS, any_usable, s, i, p);
  if (!strcmp(path, "layout.order")) return words_auto(MS_ORDER_PP_DP + 1, any_usable, s, i, p);
  if (!strcmp(path, "layout.microbatch_group_size_per_virtual_pipeline_stage")) {
    if (i < (int)G_N_ELEMENTS(groups)) p->value.i = groups[i];
    return i < (int)G_N_ELEMENTS(groups);
  }
  if (!strcmp(path, MS_LATE_KEY)) {
    if (i < (int)G_N_ELEMENTS(fractions)) p->value.f = fractions[i];
    return i < (all_machines(s, has_host_link, 0) ? (int)G_N_ELEMENTS(fractions) : 1);
  }
  if (!strcmp(path, "options.sequence_parallel")) { /* with TP; without it neither value means anything */
    p->value.i = -1;
    return i == 0;
  }
  if (open->field->type == MS_T_BOOL) {
    p->value.i = i;
    return i < 2 && !(i == 1 && s->model->num_experts == 0 &&
                      (!strcmp(path, "options.ep_overlap") || !strcmp(path, "options.delay_wgrad")));
  }
  *offered = FALSE;
  return FALSE;
}

/* --- reading and writing --------------------------------------------------------------------------------------- */

static size_t object_offset(const char *path) {
  if (g_str_has_prefix(path, "layout.")) return offsetof(MsScenario, layout);
  if (g_str_has_prefix(path, "options.recompute.")) return offsetof(MsScenario, options.recompute);
  if (g_str_has_prefix(path, "options.")) return offsetof(MsScenario, options);
  return g_str_has_prefix(path, "training.") ? offsetof(MsScenario, training) : 0;
}

static size_t size_of(const MsField *field) {
  switch (field->type) {
  case MS_T_STRING: return 0;
  case MS_T_F64: return sizeof(double);
  case MS_T_OBJECT: return sizeof(MsRecomputeSpec);
  default: return sizeof(int);
  }
}

static MsPatch *add(MsChoice *c) {
  c->value = g_renew(MsPatch, c->value, c->n + 1);
  memset(&c->value[c->n], 0, sizeof *c->value);
  return &c->value[c->n++];
}

/* A value of the request, through the reader of its field. */
static gboolean given(MsChoice *c, const MsRequest *r, int i, GError **error) {
  g_autoptr(MsScenario) scratch = ms_scenario_copy(r->base, TRUE);
  char *object = (char *)scratch + object_offset(c->open->path), *member = (char *)scratch + c->offset;
  if (!ms_field_set(c->open->field, NULL, c->open->values[i], c->open->path, object, error)) return FALSE;
  if (g_str_has_prefix(c->open->path, "options.recompute")) ms_scenario_take_modules(scratch, r->base);
  MsPatch *p = add(c);
  if (c->size) memcpy(&p->value, member, c->size);
  else p->text = g_strdup(*(char **)(void *)member);
  return TRUE;
}

/* To rules about ranks the planner's own cuts look alike: they are written when they are made (ms_space_balance). */
static gboolean written_later(const MsOpenKey *open) {
  return open->n == 0 && !strcmp(open->path, "layout.pipeline_layout");
}

gboolean ms_choice_init(MsChoice *c, const MsRequest *r, const MsOpenKey *open, GError **error) {
  *c = (MsChoice){.open = open,
                  .role = ms_role_of_key(open->path),
                  .in_rules = in_rules(open->path) && !written_later(open),
                  .size = size_of(open->field)};
  c->offset = object_offset(open->path) + open->field->offset;
  for (int i = 0; i < open->n; i++)
    if (!given(c, r, i, error)) return FALSE;
  if (open->n > 0) return TRUE;
  for (gboolean offered = TRUE;;) {
    MsPatch value = {0};
    if (automatic(r->base, open, c->n, &value, &offered)) *add(c) = value;
    else if (offered) return TRUE;
    else
      return ms_input_error(error, r->base->file, 0, open->path,
                            "\"auto\" is not offered for this key, give a list of values");
  }
}

void ms_choice_clear(MsChoice *c) {
  for (int i = 0; i < c->n; i++) g_free(c->value[i].text);
  g_free(c->value);
}

void ms_choice_apply(const MsChoice *c, int value, MsScenario *s) {
  char *member = (char *)s + c->offset;
  if (c->size) {
    memcpy(member, &c->value[value].value, c->size);
    return;
  }
  char **text = (char **)(void *)member;
  g_free(*text);
  *text = g_strdup(c->value[value].text);
}
