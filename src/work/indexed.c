/* src/work/indexed.c - MoE layers of PyTorch's operators: tokens go to their experts and back by index, in eager code
 * whatever is compiled (docs/theory/operators.md 3.6). Sources: torchtitan v0.2.2 (73a0e697) models/moe/moe.py,
 * utils.py and kernels.py, distributed/expert_parallel.py, models/llama4/infra/parallelize.py (apply_compile). */
#include "work/moe.h"
#include <math.h>

gboolean ms_torch_experts(const MsBuild *b) { return ms_framework(b->scenario)->torch_experts; }

gboolean ms_indexed(const MsBuild *b) {
  return ms_torch_experts(b) && ms_dispatcher(b->options)->carry == MS_CARRY_COPIES;
}

/* --- groups of rows of an expert --- */

enum { BF16_GROUP = 8 }; /* rows: TOKEN_GROUP_ALIGN_SIZE_M, 16 bytes of a column */

static double alignment(const MsBuild *b) { return b->quantized && b->row_align > 1 ? b->row_align : BF16_GROUP; }

double ms_group_padding(const MsBuild *b) { return b->local_experts * (alignment(b) - 1) / 2; }

double ms_group_places(const MsBuild *b) { return b->rows_expert + b->local_experts * alignment(b); }

/* --- steps --- */

typedef struct {
  double tokens, copies, arrived, places; /* bytes of an element in these rows */
} Bytes;

/* An addition by index (index_backward, aten/src/ATen/native/cuda/Indexing.cu index_put_with_sort_kernel) is a tensor
 * of zeros, the row numbers within bounds, scaled twice, a range, their sort, and the kernel that adds to what it has
 * read. */
enum { ADDED_BY_INDEX = 7 };

static const struct {
  const char *name;
  MsOpKind kind;
  struct {
    Bytes read, write;
    int kernels;
  } side[2]; /* forward, backward */
} steps[] = {
    /* x[indices // top_k] */
    [MS_INDEXED_GATHER] = {"gather tokens",
                           MS_OP_PERMUTE,
                           {{{.copies = 2}, {.copies = 2}, 2},
                            {{.copies = 2, .tokens = 2}, {.tokens = 2 + 2}, ADDED_BY_INDEX}}},
    /* vstack with a row of zeros, which the places that are over read; its backward is a view */
    [MS_INDEXED_STACK] = {"append row", MS_OP_COPY, {{{.arrived = 2}, {.arrived = 2}, 2}, {{0}, {0}, 0}}},
    /* x[permuted_indices]; 32-bit row numbers are cast */
    [MS_INDEXED_GROUP] = {"rows to groups",
                          MS_OP_SORT_CHUNKS,
                          {{{.places = 2}, {.places = 2}, 2},
                           {{.places = 2, .arrived = 2}, {.arrived = 2 + 2}, ADDED_BY_INDEX + 1}}},
    /* new_empty, index_put, all rows but the last; backward zeros, a copy into them, the rows by index */
    [MS_INDEXED_UNGROUP] = {"rows from groups",
                            MS_OP_SORT_CHUNKS,
                            {{{.places = 2}, {.places = 2}, 2},
                             {{.arrived = 2, .places = 2}, {.arrived = 2 + 2, .places = 2}, 4}}},
    /* zeros, index_put */
    [MS_INDEXED_PLACE] = {"copies in place",
                          MS_OP_UNPERMUTE,
                          {{{.copies = 2}, {.copies = 2 + 2}, 2}, {{.copies = 2}, {.copies = 2}, 1}}},
    /* to FP32, product of 1 x k scores with k x h copies of each token, to BF16; backward to FP32, the products for
     * both, to BF16 */
    [MS_INDEXED_WEIGH] = {"weigh copies",
                          MS_OP_UNPERMUTE,
                          {{{.copies = 2 + 4, .tokens = 4}, {.copies = 4, .tokens = 4 + 2}, 3},
                           {{.copies = 4 + 4, .tokens = 2 + 4 + 4}, {.copies = 4 + 2, .tokens = 4}, 4}}},
    /* DeepEP (distributed/deepep/deepep.py, combine_tokens): scores to BF16, product; backward of both factors, the
     * gradient of the scores summed over the width */
    [MS_INDEXED_WEIGH_ARRIVED] = {"weigh copies",
                                  MS_OP_UNPERMUTE,
                                  {{{.arrived = 2}, {.arrived = 2}, 2},
                                   {{.arrived = 2 + 4 + 2}, {.arrived = 2 + 2}, 4}}},
};

static double bytes_of(const MsBuild *b, const Bytes *of) {
  return b->eh * (of->tokens * b->rows_sp + of->copies * b->rows_routed + of->arrived * b->rows_expert +
                  of->places * ms_group_places(b));
}

void ms_indexed_row(MsBuild *b, MsIndexedStep step) {
  int back = b->pass == MS_PASS_DGRAD, kernels = steps[step].side[back].kernels;
  if (kernels == 0) return;
  MsOp *op =
      ms_row_memory(b, steps[step].kind, steps[step].name, bytes_of(b, &steps[step].side[back].read),
                    bytes_of(b, &steps[step].side[back].write), (int)ceil(kernels * b->scenario->laws.plain_operators));
  op->m = MAX(b->rows_routed, b->rows_expert), op->n = b->eh;
}

/* Who goes where: a count (histc), a stable sort of 64-bit expert numbers with their places (eight digits of eight
 * bits, read once more for their counts), and scores in that order. */
void ms_indexed_order(MsBuild *b) {
  enum { PAIR = 8 + 8, DIGITS = 8, COUNTED = 8 + 8, SCORES = 8 + 4 };
  double copies = b->rows_routed;
  ms_row_memory(b, MS_OP_PREPROCESS, "dispatch preprocess", (PAIR * DIGITS + COUNTED + SCORES) * copies,
                (PAIR * DIGITS + 4) * copies, (int)ceil(3 * b->scenario->laws.plain_operators));
}

/* Where they lie on the expert's rank: sums of counts for each rank, two running sums, their differences, sizes rounded
 * up, 32-bit row numbers filled with -1 and then by a Triton kernel (kernels.py, generate_permute_indices), and ends of
 * the groups for the grouped products. */
void ms_indexed_places(MsBuild *b) {
  int kernels = 14 + 1 + (b->layout->group[MS_GROUP_TP_EP].size > 1 ? 2 : 0);
  ms_row_memory(b, MS_OP_PREPROCESS, "places in groups", 0, (4 + 4) * ms_group_places(b),
                (int)ceil(kernels * b->scenario->laws.plain_operators));
}

double ms_indexed_kept_B(const MsBuild *b) { return 8 * b->rows_routed + 4 * ms_group_places(b); }

/* --- the router --- */

/* Kernels of TokenChoiceTopKRouter behind its gate, and of the layer's count of tokens: eager, and compiled, where
 * pointwise operators are one kernel between those that are not. Forward to FP32, score function, bias, top-k, gather,
 * scale, histc, count; groups: top-k of two, their sum, top-k, ones, scatter, fill; normalised: sum, epsilon, quotient.
 * Backward the scale, zeros and scatter, score function, to BF16; of the quotient both gradients, and a sum of two. */
static const struct {
  int choice[2], groups[2], normalised[2];
} router[] = {{{8, 5}, {6, 0}, {3, 7}}, {{5, 3}, {6, 0}, {0, 0}}};

/* Bytes a logit: to FP32, scores, biased scores, top-k; what is masked; backward zeros, both inputs of the score
 * function's, to BF16. Compiled without the FP32 copies. */
static const struct {
  double read[2], write[2], masked;
} logits[] = {{{2 + 4 + 4 + 4, 8 + 4}, {4 + 4 + 4, 4 + 4 + 2}, 4}, {{2 + 4, 8}, {4 + 4, 4 + 2}, 4}};

void ms_torch_router(MsBuild *b) {
  const MsModel *m = b->model;
  int back = b->pass == MS_PASS_DGRAD, compiled = b->options->torch_compile, n = router[compiled].choice[back];
  gboolean groups = m->moe_router_num_groups > 1;
  double all = b->rows_sp * m->num_experts, masked = groups && !back ? logits[compiled].masked : 0;
  if (groups) n += router[compiled].groups[back];
  if (!m->moe_router_pre_softmax) n += router[compiled].normalised[back];
  MsOp *op =
      ms_row_memory(b, MS_OP_ROUTER_TOPK, "router top-k", (logits[compiled].read[back] + 2 * masked) * all,
                    (logits[compiled].write[back] + masked) * all, (int)ceil(n * b->scenario->laws.plain_operators));
  op->m = b->rows_sp, op->n = m->num_experts, op->k = m->moe_router_topk;
}
