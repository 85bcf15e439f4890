/* src/calib/rescale.c - few rows move a curve that was fitted to many; they do not replace it. */
#include "calib/fit_priv.h"

#include "base/quantity.h"
#include "base/stats.h"
#include "cost/curve.h"

#include <math.h>

enum {
  FEWEST = 40, /* shapes that can tell a form's parameters and its residual grid apart */
  SHARE = 4,   /* of what the donor was fitted to, one in so many */
};
#define TYPICAL_ERROR 0.1 /* p90 of a curve whose residual is not known */

gboolean ms_fit_is_small(const MsSeries *series, const MsCurve *donor) {
  guint n = series->rows->len;
  return donor && n > 0 && n < FEWEST && donor->provenance.n_fitted > (double)SHARE * n;
}

/* Median logarithm of measured over predicted. */
static double level(const MsSeries *series, const MsDeviceRates *device, const MsCurve *donor) {
  g_autofree double *ratio = g_new(double, series->rows->len);
  for (guint i = 0; i < series->rows->len; i++) {
    const MsRow *row = &g_array_index(series->rows, MsRow, i);
    ratio[i] = log(row->time_s / ms_predict(donor, device, series, row->x).time_s);
  }
  return ms_quantile(ratio, series->rows->len, 0.5);
}

char *ms_fit_rescale(const MsSeries *series, const MsDeviceRates *device, const MsCurve *donor, MsCurve *curve) {
  double n = series->rows->len, measured = level(series, device, donor), factor = exp(measured * n / (n + 1));
  double p90 = donor->provenance.residual_p90 > 0 ? donor->provenance.residual_p90 : TYPICAL_ERROR;
  ms_curve_copy(donor, curve);
  ms_curve_slow(curve, factor);
  MsProvenance *p = &curve->provenance;
  p->residual_p90 = ms_round_digits(p90 * sqrt(1 + 1 / (n + 1)), 3);
  char *old = p->note;
  char *said = g_strdup_printf("%s%s%s: %u shapes are too few for a curve: the shipped one, of %.0f shapes, now takes "
                               "%.3f times as long (the rows say %.3f)",
                               series->key.op, series->key.dtype ? " " : "", series->key.dtype ? series->key.dtype : "",
                               series->rows->len, donor->provenance.n_fitted, factor, exp(measured));
  p->note = old ? g_strdup_printf("%s; %s", old, said) : g_strdup(said);
  g_free(old);
  return said;
}
