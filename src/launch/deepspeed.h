/* src/launch/deepspeed.h - private to launch: DeepSpeed's configuration (JSON), both ways.
 *
 * It says batches, precision, ZeRO and offload; what is trained, on what and in which groups the program says that
 * calls DeepSpeed. An export keeps that in a member "moesim", which DeepSpeed does not read, so that importing it again
 * gives the same run. */
#ifndef MS_LAUNCH_DEEPSPEED_H
#define MS_LAUNCH_DEEPSPEED_H

#include "launch/launch.h"

/* NULL and an MS_ERROR_INPUT that names the key that DeepSpeed has no setting for. (transfer full) */
char *ms_deepspeed_text(const MsScenario *scenario, GError **error);

#endif
