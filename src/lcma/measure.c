#include "lcma/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

enum { PASSES = 3, MOST = 8 };

void ms_fit_rates(const double *rows, const double *target, int n, int width, double *x) {
  double scale[MOST], normal[MOST][MOST] = {{0}}, right[MOST] = {0}, y[MOST];
  for (int j = 0; j < width; j++) { /* columns of about one: rates differ by many orders */
    scale[j] = 0;
    for (int i = 0; i < n; i++) scale[j] = MAX(scale[j], rows[i * width + j] / target[i]);
    if (scale[j] <= 0) scale[j] = 1;
    y[j] = 0;
  }
  for (int i = 0; i < n; i++)
    for (int j = 0; j < width; j++) {
      double a = rows[i * width + j] / target[i] / scale[j];
      right[j] += a;
      for (int l = 0; l < width; l++) normal[j][l] += a * rows[i * width + l] / target[i] / scale[l];
    }
  for (int step = 0; step < 20000;
       step++) /* one coordinate after the other: converges for any positive semidefinite matrix */
    for (int j = 0; j < width; j++) {
      double gradient = -right[j];
      for (int l = 0; l < width; l++) gradient += normal[j][l] * y[l];
      if (normal[j][j] > 0) y[j] = MAX(y[j] - gradient / normal[j][j], 0);
    }
  for (int j = 0; j < width; j++) x[j] = y[j] / scale[j];
}

/* --- the model of a fitted machine ----------------------------------------------------------------------------- */
static double dot(const double *x, const double *row, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] * row[i];
  return sum;
}

static void surface_row(double m, double n, double k, double *row) {
  row[0] = m * n * k;
  row[1] = m * n;
  row[2] = m * k;
  row[3] = k * n;
}

static double library_s(const void *data, double m, double n, double k) {
  double row[MS_LIBRARY_RATES];
  surface_row(m, n, k, row);
  return dot(((const MsLcmaLocal *)data)->library, row, MS_LIBRARY_RATES);
}

static void product_row(const MsLcmaLocal *local, double m, double n, double k, double *row) {
  surface_row(m, n, k, row);
  row[4] = 0;
  if (local->by_library) return;
  double half = local->kernel->nr / 2, slab = MS_KERNEL_SLAB_B / (double)local->kernel->real_B * local->kernel->depth;
  row[0] = m * ceil(n / half) * half * k;
  row[1] = m * n * ceil(k / slab);
  row[4] = 1;
}

static double product_s(const void *data, double m, double n, double k) {
  double row[MS_PRODUCT_RATES];
  product_row(data, m, n, k, row);
  return dot(((const MsLcmaLocal *)data)->product, row, MS_PRODUCT_RATES);
}

/* --- measuring ------------------------------------------------------------------------------------------------- */
typedef struct {
  const MsBlas *blas;
  MsTeam *team;
  MsBlasType type;
  void *a, *b, *c, *workspace;
  size_t room_B, workspace_B;
} Bench;

static void *pages(size_t size_B) {
  void *p = mmap(NULL, size_B, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  madvise(p, size_B, MADV_HUGEPAGE);
  memset(p, 0, size_B);
  return p;
}

static gboolean bench_room(Bench *b, size_t room_B, size_t workspace_B) {
  b->room_B = room_B;
  b->workspace_B = workspace_B;
  b->a = pages(room_B);
  b->b = pages(room_B);
  b->c = pages(room_B);
  b->workspace = pages(workspace_B);
  if (!b->a || !b->b || !b->c || !b->workspace) return FALSE;
  for (size_t i = 0; i < room_B / 2; i++)
    ((guint16 *)b->a)[i] = ((guint16 *)b->b)[i] = (guint16)(0x3f00 + i % 61); /* ordinary numbers in every type */
  return TRUE;
}

static void bench_free(Bench *b) {
  void *all[] = {b->a, b->b, b->c};
  for (int i = 0; i < 3; i++)
    if (all[i]) munmap(all[i], b->room_B);
  if (b->workspace) munmap(b->workspace, b->workspace_B);
}

/* Seconds of one run, by CPU time, which other programs disturb less than wall time; its phases are added up in
 * *phases. */
static double run(const Bench *b, const MsLcmaPlan *plan, const int *size, MsLcmaPhases *phases) {
  MsGemm g = {.type = b->type,
              .m = size[0],
              .n = size[1],
              .k = size[2],
              .alpha = 1,
              .a = b->a,
              .lda = size[2],
              .b = b->b,
              .ldb = size[1],
              .c = b->c,
              .ldc = size[1]};
  double since = ms_process_cpu_s();
  ms_lcma_execute(plan, b->blas, b->team, b->workspace, &g, phases);
  return MAX((ms_process_cpu_s() - since) / ms_team_threads(b->team), 1e-7);
}

enum { PLAN_SIZES = 14 }; /* of the sizes: those of the plans */
static const int sizes[][3] = {{1001, 1090, 1130}, {600, 1211, 2003}, {1303, 709, 1999}, {2011, 1907, 301},
                               {2003, 291, 1777},  {311, 2005, 1801}, {413, 519, 707},   {192, 1000, 600},
                               {1000, 192, 600},   {1000, 600, 192},  {400, 700, 500},   {1024, 1024, 1024},
                               {2048, 2048, 160},  {2048, 2048, 320}, {256, 256, 256},   {250, 400, 3000},
                               {250, 3000, 400},   {3000, 250, 400},  {1536, 1536, 1536}};
static const char *const plan_names[] = {"definition", "strassen", "strassen*strassen", "4x5x5"}; /* no fractions */
enum { SIZES = G_N_ELEMENTS(sizes), PLANS = G_N_ELEMENTS(plan_names) };

static void shrink(const int *size, int by, int *to) {
  for (int i = 0; i < 3; i++) to[i] = size[i] / by;
}

const char *ms_lcma_suffix(const MsLcmaLocal *local) {
  return local->type == MS_BLAS_INT8 ? ":int16" : local->by_library ? ":library" : "";
}

const char *ms_lcma_plain(const MsBlas *blas, MsBlasType type) {
  if (type == MS_BLAS_INT8) return "definition:int8";
  if (ms_blas_has(blas, type)) return "library";
  return type == MS_BLAS_BF16 && ms_kernel_bf16((int)ms_vector()) ? "definition:bf16" : "definition";
}

static void fit_library(MsLcmaLocal *to, const Bench *b, int by) {
  g_autoptr(MsLcmaPlan) plan = ms_lcma_plan_new(ms_lcma_plain(b->blas, b->type), NULL);
  double rows[SIZES * MS_LIBRARY_RATES], time_s[SIZES];
  for (int pass = 0; pass < PASSES; pass++)
    for (int i = 0; i < SIZES; i++) {
      int size[3];
      shrink(sizes[i], by, size);
      surface_row(size[0], size[1], size[2], rows + MS_LIBRARY_RATES * i);
      double t = run(b, plan, size, NULL);
      time_s[i] = pass ? MIN(time_s[i], t) : t;
    }
  ms_fit_rates(rows, time_s, SIZES, MS_LIBRARY_RATES, to->library);
  for (int i = 0; i < SIZES; i++)
    to->residual =
        MAX(to->residual, fabs(dot(to->library, rows + MS_LIBRARY_RATES * i, MS_LIBRARY_RATES) / time_s[i] - 1));
}

/* Seconds of the products alone, of one block; FALSE when the kernel is the faster one. */
static gboolean library_multiplies_faster(const Bench *b, int by) {
  g_autoptr(MsLcmaPlan) ours = ms_lcma_plan_new("definition", NULL),
                        theirs = ms_lcma_plan_new("definition:library", NULL);
  double least[2] = {0};
  int size[3];
  shrink((const int[]){512, 512, 512}, by, size);
  for (int pass = 0; pass < PASSES; pass++)
    for (int which = 0; which < 2; which++) {
      MsLcmaPhases t = {0};
      run(b, which ? theirs : ours, size, &t);
      least[which] = pass ? MIN(least[which], t.multiply_s) : t.multiply_s;
    }
  return least[1] < 0.9 * least[0];
}

/* Times of the three phases of each plan and shape, and what the model says they consist of. */
static void fit_plans(MsLcmaLocal *to, const Bench *b, int by) {
  enum { N = PLANS * PLAN_SIZES, MERGE = 3 };
  double split[N * 2], merge[N * MERGE], product[N * MS_PRODUCT_RATES], split_s[N], merge_s[N], multiply_s[N];
  const MsLcmaMachine *x = &to->machine;
  for (int pass = 0; pass < PASSES; pass++)
    for (int p = 0; p < PLANS; p++) {
      g_autofree char *name = g_strconcat(plan_names[p], ms_lcma_suffix(to), NULL);
      g_autoptr(MsLcmaPlan) plan = ms_lcma_plan_new(name, NULL);
      const MsScheme *s = plan->scheme[0];
      for (int i = 0; i < PLAN_SIZES; i++) {
        int size[3], at = p * PLAN_SIZES + i;
        shrink(sizes[i], by, size);
        MsLcmaPhases t = {0};
        run(b, plan, size, &t);
        split_s[at] = MAX(pass ? MIN(split_s[at], t.split_s) : t.split_s, 1e-6);
        merge_s[at] = MAX(pass ? MIN(merge_s[at], t.merge_s) : t.merge_s, 1e-6);
        multiply_s[at] = MAX(pass ? MIN(multiply_s[at], t.multiply_s) : t.multiply_s, 1e-6);
        MsLcmaBlock z = ms_lcma_block(s, size[0], size[1], size[2]);
        double mk = (double)size[0] * size[2], kn = (double)size[2] * size[1], mn = (double)size[0] * size[1];
        double bm = (double)z.m, bn = (double)z.n, bk = (double)z.k;
        split[2 * at] = (mk + kn) * x->input_B + s->r * (bm * bk + bk * bn) * x->sum_B;
        split[2 * at + 1] = s->u.nonzeros * bm * bk + s->v.nonzeros * bk * bn;
        merge[MERGE * at] = (s->r * bm * bn + mn) * x->product_B;
        merge[MERGE * at + 1] = s->w.nonzeros * bm * bn;
        merge[MERGE * at + 2] = s->m * s->n * bm * ceil(bn / (double)ms_lcma_chunk(s->r + 1, (size_t)x->product_B));
        double *row = product + MS_PRODUCT_RATES * at;
        product_row(to, bm, bn, bk, row);
        for (int c = 0; c < MS_PRODUCT_RATES; c++) row[c] *= s->r;
      }
    }
  double rates[MERGE];
  ms_fit_rates(split, split_s, N, 2, rates);
  to->machine.split_s_per_B = rates[0];
  to->machine.split_s_per_term = rates[1];
  ms_fit_rates(merge, merge_s, N, MERGE, rates);
  to->machine.merge_s_per_B = rates[0];
  to->machine.merge_s_per_term = rates[1];
  to->machine.merge_s_per_piece = rates[2];
  ms_fit_rates(product, multiply_s, N, MS_PRODUCT_RATES, to->product);
}

MsLcmaLocal *ms_lcma_measure(const MsBlas *blas, MsTeam *team, MsBlasType type) {
  gint64 since = g_get_monotonic_time();
  MsLcmaLocal *to = g_new0(MsLcmaLocal, 1);
  double real_B = type == MS_BLAS_F64 ? 8 : 4;
  to->type = type;
  to->threads = ms_team_threads(team);
  to->kernel =
      type == MS_BLAS_INT8 ? ms_kernel_whole((int)ms_vector(), 16) : ms_kernel_for((int)ms_vector(), (size_t)real_B);
  to->machine = (MsLcmaMachine){.data = to,
                                .library_s = library_s,
                                .product_s = product_s,
                                .input_B = (double)ms_blas_type_B(type),
                                .sum_B = real_B / to->kernel->depth,
                                .product_B = real_B,
                                .least_side = MS_LCMA_LEAST_SIDE,
                                .margin = MS_LCMA_TIE,
                                .doubt = MS_LCMA_DOUBT / 2};
  Bench b = {.blas = blas, .team = team, .type = type};
  if (bench_room(&b, (size_t)(2048 * 2048 * real_B), (size_t)256 << 20)) {
    g_autoptr(MsLcmaPlan) first = ms_lcma_plan_new(ms_lcma_plain(blas, type), NULL);
    run(&b, first, sizes[0], NULL); /* warm: pages, threads, clock */
    int by = run(&b, first, sizes[0], NULL) < 0.03
                 ? 1
                 : 2; /* a slow machine or type: smaller shapes, so that it stays short */
    to->by_library = type != MS_BLAS_INT8 && library_multiplies_faster(&b, by);
    fit_library(to, &b, by);
    fit_plans(to, &b, by);
  } else { /* no memory to measure in: nothing but the library will ever be chosen */
    to->product[0] = 1;
  }
  bench_free(&b);
  to->elapsed_s = 1e-6 * (double)(g_get_monotonic_time() - since);
  return to;
}
