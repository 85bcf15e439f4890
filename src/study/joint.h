/* src/study/joint.h - figures that many runs say something of, fitted together with what is believed of them before.
 *
 * Looked for are x [n] that minimise
 *
 *     sum over runs of weight / scale |residual(x)|  +  sum over beliefs of (x_of - x_than + shift)^2 / (2 spread^2)
 *
 * which is the most likely x where residuals have a Laplace distribution (single runs may be far off) and beliefs are
 * normal. Iteratively reweighted least squares (P. W. Holland, R. E. Welsch, 1977): derivatives are difference
 * quotients, each step is halved until the sum does not grow. Nothing is random. */
#ifndef MS_STUDY_JOINT_H
#define MS_STUDY_JOINT_H

#include <glib.h>

#define MS_JOINT_DEPENDS 128 /* figures that one run depends on, at most */

typedef struct {
  guint of;
  int than;             /* a figure beside which `of` is expected; -1: none */
  double shift, spread; /* x_of is expected at x_than - shift; spread > 0: standard deviation */
} MsJointBelief;

typedef struct {
  guint n, n_runs, n_beliefs;
  const double *weight;            /* [n_runs]; 0: left out */
  double scale;                    /* mean |residual| of a run of weight 1 that no x can take away */
  const double *step, *low, *high; /* [n] of the difference quotients; limits of x */
  const MsJointBelief *belief;     /* each figure needs one, or runs that depend on it */
  double (*residual)(guint run, const double *x, gconstpointer data);
  guint (*depends)(guint run, guint on[MS_JOINT_DEPENDS], gconstpointer data); /* how many */
  gconstpointer data;
} MsJoint;

/* From x [n], which lies within the limits, to the best. */
void ms_joint_fit(const MsJoint *joint, double *x);

#endif
