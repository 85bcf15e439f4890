/* src/cli/run.c - the verb run: a scenario is loaded (describe/scenario.c), predicted (sim/simulate.c) and printed
 * (report/table.c). */
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/ranks.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "cluster/goal.h"
#include "report/report.h"

enum { MAX_DRAWS = 1000000, CLUSTER_DRAWS = 8 };
static const char *const fidelities[] = {"bound", "fast", "full", "cluster", NULL};
enum { CLUSTER = MS_FIDELITY_FULL + 1 }; /* of `fidelities`: full, and every rank */

typedef struct {
  char *fidelity, *trace, *memory;
  gboolean json, explain, strict, timeline;
  int draws; /* MS_CLI_UNSET: the scenario alone */
  gboolean cluster;
  char *like, *ranks, *limit, *hardware;
  int steps; /* MS_CLI_UNSET */
} Options;

/* --- the trace in the form of a profiler ----------------------------------------------------------------------- */
enum { MOST_RANKS = 256, MOST_STEPS = 1000 };

/* "0,8": numbers from 0 on, none twice. NULL: not that. (transfer full) */
static GArray *ranks_of(const char *text) {
  g_auto(GStrv) words = g_strsplit(text ? text : "0", ",", -1);
  GArray *ranks = g_array_new(FALSE, FALSE, sizeof(int));
  for (int i = 0; words[i]; i++) {
    guint64 number = 0;
    gboolean good = g_ascii_string_to_unsigned(words[i], 10, 0, 1 << 28, &number, NULL) && i < MOST_RANKS;
    int rank = (int)number;
    for (guint k = 0; k < ranks->len; k++) good = good && g_array_index(ranks, int, k) != rank;
    if (!good) {
      g_array_unref(ranks);
      return NULL;
    }
    g_array_append_val(ranks, rank);
  }
  return ranks;
}

/* NULL, or what is wrong. */
static const char *wrong_kineto(const Options *o, gboolean cluster) {
  if (!o->like && o->ranks && cluster && !o->trace) return "--ranks needs --trace";
  if (!o->like && !(o->ranks && cluster))
    return o->ranks || o->limit || o->steps != MS_CLI_UNSET
               ? "--ranks, --steps and --limit need --like kineto, --ranks else --fidelity cluster"
               : NULL;
  gboolean goal = g_strcmp0(o->like, "goal") == 0;
  if (o->like && !goal && strcmp(o->like, "kineto") != 0) return "--like takes kineto or goal";
  if (!o->trace) return "--like needs --trace";
  if (goal && (o->ranks || o->limit || o->steps != MS_CLI_UNSET))
    return "--ranks, --steps and --limit need --like kineto, --ranks else --fidelity cluster";
  g_autoptr(GArray) ranks = ranks_of(o->ranks);
  double limit_B;
  g_autofree char *why = NULL;
  if (!ranks) return "--ranks takes up to 256 numbers from 0 on, separated by commas, none twice";
  if (o->steps != MS_CLI_UNSET && (o->steps < 1 || o->steps > MOST_STEPS))
    return "--steps takes a number from 1 to 1000";
  if (o->limit && (!ms_quantity_parse(o->limit, "B", FALSE, &limit_B, &why) || !(limit_B >= 1)))
    return "--limit takes bytes, such as 20MB";
  return NULL;
}

/* The form of a profiler: of ranks of the full step, or of those of a cluster. */
static gboolean wants_ranks(const Options *o) {
  return o->trace && (o->like ? strcmp(o->like, "kineto") == 0 : o->ranks != NULL);
}

/* ran: of each rank, NULL: as in the full step. */
static gboolean write_kineto(const Options *o, const MsScenario *scenario, const MsDetail *detail,
                             MsTrajectory *const *ran, GError **error) {
  g_autoptr(GArray) ranks = ranks_of(o->ranks);
  guint64 left_out = 0;
  MsKinetoOptions options = {(const int *)(gpointer)ranks->data, (int)ranks->len,
                             o->steps == MS_CLI_UNSET ? 1 : o->steps, ran, 0};
  if (o->limit) ms_quantity_parse(o->limit, "B", FALSE, &options.limit_B, NULL);
  if (!ms_report_trace_kineto(scenario, detail, &options, o->trace, &left_out, error)) return FALSE;
  if (left_out > 0)
    fprintf(stderr, "moesim: %s: %" G_GUINT64_FORMAT " events beyond %s are left out\n", o->trace, left_out, o->limit);
  return TRUE;
}

static gboolean write_detail(const Options *o, const MsScenario *scenario, const MsDetail *detail,
                             MsTrajectory *const *ran, GError **error) {
  gboolean ok = !o->trace        ? TRUE
                : wants_ranks(o) ? write_kineto(o, scenario, detail, ran, error)
                : !o->like       ? ms_report_trace(detail, o->trace, error)
                                 : ms_goal_write(scenario, detail, o->trace, error);
  if (!ok) return FALSE;
  return !o->memory || ms_report_timeline(detail, o->memory, error);
}

static void print_run(const Options *o, const MsScenario *scenario, const MsPrintedRun *run, gboolean first) {
  if (o->json) {
    ms_cli_print_file(ms_figures_json(&ms_printed_run_figures, run));
    return;
  }
  unsigned flags = ms_report_flags() | (o->explain ? MS_REPORT_EXPLAIN : 0);
  if (!first) fputc('\n', stdout);
  ms_cli_print(ms_report_result(scenario, run->result, run->changes, flags));
  if (run->acting) ms_cli_print(ms_report_acting(run->acting));
  if (run->cluster) ms_cli_print(ms_report_cluster(run->cluster));
  if (run->draws) ms_cli_print(ms_report_draws(run->draws));
}

static gboolean to_stdout(const char *file) { return g_strcmp0(file, "-") == 0; }

static gboolean not_simulated(const char *file, const char *what, const MsResult *result, GError **error) {
  return ms_error(error, MS_ERROR_INPUT, "%s: %s, the step was not simulated: %s", file, what,
                  result->why_infeasible ? result->why_infeasible : "it is infeasible");
}

/* Of the ranks whose trace is asked for, in the first draw. */
typedef struct {
  GArray *ranks; /* int, NULL: of none */
  MsRankTimes times;
} RankTimes;

static void rank_times_clear(RankTimes *x) {
  for (int k = 0; x->times.ran && k < x->times.n; k++)
    if (x->times.ran[k]) ms_trajectory_free(x->times.ran[k]);
  g_free(x->times.ran);
  if (x->ranks) g_array_unref(x->ranks);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RankTimes, rank_times_clear)

static gboolean open_times(const Options *o, const MsScenario *s, RankTimes *x, GError **error) {
  if (!wants_ranks(o)) return TRUE;
  x->ranks = ranks_of(o->ranks);
  x->times = (MsRankTimes){(int)x->ranks->len, (const int *)(gpointer)x->ranks->data, NULL};
  for (int k = 0; k < x->times.n; k++)
    if (x->times.rank[k] >= s->gpus)
      return ms_input_error(error, s->file, 0, "gpus", "is %d: no rank %d", s->gpus, x->times.rank[k]);
  x->times.ran = g_new0(MsTrajectory *, x->times.n);
  return TRUE;
}

static gboolean run_cluster(const Options *o, const MsScenario *s, const MsResult *full, const MsDetail *detail,
                            MsCluster *cluster, RankTimes *x, GError **error) {
  if (!detail) return not_simulated(s->file, "no cluster", full, error);
  if (!open_times(o, s, x, error)) return FALSE;
  const MsClusterOptions options = {o->draws > 0 ? o->draws : CLUSTER_DRAWS, 0, TRUE, TRUE,
                                    x->times.n > 0 ? &x->times : NULL};
  return ms_cluster_run(s, full, detail, &options, cluster, error);
}

static int run_one(const Options *o, const char *file, MsFidelity fidelity, gboolean first) {
  GError *error = NULL;
  int status = ms_cli_outputs(o->trace, o->memory);
  if (status != 0) return status;
  g_autoptr(MsDetail) detail = NULL;
  gboolean wants_detail = o->trace || o->memory;
  g_autoptr(MsScenario) scenario = ms_scenario_load_on(file, o->hardware, &error);
  if (!scenario) return ms_cli_fail(error);
  const char *ranks = o->cluster            ? "fidelity cluster is"
                      : o->draws > 0        ? "--draws is"
                      : o->trace && o->like ? "--like kineto is"
                                            : NULL;
  if (ranks && !ms_scenario_refuse_pools(scenario, ranks, &error)) return ms_cli_fail(error);
  if (o->strict) ms_scenario_be_strict(scenario);
  if (o->cluster) scenario->cluster.expected = FALSE; /* ranks are drawn on top of a step of equal ones */
  g_autoptr(MsResult) result =
      ms_simulate(scenario, fidelity, wants_detail || o->timeline || o->cluster ? &detail : NULL, &error);
  if (!result) return ms_cli_fail(error);
  MsDraws draws;
  g_auto(MsCluster) cluster = {0};
  g_auto(RankTimes) times = {0};
  gboolean draws_routing = o->draws > 0 && !o->cluster;
  if (o->cluster && !run_cluster(o, scenario, result, detail, &cluster, &times, &error)) return ms_cli_fail(error);
  if (draws_routing && !ms_draws_run(scenario, fidelity, o->draws, 0, TRUE, &draws, &error)) return ms_cli_fail(error);
  if (ms_ranks_own() != 0) return 0; /* another prints */
  /* stopped before the first draw: there is the prediction, and not what was asked for beside it */
  gboolean none = (o->cluster && cluster.extent.done == 0) || (draws_routing && draws.n == 0);
  g_autoptr(MsActingLaws) acting = o->explain ? ms_acting_laws(scenario, &error) : NULL;
  if (o->explain && !acting && !ms_interrupted()) return ms_cli_fail(error);
  g_clear_error(&error); /* laws are left out of what was stopped */
  /* a person wants to know what to do, a script asks for it */
  gboolean prints = !to_stdout(o->trace) && !to_stdout(o->memory);
  gboolean advises =
      prints && fidelity == MS_FIDELITY_FULL && !o->cluster && (!o->json || o->explain) && result->step_time_s > 0;
  g_autoptr(MsChanges) changes = advises ? ms_changes_new(scenario) : NULL;
  const MsPrintedRun run = {result, draws_routing ? &draws : NULL, o->cluster ? &cluster : NULL, acting, changes};
  if (prints) print_run(o, scenario, &run, first);
  if (prints && o->timeline && detail) ms_cli_print(ms_report_pipeline(detail, ms_report_width(), ms_report_flags()));
  if (none) return MS_ERROR_NOTHING;
  if (wants_detail && detail && !write_detail(o, scenario, detail, times.times.ran, &error)) return ms_cli_fail(error);
  if (wants_detail && !detail && !not_simulated(file, "no trace", result, &error)) return ms_cli_fail(error);
  return 0;
}

/* TRUE: what is there already is a scenario or a plan request, which nobody means to overwrite by a trace. */
static gboolean holds_scenario(const char *file) {
  enum { MOST_B = 1 << 20 }; /* a trace is larger; it need not be read */
  GStatBuf is;
  if (!file || to_stdout(file) || g_stat(file, &is) != 0 || is.st_size > MOST_B) return FALSE;
  g_autoptr(MsJson) doc = ms_json_load(file, NULL);
  return doc && ms_json_member(ms_json_object(ms_json_root(doc)), "training") != NULL;
}

/* The fidelity asked for, -1 after a usage message. */
static int check(const MsVerb *verb, const Options *o, int files) {
  int fidelity = o->fidelity ? ms_cli_word(verb, "fidelity", o->fidelity, fidelities) : MS_FIDELITY_FULL;
  if (fidelity < 0) return -1;
  const char *wrong = wrong_kineto(o, fidelity == CLUSTER);
  gboolean to_file = o->trace || o->memory;
  if (files == 0)
    wrong = to_file ? "which scenario? --trace and --memory take the file behind them as their output"
                    : "which scenario? Give at least one file";
  if (to_file && files > 1) wrong = "--trace and --memory take one scenario";
  if ((to_file || o->timeline) && fidelity < MS_FIDELITY_FULL)
    wrong = "--trace, --memory and --timeline need --fidelity full";
  if (to_stdout(o->trace) && to_stdout(o->memory)) wrong = "--trace and --memory cannot both go to standard output";
  if (o->json && (to_stdout(o->trace) || to_stdout(o->memory)))
    wrong = "--json and what --trace - or --memory - write both want standard output";
  if (o->timeline && o->json) wrong = "--timeline is a picture, without --json";
  if (o->draws != MS_CLI_UNSET && (o->draws < 1 || o->draws > MAX_DRAWS))
    wrong = "--draws takes a number from 1 to 1000000";
  if (holds_scenario(o->trace) || holds_scenario(o->memory))
    wrong = "--trace and --memory take the file behind them as their output, and this is a scenario";
  if (!wrong) return fidelity;
  ms_cli_usage(verb, "%s", wrong);
  return -1;
}

int ms_cli_run(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("run");
  Options o = {.draws = MS_CLI_UNSET, .steps = MS_CLI_UNSET};
  const GOptionEntry entries[] = {
      {"hardware", 'w', 0, G_OPTION_ARG_STRING, &o.hardware, "on this machine, whatever the file says", "NAME"},
      {"fidelity", 'f', 0, G_OPTION_ARG_STRING, &o.fidelity,
       "closed form, schedule of chunks, every operator (default full), or every operator of every rank",
       "bound|fast|full|cluster"},
      {"trace", 't', 0, G_OPTION_ARG_FILENAME, &o.trace, "write a Chrome trace for ui.perfetto.dev, - is stdout",
       "FILE"},
      {"like", 0, 0, G_OPTION_ARG_STRING, &o.like,
       "form of --trace: that of the PyTorch profiler, or a GOAL schedule of all ranks (LogGOPSim, ATLAHS)",
       "kineto|goal"},
      {"ranks", 0, 0, G_OPTION_ARG_STRING, &o.ranks,
       "--like kineto, --fidelity cluster: these ranks, such as 0,8 (default 0)", "N,…"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &o.steps, "--like: so many steps one behind the other (default 1)", "N"},
      {"limit", 0, 0, G_OPTION_ARG_STRING, &o.limit, "--like: size of the file at most, such as 20MB", "BYTES"},
      {"timeline", 0, 0, G_OPTION_ARG_NONE, &o.timeline, "the pipeline as a picture of characters, below the figures",
       NULL},
      {"memory", 0, 0, G_OPTION_ARG_FILENAME, &o.memory, "write memory over time of every stage as CSV", "FILE"},
      {"explain", 'e', 0, G_OPTION_ARG_NONE, &o.explain,
       "every stage, where the numbers come from, and the laws that act", NULL},
      {"draws", 0, 0, G_OPTION_ARG_INT, &o.draws,
       "also draw the routing N times (seed, seed + 1, ...): mean, p50, p95 with standard errors; at fidelity cluster "
       "draw N steps of it (default 8)",
       "N"},
      {"strict", 0, 0, G_OPTION_ARG_NONE, &o.strict, "refuse what needs a figure that the machine's file only assumes",
       NULL},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object per scenario and line", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    int fidelity = check(verb, &o, argc - 1);
    o.cluster = fidelity == CLUSTER;
    if (o.cluster) fidelity = MS_FIDELITY_FULL;
    status = fidelity < 0 ? MS_ERROR_USAGE : 0;
    GError *error = NULL;
    if (status == 0 && (o.cluster || o.draws > 0) && !ms_ranks_begin(&error)) status = ms_cli_fail(error);
    for (int i = 1; i < argc && status == 0 && (i == 1 || !ms_interrupted()); i++)
      status = run_one(&o, argv[i], (MsFidelity)fidelity, i == 1);
  }
  ms_ranks_end();
  return ms_cli_done(entries, status);
}
