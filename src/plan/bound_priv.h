/* src/plan/bound_priv.h - internal to plan/: step time and device memory of a layout, never above what `full` finds. */
#ifndef MS_PLAN_BOUND_PRIV_H
#define MS_PLAN_BOUND_PRIV_H

#include "plan/candidate_priv.h"

#define MS_ROUNDING (1 - 1e-12) /* rounding never makes a bound too large */

typedef struct MsShape
    MsShape; /* which pieces stand on which stage, and how many live there, for one (pp, vpp, microbatches) */
typedef struct MsShapes MsShapes; /* those made so far, of one thread */

MsShapes *ms_shapes_new(void);
void ms_shapes_free(MsShapes *shapes);
/* Number of the way in which the memo's layers are pieces: shapes differ by it. */
int ms_shapes_map(MsShapes *shapes, const MsPieceMemo *memo);
/* The shape of a candidate whose ranks obey the rules; `scenario` has it written in, but no balanced pipeline layout
 * yet: one is written in while a shape is made. *rule: the rule about the split into stages that refuses it, or
 * ms_num_rules + MS_REFUSED_SAME (the result is NULL then), else -1. Borrowed. */
const MsShape *ms_shapes_get(MsShapes *shapes, int map, MsPieceMemo *memo, const MsSpace *space, const MsCandidate *c,
                             MsScenario *scenario, int *rule);
/* The same for who asks but once: that of a cut is kept all the same, which candidate has it is not. */
const MsShape *ms_shapes_make(MsShapes *shapes, int map, MsPieceMemo *memo, const MsSpace *space, const MsCandidate *c,
                              MsScenario *scenario, int *rule);

gboolean ms_shape_same(const MsShape *a, const MsShape *b); /* their bounds are the same whatever the pieces are */

typedef struct {   /* bytes per parameter of a rank */
  double whole_B;  /* of every copy */
  double shared_B; /* what its data-parallel replicas share */
  double frozen_B; /* of weights that are not trained */
  double low_B;    /* added for parameters that low precision stores */
  double unit_gradient_B, unit_expert_B, unit_B, unit_low_B, ends_B; /* FSDP's buffers (MsParamBytes) */
  gboolean shards;
  MsFsdp around; /* what FSDP moves around every pass; MS_FSDP_NONE: nothing */
} MsStateBytes;
/* `scenario` agrees with the memo's in everything but keys of MS_ROLE_STATE and later. */
MsStateBytes ms_state_bytes(MsPieceMemo *memo, const MsScenario *scenario);
MsTime ms_bound_time(const MsShape *shape, MsPieceMemo *memo);
/* What the busiest stream or link of a stage has to move, where FSDP moves unit[n] around the passes of each piece for
 * every microbatch. */
MsTime ms_bound_moved(const MsShape *shape, MsPieceMemo *memo, const MsBusy *unit);
/* What the passes of a complete scenario of these pieces take in their schedule (ms_relaxed_passes). */
MsTime ms_bound_passes(MsPieceMemo *memo, const MsScenario *scenario, MsTime limit);
/* dp, edp: of the layout; dp counts CP ranks. `scenario`: whose machines; with pools in bytes of the first one, the
 * share of its own machine's memory that the fullest stage needs. */
double ms_bound_device_B(const MsShape *shape, const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp,
                         double edp, const MsScenario *scenario);
/* The same of whatever cut of the model into the scenario's stages; 0 with pools. */
double ms_bound_any_cut_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp,
                          const MsScenario *scenario);
typedef struct {
  int pp, copies;     /* of the model, by the schedule */
  const double *live; /* [pp] fewest microbatches that are alive on each stage, whichever chunk they are in */
} MsLive;
gboolean ms_fewest_live(const MsScenario *scenario, double *live); /* live[pp]; FALSE: there is no such schedule */
/* ms_bound_any_cut_B of all scenarios on as many GPUs that keep as many microbatches alive, or more. */
double ms_bound_cut_of_live_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp,
                              const MsLive *of, const MsScenario *scenario);

double ms_memo_kept_B(const MsPieceMemo *memo); /* for one microbatch by a rank that has the whole model */
/* Of the states alone, shared out evenly by `pp` stages: whatever microbatches keep there; 0 with pools. */
double ms_bound_states_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp, int pp,
                         const MsScenario *scenario);

#endif
