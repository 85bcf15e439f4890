/* src/exec/dump.c - gradients and updated parameters of the whole model: put together from the parts of all ranks,
 * written to a file, compared with one.
 *
 * Not part of a step: what is sent for it is not counted. */
#include "exec/dump_file.h"
#include "exec/state_priv.h"

#include "base/io.h"
#include "base/ranks.h"
#include <math.h>

#define NEGLIGIBLE                                                                                  \
  1e-3 /* of the largest gradient of the model: a key bias without rotary positions has none at all \
        */

typedef struct {
  const char *name;
  gint64 n, at;
} Matrix; /* of the whole model; at: first element in Whole */
typedef struct {
  GArray *matrix;      /* Matrix, in the order of the model */
  GHashTable *by_name; /* interned name -> index + 1 */
  gint64 n;
  double *gradient, *parameter, *count;
} Whole;

/* --- the catalogue: what one rank alone would hold ------------------------------------------------------------- */

static void add_matrices(Whole *w, const Instance *piece) {
  for (int i = 0; i < piece->n; i++)
    for (int s = 0; s < piece->param[i].n_segments; s++) {
      const Segment *g = &piece->param[i].segment[s];
      if (g_hash_table_contains(w->by_name, g->name)) continue;
      Matrix m = {g->name, g->model_rows * g->model_cols, w->n};
      g_array_append_val(w->matrix, m);
      g_hash_table_insert(w->by_name, (gpointer)g->name, GUINT_TO_POINTER(w->matrix->len));
      w->n += m.n;
    }
}

static void add_piece(Whole *w, const Exec *x, MsPieceKind kind, int layer, guint8 mixers) {
  const Cut alone = {1, 0, 1, 0, 1, 0};
  Instance piece = {.layer = layer, .mixers = mixers};
  ms_exec_piece_params(x->model, &piece, kind, &alone, x->work->padded_vocab, TRUE,
                       (int)MAX(x->model->seq_length_max, x->s));
  add_matrices(w, &piece);
  for (int i = 0; i < piece.n; i++) g_free(piece.param[i].segment);
  g_free(piece.param);
}

static Whole whole_new(const Exec *x) {
  const MsModel *m = x->model;
  Whole w = {.matrix = g_array_new(FALSE, FALSE, sizeof(Matrix)),
             .by_name = g_hash_table_new(g_direct_hash, g_direct_equal)};
  add_piece(&w, x, MS_PIECE_EMBEDDING, -1, 0);
  for (int i = 0; i < m->num_layers; i++) add_piece(&w, x, MS_PIECE_LAYER, i, ms_model_mixers(m, i));
  for (int i = 0; i < (m->mtp_use_repeated_layer ? MIN(1, m->mtp_num_layers) : m->mtp_num_layers); i++)
    add_piece(&w, x, MS_PIECE_MTP, m->num_layers + i, ms_model_mtp_mixers(m));
  add_piece(&w, x, MS_PIECE_HEAD, -1, 0);
  w.gradient = g_new0(double, w.n), w.parameter = g_new0(double, w.n), w.count = g_new0(double, w.n);
  return w;
}

static void whole_clear(Whole *w) {
  g_array_free(w->matrix, TRUE);
  g_hash_table_unref(w->by_name);
  g_free(w->gradient), g_free(w->parameter), g_free(w->count);
}

static const Matrix *matrix_of(const Whole *w, const char *name) {
  guint i = GPOINTER_TO_UINT(g_hash_table_lookup(w->by_name, name));
  return i > 0 ? &g_array_index(w->matrix, Matrix, i - 1) : NULL;
}

/* --- this rank's part ------------------------------------------------------------------------------------------ */

static gint64 index_in_model(const Segment *g, gint64 i) {
  return (g->row + i / g->cols) * g->model_cols + g->col + i % g->cols;
}

static void fill(Exec *x, const Param *p, gint64 from, gint64 n, gpointer data) {
  Whole *w = data;
  const Flat *flat = &x->flat[p->expert];
  gint64 start = p->at;
  for (int s = 0; s < p->n_segments; s++) {
    const Segment *g = &p->segment[s];
    const Matrix *m = matrix_of(w, g->name);
    gint64 size = g->rows * g->cols;
    for (gint64 i = MAX(from, start); i < MIN(from + n, start + size); i++) {
      gint64 to = m->at + index_in_model(g, i - start);
      w->gradient[to] += ms_exec_read(x, flat->grad, i), w->parameter[to] += ms_exec_read(x, flat->param, i),
          w->count[to] += 1;
    }
    start += size;
  }
}

/* Every element of the model is held, as updated, by exactly one rank that stands for it; else FALSE. */
static gboolean put_together(Exec *x, Whole *w, GError **error) {
  for (int i = 0; i < x->n_ranges; i++)
    if (x->range[i].counted) ms_exec_counted(x, x->range[i].kind, x->range[i].own, x->range[i].n_own, fill, w);
  ms_comm_world_sum(x->comm, w->gradient, w->n);
  ms_comm_world_sum(x->comm, w->parameter, w->n);
  ms_comm_world_sum(x->comm, w->count, w->n);
  for (gint64 i = 0; i < w->n; i++)
    if (w->count[i] != 1)
      return ms_error(error, MS_ERROR_NOTHING,
                      "%s: element %" G_GINT64_FORMAT " of all parameters is updated by %.0f ranks", x->scenario->file,
                      i, w->count[i]);
  return TRUE;
}

/* --- file ------------------------------------------------------------------------------------------------------ */

static gboolean write_dump(const Whole *w, const char *file, GError **error) {
  GString *out = ms_dump_text_new();
  for (guint i = 0; i < w->matrix->len; i++) {
    const Matrix *m = &g_array_index(w->matrix, Matrix, i);
    ms_dump_text_add(out, m->name, m->n, w->gradient + m->at, w->parameter + m->at);
  }
  gboolean ok = ms_write_file(file, out->str, (gssize)out->len, error);
  g_string_free(out, TRUE);
  return ok;
}

/* Against the largest element of the matrix, but at least `floor`: what is zero but for rounding is not compared with
 * itself. NaN stays. */
static double difference(const double *a, const char *elements, gint64 n, double floor) {
  double apart = 0, most = floor;
  for (gint64 i = 0; i < n; i++) {
    double b = ms_dump_at(elements, i), d = fabs(a[i] - b);
    if (isnan(d)) return NAN;
    apart = MAX(apart, d), most = MAX(most, fabs(b));
  }
  return apart == 0 ? 0 : most > 0 ? apart / most : INFINITY;
}

/* NaN is worse than any number. */
static void worst(double d, const char *name, double *most, char **where) {
  if (*where && (isnan(*most) || d <= *most)) return;
  *most = d;
  g_free(*where);
  *where = g_strdup(name);
}

static gboolean compare(const Whole *w, const char *file, MsExecResult *r, GError **error) {
  g_autoptr(MsDump) dump = ms_dump_load(file, error);
  if (!dump) return FALSE;
  double largest = 0;
  for (gint64 i = 0; i < w->n; i++) largest = MAX(largest, fabs(w->gradient[i]));
  r->gradient_difference = r->parameter_difference = 0;
  for (guint i = 0; i < dump->matrix->len; i++) {
    const MsDumpMatrix *theirs = dump->matrix->pdata[i];
    const Matrix *m = matrix_of(w, g_intern_string(theirs->name));
    if (!m)
      return ms_input_error(error, file, 0, NULL,
                            "matrix %s is not one of this model: the dump must come from a run of the same model",
                            theirs->name);
    if (m->n != theirs->n)
      return ms_input_error(error, file, 0, NULL,
                            "matrix %s has %" G_GINT64_FORMAT " elements, must have %" G_GINT64_FORMAT
                            ": the dump must come from a run of the same model",
                            theirs->name, theirs->n, m->n);
    worst(difference(w->gradient + m->at, theirs->gradient, m->n, NEGLIGIBLE * largest), m->name,
          &r->gradient_difference, &r->gradient_worst);
    worst(difference(w->parameter + m->at, theirs->parameter, m->n, 0), m->name, &r->parameter_difference,
          &r->parameter_worst);
  }
  if (dump->matrix->len != w->matrix->len)
    return ms_input_error(error, file, 0, NULL, "has %u matrices, the model %u", dump->matrix->len, w->matrix->len);
  return TRUE;
}

gboolean ms_exec_dump(Exec *x, MsExecResult *r, GError **error) {
  const MsExecOptions *o = x->options;
  if (!o->dump && !o->compare && !o->probe) return TRUE;
  Whole w = whole_new(x);
  gboolean ok = put_together(x, &w, error);
  if (ok && o->probe) {
    const Matrix *m = matrix_of(&w, g_intern_string(o->probe));
    r->probe_gradient = m && o->probe_at < m->n ? w.gradient[m->at + o->probe_at] : NAN;
  }
  if (ok && o->dump && x->rank == 0) ok = write_dump(&w, o->dump, error);
  if (ok && o->compare) ok = compare(&w, o->compare, r, error);
  whole_clear(&w);
  return !ms_ranks_any(!ok);
}
