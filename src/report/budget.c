/* src/report/budget.c - what a whole training takes: a table beside the choices of a plan or the cells of a sweep. */
#include "report/budget.h"

#include <math.h>

#include "base/text.h"

const MsFigures ms_budget_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(F64, MsBudget, tokens, "", "of the whole training"),
    MS_FIGURE(F64, MsBudget, step_days, "d", "of steps without a failure"),
    MS_FIGURE(F64, MsBudget, goodput, "1", "share of the time that trains; null: the machine lacks a figure for it",
              MS_OR_NULL),
    MS_FIGURE(F64, MsBudget, days, "d", "with failures and restarts"),
    MS_FIGURE(F64, MsBudget, deadline_days, "d", "plan.deadline_s", MS_OR_NULL),
    MS_FIGURE(BOOL, MsBudget, late, "", "it takes longer than the deadline"),
    MS_FIGURE(F64, MsBudget, gpu_hours, "h", "of all GPUs over these days"),
    MS_FIGURE(F64, MsBudget, price, "", "of them, at plan.gpu_hour_price", MS_OR_NULL),
    MS_FIGURE(F64, MsBudget, power_W, "W", "of all GPUs", MS_OR_NULL),
    MS_FIGURE(F64, MsBudget, energy_MWh, "MWh", "of the GPUs alone", MS_OR_NULL),
    MS_FIGURE(F64, MsBudget, co2_t, "t", "CO2e of that energy, at plan.grid_kg_per_kWh", MS_OR_NULL),
    MS_FIGURE(STRING, MsBudget, reliability, "", "failures in the days; null: plan.goodput was given", MS_OR_NULL));

gboolean ms_budget_known(const MsBudget *b) { return b->days > 0; }

void ms_report_budget_columns(MsTable *table) {
  ms_table_columns(table, ">days|>goodput|>kGPU-hours|>price|>MWh|>tCO2e");
}

/* "66.1k", "2.31M" */
static void amount(MsTable *table, double value) {
  if (isnan(value)) ms_table_cell(table, "-");
  else if (value < 1e4) ms_table_cellf(table, "%.4g", value);
  else ms_table_cellf(table, value < 1e6 ? "%.4gk" : "%.4gM", value / (value < 1e6 ? 1e3 : 1e6));
}

void ms_report_budget_cells(MsTable *table, const MsBudget *b) {
  if (!ms_budget_known(b)) {
    MS_TABLE_ROW(table, "-", "-", "-", "-", "-", "-");
    return;
  }
  if (b->deadline_days > 0) ms_table_cellf(table, "%.1f of %.4g%s", b->days, b->deadline_days, b->late ? " LATE" : "");
  else ms_table_cellf(table, "%.1f", b->days);
  MS_TABLE_ROW(table, isnan(b->goodput) ? "-" : MS_PERCENT(b->goodput),
               MS_FORMAT(b->gpu_hours < 1e7 ? "%.4g" : "%.0f", b->gpu_hours / 1e3));
  amount(table, b->price), amount(table, b->energy_MWh), amount(table, b->co2_t);
}

/* "h100-sxm", of several kinds in one job "h100-sxm and a100-sxm-80g, on average," (transfer full) */
static char *machines_of(const MsScenario *s) {
  GString *out = g_string_new(NULL);
  int n = ms_scenario_machines(s);
  for (int i = 0; i < n; i++) g_string_append_printf(out, "%s%s", i ? " and " : "", ms_scenario_machine(s, i)->name);
  if (n > 1) g_string_append(out, ", on average,");
  return g_string_free(out, FALSE);
}

/* "h100-sxm 700 W, 2.5 an hour; b200-sxm 1000 W, 5 an hour": each machine once. (transfer full) */
static char *rates_of(const MsBudgetOf *of, int n) {
  GString *out = g_string_new(NULL);
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  for (int i = 0; i < n; i++) {
    const MsRequest *r = of[i].request;
    if (!ms_budget_known(of[i].budget) || !g_hash_table_add(seen, r->base->hardware->name)) continue;
    if (!(of[i].budget->gpu_W > 0) && !(r->gpu_hour_price > 0)) continue;
    g_autofree char *machines = machines_of(r->base);
    g_string_append_printf(out, "%s%s", out->len ? "; " : "", machines);
    if (of[i].budget->gpu_W > 0) g_string_append_printf(out, " %.4g W", of[i].budget->gpu_W);
    if (r->gpu_hour_price > 0)
      g_string_append_printf(out, "%s %g an hour", of[i].budget->gpu_W > 0 ? "," : "", r->gpu_hour_price);
  }
  return g_string_free(out, FALSE);
}

char *ms_report_budget_note(const MsBudgetOf *of, int n) {
  GString *out = g_string_new(NULL);
  const MsBudget *b = of[0].budget;
  g_autofree char *rates = rates_of(of, n);
  const MsRequest *r = of[0].request;
  g_string_append_printf(out, "days of %s tokens", ms_text_tokens(r->training_tokens, MS_ROOM));
  if (r->critical_batch_tokens > 0)
    g_string_append_printf(out, ", twice as many with batches of %s",
                           ms_text_tokens(r->critical_batch_tokens, MS_ROOM));
  if (b->reliability)
    g_string_append_printf(out, " with the failures of %s, checkpoints at their optimal interval", b->reliability);
  else if (isnan(b->goodput)) g_string_append(out, " without a failure (the machine lacks a figure for goodput)");
  if (*rates) g_string_append_printf(out, "; a GPU of %s", rates);
  if (b->gpu_W > 0)
    g_string_append_printf(out, "; hosts, network and cooling not counted; %g kg CO2e per kWh",
                           of[0].request->grid_kg_per_kWh);
  return g_string_free(out, FALSE);
}
