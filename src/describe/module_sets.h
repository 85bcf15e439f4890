/* src/describe/module_sets.h - rows of cuda_graph.def and offload_module.def: what a scope of CUDA graphs and a module
 * whose activations wait on the host need, exclude and go with. A set of them is options.cuda_graph_scope and
 * options.offload_modules, a bit for each row. */
#ifndef MS_DESCRIBE_MODULE_SETS_H
#define MS_DESCRIBE_MODULE_SETS_H

#include <stddef.h>

#include "describe/scenario.h"

#define MS_SET(number) (1u << (number))

typedef struct {
  const char *word;
  gboolean alone;                   /* a mode of its own in Megatron-LM: goes with no other */
  gboolean whole_layer, whole_step; /* every module of a layer; all of the step, beside which the host does nothing */
  gboolean attention;               /* its weight gradients are made inside */
  gboolean shared;                  /* shared experts, where they do not overlap and cuda_graph_shared_experts asks */
  gboolean fixed_capacity;          /* wants routing with a capacity that is padded to */
  gboolean prepares;                /* dispatch, of which some dispatchers wait for the host */
  gboolean dense_layers, experts;   /* the model must have */
  guint32 needs;                    /* scopes */
  guint32 excludes;                 /* scopes, in the release that is launched */
  gboolean ep_overlap, offloads;    /* goes with it; with offload_modules */
  guint32 tried_dense, tried_moe;   /* MS_SET of each of the planner's sets that it is in, by model */
} MsCudaGraph;
extern const MsCudaGraph ms_cuda_graphs[]; /* [MS_N_CUDA_GRAPHS] */

typedef struct {
  const char *word;
  guint32 needs, excludes; /* modules */
  gboolean experts, fused; /* activations of the experts; of those that one kernel computes */
  guint32 tried_dense, tried_moe;
} MsOffloadModule;
extern const MsOffloadModule ms_offload_modules[]; /* [MS_N_OFFLOAD_MODULES] */

/* Those of a set of which a column of their row, a gboolean, holds. */
guint32 ms_graphs_with(guint32 scope, size_t column);
guint32 ms_offloads_with(guint32 modules, size_t column);
#define MS_GRAPHS(scope, column)     ms_graphs_with(scope, offsetof(MsCudaGraph, column))
#define MS_OFFLOADS(modules, column) ms_offloads_with(modules, offsetof(MsOffloadModule, column))

/* Modules of layers, not the whole step. */
static inline gboolean ms_captures_modules(const MsOptions *options) {
  return options->cuda_graph_scope && !MS_GRAPHS(options->cuda_graph_scope, whole_step);
}

/* The first of a set that needs another which is not in it; that excludes another which is: its bit's number, and in
 * *other that of the other. -1: none. */
int ms_graph_lacking(guint32 scope, int *other);
int ms_graph_excluding(guint32 scope, int *other);
int ms_offload_lacking(guint32 modules, int *other);
int ms_offload_excluding(guint32 modules, int *other);

/* Sets that the planner tries where nothing is said ("auto"), in models with experts or without; set 0 is empty, and
 * the only one where the machine cannot. */
enum { MS_N_SETS_SEARCHED = 3 };
guint32 ms_graphs_tried(gboolean moe, int set), ms_offloads_tried(gboolean moe, int set);

#endif
