/* src/cli/plan_launch.h - the options --launch and --out of `moesim plan`: what to do with one layout of the ranking.
 */
#ifndef MS_CLI_PLAN_LAUNCH_H
#define MS_CLI_PLAN_LAUNCH_H

#include "cli/cli.h"
#include "study/decide.h"
#include "study/robust.h"

/* 0, or 2 after a message; form and out NULL and rank MS_CLI_UNSET: not given. */
int ms_cli_plan_launch_check(const MsVerb *verb, const char *form, const char *out, int rank);
/* Why the form of ms_report_launch_form does not start it; NULL: it does, or there is none. (transfer full) */
char *ms_cli_why_not_started(const MsScenario *scenario);
/* Writes the layout of that rank (in the order of `robust` unless that is NULL) as a scenario file. Returns the status.
 */
int ms_cli_plan_keep(const MsPlan *plan, const MsRobust *robust, const char *file, int rank);
/* Prints what starts it; with `json` (the plan as JSON) that object with a member "launch" {form, rank, text}. Returns
 * the status. */
int ms_cli_plan_launch(const MsVerb *verb, const MsPlan *plan, const MsRobust *robust, const char *form, int rank,
                       const char *json);

/* Writes the layouts that are proposed to settle a decision into a folder: run-N.json (the scenario) and start-N.sh
 * (its launch in that form, NULL: the first), N being the place in the ranking; says on standard error what to do with
 * them. Returns the status. */
int ms_cli_plan_decide_out(const MsVerb *verb, const MsDecision *decision, const char *folder, const char *form);

#endif
