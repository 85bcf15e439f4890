/* Packed sequences of several lengths, and hybrid context parallelism: what they move and what they leave. */
#include "lib/close.h"

#include "lib/sound.h"
#include "lib/world.h"
#include "work/build.h"

#include <string.h>

static void pack(MsScenario *s, int n, const int *length, const double *weight) {
  s->training.sequence_lengths = (MsLengths){.n = n};
  memcpy(s->training.sequence_lengths.length, length, sizeof *length * (size_t)n);
  memcpy(s->training.sequence_lengths.weight, weight, sizeof *weight * (size_t)n);
}

static const int lengths[] = {1024, 4096, 16384, 65536};
static const double weights[] = {0.7, 0.2, 0.08, 0.02};

static MsScenario *dense(int cp) {
  MsScenario *s = ms_test_run("llama3-8b", 0, "h100-sxm", 32);
  s->training.seq_length = 65536;
  s->layout.cp = cp;
  s->training.global_batch_size = 64;
  s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
  return s;
}

static MsScenario *moe(int ep) {
  MsScenario *s = ms_test_run("qwen3-30b-a3b", 0, "h100-sxm", 32);
  s->training.seq_length = 65536;
  s->layout.ep = ep;
  s->training.global_batch_size = 256;
  return s;
}

/* Squares expected of a pack with room for `left` tokens, a whole number of times the shortest. */
static double squares_of(int left) {
  static double known[65];
  double *squares = &known[left / lengths[0]];
  for (int i = 0; i < 4 && left > 0; i++) {
    double length = MIN(left, lengths[i]);
    if (i == 0) *squares = 0;
    double rest = known[(left - (int)length) / lengths[0]];
    *squares += weights[i] * (length * length + rest);
  }
  return *squares;
}

static double squares_of_pack(void) {
  double squares = 0;
  for (int left = 0; left <= 65536; left += lengths[0]) squares = squares_of(left);
  return squares;
}

static double busiest(const MsPacking *k) { return k->skew * (1 + k->late); }

static double attention_flop(const MsLowered *l, int i) {
  const MsOpList *list = &l->work->pieces[l->work->piece_of_layer[i]].forward;
  double flop = 0;
  for (int k = 0; k < list->n; k++) flop += list->op[k].kind == MS_OP_ATTENTION ? list->op[k].flop : 0;
  return flop;
}

/* --- the same said in two ways --------------------------------------------------------------------------------- */

static void one_length_is_no_packing(void **state) {
  (void)state;
  for (int type = MS_CP_P2P; type <= MS_CP_A2A_P2P; type++) {
    g_autoptr(MsScenario) s = type == MS_CP_P2P ? moe(8) : dense(4);
    s->layout.cp = 4, s->layout.cp_comm_type = type;
    g_autoptr(MsResult) plain = sound(s);
    pack(s, 1, &s->training.seq_length, (const double[]){3});
    g_autoptr(MsResult) packed = sound(s);
    assert_close(packed->step_time_s, plain->step_time_s, 0);
    assert_close(packed->model_flop_per_token, plain->model_flop_per_token, 1e-15);
    assert_close(packed->memory->stage[0].peak_B, plain->memory->stage[0].peak_B, 0);
  }
}

static void hybrid_of_whole_packs_is_the_ring(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = dense(8);
  g_autoptr(MsResult) ring = sound(s);
  pack(s, 1, &s->training.seq_length, (const double[]){1});
  s->options.hybrid_context_parallel = TRUE;
  g_autoptr(MsResult) hybrid = sound(s);
  assert_close(hybrid->step_time_s, ring->step_time_s, 0);
  assert_close(hybrid->time.comm_total_s[MS_COMM_CP], ring->time.comm_total_s[MS_COMM_CP], 0);
}

/* --- what packing moves ---------------------------------------------------------------------------------------- */

static void attention_pays_the_squares(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = dense(2);
  g_autoptr(MsResult) whole = sound(s);
  pack(s, 4, lengths, weights);
  g_autoptr(MsResult) packed = sound(s);
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_true(l.work->packing.skew == 1); /* no experts: nobody waits in a layer */
  double per_token = 4 * 32 * 128 * squares_of_pack() / 65536 / 2;
  assert_close(attention_flop(&l, 0) * 2, per_token * 65536 * busiest(&l.work->packing), 1e-12);
  MsModelFlop a = ms_model_flop_per_token(s->model, 65536), b = ms_training_flop_per_token(s->model, &s->training);
  assert_close(b.attention_core, 3 * 32 * per_token, 1e-12);
  assert_close(a.total - a.attention_core, b.total - b.attention_core, 1e-12);
  assert_close(packed->model_flop_per_token, b.total, 1e-15);
  assert_true(packed->time.family_s[MS_FAMILY_ATTENTION] < whole->time.family_s[MS_FAMILY_ATTENTION]);
  assert_close(packed->time.family_s[MS_FAMILY_GEMM], whole->time.family_s[MS_FAMILY_GEMM], 1e-3);
  assert_close(packed->time.comm_total_s[MS_COMM_CP], whole->time.comm_total_s[MS_COMM_CP],
               0.02); /* static: all tokens go round */
  assert_close(packed->memory->stage[0].activations_B, whole->memory->stage[0].activations_B, 0);
}

static void busiest_pack_decides(void **state) {
  (void)state;
  double before = 0;
  for (int ep = 1; ep <= 32; ep *= 4) {
    g_autoptr(MsScenario) s = moe(ep);
    pack(s, 4, lengths, weights);
    g_auto(MsLowered) l = ms_test_lower(s), again = ms_test_lower(s);
    assert_true(l.work->packing.skew == again.work->packing.skew && l.work->packing.late == again.work->packing.late);
    assert_true(l.work->packing.skew > before);
    before = l.work->packing.skew;
    assert_true(ep == 1 ? l.work->packing.skew == 1 && l.work->packing.late > 0 : l.work->packing.skew > 1.1);
    if (ep == 32) assert_true(l.work->packing.late == 0); /* one expert group: nobody is left to wait for */
    s->training.sequence_lengths.seed = 5;
    g_auto(MsLowered) other = ms_test_lower(s);
    if (ep > 1) assert_true(other.work->packing.skew != l.work->packing.skew);
    assert_close(other.work->packing.skew, l.work->packing.skew, 0.15);
    assert_close(attention_flop(&other, 0) / busiest(&other.work->packing),
                 attention_flop(&l, 0) / busiest(&l.work->packing), 1e-9);
  }
}

static void more_microbatches_even_out(void **state) {
  (void)state;
  double before = HUGE_VAL;
  for (int m = 2; m <= 128; m *= 4) {
    g_autoptr(MsScenario) s = dense(1);
    s->training.global_batch_size = 32 * m;
    pack(s, 4, lengths, weights);
    g_auto(MsLowered) l = ms_test_lower(s);
    assert_true(l.work->packing.late > 0 && l.work->packing.late < before);
    before = l.work->packing.late;
    assert_close(l.work->packing.length, l.work->packing.mean * (1 + before), 1e-12);
  }
}

/* --- an unbroken sequence costs most --------------------------------------------------------------------------- */

/* Cut at the end or not, drawn or expected, with a window or without. */
static void no_pack_beats_an_unbroken_sequence(void **state) {
  (void)state;
  static const int pairs[][2] = {{16385, 32768}, {8192, 32768}, {100, 32768}, {30000, 32767}};
  static const char *const models[] = {"llama3-8b", "qwen3-30b-a3b", "llama3-70b"};
  for (guint i = 0; i < G_N_ELEMENTS(models) * G_N_ELEMENTS(pairs); i++) {
    g_autoptr(MsScenario) s = ms_test_run(models[i % 3], 0, "h100-sxm", 64);
    s->training.seq_length = 32768, s->training.global_batch_size = 128, s->layout.cp = i % 2 ? 4 : 1;
    if (i % 3 == 1) s->layout.ep = 16;
    if (i % 3 == 2) ((MsModel *)s->model)->sliding_window.window = 4096, s->layout.tp = 8;
    g_autoptr(MsResult) whole = sound(s);
    g_auto(MsLowered) a = ms_test_lower(s);
    for (guint32 seed = 0; seed < 3; seed++) {
      pack(s, 2, pairs[i / 3], (const double[]){1, 1});
      s->training.sequence_lengths.seed = seed;
      g_autoptr(MsResult) packed = sound(s);
      g_auto(MsLowered) b = ms_test_lower(s);
      for (int layer = 0; layer < s->model->num_layers; layer++)
        assert_true(attention_flop(&b, layer) <= attention_flop(&a, layer) * (1 + 1e-12));
      if (packed->step_time_s > whole->step_time_s * (1 + 1e-4) ||
          packed->model_flop_per_token > whole->model_flop_per_token)
        fail_msg("%s, %d: %g s, whole %g s", models[i % 3], pairs[i / 3][0], packed->step_time_s, whole->step_time_s);
    }
  }
}

/* Where the host decides, the rank with the longest packs has time for them, but in front of where the host waits for
 * the counts of the experts. */
static void host_hides_the_longest_packs(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("qwen3-30b-a3b", 0, "h100-sxm", 8);
  s->training.seq_length = 8192, s->training.global_batch_size = 64;
  pack(s, 2, (const int[]){4096, 8192}, (const double[]){1, 1});
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_true(l.work->packing.late > 0.05);
  g_autoptr(MsResult) mixed = sound(s);
  pack(s, 1, (const int[]){4096}, (const double[]){1});
  g_autoptr(MsResult) even = sound(s);
  assert_close(mixed->step_time_s, even->step_time_s, 0.015);
}

/* --- hybrid context parallelism -------------------------------------------------------------------------------- */

static void hybrid_spares_short_sequences(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = dense(16);
  pack(s, 4, lengths, weights);
  g_autoptr(MsResult) ring = sound(s);
  s->options.hybrid_context_parallel = TRUE;
  g_autoptr(MsResult) hybrid = sound(s);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPacking *k = &l.work->packing;
  assert_int_equal(k->n, 5); /* 1024 and 4096 on one rank, 16384 on 4, 65536 on 16; cut ones on 2 and 8 too */
  double tokens = 0, squares = 0;
  for (int i = 0; i < 5; i++) {
    assert_int_equal(k->part[i].ranks, 1 << i);
    assert_true(k->part[i].length <= 4096 << i && (i == 0 || k->part[i].length > 2048 << i));
    tokens += k->part[i].tokens, squares += k->part[i].tokens * k->part[i].length;
  }
  assert_close(tokens, 1, 1e-12);
  assert_close(squares, squares_of_pack() / 65536, 1e-12);
  assert_true(k->skew >= 1);
  assert_true(hybrid->time.comm_total_s[MS_COMM_CP] < 0.6 * ring->time.comm_total_s[MS_COMM_CP]);
  assert_close(hybrid->time.family_s[MS_FAMILY_GEMM], ring->time.family_s[MS_FAMILY_GEMM], 1e-3);
  assert_close(hybrid->memory->stage[0].activations_B, ring->memory->stage[0].activations_B, 0);
  assert_close(hybrid->model_flop_per_token, ring->model_flop_per_token, 0);
  s->options.max_seqlen_per_dp_cp_rank = 65536;
  g_auto(MsLowered) alone = ms_test_lower(s);
  assert_true(alone.work->packing.n == 1 && alone.work->packing.part[0].ranks == 1);
  g_autoptr(MsResult) none = sound(s);
  assert_true(none->time.comm_total_s[MS_COMM_CP] == 0);
}

/* Sparse, compressed and linear attention take the lengths too. */
static void other_attention_packs(void **state) {
  (void)state;
  static const char *const models[] = {"deepseek-v3.2", "deepseek-v4-flash", "qwen3-next-80b-a3b"};
  for (guint i = 0; i < G_N_ELEMENTS(models); i++) {
    g_autoptr(MsScenario) s = ms_test_run(models[i], 0, "gb200-nvl72", 64);
    s->layout.ep = 64;
    s->training.seq_length = 65536;
    g_autoptr(MsResult) whole = sound(s);
    pack(s, 1, &s->training.seq_length, (const double[]){1});
    g_autoptr(MsResult) same = sound(s);
    assert_close(same->step_time_s, whole->step_time_s, 0);
    pack(s, 4, lengths, weights);
    g_autoptr(MsResult) packed = sound(s);
    if (packed->time.family_s[MS_FAMILY_ATTENTION] >= whole->time.family_s[MS_FAMILY_ATTENTION])
      fail_msg("%s: attention %g s, whole %g s", models[i], packed->time.family_s[MS_FAMILY_ATTENTION],
               whole->time.family_s[MS_FAMILY_ATTENTION]);
    assert_close(packed->time.family_s[MS_FAMILY_GROUPED], whole->time.family_s[MS_FAMILY_GROUPED], 1e-3);
  }
}

/* Before a gated delta net the host asks where packed sequences end; whole ones it does not ask about. */
static void ends_of_sequences(void **state) {
  (void)state;
  for (int packed = 0; packed < 2; packed++) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-next-80b-a3b", 0, "h100-sxm", 32);
    s->training.seq_length = 65536, s->layout.ep = 8;
    if (packed) pack(s, 4, lengths, weights);
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsOp *delta = l.work->pieces[l.work->piece_of_layer[0]].forward.op,
               *softmax = l.work->pieces[l.work->piece_of_layer[3]].forward.op;
    assert_int_equal(strcmp(delta->name, "ends of sequences") == 0, packed);
    assert_int_equal((delta->flags & MS_OPF_SYNC) != 0, packed);
    assert_string_not_equal(softmax->name, "ends of sequences");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ends_of_sequences),
      cmocka_unit_test(one_length_is_no_packing),
      cmocka_unit_test(hybrid_of_whole_packs_is_the_ring),
      cmocka_unit_test(attention_pays_the_squares),
      cmocka_unit_test(busiest_pack_decides),
      cmocka_unit_test(more_microbatches_even_out),
      cmocka_unit_test(hybrid_spares_short_sequences),
      cmocka_unit_test(no_pack_beats_an_unbroken_sequence),
      cmocka_unit_test(host_hides_the_longest_packs),
      cmocka_unit_test(other_attention_packs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
