/* tests/unit/test_lcma_scheme.c - every scheme proved exactly, in every order of its sizes, and products of schemes;
 * each single coefficient matters: any one that is changed breaks the proof; names and texts that are wrong are
 * refused. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "lcma/scheme.h"
#include "lib/close.h"

/* Brent's equations in whole numbers, all (mk)(kn)(mn) of them. FALSE and, in *why if not NULL, the first that fails.
 */
static gboolean is_proved(const MsScheme *s, char **why) {
  const gint64 one = (gint64)s->u.denominator * s->v.denominator * s->w.denominator;
  g_autofree gint64 *sum = g_new(gint64, s->w.cols);
  for (int a = 0; a < s->u.cols; a++)
    for (int b = 0; b < s->v.cols; b++) {
      memset(sum, 0, sizeof *sum * (size_t)s->w.cols);
      for (int r = 0; r < s->r; r++) {
        gint64 uv = (gint64)s->u.numerator[r * s->u.cols + a] * s->v.numerator[r * s->v.cols + b];
        if (uv)
          for (int c = 0; c < s->w.cols; c++) sum[c] += uv * s->w.numerator[r * s->w.cols + c];
      }
      for (int c = 0; c < s->w.cols; c++) {
        gboolean term = a % s->k == b / s->n && a / s->k == c / s->n && b % s->n == c % s->n;
        if (sum[c] == (term ? one : 0)) continue;
        if (why)
          *why = g_strdup_printf("%s: a%d%d b%d%d appears %g times in c%d%d, not %d", s->name, a / s->k + 1,
                                 a % s->k + 1, b / s->n + 1, b % s->n + 1, (double)sum[c] / (double)one, c / s->n + 1,
                                 c % s->n + 1, term);
        return FALSE;
      }
    }
  return TRUE;
}

static void prove(const MsScheme *s) {
  g_autofree char *why = NULL;
  if (!is_proved(s, &why)) fail_msg("%s", why);
}

static void test_table_is_right_in_every_order(void **state) {
  (void)state;
  for (const MsSchemeText *t = ms_scheme_texts; t->name; t++) {
    MsScheme *s = ms_scheme_parse(t, NULL);
    assert_non_null(s);
    assert_true(s->r < s->m * s->k * s->n || s->r == 1);
    for (int turn = 0; turn < 6; turn++) {
      prove(s);
      MsScheme *next = turn == 2 ? ms_scheme_transposed(s) : ms_scheme_rotated(s);
      ms_scheme_free(s);
      s = next;
    }
    ms_scheme_free(s);
  }
}

static void test_products(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int m, k, n, r, levels;
  } expected[] = {{"strassen*strassen", 4, 4, 4, 49, 2},
                  {"winograd*winograd", 4, 4, 4, 49, 2},
                  {"strassen*strassen*strassen", 8, 8, 8, 343, 3},
                  {"3x2x2*strassen", 6, 4, 4, 77, 2},
                  {"3x3x2*2x3x3", 6, 9, 6, 225, 2},
                  {"4x2x3", 4, 2, 3, 20, 1},
                  {"4x4x4-48*strassen", 8, 8, 8, 336, 2}};
  for (size_t i = 0; i < G_N_ELEMENTS(expected); i++) {
    g_autoptr(MsScheme) s = ms_scheme_new(expected[i].name, NULL);
    assert_non_null(s);
    assert_int_equal(s->m, expected[i].m);
    assert_int_equal(s->k, expected[i].k);
    assert_int_equal(s->n, expected[i].n);
    assert_int_equal(s->r, expected[i].r);
    assert_int_equal(s->levels, expected[i].levels);
    prove(s);
  }
}

static int rank_of(const MsCoefficients *c) {
  g_autofree double *x = g_new(double, c->rows * c->cols);
  int rank = 0;
  for (int i = 0; i < c->rows * c->cols; i++) x[i] = c->numerator[i];
  for (int col = 0; col < c->cols; col++) {
    int pivot = -1;
    for (int i = rank; i < c->rows; i++)
      if (fabs(x[i * c->cols + col]) > 1e-9 &&
          (pivot < 0 || fabs(x[i * c->cols + col]) > fabs(x[pivot * c->cols + col])))
        pivot = i;
    if (pivot < 0) continue;
    for (int j = 0; j < c->cols; j++) {
      double t = x[rank * c->cols + j];
      x[rank * c->cols + j] = x[pivot * c->cols + j];
      x[pivot * c->cols + j] = t;
    }
    for (int i = rank + 1; i < c->rows; i++) {
      double f = x[i * c->cols + col] / x[rank * c->cols + col];
      for (int j = col; j < c->cols; j++) x[i * c->cols + j] -= f * x[rank * c->cols + j];
    }
    rank++;
  }
  return rank;
}

/* The sums of B determine B: were V x = 0 for blocks x that are not all zero, the scheme would give 0 for A x whatever
 * A is. So experts whose weights differ share no set of sums; only products with the same B do. The same of A. */
static void test_sums_determine_the_operand(void **state) {
  (void)state;
  for (const MsSchemeText *t = ms_scheme_texts; t->name; t++) {
    g_autoptr(MsScheme) s = ms_scheme_parse(t, NULL);
    assert_int_equal(rank_of(&s->u), s->m * s->k);
    assert_int_equal(rank_of(&s->v), s->k * s->n);
    assert_int_equal(rank_of(&s->w), s->m * s->n);
  }
}

/* Each coefficient in turn is changed by one unit: the proof must fail and say where. */
static void test_a_wrong_coefficient_is_caught(void **state) {
  (void)state;
  for (const MsSchemeText *t = ms_scheme_texts; t->name; t++) {
    g_autoptr(MsScheme) s = ms_scheme_parse(t, NULL);
    MsCoefficients *all[] = {&s->u, &s->v, &s->w};
    int stride = s->r > 30 ? 7 : 1; /* of the large ones a seventh, to save time */
    for (int x = 0; x < 3; x++)
      for (int i = 0; i < all[x]->rows * all[x]->cols; i += stride) {
        g_autofree char *why = NULL;
        all[x]->numerator[i] += 1;
        assert_false(is_proved(s, &why));
        assert_non_null(strstr(why, t->name));
        all[x]->numerator[i] -= 1;
      }
    prove(s);
  }
}

static void test_counts(void **state) {
  (void)state;
  g_autoptr(MsScheme) s = ms_scheme_new("strassen", NULL), s2 = ms_scheme_new("strassen*strassen", NULL);
  assert_int_equal(s->u.nonzeros, 12); /* docs/theory/fast-matmul.md */
  assert_int_equal(s->v.nonzeros, 12);
  assert_int_equal(s->w.nonzeros, 12);
  assert_int_equal(s2->u.nonzeros, 144);
  assert_close(ms_scheme_growth(s), 6, 1e-15);
  assert_close(ms_scheme_growth(s2), 36, 1e-15);
  g_autoptr(MsScheme) w = ms_scheme_new("winograd", NULL);
  assert_close(ms_scheme_growth(w), 9, 1e-15); /* 18 over k = 2: less stable than Strassen's, Higham 2002, 23.2.2 */
}

static void test_wrong_texts(void **state) {
  (void)state;
  static const char *const wrong[] = {"(a11)(b11) -> c11\n(a11)(b11) -> c11\n",
                                      "(a11)(b11)-> c11\n",
                                      "(a12)(b11) -> c11\n",
                                      "(a11 + a11)(b11) -> c11\n",
                                      "(1/3 a11)(b11) -> c11\n",
                                      "(0 a11)(b11) -> c11\n",
                                      "()(b11) -> c11\n",
                                      "(a11)(b11) -> c11",
                                      "",
                                      "(b11)(a11) -> c11\n"};
  for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
    g_autoptr(GError) error = NULL;
    assert_null(ms_scheme_parse(&(MsSchemeText){"t", 1, 1, 1, 1, "", wrong[i]}, &error));
    assert_int_equal(error->code, MS_ERROR_INPUT);
  }
  static const char *const names[] = {"",
                                      "strasen",
                                      "7x7x7",
                                      "2x2",
                                      "2x2x2x2",
                                      "*",
                                      "strassen*",
                                      "strassen*strassen*strassen*strassen",
                                      "99999999999x1x1"};
  for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
    g_autoptr(GError) error = NULL;
    assert_null(ms_scheme_new(names[i], &error));
    assert_int_equal(error->code, MS_ERROR_USAGE);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table_is_right_in_every_order),
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_sums_determine_the_operand),
      cmocka_unit_test(test_a_wrong_coefficient_is_caught),
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_wrong_texts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
