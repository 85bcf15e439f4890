/* src/work/op.c - words of operator rows, and their lists. */
#include "work/op.h"
#include "describe/precision.h"

const char *const ms_op_words[] = {
#define OP(id, word, family, curves, doc) word,
#include "describe/op.def"
#undef OP
    NULL};
const char *const ms_op_docs[] = {
#define OP(id, word, family, curves, doc) doc,
#include "describe/op.def"
#undef OP
    NULL};
const MsOpFamily ms_op_families[] = {
#define OP(id, word, family, curves, doc) MS_FAMILY_##family,
#include "describe/op.def"
#undef OP
};
const char *const ms_pass_words[] = {"forward", "recompute", "dgrad", "wgrad", "optimizer", NULL};
const char *const ms_stream_words[] = {"compute", "tp",   "cp",  "ep",  "dp",     "edp", "pp send",
                                       "pp recv", "side", "d2h", "h2d", "states", NULL};
const char *const ms_module_words[] = {"none",           "embedding",      "attn", "mlp",  "moe_router",
                                       "moe_preprocess", "shared_experts", "moe",  "head", "mtp",
                                       "mamba",          "delta_net",      "step", NULL};

double ms_element_B(int dtype) { return ms_op_dtypes[dtype].element_B; }

void ms_ops_clear(MsOpList *list) {
  g_free(list->op);
  memset(list, 0, sizeof *list);
}
