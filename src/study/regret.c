#include "study/regret.h"

#include "base/err.h"
#include "base/order.h"
#include "study/knobs.h"

#include <string.h>

/* --- tasks ----------------------------------------------------------------------------------------------------- */
static gboolean is_choice(const char *path) {
  return g_str_has_prefix(path, "layout.") || g_str_has_prefix(path, "options.") ||
         g_str_equal(path, "training.micro_batch_size");
}

/* Everything that runs of one task share, as one text. (transfer full) */
static char *task_of(const MsValidateRow *row, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(row->file, error);
  if (!doc) return NULL;
  g_autoptr(GHashTable) knobs = ms_knobs_of(ms_json_root(doc));
  g_autoptr(GPtrArray) paths = g_ptr_array_new();
  GHashTableIter iter;
  gpointer path;
  g_hash_table_iter_init(&iter, knobs);
  while (g_hash_table_iter_next(&iter, &path, NULL))
    if (!is_choice(path)) g_ptr_array_add(paths, path);
  g_ptr_array_sort(paths, ms_by_text);
  JsonObject *file = json_node_get_object(ms_json_root(doc));
  GString *task = g_string_new(json_object_get_string_member_with_default(file, "software", ""));
  for (guint i = 0; i < paths->len; i++)
    g_string_append_printf(task, "\n%s %s", (char *)paths->pdata[i],
                           (char *)g_hash_table_lookup(knobs, paths->pdata[i]));
  return g_string_free(task, FALSE);
}

static void add_run(GHashTable *tasks, char *task, const MsValidateRow *row) {
  GPtrArray *runs = g_hash_table_lookup(tasks, task);
  if (runs) g_free(task);
  else g_hash_table_insert(tasks, task, runs = g_ptr_array_new());
  g_ptr_array_add(runs, (gpointer)row);
}

/* --- regret ---------------------------------------------------------------------------------------------------- */
static gboolean rather(const MsValidateRow *a, const MsValidateRow *b) {
  return a->predicted < b->predicted || (a->predicted == b->predicted && a->measured > b->measured);
}

static MsRegretTask regret_of(const GPtrArray *runs) {
  const MsValidateRow *chosen = runs->pdata[0], *best = runs->pdata[0];
  for (guint i = 1; i < runs->len; i++) {
    const MsValidateRow *row = runs->pdata[i];
    if (rather(row, chosen)) chosen = row;
    if (row->measured < best->measured) best = row;
  }
  return (MsRegretTask){g_strdup(chosen->name), g_strdup(best->name), runs->len, chosen->measured / best->measured - 1};
}

MS_ORDER(worst_first, MsRegretTask, MS_MORE(x->regret, y->regret), strcmp(x->chosen, y->chosen))

static MsRegret *over(GHashTable *tasks) {
  MsRegret *all = g_new0(MsRegret, 1);
  GHashTableIter iter;
  gpointer runs;
  all->tasks = g_new0(MsRegretTask, g_hash_table_size(tasks) + 1);
  g_hash_table_iter_init(&iter, tasks);
  while (g_hash_table_iter_next(&iter, NULL, &runs))
    if (((GPtrArray *)runs)->len >= 2) all->tasks[all->n++] = regret_of(runs);
  if (all->n > 0) qsort(all->tasks, all->n, sizeof *all->tasks, worst_first);
  for (guint i = 0; i < all->n; i++) {
    const MsRegretTask *task = &all->tasks[i];
    all->runs += task->runs;
    all->right += task->regret == 0;
    all->mean += task->regret / all->n;
    all->max = MAX(all->max, task->regret);
  }
  return all;
}

MsRegret *ms_regret(const MsValidation *v, GError **error) {
  g_autoptr(GHashTable) tasks =
      g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_ptr_array_unref);
  for (guint i = 0; i < v->n_rows; i++) {
    if (v->rows[i].metric != MS_METRIC_STEP_TIME || !v->rows[i].counted) continue;
    char *task = task_of(&v->rows[i], error);
    if (!task) return NULL;
    add_run(tasks, task, &v->rows[i]);
  }
  MsRegret *all = over(tasks);
  if (all->n > 0) return all;
  ms_regret_free(all);
  return ms_error(error, MS_ERROR_INPUT,
                  "--regret: no two runs of one task (the same model, machine, GPUs, software and training but for "
                  "the microbatch)"),
         NULL;
}

void ms_regret_free(MsRegret *all) {
  if (!all) return;
  for (guint i = 0; i < all->n; i++) g_free(all->tasks[i].chosen), g_free(all->tasks[i].best);
  g_free(all->tasks);
  g_free(all);
}
