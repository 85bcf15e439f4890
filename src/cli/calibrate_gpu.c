/* src/cli/calibrate_gpu.c - moesim calibrate --gpu */
#include <math.h>
#include <stdio.h>

#include "base/io.h"
#include "base/text.h"
#include "cli/cli.h"
#include "gpu/survey.h"

static void print_text(const MsGpuInfo *info, const MsSurvey *survey, const char *folder) {
  MsTable *table = ms_table_new();
  ms_table_column(table, "  table", FALSE);
  ms_table_column(table, "rows", TRUE);
  ms_table_column(table, "fastest", FALSE);
  for (int i = 0; i < survey->n; i++) {
    ms_table_cellf(table, "  %s", survey->table[i].file);
    ms_table_cellf(table, "%d", survey->table[i].rows);
    ms_table_cell(table, survey->table[i].best);
  }
  char memory[MS_TEXT];
  printf("%s (%s, device %d of %d): %d multiprocessors, %s\n\n", info->name[0] ? info->name : info->vendor,
         info->vendor, info->device, info->count, info->multiprocessors, ms_text_bytes(info->memory_B, memory));
  ms_cli_print(ms_table_take(table));
  if (survey->refused) printf("\n%d measurements did not fit into the device's memory\n", survey->refused);
  printf("\nnext: `moesim fit --hardware NAME --out mine.json %s/*.csv`, NAME being the profile it starts from\n",
         folder);
}

static void print_json(const MsGpuInfo *info, const MsSurvey *survey) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "vendor", info->vendor);
  ms_json_out_string(out, "name", info->name);
  ms_json_out_int(out, "device", info->device);
  ms_json_out_int(out, "devices", info->count);
  ms_json_out_int(out, "multiprocessors", info->multiprocessors);
  ms_json_out_double(out, "memory_B", info->memory_B);
  ms_json_out_array(out, "tables");
  for (int i = 0; i < survey->n; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "file", survey->table[i].file);
    ms_json_out_int(out, "rows", survey->table[i].rows);
    ms_json_out_string(out, "fastest", survey->table[i].best);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_int(out, "refused", survey->refused);
  ms_json_out_bool(out, "interrupted", survey->interrupted);
  ms_json_out_end(out);
  ms_cli_print_json(out);
}

int ms_cli_calibrate_gpu(const MsVerb *verb, const char *out, const char *vendor, int device, gboolean quick,
                         gboolean json) {
  if (!out) return ms_cli_usage(verb, "give --out FOLDER, where the measured tables go");
  if (vendor && ms_cli_word(verb, "vendor", vendor, ms_gpu_vendor_words) < 0) return MS_ERROR_USAGE;
  GError *error = NULL;
  g_autoptr(MsGpu) gpu = ms_gpu_open(vendor, device, &error);
  if (!gpu) return ms_cli_fail(error);
  g_autoptr(MsSurvey) survey = ms_gpu_survey(gpu, out, &(MsSurveyOptions){.quick = quick, .progress = TRUE}, &error);
  if (!survey) return ms_cli_fail(error);
  if (json) print_json(ms_gpu_info(gpu), survey);
  else print_text(ms_gpu_info(gpu), survey, out);
  if (survey->interrupted) fputs("moesim: the tables hold what was measured until then\n", stderr);
  return 0;
}
