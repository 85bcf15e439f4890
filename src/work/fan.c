/* src/work/fan.c - how many copies of a token DeepEP and HybridEP send; see build.h. */
#include "work/build.h"
#include "base/stats.h"
#include <math.h>

double ms_rank_skew(const MsBuild *b) {
  const MsRouting *routing = &b->training->routing;
  if (!isnan(b->options->moe_expert_rank_capacity_factor) ||
      !(routing->kind == MS_ROUTING_NATURAL || routing->kind == MS_ROUTING_CAPACITY || ms_routing_is_drawn(routing)))
    return 1;
  return b->rows_expert / (b->rows_routed * b->u);
}

/* Experts that a token is sent to: what is dropped is not (DeepEP and HybridEP mask it, Megatron-LM
 * core/transformer/moe/token_dispatcher.py). */
static double copies_left(const MsBuild *b) {
  const MsRouting *routing = &b->training->routing;
  return b->model->moe_router_topk * (routing->kind == MS_ROUTING_CAPACITY ? MIN(1, routing->capacity_factor) : 1);
}

/* Chance that one of k choices falls on a place that draws `share` of all of them. */
static double reached(double share, double k) { return 1 - pow(1 - MIN(share, 1), k); }

/* Blocks that one token reaches when tokens take k of `experts` in turn, mean over all of a turn: a token's run begins
 * at a multiple of k, and of the greatest common divisor once it has gone round. */
static double blocks_in_turn(int experts, int k, int blocks) {
  int block = MAX(1, experts / blocks), tokens = 0, start = 0;
  double reached = 0;
  if (blocks <= 1 || k >= experts) return MAX(blocks, 1);
  do {
    reached += MIN(blocks, (start + k - 1) / block - start / block + 1);
    start = (start + k) % experts, tokens++;
  } while (start != 0);
  return reached / tokens;
}

MsFan ms_fan_out(const MsBuild *b, double skew) {
  const MsGroup *g = &b->layout->group[MS_GROUP_TP_EP];
  const MsModel *m = b->model;
  MsFan f = {.ranks = g->size, .domains = g->domains, .per_domain = g->per_domain};
  double experts = m->num_experts, k = copies_left(b), groups = m->moe_router_num_groups, kg = m->moe_router_group_topk;
  double domains = f.domains, ranks = b->e;
  if (b->training->routing.kind == MS_ROUTING_ROUND_ROBIN) {
    f.x_domain = blocks_in_turn(m->num_experts, m->moe_router_topk, (int)f.domains);
    f.x_rank = blocks_in_turn(m->num_experts, m->moe_router_topk, (int)b->e) * b->u;
    return f;
  }
  if (groups > 1 && kg < groups) { /* node-limited: k of the E kg/G experts of the chosen groups */
    experts = experts * kg / groups;
    if (experts < k) experts = k;
    double share = kg / groups;
    ranks = MAX(1, b->e * share);
    domains = MAX(1, MIN(domains, ms_expected_blocks(groups, kg, MIN(domains, groups))));
  }
  f.x_domain = f.domains > 1 ? ms_expected_blocks(experts, k, MIN(domains, experts)) : 1;
  f.x_rank = ms_expected_blocks(experts, k, MIN(ranks, experts)) * b->u;
  if (skew > 1 && b->e > 1) {
    double local = b->e / MAX(f.domains, 1),
           others = MAX(b->e - skew, 0) / (b->e - 1); /* visits of a rank that is not the busiest, over the mean */
    f.x_rank *= reached(skew / ranks, k) / reached(1 / ranks, k);
    if (f.domains > 1)
      f.x_domain *= reached((skew + (local - 1) * others) / local / domains, k) / reached(1 / domains, k);
  }
  f.x_rank = MIN(f.x_rank, b->e * b->u);
  f.x_domain = MIN(f.x_domain, MAX(f.domains, 1));
  return f;
}
