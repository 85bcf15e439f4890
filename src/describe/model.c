/* src/describe/model.c - what a layer of a model is. */
#include "describe/model_kinds.h"

int ms_mixer_of(char letter) {
  switch (letter) {
  case 'M': return MS_MIX_MAMBA;
  case 'G': return MS_MIX_DELTA;
  case '*': return MS_MIX_ATTN;
  case 'E': return MS_MIX_MOE;
  case '-': return MS_MIX_MLP;
  default: return 0;
  }
}

guint8 ms_model_mixers(const MsModel *model, int layer) {
  if (model->mixers) return model->mixers[layer];
  gboolean moe = model->num_experts > 0 && model->moe_layer && model->moe_layer[layer];
  int frequency = model->linear_attention.frequency;
  return (guint8)((frequency > 0 && (layer + 1) % frequency != 0 ? MS_MIX_DELTA : MS_MIX_ATTN) |
                  (moe ? MS_MIX_MOE : MS_MIX_MLP));
}

guint8 ms_model_mtp_mixers(const MsModel *model) {
  if (!model->mtp_pattern) return ms_model_mixers(model, model->num_layers - 1);
  guint8 mixers = 0;
  for (const char *c = model->mtp_pattern; *c; c++) mixers |= (guint8)ms_mixer_of(*c);
  return mixers;
}

gboolean ms_model_layer_is_windowed(const MsModel *model, int layer) {
  const MsSlidingWindow *sliding = &model->sliding_window;
  layer = MIN(layer, model->num_layers - 1);
  return sliding->window > 0 && (sliding->period == 0 || (layer + 1) % sliding->period != 0);
}

int ms_model_padded_vocab(const MsModel *model, int tp) {
  gint64 unit = (gint64)model->make_vocab_size_divisible_by * MAX(tp, 1);
  gint64 padded = (model->vocab_size + unit - 1) / unit * unit;
  return (int)MIN(padded, G_MAXINT);
}

int ms_model_compress_ratio(const MsModel *m, int layer) {
  return m->compress_ratio ? m->compress_ratio[MIN(layer, m->num_compress_ratios - 1)] : 0;
}

gboolean ms_model_layer_is_sparse(const MsModel *m, int layer) {
  if (m->sparse_attention.indexer_topk == 0) return FALSE;
  return ms_model_has_compressed_attention(m) ? ms_model_compress_ratio(m, layer) == 4 : TRUE;
}

gboolean ms_model_layer_has_indexer(const MsModel *m, int layer) {
  const MsSparseAttention *a = &m->sparse_attention;
  if (!ms_model_layer_is_sparse(m, layer)) return FALSE;
  if (layer >= m->num_layers || ms_model_has_compressed_attention(m)) return TRUE; /* an MTP block chooses for itself */
  int past = layer + 1 - MAX(a->indexer_skip_topk_offset, 1);
  return past <= 0 || past % a->indexer_topk_freq == 0;
}
