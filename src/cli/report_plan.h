/* src/cli/report_plan.h - internal to cli/: the page of a plan. */
#ifndef MS_CLI_REPORT_PLAN_H
#define MS_CLI_REPORT_PLAN_H

#include "report/page.h"

/* Searches, and adds to `page` what to choose from, each predicted in full, with the map of all layouts: of the plan
 * request in `file`, or, with `around`, of the task of that scenario, which is then the first run. `shown` gets a
 * scenario of the task (transfer full). FALSE and *error: as of the search; MS_ERROR_NOTHING where nothing fits. */
gboolean ms_cli_report_plan(const char *file, gboolean around, MsPage *page, GPtrArray *shown, GError **error);

#endif
