/* src/work/routing.c - drawing the rows of every layer and rank; see routing.h. */
#include "work/routing.h"

#include "base/err.h"
#include "base/kept.h"
#include "base/order.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <string.h>

#define MOST_VISITS 4e9 /* of one draw: an unsigned */

typedef struct {
  const MsRouting *routing;
  int experts, topk, ranks, replicas;
  gsl_rng *of_experts, *of_tokens; /* apart: popularity is the same for any number of tokens */
  double *p, *share, *scratch;     /* [experts] popularity; load with biases; biases or concentrations */
  unsigned *tokens;                /* [experts] */
  int *copies;                     /* [experts] 1 + replicas */
  int *rank_of;                    /* [experts + replicas] of each copy, copies of an expert together */
} Draw;

/* --- popularity ------------------------------------------------------------------------------------------------ */
/* p[] sums to one; no more than `most` for any, the rest to the others in proportion. */
static void cap_shares(double *p, int n, double most) {
  for (int round = 0; round < n; round++) {
    double over = 0, free = 0;
    for (int i = 0; i < n; i++) {
      if (p[i] > most) over += p[i] - most, p[i] = most;
      else if (p[i] < most) free += p[i];
    }
    if (over <= 1e-12 || free <= 0) return;
    for (int i = 0; i < n; i++)
      if (p[i] < most) p[i] *= 1 + over / free;
  }
}

static void normalise(double *p, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += p[i];
  for (int i = 0; i < n; i++) p[i] /= sum;
}

static void popularity(Draw *d, int moe_layer) {
  const MsRouting *r = d->routing;
  int n = d->experts;
  if (r->kind == MS_ROUTING_HISTOGRAM) {
    const MsHistogram *h = r->histogram;
    memcpy(d->p, h->tokens + (gsize)MIN(moe_layer, h->layers - 1) * (gsize)n, sizeof(double) * (gsize)n);
    normalise(d->p, n);
  } else if (r->kind == MS_ROUTING_DIRICHLET) {
    for (int i = 0; i < n; i++) d->scratch[i] = MAX(r->skew, 1e-3);
    gsl_ran_dirichlet(d->of_experts, (size_t)n, d->scratch, d->p);
  } else {
    for (int i = 0; i < n; i++) d->p[i] = pow(i + 1, -r->skew);
    normalise(d->p, n);
    gsl_ran_shuffle(d->of_experts, d->p, (size_t)n, sizeof *d->p);
  }
  cap_shares(d->p, n, 1.0 / d->topk);
}

/* What the biases leave of the popularity. */
static void balance(Draw *d) {
  int n = d->experts;
  double *bias = d->scratch, rate = d->routing->bias_update_rate;
  if (!(rate > 0)) return;
  for (int i = 0; i < n; i++) bias[i] = 0;
  for (int step = 0;; step++) {
    for (int i = 0; i < n; i++) d->share[i] = d->p[i] * exp(bias[i]);
    normalise(d->share, n);
    cap_shares(d->share, n, 1.0 / d->topk);
    if (step == d->routing->bias_updates) break;
    for (int i = 0; i < n; i++) bias[i] += d->share[i] < 1.0 / n ? rate : d->share[i] > 1.0 / n ? -rate : 0;
  }
  memcpy(d->p, d->share, sizeof(double) * (gsize)n);
}

/* --- placement ------------------------------------------------------------------------------------------------- */
static void replicate(Draw *d) {
  for (int i = 0; i < d->experts; i++) d->copies[i] = 1;
  for (int k = 0; k < d->replicas; k++) {
    int most = -1;
    for (int i = 0; i < d->experts; i++)
      if (d->copies[i] < d->ranks && (most < 0 || d->p[i] / d->copies[i] > d->p[most] / d->copies[most])) most = i;
    d->copies[MAX(most, 0)]++;
  }
}

typedef struct {
  double load;
  int copy, expert;
} Item;

MS_ORDER(by_load, Item, MS_MORE(x->load, y->load), MS_LESS(x->copy, y->copy))

/* The largest first, on the least loaded rank with a place, if possible one without a copy of the same expert. */
static void place_by_load(Draw *d) {
  int n = d->experts + d->replicas, slots = n / d->ranks;
  g_autofree Item *item = g_new(Item, n);
  g_autofree double *load = g_new0(double, d->ranks);
  g_autofree int *used = g_new0(int, d->ranks), *holds = g_new(int, d->ranks);
  for (int i = 0, k = 0; i < d->experts; i++)
    for (int c = 0; c < d->copies[i]; c++, k++) item[k] = (Item){d->p[i] / d->copies[i], k, i};
  qsort(item, (size_t)n, sizeof *item, by_load);
  for (int i = 0; i < d->ranks; i++) holds[i] = -1;
  for (int k = 0; k < n; k++) {
    int best = -1;
    for (int rank = 0; rank < d->ranks;
         rank++) { /* copies of one expert follow one another: holds[] remembers the last expert of a rank */
      if (used[rank] == slots) continue;
      gboolean twice = holds[rank] == item[k].expert, best_twice = best >= 0 && holds[best] == item[k].expert;
      if (best < 0 || twice < best_twice || (twice == best_twice && load[rank] < load[best])) best = rank;
    }
    d->rank_of[item[k].copy] = best, used[best]++, load[best] += item[k].load, holds[best] = item[k].expert;
  }
}

static void place(Draw *d) {
  replicate(d);
  if (d->routing->placement == MS_PLACEMENT_LOAD) {
    place_by_load(d);
    return;
  }
  for (int i = 0; i < d->experts; i++) d->rank_of[i] = i / (d->experts / d->ranks);
}

/* --- rows ------------------------------------------------------------------------------------------------------ */
static void draw_layer(Draw *d, double visits, int moe_layer, double *rows) {
  popularity(d, moe_layer);
  balance(d);
  place(d);
  double drawn = MIN(visits, MOST_VISITS);
  gsl_ran_multinomial(d->of_tokens, (size_t)d->experts, (unsigned)drawn, d->p, d->tokens);
  for (int i = 0, k = 0; i < d->experts; i++)
    for (int c = 0; c < d->copies[i]; c++, k++) rows[d->rank_of[k]] += d->tokens[i] * (visits / drawn) / d->copies[i];
}

static gboolean fits(const MsScenario *s, const MsLayout *l, int moe_layers, GError **error) {
  const MsRouting *r = &s->training.routing;
  const MsHistogram *h = r->histogram;
  if (r->kind == MS_ROUTING_HISTOGRAM && !h)
    return ms_input_error(error, s->file, 0, "training.routing.histogram", "no histogram is loaded");
  if (h && h->experts != s->model->num_experts)
    return ms_input_error(error, s->file, 0, "training.routing.histogram",
                          "%s has %d experts a layer, the model has %d", h->name, h->experts, s->model->num_experts);
  if (h && h->layers != 1 && h->layers != moe_layers)
    return ms_input_error(error, s->file, 0, "training.routing.histogram",
                          "%s has %d layers, the model has %d with experts; give those, or one for all", h->name,
                          h->layers, moe_layers);
  if (r->replicas % l->ep != 0)
    return ms_input_error(error, s->file, 0, "training.routing.replicas",
                          "%d copies cannot be spread evenly over ep %d", r->replicas, l->ep);
  if (r->replicas > s->model->num_experts * (l->ep - 1))
    return ms_input_error(error, s->file, 0, "training.routing.replicas",
                          "%d copies are more than one of each of the %d experts on every other rank", r->replicas,
                          s->model->num_experts);
  return TRUE;
}

/* Of a layer; `num_layers`: of the blocks of MTP. */
static gboolean has_experts(const MsModel *m, int layer) {
  return layer == m->num_layers ? m->mtp_num_layers > 0 : (ms_model_mixers(m, layer) & MS_MIX_MOE) != 0;
}

static int count_moe(const MsModel *m) {
  int n = 0;
  for (int i = 0; i < m->num_layers; i++) n += has_experts(m, i);
  return n;
}

/* --- kept ------------------------------------------------------------------------------------------------------ */
static void clear_draw(gpointer draw) { g_free(((MsRoutingDraw *)draw)->rows); }
static MsKeep drawn = {.clear = clear_draw};

/* All that a draw follows from. (transfer full) */
static GByteArray *key_of(const MsScenario *s, const MsLayout *l, double mean) {
  const MsModel *m = s->model;
  const MsRouting *r = &s->training.routing;
  const MsHistogram *h = r->histogram;
  const double numbers[] = {r->kind,
                            r->skew,
                            r->seed,
                            r->bias_update_rate,
                            r->bias_updates,
                            r->replicas,
                            r->placement,
                            m->num_experts,
                            m->moe_router_topk,
                            m->num_layers,
                            l->ep,
                            h ? h->layers : 0,
                            mean};
  GByteArray *key = g_byte_array_new();
  g_byte_array_append(key, (const guint8 *)numbers, sizeof numbers);
  for (int i = 0; i <= m->num_layers; i++) {
    guint8 moe = has_experts(m, i) != 0;
    g_byte_array_append(key, &moe, 1);
  }
  if (h) g_byte_array_append(key, (const guint8 *)h->tokens, (guint)(sizeof(double) * h->layers * h->experts));
  return key;
}

static gboolean same_draw(const MsScenario *s, const MsLayout *l, double mean, const MsRoutingDraw *like,
                          const MsScenario *other) {
  return like && other->model == s->model &&
         !memcmp(&other->training.routing, &s->training.routing, sizeof(MsRouting)) && like->ranks == l->ep &&
         like->mean == mean;
}

MsRoutingDraw *ms_routing_draw(const MsScenario *s, const MsLayout *l, double rows_sp, MsRoutingDraw *like,
                               const MsScenario *like_scenario, GError **error) {
  const MsModel *m = s->model;
  const MsRouting *r = &s->training.routing;
  if (!ms_routing_is_drawn(r) || m->num_experts == 0) return NULL;
  if (!fits(s, l, count_moe(m), error) || l->ep <= 1) return NULL;
  if (same_draw(s, l, rows_sp * m->moe_router_topk, like, like_scenario)) return g_atomic_rc_box_acquire(like);
  int n = m->num_experts;
  g_autoptr(GByteArray) key = key_of(s, l, rows_sp * m->moe_router_topk);
  MsRoutingDraw *draw = ms_kept_of(&drawn, key);
  if (draw) return draw;
  draw = g_atomic_rc_box_new0(MsRoutingDraw);
  draw->layers = m->num_layers + 1, draw->ranks = l->ep;
  draw->mean = rows_sp * m->moe_router_topk;
  draw->rows = g_new0(double, (gsize)draw->layers *(gsize)l->ep);
  g_autofree double *space = g_new(double, 3 * n);
  g_autofree unsigned *tokens = g_new(unsigned, n);
  g_autofree int *copies = g_new(int, n), *rank_of = g_new(int, n + r->replicas);
  Draw d = {.routing = r,
            .experts = n,
            .topk = MAX(m->moe_router_topk, 1),
            .ranks = l->ep,
            .replicas = r->replicas,
            .of_experts = gsl_rng_alloc(gsl_rng_mt19937),
            .of_tokens = gsl_rng_alloc(gsl_rng_taus2),
            .p = space,
            .share = space + n,
            .scratch = space + 2 * n,
            .tokens = tokens,
            .copies = copies,
            .rank_of = rank_of};
  gsl_rng_set(d.of_experts, r->seed), gsl_rng_set(d.of_tokens, r->seed);
  for (int i = 0, at = 0; i < draw->layers; i++)
    if (has_experts(m, i)) draw_layer(&d, draw->mean * l->ep, at++, draw->rows + (gsize)i * (gsize)l->ep);
  gsl_rng_free(d.of_experts), gsl_rng_free(d.of_tokens);
  ms_kept_as(&drawn, g_steal_pointer(&key), draw);
  return draw;
}

void ms_routing_draw_free(MsRoutingDraw *draw) {
  if (draw) g_atomic_rc_box_release_full(draw, clear_draw);
}

double ms_routing_hottest(const MsRoutingDraw *draw, int layer) {
  double most = 0;
  for (int rank = 0; rank < draw->ranks; rank++)
    most = MAX(most, draw->rows[(gsize)layer * (gsize)draw->ranks + (gsize)rank]);
  return most;
}

int ms_routing_extreme_rank(const MsRoutingDraw *draw, const guint8 *member, gboolean least) {
  int best = 0;
  double best_sum = 0;
  for (int rank = 0; rank < draw->ranks; rank++) {
    double sum = 0;
    for (int i = 0; i < draw->layers; i++)
      if (member[i]) sum += draw->rows[(gsize)i * (gsize)draw->ranks + (gsize)rank];
    if (rank == 0 || (least ? sum < best_sum : sum > best_sum)) best = rank, best_sum = sum;
  }
  return best;
}
