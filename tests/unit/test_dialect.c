/* Scripts of forks of Megatron-LM: their words for layers, experts and attention; files that a script sources. */
#include "lib/close.h"

#include <glib/gstdio.h>
#include <string.h>

#include "base/err.h"
#include "launch/launch.h"
#include "launch/model_script.h"

/* 64 GPUs, TP 2, PP 4, 16 layers of Llama's kind. */
static const char dense[] =
    "torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --num-layers 16 --hidden-size 1024 --ffn-hidden-size 4096 "
    "--num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 "
    "--global-batch-size 64 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --vocab-size 1000 --bf16 "
    "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear";
#define EXPERTS " --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512"
#define LATENT                                                                                               \
  " --multi-latent-attention --q-lora-rank 512 --kv-lora-rank 256 --qk-head-dim 64 --qk-pos-emb-head-dim 32" \
  " --v-head-dim 64 --qk-layernorm"

static MsImport *import(const char *script, const MsImportOptions *options, GError **error) {
  return ms_import_megatron(script, strlen(script), "run.sh", options, error);
}

static MsImport *import_with(const char *more, GError **error) {
  const MsImportOptions options = {.hardware = "h100-sxm"};
  g_autofree char *script = g_strconcat(dense, " ", more, "\n", NULL);
  return import(script, &options, error);
}

static gboolean mentions(const GPtrArray *lines, const char *text) {
  for (guint i = 0; i < lines->len; i++)
    if (strstr(lines->pdata[i], text)) return TRUE;
  return FALSE;
}

/* The written scenario with its whole model. (transfer full) */
static char *written(const MsScenario *s) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_fields_write(&ms_layout_table, &s->layout, TRUE, out);
  ms_fields_write(&ms_model_table, s->model, TRUE, out);
  ms_fields_write(&ms_options_table, &s->options, TRUE, out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

static void words_of_mindspeed(void **state) {
  (void)state;
  static const struct {
    const char *more, *wants[3];
  } rows[] = {
      {"--noop-layers 0,15", {"\"num_layers\":14", "\"pipeline_layout\":\"Ettt|t*4|t*4|tttL\""}},
      {"--noop-layers 3,15 --num-layers-per-virtual-pipeline-stage 2",
       {"\"num_layers\":14", "\"pipeline_layout\":\"Ett|t|(tt|)*5tL\"", "\"vpp\":2"}},
      {"--noop-layers 15 --schedules-method dualpipev --mtp-num-layers 1",
       {"\"num_layers\":15", "\"pipeline_layout\":\"Ett|(tt|)*6tmL\"", "\"schedule\":\"dualpipev\""}},
      {"--num-layer-list 3,4,4,5", {"\"num_layers\":16", "\"pipeline_layout\":\"Ettt|t*4|t*4|t*5L\""}},
      {EXPERTS " --first-k-dense-replace 2 --moe-layer-freq 1 --n-shared-experts 2",
       {"\"moe_layer_freq\":\"[0]*2+[1]*14\"", "\"moe_shared_expert_intermediate_size\":1024"}},
      {EXPERTS " --first-k-dense-replace 2 --moe-layer-freq 1 --noop-layers 0,15",
       {"\"moe_layer_freq\":\"[0]*1+[1]*13\"", "\"num_layers\":14"}},
      {EXPERTS " --first-k-dense-replace -1 --moe-layer-freq -1", {"\"moe_layer_freq\":null"}},
      {EXPERTS " --expert-model-parallel-size 4 --moe-tp-extend-ep", {"\"ep\":8", "\"etp\":1"}},
      {"--context-parallel-size 2 --context-parallel-algo kvallgather_cp_algo", {"\"cp_comm_type\":\"all_gather\""}},
      {"--context-parallel-size 2 --context-parallel-algo ulysses_cp_algo", {"\"cp_comm_type\":\"a2a\""}},
      {LATENT " --enable-dsa-indexer --index-topk 1024",
       {"\"indexer_topk\":1024", "\"indexer_num_heads\":64", "\"indexer_loss\":true"}},
      {"--full-attention-interval 4 --linear-num-key-heads 8 --linear-num-value-heads 16 --linear-key-head-dim 64 "
       "--linear-value-head-dim 64 --mamba-d-conv 4 --spec mindspeed_llm.tasks.models.spec.qwen3_next_spec layer_spec",
       {"\"frequency\":4", "\"num_value_heads\":16", "\"attention_output_gate\":true"}},
      {"--recompute-activation-function", {"\"granularity\":\"selective\"", "\"modules\":[\"mlp_act\"]"}},
      {EXPERTS " --recompute-activation-function --recompute-norm",
       {"\"modules\":[\"moe_act\",\"layernorm\",\"mlp_act\"]"}},
      {"--recompute-activation-function --recompute-granularity full --recompute-method block --recompute-num-layers 1",
       {"\"granularity\":\"full\""}},
      {"--swap-attention", {"\"offload_modules\":[\"qkv_linear\",\"core_attn\",\"attn_proj\"]"}},
      {"--swap-attention --recompute-num-layers 1",
       {"\"offload_modules\":[\"qkv_linear\",\"core_attn\",\"attn_proj\"]", "\"granularity\":\"none\""}},
      {"--swap-attention --recompute-num-layers 16 --recompute-activation-function",
       {"\"offload_modules\":[\"qkv_linear\",\"core_attn\",\"attn_proj\"]", "\"granularity\":\"selective\"",
        "\"modules\":[\"mlp\"]"}},
      {EXPERTS " --first-k-dense-replace 1 --swap-attention --recompute-num-layers 16",
       {"\"offload_modules\":[\"qkv_linear\",\"core_attn\",\"attn_proj\"]", "\"modules\":[\"mlp\",\"moe\"]"}},
      {"--swap-attention --recompute-method block --recompute-num-layers 1", {"\"offload_modules\":[]"}},
      {"--swap-attention --recompute-method uniform --recompute-num-layers 1", {"\"modules\":[\"mlp\"]"}},
      {"--swap-attention --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
       {"\"offload_modules\":[]", "\"granularity\":\"full\""}},
      {"--o2-optimizer --use-distributed-optimizer",
       {"\"exp_avg_dtype\":\"bf16\"", "\"exp_avg_sq_dtype\":\"bf16\"", "\"main_grads_dtype\":\"fp32\""}},
      {"--o2-gradient",
       {"\"main_grads_dtype\":\"bf16\"", "\"grad_reduce_dtype\":\"bf16\"", "\"exp_avg_dtype\":\"fp32\""}},
      {EXPERTS " --use-fused-moe-token-permute-and-unpermute", {"\"moe_permute_fusion\":true"}},
      {"--gelu-tanh", {"\"gated\":true", "\"activation\":\"gelu\""}},
      {"--post-norm", {"\"post_norm\":true"}},
      {"--spec mindspeed_llm.tasks.models.spec.grok_spec layer_spec", {"\"post_norm\":true"}},
      {"--swap-optimizer", {"\"swap_optimizer_times\":16"}},
      {"--swap-optimizer --swap-optimizer-times 4", {"\"swap_optimizer_times\":4"}},
      {"--swap-optimizer-times 4", {"\"swap_optimizer_times\":0"}},
      {"--position-embedding-type mrope", {"\"position_embedding\":\"rope\""}},
      {LATENT " --rope-scaling-type yarn --rope-scaling-factor 40", {"\"type\":\"yarn\"", "\"factor\":40"}},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) got = import_with(rows[i].more, &error);
    if (!got) fail_msg("%s: %s", rows[i].more, error->message);
    g_autofree char *text = written(got->scenario);
    for (int k = 0; k < 3 && rows[i].wants[k]; k++)
      if (!strstr(text, rows[i].wants[k])) fail_msg("%s: no %s in %s", rows[i].more, rows[i].wants[k], text);
  }
}

/* Documents of one length, beside the mask that keeps them apart alone. */
static void documents_of_mindspeed(void **state) {
  (void)state;
  static const struct {
    const char *more;
    int n;
  } rows[] = {{"--reset-attention-mask --fix-sub-seq-length 1024", 1},
              {"--fix-sub-seq-length 1024", 0},
              {"--reset-attention-mask --fix-sub-seq-length 4096", 0},
              {"--reset-attention-mask --fix-sub-seq-length -1", 0}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(MsImport) got = import_with(rows[i].more, NULL);
    const MsLengths *l = &got->scenario->training.sequence_lengths;
    assert_int_equal(l->n, rows[i].n);
    if (rows[i].n) assert_int_equal(l->length[0], 1024);
    assert_int_equal(mentions(got->remarks, "--reset-attention-mask"), i > 1);
  }
}

/* What is modelled is not said not to be, and what is not is. */
static void remarks_of_mindspeed(void **state) {
  (void)state;
  static const struct {
    const char *more, *said, *silent;
  } rows[] = {
      {"--swap-attention", NULL, "--swap-attention"},
      {"--recompute-activation-function --recompute-norm", NULL, "--recompute-"},
      {"--swap-attention --recompute-num-layers 4", NULL, "--swap-attention"},
      {"--swap-attention --recompute-num-layers 3", "--recompute-num-layers: the MLPs of some layers", "host and back"},
      {"--swap-attention --recompute-num-layers 3 --enable-recompute-layers-per-pp-rank",
       "--recompute-num-layers: the MLPs of some layers", "--enable-recompute"},
      {"--swap-attention --recompute-method block --recompute-num-layers 3", "--swap-attention: activations",
       "pp-rank"},
      {"--o2-gradient", "--o2-gradient: gradients are kept", "--o2-optimizer"},
      {"--attention-mask-type general --context-parallel-size 2", "--attention-mask-type general: a ring", "cp-att"},
      {"--cp-attention-mask-type general --context-parallel-size 2 --context-parallel-algo hybrid_cp_algo",
       "--attention-mask-type general: a ring", "cp-att"},
      {"--attention-mask-type general --context-parallel-size 2 --context-parallel-algo ulysses_cp_algo", NULL,
       "--attention-mask-type"},
      {"--attention-mask-type causal --context-parallel-size 2", NULL, "--attention-mask-type"},
      {"--attention-mask-type general", NULL, "--attention-mask-type"},
      {"--output-layer-slice-num 4", "--output-layer-slice-num: logits in slices", "ignored"},
      {"--recompute-in-advance", "--recompute-in-advance: recomputing in", "ignored"},
      {"--qat-scheme w4a4-mxfp4", "--qat-scheme: rounding", "ignored"},
      {EXPERTS " --moe-alltoall-overlap-comm --moe-allgather-overlap-comm --moe-unperm2-mem-optim",
       "--moe-unperm2-mem-optim: what it", "ignored"}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) got = import_with(rows[i].more, &error);
    if (!got) fail_msg("%s: %s", rows[i].more, error->message);
    if (rows[i].said && !mentions(got->remarks, rows[i].said)) fail_msg("%s: no remark", rows[i].more);
    if (mentions(got->remarks, rows[i].silent)) fail_msg("%s: a remark of %s", rows[i].more, rows[i].silent);
  }
}

/* Whose machines a script is for, where nothing names one. */
static void machines(void **state) {
  (void)state;
  static const struct {
    const char *before, *more, *hardware, *remark;
    MsFramework framework;
  } rows[] = {
      {"", "", "h100-sxm", "h100-sxm is assumed;", MS_FRAMEWORK_MEGATRON},
      {"export ACCELERATOR_BACKEND=musa\n", "", "mtt-s5000", "mtt-s5000 is assumed after ACCELERATOR_BACKEND;",
       MS_FRAMEWORK_MT_MEGATRON},
      {"export ACCELERATOR_BACKEND=musa\n", EXPERTS " --moe-token-dispatcher-type alltoall", "mtt-s5000",
       "framework: mt-megatron is assumed", MS_FRAMEWORK_MT_MEGATRON}, /* its experts one by one */
      {"export MCCL_PROTOS=2\nexport MUSA_KERNEL_TIMEOUT=1\n", "", "mtt-s5000", "after MCCL_PROTOS;",
       MS_FRAMEWORK_MT_MEGATRON},
      {"export MUSA_KERNEL_TIMEOUT=1\n", "--qk-layernorm --window-size 127,0", "mtt-s5000", "after MUSA_KERNEL",
       MS_FRAMEWORK_MT_MEGATRON},
      {"export ACCELERATOR_BACKEND=cuda MUSA_KERNEL_TIMEOUT=1\n", "", "h100-sxm", "h100-sxm is assumed;",
       MS_FRAMEWORK_MEGATRON},
      {"export HCCL_CONNECT_TIMEOUT=3600\n", "", "ascend-910b", "after HCCL_CONNECT_TIMEOUT;", MS_FRAMEWORK_MEGATRON},
      {"NPUS_PER_NODE=16\n", "", "ascend-910c", "after NPUS_PER_NODE;", MS_FRAMEWORK_MEGATRON},
      {"", "--swap-attention", "ascend-910b", "after --swap-attention;", MS_FRAMEWORK_MEGATRON},
      {"#moesim hardware \"h200-sxm\"\nNPUS_PER_NODE=16\n", "", "h200-sxm", NULL, MS_FRAMEWORK_MEGATRON}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    const MsImportOptions options = {0};
    g_autofree char *script = g_strconcat(rows[i].before, dense, " ", rows[i].more, "\n", NULL);
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) got = import(script, &options, &error);
    if (!got) fail_msg("%s: %s", script, error->message);
    assert_string_equal(got->scenario->hardware->name, rows[i].hardware);
    if (got->scenario->framework != rows[i].framework) fail_msg("%s: not its framework", script);
    if (mentions(got->remarks, rows[i].remark ? rows[i].remark : "assumed") == !rows[i].remark) fail_msg("%s", script);
  }
}

/* Megatron-DeepSpeed, over the same 64 GPUs; rows without "--deepspeed" are older scripts of Megatron-LM. */
static void words_of_deepspeed(void **state) {
  (void)state;
  static const struct {
    const char *more, *wants[3];
  } rows[] = {
      {"--checkpoint-activations",
       {"\"granularity\":\"full\"", "\"method\":\"uniform\"", "\"distributed_optimizer\":false"}},
      {"--activations-checkpoint-method block --activations-checkpoint-num-layers 2",
       {"\"granularity\":\"full\"", "\"method\":\"block\"", "\"num_layers\":2"}},
      {"--deepspeed --zero-stage 0", {"\"distributed_optimizer\":true"}}, /* BF16 keeps its states split */
      {"--deepspeed --zero-stage 1", {"\"distributed_optimizer\":true", "\"fsdp\":\"none\""}},
      {"--deepspeed --zero-stage 2 --no-pipeline-parallel", {"\"fsdp\":\"optim-grads\"", "\"pp\":1"}},
      {"--deepspeed --zero-stage 3 --no-pipeline-parallel", {"\"fsdp\":\"optim-grads-params\"", "\"pp\":1"}},
      {"--deepspeed --zero-stage 1 --cpu-optimizer", {"\"optimizer_offload_fraction\":1"}},
      {"--deepspeed --zero-stage 1 --num-experts 8 8 --moe-expert-parallel-size 4 --topk 2 --no-pipeline-parallel",
       {"\"moe_layer_freq\":\"[0]*1+[1]*1+[0]*1+[1]*1", "\"ep\":4", "\"etp\":1"}},
      {"--deepspeed --zero-stage 1 --num-experts 8 --expert-interval 1 --topk 2 --disable-moe-token-dropping",
       {"\"moe_layer_freq\":null", "\"moe_router_topk\":2"}},
      {"--deepspeed --zero-stage 1 --num-experts 1 --topk 2", {"\"num_experts\":0"}},
      {"--deepspeed --zero-stage 1 --ds-sequence-parallel-size 4", {"\"cp\":4", "\"cp_comm_type\":\"a2a\""}},
      {"--deepspeed --zero-stage 1 --num-layers 14 --pp-partition-method 'type:transformer|embedding'",
       {"\"account_for_embedding_in_pipeline_split\":true", "\"account_for_loss_in_pipeline_split\":true"}},
      {"--deepspeed --zero-stage 1 --enable-zbh1-pipeline", {"\"schedule\":\"zb-h1\""}},
      {"--deepspeed --zero-stage 1 --num-key-value-heads 4", {"\"num_query_groups\":4"}},
      {"--attention-head-type multiquery", {"\"num_query_groups\":1"}},
      {"--position-embedding-type alibi", {"\"position_embedding\":\"none\""}},
      {"--normalization rmsnorm", {"\"normalization\":\"RMSNorm\""}},
      {"--reuse-fp32-param", {"\"reuse_fp32_param\":true"}},
      {"--use-ascend-coc", {"\"tp_comm_overlap\":false"}},
      {"--use-ascend-mc2 --sequence-parallel", {"\"tp_comm_overlap\":true"}},
      {"--num-experts 8 --moe-router-enable-expert-bias", {"\"moe_router_score_function\":\"sigmoid\""}},
      {"--num-experts 8 --moe-router-enable-expert-bias --moe-router-score-function sqrtsoftplus",
       {"\"moe_router_score_function\":\"sqrtsoftplus\""}},
      {"--transformer-impl local --use-sparse-flash-attn", {"\"transformer_impl\":\"transformer_engine\""}},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) got = import_with(rows[i].more, &error);
    if (!got) fail_msg("%s: %s", rows[i].more, error->message);
    g_autofree char *text = written(got->scenario);
    for (int k = 0; k < 3 && rows[i].wants[k]; k++)
      if (!strstr(text, rows[i].wants[k])) fail_msg("%s: no %s in %s", rows[i].more, rows[i].wants[k], text);
  }
}

/* What moesim does not model is a remark; what changes the model or the step is refused. */
static void what_is_not_modelled(void **state) {
  (void)state;
  static const char *const remarks[] = {"--variable-seq-lengths", "--reset-attention-mask", "--rampup-batch-size"};
  static const struct {
    const char *more, *message;
  } refused[] = {
      {"--noop-layers 16", "run.sh:1: --noop-layers: names layer 16 of 16, the first is 0"},
      {"--num-layer-list 3,4,4", "run.sh:1: --num-layer-list: has 3 stages and 11 layers, must have PP = 4 and 16"},
      {"--noop-layers 1 --num-layers-per-virtual-pipeline-stage 3",
       "run.sh:1: --noop-layers: 16 layers, those without weights among them, do not split evenly over PP 4"},
      {"--stage dpo", "run.sh:1: --stage: is dpo, which runs more than one forward and backward of one model"},
      {"--lora-r 8 --lu-lora-lr 1", "run.sh:1: --lu-lora-lr: changes the model or its time"},
      {"--bridge-hf-model /models/x", "run.sh:1: --bridge-hf-model: changes the model"},
      {"--deepspeed --zero-stage 1 --num-experts 8 16",
       "run.sh:1: --num-experts: is 8 in one layer and 16 in another, which moesim has no model of"},
      {"--deepspeed --zero-stage 1 --num-experts 8 --mlp-type residual",
       "run.sh:1: --mlp-type: is residual, moesim has only experts without a dense layer beside them"},
      {"--deepspeed --zero-stage 1 --kd", "run.sh:1: --kd: changes the model or its time"},
      {"--spec mindspeed_llm.tasks.models.spec.longcat_spec layer_spec", "run.sh:1: --spec: changes the model"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(remarks); i++) {
    g_autoptr(MsImport) got = import_with(remarks[i], NULL);
    assert_true(mentions(got->remarks, remarks[i]) && !mentions(got->ignored, remarks[i]));
  }
  g_autoptr(MsImport) wide = import_with("--num-experts 8 --first-k-dense-replace 1", NULL),
                      told = import_with("--num-experts 8 --first-k-dense-replace 1 --moe-intermediate-size 512", NULL);
  assert_true(mentions(wide->remarks, "--moe-ffn-hidden-size is not given: experts are"));
  assert_false(mentions(told->remarks, "--moe-ffn-hidden-size"));
  for (guint i = 0; i < G_N_ELEMENTS(refused); i++) {
    g_autoptr(GError) error = NULL;
    assert_null(import_with(refused[i].more, &error));
    if (!g_str_has_prefix(error->message, refused[i].message)) fail_msg("%s", error->message);
  }
}

static void other_programs(void **state) {
  (void)state;
  const MsImportOptions options = {.hardware = "h100-sxm"};
  g_autoptr(GString) script = g_string_new(dense);
  g_string_replace(script, "pretrain_gpt.py", "inference.py", 0);
  g_autoptr(MsImport) inference = import(script->str, &options, NULL);
  assert_true(mentions(inference->remarks, "inference.py does not train by its name"));
  g_string_replace(script, "inference.py", "pretrain_t5.py", 0);
  g_autoptr(GError) error = NULL;
  assert_null(import(script->str, &options, &error));
  assert_string_equal(error->message,
                      "run.sh:1: pretrain_t5.py: trains another model than a decoder, which is what moesim has");
  g_string_replace(script, "pretrain_t5.py", "train_fsdp2.py", 0);
  g_clear_error(&error);
  assert_null(import(script->str, &options, &error));
  assert_true(g_str_has_prefix(error->message, "run.sh:1: train_fsdp2.py: is MindSpeed-LLM's back end of PyTorch's"));
  g_string_replace(script, "train_fsdp2.py", "pretrain_gpt.py --virtual-pipeline-model-parallel-size 2", 0);
  g_autoptr(MsImport) chunks = import(script->str, &options, NULL);
  assert_true(mentions(chunks->remarks, "--virtual-pipeline-model-parallel-size: is overwritten by Megatron-LM"));
}

/* The stage that a script writes into DeepSpeed's configuration, and tokenizers known by their file. */
static void deepspeed_scripts(void **state) {
  (void)state;
  const MsImportOptions options = {.hardware = "h100-sxm"};
  g_autoptr(GString) script =
      g_string_new("ZERO=0\ncat <<EOT > ds.json\n{\"zero_optimization\": {\"stage\": $ZERO}}\nEOT\n");
  g_string_append_printf(script, "%s --deepspeed --fp16 --vocab-file data/gpt2-vocab.json\n", dense);
  g_string_replace(script, "--bf16", "", 0), g_string_replace(script, "--vocab-size 1000", "", 0);
  g_autoptr(MsImport) none = import(script->str, &options, NULL);
  assert_false(none->scenario->options.distributed_optimizer);
  assert_int_equal(none->scenario->model->vocab_size, 50257);
  g_string_replace(script, "ZERO=0", "ZERO=1", 0);
  g_autoptr(MsImport) one = import(script->str, &options, NULL);
  assert_true(one->scenario->options.distributed_optimizer && !mentions(one->remarks, "ZeRO-1 is assumed"));
  g_string_replace(script, "\"stage\"", "\"level\"", 0);
  g_autoptr(MsImport) unsaid = import(script->str, &options, NULL);
  assert_true(mentions(unsaid->remarks, "ZeRO-1 is assumed"));
}

static void slime(void **state) {
  (void)state;
  static const char script[] =
      "ray job submit -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --num-layers 4 --hidden-size "
      "256 --ffn-hidden-size 512 --num-attention-heads 4 --vocab-size 1000 --swiglu --normalization RMSNorm "
      "--use-rotary-position-embeddings --disable-bias-linear --rollout-batch-size 32 --n-samples-per-prompt 8 "
      "--tensor-model-parallel-size 2 --use-dynamic-batch-size --max-tokens-per-gpu 9216\n";
  const MsImportOptions options = {.hardware = "h100-sxm"};
  g_autoptr(MsImport) got = import(script, &options, NULL);
  assert_int_equal(got->scenario->gpus, 16);
  assert_int_equal(got->scenario->training.global_batch_size, 256);
  assert_int_equal(got->scenario->training.micro_batch_size, 1);
  assert_int_equal(got->scenario->training.precision, MS_BF16);
  assert_true(got->scenario->options.distributed_optimizer);
  assert_true(mentions(got->remarks, "--use-dynamic-batch-size: "));
}

/* A script that takes its sizes from files and arguments. */
static void files_and_arguments(void **state) {
  (void)state;
  g_autofree char *folder = g_dir_make_tmp("moesim-test-XXXXXX", NULL),
                  *models = g_build_filename(folder, "models", NULL),
                  *model = g_build_filename(models, "small.sh", NULL), *file = g_build_filename(folder, "run.sh", NULL);
  g_autofree char *script = g_strconcat("# sh run.sh 8 4\nDIR=$(cd -- \"$(dirname -- \"${BASH_SOURCE[0]}\")\" && pwd)\n"
                                        "source \"$DIR/models/small.sh\"\nsource /elsewhere/models/small.sh\n",
                                        dense, " --context-parallel-size $2 ${MODEL_ARGS[@]}\n", NULL);
  static const char sourced[] = "FREQ=()\nfor ((i=0; i<4; i++)); do if (( i < 1 )); then FREQ+=(0); else FREQ+=(1); "
                                "fi; done\nprintf -v F \"[%s]\" \"$(IFS=', '; echo \"${FREQ[*]}\")\"\n"
                                "MODEL_ARGS=(--num-layers 4" EXPERTS " --moe-layer-freq $F)\n";
  g_mkdir(models, 0755);
  assert_true(g_file_set_contents(model, sourced, -1, NULL));
  const MsImportOptions plain = {.hardware = "h100-sxm", .environment = TRUE};
  g_autoptr(GError) error = NULL;
  g_autoptr(MsImport) shown = ms_import_megatron(script, strlen(script), file, &plain, &error);
  if (!shown) fail_msg("%s", error->message);
  assert_int_equal(shown->scenario->layout.cp, 4);
  assert_string_equal(shown->scenario->model->moe_layer_freq, "[0]*1+[1]*3");
  assert_true(mentions(shown->remarks, "called as line 1 shows (8 4)"));
  assert_true(mentions(shown->remarks, "/elsewhere/models/small.sh is not there, "));

  const char *const words[] = {"8", "2", NULL}, *const set[] = {"2=1", NULL};
  MsImportOptions given = {.hardware = "h100-sxm", .environment = TRUE, .words = words};
  g_autoptr(MsImport) called = ms_import_megatron(script, strlen(script), file, &given, NULL);
  assert_int_equal(called->scenario->layout.cp, 2);
  given.set = set;
  g_autoptr(MsImport) overridden = ms_import_megatron(script, strlen(script), file, &given, NULL);
  assert_int_equal(overridden->scenario->layout.cp, 1);

  given.environment = FALSE; /* as where the text is not the user's own: no other file is read */
  g_autoptr(MsImport) alone = ms_import_megatron(script, strlen(script), file, &given, NULL);
  assert_int_equal(alone->scenario->model->num_layers, 16);
  g_remove(model), g_rmdir(models), g_rmdir(folder);
}

/* $(cat FILE) of a file beside the script; of one that is not there the words are missed. */
static void files_that_are_printed(void **state) {
  (void)state;
  g_autofree char *folder = g_dir_make_tmp("moesim-test-XXXXXX", NULL), *words = g_build_filename(folder, "args", NULL),
                  *file = g_build_filename(folder, "run.sh", NULL);
  assert_true(g_file_set_contents(words, "--context-parallel-size 2\n  --recompute-granularity full\n\n", -1, NULL));
  static const struct {
    const char *before, *behind;
    int cp;
    const char *remark;
  } rows[] = {{"", "$(cat args)", 2, NULL},
              {"", "`cat ./args`", 2, NULL},
              {"", "$(< args)", 2, NULL},
              {"A=args\nMORE=\"$(cat $A)\"\n", "$MORE", 2, NULL},
              {"", "$(cat /elsewhere/x/args)", 1, "what $(cat /elsewhere/x/args) prints is not known"},
              {"", "$(cat other)", 1, "what $(cat other) prints is not known"},
              {"", "$(cat args other)", 1, "what $(cat args other) prints is not known"}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *script = g_strconcat(rows[i].before, dense, " ", rows[i].behind, NULL);
    const MsImportOptions options = {.hardware = "h100-sxm", .environment = TRUE};
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) got = ms_import_megatron(script, strlen(script), file, &options, &error);
    if (!got) fail_msg("%s", error->message);
    assert_int_equal(got->scenario->layout.cp, rows[i].cp);
    if (mentions(got->remarks, rows[i].remark ? rows[i].remark : "not known") == !rows[i].remark)
      fail_msg("%s: %s", script, rows[i].remark ? "no remark" : "a remark");
  }
  g_remove(words), g_rmdir(folder);
}

/* What model_args() of such a file returns, and what is more than constants. */
static char *no_file(gpointer data, const char *model) {
  (void)data;
  return strcmp(model, "base") == 0 ? g_strdup("N = 4\ndef model_args(nlayers: int = N, width: int = 64) -> str:\n"
                                               "    return f\"--num-layers {nlayers} --hidden-size {width} \"\n")
                                    : NULL;
}

static char *two(const void *data, const char *name) {
  (void)data;
  return strcmp(name, "DENSE") == 0 ? g_strdup("2") : NULL;
}

static void model_scripts(void **state) {
  (void)state;
#define DEF "import os\n\n\ndef model_args() -> str:\n"
  static const struct {
    const char *text, *want; /* NULL: not understood */
  } rows[] = {
      {DEF "    return (\n        \"--a 1 \"  # one\n        # two\n        f\"--b {2 * 3}\"\n    )\n", "--a 1 --b 6"},
      {"D = 1\nN = D + 2\n" DEF "    return f\"[0]*{D}+[1]*{N}\"\n", "[0]*1+[1]*3"},
      {"def model_args(n: int | None = None, x: str = \"no\") -> str:\n    n = n if n is not None else "
       "int(os.environ.get(\"LAYERS\") or 3)\n    d = (\n        d\n        if d is not None\n        else "
       "int(os.environ.get(\"DENSE\") or 1)\n    )\n"
       "    return f\"{x} {moe_layer_freq(nlayers=n, first_k_dense_replace=d)}\"\n",
       "no [0,0,1]"},
      {DEF "    return load_sibling_model_args(\n        __file__,\n        \"base\",\n        width=8,\n    )\n",
       "--num-layers 4 --hidden-size 8 "},
      {DEF "    return load_sibling_model_args(__file__, \"other\")\n", NULL},
      {DEF "    return f\"{read(1)}\"\n", NULL},
      {DEF "    return f\"{UNKNOWN}\"\n", NULL},
      {DEF "    for i in range(3):\n        pass\n    return \"\"\n", NULL},
      {DEF "    return \"--a\n", NULL},
      {DEF "    return (\"--a\"\n", NULL},
      {DEF "    return ((((((((((((((((((((1))))))))))))))))))))\n", NULL},
      {"", NULL}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *got = ms_model_script(rows[i].text, no_file, two, NULL);
    if (g_strcmp0(got, rows[i].want) != 0) fail_msg("%s: %s, not %s", rows[i].text, got, rows[i].want);
    for (gsize n = strlen(rows[i].text); n-- > 1;) { /* a file that ends early says less, or nothing */
      g_autofree char *part = g_strndup(rows[i].text, n), *less = ms_model_script(part, no_file, two, NULL);
      if (less && rows[i].want) assert_true(strlen(less) <= strlen(rows[i].want));
    }
  }
}

/* The same from the script that calls it. */
static void models_of_miles(void **state) {
  (void)state;
  g_autofree char *folder = g_dir_make_tmp("moesim-test-XXXXXX", NULL),
                  *models = g_build_filename(folder, "scripts", "models", NULL), *above = g_path_get_dirname(models),
                  *model = g_build_filename(models, "small-1B.py", NULL),
                  *file = g_build_filename(folder, "run.sh", NULL);
  g_autofree char *script =
      g_strconcat("R=\"$(cd -- \"$(dirname -- \"${BASH_SOURCE[0]}\")\" && pwd)\"\n"
                  "L=\"$(ROTARY=7 python3 \"$R/miles/utils/external_utils/model_args_utils.py\" small-1B)\" || exit 1\n"
                  "read -ra MODEL_ARGS <<< \"$L\"\n",
                  dense, " ${MODEL_ARGS[@]}\n", NULL);
  static const char text[] = "import os\n\ndef model_args(base: str | None = None) -> str:\n"
                             "    base = base if base is not None else os.environ.get(\"ROTARY\") or \"5\"\n"
                             "    return (\n        \"--num-layers 4 \"\n        f\"--rotary-base {base} \"\n    )\n";
  assert_int_equal(g_mkdir_with_parents(models, 0755), 0);
  assert_true(g_file_set_contents(model, text, -1, NULL));
  MsImportOptions options = {.hardware = "h100-sxm", .environment = TRUE};
  g_autoptr(GError) error = NULL;
  g_autoptr(MsImport) got = ms_import_megatron(script, strlen(script), file, &options, &error);
  if (!got) fail_msg("%s", error->message);
  assert_int_equal(got->scenario->model->num_layers, 4);
  assert_close(got->scenario->model->rotary_base, 7.0, 0.0);
  options.environment = FALSE; /* as where the text is not the user's own: no other file is read */
  g_autoptr(MsImport) alone = ms_import_megatron(script, strlen(script), file, &options, &error);
  assert_int_equal(alone ? alone->scenario->model->num_layers : 0, 16);
  g_remove(model), g_rmdir(models), g_rmdir(above), g_rmdir(folder);
}

/* Sizes of layers, whole models and patterns that a script leaves to its checkpoint or to parts. */
static void sizes_of_checkpoints(void **state) {
  (void)state;
#define SLIME \
  " --hidden-size 5120 --num-attention-heads 24 --num-query-groups 4 --group-query-attention --kv-channels 256"
  static const struct {
    const char *more, *wants[3]; /* of the scenario; NULL: refused because of it */
    const char *remark;
  } rows[] = {
      {"--spec slime_plugins.models.qwen3_5 get_qwen3_5_spec" SLIME,
       {"\"num_value_heads\":48", "\"num_key_heads\":16"},
       "--spec slime_plugins.models.qwen3_5: sizes that the checkpoint says"},
      {"--spec miles_plugins.models.qwen3_5 get_qwen3_5_spec" SLIME,
       {"\"num_value_heads\":48"},
       "--spec miles_plugins"},
      {"--spec slime_plugins.models.qwen3_5 get_qwen3_5_spec --hidden-size 1536", {NULL}, "--spec: changes the model"},
      {"--custom-model-provider-path a.b.c", {NULL}, "--custom-model-provider-path: changes the model"},
      {"--bridge-hf-model X --num-layers 64 --hidden-size 5120 --ffn-hidden-size 25600 --num-attention-heads 64",
       {"\"name\":\"qwen3-32b\""},
       "the model is the checkpoint's: qwen3-32b alone"},
      {"--bridge-hf-model X --num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28",
       {"\"name\":\"qwen2.5-7b\"", "\"num_experts\":0"},
       "qwen2.5-7b alone"}, /* and not qwen2-57b-a14b */
      {"--bridge-hf-model X --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64",
       {NULL},
       "--bridge-hf-model: changes the model"}, /* Llama-2 and Llama-3 have these */
      {"--spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec --num-layers 24 --hybrid-attention-ratio "
       "0.08 --hybrid-mlp-ratio 0.5 --pipeline-model-parallel-size 1",
       {"\"hybrid_layer_pattern\":\"M-M-M--*M-M-M-M-*M--M-M-\""},
       NULL},
      {"--spec mindspeed_llm.tasks.models.spec.mamba_spec layer_spec --mamba-expand 4 --mamba-head-dim 64 "
       "--mamba-chunk-size 256 --mamba-d-conv 4",
       {"\"hybrid_layer_pattern\":\"MMMMMMMMMMMMMMMM\"", "\"num_heads\":64"},
       NULL},
      {"--spec m.mamba_spec layer_spec --mamba-d-conv 3", {NULL}, "--mamba-d-conv: is \"3\""},
      {"--spec m.mamba_spec layer_spec --hybrid-attention-ratio 0.6 --hybrid-mlp-ratio 0.6",
       {NULL},
       "leaves no layer"}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) got = import_with(rows[i].more, &error);
    if (!rows[i].wants[0]) {
      if (got || !strstr(error->message, rows[i].remark)) fail_msg("%s: %s", rows[i].more, got ? "" : error->message);
      continue;
    }
    if (!got) fail_msg("%s: %s", rows[i].more, error->message);
    g_autofree char *text = written(got->scenario);
    for (int k = 0; k < 3 && rows[i].wants[k]; k++)
      if (!strstr(text, rows[i].wants[k])) fail_msg("%s: no %s in %s", rows[i].more, rows[i].wants[k], text);
    if (rows[i].remark) assert_true(mentions(got->remarks, rows[i].remark));
    assert_false(mentions(got->ignored, "--spec") || mentions(got->ignored, "--mamba-"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(words_of_mindspeed),
                                     cmocka_unit_test(documents_of_mindspeed),
                                     cmocka_unit_test(machines),
                                     cmocka_unit_test(remarks_of_mindspeed),
                                     cmocka_unit_test(words_of_deepspeed),
                                     cmocka_unit_test(deepspeed_scripts),
                                     cmocka_unit_test(what_is_not_modelled),
                                     cmocka_unit_test(other_programs),
                                     cmocka_unit_test(slime),
                                     cmocka_unit_test(files_and_arguments),
                                     cmocka_unit_test(files_that_are_printed),
                                     cmocka_unit_test(model_scripts),
                                     cmocka_unit_test(models_of_miles),
                                     cmocka_unit_test(sizes_of_checkpoints)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
