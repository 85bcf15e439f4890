/* src/report/ways.c - what would fit where nothing does, as text and JSON. */
#include "base/text.h"
#include "base/units.h"
#include "report/report.h"

static void append_tried(GString *out, const MsWays *w) {
  const GArray *tried = w->gpus_tried;
  guint n = tried->len;
  const char *why = w->n > 0 ? "are too few" : "do not help"; /* where nothing does it may be for another reason */
  if (n > 4)
    g_string_append_printf(out, "%u numbers of GPUs from %.0f to %.0f %s\n", n, g_array_index(tried, double, 0),
                           g_array_index(tried, double, n - 1), why);
  for (guint i = 0; n <= 4 && i < n; i++)
    g_string_append_printf(out, "%s%.0f", i ? ", " : "", g_array_index(tried, double, i));
  if (n > 0 && n <= 4) g_string_append_printf(out, " GPUs %s\n", why);
  if (w->most_gpus > 0)
    g_string_append_printf(out, "more than %d GPUs draw more power than was allowed, and were not tried\n",
                           w->most_gpus);
}

/* What must stand beside the figures of machines and of layouts that were found in a hurry. */
static void append_caveat(GString *out, const MsWays *w) {
  g_autoptr(GString) names = g_string_new(NULL);
  if (w->n == 0) return;
  for (int i = 0; i < w->n; i++) {
    const MsHardware *machine = w->way[i].machine;
    if (machine && machine->published_runs == 0)
      g_string_append_printf(names, "%s%s", names->len ? ", " : "", machine->name);
  }
  ms_text_paragraph(out, 2, "caveat: step times are estimates (fast)%s%s",
                    names->len ? "; no published runs compared of " : "", names->str);
}

char *ms_report_ways(const MsWays *w, gboolean deadline) {
  GString *out = g_string_new(NULL);
  if (w->n == 0)
    g_string_append(out, deadline ? "no way out was found: neither more GPUs nor a faster machine\n"
                                  : "no way out was found: neither more GPUs, nor full recompute, offloading and "
                                    "sharding, nor a machine with more memory\n");
  MsTable *table = ms_table_new();
  ms_table_column(table, deadline ? "in time" : "would fit", FALSE);
  ms_table_columns(table, ">step time|>GiB");
  ms_table_column(table, deadline ? "layout" : "layout that needs little memory", FALSE);
  for (int i = 0; i < w->n; i++) {
    const MsWay *way = &w->way[i];
    g_autofree char *layout = ms_report_layout(way->scenario);
    ms_table_cellf(table, "%s%s", way->kind == MS_WAY_OPTIONS ? "with " : "", way->change);
    MS_TABLE_ROW(table, MS_SECONDS(way->step_time_s), MS_FORMAT("%.1f", way->device_B / MS_GIB), layout);
  }
  g_autofree char *text = ms_table_take(table);
  if (w->n > 0) g_string_append_printf(out, "\n%s", text);
  append_caveat(out, w);
  append_tried(out, w);
  gboolean options = FALSE;
  for (int i = 0; i < w->n; i++) options |= w->way[i].kind == MS_WAY_OPTIONS;
  if (options)
    g_string_append(out, "\"with\" names keys of a request: --write-request FILE keeps this one, to set them there\n");
  if (w->n > 0 && !deadline)
    g_string_append(out, "these fit, and were found among layouts that save memory first: a plan of them finds faster "
                         "ones\n");
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
const MsFigures ms_ways_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_ARRAY(
        "ways", LIST, MsWays, way, n,
        MS_FIGURES(MS_FIGURE_WORDS("kind", MsWay, kind, ms_way_words, "what is changed"),
                   MS_FIGURE(STRING, MsWay, change, "", "the change"),
                   MS_FIGURE(F64, MsWay, step_time_s, "s",
                             "`fast`, of a layout that needs little memory; a plan finds faster ones"),
                   MS_FIGURE(F64, MsWay, device_B, "B", "that it needs of a GPU"),
                   MS_FIGURE_FILE_AT("scenario", MsWay, scenario, ms_report_scenario, "complete: it runs"))),
    MS_FIGURE_GARRAY("gpus_tried", MsWays, gpus_tried, double, &ms_figure_numbers,
                     .doc = "numbers of GPUs that do not do"),
    MS_FIGURE(INT, MsWays, most_gpus, "", "more draw more power than was allowed; 0: no limit was met"));
