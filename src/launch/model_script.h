/* src/launch/model_script.h - private to launch: what miles' scripts/models/NAME.py says, read and never run.
 *
 * `python3 miles/utils/external_utils/model_args_utils.py NAME` prints what model_args() of that file returns:
 * arguments of Megatron-LM put together from literals, constants of the file, sums and products, variables of the
 * environment, moe_layer_freq() and other such files (radixark/miles). */
#ifndef MS_LAUNCH_MODEL_SCRIPT_H
#define MS_LAUNCH_MODEL_SCRIPT_H

#include "launch/shell_eval.h"

#define MS_MODEL_SCRIPT "model_args_utils.py"

/* The text of the file of another model, or NULL. (transfer full) */
typedef char *MsModelScriptLoad(gpointer data, const char *model);

/* What model_args() of `text` returns; `variable` looks up the environment with `data`, which goes to `load`, too.
 * NULL: it is more than what is understood. (transfer full) */
char *ms_model_script(const char *text, MsModelScriptLoad *load, MsShellLookup *variable, gpointer data);

#endif
