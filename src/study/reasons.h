/* src/study/reasons.h - why a plan came out as it did: what --explain and --compare of `moesim plan` add to the ranking. */
#ifndef MS_STUDY_REASONS_H
#define MS_STUDY_REASONS_H

#include "study/sensitivity.h"

typedef struct {
  MsSensitivities *sensitivities; /* of the winner; NULL unless `explain` and something fits */
  MsComparison *runner_up;        /* winner (a), second place (b); NULL also when there is none */
  MsScenario *named;              /* the layout that the user names, NULL: none */
  MsResult *named_result;
  MsComparison *compared;         /* winner (a), named (b); NULL when nothing fits */
} MsReasons;

/* `compare` is a scenario file of the same task (ms_same_task) or NULL. NULL and *error when it is not, cannot be simulated, or on Ctrl-C. (transfer full) */
MsReasons *ms_reasons_new(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options, gboolean explain, const char *compare, GError **error);
void ms_reasons_free(MsReasons *reasons);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsReasons, ms_reasons_free)

#endif
