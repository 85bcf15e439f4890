/* tests/lib/plan_requests.h - plan requests small enough to exhaust, and what their plans are held to. */
#ifndef MS_TESTS_PLAN_REQUESTS_H
#define MS_TESTS_PLAN_REQUESTS_H

#include "plan/plan.h"

/* What differs from one request to the next; a key of `options` that is not given has a default of no consequence. */
typedef struct {
  const char *name, *model, *hardware;
  int gpus, seq, batch;
  const char *training, *layout, *options;
} MsSmallRequest;
extern const MsSmallRequest ms_small_requests[];
extern const guint ms_n_small_requests;

MsRequest *ms_small_request(const MsSmallRequest *small);                        /* (transfer full) */
MsRequest *ms_small_request_gpus(const MsSmallRequest *small, const char *gpus); /* `gpus` as JSON */
MsPlan *ms_small_plan(const MsRequest *request, gboolean prune, int threads, int top);

/* The same layouts with the same times in the same order. */
void ms_assert_same_plans(const MsRequest *request, const MsPlan *a, const MsPlan *b);
/* Every candidate is counted once, refusals have names and examples. `space`: how many candidates there are. */
void ms_assert_counts(const MsRequest *request, const MsPlan *plan, double space);
/* The list is sorted, fits, obeys the rules, and its scenarios, written and read again, give the same times. */
void ms_assert_list(const MsRequest *request, const MsPlan *plan);

/* All of the above: the pruned list, with one thread and with two, is that of the search that simulates everything. */
void ms_assert_exhaustive(const MsSmallRequest *small);

#endif
