/* libFuzzer target: a plan by its name, a problem by a few bytes. What a name of any bytes gives runs exactly, on every
 * vector unit, or is refused by one line. make fuzz (clang), then build-fuzz/fuzz/fuzz_lcma tests/fuzz/lcma */
#include "base/err.h"
#include "lib/exact_product.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 8, LONGEST_NAME = 64 }; /* bytes before the name; of it */

static gint64 side(const uint8_t *data, int i) {
  int most = data[1] % 4 == i ? MS_EXACT_LONG : MS_EXACT_SHORT;
  return 1 + (data[2 + i] * 4 + data[1] / 64) % most;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static MsExactProblem p;
  static MsTeam *team;
  if (size < HEAD || size - HEAD > LONGEST_NAME) return 0;
  if (!team) team = ms_team_new(2);
  g_autofree char *name = g_strndup((const char *)data + HEAD, size - HEAD);
  g_autoptr(GError) error = NULL;
  g_autoptr(MsLcmaPlan) plan = ms_lcma_plan_new(name, &error);
  if (!plan != (error != NULL) || (error && (error->code != MS_ERROR_USAGE || strchr(error->message, '\n')))) abort();
  MsBlasType type = (MsBlasType)(data[0] % MS_BLAS_TYPES);
  guint32 seed = (guint32)data[5] << 8 | data[6];
  int most = plan ? ms_exact_magnitude(plan, type) : 0;
  if (most == 0) return 0;
  gboolean by_library = plan->n_stages == 0; /* which asks it for the type itself; nothing does so that it lacks */
  if (by_library && !ms_blas_has(ms_blas_open(NULL, NULL), type)) return 0;
  ms_exact_problem(&p, type, side(data, 0), side(data, 1), side(data, 2), most, &seed);
  for (int unit = 0; unit < MS_VECTORS; unit++) {
    plan->unit = (MsVector)unit;
    if (!ms_vector_has(plan->unit) || !ms_lcma_plan_runs(plan, type)) continue;
    if (plan->n_stages > 0) ms_lcma_plan_fit(plan, &p.gemm, data[7] % 2 ? G_MAXSIZE : (size_t)data[7] << 12);
    g_autofree char *wrong = ms_exact_run(&p, plan, team);
    if (wrong) fprintf(stderr, "%s\n", wrong), abort();
  }
  return 0;
}
