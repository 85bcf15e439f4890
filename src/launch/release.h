/* src/launch/release.h - what a release of Megatron-LM rejects beyond the rules of layout/layout.h, one row each.
 * Source: the assertions of megatron/training/arguments.py and of the dataclasses at MS_MCORE_COMMIT. */
#ifndef MS_LAUNCH_RELEASE_H
#define MS_LAUNCH_RELEASE_H

#include "launch/table.h"

/* FALSE with "file: path: ... (rule NAME)" for the first rule that a canonical scenario breaks. */
gboolean ms_release_check(const MsScenario *scenario, GError **error);
/* FALSE with the first that every layout of a plan on `base` breaks, whatever it chooses for the keys that are `open`.
 */
gboolean ms_release_may_hold(const MsScenario *base, gboolean (*open)(const char *key, gconstpointer user),
                             gconstpointer user, GError **error);

#endif
