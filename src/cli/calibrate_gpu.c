/* src/cli/calibrate_gpu.c - moesim calibrate --gpu */
#include <math.h>
#include <stdio.h>

#include "base/io.h"
#include "base/text.h"
#include "cli/cli.h"
#include "gpu/survey.h"

static void print_text(const MsGpuInfo *info, const MsSurvey *survey, const char *folder) {
  MsTable *table = ms_table_of("  table|>rows|fastest");
  for (int i = 0; i < survey->n; i++) {
    ms_table_cellf(table, "  %s", survey->table[i].file);
    MS_TABLE_ROW(table, MS_FORMAT("%d", survey->table[i].rows), survey->table[i].best);
  }
  printf("%s (%s, device %d of %d): %d multiprocessors, %s\n\n", info->name[0] ? info->name : info->vendor,
         info->vendor, info->device, info->count, info->multiprocessors, MS_BYTES(info->memory_B));
  ms_cli_print(ms_table_take(table));
  if (survey->refused) printf("\n%d measurements did not fit into the device's memory\n", survey->refused);
  printf("\nnext: `moesim fit --hardware NAME --out mine.json %s/*.csv`, NAME being the profile it starts from\n",
         folder);
}

typedef struct {
  const MsGpuInfo *info;
  const MsSurvey *survey;
} Surveyed;
static const MsFigures info_figures = MS_FIGURE_UNNAMED(MS_FIGURE(CHARS, MsGpuInfo, vendor, "", "cuda or musa"),
                                                        MS_FIGURE(CHARS, MsGpuInfo, name, "", "as the driver calls it"),
                                                        MS_FIGURE(INT, MsGpuInfo, device, "", "that is measured"),
                                                        MS_FIGURE_AS("devices", INT, MsGpuInfo, count, "", "visible"),
                                                        MS_FIGURE(INT, MsGpuInfo, multiprocessors, "", "of the device"),
                                                        MS_FIGURE(F64, MsGpuInfo, memory_B, "B", "of the device"));
static const MsFigures table_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, MsSurveyTable, file, "", "written"), MS_FIGURE(INT, MsSurveyTable, rows, "", "in it"),
    MS_FIGURE_AS("fastest", STRING, MsSurveyTable, best, "", "the highest rate seen, in words"));
static const MsFigures survey_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_ARRAY("tables", LIST, MsSurvey, table, n, &table_figures),
                      MS_FIGURE(INT, MsSurvey, refused, "", "measurements that did not fit into memory"),
                      MS_FIGURE(BOOL, MsSurvey, interrupted, "", "the tables hold what was measured until then"));
#define MEMBERS(m, s) MS_FIGURE_ROWS_AT(Surveyed, m, s)
const MsFigures ms_survey_figures = MS_FIGURE_TABLE("calibrate-gpu", "`moesim calibrate --gpu --json`.",
                                                    MEMBERS(info, &info_figures), MEMBERS(survey, &survey_figures));

int ms_cli_calibrate_gpu(const MsVerb *verb, const char *out, const char *vendor, int device, gboolean quick,
                         gboolean json) {
  if (!out) return ms_cli_usage(verb, "give --out FOLDER, where the measured tables go");
  if (vendor && ms_cli_word(verb, "vendor", vendor, ms_gpu_vendor_words) < 0) return MS_ERROR_USAGE;
  GError *error = NULL;
  g_autoptr(MsGpu) gpu = ms_gpu_open(vendor, device, &error);
  if (!gpu) return ms_cli_fail(error);
  g_autoptr(MsSurvey) survey = ms_gpu_survey(gpu, out, &(MsSurveyOptions){.quick = quick, .progress = TRUE}, &error);
  if (!survey) return ms_cli_fail(error);
  if (json) ms_cli_print(ms_figures_json(&ms_survey_figures, &(Surveyed){ms_gpu_info(gpu), survey}));
  else print_text(ms_gpu_info(gpu), survey, out);
  if (survey->interrupted) fputs("moesim: the tables hold what was measured until then\n", stderr);
  return 0;
}
