/* src/work/matrices.c - what Muon steps: every weight of a layer that is a matrix, each whole on one shard of the
 * optimizer (docs/theory/operators.md 8; Megatron-LM core/optimizer/emerging_optimizers.py, layer_wise_optimizer.py).
 */
#include "work/matrices.h"
#include <math.h>
#include <string.h>

typedef struct {
  GArray *all;
  const MsWork *work;
} Found;

static void add(const Found *f, double rows, double columns, const MsOp *op) {
  const MsLayout *l = f->work->layout;
  gboolean expert = (op->flags & MS_OPF_EXPERT) != 0,
           split = (op->flags & (MS_OPF_ROWS_SPLIT | MS_OPF_COLUMNS_SPLIT)) != 0;
  double ranks = expert ? l->etp : l->tp;
  rows *= op->flags & MS_OPF_ROWS_SPLIT ? ranks : 1, columns *= op->flags & MS_OPF_COLUMNS_SPLIT ? ranks : 1;
  MsMatrices x = {.m = MIN(rows, columns),
                  .n = MAX(rows, columns),
                  .parts = split ? ranks : 1,
                  .short_split = split && (op->flags & MS_OPF_ROWS_SPLIT ? rows < columns : columns < rows),
                  .expert = expert};
  for (guint i = 0; i < f->all->len; i++) {
    MsMatrices *at = &g_array_index(f->all, MsMatrices, i);
    if (at->m != x.m || at->n != x.n || at->parts != x.parts || at->short_split != x.short_split ||
        at->expert != x.expert)
      continue;
    at->count += op->groups;
    return;
  }
  x.count = op->groups; /* 1 of a plain product */
  g_array_append_val(f->all, x);
}

/* The fused projection of queries, their gate, keys and values is a matrix for each (muon_split_qkv), where every rank
 * has whole groups (core/optimizer/__init__.py). */
static void add_projection(const Found *f, const MsOp *op) {
  const MsModel *m = f->work->scenario->model;
  double parts[] = {m->num_attention_heads, m->attention_output_gate ? m->num_attention_heads : 0, m->num_query_groups,
                    m->num_query_groups};
  for (guint i = 0; i < G_N_ELEMENTS(parts); i++)
    if (parts[i] > 0) add(f, parts[i] * m->kv_channels / f->work->layout->tp, op->n, op);
}

static void add_op(const Found *f, const MsOp *op) {
  if (op->pass != MS_PASS_WGRAD || !(op->flags & MS_OPF_WEIGHT)) return;
  if (op->module == MS_MODULE_MAMBA && op->flags & MS_OPF_ROWS_SPLIT) return; /* use_muon (core/ssm/mamba_mixer.py) */
  if (strcmp(op->name, "qkv") == 0 && f->work->scenario->model->num_query_groups % f->work->layout->tp == 0)
    add_projection(f, op);
  else add(f, op->m, op->n, op);
}

GArray *ms_matrices_of(const MsWork *work, int stage) {
  Found f = {g_array_new(FALSE, FALSE, sizeof(MsMatrices)), work};
  for (MsStagePiece at = ms_stage_pieces(work, stage); ms_next_piece(&at);) {
    const MsPiece *piece = &work->pieces[at.piece];
    for (int j = 0; ms_work_is_unit(piece) && j < piece->backward.n; j++) add_op(&f, &piece->backward.op[j]);
  }
  return f.all;
}

double ms_matrices_params(const MsMatrices *x) { return x->count * x->m * x->n / x->parts; }

/* To orthogonalise one. */
static double flop_of(const MsMatrices *x) { return MS_NEWTON_SCHULZ_ITERATIONS * 2 * x->m * x->m * (2 * x->n + x->m); }

void ms_work_matrix_params(const MsWork *work, int stage, double *dense, double *expert) {
  g_autoptr(GArray) all = ms_matrices_of(work, stage);
  *dense = *expert = 0;
  for (guint i = 0; i < all->len; i++) {
    const MsMatrices *x = &g_array_index(all, MsMatrices, i);
    *(x->expert ? expert : dense) += ms_matrices_params(x);
  }
}

/* --- who has which --- */

/* Shards with the same matrices, and the FLOP of these. */
typedef struct {
  double shards, flop;
  double *count; /* of each shape */
} Alike;

static gint by_flop(gconstpointer a, gconstpointer b) {
  double x = ((const Alike *)a)->flop, y = ((const Alike *)b)->flop;
  return x < y ? -1 : x > y;
}

static gint largest_first(gconstpointer a, gconstpointer b) {
  double x = flop_of(a), y = flop_of(b);
  return x > y ? -1 : x < y;
}

/* One of shape `at` more for `shards` of those with the least to do. */
static void hand_out(GArray *alike, int at, int shapes, double flop, double shards) {
  g_array_sort(alike, by_flop);
  for (guint i = 0, n = alike->len; i < n && shards > 0; i++) {
    Alike *to = &g_array_index(alike, Alike, i);
    if (shards < to->shards) { /* the others of these stay as they are */
      Alike rest = {.shards = to->shards - shards, .flop = to->flop, .count = g_new(double, shapes)};
      memcpy(rest.count, to->count, sizeof *rest.count * (size_t)shapes);
      to->shards = shards;
      g_array_append_val(alike, rest);
      to = &g_array_index(alike, Alike, i);
    }
    to->flop += flop, to->count[at] += 1, shards -= to->shards;
  }
}

static void clear_alike(gpointer data) { g_free(((Alike *)data)->count); }

/* The largest first, each to the shard with the least to do (layer_wise_optimizer.py, _emit_bucket). */
void ms_matrices_share(GArray *all, gboolean expert, double shards) {
  int shapes = (int)all->len;
  g_autoptr(GArray) alike = g_array_new(FALSE, FALSE, sizeof(Alike));
  g_array_set_clear_func(alike, clear_alike);
  Alike every = {.shards = shards, .count = g_new0(double, MAX(shapes, 1))};
  g_array_append_val(alike, every);
  g_array_sort(all, largest_first);
  for (int k = 0; k < shapes; k++) {
    MsMatrices *x = &g_array_index(all, MsMatrices, k);
    if (x->expert != expert) continue;
    double each = floor(x->count / shards), flop = flop_of(x);
    for (guint i = 0; i < alike->len; i++) {
      Alike *to = &g_array_index(alike, Alike, i);
      to->flop += each * flop, to->count[k] += each;
    }
    hand_out(alike, k, shapes, flop, x->count - each * shards);
  }
  g_array_sort(alike, by_flop);
  const Alike *most = &g_array_index(alike, Alike, alike->len - 1);
  for (int k = 0; k < shapes; k++) {
    MsMatrices *x = &g_array_index(all, MsMatrices, k);
    if (x->expert == expert) x->share = most->count[k];
  }
}
