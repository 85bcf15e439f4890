#include "report/gnuplot.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "report/report.h"

/* --- CSV ------------------------------------------------------------------------------------------------------- */
/* NAME='text'; a single quote is doubled. */
static void assign(GString *out, const char *name, const char *text) {
  GString *value = g_string_new(text);
  g_string_replace(value, "'", "''", 0);
  g_string_append_printf(out, "%s='%s'; ", name, value->str);
  g_string_free(value, TRUE);
}

gboolean ms_report_can_plot(const char *filename, GError **error) {
  g_autofree char *found = filename ? g_find_program_in_path("gnuplot") : NULL;
  if (!filename || found) return ms_can_write(filename, error);
  return ms_error(error, MS_ERROR_ENV, "--plot needs gnuplot, which is not installed");
}

static gboolean run(const char *settings, const char *script, GError **error) {
  const char *argv[] = {"gnuplot", "-e", settings, script, NULL};
  g_autoptr(GError) inner = NULL;
  g_autofree char *complaint = NULL;
  int status = 0;
  if (!g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL,
                    &complaint, &status, &inner))
    return ms_error(error, MS_ERROR_ENV, "gnuplot: %s", inner->message);
  if (g_spawn_check_wait_status(status, NULL)) return TRUE;
  return ms_error(error, MS_ERROR_ENV, "gnuplot failed: %s",
                  complaint && *complaint ? g_strdelimit(g_strstrip(complaint), "\n", ' ') : "no reason given");
}

/* A temporary file with the rows; the caller removes it. A comma within quotes ends a field of gnuplot nevertheless. */
static char *temporary(const char *csv, GError **error) {
  g_autofree char *rows = g_strdup(csv);
  gboolean quoted = FALSE;
  for (char *c = rows; *c; c++) {
    quoted ^= *c == '"';
    if (quoted && *c == ',') *c = ';';
  }
  g_autoptr(GError) inner = NULL;
  char *name = NULL;
  int fd = g_file_open_tmp("moesim-plot-XXXXXX.csv", &name, &inner);
  if (fd >= 0) close(fd);
  if (fd >= 0 && g_file_set_contents(name, rows, -1, &inner)) return name;
  g_set_error_literal(error, MS_ERROR, MS_ERROR_ENV, inner->message);
  g_free(name);
  return NULL;
}

/* A name in the folder of `filename` with its ending, by which the scripts choose the form of the picture. */
static char *beside(const char *filename) {
  g_autofree char *folder = g_path_get_dirname(filename), *base = g_path_get_basename(filename),
                  *hidden = g_strdup_printf(".%d-%s", (int)getpid(), base);
  return g_build_filename(folder, hidden, NULL);
}

/* gnuplot opens its output first and draws then: only a whole picture takes the name that was asked for. */
static gboolean keep(gboolean ok, const char *drawn, const char *filename, GError **error) {
  if (ok && g_rename(drawn, filename) == 0) return TRUE;
  if (ok) g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: cannot be written: %s", filename, g_strerror(errno));
  g_unlink(drawn);
  return FALSE;
}

gboolean ms_gnuplot(const char *script, const char *rows, const char *filename, const char *const *variables,
                    GError **error) {
  g_autofree char *path = g_build_filename(ms_data_dir(), "plots", script, NULL), *drawn = beside(filename);
  char *csv = temporary(rows, error);
  if (!csv) return FALSE;
  g_autoptr(GString) settings = g_string_new(NULL);
  assign(settings, "csv", csv);
  assign(settings, "out", drawn);
  for (; variables && *variables; variables += 2) assign(settings, variables[0], variables[1]);
  gboolean ok = run(settings->str, path, error);
  g_unlink(csv);
  g_free(csv);
  return keep(ok, drawn, filename, error);
}
