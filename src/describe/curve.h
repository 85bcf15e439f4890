/* src/describe/curve.h - internal to describe/: the list of curves of a machine as one member of its table
 * (hardware.c). */
#ifndef MS_DESCRIBE_CURVE_H
#define MS_DESCRIBE_CURVE_H

#include "describe/hardware.h"

void ms_curves_free(MsHardware *hardware); /* hardware->curves, all of them */
/* For the row `curves` of the table: `member` is the MsHardware. */
gboolean ms_curves_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
gboolean ms_curves_take(MsJsonCursor *cursor, void *member);
void ms_curves_print(MsJsonOut *out, const char *key, const void *member);
/* FALSE and *error of an operator that no curve times, and of a form that is not one of its own. */
gboolean ms_curve_check_op(const MsJson *doc, const char *path, const MsCurve *curve, GError **error);

#endif
