/* src/describe/precision.h - what moesim knows of a precision: the columns of precision.def. */
#ifndef MS_DESCRIBE_PRECISION_H
#define MS_DESCRIBE_PRECISION_H

#include "describe/enums.h"

typedef struct {
  size_t offset; /* in MsHardware */
  const char *key;
} MsPeak;
static inline double ms_peak_of(const void *hardware, MsPeak peak) {
  return *(const double *)(gconstpointer)((const char *)hardware + peak.offset);
}

typedef struct {
  const char *word;
  double element_B; /* with its share of the scales */
  MsPeak peak;
  MsOpDtype like; /* where a machine does not say that peak: `as_fast` times the peak of this format; itself: none */
  double as_fast;
  const gint8 *curves; /* formats whose curve may stand in, best first; -1 at the end */
} MsOpDtypeRow;
extern const MsOpDtypeRow ms_op_dtypes[]; /* [MS_N_ODT] */

typedef struct {
  const char *word, *doc;
  MsPeak peak;
  int bits; /* of an element: 16, 8, 4 */
  MsOpDtype operand;
  MsDtype dtype;       /* of parameters beside the low-precision ones, and of activations */
  double row_align;    /* rows of a grouped product come in multiples of it; 0: of any number */
  gboolean amax;       /* a cast reads the tensor for its maximum first */
  gboolean delayed;    /* scales are state: they are known before a cast, and belong to a module */
  gboolean per_tensor; /* one scale for a tensor: a norm can write it, and only rows of it are gathered */
  /* of TransformerEngine 2, minor versions, 0: never: before it rows and columns are cast in kernels that read their
   * input each (2.14: ed424d306); scales are turned in kernels of their own (MXFP8 2.12: 99df88106, NVFP4 2.17:
   * 720ec27ec; of weights 2.18: 42cb81b14), one for so many elements; since it the maxima of all experts are found at
   * once (2.11: cast.cpp) */
  int casts_apart_until, scales_turned_until, weight_scales_turned_until;
  double scale_block;
  int maxima_at_once_since;
  double copy_B;                 /* of a weight and its scales: one copy in the precision of the products */
  gboolean gathers_by_gradients; /* low parameters have no buffer of their own, the gradients' one serves */
  double gathered_B;             /* of a weight that is gathered where low-precision parameters are kept */
  gboolean output_proj;          /* TransformerEngine can do the head in it */
  gboolean fused_mlp;            /* one kernel can compute the experts up to the quantised input of fc2, and back */
  gboolean in_auto;              /* a plan may choose it by itself */
  /* --fp8-format and --fp8-recipe, or those of fp4 (NULL below 16 bits: Megatron-LM has none); whether the release of
   * MT-MegatronLM has it; ModelZoo's PR; TorchTitan's converter of the model, "": it needs none; DeepSpeed's switch,
   * NULL: it has none */
  const char *launch_format, *launch_recipe;
  gboolean launch_mt;
  const char *launch_modelzoo, *launch_titan, *launch_deepspeed;
} MsPrecisionRow;

extern const MsPrecisionRow ms_precisions[];

/* The first MsPrecision whose products have so many bits, with parameters beside them of that type; -1: none. */
int ms_precision_of(int bits, MsDtype dtype);

#endif
