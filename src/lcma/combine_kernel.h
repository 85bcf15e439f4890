/* src/lcma/combine_kernel.h - one kernel of combine.c; included once for each type and vector unit.
 * NAME, TARGET (attribute), REAL, VECTOR, LANES, LOAD(p), STORE(p, x), STREAM(p, x), SET(c), FMA(c, x, acc), MUL(c, x)
 * are defined by the includer. */
TARGET static void NAME(REAL *out, size_t step, const REAL *const *in, const double *coefficient, int terms, size_t n,
                        gboolean stream) {
  size_t i = 0;
  if (step == 0) step = 2 * LANES;
  for (; i + 4 * LANES <= n; i += 4 * LANES) {
    const REAL *x = in[0] + i;
    VECTOR c = SET((REAL)coefficient[0]), a0 = MUL(c, LOAD(x)), a1 = MUL(c, LOAD(x + LANES)),
           a2 = MUL(c, LOAD(x + 2 * LANES)), a3 = MUL(c, LOAD(x + 3 * LANES));
    for (int t = 1; t < terms; t++) {
      x = in[t] + i;
      c = SET((REAL)coefficient[t]);
      a0 = FMA(c, LOAD(x), a0);
      a1 = FMA(c, LOAD(x + LANES), a1);
      a2 = FMA(c, LOAD(x + 2 * LANES), a2);
      a3 = FMA(c, LOAD(x + 3 * LANES), a3);
    }
    if (stream) {
      STREAM(out, a0);
      STREAM(out + LANES, a1);
      STREAM(out + step, a2);
      STREAM(out + step + LANES, a3);
    } else {
      STORE(out, a0);
      STORE(out + LANES, a1);
      STORE(out + step, a2);
      STORE(out + step + LANES, a3);
    }
    out += 2 * step;
  }
  for (size_t v = 0; i < n; i += LANES, v++) {
    VECTOR a = MUL(SET((REAL)coefficient[0]), LOAD(in[0] + i));
    for (int t = 1; t < terms; t++) a = FMA(SET((REAL)coefficient[t]), LOAD(in[t] + i), a);
    STORE(out + v / 2 * step + v % 2 * LANES, a);
  }
}
#undef NAME
#undef TARGET
#undef REAL
#undef VECTOR
#undef LANES
#undef LOAD
#undef STORE
#undef STREAM
#undef SET
#undef FMA
#undef MUL
