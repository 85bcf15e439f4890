#include "lcma/measure.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PASSES = 5, MOST = 8 };
enum { AGAIN = 2 }; /* a run that others disturbed is done again at most so often */

double ms_fit_rates(const double *rows, const double *target, int n, int width, double *x) {
  double squares = 0, scale[MOST], normal[MOST][MOST] = {{0}}, right[MOST] = {0}, y[MOST];
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
  for (int i = 0; i < n; i++) squares += pow(ms_dot(x, rows + i * width, width) / target[i] - 1, 2);
  return squares;
}

/* --- the model of a fitted machine ----------------------------------------------------------------------------- */

static void surface_row(double m, double n, double k, double *row) {
  row[0] = m * n * k;
  row[1] = m * n;
  row[2] = m * k;
  row[3] = k * n;
}

static double library_s(const void *data, double m, double n, double k) {
  double row[MS_LIBRARY_RATES];
  surface_row(m, n, k, row);
  return ms_dot(((const MsLcmaLocal *)data)->library, row, MS_LIBRARY_RATES);
}

/* Threads take whole products; those for which they are too many they share, ms_lcma_pieces each. */
static void product_row(const MsLcmaLocal *local, double m, double n, double k, double count, double *row) {
  const double rest = fmod(count, local->threads), whole = count - rest, real_B = (double)local->kernel->real_B;
  const double pieces = ms_lcma_pieces(local->by_library ? NULL : local->kernel, (gint64)m, local->threads);
  surface_row(m, n, k, row);
  for (int i = 0; i < MS_PRODUCT_B; i++) row[i] *= count;
  row[MS_PRODUCT_PIECE] = whole + rest * pieces;
  row[MS_PRODUCT_B] *= row[MS_PRODUCT_PIECE];
  row[MS_PRODUCT_SHARED] = local->threads > 1 ? rest * m * n * k : 0;
  row[MS_PRODUCT_FAR] = row[MS_PRODUCT_BEYOND] = 0;
  if (local->by_library) return;
  const double half = local->kernel->nr / 2,
               slabs = ceil(k * real_B / local->kernel->depth / (double)ms_kernel_slab_B());
  const double passes = ceil(m / (double)ms_kernel_near(local->kernel)); /* of whole products over B */
  const double rows = whole > 0 ? m / passes : m / pieces,
               near_B = (double)(ms_kernel_near(local->kernel) * ms_kernel_slab_B());
  row[MS_PRODUCT_MULTIPLICATION] = count * m * ceil(n / half) * half * k;
  row[MS_PRODUCT_C] *= slabs;
  row[MS_PRODUCT_B] = (whole * passes + rest * pieces) * k * n;
  row[MS_PRODUCT_FAR] = count * m * n * (slabs - 1) * MAX(1 - near_B / (rows * n * real_B), 0);
  row[MS_PRODUCT_BEYOND] = MAX(count * (m * k + k * n) * real_B / local->kernel->depth - local->product_cache_B, 0);
}

static double product_s(const void *data, double m, double n, double k, double count) {
  double row[MS_PRODUCT_RATES];
  product_row(data, m, n, k, count, row);
  return ms_dot(((const MsLcmaLocal *)data)->product, row, MS_PRODUCT_RATES);
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

/* Seconds of one run, ms_team_clock_s, and of its phases. */
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
  for (int left = AGAIN;; left--) {
    *phases = (MsLcmaPhases){0};
    const double waited = ms_team_waited_s(), since = ms_team_clock_s(b->team);
    ms_lcma_execute(plan, b->blas, b->team, b->workspace, &g, phases);
    const double time_s = MAX(ms_team_clock_s(b->team) - since, 1e-7);
    if (left == 0 || ms_team_undisturbed(ms_team_waited_s() - waited, time_s)) return time_s;
  }
}

enum { SIZES = 28, SPREAD = 20 };
static const double most = 1.6e9;                                                                 /* multiplications */
static const char *const plan_names[] = {"definition", "strassen", "strassen*strassen", "4x5x5"}; /* no fractions */
enum { PLANS = G_N_ELEMENTS(plan_names), RUNS = PLANS * SIZES };

/* Shape i of those that are measured: sides from the least to SPREAD times it, thin and square ones, even in their
 * logarithms (steps: powers of 1/x, x^4 = x + 1, each dimension its own), those with more than `most` smaller. */
static void shape(int i, int by, int *to) {
  static const double steps[] = {0.8191725133961645, 0.6710436067037893, 0.5497004779019703};
  double side[3], all = 1;
  for (int d = 0; d < 3; d++) all *= side[d] = MS_LCMA_LEAST_SIDE * pow(SPREAD, fmod((i + 1) * steps[d], 1));
  for (int d = 0; d < 3; d++) to[d] = (int)(side[d] * MIN(cbrt(most / all), 1)) / by;
}

/* Bytes of the largest operand and of the largest workspace of all that is measured. */
static void needs(MsBlasType type, size_t *room_B, size_t *workspace_B) {
  *room_B = *workspace_B = 0;
  for (int at = 0; at < 2 * RUNS; at++) {
    g_autofree char *name = g_strconcat(plan_names[at % PLANS], at < RUNS ? "" : ":library", NULL);
    g_autoptr(MsLcmaPlan) plan = ms_lcma_plan_new(name, NULL);
    int size[3];
    shape(at % RUNS / PLANS, 1, size);
    const MsGemm g = {.type = type == MS_BLAS_F64 ? type : MS_BLAS_F32, .m = size[0], .n = size[1], .k = size[2]};
    const gint64 most_elements = MAX(MAX(g.m * g.n, g.m * g.k), g.k * g.n);
    *room_B = MAX(*room_B, (size_t)most_elements * ms_blas_type_B(g.type));
    *workspace_B = MAX(*workspace_B, ms_lcma_workspace_B(plan, &g));
  }
}

const char *ms_lcma_suffix(const MsLcmaLocal *local) {
  return local->type == MS_BLAS_INT8 ? ":int16" : local->by_library ? ":library" : "";
}

const char *ms_lcma_plain(const MsBlas *blas, MsBlasType type) {
  if (type == MS_BLAS_INT8) return "definition:int8";
  if (ms_blas_has(blas, type)) return "library";
  return type == MS_BLAS_BF16 && ms_kernel_bf16((int)ms_vector()) ? "definition:bf16" : "definition";
}

/* Of the times so far, 0: none. */
static void keep_least(double *least, double time_s) {
  time_s = MAX(time_s, 1e-6);
  *least = *least > 0 ? MIN(*least, time_s) : time_s;
}

/* Seconds of the products alone, of one block; FALSE when the kernel is the faster one. */
static gboolean library_multiplies_faster(const Bench *b, int by) {
  g_autoptr(MsLcmaPlan) ours = ms_lcma_plan_new("definition", NULL),
                        theirs = ms_lcma_plan_new("definition:library", NULL);
  double least[2] = {0};
  const int size[] = {512 / by, 512 / by, 512 / by};
  for (int turn = 0; turn < 8 * PASSES; turn++) { /* short, and all plans depend on it */
    MsLcmaPhases t;
    run(b, turn % 2 ? theirs : ours, size, &t);
    keep_least(&least[turn % 2], t.multiply_s);
  }
  return least[1] < 0.9 * least[0];
}

/* Rates of rows whose last column counts bytes: those beyond the cache, *cache_B, that fits best, cost more. */
static void fit_beyond(double *rows, const double *target, int width, double *rates, double *cache_B) {
  double bytes[RUNS], least = HUGE_VAL, x[MOST];
  for (int i = 0; i < RUNS; i++) bytes[i] = rows[i * width + width - 1];
  for (int power = 19; power <= 28; power++) { /* 512 KiB to 256 MiB */
    double cache = ldexp(1, power), error;
    for (int i = 0; i < RUNS; i++) rows[i * width + width - 1] = MAX(bytes[i] - cache, 0);
    if ((error = ms_fit_rates(rows, target, RUNS, width, x)) >= least) continue;
    least = error;
    *cache_B = cache;
    memcpy(rates, x, sizeof(double) * (size_t)width);
  }
  for (int i = 0; i < RUNS; i++) rows[i * width + width - 1] = MAX(bytes[i] - *cache_B, 0);
}

typedef struct { /* of each plan and shape: seconds of the phases, and what they are seconds of; the same of the library
                  */
  double split_s[RUNS], multiply_s[RUNS], merge_s[RUNS], library_s[SIZES];
  double split[RUNS * MS_SPLIT_RATES], product[RUNS * MS_PRODUCT_RATES], merge[RUNS * MS_MERGE_RATES];
  double library[SIZES * MS_LIBRARY_RATES];
} Runs;

static void measure_plan(const MsLcmaLocal *to, const Bench *b, const int *size, int at, Runs *r) {
  g_autofree char *name = g_strconcat(plan_names[at % PLANS], ms_lcma_suffix(to), NULL);
  g_autoptr(MsLcmaPlan) plan = ms_lcma_plan_new(name, NULL);
  const MsScheme *s = plan->scheme[0];
  MsLcmaPhases t;
  run(b, plan, size, &t);
  keep_least(&r->split_s[at], t.split_s);
  keep_least(&r->multiply_s[at], t.multiply_s);
  keep_least(&r->merge_s[at], t.merge_s);
  const MsLcmaBlock z = ms_lcma_block(s, size[0], size[1], size[2]);
  const MsLcmaCounts counts = {s->m, s->k, s->n, s->r, s->u.nonzeros, s->v.nonzeros, s->w.nonzeros};
  ms_lcma_rows(&to->machine, &counts, &(MsLcmaShape){size[0], size[1], size[2], FALSE, 0}, (double)z.m, (double)z.n,
               (double)z.k, 1, r->split + MS_SPLIT_RATES * at, r->merge + MS_MERGE_RATES * at);
  product_row(to, (double)z.m, (double)z.n, (double)z.k, s->r, r->product + MS_PRODUCT_RATES * at);
}

static void measure_runs(const MsLcmaLocal *to, const Bench *b, int by, Runs *r) {
  g_autoptr(MsLcmaPlan) plain = ms_lcma_plan_new(ms_lcma_plain(b->blas, b->type), NULL);
  for (int turn = 0; turn < PASSES * SIZES; turn++) {
    const int i = turn % SIZES;
    int size[3];
    MsLcmaPhases t;
    shape(i, by, size);
    run(b, plain, size, &t); /* for all: the operands are where they were last used */
    keep_least(&r->library_s[i], run(b, plain, size, &t));
    surface_row(size[0], size[1], size[2], r->library + MS_LIBRARY_RATES * i);
    for (int p = 0; p < PLANS; p++) measure_plan(to, b, size, PLANS * i + p, r);
  }
}

static void fit(MsLcmaLocal *to, Runs *r) {
  MsLcmaMachine *x = &to->machine;
  ms_fit_rates(r->library, r->library_s, SIZES, MS_LIBRARY_RATES, to->library);
  fit_beyond(r->split, r->split_s, MS_SPLIT_RATES, x->split, &x->split_cache_B);
  fit_beyond(r->product, r->multiply_s, MS_PRODUCT_RATES, to->product, &to->product_cache_B);
  fit_beyond(r->merge, r->merge_s, MS_MERGE_RATES, x->merge, &x->merge_cache_B);
  double squares = 0;
  for (int i = 0; i < RUNS; i++) {
    const double predicted_s = ms_dot(x->split, r->split + MS_SPLIT_RATES * i, MS_SPLIT_RATES) +
                               ms_dot(to->product, r->product + MS_PRODUCT_RATES * i, MS_PRODUCT_RATES) +
                               ms_dot(x->merge, r->merge + MS_MERGE_RATES * i, MS_MERGE_RATES);
    squares += pow(predicted_s / (r->split_s[i] + r->multiply_s[i] + r->merge_s[i]) - 1, 2);
  }
  to->error = sqrt(squares / RUNS);
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
  size_t room_B, workspace_B;
  needs(type, &room_B, &workspace_B);
  if (bench_room(&b, room_B, workspace_B)) {
    g_autoptr(MsLcmaPlan) first = ms_lcma_plan_new(ms_lcma_plain(blas, type), NULL);
    const int cube[] = {1024, 1024, 1024};
    MsLcmaPhases t;
    run(&b, first, cube, &t); /* warm: pages, threads, clock */
    int by =
        run(&b, first, cube, &t) < 0.05 ? 1 : 2; /* a slow machine or type: smaller shapes, so that it stays short */
    to->by_library = type != MS_BLAS_INT8 && library_multiplies_faster(&b, by);
    to->machine.slab_B = to->by_library ? 0 : (double)ms_kernel_slab_B();
    g_autofree Runs *runs = g_new0(Runs, 1);
    measure_runs(to, &b, by, runs);
    fit(to, runs);
  } else { /* no memory to measure in: nothing but the library will ever be chosen */
    to->product[0] = 1;
  }
  bench_free(&b);
  to->elapsed_s = 1e-6 * (double)(g_get_monotonic_time() - since);
  return to;
}
