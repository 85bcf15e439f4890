/* src/describe/enums.c - the words, in the order of the enums. */
#include "describe/enums.h"

#include "describe/lora.h"

const char *const ms_precision_words[] = {
#define MS_PRECISION(id, word, ...) word,
#include "describe/precision.def"
#undef MS_PRECISION
    NULL};
const char *const ms_odt_words[] = {"fp32", "bf16", "fp8", "fp8-block", "mxfp8", "nvfp4", NULL};
const char *const ms_fidelity_words[] = {"bound", "fast", "full", NULL};
const char *const ms_dtype_words[] = {"fp32", "bf16", "fp16", NULL};
const char *const ms_order_words[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", NULL};
const char *const ms_dispatcher_words[] = {
#define MS_DISPATCHER(id, word, ...) word,
#include "describe/dispatcher.def"
#undef MS_DISPATCHER
    NULL};
const char *const ms_recompute_words[] = {"none", "selective", "full", NULL};
const char *const ms_recompute_method_words[] = {"uniform", "block", NULL};
const char *const ms_recompute_module_words[] = {
#define MS_RECOMPUTE_MODULE(id, word, ...) word,
#include "describe/recompute_module.def"
#undef MS_RECOMPUTE_MODULE
    NULL};
const char *const ms_offload_module_words[] = {
#define MS_OFFLOAD_MODULE(id, word, ...) word,
#include "describe/offload_module.def"
#undef MS_OFFLOAD_MODULE
    NULL};
const char *const ms_cuda_graph_words[] = {
#define MS_CUDA_GRAPH(id, word, ...) word,
#include "describe/cuda_graph.def"
#undef MS_CUDA_GRAPH
    NULL};
const char *const ms_framework_words[] = {
#define MS_FRAMEWORK(id, word, ...) word,
#include "describe/framework.def"
#undef MS_FRAMEWORK
    NULL};
const char *const ms_lora_target_words[] = {
#define MS_LORA_TARGET(id, word, ...) word,
#include "describe/lora_target.def"
#undef MS_LORA_TARGET
    NULL};
const char *const ms_fsdp_words[] = {"none", "optim", "optim-grads", "optim-grads-params", NULL};
const char *const ms_optimizer_words[] = {
#define MS_OPTIMIZER(id, word, ...) word,
#include "describe/optimizer.def"
#undef MS_OPTIMIZER
    NULL};
const MsOptimizerRow ms_optimizers[] = {
#define MS_OPTIMIZER(id, w, d, c1, c2) [MS_OPT_##id] = {c1, c2, .word = w, .doc = d},
#include "describe/optimizer.def"
#undef MS_OPTIMIZER
};
const char *const ms_attn_backend_words[] = {
#define MS_ATTN_BACKEND(id, word, ...) word,
#include "describe/attention_backend.def"
#undef MS_ATTN_BACKEND
    NULL};
const MsAttnBackendRow ms_attn_backends[] = {
#define MS_ATTN_BACKEND(id, w, d, c1, c2, c3, c4, c5, c6, c7) \
  [MS_ATTN_##id] = {c1, c2, c3, c4, c5, c6, c7, .word = w, .doc = d},
#include "describe/attention_backend.def"
#undef MS_ATTN_BACKEND
};
const char *const ms_impl_words[] = {"transformer_engine", "local", NULL};
const char *const ms_graph_impl_words[] = {"transformer_engine", "local", NULL};
const char *const ms_ce_impl_words[] = {"native", "te", NULL};
const char *const ms_optimizer_impl_words[] = {"fused", "foreach", NULL};
const char *const ms_linear_cp_words[] = {"headwise", "chunkwise", NULL};
const char *const ms_muon_tp_words[] = {"duplicated", "blockwise", "distributed", NULL};
const char *const ms_grouped_library_words[] = {"transformer_engine", "primus_turbo", NULL};
const char *const ms_mhc_backend_words[] = {"native", "triton", "cutile", NULL};
const char *const ms_outer_dp_words[] = {"no_shard", "optim", NULL};
const char *const ms_goal_words[] = {"step_time",        "tokens_per_s_per_gpu", "cost_per_token",
                                     "energy_per_token", "gpus_for_deadline",    NULL};
const char *const ms_norm_words[] = {"RMSNorm", "LayerNorm", NULL};
const char *const ms_activation_words[] = {"silu", "gelu", "quick_gelu", "squared_relu", NULL};
const char *const ms_position_words[] = {"rope", "yarn", "learned_absolute", "none", NULL};
const char *const ms_router_score_words[] = {"softmax", "sigmoid", "sqrtsoftplus", NULL};
const char *const ms_balance_words[] = {"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none", NULL};
const char *const ms_rope_kind_words[] = {"none", "linear", "llama3", "yarn", NULL};

/* --- sentences of the words whose rows have one ----------------------------------------------------------------- */
#define MS_DISPATCHER(id, word, doc, ...)       doc,
#define MS_PRECISION(id, word, doc, ...)        doc,
#define MS_RECOMPUTE_MODULE(id, word, doc, ...) doc,
#define MS_OFFLOAD_MODULE(id, word, doc, ...)   doc,
#define MS_CUDA_GRAPH(id, word, doc, ...)       doc,
#define MS_ATTN_BACKEND(id, word, doc, ...)     doc,
#define MS_LORA_TARGET(id, word, doc, ...)      doc,
#define MS_FRAMEWORK(id, word, doc, ...)        doc,
#define MS_OPTIMIZER(id, word, doc, ...)        doc,
#define CP_COMM(id, word, doc, ...)             doc,
#define SCHEDULE(id, word, doc, ...)            doc,
static const struct {
  const char *const *words;
  const char *const *doc;
} sentences[] = {
    {ms_dispatcher_words,
     (const char *const[]){
#include "describe/dispatcher.def"
     }},
    {ms_precision_words,
     (const char *const[]){
#include "describe/precision.def"
     }},
    {ms_recompute_module_words,
     (const char *const[]){
#include "describe/recompute_module.def"
     }},
    {ms_offload_module_words,
     (const char *const[]){
#include "describe/offload_module.def"
     }},
    {ms_cuda_graph_words,
     (const char *const[]){
#include "describe/cuda_graph.def"
     }},
    {ms_attn_backend_words,
     (const char *const[]){
#include "describe/attention_backend.def"
     }},
    {ms_optimizer_words,
     (const char *const[]){
#include "describe/optimizer.def"
     }},
    {ms_lora_target_words,
     (const char *const[]){
#include "describe/lora_target.def"
     }},
    {ms_cp_comm_words,
     (const char *const[]){
#include "describe/cp_comm.def"
     }},
    {ms_schedule_words,
     (const char *const[]){
#include "sched/schedule.def"
     }},
    {ms_framework_words,
     (const char *const[]){
#include "describe/framework.def"
     }},
};

const char *const *ms_word_sentences(const char *const *words) {
  for (guint i = 0; i < G_N_ELEMENTS(sentences); i++)
    if (sentences[i].words == words) return sentences[i].doc;
  return NULL;
}
