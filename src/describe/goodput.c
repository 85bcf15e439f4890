#include "describe/goodput.h"

#include "base/units.h"
#include "describe/rows.h"

#include <math.h>
#include <string.h>

const char *const ms_component_words[] = {"gpu", "host", "nic", "link", "software", "any", NULL};
static const char *const per_words[] = {"gpu", "node", "job", NULL};
const char *const ms_checkpoint_words[] = {"synchronous", "asynchronous", "in-memory", NULL};

/* --- reliability ----------------------------------------------------------------------------------------------- */
static const MsFieldTable failure_table = MS_FIELD_TABLE(
    "reliability.failures[]", "one kind of failure",
    MS_ENUM(MsFailure, component, ms_component_words, NULL, MS_REQUIRED,
            "what fails; any: the source does not tell them apart"),
    MS_ENUM(MsFailure, per, per_words, NULL, MS_REQUIRED, "units that the rate counts"),
    MS_F64(MsFailure, per_1000_days, "", 0, 1e6, NULL, MS_REQUIRED, "failures of 1000 such units in a day"),
    MS_BOOL(MsFailure, takes_node, "true", 0, "the node must be replaced; false: a restart in place does"),
    MS_F64(MsFailure, detection_s, "s", 0, 30 * MS_DAY_S, NULL, MS_REQUIRED, "until it is noticed and the job stopped"),
    MS_STRING(MsFailure, source, MS_REQUIRED, "where the figures come from"));

static gboolean failures_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);

const MsFieldTable ms_reliability_table = MS_FIELD_TABLE(
    "reliability", "how often what fails, reliability/NAME.json", MS_SCHEMA(0),
    MS_STRING(MsReliability, name, MS_NULLABLE, "name, by default that of the file"),
    MS_STRING(MsReliability, doc, MS_NULLABLE, "free text"),
    {MS_CUSTOM(failures, "", MS_REQUIRED, "list of kinds of failure"), .parse = failures_parse, .sub = &failure_table});

static gboolean failures_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  enum { MANY = 64 };
  MsReliability *r = member;
  JsonArray *array = JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
  guint n = array ? json_array_get_length(array) : 0;
  if (!array || n < 1 || n > MANY) return ms_json_error(doc, path, error, "must be a list of 1 to %d failures", MANY);
  r->failure = g_new0(MsFailure, n);
  for (guint i = 0; i < n; i++) {
    g_autofree char *item = g_strdup_printf("%s[%u]", path, i);
    JsonNode *one = json_array_get_element(array, i);
    if (!ms_json_need_object(doc, one, item, error)) return FALSE;
    ms_fields_defaults(&failure_table, &r->failure[r->n]);
    if (!ms_fields_load(&failure_table, doc, json_node_get_object(one), item, TRUE, &r->failure[r->n++], error))
      return FALSE;
  }
  return TRUE;
}

static gboolean load_file(const char *file, MsReliability *r, GError **error) {
  g_autoptr(MsJson) doc = ms_load_object(file, error);
  if (!doc || !ms_fields_load(&ms_reliability_table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, r, error))
    return FALSE;
  if (!r->name) r->name = ms_name_of_file(file);
  return TRUE;
}

gboolean ms_reliability_load(const MsJson *doc, JsonNode *node, const char *path, MsReliability *r, GError **error) {
  memset(r, 0, sizeof *r);
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    gboolean ok = ms_fields_load(&ms_reliability_table, doc, json_node_get_object(node), path, TRUE, r, error);
    if (ok && !r->name) r->name = g_strdup("inline");
    return ok;
  }
  if (!ms_json_is(node, G_TYPE_STRING))
    return ms_json_error(doc, path, error, "must be the name of a file in reliability/, a path, or an object");
  g_autofree char *file = ms_find_mentioned("reliability", json_node_get_string(node), doc, path, error);
  return file && load_file(file, r, error);
}

void ms_reliability_clear(MsReliability *r) {
  for (int i = 0; i < r->n; i++) ms_fields_clear(&failure_table, &r->failure[i]);
  g_free(r->failure);
  g_free(r->name);
  g_free(r->doc);
  memset(r, 0, sizeof *r);
}

/* --- the study ------------------------------------------------------------------------------------------------- */
static const MsFieldTable checkpoint_table = MS_FIELD_TABLE(
    "goodput.checkpoint", "how and how often state is saved",
    MS_ENUM(MsCheckpointSpec, mode, ms_checkpoint_words, NULL, MS_REQUIRED,
            "training waits for storage (synchronous), for a copy to the host (asynchronous), or keeps it in the "
            "memory of other nodes"),
    MS_F64(MsCheckpointSpec, interval_s, "s", 1, 30 * MS_DAY_S, NULL, MS_NULLABLE,
           "useful time between two; null = the optimal one"),
    MS_F64(MsCheckpointSpec, size_B, "B", 1, 1e18, NULL, MS_NULLABLE,
           "of the whole job; null = parameters times bytes of weights, main parameters and moments"),
    MS_F64(MsCheckpointSpec, storage_Bps, "Bps", 1, 1e16, NULL, MS_NULLABLE,
           "storage, all ranks together; in-memory needs none"));

static const MsFieldTable recovery_table = MS_FIELD_TABLE(
    "goodput.recovery", "what a restart takes",
    MS_F64(MsRecoverySpec, restart_s, "s", 0, 30 * MS_DAY_S, NULL, MS_REQUIRED,
           "schedule, start processes, connect and build; loading comes on top"),
    MS_F64(MsRecoverySpec, rewarm_s, "s", 0, 30 * MS_DAY_S, NULL, MS_REQUIRED, "useful time lost to slow first steps"));

static const MsFieldTable spare_table =
    MS_FIELD_TABLE("goodput.spares", "nodes in reserve",
                   MS_INT(MsSpareSpec, nodes, 0, 1 << 20, NULL, MS_NULLABLE,
                          "idle nodes that replace failed ones; null = always enough"),
                   MS_F64(MsSpareSpec, repair_s, "s", 0, 1000 * MS_DAY_S, "86400", 0, "until a failed node is back"));

static const MsFieldTable slow_table =
    MS_FIELD_TABLE("goodput.slow_nodes", "nodes that do not fail but hold the job up",
                   MS_F64(MsSlowSpec, per_1000_node_days, "", 0, 1e6, "0", 0, "nodes that become slow"),
                   MS_F64(MsSlowSpec, speed, "", 0.01, 1, "0.8", 0, "of the job while it has one"),
                   MS_F64(MsSlowSpec, detection_s, "s", 0, 30 * MS_DAY_S, "3600", 0,
                          "until it is found; a planned restart then replaces it"));

static const MsFieldTable budget_table =
    MS_FIELD_TABLE("goodput.budget", "how long it runs: tokens or days",
                   MS_F64(MsBudgetSpec, tokens, "", 1, 1e18, NULL, MS_NULLABLE, "to train"),
                   MS_F64(MsBudgetSpec, days, "d", 1e-3, 1e5, NULL, MS_NULLABLE, "of wall clock, instead of tokens"));

static const MsFieldTable monte_carlo_table =
    MS_FIELD_TABLE("goodput.monte_carlo", "the simulation",
                   MS_INT(MsMonteCarloSpec, runs, 2, 1000000, "400", 0, "simulated trainings"),
                   MS_INT(MsMonteCarloSpec, seed, 0, G_MAXINT, "1", 0, "of the random numbers"));

typedef struct {
  MsGoodput g;
  JsonNode *run, *reliability;
} File;

const MsFieldTable ms_goodput_table = MS_FIELD_TABLE(
    "goodput", "failures, checkpoints and restarts of a run, scenarios/goodput/*.json", MS_SCHEMA(MS_REQUIRED),
    MS_STRING(MsGoodput, name, MS_NULLABLE, "name of the study, by default that of the file"),
    MS_STRING(MsGoodput, doc, MS_NULLABLE, "free text"),
    {MS_ROW(File, run, MS_T_FREE, "", NULL, MS_REQUIRED, "the scenario, as a path beside this file or as an object")},
    {MS_ROW(MsGoodput, fidelity, MS_T_ENUM, "", "\"full\"", 0, "of its predicted step time"),
     .words = ms_fidelity_words},
    MS_F64(MsGoodput, step_time_s, "s", 1e-9, 1e6, NULL, MS_NULLABLE, "instead of the predicted one"),
    {MS_ROW(File, reliability, MS_T_FREE, "", NULL, MS_REQUIRED, "a name in reliability/, a path, or an object")},
    MS_OBJECT(MsGoodput, checkpoint, &checkpoint_table, MS_REQUIRED, "how and how often state is saved"),
    MS_OBJECT(MsGoodput, recovery, &recovery_table, MS_REQUIRED, "what a restart takes"),
    MS_OBJECT(MsGoodput, spares, &spare_table, 0, "nodes in reserve"),
    MS_BOOL(MsGoodput, elastic, "false", 0, "runs on with fewer data-parallel replicas while no spare node is there"),
    MS_OBJECT(MsGoodput, slow_nodes, &slow_table, 0, "nodes that do not fail but hold the job up"),
    MS_OBJECT(MsGoodput, budget, &budget_table, MS_REQUIRED, "how long it runs: tokens or days"),
    MS_OBJECT(MsGoodput, monte_carlo, &monte_carlo_table, 0, "the simulation"));

static gboolean load_run(MsGoodput *g, const MsJson *doc, JsonNode *node, GError **error) {
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    g_autoptr(MsJson) inner = ms_json_doc(node, ms_json_filename(doc));
    GError *failure = NULL;
    g->run = ms_scenario_from_doc_mixed(inner, &failure);
    return g->run || ms_json_error_inside(doc, "run", error, failure);
  }
  if (!ms_json_is(node, G_TYPE_STRING)) return ms_json_error(doc, "run", error, "must be a path or an object");
  g_autofree char *file = ms_find_mentioned("scenarios", json_node_get_string(node), doc, "run", error);
  g->run = file ? ms_scenario_load_mixed(file, error) : NULL;
  return g->run != NULL;
}

/* What no single row sees. */
static gboolean check(const MsGoodput *g, const MsJson *doc, GError **error) {
  if (isnan(g->budget.tokens) == isnan(g->budget.days))
    return ms_json_error(doc, "budget", error, "must have exactly one of tokens and days");
  if (g->checkpoint.mode != MS_CHECKPOINT_IN_MEMORY && isnan(g->checkpoint.storage_Bps))
    return ms_json_error(doc, "checkpoint.storage_Bps", error, "is needed by %s checkpoints",
                         ms_checkpoint_words[g->checkpoint.mode]);
  return TRUE;
}

MsGoodput *ms_goodput_from_doc(const MsJson *doc, GError **error) {
  File file;
  memset(&file, 0, sizeof file);
  JsonNode *root = ms_json_root(doc);
  ms_fields_defaults(&ms_goodput_table, &file);
  gboolean ok = ms_doc_check_kind(doc, "run", error);
  ok = ok && ms_fields_load(&ms_goodput_table, doc, json_node_get_object(root), "", TRUE, &file, error) &&
       check(&file.g, doc, error);
  file.g.file = g_strdup(ms_json_filename(doc));
  if (!file.g.name) file.g.name = ms_name_of_file(file.g.file);
  ok = ok && ms_reliability_load(doc, file.reliability, "reliability", &file.g.reliability, error) &&
       load_run(&file.g, doc, file.run, error);
  if (file.run) json_node_unref(file.run);
  if (file.reliability) json_node_unref(file.reliability);
  MsGoodput *g = g_memdup2(&file.g, sizeof file.g);
  if (!ok) g_clear_pointer(&g, ms_goodput_free);
  return g;
}

MsGoodput *ms_goodput_load(const char *filename, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(filename, error);
  return doc ? ms_goodput_from_doc(doc, error) : NULL;
}

void ms_goodput_free(MsGoodput *g) {
  if (!g) return;
  ms_reliability_clear(&g->reliability);
  ms_scenario_free(g->run);
  g_free(g->file);
  g_free(g->name);
  g_free(g->doc);
  g_free(g);
}
