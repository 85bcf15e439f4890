/* src/study/knobs.h - what two scenarios differ in: every key of a scenario as a path and the text of its value. */
#ifndef MS_STUDY_KNOBS_H
#define MS_STUDY_KNOBS_H

#include "describe/scenario.h"

/* Of the members model, hardware, gpus, training, layout and options of a scenario's JSON; path -> value as JSON text.
 * `options.recompute` is one key, other objects are taken apart. `root` may be anything. (transfer full) */
GHashTable *ms_knobs_of(JsonNode *root);
GHashTable *ms_knobs_of_scenario(const MsScenario *scenario); /* the same of a complete scenario: every key is there */
/* Those of them that a layout differs in from another of its task: of layout, training and options. (transfer full) */
GHashTable *ms_knobs_of_layout(const MsScenario *scenario);
/* Whether n of such tables have more than one value of a key. */
gboolean ms_knobs_differ(GHashTable *const *knobs, guint n, const char *path);

#endif
