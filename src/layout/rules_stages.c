/* src/layout/rules_stages.c - rules of layers on stages and of schedules. */
#include "describe/framework.h"
#include "layout/rules.h"
#include <string.h>

/* --- layers on stages ------------------------------------------------------------------------------------------ */

RULE(schedule_chunks) {
  int vpp = s->layout.vpp, chunks = ms_schedule_chunks(s->layout.schedule);
  if (chunks == 0) return TRUE;
  if (chunks == 2)
    return vpp <= 2 ||
           REFUSE("schedule %s has two chunks on a rank, not VPP %d", ms_schedule_words[s->layout.schedule], vpp);
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
  if (scan.virtual_stages % pp != 0)
    return REFUSE("PP %d does not divide the %d virtual stages", pp, scan.virtual_stages);
  if (ms_schedule_chunks(kind) == 2)
    return scan.virtual_stages == ms_layout_virtual_stages(s, 2) ||
           REFUSE("%d virtual stages, but schedule %s on PP %d has %d", scan.virtual_stages, ms_schedule_words[kind],
                  pp, (int)ms_layout_virtual_stages(s, 2));
  return vpp == 1 || vpp == scan.virtual_stages / pp ||
         REFUSE("%d virtual stages on PP %d make VPP %d, not %d", scan.virtual_stages, pp, scan.virtual_stages / pp,
                vpp);
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
  if (!s->layout.pipeline_layout || ms_schedule_row(s->layout.schedule)->placement == MS_PLACE_V) return TRUE;
  ms_pipeline_layout_scan(s->layout.pipeline_layout, &scan, NULL, NULL, 0);
  if (scan.mtp == 0) return TRUE;
  ms_layout_place(s->layout.schedule, pp, scan.mtp_stage, &stage, &chunk);
  if (pp > 1 && stage == 0) return REFUSE("the MTP blocks stand on pipeline rank 0");
  return chunk == scan.virtual_stages / pp - 1 ||
         REFUSE("the MTP blocks do not stand in the last chunk of pipeline rank %d", stage);
}

/* Rule 11: layers counted, with the embedding and the loss where they stand for one. */
RULE(layers_divide) {
  gint64 layers = ms_layout_counted_layers(s);
  int v, pp = s->layout.pp;
  if (s->layout.pipeline_layout || has_ends(s)) return TRUE;
  v = ms_layout_chunks_per_rank(s);
  if (layers % pp != 0)
    return REFUSE("PP %d does not divide %d layers; a pipeline_layout may split them unevenly", pp, (int)layers);
  return layers % ms_layout_virtual_stages(s, v) == 0 ||
         REFUSE("PP %d x VPP %d does not divide %d layers; a pipeline_layout may split them unevenly", pp, v,
                (int)layers);
}

/* Rule 12. Stages and layers between the ends. */
RULE(ends_divide) {
  int first = s->layout.decoder_first_pipeline_num_layers, last = s->layout.decoder_last_pipeline_num_layers;
  int stages, layers, v;
  if (!has_ends(s) || s->layout.pipeline_layout) return TRUE;
  if (s->layout.pp == 1) return REFUSE("first/last layer counts need PP > 1");
  if (has_account(s)) return REFUSE("first/last layer counts go without account_for_* keys");
  if (ms_schedule_chunks(s->layout.schedule) == 2)
    return REFUSE("schedule %s takes no first/last layer counts", ms_schedule_words[s->layout.schedule]);
  ms_layout_between_ends(s, &stages, &layers);
  v = ms_layout_chunks_per_rank(s);
  if (layers < 0 || (stages == 0 ? layers > 0 : layers % stages != 0))
    return REFUSE("first %d and last %d layers leave %d for %d stages", first, last, layers, stages);
  return (first % v == 0 && last % v == 0 && (stages == 0 || layers / stages % v == 0)) ||
         REFUSE("VPP %d does not divide %d first, %d middle and %d last layers of a stage", v, first,
                stages ? layers / stages : 0, last);
}

/* Where the rules above hold. */
RULE(framework_stages) {
  int first, last;
  return !ms_framework(s)->ends_only || ms_layout_said_by_ends(s, &first, &last) ||
         REFUSE("%s has layers of their own number on the first and last stage only, without VPP, and MTP blocks on "
                "the last",
                ms_framework(s)->word);
}

/* --- the schedule ---------------------------------------------------------------------------------------------- */

RULE(framework_chunks) {
  int v = ms_layout_chunks_per_rank(s);
  return v == 1 || ms_framework(s)->interleaves ||
         REFUSE("%s has one chunk of layers on a stage, not %d", ms_framework(s)->word, v);
}
RULE(vpp_needs_pp) {
  int v = ms_layout_chunks_per_rank(s);
  return v == 1 || s->layout.pp > 1 || REFUSE("VPP %d needs PP > 1", v);
}
RULE(vpp_without_p2p_overlap) {
  return ms_layout_chunks_per_rank(s) == 1 || ms_schedule_row(s->layout.schedule)->refused ||
         s->options.overlap_p2p_comm || s->layout.pp > 2 || !ms_framework(s)->launched ||
         REFUSE("VPP without overlap_p2p_comm needs PP > 2, not %d", s->layout.pp);
}
RULE(flush_without_p2p_overlap) {
  return s->options.overlap_p2p_comm || !s->options.overlap_p2p_comm_warmup_flush ||
         REFUSE("overlap_p2p_comm_warmup_flush needs overlap_p2p_comm");
}
/* Layers that share the choice of an indexer cannot get it from another stage (Megatron: cross-PP top-k sharing is not
 * supported). */
RULE(shared_keys_in_stage) {
  if (s->model->sparse_attention.indexer_topk_freq <= 1 || s->layout.pp == 1) return TRUE;
  int n, bad = -1;
  g_autofree MsChunk *chunks = ms_layout_cut(s, ms_layout_chunks_per_rank(s), &n);
  for (int i = 0; i < n && bad < 0; i++)
    if (chunks[i].num_layers > 0 && ms_model_layer_is_sparse(s->model, chunks[i].first_layer) &&
        !ms_model_layer_has_indexer(s->model, chunks[i].first_layer))
      bad = i;
  return bad < 0 || REFUSE("virtual stage %d begins with layer %d, which shares the keys chosen in a stage before", bad,
                           chunks[bad].first_layer + 1);
}
/* What the schedule itself says of stages, microbatches and groups; EP overlap has rules of its own. */
static gboolean fits_with(const MsScenario *s, int microbatches, char *why, size_t size) {
  MsScheduleNumbers n = {.stages = s->layout.pp,
                         .microbatches = microbatches,
                         .chunks = ms_layout_chunks_per_rank(s),
                         .group = MAX(0, s->layout.microbatch_group_size_per_virtual_pipeline_stage)};
  return ms_schedule_row(s->layout.schedule)->fits(&n, why, size);
}

enum { MOST_GROUP = 65536 }; /* that a file may say */

/* The nearest number of microbatches below (step -1) or above that fits; 0: none within two groups. */
static int nearest_fit(const MsScenario *s, int microbatches, int step) {
  int group = MIN(MAX(s->layout.pp, s->layout.microbatch_group_size_per_virtual_pipeline_stage), MOST_GROUP);
  int last = step < 0 ? MAX(1, microbatches - 2 * group) : microbatches + 2 * group;
  for (int m = microbatches + step; step < 0 ? m >= last : m <= last; m += step)
    if (fits_with(s, m, NULL, 0)) return m;
  return 0;
}

/* The batches beside it that would do, as the end of a reason. */
static void append_batches(const MsScenario *s, int microbatches, char *why, size_t size) {
  gint64 of_one = times(s->training.micro_batch_size, data_parallel(s));
  gboolean local = s->training.local_batch_size > 0;
  int below = nearest_fit(s, microbatches, -1), above = nearest_fit(s, microbatches, 1);
  if (local) of_one = s->training.micro_batch_size;
  size_t length = strlen(why);
  if (below == 0) below = above;
  if (above == 0) above = below;
  if (below == 0 || s->pools.shares > 0) return;
  g_snprintf(why + length, size - length, "; a %s batch of %" G_GINT64_FORMAT, local ? "local" : "global",
             times(below, of_one));
  length = strlen(why);
  if (above != below) g_snprintf(why + length, size - length, " or %" G_GINT64_FORMAT, times(above, of_one));
  g_strlcat(why, " would do", size);
}

static gboolean fits(const MsScenario *s, char *why, size_t size) {
  int m = MIN(ms_layout_flush(s, (int)MIN(microbatches(s), G_MAXINT)), G_MAXINT / 2);
  if (fits_with(s, m, why, size)) return TRUE;
  if (size > 0) append_batches(s, m, why, size);
  return FALSE;
}

RULE(microbatch_group) { return ms_schedule_chunks(s->layout.schedule) != 0 || fits(s, why, size); }
RULE(schedule_microbatches) { return ms_schedule_chunks(s->layout.schedule) == 0 || fits(s, why, size); }

static gboolean steps_overlap(const MsScheduleRow *row) { return row->steps == MS_STEPS_OVERLAP; }

RULE(post_validation_schedule) {
  const MsScheduleRow *row = ms_schedule_row(s->layout.schedule);
  if (s->options.optimizer_post_validation != TRUE || steps_overlap(row)) return TRUE;
  if (size == 0) return FALSE;
  g_autofree char *words = ms_schedule_words_of(steps_overlap);
  return REFUSE("%s has no use of it: stages end one after the other with %s", row->word, words);
}
