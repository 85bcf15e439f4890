#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/show.h"
#include "describe/laws.h"

/* --- all of them: a table, or a list --------------------------------------------------------------------------- */
typedef struct {
  const MsField *field;
  const MsLawEntry *entry;
} Law;
#define OF(m, s) MS_FIGURE_ROWS_AT(Law, m, s)
static const MsFigures law_figures =
    MS_FIGURE_UNNAMED(OF(field, MS_FIGURES(MS_FIGURE_AS("name", STRING, MsField, key, "", "of the law"))),
                      OF(entry, MS_FIGURES(MS_FIGURE(F64, MsLawEntry, value, "", "in its unit"))),
                      OF(field, MS_FIGURES(MS_FIGURE(STRING, MsField, unit, "", "of its value"),
                                           MS_FIGURE_AS("smallest", F64, MsField, lo, "", "value that is taken"),
                                           MS_FIGURE_AS("largest", F64, MsField, hi, "", "value that is taken"))),
                      OF(entry, MS_FIGURES(MS_FIGURE(F64, MsLawEntry, spread, "", "before training runs are seen"))),
                      OF(field, MS_FIGURES(MS_FIGURE_AS("meaning", STRING, MsField, doc, "", "of the law"))),
                      OF(entry, MS_FIGURES(MS_FIGURE(STRING, MsLawEntry, source, "", "of the mechanism or the figure"),
                                           MS_FIGURE(STRING, MsLawEntry, fitted_on, "", "runs or measurements"))));

static void print_json(const MsLawEntry *entries, int only) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_array(out, NULL);
  for (int i = 0; i < MS_N_LAWS; i++)
    if (only < 0 || only == i) ms_figures_write(&law_figures, &(Law){&ms_laws_table.fields[i], &entries[i]}, NULL, out);
  ms_json_out_end(out);
  ms_cli_print_json(out);
}

static void print_table(const MsLawEntry *entries) {
  static const struct {
    const char *title;
    gboolean right;
  } column[] = {{"law", FALSE},   {"value", TRUE},    {"unit", FALSE},  {"range", FALSE},
                {"prior", FALSE}, {"meaning", FALSE}, {"source", FALSE}};
  MsTable *table = ms_table_new();
  for (guint i = 0; i < G_N_ELEMENTS(column); i++) ms_table_column(table, column[i].title, column[i].right);
  for (int i = 0; i < MS_N_LAWS; i++) {
    const MsField *field = &ms_laws_table.fields[i];
    MS_TABLE_ROW(table, field->key, ms_double_text(entries[i].value, MS_ROOM), field->unit);
    ms_table_cellf(table, "%s to %s", ms_double_text(field->lo, MS_ROOM), ms_double_text(field->hi, MS_ROOM));
    if (isnan(entries[i].spread)) ms_table_cell(table, "fixed");
    else ms_table_cellf(table, "x/ %.2f", exp(entries[i].spread));
    MS_TABLE_ROW(table, field->doc, entries[i].source);
  }
  ms_cli_print(ms_table_take(table));
}

static void print_one(const MsField *field, const MsLawEntry *entry) {
  char buf[MS_TEXT], low[MS_TEXT], high[MS_TEXT];
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%s = %s%s%s, from %s to %s\n%s\n", field->key, ms_double_text(entry->value, buf),
                         *field->unit ? " " : "", field->unit, ms_double_text(field->lo, low),
                         ms_double_text(field->hi, high), field->doc);
  g_string_append_printf(out, "source: %s\nfitted on: %s\n", entry->source, entry->fitted_on);
  if (isnan(entry->spread)) g_string_append(out, "training runs do not tell: never refitted\n");
  else g_string_append_printf(out, "before any run is seen: within a factor of %.2f (one sigma)\n", exp(entry->spread));
  ms_cli_print(g_string_free(out, FALSE));
}

/* Number of the law of that name, -1 after a usage message. */
static int law_named(const MsVerb *verb, const char *name) {
  const char *words[MS_N_LAWS + 1] = {NULL};
  for (int i = 0; i < MS_N_LAWS; i++) words[i] = ms_laws_table.fields[i].key;
  return ms_cli_word(verb, "law", name, words);
}

int ms_show_laws(const MsShow *show, const char *name) {
  GError *error = NULL;
  int only = name ? law_named(ms_cli_verb("show"), name) : -1;
  if (name && only < 0) return MS_ERROR_USAGE;
  MsLawEntry *entries = ms_law_entries_load(&error);
  if (!entries) return ms_cli_fail(error);
  if (show->json) print_json(entries, only);
  else if (only >= 0) print_one(&ms_laws_table.fields[only], &entries[only]);
  else print_table(entries);
  ms_law_entries_free(entries);
  return 0;
}
