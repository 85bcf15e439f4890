/* src/plan/partition.c - decoder layers and MTP blocks to virtual stages.
 *
 * With many microbatches a step takes as long as the pipeline rank whose chunks cost most together: the dearest rank
 * decides first. Ranks hand over chunk by chunk, so of cuts whose dearest rank is about as dear the one with the
 * cheaper dearest virtual stage fills the pipeline sooner and keeps its rhythm. What both leave to spare is taken from
 * the first virtual stages, which keep the most microbatches alive, or from the last: a dear stage in front has less to
 * wait for when the pipeline fills, and less behind it when it drains.
 *
 * Most models are a few first layers (dense, say), then layers of one kind only: the body. Their cuts are exact. Every
 * way to split the first layers is tried; each leaves stages of known cost to which equal layers are added. Adding each
 * to the rank that is cheapest gives the least dearest rank: in any other filling some rank has a layer that this one
 * put elsewhere, where it was no dearer. The same holds for stages when no rank may pass a cap: sets of layers with at
 * most so many on each rank are the independent sets of a matroid, and adding the cheapest first gives the basis with
 * the least dearest member. Any such set whose members all cost less than an average stage can be extended to it
 * (exchange), so that only the last few layers are added one by one.
 *
 * Models of mixed layers, and layers that cost another time on the next machine, are cut by dynamic programming over
 * stages, exact for the dearest stage, then layers are moved while the dearest rank gets cheaper.
 *
 * A virtual stage in the middle holds a decoder layer or the MTP blocks. So MTP blocks stand with the loss or on the
 * stage before it, which leaves the loss alone: further in front of it there would be empty stages between. */
#include "plan/partition_priv.h"
#include <math.h>
#include <string.h>

double ms_head_weight(const MsModel *m, int seq_length) {
  MsModelFlop f = ms_model_flop_per_token(m, seq_length);
  double layers = m->num_layers + m->mtp_num_layers;
  double layer = (f.attention_linear + f.attention_core + f.mlp) / layers;
  return layer > 0 ? f.logits / layer : 1;
}

/* What stage k holds beside decoder layers. */
static double end_cost(const MsLayerCosts *all, const MsVirtualStages *on, int k) {
  return ms_layer_costs_ends(ms_layer_costs_at(all, on, k), on, k);
}

void ms_stage_costs(const MsLayerCosts *c, const MsVirtualStages *on, const int *counts, double *cost) {
  for (int k = 0, layer = 0; k < on->n; k++) {
    cost[k] = end_cost(c, on, k);
    const double *own = ms_layer_costs_at(c, on, k)->layer;
    for (int i = 0; i < counts[k]; i++) cost[k] += own[layer++];
  }
}

/* --- a few first layers, then a body of equal ones ------------------------------------------------------------- */

enum { MOST_FIRST = 5 }; /* first layers that are split in every way */

typedef struct { /* one way to split the first layers */
  const MsLayerCosts *costs;
  const MsVirtualStages *on;
  gboolean front; /* layers that equal stages cannot share stand in front; else behind, where fewer are kept */
  double layer;   /* cost of a layer of the body */
  int body;       /* layers of it */
  int *before;    /* [stages] first layers that stand there */
  int *least;     /* [stages] layers of the body that it has at least */
  gboolean *open; /* [stages] may have some */
  double *extra;  /* [stages] what stands there beside the body */
  int *counts;    /* [stages] layers of the body */
  int *of_rank;   /* [ranks] sum of counts */
  int *most;      /* [ranks] layers of the body that fit below the cap of a rank */
  int *spare;     /* [ranks] scratch */
  double *load;   /* [ranks] sum of extra */
} Filling;

/* Bit i of `ends` ends a stage before first layer i (the last bit: before the body). FALSE when that is no cut. */
static gboolean begin(Filling *f, int first_layers, guint ends) {
  int stages = f->on->n, last = ms_stages_last(f->on), k = 0, least = 0;
  for (int i = 0; i < stages; i++) f->extra[i] = end_cost(f->costs, f->on, i), f->before[i] = 0;
  for (int i = 0; i <= first_layers; i++) {
    if (ends >> i & 1) k++;
    if (k > last) return FALSE;
    if (i < first_layers) f->extra[k] += f->costs->layer[i], f->before[k]++;
  }
  for (int r = 0; r < f->on->ranks; r++) f->load[r] = 0;
  for (int i = 0; i < stages; i++) {
    f->open[i] = i >= k && i <= last;
    f->least[i] = i > 0 && i < last && f->before[i] == 0;
    if (f->least[i] && !f->open[i]) return FALSE;
    least += f->least[i];
    f->load[f->on->rank[i]] += f->extra[i];
  }
  return least <= f->body;
}

/* Most layers of the body that fit beside `extra` below `cap`. */
static int room(const Filling *f, double extra, double cap) {
  return (int)floor(MAX(0, cap - extra) / f->layer + 1e-9);
}

static int add(Filling *f, int stage, int n) {
  f->counts[stage] += n, f->of_rank[f->on->rank[stage]] += n;
  return n;
}

static void cap_ranks(Filling *f, double cap) {
  for (int r = 0; r < f->on->ranks; r++) f->most[r] = room(f, f->load[r], cap);
}

/* Every stage has the least that it may, and more up to `level` (0: no more) as far as its rank has room. Layers of the
 * body that are left; if those would be less than none, nothing is added. */
static int start_at(Filling *f, double level) {
  int left = f->body;
  memset(f->of_rank, 0, sizeof *f->of_rank * (size_t)f->on->ranks);
  memset(f->counts, 0, sizeof *f->counts * (size_t)f->on->n);
  for (int i = 0; i < f->on->n; i++) left -= add(f, i, f->least[i]);
  if (!(level > 0)) return left;
  for (int i = 0; i < f->on->n; i++) {
    int r = f->on->rank[i], more = MIN(room(f, f->extra[i], level) - f->counts[i], f->most[r] - f->of_rank[r]);
    if (f->open[i] && more > 0) left -= add(f, i, more);
  }
  return left >= 0 ? left : start_at(f, 0);
}

static double dearest(const Filling *f, int n, const double *extra, const int *layers) {
  double most = 0;
  for (int i = 0; i < n; i++) most = MAX(most, extra[i] + layers[i] * f->layer);
  return most;
}

/* The least cost of the dearest rank: which stage of a rank a layer stands on makes no difference. */
static double least_dearest_rank(Filling *f) {
  int ranks = f->on->ranks, left = start_at(f, 0);
  double level = left * f->layer;
  gboolean *open = f->spare;
  memset(open, 0, sizeof *open * (size_t)ranks);
  for (int i = 0; i < f->on->n; i++) open[f->on->rank[i]] |= f->open[i];
  for (int r = 0; r < ranks; r++) level += f->load[r] + f->of_rank[r] * f->layer;
  int more = 0;
  for (int r = 0; r < ranks; r++)
    if (open[r]) more += MAX(0, room(f, f->load[r], level / ranks) - f->of_rank[r]);
  for (int r = 0; r < ranks && more <= left; r++)
    if (open[r]) f->of_rank[r] = MAX(f->of_rank[r], room(f, f->load[r], level / ranks));
  if (more <= left) left -= more;
  for (; left > 0; left--) {
    int best = -1;
    for (int r = 0; r < ranks; r++)
      if (open[r] && (best < 0 || f->load[r] + f->of_rank[r] * f->layer < f->load[best] + f->of_rank[best] * f->layer))
        best = r;
    if (best < 0) return INFINITY;
    f->of_rank[best]++;
  }
  return dearest(f, ranks, f->load, f->of_rank);
}

/* FALSE: the layers that are left cannot all be added below `enough`. */
static gboolean may_hold(Filling *f, double enough, int left) {
  for (int r = 0; r < f->on->ranks; r++) f->spare[r] = f->most[r] - f->of_rank[r];
  for (int i = 0; i < f->on->n && left > 0; i++) {
    int r = f->on->rank[i], more = f->open[i] ? MIN(f->spare[r], room(f, f->extra[i], enough) - f->counts[i]) : 0;
    if (more > 0) f->spare[r] -= more, left -= more;
  }
  return left <= 0;
}

/* The least cost of the dearest stage when no rank costs more than `cap`; INFINITY: one does, or a stage costs
 * `enough`. */
static double least_dearest_stage(Filling *f, double cap, double enough) {
  double level = f->body * f->layer;
  for (int i = 0; i < f->on->n; i++) level += f->extra[i];
  cap_ranks(f, cap);
  int left = start_at(f, level / f->on->n);
  if (dearest(f, f->on->ranks, f->load, f->of_rank) > cap * (1 + 1e-9) ||
      dearest(f, f->on->n, f->extra, f->counts) >= enough)
    return INFINITY;
  if (!isinf(enough) && !may_hold(f, enough, left)) return INFINITY;
  for (; left > 0; left--) {
    int best = -1;
    double least = enough;
    for (int i = 0; i < f->on->n; i++) {
      int r = f->on->rank[i];
      double with = f->extra[i] + (f->counts[i] + 1) * f->layer;
      if (with < least && f->open[i] && f->of_rank[r] < f->most[r]) best = i, least = with;
    }
    if (best < 0) return INFINITY;
    add(f, best, 1);
  }
  return dearest(f, f->on->n, f->extra, f->counts);
}

/* Takes `surplus` layers, one from each stage of `rank` (-1: of any) that has the most, the first stages first, or with
 * `front` the last ones. */
static void take_in_turn(Filling *f, int rank, int surplus) {
  while (surplus > 0) {
    int highest = 0;
    for (int i = 0; i < f->on->n; i++)
      if ((rank < 0 || f->on->rank[i] == rank) && f->counts[i] > f->least[i])
        highest = MAX(highest, f->before[i] + f->counts[i]);
    if (highest == 0) return;
    for (int k = 0; k < f->on->n && surplus > 0; k++) {
      int i = f->front ? f->on->n - 1 - k : k;
      if ((rank < 0 || f->on->rank[i] == rank) && f->counts[i] > f->least[i] && f->before[i] + f->counts[i] == highest)
        add(f, i, -1), surplus--;
    }
  }
}

/* As many layers as both caps let in, less the surplus. */
static void fill(Filling *f, double cap_rank, double cap_stage) {
  int surplus = -f->body;
  start_at(f, 0);
  for (int i = 0; i < f->on->n; i++)
    if (f->open[i]) add(f, i, MAX(0, room(f, f->extra[i], cap_stage) - f->counts[i]));
  cap_ranks(f, cap_rank);
  for (int r = 0; r < f->on->ranks; r++) {
    take_in_turn(f, r, f->of_rank[r] - f->most[r]);
    surplus += f->of_rank[r];
  }
  take_in_turn(f, -1, surplus);
}

/* The cut of one way to split the first layers below both caps. */
static void fill_way(Filling *f, int first_layers, guint way, double cap_rank, double cap_stage, int *counts) {
  begin(f, first_layers, way);
  fill(f, cap_rank, cap_stage);
  for (int k = 0; k < f->on->n; k++) counts[k] = f->before[k] + f->counts[k];
}

/* Cuts for every slack; `front`: as ms_partition_by_cost says. */
static int cut_body(const MsLayerCosts *c, const MsVirtualStages *on, int first_layers, const double *slack,
                    int n_slacks, int *counts, int *front) {
  size_t n = (size_t)on->n, ranks = (size_t)on->ranks;
  guint ways = first_layers > 0 ? 2u << first_layers : 1;
  g_autofree int *whole = g_new(int, 4 * n + 3 * ranks);
  g_autofree double *cost = g_new(double, n + ranks + ways + 2 * (guint)n_slacks);
  g_autofree guint *best = g_new0(guint, n_slacks);
  Filling f = {.costs = c,
               .on = on,
               .layer = c->layer[c->layers - 1],
               .body = c->layers - first_layers,
               .before = whole,
               .least = whole + n,
               .counts = whole + 2 * n,
               .open = whole + 3 * n,
               .of_rank = whole + 4 * n,
               .most = whole + 4 * n + ranks,
               .spare = whole + 4 * n + 2 * ranks,
               .extra = cost,
               .load = cost + n};
  double *rank_of_way = cost + n + ranks, *cap = rank_of_way + ways, *stage = cap + n_slacks, least = INFINITY;
  for (guint way = 0; way < ways; way++) {
    rank_of_way[way] = begin(&f, first_layers, way) ? least_dearest_rank(&f) : INFINITY;
    least = MIN(least, rank_of_way[way]);
  }
  if (isinf(least)) return 0;
  for (int i = 0; i < n_slacks; i++) cap[i] = least * (1 + slack[i]) * (1 + 1e-9), stage[i] = INFINITY;
  for (guint way = 0; way < ways; way++) {
    gboolean begun = FALSE;
    for (int i = 0; i < n_slacks; i++) {
      if (rank_of_way[way] > cap[i]) continue;
      if (!begun) begun = begin(&f, first_layers, way);
      double own = least_dearest_stage(&f, cap[i], stage[i]);
      if (own < stage[i]) stage[i] = own, best[i] = way;
    }
  }
  int found = 0;
  for (int i = 0; i < n_slacks; i++) {
    if (isinf(stage[i])) continue;
    f.front = front && i == 0;
    if (f.front) fill_way(&f, first_layers, best[i], cap[i], stage[i] * (1 + slack[i]), front);
    f.front = FALSE;
    fill_way(&f, first_layers, best[i], cap[i], stage[i] * (1 + slack[i]), counts);
    found++, counts += n;
  }
  return found;
}

/* --- mixed layers ---------------------------------------------------------------------------------------------- */

typedef struct {
  double most, squares;
  int from; /* where its last stage begins; -1: there is none */
} Prefix;   /* the best cut of the first layers into the first stages */

/* Stages 1 .. last - 1 hold a layer at least: how many of these there are up to stage k, and behind it. */
static int filled_to(int k, int last) { return CLAMP(k, 0, MAX(0, last - 1)); }
static int filled_behind(int k, int last) { return MAX(0, last - 1 - MAX(0, k)); }

/* Of the first `to` layers, of which stage k, which costs `end` beside them, has the last; none in front of `least` is
 * its. */
static Prefix best_prefix(const Prefix *rest, const double *before, int to, int least, double end,
                          gboolean may_be_empty) {
  Prefix best = {INFINITY, INFINITY, -1};
  for (int from = may_be_empty ? to : to - 1; from >= least; from--) {
    double own = before[to] - before[from] + end;
    if (own > best.most) break; /* with more layers it costs more */
    if (rest[from].from < 0) continue;
    double most = MAX(rest[from].most, own), squares = rest[from].squares + own * own;
    if (most < best.most || (most == best.most && squares <= best.squares)) best = (Prefix){most, squares, from};
  }
  return best;
}

/* The cut whose dearest stage costs least; of those, with the least sum of squares. Only prefixes are looked at that
 * leave a layer for each stage which must have one. */
static gboolean cut_evenly(const MsLayerCosts *c, const MsVirtualStages *on, int *counts) {
  int n = c->layers, stages = on->n, last = ms_stages_last(on);
  size_t row = (size_t)n + 1;
  g_autofree double *before = g_new0(double, row);
  const MsLayerCosts *sums_of = NULL;
  g_autofree Prefix *prefix = g_new(Prefix, row * (size_t)(stages + 1));
  for (size_t i = 0; i < row * (size_t)(stages + 1); i++) prefix[i] = (Prefix){INFINITY, INFINITY, -1};
  prefix[0] = (Prefix){0, 0, 0};
  for (int k = 0; k < stages; k++) {
    const MsLayerCosts *own_costs = ms_layer_costs_at(c, on, k);
    for (int i = 0; own_costs != sums_of && i < n; i++) before[i + 1] = before[i] + own_costs->layer[i];
    sums_of = own_costs;
    gboolean may_be_empty = k == 0 || k >= last;
    for (int to = k < last ? filled_to(k, last) : n; to <= n - filled_behind(k, last); to++)
      prefix[row * (size_t)(k + 1) + (size_t)to] =
          best_prefix(prefix + row * (size_t)k, before, to, k > last ? to : filled_to(k - 1, last), end_cost(c, on, k),
                      may_be_empty);
  }
  if (prefix[row * (size_t)stages + (size_t)n].from < 0) return FALSE;
  for (int k = stages, to = n; k > 0; k--) {
    int from = prefix[row * (size_t)k + (size_t)to].from;
    counts[k - 1] = to - from, to = from;
  }
  return TRUE;
}

static double dearest_rank(const MsLayerCosts *c, const MsVirtualStages *on, const int *counts, double *load,
                           double *cost) {
  double most = 0;
  ms_stage_costs(c, on, counts, cost);
  memset(load, 0, sizeof *load * (size_t)on->ranks);
  for (int k = 0; k < on->n; k++) load[on->rank[k]] += cost[k];
  for (int i = 0; i < on->ranks; i++) most = MAX(most, load[i]);
  return most;
}

/* A layer from one stage to the next one or back, as long as the dearest rank gets cheaper by it. A rank has several
 * stages. */
static void shift_layers(const MsLayerCosts *c, const MsVirtualStages *on, int *counts) {
  int last = ms_stages_last(on);
  g_autofree double *load = g_new(double, on->ranks), *cost = g_new(double, on->n);
  double most = dearest_rank(c, on, counts, load, cost);
  for (gboolean moved = TRUE; moved;) {
    moved = FALSE;
    for (int k = 0; k < last; k++)
      for (int way = 0; way < 2; way++) {
        int from = way ? k + 1 : k, to = way ? k : k + 1;
        if (counts[from] <= (from == 0 || from == last ? 0 : 1)) continue;
        counts[from]--, counts[to]++;
        double now = dearest_rank(c, on, counts, load, cost);
        if (now < most * (1 - 1e-9)) most = now, moved = TRUE;
        else counts[from]++, counts[to]--;
      }
  }
}

/* --- either --- */

/* Layers before those that are all alike to the end. */
static int first_layers(const MsLayerCosts *c) {
  int n = c->layers - 1;
  while (n > 0 && c->layer[n - 1] == c->layer[c->layers - 1]) n--;
  return n;
}

/* As cut_body, as if all layers cost the mean of them. */
static int cut_levelled(const MsLayerCosts *c, const MsVirtualStages *on, const double *slack, int n_slacks,
                        int *counts, int *front) {
  g_autofree double *layer = g_new(double, c->layers);
  double sum = 0;
  for (int i = 0; i < c->layers; i++) sum += c->layer[i];
  for (int i = 0; i < c->layers; i++) layer[i] = sum / c->layers;
  const MsLayerCosts level = {.layers = c->layers, .layer = layer, .first = c->first, .last = c->last, .mtp = c->mtp};
  return sum > 0 ? cut_body(&level, on, 0, slack, n_slacks, counts, front) : 0;
}

int ms_partition_by_cost(const MsLayerCosts *c, const MsVirtualStages *on, const double *slack, int n_slacks,
                         int *counts, int *front) {
  if (front) front[0] = -1;
  if (on->n < 1 || c->layers < 1 || (on->mtp_apart && on->n < 2)) return 0;
  int first = first_layers(c);
  if (!on->pool && first <= MOST_FIRST && c->layer[c->layers - 1] > 0)
    return cut_body(c, on, first, slack, n_slacks, counts, front);
  if (!cut_evenly(c, on, counts)) return 0;
  shift_layers(c, on, counts);
  return on->pool ? 1 : 1 + cut_levelled(c, on, slack, n_slacks - 1, counts + on->n, front);
}

char *ms_partition_text(const int *counts, int stages, int mtp, gboolean mtp_apart) {
  MsChunk *chunks = g_new0(MsChunk, stages);
  int layer = 0;
  for (int i = 0; i < stages; i++) {
    chunks[i].first_layer = layer;
    chunks[i].num_layers = counts[i];
    layer += counts[i];
  }
  chunks[0].has_embedding = TRUE;
  chunks[stages - 1].has_loss = TRUE;
  chunks[stages - 1 - (mtp_apart ? 1 : 0)].num_mtp = mtp;
  char *text = ms_pipeline_layout_text(chunks, stages);
  g_free(chunks);
  return text;
}
