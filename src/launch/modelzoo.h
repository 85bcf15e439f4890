/* src/launch/modelzoo.h - private to launch: how sbatch_benchmarking.sh of Megatron-MoE-ModelZoo assembles a command
 * (docs/launch.md). */
#ifndef MS_LAUNCH_MODELZOO_H
#define MS_LAUNCH_MODELZOO_H

#include "launch/args.h"

/* The value of a variable of that script, or NULL. (transfer none) */
typedef const char *(*MsVariableLookup)(const char *name, void *data);

/* Appends what the script appends for PR, DISPATCHER, VPP, NUM_LAYERS, A2A_OVERLAP, OPTIMIZER_OFFLOAD, SEQ_LEN, as far
 * as they are set. */
void ms_modelzoo_assemble(MsArgs *args, MsVariableLookup lookup, void *data);

/* Comment lines that name what the script, called with `variables` ("PR=bf16 TP=1 ..."), would add to or change in
 * `args`. */
void ms_modelzoo_append_overrides(GString *out, const MsArgs *args, const char *variables);

#endif
