/* src/sim/simulate.c - one scenario, one prediction: its groups and stages (layout/), pieces and rows (work/), their
 * seconds (cost/), what a stage does (step/program.c) in which order (sched/), then bound/, fast.c, or graph.c and
 * engine/; account.c and explain.c say where the time went. */
#include "sim/simulate.h"
#include "base/err.h"
#include "base/order.h"
#include "base/text.h"
#include "base/units.h"
#include "bound/bound.h"
#include "sim/band.h"
#include "sim/explain.h"
#include "sim/account.h"
#include "sim/fast.h"
#include "sim/graph.h"
#include "sim/pieces.h"
#include "sim/scale.h"
#include "sim/steady.h"
#include "sim/turns.h"
#include "step/fetch.h"
#include "step/meeting.h"
#include <math.h>
#include <string.h>

#define MAX_TASKS 6e7 /* of one `full` step: about 4 GB */

typedef struct {
  int stage;
  double factor;
} SlowGpu;

typedef struct {
  const SlowGpu *slow; /* NULL: none */
  MsLayout *layout;
  MsWork *work;
  MsCost *cost;
  MsProgram *program;
  MsPieceLags *lags; /* of its pieces */
  MsSchedule *schedule;
  const MsOp **tag_op;
  const char **tag_name;
} Parts;

static void parts_clear(Parts *p) {
  g_free(p->tag_op);
  g_free(p->tag_name);
  ms_schedule_free(p->schedule);
  ms_piece_lags_free(p->lags);
  ms_program_free(p->program);
  ms_cost_free(p->cost);
  ms_work_free(p->work);
  ms_layout_free(p->layout);
}

static void tag_list(const MsCosted *c, gpointer parts) {
  Parts *p = parts;
  for (int i = 0; i < c->list->n; i++) {
    p->tag_op[c->tag + (guint32)i] = &c->list->op[i];
    p->tag_name[c->tag + (guint32)i] = c->list->op[i].name;
  }
}

static void tag_rows(Parts *p) {
  p->tag_op = g_new0(const MsOp *, p->program->n_tags);
  p->tag_name = g_new0(const char *, p->program->n_tags);
  ms_program_each_list(p->program, tag_list, p);
  p->tag_op[p->program->p2p_tag] = &p->program->p2p_op;
  p->tag_name[p->program->p2p_tag] = p->program->p2p_op.name;
}

/* Times are picoseconds in 64 bits, of which the schedules and the bounds need a few for sums and for "never". */
#define MAX_STEP_S 1e6

static gboolean check_length(const Parts *p, GError **error) {
  double longest_s = ms_program_longest_s(p->program);
  return longest_s <= MAX_STEP_S || ms_input_error(error, p->work->scenario->file, 0, "training",
                                                   "a step of up to %.3g s; it must be sure to end within %.0f s, so "
                                                   "make global_batch_size or seq_length smaller",
                                                   longest_s, MAX_STEP_S);
}

/* What follows p->layout. */
static gboolean prepare_costs(Parts *p, const MsScenario *s, const MsCost *like, GError **error) {
  return (p->work = ms_work_new(s, p->layout, error)) && (p->cost = ms_cost_new_like(like, s, p->layout, error));
}

/* What follows p->program. */
static gboolean prepare_schedule(Parts *p, const MsScenario *s, GError **error) {
  char why[192];
  if (!check_length(p, error)) return FALSE;
  p->schedule = ms_program_schedule(p->program, why, sizeof why);
  if (!p->schedule) return ms_input_error(error, s->file, 0, "layout.schedule", "%s", why);
  return TRUE;
}

static gboolean prepare_program(Parts *p, const MsScenario *s, GError **error) {
  p->program = ms_program_new(p->work, p->cost);
  p->lags = ms_piece_lags_new(p->program->piece, p->work->n_pieces, s, NULL);
  return prepare_schedule(p, s, error);
}

static gboolean prepare(Parts *p, const MsScenario *s, const MsCost *like, GError **error) {
  return (p->layout = ms_layout_new_or_error(s, error)) && prepare_costs(p, s, like, error) &&
         prepare_program(p, s, error);
}

/* --- the step at each fidelity --- */

static gboolean check_tasks(const Parts *p, GError **error) {
  double tasks = ms_program_tasks(p->program, p->schedule);
  return tasks <= MAX_TASKS ||
         ms_input_error(error, p->work->scenario->file, 0, "",
                        "full fidelity would need %.0f million operators (at most %.0f); use --fidelity fast",
                        tasks / 1e6, MAX_TASKS / 1e6);
}

/* MsDetail.slot_base (transfer full) */
static guint32 *slot_bases(const Parts *p) {
  guint32 *base = g_new0(guint32, p->layout->pp + 1);
  for (int i = 0; i < p->layout->pp; i++) base[i + 1] = base[i] + (guint32)p->schedule->n[i] + 1;
  return base;
}

/* `folds`: rounds may be left out. Where they turn out to differ all are laid down. */
static MsTrajectory *run_step(const Parts *p, guint32 *slots, const guint32 *base, gboolean folds, MsGraph **graph) {
  *graph = (folds ? ms_lower_folded : ms_lower_full)(p->program, p->schedule, slots, base);
  if (p->slow) ms_graph_slow(*graph, (guint32)p->slow->stage, p->slow->factor);
  MsTrajectory *t = ms_program_run(p->program, *graph, NULL);
  if (ms_trajectory_is_whole(t, *graph)) return t;
  ms_trajectory_free(t), ms_graph_free(*graph);
  return run_step(p, slots, base, FALSE, graph);
}

static gboolean full_step(Parts *p, MsResult *r, MsTime *step, MsDetail *detail, GError **error) {
  if (!check_tasks(p, error)) return FALSE;
  g_autofree guint32 *base = slot_bases(p);
  g_autofree guint32 *slots = g_new0(guint32, base[p->layout->pp]);
  MsGraph *graph;
  MsTrajectory *t = run_step(p, slots, base, !detail, &graph);
  ms_account(p->program, graph, t, p->tag_op, r->stage_time);
  *step = ms_lower_period(p->program, graph, t, r->stage_time);
  ms_passes_of_step(p->program, p->schedule, graph, t, slots, base, r->passes);
  r->events = t->events;
  if (detail) {
    detail->graph = graph, detail->trajectory = t, detail->slot_task = g_steal_pointer(&slots),
    detail->slot_base = g_steal_pointer(&base);
  } else {
    ms_trajectory_free(t);
    ms_graph_free(graph);
  }
  return TRUE;
}

/* compute_s[stages], may be NULL. Of a step above the limit any bound above it. */
static MsTime lower_bound(const Parts *p, MsTime limit, double *compute_s) {
  MsTime closed = ms_bound_step(p->program, p->lags, p->work->scenario->layout.schedule, compute_s);
  MsTime relaxed = closed > limit ? 0 : ms_relaxed_step(p->program, p->lags, p->schedule, limit);
  return MAX(closed, relaxed);
}

/* In picoseconds, a little above; G_MAXINT64: none. */
static MsTime limit_of(double limit_s) {
  return limit_s < MAX_STEP_S ? (MsTime)ceil(limit_s * MS_PS_PER_S) + 1 : G_MAXINT64;
}

/* Never below what is proven: the rest is waiting. */
static MsTime fast_step(const Parts *p, MsResult *r, MsTime lower) {
  MsTime step = ms_fast_step(p->program, p->lags, p->schedule, p->tag_op, r->stage_time, r->passes, &r->events);
  for (int s = 0; s < r->stages && step < lower; s++) r->stage_time[s].bubble_s += (double)(lower - step) / MS_PS_PER_S;
  return MAX(step, lower);
}

/* Turns of a stage up to which `full` takes no longer than to measure one kind, alone and with early inputs
 * (sim/steady.c), of what fetches also behind a forward; and of what goes to the host, whose copies reach from turn to
 * turn, up to which it takes less than twice as long. */
static int few(const MsProgram *p) {
  enum { EACH = MS_TURNS_FEW + MS_TURNS_MORE };
  return (!ms_program_fetches(p) ? 2 : p->unit ? 5 : 16) * EACH;
}

/* No stage has more than few turns, and all stages together no more than three kinds of the first, a middle and the
 * last one: a stage may never come into the steady state that `fast` counts on. */
static gboolean few_turns(const Parts *p) {
  enum { KINDS = 9 };
  int all = 0, most = few(p->program);
  for (int i = 0; i < p->schedule->stages; i++) {
    if (p->schedule->n[i] > most) return FALSE;
    all += p->schedule->n[i];
  }
  return all <= KINDS * most && ms_program_tasks(p->program, p->schedule) <= MAX_TASKS;
}

/* A bound says of nothing but compute what it is. */
static gboolean leave_the_rest(MsResult *r) {
  for (int s = 0; s < r->stages; s++)
    r->stage_time[s].other_s = MAX(r->step_time_lower_s - r->stage_time[s].compute_s, 0);
  return TRUE;
}

static gboolean step_time(Parts *p, MsResult *r, MsTime *step, MsDetail *detail, GError **error) {
  g_autofree double *compute_s = g_new(double, r->stages);
  MsTime lower = lower_bound(p, G_MAXINT64, compute_s);
  for (int s = 0; s < r->stages; s++) r->stage_time[s].compute_s = compute_s[s];
  r->step_time_lower_s = (double)lower / MS_PS_PER_S;
  *step = lower;
  if (r->fidelity == MS_FIDELITY_BOUND) return leave_the_rest(r);
  if (!ms_program_meet(p->program, error)) return FALSE;
  gboolean fast = r->fidelity == MS_FIDELITY_FAST;
  if (r->fidelity == MS_FIDELITY_FULL || (fast && few_turns(p))) return full_step(p, r, step, detail, error);
  if (fast) *step = fast_step(p, r, lower);
  return TRUE;
}

/* --- GPUs that differ --- */

static double fast_alone_s(const Parts *p, const MsProgram *program) {
  g_autofree MsTimeParts *stage = g_new0(MsTimeParts, p->layout->pp);
  g_autofree MsPasses *passes = g_new0(MsPasses, p->layout->pp);
  g_autoptr(MsPieceLags) lags = ms_piece_lags_new(program->piece, p->work->n_pieces, p->work->scenario, NULL);
  ms_piece_lags_keep(lags);
  guint64 events;
  return (double)ms_fast_step(program, lags, p->schedule, p->tag_op, stage, passes, &events) / MS_PS_PER_S;
}

static double expected_step_s(const Parts *p, double step_s, MsResult *r) {
  const MsClusterSpec *c = &p->work->scenario->cluster;
  MsScaleOf of = {.schedule = p->schedule, .step_s = step_s, .slower_s = step_s};
  if (!(c->slow_nic_rate > 0) || c->slow_nic_factor == 1) return ms_scale_step(p->program, &of, r);
  g_autoptr(MsCost) cost = ms_cost_new_slower(p->cost, c->slow_nic_factor);
  g_autoptr(MsProgram) slower = ms_program_new(p->work, cost);
  slower->meets = p->program->meets; /* lent: kinds and their shares are the same */
  double longer_s = fast_alone_s(p, slower) - fast_alone_s(p, p->program);
  of.slower = slower, of.slower_s += MAX(longer_s, 0);
  double step = ms_scale_step(p->program, &of, r);
  slower->meets = NULL;
  return step;
}

/* --- summing up --- */

static void mean_parts(MsResult *r) {
  double *mean = (double *)&r->time;
  for (int s = 0; s < r->stages; s++) {
    const double *part = (const double *)&r->stage_time[s];
    for (size_t i = 0; i < sizeof(MsTimeParts) / sizeof(double); i++) mean[i] += part[i] / r->stages;
  }
}

typedef struct { /* the stage whose numbers count */
  const MsScenario *scenario;
  const MsCost *costs;
} Ground;

static void add_origin(MsResult *r, const Ground *g, const MsOp *op, const MsOpCost *cost, double times) {
  gboolean communication = ms_op_families[op->kind] == MS_FAMILY_COMM;
  if (!cost->curve || !ms_curve_is_own(cost->curve)) /* what was measured takes as long whatever the data sheet says */
    ms_band_add_assumed(g->scenario, r, ms_cost_rate_key(g->costs, op, cost), communication, times * cost->time_s);
  if (ms_op_families[op->kind] < MS_FAMILY_MEMORY) /* products run at the clock that training sustains */
    ms_band_add_assumed(g->scenario, r, "sustained_derate", FALSE, times * cost->time_s);
  const char *word = cost->curve ? cost->curve->op : ms_op_words[op->kind];
  for (int i = 0; i < r->n_origins; i++)
    if (r->origins[i].curve == cost->curve && !strcmp(r->origins[i].op, word)) {
      r->origins[i].band = MAX(r->origins[i].band, cost->band); /* it may also stand in for another type */
      r->origins[i].time_s += times * cost->time_s;
      return;
    }
  r->origins = g_renew(MsOrigin, r->origins, r->n_origins + 1);
  MsOrigin *o = &r->origins[r->n_origins++];
  memset(o, 0, sizeof *o);
  o->curve = cost->curve;
  o->laws = cost->curve ? NULL : ms_cost_laws(g->costs, op);
  g_strlcpy(o->op, word, sizeof o->op);
  o->time_s = times * cost->time_s;
  o->band = cost->band;
  o->communication = communication;
}

static void origins_of_list(MsResult *r, const Ground *g, const MsCosted *c, double times) {
  for (int i = 0; i < c->list->n; i++) {
    MsOpCost cost = c->cost ? c->cost[i] : ms_cost_op(g->costs, &c->list->op[i]);
    add_origin(r, g, &c->list->op[i], &cost, times);
    if (cost.error_growth > 0) r->lcma_s += times * cost.time_s;
    r->lcma_growth = MAX(r->lcma_growth, cost.error_growth);
  }
}

MS_ORDER(by_time, MsOrigin, MS_MORE(x->time_s, y->time_s), 0)

/* Which curves decided the time of the stage that computes longest, and the band that follows. */
static void origins(MsResult *r, const Parts *p) {
  int slowest = 0;
  for (int s = 1; s < r->stages; s++) /* of those that differ by rounding the first */
    if (r->stage_time[s].compute_s > (1 + 1e-9) * r->stage_time[slowest].compute_s) slowest = s;
  g_autofree double *times = g_new0(double, p->work->n_pieces);
  const Ground ground = {ms_work_on_stage(p->work, slowest)->scenario,
                         ms_cost_of_pool(p->cost, ms_layout_pool(p->layout, slowest))},
               *g = &ground;
  for (MsStagePiece at = ms_stage_pieces(p->work, slowest); ms_next_piece(&at);)
    times[at.piece] += p->layout->microbatches;
  for (int i = 0; i < p->work->n_pieces; i++) {
    if (times[i] == 0) continue;
    origins_of_list(r, g, &p->program->piece[i].forward, times[i]);
    origins_of_list(r, g, &p->program->piece[i].backward, times[i]);
  }
  origins_of_list(r, g, &p->program->step[slowest].after, 1);
  r->ground.curves = ms_band_of_curves(g->scenario, r, &r->stage_time[slowest]);
  r->ground.assumed = ms_band_of_assumed(g->scenario, r, &r->stage_time[slowest]);
  ms_band_fill(p->work->scenario, r);
  qsort(r->origins, (size_t)r->n_origins, sizeof *r->origins, by_time);
}

static void bottleneck(MsResult *r) {
  static const char *const family[] = {"dense GEMMs", "expert GEMMs", "attention", "memory-bound kernels"};
  const MsTimeParts *t = &r->time;
  int most = 0, comm = 0;
  if (r->fidelity == MS_FIDELITY_BOUND) return; /* says of no part what it is */
  for (int i = 1; i < 4; i++)
    if (t->family_s[i] > t->family_s[most]) most = i;
  for (int i = 1; i < MS_N_COMMS; i++)
    if (t->comm_exposed_s[i] > t->comm_exposed_s[comm]) comm = i;
  g_autofree char *exposed = g_strdup_printf("exposed %s communication", ms_comm_words[comm]);
  const struct {
    double s;
    const char *what;
  } lost[] = {{t->comm_exposed_s[comm], exposed},
              {t->bubble_s, "the pipeline bubble"},
              {t->host_s, "the host, which launches kernels too slowly"},
              {t->optimizer_s, "the optimizer step"}},
    *worst = lost;
  for (guint i = 1; i < G_N_ELEMENTS(lost); i++)
    if (lost[i].s > worst->s) worst = &lost[i];
  double step = r->step_time_s > 0 ? r->step_time_s : 1;
  r->bottleneck = g_strdup_printf(
      "compute is %.1f %% of the step, its largest part %s (%.1f %%); beside it, %s (%.1f %% of the step)",
      100 * t->compute_s / step, family[most], 100 * t->family_s[most] / step, worst->what, 100 * worst->s / step);
}

/* Of all GPUs. */
static double mean_peak(const MsScenario *s) {
  if (ms_scenario_machines(s) == 1) return ms_hardware_peak_flops(s->hardware, s->training.precision);
  double sum = 0;
  for (int i = 0; i < ms_scenario_machines(s); i++)
    sum += ms_scenario_machine_gpus(s, i) * ms_hardware_peak_flops(ms_scenario_machine(s, i), s->training.precision);
  return sum / s->gpus;
}

static void throughput(MsResult *r, const MsScenario *s) {
  double tokens = (double)ms_scenario_batch(s) * s->training.seq_length;
  r->model_flop_per_token = ms_training_flop_per_token(s->model, &s->training).total;
  if (r->step_time_s <= 0) return;
  r->tokens_per_s_per_gpu = tokens / r->step_time_s / s->gpus;
  r->tflops_per_gpu = r->tokens_per_s_per_gpu * r->model_flop_per_token / 1e12;
  double peak = mean_peak(s);
  r->mfu = peak > 0 ? r->tflops_per_gpu * 1e12 / peak : NAN;
  r->peak_flops = peak > 0 ? peak : 0;
}

static void feasibility(MsResult *r) {
  int worst = ms_memory_fullest(r->memory);
  const MsStageMemory *m = &r->memory->stage[worst];
  r->capacity_B = m->capacity_B;
  r->feasible = m->device_B <= r->capacity_B;
  if (r->feasible) return;
  char need[MS_TEXT], have[MS_TEXT], over[MS_TEXT];
  r->why_infeasible = g_strdup_printf("stage %d needs %s of %s (%s too much, peak in %s)", worst,
                                      ms_text_bytes(m->device_B, need), ms_text_bytes(r->capacity_B, have),
                                      ms_text_bytes(m->device_B - r->capacity_B, over), m->peak_where);
}

static void keep_detail(MsDetail *detail, Parts *p) {
  detail->schedule = g_steal_pointer(&p->schedule);
  detail->layout = g_steal_pointer(&p->layout);
  detail->work = g_steal_pointer(&p->work);
  detail->n_tags = p->program->n_tags;
  detail->tag_op = g_steal_pointer(&p->tag_op);
  detail->tag_name = g_steal_pointer(&p->tag_name);
  detail->owned = g_steal_pointer(&p->program);
  ms_cost_free(g_steal_pointer(&p->cost));
}

void ms_detail_free(MsDetail *d) {
  if (!d) return;
  ms_trajectory_free(d->trajectory);
  ms_graph_free(d->graph);
  ms_program_free(d->owned);
  ms_schedule_free(d->schedule);
  ms_work_free(d->work);
  ms_layout_free(d->layout);
  g_free(d->seen);
  g_free(d->tag_op);
  g_free(d->tag_name);
  g_free(d->slot_task);
  g_free(d->slot_base);
  g_free(d);
}

/* In bytes of the machine of stage 0: where machines differ, the share that the fullest stage needs of its own. */
static double largest_device_B(const MsMemory *m) {
  const MsStageMemory *fullest = &m->stage[ms_memory_fullest(m)];
  double scale = m->stage[0].capacity_B / fullest->capacity_B;
  return scale > 0 && scale != 1 ? fullest->device_B * scale : fullest->device_B;
}

/* What the ranks of an expert group differ by. */
static void routing_load(MsResult *r, const Parts *p) {
  const MsRoutingDraw *draw = p->work->draw;
  int layers = 0;
  if (!draw) return;
  for (int i = 0; i < draw->layers; i++) {
    double hottest = ms_routing_hottest(draw, i) / draw->mean;
    if (!(hottest > 0)) continue;
    r->routing.hottest += hottest, layers++;
    r->routing.hottest_most = MAX(r->routing.hottest_most, hottest);
  }
  r->routing.hottest /= MAX(layers, 1);
  g_autoptr(MsWork) coldest = ms_work_new_coldest(p->work->scenario, p->layout, NULL);
  g_autoptr(MsMemory) memory = ms_memory_new(coldest, p->schedule);
  r->routing.peak_B = largest_device_B(r->memory), r->routing.peak_coldest_B = largest_device_B(memory);
}

static MsResult *simulate(const MsScenario *s, MsFidelity fidelity, const SlowGpu *slow, MsDetail **detail,
                          GError **error) {
  gint64 began = g_get_monotonic_time();
  Parts p = {.slow = slow};
  if (!prepare(&p, s, NULL, error)) {
    parts_clear(&p);
    return NULL;
  }
  ms_piece_lags_keep(p.lags);
  tag_rows(&p);
  MsResult *r = g_new0(MsResult, 1);
  r->name = g_strdup(s->name ? s->name : s->file);
  r->fidelity = fidelity;
  r->stages = p.layout->pp;
  r->stage_time = g_new0(MsTimeParts, r->stages);
  if (fidelity != MS_FIDELITY_BOUND) r->passes = g_new0(MsPasses, r->stages);
  r->dp = p.layout->dp, r->edp = p.layout->edp, r->microbatches = p.layout->microbatches;
  r->memory = ms_memory_new(p.work, p.schedule);
  MsDetail *kept = detail && fidelity == MS_FIDELITY_FULL ? g_new0(MsDetail, 1) : NULL;
  MsTime step = 0;
  if (!step_time(&p, r, &step, kept, error)) {
    ms_result_free(r);
    ms_detail_free(kept);
    parts_clear(&p);
    return NULL;
  }
  r->step_time_s = (double)step / MS_PS_PER_S;
  if (s->cluster.expected && fidelity != MS_FIDELITY_BOUND) r->step_time_s = expected_step_s(&p, r->step_time_s, r);
  if (r->passes) ms_passes_close(r->passes, r->stages, r->step_time_s);
  mean_parts(r);
  throughput(r, s);
  feasibility(r);
  routing_load(r, &p);
  origins(r, &p);
  r->caveat = ms_caveat(s, r, fidelity);
  bottleneck(r);
  ms_explain(r, p.program, p.schedule);
  if (fidelity != MS_FIDELITY_BOUND && ms_schedule_splits(p.schedule))
    ms_slot_times(p.program, p.lags, p.schedule, p.tag_op, r->pass_s);
  r->elapsed_s = (double)(g_get_monotonic_time() - began) / 1e6;
  if (kept) keep_detail(kept, &p);
  if (detail) *detail = kept;
  parts_clear(&p);
  return r;
}

/* --- replicas of several machines ------------------------------------------------------------------------------- */
static MsShare share_of(const MsScenario *s, int pool, const MsResult *r) {
  const MsPool *p = &s->pools.pool[pool];
  const MsStageMemory *fullest = &r->memory->stage[ms_memory_fullest(r->memory)];
  return (MsShare){.machine = p->hardware->name,
                   .replicas = (int)((gint64)r->dp * p->gpus / s->gpus),
                   .batch = p->batch,
                   .microbatches = r->microbatches,
                   .step_time_s = r->step_time_s,
                   .device_B = fullest->device_B,
                   .capacity_B = fullest->capacity_B,
                   .feasible = r->feasible};
}

/* Takes the place of *kept where it is slower. */
static void keep_slower(MsResult **kept, MsDetail **kept_detail, MsResult *r, MsDetail *detail) {
  gboolean slower = !*kept || r->step_time_s > (*kept)->step_time_s;
  ms_result_free(slower ? *kept : r);
  ms_detail_free(slower ? *kept_detail : detail);
  if (slower) *kept = r, *kept_detail = detail;
}

/* The machine that is fullest, whose memory does not depend on how finely time is told. */
typedef struct {
  MsMemory *memory;
  double capacity_B, share;
} Fullest;

/* Takes the memory of `r` where it fills more of its machine. */
static void keep_fuller(Fullest *kept, MsResult *r, int pool) {
  const MsStageMemory *own = &r->memory->stage[ms_memory_fullest(r->memory)];
  double share = own->capacity_B > 0 ? own->device_B / own->capacity_B : 0;
  if (kept->memory && share <= kept->share) return;
  ms_memory_free(kept->memory);
  *kept = (Fullest){g_steal_pointer(&r->memory), r->capacity_B, share};
  for (int i = 0; i < kept->memory->stages; i++) kept->memory->stage[i].pool = pool;
}

static void use_fullest(MsResult *r, const Fullest *fullest) {
  ms_memory_free(r->memory);
  r->memory = fullest->memory, r->capacity_B = fullest->capacity_B;
}

/* The step of the replicas that take longest: what they exchange already takes as long as on the slowest machine. */
static MsResult *simulate_shares(const MsScenario *s, MsFidelity fidelity, MsDetail **detail, GError **error) {
  int n = s->pools.shares;
  MsShare *share = g_new0(MsShare, n);
  MsResult *slowest = NULL;
  Fullest fullest = {0};
  MsDetail *kept = NULL;
  MsScenario *seen = g_new(MsScenario, n); /* a detail keeps pointing into it */
  double lower_s = 0;
  g_autofree char *why = NULL;
  for (int i = 0; i < n; i++) {
    seen[i] = ms_scenario_seen_from(s, i);
    MsDetail *own = NULL;
    MsResult *r = simulate(&seen[i], fidelity, NULL, detail ? &own : NULL, error);
    if (!r) {
      ms_result_free(slowest), ms_memory_free(fullest.memory), ms_detail_free(kept), g_free(share), g_free(seen);
      return NULL;
    }
    share[i] = share_of(s, i, r);
    keep_fuller(&fullest, r, i);
    lower_s = MAX(lower_s, r->step_time_lower_s);
    if (!r->feasible && !why) why = g_strdup_printf("on %s %s", share[i].machine, r->why_infeasible);
    keep_slower(&slowest, &kept, r, own);
  }
  for (int i = 0; i < n; i++) share[i].waits_s = slowest->step_time_s - share[i].step_time_s;
  use_fullest(slowest, &fullest);
  slowest->n_shares = n, slowest->shares = share, slowest->step_time_lower_s = lower_s;
  slowest->feasible = why == NULL;
  g_free(slowest->why_infeasible);
  slowest->why_infeasible = g_steal_pointer(&why);
  if (kept) kept->seen = seen;
  else g_free(seen);
  if (detail) *detail = kept;
  return slowest;
}

MsResult *ms_simulate(const MsScenario *s, MsFidelity fidelity, MsDetail **detail, GError **error) {
  return s->pools.shares > 0 ? simulate_shares(s, fidelity, detail, error) : simulate(s, fidelity, NULL, detail, error);
}

MsResult *ms_simulate_slow_gpu(const MsScenario *s, int stage, double factor, GError **error) {
  return simulate(s, MS_FIDELITY_FULL, &(SlowGpu){stage, factor}, NULL, error);
}

static MsScreen screen_of(const Parts *p, const MsWorth *worth) {
  g_autoptr(MsMemory) memory = ms_memory_new(p->work, p->schedule);
  MsScreen out = {.device_B = largest_device_B(memory)};
  if (!(out.device_B > worth->device_B))
    out.step_time_lower_s = (double)lower_bound(p, limit_of(worth->step_time_s), NULL) / MS_PS_PER_S;
  return out;
}

static gboolean screen(const MsScenario *s, const MsCost *like, const MsWorth *worth, MsScreen *out) {
  Parts p = {0};
  gboolean ok = prepare(&p, s, like, NULL);
  if (ok) *out = screen_of(&p, worth);
  parts_clear(&p);
  return ok;
}

static gboolean meets_replicas(const MsOpList *list) {
  for (int i = 0; i < list->n; i++)
    if (ms_group_spans_replicas((MsGroupKind)list->op[i].group)) return TRUE;
  return FALSE;
}

gboolean ms_pieces_of_any_pipeline(const MsWork *w) {
  const MsScenario *s = w->scenario;
  for (int i = 0; i < w->n_pieces; i++)
    if (meets_replicas(&w->pieces[i].forward) || meets_replicas(&w->pieces[i].backward)) return FALSE;
  return w->piece_scales < 0 && !s->model->tie_embeddings && !w->draw && s->pools.n == 0 && s->pools.shares == 0;
}

gboolean ms_screen_pieces(const MsScenario *s, const MsPiecesOf *of, const MsWorth *worth, MsScreen *out) {
  MsWork work = *of->work; /* the pieces are borrowed */
  Parts p = {.layout = ms_layout_new_or_error(s, NULL)};
  if (!p.layout) return FALSE;
  work.scenario = s, work.layout = p.layout;
  gboolean ok = (p.cost = ms_cost_new_like(of->cost, s, p.layout, NULL)) != NULL;
  if (ok) {
    p.work = &work, p.lags = of->lags, p.program = ms_program_new_like(&work, p.cost, of->piece);
    if ((ok = prepare_schedule(&p, s, NULL))) *out = screen_of(&p, worth);
    ms_program_free(g_steal_pointer(&p.program));
  }
  p.work = NULL, p.lags = NULL;
  parts_clear(&p);
  return ok;
}

gboolean ms_screen(const MsScenario *s, const MsCost *like, const MsWorth *worth, MsScreen *out) {
  if (s->pools.shares == 0) return screen(s, like, worth, out);
  *out = (MsScreen){0, 0};
  for (int i = 0; i < s->pools.shares; i++) {
    const MsScenario view = ms_scenario_seen_from(s, i);
    MsScreen own;
    double scale =
        s->hardware->hbm_B / view.hardware->hbm_B; /* in bytes of the own one, of whose memory the limit is */
    const MsWorth of_view = {worth->step_time_s, worth->device_B / scale};
    if (!screen(&view, like, &of_view, &own)) return FALSE;
    out->step_time_lower_s = MAX(out->step_time_lower_s, own.step_time_lower_s);
    out->device_B = MAX(out->device_B, scale == 1 ? own.device_B : own.device_B * scale);
  }
  return TRUE;
}

struct MsPassScreen {
  Parts parts;
};

MsPassScreen *ms_pass_screen_new(MsScenario *s, const MsCost *like) {
  MsPassScreen *x = g_new0(MsPassScreen, 1);
  MsFsdp fsdp = s->options.fsdp;
  /* its gathers and reductions only add to the passes, whose products know whether gradients are sharded */
  s->options.fsdp = fsdp < MS_FSDP_OPTIM_GRADS ? MS_FSDP_NONE : MS_FSDP_OPTIM_GRADS;
  x->parts.layout = ms_layout_build(s);
  gboolean ok = prepare_costs(&x->parts, s, like, NULL) && prepare_program(&x->parts, s, NULL);
  s->options.fsdp = fsdp;
  if (ok) return x;
  ms_pass_screen_free(x);
  return NULL;
}

void ms_pass_screen_free(MsPassScreen *x) {
  if (x) parts_clear(&x->parts);
  g_free(x);
}

double ms_pass_screen_options_s(const MsPassScreen *x, double passes_s) {
  const Parts *p = &x->parts;
  g_autoptr(MsProgram) program = ms_program_new_like(p->work, p->cost, p->program->piece);
  double behind_s = (double)ms_bound_behind(program) / MS_PS_PER_S,
         streams_s = (double)ms_bound_streams(program) / MS_PS_PER_S;
  return MAX(passes_s + behind_s, streams_s);
}

double ms_pass_screen_device_B(const MsPassScreen *x) {
  g_autoptr(MsMemory) memory = ms_memory_new(x->parts.work, x->parts.schedule);
  return largest_device_B(memory);
}

/* --- what a step follows from --- */

static void fold(guint64 *number, gconstpointer data, gsize size) { /* FNV-1a by words */
  for (const char *at = data, *end = at + size; at < end; at += sizeof *number) {
    guint64 word = 0;
    memcpy(&word, at, MIN(sizeof word, (gsize)(end - at)));
    *number = (*number ^ word) * 0x100000001b3u;
    *number ^= *number >> 29;
  }
}

static void fold_list(const MsCosted *c, gpointer number) {
  gsize n = c->list ? (gsize)c->list->n : 0;
  fold(number, &n, sizeof n);
  if (n == 0) return;
  fold(number, c->list->op, n * sizeof *c->list->op);
  fold(number, c->duration, n * sizeof *c->duration), fold(number, c->beside, n * sizeof *c->beside);
  fold(number, c->launch, n * sizeof *c->launch), fold(number, c->sms, n * sizeof *c->sms);
  fold(number, c->use, n * sizeof *c->use);
}

static guint64 number_of(const MsProgram *p) {
  guint64 number = 1;
  const MsGpuSpread spread = ms_scale_spread(p->scenario);
  fold(&number, &spread, sizeof spread);
  for (int i = 0; i < (p->message ? 2 * p->layout->pp : 1); i++) {
    const MsOpCost *of = p->message ? &p->message[i] : &p->p2p;
    const double message[] = {of->time_s, of->sms};
    fold(&number, message, sizeof message);
  }
  ms_program_each_list(p, fold_list, &number);
  return MAX(number, 1);
}

guint64 ms_step_number(const MsScenario *s) {
  Parts p = {0};
  gboolean plain = s->pools.n == 0 && s->pools.shares == 0 && !(s->cluster.slow_nic_rate > 0);
  guint64 number = plain && prepare(&p, s, NULL, NULL) ? number_of(p.program) : 0;
  parts_clear(&p);
  return number;
}

/* Where the tasks of a stage end that a slot laid down, which begin at `from` and follow one another; those of other
 * stages come behind them. */
static guint32 end_of_slot(const MsTask *task, guint32 stage, guint32 from, guint32 to) {
  if (from < to && task[to - 1].device == stage) return to;
  while (from < to) {
    guint32 middle = from + (to - from) / 2;
    if (task[middle].device == stage) from = middle + 1;
    else to = middle;
  }
  return from;
}

/* The last compute row of every slot, and what is still to come behind it. */
static MsTail *tails_of(const Parts *p, const MsGraph *graph, const guint32 *slot, const guint32 *base,
                        const MsTime *left, guint32 *first) {
  MsTail *tail = g_new(MsTail, MAX(1, base[p->layout->pp]));
  const MsTask *task = ms_graph_tasks(graph);
  guint32 n = 0, at = 0;
  for (int s = 0; s < p->layout->pp; s++) {
    first[s] = n;
    for (int k = 0; k < p->schedule->n[s]; k++, at++) {
      guint32 from = slot[base[s] + (guint32)k],
              to = end_of_slot(task, (guint32)s, from, slot[base[s] + (guint32)k + 1]);
      while (to > from && task[to - 1].stream != MS_STREAM_COMPUTE) to--;
      if (to > from) tail[n++] = (MsTail){to - 1, left[at]};
    }
  }
  first[p->layout->pp] = n;
  return tail;
}

/* NULL: it is above the limit. */
static MsTrajectory *run_within(const Parts *p, const MsGraph *graph, const guint32 *slot, const guint32 *base,
                                MsTime limit) {
  g_autofree guint32 *first = g_new(guint32, p->layout->pp + 1);
  g_autofree MsTime *left =
      limit < G_MAXINT64 && ms_graph_shares(graph) ? ms_relaxed_tails(p->program, p->lags, p->schedule) : NULL;
  g_autofree MsTail *tail = left ? tails_of(p, graph, slot, base, left, first) : NULL;
  return tail ? ms_engine_events_within(graph, p->program->meets ? &p->program->meets->sharing : NULL, limit,
                                        &(MsTails){tail, first})
              : ms_program_run(p->program, graph, NULL);
}

/* Step of the graph; INFINITY: it is above the limit. What is left of a step when most of its rounds are left out is
 * run sooner than it is told what follows every slot. */
static double step_within(const Parts *p, double limit_s) {
  g_autofree guint32 *base = slot_bases(p), *slot = g_new0(guint32, base[p->layout->pp]);
  MsTime limit = limit_of(limit_s);
  g_autoptr(MsGraph) graph = ms_lower_folded(p->program, p->schedule, slot, base);
  if (ms_graph_left_out(graph) > 0) {
    g_autoptr(MsTrajectory) t = ms_program_run(p->program, graph, NULL);
    if (ms_trajectory_is_whole(t, graph)) return t->makespan > limit ? INFINITY : (double)t->makespan / MS_PS_PER_S;
    ms_graph_free(graph);
    graph = ms_lower_full(p->program, p->schedule, slot, base);
  }
  g_autoptr(MsTrajectory) t = run_within(p, graph, slot, base, limit);
  g_autofree MsTimeParts *stage = g_new0(MsTimeParts, p->layout->pp);
  return t ? (double)ms_lower_period(p->program, graph, t, stage) / MS_PS_PER_S : INFINITY;
}

static gboolean step_time_of(const MsScenario *s, const MsCost *like, double limit_s, double *step_time_s,
                             GError **error) {
  Parts p = {0};
  gboolean ok = prepare(&p, s, like, error) && check_tasks(&p, error) && ms_program_meet(p.program, error);
  if (ok) *step_time_s = step_within(&p, limit_s);
  parts_clear(&p);
  return ok;
}

gboolean ms_step_time(const MsScenario *s, const MsCost *like, double limit_s, double *step_time_s, GError **error) {
  if (s->pools.shares == 0) return step_time_of(s, like, limit_s, step_time_s, error);
  *step_time_s = 0;
  for (int i = 0; i < s->pools.shares; i++) {
    const MsScenario view = ms_scenario_seen_from(s, i);
    double own_s;
    if (!step_time_of(&view, like, limit_s, &own_s, error)) return FALSE;
    *step_time_s = MAX(*step_time_s, own_s);
  }
  return TRUE;
}
