/* deterministic_mode row by row; full recomputation of MTP blocks; tokens that a dispatcher without duplicates sends to
 * a busy rank. */
#include "lib/close.h"

#include "lib/world.h"
#include "step/program.h"
#include "sim/simulate.h"
#include "work/build.h"

#include <string.h>

static const MsPiece *moe_piece(const MsLowered *l) { return &l->work->pieces[l->work->piece_of_layer[7]]; }

static MsScenario *moe(void) {
  MsScenario *s = ms_test_run("deepseek-v3", 0, "h100-sxm", 64);
  s->model->num_layers = 8;
  for (int i = 0; i < 8; i++) s->model->moe_layer[i] = i > 0;
  s->layout.tp = 2, s->layout.ep = 32;
  s->options.sequence_parallel = s->options.distributed_optimizer = TRUE;
  s->options.cross_entropy_fusion = FALSE;
  s->training.global_batch_size = 64;
  return s;
}

static const MsOp *row(const MsOpList *list, const char *name) {
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->op[i].name, name)) return &list->op[i];
  fail_msg("no row %s", name);
  return NULL;
}

static double written(const MsOpList *list, const char *name) {
  double sum = 0;
  for (int i = 0; i < list->n; i++) sum += strcmp(list->op[i].name, name) ? 0 : list->op[i].write_B;
  return sum;
}

/* --- fills ----------------------------------------------------------------------------------------------------- */
static void rows_wait_as_before(const MsOpList *plain, const MsOpList *list) {
  int at = 0;
  for (int i = 0; i < list->n; i++) {
    for (int j = 0; j < 3; j++) assert_true(list->op[i].wait[j] < i);
    if (at < plain->n && !strcmp(list->op[i].name, plain->op[at].name) && list->op[i].pass == plain->op[at].pass) at++;
  }
  assert_int_equal(at, plain->n); /* all rows are there, in their order */
  assert_true(list->tip < list->n && (list->tip >= 0) == (plain->tip >= 0));
}

static void new_tensors_are_filled(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe();
  s->options.moe_permute_fusion = TRUE;
  g_auto(MsLowered) plain = ms_test_lower(s);
  s->options.deterministic_mode = TRUE;
  g_auto(MsLowered) on = ms_test_lower(s);
  const MsPiece *a = moe_piece(&plain), *b = moe_piece(&on);
  assert_true(written(&a->forward, "fill") == 0);
  rows_wait_as_before(&a->forward, &b->forward);
  rows_wait_as_before(&a->backward, &b->backward);
  for (int i = 1; i < b->forward.n;
       i++) { /* a fill is as large as what the product behind it writes, and the product waits for it */
    const MsOp *op = &b->forward.op[i];
    if (op->kind != MS_OP_GROUPED_GEMM) continue;
    assert_true(b->forward.op[i - 1].kind == MS_OP_FILL && op->wait[0] == i - 1);
    assert_close(b->forward.op[i - 1].write_B, op->write_B, 0);
  }
  assert_true(written(&b->forward, "sorted sum") == 0); /* fused kernels gather */
  assert_close(a->kept_B, b->kept_B, 0);
  s->options.transformer_impl = MS_IMPL_LOCAL; /* PyTorch's own products are not filled */
  g_auto(MsLowered) local = ms_test_lower(s);
  assert_true(written(&moe_piece(&local)->forward, "fill") < written(&b->forward, "fill"));
}

static void plain_permutation_sums_in_order(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe();
  s->options.moe_permute_fusion = FALSE, s->options.deterministic_mode = TRUE;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = moe_piece(&l);
  double routed = 4096 / 2 * 8, row_B = 2 * 7168; /* TP 2 shares the sequence */
  assert_true(written(&p->forward, "sorted sum") >= routed * row_B &&
              written(&p->forward, "sorted sum") < 1.01 * routed * row_B);
  const MsOp *sum = row(&p->forward, "sorted sum");
  assert_string_equal(p->forward.op[sum->wait[0]].name, "unpermute");
}

static void what_it_costs(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 16);
  s->options.cross_entropy_fusion = FALSE;
  s->layout.tp = 2, s->options.sequence_parallel = FALSE; /* all-reduces */
  s->training.global_batch_size = 32;
  g_autoptr(MsResult) off = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->options.deterministic_mode = TRUE;
  g_autoptr(MsResult) on = ms_test_simulate(s, MS_FIDELITY_FULL);
  double slower = on->time.family_s[MS_FAMILY_ATTENTION] / off->time.family_s[MS_FAMILY_ATTENTION];
  assert_true(slower > 1.15 && slower < 1.3); /* forward is as fast as it was */
  assert_true(on->time.family_s[MS_FAMILY_MEMORY] > off->time.family_s[MS_FAMILY_MEMORY]);
  assert_close(on->time.family_s[MS_FAMILY_GEMM], off->time.family_s[MS_FAMILY_GEMM], 0.02);
  assert_true(on->time.comm_total_s[0] > off->time.comm_total_s[0]);
}

static void refused(MsScenario *s, const char *part) {
  GError *error = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
  assert_null(r);
  if (!strstr(error->message, part)) fail_msg("\"%s\" does not contain \"%s\"", error->message, part);
  g_clear_error(&error);
}

static void what_does_not_go_with_it(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe();
  s->options.deterministic_mode = TRUE, s->options.cross_entropy_fusion = TRUE;
  refused(s, "cross_entropy_fusion");
  s->options.cross_entropy_fusion = FALSE, s->options.tp_comm_overlap = TRUE;
  refused(s, "tp_comm_overlap");
}

/* --- full recomputation of MTP blocks -------------------------------------------------------------------------- */
static double flop(const MsOpList *list, int pass) {
  double sum = 0;
  for (int i = 0; i < list->n; i++) sum += list->op[i].pass == pass ? list->op[i].flop : 0;
  return sum;
}

static void mtp_blocks_are_recomputed(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe();
  s->model->mtp_num_layers = 1;
  g_auto(MsLowered) kept = ms_test_lower(s);
  s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_FULL, 0, MS_RECOMPUTE_BLOCK, 0}; /* no layer of the decoder */
  g_auto(MsLowered) again = ms_test_lower(s);
  const MsPiece *a = &kept.work->pieces[kept.work->piece_mtp], *b = &again.work->pieces[again.work->piece_mtp];
  assert_true(flop(&a->backward, MS_PASS_RECOMPUTE) == 0);
  assert_close(flop(&b->backward, MS_PASS_RECOMPUTE), flop(&a->forward, MS_PASS_FORWARD), 1e-12);
  assert_close(b->kept_B, 2 * 2 * 4096.0 / 2 * 7168, 1e-12);     /* hidden states and embedding, a share of each */
  assert_true(b->backward_transient_B + b->kept_B >= a->kept_B); /* all of it lives again in the backward */
}

/* --- a busy rank ----------------------------------------------------------------------------------------------- */
static void a_token_comes_once(void **state) {
  (void)state;
  for (int hybrid = 0; hybrid < 2; hybrid++) {
    g_autoptr(MsScenario) s = moe();
    s->layout.tp = 1, s->options.sequence_parallel = FALSE;
    s->options.dispatcher = hybrid ? MS_DISPATCH_HYBRIDEP : MS_DISPATCH_DEEPEP;
    s->model->moe_router_num_groups = s->model->moe_router_group_topk = 0;
    g_auto(MsLowered) even = ms_test_lower(s);
    s->model->moe_aux_loss_coeff = 0;
    s->training.routing = (MsRouting){.kind = MS_ROUTING_NATURAL};
    g_auto(MsLowered) skewed = ms_test_lower(s);
    const MsOp *a = row(&moe_piece(&even)->forward, "dispatch"), *b = row(&moe_piece(&skewed)->forward, "dispatch");
    double all = 4096.0 * (2 * 7168), skew = skewed.work->rows_expert / even.work->rows_expert;
    assert_true(skew > 3);
    assert_true(b->message_B > a->message_B && b->message_B < skew * a->message_B);
    assert_true(b->message_B <= 32 * all); /* every token of the group, once */
    assert_true(b->level_B[1] > a->level_B[1] &&
                b->level_B[1] < 1.01 * 3 * all); /* those of the three other nodes, once for each */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(new_tensors_are_filled),
                                     cmocka_unit_test(plain_permutation_sums_in_order),
                                     cmocka_unit_test(what_it_costs),
                                     cmocka_unit_test(what_does_not_go_with_it),
                                     cmocka_unit_test(mtp_blocks_are_recomputed),
                                     cmocka_unit_test(a_token_comes_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
