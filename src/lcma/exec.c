#include <string.h>

#include "base/err.h"
#include "lcma/exec_priv.h"

enum { TASK_ROWS = 16 }; /* rows of a block that a thread takes at a time */

typedef struct { /* a sum of blocks */
  int terms;
  int *block;
  double *coefficient;
} Sum;

typedef struct { /* A or B cut into a grid of blocks */
  const char *data;
  size_t element_B;
  MsBlasType type;
  gboolean trans;
  gint64 ld, rows, cols;
  int grid_rows, grid_cols;
  gint64 block_rows, block_cols;
} Grid; /* for the library as stored, else as multiplied: `trans` tells that data holds it the other way round */

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
  MsLcmaPhases *phases;
} Exec;

/* Adds the time since *since to *phase_s and moves *since to now. */
static void lap(const Exec *exec, double *since, double *phase_s) {
  double now = ms_team_clock_s(exec->team);
  *phase_s += now - *since;
  *since = now;
}

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

/* --- split: sums of blocks of A or B --------------------------------------------------------------------------- */
typedef struct {    /* where element (i, j) of a sum goes */
  gint64 row, step; /* elements from row to row; between pieces of a row, 0: it is whole */
  gint64 slab, slab_rows, slab_cols,
      piece; /* packed: elements from slab to slab, its rows or columns (0: not cut that way), columns of a piece */
  const MsKernel *tiles; /* packed: whose elements these are; NULL: numbers */
} Target;

typedef struct {
  const Exec *exec;
  const Grid *grid;
  const MsKernel *kernel;
  size_t real_B, chunk;
  const Sum *sums; /* of the products that have a buffer */
  char **out;
  int n_out;
  Target target;
  gboolean *needed; /* blocks that occur in them */
} Split;

static Target plain_target(gint64 cols, size_t real_B) { return (Target){.row = ms_lcma_ld(cols, real_B)}; }

static Target packed_target(const MsKernel *kernel, const MsPacked *p, gboolean is_b) {
  if (!is_b) return (Target){.row = p->a_row, .slab = p->a_slab, .slab_cols = p->slab_k, .tiles = kernel};
  return (Target){.row = kernel->nr,
                  .step = p->b_panel,
                  .slab = p->b_slab,
                  .slab_rows = p->slab_k,
                  .piece = kernel->nr,
                  .tiles = kernel};
}

static gint64 place(const Target *t, gint64 i, gint64 j) {
  if (t->slab_cols) return j / t->slab_cols * t->slab + i * t->row + j % t->slab_cols;
  if (t->slab_rows) return i / t->slab_rows * t->slab + j / t->piece * t->step + i % t->slab_rows * t->row;
  return i * t->row + j;
}

static gboolean is_narrow(const Grid *g) { return g->type == MS_BLAS_BF16 || g->type == MS_BLAS_INT8; }

/* n elements from element `at` on, as floats. */
static void widen(const Grid *g, float *to, size_t at, size_t n) {
  if (g->type == MS_BLAS_BF16) ms_widen_bf16(to, (const guint16 *)(const void *)g->data + at, n);
  else ms_widen_int8(to, (const gint8 *)g->data + at, n);
}

/* n elements of row i of a block from column j on: in place where that is possible, else a copy in `room`, widened and
 * filled up with zeros. */
static const void *read_block(const Grid *g, int block, gint64 i, gint64 j, size_t n, size_t real_B, char *room) {
  gint64 row = block / g->grid_cols * g->block_rows + i, col = block % g->grid_cols * g->block_cols + j;
  gint64 left = row < g->rows ? g->cols - col : 0;
  const char *from = left > 0 ? g->data + (size_t)(row * g->ld + col) * g->element_B : NULL;
  if (left >= (gint64)n && !is_narrow(g)) return from;
  size_t have = (size_t)CLAMP(left, 0, (gint64)n);
  if (have > 0 && is_narrow(g)) widen(g, (float *)(void *)room, (size_t)(row * g->ld + col), have);
  else if (have > 0) memcpy(room, from, have * real_B);
  memset(room + have * real_B, 0, (n - have) * real_B);
  return room;
}

/* Rows i to i + rows - 1 of the same, of a matrix that is stored the other way round, into `room`, n elements apart. */
static void read_transposed(const Grid *g, int block, gint64 i, gint64 rows, gint64 j, size_t n, size_t real_B,
                            char *room) {
  gint64 row = block / g->grid_cols * g->block_rows + i, col = block % g->grid_cols * g->block_cols + j;
  gint64 have_rows = CLAMP(g->rows - row, 0, rows), have = CLAMP(g->cols - col, 0, (gint64)n);
  if (have_rows < rows || have < (gint64)n) memset(room, 0, (size_t)rows * n * real_B);
  for (gint64 x = 0; x < have; x++) {
    size_t at = (size_t)((col + x) * g->ld + row);
    if (is_narrow(g)) {
      for (gint64 y = 0; y < have_rows; y++) widen(g, (float *)(void *)room + (size_t)y * n + x, at + (size_t)y, 1);
    } else if (real_B == 8) {
      for (gint64 y = 0; y < have_rows; y++)
        ((double *)(void *)room)[(size_t)y * n + (size_t)x] = ((const double *)(const void *)g->data)[at + (size_t)y];
    } else {
      for (gint64 y = 0; y < have_rows; y++)
        ((float *)(void *)room)[(size_t)y * n + (size_t)x] = ((const float *)(const void *)g->data)[at + (size_t)y];
    }
  }
}

/* Columns of the chunk that begins at column j: whole groups of kernel.h, within one slab. Where the matrix ends in it,
 * it ends before, so that only the rest is copied to be filled up with zeros: unless that takes less than another round
 * of sums. */
static size_t chunk_at(const Split *s, gint64 j) {
  const Grid *g = s->grid;
  gint64 n = (g->block_cols - j + MS_COMBINE_ALIGN - 1) / MS_COMBINE_ALIGN * MS_COMBINE_ALIGN;
  if (s->target.slab_cols) {
    gint64 slab = s->target.slab_cols * s->target.tiles->depth;
    n = MIN(n, slab - j % slab);
  }
  n = MIN(n, (gint64)s->chunk);
  gint64 piece = MAX(s->target.piece, MS_COMBINE_ALIGN);
  for (int c = 0; c < g->grid_cols && !g->trans && !is_narrow(g); c++) {
    gint64 left = g->cols - c * g->block_cols - j;
    if (left >= piece && left < n && left * g->grid_rows > s->n_out * MS_COMBINE_ALIGN) n = left / piece * piece;
  }
  return (size_t)n;
}

/* A sum of n numbers from (i, j) on, narrowed: `depth` columns of a row of A side by side, as many rows of B. */
static void put_narrow(const Split *s, const Sum *sum, const void *const *terms, char *out, gint64 i, gint64 j,
                       size_t n) {
  float whole[MS_CHUNK_B / sizeof(float)] __attribute__((aligned(64)));
  const Target *t = &s->target;
  const gboolean is_a = t->slab_cols > 0;
  const int depth = t->tiles->depth;
  char *at = out + (size_t)place(t, is_a ? i : i / depth, is_a ? j / depth : j) * t->tiles->real_B;
  s->kernel->combine(whole, 0, terms, sum->coefficient, sum->terms, n, FALSE);
  if (is_a) t->tiles->narrow_a(at, whole, n);
  else t->tiles->narrow_b(at, (size_t)t->step, whole, n, (int)(i % depth));
}

static void split_row(const Split *s, const void *const *in, gint64 i, gint64 j, size_t n) {
  const void *terms[MS_SCHEME_PRODUCTS];
  gint64 at = place(&s->target, i, j);
  for (int o = 0; o < s->n_out; o++) {
    const Sum *sum = &s->sums[o];
    for (int t = 0; t < sum->terms; t++) terms[t] = in[sum->block[t]];
    if (s->target.tiles && s->target.tiles->depth > 1) put_narrow(s, sum, terms, s->out[o], i, j, n);
    else
      s->kernel->combine(s->out[o] + (size_t)at * s->real_B, (size_t)s->target.step, terms, sum->coefficient,
                         sum->terms, n, TRUE);
  }
}

static void split_task(void *context, int task, int worker) {
  const Split *s = context;
  const Grid *g = s->grid;
  int blocks = g->grid_rows * g->grid_cols;
  const void *in[MS_SCHEME_PRODUCTS];
  char *scratch = s->exec->scratch[worker];
  gint64 top = (gint64)task * TASK_ROWS, rows = MIN(TASK_ROWS, g->block_rows - top);
  for (gint64 j = 0; j < g->block_cols && g->trans;) {
    size_t n = chunk_at(s, j), room_B = (size_t)TASK_ROWS * s->chunk * s->real_B;
    for (int b = 0; b < blocks; b++)
      if (s->needed[b]) read_transposed(g, b, top, rows, j, n, s->real_B, scratch + (size_t)b * room_B);
    for (gint64 i = 0; i < rows; i++) {
      for (int b = 0; b < blocks; b++) in[b] = scratch + (size_t)b * room_B + (size_t)i * n * s->real_B;
      split_row(s, in, top + i, j, n);
    }
    j += (gint64)n;
  }
  for (gint64 i = top; i < top + rows && !g->trans; i++)
    for (gint64 j = 0; j < g->block_cols;) {
      size_t n = chunk_at(s, j);
      for (int b = 0; b < blocks; b++)
        if (s->needed[b]) in[b] = read_block(g, b, i, j, n, s->real_B, scratch + (size_t)b * s->chunk * s->real_B);
      split_row(s, in, i, j, n);
      j += (gint64)n;
    }
}

/* Operands of products first to end - 1: blocks in place, or buffers from `room` on, stride_B apart, which this fills.
 */
static void split(const Exec *exec, const Grid *g, const Sum *sums, int first, int end, gboolean copy,
                  const MsKernel *kernel, const Target *target, char *room, size_t stride_B, Operand *operands) {
  size_t real_B = kernel->real_B;
  int copies = g->grid_rows * g->grid_cols * (g->trans ? TASK_ROWS : 1);
  Split s = {.exec = exec,
             .grid = g,
             .kernel = kernel,
             .real_B = real_B,
             .chunk = ms_lcma_chunk(copies, real_B),
             .target = *target};
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
    operands[r] = (Operand){out[s.n_out++], target->row, 1};
  }
  s.sums = list;
  s.out = out;
  s.needed = needed;
  if (s.n_out > 0) ms_team_run(exec->team, split_task, &s, (int)((g->block_rows + TASK_ROWS - 1) / TASK_ROWS));
}

/* --- multiply -------------------------------------------------------------------------------------------------- */
static void library(const MsBlas *blas, const MsGemm *g) {
  switch (g->type) {
  case MS_BLAS_F64:
    ms_blas_dgemm(blas, g->trans_a, g->trans_b, g->m, g->n, g->k, g->alpha, g->a, g->lda, g->b, g->ldb, g->beta, g->c,
                  g->ldc);
    break;
  case MS_BLAS_F32:
    ms_blas_sgemm(blas, g->trans_a, g->trans_b, g->m, g->n, g->k, (float)g->alpha, g->a, g->lda, g->b, g->ldb,
                  (float)g->beta, g->c, g->ldc);
    break;
  default:
    ms_blas_bf16gemm(blas, g->trans_a, g->trans_b, g->m, g->n, g->k, (float)g->alpha, g->a, g->lda, g->b, g->ldb,
                     (float)g->beta, g->c, g->ldc);
  }
}

typedef struct {
  const Exec *exec;
  const MsStageSize *size;
  const MsGemm *products; /* of the group */
  int whole, pieces;      /* the first `whole` products are a task each, the rest are cut into `pieces` by rows */
} Multiply;

/* Rows from `from` to `to` - 1 of a product. */
static void multiply_rows(const Multiply *p, const MsGemm *g, gint64 from, gint64 to) {
  if (from == to) return;
  if (p->size->packs) {
    ms_kernel_multiply(p->size->tiles, &p->size->packed, g->a, g->b, g->c, g->ldc, from, to);
    return;
  }
  MsGemm part = *g;
  size_t element_B = ms_blas_type_B(g->type);
  part.a = (const char *)g->a + (size_t)(g->trans_a ? from : from * g->lda) * element_B;
  part.c = (char *)g->c + (size_t)(from * g->ldc) * element_B;
  part.m = to - from;
  ms_blas_set_threads(p->exec->blas, 1);
  library(p->exec->blas, &part);
}

static void multiply_task(void *context, int task, int worker) {
  (void)worker;
  const Multiply *p = context;
  int which = task < p->whole ? task : p->whole + (task - p->whole) / p->pieces,
      piece = task < p->whole ? 0 : (task - p->whole) % p->pieces;
  int pieces = task < p->whole ? 1 : p->pieces;
  const MsGemm *g = &p->products[which];
  const gint64 tile = p->size->packs ? p->size->tiles->mr : 1, tiles = (g->m + tile - 1) / tile; /* whole ones */
  multiply_rows(p, g, MIN(tiles * piece / pieces * tile, g->m), MIN(tiles * (piece + 1) / pieces * tile, g->m));
}

static void execute(const Exec *exec, int stage, char *workspace, const MsGemm *gemm);

/* The n products of a group of stage `stage`. */
static void multiply(const Exec *exec, int stage, const MsStageSize *size, char *workspace, const MsGemm *products,
                     int n) {
  if (stage + 1 < exec->plan->n_stages) {
    for (int i = 0; i < n; i++) execute(exec, stage + 1, workspace, &products[i]);
    return;
  }
  const int threads = ms_team_threads(exec->team), rest = n % threads;
  const int pieces = ms_lcma_pieces(size->packs ? size->tiles : NULL, size->block.m, threads);
  Multiply p = {exec, size, products, n - rest, pieces};
  ms_team_run(exec->team, multiply_task, &p, p.whole + rest * pieces);
}

/* --- merge: C from the products -------------------------------------------------------------------------------- */
typedef struct {
  const Exec *exec;
  const MsGemm *gemm;
  const MsScheme *scheme;
  const MsStageSize *size;
  size_t chunk;
  const Sum *sums;    /* for each block of C: products of this group (index in it), coefficients times alpha */
  const double *beta; /* for each block: what its old value is worth now */
  const char *products;
  int n_products;
} Merge;

/* The rows of all products are too many streams for the hardware to follow: what comes next is asked for. */
static void fetch_products(const Merge *m, gint64 i, gint64 j, size_t n) {
  size_t at_B = (size_t)(i * ms_lcma_ld(m->size->block.n, m->size->real_B) + j) * m->size->real_B;
  for (int r = 0; r < m->n_products; r++)
    for (size_t line_B = 0; line_B < n * m->size->real_B; line_B += 64)
      __builtin_prefetch(m->products + (size_t)r * m->size->c_stride_B + at_B + line_B, 0, 3);
}

static void merge_block(const Merge *m, int block, gint64 i, gint64 j, size_t n, char *scratch) {
  const MsGemm *g = m->gemm;
  const Sum *sum = &m->sums[block];
  size_t real_B = m->size->real_B;
  gint64 row = block / m->scheme->n * m->size->block.m + i, col = block % m->scheme->n * m->size->block.n + j,
         left = g->n - col;
  if (row >= g->m || left <= 0 || sum->terms == 0) return;
  const void *in[MS_SCHEME_PRODUCTS + 1];
  double coefficient[MS_SCHEME_PRODUCTS + 1];
  int terms = 0;
  for (; terms < sum->terms; terms++) {
    in[terms] = m->products + (size_t)sum->block[terms] * m->size->c_stride_B +
                (size_t)(i * ms_lcma_ld(m->size->block.n, real_B) + j) * real_B;
    coefficient[terms] = sum->coefficient[terms];
  }
  char *c = (char *)g->c + (size_t)(row * g->ldc + col) * real_B;
  gint64 have = MIN(left, MIN((gint64)n, m->size->block.n - j));
  gboolean reads = m->beta[block] != 0, direct = have == (gint64)n || (!reads && have >= MS_COMBINE_ALIGN);
  char *out = direct ? c : scratch;
  if (reads) {
    if (out != c) memcpy(out, c, (size_t)have * real_B);
    in[terms] = out;
    coefficient[terms++] = m->beta[block];
  }
  m->size->merge->combine(out, 0, in, coefficient, terms, direct ? (size_t)have : n, direct && !reads);
  if (out != c) memcpy(c, out, (size_t)have * real_B);
}

static void merge_task(void *context, int task, int worker) {
  const Merge *m = context;
  char *scratch = m->exec->scratch[worker];
  memset(scratch, 0, m->chunk * m->size->real_B); /* beyond the edge there is nothing to read */
  for (gint64 i = (gint64)task * TASK_ROWS; i < MIN(((gint64)task + 1) * TASK_ROWS, m->size->block.m); i++)
    for (gint64 j = 0; j < m->size->block.n; j += (gint64)m->chunk) {
      size_t n =
          MIN(m->chunk, (size_t)(m->size->block.n - j + MS_COMBINE_ALIGN - 1) / MS_COMBINE_ALIGN * MS_COMBINE_ALIGN);
      gboolean last = j + (gint64)n >= m->size->block.n;
      fetch_products(m, last ? i + 1 : i, last ? 0 : j + (gint64)n, m->chunk);
      for (int b = 0; b < m->scheme->m * m->scheme->n; b++) merge_block(m, b, i, j, n, scratch);
    }
}

/* C from the products first to end - 1, which lie at `products`; `touched` remembers the blocks of C that have been
 * written before. */
static void merge(const Exec *exec, const MsGemm *gemm, const MsScheme *scheme, const MsStageSize *size, int first,
                  int end, const char *products, gboolean *touched) {
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
  Merge m = {exec, gemm, scheme, size, ms_lcma_chunk(end - first + 1, size->real_B), sums, beta, products, end - first};
  ms_team_run(exec->team, merge_task, &m, (int)((size->block.m + TASK_ROWS - 1) / TASK_ROWS));
  sums_free(sums, blocks);
}

/* --- a stage --------------------------------------------------------------------------------------------------- */
static Grid grid_of(const MsGemm *g, const MsScheme *s, const MsStageSize *z, gboolean is_b) {
  gboolean trans = is_b ? g->trans_b : g->trans_a;
  Grid grid = {
      .data = is_b ? g->b : g->a, .element_B = ms_blas_type_B(g->type), .type = g->type, .ld = is_b ? g->ldb : g->lda};
  grid.rows = is_b ? g->k : g->m;
  grid.cols = is_b ? g->n : g->k;
  grid.grid_rows = is_b ? s->k : s->m;
  grid.grid_cols = is_b ? s->n : s->k;
  grid.block_rows = is_b ? z->block.k : z->block.m;
  grid.block_cols = is_b ? z->block.n : z->block.k;
  if (!trans) return grid;
  if (z->packs) {
    grid.trans = TRUE;
    return grid;
  }
  Grid stored = grid; /* the library transposes: blocks stay as they are */
  stored.rows = grid.cols;
  stored.cols = grid.rows;
  stored.grid_rows = grid.grid_cols;
  stored.grid_cols = grid.grid_rows;
  stored.block_rows = grid.block_cols;
  stored.block_cols = grid.block_rows;
  return stored;
}

static void execute(const Exec *exec, int stage, char *workspace, const MsGemm *g) {
  const MsScheme *s = exec->plan->scheme[stage];
  const int group = exec->plan->group[stage];
  MsStageSize z = ms_stage_size(exec->plan, stage, g);
  Grid a = grid_of(g, s, &z, FALSE), b = grid_of(g, s, &z, TRUE);
  char *room_a = workspace, *room_b = room_a + (size_t)z.a_buffers * z.a_stride_B,
       *room_c = room_b + (size_t)z.b_buffers * z.b_stride_B;
  char *inner_workspace = room_c + (size_t)group * z.c_stride_B;
  Sum *u = sums_of(&s->u, s->m, s->k, g->trans_a && !z.packs), *v = sums_of(&s->v, s->k, s->n, g->trans_b && !z.packs);
  Target to_a = z.packs ? packed_target(z.tiles, &z.packed, FALSE) : plain_target(a.block_cols, z.real_B);
  Target to_b = z.packs ? packed_target(z.tiles, &z.packed, TRUE) : plain_target(b.block_cols, z.real_B);
  g_autofree Operand *left = g_new(Operand, s->r), *right = g_new(Operand, s->r);
  g_autofree MsGemm *products = g_new(MsGemm, group);
  g_autofree gboolean *touched = g_new0(gboolean, s->m * s->n);
  double since = ms_team_clock_s(exec->team);
  for (int first = 0; first < s->r; first += group) {
    int end = MIN(first + group, s->r);
    split(exec, &a, u, first, end, z.copy_a, z.kernel, &to_a, room_a, z.a_stride_B, left);
    split(exec, &b, v, first, end, z.copy_b, z.kernel, &to_b, room_b, z.b_stride_B, right);
    lap(exec, &since, &exec->phases->split_s);
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
    multiply(exec, stage, &z, inner_workspace, products, end - first);
    double inner_s = 0;
    lap(exec, &since,
        stage + 1 < exec->plan->n_stages ? &inner_s
                                         : &exec->phases->multiply_s); /* an inner stage has counted its own */
    merge(exec, g, s, &z, first, end, room_c, touched);
    lap(exec, &since, &exec->phases->merge_s);
  }
  sums_free(u, s->r);
  sums_free(v, s->r);
}

void ms_lcma_execute(const MsLcmaPlan *plan, const MsBlas *blas, MsTeam *team, void *workspace, const MsGemm *gemm,
                     MsLcmaPhases *phases) {
  if (plan->n_stages == 0) {
    ms_team_rest(team); /* the library has threads of its own */
    ms_blas_set_threads(blas, ms_team_threads(team));
    library(blas, gemm);
    return;
  }
  int threads = ms_team_threads(team);
  MsLcmaPhases nobody = {0};
  Exec exec = {plan, blas, team, g_new(char *, threads), phases ? phases : &nobody};
  size_t scratch_B = 0;
  for (int i = 0; i < plan->n_stages; i++) {
    const MsScheme *s = plan->scheme[i];
    int operands = MAX(s->m * s->k, s->k * s->n);
    scratch_B = MAX(scratch_B, MAX((size_t)MS_CHUNK_B, (size_t)operands * TASK_ROWS * MS_CHUNK_LEAST * 8));
  }
  for (int i = 0; i < threads; i++) exec.scratch[i] = g_malloc(scratch_B);
  execute(&exec, 0, workspace, gemm);
  for (int i = 0; i < threads; i++) g_free(exec.scratch[i]);
  g_free(exec.scratch);
}
