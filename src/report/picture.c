/* src/report/picture.c - a schedule as a picture of characters. */
#include <math.h>
#include <string.h>

#include "report/report.h"

/* One character cell of the picture: what to write and in which colour (a slot kind; -1 idle). */
typedef struct {
  char text;
  gint8 kind;
} Cell;

static const char *const kind_colour[MS_N_SLOTS] = {[MS_SLOT_F] = "\033[44;97m",
                                                    [MS_SLOT_B] = "\033[42;30m",
                                                    [MS_SLOT_I] = "\033[46;30m",
                                                    [MS_SLOT_W] = "\033[100;97m",
                                                    [MS_SLOT_FB] = "\033[45;97m"};

/* Narrow slots have room for one character: forward a digit, backward a letter (a = microbatch 0 modulo 10), the rest
 * their kind. */
static char glyph(const MsSlot *slot) {
  switch (slot->kind) {
  case MS_SLOT_F: return (char)('0' + slot->mb % 10);
  case MS_SLOT_B:
  case MS_SLOT_I: return (char)('a' + slot->mb % 10);
  case MS_SLOT_W: return 'w';
  default: return '*';
  }
}

/* A slot over `width` cells: its letter and microbatch where they fit, '-' up to its end. */
static void draw_wide(Cell *cell, int width, const MsSlot *slot, gboolean chunks) {
  char label[48];
  if (slot->kind == MS_SLOT_FB) g_snprintf(label, sizeof label, "F%d+B%d", slot->mb, slot->mb2);
  else g_snprintf(label, sizeof label, "%s%d", slot->kind == MS_SLOT_I ? "B" : ms_slot_words[slot->kind], slot->mb);
  size_t used = strlen(label);
  if (chunks && slot->kind != MS_SLOT_FB) g_snprintf(label + used, sizeof label - used, ".%d", slot->chunk);
  if ((int)strlen(label) > width) label[used] = '\0';
  if ((int)used > width)
    g_snprintf(label, sizeof label, "%c%d", slot->kind == MS_SLOT_FB ? '*' : label[0], slot->mb % 10);
  for (int i = 0, n = (int)strlen(label); i < width; i++) cell[i] = (Cell){i < n ? label[i] : '-', (gint8)slot->kind};
}

static void draw_row(Cell *cell, int width, double scale, const MsSlot *slot, int n, const double *start,
                     const double *end, gboolean chunks) {
  for (int i = 0; i < width; i++) cell[i] = (Cell){'.', -1};
  for (int k = 0; k < n; k++) {
    int from = (int)lround(start[k] * scale), to = MIN((int)lround(end[k] * scale), width);
    if (from >= width || to <= from) continue;
    if (to - from >= 2) draw_wide(cell + from, to - from, &slot[k], chunks);
    else cell[from] = (Cell){glyph(&slot[k]), (gint8)slot[k].kind};
  }
}

static void append_row(GString *out, const Cell *cell, int width, gboolean colour) {
  int kind = -1;
  for (int i = 0; i < width; i++) {
    if (colour && cell[i].kind != kind) g_string_append(out, cell[i].kind < 0 ? "\033[0m" : kind_colour[cell[i].kind]);
    kind = cell[i].kind;
    g_string_append_c(out, cell[i].text);
  }
  if (colour && kind >= 0) g_string_append(out, "\033[0m");
  g_string_append_c(out, '\n');
}

char *ms_report_schedule(const MsSchedule *schedule, const MsScheduleRun *run, int width, unsigned flags) {
  enum { LABEL = 11, MOST_COLUMNS_PER_UNIT = 6 };
  GString *out = g_string_new(NULL);
  double room = MAX(width - LABEL, 10);
  double scale = run->makespan > 0 ? room / run->makespan : 1;
  scale = scale >= 1 ? MIN(floor(scale), MOST_COLUMNS_PER_UNIT) : scale;
  int cells = MIN((int)ceil(run->makespan * scale), (int)room);
  g_autofree Cell *cell = g_new(Cell, MAX(cells, 1));
  for (int s = 0, base = 0; s < schedule->stages; base += schedule->n[s++]) {
    draw_row(cell, cells, scale, schedule->slot[s], schedule->n[s], run->start + base, run->end + base,
             schedule->chunks > 1);
    g_string_append_printf(out, "stage %-*d", LABEL - 6, s);
    append_row(out, cell, cells, (flags & MS_REPORT_COLOUR) != 0);
  }
  if (scale >= 1) g_string_append_printf(out, "%*sone unit of time = %g columns\n", LABEL, "", scale);
  else g_string_append_printf(out, "%*sone column = %.3g units of time\n", LABEL, "", 1 / scale);
  g_string_append_printf(out, "%*sFn forward, Bn backward, Wn weight gradient of microbatch n%s, - its rest, . idle\n",
                         LABEL, "", schedule->chunks > 1 ? " (.c in chunk c)" : "");
  g_string_append_printf(out, "%*swhere one character fits: digit forward, letter backward (a is 0), w, * both\n",
                         LABEL, "");
  return g_string_free(out, FALSE);
}
