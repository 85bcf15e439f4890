/* src/cost/dispatch.c - DeepEP and HybridEP: de-duplicated two-level dispatch and combine
 * (docs/theory/communication.md 5.3-5.5).
 *
 * alpha + max(bytes over the scale-up link, bytes over the network), each at the rate of its SMs or of its link. */
#include "cost/internal.h"

#include <math.h>

/* docs/theory/communication.md 5.4: the option, else the profile, else the dispatcher's own rule. */
static int sms_of(const MsScenario *scenario, const MsGroup *group) {
  if (scenario->options.dispatcher_num_sms > 0) return scenario->options.dispatcher_num_sms;
  return ms_dispatcher_sms(ms_dispatcher(&scenario->options), scenario->hardware, group->domains > 1);
}

/* Its strings and its grid stay the profile's. */
static MsCurve curve_or_default(const MsCurve *curve, double alpha_s, double per_sm_Bps, double link_Bps,
                                double cap_Bps) {
  MsCurve copy = curve ? *curve : (MsCurve){.form = MS_FORM_DISPATCH, .param = {alpha_s, per_sm_Bps, link_Bps}};
  if (cap_Bps > 0) copy.param[MS_D_LINK] = MIN(copy.param[MS_D_LINK], cap_Bps);
  return copy;
}

/* Its own, or one that its row does not name: how far that is off is not known. */
static const MsCurve *find(const MsScenario *scenario, const char *op, const char *level, int ranks, gboolean *lent) {
  const char *own = ms_dispatcher(&scenario->options)->curves;
  const MsCurve *curve = ms_dispatch_curve(scenario->hardware, op, level, own, ranks);
  if (!curve) curve = ms_dispatch_curve(scenario->hardware, op, level, NULL, ranks);
  *lent = curve && curve->dispatcher && g_strcmp0(curve->dispatcher, own) != 0;
  return curve;
}

/* SMs that load and store every row take longer for it while compute keeps the memory busy, less so where
 * memory is faster. */
static double beside_sms(const MsScenario *scenario, double sms) {
  double hbm_Bps = scenario->hardware->hbm_Bps;
  if (ms_dispatcher(&scenario->options)->movers != MS_MOVED_BY_SMS || !(hbm_Bps > 0)) return 0;
  return sms / (1 + scenario->laws.crowded_deepep * MS_CROWDED_HBM_BPS / hbm_Bps);
}

MsDispatch ms_dispatch_prepare(const MsScenario *scenario, gboolean combine, const MsGroup *group) {
  const MsHardware *hardware = scenario->hardware;
  const char *op = ms_op_words[combine ? MS_OP_COMBINE : MS_OP_DISPATCH];
  const MsLaws *laws = &scenario->laws;
  MsDispatch d = {.group = *group, .link_Bps = hardware->scaleup_Bps, .nic_Bps = ms_network_Bps(hardware, group)};
  if (group->size <= 1) return d;
  double Nd = MAX(group->per_domain, 1), D = MAX(group->domains, 1);
  d.unknown_band = laws->default_network_band;
  d.sms = (guint16)CLAMP(sms_of(scenario, group), 1, 1024);
  d.beside_sms = D > 1 ? beside_sms(scenario, d.sms) : 0;
  d.scaleup_from = find(scenario, op, "nvlink", group->per_domain, &d.scaleup_lent);
  d.network_from = D > 1 ? find(scenario, op, "network", group->size, &d.network_lent) : NULL;
  d.own_domain = Nd > 1 ? Nd / (Nd - 1) : 1;
  d.own_network = D > 1 ? D / (D - 1) : 1;
  d.scaleup =
      curve_or_default(d.scaleup_from, laws->default_dispatch_alpha_s, laws->default_dispatch_sm_Bps,
                       laws->default_dispatch_link_share * d.link_Bps * d.own_domain, d.link_Bps * d.own_domain);
  d.network =
      curve_or_default(d.network_from, laws->default_dispatch_network_alpha_s, laws->default_dispatch_network_sm_Bps,
                       laws->network_share * d.nic_Bps * d.own_network, d.nic_Bps * d.own_network);
  return d;
}

void ms_dispatch_slow(MsDispatch *d, double network, double scaleup) {
  d->network.param[MS_D_LINK] /= network, d->scaleup.param[MS_D_LINK] /= scaleup;
}

MsOpCost ms_dispatch_s(const MsDispatch *d, double message_B, double tokens, double row_B, const double level_B[2]) {
  double z = d->group.size, Nd = MAX(d->group.per_domain, 1);
  if (z <= 1) return (MsOpCost){0};
  double inside_B = level_B[0], outside_B = d->group.domains > 1 ? level_B[1] : 0;
  if (!(inside_B > 0 || outside_B > 0)) {
    inside_B = message_B * (Nd - 1) / z;
    outside_B = d->group.domains > 1 ? message_B * (z - Nd) / z : 0;
  }
  inside_B = Nd > 1 ? MAX(inside_B, 0) : 0;
  double inside_s = Nd > 1 ? ms_curve_dispatch_s(&d->scaleup, inside_B * d->own_domain, tokens, row_B, d->sms) : 0;
  double outside_s =
      d->group.domains > 1 ? ms_curve_dispatch_s(&d->network, outside_B * d->own_network, tokens, row_B, d->sms) : 0;
  double slowed_s = d->beside_sms > 0
                        ? ms_curve_dispatch_s(&d->network, outside_B * d->own_network, tokens, row_B, d->beside_sms)
                        : 0;
  double lower = MAX(Nd > 1 ? inside_B / d->link_Bps : 0, d->group.domains > 1 ? outside_B / d->nic_Bps : 0);
  gboolean network = outside_s >= inside_s, lent = network ? d->network_lent : d->scaleup_lent;
  const MsCurve *curve = network ? d->network_from : d->scaleup_from;
  return (MsOpCost){.time_s = MAX(MAX(inside_s, outside_s), lower),
                    .beside_s = slowed_s,
                    .lower_s = lower,
                    .sms = d->sms,
                    .level = d->group.domains > 1,
                    .curve = curve,
                    .band = ms_curve_band(lent ? NULL : curve, d->unknown_band)};
}
