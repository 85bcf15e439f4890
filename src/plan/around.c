/* src/plan/around.c - the request that asks whether a run has the layout it should have. */
#include "plan/plan.h"
#include "plan/space_priv.h"
#include <string.h>

/* Keys that say how layers are cut or microbatches grouped for the run's own PP and VPP: left to the planner with them.
 */
static const char *const cut_keys[] = {"pipeline_layout",
                                       "account_for_embedding_in_pipeline_split",
                                       "account_for_loss_in_pipeline_split",
                                       "decoder_first_pipeline_num_layers",
                                       "decoder_last_pipeline_num_layers",
                                       "microbatch_group_size_per_virtual_pipeline_stage"};

/* What the planner tries by itself, and what the run has. */
static JsonNode *sizes(const MsScenario *run, int axis) {
  MsIntAxis a = {0};
  ms_axis_candidates(run, axis, &a);
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_array(out, NULL);
  for (int i = 0; i < a.n; i++) ms_json_out_int(out, NULL, a.value[i]);
  ms_json_out_end(out);
  g_free(a.value);
  return ms_json_out_take_node(out);
}

static gboolean same_recompute(const MsRecomputeSpec *a, const MsRecomputeSpec *b) {
  if (a->granularity != b->granularity) return FALSE;
  if (a->granularity == MS_RECOMPUTE_SELECTIVE) return a->modules == b->modules;
  return a->granularity != MS_RECOMPUTE_FULL || (a->method == b->method && a->num_layers == b->num_layers);
}

static void write_recompute(const MsRecomputeSpec *spec, MsJsonOut *out) {
  ms_json_out_object(out, NULL);
  if (spec->granularity == MS_RECOMPUTE_NONE)
    ms_json_out_string(out, "granularity", ms_recompute_words[MS_RECOMPUTE_NONE]);
  else ms_fields_write(&ms_recompute_table, spec, FALSE, out);
  ms_json_out_end(out);
}

static JsonNode *recomputes(const MsScenario *run) {
  MsRecomputeSpec spec;
  gboolean own = FALSE;
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_array(out, NULL);
  for (int i = 0; ms_recompute_candidate(run, i, &spec); i++) {
    write_recompute(&spec, out);
    own |= same_recompute(&spec, &run->options.recompute);
  }
  if (!own) write_recompute(&run->options.recompute, out);
  ms_json_out_end(out);
  return ms_json_out_take_node(out);
}

/* The planner's own, and the run's: no layout of the run is left out of what is tried. */
static JsonNode *stages_of(const MsScenario *run) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_array(out, NULL);
  ms_json_out_null(out, NULL);
  ms_json_out_string(out, NULL, run->layout.pipeline_layout);
  ms_json_out_end(out);
  return ms_json_out_take_node(out);
}

static JsonObject *object_of(JsonObject *json, const char *key) { return json_object_get_object_member(json, key); }

char *ms_request_around(const MsScenario *run, double needed_fraction) {
  g_autoptr(JsonNode) root = ms_scenario_node(run);
  JsonObject *json = json_node_get_object(root), *layout = object_of(json, "layout");
  json_object_remove_member(json, "measured");
  for (guint i = 0; i < G_N_ELEMENTS(cut_keys); i++) json_object_remove_member(layout, cut_keys[i]);
  if (run->layout.pipeline_layout) json_object_set_member(layout, "pipeline_layout", stages_of(run));
  for (int axis = 0; axis < MS_N_AXES; axis++) {
    if (axis == MS_AXIS_GPUS) continue;
    json_object_set_member(object_of(json, axis == MS_AXIS_MBS ? "training" : "layout"),
                           strchr(ms_axis_paths[axis], '.') + 1, sizes(run, axis));
  }
  JsonObject *options = object_of(json, "options");
  if (run->layout.tp == 1) json_object_set_null_member(options, "sequence_parallel"); /* with TP, as is usual */
  json_object_set_member(options, "recompute", recomputes(run));
  MsRequest usual = {0};
  ms_fields_defaults(&ms_plan_table, &usual);
  if (needed_fraction > usual.max_memory_fraction) {
    JsonObject *plan = json_object_new();
    json_object_set_double_member(plan, "max_memory_fraction", MIN(needed_fraction, 1));
    json_object_set_object_member(json, "plan", plan);
  }
  return ms_json_text(root, 2);
}
