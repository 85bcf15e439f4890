#include "study/ways.h"

#include "base/io.h"
#include "base/order.h"
#include "describe/sources.h"
#include "study/parts.h"
#include "study/variant.h"

#include <math.h>
#include <string.h>

const char *const ms_way_words[] = {"gpus", "options", "machine", NULL};

/* --- the request with a change --------------------------------------------------------------------------------- */
static const MsRecomputeSpec all_recomputed = {.granularity = MS_RECOMPUTE_FULL, .num_layers = 1};

/* Of what the planner may choose the leanest. */
static void make_lean(MsRequest *r) {
  MsOptions *o = &r->base->options;
  if (ms_close_auto(r, "options.recompute")) o->recompute = all_recomputed;
  ms_close_overlaps(r);
  if (ms_close_auto(r, "training.micro_batch_size")) r->base->training.micro_batch_size = 1;
}

/* What needs little memory is slow: where a deadline is to be kept the planner chooses. */
static MsRequest variant_of(const MsRequest *request) {
  MsRequest r = ms_variant_of(request);
  if (request->objective != MS_GOAL_DEADLINE) make_lean(&r);
  return r;
}

/* --- trying one ------------------------------------------------------------------------------------------------ */
typedef struct {
  MsWays *ways;
  const MsRequest *request;
  MsPlanOptions options;
  const MsPlanOptions *asked; /* of the plan */
} Search;

/* Without `change`: the machine, and the number of GPUs that were found. */
static void keep(MsWays *ways, MsWayKind kind, const char *change, MsHardware *machine, const MsPlanEntry *best) {
  ways->way = g_renew(MsWay, ways->way, ways->n + 1);
  MsScenario *s = ms_scenario_copy(best->scenario, TRUE);
  ways->way[ways->n++] =
      (MsWay){.kind = kind,
              .change = change ? g_strdup(change) : g_strdup_printf("%d x %s", s->gpus, s->hardware->name),
              .scenario = s,
              .machine = machine,
              .step_time_s = best->result->step_time_s,
              .device_B = ms_device_B(best->result)};
}

/* Whether some layout of the variant fits, and is started; it is kept then, with its machine. A variant that cannot be
 * planned does not. */
static gboolean try(Search *x, MsRequest *variant, MsWayKind kind, const char *change, MsHardware *machine) {
  if (ms_interrupted()) return FALSE;
  g_autoptr(MsPlan) plan = ms_plan(variant, &x->options, NULL);
  if (!plan || plan->n_best == 0) return FALSE;
  const MsPlanOptions *asked = x->asked;
  if (asked->starts && !asked->starts(plan->best[0].scenario, asked->starts_user, NULL)) return FALSE;
  keep(x->ways, kind, change, machine, &plan->best[0]);
  return TRUE;
}

/* --- more GPUs ------------------------------------------------------------------------------------------------- */
gboolean ms_whole_nodes(const MsHardware *hardware, int gpus, int *below, int *above) {
  int node = hardware->gpus_per_node;
  if (node <= 1 || gpus < node || gpus % node == 0) return FALSE;
  *below = gpus / node * node, *above = *below + node;
  return TRUE;
}

/* Sets most_gpus then. */
static gboolean draws_too_much(Search *x, int gpus) {
  const MsRequest *r = x->request;
  double W = ms_request_gpu_W(r);
  if (!(r->max_power_W > 0) || !(gpus * W > r->max_power_W)) return FALSE;
  x->ways->most_gpus = (int)(r->max_power_W / W);
  return TRUE;
}

/* TRUE: with that many it fits, or more are out of the question. */
static gboolean try_gpus(Search *x, int gpus) {
  if (draws_too_much(x, gpus)) return TRUE;
  MsRequest r = variant_of(x->request);
  g_autofree char *change = g_strdup_printf("%d x %s", gpus, r.base->hardware->name);
  r.base->gpus = gpus;
  ms_close_key(&r, "gpus");
  gboolean fits = try(x, &r, MS_WAY_GPUS, change, NULL);
  ms_variant_clear(&r);
  double tried = gpus;
  if (!fits) g_array_append_val(x->ways->gpus_tried, tried);
  return fits;
}

/* Whole nodes beside the number that was asked for, then 1, 2, 3, 4, 6, 8, 12, ... nodes, up to the first that does. */
enum { MOST_GPUS = 65536, MOST_TIMES = 4096 };

/* Twice the most that the request leaves open, four times, ... */
static void try_twice_as_many(Search *x, const MsOpenKey *key) {
  gint64 gpus = 0;
  for (int v = 0; v < key->n; v++) gpus = MAX(gpus, json_node_get_int(key->values[v]));
  for (gpus *= 2; gpus > 0 && gpus <= MOST_GPUS && !ms_interrupted(); gpus *= 2)
    if (try_gpus(x, (int)gpus)) return;
}

static void try_more_gpus(Search *x) {
  const MsScenario *base = x->request->base;
  int node = MAX(base->hardware->gpus_per_node, 1), below, above = base->gpus;
  int open = ms_open_place(x->request, "gpus");
  if (open >= 0) {
    if (x->request->objective == MS_GOAL_DEADLINE) try_twice_as_many(x, &x->request->open[open]);
    return;
  }
  if (ms_whole_nodes(base->hardware, base->gpus, &below, &above) && (try_gpus(x, below) | try_gpus(x, above))) return;
  for (int power = 1; power <= MOST_TIMES; power *= 2)
    for (int half = 2; half <= 3; half++) { /* power, then half as many again */
      int nodes = power * half / 2;
      if (nodes * node <= above || (half == 3 && power == 1)) continue;
      if (nodes * node > MOST_GPUS || ms_interrupted() || try_gpus(x, nodes * node)) return;
    }
}

/* --- less memory by options ------------------------------------------------------------------------------------ */
static gboolean recompute_all(MsRequest *r) {
  MsRecomputeSpec *own = &r->base->options.recompute;
  if (ms_request_leaves_open(r, "options.recompute") || own->granularity == MS_RECOMPUTE_FULL) return FALSE;
  *own = all_recomputed;
  return TRUE;
}

static gboolean one_sequence(MsRequest *r) {
  if (ms_request_leaves_open(r, "training.micro_batch_size") || r->base->training.micro_batch_size == 1) return FALSE;
  r->base->training.micro_batch_size = 1;
  return TRUE;
}

static gboolean shard_all(MsRequest *r) {
  if (ms_request_leaves_open(r, "options.fsdp") || r->base->options.fsdp != MS_FSDP_NONE) return FALSE;
  r->base->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
  return TRUE;
}

static gboolean offload_optimizer(MsRequest *r) {
  double *own = &r->base->options.optimizer_offload_fraction;
  if (ms_request_leaves_open(r, "options.optimizer_offload_fraction") || *own == 1 ||
      !(r->base->hardware->host_link_Bps > 0))
    return FALSE;
  *own = 1;
  return TRUE;
}

static const struct {
  const char *change;
  gboolean (*apply)(MsRequest *r); /* FALSE: there is nothing to change */
} savings[] = {{"recompute full", recompute_all},
               {"micro_batch_size 1", one_sequence},
               {"optimizer_offload_fraction 1", offload_optimizer},
               {"fsdp optim_grads_params", shard_all}};

/* Each alone; where none does, the first two, three, ... of them together. */
static void try_options(Search *x) {
  gboolean any = FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(savings); i++) {
    MsRequest r = variant_of(x->request);
    any |= savings[i].apply(&r) && try(x, &r, MS_WAY_OPTIONS, savings[i].change, NULL);
    ms_variant_clear(&r);
  }
  for (guint n = 2; !any && n <= G_N_ELEMENTS(savings); n++) {
    MsRequest r = variant_of(x->request);
    g_autoptr(GString) change = g_string_new(NULL);
    int applied = 0;
    for (guint i = 0; i < n; i++)
      if (savings[i].apply(&r)) g_string_append_printf(change, "%s%s", applied++ ? ", " : "", savings[i].change);
    any = applied > 1 && try(x, &r, MS_WAY_OPTIONS, change->str, NULL);
    ms_variant_clear(&r);
  }
}

/* Where less of a GPU may be used than plans do by default: the limit that the leanest layout found needs, lowered
 * until nothing fits. */
#define FINER 0.01 /* of the device memory, from one limit to the next */

static void try_limit(Search *x) {
  MsRequest r = variant_of(x->request), usual = {0};
  double step = FINER;
  gboolean stopped = FALSE;
  ms_fields_defaults(&ms_plan_table, &usual);
  if (r.max_memory_fraction < usual.max_memory_fraction) {
    r.max_memory_fraction = usual.max_memory_fraction;
    g_autoptr(GArray) points = ms_plan_front(&r, &x->options, ms_front_step, &step, &stopped, NULL);
    const MsFrontPoint *least =
        points && points->len > 0 ? &g_array_index(points, MsFrontPoint, points->len - 1) : NULL;
    if (least && !stopped) {
      double percent = ceil(100 * least->device_B / r.base->hardware->hbm_B);
      g_autofree char *change = g_strdup_printf("max_memory_fraction %.2f", percent / 100);
      r.max_memory_fraction = percent / 100;
      try(x, &r, MS_WAY_OPTIONS, change, NULL);
    }
    for (guint i = 0; points && i < points->len; i++) ms_scenario_free(g_array_index(points, MsFrontPoint, i).scenario);
  }
  ms_variant_clear(&r);
}

/* --- a type that the machine has --- */
static gboolean lacks_precision(const MsRequest *r) {
  return !ms_request_leaves_open(r, "training.precision") &&
         !(ms_hardware_peak_flops(r->base->hardware, r->base->training.precision) > 0);
}

static void try_precisions(Search *x) {
  for (int p = 0; ms_precision_words[p]; p++) {
    if (!(ms_hardware_peak_flops(x->request->base->hardware, (MsPrecision)p) > 0)) continue;
    MsRequest r = variant_of(x->request);
    g_autofree char *change = g_strdup_printf("precision %s", ms_precision_words[p]);
    r.base->training.precision = (MsPrecision)p;
    try(x, &r, MS_WAY_OPTIONS, change, NULL);
    ms_variant_clear(&r);
  }
}

/* --- other machines -------------------------------------------------------------------------------------------- */
static gboolean try_machine(Search *x, const char *name) {
  const MsHardware *own = x->request->base->hardware;
  g_autoptr(MsHardware) machine = ms_hardware_load(name, NULL);
  if (machine && x->request->base->strict) ms_sources_forget_assumed(machine);
  gboolean late = x->request->objective == MS_GOAL_DEADLINE;
  if (!machine || strcmp(name, own->name) == 0 ||
      (late ? !(machine->peak_bf16_flops > own->peak_bf16_flops) : !(machine->hbm_B > own->hbm_B)))
    return FALSE;
  MsRequest r = variant_of(x->request);
  r.base->hardware = machine;
  r.base->hardware_json = NULL; /* named by itself */
  gboolean fits = try(x, &r, MS_WAY_MACHINE, NULL, machine);
  ms_variant_clear(&r);
  if (fits) machine = NULL; /* now the way's */
  return fits;
}

MS_ORDER(faster_first, MsWay, MS_LESS(x->step_time_s, y->step_time_s), strcmp(x->change, y->change))

static void try_machines(Search *x) {
  g_autoptr(GPtrArray) names = ms_data_names("hardware");
  int before = x->ways->n;
  for (guint i = 0; i + 1 < names->len; i++) try_machine(x, names->pdata[i]);
  if (x->ways->n > before + 1)
    qsort(&x->ways->way[before], (size_t)(x->ways->n - before), sizeof *x->ways->way, faster_first);
}

MsWays *ms_ways_new(const MsRequest *request, const MsPlanOptions *options) {
  MsWays *ways = g_new0(MsWays, 1);
  ways->gpus_tried = g_array_new(FALSE, FALSE, sizeof(double));
  Search x = {ways, request, {.top = 1, .prune = TRUE, .rough = TRUE, .threads = options->threads}, options};
  if (lacks_precision(request)) try_precisions(&x);
  else {
    if (request->objective != MS_GOAL_DEADLINE) try_options(&x), try_limit(&x);
    try_more_gpus(&x);
  }
  try_machines(&x);
  if (ms_interrupted()) g_clear_pointer(&ways, ms_ways_free);
  return ways;
}

void ms_ways_free(MsWays *ways) {
  if (!ways) return;
  for (int i = 0; i < ways->n; i++) {
    g_free(ways->way[i].change);
    ms_scenario_free(ways->way[i].scenario);
    ms_hardware_free(ways->way[i].machine);
  }
  g_free(ways->way);
  g_array_unref(ways->gpus_tried);
  g_free(ways);
}
