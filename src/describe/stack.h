/* src/describe/stack.h - software stacks: how one framework release differs from what the machine profiles were fitted
 * to.
 *
 * The same layout on the same GPUs moves by several percent between releases. A stack is a few physically meant factors
 * on time, shared by all models and machines; software/stacks.json holds them with the runs they were fitted on. A
 * scenario whose `software` is absent or goes on from no listed name (describe/software.h) uses the stack "default" of
 * the file (all ones when it has none).
 * Factors multiply the time of what they name. Whatever its release, a name also says what trains and whose kernels it
 * has: the families of the file. */
#ifndef MS_DESCRIBE_STACK_H
#define MS_DESCRIBE_STACK_H

#include "describe/field.h"

/* What all releases of one name share, for scenarios that leave it out. */
typedef struct {
  int framework;            /* MsFramework */
  int flash;                /* MsAttnBackend: whose kernels "flash" are */
  gboolean pad_to_capacity; /* experts that drop tokens are padded to their capacity */
  char *options;            /* JSON object of scenario.options; NULL: none */
} MsStackFamily;

typedef struct {
  char *name;
  double gemm, grouped_gemm,
      attention; /* matrix kernels: library, and the clock the site sustains under its power limit */
  double memory_bound, communication;
  double host;               /* host time per framework operator */
  gboolean pipeline_scatter; /* without sequence parallelism a stage sends each tensor rank its own share, gathered on
                                arrival */
  int attention_backend;     /* MsAttnBackend of scenarios that name none */
  gboolean overlap_p2p_comm; /* of scenarios that do not say */
  double released_year;      /* of the release that was asked for, listed or by its name; 0: not known */
  int transformer_engine;    /* its minor version of TransformerEngine 2; 0: not known, as the newest */
  char *source;
  MsStackFamily family; /* whose prefix is the longest */
  gboolean unlisted;    /* a name was given, of which neither the file nor its own spelling (a date) says anything */
  char *later;          /* JSON list: rows of `later` that are younger than the release; NULL: none */
} MsStack;

typedef struct { /* a row of `later`: what a framework has had since a year, and what scenarios had before it */
  char *option, *source;
  int framework; /* MsFramework */
  JsonNode *value;
  double since_year;
  gboolean latent_attention; /* of models with multi-latent attention only */
  double generation_year;    /* on machines since then only */
} MsLater;

extern const MsFieldTable ms_stack_table, ms_stack_family_table, ms_later_table;

/* The stack of that name, or which it goes on from, or the default one (name "default"); members are owned by the
 * result. FALSE and *error when the file is wrong; a missing file means no stacks are known. */
gboolean ms_stack_find(const char *software, MsStack *stack, GError **error);
/* A release whose TransformerEngine is known to be older than 2.`minor`. */
static inline gboolean ms_stack_before(const MsStack *stack, int minor) {
  return stack->transformer_engine > 0 && stack->transformer_engine < minor;
}
void ms_stack_clear(MsStack *stack);
void ms_stack_copy(const MsStack *from, MsStack *to);

#endif
