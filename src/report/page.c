/* src/report/page.c - the page: its data as one JSON block inside the embedded markup, style and script. */
#include "report/page.h"

#include <string.h>

#include "base/err.h"
#include "report/page_text.h"

struct MsPage {
  char *title;
  gboolean live;
  GPtrArray *runs, *studies; /* JSON text of each */
  char *validation;          /* JSON text, NULL without */
};

/* --- one run --------------------------------------------------------------------------------------------------- */
static void write_machine(const MsHardware *h, MsPrecision precision, MsJsonOut *out) {
  ms_json_out_object(out, "machine");
  ms_json_out_string(out, "name", h->name);
  ms_json_out_double(out, "peak_flops", ms_hardware_peak_flops(h, precision));
  ms_json_out_double(out, "hbm_B", h->hbm_B);
  ms_json_out_double(out, "hbm_Bps", h->hbm_Bps);
  ms_json_out_string(out, "scaleup", h->scaleup);
  ms_json_out_double(out, "scaleup_Bps", h->scaleup_Bps);
  ms_json_out_double(out, "nic_Bps", h->nic_Bps);
  ms_json_out_double(out, "host_link_Bps", h->host_link_Bps);
  ms_json_out_end(out);
}

static void write_model(const MsModel *m, MsJsonOut *out) {
  MsParamCount count = ms_model_params(m);
  ms_json_out_object(out, "model");
  ms_json_out_string(out, "name", m->name);
  ms_json_out_double(out, "parameters", count.total);
  ms_json_out_double(out, "active", count.active);
  ms_json_out_int(out, "layers", m->num_layers);
  ms_json_out_end(out);
}

static void write_band_source(const MsScenario *s, const MsResult *r, MsJsonOut *out) {
  ms_json_out_object(out, "band");
  ms_json_out_double(out, "total", r->band);
  ms_json_out_double(out, "curves", r->band_curves);
  ms_json_out_double(out, "hardware", s->hardware->band);
  ms_json_out_string(out, "software", s->software);
  ms_json_out_end(out);
}

void ms_page_run(const MsScenario *s, const MsResult *r, const MsDetail *d, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_string(out, "name", r->name);
  ms_figures_write(&ms_result_figures, r, "result", out);
  ms_scenario_write(s, "scenario", out);
  write_machine(s->hardware, s->training.precision, out);
  write_model(s->model, out);
  write_band_source(s, r, out);
  if (d) {
    ms_page_layout(s, d->layout, out);
    ms_page_passes(d, out);
    ms_page_kept(r->memory, d, out);
    ms_page_comm(s, d, r, out);
    ms_page_operators(s, d, out);
  }
  ms_json_out_end(out);
}

/* --- validation: the points of the scatter --------------------------------------------------------------------- */
static char *validation_json(const MsValidation *v, const char *where) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "where", where);
  const MsErrorSummary *e = &v->metric[MS_METRIC_STEP_TIME];
  ms_json_out_int(out, "n", e->n);
  ms_json_out_double(out, "median_ape", e->median_ape);
  ms_json_out_double(out, "p90_ape", e->p90_ape);
  ms_json_out_double(out, "bias", e->bias);
  ms_json_out_double(out, "inside_band", e->inside);
  ms_json_out_array(out, "rows");
  for (guint i = 0; i < v->n_rows; i++) {
    const MsValidateRow *row = &v->rows[i];
    if (row->metric != MS_METRIC_STEP_TIME || !row->counted) continue;
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "name", row->name);
    ms_json_out_string(out, "gpu", row->label.of[MS_BY_GPU]);
    ms_json_out_string(out, "model", row->label.of[MS_BY_MODEL]);
    ms_json_out_double(out, "measured_s", row->measured);
    ms_json_out_double(out, "predicted_s", row->predicted);
    ms_json_out_double(out, "band", row->band);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

/* --- the page -------------------------------------------------------------------------------------------------- */
MsPage *ms_page_new(const char *title) {
  MsPage *page = g_new0(MsPage, 1);
  page->title = g_strdup(title);
  page->runs = g_ptr_array_new_with_free_func(g_free);
  page->studies = g_ptr_array_new_with_free_func(g_free);
  return page;
}

void ms_page_add_run(MsPage *page, const MsScenario *s, const MsResult *r, const MsDetail *d) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_page_run(s, r, d, NULL, out);
  g_ptr_array_add(page->runs, ms_json_out_take(out));
  if (!page->title) page->title = g_strdup(r->name);
}

void ms_page_add_whatif(MsPage *page, const MsWhatifRun *run) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_page_whatif(run, out);
  g_ptr_array_add(page->studies, ms_json_out_take(out));
}

void ms_page_set_validation(MsPage *page, const MsValidation *validation, const char *where) {
  g_free(page->validation);
  page->validation = validation_json(validation, where);
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
  g_string_append_c(to, '}');
}

/* The markup holds a marker on a line of its own for everything that goes in. */
static void append_part(GString *to, const char *marker, const MsPage *page) {
  g_autofree char *title = g_markup_escape_text(page->title ? page->title : "moesim", -1);
  if (strcmp(marker, "TITLE") == 0) g_string_append(to, title);
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
