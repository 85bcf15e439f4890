/* Adapters beside frozen weights: parameters and bytes by hand count, rows that go and rows that come, the step. */
#include "lib/close.h"

#include "describe/enums.h"
#include "launch/launch.h"
#include "lib/world.h"
#include "sim/simulate.h"

#include <string.h>

enum { RANK = 16 };

static guint32 target(const char *word) {
  for (int i = 0; i < ms_n_lora_targets; i++)
    if (strcmp(ms_lora_targets[i].word, word) == 0) return 1u << i;
  fail_msg("no target %s", word);
  return 0;
}

static MsScenario *adapted(const char *model, int gpus, int rank, guint32 targets) {
  MsScenario *s = ms_test_run(model, 0, "h200-sxm", gpus);
  s->training.lora = (MsLora){.rank = rank, .alpha = 32, .targets = targets};
  return s;
}

static double trained(const MsWork *work, double *expert) {
  MsStageParams p = ms_work_stage_params(work, 0);
  *expert = p.params_expert;
  return p.params_dense;
}

/* The counts that PEFT prints: MLPerf's Llama 2 70B, r 16 beside fused qkv and o; Llama 2 7B, r 8 beside q and v. */
static void counts_are_those_of_peft(void **state) {
  (void)state;
  double expert;
  g_autoptr(MsScenario) mlperf = adapted("llama2-70b", 8, RANK, target("linear_qkv") | target("linear_proj"));
  g_auto(MsLowered) large = ms_test_lower(mlperf);
  assert_close(trained(large.work, &expert), 44564480, 0);
  g_autoptr(MsScenario) usual = adapted("llama2-7b", 8, 8, target("linear_q") | target("linear_v"));
  g_auto(MsLowered) small = ms_test_lower(usual);
  assert_close(trained(small.work, &expert), 4194304, 0);
  assert_true(expert == 0);
}

static const MsPiece *first_layer(const MsLowered *l) { return &l->work->pieces[l->work->piece_of_layer[0]]; }

static double kept_B(const MsScenario *s) {
  g_auto(MsLowered) l = ms_test_lower((MsScenario *)s);
  return first_layer(&l)->kept_B;
}

/* Frozen layers need no input; an adapter keeps its own, in BF16, and what its halves hand over. */
static void kept_bytes_by_hand(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = adapted("llama2-70b", 8, 0, target("linear_qkv") | target("linear_proj"));
  double T = 4096, h = 8192, f = 28672, full = kept_B(s);
  s->training.lora.rank = RANK;
  double inputs = 2 * T * h + 2 * T * h + 2 * T * f; /* of qkv, fc1, fc2; that of proj is kept by attention */
  assert_close(full - kept_B(s), inputs - (2 * T * h + 2 * 2 * T * RANK), 1e-12);
  s->training.lora.dropout = 0.1; /* each adapter: mask and what is left; q, k and v of one adapter */
  assert_close(full - kept_B(s), inputs - (2 * 3 * T * h + 2 * 2 * T * RANK), 1e-12);
  s->training.lora.targets = target("linear_fc2");
  s->training.lora.dropout = 0;
  assert_close(full - kept_B(s), inputs - (2 * T * f + 2 * T * RANK), 1e-12);
  s->training.lora.targets = target("linear_q") | target("linear_k"); /* one input for both */
  assert_close(full - kept_B(s), inputs - (2 * T * h + 2 * 2 * T * RANK), 1e-12);
}

/* Nothing learns behind the dropout of a frozen embedding: its mask is not kept. */
static void frozen_embedding_keeps_no_mask(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("gpt-tiny", 0, "h200-sxm", 8);
  assert_true(s->model->hidden_dropout > 0);
  for (int rank = 0; rank <= RANK; rank += RANK) {
    s->training.lora = (MsLora){.rank = rank, .alpha = 32, .targets = target("linear_qkv")};
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *piece = l.work->pieces;
    while (piece->kind != MS_PIECE_EMBEDDING) piece++;
    assert_int_equal(piece->kept_B > 0, rank == 0);
  }
}

static void states_by_hand(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = adapted("llama2-7b", 8, RANK, target("linear_qkv"));
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_BOUND);
  const MsStageMemory *m = &r->memory->stage[0];
  double adapters = 32.0 * RANK * (4096 + 3 * 4096), all = ms_model_params(s->model).total + adapters;
  assert_close(m->parameters_B, 2 * all, 1e-12);
  assert_close(m->gradients_B, 4 * adapters, 1e-12);
  assert_close(m->optimizer_B, 12 * adapters / 8, 1e-12);
}

/* TP 2, sequence parallel: A beside a column-parallel layer splits its rank, beside a row-parallel one its inputs, and
 * B its outputs always. */
static void tensor_parallel_halves(void **state) {
  (void)state;
  double expert;
  g_autoptr(MsScenario) s = adapted("llama2-70b", 8, RANK, target("linear_qkv") | target("linear_proj"));
  s->layout.tp = 2, s->options.sequence_parallel = TRUE;
  g_auto(MsLowered) l = ms_test_lower(s);
  double qkv = RANK / 2 * 8192.0 + 5120.0 * RANK, proj = RANK * 4096.0 + 4096.0 * RANK;
  assert_close(trained(l.work, &expert), 80 * (qkv + proj), 0);
  MsStageParams p = ms_work_stage_params(l.work, 0);
  assert_true(p.tp_replicated == 0);
}

/* One adapter beside the experts of a rank. */
static void experts(void **state) {
  (void)state;
  double expert;
  g_autoptr(MsScenario) s = adapted("mixtral-8x7b", 8, RANK, target("linear_fc1") | target("linear_fc2"));
  s->layout.ep = 4;
  g_auto(MsLowered) l = ms_test_lower(s);
  assert_true(trained(l.work, &expert) == 0);
  assert_close(expert, 32 * RANK * (4096.0 + 2 * 14336 + 14336 + 4096), 0);
}

static void only_adapters_have_weight_gradients(void **state) {
  (void)state;
  for (int moe = 0; moe < 2; moe++) {
    g_autoptr(MsScenario) s = adapted(moe ? "deepseek-v3" : "llama2-70b", 64, RANK,
                                      moe ? target("linear_kv_up_proj") | target("linear_fc2") : target("linear_proj"));
    if (moe) s->layout.ep = 64;
    g_auto(MsLowered) l = ms_test_lower(s);
    int found = 0;
    for (int i = 0; i < l.work->n_pieces; i++) {
      const MsOpList *list = &l.work->pieces[i].backward;
      for (int k = 0; k < list->n; k++) {
        if (list->op[k].pass != MS_PASS_WGRAD) continue;
        if (!strstr(list->op[k].name, "lora")) fail_msg("%s has a weight gradient", list->op[k].name);
        found++;
      }
    }
    assert_true(found > 0);
  }
}

/* Without weight gradients two thirds of the products are left; what the adapters add is little. */
static void step_lies_between(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = adapted("llama2-70b", 64, 0, target("linear_qkv") | target("linear_proj"));
  s->layout.tp = 4, s->options.sequence_parallel = TRUE;
  g_autoptr(MsResult) full = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->training.lora.rank = RANK;
  g_autoptr(MsResult) frozen = ms_test_simulate(s, MS_FIDELITY_FULL);
  double ratio = frozen->step_time_s / full->step_time_s;
  if (!(ratio > 0.6 && ratio < 0.8)) fail_msg("with adapters %.3f of the step", ratio);
  s->training.lora.dropout = 0.1;
  g_autoptr(MsResult) dropout = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(dropout->step_time_s > frozen->step_time_s);
  s->training.lora.a2a = TRUE;
  g_autoptr(MsResult) a2a = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(a2a->step_time_s < dropout->step_time_s);
  /* full recomputation makes the adapters again too, and keeps the inputs of the layers alone */
  s->options.recompute.granularity = MS_RECOMPUTE_FULL;
  g_autoptr(MsResult) again = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(again->step_time_s > a2a->step_time_s);
  assert_true(again->memory->stage[0].activations_B < a2a->memory->stage[0].activations_B / 4);
}

/* Sharded parameters: the frozen ones travel too. */
static void fsdp_gathers_frozen_weights(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = adapted("llama2-7b", 8, RANK, target("linear_qkv"));
  s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
  g_auto(MsLowered) l = ms_test_lower(s);
  MsUnitOps ops;
  ms_work_unit_ops(l.work, l.work->piece_of_layer[0], &ops);
  double layer = 4 * 4096.0 * 4096 + 3 * 4096.0 * 11008 + 2 * 4096, adapter = RANK * 4.0 * 4096;
  assert_close(ops.gather.op[0].message_B, 2 * (layer + adapter), 1e-12);
  assert_close(ops.reduce.op[0].message_B, 4 * adapter, 1e-12);
  ms_unit_ops_clear(&ops);
}

/* --- PEFT's file ------------------------------------------------------------------------------------------------ */

static gboolean imported(const char *model, const char *text, MsLora *lora, char **why) {
  GError *error = NULL;
  g_autoptr(MsModel) m = ms_model_load(model, &error);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "adapter_config.json", &error);
  g_autoptr(GPtrArray) ignored = g_ptr_array_new_with_free_func(g_free);
  assert_true(m && doc);
  gboolean ok = ms_import_peft(doc, m, lora, ignored, &error);
  *why = error ? g_strdup(error->message) : NULL;
  g_clear_error(&error);
  return ok;
}

static void peft_is_read(void **state) {
  (void)state;
  static const struct {
    const char *model, *targets;
    const char *want[8];
  } cases[] = {
      {"llama2-7b", "[\"q_proj\", \"model.layers.3.self_attn.v_proj\"]", {"linear_q", "linear_v"}},
      {"llama2-70b", "[\"qkv_proj\", \"o_proj\"]", {"linear_qkv", "linear_proj"}},
      {"deepseek-v2-lite", "[\"q_proj\", \"kv_b_proj\"]", {"linear_q_proj", "linear_kv_up_proj"}},
      {"deepseek-v3", "[\"q_a_proj\", \"o_proj\"]", {"linear_q_down_proj", "linear_proj"}},
      {"llama3-8b",
       "\"all-linear\"",
       {"linear_q", "linear_k", "linear_v", "linear_proj", "linear_fc1_gate", "linear_fc1_up", "linear_fc2"}},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *text = g_strdup_printf("{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"bias\": "
                                            "\"none\", \"task_type\": \"CAUSAL_LM\", \"target_modules\": %s}",
                                            cases[i].targets),
                    *why = NULL;
    MsLora lora;
    guint32 want = 0;
    for (int k = 0; cases[i].want[k]; k++) want |= target(cases[i].want[k]);
    if (!imported(cases[i].model, text, &lora, &why)) fail_msg("%s", why);
    if (lora.targets != want) fail_msg("%s: %s gives %x, not %x", cases[i].model, cases[i].targets, lora.targets, want);
    assert_true(lora.rank == 8 && lora.alpha == 16 && lora.dropout == 0);
  }
}

static void peft_is_refused_by_key(void **state) {
  (void)state;
  static const struct {
    const char *model, *more, *why;
  } cases[] = {
      {"llama2-7b", "\"peft_type\": \"IA3\"", "peft_type: must be \"LORA\""},
      {"llama2-7b", "\"peft_type\": \"LORA\"", "r: is missing"},
      {"llama2-7b", "\"peft_type\": \"LORA\", \"r\": 8, \"use_dora\": true", "use_dora: DoRA's magnitudes"},
      {"llama2-7b", "\"peft_type\": \"LORA\", \"r\": 8, \"modules_to_save\": [\"lm_head\"]", "modules_to_save: "},
      {"llama2-7b", "\"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": \".*_proj\"", "patterns are not read"},
      {"llama2-7b", "\"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": [\"kv_b_proj\"]",
       "target_modules[0]: \"kv_b_proj\" is no linear layer of llama2-7b"},
      {"mixtral-8x7b", "\"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": [\"down_proj\"]",
       "PEFT gives every expert an adapter of its own"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *text = g_strdup_printf("{%s}", cases[i].more), *why = NULL;
    MsLora lora;
    if (imported(cases[i].model, text, &lora, &why)) fail_msg("%s was read", text);
    if (!strstr(why, cases[i].why)) fail_msg("%s: \"%s\", not \"%s\"", text, why, cases[i].why);
  }
}

/* --- what is not modelled is refused by name -------------------------------------------------------------------- */

static void refused(const char *more, const char *model, const char *rule) {
  g_autofree char *text =
      g_strdup_printf("{\"model\": \"%s\", \"hardware\": \"h100-sxm\", \"gpus\": 8, %s}", model, more);
  g_autoptr(MsScenario) s = ms_test_scenario_of(text);
  MsRefusal refusal;
  if (ms_layout_check(s, &refusal)) fail_msg("%s was accepted", text);
  if (strcmp(ms_rules[refusal.rule].name, rule) != 0)
    fail_msg("%s: rule %s, not %s", text, ms_rules[refusal.rule].name, rule);
}

static void combinations_are_refused(void **state) {
  (void)state;
#define TRAINING "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 8, \"lora\": "
  refused(TRAINING "{\"rank\": 8}}", "qwen3-next-80b-a3b", "lora-models");
  refused(TRAINING "{\"rank\": 8, \"targets\": [\"linear_kv_up_proj\"]}}", "llama3-8b", "lora-targets");
  refused(TRAINING "{\"rank\": 2}}, \"layout\": {\"tp\": 4}", "llama3-8b", "lora-rank-divides");
  refused(TRAINING "{\"rank\": 8}}, \"layout\": {\"tp\": 2, \"ep\": 2, \"etp\": 2}", "mixtral-8x7b",
          "lora-experts-whole");
  refused(TRAINING "{\"rank\": 8}}, \"options\": {\"recompute\": {\"granularity\": \"selective\", \"modules\": "
                   "[\"mlp\"]}}",
          "llama3-8b", "lora-recompute");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_those_of_peft),
      cmocka_unit_test(kept_bytes_by_hand),
      cmocka_unit_test(frozen_embedding_keeps_no_mask),
      cmocka_unit_test(states_by_hand),
      cmocka_unit_test(tensor_parallel_halves),
      cmocka_unit_test(experts),
      cmocka_unit_test(only_adapters_have_weight_gradients),
      cmocka_unit_test(step_lies_between),
      cmocka_unit_test(fsdp_gathers_frozen_weights),
      cmocka_unit_test(peft_is_read),
      cmocka_unit_test(peft_is_refused_by_key),
      cmocka_unit_test(combinations_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
