/* src/report/table.c - a prediction as text: the headline, where the time goes, memory, where the numbers come from. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "report/report.h"
#include "study/guesses.h"

enum { FEW_STAGES = 16, FEW_ORIGINS = 12 };

static void heading(GString *out, unsigned flags, const char *name) {
  g_autofree char *text = ms_report_name(name);
  if (flags & MS_REPORT_COLOUR) g_string_append_printf(out, "\033[1m%s\033[0m", text);
  else g_string_append(out, text);
}

char *ms_report_adapters(const MsScenario *s) {
  const MsLora *lora = &s->training.lora;
  return ms_lora_is_on(lora) ? g_strdup_printf(", LoRA of rank %d", (int)lora->rank) : g_strdup("");
}

/* --- heading --------------------------------------------------------------------------------------------------- */
static void append_scenario(GString *out, const MsScenario *s) {
  g_autofree char *machines = ms_scenario_machines_text(s);
  g_autofree char *lora = ms_report_adapters(s);
  g_string_append_printf(out, "  %s on %s, %s, sequence %d, batch %d%s\n", s->model->name, machines,
                         ms_precision_words[s->training.precision], s->training.seq_length,
                         s->training.global_batch_size, lora);
  const MsLayoutSpec *l = &s->layout;
  g_string_append_printf(out, "  tp %d  cp %d  pp %d  vpp %d  ep %d  etp %d  micro-batch %d  %s\n", l->tp, l->cp, l->pp,
                         l->vpp, l->ep, l->etp, s->training.micro_batch_size, ms_schedule_words[l->schedule]);
}

/* Of which peak, and whether the convention counts FLOP that do not run. */
static void append_mfu(GString *out, const MsScenario *s, const MsResult *r) {
  g_string_append_printf(out, "  MFU          %s", MS_PERCENT(r->mfu));
  if (r->peak_flops > 0)
    g_string_append_printf(out, " of %sFLOP/s%s%s", MS_COUNT(r->peak_flops), s ? ", the dense peak of " : "",
                           s ? ms_precision_words[s->training.precision] : "");
  g_autofree char *note = ms_report_mfu_note(r);
  g_string_append_printf(out, "%s%s\n", note ? "\n               " : "", note ? note : "");
}

char *ms_report_shares(const MsResult *r) {
  GString *out = g_string_new(NULL);
  for (int i = 0; i < r->n_shares; i++) {
    const MsShare *s = &r->shares[i];
    g_string_append_printf(out, "%s%d sequences on %s (%d x %d microbatches)", i ? ", " : "", s->batch, s->machine,
                           s->replicas, s->microbatches);
  }
  return g_string_free(out, FALSE);
}

char *ms_report_mfu_note(const MsResult *r) {
  return r->counted_over_run > 1.1
             ? g_strdup_printf("MFU counts %.1f times the FLOP that run: dense attention, as Megatron-LM counts it",
                               r->counted_over_run)
             : NULL;
}

/* The layout of the file may be a guess of what ran. */
static const char *verdict(const MsScenario *s, const MsResult *r, double off) {
  if (!(r->band > 0)) return "";
  if (off <= r->band) return ", which is inside the band";
  return off <= hypot(r->band, ms_guesses_width(s))
             ? ", outside the band of this layout, of which the file guessed some"
             : ", outside the band";
}

/* What was measured, beside the band. */
static void append_measured(GString *out, const MsScenario *s, const MsResult *r) {
  const char *from;
  double measured_s = s && s->has_measured ? ms_measured_time(s, &from) : NAN;
  if (!(measured_s > 0)) return;
  double off = measured_s / r->step_time_s - 1;
  g_string_append_printf(out, "  measured     %s, %.1f %% %s predicted%s\n", MS_SECONDS(measured_s), 100 * fabs(off),
                         off >= 0 ? "longer than" : "shorter than", verdict(s, r, fabs(off)));
}

/* What it is that the step is expected of. */
static void append_scale(GString *out, const MsScale *s) {
  g_string_append_printf(out, "  GPUs differ  expected, %s to %s in 90 %% of jobs;", MS_SECONDS(s->p5_s),
                         MS_SECONDS(s->p95_s));
  g_string_append_printf(out, " of it clocks %s, jitter %s", MS_SECONDS(s->clocks_s), MS_SECONDS(s->jitter_s));
  if (s->slow_gpus_s > 0) g_string_append_printf(out, ", slow GPUs %s", MS_SECONDS(s->slow_gpus_s));
  if (s->slow_nics_s > 0) g_string_append_printf(out, ", slow NICs %s", MS_SECONDS(s->slow_nics_s));
  g_string_append_c(out, '\n');
}

static void append_step(GString *out, const MsScenario *scenario, const MsResult *r) {
  g_string_append_printf(out, "  step time    %s", MS_SECONDS(r->step_time_s));
  if (r->band > 0) g_string_append_printf(out, " +-%s", MS_PERCENT(r->band));
  if (r->step_time_lower_s > 0) g_string_append_printf(out, "   (lower bound %s)", MS_SECONDS(r->step_time_lower_s));
  g_string_append_c(out, '\n');
  append_measured(out, scenario, r);
}

static void append_headline(GString *out, const MsScenario *scenario, const MsResult *r) {
  if (r->scale.alike_s > 0) append_scale(out, &r->scale);
  g_string_append_printf(out, "  throughput   %.0f tokens/s/GPU   %.1f model TFLOP/s/GPU\n", r->tokens_per_s_per_gpu,
                         r->tflops_per_gpu);
  if (r->caveat) g_string_append_printf(out, "  caveat       %s\n", r->caveat);
  append_mfu(out, scenario, r);
  g_autofree char *shares = ms_report_shares(r);
  if (*shares) g_string_append_printf(out, "  batches      %s; dp %d, edp %d\n", shares, r->dp, r->edp);
  else
    g_string_append_printf(out, "  batches      %d microbatch%s per replica, dp %d, edp %d\n", r->microbatches,
                           r->microbatches == 1 ? "" : "es", r->dp, r->edp);
}

/* --- time ------------------------------------------------------------------------------------------------------ */
const char *const ms_report_parts[MS_N_TIME_PARTS] = {
    "compute", "exposed communication", "pipeline bubble", "host", "optimizer", "other"};

double ms_report_parts_s(const MsTimeParts *t) {
  double sum_s = 0;
  for (int i = 0; i < MS_N_TIME_PARTS; i++) sum_s += t->part_s[i];
  return sum_s;
}

static void part_row(MsTable *table, const char *indent, const char *name, double time_s, double whole_s) {
  ms_table_cellf(table, "%s%s", indent, name);
  MS_TABLE_ROW(table, MS_SECONDS(time_s), MS_PERCENT(whole_s > 0 ? time_s / whole_s : NAN));
}

static void append_parts(GString *out, const MsTimeParts *t) {
  double whole_s = ms_report_parts_s(t);
  MsTable *table = ms_table_of("  where the time goes (mean over stages)|>time|>share");
  for (int i = 0; i < MS_N_TIME_PARTS; i++) {
    part_row(table, "  ", ms_report_parts[i], t->part_s[i], whole_s);
    for (int f = 0; i == 0 && f < 4; f++)
      if (t->family_s[f] > 0) part_row(table, "    ", ms_family_figures.rows[f].title, t->family_s[f], whole_s);
  }
  part_row(table, "  ", "sum", whole_s, whole_s);
  ms_table_append(table, out);
}

/* Each part in percent of the step, and how far the parts so far have come: from MFU to 100 %. */
static void append_gap(GString *out, const MsResult *r) {
  if (r->n_gap == 0) return;
  double sum = 0;
  MsTable *table = ms_table_of("  from MFU to 100 %|>time|>MFU points|>so far");
  for (int i = 0; i < r->n_gap; i++) {
    sum += r->gap[i].fraction;
    ms_table_cellf(table, "  %s", r->gap[i].name);
    MS_TABLE_ROW(table, MS_SECONDS(r->gap[i].fraction * r->step_time_s), MS_FORMAT("%.2f", 100 * r->gap[i].fraction),
                 MS_FORMAT("%.2f", 100 * sum));
  }
  ms_table_append_below(table, out);
}

static void append_comm(GString *out, const MsTimeParts *t) {
  double total_s = 0;
  gboolean queued = FALSE;
  for (int c = 0; c < MS_N_COMMS; c++) total_s += t->comm_total_s[c];
  if (!(total_s > 0)) return;
  MsTable *table = ms_table_of("  communication|>total|>exposed|>hidden");
  for (int c = 0; c < MS_N_COMMS; c++) {
    if (!(t->comm_total_s[c] > 0)) continue;
    ms_table_cellf(table, "  %s", ms_comm_words[c]);
    MS_TABLE_ROW(table, MS_SECONDS(t->comm_total_s[c]), MS_SECONDS(t->comm_exposed_s[c]),
                 MS_PERCENT(MAX(0, 1 - t->comm_exposed_s[c] / t->comm_total_s[c])));
    queued |= t->comm_exposed_s[c] > 1.005 * t->comm_total_s[c];
  }
  ms_table_append_below(table, out);
  if (queued) g_string_append(out, "  exposed above total: waits for the launch and queue of messages are in it\n");
}

static const char *const parts[] = {"compute_s",   "exposed_comm_s", "bubble_s", "host_s",
                                    "optimizer_s", "other_s",        NULL};

static void append_stages(GString *out, const MsResult *r) {
  if (!r->stage_time) return;
  MsTable *table = ms_table_of(">  stage");
  ms_figures_columns(&ms_time_figures, parts, table);
  ms_table_column(table, "sum", TRUE);
  for (int s = 0; s < r->stages; s++) {
    ms_table_cellf(table, "%d", s);
    ms_figures_cells(&ms_time_figures, parts, &r->stage_time[s], table);
    ms_table_cell(table, MS_SECONDS(ms_report_parts_s(&r->stage_time[s])));
  }
  ms_table_append_below(table, out);
}

/* The step pass by pass (sim/passes.h): seconds of each kind of slot, and how many slots of it the stage has. */
static const char *const pass_words[MS_N_SLOTS] = {"1F", "1B whole", "1B input", "1W", "1F1B"};

static void passes_row(MsTable *table, const MsPasses *p, const MsPasses *columns) {
  double sum_s = p->bubble_s + p->optimizer_s;
  for (int kind = 0; kind < MS_N_SLOTS; kind++) {
    if (columns->count[kind] == 0) continue;
    if (p == columns) ms_table_cell(table, "");
    else
      ms_table_cellf(table, "%d x %s", p->count[kind],
                     MS_SECONDS(p->count[kind] ? p->total_s[kind] / p->count[kind] : 0));
    ms_table_cell(table, MS_SECONDS(p->total_s[kind]));
    sum_s += p->total_s[kind];
  }
  MS_TABLE_ROW(table, MS_SECONDS(p->bubble_s), MS_SECONDS(p->optimizer_s), MS_SECONDS(sum_s));
}

static void append_step_passes(GString *out, const MsResult *r) {
  if (!r->passes) return;
  MsPasses mean = ms_passes_mean(r->passes, r->stages);
  MsTable *table = ms_table_of(">  stage");
  for (int kind = 0; kind < MS_N_SLOTS; kind++) {
    if (mean.count[kind] == 0) continue;
    ms_table_column(table, pass_words[kind], TRUE);
    ms_table_column(table, "total", TRUE);
  }
  ms_table_columns(table, ">bubble|>optimizer|>sum");
  for (int s = 0; s < r->stages; s++) ms_table_cellf(table, "%d", s), passes_row(table, &r->passes[s], &mean);
  if (r->stages > 1) ms_table_cell(table, "mean"), passes_row(table, &mean, &mean);
  g_string_append(out, "\n  pass by pass\n");
  ms_table_append(table, out);
}

/* Split and paired schedules: what one pass takes alone and in steady state. */
static void append_passes(GString *out, const MsResult *r) {
  if (!(r->pass_s[MS_SLOT_F] > 0)) return;
  g_string_append(out, "\n  one pass of a middle stage:");
  for (int kind = 0; kind < MS_N_SLOTS; kind++) {
    if (r->pass_s[kind] > 0) g_string_append_printf(out, "  %s %s", pass_words[kind], MS_SECONDS(r->pass_s[kind]));
  }
  g_string_append_c(out, '\n');
}

static void append_routing(GString *out, const MsResult *r) {
  const MsRoutingLoad *l = &r->routing;
  if (!(l->hottest > 0)) return;
  g_string_append_printf(out,
                         "\n  expert ranks  the hottest gets %.3f times the mean (worst layer %.3f); peak memory %s "
                         "where most rows come, %s where fewest\n",
                         l->hottest, l->hottest_most, MS_BYTES(l->peak_B), MS_BYTES(l->peak_coldest_B));
}

static void append_lcma(GString *out, const MsResult *r) {
  if (!(r->lcma_growth > 0)) return;
  g_string_append_printf(out,
                         "\n  lower-complexity matrix products  %s of the stage that computes longest; bound of their "
                         "rounding error %.3g times the ordinary one\n",
                         MS_SECONDS(r->lcma_s), r->lcma_growth);
}

static void append_origins(GString *out, const MsResult *r) {
  if (r->n_origins == 0) return;
  MsTable *table = ms_table_of("  numbers from|>time|form|>residual p90|data");
  for (int i = 0; i < MIN(r->n_origins, FEW_ORIGINS); i++) {
    const MsOrigin *o = &r->origins[i];
    ms_table_cellf(table, "  %s", o->op);
    MS_TABLE_ROW(table, MS_SECONDS(o->time_s), o->curve ? ms_curve_form_words[o->curve->form] : "law",
                 MS_PERCENT(o->curve ? o->curve->provenance.residual_p90 : NAN));
    const char *data = o->curve ? o->curve->provenance.data : o->laws;
    ms_table_cell(table, data ? data : "-");
  }
  ms_table_append_below(table, out);
  if (r->n_origins > FEW_ORIGINS) g_string_append_printf(out, "  ... and %d more\n", r->n_origins - FEW_ORIGINS);
}

/* Assumed figures of the machine, what to measure first in front. */
static void append_assumed(GString *out, const MsResult *r) {
  if (r->n_assumed == 0) return;
  MsTable *table = ms_table_of("  assumed|>within|>of the step|>adds to the band");
  for (int i = 0; i < r->n_assumed; i++) {
    const MsAssumed *a = &r->assumed[i];
    ms_table_cellf(table, "  %s", a->key);
    MS_TABLE_ROW(table, MS_PERCENT(a->within), MS_PERCENT(a->share), MS_PERCENT(a->share * a->within));
  }
  ms_table_append_below(table, out);
}

/* --- memory ---------------------------------------------------------------------------------------------------- */
/* Those before the peak add up to it. */
static const char *const memory_columns[] = {"parameters_B", "gradients_B", "optimizer_B", "activations_B",
                                             "transient_B",  "buffers_B",   "peak_B",      "reserved_B",
                                             "device_B",     NULL};
static const char *const pool_columns[] = {"parameters_B", "gradients_B", "optimizer_B", "activations_B", "transient_B",
                                           "buffers_B",    "peak_B",      "device_B",    "capacity_B",    NULL};

static const char *dominant(const MsStageMemory *stage) {
  const char *best = memory_columns[0];
  for (int c = 1; strcmp(memory_columns[c], "peak_B") != 0; c++)
    if (ms_figures_number(&ms_stage_memory_figures, stage, memory_columns[c]) >
        ms_figures_number(&ms_stage_memory_figures, stage, best))
      best = memory_columns[c];
  return ms_figures_find(&ms_stage_memory_figures, best)->title;
}

char *ms_report_memory(const MsMemory *memory, double capacity_B, int max_rows) {
  GString *out = g_string_new(NULL);
  if (memory->stages < 1) return g_string_free(out, FALSE);
  MsTable *table = ms_table_new();
  gboolean pools = memory->stage[0].pool >= 0;
  g_string_append(out, "  memory of a GPU, GiB\n");
  ms_table_column(table, "  stage", TRUE);
  const char *const *columns = pools ? pool_columns : memory_columns;
  ms_figures_columns(&ms_stage_memory_figures, columns, table);
  for (int s = 0; s < memory->stages; s++) {
    if (s >= max_rows && s != memory->peak_stage) continue;
    ms_table_cellf(table, "%s%d", s == memory->peak_stage ? "*" : "", s);
    ms_figures_cells(&ms_stage_memory_figures, columns, &memory->stage[s], table);
  }
  ms_table_append(table, out);
  if (memory->stages > max_rows)
    g_string_append_printf(out, "  %d stages; the first %d and the peak are shown\n", memory->stages, max_rows);
  const MsStageMemory *peak = &memory->stage[memory->peak_stage];
  if (pools) capacity_B = peak->capacity_B;
  g_string_append_printf(out, "  * largest: stage %d needs %s", memory->peak_stage, MS_BYTES(peak->device_B));
  g_string_append_printf(out, " of %s", MS_BYTES(capacity_B));
  if (capacity_B > 0) g_string_append_printf(out, " (%s)", MS_PERCENT(peak->device_B / capacity_B));
  g_string_append_printf(out, ", mostly %s", dominant(peak));
  g_string_append_printf(out, peak->peak_where ? ", in the %s\n" : "\n", peak->peak_where);
  return g_string_free(out, FALSE);
}

/* The replicas of each machine; time above is of those that take longest, memory below of the fullest machine. */
static void append_shares(GString *out, const MsResult *r) {
  static const char *const columns[] = {"replicas", "batch",    "microbatches", "step_time_s",
                                        "waits_s",  "device_B", "capacity_B",   NULL};
  MsTable *table = ms_table_of("  replicas of");
  ms_figures_columns(&ms_share_figures, columns, table);
  for (int i = 0; i < r->n_shares; i++) {
    ms_table_cellf(table, "  %s", r->shares[i].machine);
    ms_figures_cells(&ms_share_figures, columns, &r->shares[i], table);
  }
  ms_table_append_below(table, out);
}

/* What the file leaves to defaults. */
static void append_defaults(GString *out, const MsScenario *scenario) {
  g_autofree char *defaults = ms_scenario_defaults(scenario);
  if (*defaults) g_string_append_printf(out, "  by default   %s; the rest as `moesim schema` says\n", defaults);
}

/* --- all together ---------------------------------------------------------------------------------------------- */
static void append_changes(GString *out, const MsResult *r, const MsChanges *changes) {
  ms_text_append(out, ms_report_changes(r, changes));
}

char *ms_report_result(const MsScenario *scenario, const MsResult *r, const MsChanges *changes, unsigned flags) {
  GString *out = g_string_new(NULL);
  gboolean explain = (flags & MS_REPORT_EXPLAIN) != 0;
  heading(out, flags, r->name ? r->name : "scenario");
  g_string_append_printf(out, "   [%s, %" G_GUINT64_FORMAT " events]\n", ms_fidelity_words[r->fidelity], r->events);
  if (scenario) append_scenario(out, scenario);
  if (scenario && explain) append_defaults(out, scenario);
  if (!r->feasible) {
    heading(out, flags, "  does not fit: ");
    g_string_append_printf(out, "%s\n", r->why_infeasible ? r->why_infeasible : "no reason given");
  }
  if (r->step_time_s > 0) append_step(out, scenario, r);
  if (changes) append_changes(out, r, changes);
  if (r->step_time_s > 0) append_headline(out, scenario, r);
  if (r->bottleneck) g_string_append_printf(out, "  bottleneck   %s\n", r->bottleneck);
  if (ms_report_parts_s(&r->time) > 0) {
    g_string_append_c(out, '\n');
    append_parts(out, &r->time);
    append_comm(out, &r->time);
  }
  if (explain) append_gap(out, r);
  if (explain) append_stages(out, r);
  if (explain) append_step_passes(out, r);
  if (explain) append_passes(out, r);
  append_routing(out, r);
  append_lcma(out, r);
  if (r->n_shares > 0) append_shares(out, r);
  if (r->memory) {
    g_autofree char *memory = ms_report_memory(r->memory, r->capacity_B, explain ? G_MAXINT : FEW_STAGES);
    g_string_append_printf(out, "\n%s", memory);
  }
  if (explain) append_origins(out, r);
  if (explain) append_assumed(out, r);
  return g_string_free(out, FALSE);
}
