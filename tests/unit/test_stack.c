/* Software stacks: what a name says of all releases, for files that leave it out. */
#include "lib/close.h"

#include "describe/framework.h"
#include "layout/layout.h"
#include "lib/data.h"
#include "lib/world.h"
#include "sim/band.h"
#include "sim/simulate.h"

#include <math.h>
#include <string.h>

static MsScenario *run_of(const char *software, const char *top, const char *options) {
  g_autofree char *text = g_strdup_printf(
      "{\"software\": \"%s\", %s \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "
      "{\"seq_length\": 8192, \"micro_batch_size\": 2, \"global_batch_size\": 16}, \"options\": {%s}}",
      software, top, options);
  return ms_test_scenario_of(text);
}

static double step_of(const MsScenario *s) {
  GError *error = NULL;
  g_autoptr(MsResult) result = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
  if (!result) fail_msg("%s", error->message);
  return result->step_time_s;
}

/* A release that nobody listed is its family's; a name that only begins so is not. */
static void names_say_what_trains(void **state) {
  (void)state;
  static const struct {
    const char *software, *framework;
  } cases[] = {{"torchtitan-2031-01", "torchtitan"},
               {"torchtitan", "torchtitan"},
               {"torchtitanic", "megatron"},
               {"llm-foundry", "fsdp1"},
               {"nanotron-9", "nanotron"},
               {"nemo-automodel-1.0", "automodel"},
               {"deepspeed-0.15", "deepspeed"},
               {"nemo-26.04", "megatron"},
               {"what-is-this", "megatron"},
               {"megatron-deepspeed", "megatron"},
               {"fms-fsdp-2024", "fsdp1"}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = run_of(cases[i].software, "", "");
    MsRefusal refusal;
    if (strcmp(ms_framework(s)->word, cases[i].framework) != 0)
      fail_msg("%s is run by %s, not %s", cases[i].software, ms_framework(s)->word, cases[i].framework);
    if (!ms_layout_check(s, &refusal)) fail_msg("%s: %s", cases[i].software, refusal.why);
  }
}

/* A name that says nothing of a release is said to: misspelt, it would be another framework's prediction. */
static void unknown_names_are_said(void **state) {
  (void)state;
  static const struct {
    const char *software;
    gboolean known;
  } cases[] = {{"torchtitan", TRUE}, {"torchtitn", FALSE}, {"torchtitn-2031-01", TRUE},
               {"mcore-0.12", TRUE}, {"core_v0.12", TRUE}, {"anything-te2.11", TRUE},
               {"deepspeed", TRUE},  {"nemo-25.09", TRUE}, {"megatron-lm-main", FALSE}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = run_of(cases[i].software, "", "");
    g_autofree char *caveat = ms_caveat(s, NULL, MS_FIDELITY_FULL);
    gboolean said = caveat && strstr(caveat, "no release that software/stacks.json knows");
    if (said == cases[i].known) fail_msg("%s: %s", cases[i].software, caveat ? caveat : "no caveat");
  }
  g_autoptr(MsScenario) none = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  assert_false(none->stack.unlisted);
}

/* As if the file had said it, and no more than that: a framework that it names stays. */
static void as_if_it_were_said(void **state) {
  (void)state;
  g_autoptr(MsScenario) named = run_of("torchtitan-2031-01", "", ""),
                        said = run_of("torchtitan-2031-01", "\"framework\": \"torchtitan\",", ""),
                        other = run_of("torchtitan-2031-01", "\"framework\": \"megatron\",", "");
  assert_close(step_of(named), step_of(said), 0);
  assert_int_equal(other->framework, MS_FRAMEWORK_MEGATRON);
  assert_int_equal(other->options.fsdp, MS_FSDP_NONE);
  g_autofree char *tells = ms_scenario_defaults(named), *silent = ms_scenario_defaults(said);
  assert_non_null(strstr(tells, "framework torchtitan"));
  assert_null(strstr(silent, "framework"));
}

/* Written back, a scenario is the same, whichever framework it came to. */
static void written_back(void **state) {
  (void)state;
  static const char *const tops[] = {"", "\"framework\": \"megatron\","};
  for (gsize i = 0; i < G_N_ELEMENTS(tops); i++) {
    g_autoptr(MsScenario) s = run_of("llm-foundry", tops[i], "\"attention_backend\": \"flash\"");
    g_autofree char *text = ms_scenario_text(s, 0);
    g_autoptr(MsScenario) again = ms_test_scenario_of(text);
    assert_int_equal(again->framework, s->framework);
    assert_close(step_of(again), step_of(s), 0);
  }
}

/* What the framework has not is Megatron-Core's, as it would be without the name; its own selective recompute stands
 * for the modules of Megatron-Core that it has not. */
static void what_it_has_not(void **state) {
  (void)state;
  g_autoptr(MsScenario) lacks = run_of("torchtitan-2031-01", "", "\"moe_permute_fusion\": true"),
                        whole = run_of("llm-foundry", "", "\"fsdp\": \"none\""),
                        selective = run_of("torchtitan-2031-01", "",
                                           "\"recompute\": {\"granularity\": \"selective\", \"modules\": "
                                           "[\"layernorm\"]}");
  assert_int_equal(lacks->framework, MS_FRAMEWORK_MEGATRON);
  assert_int_equal(whole->framework, MS_FRAMEWORK_MEGATRON);
  g_autofree char *tells = ms_scenario_defaults(lacks);
  assert_non_null(strstr(tells, "framework megatron"));
  assert_int_equal(selective->framework, MS_FRAMEWORK_TORCHTITAN);
  assert_int_equal(selective->options.recompute.modules, MS_RM_OPERATORS);
}

/* TorchTitan takes cuDNN's attention since October 2025: faster, and no scores are kept for it in layers of PyTorch. */
static void newer_attention_of_torchtitan(void **state) {
  (void)state;
  g_autoptr(MsScenario) before = run_of("torchtitan-2025-06", "", ""), since = run_of("torchtitan-2025-11", "", "");
  assert_int_equal(before->options.attention_backend, MS_ATTN_FA2);
  assert_int_equal(since->options.attention_backend, MS_ATTN_FUSED);
  assert_true(step_of(since) < 0.95 * step_of(before));
  g_autoptr(MsResult) old = ms_simulate(before, MS_FIDELITY_FAST, NULL, NULL),
                      now = ms_simulate(since, MS_FIDELITY_FAST, NULL, NULL);
  assert_true(now->memory->stage[0].device_B < 1.05 * old->memory->stage[0].device_B);
}

/* Whole sharding of a pipeline gathers once a step, unless a file of the framework's own asks for more. */
static void shards_of_a_pipeline(void **state) {
  (void)state;
  static const char named[] = "torchtitan-2031-01", whole[] = "\"fsdp\": \"optim-grads-params\"",
                    cut[] = "\"layout\": {\"pp\": 2},",
                    own[] = "\"framework\": \"torchtitan\", \"layout\": {\"pp\": 2},";
  static const struct {
    const char *software, *top, *options;
    MsFsdp fsdp;
  } cases[] = {{named, "", whole, MS_FSDP_OPTIM_GRADS_PARAMS},
               {named, cut, whole, MS_FSDP_OPTIM},
               {named, cut, "\"fsdp\": \"none\"", MS_FSDP_NONE},
               {named, cut, "", MS_FSDP_OPTIM},
               {"nobody-s", own, whole, MS_FSDP_OPTIM_GRADS_PARAMS},
               {"nobody-s", own, "", MS_FSDP_OPTIM},
               {"nemo-automodel", cut, whole, MS_FSDP_OPTIM_GRADS_PARAMS}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = run_of(cases[i].software, cases[i].top, cases[i].options);
    assert_int_equal(s->options.fsdp, cases[i].fsdp);
  }
}

static MsRequest *asked(const char *top, const char *layout) {
  g_autofree char *text =
      g_strdup_printf("{%s, \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, "
                      "\"training\": {\"seq_length\": 8192, \"global_batch_size\": 16}, \"layout\": {%s}}",
                      top, layout);
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "asked.json", &error);
  MsRequest *request = doc ? ms_request_from_doc(doc, &error) : NULL;
  if (!request) fail_msg("%s", error->message);
  return request;
}

static int sharding_asked(const char *layout) {
  g_autoptr(MsRequest) request = asked("\"framework\": \"torchtitan\"", layout);
  return request->base->options.fsdp;
}

static int framework_asked(const char *layout) {
  g_autoptr(MsRequest) request = asked("\"software\": \"torchtitan-2031-01\"", layout);
  return request->base->framework;
}

/* By what all layouts of the request have: a list may begin with what the framework has not. */
static void framework_of_a_request(void **state) {
  (void)state;
  assert_int_equal(framework_asked("\"schedule\": \"zb-h1\""), MS_FRAMEWORK_MEGATRON);
  assert_int_equal(framework_asked("\"schedule\": \"zb-h1\", \"tp\": [1, 2]"), MS_FRAMEWORK_MEGATRON);
  assert_int_equal(framework_asked("\"schedule\": [\"zb-h1\", \"1f1b\"]"), MS_FRAMEWORK_TORCHTITAN);
  assert_int_equal(framework_asked("\"schedule\": [\"1f1b\", \"zb-h1\"]"), MS_FRAMEWORK_TORCHTITAN);
}

/* The order of a list changes nothing; a request with a run's own PP asks for that run. */
static void sharding_of_a_request(void **state) {
  (void)state;
  assert_int_equal(sharding_asked("\"pp\": 2"), MS_FSDP_OPTIM);
  assert_int_equal(sharding_asked("\"pp\": 1"), MS_FSDP_OPTIM_GRADS_PARAMS);
  assert_int_equal(sharding_asked("\"pp\": [1, 2]"), MS_FSDP_OPTIM_GRADS_PARAMS);
  assert_int_equal(sharding_asked("\"pp\": [2, 1]"), MS_FSDP_OPTIM_GRADS_PARAMS);
}

/* AutoModel's only balanced routing hands experts out in turn. */
static void balance_is_the_fake_gate(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_of("nemo-automodel", "", ""),
                        other = run_of("nemo-automodel", "\"framework\": \"megatron\",", ""),
                        lacks = run_of("nemo-automodel", "", "\"tp_comm_overlap\": true");
  assert_int_equal(s->training.routing.kind, MS_ROUTING_ROUND_ROBIN);
  assert_int_equal(other->training.routing.kind, MS_ROUTING_BALANCED);
  assert_int_equal(lacks->framework, MS_FRAMEWORK_MEGATRON);
  assert_int_equal(lacks->training.routing.kind, MS_ROUTING_BALANCED);
}

/* "flash" is what it was to the software: FlashAttention-2 is slower on Hopper than what came after it. */
static void flash_is_theirs(void **state) {
  (void)state;
  static const char megatron[] = "\"framework\": \"megatron\",", flash[] = "\"attention_backend\": \"flash\"";
  g_autoptr(MsScenario) newest = run_of("nobody-s", megatron, flash), second = run_of("fms-fsdp", megatron, flash),
                        fa2 = run_of("nobody-s", megatron, "\"attention_backend\": \"fa2\""),
                        cudnn = run_of("fms-fsdp", megatron, "\"attention_backend\": \"fused\"");
  assert_int_equal(ms_attn_generation(newest), MS_ATTN_NEWEST);
  assert_int_equal(ms_attn_generation(second), MS_ATTN_SECOND);
  assert_int_equal(ms_attn_generation(cudnn), MS_ATTN_NEWEST);
  assert_true(step_of(second) > 1.01 * step_of(newest));
  assert_close(step_of(second), step_of(fa2), 0);
}

/* Of a family: over the framework's own, under what the file says, not of another framework. */
static void options_of_a_family(void **state) {
  (void)state;
  g_autoptr(MsScenario) plain = run_of("nemo-25.04", "", ""),
                        said = run_of("nemo-25.04", "", "\"check_for_nan_in_loss_and_grad\": false"),
                        before = run_of("nemo-24.09", "", ""), later = run_of("nemo-25.11", "", ""),
                        local = run_of("megatron-deepspeed", "", "\"attention_backend\": \"unfused\""),
                        other = run_of("nemo-25.04", "\"framework\": \"deepspeed\",", "");
  assert_true(plain->options.check_for_nan_in_loss_and_grad && before->options.check_for_nan_in_loss_and_grad);
  assert_false(said->options.check_for_nan_in_loss_and_grad || later->options.check_for_nan_in_loss_and_grad ||
               other->options.check_for_nan_in_loss_and_grad);
  assert_int_equal(local->options.transformer_impl, MS_IMPL_LOCAL);
}

/* A release that is not listed came out when its name says: a month, the number of a paper, a version of
 * Megatron-Core. */
static void names_say_when(void **state) {
  (void)state;
  static const struct {
    const char *software;
    double year;
  } cases[] = {{"nemo-24.07", 2024 + 7 / 12.0},
               {"torchtitan-2025-10", 2025 + 10 / 12.0},
               {"mine-rc-2023-1", 2023 + 1 / 12.0},
               {"mcore-0.8", 2024.61},
               {"mcore-0.12.1", 2025.35},
               {"mcore-0.1", 0},
               {"mcore-0.99", 0},
               {"megatron-0.12.0rc3-te2.1", 2025.35},
               {"megatron-deepspeed-0.15", 0},
               {"deepspeed-0.15", 0},
               {"megatron-2205.05198", 2022 + 5 / 12.0},
               {"mcore-2504.14960", 2025 + 4 / 12.0},
               {"mcore-2504.149", 0},
               {"mcore-2513.14960", 0},
               {"nemo-24.12.01", 2025},
               {"nvcr.io/nvidia/pytorch:25.10-py3", 2025 + 10 / 12.0},
               {"TorchTitan 2025.10", 2025 + 10 / 12.0},
               {"mine-20251027", 2025 + 10 / 12.0},
               {"site-n64-ngc23.09-nemo", 2023.75},
               {"Megatron-Core v0.8.0", 2024.61},
               {"core_r0.8.0rc1", 2024.61},
               {"megatron-lm-core_v0.8", 2024.61},
               {"mcore-0.80", 0},
               {"mlperf-v4.1-somebody", 2024.8},
               {"NVIDIA-NeMo/Megatron-Bridge@v0.4.0", 2026.3},
               {"mbridge-0.4.2", 2026.37},
               {"mbridge-0.3.2", 2026.15},
               {"mbridge-main-2026-11", 2026 + 11 / 12.0},
               {"nemo-26.04.05", 2026.3},
               {"nemo-2.5.0", 2025.75},
               {"megatron-lm-0.10", 2025.13},
               {"nemo-25.13", 0},
               {"nemo-25.123", 0},
               {"nemo", 0},
               {"x-2024-", 0},
               {"nemo-25.04", 2025.33},
               {"mcore-dev-1999-01", 0},
               {"megatron-12-34-2024-02", 2024 + 2 / 12.0}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    MsStack stack;
    assert_true(ms_stack_find(cases[i].software, &stack, NULL));
    if (fabs(stack.released_year - cases[i].year) > 1e-9)
      fail_msg("%s is of %g, not %g", cases[i].software, stack.released_year, cases[i].year);
    ms_stack_clear(&stack);
  }
}

/* TransformerEngine: as the name says, as listed, else the newest that a listed release had by then. */
static void names_say_which_engine(void **state) {
  (void)state;
  static const struct {
    const char *software;
    int minor;
  } cases[] = {{"nemo-25.11", 9},
               {"nemo-25.12", 9},
               {"nemo-26.03", 12},
               {"nemo-26.05", 14},
               {"mcore-0.18", 16},
               {"megatron-bridge-0.5.0", 16},
               {"mbridge-main-2026-07", 16},
               {"mbridge-main-2031-01", 17},
               {"nemo-25.04", 7},
               {"pytorch:25.12-py3", 9},
               {"nemo-26.06-te2.11", 11},
               {"megatron-23e00ed0-te2.11", 11},
               {"mine-transformer-engine-2.5.0", 5},
               {"mine-te1.13", 1},
               {"site-2.5", 0},
               {"nobody-s", 0}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    MsStack stack;
    assert_true(ms_stack_find(cases[i].software, &stack, NULL));
    if (stack.transformer_engine != cases[i].minor)
      fail_msg("%s has 2.%d, not 2.%d", cases[i].software, stack.transformer_engine, cases[i].minor);
    ms_stack_clear(&stack);
  }
}

/* Factors of a listed release are those of every name that goes on from it, and of its other names. */
static void names_go_on(void **state) {
  (void)state;
  static const struct {
    const char *software, *stack;
  } cases[] = {{"nemo-25.09", "nemo-25.09"},
               {"nvcr.io/nvidia/nemo:25.09.01", "nemo-25.09"},
               {"Megatron-Bridge 0.1.0", "nemo-25.09"},
               {"megatron-deepspeed", "megatron-deepspeed"},
               {"megatron-deepspeedy", "default"},
               {"megatron", "default"},
               {"nemo-25.091", "default"}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    MsStack stack;
    assert_true(ms_stack_find(cases[i].software, &stack, NULL));
    if (strcmp(stack.name, cases[i].stack) != 0)
      fail_msg("%s is %s, not %s", cases[i].software, stack.name, cases[i].stack);
    ms_stack_clear(&stack);
  }
}

static MsScenario *experts_of(const char *software, const char *model, const char *hardware, const char *options) {
  g_autofree char *text =
      g_strdup_printf("{\"software\": \"%s\", \"model\": \"%s\", \"hardware\": \"%s\", \"gpus\": 8, \"training\": "
                      "{\"seq_length\": 4096, \"global_batch_size\": 16}, \"layout\": {\"ep\": 8}, \"options\": {%s}}",
                      software, model, hardware, options);
  return ms_test_scenario_of(text);
}

/* What came after the release is left out: of models and machines that it concerns, where the file says nothing. */
static void what_came_later(void **state) {
  (void)state;
  static const struct {
    const char *software, *model, *hardware, *options;
    gboolean permute, router, rope;
    MsAttnBackend attention;
  } cases[] = {
      {"nemo-25.02", "deepseek-v3", "gb200-nvl72", "", TRUE, FALSE, FALSE, MS_ATTN_UNFUSED},
      {"nemo-25.02", "deepseek-v3", "h100-sxm", "", TRUE, FALSE, FALSE, MS_ATTN_FUSED},
      {"nemo-25.02", "mixtral-8x7b", "gb200-nvl72", "", TRUE, FALSE, TRUE, MS_ATTN_FUSED},
      {"nemo-25.07", "deepseek-v3", "gb200-nvl72", "", TRUE, FALSE, TRUE, MS_ATTN_FUSED},
      {"nemo-25.11", "deepseek-v3", "gb200-nvl72", "", TRUE, TRUE, TRUE, MS_ATTN_FUSED},
      {"nobody-s", "deepseek-v3", "gb200-nvl72", "", TRUE, TRUE, TRUE, MS_ATTN_FUSED},
      {"mcore-0.10", "mixtral-8x7b", "h100-sxm", "", FALSE, FALSE, TRUE, MS_ATTN_FUSED},
      {"mcore-0.11", "mixtral-8x7b", "h100-sxm", "", TRUE, FALSE, TRUE, MS_ATTN_FUSED},
      {"mcore-0.8", "mixtral-8x7b", "h100-sxm", "\"moe_permute_fusion\": true", TRUE, FALSE, TRUE, MS_ATTN_FUSED},
      {"nemo-25.02", "deepseek-v3", "gb200-nvl72", "\"moe_router_fusion\": true, \"attention_backend\": \"flash\"",
       TRUE, TRUE, FALSE, MS_ATTN_FLASH}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = experts_of(cases[i].software, cases[i].model, cases[i].hardware, cases[i].options);
    if (s->options.moe_permute_fusion != cases[i].permute || s->options.moe_router_fusion != cases[i].router ||
        s->options.apply_rope_fusion != cases[i].rope || s->options.attention_backend != cases[i].attention)
      fail_msg("%s of %s on %s: %d, %d, %d, %d", cases[i].model, cases[i].software, cases[i].hardware,
               s->options.moe_permute_fusion, s->options.moe_router_fusion, s->options.apply_rope_fusion,
               s->options.attention_backend);
  }
}

/* MindSpeed-LLM's scripts of that release ask for no grouped products; that of the next does. */
static void experts_of_a_family(void **state) {
  (void)state;
  g_autoptr(MsScenario)
      candidate = experts_of("MindSpeed-LLM-1.0.RC3", "mixtral-8x7b", "h100-sxm", ""),
      release = experts_of("mindspeed-llm-1.0.0", "mixtral-8x7b", "h100-sxm", ""),
      said = experts_of("mindspeed-llm-1.0.rc3", "mixtral-8x7b", "h100-sxm", "\"moe_grouped_gemm\": true");
  assert_false(candidate->options.moe_grouped_gemm || candidate->options.moe_permute_fusion);
  assert_true(release->options.moe_grouped_gemm && said->options.moe_grouped_gemm);
}

/* What the name says of attention stands before the usual kernels of stacks. */
static void attention_of_a_family(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_of("mlperf-v3.1-nemo", "", ""),
                        said = run_of("mlperf-v3.1-nemo", "", "\"attention_backend\": \"fused\""),
                        stack = run_of("zero-bubble-repo", "", "");
  assert_int_equal(s->options.attention_backend, MS_ATTN_FA2);
  assert_int_equal(said->options.attention_backend, MS_ATTN_FUSED);
  assert_int_equal(stack->options.attention_backend, MS_ATTN_UNFUSED);
  assert_false(stack->options.overlap_p2p_comm);
}

/* Latent attention rotates in one kernel with YaRN only. */
static void latent_rotation(void **state) {
  (void)state;
  g_autoptr(MsScenario) plain = experts_of("nemo-26.04", "moonlight-16b-a3b", "h100-sxm", ""),
                        yarn = experts_of("nemo-26.04", "deepseek-v3", "h100-sxm", ""),
                        heads = experts_of("nemo-26.04", "mixtral-8x7b", "h100-sxm", "");
  assert_false(plain->options.apply_rope_fusion);
  assert_true(yarn->options.apply_rope_fusion && heads->options.apply_rope_fusion);
}

static gboolean pads(const char *software, const char *routing) {
  g_autofree char *text = g_strdup_printf(
      "{\"software\": \"%s\", \"model\": \"mixtral-8x7b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "
      "{\"seq_length\": 4096, \"global_batch_size\": 16, \"routing\": %s}, \"layout\": {\"ep\": 8}}",
      software, routing);
  g_autoptr(MsScenario) s = ms_test_scenario_of(text);
  g_autofree char *written = ms_scenario_text(s, 0);
  g_autoptr(MsScenario) again = ms_test_scenario_of(written);
  assert_int_equal(again->training.routing.pad_to_capacity, s->training.routing.pad_to_capacity);
  return s->training.routing.pad_to_capacity;
}

/* Token drop of a release that pads, where the file does not say. */
static void padding_of_a_family(void **state) {
  (void)state;
  assert_true(pads("nemo-25.09", "{\"capacity_factor\": 1.0}"));
  assert_true(pads("megatron-bridge-0.1.0", "{\"capacity_factor\": 1.0}"));
  assert_false(pads("nemo-25.09", "{\"capacity_factor\": 1.0, \"pad_to_capacity\": false}"));
  assert_false(pads("nemo-25.11", "{\"capacity_factor\": 1.0}"));
  assert_false(pads("nemo-25.09", "\"balanced\""));
}

static void refused_file(const char *key, const char *rows, const char *what) {
  GError *error = NULL;
  MsStack stack;
  g_autofree char *text = g_strdup_printf("{\"stacks\": [], \"%s\": %s}", key, rows);
  ms_test_data_write("software/stacks.json", text);
  assert_false(ms_stack_find("x-2024-01", &stack, &error));
  if (!strstr(error->message, what)) fail_msg("%s: %s", rows, error->message);
  g_error_free(error);
}

static void refused(const char *families, const char *what) { refused_file("families", families, what); }

static void wrong_rows(void **state) {
  (void)state;
  refused("{}", "families: must be a list");
  refused("[{\"prefix\": \"x\", \"framework\": \"torchtitian\"}]", "families[0].framework");
  refused("[{\"framework\": \"torchtitan\"}]", "families[0].prefix");
  refused("[{\"prefix\": \"x\", \"options\": {\"moe_router_fusio\": true}}]", "families[0].options.moe_router_fusio");
  refused("[{\"prefix\": \"x\", \"options\": []}]", "families[0].options");
  refused_file("releases", "{\"x-2024-01\": \"then\"}", "releases: x-2024-01 must be the year");
  refused_file("aliases", "[]", "aliases");
  refused_file("aliases", "{\"x\": 3}", "aliases: must be names");
  refused_file("transformer_engine", "{\"y\": \"3.1\"}", "y must be a version");
  refused_file("later", "{}", "later: must be a list");
  refused_file("later", "[{\"option\": \"x\", \"since_year\": 2025, \"value\": true}]", "later[0]: must name a key");
  refused_file("later", "[{\"option\": \"lcma\", \"since_year\": 2025}]", "and its value");
  refused_file("later", "[{\"option\": \"lcma\", \"since_year\": 2025, \"value\": 3}]", "later[0]");
  refused_file("later", "[{\"option\": \"lcma\", \"value\": true}]", "later[0].since_year");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_say_what_trains),
      cmocka_unit_test(as_if_it_were_said),
      cmocka_unit_test(written_back),
      cmocka_unit_test(what_it_has_not),
      cmocka_unit_test(newer_attention_of_torchtitan),
      cmocka_unit_test(shards_of_a_pipeline),
      cmocka_unit_test(sharding_of_a_request),
      cmocka_unit_test(framework_of_a_request),
      cmocka_unit_test(unknown_names_are_said),
      cmocka_unit_test(balance_is_the_fake_gate),
      cmocka_unit_test(flash_is_theirs),
      cmocka_unit_test(options_of_a_family),
      cmocka_unit_test(names_say_when),
      cmocka_unit_test(names_say_which_engine),
      cmocka_unit_test(names_go_on),
      cmocka_unit_test(what_came_later),
      cmocka_unit_test(experts_of_a_family),
      cmocka_unit_test(attention_of_a_family),
      cmocka_unit_test(latent_rotation),
      cmocka_unit_test(padding_of_a_family),
      cmocka_unit_test_setup_teardown(wrong_rows, ms_test_data_setup, ms_test_data_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
