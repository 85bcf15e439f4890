/* tests/unit/test_kernels.c - the CPU kernels that every model uses, against naive oracles in double and central
 * differences (tests/lib/kernel_case.h): sizes that fill no vector (1, 3, 7, 17, 65), empty groups, extreme values. */
#include <string.h>

#include "lib/close.h"
#include "lib/kernel_case.h"

/* --- GEMM: p = m, n, k, transposes ----------------------------------------------------------------------------- */

FORWARD(gemm) {
  gboolean ta = c->p[3] & 1, tb = c->p[3] >> 1;
  memcpy(y[0], x[2], (gsize)(c->p[0] * c->p[1]) * k->real_B);
  k->gemm(run, ta, tb, c->p[0], c->p[1], c->p[2], 1.5, x[0], ta ? c->p[0] : c->p[2], x[1], tb ? c->p[2] : c->p[1], 0.5,
          y[0], c->p[1]);
  assert_true(run->flop == 2.0 * (double)(c->p[0] * c->p[1] * c->p[2]));
}
ORACLE(gemm) {
  gint64 m = c->p[0], n = c->p[1], kk = c->p[2];
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      double sum = 0;
      for (gint64 l = 0; l < kk; l++)
        sum += x[0][c->p[3] & 1 ? l * m + i : i * kk + l] * x[1][c->p[3] >> 1 ? j * kk + l : l * n + j];
      y[0][i * n + j] = 1.5 * sum + 0.5 * x[2][i * n + j];
    }
}

/* p = groups, n, k; some groups have no row */
static const gint64 grouped_rows[] = {3, 0, 7, 1, 0, 17};
FORWARD(grouped) { UNUSED, k->grouped_forward(run, (int)c->p[0], grouped_rows, c->p[1], c->p[2], x[0], x[1], y[0]); }
BACKWARD(grouped) {
  UNUSED;
  k->grouped_dgrad(run, (int)c->p[0], grouped_rows, c->p[1], c->p[2], dy[0], x[1], dx[0]);
  k->grouped_wgrad(run, (int)c->p[0], grouped_rows, c->p[1], c->p[2], dy[0], x[0], dx[1]);
  assert_true(run->flop == 3 * 2.0 * 28 * (double)(c->p[1] * c->p[2]));
}
ORACLE(grouped) {
  gint64 n = c->p[1], kk = c->p[2], r = 0;
  for (int g = 0; g < c->p[0]; g++)
    for (gint64 end = r + grouped_rows[g]; r < end; r++)
      for (gint64 j = 0; j < n; j++) {
        y[0][r * n + j] = 0;
        for (gint64 l = 0; l < kk; l++) y[0][r * n + j] += x[0][r * kk + l] * x[1][(g * n + j) * kk + l];
      }
}

static void test_gemm(void **state) {
  (void)state;
  for (int trans = 0; trans < 4; trans++) {
    const MsKernelCase cases[] = {
        {"gemm",
         {7, 17, 65, trans},
         {7 * 65, 65 * 17, 7 * 17},
         {7 * 17},
         .forward = gemm_forward,
         .oracle = gemm_oracle},
        {"gemm, empty sum", {3, 5, 0, trans}, {1, 1, 15}, {15}, .forward = gemm_forward, .oracle = gemm_oracle}};
    CHECK_ALL(cases);
  }
  const MsKernelCase grouped = {"grouped gemm", {6, 7, 17}, {28 * 17, 6 * 7 * 17},
                                {28 * 7},       .added = 2, THREE(grouped)};
  ms_kernel_case_check(&grouped);
}

/* --- embedding: p = rows, h; words 2 … 6 of 10 are here -------------------------------------------------------- */

FORWARD(embedding) {
  UNUSED;
  g_autofree gint32 *word = ms_case_ints(c->p[0], 10, 1);
  k->embedding_forward(c->p[0], c->p[1], word, 2, 5, x[0], y[0]);
}
BACKWARD(embedding) {
  UNUSED;
  g_autofree gint32 *word = ms_case_ints(c->p[0], 10, 1);
  k->embedding_backward(c->p[0], c->p[1], word, 2, 5, dy[0], dx[0]);
}
ORACLE(embedding) {
  g_autofree gint32 *word = ms_case_ints(c->p[0], 10, 1);
  for (gint64 i = 0; i < c->p[0] * c->p[1]; i++) {
    gint32 w = word[i / c->p[1]] - 2;
    y[0][i] = w < 0 || w >= 5 ? 0 : x[0][w * c->p[1] + i % c->p[1]];
  }
}

/* --- norms: p = kind, rows, width ------------------------------------------------------------------------------ */

FORWARD(norm) { UNUSED, k->norm_forward((MsKernelNorm)c->p[0], c->p[1], c->p[2], 1e-5, x[0], x[1], x[2], y[0]); }
BACKWARD(norm) {
  UNUSED, k->norm_backward((MsKernelNorm)c->p[0], c->p[1], c->p[2], 1e-5, x[0], x[1], dy[0], dx[0], dx[1], dx[2]);
}
ORACLE(norm) {
  gint64 width = c->p[2];
  for (gint64 r = 0; r < c->p[1]; r++) {
    const double *in = x[0] + r * width;
    double mean = 0, square = 0;
    for (gint64 i = 0; i < width; i++) mean += c->p[0] == MS_KNORM_LAYER ? in[i] / (double)width : 0;
    for (gint64 i = 0; i < width; i++) square += (in[i] - mean) * (in[i] - mean) / (double)width;
    for (gint64 i = 0; i < width; i++)
      y[0][r * width + i] = (in[i] - mean) / sqrt(square + 1e-5) * x[1][i] + (c->p[0] == MS_KNORM_LAYER ? x[2][i] : 0);
  }
}

/* --- rope: p = rows, heads, d, rotary, stride ------------------------------------------------------------------ */

static void rope_of(const MsKernelCase *c, const MsKernels *k, gboolean back, const void *x, void *y) {
  g_autofree gint32 *pos = ms_case_ints(c->p[0], 100000, 3);
  memcpy(y, x, (gsize)(c->p[0] * c->p[4]) * k->real_B);
  if (c->p[0] > 1) pos[1] = pos[0]; /* the same position twice */
  k->rope(c->p[0], c->p[1], c->p[2], c->p[3], c->p[4], pos, 10000, back, y);
}
FORWARD(rope) { UNUSED, rope_of(c, k, FALSE, x[0], y[0]); }
BACKWARD(rope) { UNUSED, rope_of(c, k, TRUE, dy[0], dx[0]); }
ORACLE(rope) {
  g_autofree gint32 *pos = ms_case_ints(c->p[0], 100000, 3);
  if (c->p[0] > 1) pos[1] = pos[0];
  memcpy(y[0], x[0], (gsize)(c->p[0] * c->p[4]) * sizeof(double));
  for (gint64 r = 0; r < c->p[0]; r++)
    for (gint64 head = 0; head < c->p[1]; head++)
      for (gint64 i = 0; i < c->p[3] / 2; i++) {
        gint64 a = r * c->p[4] + head * c->p[2] + i, b = a + c->p[3] / 2;
        double angle = pos[r] * pow(10000, -2.0 * (double)i / (double)c->p[3]);
        y[0][a] = x[0][a] * cos(angle) - x[0][b] * sin(angle);
        y[0][b] = x[0][b] * cos(angle) + x[0][a] * sin(angle);
      }
}

/* --- activations: p = kind, rows, width, clamp, with probabilities; inputs x, prob ----------------------------- */

FORWARD(activation) {
  UNUSED, k->activation_forward((MsKernelActivation)c->p[0], c->p[1], c->p[2], (double)c->p[3] / 2, x[0],
                                c->p[4] ? x[1] : NULL, y[0]);
}
BACKWARD(activation) {
  UNUSED;
  k->activation_backward((MsKernelActivation)c->p[0], c->p[1], c->p[2], (double)c->p[3] / 2, x[0],
                         c->p[4] ? x[1] : NULL, dy[0], dx[0], c->p[4] ? dx[1] : NULL);
}
static double naive_activation(MsKernelActivation kind, double clamp, double gate, double up) {
  if (kind == MS_KACT_GELU) return 0.5 * gate * (1 + tanh(sqrt(2 / G_PI) * (gate + 0.044715 * gate * gate * gate)));
  if (kind == MS_KACT_RELU2) return gate > 0 ? gate * gate : 0;
  if (clamp > 0) gate = MIN(gate, clamp), up = CLAMP(up, -clamp, clamp);
  if (kind == MS_KACT_SWIGLU) return gate / (1 + exp(-gate)) * up;
  return gate / (1 + exp(-1.702 * gate)) * (1 + up);
}
ORACLE(activation) {
  gboolean gated = c->p[0] == MS_KACT_SWIGLU || c->p[0] == MS_KACT_GEGLU_QUICK;
  for (gint64 i = 0; i < c->p[1] * c->p[2]; i++) {
    gint64 r = i / c->p[2], at = r * c->p[2] * (gated ? 2 : 1) + i % c->p[2];
    y[0][i] =
        naive_activation((MsKernelActivation)c->p[0], (double)c->p[3] / 2, x[0][at], x[0][gated ? at + c->p[2] : at]) *
        (c->p[4] ? x[1][r] : 1);
  }
}

static void test_dense(void **state) {
  (void)state;
  const MsKernelCase cases[] = {{"embedding", {17, 7}, {5 * 7}, {17 * 7}, .added = 1, THREE(embedding)},
                                {"embedding of one", {1, 65}, {5 * 65}, {65}, .added = 1, THREE(embedding)}};
  CHECK_ALL(cases);
  static const gint64 sizes[] = {1, 3, 7, 17, 65};
  for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
    gint64 w = sizes[i], rows = sizes[G_N_ELEMENTS(sizes) - 1 - i];
    for (int kind = 0; kind < 2; kind++) {
      const MsKernelCase norm = {
          kind ? "layer norm" : "rms norm", {kind, rows, w}, {rows * w, w, w}, {rows * w}, .added = 6,
          .constant = kind ? 0 : 4,         .bound32 = 2e-5, THREE(norm)};
      if (kind == 0 || w > 1) ms_kernel_case_check(&norm);
    }
    for (int kind = 0; kind < 4; kind++)
      for (int extra = 0; extra < 4; extra++) {
        gboolean gated = kind < 2;
        const MsKernelCase act = {"activation",
                                  {kind, rows, w, extra & 1 ? 3 : 0, extra >> 1},
                                  {rows * w * (gated ? 2 : 1), rows},
                                  {rows * w},
                                  .low = -3,
                                  .high = 3,
                                  .constant = extra >> 1 ? 0 : 2,
                                  .bound32 = 4e-6,
                                  THREE(activation)};
        ms_kernel_case_check(&act);
      }
  }
  const MsKernelCase ropes[] = {{"rope", {7, 3, 10, 10, 30}, {7 * 30}, {7 * 30}, THREE(rope)},
                                {"rope of a part", {3, 2, 17, 6, 40}, {3 * 40}, {3 * 40}, THREE(rope)},
                                {"rope, wide", {2, 1, 128, 128, 128}, {256}, {256}, THREE(rope)}};
  CHECK_ALL(ropes);
}

/* --- attention: p = batch, heads, kv heads, sq, sk, dqk, dv, window, sink, zig-zag; inputs q, k, v, sink ------- */

typedef struct {
  MsAttentionShape s;
  gint32 *q_pos, *k_pos;
} Shape;
static Shape shape_of(const MsKernelCase *c, const void *sink) {
  Shape a = {.s = {(int)c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], (int)c->p[4], (int)c->p[5], (int)c->p[6],
                   .window = (int)c->p[7], .scale = 0.4}};
  a.q_pos = g_new(gint32, a.s.sq), a.k_pos = g_new(gint32, a.s.sk);
  for (int i = 0; i < a.s.sq; i++)
    a.q_pos[i] = c->p[9] ? (i < a.s.sq / 2 ? i : a.s.sk - a.s.sq + i) : i; /* first and last part of the sequence */
  for (int i = 0; i < a.s.sk; i++) a.k_pos[i] = c->p[9] == 2 ? i + 5 : i;  /* 2: the first queries see nothing */
  a.s.q_pos = a.q_pos, a.s.k_pos = a.k_pos, a.s.sink = c->p[8] ? sink : NULL;
  return a;
}
static void shape_clear(Shape *a) { g_free(a->q_pos), g_free(a->k_pos); }

FORWARD(attention) {
  UNUSED;
  Shape a = shape_of(c, x[3]);
  k->attention_forward(run, &a.s, x[0], x[1], x[2], y[0], y[1]);
  assert_true(run->flop == 2.0 * a.s.batch * a.s.heads * (a.s.dqk + a.s.dv) * ms_attention_pairs(&a.s).multiplied);
  shape_clear(&a);
}
BACKWARD(attention) {
  UNUSED;
  Shape a = shape_of(c, x[3]);
  run->flop = 0;
  k->attention_backward(run, &a.s, x[0], x[1], x[2], y[0], y[1], dy[0], dx[0], dx[1], dx[2], c->p[8] ? dx[3] : NULL);
  assert_true(run->flop ==
              2.0 * a.s.batch * a.s.heads * (3 * a.s.dqk + 2 * a.s.dv) * ms_attention_pairs(&a.s).multiplied);
  shape_clear(&a);
}
static void naive_attention(const MsAttentionShape *a, double *const *x, double *o, double *lse) {
  g_autofree double *p = g_new(double, a->sk);
  for (int t = 0; t < a->sq; t++)
    for (int bh = 0; bh < a->batch * a->heads; bh++) {
      int head = bh % a->heads, kv = bh / a->heads * a->kv_heads + head / (a->heads / a->kv_heads),
          kvs = a->batch * a->kv_heads;
      double sum = a->sink ? exp(((const double *)a->sink)[head]) : 0;
      for (int u = 0; u < a->sk; u++) {
        double s = 0;
        for (int i = 0; i < a->dqk; i++)
          s += x[0][(t * a->batch * a->heads + bh) * a->dqk + i] * x[1][(u * kvs + kv) * a->dqk + i];
        p[u] = a->k_pos[u] <= a->q_pos[t] && (a->window == 0 || a->k_pos[u] > a->q_pos[t] - a->window)
                   ? exp(a->scale * s)
                   : 0;
        sum += p[u];
      }
      for (int i = 0; i < a->dv; i++) {
        double v = 0;
        for (int u = 0; u < a->sk; u++) v += p[u] * x[2][(u * kvs + kv) * a->dv + i];
        o[(t * a->batch * a->heads + bh) * a->dv + i] = sum > 0 ? v / sum : 0;
      }
      if (lse) lse[t * a->batch * a->heads + bh] = log(sum);
    }
}
ORACLE(attention) {
  Shape a = shape_of(c, x[3]);
  naive_attention(&a.s, x, y[0], y[1]);
  shape_clear(&a);
}
/* Only the output has a gradient: the cases say so by an output of their own. */
FORWARD(attention_o) {
  void *both[] = {y[0], g_malloc0((gsize)(c->p[0] * c->p[1] * c->p[3]) * k->real_B)};
  attention_forward(c, k, run, x, both);
  g_free(both[1]);
}
BACKWARD(attention_o) {
  void *both[] = {g_malloc0((gsize)(c->p[0] * c->p[1] * c->p[3] * c->p[6]) * k->real_B),
                  g_malloc0((gsize)(c->p[0] * c->p[1] * c->p[3]) * k->real_B)};
  run->flop = 0;
  attention_forward(c, k, run, x, both);
  attention_backward(c, k, run, x, both, dy, dx);
  (void)y, g_free(both[0]), g_free(both[1]);
}
ORACLE(attention_o) {
  Shape a = shape_of(c, x[3]);
  naive_attention(&a.s, x, y[0], NULL);
  shape_clear(&a);
}

/* Keys in two halves, merged; the backward of each half with the lse of all. */
typedef struct {
  Shape half[2];
  gint64 k_at[2], v_at[2];
} Halves;
static Halves halves_of(const MsKernelCase *c, const void *sink) {
  Halves h = {{shape_of(c, sink), shape_of(c, NULL)}, {0}, {0}};
  int cut = h.half[0].s.sk / 3;
  h.half[1].s.sink = NULL; /* the sink counts once */
  h.half[0].s.sk = cut, h.half[1].s.sk -= cut, h.half[1].s.k_pos += cut;
  h.k_at[1] = (gint64)cut * c->p[0] * c->p[2] * c->p[5], h.v_at[1] = (gint64)cut * c->p[0] * c->p[2] * c->p[6];
  return h;
}
static void halves_forward(const MsKernelCase *c, const MsKernels *k, MsKernelRun *run, const Halves *h, void *const *x,
                           void **o, void **lse) {
  gint64 rows = c->p[0] * c->p[3], n = rows * c->p[1];
  for (int i = 0; i < 2; i++) {
    o[i] = g_malloc((gsize)(n * c->p[6]) * k->real_B), lse[i] = g_malloc((gsize)n * k->real_B);
    k->attention_forward(run, &h->half[i].s, x[0], (char *)x[1] + (gsize)h->k_at[i] * k->real_B,
                         (char *)x[2] + (gsize)h->v_at[i] * k->real_B, o[i], lse[i]);
  }
  k->attention_merge(rows, (int)c->p[1], (int)c->p[6], o[0], lse[0], o[1], lse[1]);
}
FORWARD(merged) {
  UNUSED;
  Halves h = halves_of(c, x[3]);
  void *o[2], *lse[2];
  halves_forward(c, k, run, &h, x, o, lse);
  memcpy(y[0], o[0], (gsize)(c->p[0] * c->p[1] * c->p[3] * c->p[6]) * k->real_B);
  for (int i = 0; i < 2; i++) g_free(o[i]), g_free(lse[i]), shape_clear(&h.half[i]);
}
BACKWARD(merged) {
  UNUSED;
  Halves h = halves_of(c, x[3]);
  void *o[2], *lse[2];
  halves_forward(c, k, run, &h, x, o, lse);
  for (int i = 0; i < 2; i++)
    k->attention_backward(run, &h.half[i].s, x[0], (char *)x[1] + (gsize)h.k_at[i] * k->real_B,
                          (char *)x[2] + (gsize)h.v_at[i] * k->real_B, o[0], lse[0], dy[0], dx[0],
                          (char *)dx[1] + (gsize)h.k_at[i] * k->real_B, (char *)dx[2] + (gsize)h.v_at[i] * k->real_B,
                          c->p[8] && i == 0 ? dx[3] : NULL);
  for (int i = 0; i < 2; i++) g_free(o[i]), g_free(lse[i]), shape_clear(&h.half[i]);
}

/* Stored scores [batch][heads][sq][sk] and sink to probabilities. */
FORWARD(softmax) {
  UNUSED;
  Shape a = shape_of(c, x[1]);
  memcpy(y[0], x[0], (gsize)(c->p[0] * c->p[1] * c->p[3] * c->p[4]) * k->real_B);
  k->softmax_forward(&a.s, y[0]);
  shape_clear(&a);
}
BACKWARD(softmax) {
  UNUSED;
  Shape a = shape_of(c, x[1]);
  memcpy(dx[0], dy[0], (gsize)(c->p[0] * c->p[1] * c->p[3] * c->p[4]) * k->real_B);
  k->softmax_backward(&a.s, y[0], dx[0], c->p[8] ? dx[1] : NULL);
  shape_clear(&a);
}
ORACLE(softmax) {
  Shape a = shape_of(c, x[1]);
  for (gint64 r = 0; r < c->p[0] * c->p[1] * c->p[3]; r++) {
    int t = (int)(r % c->p[3]);
    double sum = a.s.sink ? exp(x[1][r / c->p[3] % c->p[1]]) : 0, *p = y[0] + r * c->p[4];
    for (int u = 0; u < c->p[4]; u++) {
      p[u] = a.k_pos[u] <= a.q_pos[t] && (a.s.window == 0 || a.k_pos[u] > a.q_pos[t] - a.s.window)
                 ? exp(x[0][r * c->p[4] + u])
                 : 0;
      sum += p[u];
    }
    for (int u = 0; u < c->p[4]; u++) p[u] = sum > 0 ? p[u] / sum : 0;
  }
  shape_clear(&a);
}

static void test_attention(void **state) {
  (void)state;
  static const gint64 shapes[][10] = {
      {1, 1, 1, 1, 1, 1, 1, 0, 0, 0},  {2, 3, 1, 7, 7, 5, 3, 0, 0, 0},   {1, 2, 2, 17, 17, 3, 7, 4, 0, 0},
      {2, 2, 1, 7, 17, 4, 4, 0, 1, 1}, {1, 2, 1, 10, 20, 3, 3, 3, 1, 2}, {1, 1, 1, 10, 3, 2, 2, 0, 0, 2},
  };
  for (size_t i = 0; i < G_N_ELEMENTS(shapes); i++) {
    const gint64 *s = shapes[i];
    MsKernelCase c = {"attention",
                      {0},
                      {s[3] * s[0] * s[1] * s[5], s[4] * s[0] * s[2] * s[5], s[4] * s[0] * s[2] * s[6], s[1]},
                      {s[3] * s[0] * s[1] * s[6]},
                      .added = 15,
                      .constant = s[8] ? 0 : 8,
                      .bound32 = 1e-5,
                      THREE(attention_o)};
    memcpy(c.p, s, sizeof shapes[0]);
    ms_kernel_case_check(&c);
    c.name = "attention in two parts", c.forward = merged_forward, c.backward = merged_backward;
    if (s[4] >= 3) ms_kernel_case_check(&c);
    c = (MsKernelCase){"attention with lse",
                       {0},
                       {s[3] * s[0] * s[1] * s[5], s[4] * s[0] * s[2] * s[5], s[4] * s[0] * s[2] * s[6], s[1]},
                       {s[3] * s[0] * s[1] * s[6], s[3] * s[0] * s[1]},
                       .bound32 = 1e-5,
                       .forward = attention_forward,
                       .oracle = attention_oracle};
    memcpy(c.p, s, sizeof shapes[0]);
    ms_kernel_case_check(&c);
    c = (MsKernelCase){"softmax of scores",
                       {0},
                       {s[0] * s[1] * s[3] * s[4], s[1]},
                       {s[0] * s[1] * s[3] * s[4]},
                       .added = 2,
                       .constant = s[8] ? 0 : 2,
                       THREE(softmax)};
    memcpy(c.p, s, sizeof shapes[0]);
    ms_kernel_case_check(&c);
  }
  /* several tiles and runs of keys, forward only: the differences would take long; the backward of the same tiles is in
   * test_tiles */
  static const gint64 large[][10] = {
      {1, 2, 1, 300, 300, 8, 5, 0, 0, 0}, {1, 1, 1, 200, 1300, 4, 4, 0, 1, 1}, {1, 1, 1, 400, 400, 4, 4, 70, 0, 0}};
  for (size_t i = 0; i < G_N_ELEMENTS(large); i++) {
    const gint64 *s = large[i];
    MsKernelCase c = {"attention, large",
                      {0},
                      {s[3] * s[0] * s[1] * s[5], s[4] * s[0] * s[2] * s[5], s[4] * s[0] * s[2] * s[6], s[1]},
                      {s[3] * s[0] * s[1] * s[6], s[3] * s[0] * s[1]},
                      .bound32 = 1e-5,
                      .forward = attention_forward,
                      .oracle = attention_oracle};
    memcpy(c.p, s, sizeof large[0]);
    ms_kernel_case_check(&c);
  }
}

/* The backward over many tiles equals that over keys one by one: attention is the sum over parts of the keys, with the
 * same lse. */
static void test_tiles(void **state) {
  (void)state;
  enum { S = 333, D = 4 };
  const MsKernels *k = ms_kernels(8);
  MsKernelRun run = {.blas = ms_blas_open(NULL, NULL)};
  gint32 pos[S];
  double x[4][S * D], o[S * D], lse[S], whole[3][S * D] = {{0}}, parts[3][S * D] = {{0}};
  for (int i = 0; i < S; i++) pos[i] = i;
  for (int i = 0; i < 4 * S * D; i++) (&x[0][0])[i] = sin(i * 0.37);
  MsAttentionShape a = {1, 1, 1, S, S, D, D, pos, pos, .scale = 0.5};
  assert_true(ms_attention_pairs(&a).visible == S * (S + 1) / 2);
  k->attention_forward(&run, &a, x[0], x[1], x[2], o, lse);
  k->attention_backward(&run, &a, x[0], x[1], x[2], o, lse, x[3], whole[0], whole[1], whole[2], NULL);
  for (int i = 0; i < S; i++) { /* one key at a time */
    MsAttentionShape one = a;
    one.sk = 1, one.k_pos = pos + i;
    k->attention_backward(&run, &one, x[0], x[1] + i * D, x[2] + i * D, o, lse, x[3], parts[0], parts[1] + i * D,
                          parts[2] + i * D, NULL);
  }
  for (int i = 0; i < 3 * S * D; i++) assert_true(fabs((&whole[0][0])[i] - (&parts[0][0])[i]) < 1e-12);
}

/* --- router: p = rows, experts, k, groups, top groups, score, normalise, forced; inputs logits, bias ----------- */

typedef struct {
  gint64 *forced;
  gint32 *which;
  gint64 *load;
  double *scores;
} Routed;
static Routed routed_new(const MsKernelCase *c) {
  Routed r = {g_new(gint64, c->p[0] + 1), g_new(gint32, c->p[0] * c->p[2] + 1), g_new0(gint64, c->p[1]),
              g_new0(double, c->p[1])};
  for (gint64 i = 0; i < c->p[0]; i++) r.forced[i] = 1000000007LL * i + 3;
  return r;
}
static void routed_clear(Routed *r) { g_free(r->forced), g_free(r->which), g_free(r->load), g_free(r->scores); }
static void route(const MsKernelCase *c, const MsKernels *k, Routed *r, void *const *x, void *prob) {
  k->router_forward(c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], (int)c->p[4], (MsKernelScore)c->p[5],
                    c->p[6] != 0, 2.5, c->p[7] ? r->forced : NULL, x[1], x[0], prob, r->which, r->load, r->scores);
}
/* Outputs: weights spread over all experts (so that the choice is seen too), sums of scores. The gradient of the sums
 * is the same for all rows. */
FORWARD(router) {
  UNUSED;
  Routed r = routed_new(c);
  void *prob = g_malloc((gsize)(c->p[0] * c->p[2]) * k->real_B);
  route(c, k, &r, x, prob);
  memset(y[0], 0, (gsize)(c->p[0] * c->p[1]) * k->real_B);
  gint64 total = 0;
  for (gint64 i = 0; i < c->p[0] * c->p[2]; i++) {
    if (i % c->p[2] > 0) assert_true(r.which[i] > r.which[i - 1]);
    memcpy((char *)y[0] + (gsize)(i / c->p[2] * c->p[1] + r.which[i]) * k->real_B, (char *)prob + (gsize)i * k->real_B,
           k->real_B);
  }
  for (gint64 e = 0; e < c->p[1]; e++) {
    total += r.load[e];
    if (k->real_B == 4) ((float *)y[1])[e] = (float)r.scores[e];
    else ((double *)y[1])[e] = r.scores[e];
  }
  assert_true(total == c->p[0] * c->p[2]);
  g_free(prob), routed_clear(&r);
}
BACKWARD(router) {
  UNUSED;
  Routed r = routed_new(c);
  void *prob = g_malloc((gsize)(c->p[0] * c->p[2]) * k->real_B);
  route(c, k, &r, x, prob);
  for (gint64 i = 0; i < c->p[0] * c->p[2]; i++)
    memcpy((char *)prob + (gsize)i * k->real_B, (char *)dy[0] + (gsize)(i / c->p[2] * c->p[1] + r.which[i]) * k->real_B,
           k->real_B);
  k->router_backward(c->p[0], (int)c->p[1], (int)c->p[2], (MsKernelScore)c->p[5], c->p[6] != 0, 2.5, x[0], r.which,
                     prob, dy[1], dx[0]);
  g_free(prob), routed_clear(&r);
}
ORACLE(router) {
  gint64 experts = c->p[1], kk = c->p[2];
  g_autofree double *s = g_new(double, experts), *group = g_new(double, experts);
  g_autofree gboolean *taken = g_new(gboolean, experts), *allowed = g_new(gboolean, experts);
  memset(y[0], 0, (gsize)(c->p[0] * experts) * sizeof(double)), memset(y[1], 0, (gsize)experts * sizeof(double));
  for (gint64 r = 0; r < c->p[0]; r++) {
    double total = 0, chosen = 0;
    for (gint64 e = 0; e < experts; e++)
      s[e] = c->p[5] == MS_KSCORE_SIGMOID ? 1 / (1 + exp(-x[0][r * experts + e])) : exp(x[0][r * experts + e]),
      total += s[e];
    for (gint64 e = 0; e < experts; e++) y[1][e] += s[e] / total, taken[e] = FALSE, allowed[e] = c->p[3] == 0;
    if (c->p[5] == MS_KSCORE_SOFTMAX)
      for (gint64 e = 0; e < experts; e++) s[e] /= total;
    for (gint64 g = 0, size = c->p[3] ? experts / c->p[3] : 0; g < c->p[3];
         g++) { /* best two of each group, in these cases */
      double first = -INFINITY, second = -INFINITY;
      for (gint64 e = g * size; e < (g + 1) * size; e++) {
        double v = s[e] + x[1][e];
        if (v > first) second = first, first = v;
        else if (v > second) second = v;
      }
      group[g] = first + second;
    }
    for (gint64 j = 0; j < c->p[4] && c->p[3]; j++) {
      gint64 best = 0;
      for (gint64 g = 1; g < c->p[3]; g++)
        if (group[g] > group[best]) best = g;
      group[best] = -INFINITY;
      for (gint64 e = 0; e < experts / c->p[3]; e++) allowed[best * (experts / c->p[3]) + e] = TRUE;
    }
    for (gint64 j = 0; j < kk; j++) {
      gint64 best = -1;
      for (gint64 e = 0; e < experts; e++)
        if (!taken[e] && allowed[e] && (best < 0 || s[e] + x[1][e] > s[best] + x[1][best])) best = e;
      if (c->p[7])
        best = (gint64)((guint64)(1000000007LL * r + 3) * (guint64)kk % (guint64)experts + (guint64)j) % experts;
      taken[best] = TRUE, chosen += s[best];
    }
    for (gint64 e = 0; e < experts; e++)
      if (taken[e]) y[0][r * experts + e] = 2.5 * (c->p[6] ? s[e] / chosen : s[e]);
  }
}

/* --- rows: p = rows, width, rows on the other side ------------------------------------------------------------- */

FORWARD(gather) {
  UNUSED;
  g_autofree gint64 *from = ms_case_longs(c->p[0], -1, c->p[2], 5);
  k->gather_rows(c->p[0], c->p[1], from, x[0], y[0]);
}
BACKWARD(gather) {
  UNUSED;
  g_autofree gint64 *from = ms_case_longs(c->p[0], -1, c->p[2], 5);
  k->scatter_rows(c->p[0], c->p[1], from, NULL, dy[0], c->p[2], dx[0]);
}
ORACLE(gather) {
  g_autofree gint64 *from = ms_case_longs(c->p[0], -1, c->p[2], 5);
  for (gint64 i = 0; i < c->p[0] * c->p[1]; i++)
    y[0][i] = from[i / c->p[1]] < 0 ? 0 : x[0][from[i / c->p[1]] * c->p[1] + i % c->p[1]];
}
FORWARD(scatter) {
  UNUSED;
  g_autofree gint64 *to = ms_case_longs(c->p[0], -1, c->p[2], 5);
  k->scatter_rows(c->p[0], c->p[1], to, x[1], x[0], c->p[2], y[0]);
}
BACKWARD(scatter) {
  UNUSED;
  g_autofree gint64 *to = ms_case_longs(c->p[0], -1, c->p[2], 5);
  k->gather_rows(c->p[0], c->p[1], to, dy[0], dx[0]);
  for (gint64 i = 0; i < c->p[0]; i++) { /* times the weight */
    double w = k->real_B == 4 ? (double)((float *)x[1])[i] : ((double *)x[1])[i];
    k->scale(c->p[1], w, (char *)dx[0] + (gsize)(i * c->p[1]) * k->real_B);
  }
  k->scatter_weight_grad(c->p[0], c->p[1], to, x[0], dy[0], dx[1]);
}
ORACLE(scatter) {
  g_autofree gint64 *to = ms_case_longs(c->p[0], -1, c->p[2], 5);
  memset(y[0], 0, (gsize)(c->p[2] * c->p[1]) * sizeof(double));
  for (gint64 i = 0; i < c->p[0] * c->p[1]; i++)
    if (to[i / c->p[1]] >= 0) y[0][to[i / c->p[1]] * c->p[1] + i % c->p[1]] += x[1][i / c->p[1]] * x[0][i];
}

static void test_route(void **state) {
  (void)state;
  for (int variant = 0; variant < 16; variant++) {
    gint64 score = variant & 1, normal = variant >> 1 & 1, forced = variant >> 2 & 1, groups = variant >> 3 & 1;
    const MsKernelCase cases[] = {{"router",
                                   {17, 12, 4, groups ? 4 : 0, groups ? 2 : 0, score, normal, forced},
                                   {17 * 12, 12},
                                   {17 * 12, 12},
                                   .constant = 2,
                                   .bound32 = 1e-5,
                                   THREE(router)},
                                  {"router, one of many",
                                   {3, 65, 1, 0, 0, score, normal, forced},
                                   {3 * 65, 65},
                                   {3 * 65, 65},
                                   .constant = 2,
                                   .bound32 = 1e-5,
                                   THREE(router)}};
    CHECK_ALL(cases);
  }
  const MsKernelCase cases[] = {{"gather", {17, 7, 5}, {5 * 7}, {17 * 7}, THREE(gather)},
                                {"gather of one", {1, 65, 2}, {2 * 65}, {65}, THREE(gather)},
                                {"scatter", {17, 7, 5}, {17 * 7, 17}, {5 * 7}, THREE(scatter)},
                                {"scatter, wide", {3, 65, 7}, {3 * 65, 3}, {7 * 65}, THREE(scatter)}};
  CHECK_ALL(cases);
}

/* --- cross entropy over two shards of the words: p = rows, words; output: loss of each row --------------------- */

typedef struct {
  void *part[2], *max[2], *sum[2], *target[2];
  gint64 first[2], count[2];
  gint32 *words;
} Loss;
static Loss loss_new(const MsKernelCase *c, const MsKernels *k, const void *logits) {
  gint64 rows = c->p[0], words = c->p[1];
  Loss l = {
      .first = {0, words / 3}, .count = {words / 3, words - words / 3}, .words = ms_case_ints(rows, (gint32)words, 9)};
  for (int i = 0; i < 2; i++) {
    l.part[i] = g_malloc((gsize)(rows * MAX(l.count[i], 1)) * k->real_B), l.max[i] = g_malloc((gsize)rows * k->real_B);
    l.sum[i] = g_malloc((gsize)rows * k->real_B), l.target[i] = g_malloc((gsize)rows * k->real_B);
    for (gint64 r = 0; r < rows; r++)
      memcpy((char *)l.part[i] + (gsize)(r * l.count[i]) * k->real_B,
             (const char *)logits + (gsize)(r * words + l.first[i]) * k->real_B, (gsize)l.count[i] * k->real_B);
    k->loss_max(rows, l.count[i], l.part[i], l.max[i]);
  }
  for (gint64 r = 0; r < rows; r++)
    ms_case_set(k, l.max[0], r, MAX(ms_case_get(k, l.max[0], r), ms_case_get(k, l.max[1], r)));
  for (int i = 0; i < 2; i++)
    k->loss_exp(rows, l.count[i], (gint32)l.first[i], l.words, l.max[0], l.part[i], l.sum[i], l.target[i]);
  k->add(rows, l.sum[0], l.sum[1], l.sum[0]);
  k->add(rows, l.target[0], l.target[1], l.target[0]);
  return l;
}
static void loss_clear(Loss *l) {
  for (int i = 0; i < 2; i++) g_free(l->part[i]), g_free(l->max[i]), g_free(l->sum[i]), g_free(l->target[i]);
  g_free(l->words);
}
FORWARD(loss) {
  UNUSED;
  Loss l = loss_new(c, k, x[0]);
  for (gint64 r = 0; r < c->p[0]; r++)
    ms_case_set(k, y[0], r, log(ms_case_get(k, l.sum[0], r)) - ms_case_get(k, l.target[0], r));
  loss_clear(&l);
}
BACKWARD(loss) { /* the scale is one number: rows one by one */
  UNUSED;
  Loss l = loss_new(c, k, x[0]);
  for (gint64 r = 0; r < c->p[0]; r++)
    for (int i = 0; i < 2; i++) {
      char *part = (char *)l.part[i] + (gsize)(r * l.count[i]) * k->real_B;
      k->loss_grad(1, l.count[i], (gint32)l.first[i], l.words + r, (char *)l.sum[0] + (gsize)r * k->real_B,
                   ms_case_get(k, dy[0], r), part);
      memcpy((char *)dx[0] + (gsize)(r * c->p[1] + l.first[i]) * k->real_B, part, (gsize)l.count[i] * k->real_B);
    }
  loss_clear(&l);
}
ORACLE(loss) {
  g_autofree gint32 *word = ms_case_ints(c->p[0], (gint32)c->p[1], 9);
  for (gint64 r = 0; r < c->p[0]; r++) {
    double sum = 0;
    for (gint64 w = 0; w < c->p[1]; w++) sum += exp(x[0][r * c->p[1] + w]);
    y[0][r] = log(sum) - x[0][r * c->p[1] + word[r]];
  }
}

/* --- element by element: p = n (rows, cols) -------------------------------------------------------------------- */

FORWARD(adam) {
  UNUSED;
  gint64 n = c->p[0];
  for (int i = 0; i < 3; i++) memcpy(y[i], x[1 + i], (gsize)n * k->real_B);
  k->adam(n, 0.01, 0.9, 0.95, 1e-8, 0.1, 0.5, 3, x[0], y[0], y[1], y[2], y[3]);
}
ORACLE(adam) {
  for (gint64 i = 0; i < c->p[0]; i++) {
    double g = 0.5 * x[0][i], m = 0.9 * x[2][i] + 0.1 * g, v = 0.95 * x[3][i] + 0.05 * g * g;
    y[1][i] = m, y[2][i] = v;
    y[0][i] = y[3][i] =
        x[1][i] - 0.01 * (m / (1 - pow(0.9, 3)) / (sqrt(v / (1 - pow(0.95, 3))) + 1e-8) + 0.1 * x[1][i]);
  }
}
FORWARD(plain) { /* add, scale, transpose, sum of squares, largest */
  UNUSED;
  gint64 n = c->p[0] * c->p[1];
  k->add(n, x[0], x[1], y[0]);
  k->scale(n, 3, y[0]);
  k->transpose(c->p[0], c->p[1], x[0], y[1]);
  ms_case_set(k, y[2], 0, k->sum_squares(n, x[0]));
  ms_case_set(k, y[3], 0, k->amax(n, x[0]));
}
ORACLE(plain) {
  gint64 n = c->p[0] * c->p[1];
  y[2][0] = y[3][0] = 0;
  for (gint64 i = 0; i < n; i++) {
    y[0][i] = 3 * (x[0][i] + x[1][i]);
    y[1][i % c->p[1] * c->p[0] + i / c->p[1]] = x[0][i];
    y[2][0] += x[0][i] * x[0][i];
    y[3][0] = MAX(y[3][0], fabs(x[0][i]));
  }
}

static void test_plain(void **state) {
  (void)state;
  static const gint64 sizes[] = {1, 3, 7, 17, 65};
  for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
    gint64 n = sizes[i], m = sizes[G_N_ELEMENTS(sizes) - 1 - i];
    const MsKernelCase cases[] = {
        {"cross entropy", {m, n + 2}, {m * (n + 2)}, {m}, .bound32 = 4e-6, THREE(loss)},
        {"adam",
         {n},
         {n, n, n, n},
         {n, n, n, n},
         .low = 0.1,
         .high = 1,
         .forward = adam_forward,
         .oracle = adam_oracle},
        {"plain", {m, n}, {m * n, m * n}, {m * n, m * n, 1, 1}, .forward = plain_forward, .oracle = plain_oracle}};
    CHECK_ALL(cases);
  }
  const MsKernelCase many = {
      "plain, many", {99, 101}, {9999, 9999}, {9999, 9999, 1, 1}, .forward = plain_forward, .oracle = plain_oracle};
  ms_kernel_case_check(&many);
}

/* --- extreme values: nothing becomes infinite or NaN ----------------------------------------------------------- */

static void assert_finite(const MsKernels *k, gint64 n, const void *x, const char *what) {
  for (gint64 i = 0; i < n; i++)
    if (!isfinite(ms_case_get(k, x, i)))
      fail_msg("%s, %s: element %d is %g", k->unit, what, (int)i, ms_case_get(k, x, i));
}

static void extreme(const MsKernels *k, double size) {
  enum { S = 9, D = 4, N = S * D };
  MsKernelRun run = {.blas = ms_blas_open(NULL, NULL)};
  g_autofree double *memory = g_new0(double, 12 * N);
  void *x = memory, *gain = memory + N, *out = memory + 2 * N, *lse = memory + 3 * N, *d = memory + 4 * N,
       *dq = memory + 5 * N, *dk = memory + 6 * N, *dv = memory + 7 * N, *aux = memory + 8 * N, *half = memory + 10 * N;
  gint32 pos[S], which[S];
  gint64 load[S] = {0};
  for (int i = 0; i < N; i++)
    ms_case_set(k, x, i, (i % 3 - 1) * size), ms_case_set(k, gain, i, 1), ms_case_set(k, d, i, 1);
  for (int i = 0; i < S; i++) pos[i] = i;
  MsAttentionShape a = {1, 1, 1, S, S, D, D, pos, pos, .scale = 1 / size};
  k->attention_forward(&run, &a, x, x, x, out, lse);
  k->attention_backward(&run, &a, x, x, x, out, lse, d, dq, dk, dv, NULL);
  assert_finite(k, N, out, "attention"), assert_finite(k, S, lse, "lse"), assert_finite(k, N, dq, "dq"),
      assert_finite(k, N, dk, "dk"), assert_finite(k, N, dv, "dv");
  for (int kind = 0; kind < 4; kind++) {
    k->activation_forward((MsKernelActivation)kind, S, D / 2, 0, x, NULL, out);
    k->activation_backward((MsKernelActivation)kind, S, D / 2, 0, x, NULL, d, dq, NULL);
    assert_finite(k, N / 2, out, "activation"), assert_finite(k, kind < 2 ? N : N / 2, dq, "activation backward");
  }
  for (int kind = 0; kind < 2; kind++) {
    k->norm_forward((MsKernelNorm)kind, S, D, 1e-6, x, gain, aux, out);
    k->norm_backward((MsKernelNorm)kind, S, D, 1e-6, x, gain, d, dq, dk, dv);
    assert_finite(k, N, out, "norm"), assert_finite(k, N, dq, "norm backward");
    k->router_forward(S, D, 1, 0, 0, (MsKernelScore)kind, TRUE, 1, NULL, NULL, x, half, which, load, NULL);
    k->router_backward(S, D, 1, (MsKernelScore)kind, TRUE, 1, x, which, d, d, dq);
    assert_finite(k, S, half, "router"), assert_finite(k, N, dq, "router backward");
  }
  memset(pos, 0, sizeof pos);
  k->loss_max(S, D, x, aux);
  k->loss_exp(S, D, 0, pos, aux, x, half, lse);
  assert_finite(k, N, x, "loss"), assert_finite(k, S, half, "sums of the loss"),
      assert_finite(k, S, lse, "logits of the target");
  k->loss_grad(S, D, 0, pos, half, 1, x);
  assert_finite(k, N, x, "gradient of the loss");
}

static void test_extremes(void **state) {
  (void)state;
  for (size_t real_B = 4; real_B <= 8; real_B += 4)
    for (int unit = 0; ms_kernels_of_unit(real_B, unit); unit++)
      for (double size = 1; size < 2e12; size *= 1e4) extreme(ms_kernels_of_unit(real_B, unit), size);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemm),      cmocka_unit_test(test_dense),
                                     cmocka_unit_test(test_attention), cmocka_unit_test(test_tiles),
                                     cmocka_unit_test(test_route),     cmocka_unit_test(test_plain),
                                     cmocka_unit_test(test_extremes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
