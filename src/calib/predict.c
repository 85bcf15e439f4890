/* src/calib/predict.c - what a curve says of a measured row, through the functions that the simulator uses. */
#include "base/stats.h"
#include "calib/measure.h"

#include <math.h>
#include <string.h>

static double bandwidth(const MsDeviceRates *device, double efficiency) {
  return device->hbm_Bps * MAX(efficiency, 1e-6);
}

static MsPrediction gemm(const MsCurve *curve, const MsDeviceRates *device, double w, const double *x) {
  double own = ms_curve_gemm_s(curve, device, x[0], x[1], x[2], w), cast = 0;
  if (curve->provenance.cast_launch_s >= 0)
    cast = curve->provenance.cast_launch_s +
           (2 + w) * x[0] * x[2] / bandwidth(device, curve->provenance.cast_bw_efficiency);
  return (MsPrediction){own + cast, own / (own + cast), {x[0], x[1], x[2]}};
}

/* Bytes beside the two GEMMs, docs/theory/costs.md 3: permute 2TH + RHa, activation 2R ng I, finalize 2TH. */
static MsPrediction layer(const MsCurve *curve, const MsDeviceRates *device, double w, const double *x) {
  double T = x[0], H = x[1], I = x[2], groups = MAX(x[4] / x[5], 1), R = T * x[3] / x[5], ng = x[6] > 0 ? 2 : 1;
  double own = ms_curve_grouped_gemm_s(curve, device, R, groups, ng * I, H, I, w) +
               ms_curve_grouped_gemm_s(curve, device, R, groups, H, I, I, w);
  double rest = (4 * T * H + R * H * w + 2 * R * ng * I) / bandwidth(device, curve->param[MS_G_BW_ACT]);
  return (MsPrediction){own + rest, own / (own + rest), {R / groups, H, I, R}};
}

static MsPrediction grouped(const MsCurve *curve, const MsDeviceRates *device, double w, const double *x) {
  return (MsPrediction){ms_curve_grouped_gemm_s(curve, device, x[0], x[1], x[2], x[3], 0, w),
                        1,
                        {x[0] / x[1], MAX(x[2], x[3]), MIN(x[2], x[3]), x[0]}};
}

/* Backward counts 2.5 times the forward FLOP; it reads q, k, v, o, do and writes dq, dk, dv. */
static MsPrediction attention(const MsCurve *curve, const MsDeviceRates *device, const double *x) {
  double b = x[0], s = x[1], h = x[2], kv = x[3], qk = x[4], v = x[5], backward = x[6] > 0;
  double q_B = 2 * b * h * s * (qk + v), kv_B = 2 * b * kv * s * (qk + v);
  double flop = b * h * s * s * (qk + v) * (backward ? 2.5 : 1), bytes = (q_B + kv_B) * (backward ? 2 : 1);
  double t = ms_curve_attention_s(curve, device, flop, bytes, s, (qk + v) / 2, b * h, h / kv, h);
  return (MsPrediction){t, 1, {s, b * h, h / kv, h}};
}

static MsPrediction delta(const MsCurve *curve, const MsDeviceRates *device, const double *x) {
  MsDeltaWork work = ms_delta_work(x[0] * x[1], x[2], x[3], x[4], x[5]);
  double t = ms_curve_attention_s(curve, device, work.flop, work.read_B + work.write_B, x[1], (x[4] + x[5]) / 2,
                                  x[0] * x[3], x[3] / x[2], x[3]);
  return (MsPrediction){t, 1, {x[1], x[0] * x[3], x[3] / x[2], x[3]}};
}

static MsPrediction collective(const MsCurve *curve, const double *x) {
  double bus = x[0] * (x[1] - 1) / x[1] * (strcmp(curve->op, "all_reduce") == 0 ? 2 : 1);
  return (MsPrediction){ms_curve_segments_s(curve, bus), 1, {bus}};
}

/* Bytes to distinct destinations, own rank or node included (docs/theory/costs.md 7): ranks inside a domain, nodes
 * across. */
static MsPrediction exchange(const MsCurve *curve, const double *x) {
  double blocks = x[5] > 1 ? x[5] : x[4], copies = ms_expected_blocks(x[3], MIN(x[2], x[3]), MIN(blocks, x[3]));
  double row = x[1] * x[7], bytes = x[0] * row * copies;
  return (MsPrediction){ms_curve_dispatch_s(curve, bytes, x[0], row, x[6]), 1, {x[0], x[6], row, copies}};
}

MsPrediction ms_predict(const MsCurve *curve, const MsDeviceRates *device, const MsSeries *series, const double *x) {
  double w = ms_element_B(series->dtype);
  switch (series->kind) {
  case MS_ROW_GEMM: return gemm(curve, device, w, x);
  case MS_ROW_LAYER: return layer(curve, device, w, x);
  case MS_ROW_GROUPED: return grouped(curve, device, w, x);
  case MS_ROW_ATTENTION: return attention(curve, device, x);
  case MS_ROW_DELTA: return delta(curve, device, x);
  case MS_ROW_COLLECTIVE: return collective(curve, x);
  case MS_ROW_EXCHANGE: return exchange(curve, x);
  case MS_ROW_CAST: return (MsPrediction){ms_curve_bandwidth_s(curve, device, x[0]), 1, {x[0]}};
  case MS_N_ROW_KINDS: break;
  }
  return (MsPrediction){0};
}
