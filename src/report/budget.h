/* src/report/budget.h - internal to report/: what a whole training takes, beside choices and cells. */
#ifndef MS_REPORT_BUDGET_H
#define MS_REPORT_BUDGET_H

#include "base/text.h"
#include "study/budget.h"

extern const MsFigures ms_budget_figures;         /* of MsBudget */
gboolean ms_budget_known(const MsBudget *budget); /* the request says how many tokens */
void ms_report_budget_columns(MsTable *table);
void ms_report_budget_cells(MsTable *table, const MsBudget *budget);
typedef struct {
  const MsRequest *request;
  const MsBudget *budget;
} MsBudgetOf;
/* What the figures rest on, one sentence, of several machines the rates of each; the first budget must be known.
 * (transfer full) */
char *ms_report_budget_note(const MsBudgetOf *of, int n);

#endif
