#include "lib/draw.h"

#include <math.h>
#include <string.h>

#include "lib/world.h"

static int pick(GRand *rand, const int *values, int n) { return values[g_rand_int_range(rand, 0, n)]; }
#define PICK(...) pick(rand, (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))
static gboolean chance(GRand *rand, int percent) { return g_rand_int_range(rand, 0, 100) < percent; }

static const char *const names[] = {"llama3-8b",     "llama3-70b",  "mixtral-8x7b",   "deepseek-v2-lite",
                                    "deepseek-v3",   "kimi-k2",     "qwen2-57b-a14b", "qwen3-235b-a22b",
                                    "qwen3-30b-a3b", "gpt-oss-20b", "gpt3-175b",      "mcore-gpt-16b"};

/* Layers of more kinds than attention and experts, or attention that reads a part of the sequence. */
static const char *const hybrids[] = {"nemotron-3-nano",    "nemotron-3-super",  "nemotron-3-nano-4b",
                                      "qwen3-next-80b-a3b", "deepseek-v4-flash", "deepseek-v3.2"};

static void draw_dense(GRand *rand, MsModel *m) {
  m->gated = chance(rand, 60);
  m->activation = m->gated ? PICK(MS_ACT_SILU, MS_ACT_QUICK_GELU) : PICK(MS_ACT_GELU, MS_ACT_SQUARED_RELU, MS_ACT_GELU);
  m->normalization = PICK(MS_NORM_RMS, MS_NORM_LAYER);
  m->position_embedding = PICK(MS_POS_ROPE, MS_POS_ROPE, MS_POS_YARN, MS_POS_LEARNED, MS_POS_NONE);
  m->seq_length_max = PICK(0, 2048, 16384);
  m->tie_embeddings = chance(rand, 30);
  m->add_bias_linear = chance(rand, 20);
  m->add_qkv_bias = chance(rand, 20);
  m->hidden_dropout = chance(rand, 20) ? 0.1 : 0;
  m->attention_dropout = chance(rand, 20) ? 0.05 : 0;
  m->qk_layernorm = chance(rand, 30);
  m->softmax_sink = chance(rand, 15);
  m->attention_output_gate = chance(rand, 15);
  if (chance(rand, 20)) m->sliding_window = (MsSlidingWindow){.window = PICK(129, 1024), .period = PICK(0, 2, 6)};
}

static void draw_experts(GRand *rand, MsModel *m) {
  int topk = PICK(1, 2, 4, 8);
  m->moe_router_topk = MIN(m->num_experts, topk);
  m->moe_router_num_groups = m->moe_router_group_topk = 0;
  m->moe_shared_expert_intermediate_size = PICK(0, 2048);
  m->moe_shared_expert_gate = chance(rand, 30);
  m->moe_router_score_function = PICK(MS_SCORE_SOFTMAX, MS_SCORE_SIGMOID, MS_SCORE_SQRTSOFTPLUS);
  m->moe_router_enable_expert_bias = m->moe_router_score_function != MS_SCORE_SOFTMAX && chance(rand, 50);
  g_free(m->moe_layer_freq);
  m->moe_layer_freq = chance(rand, 50) ? NULL : g_strdup(PICK(0, 1) ? "2" : "([1]*2+[0,1])*2");
  if (m->moe_layer_freq && strcmp(m->moe_layer_freq, "2") != 0) m->num_layers = 8;
  m->ffn_hidden_size = MAX(m->ffn_hidden_size, 4096);
}

/* What no prediction depends on. */
static void draw_unpredicted(GRand *rand, MsModel *m) {
  m->norm_epsilon = PICK(0, 1) ? 1e-6 : 1e-5;
  m->init_method_std = PICK(0, 1) ? 0.006 : 0.02;
  m->layernorm_zero_centered_gamma = chance(rand, 20);
  m->rotary_base = PICK(10000, 500000);
  m->rotary_percent = PICK(0, 1) ? 0.5 : 1;
  m->rope_scaling = (MsRopeScaling){.type = (MsRopeKind)PICK(0, 1, 2, 3),
                                    .factor = PICK(2, 40),
                                    .original_max_position_embeddings = PICK(4096, 8192),
                                    .low_freq_factor = PICK(1, 2),
                                    .high_freq_factor = 4,
                                    .beta_fast = PICK(1, 32),
                                    .beta_slow = 1,
                                    .mscale = PICK(0, 1) ? 0.707 : 1,
                                    .mscale_all_dim = PICK(0, 1),
                                    .truncate = PICK(0, 1)};
  m->moe_router_pre_softmax = chance(rand, 30);
  m->moe_router_topk_scaling_factor = PICK(0, 1) ? 2.5 : 0;
  m->moe_router_load_balancing_type = (MsBalance)PICK(0, 1, 2, 3, 4);
}

static void draw_model(GRand *rand, MsScenario *s) {
  MsModel *m = s->model;
  if (chance(rand, 50)) return;
  g_free(m->name);
  m->name = g_strdup("my \"model\"");
  if (chance(rand, 50)) m->num_layers = PICK(8, 16, 24, 32);
  if (m->moe_layer_freq) {
    g_free(m->moe_layer_freq);
    m->moe_layer_freq = g_strdup_printf("[0]*1+[1]*%d", m->num_layers - 1);
  }
  if (chance(rand, 40)) draw_dense(rand, m);
  if (m->num_experts > 0 && chance(rand, 40)) draw_experts(rand, m);
  m->mtp_num_layers = PICK(0, 0, 1, 2);
  m->mtp_use_repeated_layer = chance(rand, 20);
  m->make_vocab_size_divisible_by = PICK(1, 64, 128);
  if (chance(rand, 50)) draw_unpredicted(rand, m);
}

/* As even as it goes, MTP beside the loss. (transfer full) */
static char *even_stages(const MsScenario *s) {
  GString *text = g_string_new("E");
  int stages = s->layout.pp * s->layout.vpp, left = s->model->num_layers;
  for (int i = 0; i < stages; i++) {
    int here = left / (stages - i);
    for (int k = 0; k < here; k++) g_string_append_c(text, 't');
    if (i + 1 < stages) g_string_append_c(text, '|');
    left -= here;
  }
  for (int k = 0; k < s->model->mtp_num_layers; k++) g_string_append_c(text, 'm');
  g_string_append_c(text, 'L');
  return g_string_free(text, FALSE);
}

static void draw_layout(GRand *rand, MsScenario *s, gboolean plain) {
  MsLayoutSpec *l = &s->layout;
  gboolean moe = s->model->num_experts > 0;
  l->tp = PICK(1, 1, 2, 4, 8);
  l->cp = PICK(1, 1, 1, 2, 4);
  l->pp = PICK(1, 1, 2, 4, 8);
  l->vpp = l->pp > 1 ? PICK(1, 1, 2, 4) : 1;
  l->ep = moe ? PICK(1, 2, 4, 8) : 1;
  l->etp = !moe ? 1 : plain ? l->tp : PICK(1, 1, 2);
  l->order = chance(rand, 15) ? MS_ORDER_PP_DP : MS_ORDER_DP_PP;
  l->cp_comm_type = plain ? MS_CP_P2P : PICK(MS_CP_P2P, MS_CP_P2P, MS_CP_ALL_GATHER, MS_CP_A2A, MS_CP_A2A_P2P);
  if (plain) return;
  if (chance(rand, 10)) l->schedule = g_rand_int_range(rand, 0, MS_N_SCHEDULES);
  l->microbatch_group_size_per_virtual_pipeline_stage = chance(rand, 10) ? l->pp * PICK(1, 2) : 0;
  l->account_for_embedding_in_pipeline_split = chance(rand, 10);
  l->account_for_loss_in_pipeline_split = chance(rand, 10);
  if (l->pp > 1 && chance(rand, 15)) l->decoder_last_pipeline_num_layers = PICK(2, 4, 6);
  if (l->pp > 1 && chance(rand, 15)) l->decoder_first_pipeline_num_layers = PICK(2, 4, 6);
  if (l->pp > 1 && chance(rand, 20)) l->pipeline_layout = even_stages(s);
}

/* Any value for a field of the options; a fifth of them is changed. */
static void draw_field(GRand *rand, const MsField *field, void *object) {
  void *at = (char *)object + field->offset;
  if (!chance(rand, 20)) return;
  switch (field->type) {
  case MS_T_BOOL: *(gboolean *)at = chance(rand, 50); return;
  case MS_T_ENUM: *(int *)at = g_rand_int_range(rand, 0, (gint32)g_strv_length((char **)field->words)); return;
  case MS_T_INT: *(int *)at = PICK(0, 1, 1, 2, 8); return;
  case MS_T_F64: *(double *)at = chance(rand, 50) ? 0.25 : 1; return;
  case MS_T_WORDS:
    *(guint32 *)at =
        1u << g_rand_int_range(rand, 0, (gint32)g_strv_length((char **)field->words)) | (chance(rand, 30) ? 8u : 0u);
    return;
  default: return;
  }
}

static void draw_options(GRand *rand, MsScenario *s) {
  MsOptions *o = &s->options;
  for (const MsField *field = ms_options_table.fields; field->key; field++)
    if (field->offset != offsetof(MsOptions, disable_parameter_transpose_cache) && /* few precisions have it */
        field->offset != offsetof(MsOptions, expert_grad_reduce_dtype) &&          /* nor frameworks these */
        field->offset != offsetof(MsOptions, torch_compile) && field->offset != offsetof(MsOptions, optimizer_impl) &&
        field->offset != offsetof(MsOptions, recompute_early_stop) &&
        field->offset != offsetof(MsOptions, grouped_gemm_library) && /* few machines have another */
        field->offset != offsetof(MsOptions, moe_paged_stash_buffer_size_factor_cuda) &&
        field->offset != offsetof(MsOptions, swap_optimizer_times) && /* drawn below */
        field->offset != offsetof(MsOptions, cuda_graph_impl) && field->offset != offsetof(MsOptions, reuse_fp32_param))
      draw_field(rand, field, o);
  for (const MsField *field = ms_recompute_table.fields; field->key; field++) draw_field(rand, field, &o->recompute);
  o->recompute.num_layers = MAX(o->recompute.num_layers, 1);
  o->num_distributed_optimizer_instances = MAX(o->num_distributed_optimizer_instances, 1);
  if (!(o->moe_expert_rank_capacity_factor > 0)) o->moe_expert_rank_capacity_factor = NAN;
  if (chance(rand, 70)) o->grad_reduce_dtype = o->main_grads_dtype;
  if (chance(rand, 80)) o->cross_entropy_fusion_impl = MS_CE_NATIVE;
  if (chance(rand, 80))
    o->fp8_dot_product_attention = o->offload_optimizer_states = FALSE, o->keep_mtp_spec_in_bf16 = FALSE;
  if (chance(rand, 80)) o->defer_embedding_wgrad_compute = o->overlap_param_gather_with_optimizer_step = FALSE;
  if (chance(rand, 80)) o->moe_expert_rank_capacity_factor = NAN, o->moe_paged_stash = FALSE;
  if (chance(rand, 90)) o->lcma = FALSE;
  if (chance(rand, 80)) o->deterministic_mode = FALSE;
  if (chance(rand, 80)) o->cpu_offloading_num_layers = 0;
  if (chance(rand, 5)) o->swap_optimizer_times = PICK(1, 4, 16);
  if (chance(rand, 5)) o->reuse_fp32_param = TRUE;
  if (o->cuda_graph_scope && chance(rand, 50)) o->cuda_graph_impl = MS_GRAPH_LOCAL;
}

/* What MT-MegatronLM has no words for. */
static void make_plain(MsScenario *s) {
  MsOptions *o = &s->options;
  MsModel *m = s->model;
  o->dispatcher = o->dispatcher == MS_DISPATCH_ALLGATHER ? MS_DISPATCH_ALLGATHER : MS_DISPATCH_ALLTOALL;
  o->moe_router_fusion = o->moe_permute_fusion = FALSE;
  o->cross_entropy_fusion_impl = MS_CE_NATIVE;
  o->ep_overlap = o->delay_wgrad = o->fp8_param_gather = o->fp4_param_gather = o->fp8_output_proj = FALSE;
  o->offload_modules = o->cuda_graph_scope = 0;
  o->optimizer_offload_fraction = 0;
  o->fsdp = MS_FSDP_NONE;
  o->main_grads_dtype = o->grad_reduce_dtype = o->exp_avg_dtype = o->exp_avg_sq_dtype = o->main_params_dtype =
      MS_DT_FP32;
  o->use_transformer_engine_op_fuser = o->fused_grouped_mlp = o->moe_router_padding_for_quantization = FALSE;
  m->mtp_use_repeated_layer = FALSE;
  if (m->moe_router_load_balancing_type != MS_BALANCE_SEQ_AUX) {
    m->moe_router_num_groups = m->moe_router_group_topk = 0;
    m->moe_router_score_function = MS_SCORE_SOFTMAX;
    m->moe_router_enable_expert_bias = FALSE;
    m->moe_router_load_balancing_type = MS_BALANCE_AUX;
  }
  if (m->moe_router_score_function != MS_SCORE_SOFTMAX) m->moe_router_score_function = MS_SCORE_SIGMOID;
  m->rope_scaling.type = m->rope_scaling.type == MS_ROPE_YARN ? MS_ROPE_PLAIN : m->rope_scaling.type;
  m->moe_shared_expert_gate = m->softmax_sink = m->attention_output_gate = FALSE;
  m->sliding_window = (MsSlidingWindow){0};
  if (m->position_embedding != MS_POS_LEARNED) m->position_embedding = MS_POS_ROPE;
  if (m->activation == MS_ACT_QUICK_GELU) m->activation = MS_ACT_SILU;
  s->training.precision = s->training.precision == MS_FP16 ? MS_FP16 : MS_BF16;
  s->training.optimizer = MS_OPT_ADAM;
}

static void draw_training(GRand *rand, MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  int dense = l->tp * l->cp, expert = l->etp * l->ep, shared = dense > expert ? dense : expert;
  s->gpus = shared * l->pp * PICK(1, 2, 4, 8);
  int dp = MAX(1, s->gpus / (dense * l->pp));
  s->training.seq_length = PICK(2048, 4096, 8192);
  s->training.micro_batch_size = PICK(1, 1, 2);
  s->training.global_batch_size = s->training.micro_batch_size * dp * PICK(8, 16, 64);
  s->training.precision = g_rand_int_range(rand, 0, MS_N_PRECISIONS);
  s->training.optimizer = chance(rand, 10) ? MS_OPT_MUON : MS_OPT_ADAM;
  const MsRouting routings[] = {
      {.kind = MS_ROUTING_BALANCED},
      {.kind = MS_ROUTING_BALANCED},
      {.kind = MS_ROUTING_NATURAL},
      {.kind = MS_ROUTING_ZIPF, .skew = 0.8, .seed = 7},
      {.kind = MS_ROUTING_DIRICHLET, .skew = 2.5, .seed = 1},
      {.kind = MS_ROUTING_CAPACITY, .capacity_factor = 1.25},
      {.kind = MS_ROUTING_CAPACITY, .capacity_factor = 1, .pad_to_capacity = TRUE, .forced_balance = TRUE}};
  s->training.routing = routings[g_rand_int_range(rand, 0, G_N_ELEMENTS(routings))];
}

static const char *const machines[] = {"h100-sxm",  "gb200-nvl72", "a100-sxm-80g", "b200-sxm",
                                       "mtt-s5000", "gb300-nvl72", "ascend-910c",  "mi355x"};
enum { SMALL_MACHINES = 5 };

typedef MsScenario *OnMachines[G_N_ELEMENTS(machines)];

/* A copy of a run that is loaded once: machine files are large. */
static MsScenario *run_of(GRand *rand, const char *const *models, int n, OnMachines *loaded, int n_machines) {
  int name = g_rand_int_range(rand, 0, n), machine = g_rand_int_range(rand, 0, n_machines);
  if (!loaded[name][machine]) loaded[name][machine] = ms_test_run(models[name], -1, machines[machine], 8);
  return ms_scenario_copy(loaded[name][machine], FALSE);
}
static OnMachines runs[G_N_ELEMENTS(names)], hybrid_runs[G_N_ELEMENTS(hybrids)];

MsScenario *ms_test_draw_hybrid(GRand *rand) {
  MsScenario *s = run_of(rand, hybrids, G_N_ELEMENTS(hybrids), hybrid_runs, SMALL_MACHINES);
  draw_layout(rand, s, FALSE);
  draw_training(rand, s);
  if (chance(rand, 50)) draw_options(rand, s);
  if (chance(rand, 30)) s->training.global_batch_size /= 8; /* a microbatch for each replica, or a few */
  s->options.ep_overlap |= chance(rand, 30);
  return s;
}

MsScenario *ms_test_draw(GRand *rand, gboolean plain) {
  MsScenario *s = run_of(rand, names, G_N_ELEMENTS(names), runs, SMALL_MACHINES);
  draw_model(rand, s);
  draw_layout(rand, s, plain);
  draw_training(rand, s);
  draw_options(rand, s);
  if (plain) make_plain(s);
  g_free(s->name);
  s->name = g_strdup_printf("drawn \\ 'run' $HOME `%u`", g_rand_int(rand));
  if (chance(rand, 50)) s->software = g_strdup("nemo-26.06");
  if (chance(rand, 30)) s->doc = g_strdup("two\nlines, \"quoted\" #moesim name 3");
  return s;
}

MsScenario *ms_test_draw_large(GRand *rand) {
  MsScenario *s = run_of(rand, names, G_N_ELEMENTS(names), runs, G_N_ELEMENTS(machines));
  draw_model(rand, s);
  draw_layout(rand, s, FALSE);
  draw_training(rand, s);
  if (chance(rand, 50)) draw_options(rand, s);
  MsLayoutSpec *l = &s->layout;
  MsTraining *t = &s->training;
  l->pp = PICK(2, 4, 8, 16), l->vpp = PICK(1, 1, 2, 4);
  l->decoder_first_pipeline_num_layers = l->decoder_last_pipeline_num_layers = 0;
  g_clear_pointer(&l->pipeline_layout, g_free);
  if (s->model->num_layers % (l->pp * l->vpp) != 0) l->pipeline_layout = even_stages(s);
  if (chance(rand, 50)) l->schedule = g_rand_int_range(rand, 0, MS_N_SCHEDULES);
  s->gpus = MAX(l->tp * l->cp, l->etp * l->ep) * l->pp * PICK(8, 32, 128);
  t->global_batch_size = t->micro_batch_size * (s->gpus / (l->tp * l->cp * l->pp)) * l->pp * PICK(1, 2, 4);
  if (chance(rand, 30)) s->hardware->kernel_launch_s *= PICK(2, 4);
  return s;
}
