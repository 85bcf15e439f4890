/* src/launch/machine.h - private to launch: whose machines a script is for. */
#ifndef MS_LAUNCH_MACHINE_H
#define MS_LAUNCH_MACHINE_H

#include "launch/args.h"
#include "launch/shell.h"

/* A shipped machine of the maker whose variables or arguments a script has, NULL: none of them. *by is the word that
 * says so, *musa whether its framework is MT-MegatronLM. (transfer none, as `shell` and `args` live) */
const char *ms_machine_of(const MsShell *shell, const MsArgs *args, const char **by, gboolean *musa);

#endif
