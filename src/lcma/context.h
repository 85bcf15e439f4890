/* src/lcma/context.h - a context of lcma.h seen from inside moesim: its rates, its reasons, and multiplication by type.
 */
#ifndef MS_LCMA_CONTEXT_H
#define MS_LCMA_CONTEXT_H

#include "lcma/lcma.h"
#include "lcma/measure.h"

const MsBlas *ms_lcma_blas(const MsLcma *lcma);
GPtrArray *ms_lcma_choices(MsLcma *lcma, const MsGemm *gemm); /* as ms_lcma_decide; (transfer full) */
int ms_lcma_gemm(MsLcma *lcma, const MsGemm *gemm);           /* sizes and strides are not checked */

#endif
