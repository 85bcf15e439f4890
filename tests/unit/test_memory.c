/* tests/unit/test_memory.c - bytes of a rank against hand-checked cases and oracles of docs/theory/memory.md, and
 * against published memories. */
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "base/stats.h"
#include "memory/memory.h"
#include "sim/simulate.h"

#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0
#define GIB 1073741824.0

/* --- one run, lowered, with its schedule and its memory --- */
typedef struct {
  MsLowered l;
  MsSchedule *schedule;
  MsMemory *memory;
} Run;

static void run_clear(Run *run) {
  ms_memory_free(run->memory);
  ms_schedule_free(run->schedule);
  ms_test_lowered_clear(&run->l);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Run, run_clear)

static Run run_of(MsScenario *s) {
  char why[256] = "";
  Run run = {.l = ms_test_lower(s)};
  const MsLayout *l = run.l.layout;
  run.schedule = ms_schedule_new((int)s->layout.schedule, l->pp, l->microbatches, l->vpp, l->group_size,
                                 s->options.ep_overlap, why, sizeof why);
  if (!run.schedule) fail_msg("%s: %s", s->name, why);
  run.memory = ms_memory_new(run.l.work, run.schedule);
  return run;
}

static void set_text(char **to, const char *text) {
  g_free(*to);
  *to = g_strdup(text);
}

static void finish(MsScenario *s, const char *layers) { /* after a change of num_layers */
  GError *error = NULL;
  if (layers) set_text(&s->model->moe_layer_freq, layers);
  if (!ms_model_finish(s->model, NULL, "", &error)) fail_msg("%s", error->message);
}

/* --- hand-checked cases (docs/theory/memory.md 7.1): SimuMax on 8 B200 --- */
typedef struct {
  const char *model;
  int layers, tp, cp, pp, ep, seq, stage;
  double measured_GiB;
} HandCase;
static const HandCase hand_cases[] = {
    {"deepseek-v3", 4, 1, 1, 1, 8, 4096, 0, 104.30},   {"deepseek-v3", 4, 1, 1, 2, 4, 4096, 0, 71.24},
    {"deepseek-v3", 4, 1, 1, 2, 4, 4096, 1, 114.00},   {"deepseek-v2", 4, 1, 1, 1, 8, 4096, 0, 45.63},
    {"deepseek-v2", 4, 1, 1, 2, 4, 4096, 0, 31.58},    {"deepseek-v2", 4, 1, 1, 2, 4, 4096, 1, 44.70},
    {"llama3-70b", 12, 8, 1, 1, 1, 4096, 0, 28.29},    {"llama3-70b", 12, 4, 1, 1, 1, 4096, 0, 39.07},
    {"llama3-70b", 12, 2, 1, 1, 1, 4096, 0, 60.68},    {"llama3-70b", 12, 1, 1, 2, 1, 4096, 0, 66.55},
    {"llama3-70b", 12, 1, 1, 2, 1, 4096, 1, 62.97},    {"llama3-405b", 4, 8, 1, 1, 1, 4096, 0, 38.57},
    {"llama3-405b", 4, 4, 1, 1, 1, 4096, 0, 52.89},    {"llama3-405b", 4, 2, 1, 1, 1, 4096, 0, 81.59},
    {"llama3-405b", 4, 1, 1, 2, 1, 4096, 0, 86.61},    {"llama3-405b", 4, 1, 1, 2, 1, 4096, 1, 87.08},
    {"llama3-70b", 12, 2, 4, 1, 1, 32768, 0, 68.43},   {"llama3-70b", 12, 1, 8, 1, 1, 32768, 0, 104.51},
    {"llama3-405b", 4, 2, 4, 1, 1, 32768, 0, 87.03},   {"llama3-405b", 4, 1, 8, 1, 1, 32768, 0, 139.22},
    {"llama3-70b", 12, 2, 4, 1, 1, 131072, 0, 112.67}, {"llama3-70b", 12, 1, 8, 1, 1, 131072, 0, 147.99},
    {"llama3-405b", 4, 2, 4, 1, 1, 131072, 0, 118.13},
};

static void hand_checked_cases(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(hand_cases); i++) {
    const HandCase *c = &hand_cases[i];
    g_autoptr(MsScenario) s = ms_test_run(c->model, 0, "b200-sxm", 8);
    gboolean moe = s->model->num_experts > 0;
    s->model->num_layers = c->layers;
    s->model->vocab_size += 1; /* the null tokenizer of that release */
    if (!strcmp(c->model, "llama3-405b")) s->model->num_query_groups = 16;
    finish(s, moe ? "[0]*1+[1]*3" : NULL);
    s->layout.tp = c->tp, s->layout.cp = c->cp, s->layout.pp = c->pp, s->layout.ep = c->ep;
    s->layout.cp_comm_type = MS_CP_A2A;
    s->training.seq_length = c->seq;
    s->training.global_batch_size = 4 * 8 / (c->tp * c->cp * c->pp);
    s->options.cross_entropy_fusion_impl = MS_CE_TE;
    s->options.moe_permute_fusion = FALSE;
    if (moe)
      s->training.routing = (MsRouting){.kind = MS_ROUTING_CAPACITY, .capacity_factor = 1, .pad_to_capacity = TRUE};
    g_auto(Run) run = run_of(s);
    double got = run.memory->stage[c->stage].peak_B / GIB;
    if (fabs(got / c->measured_GiB - 1) > 0.005)
      fail_msg("%s t%d c%d p%d s%d stage %d: %.2f GiB, measured %.2f", c->model, c->tp, c->cp, c->pp, c->seq, c->stage,
               got, c->measured_GiB);
  }
}

/* --- kept tensors of one layer (docs/theory/memory.md 2 and 3) --- */
typedef struct {
  const char *model;
  int layer, tp;
  MsPrecision precision;
  guint32 recompute;
  double MiB;
} LayerCase;
#define DSV3_RM (MS_RM_MLA_UP_PROJ | MS_RM_MOE_ACT | MS_RM_LAYERNORM)
static const LayerCase layer_cases[] = {
    {"mixtral-8x7b", 0, 1, MS_BF16, 0, 944.81},
    {"mixtral-8x7b", 0, 2, MS_BF16, 0, 472.41},
    {"deepseek-v3", 0, 1, MS_BF16, 0, 1330.00},
    {"deepseek-v3", 0, 2, MS_BF16, 0, 665.00},
    {"deepseek-v3", 5, 1, MS_BF16, 0, 1787.12},
    {"deepseek-v3", 5, 2, MS_BF16, 0, 893.56},
    {"qwen3-235b-a22b", 0, 1, MS_BF16, 0, 881.62},
    {"qwen3-235b-a22b", 0, 2, MS_BF16, 0, 440.81},
    {"deepseek-v3", 5, 1, MS_BF16, DSV3_RM, 1019.6},
    {"qwen3-235b-a22b", 0, 2, MS_BF16, MS_RM_MOE_ACT | MS_RM_LAYERNORM, 376.81},
    {"mixtral-8x7b", 0, 1, MS_BF16, MS_RM_MOE_ACT, 720.81},
    {"deepseek-v3", 5, 1, MS_MXFP8, 0, 1494.37},
    {"deepseek-v3", 5, 1, MS_MXFP8, DSV3_RM, 794.9},
    {"mixtral-8x7b", 0, 1, MS_MXFP8, 0, 789.81},
    {"mixtral-8x7b", 0, 1, MS_MXFP8, MS_RM_MOE_ACT, 674.31},
    {"qwen3-235b-a22b", 0, 2, MS_MXFP8, 0, 347.81},
    {"qwen3-235b-a22b", 0, 2, MS_MXFP8, MS_RM_MOE_ACT | MS_RM_LAYERNORM, 307.06},
    {"deepseek-v3", 5, 1, MS_FP8_BLOCKWISE, 0, 1494.37},
    {"mixtral-8x7b", 0, 1, MS_FP8_BLOCKWISE, 0, 789.81},
    {"qwen3-235b-a22b", 0, 2, MS_FP8_BLOCKWISE, 0, 347.81},
};

static void layers_keep(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(layer_cases); i++) {
    const LayerCase *c = &layer_cases[i];
    g_autoptr(MsScenario) s = ms_test_run(c->model, 0, c->precision == MS_MXFP8 ? "gb200-nvl72" : "h100-sxm", 512);
    s->layout.tp = c->tp;
    s->layout.ep = s->model->num_experts; /* one expert a rank and many rows: their alignment is next to nothing */
    s->training.micro_batch_size = 8, s->training.global_batch_size = 8 * 512;
    s->training.precision = c->precision;
    s->options.moe_permute_fusion = FALSE;
    if (c->recompute)
      s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = c->recompute;
    g_auto(MsLowered) l = ms_test_lower(s);
    double got = l.work->pieces[l.work->piece_of_layer[c->layer]].kept_B / 8 / MIB;
    if (fabs(got / c->MiB - 1) > 0.001)
      fail_msg("%s layer %d t%d precision %d recompute %x keeps %.2f MiB, expected %.2f", c->model, c->layer, c->tp,
               c->precision, c->recompute, got, c->MiB);
  }
}

/* Full recomputation makes a MoE layer again, dispatch with it: beside its four buffers stands all of the layer but its
 * input, which is the checkpoint. With `moe` what the backward of the experts and of the router reads stands there. */
static void dispatch_beside_what_lives_again(void **state) {
  (void)state;
  static const struct {
    const char *model;
    int tp, pp, ep, seq;
    double full_MiB, moe_MiB;
  } cases[] = {{"deepseek-v3", 1, 8, 64, 4096, 3531.12, 2689.12}, {"mixtral-8x22b", 2, 4, 4, 8192, 1505.0, 1248.56}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    double kept[3], back[3];
    for (int how = 0; how < 3; how++) {
      g_autoptr(MsScenario) s = ms_test_run(cases[i].model, 0, "h100-sxm", 512);
      s->layout.tp = cases[i].tp, s->layout.pp = cases[i].pp, s->layout.ep = cases[i].ep;
      if (cases[i].pp == 8) s->model->num_layers = 64, finish(s, "[0]*3+[1]*61");
      s->options.sequence_parallel = cases[i].tp > 1;
      s->training.seq_length = cases[i].seq;
      s->options.recompute = (MsRecomputeSpec){.granularity = how == 1   ? MS_RECOMPUTE_FULL
                                                              : how == 2 ? MS_RECOMPUTE_SELECTIVE
                                                                         : MS_RECOMPUTE_NONE,
                                               .modules = how == 2 ? MS_RM_MOE : 0,
                                               .method = MS_RECOMPUTE_UNIFORM,
                                               .num_layers = 1};
      g_auto(MsLowered) l = ms_test_lower(s);
      const MsPiece *p = &l.work->pieces[l.work->piece_of_layer[5]];
      kept[how] = p->kept_B, back[how] = p->backward_transient_B;
      if (how != 1) continue;
      double x = 2 * l.work->rows_sp * s->model->hidden_size,
             buffers = 8 * l.work->rows_sp * s->model->moe_router_topk * s->model->hidden_size;
      assert_close(back[1], kept[0] - x + buffers, 1e-9);
    }
    assert_close(back[1] / MIB, cases[i].full_MiB, 1e-3);
    assert_close(back[2] / MIB, cases[i].moe_MiB, 1e-3);
  }
}

/* Full recompute by groups: all of a group lives while the backward of its last layer is at its highest. */
static void checkpointed_groups(void **state) {
  (void)state;
  double transient_B[3], layer_B = 0;
  for (int n = 0; n < 3; n++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-70b", 0, "h100-sxm", 32);
    s->layout.pp = 4;
    s->options.recompute = (MsRecomputeSpec){
        .granularity = n ? MS_RECOMPUTE_FULL : MS_RECOMPUTE_NONE, .method = MS_RECOMPUTE_UNIFORM, .num_layers = 2 * n};
    if (n == 1) s->options.recompute.num_layers = 1;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *last = &l.work->pieces[l.work->piece_of_layer[23]];
    if (n == 0) layer_B = last->kept_B;
    transient_B[n] = last->backward_transient_B;
  }
  double x = 2.0 * 4096 * 8192;
  assert_close(transient_B[1], transient_B[0] + layer_B - x, 1e-12);
  assert_close(transient_B[2], transient_B[0] + 4 * layer_B - x, 1e-12); /* of a group of four, layers 20 to 23 */
}

static double kept_of(const MsPiece *p, const char *name) {
  for (int i = 0; i < p->n_kept; i++)
    if (!strcmp(p->kept[i].name, name)) return p->kept[i].bytes_B;
  return 0;
}

static const MsPiece *layer_of(const MsLowered *l, int layer) {
  return &l->work->pieces[l->work->piece_of_layer[layer]];
}

/* Copies of tokens that are referenced when a MoE layer's forward is at its highest, of Tk h x 2 bytes: sent, arrived,
 * the experts' outputs before and behind their sorting; sorted ones where the kept tensor is not in BF16, and around
 * padding (and quantisation) both padded copies with the activation between them. */
static void buffers_of_dispatch(void **state) {
  (void)state;
  static const struct {
    int dispatcher;
    MsPrecision precision;
    int ep;
    gboolean pads_in_router;
    double copies, activations, tokens; /* of Tk h, of Tk fm, of Tsp h */
  } cases[] = {
      {MS_DISPATCH_ALLTOALL, MS_BF16, 4, FALSE, 4, 0, 0},  {MS_DISPATCH_ALLTOALL, MS_BF16, 8, FALSE, 3, 0, 0},
      {MS_DISPATCH_ALLTOALL, MS_BF16, 1, FALSE, 3, 0, 0},  {MS_DISPATCH_ALLTOALL, MS_MXFP8, 4, TRUE, 4, 1, 0},
      {MS_DISPATCH_ALLTOALL, MS_MXFP8, 4, FALSE, 6, 1, 0}, {MS_DISPATCH_ALLGATHER, MS_BF16, 4, FALSE, 0, 0, 18},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "gb200-nvl72", 64);
    s->layout.ep = cases[i].ep;
    s->training.precision = cases[i].precision;
    s->training.micro_batch_size = 64, s->training.global_batch_size = 64 * 64; /* what is padded is next to nothing */
    s->options.dispatcher = cases[i].dispatcher;
    s->options.moe_router_padding_for_quantization = cases[i].pads_in_router;
    g_auto(MsLowered) l = ms_test_lower(s);
    double tokens = 2 * l.work->rows_sp * s->model->hidden_size, copies = tokens * s->model->moe_router_topk,
           activation = 2 * l.work->rows_sp * s->model->moe_router_topk * s->model->moe_ffn_hidden_size;
    assert_close(layer_of(&l, 1)->forward_transient_B,
                 cases[i].copies * copies + cases[i].activations * activation + cases[i].tokens * tokens, 1e-2);
  }
}

/* Weights of layers that stay in BF16 have no copies: 2 (1 + 1/32) bytes less of each. */
static void bf16_layers_have_no_copies(void **state) {
  (void)state;
  double parameters_B[2];
  for (int ends = 0; ends < 2; ends++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-70b", 0, "gb200-nvl72", 64);
    s->layout.tp = 2, s->layout.pp = 4, s->options.sequence_parallel = TRUE;
    s->training.precision = MS_MXFP8;
    if (ends) s->options.num_layers_at_start_in_bf16 = s->options.num_layers_at_end_in_bf16 = 2;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStageMemory m;
    ms_memory_static(l.work, 0, &m);
    parameters_B[ends] = m.parameters_B;
    ms_memory_static(l.work, 1, &m); /* all of whose layers are in FP8 */
    assert_close(m.parameters_B, 20 * (855638016.0 / 2 * (2 + 2.0625) + 2 * 2 * 8192), 1e-6);
  }
  assert_close(parameters_B[0] - parameters_B[1], 2 * 855638016.0 / 2 * 2.0625, 1e-9);
}

/* The shared expert's output is kept for the gradient of its gate. */
static void shared_gate_keeps_the_output(void **state) {
  (void)state;
  for (int beside = 0; beside < 2; beside++) {
    double kept[2];
    for (int gate = 0; gate < 2; gate++) {
      g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 0, "h100-sxm", 64);
      s->layout.tp = 2, s->layout.ep = 32, s->options.sequence_parallel = TRUE;
      s->options.moe_shared_expert_overlap = beside, s->model->moe_shared_expert_gate = gate;
      g_auto(MsLowered) l = ms_test_lower(s);
      kept[gate] = layer_of(&l, 5)->kept_B;
    }
    assert_close(kept[1] - kept[0], 2 * 2048.0 * 7168, 1e-9);
  }
}

/* MTP blocks compute in BF16 beside NVFP4 and where they are kept so. Their layer's input is a part of a gathered
 * tensor that stays whole. */
static void mtp_blocks_in_bf16(void **state) {
  (void)state;
  double kept[4];
  for (int i = 0; i < 4; i++) {
    g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 1, "gb200-nvl72", 64);
    s->layout.tp = 2, s->layout.ep = 32, s->options.sequence_parallel = TRUE;
    s->training.precision = i == 0 ? MS_BF16 : i == 1 ? MS_NVFP4 : MS_MXFP8;
    s->options.keep_mtp_spec_in_bf16 = i == 2;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = &l.work->pieces[l.work->piece_mtp];
    kept[i] = p->kept_B;
    assert_close(kept_of(p, "mtp gathered"), 2 * 2048.0 * 7168, 1e-9);
    assert_true((p->params_quantizable_expert > 0) == (i == 0 || i == 3));
  }
  assert_close(kept[1], kept[0], 1e-12);
  assert_close(kept[2], kept[0], 1e-12);
  assert_true(kept[3] < kept[0]);
}

/* `core_attn` keeps what goes into the core and what the projection reads of it, nothing between. */
static void recomputed_core_keeps_its_ends(void **state) {
  (void)state;
  double kept[2];
  for (int again = 0; again < 2; again++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->layout.cp = 2, s->layout.cp_comm_type = MS_CP_A2A;
    if (again)
      s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = MS_RM_CORE_ATTN;
    g_auto(MsLowered) l = ms_test_lower(s);
    kept[again] = layer_of(&l, 0)->kept_B;
  }
  assert_close(kept[0] - kept[1], 2048 * (2.0 * 4096 + 4.0 * 32), 1e-9);
}

/* Inputs that stay in BF16 beside FP8 products, or are there twice. */
static void inputs_beside_fp8(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    MsPrecision precision = i ? MS_FP8_DELAYED : MS_FP8_TENSORWISE;
    g_autoptr(MsScenario) gated = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    gated->model->attention_output_gate = TRUE, gated->training.precision = precision;
    g_auto(MsLowered) a = ms_test_lower(gated);
    assert_close(kept_of(layer_of(&a, 0), "gated attention out"), i ? 0 : 2 * 4096.0 * 4096, 1e-9);
    g_autoptr(MsScenario) shared = ms_test_run("deepseek-v3", 0, "h100-sxm", 64);
    shared->layout.tp = 2, shared->layout.ep = 32, shared->options.sequence_parallel = TRUE;
    shared->options.moe_shared_expert_overlap = TRUE, shared->training.precision = precision;
    g_auto(MsLowered) b = ms_test_lower(shared);
    assert_close(kept_of(layer_of(&b, 5), "shared input"), (i ? 1 : 2) * 4096.0 * 7168, 1e-9);
    shared->options.moe_shared_expert_overlap = FALSE; /* then of its own half of the rows */
    g_auto(MsLowered) in_turn = ms_test_lower(shared);
    assert_close(kept_of(layer_of(&in_turn, 5), "shared input"), (i ? 1 : 0) * 2048.0 * 7168, 1e-9);
    g_autoptr(MsScenario) latent = ms_test_run("nemotron-3-super", 0, "h100-sxm", 8);
    latent->layout.ep = 8, latent->training.precision = precision;
    g_auto(MsLowered) c = ms_test_lower(latent);
    for (int k = 0; k < c.work->n_pieces; k++)
      if (c.work->pieces[k].is_moe && c.work->pieces[k].kind == MS_PIECE_LAYER)
        assert_close(kept_of(&c.work->pieces[k], "latent input"), c.work->rows_sp * latent->model->hidden_size, 1e-9);
  }
}

/* `core_attn` sends what attention saves, its output too, which stays while the projection has it, and leaves a second
 * time with `attn_proj`; not where attention saves scores, and what lies at one address once with MindSpeed. */
static void copies_to_the_host(void **state) {
  (void)state;
  static const struct {
    const char *hardware;
    guint32 modules;
    MsAttnBackend backend;
    int copies, stays;
  } cases[] = {{"gb200-nvl72", MS_OM_CORE_ATTN, MS_ATTN_FUSED, 1, TRUE},
               {"gb200-nvl72", MS_OM_CORE_ATTN | MS_OM_ATTN_PROJ, MS_ATTN_FUSED, 1, FALSE},
               {"gb200-nvl72", MS_OM_CORE_ATTN, MS_ATTN_UNFUSED, 0, TRUE},
               {"ascend-910b", MS_OM_CORE_ATTN | MS_OM_ATTN_PROJ, MS_ATTN_FUSED, 0, FALSE}};
  double out = 2 * 4096.0 * 64 * 128 / 2, qkv = 2 * 4096.0 * (64 + 2 * 4) * 128 / 2;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-235b-a22b", 0, cases[i].hardware, 64);
    s->layout.tp = 2, s->layout.ep = 32, s->options.sequence_parallel = TRUE;
    s->options.attention_backend = cases[i].backend, s->options.offload_modules = cases[i].modules;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = layer_of(&l, 0);
    double scores = cases[i].backend == MS_ATTN_UNFUSED ? 2 * 32 * 4096.0 * 4096 : 0;
    assert_close(kept_of(p, "attention out"), cases[i].stays ? out : 0, 1e-12);
    assert_close(p->offload_copy_B, cases[i].copies * out, 1e-12);
    assert_close(p->offload_B, qkv + scores + (cases[i].copies + !cases[i].stays) * out, 1e-12);
  }
}

/* Norms in one module with the product behind them have no offload of their own: the input of the one before grouped
 * attention leaves with `qkv_linear`, that of the one before a dense MLP not at all. */
static void norms_of_their_own_leave(void **state) {
  (void)state;
  static const struct {
    const char *model;
    int layer;
    gboolean local;
    guint32 modules;
    double rows_of_h; /* what leaves, in tensors of T x h */
  } cases[] = {{"llama3-8b", 0, FALSE, MS_OM_ATTN_NORM | MS_OM_MLP_NORM, 0},
               {"llama3-8b", 0, FALSE, MS_OM_QKV_LINEAR, 2},
               {"llama3-8b", 0, TRUE, MS_OM_ATTN_NORM | MS_OM_MLP_NORM, 2},
               {"mixtral-8x7b", 0, FALSE, MS_OM_ATTN_NORM | MS_OM_MLP_NORM, 1},
               {"deepseek-v3", 0, FALSE, MS_OM_ATTN_NORM | MS_OM_MLP_NORM, 1},
               {"deepseek-v3", 5, FALSE, MS_OM_ATTN_NORM | MS_OM_MLP_NORM, 2},
               {"deepseek-v3", 5, FALSE, MS_OM_QKV_LINEAR, 1 + 2 * (1536 + 512) / 7168.0}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = ms_test_run(cases[i].model, 0, "gb200-nvl72", 64);
    s->layout.ep = s->model->num_experts > 0 ? 8 : 1, s->options.offload_modules = cases[i].modules;
    if (cases[i].local) s->options.transformer_impl = MS_IMPL_LOCAL;
    g_auto(MsLowered) l = ms_test_lower(s);
    double leaves = layer_of(&l, cases[i].layer)->offload_B / (2 * 4096.0 * s->model->hidden_size);
    if (fabs(leaves - cases[i].rows_of_h) > 1e-9) fail_msg("case %u: %g, not %g", i, leaves, cases[i].rows_of_h);
  }
}

/* Compressed attention saves its output from before the rotation that the projection reads, so that it leaves; queries
 * and keys leave too, as copies where they are made again. */
static void rotated_output_leaves(void **state) {
  (void)state;
  for (int again = 0; again < 2; again++) {
    g_autoptr(MsScenario) s = ms_test_run("deepseek-v4-flash", 0, "gb300-nvl72", 64);
    s->layout.ep = 32, s->options.offload_modules = MS_OM_CORE_ATTN;
    if (again)
      s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = MS_RM_MLA_UP_PROJ;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = layer_of(&l, 5);
    double head = 2 * 4096.0 * 512;
    assert_close(kept_of(p, "attention out, unrotated"), 64 * head, 1e-12);
    assert_close(p->offload_B, 64 * head + 65 * head, 1e-12);
    assert_close(p->offload_copy_B, again ? 65 * head : 0, 1e-12);
  }
}

/* A delta net keeps q and k for their L2 norm, values only where the rule reads them, and its output before the norm,
 * before the gate and behind it. */
static void delta_nets_keep(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("qwen3-next-80b-a3b", 0, "h100-sxm", 8);
  s->layout.ep = 8;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsLinearAttention *a = &s->model->linear_attention;
  double keys = (double)a->num_key_heads * a->key_head_dim, values = (double)a->num_value_heads * a->value_head_dim,
         rows = l.work->rows_sp;
  assert_close(kept_of(layer_of(&l, 0), "delta conv out"), 2 * rows * 2 * keys, 1e-12);
  static const char *const outputs[] = {"delta out", "normed delta out", "gated delta out"};
  for (int i = 0; i < 3; i++) assert_close(kept_of(layer_of(&l, 0), outputs[i]), 2 * rows * values, 1e-12);
}

/* `mla_up_proj` of DeepSeek-V3 over two ranks: latents of half the rows, rotary columns among them, which are there for
 * all rows, too. */
static void recomputed_latents(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 0, "h100-sxm", 64);
  s->layout.tp = 2, s->layout.ep = 32, s->options.sequence_parallel = TRUE;
  s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = MS_RM_MLA_UP_PROJ;
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_close(kept_of(layer_of(&l, 5), "latents"), 2 * (2048.0 * (1536 + 512 + 64) + 4096.0 * 64), 1e-9);
}

/* index_add_ of plain unpermute in deterministic mode saves the experts' outputs that it adds: 2 of 16384 rows each. */
static void deterministic_sums_save_rows(void **state) {
  (void)state;
  for (int fused = 0; fused < 2; fused++) {
    double kept[2];
    for (int deterministic = 0; deterministic < 2; deterministic++) {
      g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 8);
      s->layout.ep = 8, s->training.micro_batch_size = 1, s->training.global_batch_size = 8;
      s->training.seq_length = 16384;
      s->options.cross_entropy_fusion = FALSE;
      s->options.moe_permute_fusion = fused, s->options.deterministic_mode = deterministic;
      g_auto(MsLowered) l = ms_test_lower(s);
      kept[deterministic] = l.work->pieces[l.work->piece_of_layer[0]].kept_B;
    }
    assert_close(kept[1] - kept[0] + 1, fused ? 1 : 1 + 2.0 * 2 * 16384 * 4096, 1e-9);
  }
}

/* A Mamba layer keeps its input, normed too, what is projected, and three tensors of its inner width: the scan's output
 * before its gate, behind it, and normed. */
static void mamba_keeps_three_outputs(void **state) {
  (void)state;
  g_autoptr(MsScenario) s =
      ms_test_scenario_of("{\"model\": \"nemotron-3-nano-4b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "
                          "{\"seq_length\": 4096, \"micro_batch_size\": 1, \"global_batch_size\": 8}}");
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsMamba *m = &s->model->mamba;
  double tokens = 4096, inner = (double)m->num_heads * m->head_dim,
         projected = 2 * inner + 2.0 * m->num_groups * m->state_dim + m->num_heads;
  int layer = 0;
  while (!strstr(l.work->pieces[l.work->piece_of_layer[layer]].name, "mamba")) layer++;
  assert_close(l.work->pieces[l.work->piece_of_layer[layer]].kept_B,
               2 * tokens * (2 * s->model->hidden_size + projected + 3 * inner), 1e-9);
}

/* SwiGLU inputs in FP8: one byte for each of the 2 x 2048 columns of 32768 expert rows, and of 4096 shared rows.
 * Recomputation of the output stays possible. */
static void fp8_store_keeps_one_byte(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 0, "h100-sxm", 512);
  s->layout.ep = 256;
  s->training.precision = MS_FP8_BLOCKWISE;
  s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_SELECTIVE, DSV3_RM, 0, 1};
  g_auto(MsLowered) without = ms_test_lower(s);
  s->options.activation_func_fp8_input_store = TRUE;
  g_auto(MsLowered) with = ms_test_lower(s);
  int moe = with.work->piece_of_layer[5];
  assert_close(without.work->pieces[moe].kept_B - with.work->pieces[moe].kept_B, (128 + 16) * MIB, 1e-3);
}

/* Two cuBLAS workspaces (docs/theory/memory.md 1.3): 8.125 MiB each on A100, in deterministic mode 32 MiB, as on H100
 * anyway; none where the machine has none. */
static void deterministic_workspaces(void **state) {
  (void)state;
  static const struct {
    const char *machine;
    double of_machine_B, more_MiB;
  } cases[] = {{"a100-sxm-80g", NAN, 47.75}, {"h100-sxm", NAN, 0}, {"h100-sxm", 0, 0}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    double buffers_B[2];
    for (int deterministic = 0; deterministic < 2; deterministic++) {
      g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, cases[i].machine, 8);
      if (!isnan(cases[i].of_machine_B)) s->hardware->blas_workspace_B = cases[i].of_machine_B;
      s->options.deterministic_mode = deterministic, s->options.cross_entropy_fusion = FALSE;
      g_auto(MsLowered) l = ms_test_lower(s);
      MsStageMemory memory;
      ms_memory_static(l.work, 0, &memory);
      buffers_B[deterministic] = memory.buffers_B;
    }
    assert_close((buffers_B[1] - buffers_B[0]) / MIB, cases[i].more_MiB, 1e-9);
  }
}

/* DeepSeek's own run fits the GPUs that it ran on. */
static void deepseek_fits_h800(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_file("scenarios/tour/deepseek-v3-h800-dualpipe.json");
  g_auto(Run) run = run_of(s);
  for (int i = 0; i < run.memory->stages; i++) assert_true(run.memory->stage[i].device_B < s->hardware->hbm_B);
}

/* A stack from before flash attention keeps the scores where the scenario names no backend: the zero-bubble paper
 * prints 30, 40 and 39 GB. Named, a backend stays. */
static void stack_keeps_the_scores(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double printed_B;
  } runs[] = {{"1.5B_1F1B_m24", 30e9}, {"1.5B_1F1B-I_m24", 40e9}, {"6.2B_1F1B_m24", 39e9}};
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_autofree char *file = g_strdup_printf(MS_SOURCE_DIR "/scenarios/published/zero-bubble/ZB-%s.json", runs[i].name),
                    *text = NULL;
    g_autoptr(MsScenario) s = ms_test_scenario_file("scenarios/published/zero-bubble/ZB-%s.json", runs[i].name);
    assert_int_equal(s->options.attention_backend, MS_ATTN_UNFUSED);
    assert_false(s->options.overlap_p2p_comm);
    g_auto(Run) run = run_of(s);
    double peak_B = 0;
    for (int k = 0; k < run.memory->stages; k++) peak_B = MAX(peak_B, run.memory->stage[k].peak_B);
    assert_close(peak_B, runs[i].printed_B, 0.06);
    assert_true(g_file_get_contents(file, &text, NULL, NULL));
    g_autoptr(GString) named = g_string_new(text);
    assert_int_equal(g_string_replace(named, "\"options\": {", "\"options\": {\"attention_backend\": \"fused\",", 1),
                     1);
    g_autoptr(MsScenario) fused = ms_test_scenario_of(named->str);
    assert_int_equal(fused->options.attention_backend, MS_ATTN_FUSED);
  }
}

/* --- large runs (docs/theory/memory.md 7.2 and 7.3) --- */
static MsScenario *mixtral(void) {
  MsScenario *s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 64);
  s->layout.pp = 4, s->layout.vpp = 8, s->layout.ep = 8;
  s->training.global_batch_size = 256;
  s->options.moe_permute_fusion = FALSE;
  return s;
}
static MsScenario *qwen3(void) {
  MsScenario *s = ms_test_run("qwen3-235b-a22b", 0, "h100-sxm", 256);
  s->layout.tp = 2, s->layout.pp = 8, s->layout.vpp = 4, s->layout.ep = 32;
  s->layout.account_for_embedding_in_pipeline_split = s->layout.account_for_loss_in_pipeline_split = TRUE;
  s->training.global_batch_size = 16 * 128;
  s->options.moe_permute_fusion = FALSE;
  return s;
}
static MsScenario *deepseek(void) {
  MsScenario *s = ms_test_run("deepseek-v3", 1, "h100-sxm", 1024);
  s->layout.tp = 2, s->layout.pp = 8, s->layout.vpp = 4, s->layout.ep = 64;
  s->model->make_vocab_size_divisible_by = 128;
  set_text(&s->layout.pipeline_layout, "Et|(tt|)*30mL");
  s->training.global_batch_size = 64 * 128;
  s->options.moe_permute_fusion = FALSE;
  return s;
}

typedef struct {
  MsScenario *(*make)(void);
  int stage;
  double dense_M, expert_M, parameters_GiB, gradients_GiB, optimizer_GiB;
} StaticCase;
static const StaticCase static_cases[] = {
    {mixtral, 0, 466.94, 1409.29, 3.495, 6.990, 8.201},    {mixtral, 1, 335.87, 1409.29, 3.251, 6.501, 8.110},
    {qwen3, 0, 709.19, 830.47, 2.868, 5.736, 9.777},       {qwen3, 3, 434.21, 905.97, 2.496, 4.993, 10.428},
    {deepseek, 0, 1512.62, 1056.96, 4.786, 9.572, 6.170},  {deepseek, 4, 999.95, 1409.29, 4.488, 8.975, 8.050},
    {deepseek, 7, 1853.04, 1233.13, 5.748, 11.497, 7.214},
};

static void static_bytes(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(static_cases); i++) {
    const StaticCase *c = &static_cases[i];
    g_autoptr(MsScenario) s = c->make();
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStageParams p = ms_work_stage_params(l.work, c->stage);
    assert_close((p.params_dense + p.embedding_copy) / 1e6, c->dense_M, 0.001);
    assert_close(p.params_expert / 1e6, c->expert_M, 0.001);
    MsStageMemory m;
    ms_memory_static(l.work, c->stage, &m);
    assert_close(m.parameters_B / GIB, c->parameters_GiB, 0.001);
    assert_close(m.gradients_B / GIB, c->gradients_GiB, 0.001);
    assert_close(m.optimizer_B / GIB, c->optimizer_GiB, 0.001);
  }
}

/* BF16 moments: beside BF16 weights the master is a half, beside FP16 ones it is whole. */
static void masters_beside_fp16(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  s->options.exp_avg_dtype = s->options.exp_avg_sq_dtype = MS_DT_BF16;
  assert_close(ms_optimizer_state_B(s), 2 + 2 + 2, 0);
  s->training.precision = MS_FP16;
  assert_close(ms_optimizer_state_B(s), 4 + 2 + 2, 0);
}

/* Registered buffers of HybridEP (docs/theory/communication.md 5.4), beside a run without them. */
static void hybridep_buffers(void **state) {
  (void)state;
  static const struct {
    const char *model, *hardware;
    int gpus, ep;
    double GiB;
  } cases[] = {{"deepseek-v3", "gb200-nvl72", 64, 64, 3.805},
               {"deepseek-v3", "h100-sxm", 64, 64, 3.586 + 1.224},
               {"deepseek-v3", "gb200-nvl72", 32, 32, 1.902},
               {"mixtral-8x7b", "h100-sxm", 8, 8, 0.255}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = ms_test_run(cases[i].model, 0, cases[i].hardware, cases[i].gpus);
    double buffers_B[2];
    s->layout.ep = cases[i].ep;
    for (int with = 0; with < 2; with++) {
      s->options.dispatcher = with ? MS_DISPATCH_HYBRIDEP : MS_DISPATCH_ALLTOALL;
      g_auto(MsLowered) l = ms_test_lower(s);
      MsStageMemory m;
      ms_memory_static(l.work, 0, &m);
      buffers_B[with] = m.buffers_B;
    }
    assert_close((buffers_B[1] - buffers_B[0]) / GIB, cases[i].GiB, 0.001);
    /* of the second, to the byte: 64 ranks x 4096 rows x (2 x 7168 + 4 x 256 x 8 / 64 + 4 x 7168 / 128) over NVLink;
     * over the network 4096 (2 h + 4 E + 4 h / 128), 7 x 4096 (2 h + 4 E / 8 + 4 h / 128), 2 x 7 x 4096 (2 h + 4 E / 8)
     */
    if (i == 1) assert_true(buffers_B[1] - buffers_B[0] == 3850371072.0 + 63832064.0 + 421134336.0 + 829423616.0);
  }
}

static double static_B(MsScenario *s, double *optimizer_B) {
  g_auto(MsLowered) l = ms_test_lower(s);
  MsStageMemory m;
  ms_memory_static(l.work, 0, &m);
  if (optimizer_B) *optimizer_B = m.optimizer_B;
  return m.buffers_B;
}

/* What options add to the buffers, worked out by hand (docs/theory/memory.md 1.3). */
static void buffers_of_options(void **state) {
  (void)state;
  /* user buffers: three workspaces and eleven [T, h] buffers in BF16 */
  g_autoptr(MsScenario) tp = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  tp->layout.tp = 4, tp->options.sequence_parallel = TRUE;
  double without = static_B(tp, NULL);
  tp->options.tp_comm_overlap = TRUE;
  assert_close(static_B(tp, NULL) - without, 3 * 32 * MIB + 11 * 2 * 4096.0 * 4096, 1e-9);
  /* Megatron-FSDP: gradients of two layers whole, in the type they are reduced in */
  g_autoptr(MsScenario) fsdp = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  double layer = 2 * 4096.0 * 4096 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336 + 2 * 4096;
  without = static_B(fsdp, NULL);
  fsdp->options.fsdp = MS_FSDP_OPTIM_GRADS;
  assert_close(static_B(fsdp, NULL) - without, 2 * ms_dtype_B(fsdp->options.grad_reduce_dtype) * layer, 1e-9);
}

/* Whole parameters and gradients of Megatron-FSDP, of 218,112,000 elements a layer and 525,340,672 of the head
 * (docs/theory/memory.md 1.4). Without double buffers 5e8 elements are fetched ahead, three layers beside the one at
 * work; up to 1e9 wait for their reduction, so that the fourth layer of the backward runs beside the gradients of the
 * head and of three layers. With them there are two of both for the layers, and the head's beside the last layer's. */
static void fsdp_in_flight(void **state) {
  (void)state;
  const double layer = 218112000, head = 525340672;
  for (int pooled = 0; pooled < 2; pooled++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->training.seq_length = 1024;
    s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS, s->options.fsdp_double_buffer = pooled;
    s->options.recompute.granularity = MS_RECOMPUTE_FULL;
    g_auto(Run) run = run_of(s);
    const MsStageMemory *m = &run.memory->stage[0];
    const MsPiece *last = layer_of(&run.l, 31), *ends[2] = {NULL};
    for (int i = 0; i < run.l.work->n_pieces; i++) {
      const MsPiece *p = &run.l.work->pieces[i];
      if (p->kind == MS_PIECE_EMBEDDING) ends[0] = p;
      if (p->kind == MS_PIECE_HEAD) ends[1] = p;
    }
    assert_close(last->params_dense, layer, 0), assert_close(ends[1]->params_dense, head, 0);
    double kept = ends[0]->kept_B + 32 * last->kept_B, more = pooled ? 0 : 3 * last->kept_B,
           gathered = pooled ? 0 : 2 * 4 * layer, gradients = pooled ? 4 * head : 4 * (head + 4 * layer);
    double in_layer = kept - more + last->backward_transient_B + gathered + gradients,
           in_head = kept + ends[1]->kept_B + ends[1]->backward_transient_B + 4 * head;
    assert_close(m->activations_B + m->transient_B, MAX(in_layer, in_head), 1e-9);
    assert_true(pooled || in_layer > in_head);
    s->options.fsdp = MS_FSDP_NONE;
    MsStageMemory without;
    g_auto(MsLowered) plain = ms_test_lower(s);
    ms_memory_static(plain.work, 0, &without);
    double stays = 2 * (head + 128256.0 * 4096), pool = 2 * (2 + 4) * layer;
    assert_close(m->buffers_B - without.buffers_B, pooled ? stays + pool : stays, 1e-9);
  }
}

/* Llama 3 8B on 64 GPUs, 4 instances: their optimizers are over 16 ranks, of those that share one over 64.
 * Megatron-FSDP shards weights and gradients over 16; instances that share the optimizer hold a part in 64 of both
 * besides. */
static void shards_of_instances(void **state) {
  (void)state;
  const double params = 8030261248;
  static const struct {
    MsFsdp fsdp;
    MsOuterDp outer;
    double weights, gradients, optimizer; /* parts */
  } rows[] = {{MS_FSDP_NONE, MS_OUTER_NO_SHARD, 1, 1, 1 / 16.0},
              {MS_FSDP_OPTIM, MS_OUTER_NO_SHARD, 1, 1, 1 / 16.0},
              {MS_FSDP_OPTIM_GRADS, MS_OUTER_NO_SHARD, 1, 1 / 16.0, 1 / 16.0},
              {MS_FSDP_OPTIM_GRADS_PARAMS, MS_OUTER_NO_SHARD, 1 / 16.0, 1 / 16.0, 1 / 16.0},
              {MS_FSDP_OPTIM_GRADS_PARAMS, MS_OUTER_OPTIM, 1 / 16.0 + 1 / 64.0, 1 / 16.0 + 1 / 64.0, 1 / 64.0}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 64);
    s->options.num_distributed_optimizer_instances = 4;
    s->options.fsdp = rows[i].fsdp, s->options.outer_dp_sharding_strategy = rows[i].outer;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStageMemory m;
    ms_memory_static(l.work, 0, &m);
    assert_close(m.parameters_B, 2 * params * rows[i].weights, 1e-12);
    assert_close(m.gradients_B, 4 * params * rows[i].gradients, 1e-12);
    assert_close(m.optimizer_B, 12 * params * rows[i].optimizer, 1e-12);
  }
}

/* MindSpeed's BF16 weights lie in their masters: 2 bytes of a weight less, shared by those that share the optimizer. */
static void reused_masters(void **state) {
  (void)state;
  for (int sharded = 0; sharded < 2; sharded++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "ascend-910b", 8);
    double own_B, reused_B;
    s->options.distributed_optimizer = sharded;
    static_B(s, &own_B);
    s->options.reuse_fp32_param = TRUE;
    static_B(s, &reused_B);
    assert_close(reused_B * 12, own_B * 10, 1e-12);
  }
}

/* BF16 moments: the precision-aware optimizer keeps 16-bit remainders, but with FP8 recipes other than delayed scaling
 * whole masters, and it casts BF16 gradients while it steps. */
static void masters_beside_fp8(void **state) {
  (void)state;
  static const struct {
    MsPrecision precision;
    double optimizer_B, cast_B;
  } cases[] = {{MS_BF16, 6, 0}, {MS_FP8_DELAYED, 6, 0}, {MS_FP8_TENSORWISE, 8, 4}, {MS_FP8_BLOCKWISE, 8, 4}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->options.exp_avg_dtype = s->options.exp_avg_sq_dtype = MS_DT_BF16;
    s->options.main_grads_dtype = MS_DT_BF16;
    s->training.precision = cases[i].precision;
    s->training.seq_length = 1; /* the step is the peak */
    s->training.global_batch_size = 8, s->training.micro_batch_size = 1;
    g_auto(Run) run = run_of(s);
    const MsStageMemory *m = &run.memory->stage[0];
    double shard = ms_work_stage_params(run.l.work, 0).params_dense / 8;
    assert_close(m->optimizer_B, cases[i].optimizer_B * shard, 1e-9);
    if (cases[i].cast_B > 0) assert_string_equal(m->peak_where, "optimizer");
    if (cases[i].cast_B > 0) assert_close(m->transient_B, cases[i].cast_B * shard, 1e-9);
    else assert_string_not_equal(m->peak_where, "optimizer");
  }
}

/* Layers of TransformerEngine keep FP8 copies of gathered BF16 weights whole; gathered in FP8, and in BF16, nothing
 * stays but the shards. */
static void cached_copies(void **state) {
  (void)state;
  for (int gathered = 0; gathered < 2; gathered++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS, s->training.precision = MS_FP8_TENSORWISE;
    s->options.fp8_param_gather = gathered;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStageParams p = ms_work_stage_params(l.work, 0);
    MsStageMemory memory;
    ms_memory_static(l.work, 0, &memory);
    double low = p.quantizable_dense, shards_B = 2 * (p.params_dense + p.embedding_copy) / 8;
    assert_close(memory.parameters_B, gathered ? shards_B : shards_B + 2 * low, 1e-12);
  }
}

/* Bytes of a quantisable weight (docs/theory/memory.md 1.1): BF16 and two low-precision copies, or with
 * fp8_param_gather these alone, with their scales. MXFP8 weights have no buffer of their own for their gather, said or
 * not (TransformerEngine v2.9 replace_raw_data refuses them). Blackwell needs one copy where one scale is the tensor's
 * (is_non_tn_fp8_gemm_supported). */
static void low_precision_weights(void **state) {
  (void)state;
  static const char *const machines[] = {"h100-sxm", "b200-sxm"};
  static const struct {
    MsPrecision precision;
    int machine;
    double kept, gathered;
  } rows[] = {{MS_FP8_TENSORWISE, 0, 4, 2},
              {MS_FP8_TENSORWISE, 1, 3, 1},
              {MS_FP8_DELAYED, 1, 3, 1},
              {MS_FP8_BLOCKWISE, 0, 4 + 8.0 / 16384, 2 + 8.0 / 16384},
              {MS_MXFP8, 1, 2 + 2 * 33.0 / 32, 2 * 33.0 / 32}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    for (int gather = 0; gather < 2; gather++) {
      g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, machines[rows[i].machine], 8);
      s->training.precision = rows[i].precision, s->options.fp8_param_gather = gather;
      g_auto(MsLowered) l = ms_test_lower(s);
      assert_close(ms_memory_param_bytes(l.work).low_weight, gather ? rows[i].gathered : rows[i].kept, 1e-12);
    }
}

/* Muon keeps no second moment of matrices; those of experts are sharded over their own replicas only. */
static void muon_states(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 16);
  double adam_B, muon_B, dense, expert;
  s->layout.ep = 8;
  static_B(s, &adam_B);
  s->training.optimizer = MS_OPT_MUON;
  static_B(s, &muon_B);
  g_auto(MsLowered) l = ms_test_lower(s);
  ms_work_matrix_params(l.work, 0, &dense, &expert);
  MsParamBytes b = ms_memory_param_bytes(l.work);
  assert_true(expert > dense && dense > 0 && b.dense_shards != b.expert_shards);
  s->training.optimizer = MS_OPT_ADAM;
  g_auto(MsLowered) adam = ms_test_lower(s);
  MsParamBytes a = ms_memory_param_bytes(adam.work);
  MsStageParams p = ms_work_stage_params(adam.work, 0);
  double all_dense = p.params_dense + p.embedding_copy;
  assert_close(adam_B, a.optimizer * (all_dense / a.dense_shards + p.params_expert / a.expert_shards), 1e-12);
  assert_close(muon_B,
               b.optimizer * (all_dense / b.dense_shards + p.params_expert / b.expert_shards) -
                   4 * (dense / b.dense_shards + expert / b.expert_shards),
               1e-12);
}

/* Adapters are matrices and nothing else, and those beside experts sharded as experts are. */
static void muon_states_of_adapters(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"model\": \"mixtral-8x7b\", \"hardware\": \"h100-sxm\", \"gpus\": 16, \"training\": {\"seq_length\": 4096, "
      "\"global_batch_size\": 16, \"optimizer\": \"muon\", \"lora\": {\"rank\": 16}}, \"layout\": {\"tp\": 4, "
      "\"ep\": 8}}");
  double dense, expert;
  g_auto(MsLowered) l = ms_test_lower(s);
  MsStageParams p = ms_work_stage_params(l.work, 0);
  MsParamBytes b = ms_memory_param_bytes(l.work);
  ms_work_matrix_params(l.work, 0, &dense, &expert);
  assert_true(dense > 0 && expert > 0 && b.dense_shards != b.expert_shards);
  assert_close(dense, p.params_dense, 1e-12);
  assert_close(expert, p.params_expert, 1e-12);
}

static double most_kept(const Run *run, int stage) {
  g_autofree double *bytes = ms_memory_timeline(run->l.work, run->schedule, stage);
  double most = 0;
  for (int i = 0; i <= run->schedule->n[stage]; i++) most = MAX(most, bytes[i] - bytes[0]);
  return most;
}

static void check_kept(MsScenario *s, int n, const double *GiB) {
  g_auto(Run) run = run_of(s);
  for (int i = 0; i < n; i++) {
    double got = most_kept(&run, i) / GIB;
    if (fabs(got / GiB[i] - 1) > 0.001)
      fail_msg("%s stage %d keeps %.3f GiB, expected %.3f", s->model->name, i, got, GiB[i]);
  }
}

static void interleaved_peaks(void **state) { /* ranks with the head excepted: the table leaves its tensors out */
  (void)state;
  static const double mixtral_GiB[] = {32.293, 30.448, 28.603},
                      qwen3_GiB[] = {43.909, 47.783, 45.200, 42.617, 40.035, 37.452, 34.869};
  g_autoptr(MsScenario) a = mixtral();
  check_kept(a, G_N_ELEMENTS(mixtral_GiB), mixtral_GiB);
  g_autoptr(MsScenario) b = qwen3();
  check_kept(b, G_N_ELEMENTS(qwen3_GiB), qwen3_GiB);
}

/* The tables with EP overlap count a whole chunk more. Layers go in pairs, so that what lives is at most one layer more
 * than without overlap; the functional test with and without overlap (3.74 and 3.79 GiB) agrees. */
#define QWEN3_RM (MS_RM_MOE_ACT | MS_RM_LAYERNORM)
static void ep_overlap_peaks(void **state) {
  (void)state;
  static const double GiB[] = {38.270, 41.950, 39.742, 37.534, 35.326, 33.118, 30.910};
  g_autoptr(MsScenario) s = qwen3();
  s->options.ep_overlap = TRUE;
  s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = QWEN3_RM;
  g_auto(Run) run = run_of(s);
  for (int i = 0; i < (int)G_N_ELEMENTS(GiB); i++) {
    double layer = 376.81 / 1024, kept = most_kept(&run, i) / GIB,
           chunk = (i == 0 ? 2 : 3) * layer; /* the first chunk has one layer less */
    assert_close(kept, GiB[i] - chunk, 0.001);
    const MsStageMemory *m = &run.memory->stage[i];
    double moving = (m->activations_B + m->transient_B) / GIB;
    assert_true(moving >= kept &&
                moving <= kept + 2 * layer + 4 * 0.125 +
                              (i == 0 ? 1 : 0)); /* a layer, its transients, the embedding's gradient */
  }
}

/* --- live microbatches (docs/theory/memory.md 6) --- */
static double units(MsScheduleKind kind, int pp, int vpp, int stage) {
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", pp);
  s->model->num_layers = 4 * pp * vpp;
  finish(s, NULL);
  s->layout.pp = pp, s->layout.vpp = vpp, s->layout.schedule = kind;
  s->training.global_batch_size = 4 * pp;
  g_auto(Run) run = run_of(s);
  return most_kept(&run, stage) / (4 * run.l.work->pieces[run.l.work->piece_of_layer[0]].kept_B);
}

static void live_microbatches(void **state) {
  (void)state;
  for (int p = 4; p <= 8; p += 4) {
    for (int i = 1; i < p - 1; i++) { /* middle stages: no loss */
      assert_close(units(MS_SCHED_1F1B, p, 1, i), p - i, 1e-9);
      assert_close(units(MS_SCHED_1F1B, p, 3, i), 2 * (p - i - 1) + 2 * p + 1, 1e-9);
      assert_close(units(MS_SCHED_ZB_H1, p, 1, i), p, 1e-9);
      assert_close(units(MS_SCHED_EAGER_1F1B, p, 1, i), 2 * (p - i) - 1, 1e-9);
      assert_close(units(MS_SCHED_ZB_H2, p, 1, i), 2 * p - 1, 1e-9);
    }
    assert_close(units(MS_SCHED_GPIPE, p, 1, 1), 4 * p, 1e-9);
  }
  assert_close(units(MS_SCHED_V_HALF, 4, 2, 1), 6, 1e-9);
  assert_close(units(MS_SCHED_V_MIN, 4, 2, 1), 4, 1e-9);
  assert_true(units(MS_SCHED_ZB_V, 4, 2, 1) <= 8 + 1e-9);
}

/* From some microbatches on more of them need no more: periods of the schedule that are left out hide no peak. */
static void more_microbatches_need_no_more(void **state) {
  (void)state;
  static const MsScheduleKind kind[] = {MS_SCHED_1F1B, MS_SCHED_1F1B, MS_SCHED_ZB_H1, MS_SCHED_EAGER_1F1B};
  static const int vpp[] = {1, 3, 1, 1};
  for (guint i = 0; i < G_N_ELEMENTS(kind); i++)
    for (int deferred = 0; deferred < 2; deferred++) {
      g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 4);
      s->model->num_layers = 48;
      finish(s, NULL);
      s->layout.pp = 4, s->layout.vpp = vpp[i], s->layout.schedule = kind[i];
      s->options.defer_embedding_wgrad_compute = deferred, s->options.wgrad_deferral_limit = 22;
      s->training.global_batch_size = 28;
      g_auto(Run) few = run_of(s);
      s->training.global_batch_size = 400;
      g_auto(Run) many = run_of(s);
      for (int stage = 0; stage < 4; stage++) {
        const MsStageMemory *a = &few.memory->stage[stage], *b = &many.memory->stage[stage];
        g_autofree double *bytes = ms_memory_timeline(many.l.work, many.schedule, stage);
        assert_close(a->peak_B, b->peak_B, 1e-9);
        assert_string_equal(a->peak_where, b->peak_where);
        if (b->peak_slot < many.schedule->n[stage])
          assert_true(bytes[b->peak_slot] - bytes[0] <= b->activations_B + b->transient_B);
      }
    }
}

/* --- properties --- */
static void parts_add_up(void **state) {
  (void)state;
  static MsScenario *(*const make[])(void) = {mixtral, qwen3, deepseek};
  for (guint i = 0; i < G_N_ELEMENTS(make); i++) {
    g_autoptr(MsScenario) s = make[i]();
    g_auto(Run) run = run_of(s);
    for (int stage = 0; stage < run.memory->stages; stage++) {
      const MsStageMemory *m = &run.memory->stage[stage];
      assert_close(m->parameters_B + m->gradients_B + m->optimizer_B + m->buffers_B, m->between_steps_B, 1e-12);
      assert_close(m->between_steps_B + m->activations_B + m->transient_B, m->peak_B, 1e-12);
      assert_close(m->peak_B + m->reserved_B, m->device_B, 1e-12);
      assert_true(m->transient_B >= 0 && m->activations_B >= 0);
      assert_true(m->peak_B <= run.memory->stage[run.memory->peak_stage].peak_B);
      assert_true(most_kept(&run, stage) <= (m->activations_B + m->transient_B) * (1 + 1e-12));
      g_autofree double *bytes = ms_memory_timeline(run.l.work, run.schedule, stage);
      assert_close(bytes[run.schedule->n[stage]], bytes[0], 1e-9); /* all is given back */
    }
  }
}

static void dropout_keeps_masks(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("gpt-22b", 0, "a100-sxm-80g",
                                        8); /* arXiv 2205.05198, equations 2 and 4: s b h (34/t) + 5 a s^2 b / t */
  s->layout.tp = 8;
  s->training.seq_length = 2048, s->training.micro_batch_size = 4, s->training.global_batch_size = 4;
  s->options.attention_backend = MS_ATTN_UNFUSED;
  double tokens = 4.0 * 2048, scores = 64.0 * 2048 * 2048 * 4;
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_close(l.work->pieces[0].kept_B, (34 * tokens * 6144 + 5 * scores) / 8, 1e-9);
  s->options.sequence_parallel = FALSE;
  g_auto(MsLowered) without = ms_test_lower(s);
  assert_close(without.work->pieces[0].kept_B, tokens * 6144 * (10 + 24.0 / 8) + 5 * scores / 8, 1e-9);
  s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = MS_RM_CORE_ATTN;
  g_auto(MsLowered) selective = ms_test_lower(s);
  assert_close(selective.work->pieces[0].kept_B, tokens * 6144 * (10 + 24.0 / 8), 1e-9);
}

/* --- published memories --- */
static int by_value(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void published_memories(void **state) {
  (void)state;
  g_autoptr(GPtrArray) files = ms_test_files("scenarios/published");
  g_autoptr(GArray) errors = g_array_new(FALSE, FALSE, sizeof(double));
  guint every = (guint)ms_by_tier(5, 1);
  for (guint i = 0; i < files->len; i += every) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsScenario) s = ms_scenario_load(files->pdata[i], &error);
    if (!s) fail_msg("%s", error->message);
    if (isnan(s->measured.peak_memory_GiB)) continue;
    g_auto(Run) run = run_of(s);
    const char *rank = s->measured.memory_rank;
    int stage = !g_strcmp0(rank, "last") ? run.memory->stages - 1 : !g_strcmp0(rank, "0") ? 0 : run.memory->peak_stage;
    double e = fabs(run.memory->stage[stage].peak_B / GIB / s->measured.peak_memory_GiB - 1);
    g_array_append_val(errors, e);
  }
  assert_true(errors->len > 100 / every);
  qsort(errors->data, errors->len, sizeof(double), by_value);
  double median = g_array_index(errors, double, errors->len / 2);
  if (median > 0.02) fail_msg("median error of %u published memories is %.2f %%", errors->len, 100 * median);
}

int main(void) {
  g_setenv("MOESIM_DATA", MS_SOURCE_DIR, TRUE);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hand_checked_cases),
      cmocka_unit_test(layers_keep),
      cmocka_unit_test(dispatch_beside_what_lives_again),
      cmocka_unit_test(checkpointed_groups),
      cmocka_unit_test(buffers_of_dispatch),
      cmocka_unit_test(bf16_layers_have_no_copies),
      cmocka_unit_test(shared_gate_keeps_the_output),
      cmocka_unit_test(mtp_blocks_in_bf16),
      cmocka_unit_test(recomputed_core_keeps_its_ends),
      cmocka_unit_test(inputs_beside_fp8),
      cmocka_unit_test(copies_to_the_host),
      cmocka_unit_test(norms_of_their_own_leave),
      cmocka_unit_test(rotated_output_leaves),
      cmocka_unit_test(recomputed_latents),
      cmocka_unit_test(delta_nets_keep),
      cmocka_unit_test(mamba_keeps_three_outputs),
      cmocka_unit_test(deterministic_sums_save_rows),
      cmocka_unit_test(deterministic_workspaces),
      cmocka_unit_test(static_bytes),
      cmocka_unit_test(hybridep_buffers),
      cmocka_unit_test(buffers_of_options),
      cmocka_unit_test(fsdp_in_flight),
      cmocka_unit_test(shards_of_instances),
      cmocka_unit_test(muon_states),
      cmocka_unit_test(muon_states_of_adapters),
      cmocka_unit_test(cached_copies),
      cmocka_unit_test(reused_masters),
      cmocka_unit_test(masters_beside_fp8),
      cmocka_unit_test(low_precision_weights),
      cmocka_unit_test(interleaved_peaks),
      cmocka_unit_test(ep_overlap_peaks),
      cmocka_unit_test(live_microbatches),
      cmocka_unit_test(more_microbatches_need_no_more),
      cmocka_unit_test(parts_add_up),
      cmocka_unit_test(dropout_keeps_masks),
      cmocka_unit_test(published_memories),
      cmocka_unit_test(fp8_store_keeps_one_byte),
      cmocka_unit_test(deepseek_fits_h800),
      cmocka_unit_test(stack_keeps_the_scores),
      cmocka_unit_test(masters_beside_fp16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
