/* src/report/page.h - the HTML page: one file, no network, everything it shows in one JSON block.
 *
 * The page itself (markup, style, script) lives in src/report/page/ as what it is; mk/embed.sh turns those files into
 * strings when moesim is built. This header makes the data. Pictures are drawn by the script from the data, so that a
 * reader of the page can hover, zoom and read the same numbers as tables. Nothing is recomputed in the page but
 * arithmetic on ranks (which GPU belongs to which group). */
#ifndef MS_REPORT_PAGE_H
#define MS_REPORT_PAGE_H

#include "report/report.h"
#include "report/slots.h"
#include "work/work.h"

/* One run as the page wants it, into the current position of `out`: the result, the complete scenario, machine, layout,
 * passes, streams, operators of the middle of the step, memory, communication by link level. `detail` NULL (the run was
 * not simulated in full): without what comes from it. `changes` NULL: no advice. */
void ms_page_run(const MsScenario *scenario, const MsResult *result, const MsDetail *detail, const MsChanges *changes,
                 MsJsonOut *out);

extern const MsFigures ms_page_figures, ms_page_study_figures; /* of what `report --json` prints; of a study */

typedef struct MsPage MsPage;
/* `title` NULL: the first run's name. */
MsPage *ms_page_new(const char *title);
/* Simulates it in full, with what single changes would gain: the run under its own name or another (NULL: its own), as
 * `report --json` prints it (NULL and *error; transfer full), and on the page. */
char *ms_page_run_json(const MsScenario *scenario, const char *name, GError **error);
gboolean ms_page_add_run(MsPage *page, const MsScenario *scenario, const char *name, GError **error);
/* A run as `report --json` printed it. */
void ms_page_add_printed(MsPage *page, const char *json);
void ms_page_set_validation(MsPage *page, const MsValidation *validation, const char *where);
/* Two of them beside each other, or one and a profile. */
void ms_page_set_diff(MsPage *page, const MsDiff *diff);
/* What a plan printed of itself (ms_report_plan_json, with its map): the page shows choices and map under the answer.
 * Of the layouts on it those open that are runs of the page. */
void ms_page_set_plan(MsPage *page, const char *json);
void ms_page_add_whatif(MsPage *page, const MsWhatifRun *run);
/* What was asked for is not all there, because it was stopped: its title says so. */
void ms_page_is_incomplete(MsPage *page);
/* The HTML (transfer full); frees the page. Whatever stands in names cannot leave the JSON block: "<" is written as an
 * escape. */
char *ms_page_take(MsPage *page);
/* The Content-Security-Policy of a page: nothing but its own style and script, each by its hash; a page of the server
 * may ask that server. (transfer full) */
char *ms_page_policy(gboolean live);
/* The page that `moesim serve` hands out: no runs yet, it asks the server for them. (transfer full) */
char *ms_page_live(void);

/* --- internal to report/: what the parts of a run are printed from, and their tables --------------------------- */
typedef struct {
  const MsScenario *scenario;
  const MsResult *result;
  const MsDetail *detail; /* NULL: not simulated in full; then all below is empty */
  MsParamCount params;
  MsSlotSpans passes;
  GArray *kept, *comm, *operators, *roofs; /* rows of page_layout.c and page_ops.c */
  MsAdvice advice;
  MsFabricView *fabric; /* NULL: the machine has none */
  GArray *links;        /* MsLinkLoad in the order of the graph, the fullest; NULL without a fabric */
} MsPageRun;
char *ms_page_diff_text(const MsDiff *diff); /* JSON (transfer full) */
void ms_page_find_kept(MsPageRun *run);
void ms_page_find_operators(MsPageRun *run);
void ms_page_find_fabric(MsPageRun *run);
void ms_page_clear_fabric(MsPageRun *run);
extern const MsFigures ms_page_placement_figures, ms_page_kept_figures, ms_page_operators_figures; /* of an MsPageRun */
extern const MsFigures ms_page_steps_figures, ms_page_fabric_figures;

#endif
