/* Imports of Primus's YAML: presets upon presets, variables, Primus's own keys, refusals, damaged files. */
#include "lib/close.h"

#include <string.h>

#include "launch/launch.h"
#include "lib/mutate.h"
#include "lib/tier.h"

#define FILE_NAME MS_SOURCE_DIR "/tests/data/primus/examples/megatron/configs/MI300X/small.yaml"

static MsImport *import_text(const char *text, const MsImportOptions *options, GError **error) {
  return ms_import_primus(text, strlen(text), FILE_NAME, options, error);
}

static char *file_text(void) {
  char *text = NULL;
  if (!g_file_get_contents(FILE_NAME, &text, NULL, NULL)) fail_msg("no %s", FILE_NAME);
  return text;
}

/* The file with one line more among its overrides. */
static char *with_override(const char *line) {
  g_autofree char *text = file_text();
  return g_strconcat(text, "      ", line, "\n", NULL);
}

static MsImport *import_with(const char *line, const char *const *set) {
  const MsImportOptions options = {.environment = TRUE, .set = set};
  g_autofree char *text = with_override(line);
  GError *error = NULL;
  MsImport *import = import_text(text, &options, &error);
  if (!import) fail_msg("%s", error->message);
  return import;
}

static gboolean mentions(const GPtrArray *lines, const char *text) {
  for (guint i = 0; i < lines->len; i++)
    if (strstr(lines->pdata[i], text)) return TRUE;
  return FALSE;
}

/* What presets, their bases and overrides say, the later over the earlier. */
static void presets_and_overrides(void **state) {
  (void)state;
  g_autoptr(MsImport) import = import_with("", NULL);
  const MsScenario *s = import->scenario;
  const MsModel *m = s->model;
  assert_string_equal(s->hardware->name, "mi300x");
  assert_int_equal(s->gpus, 8);
  assert_true(mentions(import->remarks, "NNODES is not given"));
  assert_int_equal(s->training.micro_batch_size, 2);    /* trainer_base.yaml */
  assert_int_equal(s->training.global_batch_size, 256); /* an override, not pre_trainer.yaml's 16 */
  assert_int_equal(s->training.seq_length, 4096);
  assert_int_equal(s->layout.ep, 8);
  assert_int_equal(m->num_layers, 16);
  assert_int_equal(m->num_attention_heads, 16); /* language_model.yaml */
  assert_int_equal(m->num_query_groups, 4);
  assert_int_equal(m->vocab_size, 128256);
  assert_string_equal(m->moe_layer_freq, "[0]*1+[1]*15");
  assert_int_equal(m->normalization, MS_NORM_RMS);
  assert_int_equal(m->position_embedding, MS_POS_ROPE);
  assert_int_equal(m->multi_latent_attention.kv_lora_rank, 0); /* counts with multi_latent_attention only */
  assert_int_equal(m->sliding_window.window, 129);
  assert_true(m->gated);
  assert_false(m->add_bias_linear);
  assert_true(s->options.distributed_optimizer);
  assert_false(s->options.gradient_accumulation_fusion);
  assert_int_equal(s->options.dispatcher, MS_DISPATCH_DEEPEP);
  assert_int_equal(s->options.dispatcher_num_sms, 0);
  assert_false(mentions(import->ignored, "--use-turbo-deepep"));
  assert_int_equal(s->training.routing.kind, MS_ROUTING_BALANCED);
}

/* What the presets say without a meaning here is not listed, what the file says is. */
static void defaults_are_not_listed(void **state) {
  (void)state;
  g_autoptr(MsImport) import = import_with("lr: 1.0e-5", NULL);
  assert_true(mentions(import->ignored, "--wandb-project small"));
  assert_true(mentions(import->ignored, "line 20: --lr 1.0e-5"));
  assert_false(mentions(import->ignored, "--retro-neighbors"));
  assert_false(mentions(import->ignored, "--trainable"));
}

static void variables(void **state) {
  (void)state;
  const char *const set[] = {"NNODES=4", "PRIMUS_TP=2", "PRIMUS_SEQ_LENGTH=8192", NULL};
  g_autoptr(MsImport) import = import_with("", set);
  assert_int_equal(import->scenario->gpus, 32);
  assert_int_equal(import->scenario->layout.tp, 2);
  assert_int_equal(import->scenario->training.seq_length, 8192);
  assert_false(mentions(import->remarks, "NNODES"));
}

/* Keys given from outside, as Primus's own command line takes them, and names that are none. */
static void keys_from_outside(void **state) {
  (void)state;
  const char *const set[] = {"NNODES=4", "global_batch_size=512", "nonsense=1", NULL}, *const words[] = {
                                                                                           "--micro_batch_size", "4",
                                                                                           NULL};
  g_autofree char *text = file_text();
  g_autoptr(MsImport) import =
      import_text(text, &(MsImportOptions){.environment = TRUE, .set = set, .words = words}, NULL);
  assert_non_null(import);
  assert_int_equal(import->scenario->training.global_batch_size, 512);
  assert_int_equal(import->scenario->training.micro_batch_size, 4);
  assert_true(mentions(import->remarks, "--set nonsense=1: nothing"));
  assert_false(mentions(import->remarks, "--set global"));
}

static MsImport *import_behind(const char *const *words, GError **error) {
  const char *const set[] = {"NNODES=4", NULL};
  g_autofree char *text = file_text();
  return import_text(text, &(MsImportOptions){.environment = TRUE, .set = set, .words = words}, error);
}

/* Behind the file they act as in it, and are then not listed as ignored. */
static void own_keys_behind_the_file(void **state) {
  (void)state;
  const char *const off[] = {"--use_turbo_deepep", "False", NULL},
                    *const on[] = {"--use-turbo-deepep", "--turbo_deepep_num_cu=64", NULL},
                    *const list[] = {"--window_size", "64", "0", NULL}, *const stray[] = {"use_turbo_deepep", NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(MsImport) without = import_behind(off, NULL), with = import_behind(on, NULL),
                      window = import_behind(list, NULL);
  assert_int_equal(without->scenario->options.dispatcher, MS_DISPATCH_ALLGATHER);
  assert_int_equal(with->scenario->options.dispatcher, MS_DISPATCH_DEEPEP);
  assert_int_equal(with->scenario->options.dispatcher_num_sms, 64);
  assert_int_equal(window->scenario->model->sliding_window.window, 65);
  assert_false(mentions(with->ignored, "turbo"));
  assert_false(mentions(without->ignored, "turbo"));
  assert_null(import_behind(stray, &error));
  assert_non_null(strstr(error->message, "must be --KEY VALUE"));
}

/* Keys that Primus alone has. */
static void own_keys(void **state) {
  (void)state;
  g_autoptr(MsImport) units = import_with("turbo_deepep_num_cu: 64", NULL);
  assert_int_equal(units->scenario->options.dispatcher_num_sms, 64);
  const char *fp8 = "fp8: hybrid\n      no_fp8_weight_transpose_cache: true";
  g_autoptr(MsImport) experts = import_with(fp8, NULL);
  assert_false(experts->scenario->options.disable_parameter_transpose_cache); /* it patches no grouped layer */
  g_autofree char *line = g_strconcat(fp8, "\n      num_experts: null", NULL);
  const char *const set[] = {"PRIMUS_EP=1", NULL};
  g_autoptr(MsImport) dense = import_with(line, set);
  assert_true(dense->scenario->options.disable_parameter_transpose_cache);
  assert_false(mentions(dense->ignored, "transpose-cache"));
}

static MsGroupedLibrary library_with(const char *line, const char *hardware) {
  g_autofree char *text = with_override(line);
  const MsImportOptions options = {.environment = TRUE, .hardware = hardware};
  g_autoptr(GError) error = NULL;
  g_autoptr(MsImport) import = import_text(text, &options, &error);
  assert_non_null(import);
  gboolean turbo = import->scenario->options.grouped_gemm_library == MS_GROUPED_TURBO;
  assert_true(mentions(import->remarks, "its kernels are read as") || strstr(line, "grouped") || strstr(line, "stage"));
  assert_true(!turbo || import->scenario->options.moe_permute_fusion || !strstr(line, "stage"));
  return import->scenario->options.grouped_gemm_library;
}

/* Grouped products of Primus-Turbo, where its switches stand and the machine has curves of them. */
static void library(void **state) {
  (void)state;
  assert_int_equal(library_with("lr: 1.0e-5", NULL), MS_GROUPED_TE);
  assert_int_equal(library_with("use_turbo_grouped_gemm: true\n      moe_grouped_gemm: true", NULL), MS_GROUPED_TURBO);
  assert_int_equal(library_with("use_turbo_grouped_mlp: true\n      moe_grouped_gemm: true", NULL), MS_GROUPED_TURBO);
  assert_int_equal(library_with("turbo_sync_free_moe_stage: 2\n      moe_grouped_gemm: true", NULL), MS_GROUPED_TURBO);
  assert_int_equal(library_with("turbo_sync_free_moe_stage: 1\n      moe_grouped_gemm: true", NULL), MS_GROUPED_TE);
  assert_int_equal(library_with("use_turbo_grouped_gemm: true\n      moe_grouped_gemm: true", "h200-sxm"),
                   MS_GROUPED_TE);
}

/* The adapters of Primus's fine-tuning, with its defaults; other trainers read none of it. */
static void adapters(void **state) {
  (void)state;
  g_autoptr(MsImport) all = import_with("stage: sft\n      lora: {enabled: true, lora_A_init_method: kaiming}", NULL);
  const MsLora *lora = &all->scenario->training.lora;
  assert_int_equal(lora->rank, 32);
  assert_float_equal(lora->alpha, 32, 0);
  assert_float_equal(lora->dropout, 0, 0);
  assert_int_equal(__builtin_popcount(lora->targets), 4);
  assert_false(mentions(all->remarks, "share one adapter"));
  assert_false(mentions(all->ignored, "lora"));
  g_autoptr(MsImport) some = import_with("stage: sft\n      lora: {enabled: true, dim: 8, alpha: 16, dropout: 0.1, "
                                         "target_modules: [linear_qkv, linear_fc1]}",
                                         NULL);
  lora = &some->scenario->training.lora;
  assert_int_equal(lora->rank, 8);
  assert_float_equal(lora->alpha, 16, 0);
  assert_float_equal(lora->dropout, 0.1, 1e-12);
  assert_int_equal(__builtin_popcount(lora->targets), 2);
  g_autoptr(MsImport) off = import_with("stage: sft\n      lora: {enabled: false, dim: 8}", NULL);
  assert_false(ms_lora_is_on(&off->scenario->training.lora));
  g_autoptr(MsImport) pretraining = import_with("lora: {enabled: true}", NULL);
  assert_false(ms_lora_is_on(&pretraining->scenario->training.lora));
  assert_true(mentions(pretraining->remarks, "lora.enabled: only the trainer of \"stage: sft\" reads it"));
}

/* Lists that Megatron-LM takes whole, and those of which it takes word after word. */
static void lists(void **state) {
  (void)state;
  g_autoptr(MsImport) import =
      import_with("moe_layer_freq: [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]\n"
                  "      window_attn_skip_freq: [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]\n"
                  "      recompute_granularity: selective\n      recompute_modules: [mlp, moe]",
                  NULL);
  const MsScenario *s = import->scenario;
  int experts = 0;
  for (int i = 0; i < s->model->num_layers; i++) experts += s->model->moe_layer[i];
  assert_int_equal(experts, 8);
  assert_int_equal(s->model->moe_layer[1], 0);
  assert_int_equal(s->model->sliding_window.window, 129);
  assert_int_equal(s->model->sliding_window.period, 2);
  assert_int_equal(__builtin_popcount(s->options.recompute.modules), 2);
}

/* Sinks and windows of Primus-Turbo's attention. */
static void sinks(void **state) {
  (void)state;
  const char *turbo = "use_turbo_attention: true\n      use_sink_attention: true";
  g_autoptr(MsImport) plain = import_with(turbo, NULL);
  assert_true(plain->scenario->model->softmax_sink);
  g_autofree char *windows = g_strconcat(turbo, "\n      sink_sliding_window: 127", NULL),
                  *halves = g_strconcat(windows, "\n      sink_window_even_layers_only: true", NULL),
                  *parts = g_strconcat(turbo, "\n      context_parallel_size: 2", NULL);
  g_autoptr(MsImport) every = import_with(windows, NULL);
  assert_int_equal(every->scenario->model->sliding_window.window, 128);
  assert_int_equal(every->scenario->model->sliding_window.period, 0);
  g_autoptr(MsImport) half = import_with(halves, NULL);
  assert_int_equal(half->scenario->model->sliding_window.window, 128);
  assert_int_equal(half->scenario->model->sliding_window.period, 2);
  g_autoptr(MsImport) split = import_with(parts, NULL);
  assert_false(split->scenario->model->softmax_sink);
  assert_true(mentions(split->remarks, "use_sink_attention: Primus switches it off beside context parallelism"));
  g_autoptr(MsImport) other = import_with("use_sink_attention: true", NULL);
  assert_false(other->scenario->model->softmax_sink);
  assert_true(mentions(other->remarks, "use_sink_attention: only use_turbo_attention reads it"));
}

/* PyTorch's FSDP2 is that of Megatron, with and without the weights kept. */
static void fsdp(void **state) {
  (void)state;
  g_autoptr(MsImport) whole = import_with("use_torch_fsdp2: true", NULL);
  assert_int_equal(whole->scenario->options.fsdp, MS_FSDP_OPTIM_GRADS_PARAMS);
  assert_true(mentions(whole->remarks, "--use-torch-fsdp2 is read as Megatron-FSDP, "));
  g_autoptr(MsImport) kept =
      import_with("use_torch_fsdp2: true\n      torch_fsdp2_no_reshard_after_forward: true", NULL);
  assert_int_equal(kept->scenario->options.fsdp, MS_FSDP_OPTIM_GRADS);
}

static void refusals(void **state) {
  (void)state;
  static const struct {
    const char *line, *set, *error;
  } rows[] = {
      {"recompute_layer_ids: \"0,3\"", NULL, ":20: recompute_layer_ids: is 0,3; moesim has no recomputation of layers"},
      {"patch_zero_bubble: true", NULL, ":20: patch_zero_bubble: is true; moesim has no reading of"},
      {"spec: ['primus.backends.x', 'y']", NULL,
       ":20: spec: is primus.backends.x y; moesim has no reading of Primus's"},
      {"lfm_layer_types: [conv]", NULL, ":20: lfm_layer_types: is conv; moesim has no short convolutions"},
      {"retro_layers: 3", NULL, ":20: --retro-layers: changes the model or its time"},
      {"stage: sft\n      lora: {enabled: true, exclude_modules: [x]}", NULL,
       ":21: lora.exclude_modules: is x; moesim has no such adapters"},
      {"stage: sft\n      lora: {enabled: true, target_modules: ['*.layers.0.*.linear_qkv']}", NULL,
       ":21: --lora-target-modules: \"*.layers.0.*.linear_qkv\" is no linear layer of this model"},
      {"fp4: e2m1\n      fp4_recipe: mxfp4", NULL, ":21: --fp4-recipe: unknown word \"mxfp4\", moesim has nvfp4"},
      {"fp4: e3m0", NULL, ":20: --fp4-format: unknown word \"e3m0\""},
      {"micro_batch_size: [1, 2]", NULL, ":20: --micro-batch-size: is \"1 2\", must be one value"},
      {"norm_epsilon: [1.0e-5, 2]", NULL, ":20: --norm-epsilon: is \"1.0e-5 2\", must be one value"},
      {"transformer_impl: [local, local]", NULL, ":20: --transformer-impl: is \"local local\", must be one value"},
      {"window_attn_skip_freq: [1, 0]", NULL, ":20: --window-attn-skip-freq: gives 2 layers, must give"},
      {"window_attn_skip_freq: [1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]", NULL,
       ":20: --window-attn-skip-freq: is a list; moesim knows one full layer after every N - 1"},
      {"load: null", NULL, ":20: modules.pre_trainer.overrides.load: is given twice"},
      {"x: *y", NULL, ":20: modules.pre_trainer.overrides.x: is an alias; write it out"},
      {"", "PRIMUS_MODEL=absent",
       ":6: modules.pre_trainer.model: is \"absent.yaml\", which is in no primus/configs/models"},
      {"", "PRIMUS_MODEL=circle", "circle.yaml: extends: goes round in a circle"},
      {"", "PRIMUS_MODEL=wide", "extends: is one of more than 256 presets that extend each other"},
      {"", "NNODES=65536 GPUS_PER_NODE=65536", "NNODES: times GPUS_PER_NODE is more than 1048576"},
      {"seq_length_of: {a: {b: 1}}\n    framework: torchtitan", NULL, "modules.pre_trainer.framework: is given twice"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_auto(GStrv) set = g_strsplit(rows[i].set ? rows[i].set : "", " ", -1);
    const MsImportOptions options = {.environment = TRUE, .set = (const char *const *)set};
    g_autofree char *text = with_override(rows[i].line);
    g_autoptr(MsImport) import = import_text(text, &options, &error);
    if (import || !strstr(error->message, rows[i].error))
      fail_msg("%s %s: %s", rows[i].line, rows[i].set, import ? "taken" : error->message);
  }
}

/* Keys of TorchTitan: presets, overrides, words behind the file, and what Primus-Turbo changes of them. */
static MsImport *titan_with(const char *line, const char *const *words, GError **error) {
  static const char file[] = MS_SOURCE_DIR "/tests/data/primus/examples/torchtitan/configs/MI300X/small.yaml";
  const char *const set[] = {"NNODES=2", NULL};
  const MsImportOptions options = {.environment = TRUE, .set = set, .words = words};
  g_autofree char *text = NULL;
  if (!g_file_get_contents(file, &text, NULL, NULL)) fail_msg("no %s", file);
  g_autofree char *whole = g_strconcat(text, line, NULL);
  return ms_import_primus(whole, strlen(whole), file, &options, error);
}

static void torchtitan(void **state) {
  (void)state;
  const char *const words[] = {"--parallelism.tensor_parallel_degree", "2", "--training.seq_len=4096", NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(MsImport) import = titan_with("", words, &error);
  if (!import) fail_msg("%s", error->message);
  const MsScenario *s = import->scenario;
  assert_int_equal(s->framework, MS_FRAMEWORK_TORCHTITAN);
  assert_string_equal(s->name, "small");
  assert_string_equal(s->hardware->name, "mi300x");
  assert_int_equal(s->gpus, 16);
  assert_int_equal(s->layout.tp, 2);
  assert_int_equal(s->layout.ep, 8);
  assert_int_equal(s->training.seq_length, 4096);
  assert_int_equal(s->training.micro_batch_size, 4);
  assert_int_equal(s->training.global_batch_size, 32);
  assert_int_equal(s->training.precision, MS_FP8_TENSORWISE);
  assert_int_equal(s->training.routing.kind, MS_ROUTING_BALANCED);
  assert_int_equal(s->options.recompute.granularity, MS_RECOMPUTE_FULL);
  assert_int_equal(s->options.fsdp, MS_FSDP_OPTIM_GRADS_PARAMS);
  assert_true(s->options.torch_compile);
  assert_false(s->options.fp8_param_gather); /* Primus-Turbo's layers have none */
  assert_true(
      mentions(import->remarks, "enable_fsdp_float8_all_gather: primus_turbo.use_turbo_float8_linear does not"));
  assert_true(mentions(import->remarks, "use_moe_fp8: experts are read in BF16"));
  assert_true(mentions(import->ignored, "training.steps"));
  assert_false(mentions(import->ignored, "metrics.log_freq") || mentions(import->ignored, "primus_turbo"));
  g_autoptr(MsImport) own = titan_with("      primus_turbo:\n        use_turbo_float8_linear: false\n", NULL, &error);
  assert_true(own && own->scenario->options.fp8_param_gather);
}

static void torchtitan_refusals(void **state) {
  (void)state;
  static const struct {
    const char *line, *error;
  } rows[] = {
      {"      primus_turbo:\n        enable_attention_float8: true\n",
       "enable_attention_float8: is true; moesim has no"},
      {"      model:\n        converters: [quantize.linear.mx]\n", "use_turbo_mx_linear: is true; moesim has no such"},
      {"      model:\n        flavor: 17B\n", "small.yaml:21: model.flavor: deepseek_v3 17B is no model"},
      {"      optimizer:\n        name: SGD\n", "optimizer.name: is \"SGD\""},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) import = titan_with(rows[i].line, NULL, &error);
    if (import || !strstr(error->message, rows[i].error))
      fail_msg("%s: %s", rows[i].line, import ? "taken" : error->message);
  }
  const char *const words[] = {"--seq_len", "5", NULL};
  g_autoptr(GError) error = NULL;
  assert_null(titan_with("", words, &error));
  assert_non_null(strstr(error->message, "is followed by \"--seq_len\", must be --TABLE.KEY VALUE"));
}

/* Fine-tuning: another module, whose preset has the adapters. */
static void fine_tuning(void **state) {
  (void)state;
  static const char text[] = "modules:\n  post_trainer:\n    framework: megatron\n    config: sft_trainer.yaml\n    "
                             "model: small.yaml\n    overrides:\n      seq_length: 2048\n      "
                             "enable_packed_sequences: true\n      use_packed_attention: true\n      lora: {enabled: "
                             "true}\n";
  g_autoptr(GError) error = NULL;
  const MsImportOptions options = {.environment = TRUE};
  g_autoptr(MsImport) import = import_text(text, &options, &error);
  if (!import) fail_msg("%s", error->message);
  assert_int_equal(import->scenario->training.global_batch_size, 64);
  assert_int_equal(import->scenario->training.lora.rank, 16);
  assert_true(mentions(import->remarks, "use_packed_attention: samples have lengths that no key says"));
}

/* Files that are none of Primus's training. */
static void other_files(void **state) {
  (void)state;
  static const struct {
    const char *text, *error;
  } rows[] = {
      {"", "is empty"},
      {"[a]", "must be a map"},
      {"a: 1\n---\nb: 2\n", "has a second document"},
      {"modules: {sft_trainer: {framework: megatron}}", "modules.pre_trainer: and modules.post_trainer are missing"},
      {"modules: {pre_trainer: {framework: maxtext}}",
       "modules.pre_trainer.framework: is \"maxtext\", moesim reads megatron and torchtitan of Primus"},
      {"modules: {pre_trainer: {framework: torchtitan}}", "modules.pre_trainer.config: is missing"},
      {"modules: {pre_trainer: {framework: megatron}}", "modules.pre_trainer.config: is missing"},
      {"a: {b: [", "not YAML"}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    const MsImportOptions options = {.environment = TRUE};
    g_autoptr(MsImport) import = import_text(rows[i].text, &options, &error);
    if (import || !strstr(error->message, rows[i].error))
      fail_msg("%s: %s", rows[i].text, import ? "taken" : error->message);
  }
}

/* A damaged file is taken or refused with its name. */
static void damaged(void **state) {
  (void)state;
  g_autofree char *text = file_text();
  GRand *rand = g_rand_new_with_seed(5);
  const MsImportOptions options = {.environment = TRUE};
  int refused = 0, rounds = ms_by_tier(20, 50);
  for (int i = 0; i < rounds; i++) {
    g_autofree char *other = ms_test_mutate(rand, text);
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) import = import_text(other, &options, &error);
    if (!import && !strstr(error->message, ".yaml")) fail_msg("%s", error->message);
    refused += !import;
  }
  g_rand_free(rand);
  assert_in_range(refused, 1, rounds - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(presets_and_overrides),
                                     cmocka_unit_test(keys_from_outside),
                                     cmocka_unit_test(defaults_are_not_listed),
                                     cmocka_unit_test(variables),
                                     cmocka_unit_test(own_keys),
                                     cmocka_unit_test(own_keys_behind_the_file),
                                     cmocka_unit_test(library),
                                     cmocka_unit_test(adapters),
                                     cmocka_unit_test(lists),
                                     cmocka_unit_test(sinks),
                                     cmocka_unit_test(fsdp),
                                     cmocka_unit_test(refusals),
                                     cmocka_unit_test(torchtitan),
                                     cmocka_unit_test(torchtitan_refusals),
                                     cmocka_unit_test(fine_tuning),
                                     cmocka_unit_test(other_files),
                                     cmocka_unit_test(damaged)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
