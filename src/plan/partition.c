/* src/plan/partition.c - decoder layers to virtual stages, balanced, where they do not divide evenly. */
#include "plan/plan_priv.h"
#include <math.h>

double ms_head_weight(const MsModel *m, int seq_length) {
  MsModelFlop f = ms_model_flop_per_token(m, seq_length);
  double layers = m->num_layers + m->mtp_num_layers;
  double layer = (f.attention_linear + f.attention_core + f.mlp) / layers;
  return layer > 0 ? f.logits / layer : 1;
}

/* Smallest whole cap on (layers + end weight) of a stage that still holds all layers; what is left over is taken from the first stages,
 * which keep the most activations alive. */
gboolean ms_partition(int layers, int stages, double embedding, double tail, int *counts) {
  if (stages < 1 || layers < 1) return FALSE;
  if (stages == 1) {
    counts[0] = layers;
    return TRUE;
  }
  int first_cost = (int)ceil(embedding - 1e-9), last_cost = (int)lround(tail);
  for (int cap = (layers + stages - 1) / stages;; cap++) {
    int first = MAX(0, cap - first_cost), last = MAX(0, cap - last_cost);
    gint64 room = (gint64)first + last + (gint64)cap * (stages - 2);
    if (room < layers) continue;
    counts[0] = first;
    counts[stages - 1] = last;
    for (int i = 1; i < stages - 1; i++) counts[i] = cap;
    int surplus = (int)(room - layers);
    for (int i = 0; surplus > 0; i = (i + 1) % stages) {
      int floor_of = i == 0 || i == stages - 1 ? 0 : 1;
      if (counts[i] > floor_of) counts[i]--, surplus--;
      else if (cap <= 1) return FALSE;
    }
    return TRUE;
  }
}

char *ms_partition_text(const int *counts, int stages, int mtp) {
  MsChunk *chunks = g_new0(MsChunk, stages);
  int layer = 0;
  for (int i = 0; i < stages; i++) {
    chunks[i].first_layer = layer;
    chunks[i].num_layers = counts[i];
    layer += counts[i];
  }
  chunks[0].has_embedding = TRUE;
  chunks[stages - 1].has_loss = TRUE;
  chunks[stages - 1].num_mtp = mtp;
  char *text = ms_pipeline_layout_text(chunks, stages);
  g_free(chunks);
  return text;
}
