/* src/sim/band.c - the error band of a prediction. */
#include "sim/band.h"
#include "base/order.h"

#include "describe/sources.h"

#include <math.h>
#include <string.h>

/* Share of the communication of a stage that it waits for. */
static double exposed_share(const MsTimeParts *t) {
  double total = 0, exposed = 0;
  for (int c = 0; c < MS_N_COMMS; c++) total += t->comm_total_s[c], exposed += t->comm_exposed_s[c];
  return total > 0 ? MIN(exposed / total, 1) : 1;
}

double ms_band_of_curves(const MsScenario *s, const MsResult *r, const MsTimeParts *stage) {
  double squares = 0, exposed = exposed_share(stage);
  for (int i = 0; i < r->n_origins && r->step_time_s > 0; i++) {
    const MsOrigin *o = &r->origins[i];
    double miss = o->band * (o->curve && o->curve->provenance.lent_by ? s->laws.lent_band : 1) *
                  MIN(o->time_s / r->step_time_s, 1) * (o->communication ? exposed : 1);
    squares += miss * miss;
  }
  return sqrt(squares);
}

double ms_band_common(const MsLaws *laws, const MsBandGround *g) {
  if (g->learned > 0) return g->learned;
  const double term[] = {laws->site_band, laws->host_band * g->host, laws->bubble_band * g->bubble,
                         g->single ? laws->last_gradients_band : 0, laws->unseen_machine_band * g->unseen};
  double squares = 0;
  for (guint i = 0; i < G_N_ELEMENTS(term); i++) squares += term[i] * term[i];
  return sqrt(squares);
}

double ms_band_unseen(const MsHardware *machine) { return 1 / sqrt(1.0 + machine->published_runs); }

double ms_band_of(const MsLaws *laws, const MsBandGround *g) {
  return hypot(hypot(hypot(g->curves, ms_band_common(laws, g)), g->assumed), g->ranks);
}

void ms_band_levels_of(const MsLaws *laws, const MsBandGround *g, double width[MS_N_BAND_LEVELS]) {
  static const double normal[MS_N_BAND_LEVELS] = {1, 1.2816 / 1.6449, 0.6745 / 1.6449};
  const double share[MS_N_BAND_LEVELS] = {1, laws->band_80_share, laws->band_50_share};
  double all = ms_band_of(laws, g), machine = g->learned > 0 ? 0 : laws->unseen_machine_band * g->unseen,
         rest = sqrt(MAX(all * all - machine * machine, 0));
  for (int q = 0; q < MS_N_BAND_LEVELS; q++) width[q] = q == 0 ? all : hypot(share[q] * rest, normal[q] * machine);
}

void ms_band_fill(const MsScenario *s, MsResult *r) {
  MsBandGround *g = &r->ground;
  double step = r->step_time_s > 0 ? r->step_time_s : 1;
  g->host = MAX(r->time.host_s, 0) / step, g->bubble = MAX(r->time.bubble_s, 0) / step;
  g->single = r->microbatches == 1 && r->dp > 1;
  g->unseen = 0;
  for (int i = 0; i < ms_scenario_machines(s); i++)
    g->unseen = MAX(g->unseen, ms_band_unseen(ms_scenario_machine(s, i)));
  g->ranks = (r->scale.p95_s - r->scale.p5_s) / 2 / step;
  g->learned = ms_anchor_band(&s->hardware->anchor, s->model ? s->model->name : NULL);
  r->band_curves = g->curves;
  double width[MS_N_BAND_LEVELS];
  ms_band_levels_of(&s->laws, g, width);
  r->band = width[0], r->band_80 = width[1], r->band_50 = width[2];
}

/* --- assumed figures of the machine ---------------------------------------------------------------------------- */
/* Until ms_band_of_assumed those that are not assumed stand among them, within 0. */
static MsAssumed *assumed_of(MsResult *r, const MsScenario *s, const char *key) {
  for (int i = 0; i < r->n_assumed; i++)
    if (strcmp(r->assumed[i].key, key) == 0) return &r->assumed[i];
  r->assumed = g_renew(MsAssumed, r->assumed, r->n_assumed + 1);
  r->assumed[r->n_assumed] = (MsAssumed){.key = key, .within = ms_source_within(s->hardware, key)};
  return &r->assumed[r->n_assumed++];
}

void ms_band_add_assumed(const MsScenario *s, MsResult *r, const char *key, gboolean communication, double time_s) {
  if (!(time_s > 0)) return;
  MsAssumed *a = assumed_of(r, s, key);
  a->share += time_s, a->communication = communication;
}

MS_ORDER(by_weight, MsAssumed, MS_MORE(x->share * x->within, y->share * y->within), strcmp(x->key, y->key))

double ms_band_of_assumed(const MsScenario *s, MsResult *r, const MsTimeParts *stage) {
  double squares = 0, exposed = exposed_share(stage);
  ms_band_add_assumed(s, r, "kernel_launch_s", FALSE, stage->host_s);
  int n = 0;
  for (int i = 0; i < r->n_assumed; i++) {
    MsAssumed a = r->assumed[i];
    if (!(a.within > 0)) continue;
    a.share = r->step_time_s > 0 ? MIN(a.share / r->step_time_s, 1) * (a.communication ? exposed : 1) : 0;
    a.share = MAX(a.share - ms_anchor_rested(&s->hardware->anchor, a.key), 0);
    squares += a.share * a.share * a.within * a.within;
    r->assumed[n++] = a;
  }
  r->n_assumed = n;
  if (r->n_assumed > 0) qsort(r->assumed, (size_t)r->n_assumed, sizeof *r->assumed, by_weight);
  return sqrt(squares);
}

enum { LEAST_PER_MILLE = 1 }; /* of the step, that an assumption must be able to move to be named */

static gboolean rests_on(const MsResult *r, const char *key) {
  for (int i = 0; r && i < r->n_assumed; i++)
    if (strcmp(r->assumed[i].key, key) == 0)
      return 1000 * r->assumed[i].share * r->assumed[i].within >= LEAST_PER_MILLE;
  return r == NULL;
}

static void add_assumed(GString *out, const MsHardware *h, const MsResult *r) {
  gboolean any = FALSE;
  for (const MsField *field = ms_hardware_table.fields; field->key; field++) {
    if (!rests_on(r, field->key) || !(ms_source_within(h, field->key) > 0)) continue;
    const char *words = ms_source_words(field->key);
    g_string_append_printf(out, "%s%s", any ? ", " : "", field->key);
    if (words) g_string_append_printf(out, " (%s)", words);
    any = TRUE;
  }
  if (any) g_string_append(out, " assumed; ");
}

static void add_machine(GString *all, const MsHardware *machine, const MsResult *r) {
  g_autoptr(GString) out = g_string_new(NULL);
  add_assumed(out, machine, r);
  if (machine->published_runs == 0 && !(machine->anchor.band > 0)) g_string_append(out, "no published runs compared; ");
  if (out->len > 0) g_string_append_printf(all, "%s: %s", machine->name, out->str);
}

char *ms_caveat(const MsScenario *s, const MsResult *r, MsFidelity fidelity) {
  g_autoptr(GString) out = g_string_new(NULL);
  for (int i = 0; i < ms_scenario_machines(s); i++) add_machine(out, ms_scenario_machine(s, i), r);
  if (s->stack.unlisted)
    g_string_append_printf(out, "software \"%s\": no release that software/stacks.json knows, taken as %s of today; ",
                           s->software, ms_framework_words[s->framework]);
  if (fidelity == MS_FIDELITY_FAST) g_string_append(out, "fast: an estimate of full; ");
  if (fidelity == MS_FIDELITY_BOUND) g_string_append(out, "bound: what no step can beat, not an estimate; ");
  if (out->len == 0) return NULL;
  g_string_truncate(out, out->len - 2);
  return g_strdup(out->str);
}
