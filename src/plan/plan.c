/* src/plan/plan.c - the search: enumerate and rule out, bound, then simulate in the order of the bounds until none can win. */
#include "plan/plan_priv.h"
#include "base/err.h"
#include "base/io.h"
#include "base/text.h"
#include "base/units.h"
#include <math.h>
#include <string.h>
#include "sim/lower.h"

#define BATCH 16 /* candidates between two updates of the threshold; fixed, so that counts do not depend on the number of threads */

void ms_plan_options_init(MsPlanOptions *options) { *options = (MsPlanOptions){.top = 10, .prune = TRUE, .progress = TRUE}; }

/* --- what pp and vpp leave alone: the pieces of one (tp, cp, ep, etp, microbatch size, options), costed once --- */

typedef struct { MsTime forward, backward; double kept_B, dense, expert, low; } PieceSums;

typedef struct {
  MsLayout *layout;
  MsWork *work;
  PieceSums *before;   /* [num_layers + 1] prefix sums over decoder layers */
  PieceSums embedding, head, mtp;
} Memo;

static PieceSums sums_of(const MsWork *w, const MsCost *cost, int piece) {
  PieceSums s = {0};
  if (piece < 0) return s;
  const MsPiece *p = &w->pieces[piece];
  gboolean overlapped = ms_slots_overlap(w->scenario);
  s.forward = ms_list_shortest(&p->forward, cost, overlapped);
  s.backward = ms_list_shortest(&p->backward, cost, overlapped);
  s.kept_B = p->kept_B;
  s.dense = p->params_dense, s.expert = p->params_expert;
  s.low = p->params_quantizable_dense + p->params_quantizable_expert;
  return s;
}

static void add(PieceSums *to, const PieceSums *x, int sign) {
  to->forward += sign * x->forward, to->backward += sign * x->backward;
  to->kept_B += sign * x->kept_B, to->dense += sign * x->dense, to->expert += sign * x->expert, to->low += sign * x->low;
}

static void memo_free(Memo *m) {
  if (!m) return;
  g_free(m->before);
  ms_work_free(m->work);
  ms_layout_free(m->layout);
  g_free(m);
}

/* Kernel curves are prepared once: the first cost stays in *shared. */
static Memo *memo_new(const MsScenario *s, MsCost **shared, GError **error) {
  Memo *m = g_new0(Memo, 1);
  g_autoptr(MsCost) cost = NULL;
  if (!(m->layout = ms_layout_new_or_error(s, error)) || !(m->work = ms_work_new(s, m->layout, error)) || !(cost = ms_cost_new_like(*shared, s, m->layout, error))) {
    memo_free(m);
    return NULL;
  }
  g_autofree PieceSums *piece = g_new0(PieceSums, m->work->n_pieces);
  for (int i = 0; i < m->work->n_pieces; i++) piece[i] = sums_of(m->work, cost, i);
  if (!*shared) *shared = g_steal_pointer(&cost);
  int layers = s->model->num_layers;
  m->before = g_new0(PieceSums, layers + 1);
  for (int i = 0; i < layers; i++) {
    m->before[i + 1] = m->before[i];
    add(&m->before[i + 1], &piece[m->work->piece_of_layer[i]], 1);
  }
  m->embedding = piece[m->work->piece_embedding];
  m->head = piece[m->work->piece_head];
  if (m->work->piece_mtp >= 0) m->mtp = piece[m->work->piece_mtp];
  return m;
}

static PieceSums chunk_sums(const Memo *m, const MsChunk *c) {
  PieceSums s = m->before[c->first_layer + c->num_layers];
  add(&s, &m->before[c->first_layer], -1);
  if (c->has_embedding) add(&s, &m->embedding, 1);
  for (int i = 0; i < c->num_mtp; i++) add(&s, &m->mtp, 1);
  if (c->has_loss) add(&s, &m->head, 1);
  return s;
}

/* --- bound of one candidate: step time and device memory, both never above what `full` finds --- */

typedef struct { MsTime step; double device_B; } Bound;

/* Forwards of chunk c among the first n of the interleaved table (domain/schedules.md 3). */
static gint64 forwards_of(gint64 n, int c, int chunks, int group) {
  gint64 cycle = (gint64)group * chunks, rest = n % cycle;
  return n / cycle * group + CLAMP(rest - (gint64)c * group, 0, group);
}

static double live_B(const MsScenario *s, const MsLayout *l, const PieceSums *chunk, int stage) {
  gint64 m = l->microbatches;
  if (s->layout.schedule == MS_SCHED_GPIPE) {
    double live = 0;
    for (int c = 0; c < l->vpp; c++) live += (double)m * chunk[c].kept_B;
    return live;
  }
  if (s->layout.schedule != MS_SCHED_1F1B) return 0;
  if (l->vpp == 1) return (double)MIN(m, l->pp - stage) * chunk[0].kept_B;
  int group = (int)MIN((gint64)l->group_size, m);
  gint64 n = MIN(m * l->vpp, 2 * (gint64)(l->pp - stage - 1) + (gint64)(l->vpp - 1) * group + 1);
  double live = 0;
  for (int c = 0; c < l->vpp; c++) live += (double)forwards_of(n, c, l->vpp, group) * chunk[c].kept_B;
  return live;
}

static Bound bound_of(const MsScenario *s, const Memo *memo, const MsLayout *l, PieceSums *scratch) {
  Bound b = {0};
  MsTime head = 0, tail = 0;
  const MsHardware *hw = s->hardware;
  gboolean ends = s->layout.schedule == MS_SCHED_1F1B || s->layout.schedule == MS_SCHED_GPIPE;
  MsParamBytes bytes = ms_memory_param_bytes(memo->work);
  if (s->training.optimizer == MS_OPT_MUON && !s->options.offload_optimizer_states) /* matrices have no second moment */
    bytes.optimizer -= ms_dtype_B(s->options.exp_avg_sq_dtype) * (1 - s->options.optimizer_offload_fraction);
  gboolean shards = s->options.distributed_optimizer || s->options.fsdp != MS_FSDP_NONE;
  double owners = s->layout.schedule == MS_SCHED_DUALPIPE ? 2 : 1;
  bytes.dense_shards = shards ? MAX(1.0, (double)l->dp * l->cp) * owners : 1;
  bytes.expert_shards = shards ? MAX(1.0, (double)l->edp) * owners : 1;
  double whole_weights = s->options.fsdp >= MS_FSDP_OPTIM_GRADS_PARAMS ? 0 : 1, whole_gradients = s->options.fsdp >= MS_FSDP_OPTIM_GRADS ? 0 : 1;
  for (int stage = 0; stage < l->pp; stage++) {
    PieceSums all = {0};
    for (int c = 0; c < l->vpp; c++) {
      scratch[c] = chunk_sums(memo, ms_layout_chunk(l, stage, c));
      add(&all, &scratch[c], 1);
    }
    double stat = whole_weights * (bytes.weight * (all.dense + all.expert - all.low) + bytes.low_weight * all.low) +
                  whole_gradients * bytes.gradient * (all.dense + all.expert) +
                  bytes.optimizer * (all.dense / bytes.dense_shards + all.expert / bytes.expert_shards);
    double peak = stat + live_B(s, l, scratch, stage);
    b.device_B = MAX(b.device_B, peak * MAX(1, hw->reserve_ratio) + hw->context_B);
    int microbatches = s->layout.schedule == MS_SCHED_DUALPIPE ? l->microbatches / 2 : l->microbatches; /* two copies of the model: half each */
    MsTime span = (all.forward + all.backward) * microbatches + (ends ? head + tail : 0);
    b.step = MAX(b.step, span);
    head += scratch[0].forward;
    tail += scratch[0].backward;
  }
  return b;
}

/* --- refusals --- */

typedef struct { char *name, *example; guint64 count; double miss; } Refused;
typedef struct { GArray *rows; } Refusals;

static Refused *refused_row(Refusals *r, const char *name) {
  for (guint i = 0; i < r->rows->len; i++) {
    Refused *row = &g_array_index(r->rows, Refused, i);
    if (!strcmp(row->name, name)) return row;
  }
  Refused row = {.name = g_strdup(name), .miss = INFINITY};
  g_array_append_val(r->rows, row);
  return &g_array_index(r->rows, Refused, r->rows->len - 1);
}

static char *layout_text(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  return g_strdup_printf("tp %d cp %d pp %d vpp %d ep %d etp %d mbs %d", l->tp, l->cp, l->pp, l->vpp, l->ep, l->etp, s->training.micro_batch_size);
}

/* Counts; keeps as example the one that missed by least (the first one when `miss` does not tell). */
static void refuse(Refusals *r, const char *name, const MsScenario *s, double miss, const char *why) {
  Refused *row = refused_row(r, name);
  row->count++;
  if (row->example && !(miss < row->miss)) return;
  g_free(row->example);
  g_autofree char *layout = layout_text(s);
  row->example = g_strdup_printf("%s: %s", layout, why);
  row->miss = miss;
}

/* --- the search --- */

typedef struct {
  const MsSpace *space;
  const MsPlanOptions *options;
  MsPlan *plan;
  Refusals refusals;
  GArray *candidates; /* MsCandidate */
  MsCost *shared;     /* kernel curves that all memos borrow */
  MsProgress *progress;
  double done;
} Search;

static void consider(Search *x, MsScenario *s, const MsCandidate *raw, Memo **memo, gboolean *memo_failed, GError **error) {
  MsRefusal refusal;
  x->plan->searched++;
  g_autoptr(MsLayout) layout = ms_layout_new(s, &refusal);
  if (!layout) {
    refuse(&x->refusals, ms_rules[refusal.rule].name, s, NAN, refusal.why);
    return;
  }
  if (*memo_failed) return;
  if (!*memo && !(*memo = memo_new(s, &x->shared, error))) {
    *memo_failed = TRUE;
    return;
  }
  x->plan->valid++;
  g_autofree PieceSums *scratch = g_new(PieceSums, layout->vpp);
  Bound b = bound_of(s, *memo, layout, scratch);
  if (b.device_B > x->plan->memory_limit_B) {
    char over[MS_TEXT], why[96];
    g_snprintf(why, sizeof why, "fits if at least %s less", ms_text_bytes(b.device_B - x->plan->memory_limit_B, over));
    refuse(&x->refusals, "memory", s, b.device_B - x->plan->memory_limit_B, why);
    return;
  }
  MsCandidate c = *raw;
  c.bound = b.step;
  g_array_append_val(x->candidates, c);
}

static void progress(Search *x, double done, const char *note) {
  ms_progress_update(x->progress, done, note);
  if (x->options->watch) x->options->watch(x->plan, done, x->options->watch_user);
}

/* All (pp, vpp) of one setting of the other axes. */
static gboolean sweep_pipeline(Search *x, MsCandidate *c, GError **error) {
  const MsIntAxis *pp = &x->space->axis[MS_AXIS_PP], *vpp = &x->space->axis[MS_AXIS_VPP];
  Memo *memo = NULL;
  gboolean failed = FALSE;
  MsScenario *base = x->space->combo[c->combo];
  GError *why = NULL;
  for (int i = 0; i < pp->n; i++)
    for (int j = 0; j < vpp->n; j++) {
      c->value[MS_AXIS_PP] = pp->value[i], c->value[MS_AXIS_VPP] = vpp->value[j];
      MsScenario *s = base;
      char *given = s->layout.pipeline_layout;
      if (given) s->layout.pipeline_layout = g_strdup(given);
      ms_candidate_apply(x->space, c, s);
      consider(x, s, c, &memo, &failed, &why);
      g_free(s->layout.pipeline_layout);
      s->layout.pipeline_layout = given;
    }
  memo_free(memo);
  if (!why) return TRUE;
  g_propagate_error(error, why);
  return FALSE;
}

static gboolean enumerate(Search *x, GError **error) {
  const MsIntAxis *a = x->space->axis;
  double total = ms_space_size(x->space);
  MsCandidate c = {0};
  for (c.combo = 0; c.combo < x->space->n_combos; c.combo++)
    for (int tp = 0; tp < a[MS_AXIS_TP].n; tp++)
      for (int cp = 0; cp < a[MS_AXIS_CP].n; cp++)
        for (int ep = 0; ep < a[MS_AXIS_EP].n; ep++)
          for (int etp = 0; etp < a[MS_AXIS_ETP].n; etp++)
            for (int mbs = 0; mbs < a[MS_AXIS_MBS].n; mbs++) {
              if (ms_interrupted()) return TRUE;
              c.value[MS_AXIS_TP] = a[MS_AXIS_TP].value[tp], c.value[MS_AXIS_CP] = a[MS_AXIS_CP].value[cp];
              c.value[MS_AXIS_EP] = a[MS_AXIS_EP].value[ep], c.value[MS_AXIS_ETP] = a[MS_AXIS_ETP].value[etp];
              c.value[MS_AXIS_MBS] = a[MS_AXIS_MBS].value[mbs];
              if (!sweep_pipeline(x, &c, error)) return FALSE;
              progress(x, 0.2 * (double)x->plan->searched / total, "enumerating");
            }
  return TRUE;
}

/* --- simulation of the survivors --- */

typedef struct {
  MsScenario *scenario;
  MsResult *result;   /* full, when it was simulated and fits */
  MsResult *cheap;    /* bound fidelity: exact memory, tighter bound */
  GError *error;
  double threshold_s, memory_limit_B;
} Job;

static void run_job(gpointer data, gpointer user) {
  (void)user;
  Job *job = data;
  job->cheap = ms_simulate(job->scenario, MS_FIDELITY_BOUND, NULL, &job->error);
  if (!job->cheap) return;
  for (int i = 0; i < job->cheap->stages; i++)
    if (job->cheap->memory->stage[i].device_B > job->memory_limit_B) return;
  if (job->cheap->step_time_lower_s > job->threshold_s) return;
  job->result = ms_simulate(job->scenario, MS_FIDELITY_FULL, NULL, &job->error);
}

static double worst_device_B(const MsResult *r) {
  double worst = 0;
  for (int i = 0; i < r->stages; i++) worst = MAX(worst, r->memory->stage[i].device_B);
  return worst;
}

static int compare_entries(const MsPlanEntry *a, const MsPlanEntry *b) {
  if (a->result->step_time_s != b->result->step_time_s) return a->result->step_time_s < b->result->step_time_s ? -1 : 1;
  const int x[] = {a->scenario->layout.tp, a->scenario->layout.cp, a->scenario->layout.pp, a->scenario->layout.vpp, a->scenario->layout.ep,
                   a->scenario->layout.etp, a->scenario->training.micro_batch_size, (int)a->scenario->options.recompute.granularity,
                   (int)a->scenario->options.recompute.modules};
  const int y[] = {b->scenario->layout.tp, b->scenario->layout.cp, b->scenario->layout.pp, b->scenario->layout.vpp, b->scenario->layout.ep,
                   b->scenario->layout.etp, b->scenario->training.micro_batch_size, (int)b->scenario->options.recompute.granularity,
                   (int)b->scenario->options.recompute.modules};
  for (guint i = 0; i < G_N_ELEMENTS(x); i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

static void keep_best(Search *x, MsScenario *scenario, MsResult *result) {
  MsPlan *p = x->plan;
  MsPlanEntry entry = {scenario, result};
  int at = p->n_best;
  while (at > 0 && compare_entries(&entry, &p->best[at - 1]) < 0) at--;
  if (at >= x->options->top) {
    ms_scenario_free(scenario);
    ms_result_free(result);
    return;
  }
  if (p->n_best == x->options->top) {
    p->n_best--;
    ms_scenario_free(p->best[p->n_best].scenario);
    ms_result_free(p->best[p->n_best].result);
  }
  memmove(&p->best[at + 1], &p->best[at], (size_t)(p->n_best - at) * sizeof *p->best);
  p->best[at] = entry;
  p->n_best++;
}

static double threshold_s(const Search *x) {
  if (!x->options->prune || x->plan->n_best < x->options->top) return INFINITY;
  return x->plan->best[x->plan->n_best - 1].result->step_time_s;
}

static void settle(Search *x, Job *job) {
  if (job->result) {
    x->plan->simulated++;
    x->plan->feasible++;
    ms_result_free(job->cheap);
    keep_best(x, job->scenario, job->result);
    return;
  }
  if (job->cheap && worst_device_B(job->cheap) > job->memory_limit_B) {
    char over[MS_TEXT], why[96];
    double miss = worst_device_B(job->cheap) - job->memory_limit_B;
    g_snprintf(why, sizeof why, "fits if %s less, peak in %s", ms_text_bytes(miss, over), job->cheap->memory->stage[job->cheap->memory->peak_stage].peak_where);
    refuse(&x->refusals, "memory", job->scenario, miss, why);
  } else if (job->error) {
    refuse(&x->refusals, "not simulated", job->scenario, NAN, job->error->message);
  } else {
    x->plan->feasible++;
    x->plan->pruned++;
  }
  g_clear_error(&job->error);
  ms_result_free(job->cheap);
  ms_scenario_free(job->scenario);
}

static MsScenario *materialise(const Search *x, const MsCandidate *c) {
  MsScenario *s = ms_scenario_copy(x->space->combo[c->combo], TRUE);
  ms_candidate_apply(x->space, c, s);
  if (s->options.sequence_parallel < 0) s->options.sequence_parallel = s->layout.tp > 1; /* null in the request: said in what is printed */
  g_autofree char *layout = layout_text(s);
  g_free(s->name);
  s->name = g_strdup_printf("%s, %s", x->space->request->base->name ? x->space->request->base->name : "plan", layout);
  return s;
}

static void simulate_batch(Search *x, const MsCandidate *c, int n) {
  Job job[BATCH] = {{0}};
  for (int i = 0; i < n; i++) {
    job[i].scenario = materialise(x, &c[i]);
    job[i].threshold_s = threshold_s(x);
    job[i].memory_limit_B = x->plan->memory_limit_B;
  }
  int threads = x->options->threads > 0 ? x->options->threads : (int)g_get_num_processors();
  if (threads == 1) {
    for (int i = 0; i < n; i++) run_job(&job[i], NULL);
  } else {
    GThreadPool *pool = g_thread_pool_new(run_job, NULL, threads, FALSE, NULL);
    for (int i = 0; i < n; i++) g_thread_pool_push(pool, &job[i], NULL);
    g_thread_pool_free(pool, FALSE, TRUE);
  }
  for (int i = 0; i < n; i++) settle(x, &job[i]);
}

static void simulate_all(Search *x) {
  g_array_sort(x->candidates, ms_candidate_compare);
  const MsCandidate *c = (const MsCandidate *)(gpointer)x->candidates->data;
  guint n = x->candidates->len;
  for (guint i = 0; i < n && !ms_interrupted();) {
    if ((double)c[i].bound / MS_PS_PER_S > threshold_s(x)) { /* none of the rest can enter the list */
      x->plan->pruned += n - i;
      break;
    }
    int batch = (int)MIN((guint)BATCH, n - i);
    simulate_batch(x, &c[i], batch);
    i += (guint)batch;
    char note[64];
    g_snprintf(note, sizeof note, "%" G_GUINT64_FORMAT " simulated, best %.3f s", x->plan->simulated, x->plan->n_best ? x->plan->best[0].result->step_time_s : 0.0);
    progress(x, 0.2 + 0.8 * i / n, note);
  }
}

/* --- in and out --- */

static int more_first(const void *a, const void *b) {
  const MsPlanRefusal *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void hand_over_refusals(Search *x) {
  MsPlan *p = x->plan;
  p->n_refusals = (int)x->refusals.rows->len;
  p->refusals = g_new0(MsPlanRefusal, MAX(1, p->n_refusals));
  for (int i = 0; i < p->n_refusals; i++) {
    Refused *r = &g_array_index(x->refusals.rows, Refused, i);
    p->refusals[i] = (MsPlanRefusal){.name = r->name, .example = r->example, .count = r->count};
  }
  qsort(p->refusals, (size_t)p->n_refusals, sizeof *p->refusals, more_first);
  g_array_free(x->refusals.rows, TRUE);
}

MsPlan *ms_plan(const MsRequest *request, const MsPlanOptions *options, GError **error) {
  gint64 began = g_get_monotonic_time();
  MsSpace *space = ms_space_new(request, error);
  if (!space) return NULL;
  if (!ms_hardware_need(request->base->hardware, request->base->hardware->hbm_B, "hbm_B", error)) {
    ms_space_free(space);
    return NULL;
  }
  MsPlanOptions o = *options;
  if (o.top <= 0) o.top = request->top > 0 ? request->top : 10;
  MsPlan *plan = g_new0(MsPlan, 1);
  plan->best = g_new0(MsPlanEntry, o.top + 1);
  plan->memory_limit_B = request->max_memory_fraction * request->base->hardware->hbm_B;
  Search x = {.space = space, .options = &o, .plan = plan, .refusals = {g_array_new(FALSE, FALSE, sizeof(Refused))},
              .candidates = g_array_new(FALSE, FALSE, sizeof(MsCandidate))};
  x.progress = o.progress ? ms_progress_begin("plan", 1) : NULL;
  gboolean ok = enumerate(&x, error);
  if (ok) simulate_all(&x);
  ms_progress_end(x.progress);
  ms_cost_free(x.shared);
  plan->interrupted = ms_interrupted();
  hand_over_refusals(&x);
  g_array_free(x.candidates, TRUE);
  ms_space_free(space);
  plan->elapsed_s = (double)(g_get_monotonic_time() - began) / 1e6;
  if (ok) return plan;
  ms_plan_free(plan);
  return NULL;
}

void ms_plan_free(MsPlan *plan) {
  if (!plan) return;
  for (int i = 0; i < plan->n_best; i++) {
    ms_scenario_free(plan->best[i].scenario);
    ms_result_free(plan->best[i].result);
  }
  for (int i = 0; i < plan->n_refusals; i++) {
    g_free(plan->refusals[i].name);
    g_free(plan->refusals[i].example);
  }
  g_free(plan->best);
  g_free(plan->refusals);
  g_free(plan);
}
