/* src/layout/stages.c - the virtual stages of a scenario: how many, where each lies, which layers it has. */
#include "describe/framework.h"
#include "layout/rules.h"

int ms_layout_flush(const MsScenario *s, int microbatches) {
  return s->training.local_batch_size > 0 ? s->training.local_batch_size / s->training.micro_batch_size : microbatches;
}

static gboolean exchanges(const MsScenario *s, const MsLayout *l) {
  return ms_framework(s)->megatron_messages && l->vpp > 1 && !s->options.overlap_p2p_comm;
}

static gboolean receives(const MsScenario *s, const MsLayout *l) {
  gboolean beside = s->options.overlap_p2p_comm && s->options.overlap_p2p_comm_warmup_flush;
  return ms_framework(s)->megatron_messages && l->vpp > 1 && !beside;
}

MsScheduleNumbers ms_layout_schedule_numbers(const MsScenario *s, const MsLayout *l) {
  return (MsScheduleNumbers){.stages = l->pp,
                             .microbatches = l->microbatches,
                             .chunks = l->vpp,
                             .group = l->group_size,
                             .ep_overlap = s->options.ep_overlap,
                             .f = 1,
                             .i = 1,
                             .w = 1,
                             .flush = l->flush,
                             .exchanges = exchanges(s, l),
                             .receives = receives(s, l)};
}

int ms_layout_chunks_per_rank(const MsScenario *s) {
  MsPipelineScan scan;
  if (ms_schedule_chunks(s->layout.schedule) == 2) return 2;
  if (!s->layout.pipeline_layout || s->layout.vpp > 1) return s->layout.vpp; /* layout-string-stages: they agree */
  if (!ms_pipeline_layout_scan(s->layout.pipeline_layout, &scan, NULL, NULL, 0)) return -1;
  return scan.virtual_stages % s->layout.pp == 0 ? scan.virtual_stages / s->layout.pp : -1;
}

gint64 ms_layout_virtual_stages(const MsScenario *s, int chunks_per_rank) {
  return times(s->layout.pp, chunks_per_rank / (int)ms_schedule_row(s->layout.schedule)->copies);
}

void ms_layout_place(MsScheduleKind kind, int pp, int index, int *stage, int *chunk) {
  *chunk = index / pp;
  *stage = ms_placement_stage(ms_schedule_row(kind)->placement, pp, index);
}

gint64 ms_layout_counted_layers(const MsScenario *s) {
  return (gint64)s->model->num_layers + !!s->layout.account_for_embedding_in_pipeline_split +
         !!s->layout.account_for_loss_in_pipeline_split;
}

void ms_layout_between_ends(const MsScenario *s, int *stages, int *layers) {
  int first = s->layout.decoder_first_pipeline_num_layers, last = s->layout.decoder_last_pipeline_num_layers;
  *stages = s->layout.pp - (first > 0) - (last > 0);
  *layers = (int)CLAMP((gint64)s->model->num_layers - MAX(first, 0) - MAX(last, 0), -1, G_MAXINT);
}

static int even_layers(const MsScenario *s, int v, int index) {
  int stages = (int)ms_layout_virtual_stages(s, v), pp = s->layout.pp, stage = index % pp, between, layers;
  if (!has_ends(s))
    return (int)(ms_layout_counted_layers(s) / stages) -
           (index == 0 && s->layout.account_for_embedding_in_pipeline_split) -
           (index == stages - 1 && s->layout.account_for_loss_in_pipeline_split);
  if (stage == 0 && s->layout.decoder_first_pipeline_num_layers > 0)
    return s->layout.decoder_first_pipeline_num_layers / v;
  if (stage == pp - 1 && s->layout.decoder_last_pipeline_num_layers > 0)
    return s->layout.decoder_last_pipeline_num_layers / v;
  ms_layout_between_ends(s, &between, &layers);
  return layers / between / v;
}

MsChunk *ms_layout_cut(const MsScenario *s, int chunks_per_rank, int *n) {
  if (s->layout.pipeline_layout) return ms_pipeline_layout_parse(s->layout.pipeline_layout, n, NULL, 0);
  *n = (int)ms_layout_virtual_stages(s, chunks_per_rank);
  MsChunk *chunks = g_new0(MsChunk, *n);
  for (int i = 0, layer = 0; i < *n; layer += chunks[i++].num_layers) {
    chunks[i].first_layer = layer;
    chunks[i].num_layers = even_layers(s, chunks_per_rank, i);
  }
  chunks[0].has_embedding = TRUE;
  chunks[*n - 1].has_loss = TRUE;
  chunks[*n - 1].num_mtp = s->model->mtp_num_layers;
  return chunks;
}

gboolean ms_layout_said_by_ends(const MsScenario *s, int *first, int *last) {
  int n = 0, v = ms_layout_chunks_per_rank(s);
  g_autofree MsChunk *c = v > 0 ? ms_layout_cut(s, v, &n) : NULL;
  *first = *last = 0;
  if (n < 1 || !c[0].has_embedding || !c[n - 1].has_loss || c[n - 1].num_mtp != s->model->mtp_num_layers) return FALSE;
  for (int k = 2; k < n - 1; k++)
    if (c[k].num_layers != c[1].num_layers) return FALSE;
  if (c[0].num_layers != c[n > 1].num_layers) *first = c[0].num_layers;
  if (n > 2 && c[n - 1].num_layers != c[1].num_layers) *last = c[n - 1].num_layers;
  return c[0].num_layers > 0 && c[n - 1].num_layers > 0 && (v == 1 || (*first == 0 && *last == 0));
}
