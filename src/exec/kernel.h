/* src/exec/kernel.h - one real CPU kernel for every row of the operator registry (describe/op.def), forward and
 * backward.
 *
 * Two tables, one per element type (float, double), of the same functions, by ms_kernels(): callers hold a `const
 * MsKernels *` and pass `void *` to arrays of that type. Matrices are row-major and contiguous unless a leading
 * dimension is given. A matrix of tokens is [rows][width]; what a row is (position, sequence, expert row) is the
 * caller's business: kernels that need positions are given them. No kernel allocates more than a scratch of its own,
 * keeps state, or communicates: vocabulary-parallel and ring versions are cut where the collective stands. Gradients of
 * parameters are ADDED to (main gradients), gradients of activations are written, unless said otherwise. Backward
 * kernels get what the operator list keeps, nothing else: statistics of a norm are computed again from its input. No
 * two arrays overlap unless said.
 *
 * Same input, same bits: fixed order of sums, on any number of threads (BLAS: with the same number).
 *
 * FLOP: kernels add what they really multiply and add (2 per pair) to run->flop, as loops went, for GEMM and attention
 * kinds; the executor compares that with MsOp.flop. Each function is tested against a naive oracle in double and
 * against finite differences. */
#ifndef MS_EXEC_KERNEL_H
#define MS_EXEC_KERNEL_H

#include "base/vector.h"
#include "blas/blas.h"
#include "work/op.h"

typedef struct { /* of one executing thread; not shared */
  const MsBlas *blas;
  double flop; /* counted so far */
} MsKernelRun;

typedef enum {
  MS_KACT_SWIGLU,
  MS_KACT_GEGLU_QUICK /* GPT-OSS: clamped, x sigmoid(1.702 x)(1 + gate) */,
  MS_KACT_GELU,
  MS_KACT_RELU2
} MsKernelActivation;
typedef enum { MS_KNORM_RMS, MS_KNORM_LAYER } MsKernelNorm;
typedef enum { MS_KSCORE_SOFTMAX, MS_KSCORE_SIGMOID } MsKernelScore;

typedef struct {              /* one attention call: `batch` sequences side by side */
  int batch, heads, kv_heads; /* heads is a multiple of kv_heads: query head i reads KV head i / (heads / kv_heads) */
  int sq, sk;                 /* query and key positions of each sequence here */
  int dqk, dv;
  const gint32 *q_pos, *k_pos; /* [sq], [sk]: global positions; a query sees keys with k_pos <= q_pos (causal) */
  int window;                  /* and k_pos > q_pos - window; 0 = no window */
  double scale;
  const void *sink; /* [heads] learned logit in the denominator only; NULL = none */
} MsAttentionShape;
/* Tiles that the kernels work in: scores of ROWS queries and KEYS keys are multiplied if any pair of them is visible
 * (the whole tile then), else skipped. */
enum { MS_ATTENTION_ROWS = 128, MS_ATTENTION_KEYS = 64 };
typedef enum { MS_TILE_NONE, MS_TILE_PARTIAL, MS_TILE_ALL } MsTileMask; /* of its pairs visible */
MsTileMask ms_attention_tile(const MsAttentionShape *shape, int q0, int queries, int k0, int keys);
/* Query-key pairs of one sequence and head: those that are visible (causal, sq = sk = s: s^2 / 2 + s / 2; the registry
 * counts s^2 / 2, the diagonal half), and those of the tiles multiplied. Exact: attention_forward adds 2 batch heads
 * (dqk + dv) multiplied to run->flop, attention_backward 2 batch heads (3 dqk + 2 dv) multiplied. */
typedef struct {
  double visible, multiplied;
} MsAttentionPairs;
MsAttentionPairs ms_attention_pairs(const MsAttentionShape *shape);

/* Layout of its arrays: q [sq][batch][heads][dqk], k [sk][batch][kv_heads][dqk], v [sk][batch][kv_heads][dv], o
 * [sq][batch][heads][dv], lse [sq][batch][heads] (natural logarithm of the sum of exponentials; -inf where a query saw
 * no key). */

/* Types of one element, as a cast rounds to it: nearest, ties to even, saturating (BF16 too). */
typedef enum { MS_ELEMENT_E4M3, MS_ELEMENT_E5M2, MS_ELEMENT_E2M1, MS_ELEMENT_BF16 } MsElement;
/* Tensors with their scales. TENSOR: one FP32 scale, amax to the largest number (E4M3; E5M2 for gradients of the hybrid
 * recipe). */
typedef enum {
  MS_QUANT_FP8_TENSOR,
  MS_QUANT_FP8_TENSOR_E5M2,
  MS_QUANT_FP8_BLOCK /* 1x128 of activations, 128x128 of weights, FP32 scales */,
  MS_QUANT_MXFP8 /* 1x32, E8M0 */,
  MS_QUANT_NVFP4 /* 1x16, E4M3 scale under an FP32 one */,
  MS_QUANT_BF16
} MsQuantFormat;

/* Attention of each query to keys chosen for it (DSA, compressed attention): chosen [sq][batch][keys] are key positions
 * 0 … sk - 1, each at most once, negative = none. Layouts as of MsAttentionShape. value_in_key: the first dv elements
 * of a key are its value (absorbed MLA), v and its gradient are NULL. */
typedef struct {
  int batch, heads, kv_heads, sq, sk, dqk, dv, keys;
  double scale;
  const void *sink;
  gboolean value_in_key;
} MsSparseShape;

/* Scores of an indexer: q [sq][batch][heads][d], k [sk][batch][d], w [sq][batch][heads], scores [sq][batch][sk]. */
typedef struct {
  int batch, heads, sq, sk, d;
  const gint32 *q_pos, *k_pos; /* as of MsAttentionShape; of a pooled key the position of its last token */
} MsIndexerShape;

/* Keys pooled from `ratio` tokens each (DeepSeek-V4's compressor), x [groups ratio][batch][key, weight][halves][width],
 * positions [ratio][halves][width], y [groups][batch][width]: y = sum of keys, weighted for every element by a softmax
 * over the tokens of weight + position. One half: the tokens of the group. Two: half 1 of the tokens of the group and
 * half 0 of those of the group before (none before the first). */
typedef struct {
  int batch, groups, ratio, halves, width;
} MsPoolShape;

/* Depthwise causal convolution, w [width][taps] as torch has it: y[t] = sum over j of w[j] x[t - taps + 1 + j] + bias,
 * then SiLU. x [s][batch] rows x_stride apart (a part of a wider tensor), y [s][batch][width]. The sequence starts with
 * zeros. */
typedef struct {
  int batch, s, width, taps;
  gint64 x_stride;
  gboolean silu;
} MsConvShape;

/* Scan of Mamba-2 (state-space duality), chunked: x [s][batch][heads][head_dim], b, c [s][batch][groups][state], dt
 * [s][batch][heads], rows so many elements apart as the strides say (parts of the projected tensor); heads is a
 * multiple of groups. With step = softplus(dt + dt_bias), decay = exp(-exp(a_log) step) of each head: H_t = decay H_t-1
 * + step B_t x_t', y_t = H_t' C_t + D x_t (Dao and Gu, 2024). */
enum { MS_SCAN_CHUNK = 128 };
typedef struct {
  int batch, s, heads, head_dim, groups, state;
  gint64 x_stride, b_stride, c_stride, dt_stride;
} MsScanShape;

/* Gated delta rule, chunked (formula in kernel_delta.inc): q, k [s][batch][heads][dk], v, o [s][batch][heads][dv], g
 * (logarithm of the decay, <= 0), beta [s][batch][heads], inverse [s][batch][heads][MS_DELTA_TOKENS]: what is kept of
 * each chunk, states [batch][heads][dk][dv]. */
enum { MS_DELTA_TOKENS = 64 };
typedef struct {
  int batch, s, heads, dk, dv;
  double scale;
} MsDeltaShape;
/* What stands before it: qkv [rows][2 key_heads dk + value_heads dv], a, b [rows][value_heads] (rows ab_stride apart)
 * -> q, k (of length 1, repeated for the value heads that share them), v, g = -exp(a_log) softplus(a + dt_bias), beta =
 * sigmoid(b). */
typedef struct {
  gint64 rows;
  int key_heads, value_heads, dk, dv;
  gint64 ab_stride;
} MsDeltaGates;

typedef struct MsKernels {
  size_t real_B;    /* 4 or 8 */
  const char *unit; /* "avx512", "avx2", "baseline": what the own loops were compiled for */
  MsVector vector;  /* the least unit that runs it */

  /* C = alpha op(A) op(B) + beta C, as ms_blas_sgemm. */
  void (*gemm)(MsKernelRun *run, gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, double alpha,
               const void *a, gint64 lda, const void *b, gint64 ldb, double beta, void *c, gint64 ldc);
  /* groups of rows[g] rows each, one after another in x [sum rows][k] and y [sum rows][n]; w [groups][n][k]. y_g = x_g
   * w_g^T; dx_g = dy_g w_g; dw_g += dy_g^T x_g. */
  void (*grouped_forward)(MsKernelRun *run, int groups, const gint64 *rows, gint64 n, gint64 k, const void *x,
                          const void *w, void *y);
  void (*grouped_dgrad)(MsKernelRun *run, int groups, const gint64 *rows, gint64 n, gint64 k, const void *dy,
                        const void *w, void *dx);
  void (*grouped_wgrad)(MsKernelRun *run, int groups, const gint64 *rows, gint64 n, gint64 k, const void *dy,
                        const void *x, void *dw);

  /* Vocabulary-parallel: this rank holds words [first, first + count) in table [count][h]; other words give zero rows.
   */
  void (*embedding_forward)(gint64 rows, gint64 h, const gint32 *word, gint32 first, gint32 count, const void *table,
                            void *y);
  void (*embedding_backward)(gint64 rows, gint64 h, const gint32 *word, gint32 first, gint32 count, const void *dy,
                             void *dtable);

  /* y = x / rms(x) * gain (LayerNorm: minus the mean, plus bias; bias NULL for RMS). */
  void (*norm_forward)(MsKernelNorm kind, gint64 rows, gint64 width, double eps, const void *x, const void *gain,
                       const void *bias, void *y);
  void (*norm_backward)(MsKernelNorm kind, gint64 rows, gint64 width, double eps, const void *x, const void *gain,
                        const void *dy, void *dx, void *dgain, void *dbias);

  /* Rotates the first `rotary` of d elements of each of `heads` heads of x [rows][heads][d] (stride row_stride elements
   * between rows) in place by the angles of pos[row], half-split pairing (i, i + rotary / 2), angle pos * base^(-2i /
   * rotary). back: the inverse rotation, which is its gradient. */
  void (*rope)(gint64 rows, gint64 heads, gint64 d, gint64 rotary, gint64 row_stride, const gint32 *pos, double base,
               gboolean back, void *x);

  /* Fused (online softmax, scores never stored). backward: dq, dk, dv are added to, so that ring steps and shared KV
   * heads sum; lse is of ALL keys of the query (after merging), o and d_o likewise. dsink may be NULL. */
  void (*attention_forward)(MsKernelRun *run, const MsAttentionShape *shape, const void *q, const void *k,
                            const void *v, void *o, void *lse);
  void (*attention_backward)(MsKernelRun *run, const MsAttentionShape *shape, const void *q, const void *k,
                             const void *v, const void *o, const void *lse, const void *d_o, void *dq, void *dk,
                             void *dv, void *dsink);
  /* Merges a partial result over other keys into (o, lse): rows of `heads` heads. */
  void (*attention_merge)(gint64 rows, int heads, int dv, void *o, void *lse, const void *o_part, const void *lse_part);
  /* Unfused: in place over scores [batch][heads][sq][sk], already scaled; masked entries become 0. backward: p and dp
   * -> ds in dp; dsink as above. */
  void (*softmax_forward)(const MsAttentionShape *shape, void *scores);
  void (*softmax_backward)(const MsAttentionShape *shape, const void *p, void *dp, void *dsink);

  /* x [rows][2 width] (gate first; [rows][width] for GELU and squared ReLU), y [rows][width]; prob [rows] multiplies
   * each row, NULL = none; clamp <= 0 = none (gated kinds only: gate from above, the other half from both sides). GELU
   * is the tanh form of Megatron's fused kernel. backward: dprob [rows] may be NULL. */
  void (*activation_forward)(MsKernelActivation kind, gint64 rows, gint64 width, double clamp, const void *x,
                             const void *prob, void *y);
  void (*activation_backward)(MsKernelActivation kind, gint64 rows, gint64 width, double clamp, const void *x,
                              const void *prob, const void *dy, void *dx, void *dprob);

  /* y = x sigmoid(gate): the output gate of an attention. */
  void (*sigmoid_gate_forward)(gint64 n, const void *x, const void *gate, void *y);
  void (*sigmoid_gate_backward)(gint64 n, const void *x, const void *gate, const void *dy, void *dx, void *dgate);
  /* y = rms norm(x) gain silu(z) (gated delta net), or rms norm(x silu(z)) gain (gate_first: Mamba-2). */
  void (*gated_norm_forward)(gboolean gate_first, gint64 rows, gint64 width, double eps, const void *x, const void *z,
                             const void *gain, void *y);
  void (*gated_norm_backward)(gboolean gate_first, gint64 rows, gint64 width, double eps, const void *x, const void *z,
                              const void *gain, const void *dy, void *dx, void *dz, void *dgain);

  void (*add)(gint64 n, const void *a, const void *b, void *y); /* y = a + b, may be in place */
  /* x [rows][width] += prob[row] bias of its group (groups as of grouped_forward, one for a dense layer; prob NULL =
   * 1). backward: dbias and dprob (NULL = not wanted) added to. */
  void (*bias_forward)(int groups, const gint64 *rows, gint64 width, const void *bias, const void *prob, void *x);
  void (*bias_backward)(int groups, const gint64 *rows, gint64 width, const void *bias, const void *prob,
                        const void *dy, void *dbias, void *dprob);
  void (*scale)(gint64 n, double by, void *x);
  double (*sum_squares)(gint64 n, const void *x); /* pairwise, in double */
  /* Adam with decoupled weight decay; grad is multiplied by grad_scale (clipping, averaging). step from 1. */
  void (*adam)(gint64 n, double lr, double beta1, double beta2, double eps, double weight_decay, double grad_scale,
               int step, const void *grad, void *master, void *m, void *v, void *param);

  /* Muon: m = momentum m + g, update = m, or g + momentum m (Nesterov), g = grad grad_scale; x [m][n] made nearly
   * orthogonal by the quintic Newton-Schulz iteration of Jordan (2024), three products each, on the smaller side;
   * master -= lr (scale update + weight_decay master). */
  void (*muon_momentum)(gint64 n, double momentum, gboolean nesterov, double grad_scale, const void *grad, void *m,
                        void *update);
  void (*newton_schulz)(MsKernelRun *run, gint64 m, gint64 n, int iterations, void *x);
  void (*muon_apply)(gint64 n, double lr, double weight_decay, double scale, const void *update, void *master,
                     void *param);

  /* logits [rows][experts]. Top-k by score (+ bias [experts], used for the choice only; NULL = none), ties to the lower
   * number, or the forced choice: token `index[row]` (global number) goes to experts (index k + j) mod experts. groups
   * / top_groups: node-limited choice, 0 = none. prob [rows][k] are the weights of the chosen (normalised when
   * `normalize`, times scaling), which [rows][k] their experts, ascending. load [experts] += rows that chose each.
   * score_sum [experts] += scores (for the auxiliary loss; sigmoids divided by their sum over all experts, as Megatron
   * does). load and score_sum may be NULL. A group counts by the sum of its k / top_groups best. */
  void (*router_forward)(gint64 rows, int experts, int k, int groups, int top_groups, MsKernelScore score,
                         gboolean normalize, double scaling, const gint64 *forced_index, const void *bias,
                         const void *logits, void *prob, gint32 *which, gint64 *load, double *score_sum);
  /* dscore_all [experts]: gradient of the auxiliary loss with respect to every score of that expert, the same for all
   * rows (NULL = none). */
  void (*router_backward)(gint64 rows, int experts, int k, MsKernelScore score, gboolean normalize, double scaling,
                          const void *logits, const gint32 *which, const void *dprob, const void *dscore_all,
                          void *dlogits);

  /* Choices by expert: count [experts], slot [rows k]: row * k + j of each choice, expert after expert, in the order of
   * rows. slot / k is gather_rows' `from`. */
  void (*dispatch_map)(gint64 rows, int experts, int k, const gint32 *which, gint64 *count, gint64 *slot);
  /* y[i] = x[from[i]] for `rows` rows; from[i] < 0 gives zeros. Backward of it, and unpermute: y[from[i]] += weight[i]
   * x[i] (weight NULL = 1), y zeroed first over y_rows rows. */
  void (*gather_rows)(gint64 rows, gint64 width, const gint64 *from, const void *x, void *y);
  void (*scatter_rows)(gint64 rows, gint64 width, const gint64 *to, const void *weight, const void *x, gint64 y_rows,
                       void *y);
  /* dweight[i] = <dy[to[i]], x[i]>. */
  void (*scatter_weight_grad)(gint64 rows, gint64 width, const gint64 *to, const void *x, const void *dy,
                              void *dweight);

  /* As attention_forward and attention_backward over the chosen keys; FLOP: exactly the chosen pairs. */
  void (*sparse_attention_forward)(MsKernelRun *run, const MsSparseShape *shape, const void *q, const void *k,
                                   const void *v, const gint32 *chosen, void *o, void *lse);
  void (*sparse_attention_backward)(MsKernelRun *run, const MsSparseShape *shape, const void *q, const void *k,
                                    const void *v, const gint32 *chosen, const void *o, const void *lse,
                                    const void *d_o, void *dq, void *dk, void *dv, void *dsink);
  /* score = sum over heads of w relu(q . k); -inf where the key is after the query. Tiles as of attention. */
  void (*indexer_forward)(MsKernelRun *run, const MsIndexerShape *shape, const void *q, const void *k, const void *w,
                          void *scores);
  /* The indexer's own loss over the chosen keys, and its gradients: scale x the sum over queries of KL(p || softmax of
   * the scores), p the attention probabilities of the heads of `core` (q, k, lse: constant here), summed and
   * normalised. dq, dw written, dk added to. FLOP per pair 2 (core heads dqk + 3 heads d), as the row counts. */
  double (*indexer_loss)(MsKernelRun *run, const MsIndexerShape *shape, const void *iq, const void *ik, const void *iw,
                         const MsSparseShape *core, const void *q, const void *k, const void *lse, const gint32 *chosen,
                         double scale, void *diq, void *dik, void *diw);
  /* Of each row of scores [rows][n] the k largest above -inf, ties to the lower number; their numbers ascending, then
   * -1 where there are fewer. */
  void (*topk)(gint64 rows, gint64 n, gint64 k, const void *scores, gint32 *chosen);
  void (*pool_forward)(const MsPoolShape *shape, const void *x, const void *position, void *y);
  void (*pool_backward)(const MsPoolShape *shape, const void *x, const void *position, const void *y, const void *dy,
                        void *dx, void *dposition);

  /* dx has the stride of x; what lies between its rows is left alone. bias and dbias may be NULL. */
  void (*conv_forward)(const MsConvShape *shape, const void *x, const void *w, const void *bias, void *y);
  void (*conv_backward)(const MsConvShape *shape, const void *x, const void *w, const void *bias, const void *dy,
                        void *dx, void *dw, void *dbias);
  /* y [s][batch][heads][head_dim]; gradients of x, b, c, dt have their strides. */
  void (*scan_forward)(MsKernelRun *run, const MsScanShape *shape, const void *x, const void *b, const void *c,
                       const void *dt, const void *a_log, const void *dt_bias, const void *d, void *y);
  void (*scan_backward)(MsKernelRun *run, const MsScanShape *shape, const void *x, const void *b, const void *c,
                        const void *dt, const void *a_log, const void *dt_bias, const void *d, const void *dy, void *dx,
                        void *db, void *dc, void *ddt, void *da_log, void *ddt_bias, void *dd);
  void (*delta_gates_forward)(const MsDeltaGates *shape, const void *qkv, const void *a, const void *b,
                              const void *a_log, const void *dt_bias, void *q, void *k, void *v, void *g, void *beta);
  void (*delta_gates_backward)(const MsDeltaGates *shape, const void *qkv, const void *a, const void *b,
                               const void *a_log, const void *dt_bias, const void *dq, const void *dk, const void *dv,
                               const void *dg, const void *dbeta, void *dqkv, void *da, void *db, void *da_log,
                               void *ddt_bias);
  /* state_in NULL = zeros; state_out, dstate_out, dstate_in NULL = none. All gradients are written. */
  void (*delta_forward)(MsKernelRun *run, const MsDeltaShape *shape, const void *q, const void *k, const void *v,
                        const void *g, const void *beta, const void *state_in, void *o, void *inverse, void *state_out);
  void (*delta_backward)(MsKernelRun *run, const MsDeltaShape *shape, const void *q, const void *k, const void *v,
                         const void *g, const void *beta, const void *state_in, const void *inverse, const void *d_o,
                         const void *dstate_out, void *dq, void *dk, void *dv, void *dg, void *dbeta, void *dstate_in);

  /* Residual streams x [rows][n][h] (manifold-constrained hyper-connections). raw [rows][maps] = x w' / rms(x), w
   * [maps][n h]; map = sigmoid(a) for the first n (pre), 2 sigmoid(a) for the next n (post), a for the other n^2 (res),
   * a = scale raw + bias, one scale for each of the three. maps = n^2 + 2 n, or n for the head. sinkhorn: res to
   * exp(res), rows, then columns divided by their sums, `iterations` times; backward: the gradient of res in dmap
   * becomes that before it. */
  void (*stream_maps_forward)(MsKernelRun *run, gint64 rows, int n, int maps, gint64 h, double eps, const void *x,
                              const void *w, const void *bias, const void *scale, void *raw, void *map);
  void (*stream_maps_backward)(MsKernelRun *run, gint64 rows, int n, int maps, gint64 h, double eps, const void *x,
                               const void *w, const void *scale, const void *raw, const void *map, const void *dmap,
                               void *dx, void *dw, void *dbias, void *dscale);
  void (*sinkhorn_forward)(gint64 rows, int n, int iterations, int maps, void *map);
  void (*sinkhorn_backward)(gint64 rows, int n, int iterations, int maps, const void *bias, const void *scale,
                            const void *raw, void *dmap);
  /* y [rows][h] = sum of pre_i x_i; backward writes dx and the pre part of dmap. */
  void (*streams_to_input)(gint64 rows, int n, int maps, gint64 h, const void *map, const void *x, void *y);
  void (*streams_to_input_backward)(gint64 rows, int n, int maps, gint64 h, const void *map, const void *x,
                                    const void *dy, void *dx, void *dmap);
  /* y_i = sum over j of res_ij x_j + post_i f; backward writes dx, df and the post and res parts of dmap. */
  void (*output_to_streams)(gint64 rows, int n, int maps, gint64 h, const void *map, const void *x, const void *f,
                            void *y);
  void (*output_to_streams_backward)(gint64 rows, int n, int maps, gint64 h, const void *map, const void *x,
                                     const void *f, const void *dy, void *dx, void *df, void *dmap);
  void (*streams_expand)(gint64 rows, int n, gint64 h, const void *x,
                         void *y); /* the embedding to every stream; backward is streams_sum */
  void (*streams_sum)(gint64 rows, int n, gint64 h, const void *x, void *y);

  /* Vocabulary-parallel cross entropy over logits [rows][count], words [first, first + count): row maxima; then (with
   * the maxima of all ranks) logits -> exp in place, sums, and the logit of the target minus the maximum (0 when the
   * word is elsewhere); then (with summed sums) the gradient in place: (exp / sum - one-hot) * scale. */
  void (*loss_max)(gint64 rows, gint64 count, const void *logits, void *max);
  void (*loss_exp)(gint64 rows, gint64 count, gint32 first, const gint32 *target, const void *max, void *logits,
                   void *sum, void *target_logit);
  void (*loss_grad)(gint64 rows, gint64 count, gint32 first, const gint32 *target, const void *sum, double scale,
                    void *logits);

  /* Rounds x [rows][cols] to the format and back (emulation): y holds the values a low-precision kernel would multiply.
   * Returns bytes of the quantised tensor, scales included. */
  double (*quantize)(MsQuantFormat format, gboolean weight, gint64 rows, gint64 cols, const void *x, void *y);
  /* y = round(x * scale) / scale: a cast with a scale that is known before, as of delayed scaling; scale 1 for BF16. In
   * place allowed. */
  void (*cast)(MsElement element, gint64 n, double scale, const void *x, void *y);
  void (*transpose)(gint64 rows, gint64 cols, const void *x, void *y);
  double (*amax)(gint64 n, const void *x);

  void (*zero)(gint64 n, void *x);
  /* rows of `width` elements, strides apart: split, concatenation, copies between host and device. */
  void (*copy_rows)(gint64 rows, gint64 width, gint64 from_stride, const void *from, gint64 to_stride, void *to);
  /* Stands for an opaque stage: multiplies `flop` (to 2) and moves `bytes`. */
  void (*front_end)(MsKernelRun *run, double flop, double bytes);
} MsKernels;

/* The table for elements of 4 or 8 bytes, for ms_vector() or the widest narrower unit that the library was built for.
 * The same bits from every unit. */
const MsKernels *ms_kernels(size_t real_B);
/* The same for unit 0 (the widest), 1 …; NULL when there are no more. For tests. */
const MsKernels *ms_kernels_of_unit(size_t real_B, int unit);

#endif
