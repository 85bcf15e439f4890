/* src/describe/module_sets.c - rows of cuda_graph.def and offload_module.def. */
#include "describe/module_sets.h"

const MsCudaGraph ms_cuda_graphs[] = {
#define MS_CUDA_GRAPH(id, w, d, modules, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15) \
  [MS_CG_NUMBER_##id] = {c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, .word = w},
#include "describe/cuda_graph.def"
#undef MS_CUDA_GRAPH
};

const MsOffloadModule ms_offload_modules[] = {
#define MS_OFFLOAD_MODULE(id, w, d, c1, c2, c3, c4, c5, c6, ...) \
  [MS_OM_NUMBER_##id] = {c1, c2, c3, c4, c5, c6, .word = w},
#include "describe/offload_module.def"
#undef MS_OFFLOAD_MODULE
};

typedef struct {
  const char *row;
  size_t stride, needs, excludes;
  int n;
} Rows;
static const Rows graphs = {(const char *)ms_cuda_graphs, sizeof(MsCudaGraph), offsetof(MsCudaGraph, needs),
                            offsetof(MsCudaGraph, excludes), MS_N_CUDA_GRAPHS},
                  offloads = {(const char *)ms_offload_modules, sizeof(MsOffloadModule),
                              offsetof(MsOffloadModule, needs), offsetof(MsOffloadModule, excludes),
                              MS_N_OFFLOAD_MODULES};

static guint32 with(const Rows *rows, guint32 set, size_t column) {
  set &= (1u << rows->n) - 1; /* ~0u: all that there are */
  for (int i = 0; i < rows->n; i++)
    if (!*(const gboolean *)(gconstpointer)(rows->row + rows->stride * (size_t)i + column)) set &= ~(1u << i);
  return set;
}

guint32 ms_graphs_with(guint32 scope, size_t column) { return with(&graphs, scope, column); }
guint32 ms_offloads_with(guint32 modules, size_t column) { return with(&offloads, modules, column); }

/* The first row of the set of which a column names what is (not) among `of`. */
static int naming(const Rows *rows, guint32 set, size_t column, guint32 of, int *other) {
  for (int i = 0; i < rows->n; i++) {
    guint32 named = *(const guint32 *)(gconstpointer)(rows->row + rows->stride * (size_t)i + column) & of;
    if (!(set >> i & 1) || !named) continue;
    *other = g_bit_nth_lsf(named, -1);
    return i;
  }
  return -1;
}

int ms_graph_lacking(guint32 scope, int *other) { return naming(&graphs, scope, graphs.needs, ~scope, other); }
int ms_graph_excluding(guint32 scope, int *other) { return naming(&graphs, scope, graphs.excludes, scope, other); }
int ms_offload_lacking(guint32 set, int *other) { return naming(&offloads, set, offloads.needs, ~set, other); }
int ms_offload_excluding(guint32 set, int *other) { return naming(&offloads, set, offloads.excludes, set, other); }

/* --- the planner's candidates ---------------------------------------------------------------------------------- */
guint32 ms_graphs_tried(gboolean moe, int set) {
  guint32 scope = 0;
  for (int i = 0; i < MS_N_CUDA_GRAPHS; i++)
    if ((moe ? ms_cuda_graphs[i].tried_moe : ms_cuda_graphs[i].tried_dense) & MS_SET(set)) scope |= 1u << i;
  return scope;
}

guint32 ms_offloads_tried(gboolean moe, int set) {
  guint32 modules = 0;
  for (int i = 0; i < MS_N_OFFLOAD_MODULES; i++)
    if ((moe ? ms_offload_modules[i].tried_moe : ms_offload_modules[i].tried_dense) & MS_SET(set)) modules |= 1u << i;
  return modules;
}
