/* src/exec/rows_attention.c - from the projections to the output of attention and back: GQA and MLA shapes, the core,
 * and every way of context parallelism. With exchanged heads (a2a) a rank holds the tokens of `inner` ranks and 1 /
 * inner of its heads; K and V of the others go round (p2p). */
#include "exec/state_priv.h"

#include "describe/framework.h"

#include <math.h>
#include <string.h>

typedef struct {
  int b, heads, kv_heads, dqk, dv; /* of this rank in front of an exchange of heads */
  int inner, outer;                /* ranks that exchange heads; steps of the ring */
  MsGroupKind ring;
  gint64 q, k, v, o; /* elements of a rank's tensors: the same in front of and behind the exchange */
} Core;

static Core core_of(const Exec *x) {
  const MsModel *m = x->model;
  Core a = {.b = (int)x->b, .heads = m->num_attention_heads / (int)x->t, .inner = 1, .outer = 1, .ring = MS_GROUP_CP};
  a.kv_heads = ms_model_has_mla(m) ? a.heads : m->num_query_groups / (int)x->t;
  a.dqk = ms_model_has_mla(m) ? m->multi_latent_attention.qk_head_dim + m->multi_latent_attention.qk_pos_emb_head_dim
                              : m->kv_channels;
  a.dv = ms_model_has_mla(m) ? m->multi_latent_attention.v_head_dim : m->kv_channels;
  a.inner = x->layout->cp_inner;
  switch (ms_cp_comm_row(x->scenario->layout.cp_comm_type)->keys) {
  case MS_CP_KEYS_STAY:
  case MS_CP_KEYS_ARE_GATHERED: break;
  case MS_CP_KEYS_GO_ROUND: a.outer = (int)x->c / a.inner; break;
  }
  if (a.inner > 1 && a.outer > 1) a.ring = MS_GROUP_CP_OUTER;
  a.q = x->T * a.heads * a.dqk, a.k = x->T * a.kv_heads * a.dqk, a.v = x->T * a.kv_heads * a.dv,
  a.o = x->T * a.heads * a.dv;
  return a;
}

/* Positions that CP ranks first .. first + n - 1 hold, in the order of their ranks: slice r and slice 2 c - 1 - r of
 * each. */
void ms_exec_positions(const Exec *x, int first, int n, gint32 *to) {
  gint32 slice = (gint32)(x->s / (2 * x->c));
  if (x->c == 1) {
    for (gint32 i = 0; i < x->s; i++) *to++ = i;
    return;
  }
  for (int r = first; r < first + n; r++)
    for (int half = 0; half < 2; half++)
      for (gint32 i = 0; i < slice; i++) *to++ = (half ? (gint32)(2 * x->c - 1 - r) : r) * slice + i;
}

/* --- shapes: qkv split, norm of each head, rotary -------------------------------------------------------------- */

/* Queries that come from a latent are a product of their own. */
static void qkv_split(Exec *x) {
  Core a = core_of(x);
  gboolean own = x->model->query_latent_size > 0;
  gint64 q = own ? 0 : a.heads * a.dqk, k = a.kv_heads * a.dqk, v = a.kv_heads * a.dv, wide = q + k + v;
  if (x->row->op->pass == MS_PASS_DGRAD) {
    void *raw = ms_exec_new(x, "d qkv raw", x->T * wide);
    if (own) ms_exec_rename(x, "d q", "d q up out");
    else ms_exec_copy(x, x->T, q, ms_exec_get(x, "d q", a.q), q, raw, wide);
    ms_exec_copy(x, x->T, k, ms_exec_get(x, "d k", a.k), k, ms_exec_at(x, raw, q), wide);
    ms_exec_copy(x, x->T, v, ms_exec_get(x, "d v", a.v), v, ms_exec_at(x, raw, q + k), wide);
    ms_exec_drop(x, "d q"), ms_exec_drop(x, "d k"), ms_exec_drop(x, "d v");
    return;
  }
  const void *raw = ms_exec_get(x, "qkv raw", x->T * wide);
  if (own) ms_exec_rename(x, "q up out", "q");
  else ms_exec_copy(x, x->T, q, raw, wide, ms_exec_new(x, "q", a.q), q);
  ms_exec_copy(x, x->T, k, ms_exec_at(x, raw, q), wide, ms_exec_new(x, "k", a.k), k);
  ms_exec_copy(x, x->T, v, ms_exec_at(x, raw, q + k), wide, ms_exec_new(x, "v", a.v), v);
  ms_exec_drop(x, "qkv raw");
}

static void qk_norm(Exec *x) {
  Core a = core_of(x);
  static const struct {
    const char *now, *raw, *d, *gain, *bias;
  } side[2] = {{"q", "q raw", "d q", "q norm", "q norm bias"}, {"k", "k raw", "d k", "k norm", "k norm bias"}};
  for (int i = 0; i < 2; i++) {
    gint64 n = i ? a.k : a.q;
    if (x->row->op->pass == MS_PASS_DGRAD) {
      void *d_in = ms_exec_scratch(x, n), *d = ms_exec_get(x, side[i].d, n);
      ms_exec_norm_back(x, n / a.dqk, a.dqk, side[i].gain, side[i].bias, ms_exec_get(x, side[i].raw, n), d, d_in);
      memcpy(d, d_in, (size_t)n * x->k->real_B);
      continue;
    }
    ms_exec_rename(x, side[i].now, side[i].raw);
    const void *raw = ms_exec_get(x, side[i].raw, n);
    ms_exec_norm(x, n / a.dqk, a.dqk, side[i].gain, side[i].bias, raw, ms_exec_new(x, side[i].now, n));
  }
}

static void rotate(const Exec *x, void *at, gint64 heads, gint64 d, gint64 rotary, gint64 stride, gboolean back) {
  x->k->rope(x->T, heads, d, rotary, stride, x->row_pos, MS_EXEC_ROPE_BASE, back, at);
}

static void rope_gqa(Exec *x, const Core *a, gboolean back) {
  gint64 q = a->heads * a->dqk, k = a->kv_heads * a->dqk;
  rotate(x, ms_exec_get(x, back ? "d q" : "q", a->q), a->heads, a->dqk, a->dqk, q, back);
  rotate(x, ms_exec_get(x, back ? "d k" : "k", a->k), a->kv_heads, a->dqk, a->dqk, k, back);
}

/* From the up-projections to q, k, v: rotary halves of q in place, of k shared by all heads. */
static void rope_mla(Exec *x, const Core *a) {
  gint64 dr = x->model->multi_latent_attention.qk_pos_emb_head_dim, dn = a->dqk - dr, kv = dn + a->dv;
  ms_exec_rename(x, "q up out", "q");
  rotate(x, ms_exec_at(x, ms_exec_get(x, "q", a->q), dn), a->heads, a->dqk, dr, a->heads * a->dqk, FALSE);
  void *shared = ms_exec_scratch(x, x->T * dr), *k = ms_exec_new(x, "k", a->k), *v = ms_exec_new(x, "v", a->v);
  memcpy(shared, ms_exec_get(x, x->sp ? "k rope" : "k rope latent", x->T * dr), (size_t)(x->T * dr) * x->k->real_B);
  rotate(x, shared, 1, dr, dr, dr, FALSE);
  const void *up = ms_exec_get(x, "kv up out", x->T * a->heads * kv);
  ms_exec_copy(x, x->T * a->heads, dn, up, kv, k, a->dqk);
  ms_exec_copy(x, x->T * a->heads, a->dv, ms_exec_at(x, up, dn), kv, v, a->dv);
  for (int i = 0; i < a->heads; i++)
    ms_exec_copy(x, x->T, dr, shared, dr, ms_exec_at(x, k, i * a->dqk + dn), a->heads * a->dqk);
  ms_exec_drop(x, "kv up out"), ms_exec_drop(x, "k rope");
}

static void rope_mla_back(Exec *x, const Core *a) {
  gint64 dr = x->model->multi_latent_attention.qk_pos_emb_head_dim, dn = a->dqk - dr, kv = dn + a->dv;
  ms_exec_rename(x, "d q", "d q up out");
  rotate(x, ms_exec_at(x, ms_exec_get(x, "d q up out", a->q), dn), a->heads, a->dqk, dr, a->heads * a->dqk, TRUE);
  void *shared = ms_exec_new(x, x->t > 1 ? "d k rope, part" : "d k rope latent", x->T * dr),
       *up = ms_exec_new(x, "d kv up out", x->T * a->heads * kv);
  const void *dk = ms_exec_get(x, "d k", a->k), *dv = ms_exec_get(x, "d v", a->v);
  ms_exec_copy(x, x->T * a->heads, dn, dk, a->dqk, up, kv);
  ms_exec_copy(x, x->T * a->heads, a->dv, dv, a->dv, ms_exec_at(x, up, dn), kv);
  ms_exec_fill(x, x->T * dr, 0, shared);
  for (int i = 0; i < a->heads; i++)
    ms_exec_add_to(x, x->T, dr, ms_exec_at(x, dk, i * a->dqk + dn), a->heads * a->dqk, shared, dr);
  rotate(x, shared, 1, dr, dr, dr, TRUE);
  ms_exec_drop(x, "d k"), ms_exec_drop(x, "d v");
}

static void rope(Exec *x) {
  Core a = core_of(x);
  gboolean back = x->row->op->pass == MS_PASS_DGRAD;
  if (!ms_model_has_mla(x->model)) rope_gqa(x, &a, back);
  else if (back) rope_mla_back(x, &a);
  else rope_mla(x, &a);
}

/* --- latents: one projection for the keys' and values' latent and the rotary part of the keys ------------------ */

static void kv_down(Exec *x) {
  const Linear *l = x->row->linear;
  gint64 kl = x->model->multi_latent_attention.kv_lora_rank, dr = x->model->multi_latent_attention.qk_pos_emb_head_dim,
         wide = kl + dr;
  void *out = ms_exec_scratch(x, x->Tsp * wide);
  x->k->gemm(&x->run, FALSE, TRUE, x->Tsp, wide, x->h, 1, ms_exec_get(x, l->in, x->Tsp * x->h), x->h,
             ms_exec_param(x, l->weight), x->h, 0, out, wide);
  ms_exec_copy(x, x->Tsp, kl, out, wide, ms_exec_new(x, "kv latent", x->Tsp * kl), kl);
  ms_exec_copy(x, x->Tsp, dr, ms_exec_at(x, out, kl), wide, ms_exec_new(x, "k rope latent", x->Tsp * dr), dr);
}

static void kv_down_dgrad(Exec *x) {
  gint64 kl = x->model->multi_latent_attention.kv_lora_rank, dr = x->model->multi_latent_attention.qk_pos_emb_head_dim,
         wide = kl + dr;
  void *d = ms_exec_new(x, "d kv down out", x->Tsp * wide);
  ms_exec_copy(x, x->Tsp, kl, ms_exec_get(x, "d kv latent", x->Tsp * kl), kl, d, wide);
  ms_exec_copy(x, x->Tsp, dr, ms_exec_get(x, "d k rope latent", x->Tsp * dr), dr, ms_exec_at(x, d, kl), wide);
  ms_exec_drop(x, "d kv latent"), ms_exec_drop(x, "d k rope latent");
  ms_exec_linear_dgrad(x);
}

static void gather_k_rope(Exec *x) { ms_exec_tp_gather(x, "k rope latent", "k rope"); }
static void sum_k_rope(Exec *x) { ms_exec_tp_sum(x, "d k rope, part", "d k rope latent", FALSE); }

/* --- the core over some of the keys ---------------------------------------------------------------------------- */

static const char *out_name(const Core *a) { return a->inner > 1 ? "attention out before a2a" : "attention out"; }
static const char *d_out_name(const Core *a) { return a->inner > 1 ? "d attention out before a2a" : "d attention out"; }

static int ring_index(const Exec *x, const Core *a) { return x->ci / a->inner; }

/* Keys and values of ring members [block, block + blocks) against the queries of this rank. */
static MsAttentionShape shape_of(Exec *x, const Core *a, int block, int blocks, gboolean sink) {
  gint64 per_rank = x->s / x->c, sq = per_rank * a->inner, sk = sq * blocks;
  gint32 *q_pos = ms_exec_scratch_B(x, sizeof *q_pos * (size_t)sq),
         *k_pos = ms_exec_scratch_B(x, sizeof *k_pos * (size_t)sk);
  ms_exec_positions(x, ring_index(x, a) * a->inner, a->inner, q_pos);
  ms_exec_positions(x, block * a->inner, a->inner * blocks, k_pos);
  MsAttentionShape s = {.batch = a->b,
                        .heads = a->heads / a->inner,
                        .kv_heads = a->kv_heads / a->inner,
                        .sq = (int)sq,
                        .sk = (int)sk,
                        .dqk = a->dqk,
                        .dv = a->dv,
                        .q_pos = q_pos,
                        .k_pos = k_pos,
                        .scale = 1 / sqrt(a->dqk)};
  if (ms_model_layer_is_windowed(x->model, x->now->layer)) s.window = x->model->sliding_window.window;
  if (sink && x->model->softmax_sink) s.sink = ms_exec_at(x, ms_exec_param(x, "sink"), x->ci % a->inner * s.heads);
  return s;
}

static int ring_rank(const Core *a, int i) { return (i % a->outer + a->outer) % a->outer; }

/* Which block of the ring k and v of the frame are: its own when they were projected, the next one's when the ring has
 * gone round. */
static gint32 *owner_of(Exec *x, const Core *a) {
  gint32 *owner = ms_exec_find(x, "kv owner");
  if (owner) return owner;
  owner = ms_exec_new_typed(x, "kv owner", 1, sizeof *owner, 0);
  *owner = ring_index(x, a);
  return owner;
}

/* What the list calls the FLOP of these pairs: a query's own key counts half (s^2 / 2 of a causal triangle), pairs of a
 * window count as they are; with a learned sink a window is masked but not skipped. The kernel multiplies whole tiles,
 * which is checked as well. */
static void count_pairs(Exec *x, const MsAttentionShape *shape, double per_pair, double counted) {
  MsAttentionShape s = *shape;
  double heads = (double)s.batch * s.heads, own = 0;
  MsAttentionPairs tiles = ms_attention_pairs(&s);
  if (!x->options->unchecked && fabs(counted - heads * per_pair * tiles.multiplied) > 0.5)
    ms_exec_fail(x, MS_ERROR_NOTHING, "FLOP: the kernel of %s counted %.17g, its tiles have %.17g", ms_exec_row_text(x),
                 counted, heads * per_pair * tiles.multiplied);
  if (x->model->softmax_sink) s.window = 0;
  if (s.window == 0) {
    guint8 *seen = ms_exec_scratch_B(x, (size_t)x->s);
    memset(seen, 0, (size_t)x->s);
    for (int i = 0; i < s.sk; i++) seen[s.k_pos[i]] = 1;
    for (int i = 0; i < s.sq; i++) own += seen[s.q_pos[i]];
  }
  double pairs = ms_attention_pairs(&s).visible - own / 2;
  x->row_flop = heads * per_pair * pairs;
}

static gboolean gathers_keys(const Exec *x) {
  return x->c > 1 && ms_cp_comm_row(x->scenario->layout.cp_comm_type)->keys == MS_CP_KEYS_ARE_GATHERED;
}

static void core_forward(Exec *x) {
  Core a = core_of(x);
  gboolean all = gathers_keys(x);
  int turn = x->row->turn, last = a.outer - 1;
  gint32 *owner = a.outer > 1 ? owner_of(x, &a) : NULL;
  int block = all ? 0 : a.outer > 1 ? ring_rank(&a, *owner - turn) : 0;
  gint64 blocks = all ? x->c : 1, lse_n = x->T * a.heads;
  MsAttentionShape s = shape_of(x, &a, block, (int)blocks, turn == 0);
  double before = x->run.flop;
  const void *q = ms_exec_get(x, "q", a.q);
  const void *k = ms_exec_get(x,
                              all    ? "k all"
                              : turn ? "ring k"
                                     : "k",
                              a.k * blocks),
             *v = ms_exec_get(x,
                              all    ? "v all"
                              : turn ? "ring v"
                                     : "v",
                              a.v * blocks);
  if (turn == 0) {
    void *o = ms_exec_new(x, out_name(&a), a.o), *lse = ms_exec_new_typed(x, "lse", lse_n, x->k->real_B, 4);
    x->k->attention_forward(&x->run, &s, q, k, v, o, lse);
  } else {
    void *o = ms_exec_scratch(x, a.o), *lse = ms_exec_scratch(x, lse_n);
    x->k->attention_forward(&x->run, &s, q, k, v, o, lse);
    x->k->attention_merge((gint64)s.sq * s.batch, s.heads, s.dv, ms_exec_get(x, out_name(&a), a.o),
                          ms_exec_get(x, "lse", lse_n), o, lse);
  }
  count_pairs(x, &s, 2.0 * (a.dqk + a.dv), x->run.flop - before);
  if (all) ms_exec_drop(x, "k all"), ms_exec_drop(x, "v all");
  if (a.outer == 1) return;
  if (turn < last) {
    ms_exec_rename(x, "ring k next", "ring k"), ms_exec_rename(x, "ring v next", "ring v");
  } else if (*owner == ring_index(x, &a)) { /* kept: what arrived last, where the way back begins */
    ms_exec_rename(x, "ring k", "k"), ms_exec_rename(x, "ring v", "v");
    *owner = ring_rank(&a, *owner + 1);
  }
}

static void core_backward(Exec *x) {
  Core a = core_of(x);
  gboolean all = gathers_keys(x);
  int turn = x->row->turn, last = a.outer - 1;
  int block = a.outer > 1 ? ring_rank(&a, *owner_of(x, &a) + turn) : 0;
  gint64 blocks = all ? x->c : 1, k_n = a.k * blocks, v_n = a.v * blocks;
  MsAttentionShape s = shape_of(x, &a, block, (int)blocks, turn == 0);
  const void *k = ms_exec_get(x,
                              all    ? "k all"
                              : turn ? "ring k"
                                     : "k",
                              k_n),
             *v = ms_exec_get(x,
                              all    ? "v all"
                              : turn ? "ring v"
                                     : "v",
                              v_n);
  const char *dk_name = all           ? "d k all"
                        : a.outer > 1 ? "ring d k"
                                      : "d k",
             *dv_name = all           ? "d v all"
                        : a.outer > 1 ? "ring d v"
                                      : "d v";
  if (turn == 0) ms_exec_fill(x, a.q, 0, ms_exec_new(x, "d q", a.q));
  if (turn == 0)
    ms_exec_fill(x, k_n, 0, ms_exec_new(x, dk_name, k_n)), ms_exec_fill(x, v_n, 0, ms_exec_new(x, dv_name, v_n));
  void *sink = s.sink ? ms_exec_at(x, ms_exec_grad(x, "sink"), x->ci % a.inner * s.heads) : NULL;
  double before = x->run.flop;
  x->k->attention_backward(&x->run, &s, ms_exec_get(x, "q", a.q), k, v, ms_exec_get(x, out_name(&a), a.o),
                           ms_exec_get(x, "lse", x->T * a.heads), ms_exec_get(x, d_out_name(&a), a.o),
                           ms_exec_get(x, "d q", a.q), ms_exec_get(x, dk_name, k_n), ms_exec_get(x, dv_name, v_n),
                           sink);
  count_pairs(x, &s, 2.0 * (3 * a.dqk + 2 * a.dv), x->run.flop - before);
  if (all) ms_exec_drop(x, "k all"), ms_exec_drop(x, "v all");
  if (a.outer > 1 && turn < last)
    ms_exec_rename(x, "ring k next", "ring k"), ms_exec_rename(x, "ring v next", "ring v");
  if (turn < last) return;
  ms_exec_drop(x, d_out_name(&a));
  if (a.outer > 1)
    ms_exec_rename(x, "ring d k", "d k"), ms_exec_rename(x, "ring d v", "d v"), ms_exec_drop(x, "ring k"),
        ms_exec_drop(x, "ring v");
}

/* --- the ring -------------------------------------------------------------------------------------------------- */

/* Forward: K and V to the next rank while attention to them runs. Backward, towards the rank before: K and V but in the
 * last hop, and from the second hop on their gradients, which follow one step behind. */
static void ring_hop(Exec *x) {
  Core a = core_of(x);
  gboolean back = x->row->op->pass == MS_PASS_DGRAD;
  int turn = x->row->turn, me = ring_index(x, &a), to = ring_rank(&a, back ? me - 1 : me + 1),
      from = ring_rank(&a, back ? me + 1 : me - 1);
  gboolean values = !back || turn + 1 < a.outer, gradients = back && turn > 0;
  gint64 kv = a.k + a.v, n = (values + gradients) * kv, at = 0;
  char *out = ms_exec_scratch(x, n), *in = ms_exec_scratch(x, n);
  if (values) {
    ms_exec_copy(x, 1, a.k, ms_exec_get(x, turn ? "ring k" : "k", a.k), 0, out, 0);
    ms_exec_copy(x, 1, a.v, ms_exec_get(x, turn ? "ring v" : "v", a.v), 0, ms_exec_at(x, out, a.k), 0);
    at = kv;
  }
  if (gradients) {
    ms_exec_copy(x, 1, a.k, ms_exec_get(x, "ring d k", a.k), 0, ms_exec_at(x, out, at), 0);
    ms_exec_copy(x, 1, a.v, ms_exec_get(x, "ring d v", a.v), 0, ms_exec_at(x, out, at + a.k), 0);
  }
  ms_comm_shift(x->comm, a.ring, to, out, from, in, n);
  ms_exec_sent(x, (double)n, 2);
  if (values) {
    ms_exec_copy(x, 1, a.k, in, 0, ms_exec_new(x, "ring k next", a.k), 0);
    ms_exec_copy(x, 1, a.v, ms_exec_at(x, in, a.k), 0, ms_exec_new(x, "ring v next", a.v), 0);
  }
  if (gradients) {
    ms_exec_copy(x, 1, a.k, ms_exec_at(x, in, at), 0, ms_exec_new(x, "ring d k", a.k), 0);
    ms_exec_copy(x, 1, a.v, ms_exec_at(x, in, at + a.k), 0, ms_exec_new(x, "ring d v", a.v), 0);
  }
}

/* --- K and V of all ranks at once ------------------------------------------------------------------------------ */

static gint64 *even(Exec *x, gint64 n, int parts) {
  gint64 *counts = ms_exec_scratch_B(x, sizeof(gint64) * (size_t)parts);
  for (int i = 0; i < parts; i++) counts[i] = n;
  return counts;
}

static void gather_kv(Exec *x) {
  Core a = core_of(x);
  ms_comm_all_gather(x->comm, MS_GROUP_CP, ms_exec_get(x, "k", a.k), ms_exec_new(x, "k all", a.k * x->c),
                     even(x, a.k, (int)x->c), 0);
  ms_comm_all_gather(x->comm, MS_GROUP_CP, ms_exec_get(x, "v", a.v), ms_exec_new(x, "v all", a.v * x->c),
                     even(x, a.v, (int)x->c), 0);
  ms_exec_sent(x, (double)((a.k + a.v) * x->c), 2);
}

static void scatter_dkv(Exec *x) {
  Core a = core_of(x);
  ms_comm_reduce_scatter(x->comm, MS_GROUP_CP, ms_exec_get(x, "d k all", a.k * x->c), ms_exec_new(x, "d k", a.k),
                         even(x, a.k, (int)x->c));
  ms_comm_reduce_scatter(x->comm, MS_GROUP_CP, ms_exec_get(x, "d v all", a.v * x->c), ms_exec_new(x, "d v", a.v),
                         even(x, a.v, (int)x->c));
  ms_exec_sent(x, (double)((a.k + a.v) * x->c), 2);
  ms_exec_drop(x, "d k all"), ms_exec_drop(x, "d v all");
}

/* --- heads for tokens ------------------------------------------------------------------------------------------ */

typedef struct {
  const char *name;
  gint64 width;
} Exchanged; /* elements of a token on this rank, all its heads */

/* to_heads: this rank's tokens with all heads -> all tokens of the group with its share of the heads; else back. */
static void exchange(Exec *x, const Core *a, const Exchanged *tensor, int n, gboolean to_heads) {
  MsGroupKind group = a->inner < x->c ? MS_GROUP_CP_INNER : MS_GROUP_CP;
  gint64 wide = 0, rows = x->T;
  for (int i = 0; i < n; i++) wide += tensor[i].width / a->inner;
  gint64 part = rows * wide;
  void *out = ms_exec_scratch(x, part * a->inner), *in = ms_exec_scratch(x, part * a->inner);
  gint64 at = 0;
  for (int i = 0; i < n; i++) { /* part j: rows x [share of each tensor] */
    gint64 w = tensor[i].width / a->inner;
    const void *from = ms_exec_get(x, tensor[i].name, rows * tensor[i].width);
    for (int j = 0; j < a->inner; j++)
      ms_exec_copy(x, rows, w, ms_exec_at(x, from, to_heads ? j * w : j * rows * w), to_heads ? tensor[i].width : w,
                   ms_exec_at(x, out, j * part + at), wide);
    at += w;
  }
  gint64 *counts = even(x, part, a->inner);
  ms_comm_all_to_all(x->comm, group, out, counts, in, counts, 0);
  ms_exec_sent(x, (double)(part * a->inner), 2);
  at = 0;
  for (int i = 0; i < n; i++) {
    gint64 w = tensor[i].width / a->inner;
    void *to = ms_exec_new(x, tensor[i].name, rows * tensor[i].width);
    for (int j = 0; j < a->inner; j++)
      ms_exec_copy(x, rows, w, ms_exec_at(x, in, j * part + at), wide,
                   ms_exec_at(x, to, to_heads ? j * rows * w : j * w), to_heads ? w : tensor[i].width);
    at += w;
  }
}

static void a2a(Exec *x, gboolean qkv, gboolean to_heads) {
  Core a = core_of(x);
  gboolean back = x->row->op->pass == MS_PASS_DGRAD;
  Exchanged three[] = {
      {back ? "d q" : "q", a.q / x->T}, {back ? "d k" : "k", a.k / x->T}, {back ? "d v" : "v", a.v / x->T}};
  Exchanged one = {back ? "d attention out" : "attention out", a.o / x->T};
  if (qkv) { /* a message each, or one for all */
    gboolean at_once = ms_framework(x->scenario)->torch_parallel;
    exchange(x, &a, at_once ? three : &three[x->row->turn], at_once ? 3 : 1, to_heads);
    return;
  }
  if (!back) ms_exec_share(x, "attention out before a2a", "attention out");
  exchange(x, &a, &one, 1, to_heads);
  if (back) ms_exec_rename(x, "d attention out", "d attention out before a2a");
}

static void a2a_in(Exec *x) { a2a(x, x->row->op->pass != MS_PASS_DGRAD, TRUE); }
static void a2a_out(Exec *x) { a2a(x, x->row->op->pass == MS_PASS_DGRAD, FALSE); }

/* --- stored scores --------------------------------------------------------------------------------------------- */

/* Heads one after another, each a matrix: [b heads][s][d], from the tokens' order and back. */
static void *by_head(Exec *x, const void *from, gint64 heads, gint64 d) {
  void *to = ms_exec_scratch(x, x->T * heads * d);
  for (gint64 i = 0; i < x->b * heads; i++)
    ms_exec_copy(x, x->s, d, ms_exec_at(x, from, i * d), x->b * heads * d, ms_exec_at(x, to, i * x->s * d), d);
  return to;
}

static void add_from_heads(Exec *x, const void *from, gint64 heads, gint64 d, gint64 share,
                           void *to) { /* `share` heads add up to one */
  gint64 width = heads / share;
  for (gint64 i = 0; i < x->b * heads; i++)
    ms_exec_add_to(x, x->s, d, ms_exec_at(x, from, i * x->s * d), d,
                   ms_exec_at(x, to, (i / heads * width + i % heads / share) * d), x->b * width * d);
}

typedef struct {
  gboolean trans_a, trans_b;
  gint64 m, n, k;
} Product;
static void products(Exec *x, const Core *a, Product p, double scale, const void *left, const void *right, gint64 share,
                     void *out) { /* `share` heads of `left` to one of `right` */
  gint64 ld_a = p.trans_a ? p.m : p.k, ld_b = p.trans_b ? p.k : p.n, heads = a->heads;
  for (gint64 i = 0; i < x->b * heads; i++) {
    gint64 r = i / heads * (heads / share) + i % heads / share;
    x->k->gemm(&x->run, p.trans_a, p.trans_b, p.m, p.n, p.k, scale, ms_exec_at(x, left, i * p.m * p.k), ld_a,
               ms_exec_at(x, right, r * p.k * p.n), ld_b, 0, ms_exec_at(x, out, i * p.m * p.n), p.n);
  }
}

static gint64 scores_n(const Exec *x, const Core *a) { return x->b * a->heads * x->s * x->s; }

static void scores(Exec *x) { /* Q K^T; back: the gradients of Q, then of K */
  Core a = core_of(x);
  gint64 share = a.heads / a.kv_heads, s = x->s;
  double scale = 1 / sqrt(a.dqk);
  const void *q = by_head(x, ms_exec_get(x, "q", a.q), a.heads, a.dqk),
             *k = by_head(x, ms_exec_get(x, "k", a.k), a.kv_heads, a.dqk);
  if (x->row->op->pass != MS_PASS_DGRAD) {
    products(x, &a, (Product){FALSE, TRUE, s, s, a.dqk}, scale, q, k, share, ms_exec_new(x, "scores", scores_n(x, &a)));
    return;
  }
  const void *d = ms_exec_get(x, "d scores", scores_n(x, &a));
  void *out = ms_exec_scratch(x, x->b * a.heads * s * a.dqk);
  gboolean of_q = x->row->turn == 0;
  if (of_q) products(x, &a, (Product){FALSE, FALSE, s, a.dqk, s}, scale, d, k, share, out);
  else products(x, &a, (Product){TRUE, FALSE, s, a.dqk, s}, scale, d, q, 1, out);
  void *to = ms_exec_new(x, of_q ? "d q" : "d k", of_q ? a.q : a.k);
  ms_exec_fill(x, of_q ? a.q : a.k, 0, to);
  add_from_heads(x, out, a.heads, a.dqk, of_q ? 1 : share, to);
  if (!of_q) ms_exec_drop(x, "d scores");
}

static void softmax(Exec *x) {
  Core a = core_of(x);
  MsAttentionShape s = shape_of(x, &a, 0, 1, TRUE);
  void *p = ms_exec_get(x, "scores", scores_n(x, &a));
  if (x->row->op->pass == MS_PASS_DGRAD)
    x->k->softmax_backward(&s, p, ms_exec_get(x, "d scores", scores_n(x, &a)), s.sink ? ms_exec_grad(x, "sink") : NULL);
  else x->k->softmax_forward(&s, p);
}

static void context(Exec *x) { /* P V; back: the gradient of P, then of V */
  Core a = core_of(x);
  gint64 share = a.heads / a.kv_heads, s = x->s;
  const void *v = by_head(x, ms_exec_get(x, "v", a.v), a.kv_heads, a.dv),
             *p = ms_exec_get(x, "scores", scores_n(x, &a));
  void *out = ms_exec_scratch(x, x->b * a.heads * s * a.dv);
  if (x->row->op->pass != MS_PASS_DGRAD) {
    void *o = ms_exec_new(x, "attention out", a.o);
    products(x, &a, (Product){FALSE, FALSE, s, a.dv, s}, 1, p, v, share, out);
    ms_exec_fill(x, a.o, 0, o);
    add_from_heads(x, out, a.heads, a.dv, 1, o);
    return;
  }
  const void *d = by_head(x, ms_exec_get(x, "d attention out", a.o), a.heads, a.dv);
  if (x->row->turn == 0) {
    products(x, &a, (Product){FALSE, TRUE, s, s, a.dv}, 1, d, v, share, ms_exec_new(x, "d scores", scores_n(x, &a)));
    return;
  }
  products(x, &a, (Product){TRUE, FALSE, s, a.dv, s}, 1, p, d, 1, out);
  void *dv = ms_exec_new(x, "d v", a.v);
  ms_exec_fill(x, a.v, 0, dv);
  add_from_heads(x, out, a.heads, a.dv, share, dv);
  ms_exec_get(x, "attention out", a.o); /* kept for the projection behind; unfused attention itself does not need it */
}

const Handler ms_exec_attention_rows[] = {{MS_OP_COPY, "qkv split", -1, PASS_F | PASS_D, qkv_split},
                                          {MS_OP_NORM, "qk norm", -1, PASS_F | PASS_D, qk_norm},
                                          {MS_OP_ROPE, "rope", -1, PASS_F | PASS_D, rope},
                                          {MS_OP_GEMM, "kv down", -1, PASS_F, kv_down},
                                          {MS_OP_GEMM, "kv down", -1, PASS_D, kv_down_dgrad},
                                          {MS_OP_ALL_GATHER, "tp gather k rope", -1, PASS_F, gather_k_rope},
                                          {MS_OP_REDUCE_SCATTER, "tp scatter k rope", -1, PASS_D, sum_k_rope},
                                          {MS_OP_ALL_REDUCE, "tp scatter k rope", -1, PASS_D, sum_k_rope},
                                          {MS_OP_ATTENTION, "attention", -1, PASS_F, core_forward},
                                          {MS_OP_ATTENTION, "attention", -1, PASS_D, core_backward},
                                          {MS_OP_P2P, "cp ring", -1, PASS_F | PASS_D, ring_hop},
                                          {MS_OP_ALL_GATHER, "cp gather kv", -1, PASS_F | PASS_D, gather_kv},
                                          {MS_OP_REDUCE_SCATTER, "cp scatter dkv", -1, PASS_D, scatter_dkv},
                                          {MS_OP_ALL_TO_ALL, "cp a2a in", -1, PASS_F | PASS_D, a2a_in},
                                          {MS_OP_ALL_TO_ALL, "cp a2a out", -1, PASS_F | PASS_D, a2a_out},
                                          {MS_OP_GEMM, "scores", -1, PASS_F | PASS_D, scores},
                                          {MS_OP_SCORES, "softmax", -1, PASS_F | PASS_D, softmax},
                                          {MS_OP_GEMM, "context", -1, PASS_F | PASS_D, context},
                                          {0}};
