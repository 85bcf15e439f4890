/* src/work/work.c - from a scenario and its layout to pieces. */
#include "work/build.h"
#include "base/err.h"
#include <string.h>

static gboolean layer_is_quantized(const MsScenario *s, int layer) {
  return ms_precision(&s->training)->bits < 16 && layer >= s->options.num_layers_at_start_in_bf16 &&
         layer < s->model->num_layers - s->options.num_layers_at_end_in_bf16;
}

/* The layer of an MTP block is in an FP8 context, not in one for FP4, which only a hybrid stack enters by itself
 * (Megatron-LM core/transformer/multi_token_prediction.py, _proj_and_transformer_layer; models/hybrid/hybrid_block.py).
 */
static gboolean mtp_is_quantized(const MsScenario *s) {
  int bits = ms_precision(&s->training)->bits;
  if (s->options.keep_mtp_spec_in_bf16) return FALSE;
  return bits == 8 || (bits == 4 && s->model->hybrid_layer_pattern);
}

/* Checkpoint role of a layer: 0 none, n > 0 leads a group of n layers, -n follows in one. */
static int checkpoint_role(const MsWork *w, int layer) {
  const MsRecomputeSpec *r = &w->scenario->options.recompute;
  if (r->granularity != MS_RECOMPUTE_FULL) return 0;
  int n = MAX(1, r->num_layers);
  if (n == 1 && r->method == MS_RECOMPUTE_UNIFORM) return 1;
  for (int i = 0; i < w->layout->num_chunks; i++) {
    const MsChunk *c = &w->layout->chunks[i];
    int at = layer - c->first_layer;
    if (at < 0 || at >= c->num_layers) continue;
    if (r->method == MS_RECOMPUTE_BLOCK) return at < n ? 1 : 0;
    int group = MIN(n, c->num_layers - at / n * n);
    return at % n == 0 ? group : -group;
  }
  return 1;
}

typedef struct {
  guint8 mixers;
  gboolean windowed, indexed, quantized, offloaded;
  int ratio, role, drawn;
} LayerKey; /* drawn: the layer, 0 when routing is not drawn */

/* Stage of a decoder layer, or of the MTP blocks (layer num_layers); -1: of none. */
static int stage_of(const MsWork *w, int layer) {
  gboolean mtp = layer == w->scenario->model->num_layers;
  for (int i = 0; i < w->layout->num_chunks; i++) {
    const MsChunk *c = &w->layout->chunks[i];
    if (mtp ? c->num_mtp > 0 : layer >= c->first_layer && layer < c->first_layer + c->num_layers)
      return i % w->layout->pp;
  }
  return -1;
}

static void build_layer_rows(const MsWork *w, MsBuild *b, int layer) {
  if (!w->draw) return;
  g_autofree guint8 *member = g_new0(guint8, w->draw->layers);
  for (int i = 0, stage = stage_of(w, layer); i < w->draw->layers; i++) member[i] = stage_of(w, i) == stage;
  int keeper = ms_routing_extreme_rank(w->draw, member, w->coldest);
  ms_build_drawn(b, ms_routing_hottest(w->draw, layer),
                 w->draw->rows[(gsize)layer * (gsize)w->draw->ranks + (gsize)keeper]);
}

static int find_or_add_layer(MsWork *w, MsBuild *b, GArray *keys, int layer) {
  LayerKey key = {.mixers = ms_model_mixers(w->scenario->model, layer),
                  .windowed = ms_model_layer_is_windowed(w->scenario->model, layer),
                  .indexed = ms_model_layer_has_indexer(w->scenario->model, layer),
                  .ratio = ms_model_compress_ratio(w->scenario->model, layer),
                  .quantized = layer_is_quantized(w->scenario, layer),
                  .offloaded = layer < w->scenario->options.cpu_offloading_num_layers,
                  .role = checkpoint_role(w, layer),
                  .drawn = w->draw && ms_model_mixers(w->scenario->model, layer) & MS_MIX_MOE ? layer : 0};
  for (guint i = 0; i < keys->len; i++) {
    LayerKey *k = &g_array_index(keys, LayerKey, i);
    if (k->mixers == key.mixers && k->windowed == key.windowed && k->indexed == key.indexed && k->ratio == key.ratio &&
        k->quantized == key.quantized && k->offloaded == key.offloaded && k->role == key.role && k->drawn == key.drawn)
      return (int)i;
  }
  g_array_append_val(keys, key);
  w->pieces = g_renew(MsPiece, w->pieces, w->n_pieces + 1);
  MsPiece *piece = &w->pieces[w->n_pieces];
  memset(piece, 0, sizeof *piece);
  ms_build_init(b, w->scenario, w->layout, key.quantized);
  b->packing = &w->packing;
  b->offload_all = key.offloaded;
  build_layer_rows(w, b, layer);
  ms_piece_layer(b, piece, layer, key.role);
  return w->n_pieces++;
}

static int add_end(MsWork *w, MsBuild *b, void (*make)(MsBuild *, MsPiece *), gboolean quantized) {
  w->pieces = g_renew(MsPiece, w->pieces, w->n_pieces + 1);
  MsPiece *piece = &w->pieces[w->n_pieces];
  memset(piece, 0, sizeof *piece);
  ms_build_init(b, w->scenario, w->layout, quantized);
  b->packing = &w->packing;
  if (make == ms_piece_mtp) build_layer_rows(w, b, w->scenario->model->num_layers);
  make(b, piece);
  return w->n_pieces++;
}

/* Low-precision products with a weight on a rank, all its layers together. */
static double products_of_rank(const MsWork *w) {
  double n = 0;
  for (int layer = 0; layer < w->scenario->model->num_layers; layer++) {
    const MsOpList *list = &w->pieces[w->piece_of_layer[layer]].backward;
    for (int i = 0; i < list->n; i++)
      if (list->op[i].pass == MS_PASS_WGRAD && list->op[i].flags & MS_OPF_QUANTIZED) n += list->op[i].groups;
  }
  return n / w->layout->pp;
}

static int add_scales(MsWork *w, MsBuild *b) {
  w->pieces = g_renew(MsPiece, w->pieces, w->n_pieces + 1);
  MsPiece *piece = &w->pieces[w->n_pieces];
  memset(piece, 0, sizeof *piece);
  ms_build_init(b, w->scenario, w->layout, TRUE);
  ms_piece_scales(b, piece, products_of_rank(w));
  return w->n_pieces++;
}

static MsWork *work_new(const MsScenario *scenario, const MsLayout *layout, const MsWork *like, gboolean coldest,
                        GError **error) {
  MsWork *w = g_new0(MsWork, 1);
  GError *wrong = NULL;
  w->scenario = scenario;
  w->layout = layout;
  MsBuild b;
  ms_build_init(&b, scenario, layout, TRUE);
  w->rows = b.rows, w->rows_sp = b.rows_sp, w->rows_expert = b.rows_expert;
  w->coldest = coldest;
  w->packing = ms_packing_of(scenario, layout);
  w->draw =
      ms_routing_draw(scenario, layout, b.rows_sp, like ? like->draw : NULL, like ? like->scenario : NULL, &wrong);
  if (wrong) {
    g_propagate_error(error, wrong);
    g_free(w);
    return NULL;
  }
  w->padded_vocab = ms_model_padded_vocab(scenario->model, layout->tp);
  w->piece_of_layer = g_new(int, scenario->model->num_layers);
  GArray *keys = g_array_new(FALSE, FALSE, sizeof(LayerKey));
  for (int i = 0; i < scenario->model->num_layers; i++) w->piece_of_layer[i] = find_or_add_layer(w, &b, keys, i);
  g_array_free(keys, TRUE);
  w->piece_embedding = add_end(w, &b, ms_piece_embedding, FALSE);
  w->piece_head = add_end(w, &b, ms_piece_head, TRUE);
  w->piece_scales = -1;
  if (ms_precision(&scenario->training)->delayed) w->piece_scales = add_scales(w, &b);
  w->piece_mtp = -1;
  if (scenario->model->mtp_num_layers > 0) w->piece_mtp = add_end(w, &b, ms_piece_mtp, mtp_is_quantized(scenario));
  w->piece_mtp_again = -1;
  if (scenario->model->mtp_num_layers > 1 && scenario->model->mtp_use_repeated_layer) {
    w->piece_mtp_again = add_end(w, &b, ms_piece_mtp, mtp_is_quantized(scenario));
    ms_piece_without_params(&w->pieces[w->piece_mtp_again]);
  }
  w->pool_pieces = w->n_pieces;
  return w;
}

/* Appends the pieces of another pool, which goes. */
static void take_pool(MsWork *w, MsWork *other) {
  if (other->n_pieces != w->pool_pieces ||
      memcmp(other->piece_of_layer, w->piece_of_layer, sizeof(int) * (gsize)w->scenario->model->num_layers) != 0)
    MS_BUG("%d pieces on one machine, %d on another", w->pool_pieces, other->n_pieces);
  w->pieces = g_renew(MsPiece, w->pieces, w->n_pieces + other->n_pieces);
  memcpy(w->pieces + w->n_pieces, other->pieces, sizeof *w->pieces * (gsize)other->n_pieces);
  w->n_pieces += other->n_pieces;
  other->n_pieces = 0;
  ms_work_free(other);
}

static MsWork *work_of_pools(const MsScenario *scenario, const MsLayout *layout, gboolean coldest, GError **error) {
  MsScenario *view = g_new(MsScenario, layout->n_pools);
  MsWork *w = NULL;
  for (int i = 0; i < layout->n_pools; i++) {
    view[i] = ms_scenario_of_pool(scenario, i);
    MsWork *own = work_new(&view[i], &layout->of_pool[i], NULL, coldest, error);
    if (own && w) take_pool(w, own);
    if (!own) g_clear_pointer(&w, ms_work_free);
    if (!own) break;
    if (!w) w = own;
  }
  if (!w) return g_free(view), NULL;
  w->scenario = scenario, w->layout = layout, w->pool_scenario = view;
  MsWork *of_pool = g_new(MsWork, layout->n_pools);
  for (int i = 0; i < layout->n_pools; i++) {
    of_pool[i] = *w;
    of_pool[i].scenario = &view[i], of_pool[i].layout = &layout->of_pool[i], of_pool[i].pool_scenario = NULL;
  }
  w->of_pool = of_pool;
  return w;
}

const MsWork *ms_work_on_pool(const MsWork *work, int pool) {
  if (!work->of_pool) return work;
  work->pool_scenario[pool] = ms_scenario_of_pool(work->scenario, pool);
  return &work->of_pool[pool];
}

MsWork *ms_work_new_like(const MsWork *like, const MsScenario *scenario, const MsLayout *layout, GError **error) {
  return layout->n_pools > 0 ? work_of_pools(scenario, layout, FALSE, error)
                             : work_new(scenario, layout, like, FALSE, error);
}
MsWork *ms_work_new(const MsScenario *scenario, const MsLayout *layout, GError **error) {
  return ms_work_new_like(NULL, scenario, layout, error);
}
MsWork *ms_work_new_coldest(const MsScenario *scenario, const MsLayout *layout, GError **error) {
  return layout->n_pools > 0 ? work_of_pools(scenario, layout, TRUE, error)
                             : work_new(scenario, layout, NULL, TRUE, error);
}

static void piece_clear(MsPiece *piece) {
  ms_ops_clear(&piece->forward);
  ms_ops_clear(&piece->backward);
  ms_ops_clear(&piece->reload);
  g_free(piece->kept);
}

void ms_work_free(MsWork *work) {
  if (!work) return;
  for (int i = 0; i < work->n_pieces; i++) piece_clear(&work->pieces[i]);
  ms_routing_draw_free(work->draw);
  g_free(work->pieces);
  g_free(work->piece_of_layer);
  g_free(work->of_pool);
  g_free(work->pool_scenario);
  g_free(work);
}

static int piece_of_chunk(const MsWork *work, const MsChunk *chunk, int i) {
  if (chunk->has_embedding && i-- == 0) return work->piece_embedding;
  if (i < chunk->num_layers) return work->piece_of_layer[chunk->first_layer + i];
  i -= chunk->num_layers;
  if (i >= chunk->num_mtp)
    return i == chunk->num_mtp && ms_work_renews_scales(work, chunk) ? work->piece_scales : work->piece_head;
  return ms_work_mtp_piece(work, i);
}

int ms_work_chunk_piece(const MsWork *work, const MsChunk *chunk, int i) {
  return ms_work_piece_at(work, chunk, piece_of_chunk(work, chunk, i));
}

static gboolean scattered(const MsWork *work) {
  const MsScenario *s = work->scenario;
  return s->stack.pipeline_scatter && !s->options.sequence_parallel && s->layout.tp > 1;
}

static double boundary_B(const MsWork *work) {
  return 2 * work->rows_sp * work->scenario->model->hidden_size * ms_model_streams(work->scenario->model);
}

MsOp ms_work_p2p_gather(const MsWork *work) {
  return (MsOp){.name = "pipeline gather",
                .kind = MS_OP_ALL_GATHER,
                .stream = MS_STREAM_PP_SEND,
                .group = MS_GROUP_TP,
                .dtype = MS_ODT_BF16,
                .kernels = 1,
                .groups = 1,
                .kv_groups = 1,
                .wait = {-1, -1, -1},
                .message_B = scattered(work) ? boundary_B(work) : 0};
}

MsOp ms_work_p2p(const MsWork *work) {
  return (MsOp){.name = "pipeline",
                .kind = MS_OP_P2P,
                .stream = MS_STREAM_PP_SEND,
                .group = MS_GROUP_PP,
                .dtype = MS_ODT_BF16,
                .kernels = 2,
                .groups = 1,
                .kv_groups = 1,
                .wait = {-1, -1, -1},
                .message_B = boundary_B(work) / (scattered(work) ? work->scenario->layout.tp : 1)};
}

int ms_work_deferred(const MsWork *work, int microbatches) {
  const MsOptions *o = &work->scenario->options;
  if (!o->defer_embedding_wgrad_compute || work->layout->pp == 1) return 0;
  return o->wgrad_deferral_limit > 0
             ? MIN(microbatches, o->wgrad_deferral_limit / (1 + work->scenario->model->mtp_num_layers))
             : microbatches;
}

gboolean ms_work_is_unit(const MsPiece *piece) { return piece->kind == MS_PIECE_LAYER || piece->kind == MS_PIECE_MTP; }

gboolean ms_work_has_table(const MsWork *work, const MsChunk *chunk) {
  return chunk->has_embedding || (chunk->has_loss && work->scenario->model->tie_embeddings);
}

MsStageParams ms_work_stage_params(const MsWork *work, int stage) {
  MsStageParams p = {0};
  gboolean table = FALSE, copy = FALSE;
  for (MsStagePiece at = ms_stage_pieces(work, stage); ms_next_piece(&at);) {
    const MsPiece *piece = &work->pieces[at.piece];
    p.params_dense += piece->params_dense;
    p.params_expert += piece->params_expert;
    p.quantizable_dense += piece->params_quantizable_dense;
    p.quantizable_expert += piece->params_quantizable_expert;
    p.tp_replicated += piece->params_tp_replicated;
    p.frozen += piece->params_frozen;
    p.frozen_expert += piece->params_frozen_expert;
    table |= ms_work_has_table(work, at.chunk);
    copy |= at.chunk->num_mtp > 0;
  }
  if (copy && !table) /* the MTP stage holds its own copy of the word embedding (docs/theory/layouts.md 5) */
    p.embedding_copy = (double)work->padded_vocab / work->layout->tp * work->scenario->model->hidden_size;
  return p;
}
