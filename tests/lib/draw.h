/* tests/lib/draw.h - random scenarios over every key: models of all kinds, layouts, options, most of them valid.
 * Seeded, so that a failure comes again. */
#ifndef MS_TESTS_DRAW_H
#define MS_TESTS_DRAW_H

#include "describe/scenario.h"

/* `plain`: only what the releases before parallel folding know too (ETP = TP, no new dispatchers, no low precision,
 * ...). (transfer full) */
MsScenario *ms_test_draw(GRand *rand, gboolean plain);
/* The same on clusters: pipelines of up to 16 stages, few microbatches, every other time any schedule, now and then a
 * host that launches late. (transfer full) */
MsScenario *ms_test_draw_large(GRand *rand);

/* Of published models with layers of other kinds (Mamba, gated delta nets, sparse attention), a part of them with EP
 * overlap or one microbatch. (transfer full) */
MsScenario *ms_test_draw_hybrid(GRand *rand);

#endif
