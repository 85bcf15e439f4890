#include "cli/import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "logs/training.h"

/* --- the arguments that were printed, as a command ------------------------------------------------------------- */
/* Switches that turn off what is on without them. */
static const char *switch_off(const char *dest) {
  static const char *const off[][2] = {{"add_bias_linear", "--disable-bias-linear"},
                                       {"bias_dropout_fusion", "--no-bias-dropout-fusion"},
                                       {"gradient_accumulation_fusion", "--no-gradient-accumulation-fusion"},
                                       {"overlap_p2p_comm", "--no-overlap-p2p-communication"},
                                       {"apply_rope_fusion", "--no-rope-fusion"}};
  for (gsize i = 0; i < G_N_ELEMENTS(off); i++)
    if (strcmp(dest, off[i][0]) == 0) return off[i][1];
  return NULL;
}

/* One printed argument, "hidden_size 4096", as words of a command. */
static void add_word(GString *command, const char *line) {
  gsize n = strcspn(line, " ");
  g_autofree char *dest = g_strndup(line, n), *value = g_strdup(line[n] ? line + n + 1 : ""), *flag = g_strdup(dest);
  const char *off = strcmp(value, "False") == 0 ? switch_off(dest) : NULL;
  if (off) g_string_append_printf(command, " %s", off);
  if (strcmp(value, "None") == 0 || strcmp(value, "False") == 0 || !*value || strcmp(value, "[]") == 0) return;
  g_strdelimit(flag, "_", '-');
  g_string_append_printf(command, " --%s", flag);
  if (strcmp(value, "True") == 0) return;
  g_autofree char *quoted = NULL;
  if (*value == '[') {
    g_strdelimit(value, "[],'\"", ' ');
    g_string_append_printf(command, " %s", value);
    return;
  }
  quoted = g_shell_quote(value);
  g_string_append_printf(command, " %s", quoted);
}

/* Modules that a model lacks have sizes all the same: what is off says nothing. */
static gboolean is_idle(const MsTrainingLog *log, const char *line) {
  static const char *const of[][2] = {{"multi_latent_attention", "q_lora_rank kv_lora_rank qk_head_dim "
                                                                 "qk_pos_emb_head_dim v_head_dim mscale_all_dim"},
                                      {"num_experts", "moe_"},
                                      {"encoder", "encoder_"}};
  for (gsize k = 0; k < G_N_ELEMENTS(of); k++) {
    g_auto(GStrv) names = g_strsplit(of[k][1], " ", -1);
    gboolean ours = FALSE, on = FALSE;
    for (int i = 0; names[i]; i++) ours |= g_str_has_prefix(line, names[i]);
    for (guint i = 0; ours && i < log->arguments->len; i++) {
      const char *other = log->arguments->pdata[i];
      gsize n = strlen(of[k][0]);
      if (strncmp(other, of[k][0], n) == 0 && other[n] == ' ')
        on = strcmp(other + n + 1, "None") != 0 && strcmp(other + n + 1, "False") != 0;
    }
    if (ours && !on) return TRUE;
  }
  return FALSE;
}

static char *command_of(const MsTrainingLog *log) {
  GString *command = g_string_new("torchrun");
  if (log->world_size > 0) g_string_append_printf(command, " --nnodes 1 --nproc-per-node %d", log->world_size);
  g_string_append(command, " pretrain_gpt.py");
  for (guint i = 0; i < log->arguments->len; i++)
    if (!is_idle(log, log->arguments->pdata[i])) add_word(command, log->arguments->pdata[i]);
  return g_string_free(command, FALSE);
}

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

static char *scenario_text(MsScenario *s, const MsMeasured *m) {
  s->has_measured = TRUE;
  MsMeasured before = s->measured;
  s->measured = *m;
  char *text = ms_scenario_text(s, 2);
  s->measured = before;
  return text;
}

/* NULL and *error. */
static char *from_arguments(const MsTrainingLog *log, const char *file, const MsImportOptions *options,
                            const MsMeasured *m, GError **error) {
  g_autofree char *command = command_of(log);
  g_autoptr(MsImport) import = ms_import_megatron(command, strlen(command), file, options, error);
  if (!import) return NULL;
  for (guint i = 0; i < import->remarks->len; i++)
    fprintf(stderr, "moesim: %s: %s\n", file, (const char *)import->remarks->pdata[i]);
  if (import->ignored->len > 0)
    fprintf(stderr, "moesim: %s: %u of %u printed arguments mean nothing to a prediction\n", file, import->ignored->len,
            log->arguments->len);
  return scenario_text(import->scenario, m);
}

int ms_cli_import_log(const char *file, const char *into, const MsImportOptions *options, const char *out) {
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsReader) reader = ms_reader_open(file, &error);
  g_autoptr(MsTrainingLog) log = reader ? ms_training_log_read(reader, file, notes, &error) : NULL;
  if (!log) return ms_cli_fail(error);
  g_autoptr(MsScenario) scenario = into ? ms_scenario_load(into, &error) : NULL;
  if (into && !scenario) return ms_cli_fail(error);
  MsMeasured m = {0};
  set_measured(log, file, &m);
  ms_cli_print_notes(notes);
  if (log->low_s > 0 && log->kept == 1)
    fprintf(stderr, "moesim: %s: %.4g s in the one step that counts: how much steps differ is not known\n", file,
            log->time_s);
  else if (log->low_s > 0)
    fprintf(stderr, "moesim: %s: %.4g s a step, 80 of 100 steps between %.4g and %.4g s\n", file, log->time_s,
            log->low_s, log->high_s);
  g_autofree char *text = scenario                   ? scenario_text(scenario, &m)
                          : log->arguments->len == 0 ? measured_text(&m)
                                                     : from_arguments(log, file, options, &m, &error);
  ms_fields_clear(&ms_measured_table, &m);
  return text ? ms_cli_write(out, text) : ms_cli_fail(error);
}
