/* src/launch/groups_precision.c - number formats, gradient and optimizer types, the optimizer and its sharding. */
#include "launch/table.h"

#include <string.h>

#define PRECISION MS_SECTION_PRECISION
#define TRAINING  MS_SECTION_TRAINING

/* --- compute precision --- */

/* Arguments say it: a recipe, or the type of all products. */
static gboolean launched(const MsPrecisionRow *row, MsRelease release) {
  if (release == MS_RELEASE_MT) return row->launch_mt;
  if (row->launch_format) return row->launch_recipe != NULL;
  int plain = ms_precision_of(16, row->dtype);
  return plain >= 0 && row == &ms_precisions[plain];
}

gboolean ms_write_precision(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsPrecisionRow *precision = ms_precision(&s->training);
  if (!launched(precision, release))
    return ms_refuse_key(s, error, "training.precision", "%s does not have %s", ms_release_words[release],
                         precision->word);
  gboolean fp4 = precision->bits == 4;
  ms_args_add(args, PRECISION, precision->dtype == MS_DT_FP16 ? "--fp16" : "--bf16", NULL);
  if (!precision->launch_format) return TRUE;
  ms_args_add(args, PRECISION, fp4 ? "--fp4-format" : "--fp8-format", precision->launch_format, NULL);
  if (release == MS_RELEASE_MCORE)
    ms_args_add(args, PRECISION, fp4 ? "--fp4-recipe" : "--fp8-recipe", precision->launch_recipe, NULL);
  return TRUE;
}

/* The recipe of products of so many bits, the first unless `flag` says another. */
static gboolean read_recipe(MsArgs *args, int bits, const char *flag, MsPrecision *precision, GError **error) {
  const char *words[MS_N_PRECISIONS + 1] = {NULL};
  MsPrecision of_word[MS_N_PRECISIONS];
  for (int i = 0, n = 0; i < MS_N_PRECISIONS; i++)
    if (ms_precisions[i].bits == bits && ms_precisions[i].launch_recipe)
      of_word[n] = (MsPrecision)i, words[n++] = ms_precisions[i].launch_recipe;
  const MsArg *arg = ms_args_take(args, flag);
  const char *text = arg ? ms_arg_value(args, arg, error) : words[0];
  int word = text ? ms_arg_word(args, arg, text, words, error) : -1;
  *precision = of_word[MAX(word, 0)];
  return word >= 0;
}

gboolean ms_read_precision(MsArgs *args, MsScenario *s, GError **error) {
  gboolean half = ms_args_take(args, "--fp16") != NULL;
  const MsArg *bf16 = ms_args_take(args, "--bf16"), *fp4 = ms_args_take(args, "--fp4-format");
  MsArg nothing = {.flag = (char *)"--bf16"};
  if (fp4) {
    if (!read_recipe(args, 4, "--fp4-recipe", &s->training.precision, error)) return FALSE;
    const char *text = ms_arg_value(args, fp4, error), *known[] = {ms_precision(&s->training)->launch_format, NULL};
    return text && ms_arg_word(args, fp4, text, known, error) >= 0;
  }
  /* --fp8-hybrid, --fp8-e4m3: of Megatron-LM before --fp8-format (May 2023) */
  if (ms_args_take_any(args, "--fp8-format --fp8-hybrid --fp8-e4m3"))
    return read_recipe(args, 8, "--fp8-recipe", &s->training.precision, error);
  int plain = half || bf16 ? ms_precision_of(16, half ? MS_DT_FP16 : MS_DT_BF16) : -1;
  s->training.precision = (MsPrecision)MAX(plain, 0);
  return plain >= 0 ||
         ms_arg_error(args, &nothing, error, "is missing, and --fp16 too: moesim has no training in FP32");
}

/* --- layers kept in BF16 --- */
gboolean ms_write_bf16_ends(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  int start = s->options.num_layers_at_start_in_bf16, end = s->options.num_layers_at_end_in_bf16;
  if (start == 0 && end == 0) return TRUE;
  if (release != MS_RELEASE_MCORE)
    return ms_refuse_key(s, error, "options.num_layers_at_start_in_bf16", "%s has no --first-last-layers-bf16",
                         ms_release_words[release]);
  ms_args_add(args, PRECISION, "--first-last-layers-bf16", NULL);
  ms_args_addf(args, PRECISION, "--num-layers-at-start-in-bf16", "%d", start);
  ms_args_addf(args, PRECISION, "--num-layers-at-end-in-bf16", "%d", end);
  return TRUE;
}

gboolean ms_read_bf16_ends(MsArgs *args, MsScenario *s, GError **error) {
  gint64 ends[2] = {0, 0};
  static const char *const flags[] = {"--num-layers-at-start-in-bf16", "--num-layers-at-end-in-bf16"};
  gboolean on = ms_args_take(args, "--first-last-layers-bf16") != NULL;
  for (int i = 0; on && i < 2; i++) {
    const MsArg *arg = ms_args_take(args, flags[i]);
    ends[i] = 1;
    if (arg && !ms_arg_int(args, arg, 0, 10000, &ends[i], error)) return FALSE;
  }
  s->options.num_layers_at_start_in_bf16 = (int)ends[0];
  s->options.num_layers_at_end_in_bf16 = (int)ends[1];
  return TRUE;
}

/* --- gradients and optimizer states ---
 *
 * Megatron's gradient buffer has one type, which is also that of the reduction: FP32
 * (--accumulate-allreduce-grads-in-fp32, which BF16 training turns on by itself) or that of the parameters
 * (--grad-reduce-in-bf16). Only Megatron-FSDP names the two apart. Other types of master weights and moments need the
 * precision-aware optimizer, and so does an optimizer on the host. */
static gboolean is_precision_aware(const MsOptions *o) {
  gboolean params = o->fsdp == MS_FSDP_NONE && o->main_params_dtype != MS_DT_FP32; /* of Megatron-FSDP: its own flag */
  return o->exp_avg_dtype != MS_DT_FP32 || o->exp_avg_sq_dtype != MS_DT_FP32 || params ||
         o->optimizer_offload_fraction > 0;
}

static gboolean write_buffer(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsOptions *o = &s->options;
  MsDtype own = ms_precision(&s->training)->dtype;
  gboolean fp32 = o->main_grads_dtype == MS_DT_FP32;
  if (o->main_grads_dtype != o->grad_reduce_dtype || (!fp32 && o->main_grads_dtype != own))
    return ms_refuse_key(s, error, "options.grad_reduce_dtype",
                         "main gradients in %s reduced in %s: one buffer of Megatron holds both, in fp32 or %s",
                         ms_dtype_words[o->main_grads_dtype], ms_dtype_words[o->grad_reduce_dtype],
                         ms_dtype_words[own]);
  if (release == MS_RELEASE_MT && !fp32 && own == MS_DT_BF16)
    return ms_refuse_key(s, error, "options.main_grads_dtype", "%s reduces gradients of BF16 training in fp32 only",
                         ms_release_words[release]);
  if (fp32) ms_args_add(args, PRECISION, "--accumulate-allreduce-grads-in-fp32", NULL);
  else if (own == MS_DT_BF16) ms_args_add(args, PRECISION, "--grad-reduce-in-bf16", NULL);
  return TRUE;
}

static void write_fsdp_dtypes(const MsOptions *o, MsArgs *args) {
  ms_args_add(args, PRECISION, "--megatron-fsdp-main-grads-dtype", ms_dtype_words[o->main_grads_dtype], NULL);
  ms_args_add(args, PRECISION, "--megatron-fsdp-grad-comm-dtype", ms_dtype_words[o->grad_reduce_dtype], NULL);
  if (o->main_params_dtype != MS_DT_FP32)
    ms_args_add(args, PRECISION, "--megatron-fsdp-main-params-dtype", ms_dtype_words[o->main_params_dtype], NULL);
}

static gboolean write_states(const MsScenario *s, MsArgs *args, GError **error) {
  const MsOptions *o = &s->options;
  gboolean params = o->fsdp == MS_FSDP_NONE;
  if (params && o->main_params_dtype == MS_DT_BF16)
    return ms_refuse_key(s, error, "options.main_params_dtype",
                         "bf16 is not a type of --main-params-dtype, which has fp32 and fp16");
  if (o->main_grads_dtype == MS_DT_FP16)
    return ms_refuse_key(s, error, "options.main_grads_dtype",
                         "the precision-aware optimizer has no fp16 gradients (--main-grads-dtype fp32 or bf16)");
  ms_args_add(args, PRECISION, "--use-precision-aware-optimizer", NULL);
  ms_args_add(args, PRECISION, "--main-grads-dtype", ms_dtype_words[o->main_grads_dtype], NULL);
  if (params) ms_args_add(args, PRECISION, "--main-params-dtype", ms_dtype_words[o->main_params_dtype], NULL);
  ms_args_add(args, PRECISION, "--exp-avg-dtype", ms_dtype_words[o->exp_avg_dtype], NULL);
  ms_args_add(args, PRECISION, "--exp-avg-sq-dtype", ms_dtype_words[o->exp_avg_sq_dtype], NULL);
  return TRUE;
}

gboolean ms_write_gradients(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsOptions *o = &s->options;
  if (o->fsdp != MS_FSDP_NONE) write_fsdp_dtypes(o, args);
  else if (!write_buffer(s, release, args, error)) return FALSE;
  if (!is_precision_aware(o)) return TRUE;
  if (release != MS_RELEASE_MCORE)
    return ms_refuse_key(s, error, "options.exp_avg_dtype", "%s has no --use-precision-aware-optimizer",
                         ms_release_words[release]);
  return write_states(s, args, error);
}

static gboolean read_dtype(MsArgs *args, const char *flag, MsDtype absent, MsDtype *dtype, GError **error) {
  const MsArg *arg = ms_args_take(args, flag);
  *dtype = absent;
  if (!arg) return TRUE;
  const char *text = ms_arg_value(args, arg, error);
  if (text && strcmp(text, "auto") == 0) return TRUE;
  int word = text ? ms_arg_word(args, arg, text, ms_dtype_words, error) : -1;
  *dtype = (MsDtype)MAX(word, 0);
  return word >= 0;
}

/* Megatron-FSDP's first form (core 0.11 to 0.13): gradients as without it, and nothing sharded unless asked. */
static gboolean is_custom_fsdp(const MsArgs *args) {
  return ms_args_has(args, "--use-custom-fsdp") && !ms_args_has(args, "--use-megatron-fsdp");
}

gboolean ms_read_gradients(MsArgs *args, MsScenario *s, GError **error) {
  MsOptions *o = &s->options;
  MsDtype own = ms_precision(&s->training)->dtype, main_grads = MS_DT_FP32;
  o->reuse_fp32_param = ms_args_take(args, "--reuse-fp32-param") != NULL;
  gboolean aware = ms_args_take(args, "--use-precision-aware-optimizer") != NULL;
  o->main_params_dtype = o->exp_avg_dtype = o->exp_avg_sq_dtype = MS_DT_FP32;
  if (aware && (!read_dtype(args, "--main-grads-dtype", MS_DT_FP32, &main_grads, error) ||
                !read_dtype(args, "--main-params-dtype", MS_DT_FP32, &o->main_params_dtype, error) ||
                !read_dtype(args, "--exp-avg-dtype", MS_DT_FP32, &o->exp_avg_dtype, error) ||
                !read_dtype(args, "--exp-avg-sq-dtype", MS_DT_FP32, &o->exp_avg_sq_dtype, error)))
    return FALSE;
  gboolean accumulate = ms_args_take(args, "--accumulate-allreduce-grads-in-fp32") != NULL,
           low = ms_args_take(args, "--grad-reduce-in-bf16") != NULL;
  gboolean fp32 = own == MS_DT_FP16 ? accumulate : !low && (accumulate || main_grads == MS_DT_FP32);
  o->main_grads_dtype = o->grad_reduce_dtype = fp32 ? MS_DT_FP32 : own;
  if (o->fsdp == MS_FSDP_NONE || is_custom_fsdp(args)) return TRUE;
  if (ms_args_has(args, "--megatron-fsdp-main-params-dtype") &&
      !read_dtype(args, "--megatron-fsdp-main-params-dtype", own, &o->main_params_dtype, error))
    return FALSE;
  return read_dtype(args, "--megatron-fsdp-main-grads-dtype", own, &o->main_grads_dtype, error) &&
         read_dtype(args, "--megatron-fsdp-grad-comm-dtype", o->main_grads_dtype, &o->grad_reduce_dtype, error);
}

/* --- the optimizer and its sharding --- */
gboolean ms_write_optimizer(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsOptimizerRow *row = &ms_optimizers[s->training.optimizer];
  if (!(release == MS_RELEASE_MT ? row->launched_mt : row->launched))
    return ms_refuse_key(s, error, "training.optimizer", "%s has no optimizer %s", ms_release_words[release],
                         row->word);
  ms_args_add(args, TRAINING, "--optimizer", row->word, NULL);
  if (s->options.distributed_optimizer) ms_args_add(args, TRAINING, "--use-distributed-optimizer", NULL);
  return TRUE;
}

gboolean ms_read_optimizer(MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *arg = ms_args_take(args, "--optimizer");
  s->training.optimizer = MS_OPT_ADAM;
  s->options.distributed_optimizer = ms_args_take(args, "--use-distributed-optimizer") != NULL;
  if (!arg) return TRUE;
  const char *text = ms_arg_value(args, arg, error);
  if (!text) return FALSE;
  gboolean sharded_muon =
      strcmp(text, "dist_muon") == 0; /* the older way to say muon with --use-distributed-optimizer */
  int word = ms_arg_word(args, arg, sharded_muon ? "muon" : text, ms_optimizer_words, error);
  s->training.optimizer = (MsOptimizer)MAX(word, 0);
  s->options.distributed_optimizer |= sharded_muon;
  return word >= 0;
}

static const char *const sharding_words[] = {"no_shard", "optim", "optim_grads", "optim_grads_params",
                                             NULL}; /* as MsFsdp */

gboolean ms_write_fsdp(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsOptions *o = &s->options;
  if (o->fsdp == MS_FSDP_NONE) return TRUE;
  if (release != MS_RELEASE_MCORE)
    return ms_refuse_key(s, error, "options.fsdp", "%s has no --use-megatron-fsdp", ms_release_words[release]);
  ms_args_add(args, TRAINING, "--use-megatron-fsdp", NULL);
  ms_args_add(args, TRAINING, "--data-parallel-sharding-strategy", sharding_words[o->fsdp], NULL);
  ms_args_add(args, TRAINING, "--ckpt-format", "fsdp_dtensor", NULL); /* the release asserts it */
  if (o->fsdp_double_buffer && !o->ep_overlap) /* the release asserts that they are not together */
    ms_args_add(args, TRAINING, "--fsdp-double-buffer", NULL);
  if (o->outer_dp_sharding_strategy != MS_OUTER_NO_SHARD)
    ms_args_add(args, TRAINING, "--outer-dp-sharding-strategy", ms_outer_dp_words[o->outer_dp_sharding_strategy], NULL);
  return TRUE;
}

gboolean ms_read_fsdp(MsArgs *args, MsScenario *s, GError **error) {
  MsOptions *o = &s->options;
  o->fsdp = MS_FSDP_NONE, o->fsdp_double_buffer = TRUE;
  o->outer_dp_sharding_strategy = MS_OUTER_NO_SHARD;
  if (!ms_args_take_any(args, "--use-megatron-fsdp --use-custom-fsdp")) return TRUE;
  ms_args_take(args, "--ckpt-format");
  o->fsdp_double_buffer = ms_args_has(args, "--use-nccl-ub") ||
                          ms_args_take_any(args, "--fsdp-double-buffer --megatron-fsdp-max-pool-double-buffer") != NULL;
  const MsArg *arg = ms_args_take(args, "--data-parallel-sharding-strategy"),
              *outer = ms_args_take(args, "--outer-dp-sharding-strategy");
  MsFsdp usual = is_custom_fsdp(args) ? MS_FSDP_NONE : MS_FSDP_OPTIM_GRADS_PARAMS;
  const char *text = arg ? ms_arg_value(args, arg, error) : sharding_words[usual];
  int word = text ? ms_arg_word(args, arg, text, sharding_words, error) : -1;
  if (word < 0) return FALSE;
  o->fsdp = (MsFsdp)word;
  text = outer ? ms_arg_value(args, outer, error) : ms_outer_dp_words[0];
  word = text ? ms_arg_word(args, outer, text, ms_outer_dp_words, error) : -1;
  o->outer_dp_sharding_strategy = (MsOuterDp)MAX(word, 0);
  return word >= 0;
}
