/* src/cluster/sharing.h - collectives of one job that meet on the links of a fabric.
 *
 * Each kind of collective (groups and pattern) moves at one speed, its share of what a NIC moves, and loads every link
 * in proportion. Speeds of the kinds that run beside each other are max-min fair: all grow alike until a link is full;
 * the kinds on it stay, the others grow on. Where nothing but NICs is full k of them have a k-th each, as without a
 * fabric. */
#ifndef MS_CLUSTER_SHARING_H
#define MS_CLUSTER_SHARING_H

#include "cluster/walk.h"

typedef struct {
  int n; /* kinds */
  struct {
    guint8 group, pattern;
  } kind[MS_SHARING_CLASSES]; /* MsGroupKind, MsPattern */
  guint32 n_links;
  double *Bps;                          /* [n_links] what a link can carry; owned */
  double *load_Bps[MS_SHARING_CLASSES]; /* [n_links] of a kind at speed 1; owned */
  double alone[MS_SHARING_CLASSES];     /* speed of a kind that has the fabric to itself */
} MsLinkSharing;

/* The kinds that send over the network in the step; of[tasks]: the kind of each task, MS_SHARING_NONE for the others.
 * FALSE and *error for more kinds or flows than can be held. */
gboolean ms_link_sharing_new(const MsScenario *scenario, const MsDetail *detail, MsLinkSharing *sharing, guint8 *of,
                             GError **error);
void ms_link_sharing_clear(MsLinkSharing *sharing);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MsLinkSharing, ms_link_sharing_clear)

/* Speed of one collective of each kind while running[n] of each run. */
void ms_link_sharing_speeds(const MsLinkSharing *sharing, const guint8 *running, double *speed);

/* When the tasks of the step run where collectives share links so. (transfer full); NULL and *error as above. */
MsTrajectory *ms_shared_step(const MsScenario *scenario, const MsDetail *detail, GError **error);

#endif
