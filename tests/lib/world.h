/* tests/lib/world.h - short ways to shipped models, machines and scenarios. Failures end the test with their message.
 */
#ifndef MS_TESTS_WORLD_H
#define MS_TESTS_WORLD_H

#include "work/work.h"

/* A run on `gpus` GPUs with every key at its default: 4096 tokens, one sequence a microbatch, a batch of one microbatch
 * per GPU, BF16, balanced, alltoall, nothing overlapped, nothing recomputed. mtp < 0: as the model file says. The
 * caller changes what it wants. (transfer full) */
MsScenario *ms_test_run(const char *model, int mtp, const char *hardware, int gpus);

typedef struct {
  MsScenario *scenario; /* borrowed */
  MsLayout *layout;
  MsWork *work;
} MsLowered;
MsLowered ms_test_lower(MsScenario *scenario);
void ms_test_lowered_clear(MsLowered *lowered);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MsLowered, ms_test_lowered_clear)

/* Paths of all *.json under a folder of the source tree ("scenarios/published"), sorted. (transfer full),
 * NULL-terminated strings. */
GPtrArray *ms_test_files(const char *folder);

#endif
