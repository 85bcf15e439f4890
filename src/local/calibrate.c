/* src/local/calibrate.c - the order of things: machine, steps in passes, messages, fit. */
#include "local/calibrate.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "local/messages.h"

enum { STEPS = 40, PASSES = 5, QUICK_STEPS = 12, QUICK_PASSES = 3, COPY_B = 64 << 20 };

double ms_calibrate_ticks(gboolean quick) { return (quick ? QUICK_STEPS * QUICK_PASSES : STEPS * PASSES) + 1; }

/* Bytes read and written by a copy that no cache holds. */
static double copy_Bps(void) {
  double best = 0;
  char *p = mmap(NULL, 2 * (size_t)COPY_B, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 1e10;
  madvise(p, 2 * (size_t)COPY_B, MADV_HUGEPAGE);
  memset(p, 1, 2 * (size_t)COPY_B);
  for (int i = 0; i < 5; i++) {
    double since = ms_process_cpu_s();
    memcpy(p + COPY_B, p, COPY_B);
    best = MAX(best, 2.0 * COPY_B / MAX(ms_process_cpu_s() - since, 1e-9));
  }
  munmap(p, 2 * (size_t)COPY_B);
  return best;
}

typedef struct {
  const MsCalibrateOptions *options;
  MsCalibration *to;
} Work;

static gboolean take_messages(Work *w, const char *hardware, GArray *samples, GError **error) {
  const MsLocalStep two = {.name = "messages",
                           .layers = 1,
                           .dense_layers = 1,
                           .hidden = 256,
                           .heads = 4,
                           .kv_heads = 4,
                           .head_dim = 64,
                           .ffn = 512,
                           .vocab = 1024,
                           .seq = 128,
                           .micro_batch = 1,
                           .microbatches = 1,
                           .tp = 2,
                           .cp = 1,
                           .pp = 1,
                           .vpp = 1,
                           .ep = 1,
                           .dp = 1,
                           .schedule = "1f1b"};
  if (w->options->program && !*w->options->program) w->to->no_messages = "they were not asked for";
  if (ms_interrupted()) w->to->no_messages = "it was stopped before";
  if (w->to->no_messages || !ms_job_possible(&w->to->no_messages)) return TRUE;
  g_autofree char *text = ms_local_scenario_text(&two, hardware, NULL);
  g_autoptr(GArray) messages =
      ms_job_messages(w->options->program, text, 2, w->options->quick, &w->to->kernel_jitter, error);
  if (!messages && ms_interrupted()) {
    g_clear_error(error);
    w->to->no_messages = "it was stopped meanwhile";
    return TRUE;
  }
  if (!messages) return FALSE;
  w->to->messages = (int)messages->len / 2; /* each counts as FP32 and as BF16 */
  if (messages->len > 0) g_array_append_vals(samples, messages->data, messages->len);
  if (!w->options->csv) return TRUE;
  g_autofree char *file = g_build_filename(w->options->csv, "cpu-collectives.csv", NULL),
                  *table = ms_messages_text(messages);
  return ms_write_file(file, table, -1, error);
}

/* Steps that the executor refuses are left out, and it is said; without any there is nothing to fit. */
static gboolean enough(Work *w, const MsSurveyed *survey, GError **error) {
  int ran = 0;
  for (int i = 0; i < survey->n; i++) {
    ran += survey->step[i].runs > 0;
    if (survey->step[i].why && !w->to->refused)
      w->to->refused = g_strdup_printf("%s: %s", survey->step[i].step->name, survey->step[i].why);
  }
  w->to->steps = ran;
  return ran > 0 || survey->interrupted ||
         ms_input_error(error, NULL, 0, NULL, "no step could be run: %s",
                        w->to->refused ? w->to->refused : "none was tried");
}

static gboolean measure(Work *w, GArray *samples, GError **error) {
  const MsCalibrateOptions *o = w->options;
  int n = o->steps > 0 ? o->steps
          : o->quick   ? QUICK_STEPS
                       : STEPS,
      passes = o->passes > 0 ? o->passes
               : o->quick    ? QUICK_PASSES
                             : PASSES;
  g_autofree MsLocalStep *steps = ms_local_calibration_steps(n);
  g_autofree char *hardware = ms_local_bare_profile(w->to->machine);
  MsPassData data = {hardware, o->blas, o->program};
  if (!ms_make_folder(o->csv, error)) return FALSE;
  w->to->copy_Bps = copy_Bps();
  if (!take_messages(w, hardware, samples, error)) return FALSE; /* before this process is bound to a core */
  if (o->tick) o->tick("messages", o->tick_data);
  MsPin pin = ms_machine_pin();
  g_autoptr(MsSurveyed) survey = ms_survey(steps, n, passes, ms_pass_here, &data, o->tick, o->tick_data, error);
  ms_machine_unpin(&pin);
  if (!survey || !enough(w, survey, error)) return FALSE;
  w->to->passes = survey->passes, w->to->interrupted = survey->interrupted;
  w->to->row_repeat = ms_survey_row_repeat(survey);
  guint before = samples->len;
  ms_survey_samples(survey, samples);
  w->to->rows = (int)(samples->len - before);
  return !o->csv || ms_survey_write_csv(survey, o->csv, error);
}

MsCalibration *ms_calibrate(const MsCalibrateOptions *options, GError **error) {
  gint64 since = g_get_monotonic_time();
  const MsBlas *blas = ms_blas_open(options->blas, error);
  if (!blas) return NULL;
  ms_blas_set_threads(blas, 1);
  g_autoptr(MsCalibration) to = g_new0(MsCalibration, 1);
  to->machine = ms_machine_new(blas), to->kernel_jitter = NAN;
  Work w = {options, to};
  g_autoptr(GArray) samples = g_array_new(FALSE, FALSE, sizeof(MsRowSample));
  if (!measure(&w, samples, error)) return NULL;
  if (samples->len > 0) {
    MsLocalFacts facts = {to->machine, to->copy_Bps, to->kernel_jitter, options->command, options->date};
    to->profile =
        ms_local_profile((const MsRowSample *)(void *)samples->data, samples->len, &facts, to->row_repeat, error);
    if (!to->profile && !to->interrupted) return NULL;
    if (!to->profile) g_clear_error(error); /* too few rows so far */
  }
  to->elapsed_s = 1e-6 * (double)(g_get_monotonic_time() - since);
  return g_steal_pointer(&to);
}

void ms_calibration_free(MsCalibration *c) {
  if (!c) return;
  ms_machine_free(c->machine);
  ms_local_profile_free(c->profile);
  g_free(c->refused);
  g_free(c);
}
