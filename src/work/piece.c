/* src/work/piece.c - the pieces of a chunk: embedding, decoder layers, MTP blocks, head with its loss. */
#include "work/build.h"
#include "base/stats.h"
#include "base/err.h"
#include <math.h>
#include <string.h>

static double row_alignment(const MsScenario *s) { /* docs/theory/precision.md 4 */
  return s->options.use_transformer_engine_op_fuser ? 256 : ms_precision(&s->training)->row_align;
}

/* Rows of the busiest expert rank over the mean when the router chooses by itself. The loss that balances the experts
 * pulls them together with a force in proportion to its weight and to the imbalance, and what the model gains by
 * choosing does not depend on that weight: the imbalance goes as one over the weight. Biases that follow the loads step
 * by step (arXiv 2408.15664) keep their sum over the batch flat; what is left is that of one microbatch. Without such a
 * loss most tokens of early training choose the same ones: a share of a layer's visits goes to the same k experts,
 * which lie at random among the ranks; the others spread as with a loss of common weight. */
#define SPREAD_AT_COEFF 1e-3 /* weight of the loss that the law natural_spread is stated at */

static double natural_skew(const MsLaws *laws, const MsModel *m, const MsLayout *l) {
  if (l->ep <= 1) return 1;
  double same = ms_expected_fullest(m->num_experts, m->moe_router_topk, l->ep) * l->ep / m->moe_router_topk;
  double unbalanced = (1 - laws->unbalanced_share) * (1 + laws->natural_spread) + laws->unbalanced_share * same;
  if (m->moe_aux_loss_coeff <= 0) return MIN(unbalanced, l->ep);
  double spread = m->moe_router_enable_expert_bias ? laws->biased_spread
                                                   : laws->natural_spread * SPREAD_AT_COEFF / m->moe_aux_loss_coeff;
  return MIN(MIN(1 + spread, unbalanced), l->ep);
}

/* Grouped GEMMs that take the number of rows of each expert from the device compute those that came, not the whole
 * budget. */
static gboolean counts_on_device(const MsOptions *o) {
  return o->use_transformer_engine_op_fuser || o->fused_grouped_mlp;
}

/* With token drop: copies that a rank sends, padding included, times ETP. */
static double capacity_rows(const MsScenario *s, const MsLayout *l, double rows_sp) {
  const MsModel *m = s->model;
  const MsRouting *r = &s->training.routing;
  double capacity = ceil(rows_sp * m->moe_router_topk / m->num_experts * r->capacity_factor),
         padded = capacity * (m->num_experts / (double)l->ep) * l->ep * l->etp;
  return r->pad_to_capacity ? padded : MIN(padded, rows_sp * m->moe_router_topk * l->etp);
}

/* A capacity of F times the mean cuts what the busiest rank gets beyond that. */
static double rows_within_capacity(const MsScenario *s, const MsLayout *l, double rows_sp) {
  const MsRouting *r = &s->training.routing;
  double rows = capacity_rows(s, l, rows_sp);
  if (r->pad_to_capacity || r->forced_balance) return rows;
  double most = r->capacity_factor * rows_sp * s->model->moe_router_topk * l->etp;
  return MAX(rows, MIN(most, rows * natural_skew(&s->laws, s->model, l)));
}

static double expert_rows(const MsScenario *s, const MsLayout *l, double rows_sp) {
  const MsModel *m = s->model;
  if (m->num_experts == 0) return 0;
  const MsRouting *r = &s->training.routing;
  double balanced = rows_sp * m->moe_router_topk * l->etp;
  if (!isnan(s->options.moe_expert_rank_capacity_factor) && !counts_on_device(&s->options))
    return balanced * s->options.moe_expert_rank_capacity_factor;
  switch (r->kind) {
  case MS_ROUTING_NATURAL: return balanced * natural_skew(&s->laws, m, l);
  case MS_ROUTING_CAPACITY: return rows_within_capacity(s, l, rows_sp);
  case MS_ROUTING_BALANCED:
  case MS_ROUTING_ROUND_ROBIN:
  case MS_ROUTING_ZIPF:
  case MS_ROUTING_DIRICHLET:
  case MS_ROUTING_HISTOGRAM: break; /* drawn kinds: ms_build_drawn, layer by layer */
  }
  return balanced;
}

/* Rows whose tensors are kept. Time follows the busiest rank of each layer, but no rank is the busiest of all its
 * layers; with natural routing what a rank keeps adds up to the mean (the last ranks of Megatron-LM's functional tests
 * keep 0.9 to 1.0 of it), with drawn routing to the draw's own sum (ms_build_drawn). A budget of rows is kept whole,
 * unless it is stashed in pages. */
static double kept_rows(const MsScenario *s, const MsLayout *l, double rows_sp, double rows_expert) {
  double mean = rows_sp * s->model->moe_router_topk * l->etp;
  if (!isnan(s->options.moe_expert_rank_capacity_factor))
    return mean * (s->options.moe_paged_stash ? MIN(s->options.moe_paged_stash_buffer_size_factor_cuda,
                                                    s->options.moe_expert_rank_capacity_factor)
                                              : s->options.moe_expert_rank_capacity_factor);
  switch (s->training.routing.kind) {
  case MS_ROUTING_NATURAL: return MIN(rows_expert, mean);
  case MS_ROUTING_CAPACITY: return capacity_rows(s, l, rows_sp);
  case MS_ROUTING_BALANCED:
  case MS_ROUTING_ROUND_ROBIN:
  case MS_ROUTING_ZIPF:
  case MS_ROUTING_DIRICHLET:
  case MS_ROUTING_HISTOGRAM: break;
  }
  return rows_expert;
}

/* The router pads its map per rank and expert before an exchange of copies: the rows travel, and each expert gets as
 * many from every rank (docs/theory/precision.md 4). */
static void pad_in_router(MsBuild *b) {
  const MsOptions *o = b->options;
  if (!o->moe_router_padding_for_quantization || ms_dispatcher(o)->pads != MS_PAD_SENDER ||
      ms_precision(b->training)->bits == 16 || b->row_align <= 1)
    return;
  b->router_padding = b->model->num_experts * (b->row_align - 1) / 2;
  b->rows_routed += b->router_padding, b->rows_expert += b->router_padding * b->u,
      b->rows_kept += b->router_padding * b->u;
  b->row_align = 0;
}

void ms_build_init(MsBuild *b, const MsScenario *s, const MsLayout *l, gboolean quantized) {
  memset(b, 0, sizeof *b);
  b->scenario = s;
  b->model = s->model;
  b->layout = l;
  b->training = &s->training;
  b->options = &s->options;
  b->tip = b->join[0] = b->join[1] = -1;
  b->t = l->tp, b->c = l->cp, b->e = l->ep, b->u = l->etp;
  b->sp = l->sequence_parallel;
  b->h = s->model->hidden_size;
  b->streams = ms_model_streams(s->model);
  b->eh = s->model->moe_latent_size > 0 ? s->model->moe_latent_size : b->h;
  b->rows = (double)s->training.seq_length * s->training.micro_batch_size / b->c;
  b->rows_sp = b->sp ? b->rows / b->t : b->rows;
  b->rows_expert = expert_rows(s, l, b->rows_sp);
  b->rows_routed = b->rows_sp * s->model->moe_router_topk;
  b->rows_kept = kept_rows(s, l, b->rows_sp, b->rows_expert);
  b->local_experts = (s->model->num_experts + s->training.routing.replicas) / l->ep;
  b->shared = -1;
  if (s->training.routing.kind == MS_ROUTING_CAPACITY) b->rows_routed = capacity_rows(s, l, b->rows_sp) / b->u;
  b->act_B = 2;
  b->quantized = quantized && ms_precision(&s->training)->bits < 16;
  b->odt = ms_precision(&s->training)->operand;
  b->quant_B = ms_element_B(b->odt);
  b->row_align = row_alignment(s);
  pad_in_router(b);
}

void ms_build_drawn(MsBuild *b, double hottest, double kept) {
  gboolean budget = !isnan(b->options->moe_expert_rank_capacity_factor);
  if (!budget || counts_on_device(b->options)) b->rows_expert = (hottest + b->router_padding) * b->u;
  if (!budget) b->rows_kept = (kept + b->router_padding) * b->u;
}

static void start(MsBuild *b, MsOpList *list, MsPass pass, gboolean keeping) {
  if (b->list) b->list->tip = b->tip; /* closes the list before */
  b->list = list;
  b->tip = b->join[0] = b->join[1] = b->shared = -1;
  b->pass = pass;
  b->keeping = keeping;
  b->node = MS_NODE_ATTN;
}

/* Peak of kept + transient over a list, relative to what is kept when the list starts. */
static double list_peak_B(const MsOpList *list) {
  double now = 0, peak = 0;
  for (int i = 0; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    peak = MAX(peak, now + op->transient_B + op->keep_B);
    now += op->keep_B - op->free_B;
  }
  return peak;
}

/* With adapters they alone are trained. */
static void freeze(MsPiece *piece) {
  piece->params_frozen += piece->params_dense, piece->params_frozen_expert += piece->params_expert;
  piece->params_dense = piece->adapters_dense, piece->params_expert = piece->adapters_expert;
  piece->params_tp_replicated = 0;
}

/* Totals and transients; MS_BUG when keeps and frees do not match. */
static void seal(MsBuild *b, MsPiece *piece) {
  b->list->tip = b->tip;
  if (ms_frozen(b)) freeze(piece);
  ms_make_deterministic(b, &piece->forward);
  ms_make_deterministic(b, &piece->backward);
  double kept = 0, freed = 0;
  for (int i = 0; i < piece->forward.n; i++) kept += piece->forward.op[i].keep_B;
  for (int i = 0; i < piece->backward.n; i++) freed += piece->backward.op[i].free_B;
  if (fabs(kept - freed) > 0.5) MS_BUG("%s keeps %.0f B and frees %.0f B", piece->name, kept, freed);
  piece->forward_transient_B = MAX(0, list_peak_B(&piece->forward) - piece->kept_B);
  piece->backward_transient_B = list_peak_B(&piece->backward);
  /* what went to the host: still here while its piece works; on the way back one layer's worth, since a group of
   * tensors is fetched when the one before it has been used (docs/theory/memory.md 5; Megatron-LM
   * fine_grained_activation_offload.py) */
  piece->forward_transient_B += piece->offload_B - piece->offload_copy_B;
  piece->backward_transient_B += piece->offload_B;
}

static double tokens_of_model_replica(const MsBuild *b) { /* tokens of one microbatch: all CP ranks together */
  return (double)b->training->seq_length * b->training->micro_batch_size;
}

static void add_params(MsPiece *piece, MsPartParams p) {
  piece->params_dense += p.dense;
  piece->params_expert += p.expert;
  piece->params_quantizable_dense += p.quantizable_dense;
  piece->params_quantizable_expert += p.quantizable_expert;
  piece->params_tp_replicated += p.replicated;
}

static void replicated(MsPiece *piece, double params) { /* on every TP rank alike */
  piece->params_dense += params;
  piece->params_tp_replicated += params;
}

/* --- decoder layer --- */

static void layer_params(MsBuild *b, MsPiece *piece, int layer, guint8 mixers) {
  MsPartParams all = ms_layer_params(b->model, mixers, layer, 1, 1, 1);
  MsPartParams own = ms_layer_params(b->model, mixers, layer, b->t, b->e, b->u);
  double copies = b->model->num_experts > 0 ? 1 + (double)b->training->routing.replicas / b->model->num_experts : 1;
  own.expert *= copies, own.quantizable_expert *= copies;
  /* no copies are made of weights outside the FP8 or FP4 context (Megatron-LM core/fp8_utils.py, is_first_last_bf16) */
  if (ms_precision(b->training)->bits < 16 && !b->quantized) own.quantizable_dense = own.quantizable_expert = 0;
  add_params(piece, own);
  piece->params_model_dense += all.dense;
  piece->params_model_expert += all.expert;
}

#define CHANNELS (MS_MIX_MLP | MS_MIX_MOE) /* the second block of a layer */

static void layer_forward_rows(MsBuild *b, int layer, guint8 mixers) {
  gboolean entered = ms_enter_graph(b, mixers & ~CHANNELS);
  if (mixers & MS_MIX_MAMBA) ms_mamba_forward(b);
  if (mixers & MS_MIX_DELTA) ms_delta_forward(b);
  if (mixers & MS_MIX_ATTN) ms_attention_forward(b, layer);
  if (!entered) ms_enter_graph(b, mixers & CHANNELS);
  if (mixers & MS_MIX_MLP) ms_dense_mlp_forward(b);
  if (mixers & MS_MIX_MOE) ms_moe_forward(b);
  ms_keep_layer_graph_tensors(b, mixers);
}

static void layer_backward_rows(MsBuild *b, int layer, guint8 mixers) {
  guint8 channels = mixers & CHANNELS;
  b->node = MS_NODE_COMBINE;
  ms_reenter_graph(b, channels);
  if (mixers & MS_MIX_MOE) ms_moe_backward(b);
  if (mixers & MS_MIX_MLP) ms_dense_mlp_backward(b);
  b->node = MS_NODE_ATTN;
  if (!channels || !ms_graph_copies_input(b->options, channels)) ms_reenter_graph(b, mixers & ~CHANNELS);
  if (mixers & MS_MIX_ATTN) ms_attention_backward(b, layer);
  if (mixers & MS_MIX_DELTA) ms_delta_backward(b);
  if (mixers & MS_MIX_MAMBA) ms_mamba_backward(b);
  ms_free_graph_tensors(b);
}

static const char *mixers_name(guint8 mixers) {
  if (mixers == (MS_MIX_ATTN | MS_MIX_MOE)) return "moe";
  if (mixers == (MS_MIX_ATTN | MS_MIX_MLP)) return "dense";
  if (mixers & MS_MIX_DELTA)
    return mixers & MS_MIX_MOE ? "delta net, moe" : mixers & MS_MIX_MLP ? "delta net, dense" : "delta net";
  return mixers & MS_MIX_MAMBA ? "mamba" : mixers & MS_MIX_ATTN ? "attention" : mixers & MS_MIX_MOE ? "experts" : "mlp";
}

/* --- full recomputation --- */

typedef struct {
  void (*forward)(MsBuild *b, int layer, guint8 mixers), (*backward)(MsBuild *b, int layer, guint8 mixers);
} Region;

static const Region layer_region = {layer_forward_rows, layer_backward_rows};

/* Kept bytes of the region without checkpointing, from a throw-away piece. */
static double region_kept_B(const MsBuild *b, const Region *region, int layer, guint8 mixers) {
  MsPiece scratch = {0};
  MsBuild copy = *b;
  copy.piece = &scratch;
  copy.list = NULL;
  start(&copy, &scratch.forward, MS_PASS_FORWARD, TRUE);
  region->forward(&copy, layer, mixers);
  double kept = scratch.kept_B;
  ms_ops_clear(&scratch.forward);
  ms_ops_clear(&scratch.reload);
  g_free(scratch.kept);
  return kept;
}

/* The region once more. What its rows keep lives again from there on: beside their transients stands what was made
 * before them and `before_B`. */
static void revive(MsBuild *b, MsOpList *list, const Region *region, int layer, guint8 mixers, double before_B) {
  b->reviving = TRUE;
  region->forward(b, layer, mixers);
  b->reviving = FALSE;
  double made = before_B;
  for (int i = 0; i < list->n; i++) {
    MsOp *op = &list->op[i];
    op->pass = MS_PASS_RECOMPUTE;
    made += op->keep_B, op->keep_B = 0;
    if (op->transient_B > 0) op->transient_B += MAX(made, 0);
  }
}

/* Forward list: the region behind what stands there, of which `input_B` are kept; none by a follower in a group.
 * Backward list: the region again, and back. A group is made again before any of its layers is taken back: the last
 * one has all others alive beside it, and no other follower needs more. The kept input is the first tensor of what
 * lives again. */
static void checkpointed(MsBuild *b, MsPiece *piece, const Region *region, int layer, guint8 mixers, int group,
                         double input_B) {
  double all = region_kept_B(b, region, layer, mixers), others = (group < 0 ? (-group - 1) * all : 0) - input_B;
  b->keeping = FALSE;
  region->forward(b, layer, mixers);
  b->keeping = TRUE;
  if (group > 0) ms_keep(b, "checkpoint", input_B);
  start(b, &piece->backward, MS_PASS_RECOMPUTE, FALSE);
  revive(b, &piece->backward, region, layer, mixers, others);
  MsOp *last = &piece->backward.op[piece->backward.n - 1];
  last->transient_B = MAX(last->transient_B, all + others);
  b->pass = MS_PASS_DGRAD;
  int first = piece->backward.n;
  region->backward(b, layer, mixers);
  for (int i = first; i < piece->backward.n; i++)
    if (piece->backward.op[i].transient_B > 0) piece->backward.op[i].transient_B += all + others;
  ms_free_kept(b, "checkpoint");
}

void ms_piece_layer(MsBuild *b, MsPiece *piece, int layer, int group) {
  guint8 mixers = ms_model_mixers(b->model, layer);
  piece->kind = MS_PIECE_LAYER;
  piece->is_moe = (mixers & MS_MIX_MOE) != 0;
  b->piece = piece;
  char ratio[24] = "";
  if (ms_model_has_compressed_attention(b->model))
    g_snprintf(ratio, sizeof ratio, ", ratio %d", ms_model_compress_ratio(b->model, layer));
  g_snprintf(piece->name, sizeof piece->name, "%s layer%s%s%s", mixers_name(mixers),
             ms_model_layer_is_windowed(b->model, layer) ? ", windowed"
             : ms_model_layer_is_sparse(b->model, layer) && !ms_model_layer_has_indexer(b->model, layer)
                 ? ", shared keys"
                 : ratio,
             ms_precision(b->training)->bits < 16 && !b->quantized ? ", bf16" : "",
             group == 0  ? ""
             : group > 0 ? ", checkpointed"
                         : ", in checkpoint");
  start(b, &piece->forward, MS_PASS_FORWARD, TRUE);
  if (group != 0) {
    checkpointed(b, piece, &layer_region, layer, mixers, group, 2 * b->rows_sp * b->h * b->streams);
  } else {
    layer_forward_rows(b, layer, mixers);
    start(b, &piece->backward, MS_PASS_DGRAD, TRUE);
    layer_backward_rows(b, layer, mixers);
  }
  ms_graph_buffers(b, piece);
  layer_params(b, piece, layer, mixers);
  piece->model_flop = tokens_of_model_replica(b) * ms_flop_layer_packed(b->model, mixers, layer, &b->packing->lengths);
  seal(b, piece);
}

/* --- front end: opaque rows of stated FLOP and bytes; every tensor-parallel rank runs it whole, the context-parallel
 * ranks share its sequences --- */

static void front_end_row(MsBuild *b) {
  const MsFrontEnd *f = &b->model->front_end;
  double share = b->training->micro_batch_size / b->c;
  MsOp *op = ms_row(b, MS_OP_FRONT_END, "front end");
  op->flop = share * f->forward_flop;
  op->read_B = op->write_B = share * f->forward_B / 2;
  op->kernels = 1;
}

static void front_end_forward(MsBuild *b, MsPiece *piece) {
  const MsFrontEnd *f = &b->model->front_end;
  if (f->parameters <= 0) return;
  front_end_row(b);
  if (!f->frozen) ms_keep(b, "front end", f->kept_B * b->training->micro_batch_size / b->c);
  if (f->frozen) piece->params_frozen = f->parameters;
  else replicated(piece, f->parameters);
  piece->params_model_dense += f->parameters;
}

static void front_end_backward(MsBuild *b) {
  const MsFrontEnd *f = &b->model->front_end;
  if (f->parameters <= 0 || f->frozen) return;
  b->pass = MS_PASS_DGRAD;
  front_end_row(b);
  b->pass = MS_PASS_WGRAD;
  front_end_row(b);
  ms_free_kept(b, "front end");
}

/* --- embedding --- */

/* Gradient of the table, from the rows of all TP ranks. */
static void embedding_backward(MsBuild *b, const char *name) {
  double width = b->rows * b->h, table = (double)ms_model_padded_vocab(b->model, (int)b->t) / b->t * b->h;
  if (ms_frozen(b)) return;
  b->pass = MS_PASS_DGRAD;
  if (b->sp) ms_row_comm(b, MS_OP_ALL_GATHER, "tp gather", MS_STREAM_TP, MS_GROUP_TP, 2 * width);
  b->pass = MS_PASS_WGRAD;
  MsOp *op = ms_row_memory(b, MS_OP_EMBEDDING, name, 4 * width, 2 * width + 2 * table, 4);
  op->transient_B = 2 * table; /* the gradient of the table in BF16 */
}

/* Rows of the table are summed over tensor-parallel ranks, and scattered at once but where learned positions are added
 * to whole sequences first (Megatron-LM core/models/common/embeddings/language_model_embedding.py,
 * reduce_scatter_embeddings). The executor adds them to its part. */
static gboolean sums_whole_rows(const MsBuild *b) {
  return ms_model_learns_positions(b->model) && ms_framework(b->scenario)->launched;
}

static void embedding_sum(MsBuild *b) {
  ms_row_comm(b, b->sp && !sums_whole_rows(b) ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE, "tp scatter", MS_STREAM_TP,
              MS_GROUP_TP, 2 * b->rows * b->h);
}

void ms_piece_embedding(MsBuild *b, MsPiece *piece) {
  double width = b->rows * b->h, table = (double)ms_model_padded_vocab(b->model, (int)b->t) / b->t * b->h;
  gboolean learned = ms_model_learns_positions(b->model);
  piece->kind = MS_PIECE_EMBEDDING;
  b->piece = piece;
  b->module = MS_MODULE_EMBEDDING;
  g_strlcpy(piece->name, "embedding", sizeof piece->name);
  start(b, &piece->forward, MS_PASS_FORWARD, TRUE);
  front_end_forward(b, piece);
  ms_row_memory(b, MS_OP_EMBEDDING, "embedding", 2 * width + 8 * b->rows, 2 * width, 4);
  embedding_sum(b);
  double added = (sums_whole_rows(b) ? b->rows : b->rows_sp) * b->h;
  if (learned) ms_row_memory(b, MS_OP_ADD, "position add", 4 * added, 2 * added, 2);
  if (b->model->hidden_dropout > 0) ms_keep_input(b, "embedding dropout mask", b->rows_sp * b->h);
  ms_streams_expand(b, FALSE);
  start(b, &piece->backward, MS_PASS_DGRAD, TRUE);
  ms_streams_expand(b, TRUE);
  embedding_backward(b, "embedding");
  ms_free_kept(b, "embedding dropout mask");
  front_end_backward(b);
  double positions = learned ? MAX(b->model->seq_length_max, b->training->seq_length) * b->h
                             : 0; /* a table covers at least the sequence */
  piece->params_dense += table + positions;
  piece->params_tp_replicated += positions;
  piece->params_model_dense += table * b->t + positions;
  seal(b, piece);
}

/* --- head and loss --- */

static MsLinear head_linear(const MsBuild *b) {
  double vocab = (double)ms_model_padded_vocab(b->model, (int)b->t) / b->t;
  return (MsLinear){.name = "head",
                    .kind = MS_LINEAR_COLUMN,
                    .m = b->rows,
                    .n = vocab,
                    .k = b->h,
                    .comm_in = "tp gather",
                    .comm_out = "",
                    .low = b->options->fp8_output_proj,
                    .fused_accumulate = TRUE,
                    .model_flop = TRUE};
}

/* Name of a tensor of the i-th pass through the head: the main one, then one for each MTP block. */
static const char *head_name(const char *tensor, int i) {
  if (i == 0) return tensor;
  g_autofree char *name = g_strdup_printf("%s %d", tensor, i + 1);
  return g_intern_string(name);
}

/* What a loss does, in bytes a logit, forward and backward (docs/theory/memory.md 2). */
typedef struct {
  MsOpKind kind;
  double read_B[2], write_B[2], beside_B[2];
  double kept_B;     /* from its forward pass to the end of its backward pass */
  double gradient_B; /* of the logits, beside what is kept, while the head's products read it */
  int kernels[2];
} Loss;

/* TransformerEngine's kernels (triton/cross_entropy.py until July 2026): BF16 logits are read for the softmax and again
 * for the gradient, which is written over them; backward scales it in place. They stream whole rows as elementwise
 * kernels do. */
static const Loss te_loss = {
    .kind = MS_OP_CROSS_ENTROPY_TE, .read_B = {4, 2}, .write_B = {2, 2}, .kept_B = 2, .kernels = {3, 3}};
/* PyTorch's cross_entropy, compiled: rows are read for their maximum and for the sum, both are kept, and the gradient
 * is made of the BF16 logits in one kernel, which are then free (torchtitan components/loss.py; torch/_inductor keeps
 * no FP32 copy). */
static const Loss compiled_loss = {.kind = MS_OP_CROSS_ENTROPY,
                                   .read_B = {4, 2},
                                   .write_B = {0, 2},
                                   .beside_B = {0, 2},
                                   .kept_B = 2,
                                   .kernels = {3, 3}};

/* The native loss keeps an FP32 softmax and has a BF16 copy beside it on both ways. Compiled ("fused"), it cannot work
 * in place: one more FP32 tensor. PyTorch's own has gradients of log-softmax and of its input beside what it gave; over
 * tensor-parallel ranks both are one product of a sum (torch/distributed/tensor/parallel/loss.py). */
static Loss native_loss(const MsBuild *b) {
  const MsFrameworkRow *f = ms_framework(b->scenario);
  gboolean fused = b->options->cross_entropy_fusion, low = f->low_loss;
  double merged = fused ? b->scenario->laws.compiled_loss_bytes : 1, beside = fused ? 6 : 2;
  Loss loss = {.kind = MS_OP_CROSS_ENTROPY,
               .read_B = {(low ? 6 : 16) * merged, (low ? 6 : 8) * merged},
               .write_B = {(low ? 2 : 14) * merged, (low ? 4 : 6) * merged},
               .beside_B = {MAX(beside, f->forward_logits_B), beside},
               .kept_B = 4,
               .gradient_B = 2,
               .kernels = {10, 4}};
  if (f->plain_loss && !fused) loss.beside_B[1] = low ? 4 : b->t > 1 ? 12 : 8;
  return loss;
}

static Loss loss_of(const MsBuild *b) {
  if (!b->options->cross_entropy_fusion) return native_loss(b);
  switch (b->options->cross_entropy_fusion_impl) {
  case MS_CE_NATIVE: break;
  case MS_CE_TE: return te_loss;
  }
  return ms_framework(b->scenario)->plain_loss ? compiled_loss : native_loss(b);
}

static void loss_rows(MsBuild *b, const Loss *loss, double logits, gboolean back) {
  MsOp *op = ms_row_memory(b, loss->kind, "cross entropy", loss->read_B[back] * logits, loss->write_B[back] * logits,
                           loss->kernels[back]);
  op->m = b->rows, op->n = logits / b->rows;
  op->transient_B = loss->beside_B[back] * logits;
  if (!back) {
    MsOp *max = ms_row_comm(b, MS_OP_ALL_REDUCE, "tp loss max", MS_STREAM_TP, MS_GROUP_TP, 4 * b->rows);
    if (max) max->dtype = MS_ODT_FP32;
    MsOp *sum = ms_row_comm(b, MS_OP_ALL_REDUCE, "tp loss sum", MS_STREAM_TP, MS_GROUP_TP, 8 * b->rows);
    if (sum) sum->dtype = MS_ODT_FP32;
  }
}

/* Both ends of the model stand on one device: without a pipeline, in V schedules, in DualPipe. A tied table is there
 * once, with the embedding. */
static gboolean ends_meet(const MsBuild *b) {
  switch (ms_schedule_row(b->scenario->layout.schedule)->placement) {
  case MS_PLACE_ROUND_ROBIN: break;
  case MS_PLACE_V:
  case MS_PLACE_BIDIRECTIONAL: return TRUE;
  }
  return b->layout->pp == 1;
}

void ms_piece_head(MsBuild *b, MsPiece *piece) {
  MsLinear head = head_linear(b);
  const Loss loss = loss_of(b);
  double logits = head.m * head.n, x = b->rows_sp * b->h;
  int copies = 1 + b->model->mtp_num_layers; /* MTP sends its hidden states through the same head again */
  piece->kind = MS_PIECE_HEAD;
  b->piece = piece;
  b->module = MS_MODULE_HEAD;
  g_strlcpy(piece->name, "head", sizeof piece->name);
  start(b, &piece->forward, MS_PASS_FORWARD, TRUE);
  for (int i = 0; i < copies; i++) {
    if (i == 0) {
      ms_streams_join(b, FALSE);
      if (b->streams > 1) ms_keep(b, "head streams", 2 * x * b->streams);
      ms_norm_forward(b, "final norm", b->rows_sp, b->h);
      ms_keep(b, head_name("final norm in", i), ms_norm_saved_B(b, x));
    }
    ms_linear_forward(b, &head);
    ms_keep_input(b, head_name("final norm out", i), 2 * x);
    loss_rows(b, &loss, logits, FALSE);
    ms_keep(b, head_name("logits", i), loss.kept_B * logits);
  }
  if (b->options->check_for_nan_in_loss_and_grad && b->list->n > 0) b->list->op[b->list->n - 1].flags |= MS_OPF_SYNC;
  start(b, &piece->backward, MS_PASS_DGRAD, TRUE);
  for (int i = copies - 1; i >= 0; i--) {
    b->pass = MS_PASS_DGRAD;
    loss_rows(b, &loss, logits, TRUE);
    double dx =
        2 * b->rows * b->h * (b->t > 1 && b->sp ? 2 : 1); /* dX, and the gathered input when sequence parallel */
    int first = b->list->n;
    ms_linear_backward(b, &head);
    for (int j = first; j < b->list->n; j++)
      if (b->list->op[j].kind == MS_OP_GEMM) b->list->op[j].transient_B = dx + loss.gradient_B * logits;
    ms_free_kept(b, head_name("logits", i));
    ms_free_kept(b, head_name("final norm out", i));
    if (i == 0) {
      ms_norm_backward(b, "final norm", b->rows_sp, b->h);
      ms_streams_join(b, TRUE);
      ms_free_kept(b, "head streams");
      ms_free_kept(b, head_name("final norm in", i));
    }
  }
  double table = head.n * b->h;
  piece->params_dense = b->model->tie_embeddings && ends_meet(b) ? 0 : table;
  replicated(piece, ms_norm_params(b->model, b->h) + ms_hyper_head_params(b->model));
  piece->params_model_dense =
      (b->model->tie_embeddings ? 0 : table * b->t) + ms_norm_params(b->model, b->h) + ms_hyper_head_params(b->model);
  piece->model_flop = tokens_of_model_replica(b) * 2 * b->h * ms_model_padded_vocab(b->model, 1) * copies;
  seal(b, piece);
}

/* --- new scales of the delayed recipe: behind the layers of a chunk, forward and back, the maxima of all tensors of
 * the rank are brought together, agreed on by whoever sees other rows or other columns, and appended to their
 * histories, the scales set anew: one kernel each, in line with everything else (TransformerEngine pytorch/fp8.py,
 * reduce_and_update_fp8_tensors; histories of 1024 maxima, as NVIDIA's recipes have them) --- */

enum { HISTORY = 1024 };

static void scale_rows(MsBuild *b, double maxima) {
  MsGroupKind agree = b->options->tp_only_amax_red ? MS_GROUP_TP_CP : MS_GROUP_TP_DP_CP;
  ms_row_memory(b, MS_OP_AMAX, "maxima together", 4 * maxima, 4 * maxima, 1);
  MsOp *op = ms_row_comm(b, MS_OP_ALL_REDUCE, "maxima agreed", MS_STREAM_TP, agree, 4 * maxima);
  if (op) op->dtype = MS_ODT_FP32;
  ms_row_memory(b, MS_OP_AMAX, "new scales", 4 * HISTORY * maxima, 4 * HISTORY * maxima, 1);
}

void ms_piece_scales(MsBuild *b, MsPiece *piece, double products) {
  piece->kind = MS_PIECE_SCALES;
  b->piece = piece;
  b->module = MS_MODULE_STEP;
  g_strlcpy(piece->name, "scales", sizeof piece->name);
  start(b, &piece->forward, MS_PASS_FORWARD, TRUE);
  scale_rows(b, 3 * products); /* of inputs, weights and outputs */
  start(b, &piece->backward, MS_PASS_DGRAD, TRUE);
  scale_rows(b, 2 * products);
  seal(b, piece);
}

/* --- MTP block: two norms, a projection of both, one decoder layer of the last layer's type, a final norm. With
 * several residual streams the projection of the embedding is apart from that of the hidden states, which runs for each
 * stream. --- */

typedef struct {
  MsLinear both, embedding, hidden;
} MtpProjections;

/* The projection in front of an MTP block's layer is in the FP8 context; there is none for FP4 (Megatron-LM
 * core/transformer/multi_token_prediction.py, _proj_and_transformer_layer). */
static gboolean mtp_projects_low(const MsBuild *b) { return b->quantized && ms_precision(b->training)->bits == 8; }

static MsLinear mtp_linear(const MsBuild *b, const char *name, double rows, double k) {
  return (MsLinear){.name = name,
                    .kind = MS_LINEAR_COLUMN,
                    .m = rows,
                    .n = b->h / b->t,
                    .k = k,
                    .comm_in = "tp gather",
                    .comm_out = "",
                    .low = mtp_projects_low(b),
                    .layer = TRUE,
                    .fused_accumulate = TRUE,
                    .model_flop = TRUE};
}

static MtpProjections mtp_projections(const MsBuild *b) {
  return (MtpProjections){mtp_linear(b, "eh proj", b->rows, 2 * b->h), mtp_linear(b, "e proj", b->rows, b->h),
                          mtp_linear(b, "h proj", b->streams * b->rows, b->h)};
}

static void mtp_project(MsBuild *b, double x) {
  MtpProjections p = mtp_projections(b);
  if (b->streams <= 1) {
    ms_row_memory(b, MS_OP_COPY, "mtp concat", 4 * x, 4 * x, 1);
    ms_keep(b, "mtp concat", ms_input_B(b, 2 * x, p.both.low));
    ms_linear_forward(b, &p.both);
  } else {
    ms_keep(b, "mtp concat", ms_input_B(b, (1 + b->streams) * x, p.both.low));
    ms_linear_forward(b, &p.embedding);
    ms_linear_forward(b, &p.hidden);
    ms_row_memory(b, MS_OP_STREAM_MIX, "embedding to streams", 2 * x * (1 + b->streams), 2 * x * b->streams, 1);
  }
  ms_row_comm(b, MS_OP_ALL_GATHER, "tp gather out", MS_STREAM_TP, MS_GROUP_TP, 2 * b->rows * b->h * b->streams);
}

static void mtp_project_backward(MsBuild *b) {
  MtpProjections p = mtp_projections(b);
  if (b->streams <= 1) {
    ms_linear_backward(b, &p.both);
  } else {
    double x = b->rows_sp * b->h;
    ms_row_memory(b, MS_OP_STREAM_MIX, "embedding to streams", 2 * x * b->streams, 2 * x, 1);
    ms_linear_backward(b, &p.hidden);
    ms_linear_backward(b, &p.embedding);
  }
}

static void mtp_forward_rows(MsBuild *b, int layer, guint8 mixers) {
  double x = b->rows_sp * b->h;
  b->module = MS_MODULE_MTP;
  ms_norm_forward(b, "mtp embedding norm", b->rows_sp, b->h);
  ms_norm_forward(b, "mtp hidden norm", b->streams * b->rows_sp, b->h);
  ms_keep(b, "mtp norm inputs", 2 * x * (1 + b->streams));
  mtp_project(b, x);
  /* the layer's input is this rank's part of the gathered tensor, which stays whole (Megatron-LM
   * core/tensor_parallel/mappings.py, _split_along_first_dim: a view) */
  if (b->sp && b->t > 1) ms_keep(b, "mtp gathered", 2 * (b->rows - b->rows_sp) * b->h * b->streams);
  layer_forward_rows(b, layer, mixers);
  ms_streams_join(b, FALSE);
  if (b->streams > 1) ms_keep(b, "mtp streams", 2 * x * b->streams);
  b->module = MS_MODULE_MTP;
  ms_norm_forward(b, "mtp final norm", b->rows_sp, b->h);
  ms_keep(b, "mtp final norm in", 2 * x);
}

static void mtp_backward_rows(MsBuild *b, int layer, guint8 mixers) {
  ms_norm_backward(b, "mtp final norm", b->rows_sp, b->h);
  ms_free_kept(b, "mtp final norm in");
  ms_streams_join(b, TRUE);
  ms_free_kept(b, "mtp streams");
  layer_backward_rows(b, layer, mixers);
  ms_free_kept(b, "mtp gathered");
  b->module = MS_MODULE_MTP;
  b->pass = MS_PASS_DGRAD;
  /* every rank needs its columns of all rows again */
  if (b->sp)
    ms_row_comm(b, MS_OP_ALL_GATHER, "tp gather out", MS_STREAM_TP, MS_GROUP_TP, 2 * b->rows * b->h * b->streams);
  mtp_project_backward(b);
  ms_free_kept(b, "mtp concat");
  b->pass = MS_PASS_DGRAD;
  ms_norm_backward(b, "mtp hidden norm", b->streams * b->rows_sp, b->h);
  ms_norm_backward(b, "mtp embedding norm", b->rows_sp, b->h);
  ms_free_kept(b, "mtp norm inputs");
}

static const Region mtp_region = {mtp_forward_rows, mtp_backward_rows};

void ms_piece_mtp(MsBuild *b, MsPiece *piece) {
  int layer = b->model->num_layers; /* past the decoder */
  guint8 mixers = ms_model_mtp_mixers(b->model);
  double x = b->rows_sp * b->h;
  piece->kind = MS_PIECE_MTP;
  piece->is_moe = (mixers & MS_MIX_MOE) != 0;
  b->piece = piece;
  g_strlcpy(piece->name, "mtp block", sizeof piece->name);
  start(b, &piece->forward, MS_PASS_FORWARD, TRUE);
  b->module = MS_MODULE_MTP;
  ms_row_memory(b, MS_OP_EMBEDDING, "mtp embedding", 2 * b->rows * b->h, 2 * b->rows * b->h, 4);
  embedding_sum(b);
  if (b->options->recompute.granularity ==
      MS_RECOMPUTE_FULL) { /* on its own, whatever the method and how many layers (multi_token_prediction.py) */
    checkpointed(b, piece, &mtp_region, layer, mixers, 1, 2 * x * (1 + b->streams));
  } else {
    mtp_forward_rows(b, layer, mixers);
    start(b, &piece->backward, MS_PASS_DGRAD, TRUE);
    mtp_backward_rows(b, layer, mixers);
  }
  embedding_backward(b, "mtp embedding"); /* the word embedding learns from both of its readers */
  ms_graph_buffers(b, piece);
  layer_params(b, piece, layer, mixers);
  double proj_params = 2 * b->h * b->h / b->t;
  piece->params_dense += proj_params;
  piece->params_quantizable_dense += mtp_projects_low(b) || ms_precision(b->training)->bits == 16 ? proj_params : 0;
  double norms = 3 * ms_norm_params(b->model, b->h) + ms_hyper_head_params(b->model);
  replicated(piece, norms);
  piece->params_model_dense += 2 * b->h * b->h + norms;
  piece->model_flop =
      tokens_of_model_replica(b) * (ms_flop_layer_packed(b->model, mixers, layer, &b->packing->lengths) +
                                    (b->model->hybrid_layer_pattern ? 0 : 2 * (3 * b->h + 2 * b->h * b->h)));
  seal(b, piece);
}

void ms_piece_without_params(MsPiece *piece) {
  piece->params_dense = piece->params_expert = piece->params_quantizable_dense = piece->params_quantizable_expert = 0;
  piece->params_tp_replicated = piece->params_model_dense = piece->params_model_expert = 0;
  g_strlcpy(piece->name, "mtp block, shared", sizeof piece->name);
}
