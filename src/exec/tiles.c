/* src/exec/tiles.c - which pairs of positions a tile of attention sees, for the kernels and for counting. */
#include "exec/kernel.h"

typedef struct {
  gint32 least, most;
} Range;

static Range range_of(const gint32 *pos, int n) {
  Range r = {G_MAXINT32, G_MININT32};
  for (int i = 0; i < n; i++) r.least = MIN(r.least, pos[i]), r.most = MAX(r.most, pos[i]);
  return r;
}

MsTileMask ms_attention_tile(const MsAttentionShape *shape, int q0, int queries, int k0, int keys) {
  Range q = range_of(shape->q_pos + q0, queries), k = range_of(shape->k_pos + k0, keys);
  gint64 window = shape->window > 0 ? shape->window : G_MAXINT64 / 2;
  if (k.least > q.most || k.most <= q.least - window) return MS_TILE_NONE;
  return k.most <= q.least && k.least > q.most - window ? MS_TILE_ALL : MS_TILE_PARTIAL;
}

static double visible_in(const MsAttentionShape *shape, int q0, int queries, int k0, int keys) {
  gint64 seen = 0, window = shape->window > 0 ? shape->window : G_MAXINT64 / 2;
  for (int i = q0; i < q0 + queries; i++)
    for (int j = k0; j < k0 + keys; j++)
      seen += shape->k_pos[j] <= shape->q_pos[i] && shape->k_pos[j] > shape->q_pos[i] - window;
  return (double)seen;
}

MsAttentionPairs ms_attention_pairs(const MsAttentionShape *shape) {
  MsAttentionPairs pairs = {0};
  for (int q0 = 0; q0 < shape->sq; q0 += MS_ATTENTION_ROWS)
    for (int k0 = 0; k0 < shape->sk; k0 += MS_ATTENTION_KEYS) {
      int queries = MIN(MS_ATTENTION_ROWS, shape->sq - q0), keys = MIN(MS_ATTENTION_KEYS, shape->sk - k0);
      MsTileMask mask = ms_attention_tile(shape, q0, queries, k0, keys);
      if (mask == MS_TILE_NONE) continue;
      pairs.multiplied += (double)queries * keys;
      pairs.visible += mask == MS_TILE_ALL ? (double)queries * keys : visible_in(shape, q0, queries, k0, keys);
    }
  return pairs;
}
