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

#endif
