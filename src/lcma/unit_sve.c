/* src/lcma/unit_sve.c - the arithmetic of kernel.h in SVE, whatever the length of its vectors: of each, as many
 * elements are used as the largest power of two that is there, at most 16. */
#include "lcma/kernel_units.h"

#if defined(__aarch64__) && !defined(__clang__) /* clang does not know the pragma */
#pragma GCC target("+sve")
#include <arm_sve.h>

enum { SHORT = 128, MIDDLE = 256, LONG = 512 }; /* bits of a vector that are used */

static inline int bits(void) {
  uint64_t all = svcntb() * 8;
  return all >= LONG ? LONG : all >= MIDDLE ? MIDDLE : SHORT;
}

/* The elements that are used. */
static inline svbool_t used32(void) { return svwhilelt_b32(0, bits() / 32); }
static inline svbool_t used64(void) { return svwhilelt_b64(0, bits() / 64); }

#define NAME(x) f32_##x
#define TARGET
#define REAL         float
#define VECTOR       svfloat32_t
#define LANES        (bits() / 32)
#define MR           14
#define LOAD(p)      svld1_f32(used32(), p)
#define STORE(p, x)  svst1_f32(used32(), p, x)
#define STREAM(p, x) svstnt1_f32(used32(), p, x)
#define SET(x)       svdup_n_f32(x)
#define ADD(x, y)    svadd_f32_x(svptrue_b32(), x, y)
#define MUL(x, y)    svmul_f32_x(svptrue_b32(), x, y)
#define FMA(x, y, z) svmla_f32_x(svptrue_b32(), z, x, y)
#define ZERO()       svdup_n_f32(0)
#include "lcma/unit_real.h"

#define NAME(x) f64_##x
#define TARGET
#define REAL         double
#define VECTOR       svfloat64_t
#define LANES        (bits() / 64)
#define MR           14
#define LOAD(p)      svld1_f64(used64(), p)
#define STORE(p, x)  svst1_f64(used64(), p, x)
#define STREAM(p, x) svstnt1_f64(used64(), p, x)
#define SET(x)       svdup_n_f64(x)
#define ADD(x, y)    svadd_f64_x(svptrue_b64(), x, y)
#define MUL(x, y)    svmul_f64_x(svptrue_b64(), x, y)
#define FMA(x, y, z) svmla_f64_x(svptrue_b64(), z, x, y)
#define ZERO()       svdup_n_f64(0)
#include "lcma/unit_real.h"

const MsKernel *ms_kernels_sve(void) {
#define OF(bits)                                                      \
  {                                                                   \
    MS_REAL_KERNEL("sve" #bits " f32", 4, 14, 2 * bits / 32, f32),    \
        MS_REAL_KERNEL("sve" #bits " f64", 8, 14, 2 * bits / 64, f64) \
  }
  static const MsKernel kernels[3][2] = {OF(128), OF(256), OF(512)};
#undef OF
  return kernels[bits() == LONG ? 2 : bits() == MIDDLE];
}
#elif defined(__aarch64__)
const MsKernel *ms_kernels_sve(void) { return NULL; }
#endif
