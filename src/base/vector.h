/* src/base/vector.h - the vector units of a CPU, and which one own kernels use.
 *
 * The widest that the CPU has, or the one that $MOESIM_VECTOR names: for measuring what a unit is worth, and for tests.
 */
#ifndef MS_BASE_VECTOR_H
#define MS_BASE_VECTOR_H

#include <glib.h>

typedef enum {
  MS_VECTOR_PLAIN, /* C without intrinsics; every CPU has it */
  MS_VECTOR_SSE2,
  MS_VECTOR_AVX2, /* with FMA */
  MS_VECTOR_AVX512,
  MS_VECTOR_AMX, /* products of bfloat16 and of 8-bit numbers; AVX-512 for all else */
  MS_VECTOR_NEON,
  MS_VECTOR_SVE,
  MS_VECTORS
} MsVector;
extern const char *const ms_vector_words[]; /* "plain", "sse2", "avx2", "avx512", "amx", "neon", "sve", NULL */

gboolean ms_vector_has(MsVector unit); /* this CPU does */

/* FALSE and an MS_ERROR_USAGE when $MOESIM_VECTOR is not a unit of this CPU. Programs ask once, when they start. */
gboolean ms_vector_check(GError **error);
/* The unit to use; the widest where $MOESIM_VECTOR is wrong. */
MsVector ms_vector(void);

#endif
