/* The executor on one rank: ledger and FLOP of every model, gradients against finite differences of the loss, refusals
 * by name, and that a list which keeps too little, too much or the wrong size is caught. Several ranks: test_full_exec.
 */
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/exec_case.h"

#include "base/err.h"
#include "exec/exec.h"

#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

static MsExecResult *run_or_fail(const MsScenario *s, const MsExecOptions *o) {
  GError *error = NULL;
  MsExecResult *r = ms_exec_run(s, o, &error);
  if (!r) fail_msg("%s", error->message);
  return r;
}

/* --- gradients ------------------------------------------------------------------------------------------------- */

static const struct {
  const char *model, *matrix;
  int at;
} probes[] = {
    {"dense", "embedding.table", 390},
    {"dense", "layers.0.q", 5},
    {"dense", "layers.1.k", 77},
    {"dense", "layers.2.v", 3},
    {"dense", "layers.1.attention out", 9},
    {"dense", "layers.3.q norm", 2},
    {"dense", "layers.0.fc1 gate", 33},
    {"dense", "layers.2.fc2", 8},
    {"dense", "head.table", 100},
    {"dense", "head.final norm", 4},
    {"gpt", "embedding.table", 40},
    {"gpt", "embedding.positions", 96},
    {"gpt", "layers.0.q bias", 3},
    {"gpt", "layers.1.fc1 bias", 7},
    {"gpt", "layers.2.fc2 bias", 1},
    {"gpt", "layers.3.attention norm bias", 5},
    {"gpt", "layers.1.attention out bias", 2},
    {"gpt", "layers.1.v bias", 2},
    {"window", "layers.0.sink", 1},
    {"window", "layers.1.sink", 3},
    {"window", "layers.0.k", 60},
    {"window", "embedding.table", 44},
    {"moe", "layers.1.router", 35},
    {"moe", "layers.2.expert fc1 gate 3", 11},
    {"moe", "layers.3.expert fc2 6", 20},
    {"moe", "layers.1.mlp norm", 9},
    {"mla", "layers.0.q down", 50},
    {"mla", "layers.1.q up", 31},
    {"mla", "layers.2.kv down", 530},
    {"mla", "layers.2.kv down", 20},
    {"mla", "layers.0.kv up", 100},
    {"mla", "layers.1.q latent norm", 3},
    {"mla", "layers.3.shared fc1", 17},
    {"mla", "layers.2.shared fc2", 40},
    {"mla", "layers.4.eh proj", 70},
    {"mla", "layers.4.mtp hidden norm", 6},
    {"mla", "layers.4.mtp final norm", 8},
    {"mla", "embedding.table", 390},
    {"mla", "layers.4.expert fc1 5", 2},
    {"mla-input", "layers.0.q latent norm", 3},
    {"mla-input", "layers.1.attention norm", 3},
    {"mla-input", "layers.2.q up", 31},
    {"mla-input", "layers.1.kv down", 20},
    {"latent", "layers.1.latent down", 60},
    {"latent", "layers.2.latent up", 61},
    {"latent", "layers.3.expert fc1 2", 14},
    {"latent", "layers.2.router", 70},
    {"query-latent", "layers.0.q down", 50},
    {"query-latent", "layers.1.q latent norm", 3},
    {"query-latent", "layers.2.q up", 31},
    {"query-latent", "layers.1.k", 60},
    {"query-latent", "layers.3.attention norm", 5},
};

static double probed_loss(MsScenario *s, const char *matrix, gint64 at, double by, double *gradient) {
  MsExecOptions o = {.type = MS_BLAS_F64, .probe = matrix, .probe_at = at, .probe_by = by};
  g_autoptr(MsExecResult) r = run_or_fail(s, &o);
  if (gradient) *gradient = r->probe_gradient;
  return r->loss;
}

static void gradients_are_differences_of_the_loss(void **state) {
  (void)state;
  const double by = 1e-5;
  int silent = 0;
  for (guint i = 0; i < G_N_ELEMENTS(probes); i += (guint)ms_by_tier(3, 1)) {
    g_autoptr(MsScenario) s = ms_test_exec_scenario(probes[i].model);
    s->training.global_batch_size = 2;
    double gradient, up = probed_loss(s, probes[i].matrix, probes[i].at, by, &gradient),
                     down = probed_loss(s, probes[i].matrix, probes[i].at, -by, NULL);
    probed_loss(s, probes[i].matrix, probes[i].at, 0, &gradient);
    double difference = (up - down) / (2 * by);
    if (!(fabs(gradient - difference) <= 1e-6 * fabs(gradient) + 1e-8))
      fail_msg("%s %s[%d]: gradient %.12g, difference %.12g", probes[i].model, probes[i].matrix, probes[i].at, gradient,
               difference);
    if (fabs(gradient) < 1e-7)
      silent++, print_message("%s %s[%d]: gradient %g shows nothing\n", probes[i].model, probes[i].matrix, probes[i].at,
                              gradient);
  }
  assert_int_equal(silent, 0);
}

/* --- accounts -------------------------------------------------------------------------------------------------- */

static void accounts_of_every_model(void **state) { /* ledger and FLOP are checked row by row inside */
  (void)state;
  for (int i = 0; ms_test_exec_models[i]; i++) {
    g_autoptr(MsScenario) s = ms_test_exec_scenario(ms_test_exec_models[i]);
    MsExecOptions o = {.type = MS_BLAS_F32, .steps = 3};
    g_autoptr(MsExecResult) r = run_or_fail(s, &o);
    assert_int_equal(r->steps, 3);
    assert_true(r->loss > 1 && r->loss < 10 && r->gradient_norm > 0);
    assert_true(r->peak_kept_B[0] > 0 && r->rank_flop[0] > 0 && r->rank_message_B[0] == 0);
    double flop = 0;
    for (int k = 0; k < r->n_rows; k++) {
      assert_true((r->rows[k].calls > 0 && r->rows[k].calls % 3 == 0) || r->rows[k].list == MS_EXEC_P2P);
      assert_true(r->rows[k].least_wall_s * r->rows[k].calls <= r->rows[k].wall_s * (1 + 1e-9));
      flop += r->rows[k].flop * r->rows[k].calls / 3;
    }
    assert_close(flop, r->rank_flop[0], 1e-12);
  }
}

static void steps_learn(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_exec_scenario("mla");
  MsExecOptions one = {.type = MS_BLAS_F64}, many = {.type = MS_BLAS_F64, .steps = 8};
  g_autoptr(MsExecResult) first = run_or_fail(s, &one);
  g_autoptr(MsExecResult) last = run_or_fail(s, &many);
  assert_true(last->loss < 0.95 * first->loss);
}

static void same_input_same_bits(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_exec_scenario("moe");
  MsExecOptions o = {.type = MS_BLAS_F32, .steps = 2};
  g_autoptr(MsExecResult) a = run_or_fail(s, &o);
  g_autoptr(MsExecResult) b = run_or_fail(s, &o);
  assert_true(a->loss == b->loss && a->gradient_norm == b->gradient_norm);
}

/* The reference kernel beside the steps changes nothing of them; taken off the clock, it leaves them one behind
 * another. */
static void speed_beside_the_steps(void **state) {
  (void)state;
  enum { STEPS = 3 };
  g_autoptr(MsScenario) s = ms_test_exec_scenario("dense");
  MsExecOptions plain = {.type = MS_BLAS_F32, .steps = STEPS},
                beside = {.type = MS_BLAS_F32, .steps = STEPS, .reference = TRUE, .spans = TRUE};
  g_autoptr(MsExecResult) a = run_or_fail(s, &plain);
  g_autoptr(MsExecResult) b = run_or_fail(s, &beside);
  assert_null(a->reference_flops);
  assert_true(a->own_reference_flops == 0 && a->loss == b->loss);
  double least = INFINITY, most = 0;
  for (int i = 0; i < STEPS; i++) {
    least = MIN(least, b->reference_flops[i]), most = MAX(most, b->reference_flops[i]);
    double end_s = b->own_start_s[i] + b->step_s[i];
    assert_true(i + 1 == STEPS || b->own_start_s[i + 1] >= end_s - 1e-9);
  }
  assert_true(least > 1e7 && b->own_reference_flops >= least * (1 - 1e-12) &&
              b->own_reference_flops <= most * (1 + 1e-12));
}

/* --- what is wrong is said ------------------------------------------------------------------------------------- */

static void fails_with(const MsScenario *s, const MsExecOptions *o, int code, const char *part) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsExecResult) r = ms_exec_run(s, o, &error);
  if (r) fail_msg("runs, should say \"%s\"", part);
  if (error->code != code || !strstr(error->message, part))
    fail_msg("says (%d) \"%s\", should say (%d) \"%s\"", error->code, error->message, code, part);
}

typedef struct {
  const char *tensor;
  double by;
  gboolean unkept;
} Wrong;

static void wrong_kept(MsWork *work, gpointer data) {
  const Wrong *w = data;
  MsPiece *p = &work->pieces[work->piece_of_layer[0]];
  for (int i = 0; i < p->n_kept; i++) {
    MsKept *k = &p->kept[i];
    if (strcmp(k->name, w->tensor) != 0) continue;
    double more = w->unkept ? -k->bytes_B : (w->by - 1) * k->bytes_B;
    p->forward.op[k->kept_at].keep_B += more, p->backward.op[k->freed_at].free_B += more, k->bytes_B += more,
        p->kept_B += more;
    if (w->unkept) *k = p->kept[--p->n_kept];
    return;
  }
  fail_msg("%s is not kept", w->tensor);
}

static void wrong_kept_tensors_are_caught(void **state) {
  (void)state;
  static const struct {
    Wrong wrong;
    const char *says;
  } cases[] = {
      {{"qkv", 2, FALSE}, "ledger: after attention \"attention\""},
      {{"lse", 0.5, FALSE}, "ledger: after attention \"attention\""},
      {{"fc1 out", 0, TRUE}, "reads \"fc1 out\", which no row of this pass made and the list does not keep"},
      {{"normed input", 0, TRUE}, "reads \"normed input\""},
      {{"attention out", 0, TRUE}, "reads \"attention out\""},
  };
  g_autoptr(MsScenario) s = ms_test_exec_scenario("dense");
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    MsExecOptions o = {.type = MS_BLAS_F32, .edit = wrong_kept, .edit_data = (gpointer)&cases[i].wrong};
    fails_with(s, &o, MS_ERROR_NOTHING, cases[i].says);
  }
}

static void freed_too_early(MsWork *work, gpointer data) {
  (void)data;
  MsPiece *p = &work->pieces[work->piece_of_layer[0]];
  for (int i = 0; i < p->n_kept; i++) {
    MsKept *k = &p->kept[i];
    if (strcmp(k->name, "activation out") != 0) continue;
    p->backward.op[k->freed_at].free_B -= k->bytes_B, p->backward.op[0].free_B += k->bytes_B;
    k->freed_at = 0;
  }
}

static void wrong_lists_are_caught(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_exec_scenario("dense");
  MsExecOptions early = {.type = MS_BLAS_F32, .edit = freed_too_early};
  fails_with(s, &early, MS_ERROR_NOTHING, "gives \"activation out\" back");
}

static void refusals(void **state) {
  (void)state;
  MsExecOptions o = {.type = MS_BLAS_F32};
  g_autoptr(MsScenario) fp8 = ms_test_exec_scenario("moe");
  fp8->training.precision = MS_FP8_BLOCKWISE;
  fails_with(fp8, &o, MS_ERROR_INPUT, "has no kernel for row");
  g_autoptr(MsScenario) muon = ms_test_exec_scenario("dense");
  muon->training.optimizer = MS_OPT_MUON;
  fails_with(muon, &o, MS_ERROR_INPUT, "muon normalise");
  g_autoptr(MsScenario) drop = ms_test_exec_scenario("gpt");
  drop->model->hidden_dropout = 0.1;
  fails_with(drop, &o, MS_ERROR_INPUT, "dropout mask");
  g_autoptr(MsScenario) gate = ms_test_exec_scenario("dense");
  gate->model->attention_output_gate = TRUE;
  fails_with(gate, &o, MS_ERROR_INPUT, "output gate");
  g_autoptr(MsScenario) many = ms_test_exec_scenario("dense");
  many->gpus = 2, many->layout.tp = 2;
  fails_with(many, &o, MS_ERROR_INPUT, "mpirun -n 2");
  MsExecOptions none = {.type = MS_BLAS_F32, .blas = "nosuchblas"};
  g_autoptr(MsScenario) plain = ms_test_exec_scenario("dense");
  fails_with(plain, &none, MS_ERROR_USAGE, "nosuchblas");
}

/* --- dumps ----------------------------------------------------------------------------------------------------- */

static void damaged(const MsScenario *s, const char *file, const char *text, gsize length, const char *says) {
  MsExecOptions o = {.type = MS_BLAS_F64, .compare = file};
  assert_true(g_file_set_contents(file, text, (gssize)length, NULL));
  fails_with(s, &o, MS_ERROR_INPUT, says);
}

static void dumps(void **state) {
  (void)state;
  g_autofree char *folder = g_dir_make_tmp("moesim-exec-XXXXXX", NULL),
                  *file = g_build_filename(folder, "a.dump", NULL), *text = NULL;
  g_autoptr(MsScenario) s = ms_test_exec_scenario("dense");
  g_autoptr(MsScenario) other = ms_test_exec_scenario("gpt");
  MsExecOptions write = {.type = MS_BLAS_F64, .dump = file}, read = {.type = MS_BLAS_F64, .compare = file};
  gsize length;
  g_autoptr(MsExecResult) a = run_or_fail(s, &write);
  g_autoptr(MsExecResult) b = run_or_fail(s, &read);
  assert_true(isnan(a->gradient_difference) && b->gradient_difference == 0 && b->parameter_difference == 0);
  fails_with(other, &read, MS_ERROR_INPUT, "must come from a run of the same model");
  assert_true(g_file_get_contents(file, &text, &length, NULL));
  damaged(s, file, text, length - 9, "cut off");
  damaged(s, file, text, 10, "is no dump");
  fails_with(s, &(MsExecOptions){.type = MS_BLAS_F64, .compare = "/dev/zero"}, MS_ERROR_INPUT, "is no dump");
  damaged(s, file, text, 19, "has 0 matrices");
  damaged(s, file, "moesim exec dump 1\nembedding.table\t99999999999999999\n", 53, "matrix 1 is damaged or cut off");
  damaged(s, file, "moesim exec dump 1\n\n\n\t\t", 23, "matrix 1 is damaged or cut off");
  char *elements = strchr(text + 19, '\n') +
                   1; /* the first element is no number: neither is the difference, whatever comes behind it */
  memset(elements, 0xff, 8);
  assert_true(g_file_set_contents(file, text, (gssize)length, NULL));
  g_autoptr(MsExecResult) c = run_or_fail(s, &read);
  assert_true(isnan(c->gradient_difference) && c->parameter_difference == 0 && c->gradient_worst);
  g_remove(file);
  fails_with(s, &read, MS_ERROR_ENV, "a.dump");
  g_rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(accounts_of_every_model),
                                     cmocka_unit_test(gradients_are_differences_of_the_loss),
                                     cmocka_unit_test(steps_learn),
                                     cmocka_unit_test(same_input_same_bits),
                                     cmocka_unit_test(speed_beside_the_steps),
                                     cmocka_unit_test(wrong_kept_tensors_are_caught),
                                     cmocka_unit_test(wrong_lists_are_caught),
                                     cmocka_unit_test(refusals),
                                     cmocka_unit_test(dumps)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
