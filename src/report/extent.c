/* src/report/extent.c - how far work came that was stopped, as text and figures. */
#include "report/report.h"

void ms_report_extent(GString *out, const MsExtent *e) {
  if (ms_extent_stopped(e))
    g_string_append_printf(out, "INTERRUPTED: %u of %u %s are done, the rest is missing\n", e->done, e->of, e->what);
}

static double stopped(const void *extent) { return ms_extent_stopped(extent); }
static const void *if_stopped(const void *extent) { return ms_extent_stopped(extent) ? extent : NULL; }

const MsFigures ms_extent_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_OF("interrupted", BOOL, stopped, "", "stopped early: the rest is of what was done until then"),
    MS_FIGURE_FOUND("stopped", if_stopped,
                    MS_FIGURES(MS_FIGURE(UINT, MsExtent, done, "", "done"),
                               MS_FIGURE(UINT, MsExtent, of, "", "asked for"),
                               MS_FIGURE(STRING, MsExtent, what, "", "what is counted: points, files, runs, ...")),
                    .only = "rare: stopped early"));
