/* src/study/sweep.h - one plan request on several clusters or of several models, and what each trade of time, memory
 * and GPUs can buy.
 *
 * The front holds the layouts that no other one of the same model beats in step time, free memory and number of GPUs at
 * once: the winners of exact plans under falling limits of memory (ms_plan_front). First the best layout within the
 * request's limit, then the best that leaves at least MS_SWEEP_STEP of the device memory more than that one, and so on
 * until nothing fits.
 * Between two points of a cluster there may be layouts that lie less than that step apart. */
#ifndef MS_STUDY_SWEEP_H
#define MS_STUDY_SWEEP_H

#include "study/budget.h"
#include "study/extras.h"

#define MS_SWEEP_STEP 0.02 /* of device memory */

typedef struct {
  const MsRequest *request; /* borrowed */
  MsPlan *plan;             /* NULL: `why` */
  const MsPlan *so_far;     /* while it is searched: what was found until then, borrowed */
  MsPlanExtras extras;      /* what to choose from and the map, where these were asked for */
  char *why;                /* what makes this cluster or model impossible */
  MsBudget budget;          /* of the training with the best layout */
} MsSweepCell;

typedef struct {
  int cell;
  MsScenario *scenario;                 /* owned; borrows model and machine of the cell's request */
  double step_time_s, device_B, free_B; /* free_B: capacity - device_B */
  int gpus;
  gboolean on_front,
      interrupted;      /* then `proven_within`, a share, is what is proven: none of its memory is better by more */
  double proven_within; /* 0: it is the best; NaN: nothing is proven */
} MsParetoPoint;

typedef struct MsSweep {
  int n_requests, n_cells, n_points; /* fewer cells than requests: the others were not begun */
  MsSweepCell *cell;                 /* in the order of the requests */
  MsParetoPoint *point;              /* by model, then GPUs, step time */
  gboolean interrupted;
  int n_advice;
  char **advice; /* [n_advice] which cluster, a sentence each; none where the cells are of several tasks */
} MsSweep;

typedef struct {
  gboolean front; /* the points */
  gboolean map;   /* of every cell what to choose from, and what all of its layouts look like */
  /* Told what was found so far, with the share of all searches that is done: the last cell is the one at work. */
  void (*watch)(const MsSweep *so_far, double done, gpointer user);
  gpointer user;
} MsSweepAsked;

/* Plans every request of the list (ms_requests_load); `asked` NULL: nothing beside the winners. A cell that cannot be
 * planned says why. Stopped before the end it holds what was found until then, with what is proven of it. `options`
 * has no watch of its own. NULL and *error when a map cannot be drawn. (transfer full) */
MsSweep *ms_sweep(const GPtrArray *requests, const MsPlanOptions *options, const MsSweepAsked *asked, GError **error);
/* A cluster has a layout that keeps the deadline of its request, where it has one: exit status 0. */
gboolean ms_sweep_answers(const MsSweep *sweep);
void ms_sweep_free(MsSweep *sweep);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSweep, ms_sweep_free)

/* Marks the points that no other one of the same model dominates: as good in all three, better in one. Equal points are
 * both on the front. */
void ms_pareto_mark(const MsSweepCell *cell, MsParetoPoint *point, int n);

#endif
