/* src/cost/device.c - the rates of a machine that curves are relative to. */
#include "cost/internal.h"
#include "describe/precision.h"

static double peak_flops(const MsHardware *h, MsOpDtype dtype, gboolean fp16) {
  const MsOpDtypeRow *row = &ms_op_dtypes[dtype];
  double own = ms_peak_of(h, row->peak);
  if (dtype == MS_ODT_BF16)
    return or_else(fp16 && known(h->peak_fp16_flops) ? h->peak_fp16_flops : own, h->peak_fp16_flops);
  return known(own) || row->like == dtype ? own : row->as_fast * peak_flops(h, row->like, fp16);
}

MsDeviceRates ms_device_rates(const MsHardware *h, int dtype, gboolean fp16) {
  return (MsDeviceRates){peak_flops(h, (MsOpDtype)dtype, fp16), h->hbm_Bps, h->sm_count > 0 ? h->sm_count : 132};
}
