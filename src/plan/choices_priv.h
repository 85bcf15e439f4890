/* src/plan/choices_priv.h - internal to plan/: values of open keys, ready to be written into a scenario. */
#ifndef MS_PLAN_CHOICES_PRIV_H
#define MS_PLAN_CHOICES_PRIV_H

#include "describe/scenario.h"

/* What the values of an open key change, the most first: combinations that differ only in the later
 * kinds share what the bound computes */
typedef enum {
  MS_ROLE_WORK,    /* any row of the pieces */
  MS_ROLE_KERNELS, /* rows, but no matrix product */
  MS_ROLE_BESIDE,  /* no compute row: messages, what runs beside what, what the host launches (graphs) */
  MS_ROLE_ADDED,   /* rows or kept bytes on top of those of "none" (recompute, offloading) */
  MS_ROLE_SHAPE,   /* no row: which pieces stand where, in which order their passes come, how far messages go
                    */
  MS_ROLE_STATE,   /* bytes of parameters, gradients and optimizer states, what follows the gradient norm;
                      not the first bound of the time */
  MS_ROLE_BLIND,   /* neither: what only the second bound and the simulation see */
  MS_N_ROLES
} MsRole;

typedef struct { /* one value of one open key, ready to be written into a scenario */
  union {
    int i;
    guint32 bits;
    double f;
    MsRecomputeSpec recompute;
  } value;
  char *text; /* strings */
} MsPatch;

typedef struct {
  const MsOpenKey *open;
  MsRole role;
  gboolean in_rules; /* some rule reads it together with the axes */
  size_t offset;     /* of the member in MsScenario */
  size_t size;       /* 0: a string */
  int n;
  MsPatch *value;
  gint64 stride; /* combinations of the choices behind it in the space */
  int idle;      /* row of what makes it make no difference (space.c), -1: nothing does */
} MsChoice;

MsRole ms_role_of_key(const char *path);
/* A key of MS_ROLE_WORK that no piece depends on: only cuts, states and what follows the gradient norm do. */
#define MS_LATE_KEY "options.optimizer_offload_fraction"

/* NULL and *error for an "auto" that has no candidates of its own. Appends to `choice`. */
gboolean ms_choice_init(MsChoice *choice, const MsRequest *request, const MsOpenKey *open, GError **error);
void ms_choice_clear(MsChoice *choice);
/* What "auto" tries for options.recompute; FALSE past the last. */
gboolean ms_recompute_candidate(const MsScenario *scenario, int i, MsRecomputeSpec *spec);
void ms_choice_apply(const MsChoice *choice, int value, MsScenario *scenario);
/* Number of its value in a combination; the same combination with another value. */
static inline int ms_choice_value(const MsChoice *c, gint64 combo) { return (int)(combo / c->stride % c->n); }
static inline gint64 ms_choice_with(const MsChoice *c, gint64 combo, int value) {
  return combo + (value - ms_choice_value(c, combo)) * c->stride;
}

#endif
