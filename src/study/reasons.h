/* src/study/reasons.h - why a plan came out as it did: what --explain and --compare of `moesim plan` add to the
 * ranking. */
#ifndef MS_STUDY_REASONS_H
#define MS_STUDY_REASONS_H

#include "study/sensitivity.h"

typedef struct {
  MsSensitivities *sensitivities; /* of the winner; NULL unless `explain` and something fits */
  MsComparison *runner_up;        /* winner (a), second place (b); NULL also when there is none */
  MsRequest *named_request;       /* the layout that the user names as it was read, NULL: none */
  MsPlan *named_plan;             /* when it leaves keys open: the best of what it names stands for it; else NULL */
  const MsScenario *named;        /* borrowed from these two */
  MsResult *named_result;         /* owned; NULL when named_plan has it */
  MsComparison *compared;         /* winner (a), named (b); NULL when nothing fits */
} MsReasons;

/* `compare` is NULL or a file of the same task (ms_same_task): a scenario, or a request that leaves open what is not
 * known of the layout (unpublished knobs of a published run), of which the best within the request's memory limit is
 * compared. NULL and *error when it is another task, cannot be simulated or leaves nothing that fits, and on Ctrl-C.
 * (transfer full) */
MsReasons *ms_reasons_new(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options, gboolean explain,
                          const char *compare, GError **error);
const MsResult *ms_reasons_named(const MsReasons *reasons); /* result of the named layout */
void ms_reasons_free(MsReasons *reasons);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsReasons, ms_reasons_free)

#endif
