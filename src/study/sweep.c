#include "study/sweep.h"

#include "study/advice.h"
#include "study/parts.h"

#include <string.h>

/* --- cells ----------------------------------------------------------------------------------------------------- */
typedef struct {
  MsSweep *sweep;
  const MsSweepAsked *asked;
} Watched;

static void tell_of_cell(const MsPlan *so_far, double done, gpointer user) {
  const Watched *w = user;
  MsSweep *s = w->sweep;
  MsSweepCell *cell = &s->cell[s->n_cells - 1];
  cell->so_far = so_far;
  w->asked->watch(s, (s->n_cells - 1 + done) / s->n_requests, w->asked->user);
  cell->so_far = NULL;
}

static void plan_cell(MsSweepCell *cell, const MsPlanOptions *options, MsPlanKnown *known, Watched *watched) {
  g_autoptr(GError) error = NULL;
  MsPlanOptions own = *options;
  own.known = known;
  if (watched->asked->watch) own.watch = tell_of_cell, own.watch_user = watched;
  if (own.top <= 0) own.top = cell->request->top;
  cell->plan = ms_plan(cell->request, &own, &error);
  if (!cell->plan) cell->why = g_strdup(error->message);
  else if (cell->plan->n_best > 0)
    ms_budget_of(cell->request, cell->plan->best[0].scenario, cell->plan->best[0].result, &cell->budget);
}

/* --- the front ------------------------------------------------------------------------------------------------- */
/* Takes the scenario of the point. One that a search found before it was stopped may not be proven. */
static void add_point(MsSweep *s, int cell, const MsFrontPoint *p) {
  s->point = g_renew(MsParetoPoint, s->point, s->n_points + 1);
  s->point[s->n_points++] = (MsParetoPoint){.cell = cell,
                                            .scenario = p->scenario,
                                            .step_time_s = p->step_time_s,
                                            .device_B = p->device_B,
                                            .free_B = p->scenario->hardware->hbm_B - p->device_B,
                                            .gpus = p->scenario->gpus,
                                            .interrupted = p->interrupted,
                                            .proven_within = p->proven_within};
}

/* The best of the plan of this cell, and what leaves more memory. */
static void trade_memory(MsSweep *s, int cell, const MsPlanOptions *options, MsPlanKnown *known) {
  const MsPlan *plan = s->cell[cell].plan;
  const MsPlanEntry *best = &plan->best[0];
  MsRequest tighter = *s->cell[cell].request; /* only read */
  MsPlanOptions own = *options;
  own.known = known;
  double device_B = ms_device_B(best->result);
  add_point(s, cell,
            &(MsFrontPoint){.scenario = ms_scenario_copy(best->scenario, TRUE),
                            .step_time_s = best->result->step_time_s,
                            .device_B = device_B,
                            .interrupted = plan->interrupted,
                            .proven_within = ms_plan_gap(plan, &tighter)});
  tighter.max_memory_fraction = device_B / tighter.base->hardware->hbm_B - MS_SWEEP_STEP;
  if (!(tighter.max_memory_fraction > 0) || s->interrupted) return;
  double step = MS_SWEEP_STEP;
  g_autoptr(GArray) points = ms_plan_front(&tighter, &own, ms_front_step, &step, &s->interrupted, NULL);
  for (guint i = 0; points && i < points->len; i++) add_point(s, cell, &g_array_index(points, MsFrontPoint, i));
}

static gboolean dominates(const MsParetoPoint *a, const MsParetoPoint *b) {
  gboolean as_good = a->step_time_s <= b->step_time_s && a->free_B >= b->free_B && a->gpus <= b->gpus;
  return as_good && (a->step_time_s < b->step_time_s || a->free_B > b->free_B || a->gpus < b->gpus);
}

static const char *model_of(const MsSweepCell *cell, const MsParetoPoint *p) {
  return cell[p->cell].request->base->model->name;
}

void ms_pareto_mark(const MsSweepCell *cell, MsParetoPoint *point, int n) {
  for (int i = 0; i < n; i++) {
    point[i].on_front = TRUE;
    for (int j = 0; j < n; j++)
      if (strcmp(model_of(cell, &point[i]), model_of(cell, &point[j])) == 0 && dominates(&point[j], &point[i]))
        point[i].on_front = FALSE;
  }
}

static int by_place(const void *a, const void *b, gpointer data) {
  const MsParetoPoint *x = a, *y = b;
  const MsSweepCell *cell = data;
  int model = strcmp(model_of(cell, x), model_of(cell, y));
  if (model != 0) return model;
  if (x->gpus != y->gpus) return x->gpus - y->gpus;
  if (x->step_time_s != y->step_time_s) return x->step_time_s < y->step_time_s ? -1 : 1;
  return x->cell - y->cell;
}

/* --- all ------------------------------------------------------------------------------------------------------- */
static gboolean add_map(MsSweepCell *cell, const MsPlanOptions *options, GError **error) {
  MsPlanOptions own = *options;
  if (own.top <= 0) own.top = cell->request->top;
  return ms_plan_extras(cell->request, cell->plan, &own, &(MsExtrasAsked){.map = TRUE}, &cell->extras, error);
}

MsSweep *ms_sweep(const GPtrArray *requests, const MsPlanOptions *options, const MsSweepAsked *asked, GError **error) {
  static const MsSweepAsked nothing;
  MsSweep *s = g_new0(MsSweep, 1);
  Watched watched = {s, asked ? asked : &nothing};
  gboolean ok = TRUE;
  s->n_requests = (int)requests->len;
  s->cell = g_new0(MsSweepCell, MAX(requests->len, 1));
  for (guint i = 0; ok && i < requests->len && !s->interrupted; i++) {
    MsSweepCell *cell = &s->cell[s->n_cells++];
    cell->request = g_ptr_array_index(requests, i);
    g_autoptr(MsPlanKnown) known = ms_plan_known_new();
    plan_cell(cell, options, known, &watched);
    s->interrupted = cell->plan && cell->plan->interrupted;
    if (watched.asked->front && cell->plan && cell->plan->n_best > 0) trade_memory(s, (int)i, options, known);
    if (watched.asked->map && cell->plan) ok = add_map(cell, options, error);
  }
  if (!ok) return ms_sweep_free(s), NULL;
  if (s->n_points > 0) g_qsort_with_data(s->point, s->n_points, sizeof *s->point, by_place, s->cell);
  ms_pareto_mark(s->cell, s->point, s->n_points);
  ms_sweep_advise(s);
  return s;
}

gboolean ms_sweep_answers(const MsSweep *s) {
  for (int i = 0; i < s->n_cells; i++)
    if (s->cell[i].plan && ms_plan_in_time(s->cell[i].request, s->cell[i].plan)) return TRUE;
  return FALSE;
}

void ms_sweep_free(MsSweep *s) {
  if (!s) return;
  for (int i = 0; i < s->n_cells; i++) {
    ms_plan_extras_clear(&s->cell[i].extras);
    ms_plan_free(s->cell[i].plan);
    g_free(s->cell[i].why);
  }
  for (int i = 0; i < s->n_points; i++) ms_scenario_free(s->point[i].scenario);
  for (int i = 0; i < s->n_advice; i++) g_free(s->advice[i]);
  g_free(s->advice);
  g_free(s->cell);
  g_free(s->point);
  g_free(s);
}
