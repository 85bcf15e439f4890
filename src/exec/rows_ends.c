/* src/exec/rows_ends.c - where tokens come in and losses come out: embedding, MTP blocks around their layer, head and
 * cross entropy. */
#include "exec/state_priv.h"

#include <math.h>
#include <string.h>

/* Tokens of this microbatch, `ahead` positions further on. */
static gint32 *words(Exec *x, int ahead) {
  gint32 *word = ms_exec_scratch_B(x, sizeof *word * (size_t)x->T);
  for (gint64 i = 0; i < x->T; i++)
    word[i] = ms_exec_token(x, ms_exec_sequence(x, x->mb_index, (int)(i % x->b)), x->row_pos[i] + ahead);
  return word;
}

static gint32 vocabulary(const Exec *x) { return (gint32)(x->work->padded_vocab / x->t); } /* words of this rank */
static gint32 first_word(const Exec *x) { return (gint32)x->ti * vocabulary(x); }

static int mtp_index(const Exec *x) { return x->now->layer - x->model->num_layers; }

/* --- embedding ------------------------------------------------------------------------------------------------- */

static gboolean is_mtp(const Exec *x) { return x->row->op->module == MS_MODULE_MTP; }
static const char *embedded(const Exec *x) { return is_mtp(x) ? "mtp embedding" : "layer out"; }

static void embedding_forward(Exec *x) {
  void *y = ms_exec_new(x, x->t > 1 ? "embedded, part" : embedded(x), x->T * x->h);
  x->k->embedding_forward(x->T, x->h, words(x, is_mtp(x) ? mtp_index(x) + 1 : 0), first_word(x), vocabulary(x),
                          ms_exec_param(x, "table"), y);
}

/* Summed whole and then cut, where positions are learned. */
static void embedding_sum(Exec *x) {
  gboolean cut = x->sp && x->row->op->kind == MS_OP_ALL_REDUCE;
  ms_exec_tp_sum(x, "embedded, part", cut ? "embedded, whole" : embedded(x), FALSE);
  if (!cut) return;
  ms_exec_copy(x, x->Tsp, x->h, ms_exec_at(x, ms_exec_get(x, "embedded, whole", x->T * x->h), x->ti * x->Tsp * x->h),
               x->h, ms_exec_new(x, embedded(x), x->Tsp * x->h), x->h);
  ms_exec_drop(x, "embedded, whole");
}

static const char *d_embedded(const Exec *x) { return is_mtp(x) ? "d mtp embedding" : "d embedding out"; }
static void embedding_gather(Exec *x) { ms_exec_tp_gather(x, d_embedded(x), "d embedded, gathered"); }

/* Row i of this rank's shard stands at this position. */
static gint64 *shard_positions(Exec *x) {
  gint64 *at = ms_exec_scratch_B(x, sizeof *at * (size_t)x->Tsp);
  for (gint64 i = 0; i < x->Tsp; i++) at[i] = x->row_pos[(x->sp ? x->ti * x->Tsp : 0) + i];
  return at;
}

static void embedding_backward(Exec *x) {
  const char *from = x->sp ? "d embedded, gathered" : d_embedded(x);
  x->k->embedding_backward(x->T, x->h, words(x, is_mtp(x) ? mtp_index(x) + 1 : 0), first_word(x), vocabulary(x),
                           ms_exec_get(x, from, x->T * x->h), ms_exec_grad(x, "table"));
  if (is_mtp(x) || !ms_exec_param_find(x, "positions")) return;
  const void *d = ms_exec_get(x, "d embedding out", x->Tsp * x->h);
  void *grad = ms_exec_grad(x, "positions");
  gint64 *at = shard_positions(x);
  for (gint64 i = 0; i < x->Tsp; i++)
    ms_exec_add_to(x, 1, x->h, ms_exec_at(x, d, i * x->h), 0, ms_exec_at(x, grad, at[i] * x->h), 0);
}

static void position_add(Exec *x) {
  void *y = ms_exec_get(x, "layer out", x->Tsp * x->h), *rows = ms_exec_scratch(x, x->Tsp * x->h);
  x->k->gather_rows(x->Tsp, x->h, shard_positions(x), ms_exec_param(x, "positions"), rows);
  x->k->add(x->Tsp * x->h, y, rows, y);
}

/* --- MTP: the next token's embedding beside the hidden state --------------------------------------------------- */

static void mtp_concat(Exec *x) {
  void *both = ms_exec_new(x, "mtp concat", x->Tsp * 2 * x->h);
  ms_exec_copy(x, x->Tsp, x->h, ms_exec_get(x, "normed mtp embedding", x->Tsp * x->h), x->h, both, 2 * x->h);
  ms_exec_copy(x, x->Tsp, x->h, ms_exec_get(x, "normed mtp hidden", x->Tsp * x->h), x->h, ms_exec_at(x, both, x->h),
               2 * x->h);
}

/* Columns of all TP ranks side by side; of them the rows of this rank. */
static void mtp_gather_out(Exec *x) {
  gint64 width = x->h / x->t, mine = x->T * width;
  gint64 *counts = ms_exec_scratch_B(x, sizeof *counts * (size_t)x->t);
  for (int i = 0; i < x->t; i++) counts[i] = mine;
  void *all = ms_exec_scratch(x, x->T * x->h), *out = ms_exec_new(x, "layer input", x->Tsp * x->h);
  ms_comm_all_gather(x->comm, MS_GROUP_TP, ms_exec_get(x, "eh out", mine), all, counts, 0);
  ms_exec_sent(x, (double)(x->T * x->h), 2);
  gint64 row = x->sp ? x->ti * x->Tsp : 0;
  for (int i = 0; i < x->t; i++)
    ms_exec_copy(x, x->Tsp, width, ms_exec_at(x, all, i * mine + row * width), width, ms_exec_at(x, out, i * width),
                 x->h);
  ms_exec_drop(x, "eh out");
}

static void mtp_gather_back(Exec *x) {
  gint64 width = x->h / x->t;
  ms_exec_tp_gather(x, "d layer out", "d eh out, gathered");
  ms_exec_copy(x, x->T, width, ms_exec_at(x, ms_exec_get(x, "d eh out, gathered", x->T * x->h), x->ti * width), x->h,
               ms_exec_new(x, "d eh out", x->T * width), width);
  ms_exec_drop(x, "d eh out, gathered");
}

static void mtp_norm_back(Exec *x) {
  gboolean hidden = strcmp(x->row->op->name, "mtp hidden norm") == 0;
  gint64 n = x->Tsp * x->h;
  void *d = ms_exec_scratch(x, n);
  ms_exec_copy(x, x->Tsp, x->h, ms_exec_at(x, ms_exec_get(x, "d mtp concat", 2 * n), hidden ? x->h : 0), 2 * x->h, d,
               x->h);
  ms_exec_norm_back(x, x->Tsp, x->h, hidden ? "mtp hidden norm" : "mtp embedding norm",
                    hidden ? "mtp hidden norm bias" : "mtp embedding norm bias",
                    ms_exec_get(x, hidden ? "mtp hidden" : "mtp embedding", n), d,
                    ms_exec_new(x, hidden ? "d mtp hidden" : "d mtp embedding", n));
}

/* --- cross entropy --------------------------------------------------------------------------------------------- */

static int copy_of(const Exec *x) {
  return x->row->op->pass == MS_PASS_DGRAD ? x->model->mtp_num_layers - x->row->turn : x->row->turn;
}
static double copy_weight(const Exec *x, int copy) { return copy ? MS_EXEC_MTP_WEIGHT / x->model->mtp_num_layers : 1; }
static gboolean in_place(const Exec *x) {
  switch (x->scenario->options.cross_entropy_fusion_impl) {
  case MS_CE_NATIVE: break;
  case MS_CE_TE: return x->scenario->options.cross_entropy_fusion;
  }
  return FALSE;
}
static const char *logits_of(Exec *x, int copy) { return ms_exec_head(x, copy)->out; }

/* Of the mean over all microbatches; the ranks' mean is taken before gradients are reduced. */
static double gradient_scale(const Exec *x, int copy) {
  return copy_weight(x, copy) / (double)(x->T * x->layout->microbatches);
}

/* With the sums of all ranks: the loss, and in place of the exponentials their shares (or, in place, the gradient). */
static void loss_end(Exec *x, int copy) {
  void *sum = ms_exec_get(x, "loss sum", 2 * x->T), *target = ms_exec_at(x, sum, x->T);
  void *logits = ms_exec_get(x, logits_of(x, copy), x->T * vocabulary(x));
  if (x->ti == 0)
    for (gint64 i = 0; i < x->T; i++)
      x->loss += copy_weight(x, copy) * (log(ms_exec_read(x, sum, i)) - ms_exec_read(x, target, i));
  gint32 *word = words(x, copy + 1);
  if (!in_place(x)) memset(word, 0xff, sizeof *word * (size_t)x->T); /* no target: the softmax alone */
  x->k->loss_grad(x->T, vocabulary(x), first_word(x), word, sum, in_place(x) ? gradient_scale(x, copy) : 1, logits);
  ms_exec_width(x, logits_of(x, copy), in_place(x) ? 2 : 4);
  ms_exec_drop(x, "loss sum"), ms_exec_drop(x, "loss max");
}

static void loss_exp(Exec *x, int copy) {
  void *sum = ms_exec_new(x, "loss sum", 2 * x->T);
  x->k->loss_exp(x->T, vocabulary(x), first_word(x), words(x, copy + 1), ms_exec_get(x, "loss max", x->T),
                 ms_exec_get(x, logits_of(x, copy), x->T * vocabulary(x)), sum, ms_exec_at(x, sum, x->T));
}

static void cross_entropy(Exec *x) {
  int copy = copy_of(x);
  const char *logits = logits_of(x, copy);
  gint64 n = x->T * vocabulary(x);
  x->k->loss_max(x->T, vocabulary(x), ms_exec_get(x, logits, n), ms_exec_new(x, "loss max", x->T));
  if (x->t > 1) return; /* the messages over TP go on */
  loss_exp(x, copy);
  loss_end(x, copy);
}

static void loss_max(Exec *x) {
  ms_comm_all_reduce(x->comm, MS_GROUP_TP, ms_exec_get(x, "loss max", x->T), x->T, TRUE);
  ms_exec_sent(x, (double)x->T, 4);
  loss_exp(x, x->row->turn);
}

static void loss_sum(Exec *x) {
  ms_comm_all_reduce(x->comm, MS_GROUP_TP, ms_exec_get(x, "loss sum", 2 * x->T), 2 * x->T, FALSE);
  ms_exec_sent(x, (double)(2 * x->T), 4);
  loss_end(x, x->row->turn);
}

static void cross_entropy_back(Exec *x) {
  int copy = copy_of(x);
  void *logits = ms_exec_get(x, logits_of(x, copy), x->T * vocabulary(x));
  if (!in_place(x)) {
    void *ones = ms_exec_scratch(x, x->T);
    ms_exec_fill(x, x->T, 1, ones);
    x->k->loss_grad(x->T, vocabulary(x), first_word(x), words(x, copy + 1), ones, gradient_scale(x, copy), logits);
  }
  ms_exec_share(x, logits_of(x, copy), ms_exec_head(x, copy)->d_out);
}

const Handler ms_exec_end_rows[] = {{MS_OP_EMBEDDING, "embedding", -1, PASS_F, embedding_forward},
                                    {MS_OP_EMBEDDING, "mtp embedding", -1, PASS_F, embedding_forward},
                                    {MS_OP_REDUCE_SCATTER, "tp scatter", MS_MODULE_EMBEDDING, PASS_F, embedding_sum},
                                    {MS_OP_ALL_REDUCE, "tp scatter", MS_MODULE_EMBEDDING, PASS_F, embedding_sum},
                                    {MS_OP_REDUCE_SCATTER, "tp scatter", MS_MODULE_MTP, PASS_F, embedding_sum},
                                    {MS_OP_ALL_REDUCE, "tp scatter", MS_MODULE_MTP, PASS_F, embedding_sum},
                                    {MS_OP_ADD, "position add", -1, PASS_F, position_add},
                                    {MS_OP_ALL_GATHER, "tp gather", MS_MODULE_EMBEDDING, PASS_D, embedding_gather},
                                    {MS_OP_ALL_GATHER, "tp gather", MS_MODULE_MTP, PASS_D, embedding_gather},
                                    {MS_OP_EMBEDDING, "embedding", -1, PASS_W, embedding_backward},
                                    {MS_OP_EMBEDDING, "mtp embedding", -1, PASS_W, embedding_backward},
                                    {MS_OP_COPY, "mtp concat", -1, PASS_F, mtp_concat},
                                    {MS_OP_ALL_GATHER, "tp gather out", -1, PASS_F, mtp_gather_out},
                                    {MS_OP_ALL_GATHER, "tp gather out", -1, PASS_D, mtp_gather_back},
                                    {MS_OP_NORM, "mtp hidden norm", -1, PASS_D, mtp_norm_back},
                                    {MS_OP_NORM, "mtp embedding norm", -1, PASS_D, mtp_norm_back},
                                    {MS_OP_CROSS_ENTROPY, "cross entropy", -1, PASS_F, cross_entropy},
                                    {MS_OP_CROSS_ENTROPY_TE, "cross entropy", -1, PASS_F, cross_entropy},
                                    {MS_OP_ALL_REDUCE, "tp loss max", -1, PASS_F, loss_max},
                                    {MS_OP_ALL_REDUCE, "tp loss sum", -1, PASS_F, loss_sum},
                                    {MS_OP_CROSS_ENTROPY, "cross entropy", -1, PASS_D, cross_entropy_back},
                                    {MS_OP_CROSS_ENTROPY_TE, "cross entropy", -1, PASS_D, cross_entropy_back},
                                    {0}};
