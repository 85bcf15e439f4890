/* tests/unit/test_compute.c - generated GPU kernels: compiled by clang for nvptx and amdgcn in every dialect, and run
 * by OpenCL on the CPU (POCL) on small integers, equal to the bit: schemes, types, transposes, leading dimensions,
 * alpha and beta, edges, groups, C in registers and in memory. Without clang's targets or OpenCL a part is skipped by
 * name. */
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gpu/compute.h"
#include "lib/close.h"
#include "lib/tier.h"

/* --- sources --------------------------------------------------------------------------------------------------- */
/* What the compilers of the vendors know without a header. */
static const char *const shim =
    "#ifdef __cplusplus\n"
    "#define __global__ __attribute__((global))\n"
    "#define __device__ __attribute__((device))\n"
    "#define __shared__ __attribute__((shared))\n"
    "#define __forceinline__ __inline__ __attribute__((always_inline))\n"
    "struct Index { unsigned x, y, z; };\n"
    "extern const __device__ Index threadIdx, blockIdx;\n"
    "extern \"C\" __device__ void __syncthreads();\n"
    "static __device__ unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }\n"
    "static __device__ float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }\n"
    "#endif\n";

static gboolean runs(const char *command) {
  int status = 0;
  g_autofree char *out = NULL;
  return g_spawn_command_line_sync(command, &out, NULL, &status, NULL) && status == 0;
}

typedef struct {
  MsDialect dialect;
  const char *target; /* of clang */
  const char *words;
} Compiler;
static const Compiler compilers[] = {
    {MS_DIALECT_CUDA, "nvptx64", "-x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudalib -nocudainc"},
    {MS_DIALECT_HIP, "amdgcn", "-x hip --cuda-device-only --offload-arch=gfx90a -nogpulib -nogpuinc"},
    {MS_DIALECT_MUSA, "nvptx64", "-x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudalib -nocudainc"},
    {MS_DIALECT_OPENCL, "nvptx64", "-x cl -cl-std=CL1.2 -target nvptx64"},
    {MS_DIALECT_OPENCL, "amdgcn", "-x cl -cl-std=CL1.2 -target amdgcn -mcpu=gfx90a"}};

static gboolean clang_has(const char *target) {
  g_autofree char *out = NULL;
  if (!g_spawn_command_line_sync("clang -print-targets", &out, NULL, NULL, NULL)) return FALSE;
  return strstr(out, target) != NULL;
}

/* `to`: how far. */
static void compiles(const Compiler *c, const char *folder, const MsSourceOptions *o, const char *scheme_name,
                     const char *to) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsScheme) scheme = ms_scheme_new(scheme_name, NULL);
  g_autofree char *source = ms_source(scheme, o, &error);
  if (!source) fail_msg("%s", error->message);
  g_autofree char *file = g_build_filename(folder, "kernel.txt", NULL);
  g_autofree char *whole = g_strconcat(shim, source, NULL);
  assert_true(g_file_set_contents(file, whole, -1, NULL));
  g_autofree char *command = g_strdup_printf("clang %s -Wno-unknown-cuda-version %s %s", c->words, to, file),
                  *message = NULL;
  int status = 0;
  assert_true(g_spawn_command_line_sync(command, NULL, &message, &status, NULL));
  if (status != 0) fail_msg("%s, %s, %s: %s", scheme_name, ms_dialect_words[o->dialect], c->target, message);
  g_remove(file);
}

static void test_sources_compile(void **state) {
  (void)state;
  static const char *const schemes[] = {"strassen", "definition", "4x4x4-48"};
  if (!runs("clang --version")) {
    print_message("skipped: no clang\n");
    return;
  }
  g_autofree char *folder = g_dir_make_tmp("lcma-XXXXXX", NULL);
  for (size_t i = 0; i < G_N_ELEMENTS(compilers); i += (size_t)ms_by_tier(2, 1)) {
    const Compiler *c = &compilers[i];
    if (!clang_has(c->target)) {
      print_message("skipped: clang has no %s\n", c->target);
      continue;
    }
    for (int type = 0; type < MS_GPU_TYPES; type++) {
      /* Code takes clang a second each: of one type. OpenCL C, which other tests run in every type, is read in one; in
       * the quick tier all are. */
      int shown = (int)(i + 2) % MS_GPU_TYPES;
      if (type != shown && (c->dialect == MS_DIALECT_OPENCL || !ms_by_tier(0, 1))) continue;
      const char *name = schemes[0];
      g_autoptr(MsScheme) scheme = ms_scheme_new(name, NULL);
      MsSourceOptions o = ms_source_options(scheme, c->dialect, (MsGpuType)type);
      o.trans_a = type & 1;
      o.trans_b = type >> 1 & 1;
      o.groups = type == MS_GPU_TF32 ? 1 : MIN(scheme->r, 3);
      compiles(c, folder, &o, name, type == shown && ms_by_tier(0, 1) ? "-O1 -S -o /dev/null" : "-fsyntax-only");
    }
  }
  g_rmdir(folder);
}

static void test_options(void **state) {
  (void)state;
  g_autoptr(MsScheme) fractions = ms_scheme_new("4x4x4-48", NULL), scheme = ms_scheme_new("strassen", NULL);
  MsSourceOptions good = ms_source_options(scheme, MS_DIALECT_OPENCL, MS_GPU_F32), bad[6];
  for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) bad[i] = good;
  bad[0].groups = 8;
  bad[1].groups = 0;
  bad[2].tile_m = 48;
  bad[3].tile_k = 12;
  bad[4].matrix = TRUE;
  bad[5].tile_n = 256;
  for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) error = NULL;
    assert_null(ms_source(scheme, &bad[i], &error));
    assert_int_equal(error->code, MS_ERROR_USAGE);
  }
  MsSourceOptions whole = ms_source_options(fractions, MS_DIALECT_CUDA, MS_GPU_INT8);
  g_autoptr(GError) error = NULL;
  assert_null(ms_source(fractions, &whole, &error));
  assert_non_null(strstr(error->message, "fractions"));
  assert_true(ms_source_in_registers(scheme, &good));
  assert_null(ms_compute_open("vulkan", 0, NULL));
}

/* --- runs ------------------------------------------------------------------------------------------------------ */
static guint32 seed;
static int small(int most) {
  seed = seed * 1664525u + 1013904223u;
  return (int)((seed >> 8) % (guint32)(2 * most + 1)) - most;
}

static void put(MsGpuType type, void *x, gint64 i, int v) {
  static const guint16 half[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400};
  float f = (float)v;
  guint32 bits;
  memcpy(&bits, &f, sizeof bits);
  if (type == MS_GPU_BF16) ((guint16 *)x)[i] = (guint16)(bits >> 16);
  else if (type == MS_GPU_FP16) ((guint16 *)x)[i] = (guint16)(half[abs(v)] | (v < 0 ? 0x8000 : 0));
  else if (type == MS_GPU_INT8) ((gint8 *)x)[i] = (gint8)v;
  else ((float *)x)[i] = f;
}

typedef struct {
  const char *scheme;
  MsSourceOptions options;
  gint64 m, n, k, pad;
  double alpha, beta;
} Case;

static void right(MsCompute *compute, const Case *q) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsScheme) scheme = ms_scheme_new(q->scheme, NULL);
  const MsSourceOptions *o = &q->options;
  g_autoptr(MsComputeKernel) kernel = ms_compute_kernel(compute, scheme, o, &error);
  if (!kernel) fail_msg("%s", error->message);
  const int most = 3;
  gint64 lda = (o->trans_a ? q->m : q->k) + q->pad, ldb = (o->trans_b ? q->k : q->n) + 2 * q->pad, ldc = q->n + q->pad;
  g_autofree int *a = g_new(int, q->m * q->k), *b = g_new(int, q->k * q->n), *old = g_new(int, q->m * q->n);
  g_autofree char *to_a = g_malloc0((size_t)((q->m + q->k) * (q->m + q->k + q->pad)) * 4),
                  *to_b = g_malloc0((size_t)((q->n + q->k) * (q->n + q->k + 2 * q->pad)) * 4),
                  *to_c = g_malloc0((size_t)(q->m * ldc) * 4);
  const gboolean whole = o->type == MS_GPU_INT8;
  for (gint64 i = 0; i < q->m; i++)
    for (gint64 l = 0; l < q->k; l++)
      put(o->type, to_a, o->trans_a ? l * lda + i : i * lda + l, a[i * q->k + l] = small(most));
  for (gint64 l = 0; l < q->k; l++)
    for (gint64 j = 0; j < q->n; j++)
      put(o->type, to_b, o->trans_b ? j * ldb + l : l * ldb + j, b[l * q->n + j] = small(most));
  for (gint64 i = 0; i < q->m; i++)
    for (gint64 j = 0; j < ldc; j++) {
      int v = j < q->n ? old[i * q->n + j] = small(most) : 77; /* 77: not to be written */
      if (whole) ((int *)(void *)to_c)[i * ldc + j] = v;
      else ((float *)(void *)to_c)[i * ldc + j] = (float)v;
    }
  MsComputeGemm g = {q->m, q->n, q->k, q->alpha, q->beta, to_a, to_b, to_c, lda, ldb, ldc};
  if (!ms_compute_gemm(kernel, &g, 1, NULL, &error)) fail_msg("%s", error->message);
  for (gint64 i = 0; i < q->m; i++)
    for (gint64 j = 0; j < ldc; j++) {
      double got = whole ? ((int *)(void *)to_c)[i * ldc + j] : (double)((float *)(void *)to_c)[i * ldc + j], want = 77;
      if (j < q->n) {
        int sum = 0;
        for (gint64 l = 0; l < q->k; l++) sum += a[i * q->k + l] * b[l * q->n + j];
        want = q->alpha * sum + q->beta * old[i * q->n + j];
      }
      if (got != want)
        fail_msg("%s, %s, %dx%dx%d trans %d%d tile %dx%dx%d groups %d: element %d %d is %g, not %g", q->scheme,
                 ms_gpu_type_words[o->type], (int)q->m, (int)q->n, (int)q->k, o->trans_a, o->trans_b, o->tile_m,
                 o->tile_n, o->tile_k, o->groups, (int)i, (int)j, got, want);
    }
}

static MsCompute *open_cl(void) {
  g_autoptr(GError) error = NULL;
  MsCompute *compute = ms_compute_open("opencl", 0, &error);
  if (!compute) print_message("skipped: %s\n", error->message);
  return compute;
}

static void test_products(void **state) {
  (void)state;
  static const char *const schemes[] = {"strassen", "definition",       "2x3x3", "winograd", "3x2x2",
                                        "4x4x4-48", "strassen*strassen"};
  g_autoptr(MsCompute) compute = open_cl();
  if (!compute) return;
  seed = 3;
  for (int i = 0, count = ms_by_tier(2, 8); i < count; i++) { /* a kernel takes POCL seconds */
    MsGpuType type = (MsGpuType)(i % MS_GPU_TYPES);
    const char *name = schemes[(i / 2) % (type == MS_GPU_INT8 ? 5 : ms_by_tier(5, 7))];
    g_autoptr(MsScheme) scheme = ms_scheme_new(name, NULL);
    Case q = {.scheme = name, .options = ms_source_options(scheme, MS_DIALECT_OPENCL, type), .pad = i % 3};
    MsSourceOptions *o = &q.options;
    o->trans_a = i & 1;
    o->trans_b = i >> 1 & 1;
    o->groups = i % 4 == 3 ? 1 + (int)(i % (int)MIN(scheme->r, 5)) : 1;
    o->tile_m = 32 * (1 + (i + 1) % 3);
    o->tile_n = 32 * (1 + i / 3 % 2);
    o->tile_k = 8 << (i % 3);
    q.m = 1 + (gint64)abs(small(75));
    q.n = 1 + (gint64)abs(small(75));
    q.k = 1 + (gint64)abs(small(60));
    q.alpha = i % 5 == 0 ? 1 : 2;
    q.beta = i % 3 == 0 ? 0 : -1;
    right(compute, &q);
  }
}

/* Sums are rounded to the type, to nearest even, as the definition with one block shows. */
static void test_rounding(void **state) {
  (void)state;
  g_autoptr(MsCompute) compute = open_cl();
  if (!compute) return;
  g_autoptr(MsScheme) scheme = ms_scheme_new("strassen", NULL);
  g_autoptr(GError) error = NULL;
  /* A = [x 0; 0 y], B = 1, x = 1, y = 2^-8: of bf16, x + y is a tie that goes to 1. */
  const float x = 1, y = 0x1p-8f;
  MsSourceOptions o = ms_source_options(scheme, MS_DIALECT_OPENCL, MS_GPU_BF16);
  g_autoptr(MsComputeKernel) kernel = ms_compute_kernel(compute, scheme, &o, &error);
  if (!kernel) fail_msg("%s", error->message);
  guint16 a[4] = {0x3f80, 0, 0, 0x3b80}, b[4] = {0x3f80, 0, 0, 0x3f80}; /* 1, 2^-8 */
  float c[4] = {0};
  MsComputeGemm g = {2, 2, 2, 1, 0, a, b, c, 2, 2, 2};
  assert_true(ms_compute_gemm(kernel, &g, 1, NULL, NULL));
  /* p1 = round(x + y) 2 = 2, p2 = y, p3 = p6 = -x, p4 = p7 = -y, p5 = x; without rounding c11 were 1 and c22 y. */
  assert_close((double)c[0], (double)(2 * x - y - x - y), 0);
  assert_close((double)c[1], 0, 0);
  assert_close((double)c[2], 0, 0);
  assert_close((double)c[3], (double)(2 * x - y - x - x), 0);
}

static void test_missing(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  MsCompute *compute = ms_compute_open("cuda", 0, &error);
  if (compute) ms_compute_close(compute);
  else assert_non_null(strstr(error->message, "no generated kernel can run here"));
  g_clear_error(&error);
  compute = ms_compute_open("opencl", 1000, &error);
  assert_null(compute);
  assert_int_equal(error->code, MS_ERROR_ENV);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_options), cmocka_unit_test(test_sources_compile),
                                     cmocka_unit_test(test_products), cmocka_unit_test(test_rounding),
                                     cmocka_unit_test(test_missing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
