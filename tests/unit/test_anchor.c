/* Runs and profiles of one's own as a machine: what is learned of them, the file, what is refused, what it is worth. */
#include "lib/close.h"

#include "base/err.h"
#include "lib/data.h"
#include "lib/tier.h"
#include "study/anchor.h"
#include "study/profile.h"

#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

/* A run on "box", of a batch, measured at `times` its prediction (0: nothing measured). */
static char *write_run(const char *name, int batch, double times) {
  static const char text[] = "{\"model\": \"moe\", \"hardware\": \"box\", \"gpus\": 8, \"training\": {\"seq_length\": "
                             "4096, \"micro_batch_size\": 1, \"global_batch_size\": %d}, \"layout\": {\"tp\": 2, "
                             "\"pp\": 1, \"ep\": 4}, \"options\": {\"dispatcher\": \"alltoall\"}%s}";
  GError *error = NULL;
  char *file = ms_test_data_path(name);
  g_autofree char *bare = g_strdup_printf(text, batch, "");
  ms_test_data_write(name, bare);
  if (times <= 0) return file;
  g_autoptr(MsScenario) s = ms_scenario_load(file, &error);
  assert_null(error);
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
  assert_null(error);
  g_autofree char *measured = g_strdup_printf(", \"measured\": {\"step_time_s\": %.9g, \"source\": \"made\", "
                                              "\"config_confidence\": \"exact\"}",
                                              times * r->step_time_s),
                  *whole = g_strdup_printf(text, batch, measured);
  ms_test_data_write(name, whole);
  return file;
}

static MsAnchored *anchor(const char *a, const char *b, const char *hardware, GError **error) {
  const char *const files[] = {a, b, NULL};
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  const MsAnchorOptions options = {files, hardware, NULL, "2026-11-23", 1};
  return ms_anchor(&options, notes, error);
}

static double step_on(const char *file, const char *hardware) {
  GError *error = NULL;
  g_autoptr(MsScenario) s = ms_scenario_load(file, &error);
  assert_null(error);
  if (hardware) {
    ms_hardware_free(s->hardware);
    s->hardware = ms_hardware_load(hardware, &error);
    assert_null(error);
  }
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
  assert_null(error);
  return r->step_time_s;
}

/* What was learned stands in a file that loads, and other runs are predicted by it. */
static void one_run(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *run = write_run("run.json", 16, 1.2), *other = write_run("other.json", 64, 0);
  g_autoptr(MsAnchored) a = anchor(run, NULL, NULL, &error);
  assert_null(error);
  assert_int_equal(a->runs, 1);
  assert_close(a->seen[0].before, 1 / 1.2 - 1, 1e-6);
  assert_true(fabs(a->seen[0].after) < 0.6 * fabs(a->seen[0].before));
  assert_true(a->band < 1.645 * sqrt(0.2 * 0.2 + 0.08 * 0.08));
  assert_true(a->models_band < a->band);
  ms_test_data_write("mine.json", a->text);
  g_autofree char *mine = ms_test_data_path("mine.json");
  double measured = 1.2 * step_on(run, NULL);
  assert_close(step_on(run, mine) / measured, 1 + a->seen[0].after, 0.02); /* as the linear model said */
  double ratio = step_on(other, mine) / step_on(other, NULL);
  assert_true(ratio > 1.06 && ratio < 1.2);
}

/* A run as it was predicted makes everything surer; one far off does not, as it may be odd itself: another like it says
 * that it is not. */
static void odd_runs(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *usual = write_run("usual.json", 16, 1.005), *far = write_run("far.json", 16, 1.4),
                  *other = write_run("other.json", 64, 1.4);
  g_autoptr(MsAnchored) a = anchor(usual, NULL, NULL, &error), b = anchor(far, NULL, NULL, &error),
                        both = anchor(far, other, NULL, &error);
  assert_null(error);
  for (int c = 0; c < MS_N_ANCHORS; c++) assert_true(a->learned[c].sd < a->learned[c].sd_before);
  assert_true(a->band < b->band && both->band < b->band);
  assert_true(both->learned[MS_ANCHOR_GEMM].factor > b->learned[MS_ANCHOR_GEMM].factor);
  assert_true(fabs(both->seen[0].after) < fabs(b->seen[0].after));
}

/* Anchoring what is anchored already starts from it. */
static void again(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *run = write_run("run.json", 16, 1.2), *mine = ms_test_data_path("mine.json"),
                  *twice = ms_test_data_path("twice.json");
  g_autoptr(MsAnchored) a = anchor(run, NULL, NULL, &error);
  ms_test_data_write("mine.json", a->text);
  g_autoptr(MsAnchored) b = anchor(run, NULL, mine, &error);
  assert_null(error);
  assert_true(fabs(b->seen[0].before - a->seen[0].after) < 0.02);
  ms_test_data_write("twice.json", b->text);
  assert_true(fabs(log(step_on(run, twice) / step_on(run, NULL) / 1.2)) < fabs(log1p(a->seen[0].after)));
}

static MsResult *result_on(const char *file, const char *hardware) {
  g_autoptr(MsScenario) s = ms_scenario_load(file, NULL);
  ms_hardware_free(s->hardware);
  s->hardware = ms_hardware_load(hardware, NULL);
  assert_non_null(s->hardware);
  return ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
}

/* What a run followed of an assumed figure its factors hold: the band does not count it again, and nothing says that
 * nobody has measured. */
static void an_assumption_is_tried(void **state) {
  (void)state;
  GError *error = NULL;
  ms_test_data_write("guessed.json", "{\"base\": \"box\", \"name\": \"guessed\", \"peak_bf16_flops\": 9e14, "
                                     "\"sources\": {\"peak_bf16_flops\": {\"mark\": \"assumed\", \"within\": 0.4, "
                                     "\"text\": \"made\"}}}");
  g_autofree char *run = write_run("run.json", 16, 1.02), *guessed = ms_test_data_path("guessed.json"),
                  *tried = ms_test_data_path("tried.json");
  g_autoptr(MsAnchored) a = anchor(run, NULL, guessed, &error);
  assert_null(error);
  ms_test_data_write("tried.json", a->text);
  g_autoptr(MsResult) before = result_on(run, guessed);
  g_autoptr(MsResult) after = result_on(run, tried);
  assert_true(before->ground.assumed > 0.05 && strstr(before->caveat, "peak_bf16_flops"));
  assert_true(after->ground.assumed < 1e-3 && after->band < before->band);
  assert_null(after->caveat);
  g_autofree char *wrong = g_strdup("{\"base\": \"box\", \"anchor\": {\"rested\": {\"nic_Bps\": 2}}}");
  ms_test_data_write("wrong.json", wrong);
  g_autofree char *file = ms_test_data_path("wrong.json");
  assert_null(ms_hardware_load(file, &error));
  assert_non_null(strstr(error->message, "anchor.rested.nic_Bps: must be a share of a step, 0 to 1"));
  g_clear_error(&error);
}

/* A saved profile of what is predicted for `run`, but for expert GEMMs that take 1.3 times as long, on a machine of
 * which the reference kernel reached `reference_flops` (0: none ran) and all took `slower` times as long. */
static char *write_profile(const char *run, double slower, double reference_flops) {
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsKernelTable) table = ms_kernel_table_load(&error);
  g_autoptr(MsProfile) p = ms_profile_load(run, -1, -1, table, notes, &error);
  assert_null(error);
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  if (reference_flops > 0) ms_json_out_double(out, "reference_flops", reference_flops);
  ms_json_out_array(out, "classes");
  for (int i = 0; i < p->n_parts; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "class", p->part[i].word);
    ms_json_out_double(out, "time_s",
                       slower * p->part[i].time_s * (strcmp(p->part[i].word, "grouped_gemm") == 0 ? 1.3 : 1));
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
  g_autofree char *text = ms_json_out_take(out);
  ms_test_data_write("saved.json", text);
  return ms_test_data_path("saved.json");
}

/* A profile corrects the class whose kernels were slower, others hardly. */
static void profile(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *run = write_run("run.json", 16, 0), *saved = write_profile(run, 1, 0);
  g_autoptr(MsAnchored) a = anchor(run, saved, NULL, &error);
  assert_null(error);
  assert_int_equal(a->traces, 1);
  assert_int_equal(a->runs, 0);
  assert_int_equal(a->learned[MS_ANCHOR_GROUPED_GEMM].profiles, 1);
  assert_int_equal(a->learned[MS_ANCHOR_HOST].profiles, 0);
  assert_true(a->learned[MS_ANCHOR_GROUPED_GEMM].factor > 1.1);
  assert_true(a->learned[MS_ANCHOR_GROUPED_GEMM].factor > a->learned[MS_ANCHOR_GEMM].factor * 1.08);
}

/* What a profile of one's own CPU says does not follow how fast that was just then. */
static void a_slow_moment(void **state) {
  (void)state;
  GError *error = NULL;
  ms_test_data_write("cpu.json", "{\"base\": \"box\", \"name\": \"cpu\", \"reference_flops\": 1e11}");
  g_autofree char *run = write_run("run.json", 16, 0), *cpu = ms_test_data_path("cpu.json"),
                  *saved = write_profile(run, 1, 1e11);
  g_autoptr(MsAnchored) usual = anchor(run, saved, cpu, &error);
  g_autofree char *slow = write_profile(run, 1.25, 0.8e11);
  g_autoptr(MsAnchored) a = anchor(run, slow, cpu, &error);
  g_autofree char *unsaid = write_profile(run, 1.25, 0);
  g_autoptr(MsAnchored) slower = anchor(run, unsaid, cpu, &error);
  assert_null(error);
  for (int c = 0; c < MS_N_ANCHORS; c++) assert_close(a->learned[c].factor, usual->learned[c].factor, 1e-6);
  assert_true(slower->learned[MS_ANCHOR_GEMM].factor > 1.1 * a->learned[MS_ANCHOR_GEMM].factor);
}

/* Each of its laws moves what is learned, on unknown or on known software. */
static void laws(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  static const char *const names[] = {"anchor_site_spread",      "anchor_known_spread",  "anchor_class_spread",
                                      "anchor_model_spread",     "anchor_run_noise",     "anchor_profile_noise",
                                      "anchor_odd_model_spread", "anchor_odd_run_noise", "anchor_odd_chance",
                                      "anchor_odd_site_chance"};
  g_autofree char *run = write_run("run.json", 16, 1.2), *saved = write_profile(run, 1, 0), *text = NULL;
  assert_true(g_file_get_contents(run, &text, NULL, NULL));
  ms_test_data_write("software/stacks.json", "{\"stacks\": [{\"name\": \"mine\"}]}");
  for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
    char *found[2];
    for (int k = 0; k < 2; k++) {
      g_autofree char *law = g_strdup_printf("{\"laws\": {\"%s\": %g}, %s", names[i], k ? 0.5 : 0.05,
                                             i == 1 ? "\"software\": \"mine\"," : ""),
                      *whole = g_strconcat(law, text + 1, NULL);
      GError *error = NULL;
      ms_test_data_write("run.json", whole);
      g_autoptr(MsAnchored) a = anchor(run, saved, NULL, &error);
      assert_null(error);
      found[k] = g_strdup(a->text);
    }
    gboolean same = strcmp(found[0], found[1]) == 0;
    g_free(found[0]), g_free(found[1]);
    if (same) fail_msg("law %s changes nothing", names[i]);
  }
}

/* What a run printed stands for `measured`; the file keeps the layout of each run, and what is left of its error. */
static void log_of_a_run(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *bare = write_run("bare.json", 16, 0), *log = ms_test_data_path("run.log"),
                  *mine = ms_test_data_path("mine.json");
  double predicted_s = step_on(bare, NULL);
  g_autoptr(GString) text = g_string_new(NULL);
  for (int i = 1; i <= 20; i++)
    g_string_append_printf(
        text,
        " [2026-11-23 07:00:%02d] iteration %8d/      20 | consumed samples: %12d | elapsed time per "
        "iteration (ms): %.3f | learning rate: 1.0E-04 | global batch size:    16 | lm loss: "
        "1.0E+01 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations:   0 | number of "
        "nan iterations:   0 |\n",
        i, i, 16 * i, 1e3 * 1.3 * predicted_s);
  ms_test_data_write("run.log", text->str);
  g_autoptr(MsAnchored) a = anchor(bare, log, NULL, &error);
  if (error) fail_msg("%s", error->message);
  assert_int_equal(a->runs, 1);
  assert_int_equal(a->traces, 0);
  assert_close(a->seen[0].before, 1 / 1.3 - 1, 1e-3);
  ms_test_data_write("mine.json", a->text);
  g_autoptr(MsHardware) h = ms_hardware_load(mine, &error);
  assert_null(error);
  JsonArray *runs = json_node_get_array(h->anchor.runs);
  assert_int_equal(json_array_get_length(runs), 1);
  JsonObject *run = json_array_get_object_element(runs, 0), *keys = json_object_get_object_member(run, "keys");
  assert_close(json_object_get_double_member(run, "left"), -log1p(a->seen[0].after), 2e-3);
  assert_string_equal(json_object_get_string_member(keys, "layout.tp"), "2");
  assert_false(json_object_has_member(keys, "hardware.base"));
  static const char *const bad[][2] = {
      {"{\"base\": \"box\", \"anchor\": {\"runs\": 1}}", "anchor.runs: must be a list"},
      {"{\"base\": \"box\", \"anchor\": {\"runs\": [{\"model\": \"m\", \"gpus\": 8, \"step_s\": 1, \"left\": 9, "
       "\"keys\": {}}]}}",
       "anchor.runs[0]: must be {"},
      {"{\"base\": \"box\", \"anchor\": {\"runs\": [{\"model\": \"m\", \"gpus\": 8, \"step_s\": 1, \"left\": 0, "
       "\"keys\": {\"a\": 1}}]}}",
       "anchor.runs[0]: must be {"}};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) why = NULL;
    ms_test_data_write("mine.json", bad[i][0]);
    assert_null(ms_hardware_load(mine, &why));
    if (!strstr(why->message, bad[i][1])) fail_msg("%s, not: %s", why->message, bad[i][1]);
  }
}

static void refused(void **state) {
  (void)state;
  g_autofree char *bare = write_run("bare.json", 16, 0), *run = write_run("run.json", 16, 1.2),
                  *trace = g_build_filename(MS_SOURCE_DIR, "tests/data/logs/kineto.json", NULL),
                  *other = ms_test_data_path("elsewhere.json"), *text = NULL;
  assert_true(g_file_get_contents(run, &text, NULL, NULL));
  char *at = strstr(text, "\"box\"");
  g_autofree char *before = g_strndup(text, (gsize)(at - text)),
                  *moved = g_strconcat(before, "{\"base\": \"box\", \"name\": \"bx2\"}", at + 5, NULL);
  ms_test_data_write("elsewhere.json", moved);
  g_autofree char *part = ms_test_data_path("part.json");
  ms_test_data_write("part.json",
                     "[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nvjet_hsh_128x256\",\"ts\":1,\"dur\":5}]");
  g_autofree char *fast = write_run("fast.json", 16, 1e-4), *log = ms_test_data_path("other.log");
  ms_test_data_write("other.log",
                     " iteration 1/ 3 | elapsed time per iteration (ms): 90.0 | global batch size: 32 |\n"
                     " iteration 2/ 3 | elapsed time per iteration (ms): 90.0 | global batch size: 32 |\n");
  g_autofree char *nan = ms_test_data_path("nan.log"), *wide = ms_test_data_path("wide.log");
  ms_test_data_write("nan.log",
                     " [2026-01-01] iteration 2/ 3 | elapsed time per iteration (ms): 90.0 | lm loss: nan |\n");
  ms_test_data_write("wide.log", "--- arguments ---\n  world_size ... 4096\n--- end of arguments ---\n"
                                 " iteration 1/ 3 | elapsed time per iteration (ms): 90.0 | global batch size: 16 |\n"
                                 " iteration 2/ 3 | elapsed time per iteration (ms): 90.0 | global batch size: 16 |\n");
  const struct {
    const char *a, *b, *say;
  } cases[] = {{bare, NULL, "measured: gives no step time"},
               {run, nan, "nan.log: no step is left: 1 steps"},
               {run, wide, "wide.log: world size: is 4096, "},
               {fast, NULL, " times the peak of "},
               {run, run, "is given twice"},
               {run, log, "global batch size: is 32, "},
               {trace, run, "is a profile: give the scenario of its run in front of it"},
               {run, trace, "is of another model or layout"},
               {run, part, "has 1 kernels of the class gemm a step where"},
               {run, other, "hardware: is bx2, that of"}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    assert_null(anchor(cases[i].a, cases[i].b, NULL, &error));
    assert_int_equal(error->code, MS_ERROR_INPUT);
    if (!strstr(error->message, cases[i].say)) fail_msg("%s, not: %s", error->message, cases[i].say);
  }
  g_autofree char *saved = write_profile(run, 1, 0);
  const char *const three[] = {run, saved, trace, NULL};
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  const MsAnchorOptions options = {three, NULL, NULL, "2026-11-23", 1};
  g_autoptr(GError) error = NULL;
  assert_null(ms_anchor(&options, notes, &error));
  assert_non_null(strstr(error->message, "kineto.json: is a second profile of "));
}

/* Runs of a site that are all slower by as much: one says most of it, two more. */
static void worth(void **state) {
  (void)state;
  GError *error = NULL;
  MsValidateOptions options;
  g_autofree char *folder = ms_test_data_path("site");
  assert_int_equal(g_mkdir(folder, 0777), 0);
  static const char *const names[] = {"site/a.json", "site/b.json", "site/c.json", "site/d.json"};
  for (int i = 0; i < 4; i++) g_free(write_run(names[i], 16 << i, 1.2));
  ms_validate_options_init(&options);
  options.threads = 1;
  const char *const paths[] = {folder, NULL};
  g_autoptr(MsAnchorEvaluation) e = ms_anchor_evaluate(paths, FALSE, &options, &error);
  assert_null(error);
  assert_int_equal(e->n_sources, 1);
  assert_int_equal(e->sites, 1);
  assert_int_equal(e->all.pairs, 12);
  assert_close(e->all.before, 1 - 1 / 1.2, 1e-6);
  assert_true(e->all.after[0] < 0.6 * e->all.before);
  assert_true(e->all.after[1] < e->all.after[0]);
  for (int i = 0; i < 4; i++) {
    g_autofree char *file = ms_test_data_path(names[i]);
    g_unlink(file);
  }
  g_rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_run),      cmocka_unit_test(odd_runs), cmocka_unit_test(an_assumption_is_tried),
      cmocka_unit_test(again),        cmocka_unit_test(profile),  cmocka_unit_test(a_slow_moment),
      cmocka_unit_test(log_of_a_run), cmocka_unit_test(refused),  cmocka_unit_test(worth),
      cmocka_unit_test(laws)};
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
