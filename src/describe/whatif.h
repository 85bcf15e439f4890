/* src/describe/whatif.h - a what-if study: a base run and the axes along which it is changed.
 *
 * The base is a scenario, or a plan request whose winner is the base run. An axis is one key with a list of values, or
 * a list of points that each set several keys together. Axes are crossed (the last one runs fastest) or zipped (the
 * i-th values of all axes together); no two set the same key. A key is a path into the scenario; "hardware.X" and
 * "model.X" override one figure of the machine or the model, also of one that the same point sets. Nothing is simulated
 * here: a point is a JSON document, made by setting the keys in the base's document, that is then loaded like any file.
 */
#ifndef MS_DESCRIBE_WHATIF_H
#define MS_DESCRIBE_WHATIF_H

#include "describe/scenario.h"

typedef enum { MS_WHATIF_CROSS, MS_WHATIF_ZIP } MsWhatifCombine;
typedef enum {
  MS_WHATIF_PLAN_NONE,  /* the base is a complete scenario */
  MS_WHATIF_PLAN_BASE,  /* the base is a request: planned once, the points change its winner */
  MS_WHATIF_PLAN_POINTS /* the base is a request: every point, the base too, is planned anew */
} MsWhatifPlan;
typedef enum {
  MS_WHATIF_STEP, /* seconds of one step */
  MS_WHATIF_TOKEN /* GPU seconds for each token: step time x GPUs / tokens of a step, for points that train different
                     batches or numbers of GPUs */
} MsWhatifPer;
extern const char *const ms_whatif_per_words[]; /* step token */

#define MS_WHATIF_MAX_AXES   4
#define MS_WHATIF_MAX_POINTS 1000

typedef struct {
  char *label; /* "50 GB/s" */
  char *path;  /* of it in the file, "axes[0].values[1]", for messages */
  int n;       /* keys that it sets */
  char **key;  /* "hardware.nic_Bps" */
  JsonNode **value;
} MsAxisPoint;

typedef struct {
  char *name; /* of the axis: as given, else its key */
  int n;
  MsAxisPoint *point;
} MsAxis;

typedef struct MsWhatif {
  char *file, *name, *doc; /* doc: free text, NULL */
  int fidelity;            /* index of the words bound, fast, full */
  MsWhatifCombine combine;
  MsWhatifPlan plan;
  MsWhatifPer per;
  int n_axes;
  MsAxis *axis;
  MsJson *source; /* the file itself */
  MsJson *base;   /* document of the base scenario or request, with `set` applied */
} MsWhatif;

extern const MsFieldTable ms_whatif_table;

/* Keys of axes are checked here, values when a point is loaded. The base file is looked up beside the study. NULL and
 * *error. (transfer full) */
MsWhatif *ms_whatif_load(const char *filename, GError **error);
MsWhatif *ms_whatif_load_on(const char *filename, const char *hardware, GError **error); /* the base: ms_put_on */
MsWhatif *ms_whatif_from_doc(MsJson *doc, GError **error);                               /* takes `doc` */
MsWhatif *ms_whatif_from_doc_on(MsJson *doc, const char *hardware, GError **error);      /* takes `doc` */
void ms_whatif_free(MsWhatif *whatif);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsWhatif, ms_whatif_free)

int ms_whatif_points(const MsWhatif *whatif); /* without the base */
/* The point of `axis` that takes part in point `index` of the study. */
const MsAxisPoint *ms_whatif_at(const MsWhatif *whatif, int index, int axis);
char *ms_whatif_label(const MsWhatif *whatif, int index); /* "50 GB/s, ep 8"; (transfer full) */
/* `base` with the keys of point `index` set. (transfer full), never NULL */
MsJson *ms_whatif_apply(const MsWhatif *whatif, const MsJson *base, int index);

/* A document made by ms_whatif_apply did not load, with `failure` (taken). When one axis value alone already does not
 * load on `base`, sets *error with the place of that value in the study and returns FALSE: the file is wrong. Otherwise
 * the values only do not go together: TRUE and *why. */
gboolean ms_whatif_blame(const MsWhatif *whatif, const MsJson *base, gboolean request, int index, GError *failure,
                         char **why, GError **error);

#endif
