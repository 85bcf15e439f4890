/* src/lcma/unit_real.h - the arithmetic of kernel.h for one vector unit and one type of elements: tiles, a function for
 * each number of rows and of vectors, all from one inline body, and combinations. The includer defines NAME(x), TARGET
 * (attribute), REAL, VECTOR, LANES, MR (14, 12, 6 or 4), LOAD(p), STORE(p, x), STREAM(p, x), SET(x), ADD(x, y), MUL(x,
 * y), FMA(x, y, z) = x y + z, ZERO(). With BIAS, A holds its numbers plus those of the vector BIAS, whose product with
 * B is taken off by SUB(x, y). NO_TILES, NO_COMBINE: only the other.
 *
 * The tile stays in registers: MR x 2 sums, 2 vectors of B, one element of A spread over a vector. Sums have names
 * instead of an array, because vectors whose length is known at run time only (SVE) cannot be elements. */
#include <string.h>
#define AHEAD      (1024 / (int64_t)sizeof(REAL)) /* of B: the elements fetched this far before they are used */
#define LINE       (64 / (int64_t)sizeof(REAL))   /* steps that use up a cache line of each row of A */
#define FETCHES    (MR > LINE ? 2 : 1)            /* rows of A fetched in a step, so that all are in as many steps */
#define PREFETCHES ((MR + FETCHES - 1) / FETCHES)

#ifndef MS_LCMA_UNROLL
#define MS_LCMA_UNROLL "GCC unroll 4" /* steps; one in sanitized builds, or clang works on a unit for minutes */
#endif

/* clang-format off */
#define ROWS4(X) X(0) X(1) X(2) X(3)
#if MR == 4
#define ROWS(X) ROWS4(X)
#elif MR == 6
#define ROWS(X) ROWS4(X) X(4) X(5)
#elif MR == 12
#define ROWS(X) ROWS4(X) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#else
#define ROWS(X) ROWS4(X) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#endif
/* clang-format on */

#ifndef NO_TILES
#define BEGIN(i)                                    \
  VECTOR left##i = ZERO(), right##i = ZERO();       \
  if (i < rows) __builtin_prefetch(c + i * ldc, 1); \
  if (i < rows && vectors > 1) __builtin_prefetch(c + i * ldc + LANES, 1);
#define STEP(i)                                       \
  if (i < rows) {                                     \
    VECTOR x = SET(a[i * row + p]);                   \
    left##i = FMA(x, b0, left##i);                    \
    if (vectors > 1) right##i = FMA(x, b1, right##i); \
  }
#ifdef BIAS
#define BEGIN_BIAS VECTOR over0 = ZERO(), over1 = ZERO();
#define STEP_BIAS               \
  over0 = FMA(BIAS, b0, over0); \
  if (vectors > 1) over1 = FMA(BIAS, b1, over1);
#define LESS(x, over) SUB(x, over)
#else
#define BEGIN_BIAS
#define STEP_BIAS
#define LESS(x, over) (x)
#endif
#define STEPS                                                                                   \
  VECTOR b0 = LOAD(b + p * 2 * LANES), b1 = vectors > 1 ? LOAD(b + p * 2 * LANES + LANES) : b0; \
  __builtin_prefetch(b + p * 2 * LANES + AHEAD);                                                \
  if (LANES * sizeof(REAL) == 64) __builtin_prefetch(b + p * 2 * LANES + AHEAD + LANES);        \
  STEP_BIAS ROWS(STEP)
#define PUT(at, x) STORE(at, add ? ADD(x, LOAD(at)) : (x))
#define END(i)                                          \
  if (i < rows) PUT(c + i * ldc, LESS(left##i, over0)); \
  if (i < rows && vectors > 1) PUT(c + i * ldc + LANES, LESS(right##i, over1));

TARGET static inline __attribute__((always_inline)) void NAME(body)(const int rows, const int vectors,
                                                                    const int64_t row_B, int64_t k, const REAL *a,
                                                                    const REAL *b, REAL *c, int64_t ldc, int add,
                                                                    const REAL *ahead) {
  const int64_t row = row_B / (int64_t)sizeof(REAL);
  ROWS(BEGIN)
  BEGIN_BIAS
  for (int64_t l = 0; l < k; l += LINE) {
    int64_t end = l + LINE < k ? l + LINE : k, near = l + PREFETCHES < end ? l + PREFETCHES : end, p = l;
    const REAL *fetch = ahead + l; /* a cache line of each row of the next tile of A */
    _Pragma(MS_LCMA_UNROLL) for (; p < near; p++, fetch += FETCHES * row) {
      __builtin_prefetch(fetch);
      if (FETCHES > 1) __builtin_prefetch(fetch + row);
      STEPS
    }
    _Pragma(MS_LCMA_UNROLL) for (; p < end; p++) { STEPS }
  }
  ROWS(END)
}

/* clang-format off */
#define TILE_OF(rows, vectors, title, row_B)                                                               \
  TARGET static void NAME(tile##rows##x##vectors##title)(int64_t k, const void *a, const void *b, void *c, \
                                                         int64_t ldc, int add, const void *ahead) {        \
    NAME(body)(rows, vectors, row_B, k, a, b, c, ldc, add, ahead);                                         \
  }
#define TILE(rows)                                            \
  TILE_OF(rows, 1, , MS_KERNEL_ROW_B(MS_KERNEL_SLAB_B))       \
  TILE_OF(rows, 2, , MS_KERNEL_ROW_B(MS_KERNEL_SLAB_B))       \
  TILE_OF(rows, 1, d, MS_KERNEL_ROW_B(MS_KERNEL_DEEP_SLAB_B)) \
  TILE_OF(rows, 2, d, MS_KERNEL_ROW_B(MS_KERNEL_DEEP_SLAB_B))
#define PAIR(rows) {{NAME(tile##rows##x1), NAME(tile##rows##x2)}, {NAME(tile##rows##x1d), NAME(tile##rows##x2d)}}
TILE(1) TILE(2) TILE(3) TILE(4)
#if MR > 4
TILE(5) TILE(6)
#endif
#if MR > 6
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#endif
#if MR > 12
TILE(13) TILE(14)
#endif
static void (*const NAME(tiles)[MR][2][2])(int64_t, const void *, const void *, void *, int64_t, int, const void *) = {
  PAIR(1), PAIR(2), PAIR(3), PAIR(4),
#if MR > 4
  PAIR(5), PAIR(6),
#endif
#if MR > 6
  PAIR(7), PAIR(8), PAIR(9), PAIR(10), PAIR(11), PAIR(12),
#endif
#if MR > 12
  PAIR(13), PAIR(14),
#endif
};
/* clang-format on */

static void NAME(tile)(int rows, int vectors, int deep, int64_t k, const void *a, const void *b, void *c, int64_t ldc,
                       int add, const void *ahead) {
  NAME(tiles)[rows - 1][deep][vectors - 1](k, a, b, c, ldc, add, ahead);
}
#endif

#ifndef NO_COMBINE /* tiles only */
TARGET static inline __attribute__((always_inline)) VECTOR NAME(sum)(const void *const *in, const double *coefficient,
                                                                     int terms, size_t i) {
  VECTOR a = MUL(SET((REAL)coefficient[0]), LOAD((const REAL *)in[0] + i));
  for (int t = 1; t < terms; t++) a = FMA(SET((REAL)coefficient[t]), LOAD((const REAL *)in[t] + i), a);
  return a;
}

TARGET static void NAME(combine)(void *to, size_t step, const void *const *in, const double *coefficient, int terms,
                                 size_t n, int stream) {
  REAL *out = to;
  REAL part[64]; /* of a cache line that goes partly past the caches, which is slow: the rest of it goes by copy */
  size_t i = 0, lanes = LANES, head = (64 - ((uintptr_t)to & 63)) % 64 / sizeof(REAL);
  if (!stream || step > 0 || n * sizeof(REAL) < 512) head = 0; /* too short to be worth two copies, or in pieces */
  for (; i < head; i += lanes) {
    STORE(part, NAME(sum)(in, coefficient, terms, i));
    memcpy(out + i, part, (head - i < lanes ? head - i : lanes) * sizeof(REAL));
  }
  i = head;
  out += head;
  stream = stream && ((uintptr_t)out & 63) == 0;
  if (step == 0) step = 2 * lanes;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const REAL *x = (const REAL *)in[0] + i;
    VECTOR c = SET((REAL)coefficient[0]), a0 = MUL(c, LOAD(x)), a1 = MUL(c, LOAD(x + lanes)),
           a2 = MUL(c, LOAD(x + 2 * lanes)), a3 = MUL(c, LOAD(x + 3 * lanes));
    for (int t = 1; t < terms; t++) {
      x = (const REAL *)in[t] + i;
      c = SET((REAL)coefficient[t]);
      a0 = FMA(c, LOAD(x), a0);
      a1 = FMA(c, LOAD(x + lanes), a1);
      a2 = FMA(c, LOAD(x + 2 * lanes), a2);
      a3 = FMA(c, LOAD(x + 3 * lanes), a3);
    }
    if (stream) {
      STREAM(out, a0);
      STREAM(out + lanes, a1);
      STREAM(out + step, a2);
      STREAM(out + step + lanes, a3);
    } else {
      STORE(out, a0);
      STORE(out + lanes, a1);
      STORE(out + step, a2);
      STORE(out + step + lanes, a3);
    }
    out += 2 * step;
  }
  for (size_t v = 0; i + lanes <= n; i += lanes, v++) {
    VECTOR a = NAME(sum)(in, coefficient, terms, i);
    if (stream) STREAM(out + v / 2 * step + v % 2 * lanes, a);
    else STORE(out + v / 2 * step + v % 2 * lanes, a);
  }
  if (i < n) {
    STORE(part, NAME(sum)(in, coefficient, terms, n - lanes));
    memcpy((REAL *)to + i, part + lanes - (n - i), (n - i) * sizeof(REAL));
  }
}
#endif

#undef AHEAD
#undef LINE
#undef FETCHES
#undef PREFETCHES
#undef STEPS
#undef BEGIN_BIAS
#undef STEP_BIAS
#undef LESS
#undef BIAS
#undef SUB
#undef TILE_OF
#undef ROWS
#undef ROWS4
#undef BEGIN
#undef STEP
#undef PUT
#undef END
#undef TILE
#undef PAIR
#undef NAME
#undef TARGET
#undef REAL
#undef VECTOR
#undef LANES
#undef MR
#undef LOAD
#undef STORE
#undef STREAM
#undef SET
#undef ADD
#undef MUL
#undef FMA
#undef ZERO
