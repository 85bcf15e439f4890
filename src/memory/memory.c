/* src/memory/memory.c - bytes of one rank of each stage: what stands still, and a walk over the schedule for what
 * moves. */
#include "memory/memory.h"

#include "describe/framework.h"
#include "step/walk.h"

#include <math.h>
#include <string.h>

/* --- static bytes (docs/theory/memory.md 1) --- */

static gboolean states_on_host(const MsOptions *o) {
  return o->offload_optimizer_states || o->swap_optimizer_times > 0;
}

/* Whole units that a pass holds in buffers of their own; else they come and go (Flight). */
static double fsdp_buffers(const MsScenario *s) {
  gboolean pooled = s->options.fsdp_double_buffer;
  return pooled || !ms_framework(s)->registered_buffers ? 2 : 0;
}

MsParamBytes ms_memory_param_bytes(const MsWork *w) {
  const MsScenario *s = w->scenario;
  double buffers = fsdp_buffers(s);
  double low = ms_low_weight_B(s), cached = ms_cached_weight_B(s), stored = ms_dtype_B(s->options.main_params_dtype);
  gboolean masters = ms_framework(s)->masters_are_weights, reduces = s->options.fsdp >= MS_FSDP_OPTIM_GRADS,
           gathers = s->options.fsdp >= MS_FSDP_OPTIM_GRADS_PARAMS;
  return (MsParamBytes){.weight = masters ? stored : 2,
                        .low_weight = masters ? stored : low - cached,
                        .whole = 2,
                        .low_whole = low,
                        .low_cached = cached,
                        .gradient = ms_dtype_B(s->options.main_grads_dtype),
                        .optimizer = states_on_host(&s->options) ? 0 : ms_optimizer_state_B(s),
                        .dense_shards = ms_work_shards(w, FALSE),
                        .expert_shards = ms_work_shards(w, TRUE),
                        .unit_gradient = reduces ? buffers * ms_dtype_B(s->options.grad_reduce_dtype) : 0,
                        .expert_unit_gradient = reduces ? buffers * ms_expert_reduce_B(&s->options) : 0,
                        .unit = gathers ? buffers * 2 : 0,
                        .low_unit = gathers ? buffers * (low - cached) : 0,
                        .ends = gathers && !ms_framework(s)->ends_are_units ? 2 : 0};
}

/* Reserved by the allocator over allocated. */
static double reserve_ratio(const MsScenario *s) {
  return MAX(ms_framework(s)->reserve_ratio, s->hardware->reserve_ratio);
}

typedef struct { /* pieces that stand on a stage, chunk by chunk */
  const MsWork *work;
  int *piece, n;
} Standing;

static Standing standing_on(const MsWork *w, int stage) {
  int n = 0;
  for (MsStagePiece at = ms_stage_pieces(w, stage); ms_next_piece(&at);) n++;
  Standing all = {w, g_new(int, MAX(n, 1)), 0};
  for (MsStagePiece at = ms_stage_pieces(w, stage); ms_next_piece(&at);) all.piece[all.n++] = at.piece;
  return all;
}

typedef struct {
  double n, k;
} Shape;

static gboolean seen(GArray *shapes, double n, double k) {
  for (guint i = 0; i < shapes->len; i++) {
    const Shape *s = &g_array_index(shapes, Shape, i);
    if (s->n == n && s->k == k) return TRUE;
  }
  Shape shape = {n, k};
  g_array_append_val(shapes, shape);
  return FALSE;
}

/* One BF16 buffer per distinct weight shape whose gradient is accumulated in the GEMM (docs/theory/memory.md 1.3). */
static double dummy_weight_gradients_B(const Standing *on) {
  const MsOptions *o = &on->work->scenario->options;
  if (o->transformer_impl != MS_IMPL_TE || !o->gradient_accumulation_fusion) return 0;
  GArray *shapes = g_array_new(FALSE, FALSE, sizeof(Shape));
  double bytes = 0;
  for (int i = 0; i < on->n; i++) {
    if (i > 0 && on->piece[i] == on->piece[i - 1]) continue;
    const MsOpList *list = &on->work->pieces[on->piece[i]].backward;
    for (int j = 0; j < list->n; j++) {
      const MsOp *op = &list->op[j];
      if (op->pass == MS_PASS_WGRAD && (op->flags & MS_OPF_ACCUMULATE) && !seen(shapes, op->m, op->n))
        bytes += 2 * op->m * op->n;
    }
  }
  g_array_free(shapes, TRUE);
  return bytes;
}

static gboolean has_moe(const Standing *on) {
  for (int i = 0; i < on->n; i++)
    if (on->work->pieces[on->piece[i]].is_moe) return TRUE;
  return FALSE;
}

/* Laws, fitted to the published sizes of DeepEP's buffers. */
static double channel_buffers_B(const MsWork *w, const MsGroup *g) {
  const MsLaws *laws = &w->scenario->laws;
  double h = w->scenario->model->hidden_size, nodes = g->domains;
  return (laws->deepep_buffer_MiB * h + laws->deepep_network_buffer_MiB * (nodes > 1) * (h / 7168)) * 1048576.0 +
         (nodes > 1 ? laws->deepep_buffer_MiB * h * nodes / 8 * 1048576.0 : 0);
}

/* HybridEP's own formula (docs/theory/communication.md 5.4). */
static double token_buffers_B(const MsWork *w, const MsGroup *g) {
  double h = w->scenario->model->hidden_size, experts = w->scenario->model->num_experts, nodes = g->domains;
  double ranks = g->size, local = MAX(1, g->per_domain), rows = w->rows_sp, token = 2 * h + 4 * h / 128;
  double nvl = ranks * rows * (token + 4 * experts * local / ranks);
  double rdma = nodes > 1 ? rows * (token + 4 * experts) + (nodes - 1) * rows * (token + 4 * experts / nodes) +
                                2 * (nodes - 1) * rows * (2 * h + 4 * experts / nodes)
                          : 0;
  return nvl + rdma;
}

/* `g`: the ranks that exchange tokens. */
static double dispatcher_buffers_B(const MsWork *w, const MsGroup *g) {
  if (g->size <= 1 || w->scenario->model->num_experts == 0) return 0;
  switch (ms_dispatcher(&w->scenario->options)->buffers) {
  case MS_BUFFERS_NONE: return 0;
  case MS_BUFFERS_CHANNELS: return channel_buffers_B(w, g);
  case MS_BUFFERS_TOKENS: return token_buffers_B(w, g);
  }
  return 0;
}

/* Deterministic mode asks for CUBLAS_WORKSPACE_CONFIG=:4096:8, eight of 4096 KiB (Megatron-LM training/determinism.py,
 * PyTorch CublasHandlePool.cpp), where there is such a workspace. */
#define DETERMINISTIC_BLAS_B 33554432.0

static double blas_workspace_B(const MsScenario *s) {
  double usual = s->hardware->blas_workspace_B;
  return s->options.deterministic_mode && usual > 0 ? DETERMINISTIC_BLAS_B : usual;
}

/* Scratch of the GEMM libraries (docs/theory/memory.md 1.3; "between steps" of 130 functional tests of Megatron-LM):
 * one cuBLAS workspace for each of the two host threads that launch GEMMs, forward and autograd; one of
 * TransformerEngine, four more for its grouped GEMMs. */
static double workspace_B(const Standing *on) {
  const MsWork *w = on->work;
  const MsScenario *s = w->scenario;
  double te_one = s->hardware->te_workspace_B, bytes = 2 * blas_workspace_B(s);
  gboolean grouped = has_moe(on) && s->options.moe_grouped_gemm;
  if (s->options.transformer_impl == MS_IMPL_TE) bytes += te_one + (grouped ? 4 * te_one : 0);
  if (s->options.lcma) bytes += s->options.lcma_workspace_B;
  if (s->options.tp_comm_overlap && s->layout.tp > 1 && s->options.transformer_impl == MS_IMPL_TE)
    bytes += 3 * te_one + 11 * 2 * w->rows * s->model->hidden_size;
  return bytes;
}

/* Layers without TransformerEngine compute the scores into one buffer that is never given back. */
static double score_buffer_B(const MsWork *w) {
  const MsScenario *s = w->scenario;
  if (s->options.transformer_impl != MS_IMPL_LOCAL || !ms_framework_stores_scores(s)) return 0;
  return 2 * w->rows * s->training.seq_length * s->model->num_attention_heads / w->layout->tp;
}

/* Every chunk that receives its input holds on to the last one and to its gradient. */
double ms_memory_received_B(const MsWork *w) {
  return 4 * w->rows_sp * w->scenario->model->hidden_size * ms_model_streams(w->scenario->model);
}

static double received_B(const MsWork *w, int stage) {
  double bytes = 0;
  for (int c = 0; c < w->layout->vpp; c++)
    if (!ms_layout_chunk(w->layout, stage, c)->has_embedding) bytes += ms_memory_received_B(w);
  return bytes;
}

/* Gathered inputs of linears, forward and backward apart, that the framework holds on to (nanotron's MemoryBuffer). */
static double gathered_inputs_B(const MsWork *w) {
  if (w->layout->tp == 1 || !w->scenario->options.sequence_parallel) return 0;
  return ms_framework(w->scenario)->gathered_inputs * 2 * w->rows * w->scenario->model->hidden_size;
}

/* FSDP (docs/theory/memory.md 1.3): whole parameters and gradients of the piece at work and of its neighbour, and of
 * embedding and head, which are no units and stay whole through a microbatch. Buffers are shared by all pieces.
 */
static double fsdp_buffers_B(const Standing *on, MsParamBytes b) {
  double gradient_B = 0, weight_B = 0, ends = 0;
  gboolean units = ms_framework(on->work->scenario)->ends_are_units;
  for (int i = 0; i < on->n; i++) {
    const MsPiece *piece = &on->work->pieces[on->piece[i]];
    double dense = piece->params_dense, expert = piece->params_expert,
           params = dense + expert + piece->params_frozen + piece->params_frozen_expert,
           low = piece->params_quantizable_dense + piece->params_quantizable_expert;
    if (units || ms_work_is_unit(piece)) {
      gradient_B = MAX(gradient_B, b.unit_gradient * dense + b.expert_unit_gradient * expert);
      weight_B = MAX(weight_B, b.unit * (params - low) + b.low_unit * low);
    } else ends += params;
  }
  return gradient_B + weight_B + b.ends * ends;
}

static double graph_buffers_B(const Standing *on) {
  double most = 0;
  for (int i = 0; i < on->n; i++) most = MAX(most, on->work->pieces[on->piece[i]].graph_B);
  return most;
}

/* All that pieces bring with them, but FSDP's. */
static double standing_buffers_B(const Standing *on, const MsGroup *exchange) {
  const MsWork *w = on->work;
  return dummy_weight_gradients_B(on) + workspace_B(on) + score_buffer_B(w) + gathered_inputs_B(w) +
         graph_buffers_B(on) + (has_moe(on) ? dispatcher_buffers_B(w, exchange) : 0);
}

double ms_memory_piece_buffers_B(const MsWork *all, int piece) {
  const MsWork *w = ms_work_on_pool(all, ms_work_pool_of_piece(all, piece));
  const MsHardware *hw = w->scenario->hardware;
  int domain = MAX(hw->nvlink_domain_gpus, ms_gpus_per_domain(hw, w->scenario->gpus));
  MsGroup close = w->layout->group[MS_GROUP_TP_EP];
  close.domains = (close.size + domain - 1) / domain, close.per_domain = 1; /* as many nodes as it cannot do without */
  return standing_buffers_B(&(Standing){w, &piece, 1}, &close);
}

/* Of a parameter, or gradient, that FSDP shards, a rank holds one part in so many: its shard; where optimizer instances
 * share the optimizer, the shard of its instance beside it, which passes gather from and reduce into
 * (param_and_grad_buffer.py, _create_hfsdp_helper_buffer). */
static double held_shards(const MsWork *w, gboolean expert) {
  double shards = ms_work_shards(w, expert), within = w->layout->group[ms_layout_shards_in(w->layout, expert)].size;
  gboolean both = w->scenario->options.outer_dp_sharding_strategy == MS_OUTER_OPTIM && w->layout->instances > 1;
  return both ? shards * within / (shards + within) : shards;
}

void ms_memory_static(const MsWork *all, int stage, MsStageMemory *out) {
  const MsWork *w = ms_work_on_stage(all, stage);
  const MsScenario *s = w->scenario;
  MsStageParams p = ms_work_stage_params(w, stage);
  double dense = p.params_dense + p.embedding_copy, expert = p.params_expert,
         low = p.quantizable_dense + p.quantizable_expert;
  memset(out, 0, sizeof *out);
  MsParamBytes b = ms_memory_param_bytes(w);
  MsFsdp fsdp = s->options.fsdp;
  double held = held_shards(w, FALSE), expert_held = held_shards(w, TRUE), low_expert = p.quantizable_expert,
         low_dense = low - low_expert;
  /* frozen weights are stored like the others, and sharded with them */
  double all_dense = dense + p.frozen, all_expert = expert + p.frozen_expert;
  out->parameters_B = b.whole * (all_dense + all_expert - low) + b.low_whole * low;
  out->gradients_B = b.gradient * (dense + expert);
  if (fsdp >= MS_FSDP_OPTIM_GRADS) out->gradients_B = b.gradient * (dense / held + expert / expert_held);
  double shards_B = b.weight * ((all_dense - low_dense) / held + (all_expert - low_expert) / expert_held) +
                    b.low_weight * (low_dense / held + low_expert / expert_held);
  if (fsdp >= MS_FSDP_OPTIM_GRADS_PARAMS) out->parameters_B = shards_B + b.low_cached * low;
  else if (ms_framework(s)->masters_are_weights) out->parameters_B += shards_B;
  out->optimizer_B = states_on_host(&s->options) ? 0 : ms_work_states_B(w, stage, &p);
  Standing on = standing_on(w, stage);
  gboolean reduces = w->layout->dp * w->layout->cp > 1 && !s->options.distributed_optimizer;
  double reducer = reduces ? ms_framework(s)->reducer_B * (dense + expert) : 0;
  out->buffers_B = fsdp_buffers_B(&on, b) + reducer + received_B(w, stage) +
                   standing_buffers_B(&on, &w->layout->group[MS_GROUP_TP_EP]);
  g_free(on.piece);
  out->between_steps_B = out->parameters_B + out->gradients_B + out->optimizer_B + out->buffers_B;
}

/* What a distributed optimizer gathers its weights through: the shards of all ranks as tensors of their own, once more
 * as the collective's one tensor, and its own shard (nanotron, distributed.py all_gather_coalesced; torch's all_gather
 * of a list). */
static gboolean gathers_flat(const MsWork *w) {
  return ms_framework(w->scenario)->gather_copies > 0 && w->scenario->options.distributed_optimizer &&
         ms_work_shards(w, FALSE) > 1;
}

static double flat_gather_B(const MsWork *w, double weights) {
  return gathers_flat(w) ? 2 * weights * (ms_framework(w->scenario)->gather_copies + 1 / ms_work_shards(w, FALSE)) : 0;
}

/* FP32 copy of a BF16 gradient shard during the step, unless the optimizer is precision aware; its states, where they
 * live on the host between steps; behind them what gathers the weights. */
static double optimizer_transient_B(const MsWork *w, int stage) {
  const MsOptions *o = &w->scenario->options;
  MsStageParams p = ms_work_stage_params(w, stage);
  double copy = o->main_grads_dtype == MS_DT_FP32 || ms_optimizer_is_fused(w->scenario) ? 0 : 4;
  double dense = p.params_dense + p.embedding_copy,
         bytes = copy * (dense / ms_work_shards(w, FALSE) + p.params_expert / ms_work_shards(w, TRUE));
  if (states_on_host(o)) bytes += ms_work_states_B(w, stage, &p) / MAX(o->swap_optimizer_times, 1);
  return MAX(bytes, flat_gather_B(w, dense + p.params_expert));
}

/* --- activations: over the turns of the schedule and, in each, its pieces (sched/walk.h, step/walk.h) --- */

typedef struct { /* of one chunk and microbatch, relative to what is kept when the slot starts */
  double kept, forward_peak, backward_peak;
  double deferred; /* kept from a backward that leaves the head's weight gradient to the end of the step */
  const char *forward_where, *backward_where;
} ChunkBytes;

static const char *where(const MsPiece *piece, gboolean backward) {
  switch (piece->kind) {
  case MS_PIECE_EMBEDDING: return backward ? "embedding backward" : "embedding forward";
  case MS_PIECE_HEAD: return backward ? "head backward" : "head forward";
  case MS_PIECE_MTP: return backward ? "mtp backward" : "mtp forward";
  case MS_PIECE_SCALES: return "scales";
  default:
    if (piece->is_moe) return backward ? "moe backward" : "moe forward";
    return backward ? "dense backward" : "dense forward";
  }
}

/* `defer_embedding_wgrad_compute`: BF16 gradient of the logits and input of the head wait for the end of the step. */
static double deferred_B(const MsWork *w, const MsChunk *chunk) {
  if (!chunk->has_loss || ms_work_deferred(w, G_MAXINT) == 0) return 0;
  double h = w->scenario->model->hidden_size;
  return (1 + w->scenario->model->mtp_num_layers) *
         (2 * w->rows * w->padded_vocab / w->layout->tp + 2 * w->rows_sp * h);
}

/* What a chunk has received stays with the pipeline until the backward takes its gradient. The first layer keeps it as
 * its input anyway, but for a CUDA graph, which keeps a copy (work/graphs.c; with EP overlap every layer does, and its
 * piece says so). */
static double received_twice_B(const MsWork *w, const MsChunk *chunk) {
  const MsScenario *s = w->scenario;
  if (chunk->has_embedding || chunk->num_layers == 0 || s->options.ep_overlap) return 0;
  if (!ms_graph_copies_input(&s->options, ms_model_mixers(s->model, chunk->first_layer))) return 0;
  return 2 * w->rows_sp * s->model->hidden_size * ms_model_streams(s->model);
}

/* Full tensors that collectives of tensor-parallel ranks work on, held until the GPU has passed them (pytorch#147168,
 * torchtitan#737): what is summed. Gathered ones stay (gathered_inputs_B), but for the embedding's gradient. */
static double held_B(const MsPiece *piece, const MsOpList *list) {
  double bytes = 0;
  for (int i = 0; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    gboolean own =
        op->kind == MS_OP_REDUCE_SCATTER || (op->kind == MS_OP_ALL_GATHER && piece->kind == MS_PIECE_EMBEDDING);
    if (own && op->group == MS_GROUP_TP) bytes += op->message_B;
  }
  return bytes;
}

static double launches(const MsOpList *list) {
  double kernels = 0;
  for (int i = 0; i < list->n; i++) kernels += list->op[i].kernels;
  return kernels;
}

/* Launches that a stream takes before the host waits (forums.developer.nvidia.com/t/68937). */
#define LAUNCH_QUEUE 1024

/* The part of a pass that is still in the queue, from its end; *left: room behind it. */
static double queued_B(const MsWork *w, const MsChunk *chunk, gboolean backward, double *left) {
  double bytes = 0;
  int n = ms_work_chunk_length(w, chunk);
  for (int i = 0; i<n && * left> 0; i++) {
    const MsPiece *piece = &w->pieces[ms_work_chunk_piece(w, chunk, backward ? i : n - 1 - i)];
    const MsOpList *list = backward ? &piece->backward : &piece->forward;
    double kernels = launches(list);
    bytes += (kernels > 0 ? MIN(1, *left / kernels) : 0) * held_B(piece, list);
    *left -= kernels;
  }
  return bytes;
}

/* What the last layer of a forward has summed: the allocator sees that the GPU has passed it when it is asked for more.
 */
static double last_sums_B(const MsWork *w, const MsChunk *chunk) {
  for (int i = ms_work_chunk_length(w, chunk) - 1; i >= 0; i--) {
    const MsPiece *piece = &w->pieces[ms_work_chunk_piece(w, chunk, i)];
    double bytes = held_B(piece, &piece->forward);
    if (bytes > 0) return bytes;
  }
  return 0;
}

/* Held at the end of a forward: the queue is full of it and of the passes before it, backward and forward in turn. In
 * a pipeline the host waits for every message that it has sent or gets: a first stage sends nothing behind a backward,
 * all others do. */
static double recorded_B(const MsWork *w, const MsChunk *chunk) {
  gboolean pipeline = w->layout->pp > 1;
  if (!ms_framework(w->scenario)->records_streams) return 0;
  if (pipeline && w->layout->group[MS_GROUP_TP].domains > 1) return last_sums_B(w, chunk);
  double left = LAUNCH_QUEUE, bytes = queued_B(w, chunk, FALSE, &left);
  int before = w->layout->microbatches - w->layout->pp;
  if (pipeline) before = MIN(before, chunk->has_embedding ? 1 : 0);
  for (; before > 0 && left > 0; before--) {
    bytes += queued_B(w, chunk, TRUE, &left);
    if (before > 1) bytes += queued_B(w, chunk, FALSE, &left);
  }
  return bytes;
}

/* What Megatron-FSDP holds beside its buffers (docs/theory/memory.md 1.4): whole parameters of units that are fetched
 * ahead; whole gradients that wait for their reduction, oldest first. They wait in the order of the backward, so that
 * those who do are the pieces from `oldest` down to the one at work. */
typedef struct {
  const MsWork *work;
  const MsChunk *chunk;
  gboolean pooled; /* units have two buffers, so that one gradient waits beside another; embedding and head have none */
  double ahead, waiting;        /* most elements: fetched ahead; that wait when another gradient comes to wait */
  double unit, low_unit;        /* bytes of a gathered parameter, ... */
  double gradient, expert_grad; /* ...and of a gradient */
  int oldest;                   /* place in the chunk */
  double elements, bytes;       /* of those that wait */
} Flight;

static const MsPiece *flight_piece(const Flight *f, int at) {
  return &f->work->pieces[ms_work_chunk_piece(f->work, f->chunk, at)];
}

static double whole_params(const MsPiece *p) {
  return p->params_dense + p->params_expert + p->params_frozen + p->params_frozen_expert;
}

#define FSDP_SUGGESTED 1e9 /* elements; half of it ahead (megatron_fsdp.py, suggested_communication_unit_size) */

static Flight flight_of(const MsWork *w, const MsChunk *chunk) {
  const MsScenario *s = w->scenario;
  int n = ms_work_chunk_length(w, chunk), units = 0;
  Flight f = {.work = w, .chunk = chunk, .oldest = n - 1};
  if (!ms_framework(s)->registered_buffers) return f;
  f.pooled = fsdp_buffers(s) > 0;
  double sum = 0, low = ms_low_weight_B(s) - ms_cached_weight_B(s);
  for (int i = 0; i < n; i++)
    if (ms_work_is_unit(flight_piece(&f, i))) sum += whole_params(flight_piece(&f, i)), units++;
  gboolean gathers = s->options.fsdp >= MS_FSDP_OPTIM_GRADS_PARAMS;
  f.waiting = MAX(FSDP_SUGGESTED, gathers && units > 0 ? 2 * sum / units : 0), f.ahead = f.waiting / 2;
  if (gathers && !f.pooled) f.unit = 2, f.low_unit = low;
  if (s->options.fsdp >= MS_FSDP_OPTIM_GRADS)
    f.gradient = ms_dtype_B(s->options.grad_reduce_dtype), f.expert_grad = ms_expert_reduce_B(&s->options);
  return f;
}

/* Whole parameters while the piece at that place runs, the next ones fetched. Embedding and head stay anyway. */
static double gathered_B(const Flight *f, int at, gboolean backward) {
  double bytes = 0, ahead = 0;
  if (f->unit == 0 || (backward && !ms_work_is_unit(flight_piece(f, at)))) return 0;
  int n = ms_work_chunk_length(f->work, f->chunk), step = backward ? -1 : 1;
  for (int i = at; i >= 0 && i < n && (i == at || ahead < f->ahead); i += step) {
    const MsPiece *p = flight_piece(f, i);
    double low = p->params_quantizable_dense + p->params_quantizable_expert;
    if (ms_work_is_unit(p)) bytes += f->unit * (whole_params(p) - low) + f->low_unit * low;
    if (i != at) ahead += whole_params(p);
  }
  return bytes;
}

static void waits(Flight *f, int at, int sign) {
  const MsPiece *p = flight_piece(f, at);
  f->elements += sign * (p->params_dense + p->params_expert);
  if (!f->pooled || !ms_work_is_unit(p))
    f->bytes += sign * (f->gradient * p->params_dense + f->expert_grad * p->params_expert);
}

/* The same of a backward, with its gradient and those that wait; then it comes to wait itself. */
static double flight_backward_B(Flight *f, int at) {
  double others = f->elements;
  waits(f, at, 1);
  double bytes = f->bytes + gathered_B(f, at, TRUE);
  double own = f->elements - others;
  while (f->oldest > at && (f->pooled || f->elements - own > f->waiting)) waits(f, f->oldest--, -1);
  return bytes;
}

/* Beside what a piece offloads itself (its transients): what the one before it still sends, and what is fetched for the
 * one after it, as in sim/graph.c. */
static ChunkBytes chunk_bytes(const MsWork *w, const MsChunk *chunk) {
  ChunkBytes b = {.kept = received_twice_B(w, chunk), .forward_where = "forward", .backward_where = "backward"};
  double leaving = 0, freed = 0, gradient_B = ms_framework(w->scenario)->gradient_B, recorded = recorded_B(w, chunk);
  Flight flight = flight_of(w, chunk);
  for (MsPieceWalk walk = ms_piece_walk(w, (MsChunks){.forward = chunk}); ms_piece_next(&walk);) {
    const MsPiece *piece = &w->pieces[walk.forward.piece];
    b.kept += piece->kept_B;
    double peak = b.kept + piece->forward_transient_B + leaving + gathered_B(&flight, walk.forward.at, FALSE);
    leaving = piece->offload_B - piece->offload_copy_B;
    if (peak > b.forward_peak) b.forward_peak = peak, b.forward_where = where(piece, FALSE);
  }
  for (MsPieceWalk walk = ms_piece_walk(w, (MsChunks){.backward = chunk}); ms_piece_next(&walk);) {
    const MsPiece *piece = &w->pieces[walk.backward.piece];
    int ahead = ms_piece_ahead(&walk, TRUE);
    double peak = piece->backward_transient_B - freed + (ahead >= 0 ? w->pieces[ahead].offload_B : 0) +
                  flight_backward_B(&flight, walk.backward.at);
    if (peak > b.backward_peak) b.backward_peak = peak, b.backward_where = where(piece, TRUE);
    freed += piece->kept_B - gradient_B * (piece->params_dense + piece->params_expert);
  }
  b.forward_peak += recorded, b.backward_peak += recorded;
  b.deferred = deferred_B(w, chunk);
  return b;
}

/* Weight gradients that wait until the layer's input gradient is done (delay_wgrad) hold the gradients of all outputs
 * of its linears, as they were quantised (docs/theory/memory.md 7). */
static double delayed_B(const MsPiece *piece) {
  double bytes = 0;
  for (int i = 0; i < piece->backward.n; i++) {
    const MsOp *op = &piece->backward.op[i];
    if (op->pass == MS_PASS_WGRAD && (op->flags & MS_OPF_WEIGHT))
      bytes += ms_element_B(op->dtype) * op->m * op->k * (op->kind == MS_OP_GEMM ? op->groups : 1);
  }
  return bytes;
}

/* A forward and a backward in one slot (docs/theory/schedules.md 9; measured: one microbatch lives, and a layer of the
 * next). */
typedef struct {
  double now, peak;
  const char *where;
  gboolean delays;
} Pairing;

/* `flight_B`: what FSDP holds beside both. */
static void pairing_step(Pairing *p, const MsPiece *forward, const MsPiece *backward, double flight_B) {
  double kept = forward ? forward->kept_B : 0;
  double peak = p->now + kept + (forward ? forward->forward_transient_B : 0) +
                (backward ? backward->backward_transient_B : 0) + flight_B;
  if (p->delays && backward && ms_work_is_unit(backward)) peak += delayed_B(backward);
  if (peak > p->peak) p->peak = peak, p->where = backward ? where(backward, TRUE) : where(forward, FALSE);
  p->now += kept - (backward ? backward->kept_B : 0);
}

static const MsPiece *piece_of(const MsWork *w, const MsPieceTurn *turn) {
  return turn->piece < 0 ? NULL : &w->pieces[turn->piece];
}

static Pairing paired_bytes(const MsWork *w, const MsChunk *f, const MsChunk *b) {
  Pairing p = {
      .now = received_twice_B(w, f), .where = "forward beside backward", .delays = w->scenario->options.delay_wgrad};
  Flight ahead = flight_of(w, f), back = flight_of(w, b);
  for (MsPieceWalk walk = ms_piece_walk(w, (MsChunks){.forward = f, .backward = b}); ms_piece_next(&walk);) {
    double flight_B = (walk.forward.piece < 0 ? 0 : gathered_B(&ahead, walk.forward.at, FALSE)) +
                      (walk.backward.piece < 0 ? 0 : flight_backward_B(&back, walk.backward.at));
    pairing_step(&p, piece_of(w, &walk.forward), piece_of(w, &walk.backward), flight_B);
  }
  p.now -= received_twice_B(w, b);
  return p;
}

typedef struct { /* a chunk of the stage */
  ChunkBytes bytes;
  int first_mb, leaves_head; /* backwards from that microbatch on which leave the weight gradient of the head */
} HeldChunk;

typedef struct { /* one stage, on the way through its slots: they follow one another, whatever their inputs wait for */
  const MsWork *work;
  int stage;
  HeldChunk *chunk; /* [vpp] */
  Pairing *pair;    /* [vpp][vpp], forward x backward, filled when first asked for (`where` set) */
  const MsSlot *slot;
  int n, next;       /* slots, the one that comes next */
  double live, high; /* kept after the slot; highest during it */
  const char *where;
} StageBytes;

static const Pairing *pair_of(StageBytes *s, int forward, int backward) {
  const MsLayout *l = s->work->layout;
  if (!s->pair) s->pair = g_new0(Pairing, l->vpp * l->vpp);
  Pairing *p = &s->pair[forward * l->vpp + backward];
  if (!p->where)
    *p = paired_bytes(s->work, ms_layout_chunk(l, s->stage, forward), ms_layout_chunk(l, s->stage, backward));
  return p;
}

static StageBytes stage_bytes(const MsWork *all, const MsSchedule *schedule, int stage) {
  const MsWork *w = ms_work_on_stage(all, stage);
  StageBytes s = {.work = w,
                  .stage = stage,
                  .chunk = g_new(HeldChunk, w->layout->vpp),
                  .slot = schedule->slot[stage],
                  .n = schedule->n[stage]};
  for (int c = 0; c < w->layout->vpp; c++) {
    const MsChunk *chunk = ms_layout_chunk(w->layout, stage, c);
    HeldChunk *own = &s.chunk[c];
    ms_chunk_microbatches(schedule, c, &own->first_mb, &own->leaves_head);
    own->bytes = chunk_bytes(w, chunk), own->leaves_head = chunk->has_loss ? ms_work_deferred(w, own->leaves_head) : 0;
  }
  return s;
}

static void stage_bytes_clear(StageBytes *s) {
  g_free(s->chunk);
  g_free(s->pair);
}

static void after_pair(StageBytes *s, const MsSlot *slot) {
  const Pairing *pair = pair_of(s, slot->chunk, slot->chunk2);
  double before = s->live;
  s->where = pair->where, s->live += pair->now, s->high = before + pair->peak;
}

static void after_forward(StageBytes *s, const MsSlot *slot) {
  const ChunkBytes *f = &s->chunk[slot->chunk].bytes;
  double before = s->live;
  s->where = f->forward_where, s->live += f->kept, s->high = before + f->forward_peak;
}

/* Weight gradients that follow later keep the activations. */
static void after_backward(StageBytes *s, const MsSlot *slot) {
  const ChunkBytes *b = &s->chunk[slot->chunk].bytes;
  double before = s->live;
  s->where = b->backward_where;
  if (slot->kind != MS_SLOT_I) s->live -= b->kept;
  s->high = before + (slot->kind == MS_SLOT_W ? 0 : b->backward_peak);
}

static void leave_head(StageBytes *s, int kind, int chunk, int mb) {
  const HeldChunk *own = &s->chunk[chunk];
  if (kind != MS_SLOT_I && mb - own->first_mb < own->leaves_head) s->live += own->bytes.deferred;
}

/* The next slot; NULL at the end. */
static const MsSlot *next_slot(StageBytes *s) {
  if (s->next == s->n) return NULL;
  const MsSlot *slot = &s->slot[s->next++];
  if (slot->kind == MS_SLOT_F) after_forward(s, slot);
  else if (slot->kind == MS_SLOT_FB) after_pair(s, slot), leave_head(s, MS_SLOT_B, slot->chunk2, slot->mb2);
  else after_backward(s, slot), leave_head(s, slot->kind, slot->chunk, slot->mb);
  s->high = MAX(s->high, s->live);
  return slot;
}

typedef struct {        /* the part of a list that repeats itself */
  const MsPeriodOf *of; /* NULL: there is none, or it is left out */
  double live;          /* when the last one ended */
} Repetition;

/* What is kept is the same again after a period: so it is after all others, and none has a higher peak. */
static void leave_out(StageBytes *s, Repetition *r) {
  if (!r->of || s->next < r->of->from || (s->next - r->of->from) % r->of->slots != 0) return;
  gboolean same = s->live == r->live;
  r->live = s->live;
  if (!same) return;
  s->next += MAX(0, r->of->to - s->next) / r->of->slots * r->of->slots;
  r->of = NULL;
}

static void find_peak(const MsWork *w, const MsSchedule *schedule, int stage, MsStageMemory *m) {
  StageBytes s = stage_bytes(w, schedule, stage);
  Repetition again = {.of = schedule->period > 0 ? &schedule->repeat[stage] : NULL, .live = -1};
  double before = 0, best = -1;
  for (const MsSlot *slot; (slot = next_slot(&s)); before = s.live) {
    leave_out(&s, &again);
    if (s.high <= best) continue;
    best = s.high;
    m->activations_B = MIN(MAX(s.live, MIN(before, best)), best);
    m->transient_B = best - m->activations_B;
    m->peak_where = s.where;
    m->peak_slot = (int)(slot - s.slot);
  }
  stage_bytes_clear(&s);
  double optimizer = optimizer_transient_B(ms_work_on_stage(w, stage), stage);
  if (optimizer > MAX(best, 0)) {
    m->activations_B = 0;
    m->transient_B = optimizer;
    m->peak_where = "optimizer";
    m->peak_slot = schedule->n[stage];
  }
}

/* An allocator that is short of memory waits for the GPU and takes back what collectives hold. */
static void take_back(const MsWork *w, int stage, MsStageMemory *m) {
  const MsHardware *hw = w->scenario->hardware;
  double held = 0, most = (hw->hbm_B - hw->context_B) / reserve_ratio(w->scenario);
  for (int c = 0; c < w->layout->vpp; c++) held = MAX(held, recorded_B(w, ms_layout_chunk(w->layout, stage, c)));
  if (!(m->peak_B > most)) return;
  double back = MIN(MIN(held, m->transient_B), m->peak_B - most);
  m->transient_B -= back, m->peak_B -= back;
}

/* What the allocator holds above its peak. The tensor that all weights are gathered into is larger than any block that
 * activations leave, and takes new memory where there is some; else the allocator gives blocks back for it. */
static double reserve_B(const MsWork *w, int stage, double peak_B) {
  const MsHardware *hw = w->scenario->hardware;
  double reserved = reserve_ratio(w->scenario) * peak_B, room = MAX(0, hw->hbm_B - hw->context_B - reserved);
  MsStageParams p = ms_work_stage_params(w, stage);
  double whole = gathers_flat(w) ? 2 * (p.params_dense + p.embedding_copy + p.params_expert) : 0;
  return reserved - peak_B + MIN(whole, room);
}

MsMemory *ms_memory_new(const MsWork *w, const MsSchedule *schedule) {
  MsMemory *memory = g_new0(MsMemory, 1);
  memory->stages = w->layout->pp;
  memory->stage = g_new0(MsStageMemory, memory->stages);
  for (int i = 0; i < memory->stages; i++) {
    MsStageMemory *m = &memory->stage[i];
    ms_memory_static(w, i, m);
    m->peak_where = "static";
    find_peak(w, schedule, i, m);
    m->peak_B = m->between_steps_B + m->activations_B + m->transient_B;
    const MsHardware *hw = ms_work_on_stage(w, i)->scenario->hardware;
    take_back(ms_work_on_stage(w, i), i, m);
    m->capacity_B = hw->hbm_B, m->pool = w->of_pool ? ms_layout_pool(w->layout, i) : -1;
    m->reserved_B = reserve_B(ms_work_on_stage(w, i), i, m->peak_B) + hw->context_B;
    m->device_B = m->peak_B + m->reserved_B;
    if (m->peak_B > memory->stage[memory->peak_stage].peak_B) memory->peak_stage = i;
  }
  if (w->of_pool) memory->peak_stage = ms_memory_fullest(memory);
  return memory;
}

int ms_memory_fullest(const MsMemory *memory) {
  int fullest = 0;
  for (int i = 1; i < memory->stages; i++) {
    const MsStageMemory *x = &memory->stage[i], *y = &memory->stage[fullest];
    gboolean alike = x->capacity_B == y->capacity_B || !(x->capacity_B > 0) || !(y->capacity_B > 0);
    if (alike ? x->device_B > y->device_B : x->device_B / x->capacity_B > y->device_B / y->capacity_B) fullest = i;
  }
  return fullest;
}

void ms_memory_free(MsMemory *memory) {
  if (!memory) return;
  g_free(memory->stage);
  g_free(memory);
}

double *ms_memory_timeline(const MsWork *w, const MsSchedule *schedule, int stage) {
  StageBytes s = stage_bytes(w, schedule, stage);
  MsStageMemory m;
  ms_memory_static(w, stage, &m);
  double *bytes = g_new(double, schedule->n[stage] + 1);
  bytes[0] = m.between_steps_B;
  for (const MsSlot *slot; (slot = next_slot(&s));) bytes[slot - s.slot + 1] = m.between_steps_B + s.live;
  stage_bytes_clear(&s);
  return bytes;
}
