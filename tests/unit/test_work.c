/* The operator list against docs/theory/operators.md 3 to 7 and docs/theory/communication.md 2 to 7, and its properties
 * over many runs. */
#include "lib/close.h"

#include "base/units.h"
#include "cost/cost.h"
#include "lib/world.h"
#include "step/program.h"
#include "work/build.h"

#include <string.h>

enum { ANY = -1 };

static const MsOp *find_row(const MsOpList *list, const char *name, int pass) {
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->op[i].name, name) && (pass == ANY || list->op[i].pass == pass)) return &list->op[i];
  return NULL;
}

static const MsOp *row(const MsOpList *list, const char *name, int pass) {
  const MsOp *op = find_row(list, name, pass);
  if (!op) fail_msg("no row %s", name);
  return op;
}

static double named(const MsOpList *list, const char *name) {
  double sum = 0;
  for (int i = 0; i < list->n; i++) sum += strcmp(list->op[i].name, name) ? 0 : list->op[i].message_B;
  return sum;
}

static int count_named(const MsOpList *list, const char *name) {
  int n = 0;
  for (int i = 0; i < list->n; i++) n += g_str_equal(list->op[i].name, name);
  return n;
}

static int count(const MsOpList *list, MsOpKind kind, MsGroupKind group) {
  int n = 0;
  for (int i = 0; i < list->n; i++) n += list->op[i].kind == kind && list->op[i].group == group;
  return n;
}

static double message(const MsOpList *list, MsOpKind kind, MsGroupKind group) {
  double sum = 0;
  for (int i = 0; i < list->n; i++)
    if (list->op[i].kind == kind && list->op[i].group == group) sum += list->op[i].message_B;
  return sum;
}

static double flop_of(const MsOpList *list, const char *name, int pass) {
  double sum = 0;
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->op[i].name, name) && (pass == ANY || list->op[i].pass == pass)) sum += list->op[i].flop;
  return sum;
}

static const MsPiece *piece(const MsLowered *l, int layer) { return &l->work->pieces[l->work->piece_of_layer[layer]]; }
static const MsPiece *head(const MsLowered *l) { return &l->work->pieces[l->work->piece_head]; }
static const MsPiece *embedding(const MsLowered *l) { return &l->work->pieces[l->work->piece_embedding]; }

/* --- GEMM shapes and GFLOP, docs/theory/operators.md 7 ------------------------------------------------------------ */
typedef struct {
  const char *name;
  gboolean dense;
  double m, n, k, gflop;
} Gemm; /* n 0: only the GFLOP */

static void check_gemms(const MsLowered *l, int moe_layer, const Gemm *want, int n) {
  for (int i = 0; i < n; i++) {
    const MsPiece *p = !strcmp(want[i].name, "head") ? head(l) : want[i].dense ? piece(l, 0) : piece(l, moe_layer);
    const MsOp *op = row(&p->forward, want[i].name, MS_PASS_FORWARD);
    if (want[i].n > 0 && (op->m != want[i].m || op->n != want[i].n || op->k != want[i].k))
      fail_msg("%s is (%g, %g, %g), not (%g, %g, %g)", op->name, op->m, op->n, op->k, want[i].m, want[i].n, want[i].k);
    if (fabs(op->flop / 1e9 - want[i].gflop) > 0.00501)
      fail_msg("%s: %.3f GFLOP, not %.2f", op->name, op->flop / 1e9, want[i].gflop);
  }
}

static void check_attention(const MsPiece *p, double forward_gflop, double backward_gflop) {
  assert_true(fabs(flop_of(&p->forward, "attention", MS_PASS_FORWARD) / 1e9 - forward_gflop) < 0.00501);
  assert_true(fabs(flop_of(&p->backward, "attention", MS_PASS_DGRAD) / 1e9 - backward_gflop) < 0.00501);
}

static MsScenario *deepseek(int tp, int gpus) {
  MsScenario *s = ms_test_run("deepseek-v3", 0, "h100-sxm", gpus);
  s->model->make_vocab_size_divisible_by = 3232;
  s->layout.tp = tp, s->layout.ep = 64;
  return s;
}

static void gemms_of_mixtral(void **state) {
  (void)state;
  static const Gemm want[] = {
      {"qkv", 0, 4096, 6144, 4096, 206.16},         {"attention out", 0, 4096, 4096, 4096, 137.44},
      {"router", 0, 4096, 8, 4096, 0.27},           {"expert fc1", 0, 8192, 28672, 4096, 1924.15},
      {"expert fc2", 0, 8192, 4096, 14336, 962.07}, {"head", 0, 4096, 32000, 4096, 1073.74}};
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->layout.ep = 8;
  g_auto(MsLowered) l = ms_test_lower(s);
  check_gemms(&l, 0, want, G_N_ELEMENTS(want));
  check_attention(piece(&l, 0), 137.44, 343.60);
}

static void gemms_of_deepseek(void **state) {
  (void)state;
  static const Gemm one[] = {
      {"q down", 0, 4096, 1536, 7168, 90.19},          {"kv down", 0, 4096, 576, 7168, 33.82},
      {"q up", 0, 4096, 24576, 1536, 309.24},          {"kv up", 0, 4096, 32768, 512, 137.44},
      {"attention out", 0, 4096, 7168, 16384, 962.07}, {"router", 0, 4096, 256, 7168, 15.03},
      {"shared fc1", 0, 4096, 4096, 7168, 240.52},     {"shared fc2", 0, 4096, 7168, 2048, 120.26},
      {"expert fc1", 0, 32768, 4096, 7168, 1924.15},   {"expert fc2", 0, 32768, 7168, 2048, 962.07},
      {"fc1", 1, 4096, 36864, 7168, 2164.66},          {"fc2", 1, 4096, 7168, 18432, 1082.33},
      {"head", 0, 4096, 129280, 7168, 7591.35}};
  static const Gemm two[] = {
      {"q down", 0, 2048, 1536, 7168, 45.10},         {"kv down", 0, 2048, 576, 7168, 16.91},
      {"q up", 0, 4096, 12288, 1536, 154.62},         {"kv up", 0, 4096, 16384, 512, 68.72},
      {"attention out", 0, 4096, 7168, 8192, 481.04}, {"router", 0, 2048, 256, 7168, 7.52},
      {"shared fc1", 0, 4096, 2048, 7168, 120.26},    {"shared fc2", 0, 4096, 7168, 1024, 60.13},
      {"expert fc1", 0, 16384, 4096, 7168, 962.07},   {"expert fc2", 0, 16384, 7168, 2048, 481.04},
      {"fc1", 1, 4096, 18432, 7168, 1082.33},         {"fc2", 1, 4096, 7168, 9216, 541.17},
      {"head", 0, 4096, 64640, 7168, 3795.68}};
  g_autoptr(MsScenario) s1 = deepseek(1, 64), s2 = deepseek(2, 128);
  g_auto(MsLowered) l1 = ms_test_lower(s1);
  g_auto(MsLowered) l2 = ms_test_lower(s2);
  check_gemms(&l1, 3, one, G_N_ELEMENTS(one));
  check_gemms(&l2, 3, two, G_N_ELEMENTS(two));
  check_attention(piece(&l1, 3), 687.19, 1786.71);
  check_attention(piece(&l2, 3), 343.60, 893.35);
  /* the MoE layer's forward, its router left out */
  double total = 0;
  const MsOpList *forward = &piece(&l1, 3)->forward;
  for (int i = 0; i < forward->n; i++) total += strcmp(forward->op[i].name, "router") ? forward->op[i].flop : 0;
  assert_true(fabs(total / 1e9 - 5466.95) < 0.01);
}

static void gemms_of_qwen(void **state) {
  (void)state;
  static const Gemm want[] = {
      {"qkv", 0, 4096, 4608, 4096, 154.62},         {"attention out", 0, 4096, 4096, 4096, 137.44},
      {"router", 0, 2048, 128, 4096, 2.15},         {"expert fc1", 0, 16384, 3072, 4096, 412.32},
      {"expert fc2", 0, 16384, 4096, 1536, 206.16}, {"head", 0, 4096, 75968, 4096, 2549.06}};
  g_autoptr(MsScenario) s = ms_test_run("qwen3-235b-a22b", ANY, "h100-sxm", 64);
  s->layout.tp = 2, s->layout.ep = 32;
  s->model->make_vocab_size_divisible_by = 1187;
  g_auto(MsLowered) l = ms_test_lower(s);
  check_gemms(&l, 0, want, G_N_ELEMENTS(want));
  check_attention(piece(&l, 0), 137.44, 343.60);
}

/* --- tokens per expert, docs/theory/operators.md 6 ---------------------------------------------------------------- */
static void tokens_per_expert(void **state) {
  (void)state;
  static const struct {
    const char *model;
    int tp, ep;
    double tsp, tk, rows;
  } want[] = {{"mixtral-8x7b", 1, 8, 4096, 8192, 8192},
              {"deepseek-v3", 1, 64, 4096, 32768, 8192},
              {"deepseek-v3", 2, 64, 2048, 16384, 4096},
              {"qwen3-235b-a22b", 2, 32, 2048, 16384, 4096},
              {"qwen3-235b-a22b", 1, 8, 4096, 32768, 2048}};
  for (guint i = 0; i < G_N_ELEMENTS(want); i++) {
    g_autoptr(MsScenario) s = ms_test_run(want[i].model, ANY, "h100-sxm", 64);
    s->layout.tp = want[i].tp, s->layout.ep = want[i].ep;
    g_auto(MsLowered) l = ms_test_lower(s);
    assert_close(l.work->rows_sp, want[i].tsp, 0);
    assert_close(l.work->rows_expert, want[i].tk, 0);
    const MsOp *fc1 = row(&piece(&l, s->model->num_layers - 1)->forward, "expert fc1", MS_PASS_FORWARD);
    assert_close(fc1->m / fc1->groups, want[i].rows, 0);
  }
}

/* Capacity: ceil(Tsp k / E cf) rows from each source rank for each expert; padded, Tk is exactly that. */
static void tokens_with_capacity(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->layout.ep = 4, s->layout.etp = 2;
  s->training.routing = (MsRouting){.kind = MS_ROUTING_CAPACITY, .capacity_factor = 1.1, .pad_to_capacity = TRUE};
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_close(l.work->rows_expert, ceil(4096 * 2 / 8.0 * 1.1) * 2 * 4 * 2, 0);
}

/* --- tensor parallel, docs/theory/communication.md 2 -------------------------------------------------------------- */
static void tensor_parallel_with_sequence_parallelism(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "h100-sxm", 8);
  s->layout.tp = 4;
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_true(l.layout->sequence_parallel);
  double th = 2.0 * 4096 * s->model->hidden_size;
  const MsPiece *p = piece(&l, 0);
  assert_int_equal(count(&p->forward, MS_OP_ALL_GATHER, MS_GROUP_TP), 2);     /* qkv, fc1 */
  assert_int_equal(count(&p->forward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), 2); /* out, fc2 */
  assert_close(message(&p->forward, MS_OP_ALL_GATHER, MS_GROUP_TP), 2 * th, 0);
  assert_close(message(&p->forward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), 2 * th, 0);
  assert_int_equal(count(&p->backward, MS_OP_ALL_GATHER, MS_GROUP_TP), 4); /* inputs again, and dY of the row layers */
  assert_int_equal(count(&p->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), 2);
  assert_close(message(&p->backward, MS_OP_ALL_GATHER, MS_GROUP_TP), 4 * th, 0);
  assert_close(message(&p->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), 2 * th, 0);
  assert_int_equal(
      count(&p->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP) + count(&p->backward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 0);
  /* ends */
  assert_close(message(&embedding(&l)->forward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), th, 0);
  assert_close(message(&embedding(&l)->backward, MS_OP_ALL_GATHER, MS_GROUP_TP), th, 0);
  assert_close(message(&head(&l)->forward, MS_OP_ALL_GATHER, MS_GROUP_TP), th, 0);
  assert_close(message(&head(&l)->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP), (4.0 + 8.0) * 4096, 0);
  assert_close(message(&head(&l)->backward, MS_OP_ALL_GATHER, MS_GROUP_TP), th, 0);
  assert_close(message(&head(&l)->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), th, 0);
  assert_int_equal(count(&head(&l)->backward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 0);
}

static void tensor_parallel_without_sequence_parallelism(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "h100-sxm", 8);
  s->layout.tp = 4, s->options.sequence_parallel = FALSE;
  g_auto(MsLowered) l = ms_test_lower(s);
  double th = 2.0 * 4096 * s->model->hidden_size;
  const MsPiece *p = piece(&l, 0);
  const MsOpList *lists[] = {&p->forward, &p->backward, &embedding(&l)->forward, &embedding(&l)->backward};
  for (guint i = 0; i < G_N_ELEMENTS(lists); i++)
    assert_int_equal(
        count(lists[i], MS_OP_ALL_GATHER, MS_GROUP_TP) + count(lists[i], MS_OP_REDUCE_SCATTER, MS_GROUP_TP), 0);
  assert_int_equal(count(&p->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 2);
  assert_close(message(&p->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 2 * th, 0);
  assert_int_equal(count(&p->backward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 2);
  assert_close(message(&p->backward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 2 * th, 0);
  assert_close(row(&p->forward, "input norm", ANY)->m, 4096, 0); /* norms see all tokens */
}

static void tensor_parallel_of_latent_attention(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 1, "h100-sxm", 128);
  s->layout.tp = 2, s->layout.ep = 64;
  g_auto(MsLowered) l = ms_test_lower(s);
  double t2 = 2.0 * 4096, h = 7168;
  const MsPiece *moe = piece(&l, 10);
  /* three small gathers, the output scattered; shared expert like a dense MLP; the MoE layer itself has no collective
   * over TP */
  assert_close(message(&moe->forward, MS_OP_ALL_GATHER, MS_GROUP_TP), t2 * (1536 + 512 + 64) + t2 * h, 0);
  assert_close(message(&moe->forward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), 2 * t2 * h, 0);
  assert_close(message(&moe->backward, MS_OP_ALL_GATHER, MS_GROUP_TP), t2 * (1536 + 512) + 3 * t2 * h, 0);
  assert_close(message(&moe->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), t2 * (1536 + 512 + 64) + t2 * h, 0);
  const MsPiece *mtp = &l.work->pieces[l.work->piece_mtp];
  assert_close(message(&mtp->forward, MS_OP_ALL_GATHER, MS_GROUP_TP) -
                   message(&moe->forward, MS_OP_ALL_GATHER, MS_GROUP_TP),
               3 * t2 * h, 1e-12);
  assert_close(message(&mtp->backward, MS_OP_ALL_GATHER, MS_GROUP_TP) -
                   message(&moe->backward, MS_OP_ALL_GATHER, MS_GROUP_TP),
               4 * t2 * h, 1e-12); /* projection in (2 h) and out, embedding */
  assert_close(message(&mtp->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP) -
                   message(&moe->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP),
               2 * t2 * h, 1e-12);
}

/* User buffers cut the collectives into chunks beside their GEMMs; the bytes stay: MXFP8's gradients are gathered
 * column by column beside the product that reads their rows. */
static void tensor_parallel_overlap_keeps_the_bytes(void **state) {
  (void)state;
  static const MsPrecision precisions[] = {MS_BF16, MS_FP8_TENSORWISE, MS_MXFP8};
  static const MsOpKind kinds[] = {MS_OP_ALL_GATHER, MS_OP_REDUCE_SCATTER};
  for (guint i = 0; i < G_N_ELEMENTS(precisions); i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "b200-sxm", 8);
    s->layout.tp = 4, s->training.precision = precisions[i];
    g_auto(MsLowered) plain = ms_test_lower(s);
    s->options.tp_comm_overlap = TRUE;
    g_auto(MsLowered) overlapped = ms_test_lower(s);
    for (guint k = 0; k < G_N_ELEMENTS(kinds); k++) {
      const MsPiece *a = piece(&plain, 0), *b = piece(&overlapped, 0);
      assert_close(message(&b->forward, kinds[k], MS_GROUP_TP), message(&a->forward, kinds[k], MS_GROUP_TP), 1e-12);
      assert_close(message(&b->backward, kinds[k], MS_GROUP_TP), message(&a->backward, kinds[k], MS_GROUP_TP), 1e-12);
      assert_true(count(&b->forward, kinds[k], MS_GROUP_TP) > count(&a->forward, kinds[k], MS_GROUP_TP));
    }
  }
}

/* Beside the crossings the shared expert of 4096 tokens x 7168 gathers its input and the gradient of its output in
 * BF16, each once, whatever its products are in and whatever is cut of other layers. */
static void messages_of_a_shared_expert_beside(void **state) {
  (void)state;
  static const MsPrecision precisions[] = {MS_BF16, MS_FP8_TENSORWISE, MS_MXFP8};
  for (guint i = 0; i < G_N_ELEMENTS(precisions); i++)
    for (int overlap = 0; overlap < 2; overlap++) {
      g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 0, "b200-sxm", 64);
      s->layout.tp = 2, s->layout.ep = 32, s->training.precision = precisions[i];
      s->options.moe_shared_expert_overlap = TRUE, s->options.dispatcher = MS_DISPATCH_ALLTOALL;
      s->options.tp_comm_overlap = overlap;
      g_auto(MsLowered) l = ms_test_lower(s);
      double forward_B = 0, backward_B = 0;
      const MsPiece *p = piece(&l, 10);
      const MsOpList *lists[] = {&p->forward, &p->backward};
      for (int k = 0; k < 2; k++)
        for (int j = 0; j < lists[k]->n; j++) {
          const MsOp *op = &lists[k]->op[j];
          if (op->kind == MS_OP_ALL_GATHER && op->group == MS_GROUP_TP && op->module == MS_MODULE_SHARED)
            *(k ? &backward_B : &forward_B) += op->message_B;
        }
      assert_close(forward_B, 2.0 * 4096 * 7168, 0);
      assert_close(backward_B, 2.0 * 4096 * 7168, 0);
    }
}

/* Nemotron 3 Nano, TP 2: 32 heads of 64, so z, x and the output are 2048 wide; of 8 groups 4, B and C are 512 wide
 * each, and twice that for 8 context-parallel ranks. 23 of 52 layers are Mamba. */
static void mamba_over_context_ranks(void **state) {
  (void)state;
  for (int cp = 1; cp <= 8; cp *= 2) {
    g_autoptr(MsScenario) s = ms_test_run("nemotron-3-nano", 0, "h100-sxm", 16);
    s->layout.tp = 2, s->layout.cp = cp, s->training.global_batch_size = 8;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = piece(&l, 0);
    double tokens = 4096.0 / cp, in = 2 * 2048 + 2 * 512 * MAX(cp / 4, 1) + 32,
           want = cp > 1 ? 2 * tokens * (in + 2048) : 0;
    assert_close(message(&p->forward, MS_OP_ALL_TO_ALL, MS_GROUP_CP), want, 0);
    assert_close(message(&p->backward, MS_OP_ALL_TO_ALL, MS_GROUP_CP), want, 0);
    if (cp == 1) continue;
    assert_close(row(&p->forward, "cp a2a in", ANY)->message_B, 2 * tokens * in, 0);
    assert_close(row(&p->backward, "cp a2a in", ANY)->message_B, 2 * tokens * in, 0);
    /* z, x, B, C and dt by a message each */
    const MsOp *there = row(&p->forward, "cp a2a in", ANY), *back = row(&p->backward, "cp a2a in", ANY);
    assert_true(there->kernels == 5 && back->kernels == 5 && row(&p->forward, "cp a2a out", ANY)->kernels == 1);
    assert_close((there - 1)->read_B + (there + 1)->read_B, 3 * 2 * tokens * in, 1e-12);
    assert_close((back - 1)->write_B + (back + 1)->write_B, 4 * 2 * tokens * in, 1e-12);
    const MsOp *scan = row(&p->backward, "state-space scan", ANY), *first = row(&p->backward, "cp a2a out", ANY);
    assert_true(first < scan); /* the gradient of the output comes first */
  }
}

/* Nemotron 3 Nano on one rank: x and states 4096 wide a token (64 heads of 64, 128 states for 128 tokens), B and C 1024
 * each, scores of 8 groups 1024, of 4096 tokens. Two sequences are put batch first, and back. */
static void kernels_of_the_scan(void **state) {
  (void)state;
  for (int sequences = 1; sequences <= 2; sequences++) {
    g_autoptr(MsScenario) s = ms_test_run("nemotron-3-nano", 0, "h100-sxm", 8);
    s->training.micro_batch_size = sequences, s->training.global_batch_size = 16;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = piece(&l, 0);
    const double tokens = 4096.0 * sequences, x = 4096, group = 1024, heads = 64;
    const MsOp *scan = row(&p->forward, "state-space scan", ANY), *back = row(&p->backward, "state-space scan", ANY);
    assert_close(scan->read_B + scan->write_B, tokens * (10 * x + 12 * x + 8 * group + 8 * group + 26 * heads), 1e-12);
    assert_close(back->read_B + back->write_B, tokens * (34 * x + 34 * x + 54 * group + 32 * group + 140 * heads),
                 1e-12);
    const char *const copies[] = {"projected, batch first", "scan out, sequence first"};
    const double widths[] = {2 * x + 2 * group + heads, x};
    for (int i = 0; i < 2; i++) {
      const MsOp *there = find_row(&p->forward, copies[i], ANY), *again = find_row(&p->backward, copies[i], ANY);
      assert_int_equal(there != NULL, sequences > 1);
      assert_int_equal(again != NULL, sequences > 1);
      if (there) assert_close(there->read_B, 2 * tokens * widths[i], 0);
      if (again) assert_close(again->write_B, 2 * tokens * widths[i], 0);
    }
  }
}

/* Gradients that are gathered for out and fc2, 4096 x 8192 each: rows for the input gradient, columns for that of the
 * weights, which frozen ones have not. Of qkv and fc1 their input for the weight gradient. */
static void gathered_gradients(void **state) {
  (void)state;
  static const struct {
    MsPrecision precision;
    double trained_B, frozen_B; /* an element of dY */
  } rows[] = {{MS_BF16, 2, 2}, {MS_FP8_TENSORWISE, 1, 1}, {MS_MXFP8, 2 * 33.0 / 32, 33.0 / 32}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    for (int frozen = 0; frozen < 2; frozen++)
      for (int overlap = 0; overlap < 2; overlap++) {
        g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "b200-sxm", 8);
        s->layout.tp = 4, s->training.precision = rows[i].precision, s->options.tp_comm_overlap = overlap;
        if (frozen) s->training.lora.rank = 16, s->training.lora.targets = 1u; /* beside qkv: nothing of out and fc2 */
        g_auto(MsLowered) l = ms_test_lower(s);
        const MsOpList *back = &piece(&l, 0)->backward;
        double sum = 0;
        for (int k = 0; k < back->n; k++)
          if (back->op[k].kind == MS_OP_ALL_GATHER && !strcmp(back->op[k].name, "tp scatter"))
            sum += back->op[k].message_B;
        assert_close(sum, 2 * (frozen ? rows[i].frozen_B : rows[i].trained_B) * 4096 * 8192, 1e-12);
      }
}

static void same_rows(const MsOpList *a, const MsOpList *b) {
  assert_int_equal(a->n, b->n);
  for (int i = 0; i < a->n; i++) {
    const MsOp *x = &a->op[i], *y = &b->op[i];
    assert_string_equal(x->name, y->name);
    assert_true(x->m == y->m && x->flop == y->flop && x->read_B == y->read_B && x->message_B == y->message_B);
  }
}

/* What is said of FP8 alone changes no row in BF16, with TP overlap neither. */
static void switches_of_fp8_leave_bf16_alone(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", ANY, "h100-sxm", 64);
  s->layout.tp = 4, s->options.tp_comm_overlap = TRUE;
  g_auto(MsLowered) plain = ms_test_lower(s);
  s->options.fp8_output_proj = TRUE, s->options.keep_mtp_spec_in_bf16 = TRUE;
  g_auto(MsLowered) said = ms_test_lower(s);
  assert_true(plain.work->piece_mtp >= 0);
  assert_int_equal(plain.work->n_pieces, said.work->n_pieces);
  for (int i = 0; i < plain.work->n_pieces; i++) {
    same_rows(&plain.work->pieces[i].forward, &said.work->pieces[i].forward);
    same_rows(&plain.work->pieces[i].backward, &said.work->pieces[i].backward);
  }
}

/* A product whose input is gathered, or whose output is scattered, is four of a quarter of the rows; one beside a whole
 * message is not cut. */
static void tensor_parallel_overlap_cuts_products(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "h100-sxm", 8);
  s->layout.tp = 4, s->options.tp_comm_overlap = TRUE;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = piece(&l, 0);
  const MsOp *cut[] = {row(&p->forward, "qkv", ANY), row(&p->forward, "fc2", ANY),
                       row(&p->backward, "fc2", MS_PASS_DGRAD)},
             *whole[] = {row(&p->backward, "qkv", MS_PASS_DGRAD), row(&p->backward, "fc2", MS_PASS_WGRAD)};
  for (guint i = 0; i < G_N_ELEMENTS(cut); i++) {
    const MsOp *op = cut[i];
    assert_true(op->flags & MS_OPF_PARTS && op->groups == 4 && op->m == s->training.seq_length / 4);
    assert_close(op->flop, 2 * 4 * op->m * op->n * op->k, 1e-12);
    MsOp part = *op;
    part.groups = 1, part.flags &= (guint8)~MS_OPF_PARTS, part.flop /= 4, part.read_B /= 4, part.write_B /= 4;
    g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
    double parts_s = ms_cost_op(cost, op).time_s, part_s = ms_cost_op(cost, &part).time_s;
    part.m *= 4, part.flop *= 4, part.read_B *= 4, part.write_B *= 4;
    assert_close(parts_s, MAX(4 * part_s, ms_cost_op(cost, &part).time_s), 1e-9);
  }
  for (guint i = 0; i < G_N_ELEMENTS(whole); i++) assert_true(!(whole[i]->flags & MS_OPF_PARTS));
}

/* Behind the layers of every chunk: 80 layers of four products on eight stages, three maxima of each forward and two
 * back. */
static void scales_of_the_delayed_recipe(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "h100-sxm", 64);
  s->layout.tp = 2, s->layout.pp = 8, s->layout.vpp = 2;
  g_auto(MsLowered) bf16 = ms_test_lower(s);
  s->training.precision = MS_FP8_DELAYED;
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_int_equal(bf16.work->piece_scales, -1);
  for (int i = 0; i < l.layout->num_chunks; i++) {
    const MsChunk *chunk = &l.layout->chunks[i];
    int n = ms_work_chunk_length(l.work, chunk);
    assert_int_equal(n, ms_work_chunk_length(bf16.work, chunk) + 1);
    assert_int_equal(ms_work_chunk_piece(l.work, chunk, n - 1 - (chunk->has_loss ? 1 : 0)), l.work->piece_scales);
  }
  const MsPiece *p = &l.work->pieces[l.work->piece_scales];
  assert_close(message(&p->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP_DP_CP), 4 * 3 * 4 * 80 / 8, 1e-12);
  assert_close(message(&p->backward, MS_OP_ALL_REDUCE, MS_GROUP_TP_DP_CP), 4 * 2 * 4 * 80 / 8, 1e-12);
  s->options.tp_only_amax_red = TRUE;
  g_auto(MsLowered) few = ms_test_lower(s);
  p = &few.work->pieces[few.work->piece_scales];
  assert_int_equal(count(&p->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP_DP_CP), 0);
  assert_int_equal(count(&p->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP_CP), 1);
}

/* Bytes per element of a quantised gather over those of BF16. */
static void low_precision_shrinks_gathers(void **state) {
  (void)state;
  static const struct {
    MsPrecision precision;
    double forward, gradient;
  } want[] = {{MS_FP8_DELAYED, 1, 1},
              {MS_FP8_TENSORWISE, 1, 1},
              {MS_FP8_BLOCKWISE, 1 + 4 / 128.0, 2 * (1 + 4 / 128.0)},
              {MS_MXFP8, 1 + 1 / 32.0, 2 * (1 + 1 / 32.0)}};
  for (guint i = 0; i < G_N_ELEMENTS(want); i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "b200-sxm", 8);
    s->layout.tp = 4, s->training.precision = want[i].precision;
    g_auto(MsLowered) l = ms_test_lower(s);
    double elements = 4096.0 * s->model->hidden_size;
    const MsPiece *p = piece(&l, 0);
    assert_close(message(&p->forward, MS_OP_ALL_GATHER, MS_GROUP_TP), 2 * want[i].forward * elements, 1e-12);
    assert_close(message(&p->forward, MS_OP_REDUCE_SCATTER, MS_GROUP_TP), 4 * elements, 1e-12); /* stay BF16 */
    assert_close(message(&p->backward, MS_OP_ALL_GATHER, MS_GROUP_TP),
                 2 * (want[i].forward + want[i].gradient) * elements, 1e-12);
    assert_close(message(&head(&l)->forward, MS_OP_ALL_GATHER, MS_GROUP_TP), 2 * elements, 1e-12);
  }
}

/* --- context parallel, docs/theory/communication.md 3 ------------------------------------------------------------- */
static MsScenario *long_qwen(MsCpComm type, int cp) {
  MsScenario *s = ms_test_run("qwen3-235b-a22b", ANY, "h100-sxm", 4 * cp);
  s->training.seq_length = 131072;
  s->training.global_batch_size = 4;
  s->layout.tp = 4, s->layout.cp = cp, s->layout.ep = 4, s->layout.cp_comm_type = type;
  return s;
}

/* Per-tensor scaling (TransformerEngine v2.9): a shard that is gathered is cast row-wise to one maximum of all ranks;
 * Hopper turns what was gathered for the weight gradients, Blackwell reads it as it lies; a norm in front of its linear
 * finds the maximum itself. */
static void per_tensor_casts(void **state) {
  (void)state;
  static const char *const machine[] = {"h100-sxm", "b200-sxm"};
  for (int blackwell = 0; blackwell < 2; blackwell++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, machine[blackwell], 8);
    s->layout.tp = 4, s->options.sequence_parallel = TRUE;
    s->training.precision = MS_FP8_TENSORWISE;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = piece(&l, 0);
    double h = s->model->hidden_size, f = s->model->ffn_hidden_size / 4.0, rows = s->training.seq_length;
    assert_int_equal(count(&p->forward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 2);  /* qkv, fc1 */
    assert_int_equal(count(&p->backward, MS_OP_ALL_REDUCE, MS_GROUP_TP), 2); /* attention out, fc2 */
    assert_close(row(&p->forward, "amax reduce", ANY)->message_B, 4, 0);
    assert_int_equal(count(&p->forward, MS_OP_AMAX, MS_GROUP_NONE), 2); /* attention out, fc2 */
    assert_int_equal(count(&p->backward, MS_OP_AMAX, MS_GROUP_NONE), 4);
    assert_close(row(&p->forward, "quantize input", ANY)->write_B, rows / 4 * h, 1e-12); /* of qkv */
    double local = 0; /* of fc2, the only one with this width */
    for (int i = 0; i < p->forward.n; i++)
      if (p->forward.op[i].kind == MS_OP_QUANTIZE && p->forward.op[i].n == f) local = p->forward.op[i].write_B;
    assert_close(local, (blackwell ? 1 : 2) * rows * f, 1e-12);
    assert_int_equal(count(&p->backward, MS_OP_TRANSPOSE, MS_GROUP_NONE), blackwell ? 0 : 4);
    if (!blackwell) assert_close(row(&p->backward, "transpose input", MS_PASS_WGRAD)->read_B, rows * h, 1e-12);
  }
}

/* HybridEP sorts in kernels of its own around the exchange, and with EP overlap on its stream. */
static void sorting_of_hybridep(void **state) {
  (void)state;
  for (int overlap = 0; overlap < 2; overlap++) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-30b-a3b", 0, "b200-sxm", 8);
    s->layout.ep = 8, s->options.dispatcher = MS_DISPATCH_HYBRIDEP, s->options.ep_overlap = overlap;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = piece(&l, 0);
    const MsOpList *lists[] = {&p->forward, &p->backward};
    for (int i = 0; i < 2; i++) {
      const MsOp *out = row(lists[i], "permute", ANY), *back = row(lists[i], "unpermute", ANY);
      assert_int_equal(out->stream, overlap ? MS_STREAM_EP : MS_STREAM_COMPUTE);
      assert_int_equal(out->node, MS_NODE_DISPATCH), assert_int_equal(back->node, MS_NODE_COMBINE);
      assert_int_equal((out - 1)->kind, MS_OP_DISPATCH), assert_int_equal((back + 1)->kind, MS_OP_COMBINE);
      assert_close(out->write_B, 2 * l.work->rows_expert * s->model->hidden_size, 1e-12);
      assert_true(out->read_B < out->write_B && out->read_B == back->write_B);
    }
  }
}

static void context_ring(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = long_qwen(MS_CP_P2P, 8);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = piece(&l, 0);
  assert_int_equal(count(&p->forward, MS_OP_P2P, MS_GROUP_CP), 7);
  assert_close(row(&p->forward, "cp ring", ANY)->message_B, 8 * MS_MIB, 0);
  assert_int_equal(row(&p->forward, "cp ring", ANY)->kernels, 2);
  assert_close(message(&p->forward, MS_OP_P2P, MS_GROUP_CP), 7 * 8 * MS_MIB, 0);
  assert_int_equal(count(&p->backward, MS_OP_P2P, MS_GROUP_CP), 8);
  assert_close(message(&p->backward, MS_OP_P2P, MS_GROUP_CP), 2 * 7 * 8 * MS_MIB, 0);
  g_autoptr(MsScenario) d = ms_test_run("deepseek-v3", 0, "h100-sxm", 64);
  d->training.seq_length = 8192, d->layout.cp = 2, d->layout.ep = 8;
  g_auto(MsLowered) m = ms_test_lower(d);
  assert_int_equal(count(&piece(&m, 3)->forward, MS_OP_P2P, MS_GROUP_CP), 1);
  assert_close(row(&piece(&m, 3)->forward, "cp ring", ANY)->message_B, 320 * MS_MIB, 0);
}

/* FP8 attention with a scale for each tensor: keys and values in a byte, gradients of all chunks at once beside the
 * last step. */
static void context_ring_in_a_byte(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "b200-sxm", 32);
  s->training.seq_length = 16384, s->layout.cp = 4, s->layout.tp = 2, s->layout.cp_comm_type = MS_CP_P2P;
  s->training.precision = MS_FP8_TENSORWISE, s->options.fp8_dot_product_attention = TRUE;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = piece(&l, 0);
  double kv = 16384 / 4.0 * 2 * 1024 / 2;
  assert_close(message(&p->forward, MS_OP_P2P, MS_GROUP_CP), 3 * kv, 1e-12);
  assert_close(message(&p->backward, MS_OP_P2P, MS_GROUP_CP), 3 * kv, 1e-12);
  const MsOp *all = row(&p->backward, "cp a2a dkv", ANY), *last = all + 1;
  assert_close(all->message_B, 4 * kv, 1e-12);
  assert_string_equal(last->name, "attention");
  assert_true(last->wait[0] != all - p->backward.op && last->wait[1] != all - p->backward.op);
  s->layout.cp_comm_type = MS_CP_ALL_GATHER;
  g_auto(MsLowered) g = ms_test_lower(s);
  assert_close(message(&piece(&g, 0)->forward, MS_OP_ALL_GATHER, MS_GROUP_CP), 4 * kv, 1e-12);
  assert_close(message(&piece(&g, 0)->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_CP), 2 * 4 * kv, 1e-12);
}

/* TransformerEngine's ring (context_parallel.py), on its last rank: one output scaled and seven added, each reading
 * both; backward queries copied once and added seven times, keys and values one half copied, six halves and a whole
 * added. */
static void context_ring_is_merged(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = long_qwen(MS_CP_P2P, 8);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = piece(&l, 0);
  double rows = 131072 / 8.0, q = rows * 64 * 128 / 4, kv = 2 * rows * 128;
  const MsOp *merge = row(&p->forward, "merge of ring steps", ANY),
             *sums = row(&p->backward, "sums of ring steps", ANY);
  assert_close(row(&p->forward, "keys together", ANY)->read_B, 2 * kv, 1e-12);
  assert_close(row(&p->backward, "keys together", ANY)->write_B, 2 * kv, 1e-12);
  assert_close(merge->read_B + merge->write_B, (4 + 7 * 6) * q, 1e-12);
  assert_close(sums->read_B + sums->write_B, (4 + 7 * 6) * q + (2 + 6 * 3 + 6) * kv, 1e-12);
}

/* What is exchanged is put into order by a pass on either side; of FP8 attention in a byte. */
static void context_exchange_copies(void **state) {
  (void)state;
  for (int low = 0; low < 2; low++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "b200-sxm", 8);
    s->training.seq_length = 16384, s->layout.cp = 4, s->layout.tp = 2, s->layout.cp_comm_type = MS_CP_A2A;
    if (low) s->training.precision = MS_FP8_TENSORWISE, s->options.fp8_dot_product_attention = TRUE;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsOpList *forward = &piece(&l, 0)->forward;
    double token = (low ? 1 : 2) * 16384 / 4.0 / 2, tensor[] = {token * 8192, token * 1024, token * 1024},
           out = 2 * 16384 / 4.0 * 8192 / 2;
    const MsOp *in = row(forward, "cp a2a in", ANY), *back = row(forward, "cp a2a out", ANY);
    for (int i = 0; i < 3; i++) { /* beside the pass of the next tensor */
      const MsOp *copy = in - 1 + 2 * i, *sent = copy + 1, *order = in - 1 + 6 + i;
      assert_string_equal(copy->name, "heads by rank");
      assert_string_equal(sent->name, "cp a2a in");
      assert_string_equal(order->name, "tokens in order");
      assert_close(copy->read_B, tensor[i], 1e-12);
      assert_close(sent->message_B, tensor[i], 1e-12);
      assert_close(order->write_B, tensor[i], 1e-12);
      assert_int_equal(sent->wait[0], copy - forward->op);
      assert_true(order->wait[0] == sent - forward->op || order->wait[1] == sent - forward->op);
      if (i > 0) assert_int_equal(copy->wait[0], copy - forward->op - 2);
    }
    assert_close(back->message_B, out, 1e-12); /* current scaling leaves the output in BF16 */
    assert_close((back - 1)->read_B, out, 1e-12);
  }
}

/* Megatron-LM's fused kernels turn the rotary columns of the queries in place, and make keys and values of what was
 * projected and of the rotary key; backward reads and writes change places. */
static void latent_rotation(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = deepseek(1, 64);
  g_auto(MsLowered) l = ms_test_lower(s);
  double rows = 4096, n = 128, read = 2 * rows * n * (64 + 128 + 128), write = read + 2 * rows * n * 64;
  const MsOp *there = row(&piece(&l, 3)->forward, "rope", ANY), *back = row(&piece(&l, 3)->backward, "rope", ANY);
  assert_close(there->read_B, read, 1e-12), assert_close(there->write_B, write, 1e-12);
  assert_close(back->read_B, write, 1e-12), assert_close(back->write_B, read, 1e-12);
}

/* Eager code adds two tensors at a time: behind a MoE layer with a shared expert two sums, in its backward three, of
 * what latent attention read two; code that torch.compile makes reads each once. */
static void sums_two_by_two(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = deepseek(1, 64), plain = ms_test_run("qwen3-235b-a22b", 0, "h100-sxm", 8);
  plain->layout.ep = 8;
  g_auto(MsLowered) l = ms_test_lower(s), m = ms_test_lower(plain);
  double x = 2.0 * 4096 * 7168, y = 2.0 * plain->training.seq_length * 4096, mlp = 0, attention = 0;
  const MsOpList *forward = &piece(&l, 3)->forward, *backward = &piece(&l, 3)->backward;
  for (int i = 0; i < backward->n; i++) {
    const MsOp *op = &backward->op[i];
    if (strcmp(op->name, "gradient add") == 0) *(mlp == 0 ? &mlp : &attention) = op->read_B + op->write_B;
  }
  assert_close(mlp, 3 * 3 * x, 1e-12), assert_close(attention, 2 * 3 * x, 1e-12);
  const MsOp *last = NULL;
  for (int i = 0; i < forward->n; i++)
    if (strcmp(forward->op[i].name, "residual add") == 0) last = &forward->op[i];
  assert_close(last->read_B, 4 * x, 1e-12), assert_close(last->write_B, 2 * x, 1e-12);
  const MsOp *sum = row(&piece(&m, 0)->backward, "gradient add", ANY); /* of the MLP, the first */
  assert_close(sum->read_B, 4 * y, 1e-12), assert_close(sum->write_B, 2 * y, 1e-12);
}

/* The gate's gradients are products of FP32: casts around them, but not of frameworks that have no such gate. */
static void gradients_of_the_gate(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = deepseek(1, 64), local = deepseek(1, 64);
  local->options.transformer_impl = MS_IMPL_LOCAL, local->options.apply_rope_fusion = FALSE;
  g_auto(MsLowered) l = ms_test_lower(s), m = ms_test_lower(local);
  double x = 2.0 * 4096 * 7168;
  const MsOp *in = row(&piece(&l, 3)->backward, "router input in FP32", ANY),
             *out = row(&piece(&l, 3)->backward, "router gradients in BF16", ANY);
  /* input 2 read and 4 written, its product's gradient 4 and 2, and the 2 more that each product moves */
  assert_close(in->read_B + in->write_B + out->read_B + out->write_B, (6 + 6 + 4) / 2.0 * x, 1e-12);
  assert_null(find_row(&piece(&m, 3)->backward, "router input in FP32", ANY));
}

/* A shared expert beside the exchanges has its input gathered apart and keeps it whole: 2 T h bytes, and no second
 * gather in backward. */
static void shared_input_is_kept_whole(void **state) {
  (void)state;
  double kept[2];
  int gathers[2];
  for (int beside = 0; beside < 2; beside++) {
    g_autoptr(MsScenario) s = deepseek(2, 64);
    s->options.sequence_parallel = TRUE, s->options.moe_shared_expert_overlap = beside;
    g_auto(MsLowered) l = ms_test_lower(s);
    kept[beside] = piece(&l, 3)->kept_B;
    gathers[beside] = count(&piece(&l, 3)->backward, MS_OP_ALL_GATHER, MS_GROUP_TP);
  }
  assert_close(kept[1] - kept[0], 2.0 * 4096 * 7168, 1e-9);
  assert_int_equal(gathers[1], gathers[0] - 1);
}

/* Latent experts whose layer is computed again: both projections are, and their input is not kept. */
static void latents_are_made_again(void **state) {
  (void)state;
  double kept[2];
  for (int again = 0; again < 2; again++) {
    g_autoptr(MsScenario) s = ms_test_run("nemotron-3-super", 0, "h100-sxm", 8);
    s->layout.ep = 8;
    if (again)
      s->options.recompute = (MsRecomputeSpec){
          .granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_MOE, .method = MS_RECOMPUTE_UNIFORM, .num_layers = 1};
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = NULL;
    for (int i = 0; i < l.work->n_pieces && !p; i++)
      if (l.work->pieces[i].is_moe) p = &l.work->pieces[i];
    assert_non_null(p);
    assert_int_equal(find_row(&p->backward, "latent up", MS_PASS_RECOMPUTE) != NULL, again);
    kept[again] = p->kept_B;
  }
  assert_true(kept[1] < kept[0] / 2);
}

/* Both factors of the output gate are kept, and their product. */
static void output_gate_is_kept(void **state) {
  (void)state;
  double kept[2];
  for (int gated = 0; gated < 2; gated++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->model->attention_output_gate = gated;
    g_auto(MsLowered) l = ms_test_lower(s);
    kept[gated] = piece(&l, 0)->kept_B;
  }
  assert_close(kept[1] - kept[0], 2 * 2.0 * 4096 * 4096, 1e-9);
}

static void context_gather_and_exchange(void **state) {
  (void)state;
  g_autoptr(MsScenario) gather = long_qwen(MS_CP_ALL_GATHER, 8);
  g_auto(MsLowered) l = ms_test_lower(gather);
  double kw = 2 * 512 / 4.0, whole = 2.0 * 131072 * kw;
  assert_close(message(&piece(&l, 0)->forward, MS_OP_ALL_GATHER, MS_GROUP_CP), whole, 0);
  assert_close(message(&piece(&l, 0)->backward, MS_OP_ALL_GATHER, MS_GROUP_CP), whole, 0);
  assert_close(message(&piece(&l, 0)->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_CP), whole, 0);
  /* keys and values apart; in order; outputs of two pieces into zeros, gradients of 17/16 of all keys likewise */
  double q = 131072 / 8.0 * 64 * 128 / 4;
  assert_int_equal(row(&piece(&l, 0)->forward, "cp gather kv", ANY)->kernels, 2);
  assert_int_equal(row(&piece(&l, 0)->backward, "cp scatter dkv", ANY)->kernels, 2);
  const MsOp *order = row(&piece(&l, 0)->backward, "keys in order", ANY),
             *pieces = row(&piece(&l, 0)->forward, "pieces together", ANY),
             *sums = row(&piece(&l, 0)->backward, "sums of gathered keys", ANY);
  assert_close(order->read_B + order->write_B, 2 * whole, 1e-12);
  assert_close(pieces->read_B + pieces->write_B, 3 * 2 * q, 1e-12);
  assert_close(sums->read_B + sums->write_B, (3 * 17 / 16.0 + 3) * whole + 4 * q, 1e-12);
  assert_close((sums - 1)->transient_B, 3 * whole, 1e-12);
  g_autoptr(MsScenario) exchange = ms_test_run("llama3-70b", ANY, "h100-sxm", 8);
  exchange->training.seq_length = 16384, exchange->layout.cp = 4, exchange->layout.tp = 2,
  exchange->layout.cp_comm_type = MS_CP_A2A;
  g_auto(MsLowered) x = ms_test_lower(exchange);
  double rows = 16384 / 4.0, qkv = 2 * rows * (8192 + 2 * 1024) / 2, out = 2 * rows * 8192 / 2;
  assert_int_equal(count(&piece(&x, 0)->forward, MS_OP_ALL_TO_ALL, MS_GROUP_CP), 4);
  assert_close(named(&piece(&x, 0)->forward, "cp a2a in"), qkv, 0);
  assert_close(row(&piece(&x, 0)->forward, "cp a2a out", ANY)->message_B, out, 0);
  assert_close(message(&piece(&x, 0)->backward, MS_OP_ALL_TO_ALL, MS_GROUP_CP), qkv + out, 0);
}

/* MindSpeed's Ulysses over more ranks than a TP rank has KV groups: keys and values of every head are exchanged and
 * kept. Other frameworks refuse it. */
static void context_repeats_keys(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "ascend-910b", 16);
  s->training.seq_length = 16384, s->layout.cp = 4, s->layout.tp = 4, s->layout.cp_comm_type = MS_CP_A2A;
  g_auto(MsLowered) x = ms_test_lower(s);
  double rows = 16384 / 4.0, heads = 2 * rows * 8192 / 4;
  assert_close(named(&piece(&x, 0)->forward, "cp a2a in"), 3 * heads, 0);
  assert_close(row(&piece(&x, 0)->forward, "repeat keys", ANY)->write_B, 2 * heads, 0);
  assert_close(row(&piece(&x, 0)->backward, "repeat keys", ANY)->read_B, 2 * heads, 0);
  const MsOp *core = row(&piece(&x, 0)->forward, "attention", ANY);
  assert_int_equal(core->kv_groups, core->groups);
  s->layout.tp = 2; /* as many groups as ranks */
  g_auto(MsLowered) enough = ms_test_lower(s);
  assert_close(named(&piece(&enough, 0)->forward, "cp a2a in"), 2 * rows * (8192 + 2 * 1024) / 2, 0);
}

/* However the context is split, the ranks of the group do the work of one. */
static void context_keeps_the_flop(void **state) {
  (void)state;
  double want = 0;
  for (int i = 0; i < 4; i++) {
    static const MsCpComm types[] = {MS_CP_P2P, MS_CP_P2P, MS_CP_ALL_GATHER, MS_CP_A2A};
    g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "h100-sxm", 8);
    s->training.seq_length = 16384, s->layout.cp = i == 0 ? 1 : 4, s->layout.cp_comm_type = types[i];
    g_auto(MsLowered) l = ms_test_lower(s);
    double flop = flop_of(&piece(&l, 0)->forward, "attention", MS_PASS_FORWARD) * s->layout.cp;
    double back = flop_of(&piece(&l, 0)->backward, "attention", MS_PASS_DGRAD) * s->layout.cp;
    if (i == 0) want = flop;
    assert_close(flop, want, 1e-12);
    assert_close(back, 2.5 * want, 1e-12);
  }
}

/* --- dispatch and combine, docs/theory/communication.md 5.3 ------------------------------------------------------- */
typedef struct {
  const char *model, *hardware;
  int tp, ep;
  gboolean no_groups;
  double total, nvlink, rdma;                      /* alltoall, MiB */
  double x_rank, x_domain, flex_nvlink, flex_rdma; /* de-duplicated */
} Crossing;

static void check_alltoall(const Crossing *c, const MsLowered *l, const MsPiece *p) {
  const MsGroup *g = &l->layout->group[MS_GROUP_EP];
  const MsOp *combine = row(&p->forward, "combine", MS_PASS_FORWARD),
             *dispatch = row(&p->forward, "dispatch", MS_PASS_FORWARD);
  assert_close(combine->message_B / MS_MIB, c->total, 1e-12);
  assert_close(combine->local_fraction, 1.0 / c->ep, 1e-12);
  assert_close(combine->message_B * (g->per_domain - 1) / g->size / MS_MIB, c->nvlink, 1e-12);
  assert_close(combine->message_B * (g->size - g->per_domain) / g->size / MS_MIB, c->rdma, 1e-12);
  /* dispatch carries a 4-byte probability with every copy */
  assert_close(dispatch->message_B - combine->message_B,
               4 * combine->message_B / (2.0 * l->scenario->model->hidden_size), 1e-9);
  /* ... in a message of its own */
  assert_int_equal(dispatch->kernels, 2);
  assert_int_equal(combine->kernels, 1);
  assert_int_equal(row(&p->backward, "dispatch", ANY)->kernels, 1);
  assert_int_equal(row(&p->backward, "combine", ANY)->kernels, 2);
  /* backward: gradients go out the way of the tokens, without probabilities; theirs come back with the gradients of the
   * tokens */
  assert_close(message(&p->backward, MS_OP_DISPATCH, MS_GROUP_EP), combine->message_B, 1e-12);
  assert_close(message(&p->backward, MS_OP_COMBINE, MS_GROUP_EP), dispatch->message_B, 1e-12);
  assert_close(row(&p->forward, "token counts", MS_PASS_FORWARD)->message_B,
               8.0 * l->scenario->model->num_experts * l->layout->group[MS_GROUP_TP_EP].size, 0);
}

static void check_flex(const Crossing *c, const MsLowered *l, const MsPiece *p) {
  const MsOp *combine = row(&p->forward, "combine", MS_PASS_FORWARD),
             *dispatch = row(&p->forward, "dispatch", MS_PASS_FORWARD);
  double token_B = 2.0 * l->scenario->model->hidden_size;
  assert_int_equal(dispatch->kernels, 1);
  assert_true(fabs(combine->message_B / (l->work->rows_sp * token_B) - c->x_rank) < 0.00051);
  assert_true(fabs(combine->level_B[0] / MS_MIB - c->flex_nvlink) < 0.051);
  assert_true(fabs(combine->level_B[1] / MS_MIB - c->flex_rdma) < 0.051);
  int nodes = l->layout->group[MS_GROUP_TP_EP].domains;
  if (nodes > 1)
    assert_true(fabs(combine->level_B[1] / (l->work->rows_sp * token_B * (1 - 1.0 / nodes)) - c->x_domain) < 0.00051);
  const MsModel *m = l->scenario->model;
  if (l->scenario->options.dispatcher == MS_DISPATCH_DEEPEP) { /* metadata */
    assert_true(dispatch->level_B[0] > combine->level_B[0] && dispatch->level_B[0] < 1.02 * combine->level_B[0]);
    return;
  }
  for (int level = 0; level < (nodes > 1 ? 2 : 1);
       level++) /* an FP32 weight for each expert of the domain with every copy */
    assert_close(dispatch->level_B[level] / combine->level_B[level], 1 + 4.0 * m->num_experts / nodes / token_B, 1e-12);
  assert_close(row(&p->forward, "routing map", MS_PASS_FORWARD)->message_B,
               l->work->rows_sp * m->num_experts * l->layout->group[MS_GROUP_TP_EP].size, 0);
}

static void bytes_of_the_dispatchers(void **state) {
  (void)state;
  static const Crossing want[] = {
      {"deepseek-v3", "h100-sxm", 1, 64, TRUE, 448, 49, 392, 7.676, 5.295, 376.1, 259.4},
      {"deepseek-v3", "h100-sxm", 1, 64, FALSE, 448, 49, 392, 7.359, 3.629, 360.6, 177.8},
      {"deepseek-v3", "h100-sxm", 2, 64, TRUE, 224, 24.5, 196, 7.676, 5.295, 188.1, 129.7},
      {"qwen3-235b-a22b", "h100-sxm", 2, 32, FALSE, 128, 28, 96, 7.359, 3.629, 103.0, 43.5},
      {"qwen3-235b-a22b", "h100-sxm", 1, 8, FALSE, 256, 224, 0, 5.339, 1, 149.5, 0},
      {"mixtral-8x7b", "h100-sxm", 1, 8, FALSE, 64, 56, 0, 2.0, 1, 56.0, 0},
      {"deepseek-v3", "gb200-nvl72", 1, 64, TRUE, 448, 441, 0, 7.676, 1, 423.1, 0},
  };
  static const MsDispatcher dispatchers[] = {MS_DISPATCH_ALLTOALL, MS_DISPATCH_DEEPEP, MS_DISPATCH_HYBRIDEP};
  for (guint i = 0; i < G_N_ELEMENTS(want); i++)
    for (guint d = 0; d < G_N_ELEMENTS(dispatchers); d++) {
      const Crossing *c = &want[i];
      g_autoptr(MsScenario) s = ms_test_run(c->model, 0, c->hardware, c->ep * c->tp);
      if (c->no_groups) s->model->moe_router_num_groups = s->model->moe_router_group_topk = 0;
      s->layout.tp = c->tp, s->layout.ep = c->ep, s->options.dispatcher = dispatchers[d];
      g_auto(MsLowered) l = ms_test_lower(s);
      const MsPiece *p = piece(&l, s->model->num_layers - 1);
      if (d == 0) check_alltoall(c, &l, p);
      else check_flex(c, &l, p);
    }
}

/* Where they multiply in unpermute, weights stay with the rank of the token; one that brings tokens once sends them. */
static void weights_that_stay(void **state) {
  (void)state;
  for (int once = 0; once < 2; once++) {
    g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
    s->layout.ep = 8, s->options.dispatcher = once ? MS_DISPATCH_DEEPEP : MS_DISPATCH_ALLTOALL;
    g_auto(MsLowered) with = ms_test_lower(s);
    double travels = row(&piece(&with, 0)->forward, "dispatch", ANY)->message_B;
    s->options.moe_memory_efficient_permutation = FALSE;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsOp *dispatch = row(&piece(&l, 0)->forward, "dispatch", ANY),
               *combine = row(&piece(&l, 0)->forward, "combine", ANY);
    assert_int_equal(dispatch->kernels, 1);
    if (once) assert_close(dispatch->message_B, travels, 0);
    else assert_close(dispatch->message_B, combine->message_B, 0);
  }
}

/* Around a sum of outputs in FP32, and around the gather of their gradients: bytes of a cast of `all` elements, and of
 * this rank's `own`. */
static void outputs_are_cast(const MsPiece *p, double all, double own) {
  const MsOp *wide = row(&p->forward, "outputs in FP32", MS_PASS_FORWARD),
             *low = row(&p->forward, "outputs in BF16", MS_PASS_FORWARD),
             *d_wide = row(&p->backward, "outputs in FP32", MS_PASS_DGRAD),
             *d_low = row(&p->backward, "outputs in BF16", MS_PASS_DGRAD);
  assert_close(wide->read_B, 2 * all, 0), assert_close(wide->write_B, 4 * all, 0);
  assert_close(low->read_B, 4 * own, 0), assert_close(low->write_B, 2 * own, 0);
  assert_close(d_wide->read_B, 2 * own, 0), assert_close(d_wide->write_B, 4 * own, 0);
  assert_close(d_low->read_B, 4 * all, 0), assert_close(d_low->write_B, 2 * all, 0);
}

static void expert_tensor_parallel_and_gathering_dispatcher(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->layout.ep = 4, s->layout.etp = 2;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = piece(&l, 0);
  double tk = 4096 * 2 * 2, h = 4096;
  assert_close(l.work->rows_expert, tk, 0);
  assert_close(message(&p->forward, MS_OP_ALL_GATHER, MS_GROUP_ETP), (2 * h + 4) * tk,
               0); /* tokens and their FP32 weights */
  assert_close(message(&p->forward, MS_OP_REDUCE_SCATTER, MS_GROUP_ETP), 4 * tk * h,
               0); /* in the dtype of the probabilities */
  outputs_are_cast(p, tk * h, tk / 2 * h);
  assert_int_equal(count(&p->backward, MS_OP_ALL_GATHER, MS_GROUP_ETP), 1);
  assert_int_equal(count(&p->backward, MS_OP_REDUCE_SCATTER, MS_GROUP_ETP), 1);
  const MsOp *fc1 = row(&p->forward, "expert fc1", MS_PASS_FORWARD);
  assert_close(fc1->m, tk, 0);
  assert_close(fc1->n, 2 * 14336 / 2, 0);
  s->options.dispatcher = MS_DISPATCH_ALLGATHER;
  g_auto(MsLowered) g = ms_test_lower(s);
  const MsOp *dispatch = row(&piece(&g, 0)->forward, "dispatch", MS_PASS_FORWARD);
  assert_int_equal(dispatch->group, MS_GROUP_TP_EP);
  assert_close(dispatch->message_B, 4096.0 * 8 * (2 * h + 8 * (1 + 4)),
               0); /* hidden, routing map, FP32 probabilities: no top-k in it */
  /* outputs and their gradients in FP32; tokens' gradients in BF16 beside those of the probabilities */
  const MsPiece *all = piece(&g, 0);
  assert_close(row(&all->forward, "combine", MS_PASS_FORWARD)->message_B, 4096.0 * 8 * 4 * h, 0);
  assert_close(row(&all->backward, "dispatch", MS_PASS_DGRAD)->message_B, 4096.0 * 8 * 4 * h, 0);
  assert_close(row(&all->backward, "combine", MS_PASS_DGRAD)->message_B, 4096.0 * 8 * (2 * h + 8 * 4), 0);
  outputs_are_cast(all, 4096.0 * 8 * h, 4096 * h);
}

/* --- pipeline, docs/theory/communication.md 6 --------------------------------------------------------------------- */
static void pipeline_messages(void **state) {
  (void)state;
  static const struct {
    const char *model;
    int tp;
    double mib;
  } want[] = {{"deepseek-v3", 1, 56}, {"deepseek-v3", 2, 28}, {"qwen3-235b-a22b", 2, 16}, {"mixtral-8x7b", 1, 32}};
  for (guint i = 0; i < G_N_ELEMENTS(want); i++) {
    g_autoptr(MsScenario) s = ms_test_run(want[i].model, 0, "h100-sxm", 32);
    s->layout.tp = want[i].tp, s->layout.pp = 2, s->layout.ep = 8;
    if (!strcmp(want[i].model, "deepseek-v3")) s->layout.pipeline_layout = g_strdup("Et*30|t*31L");
    g_auto(MsLowered) l = ms_test_lower(s);
    GError *error = NULL;
    g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
    assert_non_null(cost);
    MsProgram *program = ms_program_new(l.work, cost);
    assert_close(program->p2p_op.message_B, want[i].mib * MS_MIB, 0);
    ms_program_free(program);
  }
}

static double boundary_s(const MsScenario *s, double *message_B) {
  g_auto(MsLowered) l = ms_test_lower((MsScenario *)s);
  GError *error = NULL;
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
  assert_non_null(cost);
  MsProgram *program = ms_program_new(l.work, cost);
  double time_s = program->p2p.time_s;
  *message_B = program->p2p_op.message_B;
  ms_program_free(program);
  return time_s;
}

/* Old Megatron-LM: without sequence parallelism every tensor rank sends its share, which the receiver's group gathers;
 * with it, nothing changes. */
static void pipeline_messages_in_shares(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", ANY, "h100-sxm", 32);
  s->layout.tp = 4, s->layout.pp = 8;
  for (int sequence = 0; sequence < 2; sequence++) {
    double whole_B, share_B;
    s->options.sequence_parallel = sequence;
    s->stack.pipeline_scatter = FALSE;
    double whole_s = boundary_s(s, &whole_B);
    s->stack.pipeline_scatter = TRUE;
    double share_s = boundary_s(s, &share_B);
    assert_close(share_B, sequence ? whole_B : whole_B / 4, 0);
    assert_true(sequence ? share_s == whole_s : share_s < 0.5 * whole_s && share_s > 0.25 * whole_s);
  }
}

/* Host time of the backward of one MoE layer, and how many operators of it are run a second time. */
static double backward_host_s(const MsScenario *s, int *again) {
  g_auto(MsLowered) l = ms_test_lower((MsScenario *)s);
  GError *error = NULL;
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
  assert_non_null(cost);
  g_autoptr(MsProgram) program = ms_program_new(l.work, cost);
  const MsCosted *c = &program->piece[l.work->piece_of_layer[5]].backward;
  MsTime sum = 0;
  *again = 0;
  for (int i = 0; i < c->list->n; i++) {
    sum += c->launch[i];
    if (c->list->op[i].pass == MS_PASS_RECOMPUTE) *again += c->list->op[i].kernels;
  }
  return (double)sum / MS_PS_PER_S;
}

/* A recomputed region costs the host 12 operators (random states) besides those that it runs again; nothing inside a
 * captured graph. */
static void recomputed_regions_cost_the_host(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 64);
  s->layout.ep = 8;
  int again;
  double none_s = backward_host_s(s, &again);
  assert_int_equal(again, 0);
  s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_SELECTIVE, MS_RM_MOE_ACT, 0, 1};
  double one_s = backward_host_s(s, &again);
  assert_true(again > 0);
  assert_close(one_s - none_s, (again + s->laws.checkpoint_operators) * s->hardware->kernel_launch_s, 1e-9);
}

/* --- data parallel, docs/theory/communication.md 7 ---------------------------------------------------------------- */
static void data_parallel_bytes(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = deepseek(2, 1024);
  s->model->mtp_num_layers = 1;
  s->layout.pp = 8, s->layout.vpp = 4, s->layout.pipeline_layout = g_strdup("Et|(tt|)*30mL");
  s->training.global_batch_size = 8192;
  g_autoptr(MsScenario) mixtral = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 64);
  mixtral->layout.pp = 4, mixtral->layout.ep = 8;
  const struct {
    MsScenario *s;
    int stage;
    double dense_GB, expert_GB, dense_digit, expert_digit;
  } want[] = {{s, 2, 4.0, 5.64, 0.05, 0.0051}, {mixtral, 1, 1.34, 5.64, 0.0051, 0.0051}};
  for (guint i = 0; i < G_N_ELEMENTS(want); i++)
    for (int overlap = 0; overlap < 2; overlap++) {
      MsScenario *w = want[i].s;
      w->options.overlap_grad_reduce = w->options.overlap_param_gather = overlap;
      g_auto(MsLowered) l = ms_test_lower(w);
      assert_int_equal(l.layout->group[MS_GROUP_EDP].size, 2);
      assert_int_equal(l.layout->group[MS_GROUP_DP_CP].size, i == 0 ? 64 : 16);
      MsStepOps ops;
      ms_work_step_ops(l.work, want[i].stage, &ops);
      const MsOpList *reduce = overlap ? &ops.reduce : &ops.after, *gather = overlap ? &ops.gather : &ops.after;
      assert_true(fabs(named(reduce, "dp reduce") / 1e9 - want[i].dense_GB) < want[i].dense_digit);
      assert_true(fabs(named(gather, "dp gather") / 1e9 - want[i].dense_GB / 2) < want[i].dense_digit);
      assert_true(fabs(named(reduce, "edp reduce") / 1e9 - want[i].expert_GB) < want[i].expert_digit);
      assert_true(fabs(named(gather, "edp gather") / 1e9 - want[i].expert_GB / 2) < want[i].expert_digit);
      MsStageParams p = ms_work_stage_params(l.work, want[i].stage);
      assert_close(named(reduce, "dp reduce"), 4 * (p.params_dense + p.embedding_copy), 1e-12);
      assert_close(named(reduce, "edp reduce"), 4 * p.params_expert, 1e-12);
      assert_int_equal(ops.reduce.n > 0, overlap);
      assert_int_equal(ops.gather.n > 0, overlap);
      ms_step_ops_clear(&ops);
    }
}

/* Tokens of each expert are summed over the ranks of a sequence, or of the batch, once for a forward that autograd
 * keeps: of a checkpointed layer in the one that is made again. */
static void expert_counts_are_summed(void **state) {
  (void)state;
  const struct {
    MsBalance type;
    int tp, mbs;
    MsRecompute recompute;
    gboolean moe_again;
    int forward, backward;
    MsGroupKind group;
  } cases[] = {{MS_BALANCE_AUX, 2, 1, MS_RECOMPUTE_NONE, FALSE, 1, 0, MS_GROUP_TP_CP},
               {MS_BALANCE_SEQ_AUX, 2, 2, MS_RECOMPUTE_FULL, FALSE, 0, 1, MS_GROUP_TP_CP},
               {MS_BALANCE_AUX, 2, 1, MS_RECOMPUTE_SELECTIVE, TRUE, 0, 1, MS_GROUP_TP_CP},
               {MS_BALANCE_GLOBAL_AUX, 1, 1, MS_RECOMPUTE_NONE, FALSE, 1, 0, MS_GROUP_TP_DP_CP},
               {MS_BALANCE_AUX, 1, 1, MS_RECOMPUTE_NONE, FALSE, 0, 0, MS_GROUP_TP_CP}, /* a rank has all of it */
               {MS_BALANCE_NONE, 2, 1, MS_RECOMPUTE_NONE, FALSE, 0, 0, MS_GROUP_TP_CP}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-235b-a22b", ANY, "h100-sxm", 64);
    s->layout.tp = cases[i].tp, s->layout.ep = 8, s->training.micro_batch_size = cases[i].mbs;
    s->model->moe_router_load_balancing_type = cases[i].type, s->model->moe_aux_loss_coeff = 1e-3;
    s->options.recompute = (MsRecomputeSpec){.granularity = cases[i].recompute, .num_layers = 1};
    if (cases[i].moe_again) s->options.recompute.modules = MS_RM_MOE;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = piece(&l, 0);
    assert_int_equal(count_named(&p->forward, "expert counts"), cases[i].forward);
    assert_int_equal(count_named(&p->backward, "expert counts"), cases[i].backward);
    if (cases[i].forward + cases[i].backward == 0) continue;
    const MsOp *sum = row(cases[i].forward ? &p->forward : &p->backward, "expert counts", ANY);
    assert_int_equal(sum->kind, MS_OP_ALL_REDUCE);
    assert_int_equal(sum->group, cases[i].group);
    assert_close(sum->message_B, 8 * 128 * cases[i].mbs, 0);
  }
}

static const MsOp *counts_to_host(const MsOpList *list) {
  const MsOp *op = row(list, "row counts to host", ANY);
  assert_true(op->flags & MS_OPF_SYNC);
  return op;
}

/* The host reads how many rows come behind the permutation, in front of it where rows are dropped or padded, and even
 * where one rank has all experts: then from a copy that waits for the counting alone. */
static void host_reads_the_counts(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->layout.ep = 8, s->options.dispatcher = MS_DISPATCH_ALLTOALL;
  for (int padded = 0; padded < 2; padded++) {
    s->options.moe_router_padding_for_quantization = padded;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsOpList *list = &piece(&l, 0)->forward;
    assert_int_equal(counts_to_host(list) < row(list, "permute", ANY), padded);
    assert_int_equal(count_named(list, "row counts to host"), 1);
  }
  s->layout.ep = 1, s->options.moe_router_padding_for_quantization = FALSE;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsOpList *list = &piece(&l, 0)->forward;
  const MsOp *wait = counts_to_host(list);
  assert_true(wait > row(list, "permute", ANY));
  assert_int_equal(wait->wait[0], row(list, "dispatch preprocess", ANY) - list->op);
  assert_int_equal(row(list, "expert fc1", ANY)->wait[0], row(list, "permute", ANY) - list->op);
  assert_int_equal(count_named(&piece(&l, 0)->backward, "row counts to host"), 0);
}

/* Tokens and router weights go by a message each over expert tensor parallelism, outputs by one. */
static void expert_tensor_messages(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 16);
  s->layout.ep = 4, s->layout.etp = 2, s->options.dispatcher = MS_DISPATCH_ALLTOALL;
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_int_equal(row(&piece(&l, 0)->forward, "etp gather", ANY)->kernels, 2);
  assert_int_equal(row(&piece(&l, 0)->forward, "etp scatter", ANY)->kernels, 1);
  assert_int_equal(row(&piece(&l, 0)->backward, "etp gather", ANY)->kernels, 1);
  assert_int_equal(row(&piece(&l, 0)->backward, "etp scatter", ANY)->kernels, 2);
  s->options.dispatcher = MS_DISPATCH_ALLGATHER; /* tokens, map and weights; sums; their gradients; those of both */
  g_auto(MsLowered) all = ms_test_lower(s);
  assert_int_equal(row(&piece(&all, 0)->forward, "dispatch", ANY)->kernels, 3);
  assert_int_equal(row(&piece(&all, 0)->forward, "combine", ANY)->kernels, 1);
  assert_int_equal(row(&piece(&all, 0)->backward, "dispatch", ANY)->kernels, 1);
  assert_int_equal(row(&piece(&all, 0)->backward, "combine", ANY)->kernels, 2);
}

/* Learned positions are added to whole sequences, in front of the cut. */
static void learned_positions_need_whole_rows(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("gpt3-175b", ANY, "h100-sxm", 8);
  s->layout.tp = 8;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsOp *sum = row(&embedding(&l)->forward, "tp scatter", ANY);
  assert_int_equal(sum->kind, MS_OP_ALL_REDUCE);
  assert_close(row(&embedding(&l)->forward, "position add", ANY)->write_B, sum->message_B, 1e-12);
  assert_int_equal(row(&embedding(&l)->backward, "tp gather", ANY)->kind, MS_OP_ALL_GATHER);
  s->model->position_embedding = MS_POS_ROPE;
  g_auto(MsLowered) turned = ms_test_lower(s);
  assert_int_equal(row(&embedding(&turned)->forward, "tp scatter", ANY)->kind, MS_OP_REDUCE_SCATTER);
}

/* Llama 3 8B, TP 4, DP 2: each rank owns matrices of 16 layers, queries, keys and values apart. Gathered, it iterates
 * on all of each; blockwise on what it has; distributed on that, with the Gram matrix over the side that is whole. */
static void muon_over_tp(void **state) {
  (void)state;
  const double h = 4096, q = 4096, kv = 1024, f = 14336, layers = 16, t = 4, steps = 5,
               side[][3] = {{q, h, 1}, {kv, h, 2}, {h, q, 1}, {2 * f, h, 1}, {h, f, 1}}; /* outputs, inputs, how many */
  double gathered_B = 0, gram[3] = {0}, sums_B = 0;
  for (int i = 0; i < 5; i++) {
    double m = side[i][0], n = side[i][1], count = layers * side[i][2];
    gboolean inputs = i == 2 || i == 4;
    double less = MIN(m, n), part = inputs ? n / t : m / t, whole = inputs ? m : n;
    gathered_B += 4 * count * m * n;
    gram[MS_MUON_DUPLICATED] += 2 * steps * count * less * m * n;
    gram[MS_MUON_BLOCKWISE] += 2 * steps * count * MIN(part, whole) * part * whole;
    gram[MS_MUON_DISTRIBUTED] += 2 * steps * count * whole * whole * part;
    sums_B += 2 * steps * count * whole * whole;
  }
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  s->layout.tp = 4, s->training.optimizer = MS_OPT_MUON;
  for (int mode = 0; mode < 3; mode++) {
    s->options.muon_tp_mode = (MsMuonTp)mode;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStepOps ops;
    ms_work_step_ops(l.work, 0, &ops);
    assert_close(flop_of(&ops.after, "muon gram", ANY), gram[mode], 1e-12);
    assert_close(flop_of(&ops.after, "muon apply", ANY), gram[mode], 1e-12);
    assert_close(named(&ops.after, "muon gather"), mode == MS_MUON_DUPLICATED ? gathered_B : 0, 1e-12);
    assert_close(named(&ops.after, "muon gram sum"), mode == MS_MUON_DISTRIBUTED ? sums_B : 0, 1e-12);
    if (mode == MS_MUON_DUPLICATED) { /* one matrix after another */
      const MsOp *first = row(&ops.after, "muon gather", ANY);
      assert_true(first->group == MS_GROUP_TP && first->dtype == MS_ODT_FP32 && first->kernels == layers);
      assert_close(row(&ops.after, "muon join", ANY)->transient_B, 12 * 2 * f * h, 1);
    }
    ms_step_ops_clear(&ops);
  }
  s->layout.tp = 1;
  g_auto(MsLowered) l = ms_test_lower(s);
  MsStepOps ops;
  ms_work_step_ops(l.work, 0, &ops);
  assert_close(named(&ops.after, "muon gather") + named(&ops.after, "muon gram sum"), 0, 1e-12);
  ms_step_ops_clear(&ops);
}

typedef struct {
  const char *name;
  MsOpKind kind;
  MsGroupKind group;
  MsStream stream;
  double message_B;
} Message;

/* Rows of messages from the first one of these on, one after the other; each behind its own stream's last. */
static void assert_messages(const MsOpList *list, const Message *want, int n) {
  int last[MS_N_STREAMS], k = 0;
  for (int s = 0; s < MS_N_STREAMS; s++) last[s] = -1;
  for (int i = 0; i < list->n && k < n; i++) {
    const MsOp *op = &list->op[i];
    if (k == 0 && strcmp(op->name, want[0].name) != 0) continue;
    if (op->stream == MS_STREAM_COMPUTE) continue;
    if (strcmp(op->name, want[k].name) != 0) fail_msg("row %s, not %s", op->name, want[k].name);
    assert_int_equal(op->kind, want[k].kind);
    assert_int_equal(op->group, want[k].group);
    assert_int_equal(op->stream, want[k].stream);
    assert_close(op->message_B, want[k].message_B, 1e-12);
    gboolean behind = last[op->stream] < 0;
    for (int j = 0; j < 3; j++) behind |= op->wait[j] == last[op->stream];
    assert_true(behind);
    last[op->stream] = i, k++;
  }
  assert_int_equal(k, n);
}

/* Llama 3 8B on 64 GPUs in 4 instances: 16 ranks of two nodes share an optimizer, whose shards 4 ranks have alike. */
static void instances_of_a_dense_model(void **state) {
  (void)state;
  const double params = 8030261248;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 64);
  s->options.num_distributed_optimizer_instances = 4, s->options.grad_reduce_dtype = MS_DT_FP32;
  s->options.overlap_grad_reduce = s->options.overlap_param_gather = FALSE;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsGroup *within = &l.layout->group[MS_GROUP_INTRA_DP_CP], *across = &l.layout->group[MS_GROUP_INTER];
  assert_true(within->size == 16 && within->nodes == 2 && within->per_domain == 8);
  assert_true(across->size == 4 && across->nodes == 4 && across->per_domain == 1);
  assert_close(ms_work_shards(l.work, FALSE), 16, 0);
  MsStepOps ops;
  ms_work_step_ops(l.work, 0, &ops);
  const Message after[] = {
      {"dp reduce", MS_OP_REDUCE_SCATTER, MS_GROUP_INTRA_DP_CP, MS_STREAM_DP, 4 * params},
      {"dp reduce across", MS_OP_ALL_REDUCE, MS_GROUP_INTER, MS_STREAM_DP, 4 * params / 16},
  };
  assert_messages(&ops.after, after, G_N_ELEMENTS(after));
  assert_close(row(&ops.after, "dp gather", ANY)->message_B, 2 * params, 1e-12);
  assert_int_equal(row(&ops.after, "dp gather", ANY)->group, MS_GROUP_INTRA_DP_CP);
  ms_step_ops_clear(&ops);
  s->options.fsdp = MS_FSDP_OPTIM; /* Megatron-FSDP sums all that it has of a gradient that it does not shard */
  ms_work_step_ops(l.work, 0, &ops);
  assert_close(row(&ops.after, "dp reduce across", ANY)->message_B, 4 * params, 1e-12);
  const MsOp *norm = row(&ops.after, "gradient norm", ANY), *across_row = row(&ops.after, "dp reduce across", ANY);
  assert_true(norm->wait[0] == across_row - ops.after.op || norm->wait[1] == across_row - ops.after.op);
  ms_step_ops_clear(&ops);
}

/* Mixtral on 64 GPUs, TP 2, EP 8, two instances: of 32 ranks 16 share dense optimizer states, of 8 ranks 4 those of
 * experts. With overlap every bucket is summed over the instances before the next one is reduced. */
static void instances_of_experts(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 64);
  s->layout.tp = 2, s->layout.ep = 8, s->layout.etp = 1, s->options.grad_reduce_dtype = MS_DT_BF16;
  s->options.main_grads_dtype = MS_DT_BF16, s->options.num_distributed_optimizer_instances = 2;
  for (int overlap = 0; overlap < 2; overlap++) {
    s->options.overlap_grad_reduce = s->options.overlap_param_gather = overlap;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStageParams p = ms_work_stage_params(l.work, 0);
    assert_int_equal(l.layout->group[MS_GROUP_INTRA_DP_CP].size, 16);
    assert_int_equal(l.layout->group[MS_GROUP_INTRA_EDP].size, 4);
    MsStepOps ops;
    ms_work_step_ops(l.work, 0, &ops);
    const MsOpList *reduce = overlap ? &ops.reduce : &ops.after;
    const Message all[] = {
        {"dp reduce", MS_OP_REDUCE_SCATTER, MS_GROUP_INTRA_DP_CP, MS_STREAM_DP, 2 * p.params_dense},
        {"dp reduce across", MS_OP_ALL_REDUCE, MS_GROUP_INTER, MS_STREAM_DP, 2 * p.params_dense / 16},
        {"edp reduce", MS_OP_REDUCE_SCATTER, MS_GROUP_INTRA_EDP, MS_STREAM_EDP, 2 * p.params_expert},
        {"edp reduce across", MS_OP_ALL_REDUCE, MS_GROUP_INTER, MS_STREAM_EDP, 2 * p.params_expert / 4},
    };
    if (!overlap) assert_messages(reduce, all, G_N_ELEMENTS(all));
    const MsOp *before[MS_N_STREAMS] = {NULL};
    for (int i = 0; overlap && i < reduce->n; i++) { /* what is summed has just been reduced, on the same stream */
      const MsOp *op = &reduce->op[i], *scattered = before[op->stream];
      before[op->stream] = op;
      if (op->group != MS_GROUP_INTER) continue;
      assert_true(scattered && scattered->kind == MS_OP_REDUCE_SCATTER);
      assert_close(op->message_B, scattered->message_B / l.layout->group[scattered->group].size, 1e-12);
    }
    assert_close(named(reduce, "dp reduce across"), 2 * p.params_dense / 16, 1e-12);
    assert_close(named(reduce, "edp reduce across"), 2 * p.params_expert / 4, 1e-12);
    assert_int_equal(count(reduce, MS_OP_ALL_REDUCE, MS_GROUP_INTER),
                     count_named(reduce, "dp reduce") + count_named(reduce, "edp reduce"));
    assert_close(named(overlap ? &ops.gather : &ops.after, "edp gather"), 2 * p.params_expert, 1e-12);
    ms_step_ops_clear(&ops);
  }
}

/* FSDP of the same 4 instances: passes gather and reduce inside one. Megatron-FSDP sums over them what the last
 * microbatch left, unit by unit; fully_shard behind every backward. Instances that share the optimizer keep a part each
 * and gather it before the first forward. */
static void instances_of_fsdp(void **state) {
  (void)state;
  const double layer = 218112000;
  for (int k = 0; k < 3; k++) {
    gboolean torch = k == 1, optim = k == 2;
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 64);
    if (torch) {
      s->framework = MS_FRAMEWORK_TORCHTITAN, ms_fields_defaults(&ms_options_table, &s->options);
      ms_framework_defaults(s->framework, &s->options), s->options.dispatcher = MS_DISPATCH_ALLTOALL;
    }
    s->options.num_distributed_optimizer_instances = 4, s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
    s->options.grad_reduce_dtype = MS_DT_FP32;
    s->options.outer_dp_sharding_strategy = optim ? MS_OUTER_OPTIM : MS_OUTER_NO_SHARD;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsUnitOps unit;
    MsStepOps ops;
    ms_work_unit_ops(l.work, l.work->piece_of_layer[0], &unit);
    ms_work_step_ops(l.work, 0, &ops);
    const Message gather[] = {{"dp gather", MS_OP_ALL_GATHER, MS_GROUP_INTRA_DP_CP, MS_STREAM_DP, 2 * layer}},
                  first[] = {{"dp gather across", MS_OP_ALL_GATHER, MS_GROUP_INTER, MS_STREAM_DP, 2 * layer / 16}},
                  reduce[] = {{"dp reduce", MS_OP_REDUCE_SCATTER, MS_GROUP_INTRA_DP_CP, MS_STREAM_DP, 4 * layer},
                              {"dp reduce across", optim ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE, MS_GROUP_INTER,
                               MS_STREAM_DP, 4 * layer / 16}};
    assert_messages(&unit.gather, gather, 1);
    assert_int_equal(unit.first.n, optim);
    if (optim) assert_messages(&unit.first, first, 1);
    assert_messages(&unit.reduce, reduce, torch ? 2 : 1);
    assert_int_equal(count_named(&unit.reduce, "dp reduce across"), torch);
    assert_int_equal(ops.reduce.n, torch ? 0 : 34); /* embedding, layers and head, the last one first */
    for (int i = 0; i < ops.reduce.n; i++) assert_int_equal(ops.reduce_at[i].piece, 33 - i);
    if (!torch) assert_close(ops.reduce.op[1].message_B, 4 * layer / 16, 1e-12);
    if (!torch) assert_int_equal(ops.reduce.op[1].kind, reduce[1].kind);
    assert_close(ms_work_shards(l.work, FALSE), optim ? 64 : 16, 0);
    ms_unit_ops_clear(&unit), ms_step_ops_clear(&ops);
  }
}

static const MsOp *first_of(const MsOpList *list, const char *name) {
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->op[i].name, name)) return &list->op[i];
  return NULL;
}

/* Llama 3 8B: products of the layers have 32 x 218,103,808 weights, all else (embedding, head, norms) 1,050,939,392.
 * Only the first are gathered in the type in which they are kept. What products read column by column is made on
 * arrival, but where one copy serves both, and of MXFP8, which is cast from what was gathered. */
static void gathered_types(void **state) {
  (void)state;
  const double low = 6979321856, other = 1050939392;
  static const struct {
    MsPrecision precision;
    const char *machine;
    double low_B;
    gboolean turned;
  } rows[] = {{MS_BF16, "h100-sxm", 2, FALSE},          {MS_FP8_DELAYED, "h100-sxm", 1, TRUE},
              {MS_FP8_TENSORWISE, "h100-sxm", 1, TRUE}, {MS_FP8_TENSORWISE, "b200-sxm", 1, FALSE},
              {MS_FP8_BLOCKWISE, "h100-sxm", 1, TRUE},  {MS_MXFP8, "b200-sxm", 2, FALSE},
              {MS_NVFP4, "b200-sxm", 0.5, TRUE}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, rows[i].machine, 8);
    s->training.precision = rows[i].precision;
    s->options.fp8_param_gather = ms_precision(&s->training)->bits == 8;
    s->options.fp4_param_gather = ms_precision(&s->training)->bits == 4;
    for (int overlap = 0; overlap < 2; overlap++) {
      s->options.overlap_grad_reduce = s->options.overlap_param_gather = overlap;
      g_auto(MsLowered) l = ms_test_lower(s);
      MsStepOps ops;
      ms_work_step_ops(l.work, 0, &ops);
      assert_close(named(overlap ? &ops.gather : &ops.after, "dp gather"), rows[i].low_B * low + 2 * other, 1e-12);
      assert_true((first_of(&ops.before, "turn weights") != NULL) == rows[i].turned);
      ms_step_ops_clear(&ops);
    }
    s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsUnitOps unit;
    ms_work_unit_ops(l.work, l.work->piece_embedding, &unit);
    assert_close(named(&unit.first, "dp gather"), 2 * 128256.0 * 4096, 1e-12); /* stays for the step */
    assert_int_equal(unit.gather.n, 0);
    ms_unit_ops_clear(&unit);
    ms_work_unit_ops(l.work, l.work->piece_of_layer[0], &unit);
    /* of MXFP8 rows forward and columns backward, without the gradients' buffer; else columns in front of a backward */
    double row_B = rows[i].precision == MS_MXFP8 ? 1 : rows[i].low_B;
    assert_close(named(&unit.gather, "dp gather"), row_B * 218103808 + 2 * 8192, 1e-12);
    assert_int_equal(unit.cast[0].n, 0);
    assert_int_equal(count_named(&unit.cast[1], "turn weights"), rows[i].turned);
    assert_int_equal(unit.cast[1].n, rows[i].turned);
    ms_unit_ops_clear(&unit);
  }
}

/* Megatron-FSDP: weight gradients overwrite a buffer of the type on the wire. */
static void fsdp_overwrites_gradients(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->options.main_grads_dtype = MS_DT_FP32, s->options.grad_reduce_dtype = MS_DT_BF16;
  double read_B[2], written_B[2], expert_B[2], weights = 4096.0 * 4096, experts = 8 * 4096.0 * 14336;
  for (int sharded = 0; sharded < 2; sharded++) {
    s->options.fsdp = sharded ? MS_FSDP_OPTIM_GRADS : MS_FSDP_OPTIM;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsOp *out = row(&piece(&l, 0)->backward, "attention out", MS_PASS_WGRAD),
               *fc2 = row(&piece(&l, 0)->backward, "expert fc2", MS_PASS_WGRAD);
    if (sharded) { /* and a factor of BF16 ones is multiplied in front of the reduction */
      MsUnitOps unit;
      ms_work_unit_ops(l.work, l.work->piece_of_layer[0], &unit);
      const MsPiece *p = piece(&l, 0);
      assert_close(row(&unit.reduce, "gradient scale", ANY)->write_B, 2 * (p->params_dense + p->params_expert), 1e-12);
      ms_unit_ops_clear(&unit);
    }
    read_B[sharded] = out->read_B, written_B[sharded] = out->write_B, expert_B[sharded] = fc2->read_B + fc2->write_B;
  }
  assert_close(read_B[0] - read_B[1], 4 * weights, 1e-9);
  assert_close(written_B[0], 4 * weights, 1e-12);
  assert_close(written_B[1], 2 * weights, 1e-12);
  assert_close(expert_B[0] - expert_B[1], 6 * experts, 1e-9);
}

/* Of BF16 weights that Megatron-FSDP gathers FP8 copies are made in the first microbatch and kept, or in every forward
 * where none are kept. */
static void fsdp_casts_once(void **state) {
  (void)state;
  for (int drops = 0; drops < 2; drops++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->training.precision = MS_FP8_TENSORWISE, s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
    s->options.disable_parameter_transpose_cache = drops;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsUnitOps unit;
    MsStepOps ops;
    ms_work_unit_ops(l.work, l.work->piece_of_layer[0], &unit);
    ms_work_step_ops(l.work, 0, &ops);
    assert_int_equal(count_named(&ops.before, "quantize weights"), !drops);
    assert_int_equal(count_named(&unit.cast[0], "quantize weights"), drops);
    assert_int_equal(unit.cast[1].n, 0);
    ms_unit_ops_clear(&unit), ms_step_ops_clear(&ops);
  }
}

/* Mixtral with tied embeddings, TP 2, PP 2, DP 4: 16 layers of two norms and a router on the first stage, and the half
 * of 32000 x 4096; of Megatron-FSDP a quarter. */
static void summed_gradients(void **state) {
  (void)state;
  static const MsFsdp fsdp[] = {MS_FSDP_NONE, MS_FSDP_OPTIM_GRADS, MS_FSDP_OPTIM_GRADS_PARAMS};
  for (guint i = 0; i < G_N_ELEMENTS(fsdp); i++)
    for (int half = 0; half < 2; half++) {
      g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 16);
      s->layout.tp = s->layout.pp = 2, s->layout.ep = 4, s->model->tie_embeddings = TRUE;
      s->options.fsdp = fsdp[i];
      if (half) s->options.main_grads_dtype = s->options.grad_reduce_dtype = MS_DT_BF16;
      g_auto(MsLowered) l = ms_test_lower(s);
      MsStepOps ops;
      ms_work_step_ops(l.work, 0, &ops);
      double element_B = (half ? 2 : 4) / (i > 0 ? 4.0 : 1);
      assert_close(named(&ops.after, "norm gradients"), element_B * 16 * (2 * 4096 + 8 * 4096), 1e-12);
      assert_close(named(&ops.after, "embedding gradients"), element_B * 32000 * 4096 / 2, 1e-12);
      ms_step_ops_clear(&ops);
    }
}

/* Adapters are BF16 beside frozen weights in FP8: rank 16 beside qkv, 16 (4096 + 6144) of each of 32 layers. */
static void gathered_adapters(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  s->training.precision = MS_FP8_DELAYED, s->options.fp8_param_gather = TRUE;
  s->options.overlap_param_gather = FALSE;
  s->training.lora.rank = 16, s->training.lora.targets = 1u;
  assert_string_equal(ms_lora_targets[0].word, "linear_qkv");
  g_auto(MsLowered) l = ms_test_lower(s);
  MsStepOps ops;
  ms_work_step_ops(l.work, 0, &ops);
  assert_close(named(&ops.after, "dp gather"), 2.0 * 32 * 16 * (4096 + 6144), 1e-12);
  ms_step_ops_clear(&ops);
}

/* Without the distributed optimizer gradients are all-reduced and nothing is gathered; groups of one rank have no rows.
 */
static void data_parallel_without_sharding(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->layout.ep = 8, s->options.distributed_optimizer = FALSE;
  g_auto(MsLowered) l = ms_test_lower(s);
  MsStepOps ops;
  ms_work_step_ops(l.work, 0, &ops);
  assert_close(message(&ops.after, MS_OP_ALL_REDUCE, MS_GROUP_DP_CP), 4 * ms_work_stage_params(l.work, 0).params_dense,
               1e-12);
  assert_int_equal(
      count(&ops.after, MS_OP_ALL_GATHER, MS_GROUP_DP_CP) + count(&ops.after, MS_OP_REDUCE_SCATTER, MS_GROUP_DP_CP), 0);
  assert_null(find_row(&ops.after, "edp reduce", ANY)); /* EDP is 1 */
  ms_step_ops_clear(&ops);
}

/* Mixtral on one rank: 32 layers with two weights of its expert, three others and two gains, the head and its gain. */
static void host_of_the_optimizer(void **state) {
  (void)state;
  const double expert = 32 * 2, dense = 32 * (3 + 2) + 2;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "b200-sxm", 8);
  s->layout.ep = 8, s->laws.optimizer_operators = 4, s->laws.cast_operators = 2;
  s->training.precision = MS_FP8_BLOCKWISE;
  for (int sharded = 1; sharded >= 0; sharded--) {
    s->options.distributed_optimizer = sharded;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStepOps ops;
    ms_work_step_ops(l.work, 0, &ops);
    double operators = sharded * 4 * (expert + dense / 8);
    assert_int_equal(row(&ops.after, "gradient norm", ANY)->host, (int)(0.4 * operators));
    assert_int_equal(row(&ops.after, "adam", ANY)->host, (int)(0.6 * operators));
    assert_int_equal(row(&ops.before, "quantize weights", ANY)->host, (int)(2 * (expert + dense)));
    ms_step_ops_clear(&ops);
  }
  /* what is gathered by the buffer of the gradients is cast behind it, what is gathered in low precision is not */
  s->options.distributed_optimizer = s->options.fp8_param_gather = TRUE;
  for (int mxfp8 = 0; mxfp8 < 2; mxfp8++) {
    s->training.precision = mxfp8 ? MS_MXFP8 : MS_FP8_BLOCKWISE;
    g_auto(MsLowered) l = ms_test_lower(s);
    MsStepOps ops;
    ms_work_step_ops(l.work, 0, &ops);
    assert_int_equal(find_row(&ops.before, "quantize weights", ANY) != NULL, mxfp8);
    ms_step_ops_clear(&ops);
  }
}

/* What the host has to do behind the last backward pass. */
static double after_host_s(MsScenario *s, double optimizer_operators) {
  s->laws.optimizer_operators = optimizer_operators;
  g_auto(MsLowered) l = ms_test_lower(s);
  GError *error = NULL;
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
  assert_non_null(cost);
  g_autoptr(MsProgram) program = ms_program_new(l.work, cost);
  const MsCosted *c = &program->step[0].after;
  MsTime sum = 0;
  for (int i = 0; i < c->list->n; i++) sum += c->launch[i];
  return (double)sum / MS_PS_PER_S;
}

static void host_time_of_the_optimizer(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->layout.ep = 8;
  double with_s = after_host_s(s, 8), without_s = after_host_s(s, 0);
  assert_close(with_s - without_s, 8 * (64 + 162 / 8.0) * s->hardware->kernel_launch_s, 2e-3); /* whole operators */
}

/* --- what only some releases launch ---------------------------------------------------------------------------- */
static MsScenario *released(const char *software, const char *precision, int ep) {
  g_autofree char *text = g_strdup_printf(
      "{\"model\": \"qwen3-30b-a3b\", \"hardware\": \"b200-sxm\", \"gpus\": 8, \"software\": \"%s\", "
      "\"laws\": {\"cast_operators\": 0.5}, \"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, "
      "\"global_batch_size\": 8, \"precision\": \"%s\"}, \"layout\": {\"ep\": %d}}",
      software, precision, ep);
  return ms_test_scenario_of(text);
}

static int swizzles(const char *software, const char *precision, int products) {
  g_autoptr(MsScenario) s = released(software, precision, 8);
  g_auto(MsLowered) l = ms_test_lower(s);
  int forward = count_named(&piece(&l, 0)->forward, "swizzle scales"),
      backward = count_named(&piece(&l, 0)->backward, "swizzle scales");
  assert_int_equal(backward, products * forward);
  return forward;
}

/* Of both operands of qkv, the output projection and both layers of the experts, with two products for each backward;
 * of the weights alone forward and for the input gradients. */
static void scales_in_kernels_of_their_own(void **state) {
  (void)state;
  assert_int_equal(swizzles("nemo-25.09", "mxfp8", 2), 8);
  assert_int_equal(swizzles("nemo-25.11", "mxfp8", 2), 8);
  assert_int_equal(swizzles("nemo-26.02", "mxfp8", 1), 4);
  assert_int_equal(swizzles("nemo-26.06.01", "nvfp4", 2), 8);
  assert_int_equal(swizzles("mine-te2.17", "nvfp4", 1), 4);
  assert_int_equal(swizzles("mine-te2.18", "nvfp4", 1), 0);
  assert_int_equal(swizzles("mine-te2.18", "mxfp8", 1), 0);
  assert_int_equal(swizzles("not-known", "nvfp4", 1), 0);
  assert_int_equal(swizzles("nemo-25.09", "fp8-tensorwise", 1), 0);
  g_autoptr(MsScenario) s = released("nemo-25.09", "mxfp8", 2);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsOpList *forward = &piece(&l, 0)->forward;
  const MsOp *qkv = row(forward, "qkv", ANY), *fc1 = row(forward, "expert fc1", ANY);
  assert_close(qkv[-2].read_B + qkv[-2].write_B, 2 * qkv->m * qkv->k / 32, 1e-12);
  assert_close(qkv[-1].read_B + qkv[-1].write_B, 2 * qkv->n * qkv->k / 32, 1e-12);
  assert_int_equal(qkv[-1].kernels, 0); /* from the call of the product */
  assert_close(fc1[-1].read_B, 64 * fc1->n * fc1->k / 32, 1e-12);
  assert_int_equal(fc1[-1].kernels, 1); /* for 64 experts */
}

static void casts_to_nvfp4(void **state) {
  (void)state;
  g_autoptr(MsScenario) two = released("nemo-26.02", "nvfp4", 8), one = released("nemo-26.04", "nvfp4", 8);
  g_autoptr(MsScenario) apart = released("nemo-25.11", "nvfp4", 8);
  g_auto(MsLowered) a = ms_test_lower(two), b = ms_test_lower(one), c = ms_test_lower(apart);
  const MsOp *twice = row(&piece(&a, 0)->forward, "quantize input", ANY),
             *once = row(&piece(&b, 0)->forward, "quantize input", ANY);
  assert_close(twice->read_B, 2 * once->read_B, 1e-12);
  assert_close(twice->write_B, once->write_B, 0);
  const MsOp *cast = row(&piece(&a, 0)->forward, "quantize expert input", ANY);
  assert_int_equal(cast->kernels, 1 + 16 / 2);
  assert_int_equal(cast[-1].kernels, 1); /* the maxima of 16 experts */
  cast = row(&piece(&c, 0)->forward, "quantize expert input", ANY);
  assert_int_equal(cast[-1].kernels, 1 + 16 / 5); /* two launches each */
}

/* A maximum of current scaling is three kernels, of every expert apart; the cast is one (current_scaling.cu). */
static void kernels_of_a_maximum(void **state) {
  (void)state;
  g_autoptr(MsScenario) current = released("nemo-26.04", "fp8-tensorwise", 8);
  g_autoptr(MsScenario) delayed = released("nemo-26.04", "fp8-delayed", 8);
  g_auto(MsLowered) a = ms_test_lower(current), b = ms_test_lower(delayed);
  const MsOpList *list = &piece(&a, 0)->forward;
  assert_int_equal(row(list, "quantize input", ANY)->launches, 3); /* the norm finds it: zero, scale, cast */
  current->layout.tp = 2, current->options.sequence_parallel = TRUE;
  g_auto(MsLowered) shards = ms_test_lower(current);
  assert_int_equal(row(&piece(&shards, 0)->forward, "quantize input", ANY)->launches, 3); /* of a shard as well */
  const MsOp *cast = row(list, "quantize expert input", ANY);
  assert_int_equal(cast->launches, 16);
  assert_int_equal(cast[-1].kind, MS_OP_AMAX);
  assert_int_equal(cast[-1].launches, 3 * 16);
  MsOp once = cast[-1], thrice = once;
  once.launches = once.kernels = 1, thrice.kernels = 1, thrice.launches = 3;
  assert_false(ms_op_same_kernel(&once, &thrice));
  g_autoptr(MsCost) cost = ms_cost_new(current, a.layout, NULL);
  double one_s = ms_cost_op(cost, &once).time_s, three_s = ms_cost_op(cost, &thrice).time_s;
  assert_true(three_s > one_s + 4e-6 && three_s < one_s + 8e-6);
  cast = row(&piece(&b, 0)->forward, "quantize expert input", ANY);
  assert_int_equal(cast->launches, 0); /* all experts at once, scales known before */
  assert_int_equal(count(&piece(&b, 0)->forward, MS_OP_AMAX, MS_GROUP_NONE), 0);
}

/* A weight gradient comes in the call of the input gradient, unless it is delayed. */
static void calls_of_a_linear(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", ANY, "h100-sxm", 8);
  s->layout.ep = 8, s->options.ep_overlap = TRUE;
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_int_equal(row(&piece(&l, 0)->forward, "qkv", ANY)->kernels, 4);
  assert_int_equal(row(&piece(&l, 0)->backward, "qkv", MS_PASS_DGRAD)->kernels, 4);
  assert_int_equal(row(&piece(&l, 0)->backward, "qkv", MS_PASS_WGRAD)->kernels, 1);
  int experts = row(&piece(&l, 0)->backward, "expert fc1", MS_PASS_DGRAD)->kernels;
  assert_int_equal(row(&piece(&l, 0)->backward, "expert fc1", MS_PASS_WGRAD)->kernels, experts - 3);
  s->options.delay_wgrad = TRUE;
  g_auto(MsLowered) delayed = ms_test_lower(s);
  assert_int_equal(row(&piece(&delayed, 0)->backward, "qkv", MS_PASS_WGRAD)->kernels, 4);
  assert_int_equal(row(&piece(&delayed, 0)->backward, "expert fc1", MS_PASS_WGRAD)->kernels, experts);
}

static double first_launch_s(MsScenario *s, double call_operators) {
  s->laws.graph_call_operators = call_operators;
  g_auto(MsLowered) l = ms_test_lower(s);
  GError *error = NULL;
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
  assert_non_null(cost);
  g_autoptr(MsProgram) program = ms_program_new(l.work, cost);
  return (double)program->piece[l.work->piece_of_layer[0]].forward.launch[0] / MS_PS_PER_S;
}

/* A captured module is a call beside its replay; one graph of the whole iteration has none. */
static void calls_of_graphs(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", ANY, "h100-sxm", 8);
  s->options.cuda_graph_scope = MS_CG_ATTN;
  assert_close(first_launch_s(s, 3), s->hardware->graph_launch_s + 3 * s->hardware->kernel_launch_s, 1e-6);
  s->options.cuda_graph_scope = MS_CG_FULL_ITERATION;
  assert_close(first_launch_s(s, 3), first_launch_s(s, 0), 0);
}

/* Bytes that are copied into the graphs of a layer, in units of its input, and the row behind the last copy. */
static double copied(const MsOpList *list, const char *name, double x, const MsOp **behind) {
  double sum = 0;
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->op[i].name, name)) {
      assert_close(list->op[i].write_B, list->op[i].read_B, 0);
      assert_int_equal(list->op[i].kernels, 0);
      sum += list->op[i].write_B / x, *behind = &list->op[i + 1];
    }
  return sum;
}

/* A graph copies its input, and gradients of its outputs: of attention the residual stream, of one that ends in the
 * router also the tokens (those of an all-to-all permuted, 8 for one) and the output of shared experts. */
static void copies_into_graphs(void **state) {
  (void)state;
  static const struct {
    const char *model;
    MsDispatcher dispatcher;
    guint32 scope;
    double forward, backward;
    MsModule forward_of, backward_of; /* what stands behind the copies */
  } cases[] = {{"llama3-8b", MS_DISPATCH_ALLTOALL, 0, 0, 0, 0, 0},
               {"llama3-8b", MS_DISPATCH_ALLTOALL, MS_CG_FULL_ITERATION, 0, 0, 0, 0},
               {"llama3-8b", MS_DISPATCH_ALLTOALL, MS_CG_ATTN, 1, 1, MS_MODULE_ATTN, MS_MODULE_ATTN},
               {"llama3-8b", MS_DISPATCH_ALLTOALL, MS_CG_MLP, 1, 1, MS_MODULE_MLP, MS_MODULE_MLP},
               {"llama3-8b", MS_DISPATCH_ALLTOALL, MS_CG_ATTN | MS_CG_MLP, 1, 1, MS_MODULE_ATTN, MS_MODULE_MLP},
               {"qwen3-30b-a3b", MS_DISPATCH_HYBRIDEP, MS_CG_MOE_ROUTER, 1, 2, MS_MODULE_ROUTER, MS_MODULE_ROUTER},
               {"qwen3-30b-a3b", MS_DISPATCH_HYBRIDEP, MS_CG_ATTN, 1, 1, MS_MODULE_ATTN, MS_MODULE_ATTN},
               {"qwen3-30b-a3b", MS_DISPATCH_HYBRIDEP, MS_CG_ATTN | MS_CG_MOE_ROUTER | MS_CG_MOE_PREPROCESS, 1, 2,
                MS_MODULE_ATTN, MS_MODULE_ROUTER},
               {"qwen3-30b-a3b", MS_DISPATCH_ALLTOALL, MS_CG_ATTN | MS_CG_MOE_ROUTER | MS_CG_MOE_PREPROCESS, 1,
                1 + 8 * (1 + 2.0 / 2048), MS_MODULE_ATTN, MS_MODULE_ROUTER},
               {"moonlight-16b-a3b", MS_DISPATCH_HYBRIDEP, MS_CG_MOE_ROUTER, 1, 3, MS_MODULE_ROUTER, MS_MODULE_ROUTER}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = ms_test_run(cases[i].model, ANY, "h100-sxm", 8);
    s->layout.ep = s->model->num_experts ? 8 : 1;
    s->options.dispatcher = cases[i].dispatcher, s->options.cuda_graph_scope = cases[i].scope;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = piece(&l, s->model->num_layers - 1);
    double x = 2.0 * s->training.seq_length * s->training.micro_batch_size * s->model->hidden_size;
    const MsOp *first = NULL, *last = NULL;
    assert_close(copied(&p->forward, "into graph", x, &first), cases[i].forward, 1e-9);
    assert_close(copied(&p->backward, "gradients into graph", x, &last), cases[i].backward, 1e-9);
    if (first) assert_int_equal(first->module, cases[i].forward_of);
    if (last) assert_int_equal(last->module, cases[i].backward_of);
  }
}

/* --- properties over many runs --------------------------------------------------------------------------------- */
typedef struct {
  const char *model;
  int mtp, tp, cp, pp, vpp, ep, etp, gpus;
  const char *pipeline;
} Case;
static const Case cases[] = {
    {"llama3-8b", ANY, 1, 1, 1, 1, 1, 1, 8, NULL},
    {"llama3-70b", ANY, 4, 1, 4, 5, 1, 1, 16, NULL},
    {"llama3-70b", ANY, 2, 4, 1, 1, 1, 1, 8, NULL},
    {"gpt3-175b", ANY, 8, 1, 8, 2, 1, 1, 64, NULL},
    {"mixtral-8x7b", ANY, 1, 1, 4, 1, 8, 1, 32, NULL},
    {"mixtral-8x7b", ANY, 2, 1, 1, 1, 4, 2, 16, NULL},
    {"mixtral-8x22b", ANY, 4, 2, 2, 2, 8, 1, 32, NULL},
    {"qwen3-30b-a3b", ANY, 1, 1, 1, 1, 8, 1, 8, NULL},
    {"qwen3-235b-a22b", ANY, 2, 2, 2, 1, 16, 1, 64, NULL},
    {"gpt-oss-120b", ANY, 1, 1, 4, 1, 8, 1, 32, NULL},
    {"qwen2-57b-a14b", ANY, 4, 1, 4, 1, 8, 1, 32, NULL},
    {"deepseek-v2-lite", ANY, 1, 1, 1, 1, 8, 1, 8, NULL},
    {"deepseek-v3", 0, 2, 1, 4, 1, 32, 1, 128, "Et*16|t*15|t*15|t*15L"},
    {"deepseek-v3", 1, 1, 1, 8, 4, 32, 1, 256, "Et|(tt|)*30mL"},
    {"deepseek-v3", 1, 1, 2, 4, 1, 8, 1, 32, "Et*16|t*15|t*15|t*15mL"},
    {"kimi-k2", ANY, 1, 1, 1, 1, 16, 1, 16, NULL},
};

static MsScenario *scenario_of(const Case *c) {
  MsScenario *s = ms_test_run(c->model, c->mtp, "h100-sxm", c->gpus);
  s->layout.tp = c->tp, s->layout.cp = c->cp, s->layout.pp = c->pp, s->layout.vpp = c->vpp, s->layout.ep = c->ep,
  s->layout.etp = c->etp;
  s->layout.pipeline_layout = g_strdup(c->pipeline);
  s->training.global_batch_size = 8 * c->gpus;
  return s;
}

static void check_row(const MsLowered *l, const MsOpList *list, int i) {
  const MsOp *op = &list->op[i];
  for (int j = 0; j < 3; j++)
    if (op->wait[j] < -1 || op->wait[j] >= i)
      fail_msg("%s: row %d (%s) waits for %d", l->scenario->name, i, op->name, op->wait[j]);
  assert_true(op->kind < MS_N_OPS && op->stream < MS_N_STREAMS && op->pass < MS_N_PASSES && op->group < MS_N_GROUPS);
  assert_true(isfinite(op->flop) && op->flop >= 0 && isfinite(op->read_B) && op->read_B >= 0 && isfinite(op->write_B) &&
              op->write_B >= 0);
  assert_true(op->keep_B >= 0 && op->free_B >= 0 && op->transient_B >= 0);
  gboolean comm = ms_op_families[op->kind] == MS_FAMILY_COMM;
  assert_int_equal(comm, op->group != MS_GROUP_NONE);
  assert_int_equal(comm, op->stream != MS_STREAM_COMPUTE);
  if (!comm) return;
  if (l->layout->group[op->group].size <= 1) fail_msg("%s talks to itself", op->name);
  assert_true(isfinite(op->message_B) && op->message_B > 0);
  assert_true(op->local_fraction >= 0 && op->local_fraction < 1 && op->level_B[0] >= 0 && op->level_B[1] >= 0);
}

static void check_list(const MsLowered *l, const MsOpList *list) {
  for (int i = 0; i < list->n; i++) check_row(l, list, i);
}

static void check_kept(const MsPiece *p) {
  double kept = 0, freed = 0, named_B = 0;
  for (int i = 0; i < p->forward.n; i++) kept += p->forward.op[i].keep_B, assert_true(p->forward.op[i].free_B == 0);
  for (int i = 0; i < p->backward.n; i++) freed += p->backward.op[i].free_B, assert_true(p->backward.op[i].keep_B == 0);
  for (int i = 0; i < p->n_kept; i++) named_B += p->kept[i].bytes_B;
  assert_close(kept, p->kept_B, 1e-12);
  assert_close(freed, p->kept_B, 1e-12);
  assert_close(named_B, p->kept_B, 1e-12);
}

static void check_lowered(MsScenario *s) {
  g_auto(MsLowered) l = ms_test_lower(s);
  for (int i = 0; i < l.work->n_pieces; i++) {
    const MsPiece *p = &l.work->pieces[i];
    check_list(&l, &p->forward);
    check_list(&l, &p->backward);
    assert_true(p->forward.tip >= 0 && p->forward.tip < p->forward.n && p->backward.tip >= 0 &&
                p->backward.tip < p->backward.n);
    check_kept(p);
  }
  for (int stage = 0; stage < l.layout->pp; stage++) {
    MsStepOps ops;
    ms_work_step_ops(l.work, stage, &ops);
    check_list(&l, &ops.before);
    check_list(&l, &ops.after);
    check_list(&l, &ops.reduce);
    check_list(&l, &ops.gather);
    ms_step_ops_clear(&ops);
  }
}

static const MsRecomputeSpec recomputes[] = {
    {.granularity = MS_RECOMPUTE_NONE},
    {.granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_CORE_ATTN},
    {.granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_LAYERNORM | MS_RM_MOE_ACT},
    {.granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_MLP | MS_RM_MLA_UP_PROJ | MS_RM_SHARED_EXPERTS},
    {.granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_MOE},
    {.granularity = MS_RECOMPUTE_SELECTIVE,
     .modules = MS_RM_CORE_ATTN | MS_RM_MOE_ACT | MS_RM_LAYERNORM | MS_RM_MLA_UP_PROJ | MS_RM_MLP | MS_RM_MOE |
                MS_RM_SHARED_EXPERTS},
    {.granularity = MS_RECOMPUTE_FULL, .method = MS_RECOMPUTE_UNIFORM, .num_layers = 1},
    {.granularity = MS_RECOMPUTE_FULL, .method = MS_RECOMPUTE_UNIFORM, .num_layers = 3},
    {.granularity = MS_RECOMPUTE_FULL, .method = MS_RECOMPUTE_BLOCK, .num_layers = 2},
};

static void rows_are_well_formed(void **state) {
  (void)state;
  static const MsDispatcher dispatchers[] = {MS_DISPATCH_ALLTOALL, MS_DISPATCH_ALLGATHER, MS_DISPATCH_DEEPEP,
                                             MS_DISPATCH_HYBRIDEP};
  static const MsPrecision precisions[] = {MS_BF16, MS_FP8_TENSORWISE, MS_FP8_BLOCKWISE, MS_FP8_DELAYED};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
    for (guint j = 0; j < G_N_ELEMENTS(recomputes); j++) {
      g_autoptr(MsScenario) s = scenario_of(&cases[i]);
      s->options.recompute = recomputes[j];
      s->options.dispatcher = s->layout.etp > 1 ? MS_DISPATCH_ALLTOALL : dispatchers[(i + j) % 4];
      s->training.precision = precisions[(i + j / 2) % (j == 2 || j == 5 ? 3 : 4)];
      s->options.overlap_grad_reduce = s->options.overlap_param_gather = j % 2;
      s->options.distributed_optimizer = j % 3 > 0 || j % 2;
      s->options.tp_comm_overlap = s->layout.tp > 1 && j % 3 == 1;
      s->options.cross_entropy_fusion_impl = j % 2 ? MS_CE_TE : MS_CE_NATIVE;
      check_lowered(s);
    }
}

/* Every GEMM with a weight has its two gradients, each of the same FLOP; attention goes back at 2.5 (GQA) and 2.6 times
 * (MLA 192/128). */
static void gradients_mirror_the_forward(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = scenario_of(&cases[i]);
    g_auto(MsLowered) l = ms_test_lower(s);
    for (int p = 0; p < l.work->n_pieces; p++) {
      const MsPiece *q = &l.work->pieces[p];
      double forward = 0, dgrad = 0, wgrad = 0;
      for (int j = 0; j < q->forward.n; j++)
        forward += q->forward.op[j].flags & MS_OPF_WEIGHT ? q->forward.op[j].flop : 0;
      for (int j = 0; j < q->backward.n; j++) {
        const MsOp *op = &q->backward.op[j];
        if (op->flags & MS_OPF_WEIGHT) *(op->pass == MS_PASS_WGRAD ? &wgrad : &dgrad) += op->flop;
      }
      assert_close(dgrad, forward, 1e-12);
      assert_close(wgrad, forward, 1e-12);
      double core = flop_of(&q->forward, "attention", MS_PASS_FORWARD);
      assert_close(flop_of(&q->backward, "attention", MS_PASS_DGRAD), core * (ms_model_has_mla(s->model) ? 2.6 : 2.5),
                   1e-12);
    }
  }
}

static double model_flop_rows(const MsOpList *list) {
  double sum = 0;
  for (int i = 0; i < list->n; i++) sum += list->op[i].flags & MS_OPF_MODEL_FLOP ? list->op[i].flop : 0;
  return sum;
}

/* What the ranks of one model replica execute forward is the published convention, less its "+1" of latent and MTP
 * norms. */
static void executed_flop_is_the_convention(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = scenario_of(&cases[i]);
    g_auto(MsLowered) l = ms_test_lower(s);
    double tokens = (double)s->training.seq_length * s->training.micro_batch_size, total = 0;
    const MsMla *a = &s->model->multi_latent_attention;
    double norms = ms_model_has_mla(s->model) ? 2 * tokens * (a->q_lora_rank + a->kv_lora_rank) : 0;
    for (int p = 0; p < l.work->n_pieces; p++) {
      const MsPiece *q = &l.work->pieces[p];
      double want = q->model_flop;
      if (q->kind == MS_PIECE_LAYER || q->kind == MS_PIECE_MTP) want -= norms;
      if (q->kind == MS_PIECE_MTP) want -= 2 * tokens * 3 * s->model->hidden_size;
      double got = model_flop_rows(&q->forward) * s->layout.tp * s->layout.cp;
      if (s->model->softmax_sink && strstr(q->name, "windowed")) /* with sinks the window is masked, not skipped */
        want += tokens * (ms_flop_attention_core(s->model, 1, s->training.seq_length) -
                          ms_flop_attention_core(s->model, 0, s->training.seq_length));
      if (q->kind == MS_PIECE_HEAD) want *= (double)l.work->padded_vocab / ms_model_padded_vocab(s->model, 1);
      if (got != want && fabs(got / want - 1) > 1e-12)
        fail_msg("%s, %s: executes %.17g, convention %.17g", s->model->name, q->name, got, want);
    }
    for (int k = 0; k < s->model->num_layers; k++) total += piece(&l, k)->model_flop;
    if (l.work->piece_mtp >= 0) total += s->model->mtp_num_layers * l.work->pieces[l.work->piece_mtp].model_flop;
    total += head(&l)->model_flop;
    assert_close(3 * total / tokens, ms_model_flop_per_token(s->model, s->training.seq_length).total, 1e-12);
  }
}

/* Recompute adds rows that run again, changes neither the forward's work nor the model's, and keeps no more than
 * without. */
static void recompute_only_adds(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) plain = scenario_of(&cases[i]);
    g_auto(MsLowered) base = ms_test_lower(plain);
    for (guint j = 1; j < G_N_ELEMENTS(recomputes); j++) {
      g_autoptr(MsScenario) s = scenario_of(&cases[i]);
      s->options.recompute = recomputes[j];
      g_auto(MsLowered) l = ms_test_lower(s);
      for (int k = 0; k < s->model->num_layers; k++) {
        const MsPiece *a = piece(&base, k), *b = piece(&l, k);
        assert_close(b->model_flop, a->model_flop, 0);
        assert_close(model_flop_rows(&b->forward), model_flop_rows(&a->forward), 0);
        assert_true(b->kept_B <= a->kept_B);
        assert_true(b->backward.n >= a->backward.n);
        double again = 0, rest = 0, was = 0;
        for (int r = 0; r < b->backward.n; r++)
          *(b->backward.op[r].pass == MS_PASS_RECOMPUTE ? &again : &rest) += b->backward.op[r].flop;
        for (int r = 0; r < a->backward.n; r++) was += a->backward.op[r].flop;
        assert_close(rest, was, 1e-12);
        if (b->n_kept == 1 && !strcmp(b->kept[0].name, "checkpoint")) { /* the whole layer once more */
          double forward = 0;
          for (int r = 0; r < a->forward.n; r++) forward += a->forward.op[r].flop;
          assert_close(again, forward, 1e-12);
        }
      }
    }
  }
}

/* Parameters of all ranks, replicated tensors counted once, are those of the model. */
static void parameters_of_the_ranks_are_the_models(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = scenario_of(&cases[i]);
    g_auto(MsLowered) l = ms_test_lower(s);
    double t = s->layout.tp, e = s->layout.ep * s->layout.etp, dense = 0, expert = 0, copy = 0;
    for (int stage = 0; stage < l.layout->pp; stage++) {
      MsStageParams p = ms_work_stage_params(l.work, stage);
      dense += t * (p.params_dense - p.tp_replicated) + p.tp_replicated;
      expert += e * p.params_expert;
      copy += t * p.embedding_copy;
    }
    MsParamCount c = ms_model_params(s->model);
    double padded = (double)l.work->padded_vocab * s->model->hidden_size, tables = s->model->tie_embeddings ? 1 : 2;
    double want = c.total_mtp + tables * (padded - c.embedding);
    if (s->model->tie_embeddings && l.layout->pp > 1) want += padded; /* the last stage holds its own copy */
    if (s->model->position_embedding == MS_POS_LEARNED)               /* a table covers at least the sequence */
      want += (double)MAX(0, s->training.seq_length - s->model->seq_length_max) * s->model->hidden_size;
    if (fabs((dense + expert) / want - 1) > 1e-13)
      fail_msg("%s: ranks hold %.0f, the model has %.0f", s->model->name, dense + expert, want);
    assert_close(copy, s->model->mtp_num_layers > 0 && l.layout->pp > 1 ? padded : 0, 1e-13);
    double by_piece = 0;
    for (int k = 0; k < s->model->num_layers; k++)
      by_piece += piece(&l, k)->params_model_dense + piece(&l, k)->params_model_expert;
    by_piece += head(&l)->params_model_dense + embedding(&l)->params_model_dense;
    if (l.work->piece_mtp >= 0)
      by_piece +=
          l.work->pieces[l.work->piece_mtp].params_model_dense + l.work->pieces[l.work->piece_mtp].params_model_expert;
    if (!(s->model->tie_embeddings && l.layout->pp > 1)) assert_close(by_piece, want, 1e-13);
  }
}

/* What TorchTitan's layers do beside Megatron's: tokens of a rank 8192/4, 16 heads of 128 on each of two. */
static MsScenario *titan_or_megatron(const char *framework) {
  g_autofree char *text = g_strdup_printf(
      "{\"framework\": \"%s\", \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "
      "{\"seq_length\": 8192, \"micro_batch_size\": 1, \"global_batch_size\": 1}, \"layout\": {\"tp\": 2, \"cp\": 4, "
      "\"cp_comm_type\": \"all_gather\"}, \"options\": {\"tp_comm_overlap\": true, \"sequence_parallel\": true, "
      "\"attention_backend\": \"fa2\", \"transformer_impl\": \"%s\"}}",
      framework, strcmp(framework, "megatron") == 0 ? "transformer_engine" : "local");
  return ms_test_scenario_of(text);
}

static void rows_of_torchtitan(void **state) {
  (void)state;
  static const char *const own[] = {"repeat keys", "merge of blocks", "cp ring dkv", "sum of parts"};
  const double tokens = 8192.0 / 4, width = 16 * 128;
  g_autoptr(MsScenario) titan = titan_or_megatron("torchtitan"), megatron = titan_or_megatron("megatron");
  g_auto(MsLowered) a = ms_test_lower(titan), b = ms_test_lower(megatron);
  const MsPiece *p = piece(&a, 0), *q = piece(&b, 1e-12);
  for (guint i = 0; i < G_N_ELEMENTS(own); i++)
    if (find_row(&q->forward, own[i], ANY) || find_row(&q->backward, own[i], ANY)) fail_msg("megatron: %s", own[i]);
  assert_null(find_row(&p->forward, "qkv split", ANY));
  assert_close(row(&p->forward, "repeat keys", ANY)->write_B, 2 * tokens * 2 * width, 1e-12);
  assert_close(row(&p->forward, "merge of blocks", ANY)->write_B, 3 * 4 * tokens * width, 1e-12);
  assert_close(row(&p->backward, "merge of blocks", ANY)->write_B, 3 * 4 * tokens * 3 * width, 1e-12);
  assert_close(row(&p->forward, "cp gather kv", ANY)->message_B, 4 * 2 * tokens * 2 * width, 1e-12);
  assert_close(row(&q->forward, "cp gather kv", ANY)->message_B, 4 * 2 * tokens * 2 * width / 4, 1e-12);
  assert_close(message(&p->backward, MS_OP_P2P, MS_GROUP_CP), 4 * 4 * tokens * 2 * width, 1e-9);
  const MsOp *gather = row(&p->forward, "cp gather kv", ANY); /* in compiled code what follows waits for it */
  assert_int_equal(row(&p->forward, "attention", ANY)->wait[0], gather - p->forward.op);
  assert_non_null(find_row(&q->backward, "tp gather", MS_PASS_WGRAD)); /* PyTorch has kept what it gathered */
  assert_null(find_row(&p->backward, "tp gather", MS_PASS_WGRAD));
  assert_close(row(&p->forward, "sum of parts", ANY)->read_B, 2 * tokens * 4096, 1e-12);
  assert_close(row(&p->forward, "sum of parts", ANY)->write_B, tokens * 4096, 1e-12);
  assert_close(row(&p->forward, "rope", ANY)->read_B, 10 * tokens * (width + width / 4), 1e-12);
  assert_close(flop_of(&p->forward, "attention", ANY), flop_of(&q->forward, "attention", ANY), 1e-9);
  assert_close(flop_of(&p->backward, "attention", ANY), flop_of(&q->backward, "attention", ANY), 1e-9);
}

static MsScenario *unfused(const char *model, const char *impl) {
  g_autofree char *text = g_strdup_printf(
      "{\"model\": \"%s\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"laws\": {\"plain_operators\": 0.5}, "
      "\"training\": "
      "{\"seq_length\": 4096, \"micro_batch_size\": 2, \"global_batch_size\": 16, \"routing\": {\"capacity_factor\": "
      "1}}, "
      "\"layout\": {\"ep\": 8}, \"options\": {\"attention_backend\": \"unfused\", \"moe_router_fusion\": false, "
      "\"dispatcher\": \"alltoall\", \"transformer_impl\": \"%s\"}}",
      model, impl);
  return ms_test_scenario_of(text);
}

/* A mask of s x s places for every softmax of TransformerEngine, whatever the batch. */
static void plain_operators_of_masks(void **state) {
  (void)state;
  g_autoptr(MsScenario) te = unfused("qwen3-30b-a3b", "transformer_engine"), own = unfused("qwen3-30b-a3b", "local");
  g_auto(MsLowered) a = ms_test_lower(te), b = ms_test_lower(own);
  const MsPiece *with = piece(&a, 10), *without = piece(&b, 10);
  const MsOp *mask = row(&with->forward, "softmax", ANY), *plain = row(&without->forward, "softmax", ANY);
  assert_close(mask->read_B - plain->read_B, 42.0 * 4096 * 4096, 1e-12);
  assert_close(mask->write_B - plain->write_B, 39.0 * 4096 * 4096, 1e-12);
  assert_int_equal(mask->kernels, plain->kernels + 6); /* 11 at 0.5 */
  assert_close(row(&with->backward, "softmax", ANY)->read_B, row(&without->backward, "softmax", ANY)->read_B, 1e-12);
  assert_int_equal(row(&without->forward, "dispatch preprocess", ANY)->kernels, 4);
  te->training.routing.pad_to_capacity = TRUE; /* nothing to count */
  g_auto(MsLowered) d = ms_test_lower(te);
  assert_int_equal(row(&piece(&d, 10)->forward, "dispatch preprocess", ANY)->kernels, 1);
}

/* At half an operator each: choice, balancing loss and capacity of a softmax router; scores, groups and biases besides
 * of a sigmoid one. */
static void plain_operators_of_routers(void **state) {
  (void)state;
  g_autoptr(MsScenario) softmax = unfused("qwen3-30b-a3b", "local"), sigmoid = unfused("deepseek-v3", "local");
  g_auto(MsLowered) a = ms_test_lower(softmax), b = ms_test_lower(sigmoid);
  assert_int_equal(row(&piece(&a, 10)->forward, "router top-k", ANY)->kernels, (8 + 15 + 5) / 2);
  assert_int_equal(row(&piece(&a, 10)->backward, "router top-k", ANY)->kernels, (5 + 6 + 1) / 2);
  assert_int_equal(row(&piece(&b, 10)->forward, "router top-k", ANY)->kernels, (8 + 15 + 5 + 3 + 3 + 9 + 4 + 1) / 2);
  assert_int_equal(row(&piece(&b, 10)->backward, "router top-k", ANY)->kernels, (5 + 6 + 1 + 7 + 8 + 1) / 2);
  sigmoid->options.moe_router_fusion = TRUE;
  g_auto(MsLowered) fused = ms_test_lower(sigmoid);
  assert_int_equal(row(&piece(&fused, 10)->forward, "router top-k", ANY)->kernels, (1 + 6 + 5 + 2) / 2);
  softmax->model->moe_aux_loss_coeff = 0;
  g_auto(MsLowered) free = ms_test_lower(softmax);
  assert_int_equal(row(&piece(&free, 10)->forward, "router top-k", ANY)->kernels, (8 + 5 + 1) / 2);
}

static double muon_flop(const MsOpList *list) {
  return flop_of(list, "muon gram", ANY) + flop_of(list, "muon square", ANY) + flop_of(list, "muon apply", ANY);
}

static MsOpList muon_rows(MsLowered *l, MsScenario *s, int tp) {
  s->layout.tp = tp, s->training.optimizer = MS_OPT_MUON;
  *l = ms_test_lower(s);
  MsStepOps ops;
  ms_work_step_ops(l->work, 0, &ops);
  MsOpList after = ops.after;
  ops.after = (MsOpList){0};
  ms_step_ops_clear(&ops);
  return after;
}

/* Megatron-Core has no fused gated GELU without biases (Gemma): activation, sum with an offset of nothing and product
 * are three kernels, and all they make is kept. With biases it is as SwiGLU. */
static void gated_gelu(void **state) {
  (void)state;
  double elements = 4096.0 * 14336, kept[2];
  for (int biased = 0; biased < 2; biased++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->model->activation = MS_ACT_GELU, s->model->add_bias_linear = biased;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = piece(&l, 0);
    const MsOp *act = row(&p->forward, "activation", ANY), *back = row(&p->backward, "activation", MS_PASS_DGRAD);
    assert_close(act->read_B + act->write_B, (biased ? 6 : 14) * elements, 1e-12);
    assert_close(back->read_B + back->write_B, (biased ? 10 : 26) * elements, 1e-12);
    kept[biased] = p->kept_B;
  }
  assert_close(kept[0] - kept[1], 2 * 2 * elements, 1e-9);
}

/* Muon multiplies whole matrices on every tensor-parallel rank, queries, keys and values apart: of Llama 3 8B two
 * squares, two of keys and values, and both of the MLP, 32 layers over four owners. With more owners than matrices the
 * busiest has the largest. Input projections of Mamba are stepped by Adam. */
static void whole_matrices_of_muon(void **state) {
  (void)state;
  const double h = 4096, shapes[][3] = {{h, 28672, 8}, {h, 14336, 8}, {h, h, 16}, {1024, h, 16}}; /* m, n, an owner's */
  double elements = 0, flop = 0;
  for (guint i = 0; i < G_N_ELEMENTS(shapes); i++) {
    double m = shapes[i][0], n = shapes[i][1];
    elements += shapes[i][2] * m * n, flop += shapes[i][2] * 5 * 2 * m * m * (2 * n + m);
  }
  g_autoptr(MsScenario) few = ms_test_run("llama3-8b", 0, "h100-sxm", 16),
                        many = ms_test_run("llama3-8b", 0, "h100-sxm", 256),
                        mamba = ms_test_run("nemotron-3-nano", 0, "h100-sxm", 8);
  g_auto(MsLowered) a = {0}, b = {0}, c = {0};
  MsOpList split = muon_rows(&a, few, 4), alone = muon_rows(&b, many, 1), hybrid = muon_rows(&c, mamba, 1);
  assert_close(message(&split, MS_OP_ALL_GATHER, MS_GROUP_TP), 4 * elements, 1e-12);
  assert_close(muon_flop(&split), flop, 1e-12);
  assert_close(muon_flop(&alone), 5 * 2 * h * h * (2 * 28672 + h), 1e-12);
  assert_null(find_row(&alone, "muon gather", ANY));
  const MsMamba *m = &mamba->model->mamba;
  double projected = 2.0 * m->num_heads * m->head_dim + 2.0 * m->num_groups * m->state_dim + m->num_heads;
  for (int i = 0; i < hybrid.n; i++)
    if (g_str_equal(hybrid.op[i].name, "muon gram")) assert_true(hybrid.op[i].k != projected);
  ms_ops_clear(&split), ms_ops_clear(&alone), ms_ops_clear(&hybrid);
}

/* Halves of adapters are matrices split over TP as their layers are: all are gathered before they are iterated on. */
static void whole_matrices_of_adapters(void **state) {
  (void)state;
  const double rank = 16, h = 4096, f = 14336, layers = 32,
               layer = rank * (h + 6144) + rank * (h + h) + rank * (h + 2 * f) + rank * (f + h);
  g_autoptr(MsScenario) s = ms_test_scenario_of("{\"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, "
                                                "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 1, "
                                                "\"lora\": {\"rank\": 16}}}");
  g_auto(MsLowered) l = {0};
  MsOpList rows = muon_rows(&l, s, 8);
  assert_close(named(&rows, "muon gather"), 4 * layers * layer, 1e-12);
  ms_ops_clear(&rows);
}

/* The product adds the bias of fc1; that of fc2 is added expert by expert. */
static void biases_of_experts(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("gpt-oss-120b", ANY, "h100-sxm", 8);
  s->layout.ep = 8, s->laws.plain_operators = 0.5;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = piece(&l, 0);
  assert_int_equal(count_named(&p->forward, "expert bias"), 1);
  assert_int_equal(count_named(&p->backward, "expert bias"), 1);
  const MsOp *add = row(&p->forward, "expert bias", ANY), *back = row(&p->backward, "expert bias", ANY);
  assert_int_equal(add->kernels, (2 + 2 * 16) / 2);
  assert_int_equal(back->kernels, (5 + 8 * 16 + 1) / 2);
  assert_close(add->read_B + add->write_B, 28 * add->m * s->model->hidden_size, 1e-12);
  assert_close(back->read_B + back->write_B, 40 * add->m * s->model->hidden_size, 1e-12);
}

static double kept_as(const MsPiece *p, const char *name) {
  for (int i = 0; i < p->n_kept; i++)
    if (g_str_equal(p->kept[i].name, name)) return p->kept[i].bytes_B;
  return 0;
}

static int index_of(const MsOpList *list, const char *name, int pass) {
  return (int)(row(list, name, pass) - list->op);
}

/* GPT-OSS's gate: both halves are clamped into a copy, which the fused kernel keeps, and the host waits for the copy of
 * an offset; made again only when the gradient behind the bias of fc2 is there. Without biases Megatron-Core fuses
 * nothing; AutoModel compiles all of it into one kernel. */
static void clamped_gate(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("gpt-oss-120b", ANY, "h100-sxm", 8);
  s->layout.ep = 8;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = piece(&l, 0);
  const MsOp *clamp = row(&p->forward, "clamp gate", MS_PASS_FORWARD),
             *back = row(&p->backward, "gradients of clamped gate", MS_PASS_DGRAD),
             *act = row(&p->forward, "expert activation", MS_PASS_FORWARD);
  double outputs = act->m * act->n;
  assert_close(clamp->read_B + clamp->write_B, 16 * outputs, 1e-12);
  assert_close(back->read_B + back->write_B, 20 * outputs, 1e-12);
  assert_close(act->read_B + act->write_B, 6 * outputs, 1e-12);
  assert_true(clamp->flags & MS_OPF_SYNC && !(back->flags & MS_OPF_SYNC));
  assert_close(kept_as(p, "expert gate parts"), 4 * outputs, 1e-12);
  s->options.recompute = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_MOE_ACT};
  g_auto(MsLowered) again = ms_test_lower(s);
  p = piece(&again, 0);
  assert_close(kept_as(p, "expert gate parts"), 0, 0);
  assert_true(index_of(&p->backward, "clamp gate", MS_PASS_RECOMPUTE) > index_of(&p->backward, "expert bias", ANY));
  assert_true(index_of(&p->backward, "clamp gate", MS_PASS_RECOMPUTE) < index_of(&p->backward, "expert fc2", ANY));
  s->options.recompute = (MsRecomputeSpec){0};
  s->model->add_bias_linear = FALSE;
  g_auto(MsLowered) plain = ms_test_lower(s);
  p = piece(&plain, 0), act = row(&p->forward, "expert activation", MS_PASS_FORWARD);
  assert_null(find_row(&p->forward, "clamp gate", ANY));
  assert_close(act->read_B + act->write_B, 34 * outputs, 1e-12);
  assert_close(kept_as(p, "expert gate parts"), 8 * outputs, 1e-12);
  g_autoptr(MsScenario) automodel = ms_test_scenario_of(
      "{\"framework\": \"automodel\", \"model\": \"gpt-oss-120b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, "
      "\"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, \"global_batch_size\": 8}, "
      "\"layout\": {\"ep\": 8}, \"options\": {\"dispatcher\": \"deepep\"}}");
  g_auto(MsLowered) compiled = ms_test_lower(automodel);
  act = row(&piece(&compiled, 0)->forward, "expert activation", MS_PASS_FORWARD);
  assert_close(act->read_B + act->write_B, 6 * outputs, 1e-12);
  assert_close(kept_as(piece(&compiled, 0), "expert gate parts"), 0, 0);
}

/* One norm of the shard behind each half, its input kept, two vectors of the model's width a layer; the expert's and
 * the shared expert's outputs are added first. */
static void norms_behind_a_half(void **state) {
  (void)state;
  static const char *const models[] = {"llama3-8b", "qwen2-57b-a14b"};
  for (guint i = 0; i < G_N_ELEMENTS(models); i++) {
    g_autoptr(MsScenario) s = ms_test_run(models[i], ANY, "h100-sxm", 8);
    s->layout.tp = 2, s->options.sequence_parallel = TRUE;
    g_auto(MsLowered) without = ms_test_lower(s);
    const MsPiece *before = piece(&without, 0);
    double kept_B = before->kept_B, params = before->params_dense, total = ms_model_params(s->model).total;
    gboolean shared = s->model->moe_shared_expert_intermediate_size > 0;
    assert_null(find_row(&before->forward, "mlp post norm", ANY));
    s->model->post_norm = TRUE;
    g_auto(MsLowered) with = ms_test_lower(s);
    const MsPiece *p = piece(&with, 0);
    double T = without.work->rows_sp, h = s->model->hidden_size;
    static const char *const names[] = {"attention post norm", "mlp post norm"};
    for (int half = 0; half < 2; half++) {
      const MsOp *forward = row(&p->forward, names[half], MS_PASS_FORWARD);
      assert_int_equal(count_named(&p->forward, names[half]), 1);
      assert_int_equal(count_named(&p->backward, names[half]), 1);
      assert_close(forward->read_B + forward->write_B, 4 * T * h, 1e-12);
      assert_int_equal(row(&p->backward, names[half], MS_PASS_DGRAD)->kind, MS_OP_NORM);
    }
    assert_int_equal(count_named(&p->forward, "output add"), shared);
    assert_close(p->kept_B - kept_B, 2 * 2 * T * h, 1e-9);
    assert_close(p->params_dense - params, 2 * h, 1e-9);
    assert_close(ms_model_params(s->model).total - total, 2 * h * s->model->num_layers, 1e-6);
  }
}

/* --- curves ------------------------------------------------------------------------------------------------------ */
/* A machine may time every operator but those on the host's side, in the form that its kind is read in. */
static void every_operator_may_have_a_curve(void **state) {
  (void)state;
  static const char *const of_messages = "\"segments\", \"segments\": [[1e-5, 1e10]]", *of_work = "\"terms\"",
                           *of_exchanges = "\"dispatch\", \"params\": {\"alpha_s\": 0, \"per_sm_Bps\": 1e9, "
                                           "\"link_Bps\": 1e10, \"sharpness\": 1}";
  for (int op = 0; op < MS_N_OPS; op++) {
    gboolean message = ms_op_families[op] == MS_FAMILY_COMM, exchange = op == MS_OP_DISPATCH || op == MS_OP_COMBINE,
             timed = op != MS_OP_D2H && op != MS_OP_H2D && ms_op_families[op] != MS_FAMILY_HOST;
    g_autofree char *text =
        g_strdup_printf("{\"base\": \"h100-sxm\", \"curves\": [{\"op\": \"%s\", \"form\": %s}]}", ms_op_words[op],
                        exchange  ? of_exchanges
                        : message ? of_messages
                                  : of_work);
    g_autoptr(GError) error = NULL;
    g_autoptr(MsJson) doc = ms_json_parse(text, -1, "test.json", &error);
    g_autoptr(MsHardware) machine = doc ? ms_hardware_from_json(doc, ms_json_root(doc), "", &error) : NULL;
    if ((machine != NULL) != timed) fail_msg("%s: %s", ms_op_words[op], error ? error->message : "has a curve");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(norms_behind_a_half),
      cmocka_unit_test(gemms_of_mixtral),
      cmocka_unit_test(rows_of_torchtitan),
      cmocka_unit_test(plain_operators_of_masks),
      cmocka_unit_test(plain_operators_of_routers),
      cmocka_unit_test(biases_of_experts),
      cmocka_unit_test(clamped_gate),
      cmocka_unit_test(gated_gelu),
      cmocka_unit_test(whole_matrices_of_muon),
      cmocka_unit_test(whole_matrices_of_adapters),
      cmocka_unit_test(scales_in_kernels_of_their_own),
      cmocka_unit_test(casts_to_nvfp4),
      cmocka_unit_test(kernels_of_a_maximum),
      cmocka_unit_test(calls_of_a_linear),
      cmocka_unit_test(calls_of_graphs),
      cmocka_unit_test(copies_into_graphs),
      cmocka_unit_test(gemms_of_deepseek),
      cmocka_unit_test(gemms_of_qwen),
      cmocka_unit_test(tokens_per_expert),
      cmocka_unit_test(tokens_with_capacity),
      cmocka_unit_test(tensor_parallel_with_sequence_parallelism),
      cmocka_unit_test(tensor_parallel_without_sequence_parallelism),
      cmocka_unit_test(tensor_parallel_of_latent_attention),
      cmocka_unit_test(tensor_parallel_overlap_keeps_the_bytes),
      cmocka_unit_test(gathered_gradients),
      cmocka_unit_test(mamba_over_context_ranks),
      cmocka_unit_test(kernels_of_the_scan),
      cmocka_unit_test(messages_of_a_shared_expert_beside),
      cmocka_unit_test(switches_of_fp8_leave_bf16_alone),
      cmocka_unit_test(tensor_parallel_overlap_cuts_products),
      cmocka_unit_test(scales_of_the_delayed_recipe),
      cmocka_unit_test(low_precision_shrinks_gathers),
      cmocka_unit_test(per_tensor_casts),
      cmocka_unit_test(sorting_of_hybridep),
      cmocka_unit_test(context_ring),
      cmocka_unit_test(context_ring_in_a_byte),
      cmocka_unit_test(context_ring_is_merged),
      cmocka_unit_test(context_exchange_copies),
      cmocka_unit_test(latent_rotation),
      cmocka_unit_test(sums_two_by_two),
      cmocka_unit_test(gradients_of_the_gate),
      cmocka_unit_test(shared_input_is_kept_whole),
      cmocka_unit_test(latents_are_made_again),
      cmocka_unit_test(output_gate_is_kept),
      cmocka_unit_test(context_gather_and_exchange),
      cmocka_unit_test(context_repeats_keys),
      cmocka_unit_test(context_keeps_the_flop),
      cmocka_unit_test(bytes_of_the_dispatchers),
      cmocka_unit_test(weights_that_stay),
      cmocka_unit_test(host_of_the_optimizer),
      cmocka_unit_test(host_time_of_the_optimizer),
      cmocka_unit_test(expert_tensor_parallel_and_gathering_dispatcher),
      cmocka_unit_test(pipeline_messages),
      cmocka_unit_test(pipeline_messages_in_shares),
      cmocka_unit_test(recomputed_regions_cost_the_host),
      cmocka_unit_test(data_parallel_bytes),
      cmocka_unit_test(expert_counts_are_summed),
      cmocka_unit_test(host_reads_the_counts),
      cmocka_unit_test(expert_tensor_messages),
      cmocka_unit_test(learned_positions_need_whole_rows),
      cmocka_unit_test(muon_over_tp),
      cmocka_unit_test(instances_of_a_dense_model),
      cmocka_unit_test(instances_of_experts),
      cmocka_unit_test(instances_of_fsdp),
      cmocka_unit_test(gathered_types),
      cmocka_unit_test(fsdp_casts_once),
      cmocka_unit_test(fsdp_overwrites_gradients),
      cmocka_unit_test(summed_gradients),
      cmocka_unit_test(gathered_adapters),
      cmocka_unit_test(data_parallel_without_sharding),
      cmocka_unit_test(rows_are_well_formed),
      cmocka_unit_test(gradients_mirror_the_forward),
      cmocka_unit_test(executed_flop_is_the_convention),
      cmocka_unit_test(recompute_only_adds),
      cmocka_unit_test(every_operator_may_have_a_curve),
      cmocka_unit_test(parameters_of_the_ranks_are_the_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
