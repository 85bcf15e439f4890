/* bench/lcma/competitors.c - lower-complexity multiplication beside its competitors on the products of language models,
 * see bench/lcma_competitors.sh.
 *
 * Contenders of a shape run in turn, once a round. Only undisturbed runs count: those in which the process had its CPUs
 * (CPU time over wall time above 0.95 of the threads). Rounds go on until each contender has REPS of them, or the
 * patience is over; a shape without them is printed as disturbed and left out of the means. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "lcma/context.h"

enum { REPS = 3, PATIENCE = 12, MOST = 12 };

typedef struct {
  const char *what;
  gint64 n, k; /* of one product; m is the number of tokens */
} Layer;
static const Layer layers[] = {{"llama3-8b attention", 6144, 4096},     {"llama3-8b mlp", 14336, 4096},
                               {"llama3-8b mlp down", 4096, 14336},     {"llama3-70b attention", 10240, 8192},
                               {"llama3-70b mlp", 28672, 8192},         {"llama3-70b mlp down", 8192, 28672},
                               {"llama3-405b attention", 18432, 16384}, {"llama3-405b mlp", 53248, 16384},
                               {"deepseek-v3 q up", 24576, 1536},       {"deepseek-v3 attention out", 7168, 16384},
                               {"deepseek-v3 dense mlp", 18432, 7168},  {"deepseek-v3 expert", 2048, 7168},
                               {"qwen3-32b attention", 10240, 5120},    {"qwen3-32b mlp", 25600, 5120},
                               {"qwen3-30b-a3b attention", 5120, 2048}};

typedef struct {
  char *name;
  const MsBlas *blas; /* NULL: `plan` by us */
  const char *plan;   /* NULL: decide */
  double least_s;
  int counted;
} Contender;

typedef struct {
  MsLcma *lcma;
  MsBlasType type;
  int threads, n;
  Contender all[MOST];
  void *a, *b, *c;
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

static void run(Race *r, Contender *x, const gint64 *s) {
  gint64 wall = g_get_monotonic_time();
  double cpu = ms_process_cpu_s();
  if (x->blas) {
    ms_blas_set_threads(x->blas, r->threads);
    if (r->type == MS_BLAS_F64)
      ms_blas_dgemm(x->blas, FALSE, FALSE, s[0], s[1], s[2], 1, r->a, s[2], r->b, s[1], 0, r->c, s[1]);
    else ms_blas_sgemm(x->blas, FALSE, FALSE, s[0], s[1], s[2], 1, r->a, s[2], r->b, s[1], 0, r->c, s[1]);
  } else {
    ms_lcma_set_plan(r->lcma, x->plan);
    if (r->type == MS_BLAS_F64)
      ms_lcma_dgemm(r->lcma, 'N', 'N', s[0], s[1], s[2], 1, r->a, s[2], r->b, s[1], 0, r->c, s[1]);
    else ms_lcma_sgemm(r->lcma, 'N', 'N', s[0], s[1], s[2], 1, r->a, s[2], r->b, s[1], 0, r->c, s[1]);
  }
  cpu = (ms_process_cpu_s() - cpu) / r->threads;
  double wall_s = 1e-6 * (double)(g_get_monotonic_time() - wall);
  r->runs++;
  if (cpu <= 0.95 * wall_s) return;
  r->quiet++;
  x->least_s = x->counted++ ? MIN(x->least_s, wall_s) : wall_s;
}

static gboolean enough(const Race *r) {
  for (int i = 0; i < r->n; i++)
    if (r->all[i].counted < REPS) return FALSE;
  return TRUE;
}

/* Ratios of the competitors' times to ours: of the best library, of Strassen over it, of the best of the others. */
static gboolean race(Race *r, const char *what, const gint64 *s, double *ratio) {
  r->a = pages(r->type, s[0] * s[2]);
  r->b = pages(r->type, s[2] * s[1]);
  r->c = pages(r->type, s[0] * s[1]);
  size_t real_B = r->type == MS_BLAS_F64 ? 8 : 4;
  if (!r->a || !r->b || !r->c) exit(4);
  for (int i = 0; i < r->n; i++) r->all[i].counted = 0;
  run(r, &r->all[0], s); /* rates and pages */
  r->all[0].counted = 0;
  g_autofree char *ours = g_strdup(ms_lcma_plan(r->lcma));
  for (int round = 0; round < PATIENCE && !enough(r); round++)
    for (int i = 0; i < r->n; i++) run(r, &r->all[i], s);
  munmap(r->a, (size_t)(s[0] * s[2]) * real_B);
  munmap(r->b, (size_t)(s[2] * s[1]) * real_B);
  munmap(r->c, (size_t)(s[0] * s[1]) * real_B);
  printf("| %s | %ld x %ld x %ld | %d | ", what, (long)s[0], (long)s[1], (long)s[2], r->threads);
  if (!enough(r)) {
    puts("disturbed |");
    return FALSE;
  }
  double best[3] = {HUGE_VAL, HUGE_VAL, HUGE_VAL};
  const char *name[3] = {"", "", ""};
  for (int i = 1; i < r->n; i++) {
    const Contender *x = &r->all[i];
    int class = x->blas ? 0 : strncmp(x->plan, "strassen", 8) == 0 ? 1 : 2;
    if (x->least_s < best[class]) best[class] = x->least_s, name[class] = x->name;
  }
  printf("%s | %.1f | %s %.3f | %s %.3f | %s %.3f |\n", ours,
         2e-9 * (double)s[0] * (double)s[1] * (double)s[2] / r->all[0].least_s, name[0], best[0] / r->all[0].least_s,
         name[1], best[1] / r->all[0].least_s, name[2], best[2] / r->all[0].least_s);
  fflush(stdout);
  for (int i = 0; i < 3; i++) ratio[i] = best[i] / r->all[0].least_s;
  return TRUE;
}

static void add(Race *r, const char *name, const MsBlas *blas, const char *plan) {
  r->all[r->n++] = (Contender){g_strdup(name), blas, plan, 0, 0};
}

static void field(int threads, MsBlasType type, gint64 tokens, gint64 largest) {
  static const char *const usual[] = {"strassen:library", "strassen/strassen:library", "4x4x5:library",
                                      "4x4x4-48:library", "4x5x5:library"};
  Race r = {.type = type, .threads = threads};
  double product[3] = {1, 1, 1}, worst = HUGE_VAL, best = 0;
  int counted = 0;
  const MsBlas *first = ms_blas_open(NULL, NULL);
  if (!first) exit(4);
  r.lcma = ms_lcma_new(ms_blas_name(first), threads, NULL, 0);
  add(&r, "ours", NULL, NULL);
  for (int i = 0; ms_blas_names[i]; i++) {
    const MsBlas *blas = ms_blas_open(ms_blas_names[i], NULL);
    if (blas && ms_blas_has(blas, type)) add(&r, ms_blas_names[i], blas, NULL);
  }
  for (size_t i = 0; i < G_N_ELEMENTS(usual); i++) add(&r, usual[i], NULL, usual[i]);
  printf(
      "\n%s, %d thread%s, %d tokens\n\n| layer | m x n x k | threads | plan | GFLOP/s | over the best library | over "
      "Strassen | over AlphaTensor's and AlphaEvolve's |\n|---|---|--:|---|--:|---|---|---|\n",
      ms_blas_type_words[type], threads, threads > 1 ? "s" : "", (int)tokens);
  for (size_t i = 0; i < G_N_ELEMENTS(layers); i++) {
    gint64 s[] = {tokens, layers[i].n, layers[i].k};
    double ratio[3];
    if (s[1] * s[2] > largest || !race(&r, layers[i].what, s, ratio)) continue;
    counted++;
    for (int c = 0; c < 3; c++) product[c] *= ratio[c];
    worst = MIN(worst, ratio[0]);
    best = MAX(best, ratio[0]);
  }
  if (counted)
    printf(
        "\n%d shapes: geometric mean over the best library %.3f (least %.3f, largest %.3f), over Strassen %.3f, over "
        "AlphaTensor's and AlphaEvolve's schemes with sums in memory %.3f; %d of %d runs undisturbed\n",
        counted, pow(product[0], 1.0 / counted), worst, best, pow(product[1], 1.0 / counted),
        pow(product[2], 1.0 / counted), r.quiet, r.runs);
  else printf("\nno shape was measured undisturbed (%d of %d runs)\n", r.quiet, r.runs);
  for (int i = 0; i < r.n; i++) g_free(r.all[i].name);
  ms_lcma_free(r.lcma);
}

int main(int argc, char **argv) {
  MsBlasType type = argc > 1 && strcmp(argv[1], "f64") == 0 ? MS_BLAS_F64 : MS_BLAS_F32;
  gint64 tokens = argc > 2 ? atoi(argv[2]) : 4096, largest = argc > 3 ? atoi(argv[3]) : G_MAXINT;
  if (tokens < 1) return 2;
  for (int threads = 1; threads <= 2; threads++) field(threads, type, tokens, largest);
  return 0;
}
