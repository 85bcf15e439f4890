#include "cli/import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "cli/cli.h"
#include "launch/printed.h"
#include "logs/training.h"

/* --- `measured` ------------------------------------------------------------------------------------------------ */
static void set_measured(const MsTrainingLog *log, const char *file, MsMeasured *m) {
  g_autofree char *name = g_path_get_basename(file);
  ms_fields_defaults(&ms_measured_table, m);
  m->step_time_s = log->time_s;
  if (isnan(log->time_s)) m->tokens_per_s_per_gpu = log->tokens_per_s;
  m->tflops_per_gpu = log->tflops;
  m->peak_memory_GiB = log->allocated_GiB, m->peak_reserved_GiB = log->reserved_GiB;
  if (!isnan(log->allocated_GiB)) m->memory_rank = g_strdup(log->all_ranks ? "max" : "0");
  m->source = g_strdup_printf("%s, steps %d to %d of %s", name, log->first, log->last, log->form);
  m->config_confidence = g_strdup(log->arguments->len > 0 ? "exact" : "unknown");
  m->time_from = g_strdup(isnan(log->time_s) ? "tokens_per_s" : "published");
}

static char *measured_text(const MsMeasured *m) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_object(out, NULL);
  ms_fields_object(&ms_measured_table, m, FALSE, "measured", out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

static char *scenario_text(MsScenario *s, const MsMeasured *m, const char *out) {
  s->has_measured = TRUE;
  MsMeasured before = s->measured;
  s->measured = *m;
  char *text = ms_scenario_text_in(s, out);
  s->measured = before;
  return text;
}

/* NULL and *error. */
static char *from_arguments(const MsTrainingLog *log, const char *file, const MsImportOptions *options,
                            const MsMeasured *m, const char *out, GError **error) {
  g_autofree char *command = ms_launch_printed(log->arguments, log->world_size);
  MsImportOptions with = *options;
  if (with.vocab_size == 0) with.vocab_size = log->vocab_size;
  g_autoptr(MsImport) import = ms_import_megatron(command, strlen(command), file, &with, error);
  if (!import) return NULL;
  gint64 batch = ms_scenario_batch(import->scenario);
  if (log->global_batch > 0 && log->global_batch != batch) {
    ms_input_error(error, file, 0, "global batch size",
                   "is %d of the steps, %" G_GINT64_FORMAT " of the arguments: no step of the whole batch is there",
                   log->global_batch, batch);
    return NULL;
  }
  for (guint i = 0; i < import->remarks->len; i++)
    fprintf(stderr, "moesim: %s: %s\n", file, (const char *)import->remarks->pdata[i]);
  if (import->ignored->len > 0)
    fprintf(stderr, "moesim: %s: %u of %u printed arguments mean nothing to a prediction\n", file, import->ignored->len,
            log->arguments->len);
  return scenario_text(import->scenario, m, out);
}

int ms_cli_import_log(const char *file, const char *into, const MsImportOptions *options, const char *out) {
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsReader) reader = ms_reader_open(file, &error);
  g_autoptr(MsTrainingLog) log = reader ? ms_training_log_read(reader, file, notes, &error) : NULL;
  if (!log) return ms_cli_fail(error);
  g_autoptr(MsScenario) scenario = into ? ms_scenario_load(into, &error) : NULL;
  if (into && (!scenario || !ms_training_log_is_of(file, log->global_batch, log->world_size, scenario, &error)))
    return ms_cli_fail(error);
  MsMeasured m = {0};
  set_measured(log, file, &m);
  ms_cli_print_notes(notes);
  if (log->low_s > 0 && log->kept == 1)
    fprintf(stderr, "moesim: %s: %.4g s in the one step that counts: how much steps differ is not known\n", file,
            log->time_s);
  else if (log->low_s > 0)
    fprintf(stderr, "moesim: %s: %.4g s a step, 80 of 100 steps between %.4g and %.4g s\n", file, log->time_s,
            log->low_s, log->high_s);
  g_autofree char *text = scenario                   ? scenario_text(scenario, &m, out)
                          : log->arguments->len == 0 ? measured_text(&m)
                                                     : from_arguments(log, file, options, &m, out, &error);
  ms_fields_clear(&ms_measured_table, &m);
  return text ? ms_cli_write(out, text) : ms_cli_fail(error);
}
