/* src/logs/goal.h - GOAL schedules (LogGOPSim, ATLAHS): read, and run on links of one latency and two rates.
 *
 * The model is LogGP's without its gap between messages: a cpu does one operation after the other, first come first
 * served; a rank's port sends, and receives, one message after the other; of a message that begins at t the last byte
 * is there at t + latency + bytes / rate, later where the ports are taken. A reception ends when the last byte is there
 * and the reception has begun. */
#ifndef MS_LOGS_GOAL_H
#define MS_LOGS_GOAL_H

#include <glib.h>

typedef struct {
  double latency_s;
  double inside_Bps, between_Bps; /* of a rank, one direction: to ranks of its node, to others; INFINITY: no limit */
  int node_ranks;                 /* neighbours that share a node */
} MsGoalLinks;

typedef struct {
  int ranks;
  guint64 operations, messages; /* messages: sends, each with its reception */
  double bytes_B;               /* of all messages */
  double end_s, calc_s;         /* when the last operation ends; the most that one cpu of a rank calculates */
  int last_rank;                /* that ends last, the first of several */
} MsGoalRun;

/* FALSE and an MS_ERROR_INPUT with the line of what is wrong: words, ranks, labels, circles, messages that nobody sends
 * or receives. */
gboolean ms_goal_run(const char *text, const char *file, const MsGoalLinks *links, MsGoalRun *run, GError **error);

#endif
