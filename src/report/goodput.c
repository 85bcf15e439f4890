/* src/report/goodput.c - effective training time as text and JSON. */
#include <math.h>

#include "base/units.h"
#include "base/text.h"
#include "report/report.h"

#define HOUR_S 3600.0

static const char *time_text(double time_s, char *buf) {
  if (!isfinite(time_s)) g_snprintf(buf, MS_TEXT, "never");
  else if (fabs(time_s) >= 2 * MS_DAY_S) g_snprintf(buf, MS_TEXT, "%.2f d", time_s / MS_DAY_S);
  else if (fabs(time_s) >= 2 * HOUR_S) g_snprintf(buf, MS_TEXT, "%.2f h", time_s / HOUR_S);
  else if (fabs(time_s) >= 120) g_snprintf(buf, MS_TEXT, "%.1f min", time_s / 60);
  else return ms_text_seconds(time_s, buf);
  return buf;
}

/* What the closed forms leave out of this study; NULL: nothing. */
static const char *left_out(const MsGoodputResult *r) {
  gboolean slow = r->model.slow_Hz > 0, spares = r->model.spares >= 0;
  return slow && spares ? "without slow nodes and waiting"
         : slow         ? "without slow nodes"
         : spares       ? "without waiting for nodes"
                        : NULL;
}

/* Without an exponent where a person counts. */
static const char *count_text(double value, char *buf) {
  return ms_text_format(buf, fabs(value) >= 999.5 ? "%.0f" : "%.3g", value);
}

static const char *share_text(double share, char *buf) {
  double percent = 100 * share;
  return percent > 0 && percent < 0.01 ? "less than 0.01 %"
                                       : ms_text_format(buf, percent >= 9.95 ? "%.0f %%" : "%.2g %%", percent);
}

/* Runs that were given up count as long as they were walked: what is so long at least. `above`: share of the runs above
 * that figure. */
static const char *bound(const MsGoodputResult *r, double above) {
  return r->unfinished > above * r->runs ? "at least " : "";
}

/* --- text ------------------------------------------------------------------------------------------------------ */
static void job(GString *out, const MsGoodputResult *r) {
  const MsGoodput *g = r->goodput;
  g_autofree char *machines = ms_scenario_machines_text(g->run);
  g_string_append_printf(out, "  %s on %s, %d nodes; step %s (%s), failures as %s\n", g->run->model->name, machines,
                         r->nodes, MS_SECONDS(r->step_time_s),
                         isnan(g->step_time_s) ? ms_fidelity_words[g->fidelity] : "as given", g->reliability.name);
  if (r->caveat) ms_text_paragraph(out, 15, "  caveat       %s", r->caveat);
  g_string_append_printf(out, "  checkpoint   %s, %s: stops training for %s, safe %s later, loads in %s\n",
                         ms_checkpoint_words[g->checkpoint.mode], MS_BYTES(r->checkpoint_B),
                         time_text(r->model.stall_s, MS_ROOM), time_text(r->model.write_s, MS_ROOM),
                         time_text(r->load_s, MS_ROOM));
}

static void failure_table(GString *out, const MsGoodputResult *r) {
  const MsGoodput *g = r->goodput;
  double rate = ms_fault_rate(&r->model), wall_d = r->runs > 0 ? r->wall_s.mean / MS_DAY_S : NAN;
  MsTable *table = ms_table_of("  failures|>a day|>one in|>share|>in the run");
  for (int k = 0; k <= g->reliability.n; k++) {
    gboolean all = k == g->reliability.n;
    double hz = all ? rate : r->kind_Hz[k];
    ms_table_cellf(table, "  %s", all ? "all" : ms_component_words[g->reliability.failure[k].component]);
    MS_TABLE_ROW(table, count_text(hz * MS_DAY_S, MS_ROOM), time_text(1 / hz, MS_ROOM),
                 rate > 0 ? MS_PERCENT(hz / rate) : "-");
    if (isnan(wall_d)) ms_table_cell(table, "-");
    else ms_table_cellf(table, "%.1f", all ? r->failures.mean : r->kind_failures[k]);
  }
  ms_table_append_below(table, out);
}

static void interval_table(GString *out, const MsGoodputResult *r) {
  MsTable *table = ms_table_of("  checkpoint every|>interval|>effective time|>first order");
  const struct {
    const char *name;
    double interval_s;
  } row[] = {{r->interval_given ? "  as given" : "  optimum, used", r->model.interval_s},
             {"  optimum", r->optimal_s},
             {"  Young", r->young_s},
             {"  Daly", r->daly_s}};
  for (guint i = 0; i < G_N_ELEMENTS(row); i++) {
    if (i == 1 && !r->interval_given) continue;
    gboolean possible = row[i].interval_s >= r->model.write_s && isfinite(row[i].interval_s) && row[i].interval_s > 0;
    MS_TABLE_ROW(table, row[i].name, time_text(row[i].interval_s, MS_ROOM),
                 possible ? MS_FORMAT("%.2f %%", 100 * ms_fault_ettr(&r->model, row[i].interval_s)) : "-",
                 possible ? MS_FORMAT("%.2f %%", 100 * ms_fault_ettr_first_order(&r->model, row[i].interval_s)) : "-");
  }
  ms_table_append_below(table, out);
}

static void parts_table(GString *out, const MsGoodputResult *r) {
  MsTable *table = ms_table_new();
  g_autofree char *title = g_strdup_printf("  where the time goes (mean of %d runs)", r->runs);
  ms_table_column(table, title, FALSE);
  ms_table_columns(table, ">time|>share");
  for (int p = 0; ms_goodput_part_words[p]; p++) {
    ms_table_cellf(table, "  %s", ms_goodput_part_words[p]);
    MS_TABLE_ROW(table, time_text(r->part_s[p], MS_ROOM), MS_FORMAT("%.2f %%", 100 * r->part_s[p] / r->wall_s.mean));
  }
  ms_table_append_below(table, out);
}

static void budget(GString *out, const MsGoodputResult *r) {
  const char *mean = bound(r, 0), *low = bound(r, 0.95), *high = bound(r, 0.05);
  g_string_append_printf(
      out, "  %s tokens: %s%.2f days +-%.2f, 90 %%: %s%.2f to %s%.2f   (without any failure %.2f, closed form %.2f)\n",
      MS_COUNT(r->goodput->budget.tokens), mean, r->wall_s.mean / MS_DAY_S, r->wall_s.error / MS_DAY_S, low,
      r->wall_s.p5 / MS_DAY_S, high, r->wall_s.p95 / MS_DAY_S, r->work_s / MS_DAY_S, r->expected_s / MS_DAY_S);
  g_string_append_printf(out, "  GPU-hours        %s%s, 90 %%: %s%s to %s%s\n", mean, MS_COUNT(r->gpu_hours.mean), low,
                         MS_COUNT(r->gpu_hours.p5), high, MS_COUNT(r->gpu_hours.p95));
  if (r->unfinished > 0)
    g_string_append_printf(out, "  ! %d of %d runs were given up at 10 times the useful time, and count as that long\n",
                           r->unfinished, r->runs);
}

static void outcome(GString *out, const MsGoodputResult *r) {
  if (r->runs == 0) {
    if (ms_extent_stopped(&r->extent)) return;
    g_string_append(out, "\n  it makes no progress: failures come faster than it gets from one checkpoint to the next; "
                         "nothing was simulated\n");
    return;
  }
  g_string_append_printf(out,
                         "\n  effective time   %.2f %% +-%.2f (standard error)   90 %% of runs: %.2f to %.2f %%   "
                         "closed form%s%s%s %.2f %%\n",
                         100 * r->ettr_runs.mean, 100 * r->ettr_runs.error, 100 * r->ettr_runs.p5,
                         100 * r->ettr_runs.p95, left_out(r) ? " (" : "", left_out(r) ? left_out(r) : "",
                         left_out(r) ? ")" : "", 100 * r->ettr);
  g_string_append_printf(out, "  tokens a day     %s, 90 %%: %s to %s (the step +-%.1f %%, and failures)\n",
                         MS_COUNT(r->tokens_per_day), MS_COUNT(r->tokens_per_day_p5), MS_COUNT(r->tokens_per_day_p95),
                         100 * r->band);
  g_string_append_printf(out, "  interruptions    %s%.1f +-%.1f in a run, 90 %%: %.0f to %s%.0f\n", bound(r, 0),
                         r->failures.mean, r->failures.error, r->failures.p5, bound(r, 0.05), r->failures.p95);
  if (isnan(r->work_s)) {
    g_string_append_printf(out, "  tokens           %s in %.4g days\n", MS_COUNT(r->tokens.mean),
                           r->goodput->budget.days);
  } else {
    budget(out, r);
  }
  if (r->model.spares >= 0)
    g_string_append_printf(out, "  spare nodes      %d; more than that are in repair %s of the time (Poisson)\n",
                           r->model.spares, share_text(r->shortage, MS_ROOM));
  if (r->planned > 0) g_string_append_printf(out, "  planned restarts %.1f\n", r->planned);
}

char *ms_report_goodput(const MsGoodputResult *r, unsigned flags) {
  GString *out = g_string_new(NULL);
  gboolean colour = (flags & MS_REPORT_COLOUR) != 0;
  g_autofree char *name_text = ms_report_name(r->goodput->name);
  g_string_append_printf(out, "%s%s%s\n", colour ? "\033[1m" : "", name_text, colour ? "\033[0m" : "");
  if (r->goodput->doc) g_string_append_printf(out, "  %s\n", r->goodput->doc);
  job(out, r);
  ms_report_extent(out, &r->extent);
  outcome(out, r);
  failure_table(out, r);
  interval_table(out, r);
  if (r->runs > 0) parts_table(out, r);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static const MsFigures spread_figures =
    MS_FIGURE_TABLE("spread", "Over the simulated runs of a goodput study.",
                    MS_FIGURE(F64, MsRunSpread, mean, "", "over the simulated runs"),
                    MS_FIGURE_AS("standard_error", F64, MsRunSpread, error, "", "of the mean"),
                    MS_FIGURE(F64, MsRunSpread, p5, "", "a twentieth of the runs has less"),
                    MS_FIGURE(F64, MsRunSpread, p50, "", "median"),
                    MS_FIGURE(F64, MsRunSpread, p95, "", "a twentieth of the runs has more"));

static const MsGoodput *study(const void *o) { return ((const MsGoodputResult *)o)->goodput; }
static const char *name(const void *o) { return study(o)->name; }
static const char *run_name(const void *o) { return study(o)->run->name; }
static const char *reliability(const void *o) { return study(o)->reliability.name; }
static const char *fidelity(const void *o) { return ms_fidelity_words[study(o)->fidelity]; }
static double seed(const void *o) { return study(o)->monte_carlo.seed; }
static double any_unfinished(const void *o) { return ((const MsGoodputResult *)o)->unfinished > 0; }
static gboolean was_simulated(const void *o) { return ((const MsGoodputResult *)o)->runs > 0; }

static const void *failure(const void *o, guint i, MsFigureCursor *room) {
  return ms_figure_place(o, i, (guint)study(o)->reliability.n, room);
}
static const char *component(const void *c) {
  return ms_component_words
      [MS_FIGURE_OWNER(MsGoodputResult, c)->goodput->reliability.failure[MS_FIGURE_I(c)].component];
}
static double per_day(const void *c) { return MS_FIGURE_OWNER(MsGoodputResult, c)->kind_Hz[MS_FIGURE_I(c)] * MS_DAY_S; }
static double in_run(const void *c) {
  const MsGoodputResult *r = MS_FIGURE_OWNER(MsGoodputResult, c);
  return r->runs > 0 ? r->kind_failures[MS_FIGURE_I(c)] : NAN;
}

#define S MsGoodputResult
static const MsFigures simulated_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_PART("effective_time", S, ettr_runs, &spread_figures, .doc = "share of time that trains"),
    MS_FIGURE_PART("wall_s", S, wall_s, &spread_figures, .unit = "s", .doc = "of the budget"),
    MS_FIGURE_PART("gpu_hours", S, gpu_hours, &spread_figures, .unit = "h", .doc = "of all GPUs"),
    MS_FIGURE_PART("interruptions", S, failures, &spread_figures, .doc = "in a run"),
    MS_FIGURE_PART("tokens", S, tokens, &spread_figures, .doc = "trained"),
    MS_FIGURE_AS("planned_restarts", F64, S, planned, "", "mean of a run"),
    MS_FIGURE_BY_WORD("parts_s", S, part_s, ms_goodput_part_words, "s",
                      "work, rework, slowed, checkpoint, recovery, waiting"));

const MsFigures ms_goodput_figures = MS_FIGURE_TABLE(
    "goodput", "`moesim goodput --json`.", MS_REPORT_EXTENT(S, extent), MS_FIGURE_TEXT("name", name, "of the study"),
    MS_FIGURE_TEXT("run", run_name, "the scenario that fails"),
    MS_FIGURE_TEXT("reliability", reliability, "the profile", MS_OR_NULL),
    MS_FIGURE(INT, S, gpus, "", "spare nodes not counted"), MS_FIGURE(INT, S, nodes, "", "of the job"),
    MS_FIGURE(F64, S, step_time_s, "s", "predicted"),
    MS_FIGURE_TEXT("fidelity", fidelity, "of it: bound, fast or full"),
    MS_FIGURE(STRING, S, caveat, "", "what must stand beside these figures", MS_OR_NULL,
              .only = "estimates, machines with assumed figures"),
    MS_FIGURE(F64, S, tokens_per_day, "1/d", "trained, failures counted"),
    MS_FIGURE(F64, S, tokens_per_day_p5, "1/d", "errors of the step and failures together: one in twenty has less"),
    MS_FIGURE(F64, S, tokens_per_day_p95, "1/d", "one in twenty has more"),
    MS_FIGURE(F64, S, checkpoint_B, "B", "of the job"),
    MS_FIGURE_AS("stall_s", F64, S, model.stall_s, "s", "training stands still for a checkpoint"),
    MS_FIGURE_AS("write_s", F64, S, model.write_s, "s", "until it is safe"),
    MS_FIGURE(F64, S, load_s, "s", "of a checkpoint, after a failure"),
    MS_FIGURE(F64, S, work_s, "s", "undisturbed length of the budget; null: none", MS_OR_NULL),
    MS_FIGURE_EACH("failures", LIST, failure,
                   MS_FIGURES(MS_FIGURE_TEXT("component", component, "what fails"),
                              MS_FIGURE_OF("per_day", F64, per_day, "1/d", "failures of the whole job"),
                              MS_FIGURE_OF("in_run", F64, in_run, "", "mean over the simulated runs", MS_OR_NULL))),
    MS_FIGURE_GROUP(
        "closed_form",
        MS_FIGURES(
            MS_FIGURE(F64, S, mtbf_s, "s", "mean time between failures of the job", MS_OR_NULL),
            MS_FIGURE_AS("young_interval_s", F64, S, young_s, "s", "of checkpoints, by Young's formula", MS_OR_NULL),
            MS_FIGURE_AS("daly_interval_s", F64, S, daly_s, "s", "by Daly's", MS_OR_NULL),
            MS_FIGURE_AS("optimal_interval_s", F64, S, optimal_s, "s", "with most effective time", MS_OR_NULL),
            MS_FIGURE_AS("interval_s", F64, S, model.interval_s, "s", "the one in use", MS_OR_NULL),
            MS_FIGURE_AS("effective_time", F64, S, ettr, "1", "share of time that trains"),
            MS_FIGURE_AS("effective_time_first_order", F64, S, ettr_first_order, "1", "the same for rare failures"),
            MS_FIGURE_AS("wall_s", F64, S, expected_s, "s", "of the budget", MS_OR_NULL),
            MS_FIGURE_AS("spares_short", F64, S, shortage, "1", "share of time without a spare node"))),
    MS_FIGURE_GROUP("monte_carlo",
                    MS_FIGURES(MS_FIGURE(INT, S, runs, "", "simulated; 0: it makes no progress, or was stopped"),
                               MS_FIGURE_OF("seed", INT, seed, "", "of the random numbers"),
                               MS_FIGURE(INT, S, unfinished, "", "given up at 10 times the useful time"),
                               MS_FIGURE_OF("lower_bound", BOOL, any_unfinished, "",
                                            "some were: wall_s, gpu_hours and interruptions would be more"),
                               {.type = MS_FIGURE_MEMBERS,
                                .sub = &simulated_figures,
                                .when = was_simulated,
                                .only = "these are left out with no runs"})));
#undef S
