/* bench/lcma/competitors.c - lower-complexity multiplication beside its competitors on the products of language models,
 * see bench/lcma_competitors.sh.
 *
 * Contenders of a shape run in turn, once a round. Only undisturbed runs count: those in which the process had its CPUs
 * (CPU time over wall time above 0.95 of the threads; above 0.9 on one thread, whose CPU time is taken then). Rounds go
 * on until each contender has REPS of them, or the patience is over; a shape without them is printed as disturbed and
 * left out of the means. After its first undisturbed run a competitor that is 8 % slower than the best of its kind runs
 * no more.
 *
 * "the usual way" is the best of the three of Benson and Ballard (arXiv 1409.2908), write-once: each sum of blocks is
 * formed in memory by one pass over its terms, each product is one call of the library on all threads, each block of C
 * is one pass over its products; what the blocks do not cover goes to the library. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "lcma/context.h"
#include "lcma/kernel.h"
#include "lcma/team.h"

enum { REPS = 2, PATIENCE = 8, MOST = 16, KINDS = 4 };
#define HOPELESS 1.08 /* times the best of its kind */

typedef struct {
  const char *what;
  gint64 m, n, k; /* m tokens */
} Layer;
static const Layer layers[] = {
    {"llama3-8b attention", 8192, 6144, 4096},     {"llama3-8b mlp", 8192, 14336, 4096},
    {"llama3-8b mlp down", 4096, 4096, 14336},     {"llama3-70b attention", 4096, 10240, 8192},
    {"llama3-70b mlp", 4096, 28672, 8192},         {"llama3-70b mlp down", 4096, 8192, 28672},
    {"llama3-405b attention", 4096, 18432, 16384}, {"llama3-405b mlp", 4096, 53248, 16384},
    {"deepseek-v3 q up", 16384, 24576, 1536},      {"deepseek-v3 attention out", 4096, 7168, 16384},
    {"deepseek-v3 dense mlp", 4096, 18432, 7168},  {"deepseek-v3 expert", 16384, 2048, 7168},
    {"qwen3-32b attention", 8192, 10240, 5120},    {"qwen3-32b mlp", 4096, 25600, 5120},
    {"qwen3-30b-a3b attention", 16384, 5120, 2048}};

typedef enum { OURS, LIBRARY, STRASSEN, USUAL } Kind; /* USUAL: AlphaTensor's and AlphaEvolve's schemes */

typedef struct {
  char *name;
  Kind kind;
  const MsBlas *blas; /* NULL: ours */
  MsScheme *scheme;   /* executed the usual way over `blas`; NULL: the library alone */
  double least_s;
  int counted;
  gboolean hopeless;
} Contender;

typedef struct {
  MsLcma *lcma;
  MsBlasType type;
  int threads, n;
  Contender all[MOST];
  void *a, *b, *c, *room; /* room: of the usual way */
  size_t room_B;
  MsTeam *team;
  int runs, quiet;
} Race;

static void *pages(MsBlasType type, gint64 n) {
  size_t size_B = (size_t)n * (type == MS_BLAS_F64 ? 8 : 4);
  void *p = mmap(NULL, size_B, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  madvise(p, size_B, MADV_HUGEPAGE);
  for (gint64 i = 0; i < n; i++) {
    double v = (double)((guint64)i * 2654435761u >> 7 & 2047) / 1024 - 1;
    if (type == MS_BLAS_F64) ((double *)p)[i] = v;
    else ((float *)p)[i] = (float)v;
  }
  return p;
}

static size_t real_of(const Race *r) { return r->type == MS_BLAS_F64 ? 8 : 4; }

/* C = A B + beta C, row-major, by the library on all threads; places are counted in elements. */
static void library(const Race *r, const MsBlas *blas, gint64 m, gint64 n, gint64 k, const void *a, gint64 lda,
                    const void *b, gint64 ldb, int beta, void *c, gint64 ldc) {
  if (m == 0 || n == 0 || k == 0) return;
  ms_blas_set_threads(blas, r->threads);
  if (r->type == MS_BLAS_F64) ms_blas_dgemm(blas, FALSE, FALSE, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
  else ms_blas_sgemm(blas, FALSE, FALSE, m, n, k, 1, a, lda, b, ldb, (float)beta, c, ldc);
}

/* --- the usual way --------------------------------------------------------------------------------------------- */
typedef struct { /* out (rows x cols) = sum of coefficient * term */
  const MsKernel *kernel;
  char *out;
  gint64 out_ld, ld, rows, cols;
  const char *term[MS_SCHEME_PRODUCTS];
  double coefficient[MS_SCHEME_PRODUCTS];
  int terms;
} Pass;

static void pass_row(void *context, int row, int worker) {
  (void)worker;
  const Pass *p = context;
  const void *in[MS_SCHEME_PRODUCTS];
  for (int t = 0; t < p->terms; t++) in[t] = p->term[t] + (size_t)(row * p->ld) * p->kernel->real_B;
  p->kernel->combine(p->out + (size_t)(row * p->out_ld) * p->kernel->real_B, 0, in, p->coefficient, p->terms,
                     (size_t)p->cols, FALSE);
}

static void pass_add(Pass *p, const void *term, double coefficient) {
  if (coefficient == 0) return;
  p->term[p->terms] = term;
  p->coefficient[p->terms++] = coefficient;
}

static char *at(const Race *r, const void *x, gint64 i) { return (char *)x + (size_t)i * real_of(r); }

static size_t usual_room_B(const Race *r, const MsScheme *s, gint64 m, gint64 n, gint64 k) {
  gint64 bm = m / s->m, bn = n / s->n, bk = k / s->k;
  return (size_t)(bm * bk + bk * bn + s->r * bm * bn) * real_of(r);
}

static void usual(const Race *r, const MsBlas *blas, const MsScheme *s, gint64 m, gint64 n, gint64 k) {
  const MsKernel *kernel = ms_kernel_for((int)ms_vector(), real_of(r));
  gint64 bm = m / s->m, bn = n / s->n / MS_COMBINE_ALIGN * MS_COMBINE_ALIGN,
         bk = k / s->k / MS_COMBINE_ALIGN * MS_COMBINE_ALIGN;
  char *left = r->room, *right = at(r, left, bm * bk), *products = at(r, right, bk * bn);
  for (int p = 0; p < s->r; p++) {
    Pass a = {.kernel = kernel, .out = left, .out_ld = bk, .ld = k, .rows = bm, .cols = bk},
         b = {.kernel = kernel, .out = right, .out_ld = bn, .ld = n, .rows = bk, .cols = bn};
    for (int i = 0; i < s->m * s->k; i++)
      pass_add(&a, at(r, r->a, i / s->k * bm * k + i % s->k * bk), ms_coefficient(&s->u, p, i));
    for (int i = 0; i < s->k * s->n; i++)
      pass_add(&b, at(r, r->b, i / s->n * bk * n + i % s->n * bn), ms_coefficient(&s->v, p, i));
    ms_team_run(r->team, pass_row, &a, (int)bm);
    ms_team_run(r->team, pass_row, &b, (int)bk);
    library(r, blas, bm, bn, bk, left, bk, right, bn, 0, at(r, products, p * bm * bn), bn);
  }
  for (int i = 0; i < s->m * s->n; i++) {
    Pass c = {.kernel = kernel,
              .out = at(r, r->c, i / s->n * bm * n + i % s->n * bn),
              .out_ld = n,
              .ld = bn,
              .rows = bm,
              .cols = bn};
    for (int p = 0; p < s->r; p++) pass_add(&c, at(r, products, p * bm * bn), ms_coefficient(&s->w, p, i));
    ms_team_run(r->team, pass_row, &c, (int)bm);
  }
  gint64 cm = bm * s->m, cn = bn * s->n, ck = bk * s->k; /* the edges */
  library(r, blas, cm, cn, k - ck, at(r, r->a, ck), k, at(r, r->b, ck * n), n, 1, r->c, n);
  library(r, blas, cm, n - cn, k, r->a, k, at(r, r->b, cn), n, 0, at(r, r->c, cn), n);
  library(r, blas, m - cm, n, k, at(r, r->a, cm * k), k, r->b, n, 0, at(r, r->c, cm * n), n);
}

static double get(const Race *r, const void *x, gint64 i) {
  return r->type == MS_BLAS_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* A competitor that multiplies wrongly would be no competitor. */
static void prove(Race *r, const Contender *x) {
  const gint64 m = 171, n = 187, k = 203;
  usual(r, x->blas, x->scheme, m, n, k);
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      double sum = 0;
      for (gint64 l = 0; l < k; l++) sum += get(r, r->a, i * k + l) * get(r, r->b, l * n + j);
      if (fabs(sum - get(r, r->c, i * n + j)) > 1e-2) {
        fprintf(stderr, "%s is wrong: element %d %d is %g, not %g\n", x->name, (int)i, (int)j, get(r, r->c, i * n + j),
                sum);
        exit(1);
      }
    }
}

/* --- the race -------------------------------------------------------------------------------------------------- */
static void run(Race *r, Contender *x, const gint64 *s) {
  gint64 wall = g_get_monotonic_time();
  double cpu = ms_process_cpu_s();
  if (x->scheme) usual(r, x->blas, x->scheme, s[0], s[1], s[2]);
  else if (x->blas) library(r, x->blas, s[0], s[1], s[2], r->a, s[2], r->b, s[1], 0, r->c, s[1]);
  else if (r->type == MS_BLAS_F64)
    ms_lcma_dgemm(r->lcma, 'N', 'N', s[0], s[1], s[2], 1, r->a, s[2], r->b, s[1], 0, r->c, s[1]);
  else ms_lcma_sgemm(r->lcma, 'N', 'N', s[0], s[1], s[2], 1, r->a, s[2], r->b, s[1], 0, r->c, s[1]);
  cpu = (ms_process_cpu_s() - cpu) / r->threads;
  double wall_s = 1e-6 * (double)(g_get_monotonic_time() - wall);
  r->runs++;
  if (cpu <= (r->threads > 1 ? 0.95 : 0.9) * wall_s) return;
  r->quiet++;
  double time_s = r->threads > 1 ? wall_s : cpu;
  x->least_s = x->counted++ ? MIN(x->least_s, time_s) : time_s;
}

/* The best of each kind; who is far behind it rests. */
static void best_of(Race *r, const Contender **best) {
  for (int i = 0; i < r->n; i++) {
    const Contender *x = &r->all[i];
    if (x->counted && (!best[x->kind] || x->least_s < best[x->kind]->least_s)) best[x->kind] = x;
  }
  for (int i = 0; i < r->n; i++) {
    Contender *x = &r->all[i];
    x->hopeless = x->counted && x->least_s > HOPELESS * best[x->kind]->least_s;
  }
}

static gboolean enough(const Race *r) {
  for (int i = 0; i < r->n; i++)
    if (r->all[i].counted < REPS && !r->all[i].hopeless) return FALSE;
  return TRUE;
}

/* Ratios of the competitors' times to ours, by kind. */
static gboolean race(Race *r, const char *what, const gint64 *s, double *ratio) {
  const Contender *best[KINDS];
  size_t real_B = real_of(r);
  r->room_B = real_B; /* no scheme: none is needed */
  r->a = pages(r->type, s[0] * s[2]);
  r->b = pages(r->type, s[2] * s[1]);
  r->c = pages(r->type, s[0] * s[1]);
  for (int i = 0; i < r->n; i++)
    if (r->all[i].scheme) r->room_B = MAX(r->room_B, usual_room_B(r, r->all[i].scheme, s[0], s[1], s[2]));
  r->room = pages(r->type, (gint64)(r->room_B / real_B));
  if (!r->a || !r->b || !r->c || !r->room) exit(4);
  for (int i = 0; i < r->n; i++) {
    r->all[i].counted = 0;
    r->all[i].hopeless = FALSE;
    if (r->all[i].scheme && what[0] == 'p') prove(r, &r->all[i]);
  }
  run(r, &r->all[0], s); /* rates and pages */
  r->all[0].counted = 0;
  g_autofree char *ours = g_strdup(ms_lcma_plan(r->lcma));
  for (int round = 0; round < PATIENCE && !enough(r); round++) {
    for (int i = 0; i < r->n; i++)
      if (!r->all[i].hopeless) run(r, &r->all[i], s);
    memset(best, 0, sizeof best);
    best_of(r, best);
  }
  munmap(r->a, (size_t)(s[0] * s[2]) * real_B);
  munmap(r->b, (size_t)(s[2] * s[1]) * real_B);
  munmap(r->c, (size_t)(s[0] * s[1]) * real_B);
  munmap(r->room, r->room_B);
  printf("| %s | %ld x %ld x %ld | ", what, (long)s[0], (long)s[1], (long)s[2]);
  if (!enough(r)) {
    puts("disturbed |");
    fflush(stdout);
    return FALSE;
  }
  printf("%s | %.1f |", ours, 2e-9 * (double)s[0] * (double)s[1] * (double)s[2] / r->all[0].least_s);
  for (int i = LIBRARY; i < KINDS; i++) {
    ratio[i] = best[i] ? best[i]->least_s / r->all[0].least_s : 1;
    if (best[i]) printf(" %s %.3f |", best[i]->name, ratio[i]);
    else printf(" |");
  }
  puts("");
  fflush(stdout);
  return TRUE;
}

static void add(Race *r, const char *name, Kind kind, const MsBlas *blas, MsScheme *scheme) {
  r->all[r->n++] = (Contender){.name = g_strdup(name), .kind = kind, .blas = blas, .scheme = scheme};
}

static void field(int threads, MsBlasType type, gint64 largest, size_t first_layer, gboolean schemes) {
  static const char *const usual_way[] = {"strassen", "strassen*strassen", "4x4x5", "4x4x4-48", "3x4x5"};
  Race r = {.type = type, .threads = threads};
  double product[KINDS] = {1, 1, 1, 1}, worst = HUGE_VAL, best = 0, ratio[KINDS];
  int counted = 0;
  const MsBlas *first = ms_blas_open(NULL, NULL);
  if (!first) exit(4);
  r.lcma = ms_lcma_new(ms_blas_name(first), threads, NULL, 0);
  r.team = ms_team_new(threads);
  add(&r, "ours", OURS, NULL, NULL);
  for (int i = 0; ms_blas_names[i]; i++) {
    const MsBlas *blas = ms_blas_open(ms_blas_names[i], NULL);
    if (blas && ms_blas_has(blas, type)) add(&r, ms_blas_names[i], LIBRARY, blas, NULL);
  }
  for (size_t i = 0; i < G_N_ELEMENTS(usual_way) && schemes; i++)
    add(&r, usual_way[i], strncmp(usual_way[i], "strassen", 8) == 0 ? STRASSEN : USUAL, first,
        ms_scheme_new(usual_way[i], NULL));
  printf("\n%s, %d thread%s, %s; schemes the usual way over %s\n\n| layer | m x n x k | plan | GFLOP/s | over the best "
         "library | over Strassen | over AlphaTensor's and AlphaEvolve's |\n|---|---|---|--:|---|---|---|\n",
         ms_blas_type_words[type], threads, threads > 1 ? "s" : "", ms_vector_words[ms_vector()], ms_blas_name(first));
  race(&r, "proof (not counted)", (gint64[]){512, 512, 512}, ratio);
  for (size_t i = first_layer; i < G_N_ELEMENTS(layers); i++) {
    gint64 s[] = {layers[i].m, layers[i].n, layers[i].k};
    if ((double)s[0] * (double)s[1] * (double)s[2] > 1e9 * (double)largest || !race(&r, layers[i].what, s, ratio))
      continue;
    counted++;
    for (int c = LIBRARY; c < KINDS; c++) product[c] *= ratio[c];
    worst = MIN(worst, ratio[LIBRARY]);
    best = MAX(best, ratio[LIBRARY]);
  }
  if (counted)
    printf("\n%d shapes: geometric mean over the best library %.3f (least %.3f, largest %.3f)", counted,
           pow(product[LIBRARY], 1.0 / counted), worst, best);
  if (counted && schemes)
    printf(", over Strassen %.3f, over AlphaTensor's and AlphaEvolve's schemes %.3f",
           pow(product[STRASSEN], 1.0 / counted), pow(product[USUAL], 1.0 / counted));
  printf("; %d of %d runs undisturbed\n", r.quiet, r.runs);
  for (int i = 0; i < r.n; i++) {
    g_free(r.all[i].name);
    ms_scheme_free(r.all[i].scheme);
  }
  ms_team_free(r.team);
  ms_lcma_free(r.lcma);
}

/* [f32|f64 [THREADS [LARGEST [FIRST [libraries]]]]] */
int main(int argc, char **argv) {
  MsBlasType type = argc > 1 && strcmp(argv[1], "f64") == 0 ? MS_BLAS_F64 : MS_BLAS_F32;
  int threads = argc > 2 ? atoi(argv[2]) : 0;
  gint64 largest = argc > 3 ? atoi(argv[3]) : G_MAXINT;
  size_t first = argc > 4 ? (size_t)atoi(argv[4]) : 0;
  g_setenv("OPENBLAS_THREAD_TIMEOUT", "4", FALSE); /* else its threads keep the CPUs from who comes next */
  for (int t = 1; t <= 2; t++)
    if (threads == 0 || threads == t) field(t, type, largest, first, argc <= 5);
  return 0;
}
