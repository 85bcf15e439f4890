/* src/launch/table.c - the rows. */
#include "launch/table.h"

const char *const ms_launch_notes = "name software doc model.name hardware training.routing";
const char *const ms_launch_unused =
    "options.linear_cp_mode schema gpus model training layout options measured model.schema model.doc model.source "
    "model.of_a_study layout.dp "
    "layout.edp options.recompute "
    "model.multi_latent_attention model.sliding_window model.rope_scaling model.mamba model.linear_attention "
    "model.sparse_attention model.hyper_connections"; /* gpus: the launcher says them; objects: by
                                                                               their keys */

/* Grouped experts with biases exist without the fused bias, dropout and addition only. */
static gboolean has_biased_experts(const MsScenario *s) { return ms_is_moe(s) && s->model->add_bias_linear; }
/* The gate of quick GELU is GPT-OSS's: clamped, and one added to the half that is not activated. */
static gboolean has_clamped_gate(const MsScenario *s) {
  return s->model->gated && s->model->activation == MS_ACT_QUICK_GELU;
}
static gboolean has_cross_entropy_fusion(const MsScenario *s) { return s->options.cross_entropy_fusion; }
static gboolean uses_muon(const MsScenario *s) { return s->training.optimizer == MS_OPT_MUON; }
static gboolean uses_optimizer_offload(const MsScenario *s) { return s->options.optimizer_offload_fraction > 0; }
static gboolean has_squared_relu_experts(const MsScenario *s) {
  return ms_is_moe(s) && s->model->activation == MS_ACT_SQUARED_RELU;
}

#define VALUE(section_, flag_, field_, value_, flags_, ...)                                                   \
  {                                                                                                           \
    .kind = MS_ROW_VALUE, .section = MS_SECTION_##section_, .flag = flag_, .fields = field_, .value = value_, \
    .flags = flags_, __VA_ARGS__                                                                              \
  }
#define ON(section_, flag_, field_, flags_, ...)                                                            \
  {                                                                                                         \
    .kind = MS_ROW_ON, .section = MS_SECTION_##section_, .flag = flag_, .fields = field_, .value = "false", \
    .flags = flags_, __VA_ARGS__                                                                            \
  }
#define OFF(section_, flag_, field_, flags_, ...)                                                           \
  {                                                                                                         \
    .kind = MS_ROW_OFF, .section = MS_SECTION_##section_, .flag = flag_, .fields = field_, .value = "true", \
    .flags = flags_, __VA_ARGS__                                                                            \
  }
#define FIXED(section_, flag_, value_, flags_, ...)                                                          \
  {                                                                                                          \
    .kind = MS_ROW_FIXED, .section = MS_SECTION_##section_, .flag = flag_, .value = value_, .flags = flags_, \
    __VA_ARGS__                                                                                              \
  }
#define GROUP(section_, name, fields_)                                                                   \
  {                                                                                                      \
    .kind = MS_ROW_GROUP, .section = MS_SECTION_##section_, .fields = fields_, .write = ms_write_##name, \
    .read = ms_read_##name                                                                               \
  }
#define A MS_ROW_ALWAYS
#define M MS_ROW_MT

const MsLaunchRow ms_launch_rows[] = {
    VALUE(PARALLEL, "--tensor-model-parallel-size", "layout.tp", "1", A | M),
    GROUP(PARALLEL, context,
          "layout.cp layout.cp_comm_type options.hybrid_context_parallel options.max_seqlen_per_dp_cp_rank"),
    GROUP(PARALLEL, expert_parallel, "layout.ep layout.etp"),
    GROUP(PARALLEL, pipeline,
          "layout.pp layout.vpp layout.pipeline_layout layout.account_for_embedding_in_pipeline_split "
          "layout.account_for_loss_in_pipeline_split "
          "layout.decoder_first_pipeline_num_layers layout.decoder_last_pipeline_num_layers layout.schedule "
          "layout.microbatch_group_size_per_virtual_pipeline_stage"),
    GROUP(PARALLEL, order, "layout.order"),
    ON(PARALLEL, "--sequence-parallel", "options.sequence_parallel", M),
    ON(PARALLEL, "--tp-comm-overlap", "options.tp_comm_overlap", M),
    OFF(PARALLEL, "--no-overlap-p2p-communication", "options.overlap_p2p_comm", M),
    ON(PARALLEL, "--overlap-p2p-communication-warmup-flush", "options.overlap_p2p_comm_warmup_flush", 0),
    ON(PARALLEL, "--defer-embedding-wgrad-compute", "options.defer_embedding_wgrad_compute", M),
    VALUE(PARALLEL, "--wgrad-deferral-limit", "options.wgrad_deferral_limit", "0", M),

    VALUE(TRAINING, "--micro-batch-size", "training.micro_batch_size", NULL, A | M),
    VALUE(TRAINING, "--global-batch-size", "training.global_batch_size", NULL, A | M),
    VALUE(TRAINING, "--seq-length", "training.seq_length", NULL, A | M),
    GROUP(TRAINING, optimizer, "training.optimizer options.distributed_optimizer"),
    VALUE(TRAINING, "--muon-tp-mode", "options.muon_tp_mode", "\"duplicated\"", A, .when = uses_muon),
    GROUP(TRAINING, fsdp, "options.fsdp options.fsdp_double_buffer options.outer_dp_sharding_strategy"),
    VALUE(TRAINING, "--num-distributed-optimizer-instances", "options.num_distributed_optimizer_instances", "1", M),
    ON(TRAINING, "--overlap-grad-reduce", "options.overlap_grad_reduce", M),
    ON(TRAINING, "--overlap-param-gather", "options.overlap_param_gather", M),
    ON(TRAINING, "--overlap-param-gather-with-optimizer-step", "options.overlap_param_gather_with_optimizer_step", M),
    OFF(TRAINING, "--no-gradient-accumulation-fusion", "options.gradient_accumulation_fusion", M),
    ON(TRAINING, "--cross-entropy-loss-fusion", "options.cross_entropy_fusion", M),
    VALUE(TRAINING, "--cross-entropy-fusion-impl", "options.cross_entropy_fusion_impl", "\"native\"", A,
          .when = has_cross_entropy_fusion),
    ON(TRAINING, "--deterministic-mode", "options.deterministic_mode", M),
    VALUE(TRAINING, "--transformer-impl", "options.transformer_impl", "\"transformer_engine\"", A | M),
    GROUP(TRAINING, recompute,
          "options.recompute.granularity options.recompute.modules options.recompute.method "
          "options.recompute.num_layers"),
    GROUP(TRAINING, offload,
          "options.offload_modules options.optimizer_offload_fraction options.offload_optimizer_states "
          "options.swap_optimizer_times"),
    FIXED(TRAINING, "--overlap-cpu-optimizer-d2h-h2d", NULL, 0, .when = uses_optimizer_offload),
    VALUE(TRAINING, "--cpu-offloading-num-layers", "options.cpu_offloading_num_layers", "0", 0),
    GROUP(TRAINING, graphs, "options.cuda_graph_scope options.cuda_graph_impl"),
    OFF(TRAINING, "--no-check-for-nan-in-loss-and-grad", "options.check_for_nan_in_loss_and_grad", M),
    GROUP(TRAINING, attention_backend, "options.attention_backend"),
    GROUP(TRAINING, environment,
          "options.cuda_device_max_connections options.fused_grouped_mlp options.deterministic_attention"),

    GROUP(PRECISION, precision, "training.precision"),
    ON(PRECISION, "--fp8-param-gather", "options.fp8_param_gather", 0),
    ON(PRECISION, "--fp4-param-gather", "options.fp4_param_gather", 0),
    ON(PRECISION, "--reuse-grad-buf-for-mxfp8-param-ag", "options.reuse_grad_buf_for_mxfp8_param_ag", 0),
    ON(PRECISION, "--fp8-output-proj", "options.fp8_output_proj", 0),
    ON(PRECISION, "--tp-only-amax-red", "options.tp_only_amax_red", 0),
    GROUP(PRECISION, bf16_ends, "options.num_layers_at_start_in_bf16 options.num_layers_at_end_in_bf16"),
    GROUP(PRECISION, gradients,
          "options.reuse_fp32_param options.main_grads_dtype options.grad_reduce_dtype options.main_params_dtype "
          "options.exp_avg_dtype options.exp_avg_sq_dtype"),

    VALUE(MODEL, "--hidden-size", "model.hidden_size", NULL, A | M),
    GROUP(MODEL, hybrid,
          "model.num_layers model.hybrid_layer_pattern model.mtp_pattern model.mamba.num_heads model.mamba.head_dim "
          "model.mamba.state_dim model.mamba.num_groups model.mamba.conv_kernel"),
    GROUP(MODEL, attention,
          "model.num_attention_heads model.num_query_groups model.kv_channels model.sliding_window.window "
          "model.sliding_window.period model.sliding_window.chunked model.softmax_sink"),
    ON(MODEL, "--qk-layernorm", "model.qk_layernorm", M),
    ON(MODEL, "--attention-output-gate", "model.attention_output_gate", 0),
    GROUP(MODEL, latent_attention,
          "model.multi_latent_attention.q_lora_rank model.multi_latent_attention.kv_lora_rank "
          "model.multi_latent_attention.qk_head_dim "
          "model.multi_latent_attention.qk_pos_emb_head_dim model.multi_latent_attention.v_head_dim"),
    GROUP(
        MODEL, variants,
        "model.linear_attention.num_key_heads model.linear_attention.num_value_heads "
        "model.linear_attention.key_head_dim model.linear_attention.value_head_dim "
        "model.linear_attention.conv_kernel model.linear_attention.frequency model.sparse_attention.indexer_num_heads "
        "model.sparse_attention.indexer_head_dim model.sparse_attention.indexer_topk "
        "model.sparse_attention.indexer_topk_freq model.sparse_attention.indexer_skip_topk_offset "
        "model.sparse_attention.indexer_loss"),
    GROUP(MODEL, activation, "model.gated model.activation"),
    GROUP(MODEL, post_norm, "model.post_norm"),
    GROUP(MODEL, streams, "model.hyper_connections.num_residual_streams model.hyper_connections.sinkhorn_iterations"),
    FIXED(MODEL, "--glu-linear-offset", "1.0", 0, .when = has_clamped_gate),
    FIXED(MODEL, "--activation-func-clamp-value", "7.0", 0, .when = has_clamped_gate),
    FIXED(MODEL, "--no-bias-dropout-fusion", NULL, M, .when = has_biased_experts),
    VALUE(MODEL, "--normalization", "model.normalization", "\"LayerNorm\"", A | M),
    OFF(MODEL, "--disable-bias-linear", "model.add_bias_linear", M),
    ON(MODEL, "--add-qkv-bias", "model.add_qkv_bias", M),
    OFF(MODEL, "--untie-embeddings-and-output-weights", "model.tie_embeddings", M),
    VALUE(MODEL, "--norm-epsilon", "model.norm_epsilon", "1e-05", M),
    ON(MODEL, "--apply-layernorm-1p", "model.layernorm_zero_centered_gamma", M),
    VALUE(MODEL, "--init-method-std", "model.init_method_std", "0.02", M),
    GROUP(MODEL, positions, "model.position_embedding model.seq_length_max model.rotary_base model.rotary_percent"),
    GROUP(MODEL, rope_scaling,
          "model.rope_scaling.type model.rope_scaling.factor model.rope_scaling.original_max_position_embeddings "
          "model.rope_scaling.low_freq_factor model.rope_scaling.high_freq_factor model.rope_scaling.beta_fast "
          "model.rope_scaling.beta_slow model.rope_scaling.mscale model.rope_scaling.mscale_all_dim "
          "model.rope_scaling.truncate"),
    OFF(MODEL, "--no-rope-fusion", "options.apply_rope_fusion", M),
    GROUP(MODEL, vocabulary, "model.vocab_size model.make_vocab_size_divisible_by"),
    VALUE(MODEL, "--hidden-dropout", "model.hidden_dropout", "0.1", A | M),
    VALUE(MODEL, "--attention-dropout", "model.attention_dropout", "0.1", A | M),
    GROUP(MODEL, mtp, "model.mtp_num_layers"),
    ON(MODEL, "--mtp-use-repeated-layer", "model.mtp_use_repeated_layer", 0),

    GROUP(MOE, widths, "model.ffn_hidden_size model.num_experts model.moe_ffn_hidden_size model.moe_layer_freq"),
    VALUE(MOE, "--moe-shared-expert-intermediate-size", "model.moe_shared_expert_intermediate_size", "0", M),
    ON(MOE, "--moe-shared-expert-gate", "model.moe_shared_expert_gate", 0),
    VALUE(MOE, "--moe-latent-size", "model.moe_latent_size", "0", 0),
    VALUE(MOE, "--moe-router-topk", "model.moe_router_topk", "2", A | M, .when = ms_is_moe),
    VALUE(MOE, "--moe-router-num-groups --moe-router-num-node-group", "model.moe_router_num_groups", "0", 0,
          .mt = "--moe-router-num-node-group"),
    VALUE(MOE, "--moe-router-group-topk --moe-router-topk-limited-devices", "model.moe_router_group_topk", "0", 0,
          .mt = "--moe-router-topk-limited-devices"),
    GROUP(MOE, scores, "model.moe_router_score_function model.moe_router_pre_softmax"),
    VALUE(MOE, "--moe-router-topk-scaling-factor", "model.moe_router_topk_scaling_factor", "0", M),
    ON(MOE, "--moe-router-enable-expert-bias --moe-noaux-gamma", "model.moe_router_enable_expert_bias", 0,
       .mt = "--moe-noaux-gamma 1e-3"),
    GROUP(MOE, balancing, "model.moe_router_load_balancing_type"),
    VALUE(MOE, "--moe-aux-loss-coeff", "model.moe_aux_loss_coeff", "0", M, .when = ms_is_moe),
    ON(MOE, "--moe-grouped-gemm", "options.moe_grouped_gemm", M, .when = ms_is_moe),
    FIXED(MOE, "--moe-router-dtype", "fp32", 0, .when = ms_is_moe), /* what DeepEP and HybridEP ask for */
    GROUP(MOE, dispatcher, "options.dispatcher options.dispatcher_num_sms"),
    GROUP(MOE, routing, "training.routing"),
    ON(MOE, "--overlap-moe-expert-parallel-comm", "options.ep_overlap", 0),
    ON(MOE, "--delay-wgrad-compute", "options.delay_wgrad", 0),
    ON(MOE, "--moe-router-fusion", "options.moe_router_fusion", 0, .when = ms_is_moe),
    ON(MOE, "--moe-permute-fusion", "options.moe_permute_fusion", 0, .when = ms_is_moe),
    ON(MOE, "--use-fused-weighted-squared-relu", "options.use_fused_weighted_squared_relu", 0,
       .when = has_squared_relu_experts),
    ON(MOE, "--moe-shared-expert-overlap", "options.moe_shared_expert_overlap", M),
    ON(MOE, "--moe-router-padding-for-quantization --moe-router-padding-for-fp8",
       "options.moe_router_padding_for_quantization", 0),
    VALUE(MOE, "--moe-expert-rank-capacity-factor", "options.moe_expert_rank_capacity_factor", "null", 0),
    ON(MOE, "--moe-paged-stash", "options.moe_paged_stash", 0),
    VALUE(MOE, "--moe-paged-stash-buffer-size-factor-cuda", "options.moe_paged_stash_buffer_size_factor_cuda", "1.1",
          0),
    ON(MOE, "--use-transformer-engine-op-fuser", "options.use_transformer_engine_op_fuser", 0),

    FIXED(DATA, "--use-mcore-models", NULL, M),
    FIXED(DATA, "--tokenizer-type", "NullTokenizer", M),
    FIXED(DATA, "--mock-data", NULL, M),
    FIXED(DATA, "--train-iters", "50", M),
    FIXED(DATA, "--lr", "1e-4", M),
    FIXED(DATA, "--eval-iters", "0", M),
    FIXED(DATA, "--log-interval", "1", M),
};
const int ms_num_launch_rows = G_N_ELEMENTS(ms_launch_rows);
