/* src/report/plot.c - rows of a validation as a scatter plot through gnuplot. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "report/gnuplot.h"
#include "report/report.h"

/* Names of the GPUs that have times, in order, as gnuplot's list of words; NULL when there are none. (transfer full) */
static char *gpus_of(const MsValidation *v) {
  g_autoptr(GTree) seen = g_tree_new((GCompareFunc)(void (*)(void))strcmp);
  for (guint i = 0; i < v->n_rows; i++)
    if (v->rows[i].metric == MS_METRIC_STEP_TIME) g_tree_insert(seen, v->rows[i].label.of[MS_BY_GPU], NULL);
  GString *out = g_string_new(NULL);
  for (GTreeNode *node = g_tree_node_first(seen); node; node = g_tree_node_next(node))
    g_string_append_printf(out, "%s%s", out->len ? " " : "", (const char *)g_tree_node_key(node));
  return g_string_free(out, out->len == 0);
}

gboolean ms_report_validation_plot(const MsValidation *v, const char *filename, GError **error) {
  g_autofree char *gpus = gpus_of(v), *rows = ms_report_validation_csv(v);
  if (!gpus) return ms_error(error, MS_ERROR_INPUT, "%s: no step time to plot", filename);
  const char *const variables[] = {"gpus", gpus, NULL};
  return ms_gnuplot("validation.gp", rows, filename, variables, error);
}
