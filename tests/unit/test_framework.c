/* Frameworks: what a file of one leaves out, bytes of its states by hand, what it has not. */
#include "lib/close.h"

#include "describe/framework.h"
#include "launch/launch.h"
#include "layout/layout.h"
#include "lib/world.h"
#include "memory/memory.h"
#include "step/fetch.h"

#include <math.h>
#include <string.h>

/* `head`: a framework or a software stack. */
static MsScenario *run_with(const char *head, int micro_batch_size, const char *options) {
  g_autofree char *text = g_strdup_printf(
      "{%s, \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": {\"seq_length\": 8192, "
      "\"micro_batch_size\": %d, \"global_batch_size\": %d}, \"options\": {%s}}",
      head, micro_batch_size, 8 * micro_batch_size, options);
  return ms_test_scenario_of(text);
}

static MsScenario *run_of(const char *framework, const char *options) {
  g_autofree char *head = g_strdup_printf("\"framework\": \"%s\"", framework);
  return run_with(head, 2, options);
}

/* Options that a row says stand where the file says nothing, and give way to what it says. */
static void rows_say_what_is_left_out(void **state) {
  (void)state;
  for (int i = 0; i < MS_N_FRAMEWORKS; i++) {
    g_autoptr(MsScenario) s = run_of(ms_frameworks[i].word, "");
    MsRefusal refusal;
    assert_int_equal(s->framework, i);
    if (!ms_layout_check(s, &refusal)) fail_msg("%s refuses its own defaults: %s", ms_frameworks[i].word, refusal.why);
    assert_false(ms_frameworks[i].defaults && s->options.moe_router_fusion && s->options.cross_entropy_fusion);
  }
  g_autoptr(MsScenario) s = run_of("torchtitan", "\"fsdp\": \"optim-grads\", \"attention_backend\": \"flash\"");
  assert_int_equal(s->options.fsdp, MS_FSDP_OPTIM_GRADS);
  assert_int_equal(s->options.attention_backend, MS_ATTN_FLASH);
  assert_int_equal(s->options.transformer_impl, MS_IMPL_LOCAL);
}

/* Every word of a row is a key of scenario.options. */
static void rows_name_options(void **state) {
  (void)state;
  for (int i = 0; i < MS_N_FRAMEWORKS; i++) {
    g_auto(GStrv) word = g_strsplit(ms_frameworks[i].options ? ms_frameworks[i].options : "", " ", -1);
    for (int k = 0; word[k]; k++)
      if (!ms_field_find(&ms_options_table, word[k])) fail_msg("%s names %s", ms_frameworks[i].word, word[k]);
  }
}

/* Of modules that it has not, a framework that can recompute several ways takes none in their place. */
static void lacked_modules_are_refused(void **state) {
  (void)state;
  MsRefusal refusal;
  g_autoptr(MsScenario) s =
      run_with("\"name\": \"x\"", 2, "\"recompute\": {\"granularity\": \"selective\", \"modules\": [\"operators\"]}");
  assert_int_equal(s->options.recompute.modules, MS_RM_OPERATORS);
  assert_false(ms_layout_check(s, &refusal));
  assert_string_equal(refusal.why, "megatron has no recompute of operators");
}

static MsStageMemory static_bytes(MsScenario *s, double *params) {
  g_auto(MsLowered) l = ms_test_lower(s);
  MsStageMemory m;
  ms_memory_static(l.work, 0, &m);
  *params = ms_work_stage_params(l.work, 0).params_dense;
  return m;
}

/* 16 bytes a parameter over all ranks, 18 where the FP32 master is beside the BF16 weight; what is not dropped after
 * the forward is a BF16 copy of everything. */
static void states_by_hand(void **state) {
  (void)state;
  static const struct {
    const char *framework, *options;
    double sharded_B, whole_B;
  } cases[] = {
      {"megatron", "\"fsdp\": \"optim-grads-params\"", 18, 0},
      {"torchtitan", "", 16, 0},
      {"torchtitan", "\"fsdp\": \"optim-grads\"", 16, 2},
      {"fsdp1", "", 16, 0},
      {"automodel", "", 8, 0},
      {"deepspeed", "", 12, 6},
      {"deepspeed", "\"fsdp\": \"optim-grads-params\"", 18, 0},
      {"nanotron", "", 0, 18},
      {"nanotron", "\"distributed_optimizer\": true", 12, 6},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = run_of(cases[i].framework, cases[i].options);
    double params, got;
    MsStageMemory m = static_bytes(s, &params);
    got = m.parameters_B + m.gradients_B + m.optimizer_B;
    double want = params * (cases[i].sharded_B / 8 + cases[i].whole_B);
    if (fabs(got - want) > 1e-9 * want)
      fail_msg("%s {%s}: %g B a parameter, not %g", cases[i].framework, cases[i].options, got / params, want / params);
  }
}

/* nanotron's gradients pass DDP's BF16 buckets beside the FP32 ones, over data-parallel ranks whose optimizer is not
 * sharded; two gathered tensors stay; its loss stands beside the FP32 logits of its caller. */
static void nanotron_keeps_more(void **state) {
  (void)state;
  double params;
  g_autoptr(MsScenario) s = run_of("nanotron", "");
  double with = static_bytes(s, &params).buffers_B;
  s->options.distributed_optimizer = TRUE;
  double without = static_bytes(s, &params).buffers_B;
  assert_close(with - without, 2 * params, 1e-9);
  s->layout.tp = s->gpus, s->training.global_batch_size = s->training.micro_batch_size;
  s->options.sequence_parallel = TRUE;
  assert_close(static_bytes(s, &params).buffers_B - without, 2 * 2.0 * 2 * 8192 * 4096, 1e-9);
  s->layout.tp = 1, s->training.global_batch_size = 16;
  assert_close(ms_frameworks[MS_FRAMEWORK_MEGATRON].reducer_B, 0, 1e-12);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *head = &l.work->pieces[l.work->n_pieces - 1];
  assert_int_equal(head->kind, MS_PIECE_HEAD);
  assert_close(head->forward_transient_B, 4.0 * 2 * 8192 * 128256, 1e-2);
}

static MsMemory *memory_of(int tp, int layers, int microbatches, int stages, MsLowered *l, MsScenario **s) {
  g_autofree char *text =
      g_strdup_printf("{\"framework\": \"nanotron\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": %d}, "
                      "\"hardware\": \"h100-sxm\", \"gpus\": %d, \"layout\": {\"tp\": %d, \"pp\": %d}, \"training\": "
                      "{\"seq_length\": 8192, \"micro_batch_size\": 2, \"global_batch_size\": %d}}",
                      layers, tp * stages, tp, stages, 2 * microbatches);
  *s = ms_test_scenario_of(text);
  *l = ms_test_lower(*s);
  char why[256] = "";
  g_autoptr(MsSchedule) schedule =
      ms_schedule_new(MS_SCHED_1F1B, stages, microbatches, 1, stages, FALSE, why, sizeof why);
  return ms_memory_new(l->work, schedule);
}

/* Moving bytes of nanotron's first stage. */
static double moving_B(int layers, int microbatches, int tp, int stages, double *kept) {
  g_autoptr(MsScenario) s = NULL;
  g_auto(MsLowered) l = {0};
  g_autoptr(MsMemory) m = memory_of(tp, layers, microbatches, stages, &l, &s);
  *kept = l.work->pieces[l.work->piece_of_layer[0]].kept_B;
  return m->stage[0].peak_B - m->stage[0].between_steps_B;
}

/* torch's record_stream: two summed tensors of every layer's forward are held while the loss is made; behind another
 * microbatch those of its backward too, with the gathered gradient of the embedding, and those of its forward, with the
 * embedding's. No more than the launch queue holds. In a pipeline only what follows the warm-up adds to a forward. */
static void nanotron_holds_messages(void **state) {
  (void)state;
  double kept, full = 2.0 * 2 * 8192 * 4096;
  double one = moving_B(1, 1, 8, 1, &kept), two = moving_B(2, 1, 8, 1, &kept);
  assert_close(two - one, kept + 2 * full, 1e-9);
  assert_close(moving_B(2, 2, 8, 1, &kept) - two, (5 + 1) * full, 1e-9);
  assert_close(moving_B(2, 3, 8, 1, &kept) - two, 2 * (5 + 1) * full + 5 * full, 1e-9);
  assert_close(moving_B(200, 2, 8, 1, &kept) - moving_B(100, 2, 8, 1, &kept), 100 * kept, 1e-9);
  double behind = moving_B(4, 3, 8, 2, &kept);
  assert_close(behind - moving_B(4, 2, 8, 2, &kept), (4 + 1) * full, 1e-9);
  assert_close(moving_B(4, 9, 8, 2, &kept), behind, 1e-9); /* the host waits for what it sends */
  double few = moving_B(4, 9, 16, 2, &kept);
  assert_close(moving_B(8, 9, 16, 2, &kept) - few, 2 * 2 * kept, 1e-9); /* over nodes the last layer's alone */
}

/* A sharded optimizer's weights are gathered through a tensor of all of them, which no freed block can hold. */
static void nanotron_gathers_through_one_tensor(void **state) {
  (void)state;
  for (int sharded = 0; sharded < 2; sharded++) {
    g_autoptr(MsScenario) s = run_of("nanotron", sharded ? "\"distributed_optimizer\": true" : "");
    s->model->num_layers = 2;
    g_auto(MsLowered) l = ms_test_lower(s);
    char why[256] = "";
    g_autoptr(MsSchedule) schedule = ms_schedule_new(MS_SCHED_1F1B, 1, 1, 1, 1, FALSE, why, sizeof why);
    g_autoptr(MsMemory) m = ms_memory_new(l.work, schedule);
    double weights = ms_work_stage_params(l.work, 0).params_dense, peak = m->stage[0].peak_B;
    assert_close(m->stage[0].reserved_B, s->hardware->context_B + 0.055 * peak + (sharded ? 2 * weights : 0), 1e-9);
  }
}

static double kept_B(const char *framework, const char *options) {
  g_autoptr(MsScenario) s = run_of(framework, options);
  g_auto(MsLowered) l = ms_test_lower(s);
  return l.work->pieces[l.work->piece_of_layer[0]].kept_B;
}

/* Of two sequences flash attention has a second copy of its output only where the rest is sequence first; SwiGLU of two
 * operators keeps what SiLU gives. */
static void layers_keep(void **state) {
  (void)state;
  double T = 2 * 8192, h = 4096, f = 14336;
  double megatron = kept_B("megatron", "\"transformer_impl\": \"local\", \"attention_backend\": \"fa2\"");
  assert_close(megatron - kept_B("torchtitan", ""), 2 * T * h, 1e-12);
  assert_close(kept_B("nanotron", "") - kept_B("torchtitan", ""), 2 * T * f, 1e-12);
}

/* Kept by operators: the layer's input, the first, third, fifth and seventh product, attention with its log-sum; made
 * again: the second, fourth and sixth. */
static void every_other_product(void **state) {
  (void)state;
  double T = 2 * 8192, h = 4096, f = 14336, kv = 1024;
  const char *chosen = "\"recompute\": {\"granularity\": \"selective\", \"modules\": [\"operators\"]}";
  assert_close(kept_B("torchtitan", chosen), 2 * T * (4 * h + kv + f) + 4 * T * 32, 1e-12);
  g_autoptr(MsScenario) s = run_of("torchtitan", chosen);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsOpList *list = &l.work->pieces[l.work->piece_of_layer[0]].backward;
  double again = 0;
  for (int i = 0; i < list->n; i++)
    if (list->op[i].pass == MS_PASS_RECOMPUTE && list->op[i].kind == MS_OP_GEMM) again += list->op[i].flop;
  assert_close(again, 2 * T * h * (kv + h + f), 1e-12);
}

typedef struct {
  int products, parts, scatters; /* GEMMs, those in parts, scatters over tensor-parallel ranks */
  double outputs, sum_B, scattered_B;
} Products;

static Products products_in(const MsOpList *list, MsPass pass) {
  Products p = {0};
  for (int i = 0; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    if (op->pass != pass) continue;
    if (op->kind == MS_OP_GEMM) p.products++, p.outputs += op->n, p.parts += (op->flags & MS_OPF_PARTS) != 0;
    if (strcmp(op->name, "gradients of products") == 0) p.sum_B += op->read_B + op->write_B;
    if (op->kind == MS_OP_REDUCE_SCATTER) p.scatters++, p.scattered_B += op->message_B;
  }
  return p;
}

/* Meta's layers multiply q, k, v, gate and up one by one; the input gradients of three and of two products are added by
 * what reads them, or, where tensor-parallel ranks add theirs, by a kernel (in BF16 all but the last), and nothing of
 * that sum is scattered early. */
static void products_one_by_one(void **state) {
  (void)state;
  const double h = 4096, kv = 1024, f = 14336, x_B = 2 * 2 * 8192 * h;
  g_autoptr(MsScenario) s = run_of("torchtitan", ""), fused = run_of("fsdp1", "");
  g_auto(MsLowered) l = ms_test_lower(s);
  g_auto(MsLowered) of_one = ms_test_lower(fused);
  const MsPiece *piece = &l.work->pieces[l.work->piece_of_layer[0]],
                *whole = &of_one.work->pieces[of_one.work->piece_of_layer[0]];
  Products forward = products_in(&piece->forward, MS_PASS_FORWARD), back = products_in(&piece->backward, MS_PASS_DGRAD);
  assert_int_equal(forward.products, 7);
  assert_close(forward.outputs, h + 2 * kv + h + 2 * f + h, 1e-12);
  assert_int_equal(back.products, 7);
  assert_close(back.sum_B, (2 + 1) * x_B, 1e-12);
  assert_int_equal(products_in(&piece->backward, MS_PASS_WGRAD).products, 7);
  assert_int_equal(products_in(&whole->forward, MS_PASS_FORWARD).products, 4);
  assert_close(products_in(&whole->backward, MS_PASS_DGRAD).sum_B, 0, 0);
  s->layout.tp = 8, s->options.sequence_parallel = s->options.tp_comm_overlap = TRUE;
  for (int low = 0; low < 2; low++) {
    s->training.precision = low ? MS_FP8_TENSORWISE : MS_BF16;
    g_auto(MsLowered) tp = ms_test_lower(s);
    const MsPiece *cut = &tp.work->pieces[tp.work->piece_of_layer[0]];
    back = products_in(&cut->backward, MS_PASS_DGRAD);
    assert_int_equal(products_in(&cut->forward, MS_PASS_FORWARD).parts, 7);
    assert_int_equal(back.parts, 2); /* of attention's output and of fc2, behind gathers */
    assert_int_equal(back.scatters, 2);
    assert_close(back.scattered_B, 2 * x_B, 1e-12);
    assert_close(back.sum_B, (low ? 4 + 3 : 4 + 1) * x_B, 1e-12);
  }
}

static const MsOp *row_named(const MsOpList *list, const char *name, MsPass pass) {
  for (int i = 0; i < list->n; i++)
    if (list->op[i].pass == pass && strcmp(list->op[i].name, name) == 0) return &list->op[i];
  fail_msg("no row %s", name);
  return NULL;
}

/* Not compiled, RMSNorm, SwiGLU and sums of gradients run operator by operator: bytes of each by hand, and what their
 * backward reads is kept, FP32 input, normed tensor and SiLU's output of each layer. LayerNorm is one kernel. */
static void eager_layers(void **state) {
  (void)state;
  const double T = 2 * 8192, h = 4096, f = 14336;
  g_autoptr(MsScenario) s = run_of("torchtitan", "\"torch_compile\": false"), compiled = run_of("torchtitan", "");
  g_auto(MsLowered) l = ms_test_lower(s);
  g_auto(MsLowered) fused = ms_test_lower(compiled);
  const MsPiece *piece = &l.work->pieces[l.work->piece_of_layer[0]],
                *whole = &fused.work->pieces[fused.work->piece_of_layer[0]];
  const MsOp *norm = row_named(&piece->forward, "mlp norm", MS_PASS_FORWARD),
             *back = row_named(&piece->backward, "mlp norm", MS_PASS_DGRAD),
             *act = row_named(&piece->forward, "activation", MS_PASS_FORWARD);
  assert_close(norm->read_B + norm->write_B, 36 * T * h, 1e-12);
  assert_close(back->read_B + back->write_B, 92 * T * h, 1e-12);
  assert_close(act->read_B + act->write_B, (2 + 2 + 4 + 2) * T * f, 1e-12);
  act = row_named(&piece->backward, "activation", MS_PASS_DGRAD);
  assert_close(act->read_B + act->write_B, 3 * 6 * T * f, 1e-12);
  assert_close(products_in(&piece->backward, MS_PASS_DGRAD).sum_B, (2 + 1) * 3 * 2 * T * h, 1e-12);
  assert_close(piece->kept_B - whole->kept_B, 2 * 4 * T * h + 2 * T * f, 1e-12);
  s->model->normalization = MS_NORM_LAYER;
  g_auto(MsLowered) other = ms_test_lower(s);
  norm = row_named(&other.work->pieces[other.work->piece_of_layer[0]].forward, "mlp norm", MS_PASS_FORWARD);
  assert_close(norm->read_B + norm->write_B, 4 * T * h, 1e-12);
}

/* Whether the second product is computed again, and what is saved by it: nothing behind it is read by a backward.
 * PyTorch stops in front of a plain product from 2.1 on; TransformerEngine's function runs whole; compiled layers hold
 * no product that nobody reads. */
static void recomputation_ends(void **state) {
  (void)state;
  static const char full[] = "\"recompute\": {\"granularity\": \"full\"}";
  static const struct {
    const char *head, *options;
    gboolean again;
  } files[] = {{"\"framework\": \"megatron\"", "", TRUE},
               {"\"framework\": \"fsdp1\"", "", FALSE},
               {"\"software\": \"llm-foundry\"", "", FALSE},
               {"\"software\": \"llm-foundry-2023-05\"", "", TRUE},
               {"\"framework\": \"fsdp1\"", ", \"recompute_early_stop\": false", TRUE},
               {"\"framework\": \"automodel\"", "", TRUE},
               {"\"framework\": \"automodel\"", ", \"transformer_impl\": \"local\"", FALSE},
               {"\"framework\": \"torchtitan\"", "", FALSE},
               {"\"framework\": \"torchtitan\"", ", \"torch_compile\": false", TRUE},
               {"\"software\": \"torchtitan-2025-06\"", ", \"torch_compile\": false", FALSE},
               {"\"software\": \"torchtitan-2025-10\"", ", \"torch_compile\": false", TRUE}};
  for (gsize i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autofree char *options = g_strconcat(full, files[i].options, NULL);
    g_autoptr(MsScenario) s = run_with(files[i].head, 2, options);
    g_auto(MsLowered) lowered = ms_test_lower(s);
    const MsOpList *back = &lowered.work->pieces[lowered.work->piece_of_layer[0]].backward;
    gboolean again = FALSE, first = FALSE;
    for (int k = 0; k < back->n; k++) {
      if (back->op[k].pass != MS_PASS_RECOMPUTE) continue;
      again |= g_str_equal(back->op[k].name, "fc2"), first |= g_str_has_prefix(back->op[k].name, "fc1");
    }
    assert_true(first);
    if (again != files[i].again) fail_msg("%s %s: fc2 again %d", files[i].head, options, again);
  }
}

/* Written with every key, it is read as the same run. */
static void written_and_read(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_of("torchtitan", "\"cross_entropy_fusion\": false");
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(s, NULL, out);
  g_autofree char *text = ms_json_out_take(out);
  g_autoptr(MsScenario) again = ms_test_scenario_of(text);
  assert_int_equal(again->framework, s->framework);
  assert_true(again->options.fsdp == s->options.fsdp && !again->options.cross_entropy_fusion);
  assert_null(ms_framework_lacks(again->framework, &again->options));
}

/* Compiled with the model since April 2025, PyTorch's loss keeps the BF16 logits alone (docs/theory/memory.md 2). */
static void loss_is_compiled(void **state) {
  (void)state;
  static const struct {
    const char *head, *options;
    gboolean compiled;
  } files[] = {{"\"software\": \"torchtitan-2024-12\"", "", FALSE},
               {"\"software\": \"torchtitan-2025-06\"", "", TRUE},
               {"\"software\": \"torchtitan-2025-06\"", "\"cross_entropy_fusion\": false", FALSE},
               {"\"framework\": \"torchtitan\"", "", TRUE},
               {"\"framework\": \"torchtitan\"", "\"torch_compile\": false", FALSE},
               {"\"framework\": \"automodel\"", "", FALSE}};
  for (gsize i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autoptr(MsScenario) s = run_with(files[i].head, 2, files[i].options);
    assert_int_equal(s->options.cross_entropy_fusion, files[i].compiled);
    g_auto(MsLowered) lowered = ms_test_lower(s);
    const MsPiece *head = &lowered.work->pieces[lowered.work->n_pieces - 1];
    const MsOp *forward = row_named(&head->forward, "cross entropy", MS_PASS_FORWARD);
    const MsOp *back = row_named(&head->backward, "cross entropy", MS_PASS_DGRAD);
    double logits = 2. * 8192 * 128256;
    if (!files[i].compiled) {
      assert_true(forward->read_B > 4 * logits && back->transient_B > 2 * logits);
      continue;
    }
    assert_close(forward->read_B, 4 * logits, 1e-12);
    assert_close(forward->write_B + forward->transient_B, 0, 1e-12);
    assert_close(back->read_B + back->write_B, 4 * logits, 1e-12);
    assert_close(back->transient_B, 2 * logits, 1e-12);
  }
}

/* An operator of PyTorch's AdamW after another reads 12 numbers of each weight and writes 8, and clipping reads and
 * writes its gradient; in one kernel it is 4 and 3. Fused is TorchTitan's default since February 2025. */
static void optimizers_step_in_passes(void **state) {
  (void)state;
  static const struct {
    const char *head, *options;
    double read, written; /* FP32 numbers of a weight */
  } files[] = {{"\"software\": \"torchtitan-2024-12\"", "", 13, 9},
               {"\"software\": \"torchtitan-2024-12\"", "\"optimizer_impl\": \"fused\"", 5, 4},
               {"\"software\": \"torchtitan-2025-06\"", "", 5, 4},
               {"\"software\": \"torchtitan-2025-06\"", "\"optimizer_impl\": \"foreach\"", 13, 9},
               {"\"framework\": \"fsdp1\"", "", 13, 9},
               {"\"framework\": \"megatron\"", "\"fsdp\": \"optim-grads-params\"", 5, 3.5}};
  for (gsize i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autoptr(MsScenario) s = run_with(files[i].head, 1, files[i].options);
    g_auto(MsLowered) lowered = ms_test_lower(s);
    MsStepOps ops;
    ms_work_step_ops(lowered.work, 0, &ops);
    const MsOp *adam = row_named(&ops.after, "adam", MS_PASS_OPTIMIZER);
    double shard = adam->write_B / (4 * files[i].written);
    assert_close(adam->read_B, 4 * files[i].read * shard, 1e-12);
    assert_close(8 * shard, 8.03e9, 0.01);
    assert_close(adam->transient_B, files[i].read > 10 ? 4 * shard : 0, 1e-12);
    ms_step_ops_clear(&ops);
  }
}

static void lacks_by_name(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_of("torchtitan", "\"ep_overlap\": true");
  MsRefusal refusal;
  assert_false(ms_layout_check(s, &refusal));
  assert_string_equal(refusal.why, "torchtitan has no other options.ep_overlap than its own");
}

/* Megatron-FSDP's buffers are known to NCCL: inside a node a gather of parameters takes 4 SMs; PyTorch's are not, and
 * take as many as any collective of NCCL. */
static void gathers_take_SMs(void **state) {
  (void)state;
  for (int i = 0; i < MS_N_FRAMEWORKS; i++) {
    if (ms_frameworks[i].shards_most < MS_FSDP_OPTIM_GRADS_PARAMS) continue;
    g_autoptr(MsScenario) s = run_of(ms_frameworks[i].word, "\"fsdp\": \"optim-grads-params\"");
    g_auto(MsLowered) l = ms_test_lower(s);
    g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
    g_autoptr(MsProgram) program = ms_program_new(l.work, cost);
    const MsCosted *gather = &program->unit[0].gather;
    assert_true(gather->list->n > 0);
    assert_int_equal(gather->sms[0], i == MS_FRAMEWORK_MEGATRON ? 4 : s->hardware->nccl_sms);
  }
}

/* fully_shard by hand: whole parameters are copied out of what was gathered, gradients into what is reduced, in FP32;
 * experts of AutoModel twice, which are gathered once more where their layer is recomputed. */
static void shards_are_copied(void **state) {
  (void)state;
  static const char text[] =
      "{\"framework\": \"automodel\", \"model\": {\"base\": \"qwen3-30b-a3b\", \"vocab_size\": 1024}, "
      "\"hardware\": \"h100-sxm\", \"gpus\": 8, "
      "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 8}, \"layout\": {\"ep\": 4}, \"options\": "
      "{\"recompute\": {\"granularity\": \"full\", \"method\": \"uniform\", \"num_layers\": 1}, "
      "\"expert_grad_reduce_dtype\": \"bf16\"}}";
  g_autoptr(MsScenario) s = ms_test_scenario_of(text);
  g_auto(MsLowered) l = ms_test_lower(s);
  int index = l.work->piece_of_layer[0];
  const MsPiece *piece = &l.work->pieces[index];
  double dense = piece->params_dense, expert = piece->params_expert;
  MsUnitOps ops;
  ms_work_unit_ops(l.work, index, &ops);
  for (int back = 0; back < 2; back++) {
    assert_int_equal(ops.cast[back].n, 1);
    assert_close(ops.cast[back].op[0].read_B, 2 * dense + 4 * expert, 1e-12);
    assert_close(ops.cast[back].op[0].write_B, 2 * dense + 4 * expert, 1e-12);
  }
  assert_int_equal(ops.reduce.n, 3);
  assert_close(ops.reduce.op[0].read_B, 2 * dense + 4 * expert, 1e-12);
  assert_close(ops.reduce.op[0].write_B, 4 * dense + 4 * expert, 1e-12);
  assert_close(ops.reduce.op[1].message_B, 4 * dense, 1e-12);
  assert_close(ops.reduce.op[2].message_B, 2 * expert, 1e-12);
  assert_int_equal(ops.again.n, 1);
  assert_close(ops.again.op[0].message_B, 2 * expert, 1e-12);
  ms_unit_ops_clear(&ops);
  MsStageMemory narrow, wide; /* gradients of two units lie in what is reduced */
  ms_memory_static(l.work, 0, &narrow);
  s->options.expert_grad_reduce_dtype = MS_DT_FP32;
  g_auto(MsLowered) same = ms_test_lower(s);
  ms_memory_static(same.work, 0, &wide);
  assert_close(wide.buffers_B - narrow.buffers_B, 2 * 2 * expert, 1e-12);
  s->options.recompute.granularity = MS_RECOMPUTE_NONE;
  g_auto(MsLowered) kept = ms_test_lower(s);
  ms_work_unit_ops(kept.work, index, &ops);
  assert_int_equal(ops.again.n, 0);
  ms_unit_ops_clear(&ops);
}

/* The first FullyShardedDataParallel by hand: nothing is copied out of what was gathered; gradients are put into one
 * tensor, cast to FP32 where that is reduced, and divided, each a pass over the unit. On one GPU there is no unit. */
static void flat_parameters_are_joined(void **state) {
  (void)state;
  for (int wide = 0; wide < 2; wide++) {
    g_autoptr(MsScenario) s = run_of("fsdp1", wide ? "\"grad_reduce_dtype\": \"fp32\"" : "");
    g_auto(MsLowered) l = ms_test_lower(s);
    int index = l.work->piece_of_layer[0];
    double params = l.work->pieces[index].params_dense, wire_B = wide ? 4 : 2;
    MsUnitOps ops;
    ms_work_unit_ops(l.work, index, &ops);
    assert_int_equal(ops.cast[0].n + ops.cast[1].n, 0);
    assert_int_equal(ops.reduce.n, wide ? 4 : 3);
    assert_close(ops.reduce.op[0].read_B, 2 * params, 1e-12);
    assert_close(ops.reduce.op[0].write_B, 2 * params, 1e-12);
    if (wide) assert_close(ops.reduce.op[1].read_B + ops.reduce.op[1].write_B, 6 * params, 1e-12);
    assert_close(ops.reduce.op[1 + wide].read_B + ops.reduce.op[1 + wide].write_B, 2 * wire_B * params, 1e-12);
    assert_close(ops.reduce.op[2 + wide].message_B, wire_B * params, 1e-12);
    assert_int_equal(ops.reduce.op[2 + wide].kind, MS_OP_REDUCE_SCATTER);
    ms_unit_ops_clear(&ops);
    s->gpus = 1, s->training.global_batch_size = 2;
    g_auto(MsLowered) alone = ms_test_lower(s);
    ms_work_unit_ops(alone.work, index, &ops);
    for (int i = 0; i < ops.reduce.n; i++) assert_int_not_equal(ops.reduce.op[i].kind, MS_OP_GRAD_SCALE);
    ms_unit_ops_clear(&ops);
  }
}

static double accumulated_B(MsScenario *s) {
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsOpList *list = &l.work->pieces[l.work->piece_of_layer[0]].backward;
  double moved_B = 0;
  for (int i = 0; i < list->n; i++)
    if (strcmp(list->op[i].name, "gradient accumulate") == 0) moved_B += list->op[i].read_B + list->op[i].write_B;
  return moved_B;
}

/* DeepSpeed by hand: gradients are copied into a bucket and divided, of stage 3 ordered by ranks in between, and
 * parameters put together out of what is gathered; below stage 3 gradients are summed whole, of stage 1 too. */
static void buckets_are_filled(void **state) {
  (void)state;
  for (int stage = 2; stage <= 3; stage++) {
    g_autofree char *options = g_strdup_printf("\"fsdp\": \"optim-grads%s\"", stage == 3 ? "-params" : "");
    g_autoptr(MsScenario) s = run_of("deepspeed", options);
    g_auto(MsLowered) l = ms_test_lower(s);
    int index = l.work->piece_of_layer[0], rows = 0;
    double params = l.work->pieces[index].params_dense, moved_B = 0;
    MsUnitOps ops;
    ms_work_unit_ops(l.work, index, &ops);
    for (; rows < ops.reduce.n && ops.reduce.op[rows].message_B == 0; rows++)
      moved_B += ops.reduce.op[rows].read_B + ops.reduce.op[rows].write_B;
    assert_int_equal(rows, stage);
    assert_close(moved_B, stage * 4 * params, 1e-12);
    assert_int_equal(ops.reduce.op[rows].kind, stage == 3 ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE);
    for (int back = 0; back < 2; back++) {
      assert_int_equal(ops.cast[back].n, stage == 3);
      if (stage == 3) assert_close(ops.cast[back].op[0].read_B + ops.cast[back].op[0].write_B, 4 * params, 1e-12);
    }
    ms_unit_ops_clear(&ops);
    assert_close(accumulated_B(s), 0, 0);
  }
  g_autoptr(MsScenario) first = run_of("deepspeed", "\"distributed_optimizer\": true");
  g_auto(MsLowered) l = ms_test_lower(first);
  MsStepOps ops;
  ms_work_step_ops(l.work, 0, &ops);
  const MsOpList *list[] = {&ops.reduce, &ops.after};
  int sums = 0;
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < list[k]->n; i++) {
      assert_int_not_equal(list[k]->op[i].kind, MS_OP_REDUCE_SCATTER);
      sums += strcmp(list[k]->op[i].name, "dp reduce") == 0;
    }
  assert_true(sums > 0);
  ms_step_ops_clear(&ops);
}

/* torch.distributed.fsdp reduces every gradient at once and drops it, so that autograd adds to none; where gradients
 * stay whole until the last microbatch, where there is no other rank, and with DistributedDataParallel each is added to
 * an FP32 one: 10 bytes a weight. */
static void sharded_gradients_are_handed_over(void **state) {
  (void)state;
  const double h = 4096, kv = 1024, f = 14336, weights = 2 * h * h + 2 * h * kv + 3 * h * f;
  static const char *const handed_over[] = {"optim-grads", "optim-grads-params"};
  for (int i = 0; i < 2; i++) {
    g_autofree char *options = g_strdup_printf("\"fsdp\": \"%s\"", handed_over[i]);
    g_autoptr(MsScenario) s = run_of("torchtitan", options);
    assert_close(accumulated_B(s), 0, 0);
    s->gpus = 1, s->training.global_batch_size = 2;
    assert_close(accumulated_B(s), 10 * weights, 1e-12);
  }
  g_autoptr(MsScenario) whole = run_of("torchtitan", "\"fsdp\": \"optim\""), first = run_of("fsdp1", ""),
                        own = run_of("megatron", "\"gradient_accumulation_fusion\": false");
  assert_close(accumulated_B(whole), 10 * weights, 1e-12);
  assert_close(accumulated_B(first), 0, 0);
  assert_close(accumulated_B(own), 10 * weights, 1e-12);
}

/* Without a reshard behind the forward only backwards drop parameters: a pass gathers them if the pass of its chunk
 * before it was one. */
static void backwards_drop_parameters(void **state) {
  (void)state;
  static const char text[] =
      "{\"framework\": \"automodel\", \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, "
      "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 16, \"local_batch_size\": 4}, \"layout\": "
      "{\"pp\": 4}, \"options\": {\"fsdp\": \"optim-grads\"}}";
  g_autoptr(MsScenario) s = ms_test_scenario_of(text);
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
  g_autoptr(MsProgram) p = ms_program_new(l.work, cost);
  g_autoptr(MsSchedule) schedule = ms_program_schedule(p, NULL, 0);
  static const gboolean first[] = {FALSE, TRUE, TRUE, TRUE, TRUE, FALSE, FALSE, FALSE, FALSE}; /* F F F F B B B B F */
  for (guint i = 0; i < G_N_ELEMENTS(first); i++) assert_int_equal(ms_params_stay(p, schedule, 0, (int)i), first[i]);
  for (int i = 0; i < 8; i++) assert_int_equal(ms_params_stay(p, schedule, 3, i), i % 2); /* F B F B ... */
  g_autoptr(MsResult) drops = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
  g_autoptr(MsResult) every = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(drops->time.comm_total_s[MS_COMM_DP] < every->time.comm_total_s[MS_COMM_DP]);
}

/* Passes of the first FullyShardedDataParallel drop parameters as well, wait for their first gather, and fetch ahead in
 * every backward. */
static void flat_parameters_keep_their_order(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_of("fsdp1", "\"fsdp\": \"optim-grads\"");
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
  g_autoptr(MsProgram) p = ms_program_new(l.work, cost);
  assert_true(ms_passes_wait(p));
  assert_int_equal(ms_unit_gathers(s), MS_GATHERS_DROPPED);
  MsPieceWalk walk = ms_piece_walk(l.work, (MsChunks){.backward = ms_layout_chunk(l.layout, 0, 0), .kind = MS_SLOT_B});
  while (ms_piece_next(&walk) && walk.backward.piece != l.work->piece_of_layer[10]) {}
  assert_true(ms_need_ahead(p, &walk, TRUE, (MsNeed){.piece = -1}).piece >= 0);
}

/* Passes that wait and parameters that are dropped: the bound stays below what the event engine says, and the tables of
 * lags near it. */
static void shards_at_every_fidelity(void **state) {
  (void)state;
  static const char *const frameworks[] = {"torchtitan", "automodel"}, *const fsdp[] = {"optim-grads",
                                                                                        "optim-grads-params"};
  for (int i = 0; i < 16; i++) {
    g_autofree char *text = g_strdup_printf(
        "{\"framework\": \"%s\", \"model\": \"qwen3-30b-a3b\", \"hardware\": \"h100-sxm\", \"gpus\": 32, "
        "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 64, \"local_batch_size\": 4}, \"layout\": "
        "{\"ep\": 4, \"pp\": %d}, \"options\": {\"fsdp\": \"%s\", \"recompute\": {\"granularity\": \"%s\"}}}",
        frameworks[i & 1], i & 2 ? 4 : 2, fsdp[i >> 2 & 1], i & 8 ? "full" : "none");
    g_autoptr(MsScenario) s = ms_test_scenario_of(text);
    g_autoptr(MsResult) full = ms_test_simulate(s, MS_FIDELITY_FULL), fast = ms_test_simulate(s, MS_FIDELITY_FAST);
    if (full->step_time_lower_s > full->step_time_s * (1 + 1e-9)) fail_msg("a bound above the step: %s", text);
    if (fabs(fast->step_time_s / full->step_time_s - 1) > 0.05) fail_msg("fast is not near full: %s", text);
  }
}

/* DeepSpeed's backward pass waits for the reductions that it does not overlap, that of others never; the bound stays
 * below, and the tables of lags near the event engine. */
static void reductions_are_waited_for(void **state) {
  (void)state;
  static const char *const frameworks[] = {"deepspeed", "fsdp1"}, *const fsdp[] = {"optim-grads", "optim-grads-params"};
  for (int i = 0; i < 8; i++) {
    g_autofree char *text =
        g_strdup_printf("{\"framework\": \"%s\", \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": %d, "
                        "\"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, \"global_batch_size\": 32}, "
                        "\"options\": {\"fsdp\": \"%s\"}}",
                        frameworks[i & 1], i & 4 ? 16 : 8, fsdp[i >> 1 & 1]);
    g_autoptr(MsScenario) s = ms_test_scenario_of(text);
    s->options.overlap_grad_reduce = TRUE;
    g_autoptr(MsResult) hidden = ms_test_simulate(s, MS_FIDELITY_FULL);
    s->options.overlap_grad_reduce = FALSE;
    g_autoptr(MsResult) full = ms_test_simulate(s, MS_FIDELITY_FULL), fast = ms_test_simulate(s, MS_FIDELITY_FAST);
    if ((full->step_time_s > hidden->step_time_s * 1.005) != !(i & 1)) fail_msg("does not wait, or does: %s", text);
    if (full->step_time_lower_s > full->step_time_s * (1 + 1e-9)) fail_msg("a bound above the step: %s", text);
    if (fabs(fast->step_time_s / full->step_time_s - 1) > 0.02) fail_msg("fast is not near full: %s", text);
  }
}

/* No script of Megatron-LM starts another framework. */
static void forms_of_megatron_refuse(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autoptr(MsScenario) s = run_of("fsdp1", "");
  assert_null(ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON}, &error));
  if (!strstr(error->message, "framework: is fsdp1")) fail_msg("%s", error->message);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_say_what_is_left_out),
      cmocka_unit_test(rows_name_options),
      cmocka_unit_test(lacked_modules_are_refused),
      cmocka_unit_test(states_by_hand),
      cmocka_unit_test(nanotron_keeps_more),
      cmocka_unit_test(nanotron_holds_messages),
      cmocka_unit_test(nanotron_gathers_through_one_tensor),
      cmocka_unit_test(layers_keep),
      cmocka_unit_test(every_other_product),
      cmocka_unit_test(products_one_by_one),
      cmocka_unit_test(eager_layers),
      cmocka_unit_test(recomputation_ends),
      cmocka_unit_test(written_and_read),
      cmocka_unit_test(loss_is_compiled),
      cmocka_unit_test(optimizers_step_in_passes),
      cmocka_unit_test(lacks_by_name),
      cmocka_unit_test(gathers_take_SMs),
      cmocka_unit_test(shards_are_copied),
      cmocka_unit_test(flat_parameters_are_joined),
      cmocka_unit_test(buckets_are_filled),
      cmocka_unit_test(sharded_gradients_are_handed_over),
      cmocka_unit_test(backwards_drop_parameters),
      cmocka_unit_test(flat_parameters_keep_their_order),
      cmocka_unit_test(shards_at_every_fidelity),
      cmocka_unit_test(reductions_are_waited_for),
      cmocka_unit_test(forms_of_megatron_refuse),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
