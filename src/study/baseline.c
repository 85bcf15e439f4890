#include "study/baseline.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "describe/rows.h"
#include "sim/simulate.h"
#include "study/validate.h"

/* --- quantities ------------------------------------------------------------------------------------------------ */
static const char *const total_words[] = {
    "step_time_s", "step_time_lower_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "model_flop_per_token",
    "device_B",    "capacity_B"};
G_STATIC_ASSERT(G_N_ELEMENTS(total_words) == MS_Q_TIME);

const char *ms_quantity_name(int q, char buf[MS_QUANTITY_TEXT]) {
  if (q < MS_Q_TIME) g_strlcpy(buf, total_words[q], MS_QUANTITY_TEXT);
  else if (q < MS_Q_COMM) g_snprintf(buf, MS_QUANTITY_TEXT, "time.%s_s", ms_part_words[q - MS_Q_TIME]);
  else if (q < MS_Q_MEMORY) g_snprintf(buf, MS_QUANTITY_TEXT, "comm.%s_s", ms_comm_words[q - MS_Q_COMM]);
  else g_snprintf(buf, MS_QUANTITY_TEXT, "memory.%s_B", ms_mem_part_words[q - MS_Q_MEMORY]);
  return buf;
}

/* Index of a name; -1 and *error with the nearest. */
static int quantity_of(const MsJson *doc, const char *path, const char *name, GError **error) {
  char known[MS_N_QUANTITIES][MS_QUANTITY_TEXT];
  const char *list[MS_N_QUANTITIES + 1] = {NULL};
  for (int q = 0; q < MS_N_QUANTITIES; q++)
    if (strcmp(list[q] = ms_quantity_name(q, known[q]), name) == 0) return q;
  const char *near = ms_nearest(name, list);
  ms_json_error(doc, path, error, near ? "unknown quantity, did you mean \"%s\"?" : "unknown quantity", near);
  return -1;
}

/* Nine digits: a difference of compilers does not show, one of models does. */
static double rounded(double value) {
  char text[32];
  if (!isfinite(value)) return NAN;
  g_ascii_formatd(text, sizeof text, "%.9g", value);
  return g_ascii_strtod(text, NULL);
}

/* --- tables ---------------------------------------------------------------------------------------------------- */
typedef struct {
  char *name, *refused, *why_infeasible;
  JsonNode *scenario, *quantities;
} PredictionRow;

static const MsFieldTable prediction_table =
    MS_FIELD_TABLE("baseline.predictions[]", "one scenario and what was predicted",
                   MS_STRING(PredictionRow, name, MS_REQUIRED, "of the scenario, unique in the file"),
                   MS_STRING(PredictionRow, refused, MS_NULLABLE, "why it cannot run; null = it runs"),
                   MS_STRING(PredictionRow, why_infeasible, MS_NULLABLE, "why it does not fit; null = it fits"),
                   MS_FREE(PredictionRow, quantities, "object: quantity -> predicted value; what is left out is zero"),
                   MS_FREE(PredictionRow, scenario, "the complete scenario"));

typedef struct {
  MsFidelity fidelity;
  JsonNode *tolerance, *inputs, *predictions;
} File;

const MsFieldTable ms_baseline_table = MS_FIELD_TABLE(
    "baseline", "stored predictions, written by moesim check --update", MS_SCHEMA(MS_REQUIRED),
    {MS_ROW(File, fidelity, MS_T_ENUM, "", "\"full\"", 0, "of the predictions"), .words = ms_fidelity_words},
    MS_FREE(File, tolerance,
            "object: relative drift that passes, of a quantity (step_time_s), a group (time, comm, memory) or default"),
    MS_FREE(File, inputs, "figures of the machines, models and stacks that the scenarios name, when it was written"),
    {MS_ROW(File, predictions, MS_T_FREE, "", NULL, MS_REQUIRED, "list of scenarios with their predictions"),
     .sub = &prediction_table});

/* --- loading --------------------------------------------------------------------------------------------------- */
static void add_tolerance(MsBaseline *b, const char *of, double tolerance) {
  b->tolerance = g_renew(MsTolerance, b->tolerance, b->n_tolerances + 1);
  b->tolerance[b->n_tolerances++] = (MsTolerance){g_strdup(of), tolerance};
}

static gboolean load_tolerances(MsBaseline *b, const MsJson *doc, JsonNode *node, GError **error) {
  static const char *const groups[] = {"default", "time", "comm", "memory", NULL};
  if (!node) return TRUE;
  if (!ms_json_need_object(doc, node, "tolerance", error)) return FALSE;
  for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);) {
    g_autofree char *path = g_strconcat("tolerance.", at.key, NULL);
    if (!g_strv_contains(groups, at.key) && quantity_of(doc, path, at.key, error) < 0) return FALSE;
    if (!(ms_json_number(at.value) >= 0 && ms_json_number(at.value) <= 1))
      return ms_json_error(doc, path, error, "must be a fraction in [0, 1]");
    add_tolerance(b, at.key, ms_json_number(at.value));
  }
  return TRUE;
}

static gboolean load_inputs(MsBaseline *b, const MsJson *doc, JsonNode *node, GError **error) {
  if (!node) return TRUE;
  if (!ms_json_need_object(doc, node, "inputs", error)) return FALSE;
  for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);)
    if (!JSON_NODE_HOLDS_OBJECT(at.value)) return ms_json_error(doc, "inputs", error, "%s must be an object", at.key);
  b->inputs = ms_json_copy(node);
  return TRUE;
}

static gboolean load_quantities(MsPrediction *p, const MsJson *doc, const char *path, JsonNode *node, GError **error) {
  if (!node) return TRUE;
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);) {
    g_autofree char *full = g_strconcat(path, ".", at.key, NULL);
    int q = quantity_of(doc, full, at.key, error);
    if (q < 0) return FALSE;
    if (isnan(ms_json_number(at.value)) && !JSON_NODE_HOLDS_NULL(at.value))
      return ms_json_error(doc, full, error, "must be a number or null");
    p->value[q] = ms_json_number(at.value);
  }
  return TRUE;
}

/* The scenario of a prediction, found as seen from the baseline's file. NULL and *error. (transfer full) */
static MsScenario *scenario_of(const MsBaseline *b, int index, GError **error) {
  g_autoptr(MsJson) doc = ms_json_doc(b->prediction[index].scenario, b->file);
  return ms_scenario_from_doc(doc, error);
}

/* The scenario inside the file loads; its own errors stand at their place there. */
static gboolean load_scenario(MsBaseline *b, const MsJson *doc, int index, const char *path, GError **error) {
  GError *failure = NULL;
  if (!b->prediction[index].scenario || !JSON_NODE_HOLDS_OBJECT(b->prediction[index].scenario))
    return ms_json_error(doc, path, error, "must be a complete scenario");
  g_autoptr(MsScenario) scenario = scenario_of(b, index, &failure);
  return scenario || ms_json_error_inside(doc, path, error, failure);
}

static gboolean load_prediction(MsBaseline *b, const MsJson *doc, JsonNode *node, int index, GError **error) {
  PredictionRow row = {0};
  MsPrediction *p = &b->prediction[index];
  g_autofree char *path = g_strdup_printf("predictions[%d]", index),
                  *quantities = g_strconcat(path, ".quantities", NULL),
                  *scenario = g_strconcat(path, ".scenario", NULL);
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  gboolean ok = ms_fields_load(&prediction_table, doc, json_node_get_object(node), path, TRUE, &row, error) &&
                load_quantities(p, doc, quantities, row.quantities, error);
  p->name = row.name, p->refused = row.refused, p->why_infeasible = row.why_infeasible, p->scenario = row.scenario;
  if (row.quantities) json_node_unref(row.quantities);
  for (int i = 0; ok && i < index; i++)
    if (g_str_equal(b->prediction[i].name, p->name))
      ok = ms_json_error(doc, path, error, "the name %s is given twice", p->name);
  return ok && load_scenario(b, doc, index, scenario, error);
}

static gboolean load_predictions(MsBaseline *b, const MsJson *doc, JsonNode *node, GError **error) {
  enum { MANY = 10000 };
  if (!node || !JSON_NODE_HOLDS_ARRAY(node)) return ms_json_error(doc, "predictions", error, "must be a list");
  JsonArray *array = json_node_get_array(node);
  guint n = json_array_get_length(array);
  if (n < 1 || n > MANY) return ms_json_error(doc, "predictions", error, "holds %u, must hold 1 to %d", n, MANY);
  b->prediction = g_new0(MsPrediction, n);
  for (guint i = 0; i < n; i++) {
    b->n++;
    if (!load_prediction(b, doc, json_array_get_element(array, i), (int)i, error)) return FALSE;
  }
  return TRUE;
}

MsBaseline *ms_baseline_from_doc(const MsJson *doc, GError **error) {
  File file = {0};
  MsBaseline *b = g_new0(MsBaseline, 1);
  JsonNode *root = ms_json_root(doc);
  b->file = g_strdup(ms_json_filename(doc));
  ms_fields_defaults(&ms_baseline_table, &file);
  gboolean ok = ms_doc_check_kind(doc, "predictions", error);
  ok = ok && ms_fields_load(&ms_baseline_table, doc, json_node_get_object(root), "", TRUE, &file, error);
  b->fidelity = file.fidelity;
  ok = ok && load_tolerances(b, doc, file.tolerance, error) && load_inputs(b, doc, file.inputs, error) &&
       load_predictions(b, doc, file.predictions, error);
  ms_fields_clear(&ms_baseline_table, &file);
  if (!ok) g_clear_pointer(&b, ms_baseline_free);
  return b;
}

MsBaseline *ms_baseline_load(const char *filename, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(filename, error);
  return doc ? ms_baseline_from_doc(doc, error) : NULL;
}

void ms_baseline_free(MsBaseline *b) {
  if (!b) return;
  for (int i = 0; i < b->n; i++) {
    MsPrediction *p = &b->prediction[i];
    g_free(p->name);
    g_free(p->refused);
    g_free(p->why_infeasible);
    if (p->scenario) json_node_unref(p->scenario);
  }
  for (int i = 0; i < b->n_tolerances; i++) g_free(b->tolerance[i].of);
  if (b->inputs) json_node_unref(b->inputs);
  g_free(b->prediction);
  g_free(b->tolerance);
  g_free(b->file);
  g_free(b);
}

/* --- a new one ------------------------------------------------------------------------------------------------- */
static int by_name(const void *a, const void *b) {
  return strcmp(((const MsPrediction *)a)->name, ((const MsPrediction *)b)->name);
}

static gboolean add_scenario(MsBaseline *b, const char *file, GError **error) {
  g_autoptr(MsScenario) s = ms_scenario_load(file, error);
  if (!s) return FALSE;
  for (int i = 0; i < b->n; i++)
    if (g_str_equal(b->prediction[i].name, s->name))
      return ms_input_error(error, file, 0, "name", "another scenario is named %s, too", s->name);
  s->has_measured = FALSE; /* a check compares predictions */
  b->prediction = g_renew(MsPrediction, b->prediction, b->n + 1);
  b->prediction[b->n] = (MsPrediction){.name = g_strdup(s->name), .scenario = ms_scenario_node(s)};
  g_autoptr(GError) moved = NULL;
  g_autoptr(MsScenario) again = scenario_of(b, b->n++, &moved);
  return again || ms_input_error(error, file, 0, NULL, "cannot be read from the folder of %s: %s", b->file,
                                 ms_error_text(moved->message, b->file));
}

MsBaseline *ms_baseline_new(const char *filename, const char *const *scenarios, GError **error) {
  g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);
  MsBaseline *b = g_new0(MsBaseline, 1);
  b->file = g_strdup(filename);
  b->fidelity = MS_FIDELITY_FULL;
  add_tolerance(b, "default", MS_TOLERANCE_DEFAULT);
  gboolean ok = ms_validation_files(scenarios, files, error);
  for (guint i = 0; ok && i < files->len; i++) ok = add_scenario(b, files->pdata[i], error);
  if (ok && b->n == 0) ok = ms_input_error(error, scenarios[0], 0, NULL, "holds no scenario");
  if (ok) qsort(b->prediction, (size_t)b->n, sizeof *b->prediction, by_name);
  if (!ok) g_clear_pointer(&b, ms_baseline_free);
  return b;
}

/* --- writing --------------------------------------------------------------------------------------------------- */
static void write_prediction(const MsPrediction *p, MsJsonOut *out) {
  char name[MS_QUANTITY_TEXT];
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "name", p->name);
  ms_json_out_string(out, "refused", p->refused);
  ms_json_out_string(out, "why_infeasible", p->why_infeasible);
  ms_json_out_object(out, "quantities");
  for (int q = 0; q < MS_N_QUANTITIES; q++)
    if (p->value[q] != 0) ms_json_out_double(out, ms_quantity_name(q, name), p->value[q]);
  ms_json_out_end(out);
  ms_json_out_node(out, "scenario", p->scenario);
  ms_json_out_end(out);
}

char *ms_baseline_text(const MsBaseline *b) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "schema", 1);
  ms_json_out_string(out, "fidelity", ms_fidelity_words[b->fidelity]);
  ms_json_out_object(out, "tolerance");
  for (int i = 0; i < b->n_tolerances; i++) ms_json_out_double(out, b->tolerance[i].of, b->tolerance[i].tolerance);
  ms_json_out_end(out);
  ms_json_out_array(out, "predictions");
  for (int i = 0; i < b->n; i++) write_prediction(&b->prediction[i], out);
  ms_json_out_end(out);
  ms_json_out_node(out, "inputs", b->inputs);
  ms_json_out_end(out);
  g_autofree char *text = ms_json_out_take(out);
  return g_strconcat(text, "\n", NULL);
}

/* --- predictions ----------------------------------------------------------------------------------------------- */
double ms_baseline_tolerance(const MsBaseline *b, int quantity) {
  char name[MS_QUANTITY_TEXT];
  ms_quantity_name(quantity, name);
  g_autofree char *group = g_strndup(name, strcspn(name, "."));
  const char *const order[] = {name, group, "default"};
  for (guint o = 0; o < G_N_ELEMENTS(order); o++)
    for (int i = 0; i < b->n_tolerances; i++)
      if (g_str_equal(b->tolerance[i].of, order[o])) return b->tolerance[i].tolerance;
  return MS_TOLERANCE_DEFAULT;
}

static void fill(const MsResult *r, double value[MS_N_QUANTITIES]) {
  const double total[] = {r->step_time_s, r->step_time_lower_s,    r->tokens_per_s_per_gpu, r->tflops_per_gpu,
                          r->mfu,         r->model_flop_per_token, ms_device_B(r),          r->capacity_B};
  memcpy(value, total, sizeof total);
  ms_parts_of_time(r, value + MS_Q_TIME);
  memcpy(value + MS_Q_COMM, r->time.comm_total_s, MS_N_COMMS * sizeof *value);
  ms_parts_of_memory(r, value + MS_Q_MEMORY);
  for (int q = 0; q < MS_N_QUANTITIES; q++) value[q] = rounded(value[q]);
}

void ms_prediction_make(const MsBaseline *b, int index, MsPrediction *out) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsScenario) scenario = scenario_of(b, index, &error);
  g_autoptr(MsResult) r = scenario ? ms_simulate(scenario, b->fidelity, NULL, &error) : NULL;
  memset(out->value, 0, sizeof out->value);
  out->refused = r ? NULL : g_strdup(ms_error_text(error->message, b->file));
  out->why_infeasible = r ? g_strdup(r->why_infeasible) : NULL;
  if (r) fill(r, out->value);
}

/* --- inputs ---------------------------------------------------------------------------------------------------- */
/* What a scenario names: its "hardware" or "model", or the base under its overrides; NULL when it is described in the
 * scenario itself. */
static JsonNode *named(JsonNode *mention) {
  if (!mention || !JSON_NODE_HOLDS_OBJECT(mention)) return mention;
  return json_object_get_member(json_node_get_object(mention), "base");
}

/* An object of the scalars and lists that `table` writes of `object`. */
static JsonObject *scalars(const MsFieldTable *table, const void *object) {
  static const char *const prose[] = {"schema",     "name",   "doc",    "source", "sources",
                                      "provenance", "vendor", "curves", NULL};
  g_autoptr(JsonNode) written = ms_fields_node(table, object, FALSE);
  JsonObject *all = json_node_get_object(written), *kept = json_object_new();
  for (MsJsonMember at = ms_json_members(all); ms_json_next(&at);)
    if (!g_strv_contains(prose, at.key)) json_object_set_member(kept, at.key, ms_json_copy(at.value));
  return kept;
}

/* One line per curve: its parameters, and a digest of its grid. */
static void add_curve(JsonObject *to, const MsCurve *curve) {
  JsonObject *figures = scalars(&ms_curve_table, curve);
  g_autoptr(GString) key = g_string_new("curve");
  const char *const words[] = {curve->op, curve->dtype, curve->pass, curve->level, curve->dispatcher};
  for (guint w = 0; w < G_N_ELEMENTS(words); w++)
    if (words[w]) g_string_append_printf(key, " %s", words[w]);
  if (curve->head_dim) g_string_append_printf(key, " d%d", curve->head_dim);
  if (curve->ranks) g_string_append_printf(key, " x%d", curve->ranks);
  static const char *const in_key[] = {"op", "dtype", "pass", "level", "dispatcher", "head_dim", "ranks"};
  for (guint w = 0; w < G_N_ELEMENTS(in_key); w++) json_object_remove_member(figures, in_key[w]);
  JsonNode *grid = json_object_get_member(figures, "grid"), *segments = json_object_get_member(figures, "segments");
  if (segments && JSON_NODE_HOLDS_ARRAY(segments) && json_array_get_length(json_node_get_array(segments)) == 0)
    json_object_remove_member(figures, "segments");
  if (grid && JSON_NODE_HOLDS_NULL(grid)) {
    json_object_remove_member(figures, "grid");
  } else if (grid) {
    g_autofree char *text = ms_json_text(grid, 0), *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
    sum[16] = '\0';
    json_object_set_string_member(figures, "grid", sum);
  }
  JsonNode *node = json_node_new(JSON_NODE_OBJECT);
  json_node_take_object(node, figures);
  g_autofree char *text = ms_json_text(node, 0);
  json_node_unref(node);
  while (json_object_has_member(to, key->str)) g_string_append_c(key, '\''); /* several of one kind: in order */
  json_object_set_string_member(to, key->str, text);
}

static void add_hardware(JsonObject *inputs, const MsJson *doc, JsonNode *name) {
  g_autofree char *of = name ? g_strdup_printf("hardware %s", json_node_get_string(name)) : NULL;
  if (!of || json_object_has_member(inputs, of)) return;
  g_autoptr(MsHardware) hardware = ms_hardware_from_json(doc, name, "hardware", NULL);
  if (!hardware) return;
  JsonObject *figures = scalars(&ms_hardware_table, hardware);
  for (int i = 0; i < hardware->num_curves; i++) add_curve(figures, &hardware->curves[i]);
  json_object_set_object_member(inputs, of, figures);
}

static void add_model(JsonObject *inputs, const MsJson *doc, JsonNode *name) {
  g_autofree char *of = name ? g_strdup_printf("model %s", json_node_get_string(name)) : NULL;
  if (!of || json_object_has_member(inputs, of)) return;
  g_autoptr(MsModel) model = ms_model_from_json(doc, name, "model", NULL);
  if (model) json_object_set_object_member(inputs, of, scalars(&ms_model_table, model));
}

JsonNode *ms_baseline_inputs(const MsBaseline *b) {
  JsonObject *inputs = json_object_new();
  for (int i = 0; i < b->n; i++) {
    g_autoptr(MsJson) doc = ms_json_doc(b->prediction[i].scenario, b->file);
    g_autoptr(MsScenario) s = ms_scenario_from_doc(doc, NULL);
    if (!s) continue;
    add_hardware(inputs, doc, named(s->hardware_json));
    add_model(inputs, doc, named(s->model_json));
    g_autofree char *stack = g_strdup_printf("software %s", s->stack.name ? s->stack.name : "default");
    if (!json_object_has_member(inputs, stack))
      json_object_set_object_member(inputs, stack, scalars(&ms_stack_table, &s->stack));
  }
  JsonNode *made = json_node_new(JSON_NODE_OBJECT);
  json_node_take_object(made, inputs);
  g_autoptr(MsJson) read =
      ms_json_doc(made, b->file); /* as it comes back from the file: what is null there is null here */
  json_node_unref(made);
  return ms_json_copy(ms_json_root(read));
}
