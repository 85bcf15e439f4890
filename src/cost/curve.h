/* src/cost/curve.h - evaluation of the fitted forms (measurements/efficiency_fits.md 1.4, 2, 3, 4). Pure.
 *
 * All take the curve, the machine's peak for the dtype P (FLOP/s), its HBM rate BW (B/s), its SM count, and a shape; all return seconds.
 *   gemm-saturating (C): max(2mnk / (P e m/(m+m_h) n/(n+n_h) k/(k+k_h)), (w(mk+nk)+2mn) / (BW b)) + launch       [kernel only: quantisation is a row of its own]
 *   gemm-tiled (E2):     min over 5 tiles x 4 split-K, see the source
 *   grouped-gemm (F):    launch + E_l per_expert + A/(BW b_act) + ((F/(P e te/(te+te_h) I/(I+I_h)))^4 + (W/(BW b_w))^4)^(1/4)
 *   attention (F):       launch + bytes/(BW b) + ((F/(P e)(1+s_h/s))^3 + (4*128 s d/(P/SM e_cp))^3)^(1/3)
 *   segments:            min_i(alpha_i + bytes / Bps_i), bytes already in bus-bandwidth convention
 *   dispatch:            alpha + bytes / min(per_sm_Bps * SMs, link_Bps)
 *   bandwidth:           launch + bytes / (BW e)
 * times exp(grid). */
#ifndef MS_COST_CURVE_H
#define MS_COST_CURVE_H

#include "describe/hardware.h"

typedef struct { double peak_flops, hbm_Bps; int sm_count; } MsDeviceRates;

double ms_curve_gemm_s(const MsCurve *curve, const MsDeviceRates *device, double m, double n, double k, double bytes_per_element);
/* rows in total, `groups` local experts, one GEMM (n, k); the curve was fitted on whole expert layers: the caller passes one GEMM of it and
 * gets its share by FLOP. */
double ms_curve_grouped_gemm_s(const MsCurve *curve, const MsDeviceRates *device, double rows, double groups, double n, double k,
                               double bytes_per_element);
double ms_curve_attention_s(const MsCurve *curve, const MsDeviceRates *device, double flop, double bytes_B, double seq, double head_dim,
                            double batch_heads, double gqa_group);
double ms_curve_segments_s(const MsCurve *curve, double bus_bytes_B);
double ms_curve_dispatch_s(const MsCurve *curve, double bytes_B, double sms);
double ms_curve_bandwidth_s(const MsCurve *curve, const MsDeviceRates *device, double bytes_B);
/* exp of the interpolated residual at coordinates x[dims] (not logarithms); 1 without a grid. */
double ms_grid_factor(const MsGrid *grid, const double *x);

#endif
