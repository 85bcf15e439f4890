#include "lcma/scheme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static void coefficients_init(MsCoefficients *c, int rows, int cols) {
  *c = (MsCoefficients){rows, cols, 1, g_new0(int, (size_t)rows *(size_t)cols), 0};
}

static void count_nonzeros(MsCoefficients *c) {
  c->nonzeros = 0;
  for (int i = 0; i < c->rows * c->cols; i++) c->nonzeros += c->numerator[i] != 0;
}

static MsScheme *scheme_new(const char *name, int m, int k, int n, int r, int levels) {
  MsScheme *s = g_new0(MsScheme, 1);
  *s = (MsScheme){.name = g_strdup(name), .m = m, .k = k, .n = n, .r = r, .levels = levels};
  coefficients_init(&s->u, r, m * k);
  coefficients_init(&s->v, r, k * n);
  coefficients_init(&s->w, r, m * n);
  return s;
}

void ms_scheme_free(MsScheme *s) {
  if (!s) return;
  g_free(s->name);
  g_free(s->u.numerator);
  g_free(s->v.numerator);
  g_free(s->w.numerator);
  g_free(s);
}

/* --- reading --------------------------------------------------------------------------------------------------- */
/* All coefficients of the table are multiples of 1/64: kept over that while reading, reduced afterwards. */
enum { DENOMINATOR = 64 };

static int gcd(int a, int b) { return b ? gcd(b, a % b) : abs(a); }

static void reduce(MsCoefficients *c) {
  int common = c->denominator;
  for (int i = 0; i < c->rows * c->cols; i++) common = gcd(common, c->numerator[i]);
  for (int i = 0; i < c->rows * c->cols; i++) c->numerator[i] /= common;
  c->denominator /= common;
  count_nonzeros(c);
}

static gboolean take(const char **at, const char *word) {
  size_t length = strlen(word);
  if (strncmp(*at, word, length) != 0) return FALSE;
  *at += length;
  return TRUE;
}

/* Small number at *at, advanced; `otherwise` where there is none. */
static int take_number(const char **at, int otherwise) {
  if (!g_ascii_isdigit(**at)) return otherwise;
  int value = 0;
  for (; g_ascii_isdigit(**at) && value < 1000; (*at)++) value = value * 10 + (**at - '0');
  return value;
}

/* A sum like "-1/2 a11 + a12" into row `row` of c, whose blocks are named `letter` and two digits, `across` to a row of
 * blocks. */
static gboolean take_sum(const char **at, char letter, int across, MsCoefficients *c, int row) {
  for (gboolean first = TRUE;; first = FALSE) {
    int sign = 1;
    if (first ? take(at, "-") : take(at, " - ")) sign = -1;
    else if (!first && !take(at, " + ")) return TRUE;
    int over = 1, value = take_number(at, 1);
    if (take(at, "/")) over = take_number(at, 0);
    if (over < 1 || value < 1 || DENOMINATOR % over) return FALSE;
    take(at, " ");
    if (**at != letter || (*at)[1] < '1' || (*at)[1] > '9' || (*at)[2] < '1' || (*at)[2] > '9') return FALSE;
    int i = (*at)[1] - '1', j = (*at)[2] - '1', block = i * across + j;
    if (j >= across || block >= c->cols || c->numerator[row * c->cols + block]) return FALSE;
    c->numerator[row * c->cols + block] = sign * value * (DENOMINATOR / over);
    *at += 3;
  }
}

MsScheme *ms_scheme_parse(const MsSchemeText *text, GError **error) {
  g_autoptr(MsScheme) s = scheme_new(text->name, text->m, text->k, text->n, text->r, 1);
  s->u.denominator = s->v.denominator = s->w.denominator = DENOMINATOR;
  const char *at = text->text;
  for (int row = 0; row < text->r; row++) {
    if (!take(&at, "(") || !take_sum(&at, 'a', text->k, &s->u, row) || !take(&at, ")(") ||
        !take_sum(&at, 'b', text->n, &s->v, row) || !take(&at, ") -> ") || !take_sum(&at, 'c', text->n, &s->w, row) ||
        !take(&at, "\n")) {
      ms_input_error(error, text->name, row + 1, NULL, "not a product (sum of a)(sum of b) -> sum of c, at '%.20s'",
                     at);
      return NULL;
    }
  }
  if (*at) {
    ms_input_error(error, text->name, text->r + 1, NULL, "more than the %d products that the scheme has", text->r);
    return NULL;
  }
  reduce(&s->u);
  reduce(&s->v);
  reduce(&s->w);
  return g_steal_pointer(&s);
}

/* --- others from these ----------------------------------------------------------------------------------------- */
static char *shape_name(int m, int k, int n) { return g_strdup_printf("%dx%dx%d", m, k, n); }

/* to = from with the blocks of each row, rows x cols of them, transposed. */
static void copy_transposed(MsCoefficients *to, const MsCoefficients *from, int rows, int cols) {
  to->denominator = from->denominator;
  for (int r = 0; r < from->rows; r++)
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < cols; j++)
        to->numerator[r * to->cols + j * rows + i] = from->numerator[r * from->cols + i * cols + j];
  count_nonzeros(to);
}

static void copy_straight(MsCoefficients *to, const MsCoefficients *from) {
  to->denominator = from->denominator;
  memcpy(to->numerator, from->numerator, sizeof(int) * (size_t)(from->rows * from->cols));
  count_nonzeros(to);
}

/* trace(A B C') is symmetric under rotation: what multiplies B (k x n) by C' (n x m) is the same table with the roles
 * moved on, and C of the trace is the transposed result. */
MsScheme *ms_scheme_rotated(const MsScheme *s) {
  g_autofree char *name = shape_name(s->k, s->n, s->m);
  MsScheme *to = scheme_new(name, s->k, s->n, s->m, s->r, s->levels);
  copy_straight(&to->u, &s->v);
  copy_transposed(&to->v, &s->w, s->m, s->n);
  copy_transposed(&to->w, &s->u, s->m, s->k);
  return to;
}

/* C^T = B^T A^T. */
MsScheme *ms_scheme_transposed(const MsScheme *s) {
  g_autofree char *name = shape_name(s->n, s->k, s->m);
  MsScheme *to = scheme_new(name, s->n, s->k, s->m, s->r, s->levels);
  copy_transposed(&to->u, &s->v, s->k, s->n);
  copy_transposed(&to->v, &s->u, s->m, s->k);
  copy_transposed(&to->w, &s->w, s->m, s->n);
  return to;
}

/* Row (r1, r2), block (i1 i2, j1 j2): the product of the two coefficients. rows, cols: the blocks of the outer and of
 * the inner scheme. */
static void kronecker(MsCoefficients *to, const MsCoefficients *x, int cols_x, const MsCoefficients *y, int cols_y) {
  to->denominator = x->denominator * y->denominator;
  for (int r = 0; r < to->rows; r++)
    for (int bx = 0; bx < x->cols; bx++)
      for (int by = 0; by < y->cols; by++) {
        int i = bx / cols_x * (y->cols / cols_y) + by / cols_y, j = bx % cols_x * cols_y + by % cols_y;
        to->numerator[r * to->cols + i * cols_x * cols_y + j] =
            x->numerator[r / y->rows * x->cols + bx] * y->numerator[r % y->rows * y->cols + by];
      }
  count_nonzeros(to);
}

/* Outer scheme on blocks of blocks: <m1 m2, k1 k2, n1 n2; r1 r2>. */
static MsScheme *product(const MsScheme *x, const MsScheme *y) {
  g_autofree char *name = g_strdup_printf("%s*%s", x->name, y->name);
  MsScheme *to = scheme_new(name, x->m * y->m, x->k * y->k, x->n * y->n, x->r * y->r, x->levels + y->levels);
  kronecker(&to->u, &x->u, x->k, &y->u, y->k);
  kronecker(&to->v, &x->v, x->n, &y->v, y->n);
  kronecker(&to->w, &x->w, x->n, &y->w, y->n);
  return to;
}

/* --- by name --------------------------------------------------------------------------------------------------- */
/* `s` rotated and transposed until it has the sizes; NULL when no order of its sizes does. Consumes s. */
static MsScheme *oriented(MsScheme *s, int m, int k, int n) {
  for (int turn = 0; turn < 6; turn++) {
    if (s->m == m && s->k == k && s->n == n) return s;
    MsScheme *next = turn == 2 ? ms_scheme_transposed(s) : ms_scheme_rotated(s);
    ms_scheme_free(s);
    s = next;
  }
  ms_scheme_free(s);
  return NULL;
}

static MsScheme *simple_scheme(const char *name, GError **error) {
  for (const MsSchemeText *t = ms_scheme_texts; t->name; t++)
    if (strcmp(t->name, name) == 0) return ms_scheme_parse(t, error);
  int size[3] = {0};
  const char *at = name;
  for (int i = 0; i < 3; i++)
    if ((i > 0 && !take(&at, "x")) || (size[i] = take_number(&at, 0)) == 0) break;
  for (const MsSchemeText *t = ms_scheme_texts; t->name && size[2] && !*at; t++) {
    MsScheme *s = ms_scheme_parse(t, error);
    if (s) s = oriented(s, size[0], size[1], size[2]);
    if (s) return s;
  }
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  for (const MsSchemeText *t = ms_scheme_texts; t->name; t++) g_ptr_array_add(names, (gpointer)t->name);
  g_ptr_array_add(names, NULL);
  g_autofree char *all = g_strjoinv(", ", (char **)names->pdata);
  ms_usage_error(error,
                 "unknown scheme '%s', known: %s, other orders of their sizes, and products like strassen*strassen",
                 name, all);
  return NULL;
}

MsScheme *ms_scheme_new(const char *name, GError **error) {
  g_auto(GStrv) words = g_strsplit(name, "*", -1);
  MsScheme *s = NULL;
  for (int i = 0; words[i] || i == 0; i++) {
    g_autoptr(MsScheme) outer = s, inner = simple_scheme(words[i] ? words[i] : "", error);
    s = NULL;
    if (!inner) return NULL;
    if (!outer) {
      s = g_steal_pointer(&inner);
      continue;
    }
    if (outer->r * inner->r > MS_SCHEME_PRODUCTS) {
      ms_usage_error(error, "scheme '%s' has more than %d products; nest with '/' instead of '*'", name,
                     MS_SCHEME_PRODUCTS);
      return NULL;
    }
    s = product(outer, inner);
  }
  return s;
}

static double row_norm(const MsCoefficients *c, int row) {
  double sum = 0;
  for (int i = 0; i < c->cols; i++) sum += abs(c->numerator[row * c->cols + i]);
  return sum / c->denominator;
}

double ms_scheme_growth(const MsScheme *s) {
  double worst = 0;
  for (int c = 0; c < s->w.cols; c++) {
    double sum = 0;
    for (int r = 0; r < s->r; r++) sum += fabs(ms_coefficient(&s->w, r, c)) * row_norm(&s->u, r) * row_norm(&s->v, r);
    worst = MAX(worst, sum);
  }
  return worst / s->k;
}
