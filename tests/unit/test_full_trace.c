/* The trace of a whole DeepSeek-V3 step, event by event, by the rules of the Trace Event Format that Perfetto reads:
 * complete JSON objects; known phases with the members that each needs; spans of a track one after another or inside
 * one another, never across; counters in the order of time; every process and thread named. */
#include "lib/close.h"

#include "lib/world.h"
#include "report/report.h"

#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  double start, end;
} Span; /* us */

typedef struct {
  GHashTable *tracks;   /* "pid.tid" -> GArray of Span */
  GHashTable *named;    /* "process pid", "thread pid.tid" */
  GHashTable *counters; /* "pid name" -> last time, double * */
  guint spans, counts, metadata;
} Trace;

static double number(JsonObject *event, const char *key, const char *line) {
  JsonNode *node = json_object_has_member(event, key) ? json_object_get_member(event, key) : NULL;
  GType type = node && JSON_NODE_HOLDS_VALUE(node) ? json_node_get_value_type(node) : 0;
  if (type != G_TYPE_INT64 && type != G_TYPE_DOUBLE) fail_msg("no number %s: %s", key, line);
  double value = json_node_get_double(node);
  if (!(value >= 0)) fail_msg("%s is %g: %s", key, value, line);
  return value;
}

static const char *word(JsonObject *event, const char *key, const char *line) {
  JsonNode *node = json_object_has_member(event, key) ? json_object_get_member(event, key) : NULL;
  if (!node || !JSON_NODE_HOLDS_VALUE(node) || json_node_get_value_type(node) != G_TYPE_STRING)
    fail_msg("no text %s: %s", key, line);
  return json_node_get_string(node);
}

static char *track_of(JsonObject *event, const char *line) {
  return g_strdup_printf("%.0f.%.0f", number(event, "pid", line), number(event, "tid", line));
}

static void take_span(Trace *t, JsonObject *event, const char *line) {
  char *key = track_of(event, line);
  GArray *spans = g_hash_table_lookup(t->tracks, key);
  if (!spans) {
    spans = g_array_new(FALSE, FALSE, sizeof(Span));
    g_hash_table_insert(t->tracks, g_strdup(key), spans);
  }
  g_free(key);
  Span span = {number(event, "ts", line), 0};
  span.end = span.start + number(event, "dur", line);
  g_array_append_val(spans, span);
  word(event, "name", line), word(event, "cat", line);
  if (!JSON_NODE_HOLDS_OBJECT(json_object_get_member(event, "args"))) fail_msg("args: %s", line);
  t->spans++;
}

static void take_counter(Trace *t, JsonObject *event, const char *line) {
  char *key = g_strdup_printf("%.0f %s", number(event, "pid", line), word(event, "name", line));
  double now = number(event, "ts", line), *last = g_hash_table_lookup(t->counters, key);
  if (last && now < *last) fail_msg("a counter goes back in time: %s", line);
  number(json_object_get_object_member(event, "args"), "GiB", line);
  g_hash_table_insert(t->counters, key, g_memdup2(&now, sizeof now));
  t->counts++;
}

static void take_metadata(Trace *t, JsonObject *event, const char *line) {
  static const char *const known[] = {"process_name",      "process_sort_index", "thread_name",
                                      "thread_sort_index", "trace_end",          NULL};
  const char *name = word(event, "name", line);
  if (!g_strv_contains(known, name)) fail_msg("unknown metadata: %s", line);
  g_autofree char *track = track_of(event, line);
  if (strcmp(name, "process_name") == 0)
    g_hash_table_add(t->named, g_strdup_printf("process %.0f", number(event, "pid", line)));
  if (strcmp(name, "thread_name") == 0) g_hash_table_add(t->named, g_strdup_printf("thread %s", track));
  t->metadata++;
}

static void take_line(Trace *t, char *line) {
  GError *error = NULL;
  gsize length = strlen(line);
  if (length && line[length - 1] == ',') line[--length] = 0;
  g_autoptr(MsJson) doc = ms_json_parse(line, (gssize)length, "event", &error);
  if (!doc) fail_msg("%s", error->message);
  JsonObject *event = json_node_get_object(ms_json_root(doc));
  const char *phase = word(event, "ph", line);
  if (strcmp(phase, "X") == 0) take_span(t, event, line);
  else if (strcmp(phase, "C") == 0) take_counter(t, event, line);
  else if (strcmp(phase, "M") == 0) take_metadata(t, event, line);
  else fail_msg("unknown phase: %s", line);
}

static int by_start(gconstpointer a, gconstpointer b) {
  const Span *x = a, *y = b;
  return x->start != y->start ? (x->start < y->start ? -1 : 1) : x->end > y->end ? -1 : x->end < y->end;
}

static void check_track(const char *key, GArray *spans, const Trace *t) {
  double open[64];
  int depth = 0;
  g_array_sort(spans, by_start);
  for (guint i = 0; i < spans->len; i++) {
    Span s = g_array_index(spans, Span, i);
    while (depth > 0 && open[depth - 1] <= s.start + 1e-6) depth--; /* a picosecond: sums of doubles */
    if (depth > 0 && s.end > open[depth - 1] + 1e-6)
      fail_msg("track %s: a span from %.6f to %.6f crosses one that ends at %.6f", key, s.start, s.end,
               open[depth - 1]);
    assert_true(depth < (int)G_N_ELEMENTS(open));
    open[depth++] = s.end;
  }
  g_auto(GStrv) part = g_strsplit(key, ".", 2);
  g_autofree char *process = g_strdup_printf("process %s", part[0]), *thread = g_strdup_printf("thread %s", key);
  if (!g_hash_table_contains(t->named, process) || !g_hash_table_contains(t->named, thread))
    fail_msg("track %s has no name", key);
}

static void read_trace(Trace *t, const char *file) {
  FILE *in = fopen(file, "r");
  char *line = NULL;
  size_t room = 0;
  assert_non_null(in);
  assert_true(getline(&line, &room, in) > 0);
  assert_string_equal(line, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  gboolean last = FALSE, closed = FALSE;
  for (ssize_t n; (n = getline(&line, &room, in)) > 0;) {
    line[n - 1] = 0;
    if (last) {
      assert_string_equal(line, "]}");
      closed = TRUE;
      continue;
    }
    last = line[n - 2] != ','; /* the last element has no comma */
    take_line(t, line);
  }
  assert_true(closed);
  free(line);
  fclose(in);
}

static void a_whole_step_is_a_trace_that_perfetto_reads(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) s = ms_scenario_load(MS_SOURCE_DIR "/scenarios/run-deepseek-v3-gb200-256.json", &error);
  g_autoptr(MsDetail) detail = NULL;
  g_autoptr(MsResult) result = s ? ms_simulate(s, MS_FIDELITY_FULL, &detail, &error) : NULL;
  if (!result) fail_msg("%s", error->message);
  g_autofree char *folder = g_dir_make_tmp("moesim-trace-XXXXXX", NULL),
                  *file = g_build_filename(folder, "step.json", NULL);
  assert_true(ms_report_trace(detail, file, &error));
  Trace t = {g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_array_unref),
             g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
             g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
             0,
             0,
             0};
  read_trace(&t, file);
  guint passes = 0;
  for (int i = 0; i < detail->schedule->stages; i++) passes += (guint)detail->schedule->n[i];
  assert_int_equal(t.spans, detail->trajectory->n + passes);
  assert_int_equal(t.counts, passes + (guint)detail->schedule->stages);
  GHashTableIter iter;
  gpointer key, spans;
  g_hash_table_iter_init(&iter, t.tracks);
  while (g_hash_table_iter_next(&iter, &key, &spans)) check_track(key, spans, &t);
  g_hash_table_unref(t.tracks);
  g_hash_table_unref(t.named);
  g_hash_table_unref(t.counters);
  g_unlink(file);
  g_rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_step_is_a_trace_that_perfetto_reads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
