/* src/launch/printed.h - the arguments that Megatron-LM prints when a run begins, as the command that they came from.
 */
#ifndef MS_LAUNCH_PRINTED_H
#define MS_LAUNCH_PRINTED_H

#include <glib.h>

/* `arguments`: char *, "name value" each, as printed. world_size 0: not known. What belongs to a module that is off is
 * left out. (transfer full) */
char *ms_launch_printed(const GPtrArray *arguments, int world_size);

#endif
