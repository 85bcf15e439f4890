/* src/describe/scenario.h - one training run: model, machine, layout, options, and perhaps what was measured.
 *
 * The keys are those of docs/reference.md; schema 1. const after load. */
#ifndef MS_DESCRIBE_SCENARIO_H
#define MS_DESCRIBE_SCENARIO_H

#include <math.h>

#include "describe/cluster.h"
#include "describe/dispatcher.h"
#include "describe/disturbance.h"
#include "describe/hardware.h"
#include "describe/laws.h"
#include "describe/lengths.h"
#include "describe/lora.h"
#include "describe/model.h"
#include "describe/pools.h"
#include "describe/precision.h"
#include "describe/routing.h"
#include "describe/stack.h"

typedef struct {
  int seq_length;        /* s */
  int micro_batch_size;  /* b */
  int global_batch_size; /* GBS, sequences */
  int local_batch_size;  /* of a replica, between flushes of its pipeline; 0: all */
  MsPrecision precision;
  MsOptimizer optimizer;
  MsRouting routing;
  MsLengths sequence_lengths; /* of what is packed into one sequence of seq_length tokens */
  MsLora lora;
} MsTraining;

static inline const MsPrecisionRow *ms_precision(const MsTraining *training) {
  return &ms_precisions[training->precision];
}

typedef struct {                                        /* as written; resolved into MsLayout by layout/layout.h */
  int tp, cp, pp, vpp, ep, etp;                         /* 1 when left out; etp 1 */
  int dp, edp;                                          /* MS_NULL_INT when left out; checked against gpus */
  int microbatch_group_size_per_virtual_pipeline_stage; /* 0 = pp */
  MsScheduleKind schedule;
  char *pipeline_layout; /* NULL: layers split evenly */
  gboolean account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split;
  int decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers; /* 0 = not given */
  MsCpComm cp_comm_type;
  MsRankOrder order;
} MsLayoutSpec;

typedef struct {
  MsRecompute granularity;
  guint32 modules;
  MsRecomputeMethod method;
  int num_layers; /* of full recompute; 1 */
} MsRecomputeSpec;

typedef struct {
  gboolean sequence_parallel; /* default: tp > 1 (-1 until the layout is resolved) */
  MsDispatcher dispatcher;    /* never open after loading: describe/scenario.c has the default */
  gboolean ep_overlap, delay_wgrad, overlap_grad_reduce, overlap_param_gather, tp_comm_overlap;
  MsRecomputeSpec recompute;
  guint32 offload_modules;
  double optimizer_offload_fraction;
  guint32 cuda_graph_scope;
  MsGraphImpl cuda_graph_impl;
  gboolean distributed_optimizer;
  MsFsdp fsdp;
  gboolean fsdp_double_buffer;
  MsDtype main_grads_dtype, grad_reduce_dtype, expert_grad_reduce_dtype, exp_avg_dtype, exp_avg_sq_dtype,
      main_params_dtype;
  gboolean disable_parameter_transpose_cache, fp8_param_gather, reuse_fp32_param, cross_entropy_fusion;
  MsAttnBackend attention_backend;
  MsTransformerImpl transformer_impl;
  MsCeImpl cross_entropy_fusion_impl;
  MsOptimizerImpl optimizer_impl;
  MsMuonTp muon_tp_mode;
  MsLinearCp linear_cp_mode;
  MsMhcBackend mhc_backend;
  MsGroupedLibrary grouped_gemm_library;
  gboolean moe_grouped_gemm, moe_router_fusion, moe_permute_fusion, moe_shared_expert_overlap,
      moe_router_padding_for_quantization;
  double moe_expert_rank_capacity_factor; /* NaN = none */
  double moe_paged_stash_buffer_size_factor_cuda;
  gboolean moe_paged_stash, use_transformer_engine_op_fuser, fused_grouped_mlp;
  int dispatcher_num_sms; /* 0 = the dispatcher's own */
  gboolean cuda_graph_shared_experts;
  int cuda_device_max_connections; /* 0 = unset */
  int cpu_offloading_num_layers;
  gboolean offload_optimizer_states;
  int swap_optimizer_times;
  gboolean fp4_param_gather, fp8_dot_product_attention, fp8_output_proj, tp_only_amax_red, fp8_dispatch,
      activation_func_fp8_input_store;
  int num_layers_at_start_in_bf16, num_layers_at_end_in_bf16;
  gboolean keep_mtp_spec_in_bf16, reuse_grad_buf_for_mxfp8_param_ag;
  gboolean overlap_param_gather_with_optimizer_step, defer_embedding_wgrad_compute;
  int wgrad_deferral_limit; /* passes of the head, 0 = all of the step */
  gboolean overlap_p2p_comm, overlap_p2p_comm_warmup_flush, gradient_accumulation_fusion;
  gboolean recompute_early_stop, torch_compile;
  gboolean optimizer_post_validation; /* -1: when the schedule is a zero-bubble one */
  int num_distributed_optimizer_instances;
  MsOuterDp outer_dp_sharding_strategy;
  gboolean moe_memory_efficient_permutation, deterministic_mode, deterministic_attention;
  gboolean use_fused_weighted_squared_relu, check_for_nan_in_loss_and_grad, apply_rope_fusion;
  gboolean hybrid_context_parallel;
  int max_seqlen_per_dp_cp_rank; /* 0 = seq_length / cp */
  gboolean lcma;
  double lcma_workspace_B;
} MsOptions;

/* One kernel holds the experts' activation and the router's weight: all gated ones, squared ReLU where it is asked for
 * (Megatron-LM transformer/moe/experts.py, fusions/fused_weighted_squared_relu.py). */
static inline gboolean ms_weighted_in_kernel(const MsModel *m, const MsOptions *o) {
  return m->gated || (m->activation == MS_ACT_SQUARED_RELU && o->use_fused_weighted_squared_relu);
}

static inline const MsDispatcherRow *ms_dispatcher(const MsOptions *options) {
  return &ms_dispatchers[options->dispatcher];
}

typedef struct { /* figures of a real run; NaN / NULL where absent */
  double step_time_s, tokens_per_s_per_gpu, tflops_per_gpu;
  double peak_memory_GiB, allocated_memory_GiB, peak_reserved_GiB;
  char *memory_rank; /* "max", "0", "last" */
  gboolean out_of_memory;
  char *flops_convention, *source, *config_confidence, *time_from;
  double weight, rounding;
  double activation_memory_GiB, model_state_memory_GiB, activation_memory_relative;
  JsonNode *unknown; /* list of words; NULL: nothing was guessed */
  /* the remaining keys of the file (published, breakdown_s, ...) are accepted and not compared */
} MsMeasured;

typedef struct MsScenario {
  char *file; /* it came from, for messages */
  char *name, *software, *doc;
  MsModel *model;                       /* owned */
  MsHardware *hardware;                 /* owned */
  JsonNode *model_json, *hardware_json; /* as written, to write the scenario back */
  MsPools pools;                        /* of several kinds of machines, `hardware` being that of `pools.own`; owned */
  MsStack stack;                        /* what `software` names, or the default */
  MsLaws laws;                          /* of software/laws.json, but for those that the file gives */
  MsFramework framework;                /* a row of describe/framework.def */
  int gpus;                             /* W */
  MsTraining training;
  MsLayoutSpec layout;
  MsOptions options;
  MsClusterSpec cluster;
  gboolean strict;    /* assumed figures of the machine count as unknown (describe/sources.h) */
  gboolean borrowed;  /* model, hardware and their JSON belong to another scenario */
  JsonObject *stated; /* what the file says; NULL in copies and in what was made by hand */
  gboolean has_measured;
  MsMeasured measured;
} MsScenario;

extern const MsFieldTable ms_scenario_table, ms_training_table, ms_layout_table, ms_options_table, ms_recompute_table,
    ms_measured_table;

/* How far kernels and devices differ, relative standard deviations: as measured of the machine, else the laws. */
static inline double ms_kernel_jitter(const MsScenario *s) {
  return isnan(s->hardware->kernel_jitter) ? s->laws.kernel_jitter : s->hardware->kernel_jitter;
}

static inline double ms_clock_spread(const MsScenario *s) {
  return isnan(s->hardware->clock_spread) ? s->laws.clock_spread : s->hardware->clock_spread;
}

/* Whose rate attention has; a family that calls nothing else so has the newest. */
static inline MsAttnGeneration ms_attn_generation(const MsScenario *s) {
  MsAttnGeneration own = ms_attn_backends[s->options.attention_backend].generation;
  if (own == MS_ATTN_AS_SOFTWARE) own = ms_attn_backends[s->stack.family.flash].generation;
  return own == MS_ATTN_AS_SOFTWARE ? MS_ATTN_NEWEST : own;
}

/* Those without _mixed refuse machines of several kinds (pools), which few commands know. */
MsScenario *ms_scenario_load(const char *filename, GError **error); /* "-" is stdin */
MsScenario *ms_scenario_load_mixed(const char *filename, GError **error);
MsScenario *ms_scenario_load_on(const char *filename, const char *hardware, GError **error); /* mixed, ms_put_on */
/* Puts a machine (a name of hardware/, or a path from the working folder; NULL: leaves it) in the place of the one that
 * the document, a scenario or a request, names; what that changes of a base holds of this one too. FALSE: there is no
 * such machine, or the document has several (pools). */
gboolean ms_put_on(const MsJson *doc, const char *hardware, GError **error);
/* As if the file said "strict". */
void ms_scenario_be_strict(MsScenario *scenario);
MsScenario *ms_scenario_from_doc(const MsJson *doc, GError **error);
/* FALSE with an error that says what a file is and what takes it, when it is another kind than the one with that key:
 * "training" a scenario, "axes" a what-if study, "run" a goodput study. */
gboolean ms_doc_check_kind(const MsJson *doc, const char *key, GError **error);
MsScenario *ms_scenario_from_doc_mixed(const MsJson *doc, GError **error);
/* TRUE where it has no pools; else FALSE and *error, in the words of `what`: "a launch script is". */
gboolean ms_scenario_refuse_pools(const MsScenario *scenario, const char *what, GError **error);
/* What the stages of a pool see: an alias of the scenario (nothing in it is owned, do not free it), whose hardware is
 * the pool's and which has no pools; `gpus` stays that of the whole job. */
MsScenario ms_scenario_of_pool(const MsScenario *scenario, int pool);
/* The job of pools of replicas as one of pool `own` sees it: such an alias of the machine `own`, whose global batch is
 * what all GPUs would do if each had as many microbatches as hers; 0 where none can have a whole number. */
MsScenario ms_scenario_seen_from(const MsScenario *scenario, int own);
/* Sequences of a step, also of such a view. */
static inline gint64 ms_scenario_batch(const MsScenario *s) {
  return s->pools.shares > 0 ? ms_pools_batch(&s->pools) : s->training.global_batch_size;
}
/* "64 x h100-sxm", "64 x h100-sxm + 64 x a100-sxm". (transfer full) */
char *ms_scenario_machines_text(const MsScenario *scenario);
/* Several kinds of machines: how many, 1 without pools; and each. */
static inline int ms_scenario_machines(const MsScenario *s) { return MAX(ms_pools_count(&s->pools), 1); }
static inline const MsHardware *ms_scenario_machine(const MsScenario *s, int i) {
  return ms_pools_count(&s->pools) > 0 ? s->pools.pool[i].hardware : s->hardware;
}
/* Those among which the stages of one pipeline lie. */
static inline int ms_scenario_stage_machines(const MsScenario *s) { return MAX(s->pools.n, 1); }
static inline const MsHardware *ms_scenario_stage_machine(const MsScenario *s, int i) {
  return s->pools.n > 0 ? s->pools.pool[i].hardware : s->hardware;
}
/* GPUs of machine i. */
static inline int ms_scenario_machine_gpus(const MsScenario *s, int i) {
  return ms_pools_count(&s->pools) > 0 ? s->pools.pool[i].gpus : s->gpus;
}
/* Bytes of an element of the experts' gradients on the wire. */
static inline double ms_expert_reduce_B(const MsOptions *o) {
  return ms_dtype_B((int)o->expert_grad_reduce_dtype < 0 ? o->grad_reduce_dtype : o->expert_grad_reduce_dtype);
}
/* Deep copy; with share = TRUE model and hardware are not copied but borrowed from `from`, which must outlive it. */
MsScenario *ms_scenario_copy(const MsScenario *from, gboolean share);
void ms_scenario_free(MsScenario *scenario);
/* Whether the file it was loaded from gives that key a value; `table` of training, layout or options. */
gboolean ms_scenario_states(const MsScenario *scenario, const MsFieldTable *table, const char *key);
/* "precision bf16, dispatcher deepep": what the file leaves out of `training`, and the options left out whose value
 * follows from something else than their row's default. Empty for what was not loaded. (transfer full) */
char *ms_scenario_defaults(const MsScenario *scenario);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsScenario, ms_scenario_free)
/* The complete scenario as a file (every key written), into the current position of `out`. */
void ms_scenario_write(const MsScenario *scenario, const char *key, MsJsonOut *out);
char *ms_scenario_text(const MsScenario *scenario, int indent); /* (transfer full) */
JsonNode *ms_scenario_node(const MsScenario *scenario);         /* (transfer full) */
/* As it stands in that file (NULL: on standard output): models and machines that lie beside the scenario's own are
 * found from there, too. (transfer full) */
char *ms_scenario_text_in(const MsScenario *scenario, const char *file);
/* What it says of `hardware` (hardware_json, not NULL) as it stands there. (transfer full) */
JsonNode *ms_scenario_hardware_in(const MsScenario *scenario, const char *file);
/* The whole path of a model or machine that the file `mentions` names by its path ("-": the command line); a name as it
 * is. (transfer full) */
char *ms_mentioned_path(const char *name, const char *mentions);

/* --- plan requests: a scenario with keys left open ------------------------------------------------------------- */
typedef struct {
  char *path; /* "layout.tp" */
  const MsField *field;
  int n;             /* values given; 0 = "auto": the planner's own candidates */
  JsonNode **values; /* owned; a range {"from","to"} is expanded to all integers for n <= 4096, refused above */
} MsOpenKey;
/* Frees what the key owns, its path too. */
void ms_open_key_clear(MsOpenKey *key);

typedef struct MsRequest {
  MsScenario *base; /* with the first value (or the default) of every open key */
  int n_open;
  MsOpenKey *open;            /* in file order */
  guint64 layout_given;       /* bit i: row i of ms_layout_table stands in the file with one value (what is left out is
                                 searched) */
  int top;                    /* key "plan": {"top": N}; 0 = not given */
  MsDisturbances *under;      /* "plan.under"; NULL: none */
  double max_memory_fraction; /* of device memory; "plan.max_memory_fraction", default 0.94 */
  MsGoal objective; /* what the plans are ranked by; the other rows of "plan" below, NaN or NULL when not given */
  double gpu_hour_price, gpu_power_W, training_tokens, critical_batch_tokens, deadline_s, max_power_W, goodput,
      grid_kg_per_kWh;
  char *gpu_hour_price_source, *reliability;
} MsRequest;

/* Those without _mixed refuse pools, those of several requests below know them. */
MsRequest *ms_request_load(const char *filename, GError **error);
MsRequest *ms_request_from_doc(const MsJson *doc, GError **error);
MsRequest *ms_request_from_doc_mixed(const MsJson *doc, GError **error);
/* The same where `model`, `hardware`, `gpus`, `training.seq_length` and `training.global_batch_size` may be lists: one
 * request for every combination, the last key changing fastest. A list of `gpus` stays open in one request when
 * plan.objective is given and not step_time. (transfer full) of MsRequest, 1 to MS_REQUESTS_MAX. */
#define MS_REQUESTS_MAX 256
GPtrArray *ms_requests_load(const char *filename, GError **error);
GPtrArray *ms_requests_from_doc(const MsJson *doc, GError **error);
int ms_open_place(const MsRequest *request, const char *path); /* "options.fsdp" among the open keys; -1: not open */
gboolean ms_request_leaves_open(const MsRequest *request, const char *path);
void ms_request_free(MsRequest *request);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsRequest, ms_request_free)
extern const MsFieldTable ms_plan_table; /* the "plan" object of a request */

/* Resolves NAME for a folder of the data directory ("models", "hardware"): a path with '/' or ".json" as it is, else
 * DATA/FOLDER/NAME.json. NULL and an error with the nearest known name. (transfer full) */
char *ms_find_data_file(const char *folder, const char *name, GError **error);
/* Names in DATA/FOLDER ("models", "hardware"), sorted, ends with a NULL pointer. (transfer full) */
GPtrArray *ms_data_names(const char *folder);

#endif
