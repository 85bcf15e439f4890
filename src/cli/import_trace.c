#include "cli/import.h"

#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "study/align.h"
#include "study/profile.h"

enum { FEW = 12, FEW_STREAMS = 4 };

/* --- text ------------------------------------------------------------------------------------------------------ */
static void seconds(MsTable *table, double time_s) { ms_table_cell(table, isnan(time_s) ? "" : MS_SECONDS(time_s)); }

static void percent(MsTable *table, double share) { ms_table_cell(table, MS_PERCENT(share)); }

static void append_head(GString *out, const MsTraceTimes *t) {
  g_string_append_printf(out, "%s", t->file);
  if (t->device) g_string_append_printf(out, ": %s", t->device);
  if (t->rank >= 0) g_string_append_printf(out, ", rank %d of %d", t->rank, t->ranks);
  g_string_append_printf(out,
                         "\n  %d step%s (by %s), each %s; from its first kernel to its last %s, in %s of these\n"
                         "  some kernel runs; times below are of a step; families of kernels know %s of the time\n",
                         t->steps, t->steps == 1 ? "" : "s", t->steps_by, MS_SECONDS(t->step_s), MS_SECONDS(t->span_s),
                         MS_SECONDS(t->busy_s), MS_PERCENT(t->known));
}

/* NAN: it has no kernel of the class. */
static double time_on(const MsTraceStreamTime *stream, const char *class) {
  for (int p = 0; p < stream->n_parts; p++)
    if (strcmp(stream->parts[p].word, class) == 0) return stream->parts[p].time_s;
  return NAN;
}

/* "0": all of it there; "1 420.67 ms, 3 228.48 ms": the streams that have the most of it. (transfer full) */
static char *streams_of(const MsTraceTimes *t, const char *class) {
  const MsTraceStreamTime *most[FEW_STREAMS];
  int n = 0, all = 0;
  for (int k = 0; k < t->n_streams; k++) {
    double time_s = time_on(&t->streams[k], class);
    if (isnan(time_s)) continue;
    all++;
    if (n == FEW_STREAMS && !(time_s > time_on(most[n - 1], class))) continue;
    int at = n < FEW_STREAMS ? n++ : n - 1;
    for (; at > 0 && time_s > time_on(most[at - 1], class); at--) most[at] = most[at - 1];
    most[at] = &t->streams[k];
  }
  if (all == 1) return g_strdup(most[0]->name);
  GString *out = g_string_new(NULL);
  for (int i = 0; i < n; i++)
    g_string_append_printf(out, "%s%s %s", i ? ", " : "", most[i]->name, MS_SECONDS(time_on(most[i], class)));
  if (all > n) g_string_append_printf(out, ", %d more", all - n);
  return g_string_free(out, FALSE);
}

static void append_classes(GString *out, const MsTraceTimes *t) {
  MsTable *table = ms_table_of("class|>time|>share|>kernels|>median|>beside|>slowed|on stream");
  for (int i = 0; i < t->n_classes; i++) {
    const MsTraceClassTime *c = &t->classes[i];
    ms_table_cell(table, c->word);
    seconds(table, c->time_s);
    percent(table, c->share);
    ms_table_cellf(table, "%.6g", c->kernels);
    seconds(table, c->median_s);
    percent(table, c->beside);
    if (isnan(c->slowdown)) ms_table_cell(table, "");
    else ms_table_cellf(table, "%.3f", c->slowdown);
    g_autofree char *streams = streams_of(t, c->word);
    ms_table_cell(table, streams);
  }
  ms_table_append_below(table, out);
}

static void append_streams(GString *out, const MsTraceTimes *t) {
  MsTable *table = ms_table_of("stream|>kernels|>their time|>busy|>alone|>gaps|>median gap|>all gaps");
  for (int i = 0; i < t->n_streams && i < FEW; i++) {
    const MsTraceStreamTime *s = &t->streams[i];
    MS_TABLE_ROW(table, s->name, MS_FORMAT("%.6g", s->kernels));
    seconds(table, s->time_s);
    seconds(table, s->busy_s);
    seconds(table, s->alone_s);
    ms_table_cellf(table, "%.6g", s->gaps);
    seconds(table, s->median_gap_s);
    seconds(table, s->gap_s);
  }
  ms_table_append_below(table, out);
  for (int i = 0; i < t->n_overlaps && i < FEW; i++) {
    g_string_append_printf(out, "%s%s and %s %s", i ? ", " : "busy beside each other: ", t->overlaps[i].a,
                           t->overlaps[i].b, MS_SECONDS(t->overlaps[i].both_s));
  }
  if (t->n_overlaps > 0) g_string_append_c(out, '\n');
}

static void append_strange(GString *out, const MsTraceTimes *t) {
  if (t->n_strange == 0) return;
  MsTable *table = ms_table_of("unrecognised kernel|>time|>share");
  for (int i = 0; i < t->n_strange && i < FEW; i++) {
    g_autofree char *name = g_utf8_strlen(t->strange[i].name, -1) > 60 ? g_utf8_substring(t->strange[i].name, 0, 60)
                                                                       : g_strdup(t->strange[i].name);
    ms_table_cell(table, name);
    seconds(table, t->strange[i].time_s);
    percent(table, t->strange[i].share);
  }
  ms_table_append_below(table, out);
}

static void append_products(GString *out, const MsTraceTimes *t) {
  if (t->n_products == 0) return;
  MsTable *table = ms_table_of("product|>kernels|>median|>TFLOP/s");
  for (int i = 0; i < t->n_products; i++) {
    const MsTraceProduct *p = &t->products[i];
    if (p->groups > 1) ms_table_cellf(table, "%s %g x [%g %g %g]", p->dtype, p->groups, p->m, p->n, p->k);
    else ms_table_cellf(table, "%s %g x %g x %g", p->dtype, p->m, p->n, p->k);
    ms_table_cellf(table, "%g", p->kernels);
    seconds(table, p->median_s);
    ms_table_cellf(table, "%.4g", p->flops / 1e12);
  }
  ms_table_append_below(table, out);
}

static char *text_of(const GPtrArray *times) {
  GString *out = g_string_new(NULL);
  for (guint i = 0; i < times->len; i++) {
    const MsTraceTimes *t = times->pdata[i];
    if (i > 0) g_string_append_c(out, '\n');
    append_head(out, t);
    append_classes(out, t);
    append_streams(out, t);
    append_products(out, t);
    append_strange(out, t);
  }
  return g_string_free(out, FALSE);
}

static char *json_of(const GPtrArray *times) {
  GString *out = g_string_new(NULL);
  for (guint i = 0; i < times->len; i++) {
    g_autofree char *line = ms_figures_json(&ms_trace_figures, times->pdata[i]);
    g_string_append_printf(out, "%s\n", g_strchomp(line));
  }
  return g_string_free(out, FALSE);
}

/* --- files ----------------------------------------------------------------------------------------------------- */
static gboolean write_table(const char *folder, const char *name, const char *text, GError **error) {
  g_autofree char *file = g_build_filename(folder, name, NULL);
  if (!text) return TRUE;
  fprintf(stderr, "moesim: %s: for moesim fit\n", file);
  return ms_write_file(file, text, -1, error);
}

static gboolean write_tables(const char *folder, const GPtrArray *times, GError **error) {
  const MsTraceTimes *const *all = (const MsTraceTimes *const *)(gpointer)times->pdata;
  g_autofree char *gemm = ms_trace_gemm_csv(all, (int)times->len),
                  *collectives = ms_trace_collective_csv(all, (int)times->len);
  if (!folder) return TRUE;
  if (!gemm && !collectives)
    return ms_input_error(error, all[0]->file, 0, NULL,
                          "holds neither shapes of products nor sizes of collectives (PyTorch profiler: record with "
                          "record_shapes=True; or give --scenario, the run that it is of)");
  return ms_make_folder(folder, error) && write_table(folder, "gemm.csv", gemm, error) &&
         write_table(folder, "collectives.csv", collectives, error);
}

/* Its operators are found in the trace, and give shapes that the profiler did not record. */
static gboolean take_shapes(const char *scenario, MsTrace *trace, const MsKernelTable *table, GPtrArray *notes,
                            GError **error) {
  char share[MS_TEXT];
  g_autoptr(MsProfile) simulated = ms_profile_load(scenario, -1, trace->rank, table, notes, error);
  if (!simulated) return FALSE;
  if (simulated->kind != MS_PROFILE_SCENARIO) return ms_input_error(error, scenario, 0, NULL, "is no scenario");
  guint recorded = trace->shapes->len;
  g_autoptr(MsAligned) a = ms_aligned_new(simulated->trace, trace, table);
  g_ptr_array_add(notes, g_strdup_printf("%s: operators of %s were found for %s of the time of the kernels that "
                                         "compute; %u products have their shapes from there",
                                         trace->file, scenario, ms_text_percent(a->share, share),
                                         trace->shapes->len - recorded));
  return TRUE;
}

static gboolean read_all(const MsImportTrace *o, char **files, const MsKernelTable *table, GPtrArray *traces,
                         GPtrArray *times, GPtrArray *notes, GError **error) {
  for (int i = 0; files[i]; i++) {
    g_autoptr(MsTrace) trace = ms_trace_load(files[i], o->device, table, notes, error);
    if (!trace) return FALSE;
    if (trace->form != o->form)
      return ms_input_error(error, files[i], 0, NULL, "is a profile of %s: moesim import %s %s",
                            ms_trace_words[trace->form], ms_trace_words[trace->form], files[i]);
    if (o->scenario && !take_shapes(o->scenario, trace, table, notes, error)) return FALSE;
    g_ptr_array_add(times, ms_trace_times_new(trace, table));
    g_ptr_array_add(traces, g_steal_pointer(&trace));
  }
  return TRUE;
}

int ms_cli_import_trace(const MsImportTrace *o, char **files) {
  GError *error = NULL;
  g_autoptr(GPtrArray) traces = g_ptr_array_new_with_free_func((GDestroyNotify)ms_trace_free),
                       times = g_ptr_array_new_with_free_func((GDestroyNotify)ms_trace_times_free),
                       notes = g_ptr_array_new_with_free_func(g_free);
  int status = ms_cli_outputs(o->out);
  if (status != 0) return status;
  g_autoptr(MsKernelTable) table = ms_kernel_table_load(&error);
  if (!table || !read_all(o, files, table, traces, times, notes, &error)) return ms_cli_fail(error);
  for (guint i = 0; i < notes->len; i++) fprintf(stderr, "moesim: %s\n", (const char *)notes->pdata[i]);
  if (!write_tables(o->tables, times, &error)) return ms_cli_fail(error);
  g_autofree char *text = o->json ? json_of(times) : text_of(times);
  return ms_write_file(o->out ? o->out : "-", text, -1, &error) ? 0 : ms_cli_fail(error);
}
