/* What-if studies: parts that add up, axes crossed and zipped, who is to blame, rows that cannot run, planning at
 * points, tables and CSV. */
#include "lib/close.h"
#include "lib/tier.h"

#include "base/err.h"
#include "report/report.h"
#include "study/whatif.h"

#include <glib/gstdio.h>
#include <string.h>

#define RUN "\"base\": \"run-llama3-70b-h100-64.json\", \"fidelity\": \"fast\""

/* The study that this text is, beside the shipped scenarios. */
static MsWhatif *study_of(const char *members, GError **error) {
  g_autofree char *text = g_strdup_printf("{\"schema\": 1, %s}", members);
  MsJson *doc = ms_json_parse(text, -1, MS_SOURCE_DIR "/scenarios/study.json", error);
  return doc ? ms_whatif_from_doc(doc, error) : NULL;
}

static MsWhatifRun *run_threads(const char *members, int threads, GError **error) {
  MsWhatif *whatif = study_of(members, error);
  const MsWhatifOptions options = {.threads = threads};
  return whatif ? ms_whatif_run(whatif, &options, error) : NULL;
}

static MsWhatifRun *run_of(const char *members) {
  GError *error = NULL;
  MsWhatifRun *run = run_threads(members, 2, &error);
  if (!run) fail_msg("%s", error->message);
  return run;
}

static double sum(const double *part, int n) {
  double s = 0;
  for (int i = 0; i < n; i++) s += part[i];
  return s;
}

static void check_sums(const MsWhatifRun *run) {
  for (int i = -1; i < run->n; i++) {
    const MsWhatifRow *row = i < 0 ? &run->base : &run->row[i];
    if (!row->result) continue;
    assert_close(sum(row->part_s, MS_N_PARTS), row->value_s, 1e-9);
    assert_close(sum(row->memory_B, MS_N_MEMS), ms_device_B(row->result), 1e-9);
  }
}

static void parts_add_up(void **state) {
  (void)state;
  static const char *const fidelity[] = {"bound", "fast", "full"};
  for (guint f = (guint)ms_by_tier(2, 0); f < G_N_ELEMENTS(fidelity); f++) {
    g_autofree char *text = g_strdup_printf("\"base\": \"run-qwen3-235b-h100-256.json\", \"fidelity\": \"%s\", "
                                            "\"axes\": [{\"key\": \"hardware.nic_Bps\", \"values\": [25e9, 1e11]}, "
                                            "{\"key\": \"training.micro_batch_size\", \"values\": [1, 2]}]",
                                            fidelity[f]);
    g_autoptr(MsWhatifRun) run = run_of(text);
    assert_int_equal(run->n, 4);
    check_sums(run);
  }
}

/* A word in the base gives way to the object that the key is of. */
static void keys_of_objects(void **state) {
  (void)state;
  g_autoptr(MsWhatifRun) run = run_of("\"base\": \"run-qwen3-235b-h100-256.json\", \"axes\": [{\"key\": "
                                      "\"training.routing.zipf\", \"values\": [0.5]}]");
  assert_int_equal(run->row[0].scenario->training.routing.kind, MS_ROUTING_ZIPF);
  assert_true(run->row[0].value_s > run->base.value_s);
}

/* What moved is what should have: the network touches exposed EP, not the GEMMs. */
static void the_part_that_moves_is_named(void **state) {
  (void)state;
  g_autoptr(MsWhatifRun) run = run_of("\"base\": \"run-qwen3-235b-h100-256.json\", \"axes\": [{\"key\": "
                                      "\"hardware.nic_Bps\", \"values\": [25e9, 50e9]}]");
  double slower = run->row[0].value_s - run->base.value_s,
         ep = run->row[0].part_s[MS_PART_EXPOSED + MS_COMM_EP] - run->base.part_s[MS_PART_EXPOSED + MS_COMM_EP];
  assert_true(slower > 0.1 * run->base.value_s);
  assert_close(ep, slower, 0.05);
  assert_close(run->row[0].part_s[MS_PART_GEMM], run->base.part_s[MS_PART_GEMM], 0.01);
  assert_close(run->row[1].value_s, run->base.value_s, 0); /* the value that stands there: no change changes nothing */
  for (int p = 0; p < MS_N_PARTS; p++) assert_close(run->row[1].part_s[p], run->base.part_s[p], 0);
}

static void cross_and_zip(void **state) {
  (void)state;
#define AXES                                                                                                          \
  "\"axes\": [{\"key\": \"training.global_batch_size\", \"values\": [256, 512]}, {\"key\": \"training.seq_length\", " \
  "\"values\": [4096, 8192], \"labels\": [\"4k\", \"8k\"]}]"
  static const char *const crossed[] = {"256, 4k", "256, 8k", "512, 4k", "512, 8k"}, *const zipped[] = {"256, 4k",
                                                                                                        "512, 8k"};
  g_autoptr(MsWhatifRun) cross = run_of(RUN ", " AXES);
  g_autoptr(MsWhatifRun) zip = run_of(RUN ", \"combine\": \"zip\", " AXES);
  assert_int_equal(cross->n, 4);
  assert_int_equal(zip->n, 2);
  for (int i = 0; i < 4; i++) assert_string_equal(cross->row[i].label, crossed[i]);
  for (int i = 0; i < 2; i++) assert_string_equal(zip->row[i].label, zipped[i]);
  assert_close(zip->row[1].value_s, cross->row[3].value_s, 0);
  assert_int_equal(cross->row[2].scenario->training.global_batch_size, 512);
  assert_int_equal(cross->row[2].scenario->training.seq_length, 4096);
}

/* GPU seconds per token: twice the batch spreads the same pipeline ends over more tokens. */
static void per_token(void **state) {
  (void)state;
  g_autoptr(MsWhatifRun) run =
      run_of(RUN ", \"per\": \"token\", \"axes\": [{\"key\": \"training.global_batch_size\", \"values\": [256, 512]}]");
  const MsScenario *s = run->base.scenario;
  assert_close(run->base.value_s, run->base.result->step_time_s * s->gpus / (256.0 * s->training.seq_length), 1e-12);
  assert_close(run->row[1].value_s, run->row[1].result->step_time_s * s->gpus / (512.0 * s->training.seq_length),
               1e-12);
  assert_true(run->row[1].value_s < run->base.value_s); /* the bubble is spread over more microbatches */
  assert_true(run->row[1].part_s[MS_PART_BUBBLE] < run->base.part_s[MS_PART_BUBBLE]);
  check_sums(run);
}

static void rows_say_why(void **state) {
  (void)state;
  g_autoptr(MsWhatifRun) run = run_of(RUN ", \"axes\": [{\"key\": \"layout.vpp\", \"values\": [5, 7]}, {\"key\": "
                                          "\"hardware.hbm_B\", \"values\": [2e10, 8e10]}]");
  assert_true(g_str_has_prefix(run->row[0].why, "does not fit: "));
  assert_non_null(run->row[0].result);
  assert_null(run->row[1].why);
  assert_non_null(strstr(run->row[2].why, "(rule layers-divide)"));
  assert_null(run->row[2].result);
  g_autofree char *table = ms_report_whatif(run, 0), *json = ms_report_whatif_json(run),
                  *csv = ms_report_whatif_csv(&run, 1);
  assert_non_null(strstr(table, "  ! 7, 18.63 GiB: "));
  assert_non_null(strstr(table, "(rule layers-divide)"));
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "json", &error);
  assert_non_null(doc);
  guint lines = 0, commas = 0, want = 0;
  gboolean quoted = FALSE;
  for (const char *c = csv; *c; c++) {
    if (*c == '"') quoted = !quoted;
    if (*c == ',' && !quoted) commas++;
    if (*c != '\n') continue;
    if (lines == 0) want = commas;
    assert_int_equal(commas, want);
    lines++, commas = 0;
  }
  assert_int_equal(lines, 6); /* names, base, four points */
}

/* Values that do not go together are a row, a value that is wrong by itself is an error at its place. */
static void blame(void **state) {
  (void)state;
  GError *error = NULL;
  assert_null(run_threads(RUN ", \"axes\": [{\"key\": \"layout.tp\", \"values\": [4]},\n {\"key\": "
                              "\"training.seq_length\", \"values\": [4096, -1]}]",
                          2, &error));
  assert_int_equal(error->code, MS_ERROR_INPUT);
  assert_true(g_str_has_suffix(
      error->message,
      "scenarios/study.json:2: axes[1].values[1]: training.seq_length: is -1, must be in [1, 134217728] tokens"));
  g_clear_error(&error);
  g_autoptr(MsWhatifRun) run = run_of(RUN ", \"axes\": [{\"key\": \"model.num_attention_heads\", \"values\": [64, "
                                          "48]}, {\"key\": \"model.num_query_groups\", \"values\": [8, 32]}]");
  assert_null(run->row[0].why);      /* 64 heads in 8 groups */
  assert_null(run->row[3].scenario); /* 48 in 32 */
  assert_non_null(strstr(run->row[3].why, "num_query_groups"));
}

/* A name becomes a base with an override; what the base itself overrides stays. */
static void overrides_add_up(void **state) {
  (void)state;
  g_autoptr(MsWhatifRun) run =
      run_of("\"base\": \"run-qwen3-235b-h100-256.json\", \"fidelity\": \"fast\", \"axes\": [{\"points\": [{\"label\": "
             "\"both\", \"set\": "
             "{\"hardware.nic_Bps\": 1e11, \"hardware.scaleup_Bps\": 9e11, \"model.num_layers\": 94}}]}]");
  assert_close(run->row[0].scenario->hardware->nic_Bps, 1e11, 0);
  assert_close(run->row[0].scenario->hardware->scaleup_Bps, 9e11, 0);
  assert_int_equal(run->row[0].scenario->model->make_vocab_size_divisible_by, 1187);
  assert_string_equal(run->row[0].scenario->name, "study: both");
}

/* A machine takes the place of all of the other; what is said below it stays, in any order. */
static void parents_come_first(void **state) {
  (void)state;
#define OVER  "\"hardware.nic_Bps\": 25e9"
#define WHOLE "\"hardware\": \"h200-sxm\""
  static const char *const text[] = {
      RUN ", \"axes\": [{\"key\": \"hardware.nic_Bps\", \"values\": [25e9]}, {\"key\": \"hardware\", \"values\": "
          "[\"h200-sxm\"]}]",
      RUN ", \"axes\": [{\"key\": \"hardware\", \"values\": [\"h200-sxm\"]}, {\"key\": \"hardware.nic_Bps\", "
          "\"values\": [25e9]}]",
      RUN ", \"axes\": [{\"points\": [{\"label\": \"both\", \"set\": {" OVER ", " WHOLE "}}]}]",
      RUN ", \"set\": {" OVER ", " WHOLE "}, \"axes\": [{\"key\": \"gpus\", \"values\": [64]}]"};
  for (guint i = 0; i < G_N_ELEMENTS(text); i++) {
    g_autoptr(MsWhatifRun) run = run_of(text[i]);
    assert_close(run->row[0].scenario->hardware->nic_Bps, 25e9, 0);
    assert_true(run->row[0].scenario->hardware->hbm_B > 140e9);
  }
}

static void a_key_has_one_axis(void **state) {
  (void)state;
  static const char *const text[] = {
      "\"axes\": [{\"key\": \"layout.tp\", \"values\": [2, 4]},\n {\"key\": \"layout.tp\", \"values\": [1, 2]}]",
      "\"axes\": [{\"key\": \"layout.tp\", \"values\": [2, 4]},\n {\"points\": [{\"label\": \"a\", \"set\": "
      "{\"layout.cp\": 2, \"layout.tp\": 1}}]}]"};
  for (guint i = 0; i < G_N_ELEMENTS(text); i++) {
    g_autoptr(GError) error = NULL;
    g_autofree char *study = g_strconcat(RUN ", ", text[i], NULL);
    assert_null(run_threads(study, 1, &error));
    assert_int_equal(error->code, MS_ERROR_INPUT);
    assert_true(g_str_has_suffix(
        error->message, "study.json:2: axes[1]: sets layout.tp, as axes[0] does: give its values in one axis"));
  }
}

/* Machines of several kinds are a base like any other. */
static void pools_are_a_base(void **state) {
  (void)state;
#define POOLS(batch)                                                                                             \
  "{\"schema\": 1, \"model\": \"llama3-8b\", \"training\": {\"seq_length\": 4096, \"global_batch_size\": " batch \
  ", \"micro_batch_size\": 1}, \"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 16}, {\"hardware\": "          \
  "\"a100-sxm-80g\", \"gpus\": 16}], \"layout\": {\"tp\": 1, \"pp\": 2, \"cp\": 2}}"
  g_autoptr(MsWhatifRun) run =
      run_of("\"base\": " POOLS("128") ", \"axes\": [{\"key\": \"training.global_batch_size\", "
                                       "\"values\": [128, 256]}]");
  g_autoptr(MsWhatifRun) larger =
      run_of("\"base\": " POOLS("256") ", \"axes\": [{\"key\": \"layout.cp\", \"values\": [2]}]");
  check_sums(run);
  assert_close(run->row[0].value_s, run->base.value_s, 0);
  assert_close(run->row[1].value_s, larger->base.value_s, 0);
  g_autofree char *table = ms_report_whatif(run, 0);
  assert_non_null(strstr(table, "16 x h100-sxm + 16 x a100-sxm-80g"));
}

/* `set` makes another base: the same as a point of the old one. */
static void the_base_can_be_changed(void **state) {
  (void)state;
  g_autoptr(MsWhatifRun) one = run_of(RUN ", \"axes\": [{\"key\": \"training.global_batch_size\", \"values\": [512]}]");
  g_autoptr(MsWhatifRun) two =
      run_of(RUN ", \"set\": {\"training.global_batch_size\": 512}, \"axes\": [{\"key\": \"gpus\", \"values\": [64]}]");
  assert_close(two->base.value_s, one->row[0].value_s, 0);
  assert_close(two->row[0].value_s, one->row[0].value_s, 0);
  GError *error = NULL;
  assert_null(
      run_threads(RUN ", \"set\": {\"gpus\": 0}, \"axes\": [{\"key\": \"gpus\", \"values\": [64]}]", 1, &error));
  assert_true(g_str_has_suffix(error->message, "study.json:1: set: gpus: is 0, must be in [1, 1048576]"));
  g_clear_error(&error);
}

static void threads_do_not_matter(void **state) {
  (void)state;
  GError *error = NULL;
  static const char text[] =
      RUN ", \"axes\": [{\"key\": \"training.global_batch_size\", \"values\": [128, 256, 384, 512, 640]}]";
  g_autoptr(MsWhatifRun) one = run_threads(text, 1, &error), three = run_threads(text, 3, &error);
  g_autofree char *a = ms_report_whatif_csv(&one, 1), *b = ms_report_whatif_csv(&three, 1);
  assert_string_equal(a, b);
}

/* --- planning at the base or at every point, of a small request ------------------------------------------------ */
#define REQUEST                                                                                                       \
  "\"base\": {\"schema\": 1, \"name\": \"small\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 8}, "          \
  "\"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "                                                           \
  "{\"seq_length\": 4096, \"global_batch_size\": 64, \"micro_batch_size\": 1, \"precision\": \"bf16\", \"routing\": " \
  "\"balanced\"}, \"layout\": {\"tp\": [1, 2, 4], "                                                                   \
  "\"cp\": 1, \"pp\": [1, 2], \"vpp\": 1}, \"options\": {}}"

static void planned(void **state) {
  (void)state;
  g_autoptr(MsWhatifRun) base =
      run_of(REQUEST ", \"plan\": \"base\", \"axes\": [{\"key\": \"gpus\", \"values\": [8, 16]}]");
  g_autoptr(MsWhatifRun) points = run_of(
      REQUEST ", \"plan\": \"points\", \"axes\": [{\"key\": \"hardware.hbm_B\", \"values\": [8.6e10, 3.2e10, 1e9]}]");
  assert_close(base->row[0].value_s, base->base.value_s, 0);
  assert_int_equal(base->row[1].scenario->layout.tp, base->base.scenario->layout.tp);
  assert_close(points->row[0].value_s, points->base.value_s, 0);
  assert_true(points->row[1].value_s >= points->base.value_s);
  assert_true(ms_device_B(points->row[1].result) <= 3.2e10);
  assert_true(g_str_has_prefix(points->row[2].why, "no layout is feasible"));
  g_autofree char *table = ms_report_whatif(points, 0);
  assert_non_null(strstr(table, "layout"));
  GError *error = NULL;
  assert_null(run_threads(
      REQUEST ", \"plan\": \"points\", \"axes\": [{\"key\": \"training.seq_length\", \"values\": [\"long\"]}]", 1,
      &error));
  assert_non_null(
      strstr(error->message, "axes[0].values[0]: training.seq_length: is the string \"long\", must be an integer"));
  g_clear_error(&error);
}

/* --- picture --------------------------------------------------------------------------------------------------- */
static void the_picture_shows_points_and_parts(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *folder = g_dir_make_tmp("moesim-whatif-XXXXXX", NULL),
                  *file = g_build_filename(folder, "it's.svg", NULL), *gnuplot = g_find_program_in_path("gnuplot");
  g_autoptr(MsWhatifRun) run = run_of(
      RUN ", \"per\": \"token\", \"axes\": [{\"key\": \"layout.vpp\", \"values\": [5, 7, 10]}]"); /* one of them cannot
                                                                                                     run */
  gboolean ok = ms_report_whatif_plot(run, file, &error);
  if (!gnuplot) {
    assert_false(ok);
    assert_int_equal(error->code, MS_ERROR_ENV);
    g_clear_error(&error);
    g_rmdir(folder);
    skip();
  }
  if (!ok) fail_msg("%s", error->message);
  g_autofree char *svg = NULL;
  assert_true(g_file_get_contents(file, &svg, NULL, NULL));
  static const char *const shown[] = {">base<", ">5<",      ">7 (cannot run)<",   ">10<",
                                      ">gemm<", ">bubble<", ">GPU us per token<", ">above each bar: tokens/s/GPU<"};
  for (guint i = 0; i < G_N_ELEMENTS(shown); i++)
    if (!strstr(svg, shown[i])) fail_msg("no %s in the picture", shown[i]);
  assert_null(strstr(svg, ">exposed_cp<")); /* nothing has it */
  g_remove(file);
  g_rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_add_up),
                                     cmocka_unit_test(keys_of_objects),
                                     cmocka_unit_test(the_part_that_moves_is_named),
                                     cmocka_unit_test(cross_and_zip),
                                     cmocka_unit_test(per_token),
                                     cmocka_unit_test(rows_say_why),
                                     cmocka_unit_test(blame),
                                     cmocka_unit_test(overrides_add_up),
                                     cmocka_unit_test(parents_come_first),
                                     cmocka_unit_test(a_key_has_one_axis),
                                     cmocka_unit_test(pools_are_a_base),
                                     cmocka_unit_test(the_base_can_be_changed),
                                     cmocka_unit_test(threads_do_not_matter),
                                     cmocka_unit_test(planned),
                                     cmocka_unit_test(the_picture_shows_points_and_parts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
