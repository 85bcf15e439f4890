/* src/sched/sched.h - pipeline schedules as data: an ordered list of passes per stage.
 *
 * Knows stages, microbatches and chunks only: no seconds, no layers. Source: domain/schedules.md. */
#ifndef MS_SCHED_SCHED_H
#define MS_SCHED_SCHED_H

#include <glib.h>

typedef enum {
  MS_SLOT_F,  /* forward */
  MS_SLOT_B,  /* whole backward (input and weight gradients) */
  MS_SLOT_I,  /* input gradient only */
  MS_SLOT_W,  /* weight gradient only */
  MS_SLOT_FB, /* forward of (mb, chunk) overlapped with whole backward of (mb2, chunk2) */
  MS_N_SLOTS
} MsSlotKind;
extern const char *const ms_slot_words[]; /* F B I W FB */

typedef struct {
  guint8 kind;
  gint16 chunk, chunk2; /* model chunk on this stage; chunk2 of the backward in an FB slot */
  gint32 mb, mb2;
} MsSlot;

typedef enum { MS_PLACE_ROUND_ROBIN, /* virtual stage = chunk * stages + stage */
               MS_PLACE_V,           /* chunk 0: stage; chunk 1: 2 stages - 1 - stage */
               MS_PLACE_BIDIRECTIONAL /* chunk 0: stage; chunk 1: stages - 1 - stage of the mirrored copy (DualPipe) */
} MsPlacement;

typedef struct {
  int stages, microbatches, chunks; /* p, m, v */
  MsPlacement placement;
  int *n;          /* [stages] slots of each stage */
  MsSlot **slot;   /* [stages][n] in execution order */
} MsSchedule;

/* kind is the scenario's word for it; `group` is N of the interleaved schedule (0 = stages); `ep_overlap` merges steady pairs into FB slots and adds
 * one warm-up forward. NULL with `why` when the schedule cannot be built for these numbers or is not built yet. (transfer full) */
typedef struct {
  const char *word;
  gboolean (*applicable)(int stages, int microbatches, int chunks, int group, gboolean ep_overlap, char *why, size_t size);
  MsSchedule *(*build)(int stages, int microbatches, int chunks, int group, gboolean ep_overlap);
} MsScheduleRow;
extern const MsScheduleRow ms_schedule_rows[]; /* in the order of ms_schedule_words; build NULL = not built yet */

MsSchedule *ms_schedule_new(int kind, int stages, int microbatches, int chunks, int group, gboolean ep_overlap, char *why, size_t size);
void ms_schedule_free(MsSchedule *schedule);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSchedule, ms_schedule_free)

/* Virtual stage (0 .. stages*chunks-1) of a stage's chunk, and the stage/chunk that holds a virtual stage. */
int ms_virtual_stage(const MsSchedule *schedule, int stage, int chunk);
void ms_virtual_owner(const MsSchedule *schedule, int virtual_stage, int *stage, int *chunk);

/* One validator for all: every (microbatch, chunk) has exactly one forward, one backward (B, or I and W with W after I) on its stage, forward before
 * backward, and the whole set can be executed without deadlock. FALSE with `why`. */
gboolean ms_schedule_valid(const MsSchedule *schedule, char *why, size_t size);

/* Closed form: forwards live at most at once on `stage` (from forward to the end of B or W), by walking its list. */
int ms_schedule_peak_in_flight(const MsSchedule *schedule, int stage);
/* Live forwards of each chunk at the moment when sum(weight[chunk] * live[chunk]) is largest; fills live[chunks]; returns that sum. */
double ms_schedule_peak_weighted(const MsSchedule *schedule, int stage, const double *weight, int *live);

/* Unit-cost execution in exact arithmetic on doubles: F, I, W durations (B = I + W; FB = pair), p2p latency between stages. */
typedef struct {
  double makespan;
  double span;            /* largest over stages of last end - first start */
  double bubble_fraction; /* 1 - M V (F+B+W) / span */
  double *start, *end;    /* flat, stage-major in list order; owned */
} MsScheduleRun;
MsScheduleRun *ms_schedule_run(const MsSchedule *schedule, double f, double i, double w, double pair, double comm);
void ms_schedule_run_free(MsScheduleRun *run);

#endif
