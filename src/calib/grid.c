/* src/calib/grid.c - residual grids by regularised least squares; see solve.h. */
#include "base/stats.h"
#include "calib/solve.h"

#include <gsl/gsl_linalg.h>
#include <math.h>
#include <string.h>

enum { ROUNDS = 4, CORNERS = 16 };
static const double ridge = 0.02, most_log_ratio = 1.5, tukey = 4.685, least_scale = 0.005;

/* --- axes ------------------------------------------------------------------------------------------------------ */
static double round_node(double value) { return value >= 16 ? round(value) : round(value * 16) / 16; }

static void set_axis(MsGrid *grid, int d, const char *name, double lo, double hi, int nodes) {
  grid->name[d] = g_ref_string_new(name);
  grid->axis[d] = g_atomic_rc_box_alloc0((gsize)nodes * sizeof(double));
  grid->log2_axis[d] = g_atomic_rc_box_alloc0((gsize)nodes * sizeof(double));
  grid->n[d] = 0;
  for (int i = 0; i < nodes; i++) {
    double x = round_node(exp2(lo + (nodes > 1 ? (hi - lo) * i / (nodes - 1) : 0)));
    if (grid->n[d] > 0 && x <= grid->axis[d][grid->n[d] - 1]) continue;
    grid->axis[d][grid->n[d]] = x;
    grid->log2_axis[d][grid->n[d]++] = log2(x);
  }
}

gboolean ms_grid_axes(MsGrid *grid, int dims, const char *const *names, const int *max_nodes, const MsGridPoint *point,
                      guint n_points) {
  double lo[4], hi[4];
  int nodes[4];
  *grid = (MsGrid){0};
  for (int d = 0; d < dims; d++) {
    lo[d] = HUGE_VAL, hi[d] = -HUGE_VAL;
    for (guint i = 0; i < n_points; i++) {
      double x = log2(MAX(point[i].at[d], 1.0 / 16));
      lo[d] = MIN(lo[d], x), hi[d] = MAX(hi[d], x);
    }
    nodes[d] = n_points > 0 ? CLAMP((int)ceil((hi[d] - lo[d]) / 0.6) + 1, 1, max_nodes[d]) : 1;
  }
  for (;;) { /* thins the axis with the most nodes until there are enough points for each node */
    int total = 1, most = 0;
    for (int d = 0; d < dims; d++) {
      total *= nodes[d];
      if (nodes[d] > nodes[most]) most = d;
    }
    if (nodes[most] < 2) return FALSE;
    if ((guint)total * 3 <= n_points) break;
    nodes[most]--;
  }
  grid->dims = dims;
  int size = 1;
  for (int d = 0; d < dims; d++) {
    set_axis(grid, d, names[d], lo[d], hi[d], nodes[d]);
    size *= grid->n[d];
  }
  grid->log_ratio = g_atomic_rc_box_alloc0((gsize)size * sizeof(double));
  return TRUE;
}

/* --- one point on the grid: its corners and their weights ------------------------------------------------------ */
static int corners_of(const MsGrid *grid, const double *at, int *index, double *weight) {
  int n = 1;
  index[0] = 0, weight[0] = 1;
  for (int d = 0; d < grid->dims; d++) {
    const double *axis = grid->log2_axis[d];
    double x = CLAMP(log2(MAX(at[d], 1e-9)), axis[0], axis[grid->n[d] - 1]);
    int i = 0, twice = n;
    while (i + 2 < grid->n[d] && x >= axis[i + 1]) i++;
    double high = grid->n[d] > 1 ? (x - axis[i]) / (axis[i + 1] - axis[i]) : 0;
    for (int c = 0; c < n; c++) {
      index[c] = index[c] * grid->n[d] + i;
      if (grid->n[d] < 2) continue;
      index[twice] = index[c] + 1, weight[twice++] = weight[c] * high;
      weight[c] *= 1 - high;
    }
    n = twice;
  }
  return n;
}

/* Error of a point with the grid in place, and how fast its prediction follows the grid. */
static double error_of(const MsGrid *grid, const MsGridPoint *point, int n, const int *index, const double *weight,
                       double *slope) {
  double g = 0;
  for (int c = 0; c < n; c++) g += weight[c] * grid->log_ratio[index[c]];
  double moved = 1 + point->share * (exp(g) - 1);
  *slope = point->share * exp(g) / moved;
  return point->log_ratio - log(moved);
}

static double scale_of(const MsGrid *grid, const MsGridPoint *point, guint n_points, double *scratch) {
  int index[CORNERS];
  double weight[CORNERS], slope;
  for (guint i = 0; i < n_points; i++)
    scratch[i] = fabs(error_of(grid, &point[i], corners_of(grid, point[i].at, index, weight), index, weight, &slope));
  return tukey * MAX(1.4826 * ms_quantile(scratch, n_points, 0.5), least_scale);
}

/* --- normal equations: a band, since a point touches neighbouring nodes only
 * ----------------------------------------------------- A(i, d) is the element of row i + d and column i, as GSL keeps
 * lower bands. */
static int band_of(const MsGrid *grid) {
  int band = 0;
  for (int d = grid->dims - 1, stride = 1; d >= 0; stride *= grid->n[d], d--) band += grid->n[d] > 1 ? stride : 0;
  return band;
}

static inline void add_to(gsl_matrix *A, size_t row, size_t column, double value) {
  if (row >= column) *gsl_matrix_ptr(A, column, row - column) += value;
}

/* --- a point and its neighbours -------------------------------------------------------------------------------- */
static void add_points(const MsGrid *grid, const MsGridPoint *point, guint n_points, double scale, gsl_matrix *A,
                       gsl_vector *b) {
  int index[CORNERS];
  double weight[CORNERS], slope;
  for (guint i = 0; i < n_points; i++) {
    int n = corners_of(grid, point[i].at, index, weight);
    double r = error_of(grid, &point[i], n, index, weight, &slope), z = r / scale,
           w = fabs(z) < 1 ? (1 - z * z) * (1 - z * z) : 0;
    for (int c = 0; c < n; c++) {
      *gsl_vector_ptr(b, (size_t)index[c]) += w * slope * weight[c] * r;
      for (int e = 0; e < n; e++)
        add_to(A, (size_t)index[c], (size_t)index[e], w * slope * slope * weight[c] * weight[e]);
    }
  }
}

/* smooth * (g_i - g_j)^2 for neighbours, ridge * g_i^2; the right side holds the gradient at the present g. */
static void add_smoothing(const MsGrid *grid, double smooth, int size, gsl_matrix *A, gsl_vector *b) {
  for (int i = 0; i < size; i++) {
    add_to(A, (size_t)i, (size_t)i, ridge);
    *gsl_vector_ptr(b, (size_t)i) -= ridge * grid->log_ratio[i];
    for (int d = grid->dims - 1, stride = 1; d >= 0; stride *= grid->n[d], d--) {
      if (i / stride % grid->n[d] == grid->n[d] - 1) continue;
      size_t from = (size_t)i, to = (size_t)(i + stride);
      double difference = smooth * (grid->log_ratio[from] - grid->log_ratio[to]);
      add_to(A, from, from, smooth);
      add_to(A, to, to, smooth);
      add_to(A, to, from, -smooth);
      *gsl_vector_ptr(b, from) -= difference;
      *gsl_vector_ptr(b, to) += difference;
    }
  }
}

void ms_grid_fit(MsGrid *grid, const MsGridPoint *point, guint n_points, double smooth, double reach, int trusting) {
  int size = 1;
  for (int d = 0; d < grid->dims; d++) size *= grid->n[d];
  memset(grid->log_ratio, 0, sizeof(double) * (size_t)size);
  gsl_matrix *A = gsl_matrix_alloc((size_t)size, (size_t)band_of(grid) + 1);
  gsl_vector *b = gsl_vector_alloc((size_t)size);
  g_autofree double *scratch = g_new(double, n_points + 1);
  for (int round = 0; round < ROUNDS + trusting; round++) {
    gsl_matrix_set_zero(A);
    gsl_vector_set_zero(b);
    double scale = reach * scale_of(grid, point, n_points, scratch);
    if (round < trusting) scale = round == 0 ? HUGE_VAL : MAX(scale, exp2(1 - round));
    add_points(grid, point, n_points, scale, A, b);
    add_smoothing(grid, smooth, size, A, b);
    if (gsl_linalg_cholesky_band_decomp(A) != GSL_SUCCESS || gsl_linalg_cholesky_band_svx(A, b) != GSL_SUCCESS) break;
    for (int i = 0; i < size; i++)
      grid->log_ratio[i] = CLAMP(grid->log_ratio[i] + gsl_vector_get(b, (size_t)i), -most_log_ratio, most_log_ratio);
  }
  gsl_matrix_free(A);
  gsl_vector_free(b);
}

void ms_grid_round(MsGrid *grid) {
  int size = grid->dims > 0;
  for (int d = 0; d < grid->dims; d++) size *= grid->n[d];
  for (int i = 0; i < size; i++) grid->log_ratio[i] = round(grid->log_ratio[i] * 1e4) / 1e4;
}
