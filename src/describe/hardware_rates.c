/* src/describe/hardware_rates.c - a rate of a machine is changed: the curves measured at it follow. */
#include "base/err.h"
#include "describe/hardware.h"

#include <math.h>
#include <string.h>

/* A curve of no level is one of the scale-up link, as in cost/. */
const char *ms_curve_link(const MsCurve *curve) {
  if (curve->form != MS_FORM_SEGMENTS && curve->form != MS_FORM_DISPATCH) return NULL;
  return g_strcmp0(curve->level, "network") == 0 ? "nic_Bps" : "scaleup_Bps";
}

/* Index of the parameter link_Bps of the form "dispatch"; what one SM moves (per_sm_Bps) does not depend on the link.
 */
static int link_parameter(void) {
  const char *const *words = ms_curve_param_words[MS_FORM_DISPATCH];
  int i = 0;
  while (strcmp(words[i], "link_Bps") != 0) i++;
  return i;
}

double ms_curve_most_Bps(const MsCurve *curve) {
  double most_Bps = curve->form == MS_FORM_DISPATCH ? curve->param[link_parameter()] : 0;
  for (int i = 0; i < curve->n_segments; i++) most_Bps = fmax(most_Bps, curve->segment_Bps[i]);
  return most_Bps;
}

static void scale_bandwidth(MsCurve *curve, double factor) {
  for (int i = 0; i < curve->n_segments; i++) curve->segment_Bps[i] *= factor;
  if (curve->form == MS_FORM_DISPATCH) curve->param[link_parameter()] *= factor;
}

static void note(MsCurve *curve, const char *what) {
  const char *before = curve->provenance.note;
  ms_curve_take_note(curve, g_strconcat(before ? before : "", before ? "; " : "", what, NULL));
}

void ms_curves_follow_link(MsHardware *hardware, int first, const char *key, double from_Bps, double to_Bps) {
  if (!(from_Bps > 0 && to_Bps > 0) || from_Bps == to_Bps) return;
  MsCurve *curves = ms_curves_own(hardware, 0);
  g_autofree char *what =
      g_strdup_printf("bandwidth scaled with %s, measured at %.4g, now %.4g", key, from_Bps, to_Bps);
  for (int i = first; i < hardware->num_curves; i++) {
    if (g_strcmp0(ms_curve_link(&curves[i]), key) != 0) continue;
    scale_bandwidth(&curves[i], to_Bps / from_Bps);
    note(&curves[i], what);
  }
}

void ms_hardware_scale(MsHardware *hardware, const char *key, double factor) {
  const MsField *field = ms_field_find(&ms_hardware_table, key);
  if (!field || field->type != MS_T_F64 || !(factor > 0)) MS_BUG("cannot scale %s of a machine by %g", key, factor);
  double *member = (double *)(void *)((char *)hardware + field->offset), before = *member;
  *member *= factor;
  if (strcmp(key, "nic_Bps") == 0 || strcmp(key, "scaleup_Bps") == 0)
    ms_curves_follow_link(hardware, 0, key, before, *member);
}
