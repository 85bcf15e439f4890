/* Which kernel is which operator: two sequences, with what stays alone, what belongs together, and in a band; a
 * simulated step that was disturbed as real ones are. */
#include "lib/close.h"

#include "lib/profiles.h"
#include "study/diff.h"
#include "work/op.h"

#include <math.h>
#include <string.h>

/* --- two sequences --------------------------------------------------------------------------------------------- */
enum { CLASSES = 3 };
static const double weight[CLASSES] = {1, 1, 0.25};

static void check(const MsAlignItem *kernel, int n, const MsAlignItem *row, int rows, const gint32 *expect) {
  g_autofree gint32 *found = g_new(gint32, n + 1);
  ms_align(kernel, n, row, rows, weight, CLASSES, MS_ALIGN_MOST_PAIRS, found);
  for (int i = 0; i < n; i++)
    if (found[i] != expect[i]) fail_msg("kernel %d is row %d, not %d", i, found[i], expect[i]);
}

static void sequences(void **state) {
  (void)state;
  static const MsAlignItem rows[] = {{0, 1}, {1, 5}, {0, 3}, {2, 0.1}, {0, 1}};
  static const MsAlignItem same[] = {{0, 2}, {1, 5}, {0, 6}, {2, 0.1}, {0, 2}};
  check(same, 5, rows, 5, (const gint32[]){0, 1, 2, 3, 4});
  static const MsAlignItem fewer[] = {{0, 1}, {1, 5}, {0, 3}, {0, 1}};
  check(fewer, 4, rows, 5, (const gint32[]){0, 1, 2, 4});
  static const MsAlignItem more[] = {{2, 0.1}, {0, 1}, {2, 0.2}, {1, 1}, {1, 4}, {0, 3}, {2, 0.1}, {0, 1}};
  check(more, 8, rows, 5, (const gint32[]){-1, 0, -1, -1, 1, 2, 3, 4});
  static const MsAlignItem parts[] = {{0, 1}, {1, 4}, {1, 1}, {0, 3}, {2, 0.1}, {0, 1}};
  check(parts, 6, rows, 5, (const gint32[]){0, 1, 1, 2, 3, 4});
  check(parts, 6, rows, 0, (const gint32[]){-1, -1, -1, -1, -1, -1});
  check(parts, 0, rows, 5, NULL);
  static const MsAlignItem zero[] = {{0, 0}, {1, 0}, {0, 0}, {2, 0}, {0, 0}};
  check(zero, 5, rows, 5, (const gint32[]){0, 1, 2, 3, 4});
}

/* Where not all pairs are looked at: the same sequence, of which some kernels are missing, in a band. */
static void in_a_band(void **state) {
  (void)state;
  enum { ROWS = 4000 };
  g_autofree MsAlignItem *row = g_new(MsAlignItem, ROWS), *kernel = g_new(MsAlignItem, ROWS);
  g_autofree gint32 *expect = g_new(gint32, ROWS), *found = g_new(gint32, ROWS);
  g_autoptr(GRand) rand = g_rand_new_with_seed(7);
  int n = 0, wrong = 0;
  for (int i = 0; i < ROWS; i++) {
    row[i] = (MsAlignItem){g_rand_int_range(rand, 0, CLASSES), exp(g_rand_double_range(rand, 0, 4))};
    if (g_rand_int_range(rand, 0, 50) == 0) continue;
    expect[n] = i;
    kernel[n++] = (MsAlignItem){row[i].class_index, row[i].time_s * g_rand_double_range(rand, 0.9, 1.1)};
  }
  ms_align(kernel, n, row, ROWS, weight, CLASSES, (gsize)n * 200, found);
  for (int i = 0; i < n; i++) wrong += found[i] != expect[i];
  assert_true(wrong < n / 50);
  /* all of the time in the last kernel: the middle of the band jumps */
  kernel[n - 1].time_s = 1e9;
  ms_align(kernel, n, row, ROWS, weight, CLASSES, (gsize)n * 200, found);
  for (int i = 1; i < n; i++) assert_true(found[i] < 0 || found[i] < ROWS);
}

/* --- a step ---------------------------------------------------------------------------------------------------- */
static MsProfile *simulated(void) {
  g_autofree char *file = ms_test_profile_scenario("{\"tp\": 2, \"pp\": 2, \"ep\": 2}");
  return ms_test_profile(file, 0);
}

static int class_of(const char *word) {
  for (guint c = 0; c < ms_test_kernels->classes->len; c++)
    if (strcmp(ms_kernel_class_word(ms_test_kernels, (int)c), word) == 0) return (int)c;
  fail_msg("no class %s", word);
  return -1;
}

/* What a profiler would have seen: other times, products slower as a whole, small kernels that no row has, some of a
 * row's missing, no shapes. truth: shape of each kernel, as index + 1 into those of `from`. */
static MsTrace *disturbed(const MsTrace *from, GArray *truth) {
  MsTrace *t = ms_trace_new("measured");
  MsTraceName copies = {g_strdup("a copy"), -1, class_of("elementwise")};
  g_autoptr(GRand) rand = g_rand_new_with_seed(11);
  gint64 now = 0;
  for (guint i = 0; i < from->names->len; i++) {
    MsTraceName name = {g_strdup("nvjet"), -1, g_array_index(from->names, MsTraceName, i).class_index};
    g_array_append_val(t->names, name);
  }
  g_array_append_val(t->names, copies);
  MsTraceStreamId stream = {0, 7, NULL};
  g_array_append_val(t->streams, stream);
  for (guint i = 0; i < from->kernels->len; i++) {
    const MsTraceKernel *k = &g_array_index(from->kernels, MsTraceKernel, i);
    double times = g_rand_double_range(rand, 0.75, 1.33) * (k->link ? 1.5 : 1);
    if (g_rand_int_range(rand, 0, 40) == 0 && !k->link) continue;
    for (int extra = g_rand_int_range(rand, 0, 6) == 0; extra >= 0; extra--) {
      MsTraceKernel one = {
          now, extra ? 3000 : (gint64)(times * (double)k->length_ns), extra ? from->names->len : k->name, 0, 0, 0};
      guint32 shape = extra ? 0 : k->link;
      g_array_append_val(t->kernels, one);
      g_array_append_val(truth, shape);
      now += one.length_ns + 2000;
    }
  }
  MsTraceStep step = {0, now, 0};
  g_array_append_val(t->steps, step);
  t->steps_by = "a test";
  return t;
}

/* All of it, and the first third. */
static void of_a_step(void **state) {
  gboolean part = *state != NULL;
  g_autoptr(MsProfile) p = simulated();
  g_autoptr(GArray) truth = g_array_new(FALSE, FALSE, sizeof(guint32));
  g_autoptr(MsTrace) measured = disturbed(p->trace, truth);
  if (part) g_array_set_size(measured->kernels, measured->kernels->len / 3);
  g_autoptr(MsAligned) a = ms_aligned_new(p->trace, measured, ms_test_kernels);
  guint products = 0, right = 0;
  for (guint i = 0; i < measured->kernels->len; i++) {
    guint32 is = g_array_index(truth, guint32, i), link = g_array_index(measured->kernels, MsTraceKernel, i).link;
    if (is == 0) {
      assert_int_equal(link, 0);
      continue;
    }
    products++;
    if (link == 0) continue;
    const MsTraceShape *x = &g_array_index(p->trace->shapes, MsTraceShape, is - 1),
                       *y = &g_array_index(measured->shapes, MsTraceShape, link - 1);
    right += x->m == y->m && x->n == y->n && x->k == y->k;
  }
  print_message("%u of %u products have their shape\n", right, products);
  assert_true(products > (part ? 60 : 200));
  assert_true(right > 0.98 * products);
  print_message("%g of the time\n", a->share);
  assert_true(a->share > 0.9);
  for (int i = 0; i < a->n; i++) {
    const MsAlignedOp *op = &a->op[i];
    if (strcmp(op->word, "gemm") != 0 || op->found < 20) continue;
    assert_true(fabs(op->ratio * 1.5 * 1.02 - 1) < 0.15);
    assert_close(op->gap_s, 2e-6, 1e-9);
    assert_true(op->found <= op->rows);
  }
}

/* A scenario beside a trace lists operators, two traces do not. */
static void in_a_diff(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GArray) truth = g_array_new(FALSE, FALSE, sizeof(guint32));
  g_autoptr(MsProfile) a = simulated(), b = simulated();
  g_autoptr(MsDiff) same = ms_diff_new(a, b, ms_test_kernels, notes, &error);
  assert_null(same->aligned);
  b->kind = MS_PROFILE_TRACE;
  ms_trace_free(b->trace);
  b->trace = disturbed(a->trace, truth);
  for (int swap = 0; swap < 2; swap++) {
    g_autoptr(MsDiff) d = ms_diff_new(swap ? b : a, swap ? a : b, ms_test_kernels, notes, &error);
    assert_non_null(d->aligned);
    assert_true(d->aligned->n > 20);
    double rows = 0;
    for (int i = 0; i < d->aligned->n; i++) {
      rows += d->aligned->op[i].rows;
      if (i > 0) assert_true(fabs(d->aligned->op[i].stake_s) <= fabs(d->aligned->op[i - 1].stake_s));
    }
    assert_true(rows < a->trace->kernels->len); /* messages are not among them */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sequences), cmocka_unit_test(in_a_band),
                                     cmocka_unit_test(of_a_step), cmocka_unit_test_prestate(of_a_step, (void *)"part"),
                                     cmocka_unit_test(in_a_diff)};
  return cmocka_run_group_tests(tests, ms_test_profiles_setup, ms_test_profiles_teardown);
}
