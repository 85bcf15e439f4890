/* src/sim/band.c - the error band of a prediction. */
#include "sim/band.h"

#include <math.h>
#include <string.h>

#define INHERITED      1.5  /* a lent curve misses by so much more: peaks and latencies were scaled, not measured */
#define UNKNOWN_COMMON 0.15 /* where neither stack nor machine nor the default stack has one */

static gboolean lent(const MsCurve *curve) {
  return curve && curve->provenance.note && g_str_has_prefix(curve->provenance.note, "shape inherited");
}

/* Share of the communication of a stage that it waits for. */
static double exposed_share(const MsTimeParts *t) {
  double total = 0, exposed = 0;
  for (int c = 0; c < MS_N_COMMS; c++) total += t->comm_total_s[c], exposed += t->comm_exposed_s[c];
  return total > 0 ? MIN(exposed / total, 1) : 1;
}

double ms_band_of_curves(const MsResult *r, const MsTimeParts *stage) {
  double squares = 0, exposed = exposed_share(stage);
  for (int i = 0; i < r->n_origins && r->step_time_s > 0; i++) {
    const MsOrigin *o = &r->origins[i];
    double miss = o->band * (lent(o->curve) ? INHERITED : 1) * MIN(o->time_s / r->step_time_s, 1) *
                  (o->communication ? exposed : 1);
    squares += miss * miss;
  }
  return sqrt(squares);
}

double ms_band_common(const MsScenario *s) {
  gboolean named = g_strcmp0(s->stack.name, "default") != 0;
  if (named && s->stack.band > 0) return s->stack.band;
  if (s->hardware->band > 0) return s->hardware->band;
  return s->stack.band > 0 ? s->stack.band : UNKNOWN_COMMON;
}
