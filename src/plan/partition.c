/* src/plan/partition.c - decoder layers to virtual stages, balanced: by their number where they do not divide evenly, or by what each takes. */
#include "plan/plan_priv.h"
#include <math.h>
#include <string.h>

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

/* --- by cost --- */

/* Pieces of a layout that the model is likely to run in: the first sizes, with as many ranks to a group of experts as there may be. */
static MsPieceMemo *likely_pieces(const MsSpace *space) {
  const MsIntAxis *eps = &space->axis[MS_AXIS_EP];
  for (int i = eps->n - 1; i >= 0; i--) {
    g_autoptr(MsScenario) s = ms_space_scratch(space);
    gint32 value[MS_N_AXES];
    for (int axis = 0; axis < MS_N_AXES; axis++) value[axis] = space->axis[axis].value[0];
    value[MS_AXIS_EP] = eps->value[i], value[MS_AXIS_PP] = value[MS_AXIS_VPP] = 1;
    gint64 expert = (gint64)value[MS_AXIS_ETP] * value[MS_AXIS_EP], dense = (gint64)value[MS_AXIS_TP] * value[MS_AXIS_CP];
    if (value[MS_AXIS_GPUS] % expert || value[MS_AXIS_GPUS] % dense) continue;
    ms_space_apply_combo(space, 0, s);
    s->layout.schedule = MS_SCHED_1F1B, s->layout.decoder_first_pipeline_num_layers = 0;
    ms_space_apply_axes(space, value, FALSE, s);
    MsPieceMemo *memo = ms_memo_new(s, NULL, NULL);
    if (memo) return memo;
  }
  return NULL;
}

MsLayerCosts *ms_layer_costs_new(const MsSpace *space) {
  MsPieceMemo *memo = likely_pieces(space);
  const MsModel *model = space->request->base->model;
  MsLayerCosts *c = g_new0(MsLayerCosts, 1);
  c->layers = model->num_layers;
  c->layer = g_new(double, c->layers);
  for (int i = 0; i < c->layers; i++) c->layer[i] = memo ? ms_memo_layer(memo, MS_PIECE_LAYER, i) : 1;
  c->first = memo ? ms_memo_layer(memo, MS_PIECE_EMBEDDING, 0) : 0;
  c->last = memo ? ms_memo_layer(memo, MS_PIECE_HEAD, 0) : ms_head_weight(model, space->request->base->training.seq_length);
  for (int i = 0; i < model->mtp_num_layers; i++) c->last += memo ? ms_memo_layer(memo, MS_PIECE_MTP, i) : 1;
  ms_memo_free(memo);
  return c;
}

void ms_layer_costs_free(MsLayerCosts *c) {
  if (!c) return;
  g_free(c->layer);
  g_free(c);
}

/* What stage k costs with the layers [from, to). */
static double stage_cost(const MsLayerCosts *c, const double *before, int stages, int k, int from, int to) {
  return before[to] - before[from] + (k == 0 ? c->first : 0) + (k == stages - 1 ? c->last : 0);
}

/* The cuts whose dearest stage costs least; of those, with the least sum of squares. */
static gboolean cut_evenly(const MsLayerCosts *c, int stages, int *counts) {
  typedef struct { double most, squares; int from; } Cut;
  int n = c->layers;
  size_t row = (size_t)n + 1;
  g_autofree double *before = g_new0(double, row);
  g_autofree Cut *cut = g_new(Cut, row * (size_t)(stages + 1));
  for (int i = 0; i < n; i++) before[i + 1] = before[i] + c->layer[i];
  for (size_t i = 0; i < row * (size_t)(stages + 1); i++) cut[i] = (Cut){INFINITY, INFINITY, -1};
  cut[0] = (Cut){0, 0, 0};
  for (int k = 0; k < stages; k++)
    for (int to = 0; to <= n; to++) {
      Cut *best = &cut[row * (size_t)(k + 1) + (size_t)to];
      for (int from = 0; from <= to; from++) {
        const Cut *rest = &cut[row * (size_t)k + (size_t)from];
        if (rest->from < 0 || (from == to && k > 0 && k < stages - 1)) continue; /* only the ends may be without layers */
        double own = stage_cost(c, before, stages, k, from, to), most = MAX(rest->most, own), squares = rest->squares + own * own;
        if (most < best->most || (most == best->most && squares < best->squares)) *best = (Cut){most, squares, from};
      }
    }
  if (cut[row * (size_t)stages + (size_t)n].from < 0) return FALSE;
  for (int k = stages, to = n; k > 0; k--) {
    int from = cut[row * (size_t)k + (size_t)to].from;
    counts[k - 1] = to - from, to = from;
  }
  return TRUE;
}

static double dearest_rank(const MsLayerCosts *c, int stages, int ranks, const int *rank, const int *counts, double *load) {
  double most = 0;
  memset(load, 0, sizeof *load * (size_t)ranks);
  for (int k = 0, layer = 0; k < stages; k++) {
    double own = (k == 0 ? c->first : 0) + (k == stages - 1 ? c->last : 0);
    for (int i = 0; i < counts[k]; i++) own += c->layer[layer++];
    load[rank[k]] += own;
  }
  for (int i = 0; i < ranks; i++) most = MAX(most, load[i]);
  return most;
}

/* A layer from one stage to the next one or back, as long as the dearest rank gets cheaper by it. A rank has several stages. */
static void shift_layers(const MsLayerCosts *c, int stages, int ranks, const int *rank, int *counts) {
  g_autofree double *load = g_new(double, ranks);
  double most = dearest_rank(c, stages, ranks, rank, counts, load);
  for (gboolean moved = TRUE; moved;) {
    moved = FALSE;
    for (int k = 0; k + 1 < stages; k++)
      for (int way = 0; way < 2; way++) {
        int from = way ? k + 1 : k, to = way ? k : k + 1;
        gboolean end = from == 0 || from == stages - 1;
        if (counts[from] <= (end ? 0 : 1)) continue;
        counts[from]--, counts[to]++;
        double now = dearest_rank(c, stages, ranks, rank, counts, load);
        if (now < most * (1 - 1e-9)) most = now, moved = TRUE;
        else counts[from]++, counts[to]--;
      }
  }
}

gboolean ms_partition_by_cost(const MsLayerCosts *costs, int stages, int ranks, const int *rank, int *counts) {
  if (stages < 1 || costs->layers < 1 || !cut_evenly(costs, stages, counts)) return FALSE;
  shift_layers(costs, stages, ranks, rank, counts);
  return TRUE;
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
