/* src/cost/channels.c - how many connections NCCL gives a message, and what passes beside it.
 *
 * NCCL src/graph/connect.cc, 2.18 to 2.29: one channel for each NIC that a search finds, twice as many for all, and
 * twice again on links of more than 45 GB/s, as long as there are fewer than 16 ("Use 4 compute channels per search
 * channel to reach peak BW on <8 PPN"). src/graph/paths.cc, ncclTopoGetNchannels: a message has two, one where 2 N
 * ranks are more than four times those channels. nccl-tests' sendrecv_perf shows it on eight B200 a node with NICs of
 * 400 Gbit/s (NCCL 2.29.7): 44 GB/s among 32 ranks, 26 among 64. */
#include "cost/internal.h"
#include <math.h>

enum { SEARCHED = 2, FAST = 4, MOST = 16, TO_A_PEER = 2 };
static const double fast_Bps = 45e9;

static gboolean counted(const MsHardware *hardware) { return ms_collectives_rows[hardware->collectives].channels; }

static int of_one_nic(const MsHardware *hardware) { return hardware->nic_Bps > fast_Bps ? FAST : SEARCHED; }

static int of_group(const MsHardware *hardware, const MsGroup *group) {
  return MIN(of_one_nic(hardware) * MAX(group->per_domain, 1), MOST);
}

int ms_message_channels(const MsHardware *hardware, const MsGroup *group) {
  return counted(hardware) && TO_A_PEER * group->size > 4 * of_group(hardware, group) ? 1 : TO_A_PEER;
}

double ms_message_Bps(const MsScenario *scenario, const MsGroup *group) {
  if (!counted(scenario->hardware)) return INFINITY;
  return scenario->laws.message_channel_Bps * ms_message_channels(scenario->hardware, group);
}

int ms_ring_channels(const MsHardware *hardware, const MsGroup *group) {
  if (!counted(hardware)) return TO_A_PEER;
  return MAX(of_group(hardware, group) / MAX(group->per_domain, 1), 1);
}

int ms_exchange_channels(const MsHardware *hardware) { return counted(hardware) ? of_one_nic(hardware) : TO_A_PEER; }
