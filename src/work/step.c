/* src/work/step.c - rows that run once per step: zeroing, gradient reduction, norm, optimizer, parameter gather
 * (docs/theory/communication.md 1, 7; docs/theory/operators.md 8). */
#include "work/build.h"
#include "work/matrices.h"
#include <math.h>
#include <string.h>

typedef struct {
  MsBuild b;
  const MsWork *work;
  const MsOptions *o;
  double grad_B; /* main gradient */
  double wire_B; /* gradient on the wire */
  double expert_wire_B;
  double low_B; /* parameter gather on the wire: of a weight that is kept in low precision; others 2 */
  double shard, expert_shard;
  gboolean shards_gradients, shards_params; /* FSDP: reduced and gathered around every pass, see ms_work_unit_ops */
  gboolean gathers_units;
  double tensors, expert_tensors; /* of the stage's parameters, once they are found */
} Step;

double ms_work_shards(const MsWork *work, gboolean expert) {
  const MsLayout *l = work->layout;
  const MsOptions *o = &work->scenario->options;
  if (!o->distributed_optimizer && o->fsdp == MS_FSDP_NONE) return 1;
  double ranks = expert ? l->edp : (double)l->dp * l->cp, instances = o->num_distributed_optimizer_instances;
  switch (o->outer_dp_sharding_strategy) {
  case MS_OUTER_NO_SHARD: break;
  case MS_OUTER_OPTIM: instances = 1; break;
  }
  ranks *= ms_schedule_row(work->scenario->layout.schedule)->copies;
  return MAX(1, ranks / MAX(1, instances));
}

double ms_work_states_B(const MsWork *work, int stage, const MsStageParams *p) {
  const MsOptions *o = &work->scenario->options;
  double shards = ms_work_shards(work, FALSE), expert_shards = ms_work_shards(work, TRUE);
  double bytes = ms_optimizer_state_B(work->scenario) *
                 ((p->params_dense + p->embedding_copy) / shards + p->params_expert / expert_shards);
  if (ms_optimizer_matrix_second(work->scenario->training.optimizer)) return bytes;
  double matrix_dense, matrix_expert;
  ms_work_matrix_params(work, stage, &matrix_dense, &matrix_expert);
  return bytes - ms_dtype_B(o->exp_avg_sq_dtype) * (matrix_dense / shards + matrix_expert / expert_shards);
}

/* Optimizer shards: dense over DP x CP, experts over EDP (docs/theory/memory.md 1.1). */
static Step step_new(const MsWork *work) {
  Step s = {.work = work, .o = &work->scenario->options};
  ms_build_init(&s.b, work->scenario, work->layout, TRUE);
  s.b.module = MS_MODULE_STEP;
  s.b.pass = MS_PASS_OPTIMIZER;
  s.grad_B = ms_dtype_B(s.o->main_grads_dtype);
  s.wire_B = ms_dtype_B(s.o->grad_reduce_dtype);
  s.expert_wire_B = ms_expert_reduce_B(s.o);
  s.low_B = ms_gathers_low(work->scenario) ? ms_precision(s.b.training)->gathered_B : 2;
  s.shard = ms_work_shards(work, FALSE);
  s.expert_shard = ms_work_shards(work, TRUE);
  s.shards_gradients = s.o->fsdp >= MS_FSDP_OPTIM_GRADS;
  s.shards_params = s.o->fsdp >= MS_FSDP_OPTIM_GRADS_PARAMS;
  s.gathers_units = s.shards_params || ms_unit_gathers(work->scenario) == MS_GATHERS_DROPPED;
  if (s.gathers_units && ms_gathers_low(work->scenario) && ms_framework(work->scenario)->sums_once)
    s.low_B = MIN(s.low_B, 1); /* no buffer of gradients in between (casts_in_pass) */
  return s;
}

static gboolean stage_has_table(const MsWork *work, int stage) {
  for (int c = 0; c < work->layout->vpp; c++)
    if (ms_work_has_table(work, ms_layout_chunk(work->layout, stage, c))) return TRUE;
  return FALSE;
}

/* What is reduced and gathered together, and of it the weights that are stored in low precision: parameters of each
 * type have a buffer of their own (Megatron-LM core/distributed/param_and_grad_buffer.py, group_params_for_buffers). */
typedef struct {
  double dense, expert, low_dense, low_expert;
} Params;

static void add_piece(Params *sum, const MsPiece *piece) {
  sum->dense += piece->params_dense, sum->expert += piece->params_expert;
  if (piece->params_frozen + piece->params_frozen_expert > 0) return; /* adapters are not quantised */
  sum->low_dense += piece->params_quantizable_dense, sum->low_expert += piece->params_quantizable_expert;
}

static Params chunk_params(const MsWork *work, int stage, int c) {
  const MsChunk *chunk = ms_layout_chunk(work->layout, stage, c);
  Params sum = {0};
  for (int i = 0; i < ms_work_chunk_length(work, chunk); i++)
    add_piece(&sum, &work->pieces[ms_work_chunk_piece(work, chunk, i)]);
  if (chunk->num_mtp > 0 && !stage_has_table(work, stage)) /* its own copy of the word embedding */
    sum.dense += (double)work->padded_vocab / work->layout->tp * work->scenario->model->hidden_size;
  return sum;
}

static Params stage_params(const MsWork *work, int stage) {
  Params sum = {0};
  for (int c = 0; c < work->layout->vpp; c++) {
    Params p = chunk_params(work, stage, c);
    sum.dense += p.dense, sum.expert += p.expert, sum.low_dense += p.low_dense, sum.low_expert += p.low_expert;
  }
  return sum;
}

/* All weights of a piece, trained or frozen. */
static Params unit_params(const MsPiece *piece) {
  return (Params){piece->params_dense + piece->params_frozen, piece->params_expert + piece->params_frozen_expert,
                  piece->params_quantizable_dense, piece->params_quantizable_expert};
}

static void list_to(Step *s, MsOpList *list) {
  s->b.list = list;
  s->b.tip = s->b.join[0] = s->b.join[1] = -1;
}

static gboolean sharded_optimizer(const Step *s) { return s->o->distributed_optimizer || s->o->fsdp != MS_FSDP_NONE; }

/* A rank gets its shard of the sum alone. */
static gboolean scatters(const Step *s) {
  return sharded_optimizer(s) && (s->shards_params || !ms_framework(s->work->scenario)->gradient_buckets);
}

/* Elements of 4 bytes on the wire are FP32. */
static MsOp *wire(MsOp *op, double element_B) {
  if (op && element_B == 4) op->dtype = MS_ODT_FP32;
  return op;
}

/* What is reduced and gathered on a stream of its own. */
static const struct {
  MsStream stream;
  const char *reduce, *across, *gather, *first;
} of_kind[] = {
    {MS_STREAM_DP, "dp reduce", "dp reduce across", "dp gather", "dp gather across"},
    {MS_STREAM_EDP, "edp reduce", "edp reduce across", "edp gather", "edp gather across"}}; /* dense, expert */

static int ranks_of_shards(const Step *s, gboolean expert) {
  return s->work->layout->group[ms_layout_shards_in(s->work->layout, expert)].size;
}

gboolean ms_work_sums_whole(const MsScenario *s) {
  return s->options.fsdp == MS_FSDP_OPTIM && ms_framework(s)->sums_once;
}

/* Shards of `elements` gradients, summed over the optimizer instances once each has reduced its own, behind that on the
 * same stream (Megatron-LM core/distributed/param_and_grad_buffer.py, start_grad_sync); where all instances shard the
 * optimizer together each keeps its part (megatron_fsdp, outer_dp_sharding_strategy). */
static void across_row(Step *s, gboolean expert, double elements, double element_B) {
  MsOpKind kind = s->o->outer_dp_sharding_strategy == MS_OUTER_OPTIM ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE;
  int parts = ms_work_sums_whole(s->work->scenario) ? 1 : ranks_of_shards(s, expert);
  wire(ms_row_comm(&s->b, kind, of_kind[expert].across, of_kind[expert].stream, MS_GROUP_INTER,
                   element_B * elements / parts),
       element_B);
}

static double wire_B(const Step *s, gboolean expert) { return expert ? s->expert_wire_B : s->wire_B; }

static void reduce_row(Step *s, MsOpKind kind, gboolean expert, double elements) {
  double element_B = wire_B(s, expert);
  gboolean waits = s->shards_gradients && ms_framework(s->work->scenario)->reduce_waits && !s->o->overlap_grad_reduce;
  wire(ms_row_comm(&s->b, kind, of_kind[expert].reduce, waits ? MS_STREAM_COMPUTE : of_kind[expert].stream,
                   ms_layout_shards_in(s->work->layout, expert), element_B * elements),
       element_B);
}

/* The last rows of either kind; -1: none on a stream of its own. */
typedef struct {
  int row[2];
} Reduced;

static Reduced reduce_rows(Step *s, double dense, double expert) {
  MsOpKind kind = scatters(s) ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE;
  double scaled = 2 * s->grad_B * (dense + expert) / 2;
  Reduced last;
  if (s->work->layout->group[MS_GROUP_DP_CP].size > 1 || s->work->layout->group[MS_GROUP_EDP].size > 1)
    ms_row_memory(&s->b, MS_OP_GRAD_SCALE, "gradient scale", scaled, scaled, 2);
  for (int k = 0, tip = s->b.tip; k < 2; k++) {
    s->b.tip = tip;
    reduce_row(s, kind, k, k ? expert : dense);
    across_row(s, k, k ? expert : dense, wire_B(s, k));
    last.row[k] = s->b.tip >= 0 && s->b.list->op[s->b.tip].stream == of_kind[k].stream ? s->b.tip : -1;
  }
  return last;
}

/* Embedding, head, router and norms stay BF16 beside weights in low precision. */
static double gathered_B(const Step *s, double all, double low) { return 2 * (all - low) + s->low_B * low; }

static void gather_row(Step *s, gboolean expert, double message_B) {
  ms_row_comm(&s->b, MS_OP_ALL_GATHER, of_kind[expert].gather, of_kind[expert].stream,
              ms_layout_shards_in(s->work->layout, expert), message_B);
}

static void gather_rows(Step *s, Params p) {
  if (!sharded_optimizer(s)) return;
  double dense_B = gathered_B(s, p.dense, p.low_dense), expert_B = gathered_B(s, p.expert, p.low_expert);
  int tip = s->b.tip;
  gather_row(s, FALSE, dense_B);
  int dense_row = s->b.tip;
  s->b.tip = tip;
  gather_row(s, TRUE, expert_B);
  if (dense_row != tip && dense_row >= 0) ms_join(&s->b, dense_row);
}

enum { MOST_OPERATORS = 60000 }; /* what is counted stays within 16 bits */

void ms_work_add_tensors(const MsPiece *piece, double *dense, double *expert) {
  for (int i = 0; i < piece->backward.n; i++) {
    const MsOp *op = &piece->backward.op[i];
    if (op->pass == MS_PASS_WGRAD && op->flags & MS_OPF_WEIGHT)
      *(op->flags & MS_OPF_EXPERT ? expert : dense) += op->groups;
    if (op->pass == MS_PASS_DGRAD && op->kind == MS_OP_NORM && piece->params_frozen == 0) *dense += 1;
  }
}

static void find_tensors(Step *s, int stage) {
  double dense = 0, expert = 0;
  int before = -1;
  for (MsStagePiece at = ms_stage_pieces(s->work, stage); ms_next_piece(&at);) {
    if (at.piece != before) dense = expert = 0, ms_work_add_tensors(&s->work->pieces[at.piece], &dense, &expert);
    s->tensors += dense, s->expert_tensors += expert, before = at.piece;
  }
}

/* Low-precision copies of weights, made on the first microbatch; of weights that are gathered in low precision only the
 * one that products read column by column, where they need one (TransformerEngine, post_all_gather_processing). */
static void low_copies_row(Step *s, double weights, double tensors) {
  int copies = ms_weight_copies(s->work->scenario);
  if (!s->b.quantized || weights <= 0) return;
  if (!ms_gathers_low(s->work->scenario) || ms_precision(s->b.training)->gathers_by_gradients) {
    double written_B = copies * s->b.quant_B * weights, operators = s->work->scenario->laws.cast_operators * tensors;
    MsOp *op = ms_row_memory(&s->b, MS_OP_QUANTIZE, "quantize weights", 2 * weights, written_B, 1);
    op->dtype = (guint8)s->b.odt, op->host = (guint16)MIN(operators, MOST_OPERATORS);
  } else if (copies == 2) {
    ms_row_memory(&s->b, MS_OP_TRANSPOSE, "turn weights", s->b.quant_B * weights, s->b.quant_B * weights, 1);
  }
}

/* FSDP, but low-precision copies of the first microbatch serve all (casts_in_pass). */
static gboolean casts_once(const Step *s) {
  return ms_framework(s->work->scenario)->sums_once && !ms_gathers_low(s->work->scenario) &&
         !s->o->disable_parameter_transpose_cache;
}

/* States leave beside the first forwards, on streams of their own (Megatron-LM dev,
 * core/optimizer/cpu_offloading/optimizer_state_offloader.py): activations on their way to the host share the link with
 * them, and do not queue behind them. */
static void zero_rows(Step *s, int stage, const MsStageParams *p) {
  if (s->o->offload_optimizer_states)
    ms_row_async(&s->b, MS_OP_D2H, "optimizer states to host", MS_STREAM_STATES)->message_B =
        ms_work_states_B(s->work, stage, p);
  double params = p->params_dense + p->params_expert + p->embedding_copy;
  if (s->shards_gradients)
    params = (p->params_dense + p->embedding_copy) / s->shard + p->params_expert / s->expert_shard;
  ms_row_memory(&s->b, MS_OP_ZERO_GRAD, "zero gradients", 0, s->grad_B * params, 2);
  double weights = p->quantizable_dense + p->quantizable_expert;
  if (!s->gathers_units || casts_once(s)) low_copies_row(s, weights, s->tensors + s->expert_tensors);
}

/* DualPipe: the other owner of the same two stages. Each sends it half of its reduced gradients, and gets the updated
 * half back. */
static void mirror_row(Step *s, const char *name, double dense_B, double expert_B) {
  if (ms_schedule_row(s->work->scenario->layout.schedule)->copies == MS_COPIES_ONE) return;
  ms_row_comm(&s->b, MS_OP_P2P, name, MS_STREAM_DP, MS_GROUP_PP,
              dense_B / s->shard + expert_B / s->expert_shard); /* shards count both owners */
}

/* Copies of one expert on several ranks of an expert group: each sends what it holds of the reduced gradient, and all
 * update alike. */
static void replica_row(Step *s, double expert) {
  double experts = s->work->scenario->model->num_experts, replicas = s->work->scenario->training.routing.replicas;
  if (!(replicas > 0)) return;
  MsOp *op = ms_row_comm(&s->b, MS_OP_ALL_TO_ALL, "replica gradients", MS_STREAM_EDP, MS_GROUP_EP,
                         s->expert_wire_B * MIN(1, 2 * replicas / (experts + replicas)) * expert / s->expert_shard);
  if (op) op->local_fraction = 0;
}

/* Bytes of Adam per shard element: gradient, master, two moments read; master, moments written; master to model
 * parameter, but where that is the weight: there PyTorch's clipping multiplies the gradient, whatever its norm
 * (torch/nn/utils/clip_grad.py). Operator by operator: weights decay, the first moment goes on by the gradient, the
 * second decays and goes on by its square, its root is divided, raised by epsilon, and divides the first moment for the
 * weights (torch/optim/adam.py, _multi_tensor_adam; mosaicml/composer composer/optim/decoupled_weight_decay.py, adamw,
 * has as many). */
static double adam_B(const Step *s, double *write) {
  double m = ms_dtype_B(s->o->exp_avg_dtype), v = ms_dtype_B(s->o->exp_avg_sq_dtype),
         master = ms_dtype_B(s->o->main_params_dtype);
  gboolean weights = ms_framework(s->work->scenario)->masters_are_weights;
  double beside_read = weights ? s->grad_B : 4, beside_write = weights ? s->grad_B : 2; /* clipped, or copied */
  switch (s->o->optimizer_impl) {
  case MS_OPTIMIZER_FUSED: break;
  case MS_OPTIMIZER_FOREACH:
    *write = beside_write + 2 * master + m + 5 * v;
    return beside_read + 2 * s->grad_B + 2 * master + 2 * m + 6 * v;
  }
  *write = beside_write + master + m + v;
  return beside_read + s->grad_B + master + m + v;
}

/* --- Muon: momentum, then Newton-Schulz iterations of three products on every matrix, each whole on its owner when the
 * optimizer is sharded. Of a matrix that is split over tensor-parallel ranks every rank gathers all of the FP32
 * momentum and works on that (`duplicated`), on its part alone (`blockwise`), or on its part with all-reduces of the
 * Gram matrix over the side that is whole (`distributed`; NVIDIA-NeMo/Emerging-Optimizers muon_utils.py,
 * newton_schulz_tp). --- */

static void product(Step *s, const char *name, double count, double m, double n, double k) {
  MsOp *op = ms_row(&s->b, MS_OP_GEMM, name);
  op->m = m, op->n = n, op->k = k;
  op->groups = (int)count;
  op->flop = 2 * m * n * k * count;
  op->read_B = 2 * count * (m * k + n * k), op->write_B = 2 * count * m * n;
  op->kernels = (guint16)MIN(2 * count, MOST_OPERATORS);
}

static MsOp *muon_message(Step *s, MsOpKind kind, const char *name, const MsMatrices *x, double bytes_B) {
  MsOp *op = ms_row_comm(&s->b, kind, name, x->expert ? MS_STREAM_EP : MS_STREAM_TP,
                         x->expert ? MS_GROUP_ETP : MS_GROUP_TP, x->share * bytes_B);
  if (op) op->kernels = (guint16)MIN(x->share, MOST_OPERATORS);
  return op;
}

/* PyTorch gathers a list of tensors in one buffer and copies them out; they are joined in another. */
static void gather_momentum(Step *s, const MsMatrices *x) {
  double whole = x->m * x->n;
  if (!wire(muon_message(s, MS_OP_ALL_GATHER, "muon gather", x, 4 * whole), 4)) return;
  MsOp *join = ms_row_memory(&s->b, MS_OP_COPY, "muon join", 8 * x->share * whole, 8 * x->share * whole,
                             (int)MIN(2 * x->share, MOST_OPERATORS));
  join->transient_B = 12 * whole;
}

/* X of `gram` rows, all of them on this rank. */
static void iterate(Step *s, const MsMatrices *x, double gram, double other, gboolean summed) {
  double elements = x->share * gram * other;
  /* its norm, X over it, to BF16 and back */
  ms_row_memory(&s->b, MS_OP_COPY, "muon normalise", 14 * elements, 10 * elements,
                (int)MIN(4 * x->share, MOST_OPERATORS));
  for (int k = 0; k < MS_NEWTON_SCHULZ_ITERATIONS; k++) {
    product(s, "muon gram", x->share, gram, gram, other);
    if (summed) muon_message(s, MS_OP_ALL_REDUCE, "muon gram sum", x, 2 * gram * gram);
    product(s, "muon square", x->share, gram, gram, gram);
    product(s, "muon apply", x->share, gram, other, gram);
  }
}

static void orthogonalise(Step *s, const MsMatrices *x) {
  double m = x->short_split ? x->m / x->parts : x->m, n = x->short_split ? x->n : x->n / x->parts;
  switch (x->parts > 1 ? (MsMuonTp)s->o->muon_tp_mode : MS_MUON_BLOCKWISE) {
  case MS_MUON_DUPLICATED:
    gather_momentum(s, x);
    iterate(s, x, x->m, x->n, FALSE);
    break;
  case MS_MUON_BLOCKWISE: iterate(s, x, MIN(m, n), MAX(m, n), FALSE); break;
  case MS_MUON_DISTRIBUTED: iterate(s, x, x->short_split ? n : m, x->short_split ? m : n, TRUE); break;
  }
}

static void muon_rows(Step *s, int stage) {
  g_autoptr(GArray) all = ms_matrices_of(s->work, stage);
  double elements = 0;
  ms_matrices_share(all, FALSE, s->shard);
  ms_matrices_share(all, TRUE, s->expert_shard);
  for (guint i = 0; i < all->len; i++) {
    const MsMatrices *x = &g_array_index(all, MsMatrices, i);
    elements += ms_matrices_params(x) / (x->expert ? s->expert_shard : s->shard);
    if (x->share > 0) orthogonalise(s, x);
  }
  double m = ms_dtype_B(s->o->exp_avg_dtype), master = ms_dtype_B(s->o->main_params_dtype);
  ms_row_memory(&s->b, MS_OP_ADAM, "muon update", (s->grad_B + m + master + 4) * elements, (master + m + 2) * elements,
                6);
}

/* Steps the matrices where Adam does not. */
static double left_to_adam(Step *s, int stage, double shard) {
  double dense, expert;
  switch (ms_optimizers[s->work->scenario->training.optimizer].matrices) {
  case MS_MATRICES_BY_ADAM: break;
  case MS_MATRICES_ORTHOGONALISED:
    ms_work_matrix_params(s->work, stage, &dense, &expert);
    muon_rows(s, stage);
    return shard - (dense / s->shard + expert / s->expert_shard);
  }
  return shard;
}

/* The host's work on the tensors of the shard, and the share of it that comes before the norm is known
 * (docs/theory/host.md has how they were timed). */
#define BEFORE_NORM 0.4

static double shard_tensors(const Step *s) { return s->tensors / s->shard + s->expert_tensors / s->expert_shard; }

static double shard_operators(const Step *s) {
  if (!ms_framework(s->work->scenario)->steps_one_by_one || !s->o->distributed_optimizer) return 0;
  return MIN(s->work->scenario->laws.optimizer_operators * shard_tensors(s), MOST_OPERATORS);
}

/* `swap_optimizer_times`: tensors of a part leave while the others of it arrive, and the next part comes when the last
 * of them has left (MindSpeed core/optimizer/swap_optimizer/swap_optimizer.py, swap_adamw_step). */
static void swap_row(Step *s, MsOpKind kind, const char *name, MsStream stream, double bytes_B) {
  if (bytes_B <= 0) return;
  MsOp *op = ms_row_async(&s->b, kind, name, stream);
  op->message_B = bytes_B;
  s->b.tip = ms_row_index(&s->b, op);
}

static double left_alone(const Step *s) { return MIN(1, s->o->swap_optimizer_times / MAX(shard_tensors(s), 1)); }

/* The optimizer: Adam on what is left of the shard, the offloaded share on the host meanwhile (copied out, updated,
 * copied back: in this order), states that live on the host brought back first. */
static void optimizer_rows(Step *s, int stage, double dense, double expert, int states) {
  double share = s->o->optimizer_offload_fraction, write, read = adam_B(s, &write),
         shard = dense / s->shard + expert / s->expert_shard,
         swapped_B = s->o->swap_optimizer_times > 0 ? shard * ms_optimizer_state_B(s->work->scenario) : 0;
  int back = -1;
  if (share > 0) {
    MsOp *out = ms_row_async(&s->b, MS_OP_D2H, "gradients to host", MS_STREAM_D2H);
    out->message_B = s->grad_B * share * shard;
    int chain = s->b.tip;
    s->b.tip = ms_row_index(&s->b, out);
    MsOp *cpu = ms_row_async(&s->b, MS_OP_CPU_ADAM, "cpu adam", MS_STREAM_SIDE);
    cpu->read_B = (s->grad_B + 12) * share * shard, cpu->write_B = 14 * share * shard;
    cpu->kernels = 0;
    s->b.tip = ms_row_index(&s->b, cpu);
    MsOp *in = ms_row_async(&s->b, MS_OP_H2D, "parameters from host", MS_STREAM_H2D);
    in->message_B = 2 * share * shard;
    back = ms_row_index(&s->b, in);
    s->b.tip = chain;
  }
  ms_join(&s->b, states);
  swap_row(s, MS_OP_H2D, "optimizer states from host", MS_STREAM_H2D, swapped_B);
  shard = left_to_adam(s, stage, shard);
  MsOp *adam = ms_row_memory(&s->b, MS_OP_ADAM, "adam", (1 - share) * read * shard, (1 - share) * write * shard, 12);
  adam->host = (guint16)((1 - BEFORE_NORM) * shard_operators(s));
  if (s->o->optimizer_impl == MS_OPTIMIZER_FOREACH) /* the root of the second moment, of all weights at once */
    adam->transient_B = ms_dtype_B(s->o->exp_avg_sq_dtype) * shard;
  swap_row(s, MS_OP_D2H, "optimizer states to host", MS_STREAM_D2H, left_alone(s) * swapped_B);
  ms_join(&s->b, back);
}

typedef struct {
  gboolean embedding, user;
} WordEmbedding; /* a stage has the embedding; tied weights or an MTP block use it there */

static WordEmbedding word_embedding(const MsWork *work, int stage) {
  WordEmbedding w = {0};
  for (int c = 0; c < work->layout->vpp; c++) {
    const MsChunk *k = ms_layout_chunk(work->layout, stage, c);
    w.embedding |= k->has_embedding;
    w.user |= k->num_mtp > 0 || (k->has_loss && work->scenario->model->tie_embeddings);
  }
  return w;
}

/* Some stage has a copy of the embedding. Where both ends of the model are on one device (V schedules, DualPipe) it has
 * the embedding itself. */
static gboolean embedding_copied(const MsWork *work) {
  for (int stage = 0; stage < work->layout->pp; stage++) {
    WordEmbedding w = word_embedding(work, stage);
    if (w.user && !w.embedding) return TRUE;
  }
  return FALSE;
}

/* Gains of the norms of q and k heads: their TP ranks have the gradients of their own heads, whatever the sequence
 * does. */
static double head_norm_params(const MsWork *work, int stage) {
  const MsModel *m = work->scenario->model;
  double norms = 0;
  if (!m->qk_layernorm || ms_model_has_mla(m) || ms_model_has_compressed_attention(m)) return 0;
  for (int c = 0; c < work->layout->vpp; c++) {
    const MsChunk *chunk = ms_layout_chunk(work->layout, stage, c);
    for (int i = 0; i < chunk->num_layers; i++)
      norms += (ms_model_mixers(m, chunk->first_layer + i) & MS_MIX_ATTN) != 0;
    if (ms_model_mtp_mixers(m) & MS_MIX_ATTN)
      norms += m->mtp_use_repeated_layer ? MIN(chunk->num_mtp, 1) : chunk->num_mtp;
  }
  return norms * 2 * ms_norm_params(m, m->kv_channels);
}

/* --- buckets (docs/theory/communication.md 7): only the first chunk of the first stage has several, each of at least
 * max(40 M, 1 M x DP) parameters; every other chunk reduces and gathers its parameters in one piece --- */

typedef struct {
  Params params;
  int piece;
} Bucket;

static double bucket_size(const MsWork *work) { return MAX(40e6, 1e6 * work->layout->dp); }

/* In backward order; returns how many. */
static int buckets_of(const MsWork *work, int stage, int c, Bucket **out) {
  const MsChunk *chunk = ms_layout_chunk(work->layout, stage, c);
  int length = ms_work_chunk_length(work, chunk), n = 0;
  *out = g_new0(Bucket, length + 1);
  if (stage > 0 || c > 0 || length == 0) {
    (*out)[n++].params = chunk_params(work, stage, c);
    return n;
  }
  Bucket now = {0};
  for (int i = length - 1; i >= 0; i--) {
    now.piece = i;
    add_piece(&now.params, &work->pieces[ms_work_chunk_piece(work, chunk, i)]);
    if (now.params.dense + now.params.expert < bucket_size(work) && i > 0) continue;
    (*out)[n++] = now;
    now = (Bucket){0};
  }
  return n;
}

static int count_buckets(const Step *s, int stage) {
  int n = 0;
  for (int c = 0; c < s->work->layout->vpp; c++) {
    Bucket *bucket;
    n += buckets_of(s->work, stage, c, &bucket);
    g_free(bucket);
  }
  return n;
}

/* The norm of every bucket is taken before it is reduced, and the host asks whether it is a number (Megatron-LM
 * core/distributed/param_and_grad_buffer.py, check_grads): one kernel each, two questions. They stand together here,
 * behind the last backward pass. */
static void check_rows(Step *s, int stage, double dense, double expert) {
  if (!s->o->check_for_nan_in_loss_and_grad) return;
  double held = s->shards_gradients ? dense / s->shard + expert / s->expert_shard : dense + expert;
  MsOp *op =
      ms_row_memory(&s->b, MS_OP_GRAD_NORM, "gradients checked", s->grad_B * held, 0, 3 * count_buckets(s, stage));
  op->flags |= MS_OPF_SYNC;
}

/* Megatron-FSDP sums what a rank holds of a gradient, its shard (Megatron-LM core/distributed/finalize_model_grads.py,
 * _local_tensor). */
static double summed(const Step *s, double params) {
  gboolean shards = s->shards_gradients && !ms_framework_has_units(ms_framework(s->work->scenario));
  return s->grad_B * (shards ? params / s->shard : params);
}

static void after_rows(Step *s, int stage, const MsStageParams *p) {
  const MsLayout *l = s->work->layout;
  double dense = p->params_dense + p->embedding_copy, expert = p->params_expert;
  int states = -1;
  check_rows(s, stage, dense, expert);
  if (s->o->offload_optimizer_states) { /* while gradients are reduced */
    MsOp *op = ms_row_async(&s->b, MS_OP_H2D, "optimizer states from host", MS_STREAM_STATES);
    op->message_B = ms_work_states_B(s->work, stage, p);
    states = ms_row_index(&s->b, op);
  }
  if (!s->o->overlap_grad_reduce && !s->shards_gradients) {
    Reduced last = reduce_rows(s, dense, expert);
    for (int k = 0; k < 2; k++) ms_join(&s->b, last.row[k]);
  }
  gboolean frozen = ms_frozen(&s->b);
  double norms = frozen ? 0 : s->b.sp ? p->tp_replicated : head_norm_params(s->work, stage);
  wire(ms_row_comm(&s->b, MS_OP_ALL_REDUCE, "norm gradients", MS_STREAM_TP, MS_GROUP_TP, summed(s, norms)), s->grad_B);
  WordEmbedding word = word_embedding(s->work, stage);
  double table = (double)s->work->padded_vocab / l->tp * s->work->scenario->model->hidden_size;
  if (!frozen && (word.embedding || word.user) && embedding_copied(s->work))
    wire(
        ms_row_comm(&s->b, MS_OP_ALL_REDUCE, "embedding gradients", MS_STREAM_DP, MS_GROUP_EMBEDDING, summed(s, table)),
        s->grad_B);
  mirror_row(s, "mirror gradients", s->wire_B * dense, s->wire_B * expert);
  replica_row(s, expert);
  double shard = dense / s->shard + expert / s->expert_shard;
  ms_row_memory(&s->b, MS_OP_GRAD_NORM, "gradient norm", s->grad_B * shard, 0, 8)->host =
      (guint16)(BEFORE_NORM * shard_operators(s));
  MsOp *norm = wire(ms_row_comm(&s->b, MS_OP_ALL_REDUCE, "gradient norm sum", MS_STREAM_DP, MS_GROUP_WORLD, 4), 4);
  (norm ? norm : &s->b.list->op[s->b.list->n - 1])->flags |= MS_OPF_SYNC;
  optimizer_rows(s, stage, dense, expert, states);
  Params all = stage_params(s->work, stage);
  if (sharded_optimizer(s))
    mirror_row(s, "mirror parameters", gathered_B(s, all.dense, all.low_dense),
               gathered_B(s, all.expert, all.low_expert));
  if (!s->o->overlap_param_gather && !s->gathers_units) gather_rows(s, all);
}

static void add_at(MsBucket **at, const MsOpList *list, int from, MsBucket bucket) {
  *at = g_renew(MsBucket, *at, MAX(list->n, 1));
  for (int i = from; i < list->n; i++) (*at)[i] = bucket;
}

static void add_bucket(Step *s, MsOpList *list, MsBucket **at, const Bucket *bucket, int chunk, gboolean reduce) {
  int first = list->n;
  s->b.tip = s->b.join[0] = s->b.join[1] = -1;
  if (reduce) reduce_rows(s, bucket->params.dense, bucket->params.expert);
  else gather_rows(s, bucket->params);
  s->b.join[0] = s->b.join[1] = -1;
  add_at(at, list, first, (MsBucket){.chunk = chunk, .piece = bucket->piece});
}

static void bucket_rows(Step *s, int stage, MsOpList *list, MsBucket **at, gboolean reduce) {
  list_to(s, list);
  int chunks = s->work->layout->vpp;
  for (int i = 0; i < chunks; i++) {
    int c = reduce ? chunks - 1 - i : i; /* backward ends the last chunk first */
    Bucket *bucket;
    int n = buckets_of(s->work, stage, c, &bucket);
    for (int k = 0; k < n; k++) add_bucket(s, list, at, &bucket[reduce ? k : n - 1 - k], c, reduce);
    g_free(bucket);
  }
}

/* The head's weight gradients that were left to the end: one product for each, and under sequence parallelism the
 * gather of its input beside the product before it (Megatron-LM core/utils.py, drain_embedding_wgrad_compute). A long
 * queue shares its rows. */
enum { MOST_DEFERRED_ROWS = 256 };

static void deferred_rows(Step *s, const MsPiece *head, int count) {
  const MsOp *gather = NULL;
  int rows = MIN(count, MOST_DEFERRED_ROWS);
  for (int i = 0; i < head->backward.n; i++) {
    const MsOp *op = &head->backward.op[i];
    if (op->pass != MS_PASS_WGRAD) continue;
    if (ms_op_families[op->kind] == MS_FAMILY_COMM) {
      gather = op;
      continue;
    }
    for (int k = 0; k < rows; k++) {
      int times = count / rows + (k < count % rows), chain = s->b.tip;
      MsOp *in = gather ? ms_row_async(&s->b, MS_OP_ALL_GATHER, gather->name, MS_STREAM_TP) : NULL;
      if (in)
        in->group = gather->group, in->message_B = times * gather->message_B, in->pass = MS_PASS_WGRAD,
        in->wait[0] = -1;
      int arrived = in ? ms_row_index(&s->b, in) : -1;
      s->b.tip = chain;
      ms_join(&s->b, arrived);
      MsOp *row = ms_row(&s->b, (MsOpKind)op->kind, op->name);
      gint16 wait[3] = {row->wait[0], row->wait[1], row->wait[2]};
      *row = *op;
      memcpy(row->wait, wait, sizeof wait);
      row->groups = times, row->flop *= times, row->read_B *= times, row->write_B *= times,
      row->kernels = (guint16)MIN(times * op->kernels, 60000);
      row->keep_B = row->free_B = row->transient_B = 0;
    }
    gather = NULL;
  }
}

static void late_heads(Step *s, int stage) {
  const MsLayout *l = s->work->layout;
  for (int c = 0; c < l->vpp; c++) {
    int share = ms_schedule_share(s->work->scenario->layout.schedule, l->microbatches);
    int count = ms_layout_chunk(l, stage, c)->has_loss ? ms_work_deferred(s->work, share) : 0;
    if (count > 0)
      deferred_rows(s, &s->work->pieces[ms_work_piece_at(s->work, ms_layout_chunk(l, stage, c), s->work->piece_head)],
                    count);
  }
}

/* Megatron-FSDP: what all microbatches left, unit by unit. */
static void across_units(Step *s, int stage, MsOpList *list, MsBucket **at) {
  list_to(s, list);
  for (int c = s->work->layout->vpp - 1; c >= 0; c--) {
    const MsChunk *chunk = ms_layout_chunk(s->work->layout, stage, c);
    for (int i = ms_work_chunk_length(s->work, chunk) - 1; i >= 0; i--) {
      const MsPiece *piece = &s->work->pieces[ms_work_chunk_piece(s->work, chunk, i)];
      int from = list->n;
      for (int k = 0; k < 2; k++) {
        s->b.tip = -1;
        across_row(s, k, k ? piece->params_expert : piece->params_dense, wire_B(s, k));
      }
      add_at(at, list, from, (MsBucket){.chunk = c, .piece = i});
    }
  }
}

void ms_work_step_ops(const MsWork *all, int stage, MsStepOps *out) {
  const MsWork *work = ms_work_on_stage(all, stage);
  memset(out, 0, sizeof *out);
  Step s = step_new(work);
  MsStageParams p = ms_work_stage_params(work, stage);
  find_tensors(&s, stage);
  list_to(&s, &out->before);
  zero_rows(&s, stage, &p);
  out->before.tip = s.b.tip;
  if (s.shards_gradients && ms_framework(work->scenario)->sums_once)
    across_units(&s, stage, &out->reduce, &out->reduce_at);
  else if (s.o->overlap_grad_reduce && !s.shards_gradients) bucket_rows(&s, stage, &out->reduce, &out->reduce_at, TRUE);
  if (s.o->overlap_param_gather && !s.gathers_units) bucket_rows(&s, stage, &out->gather, &out->gather_at, FALSE);
  list_to(&s, &out->after);
  late_heads(&s, stage);
  after_rows(&s, stage, &p);
  out->after.tip = s.b.tip;
}

void ms_step_ops_clear(MsStepOps *ops) {
  ms_ops_clear(&ops->before);
  ms_ops_clear(&ops->after);
  ms_ops_clear(&ops->reduce);
  ms_ops_clear(&ops->gather);
  g_free(ops->reduce_at);
  g_free(ops->gather_at);
  memset(ops, 0, sizeof *ops);
}

/* --- FSDP: rows around every pass of one piece --- */

MsUnitGathers ms_unit_gathers(const MsScenario *scenario) {
  MsFsdp fsdp = scenario->options.fsdp;
  if (fsdp == MS_FSDP_OPTIM_GRADS_PARAMS) return MS_GATHERS_EVERY;
  gboolean drops = ms_framework_has_units(ms_framework(scenario));
  return fsdp == MS_FSDP_OPTIM_GRADS && drops ? MS_GATHERS_DROPPED : MS_GATHERS_STEP;
}

/* torch fully_shard (_fsdp_collectives.py): whole parameters are split out of what was gathered, gradients chunked and
 * cast into what is reduced; experts that are sharded by another dimension than their first are put together, and cut,
 * in passes of their own. DeepSpeed's stage 3 puts parameters together too. */
typedef struct {
  double read_B, write_B;
} Copied;

static void copy_row(Step *s, const char *name, int copies, Copied dense, Copied expert) {
  if (ranks_of_shards(s, FALSE) <= 1) dense = (Copied){0};
  if (ranks_of_shards(s, TRUE) <= 1) expert = (Copied){0};
  if (!copies || dense.read_B + expert.read_B <= 0) return;
  double passes_B = expert.read_B * (copies - 1);
  ms_row_memory(&s->b, MS_OP_COPY, name, dense.read_B + expert.read_B + passes_B,
                dense.write_B + expert.write_B + passes_B, 1 + (expert.read_B > 0 ? copies - 1 : 0));
}

/* One tensor of all gradients of a unit or a bucket, in the type that is reduced, divided (flat_parameters and
 * gradient_buckets of MsFrameworkRow). What has a stream of its own there finds no registers beside a product's blocks,
 * so that it runs in turn. */
static void joined_rows(Step *s, const MsPiece *piece) {
  const MsFrameworkRow *f = ms_framework(s->work->scenario);
  double joined = 0, cast = 0, wire = 0;
  if (!f->flat_parameters && !f->gradient_buckets) return;
  for (int k = 0; k < 2; k++) {
    double elements = ranks_of_shards(s, k) > 1 ? k ? piece->params_expert : piece->params_dense : 0;
    joined += elements, cast += wire_B(s, k) > 2 ? elements : 0, wire += wire_B(s, k) * elements;
  }
  if (joined <= 0) return;
  ms_row_memory(&s->b, MS_OP_COPY, "gradients into one", 2 * joined, 2 * joined, 1);
  if (cast > 0) ms_row_memory(&s->b, MS_OP_COPY, "gradients cast", 2 * cast, 4 * cast, 1);
  if (f->gradient_buckets && s->shards_params) ms_row_memory(&s->b, MS_OP_COPY, "gradients by ranks", wire, wire, 1);
  ms_row_memory(&s->b, MS_OP_GRAD_SCALE, "gradients divided", wire, wire, 1);
}

/* Experts are a unit of their own (in TorchTitan over expert-parallel ranks) inside a layer that is checkpointed as a
 * whole: gathered for the recomputed forward, dropped behind it and gathered for the backward. */
static void again_row(Step *s, const MsPiece *piece) {
  Params p = unit_params(piece);
  const MsFrameworkRow *f = ms_framework(s->work->scenario);
  gboolean of_layer = f->fetches_blocks && s->work->layout->ep == 1;
  if (!f->shard_copies || of_layer || !s->shards_params || s->o->recompute.granularity != MS_RECOMPUTE_FULL ||
      !ms_work_is_unit(piece))
    return;
  s->b.pass = MS_PASS_DGRAD;
  gather_row(s, TRUE, gathered_B(s, p.expert, p.low_expert));
  s->b.pass = MS_PASS_FORWARD;
}

/* Of each instance's shards, what the others have updated (megatron_fsdp.py, outer_fsdp_group_param_gather). */
static void first_rows(Step *s, Params p) {
  const double message_B[] = {gathered_B(s, p.dense, p.low_dense), gathered_B(s, p.expert, p.low_expert)};
  if (s->o->outer_dp_sharding_strategy != MS_OUTER_OPTIM) return;
  for (int k = 0; k < 2; k++) {
    s->b.tip = -1;
    ms_row_comm(&s->b, MS_OP_ALL_GATHER, of_kind[k].first, of_kind[k].stream, MS_GROUP_INTER,
                message_B[k] / ranks_of_shards(s, k));
  }
}

/* Megatron-FSDP gathers weights that are kept in FP8 as they are multiplied, of MXFP8 rows forward and columns backward
 * (megatron_fsdp/param_and_grad_buffer.py, transpose_weight_buffer); columns of the others are made of their rows in
 * front of a backward (megatron_fsdp.py, fp8_create_transpose_cache). Of BF16 ones TransformerEngine keeps the copies
 * of a step's first microbatch, or, told to keep none, makes them in every forward and saves them for its backward
 * (Megatron-LM core/extensions/transformer_engine.py, is_first_microbatch). */
static gboolean casts_in_pass(const Step *s, gboolean back) {
  const MsScenario *scenario = s->work->scenario;
  if (!ms_framework(scenario)->sums_once) return TRUE;
  if (ms_gathers_low(scenario)) return back && !ms_precision(&scenario->training)->gathers_by_gradients;
  return !back && s->o->disable_parameter_transpose_cache;
}

static void cast_rows(Step *s, const MsPiece *piece, Params p, gboolean back) {
  double dense_B = gathered_B(s, p.dense, p.low_dense), expert_B = gathered_B(s, p.expert, p.low_expert), dense = 0,
         expert = 0;
  const MsFrameworkRow *f = ms_framework(s->work->scenario);
  copy_row(s, "parameters out of gathered", f->gradient_buckets ? 1 : f->shard_copies, (Copied){dense_B, dense_B},
           (Copied){expert_B, expert_B});
  ms_work_add_tensors(piece, &dense, &expert);
  if (casts_in_pass(s, back))
    low_copies_row(s, piece->params_quantizable_dense + piece->params_quantizable_expert, dense + expert);
}

/* A factor of gradients in BF16 is multiplied in front of their reduction, that of others in it (megatron_fsdp
 * param_and_grad_buffer.py, gradient_reduce_preprocessing). */
static void scale_rows(Step *s, const MsPiece *piece) {
  double scaled_B = 0;
  if (!ms_framework(s->work->scenario)->sums_once) return;
  for (int k = 0; k < 2; k++)
    if (wire_B(s, k) < 4 && ranks_of_shards(s, k) > 1)
      scaled_B += wire_B(s, k) * (k ? piece->params_expert : piece->params_dense);
  if (scaled_B > 0) ms_row_memory(&s->b, MS_OP_GRAD_SCALE, "gradient scale", scaled_B, scaled_B, 1);
}

/* Megatron-FSDP gives back what is gathered for its units alone: embedding and head are there from the first forward of
 * a step to its end (megatron_fsdp/param_and_grad_buffer.py, AllGatherPipeline.release_bucket and reset). */
static gboolean stays(const MsWork *work, const MsPiece *piece) {
  return ms_framework(work->scenario)->sums_once && !ms_work_is_unit(piece);
}

void ms_work_unit_ops(const MsWork *all, int index, MsUnitOps *out) {
  const MsWork *work = ms_work_on_pool(all, ms_work_pool_of_piece(all, index));
  memset(out, 0, sizeof *out);
  Step s = step_new(work);
  const MsPiece *piece = &work->pieces[index];
  Params p = unit_params(piece);
  list_to(&s, &out->first);
  s.b.pass = MS_PASS_FORWARD;
  first_rows(&s, p);
  if (!stays(work, piece)) list_to(&s, &out->gather);
  if (s.gathers_units) gather_rows(&s, p);
  list_to(&s, &out->again);
  again_row(&s, piece);
  for (int back = 0; back < 2; back++) {
    list_to(&s, &out->cast[back]);
    if (s.gathers_units) cast_rows(&s, piece, p, back);
    out->cast[back].tip = s.b.tip;
  }
  list_to(&s, &out->reduce);
  s.b.pass = MS_PASS_WGRAD;
  if (s.shards_gradients) {
    copy_row(&s, "gradients into reduced", ms_framework(work->scenario)->shard_copies,
             (Copied){2 * piece->params_dense, s.wire_B * piece->params_dense},
             (Copied){2 * piece->params_expert, s.expert_wire_B * piece->params_expert});
    scale_rows(&s, piece);
    joined_rows(&s, piece);
    for (int k = 0, copied = s.b.tip; k < 2; k++) {
      double elements = k ? piece->params_expert : piece->params_dense;
      s.b.tip = copied;
      reduce_row(&s, scatters(&s) ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE, k, elements);
      if (!ms_framework(work->scenario)->sums_once) across_row(&s, k, elements, wire_B(&s, k));
    }
  }
  out->first.tip = out->first.n - 1, out->gather.tip = out->gather.n - 1, out->again.tip = out->again.n - 1,
  out->reduce.tip = out->reduce.n - 1;
}

void ms_unit_ops_clear(MsUnitOps *ops) {
  for (int i = 0; i < MS_UNIT_LISTS; i++) ms_ops_clear(&ops->list[i]);
}
