#include "lcma/lcma.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lcma/context.h"
#include "lcma/kernel.h"
#include "lcma/scale.h"

struct MsLcma {
  const MsBlas *blas;
  MsTeam *team;
  size_t limit_B;
  gboolean scaling;
  char *forced; /* NULL: decide */
  MsLcmaLocal *local[MS_BLAS_ALL];
  char *workspace;
  size_t workspace_B;
  MsLcmaPlan *plan; /* of the last multiplication; kept, because the next one is often the same */
  MsGemm decided;   /* what it was made for: type, transposes, sizes */
};

MsLcma *ms_lcma_new(const char *library, int threads, char *why, size_t why_size) {
  g_autoptr(GError) error = NULL;
  const MsBlas *blas = threads < 0 || !ms_vector_check(&error) ? NULL : ms_blas_open(library, &error);
  if (!blas) {
    if (why && why_size) g_strlcpy(why, error ? error->message : "the number of threads is negative", why_size);
    return NULL;
  }
  MsLcma *lcma = g_new0(MsLcma, 1);
  lcma->blas = blas;
  lcma->team = ms_team_new(threads ? threads : ms_cpus());
  return lcma;
}

static void forget(MsLcma *lcma) {
  ms_lcma_plan_free(lcma->plan);
  lcma->plan = NULL;
}

void ms_lcma_free(MsLcma *lcma) {
  if (!lcma) return;
  forget(lcma);
  for (int i = 0; i < MS_BLAS_ALL; i++) g_free(lcma->local[i]);
  if (lcma->workspace) munmap(lcma->workspace, lcma->workspace_B);
  ms_team_free(lcma->team);
  g_free(lcma->forced);
  g_free(lcma);
}

void ms_lcma_set_workspace_limit(MsLcma *lcma, size_t limit_B) {
  lcma->limit_B = limit_B;
  forget(lcma);
}

void ms_lcma_set_scaling(MsLcma *lcma, int on) { lcma->scaling = on != 0; }

int ms_lcma_set_plan(MsLcma *lcma, const char *name) {
  g_autoptr(MsLcmaPlan) plan = name ? ms_lcma_plan_new(name, NULL) : NULL;
  if (name && !plan) return MS_LCMA_UNKNOWN_PLAN;
  g_free(lcma->forced);
  lcma->forced = g_strdup(name);
  forget(lcma);
  return MS_LCMA_OK;
}

const MsBlas *ms_lcma_blas(const MsLcma *lcma) { return lcma->blas; }

static const MsLcmaLocal *local_of(MsLcma *lcma, MsBlasType type) { /* measured at the first call */
  if (!lcma->local[type]) lcma->local[type] = ms_lcma_measure(lcma->blas, lcma->team, type);
  return lcma->local[type];
}

GPtrArray *ms_lcma_choices(MsLcma *lcma, const MsGemm *g) {
  MsLcmaShape shape = {(double)g->m, (double)g->n, (double)g->k, g->beta != 0, (double)lcma->limit_B};
  GPtrArray *choices = ms_lcma_decide(&local_of(lcma, g->type)->machine, &shape);
  for (guint i = 0; i < choices->len && g->type == MS_BLAS_INT8; i++)
    ((MsLcmaChoice *)choices->pdata[i])->growth = 1; /* exact */
  return choices;
}

static MsLcmaPlan *plan_for(MsLcma *lcma, const MsGemm *g) {
  const char *name = lcma->forced;
  g_autoptr(GPtrArray) choices = NULL;
  g_autofree char *with_suffix = NULL;
  if (!name && MIN(MIN(g->m, g->n), g->k) >= MS_LCMA_LEAST_SIDE) { /* below nothing need be measured */
    choices = ms_lcma_choices(lcma, g);
    name = ((const MsLcmaChoice *)choices->pdata[0])->plan;
    if (strcmp(name, "library") != 0)
      name = with_suffix = g_strconcat(name, ms_lcma_suffix(local_of(lcma, g->type)), NULL);
  }
  if (!name || strcmp(name, "library") == 0) name = ms_lcma_plain(lcma->blas, g->type);
  MsLcmaPlan *plan = ms_lcma_plan_new(name, NULL);
  if (lcma->limit_B == 0 || plan->n_stages == 0 || ms_lcma_plan_fit(plan, g, lcma->limit_B)) return plan;
  ms_lcma_plan_free(plan);
  return ms_lcma_plan_new(ms_lcma_plain(lcma->blas, g->type), NULL);
}

static gboolean same(const MsGemm *x, const MsGemm *y) {
  return x->type == y->type && x->trans_a == y->trans_a && x->trans_b == y->trans_b && x->m == y->m && x->n == y->n &&
         x->k == y->k;
}

/* TRUE when the workspace has size_B bytes. Kept between calls: touching new pages costs as much as the additions. */
static gboolean workspace(MsLcma *lcma, size_t size_B) {
  if (size_B <= lcma->workspace_B) return TRUE;
  if (lcma->workspace) munmap(lcma->workspace, lcma->workspace_B);
  lcma->workspace_B = 0;
  lcma->workspace = mmap(NULL, size_B, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (lcma->workspace == MAP_FAILED) {
    lcma->workspace = NULL;
    return FALSE;
  }
  madvise(lcma->workspace, size_B, MADV_HUGEPAGE);
  lcma->workspace_B = size_B;
  return TRUE;
}

/* C = beta C, what is left when k or alpha is 0. */
static void scale(const MsGemm *g) {
  for (gint64 i = 0; i < g->m; i++)
    for (gint64 j = 0; j < g->n; j++) {
      if (g->type == MS_BLAS_INT8) {
        guint32 *x = (guint32 *)g->c + i * g->ldc + j;
        *x = (guint32)(gint32)g->beta * *x;
      } else if (g->type == MS_BLAS_F64) {
        double *x = (double *)g->c + i * g->ldc + j;
        *x = g->beta == 0 ? 0 : g->beta * *x;
      } else {
        float *x = (float *)g->c + i * g->ldc + j;
        *x = g->beta == 0 ? 0 : (float)g->beta * *x;
      }
    }
}

/* By the plan of the shape. */
static int multiply(MsLcma *lcma, const MsGemm *g) {
  size_t needed_B = ms_lcma_workspace_B(lcma->plan, g);
  for (gboolean last = FALSE;
       !workspace(lcma, needed_B);) { /* the memory is not there: with half of it, down to none */
    if (last) return MS_LCMA_NO_MEMORY;
    needed_B /= 2;
    if (ms_lcma_plan_fit(lcma->plan, g, needed_B)) continue;
    forget(lcma);
    lcma->plan = ms_lcma_plan_new(ms_lcma_plain(lcma->blas, g->type), NULL);
    needed_B = ms_lcma_workspace_B(lcma->plan, g);
    last = TRUE;
  }
  ms_lcma_execute(lcma->plan, lcma->blas, lcma->team, lcma->workspace, g, NULL);
  return MS_LCMA_OK;
}

/* The same of scaled copies. */
static int multiply_scaled(MsLcma *lcma, const MsGemm *g) {
  MsScaled scaled;
  int status = ms_scaled_make(&scaled, g) ? multiply(lcma, &scaled.gemm) : MS_LCMA_NO_MEMORY;
  if (status == MS_LCMA_OK) ms_scaled_finish(&scaled, g);
  ms_scaled_release(&scaled);
  return status;
}

int ms_lcma_gemm(MsLcma *lcma, const MsGemm *g) {
  if (g->type == MS_BLAS_INT8 ? !ms_kernel_whole((int)ms_vector(), 8)
                              : !ms_blas_has(lcma->blas, g->type) && g->type != MS_BLAS_BF16)
    return MS_LCMA_NO_LIBRARY;
  if (g->m == 0 || g->n == 0) return MS_LCMA_OK;
  if (g->k == 0 || g->alpha == 0) {
    scale(g);
    return MS_LCMA_OK;
  }
  if (!lcma->plan || !same(g, &lcma->decided)) {
    forget(lcma);
    lcma->plan = plan_for(lcma, g);
    lcma->decided = *g;
  }
  if (!ms_lcma_plan_runs(lcma->plan, g->type)) return MS_LCMA_UNKNOWN_PLAN;
  return lcma->scaling && ms_lcma_plan_growth(lcma->plan) > 1 ? multiply_scaled(lcma, g) : multiply(lcma, g);
}

const char *ms_lcma_plan(const MsLcma *lcma) { return lcma->plan ? lcma->plan->name : "none"; }
double ms_lcma_error_growth(const MsLcma *lcma) { return lcma->plan ? ms_lcma_plan_growth(lcma->plan) : 1; }

/* --- the BLAS-like calls --------------------------------------------------------------------------------------- */
static gboolean is_trans(char letter) { return letter == 'T' || letter == 't'; }
static gboolean is_letter(char letter) { return is_trans(letter) || letter == 'N' || letter == 'n'; }

/* One body for all types: alpha and beta are whole or exact as doubles. */
static int checked(MsLcma *lcma, MsBlasType type, char ta, char tb, int64_t m, int64_t n, int64_t k, double alpha,
                   const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc) {
  MsGemm g = {.type = type,
              .m = m,
              .n = n,
              .k = k,
              .alpha = alpha,
              .a = a,
              .lda = lda,
              .b = b,
              .ldb = ldb,
              .beta = beta,
              .c = c,
              .ldc = ldc};
  const gint64 sizes[] = {g.m, g.n, g.k, g.lda, g.ldb, g.ldc};
  for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
    if (sizes[i] < 0 || sizes[i] > G_MAXINT32) return MS_LCMA_BAD_ARGUMENT;
  if (!lcma || !is_letter(ta) || !is_letter(tb)) return MS_LCMA_BAD_ARGUMENT;
  g.trans_a = is_trans(ta);
  g.trans_b = is_trans(tb);
  if (g.lda < MAX(g.trans_a ? g.m : g.k, 1) || g.ldb < MAX(g.trans_b ? g.k : g.n, 1) || g.ldc < MAX(g.n, 1))
    return MS_LCMA_BAD_ARGUMENT;
  return ms_lcma_gemm(lcma, &g);
}

int ms_lcma_sgemm(MsLcma *lcma, char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                  int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  return checked(lcma, MS_BLAS_F32, ta, tb, m, n, k, (double)alpha, a, lda, b, ldb, (double)beta, c, ldc);
}

int ms_lcma_dgemm(MsLcma *lcma, char ta, char tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a,
                  int64_t lda, const double *b, int64_t ldb, double beta, double *c, int64_t ldc) {
  return checked(lcma, MS_BLAS_F64, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

int ms_lcma_bf16gemm(MsLcma *lcma, char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const uint16_t *a,
                     int64_t lda, const uint16_t *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  return checked(lcma, MS_BLAS_BF16, ta, tb, m, n, k, (double)alpha, a, lda, b, ldb, (double)beta, c, ldc);
}

int ms_lcma_int8gemm(MsLcma *lcma, char ta, char tb, int64_t m, int64_t n, int64_t k, int32_t alpha, const int8_t *a,
                     int64_t lda, const int8_t *b, int64_t ldb, int32_t beta, int32_t *c, int64_t ldc) {
  return checked(lcma, MS_BLAS_INT8, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
