/* src/report/terminal.c - a run as a picture of characters, for login nodes: where the step goes, the pipeline, memory
 * of every stage, communication. Block elements where the terminal has them, else ASCII. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "report/report.h"
#include "report/slots.h"

enum { NARROWEST = 80, MOST_STAGES = 32, LABEL = 25 };

typedef struct {
  GString *out;
  int width;
  gboolean ascii, colour;
} Canvas;

/* --- bars ------------------------------------------------------------------------------------------------------- */
/* A bar of `cells` columns at most, filled to `share` of them. */
static void append_bar(const Canvas *c, double share, int cells) {
  static const char *const part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  double filled = CLAMP(isnan(share) ? 0 : share, 0, 1) * cells;
  int whole = (int)filled;
  if (c->ascii) whole = (int)lround(filled);
  for (int i = 0; i < whole; i++) g_string_append(c->out, c->ascii ? "#" : "█");
  if (!c->ascii) g_string_append(c->out, part[(int)((filled - whole) * 8)]);
}

static void append_part(const Canvas *c, const char *name, double time_s, double whole_s) {
  if (!(time_s > 0)) return;
  g_string_append_printf(c->out, "  %-*s %10s %7s  ", LABEL, name, MS_SECONDS(time_s), MS_PERCENT(time_s / whole_s));
  append_bar(c, time_s / whole_s, c->width - LABEL - 24);
  ms_text_end_line(c->out);
}

static void append_step(const Canvas *c, const MsResult *r) {
  const MsTimeParts *t = &r->time;
  double whole_s = ms_report_parts_s(t);
  if (!(whole_s > 0)) return;
  g_string_append(c->out, "\nwhere the step goes (mean over stages)\n");
  for (int f = 0; f < 4; f++) append_part(c, ms_family_figures.rows[f].title, t->family_s[f], whole_s);
  for (int i = 1; i < MS_N_TIME_PARTS; i++) append_part(c, ms_report_parts[i], t->part_s[i], whole_s);
}

static void append_comm(const Canvas *c, const MsTimeParts *t) {
  double most_s = 0;
  for (int k = 0; k < MS_N_COMMS; k++) most_s = fmax(most_s, t->comm_total_s[k]);
  if (!(most_s > 0)) return;
  int cells = c->width - LABEL - 24;
  g_string_append_printf(c->out, "\ncommunication: %s exposed, %s hidden beside compute\n", c->ascii ? "#" : "█",
                         c->ascii ? "-" : "░");
  for (int k = 0; k < MS_N_COMMS; k++) {
    if (!(t->comm_total_s[k] > 0)) continue;
    int total = (int)lround(t->comm_total_s[k] / most_s * cells),
        exposed = MIN((int)lround(t->comm_exposed_s[k] / most_s * cells), total);
    g_string_append_printf(c->out, "  %-*s %10s          ", LABEL, ms_comm_words[k], MS_SECONDS(t->comm_total_s[k]));
    for (int i = 0; i < total; i++)
      g_string_append(c->out, i < exposed ? (c->ascii ? "#" : "█") : (c->ascii ? "-" : "░"));
    ms_text_end_line(c->out);
  }
}

/* --- memory ------------------------------------------------------------------------------------------------------ */
static void append_memory(const Canvas *c, const MsResult *r) {
  static const char *const block[] = {"█", "▓", "▒", "·"}, *const letter[] = {"#", "=", "-", "."};
  const char *const *glyph = c->ascii ? letter : block;
  if (!r->memory || !(r->capacity_B > 0)) return;
  int stages = r->memory->stages, shown = MIN(stages, MOST_STAGES), cells = c->width - 27;
  g_string_append_printf(c->out, "\nmemory, of %s: %s model, gradients, optimizer  %s activations  %s else\n",
                         MS_BYTES(r->capacity_B), glyph[0], glyph[1], glyph[2]);
  double most_B = r->capacity_B;
  for (int s = 0; s < stages; s++) most_B = fmax(most_B, r->memory->stage[s].device_B);
  for (int i = 0; i < shown; i++) {
    const MsStageMemory *m = &r->memory->stage[i];
    const double end_B[] = {m->parameters_B + m->gradients_B + m->optimizer_B,
                            m->parameters_B + m->gradients_B + m->optimizer_B + m->activations_B, m->device_B,
                            r->capacity_B};
    g_string_append_printf(c->out, "  %c stage %-4d %10s  ", i == r->memory->peak_stage ? '*' : ' ', i,
                           MS_BYTES(m->device_B));
    for (int k = 0, part = 0; k < cells && part < 4; k++) {
      while (part < 4 && (k + 0.5) / cells * most_B > end_B[part]) part++;
      if (part < 4) g_string_append(c->out, glyph[part]);
    }
    g_string_append_c(c->out, '\n');
  }
  if (stages > shown)
    g_string_append_printf(c->out, "    %d more stages; the fullest is stage %d\n", stages - shown,
                           r->memory->peak_stage);
}

/* --- the pipeline ------------------------------------------------------------------------------------------------ */
static const struct {
  const char *block, *letter, *colour, *title;
} slot_looks[MS_N_SLOTS] = {[MS_SLOT_F] = {"█", "F", "\033[34m", "forward"},
                            [MS_SLOT_B] = {"▒", "b", "\033[32m", "backward"},
                            [MS_SLOT_I] = {"▒", "b", "\033[36m", "backward of inputs"},
                            [MS_SLOT_W] = {"░", "w", "\033[90m", "backward of weights"},
                            [MS_SLOT_FB] = {"▓", "*", "\033[35m", "forward beside backward"}};

static const char *slot_glyph(const Canvas *c, int kind) {
  if (kind < 0) return c->ascii ? "." : "·";
  return c->ascii ? slot_looks[kind].letter : slot_looks[kind].block;
}

typedef struct {
  double from_ps, to_ps;
} Window;

/* What fills most of each of `cells` columns; -1 where nothing does for half of it. */
static void fill(const MsDetail *d, const MsSlotSpans *spans, int stage, Window w, int cells, int *kind) {
  double cell_ps = (w.to_ps - w.from_ps) / cells;
  g_autofree double *busy = g_new0(double, (size_t)cells *MS_N_SLOTS);
  for (int k = 0; k < d->schedule->n[stage]; k++) {
    guint32 flat = d->slot_base[stage] + (guint32)k;
    double start = (double)spans->start[flat] - w.from_ps, end = (double)spans->end[flat] - w.from_ps;
    if (spans->end[flat] < 0 || end <= 0 || start >= w.to_ps - w.from_ps) continue;
    int last = MIN((int)(end / cell_ps), cells - 1);
    for (int i = MAX((int)(start / cell_ps), 0); i <= last; i++)
      busy[i * MS_N_SLOTS + d->schedule->slot[stage][k].kind] +=
          MAX(MIN(end, (i + 1) * cell_ps) - MAX(start, i * cell_ps), 0);
  }
  for (int i = 0; i < cells; i++) {
    double most = 0, all = 0;
    kind[i] = -1;
    for (int k = 0; k < MS_N_SLOTS; k++) {
      double b = busy[i * MS_N_SLOTS + k];
      all += b;
      if (b > most) most = b, kind[i] = k;
    }
    if (all < cell_ps / 2) kind[i] = -1;
  }
}

static void append_cells(const Canvas *c, const int *kind, int cells) {
  int colour = -1;
  for (int i = 0; i < cells; i++) {
    if (c->colour && kind[i] != colour) g_string_append(c->out, kind[i] < 0 ? "\033[0m" : slot_looks[kind[i]].colour);
    colour = kind[i];
    g_string_append(c->out, slot_glyph(c, kind[i]));
  }
  if (c->colour && colour >= 0) g_string_append(c->out, "\033[0m");
}

static void append_legend(const Canvas *c, const MsDetail *d) {
  gboolean used[MS_N_SLOTS] = {FALSE};
  for (int s = 0; s < d->schedule->stages; s++)
    for (int k = 0; k < d->schedule->n[s]; k++) used[d->schedule->slot[s][k].kind] = TRUE;
  g_string_append(c->out, " ");
  for (int k = 0; k < MS_N_SLOTS; k++)
    if (used[k]) g_string_append_printf(c->out, " %s %s ", slot_glyph(c, k), slot_looks[k].title);
  g_string_append_printf(c->out, " %s idle\n", slot_glyph(c, -1));
}

/* The whole step where every pass has two columns; else its beginning, middle and end, about a pass a column. */
static int windows_of(const MsDetail *d, const MsSlotSpans *spans, int cells, Window *window, int *of_each) {
  double end_ps = 0;
  int most = 1;
  for (int s = 0; s < d->schedule->stages; s++) {
    most = MAX(most, d->schedule->n[s]);
    for (int k = 0; k < d->schedule->n[s]; k++) end_ps = fmax(end_ps, (double)spans->end[d->slot_base[s] + (guint32)k]);
  }
  *of_each = cells;
  window[0] = (Window){0, end_ps};
  if (2 * most <= cells) return 1;
  *of_each = (cells - 6) / 3;
  double wide_ps = fmin(end_ps / most * *of_each, end_ps / 3);
  window[0] = (Window){0, wide_ps};
  window[1] = (Window){(end_ps - wide_ps) / 2, (end_ps + wide_ps) / 2};
  window[2] = (Window){end_ps - wide_ps, end_ps};
  return 3;
}

static void append_times(const Canvas *c, const Window *window, int n, int cells) {
  g_string_append(c->out, "             ");
  for (int i = 0; i < n; i++) {
    g_autofree char *text = g_strdup_printf("%s to %s", MS_SECONDS(window[i].from_ps / MS_PS_PER_S),
                                            MS_SECONDS(window[i].to_ps / MS_PS_PER_S));
    g_string_append_printf(c->out, "%-*s%s", i + 1 < n ? cells : 0, text, i + 1 < n ? "   " : "\n");
  }
}

static void append_pipeline(const Canvas *c, const MsDetail *d) {
  if (!d->schedule || !d->slot_task) return;
  Window window[3];
  int cells, stages = d->schedule->stages, shown = MIN(stages, MOST_STAGES);
  MsSlotSpans spans = ms_slot_spans_new(d);
  int n = windows_of(d, &spans, c->width - 13, window, &cells);
  g_autofree int *kind = g_new(int, cells);
  g_string_append_printf(c->out, "\npipeline%s\n",
                         n > 1 ? ": beginning, middle and end of the step, a column about a pass" : "");
  append_legend(c, d);
  append_times(c, window, n, cells);
  for (int s = 0; s < shown; s++) {
    g_string_append_printf(c->out, "    stage %-3d", s);
    for (int i = 0; i < n; i++) {
      fill(d, &spans, s, window[i], cells, kind);
      if (i) g_string_append(c->out, c->ascii ? " | " : " ┆ ");
      append_cells(c, kind, cells);
    }
    g_string_append_c(c->out, '\n');
  }
  if (stages > shown) g_string_append_printf(c->out, "    %d more stages\n", stages - shown);
  ms_slot_spans_clear(&spans);
}

/* --- all together ------------------------------------------------------------------------------------------------ */
static void append_head(const Canvas *c, const MsScenario *s, const MsResult *r) {
  g_autofree char *layout = ms_report_layout(s), *machines = ms_scenario_machines_text(s),
                  *name = ms_report_name(r->name ? r->name : "run");
  g_string_append_printf(c->out, "%s%s%s: %s on %s\n  %s\n", c->colour ? "\033[1m" : "", name,
                         c->colour ? "\033[0m" : "", s->model->name, machines, layout);
  if (!r->feasible)
    g_string_append_printf(c->out, "  does not fit: %s\n", r->why_infeasible ? r->why_infeasible : "no reason given");
  if (r->step_time_s > 0)
    g_string_append_printf(c->out, "  %s a step +-%s   %.0f tokens/s/GPU   MFU %s\n", MS_SECONDS(r->step_time_s),
                           MS_PERCENT(r->band), r->tokens_per_s_per_gpu, MS_PERCENT(r->mfu));
  if (r->caveat) g_string_append_printf(c->out, "  caveat: %s\n", r->caveat);
}

static Canvas canvas_new(int width, unsigned flags) {
  return (Canvas){g_string_new(NULL), CLAMP(width, NARROWEST, MS_TEXT_COLUMNS), (flags & MS_REPORT_ASCII) != 0,
                  (flags & MS_REPORT_COLOUR) != 0};
}

char *ms_report_pipeline(const MsDetail *detail, int width, unsigned flags) {
  const Canvas c = canvas_new(width, flags);
  append_pipeline(&c, detail);
  return g_string_free(c.out, FALSE);
}

char *ms_report_terminal(const MsScenario *scenario, const MsResult *result, const MsDetail *detail, int width,
                         unsigned flags) {
  const Canvas c = canvas_new(width, flags);
  append_head(&c, scenario, result);
  append_step(&c, result);
  if (detail) append_pipeline(&c, detail);
  append_memory(&c, result);
  append_comm(&c, &result->time);
  return g_string_free(c.out, FALSE);
}
