/* src/exec/kernel.c - the choice of a table of kernels. */
#include "exec/kernel.h"

#include "base/err.h"

const MsKernels *ms_kernels_f32(int unit);
const MsKernels *ms_kernels_f64(int unit);

const MsKernels *ms_kernels_of_unit(size_t real_B, int unit) {
  if (real_B == 4) return ms_kernels_f32(unit);
  if (real_B == 8) return ms_kernels_f64(unit);
  MS_BUG("kernels for elements of %zu B", real_B);
}

const MsKernels *ms_kernels(size_t real_B) {
  const MsVector most = ms_vector();
  int unit = 0;
  while (ms_kernels_of_unit(real_B, unit)->vector > most) unit++;
  return ms_kernels_of_unit(real_B, unit);
}
