/* src/work/state.c - what the optimizer keeps of every element of its shard (docs/theory/memory.md 1.2). */
#include "work/work.h"

#include "describe/framework.h"

gboolean ms_gathers_low(const MsScenario *s) {
  int bits = ms_precision(&s->training)->bits;
  return bits == 8 ? s->options.fp8_param_gather : bits == 4 && s->options.fp4_param_gather;
}

int ms_low_copies(const MsScenario *s) {
  return ms_precision(&s->training)->per_tensor && s->hardware && s->hardware->fp8_any_layout ? 1 : 2;
}

int ms_weight_copies(const MsScenario *s) {
  return s->options.disable_parameter_transpose_cache ? 1 : ms_low_copies(s);
}

static double copies_B(const MsScenario *s) { return ms_weight_copies(s) * ms_precision(&s->training)->copy_B; }

double ms_low_weight_B(const MsScenario *s) { return copies_B(s) + (ms_gathers_low(s) ? 0 : 2); }

double ms_cached_weight_B(const MsScenario *s) {
  gboolean drops = s->options.fsdp >= MS_FSDP_OPTIM_GRADS_PARAMS && s->options.transformer_impl == MS_IMPL_TE &&
                   !ms_framework(s)->masters_are_weights;
  return drops && !ms_gathers_low(s) ? copies_B(s) : 0;
}

static gboolean is_precision_aware(const MsOptions *o) {
  return o->exp_avg_dtype != MS_DT_FP32 || o->exp_avg_sq_dtype != MS_DT_FP32 || o->main_params_dtype != MS_DT_FP32;
}

/* Megatron-LM's optimizer steps FP32 masters of its own, and FP32 copies of gradients, where weights are multiplied in
 * FP8 other than by delayed scaling (core/optimizer/optimizer_config.py,
 * use_precision_aware_optimizer_no_fp8_or_ds_fp8; distrib_optimizer.py clones the masters). */
gboolean ms_optimizer_is_fused(const MsScenario *s) {
  const MsOptions *o = &s->options;
  const MsPrecisionRow *p = ms_precision(&s->training);
  gboolean apart =
      p->bits == 8 && !p->delayed && o->main_params_dtype == MS_DT_FP32 && !(o->optimizer_offload_fraction > 0);
  return is_precision_aware(o) && !apart;
}

/* The half of an FP32 master that a BF16 weight lacks; of an FP16 one there is none (distrib_optimizer.py,
 * store_param_remainders; MindSpeed 028de58c, feature reuse-fp32-param). */
static gboolean keeps_remainders(const MsScenario *s) {
  gboolean either = s->options.reuse_fp32_param || ms_optimizer_is_fused(s);
  return either && !ms_gathers_low(s) && s->options.main_params_dtype == MS_DT_FP32 &&
         ms_precision(&s->training)->dtype != MS_DT_FP16;
}

double ms_optimizer_state_B(const MsScenario *s) {
  const MsOptions *o = &s->options;
  double master = ms_dtype_B(o->main_params_dtype);
  if (ms_framework(s)->masters_are_weights) master = 0; /* counted as weights */
  else if (keeps_remainders(s)) master = 2;
  return (master + ms_dtype_B(o->exp_avg_dtype) + ms_dtype_B(o->exp_avg_sq_dtype)) *
         (1 - o->optimizer_offload_fraction);
}
