/* src/lcma/unit_neon.c - the arithmetic of kernel.h in NEON. */
#include "lcma/kernel_units.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define NAME(x) f32_##x
#define TARGET
#define REAL         float
#define VECTOR       float32x4_t
#define LANES        4
#define MR           14
#define LOAD(p)      vld1q_f32(p)
#define STORE(p, x)  vst1q_f32(p, x)
#define STREAM(p, x) vst1q_f32(p, x)
#define SET(x)       vdupq_n_f32(x)
#define ADD(x, y)    vaddq_f32(x, y)
#define MUL(x, y)    vmulq_f32(x, y)
#define FMA(x, y, z) vfmaq_f32(z, x, y)
#define ZERO()       vdupq_n_f32(0)
#include "lcma/unit_real.h"

#define NAME(x) f64_##x
#define TARGET
#define REAL         double
#define VECTOR       float64x2_t
#define LANES        2
#define MR           14
#define LOAD(p)      vld1q_f64(p)
#define STORE(p, x)  vst1q_f64(p, x)
#define STREAM(p, x) vst1q_f64(p, x)
#define SET(x)       vdupq_n_f64(x)
#define ADD(x, y)    vaddq_f64(x, y)
#define MUL(x, y)    vmulq_f64(x, y)
#define FMA(x, y, z) vfmaq_f64(z, x, y)
#define ZERO()       vdupq_n_f64(0)
#include "lcma/unit_real.h"

const MsKernel ms_kernels_neon[2] = {MS_REAL_KERNEL("neon f32 14x8", 4, 14, 8, f32),
                                     MS_REAL_KERNEL("neon f64 14x4", 8, 14, 4, f64)};
#endif
