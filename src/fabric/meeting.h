/* src/fabric/meeting.h - collectives of one job that meet on the links of a fabric.
 *
 * Each kind of collective (groups and pattern) moves at one speed, its share of what a NIC moves, and loads every link
 * in proportion. Speeds of the kinds that run beside each other are max-min fair: all grow, each as fast as it has
 * parts, until a link is full; the kinds on it stay, the others grow on. Where nothing but NICs is full each has its
 * parts of theirs, as without a fabric. */
#ifndef MS_FABRIC_MEETING_H
#define MS_FABRIC_MEETING_H

#include "fabric/pattern.h"

enum { MS_MEETING_KINDS = 16 }; /* at most */
typedef struct {
  guint8 group, pattern; /* MsGroupKind, MsPattern */
  guint8 parts;          /* of a link, of the parts of all that share it: its connections to a NIC */
} MsMeetingKind;

typedef struct {
  int n; /* kinds */
  MsMeetingKind kind[MS_MEETING_KINDS];
  guint32 n_links;                    /* that kinds load; of those which all load alike one */
  double *Bps;                        /* [n_links] what a link can carry; owned */
  double *load_Bps[MS_MEETING_KINDS]; /* [n_links] of a kind at speed 1; owned */
  double alone[MS_MEETING_KINDS];     /* speed of a kind that has the fabric to itself; INFINITY: it loads no link */
} MsMeeting;

/* NULL and *error for more flows than can be held. At most MS_MEETING_KINDS kinds. (transfer full) */
MsMeeting *ms_meeting_new(const MsFabricGraph *graph, const MsLayout *layout, const MsMeetingKind *kind, int n,
                          GError **error);
/* Without a fabric: a NIC is all that is shared. (transfer full) */
MsMeeting *ms_meeting_of_nic(const MsMeetingKind *kind, int n);
void ms_meeting_free(MsMeeting *meeting);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsMeeting, ms_meeting_free)

/* Speed of one collective of each kind while running[n] of each run. */
void ms_meeting_speeds(const MsMeeting *meeting, const guint8 *running, double *speed);
/* The same over what it has alone: rate[MS_MEETING_KINDS], 1 of those that do not run. */
void ms_meeting_rates(const MsMeeting *meeting, const guint8 *running, double *rate);

#endif
