/* src/launch/dialect.h - private to launch: what forks of Megatron-LM and frameworks around it call otherwise, said in
 * Megatron-LM's own arguments before the table reads them.
 *
 * Facts: MindSpeed-LLM (mindspeed_llm/features_manager and tasks/models/spec), slime (slime/utils/arguments.py,
 * slime/backends/megatron_utils/arguments.py) and Pai-Megatron-Patch, as of 2026. */
#ifndef MS_LAUNCH_DIALECT_H
#define MS_LAUNCH_DIALECT_H

#include "launch/table.h"

/* Adds Megatron-LM's words for those of the forks, which become used; what they mean and moesim does not model goes to
 * `remarks` (char *). *gpus is set where such an argument says it and the launcher did not. */
gboolean ms_dialect_translate(MsArgs *args, GPtrArray *remarks, int *gpus, GError **error);
/* FALSE and the error when `program` (a path, may be NULL) trains no decoder; a remark when it does not train. */
gboolean ms_dialect_program(const MsArgs *args, GPtrArray *remarks, const char *program, int line, GError **error);

/* The dialects' value of `flag` that Megatron-LM calls `ours`; there must be one. */
const char *ms_dialect_their_word(const char *flag, const char *ours);

#define MS_DIALECT_MOST (1 << 24) /* of counts that have no bound of their own */

/* --- dialect_layers.c --- */
/* Layers without weights (--noop-layers), layers of every stage (--num-layer-list) and dense layers in front
 * (--first-k-dense-replace) as a number of layers, a layout string and a pattern. */
gboolean ms_dialect_layers(MsArgs *args, GError **error);

/* --- dialect_checkpoint.c --- */
/* Sizes of layers that a specification (--spec) of slime's or miles' takes from the checkpoint, with a remark. */
void ms_dialect_checkpoint(MsArgs *args, GPtrArray *remarks);
/* The one shipped model that has all the sizes that a script says beside a checkpoint (--bridge-hf-model,
 * --use-checkpoint-args), with a remark; NULL: none or several. (transfer full) */
char *ms_dialect_model(MsArgs *args, GPtrArray *remarks);

/* --- dialect_mindspeed.c --- */
/* Swapped attention, recomputed parts, O2, masks and documents of one length of MindSpeed; before the layers, which it
 * counts as they are written. */
gboolean ms_dialect_mindspeed(MsArgs *args, GPtrArray *remarks, GError **error);
#define MS_ULYSSES_DEGREE "--ulysses-degree-in-cp" /* ranks among which hybrid_cp_algo exchanges heads */
#define MS_FIXED_LENGTH   "--moesim-fixed-length"  /* tokens of every packed sequence */

/* --- mindspeed.c --- */
/* The way back, for machines where MindSpeed patches Megatron-LM: its words where Megatron-LM's do nothing there.
 * Facts: MindSpeed features_manager/context_parallel (--context-parallel-algo alone says how, --cp-comm-type is not
 * read), features_manager/tensor_parallel/mc2.py (in place of user buffers of Transformer Engine),
 * features_manager/moe/fb_overlap.py, optimizer/swap_optimizer_feature.py and memory/reuse_fp32_param.py, and
 * core/transformer/flash_attention/generate_mask (layers of Transformer Engine need --use-flash-attn). */
void ms_say_mindspeed(MsArgs *args, const MsScenario *scenario);

/* --- dialect_deepspeed.c --- */
/* ZeRO, experts, Ulysses, stages and recomputing of Megatron-DeepSpeed; --checkpoint-activations of both. */
gboolean ms_dialect_deepspeed(MsArgs *args, GPtrArray *remarks, GError **error);

#endif
