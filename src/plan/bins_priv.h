/* src/plan/bins_priv.h - internal to plan/: layouts counted by their bounds. */
#ifndef MS_PLAN_BINS_PRIV_H
#define MS_PLAN_BINS_PRIV_H

#include "plan/candidate_priv.h"

typedef struct MsBins MsBins;
struct MsLayoutMap;
/* Names keys and sizes of the map's bins; `threads` may count at once, each with its own number. */
MsBins *ms_bins_new(const MsSpace *space, int threads, struct MsLayoutMap *map);
void ms_bins_add(MsBins *bins, const MsCandidate *c, double device_B, int thread);
void ms_bins_take(MsBins *bins, struct MsLayoutMap *map); /* what was counted */
void ms_bins_free(MsBins *bins);                          /* NULL is fine */

#endif
