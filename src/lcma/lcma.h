/* moesim_lcma.h (src/lcma/lcma.h) - matrix multiplication with fewer multiplications, to be called like a BLAS.
 *
 *   C = alpha op(A) op(B) + beta C, row-major: op(A) is m x k, op(B) k x n, C m x n; trans is 'N' or 'T'; with beta 0 C
 * is not read.
 *
 * A context holds a BLAS loaded at run time, threads, a workspace that is kept between calls, and the rates of this
 * machine, which the first multiplication large enough to gain (some seconds of measuring) needs to decide. Small
 * ones go straight to the library. Fast schemes are accurate relative to the norms of A and B, not element by element:
 * see ms_lcma_error_growth. One context serves one thread at a time. Nothing of GLib or of moesim is needed to include
 * this file; link with -lmoesim_lcma. */
#ifndef MOESIM_LCMA_H
#define MOESIM_LCMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MS_LCMA_API __attribute__((visibility("default")))

typedef struct MsLcma MsLcma;

enum {
  MS_LCMA_OK = 0,
  MS_LCMA_BAD_ARGUMENT = 1, /* a size, leading dimension or letter is wrong; nothing was written */
  MS_LCMA_NO_LIBRARY = 2,   /* no BLAS is installed, or not this one, or it lacks the type, or the CPU does (int8) */
  MS_LCMA_UNKNOWN_PLAN = 3,
  MS_LCMA_NO_MEMORY = 4, /* not even for widening bfloat16, where the library cannot */
  MS_LCMA_BAD_FILE = 5   /* it cannot be read or written, or is none of this library, number of threads and CPU */
};

/* library: "openblas", "blis", "mkl", "onednn", or NULL for the first that is installed ($MOESIM_BLAS decides if set).
 * threads: 0 for all CPUs of the process. NULL on failure, with the reason in why (if not NULL). */
MS_LCMA_API MsLcma *ms_lcma_new(const char *library, int threads, char *why, size_t why_size);
MS_LCMA_API void ms_lcma_free(MsLcma *lcma);

/* At most this many bytes beside the matrices; 0: as many as the plan wants. */
MS_LCMA_API void ms_lcma_set_workspace_limit(MsLcma *lcma, size_t limit_B);
/* NULL: decide for every shape (the default). Else a plan for all: "library", "strassen", "3x4x5", "strassen*strassen"
 * (one pass), "strassen/strassen" (one inside the other). Where a limit of the workspace does not allow it, the library
 * multiplies. "definition:bf16", "strassen:bf16", …: products of bfloat16 on CPUs with AVX512-BF16 (elsewhere, and of
 * other types, a multiplication returns MS_LCMA_UNKNOWN_PLAN): sums of schemes are rounded to bfloat16 for it.
 * "definition:int8", "strassen:int16", …: the same of int8, whose sums need 16 bits; schemes without fractions. */
MS_LCMA_API int ms_lcma_set_plan(MsLcma *lcma, const char *plan);

/* How the plan of a shape (sizes, type, transposes, whether beta is 0) is decided, at its first call and for all later
 * ones: the same input gives the same output, to the bit, in every call of a context. trials > 0 (default 5): that call
 * runs the library, the scheme that is predicted fastest and those that may be as fast, each at least so many times,
 * before it multiplies by the fastest, so it takes 20 to 35 times as long as the others (after two seconds of trials
 * twice are enough); with beta other than 0 it takes memory for another C. After 128 shapes, where that is more than
 * the limit of the workspace, and with 0 trials: by prediction. Contexts may differ, as their measurements do:
 * ms_lcma_load or ms_lcma_set_plan make them agree. */
MS_LCMA_API int ms_lcma_set_trials(MsLcma *lcma, int trials);

/* Which plans were found by trial, as lines of text in a file, and a context that starts with them: another run of a
 * program then tries nothing again and gives the same output. Limits, scaling and trials are set before, since a change
 * of these forgets all. A file of another library, number of threads or vector unit, or with a line that is none, is
 * MS_LCMA_BAD_FILE, and nothing of it is taken. */
MS_LCMA_API int ms_lcma_save(const MsLcma *lcma, const char *path);
MS_LCMA_API int ms_lcma_load(MsLcma *lcma, const char *path);

/* on != 0: operands of schemes are copied and scaled by powers of two, so that small rows of A and columns of B keep
 * their digits in C, as they do in ordinary multiplication. Costs three copies of the matrices, in memory and time. */
MS_LCMA_API void ms_lcma_set_scaling(MsLcma *lcma, int on);

MS_LCMA_API int ms_lcma_sgemm(MsLcma *lcma, char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                              const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                              int64_t ldc);
MS_LCMA_API int ms_lcma_dgemm(MsLcma *lcma, char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, double alpha,
                              const double *a, int64_t lda, const double *b, int64_t ldb, double beta, double *c,
                              int64_t ldc);
/* A and B are bfloat16, sums and C are float. */
MS_LCMA_API int ms_lcma_bf16gemm(MsLcma *lcma, char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                                 const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta, float *c,
                                 int64_t ldc);

/* A and B have eight bits with sign, C has 32; exact modulo 2^32. Needs AVX512-VNNI, else MS_LCMA_NO_LIBRARY. */
MS_LCMA_API int ms_lcma_int8gemm(MsLcma *lcma, char trans_a, char trans_b, int64_t m, int64_t n, int64_t k,
                                 int32_t alpha, const int8_t *a, int64_t lda, const int8_t *b, int64_t ldb,
                                 int32_t beta, int32_t *c, int64_t ldc);

/* Of the last multiplication: the plan that ran (valid until the next call), and how much larger the bound of its
 * rounding error is than that of the definition (1 for the library, 6 for one level of Strassen's scheme, 36 for two).
 */
MS_LCMA_API const char *ms_lcma_plan(const MsLcma *lcma);
MS_LCMA_API double ms_lcma_error_growth(const MsLcma *lcma);

#ifdef __cplusplus
}
#endif

#endif
