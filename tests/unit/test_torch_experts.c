/* Experts of PyTorch's operators (`framework` torchtitan): bytes and launches of every row by hand, what they keep,
 * what is fetched ahead. */
#include "lib/close.h"

#include "cost/cost.h"
#include "lib/world.h"
#include "step/fetch.h"

#include <math.h>
#include <string.h>

enum { ANY = -1 };

/* DeepSeek-V2-Lite over eight expert ranks, tokens of one sequence, every operator counted whole. */
static const double T = 4096, K = 6 * 4096, P = 6 * 4096 + 8 * 8, h = 2048, f = 1408, E = 64;

static MsScenario *run_in(const char *framework, const char *model, int ep, const char *options) {
  g_autofree char *text = g_strdup_printf(
      "{\"framework\": \"%s\", \"model\": \"%s\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"laws\": "
      "{\"plain_operators\": 1}, \"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, \"global_batch_size\": "
      "8}, \"layout\": {\"ep\": %d}, \"options\": {\"dispatcher\": \"alltoall\"%s}}",
      framework, model, ep, options);
  return ms_test_scenario_of(text);
}

static MsScenario *run_of(const char *model, int ep, const char *options) {
  return run_in("torchtitan", model, ep, options);
}

static const MsOp *nth_row(const MsOpList *list, const char *name, int pass, int n) {
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->op[i].name, name) && (pass == ANY || list->op[i].pass == pass) && n-- == 0) return &list->op[i];
  return NULL;
}

static const MsOp *row(const MsOpList *list, const char *name) {
  const MsOp *op = nth_row(list, name, ANY, 0);
  if (!op) fail_msg("no row %s", name);
  return op;
}

static const MsPiece *layer(const MsLowered *l, int i) { return &l->work->pieces[l->work->piece_of_layer[i]]; }

static void rows_by_hand(void **state) {
  (void)state;
  const struct {
    const char *name;
    gboolean back;
    double read, write; /* elements of width h times bytes */
    int kernels;
  } rows[] = {{"gather tokens", FALSE, 2 * K, 2 * K, 2},
              {"append row", FALSE, 2 * K, 2 * K, 2},
              {"rows to groups", FALSE, 2 * P, 2 * P, 2},
              {"rows from groups", FALSE, 2 * P, 2 * P, 2},
              {"copies in place", FALSE, 2 * K, 2 * K + 2 * K, 2},
              {"weigh copies", FALSE, 2 * K + 4 * K + 4 * T, 4 * K + 4 * T + 2 * T, 3},
              {"residual add", FALSE, 2 * T + 2 * T, 2 * T, 1}, /* attention's */
              {"weigh copies", TRUE, 2 * T + 2 * (4 * T) + 4 * K + 4 * K, 4 * T + 4 * K + 2 * K, 4},
              {"copies in place", TRUE, 2 * K, 2 * K, 1},
              {"rows from groups", TRUE, 2 * K + 2 * P, 2 * K + 2 * K + 2 * P, 4},
              {"rows to groups", TRUE, 2 * P + 2 * K, 2 * K + 2 * K, 8},
              {"gather tokens", TRUE, 2 * K + 2 * T, 2 * T + 2 * T, 7}};
  g_autoptr(MsScenario) s = run_of("deepseek-v2-lite", 8, "");
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = layer(&l, 1);
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    const MsOp *op = row(rows[i].back ? &p->backward : &p->forward, rows[i].name);
    if (fabs(op->read_B - rows[i].read * h) > 1 || fabs(op->write_B - rows[i].write * h) > 1)
      fail_msg("%s: %.0f and %.0f B, not %.0f and %.0f", op->name, op->read_B, op->write_B, rows[i].read * h,
               rows[i].write * h);
    assert_int_equal(op->kernels, rows[i].kernels);
  }
  assert_null(nth_row(&p->backward, "append row", ANY, 0));
  const MsOp *order = row(&p->forward, "dispatch preprocess"), *places = row(&p->forward, "places in groups");
  assert_close(order->read_B + order->write_B, (8 * (16 + 16) + 8 + 8 + 8 + 4 + 4) * K, 1e-12);
  assert_close(places->write_B, 8 * P, 1e-12);
  assert_int_equal(places->kernels, 17);
  assert_close(row(&p->forward, "token counts")->message_B, 8 * E, 1e-12);
  assert_true(row(&p->forward, "row counts to host")->flags & MS_OPF_SYNC);
  assert_null(nth_row(&p->backward, "token counts", ANY, 0)); /* the sizes are known by then */
  const MsOp *sum = nth_row(&p->forward, "residual add", ANY, 1), *back = row(&p->backward, "gradient add");
  assert_close(sum->read_B + sum->write_B, 2 * 6 * T * h, 1e-12); /* of modules apart: two at a time */
  assert_close(back->read_B + back->write_B, 3 * 6 * T * h, 1e-12);
}

/* Gate and up are products apart for all experts at once, on groups of whole eights, whose input gradients are added;
 * SiLU and product work on every place. Nothing of the router weights is in between. */
static void products_by_hand(void **state) {
  (void)state;
  for (int eager = 0; eager < 2; eager++) {
    g_autoptr(MsScenario) s = run_of("deepseek-v2-lite", 8, eager ? ", \"torch_compile\": false" : "");
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = layer(&l, 1);
    const double rows = K + 8 * 3.5;
    for (int i = 0; i < 3; i++) {
      const MsOp *op = nth_row(&p->forward, i < 2 ? "expert fc1" : "expert fc2", ANY, i % 2);
      assert_close(op->flop, 2 * rows * h * f, 1e-12);
      assert_true(op->kernels <= 4);
    }
    assert_null(nth_row(&p->forward, "expert fc1", ANY, 2));
    for (int i = 0; i < 2; i++) {
      assert_close(nth_row(&p->backward, "expert fc1", MS_PASS_DGRAD, i)->flop, 2 * rows * h * f, 1e-12);
      assert_close(nth_row(&p->backward, "expert fc1", MS_PASS_WGRAD, i)->flop, 2 * rows * h * f, 1e-12);
    }
    const MsOp *sum = row(&p->backward, "gradients of products"), *act = row(&p->forward, "expert activation");
    assert_close(sum->read_B + sum->write_B, 6 * rows * h, 1e-12);
    assert_close(act->read_B + act->write_B, (eager ? 10 : 6) * P * f, 1e-12);
    assert_int_equal(act->kind, MS_OP_ACTIVATION);
  }
}

/* The shared expert runs while combine is under way, which is waited for where copies are put in place. */
static void shared_beside_combine(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_of("deepseek-v2-lite", 8, "");
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsOpList *list = &layer(&l, 1)->forward;
  const MsOp *combine = row(list, "combine"), *shared = row(list, "shared fc1"), *last = row(list, "shared fc2"),
             *place = row(list, "copies in place");
  assert_int_equal(shared->wait[0], row(list, "rows from groups") - list->op);
  assert_int_equal(shared->wait[1], -1);
  assert_true(shared > combine && place > last);
  assert_int_equal(place->wait[0], last - list->op);
  assert_int_equal(place->wait[1], combine - list->op);
}

/* Scores and choice, row numbers, copies in FP32; what eager SiLU gave. */
static void kept_by_hand(void **state) {
  (void)state;
  double kept[2];
  for (int eager = 0; eager < 2; eager++) {
    g_autoptr(MsScenario) s = run_of("deepseek-v2-lite", 8, eager ? ", \"torch_compile\": false" : "");
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = layer(&l, 1);
    kept[eager] = 0;
    for (int i = 0; i < p->n_kept; i++) {
      const MsKept *k = &p->kept[i];
      if (!strcmp(k->name, "router maps")) assert_close(k->bytes_B, 4 * T * E + 8 * K, 1e-12);
      if (!strcmp(k->name, "expert output")) assert_close(k->bytes_B, 4 * K * h + 8 * K + 4 * P, 1e-12);
      if (!strcmp(k->name, "expert input")) assert_close(k->bytes_B, 2 * P * h, 1e-12);
      if (!strncmp(k->name, "expert ", 7)) kept[eager] += k->bytes_B;
    }
  }
  assert_close(kept[0], 2 * P * h + 2 * P * 2 * f + 2 * P * f + 4 * K * h + 8 * K + 4 * P, 1e-12);
  assert_close(kept[1] - kept[0], 2 * P * f, 1e-12);
}

/* Softmax without norm; sigmoid among groups, with it. */
static void routers_by_hand(void **state) {
  (void)state;
  const struct {
    const char *model, *options;
    int kernels[2];
  } runs[] = {{"deepseek-v2-lite", ", \"torch_compile\": false", {8, 5}},
              {"deepseek-v2-lite", "", {5, 3}},
              {"qwen3-30b-a3b", ", \"torch_compile\": false", {8 + 3, 5 + 7}},
              {"deepseek-v3", ", \"torch_compile\": false", {8 + 6 + 3, 5 + 7}},
              {"deepseek-v3", "", {5 + 6, 3}}};
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_autoptr(MsScenario) s = run_of(runs[i].model, 8, runs[i].options);
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = layer(&l, 5);
    assert_int_equal(row(&p->forward, "router top-k")->kernels, runs[i].kernels[0]);
    assert_int_equal(row(&p->backward, "router top-k")->kernels, runs[i].kernels[1]);
  }
  g_autoptr(MsScenario) s = run_of("deepseek-v3", 8, ", \"torch_compile\": false");
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsOp *op = row(&layer(&l, 5)->forward, "router top-k");
  assert_close(op->read_B, (2 + 4 + 4 + 4 + 2 * 4) * T * 256, 1e-12);
  assert_close(op->write_B, (4 + 4 + 4 + 4) * T * 256, 1e-12);
}

/* DeepEP brings a token once and puts its copies in order on arrival: weights multiply there, in BF16. */
static void deepep_weighs_on_arrival(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_of("deepseek-v2-lite", 8, "");
  s->options.dispatcher = MS_DISPATCH_DEEPEP;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *p = layer(&l, 1);
  const MsOp *weigh = row(&p->forward, "weigh copies"), *back = row(&p->backward, "weigh copies");
  assert_close(weigh->read_B + weigh->write_B, 4 * K * h, 1e-12);
  assert_close(back->read_B + back->write_B, 12 * K * h, 1e-12);
  assert_null(nth_row(&p->forward, "gather tokens", ANY, 0));
  assert_null(nth_row(&p->backward, "router weight gradient", ANY, 0));
}

/* 16 heads of 128 and 64 rotary columns, values of 128, one rotary key: complex numbers, and what is put together. */
static void latent_rotation_by_hand(void **state) {
  (void)state;
  const double rotary = (16 + 1) * 64;
  for (int eager = 0; eager < 2; eager++) {
    g_autoptr(MsScenario) s = run_of("deepseek-v2-lite", 8, eager ? ", \"torch_compile\": false" : "");
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsOp *op = row(&layer(&l, 1)->forward, "rope"), *back = row(&layer(&l, 1)->backward, "rope");
    double again = eager ? 2 * 16 * 64 : 0;
    assert_close(op->read_B, T * (10 * rotary + 2 * 2 * 16 * 128 + again), 1e-12);
    assert_close(op->write_B, T * (10 * rotary + 2 * (2 * 16 * 128 + 16 * 64) + again), 1e-12);
    assert_close(back->read_B, T * (10 * rotary + 2 * (16 * 128 + 16 * (128 + 128 + 64) + 512) + again), 1e-12);
    assert_close(back->write_B, T * (10 * rotary + 2 * (16 * 128 + 16 * 256 + 512) + again), 1e-12);
  }
}

/* Latent attention is FlexAttention, other attention cuDNN's; a file may say otherwise. */
static void latent_attention_is_flex(void **state) {
  (void)state;
  static const struct {
    const char *model, *options;
    MsAttnBackend backend;
  } runs[] = {{"deepseek-v2-lite", "", MS_ATTN_FA2},
              {"deepseek-v2-lite", ", \"attention_backend\": \"fused\"", MS_ATTN_FUSED},
              {"qwen3-30b-a3b", "", MS_ATTN_FUSED}};
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_autoptr(MsScenario) s =
        run_in("torchtitan\", \"software\": \"torchtitan-2026-02", runs[i].model, 8, runs[i].options);
    assert_int_equal(s->options.attention_backend, runs[i].backend);
  }
}

/* What the backward of a layer in the middle fetches ahead; bytes of experts that are gathered once more. */
static int fetched_ahead(const char *framework, int ep, double *again_B) {
  g_autoptr(MsScenario) s = run_in(framework, "deepseek-v2-lite", ep,
                                   ", \"recompute\": {\"granularity\": \"full\", \"method\": \"uniform\", "
                                   "\"num_layers\": 1}");
  s->gpus = 16, s->training.global_batch_size = 16;
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
  g_autoptr(MsProgram) p = ms_program_new(l.work, cost);
  const MsChunk *chunk = ms_layout_chunk(l.layout, 0, 0);
  MsPieceWalk walk = ms_piece_walk(l.work, (MsChunks){.backward = chunk, .kind = MS_SLOT_B});
  while (ms_piece_next(&walk) && walk.backward.piece != l.work->piece_of_layer[10]) {}
  const MsOpList *again = p->unit[l.work->piece_of_layer[10]].again.list;
  *again_B = again->n > 0 ? again->op[0].message_B : 0;
  return ms_need_ahead(p, &walk, TRUE, (MsNeed){-1, FALSE}).piece;
}

static void blocks_fetch_the_next(void **state) {
  (void)state;
  double again_B, experts = 64 * 3 * h * f;
  assert_true(fetched_ahead("torchtitan", 8, &again_B) >= 0); /* experts are gathered again, but no order is lost */
  assert_close(again_B, 2 * experts / 8, 1e-12);
  assert_true(fetched_ahead("torchtitan", 1, &again_B) >= 0); /* experts are of the block's unit */
  assert_close(again_B, 0, 0);
  assert_int_equal(fetched_ahead("automodel", 8, &again_B), -1);
  assert_close(again_B, 2 * experts / 8, 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_by_hand),
      cmocka_unit_test(products_by_hand),
      cmocka_unit_test(shared_beside_combine),
      cmocka_unit_test(kept_by_hand),
      cmocka_unit_test(routers_by_hand),
      cmocka_unit_test(deepep_weighs_on_arrival),
      cmocka_unit_test(latent_rotation_by_hand),
      cmocka_unit_test(latent_attention_is_flex),
      cmocka_unit_test(blocks_fetch_the_next),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
