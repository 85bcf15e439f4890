/* src/sched/kind.h - the schedules there are and what each of them is like: one row per schedule, from schedule.def.
 *
 * Whoever wants to know something about a schedule asks its row. Outside sched/ a kind is named as a default only. */
#ifndef MS_SCHED_KIND_H
#define MS_SCHED_KIND_H

#include <glib.h>

typedef enum {
#define SCHEDULE(id, ...) MS_SCHED_##id,
#include "sched/schedule.def"
#undef SCHEDULE
  MS_N_SCHEDULES
} MsScheduleKind;
extern const char *const ms_schedule_words[]; /* of the rows, NULL-terminated */

typedef enum {
  MS_PLACE_ROUND_ROBIN, /* virtual stage = chunk * stages + stage */
  MS_PLACE_V,           /* chunk 0: stage; chunk 1: 2 stages - 1 - stage */
  /* Two copies of the model run in opposite directions; chunk 0 is stage `stage` of the copy that runs downwards, chunk
   * 1 is stage `stages - 1 - stage` of the one that runs upwards. Virtual stages are numbered as in V, but nothing
   * flows from stages - 1 to stages: model stage = virtual stage mod stages. Chunk 0 takes microbatches 0 .. m/2 - 1,
   * chunk 1 takes m/2 .. m - 1. */
  MS_PLACE_BIDIRECTIONAL
} MsPlacement;

/* The stage where a virtual stage stands; its chunk is virtual_stage / stages. */
static inline int ms_placement_stage(MsPlacement placement, int stages, int virtual_stage) {
  switch (placement) {
  case MS_PLACE_ROUND_ROBIN: break;
  case MS_PLACE_V:
  case MS_PLACE_BIDIRECTIONAL: return MIN(virtual_stage, 2 * stages - 1 - virtual_stage);
  }
  return virtual_stage % stages;
}

/* Chunks of a copy of the model on a rank. */
typedef enum { MS_CHUNKS_ANY, MS_CHUNKS_ONE, MS_CHUNKS_TWO } MsScheduleChunks;

/* Copies of the model, which the ranks hold together and the microbatches are shared among. */
typedef enum { MS_COPIES_ONE = 1, MS_COPIES_TWO } MsScheduleCopies;

/* Backwards that run as input gradients and, later, weight gradients. */
typedef enum { MS_SPLITS_NONE, MS_SPLITS_SOME, MS_SPLITS_ALL } MsScheduleSplits;

typedef enum {
  MS_SENDS_BLOCK, /* the host waits for every message; with chunks and overlap_p2p_comm it does not */
  MS_SENDS_BESIDE /* messages travel beside the passes that follow */
} MsScheduleSends;

/* Whether the order is searched with what the passes and messages of this run take. */
typedef enum { MS_COSTS_IGNORED, MS_COSTS_DECIDE } MsScheduleCosts;

/* Slots of a forward and another microbatch's backward: without any, with ep_overlap, always. */
typedef enum { MS_PAIRS_NEVER, MS_PAIRS_ON_REQUEST, MS_PAIRS_ALWAYS } MsSchedulePairs;

/* With optimizer post-validation a stage begins the next step before the others end this one: of use where the stages
 * end one after the other. */
typedef enum { MS_STEPS_APART, MS_STEPS_OVERLAP } MsScheduleSteps;

/* Whether "auto" offers it to the planner. */
typedef enum { MS_SEARCH_LEAVES_OUT, MS_SEARCH_TRIES } MsScheduleSearch;

/* What a schedule is built for. */
typedef struct {
  int stages, microbatches, chunks, group; /* group: N of the interleaved schedule, 0 = stages */
  gboolean ep_overlap;
  double f, i, w, comm; /* of one pass and one message, for schedules that costs decide */
  int flush;            /* microbatches between two flushes; 0: all. Divides them */
  gboolean exchanges;   /* interleaved: messages of a forward and the backward behind it go together (MsSlot) */
  gboolean receives;    /* interleaved: a pass waits for all that was to come by then (MsEarly) */
} MsScheduleNumbers;

typedef struct MsSchedule MsSchedule;

typedef struct {
  const char *word, *about; /* as scenarios spell it; one sentence */
  MsSchedule *(*build)(const MsScheduleNumbers *numbers);
  /* Whether it exists for these numbers, which agree with the columns below; the reason when not. */
  gboolean (*fits)(const MsScheduleNumbers *numbers, char *why, size_t size);
  MsPlacement placement;
  MsScheduleChunks chunks;
  MsScheduleCopies copies;
  MsScheduleSplits splits;
  MsScheduleSends sends;
  MsScheduleCosts costs;
  MsSchedulePairs pairs;
  MsScheduleSteps steps;
  /* Forwards of a chunk that are live at the moment when most of the stage's are; 0 where no closed form is known. */
  gint64 (*live)(const MsScheduleNumbers *numbers, int stage, int chunk);
  MsScheduleSearch search;
  const char *refused; /* why Megatron-Core cannot launch it; NULL: it does, and no argument names it */
} MsScheduleRow;
extern const MsScheduleRow ms_schedule_rows[]; /* [MS_N_SCHEDULES] */

static inline const MsScheduleRow *ms_schedule_row(MsScheduleKind kind) { return &ms_schedule_rows[kind]; }

/* Chunks on every rank, those of all copies together; 0: as many as layout.vpp says. */
static inline int ms_schedule_chunks(MsScheduleKind kind) {
  return (int)ms_schedule_rows[kind].chunks * (int)ms_schedule_rows[kind].copies;
}
static inline gboolean ms_schedule_may_split(MsScheduleKind kind) {
  return ms_schedule_rows[kind].splits != MS_SPLITS_NONE;
}
/* Every stage begins with a forward of its first chunk, which waits for the stages before it, and ends with a whole
 * backward of that chunk, which they wait for. */
static inline gboolean ms_schedule_ends_in_turn(MsScheduleKind kind) {
  return !ms_schedule_may_split(kind) && ms_schedule_rows[kind].copies == MS_COPIES_ONE;
}
/* Microbatches that a chunk works on: each copy of the model has its share. */
static inline int ms_schedule_share(MsScheduleKind kind, int microbatches) {
  return microbatches / (int)ms_schedule_rows[kind].copies;
}
/* Words of the schedules that answer yes, "a, b or c". (transfer full) */
char *ms_schedule_words_of(gboolean (*is)(const MsScheduleRow *row));

#endif
