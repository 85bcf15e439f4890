/* src/work/graphs.c - what CUDA graphs capture, and what they hold on to.
 *
 * Graphs of modules, one for each layer, pass and microbatch in flight, are captured in the order of the schedule into
 * one pool of memory (Megatron-LM core/transformer/cuda_graphs.py, TransformerEngine pytorch/graph.py, which reuse
 * input and output buffers). What a captured forward keeps for its backward is the same as without graphs. Beside it
 * stand:
 *   - outputs of a graph: static until the backward of the same graph, while the framework would free them when they
 * have been read;
 *   - gradients of outputs, one set for each kind of graph, and of inputs, those of two graphs;
 *   - what the captured backward of attention needs for itself, as nothing outside the graphs can use the memory of
 * their pool;
 *   - an attention mask, which is an input of every graph with attention though the causal kernels never read it
 * (get_layer_static_inputs of transformer_layer.py). The input of a graph is a copy of what the layer before it made.
 * Where that is freed it counts once, as the layer's kept input. It is not freed where somebody holds it until the
 * backward: with EP overlap the schedule node of every layer (ScheduleNode of pipeline_parallel/utils.py), else the
 * pipeline for what it has received. Not here: the driver's own memory for each graph (no published figure), and what a
 * graph of the whole iteration costs. */
#include "describe/module_sets.h"
#include "work/build.h"

#define M(module) (1u << MS_MODULE_##module)

gboolean ms_captured(const MsOptions *o, MsModule module) {
  guint32 scope = o->cuda_graph_scope, captures = 0;
  if (module == MS_MODULE_SHARED && (!o->cuda_graph_shared_experts || o->moe_shared_expert_overlap))
    scope &= ~MS_GRAPHS(scope, shared);
#define MS_CUDA_GRAPH(id, word, doc, modules, ...) captures |= scope & MS_CG_##id ? (modules) : 0;
#include "describe/cuda_graph.def"
#undef MS_CUDA_GRAPH
  return (captures >> module & 1) != 0;
}

static gboolean of_modules(const MsBuild *b) { return ms_captures_modules(b->options); }

/* The graph of a MoE layer ends behind the router, or behind the preprocessing of dispatch. */
static gboolean ends_in_router(const MsBuild *b) {
  return of_modules(b) && ms_captured(b->options, MS_MODULE_ROUTER) && !ms_captured(b->options, MS_MODULE_MOE);
}

/* What preprocessing hands on: rows in expert order, or the latent tokens; else the normed input itself goes on. */
static double preprocessed_B(const MsBuild *b) {
  if (!ms_captured(b->options, MS_MODULE_PREPROCESS)) return 0;
  switch (ms_dispatcher(b->options)->permutes) {
  case MS_PERMUTE_SENDER: return b->rows_routed * (2 * b->eh + 4); /* with their FP32 probabilities */
  case MS_PERMUTE_RECEIVER:
  case MS_PERMUTE_EXCHANGE: break;
  }
  return b->model->moe_latent_size > 0 ? 2 * b->rows_sp * b->eh : 0;
}

gboolean ms_mlp_norm_recomputed(const MsBuild *b) {
  const MsOptions *o = b->options;
  if (!ms_recomputes(o, MS_RM_LAYERNORM)) return FALSE;
  if (!ends_in_router(b)) return TRUE;
  gboolean shared_outside = o->moe_shared_expert_overlap && b->model->moe_shared_expert_intermediate_size > 0;
  return !shared_outside && preprocessed_B(b) > 0;
}

void ms_keep_router_graph_outputs(MsBuild *b) {
  if (!ends_in_router(b)) return;
  ms_keep(b, "graph output, tokens", preprocessed_B(b));
  if (b->model->moe_shared_expert_intermediate_size > 0 && ms_captured(b->options, MS_MODULE_SHARED))
    ms_keep(b, "graph output, shared", 2 * b->rows_sp * b->h);
}

/* Modules whose rows begin and end a layer. */
static MsModule first_module(guint8 mixers) {
  if (mixers & MS_MIX_MAMBA) return MS_MODULE_MAMBA;
  if (mixers & MS_MIX_DELTA) return MS_MODULE_DELTA;
  return mixers & MS_MIX_ATTN ? MS_MODULE_ATTN : mixers & MS_MIX_MLP ? MS_MODULE_MLP : MS_MODULE_ROUTER;
}

static MsModule last_module(guint8 mixers) {
  if (mixers & MS_MIX_MOE) return MS_MODULE_MOE;
  if (mixers & MS_MIX_MLP) return MS_MODULE_MLP;
  return mixers & MS_MIX_ATTN ? MS_MODULE_ATTN : mixers & MS_MIX_DELTA ? MS_MODULE_DELTA : MS_MODULE_MAMBA;
}

/* CudaGraphManager gives the graph of a layer the output of the one before it as its input, the same mask to all, and
 * gradients likewise (Megatron-LM core_r0.12.0 core/transformer/cuda_graphs.py, create_cudagraphs). The first layer of
 * a chunk copies still, which is left out. */
static gboolean hands_over(const MsOptions *o) {
  switch (o->cuda_graph_impl) {
  case MS_GRAPH_TE: break;
  case MS_GRAPH_LOCAL: return MS_GRAPHS(o->cuda_graph_scope, whole_layer);
  }
  return FALSE;
}

gboolean ms_graph_copies_input(const MsOptions *o, guint8 mixers) {
  return ms_captures_modules(o) && !hands_over(o) && ms_captured(o, first_module(mixers));
}

/* TransformerEngine copies what comes into a graph to where it was captured, unless it lies there, which what is not
 * captured never does: inputs forward, gradients of outputs backward (pytorch/graph.py, Graphed). */
static void into_graph_row(MsBuild *b, const char *name, MsModule module, double bytes_B) {
  b->module = module;
  ms_row_memory(b, MS_OP_COPY, name, bytes_B, bytes_B, 0);
}

gboolean ms_enter_graph(MsBuild *b, guint8 mixers) {
  if (mixers == 0 || !ms_graph_copies_input(b->options, mixers)) return FALSE;
  into_graph_row(b, "into graph", first_module(mixers), 2 * b->rows_sp * b->h * b->streams);
  return TRUE;
}

void ms_reenter_graph(MsBuild *b, guint8 mixers) {
  if (mixers == 0 || !of_modules(b) || hands_over(b->options) || !ms_captured(b->options, last_module(mixers))) return;
  into_graph_row(b, "gradients into graph", last_module(mixers), 2 * b->rows_sp * b->h * b->streams);
}

void ms_reenter_router_graph(MsBuild *b) {
  if (!ends_in_router(b)) return;
  double tokens = preprocessed_B(b), x = 2 * b->rows_sp * b->h;
  gboolean shared = b->model->moe_shared_expert_intermediate_size > 0 && ms_captured(b->options, MS_MODULE_SHARED);
  into_graph_row(b, "gradients into graph", MS_MODULE_ROUTER,
                 (tokens > 0 ? tokens : x) + x * b->streams + (shared ? x : 0));
}

void ms_keep_layer_graph_tensors(MsBuild *b, guint8 mixers) {
  double x = 2 * b->rows_sp * b->h * b->streams, s = b->training->seq_length;
  if (!of_modules(b) || hands_over(b->options)) return;
  if (ms_captured(b->options, last_module(mixers))) ms_keep(b, "graph output", x);
  if (b->options->ep_overlap && ms_graph_copies_input(b->options, mixers))
    ms_keep_throughout(b, "graph input, as it came", x);
  gboolean attends = (mixers & (MS_MIX_ATTN | MS_MIX_DELTA)) != 0;
  if (attends && ms_captured(b->options, MS_MODULE_ATTN))
    ms_keep_throughout(b, "graph input, mask", b->training->micro_batch_size * s * (s / b->c));
}

void ms_free_graph_tensors(MsBuild *b) {
  static const char *const names[] = {"graph output, tokens", "graph output, shared", "graph output",
                                      "graph input, as it came", "graph input, mask"};
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) ms_free_kept(b, names[i]);
}

/* Gradients of q, k, v and of the output, and q, k, v themselves where they are made again; of the row that needs most.
 */
static double attention_backward_B(const MsBuild *b, const MsPiece *piece) {
  double out = 0, in = 0;
  if (!ms_captured(b->options, MS_MODULE_ATTN)) return 0;
  gboolean again = ms_recomputes(b->options, MS_RM_MLA_UP_PROJ) && ms_model_has_mla(b->model);
  for (int i = 0; i < piece->forward.n; i++)
    if (ms_op_families[piece->forward.op[i].kind] == MS_FAMILY_ATTENTION &&
        piece->forward.op[i].module == MS_MODULE_ATTN)
      out = MAX(out, piece->forward.op[i].write_B);
  for (int i = 0; i < piece->backward.n; i++) {
    const MsOp *op = &piece->backward.op[i];
    if (ms_op_families[op->kind] == MS_FAMILY_ATTENTION && op->module == MS_MODULE_ATTN && op->pass == MS_PASS_DGRAD)
      in = MAX(in, op->write_B);
  }
  return out + in * (again ? 2 : 1);
}

void ms_graph_buffers(MsBuild *b, MsPiece *piece) {
  double x = 2 * b->rows_sp * b->h * b->streams, gradients = 0;
  if (!of_modules(b)) return;
  for (int i = 0; i < piece->n_kept; i++)
    if (g_str_has_prefix(piece->kept[i].name, "graph output")) gradients += piece->kept[i].bytes_B;
  if (ends_in_router(b) && piece->is_moe) gradients += 2 * x; /* normed input and residual, which are kept anyway */
  else if (gradients == 0) gradients = x;                     /* of attention alone: input of the MLP, kept too */
  piece->graph_B = gradients + 2 * x + attention_backward_B(b, piece);
}
