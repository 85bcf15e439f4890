/* src/cost/curve.h - evaluation of the fitted forms (docs/theory/costs.md 2 to 7). Pure.
 *
 * All take the curve, the machine's peak for the dtype P (FLOP/s), its HBM rate BW (B/s), its SM count, and a shape;
 * all return seconds. gemm-saturating (C): max(2mnk / (P e m/(m+m_h) n/(n+n_h) k/(k+k_h)), (w(mk+nk)+2mn) / (BW b)) +
 * launch       [kernel only: quantisation is a row of its own] gemm-tiled (E2):     min over 5 tiles x 4 split-K, see
 * the source; with tile_m x tile_n > 0 that tile alone, unsplit, m padded to pad_m first grouped-gemm (F):    launch +
 * E_l per_expert + A/(BW b_act) + ((F/(P e te/(te+te_h) I/(I+I_h)))^4 + (W/(BW b_w))^4)^(1/4) attention (F): launch +
 * bytes/(BW b) + ((F/(P e)(1+s_h/s))^3 + (4*128 s d/(P/SM e_cp))^3)^(1/3) split_partials c > 0: a kernel that shares
 * out the keys of a query block where heads x blocks of one sequence fill less than 0.8 of the SMs (FlashAttention
 * counts one sequence, whatever the batch): bytes + 8 c b h s d for partial results in fp32, written and read, and
 * every SM takes part: path x min(1, b h s/128 / SM) segments:            min_i(alpha_i + bytes / Bps_i), bytes already
 * in bus-bandwidth convention dispatch:            alpha + fill_tokens copies row_B / per_sm_Bps + tokens |(copies
 * copy_sm_s + token_sm_s) / SMs, token_rows row_B / (per_sm_Bps SMs), copies row_B / (per_sm_Bps SMs), copies row_B /
 * link_Bps|: what SMs do for a copy and a token whatever its size, rows they move once per token (read, reduced), rows
 * they send, the link. |.| is the norm of order `sharpness`: the four overlap, the longest counts most; 0: the longest
 * alone. The first tokens fill the buffers before anything arrives bandwidth:           launch + bytes / (BW e) terms:
 * launch + sum of coefficient x what the row has of it (MsTerms) + far_byte_s max(0, bytes - cache_B): seconds are the
 * machine's own, no share of a peak. What a blocked multiplication costs on a CPU (docs/theory/fast-matmul.md 4): MNK,
 * and elements packed and written times exp(grid). Axes of the grid: GEMM m, n, k; grouped rows per group, hidden,
 * width, rows; attention seq, batch x heads, GQA group, heads; dispatch tokens, SMs, row_B, copies; memory-bound
 * operators and collectives bytes. Times are finite for any finite shape: a zero or negative efficiency in a curve is
 * read as 1e-6.
 */
#ifndef MS_COST_CURVE_H
#define MS_COST_CURVE_H

#include "describe/hardware.h"

/* Index into MsCurve.param by form; the order of ms_curve_param_words (a unit test compares them). */
enum { MS_C_E, MS_C_BW, MS_C_LAUNCH, MS_C_M_HALF, MS_C_N_HALF, MS_C_K_HALF }; /* gemm-saturating */
enum {
  MS_E2_E,
  MS_E2_BW,
  MS_E2_LAUNCH,
  MS_E2_WAVE,
  MS_E2_HARDNESS,
  MS_E2_SMALL_TILE,
  MS_E2_TILE_M,
  MS_E2_TILE_N,
  MS_E2_PAD_M
}; /* gemm-tiled */
enum {
  MS_G_E,
  MS_G_BW_WEIGHTS,
  MS_G_LAUNCH,
  MS_G_TE_HALF,
  MS_G_I_HALF,
  MS_G_PER_EXPERT,
  MS_G_BW_ACT
};                                                                            /* grouped-gemm */
enum { MS_A_E, MS_A_BW, MS_A_LAUNCH, MS_A_S_HALF, MS_A_E_CP, MS_A_PARTIALS }; /* attention */
enum {
  MS_D_ALPHA,
  MS_D_PER_SM,
  MS_D_LINK,
  MS_D_SHARPNESS,
  MS_D_COPY,
  MS_D_TOKEN,
  MS_D_TOKEN_ROWS,
  MS_D_FILL
};                            /* dispatch */
enum { MS_B_E, MS_B_LAUNCH }; /* bandwidth */
enum {
  MS_T_LAUNCH,
  MS_T_GROUP,
  MS_T_M,
  MS_T_MN,
  MS_T_MK,
  MS_T_NK,
  MS_T_FLOP,
  MS_T_BYTE,
  MS_T_FAR_BYTE,
  MS_T_CACHE
}; /* terms */

typedef struct {
  double peak_flops, hbm_Bps;
  int sm_count;
} MsDeviceRates;
/* The rates that curves of a dtype (an MsOpDtype) are relative to, the fp16 peak instead of bf16 when `fp16`. NaN where
 * the data sheet has a hole. */
MsDeviceRates ms_device_rates(const MsHardware *hardware, int dtype, gboolean fp16);

/* Seconds of a product of m x k by k x n elements of so many bytes. */
double ms_curve_gemm_s(const MsCurve *curve, const MsDeviceRates *device, double m, double n, double k,
                       double bytes_per_element);

/* One GEMM (n, k) over `rows` rows in total and `groups` local experts. Form F was fitted on whole expert layers
 * (permute, GEMM 1, activation, GEMM 2, finalize); this returns one GEMM of it: its own FLOP, weights, and input and
 * output, half of the launch and per-expert terms, and the layer's residual. `inter` is the expert's intermediate width
 * I of the form; 0: min(n, k). The hidden width of the grid is then the one of n, k that is not I or 2I. */
double ms_curve_grouped_gemm_s(const MsCurve *curve, const MsDeviceRates *device, double rows, double groups, double n,
                               double k, double inter, double bytes_per_element);
double ms_curve_attention_s(const MsCurve *curve, const MsDeviceRates *device, double flop, double bytes_B, double seq,
                            double head_dim, double batch_heads, double gqa_group, double heads);
double ms_curve_segments_s(const MsCurve *curve, double bus_bytes_B);
/* bytes_B = tokens * row_B * copies; tokens 0: they are not known, nothing beside the bytes counts. */
double ms_curve_dispatch_s(const MsCurve *curve, double bytes_B, double tokens, double row_B, double sms);
/* Relative error of what a curve gives, 90 %: by its residuals, or `unknown` where it says none or is NULL. */
double ms_curve_band(const MsCurve *curve, double unknown);
double ms_curve_bandwidth_s(const MsCurve *curve, const MsDeviceRates *device, double bytes_B);

/* What one row has of everything that the form "terms" charges for; of all its groups together. */
typedef struct {
  double groups;
  double m;          /* rows */
  double mn, mk, nk; /* elements of the result and of the two operands; attention: query-key pairs, elements of Q and O,
                        elements of K and V */
  double flop, bytes_B;
  double at[4]; /* coordinates in the grid */
} MsTerms;
double ms_curve_terms_s(const MsCurve *curve, const MsTerms *terms);
/* Changes the parameters so that every time the curve gives is `factor` > 0 times what it was. */
void ms_curve_slow(MsCurve *curve, double factor);
/* exp of the interpolated residual at coordinates x[dims] (not logarithms); 1 without a grid. */
double ms_grid_factor(const MsGrid *grid, const double *x);

#endif
