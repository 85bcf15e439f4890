/* src/cost/curve.c - see curve.h. Every function is one formula of docs/theory/costs.md. */
#include "cost/curve.h"

#include <math.h>

static inline double efficiency(double value) { return value > 1e-6 ? value : 1e-6; }
static inline double saturation(double x, double half) { return half > 0 ? x / (x + half) : 1.0; }

/* Lower corner and weight of the upper one on an ascending axis, clamped at both ends. */
static inline int bracket(const double *axis, int n, double x, double *weight) {
  int i = 0;
  *weight = 0;
  if (n < 2 || !(x > axis[0])) return 0;
  if (x >= axis[n - 1]) {
    *weight = 1;
    return n - 2;
  }
  while (x >= axis[i + 1]) i++;
  *weight = (x - axis[i]) / (axis[i + 1] - axis[i]);
  return i;
}

double ms_grid_factor(const MsGrid *grid, const double *x) {
  int dims = grid->dims, offset = 0, step[4] = {0};
  double weight[4], corner[16];
  if (dims <= 0) return 1.0;
  for (int d = 0; d < dims; d++) { /* row-major: the first axis is the slowest */
    int i = bracket(grid->log2_axis[d], grid->n[d], x[d] > 0 ? log2(x[d]) : -HUGE_VAL, &weight[d]);
    offset = offset * grid->n[d] + i;
  }
  for (int d = dims - 1, stride = 1; d >= 0; stride *= grid->n[d], d--) step[d] = grid->n[d] > 1 ? stride : 0;
  int corners = 1 << dims;
  for (int c = 0; c < corners; c++) {
    int at = offset;
    for (int d = 0; d < dims; d++)
      if (c >> (dims - 1 - d) & 1) at += step[d];
    corner[c] = grid->log_ratio[at];
  }
  for (int d = 0; d < dims; d++) { /* folds the slowest axis first */
    corners >>= 1;
    for (int c = 0; c < corners; c++) corner[c] = corner[c] * (1 - weight[d]) + corner[c + corners] * weight[d];
  }
  return exp(corner[0]);
}

static double gemm_saturating_s(const double *p, const MsDeviceRates *device, double m, double n, double k, double w) {
  double e = efficiency(p[MS_C_E]) * saturation(m, p[MS_C_M_HALF]) * saturation(n, p[MS_C_N_HALF]) *
             saturation(k, p[MS_C_K_HALF]);
  double compute = 2 * m * n * k / (device->peak_flops * e);
  double memory = (w * (m * k + n * k) + 2 * m * n) / (device->hbm_Bps * efficiency(p[MS_C_BW]));
  return MAX(compute, memory) + p[MS_C_LAUNCH];
}

/* ceil without a call (plain x86-64 has no rounding instruction); x is a count of tiles. */
static inline double round_up(double x) {
  double whole = (double)(gint64)MIN(x, 1e15);
  return whole < x ? whole + 1 : whole;
}

/* Waves of tiles over the SMs, softly quantised: of a library with one tile, and clusters that share an operand pad m
 * to a multiple of it. */
static double one_tile_s(const double *p, const MsDeviceRates *device, double m, double n, double k) {
  double sms = MAX(device->sm_count, 1), hardness = p[MS_E2_HARDNESS], pad = p[MS_E2_PAD_M];
  if (pad > 0) m = round_up(m / pad) * pad;
  double waves = round_up(m / p[MS_E2_TILE_M]) * round_up(n / p[MS_E2_TILE_N]) / sms,
         soft = (1 - hardness) * MAX(waves, 1) + hardness * round_up(waves);
  return soft * (k * 2 * p[MS_E2_TILE_M] * p[MS_E2_TILE_N] * sms / (device->peak_flops * efficiency(p[MS_E2_E])) +
                 p[MS_E2_WAVE]);
}

/* One kernel per (tile, split of k): waves of tiles over the SMs, softly quantised; a split writes and sums fp32
 * partials. */
static double gemm_tiled_s(const double *p, const MsDeviceRates *device, double m, double n, double k, double w) {
  static const struct {
    double m, n, root;
    int power;
  } tile[] = {{128, 256, 1, 0},
              {256, 128, 1, 0},
              {128, 128, 0.70710678118654752, 1},
              {64, 128, 0.5, 2},
              {64, 64, 0.35355339059327376, 3}};
  double r = efficiency(p[MS_E2_SMALL_TILE]), tile_eff[4] = {1, r, r * r, r * r * r};
  double sms = MAX(device->sm_count, 1), hardness = p[MS_E2_HARDNESS], best = HUGE_VAL;
  double sm_flops = device->peak_flops / sms * efficiency(p[MS_E2_E]),
         bandwidth = device->hbm_Bps * efficiency(p[MS_E2_BW]);
  if (p[MS_E2_TILE_M] > 0 && p[MS_E2_TILE_N] > 0) best = one_tile_s(p, device, m, n, k);
  else
    for (size_t i = 0; i < G_N_ELEMENTS(tile); i++) {
      double tiles = round_up(m / tile[i].m) * round_up(n / tile[i].n) / sms;
      double s_per_k = 2 * tile[i].m * tile[i].n / (sm_flops * tile_eff[tile[i].power]);
      double fixed = p[MS_E2_WAVE] * tile[i].root;
      for (int split = 1; split <= 8; split *= 2) {
        double waves = tiles * split, soft = (1 - hardness) * MAX(waves, 1) + hardness * round_up(waves);
        double t = soft * (MAX(k / split, 64) * s_per_k + fixed);
        if (split > 1) t += 4 * m * n * split / bandwidth + p[MS_E2_LAUNCH] / 2;
        best = MIN(best, t);
      }
    }
  return MAX(best, (w * (m * k + n * k) + 2 * m * n) / bandwidth) + p[MS_E2_LAUNCH];
}

double ms_curve_gemm_s(const MsCurve *curve, const MsDeviceRates *device, double m, double n, double k,
                       double bytes_per_element) {
  if (!(m > 0 && n > 0 && k > 0)) return curve->param[MS_C_LAUNCH];
  double t = curve->form == MS_FORM_GEMM_TILED ? gemm_tiled_s(curve->param, device, m, n, k, bytes_per_element)
                                               : gemm_saturating_s(curve->param, device, m, n, k, bytes_per_element);
  return t * ms_grid_factor(&curve->grid, (const double[4]){m, n, k});
}

double ms_curve_grouped_gemm_s(const MsCurve *curve, const MsDeviceRates *device, double rows, double groups, double n,
                               double k, double inter, double bytes_per_element) {
  const double *p = curve->param;
  double fixed = p[MS_G_LAUNCH] / 2 + MAX(groups, 0) * p[MS_G_PER_EXPERT] / 2;
  if (!(rows > 0 && groups > 0 && n > 0 && k > 0)) return fixed;
  double width = inter > 0 ? inter : MIN(n, k), hidden = MAX(n, k);
  if (inter > 0) hidden = k != inter && (n == inter || n == 2 * inter) ? k : n;
  double te = rows / groups, flop = 2 * rows * n * k;
  double e = efficiency(p[MS_G_E]) * saturation(te, p[MS_G_TE_HALF]) * saturation(width, p[MS_G_I_HALF]);
  double compute = flop / (device->peak_flops * e);
  double weights = groups * n * k * bytes_per_element / (device->hbm_Bps * efficiency(p[MS_G_BW_WEIGHTS]));
  double activations = rows * (k * bytes_per_element + 2 * n) / (device->hbm_Bps * efficiency(p[MS_G_BW_ACT]));
  compute *= compute, weights *= weights;
  double t = fixed + activations + sqrt(sqrt(compute * compute + weights * weights));
  return t * ms_grid_factor(&curve->grid, (const double[4]){te, hidden, width, rows});
}

/* FlashAttention's rule, which counts one sequence whatever the batch: heads and blocks of 128 queries that fill less
 * than 0.8 of the SMs share out the keys. */
static gboolean splits_keys(const MsDeviceRates *device, double seq, double heads) {
  return heads * round_up(seq / 128) < 0.8 * device->sm_count;
}

double ms_curve_attention_s(const MsCurve *curve, const MsDeviceRates *device, double flop, double bytes_B, double seq,
                            double head_dim, double batch_heads, double gqa_group, double heads) {
  const double *p = curve->param;
  if (!(flop > 0 && seq > 0)) return p[MS_A_LAUNCH];
  double work = flop / (device->peak_flops * efficiency(p[MS_A_E])) * (1 + p[MS_A_S_HALF] / seq);
  /* the longest thread block: the last 128 query rows against all keys */
  double path = 4 * 128 * seq * head_dim / (device->peak_flops / MAX(device->sm_count, 1) * efficiency(p[MS_A_E_CP]));
  if (p[MS_A_PARTIALS] > 0 && splits_keys(device, seq, heads)) {
    bytes_B += p[MS_A_PARTIALS] * 8 * batch_heads * seq * head_dim;
    path *= MIN(1, batch_heads * round_up(seq / 128) / device->sm_count); /* every SM has a share of the keys */
  }
  double t = p[MS_A_LAUNCH] + bytes_B / (device->hbm_Bps * efficiency(p[MS_A_BW])) +
             cbrt(work * work * work + path * path * path);
  return t * ms_grid_factor(&curve->grid, (const double[4]){seq, batch_heads, gqa_group, heads});
}

double ms_curve_segments_s(const MsCurve *curve, double bus_bytes_B) {
  double best = HUGE_VAL;
  for (int i = 0; i < curve->n_segments; i++)
    best = MIN(best, curve->segment_alpha_s[i] + bus_bytes_B / curve->segment_Bps[i]);
  return curve->n_segments > 0 ? best * ms_grid_factor(&curve->grid, (const double[4]){bus_bytes_B}) : 0;
}

/* Norm of order `order` >= 1; 0: the longest side. */
static double norm(const double *side, int n, double order) {
  double longest = 0, sum = 0;
  for (int i = 0; i < n; i++) longest = MAX(longest, side[i]);
  if (!(order > 0 && longest > 0)) return longest;
  for (int i = 0; i < n; i++) sum += side[i] == longest ? 1 : side[i] > 0 ? pow(side[i] / longest, order) : 0;
  return longest * pow(sum, 1 / order);
}

double ms_curve_dispatch_s(const MsCurve *curve, double bytes_B, double tokens, double row_B, double sms) {
  const double *p = curve->param;
  double sm_Bps = MAX(p[MS_D_PER_SM], 1), side[4] = {bytes_B / (sm_Bps * MAX(sms, 1)), bytes_B / MAX(p[MS_D_LINK], 1)};
  if (!(bytes_B > 0 && tokens > 0 && row_B > 0)) return p[MS_D_ALPHA] + norm(side, 2, p[MS_D_SHARPNESS]);
  double copies = bytes_B / (tokens * row_B);
  side[2] = tokens * (copies * p[MS_D_COPY] + p[MS_D_TOKEN]) / MAX(sms, 1);
  side[3] = tokens * row_B * p[MS_D_TOKEN_ROWS] / (sm_Bps * MAX(sms, 1));
  double t = p[MS_D_ALPHA] + p[MS_D_FILL] * copies * row_B / sm_Bps + norm(side, 4, p[MS_D_SHARPNESS]);
  return t * ms_grid_factor(&curve->grid, (const double[4]){tokens, sms, row_B, copies});
}

double ms_curve_bandwidth_s(const MsCurve *curve, const MsDeviceRates *device, double bytes_B) {
  double t = curve->param[MS_B_LAUNCH] + bytes_B / (device->hbm_Bps * efficiency(curve->param[MS_B_E]));
  return t * ms_grid_factor(&curve->grid, (const double[4]){bytes_B});
}

double ms_curve_terms_s(const MsCurve *curve, const MsTerms *x) {
  const double *p = curve->param;
  double t = p[MS_T_LAUNCH] + p[MS_T_GROUP] * x->groups + p[MS_T_M] * x->m + p[MS_T_MN] * x->mn + p[MS_T_MK] * x->mk +
             p[MS_T_NK] * x->nk + p[MS_T_FLOP] * x->flop + p[MS_T_BYTE] * x->bytes_B +
             p[MS_T_FAR_BYTE] * MAX(0, x->bytes_B - p[MS_T_CACHE]);
  return t * ms_grid_factor(&curve->grid, x->at);
}

/* Which parameters are rates (or efficiencies of one); the others but for shapes and per-copy bytes are times. */
void ms_curve_slow(MsCurve *curve, double factor) {
  static const struct {
    int rate[4], time[3];
  } linear[MS_N_FORMS] = {
      /* 1 + index, 0 ends */
      [MS_FORM_GEMM_SATURATING] = {{1 + MS_C_E, 1 + MS_C_BW}, {1 + MS_C_LAUNCH}},
      [MS_FORM_GEMM_TILED] = {{1 + MS_E2_E, 1 + MS_E2_BW}, {1 + MS_E2_LAUNCH, 1 + MS_E2_WAVE}},
      [MS_FORM_GROUPED_GEMM] = {{1 + MS_G_E, 1 + MS_G_BW_WEIGHTS, 1 + MS_G_BW_ACT},
                                {1 + MS_G_LAUNCH, 1 + MS_G_PER_EXPERT}},
      [MS_FORM_ATTENTION] = {{1 + MS_A_E, 1 + MS_A_BW, 1 + MS_A_E_CP}, {1 + MS_A_LAUNCH}},
      [MS_FORM_DISPATCH] = {{1 + MS_D_PER_SM, 1 + MS_D_LINK}, {1 + MS_D_ALPHA, 1 + MS_D_COPY, 1 + MS_D_TOKEN}},
      [MS_FORM_BANDWIDTH] = {{1 + MS_B_E}, {1 + MS_B_LAUNCH}},
  };
  if (curve->form == MS_FORM_TERMS)
    for (int i = MS_T_LAUNCH; i <= MS_T_FAR_BYTE; i++) curve->param[i] *= factor;
  for (int i = 0; i < 4 && linear[curve->form].rate[i]; i++) curve->param[linear[curve->form].rate[i] - 1] /= factor;
  for (int i = 0; i < 3 && linear[curve->form].time[i]; i++) curve->param[linear[curve->form].time[i] - 1] *= factor;
  for (int i = 0; i < curve->n_segments; i++) curve->segment_alpha_s[i] *= factor, curve->segment_Bps[i] /= factor;
}
