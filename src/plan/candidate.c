/* src/plan/candidate.c - a layout of the space as a scenario, and the order of layouts. */
#include "plan/candidate_priv.h"
#include "plan/cuts_priv.h"

/* *own: its cut is not that of another. */
static MsScenario *scenario_of(const MsSpace *space, const MsCandidate *c, MsPieceMemo *memo, gboolean *own) {
  MsScenario *s = ms_space_scratch(space);
  ms_space_apply_combo(space, c->combo, s);
  ms_space_apply_axes(c->value, s);
  int costs = ms_cut_costs(space, c->value, c->combo, memo, s);
  *own = ms_space_balance(space, costs, ms_space_cut_of(space, c->combo), s);
  if (s->options.sequence_parallel < 0)
    s->options.sequence_parallel = s->layout.tp > 1; /* null in the request: said in what is printed */
  const MsLayoutSpec *l = &s->layout;
  const char *name = space->request->base->name ? space->request->base->name : "plan";
  g_free(s->name);
  s->name = g_strdup_printf("%s, tp %d cp %d pp %d vpp %d ep %d etp %d mbs %d", name, l->tp, l->cp, l->pp, l->vpp,
                            l->ep, l->etp, s->training.micro_batch_size);
  return s;
}

MsScenario *ms_candidate_scenario(const MsSpace *space, const MsCandidate *c, MsPieceMemo *memo) {
  gboolean own;
  return scenario_of(space, c, memo, &own);
}

MsScenario *ms_candidate_try(const MsSpace *space, const MsCandidate *c) {
  gboolean own;
  MsScenario *s = scenario_of(space, c, NULL, &own);
  if (own && ms_layout_check(s, NULL)) return s;
  ms_scenario_free(s);
  return NULL;
}

int ms_candidate_compare(const void *a, const void *b) {
  const MsCandidate *x = a, *y = b;
  if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
  if (x->bound != y->bound) return x->bound < y->bound ? -1 : 1;
  if (x->combo != y->combo) return x->combo < y->combo ? -1 : 1;
  for (int i = 0; i < MS_N_AXES; i++)
    if (x->value[i] != y->value[i]) return x->value[i] < y->value[i] ? -1 : 1;
  return 0;
}
