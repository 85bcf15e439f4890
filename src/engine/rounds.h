/* src/engine/rounds.h - the state of the event engine, and rounds of the graph that it leaves out (rounds.c). Private
 * to the engine. */
#ifndef MS_ENGINE_ROUNDS_H
#define MS_ENGINE_ROUNDS_H

#include "engine/engine_priv.h"

#define NEVER    G_MAXINT64
#define NONE     G_MAXUINT32
#define NOT_DONE (-1) /* in end[]: no waiters; -2 - s: stream s waits, and Stream.next_waiter goes on */

typedef enum { WAITING, STARTING, RUNNING } StreamState;

typedef struct {
  guint32 head;       /* the task at the head, NONE at the end */
  guint32 wait_at;    /* its next explicit wait to look at */
  gint64 next_waiter; /* what end[] of the task that it waits for held before */
  MsTime ready;       /* latest of what it waited for so far */
  gint32 by;
  guint8 state, waits_for_host, fresh; /* fresh: began just now, has no event yet */
  guint8 use;
  MsTime remaining, since; /* work left at `since`, in picoseconds at full speed */
} Stream;

typedef struct {
  gint64 num, den;
} Rate; /* speed of the tasks of one use; 1 is {1, 1} */

enum { N_RATES = MS_N_USES + MS_SHARING_CLASSES }; /* a class is one more use */

typedef struct {
  Rate rate[N_RATES];
  guint64 load, rated; /* that the rates are of: load_of, classes */
  guint64 classes;     /* four bits each: how many tasks of it run */
  guint32 running[N_RATES];
  guint64 active;    /* bits of the streams that have an event: the others are not looked at */
  guint32 sms;       /* taken by running tasks... */
  guint32 sm_count;  /* ...of so many */
  guint32 host_next; /* next task that the host comes to */
  guint32 host_sync; /* the task it waits for, or NONE */
  MsTime host_cursor;
  const MsTail *tail, *no_tail; /* the next that is waited for, the end of them */
  guint8 dirty, held_up;        /* held_up: a task started when it was issued, no earlier */
} Device;

typedef struct MsRounds MsRounds;

typedef struct {
  const MsGraph *graph;
  const MsSharing *sharing; /* NULL: none */
  GHashTable *known;        /* guint64 of how many of each class run -> Rate[MS_SHARING_CLASSES] */
  int rates;                /* MS_N_USES, and the classes */
  MsTime now, *start, *end; /* start[] of a task that is issued but has not started holds its issue time */
  gint32 *bound_by;
  guint32 *stream_next, *host_next; /* [n] the next task of the same stream, of the same host */
  Stream *stream;                   /* [devices * streams] */
  MsTime *when;                     /* [devices * streams] time of the stream's event */
  Device *device;
  guint32 *dirty, n_dirty; /* devices whose set of running tasks or next event changed */
  guint32 leaves, *winner; /* winner tree: [2 * leaves] device that is next in each subtree */
  MsTime *next_time;       /* [leaves] */
  guint32 *next_task, *next_stream;
  guint64 events;
  MsTime limit;
  MsRound *round; /* wanted, and nothing else */
  MsFold fold;    /* once the rounds that were not laid down are over */
  guint32 more;   /* what the tasks that are still to come have for a number above their index */
  gboolean done;  /* it cannot end within the limit, or the round is known */
} Engine;

/* NULL: the graph has no rounds that are alike. (transfer full) */
MsRounds *ms_rounds_new(const Engine *engine);
void ms_rounds_free(MsRounds *rounds);
/* The task at whose end a round is looked at; NONE: no more. */
guint32 ms_rounds_next(const MsRounds *rounds);
/* After all that happened then. TRUE: rounds were left out; every device has to find its next event anew. */
gboolean ms_rounds_look(MsRounds *rounds, Engine *engine);

#endif
