/* src/describe/disturbance.h - what may go otherwise than the plan assumes: the file of `moesim plan --under`, and
 * "under" of a request's plan object.
 *
 * A list of states that exclude one another; in `weight` shares of the time (only their ratios count) the cluster is in
 * each. A state may combine any of its changes; one without changes is the nominal state. */
#ifndef MS_DESCRIBE_DISTURBANCE_H
#define MS_DESCRIBE_DISTURBANCE_H

#include "describe/field.h"
#include "describe/routing.h"

#define MS_DISTURBANCES_MAX 64

typedef struct {
  char *key;
  double factor;
} MsScaledKey;

typedef struct {
  char *name;
  double weight;
  gboolean has_routing;
  MsRouting routing; /* instead of the planned one; holds a reference to its histogram */
  int n_scale;
  MsScaledKey *scale; /* rates and times of the profile (ms_hardware_scale) */
  double slow_rate;   /* each GPU is slow with this probability, independently; 0: none */
  double slow_factor; /* its kernels take so many times as long */
  gboolean differ;    /* GPUs differ: the step that is expected of them (cluster.expected), slow ones among them */
  int samples;        /* draws of the errors of the profile's curves; 0: none */
  int seed;
} MsDisturbance;

typedef struct {
  int n;
  MsDisturbance *row; /* weights add up to 1 */
} MsDisturbances;

extern const MsFieldTable ms_under_table, ms_disturbance_table;

/* NULL and *error for what is refused. (transfer full) */
MsDisturbances *ms_disturbances_load(const char *filename, GError **error); /* "-" is stdin */
MsDisturbances *ms_disturbances_from_doc(const MsJson *doc, GError **error);
/* The list itself, at `path` of `doc`. (transfer full) */
MsDisturbances *ms_disturbances_from_list(const MsJson *doc, JsonNode *list, const char *path, GError **error);
void ms_disturbances_free(MsDisturbances *disturbances);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsDisturbances, ms_disturbances_free)

#endif
