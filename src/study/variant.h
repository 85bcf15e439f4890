/* src/study/variant.h - a plan request with some of its open keys settled. */
#ifndef MS_STUDY_VARIANT_H
#define MS_STUDY_VARIANT_H

#include "plan/plan.h"

/* Owns its base and its list of open keys, borrows all else: the request must outlive it. */
MsRequest ms_variant_of(const MsRequest *request);
void ms_variant_clear(MsRequest *variant);

/* TRUE where the planner was to choose the value by itself; then it no longer is. */
gboolean ms_close_auto(MsRequest *variant, const char *path);
void ms_close_key(MsRequest *variant, const char *path); /* whatever it was open to; the base's value is left */
/* What overlaps and what is captured, where the planner was to choose: without; dispatcher, schedule and VPP: the plain
 * ones, without buffers or pieces. */
void ms_close_overlaps(MsRequest *variant);

#endif
