/* src/cost/lcma.h - what a machine of a profile needs for a product by a lower-complexity scheme (lcma/decide.h): its
 * curve of a GEMM for the products, its HBM bandwidth and the efficiency of its memory-bound kernels for the sums. Sums
 * in memory are kept in the type of the operands and products in float: split and merge cost their bytes, every product
 * is a launch of its own. Where the bandwidth of the last-level cache is known (l2_Bps), generated kernels that form
 * sums while they load tiles are candidates too. */
#ifndef MS_COST_LCMA_H
#define MS_COST_LCMA_H

#include "cost/curve.h"
#include "describe/laws.h"
#include "lcma/decide.h"

typedef struct {
  const MsCurve *curve;
  MsDeviceRates device;
  double element_B;
  MsLcmaMachine machine; /* its data is this struct: do not move it */
} MsLcmaProfile;

/* `memory_efficiency`: of split and merge. `l2_Bps`: of the profile, NaN unknown. Borrows the curve. */
void ms_lcma_profile_init(MsLcmaProfile *profile, const MsCurve *curve, const MsDeviceRates *device, double element_B,
                          double memory_efficiency, double l2_Bps);

/* The same of a profile by itself, for the dtype word "fp32" or "bf16": its curve, else that of the
 * laws, for which *room must live as long. FALSE and *error when a figure that is needed is unknown. */
gboolean ms_lcma_profile_load(MsLcmaProfile *profile, const MsHardware *hardware, const MsLaws *laws, MsCurve *room,
                              gboolean fp32, GError **error);

#endif
