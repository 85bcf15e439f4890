/* src/layout/rules_layers.c - rules of dispatchers, EP overlap and shared experts, and of the kinds of layers beside
 * attention and experts. */
#include "describe/module_sets.h"
#include "describe/recompute.h"
#include "describe/vendor.h"
#include "layout/rules.h"

/* --- experts: dispatcher and overlap --------------------------------------------------------------------------- */

static const char *word(const MsScenario *s) { return ms_dispatcher(&s->options)->word; }

RULE(dispatcher_on_hardware) {
  for (int i = 0; is_moe(s) && i < ms_scenario_machines(s); i++) {
    const MsHardware *h = ms_scenario_machine(s, i);
    if (!ms_dispatcher_exists(ms_dispatcher(&s->options), h))
      return REFUSE("%s does not exist for %s", word(s), h->name ? h->name : "it");
  }
  return TRUE;
}
RULE(dispatcher_needs_group) {
  int least = ms_dispatcher(&s->options)->least_ranks;
  return !is_moe(s) || times(s->layout.etp, s->layout.ep) >= least ||
         REFUSE("%s needs ETP x EP > %d", word(s), least - 1);
}
RULE(dispatcher_group_size) {
  const MsDispatcherRow *row = ms_dispatcher(&s->options);
  gint64 ranks = times(s->layout.etp, s->layout.ep);
  char counts[96] = "";
  if (!is_moe(s) || ms_dispatcher_takes(row, ranks)) return TRUE;
  for (int i = 0, n = 0; row->rank_counts[i] && n < (int)sizeof counts; i++)
    n += g_snprintf(counts + n, sizeof counts - (gsize)n, "%s%d", i ? " " : "", row->rank_counts[i]);
  return REFUSE("%s has no configuration for %" G_GINT64_FORMAT " ranks (%s)", word(s), ranks, counts);
}
RULE(ep_overlap_needs_ep) { return !s->options.ep_overlap || s->layout.ep > 1 || REFUSE("EP overlap needs EP > 1"); }
RULE(ep_overlap_dispatcher) {
  return !s->options.ep_overlap || ms_dispatcher(&s->options)->ep_overlap ||
         REFUSE("EP overlap does not work with the %s dispatcher", word(s));
}
static gboolean pairs(const MsScheduleRow *row) { return row->pairs != MS_PAIRS_NEVER; }

RULE(ep_overlap_schedule) {
  const MsScheduleRow *row = ms_schedule_row(s->layout.schedule);
  if (!s->options.ep_overlap || pairs(row)) return TRUE;
  if (size == 0) return FALSE;
  g_autofree char *words = ms_schedule_words_of(pairs);
  return REFUSE("EP overlap pairs forwards with backwards, as %s do, not %s", words, row->word);
}
static gboolean not_with_ep_overlap(const MsRecomputeModule *module, const MsScenario *s) {
  (void)s;
  return !module->ep_overlap;
}
/* Ascend/MindSpeed core/transformer/moe/moe_feature/fb_overlap/transformer_block.py: layer by layer. */
static gboolean overlaps_checkpoints(const MsScenario *s, char *why, size_t size) {
  if (!ms_has_mindspeed(s)) return REFUSE("EP overlap excludes full recompute (but in MindSpeed)");
  int layers = s->options.recompute.num_layers;
  return s->options.recompute.method != MS_RECOMPUTE_UNIFORM || layers == 1 ||
         REFUSE("EP overlap recomputes layers one by one: method uniform needs num_layers 1, not %d", layers);
}
RULE(ep_overlap_recompute) {
  if (!s->options.ep_overlap) return TRUE;
  if (s->options.recompute.granularity == MS_RECOMPUTE_FULL) return overlaps_checkpoints(s, why, size);
  const MsRecomputeModule *module = ms_recomputed(s, not_with_ep_overlap);
  return !module || REFUSE("EP overlap excludes recompute of %s", module->word);
}
/* Ascend/MindSpeed core/transformer/moe/moe_feature/fb_overlap/modules/moe_layer.py switches it on by itself. */
RULE(ep_overlap_shared) {
  return !s->options.ep_overlap || !s->options.moe_shared_expert_overlap || ms_has_mindspeed(s) ||
         REFUSE("EP overlap excludes shared-expert overlap (but in MindSpeed)");
}
RULE(ep_overlap_mtp) {
  return !s->options.ep_overlap || s->model->mtp_num_layers <= 1 ||
         REFUSE("EP overlap takes one MTP block at most, not %d", s->model->mtp_num_layers);
}
RULE(ep_overlap_vpp) {
  return !s->options.ep_overlap || s->layout.pp == 1 || ms_layout_chunks_per_rank(s) > 1 ||
         REFUSE("EP overlap with PP %d needs VPP > 1", s->layout.pp);
}
RULE(ep_overlap_graphs) {
  return !s->options.ep_overlap || MS_GRAPHS(s->options.cuda_graph_scope, ep_overlap) == s->options.cuda_graph_scope ||
         REFUSE("EP overlap excludes CUDA graphs of moe and mlp");
}
RULE(delay_wgrad_needs_overlap) {
  return !s->options.delay_wgrad || s->options.ep_overlap || REFUSE("delay_wgrad needs ep_overlap");
}
RULE(dispatcher_pads_capacity) {
  return !is_moe(s) || ms_dispatcher(&s->options)->pads_to_capacity ||
         s->training.routing.kind != MS_ROUTING_CAPACITY || !s->training.routing.pad_to_capacity ||
         REFUSE("%s cannot pad to capacity", word(s));
}
RULE(dispatcher_pads_blocks) {
  return !is_moe(s) || ms_dispatcher(&s->options)->pads != MS_PAD_NOT ||
         !s->options.moe_router_padding_for_quantization ||
         REFUSE("the %s dispatcher cannot pad for quantization", word(s));
}
RULE(shared_overlap_dispatcher) {
  return !is_moe(s) || !s->options.moe_shared_expert_overlap || ms_dispatcher(&s->options)->shared_overlap ||
         REFUSE("shared-expert overlap does not work with the %s dispatcher", word(s));
}
static gboolean not_with_shared(const MsRecomputeModule *module, const MsScenario *s) {
  (void)s;
  return !module->shared_overlap;
}
RULE(shared_overlap_recompute) {
  const MsRecomputeModule *module = s->options.moe_shared_expert_overlap ? ms_recomputed(s, not_with_shared) : NULL;
  return !module || REFUSE("shared-expert overlap excludes recompute of %s", module->word);
}

/* --- layer kinds beside attention and experts ------------------------------------------------------------------ */

RULE(tp_divides_delta_heads) {
  int heads = s->model->linear_attention.num_key_heads,
      exchanged = s->options.linear_cp_mode == MS_LINEAR_CP_HEADWISE ? s->layout.cp : 1;
  if (heads % s->layout.tp != 0)
    return REFUSE("TP %d does not divide the %d key heads of the gated delta net", s->layout.tp, heads);
  return heads / s->layout.tp % exchanged == 0 ||
         REFUSE("CP %d does not divide the %d key heads of a TP rank, which a gated delta net exchanges", s->layout.cp,
                heads / s->layout.tp);
}
RULE(compressed_without_tp) {
  return !ms_model_has_compressed_attention(s->model) || s->layout.tp == 1 ||
         REFUSE("compressed attention runs with TP 1 only, not %d", s->layout.tp);
}
RULE(sparse_cp_gathers) {
  return s->layout.cp == 1 || s->model->sparse_attention.indexer_topk == 0 ||
         ms_model_has_compressed_attention(s->model) ||
         ms_cp_comm_row(s->layout.cp_comm_type)->keys == MS_CP_KEYS_ARE_GATHERED ||
         REFUSE("sparse attention with CP %d needs cp_comm_type all_gather", s->layout.cp);
}
RULE(sparse_needs_fused) {
  gboolean own = ms_model_has_compressed_attention(s->model) || s->model->sparse_attention.indexer_topk > 0;
  return !own ||
         (!ms_attn_backends[s->options.attention_backend].stores_scores && s->options.transformer_impl == MS_IMPL_TE) ||
         REFUSE("sparse attention has fused kernels only: attention_backend fused or flash, transformer_impl "
                "transformer_engine");
}
RULE(lengths_fit) {
  const MsLengths *l = &s->training.sequence_lengths;
  return l->n == 0 || l->length[l->n - 1] <= s->training.seq_length ||
         REFUSE("a sequence of %d tokens is longer than the pack of seq_length = %d", l->length[l->n - 1],
                s->training.seq_length);
}
RULE(packing_needs_fused) {
  return s->training.sequence_lengths.n == 0 ||
         (!ms_attn_backends[s->options.attention_backend].stores_scores && s->options.transformer_impl == MS_IMPL_TE) ||
         REFUSE("packed sequences need attention_backend fused or flash and transformer_impl transformer_engine");
}
RULE(hybrid_cp) { /* docs/theory/layouts.md 4, rule 28 */
  const MsLengths *l = &s->training.sequence_lengths;
  if (!s->options.hybrid_context_parallel)
    return s->options.max_seqlen_per_dp_cp_rank == 0 ||
           REFUSE("max_seqlen_per_dp_cp_rank belongs to hybrid_context_parallel");
  if (l->n == 0) return REFUSE("hybrid context parallelism needs training.sequence_lengths");
  if (s->options.fsdp != MS_FSDP_NONE) return REFUSE("hybrid context parallelism excludes Megatron-FSDP");
  const MsCpCommRow *cp_comm = ms_cp_comm_row(s->layout.cp_comm_type);
  if (cp_comm->heads != MS_CP_HEADS_STAY || cp_comm->keys != MS_CP_KEYS_GO_ROUND)
    return REFUSE("hybrid context parallelism needs cp_comm_type p2p, not %s", cp_comm->word);
  if (s->model->sparse_attention.indexer_topk > 0 || ms_model_has_compressed_attention(s->model) ||
      s->model->linear_attention.num_value_heads > 0 || s->model->mamba.num_heads > 0)
    return REFUSE("hybrid context parallelism needs softmax attention in all layers");
  return TRUE;
}
RULE(hybrid_cp_ranks) {
  const MsLengths *l = &s->training.sequence_lengths;
  if (!s->options.hybrid_context_parallel || l->n == 0) return TRUE;
  if (s->layout.pp > 1) return REFUSE("hybrid context parallelism needs PP 1, not %d", s->layout.pp);
  gint64 most = s->options.max_seqlen_per_dp_cp_rank > 0 ? s->options.max_seqlen_per_dp_cp_rank
                                                         : MAX(1, s->training.seq_length / s->layout.cp);
  gint64 ranks = 1, pool = s->gpus / times(s->layout.tp, s->layout.pp);
  while (ranks * most < l->length[l->n - 1]) ranks *= 2;
  return ranks <= pool || REFUSE("a sequence of %d tokens at %d a rank needs %d of %d data- and context-parallel ranks",
                                 l->length[l->n - 1], (int)most, (int)MIN(ranks, G_MAXINT), (int)pool);
}
static gboolean refused_here(const MsRecomputeModule *module, const MsScenario *s) {
  return !module->elsewhere_idle && ms_recompute_lacks(module, s->model);
}
RULE(recompute_needs) {
  const MsRecomputeModule *module = ms_recomputed(s, refused_here);
  return !module || REFUSE("recompute of %s needs a model with %s", module->word, ms_recompute_lacks(module, s->model));
}
static gboolean has_excluded(const MsRecomputeModule *module, const MsScenario *s) {
  return ms_recomputes(&s->options, module->excludes);
}
RULE(recompute_excludes) {
  const MsRecomputeModule *module = ms_recomputed(s, has_excluded);
  return !module ||
         REFUSE("recompute of %s excludes recompute of %s", module->word,
                ms_recompute_module_words[g_bit_nth_lsf(module->excludes & s->options.recompute.modules, -1)]);
}

/* --- adapters beside frozen weights ------------------------------------------------------------------------------ */

RULE(lora_models) {
  const MsModel *m = s->model;
  if (!ms_lora_is_on(&s->training.lora)) return TRUE;
  if (m->mtp_num_layers > 0) return REFUSE("adapters of MTP blocks are not modelled: set mtp_num_layers to 0");
  if (m->front_end.parameters > 0 && !m->front_end.frozen)
    return REFUSE("beside adapters a front end is frozen: say front_end.frozen");
  gboolean plain = !ms_model_has_compressed_attention(m) && ms_model_streams(m) == 1;
  for (int i = 0; plain && i < m->num_layers; i++)
    plain = !(ms_model_mixers(m, i) & (MS_MIX_MAMBA | MS_MIX_DELTA)) && !ms_model_layer_is_sparse(m, i);
  return plain || REFUSE("adapters are modelled beside dense attention, MLPs and experts, not in %s", m->name);
}
RULE(lora_targets) {
  const MsLora *lora = &s->training.lora;
  if (!ms_lora_is_on(lora)) return TRUE;
  if (!lora->targets) return REFUSE("no layer gets an adapter: nothing is trained");
  for (int i = 0; i < ms_n_lora_targets; i++)
    if (lora->targets >> i & 1 && !ms_lora_target_exists(&ms_lora_targets[i], s->model))
      return REFUSE("%s has no %s", s->model->name, ms_lora_targets[i].word);
  return TRUE;
}
RULE(lora_rank_divides) {
  const MsLora *lora = &s->training.lora;
  return !ms_lora_is_on(lora) || lora->rank % s->layout.tp == 0 ||
         REFUSE("TP %d does not divide the adapters' rank %d", s->layout.tp, lora->rank);
}
RULE(lora_experts_whole) {
  const MsLora *lora = &s->training.lora;
  if (!ms_lora_is_on(lora) || s->layout.etp == 1) return TRUE;
  const MsLoraTarget *beside = ms_lora_beside_experts(lora, s->model);
  return !beside || REFUSE("%s beside experts needs ETP 1, not %d", beside->word, s->layout.etp);
}
static gboolean not_with_adapters(const MsRecomputeModule *module, const MsScenario *s) {
  (void)s;
  return !module->frozen_weights;
}
RULE(lora_recompute) {
  const MsRecomputeModule *module = ms_lora_is_on(&s->training.lora) ? ms_recomputed(s, not_with_adapters) : NULL;
  return !module || REFUSE("recompute of %s with adapters is not modelled", module->word);
}
RULE(lora_overlap) {
  if (!ms_lora_is_on(&s->training.lora)) return TRUE;
  if (s->options.ep_overlap) return REFUSE("EP overlap with adapters is not modelled");
  return !s->options.defer_embedding_wgrad_compute ||
         REFUSE("the head is frozen: defer_embedding_wgrad_compute has no weight gradient to defer");
}
