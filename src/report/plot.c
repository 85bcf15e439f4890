/* src/report/plot.c - rows of a validation as CSV, and as a scatter plot through gnuplot. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "report/report.h"

/* --- CSV -------------------------------------------------------------------------------------------------------------------- */
static void put_text(GString *out, const char *text) {
  if (!strpbrk(text, ",\"\n")) {
    g_string_append(out, text);
  } else {
    g_autofree char *doubled = g_strdup(text);
    GString *quoted = g_string_new(doubled);
    g_string_replace(quoted, "\"", "\"\"", 0);
    g_string_append_printf(out, "\"%s\"", quoted->str);
    g_string_free(quoted, TRUE);
  }
  g_string_append_c(out, ',');
}

static void put_number(GString *out, double value, char end) {
  char text[32];
  if (isfinite(value)) g_string_append(out, ms_double_text(value, text));
  g_string_append_c(out, end);
}

char *ms_report_validation_csv(const MsValidation *v) {
  GString *out = g_string_new("name,file,gpu,model,source,stack,confidence,metric,measured,predicted,error,error_band,inside_band,weight,counted\n");
  for (guint i = 0; i < v->n_rows; i++) {
    const MsValidateRow *row = &v->rows[i];
    put_text(out, row->name ? row->name : ""), put_text(out, row->file);
    put_text(out, row->label[MS_BY_GPU]), put_text(out, row->label[MS_BY_MODEL]), put_text(out, row->label[MS_BY_SOURCE]);
    put_text(out, row->label[MS_BY_STACK]), put_text(out, row->label[MS_BY_CONFIDENCE]), put_text(out, ms_metric_words[row->metric]);
    put_number(out, row->measured, ','), put_number(out, row->predicted, ','), put_number(out, row->error, ',');
    put_number(out, row->band, ',');
    put_number(out, row->metric == MS_METRIC_STEP_TIME ? row->inside : NAN, ',');
    put_number(out, row->weight, ',');
    put_number(out, row->counted, '\n');
  }
  return g_string_free(out, FALSE);
}

/* --- gnuplot ---------------------------------------------------------------------------------------------------------------- */
/* Names of the GPUs that have times, in order, as gnuplot's list of words; NULL when there are none. (transfer full) */
static char *gpus_of(const MsValidation *v) {
  g_autoptr(GTree) seen = g_tree_new((GCompareFunc)(void (*)(void))strcmp);
  for (guint i = 0; i < v->n_rows; i++)
    if (v->rows[i].metric == MS_METRIC_STEP_TIME) g_tree_insert(seen, v->rows[i].label[MS_BY_GPU], NULL);
  GString *out = g_string_new(NULL);
  for (GTreeNode *node = g_tree_node_first(seen); node; node = g_tree_node_next(node))
    g_string_append_printf(out, "%s%s", out->len ? " " : "", (const char *)g_tree_node_key(node));
  return g_string_free(out, out->len == 0);
}

/* 'text' for gnuplot: a single quote is doubled. (transfer full) */
static char *quoted(const char *text) {
  GString *out = g_string_new(text);
  g_string_replace(out, "'", "''", 0);
  g_string_prepend_c(out, '\'');
  g_string_append_c(out, '\'');
  return g_string_free(out, FALSE);
}

static gboolean run_gnuplot(const char *settings, const char *script, GError **error) {
  const char *argv[] = {"gnuplot", "-e", settings, script, NULL};
  g_autoptr(GError) inner = NULL;
  g_autofree char *complaint = NULL;
  int status = 0;
  if (!g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &complaint, &status, &inner)) {
    gboolean missing = g_error_matches(inner, G_SPAWN_ERROR, G_SPAWN_ERROR_NOENT);
    g_set_error(error, MS_ERROR, MS_ERROR_ENV, missing ? "gnuplot is not installed; --csv writes the rows for another program" : "gnuplot: %s",
                inner->message);
    return FALSE;
  }
  if (g_spawn_check_wait_status(status, NULL)) return TRUE;
  g_set_error(error, MS_ERROR, MS_ERROR_ENV, "gnuplot failed: %s", complaint && *complaint ? g_strdelimit(g_strstrip(complaint), "\n", ' ') : "no reason given");
  return FALSE;
}

/* A temporary file with the rows; the caller removes it. */
static char *temporary_csv(const MsValidation *v, GError **error) {
  g_autoptr(GError) inner = NULL;
  g_autofree char *rows = ms_report_validation_csv(v);
  char *name = NULL;
  int fd = g_file_open_tmp("moesim-validation-XXXXXX.csv", &name, &inner);
  if (fd >= 0) close(fd);
  if (fd >= 0 && g_file_set_contents(name, rows, -1, &inner)) return name;
  g_set_error_literal(error, MS_ERROR, MS_ERROR_ENV, inner->message);
  g_free(name);
  return NULL;
}

gboolean ms_report_validation_plot(const MsValidation *v, const char *filename, GError **error) {
  g_autofree char *gpus = gpus_of(v), *script = g_build_filename(ms_data_dir(), "plots", "validation.gp", NULL);
  if (!gpus) {
    g_set_error(error, MS_ERROR, MS_ERROR_INPUT, "%s: no step time to plot", filename);
    return FALSE;
  }
  g_autofree char *csv = temporary_csv(v, error);
  if (!csv) return FALSE;
  g_autofree char *q_csv = quoted(csv), *q_out = quoted(filename), *q_gpus = quoted(gpus);
  g_autofree char *settings = g_strdup_printf("csv=%s; out=%s; gpus=%s", q_csv, q_out, q_gpus);
  gboolean ok = run_gnuplot(settings, script, error);
  g_unlink(csv);
  return ok;
}
