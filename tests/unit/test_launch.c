/* Launch forms: some round trips of each (test_full_launch has a hundred), every key of a scenario has an argument or
 * says that it has none, the release's rules. */
#include "lib/close.h"

#include <string.h>
#include <yaml.h>

#include "base/err.h"
#include "base/text.h"
#include "describe/vendor.h"
#include "launch/launch.h"
#include "launch/release.h"
#include "lib/round_trip.h"
#include "lib/tier.h"
#include "lib/world.h"

static void some_round_trips(void **state) {
  (void)state;
  for (int form = 0; form <= MS_LAUNCH_MT; form++)
    ms_test_round_trips((MsLaunch){(MsLaunchForm)form, FALSE}, 11 + (guint32)form, ms_by_tier(4, 8));
  ms_test_round_trips((MsLaunch){MS_LAUNCH_MODELZOO, TRUE}, 20, ms_by_tier(2, 4));
}

/* Every shipped model comes back by its name, or is refused for what no argument says. */
static void shipped_models(void **state) {
  (void)state;
  g_autoptr(GPtrArray) names = ms_data_names("models");
  int said = 0;
  for (guint i = 0; i + 1 < names->len; i++) {
    g_autoptr(MsScenario) s = ms_test_run(names->pdata[i], -1, "h100-sxm", 8);
    g_autoptr(GError) error = NULL;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, &error);
    if (!text) {
      if (!strstr(error->message, "(rule streams-pipeline)")) fail_msg("%s", error->message);
      continue;
    }
    const MsImportOptions options = {0};
    g_autoptr(MsImport) import = ms_import_megatron(text, strlen(text), "export", &options, &error);
    if (!import) fail_msg("%s: %s", (char *)names->pdata[i], error->message);
    assert_true(JSON_NODE_HOLDS_VALUE(import->scenario->model_json));
    assert_string_equal(json_node_get_string(import->scenario->model_json), names->pdata[i]);
    said++;
  }
  assert_int_equal(said, names->len - 1 - 2); /* all but DeepSeek-V4 with its hyper-connections */
}

/* What changes the trained model and no prediction is in the launch; what no argument says travels as a note. */
static void what_changes_the_trained_model(void **state) {
  (void)state;
  static const struct {
    const char *model, *said, *noted; /* NULL: nothing has to be noted */
  } rows[] = {
      {"llama3-405b", "--rotary-base 500000 \\\n  --use-rope-scaling \\\n  --rope-scaling-factor 8", NULL},
      {"gpt-oss-20b",
       "--rotary-base 150000 \\\n  --rotary-scaling-factor 32 \\\n  --mscale 1 \\\n  --mscale-all-dim 0 \\\n  "
       "--yarn-original-max-position-embeddings 4096 \\\n  --yarn-beta-fast 32 \\\n  --yarn-beta-slow 1 \\\n  "
       "--no-yarn-correction-range-round-to-int",
       NULL},
      {"deepseek-v3", "--rotary-scaling-factor 40 \\\n  --mscale 1 \\\n  --mscale-all-dim 1", NULL},
      {"deepseek-v3", "--norm-epsilon 1e-06", NULL},
      {"deepseek-v3", "--moe-router-topk-scaling-factor 2.5", NULL},
      {"deepseek-v3", "--moe-router-load-balancing-type seq_aux_loss", NULL},
      {"kimi-k2", "--rotary-scaling-factor 32", "\n#moesim rope_scaling {\"type\":\"yarn\",\"factor\":32,"},
      {"glm-4.5", "--rotary-percent 0.5", NULL},
      {"deepseek-v2-lite", "--moe-router-pre-softmax", NULL},
      {"nemotron-3-nano", "/pretrain_hybrid.py", NULL},
      {"nemotron-3-nano",
       "--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec \\\n  --hybrid-layer-pattern "
       "'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME' \\\n  --mamba-num-heads 64 \\\n  --mamba-head-dim 64 "
       "\\\n  --mamba-state-dim 128 \\\n  --mamba-num-groups 8",
       NULL},
      {"nemotron-3-super", "EMEMEMEME/*E/*E'", NULL},
      {"qwen3-next-80b-a3b", "--experimental-attention-variant gdn", NULL},
      {"qwen3-next-80b-a3b", "--linear-attention-freq 4", NULL},
      {"deepseek-v3.2",
       "--experimental-attention-variant dsa \\\n  --dsa-indexer-n-heads 64 \\\n  --dsa-indexer-head-dim 128 \\\n  "
       "--dsa-indexer-topk 2048",
       NULL},
      {"deepseek-v3.2",
       "--dsa-kernel-backend cudnn \\\n  --dsa-indexer-loss-coeff 0.001 \\\n  --dsa-indexer-use-sparse-loss", NULL},
      {"glm5-2", "--dsa-indexer-topk-freq 4 \\\n  --dsa-indexer-skip-topk-offset 3", NULL},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(MsScenario) s = ms_test_run(rows[i].model, -1, "h100-sxm", 8);
    g_autoptr(GError) error = NULL;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, &error);
    if (!text) fail_msg("%s", error->message);
    if (!strstr(text, rows[i].said)) fail_msg("%s: no %s in\n%s", rows[i].model, rows[i].said, text);
    if (!strstr(text, rows[i].noted ? rows[i].noted : "") || (!rows[i].noted && strstr(text, "#moesim rope_scaling")))
      fail_msg("%s: notes of\n%s", rows[i].model, text);
  }
}

/* A script that asks for the plain operators of sparse attention is refused: they are not what is predicted. */
static void plain_sparse_attention(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3.2", -1, "h100-sxm", 8);
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, &error);
  assert_non_null(text);
  g_auto(GStrv) parts = g_strsplit(text, "--dsa-kernel-backend cudnn", 2);
  g_autofree char *plain = g_strjoinv("--dsa-kernel-backend none", parts);
  MsImportOptions options = {.hardware = "h100-sxm"};
  assert_null(ms_import_megatron(plain, strlen(plain), "run.sh", &options, &error));
  assert_non_null(strstr(error->message, "--dsa-kernel-backend: is none"));
}

/* Unusual values of all of them, in every form that can say them. */
static void unusual_models_come_back(void **state) {
  (void)state;
  static const char *const bases[] = {"llama3-8b", "qwen3-30b-a3b", "deepseek-v2-lite"};
  for (int i = 0; i < 4 * (int)G_N_ELEMENTS(bases); i++) {
    g_autoptr(MsScenario) s = ms_test_run(bases[i / 4], -1, "h100-sxm", 8);
    MsModel *m = s->model;
    m->norm_epsilon = 3e-6, m->init_method_std = 0.008, m->layernorm_zero_centered_gamma = TRUE;
    m->rotary_base = 12345, m->rotary_percent = 0.25;
    m->rope_scaling = (MsRopeScaling){.type = (MsRopeKind)(i % 4),
                                      .factor = 2.5,
                                      .original_max_position_embeddings = 2048,
                                      .low_freq_factor = 1.5,
                                      .high_freq_factor = 3,
                                      .beta_fast = 30,
                                      .beta_slow = 2,
                                      .mscale = 0.7,
                                      .mscale_all_dim = 0.6};
    if (m->num_experts > 0) {
      m->moe_router_topk_scaling_factor = 1.75, m->moe_router_pre_softmax = !m->moe_router_pre_softmax;
      m->moe_router_load_balancing_type = MS_BALANCE_GLOBAL_AUX;
    }
    assert_true(ms_test_round_trip(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}));
    assert_true(ms_test_round_trip(s, (MsLaunch){MS_LAUNCH_MODELZOO, FALSE}));
  }
}

static char *refusal(MsScenario *s, MsLaunchForm form) {
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){form, FALSE}, &error);
  if (text) fail_msg("was not refused:\n%s", text);
  assert_int_equal(error->code, MS_ERROR_INPUT);
  return g_strdup(error->message);
}

static void check_refusal(MsScenario *s, MsLaunchForm form, const char *part) {
  g_autofree char *message = refusal(s, form);
  if (!strstr(message, part)) fail_msg("\"%s\" does not say \"%s\"", message, part);
}

/* The pattern of a hybrid model says its pipeline, too: even, uneven and interleaved splits come back. */
static void hybrid_splits(void **state) {
  (void)state;
  static const struct {
    int pp, vpp, first;
    const char *layout, *pattern;
  } rows[] = {
      {2, 1, 0, NULL, "'MEMEM*EMEMEM*EMEMEM*EMEMEM|*EMEMEM*EMEMEMEM*EMEMEMEME'"},
      {2, 2, 0, NULL, "'MEMEM*EMEMEM*|EMEMEM*EMEMEM|*EMEMEM*EMEME|MEM*EMEMEMEME'"},
      {2, 1, 20, NULL, "'MEMEM*EMEMEM*EMEMEM*|EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME'"},
      {2, 1, 0, "Et*10|t*42L", "'MEMEM*EMEM|EM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME'"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(MsScenario) s = ms_test_run("nemotron-3-nano", -1, "h100-sxm", 16);
    g_autoptr(GError) error = NULL;
    s->layout.pp = rows[i].pp, s->layout.vpp = rows[i].vpp;
    s->layout.decoder_first_pipeline_num_layers = rows[i].first;
    s->layout.pipeline_layout = g_strdup(rows[i].layout);
    s->training.global_batch_size = 64;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, &error);
    if (!text) fail_msg("%s", error->message);
    if (!strstr(text, rows[i].pattern)) fail_msg("no %s in\n%s", rows[i].pattern, text);
    assert_null(strstr(text, "--num-virtual-stages"));
    assert_null(strstr(text, "--pipeline-model-parallel-layout"));
    assert_true(ms_test_round_trip(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}));
    assert_true(ms_test_round_trip(s, (MsLaunch){MS_LAUNCH_MODELZOO, TRUE}));
  }
  g_autoptr(MsScenario) s = ms_test_run("nemotron-3-nano", -1, "h100-sxm", 16);
  s->layout.pp = 2;
  s->layout.pipeline_layout = g_strdup("E|t*52L");
  s->model->mamba.conv_kernel = 3;
  check_refusal(s, MS_LAUNCH_MEGATRON, "model.mamba.conv_kernel: is 3");
  s->model->mamba.conv_kernel = 4;
  s->layout.pp = 1;
  g_clear_pointer(&s->layout.pipeline_layout, g_free);
  check_refusal(s, MS_LAUNCH_MT, "model.hybrid_layer_pattern");
}

/* --- the table --- */
/* No key twice, none that does not exist. */
static void every_row_names_a_key(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", -1, "h100-sxm", 8);
  g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (int i = 0; i < ms_num_launch_rows; i++) {
    if (!ms_launch_rows[i].fields) continue;
    g_auto(GStrv) paths = g_strsplit(ms_launch_rows[i].fields, " ", -1);
    for (int k = 0; paths[k]; k++) {
      void *object;
      if (!ms_key_find(s, paths[k], &object)) fail_msg("%s is no key", paths[k]);
      if (!g_hash_table_add(seen, g_strdup(paths[k]))) fail_msg("%s is said twice", paths[k]);
    }
  }
}

static void frameworks_come_back(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "mtt-s5000", 8);
  s->framework = MS_FRAMEWORK_MT_MEGATRON;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MT, FALSE}, NULL);
  assert_non_null(text);
  const MsImportOptions options = {0};
  g_autoptr(MsImport) import = ms_import_megatron(text, strlen(text), "export", &options, NULL);
  assert_non_null(import);
  assert_int_equal(import->scenario->framework, MS_FRAMEWORK_MT_MEGATRON);
  static const char wrong[] = "#moesim framework \"magatron\"\npython pretrain_gpt.py --num-layers 2\n";
  g_autoptr(GError) error = NULL;
  assert_null(ms_import_megatron(wrong, strlen(wrong), "wrong.sh", &options, &error));
  assert_non_null(strstr(error->message, "#moesim framework: is \"magatron\", must be one of megatron,"));
}

static void hyper_connections(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "h100-sxm", 8);
  s->model->hyper_connections = (MsHyperConnections){.num_residual_streams = 2, .sinkhorn_iterations = 10};
  s->options.recompute = (MsRecomputeSpec){
      .granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_MHC, .num_layers = 1, .method = MS_RECOMPUTE_UNIFORM};
  g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, NULL);
  assert_non_null(text);
  assert_non_null(strstr(text, "--enable-mhc-connections \\\n  --mhc-num-residual-streams 2 \\\n  "
                               "--mhc-sinkhorn-iterations 10"));
  const MsImportOptions options = {0};
  g_autoptr(MsImport) import = ms_import_megatron(text, strlen(text), "export", &options, NULL);
  assert_non_null(import);
  assert_int_equal(import->scenario->model->hyper_connections.num_residual_streams, 2);
  assert_int_equal(import->scenario->model->hyper_connections.sinkhorn_iterations, 10);
  assert_int_equal(import->scenario->options.recompute.modules, MS_RM_MHC);
  s->options.recompute.granularity = MS_RECOMPUTE_FULL;
  check_refusal(s, MS_LAUNCH_MEGATRON, "no full recompute");
}

/* A key without an argument is refused by its name as soon as it is not at its default. */
static void keys_without_an_argument(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", -1, "h100-sxm", 8);
  s->options.offload_optimizer_states = TRUE;
  check_refusal(s, MS_LAUNCH_MEGATRON, "options.offload_optimizer_states: no argument");
  s->options.offload_optimizer_states = FALSE;
  s->model->hyper_connections.num_residual_streams = 4;
  check_refusal(s, MS_LAUNCH_MEGATRON, "hyper-connections need PP 1, no MTP, dense layers");
  s->model->hyper_connections.num_residual_streams = 1;
  s->model->sliding_window = (MsSlidingWindow){.window = 4096, .chunked = TRUE};
  check_refusal(s, MS_LAUNCH_MEGATRON, "model.sliding_window.chunked: no argument of");
  s->model->sliding_window = (MsSlidingWindow){0};
  s->model->post_norm = TRUE;
  check_refusal(s, MS_LAUNCH_MEGATRON, "model.post_norm: no argument of");
}

/* The release has one schedule, and no argument names it; of the others the row says where they are. */
static void schedules_of_others(void **state) {
  (void)state;
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++) {
    const MsScheduleRow *row = ms_schedule_row((MsScheduleKind)kind);
    g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", -1, "h100-sxm", 8);
    s->layout.pp = 4, s->layout.schedule = (MsScheduleKind)kind, s->training.global_batch_size = 2 * 16;
    if (row->refused) check_refusal(s, MS_LAUNCH_MEGATRON, row->refused);
    assert_int_equal(row->refused == NULL, kind == MS_SCHED_1F1B);
  }
}

/* --- what the release would reject --- */
static MsScenario *run_on(const char *model, int gpus, int tp) {
  MsScenario *s = ms_test_run(model, -1, "h100-sxm", gpus);
  s->layout.tp = tp;
  s->training.global_batch_size = 64;
  return s;
}

static void rules_of_the_release(void **state) {
  (void)state;
  struct {
    const char *rule;
    MsScenario *s;
  } rows[] = {{"ce-native", run_on("llama3-8b", 8, 1)},
              {"precision-aware-sharded", run_on("llama3-8b", 8, 1)},
              {"connections-one", run_on("llama3-8b", 8, 2)},
              {"padding-quantised", run_on("mixtral-8x7b", 8, 1)},
              {"graph-moe-drops", run_on("mixtral-8x7b", 8, 1)},
              {"fsdp-sharded", run_on("llama3-8b", 8, 1)},
              {"mtp-positions", run_on("llama3-8b", 8, 1)},
              {"whole-nodes", run_on("llama3-8b", 12, 1)},
              {"recompute-needs", run_on("llama3-8b", 8, 1)},
              {"recompute-needs", run_on("llama3-8b", 8, 1)},
              {"graph-mlp", run_on("nemotron-3-nano", 8, 1)},
              {"offload-local-graphs", run_on("mixtral-8x7b", 8, 1)},
              {"offload-local-graphs", run_on("mixtral-8x7b", 8, 1)},
              {"muon-fp16", run_on("llama3-8b", 8, 1)},
              {"optimizer-step-overlap", run_on("llama3-8b", 8, 1)}};
  rows[0].s->options.cross_entropy_fusion_impl = MS_CE_TE;
  rows[1].s->options.exp_avg_dtype = MS_DT_BF16, rows[1].s->options.distributed_optimizer = FALSE;
  rows[2].s->options.cuda_device_max_connections = 8;
  rows[3].s->options.moe_router_padding_for_quantization = TRUE;
  rows[4].s->options.cuda_graph_scope = MS_CG_MOE;
  rows[5].s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS, rows[5].s->options.distributed_optimizer = FALSE;
  rows[6].s->model->mtp_num_layers = 1, rows[6].s->model->position_embedding = MS_POS_YARN;
  rows[7].s->training.global_batch_size = 48;
  rows[8].s->options.recompute =
      (MsRecomputeSpec){.granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_MLA_UP_PROJ, .num_layers = 1};
  rows[9].s->options.recompute =
      (MsRecomputeSpec){.granularity = MS_RECOMPUTE_SELECTIVE, .modules = MS_RM_MOE_ACT, .num_layers = 1};
  rows[10].s->options.cuda_graph_scope = MS_CG_MLP;
  for (int i = 11; i < 13; i++) rows[i].s->options.cuda_graph_impl = MS_GRAPH_LOCAL;
  rows[11].s->options.cuda_graph_scope = MS_CG_ATTN, rows[11].s->options.offload_modules = MS_OM_QKV_LINEAR;
  rows[12].s->options.cuda_graph_scope = MS_CG_LAYER, rows[12].s->options.offload_modules = MS_OM_MOE_ACT;
  rows[13].s->training.optimizer = rows[14].s->training.optimizer = MS_OPT_MUON;
  rows[13].s->training.precision = MS_FP16;
  rows[14].s->options.overlap_param_gather_with_optimizer_step = TRUE;
  rows[14].s->options.overlap_grad_reduce = rows[14].s->options.overlap_param_gather = TRUE;
  rows[14].s->layout.pp = rows[14].s->layout.vpp = 2;
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *part = g_strdup_printf("(rule %s)", rows[i].rule);
    check_refusal(rows[i].s, MS_LAUNCH_MEGATRON, part);
    ms_scenario_free(rows[i].s);
  }
}

/* What MT-MegatronLM has no words for, all at once where it is only missing arguments; its own words for the rest. */
static void refusals_of_mt(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_on("mixtral-8x7b", 16, 2);
  s->options.sequence_parallel = TRUE;
  check_refusal(s, MS_LAUNCH_MT, "options.moe_router_fusion (--moe-router-fusion), options.moe_permute_fusion");
  s->options.moe_router_fusion = s->options.moe_permute_fusion = FALSE;
  s->options.dispatcher = MS_DISPATCH_DEEPEP;
  check_refusal(s, MS_LAUNCH_MT, "options.dispatcher");
  s->options.dispatcher = MS_DISPATCH_ALLTOALL;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MT, FALSE}, &error);
  if (!text) fail_msg("%s", error->message);
  assert_non_null(strstr(text, "--tensor-model-parallel-size \"$TP_SIZE\""));
  assert_non_null(strstr(text, "--expert-tensor-parallel-size 1"));
  s->layout.pp = 4, s->layout.tp = 1;
  s->layout.pipeline_layout = g_strdup("Et*9|t*8|t*8|t*7L");
  g_autofree char *uneven = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MT, FALSE}, &error);
  if (!uneven) fail_msg("%s", error->message);
  assert_non_null(strstr(uneven, "--decoder-first-pipeline-num-layers 9\n    --decoder-last-pipeline-num-layers 7\n"));
  g_free(s->layout.pipeline_layout);
  s->layout.pipeline_layout = g_strdup("Et*9|t*8|t*7|t*8L");
  check_refusal(s, MS_LAUNCH_MT, "layout.pipeline_layout: MT-MegatronLM (March 2025) has layers of their own number");
}

/* DeepSeek-V3 whole, MTP block, node groups, scores and bias in the words of MT-MegatronLM, which import reads. */
static void deepseek_on_mt(void **state) {
  (void)state;
  static const char *const said[] = {"--use-multi-token-prediction\n    --mtp-depth 1\n", "leaves it 60 of 61",
                                     "--moe-router-num-node-group 8\n    --moe-router-topk-limited-devices 4\n",
                                     "--moe-router-pre-softmax\n    --moe-router-use-sigmoid\n",
                                     "--moe-noaux-gamma 1e-3\n", "--moe-router-topk-scaling-factor 2.5\n",
                                     /* without those two its validation, and its model, refuse every run */
                                     "export CUDA_DEVICE_MAX_CONNECTIONS=1\n", "--attention-backend fused\n"};
  g_autoptr(MsScenario) s = run_on("deepseek-v3", 64, 1);
  s->layout.ep = 8;
  s->options.moe_router_fusion = s->options.moe_permute_fusion = FALSE;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MT, FALSE}, &error);
  if (!text) fail_msg("%s", error->message);
  for (guint i = 0; i < G_N_ELEMENTS(said); i++)
    if (!strstr(text, said[i])) fail_msg("no %s in\n%s", said[i], text);
  assert_null(strstr(text, "NVTE_FUSED_ATTN"));
  assert_true(ms_test_round_trip(s, (MsLaunch){MS_LAUNCH_MT, FALSE}));
  s->options.cuda_device_max_connections = 8;
  check_refusal(s, MS_LAUNCH_MT, "options.cuda_device_max_connections: is 8, MT-MegatronLM (March 2025) asserts 1");
  s->options.cuda_device_max_connections = 0;
  s->model->moe_router_load_balancing_type = MS_BALANCE_AUX;
  check_refusal(s, MS_LAUNCH_MT, "model.moe_router_num_groups: MT-MegatronLM (March 2025) has it only with");
}

/* What the launch notes ask of every export. */
static void always_said(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_on("deepseek-v3", 64, 2);
  s->layout.ep = 8;
  s->options.ep_overlap = TRUE;
  s->options.offload_modules = MS_OM_ATTN_NORM;
  s->options.cuda_graph_scope = MS_CG_ATTN;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, &error);
  if (!text) fail_msg("%s", error->message);
  static const char *const parts[] = {
      "--tensor-model-parallel-size 2 ",       "--context-parallel-size 1 ",
      "--pipeline-model-parallel-size 1 ",     "--expert-model-parallel-size 8 ",
      "--expert-tensor-parallel-size 1 ",      "--sequence-parallel ",
      "--moe-token-dispatcher-type alltoall ", "--multi-latent-attention ",
      "--cross-entropy-fusion-impl native ",   "export CUDA_DEVICE_MAX_CONNECTIONS=32\n",
      "export NCCL_GRAPH_REGISTER=0\n",        "export NVTE_CPU_OFFLOAD_V1=1\n",
      "--nnodes 8 --nproc_per_node 8"};
  for (guint i = 0; i < G_N_ELEMENTS(parts); i++)
    if (!strstr(text, parts[i])) fail_msg("no %s in\n%s", parts[i], text);
  assert_null(strstr(text, "--group-query-attention"));
}

/* Biased experts run without the fused bias and dropout only; the gate is clamped and shifted; 127 tokens and itself.
 */
static void gpt_oss_as_it_runs(void **state) {
  (void)state;
  static const char *const names[] = {"gpt-oss-20b", "gpt-oss-120b"};
  static const char *const parts[] = {"--no-bias-dropout-fusion ", "--quick-geglu ", "--glu-linear-offset 1.0 ",
                                      "--activation-func-clamp-value 7.0 ", "--window-size 127,0 "};
  for (guint k = 0; k < G_N_ELEMENTS(names); k++) {
    g_autoptr(MsScenario) s = run_on(names[k], 8, 1);
    g_autoptr(GError) error = NULL;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, &error);
    if (!text) fail_msg("%s", error->message);
    for (guint i = 0; i < G_N_ELEMENTS(parts); i++)
      if (!strstr(text, parts[i])) fail_msg("no %s in\n%s", parts[i], text);
    const MsImportOptions options = {0};
    g_autoptr(MsImport) import = ms_import_megatron(text, strlen(text), "export", &options, &error);
    if (!import) fail_msg("%s", error->message);
    assert_int_equal(import->ignored->len, 0);
  }
}

/* A job ends with its first failed node, and asks old releases of Slurm for nothing that they do not know. */
static void slurm_jobs(void **state) {
  (void)state;
  for (int form = 0; form <= MS_LAUNCH_MT; form++) {
    g_autoptr(MsScenario) s = run_on("llama3-8b", 64, 1);
    s->options.cross_entropy_fusion = FALSE;
    g_autoptr(GError) error = NULL;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){(MsLaunchForm)form, TRUE}, &error);
    if (!text) fail_msg("%s", error->message);
    assert_non_null(strstr(text, "\nsrun --kill-on-bad-exit=1 bash -c on_node\n"));
  }
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", -1, "gb200-nvl72", 64);
  s->layout.ep = 8, s->training.global_batch_size = 64;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){MS_LAUNCH_MEGATRON, TRUE}, &error);
  if (!text) fail_msg("%s", error->message);
  assert_null(strstr(text, "#SBATCH --segment"));
  assert_non_null(strstr(text, "# With Slurm 24.05 or newer and topology/block add --segment=2 to sbatch"));
}

static gboolean is_yaml(const char *text) {
  yaml_parser_t parser;
  yaml_document_t document;
  yaml_parser_initialize(&parser);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
  gboolean ok = yaml_parser_load(&parser, &document), map = FALSE;
  if (ok) {
    yaml_node_t *root = yaml_document_get_root_node(&document);
    map = root && root->type == YAML_MAPPING_NODE;
    yaml_document_delete(&document);
  }
  yaml_parser_delete(&parser);
  return map;
}

/* Schedulers around a form: what each says of nodes and restarts, and that the run inside comes back. */
static void schedulers(void **state) {
  (void)state;
  static const struct {
    MsLaunchAround around;
    const char *parts[4];
  } rows[] = {{MS_AROUND_SLURM,
               {"#SBATCH --requeue\n", "-lt 3 ]; then\n", "scontrol requeue \"$SLURM_JOB_ID\"", "--nodes=8\n"}},
              {MS_AROUND_PYTORCHJOB,
               {"kind: PyTorchJob\n", "backoffLimit: 3\n", "Worker:\n      replicas: 7\n", "nvidia.com/gpu: 8"}},
              {MS_AROUND_JOBSET,
               {"kind: JobSet\n", "maxRestarts: 3\n", "completions: 8\n", "MASTER_ADDR=my-run-1-node-0-0.my-run-1 "}},
              {MS_AROUND_VOLCANO, {"kind: Job\n", "maxRetry: 3\n", "minAvailable: 8\n", "action: RestartJob\n"}},
              {MS_AROUND_SKYPILOT,
               {"num_nodes: 8\n", "max_restarts_on_errors: 3\n", "accelerators: H100:8 ", "name: my-run-1\n"}}};
  g_autoptr(MsScenario) s = run_on("llama3-8b", 64, 1);
  g_free(s->name);
  s->name = g_strdup("My run_1");
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text =
        ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON, .around = rows[i].around, .restarts = 3}, &error);
    if (!text) fail_msg("%s", error->message);
    for (guint k = 0; k < 4; k++)
      if (!strstr(text, rows[i].parts[k])) fail_msg("no %s in\n%s", rows[i].parts[k], text);
    assert_int_equal(is_yaml(text), rows[i].around != MS_AROUND_SLURM);
    assert_true(ms_test_round_trip(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON, .around = rows[i].around, .restarts = 3}));
  }
  g_free(s->name);
  s->name = g_strdup("");
  g_autofree char *job = ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON, .around = MS_AROUND_SLURM}, NULL);
  assert_non_null(strstr(job, "#SBATCH --job-name=run\n"));
  g_clear_pointer(&s->hardware->vendor, g_free);
  g_autoptr(GError) error = NULL;
  assert_null(ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON, .around = MS_AROUND_JOBSET}, &error));
  assert_non_null(strstr(error->message, "hardware.vendor: is not said: Kubernetes needs"));
}

/* Every argument of a launch is explained by keys that are there, or as needed besides. */
static void explained(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_on("deepseek-v3", 64, 8);
  s->layout.ep = 8;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON}, &error);
  g_autofree char *why = ms_launch_explain(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON}, &error);
  if (!text || !why) fail_msg("%s", error->message);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  int arguments = 0;
  for (int i = 0; lines[i]; i++) {
    if (!g_str_has_prefix(lines[i], "  --")) continue;
    g_autofree char *flag = g_strndup(lines[i] + 2, strcspn(lines[i] + 2, " "));
    if (!strstr(why, flag)) fail_msg("%s is not explained", flag);
    arguments++;
  }
  assert_true(arguments > 40);
  g_auto(GStrv) words = g_strsplit(why, "\n", -1);
  for (int i = 0; words[i]; i++)
    if (strlen(words[i]) > MS_TEXT_COLUMNS && words[i][0] == ' ') fail_msg("%s", words[i]);
  assert_non_null(strstr(why, "--expert-model-parallel-size 8\n"));
  assert_non_null(strstr(why, "    layout.ep = 8: expert-parallel size\n"));
  assert_non_null(strstr(why, "    (no key: what a run of this kind needs besides)\n"));
}

static void preflight(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run_on("llama3-8b", 64, 1);
  g_autoptr(GError) error = NULL;
  g_free(s->hardware->name);
  s->hardware->name = g_strdup("a machine\nrm -rf $HOME"); /* stays in its comment */
  g_autofree char *text = ms_launch_preflight(s, &error);
  if (!text) fail_msg("%s", error->message);
  assert_non_null(strstr(text, "the machine a-machine-rm--rf--HOME of moesim"));
  assert_null(strstr(text, "\nrm"));
  assert_non_null(strstr(text, "want_nodes=8 want_gpus=8 want_MiB="));
  assert_non_null(strstr(text, " want_W=686 want_Gbps=3136\n")); /* 98 % of 700 W and of 8 times 400 Gb/s */
  g_free(s->hardware->vendor);
  s->hardware->vendor = g_strdup("AMD");
  assert_null(ms_launch_preflight(s, &error));
  assert_non_null(strstr(error->message, "hardware.vendor: is AMD: the preflight script knows"));
}

/* A framework that does not start on a machine of that vendor is refused, what it needs beside itself is named; of
 * every shipped machine and framework that is launched one or the other is known. */
static void frameworks_on_machines(void **state) {
  (void)state;
  static const struct {
    const char *machine, *framework, *form, *refused, *said; /* one of the last two; neither: as it stands */
  } rows[] = {
      {"h100-sxm", "megatron", "megatron", NULL, NULL},
      {"h100-sxm", "mt-megatron", "mt-megatron", NULL, NULL},
      {"mi300x", "megatron", "slurm", NULL, "# On machines of AMD it needs PyTorch and Transformer Engine built"},
      {"mi355x", "megatron", "slurm", NULL, "\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"},
      {"ascend-910c", "megatron", "slurm", NULL, "\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"},
      {"mi300x", "torchtitan", "torchtitan", NULL, "# On machines of AMD it needs PyTorch built for ROCm"},
      {"mi300x", "mt-megatron", "mt-megatron", "hardware.vendor: is AMD: MT-MegatronLM's patches", NULL},
      {"ascend-910b", "megatron", "modelzoo", NULL, "import mindspeed.megatron_adaptor below import torch"},
      {"ascend-910b", "megatron", "skypilot", NULL, "accelerators: ACCELERATOR:8"},
      {"ascend-910b", "torchtitan", "torchtitan", "hardware.vendor: is Huawei: TorchTitan is known", NULL},
      {"mtt-s5000", "megatron", "slurm", "hardware.vendor: is Moore Threads: Megatron-LM has no backend", NULL},
      {"mtt-s5000", "mt-megatron", "slurm:mt-megatron", NULL, NULL},
      {"gaudi3", "megatron", "k8s", "hardware.vendor: is Intel: Megatron-LM has no backend for Gaudi", NULL},
      {"gaudi3", "deepspeed", "deepspeed", NULL, "\"needs\": \"PyTorch for Gaudi\""},
      {"h200-nvl", "megatron", "skypilot", NULL, "accelerators: H200:8"},
      {"mtt-s4000", "deepspeed", "deepspeed", "hardware.vendor: is Moore Threads: DeepSpeed has no", NULL}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *json = g_strdup_printf(
        "{\"schema\": 1, \"name\": \"there\", \"model\": \"llama3-8b\", \"hardware\": \"%s\", \"gpus\": 16, "
        "\"framework\": \"%s\", \"training\": {\"micro_batch_size\": 1, \"global_batch_size\": 16, "
        "\"seq_length\": 8192}, \"layout\": {\"tp\": 2}}",
        rows[i].machine, rows[i].framework);
    g_autoptr(GError) error = NULL;
    g_autoptr(MsJson) doc = ms_json_parse(json, -1, "there.json", &error);
    g_autoptr(MsScenario) s = doc ? ms_scenario_from_doc(doc, &error) : NULL;
    if (!s) fail_msg("%s", error->message);
    int word = 0;
    while (strcmp(ms_launch_words[word], rows[i].form) != 0) word++;
    g_autofree char *text = ms_launch_text(s, ms_launch_of_word(word), &error);
    if (!text != !!rows[i].refused || (!text && !strstr(error->message, rows[i].refused)))
      fail_msg("%s on %s: %s", rows[i].form, rows[i].machine, text ? text : error->message);
    if (text && rows[i].said && !strstr(text, rows[i].said)) fail_msg("no \"%s\" in:\n%s", rows[i].said, text);
    if (text && !rows[i].said) assert_null(strstr(text, " it needs "));
  }
  for (int f = 0; f < MS_N_FRAMEWORKS; f++) { /* what a plan names as its next step is a form */
    const char *form = ms_frameworks[f].launch_form;
    assert_true(!form || g_strv_contains(ms_launch_words, form));
  }
  g_autoptr(MsScenario) newer = ms_test_run("llama3-8b", -1, "b200-sxm", 8);
  newer->layout.tp = 2;
  assert_int_equal(ms_launch_connections(newer), 0);
  g_autoptr(GPtrArray) machines = ms_data_names("hardware");
  for (guint i = 0; i + 1 < machines->len; i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, machines->pdata[i], 8);
    for (int form = 0; form < MS_N_LAUNCH_FORMS; form++)
      assert_int_not_equal(
          ms_vendor_start(s->hardware, ms_launch_framework((MsLaunch){.form = (MsLaunchForm)form})).kind,
          MS_START_UNKNOWN);
  }
}

/* What MindSpeed's EP overlap goes with, and what its words are. */
static void overlap_of_mindspeed(void **state) {
  (void)state;
  for (int way = 0; way < 3; way++) {
    g_autofree char *json = g_strdup_printf(
        "{\"name\": \"there\", \"model\": \"qwen3-30b-a3b\", \"hardware\": \"%s\", \"gpus\": 16, \"training\": "
        "{\"micro_batch_size\": 1, \"global_batch_size\": 32, \"seq_length\": 4096}, \"layout\": {\"ep\": 8}, "
        "\"options\": {\"ep_overlap\": true, \"moe_shared_expert_overlap\": false, \"overlap_grad_reduce\": %s, "
        "\"overlap_param_gather\": false}}",
        way < 2 ? "ascend-910c" : "h100-sxm", way == 1 ? "false" : "true");
    g_autoptr(MsScenario) s = ms_test_scenario_of(json);
    g_autoptr(GError) error = NULL;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON}, &error);
    if (way == 0) assert_non_null(strstr(error->message, "(rule fb-overlap)"));
    else if (!text) fail_msg("%s", error->message);
    if (way > 0) assert_int_equal(strstr(text, "--moe-fb-overlap") != NULL, way == 1);
    if (way > 0) assert_int_equal(strstr(text, "--overlap-moe-expert-parallel-comm") != NULL, way == 2);
  }
}

/* MindSpeed's words where Megatron-LM's do nothing, and back. */
static void words_of_mindspeed(void **state) {
  (void)state;
  static const struct {
    const char *layout, *options, *said, *unsaid;
  } rows[] = {
      {"\"tp\": 2", "\"tp_comm_overlap\": true", " --use-ascend-mc2 ", "--tp-comm-overlap"},
      {"\"tp\": 1", "", " --use-flash-attn ", "--use-ascend-mc2"},
      {"\"tp\": 1", "\"swap_optimizer_times\": 4", " --swap-optimizer --swap-optimizer-times 4 ", "--reuse-fp32-param"},
      {"\"tp\": 1", "\"reuse_fp32_param\": true", " --reuse-fp32-param ", "--swap-optimizer"},
      {"\"tp\": 1", "\"attention_backend\": \"unfused\"", " --attention-backend unfused ", "--use-flash-attn"},
      {"\"cp\": 2", "", " --context-parallel-algo megatron_cp_algo ", "--cp-comm-type"},
      {"\"cp\": 2, \"cp_comm_type\": \"a2a\"", "", " --context-parallel-algo ulysses_cp_algo ", "--cp-comm-type"},
      {"\"cp\": 2, \"cp_comm_type\": \"all_gather\"", "", " kvallgather_cp_algo ", "--cp-comm-type"},
      {"\"cp\": 16, \"cp_comm_type\": \"a2a+p2p\"", "",
       " --context-parallel-algo hybrid_cp_algo --ulysses-degree-in-cp 8 ", "hierarchical"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *json = g_strdup_printf(
        "{\"name\": \"there\", \"model\": \"llama3-8b\", \"hardware\": \"ascend-910b\", \"gpus\": 16, \"training\": "
        "{\"micro_batch_size\": 1, \"global_batch_size\": 16, \"seq_length\": 8192}, \"layout\": {%s}, \"options\": "
        "{%s}}",
        rows[i].layout, rows[i].options);
    g_autoptr(MsScenario) s = ms_test_scenario_of(json);
    g_autoptr(GError) error = NULL;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_MEGATRON}, &error);
    if (!text) fail_msg("%s", error->message);
    g_auto(GStrv) lines = g_strsplit(text, "\\\n  ", -1);
    g_autofree char *line = g_strjoinv("", lines);
    if (!strstr(line, rows[i].said) || strstr(line, rows[i].unsaid)) fail_msg("no%sin:\n%s", rows[i].said, line);
    const MsImportOptions options = {0};
    g_autoptr(MsImport) import = ms_import_megatron(text, strlen(text), "run.sh", &options, &error);
    if (!import) fail_msg("%s", error->message);
    assert_int_equal(import->scenario->layout.cp_comm_type, s->layout.cp_comm_type);
    assert_int_equal(import->scenario->options.attention_backend, s->options.attention_backend);
    assert_int_equal(import->scenario->options.tp_comm_overlap, s->options.tp_comm_overlap);
    assert_int_equal(import->scenario->options.swap_optimizer_times, s->options.swap_optimizer_times);
    assert_int_equal(import->scenario->options.reuse_fp32_param, s->options.reuse_fp32_param);
    for (guint k = 0; k < import->ignored->len; k++)
      assert_null(strstr(import->ignored->pdata[k], "--ulysses") ? import->ignored->pdata[k] : NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(some_round_trips),
                                     cmocka_unit_test(words_of_mindspeed),
                                     cmocka_unit_test(overlap_of_mindspeed),
                                     cmocka_unit_test(shipped_models),
                                     cmocka_unit_test(what_changes_the_trained_model),
                                     cmocka_unit_test(plain_sparse_attention),
                                     cmocka_unit_test(unusual_models_come_back),
                                     cmocka_unit_test(hybrid_splits),
                                     cmocka_unit_test(every_row_names_a_key),
                                     cmocka_unit_test(frameworks_come_back),
                                     cmocka_unit_test(hyper_connections),
                                     cmocka_unit_test(keys_without_an_argument),
                                     cmocka_unit_test(schedules_of_others),
                                     cmocka_unit_test(rules_of_the_release),
                                     cmocka_unit_test(refusals_of_mt),
                                     cmocka_unit_test(deepseek_on_mt),
                                     cmocka_unit_test(always_said),
                                     cmocka_unit_test(gpt_oss_as_it_runs),
                                     cmocka_unit_test(slurm_jobs),
                                     cmocka_unit_test(schedulers),
                                     cmocka_unit_test(explained),
                                     cmocka_unit_test(preflight),
                                     cmocka_unit_test(frameworks_on_machines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
