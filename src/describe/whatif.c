/* src/describe/whatif.c - the tables of a what-if file, its points, and who is to blame for one that does not load. */
#include "describe/whatif.h"

#include "base/err.h"
#include "describe/rows.h"

#include <string.h>

static const char *const combine_words[] = {"cross", "zip", NULL};
static const char *const plan_words[] = {"none", "base", "points", NULL};
const char *const ms_whatif_per_words[] = {"step", "token", NULL};

/* --- tables: a point, an axis, the file ------------------------------------------------------------------------ */
typedef struct {
  char *label;
  JsonNode *set;
} PointRow;
typedef struct {
  char *name, *key;
  JsonNode *values, *labels, *points;
} AxisRow;

static const MsFieldTable point_table =
    MS_FIELD_TABLE("whatif.axes[].points[]", "several keys that change together",
                   MS_STRING(PointRow, label, MS_REQUIRED, "what tables and pictures call it"),
                   MS_FREE(PointRow, set, "object: path of a key -> its value, all set together"));

static const MsFieldTable axis_table = MS_FIELD_TABLE(
    "whatif.axes[]", "one axis of change: key and values, or points",
    MS_STRING(AxisRow, name, MS_NULLABLE, "what tables and pictures call the axis; null = its key"),
    MS_STRING(
        AxisRow, key, MS_NULLABLE,
        "path of the key that changes: gpus, layout.ep, training.seq_length, hardware.nic_Bps, model.num_layers, ..."),
    MS_FREE(AxisRow, values, "list of the values of that key"),
    MS_FREE(AxisRow, labels, "list of words for the values; null = the values themselves"),
    {MS_ROW(AxisRow, points, MS_T_FREE, "", NULL, MS_NULLABLE,
            "instead of key and values: list of points that set several keys"),
     .sub = &point_table});

static gboolean axes_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);

typedef struct { /* the loaded struct, and what the file names */
  MsWhatif study;
  JsonNode *base, *set;
} File;

#define IN(k, w, fb, d) \
  { MS_ROW(MsWhatif, k, MS_T_ENUM, "", fb, 0, d), .words = w }
const MsFieldTable ms_whatif_table = MS_FIELD_TABLE(
    "whatif", "a what-if study, scenarios/whatif/*.json", MS_SCHEMA(MS_REQUIRED),
    MS_STRING(MsWhatif, name, MS_NULLABLE, "name of the study, by default that of the file"),
    MS_STRING(MsWhatif, doc, MS_NULLABLE, "free text"),
    {MS_ROW(File, base, MS_T_FREE, "", NULL, MS_REQUIRED,
            "what is changed: a scenario (or a plan request, see plan), as a path beside this file or as an object")},
    MS_FREE(File, set, "object: path of a key -> its value, set in the base before anything else; null = nothing"),
    IN(plan, plan_words, "\"none\"",
       "the base is a scenario (none), a plan request whose winner is changed (base) or that is planned anew at every "
       "point (points)"),
    IN(fidelity, ms_fidelity_words, "\"full\"", "of the simulation"),
    IN(combine, combine_words, "\"cross\"",
       "every value of an axis with every other's (cross), or the i-th values together (zip)"),
    IN(per, ms_whatif_per_words, "\"step\"",
       "what is compared: seconds of a step, or GPU seconds per token where points train different batches or numbers "
       "of GPUs"),
    {MS_CUSTOM(axes, "", MS_REQUIRED, "list of axes"), .parse = axes_parse, .sub = &axis_table});

/* --- keys ------------------------------------------------------------------------------------------------------ */
static const char *const closed_keys[] = {"schema", "name", "doc", "measured",
                                          NULL}; /* of a scenario: they change nothing */

/* The table behind a member of the scenario that has keys of its own; NULL: none. */
static const MsFieldTable *table_behind(const MsField *field, const char *key) {
  if (field && field->sub && field->sub != &ms_pool_table) return field->sub;
  if (g_str_equal(key, "hardware")) return &ms_hardware_table;
  return g_str_equal(key, "model") ? &ms_model_table : NULL;
}

static const char *nearest_key(const MsFieldTable *table, const char *key) {
  g_autoptr(GPtrArray) known = g_ptr_array_new();
  for (const MsField *field = table->fields; field->key; field++) g_ptr_array_add(known, (gpointer)field->key);
  g_ptr_array_add(known, NULL);
  return ms_nearest(key, (const char *const *)known->pdata);
}

/* The row that `key` leads to; NULL and *error at `path` of the study. */
/* Of a key that is said without its section or with another, "nic_Bps", "options.precision"; NULL: none has it. */
static const char *section_of(const char *key) {
  static const struct {
    const char *name;
    const MsFieldTable *table;
  } sections[] = {{"hardware", &ms_hardware_table},
                  {"training", &ms_training_table},
                  {"layout", &ms_layout_table},
                  {"options", &ms_options_table}};
  for (guint i = 0; i < G_N_ELEMENTS(sections); i++)
    if (ms_field_find(sections[i].table, key)) return sections[i].name;
  return NULL;
}

static const MsField *resolve(const MsJson *doc, const char *path, const char *key, GError **error) {
  g_auto(GStrv) part = g_strsplit(key, ".", -1);
  const MsFieldTable *table = &ms_scenario_table;
  const MsField *field = NULL;
  if (g_strv_contains(closed_keys, part[0] ? part[0] : "")) {
    ms_json_error(doc, path, error, "%s does not change a prediction", key);
    return NULL;
  }
  for (int i = 0; part[i]; i++) {
    gboolean plan = i == 0 && g_str_equal(part[0], "plan");
    field = table && !plan ? ms_field_find(table, part[i]) : NULL;
    if (!field && !plan) {
      const char *section = !part[i + 1] ? section_of(part[i]) : NULL;
      if (section) {
        ms_json_error(doc, path, error, "unknown key %s, did you mean \"%s.%s\"?", key, section, part[i]);
        return NULL;
      }
      const char *near = table ? nearest_key(table, part[i]) : NULL;
      ms_json_error(doc, path, error,
                    near ? "unknown key %s, did you mean \"%s\"?" : "unknown key %s, `moesim schema` lists them", key,
                    near);
      return NULL;
    }
    table = plan ? &ms_plan_table : table_behind(field, part[i]);
  }
  if (!field) ms_json_error(doc, path, error, "must be the path of a key, such as layout.ep");
  return field;
}

/* --- labels ---------------------------------------------------------------------------------------------------- */
static char *scaled(double value, double step, const char *unit) {
  static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
  guint i = 0;
  for (; value >= step && i + 1 < G_N_ELEMENTS(prefix); i++) value /= step;
  return g_strdup_printf("%.4g %s%s%s", value, prefix[i], step > 1000 && i > 0 ? "i" : "", unit);
}

/* A number with its unit, a word without quotes, anything else as JSON. */
static char *label_of(const MsField *field, JsonNode *value) {
  gboolean plain = JSON_NODE_HOLDS_VALUE(value);
  GType type = plain ? json_node_get_value_type(value) : G_TYPE_INVALID;
  if (type == G_TYPE_STRING) return g_strdup(json_node_get_string(value));
  if (plain && (type == G_TYPE_INT64 || type == G_TYPE_DOUBLE)) {
    double number = type == G_TYPE_INT64 ? (double)json_node_get_int(value) : json_node_get_double(value);
    if (g_strcmp0(field->unit, "B") == 0) return scaled(number, 1024, "B");
    if (g_strcmp0(field->unit, "Bps") == 0) return scaled(number, 1000, "B/s");
    if (g_strcmp0(field->unit, "flops") == 0) return scaled(number, 1000, "FLOP/s");
  }
  return ms_json_text(value, 0);
}

/* --- axes ------------------------------------------------------------------------------------------------------ */
static void point_add(MsAxisPoint *point, const char *key, JsonNode *value) {
  point->key = g_renew(char *, point->key, point->n + 1);
  point->value = g_renew(JsonNode *, point->value, point->n + 1);
  point->key[point->n] = g_strdup(key);
  point->value[point->n++] = ms_json_copy(value);
}

static void point_clear(MsAxisPoint *point) {
  for (int i = 0; i < point->n; i++) {
    g_free(point->key[i]);
    json_node_unref(point->value[i]);
  }
  g_free(point->key);
  g_free(point->value);
  g_free(point->label);
  g_free(point->path);
}

/* A list of 1 to MS_WHATIF_MAX_POINTS values; NULL and *error. */
static JsonArray *list_at(const MsJson *doc, JsonNode *node, const char *path, const char *of, GError **error) {
  if (!node || !JSON_NODE_HOLDS_ARRAY(node)) {
    ms_json_error(doc, path, error, "must be a list of %s", of);
    return NULL;
  }
  JsonArray *array = json_node_get_array(node);
  guint n = json_array_get_length(array);
  if (n >= 1 && n <= MS_WHATIF_MAX_POINTS) return array;
  ms_json_error(doc, path, error, "holds %u %s, must hold 1 to %d", n, of, MS_WHATIF_MAX_POINTS);
  return NULL;
}

/* Word i of `labels`, or made from the value. NULL and *error. */
static char *value_label(const MsJson *doc, const AxisRow *row, const MsField *field, const char *path,
                         JsonArray *labels, guint i, JsonNode *value, GError **error) {
  if (!labels) return label_of(field, value);
  JsonNode *word = json_array_get_element(labels, i);
  if (ms_json_is(word, G_TYPE_STRING)) return g_strdup(json_node_get_string(word));
  ms_json_error(doc, path, error, "labels of axis %s must be strings", row->key);
  return NULL;
}

static gboolean key_and_values(const MsJson *doc, const AxisRow *row, const char *path, MsAxis *axis, GError **error) {
  g_autofree char *key_path = g_strconcat(path, ".key", NULL), *values_path = g_strconcat(path, ".values", NULL),
                  *labels_path = g_strconcat(path, ".labels", NULL);
  const MsField *field = resolve(doc, key_path, row->key, error);
  JsonArray *values = field ? list_at(doc, row->values, values_path, "values", error) : NULL;
  if (!values) return FALSE;
  JsonArray *labels = row->labels ? list_at(doc, row->labels, labels_path, "words", error) : NULL;
  guint n = json_array_get_length(values);
  if (row->labels && !labels) return FALSE;
  if (labels && json_array_get_length(labels) != n)
    return ms_json_error(doc, labels_path, error, "holds %u words for %u values", json_array_get_length(labels), n);
  axis->point = g_new0(MsAxisPoint, n);
  for (guint i = 0; i < n; i++) {
    MsAxisPoint *point = &axis->point[axis->n++];
    JsonNode *value = json_array_get_element(values, i);
    point->path = g_strdup_printf("%s[%u]", values_path, i);
    point_add(point, row->key, value);
    if (!(point->label = value_label(doc, row, field, labels_path, labels, i, value, error))) return FALSE;
  }
  return TRUE;
}

/* The settings of an object "path of a key": value. */
static gboolean settings(const MsJson *doc, JsonNode *set, const char *path, MsAxisPoint *point, GError **error) {
  if (!set || !JSON_NODE_HOLDS_OBJECT(set))
    return ms_json_error(doc, path, error, "must be an object of keys and values");
  for (MsJsonMember at = ms_json_members(json_node_get_object(set)); ms_json_next(&at);) {
    if (!resolve(doc, path, at.key, error)) return FALSE;
    point_add(point, at.key, at.value);
  }
  return TRUE;
}

static gboolean point_load(const MsJson *doc, JsonNode *node, const char *path, MsAxisPoint *point, GError **error) {
  PointRow row = {0};
  g_autofree char *set_path = g_strconcat(path, ".set", NULL);
  point->path = g_strdup(path);
  if (!JSON_NODE_HOLDS_OBJECT(node)) return ms_json_error(doc, path, error, "must be an object with label and set");
  gboolean ok = ms_fields_load(&point_table, doc, json_node_get_object(node), path, TRUE, &row, error) &&
                settings(doc, row.set, set_path, point, error);
  point->label = g_steal_pointer(&row.label);
  ms_fields_clear(&point_table, &row);
  return ok;
}

static gboolean points(const MsJson *doc, const AxisRow *row, const char *path, MsAxis *axis, GError **error) {
  g_autofree char *points_path = g_strconcat(path, ".points", NULL);
  JsonArray *list = list_at(doc, row->points, points_path, "points", error);
  if (!list) return FALSE;
  guint n = json_array_get_length(list);
  axis->point = g_new0(MsAxisPoint, n);
  for (guint i = 0; i < n; i++) {
    g_autofree char *item = g_strdup_printf("%s[%u]", points_path, i);
    if (!point_load(doc, json_array_get_element(list, i), item, &axis->point[axis->n++], error)) return FALSE;
  }
  return TRUE;
}

static gboolean axis_load(const MsJson *doc, JsonNode *node, const char *path, MsAxis *axis, GError **error) {
  AxisRow row = {0};
  if (!JSON_NODE_HOLDS_OBJECT(node))
    return ms_json_error(doc, path, error, "must be an object with key and values, or points");
  gboolean ok = ms_fields_load(&axis_table, doc, json_node_get_object(node), path, TRUE, &row, error);
  if (ok && !row.points == !row.key) ok = ms_json_error(doc, path, error, "must have either key and values or points");
  if (ok && row.points && (row.values || row.labels))
    ok = ms_json_error(doc, path, error, "values and labels go with key, not with points");
  if (ok) ok = row.points ? points(doc, &row, path, axis, error) : key_and_values(doc, &row, path, axis, error);
  axis->name = g_strdup(row.name ? row.name : row.key ? row.key : "point");
  ms_fields_clear(&axis_table, &row);
  return ok;
}

static gboolean axes_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsWhatif *w = member;
  if (!JSON_NODE_HOLDS_ARRAY(node)) return ms_json_error(doc, path, error, "must be a list of axes");
  JsonArray *array = json_node_get_array(node);
  guint n = json_array_get_length(array);
  if (n < 1 || n > MS_WHATIF_MAX_AXES)
    return ms_json_error(doc, path, error, "holds %u axes, must hold 1 to %d", n, MS_WHATIF_MAX_AXES);
  w->axis = g_new0(MsAxis, n);
  for (guint i = 0; i < n; i++) {
    g_autofree char *item = g_strdup_printf("%s[%u]", path, i);
    if (!axis_load(doc, json_array_get_element(array, i), item, &w->axis[w->n_axes++], error)) return FALSE;
  }
  return TRUE;
}

/* As many points for every axis of a zip; not too many together. */
static gboolean check_axes(const MsWhatif *w, GError **error) {
  gint64 n = 1;
  for (int a = 0; a < w->n_axes; a++) {
    if (w->combine == MS_WHATIF_ZIP && w->axis[a].n != w->axis[0].n)
      return ms_json_error(w->source, "axes", error, "zipped axes must be equally long: %s has %d values, %s has %d",
                           w->axis[0].name, w->axis[0].n, w->axis[a].name, w->axis[a].n);
    n = w->combine == MS_WHATIF_ZIP ? w->axis[0].n : n * w->axis[a].n;
    if (n > MS_WHATIF_MAX_POINTS)
      return ms_json_error(w->source, "axes", error, "make more than %d points", MS_WHATIF_MAX_POINTS);
  }
  return TRUE;
}

/* A key is changed by one axis: of two, the second would undo the first. */
static gboolean check_keys(const MsWhatif *w, GError **error) {
  g_autoptr(GHashTable) axis_of = g_hash_table_new(g_str_hash, g_str_equal);
  for (int a = 0; a < w->n_axes; a++)
    for (int i = 0; i < w->axis[a].n; i++)
      for (int k = 0; k < w->axis[a].point[i].n; k++) {
        char *key = w->axis[a].point[i].key[k];
        int other = GPOINTER_TO_INT(g_hash_table_lookup(axis_of, key)) - 1;
        if (other >= 0 && other != a) {
          g_autofree char *path = g_strdup_printf("axes[%d]", a);
          return ms_json_error(w->source, path, error, "sets %s, as axes[%d] does: give its values in one axis", key,
                               other);
        }
        g_hash_table_insert(axis_of, key, GINT_TO_POINTER(a + 1));
      }
  return TRUE;
}

/* --- the base -------------------------------------------------------------------------------------------------- */
/* The object member `key` of `json`; the name of a model or a machine becomes its base, what is no object is replaced.
 */
static JsonObject *object_at(JsonObject *json, const char *key) {
  JsonNode *node = json_object_get_member(json, key);
  if (node && JSON_NODE_HOLDS_OBJECT(node)) return json_node_get_object(node);
  JsonObject *made = json_object_new();
  gboolean named = g_str_equal(key, "hardware") || g_str_equal(key, "model");
  if (named && ms_json_is(node, G_TYPE_STRING)) json_object_set_member(made, "base", ms_json_copy(node));
  json_object_set_object_member(json, key, made);
  return made;
}

static void set_key(JsonObject *json, const char *key, JsonNode *value) {
  g_auto(GStrv) part = g_strsplit(key, ".", -1);
  int i = 0;
  for (; part[i + 1]; i++) json = object_at(json, part[i]);
  json_object_set_member(json, part[i], ms_json_copy(value));
}

static int depth_of(const char *key) {
  int depth = 0;
  for (; *key; key++) depth += *key == '.';
  return depth;
}

/* A key before those below it, whatever the order in which they are said: `hardware` takes the place of all of it. */
static void set_keys(JsonObject *json, const MsAxisPoint *const *point, int n) {
  for (int depth = 0, left = 1; left > 0; depth++) {
    left = 0;
    for (int p = 0; p < n; p++)
      for (int i = 0; i < point[p]->n; i++) {
        int own = depth_of(point[p]->key[i]);
        if (own == depth) set_key(json, point[p]->key[i], point[p]->value[i]);
        left += own > depth;
      }
  }
}

/* A tree of its own, to be changed. */
static JsonNode *copied(const MsJson *doc) {
  MsJson *again = ms_json_doc(ms_json_root(doc), ms_json_filename(doc));
  JsonNode *root = json_node_ref(ms_json_root(again));
  ms_json_free(again);
  return root;
}

/* TRUE when `doc` loads as what the study needs. */
static gboolean loads(const MsJson *doc, gboolean request, GError **error) {
  if (request) {
    g_autoptr(MsRequest) r = ms_request_from_doc(doc, error);
    return r != NULL;
  }
  g_autoptr(MsScenario) s = ms_scenario_from_doc_mixed(doc, error);
  return s != NULL;
}

/* `set` changes the base before anything else. */
static gboolean change_base(MsWhatif *w, JsonNode *set, GError **error) {
  MsAxisPoint point = {0};
  const MsAxisPoint *all = &point;
  GError *failure = NULL;
  if (!settings(w->source, set, "set", &point, error)) {
    point_clear(&point);
    return FALSE;
  }
  JsonNode *root = copied(w->base);
  set_keys(json_node_get_object(root), &all, 1);
  MsJson *changed = ms_json_doc(root, ms_json_filename(w->base));
  json_node_unref(root);
  point_clear(&point);
  ms_json_free(w->base);
  w->base = changed;
  if (loads(w->base, w->plan != MS_WHATIF_PLAN_NONE, &failure)) return TRUE;
  ms_json_error(w->source, "set", error, "%s", ms_error_text(failure->message, ms_json_filename(w->base)));
  g_error_free(failure);
  return FALSE;
}

static gboolean load_base(MsWhatif *w, JsonNode *node, const char *hardware, GError **error) {
  gboolean request = w->plan != MS_WHATIF_PLAN_NONE;
  GError *failure = NULL;
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    w->base = ms_json_doc(node, w->file);
    return (ms_put_on(w->base, hardware, &failure) && loads(w->base, request, &failure)) ||
           ms_json_error_inside(w->source, "base", error, failure);
  }
  if (!ms_json_is(node, G_TYPE_STRING)) return ms_json_error(w->source, "base", error, "must be a path or an object");
  g_autofree char *file = ms_find_mentioned("scenarios", json_node_get_string(node), w->source, "base", error);
  w->base = file ? ms_json_load(file, error) : NULL;
  return w->base && ms_put_on(w->base, hardware, error) && loads(w->base, request, error);
}

/* --- loading --------------------------------------------------------------------------------------------------- */
static MsWhatif *whatif_on(MsJson *doc, const char *hardware, GError **error) {
  File file = {0};
  MsWhatif *w = g_new0(MsWhatif, 1);
  JsonNode *root = ms_json_root(doc);
  ms_fields_defaults(&ms_whatif_table, &file);
  file.study.source = doc;
  file.study.file = g_strdup(ms_json_filename(doc));
  gboolean ok = ms_doc_check_kind(doc, "axes", error);
  ok = ok && ms_fields_load(&ms_whatif_table, doc, json_node_get_object(root), "", TRUE, &file, error) &&
       check_axes(&file.study, error) && check_keys(&file.study, error);
  if (!file.study.name) file.study.name = ms_name_of_file(file.study.file);
  ok = ok && load_base(&file.study, file.base, hardware, error) &&
       (!file.set || change_base(&file.study, file.set, error));
  if (file.base) json_node_unref(file.base);
  if (file.set) json_node_unref(file.set);
  *w = file.study;
  if (!ok) g_clear_pointer(&w, ms_whatif_free);
  return w;
}

MsWhatif *ms_whatif_from_doc(MsJson *doc, GError **error) { return whatif_on(doc, NULL, error); }

MsWhatif *ms_whatif_from_doc_on(MsJson *doc, const char *hardware, GError **error) {
  return whatif_on(doc, hardware, error);
}

MsWhatif *ms_whatif_load_on(const char *filename, const char *hardware, GError **error) {
  MsJson *doc = ms_json_load(filename, error);
  return doc ? whatif_on(doc, hardware, error) : NULL;
}

MsWhatif *ms_whatif_load(const char *filename, GError **error) { return ms_whatif_load_on(filename, NULL, error); }

void ms_whatif_free(MsWhatif *w) {
  if (!w) return;
  for (int a = 0; a < w->n_axes; a++) {
    for (int i = 0; i < w->axis[a].n; i++) point_clear(&w->axis[a].point[i]);
    g_free(w->axis[a].point);
    g_free(w->axis[a].name);
  }
  g_free(w->axis);
  g_free(w->file);
  g_free(w->name);
  g_free(w->doc);
  ms_json_free(w->base);
  ms_json_free(w->source);
  g_free(w);
}

/* --- points ---------------------------------------------------------------------------------------------------- */
int ms_whatif_points(const MsWhatif *w) {
  int n = 1;
  for (int a = 0; a < w->n_axes; a++) n *= w->axis[a].n;
  return w->combine == MS_WHATIF_ZIP ? w->axis[0].n : n;
}

const MsAxisPoint *ms_whatif_at(const MsWhatif *w, int index, int axis) {
  if (w->combine == MS_WHATIF_ZIP) return &w->axis[axis].point[index];
  for (int a = w->n_axes - 1; a > axis; a--) index /= w->axis[a].n;
  return &w->axis[axis].point[index % w->axis[axis].n];
}

char *ms_whatif_label(const MsWhatif *w, int index) {
  GString *out = g_string_new(NULL);
  for (int a = 0; a < w->n_axes; a++)
    g_string_append_printf(out, "%s%s", a ? ", " : "", ms_whatif_at(w, index, a)->label);
  return g_string_free(out, FALSE);
}

static MsJson *apply(const MsWhatif *w, const MsJson *base, int index, int only_axis) {
  JsonNode *root = copied(base);
  JsonObject *json = json_node_get_object(root);
  json_object_remove_member(json, "measured");
  const MsAxisPoint *at[MS_WHATIF_MAX_AXES];
  int n = 0;
  for (int a = 0; a < w->n_axes; a++)
    if (only_axis < 0 || only_axis == a) at[n++] = ms_whatif_at(w, index, a);
  set_keys(json, at, n);
  g_autofree char *label = ms_whatif_label(w, index), *name = g_strdup_printf("%s: %s", w->name, label);
  json_object_set_string_member(json, "name", name);
  MsJson *doc = ms_json_doc(root, ms_json_filename(base));
  json_node_unref(root);
  return doc;
}

MsJson *ms_whatif_apply(const MsWhatif *w, const MsJson *base, int index) { return apply(w, base, index, -1); }

gboolean ms_whatif_blame(const MsWhatif *w, const MsJson *base, gboolean request, int index, GError *failure,
                         char **why, GError **error) {
  for (int a = 0; a < w->n_axes; a++) {
    g_autoptr(MsJson) doc = apply(w, base, index, a);
    g_autoptr(GError) alone = NULL;
    if (loads(doc, request, &alone)) continue;
    g_error_free(failure);
    return ms_json_error(w->source, ms_whatif_at(w, index, a)->path, error, "%s",
                         ms_error_text(alone->message, ms_json_filename(base)));
  }
  *why = g_strdup(ms_error_text(failure->message, ms_json_filename(base)));
  g_error_free(failure);
  return TRUE;
}
