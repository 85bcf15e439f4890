/* src/describe/contradictions.c - figures of a machine that cannot both be true. */
#include "describe/contradictions.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

/* What no machine has: `key` above `most` times the product of the others. Every limit is far from what is built (the
 * shipped machines are within half of it), so that a figure beyond it is a slip of the pen: bits for bytes, a missing
 * or a second power of 1000, another precision's row of the data sheet. */
typedef struct {
  const char *key, *than, *times; /* times: NULL or a second figure */
  double most;
  const char *because;
} Limit;
static const Limit limits[] = {
    {"nic_Bps", "scaleup_Bps", NULL, 1, "the network is no faster than the link inside a domain"},
    {"nic_Bps", "host_link_Bps", NULL, 2.5, "NICs are reached through the host link"},
    {"host_link_Bps", "hbm_Bps", NULL, 1, "no link is faster than the memory behind it"},
    {"scaleup_Bps", "hbm_Bps", NULL, 1, "no link is faster than the memory behind it"},
    {"nic_Bps", "hbm_Bps", NULL, 1, "no link is faster than the memory behind it"},
    {"peak_bf16_flops", "hbm_Bps", NULL, 5000, "5000 FLOP per byte of memory are more than any device has"},
    {"hbm_Bps", "peak_bf16_flops", NULL, 2, "2 bytes of memory per FLOP are more than any device has"},
    {"peak_bf16_flops", "peak_fp8_flops", NULL, 1, "FP8 is no slower than BF16"},
    {"peak_fp8_flops", "peak_bf16_flops", NULL, 5, "FP8 is at most about twice as fast as BF16"},
    {"peak_fp8_flops", "peak_mxfp8_flops", NULL, 2.5, "both are FP8 products"},
    {"peak_mxfp8_flops", "peak_bf16_flops", NULL, 5, "MXFP8 is at most about twice as fast as BF16"},
    {"peak_nvfp4_flops", "peak_bf16_flops", NULL, 16, "NVFP4 is at most about seven times as fast as BF16"},
    {"peak_fp16_flops", "peak_bf16_flops", NULL, 5, "both are products of 16 bits"},
    {"peak_bf16_flops", "peak_fp16_flops", NULL, 5, "both are products of 16 bits"},
    {"peak_fp32_flops", "peak_bf16_flops", NULL, 2, "vector units in FP32 are no faster than products in BF16"},
    {"peak_bf16_flops", "sm_count", "clock_Hz", 32768, "no core does 32768 FLOP in a cycle"},
};

/* NaN: unknown. */
static double figure(const MsHardware *hardware, const char *key) {
  if (strcmp(key, "sm_count") == 0) return hardware->sm_count > 0 ? hardware->sm_count : NAN;
  return *(const double *)(const void *)((const char *)hardware + ms_field_find(&ms_hardware_table, key)->offset);
}

/* A domain of one has no link inside. Ranks that are cores of one CPU hand messages on through its cache, which is
 * faster than the memory behind it. */
static gboolean applies(const MsHardware *hardware, const Limit *l) {
  if (hardware->serial && strcmp(l->than, "hbm_Bps") == 0 && !strstr(l->key, "flops")) return FALSE;
  gboolean alone =
      hardware->nvlink_domain_gpus == 1 || (hardware->nvlink_domain_gpus == 0 && hardware->gpus_per_node == 1);
  return !alone || (strcmp(l->key, "scaleup_Bps") != 0 && strcmp(l->than, "scaleup_Bps") != 0);
}

static double most_of(const MsHardware *hardware, const Limit *l) {
  return l->most * figure(hardware, l->than) * (l->times ? figure(hardware, l->times) : 1);
}

static gboolean broken(const MsHardware *hardware, const Limit *l) {
  return applies(hardware, l) && figure(hardware, l->key) > most_of(hardware, l);
}

static const Limit *first_broken(const MsHardware *hardware, const char *key) {
  for (guint i = 0; i < G_N_ELEMENTS(limits); i++) {
    const Limit *l = &limits[i];
    gboolean about = !key || strcmp(l->key, key) == 0 || strcmp(l->than, key) == 0 || g_strcmp0(l->times, key) == 0;
    if (about && broken(hardware, l)) return l;
  }
  return NULL;
}

/* What `key` was probably meant to be: bits that were taken for bytes, or other powers of 1000, with which no limit is
 * broken. NULL: no idea. (transfer full) */
static char *meant(MsHardware *hardware, const char *key) {
  static const double factor[] = {1.0 / 8, 1e3, 1e-3, 1e6, 1e-6, 1e9, 1e-9};
  const MsField *field = ms_field_find(&ms_hardware_table, key);
  if (field->type != MS_T_F64) return NULL;
  double *member = (double *)(void *)((char *)hardware + field->offset), own = *member;
  char *text = NULL, number[32];
  for (guint i = 0; i < G_N_ELEMENTS(factor) && !text; i++) {
    gboolean bits = i == 0;
    if (bits && strcmp(field->unit, "Bps") != 0) continue;
    *member = own * factor[i];
    if (*member < field->lo || *member > field->hi || first_broken(hardware, key)) continue;
    text = bits ? g_strdup_printf("\"%sGb/s\"", ms_double_text(own / 1e9, number))
                : g_strdup(ms_double_text(*member, number));
  }
  *member = own;
  return text;
}

/* Of the figures that contradict each other the first that the file gives. */
static const char *blamed(const Limit *l, JsonObject *json) {
  const char *const keys[] = {l->key, l->than, l->times};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    if (keys[i] && json_object_has_member(json, keys[i])) return keys[i];
  return l->key;
}

static gboolean refuse(MsHardware *hardware, const Limit *l, const MsJson *doc, JsonObject *json, const char *path,
                       GError **error) {
  const char *key = blamed(l, json), *const keys[] = {l->key, l->than, l->times};
  g_autofree char *full = g_strdup_printf("%s%s%s", path, *path ? "." : "", key), *guess = meant(hardware, key);
  g_autoptr(GString) others = g_string_new(NULL);
  char number[32];
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    if (keys[i] && keys[i] != key)
      g_string_append_printf(others, "%s%s %s", others->len ? " and " : "", keys[i],
                             ms_double_text(figure(hardware, keys[i]), number));
  return ms_json_error(doc, full, error, "is %s beside %s: %s; %s%s", ms_double_text(figure(hardware, key), number),
                       others->str, l->because, guess ? guess : "one of them is wrong",
                       guess ? " was probably meant" : "");
}

/* Curves of collectives tell the bandwidth of a ring's step, which reduction in the switch at most doubles; those of
 * dispatchers the bytes of all copies, of which several share a crossing of the network. */
#define MOST_OF_LINK   2.0
#define MOST_OF_COPIES 4.0
static gboolean within_link(const MsHardware *hardware, int index, const MsJson *doc, const char *path,
                            GError **error) {
  const MsCurve *curve = &hardware->curves[index];
  const char *link = ms_curve_link(curve);
  double rate_Bps = link ? ms_curve_most_Bps(curve) : 0;
  double link_Bps = link ? figure(hardware, link) : NAN;
  if (!(rate_Bps > (curve->form == MS_FORM_SEGMENTS ? MOST_OF_LINK : MOST_OF_COPIES) * link_Bps)) return TRUE;
  g_autofree char *full = g_strdup_printf("%s%scurves[%d]", path, *path ? "." : "", index);
  char is[32], of[32];
  return ms_json_error(doc, full, error,
                       "reaches %s bytes/s on a link with %s of %s: %s was probably meant as its rate",
                       ms_double_text(rate_Bps, is), link, ms_double_text(link_Bps, of),
                       rate_Bps / 8 <= MOST_OF_LINK * link_Bps ? "an eighth (bits per second)" : "a smaller unit");
}

/* What a link carries per device and direction; its data sheets add both. A link that is not here is believed. */
static const struct {
  const char *name;
  double Bps;
} links[] = {{"NVLink2", 150e9}, {"NVLink3", 300e9}, {"NVLink4", 450e9}, {"NVLink5", 900e9}};

/* Of a machine's own file: what a scenario or a study changes is a question. */
static gboolean within_name(const MsHardware *hardware, const MsJson *doc, const char *path, GError **error) {
  if (*path) return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS(links); i++) {
    if (g_strcmp0(hardware->scaleup, links[i].name) != 0 || !(hardware->scaleup_Bps > links[i].Bps)) continue;
    char is[32], of[32];
    return ms_json_error(doc, "scaleup_Bps", error,
                         "is %s beside scaleup \"%s\": it carries %s in a direction, data sheets add both; \"%sGB/s\" "
                         "was probably meant, or another link, whose name \"scaleup\" gives",
                         ms_double_text(hardware->scaleup_Bps, is), links[i].name, ms_double_text(links[i].Bps, of),
                         ms_double_text(links[i].Bps / 1e9, (char[32]){0}));
  }
  return TRUE;
}

/* PyTorch counts no more devices in a process (c10/cuda/CUDAMacros.h, C10_COMPILE_TIME_MAX_GPUS; NVIDIA's driver 32 in
 * a host, nvlimits.h). A serial machine has cores in their place. */
#define MOST_DEVICES 120
static gboolean within_host(const MsHardware *hardware, const MsJson *doc, const char *path, GError **error) {
  if (hardware->serial || hardware->gpus_per_node <= MOST_DEVICES) return TRUE;
  g_autofree char *full = g_strdup_printf("%s%sgpus_per_node", path, *path ? "." : "");
  return ms_json_error(doc, full, error,
                       "is %d: one operating system has at most %d devices; how many are joined by the scale-up link "
                       "is nvlink_domain_gpus, how many there are is --gpus",
                       hardware->gpus_per_node, MOST_DEVICES);
}

gboolean ms_hardware_consistent(MsHardware *hardware, const MsJson *doc, JsonObject *json, const char *path,
                                GError **error) {
  const Limit *l = first_broken(hardware, NULL);
  if (l) return json && refuse(hardware, l, doc, json, path, error);
  if (!within_name(hardware, doc, path, error) || !within_host(hardware, doc, path, error)) return FALSE;
  int own = !json ? hardware->num_curves
            : json_object_has_member(json, "curves")
                ? (int)json_array_get_length(json_object_get_array_member(json, "curves"))
                : 0;
  for (int i = 0; i < own; i++)
    if (!within_link(hardware, i, doc, path, error)) return FALSE;
  return TRUE;
}
