/* src/report/check.c - a check as table, JSON, JUnit XML and Markdown. None of them holds a time or a date: the same
 * drift gives the same bytes. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "report/report.h"

static gboolean drifted(const MsChecked *c) { return c->state || c->n > 0; }

static const char *value_text(int q, double value, char *buf) {
  char name[MS_QUANTITY_TEXT];
  ms_quantity_name(q, name);
  if (isnan(value)) return "unknown";
  if (g_str_has_suffix(name, "_B")) g_snprintf(buf, MS_TEXT, "%.4f GiB", value / MS_GIB);
  else g_snprintf(buf, MS_TEXT, g_str_has_suffix(name, "_s") ? "%.6g s" : "%.6g", value);
  return buf;
}

static const char *change_text(double change, char *buf) {
  if (!isfinite(change)) return "new";
  g_snprintf(buf, MS_TEXT, fabs(change) < 0.1 ? "%+.3f %%" : "%+.1f %%", 100 * change);
  return buf;
}

/* "hardware h100-sxm kernel_launch_s: 4.3e-05 -> 4.343e-05 (+1.0 %)"; long texts are cut. */
static char *input_text(const MsInputChange *in) {
  enum { LONG = 100 };
  char *rest, percent[MS_TEXT];
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%s %s: %.*s%s -> %.*s%s", in->of, in->key, LONG, in->stored ? in->stored : "nothing",
                         in->stored && strlen(in->stored) > LONG ? "..." : "", LONG, in->today ? in->today : "nothing",
                         in->today && strlen(in->today) > LONG ? "..." : "");
  double was = in->stored ? g_ascii_strtod(in->stored, &rest) : NAN;
  gboolean number = in->stored && rest != in->stored && !*rest && was != 0;
  double is = number && in->today ? g_ascii_strtod(in->today, &rest) : NAN;
  if (number && in->today && !*rest) g_string_append_printf(out, " (%s)", change_text(is / was - 1, percent));
  return g_string_free(out, FALSE);
}

/* One line that says what is wrong with a scenario. */
static char *verdict(const MsChecked *c) {
  char name[MS_QUANTITY_TEXT], percent[MS_TEXT];
  if (!c->compared) return g_strdup("not compared: it was stopped before");
  if (c->state) return g_strdup(c->state);
  if (c->n == 0) return g_strdup("unchanged");
  const MsDrift *d = &c->drift[0];
  return g_strdup_printf("%s %s%s%s%s", ms_quantity_name(d->quantity, name), change_text(d->change, percent),
                         c->part ? ", mostly " : "", c->part ? c->part : "", c->n > 1 ? "" : "; nothing else");
}

/* --- text ------------------------------------------------------------------------------------------------------ */
static void drift_rows(MsTable *table, const MsChecked *c) {
  char name[MS_QUANTITY_TEXT];
  for (int i = 0; i < c->n; i++) {
    const MsDrift *d = &c->drift[i];
    ms_table_cellf(table, "  %s", i == 0 ? c->name : "");
    MS_TABLE_ROW(table, ms_quantity_name(d->quantity, name), value_text(d->quantity, d->stored, MS_ROOM),
                 value_text(d->quantity, d->today, MS_ROOM), change_text(d->change, MS_ROOM),
                 MS_FORMAT("%.3g %%", 100 * d->tolerance));
  }
}

char *ms_report_check(const MsCheck *c, unsigned flags) {
  GString *out = g_string_new(NULL);
  gboolean colour = (flags & MS_REPORT_COLOUR) != 0, rows = FALSE;
  const char *on = !colour ? "" : c->drifted ? "\033[1;31m" : "\033[1;32m", *off = colour ? "\033[0m" : "";
  g_string_append_printf(out, "%s%s: %d of %d predictions drifted%s   [%s]\n", on, c->baseline->file, c->drifted,
                         c->baseline->n, off, ms_fidelity_words[c->baseline->fidelity]);
  ms_report_extent(out, &c->extent);
  for (int i = 0; i < c->baseline->n; i++) {
    const MsChecked *one = &c->checked[i];
    g_autofree char *text = verdict(one);
    if (drifted(one)) g_string_append_printf(out, "  ! %s: %s\n", one->name, text);
    rows = rows || one->n > 0;
  }
  if (rows) {
    MsTable *table = ms_table_of("  scenario|quantity|>stored|>today|>change|>tolerance");
    for (int i = 0; i < c->baseline->n; i++) drift_rows(table, &c->checked[i]);
    ms_table_append_below(table, out);
  }
  if (c->n_inputs > 0) g_string_append(out, "\n  figures that changed since it was written:\n");
  for (int i = 0; i < c->n_inputs; i++) {
    g_autofree char *text = input_text(&c->input[i]);
    g_string_append_printf(out, "  %s\n", text);
  }
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static double is_drifted(const void *checked) { return drifted(checked); }
static const char *quantity(const void *drift) {
  char name[MS_QUANTITY_TEXT];
  return g_intern_string(ms_quantity_name(((const MsDrift *)drift)->quantity, name));
}
static const void *checked_at(const void *check, guint i, MsFigureCursor *room) {
  const MsCheck *c = check;
  (void)room;
  if (i >= (guint)c->baseline->n) return NULL;
  return c->checked[i].compared ? (const void *)&c->checked[i] : ms_figure_skip;
}
static const char *baseline_file(const void *check) { return ((const MsCheck *)check)->baseline->file; }
static double scenarios(const void *check) { return ((const MsCheck *)check)->baseline->n; }

const MsFigures ms_check_figures = MS_FIGURE_TABLE(
    "check", "`moesim check --json`.", MS_REPORT_EXTENT(MsCheck, extent),
    MS_FIGURE_TEXT("baseline", baseline_file, "the file"), MS_FIGURE_OF("scenarios", INT, scenarios, "", "in it"),
    MS_FIGURE(INT, MsCheck, drifted, "", "of them"),
    MS_FIGURE_EACH(
        "results", LIST, checked_at,
        MS_FIGURES(
            MS_FIGURE(STRING, MsChecked, name, "", "of the scenario"),
            MS_FIGURE_OF("drifted", BOOL, is_drifted, "", "something moved beyond its tolerance"),
            MS_FIGURE(STRING, MsChecked, state, "",
                      "what is wrong beside the figures: no longer loads, no longer fits, ...", MS_OR_NULL),
            MS_FIGURE(STRING, MsChecked, part, "", "the part of the step that moved most", MS_OR_NULL),
            MS_FIGURE_ARRAY("moved", LIST, MsChecked, drift, n,
                            MS_FIGURES(MS_FIGURE_TEXT("quantity", quantity, "what moved"),
                                       MS_FIGURE(F64, MsDrift, stored, "", "in the baseline", MS_OR_NULL),
                                       MS_FIGURE(F64, MsDrift, today, "", "predicted now", MS_OR_NULL),
                                       MS_FIGURE(F64, MsDrift, change, "1", "relative; null: from 0", MS_OR_NULL),
                                       MS_FIGURE(F64, MsDrift, tolerance, "1", "of the change"))))),
    MS_FIGURE_ARRAY("inputs", LIST, MsCheck, input, n_inputs,
                    MS_FIGURES(MS_FIGURE(STRING, MsInputChange, of, "",
                                         "model or machine a figure of which changed since the baseline was written"),
                               MS_FIGURE(STRING, MsInputChange, key, "", "of the figure"),
                               MS_FIGURE(STRING, MsInputChange, stored, "", "in the baseline", MS_OR_NULL),
                               MS_FIGURE(STRING, MsInputChange, today, "", "now", MS_OR_NULL))));

/* --- JUnit ----------------------------------------------------------------------------------------------------- */
/* Text for XML 1.0, which has no place for control characters. */
static char *xml(const char *text) {
  g_autofree char *clean = g_utf8_make_valid(text, -1);
  for (char *p = clean; *p; p++)
    if ((guchar)*p < 0x20 && *p != '\n') *p = ' ';
  return g_markup_escape_text(clean, -1);
}

static char *drift_list(const MsChecked *c) {
  char name[MS_QUANTITY_TEXT], was[MS_TEXT], is[MS_TEXT], percent[MS_TEXT];
  GString *out = g_string_new(NULL);
  for (int i = 0; i < c->n; i++) {
    const MsDrift *d = &c->drift[i];
    g_string_append_printf(out, "%s: %s -> %s (%s, tolerance %.3g %%)\n", ms_quantity_name(d->quantity, name),
                           value_text(d->quantity, d->stored, was), value_text(d->quantity, d->today, is),
                           change_text(d->change, percent), 100 * d->tolerance);
  }
  return g_string_free(out, FALSE);
}

char *ms_report_check_junit(const MsCheck *c) {
  g_autofree char *file = xml(c->baseline->file);
  GString *out = g_string_new("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  g_string_append_printf(out, "<testsuites name=\"moesim check\" tests=\"%d\" failures=\"%d\" errors=\"0\">\n",
                         c->baseline->n, c->drifted);
  g_string_append_printf(out, "  <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"0\" skipped=\"%u\">\n",
                         file, c->baseline->n, c->drifted, c->extent.of - c->extent.done);
  for (int i = 0; i < c->baseline->n; i++) {
    const MsChecked *one = &c->checked[i];
    g_autofree char *name = xml(one->name), *said = verdict(one), *message = xml(said), *list = drift_list(one),
                    *text = xml(list);
    if (drifted(one))
      g_string_append_printf(out,
                             "    <testcase classname=\"moesim.check\" name=\"%s\">\n      <failure message=\"%s\" "
                             "type=\"drift\">%s</failure>\n    </testcase>\n",
                             name, message, text);
    else
      g_string_append_printf(out, "    <testcase classname=\"moesim.check\" name=\"%s\"%s\n", name,
                             one->compared ? "/>" : "><skipped/></testcase>");
  }
  if (c->n_inputs > 0) {
    g_string_append(out, "    <system-out>figures that changed since the baseline was written:\n");
    for (int i = 0; i < c->n_inputs; i++) {
      g_autofree char *plain = input_text(&c->input[i]), *text = xml(plain);
      g_string_append_printf(out, "%s\n", text);
    }
    g_string_append(out, "</system-out>\n");
  }
  g_string_append(out, "  </testsuite>\n</testsuites>\n");
  return g_string_free(out, FALSE);
}

/* --- Markdown -------------------------------------------------------------------------------------------------- */
/* A cell of a table: one line, bars escaped. */
static void md_cell(GString *out, const char *text) {
  g_string_append(out, "| ");
  for (const char *p = text; *p; p++) {
    if (*p == '|' || *p == '\\' || *p == '`' || *p == '<' || *p == '*') g_string_append_c(out, '\\');
    g_string_append_c(out, (guchar)*p < 0x20 ? ' ' : *p);
  }
  g_string_append_c(out, ' ');
}

char *ms_report_check_markdown(const MsCheck *c) {
  char name[MS_QUANTITY_TEXT], buf[MS_TEXT];
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "### moesim check: %d of %d predictions drifted\n\n", c->drifted, c->baseline->n);
  ms_report_extent(out, &c->extent);
  if (ms_extent_stopped(&c->extent)) g_string_append_c(out, '\n');
  g_string_append(out,
                  "| | scenario | quantity | stored | today | change | tolerance |\n|---|---|---|--:|--:|--:|--:|\n");
  for (int i = 0; i < c->baseline->n; i++) {
    const MsChecked *one = &c->checked[i];
    g_autofree char *said = verdict(one);
    g_string_append(out, drifted(one) ? "| FAIL " : one->compared ? "| ok " : "| - ");
    md_cell(out, one->name);
    md_cell(out, said);
    g_string_append(out, "| | | | |\n");
    for (int d = 0; d < one->n; d++) {
      g_string_append(out, "| | ");
      md_cell(out, ms_quantity_name(one->drift[d].quantity, name));
      md_cell(out, value_text(one->drift[d].quantity, one->drift[d].stored, buf));
      md_cell(out, value_text(one->drift[d].quantity, one->drift[d].today, buf));
      md_cell(out, change_text(one->drift[d].change, buf));
      g_string_append_printf(out, "| %.3g %% |\n", 100 * one->drift[d].tolerance);
    }
  }
  if (c->n_inputs > 0) g_string_append(out, "\nFigures that changed since the baseline was written:\n\n");
  for (int i = 0; i < c->n_inputs; i++) {
    g_autofree char *plain = input_text(&c->input[i]);
    g_string_append_printf(out, "- %s\n", plain);
  }
  return g_string_free(out, FALSE);
}
