/* tests/lib/exec_case.h - small models and layouts that `moesim exec` runs, for the tests of the executor. */
#ifndef MS_TESTS_EXEC_CASE_H
#define MS_TESTS_EXEC_CASE_H

#include "describe/scenario.h"

/* Models of four layers, 32 wide: "dense" (GQA, norms of q and k), "gpt" (LayerNorm, GELU, biases, learned positions,
 * tied), "window" (sliding window, sinks, tied), "moe" (8 experts, top 2), "mla" (latent attention, shared expert,
 * MTP), "latent" (squared ReLU experts behind a latent projection), "query-latent" (queries
 * of GQA from a latent). */
extern const char *const ms_test_exec_models[];

/* 32 tokens, one sequence a microbatch, a batch of 8, one GPU, nothing overlapped. Fails the test when it cannot be
 * read. (transfer full) */
MsScenario *ms_test_exec_scenario(const char *model);

typedef struct { /* zero: 1, the first word, or off */
  const char *name, *model;
  int tp, cp, pp, vpp, ep, etp, gpus, instances;
  MsScheduleKind schedule;
  MsCpComm cp_comm;
  MsDispatcher dispatcher;
  guint32 recompute; /* modules; ~0 = full */
  gboolean no_sp, no_distopt, overlap, ep_overlap, shared_overlap, unfused, te_loss, no_fusion, natural, fsdp;
} MsExecCase;

MsScenario *ms_test_exec_case(const MsExecCase *c);

#endif
