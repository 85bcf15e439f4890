/* src/launch/dialect.c - words of MindSpeed-LLM, slime and Pai-Megatron-Patch as words of Megatron-LM. */
#include "launch/dialect.h"

#include <string.h>

#include "base/err.h"
#include "base/text.h"

/* --- the same under another name ------------------------------------------------------------------------------- */
static const struct {
  const char *theirs, *ours;
} renamed[] = {{"--moe-intermediate-size", "--moe-ffn-hidden-size"},
               {"--intermediate-size", "--ffn-hidden-size"},
               {"--shared-expert-gate", "--moe-shared-expert-gate"},
               {"--add-rmsnorm-offset", "--apply-layernorm-1p"},
               {"--partial-rotary-factor", "--rotary-percent"},
               {"--moe-fb-overlap", "--overlap-moe-expert-parallel-comm"},
               {"--combined-1f1b", "--overlap-moe-expert-parallel-comm"},
               {"--use-fused-moe-token-permute-and-unpermute", "--moe-permute-fusion"},
               {"--cp-attention-mask-type", "--attention-mask-type"},
               {"--fix-router", "--moe-router-force-load-balancing"},
               {"--use-qk-norm", "--qk-layernorm"},
               {"--num-layers-per-virtual-pipeline-stag", "--num-layers-per-virtual-pipeline-stage"}};

static void rename_flags(MsArgs *args) {
  for (guint i = 0; i < G_N_ELEMENTS(renamed); i++) {
    const MsArg *arg = ms_args_take(args, renamed[i].theirs);
    if (arg && !ms_args_has(args, renamed[i].ours)) ms_args_say(args, arg, renamed[i].ours, arg->values[0]);
  }
}

static const struct {
  const char *flag, *theirs, *ours_flag, *ours;
} words[] = {{"--position-embedding-type", "mrope", "--position-embedding-type", "rope"},
             {"--position-embedding-type", "deepseek4", "--position-embedding-type", "rope"},
             {"--position-embedding-type", "rotary", "--position-embedding-type", "rope"},
             {"--position-embedding-type", "absolute", "--position-embedding-type", "learned_absolute"},
             {"--position-embedding-type", "alibi", "--position-embedding-type", "none"}, /* has no weights */
             {"--normalization", "rmsnorm", "--normalization", "RMSNorm"},
             {"--normalization", "layernorm", "--normalization", "LayerNorm"},
             {"--attention-head-type", "multiquery", "--num-query-groups", "1"},
             {"--context-parallel-algo", "megatron_cp_algo", "--cp-comm-type", "p2p"},
             {"--context-parallel-algo", "ulysses_cp_algo", "--cp-comm-type", "a2a"},
             {"--context-parallel-algo", "hybrid_cp_algo", "--cp-comm-type", "a2a+p2p"},
             {"--context-parallel-algo", "kvallgather_cp_algo", "--cp-comm-type", "all_gather"},
             {"--context-parallel-algo", "adaptive_cp_algo", "--cp-comm-type", "p2p"},
             {"--context-parallel-algo", "hybrid_adaptive_cp_algo", "--cp-comm-type", "a2a+p2p"},
             {"--spec", "local", "--transformer-impl", "local"},
             {"--schedules-method", "dualpipev", MS_PIPELINE_SCHEDULE, "dualpipev"}};

const char *ms_dialect_their_word(const char *flag, const char *ours) {
  for (guint k = 0; k < G_N_ELEMENTS(words); k++)
    if (strcmp(words[k].flag, flag) == 0 && strcmp(words[k].ours, ours) == 0) return words[k].theirs;
  MS_BUG("a word of Megatron-LM that a dialect has none for");
}

static void replace_words(MsArgs *args) {
  guint before = args->list->len;
  for (guint i = 0; i < before; i++) {
    MsArg *arg = args->list->pdata[i];
    for (guint k = 0; k < G_N_ELEMENTS(words); k++) {
      if (strcmp(arg->flag, words[k].flag) != 0 || g_strcmp0(arg->values[0], words[k].theirs) != 0) continue;
      arg->used = TRUE;
      ms_args_say(args, arg, words[k].ours_flag, words[k].ours);
      if (strcmp(words[k].ours_flag, "--num-query-groups") == 0)
        ms_args_say(args, arg, "--group-query-attention", NULL);
    }
  }
}

/* --- what is not modelled -------------------------------------------------------------------------------------- */
static const struct {
  const char *flag, *sentence;
} unmodelled[] = {
    {"--virtual-pipeline-model-parallel-size", "is overwritten by Megatron-LM, which works VPP out of other arguments"},
    {"--add-dense-bias", "a bias of the output projection is not modelled: a vector of hidden_size a layer is missing"},
    {"--moe-alltoall-overlap-comm",
     "messages of the experts beside products are not modelled so: the step is predicted "
     "too long"},
    {"--moe-allgather-overlap-comm", "messages of the experts beside products are not modelled so: the step is "
                                     "predicted too long"},
    {"--output-layer-slice-num", "logits in slices are not modelled: memory is predicted too high"},
    {"--recompute-in-advance", "recomputing in the pipeline's bubbles is not modelled: the step is predicted too long"},
    {"--recompute-in-bubble", "recomputing in the pipeline's bubbles is not modelled: the step is predicted too long"},
    {"--qat-scheme", "rounding of weights and activations is not modelled: the step is predicted too short"},
    {"--moe-unperm2-mem-optim", "what it does not keep of the experts' outputs is not modelled: memory is predicted "
                                "too high"},
    {"--swap-attention", "activations that go to the host and back are not modelled: memory is predicted too high"},
    {"--recompute-activation-function", "recomputed activation functions are not modelled"},
    {"--recompute-norm", "recomputed norms are not modelled"},
    {"--moe-zero-memory", "what this recomputes in the experts is not modelled: memory is predicted too high"},
    {"--enable-recompute-layers-per-pp-rank", "the number of recomputed layers is taken for a virtual stage"},
    {"--variable-seq-lengths", "every sequence is taken to be as long as --seq-length"},
    {"--reset-attention-mask", "attention is taken over whole sequences, not document by document"},
    {"--neat-pack", "attention is taken over whole sequences, not document by document"},
    {"--embed-layernorm", "a norm behind the embedding is not modelled: two vectors of hidden_size are missing"},
    {"--input-embeds-norm", "a factor on the embedding is not modelled"},
    {"--rampup-batch-size", "the batch grows to --global-batch-size first; the step with the whole batch is read"},
    {"--step-batch-size-schedule", "the batch changes during training; the step with --global-batch-size is read"},
    {"--curriculum-learning", "sequences grow to --seq-length first; the step with whole sequences is read"},
    {"--no-pad-to-seq-lengths", "every sequence is taken to be as long as --seq-length"},
    {"--use-quantize-comm", "communication of quantized values is not modelled"},
    {"--checkpoint-in-cpu", "what recomputing starts from stays on the GPU here: memory is predicted too high"},
    {"--partition-activations", "what recomputing starts from is not split over TP here: memory is predicted too high"},
    {"--distribute-saved-activations",
     "what recomputing starts from is not split over TP here: memory is predicted too high"},
    {"--activation-offload-fraction", "all that the offloaded modules keep goes to the host here"},
    {"--moe-zerc", "its other order of tokens and experts is not modelled"},
    {"--mla-swap-core-attn-out", "activations that go to the host and back are not modelled: memory is predicted too "
                                 "high"},
    {"--mla-zero-memory", "recomputed up-projections are not modelled so: memory is predicted too high"},
    {"--recompute-mla-up-proj", "recomputed up-projections are not modelled so: memory is predicted too high"},
    {"--mtp-mem-efficient-logits", "logits of the MTP blocks are kept here: memory is predicted too high"},
    {"--interleave-sliding-window", "the window of every second layer is not modelled"}};

/* Of what other rules of the dialect took, nothing is left to say. */
static void note_unmodelled(MsArgs *args, GPtrArray *remarks) {
  for (guint i = 0; i < G_N_ELEMENTS(unmodelled); i++) {
    const MsArg *arg = ms_args_find(args, unmodelled[i].flag);
    if (!arg || arg->used) continue;
    ms_args_take(args, arg->flag);
    ms_note(remarks, "%s: %s", arg->flag, unmodelled[i].sentence);
  }
}

/* Layers whose specification says nothing that other arguments do not. */
static const struct {
  const char *module, *remark; /* the module's path or its last part; NULL, or what is not modelled */
  gboolean post_norm;
} specs[] = {
    {"qwen3_spec", NULL, FALSE},
    {"deepseek_spec", NULL, FALSE},
    {"bailing_spec", NULL, FALSE},
    {"qwen2_moe_spec", NULL, FALSE},
    {"plm_spec", NULL, FALSE},
    {"phi35_moe_spec",
     "a bias of the output projection is not modelled: a vector of hidden_size a layer is "
     "missing",
     FALSE},
    {"gemma2_spec", NULL, FALSE}, /* its norms come with --post-norm */
    {"slime_plugins.models.minimax_m2", "norms of whole queries and keys are counted as norms of one head", FALSE},
    {"minimax_spec", "norms of whole queries and keys are counted as norms of one head", FALSE},
    {"grok_spec", NULL, TRUE},
    {"glm4", NULL, TRUE}};

static void read_spec(MsArgs *args, GPtrArray *remarks) {
  for (guint i = 0; i < args->list->len; i++) {
    MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, "--spec") != 0 || !arg->values[0]) continue;
    const char *dot = strrchr(arg->values[0], '.'), *module = dot ? dot + 1 : arg->values[0];
    for (guint k = 0; k < G_N_ELEMENTS(specs); k++) {
      gboolean whole = strchr(specs[k].module, '.') != NULL;
      if (strcmp(specs[k].module, whole ? arg->values[0] : module) != 0) continue;
      arg->used = TRUE;
      if (specs[k].remark) ms_note(remarks, "--spec %s: %s", arg->values[0], specs[k].remark);
      if (specs[k].post_norm) ms_args_say(args, arg, MS_POST_NORM, NULL);
    }
  }
}

/* --- MindSpeed-LLM --------------------------------------------------------------------------------------------- */
static void say_int(MsArgs *args, const MsArg *source, const char *flag, gint64 value) {
  g_autofree char *text = g_strdup_printf("%" G_GINT64_FORMAT, value);
  ms_args_say(args, source, flag, text);
}

/* So many experts for every token, of the width of a routed one. */
static gboolean shared_experts(MsArgs *args, GError **error) {
  const MsArg *arg = ms_args_take(args, "--n-shared-experts");
  gint64 count, width, dense;
  if (!arg || ms_args_has(args, "--moe-shared-expert-intermediate-size") || !ms_args_has(args, "--num-experts"))
    return TRUE;
  if (!ms_arg_int(args, arg, 0, 1024, &count, error) ||
      !ms_args_int(args, "--ffn-hidden-size", 0, MS_DIALECT_MOST, &dense, error) ||
      !ms_args_int(args, "--moe-ffn-hidden-size", dense, MS_DIALECT_MOST, &width, error))
    return FALSE;
  if (count > 0) say_int(args, arg, "--moe-shared-expert-intermediate-size", count * width);
  return TRUE;
}

/* The ranks that would share every expert hold experts of their own. */
static gboolean extend_experts(MsArgs *args, GError **error) {
  const MsArg *arg = ms_args_take(args, "--moe-tp-extend-ep");
  gint64 tp, ep;
  if (!arg) return TRUE;
  if (!ms_args_int(args, "--tensor-model-parallel-size", 1, MS_DIALECT_MOST, &tp, error) ||
      !ms_args_int(args, "--expert-model-parallel-size", 1, MS_DIALECT_MOST, &ep, error))
    return FALSE;
  say_int(args, arg, "--expert-model-parallel-size", tp * ep);
  say_int(args, arg, "--expert-tensor-parallel-size", 1);
  return TRUE;
}

/* Arguments of one object under other names, with the fork's defaults. */
typedef struct {
  const char *theirs, *ours, *absent; /* absent: the value without it, NULL when nothing is said then */
} Member;

static void say_members(MsArgs *args, const MsArg *source, const Member *members, guint n) {
  for (guint i = 0; i < n; i++) {
    const MsArg *arg = ms_args_take(args, members[i].theirs);
    const char *value = arg ? arg->values[0] : members[i].absent;
    if (value) ms_args_say(args, arg ? arg : source, members[i].ours, value);
  }
}

/* Products in pieces beside their messages; Megatron-LM's overlap is of gathers and scatters of sequence parallelism.
 */
static void overlapped_products(MsArgs *args, GPtrArray *remarks) {
  const MsArg *arg = ms_args_take_any(args, "--use-ascend-coc --use-ascend-mc2");
  if (!arg) return;
  if (ms_args_has(args, "--sequence-parallel")) ms_args_say(args, arg, "--tp-comm-overlap", NULL);
  else ms_note(remarks, "%s: all-reduces in pieces are not modelled: none is hidden", arg->flag);
}

/* Megatron-LM takes a bias on scores of sigmoid and sqrtsoftplus alone. */
static void biased_scores(MsArgs *args, GPtrArray *remarks) {
  const MsArg *bias = ms_args_take(args, "--moe-router-enable-expert-bias"),
              *scores = ms_args_take(args, "--moe-router-score-function");
  if (!bias || (scores && g_strcmp0(scores->values[0], "softmax") != 0)) return;
  ms_args_say(args, bias, "--moe-router-score-function", "sigmoid");
  ms_note(remarks, "--moe-router-enable-expert-bias: scores of softmax with a bias are counted as those of sigmoid");
}

/* Sparse attention is a kernel of its own whatever makes the rest of a layer. */
static void sparse_kernel(MsArgs *args, GPtrArray *remarks) {
  const MsArg *kernel = ms_args_take(args, "--use-sparse-flash-attn"),
              *layers = ms_args_take(args, "--transformer-impl");
  if (!kernel || !layers || g_strcmp0(layers->values[0], "local") != 0) return;
  ms_args_say(args, layers, "--transformer-impl", "transformer_engine");
  ms_note(remarks, "--transformer-impl local: layers around sparse attention are counted as Transformer Engine's");
}

static void sparse_attention(MsArgs *args) {
  static const Member members[] = {{"--index-n-heads", "--dsa-indexer-n-heads", "64"},
                                   {"--index-head-dim", "--dsa-indexer-head-dim", "128"},
                                   {"--index-topk", "--dsa-indexer-topk", "2048"},
                                   {"--index-topk-freq", "--dsa-indexer-topk-freq", NULL},
                                   {"--index-skip-topk-offset", "--dsa-indexer-skip-topk-offset", NULL},
                                   {"--indexer-loss-coeff", "--dsa-indexer-loss-coeff", "1.0"}};
  const MsArg *arg = ms_args_take(args, "--enable-dsa-indexer");
  if (!arg) return;
  ms_args_say(args, arg, "--experimental-attention-variant", "dsa");
  say_members(args, arg, members, G_N_ELEMENTS(members));
}

/* Gated delta nets with softmax attention in every N-th layer, as in Qwen3-Next: its queries have a gate, and its short
 * convolution is the one that Mamba's arguments describe. */
static void linear_attention(MsArgs *args) {
  static const Member members[] = {{"--full-attention-interval", "--linear-attention-freq", NULL},
                                   {"--mamba-d-conv", "--linear-conv-kernel-dim", NULL}};
  const MsArg *arg = ms_args_take(args, "--full-attention-interval");
  gboolean on = arg && g_strcmp0(arg->values[0], "0") != 0;
  if (!on) return;
  ms_args_say(args, arg, "--experimental-attention-variant", "gdn");
  ms_args_say(args, arg, "--attention-output-gate", NULL);
  say_members(args, arg, members, G_N_ELEMENTS(members));
  ms_args_take_any(args, "--mamba-chunk-size --mamba-expand");
  for (guint i = 0; i < args->list->len; i++) {
    MsArg *spec = args->list->pdata[i];
    gboolean named = strcmp(spec->flag, "--spec") == 0 && spec->values[0];
    if (named && g_str_has_suffix(spec->values[0], "qwen3_next_spec")) spec->used = TRUE;
  }
}

/* The kind of stretching is a word; latent attention has its own arguments for YaRN. */
static void rope_scaling(MsArgs *args) {
  static const Member yarn[] = {{"--rope-scaling-factor", "--rotary-scaling-factor", NULL},
                                {"--rope-scaling-mscale", "--mscale", NULL},
                                {"--rope-scaling-mscale-all-dim", "--mscale-all-dim", NULL}};
  const MsArg *arg = ms_args_take(args, "--rope-scaling-type");
  if (!arg) return;
  if (g_strcmp0(arg->values[0], "llama3") == 0) ms_args_say(args, arg, "--use-rope-scaling", NULL);
  if (g_strcmp0(arg->values[0], "yarn") == 0 && ms_args_has(args, "--multi-latent-attention"))
    say_members(args, arg, yarn, G_N_ELEMENTS(yarn));
}

/* Their gated GELU goes with the gate's width, whatever else is said. */
static void gated_gelu(MsArgs *args) {
  const MsArg *arg = ms_args_take_any(args, "--gelu-tanh --geglu");
  if (arg) ms_args_say(args, arg, MS_GATED_GELU, NULL);
}

static gboolean check_stage(const MsArgs *args, GError **error) {
  static const char *const others[] = {"dpo", "orm", "prm", "ppo", "simpo", "ray_ppo", "ray_grpo", NULL};
  for (guint i = 0; i < args->list->len; i++) {
    const MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, "--stage") == 0 && arg->values[0] && g_strv_contains(others, arg->values[0]))
      return ms_arg_error(args, arg, error, "is %s, which runs more than one forward and backward of one model",
                          arg->values[0]);
  }
  return TRUE;
}

/* --- slime: Megatron-LM behind a launcher of reinforcement learning -------------------------------------------- */
static void say_default(MsArgs *args, const char *flag, const char *value) {
  const MsArg nowhere = {.section = MS_SECTION_TRAINING};
  if (!ms_args_has(args, flag)) ms_args_say(args, &nowhere, flag, value);
}

static gboolean slime(MsArgs *args, GPtrArray *remarks, int *gpus, GError **error) {
  gboolean is = ms_args_has(args, "--rollout-batch-size") ||
                (ms_args_has(args, "--actor-num-gpus-per-node") && ms_args_has(args, "--hf-checkpoint"));
  gint64 nodes, per_node, rollout, samples, steps;
  if (!is) return TRUE;
  if (!ms_args_int(args, "--actor-num-nodes", 1, MS_DIALECT_MOST, &nodes, error) ||
      !ms_args_int(args, "--actor-num-gpus-per-node", 8, MS_DIALECT_MOST, &per_node, error) ||
      !ms_args_int(args, "--rollout-batch-size", 1, MS_DIALECT_MOST, &rollout, error) ||
      !ms_args_int(args, "--n-samples-per-prompt", 1, MS_DIALECT_MOST, &samples, error) ||
      !ms_args_int(args, "--num-steps-per-rollout", 1, MS_DIALECT_MOST, &steps, error))
    return FALSE;
  *gpus = (int)MIN(nodes * per_node, 1 << 20);
  const MsArg *dispatcher = ms_args_take(args, "--moe-token-dispatcher-type");
  if (dispatcher && g_strcmp0(dispatcher->values[0], "allgather") == 0)
    ms_args_say(args, dispatcher, "--moe-token-dispatcher-type", "alltoall"); /* sequences differ in length */
  if (!dispatcher) say_default(args, "--moe-token-dispatcher-type", "alltoall");
  if (!ms_args_has(args, "--fp16")) say_default(args, "--bf16", NULL);
  say_default(args, "--use-distributed-optimizer", NULL);
  say_default(args, "--micro-batch-size", "1");
  say_default(args, "--seq-length", "4096");
  if (!ms_args_has(args, "--global-batch-size"))
    say_int(args, &(MsArg){.section = MS_SECTION_TRAINING}, "--global-batch-size",
            MAX(1, rollout * samples / MAX(steps, 1)));
  ms_args_take(args, "--max-tokens-per-gpu");
  if (ms_args_take(args, "--use-dynamic-batch-size"))
    ms_note(remarks, "--use-dynamic-batch-size: samples of a rollout are packed by their length, which no "
                     "argument says; every one is taken to have --seq-length tokens");
  ms_note(remarks, "the training step of slime is read, not its rollouts");
  return TRUE;
}

/* --- programs -------------------------------------------------------------------------------------------------- */
gboolean ms_dialect_program(const MsArgs *args, GPtrArray *remarks, const char *program, int line, GError **error) {
  static const char model[] = "trains another model than a decoder, which is what moesim has";
  static const struct {
    const char *program, *why;
  } others[] = {{"pretrain_bert", model},
                {"pretrain_t5", model},
                {"pretrain_ict", model},
                {"pretrain_retro", model},
                {"pretrain_vision", model},
                {"pretrain_dino", model},
                {"pretrain_mimo", model},
                {"preprocess", model},
                {"finetune_retriever", model},
                {"create_doc_index", model},
                {"train_fsdp2",
                 "is MindSpeed-LLM's back end of PyTorch's FSDP2, whose YAML and --section.key are no "
                 "arguments of Megatron-LM; moesim reads those of pretrain_gpt.py and posttrain_gpt.py"}};
  if (!program) return TRUE;
  g_autofree char *name = g_path_get_basename(program);
  for (guint i = 0; i < G_N_ELEMENTS(others); i++)
    if (g_str_has_prefix(name, others[i].program))
      return ms_input_error(error, args->file, line, name, "%s", others[i].why);
  if (!strstr(name, "train") && !strstr(name, "tune") && !strstr(name, "sft"))
    ms_note(remarks, "%s does not train by its name: it is read as a training run of its model and layout", name);
  return TRUE;
}

/* --- the whole ------------------------------------------------------------------------------------------------- */
/* PyTorch's FSDP2 shards weights, gradients and optimizer as Megatron-FSDP does. */
static void torch_fsdp(MsArgs *args, GPtrArray *remarks) {
  const MsArg *on = ms_args_take(args, "--use-torch-fsdp2"),
              *keeps = ms_args_take(args, "--torch-fsdp2-no-reshard-after-forward");
  if (!on) return;
  ms_args_say(args, on, "--use-megatron-fsdp", NULL);
  ms_args_say(args, on, "--fsdp-double-buffer", NULL); /* the unit at work and the next one */
  ms_args_say(args, on, "--data-parallel-sharding-strategy", keeps ? "optim_grads" : "optim_grads_params");
  ms_note(remarks, "--use-torch-fsdp2 is read as Megatron-FSDP%s, which shards the same",
          keeps ? " that keeps the weights after the forward pass" : "");
}

gboolean ms_dialect_translate(MsArgs *args, GPtrArray *remarks, int *gpus, GError **error) {
  rename_flags(args);
  if (!check_stage(args, error) || !slime(args, remarks, gpus, error) || !shared_experts(args, error) ||
      !extend_experts(args, error) || !ms_dialect_deepspeed(args, remarks, error) ||
      !ms_dialect_mindspeed(args, remarks, error) || !ms_dialect_layers(args, error))
    return FALSE;
  overlapped_products(args, remarks);
  biased_scores(args, remarks);
  sparse_kernel(args, remarks);
  sparse_attention(args);
  linear_attention(args);
  ms_dialect_checkpoint(args, remarks);
  torch_fsdp(args, remarks);
  rope_scaling(args);
  gated_gelu(args);
  replace_words(args);
  read_spec(args, remarks);
  note_unmodelled(args, remarks);
  return TRUE;
}
