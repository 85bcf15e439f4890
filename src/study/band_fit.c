#include "study/band_fit.h"

#include "base/stats.h"

#include <math.h>

enum { SCAN = 13, ROUNDS = 6 };

const MsLaw ms_band_laws[MS_N_BAND_LAWS] = {
    MS_LAW_site_band,           MS_LAW_host_band,     MS_LAW_bubble_band,  MS_LAW_last_gradients_band,
    MS_LAW_unseen_machine_band, MS_LAW_band_80_share, MS_LAW_band_50_share};
const double ms_band_levels[MS_N_BAND_LEVELS] = {0.9, 0.8, 0.5};

typedef struct {
  const MsBandRun *runs;
  guint n;
  const char *without;
  MsLaws *laws;
  MsLaw moved;
} Fit;

void ms_band_inside(const MsBandRun *run, const MsLaws *laws, gboolean inside[MS_N_BAND_LEVELS]) {
  double width[MS_N_BAND_LEVELS];
  ms_band_levels_of(laws, &run->ground, width);
  for (int q = 0; q < MS_N_BAND_LEVELS; q++) inside[q] = run->miss <= width[q];
}

static gboolean counts(const Fit *fit, const MsBandRun *run) {
  return !fit->without || !g_str_equal(run->group, fit->without);
}

static double loss(double x, gpointer data) {
  Fit *fit = data;
  double sum = 0, before = ms_law_get(fit->laws, fit->moved);
  ms_law_set(fit->laws, fit->moved, x);
  for (guint i = 0; i < fit->n; i++) {
    double width[MS_N_BAND_LEVELS], y = fit->runs[i].miss;
    if (!counts(fit, &fit->runs[i])) continue;
    ms_band_levels_of(fit->laws, &fit->runs[i].ground, width);
    for (int q = 0; q < MS_N_BAND_LEVELS; q++)
      sum += y > width[q] ? ms_band_levels[q] * (y - width[q]) : (1 - ms_band_levels[q]) * (width[q] - y);
  }
  ms_law_set(fit->laws, fit->moved, before);
  return sum;
}

/* Largest value that is tried: the bands of all runs are as wide as the step there. */
static double highest(MsLaw law) { return MIN(ms_laws_table.fields[law].hi, 2); }

static gboolean tells(Fit *fit, double low, double high) { return loss(low, fit) != loss(high, fit); }

/* A scan finds the valley, golden section its bottom. */
static void minimise(Fit *fit, MsLaw law) {
  fit->moved = law;
  double low = ms_laws_table.fields[law].lo, high = highest(law), step = (high - low) / (SCAN - 1), least = HUGE_VAL;
  int best = 0;
  if (!tells(fit, low, high)) return;
  for (int i = 0; i < SCAN; i++) {
    double value = loss(low + i * step, fit);
    if (value < least) least = value, best = i;
  }
  double x =
      ms_golden_minimum(loss, fit, low + MAX(best - 1, 0) * step, low + MIN(best + 1, SCAN - 1) * step, 1e-4 * high);
  ms_law_set(fit->laws, law, x);
}

void ms_band_fit(const MsBandRun *runs, guint n, const char *without, gboolean machines, MsLaws *laws) {
  Fit fit = {.runs = runs, .n = n, .without = without, .laws = laws};
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < MS_N_BAND_LAWS; i++)
      if ((ms_band_laws[i] == MS_LAW_unseen_machine_band) == machines) minimise(&fit, ms_band_laws[i]);
}
