/* src/describe/enums.c - the words, in the order of the enums. */
#include "describe/enums.h"

#include "describe/lora.h"

#define WORD(value, word)         word
#define WORD_SET(type, name, ...) const char *const ms_##name##_words[] = {__VA_ARGS__, NULL};
#include "describe/words.def"
#undef WORD
#undef WORD_SET
const char *const ms_precision_words[] = {
#define MS_PRECISION(id, word, ...) word,
#include "describe/precision.def"
#undef MS_PRECISION
    NULL};
const char *const ms_odt_words[] = {
#define MS_OP_DTYPE(id, word, ...) word,
#include "describe/op_dtype.def"
#undef MS_OP_DTYPE
    NULL};
const char *const ms_dispatcher_words[] = {
#define MS_DISPATCHER(id, word, ...) word,
#include "describe/dispatcher.def"
#undef MS_DISPATCHER
    NULL};
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
const char *const ms_optimizer_words[] = {
#define MS_OPTIMIZER(id, word, ...) word,
#include "describe/optimizer.def"
#undef MS_OPTIMIZER
    NULL};
const MsOptimizerRow ms_optimizers[] = {
#define MS_OPTIMIZER(id, w, d, c1, c2, c3) [MS_OPT_##id] = {c1, c2, c3, .word = w, .doc = d},
#include "describe/optimizer.def"
#undef MS_OPTIMIZER
};
gboolean ms_optimizer_matrix_second(MsOptimizer optimizer) {
  switch (ms_optimizers[optimizer].matrices) {
  case MS_MATRICES_BY_ADAM: return TRUE;
  case MS_MATRICES_ORTHOGONALISED: break;
  }
  return FALSE;
}
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
