/* DeepSpeed's configuration: both ways, what is refused by its key, what the program fills in. */
#include "lib/close.h"

#include "launch/launch.h"
#include "layout/layout.h"
#include "lib/world.h"

#include <glib/gstdio.h>
#include <string.h>

static const MsLaunch deepspeed = {.form = MS_LAUNCH_DEEPSPEED};

static char *text_of(const MsScenario *s) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(s, NULL, out);
  return ms_json_out_take(out);
}

static MsImport *import_of(const char *text, const MsImportOptions *options) {
  g_autoptr(GError) error = NULL;
  MsImport *import = ms_import_deepspeed(text, strlen(text), "ds.json", options, &error);
  if (!import) fail_msg("%s: %s", text, error->message);
  return import;
}

static char *refusal_of(const char *text, const MsImportOptions *options) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsImport) import = ms_import_deepspeed(text, strlen(text), "ds.json", options, &error);
  if (import) fail_msg("was not refused: %s", text);
  return g_strdup(error->message);
}

static MsScenario *run_with(const char *training, const char *layout, const char *options) {
  g_autofree char *text = g_strdup_printf(
      "{\"framework\": \"deepspeed\", \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 16, "
      "\"training\": "
      "{\"seq_length\": 8192, \"micro_batch_size\": 2, \"global_batch_size\": 64%s}, \"layout\": {%s}, \"options\": "
      "{%s}}",
      training, layout, options);
  return ms_test_scenario_of(text);
}

/* Every stage, offload, precision and group: the same run comes back, key for key. */
static void round_trips(void **state) {
  (void)state;
  static const struct {
    const char *training, *layout, *options, *said;
  } cases[] = {
      {"", "", "\"distributed_optimizer\": false", "\"stage\": 0"},
      {"", "\"tp\": 2", "\"main_grads_dtype\": \"bf16\"", "\"grad_accum_dtype\": \"bf16\""},
      {"", "", "\"fsdp\": \"optim-grads\", \"overlap_grad_reduce\": false", "\"overlap_comm\": false"},
      {"", "", "\"fsdp\": \"optim-grads-params\", \"optimizer_offload_fraction\": 0.5", "\"ratio\": 0.5"},
      {", \"precision\": \"fp16\"", "\"pp\": 2", "\"grad_reduce_dtype\": \"fp16\"", "\"fp16\": {"},
      {"", "\"cp\": 2, \"cp_comm_type\": \"a2a\"", "\"recompute\": {\"granularity\": \"full\"}", "\"bf16\": {"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsScenario) s = run_with(cases[i].training, cases[i].layout, cases[i].options);
    g_autofree char *config = ms_launch_text(s, deepspeed, &error), *before = text_of(s);
    if (!config) fail_msg("%s", error->message);
    if (!strstr(config, cases[i].said)) fail_msg("no %s in %s", cases[i].said, config);
    const MsImportOptions none = {0};
    g_autoptr(MsImport) import = import_of(config, &none);
    g_autofree char *after = text_of(import->scenario);
    assert_string_equal(before, after);
    assert_int_equal(import->ignored->len, 0);
  }
}

/* Defaults that DeepSpeed takes for what is not said. */
static void reads_what_is_not_said(void **state) {
  (void)state;
  const MsImportOptions options = {.model = "llama3-8b", .gpus = 16};
  g_autoptr(MsImport) zero3 = import_of("{\"train_batch_size\": 128, \"gradient_accumulation_steps\": 4, \"bf16\": "
                                        "{\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, "
                                        "\"contiguous_gradients\": true}, \"gradient_clipping\": 1.0}",
                                        &options);
  const MsScenario *s = zero3->scenario;
  assert_int_equal(s->training.micro_batch_size, 2);
  assert_int_equal(s->options.fsdp, MS_FSDP_OPTIM_GRADS_PARAMS);
  assert_true(s->options.overlap_grad_reduce);
  assert_int_equal(s->options.main_grads_dtype, MS_DT_BF16);
  assert_int_equal(zero3->ignored->len, 2);
  assert_int_equal(zero3->remarks->len, 2); /* sequence and machine */
  g_autoptr(MsImport) zero0 = import_of(
      "{\"train_micro_batch_size_per_gpu\": 1, \"train_batch_size\": \"auto\", \"fp16\": {\"enabled\": true}, "
      "\"bf16\": {\"enabled\": false}, \"tensor_parallel\": {\"autotp_size\": 4}, \"zero_optimization\": "
      "{\"offload_param\": {\"device\": \"none\"}}, \"activation_checkpointing\": {\"number_checkpoints\": 32}}",
      &options);
  s = zero0->scenario;
  assert_int_equal(s->training.precision, MS_FP16);
  assert_int_equal(s->layout.tp, 4);
  assert_int_equal(s->training.global_batch_size, 4);
  assert_false(s->options.overlap_grad_reduce);
  assert_false(s->options.distributed_optimizer);
  assert_int_equal(s->options.main_grads_dtype, MS_DT_FP32);
  assert_int_equal(s->options.recompute.granularity, MS_RECOMPUTE_FULL);
}

static void refuses_by_key(void **state) {
  (void)state;
#define ON "\"train_batch_size\": 16, \"bf16\": {\"enabled\": true}, "
  static const struct {
    const char *text, *why;
  } cases[] = {
      {"{" ON "\"zero_optimization\": {\"stage\": 4}}", "zero_optimization.stage: is 4, must be 0 to 3"},
      {"{" ON "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}}",
       "zero_optimization.offload_param: is on: parameters on the host not modelled"},
      {"{" ON "\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 8}}",
       "zero_hpz_partition_size: is on"},
      {"{" ON "\"zero_optimization\": {\"stage\": 2, \"reduce_scatter\": false}}", "reduce_scatter: is off"},
      {"{" ON "\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 8}}", "mics_shard_size: is on"},
      {"{" ON "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}}", "device: is \"nvme\""},
      {"{" ON "\"curriculum_learning\": {\"enabled\": true}}",
       "curriculum_learning: is on: sequence lengths that grow"},
      {"{" ON "\"activation_checkpointing\": {\"partition_activations\": true}}", "partition_activations: is on"},
      {"{" ON "\"optimizer\": {\"type\": \"OneBitAdam\"}}", "optimizer.type: must be Adam or AdamW"},
      {"{" ON "\"train_micro_batch_size_per_gpu\": 3}", "train_batch_size: is 16, but microbatch 3 x"},
      {"{\"train_batch_size\": 16}", "bf16.enabled: is not on, nor fp16"},
      {"{\"bf16\": {\"enabled\": true}}", "train_batch_size: or train_micro_batch_size_per_gpu must be given"},
      {"[]", "must be one JSON object"},
  };
  const MsImportOptions options = {.model = "llama3-8b", .gpus = 16};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *why = refusal_of(cases[i].text, &options);
    if (!strstr(why, cases[i].why)) fail_msg("\"%s\" does not say \"%s\"", why, cases[i].why);
  }
  const MsImportOptions none = {0};
  g_autofree char *why = refusal_of("{" ON "\"steps_per_print\": 10}", &none);
  assert_non_null(strstr(why, "--model NAME or --into RUN"));
}

/* What the program fills in (transformers, LLaMA-Factory) is what the run of --into says. */
static void auto_is_the_runs(void **state) {
  (void)state;
#define LEFT  "\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
#define TYPES "\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}"
  static const struct {
    const char *text;
    int micro, global;
    MsFsdp fsdp;
    gboolean overlaps;
  } cases[] = {
      {"{" LEFT TYPES ", \"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": {\"stage\": 3, "
       "\"overlap_comm\": false, \"reduce_bucket_size\": \"auto\"}}",
       2, 64, MS_FSDP_OPTIM_GRADS_PARAMS, FALSE},
      {"{" LEFT TYPES ", \"gradient_accumulation_steps\": 1, \"zero_optimization\": {\"stage\": \"auto\", "
       "\"overlap_comm\": \"auto\"}}",
       2, 32, MS_FSDP_OPTIM_GRADS, TRUE},
      {"{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 1, " TYPES
       ", \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"auto\"}}}",
       1, 64, MS_FSDP_OPTIM_GRADS, FALSE},
  };
  g_autofree char *folder = g_dir_make_tmp("moesim-test-XXXXXX", NULL),
                  *into = g_build_filename(folder, "r.json", NULL);
  g_autoptr(MsScenario) s = run_with(", \"precision\": \"fp16\"", "",
                                     "\"fsdp\": \"optim-grads\", \"optimizer_offload_fraction\": 0.5, "
                                     "\"overlap_grad_reduce\": true");
  g_autofree char *run = text_of(s);
  assert_true(g_file_set_contents(into, run, -1, NULL));
  const MsImportOptions options = {.into = into}, model = {.model = "llama3-8b", .gpus = 16};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsImport) import = import_of(cases[i].text, &options);
    const MsScenario *got = import->scenario;
    assert_int_equal(got->training.precision, MS_FP16);
    assert_int_equal(got->training.micro_batch_size, cases[i].micro);
    assert_int_equal(got->training.global_batch_size, cases[i].global);
    assert_int_equal(got->options.fsdp, cases[i].fsdp);
    assert_int_equal(got->options.overlap_grad_reduce, cases[i].overlaps);
    assert_true(got->options.optimizer_offload_fraction == (i == 2 ? 0.5 : 0));
  }
  static const char *const needing[] = {
      "{\"train_batch_size\": 16, \n" TYPES "}",
      "ds.json:2: bf16.enabled: is \"auto\"",
      "{" LEFT "\"bf16\": {\"enabled\": true}}",
      "train_batch_size: is \"auto\"",
      "{\"train_batch_size\": 16, \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": \"auto\"}}",
      "zero_optimization.stage: is \"auto\"",
      NULL};
  for (int i = 0; needing[i]; i += 2) {
    g_autofree char *why = refusal_of(needing[i], &model);
    if (!strstr(why, needing[i + 1]) || !strstr(why, "--into RUN says it")) fail_msg("%s", why);
  }
  g_remove(into), g_rmdir(folder);
}

static void export_refuses(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_with("", "", "");
  g_autoptr(GError) error = NULL;
  s->training.precision = MS_FP8_TENSORWISE;
  assert_null(ms_launch_text(s, deepspeed, &error));
  assert_non_null(strstr(error->message, "training.precision: is fp8-tensorwise"));
  g_clear_error(&error);
  s->training.precision = MS_BF16;
  s->framework = MS_FRAMEWORK_MEGATRON;
  assert_null(ms_launch_text(s, deepspeed, &error));
  assert_non_null(strstr(error->message, "framework: is megatron, this form starts deepspeed"));
  g_clear_error(&error);
  s->framework = MS_FRAMEWORK_DEEPSPEED;
  assert_null(ms_launch_explain(s, deepspeed, &error));
  assert_non_null(strstr(error->message, "deepspeed has no arguments"));
}

static gboolean says(const MsImport *import, const char *text) {
  for (guint i = 0; i < import->remarks->len; i++)
    if (strstr(import->remarks->pdata[i], text)) return TRUE;
  return FALSE;
}

static void misspelt_keys_are_named(void **state) {
  (void)state;
  const MsImportOptions options = {.model = "llama3-8b", .hardware = "h100-sxm", .gpus = 8};
  g_autoptr(MsImport) import = import_of(
      "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}, \"gradient_acumulation_steps\": 2, "
      "\"zero_optimization\": {\"stage\": 2, \"offload_optimiser\": {\"device\": \"cpu\"}, "
      "\"reduce_bucket_size\": 5}}",
      &options);
  assert_true(says(import, "gradient_acumulation_steps is not read: did you mean gradient_accumulation_steps?"));
  assert_true(says(import, "zero_optimization.offload_optimiser is not read: did you mean "
                           "zero_optimization.offload_optimizer?"));
  assert_false(says(import, "reduce_bucket_size"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trips),      cmocka_unit_test(reads_what_is_not_said),  cmocka_unit_test(refuses_by_key),
      cmocka_unit_test(auto_is_the_runs), cmocka_unit_test(misspelt_keys_are_named), cmocka_unit_test(export_refuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
