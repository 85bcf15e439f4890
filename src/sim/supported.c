/* src/sim/supported.c - features that the files can name and this version does not build yet: refused by name, one row each. */
#include "sim/simulate.h"
#include "base/err.h"
#include <math.h>

typedef struct { const char *path; gboolean (*used)(const MsScenario *s); } Missing;

#define USED(name, expression) static gboolean name(const MsScenario *s) { return (expression) ? TRUE : FALSE; }
USED(mhc, s->options.recompute.modules & MS_RM_MHC)

static const Missing missing[] = {
    {"options.recompute.modules", mhc},
};

gboolean ms_supported(const MsScenario *s, GError **error) {
  for (guint i = 0; i < G_N_ELEMENTS(missing); i++)
    if (missing[i].used(s))
      return ms_input_error(error, s->file, 0, missing[i].path, "this version does not simulate it yet; leave it at its default");
  return TRUE;
}
