/* src/local/job.c - several ranks: this program again, under mpirun. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/ranks.h"
#include "blas/blas.h"
#include "layout/layout.h"
#include "local/messages.h"
#include "local/run.h"

/* The files of a job. */
static const char step_file[] = "step.json",
                  messages_file[] = "messages.json" /* instead of it; with QUICK beside it, briefly */,
                  quick_file[] = "quick", csv_file[] = "messages.csv", jitter_file[] = "jitter";

gboolean ms_job_possible(const char **why) {
  g_autofree char *mpirun = g_find_program_in_path("mpirun");
  *why = !ms_ranks_built() ? "this moesim was built without Open MPI"
         : !mpirun         ? "there is no mpirun on this machine"
         : ms_cpus() < 2   ? "this process may use one core only"
                           : NULL;
  return *why == NULL;
}

/* --- the side that starts it ----------------------------------------------------------------------------------- */
static char *path(const char *folder, const char *name) { return g_build_filename(folder, name, NULL); }

static gboolean put(const char *folder, const char *name, const char *text, GError **error) {
  g_autofree char *file = path(folder, name);
  return ms_write_file(file, text, -1, error);
}

static char *new_folder(GError **error) {
  GError *cause = NULL;
  char *folder = g_dir_make_tmp("moesim-job-XXXXXX", &cause);
  if (!folder) g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s", cause->message);
  g_clear_error(&cause);
  return folder;
}

static void remove_folder(const char *folder) {
  GDir *dir = folder ? g_dir_open(folder, 0, NULL) : NULL;
  for (const char *name; dir && (name = g_dir_read_name(dir));) {
    g_autofree char *file = path(folder, name);
    g_remove(file);
  }
  if (!dir) return;
  g_dir_close(dir);
  g_rmdir(folder);
}

/* What a rank of ours said, else the last line. */
static const char *said_why(char **lines) {
  const char *last = "";
  for (int i = 0; lines[i]; i++) {
    if (g_str_has_prefix(lines[i], "moesim: ")) return lines[i] + strlen("moesim: ");
    if (*g_strstrip(lines[i])) last = lines[i];
  }
  return last;
}

static gboolean start(const char *program, const char *folder, int ranks, GError **error) {
  g_autofree char *self = program ? g_strdup(program) : g_file_read_link("/proc/self/exe", NULL),
                  *n = g_strdup_printf("%d", ranks), *said = NULL;
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  const char *const words[] = {"mpirun", "-n", n, "--bind-to", "core", NULL}, *const rest[] = {self, "calibrate",
                                                                                               "--job", folder, NULL};
  for (int i = 0; words[i]; i++) g_ptr_array_add(argv, (char *)words[i]);
  if (geteuid() == 0) g_ptr_array_add(argv, (char *)"--allow-run-as-root"); /* containers */
  for (int i = 0; i < 5; i++) g_ptr_array_add(argv, (char *)rest[i]);
  int status = 0;
  GError *cause = NULL;
  gboolean ok = g_spawn_sync(NULL, (char **)argv->pdata, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                             NULL, NULL, &said, &status, &cause);
  if (ok && g_spawn_check_wait_status(status, NULL)) return TRUE;
  g_auto(GStrv) lines = ok ? g_strsplit(said, "\n", -1) : NULL;
  g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%d ranks under mpirun: %s", ranks,
              !ok                ? cause->message
              : ms_interrupted() ? "interrupted"
                                 : said_why(lines));
  g_clear_error(&cause);
  return FALSE;
}

static char *result_of(const char *folder, int rank, GError **error) {
  g_autofree char *name = rank < 0 ? g_strdup(csv_file) : g_strdup_printf("result-%d.txt", rank),
                  *file = path(folder, name);
  char *text = NULL;
  GError *cause = NULL;
  if (!g_file_get_contents(file, &text, NULL, &cause))
    g_set_error(error, MS_ERROR, MS_ERROR_ENV, "a rank left no result: %s", cause->message);
  g_clear_error(&cause);
  return text;
}

static MsStepRun *joined(const char *folder, int ranks, GError **error) {
  g_autoptr(MsStepRun) all = NULL;
  for (int rank = 0; rank < ranks; rank++) {
    g_autofree char *text = result_of(folder, rank, error);
    g_autoptr(MsStepRun) one = text ? ms_step_run_parse(text, "result of a rank", error) : NULL;
    if (!one) return NULL;
    if (all) {
      g_array_append_vals(all->rows, one->rows->data, one->rows->len);
      all->reference_flops = MIN(all->reference_flops, one->reference_flops);
    } else all = g_steal_pointer(&one);
  }
  return g_steal_pointer(&all);
}

MsStepRun *ms_job_step(const char *program, const char *scenario, int ranks, GError **error) {
  g_autofree char *folder = new_folder(error);
  MsStepRun *run = NULL;
  if (folder && put(folder, step_file, scenario, error) && start(program, folder, ranks, error))
    run = joined(folder, ranks, error);
  remove_folder(folder);
  return run;
}

/* NaN: none was left. */
static double jitter_of(const char *folder) {
  g_autofree char *file = path(folder, jitter_file), *text = NULL;
  return g_file_get_contents(file, &text, NULL, NULL) ? g_ascii_strtod(text, NULL) : NAN;
}

GArray *ms_job_messages(const char *program, const char *scenario, int ranks, gboolean quick, double *jitter,
                        GError **error) {
  g_autofree char *folder = new_folder(error), *text = NULL;
  *jitter = NAN;
  GArray *samples = NULL;
  if (folder && put(folder, messages_file, scenario, error) && (!quick || put(folder, quick_file, "", error)) &&
      start(program, folder, ranks, error))
    text = result_of(folder, -1, error);
  if (text) samples = ms_messages_parse(text, csv_file, error);
  if (samples) *jitter = jitter_of(folder);
  remove_folder(folder);
  return samples;
}

/* --- the side of a rank ---------------------------------------------------------------------------------------- */
static gboolean work_step(const char *folder, const char *file, GError **error) {
  g_autoptr(MsScenario) scenario = ms_scenario_load(file, error);
  g_autoptr(MsStepRun) run = scenario ? ms_step_run(scenario, NULL, MS_LOCAL_STEPS, error) : NULL;
  if (!run) return FALSE;
  g_autofree char *name = g_strdup_printf("result-%d.txt", ms_ranks_own()), *text = ms_step_run_text(run);
  return put(folder, name, text, error);
}

static gboolean work_messages(const char *folder, const char *file, GError **error) {
  g_autofree char *quick = path(folder, quick_file);
  g_autoptr(MsScenario) scenario = ms_scenario_load(file, error);
  g_autoptr(MsLayout) layout = scenario ? ms_layout_new_or_error(scenario, error) : NULL;
  const MsBlas *blas = layout ? ms_blas_open(NULL, error) : NULL;
  if (!blas) return FALSE;
  ms_blas_set_threads(blas, 1);
  MsComm *comm = ms_comm_new(layout, ms_ranks_own(), sizeof(float));
  double jitter;
  g_autoptr(GArray) samples =
      ms_messages_measure(comm, blas, ms_ranks_own(), g_file_test(quick, G_FILE_TEST_EXISTS), 3, &jitter);
  ms_comm_free(comm);
  if (ms_ranks_own() > 0) return TRUE;
  g_autofree char *text = ms_messages_text(samples), *of_ranks = g_strdup_printf("%.6g", jitter);
  return put(folder, jitter_file, of_ranks, error) && put(folder, csv_file, text, error);
}

gboolean ms_job_work(const char *folder, GError **error) {
  g_autofree char *messages = path(folder, messages_file), *step = path(folder, step_file);
  return g_file_test(messages, G_FILE_TEST_EXISTS) ? work_messages(folder, messages, error)
                                                   : work_step(folder, step, error);
}
