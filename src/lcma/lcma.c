#include "lcma/lcma.h"
#include "base/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lcma/context.h"
#include "lcma/kernel.h"
#include "lcma/scale.h"

enum { TRIED = 6, SHAPES = 256, TRIALS = 5 };
enum { ROUNDS = 2, BRIEF_ROUNDS = 6 }; /* of trials at most, over those asked for: others may disturb, */
static const double brief_s = 50e-3;   /* and until so much has been tried one goes on: short times are less sure; */
static const double long_s = 2;        /* from here on two runs are enough, disturbed or not */
static const double behind = 0.24;     /* over its runs: what is slower by this is tried no more */

typedef struct { /* what a plan depends on; no padding, since it is compared and hashed as bytes */
  gint64 m, n, k;
  int type, trans_a, trans_b, beta;
} Shape;

typedef struct { /* a shape that was multiplied */
  Shape shape;
  MsLcmaPlan *plan;
  gboolean tried; /* not only predicted: kept as long as the context */
} Known;

struct MsLcma {
  const MsBlas *blas;
  MsTeam *team;
  size_t limit_B;
  gboolean scaling;
  int trials;
  char *forced; /* NULL: decide */
  MsLcmaLocal *local[MS_BLAS_ALL];
  char *workspace;
  size_t workspace_B;
  GHashTable *known; /* Known by its shape: a program multiplies few shapes, over and over */
  int tried;         /* of them */
  const MsLcmaPlan *last;
};

static Shape shape_of(const MsGemm *g) {
  return (Shape){g->m, g->n, g->k, (int)g->type, g->trans_a != 0, g->trans_b != 0, g->beta != 0};
}

static guint shape_hash(gconstpointer shape) {
  const guint32 *word = shape;
  guint hash = 0;
  for (size_t i = 0; i < sizeof(Shape) / sizeof *word; i++) hash = hash * 31 + word[i];
  return hash;
}
static gboolean shape_equal(gconstpointer a, gconstpointer b) { return memcmp(a, b, sizeof(Shape)) == 0; }

static void known_free(gpointer data) {
  Known *known = data;
  ms_lcma_plan_free(known->plan);
  g_free(known);
}

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
  lcma->trials = TRIALS;
  lcma->known = g_hash_table_new_full(shape_hash, shape_equal, NULL, known_free);
  return lcma;
}

static void forget(MsLcma *lcma) {
  g_hash_table_remove_all(lcma->known);
  lcma->tried = 0;
  lcma->last = NULL;
}

void ms_lcma_free(MsLcma *lcma) {
  if (!lcma) return;
  g_hash_table_destroy(lcma->known);
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

void ms_lcma_set_scaling(MsLcma *lcma, int on) {
  lcma->scaling = on != 0;
  forget(lcma);
}

int ms_lcma_set_trials(MsLcma *lcma, int trials) {
  if (trials < 0) return MS_LCMA_BAD_ARGUMENT;
  lcma->trials = trials;
  forget(lcma);
  return MS_LCMA_OK;
}

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

/* The plan of that name where it fits the workspace, else the ordinary product; also one that cannot run here, as asked
 * for. */
static MsLcmaPlan *plan_named(const MsLcma *lcma, const char *name, const MsGemm *g) {
  if (strcmp(name, "library") == 0) name = ms_lcma_plain(lcma->blas, g->type);
  MsLcmaPlan *plan = ms_lcma_plan_new(name, NULL);
  if (lcma->limit_B == 0 || plan->n_stages == 0 || !ms_lcma_plan_runs(plan, g->type) ||
      ms_lcma_plan_fit(plan, g, lcma->limit_B))
    return plan;
  ms_lcma_plan_free(plan);
  return ms_lcma_plan_new(ms_lcma_plain(lcma->blas, g->type), NULL);
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

/* By *plan, or another that needs less memory, which *plan then is. */
static int multiply_as_is(MsLcma *lcma, MsLcmaPlan **plan, const MsGemm *g) {
  size_t needed_B = ms_lcma_workspace_B(*plan, g);
  for (gboolean last = FALSE;
       !workspace(lcma, needed_B);) { /* the memory is not there: with half of it, down to none */
    if (last) return MS_LCMA_NO_MEMORY;
    needed_B /= 2;
    if (ms_lcma_plan_fit(*plan, g, needed_B)) continue;
    ms_lcma_plan_free(*plan);
    *plan = ms_lcma_plan_new(ms_lcma_plain(lcma->blas, g->type), NULL);
    needed_B = ms_lcma_workspace_B(*plan, g);
    last = TRUE;
  }
  ms_lcma_execute(*plan, lcma->blas, lcma->team, lcma->workspace, g, NULL);
  return MS_LCMA_OK;
}

/* The same of scaled copies. */
static int multiply_scaled(MsLcma *lcma, MsLcmaPlan **plan, const MsGemm *g) {
  MsScaled scaled;
  int status = ms_scaled_make(&scaled, g) ? multiply_as_is(lcma, plan, &scaled.gemm) : MS_LCMA_NO_MEMORY;
  if (status == MS_LCMA_OK) ms_scaled_finish(&scaled, g);
  ms_scaled_release(&scaled);
  return status;
}

static int multiply(MsLcma *lcma, MsLcmaPlan **plan, const MsGemm *g) {
  return lcma->scaling && ms_lcma_plan_growth(*plan) > 1 ? multiply_scaled(lcma, plan, g)
                                                         : multiply_as_is(lcma, plan, g);
}

/* --- the plan of a shape --------------------------------------------------------------------------------------- */
typedef struct { /* a plan that is tried */
  MsLcmaPlan *plan;
  double least_s, growth;
  int runs, undisturbed;
} Candidate;

/* The plan of a candidate of the decision; its names are those of plans without the suffix of this machine's products.
 */
static MsLcmaPlan *plan_of(MsLcma *lcma, const MsLcmaChoice *choice, const MsGemm *g) {
  const gboolean plain = strcmp(choice->plan, "library") == 0;
  g_autofree char *name = g_strconcat(choice->plan, plain ? "" : ms_lcma_suffix(local_of(lcma, g->type)), NULL);
  return plan_named(lcma, name, g);
}

/* The library, the scheme that is predicted fastest, and those within the error of the prediction of it. */
static int candidates(MsLcma *lcma, const GPtrArray *choices, const MsGemm *g, Candidate *to) {
  const MsLcmaChoice *library = ms_lcma_choice_of(choices, "library"), *best = NULL;
  int n = 0;
  to[n++].plan = plan_of(lcma, library, g);
  for (guint i = 0; i < choices->len && n < TRIED; i++) {
    const MsLcmaChoice *c = choices->pdata[i];
    if (c == library) continue;
    if (!best) best = c;
    if (c->time_s <= (1 + local_of(lcma, g->type)->error) * best->time_s) to[n++].plan = plan_of(lcma, c, g);
  }
  for (int i = 0; i < n; i++) to[i].growth = ms_lcma_plan_growth(to[i].plan);
  return n;
}

/* One more run of a candidate. */
static void try_once(MsLcma *lcma, Candidate *c, const MsGemm *g) {
  const double waited = ms_team_waited_s(), since = ms_team_clock_s(lcma->team);
  if (multiply(lcma, &c->plan, g) != MS_LCMA_OK) return;
  const double time_s = ms_team_clock_s(lcma->team) - since;
  if (ms_team_undisturbed(ms_team_waited_s() - waited, time_s)) c->undisturbed++;
  c->runs++;
  c->least_s = MIN(c->least_s, time_s);
}

/* Of candidates that differ by less than MS_LCMA_TIE the one with the least growth of the error. */
static int fastest(const Candidate *c, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (c[i].least_s * (c[i].growth > c[best].growth ? MS_LCMA_TIE : 1) < c[best].least_s) best = i;
  return best;
}

static gboolean out_of_it(const Candidate *c, double least_s) {
  return c->undisturbed > 1 && c->least_s > (1 + behind / c->undisturbed) * least_s;
}

/* Runs the candidates in turn, at least `trials` times each that count, and leaves the fastest at *c. Every second
 * round goes backwards, so that none always follows the same one, and the library, which is first, also runs twice in
 * a row: its threads are awake then. */
static void race(MsLcma *lcma, Candidate *c, int n, const MsGemm *g) {
  const double since = ms_team_clock_s(lcma->team);
  for (int round = 0, open = n; open > 1; round++) {
    const double least_s = c[fastest(c, n)].least_s;
    const double spent_s = ms_team_clock_s(lcma->team) - since;
    const gboolean brief = spent_s < brief_s;
    if (round >= (brief ? BRIEF_ROUNDS : ROUNDS) * lcma->trials) break;
    open = 0;
    for (int turn = 0; turn < n; turn++) {
      Candidate *x = &c[round % 2 ? n - 1 - turn : turn];
      const gboolean enough =
          spent_s > long_s ? x->runs >= MIN(lcma->trials, 2) : x->undisturbed >= lcma->trials && !brief;
      if (enough || out_of_it(x, least_s)) continue;
      try_once(lcma, x, g);
      open++;
    }
  }
  const Candidate first = *c;
  const int best = fastest(c, n);
  *c = c[best];
  c[best] = first;
}

/* The fastest of the candidates by trial; C is as it was, or will be written. NULL: there is no memory for it. */
static MsLcmaPlan *plan_by_trial(MsLcma *lcma, const GPtrArray *choices, const MsGemm *g) {
  MsGemm trial = *g;
  const size_t c_B = g->beta == 0 ? 0 : (size_t)(g->m * g->n) * (g->type == MS_BLAS_F64 ? 8 : 4);
  if (c_B > 0) { /* C is read: into another one */
    trial.ldc = g->n;
    trial.c = lcma->limit_B > 0 && c_B > lcma->limit_B ? NULL : calloc(c_B, 1);
    if (!trial.c) return NULL;
  }
  Candidate c[TRIED];
  for (int i = 0; i < TRIED; i++) c[i] = (Candidate){.least_s = HUGE_VAL};
  const int n = candidates(lcma, choices, g, c);
  race(lcma, c, n, &trial);
  if (c_B > 0) free(trial.c);
  for (int i = 1; i < n; i++) ms_lcma_plan_free(c[i].plan);
  return c[0].plan;
}

static void decide(MsLcma *lcma, Known *known, const MsGemm *g) {
  g_autoptr(GPtrArray) choices = ms_lcma_choices(lcma, g);
  if (lcma->trials > 0 && lcma->tried < SHAPES / 2) known->plan = plan_by_trial(lcma, choices, g);
  known->tried = known->plan != NULL;
  lcma->tried += known->tried;
  if (!known->plan) known->plan = plan_of(lcma, choices->pdata[0], g);
}

static gboolean only_predicted(gpointer shape, gpointer value, gpointer data) {
  (void)shape, (void)data;
  return !((const Known *)value)->tried;
}

static Known *known_of(MsLcma *lcma, const MsGemm *g) {
  const Shape shape = shape_of(g);
  Known *known = g_hash_table_lookup(lcma->known, &shape);
  if (known) return known;
  if (g_hash_table_size(lcma->known) >= SHAPES) g_hash_table_foreach_remove(lcma->known, only_predicted, NULL);
  known = g_new0(Known, 1);
  known->shape = shape;
  if (lcma->forced || MIN(MIN(g->m, g->n), g->k) < MS_LCMA_LEAST_SIDE) /* nothing need be measured */
    known->plan = plan_named(lcma, lcma->forced ? lcma->forced : "library", g);
  else decide(lcma, known, g);
  g_hash_table_insert(lcma->known, &known->shape, known);
  return known;
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
  Known *known = known_of(lcma, g);
  lcma->last = known->plan;
  if (!ms_lcma_plan_runs(known->plan, g->type)) return MS_LCMA_UNKNOWN_PLAN;
  const int status = multiply(lcma, &known->plan, g);
  lcma->last = known->plan;
  return status;
}

const char *ms_lcma_plan(const MsLcma *lcma) { return lcma->last ? lcma->last->name : "none"; }
double ms_lcma_error_growth(const MsLcma *lcma) { return lcma->last ? ms_lcma_plan_growth(lcma->last) : 1; }

/* --- plans in a file --------------------------------------------------------------------------------------------- */
/* What they are good for. */
static char *title(const MsLcma *lcma) {
  return g_strdup_printf("moesim_lcma 1: %s, %d threads, %s", ms_blas_name(lcma->blas), ms_team_threads(lcma->team),
                         ms_vector_words[ms_vector()]);
}

int ms_lcma_save(const MsLcma *lcma, const char *path) {
  g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
  GHashTableIter at;
  gpointer value;
  g_hash_table_iter_init(&at, lcma->known);
  while (g_hash_table_iter_next(&at, NULL, &value)) {
    const Known *known = value;
    const Shape *s = &known->shape;
    if (!known->tried) continue;
    g_ptr_array_add(lines,
                    g_strdup_printf("%s %c %c %d %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %s\n",
                                    ms_blas_type_words[s->type], s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N',
                                    s->beta, s->m, s->n, s->k, known->plan->name));
  }
  g_ptr_array_sort(lines, ms_by_text);
  g_autofree char *first = title(lcma);
  g_autoptr(GString) text = g_string_new(first);
  g_string_append_c(text, '\n');
  for (guint i = 0; i < lines->len; i++) g_string_append(text, lines->pdata[i]);
  return g_file_set_contents(path, text->str, (gssize)text->len, NULL) ? MS_LCMA_OK : MS_LCMA_BAD_FILE;
}

/* 0 or 1, which of the two words it is; else -1. */
static int which(const char *word, const char *zero, const char *one) {
  return strcmp(word, zero) == 0 ? 0 : strcmp(word, one) == 0 ? 1 : -1;
}

/* A line of the file; NULL: it is none. (transfer full) */
static Known *known_of_line(const MsLcma *lcma, const char *line) {
  enum { TYPE, TRANS_A, TRANS_B, BETA, M, N, K, PLAN, WORDS };
  g_auto(GStrv) word = g_strsplit(line, " ", -1);
  if (g_strv_length(word) != WORDS) return NULL;
  MsGemm g = {.trans_a = which(word[TRANS_A], "N", "T"), .trans_b = which(word[TRANS_B], "N", "T")};
  gint64 *const size[] = {&g.m, &g.n, &g.k};
  const int beta = which(word[BETA], "0", "1");
  int type = 0;
  while (type < MS_BLAS_ALL && strcmp(word[TYPE], ms_blas_type_words[type]) != 0) type++;
  gboolean ok = type < MS_BLAS_ALL && g.trans_a >= 0 && g.trans_b >= 0 && beta >= 0;
  for (int i = 0; i < 3; i++) ok = ok && g_ascii_string_to_signed(word[M + i], 10, 1, G_MAXINT32, size[i], NULL);
  g_autoptr(MsLcmaPlan) plan = ok ? ms_lcma_plan_new(word[PLAN], NULL) : NULL;
  g.type = (MsBlasType)type;
  g.beta = beta;
  if (!plan || (plan->n_stages > 0 && !ms_lcma_plan_runs(plan, g.type))) return NULL;
  Known *known = g_new0(Known, 1);
  *known = (Known){shape_of(&g), plan_named(lcma, plan->name, &g), TRUE};
  return known;
}

int ms_lcma_load(MsLcma *lcma, const char *path) {
  g_autofree char *text = NULL, *first = title(lcma);
  if (!g_file_get_contents(path, &text, NULL, NULL)) return MS_LCMA_BAD_FILE;
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  const guint end = g_strv_length(line);
  if (end < 2 || strcmp(line[0], first) != 0 || line[end - 1][0] != '\0') return MS_LCMA_BAD_FILE;
  g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(known_free);
  for (guint i = 1; i + 1 < end; i++) {
    Known *known = known_of_line(lcma, line[i]);
    if (!known) return MS_LCMA_BAD_FILE;
    g_ptr_array_add(all, known);
  }
  forget(lcma);
  while (all->len > 0) {
    Known *known = g_ptr_array_steal_index(all, all->len - 1);
    g_hash_table_replace(lcma->known, &known->shape, known);
  }
  lcma->tried = (int)g_hash_table_size(lcma->known);
  return MS_LCMA_OK;
}

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
