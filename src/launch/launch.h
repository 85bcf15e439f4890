/* src/launch/launch.h - from a scenario to what starts it, and back.
 *
 * Export writes the complete arguments and environment of a canonical scenario in one of the forms below; import reads
 * such a form, or anybody's command line, script or model-zoo file, into a canonical scenario. Both go through one
 * table (table.h), so exporting and importing again gives the same scenario. What a launch cannot say is refused by the
 * name of the key, what an import cannot use is listed (docs/launch.md). */
#ifndef MS_LAUNCH_LAUNCH_H
#define MS_LAUNCH_LAUNCH_H

#include "describe/scenario.h"

typedef enum {
  MS_LAUNCH_MEGATRON,
  MS_LAUNCH_MODELZOO,
  MS_LAUNCH_MT,
  MS_LAUNCH_TORCHTITAN,
  MS_LAUNCH_DEEPSPEED,
  MS_N_LAUNCH_FORMS
} MsLaunchForm;
typedef enum { /* what starts it on all nodes */
               MS_AROUND_NOTHING,
               MS_AROUND_SLURM, /* sbatch */
               MS_AROUND_PYTORCHJOB,
               MS_AROUND_JOBSET,
               MS_AROUND_VOLCANO,
               MS_AROUND_SKYPILOT
} MsLaunchAround;
typedef struct {
  MsLaunchForm form;
  MsLaunchAround around;
  int restarts;     /* of a failed job, by what is around it */
  const char *file; /* where the text will stand, for the machine file it mentions; NULL: on standard output */
} MsLaunch;
extern const char *const ms_launch_words[]; /* ends with NULL; docs/launch.md, Forms */
/* The launch of ms_launch_words[word]. */
MsLaunch ms_launch_of_word(int word);
/* The framework that the form starts, in which a plan for it is searched. */
MsFramework ms_launch_framework(MsLaunch launch);
enum { MS_LAUNCH_UNSAID = -1 };
/* `word`, or where no form was asked for the one that starts runs of the scenario's framework with nothing around it
 * (Megatron-LM's for one that has none): what every way to ask for a launch takes. */
int ms_launch_word_for(const MsScenario *scenario, int word);
/* What the name of a file with that text ends with: "sh", "yaml", "toml" or "json". */
const char *ms_launch_suffix(MsLaunch launch);
/* The kind of `moesim import` that reads the form: "megatron". */
const char *ms_launch_reader(MsLaunch launch);
/* FALSE and an MS_ERROR_INPUT where the framework is known not to start on machines of that vendor
 * (describe/vendor.def): every text below is refused then. */
gboolean ms_launch_starts(const MsScenario *scenario, MsFramework framework, GError **error);
/* FALSE and the error where no layout of a plan on `base` is started, whatever it chooses for the keys that are
 * `open`. */
gboolean ms_launch_may_start(const MsScenario *base, MsLaunch launch, gboolean (*open)(const char *key, gconstpointer),
                             gconstpointer user, GError **error);

/* The same run with every key that has no effect at its default and every derived one resolved: what an export says
 * and an import gives. Predictions of both are equal. Nothing borrowed; `measured` is left behind. (transfer full) */
MsScenario *ms_launch_canonical(const MsScenario *scenario);
/* What is left of it in an export: the canonical run with the newest generation of its attention kernels, because no
 * argument says which is installed. (transfer full) */
MsScenario *ms_launch_said(const MsScenario *scenario);

/* The text of the form. NULL and an MS_ERROR_INPUT that names the key or rule when the layout is not valid or the
 * release cannot say it or would reject it. (transfer full) */
char *ms_launch_text(const MsScenario *scenario, MsLaunch launch, GError **error);

/* The arguments of the same launch with the keys that each says. Errors as above. (transfer full) */
char *ms_launch_explain(const MsScenario *scenario, MsLaunch launch, GError **error);
/* A script that checks one node against the machine of the scenario. NULL and an MS_ERROR_INPUT when moesim does not
 * know that vendor's tools. (transfer full) */
char *ms_launch_preflight(const MsScenario *scenario, GError **error);

/* CUDA_DEVICE_MAX_CONNECTIONS as it is launched: as given, else 32 with EP overlap, 1 where the release asserts it,
 * else 0 = unset. */
int ms_launch_connections(const MsScenario *scenario);
/* TRUE when the release asserts that variable to be 1: TP or CP on a GPU before Blackwell, without FSDP and EP overlap.
 */
gboolean ms_launch_asserts_connections(const MsScenario *scenario);

/* --- import --- */
typedef struct {
  const char *hardware;     /* name or path; NULL: from the file's note, else h100-sxm with a remark */
  const char *name;         /* of the scenario; NULL: from the note, else of the file */
  const char *model;        /* NULL or a shipped model or a file, in place of what the arguments say of it */
  int gpus, vocab_size;     /* 0: from the file */
  const char *into;         /* NULL or a run that gets the settings, for those that say no model (deepspeed) */
  const char *const *words; /* NULL or what a script is called with ($1, $2, ...) */
  const char *const *allow; /* NULL or arguments, such as --spec, that may be ignored although they change the run */
  const char *const *set;   /* NULL or NAME=VALUE of variables, whatever the script gives them */
  gboolean environment;     /* look up other variables in the environment of the process, and read sourced files */
} MsImportOptions;

typedef struct {
  MsScenario *scenario; /* canonical, owned */
  GPtrArray *ignored;   /* char *: arguments and variables that were not used, as written, with their line */
  GPtrArray *remarks;   /* char *: what was assumed, one sentence each */
} MsImport;

void ms_import_free(MsImport *import);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsImport, ms_import_free)
enum { MS_IMPORT_MOST_BYTES = 4 << 20 }; /* of a file */
/* A command line or shell script; a model-zoo YAML (or a script that holds one). `file` names it in messages; `text`
 * need not end with NUL. */
MsImport *ms_import_megatron(const char *text, gsize length, const char *file, const MsImportOptions *options,
                             GError **error);
/* The TOML of TorchTitan; `options->gpus` for a data_parallel_shard_degree of -1. */
MsImport *ms_import_torchtitan(const char *text, gsize length, const char *file, const MsImportOptions *options,
                               GError **error);
/* The JSON of DeepSpeed, into the run of its member "moesim", of `options->into`, or of `options->model`. */
MsImport *ms_import_deepspeed(const char *text, gsize length, const char *file, const MsImportOptions *options,
                              GError **error);
MsImport *ms_import_modelzoo(const char *text, gsize length, const char *file, const MsImportOptions *options,
                             GError **error);
/* The YAML of Primus, which lies in a checkout with its presets; `options->set` for ${NAME}. */
MsImport *ms_import_primus(const char *text, gsize length, const char *file, const MsImportOptions *options,
                           GError **error);
/* A Hugging Face config.json as a model; keys that are not used go to `ignored`, what the file says and a model cannot
 * say goes to `remarks` (both char *). (transfer full) */
MsModel *ms_import_hf(const MsJson *doc, GPtrArray *ignored, GPtrArray *remarks, GError **error);
/* PEFT's adapter_config.json as training.lora of a run of `model`: into *lora; keys without a meaning for time and
 * bytes are added to `ignored`. FALSE and *error for what is not modelled. */
gboolean ms_import_peft(const MsJson *doc, const MsModel *model, MsLora *lora, GPtrArray *ignored, GError **error);

/* The shipped model with the same keys (name, doc and source aside) as JSON: its name, {"base": NAME, ...} for up to
 * four differences, or else the whole model. The model is canonical. (transfer full) */
JsonNode *ms_model_mention(const MsModel *model);
/* Keys without effect at their defaults; `seq_length` is the sequence it is trained on (0: none). */
void ms_model_canonical(MsModel *model, int seq_length);

#endif
