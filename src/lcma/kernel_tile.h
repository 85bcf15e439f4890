/* src/lcma/kernel_tile.h - the tiles of one kernel of kernel.c: a function for each number of rows and of vectors, all
 * from one inline body. NAME(x), TARGET, REAL, VECTOR, LANES, MR (14 or 6), LOAD, STORE, SET, ADD, FMA, ZERO are
 * defined by the includer. The tile stays in registers: MR x 2 sums, 2 vectors of B, one element of A spread over a
 * vector. */
#define ROW   ((gint64)(MS_KERNEL_ROW_B / sizeof(REAL)))
#define AHEAD (1024 / (gint64)sizeof(REAL)) /* of B: the elements fetched this far before they are used */

TARGET static inline __attribute__((always_inline)) void NAME(body)(const int rows, const int vectors, gint64 k,
                                                                    const REAL *a, const REAL *b, REAL *c, gint64 ldc,
                                                                    gboolean add, const REAL *ahead) {
  VECTOR sum[MR][2];
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      sum[i][v] = ZERO();
      __builtin_prefetch(c + i * ldc + v * LANES, 1);
    }
  for (gint64 l = 0; l < k; l += 16) {
    const REAL *fetch =
        ahead + l; /* one row of the next tile of A for each step: 16 steps use up a cache line of each row */
    gint64 end = MIN(l + 16, k);
#pragma GCC unroll 4
    for (gint64 p = l; p < end; p++, fetch += ROW) {
      VECTOR b0 = LOAD(b + p * 2 * LANES), b1 = vectors > 1 ? LOAD(b + p * 2 * LANES + LANES) : b0;
      __builtin_prefetch(fetch);
      __builtin_prefetch(b + p * 2 * LANES + AHEAD);
      if (LANES * sizeof(REAL) == 64) __builtin_prefetch(b + p * 2 * LANES + AHEAD + LANES);
#pragma GCC unroll 16
      for (int i = 0; i < rows; i++) {
        VECTOR x = SET(a[i * ROW + p]);
        sum[i][0] = FMA(x, b0, sum[i][0]);
        if (vectors > 1) sum[i][1] = FMA(x, b1, sum[i][1]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      REAL *at = c + i * ldc + v * LANES;
      STORE(at, add ? ADD(sum[i][v], LOAD(at)) : sum[i][v]);
    }
}

#define TILE(rows)                                                                                             \
  TARGET static void NAME(rows##x1)(gint64 k, const void *a, const void *b, void *c, gint64 ldc, gboolean add, \
                                    const void *ahead) {                                                       \
    NAME(body)(rows, 1, k, a, b, c, ldc, add, ahead);                                                          \
  }                                                                                                            \
  TARGET static void NAME(rows##x2)(gint64 k, const void *a, const void *b, void *c, gint64 ldc, gboolean add, \
                                    const void *ahead) {                                                       \
    NAME(body)(rows, 2, k, a, b, c, ldc, add, ahead);                                                          \
  }
/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if MR > 6
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#endif
#define PAIR(rows) {NAME(rows##x1), NAME(rows##x2)}
static void (*const NAME(tiles)[MR][2])(gint64, const void *, const void *, void *, gint64, gboolean, const void *) = {
  PAIR(1), PAIR(2), PAIR(3), PAIR(4), PAIR(5), PAIR(6),
#if MR > 6
  PAIR(7), PAIR(8), PAIR(9), PAIR(10), PAIR(11), PAIR(12), PAIR(13), PAIR(14),
#endif
};
/* clang-format on */
#undef TILE
#undef PAIR
#undef ROW
#undef AHEAD
#undef NAME
#undef TARGET
#undef REAL
#undef VECTOR
#undef LANES
#undef MR
#undef LOAD
#undef STORE
#undef SET
#undef ADD
#undef FMA
#undef ZERO
