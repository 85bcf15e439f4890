#include "cost/lcma.h"

#include <string.h>

#include "cost/internal.h"
#include "work/work.h"

static double gemm_s(const void *data, double m, double n, double k) {
  const MsLcmaProfile *p = data;
  return ms_curve_gemm_s(p->curve, &p->device, m, n, k, p->element_B);
}

static double gemms_s(const void *data, double m, double n, double k, double count) {
  return count * gemm_s(data, m, n, k);
}

void ms_lcma_profile_init(MsLcmaProfile *p, const MsCurve *curve, const MsDeviceRates *device, double element_B,
                          double memory_efficiency, double l2_Bps) {
  double s_per_B = 1 / (device->hbm_Bps * memory_efficiency);
  *p = (MsLcmaProfile){.curve = curve, .device = *device, .element_B = element_B};
  p->machine = (MsLcmaMachine){.data = p,
                               .library_s = gemm_s,
                               .product_s = gemms_s,
                               .split = {[MS_SPLIT_READ] = s_per_B, [MS_SPLIT_A] = s_per_B, [MS_SPLIT_B] = s_per_B},
                               .merge = {[MS_MERGE_READ] = s_per_B, [MS_MERGE_C] = s_per_B},
                               .input_B = element_B,
                               .sum_B = element_B,
                               .product_B = 4,
                               .margin = MS_LCMA_MARGIN,
                               .doubt = MS_LCMA_DOUBT};
  const double large = 8192;
  if (l2_Bps > 0)
    p->machine.device = (MsLcmaDevice){.type = element_B < 4 ? MS_GPU_BF16 : MS_GPU_F32,
                                       .sms = device->sm_count,
                                       .flops = 2 * large * large * large / gemm_s(p, large, large, large),
                                       .hbm_Bps = 1 / s_per_B,
                                       .l2_Bps = l2_Bps,
                                       .launch_s = gemm_s(p, 1, 1, 1)};
}

gboolean ms_lcma_profile_load(MsLcmaProfile *p, const MsHardware *h, const MsLaws *laws, MsCurve *room, gboolean fp32,
                              GError **error) {
  MsCurve fallback[MS_N_FALLBACKS];
  if (!ms_hardware_need(h, h->hbm_Bps, "hbm_Bps", error)) return FALSE;
  if (fp32 ? !ms_hardware_need(h, h->peak_fp32_flops, "peak_fp32_flops", error)
           : !ms_hardware_need(h, h->peak_bf16_flops, "peak_bf16_flops", error))
    return FALSE;
  ms_fallback_curves(laws, fallback);
  *room = fallback[MS_FALLBACK_GEMM];
  const MsCurve *curve = room;
  double memory = laws->default_memory_bandwidth;
  for (int i = h->num_curves - 1; i >= 0; i--) {
    const MsCurve *c = &h->curves[i];
    gboolean gemm = c->form == MS_FORM_GEMM_SATURATING || c->form == MS_FORM_GEMM_TILED;
    if (gemm && g_strcmp0(c->op, "gemm") == 0 && g_strcmp0(c->dtype, fp32 ? "fp32" : "bf16") == 0 &&
        (!c->pass || strcmp(c->pass, "forward") == 0))
      curve = c;
    if (c->form == MS_FORM_BANDWIDTH && g_strcmp0(c->op, "elementwise") == 0) memory = c->param[MS_B_E];
  }
  int dtype = fp32 ? MS_ODT_FP32 : MS_ODT_BF16;
  MsDeviceRates device = ms_device_rates(h, dtype, FALSE);
  ms_lcma_profile_init(p, curve, &device, ms_element_B(dtype), memory, h->l2_Bps);
  return TRUE;
}
