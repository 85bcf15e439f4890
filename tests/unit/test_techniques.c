/* Techniques as switches: each moves the quantities it should and leaves the rest (issue 4). */
#include "lib/close.h"

#include "lib/world.h"
#include "sim/lower.h"
#include "sim/simulate.h"

#include <string.h>

static MsResult *simulate(const MsScenario *s, MsFidelity fidelity) {
  GError *error = NULL;
  MsResult *r = ms_simulate(s, fidelity, NULL, &error);
  if (!r) fail_msg("%s", error->message);
  return r;
}

static double parts_sum(const MsTimeParts *t) { return t->compute_s + t->exposed_comm_s + t->bubble_s + t->host_s + t->optimizer_s + t->other_s; }

/* What every run must obey at every fidelity. Returns the full one. */
static MsResult *sound(const MsScenario *s) {
  MsResult *full = simulate(s, MS_FIDELITY_FULL);
  g_autoptr(MsResult) bound = simulate(s, MS_FIDELITY_BOUND), fast = simulate(s, MS_FIDELITY_FAST);
  if (bound->step_time_s > full->step_time_s) fail_msg("%s: bound %.6f above full %.6f", ms_schedule_words[s->layout.schedule], bound->step_time_s, full->step_time_s);
  if (fabs(fast->step_time_s / full->step_time_s - 1) > 0.15)
    fail_msg("%s: fast %.6f, full %.6f", ms_schedule_words[s->layout.schedule], fast->step_time_s, full->step_time_s);
  for (int i = 0; i < full->stages; i++)
    if (fabs(parts_sum(&full->stage_time[i]) / full->step_time_s - 1) > 1e-9)
      fail_msg("stage %d: parts %.9f of %.9f s", i, parts_sum(&full->stage_time[i]), full->step_time_s);
  return full;
}

/* --- schedules ------------------------------------------------------------------------------------------------------------- */

static MsScenario *pipeline(MsScheduleKind kind, int pp, int microbatches) {
  MsScenario *s = ms_test_run("gpt-1.5b", 0, "a100-sxm-80g", pp);
  s->model->num_layers = 4 * pp;
  s->layout.pp = pp;
  s->layout.schedule = kind;
  s->training.global_batch_size = microbatches;
  s->training.seq_length = 1024, s->training.micro_batch_size = 1;
  s->options.transformer_impl = MS_IMPL_TE;
  return s;
}

static void every_schedule(void **state) {
  (void)state;
  double family[MS_FAMILY_HOST] = {0};
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++) {
    g_autoptr(MsScenario) s = pipeline(kind, 4, 16);
    g_autoptr(MsResult) r = sound(s);
    print_message("%-10s %.4f s bubble %.4f compute %.4f pp %.4f, peak %.2f GiB\n", ms_schedule_words[kind], r->step_time_s, r->time.bubble_s,
                  r->time.compute_s, r->time.comm_exposed_s[MS_COMM_PP], r->memory->stage[r->memory->peak_stage].peak_B / 1073741824.0);
    (void)family;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
