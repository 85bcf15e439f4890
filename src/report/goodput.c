/* src/report/goodput.c - effective training time as text and JSON. */
#include <math.h>

#include "base/text.h"
#include "report/report.h"

#define DAY_S  86400.0
#define HOUR_S 3600.0

static const char *time_text(double time_s, char *buf) {
  if (!isfinite(time_s)) g_snprintf(buf, MS_TEXT, "never");
  else if (fabs(time_s) >= 2 * DAY_S) g_snprintf(buf, MS_TEXT, "%.2f d", time_s / DAY_S);
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

/* --- text ------------------------------------------------------------------------------------------------------ */
static void job(GString *out, const MsGoodputResult *r) {
  char a[MS_TEXT], b[MS_TEXT], c[MS_TEXT], d[MS_TEXT];
  const MsGoodput *g = r->goodput;
  g_string_append_printf(out, "  %s on %d x %s, %d nodes; step %s, failures as %s\n", g->run->model->name, r->gpus,
                         g->run->hardware->name, r->nodes, ms_text_seconds(r->step_time_s, a), g->reliability.name);
  g_string_append_printf(out, "  checkpoint   %s, %s: stops training for %s, safe %s later, loads in %s\n",
                         ms_checkpoint_words[g->checkpoint.mode], ms_text_bytes(r->checkpoint_B, a),
                         time_text(r->model.stall_s, b), time_text(r->model.write_s, c), time_text(r->load_s, d));
}

static void failure_table(GString *out, const MsGoodputResult *r) {
  const MsGoodput *g = r->goodput;
  double rate = ms_fault_rate(&r->model), wall_d = r->runs > 0 ? r->wall_s.mean / DAY_S : NAN;
  char buf[MS_TEXT];
  MsTable *table = ms_table_new();
  static const char *const title[] = {"  failures", "a day", "one in", "share", "in the run"};
  for (guint i = 0; i < G_N_ELEMENTS(title); i++) ms_table_column(table, title[i], i > 0);
  for (int k = 0; k <= g->reliability.n; k++) {
    gboolean all = k == g->reliability.n;
    double hz = all ? rate : r->kind_Hz[k];
    ms_table_cellf(table, "  %s", all ? "all" : ms_component_words[g->reliability.failure[k].component]);
    ms_table_cellf(table, "%.3g", hz * DAY_S);
    ms_table_cell(table, time_text(1 / hz, buf));
    ms_table_cell(table, rate > 0 ? ms_text_percent(hz / rate, buf) : "-");
    if (isnan(wall_d)) ms_table_cell(table, "-");
    else ms_table_cellf(table, "%.1f", all ? r->failures.mean : r->kind_failures[k]);
  }
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out, "\n%s", text);
}

static void interval_table(GString *out, const MsGoodputResult *r) {
  char buf[MS_TEXT];
  MsTable *table = ms_table_new();
  static const char *const title[] = {"  checkpoint every", "interval", "effective time", "first order"};
  const struct {
    const char *name;
    double interval_s;
  } row[] = {{r->interval_given ? "  as given" : "  optimum, used", r->model.interval_s},
             {"  optimum", r->optimal_s},
             {"  Young", r->young_s},
             {"  Daly", r->daly_s}};
  for (guint i = 0; i < G_N_ELEMENTS(title); i++) ms_table_column(table, title[i], i > 0);
  for (guint i = 0; i < G_N_ELEMENTS(row); i++) {
    if (i == 1 && !r->interval_given) continue;
    gboolean possible = row[i].interval_s >= r->model.write_s && isfinite(row[i].interval_s) && row[i].interval_s > 0;
    ms_table_cell(table, row[i].name);
    ms_table_cell(table, time_text(row[i].interval_s, buf));
    if (possible) ms_table_cellf(table, "%.2f %%", 100 * ms_fault_ettr(&r->model, row[i].interval_s));
    else ms_table_cell(table, "-");
    if (possible) ms_table_cellf(table, "%.2f %%", 100 * ms_fault_ettr_first_order(&r->model, row[i].interval_s));
    else ms_table_cell(table, "-");
  }
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out, "\n%s", text);
}

static void parts_table(GString *out, const MsGoodputResult *r) {
  char buf[MS_TEXT];
  MsTable *table = ms_table_new();
  g_autofree char *title = g_strdup_printf("  where the time goes (mean of %d runs)", r->runs);
  ms_table_column(table, title, FALSE);
  ms_table_column(table, "time", TRUE);
  ms_table_column(table, "share", TRUE);
  for (int p = 0; ms_goodput_part_words[p]; p++) {
    ms_table_cellf(table, "  %s", ms_goodput_part_words[p]);
    ms_table_cell(table, time_text(r->part_s[p], buf));
    ms_table_cellf(table, "%.2f %%", 100 * r->part_s[p] / r->wall_s.mean);
  }
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out, "\n%s", text);
}

static void outcome(GString *out, const MsGoodputResult *r) {
  char count[MS_TEXT];
  double gpu_h = r->gpus / HOUR_S;
  if (r->runs == 0) {
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
  g_string_append_printf(out, "  interruptions    %.1f +-%.1f in a run, 90 %%: %.0f to %.0f\n", r->failures.mean,
                         r->failures.error, r->failures.p5, r->failures.p95);
  if (isnan(r->work_s)) {
    g_string_append_printf(out, "  tokens           %s in %.4g days\n", ms_text_count(r->tokens.mean, count),
                           r->goodput->budget.days);
  } else {
    g_string_append_printf(
        out, "  %s tokens: %.2f days +-%.2f, 90 %%: %.2f to %.2f   (without any failure %.2f, closed form %.2f)\n",
        ms_text_count(r->goodput->budget.tokens, count), r->wall_s.mean / DAY_S, r->wall_s.error / DAY_S,
        r->wall_s.p5 / DAY_S, r->wall_s.p95 / DAY_S, r->work_s / DAY_S, r->expected_s / DAY_S);
    g_string_append_printf(out, "  GPU-hours        %.4g M, 90 %%: %.4g to %.4g M\n", r->wall_s.mean * gpu_h / 1e6,
                           r->wall_s.p5 * gpu_h / 1e6, r->wall_s.p95 * gpu_h / 1e6);
    if (r->unfinished > 0)
      g_string_append_printf(out, "  ! %d runs were given up at 10 times the useful time\n", r->unfinished);
  }
  if (r->model.spares >= 0)
    g_string_append_printf(out, "  spare nodes      %d; more than that are in repair %.2g %% of the time (Poisson)\n",
                           r->model.spares, 100 * r->shortage);
  if (r->planned > 0) g_string_append_printf(out, "  planned restarts %.1f\n", r->planned);
}

char *ms_report_goodput(const MsGoodputResult *r, unsigned flags) {
  GString *out = g_string_new(NULL);
  gboolean colour = (flags & MS_REPORT_COLOUR) != 0;
  g_string_append_printf(out, "%s%s%s\n", colour ? "\033[1m" : "", r->goodput->name, colour ? "\033[0m" : "");
  if (r->goodput->doc) g_string_append_printf(out, "  %s\n", r->goodput->doc);
  job(out, r);
  outcome(out, r);
  failure_table(out, r);
  interval_table(out, r);
  if (r->runs > 0) parts_table(out, r);
  return g_string_free(out, FALSE);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */
static void put_spread(MsJsonOut *out, const char *key, const MsRunSpread *s, double scale) {
  ms_json_out_object(out, key);
  ms_json_out_double(out, "mean", s->mean * scale);
  ms_json_out_double(out, "standard_error", s->error * scale);
  ms_json_out_double(out, "p5", s->p5 * scale);
  ms_json_out_double(out, "p50", s->p50 * scale);
  ms_json_out_double(out, "p95", s->p95 * scale);
  ms_json_out_end(out);
}

static void put_closed(const MsGoodputResult *r, MsJsonOut *out) {
  ms_json_out_object(out, "closed_form");
  ms_json_out_double(out, "mtbf_s", r->mtbf_s);
  ms_json_out_double(out, "young_interval_s", r->young_s);
  ms_json_out_double(out, "daly_interval_s", r->daly_s);
  ms_json_out_double(out, "optimal_interval_s", r->optimal_s);
  ms_json_out_double(out, "interval_s", r->model.interval_s);
  ms_json_out_double(out, "effective_time", r->ettr);
  ms_json_out_double(out, "effective_time_first_order", r->ettr_first_order);
  ms_json_out_double(out, "wall_s", r->expected_s);
  ms_json_out_double(out, "spares_short", r->shortage);
  ms_json_out_end(out);
}

static void put_runs(const MsGoodputResult *r, MsJsonOut *out) {
  ms_json_out_object(out, "monte_carlo");
  ms_json_out_int(out, "runs", r->runs);
  ms_json_out_int(out, "seed", r->goodput->monte_carlo.seed);
  ms_json_out_int(out, "unfinished", r->unfinished);
  if (r->runs > 0) {
    put_spread(out, "effective_time", &r->ettr_runs, 1);
    put_spread(out, "wall_s", &r->wall_s, 1);
    put_spread(out, "gpu_hours", &r->wall_s, r->gpus / HOUR_S);
    put_spread(out, "interruptions", &r->failures, 1);
    put_spread(out, "tokens", &r->tokens, 1);
    ms_json_out_double(out, "planned_restarts", r->planned);
    ms_json_out_object(out, "parts_s");
    for (int p = 0; ms_goodput_part_words[p]; p++) ms_json_out_double(out, ms_goodput_part_words[p], r->part_s[p]);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

char *ms_report_goodput_json(const MsGoodputResult *r) {
  const MsGoodput *g = r->goodput;
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "name", g->name);
  ms_json_out_string(out, "run", g->run->name);
  ms_json_out_string(out, "reliability", g->reliability.name);
  ms_json_out_int(out, "gpus", r->gpus);
  ms_json_out_int(out, "nodes", r->nodes);
  ms_json_out_double(out, "step_time_s", r->step_time_s);
  ms_json_out_double(out, "checkpoint_B", r->checkpoint_B);
  ms_json_out_double(out, "stall_s", r->model.stall_s);
  ms_json_out_double(out, "write_s", r->model.write_s);
  ms_json_out_double(out, "load_s", r->load_s);
  ms_json_out_double(out, "work_s", r->work_s);
  ms_json_out_array(out, "failures");
  for (int k = 0; k < g->reliability.n; k++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "component", ms_component_words[g->reliability.failure[k].component]);
    ms_json_out_double(out, "per_day", r->kind_Hz[k] * DAY_S);
    ms_json_out_double(out, "in_run", r->runs > 0 ? r->kind_failures[k] : NAN);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  put_closed(r, out);
  put_runs(r, out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}
