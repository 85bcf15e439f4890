/* src/cost/collective.c - NCCL collectives on the hierarchy of scale-up domains and network
 * (docs/theory/communication.md 9).
 *
 * Inside a domain: the measured lines of the profile. Across domains: a flat ring (all rails of a domain in parallel,
 * one latency per rank); for all-reduce the fastest of that, a tree, and a hierarchical scheme (reduce-scatter in the
 * domain, a ring or tree per rail, all-gather in the domain). z ranks over D domains, R = members in the emptiest
 * domain = NICs that can work for the group. */
#include "cost/internal.h"

#include "fabric/pattern.h"

#include <math.h>
#include <string.h>

double ms_curve_band(const MsCurve *curve, double fallback) {
  double p90 = curve ? curve->provenance.residual_p90 : NAN;
  return p90 > 0 && isfinite(p90) ? p90 : fallback;
}

/* `steps` latencies instead of one: collectives whose alpha is that of one ring step. */
static double lines_steps_s(const MsLines *lines, double steps, double bytes_B) {
  double best = HUGE_VAL;
  for (int i = 0; i < lines->n; i++) best = MIN(best, lines->alpha_s[i] * steps + bytes_B / lines->Bps[i]);
  return lines->curve ? best * ms_grid_factor(&lines->curve->grid, (const double[4]){bytes_B}) : best;
}

static double lines_s(const MsLines *lines, double bytes_B) { return lines_steps_s(lines, 1, bytes_B); }

/* --- which curve ----------------------------------------------------------------------------------------------- */
static double size_distance(int measured, int ranks) { return measured <= 0 ? 0 : fabs(log((double)ranks / measured)); }

static gboolean serves(const MsCurve *curve, const char *op, const char *level, const char *dispatcher,
                       MsCurveForm form) {
  return curve->form == form && g_strcmp0(curve->op, op) == 0 && (!curve->level || strcmp(curve->level, level) == 0) &&
         (!curve->dispatcher || !dispatcher || strcmp(curve->dispatcher, dispatcher) == 0);
}

typedef struct {                               /* what is looked for */
  const char *op, *level, *dispatcher, *dtype; /* the last two: NULL = any */
  MsCurveForm form;
  int ranks;
} Wanted;

static int dtype_distance(const MsCurve *curve, const char *dtype) {
  if (!curve->dtype || !dtype) return curve->dtype != NULL;
  return strcmp(curve->dtype, dtype) == 0 ? 0 : 2;
}

static gboolean nearer(const MsCurve *a, const MsCurve *b, const Wanted *w) {
  double x = size_distance(a->ranks, w->ranks), y = size_distance(b->ranks, w->ranks);
  return x < y || (x == y && dtype_distance(a, w->dtype) < dtype_distance(b, w->dtype));
}

/* Nearest in ratio of sizes, then in dtype; the first of equals. */
static const MsCurve *nearest(const MsHardware *hardware, const Wanted *w) {
  const MsCurve *best = NULL;
  for (int i = 0; i < hardware->num_curves; i++) {
    const MsCurve *curve = &hardware->curves[i];
    if (!serves(curve, w->op, w->level, w->dispatcher, w->form)) continue;
    if (!best || nearer(curve, best, w)) best = curve;
  }
  return best;
}

const MsCurve *ms_dispatch_curve(const MsHardware *hardware, const char *op, const char *level, const char *dispatcher,
                                 int ranks) {
  return nearest(hardware, &(Wanted){op, level, dispatcher, NULL, MS_FORM_DISPATCH, ranks});
}

/* --- lines ----------------------------------------------------------------------------------------------------- */
/* Latency grows with these: rings by rank, the (tree or in-switch) all-reduce by doubling. */
static double steps_of(const char *op, double ranks) { return strcmp(op, "all_reduce") == 0 ? log2(ranks) : ranks - 1; }

/* Seconds per step, from two measured sizes; from one, a share of its latency is taken as fixed. */
static double step_s(const MsScenario *scenario, const char *op, const MsCurve *at, int ranks) {
  const MsHardware *hardware = scenario->hardware;
  double steps = steps_of(op, at->ranks);
  const MsCurve *other = NULL; /* of another size, the nearest */
  for (int i = 0; i < hardware->num_curves; i++) {
    const MsCurve *curve = &hardware->curves[i];
    Wanted wanted = {op, "nvlink", NULL, at->dtype, MS_FORM_SEGMENTS, ranks};
    if (curve->ranks == at->ranks || !serves(curve, op, "nvlink", NULL, MS_FORM_SEGMENTS)) continue;
    if (!other || nearer(curve, other, &wanted)) other = curve;
  }
  if (other && other->ranks > 0 && other->ranks != at->ranks)
    return MAX(0, (at->segment_alpha_s[0] - other->segment_alpha_s[0]) / (steps - steps_of(op, other->ranks)));
  return steps > 0 ? at->segment_alpha_s[0] / steps * (1 - scenario->laws.latency_fixed_share) : 0;
}

static MsLines lines_of(const MsCurve *curve, double band) {
  MsLines lines = {.n = curve->n_segments, .curve = curve, .band = ms_curve_band(curve, band)};
  for (int i = 0; i < lines.n; i++) lines.alpha_s[i] = curve->segment_alpha_s[i], lines.Bps[i] = curve->segment_Bps[i];
  return lines;
}

/* Bus-bandwidth lines of `op` among `ranks` GPUs of one scale-up domain: the curve of the nearest size, its latency
 * moved along the steps between the two sizes, its bandwidth capped at the link when the size lies beyond what was
 * measured. */
static MsLines lines_scaleup(const MsScenario *scenario, const char *op, const char *dtype, int ranks) {
  const MsHardware *hardware = scenario->hardware;
  const MsLaws *laws = &scenario->laws;
  gboolean p2p = strcmp(op, "p2p") == 0;
  const MsCurve *curve = nearest(hardware, &(Wanted){op, "nvlink", NULL, dtype, MS_FORM_SEGMENTS, ranks});
  if (!curve || curve->n_segments <= 0)
    return (MsLines){.n = 1,
                     .alpha_s = {p2p ? laws->default_p2p_alpha_s : laws->default_link_alpha_s},
                     .band = laws->default_band,
                     .Bps = {laws->default_link_share * hardware->scaleup_Bps}};
  MsLines lines = lines_of(curve, laws->default_band);
  if (p2p || curve->ranks <= 1 || curve->ranks == ranks || ranks <= 1) return lines;
  double move = step_s(scenario, op, curve, ranks) * (steps_of(op, ranks) - steps_of(op, curve->ranks));
  for (int i = 0; i < lines.n; i++) {
    lines.alpha_s[i] = MAX(lines.alpha_s[i] + move, lines.alpha_s[i] * laws->latency_least);
    if (ranks > curve->ranks && hardware->scaleup_Bps > 0) lines.Bps[i] = MIN(lines.Bps[i], hardware->scaleup_Bps);
  }
  return lines;
}

/* Oversubscription applies once the ranks between the group's first and last member no longer fit under one rail switch
 * group. */
double ms_network_Bps(const MsHardware *hardware, const MsGroup *group) {
  double span = (double)(group->size - 1) * MAX(group->stride, 1) + 1;
  double over = hardware->fabric.kind == MS_FABRIC_NONE ? hardware->fabric_oversubscription : 1;
  return over > 1 && span > hardware->gpus_per_rail_group ? hardware->nic_Bps / over : hardware->nic_Bps;
}

/* One NIC: alpha of one ring step; Bps after efficiency, cap at the NIC and oversubscription. */
static MsLines lines_network(const MsScenario *scenario, const char *op, const char *dtype, const MsGroup *group) {
  const MsHardware *hardware = scenario->hardware;
  const MsLaws *laws = &scenario->laws;
  double rate = ms_network_Bps(hardware, group);
  const MsCurve *curve = nearest(hardware, &(Wanted){op, "network", NULL, dtype, MS_FORM_SEGMENTS, group->size});
  if (curve && !(curve->level && curve->n_segments > 0))
    curve = NULL; /* a curve of no level is one of the scale-up link */
  if (!curve) {
    double alpha = strcmp(op, "p2p") == 0 ? laws->default_p2p_alpha_s / MS_P2P_STEPS : laws->default_ring_step_s;
    return (MsLines){
        .n = 1, .alpha_s = {alpha}, .Bps = {laws->network_share * rate}, .band = laws->default_network_band};
  }
  MsLines lines = lines_of(curve, laws->default_network_band);
  for (int i = 0; i < lines.n; i++) /* no network collective gets more of its NIC than the default share */
    lines.Bps[i] = MIN(lines.Bps[i], laws->network_share * hardware->nic_Bps) * (rate / hardware->nic_Bps);
  return lines;
}

/* A message that nobody has measured gets no more than its channels move. */
static void limit_message(MsLines *lines, const MsScenario *scenario, const MsGroup *group) {
  if (lines->curve && lines->curve->ranks > 0) return;
  double most = ms_message_Bps(scenario, group);
  for (int i = 0; i < lines->n; i++) lines->Bps[i] = MIN(lines->Bps[i], most);
}

/* --- one collective -------------------------------------------------------------------------------------------- */
MsCollective ms_collective_prepare(const MsScenario *scenario, MsCollKind kind, const char *dtype,
                                   const MsGroup *group) {
  const MsHardware *hardware = scenario->hardware;
  const MsCollectivesRow *library = &ms_collectives_rows[hardware->collectives];
  static const MsOpKind of[] = {[MS_COLL_AG] = MS_OP_ALL_GATHER,
                                [MS_COLL_RS] = MS_OP_REDUCE_SCATTER,
                                [MS_COLL_AR] = MS_OP_ALL_REDUCE,
                                [MS_COLL_A2A] = MS_OP_ALL_TO_ALL,
                                [MS_COLL_P2P] = MS_OP_P2P};
  G_STATIC_ASSERT(G_N_ELEMENTS(of) == MS_N_COLL);
  const char *op = ms_op_words[of[kind]];
  MsCollective c = {.group = *group,
                    .link_Bps = hardware->scaleup_Bps,
                    .nic_Bps = ms_network_Bps(hardware, group),
                    .tree_over_ring = 1,
                    .pat_over_ring = 1,
                    .pat = library->pat && ms_pattern_serves(hardware, group, MS_PATTERN_PAT),
                    .nhr = library->nhr && ms_pattern_serves(hardware, group, MS_PATTERN_PAT),
                    .halves = ms_pattern_serves(hardware, group, MS_PATTERN_HALVING),
                    .doubles = library->doubles_from > 0 && group->domains >= library->doubles_from,
                    .servers = library->server_rings,
                    .nvls = hardware->nvls,
                    .sharp = hardware->sharp,
                    .hop_s = hardware->network_latency_s,
                    .a2a_steps = scenario->laws.all_to_all_start_steps,
                    .a2a_peer_s = scenario->laws.all_to_all_peer_s,
                    .own_first = hardware->nvlink_domain_gpus == hardware->gpus_per_node};
  c.group.per_domain = CLAMP(c.group.per_domain, 1, MAX(c.group.size, 1));
  c.group.min_per_domain = CLAMP(c.group.min_per_domain, 1, c.group.per_domain);
  if (group->size <= 1) return c;
  int inside = c.group.domains > 1 ? c.group.per_domain : c.group.size;
  if (inside > 1) c.scaleup = lines_scaleup(scenario, op, dtype, inside);
  if (inside > 1 && kind == MS_COLL_AR) {
    c.scatter = lines_scaleup(scenario, "reduce_scatter", dtype, inside);
    c.gather = lines_scaleup(scenario, "all_gather", dtype, inside);
  }
  if (c.group.domains > 1) c.network = lines_network(scenario, op, dtype, group);
  if (c.group.domains > 1 && kind == MS_COLL_P2P) limit_message(&c.network, scenario, group);
  c.sms = (guint16)(kind == MS_COLL_P2P      ? ms_message_channels(hardware, group)
                    : hardware->nccl_sms > 0 ? hardware->nccl_sms
                                             : scenario->laws.default_nccl_sms);
  return c;
}

static void slow_lines(MsLines *lines, double times) {
  for (int i = 0; i < lines->n; i++) lines->Bps[i] /= times;
}

void ms_collective_slow(MsCollective *c, double network, double tree, double pat, double scaleup) {
  slow_lines(&c->network, network);
  slow_lines(&c->scaleup, scaleup), slow_lines(&c->scatter, scaleup), slow_lines(&c->gather, scaleup);
  c->tree_over_ring = tree / network, c->pat_over_ring = pat / network;
}

typedef struct {
  double time_s, lower_s;
} Cost;
/* Over the network: `steps` latencies, of which `hops` leave a domain. */
static double network_s(const MsCollective *c, double steps, double hops, double bytes_B) {
  return lines_steps_s(&c->network, steps, bytes_B) + hops * c->hop_s;
}

static inline double lines_or_0(const MsLines *lines, double bytes_B) { return lines->n ? lines_s(lines, bytes_B) : 0; }

static Cost inside_domain(const MsCollective *c, MsCollKind kind, double message_B, double local_fraction,
                          gboolean ring) {
  double z = c->group.size, part = message_B * (z - 1) / z;
  if (ring && kind == MS_COLL_AR && c->scatter.n && c->gather.n)
    return (Cost){MAX(lines_s(&c->scaleup, 2 * part), lines_s(&c->scatter, part) + lines_s(&c->gather, part)),
                  2 * part / c->link_Bps};
  switch (kind) {
  case MS_COLL_AR: return (Cost){lines_s(&c->scaleup, 2 * part), (c->nvls ? 1 : 2) * part / c->link_Bps};
  case MS_COLL_A2A: part = message_B * (1 - local_fraction); break;
  case MS_COLL_P2P: part = message_B; break;
  default: break;
  }
  return (Cost){lines_s(&c->scaleup, part), part / c->link_Bps};
}

/* Those of a ring's steps that leave a domain: each domain is entered once. Of HCCL's all. */
static double ring_hops(const MsCollective *c, double steps) {
  double D = c->group.domains;
  return c->servers ? steps : MIN(steps, steps * D / c->group.size);
}

/* Latencies of one way round. HCCL's rings are of servers; halving and doubling has one for each doubling. */
static double ring_steps(const MsCollective *c) {
  double D = c->group.domains;
  return c->halves || c->doubles ? ceil(log2(D)) : c->servers ? D - 1 : c->group.size - 1;
}

/* So many times round, by the better of NCCL's protocols where they differ. */
static double ring_s(const MsCollective *c, double ways, double bytes_B) {
  double steps = ways * ring_steps(c), hops = ring_hops(c, steps);
  if (c->servers || !(c->hop_s > 0)) return network_s(c, steps, hops, bytes_B);
  return MIN(network_s(c, steps, MS_SIMPLE_HOPS * hops, bytes_B),
             network_s(c, 0, hops, bytes_B / MS_LL128_RING) + (steps - hops) * MS_LL128_STEP_S + hops * MS_LL128_HOP_S);
}

/* Two trees with half of the bytes each: a domain that has two children in one has none in the other, so that all bytes
 * go twice. Where a plugin tells a latency by the better of NCCL's protocols; there NCCL counts on half of that between
 * two domains whose switches reduce, as each has one neighbour only (NVLSTree of src/graph/tuning.cc). */
static double trees_s(const MsCollective *c, double steps, double hops, double message_B) {
  double bytes_B = 2 * message_B / c->group.min_per_domain * c->tree_over_ring,
         ll128 = MS_TREE_BUS * MS_LL128 * (c->nvls ? MS_ONE_GPU_BUS : 1);
  if (!(c->hop_s > 0)) return network_s(c, steps, hops, bytes_B);
  double simple_B = c->nvls && c->group.domains == 2 ? bytes_B / 2 : bytes_B;
  return MIN(network_s(c, steps, MS_SIMPLE_HOPS * hops, simple_B), network_s(c, steps, hops, bytes_B / ll128));
}

/* Bytes of a ring of HCCL, `ways` times round, over the network and inside. Halving and doubling of servers that are no
 * power of two hand all of theirs on first; NHR has a latency for each doubling, and what is inside comes behind. */
static double servers_s(const MsCollective *c, double ways, double bus_B) {
  double D = c->group.domains, R = c->group.min_per_domain, more = c->doubles && !c->halves ? (2 * D - 1) / (D - 1) : 1;
  double inside = lines_or_0(&c->scaleup, bus_B), ring = MAX(ring_s(c, ways, more * bus_B / R), inside),
         rounds = ways * ceil(log2(D));
  if (!c->nhr) return ring;
  return MIN(ring, network_s(c, rounds, rounds, bus_B / R * c->pat_over_ring) + inside);
}

/* All-gather, reduce-scatter: NCCL runs flat rings, whose latency grows with all ranks (S_half of
 * docs/theory/costs.md 6 is proportional to GPUs, not to nodes). M (1 - R/z) must enter (leave) the emptiest domain
 * over its R NICs. */
static Cost across_scatter(const MsCollective *c, double message_B) {
  double z = c->group.size, R = c->group.min_per_domain, bus = message_B * (z - 1) / z;
  if (c->servers) return (Cost){servers_s(c, 1, bus), (1 - R / z) * message_B / R / c->nic_Bps};
  double ring = MAX(ring_s(c, 1, bus / R), lines_or_0(&c->scaleup, bus));
  if (c->pat) {
    double steps = MS_PAT_STEPS + MS_PAT_DOUBLING_STEPS * log2(z) + MS_PAT_RANK_STEPS * z;
    ring = MIN(ring, network_s(c, steps, MS_SIMPLE_HOPS * ceil(log2(z)), bus / MS_PAT_BUS * c->pat_over_ring));
  }
  return (Cost){ring, (1 - R / z) * message_B / R / c->nic_Bps};
}

static Cost across_reduce(const MsCollective *c, double message_B, gboolean ring_only) {
  const MsGroup *g = &c->group;
  double z = g->size, D = g->domains, R = g->min_per_domain, share = MAX((D - 1) / D, 1 - R / z) * message_B / R;
  double hops = 2 * log2(D), steps = MS_TREE_HOP_STEPS * hops, bus = 2 * message_B * (z - 1) / z,
         inner = message_B * (g->per_domain - 1) / g->per_domain, trees = trees_s(c, steps, hops, message_B);
  if (c->servers) return (Cost){servers_s(c, 2, bus), 2 * (1 - R / z) * message_B / R / c->nic_Bps};
  double ring = MAX(ring_s(c, 2, bus / R), lines_or_0(&c->scaleup, bus));
  if (ring_only) return (Cost){ring, 2 * (1 - R / z) * message_B / R / c->nic_Bps};
  double tree = lines_or_0(&c->scaleup, 0) + MAX(trees, lines_or_0(&c->scaleup, 2 * message_B));
  double rails = MIN(network_s(c, 2 * (D - 1), MS_SIMPLE_HOPS * 2 * (D - 1), 2 * share), trees);
  if (c->sharp) { /* up to the switches and back, each byte once; in chunks, while the domain reduces the next ones */
    double switches = network_s(c, 2 * MS_TREE_HOP_STEPS, MS_SIMPLE_HOPS * 2, message_B / R);
    rails = MIN(rails, switches);
    tree = MIN(tree, lines_or_0(&c->scaleup, 0) + MAX(switches, lines_or_0(&c->scaleup, 2 * inner)));
  }
  double hierarchy = lines_or_0(&c->scatter, inner) + rails + lines_or_0(&c->gather, inner);
  return (Cost){MIN(MIN(ring, tree), hierarchy), (c->sharp ? 1 : 2) * (1 - R / z) * message_B / R / c->nic_Bps};
}

/* Pairwise exchange. Where a domain is a server NCCL goes to the peers of the own one first (src/init.cc, p2pSchedule):
 * what stays and what leaves come one behind the other, as measured over two nodes (docs/theory/costs.md 6); else at
 * the same time. The worst rank is one of the emptiest domain. */
static Cost across_exchange(const MsCollective *c, double message_B, double local_fraction) {
  const MsGroup *g = &c->group;
  double z = g->size, moving = message_B * (1 - local_fraction) / (z - 1);
  double inside_B = moving * (g->per_domain - 1), outside_B = moving * (z - g->min_per_domain);
  double peers = z - g->min_per_domain;
  double network = network_s(c, c->a2a_steps, 1, outside_B) + peers * c->a2a_peer_s;
  double inside = g->per_domain > 1 ? lines_or_0(&c->scaleup, inside_B) : 0;
  return (Cost){c->own_first ? network + inside : MAX(network, inside),
                MAX(outside_B / c->nic_Bps, g->per_domain > 1 ? inside_B / c->link_Bps : 0)};
}

static Cost across_domains(const MsCollective *c, MsCollKind kind, double message_B, double local_fraction,
                           gboolean ring) {
  switch (kind) {
  case MS_COLL_AR: return across_reduce(c, message_B, ring);
  case MS_COLL_A2A: return across_exchange(c, message_B, local_fraction);
  case MS_COLL_P2P: return (Cost){network_s(c, MS_P2P_STEPS, 1, message_B), message_B / c->nic_Bps};
  default: return across_scatter(c, message_B);
  }
}

MsOpCost ms_collective_s(const MsCollective *c, MsCollKind kind, double message_B, double local_fraction,
                         gboolean ring) {
  if (c->group.size <= 1) return (MsOpCost){0};
  gboolean across = c->group.domains > 1;
  if (!(message_B > 0)) message_B = 0;
  if (!(local_fraction > 0)) local_fraction = 1.0 / c->group.size;
  local_fraction = MIN(local_fraction, 1.0);
  Cost cost = across ? across_domains(c, kind, message_B, local_fraction, ring)
                     : inside_domain(c, kind, message_B, local_fraction, ring);
  const MsLines *lines = across ? &c->network : &c->scaleup;
  return (MsOpCost){.time_s = MAX(cost.time_s, cost.lower_s),
                    .lower_s = cost.lower_s,
                    .sms = c->sms,
                    .level = across,
                    .curve = lines->curve,
                    .band = lines->band};
}
