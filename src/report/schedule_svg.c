/* src/report/schedule_svg.c - a pipeline schedule as a picture that stands on its own: colours for light and dark, a
 * tooltip on every pass. */
#include <math.h>
#include <string.h>

#include "report/report.h"

enum { LEFT = 64, WIDTH = 1200, ROW = 28, GAP = 4, TOP = 56, LEGEND = 48 };

static const char style[] =
    "<style>\n"
    "text{font:12px "
    "system-ui,sans-serif;fill:#1b2430}.t{font-size:14px;font-weight:600}.l{fill:#fff;font-size:11px;text-anchor:"
    "middle}.r{text-anchor:end}.m{text-anchor:middle}\n"
    ".bg{fill:#fff}.lane{fill:#eef1f5}.grid{stroke:#cfd6df}.F{fill:#0072b2}.B{fill:#d98c00}.I{fill:#d05000}.W{fill:#"
    "7b8794}.FB{fill:#b0568a}\n"
    "@media(prefers-color-scheme:dark){text{fill:#dfe5ec}.bg{fill:#11161d}.lane{fill:#1d2530}.grid{stroke:#3a4552}}\n"
    "</style>\n";

/* "F3", "B3.1", "F5+B3": what the terminal's picture calls it. */
static char *label_of(const MsSlot *slot, gboolean chunks) {
  if (slot->kind == MS_SLOT_FB) return g_strdup_printf("F%d+B%d", slot->mb, slot->mb2);
  const char *word = slot->kind == MS_SLOT_I ? "B" : ms_slot_words[slot->kind];
  return chunks ? g_strdup_printf("%s%d.%d", word, slot->mb, slot->chunk) : g_strdup_printf("%s%d", word, slot->mb);
}

static gboolean fits(const char *label, double width) { return 7.0 * (double)strlen(label) + 2 <= width; }

static void pass(GString *out, const MsSlot *slot, gboolean chunks, int stage, double start, double end, double scale) {
  double x = LEFT + start * scale, width = (end - start) * scale;
  g_autofree char *label = label_of(slot, chunks);
  if (width <= 0) return;
  int y = TOP + stage * (ROW + GAP);
  g_string_append_printf(out,
                         "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" rx=\"2\"><title>stage "
                         "%d: %s, chunk %d, %.6g to %.6g</title></rect>\n",
                         ms_slot_words[slot->kind], x, y, MAX(width - 0.6, 0.2), ROW, stage, label, slot->chunk, start,
                         end);
  if (!fits(label, width)) { /* the microbatch alone: the colour says the rest */
    g_free(label);
    label = g_strdup_printf("%d", slot->mb);
  }
  if (fits(label, width))
    g_string_append_printf(out, "<text class=\"l\" x=\"%.2f\" y=\"%d\">%s</text>\n", x + width / 2, y + ROW / 2 + 4,
                           label);
}

/* 1, 2 or 5 times a power of ten, so that about ten of them fit. */
static double tick_of(double whole) {
  double raw = whole / 10, power = pow(10, floor(log10(raw))), lead = raw / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void axis(GString *out, double whole, double scale, int bottom) {
  double tick = tick_of(whole);
  for (double t = 0; t <= whole * (1 + 1e-9); t += tick) {
    double x = LEFT + t * scale;
    g_string_append_printf(out,
                           "<line class=\"grid\" x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\"/><text class=\"m\" "
                           "x=\"%.2f\" y=\"%d\">%.6g</text>\n",
                           x, TOP - 4, x, bottom, x, bottom + 16, t);
  }
}

static void legend(GString *out, const gboolean *used, int y) {
  static const char *const what[MS_N_SLOTS] = {[MS_SLOT_F] = "F forward",
                                               [MS_SLOT_B] = "B whole backward",
                                               [MS_SLOT_I] = "B input gradient",
                                               [MS_SLOT_W] = "W weight gradient",
                                               [MS_SLOT_FB] = "forward and backward merged"};
  int x = LEFT;
  for (int kind = 0; kind < MS_N_SLOTS; kind++) {
    if (!used[kind]) continue;
    g_string_append_printf(
        out,
        "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
        ms_slot_words[kind], x, y, x + 17, y + 11, what[kind]);
    x += 40 + 7 * (int)strlen(what[kind]);
  }
}

char *ms_report_schedule_svg(const char *name, const MsSchedule *s, const MsScheduleRun *run) {
  gboolean used[MS_N_SLOTS] = {FALSE};
  int bottom = TOP + s->stages * (ROW + GAP), height = bottom + LEGEND + 16;
  double scale = run->makespan > 0 ? (WIDTH - LEFT - 24) / run->makespan : 0;
  GString *out = g_string_new("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  g_string_append_printf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                         "role=\"img\">\n<title>pipeline schedule %s</title>\n%s",
                         WIDTH, height, WIDTH, height, name, style);
  g_string_append_printf(out,
                         "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n<text class=\"t\" x=\"%d\" y=\"22\">%s: %d "
                         "stages, %d microbatches, %d chunk%s per stage</text>\n",
                         WIDTH, height, LEFT, name, s->stages, s->microbatches, s->chunks, s->chunks == 1 ? "" : "s");
  g_string_append_printf(out, "<text x=\"%d\" y=\"42\">makespan %.6g, span %.6g, bubble %.2f %%</text>\n", LEFT,
                         run->makespan, run->span, 100 * run->bubble_fraction);
  for (int i = 0; i < s->stages; i++) {
    int y = TOP + i * (ROW + GAP);
    g_string_append_printf(out,
                           "<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\"/><text class=\"r\" "
                           "x=\"%d\" y=\"%d\">stage %d</text>\n",
                           LEFT, y, run->makespan * scale, ROW, LEFT - 8, y + ROW / 2 + 4, i);
  }
  if (scale > 0) axis(out, run->makespan, scale, bottom);
  for (int i = 0, at = 0; i < s->stages; i++) /* times are flat, stage after stage */
    for (int k = 0; k < s->n[i]; k++, at++) {
      used[s->slot[i][k].kind] = TRUE;
      pass(out, &s->slot[i][k], s->chunks > 1, i, run->start[at], run->end[at], scale);
    }
  legend(out, used, bottom + 28);
  g_string_append(out, "</svg>\n");
  return g_string_free(out, FALSE);
}
