/* tests/unit/test_kernels_sequence.c - the CPU kernels of sparse attention, pooled keys and mixers with a state,
 * against oracles that go token by token and central differences (tests/lib/kernel_case.h); their FLOP. */
#include <string.h>

#include "lib/close.h"
#include "lib/kernel_case.h"
#include "lib/tier.h"

/* --- sparse attention: p = batch, heads, kv heads, sq, sk, dqk, dv, keys, sink, value in key; inputs q, k, v, sink ---
 */

typedef struct {
  MsSparseShape s;
  gint32 *chosen;
  gint64 pairs;
} Sparse;
static Sparse sparse_of(const MsKernelCase *c, const void *sink) {
  const gint64 *p = c->p;
  Sparse a = {.s = {(int)p[0], (int)p[1], (int)p[2], (int)p[3], (int)p[4], (int)p[5], (int)p[6], (int)p[7], 0.4,
                    p[8] ? sink : NULL, p[9] != 0}};
  a.chosen = g_new(gint32, p[0] * p[3] * p[7]);
  for (gint64 i = 0; i < p[0] * p[3] * p[7];
       i++) { /* row r: every third key from r on, some places empty; row 1 sees nothing */
    gint64 r = i / p[7], j = i % p[7];
    a.chosen[i] = r == 1 || (r + j) % 5 == 4 ? -1 : (gint32)((r + 3 * j) % p[4]);
    a.pairs += a.chosen[i] >= 0;
  }
  return a;
}
FORWARD(sparse) {
  UNUSED;
  Sparse a = sparse_of(c, x[3]);
  void *lse = g_malloc((gsize)(c->p[0] * c->p[1] * c->p[3]) * k->real_B);
  k->sparse_attention_forward(run, &a.s, x[0], x[1], a.s.value_in_key ? NULL : x[2], a.chosen, y[0], lse);
  assert_true(run->flop == 2.0 * a.s.heads * (a.s.dqk + a.s.dv) * (double)a.pairs);
  g_free(lse), g_free(a.chosen);
}
BACKWARD(sparse) {
  UNUSED;
  Sparse a = sparse_of(c, x[3]);
  void *lse = g_malloc((gsize)(c->p[0] * c->p[1] * c->p[3]) * k->real_B), *v = a.s.value_in_key ? NULL : x[2];
  k->sparse_attention_forward(run, &a.s, x[0], x[1], v, a.chosen, y[0], lse);
  run->flop = 0;
  k->sparse_attention_backward(run, &a.s, x[0], x[1], v, a.chosen, y[0], lse, dy[0], dx[0], dx[1], v ? dx[2] : NULL,
                               c->p[8] ? dx[3] : NULL);
  assert_true(run->flop == 2.0 * a.s.heads * (3 * a.s.dqk + 2 * a.s.dv) * (double)a.pairs);
  g_free(lse), g_free(a.chosen);
}
ORACLE(sparse) {
  Sparse a = sparse_of(c, x[3]);
  const MsSparseShape *s = &a.s;
  for (int row = 0; row < s->sq * s->batch; row++)
    for (int head = 0; head < s->heads; head++) {
      double sum = s->sink ? exp(x[3][head]) : 0, *o = y[0] + ((gint64)row * s->heads + head) * s->dv;
      int kv = row % s->batch * s->kv_heads + head / (s->heads / s->kv_heads), kvs = s->batch * s->kv_heads;
      memset(o, 0, (gsize)s->dv * sizeof *o);
      for (int j = 0; j < s->keys; j++) {
        int at = a.chosen[row * s->keys + j];
        double dot = 0;
        if (at < 0) continue;
        for (int i = 0; i < s->dqk; i++)
          dot += x[0][((gint64)row * s->heads + head) * s->dqk + i] * x[1][((gint64)at * kvs + kv) * s->dqk + i];
        double p = exp(s->scale * dot);
        sum += p;
        for (int i = 0; i < s->dv; i++)
          o[i] += p * (s->value_in_key ? x[1][((gint64)at * kvs + kv) * s->dqk + i]
                                       : x[2][((gint64)at * kvs + kv) * s->dv + i]);
      }
      for (int i = 0; i < s->dv && sum > 0; i++) o[i] /= sum;
    }
  g_free(a.chosen);
}

/* --- indexer: p = batch, heads, sq, sk, d; scores with 0 where the key is later -------------------------------- */

FORWARD(indexer) {
  UNUSED;
  gint32 pos[256];
  for (int i = 0; i < 256; i++) pos[i] = i;
  MsIndexerShape s = {(int)c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], (int)c->p[4], pos, pos};
  k->indexer_forward(run, &s, x[0], x[1], x[2], y[0]);
  for (gint64 i = 0; i < c->out[0]; i++)
    if (i % c->p[3] > i / c->p[3] / c->p[0]) {
      assert_true(isinf(ms_case_get(k, y[0], i)));
      ms_case_set(k, y[0], i, 0);
    }
}
ORACLE(indexer) {
  for (gint64 i = 0; i < c->out[0]; i++) {
    gint64 key = i % c->p[3], row = i / c->p[3], b = row % c->p[0];
    y[0][i] = 0;
    for (gint64 head = 0; head < c->p[1] && key <= row / c->p[0]; head++) {
      double dot = 0;
      for (gint64 j = 0; j < c->p[4]; j++)
        dot += x[0][(row * c->p[1] + head) * c->p[4] + j] * x[1][(key * c->p[0] + b) * c->p[4] + j];
      y[0][i] += x[2][row * c->p[1] + head] * MAX(dot, 0);
    }
  }
}

/* The loss as a function of the indexer's q, k, w; inputs 3, 4 are q and k of the attention. p = batch, heads, sq, sk,
 * d, core heads, dqk, keys. */
static Sparse core_of(const MsKernelCase *c) {
  MsKernelCase like = {.p = {c->p[0], c->p[5], 1, c->p[2], c->p[3], c->p[6], 1, c->p[7], 0, 0}};
  return sparse_of(&like, NULL);
}
static double indexer_loss_of(const MsKernelCase *c, const MsKernels *k, MsKernelRun *run, void *const *x, void **dx) {
  Sparse core = core_of(c);
  MsIndexerShape s = {(int)c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], (int)c->p[4], NULL, NULL};
  gint64 rows = c->p[0] * c->p[2], heads = c->p[5];
  void *lse = g_malloc((gsize)(rows * heads) * k->real_B), *o = g_malloc((gsize)(rows * heads) * k->real_B),
       *v = g_malloc0((gsize)(c->p[0] * c->p[3]) * k->real_B);
  k->sparse_attention_forward(run, &core.s, x[3], x[4], v, core.chosen, o, lse);
  run->flop = 0;
  double loss =
      k->indexer_loss(run, &s, x[0], x[1], x[2], &core.s, x[3], x[4], lse, core.chosen, 0.7, dx[0], dx[1], dx[2]);
  assert_true(run->flop == 2.0 * (double)core.pairs * (double)(heads * c->p[6] + 3 * c->p[1] * c->p[4]));
  g_free(lse), g_free(o), g_free(v), g_free(core.chosen);
  return loss;
}
FORWARD(indexer_loss) {
  UNUSED;
  void *dx[3];
  for (int i = 0; i < 3; i++) dx[i] = g_malloc0((gsize)c->in[i] * k->real_B);
  ms_case_set(k, y[0], 0, indexer_loss_of(c, k, run, x, dx));
  for (int i = 0; i < 3; i++) g_free(dx[i]);
}
BACKWARD(indexer_loss) { /* times dy of the one output */
  UNUSED;
  void *d[3];
  double by = ms_case_get(k, dy[0], 0);
  for (int i = 0; i < 3; i++) d[i] = g_malloc0((gsize)c->in[i] * k->real_B);
  indexer_loss_of(c, k, run, x, d);
  for (int i = 0; i < 3; i++) {
    k->scale(c->in[i], by, d[i]);
    memcpy(dx[i], d[i], (gsize)c->in[i] * k->real_B), g_free(d[i]);
  }
}
ORACLE(indexer_loss) {
  Sparse core = core_of(c);
  gint64 heads = c->p[1], d = c->p[4], core_heads = c->p[5], dqk = c->p[6];
  int keys = (int)c->p[7];
  g_autofree double *p = g_new(double, keys), *s = g_new(double, keys), *e = g_new(double, keys);
  y[0][0] = 0;
  for (gint64 row = 0; row < c->p[0] * c->p[2]; row++) {
    gint64 b = row % c->p[0];
    const gint32 *at = core.chosen + row * keys;
    double all = 0, sum_s = 0;
    memset(p, 0, (gsize)keys * sizeof *p), memset(s, 0, (gsize)keys * sizeof *s);
    for (gint64 head = 0; head < core_heads; head++) {
      double sum = 0;
      for (int j = 0; j < keys; j++) {
        double dot = 0;
        for (gint64 i = 0; i < dqk && at[j] >= 0; i++)
          dot += x[3][(row * core_heads + head) * dqk + i] * x[4][(at[j] * c->p[0] + b) * dqk + i];
        e[j] = at[j] < 0 ? 0 : exp(0.4 * dot), sum += e[j];
      }
      for (int j = 0; j < keys && sum > 0; j++) p[j] += e[j] / sum / (double)core_heads;
    }
    for (int j = 0; j < keys; j++) {
      for (gint64 head = 0; head < heads && at[j] >= 0; head++) {
        double dot = 0;
        for (gint64 i = 0; i < d; i++) dot += x[0][(row * heads + head) * d + i] * x[1][(at[j] * c->p[0] + b) * d + i];
        s[j] += x[2][row * heads + head] * MAX(dot, 0);
      }
      if (at[j] >= 0) sum_s += exp(s[j]), all += p[j];
    }
    for (int j = 0; j < keys; j++)
      if (p[j] > 0) y[0][0] += 0.7 * p[j] / all * (log(p[j] / all) - s[j] + log(sum_s));
  }
  g_free(core.chosen);
}

static void test_sparse(void **state) {
  (void)state;
  static const gint64 shapes[][10] = {{1, 2, 2, 5, 7, 3, 4, 3, 0, 0},
                                      {2, 4, 2, 7, 17, 5, 3, 5, 1, 0},
                                      {2, 3, 1, 7, 17, 5, 3, 4, 0, 1},
                                      {1, 2, 1, 3, 65, 3, 3, 17, 1, 1}};
  for (size_t i = 0; i < G_N_ELEMENTS(shapes); i++) {
    const gint64 *s = shapes[i];
    MsKernelCase c = {"sparse attention",
                      {0},
                      {s[3] * s[0] * s[1] * s[5], s[4] * s[0] * s[2] * s[5], s[4] * s[0] * s[2] * s[6], s[1]},
                      {s[3] * s[0] * s[1] * s[6]},
                      .added = 15,
                      .constant = (s[8] ? 0 : 8) | (s[9] ? 4 : 0),
                      .bound32 = 1e-5,
                      THREE(sparse)};
    memcpy(c.p, s, sizeof shapes[0]);
    ms_kernel_case_check(&c);
  }
  const MsKernelCase cases[] = {{"indexer",
                                 {2, 3, 7, 17, 5},
                                 {7 * 2 * 3 * 5, 17 * 2 * 5, 7 * 2 * 3},
                                 {7 * 2 * 17},
                                 .forward = indexer_forward,
                                 .oracle = indexer_oracle},
                                {"indexer, tiles",
                                 {1, 2, 150, 130, 3},
                                 {150 * 6, 130 * 3, 300},
                                 {150 * 130},
                                 .forward = indexer_forward,
                                 .oracle = indexer_oracle},
                                {"indexer loss",
                                 {2, 3, 3, 17, 4, 2, 3, 5},
                                 {3 * 2 * 3 * 4, 17 * 2 * 4, 3 * 2 * 3, 3 * 2 * 2 * 3, 17 * 2 * 3},
                                 {1},
                                 .low = -1,
                                 .high = 1,
                                 .constant = 24,
                                 .bound32 = 2e-5,
                                 THREE(indexer_loss)}};
  CHECK_ALL(cases);
}

static void test_topk(void **state) {
  (void)state;
  const gint64 sizes[] = {1, 3, 7, 17, 65, 400}, ROWS = ms_by_tier(40, 200);
  for (size_t real_B = 4; real_B <= 8; real_B += 4)
    for (size_t a = 0; a < G_N_ELEMENTS(sizes); a++)
      for (size_t b = 0; b < G_N_ELEMENTS(sizes); b++) {
        const MsKernels *k = ms_kernels(real_B);
        gint64 n = sizes[a], most = sizes[b];
        g_autofree gint32 *value = ms_case_ints(ROWS * n, 50, (guint32)(a + 7 * b)),
                          *chosen = g_new(gint32, ROWS * most); /* many ties */
        g_autofree double *scores = g_new(double, ROWS *n);
        for (gint64 i = 0; i < ROWS * n; i++)
          ms_case_set(k, scores, i, value[i] < 10 ? -INFINITY : value[i] > 10 ? value[i] : i & 1 ? -0.0 : 0.0);
        k->topk(ROWS, n, most, scores, chosen);
        for (gint64 r = 0; r < ROWS; r++) {
          gint64 found = 0, seen = 0;
          for (gint64 i = 0; i < n;
               i++) { /* chosen are those with fewer than `most` better ones, or equal ones before */
            gint64 better = 0;
            if (value[r * n + i] < 10) continue;
            seen++;
            for (gint64 j = 0; j < n; j++)
              better += value[r * n + j] > value[r * n + i] || (value[r * n + j] == value[r * n + i] && j < i);
            if (better < most) assert_int_equal(chosen[r * most + found++], i);
          }
          assert_int_equal(found, MIN(seen, most));
          while (found < most) assert_int_equal(chosen[r * most + found++], -1);
        }
      }
}

/* --- pooled keys: p = batch, groups, ratio, halves, width; inputs x, positions --------------------------------- */

static MsPoolShape pool_of(const MsKernelCase *c) {
  return (MsPoolShape){(int)c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], (int)c->p[4]};
}
FORWARD(pool) {
  UNUSED;
  MsPoolShape s = pool_of(c);
  k->pool_forward(&s, x[0], x[1], y[0]);
}
BACKWARD(pool) {
  UNUSED;
  MsPoolShape s = pool_of(c);
  k->pool_backward(&s, x[0], x[1], y[0], dy[0], dx[0], dx[1]);
}
ORACLE(pool) {
  MsPoolShape s = pool_of(c);
  for (int g = 0; g < s.groups; g++)
    for (int b = 0; b < s.batch; b++)
      for (int i = 0; i < s.width; i++) {
        double sum = 0, value = 0;
        for (int t = (g - (s.halves == 2)) * s.ratio; t < (g + 1) * s.ratio; t++) {
          int half = t >= g * s.ratio ? s.halves - 1 : 0;
          if (t < 0) continue;
          gint64 at = (((gint64)t * s.batch + b) * 2 * s.halves + half) * s.width + i;
          double e = exp(x[0][at + s.halves * s.width] + x[1][(t % s.ratio * s.halves + half) * s.width + i]);
          sum += e, value += e * x[0][at];
        }
        y[0][((gint64)g * s.batch + b) * s.width + i] = value / sum;
      }
}

/* --- convolution: p = batch, s, width, taps, silu, bias, stride; x, w, bias ------------------------------------ */

static MsConvShape conv_of(const MsKernelCase *c) {
  return (MsConvShape){(int)c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], c->p[6], c->p[4] != 0};
}
FORWARD(conv) {
  UNUSED;
  MsConvShape s = conv_of(c);
  k->conv_forward(&s, x[0], x[1], c->p[5] ? x[2] : NULL, y[0]);
}
BACKWARD(conv) {
  UNUSED;
  MsConvShape s = conv_of(c);
  k->zero(c->in[0], dx[0]); /* what lies between the rows */
  k->conv_backward(&s, x[0], x[1], c->p[5] ? x[2] : NULL, dy[0], dx[0], dx[1], c->p[5] ? dx[2] : NULL);
}
ORACLE(conv) {
  MsConvShape s = conv_of(c);
  for (int t = 0; t < s.s; t++)
    for (int b = 0; b < s.batch; b++)
      for (int i = 0; i < s.width; i++) {
        double sum = c->p[5] ? x[2][i] : 0;
        for (int j = 0; j < s.taps; j++)
          if (t - s.taps + 1 + j >= 0)
            sum += x[1][i * s.taps + j] * x[0][((t - s.taps + 1 + j) * s.batch + b) * s.x_stride + i];
        y[0][(t * s.batch + b) * s.width + i] = s.silu ? sum / (1 + exp(-sum)) : sum;
      }
}

/* --- FLOP of chunked kernels: products as kernel_linear.inc and kernel_delta.inc make them, chunk by chunk --- */

/* FLOP that the kernels of these shapes must add to run->flop: products of whole chunks, of which the registry counts
 * half, the lower triangle. Per token and forward: scan 2 C state groups + 2 C inner + 4 inner state with C =
 * MS_SCAN_CHUNK, where the row has C state groups + C inner + 4 inner state; delta rule 2 (3 dk dv) + 2 C (2 dk + 2 dv)
 * + C^2 / 3 (the inverse) per head with C = MS_DELTA_TOKENS, where ms_delta_work has 2 (3 dk dv) + C (3 dk + 2 dv): it
 * applies the inverse to keys and values apart, as a GPU does, to work on all chunks at once. Exact here, with a
 * shorter last chunk. */
static double chunked(double tokens, double chunk,
                      double (*of)(double n, gboolean last, const void *shape, gboolean back), const void *shape,
                      gboolean back) {
  double flop = 0;
  for (double from = 0; from < tokens; from += chunk)
    flop += of(MIN(chunk, tokens - from), from + chunk >= tokens, shape, back);
  return flop;
}

static double scan_chunk_flop(double n, gboolean last, const void *data, gboolean back) {
  const MsScanShape *s = data;
  double groups = s->groups, inner = (double)s->heads * s->head_dim, scores = 2 * n * n * s->state * groups,
         square = 2 * n * n * inner, state = 2 * n * inner * s->state;
  if (!back) return scores + square + 2 * state;
  return 3 * scores + 2 * square + 5 * state + (last ? 0 : state); /* the last chunk's state is not made again */
}
static double scan_flop(const MsScanShape *s, gboolean back) {
  return s->batch * chunked(s->s, MS_SCAN_CHUNK, scan_chunk_flop, s, back);
}

static double delta_chunk_flop(double n, gboolean last, const void *data, gboolean back) {
  const MsDeltaShape *s = data;
  double keys = 2 * n * n * s->dk, values = 2 * n * n * s->dv, state = 2 * n * s->dk * s->dv;
  if (!back) return 2 * keys + 2 * values + 3 * state + (n - 1) * n * (n + 1) / 3;
  return 6 * keys + 5 * values + 8 * state + (last ? 0 : 2 * state + values);
}
static double delta_flop(const MsDeltaShape *s, gboolean back) {
  return (double)s->batch * s->heads * chunked(s->s, MS_DELTA_TOKENS, delta_chunk_flop, s, back);
}

/* --- scan: p = batch, s, heads, head dim, groups, state; everything is one row [x, B, C, dt] per token; then a_log,
 * dt_bias, D --- */

static MsScanShape scan_of(const MsKernelCase *c) {
  const gint64 *p = c->p, row = p[2] * p[3] + 2 * p[4] * p[5] + p[2];
  return (MsScanShape){(int)p[0], (int)p[1], (int)p[2], (int)p[3], (int)p[4], (int)p[5], row, row, row, row};
}
typedef struct {
  gint64 b, c, dt;
} Places; /* in the row */
static Places places_of(const MsScanShape *s) {
  gint64 inner = (gint64)s->heads * s->head_dim, bc = (gint64)s->groups * s->state;
  return (Places){inner, inner + bc, inner + 2 * bc};
}
static void *place(const MsKernels *k, void *x, gint64 at) { return (char *)x + (gsize)at * k->real_B; }
FORWARD(scan) {
  UNUSED;
  MsScanShape s = scan_of(c);
  Places p = places_of(&s);
  k->scan_forward(run, &s, x[0], place(k, x[0], p.b), place(k, x[0], p.c), place(k, x[0], p.dt), x[1], x[2], x[3],
                  y[0]);
  assert_close(run->flop, scan_flop(&s, FALSE), 1e-12);
}
BACKWARD(scan) {
  UNUSED;
  MsScanShape s = scan_of(c);
  Places p = places_of(&s);
  run->flop = 0;
  k->scan_backward(run, &s, x[0], place(k, x[0], p.b), place(k, x[0], p.c), place(k, x[0], p.dt), x[1], x[2], x[3],
                   dy[0], dx[0], place(k, dx[0], p.b), place(k, dx[0], p.c), place(k, dx[0], p.dt), dx[1], dx[2],
                   dx[3]);
  assert_close(run->flop, scan_flop(&s, TRUE), 1e-12);
}
ORACLE(scan) {
  MsScanShape s = scan_of(c);
  Places at = places_of(&s);
  g_autofree double *h = g_new(double, s.state *s.head_dim);
  for (int b = 0; b < s.batch; b++)
    for (int head = 0; head < s.heads; head++) {
      int group = head / (s.heads / s.groups);
      memset(h, 0, (gsize)(s.state * s.head_dim) * sizeof *h);
      for (int t = 0; t < s.s; t++) {
        const double *row = x[0] + ((gint64)t * s.batch + b) * s.x_stride, *bt = row + at.b + group * s.state,
                     *ct = row + at.c + group * s.state;
        double step = log1p(exp(row[at.dt + head] + x[2][head])), decay = exp(-exp(x[1][head]) * step);
        for (int p = 0; p < s.head_dim; p++) {
          double xt = row[head * s.head_dim + p], out = x[3][head] * xt;
          for (int n = 0; n < s.state; n++) {
            h[n * s.head_dim + p] = decay * h[n * s.head_dim + p] + step * bt[n] * xt;
            out += ct[n] * h[n * s.head_dim + p];
          }
          y[0][(((gint64)t * s.batch + b) * s.heads + head) * s.head_dim + p] = out;
        }
      }
    }
}

/* --- delta rule: p = batch, s, heads, dk, dv; q, k, v, g (made <= 0), beta, state; outputs o, state ------------ */

static MsDeltaShape delta_of(const MsKernelCase *c) {
  return (MsDeltaShape){(int)c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], (int)c->p[4], 0.5};
}
FORWARD(delta) {
  UNUSED;
  MsDeltaShape s = delta_of(c);
  void *inverse = g_malloc((gsize)(c->p[0] * c->p[1] * c->p[2] * MS_DELTA_TOKENS) * k->real_B);
  k->delta_forward(run, &s, x[0], x[1], x[2], x[3], x[4], x[5], y[0], inverse, y[1]);
  assert_close(run->flop, delta_flop(&s, FALSE), 1e-12);
  g_free(inverse);
}
BACKWARD(delta) {
  UNUSED;
  MsDeltaShape s = delta_of(c);
  void *inverse = g_malloc((gsize)(c->p[0] * c->p[1] * c->p[2] * MS_DELTA_TOKENS) * k->real_B);
  k->delta_forward(run, &s, x[0], x[1], x[2], x[3], x[4], x[5], y[0], inverse, y[1]);
  run->flop = 0;
  k->delta_backward(run, &s, x[0], x[1], x[2], x[3], x[4], x[5], inverse, dy[0], dy[1], dx[0], dx[1], dx[2], dx[3],
                    dx[4], dx[5]);
  assert_close(run->flop, delta_flop(&s, TRUE), 1e-12);
  g_free(inverse);
}
ORACLE(delta) {
  MsDeltaShape s = delta_of(c);
  gint64 heads = (gint64)s.batch * s.heads;
  memcpy(y[1], x[5], (gsize)(heads * s.dk * s.dv) * sizeof(double));
  for (gint64 head = 0; head < heads; head++)
    for (int t = 0; t < s.s; t++) {
      double *state = y[1] + head * s.dk * s.dv, alpha = exp(x[3][t * heads + head]), beta = x[4][t * heads + head];
      const double *q = x[0] + (t * heads + head) * s.dk, *key = x[1] + (t * heads + head) * s.dk,
                   *v = x[2] + (t * heads + head) * s.dv;
      for (int j = 0; j < s.dv; j++) {
        double seen = 0, out = 0;
        for (int i = 0; i < s.dk; i++) seen += alpha * state[i * s.dv + j] * key[i];
        for (int i = 0; i < s.dk; i++) {
          state[i * s.dv + j] = alpha * state[i * s.dv + j] + beta * key[i] * (v[j] - seen);
          out += state[i * s.dv + j] * q[i];
        }
        y[0][(t * heads + head) * s.dv + j] = s.scale * out;
      }
    }
}

/* Gates: p = rows, key heads, value heads, dk, dv; qkv, [a, b] per row, a_log, dt_bias; outputs q, k, v, g, beta. */
static MsDeltaGates gates_of(const MsKernelCase *c) {
  return (MsDeltaGates){c->p[0], (int)c->p[1], (int)c->p[2], (int)c->p[3], (int)c->p[4], 2 * c->p[2]};
}
FORWARD(gates) {
  UNUSED;
  MsDeltaGates s = gates_of(c);
  k->delta_gates_forward(&s, x[0], x[1], place(k, x[1], s.value_heads), x[2], x[3], y[0], y[1], y[2], y[3], y[4]);
}
BACKWARD(gates) {
  UNUSED;
  MsDeltaGates s = gates_of(c);
  k->delta_gates_backward(&s, x[0], x[1], place(k, x[1], s.value_heads), x[2], x[3], dy[0], dy[1], dy[2], dy[3], dy[4],
                          dx[0], dx[1], place(k, dx[1], s.value_heads), dx[2], dx[3]);
}
ORACLE(gates) {
  MsDeltaGates s = gates_of(c);
  gint64 keys = (gint64)s.key_heads * s.dk, values = (gint64)s.value_heads * s.dv;
  for (gint64 r = 0; r < s.rows; r++)
    for (gint64 head = 0; head < s.value_heads; head++) {
      gint64 at = r * s.value_heads + head, from = head / (s.value_heads / s.key_heads) * s.dk;
      for (int side = 0; side < 2; side++) {
        const double *in = x[0] + r * (2 * keys + values) + side * keys + from;
        double square = 1e-6;
        for (int i = 0; i < s.dk; i++) square += in[i] * in[i];
        for (int i = 0; i < s.dk; i++) y[side][at * s.dk + i] = in[i] / sqrt(square);
      }
      for (int i = 0; i < s.dv; i++) y[2][at * s.dv + i] = x[0][r * (2 * keys + values) + 2 * keys + head * s.dv + i];
      y[3][at] = -exp(x[2][head]) * log1p(exp(x[1][r * 2 * s.value_heads + head] + x[3][head]));
      y[4][at] = 1 / (1 + exp(-x[1][r * 2 * s.value_heads + s.value_heads + head]));
    }
}

/* --- gated norms: p = gate first, rows, width; x, z, gain; and the output gate: p = n -------------------------- */

FORWARD(gated_norm) { UNUSED, k->gated_norm_forward(c->p[0] != 0, c->p[1], c->p[2], 1e-5, x[0], x[1], x[2], y[0]); }
BACKWARD(gated_norm) {
  UNUSED, k->gated_norm_backward(c->p[0] != 0, c->p[1], c->p[2], 1e-5, x[0], x[1], x[2], dy[0], dx[0], dx[1], dx[2]);
}
ORACLE(gated_norm) {
  gint64 width = c->p[2];
  for (gint64 r = 0; r < c->p[1]; r++) {
    double square = 1e-5;
    for (gint64 i = r * width; i < (r + 1) * width; i++) {
      double gate = x[1][i] / (1 + exp(-x[1][i])), u = c->p[0] ? x[0][i] * gate : x[0][i];
      square += u * u / (double)width;
      y[0][i] = x[0][i] * gate * x[2][i % width];
    }
    for (gint64 i = r * width; i < (r + 1) * width; i++) y[0][i] /= sqrt(square);
  }
}
FORWARD(sigmoid_gate) { UNUSED, k->sigmoid_gate_forward(c->p[0], x[0], x[1], y[0]); }
BACKWARD(sigmoid_gate) { UNUSED, k->sigmoid_gate_backward(c->p[0], x[0], x[1], dy[0], dx[0], dx[1]); }
ORACLE(sigmoid_gate) {
  for (gint64 i = 0; i < c->p[0]; i++) y[0][i] = x[0][i] / (1 + exp(-x[1][i]));
}

static void test_pool_and_conv(void **state) {
  (void)state;
  const MsKernelCase cases[] = {
      {"pool", {2, 3, 4, 1, 7}, {12 * 2 * 2 * 7, 4 * 7}, {3 * 2 * 7}, .added = 2, .bound32 = 1e-5, THREE(pool)},
      {"pool of two halves",
       {2, 3, 4, 2, 7},
       {12 * 2 * 2 * 2 * 7, 4 * 2 * 7},
       {3 * 2 * 7},
       .added = 2,
       .bound32 = 1e-5,
       THREE(pool)},
      {"pool of one", {1, 1, 1, 2, 65}, {4 * 65, 2 * 65}, {65}, .added = 2, .bound32 = 1e-5, THREE(pool)},
      {"conv",
       {2, 7, 17, 4, 1, 1, 20},
       {7 * 2 * 20, 17 * 4, 17},
       {7 * 2 * 17},
       .added = 6,
       .bound32 = 1e-5,
       THREE(conv)},
      {"conv, plain",
       {1, 3, 65, 4, 0, 0, 65},
       {3 * 65, 65 * 4, 65},
       {3 * 65},
       .added = 6,
       .constant = 4,
       .bound32 = 1e-5,
       THREE(conv)},
      {"conv of one token", {1, 1, 3, 2, 1, 1, 3}, {3, 6, 3}, {3}, .added = 6, .bound32 = 1e-5, THREE(conv)},
      {"sigmoid gate", {65}, {65, 65}, {65}, THREE(sigmoid_gate)}};
  CHECK_ALL(cases);
  for (gint64 first = 0; first < 2; first++) {
    const MsKernelCase norms[] = {
        {"gated norm", {first, 3, 65}, {3 * 65, 3 * 65, 65}, {3 * 65}, .added = 4, .bound32 = 1e-5, THREE(gated_norm)},
        {"gated norm, many rows",
         {first, 65, 3},
         {65 * 3, 65 * 3, 3},
         {65 * 3},
         .added = 4,
         .bound32 = 1e-5,
         THREE(gated_norm)}};
    CHECK_ALL(norms);
  }
}

#define SCAN_ROW(heads, dim, groups, n) ((heads) * (dim) + 2 * (groups) * (n) + (heads))
static void test_scan(void **state) {
  (void)state;
  const MsKernelCase cases[] = {{"scan",
                                 {2, 7, 4, 3, 2, 5},
                                 {7 * 2 * SCAN_ROW(4, 3, 2, 5), 4, 4, 4},
                                 {7 * 2 * 4 * 3},
                                 .low = -1,
                                 .high = 1,
                                 .added = 14,
                                 .bound32 = 1e-5,
                                 THREE(scan)},
                                {"scan of one token",
                                 {1, 1, 1, 1, 1, 1},
                                 {4, 1, 1, 1},
                                 {1},
                                 .low = -1,
                                 .high = 1,
                                 .added = 14,
                                 .bound32 = 1e-5,
                                 THREE(scan)},
                                /* its parameter gradients are single numbers, sums of 261 terms of both signs: the
                                   error is that of the terms, many times the sum */
                                {"scan over chunks",
                                 {1, 261, 1, 2, 1, 2},
                                 {261 * SCAN_ROW(1, 2, 1, 2), 1, 1, 1},
                                 {261 * 2},
                                 .low = -1,
                                 .high = 1,
                                 .added = 14,
                                 .bound32 = 2e-4,
                                 THREE(scan)}};
  CHECK_ALL(cases);
}

static void test_delta(void **state) {
  (void)state;
  const MsKernelCase cases[] = {{"delta rule",
                                 {2, 7, 2, 3, 5},
                                 {7 * 4 * 3, 7 * 4 * 3, 7 * 4 * 5, 28, 28, 4 * 15},
                                 {7 * 4 * 5, 4 * 15},
                                 .low = -0.5,
                                 .high = -0.05,
                                 .bound32 = 1e-5,
                                 THREE(delta)},
                                {"delta rule, one token",
                                 {1, 1, 1, 1, 1},
                                 {1, 1, 1, 1, 1, 1},
                                 {1, 1},
                                 .low = -0.5,
                                 .high = -0.05,
                                 .bound32 = 1e-5,
                                 THREE(delta)},
                                {"delta rule over chunks",
                                 {1, 135, 1, 3, 2},
                                 {135 * 3, 135 * 3, 135 * 2, 135, 135, 6},
                                 {135 * 2, 6},
                                 .low = -0.5,
                                 .high = -0.05,
                                 .bound32 = 2e-5,
                                 THREE(delta)},
                                {"delta gates",
                                 {7, 2, 6, 5, 3},
                                 {7 * (2 * 10 + 18), 7 * 12, 6, 6},
                                 {7 * 6 * 5, 7 * 6 * 5, 7 * 6 * 3, 42, 42},
                                 .added = 12,
                                 .bound32 = 1e-5,
                                 THREE(gates)}};
  CHECK_ALL(cases);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sparse), cmocka_unit_test(test_topk),
                                     cmocka_unit_test(test_pool_and_conv), cmocka_unit_test(test_scan),
                                     cmocka_unit_test(test_delta)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
