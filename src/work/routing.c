/* src/work/routing.c - skewed routing: tokens per expert drawn for every layer, and what the hottest rank gets of them.
 *
 * Popularity of the experts of a layer: zipf, p_j ~ j^-skew over a random order; dirichlet, all concentrations `skew`. No expert can get more than one
 * visit of every token. The tokens of the expert group are then drawn one multinomial a layer. Same seed, same draw. */
#include "work/build.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>

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

static void draw_shares(const MsRouting *r, gsl_rng *rng, double *p, double *alpha, int n, int topk) {
  if (r->kind == MS_ROUTING_DIRICHLET) {
    for (int i = 0; i < n; i++) alpha[i] = MAX(r->skew, 1e-3);
    gsl_ran_dirichlet(rng, (size_t)n, alpha, p);
  } else {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += p[i] = pow(i + 1, -r->skew);
    for (int i = 0; i < n; i++) p[i] /= sum;
    gsl_ran_shuffle(rng, p, (size_t)n, sizeof *p);
  }
  cap_shares(p, n, 1.0 / topk);
}

MsSkew ms_routing_skew(const MsScenario *s, const MsLayout *l, double rows_sp) {
  const MsModel *m = s->model;
  const MsRouting *r = &s->training.routing;
  MsSkew skew = {1, 1};
  int layers = 0, n = m->num_experts;
  if ((r->kind != MS_ROUTING_ZIPF && r->kind != MS_ROUTING_DIRICHLET) || n == 0 || l->ep <= 1) return skew;
  g_autofree double *p = g_new(double, n), *alpha = g_new(double, n), *total = g_new0(double, l->ep);
  g_autofree unsigned *tokens = g_new(unsigned, n);
  gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
  gsl_rng_set(rng, r->seed);
  double visits = MIN(rows_sp * m->moe_router_topk * l->ep, 4e9), mean = visits / l->ep, hottest = 0;
  for (int i = 0; i < m->num_layers; i++) {
    if (!m->moe_layer[i]) continue;
    draw_shares(r, rng, p, alpha, n, MAX(m->moe_router_topk, 1));
    gsl_ran_multinomial(rng, (size_t)n, (unsigned)visits, p, tokens);
    double most = 0;
    for (int rank = 0; rank < l->ep; rank++) {
      double here = 0;
      for (int j = rank * (n / l->ep); j < (rank + 1) * (n / l->ep); j++) here += tokens[j];
      most = MAX(most, here), total[rank] += here;
    }
    hottest += most, layers++;
  }
  gsl_rng_free(rng);
  if (layers == 0) return skew;
  double sum = 0;
  for (int rank = 0; rank < l->ep; rank++) sum = MAX(sum, total[rank]);
  return (MsSkew){.time = hottest / layers / mean, .memory = sum / layers / mean};
}
