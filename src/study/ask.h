/* src/study/ask.h - a plan request from a few words: what to train on which machine, everything else left open.
 *
 * The command line, the page of `moesim serve`, libmoesim and `plan --write-request` all ask through this one function,
 * so that the same words give the same plan. */
#ifndef MS_STUDY_ASK_H
#define MS_STUDY_ASK_H

#include "base/json.h"

enum { MS_ASK_UNSET = G_MININT };

typedef struct {     /* NULL and MS_ASK_UNSET: not given */
  const char *model; /* names or files; several separated by commas */
  const char *hardware;
  const char *gpus;      /* "256..2048": these and those between, doubling */
  const char *precision; /* default bf16; "auto": all that the machine has */
  int seq_length;        /* tokens; default 4096 */
  int global_batch_size; /* sequences; default 4 Mi tokens, at least one sequence for each GPU */
  const char *around;    /* a scenario instead of all of these: its layout is left open */
  /* As a person writes them, with units: several lengths and batches separated by commas, instead of the two numbers */
  const char *seq_lengths, *global_batch_sizes;
  const char *tokens;                /* of the whole training, "15T" */
  const char *critical_batch_tokens; /* "4Mi": what larger batches cost in tokens (plan/plan.h, ms_request_tokens) */
  const char
      *deadline; /* for all of them, "30d"; with several numbers of GPUs the fewest that keep it are looked for */
  const char *gpu_hour;   /* price of a GPU-hour, "2.50"; "2.50,3.80": of each machine */
  const char *lora;       /* rank of adapters beside frozen weights, "16"; NULL: all weights are trained */
  const char *max_watts;  /* of all GPUs together, "1.2MW": numbers of GPUs that draw more are left out */
  const char *max_memory; /* of a GPU that a plan may use: its share, "0.9", or "70GB" */
} MsAsk;

/* The request file that they mean, indented as a person would keep it: layout (and the layers of each stage),
 * microbatch size, recomputation, CUDA graphs, and where a model has experts, dispatcher and EP overlap open; on
 * machines where Megatron-LM does not start the framework that does (describe/vendor.def); of a run (`around`), see
 * ms_request_around. `dashes`: messages name what is wrong as options of the command line
 * (--seq-length), else as keys (seq_length). NULL and *error (MS_ERROR_USAGE) when one is missing or wrong,
 * MS_ERROR_INPUT when a model is unknown or a request must not hold such a value. (transfer full) */
char *ms_ask_request(const MsAsk *ask, gboolean dashes, GError **error);
/* The same of a document whose keys are those of MsAsk but for `around`: texts and numbers, or lists of them; null is
 * not given. NULL and *error, MS_ERROR_INPUT for a key or a value that is none of these. (transfer full) */
char *ms_ask_document(const MsJson *doc, GError **error);

#endif
