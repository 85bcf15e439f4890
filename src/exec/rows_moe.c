/* src/exec/rows_moe.c - router, dispatch, experts, combine. Tokens on their way are "tokens" (forward) and "d tokens"
 * (backward), and go the same way in both directions: to the experts, and back. The weights of the router go with the
 * tokens, their gradients come back with those of the tokens.
 *
 * Rows of an expert rank are in the order of its experts; within an expert by the rank that they came from (ETP, then
 * EP), then by token. */
#include "exec/state_priv.h"

#include <string.h>

struct Routing {                         /* of one layer and microbatch, from its routing map */
  gint64 n, *token;                      /* copies of this rank's tokens, by expert, then token: the token of each */
  gint32 *expert;                        /* and its expert */
  gint64 *counts;                        /* [ranks of TP-EP][E] rows that each of them sends to each expert; alltoall */
  gint64 n_rows, *source;                /* allgather, flex: rows of this rank's experts: the received row of each */
  gint32 *local;                         /* and the expert, from 0 */
  gint64 *place;                         /* and where its router weight stands among those that come */
  gint64 n_received;                     /* flex: received rows; allgather: tokens of all ranks */
  gint64 n_sent, *sent;                  /* flex: tokens in the order in which they go out, by rank */
  gint64 *sent_counts, *received_counts; /* [ranks] */
  gint64 n_entries, *entry_token, *entry_counts,
      *entry_received; /* flex: (token, expert) pairs that go with them, by rank */
  gint32 *entry_expert;
  guint8 *all; /* HybridEP: [ranks of TP-EP][Tsp][E] */
};

void ms_exec_routing_free(Routing *r) {
  if (!r) return;
  g_free(r->token), g_free(r->expert), g_free(r->counts), g_free(r->source), g_free(r->local), g_free(r->place),
      g_free(r->sent), g_free(r->sent_counts), g_free(r->received_counts);
  g_free(r->entry_token), g_free(r->entry_counts), g_free(r->entry_received), g_free(r->entry_expert), g_free(r->all);
  g_free(r);
}

/* --- sizes ----------------------------------------------------------------------------------------------------- */

static gboolean is_back(const Exec *x) { return x->row->op->pass == MS_PASS_DGRAD; }
static gint64 experts(const Exec *x) { return x->model->num_experts; }
static gint64 local_experts(const Exec *x) { return experts(x) / x->layout->ep; }
static gint64 eh(const Exec *x) { return x->model->moe_latent_size > 0 ? x->model->moe_latent_size : x->h; }
static gint64 fm(const Exec *x) { return x->model->moe_ffn_hidden_size / x->layout->etp; }
static gint64 fc1_width(const Exec *x) { return (x->model->gated ? 2 : 1) * fm(x); }
static int ranks(const Exec *x) { return x->layout->ep * x->layout->etp; }
static Routing *routing(Exec *x) { return x->mb->routing[x->now->at]; }
static MsCarry carry(const Exec *x) { return ms_dispatcher(&x->scenario->options)->carry; }
static gboolean copies(const Exec *x) { return carry(x) == MS_CARRY_COPIES || ranks(x) == 1; }

static const char *flow(const Exec *x) { return is_back(x) ? "d tokens" : "tokens"; }
static const char *weights_flow(const Exec *x) { return is_back(x) ? "d copy weights" : "copy weights"; }
static gboolean carries_weights(const Exec *x, gboolean out) { return out != is_back(x); }
static void put(Exec *x, const char *name, const void *from, gint64 n) {
  memcpy(ms_exec_new(x, name, n), from, (size_t)n * x->k->real_B);
}
/* What is sent to the experts, and where what comes back goes. */
static const char *leaves(const Exec *x) {
  gboolean latent = x->model->moe_latent_size > 0;
  return is_back(x) ? latent ? "d latent tokens" : "d mlp residual" : latent ? "tokens" : "normed mlp input";
}
static void arrive(Exec *x, const void *rows) { /* [Tsp][eh] */
  gint64 n = x->Tsp * eh(x);
  gboolean latent = x->model->moe_latent_size > 0;
  if (is_back(x) && !latent) ms_exec_accumulate(x, "d normed mlp input", rows, n);
  else put(x, is_back(x) ? "d tokens" : latent ? "latent tokens" : "moe out", rows, n);
}

/* Expert rows of this rank: those of one of its experts, from the rank at `source` of the TP-EP group. */
static gint64 rows_of(const Exec *x, const Routing *r, int source, gint64 local) {
  return r->counts[source * experts(x) + x->ei * local_experts(x) + local];
}

static gint64 *expert_rows(Exec *x) {
  const Routing *r = routing(x);
  gint64 *rows = ms_exec_scratch_B(x, sizeof *rows * (size_t)local_experts(x));
  memset(rows, 0, sizeof *rows * (size_t)local_experts(x));
  if (!copies(x))
    for (gint64 i = 0; i < r->n_rows; i++) rows[r->local[i]]++;
  else
    for (int s = 0; s < ranks(x); s++)
      for (gint64 i = 0; i < local_experts(x); i++) rows[i] += rows_of(x, r, s, i);
  return rows;
}

/* --- router ---------------------------------------------------------------------------------------------------- */

static MsKernelScore score(const Exec *x) {
  switch (x->model->moe_router_score_function) {
  case MS_SCORE_SOFTMAX: return MS_KSCORE_SOFTMAX;
  case MS_SCORE_SIGMOID: return MS_KSCORE_SIGMOID;
  case MS_SCORE_SQRTSOFTPLUS: break; /* refused in front (exec.c) */
  }
  return MS_KSCORE_SOFTMAX;
}

static gint64 shard_row(const Exec *x, gint64 i) { return (x->sp ? x->ti * x->Tsp : 0) + i; }

static void router(Exec *x) {
  gint64 E = experts(x), k = x->model->moe_router_topk, n = x->Tsp * E;
  gint64 *index = ms_exec_scratch_B(x, sizeof *index * (size_t)x->Tsp);
  gint32 *which = ms_exec_scratch_B(x, sizeof *which * (size_t)(x->Tsp * k));
  void *weight = ms_exec_scratch(x, x->Tsp * k);
  for (gint64 i = 0; i < x->Tsp; i++) {
    gint64 row = shard_row(x, i);
    index[i] = ms_exec_sequence(x, x->mb_index, (int)(row % x->b)) * x->s + x->row_pos[row];
  }
  const void *logits = ms_exec_get(x, "logits", n);
  ms_exec_width(x, "logits", 4);
  gboolean forced = !ms_exec_natural(x);
  x->k->router_forward(x->Tsp, (int)E, (int)k, forced ? 0 : x->model->moe_router_num_groups,
                       forced ? 0 : x->model->moe_router_group_topk, score(x), TRUE, 1, forced ? index : NULL, NULL,
                       logits, weight, which, NULL, NULL);
  void *dense = ms_exec_new_typed(x, "dense weights", n, x->k->real_B, 4);
  guint8 *map = ms_exec_new_typed(x, "routing map", n, 1, 1);
  ms_exec_fill(x, n, 0, dense);
  memset(map, 0, (size_t)n);
  for (gint64 i = 0; i < x->Tsp * k; i++) {
    gint64 at = i / k * E + which[i];
    map[at] = 1;
    ms_exec_write(x, dense, at, ms_exec_read(x, weight, i));
  }
  if (!x->scenario->options.moe_permute_fusion) return;
  gint32 *rows = ms_exec_new_typed(
      x, "row map", 2 * n, sizeof *rows,
      4); /* of the fused permutation: the copy of each token for each expert, and how many before it */
  memset(rows, 0xff, sizeof *rows * (size_t)(2 * n));
  gint32 copy = 0;
  for (gint64 e = 0; e < E; e++)
    for (gint64 i = 0; i < x->Tsp; i++)
      if (map[i * E + e]) rows[i * E + e] = copy++;
}

static void router_back(Exec *x) {
  gint64 E = experts(x), k = x->model->moe_router_topk, n = x->Tsp * E;
  const guint8 *map = ms_exec_get(x, "routing map", n);
  const void *d = ms_exec_get(x, "d dense weights", n);
  ms_exec_find(x, "dense weights"),
      ms_exec_find(x, "row map"); /* a framework's kernels read these; ours derive them again from logits and map */
  gint32 *which = ms_exec_scratch_B(x, sizeof *which * (size_t)(x->Tsp * k));
  void *d_weight = ms_exec_scratch(x, x->Tsp * k);
  gint64 at = 0;
  for (gint64 i = 0; i < n; i++) {
    if (!map[i]) continue;
    which[at] = (gint32)(i % E);
    ms_exec_write(x, d_weight, at++, ms_exec_read(x, d, i));
  }
  x->k->router_backward(x->Tsp, (int)E, (int)k, score(x), TRUE, 1, ms_exec_get(x, "logits", n), which, d_weight, NULL,
                        ms_exec_new(x, "d logits", n));
  ms_exec_drop(x, "d dense weights");
}

/* Nobody reads these sums: the executor trains without the loss that balances experts. */
static void expert_counts(Exec *x) {
  gint64 E = experts(x),
         n = E * (x->model->moe_router_load_balancing_type == MS_BALANCE_SEQ_AUX ? x->b : 1); /* of each sequence */
  const guint8 *map = ms_exec_get(x, "routing map", x->Tsp * E);
  void *counts = ms_exec_scratch(x, n);
  ms_exec_fill(x, n, 0, counts);
  for (gint64 i = 0; i < x->Tsp * E; i++) {
    gint64 at = (shard_row(x, i / E) % x->b * E + i % E) % n;
    if (map[i]) ms_exec_write(x, counts, at, ms_exec_read(x, counts, at) + 1);
  }
  ms_comm_all_reduce(x->comm, (MsGroupKind)x->row->op->group, counts, n, FALSE);
  ms_exec_sent(x, (double)n, 8);
}

/* --- maps, and the counts that all ranks have to know ---------------------------------------------------------- */

static void preprocess(Exec *x) {
  gint64 E = experts(x);
  const guint8 *map = ms_exec_get(x, "routing map", x->Tsp * E);
  Routing *r = g_new0(Routing, 1);
  ms_exec_routing_free(routing(x));
  x->mb->routing[x->now->at] = r;
  r->token = g_new(gint64, x->Tsp * x->model->moe_router_topk + 1),
  r->expert = g_new(gint32, x->Tsp * x->model->moe_router_topk + 1);
  r->counts = g_new0(gint64, ranks(x) * E);
  for (gint64 e = 0; e < E; e++)
    for (gint64 i = 0; i < x->Tsp; i++)
      if (map[i * E + e]) {
        r->token[r->n] = i, r->expert[r->n++] = (gint32)e;
        r->counts[e]++; /* alone they are at their place; else they are gathered */
      }
}

static void token_counts(Exec *x) {
  Routing *r = routing(x);
  gint64 E = experts(x), *own = ms_exec_scratch_B(x, sizeof *own * (size_t)E),
         *each = ms_exec_scratch_B(x, sizeof *each * (size_t)ranks(x));
  memcpy(own, r->counts, sizeof *own * (size_t)E);
  for (int i = 0; i < ranks(x); i++) each[i] = E;
  ms_comm_all_gather(x->comm, MS_GROUP_TP_EP, own, r->counts, each, sizeof *own);
  ms_exec_sent(x, (double)(E * ranks(x)), 8);
}

/* HybridEP: the maps of all ranks, and how many tokens of each rank come to every expert. */
static void gather_routing_map(Exec *x) {
  Routing *r = routing(x);
  gint64 own = x->Tsp * experts(x), *each = ms_exec_scratch_B(x, sizeof *each * (size_t)ranks(x));
  for (int i = 0; i < ranks(x); i++) each[i] = own;
  g_free(r->all);
  r->all = g_malloc((size_t)(own * ranks(x)));
  ms_comm_all_gather(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, "routing map", own), r->all, each, 1);
  ms_exec_sent(x, (double)(own * ranks(x)), 1);
}

static void places_of_tokens(Exec *x) {
  Routing *r = routing(x);
  gint64 E = experts(x), rows = x->Tsp * ranks(x), n = 0;
  if (!r->all) MS_BUG("places of tokens are asked for before their map is there");
  for (gint64 i = 0; i < rows * E; i++) n += r->all[i] != 0;
  if (n < r->n) MS_BUG("%ld choices of all ranks are fewer than the %ld of this one", (long)n, (long)r->n);
}

/* --- alltoall: a copy of a token for each of its experts ------------------------------------------------------- */

static void permute_copies(Exec *x) {
  Routing *r = routing(x);
  const void *from = ms_exec_get(x, leaves(x), x->Tsp * eh(x));
  void *copies = ms_exec_scratch(x, r->n * eh(x));
  x->k->gather_rows(r->n, eh(x), r->token, from, copies);
  put(x, flow(x), copies, r->n * eh(x));
  if (is_back(x)) return;
  const void *dense = ms_exec_get(x, "dense weights", x->Tsp * experts(x));
  void *weight = ms_exec_new(x, "copy weights", r->n);
  for (gint64 i = 0; i < r->n; i++)
    ms_exec_write(x, weight, i, ms_exec_read(x, dense, r->token[i] * experts(x) + r->expert[i]));
}

static void weights_home(Exec *x, const void *d) { /* of this rank's copies */
  Routing *r = routing(x);
  void *dense = ms_exec_new(x, "d dense weights", x->Tsp * experts(x));
  ms_exec_fill(x, x->Tsp * experts(x), 0, dense);
  for (gint64 i = 0; i < r->n; i++)
    ms_exec_write(x, dense, r->token[i] * experts(x) + r->expert[i], ms_exec_read(x, d, i));
}

static void unpermute_copies(Exec *x) {
  Routing *r = routing(x);
  void *sum = ms_exec_scratch(x, x->Tsp * eh(x));
  x->k->scatter_rows(r->n, eh(x), r->token, NULL, ms_exec_get(x, flow(x), r->n * eh(x)), x->Tsp, sum);
  ms_exec_drop(x, flow(x));
  arrive(x, sum);
  if (!is_back(x)) return;
  weights_home(x, ms_exec_get(x, "d copy weights", r->n));
  ms_exec_drop(x, "d copy weights");
}

/* Rows that this rank sends to (or gets from) each rank of its EP group. */
static void peer_counts(Exec *x, gint64 *sent, gint64 *received) {
  const Routing *r = routing(x);
  int u = x->layout->etp;
  for (int j = 0; j < x->layout->ep; j++) {
    sent[j] = received[j] = 0;
    for (gint64 i = 0; i < local_experts(x); i++) {
      sent[j] += r->counts[(x->ui + u * x->ei) * experts(x) + j * local_experts(x) + i];
      received[j] += rows_of(x, r, x->ui + u * j, i);
    }
  }
}

static gint64 sum_of(const gint64 *n, int count) {
  gint64 sum = 0;
  for (int i = 0; i < count; i++) sum += n[i];
  return sum;
}

static void cross_rows(Exec *x, const char *name, gint64 width, const gint64 *sent, const gint64 *received,
                       double width_B) {
  int e = x->layout->ep;
  gint64 *out = ms_exec_scratch_B(x, sizeof *out * (size_t)e), *in = ms_exec_scratch_B(x, sizeof *in * (size_t)e);
  for (int j = 0; j < e; j++) out[j] = sent[j] * width, in[j] = received[j] * width;
  gint64 n_out = sum_of(out, e), n_in = sum_of(in, e);
  void *to = ms_exec_scratch(x, n_in);
  ms_comm_all_to_all(x->comm, MS_GROUP_EP, ms_exec_get(x, name, n_out), out, to, in, 0);
  put(x, name, to, n_in);
  ms_exec_sent(x, (double)n_out, width_B);
}

static void cross_alltoall(Exec *x, gboolean out) {
  gint64 *sent = ms_exec_scratch_B(x, sizeof *sent * (size_t)x->layout->ep),
         *received = ms_exec_scratch_B(x, sizeof *sent * (size_t)x->layout->ep);
  peer_counts(x, out ? sent : received, out ? received : sent);
  cross_rows(x, flow(x), eh(x), sent, received, 2);
  if (carries_weights(x, out)) cross_rows(x, weights_flow(x), 1, sent, received, 4);
}

/* --- ETP: the rows of all its ranks on each, and the sum of their outputs back --------------------------------- */

static gint64 *etp_counts(Exec *x, gint64 width) {
  const Routing *r = routing(x);
  int u = x->layout->etp;
  gint64 *counts = ms_exec_scratch_B(x, sizeof *counts * (size_t)u);
  for (int i = 0; i < u; i++) {
    counts[i] = 0;
    for (int j = 0; j < x->layout->ep; j++)
      for (gint64 l = 0; l < local_experts(x); l++) counts[i] += width * rows_of(x, r, i + u * j, l);
  }
  return counts;
}

static void etp_gather_one(Exec *x, const char *name, gint64 width, double width_B) {
  gint64 *counts = etp_counts(x, width), all = sum_of(counts, x->layout->etp);
  void *to = ms_exec_scratch(x, all);
  ms_comm_all_gather(x->comm, MS_GROUP_ETP, ms_exec_get(x, name, counts[x->ui]), to, counts, 0);
  put(x, name, to, all);
  ms_exec_sent(x, (double)all, width_B);
}

static void etp_scatter_one(Exec *x, const char *name, gint64 width, double width_B) {
  gint64 *counts = etp_counts(x, width), all = sum_of(counts, x->layout->etp);
  void *to = ms_exec_scratch(x, counts[x->ui]);
  ms_comm_reduce_scatter(x->comm, MS_GROUP_ETP, ms_exec_get(x, name, all), to, counts);
  put(x, name, to, counts[x->ui]);
  ms_exec_sent(x, (double)all, width_B);
}

static void etp_gather(Exec *x) {
  etp_gather_one(x, flow(x), eh(x), is_back(x) ? 4 : 2);
  if (carries_weights(x, TRUE)) etp_gather_one(x, weights_flow(x), 1, 4);
}

static void etp_scatter(Exec *x) {
  etp_scatter_one(x, flow(x), eh(x), is_back(x) ? 2 : 4);
  if (carries_weights(x, FALSE)) etp_scatter_one(x, weights_flow(x), 1, 4);
}

/* --- chunks in the order of their ranks to the order of the experts, and back ---------------------------------- */

static gint64 *chunk_order(Exec *x, gint64 *n) { /* of each expert row the received row */
  const Routing *r = routing(x);
  gint64 El = local_experts(x), total = 0, at = 0;
  int u = x->layout->etp, e = x->layout->ep;
  gint64 *start = ms_exec_scratch_B(x, sizeof *start * (size_t)(u * e * El));
  for (int i = 0; i < u; i++)
    for (int j = 0; j < e; j++)
      for (gint64 l = 0; l < El; l++) start[(i * e + j) * El + l] = total, total += rows_of(x, r, i + u * j, l);
  gint64 *order = ms_exec_scratch_B(x, sizeof *order * (size_t)MAX(total, 1));
  for (gint64 l = 0; l < El; l++)
    for (int i = 0; i < u; i++)
      for (int j = 0; j < e; j++)
        for (gint64 k = 0; k < rows_of(x, r, i + u * j, l); k++) order[at++] = start[(i * e + j) * El + l] + k;
  *n = total;
  return order;
}

static void reorder(Exec *x, const char *name, gint64 width, const gint64 *order, gint64 n, gboolean back) {
  void *to = ms_exec_scratch(x, n * width);
  const void *from = ms_exec_get(x, name, n * width);
  if (back) x->k->scatter_rows(n, width, order, NULL, from, n, to);
  else x->k->gather_rows(n, width, order, from, to);
  put(x, name, to, n * width);
}

static void sort_rows(Exec *x, gboolean to_experts) {
  gint64 n, *order = chunk_order(x, &n);
  reorder(x, flow(x), eh(x), order, n, !to_experts);
  if (carries_weights(x, to_experts)) reorder(x, weights_flow(x), 1, order, n, !to_experts);
}

static void sort_chunks(Exec *x) { sort_rows(x, TRUE); }
static void unsort_chunks(Exec *x) { sort_rows(x, FALSE); }

/* --- allgather: every token to every rank ---------------------------------------------------------------------- */

static gint64 *even(Exec *x, gint64 n) {
  gint64 *counts = ms_exec_scratch_B(x, sizeof *counts * (size_t)ranks(x));
  for (int i = 0; i < ranks(x); i++) counts[i] = n;
  return counts;
}

static void add_row(Routing *r, gint64 source, gint64 local, gint64 place) {
  if ((r->n_rows & (r->n_rows - 1)) == 0) {
    gint64 room = 2 * MAX(r->n_rows, 1);
    r->source = g_renew(gint64, r->source, room), r->local = g_renew(gint32, r->local, room),
    r->place = g_renew(gint64, r->place, room);
  }
  r->source[r->n_rows] = source, r->local[r->n_rows] = (gint32)local, r->place[r->n_rows++] = place;
}

static void dispatch_allgather(Exec *x) {
  Routing *r = routing(x);
  gint64 E = experts(x), mine = x->Tsp * eh(x), g = ranks(x);
  void *all = ms_exec_scratch(x, mine * g);
  ms_comm_all_gather(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, leaves(x), mine), all, even(x, mine), 0);
  put(x, flow(x), all, mine * g);
  ms_exec_sent(x, (double)(mine * g), is_back(x) ? 4 : 2);
  if (is_back(x)) return;
  guint8 *map = ms_exec_scratch_B(x, (size_t)(x->Tsp * E * g));
  ms_comm_all_gather(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, "routing map", x->Tsp * E), map, even(x, x->Tsp * E), 1);
  ms_comm_all_gather(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, "dense weights", x->Tsp * E),
                     ms_exec_new(x, "all weights", x->Tsp * E * g), even(x, x->Tsp * E), 0);
  ms_exec_sent(x, (double)(x->Tsp * E * g), 1), ms_exec_sent(x, (double)(x->Tsp * E * g), 4);
  r->n_rows = 0, r->n_received = x->Tsp * g;
  for (gint64 l = 0; l < local_experts(x); l++)
    for (gint64 i = 0; i < r->n_received; i++) {
      gint64 at = i * E + x->ei * local_experts(x) + l;
      if (map[at]) add_row(r, i, l, at);
    }
}

static void combine_allgather(Exec *x) {
  gint64 E = experts(x), mine = x->Tsp * eh(x), g = ranks(x);
  void *sum = ms_exec_scratch(x, mine);
  ms_comm_reduce_scatter(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, flow(x), mine * g), sum, even(x, mine));
  ms_exec_sent(x, (double)(mine * g), is_back(x) ? 2 : 4);
  ms_exec_drop(x, flow(x));
  arrive(x, sum);
  if (!is_back(x)) return;
  ms_comm_reduce_scatter(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, "d all weights", x->Tsp * E * g),
                         ms_exec_new(x, "d dense weights", x->Tsp * E), even(x, x->Tsp * E));
  ms_exec_sent(x, (double)(x->Tsp * E * g), 4);
}

/* --- DeepEP, HybridEP: a token once to each rank that has one of its experts ----------------------------------- */

/* What goes where: tokens by rank, and with them the pairs (token, expert) of that rank. */
static void plan_flex(Exec *x, Routing *r) {
  gint64 E = experts(x), El = local_experts(x), n = x->Tsp * x->model->moe_router_topk;
  int g = ranks(x), u = x->layout->etp;
  const guint8 *map = ms_exec_get(x, "routing map", x->Tsp * E);
  r->sent = g_new(gint64, x->Tsp * g), r->sent_counts = g_new0(gint64, g), r->received_counts = g_new0(gint64, g);
  r->entry_token = g_new(gint64, n * u + 1), r->entry_expert = g_new(gint32, n * u + 1),
  r->entry_counts = g_new0(gint64, g), r->entry_received = g_new0(gint64, g);
  for (int d = 0; d < g; d++)
    for (gint64 i = 0; i < x->Tsp; i++) {
      gboolean any = FALSE;
      for (gint64 l = d / u * El; l < (d / u + 1) * El; l++) {
        if (!map[i * E + l]) continue;
        any = TRUE;
        r->entry_token[r->n_entries] = i, r->entry_expert[r->n_entries++] = (gint32)l, r->entry_counts[d]++;
      }
      if (any) r->sent[r->n_sent++] = i, r->sent_counts[d]++;
    }
  ms_comm_sizes(x->comm, MS_GROUP_TP_EP, r->sent_counts, r->received_counts);
  ms_comm_sizes(x->comm, MS_GROUP_TP_EP, r->entry_counts, r->entry_received);
  r->n_received = sum_of(r->received_counts, g);
}

static gint64 *times(Exec *x, const gint64 *counts, gint64 width) {
  gint64 *n = ms_exec_scratch_B(x, sizeof *n * (size_t)ranks(x));
  for (int i = 0; i < ranks(x); i++) n[i] = counts[i] * width;
  return n;
}

/* Numbers of the pairs: (row of the message, expert), so that the receiver knows what it got; 8 bytes each, and the
 * weight 4. */
static void send_entries(Exec *x, Routing *r) {
  int g = ranks(x), me = ms_comm_index(x->comm, MS_GROUP_TP_EP);
  gint64 E = experts(x), n_in = sum_of(r->entry_received, g), at = 0;
  gint64 *number = ms_exec_scratch_B(x, sizeof *number * (size_t)(r->n_entries + 1)),
         *in = ms_exec_scratch_B(x, sizeof *in * (size_t)(n_in + 1));
  void *weight = ms_exec_scratch(x, r->n_entries), *weight_in = ms_exec_scratch(x, n_in);
  const void *dense = ms_exec_get(x, "dense weights", x->Tsp * E);
  gint64 first = 0;
  for (int d = 0; d < g; first += r->sent_counts[d++]) {
    gint64 row = 0;
    for (gint64 i = 0; i < r->entry_counts[d]; i++, at++) {
      while (r->sent[first + row] != r->entry_token[at]) row++;
      number[at] = row * E + r->entry_expert[at];
      ms_exec_write(x, weight, at, ms_exec_read(x, dense, r->entry_token[at] * E + r->entry_expert[at]));
    }
  }
  ms_comm_all_to_all(x->comm, MS_GROUP_TP_EP, number, r->entry_counts, in, r->entry_received, sizeof *number);
  ms_comm_all_to_all(x->comm, MS_GROUP_TP_EP, weight, r->entry_counts, weight_in, r->entry_received, 0);
  x->beside_B += 12.0 * (double)(r->n_entries - r->entry_counts[me]);
  put(x, "entry weights", weight_in, n_in);
  r->n_rows = 0;
  gint64 *received = ms_exec_scratch_B(x, sizeof *received * (size_t)(n_in + 1));
  gint64 base = 0, e = 0;
  for (int s = 0; s < g; base += r->received_counts[s++])
    for (gint64 i = 0; i < r->entry_received[s]; i++, e++) received[e] = (base + in[e] / E) * E + in[e] % E;
  for (gint64 l = 0; l < local_experts(x); l++)
    for (gint64 i = 0; i < n_in; i++)
      if (received[i] % E == x->ei * local_experts(x) + l) add_row(r, received[i] / E, l, i);
}

/* The list expects a random choice of experts; where every rank has one expert, and the choice is forced, the number of
 * ranks of a token is certain, and so are the bytes. */
static void count_flex(Exec *x, const Routing *r) {
  int me = ms_comm_index(x->comm, MS_GROUP_TP_EP);
  const MsOp *op = x->row->op;
  ms_exec_sent(x, (double)(r->n_sent * eh(x)), 2);
  if (local_experts(x) > 1 || ms_exec_natural(x)) {
    x->said_message_B = x->message_B;
    return;
  }
  double others = 2.0 * (double)((r->n_sent - r->sent_counts[me]) * eh(x)) + x->beside_B;
  if (!x->options->unchecked && op->level_B[1] == 0 && op->level_B[0] > 0 &&
      (others > op->level_B[0] * (1 + 1e-9) || others < op->level_B[0] * (1 - 1e-9)))
    ms_exec_fail(x, MS_ERROR_NOTHING,
                 "messages: %s sent %.17g B to other ranks, metadata included, the list says %.17g",
                 ms_exec_row_text(x), others, op->level_B[0]);
}

static void dispatch_flex(Exec *x) {
  Routing *r = routing(x);
  if (!is_back(x)) plan_flex(x, r);
  gint64 width = eh(x);
  void *out = ms_exec_scratch(x, r->n_sent * width), *in = ms_exec_scratch(x, r->n_received * width);
  x->k->gather_rows(r->n_sent, width, r->sent, ms_exec_get(x, leaves(x), x->Tsp * width), out);
  ms_comm_all_to_all(x->comm, MS_GROUP_TP_EP, out, times(x, r->sent_counts, width), in,
                     times(x, r->received_counts, width), 0);
  put(x, flow(x), in, r->n_received * width);
  x->beside_B = 0;
  if (!is_back(x)) send_entries(x, r);
  count_flex(x, r);
}

static void combine_flex(Exec *x) {
  Routing *r = routing(x);
  int g = ranks(x), me = ms_comm_index(x->comm, MS_GROUP_TP_EP);
  gint64 width = eh(x);
  void *in = ms_exec_scratch(x, r->n_sent * width), *sum = ms_exec_scratch(x, x->Tsp * width);
  ms_comm_all_to_all(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, flow(x), r->n_received * width),
                     times(x, r->received_counts, width), in, times(x, r->sent_counts, width), 0);
  x->k->scatter_rows(r->n_sent, width, r->sent, NULL, in, x->Tsp, sum);
  ms_exec_drop(x, flow(x));
  arrive(x, sum);
  x->beside_B = 0;
  if (is_back(x)) {
    gint64 n_in = sum_of(r->entry_received, g);
    void *d = ms_exec_scratch(x, r->n_entries), *dense = ms_exec_new(x, "d dense weights", x->Tsp * experts(x));
    ms_comm_all_to_all(x->comm, MS_GROUP_TP_EP, ms_exec_get(x, "d entry weights", n_in), r->entry_received, d,
                       r->entry_counts, 0);
    x->beside_B = 4.0 * (double)(r->n_entries - r->entry_counts[me]);
    ms_exec_fill(x, x->Tsp * experts(x), 0, dense);
    for (gint64 i = 0; i < r->n_entries; i++) {
      gint64 at = r->entry_token[i] * experts(x) + r->entry_expert[i];
      ms_exec_write(x, dense, at, ms_exec_read(x, dense, at) + ms_exec_read(x, d, i));
    }
  }
  count_flex(x, r);
}

/* --- behind allgather and flex: received rows to expert rows --------------------------------------------------- */

static void permute_received(Exec *x) {
  Routing *r = routing(x);
  void *rows = ms_exec_scratch(x, r->n_rows * eh(x));
  x->k->gather_rows(r->n_rows, eh(x), r->source, ms_exec_get(x, flow(x), r->n_received * eh(x)), rows);
  put(x, flow(x), rows, r->n_rows * eh(x));
  if (is_back(x)) return;
  gboolean all = carry(x) == MS_CARRY_ALL;
  const void *from =
      all ? ms_exec_get(x, "all weights", r->n_received * experts(x)) : ms_exec_get(x, "entry weights", r->n_rows);
  void *weight = ms_exec_new(x, "copy weights", r->n_rows);
  for (gint64 i = 0; i < r->n_rows; i++) ms_exec_write(x, weight, i, ms_exec_read(x, from, r->place[i]));
  ms_exec_drop(x, "all weights"), ms_exec_drop(x, "entry weights");
}

static void unpermute_received(Exec *x) {
  Routing *r = routing(x);
  void *rows = ms_exec_scratch(x, r->n_received * eh(x));
  x->k->scatter_rows(r->n_rows, eh(x), r->source, NULL, ms_exec_get(x, flow(x), r->n_rows * eh(x)), r->n_received,
                     rows);
  put(x, flow(x), rows, r->n_received * eh(x));
  if (!is_back(x)) return;
  gboolean all = carry(x) == MS_CARRY_ALL;
  gint64 n = all ? r->n_received * experts(x) : r->n_rows;
  void *d = ms_exec_new(x, all ? "d all weights" : "d entry weights", n);
  const void *from = ms_exec_get(x, "d copy weights", r->n_rows);
  ms_exec_fill(x, n, 0, d);
  for (gint64 i = 0; i < r->n_rows; i++) ms_exec_write(x, d, r->place[i], ms_exec_read(x, from, i));
  ms_exec_drop(x, "d copy weights");
}

/* --- rows that depend on the dispatcher and the side of the crossing ------------------------------------------- */

static void permute(Exec *x) {
  if (copies(x)) permute_copies(x);
  else permute_received(x);
}

static void unpermute(Exec *x) {
  if (copies(x)) unpermute_copies(x);
  else unpermute_received(x);
}

static void dispatch(Exec *x) {
  switch (carry(x)) {
  case MS_CARRY_COPIES: cross_alltoall(x, TRUE); break;
  case MS_CARRY_ALL: dispatch_allgather(x); break;
  case MS_CARRY_ONCE: dispatch_flex(x); break;
  }
}

static void combine(Exec *x) {
  switch (carry(x)) {
  case MS_CARRY_COPIES: cross_alltoall(x, FALSE); break;
  case MS_CARRY_ALL: combine_allgather(x); break;
  case MS_CARRY_ONCE: combine_flex(x); break;
  }
}

/* --- experts --------------------------------------------------------------------------------------------------- */

static void fc1_forward(Exec *x) {
  gint64 *rows = expert_rows(x), n = sum_of(rows, (int)local_experts(x));
  ms_exec_rename(x, "tokens", "expert input");
  ms_exec_rename(x, "copy weights", "permuted probs");
  ms_exec_width(x, "permuted probs", 4);
  x->k->grouped_forward(&x->run, (int)local_experts(x), rows, fc1_width(x), eh(x),
                        ms_exec_get(x, "expert input", n * eh(x)), ms_exec_param(x, "expert fc1"),
                        ms_exec_new(x, "expert fc1 out", n * fc1_width(x)));
}

static void fc1_dgrad(Exec *x) {
  gint64 *rows = expert_rows(x), n = sum_of(rows, (int)local_experts(x));
  x->k->grouped_dgrad(&x->run, (int)local_experts(x), rows, fc1_width(x), eh(x),
                      ms_exec_get(x, "d expert fc1 out", n * fc1_width(x)), ms_exec_param(x, "expert fc1"),
                      ms_exec_new(x, "d tokens", n * eh(x)));
}

static void fc1_wgrad(Exec *x) {
  gint64 *rows = expert_rows(x), n = sum_of(rows, (int)local_experts(x));
  x->k->grouped_wgrad(&x->run, (int)local_experts(x), rows, fc1_width(x), eh(x),
                      ms_exec_get(x, "d expert fc1 out", n * fc1_width(x)), ms_exec_get(x, "expert input", n * eh(x)),
                      ms_exec_grad(x, "expert fc1"));
  ms_exec_drop(x, "d expert fc1 out");
}

static void fc2_forward(Exec *x) {
  gint64 *rows = expert_rows(x), n = sum_of(rows, (int)local_experts(x));
  x->k->grouped_forward(&x->run, (int)local_experts(x), rows, eh(x), fm(x),
                        ms_exec_get(x, "expert activation out", n * fm(x)), ms_exec_param(x, "expert fc2"),
                        ms_exec_new(x, "tokens", n * eh(x)));
}

static void fc2_dgrad(Exec *x) {
  gint64 *rows = expert_rows(x), n = sum_of(rows, (int)local_experts(x));
  ms_exec_rename(x, "d tokens", "d expert out");
  x->k->grouped_dgrad(&x->run, (int)local_experts(x), rows, eh(x), fm(x), ms_exec_get(x, "d expert out", n * eh(x)),
                      ms_exec_param(x, "expert fc2"), ms_exec_new(x, "d expert activation out", n * fm(x)));
}

static void fc2_wgrad(Exec *x) {
  gint64 *rows = expert_rows(x), n = sum_of(rows, (int)local_experts(x));
  x->k->grouped_wgrad(&x->run, (int)local_experts(x), rows, eh(x), fm(x), ms_exec_get(x, "d expert out", n * eh(x)),
                      ms_exec_get(x, "expert activation out", n * fm(x)), ms_exec_grad(x, "expert fc2"));
  ms_exec_drop(x, "d expert out");
}

static gint64 *identity(Exec *x, gint64 n) {
  gint64 *to = ms_exec_scratch_B(x, sizeof *to * (size_t)MAX(n, 1));
  for (gint64 i = 0; i < n; i++) to[i] = i;
  return to;
}

/* What has no kernel with the router weight inside multiplies behind it. */
static void expert_activation(Exec *x) {
  gboolean inside = ms_weighted_in_kernel(x->model, &x->scenario->options);
  gint64 *rows = expert_rows(x), n = sum_of(rows, (int)local_experts(x)), width = fm(x);
  MsKernelActivation kind = ms_exec_activation(x);
  double clamp = kind == MS_KACT_GEGLU_QUICK ? MS_EXEC_CLAMP : 0;
  const void *in = ms_exec_get(x, "expert fc1 out", n * fc1_width(x)), *weight = ms_exec_get(x, "permuted probs", n);
  if (!is_back(x)) {
    void *out = ms_exec_new(x, "expert activation out", n * width);
    if (inside) {
      x->k->activation_forward(kind, n, width, clamp, in, weight, out);
      return;
    }
    void *plain = ms_exec_new(x, "expert activation, unweighted", n * width);
    x->k->activation_forward(kind, n, width, clamp, in, NULL, plain);
    x->k->scatter_rows(n, width, identity(x, n), weight, plain, n, out);
    return;
  }
  const void *d = ms_exec_get(x, "d expert activation out", n * width);
  void *d_in = ms_exec_new(x, "d expert fc1 out", n * fc1_width(x)), *d_weight = ms_exec_new(x, "d copy weights", n);
  if (inside) {
    x->k->activation_backward(kind, n, width, clamp, in, weight, d, d_in, d_weight);
  } else {
    void *d_plain = ms_exec_scratch(x, n * width);
    x->k->scatter_weight_grad(n, width, identity(x, n), ms_exec_get(x, "expert activation, unweighted", n * width), d,
                              d_weight);
    x->k->scatter_rows(n, width, identity(x, n), weight, d, n, d_plain);
    x->k->activation_backward(kind, n, width, clamp, in, NULL, d_plain, d_in, NULL);
  }
  ms_exec_drop(x, "d expert activation out");
}

/* On this machine device and host are one: nothing is copied or sent, but the counts that the host waits for must be
 * known by now. */
static void counts_to_host(Exec *x) {
  if (!routing(x)) MS_BUG("row counts are asked for before the router has run");
  x->said_message_B = 0;
}

const Handler ms_exec_moe_rows[] = {
    {MS_OP_ROUTER_TOPK, "router top-k", -1, PASS_F, router},
    {MS_OP_ROUTER_TOPK, "router top-k", -1, PASS_D, router_back},
    {MS_OP_ALL_REDUCE, "expert counts", -1, PASS_F, expert_counts},
    {MS_OP_PREPROCESS, "dispatch preprocess", -1, PASS_F, preprocess},
    {MS_OP_ALL_GATHER, "token counts", -1, PASS_F, token_counts},
    {MS_OP_ALL_GATHER, "routing map", -1, PASS_F, gather_routing_map},
    {MS_OP_PREPROCESS, "places of tokens", -1, PASS_F, places_of_tokens},
    {MS_OP_D2H, "row counts to host", -1, PASS_F, counts_to_host},
    {MS_OP_PREPROCESS, "row counts to host", -1, PASS_F, counts_to_host},
    {MS_OP_PERMUTE, "permute", -1, PASS_F | PASS_D, permute},
    {MS_OP_UNPERMUTE, "unpermute", -1, PASS_F | PASS_D, unpermute},
    {MS_OP_DISPATCH, "dispatch", -1, PASS_F | PASS_D, dispatch},
    {MS_OP_COMBINE, "combine", -1, PASS_F | PASS_D, combine},
    {MS_OP_ALL_GATHER, "etp gather", -1, PASS_F | PASS_D, etp_gather},
    {MS_OP_REDUCE_SCATTER, "etp scatter", -1, PASS_F | PASS_D, etp_scatter},
    {MS_OP_SORT_CHUNKS, "sort chunks", -1, PASS_F | PASS_D, sort_chunks},
    {MS_OP_SORT_CHUNKS, "unsort chunks", -1, PASS_F | PASS_D, unsort_chunks},
    {MS_OP_GROUPED_GEMM, "expert fc1", -1, PASS_F, fc1_forward},
    {MS_OP_GROUPED_GEMM, "expert fc1", -1, PASS_D, fc1_dgrad},
    {MS_OP_GROUPED_GEMM, "expert fc1", -1, PASS_W, fc1_wgrad},
    {MS_OP_WEIGHTED_ACTIVATION, "expert activation", -1, PASS_F | PASS_D, expert_activation},
    {MS_OP_GROUPED_GEMM, "expert fc2", -1, PASS_F, fc2_forward},
    {MS_OP_GROUPED_GEMM, "expert fc2", -1, PASS_D, fc2_dgrad},
    {MS_OP_GROUPED_GEMM, "expert fc2", -1, PASS_W, fc2_wgrad},
    {0}};
