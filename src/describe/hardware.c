/* src/describe/hardware.c - machines: their table, files, and curves borrowed from another machine. */
#include "describe/hardware.h"

#include "describe/precision.h"

#include "base/err.h"
#include "base/kept.h"
#include "describe/contradictions.h"
#include "describe/curve.h"
#include "describe/rows.h"
#include "describe/scenario.h"
#include "describe/sources.h"

#include <math.h>
#include <string.h>

/* --- the machine ----------------------------------------------------------------------------------------------- */
#define S                       MsHardware
#define NUMBER(k, u, lo, hi, d) MS_F64(S, k, u, lo, hi, NULL, MS_NULLABLE, d)
#define FLOPS(k, d)             NUMBER(k, "flops", 1e9, 1e18, d)
#define BPS(k, d)               NUMBER(k, "Bps", 1e6, 1e15, d)
#define OVERHEAD(k, fb, d)      MS_F64(S, k, "s", 0, 1, fb, MS_NULLABLE, d)
#define FACTOR(k, fb, d)        MS_F64(S, k, "", 0.01, 100, fb, MS_NULLABLE, d)
static const MsField hardware_fields[] = {
    MS_SCHEMA(0),
    MS_STRING(S, name, 0, "name, by default that of the file"),
    MS_STRING(S, doc, MS_NULLABLE, "free text"),
    MS_STRING(S, vendor, MS_NULLABLE, "who makes it"),
    MS_STRING(S, arch, MS_NULLABLE, "architecture or compute capability"),
    FLOPS(peak_bf16_flops, "dense BF16 peak of one device"),
    FLOPS(peak_fp16_flops, "dense FP16 peak"),
    FLOPS(peak_fp8_flops, "dense FP8 peak"),
    FLOPS(peak_mxfp8_flops, "dense MXFP8 peak"),
    FLOPS(peak_nvfp4_flops, "dense NVFP4 peak"),
    FLOPS(peak_fp32_flops, "FP32 peak of the vector units"),
    MS_WORDS(S, unsupported_precisions, ms_precision_words, "[]", 0, "precisions that the device cannot do"),
    NUMBER(hbm_B, "B", 1e6, 1e15, "device memory"),
    BPS(hbm_Bps, "peak bandwidth of device memory"),
    NUMBER(l2_B, "B", 1e3, 1e12, "last-level cache"),
    BPS(l2_Bps, "bandwidth of the last-level cache, of copies inside of it"),
    MS_INT(S, sm_count, 0, 1000000, "0", MS_NULLABLE, "SMs, compute units or cores; 0 = unknown"),
    NUMBER(clock_Hz, "Hz", 1e7, 1e11, "boost clock"),
    NUMBER(tdp_W, "W", 1, 1e5, "power limit"),
    MS_INT(S, gpus_per_node, 1, 65536, "8", 0, "devices under one operating system"),
    MS_INT(S, nvlink_domain_gpus, 0, 65536, "0", MS_NULLABLE, "devices joined by the scale-up link; 0 = gpus_per_node"),
    MS_STRING(S, scaleup, MS_NULLABLE, "name of the scale-up link"),
    BPS(scaleup_Bps, "scale-up link, per device and direction"),
    BPS(nic_Bps, "network, per device and direction"),
    MS_F64(S, fabric_oversubscription, "", 1, 1000, "1", MS_NULLABLE, "1 = full bisection"),
    MS_INT(S, gpus_per_rail_group, 0, 1 << 20, "0", MS_NULLABLE, "devices below one switch group; 0 = no limit"),
    {.key = "fabric",
     .type = MS_T_CUSTOM,
     .unit = "",
     .offset = offsetof(S, fabric),
     .sub = &ms_fabric_table,
     .parse = ms_fabric_parse,
     .print = ms_fabric_print,
     .doc = "the network between nodes, in place of fabric_oversubscription; null = an ideal one"},
    BPS(host_link_Bps, "device to host, per direction"),
    MS_INT(S, host_link_gpus, 1, 4096, "1", 0,
           "devices behind one such link (a PCIe switch): all copy at the same time and share it"),
    MS_BOOL(S, nvls, "false", 0, "reduction in the scale-up switch"),
    MS_BOOL(S, sharp, "false", 0, "reduction in the network"),
    MS_BOOL(S, deepep, "false", 0, "DeepEP exists for it"),
    MS_BOOL(S, hybridep, "false", 0, "HybridEP exists for it"),
    MS_BOOL(S, cuda_graphs, "true", 0, "kernel graphs exist for it"),
    MS_BOOL(S, fp8_any_layout, "false", 0,
            "FP8 GEMMs read either operand along either dimension: one scaled copy of a tensor serves all passes"),
    MS_BOOL(S, serial, "false", 0,
            "messages keep the cores busy that compute (a CPU): the rows of a rank run one after another, nothing "
            "overlaps"),
    NUMBER(reference_flops, "flops", 1e6, 1e18,
           "moesim calibrate: what its reference kernel reached on a core at the speed that the curves are of"),
    OVERHEAD(kernel_launch_s, "5e-6", "host time to launch one kernel"),
    OVERHEAD(graph_launch_s, "1.5e-5", "host time to replay one graph"),
    OVERHEAD(sync_s, "2e-5", "host cost of one device synchronisation"),
    FACTOR(sustained_derate, "1", "clock in long runs over benchmark clock"),
    MS_INT(S, published_runs, 0, 1 << 20, "0", 0, "published runs that predictions on it were compared with"),
    MS_BOOL(S, attention_after_fa2, "false", 0,
            "the curves of attention are of kernels later than FlashAttention-2's, which run on it too (Hopper and "
            "later)"),
    MS_INT(
        S, sustained_gpus, 0, 1 << 20, "0", MS_NULLABLE,
        "GPUs of the runs that sustained_derate was found by, of which the step waited for the slowest; 0 = unknown"),
    NUMBER(
        generation_year, "year", 1990, 2100,
        "when the first machines of its generation of chips shipped: kernels of the software of that time are slower"),
    NUMBER(sustained_tdp_W, "W", 1, 1e5, "power limit under which sustained_derate was found; left out: tdp_W"),
    FACTOR(wgrad_factor, "1.05", "time of a weight-gradient GEMM over the forward one"),
    FACTOR(dgrad_factor, "1", "time of a data-gradient GEMM over the forward one"),
    FACTOR(attention_backward_factor, "0.8", "FLOP/s of backward over forward attention"),
    FACTOR(attention_sink_factor, "1", "FLOP/s of attention with a learned softmax sink over attention without"),
    MS_INT(S, nccl_sms, 0, 100000, "16", MS_NULLABLE, "SMs that a running collective takes"),
    MS_INT(S, deepep_sms, 0, 100000, "20", MS_NULLABLE, "SMs that DeepEP takes"),
    MS_INT(S, hybridep_sms, 0, 100000, "24", MS_NULLABLE, "SMs that HybridEP takes"),
    MS_F64(S, blas_workspace_B, "B", 0, 1e12, "33554432", MS_NULLABLE, "scratch of cuBLAS for each launching thread"),
    MS_F64(S, te_workspace_B, "B", 0, 1e12, "33554432", MS_NULLABLE, "scratch of TransformerEngine for its products"),
    MS_F64(S, context_B, "B", 0, 1e15, "2.5e9", MS_NULLABLE, "memory outside the framework's allocator"),
    MS_F64(S, reserve_ratio, "", 1, 100, "1.02", MS_NULLABLE, "reserved over allocated memory"),
    {.key = "curves",
     .type = MS_T_CUSTOM,
     .unit = "",
     .offset = 0,
     .parse = ms_curves_parse,
     .print = ms_curves_print,
     .doc =
         "list of fitted curves; beside `base`: in place of those that describe the same, all others stay; [] = none"},
    MS_OBJECT(S, anchor, &ms_anchor_table, MS_NULLABLE, "what was learned from runs on it (moesim anchor)"),
    MS_FREE(S, sources, "object: key -> where its figure comes from, a text or {mark, text, within}"),
    MS_STRING(S, curves_from, MS_NULLABLE, "profile whose curves serve for operators that this one has none for"),
    {0}};
#undef S
const MsFieldTable ms_hardware_table = {"hardware", "a machine, hardware/NAME.json", hardware_fields};

/* --- loading --------------------------------------------------------------------------------------------------- */
static MsHardware *hardware_new(void) {
  MsHardware *hardware = g_new0(MsHardware, 1);
  ms_fields_defaults(&ms_hardware_table, hardware);
  ms_fields_defaults(&ms_fabric_table, &hardware->fabric);
  return hardware;
}

static gboolean load_object(MsHardware *hardware, const MsJson *doc, JsonObject *json, const char *path, gboolean whole,
                            GError **error) {
  char *sources = g_strdup_printf("%s%ssources", path, *path ? "." : "");
  g_autofree char *anchor = g_strdup_printf("%s%sanchor", path, *path ? "." : "");
  gboolean ok = ms_fields_load(&ms_hardware_table, doc, json, path, whole, hardware, error) &&
                ms_sources_check(hardware, doc, sources, error) &&
                ms_anchor_check(&hardware->anchor, doc, anchor, error);
  g_free(sources);
  return ok;
}

/* A curve for the same operator, type and head width: what a donor says of another type still serves. */
static gboolean has_curve(const MsCurve *curves, int n, const MsCurve *like) {
  for (int i = 0; i < n; i++)
    if (strcmp(curves[i].op, like->op) == 0 && g_strcmp0(curves[i].dtype, like->dtype) == 0 &&
        curves[i].head_dim == like->head_dim)
      return TRUE;
  return FALSE;
}

static void mark_inherited(MsCurve *curve, const char *from) {
  char *note = curve->provenance.note;
  curve->provenance.note = g_strdup_printf("shape inherited from %s%s%s", from, note ? "; " : "", note ? note : "");
  g_free(note);
  g_free(curve->provenance.lent_by);
  curve->provenance.lent_by = g_strdup(from);
}

/* Copies the curves of operators and types that `hardware` has none for. */
static void inherit(MsHardware *hardware, const MsHardware *donor, const char *name) {
  int own = hardware->num_curves;
  hardware->curves = g_renew(MsCurve, hardware->curves, own + donor->num_curves + 1);
  for (int i = 0; i < donor->num_curves; i++) {
    if (has_curve(hardware->curves, own, &donor->curves[i])) continue;
    MsCurve *curve = &hardware->curves[hardware->num_curves++];
    ms_curve_copy(&donor->curves[i], curve);
    mark_inherited(curve, name);
  }
}

/* Machines as their own file says, boxes of one pointer: what a file without `base` says before it borrows curves
 * depends on no other file. */
static void leaf_clear(gpointer leaf) { ms_hardware_free(*(MsHardware **)leaf); }
static MsKept leaves = {.clear = leaf_clear};

/* Machines are built upon machines: a file names its `base`, a scenario another. Deeper than this is a circle. */
enum { DEEPEST_BASE = 8 };
static MsHardware *load_file(char *file, int depth, gboolean borrow, GError **error);

/* The donor's own curves_from is not followed. */
static gboolean borrow_curves(MsHardware *hardware, const MsJson *doc, const char *path, int depth, GError **error) {
  if (!hardware->curves_from) return TRUE;
  g_autofree char *full = g_strdup_printf("%s%scurves_from", path, *path ? "." : "");
  if (g_strcmp0(hardware->curves_from, hardware->name) == 0)
    return ms_json_error(doc, full, error, "names the machine itself, must name another profile");
  char *file = ms_find_mentioned("hardware", hardware->curves_from, doc, full, error);
  MsStamp stamp;
  MsHardware **leaf = file ? ms_kept_find(&leaves, file, "", &stamp) : NULL;
  if (leaf) {
    g_autofree char *name = (*leaf)->name ? g_strdup((*leaf)->name) : ms_name_of_file(file);
    inherit(hardware, *leaf, name);
    ms_kept_release(&leaves, leaf);
    g_free(file);
    return TRUE;
  }
  MsHardware *donor = load_file(file, depth + 1, FALSE, error);
  if (!donor) return FALSE;
  inherit(hardware, donor, donor->name);
  ms_hardware_free(donor);
  return TRUE;
}

/* What people ask for and the collectives of cost/ are not: docs/machines.md. */
#define TORUS "its chips stand in a torus, collectives here have a scale-up domain and a network (docs/machines.md)"
static const struct { const char *begins, *why; } unmodelled[] = {{"tpu", TORUS}, {"trainium", TORUS}, {"trn", TORUS}};

/* The file that was looked for; where there is none, why there cannot be. */
static char *explained(char *file, const char *name, const MsJson *doc, const char *path, GError **error) {
  for (guint i = 0; !file && i < G_N_ELEMENTS(unmodelled); i++) {
    if (g_ascii_strncasecmp(name, unmodelled[i].begins, strlen(unmodelled[i].begins)) != 0) continue;
    g_clear_error(error);
    if (doc) ms_json_error(doc, path, error, "%s is not modelled: %s", name, unmodelled[i].why);
    else ms_input_error(error, NULL, 0, NULL, "hardware %s is not modelled: %s", name, unmodelled[i].why);
    return NULL;
  }
  return file;
}

static MsHardware *load_mentioned(const MsJson *doc, JsonNode *node, const char *path, int depth, gboolean borrow,
                                  GError **error) {
  if (JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_STRING)
    return load_file(explained(ms_find_mentioned("hardware", json_node_get_string(node), doc, path, error),
                               json_node_get_string(node), doc, path, error),
                     depth, borrow, error);
  ms_json_error(doc, path, error, "must be the name of a machine or a path");
  return NULL;
}

/* Which curve of a machine: one that replaces another describes the same thing, at the same group size. */
static gboolean same_curve(const MsCurve *a, const MsCurve *b) {
  return strcmp(a->op, b->op) == 0 && g_strcmp0(a->dtype, b->dtype) == 0 && g_strcmp0(a->pass, b->pass) == 0 &&
         g_strcmp0(a->level, b->level) == 0 && g_strcmp0(a->dispatcher, b->dispatcher) == 0 &&
         a->head_dim == b->head_dim && a->ranks == b->ranks;
}

static gboolean gives(const MsHardware *hardware, const MsCurve *curve) {
  for (int i = 0; i < hardware->num_curves; i++)
    if (same_curve(&hardware->curves[i], curve)) return TRUE;
  return FALSE;
}

/* Behind the curves of the file those of its base that it does not give; an empty list leaves none. Returns how many it
 * gives. */
static int keep_curves(MsHardware *hardware, MsHardware *base) {
  int given = hardware->num_curves, n = given;
  if (given == 0) return 0;
  hardware->curves = g_renew(MsCurve, hardware->curves, given + base->num_curves + 1);
  for (int i = 0; i < base->num_curves; i++)
    if (!gives(hardware, &base->curves[i])) ms_curve_copy(&base->curves[i], &hardware->curves[n++]);
  hardware->num_curves = n;
  return given;
}

/* Curves that the overrides do not give follow the links that they change, borrowed ones too. */
static gboolean change(MsHardware *hardware, const MsJson *doc, JsonObject *changes, const char *path, int depth,
                       GError **error) {
  double scaleup_Bps = hardware->scaleup_Bps, nic_Bps = hardware->nic_Bps;
  gboolean curves = json_object_has_member(changes, "curves"), from = json_object_has_member(changes, "curves_from");
  JsonNode *sources = hardware->sources ? ms_json_copy(hardware->sources) : NULL;
  MsHardware base = {.curves = curves ? g_steal_pointer(&hardware->curves) : NULL,
                     .num_curves = curves ? hardware->num_curves : 0};
  if (curves) hardware->num_curves = 0;
  gboolean loaded = load_object(hardware, doc, changes, path, FALSE, error);
  if (loaded) ms_sources_inherit(hardware, sources, changes);
  g_clear_pointer(&sources, json_node_unref);
  int own = loaded && curves ? keep_curves(hardware, &base) : 0;
  ms_curves_free(&base);
  if (!loaded) return FALSE;
  if ((curves || from) && !borrow_curves(hardware, doc, path, depth, error)) return FALSE;
  ms_curves_follow_link(hardware, own, "scaleup_Bps", scaleup_Bps, hardware->scaleup_Bps);
  ms_curves_follow_link(hardware, own, "nic_Bps", nic_Bps, hardware->nic_Bps);
  return TRUE;
}

static MsHardware *changed(const MsJson *doc, JsonObject *json, const char *path, int depth, GError **error) {
  g_autofree char *base_path = g_strdup_printf("%s%sbase", path, *path ? "." : "");
  if (depth >= DEEPEST_BASE) {
    ms_json_error(doc, base_path, error, "more than %d machines upon one another: do they name each other?",
                  DEEPEST_BASE);
    return NULL;
  }
  gboolean borrow = !json_object_has_member(json, "curves") && !json_object_has_member(json, "curves_from");
  MsHardware *hardware = load_mentioned(doc, json_object_get_member(json, "base"), base_path, depth + 1, borrow, error);
  if (!hardware) return NULL;
  JsonObject *changes = ms_object_without(json, "base");
  if (!change(hardware, doc, changes, path, depth, error)) g_clear_pointer(&hardware, ms_hardware_free);
  json_object_unref(changes);
  return hardware;
}

static MsHardware *whole(const MsJson *doc, JsonObject *json, const char *path, int depth, gboolean borrow,
                         GError **error) {
  MsHardware *hardware = hardware_new();
  if (!load_object(hardware, doc, json, path, TRUE, error) ||
      (borrow && !borrow_curves(hardware, doc, path, depth, error)))
    g_clear_pointer(&hardware, ms_hardware_free);
  return hardware;
}

/* With `borrow` and the curves of another machine, where it names one. */
static MsHardware *described(const MsJson *doc, JsonObject *json, const char *path, int depth, gboolean borrow,
                             GError **error) {
  MsHardware *hardware = json_object_has_member(json, "base") ? changed(doc, json, path, depth, error)
                                                              : whole(doc, json, path, depth, borrow, error);
  if (hardware && !ms_hardware_consistent(hardware, doc, json, path, error))
    g_clear_pointer(&hardware, ms_hardware_free);
  return hardware;
}

/* Of a file without `base`: the curves that it borrowed stand behind its own. */
static void keep_leaf(const char *file, const MsStamp *stamp, const MsHardware *hardware, JsonObject *json) {
  MsHardware own = *hardware, **leaf = g_atomic_rc_box_new(MsHardware *);
  own.num_curves = json_object_has_member(json, "curves")
                       ? (int)json_array_get_length(json_object_get_array_member(json, "curves"))
                       : 0;
  if (!json_object_has_member(json, "name")) own.name = NULL;
  *leaf = ms_hardware_copy(&own);
  ms_kept_add(&leaves, file, "", stamp, leaf);
  ms_kept_release(&leaves, leaf);
}

static MsHardware *read_file(const char *file, const MsStamp *stamp, int depth, gboolean borrow, GError **error) {
  g_autoptr(MsJson) doc = ms_load_object(file, error);
  JsonObject *json = doc ? json_node_get_object(ms_json_root(doc)) : NULL;
  MsHardware *hardware = json ? described(doc, json, "", depth, borrow, error) : NULL;
  if (!hardware) return NULL;
  if (stamp->known && !json_object_has_member(json, "base")) keep_leaf(file, stamp, hardware, json);
  if (!json_object_has_member(json, "name")) {
    g_free(hardware->name);
    hardware->name = ms_name_of_file(ms_json_filename(doc));
  }
  return hardware;
}

/* NULL when it cannot borrow: reading the file says why. */
static MsHardware *from_leaf(const MsHardware *leaf, const char *file, int depth, gboolean borrow) {
  g_autoptr(MsJson) beside = ms_json_parse("{}", -1, file, NULL); /* says where it stands, for what it names */
  MsHardware *hardware = ms_hardware_copy(leaf);
  if (borrow && !borrow_curves(hardware, beside, "", depth, NULL)) g_clear_pointer(&hardware, ms_hardware_free);
  if (hardware && !hardware->name) hardware->name = ms_name_of_file(file);
  return hardware;
}

/* Takes `file`, which may be NULL. */
static MsHardware *load_file(char *file, int depth, gboolean borrow, GError **error) {
  MsStamp stamp = {0};
  MsHardware **leaf = file && strcmp(file, "-") != 0 ? ms_kept_find(&leaves, file, "", &stamp) : NULL;
  MsHardware *hardware = leaf ? from_leaf(*leaf, file, depth, borrow) : NULL;
  if (file && !hardware) hardware = read_file(file, &stamp, depth, borrow, error);
  ms_kept_release(&leaves, leaf);
  g_free(file);
  return hardware;
}

/* Takes `hardware`, which may be NULL. */
static MsHardware *finished(MsHardware *hardware) {
  if (!hardware) return NULL;
  if (hardware->nvlink_domain_gpus == 0) hardware->nvlink_domain_gpus = hardware->gpus_per_node;
  if (!hardware->name) hardware->name = g_strdup("inline");
  return hardware;
}

MsHardware *ms_hardware_load(const char *name, GError **error) {
  char *file = strcmp(name, "-") == 0 ? g_strdup(name)
                                      : explained(ms_find_data_file("hardware", name, error), name, NULL, NULL, error);
  return finished(load_file(file, 0, TRUE, error));
}

MsHardware *ms_hardware_from_json(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  return finished(JSON_NODE_HOLDS_OBJECT(node) ? described(doc, json_node_get_object(node), path, 0, TRUE, error)
                                               : load_mentioned(doc, node, path, 0, TRUE, error));
}

MsHardware *ms_hardware_copy(const MsHardware *hardware) {
  MsHardware *copy = g_new(MsHardware, 1);
  *copy = *hardware;
  ms_fields_copy(&ms_hardware_table, hardware, copy);
  ms_fields_copy(&ms_fabric_table, &hardware->fabric, &copy->fabric);
  copy->curves = g_new0(MsCurve, hardware->num_curves + 1);
  for (int i = 0; i < hardware->num_curves; i++) ms_curve_copy(&hardware->curves[i], &copy->curves[i]);
  return copy;
}

void ms_hardware_free(MsHardware *hardware) {
  if (!hardware) return;
  ms_curves_free(hardware);
  ms_fields_clear(&ms_fabric_table, &hardware->fabric);
  ms_fields_clear(&ms_hardware_table, hardware);
  g_free(hardware);
}

gboolean ms_hardware_need(const MsHardware *hardware, double value, const char *key, GError **error) {
  if (value > 0) return TRUE;
  return ms_input_error(
      error, NULL, 0, NULL,
      "hardware %s: %s is unknown; give it in the profile, or in place of the name {\"base\": \"%s\", \"%s\": NUMBER}",
      hardware->name, key, hardware->name, key);
}

double ms_hardware_peak_flops(const MsHardware *hardware, MsPrecision precision) {
  if (hardware->unsupported_precisions & (1u << precision)) return NAN;
  return *(const double *)((const char *)hardware + ms_precisions[precision].peak.offset);
}
