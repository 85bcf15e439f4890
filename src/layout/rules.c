/* src/layout/rules.c - the rules a scenario must obey before anything is computed about it (domain/layouts.md 4).
 *
 * Each is a row: a word, the key it speaks about, the number in the table, a sentence and a test. A test may rely on
 * the rows above its own (sizes are positive from the first row on). Products are in gint64 and saturate, so that no
 * value a file may hold can overflow.
 *
 * Of the table, these cannot be stated with the keys of a scenario or must not refuse:
 *    6  SP without TP is cleared, not refused (ms_layout_sequence_parallel)
 *    9  the vocabulary is padded to fit (ms_model_padded_vocab)
 *   16  three launcher flags for one thing; here it is vpp or the string
 *   17  offload of expert_fc1 with ncclep: no such dispatcher
 *   18  early memory release, dispatch-backward overlap: no such keys
 *   21  loss kinds that go with a capacity factor: no such key
 *   22  variable sequence length: no such key
 *   27  hierarchical sizes of a2a+p2p: no such key
 *   29  CUDA_DEVICE_MAX_CONNECTIONS and 30 fused cross-entropy: older releases allowed what HEAD refuses
 *   32  method of selective recompute (the key has a default), positions of MTP (YaRN counts as RoPE)
 *   33  expandable segments: no such key */
#include "layout/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gboolean ms_refuse(char *why, size_t size, const char *format, ...) {
  va_list args;
  if (size == 0) return FALSE;
  va_start(args, format);
  vsnprintf(why, size, format, args);
  va_end(args);
  return FALSE;
}

#define RULE(id) static gboolean id(const MsScenario *s, char *why, size_t size)
#define REFUSE(...) ms_refuse(why, size, __VA_ARGS__)

static gint64 times(gint64 a, gint64 b) {
  gint64 product;
  return __builtin_mul_overflow(a, b, &product) ? G_MAXINT64 : product;
}

static gboolean is_moe(const MsScenario *s) { return s->model->num_experts > 0; }
static gint64 dense_ranks(const MsScenario *s) { return times(times(s->layout.tp, s->layout.cp), s->layout.pp); }
static gint64 expert_ranks(const MsScenario *s) { return times(times(s->layout.etp, s->layout.ep), s->layout.pp); }
static int data_parallel(const MsScenario *s) { return (int)(s->gpus / dense_ranks(s)); }
static gint64 microbatches(const MsScenario *s) {
  return s->training.global_batch_size / times(s->training.micro_batch_size, data_parallel(s));
}
static gboolean has_ends(const MsScenario *s) {
  return s->layout.decoder_first_pipeline_num_layers > 0 || s->layout.decoder_last_pipeline_num_layers > 0;
}
static gboolean has_account(const MsScenario *s) {
  return s->layout.account_for_embedding_in_pipeline_split || s->layout.account_for_loss_in_pipeline_split;
}
static gboolean is_dualpipe(const MsScenario *s) {
  return s->layout.schedule == MS_SCHED_DUALPIPE || s->layout.schedule == MS_SCHED_DUALPIPEV;
}
static gboolean is_fp8(MsPrecision precision) { return precision >= MS_FP8_DELAYED && precision <= MS_MXFP8; }

/* --- sizes, grids, ranks ----------------------------------------------------------------------------------------------- */

RULE(sizes_positive) {
  const struct {
    const char *key;
    int value;
  } sizes[] = {{"gpus", s->gpus}, {"tp", s->layout.tp}, {"cp", s->layout.cp}, {"pp", s->layout.pp}, {"vpp", s->layout.vpp},
               {"ep", s->layout.ep}, {"etp", s->layout.etp}, {"seq_length", s->training.seq_length},
               {"micro_batch_size", s->training.micro_batch_size}, {"global_batch_size", s->training.global_batch_size},
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
         REFUSE("order tp-cp-ep-pp-dp needs equal data-parallel sizes, not DP %d and expert DP %d", data_parallel(s), (int)edp);
}
RULE(optimizer_instances) {
  int instances = s->options.num_distributed_optimizer_instances;
  gint64 replicas = times(data_parallel(s), s->layout.cp);
  return instances <= 1 || replicas % instances == 0 ||
         REFUSE("%d optimizer instances do not divide DP x CP = %d", instances, (int)replicas);
}

/* --- sharding of the model ---------------------------------------------------------------------------------------------- */

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
  return !s->options.deterministic_mode || !s->options.cross_entropy_fusion || REFUSE("deterministic_mode needs cross_entropy_fusion off");
}
RULE(deterministic_tp_overlap) {
  return !s->options.deterministic_mode || !s->options.tp_comm_overlap || REFUSE("deterministic_mode needs tp_comm_overlap off");
}
RULE(deterministic_delta) {
  return !s->options.deterministic_mode || s->model->linear_attention.num_value_heads == 0 || REFUSE("with deterministic_mode a delta net runs in plain PyTorch, which is not modelled");
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
  int groups = ms_model_has_mla(s->model) ? heads : MAX(1, s->model->num_query_groups / tp);
  if (cp == 1 || s->layout.cp_comm_type != MS_CP_A2A) return TRUE;
  return (heads % cp == 0 && groups % cp == 0) ||
         REFUSE("CP %d with a2a does not divide the %d heads and %d KV groups of a TP rank", cp, heads, groups);
}
RULE(batch_divides) {
  gint64 sequences = times(s->training.micro_batch_size, data_parallel(s));
  return s->training.global_batch_size % sequences == 0 ||
         REFUSE("micro-batch %d x DP %d does not divide the global batch %d", s->training.micro_batch_size,
                data_parallel(s), s->training.global_batch_size);
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
  return !is_moe(s) || !s->model->moe_router_enable_expert_bias ||
         s->model->moe_router_score_function != MS_SCORE_SOFTMAX || REFUSE("expert bias needs sigmoid or sqrtsoftplus router scores");
}
RULE(moe_bias_needs_etp1) {
  return !is_moe(s) || !s->model->add_bias_linear || s->layout.etp == 1 ||
         REFUSE("experts with bias need ETP 1, not %d", s->layout.etp);
}

/* --- layers on stages ---------------------------------------------------------------------------------------------------- */

gboolean ms_schedule_is_v(MsScheduleKind kind) {
  return kind == MS_SCHED_ZB_V || kind == MS_SCHED_V_HALF || kind == MS_SCHED_V_MIN || kind == MS_SCHED_DUALPIPEV;
}

int ms_layout_chunks_per_rank(const MsScenario *s) {
  MsPipelineScan scan;
  if (ms_schedule_is_v(s->layout.schedule) || s->layout.schedule == MS_SCHED_DUALPIPE) return 2;
  if (!s->layout.pipeline_layout || s->layout.vpp > 1) return s->layout.vpp; /* layout-string-stages: they agree */
  if (!ms_pipeline_layout_scan(s->layout.pipeline_layout, &scan, NULL, NULL, 0)) return -1;
  return scan.virtual_stages % s->layout.pp == 0 ? scan.virtual_stages / s->layout.pp : -1;
}

gint64 ms_layout_virtual_stages(const MsScenario *s, int chunks_per_rank) {
  return s->layout.schedule == MS_SCHED_DUALPIPE ? s->layout.pp : times(s->layout.pp, chunks_per_rank);
}

void ms_layout_place(MsScheduleKind kind, int pp, int index, int *stage, int *chunk) {
  *chunk = index / pp;
  *stage = index % pp;
  if (*chunk == 1 && ms_schedule_is_v(kind)) *stage = pp - 1 - *stage;
}

RULE(schedule_chunks) {
  int vpp = s->layout.vpp;
  if (s->layout.schedule == MS_SCHED_1F1B || s->layout.schedule == MS_SCHED_GPIPE) return TRUE;
  if (ms_schedule_is_v(s->layout.schedule) || s->layout.schedule == MS_SCHED_DUALPIPE)
    return vpp <= 2 || REFUSE("schedule %s has two chunks on a rank, not VPP %d", ms_schedule_words[s->layout.schedule], vpp);
  return ms_layout_chunks_per_rank(s) == 1 ||
         REFUSE("schedule %s has one chunk on a rank: VPP must be 1", ms_schedule_words[s->layout.schedule]);
}
RULE(string_reads) {
  MsPipelineScan scan;
  return !s->layout.pipeline_layout || ms_pipeline_layout_scan(s->layout.pipeline_layout, &scan, NULL, why, size);
}
RULE(string_alone) {
  return !s->layout.pipeline_layout || !(has_ends(s) || has_account(s)) ||
         REFUSE("a pipeline layout goes without first/last layer counts and account_for_* keys");
}
RULE(string_stages) {
  MsPipelineScan scan;
  int pp = s->layout.pp, vpp = s->layout.vpp;
  MsScheduleKind kind = s->layout.schedule;
  if (!s->layout.pipeline_layout) return TRUE;
  ms_pipeline_layout_scan(s->layout.pipeline_layout, &scan, NULL, NULL, 0);
  if (scan.virtual_stages % pp != 0) return REFUSE("PP %d does not divide the %d virtual stages", pp, scan.virtual_stages);
  if (ms_schedule_is_v(kind) || kind == MS_SCHED_DUALPIPE)
    return scan.virtual_stages == ms_layout_virtual_stages(s, 2) ||
           REFUSE("%d virtual stages, but schedule %s on PP %d has %d", scan.virtual_stages, ms_schedule_words[kind], pp,
                  (int)ms_layout_virtual_stages(s, 2));
  return vpp == 1 || vpp == scan.virtual_stages / pp ||
         REFUSE("%d virtual stages on PP %d make VPP %d, not %d", scan.virtual_stages, pp, scan.virtual_stages / pp, vpp);
}
RULE(string_layers) {
  MsPipelineScan scan;
  if (!s->layout.pipeline_layout) return TRUE;
  ms_pipeline_layout_scan(s->layout.pipeline_layout, &scan, NULL, NULL, 0);
  if (scan.layers != s->model->num_layers)
    return REFUSE("the pipeline layout has %d decoder layers, the model %d", scan.layers, s->model->num_layers);
  return scan.mtp == s->model->mtp_num_layers ||
         REFUSE("the pipeline layout has %d MTP blocks, the model %d", scan.mtp, s->model->mtp_num_layers);
}
RULE(string_mtp_place) {
  MsPipelineScan scan;
  int pp = s->layout.pp, stage, chunk;
  if (!s->layout.pipeline_layout || ms_schedule_is_v(s->layout.schedule)) return TRUE;
  ms_pipeline_layout_scan(s->layout.pipeline_layout, &scan, NULL, NULL, 0);
  if (scan.mtp == 0) return TRUE;
  ms_layout_place(s->layout.schedule, pp, scan.mtp_stage, &stage, &chunk);
  if (pp > 1 && stage == 0) return REFUSE("the MTP blocks stand on pipeline rank 0");
  return chunk == scan.virtual_stages / pp - 1 ||
         REFUSE("the MTP blocks do not stand in the last chunk of pipeline rank %d", stage);
}

/* Rule 11: layers counted, with the embedding and the loss where they stand for one. */
static gint64 counted_layers(const MsScenario *s) {
  return (gint64)s->model->num_layers + !!s->layout.account_for_embedding_in_pipeline_split +
         !!s->layout.account_for_loss_in_pipeline_split;
}

RULE(layers_divide) {
  gint64 layers = counted_layers(s);
  int v, pp = s->layout.pp;
  if (s->layout.pipeline_layout || has_ends(s)) return TRUE;
  v = ms_layout_chunks_per_rank(s);
  if (layers % pp != 0)
    return REFUSE("PP %d does not divide %d layers; a pipeline_layout may split them unevenly", pp, (int)layers);
  return layers % ms_layout_virtual_stages(s, v) == 0 ||
         REFUSE("PP %d x VPP %d does not divide %d layers; a pipeline_layout may split them unevenly", pp, v, (int)layers);
}

/* Rule 12. Stages and layers between the ends. */
static void between_ends(const MsScenario *s, int *stages, int *layers) {
  int first = s->layout.decoder_first_pipeline_num_layers, last = s->layout.decoder_last_pipeline_num_layers;
  *stages = s->layout.pp - (first > 0) - (last > 0);
  *layers = (int)CLAMP((gint64)s->model->num_layers - MAX(first, 0) - MAX(last, 0), -1, G_MAXINT);
}

RULE(ends_divide) {
  int first = s->layout.decoder_first_pipeline_num_layers, last = s->layout.decoder_last_pipeline_num_layers;
  int stages, layers, v;
  if (!has_ends(s) || s->layout.pipeline_layout) return TRUE;
  if (s->layout.pp == 1) return REFUSE("first/last layer counts need PP > 1");
  if (has_account(s)) return REFUSE("first/last layer counts go without account_for_* keys");
  if (ms_schedule_is_v(s->layout.schedule) || s->layout.schedule == MS_SCHED_DUALPIPE)
    return REFUSE("schedule %s takes no first/last layer counts", ms_schedule_words[s->layout.schedule]);
  between_ends(s, &stages, &layers);
  v = ms_layout_chunks_per_rank(s);
  if (layers < 0 || (stages == 0 ? layers > 0 : layers % stages != 0))
    return REFUSE("first %d and last %d layers leave %d for %d stages", first, last, layers, stages);
  return (first % v == 0 && last % v == 0 && (stages == 0 || layers / stages % v == 0)) ||
         REFUSE("VPP %d does not divide %d first, %d middle and %d last layers of a stage", v, first,
                stages ? layers / stages : 0, last);
}

int ms_layout_even_layers(const MsScenario *s, int v, int index) {
  int stages = (int)ms_layout_virtual_stages(s, v), pp = s->layout.pp, stage = index % pp, between, layers;
  if (!has_ends(s))
    return (int)(counted_layers(s) / stages) - (index == 0 && s->layout.account_for_embedding_in_pipeline_split) -
           (index == stages - 1 && s->layout.account_for_loss_in_pipeline_split);
  if (stage == 0 && s->layout.decoder_first_pipeline_num_layers > 0) return s->layout.decoder_first_pipeline_num_layers / v;
  if (stage == pp - 1 && s->layout.decoder_last_pipeline_num_layers > 0) return s->layout.decoder_last_pipeline_num_layers / v;
  between_ends(s, &between, &layers);
  return layers / between / v;
}

/* --- the schedule ---------------------------------------------------------------------------------------------------------- */

RULE(vpp_needs_pp) {
  int v = ms_layout_chunks_per_rank(s);
  return v == 1 || s->layout.pp > 1 || REFUSE("VPP %d needs PP > 1", v);
}
RULE(vpp_without_p2p_overlap) {
  return ms_layout_chunks_per_rank(s) == 1 || s->layout.schedule != MS_SCHED_1F1B || s->options.overlap_p2p_comm ||
         s->layout.pp > 2 || REFUSE("VPP without overlap_p2p_comm needs PP > 2, not %d", s->layout.pp);
}
/* Layers that share the choice of an indexer cannot get it from another stage (Megatron: cross-PP top-k sharing is not supported). */
RULE(shared_keys_in_stage) {
  if (s->model->sparse_attention.indexer_topk_freq <= 1 || s->layout.pp == 1) return TRUE;
  int n, bad = -1;
  g_autofree MsChunk *chunks = ms_layout_cut(s, ms_layout_chunks_per_rank(s), &n);
  for (int i = 0; i < n && bad < 0; i++)
    if (chunks[i].num_layers > 0 && ms_model_layer_is_sparse(s->model, chunks[i].first_layer) && !ms_model_layer_has_indexer(s->model, chunks[i].first_layer))
      bad = i;
  return bad < 0 || REFUSE("virtual stage %d begins with layer %d, which shares the keys chosen in a stage before", bad, chunks[bad].first_layer + 1);
}
RULE(microbatch_group) {
  gint64 m = microbatches(s);
  int pp = s->layout.pp, group = s->layout.microbatch_group_size_per_virtual_pipeline_stage;
  if (ms_layout_chunks_per_rank(s) == 1) return TRUE;
  if (s->layout.schedule == MS_SCHED_GPIPE)
    return group <= m || REFUSE("the microbatch group %d is more than %" G_GINT64_FORMAT " microbatches", group, m);
  if (s->layout.schedule != MS_SCHED_1F1B) return TRUE;
  if (group <= 0) group = pp;
  if (group < pp || group > m)
    return REFUSE("the microbatch group %d of the interleaved schedule is not between PP %d and %" G_GINT64_FORMAT
                  " microbatches", group, pp, m);
  return m % group == 0 || m % group >= pp ||
         REFUSE("%" G_GINT64_FORMAT " microbatches leave %d after groups of %d, fewer than PP %d", m, (int)(m % group),
                group, pp);
}
RULE(post_validation_schedule) {
  MsScheduleKind kind = s->layout.schedule;
  return s->options.optimizer_post_validation != TRUE || (kind >= MS_SCHED_ZB_H1 && kind <= MS_SCHED_V_MIN) ||
         REFUSE("only zero-bubble schedules end their stages one after the other; %s has no use of it", ms_schedule_words[kind]);
}
RULE(dualpipe_microbatches) {
  gint64 m = microbatches(s);
  int pp = s->layout.pp;
  if (!is_dualpipe(s)) return TRUE;
  if (s->layout.schedule == MS_SCHED_DUALPIPE && (pp % 2 || m % 2))
    return REFUSE("dualpipe needs even PP and microbatches, not %d and %" G_GINT64_FORMAT, pp, m);
  return m >= 2 * (gint64)pp || REFUSE("%s needs at least %d microbatches, not %" G_GINT64_FORMAT,
                                       ms_schedule_words[s->layout.schedule], 2 * pp, m);
}

/* --- experts: dispatcher and overlap ------------------------------------------------------------------------------------ */

RULE(dispatcher_on_hardware) {
  MsDispatcher dispatcher = s->options.dispatcher;
  gboolean has = dispatcher == MS_DISPATCH_DEEPEP ? s->hardware->deepep
                 : dispatcher == MS_DISPATCH_HYBRIDEP ? s->hardware->hybridep : TRUE;
  return !is_moe(s) || has ||
         REFUSE("%s does not exist for %s", ms_dispatcher_words[dispatcher], s->hardware->name ? s->hardware->name : "it");
}
RULE(flex_needs_group) {
  return !is_moe(s) || !ms_dispatch_is_flex(s->options.dispatcher) || times(s->layout.etp, s->layout.ep) > 1 ||
         REFUSE("%s needs ETP x EP > 1", ms_dispatcher_words[s->options.dispatcher]);
}
RULE(deepep_group_size) {
  static const guint8 sizes[] = {2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160}; /* DeepEP:deep_ep/buffer.py config maps */
  gint64 ranks = times(s->layout.etp, s->layout.ep);
  if (!is_moe(s) || s->options.dispatcher != MS_DISPATCH_DEEPEP) return TRUE;
  for (guint i = 0; i < sizeof sizes; i++)
    if (ranks == sizes[i]) return TRUE;
  return REFUSE("DeepEP has no configuration for %" G_GINT64_FORMAT " ranks (2 4 8 16 24 32 48 64 96 128 144 160)", ranks);
}
RULE(ep_overlap_needs_ep) {
  return !s->options.ep_overlap || s->layout.ep > 1 || REFUSE("EP overlap needs EP > 1");
}
RULE(ep_overlap_dispatcher) {
  return !s->options.ep_overlap || s->options.dispatcher != MS_DISPATCH_ALLGATHER ||
         REFUSE("EP overlap does not work with the allgather dispatcher");
}
RULE(ep_overlap_schedule) {
  return !s->options.ep_overlap || s->layout.schedule == MS_SCHED_1F1B || is_dualpipe(s) ||
         REFUSE("EP overlap is part of 1f1b and dualpipe, not of %s", ms_schedule_words[s->layout.schedule]);
}
RULE(ep_overlap_recompute) {
  return !s->options.ep_overlap ||
         !(s->options.recompute.granularity == MS_RECOMPUTE_FULL || ms_recomputes(&s->options, MS_RM_MOE)) ||
         REFUSE("EP overlap excludes full recompute and recompute of moe");
}
RULE(ep_overlap_shared) {
  return !s->options.ep_overlap || !s->options.moe_shared_expert_overlap ||
         REFUSE("EP overlap excludes shared-expert overlap");
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
  return !s->options.ep_overlap || !(s->options.cuda_graph_scope & (MS_CG_MOE | MS_CG_MLP)) ||
         REFUSE("EP overlap excludes CUDA graphs of moe and mlp");
}
RULE(delay_wgrad_needs_overlap) {
  return !s->options.delay_wgrad || s->options.ep_overlap || REFUSE("delay_wgrad needs ep_overlap");
}
RULE(deepep_no_padding) {
  return !is_moe(s) || s->options.dispatcher != MS_DISPATCH_DEEPEP || s->training.routing.kind != MS_ROUTING_CAPACITY ||
         !s->training.routing.pad_to_capacity || REFUSE("DeepEP cannot pad to capacity");
}
RULE(allgather_no_quant_padding) {
  return !is_moe(s) || s->options.dispatcher != MS_DISPATCH_ALLGATHER ||
         !s->options.moe_router_padding_for_quantization ||
         REFUSE("the allgather dispatcher cannot pad for quantization");
}
RULE(shared_overlap_dispatcher) {
  return !is_moe(s) || !s->options.moe_shared_expert_overlap || s->options.dispatcher != MS_DISPATCH_ALLGATHER ||
         REFUSE("shared-expert overlap does not work with the allgather dispatcher");
}
RULE(shared_overlap_recompute) {
  return !s->options.moe_shared_expert_overlap || !ms_recomputes(&s->options, MS_RM_SHARED_EXPERTS) ||
         REFUSE("shared-expert overlap excludes recompute of shared_experts");
}

/* --- layer kinds beside attention and experts ------------------------------------------------------------------------------- */

RULE(tp_divides_delta_heads) {
  int heads = s->model->linear_attention.num_key_heads;
  return heads % s->layout.tp == 0 || REFUSE("TP %d does not divide the %d key heads of the gated delta net", s->layout.tp, heads);
}
RULE(compressed_without_tp) {
  return !ms_model_has_compressed_attention(s->model) || s->layout.tp == 1 || REFUSE("compressed attention runs with TP 1 only, not %d", s->layout.tp);
}
RULE(sparse_cp_gathers) {
  return s->layout.cp == 1 || s->model->sparse_attention.indexer_topk == 0 || ms_model_has_compressed_attention(s->model) ||
         s->layout.cp_comm_type == MS_CP_ALL_GATHER || REFUSE("sparse attention with CP %d needs cp_comm_type all_gather", s->layout.cp);
}
RULE(sparse_needs_fused) {
  gboolean own = ms_model_has_compressed_attention(s->model) || s->model->sparse_attention.indexer_topk > 0;
  return !own || (s->options.attention_backend != MS_ATTN_UNFUSED && s->options.transformer_impl == MS_IMPL_TE) ||
         REFUSE("sparse attention has fused kernels only: attention_backend fused or flash, transformer_impl transformer_engine");
}
RULE(lengths_fit) {
  const MsLengths *l = &s->training.sequence_lengths;
  return l->n == 0 || l->length[l->n - 1] <= s->training.seq_length ||
         REFUSE("a sequence of %d tokens is longer than the pack of seq_length = %d", l->length[l->n - 1], s->training.seq_length);
}
RULE(packing_needs_fused) {
  return s->training.sequence_lengths.n == 0 || (s->options.attention_backend != MS_ATTN_UNFUSED && s->options.transformer_impl == MS_IMPL_TE) ||
         REFUSE("packed sequences need attention_backend fused or flash and transformer_impl transformer_engine");
}
RULE(hybrid_cp) { /* domain/layouts.md 28 */
  const MsLengths *l = &s->training.sequence_lengths;
  if (!s->options.hybrid_context_parallel)
    return s->options.max_seqlen_per_dp_cp_rank == 0 || REFUSE("max_seqlen_per_dp_cp_rank belongs to hybrid_context_parallel");
  if (l->n == 0) return REFUSE("hybrid context parallelism needs training.sequence_lengths");
  if (s->layout.pp > 1) return REFUSE("hybrid context parallelism needs PP 1, not %d", s->layout.pp);
  if (s->options.fsdp != MS_FSDP_NONE) return REFUSE("hybrid context parallelism excludes Megatron-FSDP");
  if (s->layout.cp_comm_type != MS_CP_P2P) return REFUSE("hybrid context parallelism needs cp_comm_type p2p, not %s", ms_cp_comm_words[s->layout.cp_comm_type]);
  if (s->model->sparse_attention.indexer_topk > 0 || ms_model_has_compressed_attention(s->model) || s->model->linear_attention.num_value_heads > 0 || s->model->mamba.num_heads > 0)
    return REFUSE("hybrid context parallelism needs softmax attention in all layers");
  gint64 most = s->options.max_seqlen_per_dp_cp_rank > 0 ? s->options.max_seqlen_per_dp_cp_rank : MAX(1, s->training.seq_length / s->layout.cp);
  gint64 ranks = 1, pool = s->gpus / times(s->layout.tp, s->layout.pp);
  while (ranks * most < l->length[l->n - 1]) ranks *= 2;
  return ranks <= pool || REFUSE("a sequence of %d tokens at %d a rank needs %d of %d data- and context-parallel ranks", l->length[l->n - 1], (int)most, (int)MIN(ranks, G_MAXINT), (int)pool);
}
RULE(mhc_needs_streams) {
  if (!ms_recomputes(&s->options, MS_RM_MHC)) return TRUE;
  if (ms_model_streams(s->model) == 1) return REFUSE("recompute of mhc needs a model with hyper_connections");
  return !ms_recomputes(&s->options, MS_RM_MLP) || REFUSE("recompute of mhc excludes recompute of mlp");
}
RULE(norm_out_needs_delta) {
  return !ms_recomputes(&s->options, MS_RM_GDN_NORM_OUT) || s->model->linear_attention.num_value_heads > 0 ||
         REFUSE("recompute of gdn_norm_out needs a model with linear_attention");
}

/* --- precision, optimizer, memory savers, graphs ------------------------------------------------------------------------ */

RULE(precision_on_hardware) {
  MsPrecision precision = s->training.precision;
  return !(s->hardware->unsupported_precisions >> precision & 1) ||
         REFUSE("%s cannot do %s", s->hardware->name ? s->hardware->name : "the device", ms_precision_words[precision]);
}
RULE(fp8_params_need_fp8) {
  return !s->options.fp8_param_gather || is_fp8(s->training.precision) ||
         REFUSE("fp8_param_gather needs an FP8 recipe, not %s", ms_precision_words[s->training.precision]);
}
RULE(fp4_params_need_fp4) {
  return !s->options.fp4_param_gather || s->training.precision == MS_NVFP4 ||
         REFUSE("fp4_param_gather needs nvfp4, not %s", ms_precision_words[s->training.precision]);
}
RULE(delayed_recipe) {
  if (s->training.precision != MS_FP8_DELAYED) return TRUE;
  if (s->options.num_layers_at_start_in_bf16 > 0 || s->options.num_layers_at_end_in_bf16 > 0)
    return REFUSE("the delayed FP8 recipe excludes first and last layers in BF16");
  return !ms_recomputes(&s->options, MS_RM_MOE_ACT | MS_RM_LAYERNORM) ||
         REFUSE("the delayed FP8 recipe excludes recompute of moe_act and layernorm");
}
RULE(bf16_ends_fit) {
  gint64 ends = (gint64)s->options.num_layers_at_start_in_bf16 + s->options.num_layers_at_end_in_bf16;
  return ends <= s->model->num_layers || REFUSE("%d layers at the ends in BF16, the model has %d", (int)ends, s->model->num_layers);
}
RULE(param_gather_overlap) {
  return !s->options.overlap_param_gather || s->options.fsdp != MS_FSDP_NONE ||
         (s->options.overlap_grad_reduce && s->options.distributed_optimizer) ||
         REFUSE("overlap_param_gather needs overlap_grad_reduce and distributed_optimizer");
}
RULE(optimizer_offload_fp8) {
  return !(s->options.optimizer_offload_fraction > 0) || !s->options.fp8_param_gather ||
         s->training.precision == MS_FP8_DELAYED || REFUSE("optimizer offload with fp8_param_gather needs fp8-delayed");
}
RULE(cpu_offloading) {
  int layers = s->options.cpu_offloading_num_layers;
  if (layers <= 0) return TRUE;
  if (s->layout.pp > 1) return REFUSE("cpu_offloading_num_layers needs PP 1, not %d", s->layout.pp);
  return s->options.recompute.granularity == MS_RECOMPUTE_NONE || REFUSE("cpu_offloading_num_layers excludes recompute");
}
RULE(offload_attn_proj) {
  guint32 modules = s->options.offload_modules;
  return !(modules & MS_OM_ATTN_PROJ) || (modules & MS_OM_CORE_ATTN) ||
         REFUSE("offload of attn_proj needs offload of core_attn");
}
RULE(fp8_dispatch_needs_fp8) {
  if (!s->options.fp8_dispatch) return TRUE;
  if (!ms_dispatch_is_flex(s->options.dispatcher)) return REFUSE("only deepep and hybridep carry FP8, not %s", ms_dispatcher_words[s->options.dispatcher]);
  return is_fp8(s->training.precision) || REFUSE("fp8_dispatch needs an FP8 recipe, not %s", ms_precision_words[s->training.precision]);
}
RULE(fp8_input_store_swiglu) {
  return !s->options.activation_func_fp8_input_store || (s->model->gated && s->model->activation == MS_ACT_SILU) ||
         REFUSE("activation_func_fp8_input_store is for SwiGLU only");
}
RULE(outer_sharding_needs_fsdp) {
  return s->options.outer_dp_sharding_strategy == MS_OUTER_NO_SHARD || s->options.fsdp == MS_FSDP_OPTIM_GRADS_PARAMS ||
         REFUSE("outer_dp_sharding_strategy %s needs fsdp %s", ms_outer_dp_words[s->options.outer_dp_sharding_strategy], ms_fsdp_words[MS_FSDP_OPTIM_GRADS_PARAMS]);
}
RULE(graphs_on_hardware) {
  return !s->options.cuda_graph_scope || s->hardware->cuda_graphs ||
         REFUSE("%s has no CUDA graphs", s->hardware->name ? s->hardware->name : "the device");
}
RULE(graph_scope_alone) {
  guint32 scope = s->options.cuda_graph_scope, whole = scope & (MS_CG_FULL_ITERATION | MS_CG_LAYER);
  return !whole || scope == MS_CG_FULL_ITERATION || scope == MS_CG_LAYER ||
         REFUSE("full_iteration and layer each stand alone in cuda_graph_scope");
}
RULE(graph_preprocess) {
  guint32 scope = s->options.cuda_graph_scope;
  return !(scope & MS_CG_MOE_PREPROCESS) || (scope & MS_CG_MOE_ROUTER) ||
         REFUSE("a graph of moe_preprocess needs moe_router");
}
RULE(graph_recompute) {
  guint32 scope = s->options.cuda_graph_scope;
  if (scope && scope != MS_CG_FULL_ITERATION && s->options.recompute.granularity == MS_RECOMPUTE_FULL)
    return REFUSE("full recompute only goes with full_iteration graphs");
  return !(scope & MS_CG_MOE_ROUTER) || !ms_recomputes(&s->options, MS_RM_MOE) ||
         REFUSE("recompute of moe excludes graphs of moe_router");
}

const MsRule ms_rules[] = {
    {"sizes-positive", "layout", 0, "every size is at least 1", sizes_positive},
    {"pp-in-range", "layout.pp", 0, "PP and the number of virtual stages are within limits", pp_in_range},
    {"world-divides", "gpus", 1, "TP x CP x PP divides the GPUs", world_divides},
    {"ep-needs-experts", "layout.ep", 0, "a dense model has EP 1", ep_needs_experts},
    {"etp-needs-experts", "layout.etp", 0, "a dense model has ETP 1 (or TP)", etp_needs_experts},
    {"expert-world-divides", "layout.ep", 1, "ETP x EP x PP divides the GPUs", expert_world_divides},
    {"dp-agrees", "layout.dp", 0, "DP, if given, is what the GPUs leave", dp_agrees},
    {"edp-agrees", "layout.edp", 0, "expert DP, if given, is what the GPUs leave", edp_agrees},
    {"order-pp-last", "layout.order", 0, "pp before dp needs PP 1 or equal DP and expert DP", order_pp_last},
    {"optimizer-instances-divide", "options.num_distributed_optimizer_instances", 0,
     "optimizer instances divide DP x CP", optimizer_instances},
    {"tp-divides-heads", "layout.tp", 2, "TP divides the attention heads", tp_divides_heads},
    {"tp-fits-kv-groups", "layout.tp", 3, "TP divides the KV groups or they divide TP", tp_fits_kv_groups},
    {"ep-divides-experts", "layout.ep", 4, "EP divides the experts", ep_divides_experts},
    {"moe-tp-needs-sp", "options.sequence_parallel", 5, "MoE with TP needs sequence parallelism", moe_tp_needs_sp},
    {"tp-comm-overlap-needs-sp", "options.tp_comm_overlap", 7, "TP communication overlap needs sequence parallelism",
     tp_comm_overlap_needs_sp},
    {"deterministic-loss", "options.cross_entropy_fusion", 0, "deterministic mode without fused cross entropy", deterministic_loss},
    {"deterministic-tp-overlap", "options.tp_comm_overlap", 0, "deterministic mode without overlap of TP communication", deterministic_tp_overlap},
    {"deterministic-delta", "options.deterministic_mode", 0, "no deterministic mode with delta nets", deterministic_delta},
    {"cp-divides-sequence", "layout.cp", 8, "2 x CP divides the sequence", cp_divides_sequence},
    {"sp-divides-sequence", "layout.tp", 8, "with sequence parallelism CP x TP divides the sequence", sp_divides_sequence},
    {"tp-divides-ffn", "layout.tp", 9, "TP divides the width of dense FFNs", tp_divides_ffn},
    {"etp-divides-expert-ffn", "layout.etp", 9, "ETP divides the width of an expert", etp_divides_expert_ffn},
    {"tp-divides-shared-expert", "layout.tp", 9, "TP divides the width of the shared experts", tp_divides_shared_expert},
    {"ulysses-divides-heads", "layout.cp", 27, "CP with a2a divides the heads and KV groups of a TP rank",
     ulysses_divides_heads},
    {"batch-divides", "training.global_batch_size", 10, "micro-batch x DP divides the global batch", batch_divides},
    {"router-groups-divide", "model.moe_router_num_groups", 19, "router groups divide the experts", router_groups_divide, MS_RULE_OPTIONS},
    {"expert-bias-needs-sigmoid", "model.moe_router_enable_expert_bias", 20, "expert bias needs sigmoid or sqrtsoftplus scores",
     expert_bias_needs_sigmoid, MS_RULE_OPTIONS},
    {"moe-bias-needs-etp1", "layout.etp", 23, "experts with bias need ETP 1", moe_bias_needs_etp1},
    {"layout-string-reads", "layout.pipeline_layout", 13, "one E first, one L last, decoders before MTP blocks",
     string_reads, MS_RULE_SPLIT},
    {"layout-string-alone", "layout.pipeline_layout", 13, "a pipeline layout excludes other ways to split", string_alone, MS_RULE_SPLIT},
    {"layout-string-stages", "layout.pipeline_layout", 13, "the virtual stages are PP x VPP", string_stages, MS_RULE_SPLIT},
    {"layout-string-layers", "layout.pipeline_layout", 13, "the string has the model's decoder layers and MTP blocks",
     string_layers, MS_RULE_SPLIT},
    {"layout-string-mtp-place", "layout.pipeline_layout", 13,
     "MTP blocks stand in the last chunk of a pipeline rank other than 0", string_mtp_place, MS_RULE_SPLIT},
    {"schedule-chunks", "layout.vpp", 0, "VPP fits the schedule", schedule_chunks, MS_RULE_SPLIT},
    {"layers-divide", "layout.pp", 11, "PP x VPP divides the layers", layers_divide, MS_RULE_SPLIT},
    {"ends-divide", "layout.decoder_first_pipeline_num_layers", 12, "first, middle and last layers divide evenly",
     ends_divide, MS_RULE_SPLIT},
    {"vpp-needs-pp", "layout.vpp", 14, "VPP needs PP > 1", vpp_needs_pp},
    {"vpp-without-p2p-overlap", "options.overlap_p2p_comm", 14, "VPP without p2p overlap needs PP > 2",
     vpp_without_p2p_overlap},
    {"shared-keys-in-stage", "layout.pp", 0, "a stage begins with a layer that has an indexer of its own", shared_keys_in_stage, MS_RULE_SPLIT},
    {"microbatch-group", "layout.microbatch_group_size_per_virtual_pipeline_stage", 15,
     "interleaving: PP <= group <= microbatches, and the rest is none or at least PP", microbatch_group},
    {"post-validation-schedule", "options.optimizer_post_validation", 0, "optimizer post-validation needs a zero-bubble schedule",
     post_validation_schedule, MS_RULE_OPTIONS},
    {"dualpipe-microbatches", "layout.schedule", 0, "DualPipe needs 2 x PP microbatches, and even numbers",
     dualpipe_microbatches},
    {"dispatcher-on-hardware", "options.dispatcher", 0, "the dispatcher exists for the device", dispatcher_on_hardware, MS_RULE_OPTIONS},
    {"flex-needs-group", "options.dispatcher", 0, "DeepEP and HybridEP need ETP x EP > 1", flex_needs_group},
    {"deepep-group-size", "options.dispatcher", 0, "DeepEP has configurations for some group sizes only", deepep_group_size},
    {"ep-overlap-needs-ep", "options.ep_overlap", 17, "EP overlap needs EP > 1", ep_overlap_needs_ep},
    {"ep-overlap-dispatcher", "options.ep_overlap", 17, "EP overlap needs alltoall, deepep or hybridep",
     ep_overlap_dispatcher, MS_RULE_OPTIONS},
    {"ep-overlap-schedule", "options.ep_overlap", 17, "EP overlap needs 1f1b, dualpipe or dualpipev", ep_overlap_schedule, MS_RULE_OPTIONS},
    {"ep-overlap-recompute", "options.ep_overlap", 17, "EP overlap excludes full and moe recompute", ep_overlap_recompute, MS_RULE_OPTIONS},
    {"ep-overlap-shared", "options.ep_overlap", 17, "EP overlap excludes shared-expert overlap", ep_overlap_shared, MS_RULE_OPTIONS},
    {"ep-overlap-mtp", "options.ep_overlap", 17, "EP overlap takes one MTP block at most", ep_overlap_mtp, MS_RULE_OPTIONS},
    {"ep-overlap-vpp", "options.ep_overlap", 17, "EP overlap with a pipeline needs VPP > 1", ep_overlap_vpp},
    {"ep-overlap-graphs", "options.ep_overlap", 17, "EP overlap excludes graphs of moe and mlp", ep_overlap_graphs, MS_RULE_OPTIONS},
    {"delay-wgrad-needs-overlap", "options.delay_wgrad", 18, "delayed weight gradients need EP overlap",
     delay_wgrad_needs_overlap, MS_RULE_OPTIONS},
    {"deepep-no-padding", "training.routing", 21, "DeepEP cannot pad to capacity", deepep_no_padding, MS_RULE_OPTIONS},
    {"allgather-no-quant-padding", "options.moe_router_padding_for_quantization", 22,
     "the allgather dispatcher cannot pad for quantization", allgather_no_quant_padding, MS_RULE_OPTIONS},
    {"shared-overlap-dispatcher", "options.moe_shared_expert_overlap", 24,
     "shared-expert overlap needs alltoall, deepep or hybridep", shared_overlap_dispatcher, MS_RULE_OPTIONS},
    {"shared-overlap-recompute", "options.moe_shared_expert_overlap", 0,
     "shared-expert overlap excludes recompute of shared_experts", shared_overlap_recompute, MS_RULE_OPTIONS},
    {"tp-divides-delta-heads", "layout.tp", 0, "TP divides the key heads of gated delta nets", tp_divides_delta_heads},
    {"compressed-without-tp", "layout.tp", 0, "compressed attention needs TP 1", compressed_without_tp},
    {"sparse-cp-gathers", "layout.cp_comm_type", 0, "sparse attention with CP needs all_gather", sparse_cp_gathers},
    {"sparse-needs-fused", "options.attention_backend", 0, "sparse attention has fused kernels only", sparse_needs_fused, MS_RULE_OPTIONS},
    {"lengths-fit", "training.sequence_lengths", 0, "no packed sequence is longer than the pack", lengths_fit, MS_RULE_OPTIONS},
    {"packing-needs-fused", "training.sequence_lengths", 0, "packed sequences need fused or flash attention", packing_needs_fused, MS_RULE_OPTIONS},
    {"hybrid-cp", "options.hybrid_context_parallel", 28, "hybrid CP: packed sequences, PP 1, p2p, no FSDP, softmax attention, enough ranks for the longest", hybrid_cp},
    {"mhc-needs-streams", "options.recompute.modules", 0, "recompute of mhc needs hyper-connections and excludes mlp", mhc_needs_streams, MS_RULE_OPTIONS},
    {"norm-out-needs-delta", "options.recompute.modules", 0, "recompute of gdn_norm_out needs gated delta nets", norm_out_needs_delta, MS_RULE_OPTIONS},
    {"precision-on-hardware", "training.precision", 0, "the device has the precision", precision_on_hardware, MS_RULE_OPTIONS},
    {"fp8-params-need-fp8", "options.fp8_param_gather", 31, "FP8 parameters need an FP8 recipe", fp8_params_need_fp8, MS_RULE_OPTIONS},
    {"fp4-params-need-fp4", "options.fp4_param_gather", 31, "FP4 parameters need nvfp4", fp4_params_need_fp4, MS_RULE_OPTIONS},
    {"delayed-recipe", "training.precision", 31,
     "the delayed recipe excludes BF16 end layers and recompute of moe_act and layernorm", delayed_recipe, MS_RULE_OPTIONS},
    {"bf16-ends-fit", "options.num_layers_at_start_in_bf16", 0, "BF16 end layers are no more than there are", bf16_ends_fit, MS_RULE_OPTIONS},
    {"param-gather-overlap", "options.overlap_param_gather", 25,
     "parameter-gather overlap needs gradient-reduce overlap and the distributed optimizer (FSDP has both)",
     param_gather_overlap, MS_RULE_OPTIONS},
    {"optimizer-offload-fp8", "options.optimizer_offload_fraction", 26,
     "optimizer offload with FP8 parameters needs the delayed recipe", optimizer_offload_fp8, MS_RULE_OPTIONS},
    {"cpu-offloading", "options.cpu_offloading_num_layers", 0, "whole-layer offload needs PP 1 and no recompute",
     cpu_offloading},
    {"offload-attn-proj", "options.offload_modules", 0, "offload of attn_proj needs core_attn", offload_attn_proj, MS_RULE_OPTIONS},
    {"fp8-dispatch-needs-fp8", "options.fp8_dispatch", 0, "FP8 dispatch needs an FP8 recipe and deepep or hybridep", fp8_dispatch_needs_fp8, MS_RULE_OPTIONS},
    {"fp8-input-store-swiglu", "options.activation_func_fp8_input_store", 0, "the FP8 store of activation inputs needs SwiGLU", fp8_input_store_swiglu, MS_RULE_OPTIONS},
    {"outer-sharding-needs-fsdp", "options.outer_dp_sharding_strategy", 0, "sharding over the outer groups needs FSDP of the parameters", outer_sharding_needs_fsdp, MS_RULE_OPTIONS},
    {"graphs-on-hardware", "options.cuda_graph_scope", 0, "the device has CUDA graphs", graphs_on_hardware, MS_RULE_OPTIONS},
    {"graph-scope-alone", "options.cuda_graph_scope", 33, "full_iteration and layer stand alone", graph_scope_alone, MS_RULE_OPTIONS},
    {"graph-preprocess", "options.cuda_graph_scope", 0, "moe_preprocess needs moe_router", graph_preprocess, MS_RULE_OPTIONS},
    {"graph-recompute", "options.cuda_graph_scope", 0,
     "full recompute needs full_iteration; moe recompute excludes moe_router", graph_recompute, MS_RULE_OPTIONS},
};
const int ms_num_rules = G_N_ELEMENTS(ms_rules);
