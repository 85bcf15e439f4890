/* src/cluster/cluster.c - draws of how GPUs differ, and their steps. */
#include "cluster/cluster.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/order.h"
#include "base/units.h"
#include "cluster/links.h"
#include "step/program.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <string.h>

const char *const ms_cause_words[] = {"kernel jitter",  "host jitter", "clocks of GPUs", "slow GPUs", "slow NICs",
                                      "uneven experts", NULL};

/* --- time of rows over a slower network, each factor worked out once --- */

#define MOST_FACTORS 4096

typedef struct {
  const MsDetail *detail;
  double *share[MS_N_GROUPS][MS_N_PATTERNS]; /* [world] as MsRankStates.fabric */
  double *rows, *mean_rows;                  /* as MsRankStates.rows; NULL: routing is not drawn */
  GArray *factor;                            /* double, sorted */
  double *times;                             /* [factors * tags] */
} Network;

MS_ORDER(by_size, double, MS_LESS(*x, *y), 0)

static double slow_row(gconstpointer data, guint32 tag, double factor) {
  const Network *net = data;
  guint at;
  if (!g_array_binary_search(net->factor, &factor, by_size, &at))
    MS_BUG("no costs of a network %g times as slow", factor);
  return net->times[(gsize)at * net->detail->n_tags + tag];
}

static void add_distinct(GArray *to, double value) {
  for (guint i = 0; i < to->len; i++)
    if (g_array_index(to, double, i) == value) return;
  g_array_append_val(to, value);
}

/* What the fabric slows groups of a kind by, each over what it slows the worst by. Groups that end within what flows
 * are taken together are alike. */
static gboolean find_share(Network *net, MsFabricCosts *fabric, const MsLayout *l, MsGroupKind kind, MsPattern pattern,
                           GError **error) {
  const double alike = 0.01;
  double worst;
  gboolean differ = FALSE;
  g_autofree double *times = g_new(double, l->world);
  if (!ms_fabric_slowdown(fabric, l, kind, pattern, &worst, error)) return FALSE;
  if (worst == 1) return TRUE;
  g_autofree double *worst_of = g_new(double, l->pp); /* of a stage: messages have a cost for each pair of stages */
  const MsFabricGraph *graph = ms_fabric_costs_graph(fabric);
  gboolean messages = kind == MS_GROUP_PP && pattern == MS_PATTERN_PAIR;
  for (int s = 0; s < l->pp; s++) worst_of[s] = worst;
  if (messages && !ms_fabric_pair_slowdowns(fabric, l, worst_of, error)) return FALSE;
  if (!(messages ? ms_pattern_message_times(graph, l, times, error)
                 : ms_pattern_group_times(graph, l, kind, pattern, times, error)))
    return FALSE;
  for (int r = 0; r < l->world; r++) {
    double most = worst_of[ms_rank_stage(l, r)];
    times[r] = times[r] < most * (1 - alike) ? times[r] / most : 1;
    differ |= times[r] != 1;
  }
  if (differ) net->share[kind][pattern] = g_steal_pointer(&times);
  return TRUE;
}

static gboolean find_shares(Network *net, const MsScenario *s, const MsStepPlan *plan, GError **error) {
  gboolean seen[MS_N_GROUPS][MS_N_PATTERNS] = {{FALSE}};
  if (s->hardware->fabric.kind == MS_FABRIC_NONE) return TRUE;
  MsFabricCosts *fabric = ms_fabric_costs_new(s, error);
  gboolean ok = fabric != NULL;
  for (guint32 i = 0; ok && i < plan->n; i++) {
    const MsStepTask *t = &plan->task[i];
    MsGroupKind kind = t->role == MS_ROLE_PASSES ? MS_GROUP_PP : (MsGroupKind)t->group;
    gboolean over = ms_graph_task(plan->detail->graph, i)->use == MS_USE_LINK1;
    if (!over || (t->role != MS_ROLE_PASSES && t->role != MS_ROLE_MEETS) || seen[kind][t->pattern]) continue;
    seen[kind][t->pattern] = TRUE;
    ok = find_share(net, fabric, plan->detail->layout, kind, (MsPattern)t->pattern, error);
  }
  ms_fabric_costs_unref(fabric);
  return ok;
}

/* Every share of the fabric times every state of a NIC. */
static void find_factors(Network *net, const MsScenario *s) {
  g_autoptr(GArray) nic = g_array_new(FALSE, FALSE, sizeof(double));
  g_autoptr(GArray) share = g_array_new(FALSE, FALSE, sizeof(double));
  g_autofree double *named = g_new(double, s->gpus);
  ms_cluster_named(s->cluster.slow_nics, s->gpus, named);
  add_distinct(nic, 1), add_distinct(share, 1);
  for (int r = 0; r < s->gpus; r++) {
    add_distinct(nic, named[r]);
    if (s->cluster.slow_nic_rate > 0) add_distinct(nic, named[r] * s->cluster.slow_nic_factor);
  }
  for (int k = 0; k < MS_N_GROUPS * MS_N_PATTERNS; k++) {
    const double *of = ((double **)net->share)[k];
    for (int r = 0; of && r < s->gpus; r++) add_distinct(share, of[r]);
  }
  net->factor = g_array_new(FALSE, FALSE, sizeof(double));
  for (guint i = 0; i < nic->len; i++)
    for (guint k = 0; k < share->len && net->factor->len <= MOST_FACTORS; k++)
      add_distinct(net->factor, g_array_index(nic, double, i) * g_array_index(share, double, k));
  g_array_sort(net->factor, by_size);
}

static gboolean find_times(Network *net, const MsScenario *s, GError **error) {
  guint32 tags = net->detail->n_tags;
  g_autoptr(MsCost) cost = ms_cost_new(s, net->detail->layout, error);
  if (!cost) return FALSE;
  net->times = g_new(double, (gsize)net->factor->len *tags);
  for (guint i = 0; i < net->factor->len; i++) {
    g_autoptr(MsCost) slower = ms_cost_new_slower(cost, g_array_index(net->factor, double, i));
    for (guint32 tag = 0; tag < tags; tag++) {
      const MsOp *op = net->detail->tag_op[tag];
      gboolean sends = op && ms_op_families[op->kind] == MS_FAMILY_COMM;
      double alone = sends ? ms_cost_op(cost, op).time_s : 0;
      net->times[(gsize)i * tags + tag] = alone > 0 ? ms_cost_op(slower, op).time_s / alone : 1;
    }
  }
  return TRUE;
}

/* Rows of each rank of an expert group over its layer's hottest, and the mean of them. */
static void find_rows(Network *net) {
  const MsRoutingDraw *draw = net->detail->work->draw;
  if (!draw) return;
  gsize all = (gsize)draw->layers * (gsize)draw->ranks;
  net->rows = g_new(double, all), net->mean_rows = g_new(double, all);
  for (gsize i = 0; i < all; i++) {
    double hottest = ms_routing_hottest(draw, (int)(i / (gsize)draw->ranks));
    net->rows[i] = hottest > 0 ? draw->rows[i] / hottest : 1,
    net->mean_rows[i] = hottest > 0 ? draw->mean / hottest : 1;
  }
}

static void close_network(Network *net) {
  g_free(net->rows), g_free(net->mean_rows);
  for (int k = 0; k < MS_N_GROUPS * MS_N_PATTERNS; k++) g_free(((double **)net->share)[k]);
  if (net->factor) g_array_unref(net->factor);
  g_free(net->times);
}

static gboolean open_network(Network *net, const MsScenario *s, const MsStepPlan *plan, GError **error) {
  *net = (Network){.detail = plan->detail};
  if (!find_shares(net, s, plan, error)) return FALSE;
  find_rows(net);
  find_factors(net, s);
  if (net->factor->len > MOST_FACTORS)
    return ms_input_error(error, s->file, 0, "cluster.slow_nics", "more than %d different speeds of the network",
                          MOST_FACTORS);
  return find_times(net, s, error);
}

/* --- how GPUs differ in one draw --- */

/* In (0, 1), of seed, rank and purpose. */
static double uniform(guint64 seed, int rank, int purpose) {
  guint64 x = seed * MS_DRAW_STEP + (guint64)rank * 5 + (guint64)purpose;
  return ((double)(ms_drawn(ms_drawn(x)) >> 11) + 0.5) / 9007199254740992.0; /* 2^53 */
}

/* Products of a GPU `deviate` standard deviations slower than the mean, over what the full step takes them to need,
 * which is the slowest of all; attention loses a part of that clock. */
static void set_clock(const MsScenario *s, double deviate, double *clock, double *attention) {
  double own = ms_clock_of(s, deviate), full = ms_clock_of(s, ms_expected_maximum(s->gpus));
  double derate = ms_sustained_clock(s, MS_FAMILY_GEMM), loss = s->laws.attention_clock_loss;
  *clock = MAX(own / full, 0.5);
  *attention = ms_sustained_clock(s, MS_FAMILY_ATTENTION) / (1 - loss * (1 - derate / *clock));
}

static void draw_slow(double *factor, int gpus, double rate, double by, guint64 seed, int purpose) {
  for (int r = 0; rate > 0 && r < gpus; r++)
    if (uniform(seed, r, purpose) < rate) factor[r] *= by;
}

static MsRankStates states_new(const MsScenario *s, guint64 seed, guint causes) {
  const MsClusterSpec *c = &s->cluster;
  int n = s->gpus;
  MsRankStates x = {.clock = g_new(double, n), .attention = g_new(double, n), .gpu = g_new(double, n)};
  x.nic = g_new(double, n), x.seed = seed;
  ms_cluster_named(causes >> MS_CAUSE_SLOW_GPUS & 1 ? c->slow_gpus : NULL, n, x.gpu);
  ms_cluster_named(causes >> MS_CAUSE_SLOW_NICS & 1 ? c->slow_nics : NULL, n, x.nic);
  if (causes >> MS_CAUSE_SLOW_GPUS & 1)
    draw_slow(x.gpu, n, c->slow_gpu_rate, c->slow_gpu_factor, seed, MS_CAUSE_SLOW_GPUS);
  if (causes >> MS_CAUSE_SLOW_NICS & 1)
    draw_slow(x.nic, n, c->slow_nic_rate, c->slow_nic_factor, seed, MS_CAUSE_SLOW_NICS);
  gboolean spread = c->jitter && ms_clock_spread(s) > 0;
  for (int r = 0; r < n; r++) {
    x.clock[r] = x.attention[r] = 1;
    if (!spread) continue;
    double z = causes >> MS_CAUSE_CLOCKS & 1 ? gsl_cdf_ugaussian_Pinv(uniform(seed, r, MS_CAUSE_CLOCKS)) : 0;
    set_clock(s, z, &x.clock[r], &x.attention[r]);
  }
  x.kernel_jitter = c->jitter && causes >> MS_CAUSE_KERNELS & 1 ? ms_kernel_jitter(s) : 0;
  x.host_jitter = c->jitter && causes >> MS_CAUSE_HOSTS & 1 ? s->laws.host_jitter : 0;
  x.operator_of_host = ms_time_of(s->hardware->kernel_launch_s);
  return x;
}

static void states_clear(MsRankStates *x) { g_free(x->clock), g_free(x->attention), g_free(x->gpu), g_free(x->nic); }

/* Those that the scenario has, as bits. */
static guint acting(const MsScenario *s, const Network *net) {
  const MsClusterSpec *c = &s->cluster;
  gboolean gpus = c->slow_gpu_rate > 0 && c->slow_gpu_factor > 1, nics = c->slow_nic_rate > 0 && c->slow_nic_factor > 1;
  guint bits = 0;
  if (c->jitter && ms_kernel_jitter(s) > 0) bits |= 1u << MS_CAUSE_KERNELS;
  if (c->jitter && s->laws.host_jitter > 0) bits |= 1u << MS_CAUSE_HOSTS;
  if (c->jitter && ms_clock_spread(s) > 0) bits |= 1u << MS_CAUSE_CLOCKS;
  if (gpus || (c->slow_gpus && JSON_NODE_HOLDS_OBJECT(c->slow_gpus))) bits |= 1u << MS_CAUSE_SLOW_GPUS;
  if (nics || (c->slow_nics && JSON_NODE_HOLDS_OBJECT(c->slow_nics))) bits |= 1u << MS_CAUSE_SLOW_NICS;
  if (net->rows) bits |= 1u << MS_CAUSE_EXPERTS;
  return bits;
}

/* --- ranks that are alike --- */

/* A number for each way to be slow, in the order of the stages. */
static guint32 *properties(const MsLayout *l, const MsRankStates *x) {
  const double *const *fabric = (const double *const *)x->fabric;
  double way[5 + MS_N_GROUPS * MS_N_PATTERNS];
  g_autofree int *rank = ms_ranks_by_stage(l);
  guint32 *property = g_new(guint32, l->world), n = 0;
  g_autoptr(GHashTable) known = g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, NULL);
  for (int i = 0; i < l->world; i++) {
    int r = rank[i];
    int ways = 0;
    way[ways++] = x->clock[r], way[ways++] = x->attention[r], way[ways++] = x->gpu[r], way[ways++] = x->nic[r];
    int coord[4];
    ms_rank_coords(l, TRUE, r, coord);
    way[ways++] = x->rows ? coord[1] : 0;
    for (int k = 0; k < MS_N_GROUPS * MS_N_PATTERNS; k++)
      if (fabric[k]) way[ways++] = fabric[k][r];
    GBytes *key = g_bytes_new(way, (gsize)ways * sizeof *way);
    guint32 number = GPOINTER_TO_UINT(g_hash_table_lookup(known, key));
    if (number > 0) g_bytes_unref(key);
    else g_hash_table_insert(known, key, GUINT_TO_POINTER(number = ++n));
    property[i] = number;
  }
  return property;
}

static MsUnits *units_of(const MsLayout *l, const MsRankStates *x, gboolean merge) {
  if (!merge || x->kernel_jitter > 0 || x->host_jitter > 0) return ms_units_new(l, NULL);
  g_autofree guint32 *property = properties(l, x);
  return ms_units_new(l, property);
}

/* --- draws --- */

typedef struct {
  const MsScenario *scenario;
  const MsStepPlan *plan;
  const Network *network;
  guint causes;
  gboolean merge;
  MsRankTimes *times; /* of the first draw; NULL */
} Shared;

typedef struct {
  MsJob job; /* first, as ms_jobs_run wants it */
  int index;
  guint32 units;
  MsWalked all;
  double without_s[MS_N_CAUSES];
} One;

static MsWalked walk(const Shared *x, int index, guint causes, gboolean shares,
                     guint32 *units) { /* shares: also the times of ranks */
  MsRankStates states = states_new(x->scenario, (guint64)(x->scenario->cluster.seed + index), causes);
  memcpy(states.fabric, x->network->share, sizeof states.fabric);
  states.rows = causes >> MS_CAUSE_EXPERTS & 1 ? x->network->rows : x->network->mean_rows;
  g_autoptr(MsUnits) of = units_of(x->plan->detail->layout, &states, x->merge);
  MsWalked walked = ms_walk_step(x->plan, of, &states, slow_row, x->network, shares, shares ? x->times : NULL);
  states_clear(&states);
  if (units) *units = of->units;
  return walked;
}

static void draw(gpointer item, gconstpointer data) {
  One *one = item;
  const Shared *x = data;
  one->all = walk(x, one->index, x->causes, one->index == 0, &one->units);
  for (int c = 0; c < MS_N_CAUSES; c++)
    if (x->causes >> c & 1) one->without_s[c] = walk(x, one->index, x->causes & ~(1u << c), FALSE, NULL).step_s;
}

/* --- summing up --- */

static int by_share(const void *a, const void *b) {
  const MsRankShare *x = a, *y = b;
  if (x->path_s != y->path_s) return x->path_s < y->path_s ? 1 : -1;
  if (x->awaited_s != y->awaited_s) return x->awaited_s < y->awaited_s ? 1 : -1;
  return x->rank - y->rank;
}

static void take_first(const MsWalked *w, MsCluster *out) {
  out->path_compute_s = w->path_compute_s, out->path_comm_s = w->path_comm_s;
  out->path_host_s = w->path_host_s, out->path_other_s = w->path_other_s;
  out->tasks = w->tasks;
  for (int r = 0; r < out->world; r++) out->path_ranks += w->share[r].path_s > 0;
  qsort(w->share, (size_t)out->world, sizeof *w->share, by_share);
  out->n_shares = MIN(out->world, MS_CLUSTER_SHARES);
  memcpy(out->share, w->share, sizeof *out->share * (size_t)out->n_shares);
}

static void sum_up(const GArray *all, guint causes, MsCluster *out) {
  g_autofree double *step = g_new(double, all->len);
  double cost[MS_N_CAUSES] = {0};
  int n = 0;
  for (guint i = 0; i < all->len; i++) {
    const One *one = &g_array_index(all, One, i);
    if (!one->job.done) continue;
    for (int c = 0; c < MS_N_CAUSES; c++) cost[c] += one->all.step_s - one->without_s[c];
    for (int g = 0; g < MS_N_GROUPS; g++) out->waits_s[g] += one->all.waits_s[g];
    out->units = MAX(out->units, one->units);
    if (one->all.share) take_first(&one->all, out);
    step[n++] = one->all.step_s;
  }
  for (int g = 0; g < MS_N_GROUPS; g++) out->waits_s[g] /= n;
  for (int c = 0; c < MS_N_CAUSES; c++)
    if (causes >> c & 1) out->cause[out->n_causes++] = (MsCauseCost){(MsCause)c, cost[c] / n};
  out->step_s = ms_spread(step, n);
}

static void nothing_drawn(MsCluster *out) {
  out->step_s = (MsSpread){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  for (int g = 0; g < MS_N_GROUPS; g++) out->waits_s[g] = NAN;
  out->path_compute_s = out->path_comm_s = out->path_host_s = out->path_other_s = NAN;
}

void ms_cluster_clear(MsCluster *c) {
  if (c->links) g_array_unref(c->links);
  c->links = NULL;
}

gboolean ms_cluster_run(const MsScenario *s, const MsResult *full, const MsDetail *detail,
                        const MsClusterOptions *options, MsCluster *out, GError **error) {
  gint64 began = g_get_monotonic_time();
  Network network;
  *out = (MsCluster){.world = s->gpus, .stages = detail->layout->pp, .full_s = full->step_time_s};
  out->first_seed = (guint32)s->cluster.seed;
  g_autoptr(MsStepPlan) plan = ms_step_plan_new(detail, full->step_time_s);
  if (!open_network(&network, s, plan, error)) {
    close_network(&network);
    return FALSE;
  }
  Shared shared = {s, plan, &network, acting(s, &network), options->merge, options->times};
  g_autoptr(GArray) all = g_array_new(FALSE, TRUE, sizeof(One));
  for (int i = 0; i < options->draws; i++) g_array_append_val(all, ((One){.job = {s->file}, .index = i}));
  const MsJobsOptions shift = {"draws", "draws", options->threads, options->progress};
  gboolean ok = ms_jobs_run_on_ranks(all, draw, &shared, &shift, &out->extent, error);
  for (guint i = 0; i < all->len; i++) /* the critical path stays where it was found */
    if (!ms_jobs_own(all->len, i)) g_array_index(all, One, i).all.share = NULL;
  if (ok && out->extent.done == 0) nothing_drawn(out);
  else if (ok) {
    sum_up(all, shared.causes, out);
    ok = ms_link_loads(s, plan, out->step_s.mean, MS_LINKS_SHOWN, &out->links, error);
  }
  for (guint i = 0; i < all->len; i++) ms_walked_clear(&g_array_index(all, One, i).all);
  close_network(&network);
  out->elapsed_s = (double)(g_get_monotonic_time() - began) / 1e6;
  return ok;
}
