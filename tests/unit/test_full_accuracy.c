/* The guard of the accuracy: validation over the carried runs must not be worse than the figures in
 * tests/data/accuracy.json by more than the tolerance that stands beside each. `make accuracy-update` (this program
 * with --update) writes the figures anew and keeps the tolerances. The last column of docs/machines.md comes from the
 * same validation. Full tier only. */
#include "lib/close.h"

#include "base/io.h"
#include "study/ladder.h"
#include "study/regret.h"

#include <string.h>

#define FIGURES "tests/data/accuracy.json"
#define LADDERS "tests/data/ladders.json" /* the sets whose runs are carried */

typedef struct {
  const char *name;
  double value, slack; /* slack: tolerance of a new file; negative: larger is better */
} Figure;

enum { MAX_FIGURES = 48, MAX_PAGE_B = 1 << 20 };
static Figure figures[MAX_FIGURES];
static guint n_figures;
typedef struct {
  guint n;
  char *told; /* what docs/machines.md says of them */
} Runs;
static GHashTable *runs_of; /* published runs of a machine by its name */

static void add(const char *name, double value, double slack) {
  assert_true(n_figures < MAX_FIGURES);
  figures[n_figures++] = (Figure){name, value, slack};
}

static const MsErrorSummary *exact_of(const MsValidation *v, MsMetric metric) {
  for (guint g = 0; g < v->n_confidence; g++)
    if (g_str_equal(v->confidence[g].name, "exact")) return &v->confidence[g].metric[metric];
  fail_msg("no exactly known run");
  return NULL;
}

static double worst_median(const MsValidation *v) {
  double worst = 0;
  for (guint g = 0; g < v->n_groups; g++)
    if (v->groups[g].metric[MS_METRIC_STEP_TIME].n >= 8)
      worst = MAX(worst, v->groups[g].metric[MS_METRIC_STEP_TIME].median_ape);
  return worst;
}

/* Sources of a few runs, each on its own. */
static void add_sources(const MsValidation *v) {
  guint n;
  MsValidateGroup *sources = ms_validation_groups(v, MS_BY_SOURCE, &n);
  for (guint i = 0; i < n; i++) {
    const MsErrorSummary *time = &sources[i].metric[MS_METRIC_STEP_TIME];
    g_autofree char *name = g_strdup_printf("mean_of_%s", sources[i].name);
    if (time->n >= 3) add(g_intern_string(name), time->mape, 0.02);
  }
  ms_validation_groups_free(sources, n);
}

static void runs_free(gpointer runs) { g_free(((Runs *)runs)->told), g_free(runs); }

static void note_runs(const MsValidation *v) {
  runs_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, runs_free);
  for (guint g = 0; g < v->n_groups; g++) {
    const MsErrorSummary *time = &v->groups[g].metric[MS_METRIC_STEP_TIME];
    if (time->n == 0) continue;
    Runs *runs = g_new(Runs, 1);
    runs->n = time->n;
    runs->told = g_strdup_printf("%u run%s: %.1f %%", time->n, time->n > 1 ? "s" : "", 100 * time->median_ape);
    g_hash_table_insert(runs_of, g_strdup(v->groups[g].name), runs);
  }
}

static void measure(void) {
  static const char *const paths[] = {"scenarios/published", NULL};
  MsValidateOptions options;
  GError *error = NULL;
  ms_validate_options_init(&options);
  options.by = MS_BY_GPU;
  g_autoptr(MsValidation) v = ms_validate(paths, &options, &error);
  if (!v) fail_msg("%s", error->message);
  g_autoptr(MsJson) sets = ms_json_load(LADDERS, &error);
  g_autoptr(MsLadders) ladders = sets ? ms_ladders(v, sets, &error) : NULL;
  if (!ladders) fail_msg("%s", error->message);
  const MsErrorSummary *time = exact_of(v, MS_METRIC_STEP_TIME), *memory = exact_of(v, MS_METRIC_PEAK_MEMORY);
  n_figures = 0;
  add("runs_refused", v->refused, 0);
  add("step_time_exact_median", time->median_ape, 0.01);
  add("step_time_exact_mean", time->mape, 0.02);
  add("step_time_exact_p90", time->p90_ape, 0.04);
  add("step_time_exact_bias", fabs(time->bias), 0.02);
  add("step_time_exact_outside_band", 1 - time->inside, 0.05);
  add("step_time_worst_gpu_median", worst_median(v), 0.03);
  add("step_time_all_mean", v->metric[MS_METRIC_STEP_TIME].mape, 0.02);
  add("peak_memory_exact_median", memory->median_ape, 0.01);
  add("peak_memory_exact_mean", memory->mape, 0.02);
  add("peak_memory_exact_p90", memory->p90_ape, 0.03);
  add("ran_predicted_infeasible", v->fit_refused, 2);
  add("ladders_tau", ms_order_tau(&ladders->all), -0.03);
  add("ladders_published_tau", ms_order_tau(&ladders->published), -0.05);
  add("single_knob_right", (double)ladders->single.right / ladders->single.pairs, -0.03);
  g_autoptr(MsRegret) regret = ms_regret(v, &error);
  if (!regret) fail_msg("%s", error->message);
  add("regret_mean", regret->mean, 0.005);
  add("regret_max", regret->max, 0.05);
  add_sources(v);
  note_runs(v);
}

static JsonObject *stored(MsJson **doc) {
  GError *error = NULL;
  *doc = ms_json_load(FIGURES, &error);
  if (!*doc) fail_msg("%s; make accuracy-update writes it", error->message);
  return json_object_get_object_member(json_node_get_object(ms_json_root(*doc)), "figures");
}

static void no_figure_is_worse_than_stored(void **state) {
  (void)state;
  MsJson *doc;
  JsonObject *want = stored(&doc);
  guint worse = 0;
  assert_int_equal(json_object_get_size(want), n_figures);
  for (guint i = 0; i < n_figures; i++) {
    const Figure *f = &figures[i];
    JsonObject *one = json_object_get_object_member(want, f->name);
    if (!one) fail_msg("%s has no figure %s; make accuracy-update", FIGURES, f->name);
    double value = json_object_get_double_member(one, "value"), slack = json_object_get_double_member(one, "tolerance");
    gboolean bad = f->slack < 0 ? f->value < value - slack : f->value > value + slack;
    if (bad) print_error("%s is %.4f, was %.4f (tolerance %.4f)\n", f->name, f->value, value, slack);
    worse += bad != 0;
  }
  ms_json_free(doc);
  assert_int_equal(worse, 0);
}

static void the_machines_tell_their_runs(void **state) {
  (void)state;
  GError *error = NULL;
  gsize length;
  g_autofree char *page = ms_read_file("docs/machines.md", MAX_PAGE_B, &length, &error);
  if (!page) fail_msg("%s", error->message);
  g_auto(GStrv) lines = g_strsplit(page, "\n", -1);
  guint told = 0;
  for (int i = 0; lines[i]; i++) {
    if (!g_str_has_prefix(lines[i], "| ")) continue;
    g_auto(GStrv) cell = g_strsplit(lines[i], " | ", -1);
    g_autofree char *file = g_strdup_printf("hardware/%s.json", *cell + 2);
    if (!g_file_test(file, G_FILE_TEST_EXISTS)) continue;
    const Runs *runs = g_hash_table_lookup(runs_of, *cell + 2);
    const char *last = cell[g_strv_length(cell) - 1];
    g_autofree char *end = g_strconcat(runs ? runs->told : "none", " |", NULL);
    if (strcmp(last, end) != 0) fail_msg("%s: \"%s\", here \"%s\"; make machines", file, last, end);
    if (!runs) continue;
    told++;
    g_autoptr(MsHardware) machine = ms_hardware_load(file, &error);
    if (!machine) fail_msg("%s", error->message);
    if (machine->published_runs != (int)runs->n)
      fail_msg("%s: published_runs is %d, %u are carried", file, machine->published_runs, runs->n);
  }
  assert_int_equal(told, g_hash_table_size(runs_of));
}

/* Figures that exist keep their tolerance. */
static double tolerance_of(JsonObject *before, const Figure *f) {
  JsonObject *one =
      before && json_object_has_member(before, f->name) ? json_object_get_object_member(before, f->name) : NULL;
  return one ? json_object_get_double_member(one, "tolerance") : fabs(f->slack);
}

static int update(void) {
  g_autoptr(MsJson) doc = ms_json_load(FIGURES, NULL);
  JsonObject *before = doc ? json_object_get_object_member(json_node_get_object(ms_json_root(doc)), "figures") : NULL;
  GError *error = NULL;
  measure();
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "doc",
                     "Accuracy over scenarios/published, written by make accuracy-update; test_full_accuracy fails "
                     "when a figure is worse by more than its tolerance.");
  ms_json_out_object(out, "figures");
  for (guint i = 0; i < n_figures; i++) {
    ms_json_out_object(out, figures[i].name);
    ms_json_out_double(out, "value", round(figures[i].value * 1e4) / 1e4);
    ms_json_out_double(out, "tolerance", tolerance_of(before, &figures[i]));
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
  g_autofree char *json = ms_json_out_take(out), *text = g_strconcat(json, "\n", NULL);
  if (ms_write_file(FIGURES, text, -1, &error)) return 0;
  print_error("%s\n", error->message);
  g_error_free(error);
  return 1;
}

static int prepare(void **state) {
  (void)state;
  measure();
  return 0;
}

static int forget(void **state) {
  (void)state;
  g_hash_table_destroy(runs_of);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--update") == 0) return update();
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_figure_is_worse_than_stored),
                                     cmocka_unit_test(the_machines_tell_their_runs)};
  return cmocka_run_group_tests(tests, prepare, forget);
}
