#include "blas/blas.h"

#include <dlfcn.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

const char *const ms_blas_type_words[] = {"f32", "f64", "bf16", "int8", NULL};
const char *const ms_blas_names[] = {"openblas", "blis", "mkl", "onednn", NULL};

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };
typedef void (*CblasSgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                           const float *b, int ldb, float beta, float *c, int ldc);
typedef void (*CblasDgemm)(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                           const double *b, int ldb, double beta, double *c, int ldc);
typedef void (*CblasBf16gemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const guint16 *a, int lda,
                              const guint16 *b, int ldb, float beta, float *c, int ldc);
/* oneDNN: row-major, letters for the transposes, 64-bit sizes; 0 is success. */
typedef int (*DnnlSgemm)(char ta, char tb, gint64 m, gint64 n, gint64 k, float alpha, const float *a, gint64 lda,
                         const float *b, gint64 ldb, float beta, float *c, gint64 ldc);
typedef int (*DnnlBf16gemm)(char ta, char tb, gint64 m, gint64 n, gint64 k, float alpha, const guint16 *a, gint64 lda,
                            const guint16 *b, gint64 ldb, float beta, float *c, gint64 ldc);

struct MsBlas {
  const char *name;
  char *version, *kernel, *note;
  void *handle;
  CblasSgemm sgemm;
  CblasDgemm dgemm;
  CblasBf16gemm bf16gemm;
  DnnlSgemm dnnl_sgemm;
  DnnlBf16gemm dnnl_bf16gemm;
  void (*set_threads)(int threads);
  void (*set_threads_long)(long threads); /* BLIS; one of the two is there */
};

int ms_cpus(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return MAX(n, 1);
}

size_t ms_blas_type_B(MsBlasType type) {
  static const size_t size_B[MS_BLAS_ALL] = {4, 8, 2, 1};
  return size_B[type];
}

/* --- which vector unit the CPU has, and which one a library's kernels use -------------------------------------- */
typedef enum { UNIT_UNKNOWN, UNIT_AVX2, UNIT_AVX512 } Unit;

static Unit unit_of_cpu(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return UNIT_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return UNIT_AVX2;
#endif
  return UNIT_UNKNOWN;
}

/* Names that OpenBLAS and BLIS give to their kernels. Zen stands for the AVX2 kernels of both; a name not listed uses
 * less than AVX2. */
static Unit unit_of_kernel(const char *kernel) {
  static const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", "skx", "knl", "zen4", "zen5", NULL};
  static const char *const avx2[] = {"Haswell", "Zen", "haswell", "zen", "zen2", "zen3", NULL};
  return g_strv_contains(avx512, kernel) ? UNIT_AVX512 : g_strv_contains(avx2, kernel) ? UNIT_AVX2 : UNIT_UNKNOWN;
}

/* How a library is told which kernels to use, read when it is loaded. BLIS wants the number of its enumeration, which
 * differs between releases: the kernel is asked for afterwards, and a wrong guess is taken back. */
typedef struct {
  const char *variable, *avx512, *avx2;
} KernelChoice;
static const KernelChoice openblas_choice = {"OPENBLAS_CORETYPE", "SkylakeX", "Haswell"},
                          blis_choice = {"BLIS_ARCH_TYPE", "0", "3"};

/* --- loading --------------------------------------------------------------------------------------------------- */
static void *open_first(const char *const *files) {
  void *handle = NULL;
  for (int i = 0; files[i] && !handle; i++) handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
  return handle;
}

/* dlsym for functions: POSIX allows the conversion, ISO C wants it through a union. */
typedef void (*Function)(void);
static Function function(void *handle, const char *name) {
  union {
    void *object;
    Function function;
  } u = {handle ? dlsym(handle, name) : NULL};
  return u.function;
}

static char *openblas_kernel(void *handle) {
  char *(*corename)(void) = (char *(*)(void))function(handle, "openblas_get_corename");
  return corename ? g_strdup(corename()) : NULL;
}

static char *blis_kernel(void *handle) {
  Function init = function(handle, "bli_init");
  int (*query)(void) = (int (*)(void))function(handle, "bli_arch_query_id");
  const char *(*string)(int) = (const char *(*)(int))function(handle, "bli_arch_string");
  if (!init || !query || !string) return NULL;
  init();
  return g_strdup(string(query()));
}

/* Loads the first of `files`; asks for its kernel; where the CPU can do more, loads it again with other kernels. */
static void *load_mended(MsBlas *blas, const char *const *files, char *(*kernel_of)(void *),
                         const KernelChoice *choice) {
  void *handle = open_first(files);
  if (!handle) return NULL;
  blas->kernel = kernel_of(handle);
  Unit unit = unit_of_cpu();
  if (!blas->kernel || unit_of_kernel(blas->kernel) >= unit) return handle;
  if (g_getenv(choice->variable)) {
    blas->note = g_strdup_printf("%s uses its %s kernels because %s is set; this CPU has %s", blas->name, blas->kernel,
                                 choice->variable, unit == UNIT_AVX512 ? "AVX-512" : "AVX2");
    return handle;
  }
  const char *value = unit == UNIT_AVX512 ? choice->avx512 : choice->avx2;
  g_autofree char *old = blas->kernel;
  Function finalize = function(handle, "bli_finalize"); /* BLIS leaves what it allocated otherwise */
  if (finalize) finalize();
  dlopen("libgomp.so.1",
         RTLD_NOW | RTLD_NOLOAD); /* a thread runtime that came with it stays: it cannot be unloaded cleanly */
  dlclose(handle);
  g_setenv(choice->variable, value, TRUE);
  handle = open_first(files);
  blas->kernel = handle ? kernel_of(handle) : NULL;
  if (blas->kernel && unit_of_kernel(blas->kernel) >= unit) {
    blas->note = g_strdup_printf("%s chose its %s kernels by itself; loaded again with %s=%s", blas->name, old,
                                 choice->variable, value);
    return handle;
  }
  if (handle) dlclose(handle); /* a release that understands the value otherwise: back to its own choice */
  g_unsetenv(choice->variable);
  g_free(blas->kernel);
  handle = open_first(files);
  blas->kernel = handle ? kernel_of(handle) : NULL;
  blas->note = g_strdup_printf("%s uses its %s kernels, too old for this CPU, and %s=%s did not change it", blas->name,
                               old, choice->variable, value);
  return handle;
}

static gboolean load_openblas(MsBlas *blas) {
  static const char *const files[] = {"libopenblas.so.0", "libopenblas.so", NULL};
  blas->handle = load_mended(blas, files, openblas_kernel, &openblas_choice);
  char *(*config)(void) = (char *(*)(void))function(blas->handle, "openblas_get_config");
  if (config) { /* "OpenBLAS 0.3.21 NO_LAPACKE ..." */
    g_auto(GStrv) words = g_strsplit(config(), " ", 3);
    if (g_strv_length(words) > 1) blas->version = g_strdup(words[1]);
  }
  blas->set_threads = (void (*)(int))function(blas->handle, "openblas_set_num_threads");
  blas->bf16gemm = (CblasBf16gemm)function(blas->handle, "cblas_sbgemm");
  return blas->handle != NULL;
}

static gboolean load_blis(MsBlas *blas) {
  static const char *const files[] = {"libblis.so.4", "libblis.so.5", "libblis.so", NULL};
  blas->handle = load_mended(blas, files, blis_kernel, &blis_choice);
  char *(*version)(void) = (char *(*)(void))function(blas->handle, "bli_info_get_version_str");
  if (version) blas->version = g_strdup(version());
  blas->set_threads_long = (void (*)(long))function(blas->handle, "bli_thread_set_num_threads");
  return blas->handle != NULL;
}

static gboolean load_mkl(MsBlas *blas) {
  static const char *const files[] = {"libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so", NULL};
  enum { THREADING_GNU = 3 };
  blas->handle = open_first(files);
  int (*layer)(int) = (int (*)(int))function(blas->handle, "MKL_Set_Threading_Layer");
  if (layer) layer(THREADING_GNU); /* libgomp is everywhere, Intel's runtime is not */
  void (*version)(char *, int) = (void (*)(char *, int))function(blas->handle, "MKL_Get_Version_String");
  if (version) {
    char text[200] = "";
    version(text, sizeof text);
    blas->version = g_strdup(g_strstrip(text));
  }
  blas->set_threads = (void (*)(int))function(blas->handle, "MKL_Set_Num_Threads");
  blas->bf16gemm = (CblasBf16gemm)function(blas->handle, "cblas_gemm_bf16bf16f32");
  return blas->handle != NULL;
}

static gboolean load_onednn(MsBlas *blas) {
  static const char *const files[] = {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so", NULL}, *const openmp[] = {
                                                                                               "libgomp.so.1", NULL};
  typedef struct {
    int major, minor, patch;
  } Version; /* the first fields of dnnl_version_t in every release */
  blas->handle = open_first(files);
  const Version *(*version)(void) = (const Version *(*)(void))function(blas->handle, "dnnl_version");
  if (version) blas->version = g_strdup_printf("%d.%d.%d", version()->major, version()->minor, version()->patch);
  blas->dnnl_sgemm = (DnnlSgemm)function(blas->handle, "dnnl_sgemm");
  blas->dnnl_bf16gemm = (DnnlBf16gemm)function(blas->handle, "dnnl_gemm_bf16bf16f32");
  const guint16 one = 0x3f80;
  float c = 0;
  if (blas->dnnl_bf16gemm && blas->dnnl_bf16gemm('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &c, 1) != 0)
    blas->dnnl_bf16gemm = NULL; /* needs a vector unit that this CPU lacks */
  if (blas->handle) blas->set_threads = (void (*)(int))function(open_first(openmp), "omp_set_num_threads");
  return blas->handle != NULL;
}

static MsBlas *load(int index) {
  static gboolean (*const loaders[])(MsBlas *) = {load_openblas, load_blis, load_mkl, load_onednn};
  MsBlas *blas = g_new0(MsBlas, 1);
  blas->name = ms_blas_names[index];
  if (loaders[index](blas)) {
    blas->sgemm = (CblasSgemm)function(blas->handle, "cblas_sgemm");
    blas->dgemm = (CblasDgemm)function(blas->handle, "cblas_dgemm");
    if (!blas->version) blas->version = g_strdup("unknown");
    if ((blas->set_threads || blas->set_threads_long) && (blas->sgemm || blas->dnnl_sgemm)) return blas;
  }
  g_free(blas->version); /* a handle stays open: a library that was initialised once may have threads */
  g_free(blas->kernel);
  g_free(blas->note);
  g_free(blas);
  return NULL;
}

/* The library of a row of ms_blas_names, loaded at the first call; NULL when it is not installed. */
static const MsBlas *loaded(int index) {
  static GMutex mutex;
  static struct {
    gboolean tried;
    MsBlas *blas;
  } rows[G_N_ELEMENTS(ms_blas_names)];
  g_mutex_lock(&mutex);
  if (!rows[index].tried) {
    rows[index].tried = TRUE;
    rows[index].blas = load(index);
  }
  const MsBlas *blas = rows[index].blas;
  g_mutex_unlock(&mutex);
  return blas;
}

const MsBlas *ms_blas_open(const char *name, GError **error) {
  if (!name) name = g_getenv("MOESIM_BLAS");
  const MsBlas *blas = NULL;
  if (!name || !*name) {
    for (int i = 0; ms_blas_names[i] && !blas; i++) blas = loaded(i);
    if (!blas)
      g_set_error(error, MS_ERROR, MS_ERROR_ENV,
                  "no BLAS is installed; on Debian: apt-get install libopenblas0-pthread");
    return blas;
  }
  for (int i = 0; ms_blas_names[i]; i++) {
    if (strcmp(name, ms_blas_names[i]) != 0) continue;
    blas = loaded(i);
    if (!blas) g_set_error(error, MS_ERROR, MS_ERROR_ENV, "the library %s is not installed, or has no gemm", name);
    return blas;
  }
  g_autofree char *all = g_strjoinv(", ", (char **)ms_blas_names);
  ms_usage_error(error, "unknown BLAS '%s', known: %s", name, all);
  return NULL;
}

/* --- what the callers see -------------------------------------------------------------------------------------- */
const char *ms_blas_name(const MsBlas *blas) { return blas->name; }
const char *ms_blas_version(const MsBlas *blas) { return blas->version; }
const char *ms_blas_kernel(const MsBlas *blas) { return blas->kernel; }
const char *ms_blas_note(const MsBlas *blas) { return blas->note; }

gboolean ms_blas_has(const MsBlas *blas, MsBlasType type) {
  switch (type) {
  case MS_BLAS_F32: return blas->sgemm || blas->dnnl_sgemm;
  case MS_BLAS_F64: return blas->dgemm != NULL;
  case MS_BLAS_BF16: return blas->bf16gemm || blas->dnnl_bf16gemm;
  default: return FALSE;
  }
}

void ms_blas_set_threads(const MsBlas *blas, int threads) {
  threads = MAX(threads, 1);
  if (blas->set_threads) blas->set_threads(threads);
  else blas->set_threads_long(threads);
}

static void check(const MsBlas *blas, MsBlasType type, gint64 m, gint64 n, gint64 k, gint64 lda, gint64 ldb,
                  gint64 ldc) {
  if (!ms_blas_has(blas, type)) MS_BUG("%s has no gemm for %s", blas->name, ms_blas_type_words[type]);
  const gint64 sizes[] = {m, n, k, lda, ldb, ldc};
  for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
    if (sizes[i] < 0 || sizes[i] > G_MAXINT32) MS_BUG("gemm: a size is %" G_GINT64_FORMAT, sizes[i]);
}

static int cblas_trans(gboolean trans) { return trans ? CBLAS_TRANS : CBLAS_NO_TRANS; }
static char dnnl_trans(gboolean trans) { return trans ? 'T' : 'N'; }

void ms_blas_sgemm(const MsBlas *blas, gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, float alpha,
                   const float *a, gint64 lda, const float *b, gint64 ldb, float beta, float *c, gint64 ldc) {
  check(blas, MS_BLAS_F32, m, n, k, lda, ldb, ldc);
  if (blas->sgemm)
    blas->sgemm(CBLAS_ROW_MAJOR, cblas_trans(trans_a), cblas_trans(trans_b), (int)m, (int)n, (int)k, alpha, a, (int)lda,
                b, (int)ldb, beta, c, (int)ldc);
  else if (blas->dnnl_sgemm(dnnl_trans(trans_a), dnnl_trans(trans_b), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) !=
           0)
    MS_BUG("dnnl_sgemm refused its arguments");
}

void ms_blas_dgemm(const MsBlas *blas, gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, double alpha,
                   const double *a, gint64 lda, const double *b, gint64 ldb, double beta, double *c, gint64 ldc) {
  check(blas, MS_BLAS_F64, m, n, k, lda, ldb, ldc);
  blas->dgemm(CBLAS_ROW_MAJOR, cblas_trans(trans_a), cblas_trans(trans_b), (int)m, (int)n, (int)k, alpha, a, (int)lda,
              b, (int)ldb, beta, c, (int)ldc);
}

void ms_blas_bf16gemm(const MsBlas *blas, gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, float alpha,
                      const guint16 *a, gint64 lda, const guint16 *b, gint64 ldb, float beta, float *c, gint64 ldc) {
  check(blas, MS_BLAS_BF16, m, n, k, lda, ldb, ldc);
  if (blas->bf16gemm)
    blas->bf16gemm(CBLAS_ROW_MAJOR, cblas_trans(trans_a), cblas_trans(trans_b), (int)m, (int)n, (int)k, alpha, a,
                   (int)lda, b, (int)ldb, beta, c, (int)ldc);
  else if (blas->dnnl_bf16gemm(dnnl_trans(trans_a), dnnl_trans(trans_b), m, n, k, alpha, a, lda, b, ldb, beta, c,
                               ldc) != 0)
    MS_BUG("dnnl_gemm_bf16bf16f32 refused its arguments");
}

double ms_blas_reference_flops(const MsBlas *blas) {
  enum { N = 384, TIMES = 5 };
  g_autofree float *data = g_new(float, 3 * N * N);
  double best = 0;
  for (int i = 0; i < 3 * N * N; i++) data[i] = 0.5f + (float)(i % 61) / 61;
  for (int i = 0; i < TIMES; i++) {
    double since = ms_process_cpu_s();
    ms_blas_sgemm(blas, FALSE, FALSE, N, N, N, 1, data, N, data + N * N, N, 0, data + 2 * N * N, N);
    best = MAX(best, 2.0 * N * N * N / MAX(ms_process_cpu_s() - since, 1e-9));
  }
  return best;
}
