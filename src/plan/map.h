/* src/plan/map.h - what all layouts of a request look like: step time and memory, for a picture of them.
 *
 * Every layout that obeys the rules is bounded, whether it fits or not, and counted into bins of both bounds. Of many a
 * sample is predicted at `fast`: half of it evenly from the tenth with the lowest bounds, the rest evenly from the
 * others, in the order of their bounds; each point stands for as many layouts. Of more than MS_MAP_MOST layouts the
 * sample is drawn at random instead, each as likely as any other, and their number is estimated. Same request, same
 * points, on any number of threads. */
#ifndef MS_PLAN_MAP_H
#define MS_PLAN_MAP_H

#include "plan/plan.h"

enum { MS_MAP_POINTS = 800 }; /* enough for a picture */
#define MS_MAP_MOST 4e6       /* layouts of the largest space that is looked at one by one for it */

typedef struct {
  MsScenario *scenario;         /* owned; borrows model and machine of the request */
  double step_time_s, device_B; /* at fast; of the fullest stage */
  double count;                 /* layouts that it stands for */
  char *set; /* keys that differ from the plan's winner, as JSON {path: value}; owned, NULL until set */
} MsMapPoint;

typedef struct {       /* an open key with several values */
  char *path, *values; /* a JSON list */
} MsMapKey;

typedef struct {                /* layouts whose bounds of step and memory are about the same */
  double step_time_s, device_B; /* the least */
  double layouts;
  int n_counts;
  double *counts; /* of them by value of each key, keys laid end to end */
} MsMapBin;

typedef struct MsLayoutMap {
  double layouts; /* that obey the rules */
  gboolean drawn; /* at random; `layouts` is an estimate, and there are no bins */
  int n;
  MsMapPoint *point;       /* by the bound of the step */
  double bin_ratio, bin_B; /* of the most to the least step of a bin; memory that it spans */
  int n_keys, n_bins;      /* no bins where every layout is a point */
  MsMapKey *key;
  MsMapBin *bin;
} MsLayoutMap;

/* At most `points` (1 or more) of a plan's request, with its options of threads. NULL and *error as of ms_plan; stopped
 * early it holds what was predicted until then. (transfer full) */
MsLayoutMap *ms_layout_map(const MsRequest *request, const MsPlanOptions *options, int points, GError **error);
void ms_layout_map_free(MsLayoutMap *map);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsLayoutMap, ms_layout_map_free)

#endif
