/* Every technique is a switch: a row of the table below turns it on and names the quantities that move; all
 * others must stay equal to the last bit. Quantities are sums over the rows of all stages, each row alone on the
 * machine, so that nothing hides in contention. */
#include "lib/close.h"

#include "lib/world.h"
#include "step/program.h"
#include "sim/simulate.h"

#include <string.h>

typedef enum {
  PARAMETERS,
  GRADIENTS,
  OPTIMIZER,
  ACTIVATIONS,
  TRANSIENT,
  BUFFERS, /* bytes */
  GEMM,
  GROUPED,
  ATTENTION,
  MEMORY_BOUND,
  RECOMPUTED,
  STEP_ROWS, /* seconds: computing rows by family, of them recomputed; the optimizer's own */
  HOST,      /* seconds to launch */
  TP,
  CP,
  EP,
  ETP,
  PP,
  DP,
  EDP,
  OFFLOAD, /* bytes sent, in the order of MsCommClass */
  STREAMS, /* rows on each stream */
  SLOTS,   /* the schedule */
  STEP,    /* the simulated step */
  N_QUANTITIES
} Quantity;
static const char *const words[] = {"PARAMETERS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS",  "TRANSIENT",  "BUFFERS",
                                    "GEMM",       "GROUPED",   "ATTENTION", "MEMORY_BOUND", "RECOMPUTED", "STEP_ROWS",
                                    "HOST",       "TP",        "CP",        "EP",           "ETP",        "PP",
                                    "DP",         "EDP",       "OFFLOAD",   "STREAMS",      "SLOTS",      "STEP"};

typedef struct {
  double is[N_QUANTITIES];
} Measured;

static void add_list(Measured *m, const MsCosted *c, double times, gboolean step) {
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    MsOpFamily family = ms_op_families[op->kind];
    double time = times * (double)c->duration[i];
    m->is[HOST] += times * (double)c->launch[i];
    m->is[STREAMS] += times * (1 << op->stream) * (1 + op->kind);
    if (family == MS_FAMILY_COMM) m->is[TP + ms_comm_class(op)] += times * op->message_B;
    else if (step) m->is[STEP_ROWS] += time;
    else if (op->pass == MS_PASS_RECOMPUTE) m->is[RECOMPUTED] += time;
    else if (family <= MS_FAMILY_MEMORY) m->is[GEMM + (int)family] += time;
  }
}

static void add_pieces(Measured *m, const MsProgram *p) {
  for (int i = 0; i < p->layout->num_chunks; i++)
    for (int j = 0; j < ms_work_chunk_length(p->work, &p->layout->chunks[i]); j++) {
      int piece = ms_work_chunk_piece(p->work, &p->layout->chunks[i], j);
      add_list(m, &p->piece[piece].forward, 1, FALSE), add_list(m, &p->piece[piece].backward, 1, FALSE),
          add_list(m, &p->piece[piece].reload, 1, FALSE);
      for (int k = 0; p->unit && k < MS_UNIT_LISTS; k++) add_list(m, &p->unit[piece].list[k], 1, FALSE);
    }
  for (int s = 0; s < p->layout->pp; s++) {
    const MsCostedStep *step = &p->step[s];
    add_list(m, &step->before, 1, TRUE), add_list(m, &step->reduce, 1, TRUE), add_list(m, &step->gather, 1, TRUE),
        add_list(m, &step->after, 1, TRUE);
  }
}

static double slots_of(const MsSchedule *schedule) {
  double sum = schedule->placement;
  for (int s = 0; s < schedule->stages; s++)
    for (int i = 0; i < schedule->n[s]; i++) {
      const MsSlot *slot = &schedule->slot[s][i];
      sum += (i + 1.0) * (slot->kind + 1 + 7 * slot->mb + 1009 * slot->chunk);
    }
  return sum;
}

static Measured measure(const char *technique, const MsScenario *s) {
  Measured m = {{0}};
  GError *error = NULL;
  char why[200] = "";
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, &error);
  if (!layout) fail_msg("%s: %s", technique, error->message);
  g_autoptr(MsWork) work = ms_work_new(s, layout, &error);
  MsCost *cost = work ? ms_cost_new(s, layout, &error) : NULL;
  if (!cost) fail_msg("%s: %s", technique, error->message);
  g_autoptr(MsProgram) program = ms_program_new(work, cost);
  g_autoptr(MsSchedule) schedule = ms_program_schedule(program, why, sizeof why);
  if (!schedule) fail_msg("%s: %s", technique, why);
  g_autoptr(MsMemory) memory = ms_memory_new(work, schedule);
  add_pieces(&m, program);
  for (int i = 0; i < memory->stages; i++) {
    const MsStageMemory *at = &memory->stage[i];
    m.is[PARAMETERS] += at->parameters_B, m.is[GRADIENTS] += at->gradients_B, m.is[OPTIMIZER] += at->optimizer_B;
    m.is[ACTIVATIONS] += at->activations_B, m.is[TRANSIENT] += at->transient_B, m.is[BUFFERS] += at->buffers_B;
  }
  m.is[PP] += program->p2p_op.message_B;
  m.is[SLOTS] = slots_of(schedule);
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
  if (!r) fail_msg("%s: %s", technique, error->message);
  m.is[STEP] = r->step_time_s;
  ms_cost_free(cost);
  return m;
}

/* --- runs to switch on ----------------------------------------------------------------------------------------- */
static MsScenario *moe(void) { /* DeepSeek-V3's kinds of layers: MLA, a shared expert, one dense layer */
  MsScenario *s = ms_test_run("deepseek-v3", 0, "h100-sxm", 64);
  s->model->num_layers = 8;
  for (int i = 0; i < 8; i++) s->model->moe_layer[i] = i > 0;
  s->layout.tp = 2, s->layout.pp = 2, s->layout.vpp = 2, s->layout.ep = 8;
  s->options.sequence_parallel = s->options.distributed_optimizer = TRUE;
  s->training.global_batch_size = 16 * 8;
  return s;
}
static MsScenario *moe_flat(void) {
  MsScenario *s = moe();
  s->layout.pp = s->layout.vpp = 1;
  return s;
}
static MsScenario *moe_grouped(void) {
  MsScenario *s = moe();
  s->layout.microbatch_group_size_per_virtual_pipeline_stage = 4;
  return s;
}
static MsScenario *moe_squared_relu(void) {
  MsScenario *s = moe();
  s->model->gated = FALSE, s->model->activation = MS_ACT_SQUARED_RELU;
  return s;
}

static MsScenario *moe_plain_loss(void) {
  MsScenario *s = moe();
  s->options.cross_entropy_fusion = FALSE;
  return s;
}
static MsScenario *moe_mxfp8(void) {
  MsScenario *s = moe_flat();
  ms_hardware_free(s->hardware);
  s->hardware = ms_hardware_load("gb200-nvl72", NULL);
  s->training.precision = MS_MXFP8;
  return s;
}
static MsScenario *dense(void) {
  MsScenario *s = ms_test_run("llama3-8b", -1, "h100-sxm", 16);
  s->layout.tp = 2, s->layout.pp = 2;
  s->options.sequence_parallel = s->options.distributed_optimizer = TRUE;
  s->training.global_batch_size = 8 * 4;
  return s;
}
static MsScenario *dense_delayed(void) {
  MsScenario *s = dense();
  s->training.precision = MS_FP8_DELAYED;
  return s;
}
static MsScenario *dense_long(void) {
  MsScenario *s = dense();
  s->layout.cp = 4, s->training.seq_length = 32768;
  return s;
}
static MsScenario *dense_packed(void) { /* hybrid context parallelism knows no pipeline */
  MsScenario *s = dense_long();
  s->layout.pp = s->layout.vpp = 1;
  s->training.sequence_lengths = (MsLengths){.n = 2, .length = {1024, 16384}, .weight = {10, 1}};
  return s;
}
static MsScenario *zero_bubble(void) {
  MsScenario *s = dense();
  s->layout.schedule = MS_SCHED_ZB_H1;
  return s;
}
static MsScenario *moe_deep(void) {
  MsScenario *s = moe();
  s->layout.pp = 4;
  s->training.global_batch_size = 8 * 8;
  return s;
}
static MsScenario *overlapped(
    void) { /* over nodes: the crossings are longer than what runs beside them, and weight gradients make up for it */
  MsScenario *s = moe();
  s->layout.ep = 16, s->laws.crowded_collective = 0.5;
  s->options.ep_overlap = TRUE;
  return s;
}
static MsScenario *drawn(void) {
  MsScenario *s = moe();
  s->training.routing = (MsRouting){.kind = MS_ROUTING_ZIPF, .skew = 0.6, .seed = 1};
  return s;
}
static MsScenario *fp8_deepep(void) {
  MsScenario *s = moe();
  s->training.precision = MS_FP8_BLOCKWISE, s->options.dispatcher = MS_DISPATCH_DEEPEP;
  return s;
}
static MsScenario *fp8(void) {
  MsScenario *s = moe();
  s->training.precision = MS_FP8_BLOCKWISE;
  return s;
}

/* --- the switches ---------------------------------------------------------------------------------------------- */
#define SWITCH(name) static void name(MsScenario *s)
#define O            s->options
static void recompute(MsScenario *s, guint32 modules) {
  O.recompute = (MsRecomputeSpec){MS_RECOMPUTE_SELECTIVE, modules, 0, 1};
}
SWITCH(recompute_layernorm) { recompute(s, MS_RM_LAYERNORM); }
SWITCH(recompute_moe_act) { recompute(s, MS_RM_MOE_ACT); }
SWITCH(recompute_mla_up_proj) { recompute(s, MS_RM_MLA_UP_PROJ); }
SWITCH(recompute_shared_experts) { recompute(s, MS_RM_SHARED_EXPERTS); }
SWITCH(recompute_moe) { recompute(s, MS_RM_MOE); }
SWITCH(recompute_mlp) { recompute(s, MS_RM_MLP); }
SWITCH(recompute_mlp_act) { recompute(s, MS_RM_MLP_ACT); }
SWITCH(recompute_full) { O.recompute = (MsRecomputeSpec){MS_RECOMPUTE_FULL, 0, MS_RECOMPUTE_UNIFORM, 1}; }
SWITCH(no_sequence_parallel) { O.sequence_parallel = FALSE; }
SWITCH(tp_comm_overlap) { O.tp_comm_overlap = TRUE; }
SWITCH(ep_overlap) { O.ep_overlap = TRUE; }
SWITCH(delay_wgrad) { O.delay_wgrad = TRUE; }
SWITCH(deepep) { O.dispatcher = MS_DISPATCH_DEEPEP; }
SWITCH(hybridep) { O.dispatcher = MS_DISPATCH_HYBRIDEP; }
SWITCH(allgather) { O.dispatcher = MS_DISPATCH_ALLGATHER; }
SWITCH(shared_expert_overlap) { O.moe_shared_expert_overlap = TRUE; }
SWITCH(overlap_grad_reduce) { O.overlap_grad_reduce = TRUE; }
SWITCH(overlap_both) { O.overlap_grad_reduce = O.overlap_param_gather = TRUE; }
SWITCH(no_distributed_optimizer) { O.distributed_optimizer = FALSE; }
SWITCH(fsdp_optim) { O.fsdp = MS_FSDP_OPTIM; }
SWITCH(fsdp_grads) { O.fsdp = MS_FSDP_OPTIM_GRADS; }
SWITCH(fsdp_params) { O.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS; }
SWITCH(offload_expert_fc1) { O.offload_modules = MS_OM_EXPERT_FC1; }
SWITCH(offload_core_attn) { O.offload_modules = MS_OM_CORE_ATTN | MS_OM_ATTN_PROJ; }
SWITCH(offload_layers) { O.cpu_offloading_num_layers = 2; }
SWITCH(optimizer_offload) { O.optimizer_offload_fraction = 0.5; }
SWITCH(offload_states) { O.offload_optimizer_states = TRUE; }
SWITCH(swap_states) { O.swap_optimizer_times = 16; }
SWITCH(reused_masters) { O.reuse_fp32_param = TRUE; }
SWITCH(graph_attn) { O.cuda_graph_scope = MS_CG_ATTN; }
SWITCH(graph_router) { O.cuda_graph_scope = MS_CG_MOE_ROUTER | MS_CG_MOE_PREPROCESS; }
SWITCH(bf16_moments) { O.exp_avg_dtype = O.exp_avg_sq_dtype = MS_DT_BF16; }
SWITCH(bf16_gradients) { O.main_grads_dtype = O.grad_reduce_dtype = MS_DT_BF16; }
SWITCH(bf16_reduce) { O.grad_reduce_dtype = MS_DT_BF16; }
SWITCH(fp8_blockwise) { s->training.precision = MS_FP8_BLOCKWISE; }
SWITCH(fp8_params) { O.fp8_param_gather = TRUE; }
SWITCH(tp_only_amax) { O.tp_only_amax_red = TRUE; }
SWITCH(unfused_router) { O.moe_router_fusion = FALSE; }
SWITCH(sequential_experts) { O.moe_grouped_gemm = FALSE; }
SWITCH(plain_rope) { O.apply_rope_fusion = FALSE; }
SWITCH(unfused_permute) { O.moe_permute_fusion = FALSE; }
SWITCH(no_accumulation_fusion) { O.gradient_accumulation_fusion = FALSE; }
SWITCH(unfused_cross_entropy) { O.cross_entropy_fusion = FALSE; }
SWITCH(deterministic) { O.deterministic_mode = TRUE; }
SWITCH(deterministic_attention) { O.deterministic_attention = TRUE; }
SWITCH(nan_checks) { O.check_for_nan_in_loss_and_grad = TRUE; }
SWITCH(plain_squared_relu) { O.use_fused_weighted_squared_relu = FALSE; }
SWITCH(fused_experts) { O.fused_grouped_mlp = TRUE; }
SWITCH(fp8_attention) { O.fp8_dot_product_attention = TRUE; }
SWITCH(fp8_dispatch) { O.fp8_dispatch = TRUE; }
SWITCH(fp8_input_store) { O.activation_func_fp8_input_store = TRUE; }
SWITCH(router_padding) { O.moe_router_padding_for_quantization = TRUE; }
SWITCH(muon) { s->training.optimizer = MS_OPT_MUON; }
SWITCH(gpipe) { s->layout.schedule = MS_SCHED_GPIPE; }
SWITCH(zb_h1) { s->layout.schedule = MS_SCHED_ZB_H1, O.optimizer_post_validation = FALSE; }
SWITCH(post_validation_off) { O.optimizer_post_validation = FALSE; }
SWITCH(larger_group) { s->layout.microbatch_group_size_per_virtual_pipeline_stage = 4; }
SWITCH(blocking_p2p) { O.overlap_p2p_comm = FALSE; }
SWITCH(flush_overlap) { O.overlap_p2p_comm_warmup_flush = TRUE; }
SWITCH(cp_gather) { s->layout.cp_comm_type = MS_CP_ALL_GATHER; }
SWITCH(cp_a2a) { s->layout.cp_comm_type = MS_CP_A2A; }
SWITCH(skew) { s->training.routing = (MsRouting){.kind = MS_ROUTING_ZIPF, .skew = 0.6, .seed = 1}; }
SWITCH(token_drop) {
  s->training.routing = (MsRouting){.kind = MS_ROUTING_CAPACITY, .capacity_factor = 1, .pad_to_capacity = TRUE};
}
SWITCH(bias) { s->training.routing.bias_update_rate = 1e-3, s->training.routing.bias_updates = 1000; }
SWITCH(placement) { s->training.routing.placement = MS_PLACEMENT_LOAD; }
SWITCH(replicas) { s->training.routing.placement = MS_PLACEMENT_LOAD, s->training.routing.replicas = 64; }
SWITCH(plain_permutation) { O.moe_memory_efficient_permutation = FALSE; }
SWITCH(one_length) {
  s->training.sequence_lengths = (MsLengths){.n = 1, .length = {s->training.seq_length}, .weight = {2}};
}
SWITCH(packed) { s->training.sequence_lengths = (MsLengths){.n = 2, .length = {1024, 16384}, .weight = {10, 1}}; }
SWITCH(hybrid_cp) { O.hybrid_context_parallel = TRUE; }
SWITCH(streams) { s->model->hyper_connections.num_residual_streams = 4; }
SWITCH(sharp) { s->hardware->sharp = !s->hardware->sharp; }
SWITCH(more_sms) { O.dispatcher = MS_DISPATCH_DEEPEP, O.dispatcher_num_sms = 40; }
#undef O

static const struct {
  const char *name;
  MsScenario *(*base)(void);
  void (*turn)(MsScenario *);
  const char *moves; /* + up, - down; what is not named stays as it is */
} table[] = {
    {"recompute_layernorm", moe, recompute_layernorm, "ACTIVATIONS- RECOMPUTED+ HOST+ STREAMS+ STEP+"},
    {"recompute_moe_act", moe, recompute_moe_act, "ACTIVATIONS- RECOMPUTED+ HOST+ STREAMS+ STEP+"},
    {"recompute_mla_up_proj", moe, recompute_mla_up_proj, "ACTIVATIONS- RECOMPUTED+ HOST+ TP+ STREAMS+ STEP+"},
    {"recompute_shared_experts", moe, recompute_shared_experts, "ACTIVATIONS- RECOMPUTED+ HOST+ TP+ STREAMS+ STEP+"},
    {"recompute_moe", moe, recompute_moe, "ACTIVATIONS- TRANSIENT+ RECOMPUTED+ HOST+ TP+ EP+ STREAMS+ STEP+"},
    {"recompute_mlp", moe, recompute_mlp, "ACTIVATIONS- RECOMPUTED+ HOST+ TP+ STREAMS+"},
    {"recompute_mlp_act", moe, recompute_mlp_act, "ACTIVATIONS- RECOMPUTED+ HOST+ STREAMS+ STEP+"},
    {"recompute_full", moe, recompute_full, "ACTIVATIONS- TRANSIENT+ RECOMPUTED+ HOST+ TP+ EP+ STREAMS+ STEP+"},
    {"no_sequence_parallel", dense, no_sequence_parallel,
     "ACTIVATIONS+ BUFFERS+ MEMORY_BOUND+ HOST- TP- PP+ STREAMS- STEP-"},
    {"tp_comm_overlap", dense, tp_comm_overlap, "BUFFERS+ GEMM+ HOST+ STREAMS+ STEP-"},
    {"ep_overlap", moe, ep_overlap, "TRANSIENT+ HOST+ STREAMS+ SLOTS- STEP-"},
    {"delay_wgrad", overlapped, delay_wgrad, "TRANSIENT+ HOST+ STEP-"},
    {"deepep", moe, deepep, "TRANSIENT- BUFFERS+ MEMORY_BOUND- HOST- EP- STREAMS- STEP-"},
    {"hybridep", moe, hybridep, "TRANSIENT- BUFFERS+ MEMORY_BOUND- HOST- EP- STREAMS- STEP-"},
    {"allgather", moe, allgather, "TRANSIENT+ MEMORY_BOUND+ HOST- EP+ STREAMS- STEP+"},
    {"shared_expert_overlap", moe, shared_expert_overlap, "ACTIVATIONS+ HOST- TP- STREAMS+ STEP-"},
    {"overlap_grad_reduce", moe, overlap_grad_reduce, "STEP_ROWS+ HOST+ STREAMS+ STEP-"},
    {"overlap_both", moe, overlap_both, "STEP_ROWS+ HOST+ STREAMS+ STEP-"},
    {"no_distributed_optimizer", moe, no_distributed_optimizer, "OPTIMIZER+ STEP_ROWS+ HOST- DP- EDP- STREAMS- STEP+"},
    {"fsdp_optim", moe_flat, fsdp_optim, ""},
    {"fsdp_grads", moe_flat, fsdp_grads, "GRADIENTS- TRANSIENT+ BUFFERS+ GROUPED- STEP_ROWS- HOST+ TP- STREAMS+ STEP+"},
    {"fsdp_params", moe_flat, fsdp_params,
     "PARAMETERS- GRADIENTS- TRANSIENT+ BUFFERS+ GROUPED- STEP_ROWS- HOST+ TP- STREAMS+ STEP+"},
    {"offload_expert_fc1", moe_flat, offload_expert_fc1, "ACTIVATIONS- TRANSIENT+ HOST+ OFFLOAD+ STREAMS+"},
    {"offload_core_attn", moe_flat, offload_core_attn, "ACTIVATIONS- TRANSIENT+ HOST+ OFFLOAD+ STREAMS+ STEP+"},
    {"offload_layers", moe_flat, offload_layers, "ACTIVATIONS- HOST+ OFFLOAD+ STREAMS+ STEP+"},
    {"optimizer_offload", moe, optimizer_offload, "OPTIMIZER- STEP_ROWS+ HOST+ OFFLOAD+ STREAMS+ STEP+"},
    {"offload_states", moe, offload_states, "OPTIMIZER- ACTIVATIONS- TRANSIENT+ HOST+ OFFLOAD+ STREAMS+ STEP+"},
    {"swap_states", moe, swap_states, "OPTIMIZER- HOST+ OFFLOAD+ STREAMS+ STEP+"},
    {"reused_masters", moe, reused_masters, "OPTIMIZER-"},
    {"graph_attn", moe, graph_attn, "ACTIVATIONS+ BUFFERS+ MEMORY_BOUND+ HOST- STREAMS+ STEP+"},
    {"graph_router", moe, graph_router, "ACTIVATIONS+ BUFFERS+ MEMORY_BOUND+ HOST- STREAMS+ STEP+"},
    {"bf16_moments", moe, bf16_moments, "OPTIMIZER- STEP_ROWS- STEP-"},
    {"bf16_gradients", moe, bf16_gradients, "GRADIENTS- GROUPED- STEP_ROWS- TP- DP- EDP- STEP-"},
    {"bf16_reduce", moe, bf16_reduce, "DP- EDP- STEP-"},
    {"fp8_blockwise", moe, fp8_blockwise,
     "PARAMETERS+ ACTIVATIONS- TRANSIENT+ GEMM- GROUPED- MEMORY_BOUND+ STEP_ROWS+ HOST+ TP- STREAMS+ STEP+"},
    {"fp8_params", fp8, fp8_params, "PARAMETERS- STEP_ROWS- HOST- DP- EDP- STREAMS+ STEP-"},
    {"tp_only_amax_red", dense_delayed, tp_only_amax, "STEP-"},
    {"tp_only_amax_red", dense, tp_only_amax, ""},
    {"unfused_router", moe, unfused_router, "MEMORY_BOUND+ HOST+ STEP+"},
    {"sequential_experts", moe, sequential_experts, "BUFFERS- GROUPED+ MEMORY_BOUND+ HOST+ STREAMS+ STEP+"},
    {"plain_rope", moe, plain_rope, "MEMORY_BOUND+ HOST+ STEP+"},
    {"unfused_permute", moe, unfused_permute, "ACTIVATIONS- MEMORY_BOUND+ HOST+ STEP+"},
    {"no_accumulation_fusion", moe, no_accumulation_fusion, "BUFFERS- GROUPED- MEMORY_BOUND+ HOST+ STREAMS+ STEP+"},
    {"unfused_cross_entropy", moe, unfused_cross_entropy, "TRANSIENT- MEMORY_BOUND+ STEP+"},
    {"deterministic", moe_plain_loss, deterministic, "ATTENTION+ MEMORY_BOUND+ HOST+ STREAMS+ STEP+"},
    {"deterministic_attention", moe, deterministic_attention, "ATTENTION+ STEP+"},
    {"nan_checks", moe, nan_checks, "STEP_ROWS+ HOST+ STREAMS+ STEP+"},
    {"plain_squared_relu", moe_squared_relu, plain_squared_relu, "ACTIVATIONS+ MEMORY_BOUND+ HOST+ STEP+"},
    {"plain_squared_relu", moe, plain_squared_relu, ""},
    {"fused_experts", moe_mxfp8, fused_experts, "MEMORY_BOUND- HOST- STREAMS- STEP-"},
    {"fp8_attention", moe_mxfp8, fp8_attention, "ACTIVATIONS- ATTENTION- MEMORY_BOUND+ HOST+ STREAMS+ STEP+"},
    {"fp8_dispatch", fp8_deepep, fp8_dispatch, "MEMORY_BOUND- HOST- EP- STREAMS+ STEP-"},
    {"fp8_input_store", moe, fp8_input_store, "ACTIVATIONS- MEMORY_BOUND+ HOST+ STREAMS+ STEP+"},
    {"router_padding", fp8, router_padding, "ACTIVATIONS+ TRANSIENT- GROUPED+ MEMORY_BOUND- HOST- EP+ STREAMS- STEP-"},
    {"router_padding", fp8_deepep, router_padding, "MEMORY_BOUND- HOST- STREAMS- STEP-"},
    {"router_padding", moe, router_padding, ""},
    {"muon", moe, muon, "OPTIMIZER- STEP_ROWS+ HOST+ TP+ STREAMS+ STEP+"},
    {"gpipe", dense, gpipe, "ACTIVATIONS+ SLOTS- STEP-"},
    {"zb_h1", dense, zb_h1, "ACTIVATIONS+ SLOTS+ STEP-"},
    {"post_validation_off", zero_bubble, post_validation_off, "STEP+"},
    {"gpipe", moe, gpipe, "ACTIVATIONS+ SLOTS- STEP+"},
    {"larger_group", moe, larger_group, "ACTIVATIONS+ SLOTS- STEP+"},
    {"blocking_p2p", moe_deep, blocking_p2p, "STEP+"},
    {"flush_overlap", moe_grouped, flush_overlap, "STEP-"},
    {"cp_gather", dense_long, cp_gather, "ATTENTION- MEMORY_BOUND- HOST- CP+ STREAMS- STEP+"},
    {"cp_a2a", dense_long, cp_a2a, "ACTIVATIONS+ ATTENTION- MEMORY_BOUND- HOST- CP+ STREAMS+ STEP+"},
    {"one_length", dense_long, one_length, ""},
    {"packed", dense_long, packed, "ATTENTION- STEP-"},
    {"hybrid_cp", dense_packed, hybrid_cp, "ATTENTION- MEMORY_BOUND- HOST- CP- STREAMS- STEP-"},
    {"plain_permutation", moe, plain_permutation, "ACTIVATIONS+ MEMORY_BOUND+ HOST- EP- STREAMS+ STEP+"},
    {"streams", moe, streams,
     "PARAMETERS+ GRADIENTS+ OPTIMIZER+ ACTIVATIONS+ TRANSIENT- BUFFERS+ MEMORY_BOUND+ STEP_ROWS+ HOST+ TP+ PP+ DP+ "
     "STREAMS+ STEP+"},
    {"skew", moe, skew, "ACTIVATIONS+ TRANSIENT+ GROUPED+ MEMORY_BOUND+ EP+ STEP+"},
    {"token_drop", moe, token_drop, "MEMORY_BOUND+ HOST- EP- STREAMS- STEP-"},
    {"bias", drawn, bias, "ACTIVATIONS- TRANSIENT- GROUPED- MEMORY_BOUND- EP- STEP-"},
    {"placement", drawn, placement, "ACTIVATIONS- TRANSIENT- GROUPED- MEMORY_BOUND- EP- STEP-"},
    {"replicas", drawn, replicas,
     "PARAMETERS+ GRADIENTS+ OPTIMIZER+ ACTIVATIONS- TRANSIENT- GROUPED+ MEMORY_BOUND- STEP_ROWS+ HOST+ EP+ EDP+ "
     "STREAMS+ STEP+"},
    {"sharp", moe, sharp, "STEP-"},
    {"more_sms", moe, more_sms, "TRANSIENT- BUFFERS+ MEMORY_BOUND- HOST- EP- STREAMS- STEP-"},
};

static void switches_move_what_they_should(void **state) {
  (void)state;
  int wrong = 0;
  for (guint i = 0; i < G_N_ELEMENTS(table); i++) {
    g_autoptr(MsScenario) s = table[i].base();
    Measured off = measure(table[i].name, s);
    table[i].turn(s);
    Measured on = measure(table[i].name, s);
    GString *text = g_string_new(NULL);
    for (int q = 0; q < N_QUANTITIES; q++)
      if (memcmp(&on.is[q], &off.is[q], sizeof(double)) != 0)
        g_string_append_printf(text, "%s%s%c", text->len ? " " : "", words[q], on.is[q] < off.is[q] ? '-' : '+');
    if (strcmp(text->str, table[i].moves) != 0)
      print_error("%s moved \"%s\", should move \"%s\"\n", table[i].name, text->str, table[i].moves), wrong++;
    g_string_free(text, TRUE);
  }
  assert_int_equal(wrong, 0);
}

/* --- two ways of saying the same ------------------------------------------------------------------------------- */
SWITCH(as_string) { s->layout.pipeline_layout = g_strdup("Ett|tt|tt|ttL"); }
SWITCH(group_of_pp) { s->layout.microbatch_group_size_per_virtual_pipeline_stage = 2; }
SWITCH(uniform_of_one) { s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_FULL, 0, MS_RECOMPUTE_UNIFORM, 1}; }
SWITCH(block_of_all) { s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_FULL, 0, MS_RECOMPUTE_BLOCK, 2}; }
SWITCH(nothing) { (void)s; }
SWITCH(selective_of_nothing) { recompute(s, 0); }
SWITCH(flat_skew) { s->training.routing = (MsRouting){.kind = MS_ROUTING_ZIPF, .skew = 0, .seed = 1}; }
SWITCH(biased_away) {
  s->training.routing =
      (MsRouting){.kind = MS_ROUTING_ZIPF, .skew = 0.5, .seed = 1, .bias_update_rate = 1e-3, .bias_updates = 10000};
}
SWITCH(one_instance) { s->options.num_distributed_optimizer_instances = 1; }
SWITCH(ends_given) { s->layout.decoder_first_pipeline_num_layers = 16; }
SWITCH(sharding_named) { s->options.fsdp = MS_FSDP_OPTIM; }
SWITCH(validation_named) { s->options.optimizer_post_validation = TRUE; }

static void two_ways_cost_the_same(void **state) {
  (void)state;
  static const struct {
    const char *name;
    MsScenario *(*base)(void);
    void (*one)(MsScenario *), (*other)(MsScenario *);
    double within;
  } pairs[] = {{"pipeline layout as a string", moe, nothing, as_string, 0},
               {"group of PP", moe, nothing, group_of_pp, 0},
               {"full recompute", moe, uniform_of_one, block_of_all, 0},
               {"selective recompute of nothing", moe, nothing, selective_of_nothing, 0},
               {"one optimizer instance", moe, nothing, one_instance, 0},
               {"first stage's layers", dense, nothing, ends_given, 0},
               {"fsdp optim", moe, nothing, sharding_named, 0},
               {"post-validation", zero_bubble, nothing, validation_named, 0},
               {"no skew", moe, nothing, flat_skew, 0.04},
               /* a draw */ {"skew balanced away", moe, flat_skew, biased_away, 0.01}};
  for (guint i = 0; i < G_N_ELEMENTS(pairs); i++) {
    g_autoptr(MsScenario) a = pairs[i].base(), b = pairs[i].base();
    pairs[i].one(a), pairs[i].other(b);
    Measured x = measure(pairs[i].name, a), y = measure(pairs[i].name, b);
    for (int q = 0; q < N_QUANTITIES; q++)
      if (fabs(x.is[q] - y.is[q]) > pairs[i].within * fabs(x.is[q]))
        fail_msg("%s: %s is %.17g one way, %.17g the other", pairs[i].name, words[q], x.is[q], y.is[q]);
  }
}

/* --- communication --------------------------------------------------------------------------------------------- */
/* A class of communication takes time when, and only when, its group has more than one rank. */
static void no_communication_no_time(void **state) {
  (void)state;
  for (int tp = 1; tp <= 2; tp++)
    for (int pp = 1; pp <= 2; pp++)
      for (int ep = 1; ep <= 4; ep *= 4)
        for (int dp = 1; dp <= 4; dp *= 4) {
          if (tp * dp < ep) continue;
          g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h200-sxm", tp * pp * dp);
          s->model->num_layers = 4;
          s->layout.tp = tp, s->layout.pp = pp, s->layout.ep = ep;
          s->options.sequence_parallel = tp > 1, s->options.distributed_optimizer = TRUE;
          s->training.global_batch_size = 4 * dp;
          g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
          const double *total = r->time.comm_total_s;
          assert_int_equal(total[MS_COMM_TP] > 0, tp > 1);
          assert_int_equal(total[MS_COMM_PP] > 0, pp > 1);
          assert_int_equal(total[MS_COMM_EP] > 0, ep > 1);
          assert_int_equal(total[MS_COMM_DP] > 0, dp > 1 || tp * pp > 1); /* the gradient norm goes over all ranks */
          assert_int_equal(total[MS_COMM_EDP] > 0, tp * dp > ep);
          assert_true(total[MS_COMM_CP] == 0 && total[MS_COMM_ETP] == 0 && total[MS_COMM_OFFLOAD] == 0);
          for (int c = 0; c < MS_N_COMMS; c++) assert_true(total[c] > 0 || r->time.comm_exposed_s[c] == 0);
          if (tp * pp * dp == 1) assert_true(r->time.exposed_comm_s == 0);
        }
}

/* What overlap saves is no more than was exposed without it, and what is hidden no more than there is. */
static void overlap_hides_what_exists(void **state) {
  (void)state;
  static const MsDispatcher dispatchers[] = {MS_DISPATCH_ALLTOALL, MS_DISPATCH_DEEPEP, MS_DISPATCH_HYBRIDEP};
  for (guint i = 0; i < G_N_ELEMENTS(dispatchers); i++)
    for (int pp = 1; pp <= 4; pp *= 2) {
      g_autoptr(MsScenario) s = moe();
      s->layout.pp = pp, s->layout.vpp = pp > 1 ? 2 : 1;
      s->options.dispatcher = dispatchers[i];
      g_autoptr(MsResult) apart = ms_test_simulate(s, MS_FIDELITY_FULL);
      double before = apart->step_time_s;
      for (int delay = 0; delay < 2; delay++) {
        s->options.ep_overlap = TRUE, s->options.delay_wgrad = delay;
        g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
        for (int stage = 0; stage < r->stages; stage++) {
          const MsTimeParts *t = &r->stage_time[stage];
          assert_true(t->comm_exposed_s[MS_COMM_EP] <= t->comm_total_s[MS_COMM_EP] * (1 + 1e-9));
        }
        double exposed = 0; /* of the stage that had most */
        for (int stage = 0; stage < apart->stages; stage++)
          exposed = MAX(exposed, apart->stage_time[stage].comm_exposed_s[MS_COMM_EP]);
        if (!(r->step_time_s < before * (delay ? 1.005 : 1)))
          fail_msg("%s pp %d delay %d: %.6f s, %.6f before", ms_dispatcher_words[dispatchers[i]], pp, delay,
                   r->step_time_s, before);
        /* beside it: the host, and waiting for other stages that had the same exposure */
        assert_true(apart->step_time_s - r->step_time_s <= exposed + apart->time.host_s + apart->time.bubble_s);
        before = r->step_time_s; /* delayed weight gradients: no worse but for what their new place costs */
      }
      s->options.ep_overlap = s->options.delay_wgrad = FALSE;
    }
}

/* What a layer does around combine is on the stream of the exchanges with EP overlap and on that of compute without,
 * and the host waits for the counts of rows in front of dispatch where no budget of rows is given. An exchange takes
 * longer in a pair than alone where it crosses the network, and only there. */
static void nodes_of_a_pair(void **state) {
  (void)state;
  static const struct {
    gboolean overlap;
    int ep;
    double budget;
  } runs[] = {{FALSE, 8, NAN}, {TRUE, 8, NAN}, {TRUE, 16, NAN}, {TRUE, 16, 1.5}};
  for (guint k = 0; k < G_N_ELEMENTS(runs); k++) {
    g_autoptr(MsScenario) s = moe();
    s->options.dispatcher = MS_DISPATCH_HYBRIDEP;
    s->options.ep_overlap = runs[k].overlap, s->layout.ep = runs[k].ep,
    s->options.moe_expert_rank_capacity_factor = runs[k].budget;
    g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
    g_autoptr(MsWork) work = ms_work_new(s, layout, NULL);
    g_autoptr(MsCost) cost = ms_cost_new(s, layout, NULL);
    g_autoptr(MsProgram) program = ms_program_new(work, cost);
    const MsCosted *c = &program->piece[work->piece_of_layer[s->model->num_layers - 1]].forward;
    int waits = 0, dispatch = -1, combine = -1;
    for (int i = 0; i < c->list->n; i++) {
      const MsOp *op = &c->list->op[i];
      if (op->flags & MS_OPF_SYNC) waits++, assert_true(dispatch < 0);
      if (op->kind == MS_OP_DISPATCH) dispatch = i;
      if (op->kind == MS_OP_COMBINE) combine = i;
      gboolean exchange = op->kind == MS_OP_DISPATCH || op->kind == MS_OP_COMBINE;
      assert_int_equal(c->beside[i] > c->duration[i], exchange && runs[k].ep > 8);
      assert_true(c->beside[i] >= c->duration[i]);
    }
    assert_int_equal(waits, isnan(runs[k].budget));
    assert_true(dispatch >= 0 && combine > dispatch && combine + 1 < c->list->n);
    for (int i = combine + 1; i < c->list->n; i++)
      assert_int_equal(c->list->op[i].stream, runs[k].overlap ? MS_STREAM_EP : MS_STREAM_COMPUTE);
  }
}

/* One more forward before the first pair (docs/theory/schedules.md 4). */
static void overlap_warms_up_once_more(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe();
  g_autoptr(MsResult) apart = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->options.ep_overlap = TRUE;
  g_autoptr(MsResult) pairs = ms_test_simulate(s, MS_FIDELITY_FULL);
  for (int stage = 0; stage < 2; stage++) {
    const MsPasses *p = &pairs->passes[stage];
    int warm = 2 * (2 - stage - 1) + 2 + 1; /* (v - 1) N = 2 */
    assert_int_equal(p->count[MS_SLOT_F], warm);
    assert_int_equal(p->count[MS_SLOT_B], warm);
    assert_int_equal(p->count[MS_SLOT_FB], apart->passes[stage].count[MS_SLOT_F] - warm);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(switches_move_what_they_should), cmocka_unit_test(two_ways_cost_the_same),
      cmocka_unit_test(no_communication_no_time),       cmocka_unit_test(overlap_hides_what_exists),
      cmocka_unit_test(overlap_warms_up_once_more),     cmocka_unit_test(nodes_of_a_pair)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
