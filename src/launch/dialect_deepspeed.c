/* src/launch/dialect_deepspeed.c - words of Megatron-DeepSpeed and of Megatron-LM before 2022 as words of Megatron-LM.
 *
 * Facts: megatron/arguments.py, megatron/model/language_model.py and transformer.py of microsoft/Megatron-DeepSpeed and
 * bigscience-workshop/Megatron-DeepSpeed. A layer has experts when --expert-interval divides its number, counted from
 * 1; experts are not split over TP. BF16 without ZeRO keeps its FP32 states split over the data-parallel ranks, as
 * ZeRO-1. */
#include "launch/dialect.h"

#include <string.h>

enum { MOST_LAYERS = 10000 };

static gboolean is_deepspeed(const MsArgs *args) {
  return ms_args_has(args, "--deepspeed") || ms_args_has(args, "--deepspeed_config") ||
         ms_args_has(args, "--deepspeed-config") || ms_args_has(args, "--zero-stage");
}

/* --- recomputed layers: of both --- */
static void checkpointed(MsArgs *args) {
  const MsArg *all = ms_args_take(args, "--checkpoint-activations"),
              *method = ms_args_take(args, "--activations-checkpoint-method"),
              *layers = ms_args_take_any(args, "--activations-checkpoint-num-layers --checkpoint-num-layers"),
              *source = all ? all : method;
  ms_args_take(args, "--deepspeed-activation-checkpointing"); /* who recomputes, not what */
  if (!source || ms_args_has(args, "--recompute-granularity")) return;
  ms_args_say(args, source, "--recompute-granularity", "full");
  ms_args_say(args, source, "--recompute-method", method && method->values[0] ? method->values[0] : "uniform");
  ms_args_say(args, source, "--recompute-num-layers", layers && layers->values[0] ? layers->values[0] : "1");
}

/* --- ZeRO --- */
static gboolean zero(MsArgs *args, GPtrArray *remarks, GError **error) {
  const MsArg *arg = ms_args_take(args, "--zero-stage"), nowhere = {.section = MS_SECTION_TRAINING};
  gint64 stage = 1;
  ms_args_take_any(args, "--deepspeed --deepspeed_config --deepspeed-config");
  if (arg && !ms_arg_int(args, arg, 0, 3, &stage, error)) return FALSE;
  if (!arg)
    g_ptr_array_add(remarks, g_strdup("--zero-stage: is not said, and DeepSpeed's configuration is not read: ZeRO-1 is "
                                      "assumed"));
  const MsArg *source = arg ? arg : &nowhere;
  gboolean split = stage == 1 || (stage == 0 && ms_args_has(args, "--bf16"));
  if (split && !ms_args_has(args, "--use-distributed-optimizer"))
    ms_args_say(args, source, "--use-distributed-optimizer", NULL);
  if (stage < 2) return TRUE;
  ms_args_say(args, source, "--use-megatron-fsdp", NULL);
  ms_args_say(args, source, "--fsdp-double-buffer", NULL);
  ms_args_say(args, source, "--data-parallel-sharding-strategy", stage == 2 ? "optim_grads" : "optim_grads_params");
  return TRUE;
}

/* --- experts --- */
/* One number of experts, or the same for every layer that has some. */
static gboolean same_experts(const MsArgs *args, const MsArg *arg, GError **error) {
  for (int i = 1; arg->values[0] && arg->values[i]; i++)
    if (strcmp(arg->values[i], arg->values[0]) != 0)
      return ms_arg_error(args, arg, error, "is %s in one layer and %s in another, which moesim has no model of",
                          arg->values[0], arg->values[i]);
  return TRUE;
}

static gboolean say_interval(MsArgs *args, const MsArg *source, GError **error) {
  gint64 every, layers;
  if (!ms_args_int(args, "--expert-interval", 2, MOST_LAYERS, &every, error) ||
      !ms_args_int(args, "--num-layers", 0, MOST_LAYERS, &layers, error))
    return FALSE;
  if (every <= 1 || ms_args_has(args, "--moe-layer-freq")) return TRUE;
  g_autoptr(GString) list = g_string_new(NULL);
  for (gint64 i = 1; i <= layers; i++) g_string_append_printf(list, "%c%d", i > 1 ? ',' : '[', i % every == 0);
  if (layers > 0) ms_args_say(args, source, "--moe-layer-freq", g_string_append_c(list, ']')->str);
  return TRUE;
}

static gboolean experts(MsArgs *args, GError **error) {
  const MsArg *arg = ms_args_take(args, "--num-experts"), *ep = ms_args_take(args, "--moe-expert-parallel-size"),
              *topk = ms_args_take(args, "--topk"), *mlp = ms_args_take(args, "--mlp-type"),
              *capacity = ms_args_take(args, "--moe-train-capacity-factor"),
              *tensor = ms_args_take(args, "--enable-expert-tensor-parallelism");
  gboolean keeps_all = ms_args_take(args, "--disable-moe-token-dropping") != NULL;
  ms_args_take_any(args, "--create-moe-param-group --moe-loss-coeff --moe-eval-capacity-factor --moe-min-capacity");
  if (!arg) return TRUE;
  if (!same_experts(args, arg, error)) return FALSE;
  gboolean dense = g_strcmp0(arg->values[0], "1") == 0;
  if (mlp && !dense && g_strcmp0(mlp->values[0], "standard") != 0)
    return ms_arg_error(args, mlp, error, "is %s, moesim has only experts without a dense layer beside them",
                        mlp->values[0] ? mlp->values[0] : "empty");
  if (dense) {
    for (guint i = args->list->len; i-- > 0;)
      if (strcmp(((MsArg *)args->list->pdata[i])->flag, "--num-experts") == 0) g_ptr_array_remove_index(args->list, i);
    return TRUE;
  }
  ms_args_say(args, arg, "--num-experts", arg->values[0]);
  ms_args_say(args, arg, "--moe-router-topk", topk && topk->values[0] ? topk->values[0] : "1");
  ms_args_say(args, arg, "--expert-model-parallel-size", ep && ep->values[0] ? ep->values[0] : "1");
  if (!tensor) ms_args_say(args, arg, "--expert-tensor-parallel-size", "1");
  if (!keeps_all)
    ms_args_say(args, arg, "--moe-expert-capacity-factor",
                capacity && capacity->values[0] ? capacity->values[0] : "1.0");
  ms_args_say(args, arg, "--moe-token-dispatcher-type", "alltoall");
  return say_interval(args, arg, error);
}

/* --- layout and model --- */
static void say_value(MsArgs *args, const char *theirs, const char *ours) {
  const MsArg *arg = ms_args_take(args, theirs);
  if (arg && arg->values[0]) ms_args_say(args, arg, ours, arg->values[0]);
}

static void layout(MsArgs *args) {
  const MsArg *flat = ms_args_take(args, "--no-pipeline-parallel"),
              *ulysses = ms_args_take(args, "--ds-sequence-parallel-size"),
              *parts = ms_args_take(args, "--pp-partition-method"),
              *bubble = ms_args_take(args, "--enable-zbh1-pipeline");
  ms_args_take(args, "--enable-zbh1-exact-semantics");
  if (flat) ms_args_say(args, flat, "--pipeline-model-parallel-size", "1");
  if (ulysses && ulysses->values[0] && strcmp(ulysses->values[0], "1") != 0) {
    ms_args_say(args, ulysses, "--context-parallel-size", ulysses->values[0]);
    ms_args_say(args, ulysses, "--cp-comm-type", "a2a");
  }
  if (bubble && !flat) ms_args_say(args, bubble, MS_PIPELINE_SCHEDULE, "zb-h1");
  if (parts && parts->values[0] && strstr(parts->values[0], "embedding") && !flat) { /* both ends count as layers */
    ms_args_say(args, parts, "--account-for-embedding-in-pipeline-split", NULL);
    ms_args_say(args, parts, "--account-for-loss-in-pipeline-split", NULL);
  }
}

static void model(MsArgs *args) {
  const MsArg *groups = ms_args_take(args, "--num-key-value-heads"), *gate = ms_args_take(args, "--glu-activation");
  if (groups && groups->values[0]) {
    ms_args_say(args, groups, "--group-query-attention", NULL);
    ms_args_say(args, groups, "--num-query-groups", groups->values[0]);
  }
  if (gate && g_strcmp0(gate->values[0], "swiglu") == 0) ms_args_say(args, gate, "--swiglu", NULL);
  else if (gate && g_strcmp0(gate->values[0], "geglu") == 0) ms_args_say(args, gate, MS_GATED_GELU, NULL);
  say_value(args, "--pad-vocab-size-to", "--padded-vocab-size");
  say_value(args, "--rotary-position-embeddings-theta", "--rotary-base");
}

gboolean ms_dialect_deepspeed(MsArgs *args, GPtrArray *remarks, GError **error) {
  checkpointed(args);
  if (!is_deepspeed(args)) return TRUE;
  const MsArg *cpu = ms_args_take(args, "--cpu-optimizer");
  if (cpu) ms_args_say(args, cpu, "--optimizer-cpu-offload", NULL);
  ms_args_take(args, "--sync-tp-duplicated-parameters");
  layout(args);
  model(args);
  return zero(args, remarks, error) && experts(args, error);
}
