/* src/cli/plan_request.h - a plan request from the command line: what to train on which machine, everything else left
 * open. */
#ifndef MS_CLI_PLAN_REQUEST_H
#define MS_CLI_PLAN_REQUEST_H

#include <glib.h>

typedef struct { /* NULL and MS_CLI_UNSET: not given */
  char *model;   /* names or files; several separated by commas */
  char *hardware;
  char *gpus;
  char *precision;       /* default bf16; "auto": all that the machine has */
  int seq_length;        /* default 4096 */
  int global_batch_size; /* sequences; default 4 Mi tokens, at least one sequence for each GPU */
  char *around;          /* a scenario instead of all of these: its layout is left open */
  char *write;           /* keep the request in this file, "-" is standard output, and plan nothing */
} MsPlanAsk;

/* TRUE when any of them is given. */
gboolean ms_plan_asked(const MsPlanAsk *ask);

/* `around` goes with none of model, hardware, gpus and what goes with them; of those the first that is given, or NULL.
 */
const char *ms_plan_ask_beside_around(const MsPlanAsk *ask);

/* The request file that they mean, indented as a person would keep it: layout (and the layers of each stage),
 * microbatch size, recomputation, CUDA graphs, and where a model has experts, dispatcher and EP overlap open; of a run
 * (`around`), see ms_request_around. NULL and *error (MS_ERROR_USAGE) when one is missing or wrong, MS_ERROR_INPUT when
 * a model is unknown. (transfer full) */
char *ms_plan_request_text(const MsPlanAsk *ask, GError **error);

#endif
