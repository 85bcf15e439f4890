/* src/report/page_whatif.c - a what-if study as the page draws it: curves along its last axis, and the parts of every
 * point. */
#include "report/page.h"

#define STUDY(run) (((const MsWhatifRun *)(run))->whatif)
#define ROW(row)   ((const MsWhatifRow *)(row))

static double crossed(const void *run) { return STUDY(run)->combine == MS_WHATIF_CROSS; }

static const char *why(const void *row) {
  return ROW(row)->done ? ROW(row)->why : "the study was stopped before this point";
}
static double runs(const void *row) { return ROW(row)->result != NULL; }
static const void *with_result(const void *row) { return ROW(row)->result ? row : NULL; }
static double device_B(const void *row) {
  double sum_B = 0;
  for (int m = 0; m < MS_N_MEMS; m++) sum_B += ROW(row)->memory_B[m];
  return sum_B;
}

static const MsFigure ran_rows[] = {
    MS_FIGURE_ROWS_AT(MsWhatifRow, result,
                      MS_FIGURES(MS_FIGURE_AS("fits", BOOL, MsResult, feasible, "", "into the memory of the device"))),
    MS_FIGURE(F64, MsWhatifRow, value_s, "s", "step time, or GPU seconds per token"),
    MS_FIGURE_ROWS_AT(MsWhatifRow, result,
                      MS_FIGURES(MS_FIGURE(F64, MsResult, tokens_per_s_per_gpu, "1/s", "tokens"),
                                 MS_FIGURE(F64, MsResult, mfu, "1", "model FLOP over the peak"),
                                 MS_FIGURE(F64, MsResult, band, "1", "error_band"))),
    MS_FIGURE_OF("device_B", F64, device_B, "B", "of the fullest stage"),
    MS_FIGURE_BY_WORD("parts_s", MsWhatifRow, part_s, ms_part_words, "s", "of the value"),
    {0}};
static const MsFigures point_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(STRING, MsWhatifRow, label, "", "its values"),
                      MS_FIGURE_TEXT("why", why, "it does not run or fit", MS_OR_NULL),
                      MS_FIGURE_OF("runs", BOOL, runs, "", "there is a result"),
                      MS_FIGURE_ROWS_OF(with_result, &(const MsFigures){.rows = ran_rows}, .only = "it runs"));

#define AXIS(T, m, ...) MS_FIGURE(T, MsAxis, m, __VA_ARGS__)
const MsFigures ms_page_study_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_ROWS_AT(MsWhatifRun, whatif,
                      MS_FIGURES(MS_FIGURE(STRING, MsWhatif, name, "", "of the study"),
                                 MS_FIGURE(STRING, MsWhatif, doc, "", "its question", MS_OR_NULL),
                                 MS_FIGURE_WORDS("per", MsWhatif, per, ms_whatif_per_words, "step or token"))),
    MS_FIGURE_OF("crossed", BOOL, crossed, "", "points are the product of the axes"),
    MS_FIGURE_ROWS_AT(
        MsWhatifRun, whatif,
        MS_FIGURES(MS_FIGURE_ARRAY(
            "axes", LIST, MsWhatif, axis, n_axes,
            MS_FIGURES(AXIS(STRING, name, "", "the key"),
                       MS_FIGURE_ARRAY("labels", LIST, MsAxis, point, n,
                                       MS_FIGURES(MS_FIGURE_AS("", STRING, MsAxisPoint, label, "", NULL))))))),
    MS_FIGURE_PART("base", MsWhatifRun, base, &point_figures),
    MS_FIGURE_ARRAY("points", LIST, MsWhatifRun, row, n, &point_figures));
