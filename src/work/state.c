/* src/work/state.c - what the optimizer keeps of every element of its shard (docs/theory/memory.md 1.2). */
#include "work/work.h"

gboolean ms_gathers_low(const MsScenario *s) {
  int bits = ms_precision(&s->training)->bits;
  return bits == 8 ? s->options.fp8_param_gather : bits == 4 && s->options.fp4_param_gather;
}

gboolean ms_optimizer_is_precision_aware(const MsOptions *o) {
  return o->exp_avg_dtype != MS_DT_FP32 || o->exp_avg_sq_dtype != MS_DT_FP32 || o->main_params_dtype != MS_DT_FP32;
}

double ms_optimizer_state_B(const MsScenario *s) {
  const MsOptions *o = &s->options;
  double master = ms_dtype_B(o->main_params_dtype);
  if (ms_optimizer_is_precision_aware(o) && !ms_gathers_low(s) && o->main_params_dtype == MS_DT_FP32) master = 2;
  return (master + ms_dtype_B(o->exp_avg_dtype) + ms_dtype_B(o->exp_avg_sq_dtype)) *
         (1 - o->optimizer_offload_fraction);
}
