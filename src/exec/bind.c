/* src/exec/bind.c - from rows to handlers, before anything runs; and what kept tensors are called here. */
#include "exec/state_priv.h"

#include "base/err.h"
#include "describe/recompute.h"
#include <string.h>

/* Passes that kernels of this machine make with another row (ms_row_passing of work/build.h): attention merges and adds
 * up as it goes round, the exchange of heads packs and unpacks its messages, the router's gradient and the experts'
 * outputs have one precision. */
static void done_with_another_row(Exec *x) { x->said_message_B = 0; }

static const Handler passing_rows[] = {{MS_OP_ADD, "merge of ring steps", -1, PASS_F, done_with_another_row},
                                       {MS_OP_ADD, "sums of ring steps", -1, PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "heads by rank", -1, PASS_F | PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "tokens in order", -1, PASS_F | PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "keys together", -1, PASS_F | PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "keys in order", -1, PASS_F | PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "pieces together", -1, PASS_F, done_with_another_row},
                                       {MS_OP_ADD, "sums of gathered keys", -1, PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "outputs in FP32", -1, PASS_F | PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "outputs in BF16", -1, PASS_F | PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "clamp gate", -1, PASS_F, done_with_another_row},
                                       {MS_OP_COPY, "gradients of clamped gate", -1, PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "router input in FP32", -1, PASS_D, done_with_another_row},
                                       {MS_OP_COPY, "router gradients in BF16", -1, PASS_D, done_with_another_row},
                                       {0}};

static const Handler *const tables[] = {ms_exec_end_rows,  ms_exec_attention_rows, ms_exec_moe_rows,
                                        ms_exec_step_rows, ms_exec_linear_rows,    passing_rows};

static gboolean is_gemm(const MsOp *op) { return op->kind == MS_OP_GEMM && (op->flags & MS_OPF_WEIGHT); }

static const Handler *handler_of(Exec *x, const MsOp *op) {
  for (guint t = 0; t < G_N_ELEMENTS(tables); t++)
    for (const Handler *h = tables[t]; h->run; h++)
      if (h->kind == op->kind && (h->name ? strcmp(h->name, op->name) == 0 : is_gemm(op) && ms_exec_linear(x, op, 0)) &&
          (h->module < 0 || h->module == op->module) && h->passes >> op->pass & 1)
        return h;
  return NULL;
}

/* The linear layer that a row belongs to: a gather stands before its GEMM, a scatter or sum behind it. */
static int gemm_of(const MsOpList *list, int i) {
  const MsOp *op = &list->op[i];
  if (is_gemm(op)) return i;
  gboolean before = op->kind == MS_OP_ALL_GATHER;
  if (!before && op->kind != MS_OP_REDUCE_SCATTER && op->kind != MS_OP_ALL_REDUCE && op->kind != MS_OP_ADD) return -1;
  for (int j = i; j >= 0 && j < list->n; j += before ? 1 : -1)
    if (is_gemm(&list->op[j])) return j;
  return -1;
}

static int turn_of(const MsOpList *list, int i) {
  int turn = 0;
  const MsOp *op = &list->op[i];
  for (int j = 0; j < i; j++) {
    const MsOp *o = &list->op[j];
    turn += o->kind == op->kind && o->pass == op->pass && o->module == op->module && strcmp(o->name, op->name) == 0;
  }
  return turn;
}

gboolean ms_exec_bind(Exec *x, const MsOpList *list, RowList *out, const char *where, GError **error) {
  *out = (RowList){.list = list, .row = g_new0(Row, MAX(list->n, 1)), .n = list->n};
  for (int i = 0; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    Row *r = &out->row[i];
    r->op = op;
    r->handler = handler_of(x, op);
    if (!r->handler || op->dtype > MS_ODT_BF16)
      return ms_error(error, MS_ERROR_INPUT, "%s: the executor has no kernel for row %d of %s, %s \"%s\" (%s, %s%s%s)",
                      x->scenario->file, i, where, ms_op_words[op->kind], op->name, ms_module_words[op->module],
                      ms_pass_words[op->pass], op->dtype > MS_ODT_BF16 ? ", " : "",
                      op->dtype > MS_ODT_BF16 ? ms_odt_words[op->dtype] : "");
    r->turn = turn_of(list, i);
    int gemm = gemm_of(list, i);
    if (gemm >= 0) r->linear = ms_exec_linear(x, &list->op[gemm], turn_of(list, gemm));
  }
  return TRUE;
}

/* --- kept tensors: the list's name for several of ours --------------------------------------------------------- */

static const struct {
  const char *kept, *parts[6];
} kept_parts[] = {
    {"qkv", {"q", "k", "v", "kv owner"}},
    {"qk norm in", {"q raw", "k raw"}},
    {"latents", {"q latent", "kv latent"}},
    {"normed latents", {"normed q latent", "normed kv latent"}},
    {"shared input", {"normed mlp input, gathered"}},
    {"mtp norm inputs", {"mtp embedding", "mtp hidden"}},
    {"expert gate parts", {NULL}}, /* one kernel clamps and multiplies here */
    {"gate parts", {NULL}},
    {"shared gate parts", {NULL}},
    {"mtp gathered", {NULL}}, /* the layer's input is a copy of its part here, not a view */
    {"router maps", {"logits", "dense weights", "routing map", "row map"}},
};
static const char *const one_to_one[] = {"layer input",
                                         "normed input",
                                         "attention out",
                                         "attention out before a2a",
                                         "lse",
                                         "scores",
                                         "mlp input",
                                         "normed mlp input",
                                         "fc1 out",
                                         "activation out",
                                         "shared fc1 out",
                                         "shared activation out",
                                         "expert input",
                                         "expert fc1 out",
                                         "permuted probs",
                                         "expert activation out",
                                         "expert activation, unweighted",
                                         "latent tokens",
                                         "expert output",
                                         "mtp concat",
                                         "mtp final norm in",
                                         NULL};
static const char *const by_copy[] = {"final norm in", "final norm out", "logits",
                                      NULL}; /* of the head: " 2", ... for the further ones */

static gboolean listed(const char *const *names, const char *name, gboolean copies) {
  for (int i = 0; names[i]; i++)
    if (copies ? g_str_has_prefix(name, names[i]) : strcmp(name, names[i]) == 0) return TRUE;
  return FALSE;
}

static gboolean starts_from_latents(const MsRecomputeModule *module, const MsScenario *s) {
  (void)s;
  return module->part == MS_PART_LATENTS;
}

const char *const *ms_exec_kept_parts(const Exec *x, const MsKept *kept, const char *own[2]) {
  static const char *const again[] = {"q latent", "kv latent", "k rope latent",
                                      NULL}; /* the up-projections run once more */
  static const char *const first[] = {"layer input", NULL}, *const first_mlp[] = {"mlp input", NULL},
                           *const first_mtp[] = {"mtp embedding", "mtp hidden", NULL};
  if (strcmp(kept->name, "latents") == 0 && ms_recomputed(x->scenario, starts_from_latents)) return again;
  if (strcmp(kept->name, "checkpoint") == 0) {
    if (x->now && x->work->pieces[x->now->piece].kind == MS_PIECE_MTP) return first_mtp;
    return x->now && !(x->now->mixers & MS_MIX_ATTN) ? first_mlp : first;
  }
  for (guint i = 0; i < G_N_ELEMENTS(kept_parts); i++)
    if (strcmp(kept_parts[i].kept, kept->name) == 0) return kept_parts[i].parts;
  own[0] = kept->name, own[1] = NULL;
  return listed(one_to_one, kept->name, FALSE) || (kept->module == MS_MODULE_HEAD && listed(by_copy, kept->name, TRUE))
             ? own
             : NULL;
}
