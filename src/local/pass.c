/* src/local/pass.c - one pass over the steps, in this process or by mpirun. */
#include "base/err.h"
#include "local/survey.h"

/* What a step lacks here (a rule of layouts, a row that the executor does not know) is its own affair; a missing
 * library ends everything. */
static gboolean own_affair(const GError *cause) {
  return g_error_matches(cause, MS_ERROR, MS_ERROR_INPUT) || g_error_matches(cause, MS_ERROR, MS_ERROR_NOTHING);
}

gboolean ms_pass_here(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick, gpointer tick_data,
                      gpointer data, GError **error) {
  const MsPassData *d = data;
  for (int i = 0; i < n && !ms_interrupted(); i++) {
    GError *cause = NULL;
    if (ms_local_ranks(&step[i]) > 1) continue;
    g_autoptr(MsScenario) scenario = ms_local_scenario(&step[i], d->hardware, &cause);
    run[i] = scenario ? ms_step_run(scenario, d->blas, MS_LOCAL_STEPS, &cause) : NULL;
    if (!run[i] && !own_affair(cause)) {
      g_propagate_error(error, cause);
      return FALSE;
    }
    if (!run[i]) why[i] = g_strdup(cause->message);
    g_clear_error(&cause);
    if (tick) tick(step[i].name, tick_data);
  }
  return !ms_interrupted();
}

gboolean ms_pass_ranks(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick, gpointer tick_data,
                       gpointer data, GError **error) {
  const MsPassData *d = data;
  (void)error;
  for (int i = 0; i < n && !ms_interrupted(); i++) {
    GError *cause = NULL;
    if (ms_local_ranks(&step[i]) == 1) continue;
    g_autofree char *text = ms_local_scenario_text(&step[i], d->hardware, NULL);
    run[i] = ms_job_step(d->program, text, ms_local_ranks(&step[i]), &cause);
    if (!run[i]) why[i] = g_strdup(cause->message);
    g_clear_error(&cause);
    if (tick) tick(step[i].name, tick_data);
  }
  return !ms_interrupted();
}
