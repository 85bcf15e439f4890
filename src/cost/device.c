/* src/cost/device.c - the rates of a machine that curves are relative to. */
#include "cost/internal.h"

MsDeviceRates ms_device_rates(const MsHardware *h, int dtype, gboolean fp16) {
  double half =
      or_else(fp16 && known(h->peak_fp16_flops) ? h->peak_fp16_flops : h->peak_bf16_flops, h->peak_fp16_flops);
  double fp8 = or_else(h->peak_fp8_flops, half);
  const double peak[MS_N_ODT] = {
      or_else(h->peak_fp32_flops, half / 2), half, fp8, fp8, or_else(h->peak_mxfp8_flops, fp8),
      or_else(h->peak_nvfp4_flops, half)};
  return (MsDeviceRates){peak[dtype], h->hbm_Bps, h->sm_count > 0 ? h->sm_count : 132};
}
