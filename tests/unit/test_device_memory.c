/* tests/unit/test_device_memory.c - what stands on the device beside parameters and activations: deferred gradients of
 * the head, CUDA graphs, tied tables, what is on its way to the host, delayed weight gradients. */
#include "lib/close.h"

#include "lib/world.h"
#include "sim/simulate.h"

/* --- defer_embedding_wgrad_compute --- */

enum { MICROBATCHES = 16, STAGES = 4 };

static MsScenario *pipeline(gboolean defer, int limit) {
  MsScenario *s = ms_test_run("llama3-8b", 0, "h100-sxm", 2 * STAGES);
  s->layout.tp = 2, s->layout.pp = STAGES;
  s->training.global_batch_size = MICROBATCHES;
  s->options.defer_embedding_wgrad_compute = defer, s->options.wgrad_deferral_limit = limit;
  return s;
}

/* Bytes that wait on the last stage: BF16 gradient of the logits and input of the head, for every microbatch up to the
 * limit. */
static void deferred_gradients_wait(void **state) {
  (void)state;
  double before_B = 0;
  for (int limit = 0; limit <= 20; limit++) {
    g_autoptr(MsScenario) s = pipeline(limit > 0, limit);
    g_auto(MsLowered) l = ms_test_lower(s);
    g_autoptr(MsSchedule) schedule =
        ms_schedule_new(MS_SCHED_1F1B, STAGES, MICROBATCHES, 1, STAGES, FALSE, (char[64]){0}, 64);
    g_autofree double *live = ms_memory_timeline(l.work, schedule, STAGES - 1);
    double end_B = live[schedule->n[STAGES - 1]] - live[0], each_B = 2.0 * 8192 * 128256 / 2 + 2.0 * 8192 * 4096 / 2;
    assert_close(end_B, MIN(limit, MICROBATCHES) * (each_B * s->training.seq_length / 8192), 1e-9);
    assert_true(end_B >= before_B);
    before_B = end_B;
  }
}

/* Work is moved, not lost: all compute of the step stays, the last stage gets it behind its last slot, where the flush
 * of the pipeline hides it. */
static void deferred_gradients_hide_in_the_flush(void **state) {
  (void)state;
  g_autoptr(MsScenario) off = pipeline(FALSE, 0);
  g_autoptr(MsResult) plain = ms_test_simulate(off, MS_FIDELITY_FULL);
  double last_s = plain->step_time_s;
  for (int limit = 1; limit <= 2; limit++) {
    g_autoptr(MsScenario) on = pipeline(TRUE, limit);
    g_autoptr(MsResult) full = ms_test_simulate(on, MS_FIDELITY_FULL), fast = ms_test_simulate(on, MS_FIDELITY_FAST),
                        bound = ms_test_simulate(on, MS_FIDELITY_BOUND);
    assert_close(full->time.compute_s, plain->time.compute_s, 1e-4); /* what shares SMs with it differs */
    assert_close(fast->time.compute_s, plain->time.compute_s, 1e-3);
    assert_close(fast->step_time_s, full->step_time_s, 0.02);
    assert_true(bound->step_time_s <= full->step_time_s);
    assert_true(full->step_time_s < last_s); /* the last stage is the slowest here: its head */
    last_s = full->step_time_s;
    for (int i = 0; i < STAGES - 1; i++) assert_true(full->memory->stage[i].peak_B == plain->memory->stage[i].peak_B);
  }
  g_autoptr(MsScenario) alone = ms_test_run("llama3-8b", 0, "h100-sxm", 8); /* without a pipeline nothing is deferred */
  g_autoptr(MsResult) one = ms_test_simulate(alone, MS_FIDELITY_FULL);
  alone->options.defer_embedding_wgrad_compute = TRUE;
  g_autoptr(MsResult) same = ms_test_simulate(alone, MS_FIDELITY_FULL);
  assert_true(one->step_time_s == same->step_time_s && one->memory->stage[0].peak_B == same->memory->stage[0].peak_B);
}

/* --- CUDA graphs --- */

static double kept_of(const MsPiece *piece, const char *name) {
  for (int i = 0; i < piece->n_kept; i++)
    if (!g_strcmp0(piece->kept[i].name, name)) return piece->kept[i].bytes_B;
  return 0;
}

typedef struct {
  double normed, tokens, shared, output, graph, kept;
} GraphBytes; /* of the MoE layers */

static GraphBytes graph_bytes(const char *model, MsDispatcher dispatcher, guint32 scope, guint32 recompute,
                              gboolean shared_overlap) {
  g_autoptr(MsScenario) s = ms_test_run(model, 0, "gb200-nvl72", 64);
  s->layout.ep = 64;
  s->options.dispatcher = dispatcher, s->options.cuda_graph_scope = scope,
  s->options.moe_shared_expert_overlap = shared_overlap;
  if (recompute) s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = recompute;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *piece = &l.work->pieces[l.work->piece_of_layer[s->model->num_layers - 1]];
  return (GraphBytes){kept_of(piece, "normed mlp input"),
                      kept_of(piece, "graph output, tokens"),
                      kept_of(piece, "graph output, shared"),
                      kept_of(piece, "graph output"),
                      piece->graph_B,
                      piece->kept_B};
}

/* CudaGraphManager hands what a whole layer makes to the graph of the next (Megatron-LM core_r0.12.0
 * core/transformer/cuda_graphs.py): no output beside its input, no mask, no copies; graphs of modules stay as they are.
 */
static void layers_hand_over(void **state) {
  (void)state;
  const double x = 2.0 * 4096 * 4096, mask = 4096.0 * 4096;
  const guint32 scopes[] = {MS_CG_LAYER, MS_CG_ATTN};
  for (guint i = 0; i < G_N_ELEMENTS(scopes); i++) {
    double kept[2], copied[2];
    for (int impl = 0; impl < 2; impl++) {
      g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "gb200-nvl72", 8);
      s->training.seq_length = 4096, s->training.micro_batch_size = 1;
      s->options.cuda_graph_scope = scopes[i], s->options.cuda_graph_impl = (MsGraphImpl)impl;
      g_auto(MsLowered) l = ms_test_lower(s);
      const MsPiece *piece = &l.work->pieces[l.work->piece_of_layer[0]];
      kept[impl] = piece->kept_B, copied[impl] = 0;
      for (int k = 0; k < piece->forward.n; k++)
        if (strcmp(piece->forward.op[k].name, "into graph") == 0) copied[impl] += piece->forward.op[k].write_B;
      for (int k = 0; k < piece->backward.n; k++)
        if (strcmp(piece->backward.op[k].name, "gradients into graph") == 0)
          copied[impl] += piece->backward.op[k].write_B;
    }
    gboolean whole = scopes[i] == MS_CG_LAYER;
    assert_close(kept[MS_GRAPH_TE] - kept[MS_GRAPH_LOCAL], whole ? x + mask : 0, 1e-12);
    assert_close(copied[MS_GRAPH_TE], 2 * x, 1e-12);
    assert_close(copied[MS_GRAPH_LOCAL], whole ? 0 : 2 * x, 1e-12);
  }
}

/* Outputs of a graph stay until its backward; whether the norm can be recomputed is Megatron's own rule
 * (core/transformer/transformer_layer.py). */
static void graphs_hold_their_outputs(void **state) {
  (void)state;
  const guint32 attn = MS_CG_ATTN, router = MS_CG_ATTN | MS_CG_MOE_ROUTER, all = router | MS_CG_MOE_PREPROCESS,
                norm = MS_RM_LAYERNORM;
  const double x = 2.0 * 4096 * 7168, mask = 4096.0 * 4096; /* an input of every graph with attention */
  GraphBytes none = graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, 0, 0, FALSE),
             whole = graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, MS_CG_FULL_ITERATION, 0, FALSE);
  assert_true(none.graph == 0 && whole.graph == 0 && whole.kept == none.kept && none.normed == x);
  GraphBytes a = graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, attn, 0, FALSE),
             r = graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, router, 0, FALSE);
  assert_true(a.kept == none.kept + mask && a.graph > 0); /* what attention hands on is kept anyway */
  assert_true(r.kept == none.kept + mask + x && r.shared == x && r.graph > a.graph);
  GraphBytes flex = graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, all, 0, FALSE),
             a2a = graph_bytes("deepseek-v3", MS_DISPATCH_ALLTOALL, all, 0, FALSE);
  assert_true(flex.tokens == 0 && a2a.tokens == 8 * (x + 4 * 4096));
  GraphBytes beside = graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, all, 0, TRUE);
  assert_true(beside.shared == 0);
  assert_true(graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, 0, norm, FALSE).normed == 0);
  assert_true(graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, attn, norm, FALSE).normed == 0);
  assert_true(graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, all, norm, FALSE).normed == x);
  assert_true(graph_bytes("deepseek-v3", MS_DISPATCH_ALLTOALL, router, norm, FALSE).normed == x);
  assert_true(graph_bytes("deepseek-v3", MS_DISPATCH_ALLTOALL, all, norm, FALSE).normed == 0);
  assert_true(graph_bytes("deepseek-v3", MS_DISPATCH_ALLTOALL, all, norm, TRUE).normed == x);
  GraphBytes layer = graph_bytes("deepseek-v3", MS_DISPATCH_HYBRIDEP, MS_CG_LAYER, 0, FALSE);
  assert_true(layer.output == x && layer.shared == 0 && layer.kept == none.kept + mask + x);
}

static double peak_with(guint32 scope, gboolean ep_overlap) {
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 0, "gb200-nvl72", 256);
  s->layout.pp = 4, s->layout.vpp = 4, s->layout.ep = 64, s->layout.pipeline_layout = g_strdup("Et*4|(tttt|)*14tL");
  s->training.global_batch_size = 64 * 16;
  s->options.dispatcher = MS_DISPATCH_HYBRIDEP, s->options.cuda_graph_scope = scope, s->options.ep_overlap = ep_overlap;
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
  return r->memory->stage[2].activations_B;
}

/* The static input of a graph is a copy: the pipeline holds what a chunk received (once a chunk of 4 layers), with EP
 * overlap the schedule node what every layer was given. 15 chunks of 4 layers live on the third of 4 stages; with
 * overlap a 16th grows while one of them goes (docs/theory/schedules.md 3, 4). */
static void graphs_copy_their_inputs(void **state) {
  (void)state;
  const double x = 2.0 * 4096 * 7168, mask = 4096.0 * 4096;
  assert_close(peak_with(MS_CG_ATTN, FALSE) - peak_with(0, FALSE), 15 * (x + 4 * mask), 1e-9);
  assert_close(peak_with(MS_CG_ATTN, TRUE) - peak_with(0, TRUE), 15 * 4 * (x + mask), 1e-9);
}

/* About 7 GB for DeepSeek-V3 on GB200 (arXiv 2603.07685): PP 8, VPP 4, EP 64, BF16 of its table. */
static void graphs_of_deepseek_v3(void **state) {
  (void)state;
  double peak_B[2];
  for (int on = 0; on < 2; on++) {
    g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 1, "gb200-nvl72", 256);
    s->layout.pp = 8, s->layout.vpp = 4, s->layout.ep = 32;
    s->layout.pipeline_layout = g_strdup("Et|(tt|)*30mL");
    s->training.global_batch_size = 32 * 64;
    s->options.dispatcher = MS_DISPATCH_HYBRIDEP;
    if (on) s->options.cuda_graph_scope = MS_CG_ATTN | MS_CG_MOE_ROUTER | MS_CG_MOE_PREPROCESS;
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
    peak_B[on] = r->memory->stage[r->memory->peak_stage].peak_B;
  }
  if (fabs((peak_B[1] - peak_B[0]) / 7e9 - 1) > 1.0 / 3)
    fail_msg("graphs take %.2f GB, published about 7", (peak_B[1] - peak_B[0]) / 1e9);
}

/* --- tied embeddings: one table where both ends of the model meet --- */

static double parameters_of(MsScheduleKind kind, int vpp, gboolean tied, int mtp, const char *layout) {
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", mtp, "h100-sxm", 8);
  s->layout.pp = 4, s->layout.vpp = vpp, s->layout.schedule = kind;
  s->layout.pipeline_layout = g_strdup(layout);
  s->training.global_batch_size = 32;
  s->model->tie_embeddings = tied;
  g_auto(MsLowered) l = ms_test_lower(s);
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    MsStageParams p = ms_work_stage_params(l.work, i);
    sum += p.params_dense + p.embedding_copy;
  }
  return sum;
}

static void a_tied_table_is_there_once(void **state) {
  (void)state;
  const double table = 128256.0 * 4096;
  double apart = parameters_of(MS_SCHED_1F1B, 1, FALSE, 0, NULL);
  assert_true(parameters_of(MS_SCHED_1F1B, 1, TRUE, 0, NULL) == apart); /* the last stage has a copy */
  for (int kind = MS_SCHED_ZB_V; kind <= MS_SCHED_V_MIN; kind++) {
    assert_true(parameters_of(kind, 2, FALSE, 0, NULL) == apart);
    assert_true(parameters_of(kind, 2, TRUE, 0, NULL) == apart - table);
  }
  /* an MTP block reads the table of a head beside it that is tied */
  double block = parameters_of(MS_SCHED_1F1B, 1, FALSE, 1, "Et*8|t*8|t*8|t*8mL");
  assert_true(parameters_of(MS_SCHED_1F1B, 1, TRUE, 1, "Et*8|t*8|t*8|t*8mL") == block - table);
}

/* --- the link to the host, and what is on it --- */

static MsScenario *offloading(int gpus_per_link) {
  MsScenario *s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 8);
  s->layout.ep = 8;
  s->options.offload_modules = MS_OM_EXPERT_FC1 | MS_OM_MOE_ACT;
  s->hardware->host_link_gpus = gpus_per_link;
  return s;
}

static void ranks_share_the_link_to_the_host(void **state) {
  (void)state;
  g_autoptr(MsScenario) one = offloading(1), two = offloading(2);
  g_autoptr(MsResult) alone = ms_test_simulate(one, MS_FIDELITY_FULL), shared = ms_test_simulate(two, MS_FIDELITY_FULL);
  assert_close(shared->time.comm_total_s[MS_COMM_OFFLOAD], 2 * alone->time.comm_total_s[MS_COMM_OFFLOAD],
               0.01); /* but the latency of a copy */
  assert_true(shared->step_time_s >= alone->step_time_s);
  assert_true(shared->memory->stage[0].peak_B == alone->memory->stage[0].peak_B);
}

/* Two layers' tensors at the peak: those of the layer at work, and those that still leave (or are fetched ahead). */
static void tensors_on_their_way_are_here(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = offloading(1);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *layer = &l.work->pieces[l.work->piece_of_layer[0]];
  g_autoptr(MsSchedule) schedule = ms_schedule_new(MS_SCHED_1F1B, 1, 1, 1, 1, FALSE, (char[64]){0}, 64);
  g_autoptr(MsMemory) memory = ms_memory_new(l.work, schedule);
  double peak_B = memory->stage[0].activations_B + memory->stage[0].transient_B;
  const MsPiece *head = &l.work->pieces[l.work->piece_head];
  double kept_B = s->model->num_layers * layer->kept_B + l.work->pieces[l.work->piece_embedding].kept_B;
  double in_layer = kept_B + layer->offload_B + MAX(layer->forward_transient_B, layer->backward_transient_B),
         in_head =
             kept_B + head->kept_B + layer->offload_B + MAX(head->forward_transient_B, head->backward_transient_B);
  assert_close(peak_B, MAX(in_layer, in_head), 1e-9);
}

/* delay_wgrad: gradients of the outputs of a layer's linears wait with its weight gradients; nothing else moves. */
static void delayed_weight_gradients_hold_gradients(void **state) {
  (void)state;
  double peak_B[2], static_B[2];
  for (int on = 0; on < 2; on++) {
    g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 8);
    s->layout.ep = 8, s->training.global_batch_size = 64;
    s->options.ep_overlap = TRUE, s->options.delay_wgrad = on;
    s->model->num_layers = 8;
    s->model->vocab_size = 1024; /* the peak is in the layers */
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
    peak_B[on] = r->memory->stage[0].peak_B, static_B[on] = r->memory->stage[0].between_steps_B;
  }
  double rows = 4096 * 2, tokens = 4096; /* BF16: expert fc1 and fc2, attention's two, router */
  assert_close(peak_B[1] - peak_B[0], 2 * (rows * (2 * 14336 + 4096) + tokens * (6144 + 4096) + tokens * 8), 1e-9);
  assert_true(static_B[0] == static_B[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(deferred_gradients_wait),
                                     cmocka_unit_test(deferred_gradients_hide_in_the_flush),
                                     cmocka_unit_test(layers_hand_over),
                                     cmocka_unit_test(graphs_hold_their_outputs),
                                     cmocka_unit_test(graphs_copy_their_inputs),
                                     cmocka_unit_test(graphs_of_deepseek_v3),
                                     cmocka_unit_test(a_tied_table_is_there_once),
                                     cmocka_unit_test(ranks_share_the_link_to_the_host),
                                     cmocka_unit_test(tensors_on_their_way_are_here),
                                     cmocka_unit_test(delayed_weight_gradients_hold_gradients)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
