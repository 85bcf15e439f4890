/* src/calib/form.c - one curve from one series: parameters of the form, the residual grid, what is held back. */
#include "calib/fit_priv.h"

#include "base/quantity.h"
#include "base/stats.h"
#include "calib/solve.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 20000, MOST_SOLVED = 5000, MOST_TRIED = 1500, POINTS_PER_PARAM = 4, MAX_STARTS = 3 };

typedef struct {
  MsRowKind kind;
  MsCurveForm form;
  const char *words;
  int n_params, n_starts;
  MsBound bound[MS_CURVE_PARAMS];
  double start[MAX_STARTS][MS_MAX_PARAMS];
  int order[MS_CURVE_PARAMS]; /* with few points the first of these are fitted */
  int dims;
  const char *axis[4];
  int nodes[4];
} Form;

#define SHARE \
  { 0.03, 1, FALSE }
#define BANDWIDTH \
  { 0.03, 0.95, FALSE }
#define LAUNCH \
  { 3e-7, 2e-4, TRUE }
#define HALF \
  { 1, 4096, TRUE }
/* n_params 5: the kernel never splits the keys */
#define ATTENTION(words, n_params, dims, ...)                                                          \
  {                                                                                                    \
    MS_ROW_ATTENTION, MS_FORM_ATTENTION, words, n_params, 2,                                           \
        {SHARE, BANDWIDTH, LAUNCH, {1, 8192, TRUE}, {0.02, 2, TRUE}, {0.01, 4, TRUE}},                 \
        {{0.6, 0.47, 11e-6, 2, 0.6, 0.3}, {0.5, 0.6, 15e-6, 500, 0.3, 0.3}}, {0, 4, 2, 1, 3, 5}, dims, \
        {"seq", "batch_x_heads", "gqa_group", "heads"}, __VA_ARGS__                                    \
  }
#define ONE_TILE(name, m, n, pad_m)                                                                       \
  {                                                                                                       \
    MS_ROW_GEMM, MS_FORM_GEMM_TILED, name, 9, 1,                                                          \
        {SHARE,         BANDWIDTH,     LAUNCH,        {1e-8, 2e-5, TRUE},   {0, 1, FALSE},                \
         {1, 1, FALSE}, {m, m, FALSE}, {n, n, FALSE}, {pad_m, pad_m, FALSE}},                             \
        {{0.7, 0.6, 3e-6, 2e-6, 0.8, 1, m, n, pad_m}}, {6, 7, 8, 5, 0, 2, 1, 3, 4}, 3, {"m", "n", "k"}, { \
      6, 7, 7                                                                                             \
    }                                                                                                     \
  }
static const Form forms[] = {
    {MS_ROW_GEMM,
     MS_FORM_GEMM_SATURATING,
     "form C, saturating in m, n, k",
     6,
     2,
     {SHARE, BANDWIDTH, LAUNCH, HALF, HALF, HALF},
     {{0.74, 0.6, 2.6e-6, 97, 72, 67}, {0.7, 0.5, 4e-6, 40, 600, 250}},
     {0, 2, 1, 3, 5, 4},
     3,
     {"m", "n", "k"},
     {6, 7, 7}},
    {MS_ROW_GEMM,
     MS_FORM_GEMM_TILED,
     "form E2, best of five tiles and four splits of k",
     6,
     2,
     {SHARE, BANDWIDTH, LAUNCH, {1e-8, 2e-5, TRUE}, {0, 1, FALSE}, {0.3, 1, FALSE}},
     {{0.8, 0.8, 3e-6, 2e-6, 0.5, 0.85}, {0.6, 0.5, 3e-6, 1e-6, 0.3, 0.6}},
     {0, 2, 1, 3, 5, 4},
     3,
     {"m", "n", "k"},
     {6, 7, 7}},
    ONE_TILE("form E2 with one tile of 128 x 128", 128, 128, 128),
    ONE_TILE("form E2 with one tile of 128 x 128, m padded to 256", 128, 128, 256),
    ONE_TILE("form E2 with one tile of 128 x 256", 128, 256, 128),
    ONE_TILE("form E2 with one tile of 256 x 128", 256, 128, 256),
    {MS_ROW_LAYER,
     MS_FORM_GROUPED_GEMM,
     "form F of an expert layer",
     7,
     2,
     {SHARE, BANDWIDTH, LAUNCH, HALF, HALF, {1e-9, 1e-5, TRUE}, BANDWIDTH},
     {{0.9, 0.83, 30e-6, 76, 300, 0.1e-6, 0.55}, {0.6, 0.8, 25e-6, 26, 1100, 0.2e-6, 0.8}},
     {0, 2, 6, 1, 4, 3, 5},
     4,
     {"te", "hidden", "inter_per_tp", "local_rows"},
     {6, 3, 5, 4}},
    ATTENTION("form F, work and critical path", 5, 3, {8, 9, 4}),
    ATTENTION("form F, work and critical path", 5, 4, {8, 8, 3, 4}),
    ATTENTION("form F, work and critical path, keys split where heads are few", 6, 3, {8, 9, 4}),
    ATTENTION("form F, work and critical path, keys split where heads are few", 6, 4, {8, 8, 3, 4}),
    {MS_ROW_DELTA,
     MS_FORM_ATTENTION,
     "form F of attention over the work of a delta rule",
     5,
     2,
     {SHARE, BANDWIDTH, LAUNCH, {1, 8192, TRUE}, {0.02, 2, TRUE}},
     {{0.2, 0.5, 20e-6, 2, 0.1}, {0.08, 0.6, 15e-6, 100, 0.3}},
     {0, 4, 2, 1, 3},
     3,
     {"seq", "batch_x_heads", "gqa_group"},
     {8, 9, 4}},
    {MS_ROW_EXCHANGE,
     MS_FORM_DISPATCH,
     "alpha + fill + soft maximum of what SMs do per copy, per token, per byte, and the link",
     8,
     3,
     {{1e-6, 2e-3, TRUE},
      {1e8, 1e13, TRUE},
      {1e9, 1e13, TRUE},
      {1, 10, FALSE},
      {1e-10, 1e-5, TRUE},
      {1e-10, 1e-5, TRUE},
      {0.01, 20, TRUE},
      {0.1, 200, TRUE}},
     {{30e-6, 22e9, 450e9, 3, 100e-9, 400e-9, 2, 10},
      {100e-6, 4e9, 60e9, 6, 1e-9, 1e-9, 0.1, 1},
      {40e-6, 50e9, 900e9, 1.5, 150e-9, 50e-9, 5, 5}},
     {2, 0, 1, 3, 4, 7, 6, 5},
     4,
     {"tokens", "sms", "row_B", "copies"},
     {6, 6, 3, 3}},
    {MS_ROW_CAST,
     MS_FORM_BANDWIDTH,
     "launch + bytes / bandwidth",
     2,
     1,
     {SHARE, {1e-6, 5e-6, TRUE}},
     {{0.8, 3e-6}},
     {0, 1}}};

typedef struct {
  const MsSeries *series;
  const MsDeviceRates *device;
  const Form *form;
  gboolean cast;
  MsCurve *curve; /* being tried */
  const MsRow *row;
} Job;

/* --- errors ---------------------------------------------------------------------------------------------------- */
/* Absolute relative errors of rows whose bucket lies in [from, to); error has room for n. Returns how many. */
static guint errors_of(const MsCurve *curve, const MsDeviceRates *device, const MsSeries *series, const MsRow *row,
                       guint n, int from, int to, double *error) {
  guint count = 0;
  for (guint i = 0; i < n; i++) {
    int bucket = ms_row_bucket(series->kind, row[i].x);
    if (bucket >= from && bucket < to)
      error[count++] = fabs(ms_predict(curve, device, series, row[i].x).time_s / row[i].time_s - 1);
  }
  return count;
}

static void set_params(const Job *job, const double *p) {
  int n = job->form->n_params;
  memset(job->curve->param, 0, sizeof job->curve->param);
  memcpy(job->curve->param, p, sizeof *p * (size_t)n);
  job->curve->provenance.cast_launch_s = job->cast ? p[n] : NAN;
  job->curve->provenance.cast_bw_efficiency = job->cast ? p[n + 1] : NAN;
}

static double residual(const double *p, guint i, const void *data) {
  const Job *job = data;
  set_params(job, p);
  return log(ms_predict(job->curve, job->device, job->series, job->row[i].x).time_s / job->row[i].time_s);
}

/* --- rows ------------------------------------------------------------------------------------------------------ */
enum { FOLDS = 3, ALL = -1 };

/* Rows of the folds [150, 250), [250, 350), ... choose between forms and grids; those of the others teach meanwhile. */
static int from_of(int fold) { return MS_HELD_BACK + fold * (MS_VALIDATION - MS_HELD_BACK); }

/* Rows that are not held back and not in `fold`, evenly thinned to `most`. */
static GArray *pick(const MsSeries *series, int fold, guint most) {
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsRow));
  for (guint i = 0; i < series->rows->len; i++) {
    const MsRow *row = &g_array_index(series->rows, MsRow, i);
    int bucket = ms_row_bucket(series->kind, row->x);
    if (bucket >= MS_HELD_BACK && (fold == ALL || bucket < from_of(fold) || bucket >= from_of(fold + 1)))
      g_array_append_vals(all, row, 1);
  }
  if (all->len <= most) return g_steal_pointer(&all);
  GArray *some = g_array_sized_new(FALSE, FALSE, sizeof(MsRow), most);
  for (guint i = 0; i < most; i++)
    g_array_append_vals(some, &g_array_index(all, MsRow, (guint)((guint64)i * all->len / most)), 1);
  return some;
}

/* --- parameters ------------------------------------------------------------------------------------------------ */
static gboolean has_sms(const MsSeries *series) {
  for (guint i = 0; i < series->rows->len; i++)
    if (g_array_index(series->rows, MsRow, i).x[6] > 1) return TRUE;
  return FALSE;
}

/* Few rows, or all of one width to as many destinations, do not tell a copy from its bytes: only alpha, rates and
 * sharpness are fitted then. */
static void bound_exchange(const Job *job, const MsFitContext *context, gboolean room, MsBound *bound) {
  enum { LEAST_WIDTHS = 4 };
  const MsBound *all = job->form->bound;
  double seen[LEAST_WIDTHS];
  int widths = 0;
  for (guint i = 0; i < job->series->rows->len && widths < LEAST_WIDTHS; i++) {
    const double *x = g_array_index(job->series->rows, MsRow, i).x;
    double width = x[1] * x[2] / x[3];
    gboolean known = FALSE;
    for (int j = 0; j < widths; j++) known |= seen[j] == width;
    if (!known) seen[widths++] = width;
  }
  if (!room || widths < LEAST_WIDTHS)
    for (int i = MS_D_COPY; i <= MS_D_FILL; i++) bound[i].lo = bound[i].hi = 0;
  if (!has_sms(job->series)) bound[MS_D_PER_SM].lo = bound[MS_D_PER_SM].hi = all[MS_D_PER_SM].hi;
  if (context->wire_Bps > bound[MS_D_LINK].lo) bound[MS_D_LINK].hi = MIN(bound[MS_D_LINK].hi, context->wire_Bps);
}

/* Bounds for this series: what few points cannot tell is fixed at the donor's value. Returns how many stay free. */
static int set_bounds(const Job *job, const MsFitContext *context, guint n_points, MsBound *bound) {
  const Form *form = job->form;
  int room = CLAMP((int)(n_points / POINTS_PER_PARAM), 1, form->n_params), free_params = room;
  gboolean donor = context->donor && context->donor->form == form->form;
  memcpy(bound, form->bound, sizeof *bound * (size_t)form->n_params);
  for (int i = room; i < form->n_params; i++) {
    int at = form->order[i];
    bound[at].lo = bound[at].hi = donor ? context->donor->param[at] : form->start[0][at];
  }
  if (job->cast) {
    bound[MS_C_LAUNCH].lo = bound[MS_C_LAUNCH].hi = context->launch_s;
    bound[form->n_params] = (MsBound){1e-7, 1e-4, TRUE};
    bound[form->n_params + 1] = (MsBound){0.02, 0.95, FALSE};
  }
  if (form->kind == MS_ROW_EXCHANGE) bound_exchange(job, context, room == form->n_params, bound);
  return free_params;
}

/* Several starts on some of the rows, the best one refined on more of them. */
static double solve(Job *job, const MsBound *bound, const MsRow *row, guint n, gboolean refine, double *p) {
  double starts[MAX_STARTS][MS_MAX_PARAMS];
  int all = job->form->n_params + (job->cast ? 2 : 0);
  g_autofree MsRow *few = g_new(MsRow, MOST_TRIED);
  guint tried = MIN(n, (guint)MOST_TRIED);
  memcpy(starts, job->form->start, sizeof starts);
  for (int s = 0; s < MAX_STARTS; s++) starts[s][job->form->n_params] = 6e-6, starts[s][job->form->n_params + 1] = 0.4;
  for (guint i = 0; i < tried; i++) few[i] = row[(guint)((guint64)i * n / tried)];
  job->row = few;
  double loss =
      ms_solve(all, bound, tried, residual, job, job->form->n_starts, (const double(*)[MS_MAX_PARAMS])starts, p);
  if (!refine) return loss;
  memcpy(starts[0], p, sizeof *p * (size_t)all);
  job->row = row;
  return ms_solve(all, bound, n, residual, job, 1, (const double(*)[MS_MAX_PARAMS])starts, p);
}

/* --- grid ------------------------------------------------------------------------------------------------------ */
static MsGridPoint *grid_points(const Job *job, const MsRow *row, guint n) {
  MsGridPoint *point = g_new(MsGridPoint, n + 1);
  for (guint i = 0; i < n; i++) {
    MsPrediction p = ms_predict(job->curve, job->device, job->series, row[i].x);
    point[i] = (MsGridPoint){.log_ratio = log(row[i].time_s / p.time_s), .share = p.share};
    memcpy(point[i].at, p.at, sizeof p.at);
  }
  return point;
}

/* How the residual grid is fitted. */
typedef struct {
  double smooth; /* < 0: no grid */
  double finer;  /* times the nodes of the form along each axis */
  double reach;  /* of the loss */
} GridChoice;
#define GRIDS(finer, reach) \
  {0.3, finer, reach}, {1, finer, reach}, {3, finer, reach}, { 10, finer, reach }
static const GridChoice grids[] = {{-1, 1, 1},      GRIDS(1, 1),   GRIDS(1.5, 1), GRIDS(2, 1),   GRIDS(1, 2.5),
                                   GRIDS(1.5, 2.5), GRIDS(2, 2.5), GRIDS(1, 6),   GRIDS(1.5, 6), GRIDS(2, 6)};

/* The curve's grid anew. */
static void set_grid(Job *job, const GArray *rows, GridChoice how) {
  const Form *form = job->form;
  ms_grid_clear(&job->curve->grid);
  if (how.smooth < 0 || form->dims == 0) return;
  MsGrid grid;
  int nodes[4];
  for (int d = 0; d < form->dims; d++) nodes[d] = (int)(form->nodes[d] * how.finer);
  g_autofree MsGridPoint *point = grid_points(job, (const MsRow *)(void *)rows->data, rows->len);
  if (!ms_grid_axes(&grid, form->dims, form->axis, nodes, point, rows->len)) return;
  ms_grid_fit(&grid, point, rows->len, how.smooth, how.reach, 0);
  job->curve->grid = grid;
}

/* --- one curve ------------------------------------------------------------------------------------------------- */
typedef struct {
  const Form *form;
  GridChoice grid;
  double score;
} Choice;

static void copy_key(const MsSeries *series, MsCurve *curve) {
  const MsCurveKey *key = &series->key;
  curve->op = g_strdup(key->op), curve->dtype = g_strdup(key->dtype), curve->pass = g_strdup(key->pass);
  curve->level = g_strdup(key->level), curve->dispatcher = g_strdup(key->dispatcher);
  curve->head_dim = key->head_dim, curve->ranks = key->ranks;
  curve->sustained = 1;
  curve->provenance.cast_launch_s = curve->provenance.cast_bw_efficiency = NAN;
  curve->provenance.residual_median = curve->provenance.residual_p90 = NAN;
}

/* Kernels whose rows come in two speeds: an autotuner or a scheduler that took a slow one, a slow device among eight.
 */
static gboolean two_speeds(MsRowKind kind) { return kind == MS_ROW_LAYER || kind == MS_ROW_ATTENTION; }

/* What a figure above its goal costs more than one below. */
static double against(double figure, double goal) { return figure / goal + 10 * MAX(0, figure / goal - 0.9); }

/* median and p90 against the goals for such curves (docs/accuracy.md). */
static double score(MsRowKind kind, GArray *errors) {
  double *error = (double *)(void *)errors->data, median = ms_quantile(error, errors->len, 0.5),
         p90 = ms_quantile(error, errors->len, 0.9);
  if (errors->len == 0) return HUGE_VAL;
  return against(median, kind == MS_ROW_LAYER ? 0.05 : 0.04) + against(p90, kind == MS_ROW_LAYER       ? 0.16
                                                                            : kind == MS_ROW_ATTENTION ? 0.10
                                                                                                       : 0.11);
}

/* One form fitted to all but one fold: adds its errors there to those of every grid. */
static void try_fold(Job *job, const MsFitContext *context, int fold, GArray *const *errors) {
  g_autoptr(GArray) rows = pick(job->series, fold, MOST_ROWS);
  const GArray *all = job->series->rows;
  g_autofree double *error = g_new(double, all->len + 1);
  double p[MS_MAX_PARAMS];
  MsBound bound[MS_MAX_PARAMS];
  job->curve->form = job->form->form;
  set_bounds(job, context, rows->len, bound);
  solve(job, bound, (const MsRow *)(void *)rows->data, rows->len, FALSE, p);
  set_params(job, p);
  for (guint i = 0; i < G_N_ELEMENTS(grids); i++) {
    if (grids[i].reach > 1 && !two_speeds(job->form->kind)) break;
    set_grid(job, rows, grids[i]);
    if (i > 0 && job->curve->grid.dims == 0) continue;
    guint n = errors_of(job->curve, job->device, job->series, (const MsRow *)(void *)all->data, all->len, from_of(fold),
                        from_of(fold + 1), error);
    g_array_append_vals(errors[i], error, n);
  }
  ms_grid_clear(&job->curve->grid);
}

/* Keeps a form and a grid when they predict the rows of the folds better than the choice so far. */
static void try_form(Job *job, const MsFitContext *context, Choice *best) {
  static const double worth = 0.98; /* more nodes only if they lower the score to that */
  GArray *errors[G_N_ELEMENTS(grids)];
  int folds = two_speeds(job->form->kind) ? FOLDS : 1;
  for (guint i = 0; i < G_N_ELEMENTS(grids); i++) errors[i] = g_array_new(FALSE, FALSE, sizeof(double));
  for (int fold = 0; fold < folds; fold++) try_fold(job, context, fold, errors);
  for (guint i = 0; i < G_N_ELEMENTS(grids); i++) {
    double mine = score(job->form->kind, errors[i]);
    if (!best->form || mine < best->score * (grids[i].finer > best->grid.finer ? worth : 1))
      *best = (Choice){job->form, grids[i], mine};
    g_array_unref(errors[i]);
  }
}

static void round_curve(MsCurve *curve) {
  for (int i = 0; i < MS_CURVE_PARAMS; i++) curve->param[i] = ms_round_digits(curve->param[i], 5);
  curve->provenance.cast_launch_s = ms_round_digits(curve->provenance.cast_launch_s, 4);
  curve->provenance.cast_bw_efficiency = ms_round_digits(curve->provenance.cast_bw_efficiency, 4);
  ms_grid_round(&curve->grid);
}

static void set_residuals(const MsSeries *series, const MsDeviceRates *device, guint n_fitted, MsCurve *curve) {
  const GArray *rows = series->rows;
  g_autofree double *error = g_new(double, rows->len + 1);
  guint n = errors_of(curve, device, series, (const MsRow *)(void *)rows->data, rows->len, 0, MS_HELD_BACK, error);
  curve->provenance.n_fitted = n_fitted, curve->provenance.n_held_back = n;
  curve->provenance.residual_median = ms_round_digits(ms_quantile(error, n, 0.5), 3);
  curve->provenance.residual_p90 = ms_round_digits(ms_quantile(error, n, 0.9), 3);
}

static void finish(const MsSeries *series, const MsDeviceRates *device, guint n_fitted, const char *words,
                   GString *note, MsCurve *curve) {
  curve->provenance.form = g_strdup(words);
  curve->provenance.library = *series->library ? g_strdup(series->library) : NULL;
  set_residuals(series, device, n_fitted, curve);
  if (note->len > 2) g_string_truncate(note, note->len - 2); /* "; " */
  curve->provenance.note = note->len ? g_strdup(note->str) : NULL;
}

static void fit_lines(const MsSeries *series, const MsDeviceRates *device, MsCurve *curve) {
  g_autoptr(GArray) rows = pick(series, ALL, MOST_ROWS);
  g_autoptr(GString) note = g_string_new(NULL);
  curve->form = MS_FORM_SEGMENTS;
  ms_fit_segments(series, (const MsRow *)(void *)rows->data, rows->len, curve);
  g_autofree char *words = g_strdup_printf("least of %d lines alpha + bus bytes / bandwidth", curve->n_segments);
  if (rows->len < 12) g_string_append(note, "few points: fewer lines; ");
  finish(series, device, rows->len, words, note, curve);
}

/* The keys are split in forward kernels only: gradients of keys and values are sums over queries. */
static gboolean suits(const Form *form, const MsSeries *series) {
  return form->kind == series->kind && (form->form != MS_FORM_ATTENTION || form->n_params <= MS_A_PARTIALS ||
                                        g_strcmp0(series->key.pass, "backward") != 0);
}

static void fit_form(const MsSeries *series, const MsDeviceRates *device, const MsFitContext *context, MsCurve *curve) {
  g_autoptr(GArray) rows = pick(series, ALL, MOST_ROWS), solved = pick(series, ALL, MOST_SOLVED);
  g_autoptr(GString) note = g_string_new(NULL);
  Job job = {series, device, NULL, series->kind == MS_ROW_GEMM && context->launch_s >= 0, curve, NULL};
  Choice best = {0};
  MsBound bound[MS_MAX_PARAMS];
  double p[MS_MAX_PARAMS];
  for (size_t i = 0; i < G_N_ELEMENTS(forms); i++)
    if (suits(&forms[i], series)) job.form = &forms[i], try_form(&job, context, &best);
  job.form = best.form, curve->form = best.form->form;
  int n_free = set_bounds(&job, context, rows->len, bound);
  solve(&job, bound, (const MsRow *)(void *)solved->data, solved->len, TRUE, p);
  set_params(&job, p);
  set_grid(&job, rows, best.grid);
  round_curve(curve);
  if (n_free < best.form->n_params)
    g_string_append_printf(
        note, "few points: %d of %d parameters fitted, the others are those of the curve before, else typical values; ",
        n_free, best.form->n_params);
  if (job.cast)
    g_string_append(
        note, "rows hold the cast of their activations, kept apart in cast_*; launch is that of the bf16 kernel; ");
  g_autofree char *words = g_strconcat(best.form->words, curve->grid.dims ? ", times residual grid" : "", NULL);
  finish(series, device, rows->len, words, note, curve);
}

gboolean ms_fit_series(const MsSeries *series, const MsDeviceRates *device, const MsFitContext *context, MsCurve *curve,
                       char **why) {
  g_autoptr(GArray) rows = pick(series, ALL, 2);
  if (why) *why = NULL;
  if (rows->len < 2 || !(device->peak_flops > 0 && device->hbm_Bps > 0)) {
    if (why)
      *why = g_strdup_printf(
          "%s%s%s: %s", series->key.op, series->key.dtype ? " " : "", series->key.dtype ? series->key.dtype : "",
          rows->len < 2 ? "fewer than two points to fit" : "the profile lacks the peak or the memory bandwidth");
    return FALSE;
  }
  copy_key(series, curve);
  if (series->kind == MS_ROW_COLLECTIVE) fit_lines(series, device, curve);
  else fit_form(series, device, context, curve);
  return TRUE;
}

void ms_fit_curve_clear(MsCurve *curve) {
  MsProvenance *p = &curve->provenance;
  char *owned[] = {curve->op, curve->dtype, curve->pass, curve->level, curve->dispatcher, p->data,
                   p->form,   p->command,   p->date,     p->note,      p->library};
  for (size_t i = 0; i < G_N_ELEMENTS(owned); i++) g_free(owned[i]);
  ms_grid_clear(&curve->grid);
  *curve = (MsCurve){0};
}
