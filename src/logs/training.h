/* src/logs/training.h - what training frameworks print, read as steps.
 *
 * Every line is shown to the forms of training.c: Megatron-LM (MindSpeed and Megatron Bridge print its line), NeMo 2,
 * TorchTitan, MLPerf (:::MLLOG). The first that knows a line names the log; lines of another form are left alone from
 * then on. The arguments that Megatron-LM prints are collected too.
 *
 * What a step time is taken from: steps that trained (no NaN, nothing skipped), behind the warm-up of every start of
 * the program. A start is where the count of steps goes back; a step that several ranks print counts once, and so does
 * a line that stands there twice. Where other arguments are printed another run begins, and only the last one counts;
 * of a batch that grows only its last size (that of the arguments). Warm-up are the first step of a start and those
 * behind it that take more than a tenth longer than the median of all. Of the rest the median counts, which evaluations
 * and checkpoints do not move. */
#ifndef MS_LOGS_TRAINING_H
#define MS_LOGS_TRAINING_H

#include "describe/scenario.h"
#include "logs/reader.h"

typedef struct {
  int number, line, batch;             /* its place where none is printed; sequences, 0: not printed */
  double time_s, tokens_per_s, tflops; /* the latter of one GPU; NaN: not printed */
  gboolean bad, other;                 /* NaN or skipped; of another run or batch than those that count */
  gboolean start, warm;                /* the first of a start; warm-up */
} MsLogStep;

typedef struct {
  const char *form;                    /* "Megatron-LM", ... */
  GArray *steps;                       /* MsLogStep */
  double allocated_GiB, reserved_GiB;  /* the most that a rank reports; NaN */
  gboolean all_ranks;                  /* more than one rank reports memory */
  int starts, bad, warm, copies;       /* starts of the program, steps of each kind; lines that stand there again */
  double time_s, tokens_per_s, tflops; /* medians; NaN */
  double low_s, high_s;                /* a tenth of the steps is shorter, longer */
  guint kept;
  int other_batches, runs; /* steps of another batch; runs that print arguments of their own, 1 where none does */
  char *changed;           /* what the last arguments differ in; NULL: one run */
  int first, last;         /* numbers of the steps that count */
  GPtrArray *arguments;    /* char *: "--name value" as Megatron-LM prints them; empty: none */
  int world_size, global_batch, vocab_size; /* 0: not printed; of the tokenizer, before it is padded */
} MsTrainingLog;

/* NULL and *error when there is nothing to learn. What was repaired goes to `notes`. (transfer full) */
MsTrainingLog *ms_training_log_read(MsReader *reader, const char *file, GPtrArray *notes, GError **error);
/* Whether a line of it is one of a training log; what is wrong with that, reading it says. */
gboolean ms_training_log_is(MsReader *reader);
/* Of `log` (a file), whose steps have `batch` sequences on `gpus` GPUs (0: it does not say), FALSE when the run has
 * others. */
gboolean ms_training_log_is_of(const char *log, int batch, int gpus, const MsScenario *run, GError **error);
void ms_training_log_free(MsTrainingLog *log);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsTrainingLog, ms_training_log_free)

#endif
