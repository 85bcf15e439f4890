/* The executor over MPI ranks: every layout and schedule gives the loss and the gradients of one rank, while ledger,
 * messages and FLOP are checked row by row; and a list with a collective or a kept tensor changed is caught. The
 * program starts itself under mpirun, once for all layouts of as many ranks. */
#include "lib/close.h"
#include "lib/exec_case.h"
#include "lib/launcher.h"

#include "base/ranks.h"
#include "exec/exec.h"

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

static char *program, *folder;

#define SELECTED (MS_RM_MLA_UP_PROJ | MS_RM_LAYERNORM | MS_RM_MOE_ACT)
static const MsExecCase cases[] = {
    {"plain", "dense", .gpus = 1},
    {"stored scores, gradients apart", "gpt", .gpus = 1, .unfused = TRUE, .no_fusion = TRUE},
    {"loss in place", "window", .gpus = 1, .te_loss = TRUE},
    {"selective recompute", "mla", .gpus = 1, .recompute = SELECTED},
    {"selective recompute, query from the input", "mla-input", .gpus = 1, .recompute = SELECTED},
    {"activations recomputed", "mla", .gpus = 1, .recompute = MS_RM_MLP_ACT | MS_RM_MOE_ACT},
    {"full recompute", "moe", .gpus = 1, .recompute = ~0u},
    {"latent experts", "latent", .gpus = 1},
    {"tp 2", "dense", .gpus = 2, .tp = 2},
    {"tp 2, no sequence parallelism", "dense", .gpus = 2, .tp = 2, .no_sp = TRUE},
    {"tp 2, learned positions and biases", "gpt", .gpus = 2, .tp = 2},
    {"tp 2, window and sinks", "window", .gpus = 2, .tp = 2, .te_loss = TRUE},
    {"tp 2 ep 2, latents and MTP", "mla", .gpus = 2, .tp = 2, .ep = 2},
    {"tp 2 ep 2, shared expert beside", "mla", .gpus = 2, .tp = 2, .ep = 2, .shared_overlap = TRUE},
    {"tp 2 ep 2, MoE and MLP recomputed", "mla", .gpus = 2, .tp = 2, .ep = 2, .recompute = MS_RM_MOE | MS_RM_MLP},
    {"tp 2 ep 2, core and shared recomputed", "mla", .gpus = 2, .tp = 2, .ep = 2,
     .recompute = MS_RM_CORE_ATTN | MS_RM_SHARED_EXPERTS},
    {"tp 2 ep 2, query from the input", "mla-input", .gpus = 2, .tp = 2, .ep = 2},
    {"tp 2, query from a latent", "query-latent", .gpus = 2, .tp = 2},
    {"tp 2, query from a latent, no sequence parallelism", "query-latent", .gpus = 2, .tp = 2, .no_sp = TRUE},
    {"tp 2 etp 2", "latent", .gpus = 2, .tp = 2, .etp = 2},
    {"dp 2", "dense", .gpus = 2},
    {"dp 2, buckets overlapped", "moe", .gpus = 2, .overlap = TRUE},
    {"dp 2, as many instances", "dense", .gpus = 2, .instances = 2},
    {"dp 2, no distributed optimizer", "dense", .gpus = 2, .no_distopt = TRUE, .overlap = TRUE},
    {"cp 2 ring", "dense", .gpus = 2, .cp = 2},
    {"cp 2 ring, core recomputed", "dense", .gpus = 2, .cp = 2, .recompute = MS_RM_CORE_ATTN},
    {"cp 2 all_gather", "mla", .gpus = 2, .cp = 2, .cp_comm = MS_CP_ALL_GATHER},
    {"cp 2 a2a, window and sinks", "window", .gpus = 2, .cp = 2, .cp_comm = MS_CP_A2A},
    {"ep 2", "moe", .gpus = 2, .ep = 2},
    {"1f1b", "dense", .gpus = 2, .pp = 2},
    {"interleaved, tied", "gpt", .gpus = 2, .pp = 2, .vpp = 2},
    {"gpipe", "dense", .gpus = 2, .pp = 2, .schedule = MS_SCHED_GPIPE},
    {"zb-h1", "gpt", .gpus = 2, .pp = 2, .schedule = MS_SCHED_ZB_H1},
    {"zb-h2", "dense", .gpus = 2, .pp = 2, .schedule = MS_SCHED_ZB_H2},
    {"zb-1p", "dense", .gpus = 2, .pp = 2, .schedule = MS_SCHED_ZB_1P},
    {"zb-2p", "moe", .gpus = 2, .pp = 2, .schedule = MS_SCHED_ZB_2P},
    {"zb-v, MTP", "mla", .gpus = 2, .pp = 2, .schedule = MS_SCHED_ZB_V},
    {"v-half", "dense", .gpus = 2, .pp = 2, .schedule = MS_SCHED_V_HALF},
    {"v-min", "dense", .gpus = 2, .pp = 2, .schedule = MS_SCHED_V_MIN},
    {"dualpipe, MTP", "mla", .gpus = 2, .pp = 2, .schedule = MS_SCHED_DUALPIPE},
    {"dualpipev", "moe", .gpus = 2, .pp = 2, .schedule = MS_SCHED_DUALPIPEV},
    {"1f1b, full recompute", "mla", .gpus = 2, .pp = 2, .recompute = ~0u},
    {"cp 4 ring", "mla", .gpus = 4, .cp = 4},
    {"cp 4 a2a+p2p", "gpt", .gpus = 4, .cp = 4, .cp_comm = MS_CP_A2A_P2P},
    {"cp 4 a2a", "gpt", .gpus = 4, .cp = 4, .cp_comm = MS_CP_A2A},
    {"tp 2 cp 2 ep 4", "mla", .gpus = 4, .tp = 2, .cp = 2, .ep = 4},
    {"ep 4 allgather", "moe", .gpus = 4, .ep = 4, .dispatcher = MS_DISPATCH_ALLGATHER},
    {"ep 4 deepep", "moe", .gpus = 4, .ep = 4, .dispatcher = MS_DISPATCH_DEEPEP},
    {"ep 4 hybridep", "latent", .gpus = 4, .ep = 4, .dispatcher = MS_DISPATCH_HYBRIDEP},
    {"tp 2 ep 2 etp 2", "moe", .gpus = 4, .tp = 2, .ep = 2, .etp = 2},
    {"dp 4 in 2 instances", "gpt", .gpus = 4, .instances = 2},
    {"dp 4 in 2 instances of Megatron-FSDP", "dense", .gpus = 4, .instances = 2, .fsdp = TRUE},
    {"ep 2, dp 4 in 2 instances, overlapped", "moe", .gpus = 4, .ep = 2, .instances = 2, .overlap = TRUE},
    {"ep 4, the router chooses", "moe", .gpus = 4, .ep = 4, .natural = TRUE},
    {"tp 2 ep 2 etp 2, the router chooses", "moe", .gpus = 4, .tp = 2, .ep = 2, .etp = 2, .natural = TRUE},
    {"ep 4 deepep, the router chooses", "moe", .gpus = 4, .ep = 4, .dispatcher = MS_DISPATCH_DEEPEP, .natural = TRUE},
    {"ep 2 zb-v, the router chooses", "moe", .gpus = 4, .ep = 2, .pp = 2, .schedule = MS_SCHED_ZB_V, .natural = TRUE},
    {"tp 2 ep 2 etp 2 deepep", "moe", .gpus = 4, .tp = 2, .ep = 2, .etp = 2, .dispatcher = MS_DISPATCH_DEEPEP},
    {"ep 2 pp 2 vpp 2, EP overlap", "moe", .gpus = 4, .ep = 2, .pp = 2, .vpp = 2, .ep_overlap = TRUE, .overlap = TRUE},
    {"tp 2 ep 2 zb-v", "moe", .gpus = 4, .tp = 2, .ep = 2, .pp = 2, .schedule = MS_SCHED_ZB_V},
    {"tp 2 zb-h1", "mla", .gpus = 4, .tp = 2, .pp = 2, .ep = 2, .schedule = MS_SCHED_ZB_H1},
    {"ep 2 dualpipe", "moe", .gpus = 4, .ep = 2, .pp = 2, .schedule = MS_SCHED_DUALPIPE},
    {"dp 2 dualpipe, overlapped", "dense", .gpus = 4, .pp = 2, .schedule = MS_SCHED_DUALPIPE, .overlap = TRUE},
    {"pp 4, tied", "window", .gpus = 4, .pp = 4},
    {"tp 2 pp 2 dp 2", "gpt", .gpus = 8, .tp = 2, .pp = 2},
    {"tp 2 pp 2 cp 2", "window", .gpus = 8, .tp = 2, .pp = 2, .cp = 2},
    {"tp 2 ep 4 pp 2", "mla", .gpus = 8, .tp = 2, .ep = 4, .pp = 2, .overlap = TRUE},
    {"cp 2 ep 2, edp 4 in 2 instances", "moe", .gpus = 8, .cp = 2, .ep = 2, .instances = 2, .overlap = TRUE},
    {"ep 8 deepep", "moe", .gpus = 8, .ep = 8, .dispatcher = MS_DISPATCH_DEEPEP},
    {"cp 2 tp 2 ep 2 etp 2 dp 2", "moe", .gpus = 8, .cp = 2, .tp = 2, .ep = 2, .etp = 2},
};

static char *reference(const char *model, gboolean natural) {
  return g_strdup_printf("%s/%s%s.dump", folder, model, natural ? "-natural" : "");
}

/* A router that chooses by itself may choose otherwise in float, where two scores are nearly the same. */
static gboolean takes_part(const MsExecCase *c, int ranks, gboolean in_double) {
  return MAX(1, c->gpus) == ranks && (in_double || !c->natural);
}

/* --- under mpirun: all cases of so many ranks, one line each --------------------------------------------------- */

static int run_cases(MsBlasType type) {
  GError *error = NULL;
  if (!ms_ranks_begin(&error)) return 1;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    if (!takes_part(&cases[i], ms_ranks_count(), type == MS_BLAS_F64)) continue;
    g_autoptr(MsScenario) s = ms_test_exec_case(&cases[i]);
    g_autofree char *file = reference(cases[i].model, cases[i].natural);
    MsExecOptions options = {.type = type, .compare = file};
    g_free(s->file);
    s->file = g_strdup(cases[i].name); /* for messages */
    g_autoptr(MsExecResult) r = ms_exec_run(s, &options, &error);
    if (ms_ranks_own() == 0 && r)
      printf("%u %.17g %.17g %.17g\n", i, r->loss, r->gradient_difference, r->parameter_difference);
    if (ms_ranks_own() == 0 && !r) printf("%u refused %s\n", i, error->message);
    g_clear_error(&error);
    fflush(stdout);
  }
  ms_ranks_end();
  return 0;
}

/* Standard output and, in *err, the rest; "" when there is no mpirun. */
static char *under_mpirun(int ranks, const char *verb, const char *argument, char **err) {
  g_autofree char *n = g_strdup_printf("%d", ranks);
  const char *argv[] = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", n, program, verb, folder, argument,
                        NULL};
  GError *error = NULL;
  GSubprocess *child = g_subprocess_newv(ranks > 1 ? argv : argv + 5,
                                         G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE, &error);
  if (!child) fail_msg("%s", error->message);
  char *out = NULL;
  if (!g_subprocess_communicate_utf8(child, NULL, NULL, &out, err, &error)) fail_msg("%s", error->message);
  g_object_unref(child);
  return out;
}

static double reference_loss(const char *model, gboolean natural) {
  MsExecCase one = {model, model, .gpus = 1, .natural = natural};
  g_autoptr(MsScenario) s = ms_test_exec_case(&one);
  g_autofree char *file = reference(model, natural);
  MsExecOptions options = {.type = MS_BLAS_F64, .dump = file};
  GError *error = NULL;
  g_autoptr(MsExecResult) r = ms_exec_run(s, &options, &error);
  if (!r) fail_msg("%s: %s", model, error->message);
  return r->loss;
}

static int check_lines(const char *text, double gradients, double parameters) {
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  int seen = 0;
  for (int i = 0; lines[i]; i++) {
    guint at;
    double loss, g, p;
    if (sscanf(lines[i], "%u", &at) != 1) continue;
    if (sscanf(lines[i], "%u %lg %lg %lg", &at, &loss, &g, &p) != 4) fail_msg("%s: %s", cases[at].name, lines[i]);
    if (!(g <= gradients) || !(p <= parameters))
      fail_msg("%s: gradients differ by %g, parameters by %g", cases[at].name, g, p);
    assert_close(loss, reference_loss(cases[at].model, cases[at].natural), gradients);
    seen++;
  }
  return seen;
}

static void layouts_agree(const char *type, double gradients, double parameters) {
  static const int ranks[] = {1, 2, 4, 8};
  gboolean alone = !ms_test_launcher();
  for (int i = 0; ms_test_exec_models[i]; i++) reference_loss(ms_test_exec_models[i], FALSE);
  reference_loss("moe", TRUE);
  for (guint i = 0; i < (alone ? 1 : G_N_ELEMENTS(ranks)); i++) {
    g_autofree char *err = NULL, *out = under_mpirun(ranks[i], "--cases", type, &err);
    int want = 0;
    for (guint k = 0; k < G_N_ELEMENTS(cases); k++) want += takes_part(&cases[k], ranks[i], strcmp(type, "f64") == 0);
    int seen = check_lines(out, gradients, parameters);
    if (seen != want) fail_msg("%d ranks: %d of %d layouts ended: %s", ranks[i], seen, want, err);
  }
}

static void layouts_agree_in_double(void **state) {
  (void)state;
  layouts_agree("f64", 1e-10, 1e-8);
}

static void layouts_agree_in_float(void **state) {
  (void)state;
  layouts_agree("f32", 1e-4,
                2e-2); /* Adam's first step is a sign: rounding moves parameters whose gradient is nearly zero */
}

/* --- a list that is wrong -------------------------------------------------------------------------------------- */

typedef enum { REMOVE, RESIZE } Change;
typedef struct {
  const char *what, *model;
  Change change;
  MsOpKind kind;
  const char *row; /* first row of that kind and name, in the backward list when `backward` */
  gboolean backward, no_sp;
  const char *says; /* part of the message; NULL: it runs, and the gradients differ */
} Mutation;
static const Mutation mutations[] = {
    {"gather forgotten", "dense", REMOVE, MS_OP_ALL_GATHER, "tp gather", .says = "qkv\" (attn, forward"},
    {"scatter forgotten", "dense", REMOVE, MS_OP_REDUCE_SCATTER, "tp scatter", .says = "residual add"},
    {"sum of outputs forgotten", "dense", REMOVE, MS_OP_ALL_REDUCE, "tp scatter", .no_sp = TRUE},
    {"sum of gradients forgotten", "dense", REMOVE, MS_OP_ALL_REDUCE, "tp gather", .backward = TRUE, .no_sp = TRUE,
     .says = "d normed mlp input"},
    {"message of another size", "moe", RESIZE, MS_OP_DISPATCH, "dispatch", .says = "messages: dispatch"},
    {"counts forgotten", "moe", REMOVE, MS_OP_ALL_GATHER, "token counts", .says = "reads 0 elements"},
    {"FLOP of another size", "moe", RESIZE, MS_OP_GROUPED_GEMM, "expert fc1",
     .says = "FLOP: the kernels of grouped_gemm"},
};

static void remove_row(MsPiece *piece, gboolean backward, int at) {
  MsOpList *list = backward ? &piece->backward : &piece->forward;
  memmove(&list->op[at], &list->op[at + 1], sizeof *list->op * (size_t)(list->n - at - 1));
  list->n--;
  for (int i = 0; i < piece->n_kept; i++) {
    int *row = backward ? &piece->kept[i].freed_at : &piece->kept[i].kept_at;
    if (*row > at) --*row;
  }
}

static void mutate(MsWork *work, gpointer data) {
  const Mutation *m = data;
  for (int p = 0; p < work->n_pieces; p++) {
    MsPiece *piece = &work->pieces[p];
    MsOpList *list = m->backward ? &piece->backward : &piece->forward;
    if (piece->kind != MS_PIECE_LAYER) continue;
    for (int i = 0; i < list->n; i++) {
      MsOp *op = &list->op[i];
      if (op->kind != m->kind || strcmp(op->name, m->row) != 0) continue;
      if (m->change == REMOVE) remove_row(piece, m->backward, i);
      else op->message_B *= 1.5, op->flop *= 1.5;
      return;
    }
  }
}

static int run_mutation(int which) {
  const Mutation *m = &mutations[which];
  GError *error = NULL;
  if (!ms_ranks_begin(&error)) return 1;
  MsExecCase c = {m->what, m->model, .gpus = 2, .tp = 2, .ep = strcmp(m->model, "moe") == 0 ? 2 : 1, .no_sp = m->no_sp};
  g_autoptr(MsScenario) s = ms_test_exec_case(&c);
  g_autofree char *file = reference(m->model, FALSE);
  MsExecOptions options = {.type = MS_BLAS_F64, .compare = file, .edit = mutate, .edit_data = (gpointer)m};
  g_autoptr(MsExecResult) r = ms_exec_run(s, &options, &error);
  if (ms_ranks_own() == 0 && r) printf("difference %g\n", r->gradient_difference);
  if (!r) fprintf(stderr, "moesim: %s\n", error->message);
  g_clear_error(&error);
  ms_ranks_end();
  return 0;
}

static void forgotten_messages_are_caught(void **state) {
  (void)state;
  if (!ms_test_launcher()) return;
  for (guint i = 0; i < G_N_ELEMENTS(mutations); i++) {
    const Mutation *m = &mutations[i];
    reference_loss(m->model, FALSE);
    g_autofree char *which = g_strdup_printf("%u", i), *err = NULL, *out = under_mpirun(2, "--mutation", which, &err);
    double difference = 0;
    gboolean ran = sscanf(out, "difference %lg", &difference) == 1;
    if (m->says && (ran || !strstr(err, m->says))) fail_msg("%s: %s%s", m->what, out, err);
    if (!m->says && !(ran && difference > 1e-3)) fail_msg("%s: %s%s", m->what, out, err);
  }
}

int main(int argc, char **argv) {
  if (argc == 4) folder = argv[2];
  if (argc == 4 && strcmp(argv[1], "--cases") == 0)
    return run_cases(strcmp(argv[3], "f64") == 0 ? MS_BLAS_F64 : MS_BLAS_F32);
  if (argc == 4 && strcmp(argv[1], "--mutation") == 0) return run_mutation(atoi(argv[3]));
  const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_agree_in_double),
                                     cmocka_unit_test(layouts_agree_in_float),
                                     cmocka_unit_test(forgotten_messages_are_caught)};
  program = g_canonicalize_filename(argv[0], NULL);
  folder = g_dir_make_tmp("moesim-exec-XXXXXX", NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; ms_test_exec_models[i]; i++) {
    g_autofree char *file = reference(ms_test_exec_models[i], FALSE),
                    *natural = reference(ms_test_exec_models[i], TRUE);
    g_remove(file), g_remove(natural);
  }
  g_rmdir(folder);
  g_free(program), g_free(folder);
  return failed;
}
