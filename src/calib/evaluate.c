/* src/calib/evaluate.c - predicted against measured, table by table; learns nothing. */
#include "calib/fit.h"

#include "base/err.h"
#include "base/io.h"
#include "base/stats.h"

#include <math.h>
#include <string.h>

typedef struct {
  MsEvaluated row;
  GArray *error; /* double: predicted / measured - 1 */
} Group;

static void group_clear(gpointer data) { g_array_unref(((Group *)data)->error); }

static const char *kind_of(const MsSeries *series) {
  return series->kind == MS_ROW_COLLECTIVE ? "nccl" : series->key.op;
}

static Group *group_for(GArray *groups, const MsSeries *series, gboolean by_library) {
  const char *dtype = series->key.dtype ? series->key.dtype : "any";
  for (guint i = 0; i < groups->len; i++) {
    Group *g = &g_array_index(groups, Group, i);
    if (strcmp(g->row.kind, kind_of(series)) == 0 && strcmp(g->row.dtype, dtype) == 0 &&
        strcmp(g->row.file, series->file) == 0 && strcmp(g->row.gpu, series->gpu) == 0 &&
        (!by_library || strcmp(g->row.library, series->library) == 0))
      return g;
  }
  Group group = {{g_strdup(series->file), g_strdup(series->gpu), g_strdup(dtype), g_strdup(series->library),
                  kind_of(series), 0, NAN, NAN, NAN},
                 g_array_new(FALSE, FALSE, sizeof(double))};
  g_array_append_vals(groups, &group, 1);
  return &g_array_index(groups, Group, groups->len - 1);
}

/* Whether these are rows of what the curve was fitted to: its library, or the best one here when the profile does not
 * say. */
static gboolean belongs(const MsCurve *curve, const MsSeries *series, const GPtrArray *all) {
  if (!*series->library) return TRUE;
  if (curve->provenance.library) return strcmp(curve->provenance.library, series->library) == 0;
  for (guint i = 0; i < all->len; i++) {
    const MsSeries *other = all->pdata[i];
    gboolean rival =
        other != series && other->kind == series->kind && memcmp(&other->key, &series->key, sizeof other->key) == 0;
    if (rival && ms_fit_preference(other) < ms_fit_preference(series)) return FALSE;
  }
  return TRUE;
}

static void add_errors(Group *group, const MsCurve *curve, const MsDeviceRates *device, const MsSeries *series,
                       gboolean held_back) {
  for (guint i = 0; i < series->rows->len; i++) {
    const MsRow *row = &g_array_index(series->rows, MsRow, i);
    if (held_back && ms_row_bucket(series->kind, row->x) >= MS_HELD_BACK) continue;
    double error = ms_predict(curve, device, series, row->x).time_s / row->time_s - 1;
    g_array_append_val(group->error, error);
  }
}

/* One group for each kind of kernel, whatever its table, machine and dtype. */
static void pool(GArray *kinds, const GArray *groups) {
  for (guint i = 0; i < groups->len; i++) {
    const Group *group = &g_array_index(groups, Group, i);
    guint at = 0;
    while (at < kinds->len && strcmp(g_array_index(kinds, Group, at).row.kind, group->row.kind) != 0) at++;
    if (at == kinds->len) {
      Group kind = {{.file = g_strdup(""),
                     .gpu = g_strdup(""),
                     .dtype = g_strdup(""),
                     .library = g_strdup(""),
                     .kind = group->row.kind},
                    g_array_new(FALSE, FALSE, sizeof(double))};
      g_array_append_vals(kinds, &kind, 1);
    }
    g_array_append_vals(g_array_index(kinds, Group, at).error, group->error->data, group->error->len);
  }
}

static void summarise(GArray *groups, GArray *out) {
  for (guint i = 0; i < groups->len; i++) {
    Group *group = &g_array_index(groups, Group, i);
    double *error = (double *)(void *)group->error->data;
    MsEvaluated *row = &group->row;
    row->n = group->error->len;
    row->bias = ms_quantile(error, row->n, 0.5);
    for (guint j = 0; j < row->n; j++) error[j] = fabs(error[j]);
    row->median = ms_quantile(error, row->n, 0.5);
    row->p90 = ms_quantile(error, row->n, 0.9);
    g_array_append_vals(out, row, 1);
  }
  g_array_unref(groups);
}

static GArray *groups_new(void) {
  GArray *groups = g_array_new(FALSE, FALSE, sizeof(Group));
  g_array_set_clear_func(groups, group_clear);
  return groups;
}

/* The curve that the simulator takes: that of the row's pass, else for a product that of all passes. */
static int curve_for(const MsHardware *hardware, const MsSeries *series) {
  int own = ms_fit_find_curve(hardware, series);
  MsSeries any = *series;
  any.key.pass = NULL;
  gboolean product = series->kind == MS_ROW_GEMM || series->kind == MS_ROW_GROUPED;
  return own < 0 && product ? ms_fit_find_curve(hardware, &any) : own;
}

static void evaluate(const MsHardware *hardware, const GPtrArray *series, gboolean held_back, GArray *kinds,
                     MsEvaluation *out) {
  GArray *own = groups_new(), *others = groups_new();
  for (guint i = 0; i < series->len; i++) {
    const MsSeries *s = series->pdata[i];
    ms_series_merge(s->rows);
    int at = curve_for(hardware, s);
    MsDeviceRates device = ms_device_rates(hardware, s->dtype, FALSE);
    if (at < 0 || !(device.peak_flops > 0)) {
      const char *words[] = {s->key.op, s->key.dtype, s->key.pass, s->library};
      g_autoptr(GString) what = g_string_new(NULL);
      for (size_t j = 0; j < G_N_ELEMENTS(words); j++)
        if (words[j] && *words[j]) g_string_append_printf(what, "%s%s", what->len ? " " : "", words[j]);
      g_ptr_array_add(out->notes, g_strdup_printf("%s: %u rows of %s: the profile has no such curve", s->file,
                                                  s->rows->len, what->str));
      continue;
    }
    const MsCurve *curve = &hardware->curves[at];
    gboolean mine = belongs(curve, s, series);
    add_errors(group_for(mine ? own : others, s, !mine), curve, &device, s, held_back);
  }
  pool(kinds, own);
  summarise(own, out->rows);
  summarise(others, out->others);
}

static void evaluated_clear(gpointer data) {
  MsEvaluated *row = data;
  g_free(row->file);
  g_free(row->gpu);
  g_free(row->dtype);
  g_free(row->library);
}

static GArray *evaluated_new(void) {
  GArray *rows = g_array_new(FALSE, FALSE, sizeof(MsEvaluated));
  g_array_set_clear_func(rows, evaluated_clear);
  return rows;
}

static gboolean evaluate_machine(const char *name, const char *const *files, gboolean held_back, GArray *kinds,
                                 MsEvaluation *out, MsProgress *progress, GError **error) {
  g_autoptr(MsHardware) hardware = ms_hardware_load(name, error);
  if (!hardware) return FALSE;
  const char *names[] = {hardware->name, NULL};
  for (int i = 0; files[i] && !ms_interrupted(); i++) {
    g_autoptr(GPtrArray) series = g_ptr_array_new_with_free_func((GDestroyNotify)ms_series_free);
    g_autofree char *note = NULL;
    if (!ms_measure_read(files[i], names, series, &note, error)) return FALSE;
    if (note) g_ptr_array_add(out->notes, g_strdup_printf("%s: %s", files[i], note));
    evaluate(hardware, series, held_back, kinds, out);
    out->tables++;
    ms_progress_update(progress, out->tables, files[i]);
  }
  return TRUE;
}

MsEvaluation *ms_fit_evaluate(const char *hardware, const char *const *files, gboolean held_back, GError **error) {
  g_auto(GStrv) names = g_strsplit(hardware, ",", -1);
  g_autoptr(MsEvaluation) out = g_new0(MsEvaluation, 1);
  *out = (MsEvaluation){evaluated_new(), evaluated_new(), evaluated_new(), g_ptr_array_new_with_free_func(g_free)};
  GArray *kinds = groups_new();
  gboolean ok = TRUE;
  out->all_tables = (int)(g_strv_length(names) * g_strv_length((char **)files));
  MsProgress *progress = ms_progress_begin("evaluate", out->all_tables);
  for (int i = 0; names[i] && ok; i++) ok = evaluate_machine(names[i], files, held_back, kinds, out, progress, error);
  ms_progress_end(progress);
  summarise(kinds, out->kinds);
  if (ok && out->rows->len == 0 && out->others->len == 0 && out->tables == out->all_tables) {
    const char *why = out->notes->len > 0 ? out->notes->pdata[0] : NULL;
    ok = ms_input_error(error, NULL, 0, NULL, "no row of %s in the tables given%s%s", hardware, why ? "; " : "",
                        why ? why : "");
  }
  return ok ? g_steal_pointer(&out) : NULL;
}

void ms_evaluation_free(MsEvaluation *evaluation) {
  if (!evaluation) return;
  g_array_unref(evaluation->rows);
  g_array_unref(evaluation->others);
  g_array_unref(evaluation->kinds);
  g_ptr_array_unref(evaluation->notes);
  g_free(evaluation);
}
