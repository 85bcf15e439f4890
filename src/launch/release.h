/* src/launch/release.h - what a release of Megatron-LM rejects beyond the rules of layout/layout.h, one row each.
 * Source: the assertions of megatron/training/arguments.py and of the dataclasses at MS_MCORE_COMMIT. */
#ifndef MS_LAUNCH_RELEASE_H
#define MS_LAUNCH_RELEASE_H

#include "launch/table.h"

/* FALSE with "file: path: ... (rule NAME)" for the first rule that a canonical scenario breaks. */
gboolean ms_release_check(const MsScenario *scenario, GError **error);

#endif
