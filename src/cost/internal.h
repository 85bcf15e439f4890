/* src/cost/internal.h - internal to cost/: what ms_cost_new prepares, and the two communication modules. */
#ifndef MS_COST_INTERNAL_H
#define MS_COST_INTERNAL_H

#include "cost/cost.h"
#include "cost/curve.h"

#include <math.h>

/* Figures of a data sheet may be holes. */
static inline gboolean known(double value) { return value > 0 && isfinite(value); }
static inline double or_else(double value, double fallback) { return known(value) ? value : fallback; }

/* Of the algorithms, not of any measurement. */
#define MS_TREE_HOP_STEPS 2.0 /* a tree hop over the network in ring steps: reduce, then forward */
#define MS_P2P_STEPS      2.0 /* start-up of a message over the network in ring steps: rendezvous, then data */
/* PAT in steps of a ring over the network, as NCCL's own model has it, and its share of the bus bandwidth (nccl
 * src/graph/tuning.cc, 2.27: 8 us, interLat / 3.5 for each doubling, 2.8 us for each rank; interLat 14 us; 0.75). */
#define MS_PAT_STEPS          (8 / 14.0)
#define MS_PAT_DOUBLING_STEPS (1 / 3.5)
#define MS_PAT_RANK_STEPS     (2.8 / 14)
#define MS_PAT_BUS            0.75
/* Of NCCL's protocols where its plugin tells a latency, as NCCL's own model has them (src/graph/tuning.cc, 2.30):
 * Simple waits for a flush, too; LL128 has 120 of 128 bytes of data, a ring of it 0.92 in all, and a step of 1.9 us
 * inside, 4 over the network. A tree gets 0.92 of a ring, from Hopper on 0.85 of that: where a GPU has a NIC of its
 * own, all of a tree passes one GPU (src/graph/search.cc, "Try a simpler tree"). */
#define MS_SIMPLE_HOPS  2.0
#define MS_LL128        (120.0 / 128)
#define MS_LL128_RING   0.92
#define MS_LL128_STEP_S 1.9e-6
#define MS_LL128_HOP_S  4e-6
#define MS_TREE_BUS     0.92
#define MS_ONE_GPU_BUS  0.85

/* Curves of a machine that has none. */
typedef enum {
  MS_FALLBACK_GEMM,
  MS_FALLBACK_GROUPED,
  MS_FALLBACK_ATTENTION,
  MS_FALLBACK_MEMORY,
  MS_FALLBACK_DELTA,
  MS_FALLBACK_SPARSE_BACKWARD,
  MS_N_FALLBACKS
} MsFallback;
void ms_fallback_curves(const MsLaws *laws, MsCurve curve[MS_N_FALLBACKS]);

/* A few straight lines alpha + bytes / Bps, the smallest counts. */
typedef struct {
  int n;
  double alpha_s[4], Bps[4];
  const MsCurve *curve; /* NULL: defaults */
  double band;
} MsLines;

double ms_network_Bps(const MsHardware *hardware,
                      const MsGroup *group); /* NIC rate after oversubscription, without efficiency */
/* The curve of "dispatch" or "combine", level and dispatcher (NULL: any) measured on the most similar number of ranks;
 * NULL: none. (transfer none) */
const MsCurve *ms_dispatch_curve(const MsHardware *hardware, const char *op, const char *level, const char *dispatcher,
                                 int ranks);

/* Channels over the network to one peer of a group; those of a ring of the group, and of a pairwise exchange, to each
 * NIC: what shares a NIC has its parts of it. Alike where nobody has counted them (MsCollectivesRow.channels). */
int ms_message_channels(const MsHardware *hardware, const MsGroup *group);
int ms_ring_channels(const MsHardware *hardware, const MsGroup *group);
int ms_exchange_channels(const MsHardware *hardware);
/* What all channels to one peer move at most; INFINITY: nobody has counted them. */
double ms_message_Bps(const MsScenario *scenario, const MsGroup *group);

/* A collective on one group, prepared. */
typedef struct {
  MsGroup group;
  MsLines scaleup; /* the collective itself over `per_domain` ranks (over all of them when there is one domain) */
  MsLines scatter, gather; /* of an all-reduce: inside a domain, the outer phases of a hierarchical one */
  MsLines network;
  double link_Bps, nic_Bps;
  gboolean nvls, sharp;
  double tree_over_ring, pat_over_ring; /* of what a fabric slows them by; 1 without */
  gboolean pat, halves, servers;        /* ms_pattern_serves, and whose rings */
  gboolean doubles, nhr;                /* HCCL: in rounds, of any eight servers and more too; NHR besides the ring */
  double a2a_steps, a2a_peer_s;         /* start-up of an all-to-all: ring steps, and for each remote peer */
  gboolean own_first;                   /* peers of the own domain come first in an all-to-all */
  double hop_s;                         /* MsHardware.network_latency_s, what leaves a domain takes longer by */
  guint16 sms;
} MsCollective;

typedef enum { MS_COLL_AG, MS_COLL_RS, MS_COLL_AR, MS_COLL_A2A, MS_COLL_P2P, MS_N_COLL } MsCollKind;
/* `dtype` of the messages: of curves that differ in nothing else, its own serves, else one of no or of another dtype.
 */
MsCollective ms_collective_prepare(const MsScenario *scenario, MsCollKind kind, const char *dtype,
                                   const MsGroup *group);
/* On a fabric where its messages take so many times as long; what passes a tree, or goes by PAT, apart. All 1: nothing
 * changes. */
void ms_collective_slow(MsCollective *collective, double network, double tree, double pat, double scaleup);
/* `local_fraction` <= 0: 1 / ranks. `ring`: an all-reduce in the order of a ring, NCCL_ALGO=Ring; inside a domain as
 * long as its two halves. */
MsOpCost ms_collective_s(const MsCollective *collective, MsCollKind kind, double message_B, double local_fraction,
                         gboolean ring);

/* The collective that a row is or, of a crossing of the expert group, that carries it. */
MsCollKind ms_collective_of(MsOpKind kind, MsCarry carry);

/* A dispatcher of MS_CARRY_ONCE on one group, prepared. */
typedef struct {
  MsGroup group;
  MsCurve scaleup, network; /* copies (without grid) of the curves, or the defaults */
  const MsCurve *scaleup_from, *network_from;
  gboolean scaleup_lent, network_lent; /* of another dispatcher */
  double own_domain,
      own_network; /* factor from bytes that leave to bytes that the fits count (own rank, own domain included) */
  double link_Bps, nic_Bps;
  guint16 sms;
  double unknown_band; /* where there is no curve */
  double beside_sms; /* as many SMs as its own are worth over the network beside compute; 0: the exchange is slowed as a
                        whole, if at all */
} MsDispatch;
MsDispatch ms_dispatch_prepare(const MsScenario *scenario, gboolean combine, const MsGroup *group);
void ms_dispatch_slow(MsDispatch *dispatch, double network, double scaleup); /* as ms_collective_slow */
/* `tokens` rows of `row_B` bytes are sent; 0 when that is not known. */
MsOpCost ms_dispatch_s(const MsDispatch *dispatch, double message_B, double tokens, double row_B,
                       const double level_B[2]);

#endif
