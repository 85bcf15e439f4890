#include <math.h>
#include <string.h>

#include "base/order.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/show.h"
#include "layout/layout.h"
#include "report/report.h"
#include "sim/simulate.h"
#include "work/work.h"
#include "describe/sources.h"

/* --- any described object as a table --------------------------------------------------------------------------- */
static char *number_text(double value, const char *unit) {
  char buf[MS_TEXT];
  if (!unit || !*unit) return g_strdup(ms_double_text(value, buf));
  if (strcmp(unit, "B") == 0) return g_strdup(ms_text_bytes(value, buf));
  if (strcmp(unit, "s") == 0) return g_strdup(ms_text_seconds(value, buf));
  const char *shown = strcmp(unit, "Bps") == 0                            ? "B/s"
                      : strcmp(unit, "flops") == 0                        ? "FLOP/s"
                      : strcmp(unit, "Hz") == 0 || strcmp(unit, "W") == 0 ? unit
                                                                          : NULL;
  if (shown) {
    const char *count = ms_text_count(value, buf);
    gboolean prefixed = g_ascii_isalpha(count[strlen(count) - 1]); /* "3.35 T" + "B/s", but "700" + " W" */
    return g_strdup_printf("%s%s%s", count, prefixed ? "" : " ", shown);
  }
  return g_strdup_printf("%s %s", ms_double_text(value, buf), unit);
}

static char *node_text(JsonNode *node, const MsField *field) {
  if (!node || JSON_NODE_HOLDS_NULL(node)) return g_strdup(field && field->type == MS_T_STRING ? "-" : "unknown");
  if (JSON_NODE_HOLDS_VALUE(node)) {
    GType type = json_node_get_value_type(node);
    if (type == G_TYPE_STRING) return g_strdup(json_node_get_string(node));
    if (type == G_TYPE_BOOLEAN) return g_strdup(json_node_get_boolean(node) ? "yes" : "no");
    return number_text(json_node_get_double(node), field ? field->unit : NULL);
  }
  return ms_json_text(node, 0);
}

enum { WIDEST_VALUE = 56 }; /* longer texts stand below the table */

static void add_members(MsTable *table, GString *below, const MsFieldTable *fields, JsonObject *object,
                        const char *prefix, JsonObject *sources) {
  g_autoptr(GList) keys = json_object_get_members(object);
  for (GList *l = keys; l; l = l->next) {
    const char *key = l->data;
    const MsField *field = fields ? ms_field_find(fields, key) : NULL;
    JsonNode *node = json_object_get_member(object, key);
    g_autofree char *path = g_strconcat(prefix, key, NULL);
    if (JSON_NODE_HOLDS_OBJECT(node) && field && field->type == MS_T_OBJECT) {
      g_autofree char *deeper = g_strconcat(path, ".", NULL);
      add_members(table, below, field->sub, json_node_get_object(node), deeper, sources);
      continue;
    }
    if (strcmp(key, "curves") == 0 || strcmp(key, "sources") == 0) continue; /* tables of their own */
    g_autofree char *value = node_text(node, field);
    JsonNode *source = ms_json_member(sources, key);
    if (g_utf8_strlen(value, -1) > WIDEST_VALUE) {
      g_string_append_printf(below, "%s: %s\n", path, value);
      continue;
    }
    MS_TABLE_ROW(table, path, value,
                 source && JSON_NODE_HOLDS_VALUE(source) ? json_node_get_string(source)
                 : field && !sources                     ? field->doc
                                                         : "");
  }
}

/* Every key of `object` with its value and its source (or meaning). */
static char *object_table(const MsFieldTable *fields, const void *object, gboolean all, JsonObject *sources) {
  g_autoptr(JsonNode) written = ms_fields_node(fields, object, all);
  MsTable *table = ms_table_of("key|value");
  ms_table_column(table, sources ? "source" : "meaning", FALSE);
  GString *below = g_string_new(NULL);
  add_members(table, below, fields, json_node_get_object(written), "", sources);
  g_autofree char *rows = ms_table_take(table);
  g_string_prepend(below, rows);
  return g_string_free(below, FALSE);
}

static void print_fields_json(const MsFieldTable *fields, const void *object) {
  ms_cli_print_file(ms_fields_text(fields, object, 2));
}

/* --- model ----------------------------------------------------------------------------------------------------- */
static void count_row(MsTable *table, const char *what, double count) {
  if (!(count > 0)) return;
  MS_TABLE_ROW(table, what, MS_COUNT(count));
}

static void append_params(GString *out, const MsModel *model) {
  MsParamCount p = ms_model_params(model);
  MsTable *table = ms_table_of("parameters|>count");
  count_row(table, "attention of a layer", p.attention_per_layer);
  count_row(table, "one routed expert", p.expert);
  count_row(table, "shared experts", p.shared);
  count_row(table, "router", p.router);
  count_row(table, "dense MLP", p.dense_mlp);
  count_row(table, "dense layer", p.dense_layer);
  count_row(table, "MoE layer", p.moe_layer);
  count_row(table, "embedding", p.embedding);
  count_row(table, "MTP block", p.mtp_block);
  count_row(table, "total", p.total);
  if (p.total_mtp > p.total) count_row(table, "total with MTP", p.total_mtp);
  count_row(table, "active per token", p.active);
  ms_table_append_below(table, out);
}

static void append_flop(GString *out, const MsModel *model) {
  static const int length[] = {2048, 4096, 8192, 32768, 131072};
  MsTable *table = ms_table_of("FLOP per token (forward + backward)|>linear|>attention core|>MLP|>MTP|>logits|>total");
  MsModel logged = *model; /* Megatron-LM's num_floating_point_operations */
  if (model->activation != MS_ACT_SILU) logged.gated = FALSE;
  logged.sliding_window = (MsSlidingWindow){0};
  gboolean differs = logged.gated != model->gated || model->sliding_window.window > 0;
  if (differs) ms_table_column(table, "logged", TRUE);
  for (guint i = 0; i < G_N_ELEMENTS(length); i++) {
    MsModelFlop f = ms_model_flop_per_token(model, length[i]);
    const double value[] = {f.attention_linear, f.attention_core, f.mlp, f.mtp, f.logits, f.total};
    ms_table_cellf(table, "sequence %d", length[i]);
    for (guint k = 0; k < G_N_ELEMENTS(value); k++) ms_table_cell(table, MS_COUNT(value[k]));
    if (differs) ms_table_cell(table, MS_COUNT(ms_model_flop_per_token(&logged, length[i]).total));
  }
  ms_table_append_below(table, out);
  if (differs)
    g_string_append(out, "logged: as Megatron-LM counts, gates with --swiglu only, windows as whole sequences\n");
}

static void write_model(const void *model, const char *key, MsJsonOut *out) {
  ms_fields_object(&ms_model_table, model, TRUE, key, out);
}

typedef struct {
  const MsModel *model;
  MsParamCount count;
} Shown;

const MsFigures ms_show_model_figures = MS_FIGURE_TABLE(
    "model", "`moesim show model NAME --json`.",
    MS_FIGURE_FILE_AT("model", Shown, model, write_model, "every key, defaults included"),
    MS_FIGURE_PART("parameters", Shown, count,
                   MS_FIGURES(MS_FIGURE(F64, MsParamCount, total, "", "without MTP"),
                              MS_FIGURE_AS("total_with_mtp", F64, MsParamCount, total_mtp, "", "with it"),
                              MS_FIGURE(F64, MsParamCount, active, "", "per token, with embedding and head"))));

static void model_json(const MsModel *model) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_figures_write(&ms_show_model_figures, &(Shown){model, ms_model_params(model)}, NULL, out);
  ms_cli_print_json(out);
}

int ms_show_model(const MsShow *show, const char *name) {
  GError *error = NULL;
  g_autoptr(MsModel) model = ms_model_load(name, &error);
  if (!model) return ms_cli_fail(error);
  if (show->json) {
    model_json(model);
    return 0;
  }
  GString *out = g_string_new(NULL);
  ms_text_append(out, object_table(&ms_model_table, model, TRUE, NULL));
  append_params(out, model);
  append_flop(out, model);
  ms_cli_print(g_string_free(out, FALSE));
  return 0;
}

/* --- hardware -------------------------------------------------------------------------------------------------- */
static void curve_scope(GString *out, const MsCurve *c) {
  const char *const word[] = {c->dtype, c->pass, c->level, c->dispatcher, c->library};
  for (guint i = 0; i < G_N_ELEMENTS(word); i++)
    if (word[i]) g_string_append_printf(out, "%s%s", out->len ? " " : "", word[i]);
  if (c->head_dim) g_string_append_printf(out, "%shead %d", out->len ? " " : "", c->head_dim);
  if (c->ranks) g_string_append_printf(out, "%s%d ranks", out->len ? " " : "", c->ranks);
  if (!out->len) g_string_append(out, "any");
}

static void curve_points(MsTable *table, double n) {
  if (isnan(n)) ms_table_cell(table, "unknown");
  else ms_table_cellf(table, "%.0f", n);
}

static void append_curves(GString *out, const MsHardware *hw) {
  if (hw->num_curves == 0) {
    g_string_append(out, "\nno fitted curves: every time is the data sheet times a default efficiency\n");
    return;
  }
  MsTable *table = ms_table_of("curve|for|form|>fitted|>held back|>median|>p90|data|note");
  for (int i = 0; i < hw->num_curves; i++) {
    const MsCurve *c = &hw->curves[i];
    const MsProvenance *p = &c->provenance;
    g_autoptr(GString) scope = g_string_new(NULL);
    curve_scope(scope, c);
    MS_TABLE_ROW(table, c->op, scope->str);
    ms_table_cellf(table, "%s%s", ms_curve_form_words[c->form], c->grid.dims ? " + grid" : "");
    curve_points(table, p->n_fitted);
    curve_points(table, p->n_held_back);
    MS_TABLE_ROW(table, MS_PERCENT(p->residual_median), MS_PERCENT(p->residual_p90), p->data ? p->data : "unknown",
                 p->note ? p->note : "");
  }
  ms_table_append_below(table, out);
  if (hw->curves_from) g_string_append_printf(out, "curve shapes inherited from %s\n", hw->curves_from);
}

static JsonObject *source_texts(const MsHardware *hw) {
  JsonObject *texts = json_object_new();
  for (const MsField *field = ms_hardware_table.fields; field->key; field++) {
    g_autofree char *text = ms_source_text(hw, field->key);
    if (text) json_object_set_string_member(texts, field->key, text);
  }
  return texts;
}

/* Steps on two nodes, of a dense model without TP and of one whose experts lie on all GPUs, by which assumed figures
 * are put in order. */
enum { N_PROBES = 2 };
static const char *const probe_titles[N_PROBES] = {"of a dense step", "of a MoE step"};

/* With the dispatcher that every machine has. NULL where the machine cannot run it. (transfer full) */
static MsResult *probe(const MsHardware *hw, int i) {
  static const char *const model[N_PROBES] = {"llama3-8b", "qwen3-30b-a3b"};
  int gpus = 2 * hw->gpus_per_node;
  g_autofree char *json = g_strdup_printf(
      "{\"model\": \"%s\", \"hardware\": \"h100-sxm\", \"gpus\": %d, "
      "\"options\": {\"dispatcher\": \"alltoall\"}, \"layout\": {\"ep\": %d}, \"training\": {\"seq_length\": 4096, "
      "\"global_batch_size\": %d}}",
      model[i], gpus, i == 0 ? 1 : gpus, 4 * gpus);
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "probe", NULL);
  g_autoptr(MsScenario) s = doc ? ms_scenario_from_doc(doc, NULL) : NULL;
  if (!s) return NULL;
  ms_hardware_free(s->hardware);
  s->hardware = ms_hardware_copy(hw);
  return ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
}

static double share_of(const MsResult *r, const char *key) {
  for (int i = 0; r && i < r->n_assumed; i++)
    if (strcmp(r->assumed[i].key, key) == 0) return r->assumed[i].share;
  return r ? 0 : NAN;
}

typedef struct {
  const char *key;
  double within, share[N_PROBES], weight; /* how far off a step may be by it, the larger of the two */
} Assumption;

MS_ORDER(weightiest_first, Assumption, MS_MORE(x->weight, y->weight), strcmp(x->key, y->key))

static GArray *assumptions_of(const MsHardware *hw) {
  GArray *all = g_array_new(FALSE, FALSE, sizeof(Assumption));
  MsResult *probes[N_PROBES] = {NULL};
  for (const MsField *field = ms_hardware_table.fields; field->key; field++) {
    Assumption a = {.key = field->key, .within = ms_source_within(hw, field->key)};
    if (!(a.within > 0)) continue;
    for (int i = 0; i < N_PROBES; i++) {
      if (all->len == 0) probes[i] = probe(hw, i);
      a.share[i] = share_of(probes[i], a.key);
      a.weight = fmax(a.weight, a.share[i] * a.within);
    }
    g_array_append_val(all, a);
  }
  for (int i = 0; i < N_PROBES; i++) ms_result_free(probes[i]);
  g_array_sort(all, weightiest_first);
  return all;
}

/* The assumed figures, what to measure first in front, and what would measure each. */
static void append_assumed(GString *out, const MsHardware *hw) {
  g_autoptr(GArray) all = assumptions_of(hw);
  if (all->len == 0) return;
  MsTable *table = ms_table_of("assumed|>within");
  for (int i = 0; i < N_PROBES; i++) ms_table_column(table, probe_titles[i], TRUE);
  ms_table_column(table, "measured by", FALSE);
  for (guint k = 0; k < all->len; k++) {
    const Assumption *a = &g_array_index(all, Assumption, k);
    const char *by = ms_source_measured_by(a->key);
    MS_TABLE_ROW(table, a->key, MS_PERCENT(a->within));
    for (int i = 0; i < N_PROBES; i++) ms_table_cell(table, MS_PERCENT(a->share[i]));
    ms_table_cell(table, by ? by : "");
  }
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out,
                         "\n%sShares of llama3-8b and qwen3-30b-a3b on two nodes; `moesim run --explain SCENARIO` has "
                         "those of your run.\n",
                         text);
}

int ms_show_hardware(const MsShow *show, const char *name) {
  GError *error = NULL;
  g_autoptr(MsHardware) hw = ms_hardware_load(name, &error);
  if (!hw) return ms_cli_fail(error);
  if (show->json) {
    print_fields_json(&ms_hardware_table, hw);
    return 0;
  }
  GString *out = g_string_new(NULL);
  g_autoptr(JsonObject) sources = source_texts(hw);
  ms_text_append(out, object_table(&ms_hardware_table, hw, TRUE, sources));
  append_curves(out, hw);
  append_assumed(out, hw);
  ms_cli_print(g_string_free(out, FALSE));
  return 0;
}

/* --- scenario -------------------------------------------------------------------------------------------------- */
static void append_groups(GString *out, const MsLayout *layout) {
  MsTable *table = ms_table_of("group|>ranks|>stride|>domains|>per domain|>nodes");
  for (int g = MS_GROUP_NONE + 1; g < MS_N_GROUPS; g++) {
    const MsGroup *group = &layout->group[g];
    if (group->size <= 1) continue;
    const int value[] = {group->size, group->stride, group->domains, group->per_domain, group->nodes};
    ms_table_cell(table, ms_group_words[g]);
    for (guint i = 0; i < G_N_ELEMENTS(value); i++) ms_table_cellf(table, "%d", value[i]);
  }
  ms_table_append_below(table, out);
}

static void append_chunks(GString *out, const MsLayout *layout) {
  MsTable *table = ms_table_of(">stage|>chunk|>first layer|>layers|>dense|>MoE|>MTP|also");
  for (int s = 0; s < layout->pp; s++) {
    for (int v = 0; v < layout->vpp; v++) {
      const MsChunk *c = ms_layout_chunk(layout, s, v);
      const int value[] = {s, v, c->first_layer, c->num_layers, c->num_dense, c->num_moe, c->num_mtp};
      for (guint i = 0; i < G_N_ELEMENTS(value); i++) ms_table_cellf(table, "%d", value[i]);
      ms_table_cellf(table, "%s%s%s", c->has_embedding ? "embedding" : "", c->has_embedding && c->has_loss ? ", " : "",
                     c->has_loss ? "head and loss" : "");
    }
  }
  ms_table_append_below(table, out);
  g_autofree char *text = ms_pipeline_layout_text(layout->chunks, layout->num_chunks);
  g_string_append_printf(out, "pipeline layout %s\n", text);
}

/* Key -> where its value comes from. (transfer full) */
static JsonObject *origins_of(const MsScenario *scenario, const MsFieldTable *table) {
  JsonObject *origins = json_object_new();
  for (const MsField *f = table->fields; f->key; f++)
    json_object_set_string_member(origins, f->key, ms_scenario_states(scenario, table, f->key) ? "file" : "default");
  return origins;
}

static void append_keys(GString *out, const MsScenario *scenario, const MsFieldTable *table, const void *object,
                        gboolean all) {
  g_autoptr(JsonObject) origins = origins_of(scenario, table);
  g_autofree char *rows = object_table(table, object, all, origins);
  g_string_append_printf(out, "\n%s", rows);
}

int ms_show_scenario(const MsShow *show, const char *name) {
  GError *error = NULL;
  g_autoptr(MsScenario) scenario = ms_scenario_load_mixed(name, &error);
  if (!scenario) return ms_cli_fail(error);
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(scenario, &error);
  if (!layout) return ms_cli_fail(error);
  if (show->json) {
    ms_cli_print_file(ms_scenario_text(scenario, 2));
    return 0;
  }
  GString *out = g_string_new(NULL);
  MsModelFlop flop = ms_training_flop_per_token(scenario->model, &scenario->training);
  g_autofree char *machines = ms_scenario_machines_text(scenario);
  g_string_append_printf(out, "%s: %s on %s\n", scenario->name, scenario->model->name, machines);
  g_string_append_printf(
      out, "attention grid tp %d x cp %d x dp %d x pp %d; expert grid etp %d x ep %d x edp %d x pp %d\n", layout->tp,
      layout->cp, layout->dp, layout->pp, layout->etp, layout->ep, layout->edp, layout->pp);
  g_string_append_printf(
      out, "%d microbatch%s per replica and step, groups of %d; sequence parallelism %s; %sFLOP per token\n",
      layout->microbatches, layout->microbatches == 1 ? "" : "es", layout->group_size,
      layout->sequence_parallel ? "on" : "off", MS_COUNT(flop.total));
  append_groups(out, layout);
  append_chunks(out, layout);
  append_keys(out, scenario, &ms_training_table, &scenario->training, TRUE);
  append_keys(out, scenario, &ms_options_table, &scenario->options, FALSE);
  g_string_append(out, "every other option has the default that `moesim schema options` prints\n");
  ms_cli_print(g_string_free(out, FALSE));
  return 0;
}

/* --- fabric ---------------------------------------------------------------------------------------------------- */
int ms_show_fabric(const MsShow *show, const char *name) {
  GError *error = NULL;
  g_autoptr(MsScenario) scenario = ms_scenario_load(name, &error);
  char *text = scenario ? ms_report_fabric(scenario, show->json, &error) : NULL;
  if (!text) return ms_cli_fail(error);
  ms_cli_print(text);
  return 0;
}
