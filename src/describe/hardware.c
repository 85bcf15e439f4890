/* src/describe/hardware.c - machines: their table, the curves they carry, and curves borrowed from another
 * machine. */
#include "describe/hardware.h"

#include "base/err.h"
#include "describe/rows.h"
#include "describe/scenario.h"

#include <math.h>
#include <string.h>

#define GRID_MAX   1000000 /* numbers of one residual grid */
#define CURVES_MAX 4096

const char *const ms_curve_form_words[] = {"gemm-saturating", "gemm-tiled", "grouped-gemm", "attention",
                                           "segments",        "dispatch",   "bandwidth",    "terms",     NULL};

const char *const ms_curve_param_words[MS_N_FORMS][MS_CURVE_PARAMS + 1] = {
    [MS_FORM_GEMM_SATURATING] = {"efficiency", "bw_efficiency", "launch_s", "m_half", "n_half", "k_half"},
    [MS_FORM_GEMM_TILED] = {"efficiency", "bw_efficiency", "launch_s", "wave_s", "wave_hardness",
                            "small_tile_efficiency", "tile_m", "tile_n", "pad_m"},
    [MS_FORM_GROUPED_GEMM] = {"efficiency", "bw_efficiency_weights", "launch_s", "te_half", "i_half",
                              "per_expert_s", "bw_efficiency_act"},
    [MS_FORM_ATTENTION] = {"efficiency", "bw_efficiency", "launch_s", "s_half", "critical_path_efficiency", "split_partials"},
    [MS_FORM_SEGMENTS] = {NULL},
    [MS_FORM_DISPATCH] = {"alpha_s", "per_sm_Bps", "link_Bps", "sharpness", "copy_sm_s", "token_sm_s", "token_rows", "fill_tokens"},
    [MS_FORM_BANDWIDTH] = {"efficiency", "launch_s"},
    [MS_FORM_TERMS] = {"launch_s", "group_s", "m_s", "mn_s", "mk_s", "nk_s", "flop_s", "byte_s", "far_byte_s", "cache_B"},
};

int ms_curve_required(MsCurveForm form) {
  if (form == MS_FORM_DISPATCH) return 3; /* a hard minimum, and nothing beside the rows, where rows of one shape only were measured */
  if (form == MS_FORM_GEMM_TILED) return 6; /* the best of five tiles, unless the library has one */
  if (form == MS_FORM_ATTENTION) return 5; /* a kernel that never splits the keys */
  return form == MS_FORM_TERMS ? 0 : MS_CURVE_PARAMS;
}

/* --- pieces of JSON
 * -------------------------------------------------------------------------------------------------- */
static gboolean get_number(const MsJson *doc, JsonNode *node, const char *path, double lo, double hi,
                           double *value, GError **error) {
  MsField field = {.key = "number", .type = MS_T_F64, .lo = lo, .hi = hi};
  return ms_field_set(&field, doc, node, path, value, error);
}

/* A list of at most `max` numbers in [lo, hi]; *values is new. */
static gboolean get_numbers(const MsJson *doc, JsonNode *node, const char *path, double lo, double hi,
                            guint max, double **values, int *n, GError **error) {
  if (!node || !JSON_NODE_HOLDS_ARRAY(node))
    return ms_json_error(doc, path, error, "must be a list of numbers");
  JsonArray *array = json_node_get_array(node);
  guint length = json_array_get_length(array);
  if (length < 1 || length > max)
    return ms_json_error(doc, path, error, "holds %u numbers, must hold 1 to %u", length, max);
  g_free(*values);
  *values = g_new0(double, length);
  *n = (int)length;
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < length; i++) {
    char *item = g_strdup_printf("%s[%u]", path, i);
    ok = get_number(doc, json_array_get_element(array, i), item, lo, hi, *values + i, error);
    g_free(item);
  }
  return ok;
}

static gboolean need_object(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  return JSON_NODE_HOLDS_OBJECT(node) || ms_json_error(doc, path, error, "must be an object");
}

/* --- curve: params
 * --------------------------------------------------------------------------------------------------- */
static int param_index(MsCurveForm form, const char *name) {
  for (int i = 0; ms_curve_param_words[form][i]; i++)
    if (strcmp(ms_curve_param_words[form][i], name) == 0) return i;
  return -1;
}

static gboolean set_param(const MsJson *doc, const char *name, JsonNode *node, const char *path,
                          MsCurve *curve, GError **error) {
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
static gboolean params_parse(const MsJson *doc, JsonNode *node, const char *path, void *member,
                             GError **error) {
  MsCurve *curve = member;
  if (!need_object(doc, node, path, error)) return FALSE;
  JsonObjectIter iter;
  const char *name;
  JsonNode *value;
  json_object_iter_init_ordered(&iter, json_node_get_object(node));
  while (json_object_iter_next_ordered(&iter, &name, &value))
    if (!set_param(doc, name, value, path, curve, error)) return FALSE;
  return TRUE;
}

static void params_print(MsJsonOut *out, const char *key, const void *member) {
  const MsCurve *curve = member;
  ms_json_out_object(out, key);
  for (int i = 0; ms_curve_param_words[curve->form][i]; i++)
    ms_json_out_double(out, ms_curve_param_words[curve->form][i], curve->param[i]);
  ms_json_out_end(out);
}

/* --- curve: segments
 * ------------------------------------------------------------------------------------------------- */
static gboolean segment_parse(const MsJson *doc, JsonNode *node, const char *path, MsCurve *curve,
                              GError **error) {
  double *pair = NULL;
  int n = 0;
  gboolean ok = get_numbers(doc, node, path, 0, 1e18, 16, &pair, &n, error);
  if (ok && n != 2) ok = ms_json_error(doc, path, error, "must be [alpha_s, Bps]");
  if (ok && pair[1] <= 0) ok = ms_json_error(doc, path, error, "has a bandwidth of 0, must be above 0 Bps");
  if (ok) {
    curve->segment_alpha_s[curve->n_segments] = pair[0];
    curve->segment_Bps[curve->n_segments++] = pair[1];
  }
  g_free(pair);
  return ok;
}

static gboolean segments_parse(const MsJson *doc, JsonNode *node, const char *path, void *member,
                               GError **error) {
  MsCurve *curve = member;
  guint max = G_N_ELEMENTS(curve->segment_Bps);
  if (!JSON_NODE_HOLDS_ARRAY(node))
    return ms_json_error(doc, path, error, "must be a list of [alpha_s, Bps]");
  JsonArray *array = json_node_get_array(node);
  guint length = json_array_get_length(array);
  if (length > max)
    return ms_json_error(doc, path, error, "holds %u lines, must hold at most %u", length, max);
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

/* --- curve: grid
 * ----------------------------------------------------------------------------------------------------- */
static void grid_clear(MsGrid *grid) {
  for (guint d = 0; d < G_N_ELEMENTS(grid->n); d++) {
    g_free(grid->name[d]);
    g_free(grid->axis[d]);
    g_free(grid->log2_axis[d]);
  }
  g_free(grid->log_ratio);
  *grid = (MsGrid){0};
}

static gint64 grid_size(const MsGrid *grid) {
  gint64 size = grid->dims > 0;
  for (int d = 0; d < grid->dims; d++) size *= grid->n[d];
  return size;
}

static void grid_copy(const MsGrid *from, MsGrid *to) {
  *to = (MsGrid){.dims = from->dims};
  for (int d = 0; d < from->dims; d++) {
    gsize bytes = (gsize)from->n[d] * sizeof(double);
    to->n[d] = from->n[d];
    to->name[d] = g_strdup(from->name[d]);
    to->axis[d] = g_memdup2(from->axis[d], bytes);
    to->log2_axis[d] = g_memdup2(from->log2_axis[d], bytes);
  }
  to->log_ratio = g_memdup2(from->log_ratio, (gsize)grid_size(from) * sizeof(double));
}

static gboolean axis_parse(const MsJson *doc, const char *name, JsonNode *node, const char *path,
                           MsGrid *grid, GError **error) {
  int d = grid->dims;
  if (d >= (int)G_N_ELEMENTS(grid->n))
    return ms_json_error(doc, path, error, "has more than %u axes", (guint)G_N_ELEMENTS(grid->n));
  char *full = g_strconcat(path, ".", name, NULL);
  gboolean ok = get_numbers(doc, node, full, 1e-300, 1e18, 4096, &grid->axis[d], &grid->n[d], error);
  for (int i = 1; ok && i < grid->n[d]; i++)
    if (grid->axis[d][i] <= grid->axis[d][i - 1]) ok = ms_json_error(doc, full, error, "must be ascending");
  g_free(full);
  if (!ok) return FALSE;
  grid->name[d] = g_strdup(name);
  grid->log2_axis[d] = g_new(double, grid->n[d]);
  for (int i = 0; i < grid->n[d]; i++) grid->log2_axis[d][i] = log2(grid->axis[d][i]);
  grid->dims++;
  return TRUE;
}

static gboolean axes_parse(const MsJson *doc, JsonNode *node, const char *path, MsGrid *grid,
                           GError **error) {
  if (!node || !JSON_NODE_HOLDS_OBJECT(node))
    return ms_json_error(doc, path, error, "must be an object of lists");
  JsonObjectIter iter;
  const char *name;
  JsonNode *value;
  json_object_iter_init_ordered(&iter, json_node_get_object(node));
  while (json_object_iter_next_ordered(&iter, &name, &value))
    if (!axis_parse(doc, name, value, path, grid, error)) return FALSE;
  return grid->dims > 0 ||
         ms_json_error(doc, path, error, "is empty, must hold 1 to %u axes", (guint)G_N_ELEMENTS(grid->n));
}

static gboolean ratios_parse(const MsJson *doc, JsonNode *node, const char *path, MsGrid *grid,
                             GError **error) {
  int n = 0;
  gint64 size = grid_size(grid);
  if (size > GRID_MAX) return ms_json_error(doc, path, error, "the axes span more than %d points", GRID_MAX);
  if (!get_numbers(doc, node, path, -20, 20, GRID_MAX, &grid->log_ratio, &n, error)) return FALSE;
  return n == size ||
         ms_json_error(doc, path, error, "holds %d numbers, must hold %d as the axes span", n, (int)size);
}

static gboolean grid_parse(const MsJson *doc, JsonNode *node, const char *path, void *member,
                           GError **error) {
  MsGrid *grid = member;
  grid_clear(grid);
  if (JSON_NODE_HOLDS_NULL(node)) return TRUE;
  if (!need_object(doc, node, path, error)) return FALSE;
  JsonObject *json = json_node_get_object(node);
  if (json_object_get_size(json) != 2)
    return ms_json_error(doc, path, error, "must hold \"axes\" and \"log_ratio\"");
  char *axes = g_strconcat(path, ".axes", NULL), *ratios = g_strconcat(path, ".log_ratio", NULL);
  gboolean ok = axes_parse(doc, json_object_get_member(json, "axes"), axes, grid, error) &&
                ratios_parse(doc, json_object_get_member(json, "log_ratio"), ratios, grid, error);
  g_free(axes);
  g_free(ratios);
  if (!ok) grid_clear(grid);
  return ok;
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

/* --- curves
 * ----------------------------------------------------------------------------------------------------------
 */
#define S MsProvenance
static const MsField provenance_fields[] = {
    MS_STRING(S, data, MS_NULLABLE, "which measurements"),
    MS_STRING(S, form, MS_NULLABLE, "the form in words"),
    MS_STRING(S, command, MS_NULLABLE, "the command that made it"),
    MS_STRING(S, date, MS_NULLABLE, "when"),
    MS_STRING(S, note, MS_NULLABLE, "anything else, e.g. from where a shape was inherited"),
    MS_STRING(S, library, MS_NULLABLE, "whose rows were fitted; --evaluate compares with rows of this library"),
    MS_F64(S, cast_launch_s, "s", 0, 1, NULL, MS_NULLABLE, "launch of the cast that measured GEMM rows include and the curve does not"),
    MS_F64(S, cast_bw_efficiency, "", 0, 10, NULL, MS_NULLABLE, "share of HBM bandwidth of that cast, (2 + w) m k bytes"),
    MS_F64(S, n_fitted, "", 0, 1e12, NULL, MS_NULLABLE, "points that were fitted"),
    MS_F64(S, n_held_back, "", 0, 1e12, NULL, MS_NULLABLE, "points that were held back"),
    MS_F64(S, residual_median, "", 0, 1e6, NULL, MS_NULLABLE, "median relative error on points held back"),
    MS_F64(S, residual_p90, "", 0, 1e6, NULL, MS_NULLABLE, "90 % quantile of it"),
    {0}};
#undef S
static const MsFieldTable provenance_table = {"hardware.curves.provenance", "where a curve comes from",
                                              provenance_fields};

#define S MsCurve
static const MsField curve_fields[] = {
    MS_STRING(S, op, MS_REQUIRED,
              "gemm, grouped_gemm, attention, a collective, dispatch, combine or a memory-bound operator"),
    MS_STRING(S, dtype, MS_NULLABLE, "bf16, fp16, fp32, fp64, fp8, fp8-block, mxfp8, nvfp4; null = any"),
    MS_STRING(S, pass, MS_NULLABLE, "forward, dgrad, wgrad, backward; null = any"),
    MS_STRING(S, level, MS_NULLABLE, "nvlink or network, for collectives; null = any"),
    MS_STRING(S, dispatcher, MS_NULLABLE, "for dispatch and combine; null = any"),
    MS_INT(S, head_dim, 0, 65536, "0", MS_NULLABLE, "for attention; 0 = any"),
    MS_INT(S, ranks, 0, 1 << 20, "0", MS_NULLABLE, "group size that was measured; 0 = any"),
    MS_ENUM(S, form, ms_curve_form_words, NULL, MS_REQUIRED, "formula"),
    {.key = "params",
     .type = MS_T_CUSTOM,
     .unit = "",
     .offset = 0,
     .parse = params_parse,
     .print = params_print,
     .doc = "object of the formula's parameters"},
    MS_F64(S, sustained, "", 0.01, 10, "1", MS_NULLABLE, "rate in long training over that of the measurements; multiplies the efficiency"),
    {.key = "segments",
     .type = MS_T_CUSTOM,
     .unit = "s, Bps",
     .offset = 0,
     .parse = segments_parse,
     .print = segments_print,
     .doc = "list of up to four [alpha_s, Bps] of the form segments"},
    {.key = "grid",
     .type = MS_T_CUSTOM,
     .unit = "",
     .offset = offsetof(S, grid),
     .parse = grid_parse,
     .print = grid_print,
     .doc = "residual {\"axes\": {NAME: [...]}, \"log_ratio\": [...]}, first axis slowest; null = none"},
    MS_OBJECT(S, provenance, &provenance_table, MS_NULLABLE, "where it comes from"),
    {0}};
#undef S
const MsFieldTable ms_curve_table = {"hardware.curves", "one fitted curve", curve_fields};

static void curve_clear(MsCurve *curve) {
  ms_fields_clear(&ms_curve_table, curve);
  grid_clear(&curve->grid);
}

static void curve_copy(const MsCurve *from, MsCurve *to) {
  *to = *from;
  ms_fields_copy(&ms_curve_table, from, to);
  grid_copy(&from->grid, &to->grid);
}

static void curves_free(MsHardware *hardware) {
  for (int i = 0; i < hardware->num_curves; i++) curve_clear(&hardware->curves[i]);
  g_clear_pointer(&hardware->curves, g_free);
  hardware->num_curves = 0;
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

static gboolean check_params(const MsJson *doc, JsonObject *json, const char *path, const MsCurve *curve,
                             GError **error) {
  JsonNode *node = json_object_get_member(json, "params");
  for (int i = 0; ms_curve_param_words[curve->form][i]; i++) {
    const char *name = ms_curve_param_words[curve->form][i];
    if (node && json_object_has_member(json_node_get_object(node), name)) continue;
    if (i >= ms_curve_required(curve->form)) continue; /* 0 */
    char *full = g_strconcat(path, ".params.", name, NULL);
    ms_json_error(doc, full, error, "required parameter of the form %s is missing",
                  ms_curve_form_words[curve->form]);
    g_free(full);
    return FALSE;
  }
  return TRUE;
}

static gboolean check_curve(const MsJson *doc, JsonObject *json, const char *path, const MsCurve *curve,
                            GError **error) {
  static const char *const dtypes[] = {"bf16",      "fp16",  "fp32",  "fp64", "fp8",
                                       "fp8-block", "mxfp8", "nvfp4", NULL};
  static const char *const passes[] = {"forward", "dgrad", "wgrad", "backward", NULL};
  static const char *const levels[] = {"nvlink", "network", NULL};
  if (!check_word(doc, path, "dtype", curve->dtype, dtypes, error) ||
      !check_word(doc, path, "pass", curve->pass, passes, error) ||
      !check_word(doc, path, "level", curve->level, levels, error) ||
      !check_word(doc, path, "dispatcher", curve->dispatcher, ms_dispatcher_words, error) ||
      !check_params(doc, json, path, curve, error))
    return FALSE;
  if ((curve->form == MS_FORM_SEGMENTS) == (curve->n_segments > 0)) return TRUE;
  return ms_json_error(doc, path, error,
                       curve->n_segments ? "has segments, which only the form segments takes"
                                         : "must have segments, a list of [alpha_s, Bps]");
}

/* On failure the curve is valid for curve_clear. */
static gboolean curve_load(const MsJson *doc, JsonNode *node, const char *path, MsCurve *curve,
                           GError **error) {
  ms_fields_defaults(&ms_curve_table, curve);
  if (!need_object(doc, node, path, error)) return FALSE;
  JsonObject *json = json_node_get_object(node);
  return ms_fields_load(&ms_curve_table, doc, json, path, TRUE, curve, error) &&
         check_curve(doc, json, path, curve, error);
}

static gboolean curves_parse(const MsJson *doc, JsonNode *node, const char *path, void *member,
                             GError **error) {
  MsHardware *hardware = member;
  if (!JSON_NODE_HOLDS_ARRAY(node)) return ms_json_error(doc, path, error, "must be a list of curves");
  JsonArray *array = json_node_get_array(node);
  guint length = json_array_get_length(array);
  if (length > CURVES_MAX) return ms_json_error(doc, path, error, "holds more than %d curves", CURVES_MAX);
  curves_free(hardware);
  hardware->curves = g_new0(MsCurve, length + 1);
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < length; i++) {
    char *item = g_strdup_printf("%s[%u]", path, i);
    hardware->num_curves++;
    ok = curve_load(doc, json_array_get_element(array, i), item, &hardware->curves[i], error);
    g_free(item);
  }
  return ok;
}

static void curves_print(MsJsonOut *out, const char *key, const void *member) {
  const MsHardware *hardware = member;
  ms_json_out_array(out, key);
  for (int i = 0; i < hardware->num_curves; i++) {
    ms_json_out_object(out, NULL);
    ms_fields_write(&ms_curve_table, &hardware->curves[i], FALSE, out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

/* --- the machine
 * ----------------------------------------------------------------------------------------------------- */
#define S                  MsHardware
#define RATE(k, u, d)      MS_F64(S, k, u, 1, 1e19, NULL, MS_NULLABLE, d)
#define OVERHEAD(k, fb, d) MS_F64(S, k, "s", 0, 1, fb, MS_NULLABLE, d)
#define FACTOR(k, fb, d)   MS_F64(S, k, "", 0.01, 100, fb, MS_NULLABLE, d)
static const MsField hardware_fields[] = {
    MS_SCHEMA(0),
    MS_STRING(S, name, 0, "name, by default that of the file"),
    MS_STRING(S, doc, MS_NULLABLE, "free text"),
    MS_STRING(S, vendor, MS_NULLABLE, "who makes it"),
    MS_STRING(S, arch, MS_NULLABLE, "architecture or compute capability"),
    RATE(peak_bf16_flops, "flops", "dense BF16 peak of one device"),
    RATE(peak_fp16_flops, "flops", "dense FP16 peak"),
    RATE(peak_fp8_flops, "flops", "dense FP8 peak"),
    RATE(peak_mxfp8_flops, "flops", "dense MXFP8 peak"),
    RATE(peak_nvfp4_flops, "flops", "dense NVFP4 peak"),
    RATE(peak_fp32_flops, "flops", "FP32 peak of the vector units"),
    MS_WORDS(S, unsupported_precisions, ms_precision_words, "[]", 0, "precisions that the device cannot do"),
    RATE(hbm_B, "B", "device memory"),
    RATE(hbm_Bps, "Bps", "peak bandwidth of device memory"),
    RATE(l2_B, "B", "last-level cache"),
    MS_INT(S, sm_count, 0, 1000000, "0", MS_NULLABLE, "SMs, compute units or cores; 0 = unknown"),
    RATE(clock_Hz, "Hz", "boost clock"),
    RATE(tdp_W, "W", "power limit"),
    MS_INT(S, gpus_per_node, 1, 65536, "8", 0, "devices under one operating system"),
    MS_INT(S, nvlink_domain_gpus, 0, 65536, "0", MS_NULLABLE,
           "devices joined by the scale-up link; 0 = gpus_per_node"),
    MS_STRING(S, scaleup, MS_NULLABLE, "name of the scale-up link"),
    RATE(scaleup_Bps, "Bps", "scale-up link, per device and direction"),
    RATE(nic_Bps, "Bps", "network, per device and direction"),
    MS_F64(S, fabric_oversubscription, "", 1, 1000, "1", MS_NULLABLE, "1 = full bisection"),
    MS_INT(S, gpus_per_rail_group, 0, 1 << 20, "0", MS_NULLABLE,
           "devices below one switch group; 0 = no limit"),
    RATE(host_link_Bps, "Bps", "device to host, per direction"),
    MS_INT(S, host_link_gpus, 1, 4096, "1", 0, "devices behind one such link (a PCIe switch): all copy at the same time and share it"),
    MS_BOOL(S, nvls, "false", 0, "reduction in the scale-up switch"),
    MS_BOOL(S, sharp, "false", 0, "reduction in the network"),
    MS_BOOL(S, deepep, "false", 0, "DeepEP exists for it"),
    MS_BOOL(S, hybridep, "false", 0, "HybridEP exists for it"),
    MS_BOOL(S, cuda_graphs, "true", 0, "kernel graphs exist for it"),
    MS_BOOL(S, fp8_any_layout, "false", 0, "FP8 GEMMs read either operand along either dimension: one scaled copy of a tensor serves all passes"),
    MS_BOOL(S, serial, "false", 0, "messages keep the cores busy that compute (a CPU): the rows of a rank run one after another, nothing overlaps"),
    OVERHEAD(kernel_launch_s, "5e-6", "host time to launch one kernel"),
    OVERHEAD(graph_launch_s, "1.5e-5", "host time to replay one graph"),
    OVERHEAD(graph_kernel_s, "1.5e-6", "device gap per kernel inside a graph"),
    OVERHEAD(sync_s, "2e-5", "host cost of one device synchronisation"),
    FACTOR(sustained_derate, "1", "clock in long runs over benchmark clock"),
    MS_F64(S, band, "", 0, 2, NULL, MS_NULLABLE, "error that all predictions on it may have in common, 90 %"),
    FACTOR(wgrad_factor, "1.05", "time of a weight-gradient GEMM over the forward one"),
    FACTOR(dgrad_factor, "1", "time of a data-gradient GEMM over the forward one"),
    FACTOR(attention_backward_factor, "0.8", "FLOP/s of backward over forward attention"),
    FACTOR(attention_sink_factor, "1", "FLOP/s of attention with a learned softmax sink over attention without"),
    MS_INT(S, nccl_sms, 0, 100000, "16", MS_NULLABLE, "SMs that a running collective takes"),
    MS_INT(S, deepep_sms, 0, 100000, "20", MS_NULLABLE, "SMs that DeepEP takes"),
    MS_INT(S, hybridep_sms, 0, 100000, "24", MS_NULLABLE, "SMs that HybridEP takes"),
    MS_F64(S, context_B, "B", 0, 1e15, "2.5e9", MS_NULLABLE, "memory outside the framework's allocator"),
    MS_F64(S, reserve_ratio, "", 1, 100, "1.02", MS_NULLABLE, "reserved over allocated memory"),
    {.key = "curves",
     .type = MS_T_CUSTOM,
     .unit = "",
     .offset = 0,
     .parse = curves_parse,
     .print = curves_print,
     .doc = "list of fitted curves"},
    MS_FREE(S, sources, "object: key -> where its figure comes from"),
    MS_STRING(S, curves_from, MS_NULLABLE,
              "profile whose curves serve for operators that this one has none for"),
    {0}};
#undef S
const MsFieldTable ms_hardware_table = {"hardware", "a machine, hardware/NAME.json", hardware_fields};

/* --- loading
 * ---------------------------------------------------------------------------------------------------------
 */
static MsHardware *hardware_new(void) {
  MsHardware *hardware = g_new0(MsHardware, 1);
  ms_fields_defaults(&ms_hardware_table, hardware);
  return hardware;
}

static gboolean load_object(MsHardware *hardware, const MsJson *doc, JsonObject *json, const char *path,
                            gboolean whole, GError **error) {
  char *sources = g_strdup_printf("%s%ssources", path, *path ? "." : "");
  gboolean ok = ms_fields_load(&ms_hardware_table, doc, json, path, whole, hardware, error) &&
                (!hardware->sources || need_object(doc, hardware->sources, sources, error));
  g_free(sources);
  return ok;
}

/* A curve for the same operator, type and head width: what a donor says of another type still serves. */
static gboolean has_curve(const MsCurve *curves, int n, const MsCurve *like) {
  for (int i = 0; i < n; i++)
    if (strcmp(curves[i].op, like->op) == 0 && g_strcmp0(curves[i].dtype, like->dtype) == 0 && curves[i].head_dim == like->head_dim) return TRUE;
  return FALSE;
}

static void mark_inherited(MsCurve *curve, const char *from) {
  char *note = curve->provenance.note;
  curve->provenance.note =
      g_strdup_printf("shape inherited from %s%s%s", from, note ? "; " : "", note ? note : "");
  g_free(note);
}

/* Copies the curves of operators and types that `hardware` has none for. */
static void inherit(MsHardware *hardware, const MsHardware *donor) {
  int own = hardware->num_curves;
  hardware->curves = g_renew(MsCurve, hardware->curves, own + donor->num_curves + 1);
  for (int i = 0; i < donor->num_curves; i++) {
    if (has_curve(hardware->curves, own, &donor->curves[i])) continue;
    MsCurve *curve = &hardware->curves[hardware->num_curves++];
    curve_copy(&donor->curves[i], curve);
    mark_inherited(curve, donor->name);
  }
}

static MsHardware *load_file(char *file, gboolean finish, GError **error);

/* The donor's own curves_from is not followed, so that there can be no cycle but the machine itself. */
static gboolean borrow_curves(MsHardware *hardware, const MsJson *doc, const char *path, GError **error) {
  if (strcmp(hardware->curves_from, hardware->name) == 0)
    return ms_json_error(doc, path, error, "names the machine itself, must name another profile");
  MsHardware *donor =
      load_file(ms_find_mentioned("hardware", hardware->curves_from, doc, path, error), FALSE, error);
  if (!donor) return FALSE;
  inherit(hardware, donor);
  ms_hardware_free(donor);
  return TRUE;
}

/* Takes `hardware`, which may be NULL; NULL on failure. */
static MsHardware *finished(MsHardware *hardware, const MsJson *doc, const char *path, GError **error) {
  if (!hardware) return NULL;
  if (hardware->nvlink_domain_gpus == 0) hardware->nvlink_domain_gpus = hardware->gpus_per_node;
  if (!hardware->curves_from) return hardware;
  char *full = g_strdup_printf("%s%scurves_from", path, *path ? "." : "");
  if (!borrow_curves(hardware, doc, full, error)) g_clear_pointer(&hardware, ms_hardware_free);
  g_free(full);
  return hardware;
}

static MsHardware *load_doc(const MsJson *doc, GError **error) {
  MsHardware *hardware = hardware_new();
  if (!load_object(hardware, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, error)) {
    ms_hardware_free(hardware);
    return NULL;
  }
  if (!hardware->name) hardware->name = ms_name_of_file(ms_json_filename(doc));
  return hardware;
}

/* Takes `file`, which may be NULL. Without `finish` overrides may follow. */
static MsHardware *load_file(char *file, gboolean finish, GError **error) {
  MsJson *doc = file ? ms_load_object(file, error) : NULL;
  MsHardware *hardware = doc ? load_doc(doc, error) : NULL;
  if (finish) hardware = finished(hardware, doc, "", error);
  ms_json_free(doc);
  g_free(file);
  return hardware;
}

MsHardware *ms_hardware_load(const char *name, GError **error) {
  char *file = strcmp(name, "-") == 0 ? g_strdup(name) : ms_find_data_file("hardware", name, error);
  return load_file(file, TRUE, error);
}

static MsHardware *load_mentioned(const MsJson *doc, JsonNode *node, const char *path, gboolean finish,
                                  GError **error) {
  if (JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_STRING)
    return load_file(ms_find_mentioned("hardware", json_node_get_string(node), doc, path, error), finish,
                     error);
  ms_json_error(doc, path, error, "must be the name of a machine or a path");
  return NULL;
}

/* "base" and overrides. Curves that the overrides do not give follow the links that they change, inherited ones too. */
static MsHardware *changed(const MsJson *doc, JsonObject *json, const char *path, GError **error) {
  char *base_path = g_strconcat(path, ".base", NULL);
  MsHardware *hardware = load_mentioned(doc, json_object_get_member(json, "base"), base_path, FALSE, error);
  g_free(base_path);
  if (!hardware) return NULL;
  double scaleup_Bps = hardware->scaleup_Bps, nic_Bps = hardware->nic_Bps;
  JsonObject *changes = ms_object_without(json, "base");
  if (!load_object(hardware, doc, changes, path, FALSE, error)) g_clear_pointer(&hardware, ms_hardware_free);
  int own = hardware && json_object_has_member(changes, "curves") ? hardware->num_curves : 0;
  json_object_unref(changes);
  hardware = finished(hardware, doc, path, error);
  if (!hardware) return NULL;
  ms_curves_follow_link(hardware, own, "scaleup_Bps", scaleup_Bps, hardware->scaleup_Bps);
  ms_curves_follow_link(hardware, own, "nic_Bps", nic_Bps, hardware->nic_Bps);
  return hardware;
}

static MsHardware *whole(const MsJson *doc, JsonObject *json, const char *path, GError **error) {
  MsHardware *hardware = hardware_new();
  if (!load_object(hardware, doc, json, path, TRUE, error)) g_clear_pointer(&hardware, ms_hardware_free);
  if (hardware && !hardware->name) hardware->name = g_strdup("inline");
  return finished(hardware, doc, path, error);
}

MsHardware *ms_hardware_from_json(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    JsonObject *json = json_node_get_object(node);
    return json_object_has_member(json, "base") ? changed(doc, json, path, error) : whole(doc, json, path, error);
  }
  return load_mentioned(doc, node, path, TRUE, error);
}

MsHardware *ms_hardware_copy(const MsHardware *hardware) {
  MsHardware *copy = g_new(MsHardware, 1);
  *copy = *hardware;
  ms_fields_copy(&ms_hardware_table, hardware, copy);
  copy->curves = g_new0(MsCurve, hardware->num_curves + 1);
  for (int i = 0; i < hardware->num_curves; i++) curve_copy(&hardware->curves[i], &copy->curves[i]);
  return copy;
}

void ms_hardware_free(MsHardware *hardware) {
  if (!hardware) return;
  curves_free(hardware);
  ms_fields_clear(&ms_hardware_table, hardware);
  g_free(hardware);
}

gboolean ms_hardware_need(const MsHardware *hardware, double value, const char *key, GError **error) {
  if (value > 0) return TRUE;
  return ms_input_error(error, NULL, 0, NULL,
                        "hardware %s: %s is unknown; give it in the profile, or in place of the name {\"base\": \"%s\", \"%s\": NUMBER}",
                        hardware->name, key, hardware->name, key);
}

double ms_hardware_peak_flops(const MsHardware *hardware, MsPrecision precision) {
  if (hardware->unsupported_precisions & (1u << precision)) return NAN;
  switch (precision) {
  case MS_BF16: return hardware->peak_bf16_flops;
  case MS_FP16: return hardware->peak_fp16_flops;
  case MS_FP8_DELAYED:
  case MS_FP8_TENSORWISE:
  case MS_FP8_BLOCKWISE: return hardware->peak_fp8_flops;
  case MS_MXFP8: return hardware->peak_mxfp8_flops;
  case MS_NVFP4: return hardware->peak_nvfp4_flops;
  case MS_N_PRECISIONS: break;
  }
  return NAN;
}
