/* src/lcma/plan.c - plans by name, their block sizes and workspace. */
#include <string.h>

#include "base/err.h"
#include "lcma/exec_priv.h"

MsLcmaPlan *ms_lcma_plan_new(const char *name, GError **error) {
  g_autoptr(MsLcmaPlan) plan = g_new0(MsLcmaPlan, 1);
  plan->name = g_strdup(name);
  plan->unit = ms_vector();
  if (strcmp(name, "library") == 0) return g_steal_pointer(&plan);
  g_autofree char *stages = g_strdup(name);
  if (g_str_has_suffix(stages, ":library")) {
    plan->by_library = TRUE;
    stages[strlen(stages) - strlen(":library")] = '\0';
  }
  if (g_str_has_suffix(stages, ":bf16")) {
    plan->in_bf16 = TRUE;
    stages[strlen(stages) - strlen(":bf16")] = '\0';
  }
  for (int bits = 8; bits <= 16; bits += 8) {
    const char *suffix = bits == 8 ? ":int8" : ":int16";
    if (!g_str_has_suffix(stages, suffix)) continue;
    plan->bits = bits;
    stages[strlen(stages) - strlen(suffix)] = '\0';
  }
  g_auto(GStrv) words = g_strsplit(stages, "/", -1);
  guint n = MAX(g_strv_length(words), 1);
  if (n > MS_LCMA_STAGES) {
    ms_usage_error(error, "plan '%s' has more than %d stages; join schemes of one stage with '*'", name,
                   MS_LCMA_STAGES);
    return NULL;
  }
  for (guint i = 0; i < n; i++) {
    MsScheme *scheme = ms_scheme_new(words[i] ? words[i] : "", error);
    if (!scheme) return NULL;
    plan->scheme[plan->n_stages] = scheme;
    plan->group[plan->n_stages++] = scheme->r;
  }
  return g_steal_pointer(&plan);
}

void ms_lcma_plan_free(MsLcmaPlan *plan) {
  if (!plan) return;
  for (int i = 0; i < plan->n_stages; i++) ms_scheme_free(plan->scheme[i]);
  g_free(plan->name);
  g_free(plan);
}

/* Sums of numbers of eight bits fit into `bits`. */
static gboolean fits(const MsCoefficients *c, int bits) {
  for (int r = 0; r < c->rows; r++) {
    int norm = 0;
    for (int i = 0; i < c->cols; i++) norm += ABS(c->numerator[r * c->cols + i]);
    if (norm > 1 << (bits - 8) || (bits > 8 && norm == 1 << (bits - 8))) return FALSE;
  }
  return c->denominator == 1;
}

gboolean ms_lcma_plan_runs(const MsLcmaPlan *plan, MsBlasType type) {
  if (type == MS_BLAS_INT8 || plan->bits) {
    const MsScheme *s = plan->scheme[0];
    return type == MS_BLAS_INT8 && plan->bits && plan->n_stages == 1 && !plan->by_library && !plan->in_bf16 &&
           ms_kernel_whole((int)plan->unit, plan->bits) && fits(&s->u, plan->bits) && fits(&s->v, plan->bits) &&
           (plan->bits > 8 || s->r == 1) && s->w.denominator == 1;
  }
  return !plan->in_bf16 || (type == MS_BLAS_BF16 && !plan->by_library && ms_kernel_bf16((int)plan->unit));
}

int ms_lcma_plan_levels(const MsLcmaPlan *plan) {
  int levels = 0;
  for (int i = 0; i < plan->n_stages; i++) levels += plan->scheme[i]->levels;
  return levels;
}

double ms_lcma_plan_growth(const MsLcmaPlan *plan) {
  double growth = 1;
  if (plan->bits) return growth; /* exact */
  for (int i = 0; i < plan->n_stages; i++) growth *= ms_scheme_growth(plan->scheme[i]);
  return growth;
}

static gint64 round_up(gint64 x, gint64 to) { return (x + to - 1) / to * to; }

/* Columns of C in whole vectors, which libraries like; the others in small steps, so that little is multiplied in vain.
 */
MsLcmaBlock ms_lcma_block(const MsScheme *s, gint64 m, gint64 n, gint64 k) {
  return (MsLcmaBlock){round_up((m + s->m - 1) / s->m, 2), round_up((n + s->n - 1) / s->n, n >= 1024 ? 16 : 4),
                       round_up((k + s->k - 1) / s->k, 4)};
}

size_t ms_lcma_chunk(int operands, size_t real_B) {
  size_t n = MS_CHUNK_B / real_B / (size_t)operands / MS_CHUNK_LEAST * MS_CHUNK_LEAST;
  return MAX(n, MS_CHUNK_LEAST);
}

int ms_lcma_pieces(const MsKernel *tiles, gint64 m, int threads) {
  gint64 rows = tiles ? ms_kernel_near(tiles) : m;
  return threads * (int)MAX((m + threads * rows - 1) / (threads * rows), 1);
}

/* Leading dimension of a buffer: whole groups of MS_COMBINE_ALIGN, and no multiple of a page, which would put every
 * row into the same sets of the caches. */
gint64 ms_lcma_ld(gint64 cols, size_t real_B) {
  gint64 ld = round_up(cols, MS_COMBINE_ALIGN);
  return (ld * (gint64)real_B) % 4096 == 0 ? ld + MS_COMBINE_ALIGN : ld;
}

/* Distance of two buffers: an odd number of cache lines beyond whole pages, so that equal places of many buffers share
 * no set. */
static size_t spread_B(gint64 elements, size_t real_B) {
  return (size_t)round_up(elements * (gint64)real_B, 4096) + 11 * 64;
}
static size_t stride_B(gint64 rows, gint64 cols, size_t real_B) {
  return spread_B(rows * ms_lcma_ld(cols, real_B), real_B);
}

/* One block alone. */
static gboolean is_single(const MsCoefficients *c, int row) {
  int found = 0;
  for (int i = 0; i < c->cols; i++) found += c->numerator[row * c->cols + i] != 0;
  return found == 1;
}

static int most_buffers(const MsCoefficients *c, int group, gboolean keep_single) {
  int most = 0;
  for (int first = 0; first < c->rows; first += group) {
    int here = 0;
    for (int r = first; r < MIN(first + group, c->rows); r++) here += keep_single || !is_single(c, r);
    most = MAX(most, here);
  }
  return most;
}

MsStageSize ms_stage_size(const MsLcmaPlan *plan, int stage, const MsGemm *g) {
  const MsScheme *s = plan->scheme[stage];
  MsStageSize z = {.block = ms_lcma_block(s, g->m, g->n, g->k), .real_B = g->type == MS_BLAS_F64 ? 8 : 4};
  z.c_stride_B = stride_B(z.block.m, z.block.n, z.real_B);
  z.kernel = z.merge = ms_kernel_for((int)plan->unit, z.real_B);
  if (plan->bits) z.merge = ms_kernel_whole((int)plan->unit, 32);
  z.packs = !plan->by_library && stage + 1 == plan->n_stages;
  if (z.packs) {
    z.tiles = plan->in_bf16 ? ms_kernel_bf16((int)plan->unit)
              : plan->bits  ? ms_kernel_whole((int)plan->unit, plan->bits)
                            : z.kernel;
    z.packed = ms_packed(z.tiles, ms_kernel_deep(), z.block.m, z.block.n, z.block.k / z.tiles->depth);
    z.a_stride_B = spread_B(z.packed.a_slab * z.packed.slabs, z.real_B);
    z.b_stride_B = spread_B(z.packed.b_slab * z.packed.slabs, z.real_B);
    z.copy_a = z.copy_b = TRUE;
  } else {
    z.a_stride_B = stride_B(g->trans_a ? z.block.k : z.block.m, g->trans_a ? z.block.m : z.block.k, z.real_B);
    z.b_stride_B = stride_B(g->trans_b ? z.block.n : z.block.k, g->trans_b ? z.block.k : z.block.n, z.real_B);
    /* A product of a single block reads it where it is, unless it must be widened or is cut by the edge. */
    gboolean cut_m = z.block.m * s->m != g->m, cut_n = z.block.n * s->n != g->n, cut_k = z.block.k * s->k != g->k,
             widen = g->type == MS_BLAS_BF16;
    z.copy_a = cut_m || cut_k || widen;
    z.copy_b = cut_k || cut_n || widen;
  }
  z.a_buffers = most_buffers(&s->u, plan->group[stage], z.copy_a);
  z.b_buffers = most_buffers(&s->v, plan->group[stage], z.copy_b);
  return z;
}

MsGemm ms_inner_gemm(const MsStageSize *z, const MsGemm *g) {
  MsGemm inner = {
      .type = g->type == MS_BLAS_F64 ? MS_BLAS_F64 : MS_BLAS_F32, .trans_a = g->trans_a, .trans_b = g->trans_b};
  inner.m = z->block.m;
  inner.n = z->block.n;
  inner.k = z->block.k;
  inner.alpha = 1;
  return inner;
}

size_t ms_lcma_workspace_B(const MsLcmaPlan *plan, const MsGemm *gemm) {
  size_t total_B = 0;
  MsGemm g = *gemm;
  for (int i = 0; i < plan->n_stages; i++) {
    MsStageSize z = ms_stage_size(plan, i, &g);
    total_B +=
        (size_t)z.a_buffers * z.a_stride_B + (size_t)z.b_buffers * z.b_stride_B + (size_t)plan->group[i] * z.c_stride_B;
    g = ms_inner_gemm(&z, &g);
  }
  return total_B;
}

gboolean ms_lcma_plan_fit(MsLcmaPlan *plan, const MsGemm *gemm, size_t limit_B) {
  for (int i = 0; i < plan->n_stages; i++) plan->group[i] = plan->scheme[i]->r;
  for (int i = 0; i < plan->n_stages && ms_lcma_workspace_B(plan, gemm) > limit_B; i++) {
    int fits = 1, too_large = plan->group[i]; /* bisection: the workspace grows with the group */
    while (too_large - fits > 1) {
      plan->group[i] = (fits + too_large) / 2;
      if (ms_lcma_workspace_B(plan, gemm) > limit_B) too_large = plan->group[i];
      else fits = plan->group[i];
    }
    plan->group[i] = fits;
  }
  return ms_lcma_workspace_B(plan, gemm) <= limit_B;
}
