/* src/work/moe.h - internal to work/: the parts of MLP and MoE layers (mlp.c, experts.c, dispatch.c, shared_expert.c)
 * that moe.c puts together.
 *
 * Every function lays rows down in b->list for the pass that b->pass says (see build.h). Widths are those of one rank,
 * in elements. */
#ifndef MS_WORK_MOE_H
#define MS_WORK_MOE_H

#include "work/build.h"

/* --- mlp.c --- */

/* The first product of an MLP of width f, gate and up together. */
MsLinear ms_linear_fc1(const MsBuild *b, const char *name, double f);
double ms_fc1_width(const MsBuild *b, double f); /* of fc1 of an MLP of width f: twice f when gated */
/* Activation between fc1 and fc2 over rows x width (of its output). */
void ms_activation(MsBuild *b, MsOpKind kind, const char *name, double rows, double width);
/* Both halves of the experts' gate are clamped in front of its kernel, which keeps a copy of fc1's output so. */
gboolean ms_clamps_apart(const MsBuild *b);
/* Kept between fc1's output and the activation's, each of `elements`, where a gate runs operator by operator. */
double ms_gate_parts_B(const MsBuild *b, double elements, gboolean weighted);
/* Bytes of `elements` of the activation's input where it is kept; the casts to FP8 and back when it is kept so (nothing
 * otherwise). */
double ms_activation_input_B(const MsBuild *b, double elements);
/* The activation's output is not kept: made again (of `width` columns over b->rows) before fc2's backward reads it. */
gboolean ms_activation_again(const MsBuild *b);
void ms_recompute_activation(MsBuild *b, double width);
void ms_store_activation_input(MsBuild *b, double rows, double width);
void ms_restore_activation_input(MsBuild *b, double rows, double width);
/* A whole two-layer MLP of width f over b->rows gathered rows. */
void ms_mlp_core_forward(MsBuild *b, const char *fc1, const char *fc2, double f);
void ms_mlp_core_backward(MsBuild *b, const char *fc1, const char *fc2, double f);

/* --- experts.c --- */

double ms_padded_expert_rows(const MsBuild *b); /* rows of the routed experts with the alignment of low precision */
gboolean ms_low_dispatch(const MsBuild *b);     /* tokens cross in low precision */
void ms_experts_forward(MsBuild *b);
/* Kept of so many rows between fc1's output and the activation's, beside both. */
double ms_expert_gate_parts_B(const MsBuild *b, double rows);
double ms_experts_transient_B(const MsBuild *b); /* behind fc2, beside what stands in front of the experts */
void ms_experts_backward(MsBuild *b);

/* --- dispatch.c --- */

void ms_to_experts(MsBuild *b);   /* tokens from the router to expert order on their expert ranks */
void ms_from_experts(MsBuild *b); /* expert outputs back to token order, summed */
/* Buffers that are all referenced while the layer's own kept tensors exist. */
double ms_dispatch_transient_B(const MsBuild *b);
/* The output of the experts where the router weights multiply behind them: kept in the forward pass, used and freed in
 * the backward pass. */
void ms_keep_expert_output(MsBuild *b);
void ms_weigh_backward(MsBuild *b);
/* With EP overlap what a layer does around combine runs on the stream of the exchanges: between these two. */
void ms_enter_exchange_stream(MsBuild *b);
void ms_leave_exchange_stream(MsBuild *b);

/* --- indexed.c: experts of PyTorch's operators --- */

gboolean ms_torch_experts(const MsBuild *b);
gboolean ms_indexed(const MsBuild *b);     /* their tokens are put in order by index, copies of them sent */
double ms_group_padding(const MsBuild *b); /* rows that the groups of their local experts are rounded up by */
/* Places of the rows in groups, at worst a whole group more for each expert (utils.py, _permute). */
double ms_group_places(const MsBuild *b);
typedef enum {
  MS_INDEXED_GATHER,
  MS_INDEXED_STACK,
  MS_INDEXED_GROUP,
  MS_INDEXED_UNGROUP,
  MS_INDEXED_PLACE,
  MS_INDEXED_WEIGH,
  MS_INDEXED_WEIGH_ARRIVED
} MsIndexedStep;
void ms_indexed_row(MsBuild *b, MsIndexedStep step); /* of this pass, backward its gradient */
void ms_indexed_order(MsBuild *b);
void ms_indexed_places(MsBuild *b);
double ms_indexed_kept_B(const MsBuild *b); /* row numbers */
void ms_torch_router(MsBuild *b);           /* behind the gate, this pass */

/* --- shared_expert.c --- */

gboolean ms_shared_beside(const MsBuild *b); /* the shared expert runs beside the crossings */
double ms_shared_input_B(const MsBuild *b);  /* kept of its input beside what the router keeps */
void ms_shared_gate_backward(MsBuild *b);    /* on its output; nothing without a gate */
void ms_shared_half(MsBuild *b, gboolean first,
                    int from);   /* `from`: the row that its input comes from; nothing when it does not run beside */
void ms_join_shared(MsBuild *b); /* the next row adds its output */
/* The whole expert on the stream of the compute, in its place in the order of the layer (TorchTitan: behind what issues
 * combine). */
void ms_shared_here(MsBuild *b);

#endif
