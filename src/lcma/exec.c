#include <string.h>

#include "base/err.h"
#include "lcma/exec_priv.h"

enum {
  CHUNK_B = 24 * 1024, /* of all operands of a chunk together: they stay in the first-level cache */
  CHUNK_LEAST = 64,    /* elements */
  TASK_ROWS = 8        /* rows of a block that a thread takes at a time */
};

typedef struct { /* a sum of blocks */
  int terms;
  int *block;
  double *coefficient;
} Sum;

typedef struct { /* A or B as stored, cut into a grid of blocks */
  const char *data;
  size_t element_B;
  gboolean bf16;
  gint64 ld, rows, cols;
  int grid_rows, grid_cols;
  gint64 block_rows, block_cols;
} Grid;

typedef struct { /* where product r finds an operand: scale * (block_rows x block_cols at data) */
  const void *data;
  gint64 ld;
  double scale;
} Operand;

typedef struct {
  const MsLcmaPlan *plan;
  const MsBlas *blas;
  MsTeam *team;
  char **scratch; /* one for each worker */
} Exec;

/* Rows of the coefficients as sums; with `flip` the grid is stored transposed (rows x cols are those of the scheme). */
static Sum *sums_of(const MsCoefficients *c, int rows, int cols, gboolean flip) {
  Sum *sums = g_new0(Sum, c->rows);
  for (int r = 0; r < c->rows; r++) {
    sums[r].block = g_new(int, c->cols);
    sums[r].coefficient = g_new(double, c->cols);
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < cols; j++) {
        double x = ms_coefficient(c, r, i * cols + j);
        if (x == 0) continue;
        sums[r].block[sums[r].terms] = flip ? j * rows + i : i * cols + j;
        sums[r].coefficient[sums[r].terms++] = x;
      }
  }
  return sums;
}

static void sums_free(Sum *sums, int n) {
  for (int i = 0; i < n; i++) {
    g_free(sums[i].block);
    g_free(sums[i].coefficient);
  }
  g_free(sums);
}

static size_t chunk_elements(int operands, size_t real_B) {
  size_t n = CHUNK_B / real_B / (size_t)operands / CHUNK_LEAST * CHUNK_LEAST;
  return MAX(n, CHUNK_LEAST);
}

static void combine(size_t real_B, void *out, const void *const *in, const double *coefficient, int terms, size_t n, gboolean stream) {
  if (real_B == 8) ms_combine_f64(out, (const double *const *)in, coefficient, terms, n, stream);
  else ms_combine_f32(out, (const float *const *)in, coefficient, terms, n, stream);
}

/* --- split: sums of blocks of A or B ------------------------------------------------------------------------------------------------ */
typedef struct {
  const Exec *exec;
  const Grid *grid;
  size_t real_B, chunk;
  const Sum *sums; /* of the products that have a buffer */
  char **out;
  int n_out;
  gint64 ld_out;
  gboolean *needed; /* blocks that occur in them */
} Split;

/* n elements of row i of a block from column j on: in place where that is possible, else a copy in `room`, widened and filled up with zeros. */
static const void *read_block(const Grid *g, int block, gint64 i, gint64 j, size_t n, size_t real_B, char *room) {
  gint64 row = block / g->grid_cols * g->block_rows + i, col = block % g->grid_cols * g->block_cols + j;
  gint64 left = row < g->rows ? g->cols - col : 0;
  const char *from = left > 0 ? g->data + (size_t)(row * g->ld + col) * g->element_B : NULL;
  if (left >= (gint64)n && !g->bf16) return from;
  size_t have = (size_t)CLAMP(left, 0, (gint64)n);
  if (have > 0 && g->bf16) ms_widen_bf16((float *)(void *)room, (const guint16 *)(const void *)from, have);
  else if (have > 0) memcpy(room, from, have * real_B);
  memset(room + have * real_B, 0, (n - have) * real_B);
  return room;
}

static void split_task(void *context, int task, int worker) {
  const Split *s = context;
  const Grid *g = s->grid;
  int blocks = g->grid_rows * g->grid_cols;
  const void *in[MS_SCHEME_PRODUCTS], *terms[MS_SCHEME_PRODUCTS];
  char *scratch = s->exec->scratch[worker];
  for (gint64 i = (gint64)task * TASK_ROWS; i < MIN(((gint64)task + 1) * TASK_ROWS, g->block_rows); i++)
    for (gint64 j = 0; j < g->block_cols; j += (gint64)s->chunk) {
      size_t n = MIN(s->chunk, (size_t)(g->block_cols - j + MS_COMBINE_ALIGN - 1) / MS_COMBINE_ALIGN * MS_COMBINE_ALIGN);
      for (int b = 0; b < blocks; b++)
        if (s->needed[b]) in[b] = read_block(g, b, i, j, n, s->real_B, scratch + (size_t)b * s->chunk * s->real_B);
      for (int o = 0; o < s->n_out; o++) {
        const Sum *sum = &s->sums[o];
        for (int t = 0; t < sum->terms; t++) terms[t] = in[sum->block[t]];
        combine(s->real_B, s->out[o] + (size_t)(i * s->ld_out + j) * s->real_B, terms, sum->coefficient, sum->terms, n, TRUE);
      }
    }
}

/* Operands of products first to end - 1: blocks in place, or buffers from `room` on, stride_B apart, which this fills. */
static void split(const Exec *exec, const Grid *g, const Sum *sums, int first, int end, gboolean copy, size_t real_B, char *room, size_t stride_B,
                  Operand *operands) {
  Split s = {.exec = exec, .grid = g, .real_B = real_B, .chunk = chunk_elements(g->grid_rows * g->grid_cols, real_B), .ld_out = ms_lcma_ld(g->block_cols, real_B)};
  g_autofree Sum *list = g_new(Sum, end - first);
  g_autofree char **out = g_new(char *, end - first);
  g_autofree gboolean *needed = g_new0(gboolean, g->grid_rows * g->grid_cols);
  for (int r = first; r < end; r++) {
    if (sums[r].terms == 1 && !copy) {
      int block = sums[r].block[0];
      gint64 at = block / g->grid_cols * g->block_rows * g->ld + block % g->grid_cols * g->block_cols;
      operands[r] = (Operand){g->data + (size_t)at * g->element_B, g->ld, sums[r].coefficient[0]};
      continue;
    }
    for (int t = 0; t < sums[r].terms; t++) needed[sums[r].block[t]] = TRUE;
    list[s.n_out] = sums[r];
    out[s.n_out] = room + (size_t)s.n_out * stride_B;
    operands[r] = (Operand){out[s.n_out++], s.ld_out, 1};
  }
  s.sums = list;
  s.out = out;
  s.needed = needed;
  if (s.n_out > 0) ms_team_run(exec->team, split_task, &s, (int)((g->block_rows + TASK_ROWS - 1) / TASK_ROWS));
}

/* --- multiply --------------------------------------------------------------------------------------------------------------------------- */
static void library(const MsBlas *blas, const MsGemm *g) {
  switch (g->type) {
  case MS_BLAS_F64:
    ms_blas_dgemm(blas, g->trans_a, g->trans_b, g->m, g->n, g->k, g->alpha, g->a, g->lda, g->b, g->ldb, g->beta, g->c, g->ldc);
    break;
  case MS_BLAS_F32:
    ms_blas_sgemm(blas, g->trans_a, g->trans_b, g->m, g->n, g->k, (float)g->alpha, g->a, g->lda, g->b, g->ldb, (float)g->beta, g->c, g->ldc);
    break;
  default:
    ms_blas_bf16gemm(blas, g->trans_a, g->trans_b, g->m, g->n, g->k, (float)g->alpha, g->a, g->lda, g->b, g->ldb, (float)g->beta, g->c, g->ldc);
  }
}

typedef struct {
  const Exec *exec;
  const MsGemm *products; /* of the group */
  int whole, pieces;      /* the first `whole` products are a task each, the rest are cut into `pieces` by rows */
} Multiply;

static void multiply_task(void *context, int task, int worker) {
  (void)worker;
  const Multiply *p = context;
  ms_blas_set_threads(p->exec->blas, 1);
  if (task < p->whole) {
    library(p->exec->blas, &p->products[task]);
    return;
  }
  int which = (task - p->whole) / p->pieces, piece = (task - p->whole) % p->pieces;
  MsGemm g = p->products[p->whole + which];
  size_t element_B = ms_blas_type_B(g.type);
  gint64 from = g.m * piece / p->pieces, to = g.m * (piece + 1) / p->pieces;
  if (from == to) return;
  g.a = (const char *)g.a + (size_t)(g.trans_a ? from : from * g.lda) * element_B;
  g.c = (char *)g.c + (size_t)(from * g.ldc) * element_B;
  g.m = to - from;
  library(p->exec->blas, &g);
}

static void execute(const Exec *exec, int stage, char *workspace, const MsGemm *gemm);

static void multiply(const Exec *exec, int stage, char *workspace, const MsGemm *products, int n) {
  if (stage < exec->plan->n_stages) {
    for (int i = 0; i < n; i++) execute(exec, stage, workspace, &products[i]);
    return;
  }
  int threads = ms_team_threads(exec->team), rest = n % threads;
  Multiply p = {exec, products, n - rest, threads};
  ms_team_run(exec->team, multiply_task, &p, p.whole + rest * threads);
}

/* --- merge: C from the products ----------------------------------------------------------------------------------------------------------- */
typedef struct {
  const Exec *exec;
  const MsGemm *gemm;
  const MsScheme *scheme;
  const MsStageSize *size;
  size_t chunk;
  const Sum *sums; /* for each block of C: products of this group (index in it), coefficients times alpha */
  const double *beta; /* for each block: what its old value is worth now */
  const char *products;
} Merge;

static void merge_block(const Merge *m, int block, gint64 i, gint64 j, size_t n, char *scratch) {
  const MsGemm *g = m->gemm;
  const Sum *sum = &m->sums[block];
  size_t real_B = m->size->real_B;
  gint64 row = block / m->scheme->n * m->size->block.m + i, col = block % m->scheme->n * m->size->block.n + j, left = g->n - col;
  if (row >= g->m || left <= 0 || sum->terms == 0) return;
  const void *in[MS_SCHEME_PRODUCTS + 1];
  double coefficient[MS_SCHEME_PRODUCTS + 1];
  int terms = 0;
  for (; terms < sum->terms; terms++) {
    in[terms] = m->products + (size_t)sum->block[terms] * m->size->c_stride_B + (size_t)(i * ms_lcma_ld(m->size->block.n, real_B) + j) * real_B;
    coefficient[terms] = sum->coefficient[terms];
  }
  char *c = (char *)g->c + (size_t)(row * g->ldc + col) * real_B;
  gint64 have = MIN(left, MIN((gint64)n, m->size->block.n - j));
  char *out = have < (gint64)n ? scratch : c;
  if (m->beta[block] != 0) {
    if (out != c) memcpy(out, c, (size_t)have * real_B);
    in[terms] = out;
    coefficient[terms++] = m->beta[block];
  }
  combine(real_B, out, in, coefficient, terms, n, out == c);
  if (out != c) memcpy(c, out, (size_t)have * real_B);
}

static void merge_task(void *context, int task, int worker) {
  const Merge *m = context;
  char *scratch = m->exec->scratch[worker];
  memset(scratch, 0, m->chunk * m->size->real_B); /* beyond the edge there is nothing to read */
  for (gint64 i = (gint64)task * TASK_ROWS; i < MIN(((gint64)task + 1) * TASK_ROWS, m->size->block.m); i++)
    for (gint64 j = 0; j < m->size->block.n; j += (gint64)m->chunk) {
      size_t n = MIN(m->chunk, (size_t)(m->size->block.n - j + MS_COMBINE_ALIGN - 1) / MS_COMBINE_ALIGN * MS_COMBINE_ALIGN);
      for (int b = 0; b < m->scheme->m * m->scheme->n; b++) merge_block(m, b, i, j, n, scratch);
    }
}

/* C from the products first to end - 1, which lie at `products`; `touched` remembers the blocks of C that have been written before. */
static void merge(const Exec *exec, const MsGemm *gemm, const MsScheme *scheme, const MsStageSize *size, int first, int end, const char *products,
                  gboolean *touched) {
  int blocks = scheme->m * scheme->n;
  Sum *sums = g_new0(Sum, blocks);
  g_autofree double *beta = g_new(double, blocks);
  for (int b = 0; b < blocks; b++) {
    sums[b].block = g_new(int, end - first);
    sums[b].coefficient = g_new(double, end - first);
    for (int r = first; r < end; r++) {
      double x = ms_coefficient(&scheme->w, r, b);
      if (x == 0) continue;
      sums[b].block[sums[b].terms] = r - first;
      sums[b].coefficient[sums[b].terms++] = x * gemm->alpha;
    }
    beta[b] = touched[b] ? 1 : gemm->beta;
    touched[b] |= sums[b].terms > 0;
  }
  Merge m = {exec, gemm, scheme, size, chunk_elements(end - first + 1, size->real_B), sums, beta, products};
  ms_team_run(exec->team, merge_task, &m, (int)((size->block.m + TASK_ROWS - 1) / TASK_ROWS));
  sums_free(sums, blocks);
}

/* --- a stage ------------------------------------------------------------------------------------------------------------------------------- */
static Grid grid_of(const MsGemm *g, const MsScheme *s, const MsStageSize *z, gboolean is_b) {
  gboolean trans = is_b ? g->trans_b : g->trans_a;
  gint64 rows = is_b ? g->k : g->m, cols = is_b ? g->n : g->k;
  int grid_rows = is_b ? s->k : s->m, grid_cols = is_b ? s->n : s->k;
  return (Grid){is_b ? g->b : g->a,          ms_blas_type_B(g->type),          g->type == MS_BLAS_BF16,
                is_b ? g->ldb : g->lda,      trans ? cols : rows,              trans ? rows : cols,
                trans ? grid_cols : grid_rows, trans ? grid_rows : grid_cols,  is_b ? z->b_rows : z->a_rows,
                is_b ? z->b_cols : z->a_cols};
}

static void execute(const Exec *exec, int stage, char *workspace, const MsGemm *g) {
  const MsScheme *s = exec->plan->scheme[stage];
  const int group = exec->plan->group[stage];
  MsStageSize z = ms_stage_size(s, group, g);
  Grid a = grid_of(g, s, &z, FALSE), b = grid_of(g, s, &z, TRUE);
  char *room_a = workspace, *room_b = room_a + (size_t)z.a_buffers * z.a_stride_B, *room_c = room_b + (size_t)z.b_buffers * z.b_stride_B;
  char *inner_workspace = room_c + (size_t)group * z.c_stride_B;
  Sum *u = sums_of(&s->u, s->m, s->k, g->trans_a), *v = sums_of(&s->v, s->k, s->n, g->trans_b);
  g_autofree Operand *left = g_new(Operand, s->r), *right = g_new(Operand, s->r);
  g_autofree MsGemm *products = g_new(MsGemm, group);
  g_autofree gboolean *touched = g_new0(gboolean, s->m * s->n);
  for (int first = 0; first < s->r; first += group) {
    int end = MIN(first + group, s->r);
    split(exec, &a, u, first, end, z.copy_a, z.real_B, room_a, z.a_stride_B, left);
    split(exec, &b, v, first, end, z.copy_b, z.real_B, room_b, z.b_stride_B, right);
    for (int r = first; r < end; r++) {
      MsGemm *p = &products[r - first];
      *p = ms_inner_gemm(&z, g);
      p->alpha = left[r].scale * right[r].scale;
      p->a = left[r].data;
      p->lda = left[r].ld;
      p->b = right[r].data;
      p->ldb = right[r].ld;
      p->c = room_c + (size_t)(r - first) * z.c_stride_B;
      p->ldc = ms_lcma_ld(z.block.n, z.real_B);
    }
    multiply(exec, stage + 1, inner_workspace, products, end - first);
    merge(exec, g, s, &z, first, end, room_c, touched);
  }
  sums_free(u, s->r);
  sums_free(v, s->r);
}

void ms_lcma_execute(const MsLcmaPlan *plan, const MsBlas *blas, MsTeam *team, void *workspace, const MsGemm *gemm) {
  if (plan->n_stages == 0) {
    ms_blas_set_threads(blas, ms_team_threads(team));
    library(blas, gemm);
    return;
  }
  int threads = ms_team_threads(team);
  Exec exec = {plan, blas, team, g_new(char *, threads)};
  size_t scratch_B = 0;
  for (int i = 0; i < plan->n_stages; i++) {
    const MsScheme *s = plan->scheme[i];
    int operands = MAX(MAX(s->m * s->k, s->k * s->n), 1);
    scratch_B = MAX(scratch_B, MAX((size_t)CHUNK_B, (size_t)operands * CHUNK_LEAST * 8));
  }
  for (int i = 0; i < threads; i++) exec.scratch[i] = g_malloc(scratch_B);
  execute(&exec, 0, workspace, gemm);
  for (int i = 0; i < threads; i++) g_free(exec.scratch[i]);
  g_free(exec.scratch);
}
