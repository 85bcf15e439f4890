/* src/cli/plan_launch.h - the options --launch and --out of `moesim plan`: what to do with one layout of the ranking.
 */
#ifndef MS_CLI_PLAN_LAUNCH_H
#define MS_CLI_PLAN_LAUNCH_H

#include "cli/cli.h"
#include "study/robust.h"

/* 0, or 2 after a message; form and out NULL and rank 0: not given. */
int ms_cli_plan_launch_check(const MsVerb *verb, const char *form, const char *out, int rank);
/* Writes the layout of that rank (in the order of `robust` unless that is NULL) as a scenario file. Returns the status.
 */
int ms_cli_plan_keep(const MsPlan *plan, const MsRobust *robust, const char *file, int rank);
/* Prints what starts it; with `json` (the plan as JSON) that object with a member "launch" {form, rank, text}. Returns
 * the status. */
int ms_cli_plan_launch(const MsVerb *verb, const MsPlan *plan, const MsRobust *robust, const char *form, int rank,
                       const char *json);

#endif
