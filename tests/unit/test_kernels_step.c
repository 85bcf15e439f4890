/* tests/unit/test_kernels_step.c - the CPU kernels of residual streams, biases, dispatch maps, low precision and the
 * optimizer; and that every row of the registry has its kernels. Rounding to low precision is checked against tables of
 * all codes, decoded here by the definition of the formats. */
#include <string.h>

#include "lib/close.h"
#include "lib/kernel_case.h"

/* --- registry -------------------------------------------------------------------------------------------------- */

/* Which kernels a row of the registry needs, by name of the field of MsKernels; NULL-terminated, no name = that pass
 * has none. A row of MS_FAMILY_COMM between ranks has `none`, the reason. (A row's name and shape say which of several
 * runs: ms_op_words[MS_OP_NORM] stands for plain and gated norms.) */
enum { MOST_FIELDS = 8 };
typedef struct {
  const char *name;
  size_t offset;
} Field; /* offset of the function in MsKernels */
typedef struct {
  Field forward[MOST_FIELDS], backward[MOST_FIELDS];
  const char *none;
} Row;

#define K(field) \
  { #field, offsetof(MsKernels, field) }
#define MESSAGES \
  { .none = "messages between ranks" }
static const Row kernels_of[MS_N_OPS] = {
    [MS_OP_EMBEDDING] = {{K(embedding_forward)}, {K(embedding_backward)}},
    [MS_OP_NORM] = {{K(norm_forward), K(gated_norm_forward)}, {K(norm_backward), K(gated_norm_backward)}},
    [MS_OP_GEMM] = {{K(gemm), K(newton_schulz)}, {K(gemm)}},
    [MS_OP_GROUPED_GEMM] = {{K(grouped_forward)}, {K(grouped_dgrad), K(grouped_wgrad)}},
    [MS_OP_ATTENTION] = {{K(attention_forward), K(attention_merge)}, {K(attention_backward)}},
    [MS_OP_SPARSE_ATTENTION] = {{K(sparse_attention_forward)}, {K(sparse_attention_backward)}},
    [MS_OP_INDEXER] = {{K(indexer_forward)}, {K(indexer_loss)}},
    [MS_OP_DELTA_RULE] = {{K(delta_forward)}, {K(delta_backward)}},
    [MS_OP_ROPE] = {{K(rope)}, {K(rope)}},
    [MS_OP_COPY] = {{K(copy_rows)}, {K(copy_rows)}},
    [MS_OP_ACTIVATION] = {{K(activation_forward), K(sigmoid_gate_forward)},
                          {K(activation_backward), K(sigmoid_gate_backward)}},
    [MS_OP_WEIGHTED_ACTIVATION] = {{K(activation_forward)}, {K(activation_backward)}},
    [MS_OP_ADD] = {{K(add), K(bias_forward)}, {K(add), K(bias_backward)}},
    [MS_OP_ROUTER_TOPK] = {{K(router_forward)}, {K(router_backward)}},
    [MS_OP_PREPROCESS] = {{K(dispatch_map)}},
    [MS_OP_PERMUTE] = {{K(gather_rows)}, {K(scatter_rows)}},
    [MS_OP_UNPERMUTE] = {{K(scatter_rows)}, {K(gather_rows), K(scatter_weight_grad)}},
    [MS_OP_SORT_CHUNKS] = {{K(gather_rows)}, {K(gather_rows)}},
    [MS_OP_CROSS_ENTROPY] = {{K(loss_max), K(loss_exp)}, {K(loss_grad)}},
    [MS_OP_CROSS_ENTROPY_TE] = {{K(loss_max), K(loss_exp)}, {K(loss_grad)}},
    [MS_OP_QUANTIZE] = {{K(quantize), K(cast)}, {K(quantize), K(cast)}},
    [MS_OP_AMAX] = {{K(amax)}, {K(amax)}},
    [MS_OP_TRANSPOSE] = {{K(transpose)}, {K(transpose)}},
    [MS_OP_SCORES] = {{K(softmax_forward)}, {K(softmax_backward)}},
    [MS_OP_CONV] = {{K(conv_forward)}, {K(conv_backward)}},
    [MS_OP_SCAN] = {{K(scan_forward)}, {K(scan_backward)}},
    [MS_OP_GATES] = {{K(delta_gates_forward)}, {K(delta_gates_backward)}},
    [MS_OP_TOPK] = {{K(topk)}},
    [MS_OP_POOL] = {{K(pool_forward)}, {K(pool_backward)}},
    [MS_OP_STREAM_MIX] = {{K(stream_maps_forward), K(sinkhorn_forward), K(streams_to_input), K(output_to_streams),
                           K(streams_expand), K(streams_sum)},
                          {K(stream_maps_backward), K(sinkhorn_backward), K(streams_to_input_backward),
                           K(output_to_streams_backward), K(streams_expand), K(streams_sum), K(add)}},
    [MS_OP_FRONT_END] = {{K(front_end)}, {K(front_end)}},
    [MS_OP_FILL] = {{K(zero)}},
    [MS_OP_ZERO_GRAD] = {{K(zero)}},
    [MS_OP_GRAD_SCALE] = {{K(scale)}},
    [MS_OP_GRAD_NORM] = {{K(sum_squares)}},
    [MS_OP_ADAM] = {{K(adam), K(muon_momentum), K(muon_apply)}},
    [MS_OP_ALL_GATHER] = MESSAGES,
    [MS_OP_REDUCE_SCATTER] = MESSAGES,
    [MS_OP_ALL_REDUCE] = MESSAGES,
    [MS_OP_ALL_TO_ALL] = MESSAGES,
    [MS_OP_DISPATCH] = MESSAGES,
    [MS_OP_COMBINE] = MESSAGES,
    [MS_OP_P2P] = MESSAGES,
    [MS_OP_D2H] = {{K(copy_rows)}},
    [MS_OP_H2D] = {{K(copy_rows)}},
    [MS_OP_CPU_ADAM] = {{K(adam)}},
};

static void check_fields(MsOpKind op, const Field *field, GHashTable *used) {
  for (int i = 0; i < MOST_FIELDS && field[i].name; i++) {
    g_hash_table_add(used, GSIZE_TO_POINTER(field[i].offset));
    for (size_t real_B = 4; real_B <= 8; real_B += 4)
      for (int unit = 0; ms_kernels_of_unit(real_B, unit); unit++) {
        void *function;
        memcpy(&function, (const char *)ms_kernels_of_unit(real_B, unit) + field[i].offset, sizeof function);
        if (!function)
          fail_msg("%s: no kernel %s for %zu B on %s", ms_op_words[op], field[i].name, real_B,
                   ms_kernels_of_unit(real_B, unit)->unit);
      }
  }
}

static void test_registry(void **state) {
  (void)state;
  g_autoptr(GHashTable) used = g_hash_table_new(NULL, NULL);
  for (int op = 0; op < MS_N_OPS; op++) {
    const Row *row = &kernels_of[op];
    gboolean between_ranks = ms_op_families[op] == MS_FAMILY_COMM && op != MS_OP_D2H && op != MS_OP_H2D;
    if (between_ranks ? !row->none || row->forward[0].name : row->none || !row->forward[0].name)
      fail_msg("row %s of the registry has no kernel", ms_op_words[op]);
    check_fields((MsOpKind)op, row->forward, used);
    check_fields((MsOpKind)op, row->backward, used);
  }
  /* every function pointer of the table is the kernel of some row */
  for (size_t at = G_STRUCT_OFFSET(MsKernels, gemm); at < sizeof(MsKernels); at += sizeof(void (*)(void)))
    if (!g_hash_table_contains(used, GSIZE_TO_POINTER(at)))
      fail_msg("the kernel at offset %zu of MsKernels belongs to no row of the registry", at);
  assert_string_equal(ms_kernels(4)->unit, ms_kernels(8)->unit);
  assert_null(ms_kernels_of_unit(4, -1));
}

/* --- streams: p = rows, n, maps, h ----------------------------------------------------------------------------- */

/* Inputs x, w, bias, scale; outputs raw and maps. Only the maps have a gradient (raw is kept for the backward): the
 * case asks for maps alone. */
FORWARD(maps) {
  UNUSED;
  void *raw = g_malloc((gsize)(c->p[0] * c->p[2]) * k->real_B);
  k->stream_maps_forward(run, c->p[0], (int)c->p[1], (int)c->p[2], c->p[3], 1e-5, x[0], x[1], x[2], x[3], raw, y[0]);
  if (c->p[2] > c->p[1]) k->sinkhorn_forward(c->p[0], (int)c->p[1], 5, (int)c->p[2], y[0]);
  g_free(raw);
}
BACKWARD(maps) {
  UNUSED;
  gsize bytes = (gsize)(c->p[0] * c->p[2]) * k->real_B;
  void *raw = g_malloc(bytes), *d = g_malloc(bytes);
  k->stream_maps_forward(run, c->p[0], (int)c->p[1], (int)c->p[2], c->p[3], 1e-5, x[0], x[1], x[2], x[3], raw, d);
  memcpy(d, dy[0], bytes);
  if (c->p[2] > c->p[1]) k->sinkhorn_backward(c->p[0], (int)c->p[1], 5, (int)c->p[2], x[2], x[3], raw, d);
  k->stream_maps_backward(run, c->p[0], (int)c->p[1], (int)c->p[2], c->p[3], 1e-5, x[0], x[1], x[3], raw, y[0], d,
                          dx[0], dx[1], dx[2], dx[3]);
  g_free(raw), g_free(d);
}
ORACLE(maps) {
  gint64 n = c->p[1], maps = c->p[2], width = n * c->p[3];
  for (gint64 r = 0; r < c->p[0]; r++) {
    double square = 1e-5, *map = y[0] + r * maps, *res = map + 2 * n;
    for (gint64 i = 0; i < width; i++) square += x[0][r * width + i] * x[0][r * width + i] / (double)width;
    for (gint64 m = 0; m < maps; m++) {
      double dot = 0;
      for (gint64 i = 0; i < width; i++) dot += x[0][r * width + i] * x[1][m * width + i];
      dot = dot / sqrt(square) * x[3][m < n ? 0 : m < 2 * n ? 1 : 2] + x[2][m];
      map[m] = m < n ? 1 / (1 + exp(-dot)) : m < 2 * n ? 2 / (1 + exp(-dot)) : exp(dot);
    }
    for (int step = 0; step < 10 && maps > n; step++)
      for (gint64 i = 0; i < n; i++) {
        double sum = 0;
        for (gint64 j = 0; j < n; j++) sum += step & 1 ? res[j * n + i] : res[i * n + j];
        for (gint64 j = 0; j < n; j++) res[step & 1 ? j * n + i : i * n + j] /= sum;
      }
  }
}

/* Inputs map, x, f; outputs the sub-layer's input and the new streams. */
FORWARD(mix) {
  UNUSED;
  k->streams_to_input(c->p[0], (int)c->p[1], (int)c->p[2], c->p[3], x[0], x[1], y[0]);
  k->output_to_streams(c->p[0], (int)c->p[1], (int)c->p[2], c->p[3], x[0], x[1], x[2], y[1]);
}
BACKWARD(mix) {
  UNUSED;
  gint64 streams = c->p[0] * c->p[1] * c->p[3];
  void *one = g_malloc((gsize)streams * k->real_B);
  k->streams_to_input_backward(c->p[0], (int)c->p[1], (int)c->p[2], c->p[3], x[0], x[1], dy[0], one, dx[0]);
  k->output_to_streams_backward(c->p[0], (int)c->p[1], (int)c->p[2], c->p[3], x[0], x[1], x[2], dy[1], dx[1], dx[2],
                                dx[0]);
  k->add(streams, one, dx[1], dx[1]);
  g_free(one);
}
ORACLE(mix) {
  gint64 n = c->p[1], h = c->p[3];
  for (gint64 r = 0; r < c->p[0]; r++)
    for (gint64 e = 0; e < h; e++) {
      const double *pre = x[0] + r * c->p[2], *post = pre + n, *res = post + n;
      y[0][r * h + e] = 0;
      for (gint64 i = 0; i < n; i++) {
        double sum = post[i] * x[2][r * h + e];
        for (gint64 j = 0; j < n; j++) sum += res[i * n + j] * x[1][(r * n + j) * h + e];
        y[1][(r * n + i) * h + e] = sum;
        y[0][r * h + e] += pre[i] * x[1][(r * n + i) * h + e];
      }
    }
}
FORWARD(expand) { UNUSED, k->streams_expand(c->p[0], (int)c->p[1], c->p[3], x[0], y[0]); }
BACKWARD(expand) { UNUSED, k->streams_sum(c->p[0], (int)c->p[1], c->p[3], dy[0], dx[0]); }
ORACLE(expand) {
  for (gint64 i = 0; i < c->out[0]; i++) y[0][i] = x[0][i / c->p[3] / c->p[1] * c->p[3] + i % c->p[3]];
}

/* Bias of groups: p = width, weighted; inputs x, bias, prob. */
static const gint64 bias_rows[] = {3, 0, 7};
FORWARD(bias) {
  UNUSED;
  memcpy(y[0], x[0], (gsize)c->in[0] * k->real_B);
  k->bias_forward(3, bias_rows, c->p[0], x[1], c->p[1] ? x[2] : NULL, y[0]);
}
BACKWARD(bias) {
  UNUSED;
  memcpy(dx[0], dy[0], (gsize)c->in[0] * k->real_B);
  k->bias_backward(3, bias_rows, c->p[0], x[1], c->p[1] ? x[2] : NULL, dy[0], dx[1], c->p[1] ? dx[2] : NULL);
}
ORACLE(bias) {
  for (gint64 i = 0; i < c->in[0]; i++)
    y[0][i] = x[0][i] + (c->p[1] ? x[2][i / c->p[0]] : 1) * x[1][(i / c->p[0] < 3 ? 0 : 2) * c->p[0] + i % c->p[0]];
}

static void test_streams(void **state) {
  (void)state;
  const MsKernelCase cases[] = {
      {"stream mappings",
       {3, 4, 24, 7},
       {3 * 28, 24 * 28, 24, 3},
       {3 * 24},
       .low = -1,
       .high = 1,
       .added = 14,
       .bound32 = 1e-5,
       THREE(maps)},
      {"mappings of the head",
       {3, 2, 2, 17},
       {3 * 34, 2 * 34, 2, 3},
       {6},
       .low = -1,
       .high = 1,
       .added = 14,
       .bound32 = 1e-5,
       THREE(maps)},
      {"streams", {3, 4, 24, 17}, {3 * 24, 3 * 4 * 17, 3 * 17}, {3 * 17, 3 * 4 * 17}, THREE(mix)},
      {"streams, one", {1, 1, 3, 65}, {3, 65, 65}, {65, 65}, THREE(mix)},
      {"streams of the embedding", {7, 3, 0, 17}, {7 * 17}, {7 * 3 * 17}, THREE(expand)},
      {"bias", {17, 0}, {170, 51, 10}, {170}, .added = 6, .constant = 4, THREE(bias)},
      {"weighted bias", {17, 1}, {170, 51, 10}, {170}, .added = 6, .bound32 = 1e-5, THREE(bias)}};
  CHECK_ALL(cases);
}

static void test_dispatch_map(void **state) {
  (void)state;
  enum { ROWS = 33, K = 3, EXPERTS = 9 };
  gint32 which[ROWS * K];
  gint64 count[EXPERTS], slot[ROWS * K], place = 0;
  for (int i = 0; i < ROWS * K; i++) which[i] = (i / K + i % K * 2) % (EXPERTS - 1); /* the last expert has none */
  ms_kernels(4)->dispatch_map(ROWS, EXPERTS, K, which, count, slot);
  for (int e = 0; e < EXPERTS; e++) {
    gint64 begin = place;
    for (int i = 0; i < ROWS * K; i++)
      if (which[i] == e) assert_int_equal(slot[place++], i);
    assert_int_equal(count[e], place - begin);
  }
}

/* --- optimizer, copies, opaque stage --------------------------------------------------------------------------- */

FORWARD(muon) { /* grad, master, m */
  UNUSED;
  gint64 n = c->p[0];
  void *update = g_malloc((gsize)n * k->real_B);
  memcpy(y[0], x[1], (gsize)n * k->real_B), memcpy(y[1], x[2], (gsize)n * k->real_B);
  k->muon_momentum(n, 0.95, c->p[1] != 0, 0.5, x[0], y[1], update);
  k->muon_apply(n, 0.02, 0.1, 0.2, update, y[0], y[2]);
  g_free(update);
}
ORACLE(muon) {
  for (gint64 i = 0; i < c->p[0]; i++) {
    double g = 0.5 * x[0][i], m = 0.95 * x[2][i] + g, u = c->p[1] ? g + 0.95 * m : m;
    y[1][i] = m;
    y[0][i] = y[2][i] = x[1][i] - 0.02 * (0.2 * u + 0.1 * x[1][i]);
  }
}
FORWARD(newton_schulz) {
  UNUSED;
  double m = (double)c->p[0], n = (double)c->p[1], small = MIN(m, n);
  memcpy(y[0], x[0], (gsize)c->in[0] * k->real_B);
  k->newton_schulz(run, c->p[0], c->p[1], 5, y[0]);
  assert_true(run->flop == 5 * (2 * 2 * small * m * n + 2 * small * small * small));
}
ORACLE(newton_schulz) { /* x = a x + b (x x') x + c (x x')^2 x, whatever the shape */
  gint64 m = c->p[0], n = c->p[1];
  g_autofree double *gram = g_new(double, m *m), *once = g_new(double, m *n), *twice = g_new(double, m *n);
  double square = 0;
  for (gint64 i = 0; i < m * n; i++) square += x[0][i] * x[0][i];
  for (gint64 i = 0; i < m * n; i++) y[0][i] = x[0][i] / (sqrt(square) + 1e-7);
  for (int step = 0; step < 5; step++) {
    for (gint64 i = 0; i < m * m; i++) {
      gram[i] = 0;
      for (gint64 l = 0; l < n; l++) gram[i] += y[0][i / m * n + l] * y[0][i % m * n + l];
    }
    for (int time = 0; time < 2; time++)
      for (gint64 i = 0; i < m * n; i++) {
        double sum = 0;
        for (gint64 l = 0; l < m; l++) sum += gram[i / n * m + l] * (time ? once : y[0])[l * n + i % n];
        (time ? twice : once)[i] = sum;
      }
    for (gint64 i = 0; i < m * n; i++) y[0][i] = 3.4445 * y[0][i] - 4.7750 * once[i] + 2.0315 * twice[i];
  }
}
FORWARD(copies) { /* x [7][20] columns 3 … 12 to y [7][15] from column 2 */
  UNUSED;
  k->zero(7 * 15, y[0]);
  k->copy_rows(7, 10, 20, (const char *)x[0] + 3 * k->real_B, 15, (char *)y[0] + 2 * k->real_B);
  k->copy_rows(7, 20, 20, x[0], 20, y[1]);
}
ORACLE(copies) {
  (void)c;
  memcpy(y[1], x[0], 140 * sizeof(double));
  for (int i = 0; i < 105; i++) y[0][i] = i % 15 >= 2 && i % 15 < 12 ? x[0][i / 15 * 20 + i % 15 + 1] : 0;
}

static void test_optimizer(void **state) {
  (void)state;
  const MsKernelCase cases[] = {
      {"muon", {65, 0}, {65, 65, 65}, {65, 65, 65}, .forward = muon_forward, .oracle = muon_oracle},
      {"muon, Nesterov", {17, 1}, {17, 17, 17}, {17, 17, 17}, .forward = muon_forward, .oracle = muon_oracle},
      {"Newton-Schulz, wide",
       {7, 17},
       {119},
       {119},
       .bound32 = 1e-4,
       .forward = newton_schulz_forward,
       .oracle = newton_schulz_oracle},
      {"Newton-Schulz, tall",
       {17, 7},
       {119},
       {119},
       .bound32 = 1e-4,
       .forward = newton_schulz_forward,
       .oracle = newton_schulz_oracle},
      {"copies", {0}, {140}, {105, 140}, .forward = copies_forward, .oracle = copies_oracle}};
  CHECK_ALL(cases);
  static const double flops[] = {0, 2, 510, 1e6, 33554432 + 131072 + 514, 1e8};
  for (size_t i = 0; i < G_N_ELEMENTS(flops); i++) {
    MsKernelRun run = {.blas = ms_blas_open(NULL, NULL), .flop = 7};
    ms_kernels(4)->front_end(&run, flops[i], 1e5);
    assert_true(fabs(run.flop - 7 - flops[i]) < 2);
  }
}

/* --- low precision --------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  MsElement element;
  int exponent, mantissa, bias;
  gboolean ieee, all_finite;
} Format; /* ieee: the highest exponent is inf and NaN */
static const Format formats[] = {{"E4M3", MS_ELEMENT_E4M3, 4, 3, 7, FALSE, FALSE},
                                 {"E5M2", MS_ELEMENT_E5M2, 5, 2, 15, TRUE, FALSE},
                                 {"E2M1", MS_ELEMENT_E2M1, 2, 1, 1, FALSE, TRUE}};

/* The value of a code; NaN for those that are none (infinities too). */
static double decoded(const Format *f, int code) {
  int mantissa = code & ((1 << f->mantissa) - 1), exponent = code >> f->mantissa & ((1 << f->exponent) - 1),
      top = (1 << f->exponent) - 1;
  double sign = code >> (f->mantissa + f->exponent) ? -1 : 1;
  if (exponent == top && (f->ieee || (!f->all_finite && mantissa == (1 << f->mantissa) - 1))) return NAN;
  return sign * (exponent == 0 ? ldexp(mantissa, 1 - f->bias - f->mantissa)
                               : ldexp((1 << f->mantissa) + mantissa, exponent - f->bias - f->mantissa));
}

static double cast_one(const MsKernels *k, MsElement element, double x) {
  double in = 0, out = 0;
  ms_case_set(k, &in, 0, x);
  k->cast(element, 1, 1, &in, &out);
  return ms_case_get(k, &out, 0);
}

static void test_codes(void **state) {
  (void)state;
  for (size_t real_B = 4; real_B <= 8; real_B += 4)
    for (int unit = 0; ms_kernels_of_unit(real_B, unit); unit++)
      for (size_t i = 0; i < G_N_ELEMENTS(formats); i++) {
        const MsKernels *k = ms_kernels_of_unit(real_B, unit);
        const Format *f = &formats[i];
        double largest = 0, tiny = real_B == 4 ? 0x1p-23 : 0x1p-52;
        int codes = 1 << (f->exponent + f->mantissa + 1), half = codes / 2, finite = 0;
        for (int code = 0; code < codes; code++) { /* every code is itself */
          double value = decoded(f, code);
          if (isnan(value)) continue;
          double got = cast_one(k, f->element, value);
          assert_true(got == value && !signbit(got) == !signbit(value));
          largest = MAX(largest, value), finite++;
        }
        assert_int_equal(finite, f->element == MS_ELEMENT_E4M3 ? 254 : f->element == MS_ELEMENT_E5M2 ? 248 : 16);
        for (int code = 0; code + 1 < half;
             code++) { /* between neighbours: below and above the middle, and the middle itself to the even code */
          double a = decoded(f, code), b = decoded(f, code + 1), middle = (a + b) / 2;
          if (isnan(b)) break;
          for (int sign = -1; sign <= 1; sign += 2) {
            assert_true(cast_one(k, f->element, sign * middle) == sign * (code & 1 ? b : a));
            assert_true(cast_one(k, f->element, sign * middle * (1 - tiny)) == sign * a);
            assert_true(cast_one(k, f->element, sign * middle * (1 + tiny)) == sign * b);
          }
        }
        assert_true(cast_one(k, f->element, largest * 1.2) == largest && cast_one(k, f->element, -1e30) == -largest &&
                    cast_one(k, f->element, INFINITY) == largest); /* saturates */
        assert_true(isnan(cast_one(k, f->element, NAN)));
      }
}

static void test_bf16(void **state) {
  (void)state;
  for (size_t real_B = 4; real_B <= 8; real_B += 4)
    for (guint32 code = 0; code < 0x7f7f; code++) {
      const MsKernels *k = ms_kernels(real_B);
      float a, b;
      guint32 low = code << 16, high = (code + 1) << 16;
      memcpy(&a, &low, 4), memcpy(&b, &high, 4);
      double middle = ((double)a + b) / 2;
      if (cast_one(k, MS_ELEMENT_BF16, a) != a || cast_one(k, MS_ELEMENT_BF16, -middle) != -(code & 1 ? b : a))
        fail_msg("BF16 code %x", code);
    }
  assert_true(cast_one(ms_kernels(4), MS_ELEMENT_BF16, G_MAXFLOAT) == (double)0x1.fep127f);
}

/* Quantised and back: within half a step of the block's scale, computed here from the definition; zeros stay; blocks do
 * not see each other. */
static double step_bound(MsQuantFormat format, gboolean weight, double x, const double *all, double tensor, gint64 rows,
                         gint64 cols, gint64 r, gint64 c) {
  gint64 high = format == MS_QUANT_FP8_BLOCK && weight ? 128 : 1, wide = format == MS_QUANT_FP8_BLOCK ? 128
                                                                         : format == MS_QUANT_MXFP8   ? 32
                                                                                                      : 16;
  gboolean whole = format == MS_QUANT_FP8_TENSOR || format == MS_QUANT_FP8_TENSOR_E5M2;
  double most = whole ? tensor : 0, size = fabs(x);
  for (gint64 i = r / high * high; i < MIN(r / high * high + high, rows) && !whole; i++)
    for (gint64 j = c / wide * wide; j < MIN(c / wide * wide + wide, cols); j++)
      most = MAX(most, fabs(all[i * cols + j]));
  switch (format) {
  case MS_QUANT_BF16: return size * 0x1p-8;
  case MS_QUANT_FP8_TENSOR_E5M2: return MAX(size * 0x1p-3, most / 57344 * 0x1p-17) * (1 + 1e-6);
  case MS_QUANT_NVFP4: /* the scale is rounded too, by up to 1/16 of it or half its least step; 6 may be cut by as much
                        */
    return MAX(size * 0.25, most / 6 * 0.25) * (1 + 1.0 / 16) + most / 16 + tensor / 2688 * 0x1p-10 * 6;
  case MS_QUANT_MXFP8: return MAX(size * 0x1p-4, 2 * most / 448 * 0x1p-10);
  default: return MAX(size * 0x1p-4, most / 448 * 0x1p-10) * (1 + 1e-6);
  }
}

static void test_quantize(void **state) {
  (void)state;
  static const gint64 shapes[][2] = {{1, 1}, {3, 7}, {1, 17}, {3, 150}, {130, 40}};
  static const double scales[] = {1e-30, 1, 1e30};
  for (size_t i = 0; i < G_N_ELEMENTS(shapes) * G_N_ELEMENTS(scales); i++)
    for (int variant = 0; variant < 24; variant++) {
      const MsKernels *k = ms_kernels(variant & 1 ? 4 : 8);
      gboolean weight = variant >> 1 & 1;
      MsQuantFormat format = (MsQuantFormat)(variant >> 2);
      const gint64 *shape = shapes[i % G_N_ELEMENTS(shapes)];
      gint64 rows = shape[0], cols = shape[1], n = rows * cols;
      g_autofree double *x = g_new(double, n), *in = g_new0(double, n), *out = g_new0(double, n);
      for (gint64 j = 0; j < n; j++)
        x[j] = (float)(j % 7 == 3
                           ? 0
                           : sin((double)j * 0.7) * exp(3 * cos((double)j * 0.013)) * scales[i / G_N_ELEMENTS(shapes)]);
      double tensor = 0;
      for (gint64 j = 0; j < n; j++) ms_case_set(k, in, j, x[j]), tensor = MAX(tensor, fabs(x[j]));
      double bytes = k->quantize(format, weight, rows, cols, in, out);
      for (gint64 j = 0; j < n; j++) {
        double got = ms_case_get(k, out, j),
               bound = step_bound(format, weight, x[j], x, tensor, rows, cols, j / cols, j % cols);
        if (!(fabs(got - x[j]) <= bound) || (x[j] == 0 && got != 0))
          fail_msg("format %d, %d x %d, element %d: %.9g became %.9g, bound %.3g", format, (int)rows, (int)cols, (int)j,
                   x[j], got, bound);
      }
      k->quantize(format, weight, rows, cols, in, in); /* in place */
      assert_memory_equal(in, out, (gsize)n * k->real_B);
      double down = (double)((rows + 127) / 128), across = (double)((cols + 127) / 128);
      const double want[] = {[MS_QUANT_FP8_TENSOR] = (double)n + 4,
                             [MS_QUANT_FP8_TENSOR_E5M2] = (double)n + 4,
                             [MS_QUANT_FP8_BLOCK] = (double)n + 4 * (weight ? down : (double)rows) * across,
                             [MS_QUANT_MXFP8] = (double)(n + rows * ((cols + 31) / 32)),
                             [MS_QUANT_NVFP4] = (double)(rows * ((cols + 1) / 2) + rows * ((cols + 15) / 16) + 4),
                             [MS_QUANT_BF16] = 2 * (double)n};
      assert_true(bytes == want[format]);
    }
  /* powers of two that need no rounding of scales come back as they were, in MXFP8 as in FP8 */
  double exact[32], back[32];
  for (int j = 0; j < 32; j++) exact[j] = ldexp(j % 8 + 8, -5);
  ms_kernels(8)->quantize(MS_QUANT_MXFP8, FALSE, 1, 32, exact, back);
  assert_memory_equal(exact, back, sizeof exact);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_registry),     cmocka_unit_test(test_streams),
                                     cmocka_unit_test(test_dispatch_map), cmocka_unit_test(test_optimizer),
                                     cmocka_unit_test(test_codes),        cmocka_unit_test(test_bf16),
                                     cmocka_unit_test(test_quantize)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
