/* src/sim/band.c - the error band of a prediction. */
#include "sim/band.h"

#include <math.h>

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

double ms_band_common(const MsScenario *s) {
  gboolean named = g_strcmp0(s->stack.name, "default") != 0;
  if (named && s->stack.band > 0) return s->stack.band;
  if (s->hardware->band > 0) return s->hardware->band;
  return s->stack.band > 0 ? s->stack.band : s->laws.default_common_band;
}
