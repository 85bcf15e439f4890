/* src/layout/rules_options.c - rules of precision, optimizer, memory savers and CUDA graphs. */
#include "describe/framework.h"
#include "describe/module_sets.h"
#include "layout/rules.h"

/* --- precision, optimizer, memory savers, graphs --------------------------------------------------------------- */

static int bits(const MsScenario *s) { return ms_precision(&s->training)->bits; }

RULE(precision_on_hardware) {
  MsPrecision precision = s->training.precision;
  for (int i = 0; i < ms_scenario_machines(s); i++) {
    const MsHardware *h = ms_scenario_machine(s, i);
    if (h->unsupported_precisions >> precision & 1)
      return REFUSE("%s cannot do %s", h->name ? h->name : "the device", ms_precision_words[precision]);
  }
  return TRUE;
}
RULE(fp8_params_need_fp8) {
  return !s->options.fp8_param_gather || bits(s) == 8 ||
         REFUSE("fp8_param_gather needs an FP8 recipe, not %s", ms_precision_words[s->training.precision]);
}
RULE(transpose_cache) {
  if (!s->options.disable_parameter_transpose_cache) return TRUE;
  if (!ms_precision(&s->training)->per_tensor)
    return REFUSE("disable_parameter_transpose_cache needs FP8 with a scale for each tensor, not %s",
                  ms_precision_words[s->training.precision]);
  return s->model->num_experts == 0 || REFUSE("disable_parameter_transpose_cache is not modelled for experts");
}
RULE(reused_masters) {
  const MsOptions *o = &s->options;
  return !o->reuse_fp32_param ||
         (ms_precision(&s->training)->dtype == MS_DT_BF16 && o->main_params_dtype == MS_DT_FP32 &&
          o->fsdp == MS_FSDP_NONE) ||
         REFUSE("reuse_fp32_param needs BF16 weights, FP32 masters and no FSDP");
}
RULE(fp4_params_need_fp4) {
  return !s->options.fp4_param_gather || bits(s) == 4 ||
         REFUSE("fp4_param_gather needs nvfp4, not %s", ms_precision_words[s->training.precision]);
}
static gboolean not_with_delayed(const MsRecomputeModule *module, const MsScenario *s) {
  (void)s;
  return !module->delayed_fp8;
}
RULE(delayed_recipe) {
  if (!ms_precision(&s->training)->delayed) return TRUE;
  if (s->options.num_layers_at_start_in_bf16 > 0 || s->options.num_layers_at_end_in_bf16 > 0)
    return REFUSE("the delayed FP8 recipe excludes first and last layers in BF16");
  const MsRecomputeModule *module = ms_recomputed(s, not_with_delayed);
  return !module || REFUSE("the delayed FP8 recipe excludes recompute of %s", module->word);
}
RULE(bf16_ends_fit) {
  gint64 ends = (gint64)s->options.num_layers_at_start_in_bf16 + s->options.num_layers_at_end_in_bf16;
  return ends <= s->model->num_layers ||
         REFUSE("%d layers at the ends in BF16, the model has %d", (int)ends, s->model->num_layers);
}
RULE(param_gather_overlap) {
  return !s->options.overlap_param_gather || s->options.fsdp != MS_FSDP_NONE ||
         (s->options.overlap_grad_reduce && s->options.distributed_optimizer) ||
         REFUSE("overlap_param_gather needs overlap_grad_reduce and distributed_optimizer");
}
RULE(optimizer_offload_fp8) {
  return !(s->options.optimizer_offload_fraction > 0) || !s->options.fp8_param_gather ||
         ms_precision(&s->training)->delayed || REFUSE("optimizer offload with fp8_param_gather needs fp8-delayed");
}
RULE(cpu_offloading) {
  if (s->options.cpu_offloading_num_layers <= 0) return TRUE;
  return s->layout.pp == 1 || REFUSE("cpu_offloading_num_layers needs PP 1, not %d", s->layout.pp);
}
RULE(cpu_offloading_recompute) {
  return s->options.cpu_offloading_num_layers <= 0 || s->options.recompute.granularity == MS_RECOMPUTE_NONE ||
         REFUSE("cpu_offloading_num_layers excludes recompute");
}
RULE(offload_attn_proj) {
  int other, row = ms_offload_lacking(s->options.offload_modules, &other);
  return row < 0 ||
         REFUSE("offload of %s needs offload of %s", ms_offload_modules[row].word, ms_offload_modules[other].word);
}
/* The rate of copies to the host is a figure that profiles may lack: only what copies needs it. */
static gboolean link_known(const MsScenario *s, gboolean copies, char *why, size_t size) {
  for (int i = 0; copies && i < ms_scenario_machines(s); i++) {
    const MsHardware *h = ms_scenario_machine(s, i);
    if (!(h->host_link_Bps > 0))
      return REFUSE("host_link_Bps of %s is unknown; give it in the profile, or {\"base\": \"%s\", \"host_link_Bps\": "
                    "NUMBER} as hardware",
                    h->name, h->name);
  }
  return TRUE;
}
RULE(offload_link_known) {
  return link_known(s, s->options.offload_modules || s->options.cpu_offloading_num_layers > 0, why, size);
}
RULE(optimizer_link_known) {
  const MsOptions *o = &s->options;
  return link_known(s, o->optimizer_offload_fraction > 0 || o->offload_optimizer_states || o->swap_optimizer_times > 0,
                    why, size);
}
/* Megatron-LM's offload needs the precision-aware optimizer, and that one adam (core/optimizer/optimizer_config.py). */
RULE(optimizer_on_host) {
  return !(s->options.optimizer_offload_fraction > 0) || s->training.optimizer == MS_OPT_ADAM ||
         REFUSE("optimizer_offload_fraction needs adam, not %s", ms_optimizer_words[s->training.optimizer]);
}
RULE(swapped_states) {
  const MsOptions *o = &s->options;
  return o->swap_optimizer_times == 0 ||
         (s->training.optimizer == MS_OPT_ADAM && o->distributed_optimizer && !o->offload_optimizer_states &&
          !o->reuse_fp32_param && o->optimizer_offload_fraction == 0 && o->fsdp == MS_FSDP_NONE) ||
         REFUSE("swap_optimizer_times needs adam, distributed_optimizer, no FSDP, and excludes reuse_fp32_param, "
                "offload_optimizer_states and optimizer_offload_fraction");
}
RULE(grouped_library) {
  const char *word = ms_grouped_library_words[s->options.grouped_gemm_library];
  if (s->options.grouped_gemm_library == MS_GROUPED_TE || s->model->num_experts == 0) return TRUE;
  if (!s->options.moe_grouped_gemm) return REFUSE("%s needs moe_grouped_gemm", word);
  return ms_hardware_has_library(s->hardware, word) ||
         REFUSE("%s has no curves of %s", s->hardware->name ? s->hardware->name : "the machine", word);
}
RULE(fp8_dispatch_needs_fp8) {
  if (!s->options.fp8_dispatch) return TRUE;
  if (!ms_dispatcher(&s->options)->fp8) return REFUSE("%s does not carry FP8", ms_dispatcher(&s->options)->word);
  return bits(s) == 8 || REFUSE("fp8_dispatch needs an FP8 recipe, not %s", ms_precision_words[s->training.precision]);
}
RULE(fp8_input_store_swiglu) {
  return !s->options.activation_func_fp8_input_store || (s->model->gated && s->model->activation == MS_ACT_SILU) ||
         REFUSE("activation_func_fp8_input_store is for SwiGLU only");
}
RULE(framework_options) {
  const MsField *lacked = ms_framework_lacks(s->framework, &s->options);
  return !lacked || REFUSE("%s has no other options.%s than its own", ms_framework(s)->word, lacked->key);
}
RULE(framework_schedule) {
  return ms_framework_schedules(s) ||
         REFUSE("%s has no schedule %s", ms_framework(s)->word, ms_schedule_words[s->layout.schedule]);
}
RULE(framework_recompute) {
  guint32 lacked = ms_framework_lacked_modules(s);
  return !lacked || REFUSE("%s has no recompute of %s", ms_framework(s)->word,
                           ms_recompute_module_words[g_bit_nth_lsf(lacked, -1)]);
}
RULE(framework_shards) {
  const MsFrameworkRow *f = ms_framework(s);
  return ms_framework_shards(s) || REFUSE("%s is modelled with fsdp %s%s%s", f->word, ms_fsdp_words[f->shards_least],
                                          f->shards_least == f->shards_most ? "" : " to ",
                                          f->shards_least == f->shards_most ? "" : ms_fsdp_words[f->shards_most]);
}
RULE(framework_routing) {
  return ms_framework_routes(s) || REFUSE("%s has no gate that hands tokens to experts in turn", ms_framework(s)->word);
}
RULE(framework_compiles) {
  return s->options.torch_compile || ms_framework(s)->llama_layers ||
         REFUSE("%s does not compile its layers: torch_compile is true", ms_framework(s)->word);
}
RULE(early_stop_needs_torch) {
  return !s->options.recompute_early_stop || ms_framework(s)->again != MS_AGAIN_ALL ||
         REFUSE("%s runs a whole region again: recompute_early_stop is false", ms_framework(s)->word);
}
RULE(foreach_needs_torch) {
  if (s->options.optimizer_impl == MS_OPTIMIZER_FUSED) return TRUE;
  return (ms_framework(s)->masters_are_weights && s->training.optimizer == MS_OPT_ADAM) ||
         REFUSE("%s has no optimizer of PyTorch around its own weights, or it is not adam: optimizer_impl is fused",
                ms_framework(s)->word);
}
RULE(instances_shard) {
  return s->options.num_distributed_optimizer_instances <= 1 || s->options.distributed_optimizer ||
         s->options.fsdp != MS_FSDP_NONE || REFUSE("several optimizer instances need distributed_optimizer or FSDP");
}
RULE(outer_sharding_needs_fsdp) {
  return s->options.outer_dp_sharding_strategy == MS_OUTER_NO_SHARD || s->options.fsdp == MS_FSDP_OPTIM_GRADS_PARAMS ||
         REFUSE("outer_dp_sharding_strategy %s needs fsdp %s", ms_outer_dp_words[s->options.outer_dp_sharding_strategy],
                ms_fsdp_words[MS_FSDP_OPTIM_GRADS_PARAMS]);
}
RULE(graphs_on_hardware) {
  for (int i = 0; s->options.cuda_graph_scope && i < ms_scenario_machines(s); i++) {
    const MsHardware *h = ms_scenario_machine(s, i);
    if (!h->cuda_graphs) return REFUSE("%s has no CUDA graphs", h->name ? h->name : "the device");
  }
  return TRUE;
}
RULE(graph_scope_alone) {
  guint32 scope = s->options.cuda_graph_scope;
  return !MS_GRAPHS(scope, alone) || (scope & (scope - 1)) == 0 ||
         REFUSE("full_iteration and layer each stand alone in cuda_graph_scope");
}
RULE(graph_checks) {
  return !s->options.check_for_nan_in_loss_and_grad || !MS_GRAPHS(s->options.cuda_graph_scope, whole_step) ||
         REFUSE(
             "the host cannot look for NaN inside a graph of the whole iteration: check_for_nan_in_loss_and_grad off");
}
RULE(graph_preprocess) {
  int other, row = ms_graph_lacking(s->options.cuda_graph_scope, &other);
  return row < 0 || REFUSE("a graph of %s needs %s", ms_cuda_graphs[row].word, ms_cuda_graphs[other].word);
}
static gboolean not_with_graphs(const MsRecomputeModule *module, const MsScenario *s) {
  return (module->excluded_graphs & s->options.cuda_graph_scope) != 0;
}
RULE(graph_recompute) {
  guint32 scope = s->options.cuda_graph_scope;
  if (scope && !MS_GRAPHS(scope, whole_step) && s->options.recompute.granularity == MS_RECOMPUTE_FULL)
    return REFUSE("full recompute only goes with full_iteration graphs");
  const MsRecomputeModule *module = ms_recomputed(s, not_with_graphs);
  return !module || REFUSE("recompute of %s excludes graphs of %s", module->word,
                           ms_cuda_graph_words[g_bit_nth_lsf(module->excluded_graphs & scope, -1)]);
}
