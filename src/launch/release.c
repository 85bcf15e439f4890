/* src/launch/release.c - the rows. */
#include "launch/release.h"

#include "describe/module_sets.h"
#include "describe/recompute.h"
#include "launch/launch.h"

#include <math.h>
#include <string.h>

typedef struct {
  const char *name; /* stable word */
  const char *path; /* key it speaks about */
  const char *doc;  /* one sentence: what the release wants */
  gboolean (*holds)(const MsScenario *scenario);
} ReleaseRule;

#define RULE(id, expression) \
  static gboolean id(const MsScenario *s) { return (expression) ? TRUE : FALSE; }

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

static gboolean excluded_graph(const MsScenario *s) {
  int other;
  return ms_graph_excluding(s->options.cuda_graph_scope, &other) >= 0;
}
static gboolean excluded_offload(const MsScenario *s) {
  int other;
  return ms_offload_excluding(s->options.offload_modules, &other) >= 0;
}

RULE(ce_native, !s->options.cross_entropy_fusion || s->options.cross_entropy_fusion_impl == MS_CE_NATIVE)
RULE(mtp_positions, s->model->mtp_num_layers == 0 || s->model->position_embedding == MS_POS_ROPE ||
                        s->model->position_embedding == MS_POS_NONE)
RULE(learned_positions,
     s->model->position_embedding != MS_POS_LEARNED || s->model->seq_length_max >= s->training.seq_length)
RULE(aware_sharded, !precision_aware(s) || sharded(s))
RULE(aware_adam, !precision_aware(s) || s->training.optimizer == MS_OPT_ADAM)
RULE(fp8_params_sharded, !s->options.fp8_param_gather || sharded(s))
RULE(output_proj_mxfp8, !s->options.fp8_output_proj || ms_precision(&s->training)->output_proj)
RULE(optimizer_step_overlap, !s->options.overlap_param_gather_with_optimizer_step ||
                                 (s->options.distributed_optimizer && s->options.overlap_param_gather &&
                                  s->layout.vpp > 1 && !s->options.reuse_grad_buf_for_mxfp8_param_ag))
RULE(fsdp_adam, !fsdp(s) || s->training.optimizer == MS_OPT_ADAM)
RULE(fsdp_sharded, !fsdp(s) || s->options.distributed_optimizer)
RULE(fsdp_connections, !fsdp(s) || ms_launch_connections(s) != 1)
RULE(connections_one, !ms_launch_asserts_connections(s) || ms_launch_connections(s) == 1)
RULE(bf16_ends_on_stage, MAX(s->options.num_layers_at_start_in_bf16, s->options.num_layers_at_end_in_bf16) <=
                             s->model->num_layers / s->layout.pp)
RULE(offload_te, !s->options.offload_modules || s->options.transformer_impl == MS_IMPL_TE)
RULE(offload_kinds, !s->options.offload_modules || s->options.cpu_offloading_num_layers == 0)
RULE(offload_moe_recompute, !OFFLOADS(s, experts) || !ms_recomputed(s, makes_expert_inputs))
RULE(offload_fused_mlp, (!OFFLOADS(s, fused) || s->options.use_transformer_engine_op_fuser) && !excluded_offload(s))
RULE(offload_graphs,
     !s->options.offload_modules || MS_GRAPHS(s->options.cuda_graph_scope, offloads) == s->options.cuda_graph_scope)
RULE(stash_capacity, !s->options.moe_paged_stash || !isnan(s->options.moe_expert_rank_capacity_factor))
RULE(stash_offload, !s->options.moe_paged_stash || (s->options.cpu_offloading_num_layers == 0 && !OFFLOADS(s, experts)))
RULE(grouped_experts, s->options.moe_grouped_gemm || s->model->num_experts == 0 ||
                          !(s->options.fused_grouped_mlp || s->options.use_transformer_engine_op_fuser))
RULE(rank_capacity, isnan(s->options.moe_expert_rank_capacity_factor) ||
                        (ms_dispatcher(&s->options)->rank_capacity && s->options.use_transformer_engine_op_fuser))
RULE(delay_wgrad_te, !s->options.delay_wgrad || s->options.transformer_impl == MS_IMPL_TE)
RULE(delay_wgrad_graphs, !s->options.delay_wgrad || !s->options.overlap_grad_reduce || !captures_wgrad(s) ||
                             (s->options.gradient_accumulation_fusion &&
                              (!CAPTURES(s, attention) || (!s->model->add_bias_linear && !s->model->add_qkv_bias))))
RULE(padding_quantised, !s->options.moe_router_padding_for_quantization || quantised(s))
RULE(graph_mlp, !CAPTURES(s, dense_layers) || has_dense_layer(s))
RULE(graph_moe_model, !CAPTURES(s, experts) || s->model->num_experts > 1)
RULE(graph_moe_router, !excluded_graph(s))
RULE(graph_moe_drops, !CAPTURES(s, fixed_capacity) || drops_padded(s))
RULE(graph_preprocess,
     !CAPTURES(s, prepares) || !drops(s) || drops_padded(s) || !ms_dispatcher(&s->options)->waits_in_preprocess)
RULE(graph_shared, s->options.cuda_graph_shared_experts)
RULE(graph_offloading,
     !s->options.cuda_graph_scope || CAPTURES(s, whole_step) || s->options.cpu_offloading_num_layers == 0)
RULE(graph_attention_dropout, !(s->model->attention_dropout > 0) || !ms_recomputed(s, draws_attention_in_graph))
RULE(graph_hidden_dropout, !(s->model->hidden_dropout > 0) || !ms_recomputed(s, draws_hidden_in_graph))
RULE(recompute_needs, !ms_recomputed(s, has_nothing))
RULE(recompute_launched, !ms_recomputed(s, is_not_launched))
RULE(cpu_offload_layers,
     s->options.cpu_offloading_num_layers == 0 || s->options.cpu_offloading_num_layers < s->model->num_layers)
RULE(defer_embedding,
     !s->options.defer_embedding_wgrad_compute || (s->layout.pp > 1 && s->options.gradient_accumulation_fusion))
RULE(all_trained, !ms_lora_is_on(&s->training.lora))
RULE(transpose_cache, !s->options.disable_parameter_transpose_cache)
RULE(whole_nodes, s->gpus <= s->hardware->gpus_per_node || s->gpus % s->hardware->gpus_per_node == 0)

static const ReleaseRule rules[] = {
    {"ce-native", "options.cross_entropy_fusion_impl", "fused cross entropy must be native", ce_native},
    {"mtp-positions", "model.position_embedding", "MTP needs rope or none", mtp_positions},
    {"learned-positions", "model.seq_length_max", "the table of learned positions must cover the sequence",
     learned_positions},
    {"precision-aware-sharded", "options.exp_avg_dtype",
     "the precision-aware optimizer (states below fp32, or on the host) needs distributed_optimizer", aware_sharded},
    {"precision-aware-adam", "training.optimizer",
     "the precision-aware optimizer (states below fp32, or on the host) is adam only", aware_adam},
    {"fp8-params-sharded", "options.fp8_param_gather", "FP8 parameters need distributed_optimizer or FSDP",
     fp8_params_sharded},
    {"output-proj-mxfp8", "options.fp8_output_proj", "an FP8 output projection needs mxfp8", output_proj_mxfp8},
    {"optimizer-step-overlap", "options.overlap_param_gather_with_optimizer_step",
     "needs distributed_optimizer, overlap_param_gather, VPP, and no reuse_grad_buf_for_mxfp8_param_ag",
     optimizer_step_overlap},
    {"fsdp-adam", "training.optimizer", "Megatron-FSDP has adam only", fsdp_adam},
    {"fsdp-sharded", "options.distributed_optimizer", "Megatron-FSDP has the distributed optimizer on", fsdp_sharded},
    {"fsdp-connections", "options.cuda_device_max_connections",
     "Megatron-FSDP excludes CUDA_DEVICE_MAX_CONNECTIONS = 1", fsdp_connections},
    {"connections-one", "options.cuda_device_max_connections",
     "TP or CP before Blackwell needs CUDA_DEVICE_MAX_CONNECTIONS = 1", connections_one},
    {"bf16-ends-on-stage", "options.num_layers_at_start_in_bf16", "layers kept in BF16 must fit on one pipeline stage",
     bf16_ends_on_stage},
    {"offload-te", "options.offload_modules", "activation offload needs transformer_impl transformer_engine",
     offload_te},
    {"offload-kinds", "options.offload_modules", "offload of modules excludes cpu_offloading_num_layers",
     offload_kinds},
    {"offload-moe-recompute", "options.offload_modules",
     "recompute of moe excludes offload of expert_fc1, moe_act and fused_group_mlp", offload_moe_recompute},
    {"offload-fused-mlp", "options.offload_modules",
     "fused_group_mlp needs use_transformer_engine_op_fuser and excludes expert_fc1 and moe_act", offload_fused_mlp},
    {"offload-graphs", "options.offload_modules",
     "activation offload excludes graphs of moe and of the whole iteration", offload_graphs},
    {"stash-capacity", "options.moe_paged_stash", "the paged stash needs moe_expert_rank_capacity_factor",
     stash_capacity},
    {"stash-offload", "options.moe_paged_stash", "the paged stash excludes other offload of expert activations",
     stash_offload},
    {"grouped-experts", "options.moe_grouped_gemm",
     "fused_grouped_mlp and use_transformer_engine_op_fuser need grouped experts", grouped_experts},
    {"rank-capacity", "options.moe_expert_rank_capacity_factor", "needs hybridep and use_transformer_engine_op_fuser",
     rank_capacity},
    {"delay-wgrad-te", "options.delay_wgrad", "needs transformer_impl transformer_engine", delay_wgrad_te},
    {"delay-wgrad-graphs", "options.delay_wgrad",
     "with weight gradients in a graph: gradient_accumulation_fusion, and no attention bias in a graph of attn",
     delay_wgrad_graphs},
    {"padding-quantised", "options.moe_router_padding_for_quantization", "needs an FP8 or FP4 precision",
     padding_quantised},
    {"graph-mlp", "options.cuda_graph_scope", "a graph of mlp needs dense layers", graph_mlp},
    {"graph-moe-model", "options.cuda_graph_scope", "graphs of moe parts need experts", graph_moe_model},
    {"graph-moe-router", "options.cuda_graph_scope", "moe and moe_router exclude each other", graph_moe_router},
    {"graph-moe-drops", "options.cuda_graph_scope", "a graph of moe needs routing with a capacity factor, padded",
     graph_moe_drops},
    {"graph-preprocess-syncs", "options.cuda_graph_scope",
     "with alltoall and an unpadded capacity factor moe_preprocess cannot be captured", graph_preprocess},
    {"graph-shared", "options.cuda_graph_shared_experts",
     "the release captures shared experts with moe_router; must be true", graph_shared},
    {"graph-offloading", "options.cuda_graph_scope", "graphs of layers exclude cpu_offloading_num_layers",
     graph_offloading},
    {"graph-attention-dropout", "options.recompute.modules", "core_attn with dropout cannot be recomputed in a graph",
     graph_attention_dropout},
    {"graph-hidden-dropout", "options.recompute.modules", "mlp and moe with dropout cannot be recomputed in a graph",
     graph_hidden_dropout},
    {"recompute-needs", "options.recompute.modules",
     "mla_up_proj needs latent attention, moe_act experts, gdn_norm_out gated delta nets", recompute_needs},
    {"recompute-launched", "options.recompute.modules", "mhc needs hyper-connections, which moesim does not launch",
     recompute_launched},
    {"cpu-offload-layers", "options.cpu_offloading_num_layers", "must be fewer than the layers of the model",
     cpu_offload_layers},
    {"defer-embedding", "options.defer_embedding_wgrad_compute", "needs PP > 1 and gradient_accumulation_fusion",
     defer_embedding},
    {"all-trained", "training.lora",
     "adapters are no argument of pretrain_gpt.py (Megatron-Bridge has them, as peft of a recipe)", all_trained},
    {"transpose-cache", "options.disable_parameter_transpose_cache", "is no argument of pretrain_gpt.py",
     transpose_cache},
    {"whole-nodes", "gpus", "beyond one node must be a whole number of nodes of the machine", whole_nodes},
};

gboolean ms_release_check(const MsScenario *scenario, GError **error) {
  for (int i = 0; i < (int)G_N_ELEMENTS(rules); i++) {
    const ReleaseRule *rule = &rules[i];
    if (!rule->holds(scenario))
      return ms_refuse_key(scenario, error, rule->path, "Megatron-LM would reject it: %s (rule %s)", rule->doc,
                           rule->name);
  }
  return TRUE;
}
