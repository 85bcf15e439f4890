/* src/describe/curve.c - the fitted curves that a machine carries: their tables, parameters, segments and residual
 * grids. */
#include "describe/curve.h"

#include "describe/enums.h"
#include "describe/rows.h"

#include <math.h>
#include <string.h>

#define GRID_MAX   1000000 /* numbers of one residual grid */
#define AXIS_MAX   4096    /* of one of its axes */
#define CURVES_MAX 4096

const char *const ms_curve_param_words[MS_N_FORMS][MS_CURVE_PARAMS + 1] = {
    [MS_FORM_GEMM_SATURATING] = {"efficiency", "bw_efficiency", "launch_s", "m_half", "n_half", "k_half"},
    [MS_FORM_GEMM_TILED] = {"efficiency", "bw_efficiency", "launch_s", "wave_s", "wave_hardness",
                            "small_tile_efficiency", "tile_m", "tile_n", "pad_m"},
    [MS_FORM_GROUPED_GEMM] = {"efficiency", "bw_efficiency_weights", "launch_s", "te_half", "i_half", "per_expert_s",
                              "bw_efficiency_act"},
    [MS_FORM_ATTENTION] = {"efficiency", "bw_efficiency", "launch_s", "s_half", "critical_path_efficiency",
                           "split_partials"},
    [MS_FORM_SEGMENTS] = {NULL},
    [MS_FORM_DISPATCH] = {"alpha_s", "per_sm_Bps", "link_Bps", "sharpness", "copy_sm_s", "token_sm_s", "token_rows",
                          "fill_tokens"},
    [MS_FORM_BANDWIDTH] = {"efficiency", "launch_s"},
    [MS_FORM_TERMS] = {"launch_s", "group_s", "m_s", "mn_s", "mk_s", "nk_s", "flop_s", "byte_s", "far_byte_s",
                       "cache_B"},
};

int ms_curve_required(MsCurveForm form) {
  if (form == MS_FORM_DISPATCH)
    return 3; /* a hard minimum, and nothing beside the rows, where rows of one shape only were measured */
  if (form == MS_FORM_GEMM_TILED) return 6; /* the best of five tiles, unless the library has one */
  if (form == MS_FORM_ATTENTION) return 5;  /* a kernel that never splits the keys */
  return form == MS_FORM_TERMS ? 0 : MS_CURVE_PARAMS;
}

/* --- pieces of JSON ----------------------------------------------------------------------------------------------- */
static gboolean get_number(const MsJson *doc, JsonNode *node, const char *path, double lo, double hi, double *value,
                           GError **error) {
  MsField field = {.key = "number", .type = MS_T_F64, .lo = lo, .hi = hi};
  return ms_field_set(&field, doc, node, path, value, error);
}

/* The value of most elements of most lists; FALSE: get_number has to look at it, or to say what is wrong with it. */
static gboolean plain_number(JsonNode *node, double lo, double hi, double *value) {
  if (!ms_json_is(node, G_TYPE_DOUBLE)) return FALSE;
  *value = json_node_get_double(node);
  return *value >= lo && *value <= hi;
}

/* The same of a list at the cursor. */
static gboolean take_numbers(MsJsonCursor *cursor, double lo, double hi, guint max, double **values, int *n) {
  guint length;
  const double *from = ms_json_take_numbers(cursor, &length);
  if (!from || length > max) return FALSE;
  for (guint i = 0; i < length; i++)
    if (!(from[i] >= lo && from[i] <= hi)) return FALSE;
  *values = g_atomic_rc_box_alloc(length * sizeof *from);
  memcpy(*values, from, length * sizeof *from);
  *n = (int)length;
  return TRUE;
}

static gboolean check_length(const MsJson *doc, const char *path, guint length, guint max, GError **error) {
  return (length >= 1 && length <= max) ||
         ms_json_error(doc, path, error, "holds %u numbers, must hold 1 to %u", length, max);
}

/* A list of at most `max` numbers in [lo, hi]; *values is a new atomic box. */
static gboolean get_numbers(const MsJson *doc, JsonNode *node, const char *path, double lo, double hi, guint max,
                            double **values, int *n, GError **error) {
  if (!node || !JSON_NODE_HOLDS_ARRAY(node)) return ms_json_error(doc, path, error, "must be a list of numbers");
  JsonArray *array = json_node_get_array(node);
  guint length = json_array_get_length(array);
  if (!check_length(doc, path, length, max, error)) return FALSE;
  g_clear_pointer(values, g_atomic_rc_box_release);
  *values = g_atomic_rc_box_alloc0(length * sizeof **values);
  *n = (int)length;
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < length; i++) {
    JsonNode *element = json_array_get_element(array, i);
    if (plain_number(element, lo, hi, *values + i)) continue;
    g_autofree char *item = g_strdup_printf("%s[%u]", path, i);
    ok = get_number(doc, element, item, lo, hi, *values + i, error);
  }
  return ok;
}

/* --- curve: params ------------------------------------------------------------------------------------------------ */
static int param_index(MsCurveForm form, const char *name) {
  for (int i = 0; ms_curve_param_words[form][i]; i++)
    if (strcmp(ms_curve_param_words[form][i], name) == 0) return i;
  return -1;
}

static gboolean set_param(const MsJson *doc, const char *name, JsonNode *node, const char *path, MsCurve *curve,
                          GError **error) {
  const char *const *known = ms_curve_param_words[curve->form];
  char *full = g_strconcat(path, ".", name, NULL);
  int index = param_index(curve->form, name);
  const char *near = index < 0 ? ms_nearest(name, known) : NULL;
  gboolean ok = FALSE;
  if (index >= 0) ok = get_number(doc, node, full, 0, 1e18, &curve->param[index], error);
  else if (near) ms_json_error(doc, full, error, "unknown parameter, did you mean \"%s\"?", near);
  else ms_json_error(doc, full, error, "is no parameter of the form %s", ms_curve_form_words[curve->form]);
  g_free(full);
  return ok;
}

/* The row has offset 0: it needs the form, which stands before it in the table. */
static gboolean params_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsCurve *curve = member;
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);)
    if (!set_param(doc, at.key, at.value, path, curve, error)) return FALSE;
  return TRUE;
}

static gboolean params_take(MsJsonCursor *cursor, void *member) {
  MsCurve *curve = member;
  const char *const *known = ms_curve_param_words[curve->form];
  gboolean more, integral;
  if (!ms_json_take_open(cursor, '{', &more)) return FALSE;
  for (int i = -1; more;) {
    MsJsonWord name;
    double value;
    if (!ms_json_take_key(cursor, &name)) return FALSE;
    for (i++; known[i] && !ms_json_word_is(&name, known[i]);) i++; /* in their order */
    if (!known[i] || !ms_json_take_number(cursor, &value, &integral) || !(value >= 0 && value <= 1e18) ||
        !ms_json_take_next(cursor, '{', &more))
      return FALSE;
    curve->param[i] = value;
  }
  return TRUE;
}

static void params_print(MsJsonOut *out, const char *key, const void *member) {
  const MsCurve *curve = member;
  ms_json_out_object(out, key);
  for (int i = 0; ms_curve_param_words[curve->form][i]; i++)
    ms_json_out_double(out, ms_curve_param_words[curve->form][i], curve->param[i]);
  ms_json_out_end(out);
}

/* --- curve: segments ---------------------------------------------------------------------------------------------- */
static gboolean segment_parse(const MsJson *doc, JsonNode *node, const char *path, MsCurve *curve, GError **error) {
  double *pair = NULL;
  int n = 0;
  gboolean ok = get_numbers(doc, node, path, 0, 1e18, 16, &pair, &n, error);
  if (ok && n != 2) ok = ms_json_error(doc, path, error, "must be [alpha_s, Bps]");
  if (ok && pair[1] <= 0) ok = ms_json_error(doc, path, error, "has a bandwidth of 0, must be above 0 Bps");
  if (ok) {
    curve->segment_alpha_s[curve->n_segments] = pair[0];
    curve->segment_Bps[curve->n_segments++] = pair[1];
  }
  g_clear_pointer(&pair, g_atomic_rc_box_release);
  return ok;
}

static gboolean segments_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsCurve *curve = member;
  guint max = G_N_ELEMENTS(curve->segment_Bps);
  JsonArray *array = JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
  guint length = array ? json_array_get_length(array) : 0;
  if (!array || (length > 0 && !isnan(ms_json_number(json_array_get_element(array, 0)))))
    return ms_json_error(doc, path, error, "must be a list of [alpha_s, Bps]");
  if (length > max) return ms_json_error(doc, path, error, "holds %u lines, must hold at most %u", length, max);
  curve->n_segments = 0;
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < length; i++) {
    char *item = g_strdup_printf("%s[%u]", path, i);
    ok = segment_parse(doc, json_array_get_element(array, i), item, curve, error);
    g_free(item);
  }
  return ok;
}

static void segments_print(MsJsonOut *out, const char *key, const void *member) {
  const MsCurve *curve = member;
  ms_json_out_array(out, key);
  for (int i = 0; i < curve->n_segments; i++) {
    ms_json_out_array(out, NULL);
    ms_json_out_double(out, NULL, curve->segment_alpha_s[i]);
    ms_json_out_double(out, NULL, curve->segment_Bps[i]);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

/* --- curve: grid -------------------------------------------------------------------------------------------------- */
void ms_grid_clear(MsGrid *grid) {
  for (guint d = 0; d < G_N_ELEMENTS(grid->n); d++) {
    g_clear_pointer(&grid->name[d], g_ref_string_release);
    g_clear_pointer(&grid->axis[d], g_atomic_rc_box_release);
    g_clear_pointer(&grid->log2_axis[d], g_atomic_rc_box_release);
  }
  g_clear_pointer(&grid->log_ratio, g_atomic_rc_box_release);
  *grid = (MsGrid){0};
}

static gint64 grid_size(const MsGrid *grid) {
  gint64 size = grid->dims > 0;
  for (int d = 0; d < grid->dims; d++) size *= grid->n[d];
  return size;
}

static void grid_copy(const MsGrid *from, MsGrid *to) {
  *to = *from;
  for (int d = 0; d < from->dims; d++) {
    g_ref_string_acquire(to->name[d]);
    g_atomic_rc_box_acquire(to->axis[d]);
    g_atomic_rc_box_acquire(to->log2_axis[d]);
  }
  if (to->log_ratio) g_atomic_rc_box_acquire(to->log_ratio);
}

static gboolean ascending(const MsGrid *grid, int d) {
  for (int i = 1; i < grid->n[d]; i++)
    if (grid->axis[d][i] <= grid->axis[d][i - 1]) return FALSE;
  return TRUE;
}

/* The next axis has its numbers; takes the reference to `name`. */
static void add_axis(MsGrid *grid, char *name) {
  int d = grid->dims++;
  grid->name[d] = name;
  grid->log2_axis[d] = g_atomic_rc_box_alloc((gsize)grid->n[d] * sizeof(double));
  for (int i = 0; i < grid->n[d]; i++) grid->log2_axis[d][i] = log2(grid->axis[d][i]);
}

static gboolean axis_parse(const MsJson *doc, const char *name, JsonNode *node, const char *path, MsGrid *grid,
                           GError **error) {
  int d = grid->dims;
  if (d >= (int)G_N_ELEMENTS(grid->n))
    return ms_json_error(doc, path, error, "has more than %u axes", (guint)G_N_ELEMENTS(grid->n));
  char *full = g_strconcat(path, ".", name, NULL);
  gboolean ok = get_numbers(doc, node, full, 1e-300, 1e18, AXIS_MAX, &grid->axis[d], &grid->n[d], error);
  if (ok && !ascending(grid, d)) ok = ms_json_error(doc, full, error, "must be ascending");
  g_free(full);
  if (ok) add_axis(grid, g_ref_string_new(name));
  return ok;
}

static gboolean axes_parse(const MsJson *doc, JsonNode *node, const char *path, MsGrid *grid, GError **error) {
  if (!node || !JSON_NODE_HOLDS_OBJECT(node)) return ms_json_error(doc, path, error, "must be an object of lists");
  for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);)
    if (!axis_parse(doc, at.key, at.value, path, grid, error)) return FALSE;
  return grid->dims > 0 ||
         ms_json_error(doc, path, error, "is empty, must hold 1 to %u axes", (guint)G_N_ELEMENTS(grid->n));
}

static gboolean ratios_parse(const MsJson *doc, JsonNode *node, const char *path, MsGrid *grid, GError **error) {
  int n = 0;
  gint64 size = grid_size(grid);
  if (size > GRID_MAX) return ms_json_error(doc, path, error, "the axes span more than %d points", GRID_MAX);
  if (!get_numbers(doc, node, path, -20, 20, GRID_MAX, &grid->log_ratio, &n, error)) return FALSE;
  return n == size || ms_json_error(doc, path, error, "holds %d numbers, must hold %d as the axes span", n, (int)size);
}

static gboolean grid_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsGrid *grid = member;
  ms_grid_clear(grid);
  if (JSON_NODE_HOLDS_NULL(node)) return TRUE;
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  JsonObject *json = json_node_get_object(node);
  if (json_object_get_size(json) != 2) return ms_json_error(doc, path, error, "must hold \"axes\" and \"log_ratio\"");
  char *axes = g_strconcat(path, ".axes", NULL), *ratios = g_strconcat(path, ".log_ratio", NULL);
  gboolean ok = axes_parse(doc, json_object_get_member(json, "axes"), axes, grid, error) &&
                ratios_parse(doc, json_object_get_member(json, "log_ratio"), ratios, grid, error);
  g_free(axes);
  g_free(ratios);
  if (!ok) ms_grid_clear(grid);
  return ok;
}

static gboolean axes_take(MsJsonCursor *cursor, MsGrid *grid) {
  gboolean more;
  if (!ms_json_take_open(cursor, '{', &more) || !more) return FALSE;
  while (more) {
    MsJsonWord name;
    int d = grid->dims;
    if (d >= (int)G_N_ELEMENTS(grid->n) || !ms_json_take_key(cursor, &name) ||
        !take_numbers(cursor, 1e-300, 1e18, AXIS_MAX, &grid->axis[d], &grid->n[d]) || !ascending(grid, d))
      return FALSE;
    add_axis(grid, g_ref_string_new_len(name.text, (gssize)name.length));
    for (int i = 0; i < d; i++)
      if (strcmp(grid->name[i], grid->name[d]) == 0) return FALSE;
    if (!ms_json_take_next(cursor, '{', &more)) return FALSE;
  }
  return TRUE;
}

static gboolean grid_take(MsJsonCursor *cursor, void *member) {
  MsGrid *grid = member;
  MsJsonWord key;
  gboolean more;
  int n;
  if (ms_json_take_null(cursor)) return TRUE;
  return ms_json_take_open(cursor, '{', &more) && more && ms_json_take_key(cursor, &key) &&
         ms_json_word_is(&key, "axes") && axes_take(cursor, grid) && ms_json_take_next(cursor, '{', &more) && more &&
         ms_json_take_key(cursor, &key) && ms_json_word_is(&key, "log_ratio") &&
         take_numbers(cursor, -20, 20, GRID_MAX, &grid->log_ratio, &n) && n == grid_size(grid) &&
         ms_json_take_next(cursor, '{', &more) && !more;
}

static void print_numbers(MsJsonOut *out, const char *key, const double *values, gint64 n) {
  ms_json_out_array(out, key);
  for (gint64 i = 0; i < n; i++) ms_json_out_double(out, NULL, values[i]);
  ms_json_out_end(out);
}

static void grid_print(MsJsonOut *out, const char *key, const void *member) {
  const MsGrid *grid = member;
  if (grid->dims == 0) {
    ms_json_out_null(out, key);
    return;
  }
  ms_json_out_object(out, key);
  ms_json_out_object(out, "axes");
  for (int d = 0; d < grid->dims; d++) print_numbers(out, grid->name[d], grid->axis[d], grid->n[d]);
  ms_json_out_end(out);
  print_numbers(out, "log_ratio", grid->log_ratio, grid_size(grid));
  ms_json_out_end(out);
}

/* --- curves ------------------------------------------------------------------------------------------------------- */
#define S MsProvenance
static const MsFieldTable provenance_table = MS_FIELD_TABLE(
    "hardware.curves.provenance", "where a curve comes from", MS_STRING(S, data, MS_NULLABLE, "which measurements"),
    MS_STRING(S, form, MS_NULLABLE, "the form in words"),
    MS_STRING(S, command, MS_NULLABLE, "the command that made it"), MS_STRING(S, date, MS_NULLABLE, "when"),
    MS_STRING(S, note, MS_NULLABLE, "anything else"),
    MS_STRING(S, lent_by, MS_NULLABLE, "machine whose curve this is, scaled to the peaks of this one; null = its own"),
    MS_STRING(S, library, MS_NULLABLE, "whose rows were fitted; --evaluate compares with rows of this library"),
    MS_F64(S, cast_launch_s, "s", 0, 1, NULL, MS_NULLABLE,
           "launch of the cast that measured GEMM rows include and the curve does not"),
    MS_F64(S, cast_bw_efficiency, "", 0, 10, NULL, MS_NULLABLE,
           "share of HBM bandwidth of that cast, (2 + w) m k bytes"),
    MS_F64(S, n_fitted, "", 0, 1e12, NULL, MS_NULLABLE, "points that were fitted"),
    MS_F64(S, n_held_back, "", 0, 1e12, NULL, MS_NULLABLE, "points that were held back"),
    MS_F64(S, residual_median, "", 0, 1e6, NULL, MS_NULLABLE, "median relative error on points held back"),
    MS_F64(S, residual_p90, "", 0, 1e6, NULL, MS_NULLABLE, "90 % quantile of it"));
#undef S

const MsFieldTable ms_curve_table = MS_FIELD_TABLE(
    "hardware.curves", "one fitted curve",
    MS_STRING(MsCurve, op, MS_REQUIRED,
              "gemm, grouped_gemm, attention, a collective, dispatch, combine or a memory-bound operator"),
    MS_STRING(MsCurve, dtype, MS_NULLABLE, "bf16, fp16, fp32, fp64, fp8, fp8-block, mxfp8, nvfp4; null = any"),
    MS_STRING(MsCurve, pass, MS_NULLABLE, "forward, dgrad, wgrad, backward; null = any"),
    MS_STRING(MsCurve, level, MS_NULLABLE, "nvlink or network, for collectives; null = any"),
    MS_STRING(MsCurve, dispatcher, MS_NULLABLE, "for dispatch and combine; null = any"),
    MS_STRING(MsCurve, library, MS_NULLABLE, "for grouped_gemm, one of options.grouped_gemm_library; null = any"),
    MS_INT(MsCurve, head_dim, 0, 65536, "0", MS_NULLABLE, "for attention; 0 = any"),
    MS_INT(MsCurve, ranks, 0, 1 << 20, "0", MS_NULLABLE, "group size that was measured; 0 = any"),
    MS_ENUM(MsCurve, form, ms_curve_form_words, NULL, MS_REQUIRED, "formula"),
    {MS_CUSTOM(params, "", 0, "object of the formula's parameters"), .parse = params_parse, .take = params_take,
     .print = params_print},
    MS_F64(MsCurve, sustained, "", 0.01, 10, "1", MS_NULLABLE,
           "rate in long training over that of the measurements; multiplies the efficiency"),
    {MS_CUSTOM(segments, "s, Bps", 0, "list of up to four [alpha_s, Bps] of the form segments"),
     .parse = segments_parse, .print = segments_print},
    {MS_ROW(MsCurve, grid, MS_T_CUSTOM, "", NULL, 0,
            "residual {\"axes\": {NAME: [...]}, \"log_ratio\": [...]}, first axis slowest; null = none"),
     .parse = grid_parse, .take = grid_take, .print = grid_print},
    MS_OBJECT(MsCurve, provenance, &provenance_table, MS_NULLABLE, "where it comes from"));

static void curves_clear(gpointer box);

static void curve_clear(MsCurve *curve) {
  if (curve->lender) {
    if (curve->own_note) g_free(curve->provenance.note);
    g_atomic_rc_box_release_full((gpointer)curve->lender, curves_clear);
    return;
  }
  ms_fields_clear(&ms_curve_table, curve);
  ms_grid_clear(&curve->grid);
}

gboolean ms_curve_is_own(const MsCurve *curve) {
  return !curve->of_base && !curve->provenance.lent_by && curve->provenance.n_fitted > 0;
}

void ms_curve_copy(const MsCurve *from, MsCurve *to) {
  *to = *from;
  to->lender = NULL, to->own_note = FALSE;
  ms_fields_copy(&ms_curve_table, from, to);
  grid_copy(&from->grid, &to->grid);
}

void ms_curve_take_note(MsCurve *curve, char *note) {
  if (!curve->lender || curve->own_note) g_free(curve->provenance.note);
  curve->provenance.note = note, curve->own_note = TRUE;
}

/* Of a curve in `box`. */
static void lend(const MsCurve *box, const MsCurve *from, MsCurve *to) {
  *to = *from;
  to->lender = g_atomic_rc_box_acquire((gpointer)(from->lender && !from->own_note ? from->lender : box));
  to->own_note = FALSE;
}

static MsCurve *curves_new(gsize n) { return g_atomic_rc_box_alloc0((n + 1) * sizeof(MsCurve)); }

static void curves_clear(gpointer box) {
  MsCurve *curves = box;
  for (gsize i = 0; i < g_atomic_rc_box_get_size(box) / sizeof *curves; i++) curve_clear(&curves[i]);
}

void ms_curves_free(MsHardware *hardware) {
  if (hardware->curves) g_atomic_rc_box_release_full((gpointer)hardware->curves, curves_clear);
  hardware->curves = NULL, hardware->num_curves = 0;
}

MsCurve *ms_curves_own(MsHardware *hardware, int more) {
  int n = hardware->num_curves;
  MsCurve *own = g_atomic_rc_box_alloc((gsize)(n + more + 1) * sizeof *own);
  memset(own + n, 0, (gsize)(more + 1) * sizeof *own);
  for (int i = 0; i < n; i++) lend(hardware->curves, &hardware->curves[i], &own[i]);
  ms_curves_free(hardware);
  hardware->curves = own, hardware->num_curves = n;
  return own;
}

static gboolean check_word(const MsJson *doc, const char *path, const char *key, const char *word,
                           const char *const *known, GError **error) {
  if (!word || g_strv_contains(known, word)) return TRUE;
  char *full = g_strconcat(path, ".", key, NULL), *all = g_strjoinv(", ", (char **)known);
  ms_json_error(doc, full, error, "unknown word \"%s\", must be one of %s", word, all);
  g_free(full);
  g_free(all);
  return FALSE;
}

/* NaN: it was not given. What need not be is 0 then. */
static gboolean check_params(const MsJson *doc, const char *path, MsCurve *curve, GError **error) {
  for (int i = 0; i < MS_CURVE_PARAMS; i++) {
    const char *name = ms_curve_param_words[curve->form][i];
    if (!isnan(curve->param[i])) continue;
    curve->param[i] = 0;
    if (!name || i >= ms_curve_required(curve->form)) continue;
    char *full = g_strconcat(path, ".params.", name, NULL);
    ms_json_error(doc, full, error, "required parameter of the form %s is missing", ms_curve_form_words[curve->form]);
    g_free(full);
    return FALSE;
  }
  return TRUE;
}

static gboolean check_curve(const MsJson *doc, const char *path, MsCurve *curve, GError **error) {
  static const char *const dtypes[] = {"bf16", "fp16", "fp32", "fp64", "fp8", "fp8-block", "mxfp8", "nvfp4", NULL};
  static const char *const passes[] = {"forward", "dgrad", "wgrad", "backward", NULL};
  static const char *const levels[] = {"nvlink", "network", NULL};
  if (!ms_curve_check_op(doc, path, curve, error) || !check_word(doc, path, "dtype", curve->dtype, dtypes, error) ||
      !check_word(doc, path, "pass", curve->pass, passes, error) ||
      !check_word(doc, path, "level", curve->level, levels, error) ||
      !check_word(doc, path, "dispatcher", curve->dispatcher, ms_dispatcher_words, error) ||
      !check_word(doc, path, "library", curve->library, ms_grouped_library_words, error) ||
      !check_params(doc, path, curve, error))
    return FALSE;
  if ((curve->form == MS_FORM_SEGMENTS) == (curve->n_segments > 0)) return TRUE;
  return ms_json_error(doc, path, error,
                       curve->n_segments ? "has segments, which only the form segments takes"
                                         : "must have segments, a list of [alpha_s, Bps]");
}

static void curve_defaults(MsCurve *curve) {
  ms_fields_defaults(&ms_curve_table, curve);
  for (int i = 0; i < MS_CURVE_PARAMS; i++) curve->param[i] = NAN;
}

/* On failure the curve is valid for curve_clear. */
static gboolean curve_load(const MsJson *doc, JsonNode *node, const char *path, MsCurve *curve, GError **error) {
  curve_defaults(curve);
  return ms_json_need_object(doc, node, path, error) &&
         ms_fields_load(&ms_curve_table, doc, json_node_get_object(node), path, TRUE, curve, error) &&
         check_curve(doc, path, curve, error);
}

gboolean ms_curves_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsHardware *hardware = member;
  if (!JSON_NODE_HOLDS_ARRAY(node)) return ms_json_error(doc, path, error, "must be a list of curves");
  JsonArray *array = json_node_get_array(node);
  guint length = json_array_get_length(array);
  if (length > CURVES_MAX) return ms_json_error(doc, path, error, "holds more than %d curves", CURVES_MAX);
  ms_curves_free(hardware);
  MsCurve *curves = curves_new(length);
  hardware->curves = curves;
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < length; i++) {
    char *item = g_strdup_printf("%s[%u]", path, i);
    hardware->num_curves++;
    ok = curve_load(doc, json_array_get_element(array, i), item, &curves[i], error);
    g_free(item);
  }
  return ok;
}

gboolean ms_curves_take(MsJsonCursor *cursor, void *member) {
  MsHardware *hardware = member;
  g_autoptr(GArray) list = g_array_new(FALSE, TRUE, sizeof(MsCurve));
  gboolean more, ok = ms_json_take_open(cursor, '[', &more);
  while (ok && more) {
    g_array_set_size(list, list->len + 1);
    MsCurve *curve = &g_array_index(list, MsCurve, list->len - 1);
    curve_defaults(curve);
    ok = list->len <= CURVES_MAX && ms_fields_take(&ms_curve_table, cursor, curve) &&
         check_curve(NULL, "", curve, NULL) && ms_json_take_next(cursor, '[', &more);
  }
  MsCurve *curves = curves_new(list->len);
  if (list->len > 0) memcpy(curves, list->data, list->len * sizeof *curves);
  hardware->curves = curves, hardware->num_curves = (int)list->len;
  return ok;
}

void ms_curves_print(MsJsonOut *out, const char *key, const void *member) {
  const MsHardware *hardware = member;
  ms_json_out_array(out, key);
  for (int i = 0; i < hardware->num_curves; i++)
    ms_fields_object(&ms_curve_table, &hardware->curves[i], FALSE, NULL, out);
  ms_json_out_end(out);
}
