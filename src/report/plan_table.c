/* src/report/plan_table.c - a plan as text: what to choose from, or the ranking, and what was refused. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "describe/framework.h"
#include "describe/sources.h"
#include "describe/vendor.h"
#include "report/report.h"
#include "sim/band.h"
#include "study/knobs.h"

enum { FEW_REFUSALS = 20 };

/* --- table ----------------------------------------------------------------------------------------------------- */
static double exposed_fraction(const MsResult *r) {
  return r->step_time_s > 0 ? r->time.exposed_comm_s / r->step_time_s : NAN;
}
static double bubble_fraction(const MsResult *r) {
  return r->step_time_s > 0 ? r->time.bubble_s / r->step_time_s : NAN;
}

static void percent_cell(MsTable *table, double fraction) {
  if (isnan(fraction)) ms_table_cell(table, "-");
  else ms_table_cellf(table, "%.1f", 100 * fraction);
}

static gboolean several_gpus(const MsPlan *plan) {
  for (int i = 1; i < plan->n_best; i++)
    if (plan->best[i].scenario->gpus != plan->best[0].scenario->gpus) return TRUE;
  return FALSE;
}

/* --- open keys that have no column of their own --- */
typedef struct {
  GPtrArray *differ; /* paths, a column each */
  GPtrArray *same;   /* paths whose value is that of all rows */
  GHashTable **of;   /* [rows] path -> JSON text */
  int rows;
} OpenKeys;

static gboolean has_column(const char *path) {
  return ms_text_has_word("gpus layout.tp layout.cp layout.pp layout.vpp layout.ep layout.etp layout.schedule "
                          "layout.pipeline_layout training.micro_batch_size training.precision options.recompute",
                          path);
}

static OpenKeys open_keys(const MsRequest *request, const MsPlan *plan, int rows) {
  OpenKeys k = {g_ptr_array_new(), g_ptr_array_new(), g_new0(GHashTable *, rows), rows};
  for (int i = 0; i < rows; i++) k.of[i] = ms_knobs_of_scenario(plan->best[i].scenario);
  for (int i = 0; i < request->n_open; i++) {
    char *path = request->open[i].path;
    if (has_column(path)) continue;
    g_ptr_array_add(ms_knobs_differ(k.of, (guint)rows, path) ? k.differ : k.same, path);
  }
  return k;
}

static void open_keys_clear(OpenKeys *k) {
  for (int i = 0; i < k->rows; i++) g_hash_table_unref(k->of[i]);
  g_free(k->of);
  g_ptr_array_unref(k->differ);
  g_ptr_array_unref(k->same);
}

/* What has a column where the rows differ and else a place in the line below: numbers stand before the figures, words
 * after them; how the batch is shared comes last, of pools of replicas only. */
enum { CP, ETP, MBS, PRECISION, SCHEDULE, RECOMPUTE, BATCHES, N_FOLDED };
static const char *const folded[] = {"cp", "etp", "mbs", "precision", "schedule", "recompute", "batch"};

static guint n_folded(const MsPlan *plan) { return plan->best[0].result->n_shares > 0 ? N_FOLDED : BATCHES; }

/* "96+32": sequences of each machine. (transfer full) */
static char *batches_of(const MsScenario *s) {
  GString *out = g_string_new(NULL);
  for (int i = 0; i < s->pools.shares; i++) g_string_append_printf(out, "%s%d", i ? "+" : "", s->pools.pool[i].batch);
  return g_string_free(out, FALSE);
}

/* (transfer full) */
static char *folded_of(const MsScenario *s, guint i) {
  const int number[] = {s->layout.cp, s->layout.etp, s->training.micro_batch_size};
  if (i < PRECISION) return g_strdup_printf("%d", number[i]);
  if (i == BATCHES) return batches_of(s);
  if (i == RECOMPUTE) return ms_report_recompute(&s->options.recompute);
  return g_strdup(i == PRECISION ? ms_precision_words[s->training.precision] : ms_schedule_words[s->layout.schedule]);
}

static gboolean differs(const MsPlan *plan, int rows, guint i) {
  g_autofree char *first = folded_of(plan->best[0].scenario, i);
  for (int row = 1; row < rows; row++) {
    g_autofree char *other = folded_of(plan->best[row].scenario, i);
    if (strcmp(other, first) != 0) return TRUE;
  }
  return FALSE;
}

static void folded_columns(MsTable *table, const MsPlan *plan, int rows, guint from, guint to) {
  for (guint i = from; i < to; i++)
    if (differs(plan, rows, i)) ms_table_column(table, folded[i], i < PRECISION);
}

static void folded_cells(MsTable *table, const MsPlan *plan, int rows, const MsScenario *s, guint from, guint to) {
  for (guint i = from; i < to; i++) {
    g_autofree char *text = folded_of(s, i);
    if (differs(plan, rows, i)) ms_table_cell(table, text);
  }
}

static void append_same(GString *out, const MsPlan *plan, const OpenKeys *keys) {
  const MsScenario *s = plan->best[0].scenario;
  const char *before = keys->rows > 1 ? "all of them: " : "with ";
  for (guint i = 0; i < n_folded(plan); i++) {
    g_autofree char *text = folded_of(s, i);
    if (!differs(plan, keys->rows, i)) g_string_append_printf(out, "%s%s %s", before, folded[i], text), before = ", ";
  }
  for (guint i = 0; i < keys->same->len; i++) {
    const char *path = keys->same->pdata[i];
    g_autofree char *value = ms_report_value(g_hash_table_lookup(keys->of[0], path));
    g_string_append_printf(out, "%s%s %s", before, ms_report_key(path), value);
    before = ", ";
  }
  if (strcmp(before, ", ") == 0) g_string_append_c(out, '\n');
}

/* Of which peak the MFU is, and whether it counts FLOP that do not run. */
static void append_mfu(GString *out, const MsPlan *plan, int rows) {
  const MsPlanEntry *best = &plan->best[0];
  g_autofree char *note = ms_report_mfu_note(best->result);
  if (differs(plan, rows, PRECISION)) g_string_append(out, "MFU is of the dense peak of each row's own precision\n");
  else if (best->result->peak_flops > 0)
    g_string_append_printf(out, "MFU is of %sFLOP/s, the dense peak of %s\n", MS_COUNT(best->result->peak_flops),
                           ms_precision_words[best->scenario->training.precision]);
  if (note) g_string_append_printf(out, "%s\n", note);
}

static void entry_row(MsTable *table, const MsPlan *plan, const OpenKeys *keys, int place) {
  const MsPlanEntry *e = &plan->best[place - 1];
  const MsLayoutSpec *l = &e->scenario->layout;
  const MsResult *r = e->result;
  const int number[] = {place, l->tp, l->pp, l->vpp, l->ep, r->dp};
  for (guint i = 0; i < G_N_ELEMENTS(number); i++) ms_table_cellf(table, "%d", number[i]);
  folded_cells(table, plan, keys->rows, e->scenario, 0, PRECISION);
  if (several_gpus(plan)) ms_table_cellf(table, "%d", e->scenario->gpus);
  if (plan->objective != MS_GOAL_STEP_TIME) ms_table_cellf(table, "%.4g", e->figure);
  MS_TABLE_ROW(table, MS_SECONDS(r->step_time_s), MS_FORMAT("%.0f", r->tokens_per_s_per_gpu));
  percent_cell(table, r->mfu);
  ms_table_cellf(table, "%.1f", r->memory ? r->memory->stage[r->memory->peak_stage].device_B / MS_GIB : NAN);
  percent_cell(table, exposed_fraction(r));
  percent_cell(table, bubble_fraction(r));
  folded_cells(table, plan, keys->rows, e->scenario, PRECISION, n_folded(plan));
  for (guint i = 0; i < keys->differ->len; i++) {
    g_autofree char *value = ms_report_value(g_hash_table_lookup(keys->of[place - 1], keys->differ->pdata[i]));
    ms_table_cell(table, value);
  }
}

static void append_ranking(GString *out, const MsRequest *request, const MsPlan *plan, int top) {
  OpenKeys keys = open_keys(request, plan, ms_plan_shown(plan, top));
  MsTable *table = ms_table_of(">#|>tp|>pp|>vpp|>ep|>dp");
  folded_columns(table, plan, keys.rows, 0, PRECISION);
  if (several_gpus(plan)) ms_table_column(table, "GPUs", TRUE);
  if (plan->objective != MS_GOAL_STEP_TIME) ms_table_column(table, ms_objective_unit(plan->objective), TRUE);
  ms_table_columns(table, ">step time|>tokens/s/GPU|>MFU %|>GiB|>comm %|>bubble %");
  folded_columns(table, plan, keys.rows, PRECISION, n_folded(plan));
  for (guint i = 0; i < keys.differ->len; i++) ms_table_column(table, ms_report_key(keys.differ->pdata[i]), FALSE);
  for (int i = 0; i < keys.rows; i++) entry_row(table, plan, &keys, i + 1);
  ms_table_append(table, out);
  append_same(out, plan, &keys);
  append_mfu(out, plan, keys.rows);
  open_keys_clear(&keys);
}

static void append_refusals(GString *out, const MsPlan *plan) {
  MsTable *table = ms_table_of("refused by|>layouts|nearest miss");
  for (int i = 0; i < plan->n_refusals && i < FEW_REFUSALS; i++) {
    ms_table_cell(table, plan->refusals[i].name);
    ms_table_cellf(table, "%" G_GUINT64_FORMAT, plan->refusals[i].count);
    ms_table_cell(table, plan->refusals[i].example ? plan->refusals[i].example : "-");
  }
  ms_table_append_below(table, out);
  if (plan->n_refusals > FEW_REFUSALS)
    g_string_append_printf(out, "... and %d more rules\n", plan->n_refusals - FEW_REFUSALS);
}

static const MsPlanRefusal *refused_for(const MsPlan *plan, const char *name) {
  for (int i = 0; i < plan->n_refusals; i++)
    if (strcmp(plan->refusals[i].name, name) == 0) return &plan->refusals[i];
  return NULL;
}

static const MsPlanRefusal *short_of_memory(const MsPlan *plan) { return refused_for(plan, "memory"); }

/* Of a strict request, what its machine only assumes, which counts as unknown; NULL: nothing. (transfer full) */
static char *only_assumed(const MsRequest *request) {
  const MsHardware *machine = request->base->hardware;
  g_autoptr(GString) keys = g_string_new(NULL);
  for (const MsField *field = ms_hardware_table.fields; request->base->strict && field->key; field++)
    if (ms_source_is_refused(machine, field->key))
      g_string_append_printf(keys, "%s%s", keys->len ? ", " : "", field->key);
  return keys->len ? g_string_free(g_steal_pointer(&keys), FALSE) : NULL;
}

/* A deadline, what starts and memory first: what the rules refuse is no news where it is short. */
static void append_nothing(GString *out, const MsRequest *request, const MsPlan *plan) {
  const MsPlanRefusal *memory = short_of_memory(plan), *late = refused_for(plan, "deadline"),
                      *stays = refused_for(plan, "not-started"), *unknown = refused_for(plan, "not-simulated");
  g_autofree char *assumed = plan->valid == 0 ? only_assumed(request) : NULL;
  if (plan->interrupted) g_string_append(out, "nothing found yet\n");
  else if (late)
    ms_text_paragraph(
        out, 2,
        "nothing keeps the deadline: the layout that comes nearest, %s, takes at least %.4g days more than "
        "the %.4g; --explain lists what else was refused",
        late->layout, late->miss / MS_DAY_S, request->deadline_s / MS_DAY_S);
  else if (stays)
    ms_text_paragraph(out, 2, "nothing feasible: of the layouts that fit none is started by that form: %s",
                      stays->example);
  else if (memory)
    ms_text_paragraph(out, 2,
                      "nothing feasible: the layout that comes nearest, %s, needs at least %s more than the %s "
                      "that a plan may use of a GPU; --explain lists what else was refused",
                      memory->layout, MS_BYTES(memory->miss), MS_BYTES(plan->memory_limit_B));
  else if (assumed)
    ms_text_paragraph(out, 2, "nothing feasible: refused by --strict, since the file of %s only assumes %s",
                      request->base->hardware->name, assumed);
  else if (!(ms_hardware_peak_flops(request->base->hardware, request->base->training.precision) > 0))
    g_string_append_printf(out, "nothing feasible: %s cannot do %s\n", request->base->hardware->name,
                           ms_precision_words[request->base->training.precision]);
  else if (unknown)
    ms_text_paragraph(out, 2, "nothing feasible: of the layouts that obey the rules none can be simulated: %s",
                      unknown->example);
  else g_string_append(out, "nothing feasible: no layout obeys the rules\n");
}

/* What would fit, or be in time. */
static void append_ways(GString *out, const MsRequest *request, const MsPlan *plan, const MsWays *ways) {
  gboolean late = plan->n_best > 0 || request->objective == MS_GOAL_DEADLINE;
  if (plan->n_best > 0) g_string_append(out, "\nnone of these keeps the deadline\n");
  ms_text_append(out, ms_report_ways(ways, late));
}

const char *ms_report_launch_form(const MsScenario *s) {
  gboolean starts = ms_vendor_start(s->hardware, s->framework).kind != MS_STAYS;
  return starts && ms_scenario_machines(s) == 1 && !ms_lora_is_on(&s->training.lora) ? ms_framework(s)->launch_form
                                                                                     : NULL;
}

/* What the machine is faster in than what the request trains in, where that is the only one. (transfer full) */
static char *faster_precisions(const MsRequest *request) {
  const MsScenario *s = request->base;
  g_autoptr(GString) words = g_string_new(NULL);
  double own = ms_hardware_peak_flops(s->hardware, s->training.precision);
  if (ms_request_leaves_open(request, "training.precision")) return g_strdup("");
  for (int i = 0; i < MS_N_PRECISIONS; i++)
    if (ms_precision_tried(s, i) && ms_hardware_peak_flops(s->hardware, (MsPrecision)i) > own)
      g_string_append_printf(words, "%s%s", words->len ? ", " : "", ms_precision_words[i]);
  return words->len
             ? g_strdup_printf("; --precision auto (in a file \"precision\": \"auto\") tries %s, too", words->str)
             : g_strdup("");
}

static void append_hint(GString *out, const MsRequest *request, const MsPlan *plan, const char *not_started) {
  const MsPlanEntry *best = &plan->best[0];
  const char *form = ms_report_launch_form(best->scenario);
  g_autofree char *start = !form         ? NULL
                           : not_started ? g_strdup_printf("; --launch does not start it: %s", not_started)
                                         : g_strdup_printf("; --launch %s prints what starts it", form);
  g_autofree char *precisions = faster_precisions(request);
  g_string_append_c(out, '\n');
  if (best->result->bottleneck) ms_text_paragraph(out, 6, "best: %s", best->result->bottleneck);
  ms_text_paragraph(out, 6,
                    "next: --all ranks every layout that was kept; --explain says why; --out FILE keeps the winner%s%s",
                    start ? start : "", precisions);
}

/* A number of GPUs that leaves a node in part is seldom what one has, and seldom has a good layout. */
static void append_nodes(GString *out, const MsScenario *base) {
  int below, above;
  for (int i = 0; i < ms_scenario_machines(base); i++) {
    const MsHardware *machine = ms_scenario_machine(base, i);
    int gpus = ms_scenario_machine_gpus(base, i);
    if (ms_whole_nodes(machine, gpus, &below, &above))
      g_string_append_printf(out, "%d GPUs leave one of their nodes of %d in part: %d and %d fill them\n", gpus,
                             machine->gpus_per_node, below, above);
  }
}

/* "34.56 million"; below a million all digits. */
static const char *large_count(double n, char *buf) {
  static const struct {
    double of;
    const char *word;
  } unit[] = {{1e18, " million million million"}, {1e12, " million million"}, {1e6, " million"}};
  for (guint i = 0; i < G_N_ELEMENTS(unit); i++)
    if (n >= unit[i].of) return g_snprintf(buf, MS_TEXT, "%.4g%s", n / unit[i].of, unit[i].word), buf;
  return g_snprintf(buf, MS_TEXT, "%.0f", n), buf;
}
#define LARGE(n) large_count((double)(n), MS_ROOM)

static void append_counts(GString *out, const MsPlan *plan) {
  if (plan->branched && plan->interrupted)
    ms_text_paragraph(out, 2,
                      "%s layouts, the search of which was stopped; %" G_GUINT64_FORMAT
                      " of them seen to fit into %s, %" G_GUINT64_FORMAT " simulated",
                      LARGE(plan->searched), plan->feasible, MS_BYTES(plan->memory_limit_B), plan->simulated);
  else if (plan->branched)
    ms_text_paragraph(out, 2,
                      "%s layouts: all but %s cut in sets by proven bounds; %" G_GUINT64_FORMAT
                      " of these seen to fit into %s, %" G_GUINT64_FORMAT " simulated",
                      LARGE(plan->searched), LARGE(plan->searched - plan->pruned), plan->feasible,
                      MS_BYTES(plan->memory_limit_B), plan->simulated);
  else
    ms_text_paragraph(out, 2,
                      "%s layouts: %" G_GUINT64_FORMAT " obey the rules, %" G_GUINT64_FORMAT
                      " seen to fit into %s, %" G_GUINT64_FORMAT " cut by a proven bound, %" G_GUINT64_FORMAT
                      " simulated",
                      LARGE(plan->searched), plan->valid, plan->feasible, MS_BYTES(plan->memory_limit_B), plan->pruned,
                      plan->simulated);
}

/* Those that it leaves out are searched. */
static gboolean gives_a_size(const MsRequest *request) {
  static const char *const sizes[] = {"tp", "cp", "pp", "vpp", "ep", "etp"};
  for (gsize i = 0; i < G_N_ELEMENTS(sizes); i++) {
    const MsField *field = ms_field_find(&ms_layout_table, sizes[i]);
    if ((request->layout_given >> (field - ms_layout_table.fields)) & 1) return TRUE;
  }
  return FALSE;
}

/* A finished run where a request is expected: its own layout is the answer, which is seldom what was asked. */
static void append_closed(GString *out, const MsRequest *request) {
  if (!gives_a_size(request)) return;
  for (int i = 0; i < request->n_open; i++) {
    const char *path = request->open[i].path;
    if (g_str_has_prefix(path, "layout.") || strcmp(path, "gpus") == 0 ||
        strcmp(path, "training.micro_batch_size") == 0)
      return;
  }
  ms_text_paragraph(out, 2,
                    "sizes of the layout that the file gives are kept: a list such as \"tp\": [1, 2, 4] opens one, "
                    "--around SCENARIO opens all");
}

/* What a search that was stopped has proven all the same. */
static void append_proof(GString *out, const MsRequest *request, const MsPlan *plan) {
  double gap = ms_plan_gap(plan, request);
  if (plan->interrupted && gap > 0)
    g_string_append_printf(out,
                           "INTERRUPTED: no layout is better than the best below by more than %.2g %% (proven); others "
                           "of the ranking may be missing\n",
                           100 * gap);
  else if (plan->interrupted)
    g_string_append(out, gap >= 0 ? "INTERRUPTED: the best below is proven, others of the ranking may be missing\n"
                                  : "INTERRUPTED, the ranking may miss better ones\n");
  g_string_append_c(out, '\n');
}

char *ms_report_gpus(const MsRequest *request) {
  gint64 least = request->base->gpus, most = least;
  for (int k = 0; k < request->n_open; k++) {
    const MsOpenKey *key = &request->open[k];
    for (int v = 0; v < key->n && strcmp(key->path, "gpus") == 0; v++) {
      gint64 gpus = json_node_get_int(key->values[v]);
      least = MIN(least, gpus), most = MAX(most, gpus);
    }
  }
  return least == most ? g_strdup_printf("%" G_GINT64_FORMAT, least)
                       : g_strdup_printf("%" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, least, most);
}

/* Where Megatron-LM does not start: whose layouts these are, or that nothing is known to start them. */
static void append_start(GString *out, const MsScenario *s) {
  MsStart megatron = ms_vendor_start(s->hardware, MS_FRAMEWORK_MEGATRON),
          own = ms_vendor_start(s->hardware, s->framework);
  if (own.kind == MS_STAYS) ms_text_paragraph(out, 2, "caveat: these layouts are not started there: %s", own.about);
  else if (megatron.kind == MS_STAYS)
    ms_text_paragraph(out, 2, "layouts of %s: %s", ms_framework(s)->word, megatron.about);
}

char *ms_report_plan(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras, int top,
                     unsigned flags) {
  GString *out = g_string_new(NULL);
  gboolean explain = (flags & MS_REPORT_EXPLAIN) != 0;
  const MsScenario *base = request->base;
  g_autofree char *gpus = ms_report_gpus(request),
                  *machines = ms_scenario_machines(base) > 1 ? ms_scenario_machines_text(base)
                                                             : g_strdup_printf("%s x %s", gpus, base->hardware->name);
  g_autofree char *lora = ms_report_adapters(base), *name = ms_report_name(base->name);
  g_string_append_printf(out, "%s%s%s: %s on %s, sequence %d, batch %d%s\n", flags & MS_REPORT_COLOUR ? "\033[1m" : "",
                         name, flags & MS_REPORT_COLOUR ? "\033[0m" : "", base->model->name, machines,
                         base->training.seq_length, base->training.global_batch_size, lora);
  append_nodes(out, base);
  append_counts(out, plan);
  append_closed(out, request);
  g_autofree char *caveat = ms_caveat(base, plan->n_best > 0 ? plan->best[0].result : NULL, MS_FIDELITY_FULL);
  if (caveat) ms_text_paragraph(out, 2, "caveat: %s", caveat);
  append_start(out, base);
  append_proof(out, request, plan);
  g_autofree char *assumption = ms_objective_assumption(request);
  if (plan->objective != MS_GOAL_STEP_TIME)
    g_string_append_printf(out, "ranked by %s%s%s\n\n", ms_objective_phrase(plan->objective), assumption ? ": " : "",
                           assumption ? assumption : "");
  const MsPicks *picks = extras ? extras->picks : NULL;
  if (picks) { ms_text_append(out, ms_report_picks(request, plan, picks)); }
  if (picks && (flags & MS_REPORT_ALL)) g_string_append_c(out, '\n');
  if (plan->n_best > 0 && (!picks || (flags & MS_REPORT_ALL))) append_ranking(out, request, plan, top);
  else if (plan->n_best == 0) append_nothing(out, request, plan);
  if (extras && extras->ways) append_ways(out, request, plan, extras->ways);
  if ((explain || (plan->n_best == 0 && !short_of_memory(plan))) && plan->n_refusals > 0) append_refusals(out, plan);
  if (extras && extras->reasons) { ms_text_append(out, ms_report_reasons(plan, extras->reasons)); }
  if (extras && extras->robust) { ms_text_append(out, ms_report_robust(extras->robust, top)); }
  if (extras && extras->decision) { ms_text_append(out, ms_report_decision(extras->decision)); }
  if (plan->n_best > 0) append_hint(out, request, plan, extras ? extras->not_started : NULL);
  return g_string_free(out, FALSE);
}

char *ms_report_plan_best_so_far(const MsPlan *plan, double done) {
  if (plan->n_best == 0) return g_strdup_printf("%5.1f %%  nothing fits so far\n", 100 * done);
  g_autofree char *layout = ms_report_layout(plan->best[0].scenario);
  return g_strdup_printf("%5.1f %%  %s  %s\n", 100 * done, MS_SECONDS(plan->best[0].result->step_time_s), layout);
}
