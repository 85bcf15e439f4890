/* tests/lib/tier.h - how much a test that draws or samples does: part of it in the quick tier and by hand, all of it in
 * the full tier. */
#ifndef MS_TESTS_TIER_H
#define MS_TESTS_TIER_H

#include <glib.h>

/* tests/run.sh sets MOESIM_TIER. What the quick tier does must be the beginning or a sample of what the full one does.
 */
static inline int ms_by_tier(int quick, int full) {
  return g_strcmp0(g_getenv("MOESIM_TIER"), "full") == 0 ? full : quick;
}

/* A test that the quick tier has no time for. */
#define MS_FULL_TIER_ONLY()        \
  do {                             \
    if (!ms_by_tier(0, 1)) skip(); \
  } while (0)

/* Tests of properties draw from a fixed seed, so that a failure comes again. Asked to, they go on from another one:
 * MOESIM_SOAK_S seconds from MOESIM_SEED (else one of the clock's), which they name when they fail. */
static inline double ms_soak_s(void) {
  const char *text = g_getenv("MOESIM_SOAK_S");
  return text ? g_ascii_strtod(text, NULL) : 0;
}

static inline guint64 ms_soak_seed(guint64 fixed) {
  static guint64 chosen;
  const char *text = g_getenv("MOESIM_SEED");
  if (ms_soak_s() <= 0) return fixed;
  if (!chosen) chosen = text ? g_ascii_strtoull(text, NULL, 10) : (guint64)g_get_real_time() % 1000000007;
  return chosen;
}

static inline GRand *ms_soak_rand(guint64 fixed) { return g_rand_new_with_seed((guint32)ms_soak_seed(fixed)); }

static inline gint64 ms_soak_until(void) { return g_get_monotonic_time() + (gint64)(1e6 * ms_soak_s()); }

/* After `done` of so many `fixed` draws. */
static inline gboolean ms_soak_goes_on(gint64 until, int done, int fixed) {
  return ms_soak_s() > 0 ? g_get_monotonic_time() < until : done < fixed;
}

#endif
