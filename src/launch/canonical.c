/* src/launch/canonical.c - one way to say each run. Every step below takes away something that no prediction depends
 * on. */
#include "describe/framework.h"
#include "describe/module_sets.h"
#include "layout/layout.h"
#include "launch/launch.h"
#include "launch/table.h"

#include <math.h>
#include <string.h>

static void canonical_split(MsScenario *s) {
  MsLayoutSpec *l = &s->layout;
  char why[8];
  int chunks = 0;
  MsChunk *parsed = l->pipeline_layout ? ms_pipeline_layout_parse(l->pipeline_layout, &chunks, why, sizeof why) : NULL;
  if (parsed) {
    g_free(l->pipeline_layout);
    l->pipeline_layout = ms_pipeline_layout_text(parsed, chunks);
    if (chunks % l->pp == 0) l->vpp = chunks / l->pp;
  }
  g_free(parsed);
  if (ms_is_hybrid(s)) ms_hybrid_canonical_split(s);
  gboolean interleaved = l->vpp > 1;
  if (!interleaved || l->microbatch_group_size_per_virtual_pipeline_stage == l->pp)
    l->microbatch_group_size_per_virtual_pipeline_stage = 0;
  if (!interleaved) s->options.overlap_p2p_comm = TRUE; /* the release overlaps p2p in the interleaved schedule only */
}

static void canonical_layout(MsScenario *s) {
  MsLayoutSpec *l = &s->layout;
  l->dp = l->edp = MS_NULL_INT;
  if (s->model->num_experts == 0) l->etp = 1;
  if (l->cp == 1) l->cp_comm_type = MS_CP_P2P;
  canonical_split(s);
}

/* What only speaks about experts, in a dense model. */
static void canonical_moe(MsScenario *s) {
  MsOptions *o = &s->options, own;
  ms_fields_defaults(&ms_options_table, &own);
  ms_framework_defaults(s->framework, &own);
  gboolean moe = s->model->num_experts > 0, shared = moe && s->model->moe_shared_expert_intermediate_size > 0;
  if (!moe) {
    s->training.routing = (MsRouting){.kind = MS_ROUTING_BALANCED};
    o->dispatcher = MS_DISPATCH_ALLTOALL; /* of a dense model, the default */
    o->moe_router_fusion = own.moe_router_fusion;
    o->moe_permute_fusion = own.moe_permute_fusion;
    o->moe_grouped_gemm = own.moe_grouped_gemm;
    o->grouped_gemm_library = own.grouped_gemm_library;
    o->moe_router_padding_for_quantization = o->moe_paged_stash = o->fused_grouped_mlp = o->fp8_dispatch = FALSE;
    o->moe_expert_rank_capacity_factor = NAN;
  }
  if (!shared) o->moe_shared_expert_overlap = FALSE;
  if (!o->moe_paged_stash) o->moe_paged_stash_buffer_size_factor_cuda = own.moe_paged_stash_buffer_size_factor_cuda;
  if (!ms_dispatcher(o)->sms_key) o->dispatcher_num_sms = 0;
  if (!shared || o->moe_shared_expert_overlap || !MS_GRAPHS(o->cuda_graph_scope, shared))
    o->cuda_graph_shared_experts = TRUE;
}

static void canonical_recompute(MsRecomputeSpec *r) {
  if (r->granularity == MS_RECOMPUTE_SELECTIVE && !r->modules) r->granularity = MS_RECOMPUTE_NONE;
  if (r->granularity != MS_RECOMPUTE_SELECTIVE) r->modules = 0;
  if (r->granularity == MS_RECOMPUTE_FULL) return;
  r->method = MS_RECOMPUTE_UNIFORM;
  r->num_layers = 1;
}

static void canonical_precision(MsScenario *s) {
  MsOptions *o = &s->options;
  gboolean low = ms_precision(&s->training)->bits < 16;
  if (!low) o->num_layers_at_start_in_bf16 = o->num_layers_at_end_in_bf16 = 0;
  if (!low || s->model->mtp_num_layers == 0) o->keep_mtp_spec_in_bf16 = FALSE;
  o->reuse_grad_buf_for_mxfp8_param_ag =
      ms_precision(&s->training)->gathers_by_gradients && o->fp8_param_gather && o->fsdp == MS_FSDP_NONE;
}

static void canonical_options(MsScenario *s) {
  MsOptions *o = &s->options;
  o->sequence_parallel = s->layout.tp > 1 && o->sequence_parallel != 0;
  if (s->layout.tp == 1) o->tp_comm_overlap = FALSE;
  if (o->fsdp == MS_FSDP_NONE) o->fsdp_double_buffer = TRUE;
  else if (o->ep_overlap) o->fsdp_double_buffer = FALSE;
  if (s->training.optimizer != MS_OPT_MUON) o->muon_tp_mode = MS_MUON_DUPLICATED;
  if (s->model->linear_attention.num_value_heads == 0 || s->layout.cp == 1) o->linear_cp_mode = MS_LINEAR_CP_HEADWISE;
  if (!o->lcma) ms_key_reset(s, "options.lcma_workspace_B");
  if (!o->cross_entropy_fusion) o->cross_entropy_fusion_impl = MS_CE_NATIVE;
  if (s->model->num_experts == 0 || s->model->activation != MS_ACT_SQUARED_RELU)
    o->use_fused_weighted_squared_relu = TRUE;
  if (!ms_model_may_fuse_rope(s->model)) o->apply_rope_fusion = TRUE;
  if (!o->cuda_graph_scope || MS_GRAPHS(o->cuda_graph_scope, whole_step)) o->cuda_graph_impl = MS_GRAPH_TE;
  canonical_moe(s);
  canonical_recompute(&o->recompute);
  canonical_precision(s);
  o->cuda_device_max_connections = ms_launch_connections(s);
}

MsScenario *ms_launch_canonical(const MsScenario *scenario) {
  MsScenario *s = ms_scenario_copy(scenario, FALSE);
  s->has_measured = FALSE;
  ms_model_canonical(s->model, s->training.seq_length);
  canonical_layout(s);
  canonical_options(s);
  g_clear_pointer(&s->model_json, json_node_unref);
  s->model_json = ms_model_mention(s->model);
  return s;
}

static gboolean is_older(const MsAttnBackendRow *row) {
  return row->generation != MS_ATTN_NEWEST && row->generation != MS_ATTN_AS_SOFTWARE;
}

static void forget_generation(MsScenario *s) {
  const MsAttnBackendRow *own = &ms_attn_backends[s->options.attention_backend];
  if (!is_older(own)) return;
  for (int i = 0; ms_attn_backend_words[i]; i++) {
    const MsAttnBackendRow *said = &ms_attn_backends[i];
    if (is_older(said) || strcmp(said->nvte_fused, own->nvte_fused) != 0 ||
        strcmp(said->nvte_flash, own->nvte_flash) != 0)
      continue;
    s->options.attention_backend = (MsAttnBackend)i;
    return;
  }
}

MsScenario *ms_launch_said(const MsScenario *scenario) {
  MsScenario *s = ms_launch_canonical(scenario);
  forget_generation(s);
  s->options.grouped_gemm_library = MS_GROUPED_TE; /* another needs patches of Megatron-LM */
  return s;
}
