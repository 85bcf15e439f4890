/* src/layout/rules_grid.c - rules of sizes, of the grid of ranks, and of what tensor, context and expert parallelism
 * divide. */
#include "describe/framework.h"
#include "describe/vendor.h"
#include "layout/rules.h"
#include "layout/seats.h"
#include <string.h>

/* --- sizes, grids, ranks --------------------------------------------------------------------------------------- */

RULE(sizes_positive) {
  const struct {
    const char *key;
    int value;
  } sizes[] = {{"gpus", s->gpus},
               {"tp", s->layout.tp},
               {"cp", s->layout.cp},
               {"pp", s->layout.pp},
               {"vpp", s->layout.vpp},
               {"ep", s->layout.ep},
               {"etp", s->layout.etp},
               {"seq_length", s->training.seq_length},
               {"micro_batch_size", s->training.micro_batch_size},
               {"global_batch_size", s->training.global_batch_size},
               {"num_layers", s->model->num_layers}};
  for (guint i = 0; i < G_N_ELEMENTS(sizes); i++)
    if (sizes[i].value < 1) return REFUSE("%s is %d, not positive", sizes[i].key, sizes[i].value);
  return TRUE;
}
RULE(pp_in_range) {
  if (s->layout.pp > MS_MAX_PP) return REFUSE("PP %d is above %d", s->layout.pp, MS_MAX_PP);
  return times(s->layout.pp, s->layout.vpp) <= MS_MAX_VIRTUAL_STAGES ||
         REFUSE("PP %d x VPP %d is above %d virtual stages", s->layout.pp, s->layout.vpp, MS_MAX_VIRTUAL_STAGES);
}
RULE(world_divides) {
  return s->gpus % dense_ranks(s) == 0 ||
         REFUSE("TP %d x CP %d x PP %d does not divide %d GPUs", s->layout.tp, s->layout.cp, s->layout.pp, s->gpus);
}
RULE(pools_hold_stages) {
  int per_stage = s->gpus / s->layout.pp;
  for (int i = 0; i < s->pools.n; i++)
    if (s->pools.pool[i].gpus % per_stage != 0)
      return REFUSE("%d GPUs of a stage at PP %d do not divide the %d of pools[%d]; a machine that holds whole "
                    "replicas says its batch",
                    per_stage, s->layout.pp, s->pools.pool[i].gpus, i);
  return TRUE;
}
RULE(pools_hold_replicas) {
  for (int i = 0; i < s->pools.shares; i++) {
    const MsPool *pool = &s->pools.pool[i];
    if (pool->gpus % dense_ranks(s) != 0 || pool->gpus % expert_ranks(s) != 0)
      return REFUSE("the %d GPUs of pools[%d] are no whole replicas of TP %d x CP %d x PP %d, ETP %d x EP %d",
                    pool->gpus, i, s->layout.tp, s->layout.cp, s->layout.pp, s->layout.etp, s->layout.ep);
    gint64 replicas = pool->gpus / dense_ranks(s);
    if (pool->batch % times(s->training.micro_batch_size, replicas) != 0)
      return REFUSE("micro-batch %d x %d replicas do not divide the batch %d of pools[%d]",
                    s->training.micro_batch_size, (int)replicas, pool->batch, i);
  }
  return TRUE;
}
RULE(pools_order) {
  gboolean stages = s->layout.order == MS_ORDER_DP_PP, whole = s->layout.pp == 1 || !stages;
  return (s->pools.n == 0 || stages) && (s->pools.shares == 0 || whole)
             ? TRUE
             : REFUSE("%s gives no %s to one pool", ms_order_words[s->layout.order],
                      s->pools.n > 0 ? "pipeline stage" : "whole replica");
}
/* NCCL, RCCL, MCCL, HCCL and HCL speak to their own kind alone; a machine that says no vendor is taken on trust. */
RULE(pools_vendor) {
  const char *first = s->hardware->vendor;
  for (int i = 1; first && i < ms_scenario_machines(s); i++) {
    const char *other = ms_scenario_machine(s, i)->vendor;
    if (other && strcmp(other, first) != 0)
      return REFUSE("machines of %s and of %s have libraries of collectives that do not speak with each other", first,
                    other);
  }
  return TRUE;
}
RULE(pools_schedule) {
  const MsScheduleRow *row = ms_schedule_row(s->layout.schedule);
  return s->pools.n == 0 || row->copies != MS_COPIES_TWO ||
         REFUSE("%s has two copies of every stage, not modelled between pools", row->word);
}
RULE(fabric_holds_job) {
  if (s->hardware->fabric.kind == MS_FABRIC_NONE) return TRUE;
  g_autoptr(MsSeats) seats = ms_seats_new(s->hardware, s->gpus, why, size);
  return seats != NULL;
}
RULE(ep_needs_experts) {
  return is_moe(s) || s->layout.ep == 1 || REFUSE("EP %d for a model without experts", s->layout.ep);
}
RULE(etp_needs_experts) {
  return is_moe(s) || s->layout.etp == 1 || s->layout.etp == s->layout.tp ||
         REFUSE("ETP %d for a model without experts", s->layout.etp);
}
RULE(expert_world_divides) {
  return s->gpus % expert_ranks(s) == 0 ||
         REFUSE("ETP %d x EP %d x PP %d does not divide %d GPUs", s->layout.etp, s->layout.ep, s->layout.pp, s->gpus);
}
RULE(dp_agrees) {
  return s->layout.dp == MS_NULL_INT || s->layout.dp == data_parallel(s) ||
         REFUSE("DP %d given, but %d GPUs leave %d", s->layout.dp, s->gpus, data_parallel(s));
}
RULE(edp_agrees) {
  int edp = (int)(s->gpus / expert_ranks(s));
  return s->layout.edp == MS_NULL_INT || s->layout.edp == edp ||
         REFUSE("expert DP %d given, but %d GPUs leave %d", s->layout.edp, s->gpus, edp);
}
RULE(order_pp_last) {
  gint64 edp = s->gpus / expert_ranks(s);
  return s->layout.order == MS_ORDER_DP_PP || s->layout.pp == 1 || !is_moe(s) || edp == data_parallel(s) ||
         REFUSE("order tp-cp-ep-pp-dp needs equal data-parallel sizes, not DP %d and expert DP %d", data_parallel(s),
                (int)edp);
}
RULE(optimizer_instances) {
  int instances = s->options.num_distributed_optimizer_instances;
  gint64 replicas = times(data_parallel(s), s->layout.cp), of_experts = is_moe(s) ? s->gpus / expert_ranks(s) : 0;
  if (instances > 1 && replicas % instances != 0)
    return REFUSE("%d optimizer instances do not divide DP x CP = %d", instances, (int)replicas);
  if (s->layout.order == MS_ORDER_PP_DP && s->layout.pp > 1 && instances > 1 && data_parallel(s) % instances != 0)
    return REFUSE("%d optimizer instances do not divide DP %d, the slowest axis of this order", instances,
                  data_parallel(s));
  return instances <= 1 || of_experts % instances == 0 ||
         REFUSE("%d optimizer instances do not divide the expert DP %d", instances, (int)of_experts);
}

/* --- sharding of the model ------------------------------------------------------------------------------------- */

RULE(tp_divides_heads) {
  int heads = s->model->num_attention_heads;
  return heads % s->layout.tp == 0 || REFUSE("TP %d does not divide %d attention heads", s->layout.tp, heads);
}
RULE(tp_fits_kv_groups) {
  int tp = s->layout.tp, groups = s->model->num_query_groups;
  return ms_model_has_mla(s->model) || groups < 1 || groups % tp == 0 || tp % groups == 0 ||
         REFUSE("TP %d and %d KV groups: neither divides the other", tp, groups);
}
RULE(ep_divides_experts) {
  int experts = s->model->num_experts;
  return experts % s->layout.ep == 0 || REFUSE("EP %d does not divide %d experts", s->layout.ep, experts);
}
RULE(moe_tp_needs_sp) {
  return !is_moe(s) || s->layout.tp == 1 || ms_layout_sequence_parallel(s) ||
         REFUSE("a MoE model with TP %d needs sequence parallelism", s->layout.tp);
}
RULE(tp_comm_overlap_needs_sp) {
  return !s->options.tp_comm_overlap || s->layout.tp == 1 || ms_layout_sequence_parallel(s) ||
         REFUSE("TP communication overlap needs sequence parallelism");
}
RULE(deterministic_loss) {
  return !s->options.deterministic_mode || !s->options.cross_entropy_fusion ||
         REFUSE("deterministic_mode needs cross_entropy_fusion off");
}
RULE(deterministic_tp_overlap) {
  return !s->options.deterministic_mode || !s->options.tp_comm_overlap ||
         REFUSE("deterministic_mode needs tp_comm_overlap off");
}
RULE(deterministic_delta) {
  return !s->options.deterministic_mode || s->model->linear_attention.num_value_heads == 0 ||
         REFUSE("with deterministic_mode a delta net runs in plain PyTorch, which is not modelled");
}
RULE(cp_divides_sequence) {
  return s->layout.cp == 1 || s->training.seq_length % times(2, s->layout.cp) == 0 ||
         REFUSE("2 x CP %d does not divide %d tokens", s->layout.cp, s->training.seq_length);
}
RULE(sp_divides_sequence) {
  return !ms_layout_sequence_parallel(s) || s->training.seq_length % times(s->layout.cp, s->layout.tp) == 0 ||
         REFUSE("CP %d x TP %d does not divide %d tokens, as sequence parallelism needs", s->layout.cp, s->layout.tp,
                s->training.seq_length);
}
RULE(tp_divides_ffn) {
  const MsModel *model = s->model;
  gboolean dense = !is_moe(s) || (model->moe_layer && memchr(model->moe_layer, 0, (size_t)model->num_layers));
  return !dense || model->ffn_hidden_size % s->layout.tp == 0 ||
         REFUSE("TP %d does not divide the FFN width %d", s->layout.tp, model->ffn_hidden_size);
}
RULE(etp_divides_expert_ffn) {
  int width = s->model->moe_ffn_hidden_size;
  return !is_moe(s) || width % s->layout.etp == 0 ||
         REFUSE("ETP %d does not divide the expert width %d", s->layout.etp, width);
}
RULE(tp_divides_shared_expert) {
  int width = s->model->moe_shared_expert_intermediate_size;
  return width % s->layout.tp == 0 || REFUSE("TP %d does not divide the shared-expert width %d", s->layout.tp, width);
}
RULE(ulysses_divides_heads) {
  int tp = s->layout.tp, cp = s->layout.cp, heads = s->model->num_attention_heads / tp;
  int groups = MAX(1, ms_model_has_mla(s->model) ? heads : s->model->num_query_groups / tp);
  if (cp == 1 || ms_cp_comm_row(s->layout.cp_comm_type)->heads != MS_CP_HEADS_AMONG_ALL) return TRUE;
  gboolean repeated = groups < cp && heads % groups == 0 && ms_has_mindspeed(s); /* MindSpeed's keys for each head */
  return (heads % cp == 0 && (groups % cp == 0 || repeated)) ||
         REFUSE("CP %d with %s does not divide the %d heads and %d KV groups of a TP rank", cp,
                ms_cp_comm_words[s->layout.cp_comm_type], heads, groups);
}
RULE(framework_sequences) {
  return !ms_framework(s)->whole_sequences || !is_moe(s) ||
         s->model->moe_router_load_balancing_type != MS_BALANCE_SEQ_AUX || times(s->layout.tp, s->layout.cp) == 1 ||
         REFUSE("%s has seq_aux_loss with TP x CP = 1 only, not %d x %d", ms_framework(s)->word, s->layout.tp,
                s->layout.cp);
}
RULE(framework_latent) {
  return ms_framework(s)->latent_tp || s->layout.tp == 1 || !ms_model_has_mla(s->model) ||
         REFUSE("%s has multi-latent attention without tensor parallelism only", ms_framework(s)->word);
}
RULE(batch_divides) {
  gint64 sequences = times(s->training.micro_batch_size, data_parallel(s));
  return s->training.global_batch_size % sequences == 0 ||
         REFUSE("micro-batch %d x DP %d does not divide the global batch %d", s->training.micro_batch_size,
                data_parallel(s), s->training.global_batch_size);
}
RULE(flushes_divide) {
  int local = s->training.local_batch_size;
  if (local <= 0) return TRUE;
  if (!ms_framework(s)->flushes) return REFUSE("%s does not flush a pipeline within a step", ms_framework(s)->word);
  return (local % s->training.micro_batch_size == 0 &&
          s->training.global_batch_size % times(local, data_parallel(s)) == 0) ||
         REFUSE("micro-batch %d does not divide a local batch of %d, or that x DP %d the global batch %d",
                s->training.micro_batch_size, local, data_parallel(s), s->training.global_batch_size);
}
RULE(router_groups_divide) {
  const MsModel *model = s->model;
  int groups = model->moe_router_num_groups;
  if (!is_moe(s) || groups < 1) return TRUE;
  return (model->num_experts % groups == 0 && model->moe_router_group_topk <= groups) ||
         REFUSE("%d experts in %d router groups of which %d are chosen", model->num_experts, groups,
                model->moe_router_group_topk);
}
RULE(expert_bias_needs_sigmoid) {
  return !is_moe(s) || !s->model->moe_router_enable_expert_bias || ms_model_scores_apart(s->model) ||
         REFUSE("expert bias needs sigmoid or sqrtsoftplus router scores");
}
RULE(moe_bias_needs_etp1) {
  return !is_moe(s) || !s->model->add_bias_linear || s->layout.etp == 1 ||
         REFUSE("experts with bias need ETP 1, not %d", s->layout.etp);
}
