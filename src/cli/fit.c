#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/text.h"
#include "calib/fit.h"
#include "cli/cli.h"

typedef struct {
  char *hardware, *like, *out, *date;
  gboolean evaluate, held_back, others, json;
} Options;

/* --- fit ------------------------------------------------------------------------------------------------------- */
/* Names of tables without their folder, so that the text does not depend on where they lie. */
static char *command_of(const Options *o, char **files) {
  GString *text = g_string_new("moesim fit --hardware ");
  g_string_append(text, o->hardware);
  if (o->like) g_string_append_printf(text, " --like %s", o->like);
  for (int i = 0; files[i]; i++) {
    g_autofree char *name = g_path_get_basename(files[i]);
    g_string_append_printf(text, " %s", name);
  }
  return g_string_free(text, FALSE);
}

static void cell_error(MsTable *table, double error) { ms_table_cell(table, error >= 0 ? MS_PERCENT(error) : "-"); }

/* Where the profile goes decides where the table goes: data to stdout, the rest to stderr. */
static void print_curves(const MsFit *fit, FILE *to) {
  MsTable *table = ms_table_of("curve|form|>fitted|>held back|>median|>p90");
  for (guint i = 0; i < fit->curves->len; i++) {
    const MsCurve *c = fit->curves->pdata[i];
    g_autoptr(GString) name = g_string_new(c->op);
    const char *words[] = {c->dtype, c->pass, c->level, c->dispatcher};
    for (size_t w = 0; w < G_N_ELEMENTS(words); w++)
      if (words[w]) g_string_append_printf(name, " %s", words[w]);
    if (c->head_dim) g_string_append_printf(name, " d%d", c->head_dim);
    if (c->ranks) g_string_append_printf(name, " x%d", c->ranks);
    ms_table_cell(table, name->str);
    ms_table_cellf(table, "%s%s", ms_curve_form_words[c->form], c->grid.dims ? " + grid" : "");
    MS_TABLE_ROW(table, MS_FORMAT("%.0f", c->provenance.n_fitted), MS_FORMAT("%.0f", c->provenance.n_held_back));
    cell_error(table, c->provenance.residual_median);
    cell_error(table, c->provenance.residual_p90);
  }
  g_autofree char *text = ms_table_take(table);
  fputs(text, to);
}

static int fit(const Options *o, char **files) {
  GError *error = NULL;
  g_autofree char *date = ms_cli_date_of(o->date), *command = command_of(o, files);
  MsFitOptions options = {o->hardware, o->like, (const char *const *)files, date, command, TRUE};
  int status = ms_cli_outputs(o->out);
  if (status != 0) return status;
  g_autoptr(MsFit) result = ms_fit(&options, &error);
  if (!result) return ms_cli_fail(error);
  ms_cli_print_notes(result->notes);
  print_curves(result, o->out && !g_str_equal(o->out, "-") ? stdout : stderr);
  if (result->interrupted) {
    fputs("moesim: not all curves were fitted: no profile is written\n", stderr);
    return MS_ERROR_NOTHING;
  }
  return ms_write_file(o->out ? o->out : "-", result->text, -1, &error) ? 0 : ms_cli_fail(error);
}

/* --- evaluate -------------------------------------------------------------------------------------------------- */
static double is_interrupted(const void *evaluation) {
  const MsEvaluation *e = evaluation;
  return e->tables < e->all_tables;
}

static const MsFigures row_figures = MS_FIGURE_TABLE(
    "evaluated", "Rows of a table of kernels against the curve of the profile.",
    MS_FIGURE(STRING, MsEvaluated, file, "", "table"), MS_FIGURE(STRING, MsEvaluated, gpu, "", "it was measured on"),
    MS_FIGURE(STRING, MsEvaluated, dtype, "", "of the operands"), MS_FIGURE(STRING, MsEvaluated, kind, "", "of kernel"),
    MS_FIGURE(UINT, MsEvaluated, n, "", "rows"),
    MS_FIGURE(F64, MsEvaluated, median, "1", "of |predicted / measured - 1|"),
    MS_FIGURE(F64, MsEvaluated, p90, "1", "a tenth is larger"),
    MS_FIGURE(F64, MsEvaluated, bias, "1", "median of the signed error"),
    MS_FIGURE(STRING, MsEvaluated, library, "", "that ran"));
const MsFigures ms_evaluation_figures = MS_FIGURE_TABLE(
    "fit", "`moesim fit --evaluate --json`.",
    MS_FIGURE_OF("interrupted", BOOL, is_interrupted, "", "not every table was read"),
    MS_FIGURE_GARRAY("rows", MsEvaluation, rows, MsEvaluated, &row_figures,
                     .doc = "of the library that the curve was fitted to"),
    MS_FIGURE_GARRAY("other_libraries", MsEvaluation, others, MsEvaluated, &row_figures,
                     .doc = "how far they lie from the curve"),
    MS_FIGURE_GARRAY("kinds", MsEvaluation, kinds, MsEvaluated, &row_figures, .doc = "all of `rows`, kind by kind"));

static void cell_figures(MsTable *table, const MsEvaluated *row) {
  ms_table_cellf(table, "%u", row->n);
  cell_error(table, row->median);
  cell_error(table, row->p90);
  ms_table_cellf(table, "%+.1f %%", 100 * row->bias);
}

static void print_kinds(const GArray *kinds) {
  MsTable *table = ms_table_of("kind, all tables|>n|>median|>p90|>bias");
  for (guint i = 0; i < kinds->len; i++) {
    const MsEvaluated *row = &g_array_index(kinds, MsEvaluated, i);
    ms_table_cell(table, row->kind);
    cell_figures(table, row);
  }
  ms_cli_print(ms_table_take(table));
}

static void print_table(const GArray *rows) {
  MsTable *table = ms_table_of("file|gpu|dtype|kind|library|>n|>median|>p90|>bias");
  for (guint i = 0; i < rows->len; i++) {
    const MsEvaluated *row = &g_array_index(rows, MsEvaluated, i);
    const char *words[] = {row->file, row->gpu, row->dtype, row->kind, row->library};
    for (size_t w = 0; w < G_N_ELEMENTS(words); w++) ms_table_cell(table, words[w]);
    cell_figures(table, row);
  }
  ms_cli_print(ms_table_take(table));
}

static int evaluate(const Options *o, char **files) {
  GError *error = NULL;
  g_autoptr(MsEvaluation) evaluation = ms_fit_evaluate(o->hardware, (const char *const *)files, o->held_back, &error);
  if (!evaluation) return ms_cli_fail(error);
  ms_cli_print_notes(evaluation->notes);
  if (o->json) {
    ms_cli_print(ms_figures_json(&ms_evaluation_figures, evaluation));
    return ms_cli_found(evaluation->rows->len > 0);
  }
  if (evaluation->tables < evaluation->all_tables)
    printf("INTERRUPTED: %d of %d tables are done, the rest is missing\n", evaluation->tables, evaluation->all_tables);
  print_table(evaluation->rows);
  fputs("\n", stdout);
  print_kinds(evaluation->kinds);
  if ((o->others || evaluation->rows->len == 0) && evaluation->others->len > 0) {
    fputs("\nother libraries than the curves were fitted to:\n", stdout);
    print_table(evaluation->others);
  }
  return ms_cli_found(evaluation->rows->len + evaluation->others->len > 0);
}

static int check(const MsVerb *verb, const Options *o, int files) {
  if (!o->hardware) return ms_cli_usage(verb, "give the machine: --hardware NAME");
  if (files < 1) return ms_cli_usage(verb, "give one or more tables of measurements");
  if (ms_cli_date(o->date)) return ms_cli_usage(verb, "%s", ms_cli_date(o->date));
  if (o->evaluate && (o->out || o->date || o->like))
    return ms_cli_usage(verb, "--evaluate learns nothing: --out, --date and --like do not go with it");
  if (!o->evaluate && (o->json || o->held_back || o->others))
    return ms_cli_usage(verb, "--json, --held-back and --others go with --evaluate");
  return 0;
}

int ms_cli_fit(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("fit");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"hardware", 0, 0, G_OPTION_ARG_STRING, &o.hardware,
       "the profile to start from, or to evaluate (several separated by commas)", "NAME"},
      {"out", 'o', 0, G_OPTION_ARG_STRING, &o.out, "where the profile goes (default: stdout)", "FILE"},
      {"date", 0, 0, G_OPTION_ARG_STRING, &o.date, "date of the provenance (default: $SOURCE_DATE_EPOCH, else today)",
       "YYYY-MM-DD"},
      {"like", 0, 0, G_OPTION_ARG_STRING, &o.like,
       "sister machine whose training-grade rows serve where this one has none", "NAME"},
      {"evaluate", 'e', 0, G_OPTION_ARG_NONE, &o.evaluate, "compare the profile's curves with the rows, learn nothing",
       NULL},
      {"held-back", 0, 0, G_OPTION_ARG_NONE, &o.held_back,
       "with --evaluate: only the 15 % of shapes that a fit never sees", NULL},
      {"others", 0, 0, G_OPTION_ARG_NONE, &o.others,
       "with --evaluate: also the rows of other libraries, which are shown anyway where there are no others", NULL},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "with --evaluate: one JSON object {\"rows\": [...]}", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    argv[argc] = NULL;
    status = check(verb, &o, argc - 1);
    if (status == 0) status = o.evaluate ? evaluate(&o, argv + 1) : fit(&o, argv + 1);
  }
  return ms_cli_done(entries, status);
}
