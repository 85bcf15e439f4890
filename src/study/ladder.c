/* src/study/ladder.c - rank order and single-knob changes. */
#include "study/ladder.h"

#include "base/json.h"
#include "base/order.h"
#include "study/knobs.h"

#include <math.h>
#include <string.h>

typedef struct {              /* one run of a ladder */
  double measured, predicted; /* lower is better */
  GHashTable *knobs;          /* path -> value as text */
} Run;

static void run_clear(gpointer data) { g_clear_pointer(&((Run *)data)->knobs, g_hash_table_unref); }

double ms_order_tau(const MsOrder *o) { return o->pairs > 0 ? ((double)o->right - o->wrong) / o->pairs : NAN; }

/* --- knobs of a scenario --------------------------------------------------------------------------------------- */
static GHashTable *knobs_of(const char *file, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(file, error);
  return doc ? ms_knobs_of(ms_json_root(doc)) : NULL;
}

/* How many keys of `a` have another value in `b` or none; *which is the last one seen. */
static int count_changes(GHashTable *a, GHashTable *b, gboolean missing_only, const char **which) {
  GHashTableIter iter;
  gpointer key, value;
  int changes = 0;
  g_hash_table_iter_init(&iter, a);
  while (g_hash_table_iter_next(&iter, &key, &value)) {
    const char *other = g_hash_table_lookup(b, key);
    if (other && (missing_only || g_str_equal(other, value))) continue;
    changes++;
    *which = key;
  }
  return changes;
}

/* The one key in which they differ, NULL when it is none or several. */
static const char *single_knob(const Run *a, const Run *b) {
  const char *which = NULL;
  return count_changes(a->knobs, b->knobs, FALSE, &which) + count_changes(b->knobs, a->knobs, TRUE, &which) == 1 ? which
                                                                                                                 : NULL;
}

/* --- runs of a ladder ------------------------------------------------------------------------------------------ */
static GHashTable *rows_by_basename(const MsValidation *v) {
  GHashTable *rows = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_ptr_array_unref);
  for (guint i = 0; i < v->n_rows; i++) {
    if (v->rows[i].metric != MS_METRIC_STEP_TIME) continue;
    char *name = g_path_get_basename(v->rows[i].file);
    GPtrArray *same = g_hash_table_lookup(rows, name);
    if (!same) g_hash_table_insert(rows, g_strdup(name), same = g_ptr_array_new());
    g_ptr_array_add(same, &v->rows[i]);
    g_free(name);
  }
  return rows;
}

static const MsValidateRow *row_of(GHashTable *rows, const char *path) {
  g_autofree char *name = g_path_get_basename(path), *end = g_strconcat("/", path, NULL);
  GPtrArray *same = g_hash_table_lookup(rows, name);
  for (guint i = 0; same && i < same->len; i++) {
    const MsValidateRow *row = g_ptr_array_index(same, i);
    if (g_str_equal(row->file, path) || g_str_has_suffix(row->file, end)) return row;
  }
  return NULL;
}

static double number_of(JsonObject *object, const char *key) {
  return ms_json_number(json_object_get_member(object, key));
}

static const char *text_of(JsonObject *object, const char *key) {
  return ms_json_string(json_object_get_member(object, key));
}

static gboolean all_have_rates(JsonArray *list) {
  for (guint i = 0; i < json_array_get_length(list); i++)
    if (!(number_of(json_array_get_object_element(list, i), "tokens_per_s_per_gpu") > 0)) return FALSE;
  return TRUE;
}

static gboolean collect_runs(GHashTable *rows, JsonArray *list, gboolean by_rate, GArray *runs, GError **error) {
  for (guint i = 0; i < json_array_get_length(list); i++) {
    JsonObject *item = json_array_get_object_element(list, i);
    const char *path = text_of(item, "path");
    const MsValidateRow *row = path ? row_of(rows, path) : NULL;
    if (!row) continue;
    Run run = {row->measured, row->predicted, knobs_of(row->file, error)};
    if (!run.knobs) return FALSE;
    if (by_rate)
      run.measured = 1 / number_of(item, "tokens_per_s_per_gpu"),
      run.predicted = run.measured * row->predicted / row->measured;
    g_array_append_val(runs, run);
  }
  return TRUE;
}

/* --- pairs ----------------------------------------------------------------------------------------------------- */
static void count_pair(MsOrder *order, double agreement) {
  order->pairs++;
  if (agreement > 0) order->right++;
  if (agreement < 0) order->wrong++;
}

static void add_order(MsOrder *to, const MsOrder *from) {
  to->pairs += from->pairs, to->right += from->right, to->wrong += from->wrong;
}

static void count_knob(GHashTable *knobs, const char *knob, double agreement) {
  MsOrder *order = g_hash_table_lookup(knobs, knob);
  if (!order) g_hash_table_insert(knobs, g_strdup(knob), order = g_new0(MsOrder, 1));
  count_pair(order, agreement);
}

static void compare(MsLadders *all, MsLadder *ladder, GHashTable *knobs, const Run *a, const Run *b) {
  double measured = a->measured - b->measured, agreement = measured * (a->predicted - b->predicted);
  if (measured == 0) return;
  gboolean clear = fabs(measured) > MS_LADDER_CLEAR * MIN(a->measured, b->measured);
  const char *knob = single_knob(a, b);
  count_pair(&ladder->order, agreement);
  if (clear) count_pair(&all->clear, agreement);
  if (knob) count_pair(&all->single_all, agreement);
  if (!knob || !clear) return;
  count_pair(&ladder->single, agreement);
  count_knob(knobs, knob, agreement);
}

static gboolean add_ladder(MsLadders *all, GArray *kept, GHashTable *rows, GHashTable *knobs, const MsJson *doc,
                           guint i, JsonObject *json, GError **error) {
  g_autofree char *path = g_strdup_printf("ladders[%u].scenarios", i);
  JsonNode *list = json_object_get_member(json, "scenarios");
  if (!list || !JSON_NODE_HOLDS_ARRAY(list)) return ms_json_error(doc, path, error, "must be a list of runs");
  JsonArray *array = json_node_get_array(list);
  for (guint k = 0; k < json_array_get_length(array); k++)
    if (!JSON_NODE_HOLDS_OBJECT(json_array_get_element(array, k)))
      return ms_json_error(doc, path, error, "run %u must be an object", k);
  const char *name = text_of(json, "name"), *kind = text_of(json, "kind");
  JsonNode *published = json_object_get_member(json, "published");
  g_autoptr(GArray) runs = g_array_new(FALSE, TRUE, sizeof(Run));
  g_array_set_clear_func(runs, run_clear);
  if (!collect_runs(rows, array, g_strcmp0(kind, "scaling") == 0 && all_have_rates(array), runs, error)) return FALSE;
  if (runs->len < 2) {
    all->skipped++;
    return TRUE;
  }
  MsLadder ladder = {g_strdup(name ? name : "?"),
                     g_strdup(kind ? kind : "?"),
                     published && json_node_get_boolean(published),
                     json_array_get_length(array),
                     runs->len,
                     {0},
                     {0}};
  for (guint a = 0; a < runs->len; a++)
    for (guint b = 0; b < a; b++)
      compare(all, &ladder, knobs, &g_array_index(runs, Run, a), &g_array_index(runs, Run, b));
  add_order(&all->all, &ladder.order), add_order(&all->single, &ladder.single);
  if (ladder.published) add_order(&all->published, &ladder.order), add_order(&all->single_published, &ladder.single);
  g_array_append_val(kept, ladder);
  return TRUE;
}

/* --- all together ---------------------------------------------------------------------------------------------- */
MS_ORDER(more_pairs, MsKnob, MS_MORE(x->order.pairs, y->order.pairs), strcmp(x->knob, y->knob))

static void take_knobs(MsLadders *all, GHashTable *knobs) {
  GHashTableIter iter;
  gpointer key, value;
  all->knobs = g_new0(MsKnob, g_hash_table_size(knobs) + 1);
  g_hash_table_iter_init(&iter, knobs);
  while (g_hash_table_iter_next(&iter, &key, &value))
    all->knobs[all->n_knobs++] = (MsKnob){g_strdup(key), *(MsOrder *)value};
  qsort(all->knobs, all->n_knobs, sizeof *all->knobs, more_pairs);
}

static void mean_tau(MsLadders *all) {
  double sum = 0;
  guint n = 0;
  for (guint i = 0; i < all->n; i++)
    if (all->ladders[i].order.pairs > 0) sum += ms_order_tau(&all->ladders[i].order), n++;
  all->mean_tau = n > 0 ? sum / n : NAN;
}

MsLadders *ms_ladders(const MsValidation *v, const MsJson *doc, GError **error) {
  JsonArray *array = ms_json_need_list(doc, "ladders", error);
  if (!array) return NULL;
  g_autoptr(GHashTable) rows = rows_by_basename(v),
                        knobs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  GArray *kept = g_array_new(FALSE, TRUE, sizeof(MsLadder));
  MsLadders *all = g_new0(MsLadders, 1);
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < json_array_get_length(array); i++) {
    JsonNode *item = json_array_get_element(array, i);
    g_autofree char *path = g_strdup_printf("ladders[%u]", i);
    ok = JSON_NODE_HOLDS_OBJECT(item) ? add_ladder(all, kept, rows, knobs, doc, i, json_node_get_object(item), error)
                                      : ms_json_error(doc, path, error, "must be an object");
  }
  all->n = kept->len;
  all->ladders = (MsLadder *)g_array_free(kept, FALSE);
  take_knobs(all, knobs);
  mean_tau(all);
  if (ok && all->n == 0)
    ok = ms_json_error(doc, "ladders", error, "none of its runs was validated: give the folder that they stand in");
  if (!ok) g_clear_pointer(&all, ms_ladders_free);
  return all;
}

void ms_ladders_free(MsLadders *all) {
  if (!all) return;
  for (guint i = 0; i < all->n; i++) g_free(all->ladders[i].name), g_free(all->ladders[i].kind);
  for (guint i = 0; i < all->n_knobs; i++) g_free(all->knobs[i].knob);
  g_free(all->ladders);
  g_free(all->knobs);
  g_free(all);
}
