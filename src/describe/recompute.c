/* src/describe/recompute.c - rows of recompute_module.def. */
#include "describe/recompute.h"

const MsRecomputeModule ms_recompute_modules[] = {
#define MS_RECOMPUTE_MODULE(id, w, d, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15) \
  [MS_RM_NUMBER_##id] = {c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, .word = w},
#include "describe/recompute_module.def"
#undef MS_RECOMPUTE_MODULE
};

const MsRecomputeModule *ms_recomputed(const MsScenario *s, MsRecomputeTest is) {
  for (int i = 0; i < MS_N_RECOMPUTE_MODULES; i++)
    if (ms_recomputes(&s->options, 1u << i) && is(&ms_recompute_modules[i], s)) return &ms_recompute_modules[i];
  return NULL;
}

guint32 ms_recompute_default(void) {
  guint32 modules = 0;
  for (int i = 0; i < MS_N_RECOMPUTE_MODULES; i++)
    if (ms_recompute_modules[i].by_default) modules |= 1u << i;
  return modules;
}

static gboolean plain_layers(const MsModel *m) {
  gboolean plain = !ms_model_has_mla(m) && !ms_model_has_compressed_attention(m) && m->query_latent_size == 0 &&
                   ms_model_streams(m) == 1;
  for (int i = 0; plain && i < m->num_layers; i++)
    plain = ms_model_mixers(m, i) == (MS_MIX_ATTN | MS_MIX_MLP) && !ms_model_layer_is_sparse(m, i);
  return plain;
}

const char *ms_recompute_lacks(const MsRecomputeModule *module, const MsModel *m) {
  switch (module->part) {
  case MS_PART_EVERY: break;
  case MS_PART_EXPERTS: return m->num_experts > 0 ? NULL : "experts";
  case MS_PART_LATENTS: return ms_model_has_mla(m) ? NULL : "multi_latent_attention";
  case MS_PART_STREAMS: return ms_model_streams(m) > 1 ? NULL : "hyper_connections";
  case MS_PART_PLAIN_LAYERS: return plain_layers(m) ? NULL : "GQA and a dense MLP in all layers";
  case MS_PART_DELTA_RULE: return m->linear_attention.num_value_heads > 0 ? NULL : "linear_attention";
  }
  return NULL;
}

/* --- the planner's candidates ---------------------------------------------------------------------------------- */
static gboolean any(const MsModel *m) { return m != NULL; }
static gboolean dense(const MsModel *m) { return m->num_experts == 0; }
static gboolean moe(const MsModel *m) { return m->num_experts > 0; }
static gboolean mla(const MsModel *m) { return ms_model_has_mla(m); }
static gboolean moe_mla(const MsModel *m) { return moe(m) && mla(m); }

const MsRecomputeSearched ms_recompute_searched[] = {[MS_TRY_NONE] = {MS_RECOMPUTE_NONE, any},
                                                     [MS_TRY_MOE_ACT] = {MS_RECOMPUTE_SELECTIVE, moe},
                                                     [MS_TRY_MOE_ACT_NORM] = {MS_RECOMPUTE_SELECTIVE, moe},
                                                     [MS_TRY_LATENTS] = {MS_RECOMPUTE_SELECTIVE, mla},
                                                     [MS_TRY_LATENTS_MOE_ACT] = {MS_RECOMPUTE_SELECTIVE, moe_mla},
                                                     [MS_TRY_LATENTS_MLP] = {MS_RECOMPUTE_SELECTIVE, moe_mla},
                                                     [MS_TRY_MOE] = {MS_RECOMPUTE_SELECTIVE, moe},
                                                     [MS_TRY_OPERATORS] = {MS_RECOMPUTE_SELECTIVE, dense},
                                                     [MS_TRY_CORE_ATTN] = {MS_RECOMPUTE_SELECTIVE, dense},
                                                     [MS_TRY_MLP] = {MS_RECOMPUTE_SELECTIVE, dense},
                                                     [MS_TRY_MLP_NORM] = {MS_RECOMPUTE_SELECTIVE, dense},
                                                     [MS_TRY_FULL] = {MS_RECOMPUTE_FULL, any}};
G_STATIC_ASSERT(G_N_ELEMENTS(ms_recompute_searched) == MS_N_TRIED);

guint32 ms_recompute_tried(MsRecomputeTried set) {
  guint32 modules = 0;
  for (int i = 0; i < MS_N_RECOMPUTE_MODULES; i++)
    if (ms_recompute_modules[i].tried >> set & 1) modules |= 1u << i;
  return modules;
}
