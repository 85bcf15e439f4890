/* src/cost/cost.c - the machine prepared for lookups, and the seconds of one row.
 *
 * A curve for every (operator, dtype, pass) is chosen once, when one of its rows is costed, and a prepared collective
 * for every (kind, group) by ms_cost_new; a row then costs one table access and one formula. */
#include "cost/internal.h"
#include "cost/lcma.h"
#include "cost/terms.h"

#include "base/err.h"
#include "base/stats.h"
#include "fabric/pattern.h"

#include <math.h>
#include <string.h>

typedef struct {
  const MsCurve *use;    /* evaluated: an own copy, a default */
  const MsCurve *origin; /* reported: the profile's, NULL for a default */
  double band;
  double factor;     /* time over the curve's: pass factor and sustained clock */
  gboolean own_pass; /* the curve is of this pass, not forward's */
} Slot;

typedef struct {
  Slot of[MS_N_PASSES];
  MsCurve own; /* of sparse attention backward: dense attention forward, at the share that it reaches then */
} Slots;

typedef struct { /* what a curve of the profile may stand in for */
  int op, next;  /* MsOpKind, MS_N_OPS: of none that is known; the next curve of the same, -1 = none */
  gint8 dtype[MS_N_ODT], pass[MS_N_PASSES]; /* dtype_rank, pass_rank */
} Serves;

struct MsCost {
  gint *users; /* of curves, slots and what these point to, which go with the last of them; atomic */
  const MsScenario *scenario;
  const MsHardware *hardware;
  MsDeviceRates device[MS_N_ODT];
  double element_B[MS_N_ODT];
  double expert_width, head_dim;
  double attention_backward;          /* FLOP/s of backward over forward attention */
  double clock[MS_FAMILY_MEMORY + 1]; /* ms_sustained_clock */
  MsCurve *fallback;                  /* [MS_N_FALLBACKS] */
  MsCurve *curves;                    /* shallow copies of the profile's; low-precision GEMMs have the launch of bf16 */
  Serves *serves;                     /* [num_curves] */
  int first[MS_N_OPS + 1];            /* first curve of each MsOpKind, of "elementwise"; -1 = none */
  Slots **slots;                      /* [MS_N_OPS * MS_N_ODT] made when they are asked for, by any thread; atomic */
  guint8 like[MS_N_OPS];      /* operator whose slots it has: memory-bound ones without a curve of their own together */
  MsGroup group[MS_N_GROUPS]; /* that the tables below are of */
  MsCollective collective[MS_N_COLL][MS_N_GROUPS];
  MsCollective (*collective_fp32)[MS_N_GROUPS]; /* [MS_N_COLL] NULL: messages of FP32 are like any other */
  MsDispatch dispatch[2];                       /* and combine, between the expert ranks (MS_GROUP_TP_EP) */
  MsFabricCosts *fabric;                        /* NULL: an ideal network */
  double *pair_times; /* [pp] of messages over a fabric, by pair of neighbours, over those over an ideal network; owned,
                         NULL: as `collective` has them */
  double network_times; /* ms_cost_new_slower */
  /* Machines of several kinds: this is pool 0. */
  int n_pools;
  MsCost **of_pool;          /* [n_pools] the first is this one, the others are owned; NULL: no pools */
  MsScenario *pool_scenario; /* [n_pools] what they point to */
  /* Replicas on machines of several kinds: what the others, which it meets, are costed with. */
  int n_beside, own;
  MsCost **beside; /* [n_beside] owned, NULL at `own`; NULL: none. Their scenarios are in pool_scenario */
};

/* --- preparing: device ----------------------------------------------------------------------------------------- */
/* Under another power limit than that of the runs which `sustained_derate` was found by, with or without a boost. */
static double power_clock(const MsScenario *s) {
  const MsHardware *h = s->hardware;
  double boost = h->vboost ? s->laws.boosted_clock : 1;
  if (!known(h->tdp_W) || !known(h->sustained_tdp_W) || h->tdp_W == h->sustained_tdp_W) return boost;
  return boost * pow(h->tdp_W / h->sustained_tdp_W, s->laws.power_clock_exponent);
}

/* Mode and mean of Gumbel's limit. */
double ms_expected_maximum(double n) {
  const double euler = 0.5772156649015329, pi = 3.141592653589793;
  if (n < 2) return 0;
  double a = sqrt(2 * log(n));
  return a - (log(log(n)) + log(4 * pi)) / (2 * a) + euler / a;
}

double ms_gpus_that_meet(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  int all = s->gpus / MAX(l->pp, 1), attention = MAX(l->tp, 1) * MAX(l->cp, 1),
      experts = MAX(l->etp, 1) * MAX(l->ep, 1);
  return s->options.fsdp >= MS_FSDP_OPTIM_GRADS ? all : MIN(MAX(attention, experts), all);
}

double ms_clock_of(const MsScenario *s, double deviate) {
  double of_runs = s->hardware->sustained_gpus >= 1 ? s->hardware->sustained_gpus : s->gpus;
  return 1 + ms_clock_spread(s) * (deviate - ms_expected_maximum(of_runs));
}

/* Time of the slowest of all GPUs, which a synchronous step waits for, over that of as many as the runs had that clocks
 * were found by; of those that one meets where the rest is left to sim/scale.h. */
static double slowest_of_all(const MsScenario *s) {
  if (s->gpus < 1) return 1;
  if (s->cluster.expected && s->cluster.jitter) return ms_clock_of(s, ms_normal_maximum(ms_gpus_that_meet(s)));
  if (s->hardware->sustained_gpus < 1) return 1;
  return 1 + ms_clock_spread(s) * (ms_expected_maximum(s->gpus) - ms_expected_maximum(s->hardware->sustained_gpus));
}

/* Power limits the clock, and attention draws less than GEMMs do, as its matrix units wait for exponentials. */
double ms_sustained_clock(const MsScenario *scenario, MsOpFamily family) {
  double derate = or_else(scenario->hardware->sustained_derate, 1) * power_clock(scenario) / slowest_of_all(scenario);
  return family == MS_FAMILY_ATTENTION ? 1 - scenario->laws.attention_clock_loss * (1 - derate)
         : family < MS_FAMILY_MEMORY   ? derate
                                       : 1;
}

static gboolean is_fp16(const MsScenario *s) { return ms_precision(&s->training)->dtype == MS_DT_FP16; }

static void set_device(MsCost *cost) {
  for (int i = 0; i < MS_N_ODT; i++) {
    cost->device[i] = ms_device_rates(cost->hardware, i, is_fp16(cost->scenario));
    cost->element_B[i] = ms_element_B(i);
  }
}

static void set_shape(MsCost *cost) {
  const MsModel *m = cost->scenario->model;
  if (!m) return;
  int etp = MAX(cost->scenario->layout.etp, 1);
  cost->expert_width = m->moe_ffn_hidden_size > 0 ? (double)m->moe_ffn_hidden_size / etp : 0;
  cost->head_dim = ms_model_has_mla(m)
                       ? m->multi_latent_attention.qk_head_dim + m->multi_latent_attention.qk_pos_emb_head_dim
                   : m->kv_channels > 0 ? m->kv_channels
                                        : m->hidden_size / MAX(m->num_attention_heads, 1);
}

/* --- preparing: which curve ------------------------------------------------------------------------------------ */
/* A curve of the dtype itself, one without dtype, then those of dtypes that may stand in. Any other (9) serves
 * memory-bound operators only. */
static gint8 dtype_rank(int own, int dtype) {
  if (own == dtype) return 0;
  const gint8 *curves = ms_op_dtypes[dtype].curves;
  for (gint8 i = 0; curves[i] >= 0; i++)
    if (own == curves[i]) return i + 2;
  return 9;
}

static void rank_dtypes(const MsCurve *curve, gint8 rank[MS_N_ODT]) {
  int own = 0;
  while (curve->dtype && own < MS_N_ODT && strcmp(curve->dtype, ms_odt_words[own]) != 0) own++;
  for (int dtype = 0; dtype < MS_N_ODT; dtype++) rank[dtype] = curve->dtype ? dtype_rank(own, dtype) : 1;
}

/* 0: fitted on this pass; 1: on any; 2: on forward, to be multiplied by the pass factor; -1 not at all. */
static int pass_rank(const MsCurve *curve, int pass) {
  if (!curve->pass) return 1;
  gboolean forward = strcmp(curve->pass, "forward") == 0;
  if (pass == MS_PASS_FORWARD || pass == MS_PASS_RECOMPUTE) return forward ? 0 : -1;
  if (strcmp(curve->pass, pass == MS_PASS_WGRAD ? "wgrad" : "dgrad") == 0 || strcmp(curve->pass, "backward") == 0)
    return 0;
  return forward ? 2 : -1;
}

static gboolean form_serves(MsOpFamily family, MsCurveForm form) {
  if (form == MS_FORM_TERMS) return family < MS_FAMILY_COMM;
  switch (family) {
  case MS_FAMILY_GEMM: return form == MS_FORM_GEMM_SATURATING || form == MS_FORM_GEMM_TILED;
  case MS_FAMILY_GROUPED: return form == MS_FORM_GROUPED_GEMM;
  case MS_FAMILY_ATTENTION: return form == MS_FORM_ATTENTION;
  case MS_FAMILY_MEMORY: return form == MS_FORM_BANDWIDTH;
  default: return FALSE;
  }
}

enum { OTHER_LIBRARY = 10000 }; /* more than all that else counts */

/* Which library's products a curve has: the one that runs, any, or as a last resort another. */
static double library_rank(const MsCost *cost, const MsCurve *curve) {
  if (!curve->library) return 0.5;
  return strcmp(curve->library, ms_grouped_library_words[cost->scenario->options.grouped_gemm_library]) == 0
             ? 0
             : OTHER_LIBRARY;
}

/* The profile's best curve for an operator (MS_N_OPS: elementwise): dtype first, then head dimension, then pass, then
 * library; the first of equals. -1 none. */
static int pick(const MsCost *cost, int word, MsOpFamily family, int dtype, int pass, int *pass_kind) {
  double best = HUGE_VAL;
  int found = -1;
  for (int i = cost->first[word]; i >= 0; i = cost->serves[i].next) {
    const MsCurve *curve = &cost->hardware->curves[i];
    if (!form_serves(family, curve->form)) continue;
    int by_dtype = cost->serves[i].dtype[dtype], by_pass = cost->serves[i].pass[pass];
    if (by_pass < 0 || (by_dtype == 9 && family != MS_FAMILY_MEMORY)) continue;
    double head = family != MS_FAMILY_ATTENTION || !known(cost->head_dim) ? 0
                  : curve->head_dim > 0                                   ? fabs(log2(curve->head_dim / cost->head_dim))
                                                                          : 0.5;
    double score = by_dtype * 100 + MIN(head, 9) * 10 + by_pass + library_rank(cost, curve);
    if (score < best) best = score, found = i, *pass_kind = by_pass;
  }
  return found;
}

static double pass_factor(const MsCost *cost, int pass) {
  if (pass == MS_PASS_DGRAD) return or_else(cost->hardware->dgrad_factor, 1);
  if (pass == MS_PASS_WGRAD) return or_else(cost->hardware->wgrad_factor, 1);
  return 1;
}

/* Where the machine's attention is described by a form: its rate, the other parameters from the measured kernel. */
static gboolean take_sparse_backward(const MsCost *cost, Slot *slot, MsCurve *curve, int dtype) {
  int kind, dense = pick(cost, MS_OP_ATTENTION, MS_FAMILY_ATTENTION, dtype, MS_PASS_FORWARD, &kind);
  if (dense < 0 || cost->curves[dense].form != MS_FORM_ATTENTION) return FALSE;
  double unknown = cost->scenario->laws.default_band;
  *curve = cost->fallback[MS_FALLBACK_SPARSE_BACKWARD];
  curve->param[MS_A_E] *= cost->curves[dense].param[MS_A_E];
  *slot = (Slot){.use = curve,
                 .origin = &cost->hardware->curves[dense],
                 .factor = 1 / cost->clock[MS_FAMILY_ATTENTION],
                 .own_pass = TRUE,
                 .band = MAX(ms_curve_band(&cost->hardware->curves[dense], unknown), unknown)};
  return TRUE;
}

/* `own`: room for a curve of its own. */
static Slot make_slot(const MsCost *cost, int op, int dtype, int pass, MsCurve *own) {
  static const MsFallback fallback[] = {[MS_FAMILY_GEMM] = MS_FALLBACK_GEMM,
                                        [MS_FAMILY_GROUPED] = MS_FALLBACK_GROUPED,
                                        [MS_FAMILY_ATTENTION] = MS_FALLBACK_ATTENTION,
                                        [MS_FAMILY_MEMORY] = MS_FALLBACK_MEMORY};
  double unknown = cost->scenario->laws.default_band;
  MsOpFamily family = ms_op_families[op];
  int kind = 1, found = pick(cost, op, family, dtype, pass, &kind);
  if (found < 0 && family == MS_FAMILY_MEMORY) found = pick(cost, MS_N_OPS, family, dtype, pass, &kind);
  gboolean stand_in = found < 0 && (op == MS_OP_SPARSE_ATTENTION ||
                                    op == MS_OP_INDEXER); /* as fast as dense attention to as many keys */
  Slot sparse;
  if (stand_in && pass == MS_PASS_DGRAD && take_sparse_backward(cost, &sparse, own, dtype)) return sparse;
  if (stand_in) found = pick(cost, MS_OP_ATTENTION, family, dtype, pass, &kind);
  if (found < 0 && op == MS_OP_FRONT_END)
    found = pick(cost, MS_OP_GEMM, family, dtype, MS_PASS_FORWARD, &kind), stand_in = TRUE;
  const MsCurve *none = &cost->fallback[op == MS_OP_DELTA_RULE ? MS_FALLBACK_DELTA : fallback[family]];
  Slot slot = {.use = found < 0 ? none : &cost->curves[found], .band = unknown, .factor = 1};
  if (found >= 0) {
    slot.origin = &cost->hardware->curves[found];
    slot.band = ms_curve_band(slot.origin, unknown), slot.own_pass = cost->serves[found].pass[pass] == 0;
    gboolean other = library_rank(cost, slot.origin) >= OTHER_LIBRARY;
    if (family != MS_FAMILY_MEMORY && (stand_in || other || cost->serves[found].dtype[dtype] > 1))
      slot.band = MAX(slot.band, unknown); /* stands in */
  }
  if (family == MS_FAMILY_MEMORY) return slot;
  if (family != MS_FAMILY_ATTENTION && kind != 0) slot.factor = pass_factor(cost, pass);
  if (family == MS_FAMILY_ATTENTION && kind != 0 && pass == MS_PASS_DGRAD && op != MS_OP_DELTA_RULE)
    slot.factor = 1 / cost->attention_backward;
  if (op == MS_OP_ATTENTION && cost->scenario->model->softmax_sink)
    slot.factor /= or_else(cost->hardware->attention_sink_factor, 1);
  slot.factor /= cost->clock[family];
  return slot;
}

/* Of the forms whose third parameter is the launch of a GEMM kernel. */
static gboolean is_gemm(const MsCurve *curve) {
  return curve->form == MS_FORM_GEMM_SATURATING || curve->form == MS_FORM_GEMM_TILED;
}

/* MS_N_OPS: of none that is known. */
static int kind_of(const MsCurve *curve) {
  int op = 0;
  while (op < MS_N_OPS && (*curve->op != *ms_op_words[op] || strcmp(curve->op, ms_op_words[op]) != 0)) op++;
  return op;
}

/* In front of those of its operator; of no operator that is known it serves none. Curves that stand together are much
 * alike. */
static void take_curve(MsCost *cost, int i) {
  const MsCurve *curve = &cost->hardware->curves[i], *behind = i + 1 < cost->hardware->num_curves ? curve + 1 : NULL;
  Serves *serves = &cost->serves[i];
  gboolean other_pass = !behind || g_strcmp0(curve->pass, behind->pass) != 0;
  if (behind) *serves = serves[1];
  if (!behind || g_strcmp0(curve->op, behind->op) != 0) serves->op = kind_of(curve);
  if (!behind || g_strcmp0(curve->dtype, behind->dtype) != 0) rank_dtypes(curve, serves->dtype);
  for (int pass = 0; pass < MS_N_PASSES && other_pass; pass++) serves->pass[pass] = (gint8)pass_rank(curve, pass);
  if (serves->op == MS_N_OPS && g_strcmp0(curve->op, "elementwise") != 0) return;
  serves->next = cost->first[serves->op], cost->first[serves->op] = i;
}

/* Low-precision GEMM curves were fitted with their activation cast inside; rows of kind QUANTIZE pay for it here,
 * launch included. The first parameter of every form that computes is its efficiency. */
static void take_curves(MsCost *cost) {
  const MsHardware *h = cost->hardware;
  double bf16_launch = cost->fallback[MS_FALLBACK_GEMM].param[MS_C_LAUNCH];
  cost->curves = g_memdup2(h->curves, sizeof *h->curves * (size_t)MAX(h->num_curves, 0));
  cost->serves = g_new(Serves, h->num_curves);
  for (int op = 0; op <= MS_N_OPS; op++) cost->first[op] = -1;
  for (int i = h->num_curves - 1; i >= 0; i--) {
    take_curve(cost, i);
    if (is_gemm(&h->curves[i]) && g_strcmp0(h->curves[i].op, "gemm") == 0 && g_strcmp0(h->curves[i].dtype, "bf16") == 0)
      bf16_launch = h->curves[i].param[MS_C_LAUNCH];
  }
  for (int i = 0; i < h->num_curves; i++) {
    const char *dtype = h->curves[i].dtype;
    if (h->curves[i].form == MS_FORM_TERMS) ms_curve_slow(&cost->curves[i], 1 / or_else(h->curves[i].sustained, 1));
    else if (form_serves(ms_op_families[MIN(cost->serves[i].op, MS_N_OPS - 1)], h->curves[i].form))
      cost->curves[i].param[0] *= or_else(h->curves[i].sustained, 1);
    if (is_gemm(&h->curves[i]) && dtype && strcmp(dtype, "bf16") != 0 && strcmp(dtype, "fp32") != 0)
      cost->curves[i].param[MS_C_LAUNCH] = MIN(h->curves[i].param[MS_C_LAUNCH], bf16_launch);
  }
}

/* --- preparing: what must be known ----------------------------------------------------------------------------- */
static gboolean check_known(const MsScenario *scenario, const MsLayout *layout, GError **error) {
  const MsHardware *h = scenario->hardware;
  const MsPrecisionRow *precision = ms_precision(&scenario->training);
  gboolean inside = FALSE, across = FALSE;
  for (int g = MS_GROUP_NONE + 1; g < MS_N_GROUPS; g++) {
    if (layout->group[g].size <= 1) continue;
    inside |= layout->group[g].per_domain > 1;
    across |= layout->group[g].domains > 1;
  }
  if (precision->dtype != MS_DT_FP16 && !ms_hardware_need(h, h->peak_bf16_flops, "peak_bf16_flops", error))
    return FALSE;
  if (!ms_hardware_need(h, ms_hardware_peak_flops(h, scenario->training.precision), precision->peak.key, error))
    return FALSE;
  if (!ms_hardware_need(h, h->hbm_Bps, "hbm_Bps", error) || !ms_hardware_need(h, h->hbm_B, "hbm_B", error))
    return FALSE;
  if (inside && !ms_hardware_need(h, h->scaleup_Bps, "scaleup_Bps", error)) return FALSE;
  /* the host link is a rule of the layout: host-link-known */
  return !across || ms_hardware_need(h, h->nic_Bps, "nic_Bps", error);
}

static void prepare_slots(MsCost *cost) {
  int elementwise = -1;
  cost->slots = g_new0(Slots *, MS_N_OPS * MS_N_ODT);
  for (int op = 0; op < MS_N_OPS; op++) {
    gboolean alike = ms_op_families[op] == MS_FAMILY_MEMORY && cost->first[op] < 0;
    if (alike && elementwise < 0) elementwise = op;
    cost->like[op] = (guint8)(alike ? elementwise : op);
  }
}

/* The same whoever makes them. */
static const Slots *make_slots(const MsCost *cost, int op, int dtype, Slots **at) {
  Slots *new = g_new(Slots, 1);
  for (int pass = 0; pass < MS_N_PASSES; pass++)
    new->of[pass] = pass == MS_PASS_RECOMPUTE ? new->of[MS_PASS_FORWARD] : make_slot(cost, op, dtype, pass, &new->own);
  if (g_atomic_pointer_compare_and_exchange(at, NULL, new)) return new;
  g_free(new);
  return g_atomic_pointer_get(at);
}

static const Slot *slot_at(const MsCost *cost, int op, int dtype, int pass) {
  int like = cost->like[op];
  Slots **at = &cost->slots[like * MS_N_ODT + dtype];
  const Slots *slots = g_atomic_pointer_get(at);
  if (!slots) slots = make_slots(cost, like, dtype, at);
  return &slots->of[pass];
}

static void prepare_kernels(MsCost *cost) { /* of the machine, the model's head width and grouped_gemm_library */
  cost->attention_backward = or_else(cost->hardware->attention_backward_factor, 1);
  set_device(cost);
  set_shape(cost);
  cost->fallback = g_new(MsCurve, MS_N_FALLBACKS);
  ms_fallback_curves(&cost->scenario->laws, cost->fallback);
  take_curves(cost);
  for (MsOpFamily family = 0; family <= MS_FAMILY_MEMORY; family++)
    cost->clock[family] = ms_sustained_clock(cost->scenario, family);
  prepare_slots(cost);
}

/* A machine that stores BF16 as FP32 moves more than a row counts, so its profile has collectives of both. */
static gboolean has_fp32_collectives(const MsHardware *h) {
  for (int i = 0; i < h->num_curves; i++)
    if (h->curves[i].form == MS_FORM_SEGMENTS && g_strcmp0(h->curves[i].dtype, "fp32") == 0) return TRUE;
  return FALSE;
}

/* The first group that is the same. */
static int twin_of(const MsLayout *layout, int g) {
  int twin = 0;
  while (memcmp(&layout->group[twin], &layout->group[g], sizeof layout->group[g])) twin++;
  return twin;
}

/* `like`: another whose tables `cost` is a copy of, or NULL; those of a group that is the same stay. */
static void prepare_exchanges(MsCost *cost, const MsCost *like, const MsLayout *layout) {
  gboolean fp32 = has_fp32_collectives(cost->hardware);
  const MsOptions *now = &cost->scenario->options, *then = like ? &like->scenario->options : NULL;
  gboolean same_dispatcher =
      then && then->dispatcher == now->dispatcher && then->dispatcher_num_sms == now->dispatcher_num_sms;
  cost->collective_fp32 = !fp32  ? NULL
                          : like ? g_memdup2(like->collective_fp32, MS_N_COLL * sizeof *cost->collective_fp32)
                                 : g_malloc(MS_N_COLL * sizeof *cost->collective_fp32);
  for (int g = 0; g < MS_N_GROUPS; g++) {
    gboolean same = like && !memcmp(&like->group[g], &layout->group[g], sizeof layout->group[g]);
    cost->group[g] = layout->group[g];
    int twin = twin_of(layout, g);
    for (int kind = 0; twin < g && kind < MS_N_COLL; kind++) {
      cost->collective[kind][g] = cost->collective[kind][twin];
      if (fp32) cost->collective_fp32[kind][g] = cost->collective_fp32[kind][twin];
    }
    for (int kind = 0; !same && twin == g && kind < MS_N_COLL; kind++) {
      cost->collective[kind][g] = ms_collective_prepare(cost->scenario, (MsCollKind)kind, "bf16", &layout->group[g]);
      if (fp32)
        cost->collective_fp32[kind][g] =
            ms_collective_prepare(cost->scenario, (MsCollKind)kind, "fp32", &layout->group[g]);
    }
    for (int combine = 0; g == MS_GROUP_TP_EP && !(same && same_dispatcher) && combine < 2; combine++)
      cost->dispatch[combine] = ms_dispatch_prepare(cost->scenario, combine, &layout->group[g]);
  }
}

/* Who exchanges: rings and trees serve the other groups. */
static gboolean exchanges(MsGroupKind kind) {
  return kind == MS_GROUP_EP || kind == MS_GROUP_TP_EP || kind == MS_GROUP_CP || kind == MS_GROUP_CP_INNER;
}

static gboolean passes_on(MsGroupKind kind) {
  return kind == MS_GROUP_PP || kind == MS_GROUP_CP || kind == MS_GROUP_CP_OUTER;
}

/* Times over those of an ideal network, by pattern. */
static gboolean slowdowns(const MsCost *cost, const MsLayout *layout, MsGroupKind g, double times[MS_N_PATTERNS],
                          GError **error) {
  for (int p = 0; p < MS_N_PATTERNS; p++) {
    gboolean has = p == MS_PATTERN_EXCHANGE ? exchanges(g)
                   : p == MS_PATTERN_PAIR   ? passes_on(g)
                                            : ms_pattern_serves(cost->hardware, &layout->group[g], (MsPattern)p);
    times[p] = 1;
    if (has && !ms_fabric_slowdown(cost->fabric, layout, g, (MsPattern)p, &times[p], error)) return FALSE;
  }
  return TRUE;
}

static void slow_group(MsCost *cost, MsGroupKind g, const double times[MS_N_PATTERNS], double port) {
  const MsPattern ring = ms_pattern_of_rings(cost->hardware, &cost->group[g]),
                  of[MS_N_COLL] = {ring, ring, ring, MS_PATTERN_EXCHANGE, MS_PATTERN_PAIR};
  for (int kind = 0; kind < MS_N_COLL; kind++) {
    ms_collective_slow(&cost->collective[kind][g], times[of[kind]], times[MS_PATTERN_TREE], times[MS_PATTERN_PAT],
                       port);
    if (cost->collective_fp32)
      ms_collective_slow(&cost->collective_fp32[kind][g], times[of[kind]], times[MS_PATTERN_TREE],
                         times[MS_PATTERN_PAT], port);
  }
  for (int combine = 0; g == MS_GROUP_TP_EP && combine < 2; combine++)
    ms_dispatch_slow(&cost->dispatch[combine], times[MS_PATTERN_EXCHANGE], port);
}

static gboolean prepare_fabric(MsCost *cost, const MsLayout *layout, GError **error) {
  double times[MS_N_PATTERNS];
  if (!cost->fabric) return TRUE;
  double port = ms_fabric_port_slowdown(ms_fabric_costs_graph(cost->fabric));
  for (int g = MS_GROUP_NONE + 1; g < MS_N_GROUPS; g++) {
    if (layout->group[g].size <= 1) continue;
    if (!slowdowns(cost, layout, (MsGroupKind)g, times, error)) return FALSE;
    slow_group(cost, (MsGroupKind)g, times, port);
    if (g != MS_GROUP_PP || times[MS_PATTERN_PAIR] == 1) continue;
    cost->pair_times = g_new(double, layout->pp);
    if (!ms_fabric_pair_slowdowns(cost->fabric, layout, cost->pair_times, error)) return FALSE;
  }
  return TRUE;
}

MsMeetingKind ms_cost_meeting_kind(const MsCost *cost, const MsLayout *layout, const MsOp *op) {
  const MsGroup *group = &layout->group[op->group];
  int pattern, channels;
  switch ((MsOpKind)op->kind) {
  case MS_OP_ALL_TO_ALL:
  case MS_OP_DISPATCH:
  case MS_OP_COMBINE: pattern = MS_PATTERN_EXCHANGE, channels = ms_exchange_channels(cost->hardware); break;
  case MS_OP_P2P: pattern = MS_PATTERN_PAIR, channels = ms_message_channels(cost->hardware, group); break;
  default: pattern = ms_pattern_of_rings(cost->hardware, group), channels = ms_ring_channels(cost->hardware, group);
  }
  return (MsMeetingKind){.group = op->group, .pattern = (guint8)pattern, .parts = (guint8)channels};
}

gboolean ms_cost_meeting(const MsCost *cost, const MsLayout *layout, const MsMeetingKind *kind, int n,
                         MsMeeting **meeting, GError **error) {
  *meeting = NULL;
  if (n == 0) return TRUE;
  if (!cost->fabric || cost->n_pools > 0) *meeting = ms_meeting_of_nic(kind, n);
  else *meeting = ms_meeting_new(ms_fabric_costs_graph(cost->fabric), layout, kind, n, error);
  return *meeting != NULL;
}

/* With what it shares; of pools, the first alone. */
static MsCost *memory_of(const MsCost *like) {
  MsCost *cost = g_memdup2(like, sizeof *like);
  cost->n_pools = 0, cost->of_pool = NULL, cost->pool_scenario = NULL;
  cost->n_beside = 0, cost->beside = NULL;
  cost->pair_times = NULL;
  return cost;
}

static MsCost *or_free(MsCost *cost, gboolean ok) {
  if (!ok) ms_cost_free(cost);
  return ok ? cost : NULL;
}

static MsCost *cost_new(const MsScenario *scenario, const MsLayout *layout, GError **error) {
  if (!check_known(scenario, layout, error)) return NULL;
  MsCost *cost = g_new0(MsCost, 1);
  cost->scenario = scenario, cost->hardware = scenario->hardware, cost->network_times = 1;
  *(cost->users = g_new(gint, 1)) = 1;
  prepare_kernels(cost);
  prepare_exchanges(cost, NULL, layout);
  if (cost->hardware->fabric.kind == MS_FABRIC_NONE) return cost;
  cost->fabric = ms_fabric_costs_new(scenario, error);
  return or_free(cost, cost->fabric && prepare_fabric(cost, layout, error));
}

static MsCost *cost_new_like(const MsCost *like, const MsScenario *scenario, const MsLayout *layout, GError **error) {
  gboolean fp16 = like && is_fp16(like->scenario) != is_fp16(scenario); /* another peak */
  if (!like || fp16 || like->scenario->gpus != scenario->gpus || like->hardware != scenario->hardware ||
      like->scenario->model != scenario->model ||
      like->scenario->options.grouped_gemm_library != scenario->options.grouped_gemm_library ||
      memcmp(&like->scenario->laws, &scenario->laws, sizeof scenario->laws) != 0)
    return cost_new(scenario, layout, error);
  if (!check_known(scenario, layout, error)) return NULL;
  MsCost *cost = memory_of(like);
  cost->scenario = scenario;
  g_atomic_int_inc(cost->users);
  set_shape(cost);
  ms_fabric_costs_ref(cost->fabric);
  prepare_exchanges(cost, cost->fabric ? NULL : like, layout);
  return or_free(cost, prepare_fabric(cost, layout, error));
}

static MsCost *new_on_pools(const MsCost *like, const MsScenario *scenario, const MsLayout *layout, GError **error) {
  int n = layout->n_pools;
  MsCost **own = g_new0(MsCost *, n);
  MsScenario *view = g_new(MsScenario, n);
  gboolean ok = TRUE;
  for (int i = 0; ok && i < n; i++) {
    view[i] = ms_scenario_of_pool(scenario, i);
    ok = (own[i] = cost_new_like(like && like->n_pools == n ? like->of_pool[i] : NULL, &view[i], &layout->of_pool[i],
                                 error)) != NULL;
  }
  if (ok) own[0]->n_pools = n, own[0]->of_pool = own, own[0]->pool_scenario = view;
  if (ok) return own[0];
  for (int i = 0; i < n; i++) ms_cost_free(own[i]);
  g_free(own), g_free(view);
  return NULL;
}

/* Of the machine of a pool of replicas. */
static const MsCost *like_of(const MsCost *like, int pool, int shares) {
  if (!like || like->n_beside != shares) return NULL;
  return pool == like->own ? like : like->beside[pool];
}

static MsCost *new_beside(const MsCost *like, const MsScenario *scenario, const MsLayout *layout, GError **error) {
  int n = layout->n_beside, own = scenario->pools.own;
  MsCost *cost = cost_new_like(like_of(like, own, n), scenario, layout, error);
  if (!cost) return NULL;
  cost->n_beside = n, cost->own = own;
  cost->beside = g_new0(MsCost *, n), cost->pool_scenario = g_new(MsScenario, n);
  for (int i = 0; i < n; i++) {
    cost->pool_scenario[i] = ms_scenario_of_pool(scenario, i);
    if (i != own &&
        !(cost->beside[i] = cost_new_like(like_of(like, i, n), &cost->pool_scenario[i], &layout->beside[i], error)))
      return or_free(cost, FALSE);
  }
  return cost;
}

MsCost *ms_cost_new_like(const MsCost *like, const MsScenario *scenario, const MsLayout *layout, GError **error) {
  return layout->n_pools > 0    ? new_on_pools(like, scenario, layout, error)
         : layout->n_beside > 0 ? new_beside(like, scenario, layout, error)
                                : cost_new_like(like, scenario, layout, error);
}

MsCost *ms_cost_new(const MsScenario *scenario, const MsLayout *layout, GError **error) {
  return ms_cost_new_like(NULL, scenario, layout, error);
}

const MsCost *ms_cost_of_pool(const MsCost *cost, int pool) { return cost->of_pool ? cost->of_pool[pool] : cost; }

static void slow_network(MsCollective *c, double times) {
  ms_collective_slow(c, times, times * c->tree_over_ring, times * c->pat_over_ring, 1);
}

MsCost *ms_cost_new_slower(const MsCost *like, double times) {
  MsCost *cost = memory_of(like);
  g_atomic_int_inc(cost->users);
  ms_fabric_costs_ref(cost->fabric);
  if (like->collective_fp32)
    cost->collective_fp32 = g_memdup2(like->collective_fp32, MS_N_COLL * sizeof *cost->collective_fp32);
  for (int kind = 0; kind < MS_N_COLL; kind++)
    for (int g = 0; g < MS_N_GROUPS; g++) {
      slow_network(&cost->collective[kind][g], times);
      if (cost->collective_fp32) slow_network(&cost->collective_fp32[kind][g], times);
    }
  for (int combine = 0; combine < 2; combine++) ms_dispatch_slow(&cost->dispatch[combine], times, 1);
  cost->network_times *= times;
  if (like->pair_times)
    cost->pair_times = g_memdup2(like->pair_times, sizeof(double) * (gsize)like->group[MS_GROUP_PP].size);
  return cost;
}

void ms_cost_free(MsCost *cost) {
  if (!cost) return;
  for (int i = 1; i < cost->n_pools; i++) ms_cost_free(cost->of_pool[i]);
  for (int i = 0; i < cost->n_beside; i++) ms_cost_free(cost->beside[i]);
  g_free(cost->beside);
  g_free(cost->of_pool), g_free(cost->pool_scenario);
  g_free(cost->collective_fp32), g_free(cost->pair_times);
  ms_fabric_costs_unref(cost->fabric);
  if (g_atomic_int_dec_and_test(cost->users)) {
    g_free(cost->users);
    g_free(cost->fallback);
    g_free(cost->curves);
    g_free(cost->serves);
    for (int i = 0; i < MS_N_OPS * MS_N_ODT; i++) g_free(cost->slots[i]);
    g_free(cost->slots);
  }
  g_free(cost);
}

/* --- rows that compute ----------------------------------------------------------------------------------------- */
static inline const Slot *slot_of(const MsCost *cost, const MsOp *op) {
  return slot_at(cost, op->kind, MIN(op->dtype, MS_N_ODT - 1), MIN(op->pass, MS_N_PASSES - 1));
}

MsTerms ms_op_terms(const MsOp *op) {
  double g = MAX(op->groups, 1), m = op->m, n = op->n, k = op->k;
  MsTerms x = {.groups = g, .m = m, .flop = op->flop, .bytes_B = op->read_B + op->write_B};
  switch (ms_op_families[op->kind]) {
  case MS_FAMILY_GROUPED: { /* m rows of all groups; weight gradients: m x n for each group from k rows of all */
    gboolean wgrad = op->pass == MS_PASS_WGRAD;
    x.mn = wgrad ? g * m * n : m * n, x.mk = m * k, x.nk = wgrad ? n * k : g * n * k;
    x.at[0] = (wgrad ? k : m) / g, x.at[1] = MAX(n, wgrad ? m : k), x.at[2] = MIN(n, wgrad ? m : k),
    x.at[3] = wgrad ? k : m;
    break;
  }
  case MS_FAMILY_ATTENTION:
    x.m *= g, x.mn = op->k > 0 ? op->flop / (2 * op->k) : g * m * n, x.mk = g * m * k,
              x.nk = MAX(op->kv_groups, 1) * n * k;
    x.at[0] = n, x.at[1] = g, x.at[2] = g / MAX(op->kv_groups, 1);
    break;
  case MS_FAMILY_GEMM:
    x.m *= g, x.mn = g * m * n, x.mk = g * m * k, x.nk = g * n * k;
    x.at[0] = m * g, x.at[1] = n, x.at[2] = k;
    break;
  default: x.groups = 1, x.mn = m * n, x.at[0] = x.bytes_B;
  }
  return x;
}

static double terms_s(const MsOp *op, const Slot *slot) {
  MsTerms terms = ms_op_terms(op);
  return ms_curve_terms_s(slot->use, &terms);
}

/* Batched GEMM (stored attention scores): the batch continues the rows. Traffic that the ideal C[m,n] = A B^T does not
 * have (the main gradient of an accumulating weight gradient, the second operand of a batch) bounds the time from
 * below. */
static double gemm_s(const MsCost *cost, const MsOp *op, const Slot *slot) {
  const MsDeviceRates *device = &cost->device[op->dtype];
  double m = op->m * MAX(op->groups, 1);
  if (slot->use->form == MS_FORM_TERMS) return terms_s(op, slot);
  double t = ms_curve_gemm_s(slot->use, device, m, op->n, op->k, cost->element_B[op->dtype]);
  if (op->flags & MS_OPF_PARTS) /* a whole product is no slower than its parts */
    return MAX(t, op->groups * ms_curve_gemm_s(slot->use, device, op->m, op->n, op->k, cost->element_B[op->dtype]));
  if (!(op->flags & MS_OPF_ACCUMULATE) && op->groups <= 1) return t;
  return MAX(t, (op->read_B + op->write_B) / (device->hbm_Bps * MAX(slot->use->param[MS_C_BW], 0.01)));
}

/* Stated FLOP and bytes: as fast as large GEMMs, or as memory. The first two parameters of every GEMM form are these
 * shares. */
static double opaque_s(const MsCost *cost, const MsOp *op, const Slot *slot) {
  const MsDeviceRates *device = &cost->device[op->dtype];
  if (slot->use->form == MS_FORM_TERMS) return terms_s(op, slot);
  double compute = op->flop / (device->peak_flops * MAX(slot->use->param[MS_C_E], 0.01));
  return MAX(compute, (op->read_B + op->write_B) / (device->hbm_Bps * MAX(slot->use->param[MS_C_BW], 0.01)));
}

/* The rows of every group by a dense product of its own, one after another: what TransformerEngine's GroupedLinear
 * does, unless experts are fused, and what a grouped kernel has to beat. (Some do not: the Hopper kernels for blockwise
 * FP8 that were measured reach half of what the dense ones do, and DeepSeek's trace shows a training run at the dense
 * rate.) So are experts without grouped products, and on ROCm the loop itself was measured, at 0.4 to 0.6 of dense
 * products (grouped_gemm_of_te). Infinite where the profile has no dense curve of these forms. */
static double loop_s(const MsCost *cost, const MsOp *op, const Slot *dense) {
  if (!dense->origin || !is_gemm(dense->use) || op->groups < 1) return HUGE_VAL;
  gboolean wgrad = op->pass == MS_PASS_WGRAD;
  double m = wgrad ? op->m : op->m / op->groups, k = wgrad ? op->k / op->groups : op->k;
  return op->groups * ms_curve_gemm_s(dense->use, &cost->device[op->dtype], m, op->n, k, cost->element_B[op->dtype]);
}

/* *used: the slot whose curve it is in the end. */
static double grouped_s(const MsCost *cost, const MsOp *op, const Slot **used) {
  const Slot *slot = *used, *dense = slot_at(cost, MS_OP_GEMM, op->dtype, MIN(op->pass, MS_N_PASSES - 1));
  const MsDeviceRates *device = &cost->device[op->dtype];
  if (slot->use->form == MS_FORM_TERMS) return terms_s(op, slot);
  gboolean wgrad = op->pass == MS_PASS_WGRAD; /* weights m x n of each expert, k rows in total */
  double rows = wgrad ? op->k : op->m, n = wgrad ? op->m : op->n, k = wgrad ? op->n : op->k, width = cost->expert_width;
  if (n != width && k != width && n != 2 * width && k != 2 * width) width = 0;
  double t = ms_curve_grouped_gemm_s(slot->use, device, rows, op->groups, n, k, width, cost->element_B[op->dtype]),
         loop = loop_s(cost, op, dense);
  gboolean apart = !cost->scenario->options.moe_grouped_gemm && isfinite(loop);
  gboolean beaten = loop * dense->factor < t * slot->factor && (op->groups < 2 || !cost->hardware->grouped_gemm_of_te);
  if (apart || beaten) *used = dense, t = loop;
  if (!(op->flags & MS_OPF_ACCUMULATE)) return t;
  return MAX(t, (op->read_B + op->write_B) / (device->hbm_Bps * MAX(slot->use->param[MS_G_BW_WEIGHTS], 0.01)));
}

/* Years from the first machines of the generation to the release; NAN: one of both is not known. */
static double age_of_software(const MsScenario *s) {
  double from = s->hardware->generation_year;
  return known(from) && s->stack.released_year > 0 ? MAX(s->stack.released_year - from, 0) : NAN;
}

/* Of what was measured: BF16 without a sink, which has its own kernel; FP8 was nearly as fast in the first year. */
static double early_attention(const MsCost *cost, const MsOp *op) {
  const MsLaws *laws = &cost->scenario->laws;
  if (op->dtype != MS_ODT_BF16 || cost->scenario->model->softmax_sink ||
      !(age_of_software(cost->scenario) < laws->early_attention_years))
    return 1;
  return op->pass == MS_PASS_DGRAD ? laws->early_attention_backward : laws->early_attention_forward;
}

static double second_attention(const MsCost *cost, const MsOp *op) {
  const MsLaws *laws = &cost->scenario->laws;
  gboolean back = op->pass == MS_PASS_DGRAD;
  if (!cost->hardware->attention_after_fa2) return 1;
  double beyond = (back ? laws->older_attention_backward : laws->older_attention_forward) - 1, n = MAX(op->n, 1);
  return 1 + beyond * pow(op->k / 2 / 128, laws->older_attention_width) * n / (n + laws->older_attention_half_seq);
}

/* Time over that of the kernels which the machine's curves are of. */
static double older_attention(const MsCost *cost, const MsOp *op) {
  const MsLaws *laws = &cost->scenario->laws;
  if (op->kind != MS_OP_ATTENTION) return 1;
  switch (ms_attn_generation(cost->scenario)) {
  case MS_ATTN_AS_SOFTWARE:
  case MS_ATTN_NEWEST: return early_attention(cost, op);
  case MS_ATTN_SECOND: return second_attention(cost, op);
  case MS_ATTN_IN_TRITON:
    return second_attention(cost, op) *
           (op->pass == MS_PASS_DGRAD ? laws->triton_attention_backward : laws->triton_attention_forward);
  }
  return NAN;
}

static gboolean is_orderly(const MsOptions *o) { return o->deterministic_mode || o->deterministic_attention; }

/* m query rows against n key rows count as a square of n with m/n as many heads: same thread blocks, same longest
 * block. Backward runs 2.5 times the FLOP and traffic of the forward row it belongs to (3 times for a delta rule), at
 * the forward's rate times the profile's factor. Without atomic sums the blocks of a backward wait for one another;
 * how much that costs depends on heads, length and mask. */
static double attention_s(const MsCost *cost, const MsOp *op, const Slot *slot) {
  if (slot->use->form == MS_FORM_TERMS) return terms_s(op, slot);
  gboolean scaled = op->pass == MS_PASS_DGRAD && !slot->own_pass;
  double times = !scaled ? 1 : op->kind == MS_OP_DELTA_RULE ? 3 : 2.5, n = MAX(op->n, 1);
  double heads = MAX(op->groups, 1) * (op->m / n), gqa = (double)MAX(op->groups, 1) / MAX(op->kv_groups, 1);
  double bytes = (op->read_B + op->write_B) / times;
  double waits = op->kind == MS_OP_ATTENTION && op->pass == MS_PASS_DGRAD && is_orderly(&cost->scenario->options)
                     ? cost->scenario->laws.deterministic_attention_backward
                     : 1;
  return waits * times * older_attention(cost, op) *
         ms_curve_attention_s(slot->use, &cost->device[op->dtype], op->flop / times, bytes, n, op->k / 2, heads,
                              MAX(gqa, 1), MAX(op->groups, 1));
}

static double memory_s(const MsCost *cost, const MsOp *op, const Slot *slot) {
  if (slot->use->form == MS_FORM_TERMS) return terms_s(op, slot);
  double t = ms_curve_bandwidth_s(slot->use, &cost->device[op->dtype], op->read_B + op->write_B);
  return t + slot->use->param[MS_B_LAUNCH] * (MAX(MAX(op->kernels, op->launches), 1) - 1);
}

/* Products of a new generation of chips get faster from release to release (docs/theory/laws.md). */
static double young(const MsScenario *s) {
  double age = age_of_software(s);
  return isnan(age) ? 1 : 1 + s->laws.young_kernels * exp(-age / s->laws.young_years);
}

/* Of the software stack (0 in scenarios built by hand means 1), and of what was learned on the machine. */
static double stack_factor(const MsCost *cost, MsOpFamily family) {
  static const MsAnchorClass anchored[] = {MS_ANCHOR_GEMM,         MS_ANCHOR_GROUPED_GEMM,  MS_ANCHOR_ATTENTION,
                                           MS_ANCHOR_MEMORY_BOUND, MS_ANCHOR_COMMUNICATION, MS_ANCHOR_COMMUNICATION};
  const MsStack *s = &cost->scenario->stack;
  const MsModel *model = cost->scenario->model;
  double learned = ms_anchor_factor(&cost->hardware->anchor, anchored[family], model ? model->name : NULL);
  double factor = family == MS_FAMILY_GEMM        ? s->gemm
                  : family == MS_FAMILY_GROUPED   ? s->grouped_gemm
                  : family == MS_FAMILY_ATTENTION ? s->attention
                  : family == MS_FAMILY_MEMORY    ? s->memory_bound
                                                  : s->communication;
  return (factor > 0 ? factor : 1) * learned * (family < MS_FAMILY_ATTENTION ? young(cost->scenario) : 1);
}

/* A dense product by a lower-complexity scheme, where the model of lcma/decide.h predicts a gain within the workspace
 * that the scenario sets aside. *flop becomes what is multiplied then; returns the growth of the rounding error, 0 for
 * the ordinary product. */
static double lcma(const MsCost *cost, const MsOp *op, const Slot *slot, double *time_s, double *flop) {
  const MsOptions *options = &cost->scenario->options;
  if (!options->lcma || slot->use->form == MS_FORM_TERMS /* says nothing of passes over memory */ || op->groups > 1 ||
      (op->dtype != MS_ODT_BF16 && op->dtype != MS_ODT_FP32))
    return 0;
  const Slot *memory = slot_at(cost, MS_OP_ADD, op->dtype, MS_PASS_FORWARD);
  MsLcmaProfile profile;
  ms_lcma_profile_init(&profile, slot->use, &cost->device[op->dtype], cost->element_B[op->dtype],
                       MAX(memory->use->param[MS_B_E], 0.01), cost->hardware->l2_Bps);
  MsLcmaShape shape = {op->m, op->n, op->k, (op->flags & MS_OPF_ACCUMULATE) != 0, options->lcma_workspace_B};
  g_autoptr(GPtrArray) choices = ms_lcma_decide(&profile.machine, &shape);
  const MsLcmaChoice *best = choices->pdata[0];
  if (best->levels == 0 || best->time_s >= *time_s) return 0;
  *time_s = best->time_s;
  *flop = best->flop;
  return best->growth;
}

static MsOpCost compute(const MsCost *cost, const MsOp *op, MsOpFamily family) {
  const Slot *slot = slot_of(cost, op);
  const MsDeviceRates *device = &cost->device[op->dtype];
  double flop = op->flop, growth = 0, t;
  switch (family) {
  case MS_FAMILY_GEMM:
    t = op->kind == MS_OP_FRONT_END ? opaque_s(cost, op, slot) : gemm_s(cost, op, slot);
    if (op->kind == MS_OP_GEMM) growth = lcma(cost, op, slot, &t, &flop);
    break;
  case MS_FAMILY_GROUPED: t = grouped_s(cost, op, &slot); break;
  case MS_FAMILY_ATTENTION: t = attention_s(cost, op, slot); break;
  default: t = memory_s(cost, op, slot);
  }
  double lower = (op->read_B + op->write_B) / device->hbm_Bps;
  if (family != MS_FAMILY_MEMORY) lower = MAX(lower, flop / device->peak_flops);
  t *= slot->factor * stack_factor(cost, family);
  if (slot->use->form == MS_FORM_TERMS)
    lower = MIN(lower, t); /* seconds as measured: what lies in a cache is faster than memory */
  return (MsOpCost){
      .time_s = MAX(t, lower), .lower_s = lower, .curve = slot->origin, .error_growth = growth, .band = slot->band};
}

gboolean ms_cost_same_kernels(const MsCost *a, const MsCost *b) {
  if (a->n_pools != b->n_pools) return FALSE;
  for (int i = 1; i < a->n_pools; i++)
    if (!ms_cost_same_kernels(a->of_pool[i], b->of_pool[i])) return FALSE;
  const MsOptions *x = &a->scenario->options, *y = &b->scenario->options;
  for (MsOpFamily family = 0; family < MS_FAMILY_COMM; family++)
    if (stack_factor(a, family) != stack_factor(b, family)) return FALSE;
  return a->slots == b->slots && a->expert_width == b->expert_width && x->moe_grouped_gemm == y->moe_grouped_gemm &&
         x->attention_backend == y->attention_backend &&
         ms_attn_generation(a->scenario) == ms_attn_generation(b->scenario) && is_orderly(x) == is_orderly(y) &&
         x->lcma == y->lcma && x->lcma_workspace_B == y->lcma_workspace_B;
}

gboolean ms_op_same_kernel(const MsOp *a, const MsOp *b) {
  return a->kind == b->kind && a->pass == b->pass && a->dtype == b->dtype && a->flags == b->flags &&
         a->kernels == b->kernels && a->launches == b->launches && a->m == b->m && a->n == b->n && a->k == b->k &&
         a->groups == b->groups && a->kv_groups == b->kv_groups && a->flop == b->flop && a->read_B == b->read_B &&
         a->write_B == b->write_B && ms_op_families[a->kind] < MS_FAMILY_COMM;
}

/* --- rows that communicate ------------------------------------------------------------------------------------- */
static MsOpCost host_copy(const MsCost *cost, double bytes_B) {
  const MsLaws *laws = &cost->scenario->laws;
  double wire = known(cost->hardware->host_link_Bps) ? bytes_B / ms_hardware_host_Bps(cost->hardware) : 0;
  return (MsOpCost){.time_s = laws->default_host_copy_s + wire, .lower_s = wire, .band = laws->default_band};
}

static MsOpCost exchange(const MsCost *cost, const MsOp *op) {
  const MsDispatcherRow *dispatcher = ms_dispatcher(&cost->scenario->options);
  MsCollKind coll = ms_collective_of((MsOpKind)op->kind, dispatcher->carry);
  if (ms_op_moves_tokens(op) && dispatcher->carry == MS_CARRY_ONCE) {
    if (op->group != MS_GROUP_TP_EP) MS_BUG("%s over group %d", dispatcher->word, op->group);
    return ms_dispatch_s(&cost->dispatch[op->kind == MS_OP_COMBINE], op->message_B, op->m, op->n, op->level_B);
  }
  const MsCollective *collective = cost->collective_fp32 && op->dtype == MS_ODT_FP32
                                       ? &cost->collective_fp32[coll][op->group]
                                       : &cost->collective[coll][op->group];
  const gboolean rings = cost->scenario->options.deterministic_mode;
  MsOpCost all = ms_collective_s(collective, coll, op->message_B, op->local_fraction, rings);
  if (op->kind != MS_OP_P2P) /* each message starts anew */
    all.time_s += (MAX(op->kernels, 1) - 1) * ms_collective_s(collective, coll, 1, op->local_fraction, rings).time_s;
  return all;
}

/* Collectives over the network whose kernels run beside compute: exchanges of tokens in EP overlap, reductions and
 * gathers of data-parallel ranks. */
static gboolean runs_beside(const MsOp *op) {
  return ms_op_moves_tokens(op) || op->stream == MS_STREAM_DP || op->stream == MS_STREAM_EDP;
}

/* How much longer one of them takes there: its kernels copy through staging buffers in the memory that compute keeps
 * busy, on SMs whose caches it shares, and wait for ranks that compute. So it weighs less where memory is faster.
 * Inside one scale-up domain no run shows it. That of SMs that load and store comes with their time (dispatch.c). */
static double crowding(const MsCost *cost, const MsOp *op, guint8 level) {
  const MsHardware *hardware = cost->hardware;
  const MsLaws *laws = &cost->scenario->laws;
  if (level == 0 || !known(hardware->hbm_Bps)) return 1;
  switch (ms_op_moves_tokens(op) ? ms_dispatcher(&cost->scenario->options)->movers : MS_MOVED_BY_COLLECTIVE) {
  case MS_MOVED_BY_SMS: return 1;
  case MS_MOVED_BY_ASYNC_COPIES: return 1 + laws->crowded_hybridep * MS_CROWDED_HBM_BPS / hardware->hbm_Bps;
  case MS_MOVED_BY_COLLECTIVE: return 1 + laws->crowded_collective * MS_CROWDED_HBM_BPS / hardware->hbm_Bps;
  }
  return 1;
}

/* A row that meets the replicas of all pools takes as long as on the slowest machine, and the SMs of its own. */
static MsOpCost on_slowest(const MsCost *cost, const MsOp *op, MsOpCost own) {
  guint16 sms = own.sms;
  double beside_s = own.beside_s;
  for (int i = 0; i < cost->n_beside; i++) {
    if (!cost->beside[i]) continue;
    MsOpCost there = ms_cost_op(cost->beside[i], op);
    beside_s = MAX(beside_s, there.beside_s);
    if (there.time_s > own.time_s) own = there;
  }
  own.sms = sms, own.beside_s = beside_s;
  return own;
}

MsOpCost ms_cost_op(const MsCost *cost, const MsOp *op) {
  MsOpFamily family = ms_op_families[op->kind];
  if (family < MS_FAMILY_COMM) return compute(cost, op, family);
  if (family ==
      MS_FAMILY_HOST) { /* host memory is at least as fast as the link that it feeds: the link's rate stands for it */
    double s = cost->hardware->host_link_Bps > 0 ? (op->read_B + op->write_B) / cost->hardware->host_link_Bps : 0;
    return (MsOpCost){.time_s = s, .lower_s = 0, .band = cost->scenario->laws.default_band};
  }
  if (op->kind == MS_OP_D2H || op->kind == MS_OP_H2D)
    return host_copy(cost, op->message_B > 0 ? op->message_B : MAX(op->read_B, op->write_B));
  MsOpCost c = exchange(cost, op);
  double factor = stack_factor(cost, family);
  c.time_s = MAX(c.time_s * factor, c.lower_s);
  if (runs_beside(op)) c.beside_s = MAX(c.beside_s * factor, c.time_s * crowding(cost, op, c.level));
  return cost->beside && ms_group_spans_replicas((MsGroupKind)op->group) ? on_slowest(cost, op, c) : c;
}

/* Of one side, as if its stages lay on other nodes. */
static MsOpCost over_network(const MsCost *cost, const MsOp *op) {
  const MsGroup *group = &cost->group[op->group];
  if (group->size <= 1 || group->domains > 1) return ms_cost_op(cost, op);
  MsCost *apart = memory_of(cost);
  const MsGroup across = ms_group_between_pools(group);
  for (int kind = 0; kind < MS_N_COLL; kind++)
    apart->collective[kind][op->group] = ms_collective_prepare(cost->scenario, (MsCollKind)kind, "bf16", &across);
  apart->group[op->group] = across;
  apart->collective_fp32 = NULL;
  MsOpCost c = ms_cost_op(apart, op);
  g_free(apart);
  return c;
}

gboolean ms_cost_messages_alike(const MsCost *cost) { return cost->n_pools == 0 && !cost->pair_times; }

/* Between stages of one machine. */
static MsOpCost message(const MsCost *cost, const MsLayout *layout, int from, int to, const MsOp *op) {
  MsGroup group = cost->group[MS_GROUP_PP];
  gboolean across = ms_layout_message_crosses(layout, from, to);
  int pair = ms_layout_pair(layout, from, to);
  if (group.domains <= 1 || (across && (!cost->pair_times || pair < 0))) return ms_cost_op(cost, op);
  if (!across) group.domains = group.nodes = 1, group.per_domain = group.min_per_domain = group.size;
  MsCollective c = ms_collective_prepare(cost->scenario, MS_COLL_P2P, "bf16", &group);
  if (cost->fabric)
    ms_collective_slow(&c, across ? cost->pair_times[pair] * cost->network_times : 1, 1, 1,
                       ms_fabric_port_slowdown(ms_fabric_costs_graph(cost->fabric)));
  MsOpCost of = ms_collective_s(&c, MS_COLL_P2P, op->message_B, 0, cost->scenario->options.deterministic_mode);
  of.time_s = MAX(of.time_s * stack_factor(cost, MS_FAMILY_COMM), of.lower_s);
  return of;
}

MsOpCost ms_cost_message(const MsCost *cost, const MsLayout *layout, int from_stage, int to_stage, const MsOp *op) {
  int from = ms_layout_pool(layout, from_stage), to = ms_layout_pool(layout, to_stage);
  if (from == to) return message(ms_cost_of_pool(cost, from), ms_layout_on(layout, from), from_stage, to_stage, op);
  MsOpCost sent = over_network(ms_cost_of_pool(cost, from), op), received = over_network(ms_cost_of_pool(cost, to), op);
  guint16 sms = sent.sms;
  if (received.time_s > sent.time_s) sent = received;
  sent.sms = sms;
  return sent;
}

MsOpCost ms_cost_of_all_pools(const MsCost *cost, int own, const MsOp *op) {
  MsOpCost most = ms_cost_op(ms_cost_of_pool(cost, own), op);
  guint16 sms = most.sms;
  for (int i = 0; i < cost->n_pools; i++) {
    MsOpCost there = ms_cost_op(cost->of_pool[i], op);
    if (there.time_s > most.time_s) most = there;
  }
  most.sms = sms;
  return most;
}

const char *ms_cost_rate_key(const MsCost *cost, const MsOp *op, const MsOpCost *of) {
  if (op->kind == MS_OP_D2H || op->kind == MS_OP_H2D) return "host_link_Bps";
  MsOpFamily family = ms_op_families[op->kind];
  if (family == MS_FAMILY_COMM) return of->level > 0 ? "nic_Bps" : "scaleup_Bps";
  if (family == MS_FAMILY_MEMORY) return "hbm_Bps";
  int dtype = MIN(op->dtype, MS_N_ODT - 1);
  return dtype == MS_ODT_BF16 && is_fp16(cost->scenario) ? "peak_fp16_flops" : ms_op_dtypes[dtype].peak.key;
}

const char *ms_cost_laws(const MsCost *cost, const MsOp *op) {
  static const char *const laws[] = {[MS_FAMILY_GEMM] = "laws default_gemm_*",
                                     [MS_FAMILY_GROUPED] = "laws default_grouped_*",
                                     [MS_FAMILY_ATTENTION] = "laws default_attention_*",
                                     [MS_FAMILY_MEMORY] = "laws default_memory_*",
                                     [MS_FAMILY_COMM] = "laws default_link_*, default_ring_step_s, network_share",
                                     [MS_FAMILY_HOST] = "data sheet"};
  switch (op->kind) {
  case MS_OP_DELTA_RULE: return "laws default_delta_*";
  case MS_OP_DISPATCH:
  case MS_OP_COMBINE:
    return ms_dispatcher(&cost->scenario->options)->carry == MS_CARRY_ONCE ? "laws default_dispatch_*, network_share"
                                                                           : laws[MS_FAMILY_COMM];
  case MS_OP_P2P:
    return "laws default_p2p_alpha_s, default_link_share, default_ring_step_s, network_share, "
           "message_channel_Bps";
  case MS_OP_D2H:
  case MS_OP_H2D: return "law default_host_copy_s, data sheet";
  default: return laws[ms_op_families[op->kind]];
  }
}
