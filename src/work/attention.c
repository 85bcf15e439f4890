/* src/work/attention.c - rows of the attention block, GQA and MLA, with every way of context parallelism
 * (docs/theory/operators.md 3.1, 3.2). */
#include "work/build.h"
#include <math.h>

typedef struct {
  double q, k, v;         /* widths per token on this rank: query, key, value */
  double heads, kv_heads; /* on this rank */
  double dqk, dv;
  double kv_wire; /* K and V elements per token that context parallelism moves */
} Widths;

static gboolean llama_layers(const MsBuild *b) {
  return ms_framework(b->scenario)->llama_layers && !ms_model_has_mla(b->model);
}

static Widths widths(const MsBuild *b) {
  const MsModel *m = b->model;
  Widths w = {.heads = m->num_attention_heads / b->t};
  if (ms_model_has_mla(m)) {
    const MsMla *a = &m->multi_latent_attention;
    w.dqk = a->qk_head_dim + a->qk_pos_emb_head_dim, w.dv = a->v_head_dim;
    w.kv_heads = w.heads;
  } else {
    w.dqk = w.dv = m->kv_channels;
    w.kv_heads = MAX(m->num_query_groups / b->t, 1);
  }
  w.q = w.heads * w.dqk, w.k = w.kv_heads * w.dqk, w.v = w.kv_heads * w.dv;
  w.kv_wire = llama_layers(b) ? w.heads * (w.dqk + w.dv) : w.k + w.v;
  return w;
}

/* MindSpeed's Ulysses copies keys and values to every head where a TP rank has fewer of them than CP has ranks, and
 * exchanges the copies (Ascend/MindSpeed core/context_parallel/ulysses_context_parallel/ulysses_context_parallel.py).
 */
static gboolean repeats_keys(const MsBuild *b, const Widths *w) {
  return b->c > w->kv_heads && ms_cp_comm_row(b->scenario->layout.cp_comm_type)->heads == MS_CP_HEADS_AMONG_ALL;
}

static Widths in_core(const MsBuild *b, Widths w) {
  if (!repeats_keys(b, &w)) return w;
  w.kv_heads = w.heads, w.k = w.heads * w.dqk, w.v = w.heads * w.dv;
  w.kv_wire = w.k + w.v;
  return w;
}

/* Copies of keys and values for each head, backward the sums of their gradients. */
static void repeat_row(MsBuild *b, const Widths *w) {
  double own = 2 * b->rows * (w->k + w->v), all = 2 * b->rows * w->heads * (w->dqk + w->dv);
  gboolean back = b->pass == MS_PASS_DGRAD;
  if (all > own) ms_row_memory(b, MS_OP_COPY, "repeat keys", back ? all : own, back ? own : all, 2);
}

/* --- the core --- */

typedef struct {
  const MsBuild *b;
  int layer;
} PairsOf;

static double pairs_of_length(double s, const void *data) { /* query-key pairs per query token of a whole sequence */
  const PairsOf *of = data;
  const MsBuild *b = of->b;
  /* with a learned sink the fused kernels mask the window but do not skip its blocks: inferred from all published
   * GPT-OSS runs */
  return b->model->softmax_sink ? s / 2 : ms_model_pairs(b->model, of->layer, s);
}

static double pairs(const MsBuild *b, int layer, const MsPackPart *part) {
  PairsOf of = {b, layer};
  double mean = ms_packing_mean(&b->packing->lengths, part->first, part->last, pairs_of_length, &of);
  return ms_packing_busiest(b->packing, mean, pairs_of_length(b->packing->whole, &of));
}

/* FP8 kernels have no learned sink: such models stay at BF16. */
static gboolean fp8_core(const MsBuild *b) {
  return b->options->fp8_dot_product_attention && b->quantized && !b->model->softmax_sink;
}

/* One attention row over `share` of the rank's work; backward recomputes the scores: five products, 3 dqk + 2 dv
 * against dqk + dv. */
static void core_row(MsBuild *b, const Widths *w, int layer, const MsPackPart *part, double share, double heads,
                     double m, double n) {
  share *= part->tokens;
  gboolean back = b->pass == MS_PASS_DGRAD;
  double per_pair = 2 * heads * (back ? 3 * w->dqk + 2 * w->dv : w->dqk + w->dv);
  double rank_queries = b->rows * w->heads / heads; /* heads x queries is the same however they are split */
  double qkv_B = 2 * b->rows * (w->q + w->k + w->v + w->heads * w->dv) * share;
  MsOp *op = ms_row(b, MS_OP_ATTENTION, "attention");
  op->flop = per_pair * rank_queries * pairs(b, layer, part) * share;
  op->m = m, op->n = n, op->k = w->dqk + w->dv;
  op->groups = (int)MAX(part->sequences * heads, 1);
  op->kv_groups = (int)MAX(part->sequences * MAX(1, heads * w->kv_heads / w->heads), 1);
  op->read_B = (back ? 2.0 : 0.75) * qkv_B;
  op->write_B = (back ? 1.0 : 0.25) * qkv_B + 4 * b->rows * w->heads * share;
  op->flags |= MS_OPF_MODEL_FLOP;
  op->kernels = back ? 6 : 4;
  if (fp8_core(b)) op->dtype = MS_ODT_FP8, op->read_B *= 0.5;
}

/* TransformerEngine makes the causal mask anew in front of every softmax, by plain operators over s x s integers
 * (pytorch/dot_product_attention/utils.py, get_full_mask, v2.2): bytes for each place of it, and kernels. */
static const struct {
  double read, write;
  int kernels;
} full_mask = {42, 39, 11};

/* Scores stored: QK^T, softmax (with its mask and dropout), PV, each over all n x s x s scores of the rank. */
static void core_unfused(MsBuild *b, const Widths *w, int layer) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double s = b->training->seq_length, mb = b->training->micro_batch_size;
  double scores = mb * w->heads * s * (s / b->c);
  int products = back ? 2 : 1;
  (void)layer;
  for (int side = 0; side < 2; side++) {
    for (int i = 0; i < products; i++) {
      MsOp *op = ms_row(b, MS_OP_GEMM, side == (back ? 1 : 0) ? "scores" : "context");
      double d = side == (back ? 1 : 0) ? w->dqk : w->dv;
      op->m = s / b->c, op->n = s, op->k = d, op->groups = (int)(mb * w->heads);
      op->flop = 2 * scores * d;
      op->read_B = 2 * (scores + mb * w->heads * s * d);
      op->write_B = 2 * mb * w->heads * s * d;
      op->flags |= MS_OPF_MODEL_FLOP;
    }
    if (side == 0) {
      double pass_B = 2 * scores;
      gboolean drop = b->model->attention_dropout > 0;
      MsOp *op = ms_row_memory(b, MS_OP_SCORES, "softmax", (back ? 2 : 1) * pass_B + (drop ? 1.5 * pass_B : 0),
                               pass_B + (drop ? 1.5 * pass_B : 0), drop ? 3 : 2);
      op->m = scores / s, op->n = s;
      if (!back && b->options->transformer_impl == MS_IMPL_TE) {
        op->read_B += full_mask.read * s * s, op->write_B += full_mask.write * s * s;
        op->kernels += (guint16)ceil(full_mask.kernels * b->scenario->laws.plain_operators);
      }
      op->transient_B = 2 * scores; /* forward the products that it reads, backward the gradient that it overwrites */
    }
  }
}

static double ring_hop_B(const MsBuild *b, const Widths *w, const MsPackPart *part) {
  return 2 * b->rows * w->kv_wire * part->tokens;
}

/* TransformerEngine's ring puts the outputs of its steps together when all are there, and adds up gradients of queries,
 * keys and values step by step (pytorch/attention/dot_product_attention/context_parallel.py). The last rank, whose
 * queries see the keys of every step, has most: a first output scaled, the others scaled and added; backward gradients
 * of queries copied and added whole, of keys and values by halves but for the last step. */
static void ring_merge(MsBuild *b, const Widths *w, const MsPackPart *part, int steps) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double tokens = b->rows * part->tokens, out = tokens * w->heads * w->dv, q = tokens * w->q,
         kv = tokens * (w->k + w->v), more = steps - 1;
  if (steps < 2 || ms_framework(b->scenario)->torch_parallel) return;
  if (!back)
    ms_row_passing(b, MS_OP_ADD, "merge of ring steps", (2 + 4 * more) * out, (2 + 2 * more) * out, 2 * steps - 1);
  else
    ms_row_passing(b, MS_OP_ADD, "sums of ring steps", (2 + 4 * more) * q + (1 + 2 * (more - 1) + 4) * kv,
                   (2 + 2 * more) * q + (1 + (more - 1) + 2) * kv, 3 * steps);
}

/* Keys and values go into one buffer, forward by a concatenation, backward by a copy of it. */
static void ring_buffer(MsBuild *b, double kv_B) {
  if (!ms_framework(b->scenario)->torch_parallel) ms_row_passing(b, MS_OP_COPY, "keys together", kv_B, kv_B, 1);
}

/* Per-tensor scaled keys and values go round, or are gathered, in a byte. Their gradients do not go round with them,
 * but all at once beside the last step (context_parallel.py, AttnFuncWithCPAndKVP2P.backward). */
static gboolean low_kv(const MsBuild *b) { return fp8_core(b) && ms_precision(b->training)->per_tensor; }

/* Messages of a step, in hops: forward keys and values, backward with their gradients where there are some. */
static double hops_of(gboolean back, gboolean low, int i, int steps) {
  if (low || !back) return i + 1 < steps ? 1 : 0;
  return i == 0 || i + 1 == steps ? 1 : 2;
}

/* Ring: c steps of equal work (zig-zag slices); the message of step i travels while step i-1 computes. Backward moves
 * KV and dKV: 2 (c-1) messages in all, c hops (docs/theory/communication.md 3). */
static void core_ring(MsBuild *b, const Widths *w, int layer, const MsPackPart *part, int steps, MsGroupKind group,
                      double heads) {
  gboolean back = b->pass == MS_PASS_DGRAD, low = low_kv(b);
  double local = part->length / steps, hop_B = ring_hop_B(b, w, part) / (low ? 2 : 1);
  int arrived = -1;
  if (steps > 1) ring_buffer(b, hop_B);
  for (int i = 0; i < steps; i++) {
    int next = -1;
    double hops = hops_of(back, low, i, steps);
    gboolean at_once = back && low && steps > 1 && i + 1 == steps;
    if (hops > 0 || at_once) {
      if (arrived >= 0) ms_join(b, arrived);
      MsOp *op = at_once ? ms_row_comm_async(b, MS_OP_ALL_TO_ALL, "cp a2a dkv", MS_STREAM_CP, group, steps * hop_B)
                         : ms_row_comm_async(b, MS_OP_P2P, "cp ring", MS_STREAM_CP, group, hops * hop_B);
      if (op) next = ms_row_index(b, op);
      if (op && !at_once) op->kernels = 2; /* the host sends and receives by a call each */
      b->join[0] = b->join[1] = -1;
    }
    if (arrived >= 0) ms_join(b, arrived);
    core_row(b, w, layer, part, 1.0 / steps, heads, local, local);
    arrived = next;
  }
  if (back) ms_join(b, arrived);
  ring_merge(b, w, part, steps);
}

static gboolean stores_scores(const MsBuild *b) { return ms_framework_stores_scores(b->scenario); }

/* Hybrid context parallelism: sequences of each length on as many ranks as they need. */
static void core_hybrid(MsBuild *b, const Widths *w, int layer) {
  for (int i = 0; i < b->packing->n; i++) {
    const MsPackPart *part = &b->packing->part[i];
    if (part->ranks == 1) core_row(b, w, layer, part, 1, w->heads, part->length, part->length);
    else core_ring(b, w, layer, part, part->ranks, part->ranks <= b->c ? MS_GROUP_CP : MS_GROUP_DP_CP, w->heads);
  }
}

/* PyTorch's ring over gathered keys (_templated_ring_attention): each block but that of the own tokens is merged into
 * the FP32 output, half of them into half of its rows; backward adds up the gradients of queries, keys and values in
 * FP32, and those of keys and values go on to the next rank with every block. Passes are those of compiled code: one
 * reads what is added and what was there, and writes the sum; every collective is waited for where it is issued
 * (_maybe_wrap_tensor of torch/distributed/_functional_collectives.py). */
static void core_merged(MsBuild *b, const Widths *w, int layer, const MsPackPart *part, double heads, double kv_B) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double c = b->c, local = part->length / c, out = b->rows * w->heads * w->dv * part->tokens;
  double kept = back ? b->rows * (w->q + w->kv_wire) * part->tokens : out; /* elements that every block is added to */
  ms_row_comm(b, MS_OP_ALL_GATHER, "cp gather kv", MS_STREAM_CP, MS_GROUP_CP, kv_B);
  core_row(b, w, layer, part, 1, heads, local, local);
  ms_row_memory(b, MS_OP_ADD, "merge of blocks", (c - 1) * 5.5 * kept, (c - 1) * 4 * kept, (int)c - 1);
  if (back) ms_row_comm(b, MS_OP_P2P, "cp ring dkv", MS_STREAM_CP, MS_GROUP_CP, 2 * kv_B);
}

/* Tensors of one exchange of heads, bytes of each. */
enum { MOST_EXCHANGED = 3 };
static int exchanged(const MsBuild *b, const Widths *w, gboolean in, double tensor_B[MOST_EXCHANGED]) {
  gboolean three = in != (b->pass == MS_PASS_DGRAD), low = fp8_core(b) && (in || ms_precision(b->training)->delayed);
  double token_B = (low ? 1 : 2) * b->rows;
  int n = 0;
  if (!three) {
    tensor_B[n++] = token_B * w->heads * w->dv;
    return n;
  }
  tensor_B[n++] = token_B * w->q, tensor_B[n++] = token_B * w->k, tensor_B[n++] = token_B * w->v;
  return n;
}

/* One message for all of them, or one after another. */
static void exchange_alone(MsBuild *b, const char *name, MsGroupKind group, const double *tensor_B, int n) {
  gboolean at_once = ms_framework(b->scenario)->torch_parallel;
  double all_B = 0;
  for (int i = 0; i < n; i++) {
    all_B += tensor_B[i];
    if (at_once && i + 1 < n) continue;
    ms_row_comm(b, MS_OP_ALL_TO_ALL, name, MS_STREAM_CP, group, at_once ? all_B : tensor_B[i]);
  }
}

/* Heads for tokens in front of attention, and back: TransformerEngine puts each tensor into the order of the ranks,
 * sends it by a message of its own, beside the pass of the next one, and puts what came into the order of the sequence
 * (context_parallel.py, flash_attn_a2a_communicate). FP8 attention exchanges what it reads, with delayed scaling what
 * it writes, too, in a byte. */
static void exchange_heads(MsBuild *b, const Widths *w, MsGroupKind group, gboolean in) {
  const char *name = in ? "cp a2a in" : "cp a2a out";
  double tensor_B[MOST_EXCHANGED];
  int n = exchanged(b, w, in, tensor_B), sent[MOST_EXCHANGED];
  if (ms_framework(b->scenario)->torch_parallel || ms_serial(b)) { /* no passes */
    exchange_alone(b, name, group, tensor_B, n);
    return;
  }
  for (int i = 0; i < n; i++) {
    ms_row_passing(b, MS_OP_COPY, "heads by rank", tensor_B[i], tensor_B[i], 1);
    sent[i] = ms_row_index(b, ms_row_comm_async(b, MS_OP_ALL_TO_ALL, name, MS_STREAM_CP, group, tensor_B[i]));
  }
  for (int i = 0; i < n; i++) {
    ms_join(b, sent[i]);
    ms_row_passing(b, MS_OP_COPY, "tokens in order", tensor_B[i], tensor_B[i], 1);
  }
}

/* Keys and values by a message each, then into the order of the sequence. A rank has two pieces of it, whose outputs,
 * and gradients of queries, are put together; gradients of keys and values of both are added to zeros, brought into the
 * order of the ranks and scattered (context_parallel.py, AttnFuncWithCPAndKVAllGather). */
static void core_gathered(MsBuild *b, const Widths *w, int layer, const MsPackPart *part, double heads, double kv_B) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double tokens = b->rows * part->tokens, out_B = 2 * tokens * w->heads * w->dv, q_B = 2 * tokens * w->q,
         s = part->length, added = (2 * b->c + 1) / (2 * b->c); /* of all keys, by the two pieces */
  double gathered_B = kv_B / (low_kv(b) ? 2 : 1);
  MsOp *gather = ms_row_comm(b, MS_OP_ALL_GATHER, "cp gather kv", MS_STREAM_CP, MS_GROUP_CP, gathered_B);
  gather->kernels = 2;
  ms_row_passing(b, MS_OP_COPY, "keys in order", gathered_B, gathered_B, 2);
  core_row(b, w, layer, part, 1, heads, s / b->c, s);
  b->list->op[b->list->n - 1].transient_B = (back ? 3 : 1) * kv_B;
  if (!back) {
    ms_row_passing(b, MS_OP_COPY, "pieces together", out_B, 2 * out_B, 3);
    return;
  }
  ms_row_passing(b, MS_OP_ADD, "sums of gathered keys", (2 * added + 1) * kv_B + q_B, (added + 2) * kv_B + q_B, 10);
  ms_row_comm(b, MS_OP_REDUCE_SCATTER, "cp scatter dkv", MS_STREAM_CP, MS_GROUP_CP, kv_B)->kernels = 2;
}

/* Context-parallel ranks: heads exchanged for tokens among `inner` of them; keys and values of the tokens that are
 * still elsewhere go round, or are gathered before attention and their gradients scattered after it. */
static void core_over_ranks(MsBuild *b, const Widths *w, int layer, const MsPackPart *part) {
  double inner = b->layout->cp_inner, heads = w->heads / inner, kv_B = ring_hop_B(b, w, part) * b->c;
  MsGroupKind group = inner < b->c ? MS_GROUP_CP_INNER : MS_GROUP_CP;
  if (inner > 1) exchange_heads(b, w, group, TRUE);
  switch (ms_cp_comm_row(b->scenario->layout.cp_comm_type)->keys) {
  case MS_CP_KEYS_STAY: core_row(b, w, layer, part, 1, heads, part->length, part->length); break;
  case MS_CP_KEYS_GO_ROUND:
    if (inner < b->c)
      core_ring(b, w, layer, part, (int)(b->c / inner), inner > 1 ? MS_GROUP_CP_OUTER : MS_GROUP_CP, heads);
    else core_row(b, w, layer, part, 1, heads, part->length, part->length);
    break;
  case MS_CP_KEYS_ARE_GATHERED:
    (ms_framework(b->scenario)->torch_parallel ? core_merged : core_gathered)(b, w, layer, part, heads, kv_B);
    break;
  }
  if (inner > 1) exchange_heads(b, w, group, FALSE);
}

static void core(MsBuild *b, const Widths *w, int layer) {
  const MsPackPart *part = &b->packing->part[0];
  double s = part->length;
  if (stores_scores(b)) {
    core_unfused(b, w, layer);
    return;
  }
  if (b->options->hybrid_context_parallel) {
    core_hybrid(b, w, layer);
    return;
  }
  if (b->c <= 1) {
    const MsSlidingWindow *window = &b->model->sliding_window;
    double seen = ms_model_layer_is_windowed(b->model, layer) ? MIN(s, window->window) : s;
    core_row(b, w, layer, part, 1, w->heads, window->chunked ? seen : s, seen);
    return;
  }
  core_over_ranks(b, w, layer, part);
}

/* Casts in front of an FP8 core: q, k, v forward, dO backward; one copy each. */
static void core_casts(MsBuild *b, double width) {
  if (!fp8_core(b)) return;
  MsOp *op = ms_row_memory(b, MS_OP_QUANTIZE, "quantize attention input", 2 * b->rows * width, b->rows * width, 1);
  op->m = b->rows, op->n = width, op->dtype = MS_ODT_FP8;
}

/* The projection keeps what attention gives, attention too (Megatron-LM core/transformer/attention.py,
 * _checkpointed_attention_forward, makes it again): the same tensor, unless heads are exchanged behind it or it comes
 * batch first, as flash attention works, and is copied for the projection. */
static void keep_core_out(MsBuild *b, const Widths *w) {
  double out_B = 2 * b->rows * w->heads * w->dv;
  gboolean exchanged = b->c > 1 && b->layout->cp_inner > 1;
  gboolean turned = ms_attn_backends[b->options->attention_backend].batch_first && b->training->micro_batch_size > 1 &&
                    !ms_framework(b->scenario)->batch_first;
  ms_keep(b, "attention out", out_B);
  if (ms_recomputes(b->options, MS_RM_CORE_ATTN)) return;
  if (exchanged) ms_keep(b, "attention out before a2a", out_B);
  if (turned) ms_keep(b, "attention out, batch first", out_B);
  if (!exchanged && !turned && !stores_scores(b)) ms_send_copy(b, MS_OM_CORE_ATTN, out_B);
}

static void core_forward(MsBuild *b, const Widths *own, int layer) {
  const Widths all = in_core(b, *own), *w = &all;
  if (repeats_keys(b, own)) repeat_row(b, own);
  core_casts(b, w->q + w->k + w->v);
  core(b, w, layer);
  gboolean keep_qkv = !(ms_model_has_mla(b->model) && ms_recomputes(b->options, MS_RM_MLA_UP_PROJ));
  gboolean drops = ms_recomputes(b->options, MS_RM_CORE_ATTN);
  double qkv_B = (fp8_core(b) ? 1 : 2) * b->rows * (w->q + w->k + w->v);
  if (ms_by_operators(b)) ms_keep(b, "q, v", 2 * b->rows * (w->q + w->v)); /* the first and third product */
  else if (keep_qkv) ms_keep(b, "qkv", qkv_B);
  else ms_send_copy(b, MS_OM_CORE_ATTN, qkv_B);
  keep_core_out(b, w);
  if (stores_scores(b)) {
    double scores =
        b->training->micro_batch_size * w->heads * (double)b->training->seq_length * (b->training->seq_length / b->c);
    /* softmax; with dropout also its mask and the scores that it leaves */
    if (!drops) ms_keep(b, "scores", (b->model->attention_dropout > 0 ? 5 : 2) * scores);
  } else if (!drops) {
    ms_keep(b, "lse", 4 * b->rows * w->heads);
  }
}

static void core_backward(MsBuild *b, const Widths *own, int layer) {
  const Widths all = in_core(b, *own), *w = &all;
  gboolean again = ms_recomputes(b->options, MS_RM_CORE_ATTN);
  if (again) {
    b->pass = MS_PASS_RECOMPUTE;
    if (repeats_keys(b, own)) repeat_row(b, own);
    core(b, w, layer);
  }
  b->pass = MS_PASS_DGRAD;
  core_casts(b, w->heads * w->dv);
  core(b, w, layer);
  if (repeats_keys(b, own)) repeat_row(b, own);
  ms_free_kept(b, "qkv");
  ms_free_kept(b, "q, v");
  ms_free_kept(b, "attention out");
  ms_free_kept(b, "attention out before a2a");
  ms_free_kept(b, "attention out, batch first");
  ms_free_kept(b, "scores");
  ms_free_kept(b, "lse");
}

/* --- linears --- */

/* Outputs of the fused projection on this rank: its columns are split evenly, through a group where TP has more ranks
 * than there are groups. */
static MsLinear lin_qkv(const MsBuild *b, const Widths *w) {
  double gate = b->model->attention_output_gate ? w->q : 0, k = b->model->num_query_groups * w->dqk / b->t;
  if (b->model->query_latent_size > 0) return ms_linear_of("kv", MS_LINEAR_COLUMN, b->rows, 2 * k, b->h);
  MsLinear l = ms_linear_of("qkv", MS_LINEAR_COLUMN, b->rows, w->q + gate + 2 * k, b->h);
  l.fused_norm = TRUE;
  l.part[0] = w->q + gate, l.part[1] = l.part[2] = k;
  return l;
}

/* With fewer groups than ranks each rank takes its heads, and keys and values of their group, from the gathered
 * columns of all (Megatron-LM core/transformer/attention.py, get_query_key_value_tensors). */
static void whole_qkv_row(MsBuild *b, const MsLinear *qkv) {
  if (b->model->num_query_groups >= b->t) return;
  gboolean back = b->pass == MS_PASS_DGRAD;
  ms_row_comm(b, back ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_GATHER, back ? "tp scatter qkv" : "tp gather qkv",
              MS_STREAM_TP, MS_GROUP_TP, 2 * qkv->m * qkv->n * b->t);
}
static MsLinear lin_out(const MsBuild *b, const Widths *w) {
  MsLinear l = ms_linear_of("attention out", MS_LINEAR_ROW, b->rows, b->h, w->heads * w->dv);
  l.input_kept = !b->model->attention_output_gate && !fp8_core(b); /* the backward of attention reads it */
  return l;
}

typedef struct {
  double read, write;
} Bytes;

/* The fused kernels of latent attention turn the rotary columns of the queries where they lie, and put keys and values
 * together from what was projected; backward the gradients go the same ways back (Megatron-LM
 * core/fusions/fused_mla_yarn_rope_apply.py). */
static Bytes fused_rope_B(const MsBuild *b, const Widths *w) {
  const MsMla *a = &b->model->multi_latent_attention;
  double all = 2 * b->rows * (w->q + w->k), rotary = a->qk_pos_emb_head_dim,
         read = 2 * b->rows * w->heads * (rotary + a->qk_head_dim + a->v_head_dim),
         write = read + 2 * b->rows * w->heads * rotary;
  if (!ms_model_has_mla(b->model)) return (Bytes){all, all};
  return b->pass == MS_PASS_DGRAD ? (Bytes){write, read} : (Bytes){read, write};
}

static void split_row(MsBuild *b, const Widths *w) {
  if (llama_layers(b)) { /* q, k and v are products of their own: nothing to split */
    repeat_row(b, w);
    return;
  }
  double pair = 2 * b->rows * (w->k + w->v), split = pair + 2 * b->rows * (b->model->query_latent_size > 0 ? 0 : w->q);
  if (ms_framework(b->scenario)->pairs_keys) /* nanotron models/llama.py: cat, permute; their backward, and unbind's */
    split += pair + (b->pass == MS_PASS_DGRAD ? split : pair);
  ms_row_memory(b, MS_OP_COPY, "qkv split", split, split, 2);
}

static void head_norm_row(MsBuild *b, const Widths *w) {
  double elements = b->rows * (w->q + w->k);
  if (!b->model->qk_layernorm) return;
  MsOp *op = ms_row_memory(b, MS_OP_NORM, "qk norm", (b->pass == MS_PASS_DGRAD ? 4 : 2) * elements, 2 * elements, 2);
  op->m = elements / w->dqk, op->n = w->dqk;
}

static gboolean complex_latent(const MsBuild *b) {
  return ms_framework(b->scenario)->llama_layers && ms_model_has_mla(b->model);
}

/* TorchTitan's latent attention (v0.2.2, models/deepseek_v3/model/model.py): the rotary columns of queries and of one
 * key pass complex numbers, 10 bytes read and 10 written; they are put together with the others, keys for every head.
 * Backward the same ways, the key's gradients summed over the heads, those of keys and values put together, and those
 * of both latents' split. Eager concatenations move what was rotated once more. */
static void complex_latent_rope(MsBuild *b, const Widths *w) {
  const MsMla *a = &b->model->multi_latent_attention;
  gboolean back = b->pass == MS_PASS_DGRAD;
  double dr = a->qk_pos_emb_head_dim, heads = w->heads, rotary = (heads + 1) * dr, rest = heads * a->qk_head_dim,
         again = b->options->torch_compile ? 0 : heads * dr, /* queries */
      read = back ? rest + heads * (a->qk_head_dim + a->v_head_dim + dr) + a->kv_lora_rank : 2 * rest,
         write = back ? rest + heads * (a->qk_head_dim + a->v_head_dim) + a->kv_lora_rank : 2 * rest + heads * dr;
  ms_row_memory(b, MS_OP_ROPE, "rope", b->rows * (10 * rotary + 2 * (read + again)),
                b->rows * (10 * rotary + 2 * (write + again)), back ? 10 : 8);
}

static void rope_row(MsBuild *b, const Widths *w) {
  if (!ms_model_rotates(b->model)) return;
  if (complex_latent(b)) complex_latent_rope(b, w);
  else if (!b->options->apply_rope_fusion && ms_model_has_mla(b->model))
    ms_row_plain_rope(b, b->rows * (w->heads + 1) * b->model->multi_latent_attention.qk_pos_emb_head_dim,
                      b->rows * (w->q + w->k + w->v));
  else if (!b->options->apply_rope_fusion) ms_row_plain_rope(b, b->rows * (w->q + w->k), 0);
  else if (llama_layers(b)) /* to FP32, product of complex numbers, to BF16: of queries and of keys */
    ms_row_memory(b, MS_OP_ROPE, "rope", 10 * b->rows * (w->q + w->k), 10 * b->rows * (w->q + w->k), 6);
  else ms_row_memory(b, MS_OP_ROPE, "rope", fused_rope_B(b, w).read, fused_rope_B(b, w).write, 2);
}

/* Split, per-head norm, rotary, and back in the opposite order: memory bound, the same bytes both ways. */
static void shape_rows(MsBuild *b, const Widths *w) {
  static void (*const row[])(MsBuild *, const Widths *) = {split_row, head_norm_row, rope_row};
  for (int i = ms_model_has_mla(b->model) ? 2 : 0; i < 3; i++)
    row[b->pass == MS_PASS_DGRAD && !ms_model_has_mla(b->model) ? 2 - i : i](b, w);
}

/* Backward needs both factors; the projection keeps the product (Megatron-LM core/transformer/attention.py,
 * _apply_output_gate), in BF16 but for delayed scaling, which quantises it in a copy of its own
 * (set_save_original_input there). */
static void output_gate(MsBuild *b, const Widths *w) {
  double x = 2 * b->rows * w->q;
  gboolean back = b->pass == MS_PASS_DGRAD, copied = b->quantized && ms_precision(b->training)->delayed;
  if (!b->model->attention_output_gate) return;
  ms_row_memory(b, MS_OP_ACTIVATION, "output gate", (back ? 3 : 2) * x, (back ? 2 : 1) * x, 1);
  if (back) {
    ms_free_kept(b, "output gate");
    ms_free_kept(b, "gated attention out");
    return;
  }
  ms_keep(b, "output gate", x);
  if (!copied) ms_keep_input(b, "gated attention out", x);
}

/* --- GQA --- */

/* Step-3's queries (arXiv 2507.19427, multi-matrix factorisation): down to a latent on every rank, its norm, up to the
 * rank's heads. */
typedef struct {
  MsLinear down, up;
  double width;
} QueryLatent;

static QueryLatent query_latent(const MsBuild *b, const Widths *w) {
  double ql = b->model->query_latent_size;
  QueryLatent q = {ms_linear_of("q down", MS_LINEAR_PLAIN, b->rows_sp, ql, b->h),
                   ms_linear_of("q up", MS_LINEAR_COLUMN, b->rows, w->q, ql), ql};
  q.up.fused_norm = TRUE;
  return q;
}

static void query_latent_forward(MsBuild *b, const Widths *w) {
  QueryLatent q = query_latent(b, w);
  if (q.width == 0) return;
  ms_linear_forward(b, &q.down);
  ms_keep(b, "latents", 2 * b->rows_sp * q.width);
  ms_norm_forward(b, "q latent norm", b->rows_sp, q.width);
  ms_linear_forward(b, &q.up);
  ms_keep_input(b, "normed latents", ms_input_B(b, b->rows_sp * q.width, TRUE));
}

static void query_latent_backward(MsBuild *b, const Widths *w) {
  QueryLatent q = query_latent(b, w);
  if (q.width == 0) return;
  ms_linear_backward(b, &q.up);
  ms_norm_backward(b, "q latent norm", b->rows_sp, q.width);
  ms_free_kept(b, "normed latents");
  ms_linear_backward(b, &q.down);
  ms_free_kept(b, "latents");
}

static void gqa_forward(MsBuild *b, const Widths *w) {
  MsLinear qkv = lin_qkv(b, w);
  query_latent_forward(b, w);
  ms_linear_forward(b, &qkv);
  whole_qkv_row(b, &qkv);
  shape_rows(b, w);
  if (b->model->qk_layernorm && !ms_by_operators(b)) ms_keep(b, "qk norm in", 2 * b->rows * (w->q + w->k));
}

static void gqa_backward(MsBuild *b, const Widths *w) {
  b->pass = MS_PASS_DGRAD;
  shape_rows(b, w);
  ms_free_kept(b, "qk norm in");
  MsLinear qkv = lin_qkv(b, w);
  whole_qkv_row(b, &qkv);
  ms_linear_backward(b, &qkv);
  query_latent_backward(b, w);
}

/* --- MLA --- */

typedef struct {
  MsLinear q_down, kv_down, q_up, kv_up;
  gboolean low_rank_q, normed_q;
  double ql, kl, dr;
  double q_in; /* what the query projection reads: the latent, or the layer's input itself */
} Mla;

static Mla mla_parts(const MsBuild *b, const Widths *w) {
  const MsMla *a = &b->model->multi_latent_attention;
  Mla p = {.low_rank_q = a->q_lora_rank > 0, .ql = a->q_lora_rank, .kl = a->kv_lora_rank, .dr = a->qk_pos_emb_head_dim};
  double dn = a->qk_head_dim;
  p.q_in = p.low_rank_q ? p.ql : b->h;
  p.normed_q = p.low_rank_q || ms_model_norms_query_input(b->model);
  p.q_down = ms_linear_of("q down", MS_LINEAR_PLAIN, b->rows_sp, p.ql, b->h);
  p.kv_down = ms_linear_of("kv down", MS_LINEAR_PLAIN, b->rows_sp, p.kl + p.dr, b->h);
  p.q_up = ms_linear_of("q up", MS_LINEAR_COLUMN, b->rows, w->heads * w->dqk, p.q_in);
  p.kv_up = ms_linear_of("kv up", MS_LINEAR_COLUMN, b->rows, w->heads * (dn + w->dv), p.kl);
  p.q_up.fused_norm = p.normed_q, p.kv_up.fused_norm = TRUE;
  return p;
}

static void mla_up(MsBuild *b, const Widths *w,
                   const Mla *p) { /* from latents to q, k, v: what `mla_up_proj` recomputes */
  if (p->normed_q) ms_norm_forward(b, "q latent norm", b->rows_sp, p->q_in);
  ms_linear_forward(b, &p->q_up);
  ms_norm_forward(b, "kv latent norm", b->rows_sp, p->kl);
  ms_linear_forward(b, &p->kv_up);
  shape_rows(b, w);
}

static void mla_forward(MsBuild *b, const Widths *w) {
  Mla p = mla_parts(b, w);
  gboolean again = ms_recomputes(b->options, MS_RM_MLA_UP_PROJ);
  if (p.low_rank_q) ms_linear_forward(b, &p.q_down);
  ms_linear_forward(b, &p.kv_down);
  /* `mla_up_proj` keeps its inputs: the latents, views of what was projected with the rotary columns, and the latter
   * gathered (Megatron-LM core/transformer/multi_latent_attention.py) */
  double gathered = b->sp && b->t > 1 ? b->rows * p.dr : 0;
  ms_keep(b, "latents", 2 * (b->rows_sp * (p.ql + p.kl + (again ? p.dr : 0)) + (again ? gathered : 0)));
  if (b->sp) ms_row_comm(b, MS_OP_ALL_GATHER, "tp gather k rope", MS_STREAM_TP, MS_GROUP_TP, 2 * b->rows * p.dr);
  mla_up(b, w, &p);
  if (!again) ms_keep_input(b, "normed latents", ms_input_B(b, b->rows_sp * ((p.normed_q ? p.q_in : 0) + p.kl), TRUE));
}

static void mla_backward(MsBuild *b, const Widths *w) {
  Mla p = mla_parts(b, w);
  b->pass = MS_PASS_DGRAD;
  shape_rows(b, w);
  ms_linear_backward(b, &p.kv_up);
  ms_norm_backward(b, "kv latent norm", b->rows_sp, p.kl);
  ms_linear_backward(b, &p.q_up);
  if (p.normed_q) ms_norm_backward(b, "q latent norm", b->rows_sp, p.q_in);
  ms_free_kept(b, "normed latents");
  /* every TP rank has the gradient of its own heads */
  ms_row_comm(b, b->sp ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE, "tp scatter k rope", MS_STREAM_TP, MS_GROUP_TP,
              2 * b->rows * p.dr);
  ms_linear_backward(b, &p.kv_down);
  if (p.low_rank_q) ms_linear_backward(b, &p.q_down);
  ms_free_kept(b, "latents");
}

/* --- the block --- */

/* What the projections keep of the normed input y (docs/theory/memory.md 2 and 3). MLA and a latent of the queries feed
 * two linears: two quantised copies; the second is instead BF16 where it is the input of a norm. */
static double normed_input_B(const MsBuild *b) {
  double elements = b->rows_sp * b->h;
  int linears = b->quantized && b->model->query_latent_size > 0 ? 2 : 1;
  if (!ms_model_has_mla(b->model))
    return ms_inputs_recomputed(b) || ms_by_operators(b) ? 0 : linears * ms_input_B(b, elements, TRUE);
  gboolean recomputed = ms_recomputes(b->options, MS_RM_LAYERNORM);
  if (recomputed || ms_inputs_recomputed(b)) return 0;
  if (b->quantized && ms_model_norms_query_input(b->model)) return ms_input_B(b, elements, TRUE) + 2 * elements;
  return (b->quantized ? 2 : 1) * ms_input_B(b, elements, TRUE);
}

/* Blocks whose rows are in files of their own; the norm before them and the residual stream are as for the others. */
typedef void (*Block)(MsBuild *b, int layer);
static Block own_block(const MsBuild *b, int layer, gboolean back) {
  if (ms_model_has_compressed_attention(b->model)) return back ? ms_compressed_backward : ms_compressed_forward;
  return ms_model_layer_is_sparse(b->model, layer) ? back ? ms_sparse_backward : ms_sparse_forward : NULL;
}

/* The block between its norm and what it adds to the residual stream. */
static void own_forward(MsBuild *b, int layer, Block block) {
  double x = b->rows_sp * b->h;
  /* two quantised copies for the down projections, and the BF16 tensor for what stays in BF16 */
  if (!ms_recomputes(b->options, MS_RM_LAYERNORM) && !ms_inputs_recomputed(b))
    ms_keep(b, "normed input", (b->quantized ? 2 * ms_input_B(b, x, TRUE) : 0) + 2 * x);
  block(b, layer);
}

static void plain_forward(MsBuild *b, int layer) {
  Widths w = widths(b);
  ms_keep_input(b, "normed input", normed_input_B(b));
  if (ms_model_has_mla(b->model)) mla_forward(b, &w);
  else gqa_forward(b, &w);
  core_forward(b, &w, layer);
  output_gate(b, &w);
  MsLinear out = lin_out(b, &w);
  ms_linear_forward(b, &out);
  /* every recipe but delayed scaling keeps the BF16 tensor that attention keeps anyway */
  if (b->quantized && ms_precision(b->training)->delayed)
    ms_keep_input(b, "attention out, quantised", b->quant_B * b->rows * w.heads * w.dv);
  if (ms_by_operators(b) && b->t > 1) ms_keep(b, "attention sum", 2 * b->rows_sp * b->h);
}

void ms_attention_forward(MsBuild *b, int layer) {
  Block own = own_block(b, layer, FALSE);
  b->module = MS_MODULE_ATTN;
  b->node = MS_NODE_ATTN;
  ms_residual_in(b, MS_HALF_ATTENTION);
  ms_norm_forward(b, "input norm", b->rows_sp, b->h);
  if (!ms_inputs_recomputed(b)) ms_keep(b, "layer input", ms_norm_saved_B(b, b->rows_sp * b->h));
  if (own) own_forward(b, layer, own);
  else plain_forward(b, layer);
  ms_residual_out(b, MS_HALF_ATTENTION, 1);
  if (!own && b->model->hidden_dropout > 0) ms_keep(b, "attention dropout mask", b->rows_sp * b->h);
}

/* Second and fourth product of a layer and what lies around them; the sum over tensor-parallel ranks is kept. */
static void recompute_operators(MsBuild *b, const Widths *w) {
  MsLinear key = ms_linear_of("key", MS_LINEAR_COLUMN, b->rows, w->k, b->h), out = lin_out(b, w);
  key.fused_norm = TRUE;
  out.kind = MS_LINEAR_PLAIN;
  b->pass = MS_PASS_RECOMPUTE;
  ms_norm_forward(b, "input norm", b->rows_sp, b->h);
  ms_linear_forward(b, &key);
  shape_rows(b, w);
  ms_linear_forward(b, &out);
  ms_residual_out(b, MS_HALF_ATTENTION, 1);
  b->pass = MS_PASS_DGRAD;
}

static void recompute_attention_inputs(MsBuild *b, const Widths *w) {
  if (ms_by_operators(b)) recompute_operators(b, w);
  if (b->options->recompute.granularity != MS_RECOMPUTE_SELECTIVE || !ms_model_has_mla(b->model)) return;
  guint32 modules = b->options->recompute.modules;
  b->pass = MS_PASS_RECOMPUTE;
  if (modules & MS_RM_LAYERNORM) ms_norm_forward(b, "input norm", b->rows_sp, b->h);
  if (modules & MS_RM_MLA_UP_PROJ) {
    Mla p = mla_parts(b, w);
    mla_up(b, w, &p);
  }
  b->pass = MS_PASS_DGRAD;
}

static void own_backward(MsBuild *b, int layer, Block block) {
  if (ms_recomputes(b->options, MS_RM_LAYERNORM))
    b->pass = MS_PASS_RECOMPUTE, ms_norm_forward(b, "input norm", b->rows_sp, b->h);
  block(b, layer);
}

static void plain_backward(MsBuild *b, int layer) {
  Widths w = widths(b);
  MsLinear out = lin_out(b, &w);
  ms_linear_backward(b, &out);
  ms_free_kept(b, "attention out, quantised");
  ms_free_kept(b, "attention dropout mask");
  ms_free_kept(b, "attention sum");
  output_gate(b, &w);
  recompute_attention_inputs(b, &w);
  core_backward(b, &w, layer);
  if (ms_model_has_mla(b->model)) mla_backward(b, &w);
  else gqa_backward(b, &w);
}

void ms_attention_backward(MsBuild *b, int layer) {
  Block own = own_block(b, layer, TRUE);
  b->module = MS_MODULE_ATTN;
  b->node = MS_NODE_ATTN;
  b->pass = MS_PASS_DGRAD;
  ms_residual_out_backward(b, MS_HALF_ATTENTION);
  if (own) own_backward(b, layer, own);
  else plain_backward(b, layer);
  ms_free_kept(b, "normed input");
  ms_norm_backward(b, "input norm", b->rows_sp, b->h);
  /* queries and the latent of keys and values are products of the same input: their gradients are added, too */
  ms_residual_in_backward(b, MS_HALF_ATTENTION, !own && ms_model_has_mla(b->model) ? 2 : 1);
  ms_free_kept(b, "layer input");
}
