/* src/describe/curve.h - internal to describe/: the list of curves of a machine as one member of its table
 * (hardware.c). */
#ifndef MS_DESCRIBE_CURVE_H
#define MS_DESCRIBE_CURVE_H

#include "describe/hardware.h"

/* Of lists of numbers, which are read where they stand beside the tree too (ms_json_load_beside). */
#define MS_CURVE_GRID_KEY     "log_ratio"
#define MS_CURVE_AXES_KEY     "axes"
#define MS_CURVE_SEGMENTS_KEY "segments"

void ms_curves_free(MsHardware *hardware); /* hardware->curves, all of them */
/* For the row `curves` of the table: `member` is the MsHardware. */
gboolean ms_curves_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
void ms_curves_print(MsJsonOut *out, const char *key, const void *member);

#endif
