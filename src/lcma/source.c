#include "lcma/source.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

const char *const ms_dialect_words[] = {"cuda", "hip", "musa", "opencl", NULL};
const char *const ms_gpu_type_words[] = {"f32", "tf32", "bf16", "fp16", "int8", NULL};

size_t ms_gpu_type_B(MsGpuType type) {
  static const size_t size_B[MS_GPU_TYPES] = {4, 4, 2, 2, 1};
  return size_B[type];
}

/* --- options --------------------------------------------------------------------------------------------------- */
enum { REGISTERS = 176, SIDE = 16 /* threads along one side of a thread group */ };

static int elements_of(const MsSourceOptions *o) { return o->tile_m * o->tile_n / MS_SOURCE_THREADS; }

gboolean ms_source_in_registers(const MsScheme *s, const MsSourceOptions *o) {
  return elements_of(o) * (s->m * s->n + 1) <= REGISTERS;
}

MsSourceOptions ms_source_options(const MsScheme *s, MsDialect dialect, MsGpuType type) {
  MsSourceOptions o = {.dialect = dialect, .type = type, .groups = 1, .tile_m = 128, .tile_n = 128, .tile_k = 16};
  o.matrix = dialect == MS_DIALECT_CUDA && type != MS_GPU_F32 && type != MS_GPU_INT8;
  if (!ms_source_in_registers(s, &o)) o.tile_n = 64;
  if (!ms_source_in_registers(s, &o)) o.tile_m = 64;
  if (!ms_source_in_registers(s, &o)) o.tile_m = 128; /* C in memory: tiles as large as plain kernels have */
  return o;
}

static gboolean one_of(int x, int a, int b, int c, int d) { return x == a || x == b || x == c || x == d; }

static gboolean valid(const MsScheme *s, const MsSourceOptions *o, GError **error) {
  const char *wrong = NULL;
  if (o->matrix && (o->dialect != MS_DIALECT_CUDA || o->type == MS_GPU_F32 || o->type == MS_GPU_INT8))
    wrong = "matrix units are for tf32, bf16 and fp16 in CUDA C";
  else if (o->matrix && (!one_of(o->tile_m, 64, 128, 64, 64) || !one_of(o->tile_n, 64, 128, 64, 64)))
    wrong = "tiles for matrix units are 64 or 128 wide";
  else if (!one_of(o->tile_m, 32, 64, 96, 128) || !one_of(o->tile_n, 32, 64, 96, 128))
    wrong = "tiles are 32, 64, 96 or 128 wide";
  else if (!one_of(o->tile_k, 16, 32, o->matrix ? 16 : 8, 16)) wrong = "tile_k is 8 (not for matrix units), 16 or 32";
  else if (o->groups < 1 || o->groups > s->r) wrong = "groups are from 1 to the number of products";
  else if (o->type == MS_GPU_INT8 && s->u.denominator * s->v.denominator * s->w.denominator != 1)
    wrong = "a scheme with fractions has no int8 form";
  if (wrong) ms_usage_error(error, "scheme '%s', %s: %s", s->name, ms_gpu_type_words[o->type], wrong);
  return !wrong;
}

void ms_source_grid(const MsScheme *s, const MsSourceOptions *o, gint64 m, gint64 n, int grid[2]) {
  gint64 bm = (m + s->m - 1) / s->m, bn = (n + s->n - 1) / s->n;
  grid[0] = (int)((bn + o->tile_n - 1) / o->tile_n);
  grid[1] = (int)((bm + o->tile_m - 1) / o->tile_m);
}

/* --- what differs between dialects ----------------------------------------------------------------------------- */
static const char *const c_like = "#define KERNEL extern \"C\" __global__\n"
                                  "#define GLOBAL\n"
                                  "#define LOCAL __shared__\n"
                                  "#define INLINE static __device__ __forceinline__\n"
                                  "#define BARRIER __syncthreads()\n"
                                  "#define THREAD ((int)threadIdx.x)\n"
                                  "#define GROUP_X ((int)blockIdx.x)\n"
                                  "#define GROUP_Y ((int)blockIdx.y)\n"
                                  "#define GROUP_Z ((int)blockIdx.z)\n"
                                  "#define BITS(x) __float_as_uint(x)\n"
                                  "#define REAL(x) __uint_as_float(x)\n"
                                  "#define UNROLL _Pragma(\"unroll\")\n"
                                  "#define LONG long long\n";
static const char *const opencl = "#define KERNEL __kernel __attribute__((reqd_work_group_size(256, 1, 1)))\n"
                                  "#define GLOBAL __global\n"
                                  "#define LOCAL __local\n"
                                  "#define INLINE static inline\n"
                                  "#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)\n"
                                  "#define THREAD ((int)get_local_id(0))\n"
                                  "#define GROUP_X ((int)get_group_id(0))\n"
                                  "#define GROUP_Y ((int)get_group_id(1))\n"
                                  "#define GROUP_Z ((int)get_group_id(2))\n"
                                  "#define BITS(x) as_uint(x)\n"
                                  "#define REAL(x) as_float(x)\n"
                                  "#define UNROLL\n"
                                  "#define LONG long\n";

/* Types of elements (ELEMENT), of local memory (WORK) and of sums (SUM); WIDEN gives a SUM, ROUND what is multiplied.
 * To nearest even; what is no number stays none. */
static const char *const bf16_words =
    "typedef unsigned short ELEMENT;\n"
    "#define WIDEN(x) REAL((unsigned int)(x) << 16)\n"
    "INLINE unsigned short narrow(float x) {\n"
    "  unsigned int b = BITS(x);\n"
    "  return (unsigned short)(x != x ? 0x7fc0u : (b + 0x7fffu + (b >> 16 & 1u)) >> 16);\n"
    "}\n";
static const char *const tf32_words = "typedef float ELEMENT;\n"
                                      "#define WIDEN(x) (x)\n"
                                      "INLINE float narrow(float x) {\n"
                                      "  unsigned int b = BITS(x);\n"
                                      "  return x != x ? x : REAL((b + 0xfffu + (b >> 13 & 1u)) & 0xffffe000u);\n"
                                      "}\n";
/* Halves by their bits: no dialect needs a header or an extension. Below the normal numbers they are whole multiples of
 * 2^-24. */
static const char *const fp16_words =
    "typedef unsigned short ELEMENT;\n"
    "INLINE float widen(unsigned short h) {\n"
    "  unsigned int sign = (unsigned int)(h & 0x8000) << 16, e = h >> 10 & 31, f = h & 1023;\n"
    "  float small = (float)f * 5.9604644775390625e-8f;\n"
    "  return e == 0 ? (sign ? -small : small) : REAL(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | f << 13);\n"
    "}\n"
    "#define WIDEN(x) widen(x)\n"
    "INLINE unsigned short narrow(float x) {\n"
    "  unsigned int b = BITS(x), sign = b >> 16 & 0x8000u, u = b & 0x7fffffffu;\n"
    "  if (u > 0x7f800000u) return 0x7e00;\n"
    "  if (u >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);\n"
    "  if (u < 0x38800000u) return (unsigned short)(sign | (BITS(REAL(u) + 0.5f) - 0x3f000000u));\n"
    "  return (unsigned short)(sign | (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13);\n"
    "}\n";

static void put_types(GString *out, const MsSourceOptions *o) {
  static const char *const words[MS_GPU_TYPES] = {"typedef float ELEMENT;\n#define WIDEN(x) (x)\n", tf32_words,
                                                  bf16_words, fp16_words,
                                                  "typedef signed char ELEMENT;\n#define WIDEN(x) ((int)(x))\n"};
  const gboolean whole = o->type == MS_GPU_INT8, half = o->type == MS_GPU_BF16 || o->type == MS_GPU_FP16;
  g_string_append_printf(out, "typedef %s SUM;\n", whole ? "int" : "float");
  g_string_append(out, words[o->type]);
  if (o->matrix)
    g_string_append_printf(out, "typedef %s WORK;\n#define ROUND(x) narrow(x)\n", half ? "unsigned short" : "float");
  else
    g_string_append_printf(out, "typedef SUM WORK;\n#define ROUND(x) %s\n",
                           half                     ? "WIDEN(narrow(x))"
                           : o->type == MS_GPU_TF32 ? "narrow(x)"
                                                    : "(x)");
}

/* --- the multiplication of two tiles --------------------------------------------------------------------------- */
/* Element e of a thread is at (ROW(e), COL(e)) of the tile; `p` holds the product. */
static void put_plain_tile(GString *out) {
  g_string_append(out, "#define PAD 1\n"
                       "#define SA(i, l) sa[(l) * (TILE_M + PAD) + (i)]\n"
                       "#define SB(l, j) sb[(l) * (TILE_N + PAD) + (j)]\n"
                       "#define SA_SIZE (TILE_K * (TILE_M + PAD))\n"
                       "#define SB_SIZE (TILE_K * (TILE_N + PAD))\n"
                       "#define ROW(e) (thread / 16 + 16 * ((e) / (TILE_N / 16)))\n"
                       "#define COL(e) (thread % 16 + 16 * ((e) % (TILE_N / 16)))\n"
                       "#define MULTIPLY                                                              \\\n"
                       "  UNROLL for (int q = 0; q < TILE_K; q++) {                                          \\\n"
                       "    SUM x[TILE_M / 16], y[TILE_N / 16];                                       \\\n"
                       "    UNROLL for (int i = 0; i < TILE_M / 16; i++) x[i] = SA(thread / 16 + 16 * i, q); \\\n"
                       "    UNROLL for (int j = 0; j < TILE_N / 16; j++) y[j] = SB(q, thread % 16 + 16 * j); \\\n"
                       "    UNROLL for (int e = 0; e < EACH; e++)                                            \\\n"
                       "      p[e] += x[e / (TILE_N / 16)] * y[e % (TILE_N / 16)];                    \\\n"
                       "  }\n");
}

/* Eight warps, four along m and two along n. A fragment of mma.sync is rows `lane / 4` (and 8 more), pairs of depths
 * `2 (lane % 4)` (and 8 more); of tf32 single depths `lane % 4` (and 4 more). */
static void put_matrix_tile(GString *out, const MsSourceOptions *o) {
  const gboolean tf32 = o->type == MS_GPU_TF32;
  g_string_append(out,
                  "#define PAD 8\n"
                  "#define SA(i, l) sa[(i) * (TILE_K + PAD) + (l)]\n"
                  "#define SB(l, j) sb[(j) * (TILE_K + PAD) + (l)]\n"
                  "#define SA_SIZE (TILE_M * (TILE_K + PAD))\n"
                  "#define SB_SIZE (TILE_N * (TILE_K + PAD))\n"
                  "#define FM (TILE_M / 64)\n"
                  "#define FN (TILE_N / 16)\n"
                  "#define ROW(e) (thread / 64 * (16 * FM) + (e) / (4 * FN) * 16 + thread % 32 / 4 + (e) % 4 / 2 * 8)\n"
                  "#define COL(e) (thread / 32 % 2 * (8 * FN) + (e) / 4 % FN * 8 + thread % 4 * 2 + (e) % 2)\n");
  g_string_append_printf(
      out,
      "#define DEPTH %d\n"
      "INLINE void mma(float *d, const unsigned int *x, const unsigned int *y) {\n"
      "  asm volatile(\"mma.sync.aligned.m16n8k%d.row.col.f32.%s.%s.f32 \"\n"
      "               \"{%%0, %%1, %%2, %%3}, {%%4, %%5, %%6, %%7}, {%%8, %%9}, {%%0, %%1, %%2, %%3};\"\n"
      "               : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n"
      "               : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"r\"(y[0]), \"r\"(y[1]));\n"
      "}\n",
      tf32 ? 8 : 16, tf32 ? 8 : 16,
      tf32                     ? "tf32"
      : o->type == MS_GPU_BF16 ? "bf16"
                               : "f16",
      tf32                     ? "tf32"
      : o->type == MS_GPU_BF16 ? "bf16"
                               : "f16");
  g_string_append_printf(
      out,
      "#define AT(i, l) (*(const unsigned int *)&SA(i, l))\n#define BT(l, j) (*(const unsigned int *)&SB(l, j))\n");
  g_string_append_printf(
      out,
      "#define MULTIPLY                                                                          \\\n"
      "  UNROLL for (int q = 0; q < TILE_K; q += DEPTH) {                                               \\\n"
      "    unsigned int y[FN][2];                                                                \\\n"
      "    const int d0 = q + thread %% 4 * %d, d1 = d0 + DEPTH / 2, line = thread %% 32 / 4;      \\\n"
      "    UNROLL for (int j = 0; j < FN; j++) {                                                        \\\n"
      "      const int col = thread / 32 %% 2 * (8 * FN) + j * 8 + line;                          \\\n"
      "      y[j][0] = BT(d0, col);                                                              \\\n"
      "      y[j][1] = BT(d1, col);                                                              \\\n"
      "    }                                                                                     \\\n"
      "    UNROLL for (int i = 0; i < FM; i++) {                                                        \\\n"
      "      const int row = thread / 64 * (16 * FM) + i * 16 + line;                            \\\n"
      "      const unsigned int x[4] = {AT(row, d0), AT(row + 8, d0), AT(row, d1), AT(row + 8, d1)}; \\\n"
      "      UNROLL for (int j = 0; j < FN; j++) mma(&p[(i * FN + j) * 4], x, y[j]);                    \\\n"
      "    }                                                                                     \\\n"
      "  }\n",
      tf32 ? 1 : 2);
}

/* --- one product ----------------------------------------------------------------------------------------------- */
static void put_number(GString *out, const MsCoefficients *c, int row, int col, gboolean whole) {
  int x = c->numerator[row * c->cols + col];
  if (whole) g_string_append_printf(out, "%d", abs(x));
  else if (c->denominator == 1) g_string_append_printf(out, "%d.0f", abs(x));
  else g_string_append_printf(out, "(%d.0f / %d.0f)", abs(x), c->denominator);
}

/* " + A(0, 0) - 2.0f * A(1, 1)" */
static void put_sum(GString *out, const MsCoefficients *c, int row, const char *name, int across, gboolean whole) {
  for (int b = 0; b < c->cols; b++) {
    int x = c->numerator[row * c->cols + b];
    if (x == 0) continue;
    g_string_append_printf(out, " %c ", x < 0 ? '-' : '+');
    if (abs(x) != c->denominator) {
      put_number(out, c, row, b, whole);
      g_string_append(out, " * ");
    }
    g_string_append_printf(out, "%s(%d, %d)", name, b / across, b % across);
  }
}

/* The sums of product r, into local memory. */
static void put_loads(GString *out, const MsScheme *s, const MsSourceOptions *o, int r) {
  const gboolean whole = o->type == MS_GPU_INT8;
  g_string_append_printf(out, "      case %d:\n        EACH_OF_A { SA(i, l) = ROUND(", r);
  put_sum(out, &s->u, r, "A", s->k, whole);
  g_string_append(out, "); }\n        EACH_OF_B { SB(l, j) = ROUND(");
  put_sum(out, &s->v, r, "B", s->n, whole);
  g_string_append(out, "); }\n        break;\n");
}

/* What the product adds to the blocks of C: to registers, or to memory, the first time with beta. */
static void put_merge(GString *out, const MsScheme *s, const MsSourceOptions *o, int r, gboolean *touched) {
  const gboolean registers = ms_source_in_registers(s, o);
  for (int b = 0; b < s->w.cols; b++) {
    int x = s->w.numerator[r * s->w.cols + b];
    if (x == 0) continue;
    if (registers) g_string_append_printf(out, "      ADD(c%d_%d, %s", b / s->n, b % s->n, x < 0 ? "-" : "");
    else
      g_string_append_printf(out, "      %s(%d, %d, %s", touched[b] ? "MORE" : "FIRST", b / s->n, b % s->n,
                             x < 0 ? "-" : "");
    put_number(out, &s->w, r, b, o->type == MS_GPU_INT8);
    g_string_append(out, ")\n");
    touched[b] = TRUE;
  }
}

static int group_of(const MsScheme *s, const MsSourceOptions *o, int r) {
  int group = 0;
  while (s->r * (group + 1) / o->groups <= r) group++;
  return group;
}

/* One loop over the products of a group: what differs between them are the loads before and the additions after the
 * multiplication, whose code is there once. */
static void put_products(GString *out, const MsScheme *s, const MsSourceOptions *o) {
  const int blocks = s->m * s->n;
  g_autofree gboolean *touched = g_new0(gboolean, o->groups * blocks);
  g_string_append_printf(out,
                         "  for (int r = %d * GROUP_Z / %d; r < %d * (GROUP_Z + 1) / %d; r++) {\n"
                         "    CLEAR(p)\n"
                         "    for (int depth = 0; depth < bk; depth += TILE_K) {\n"
                         "      switch (r) {\n",
                         s->r, o->groups, s->r, o->groups);
  for (int r = 0; r < s->r; r++) put_loads(out, s, o, r);
  g_string_append(out, "      }\n      BARRIER;\n      MULTIPLY\n      BARRIER;\n    }\n    switch (r) {\n");
  for (int r = 0; r < s->r; r++) {
    g_string_append_printf(out, "    case %d:\n", r);
    put_merge(out, s, o, r, touched + group_of(s, o, r) * blocks);
    g_string_append(out, "      break;\n");
  }
  g_string_append(out, "    }\n  }\n");
  for (int i = 0; i < o->groups * blocks && !ms_source_in_registers(s, o); i++)
    if (!touched[i])
      g_string_append_printf(out, "  if (GROUP_Z == %d) { CLEAR(p) FIRST(%d, %d, 0) }\n", i / blocks, i % blocks / s->n,
                             i % blocks % s->n);
}

/* --- the kernels ----------------------------------------------------------------------------------------------- */
/* Where element (i, l) of a block of A lies, and (l, j) of one of B; beyond the edge there are zeros. Neighbouring
 * threads read neighbouring elements. */
static void put_access(GString *out, const MsScheme *s, const MsSourceOptions *o) {
  g_string_append_printf(
      out,
      "#define A(x, y) at(a, (LONG)%s * lda + %s, top + i < bm && (x) * bm + top + i < m && depth + l < bk && "
      "(y) * bk + depth + l < k)\n"
      "#define B(x, y) at(b, (LONG)%s * ldb + %s, depth + l < bk && (x) * bk + depth + l < k && left + j < bn && "
      "(y) * bn + left + j < n)\n",
      o->trans_a ? "((y) * bk + depth + l)" : "((x) * bm + top + i)",
      o->trans_a ? "((x) * bm + top + i)" : "((y) * bk + depth + l)",
      o->trans_b ? "((y) * bn + left + j)" : "((x) * bk + depth + l)",
      o->trans_b ? "((x) * bk + depth + l)" : "((y) * bn + left + j)");
  g_string_append_printf(
      out,
      "#define EACH_OF_A for (int x = thread, i = %s, l = %s; x < TILE_M * TILE_K; x += 256, i = %s, l = %s)\n"
      "#define EACH_OF_B for (int x = thread, l = %s, j = %s; x < TILE_N * TILE_K; x += 256, l = %s, j = %s)\n",
      o->trans_a ? "x % TILE_M" : "x / TILE_K", o->trans_a ? "x / TILE_M" : "x % TILE_K",
      o->trans_a ? "x % TILE_M" : "x / TILE_K", o->trans_a ? "x / TILE_M" : "x % TILE_K",
      o->trans_b ? "x % TILE_K" : "x / TILE_N", o->trans_b ? "x / TILE_K" : "x % TILE_N",
      o->trans_b ? "x % TILE_K" : "x / TILE_N", o->trans_b ? "x / TILE_K" : "x % TILE_N");
  (void)s;
}

static void put_macros(GString *out, const MsSourceOptions *o) {
  g_string_append_printf(
      out, "#define TILE_M %d\n#define TILE_N %d\n#define TILE_K %d\n#define EACH (TILE_M * TILE_N / 256)\n", o->tile_m,
      o->tile_n, o->tile_k);
  if (o->matrix) put_matrix_tile(out, o);
  else put_plain_tile(out);
  g_string_append(
      out,
      "INLINE SUM at(GLOBAL const ELEMENT *x, LONG i, int inside) { return inside ? WIDEN(x[i]) : (SUM)0; }\n"
      "#define CLEAR(x) UNROLL for (int e = 0; e < EACH; e++) x[e] = 0;\n"
      "#define ADD(to, w) UNROLL for (int e = 0; e < EACH; e++) to[e] += (w) * p[e];\n"
      "#define EACH_OF_C(x, y)                                                                   \\\n"
      "  UNROLL for (int e = 0; e < EACH; e++)                                                   \\\n"
      "    if (top + ROW(e) < bm && (x) * bm + top + ROW(e) < m && left + COL(e) < bn &&         \\\n"
      "        (y) * bn + left + COL(e) < n)\n"
      "#define C(x, y) c[(LONG)((x) * bm + top + ROW(e)) * ldc + (y) * bn + left + COL(e)]\n"
      "#define WRITE(x, y, v) EACH_OF_C(x, y) C(x, y) = alpha * v[e] + (beta == 0 ? (SUM)0 : beta * C(x, y));\n"
      "#define FIRST(x, y, w) EACH_OF_C(x, y) C(x, y) = alpha * (w) * p[e] + (beta == 0 ? (SUM)0 : beta * C(x, y));\n"
      "#define MORE(x, y, w) EACH_OF_C(x, y) C(x, y) += alpha * (w) * p[e];\n");
}

static void put_kernel(GString *out, const MsScheme *s, const MsSourceOptions *o) {
  const gboolean registers = ms_source_in_registers(s, o);
  g_string_append_printf(out,
                         "\nKERNEL void " MS_SOURCE_KERNEL
                         "(int m, int n, int k, SUM alpha, GLOBAL const ELEMENT *a, int lda, GLOBAL const ELEMENT *b,\n"
                         "                 int ldb, SUM beta, GLOBAL SUM *c, int ldc, GLOBAL SUM *part) {\n"
                         "  LOCAL __attribute__((aligned(16))) WORK sa[SA_SIZE];\n"
                         "  LOCAL __attribute__((aligned(16))) WORK sb[SB_SIZE];\n"
                         "  const int thread = THREAD, top = GROUP_Y * TILE_M, left = GROUP_X * TILE_N;\n"
                         "  const int bm = (m + %d) / %d, bn = (n + %d) / %d, bk = (k + %d) / %d;\n"
                         "  SUM p[EACH];\n",
                         s->m - 1, s->m, s->n - 1, s->n, s->k - 1, s->k);
  if (o->groups > 1)
    g_string_append(out, "  c = part + (LONG)GROUP_Z * m * n;\n  ldc = n;\n  alpha = 1;\n  beta = 0;\n");
  for (int b = 0; b < s->m * s->n && registers; b++)
    g_string_append_printf(out, "  SUM c%d_%d[EACH];\n  CLEAR(c%d_%d)\n", b / s->n, b % s->n, b / s->n, b % s->n);
  put_products(out, s, o);
  for (int b = 0; b < s->m * s->n && registers; b++)
    g_string_append_printf(out, "  WRITE(%d, %d, c%d_%d)\n", b / s->n, b % s->n, b / s->n, b % s->n);
  g_string_append(out, "  (void)part;\n}\n");
}

static void put_merge_kernel(GString *out, const MsSourceOptions *o) {
  g_string_append_printf(out,
                         "\nKERNEL void " MS_SOURCE_MERGE
                         "(int m, int n, SUM alpha, GLOBAL const SUM *part, SUM beta, GLOBAL SUM *c, int ldc) {\n"
                         "  const LONG all = (LONG)m * n, i = (LONG)GROUP_X * 256 + THREAD;\n"
                         "  SUM sum = 0;\n"
                         "  if (i >= all) return;\n"
                         "  for (int g = 0; g < %d; g++) sum += part[g * all + i];\n"
                         "  GLOBAL SUM *to = c + i / n * ldc + i %% n;\n"
                         "  *to = alpha * sum + (beta == 0 ? (SUM)0 : beta * *to);\n"
                         "}\n",
                         o->groups);
}

char *ms_source(const MsScheme *s, const MsSourceOptions *o, GError **error) {
  if (!valid(s, o, error)) return NULL;
  GString *out = g_string_new(NULL);
  g_string_append_printf(
      out,
      "/* C = alpha op(A) op(B) + beta C by %s <%d,%d,%d;%d>: %d products for %d. %s, %s; generated by moesim. */\n",
      s->name, s->m, s->k, s->n, s->r, s->r, s->m * s->k * s->n, ms_gpu_type_words[o->type],
      ms_dialect_words[o->dialect]);
  g_string_append(out, o->dialect == MS_DIALECT_OPENCL ? opencl : c_like);
  put_types(out, o);
  put_macros(out, o);
  put_access(out, s, o);
  put_kernel(out, s, o);
  if (o->groups > 1) put_merge_kernel(out, o);
  return g_string_free(out, FALSE);
}
