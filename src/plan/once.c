/* src/plan/once.c - what a cut is measured by beside the passes. What a GPU does once a step for the layers that it
 * has: gradients sent, parameters updated, on the host where that is asked for; and the pace of the host that issues
 * them. Estimates for the choice of a cut; the bound and the simulation of what was chosen know better. */
#include "plan/once_priv.h"
#include "base/units.h"
#include "describe/framework.h"
#include "layout/layout.h"
#include <math.h>

/* Below this share of a layer's microbatches it moves no layer. */
#define NEGLIGIBLE 0.08

/* What collectives and the optimizer reach of the rates of links and memory. */
#define REACHED 0.8

/* Bytes for a parameter, its gradient sent; zeroed and scaled; and of a shard: Adam on the device, and on the host with
 * the two copies over the link that feeds it (src/work/step.c, with states in FP32). */
enum { SENT_B = 4, WHOLE_B = 12, DEVICE_B = 34, HOST_B = 36 };

typedef struct {
  double sent, updated, tensor; /* seconds for a parameter, and for a tensor */
} Rate;

/* Of a group whose neighbours are `stride` ranks apart. Gradients are sent in FP32 beside the last backwards, to ranks
 * that share the optimizer, whatever the request says: keys that say otherwise may be open when a cut is made, and a
 * list of their values is to find what each of them finds alone. The share of the host is settled by then. Operators of
 * the framework: docs/theory/host.md. */
static Rate rate_of(const MsScenario *s, double size, double stride) {
  const MsHardware *hw = s->hardware;
  double members = CLAMP(floor(ms_gpus_per_domain(hw, s->gpus) / stride), 1, MAX(1, size)),
         link_Bps = members >= size ? hw->scaleup_Bps : MIN(hw->scaleup_Bps, hw->nic_Bps * members),
         host = s->options.optimizer_offload_fraction, shards = MAX(1, size),
         operators = ms_framework(s)->steps_one_by_one ? s->laws.optimizer_operators : 0,
         updated = (WHOLE_B + (1 - host) * DEVICE_B / shards) / (REACHED * hw->hbm_Bps);
  if (host > 0) updated += host * HOST_B / shards / ms_hardware_host_Bps(hw);
  return (Rate){size > 1 ? SENT_B * (1 - 1 / size) / (REACHED * link_Bps) : 0, updated,
                operators * ms_operator_s(s) / shards};
}

/* What pieces do once a step for each parameter and each tensor, in units of `unit` seconds. */
static MsLayerCosts *times_of(const MsLayerCosts *c, Rate dense, Rate expert, gboolean updated, double unit) {
  MsLayerCosts *t = ms_layer_costs_blank(c->layers);
  for (int i = 0; i < ms_layer_costs_count(t); i++) {
    double dense_params = *ms_layer_cost(c->dense, i), expert_params = *ms_layer_cost(c->expert, i),
           sum = updated ? dense_params * dense.updated + expert_params * expert.updated +
                               *ms_layer_cost(c->dense_tensors, i) * dense.tensor +
                               *ms_layer_cost(c->expert_tensors, i) * expert.tensor
                         : dense_params * dense.sent + expert_params * expert.sent;
    *ms_layer_cost(t, i) = sum / unit;
  }
  return t;
}

static double largest(MsLayerCosts *t) {
  double most = 0;
  for (int i = 0; i < ms_layer_costs_count(t); i++) most = MAX(most, *ms_layer_cost(t, i));
  return most;
}

/* The scale to a factor of two, pieces to an eighth of the last layer: many layouts share a cut. */
static void round_times(MsLayerCosts *t) {
  double most = largest(t), unit = t->layer[t->layers - 1] > 0 ? t->layer[t->layers - 1] : most;
  if (!(unit > 0)) return;
  double scale = exp2(nearbyint(log2(unit)));
  for (int i = 0; i < ms_layer_costs_count(t); i++) {
    double *x = ms_layer_cost(t, i);
    *x = scale * nearbyint(8 * *x / unit) / 8;
  }
}

MsOnce *ms_once_new(const MsLayerCosts *c, const MsScenario *s, double microbatches) {
  const MsLayoutSpec *l = &s->layout;
  double unit = c->layer[c->layers - 1] / MS_PS_PER_S, ranks = (double)s->gpus / l->pp;
  if (!c->dense || !(unit > 0)) return NULL;
  Rate dense = rate_of(s, ranks / l->tp, l->tp),
       expert = rate_of(s, ranks / ((double)l->etp * l->ep), (double)l->etp * l->ep);
  MsOnce *once = g_new0(MsOnce, 1);
  once->sent = times_of(c, dense, expert, FALSE, unit), once->updated = times_of(c, dense, expert, TRUE, unit);
  double most = largest(once->sent) + largest(once->updated);
  if (!(most > NEGLIGIBLE * microbatches) || isinf(most)) return ms_once_free(once), NULL; /* or not known */
  round_times(once->sent), round_times(once->updated);
  return once;
}

/* A 16th of the last layer: many layouts share a cut. */
static double in_units(double ps, double unit) {
  enum { PARTS = 16 };
  return nearbyint(PARTS * ps / unit) / PARTS;
}

static MsLayerCosts *all_in_units(MsLayerCosts *c, double unit) {
  MsLayerCosts *t = ms_layer_costs_blank(c->layers);
  for (int i = 0; i < ms_layer_costs_count(t); i++) *ms_layer_cost(t, i) = in_units(*ms_layer_cost(c, i), unit);
  return t;
}

static gboolean is_slow(const MsPassCosts *pass) {
  gboolean slow = FALSE;
  for (int i = 0; pass && i < pass->host->layers; i++) slow |= pass->host->layer[i] > pass->device->layer[i];
  return slow;
}

MsPace *ms_pace_new(const MsLayerCosts *c) {
  if (!is_slow(c->pass[0]) && !is_slow(c->pass[1])) return NULL;
  double unit = c->layer[c->layers - 1];
  MsPace *pace = g_new0(MsPace, 1);
  for (int back = 0; back < 2; back++) {
    const MsPassCosts *pass = c->pass[back];
    pace->device[back] = all_in_units(pass->device, unit), pace->host[back] = all_in_units(pass->host, unit);
    pace->late[back] = in_units(pass->late, unit), pace->early[back] = in_units(pass->early, unit);
  }
  pace->bare = ms_layer_costs_blank(c->layers);
  for (int i = 0; i < ms_layer_costs_count(pace->bare); i++)
    *ms_layer_cost(pace->bare, i) = *ms_layer_cost(pace->device[0], i) + *ms_layer_cost(pace->device[1], i);
  return pace;
}

void ms_pace_free(MsPace *pace) {
  if (!pace) return;
  ms_layer_costs_free(pace->bare);
  for (int back = 0; back < 2; back++) ms_layer_costs_free(pace->device[back]), ms_layer_costs_free(pace->host[back]);
  g_free(pace);
}

void ms_once_free(MsOnce *once) {
  if (!once) return;
  ms_layer_costs_free(once->sent);
  ms_layer_costs_free(once->updated);
  g_free(once);
}

/* What a layer takes of a step when nothing hides anything. */
MsLayerCosts *ms_once_with(const MsOnce *once, MsLayerCosts *c, double microbatches) {
  MsLayerCosts *t = ms_layer_costs_blank(c->layers);
  for (int i = 0; i < ms_layer_costs_count(t); i++)
    *ms_layer_cost(t, i) =
        microbatches * *ms_layer_cost(c, i) + *ms_layer_cost(once->sent, i) + *ms_layer_cost(once->updated, i);
  return t;
}
