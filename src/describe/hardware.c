/* src/describe/hardware.c - machines: their files, and curves borrowed from another machine. */
#include "describe/hardware.h"

#include <math.h>
#include <string.h>

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
                (!json_object_has_member(json, "sources") || ms_sources_check(hardware, doc, sources, error)) &&
                ms_anchor_check(&hardware->anchor, doc, anchor, error);
  g_free(sources);
  return ok;
}

/* A curve for the same operator, type and head width, or one that leaves them open: what a donor says of another type
 * still serves. */
static gboolean has_curve(const MsCurve *curves, int n, const MsCurve *like) {
  for (int i = 0; i < n; i++)
    if (strcmp(curves[i].op, like->op) == 0 && (!curves[i].dtype || g_strcmp0(curves[i].dtype, like->dtype) == 0) &&
        (curves[i].head_dim == 0 || curves[i].head_dim == like->head_dim))
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
  MsCurve *curves = ms_curves_own(hardware, donor->num_curves);
  for (int i = 0; i < donor->num_curves; i++) {
    if (has_curve(curves, own, &donor->curves[i])) continue;
    MsCurve *curve = &curves[hardware->num_curves++];
    ms_curve_copy(&donor->curves[i], curve);
    mark_inherited(curve, name);
  }
}

/* Machines as their own file says, boxes of one pointer: what a file without `base` says before it borrows curves
 * depends on no other file. */
static void leaf_clear(gpointer leaf) { ms_hardware_free(*(MsHardware **)leaf); }
static MsKeep leaves = {.clear = leaf_clear};

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
  if (ms_json_is(node, G_TYPE_STRING))
    return load_file(explained(ms_find_mentioned("hardware", json_node_get_string(node), doc, path, error),
                               json_node_get_string(node), doc, path, error),
                     depth, borrow, error);
  ms_json_error(doc, path, error, "must be the name of a machine or a path");
  return NULL;
}

static gboolean any_or(const char *own, const char *other) { return !own || g_strcmp0(own, other) == 0; }

/* One that replaces another describes the same thing, at the same group size; what it leaves open serves all of it. */
static gboolean covers(const MsCurve *own, const MsCurve *other) {
  return strcmp(own->op, other->op) == 0 && any_or(own->dtype, other->dtype) && any_or(own->pass, other->pass) &&
         any_or(own->level, other->level) && any_or(own->dispatcher, other->dispatcher) &&
         any_or(own->library, other->library) && (own->head_dim == 0 || own->head_dim == other->head_dim) &&
         (own->ranks == 0 || own->ranks == other->ranks);
}

static gboolean gives(const MsHardware *hardware, const MsCurve *curve) {
  for (int i = 0; i < hardware->num_curves; i++)
    if (covers(&hardware->curves[i], curve)) return TRUE;
  return FALSE;
}

/* Behind the curves of the file those of its base that it does not give; an empty list leaves none. Returns how many it
 * gives. */
static int keep_curves(MsHardware *hardware, MsHardware *base) {
  int given = hardware->num_curves, n = given;
  if (given == 0) return 0;
  MsCurve *curves = ms_curves_own(hardware, base->num_curves);
  for (int i = 0; i < base->num_curves; i++)
    if (!gives(hardware, &base->curves[i])) ms_curve_copy(&base->curves[i], &curves[n++]);
  hardware->num_curves = n;
  return given;
}

/* Behind the `own` ones: they were measured where the figures that are assumed now were others. */
static void mark_of_base(MsHardware *hardware, int own, JsonObject *changes) {
  gboolean assumes = FALSE;
  for (const MsField *field = ms_hardware_table.fields; field->key && !assumes; field++)
    assumes = json_object_has_member(changes, field->key) && ms_source_within(hardware, field->key) > 0;
  if (!assumes) return;
  MsCurve *curves = ms_curves_own(hardware, 0);
  for (int i = own; i < hardware->num_curves; i++) curves[i].of_base = TRUE;
}

enum { N_PEAKS = MS_N_PRECISIONS + MS_N_ODT };
static void take_peaks(const MsHardware *h, double peak[N_PEAKS]) {
  for (int i = 0; i < MS_N_PRECISIONS; i++) peak[i] = ms_peak_of(h, ms_precisions[i].peak);
  for (int i = 0; i < MS_N_ODT; i++) peak[MS_N_PRECISIONS + i] = ms_peak_of(h, ms_op_dtypes[i].peak);
}

/* With another peak it is another device, on which nobody's run was compared. */
#define SAME_PEAK 0.05
static void forget_runs(MsHardware *hardware, const double before[N_PEAKS], JsonObject *changes) {
  double now[N_PEAKS];
  take_peaks(hardware, now);
  if (json_object_has_member(changes, "published_runs")) return;
  for (int i = 0; i < N_PEAKS; i++)
    if (before[i] > 0 && now[i] > 0 && fabs(now[i] / before[i] - 1) > SAME_PEAK) hardware->published_runs = 0;
}

/* Curves that the overrides do not give follow the links that they change, borrowed ones too. */
static gboolean change(MsHardware *hardware, const MsJson *doc, JsonObject *changes, const char *path, int depth,
                       GError **error) {
  double scaleup_Bps = hardware->scaleup_Bps, nic_Bps = hardware->nic_Bps, peak[N_PEAKS];
  take_peaks(hardware, peak);
  gboolean curves = json_object_has_member(changes, "curves"), from = json_object_has_member(changes, "curves_from");
  JsonNode *sources = hardware->sources ? json_node_ref(hardware->sources) : NULL;
  MsHardware base = {.curves = curves ? g_steal_pointer(&hardware->curves) : NULL,
                     .num_curves = curves ? hardware->num_curves : 0};
  if (curves) hardware->num_curves = 0;
  gboolean loaded = load_object(hardware, doc, changes, path, FALSE, error);
  if (loaded) ms_sources_inherit(hardware, sources, changes);
  g_clear_pointer(&sources, json_node_unref);
  int own = loaded && curves ? keep_curves(hardware, &base) : 0;
  ms_curves_free(&base);
  if (!loaded) return FALSE;
  mark_of_base(hardware, own, changes);
  forget_runs(hardware, peak, changes);
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

static void keep_leaf(const char *file, const MsStamp *stamp, const MsHardware *hardware) {
  MsHardware **leaf = g_atomic_rc_box_new(MsHardware *);
  *leaf = ms_hardware_copy(hardware);
  ms_kept_add(&leaves, file, "", stamp, leaf);
  ms_kept_release(&leaves, leaf);
}

static gboolean take_machine(MsJsonCursor *cursor, gpointer hardware) {
  return ms_fields_take(&ms_hardware_table, cursor, hardware);
}

/* A machine without `base` before it borrows. NULL: what it is, or what is wrong, its tree says. */
static MsHardware *leaf_of(const MsJson *doc) {
  MsHardware *hardware = hardware_new();
  if (!ms_json_take(doc, take_machine, hardware) || !ms_sources_check(hardware, NULL, "", NULL) ||
      !ms_anchor_check(&hardware->anchor, NULL, "", NULL) || !ms_hardware_consistent(hardware, NULL, NULL, "", NULL))
    g_clear_pointer(&hardware, ms_hardware_free);
  return hardware;
}

static MsHardware *read_file(const char *file, const MsStamp *stamp, int depth, gboolean borrow, GError **error) {
  g_autoptr(MsJson) doc = ms_json_open(file, error);
  MsHardware *hardware = doc ? leaf_of(doc) : NULL;
  if (hardware) {
    if (stamp->known) keep_leaf(file, stamp, hardware);
    if (borrow && !borrow_curves(hardware, doc, "", depth, error)) g_clear_pointer(&hardware, ms_hardware_free);
  } else if (doc && ms_build_object(doc, error)) {
    hardware = described(doc, json_node_get_object(ms_json_root(doc)), "", depth, borrow, error);
  }
  if (hardware && !hardware->name) hardware->name = ms_name_of_file(ms_json_filename(doc));
  return hardware;
}

/* A leaf with what it borrowed from another, by the files of both. */
typedef struct {
  MsHardware *machine, **leaf, **donor;
} Borrower;
static void borrower_clear(gpointer box) {
  Borrower *b = box;
  ms_hardware_free(b->machine);
  ms_kept_release(&leaves, b->leaf), ms_kept_release(&leaves, b->donor);
}
static MsKeep borrowers = {.clear = borrower_clear};

/* NULL when it cannot borrow: reading the file says why. */
static MsHardware *with_borrowed(MsHardware **leaf, const char *file, int depth) {
  MsStamp stamp, stamp_of_donor;
  g_autoptr(MsJson) beside = ms_json_parse("{}", -1, file, NULL); /* says where it stands, for what it names */
  g_autofree char *other = ms_find_mentioned("hardware", (*leaf)->curves_from, beside, "curves_from", NULL);
  MsHardware **donor = other ? ms_kept_find(&leaves, other, "", &stamp_of_donor) : NULL;
  Borrower *known = donor ? ms_kept_find(&borrowers, file, other, &stamp) : NULL;
  gboolean same = known && known->leaf == leaf && known->donor == donor;
  MsHardware *hardware = ms_hardware_copy(same ? known->machine : *leaf);
  if (!same && !borrow_curves(hardware, beside, "", depth, NULL)) g_clear_pointer(&hardware, ms_hardware_free);
  if (hardware && !same && donor) {
    Borrower *now = g_atomic_rc_box_new(Borrower);
    *now = (Borrower){ms_hardware_copy(hardware), g_atomic_rc_box_acquire(leaf), g_atomic_rc_box_acquire(donor)};
    ms_kept_add(&borrowers, file, other, &stamp, now);
    ms_kept_release(&borrowers, now);
  }
  ms_kept_release(&borrowers, known), ms_kept_release(&leaves, donor);
  return hardware;
}

static MsHardware *from_leaf(MsHardware **leaf, const char *file, int depth, gboolean borrow) {
  MsHardware *hardware = borrow && (*leaf)->curves_from ? with_borrowed(leaf, file, depth) : ms_hardware_copy(*leaf);
  if (hardware && !hardware->name) hardware->name = ms_name_of_file(file);
  return hardware;
}

/* Takes `file`, which may be NULL. */
static MsHardware *load_file(char *file, int depth, gboolean borrow, GError **error) {
  MsStamp stamp = {0};
  MsHardware **leaf = file && strcmp(file, "-") != 0 ? ms_kept_find(&leaves, file, "", &stamp) : NULL;
  MsHardware *hardware = leaf ? from_leaf(leaf, file, depth, borrow) : NULL;
  if (file && !hardware) hardware = read_file(file, &stamp, depth, borrow, error);
  ms_kept_release(&leaves, leaf);
  g_free(file);
  return hardware;
}

static const char nameless[] = "inline";

/* Takes `hardware`, which may be NULL. */
static MsHardware *finished(MsHardware *hardware) {
  if (!hardware) return NULL;
  if (hardware->nvlink_domain_gpus == 0) hardware->nvlink_domain_gpus = hardware->gpus_per_node;
  if (!hardware->name) hardware->name = g_strdup(nameless);
  return hardware;
}

MsHardware *ms_hardware_load(const char *name, GError **error) {
  char *file = strcmp(name, "-") == 0 ? g_strdup(name)
                                      : explained(ms_find_data_file("hardware", name, error), name, NULL, NULL, error);
  return finished(load_file(file, 0, TRUE, error));
}

/* --- a machine that ships, described as another one with its figures --- */

static gboolean like(double a, double b) { return (isnan(a) && isnan(b)) || fabs(a - b) <= 0.01 * fabs(b); }

static gboolean same_sheet(const MsHardware *a, const MsHardware *b) {
  return like(a->peak_bf16_flops, b->peak_bf16_flops) && like(a->peak_fp8_flops, b->peak_fp8_flops) &&
         like(a->hbm_B, b->hbm_B) && like(a->hbm_Bps, b->hbm_Bps) && like(a->tdp_W, b->tdp_W);
}

/* The variant of its base whose data sheet it has; NULL: none, or the base itself. */
static const char *variant_of(const MsHardware *hardware, const char *base) {
  JsonArray *names =
      hardware->variants && JSON_NODE_HOLDS_ARRAY(hardware->variants) ? json_node_get_array(hardware->variants) : NULL;
  for (guint i = 0; names && i < json_array_get_length(names); i++) {
    JsonNode *node = json_array_get_element(names, i);
    const char *name = ms_json_is(node, G_TYPE_STRING) ? json_node_get_string(node) : base;
    g_autoptr(MsHardware) variant = strcmp(name, base) != 0 ? ms_hardware_load(name, NULL) : NULL;
    if (variant && same_sheet(hardware, variant)) return name;
  }
  return NULL;
}

/* What the variant measured is its own: its curves, its clock. */
static MsHardware *described_upon(const MsJson *doc, JsonObject *json, const char *path, GError **error) {
  MsHardware *hardware = described(doc, json, path, 0, TRUE, error);
  JsonNode *base = hardware ? json_object_get_member(json, "base") : NULL;
  const char *variant = base ? variant_of(hardware, json_node_get_string(base)) : NULL;
  if (!variant) return hardware;
  JsonObject *upon = ms_object_without(json, "base");
  json_object_set_string_member(upon, "base", variant);
  ms_hardware_free(hardware);
  hardware = described(doc, upon, path, 0, TRUE, error);
  json_object_unref(upon);
  return hardware;
}

MsHardware *ms_hardware_from_json(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  return finished(JSON_NODE_HOLDS_OBJECT(node) ? described_upon(doc, json_node_get_object(node), path, error)
                                               : load_mentioned(doc, node, path, 0, TRUE, error));
}

MsHardware *ms_hardware_copy(const MsHardware *hardware) {
  MsHardware *copy = g_new(MsHardware, 1);
  *copy = *hardware;
  ms_fields_copy(&ms_hardware_table, hardware, copy);
  ms_fields_copy(&ms_fabric_table, &hardware->fabric, &copy->fabric);
  if (copy->curves) g_atomic_rc_box_acquire((gpointer)copy->curves);
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
  if (strcmp(hardware->name, nameless) == 0)
    return ms_input_error(error, NULL, 0, NULL,
                          "hardware: %s is unknown; give it beside the others, or name the machine that this one is "
                          "like: \"base\": NAME, \"%s\": NUMBER",
                          key, key);
  return ms_input_error(
      error, NULL, 0, NULL,
      "hardware %s: %s is unknown; give it in the profile, or in place of the name {\"base\": \"%s\", \"%s\": NUMBER}",
      hardware->name, key, hardware->name, key);
}

gboolean ms_hardware_has_library(const MsHardware *hardware, const char *word) {
  for (int i = 0; i < hardware->num_curves; i++)
    if (g_strcmp0(hardware->curves[i].library, word) == 0) return TRUE;
  return FALSE;
}

double ms_hardware_peak_flops(const MsHardware *hardware, MsPrecision precision) {
  if (hardware->unsupported_precisions & (1u << precision)) return NAN;
  return ms_peak_of(hardware, ms_precisions[precision].peak);
}
