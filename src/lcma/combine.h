/* src/lcma/combine.h - linear combinations of rows, the only arithmetic of a scheme outside its products.
 *
 * The kernels are driven by the table of coefficients instead of being generated as one function per scheme: operands
 * of a chunk lie in the first-level cache, so that the loop over the terms costs a tenth of the time that the stores
 * take, and any scheme and any tensor product of schemes runs without code of its own. Each kernel exists for AVX-512,
 * AVX2 and plain C; the CPU decides at run time. */
#ifndef MS_LCMA_COMBINE_H
#define MS_LCMA_COMBINE_H

#include <glib.h>

enum { MS_COMBINE_ALIGN = 16 }; /* elements are handled in groups of 16 */

/* out[i] = sum over t < terms of coefficient[t] * in[t][i] for i < n; n is a multiple of MS_COMBINE_ALIGN, terms >= 1.
 * `out` may be one of the inputs. With `step` > 0 the result is cut into pieces of two vectors, which go `step`
 * elements apart (panels of kernel.h). `stream`: the result goes past the caches where `out` and `step` are aligned to
 * 64 bytes; ms_combine_fence before others read it. */
void ms_combine_f32(float *out, size_t step, const float *const *in, const double *coefficient, int terms, size_t n,
                    gboolean stream);
void ms_combine_f64(double *out, size_t step, const double *const *in, const double *coefficient, int terms, size_t n,
                    gboolean stream);
void ms_combine_fence(void);

/* out[i] = in[i] for i < n, widened. */
void ms_widen_bf16(float *out, const guint16 *in, size_t n);

#endif
