/* src/plan/shares.c - pools of replicas: how many sequences of a step those of each machine do, and which layout all of
 * them have.
 *
 * Every way to share the batch in whole sequences is one search, that of the machine with most to do; a step takes as
 * long as its slowest replicas (sim/simulate.h). The ways are taken by what is proven of them, the lowest first: on
 * each machine every layout takes at least so long for a sequence, so that the dearest machine of a share is a bound of
 * it. The first whose bound is above the last of the list ends the search, and each search is told what it has to beat.
 */
#include "base/err.h"
#include "base/io.h"
#include "base/order.h"
#include "base/ranks.h"
#include "base/stats.h"
#include "plan/planner_priv.h"
#include "plan/search_priv.h"
#include <math.h>
#include <string.h>

#define MOST_SHARES 20000 /* ways to share the batch */

typedef struct {
  double lower_s; /* no layout has a shorter step */
  int batch[MS_MAX_POOLS];
} Share;

typedef struct {
  const MsRequest *request;
  const MsPlanOptions *options;
  double per_sequence_s[MS_MAX_POOLS]; /* at least, of what each pool does */
  GArray *share;                       /* Share, what is proven lowest first */
  MsPlan *plan;                        /* of all of them */
  int top;
} Shares;

/* --- one share --- */

/* The machine with most to do by the data sheet. */
static int busiest(const MsScenario *s) {
  double most = -1;
  int own = 0;
  for (int i = 0; i < s->pools.shares; i++) {
    const MsPool *p = &s->pools.pool[i];
    double peak = ms_hardware_peak_flops(p->hardware, s->training.precision);
    double load = p->batch / (p->gpus * (peak > 0 ? peak : 1));
    if (load > most) most = load, own = i;
  }
  return own;
}

static MsPlan *search_from(const Shares *x, const int *batch, int own, double limit_cost, double *least_s,
                           GError **error) {
  MsScenario given = *x->request->base; /* read only, as is all of the request */
  for (int i = 0; i < given.pools.shares; i++) given.pools.pool[i].batch = batch[i];
  MsScenario view = ms_scenario_seen_from(&given, own < 0 ? busiest(&given) : own);
  MsRequest request = *x->request;
  MsPlanOptions options = *x->options;
  request.base = &view;
  options.top = x->top, options.limit_cost = limit_cost, options.watch = NULL;
  if (x->share->len > 1) options.progress = FALSE;
  return ms_plan_search(&request, &options, least_s, error);
}

/* As the request has it: of all machines, with the batch of all. */
static void whole_again(const MsScenario *base, MsScenario *s) {
  s->training.global_batch_size = (int)ms_scenario_batch(s);
  s->pools.own = 0, s->hardware = base->hardware;
}

/* --- all of them --- */

static double cost_of(const Shares *x, const MsPlanEntry *e) {
  return ms_objective_cost(x->request, x->request->base->gpus, e->result->step_time_s);
}

/* What costs more cannot enter the list, which rank 0 alone holds. */
static double threshold(const Shares *x) {
  double of_list = x->options->prune && x->plan->n_best == x->top ? cost_of(x, &x->plan->best[x->top - 1]) : INFINITY;
  g_autoptr(GArray) first = g_array_new(FALSE, FALSE, sizeof of_list);
  if (ms_ranks_own() == 0) g_array_append_val(first, of_list);
  ms_ranks_gather(first);
  return g_array_index(first, double, 0);
}

static void entry_clear(MsPlanEntry *e) { ms_scenario_free(e->scenario), ms_result_free(e->result); }

static void take_entry(const Shares *x, MsPlanEntry entry) {
  MsPlan *plan = x->plan;
  int at = plan->n_best;
  while (at > 0 && cost_of(x, &entry) < cost_of(x, &plan->best[at - 1])) at--;
  if (at == x->top) return entry_clear(&entry);
  if (plan->n_best == x->top) entry_clear(&plan->best[--plan->n_best]);
  memmove(&plan->best[at + 1], &plan->best[at], (size_t)(plan->n_best - at) * sizeof entry);
  plan->best[at] = entry, plan->n_best++;
}

static void add_refusal(MsPlan *plan, MsPlanRefusal *r) {
  for (int i = 0; i < plan->n_refusals; i++) {
    MsPlanRefusal *known = &plan->refusals[i];
    if (strcmp(known->name, r->name) != 0) continue;
    guint64 count = known->count + r->count;
    if (r->miss < known->miss) {
      const MsPlanRefusal nearer = *r;
      *r = *known, *known = nearer;
    }
    known->count = count;
    return;
  }
  plan->refusals = g_renew(MsPlanRefusal, plan->refusals, plan->n_refusals + 1);
  plan->refusals[plan->n_refusals++] = *r;
  memset(r, 0, sizeof *r);
}

/* Adds what a search found, which goes. */
static void take_plan(Shares *x, MsPlan *own) {
  MsPlan *plan = x->plan;
  guint64 *const sum[] = {&plan->searched,  &plan->valid,   &plan->feasible, &plan->pruned,
                          &plan->simulated, &plan->bounded, &plan->screened, &plan->resumed};
  const guint64 more[] = {own->searched,  own->valid,   own->feasible, own->pruned,
                          own->simulated, own->bounded, own->screened, own->resumed};
  for (guint i = 0; i < G_N_ELEMENTS(sum); i++) *sum[i] += more[i];
  plan->interrupted |= own->interrupted, plan->branched |= own->branched;
  plan->objective = own->objective, plan->elapsed_s += own->elapsed_s;
  plan->lower_cost = MIN(plan->lower_cost, own->lower_cost);
  for (int i = 0; i < own->n_best; i++) {
    whole_again(x->request->base, own->best[i].scenario);
    take_entry(x, own->best[i]);
  }
  own->n_best = 0;
  for (int i = 0; i < own->n_refusals; i++) add_refusal(plan, &own->refusals[i]);
  ms_plan_free(own);
}

/* The shares from `first` on are not searched: as many layouts each as those that were. */
static void cut(Shares *x, guint first) {
  guint64 each = x->plan->searched / MAX(first, 1), rest = each * (x->share->len - first);
  double lower_s = g_array_index(x->share, Share, first).lower_s;
  x->plan->searched += rest, x->plan->valid += rest, x->plan->pruned += rest;
  x->plan->lower_cost = MIN(x->plan->lower_cost, ms_objective_cost(x->request, x->request->base->gpus, lower_s));
  x->plan->branched = TRUE;
}

static gboolean search_all(Shares *x, GError **error) {
  MsProgress *progress = x->options->progress && x->share->len > 1 && ms_ranks_own() == 0
                             ? ms_progress_begin("plan", x->share->len)
                             : NULL;
  gboolean ok = TRUE;
  guint i = 0;
  for (; ok && i < x->share->len && !x->plan->interrupted; i++) {
    const Share *s = &g_array_index(x->share, Share, i);
    double limit = threshold(x);
    if (i > 0 && ms_objective_cost(x->request, x->request->base->gpus, s->lower_s) > limit) break;
    MsPlan *own = search_from(x, s->batch, -1, isinf(limit) ? 0 : limit, NULL, error);
    ok = own != NULL;
    if (ok) take_plan(x, own);
    ms_progress_update(progress, (double)(i + 1) / x->share->len, "shares of the batch");
  }
  ms_progress_end(progress);
  if (ok && i < x->share->len) cut(x, i);
  return ok;
}

/* --- the shares --- */

static double lower_of(const Shares *x, const int *batch) {
  const MsPools *pools = &x->request->base->pools;
  double most = 0;
  for (int i = 0; i < pools->shares; i++)
    most = MAX(most, x->per_sequence_s[i] * batch[i] * x->request->base->gpus / pools->pool[i].gpus);
  return most;
}

MS_ORDER(lowest_first, Share, MS_LESS(x->lower_s, y->lower_s), memcmp(x->batch, y->batch, sizeof x->batch))

/* GPUs that each whole number of replicas needs on every machine: no replica has more. */
static gint64 largest_replica(const MsPools *pools) {
  gint64 gpus = pools->pool[0].gpus;
  for (int i = 1; i < pools->shares; i++) gpus = ms_gcd(gpus, pools->pool[i].gpus);
  return gpus;
}

/* Every way to share `left` sequences from pool `i` on; no replica is idle. FALSE: too many. */
static gboolean add_shares(Shares *x, Share *s, int i, gint64 left) {
  const MsPools *pools = &x->request->base->pools;
  gint64 step = pools->pool[i].gpus / largest_replica(pools);
  if (i + 1 == pools->shares) {
    if (left < step || left % step != 0) return TRUE;
    s->batch[i] = (int)left;
    s->lower_s = lower_of(x, s->batch);
    g_array_append_val(x->share, *s);
    return x->share->len <= MOST_SHARES;
  }
  for (gint64 batch = step; batch < left; batch += step) {
    s->batch[i] = (int)batch;
    if (!add_shares(x, s, i + 1, left - batch)) return FALSE;
  }
  return TRUE;
}

/* With pruning: what a sequence takes at least on each machine, found with a batch that every microbatch size divides.
 */
static gboolean bound_machines(Shares *x, GError **error) {
  const MsScenario *base = x->request->base;
  int batch[MS_MAX_POOLS];
  for (int i = 0; i < base->pools.shares; i++) batch[i] = 8 * base->pools.pool[i].gpus;
  for (int i = 0; i < base->pools.shares && x->options->prune; i++) {
    MsPlan *none = search_from(x, batch, i, 0, &x->per_sequence_s[i], error);
    if (!none) return FALSE;
    ms_plan_free(none);
  }
  return TRUE;
}

static gboolean make_shares(Shares *x, GError **error) {
  const MsScenario *base = x->request->base;
  Share s = {0};
  if (base->pools.pool[0].batch != MS_POOL_SEARCHED) {
    for (int i = 0; i < base->pools.shares; i++) s.batch[i] = base->pools.pool[i].batch;
    g_array_append_val(x->share, s);
    return TRUE;
  }
  if (x->options->checkpoint || x->options->resume)
    return ms_input_error(error, base->file, 0, "pools[0].batch",
                          "is searched, by many searches, of which no checkpoint is kept; give the batch of each pool");
  if (!bound_machines(x, error)) return FALSE;
  if (!add_shares(x, &s, 0, base->training.global_batch_size))
    return ms_input_error(error, base->file, 0, "pools[0].batch",
                          "can be shared in more than %d ways; give the batch of each pool", MOST_SHARES);
  g_array_sort(x->share, lowest_first);
  return x->share->len > 0 || ms_input_error(error, base->file, 0, "training.global_batch_size",
                                             "%d sequences give no whole number to the replicas of every pool",
                                             base->training.global_batch_size);
}

static MsPlan *plan_shares(const MsRequest *request, const MsPlanOptions *options, GError **error) {
  Shares x = {.request = request,
              .options = options,
              .share = g_array_new(FALSE, FALSE, sizeof(Share)),
              .plan = g_new0(MsPlan, 1),
              .top = ms_plan_top(options, request)};
  x.plan->best = g_new0(MsPlanEntry, x.top);
  x.plan->lower_cost = INFINITY;
  x.plan->memory_limit_B = request->max_memory_fraction * request->base->hardware->hbm_B;
  gboolean ok = make_shares(&x, error) && search_all(&x, error);
  if (ok && x.plan->n_best > 0 && !x.plan->interrupted) x.plan->lower_cost = cost_of(&x, &x.plan->best[0]);
  ms_plan_sort_refusals(x.plan);
  g_array_unref(x.share);
  if (!ok) g_clear_pointer(&x.plan, ms_plan_free);
  return x.plan;
}

MsPlan *ms_plan(const MsRequest *request, const MsPlanOptions *options, GError **error) {
  return request->base->pools.shares > 0 ? plan_shares(request, options, error)
                                         : ms_plan_search(request, options, NULL, error);
}
