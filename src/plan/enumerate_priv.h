/* src/plan/enumerate_priv.h - internal to plan/: every layout ruled out or bounded. */
#ifndef MS_PLAN_ENUMERATE_PRIV_H
#define MS_PLAN_ENUMERATE_PRIV_H

#include "base/io.h"
#include "plan/refusal_priv.h"

static inline gboolean ms_shortcut_on(const MsPlanOptions *o, MsShortcut shortcut) {
  return !(o->without & 1u << shortcut);
}

typedef struct {
  MsSpace *space;
  const MsPlanOptions *options;
  MsPlan *plan; /* searched, valid and pruned are counted into it */
  MsRefusedTable refused;
  GArray *candidates;   /* MsCandidate that this rank found, those that may fit */
  guint64 n_candidates; /* of all ranks */
  MsPieceMemo
      *first; /* of the first layout that obeys the rules: its kernel curves are everybody's; NULL when there is none */
  MsProgress *progress;
  struct MsBins *bins; /* what may fit is counted into them; NULL: nothing is counted */
} MsSearch;
/* Goes through all layouts of search->space. FALSE and *error when there are too many. */
gboolean ms_enumerate(MsSearch *search, GError **error);

#endif
