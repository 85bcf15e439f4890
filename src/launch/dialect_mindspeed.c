/* src/launch/dialect_mindspeed.c - MindSpeed's words for what is kept, made again, moved to the host and rounded. */
#include <string.h>

#include "launch/dialect.h"

static void remark(GPtrArray *remarks, const char *text) { g_ptr_array_add(remarks, g_strdup(text)); }

/* Ascend's O2: moments in BF16 (mindspeed_llm/tasks/models/common/adamw.py), and gradients, as the page on O2 of its
 * features has it. */
static void o2(MsArgs *args, GPtrArray *remarks) {
  const MsArg *moments = ms_args_take(args, "--o2-optimizer"), *gradients = ms_args_take(args, "--o2-gradient");
  if (moments) {
    ms_args_say(args, moments, "--use-precision-aware-optimizer", NULL);
    ms_args_say(args, moments, "--exp-avg-dtype", "bf16");
    ms_args_say(args, moments, "--exp-avg-sq-dtype", "bf16");
  }
  if (!gradients) return;
  ms_args_say(args, gradients, "--grad-reduce-in-bf16", NULL);
  remark(remarks, "--o2-gradient: gradients are kept and reduced in BF16, as MindSpeed-LLM's page on O2 says; its code "
                  "of 2026 registers the argument and reads it nowhere");
}

/* A ring computes every block whole where no causal mask says which are empty. */
static void general_mask(MsArgs *args, GPtrArray *remarks) {
  const MsArg *mask = ms_args_take(args, "--attention-mask-type");
  const MsArg *cp = ms_args_take(args, "--context-parallel-size"), *way = ms_args_take(args, "--context-parallel-algo");
  const char *algorithm = way ? way->values[0] : "megatron_cp_algo";
  gboolean ring = g_strcmp0(algorithm, "megatron_cp_algo") == 0 || g_strcmp0(algorithm, "hybrid_cp_algo") == 0;
  if (!mask || g_strcmp0(mask->values[0], "general") != 0 || !ring || !cp || g_strcmp0(cp->values[0], "1") == 0) return;
  remark(remarks, "--attention-mask-type general: a ring computes the masked half of attention too, which is not "
                  "modelled: attention is predicted about half as long");
}

/* --- recomputing and swapping ---------------------------------------------------------------------------------- */
/* Whether --recompute-num-layers says all layers of a stage (mindspeed/core/memory/swap_attention/adaptor.py). */
static gboolean are_all(MsArgs *args, gint64 count, gboolean *all, GError **error) {
  gint64 layers, pp, virtual_layers, chunks;
  if (!ms_args_int(args, "--num-layers", 0, MS_DIALECT_MOST, &layers, error) ||
      !ms_args_int(args, "--pipeline-model-parallel-size", 1, MS_DIALECT_MOST, &pp, error) ||
      !ms_args_int(args, "--num-layers-per-virtual-pipeline-stage", 0, MS_DIALECT_MOST, &virtual_layers, error) ||
      !ms_args_int(args, "--num-virtual-stages-per-pipeline-rank", 1, MS_DIALECT_MOST, &chunks, error))
    return FALSE;
  gint64 of_stage = layers / MAX(pp, 1), of_chunk = virtual_layers > 0 ? virtual_layers : of_stage / MAX(chunks, 1);
  *all = count >= (ms_args_take(args, "--enable-recompute-layers-per-pp-rank") ? of_stage : of_chunk);
  return TRUE;
}

static void offload_attention(MsArgs *args, const MsArg *swap) {
  ms_args_take(args, "--swap-attention");
  ms_args_say(args, swap, "--fine-grained-activation-offloading", NULL);
  ms_args_say(args, swap, "--offload-modules", "qkv_linear,core_attn,attn_proj");
}

/* Attention of all layers waits on the host, and of as many of a stage as --recompute-num-layers says the MLP is made
 * again; --recompute-method block swaps those only, uniform means all (the page on swap-attention of MindSpeed). */
static gboolean swapped_attention(MsArgs *args, GPtrArray *remarks, GError **error) {
  const MsArg *swap = ms_args_find(args, "--swap-attention"), *method = ms_args_find(args, "--recompute-method");
  gboolean all = TRUE, uniform = method && g_strcmp0(method->values[0], "uniform") == 0;
  gint64 count;
  if (!swap || ms_args_has(args, "--recompute-granularity") || ms_args_has(args, "--recompute-modules") ||
      ms_args_has(args, "--lora-r"))
    return TRUE;
  if (!ms_args_int(args, "--recompute-num-layers", 0, MS_DIALECT_MOST, &count, error) ||
      ((count > 0 || method) && !uniform && !are_all(args, count, &all, error)))
    return FALSE;
  ms_args_take(args, "--recompute-method");
  if (all || !method) offload_attention(args, swap);
  if (all && (count > 0 || uniform)) {
    ms_args_say(args, swap, "--recompute-granularity", "selective");
    ms_args_say(args, swap, "--recompute-modules", ms_args_has(args, "--num-experts") ? "moe,mlp" : "mlp");
    ms_args_take(args, "--recompute-activation-function"); /* a part of them */
  } else if (count > 0) {
    remark(remarks,
           "--recompute-num-layers: the MLPs of some layers only are made again beside --swap-attention, which "
           "is not modelled: memory is predicted too high, and the step too short");
  }
  return TRUE;
}

/* Layers that checkpoint nothing else make activations and norms again: in words of Megatron-LM's modules
 * (features_manager/recompute). Beside full recompute and adapters, and in some layers only, they stay what is not
 * modelled. */
static void recomputed_parts(MsArgs *args) {
  gboolean swaps = ms_args_has(args, "--offload-modules"),
           layers = ms_args_has(args, "--recompute-method") || ms_args_has(args, "--recompute-num-layers");
  gboolean other = ms_args_has(args, "--recompute-granularity") || ms_args_has(args, "--recompute-modules") ||
                   ms_args_has(args, "--lora-r") || (layers && !swaps);
  gboolean some = ms_args_has(args, "--recompute-activation-function-num-layers"),
           few = ms_args_has(args, "--recompute-norm-num-layers"), experts = ms_args_has(args, "--num-experts");
  const MsArg *activation = other || some ? NULL : ms_args_take(args, "--recompute-activation-function"),
              *norm = other || few ? NULL : ms_args_take(args, "--recompute-norm");
  if (!activation && !norm) return;
  g_autofree char *modules = g_strconcat(activation ? experts ? "mlp_act,moe_act" : "mlp_act" : "",
                                         activation && norm ? "," : "", norm ? "layernorm" : "", NULL);
  const MsArg *source = activation ? activation : norm;
  ms_args_say(args, source, "--recompute-granularity", "selective");
  ms_args_say(args, source, "--recompute-modules", modules);
}

/* --- documents of one length ----------------------------------------------------------------------------------- */
/* --fix-sub-seq-length counts beside --reset-attention-mask alone, whose documents it says. */
static gboolean fixed_documents(MsArgs *args, GError **error) {
  gint64 tokens, sequence;
  const MsArg *fixed = ms_args_find(args, "--fix-sub-seq-length");
  if (!fixed || !ms_args_has(args, "--reset-attention-mask")) return TRUE;
  if (!ms_arg_int(args, fixed, -1, 1 << 27, &tokens, error) ||
      !ms_args_int(args, "--seq-length", 0, MS_DIALECT_MOST, &sequence, error))
    return FALSE;
  ms_args_take(args, "--fix-sub-seq-length");
  if (tokens < 1 || tokens >= sequence) return TRUE;
  ms_args_take(args, "--reset-attention-mask");
  ms_args_say(args, fixed, MS_FIXED_LENGTH, fixed->values[0]);
  return TRUE;
}

gboolean ms_dialect_mindspeed(MsArgs *args, GPtrArray *remarks, GError **error) {
  if (!swapped_attention(args, remarks, error) || !fixed_documents(args, error)) return FALSE;
  recomputed_parts(args);
  o2(args, remarks);
  general_mask(args, remarks);
  return TRUE;
}
