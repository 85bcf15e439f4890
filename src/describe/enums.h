/* src/describe/enums.h - the closed sets of words that files may use. The words are the field's own, spelled as
 * Megatron-Core spells them; each enum has its NULL-terminated list of words in the same order. */
#ifndef MS_DESCRIBE_ENUMS_H
#define MS_DESCRIBE_ENUMS_H

#include "describe/cp_comm.h"
#include "sched/kind.h"

/* describe/precision.h says what they are */
typedef enum {
#define MS_PRECISION(id, ...) MS_##id,
#include "describe/precision.def"
#undef MS_PRECISION
  MS_N_PRECISIONS
} MsPrecision;
extern const char *const ms_precision_words[];
/* Formats of the operands of a product. */
typedef enum {
#define MS_OP_DTYPE(id, ...) MS_ODT_##id,
#include "describe/op_dtype.def"
#undef MS_OP_DTYPE
  MS_N_ODT
} MsOpDtype;
extern const char *const ms_odt_words[];

#define WORD(value, word) value
#define WORD_SET(type, name, ...)                                      \
  typedef enum { __VA_ARGS__ } type;                                   \
  enum { MS_N_##type = sizeof((type[]){__VA_ARGS__}) / sizeof(type) }; \
  extern const char *const ms_##name##_words[];
#include "describe/words.def"
#undef WORD
#undef WORD_SET

static inline double ms_dtype_B(MsDtype dtype) {
  switch (dtype) {
  case MS_DT_FP32: return 4;
  case MS_DT_BF16:
  case MS_DT_FP16: break;
  }
  return 2;
}

/* describe/dispatcher.h says what they do */
typedef enum {
#define MS_DISPATCHER(id, ...) MS_DISPATCH_##id,
#include "describe/dispatcher.def"
#undef MS_DISPATCHER
  MS_N_DISPATCHERS
} MsDispatcher;
extern const char *const ms_dispatcher_words[];

/* Sets of modules: each row is a bit, in the order of its table. */
enum {
#define MS_RECOMPUTE_MODULE(id, ...) MS_RM_NUMBER_##id,
#define MS_OFFLOAD_MODULE(id, ...)   MS_OM_NUMBER_##id,
#define MS_CUDA_GRAPH(id, ...)       MS_CG_NUMBER_##id,
#include "describe/recompute_module.def"
  MS_N_RECOMPUTE_MODULES,
  MS_OM_FIRST = -1,
#include "describe/offload_module.def"
  MS_N_OFFLOAD_MODULES,
  MS_CG_FIRST = -1,
#include "describe/cuda_graph.def"
  MS_N_CUDA_GRAPHS,
#undef MS_RECOMPUTE_MODULE
#undef MS_OFFLOAD_MODULE
#undef MS_CUDA_GRAPH
#define MS_RECOMPUTE_MODULE(id, ...) MS_RM_##id = 1 << MS_RM_NUMBER_##id,
#define MS_OFFLOAD_MODULE(id, ...)   MS_OM_##id = 1 << MS_OM_NUMBER_##id,
#define MS_CUDA_GRAPH(id, ...)       MS_CG_##id = 1 << MS_CG_NUMBER_##id,
#include "describe/recompute_module.def"
#include "describe/offload_module.def"
#include "describe/cuda_graph.def"
#undef MS_RECOMPUTE_MODULE
#undef MS_OFFLOAD_MODULE
#undef MS_CUDA_GRAPH
};
extern const char *const ms_recompute_module_words[], *const ms_offload_module_words[], *const ms_cuda_graph_words[];

typedef enum {
#define MS_OPTIMIZER(id, ...) MS_OPT_##id,
#include "describe/optimizer.def"
#undef MS_OPTIMIZER
  MS_N_OPTIMIZERS
} MsOptimizer;
extern const char *const ms_optimizer_words[];
/* How matrices are stepped: as all else, or by Newton-Schulz iterations of their momentum, without a second moment. */
typedef enum { MS_MATRICES_BY_ADAM, MS_MATRICES_ORTHOGONALISED } MsMatrixStep;
typedef struct {
  const char *word, *doc;
  MsMatrixStep matrices;
  gboolean launched, launched_mt; /* by Megatron-LM, by MT-MegatronLM */
} MsOptimizerRow;
extern const MsOptimizerRow ms_optimizers[];                /* [MS_N_OPTIMIZERS] */
gboolean ms_optimizer_matrix_second(MsOptimizer optimizer); /* matrices have a second moment */
typedef enum {
#define MS_ATTN_BACKEND(id, ...) MS_ATTN_##id,
#include "describe/attention_backend.def"
#undef MS_ATTN_BACKEND
  MS_N_ATTN_BACKENDS
} MsAttnBackend;
extern const char *const ms_attn_backend_words[];
/* Whose rate a kernel has: that of the backend which the software's family calls flash attention, that of the machine's
 * curves, FlashAttention-2's, or that of its forerunner in Triton. */
typedef enum { MS_ATTN_AS_SOFTWARE, MS_ATTN_NEWEST, MS_ATTN_SECOND, MS_ATTN_IN_TRITON } MsAttnGeneration;
typedef struct {
  const char *word, *doc;
  MsAttnGeneration generation;
  gboolean stores_scores, stores_scores_local; /* in layers with and without TransformerEngine */
  gboolean batch_first;                        /* works so, and keeps its output so */
  const char *nvte_fused, *nvte_flash;         /* NVTE_FUSED_ATTN and NVTE_FLASH_ATTN that choose it */
  const char *local_flag;                      /* chooses it in layers without TransformerEngine; NULL: none */
} MsAttnBackendRow;
extern const MsAttnBackendRow ms_attn_backends[];

/* describe/framework.h says what they do */
typedef enum {
#define MS_FRAMEWORK(id, ...) MS_FRAMEWORK_##id,
#include "describe/framework.def"
#undef MS_FRAMEWORK
  MS_N_FRAMEWORKS
} MsFramework;
extern const char *const ms_framework_words[];

/* What each word of an enumeration means, one sentence each, where its table says it; else NULL. (transfer none) */
const char *const *ms_word_sentences(const char *const *words);

#endif
