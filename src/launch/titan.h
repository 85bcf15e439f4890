/* src/launch/titan.h - private to launch: configurations of TorchTitan (TOML), both ways.
 *
 * Keys and defaults: torchtitan/config/job_config.py; what they do: models/llama3/infra/parallelize.py (FSDP2,
 * reshard_after_forward), distributed/pipeline_parallel.py (layers to stages), distributed/activation_checkpoint.py. */
#ifndef MS_LAUNCH_TITAN_H
#define MS_LAUNCH_TITAN_H

#include "launch/args.h"
#include "launch/launch.h"

/* The configuration with what starts it in comments. NULL and an MS_ERROR_INPUT that names the key that TorchTitan has
 * no argument for. (transfer full) */
char *ms_titan_text(const MsScenario *scenario, GError **error);
/* FALSE and an MS_ERROR_INPUT where it has no such model, which no layout changes. */
gboolean ms_titan_has_model(const MsScenario *scenario, GError **error);
/* Layers of `stages` virtual stages as TorchTitan splits them, as a layout string; NULL where embedding and loss count
 * as a layer each (as far as asked) and nothing is left over. (transfer full) */
char *ms_titan_split(int layers, int stages, gboolean embedding, gboolean loss);
gboolean ms_titan_same_split(const char *a, const char *b); /* two layout strings mean the same */
/* The name there of a schedule (1F1B: `interleaved` over several chunks a rank or not); NULL: TorchTitan has none. */
const char *ms_titan_schedule(MsScheduleKind kind, gboolean interleaved);
int ms_titan_schedule_of(const char *name, gboolean *interleaved); /* -1: none that is modelled */
/* Rows of torchtitan.def: the model of a flavor; name and flavor of a model. NULL: none. */
const char *ms_titan_model(const char *name, const char *flavor);
const char *ms_titan_flavor(const char *model, const char **name);
char *ms_titan_flavors(const char *name); /* "8B, 70B" (transfer full) */
/* The tables of a function of Python that returns a Trainer.Config, as TorchTitan's main branch has them: the one that
 * `options->set` names (CONFIG=NAME), with `options->words` over it. NULL and an MS_ERROR_INPUT. (transfer full) */
MsJson *ms_titan_python(const char *text, const char *file, const MsImportOptions *options, MsImport *import,
                        GError **error);
const char *ms_titan_config_name(const char *const *set); /* NAME of CONFIG=NAME; NULL: none */
/* import->scenario of a configuration as JSON, with its tables as members ("quantize.linear.float8"). `lines`, NULL or
 * char * "table.key" -> its line in the file, where that is no TOML; 0: a default of whoever calls TorchTitan, not
 * listed where nothing reads it. */
gboolean ms_import_titan_keys(MsImport *import, const MsJson *doc, GHashTable *lines, const MsArgs *args,
                              const MsImportOptions *options, GError **error);

#endif
