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
typedef enum { MS_ODT_FP32, MS_ODT_BF16, MS_ODT_FP8, MS_ODT_FP8_BLOCK, MS_ODT_MXFP8, MS_ODT_NVFP4, MS_N_ODT } MsOpDtype;
extern const char *const ms_odt_words[];

typedef enum { MS_FIDELITY_BOUND, MS_FIDELITY_FAST, MS_FIDELITY_FULL } MsFidelity; /* sim/simulate.h */
extern const char *const ms_fidelity_words[];                                      /* bound fast full */

typedef enum { MS_DT_FP32, MS_DT_BF16, MS_DT_FP16, MS_N_DTYPES } MsDtype;
extern const char *const ms_dtype_words[]; /* fp32 bf16 fp16 */
static inline double ms_dtype_B(MsDtype dtype) { return dtype == MS_DT_FP32 ? 4.0 : 2.0; }

typedef enum { MS_ORDER_DP_PP, MS_ORDER_PP_DP } MsRankOrder;
extern const char *const ms_order_words[]; /* tp-cp-ep-dp-pp tp-cp-ep-pp-dp */

/* describe/dispatcher.h says what they do */
typedef enum {
#define MS_DISPATCHER(id, ...) MS_DISPATCH_##id,
#include "describe/dispatcher.def"
#undef MS_DISPATCHER
  MS_N_DISPATCHERS
} MsDispatcher;
extern const char *const ms_dispatcher_words[];

typedef enum { MS_RECOMPUTE_NONE, MS_RECOMPUTE_SELECTIVE, MS_RECOMPUTE_FULL } MsRecompute;
extern const char *const ms_recompute_words[]; /* none selective full */
typedef enum { MS_RECOMPUTE_UNIFORM, MS_RECOMPUTE_BLOCK } MsRecomputeMethod;
extern const char *const ms_recompute_method_words[]; /* uniform block */

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

typedef enum { MS_FSDP_NONE, MS_FSDP_OPTIM, MS_FSDP_OPTIM_GRADS, MS_FSDP_OPTIM_GRADS_PARAMS } MsFsdp;
extern const char *const ms_fsdp_words[]; /* none optim optim-grads optim-grads-params */

typedef enum {
#define MS_OPTIMIZER(id, ...) MS_OPT_##id,
#include "describe/optimizer.def"
#undef MS_OPTIMIZER
  MS_N_OPTIMIZERS
} MsOptimizer;
extern const char *const ms_optimizer_words[];
typedef struct {
  const char *word, *doc;
  gboolean matrix_second; /* matrices have a second moment, as all else has */
  gboolean orthogonal;    /* and are stepped by Newton-Schulz iterations (work/step.c) */
} MsOptimizerRow;
extern const MsOptimizerRow ms_optimizers[]; /* [MS_N_OPTIMIZERS] */
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
typedef enum { MS_IMPL_TE, MS_IMPL_LOCAL } MsTransformerImpl;
extern const char *const ms_impl_words[]; /* transformer_engine local */
typedef enum { MS_GRAPH_TE, MS_GRAPH_LOCAL } MsGraphImpl;
extern const char *const ms_graph_impl_words[]; /* transformer_engine local */
typedef enum { MS_CE_NATIVE, MS_CE_TE } MsCeImpl;
extern const char *const ms_ce_impl_words[]; /* native te */
typedef enum { MS_OPTIMIZER_FUSED, MS_OPTIMIZER_FOREACH } MsOptimizerImpl;
extern const char *const ms_optimizer_impl_words[]; /* fused foreach */
typedef enum { MS_LINEAR_CP_HEADWISE, MS_LINEAR_CP_CHUNKWISE } MsLinearCp;
extern const char *const ms_linear_cp_words[]; /* headwise chunkwise */
typedef enum { MS_MUON_DUPLICATED, MS_MUON_BLOCKWISE, MS_MUON_DISTRIBUTED } MsMuonTp;
extern const char *const ms_muon_tp_words[]; /* duplicated blockwise distributed */
typedef enum { MS_GROUPED_TE, MS_GROUPED_TURBO } MsGroupedLibrary;
extern const char *const ms_grouped_library_words[];                       /* transformer_engine primus_turbo */
typedef enum { MS_MHC_NATIVE, MS_MHC_TRITON, MS_MHC_CUTILE } MsMhcBackend; /* kernels of hyper-connections */
extern const char *const ms_mhc_backend_words[];                           /* native triton cutile */
typedef enum { MS_OUTER_NO_SHARD, MS_OUTER_OPTIM } MsOuterDp;
extern const char *const ms_outer_dp_words[]; /* no_shard optim */

/* describe/framework.h says what they do */
typedef enum {
#define MS_FRAMEWORK(id, ...) MS_FRAMEWORK_##id,
#include "describe/framework.def"
#undef MS_FRAMEWORK
  MS_N_FRAMEWORKS
} MsFramework;
extern const char *const ms_framework_words[];

typedef enum { MS_GOAL_STEP_TIME, MS_GOAL_TOKENS, MS_GOAL_COST, MS_GOAL_ENERGY, MS_GOAL_DEADLINE, MS_N_GOALS } MsGoal;
extern const char
    *const ms_goal_words[]; /* step_time tokens_per_s_per_gpu cost_per_token energy_per_token gpus_for_deadline */

typedef enum { MS_NORM_RMS, MS_NORM_LAYER } MsNorm;
extern const char *const ms_norm_words[]; /* RMSNorm LayerNorm */
typedef enum { MS_ACT_SILU, MS_ACT_GELU, MS_ACT_QUICK_GELU, MS_ACT_SQUARED_RELU } MsActivation;
extern const char *const ms_activation_words[]; /* silu gelu quick_gelu squared_relu */
typedef enum { MS_POS_ROPE, MS_POS_YARN, MS_POS_LEARNED, MS_POS_NONE } MsPosition;
extern const char *const ms_position_words[]; /* rope yarn learned_absolute none */
typedef enum { MS_SCORE_SOFTMAX, MS_SCORE_SIGMOID, MS_SCORE_SQRTSOFTPLUS } MsRouterScore;
extern const char *const ms_router_score_words[]; /* softmax sigmoid sqrtsoftplus */
typedef enum {
  MS_BALANCE_AUX,
  MS_BALANCE_SEQ_AUX,
  MS_BALANCE_GLOBAL_AUX,
  MS_BALANCE_SINKHORN,
  MS_BALANCE_NONE
} MsBalance;
extern const char *const ms_balance_words[]; /* aux_loss seq_aux_loss global_aux_loss sinkhorn none */
typedef enum { MS_ROPE_PLAIN, MS_ROPE_LINEAR, MS_ROPE_LLAMA3, MS_ROPE_YARN } MsRopeKind;
extern const char *const ms_rope_kind_words[]; /* none linear llama3 yarn */

/* What each word of an enumeration means, one sentence each, where its table says it; else NULL. (transfer none) */
const char *const *ms_word_sentences(const char *const *words);

#endif
