/* src/launch/table.h - one table of arguments: which argument says which key of a scenario, and how.
 *
 * The same rows write an argument list from a scenario and read a scenario from an argument list, so export and import
 * cannot drift apart. Most rows are one argument for one key; where several arguments say one thing together
 * (precision, dispatcher, recompute, ...) the row is a group with its own pair of functions, side by side in groups*.c.
 *
 * Facts: Megatron-LM at MS_RELEASE_MCORE, megatron/training/arguments.py and the dataclasses it exposes
 * (docs/launch.md); MT-MegatronLM of March 2025 (e53585c): arguments of Megatron-LM at d0df563d (December 2024), whose
 * functions its patches replace, and those of musa_patch/arguments.py. */
#ifndef MS_LAUNCH_TABLE_H
#define MS_LAUNCH_TABLE_H

#include "describe/scenario.h"
#include "launch/args.h"

#define MS_MCORE_COMMIT "d98e8a64" /* Megatron-LM, August 2026 */

typedef enum { MS_RELEASE_MCORE, MS_RELEASE_MT, MS_N_RELEASES } MsRelease;
extern const char *const ms_release_words[]; /* how messages name them */

typedef enum {
  MS_ROW_VALUE, /* --flag VALUE */
  MS_ROW_ON,    /* --flag: true */
  MS_ROW_OFF,   /* --flag: false */
  MS_ROW_FIXED, /* says nothing about a scenario: what a run needs besides */
  MS_ROW_GROUP, /* several arguments, see write and read */
} MsRowKind;

enum {
  MS_ROW_ALWAYS = 1, /* written even when the release would take the same value without it */
  MS_ROW_MT = 2,     /* MT-MegatronLM has it */
};

typedef struct MsLaunchRow {
  MsRowKind kind;
  MsSection section;
  unsigned flags;
  const char *flag;   /* other spellings accepted on import follow, separated by spaces; NULL for groups */
  const char *fields; /* paths of the keys it says, separated by spaces: "layout.tp"; NULL for FIXED */
  const char *value;  /* what the release takes without it, as JSON; FIXED: the value written, NULL for a switch */
  const char *mt;     /* how MT-MegatronLM spells it, a value that goes with a switch behind a space; NULL: as `flag` */
  gboolean (*when)(const MsScenario *scenario); /* written only then; NULL = always */
  /* GROUP. write: FALSE and *error when `release` has no words for it. read: sets every key of `fields`. */
  gboolean (*write)(const MsScenario *scenario, MsRelease release, MsArgs *args, GError **error);
  gboolean (*read)(MsArgs *args, MsScenario *scenario, GError **error);
} MsLaunchRow;

extern const MsLaunchRow ms_launch_rows[];
extern const int ms_num_launch_rows;

/* Keys that no argument says and that travel as notes (args.h), or that a launch has no use for; separated by spaces.
 */
extern const char *const ms_launch_notes, *const ms_launch_unused;

/* The scenario as arguments of `release`. It must be canonical (launch.h). NULL and an MS_ERROR_INPUT that names the
 * key when the release cannot say it. (transfer full) */
MsArgs *ms_args_from_scenario(const MsScenario *scenario, MsRelease release, GError **error);
/* The rows of the model alone: FALSE and the error of the above. */
gboolean ms_args_say_model(const MsScenario *scenario, MsRelease release, GError **error);
/* Reads every row; model, training, layout, options of `scenario` are set, notes and environment marked used. The model
 * is not finished yet. */
gboolean ms_args_read(MsArgs *args, MsScenario *scenario, GError **error);
/* The same for a scenario whose model is known: arguments that say a part of it are used, must not contradict its
 * sizes, and change nothing but the numbers of layers and MTP blocks. */
gboolean ms_args_read_around(MsArgs *args, MsScenario *scenario, GError **error);

/* --- shared by the files of the table --- */
/* Key at a path ("options.recompute.modules"): its row in the field tables and the struct it lives in. NULL when
 * unknown. */
const MsField *ms_key_find(const MsScenario *scenario, const char *path, void **object);
/* Sets a key without memory of its own to its default. */
void ms_key_reset(MsScenario *scenario, const char *path);
/* "file: path: message" about a key that a release cannot say; returns FALSE. */
gboolean ms_refuse_key(const MsScenario *scenario, GError **error, const char *path, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
gboolean ms_is_moe(const MsScenario *scenario);
gboolean ms_is_hybrid(const MsScenario *scenario); /* has a pattern of layers */
/* The split of a hybrid model as a pattern can say it: even, or a layout string. */
void ms_hybrid_canonical_split(MsScenario *scenario);
/* VPP and layout string from the pattern of an argument list, where it has stages. */
gboolean ms_read_hybrid_split(MsArgs *args, MsScenario *scenario, GError **error);
/* What arguments of the release say of a canonical model's stretched frequencies; what they do not is a note. */
MsRopeScaling ms_rope_scaling_said(const MsModel *model, MsRelease release);
gboolean ms_rope_scaling_is(const MsRopeScaling *a, const MsRopeScaling *b);
/* Members without effect at their defaults; YaRN is said once. */
extern const MsRopeScaling ms_rope_scaling_usual; /* plain frequencies, and what stretched ones have unless said */
void ms_rope_scaling_canonical(MsModel *model);

/* What forks have and Megatron-LM has no argument for (dialect.h); such a scenario cannot be launched. */
#define MS_GATED_GELU        "--gated-gelu"
#define MS_POST_NORM         "--post-norm"         /* MindSpeed-LLM */
#define MS_PIPELINE_SCHEDULE "--pipeline-schedule" /* a word of layout.schedule */

#define MS_GROUP(name)                                                                                   \
  gboolean ms_write_##name(const MsScenario *scenario, MsRelease release, MsArgs *args, GError **error); \
  gboolean ms_read_##name(MsArgs *args, MsScenario *scenario, GError **error)
MS_GROUP(precision); /* groups_precision.c */
MS_GROUP(gradients);
MS_GROUP(bf16_ends);
MS_GROUP(optimizer);
MS_GROUP(fsdp);
MS_GROUP(pipeline); /* groups_layout.c */
MS_GROUP(expert_parallel);
MS_GROUP(context);
MS_GROUP(order);
MS_GROUP(recompute); /* groups_memory.c */
MS_GROUP(offload);
MS_GROUP(graphs);
MS_GROUP(dispatcher); /* groups_moe.c */
MS_GROUP(routing);
MS_GROUP(balancing);
MS_GROUP(scores);
MS_GROUP(widths);
MS_GROUP(attention); /* groups_model.c */
MS_GROUP(post_norm);
MS_GROUP(streams);
MS_GROUP(latent_attention);
MS_GROUP(activation);
MS_GROUP(positions); /* groups_positions.c */
MS_GROUP(rope_scaling);
MS_GROUP(hybrid); /* groups_hybrid.c */
MS_GROUP(mtp);
MS_GROUP(variants);
MS_GROUP(vocabulary);
MS_GROUP(attention_backend); /* environment.c */
MS_GROUP(environment);

#endif
