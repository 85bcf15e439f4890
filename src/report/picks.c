/* src/report/picks.c - what to choose from, as text and JSON. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "report/budget.h"
#include "report/report.h"
#include "study/parts.h"

static const char *const titles[MS_N_PICKS] = {"fastest", "cheapest", "memory to spare", "simplest to run", "robust"};

char *ms_report_pick_title(const MsPick *pick) {
  GString *out = g_string_new(NULL);
  for (int k = 0; k < MS_N_PICKS; k++)
    if (pick->kinds & (1u << k)) g_string_append_printf(out, "%s%s", out->len ? ", " : "", titles[k]);
  if (!out->len) g_string_append(out, "best");
  return g_string_free(out, FALSE);
}

static void append_advice(GString *out, const MsPicks *p) {
  for (int i = 0; i < p->n_advice; i++) ms_text_paragraph(out, 6, "%s%s", i ? "      " : "do:   ", p->advice[i]);
  g_string_append_c(out, '\n');
}

/* --- the choices ----------------------------------------------------------------------------------------------- */
static gboolean gpus_differ(const MsPicks *p) {
  for (int i = 1; i < p->n; i++)
    if (p->pick[i].entry->scenario->gpus != p->pick[0].entry->scenario->gpus) return TRUE;
  return FALSE;
}

/* Step time has a column of its own, days of training a table. */
static gboolean has_figure(const MsPlan *plan) {
  return plan->objective != MS_GOAL_STEP_TIME && plan->objective != MS_GOAL_DEADLINE;
}

static void pick_row(MsTable *table, const MsPlan *plan, const MsPicks *p, int i, gboolean gpus) {
  const MsPick *pick = &p->pick[i];
  const MsResult *r = pick->entry->result;
  g_autofree char *title = ms_report_pick_title(pick);
  ms_table_cellf(table, "%d%s", i + 1, pick->tied ? " =" : "  ");
  ms_table_cell(table, title);
  if (gpus) ms_table_cellf(table, "%d", pick->entry->scenario->gpus);
  if (has_figure(plan)) ms_table_cellf(table, "%.4g", pick->figure);
  MS_TABLE_ROW(table, MS_SECONDS(r->step_time_s), MS_PERCENT(r->band), MS_FORMAT("%.0f", r->tokens_per_s_per_gpu),
               MS_FORMAT("%.1f", 100 * r->mfu), MS_FORMAT("%.1f", ms_device_B(r) / MS_GIB));
  if (i == 0) ms_table_cell(table, "-");
  else ms_table_cellf(table, "%+.1f %%", 100 * pick->slower);
}

/* Of pools of replicas. */
static void append_shares(GString *out, int number, const MsResult *r) {
  g_autofree char *shares = ms_report_shares(r);
  if (*shares) ms_text_paragraph(out, 6, "%d     %s", number, shares);
}

static void append_layouts(GString *out, const MsPicks *p) {
  const MsScenario *first = p->pick[0].entry->scenario;
  g_autofree char *layout = ms_report_layout(first);
  ms_text_paragraph(out, 6, "1     %s, dp %d, %s, %s%s", layout, p->pick[0].entry->result->dp,
                    ms_schedule_words[first->layout.schedule], ms_precision_words[first->training.precision],
                    first->options.ep_overlap ? ", ep_overlap" : "");
  append_shares(out, 1, p->pick[0].entry->result);
  for (int i = 1; i < p->n; i++) {
    g_autofree char *change = ms_report_change(p->pick[i].change);
    ms_text_paragraph(out, 6, "%d     as 1, but %s", i + 1, change);
    append_shares(out, i + 1, p->pick[i].entry->result);
  }
}

static void append_notes(GString *out, const MsPlan *plan, const MsPicks *p) {
  char text[MS_TEXT];
  gboolean ties = FALSE;
  for (int i = 1; i < p->n; i++) ties |= p->pick[i].tied;
  if (ties)
    ms_text_paragraph(out, 6, "=     as fast as 1: the difference is within the %s by which the curves miss",
                      ms_text_percent(p->noise, text));
  if (p->copies > 0)
    ms_text_paragraph(
        out, 6,
        "%d more of the %d best differ from 1 only in recomputation, graphs or dispatcher, and are up to %s "
        "slower",
        p->copies, plan->n_best, ms_text_percent(p->copies_within, text));
}

static void append_training(GString *out, const MsRequest *request, const MsPicks *p) {
  if (!ms_budget_known(&p->pick[0].budget)) return;
  MsTable *table = ms_table_of("#|>GPUs");
  ms_report_budget_columns(table);
  for (int i = 0; i < p->n; i++) {
    MS_TABLE_ROW(table, MS_FORMAT("%d", i + 1), MS_FORMAT("%d", p->pick[i].entry->scenario->gpus));
    ms_report_budget_cells(table, &p->pick[i].budget);
  }
  g_autofree char *text = ms_table_take(table),
                  *note = ms_report_budget_note(&(MsBudgetOf){request, &p->pick[0].budget}, 1);
  g_string_append_printf(out, "\nthe whole training:\n%s", text);
  ms_text_paragraph(out, 6, "      %s", note);
}

char *ms_report_picks(const MsRequest *request, const MsPlan *plan, const MsPicks *p) {
  GString *out = g_string_new(NULL);
  append_advice(out, p);
  gboolean gpus = gpus_differ(p);
  MsTable *table = ms_table_of("#|choice");
  if (gpus) ms_table_column(table, "GPUs", TRUE);
  if (has_figure(plan)) ms_table_column(table, ms_objective_unit(plan->objective), TRUE);
  ms_table_columns(table, ">step time|>+-|>tokens/s/GPU|>MFU %|>GiB|>than 1");
  for (int i = 0; i < p->n; i++) pick_row(table, plan, p, i, gpus);
  ms_table_append(table, out);
  append_layouts(out, p);
  append_notes(out, plan, p);
  append_training(out, request, p);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static double device_B(const void *result) { return ms_device_B(result); }

static const void *budget_of(const void *pick) {
  const MsBudget *b = &((const MsPick *)pick)->budget;
  return ms_budget_known(b) ? b : NULL;
}

static const char *kind_word(const void *cursor) { return ms_pick_words[MS_FIGURE_I(cursor)]; }
static const void *kind_at(const void *pick, guint i, MsFigureCursor *room) {
  if (i < MS_N_PICKS && !(((const MsPick *)pick)->kinds & (1u << i))) return ms_figure_skip;
  return ms_figure_place(pick, i, MS_N_PICKS, room);
}

const MsFigures ms_picks_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_ARRAY(
        "list", LIST, MsPicks, pick, n,
        MS_FIGURES(
            MS_FIGURE_EACH("kinds", LIST, kind_at,
                           MS_FIGURES({.key = "",
                                       .type = MS_FIGURE_STRING,
                                       .unit = "",
                                       .text = kind_word,
                                       .doc = "fastest, cheapest, memory, simplest, robust"}),
                           .doc = "what it is the choice for"),
            MS_REPORT_OF_RESULT(MsPick, entry, MS_FIGURE(F64, MsResult, step_time_s, "s", "of a step"),
                                MS_FIGURE_AS("error_band", F64, MsResult, band, "1", "half width of its 90 % band"),
                                MS_FIGURE(F64, MsResult, tokens_per_s_per_gpu, "1/s", "tokens"),
                                MS_FIGURE(F64, MsResult, mfu, "1", "model FLOP over the peak", MS_OR_NULL),
                                MS_FIGURE_OF("device_B", F64, device_B, "B", "of the fullest stage")),
            MS_FIGURE_AS("objective_value", F64, MsPick, figure, "", "in `objective_unit`"),
            MS_FIGURE(F64, MsPick, slower, "1", "its step over that of the first - 1"),
            MS_FIGURE(F64, MsPick, gpu_time, "1", "the same of GPU-seconds"),
            MS_FIGURE(F64, MsPick, more_free_B, "B", "free of each GPU beyond what the first leaves"),
            MS_FIGURE(BOOL, MsPick, tied, "", "with the first: `slower` is within `noise`"),
            MS_FIGURE_FOUND("training", budget_of, &ms_budget_figures, .only = "plan.training_tokens"),
            MS_REPORT_ENTRY_SCENARIO(MsPick, entry))),
    MS_FIGURE_ARRAY("advice", LIST, MsPicks, advice, n_advice, &ms_figure_texts,
                    .doc = "what to do, a sentence each; choices are numbered from 1"),
    MS_FIGURE(F64, MsPicks, noise, "1", "by which two layouts may differ and be as fast: the band of the curves alone"),
    MS_FIGURE(BOOL, MsPicks, all_tied, "", "any of them will do"),
    MS_FIGURE(INT, MsPicks, copies, "", "of `best` that differ from the first in recomputation, graphs or dispatcher"),
    MS_FIGURE(F64, MsPicks, copies_within, "1", "slower than the first, at most"));
