/* src/sched/sched.h - pipeline schedules as data: an ordered list of passes per stage.
 *
 * Knows stages, microbatches and chunks only: no seconds, no layers. Source: docs/theory/schedules.md. */
#ifndef MS_SCHED_SCHED_H
#define MS_SCHED_SCHED_H

#include "sched/kind.h"

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
/* An F slot whose messages go with those of the B slot behind it: what both need has come before, what both give leaves
 * behind the backward (Megatron-Core pipeline_parallel/schedules.py, interleaved without overlap_p2p_comm:
 * send_forward_backward_recv_forward_backward). */
enum { MS_EXCHANGES = 1 }; /* as chunk2 */
static inline gboolean ms_slot_exchanges(const MsSlot *slot) {
  return slot->kind == MS_SLOT_F && slot->chunk2 == MS_EXCHANGES;
}

/* Interleaved groups of more than p microbatches let the first stage have inputs before their turn, and the last stage
 * gradients. Where messages are waited for as they come (Megatron-Core pipeline_parallel/schedules.py,
 * recv_tensor_from_previous_stage), forward f of the first stage waits for what forward f - p gave on the last one, and
 * backward b of the last for what backward b - p gave on the first. Not of pairs (ep_overlap), which exchange as a
 * pair. */
typedef enum {
  MS_EARLY_NOT,
  MS_EARLY_AT_ENDS, /* passes up to the first that has one of the other kind behind it, and behind the last such */
  MS_EARLY_ALWAYS
} MsEarly;

/* The middle of a stage's list, where it repeats itself: slots [from, to), of which each is the one `slots` before it
 * with some microbatches more. */
typedef struct {
  int slots, from, to;
} MsPeriodOf;

struct MsSchedule {
  int stages, microbatches, chunks; /* p, m, v (chunks = 2 for V and bidirectional placement) */
  MsPlacement placement;
  guint kinds; /* bits of MsSlotKind: which there are */
  MsEarly early;
  int period;         /* microbatches, the same on all stages; 0: some list does not repeat itself, or is too short */
  MsPeriodOf *repeat; /* [stages] where there is a period */
  int *n;             /* [stages] slots of each stage */
  MsSlot **slot;      /* [stages][n] in execution order */
};

static inline gboolean ms_slot_has_forward(const MsSlot *slot) {
  return slot->kind == MS_SLOT_F || slot->kind == MS_SLOT_FB;
}

/* NULL with `why` when the schedule does not exist for these numbers. (transfer full) */
MsSchedule *ms_schedule_for(MsScheduleKind kind, const MsScheduleNumbers *numbers, char *why, size_t size);
/* The same, kept for those who ask for it again. (transfer full; not to be changed) */
MsSchedule *ms_schedule_shared(MsScheduleKind kind, const MsScheduleNumbers *numbers, char *why, size_t size);
/* Of a schedule that costs decide: forwards that a stage has begun at most when its first backward begins. */
int ms_schedule_in_flight(MsScheduleKind kind, int stages);
/* The same for unit costs F = I = W = 1 without messages. `ep_overlap` merges steady pairs into FB slots and adds one
 * warm-up forward (1f1b with chunks >= 2, or with one stage; DualPipe and DualPipeV have FB slots anyway: without
 * overlap give them a pair that takes F + B). The orders that a greedy search decides (zb-1p, zb-2p, zb-v, v-half,
 * v-min) are those of unit costs. (transfer full) */
MsSchedule *ms_schedule_new(int kind, int stages, int microbatches, int chunks, int group, gboolean ep_overlap,
                            char *why, size_t size);
void ms_schedule_free(MsSchedule *schedule);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSchedule, ms_schedule_free)

/* The production greedy of zero-bubble with given costs (docs/theory/schedules.md 5.3). A stage holds at most `limit`
 * activations of a microbatch; I frees the share `i_frees` of one, W the rest (zb-1p and zb-2p: limit p and 2p, 0).
 * NULL with `why` when no combination of its switches fits. (transfer full) */
MsSchedule *ms_schedule_zb_greedy(int stages, int microbatches, double f, double i, double w, double comm, double limit,
                                  double i_frees, char *why, size_t size);

/* Virtual stage (0 .. stages*chunks-1) of a stage's chunk, and the stage/chunk that holds a virtual stage. */
int ms_virtual_stage(const MsSchedule *schedule, int stage, int chunk);
void ms_virtual_owner(const MsSchedule *schedule, int virtual_stage, int *stage, int *chunk);
/* The virtual stage that a forward's input comes from (its input gradient goes to), and the one it goes to; -1 at the
 * ends of the model. */
int ms_virtual_before(const MsSchedule *schedule, int virtual_stage);
int ms_virtual_after(const MsSchedule *schedule, int virtual_stage);
/* Microbatches first .. first + count - 1 that `chunk` works on: all of them except under bidirectional placement. */
void ms_chunk_microbatches(const MsSchedule *schedule, int chunk, int *first, int *count);

static inline gboolean ms_schedule_has(const MsSchedule *s, MsSlotKind kind) { return s->kinds >> kind & 1; }
gboolean ms_schedule_splits(const MsSchedule *schedule); /* has slots other than F and B */

/* One validator for all: every (microbatch, chunk) has exactly one forward, one backward (B, or I and W with W after I)
 * on its stage, forward before backward, and the whole set can be executed without deadlock. FALSE with `why`. */
gboolean ms_schedule_valid(const MsSchedule *schedule, char *why, size_t size);

/* Closed form: forwards live at most at once on `stage` (from forward to the end of B or W), by walking its list. */
int ms_schedule_peak_in_flight(const MsSchedule *schedule, int stage);
/* live[chunks]: those of each chunk behind one forward of the stage that no backward runs beside, of all such forwards
 * the first behind which most are live. */
void ms_schedule_most_in_flight(const MsSchedule *schedule, int stage, gint64 *live);

/* Execution with fixed durations per slot, in doubles (exact for small integers and halves): F, I, W (B = I + W; FB =
 * pair), and `comm` on every edge between virtual stages of different stages. One slot at a time per stage, in list
 * order, each as early as possible. NULL when the schedule is not valid or deadlocks. (transfer full) */
typedef struct {
  double makespan;
  double span;            /* largest over stages of last end - first start */
  double bubble_fraction; /* 1 - (forwards of a stage) (F+I+W) / span; the same for makespan is left to the caller */
  double *start, *end;    /* flat, stage-major in list order; owned */
} MsScheduleRun;
MsScheduleRun *ms_schedule_run(const MsSchedule *schedule, double f, double i, double w, double pair, double comm);
/* The slots of a schedule in an order in which they can run, for whoever runs it with many costs. NULL: it deadlocks.
 * (transfer full) */
typedef struct MsScheduleTurns MsScheduleTurns;
MsScheduleTurns *ms_schedule_turns_new(const MsSchedule *schedule);
void ms_schedule_turns_free(MsScheduleTurns *turns);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsScheduleTurns, ms_schedule_turns_free)
int ms_schedule_turns_count(const MsScheduleTurns *turns);
typedef struct { /* of passes on stage k of the model (virtual stages; of a bidirectional schedule its stages) */
  const double *forward, *backward;
} MsPassTimes;
typedef struct {     /* the host of a stage, pass after pass */
  MsPassTimes issue; /* what it takes to issue one */
  MsPassTimes late;  /* no pass ends sooner than so long after it has been issued */
  MsPassTimes early; /* it begins with one no sooner than so long before the device does: it waits for that within */
  gboolean waits;    /* for messages: passes that one brings are issued when it is there */
} MsPassHost;
/* End of the last slot when passes take so long, half of the backward in each part of a split one, and messages
 * nothing. `host` NULL: it is always ahead, as it has to be where slots have two passes, or half a backward.
 * scratch[ms_schedule_turns_scratch()]. */
double ms_schedule_turns_end(const MsScheduleTurns *turns, const MsPassTimes *passes, const MsPassHost *host,
                             double *scratch);
size_t ms_schedule_turns_scratch(const MsScheduleTurns *turns);
/* [stages] when each had run its last slot, of the last ms_schedule_turns_end with this scratch. */
const double *ms_schedule_turns_clock(const MsScheduleTurns *turns, const double *scratch);
/* What adds up to a moment of a stage, each of a forward and of a backward: what it takes, what its host takes to issue
 * it, how late it is behind that, and how early its host began with it, which counts less than nothing. */
enum { MS_PASS_TAKES, MS_PASS_ISSUES = 2, MS_PASS_IS_LATE = 4, MS_PASS_IS_EARLY = 6, MS_N_PASS_TIMES = 8 };
/* The way to the end of a stage's last slot, of the last ms_schedule_turns_end with this scratch, where `issued` says
 * whether it had a host and `waits` what that did: count[MS_N_PASS_TIMES][stages of the model], how often each of these
 * stands on it. At any other times their sum is not above the end of that stage. FALSE: not known of this schedule (a
 * slot has two passes, or half a backward). */
gboolean ms_schedule_turns_path(const MsScheduleTurns *turns, int stage, gboolean issued, gboolean waits,
                                double *scratch, int *count);
void ms_schedule_run_free(MsScheduleRun *run);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsScheduleRun, ms_schedule_run_free)

#endif
