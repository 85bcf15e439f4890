/* src/cost/internal.h - internal to cost/: what ms_cost_new prepares, and the two communication modules. */
#ifndef MS_COST_INTERNAL_H
#define MS_COST_INTERNAL_H

#include "cost/cost.h"
#include "cost/curve.h"

/* Figures used where a profile has no curve. One place, so that they can be quoted. Sources: medians of the fitted
 * machines (docs/theory/costs.md 2, 3, 4, 6), and 5 for memory-bound kernels. */
#define MS_DEFAULT_BAND              0.20
#define MS_DEFAULT_NETWORK_BAND      0.25
#define MS_DEFAULT_MEMORY_EFFICIENCY 0.8
#define MS_DEFAULT_MEMORY_LAUNCH_S   3e-6
#define MS_DEFAULT_LINK_EFFICIENCY   0.75 /* bus bandwidth of a collective over the scale-up link's rate */
#define MS_DEFAULT_LINK_ALPHA_S      10e-6
#define MS_DEFAULT_NIC_EFFICIENCY    0.95
#define MS_DEFAULT_RING_STEP_S       4.5e-6 /* network ring step: SimAI tables, docs/theory/costs.md 6 */
#define MS_DEFAULT_P2P_ALPHA_S       16e-6
#define MS_TREE_HOP_STEPS            2.0 /* a tree hop over the network in ring steps: reduce, then forward */
/* start-up of a message over the network in ring steps: rendezvous, then data */
#define MS_P2P_STEPS 2.0
#define MS_A2A_STEPS                                                                               \
  4.0 /* start-up of an all-to-all over the network (~20 us, constant in nodes in SimAI's tables), \
       */
#define MS_A2A_PEER_S 0.5e-6 /* and issue time per remote peer */
/* Exchanges over the network beside compute of another microbatch, on memory of 3.35 TB/s.
 * DeepEP: how many times as long an SM of its kernels takes for the same bytes, less one; the NIC is as fast as before,
 * so that an exchange is slowed as much as its SMs hold it up. Qwen3-235B on 16 ranks of B200 with 20 SMs (their limit
 * alone) loses most, DeepSeek-V3 on 64 ranks (the NIC's) least (scenarios/published). DeepSeek's profile of an
 * overlapped step (H800, 64 ranks; measurements/trace_dsv3_h800_kernels): the four crossings of a layer pair take 20.1
 * ms, and 28.3 with waits for other ranks, where DeepEP alone takes 12.8 (docs/theory/communication.md 5.5): 1.6
 * and 2.2 times; 1.8 by this. HybridEP and all-to-all: a share of their time alone. HybridEP's data movers are few and
 * asynchronous copies; two runs with it ask for 0.9 at most and for 1.9. All-to-all: Qwen3-235B and Qwen3-30B on H100.
 */
#define MS_CROWDED_DEEPEP_SMS                  2.7
#define MS_CROWDED_HYBRIDEP                    0.9
#define MS_CROWDED_COLLECTIVE                  0.35
#define MS_CROWDED_HBM_BPS                     3.35e12
#define MS_DEFAULT_HOST_COPY_S                 5e-6 /* start of one copy engine transfer */
#define MS_DEFAULT_NCCL_SMS                    20
#define MS_P2P_SMS                             2
#define MS_DEFAULT_DISPATCH_ALPHA_S            40e-6
#define MS_DEFAULT_DISPATCH_NETWORK_ALPHA_S    60e-6
#define MS_DEFAULT_DISPATCH_PER_SM_BPS         15e9 /* scale-up payload that one SM moves */
#define MS_DEFAULT_DISPATCH_PER_SM_NETWORK_BPS 5e9
#define MS_DEFAULT_DISPATCH_LINK_EFFICIENCY    0.7

/* A few straight lines alpha + bytes / Bps, the smallest counts. */
typedef struct {
  int n;
  double alpha_s[4], Bps[4];
  const MsCurve *curve; /* NULL: defaults */
  double band;
} MsLines;

double ms_network_Bps(const MsHardware *hardware,
                      const MsGroup *group); /* NIC rate after oversubscription, without efficiency */
const MsCurve *ms_curve_nearest(const MsHardware *hardware, const char *op, const char *level, const char *dispatcher,
                                MsCurveForm form, int ranks);
double ms_curve_band(const MsCurve *curve, double fallback);

/* A collective on one group, prepared. */
typedef struct {
  MsGroup group;
  MsLines scaleup; /* the collective itself over `per_domain` ranks (over all of them when there is one domain) */
  MsLines scatter,
      gather; /* reduce-scatter and all-gather inside a domain: the outer phases of a hierarchical all-reduce */
  MsLines network;
  double link_Bps, nic_Bps;
  gboolean nvls, sharp;
  guint16 sms;
} MsCollective;

enum { MS_COLL_FIRST = MS_OP_ALL_GATHER }; /* all_gather reduce_scatter all_reduce all_to_all, then p2p */
typedef enum { MS_COLL_AG, MS_COLL_RS, MS_COLL_AR, MS_COLL_A2A, MS_COLL_P2P, MS_N_COLL } MsCollKind;
/* `dtype` of the messages: of curves that differ in nothing else, its own serves, else one of no or of another dtype.
 */
MsCollective ms_collective_prepare(const MsHardware *hardware, MsCollKind kind, const char *dtype,
                                   const MsGroup *group);
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
  double own_domain,
      own_network; /* factor from bytes that leave to bytes that the fits count (own rank, own domain included) */
  double link_Bps, nic_Bps;
  guint16 sms;
  double beside_sms; /* as many SMs as its own are worth over the network beside compute; 0: the exchange is slowed as a
                        whole, if at all */
} MsDispatch;
MsDispatch ms_dispatch_prepare(const MsScenario *scenario, gboolean combine, const MsGroup *group);
/* `tokens` rows of `row_B` bytes are sent; 0 when that is not known. */
MsOpCost ms_dispatch_s(const MsDispatch *dispatch, double message_B, double tokens, double row_B,
                       const double level_B[2]);

#endif
