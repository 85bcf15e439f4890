/* src/blas/blas.h - a BLAS chosen and loaded at run time.
 *
 * OpenBLAS (the default), BLIS, MKL and oneDNN behind one row-major interface; nothing is linked at build time. Debian
 * 12's OpenBLAS and BLIS do not know recent CPUs and fall back to kernels for old ones (1.65 times too slow, or worse).
 * The kernel is therefore asked for after loading; when the CPU can do more, the library is unloaded, told what to use
 * by its own environment variable, and loaded again. A variable that the user has set is left alone.
 *
 * Matrices are row-major: element (i, j) of X is x[i * ldx + j]. C = alpha op(A) op(B) + beta C, op(A) is m x k, op(B)
 * is k x n; with trans_a, A is stored k x m. beta 0 means that C is not read. Sizes and leading dimensions are at most
 * INT32_MAX. */
#ifndef MS_BLAS_BLAS_H
#define MS_BLAS_BLAS_H

#include <glib.h>

typedef struct MsBlas MsBlas;

typedef enum {
  MS_BLAS_F32,  /* float */
  MS_BLAS_F64,  /* double */
  MS_BLAS_BF16, /* A and B are bfloat16 (guint16), C is float, sums are kept in float */
  MS_BLAS_TYPES,
  MS_BLAS_INT8 = MS_BLAS_TYPES, /* A and B are gint8, C is gint32: no library here multiplies it, lcma/ does */
  MS_BLAS_ALL
} MsBlasType;
extern const char *const ms_blas_type_words[]; /* "f32", "f64", "bf16", "int8", NULL */
size_t ms_blas_type_B(MsBlasType type);        /* bytes of one element of A and B */

/* Names that ms_blas_open knows, NULL-terminated: "openblas", "blis", "mkl", "onednn". */
extern const char *const ms_blas_names[];

/* Loads the library `name`; NULL: $MOESIM_BLAS, else the first of ms_blas_names that is installed. A library is loaded
 * once; later calls return the same handle, which lives as long as the program. NULL and an MS_ERROR_ENV when it is not
 * installed or lacks gemm, an MS_ERROR_USAGE when the name is unknown. Loading may set an environment variable: call it
 * before other threads read the environment. */
const MsBlas *ms_blas_open(const char *name, GError **error);

const char *ms_blas_name(const MsBlas *blas);
const char *ms_blas_version(const MsBlas *blas); /* "0.3.21"; "unknown" where the library does not say */
/* The CPU its kernels are for, "SkylakeX"; NULL where the library does not say. */
const char *ms_blas_kernel(const MsBlas *blas);
/* What to tell the user about the kernels: that they were mended and how, or that they are too old for this CPU. NULL:
 * all is well. */
const char *ms_blas_note(const MsBlas *blas);
gboolean ms_blas_has(const MsBlas *blas, MsBlasType type);

/* Threads that each multiplication of the calling thread uses from now on. OpenBLAS, BLIS and MKL share the number
 * between all calling threads; oneDNN (OpenMP) keeps one for each. So: threads that multiply side by side all set 1. */
void ms_blas_set_threads(const MsBlas *blas, int threads);

/* One multiplication. MS_BUG when the library lacks the type (ask ms_blas_has) or a size is out of range. */
void ms_blas_sgemm(const MsBlas *blas, gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, float alpha,
                   const float *a, gint64 lda, const float *b, gint64 ldb, float beta, float *c, gint64 ldc);
void ms_blas_dgemm(const MsBlas *blas, gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, double alpha,
                   const double *a, gint64 lda, const double *b, gint64 ldb, double beta, double *c, gint64 ldc);
void ms_blas_bf16gemm(const MsBlas *blas, gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, float alpha,
                      const guint16 *a, gint64 lda, const guint16 *b, gint64 ldb, float beta, float *c, gint64 ldc);

/* The reference kernel: FLOP/s of a product of 384 x 384 floats, best of a few, by CPU time: what this core does just
 * now, with the threads that are set. Rows of all kinds follow it (docs/calibrate.md). */
double ms_blas_reference_flops(const MsBlas *blas);

int ms_cpus(void); /* CPUs this process may run on, at least 1 */

#endif
