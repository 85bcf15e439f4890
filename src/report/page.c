/* src/report/page.c - the page: its data as one JSON block inside the embedded markup, style and script. */
#include "report/page.h"

#include <string.h>

#include "base/err.h"
#include "report/page_text.h"
#include "sim/band.h"

struct MsPage {
  char *title;
  gboolean live;
  GPtrArray *runs, *studies;      /* JSON text of each */
  char *validation, *diff, *plan; /* JSON text, NULL without */
};

/* --- one run --------------------------------------------------------------------------------------------------- */
#define R(run) ((const MsPageRun *)(run))

static const char *run_name(const void *run) { return R(run)->result->name; }
static const void *run_machine(const void *run) { return R(run)->scenario->hardware; }
static const void *simulated(const void *run) { return R(run)->detail ? run : NULL; }

static double peak_flops(const void *run) {
  const MsScenario *s = R(run)->scenario;
  return ms_hardware_peak_flops(s->hardware, s->training.precision);
}
static const char *model_name(const void *run) { return R(run)->scenario->model->name; }
static double model_layers(const void *run) { return R(run)->scenario->model->num_layers; }
static double band_common(const void *run) { return ms_band_common(&R(run)->scenario->laws, &R(run)->result->ground); }
static const char *software(const void *run) { return R(run)->scenario->software; }

const MsFigures ms_page_figures = MS_FIGURE_TABLE(
    "report",
    "`moesim report --json`, and what the page draws. Lists of plain numbers are rows "
    "laid\nend to end.",
    MS_FIGURE_TEXT("name", run_name, "of the scenario"),
    MS_FIGURE_OBJECT_AT("result", MsPageRun, result, &ms_result_figures),
    MS_FIGURE_FILE_AT("scenario", MsPageRun, scenario, ms_report_scenario, "complete: it runs"),
    MS_FIGURE_GROUP(
        "machine",
        MS_FIGURES(
            MS_FIGURE_ROWS_OF(run_machine, MS_FIGURES(MS_FIGURE(STRING, MsHardware, name, "", "of the profile"))),
            MS_FIGURE_OF("peak_flops", F64, peak_flops, "FLOP/s", "of the precision's matrix unit", MS_OR_NULL),
            MS_FIGURE_ROWS_OF(
                run_machine,
                MS_FIGURES(
                    MS_FIGURE(F64, MsHardware, hbm_B, "B", "device memory", MS_OR_NULL),
                    MS_FIGURE(F64, MsHardware, hbm_Bps, "B/s", "of device memory", MS_OR_NULL),
                    MS_FIGURE(STRING, MsHardware, scaleup, "", "name of the links in a domain", MS_OR_NULL),
                    MS_FIGURE(F64, MsHardware, scaleup_Bps, "B/s", "of a GPU in its domain", MS_OR_NULL),
                    MS_FIGURE(F64, MsHardware, nic_Bps, "B/s", "of a GPU on the network", MS_OR_NULL),
                    MS_FIGURE(F64, MsHardware, host_link_Bps, "B/s", "between a GPU and its host", MS_OR_NULL))))),
    MS_FIGURE_GROUP("model", MS_FIGURES(MS_FIGURE_TEXT("name", model_name, "of the model"),
                                        MS_FIGURE_AS("parameters", F64, MsPageRun, params.total, "", "without MTP"),
                                        MS_FIGURE_AS("active", F64, MsPageRun, params.active, "", "of them, per token"),
                                        MS_FIGURE_OF("layers", INT, model_layers, "", "without MTP"))),
    MS_FIGURE_GROUP("band",
                    MS_FIGURES(MS_FIGURE_ROWS_AT(MsPageRun, result,
                                                 MS_FIGURES(MS_FIGURE_AS("total", F64, MsResult, band, "1",
                                                                         "error_band of the result", MS_OR_NULL),
                                                            MS_FIGURE_AS("curves", F64, MsResult, band_curves, "1",
                                                                         "from the curves' fits", MS_OR_NULL))),
                               MS_FIGURE_OF("common", F64, band_common, "1", "what errors have in common", MS_OR_NULL),
                               MS_FIGURE_TEXT("software", software, "the stack", MS_OR_NULL))),
    MS_FIGURE_ARRAY("advice", LIST, MsPageRun, advice.line, advice.n, &ms_figure_texts,
                    .doc = "what to do, a sentence each"),
    MS_FIGURE_ROWS_OF(simulated, &ms_page_placement_figures, .only = "simulated in full"),
    MS_FIGURE_ROWS_OF(simulated, &ms_page_steps_figures, .only = ""),
    MS_FIGURE_ROWS_OF(simulated, &ms_page_kept_figures, .only = ""),
    MS_FIGURE_ROWS_OF(simulated, &ms_page_operators_figures, .only = ""),
    MS_FIGURE_ROWS_OF(simulated, &ms_page_fabric_figures));

void ms_page_run(const MsScenario *s, const MsResult *r, const MsDetail *d, const MsChanges *changes, MsJsonOut *out) {
  MsPageRun run = {.scenario = s, .result = r, .detail = d, .params = ms_model_params(s->model)};
  if (d) {
    run.passes = ms_slot_spans_new(d);
    ms_page_find_kept(&run), ms_page_find_operators(&run);
    ms_page_find_fabric(&run);
    if (changes) run.advice = ms_advice_of(r, changes);
  }
  ms_figures_write(&ms_page_figures, &run, NULL, out);
  if (!d) return;
  ms_slot_spans_clear(&run.passes);
  ms_advice_clear(&run.advice);
  ms_page_clear_fabric(&run);
  GArray *const rows[] = {run.kept, run.comm, run.operators, run.roofs};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) g_array_free(rows[i], TRUE);
}

/* --- validation: the points of the scatter --------------------------------------------------------------------- */
typedef struct {
  const char *where;
  const MsValidation *validation;
} Scatter;

static const void *step_time_errors(const void *scatter) {
  return &((const Scatter *)scatter)->validation->metric[MS_METRIC_STEP_TIME];
}
static gboolean is_compared(const void *row) {
  return ((const MsValidateRow *)row)->metric == MS_METRIC_STEP_TIME && ((const MsValidateRow *)row)->counted;
}

static const MsFigures scatter_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, Scatter, where, "", "folder or file"),
    MS_FIGURE_ROWS_OF(step_time_errors, MS_FIGURES(MS_FIGURE(INT, MsErrorSummary, n, "", "runs"),
                                                   MS_FIGURE(F64, MsErrorSummary, median_ape, "1", "median error"),
                                                   MS_FIGURE(F64, MsErrorSummary, p90_ape, "1", "90th percentile"),
                                                   MS_FIGURE(F64, MsErrorSummary, bias, "1", "mean"),
                                                   MS_FIGURE_AS("inside_band", F64, MsErrorSummary, inside, "1",
                                                                "share of runs in their band"))),
    MS_FIGURE_ROWS_AT(Scatter, validation,
                      MS_FIGURES(MS_FIGURE_ARRAY(
                          "rows", LIST, MsValidation, rows, n_rows,
                          MS_FIGURES(MS_FIGURE(STRING, MsValidateRow, name, "", "of the run"),
                                     MS_FIGURE_AS("gpu", STRING, MsValidateRow, label.of[MS_BY_GPU], "", "machine"),
                                     MS_FIGURE_AS("model", STRING, MsValidateRow, label.of[MS_BY_MODEL], "", "model"),
                                     MS_FIGURE_AS("measured_s", F64, MsValidateRow, measured, "s", "step time"),
                                     MS_FIGURE_AS("predicted_s", F64, MsValidateRow, predicted, "s", "step time"),
                                     MS_FIGURE(F64, MsValidateRow, band, "1", "error_band of the prediction")),
                          .keep = is_compared))));

/* --- the page -------------------------------------------------------------------------------------------------- */
MsPage *ms_page_new(const char *title) {
  MsPage *page = g_new0(MsPage, 1);
  page->title = g_strdup(title);
  page->runs = g_ptr_array_new_with_free_func(g_free);
  page->studies = g_ptr_array_new_with_free_func(g_free);
  return page;
}

static char *own_name(const MsScenario *s) { return s->name ? s->name : s->file; }

char *ms_page_run_json(const MsScenario *s, const char *name, GError **error) {
  g_autoptr(MsDetail) detail = NULL;
  g_autoptr(MsResult) result = ms_simulate(s, MS_FIDELITY_FULL, &detail, error);
  if (!result) return NULL;
  g_free(result->name);
  result->name = g_strdup(name ? name : own_name(s));
  g_autoptr(MsChanges) changes = ms_changes_new(s);
  MsJsonOut *out = ms_json_out_new(0);
  ms_page_run(s, result, detail, changes, out);
  return ms_json_out_take(out);
}

gboolean ms_page_add_run(MsPage *page, const MsScenario *s, const char *name, GError **error) {
  char *json = ms_page_run_json(s, name, error);
  if (!json) return FALSE;
  g_ptr_array_add(page->runs, json);
  if (!page->title) page->title = g_strdup(name ? name : own_name(s));
  return TRUE;
}

void ms_page_add_printed(MsPage *page, const char *json) {
  g_autoptr(MsJson) doc = page->title ? NULL : ms_json_parse(json, -1, "run", NULL);
  JsonObject *run = doc ? ms_json_object(ms_json_root(doc)) : NULL;
  g_ptr_array_add(page->runs, g_strdup(json));
  if (!page->title) page->title = g_strdup(ms_json_string(ms_json_member(run, "name")));
}

void ms_page_add_whatif(MsPage *page, const MsWhatifRun *run) {
  g_ptr_array_add(page->studies, ms_figures_json(&ms_page_study_figures, run));
}

void ms_page_set_validation(MsPage *page, const MsValidation *validation, const char *where) {
  g_free(page->validation);
  page->validation = ms_figures_json(&scatter_figures, &(Scatter){where, validation});
}

void ms_page_set_diff(MsPage *page, const MsDiff *diff) {
  g_free(page->diff);
  page->diff = ms_page_diff_text(diff);
  if (!page->title) page->title = g_strdup_printf("%s and %s", diff->a->file, diff->b->file);
}

void ms_page_set_plan(MsPage *page, const char *json) {
  g_free(page->plan);
  page->plan = g_strdup(json);
}

void ms_page_is_incomplete(MsPage *page) {
  char *title = g_strdup_printf("%s (interrupted: not all of it)", page->title ? page->title : "moesim");
  g_free(page->title);
  page->title = title;
}

/* JSON inside a script element: "<" would be able to close it, so it is written as the escape that JSON has for it. It
 * stands in strings only. */
static void append_block(GString *to, const char *json) {
  for (const char *p = json; *p; p++)
    if (*p == '<') g_string_append(to, "\\u003c");
    else g_string_append_c(to, *p);
}

static void append_list(GString *to, const char *key, const GPtrArray *texts) {
  g_string_append_printf(to, ",\"%s\":[", key);
  for (guint i = 0; i < texts->len; i++) {
    if (i) g_string_append_c(to, ',');
    append_block(to, texts->pdata[i]);
  }
  g_string_append_c(to, ']');
}

static void append_data(GString *to, const MsPage *page) {
  g_string_append_printf(to, "{\"live\":%s", page->live ? "true" : "false");
  append_list(to, "runs", page->runs);
  append_list(to, "studies", page->studies);
  g_string_append(to, ",\"validation\":");
  append_block(to, page->validation ? page->validation : "null");
  g_string_append(to, ",\"diff\":");
  append_block(to, page->diff ? page->diff : "null");
  g_string_append(to, ",\"plan\":");
  append_block(to, page->plan ? page->plan : "null");
  g_string_append_c(to, '}');
}

/* 'sha256-...' of a text as it stands between the lines of its tags. */
static void append_hash(GString *to, const char *text) {
  guint8 digest[32];
  gsize n = sizeof digest;
  g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
  g_checksum_update(sum, (const guchar *)"\n", 1);
  g_checksum_update(sum, (const guchar *)text, -1);
  g_checksum_update(sum, (const guchar *)"\n", 1);
  g_checksum_get_digest(sum, digest, &n);
  g_autofree char *base64 = g_base64_encode(digest, n);
  g_string_append_printf(to, "'sha256-%s'", base64);
}

char *ms_page_policy(gboolean live) {
  GString *to = g_string_new("default-src 'none'; style-src ");
  append_hash(to, ms_page_style);
  g_string_append(to, "; script-src ");
  append_hash(to, ms_page_script);
  g_string_append_printf(to, "; img-src data: blob:; connect-src %s; base-uri 'none'; form-action 'none'",
                         live ? "'self'" : "'none'");
  return g_string_free(to, FALSE);
}

/* The markup holds a marker on a line of its own for everything that goes in. */
static void append_part(GString *to, const char *marker, const MsPage *page) {
  g_autofree char *title = g_markup_escape_text(page->title ? page->title : "moesim", -1),
                  *policy = ms_page_policy(page->live);
  if (strcmp(marker, "POLICY") == 0) g_string_append(to, policy);
  else if (strcmp(marker, "TITLE") == 0) g_string_append(to, title);
  else if (strcmp(marker, "STYLE") == 0) g_string_append(to, ms_page_style);
  else if (strcmp(marker, "SCRIPT") == 0) g_string_append(to, ms_page_script);
  else if (strcmp(marker, "DATA") == 0) append_data(to, page);
  else MS_BUG("the page has an unknown marker %s", marker);
}

char *ms_page_take(MsPage *page) {
  GString *html = g_string_new(NULL);
  g_auto(GStrv) part = g_strsplit(ms_page_markup, "@@", -1); /* text and marker in turn */
  for (int i = 0; part[i]; i++) {
    if (i % 2) append_part(html, part[i], page);
    else g_string_append(html, part[i]);
  }
  g_free(page->title);
  g_free(page->diff);
  g_free(page->plan);
  g_free(page->validation);
  g_ptr_array_free(page->runs, TRUE);
  g_ptr_array_free(page->studies, TRUE);
  g_free(page);
  return g_string_free(html, FALSE);
}

char *ms_page_live(void) {
  MsPage *page = ms_page_new("moesim");
  page->live = TRUE;
  return ms_page_take(page);
}
