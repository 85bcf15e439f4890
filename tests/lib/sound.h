/* tests/lib/sound.h - a prediction whose three fidelities agree: bound below both, fast within a tenth of it. */
#ifndef MS_TESTS_SOUND_H
#define MS_TESTS_SOUND_H

#include "lib/close.h"

#include "sim/simulate.h"

static inline MsResult *simulate(const MsScenario *s, MsFidelity fidelity) {
  GError *error = NULL;
  MsResult *r = ms_simulate(s, fidelity, NULL, &error);
  if (!r) fail_msg("%s", error->message);
  return r;
}

static inline MsResult *sound(const MsScenario *s) {
  MsResult *full = simulate(s, MS_FIDELITY_FULL);
  g_autoptr(MsResult) bound = simulate(s, MS_FIDELITY_BOUND), fast = simulate(s, MS_FIDELITY_FAST);
  if (bound->step_time_s > full->step_time_s)
    fail_msg("%s: bound %.6f above full %.6f", s->model->name, bound->step_time_s, full->step_time_s);
  if (bound->step_time_s > fast->step_time_s)
    fail_msg("%s: bound %.6f above fast %.6f", s->model->name, bound->step_time_s, fast->step_time_s);
  if (fabs(fast->step_time_s / full->step_time_s - 1) > 0.1)
    fail_msg("%s: fast %.6f, full %.6f", s->model->name, fast->step_time_s, full->step_time_s);
  return full;
}

#endif
