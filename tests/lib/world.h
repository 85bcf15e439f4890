/* tests/lib/world.h - short ways to shipped models, machines and scenarios. Failures end the test with their message.
 */
#ifndef MS_TESTS_WORLD_H
#define MS_TESTS_WORLD_H

#include "sim/simulate.h"
#include "work/work.h"

MsScenario *ms_test_scenario_of(const char *json); /* (transfer full) */
/* Qwen3-30B-A3B on H100 over this fabric (JSON), experts over `ep` GPUs, replicas fill the rest. (transfer full) */
MsScenario *ms_test_experts_on(const char *fabric, int gpus, int ep);
/* Of the source tree: "scenarios/tour/%s.json". (transfer full) */
MsScenario *ms_test_scenario_file(const char *format, ...) G_GNUC_PRINTF(1, 2);
MsRequest *ms_test_request_of(const char *json); /* (transfer full) */
/* A request for sequences of 4096 tokens: model, hardware and gpus as JSON, the others as members of their objects.
 * (transfer full) */
char *ms_test_request_text(const char *model, const char *hardware, const char *gpus, const char *training,
                           const char *layout, const char *options);
/* Eight layers of Llama 3 8B on eight H100, TP and PP 1 or 2. */
extern const char ms_test_small_request[];
MsResult *ms_test_simulate(const MsScenario *scenario, MsFidelity fidelity); /* (transfer full) */

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
