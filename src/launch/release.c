/* src/launch/release.c - the rows. */
#include "launch/release.h"

#include "describe/module_sets.h"
#include "describe/recompute.h"
#include "describe/vendor.h"
#include "launch/launch.h"

#include <math.h>
#include <string.h>

typedef struct {
  const char *name; /* stable word */
  const char *path; /* key it speaks about */
  const char *doc;  /* one sentence: what the release wants */
  const char *keys; /* that alone decide it, beside the model; NULL: many do */
  gboolean (*holds)(const MsScenario *scenario);
} ReleaseRule;

#define CAPTURES(s, column) (MS_GRAPHS((s)->options.cuda_graph_scope, column) != 0)
#define OFFLOADS(s, column) (MS_OFFLOADS((s)->options.offload_modules, column) != 0)
static gboolean fsdp(const MsScenario *s) { return s->options.fsdp != MS_FSDP_NONE; }
static gboolean quantised(const MsScenario *s) { return ms_precision(&s->training)->bits < 16; }
static gboolean sharded(const MsScenario *s) { return s->options.distributed_optimizer || fsdp(s); }
/* As it is asked for graphs: by moe_layer_freq, which a hybrid model does not say (transformer_config.py). */
static gboolean has_dense_layer(const MsScenario *s) {
  return !ms_is_moe(s) || (!ms_is_hybrid(s) && memchr(s->model->moe_layer, 0, (size_t)s->model->num_layers));
}
static gboolean drops(const MsScenario *s) { return s->training.routing.kind == MS_ROUTING_CAPACITY; }
static gboolean drops_padded(const MsScenario *s) { return drops(s) && s->training.routing.pad_to_capacity; }
static gboolean precision_aware(const MsScenario *s) {
  const MsOptions *o = &s->options;
  return o->exp_avg_dtype != MS_DT_FP32 || o->exp_avg_sq_dtype != MS_DT_FP32 || o->main_params_dtype != MS_DT_FP32 ||
         o->optimizer_offload_fraction > 0;
}
static gboolean captures_wgrad(const MsScenario *s) {
  return CAPTURES(s, attention) || (CAPTURES(s, shared) && s->model->moe_shared_expert_intermediate_size > 0 &&
                                    !s->options.moe_shared_expert_overlap);
}
/* --- of modules that are recomputed --- */
static gboolean makes_expert_inputs(const MsRecomputeModule *module, const MsScenario *s) {
  (void)s;
  return module->expert_inputs;
}
static gboolean draws_in_graph(const MsRecomputeModule *module, const MsScenario *s, MsDropout dropout) {
  return module->dropout == dropout && ((s->options.cuda_graph_scope & module->dropout_graph) || CAPTURES(s, alone));
}
static gboolean draws_attention_in_graph(const MsRecomputeModule *module, const MsScenario *s) {
  return draws_in_graph(module, s, MS_DROPOUT_ATTENTION);
}
static gboolean draws_hidden_in_graph(const MsRecomputeModule *module, const MsScenario *s) {
  return draws_in_graph(module, s, MS_DROPOUT_HIDDEN);
}
static gboolean has_nothing(const MsRecomputeModule *module, const MsScenario *s) {
  return ms_recompute_lacks(module, s->model) != NULL;
}
static gboolean is_not_launched(const MsRecomputeModule *module, const MsScenario *s) {
  (void)s;
  return !module->launched;
}

/* CudaGraphManager goes with what experts keep, beside graphs of other modules (transformer_config.py). */
static gboolean offloads_beside_graphs(const MsScenario *s) {
  const guint32 offloads = s->options.offload_modules, scope = s->options.cuda_graph_scope;
  if (s->options.cuda_graph_impl != MS_GRAPH_LOCAL || !scope || !offloads || CAPTURES(s, whole_step)) return TRUE;
  return MS_OFFLOADS(offloads, experts) == offloads && !CAPTURES(s, whole_layer);
}

static gboolean excluded_graph(const MsScenario *s) {
  int other;
  return ms_graph_excluding(s->options.cuda_graph_scope, &other) >= 0;
}
static gboolean excluded_offload(const MsScenario *s) {
  int other;
  return ms_offload_excluding(s->options.offload_modules, &other) >= 0;
}

#define RULE(id, name, path, doc, ...) \
  static gboolean id(const MsScenario *s) { return (__VA_ARGS__) ? TRUE : FALSE; }
#define RULE_OF(id, name, path, doc, keys, ...) RULE(id, name, path, doc, __VA_ARGS__)
#include "launch/release.def"
#undef RULE_OF
#undef RULE

#define RULE(id, name, path, doc, ...)          {name, path, doc, NULL, id},
#define RULE_OF(id, name, path, doc, keys, ...) {name, path, doc, keys, id},
static const ReleaseRule rules[] = {
#include "launch/release.def"
};
#undef RULE_OF
#undef RULE

static gboolean refuse(const MsScenario *scenario, const ReleaseRule *rule, GError **error) {
  return ms_refuse_key(scenario, error, rule->path, "Megatron-LM would reject it: %s (rule %s)", rule->doc, rule->name);
}

gboolean ms_release_check(const MsScenario *scenario, GError **error) {
  for (int i = 0; i < (int)G_N_ELEMENTS(rules); i++)
    if (!rules[i].holds(scenario)) return refuse(scenario, &rules[i], error);
  return TRUE;
}

static gboolean is_settled(const ReleaseRule *rule, gboolean (*open)(const char *key, gconstpointer user),
                           gconstpointer user) {
  if (!rule->keys) return FALSE;
  g_auto(GStrv) keys = g_strsplit(rule->keys, " ", -1);
  for (int i = 0; keys[i]; i++)
    if (*keys[i] && open(keys[i], user)) return FALSE;
  return TRUE;
}

gboolean ms_release_may_hold(const MsScenario *base, gboolean (*open)(const char *, gconstpointer), gconstpointer user,
                             GError **error) {
  for (int i = 0; i < (int)G_N_ELEMENTS(rules); i++)
    if (is_settled(&rules[i], open, user) && !rules[i].holds(base)) return refuse(base, &rules[i], error);
  return TRUE;
}
