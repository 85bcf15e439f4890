/* src/sim/fast.h - the step with slots as tables of lags, as long as the event engine says of them in steady state. */
#ifndef MS_SIM_FAST_H
#define MS_SIM_FAST_H

#include "bound/lags.h"
#include "sim/result.h"

/* Length of the step. `lags`: of the pieces, filled in on demand; tag_op[]: the row of each tag (step/program.h). Fills
 * stage[stages] and passes[stages], which begin with zeros, and adds to *events. */
MsTime ms_fast_step(const MsProgram *program, MsPieceLags *lags, const MsSchedule *schedule, const MsOp *const *tag_op,
                    MsTimeParts *stage, MsPasses *passes, guint64 *events);

#endif
