#include "study/changes.h"

#include <string.h>

#include "base/io.h"
#include "base/order.h"
#include "layout/layout.h"
#include "plan/plan.h"
#include "study/parts.h"

/* --- what is tried --------------------------------------------------------------------------------------------- */
enum { MOST_PATHS = 2 };
typedef struct {
  const char *path[MOST_PATHS]; /* left to the planner together */
  gboolean is_switch;           /* on and off, instead of the planner's own values */
} Trial;

static const Trial trials[] = {
    {{"layout.pipeline_layout"}, FALSE},      {{"layout.vpp", "layout.pipeline_layout"}, FALSE},
    {{"training.micro_batch_size"}, FALSE},   {{"options.recompute"}, FALSE},
    {{"options.cuda_graph_scope"}, FALSE},    {{"options.dispatcher"}, FALSE},
    {{"options.ep_overlap"}, TRUE},           {{"options.tp_comm_overlap"}, TRUE},
    {{"options.overlap_grad_reduce"}, TRUE},  {{"options.overlap_param_gather"}, TRUE},
    {{"options.cross_entropy_fusion"}, TRUE},
};

static const MsField *field_of(const char *path) {
  static const struct {
    const char *section;
    const MsFieldTable *table;
  } sections[] = {{"layout.", &ms_layout_table}, {"training.", &ms_training_table}, {"options.", &ms_options_table}};
  for (guint i = 0; i < G_N_ELEMENTS(sections); i++)
    if (g_str_has_prefix(path, sections[i].section))
      return ms_field_find(sections[i].table, path + strlen(sections[i].section));
  return NULL;
}

/* --- a request around the run ---------------------------------------------------------------------------------- */
static const char cut[] = "layout.pipeline_layout";

static gboolean opens_cut(const Trial *trial) {
  for (int i = 0; i < MOST_PATHS && trial->path[i]; i++)
    if (strcmp(trial->path[i], cut) == 0) return TRUE;
  return FALSE;
}

/* The run with the layers of its stages in words, since the planner cuts anew where they are not given. NULL: its
 * layout breaks a rule. (transfer full) */
static MsScenario *settled(const MsScenario *scenario) {
  g_autoptr(MsLayout) layout = ms_layout_new(scenario, NULL);
  if (!layout) return NULL;
  MsScenario *s = ms_scenario_copy(scenario, TRUE);
  s->options.sequence_parallel = layout->sequence_parallel;
  if (layout->pp < 2 || s->layout.pipeline_layout) return s;
  s->layout.pipeline_layout = ms_pipeline_layout_text(layout->chunks, layout->num_chunks);
  s->layout.account_for_embedding_in_pipeline_split = s->layout.account_for_loss_in_pipeline_split = FALSE;
  s->layout.decoder_first_pipeline_num_layers = s->layout.decoder_last_pipeline_num_layers = 0;
  return s;
}

static void open_path(MsRequest *r, const char *path, gboolean is_switch) {
  MsOpenKey *key = &r->open[r->n_open++];
  *key = (MsOpenKey){.path = g_strdup(path), .field = field_of(path)};
  if (g_str_has_prefix(path, "layout.")) r->layout_given &= ~((guint64)1 << (key->field - ms_layout_table.fields));
  if (!is_switch) return;
  key->values = g_new(JsonNode *, 2);
  for (key->n = 0; key->n < 2; key->n++) key->values[key->n] = json_node_init_boolean(json_node_alloc(), key->n == 0);
}

/* (transfer full) */
static MsRequest *request_of(const MsScenario *run, const Trial *trial) {
  MsRequest *r = g_new0(MsRequest, 1);
  r->layout_given = G_MAXUINT64;
  r->open = g_new0(MsOpenKey, MOST_PATHS);
  ms_fields_defaults(&ms_plan_table, r);
  r->top = 1;
  r->base = ms_scenario_copy(run, TRUE);
  if (opens_cut(trial)) g_clear_pointer(&r->base->layout.pipeline_layout, g_free);
  for (int i = 0; i < MOST_PATHS && trial->path[i]; i++) open_path(r, trial->path[i], trial->is_switch);
  return r;
}

/* --- rows ------------------------------------------------------------------------------------------------------ */
static void change_clear(MsChange *c) { ms_comparison_free(c->change); }

static MsChange change_of(const MsScenario *scenario, const MsResult *own, const MsPlanEntry *best) {
  return (MsChange){.change = ms_compare(scenario, own, best->scenario, best->result),
                    .step_time_s = best->result->step_time_s,
                    .gain = 1 - best->result->step_time_s / own->step_time_s,
                    .freed_B = ms_device_B(own) - ms_device_B(best->result)};
}

/* Two trials may end in the same change: by the keys that differ. */
static gboolean same_change(const MsComparison *a, const MsComparison *b) {
  if (a->n_keys != b->n_keys) return FALSE;
  for (int i = 0; i < a->n_keys; i++)
    if (strcmp(a->key[i].path, b->key[i].path) != 0 || strcmp(a->key[i].b, b->key[i].b) != 0) return FALSE;
  return TRUE;
}

static gboolean is_known(const MsChanges *changes, const MsChange *c) {
  for (int i = 0; i < changes->n; i++)
    if (same_change(changes->row[i].change, c->change)) return TRUE;
  return FALSE;
}

static void take(MsChanges *changes, MsChange c, gboolean needs_room) {
  if (needs_room && c.freed_B > 0 && (!changes->frees || c.gain > changes->frees->gain)) {
    if (changes->frees) change_clear(changes->frees);
    else changes->frees = g_new(MsChange, 1);
    *changes->frees = c;
    return;
  }
  if (needs_room || c.gain < MS_CHANGE_GAIN || c.change->n_keys == 0 || is_known(changes, &c)) {
    change_clear(&c);
    return;
  }
  changes->row = g_renew(MsChange, changes->row, changes->n + 1);
  changes->row[changes->n++] = c;
}

MS_ORDER(by_gain, MsChange, MS_MORE(x->gain, y->gain), 0)

static gboolean tries(const MsScenario *s, const Trial *trial) { return s->layout.pp > 1 || !opens_cut(trial); }

/* Adds what the trial finds. */
static void try(MsChanges *changes, const MsScenario *run, const MsResult *own, const Trial *trial) {
  static const MsPlanOptions options = {.threads = 1, .top = 1, .prune = TRUE, .rough = TRUE};
  g_autoptr(MsRequest) request = request_of(run, trial);
  changes->limit_B = request->max_memory_fraction * own->capacity_B;
  g_autoptr(MsPlan) plan = ms_plan(request, &options, NULL);
  if (plan && plan->n_best > 0) take(changes, change_of(run, own, &plan->best[0]), ms_device_B(own) > changes->limit_B);
}

MsChanges *ms_changes_new(const MsScenario *scenario) {
  g_autoptr(MsScenario) run = settled(scenario);
  g_autoptr(MsResult) own = run ? ms_simulate(run, MS_FIDELITY_FAST, NULL, NULL) : NULL;
  if (!own || !(own->step_time_s > 0)) return NULL;
  g_autoptr(MsChanges) changes = g_new0(MsChanges, 1);
  for (guint i = 0; i < G_N_ELEMENTS(trials); i++) {
    if (ms_interrupted()) return NULL;
    if (tries(run, &trials[i])) try(changes, run, own, &trials[i]);
  }
  if (changes->n > 1) qsort(changes->row, (size_t)changes->n, sizeof *changes->row, by_gain);
  return g_steal_pointer(&changes);
}

void ms_changes_free(MsChanges *changes) {
  if (!changes) return;
  for (int i = 0; i < changes->n; i++) change_clear(&changes->row[i]);
  g_free(changes->row);
  if (changes->frees) change_clear(changes->frees);
  g_free(changes->frees);
  g_free(changes);
}
