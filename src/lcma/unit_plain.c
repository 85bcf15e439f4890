/* src/lcma/unit_plain.c - the arithmetic of kernel.h in plain C: a vector is four elements. */
#include "lcma/kernel_units.h"

typedef struct {
  float x[4];
} Float4;
typedef struct {
  double x[4];
} Double4;

/* The operations on vectors of four REALs; a compiler without vectors makes four of each. */
#define OPERATIONS(VECTOR, REAL, name)                                                           \
  static inline VECTOR name##_load(const REAL *p) { return (VECTOR){{p[0], p[1], p[2], p[3]}}; } \
  static inline void name##_store(REAL *p, VECTOR v) {                                           \
    for (int i = 0; i < 4; i++) p[i] = v.x[i];                                                   \
  }                                                                                              \
  static inline VECTOR name##_set(REAL x) { return (VECTOR){{x, x, x, x}}; }                     \
  static inline VECTOR name##_add(VECTOR a, VECTOR b) {                                          \
    for (int i = 0; i < 4; i++) a.x[i] += b.x[i];                                                \
    return a;                                                                                    \
  }                                                                                              \
  static inline VECTOR name##_mul(VECTOR a, VECTOR b) {                                          \
    for (int i = 0; i < 4; i++) a.x[i] *= b.x[i];                                                \
    return a;                                                                                    \
  }
OPERATIONS(Float4, float, f32)
OPERATIONS(Double4, double, f64)

#define NAME(x) f32_##x
#define TARGET
#define REAL         float
#define VECTOR       Float4
#define LANES        4
#define MR           4
#define LOAD(p)      f32_load(p)
#define STORE(p, v)  f32_store(p, v)
#define STREAM(p, v) f32_store(p, v)
#define SET(v)       f32_set(v)
#define ADD(v, w)    f32_add(v, w)
#define MUL(v, w)    f32_mul(v, w)
#define FMA(u, v, w) f32_add(f32_mul(u, v), w)
#define ZERO()       f32_set(0)
#include "lcma/unit_real.h"

#define NAME(x) f64_##x
#define TARGET
#define REAL         double
#define VECTOR       Double4
#define LANES        4
#define MR           4
#define LOAD(p)      f64_load(p)
#define STORE(p, v)  f64_store(p, v)
#define STREAM(p, v) f64_store(p, v)
#define SET(v)       f64_set(v)
#define ADD(v, w)    f64_add(v, w)
#define MUL(v, w)    f64_mul(v, w)
#define FMA(u, v, w) f64_add(f64_mul(u, v), w)
#define ZERO()       f64_set(0)
#include "lcma/unit_real.h"

const MsKernel ms_kernels_plain[2] = {MS_REAL_KERNEL("plain f32 4x8", 4, 4, 8, f32),
                                      MS_REAL_KERNEL("plain f64 4x8", 8, 4, 8, f64)};
