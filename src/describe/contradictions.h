/* src/describe/contradictions.h - internal to describe/: figures of a machine that cannot both be true. */
#ifndef MS_DESCRIBE_CONTRADICTIONS_H
#define MS_DESCRIBE_CONTRADICTIONS_H

#include "describe/hardware.h"

/* FALSE when two figures contradict each other: blamed is one that `json`, the object of `doc` at `path` ("" the root)
 * that `hardware` was made of, gives itself; the error says what was probably meant. Unknown figures contradict
 * nothing. The machine is changed while it is looked at and left as it was. */
gboolean ms_hardware_consistent(MsHardware *hardware, const MsJson *doc, JsonObject *json, const char *path,
                                GError **error);

#endif
