/* src/cost/cost.h - seconds of one operator row on one machine.
 *
 * Pure functions of const data: no allocation, no I/O; same input, same bits. Time is always finite and >= 0; a
 * communication row whose group has one rank costs exactly 0. Forms and their source: docs/theory/costs.md;
 * collectives over a hierarchy: docs/theory/communication.md 9. Not here: contention between rows and interference
 * (sim/), host launch gaps (sim/, with MsHardware.kernel_launch_s). */
#ifndef MS_COST_COST_H
#define MS_COST_COST_H

#include "fabric/meeting.h"
#include "work/work.h"

typedef struct MsCost MsCost; /* a machine prepared for lookups: curves by operator and dtype */

/* Expected maximum of n normal deviates, in standard deviations; 0 for one. */
double ms_expected_maximum(double n);
/* GPUs of one stage that meet in its passes: those of a TP and CP group, or of an expert group. */
double ms_gpus_that_meet(const MsScenario *scenario);
/* Time of products on a GPU `deviate` standard deviations slower than the mean, over that on the machine whose clock
 * the profile has (docs/theory/laws.md, Scale). */
double ms_clock_of(const MsScenario *scenario, double deviate);
/* Clock of kernels of a family in training over that of short benchmarks, by whose times the curves are:
 * `sustained_derate`, for attention less (law attention_clock_loss); 1 where memory is the limit. */
double ms_sustained_clock(const MsScenario *scenario, MsOpFamily family);

/* Prepares; NULL and *error when a data-sheet figure that any run needs is unknown (peak for the precision, HBM, links
 * that the layout uses). Borrows hardware and layout; only layout->group and sizes are read. (transfer full) */
MsCost *ms_cost_new(const MsScenario *scenario, const MsLayout *layout, GError **error);
/* The same for another layout or other options of the same machine and model: kernel curves are shared with `like`,
 * tables of groups that are the same are copied (NULL: ms_cost_new). What a planner calls. */
MsCost *ms_cost_new_like(const MsCost *like, const MsScenario *scenario, const MsLayout *layout, GError **error);
/* The same where bytes over the network take `times` as long as with `like`, whose scenario it is for. (transfer full)
 */
MsCost *ms_cost_new_slower(const MsCost *like, double times);
/* Of a scenario with pools a cost is that of pool 0 and has those of all; 0 of any other: itself. (transfer none) */
const MsCost *ms_cost_of_pool(const MsCost *cost, int pool);
void ms_cost_free(MsCost *cost);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCost, ms_cost_free)

typedef struct {
  double time_s;   /* alone on the machine */
  double beside_s; /* beside compute: an exchange of the experts' tokens (EP overlap), a collective of data-parallel
                      ranks; 0 = as alone */
  double lower_s;  /* never more than time_s: FLOP at peak, bytes at link rate (used by `bound` and tests) */
  guint16 sms;     /* SMs it takes while it runs (communication), 0 = none or all */
  guint8 level;    /* communication: 0 scale-up link, 1 network */
  const MsCurve *curve; /* that decided, NULL = data sheet and default efficiency */
  double error_growth;  /* of the rounding error over an ordinary product's where a lower-complexity scheme was chosen
                           (option lcma), else 0 */
  double band;          /* relative residual (p90) of that curve; default when there is none */
} MsOpCost;

/* One row, alone on its stream and its links. */
MsOpCost ms_cost_op(const MsCost *cost, const MsOp *op);
/* A message from one pipeline stage to another (ms_cost_op: the slowest of them): inside a scale-up domain, or over the
 * network, on a fabric as much longer as between these two stages. From one pool to another: over the network, as long
 * as on the slower side, taking the SMs of the sender. */
MsOpCost ms_cost_message(const MsCost *cost, const MsLayout *layout, int from, int to, const MsOp *op);
/* Messages between all neighbours that are inside one domain, or that are not, cost the same. */
gboolean ms_cost_messages_alike(const MsCost *cost);
/* A row that meets all stages: as long as on the slowest pool, `own` being that of its stage. */
MsOpCost ms_cost_of_all_pools(const MsCost *cost, int own, const MsOp *op);
/* Key of the machine's figure that this time follows: a peak, "hbm_Bps", "scaleup_Bps", "nic_Bps" or "host_link_Bps".
 * (transfer none) */
const char *ms_cost_rate_key(const MsCost *cost, const MsOp *op, const MsOpCost *of);
/* What decides the time of such a row where the machine has no curve for it: names of laws. (transfer none) */
const char *ms_cost_laws(const MsCost *cost, const MsOp *op);
/* Every kernel costs the same in both, so that what is known of one serves the other. Rows that communicate may differ.
 */
gboolean ms_cost_same_kernels(const MsCost *a, const MsCost *b);
/* Kernels that cost the same on any one machine; FALSE for rows that communicate or wait for the host. */
gboolean ms_op_same_kernel(const MsOp *a, const MsOp *b);

/* How a row that communicates meets others on the network; of rows inside of domains nobody asks. */
MsMeetingKind ms_cost_meeting_kind(const MsCost *cost, const MsLayout *layout, const MsOp *op);
/* Those kinds on the machine's fabric; without one, or where pools have one each, on a NIC, with pools the first one's.
 * FALSE and *error as ms_meeting_new. (transfer full) */
gboolean ms_cost_meeting(const MsCost *cost, const MsLayout *layout, const MsMeetingKind *kind, int n,
                         MsMeeting **meeting, GError **error);

/* Bytes that one rank moves (in one direction) for a communication row: over the scale-up link, over the network, over
 * the host link; all 0 for other rows and groups of one. Of a group that is spread unevenly, a rank of its emptiest
 * domain. Rings, pairwise exchange, and the dispatchers' own de-duplicated counts: the forms of
 * docs/theory/communication.md 2, 5 and 9. */
void ms_cost_level_B(const MsScenario *scenario, const MsLayout *layout, const MsOp *op, double level_B[3]);

#endif
