/* The bands hold what they say: of runs whose source took no part in any fit, 90 % lie inside the 90 % band, 80 %
 * inside that of 80 and half inside that of 50 %, with the shipped laws and with laws fitted without the source. Full
 * tier only: everything is refitted once for each source of the carried runs. */
#include "lib/close.h"

#include "study/band_fit.h"
#include "study/crossval.h"

static void holds(const MsBandCoverage *c, const char *what) {
  static const double slack[MS_N_BAND_LEVELS] = {0.03, 0.04, 0.05};
  for (int q = 0; q < MS_N_BAND_LEVELS; q++)
    if (fabs(c->inside[q] - ms_band_levels[q]) > slack[q])
      fail_msg("%s: %.3f of %u runs left out lie inside the %.0f %% band", what, c->inside[q], c->n,
               100 * ms_band_levels[q]);
}

static void bands_hold_what_they_say(void **state) {
  (void)state;
  static const char *const paths[] = {"scenarios/published", NULL};
  MsValidateOptions options;
  GError *error = NULL;
  ms_validate_options_init(&options);
  g_autoptr(MsCrossval) c = ms_crossval(paths, &options, MS_LEAVE_SOURCE, &error);
  if (!c) fail_msg("%s", error->message);
  assert_true(c->groups >= 15 && c->bands.n >= 500 && c->bands_refitted.n == c->bands.n);
  holds(&c->bands, "as shipped");
  holds(&c->bands_refitted, "laws fitted without the source");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bands_hold_what_they_say)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
