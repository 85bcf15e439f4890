/* src/local/steps.h - the reduced training steps that are run to calibrate this machine, and those that check the
 * calibration. No step is in both. */
#ifndef MS_LOCAL_STEPS_H
#define MS_LOCAL_STEPS_H

#include "describe/scenario.h"

typedef struct {
  char name[32];
  int layers, dense_layers; /* of them, the first ones without experts */
  int hidden, heads, kv_heads, head_dim, ffn;
  gboolean mla;                           /* latent attention of rank hidden / 4 instead of kv_heads */
  int experts, topk, moe_ffn, shared_ffn; /* experts 0: dense */
  int vocab, seq, micro_batch, microbatches;
  int tp, cp, pp, vpp, ep, dp; /* ranks: tp x cp x pp x dp, of which ep share experts */
  const char *schedule;
} MsLocalStep;

/* Steps on one rank that cover, evenly on a logarithmic scale, 128 to 2048 tokens, widths of 256 to 1024, 4 to 32
 * experts; at most about 25 GFLOP each. Their rows are what curves are fitted to. `n` > 0: the first n of an endless
 * sequence. (transfer full) */
MsLocalStep *ms_local_calibration_steps(int n);
/* Steps that only check: one rank (dense and MoE, GQA and MLA, several sizes) and two ranks (TP, CP, PP by 1F1B and
 * interleaved, EP, DP). (transfer none) */
const MsLocalStep *ms_local_check_steps(int *n);

int ms_local_ranks(const MsLocalStep *step);
/* The scenario file of a step on the machine of `hardware`, the text of a profile or a quoted path. `measured`: a JSON
 * object, NULL for none. (transfer full) */
char *ms_local_scenario_text(const MsLocalStep *step, const char *hardware, const char *measured);
MsScenario *ms_local_scenario(const MsLocalStep *step, const char *hardware, GError **error);

#endif
