/* src/cli/plan.c - the verb plan: a request is loaded (describe/request.c), searched (plan/shares.c, which goes to
 * plan/search.c), and printed (report/plan_table.c). */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/plan_launch.h"
#include "launch/launch.h"
#include "base/ranks.h"
#include "report/report.h"
#include "study/ask.h"
#include "study/variant.h"

enum { MOST_TOP = 10000, MOST_THREADS = 1024 };

typedef struct {
  int top, threads, rank;
  char *decide_out;
  char *out, *launch, *compare, *under, *plot, *checkpoint, *resume, **without;
  gboolean explain, no_prune, branch, json, follow, front, strict, all, map, decide;
  char *write_request; /* keep the request in this file, "-" is standard output, and plan nothing */
  MsAsk ask;
  const GOptionEntry *entries;
} Options;

/* Of an option whose value is 0, MS_CLI_UNSET or NULL when it is not given. */
static gboolean is_given(const GOptionEntry *e) {
  if (e->arg != G_OPTION_ARG_NONE && e->arg != G_OPTION_ARG_INT) return *(char *const *)e->arg_data != NULL;
  int value = *(const int *)e->arg_data;
  return value != 0 && value != MS_CLI_UNSET;
}

/* The first of these that is given, or NULL. */
static const char *first_given(const Options *o, const char *const *options) {
  for (; *options; options++) {
    const GOptionEntry *e = o->entries;
    while (e->long_name && strcmp(e->long_name, *options + strlen("--")) != 0) e++;
    if (!e->long_name) MS_BUG("no option %s", *options);
    if (is_given(e)) return *options;
  }
  return NULL;
}

typedef struct {
  gboolean json;
  gint64 last_us;
  double best_s; /* of the last line; 0: nothing fitted */
} Follower;

/* What was found so far, as a line: for a program that reads along at most five a second, for people where there is
 * a better one. */
static gboolean is_due(Follower *f, const MsPlan *plan) {
  enum { EVERY_US = G_USEC_PER_SEC / 5 };
  gint64 now = g_get_monotonic_time();
  double best_s = plan->n_best > 0 ? plan->best[0].result->step_time_s : 0;
  if (f->json ? now - f->last_us < EVERY_US : best_s == f->best_s) return FALSE;
  f->last_us = now, f->best_s = best_s;
  return TRUE;
}

static void print_so_far(const MsPlan *plan, double done, gpointer user) {
  Follower *f = user;
  if (!is_due(f, plan)) return;
  ms_cli_print(f->json ? ms_report_plan_so_far(plan, done) : ms_report_plan_best_so_far(plan, done));
  fflush(stdout);
}

static void print_sweep_so_far(const MsSweep *sweep, double done, gpointer user) {
  Follower *f = user;
  if (!is_due(f, sweep->cell[sweep->n_cells - 1].so_far)) return;
  ms_cli_print(f->json ? ms_report_sweep_so_far(sweep, done) : ms_report_sweep_best_so_far(sweep, done));
  fflush(stdout);
}

/* The plan, or with --launch what starts one of its layouts, with --out also its scenario. Returns the exit status. */
static int print_plan(const Options *o, const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras,
                      int top) {
  if (o->out && plan->n_best > 0) {
    int status = ms_cli_plan_keep(plan, extras->robust, o->out, o->rank);
    if (status != 0 || strcmp(o->out, "-") == 0) return status;
  }
  gboolean all = o->all || o->top != MS_CLI_UNSET || request->top > 0;
  unsigned flags = ms_report_flags() | (o->explain ? MS_REPORT_EXPLAIN : 0) | (all ? MS_REPORT_ALL : 0);
  gboolean launch = o->launch && plan->n_best > 0;
  g_autofree char *text = o->json  ? ms_report_plan_json(request, plan, extras, top)
                          : launch ? NULL
                                   : ms_report_plan(request, plan, extras, top, flags);
  if (launch) return ms_cli_plan_launch(ms_cli_verb("plan"), plan, extras->robust, o->launch, o->rank, text);
  if (o->launch && !o->json) { /* no words of ours where a script is expected */
    g_autofree char *folded = ms_text_folded(ms_report_printable(text, ms_report_flags()));
    fputs(folded, stderr);
  } else ms_cli_print(g_steal_pointer(&text));
  return plan->n_best > 0 ? 0 : MS_ERROR_NOTHING;
}

static guint shortcuts(const Options *o) {
  guint bits = 0;
  for (int i = 0; o->without && o->without[i]; i++)
    for (int k = 0; ms_shortcut_words[k]; k++)
      if (strcmp(o->without[i], ms_shortcut_words[k]) == 0) bits |= 1u << k;
  return bits;
}

/* Of the form of --launch. */
static MsLaunch launch_of(const Options *o) {
  int word = 0;
  while (ms_launch_words[word] && strcmp(ms_launch_words[word], o->launch) != 0) word++;
  return ms_launch_of_word(word);
}

static gboolean starts(const MsScenario *s, gpointer options, GError **error) {
  g_autofree char *text = ms_launch_text(s, launch_of(options), error);
  return text != NULL;
}

static gboolean is_open(const char *key, gconstpointer request) { return ms_request_leaves_open(request, key); }

static MsPlanOptions plan_options(const Options *o, const MsRequest *request) {
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.prune = !o->no_prune;
  options.branch = o->branch;
  options.threads = o->threads;
  options.progress = TRUE;
  options.without = shortcuts(o);
  if (o->launch) options.starts = starts, options.starts_user = (gpointer)o;
  if (request->top > 0) options.top = request->top;
  if (o->top != MS_CLI_UNSET) options.top = o->top;
  return options;
}

/* On all ranks; the list is on rank 0 alone, which goes on by itself. `first` FALSE: this is another. */
static MsPlan *plan_on_ranks(const Options *o, const MsRequest *request, const MsPlanOptions *options, gboolean *first,
                             GError **error) {
  MsPlanOptions kept = *options;
  kept.checkpoint = o->checkpoint ? o->checkpoint : o->resume;
  kept.resume = o->resume;
  if (!ms_ranks_begin(error)) return NULL;
  *first = ms_ranks_own() == 0;
  gboolean lost =
      *first && !(ms_can_write(o->out, error) && ms_can_write(kept.checkpoint, error)); /* before the work */
  MsPlan *plan = ms_ranks_any(lost) ? NULL : ms_plan(request, &kept, error);
  ms_ranks_end();
  return plan;
}

static void say_interrupted(const Options *o) {
  const char *file = o->checkpoint ? o->checkpoint : o->resume;
  g_autofree char *next = file ? g_strdup_printf("; --resume %s goes on", file) : NULL;
  ms_cli_say_stopped(next);
}

/* What is printed is one layout, or what starts it: nothing to choose from is looked for. */
static gboolean wants_one(const Options *o) { return !o->json && (o->launch || g_strcmp0(o->out, "-") == 0); }

static MsFramework framework_of(const Options *o) {
  return o->launch ? ms_launch_framework(launch_of(o)) : MS_FRAMEWORK_MEGATRON;
}

static int plan_one(const Options *o, MsRequest *request) {
  GError *error = NULL;
  g_autoptr(MsDisturbances) given = o->under ? ms_disturbances_load(o->under, &error) : NULL;
  if (error) return ms_cli_fail(error);
  const MsDisturbances *under = given ? given : request->under;
  if (o->decide && request->objective != MS_GOAL_STEP_TIME)
    return ms_cli_usage(ms_cli_verb("plan"), "--decide weighs step times: this request is ranked by %s",
                        ms_objective_phrase(request->objective));
  const MsExtrasAsked asked = {.under = under,
                               .explain = o->explain,
                               .compare = o->compare,
                               .no_picks = wants_one(o),
                               .map = o->map,
                               .decide = o->decide};
  if (!ms_plan_extras_check(request, &asked, &error) ||
      (o->launch && (!ms_scenario_refuse_pools(request->base, "what starts a run is", &error) ||
                     !ms_launch_may_start(request->base, launch_of(o), is_open, request, &error))))
    return ms_cli_fail(error);
  if (!ms_make_folder(o->decide_out, &error)) return ms_cli_fail(error); /* before the work */
  MsPlanOptions options = plan_options(o, request);
  int top = options.top;
  if (under) options.top = MAX(top, MS_ROBUST_CANDIDATES);
  if (o->decide) options.top = MAX(options.top, MS_DECIDE_CANDIDATES);
  Follower follower = {o->json, 0, 0};
  if (o->follow) options.watch = print_so_far, options.watch_user = &follower;
  gboolean first = TRUE;
  g_autoptr(MsPlan) plan = plan_on_ranks(o, request, &options, &first, &error);
  if (!first) { /* rank 0 says it, and its status is the program's */
    g_clear_error(&error);
    return 0;
  }
  options.watch = NULL;
  if (!plan) return ms_cli_fail(error);
  g_auto(MsPlanExtras) extras = {0};
  if (!ms_plan_extras(request, plan, &options, &asked, &extras, &error)) return ms_cli_fail(error);
  if (plan->n_best > 0 && !o->launch) extras.not_started = ms_cli_why_not_started(plan->best[0].scenario);
  int status = print_plan(o, request, plan, &extras, top);
  gboolean answers = ms_plan_answers(request, plan, &extras);
  if (o->decide_out && extras.decision && status == 0)
    status = ms_cli_plan_decide_out(ms_cli_verb("plan"), extras.decision, o->decide_out, o->launch);
  say_interrupted(o);
  return status == 0 && !answers ? MS_ERROR_NOTHING : status;
}

/* Several clusters or models, or the front of one. */
static int plan_sweep(const Options *o, const GPtrArray *requests) {
  GError *error = NULL;
  for (guint i = 0; i < requests->len; i++)
    if (!ms_scenario_refuse_pools(((const MsRequest *)g_ptr_array_index(requests, i))->base,
                                  "a front, or several clusters or models at once, is", &error))
      return ms_cli_fail(error);
  MsPlanOptions options = plan_options(o, g_ptr_array_index(requests, 0));
  if (!ms_ranks_begin(&error)) return ms_cli_fail(error);
  int ranks = ms_ranks_count();
  ms_ranks_end();
  if (ranks > 1)
    return ms_cli_usage(ms_cli_verb("plan"),
                        "several clusters, models or a front are planned by one process, without mpirun or srun");
  if (!ms_report_can_plot(o->plot, &error)) return ms_cli_fail(error); /* before the long work */
  Follower follower = {o->json, 0, 0};
  const MsSweepAsked asked = {
      .front = o->front || o->plot, .map = o->map, .watch = o->follow ? print_sweep_so_far : NULL, .user = &follower};
  g_autoptr(MsSweep) sweep = ms_sweep(requests, &options, &asked, &error);
  if (!sweep) return ms_cli_fail(error);
  ms_cli_print(o->json ? ms_report_sweep_json(sweep) : ms_report_sweep(sweep));
  if (o->plot && !ms_report_sweep_plot(sweep, o->plot, &error)) return ms_cli_fail(error);
  return ms_sweep_answers(sweep) ? 0 : MS_ERROR_NOTHING;
}

/* What is to be started is searched among what its form can start, unless the request names the framework. */
static GPtrArray *requests_in(MsJson *doc, const Options *o, GError **error) {
  JsonNode *root = ms_json_root(doc);
  MsFramework framework = framework_of(o);
  if (framework != MS_FRAMEWORK_MEGATRON && JSON_NODE_HOLDS_OBJECT(root) &&
      !json_object_has_member(json_node_get_object(root), "framework"))
    json_object_set_string_member(json_node_get_object(root), "framework", ms_framework_words[framework]);
  return ms_requests_from_doc(doc, error);
}

static GPtrArray *requests_of(const char *text, const Options *o, GError **error) {
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "command line", error);
  return doc ? requests_in(doc, o, error) : NULL;
}

/* The requests of the file; without one, of the options. */
static GPtrArray *load(const Options *o, const char *file, GError **error) {
  if (file && !o->launch) return ms_requests_load(file, error);
  if (file) {
    g_autoptr(MsJson) doc = ms_json_load(file, error);
    return doc ? requests_in(doc, o, error) : NULL;
  }
  g_autofree char *text = ms_ask_request(&o->ask, TRUE, error);
  return text ? requests_of(text, o, error) : NULL;
}

/* Of indented JSON, in its place. */
static const char *one_line(char **json) {
  g_autoptr(JsonNode) node = json_from_string(*json, NULL);
  g_autofree char *flat = json_to_string(node, FALSE);
  g_free(*json);
  return *json = g_strconcat(flat, "\n", NULL);
}

/* Of --under. (transfer full) */
static JsonNode *states_of(const char *file, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(file, error);
  g_autoptr(MsDisturbances) states = doc ? ms_disturbances_from_doc(doc, error) : NULL;
  return states ? ms_json_copy(ms_json_member(ms_json_object(ms_json_root(doc)), "disturbances")) : NULL;
}

/* Options that are keys of a request are written as such. Takes `text`. */
static char *with_keys(const Options *o, char *text, GError **error) {
  if (!text || (o->top == MS_CLI_UNSET && !o->under && !o->strict)) return text;
  g_autofree char *before = text;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "command line", error);
  g_autoptr(JsonNode) states = doc && o->under ? states_of(o->under, error) : NULL;
  if (!doc || (o->under && !states)) return NULL;
  JsonObject *json = json_node_get_object(ms_json_root(doc));
  if (o->strict) json_object_set_boolean_member(json, "strict", TRUE);
  if (!json_object_has_member(json, "plan") && (o->top != MS_CLI_UNSET || states))
    json_object_set_object_member(json, "plan", json_object_new());
  if (o->top != MS_CLI_UNSET) json_object_set_int_member(json_object_get_object_member(json, "plan"), "top", o->top);
  if (states) json_object_set_member(json_object_get_object_member(json, "plan"), "under", g_steal_pointer(&states));
  return ms_json_text(ms_json_root(doc), 2);
}

static int keep_request(const Options *o) {
  GError *error = NULL;
  g_autofree char *text = with_keys(o, ms_ask_request(&o->ask, TRUE, &error), &error);
  g_autoptr(GPtrArray) checked = text ? requests_of(text, o, &error) : NULL;
  if (!checked) return ms_cli_fail(error);
  return ms_cli_write(o->write_request, o->json ? one_line(&text) : text);
}

/* What is said of one search alone. */
static const char *const of_one_search[] = {"--explain", "--compare",    "--under",  "--decide", "--launch",
                                            "--out",     "--checkpoint", "--resume", NULL};

static int plan(const MsVerb *verb, const Options *o, const char *file) {
  GError *error = NULL;
  g_autoptr(GPtrArray) requests = load(o, file, &error);
  if (!requests) return ms_cli_fail(error);
  for (guint i = 0; o->strict && i < requests->len; i++)
    ms_scenario_be_strict(((MsRequest *)g_ptr_array_index(requests, i))->base);
  if (requests->len == 1 && !o->front && !o->plot) return plan_one(o, g_ptr_array_index(requests, 0));
  const MsRequest *first = g_ptr_array_index(requests, 0);
  const char *option = first_given(o, of_one_search), *alone = option ? option : first->under ? "plan.under" : NULL;
  if (alone && requests->len == 1)
    return ms_cli_usage(verb, "%s takes one search, --front and --plot make several: give one or the other", alone);
  if (alone)
    return ms_cli_usage(verb, "%s takes one model, machine and size; %s has %u searches: keep one of them", alone,
                        file ? file : "the request", requests->len);
  if ((o->front || o->plot) && (o->map || o->follow))
    return ms_cli_usage(verb, "%s does not go with --front and --plot, which search several times",
                        o->map ? "--map" : "--follow");
  return plan_sweep(o, requests);
}

/* What stands for a request file, with --around, and what is said of a plan and is no key of a request. */
static const char *const of_a_request[] = {"--model",      "--hardware",
                                           "--gpus",       "--precision",
                                           "--seq-length", "--global-batch-size",
                                           "--tokens",     "--critical-batch-tokens",
                                           "--deadline",   "--gpu-hour",
                                           "--max-watts",  "--max-memory",
                                           "--lora",       NULL};
static const char *const of_a_plan[] = {"--explain",  "--compare", "--decide",  "--decide-out", "--front",  "--plot",
                                        "--map",      "--all",     "--follow",  "--launch",     "--out",    "--rank",
                                        "--no-prune", "--branch",  "--without", "--checkpoint", "--resume", "--threads",
                                        NULL};

/* What stands in or below the ranking, which is not printed where one layout is. */
static const char *const of_the_ranking[] = {"--all", "--explain", "--compare", "--decide", NULL};

/* A checkpoint is written over and over: what is there already and is none was meant as something else. */
static gboolean holds_other(const char *file) {
  char head[64] = "";
  FILE *there = file && g_file_test(file, G_FILE_TEST_IS_REGULAR) ? fopen(file, "r") : NULL;
  if (!there) return FALSE;
  gsize length = fread(head, 1, sizeof head - 1, there);
  fclose(there);
  return length > 0 && !strstr(head, "moesim_plan_checkpoint");
}

static int check(const MsVerb *verb, const Options *o, int files) {
  const char *beside = first_given(o, of_a_request), *planned = first_given(o, of_a_plan);
  if (o->write_request && planned)
    return ms_cli_usage(verb, "--write-request plans nothing, %s is of a plan: give one or the other", planned);
  if (ms_cli_plan_launch_check(verb, o->launch, o->out, o->rank) != 0) return MS_ERROR_USAGE;
  if (ms_cli_picture(o->plot)) return ms_cli_usage(verb, "%s", ms_cli_picture(o->plot));
  if (o->top != MS_CLI_UNSET && (o->top < 1 || o->top > MOST_TOP))
    return ms_cli_usage(verb, "--top %d: give 1 to %d", o->top, MOST_TOP);
  if (o->threads < 0 || o->threads > MOST_THREADS)
    return ms_cli_usage(verb, "--threads %d: give 0 (all cores) to %d", o->threads, MOST_THREADS);
  if (holds_other(o->checkpoint))
    return ms_cli_usage(verb, "--checkpoint %s: is there already, and no checkpoint: give a file of its own",
                        o->checkpoint);
  if (o->branch && o->no_prune) return ms_cli_usage(verb, "--branch cuts, --no-prune does not: give one of them");
  if (o->out && strcmp(o->out, "-") == 0 && (o->launch || o->json))
    return ms_cli_usage(verb, "--out - and %s both want standard output", o->launch ? "--launch" : "--json");
  if (o->follow && wants_one(o)) return ms_cli_usage(verb, "--follow and what --launch or --out - print do not mix");
  if (o->decide_out && !o->decide) return ms_cli_usage(verb, "--decide-out goes with --decide");
  if (wants_one(o) && first_given(o, of_the_ranking))
    return ms_cli_usage(verb, "%s goes with the ranking, which %s does not print: %s", first_given(o, of_the_ranking),
                        o->launch ? "--launch" : "--out -", o->launch ? "add --json" : "name a file");
  if (o->map && !o->json)
    return ms_cli_usage(verb, "--map goes with --json; `moesim report --plan` and `moesim serve` draw it");
  for (int i = 0; o->without && o->without[i]; i++)
    if (ms_cli_word(verb, "shortcut", o->without[i], ms_shortcut_words) < 0) return MS_ERROR_USAGE;
  gboolean asked = beside || o->ask.around || o->write_request;
  if (g_strcmp0(o->ask.around, "-") == 0 && !o->write_request)
    return ms_cli_usage(verb, "--around takes a file: the run is read twice, standard input is not");
  if (o->ask.around && beside)
    return ms_cli_usage(verb, "--around SCENARIO says what %s would: give one or the other", beside);
  if (files > 0 && asked)
    return ms_cli_usage(verb, "--model, --hardware, --gpus and what goes with them, or --around, stand for a request "
                              "file: give one or the other");
  if (files != 1 && !asked)
    return ms_cli_usage(verb, "give one request file, not %d; or --model, --hardware and --gpus, or --around", files);
  return 0;
}

int ms_cli_plan(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("plan");
  Options o = {.top = MS_CLI_UNSET,
               .rank = MS_CLI_UNSET,
               .ask = {.seq_length = MS_ASK_UNSET, .global_batch_size = MS_ASK_UNSET}};
  const GOptionEntry entries[] = {
      {"model", 'm', 0, G_OPTION_ARG_STRING, &o.ask.model,
       "without a request file: what to train; several separated by commas", "NAME"},
      {"hardware", 'w', 0, G_OPTION_ARG_STRING, &o.ask.hardware, "on which machine; several separated by commas",
       "NAME"},
      {"gpus", 'g', 0, G_OPTION_ARG_STRING, &o.ask.gpus,
       "on how many GPUs; several separated by commas, 256..2048 doubles from one to the other", "N"},
      {"seq-length", 's', 0, G_OPTION_ARG_STRING, &o.ask.seq_lengths,
       "tokens of a sequence, 8k is 8192 (default 4096); several separated by commas", "N"},
      {"global-batch-size", 'b', 0, G_OPTION_ARG_STRING, &o.ask.global_batch_sizes,
       "sequences of a step (default 4 Mi tokens, at least one sequence for each GPU); several separated by commas",
       "N"},
      {"tokens", 0, 0, G_OPTION_ARG_STRING, &o.ask.tokens,
       "of the whole training, 15T: days with failures, GPU-hours, MWh and tCO2e of every choice", "N"},
      {"critical-batch-tokens", 0, 0, G_OPTION_ARG_STRING, &o.ask.critical_batch_tokens,
       "tokens of a batch at which --tokens, those of small batches, double; larger batches need more of them", "N"},
      {"deadline", 0, 0, G_OPTION_ARG_STRING, &o.ask.deadline,
       "for these tokens, 30d; with several --gpus the fewest that keep it", "TIME"},
      {"gpu-hour", 0, 0, G_OPTION_ARG_STRING, &o.ask.gpu_hour,
       "price of a GPU-hour, any currency; one for each --hardware separated by commas", "PRICE"},
      {"max-watts", 0, 0, G_OPTION_ARG_STRING, &o.ask.max_watts, "of all GPUs together, 1.2MW: more GPUs are left out",
       "POWER"},
      {"max-memory", 0, 0, G_OPTION_ARG_STRING, &o.ask.max_memory,
       "of a GPU that a plan may use: a share of it, 0.9 (default 0.94), or 70GB", "SHARE|SIZE"},
      {"precision", 'p', 0, G_OPTION_ARG_STRING, &o.ask.precision, "default bf16; auto tries all that the machine has",
       "auto|bf16|fp16|fp8-delayed|fp8-tensorwise|fp8-blockwise|mxfp8|nvfp4"},
      {"lora", 0, 0, G_OPTION_ARG_STRING, &o.ask.lora,
       "train adapters of this rank (LoRA) beside frozen weights; `moesim schema lora` lists what else can be said",
       "RANK"},
      {"around", 'a', 0, G_OPTION_ARG_FILENAME, &o.ask.around,
       "without a request file: the task of this run, with its layout and recomputation left open, and the run beside "
       "the winner",
       "SCENARIO"},
      {"write-request", 0, 0, G_OPTION_ARG_FILENAME, &o.write_request,
       "keep the request of these options in FILE to edit it (- is standard output), and plan nothing", "FILE"},
      {"all", 'A', 0, G_OPTION_ARG_NONE, &o.all, "the whole ranking that was kept, below what to choose from", NULL},
      {"top", 'n', 0, G_OPTION_ARG_INT, &o.top,
       "how many layouts to keep, and the whole ranking (default 10, or the request's plan.top)", "N"},
      {"explain", 'e', 0, G_OPTION_ARG_NONE, &o.explain,
       "what bounds the winner, what would help most, the runner-up, what was refused by which rule", NULL},
      {"compare", 'c', 0, G_OPTION_ARG_FILENAME, &o.compare,
       "a layout of the same task, side by side with the winner, part by part", "SCENARIO"},
      {"under", 'u', 0, G_OPTION_ARG_FILENAME, &o.under,
       "disturbances to choose under (slow GPUs, skewed routing, ...): expected and p95 step time", "FILE"},
      {"decide", 0, 0, G_OPTION_ARG_NONE, &o.decide,
       "how sure the choice is: chance and expected regret of each layout, and the short runs that would settle it",
       NULL},
      {"decide-out", 0, 0, G_OPTION_ARG_FILENAME, &o.decide_out,
       "--decide: write these runs there, run-N.json and start-N.sh of each; `moesim anchor` takes them with their "
       "logs",
       "FOLDER"},
      {"front", 0, 0, G_OPTION_ARG_NONE, &o.front,
       "front of step time, free memory and GPUs (several plans for each cluster)", NULL},
      {"plot", 0, 0, G_OPTION_ARG_FILENAME, &o.plot, "draws the front, .svg or .png (needs gnuplot)", "FILE"},
      {"no-prune", 0, 0, G_OPTION_ARG_NONE, &o.no_prune, "simulate everything: slower, same winner", NULL},
      {"branch", 0, 0, G_OPTION_ARG_NONE, &o.branch,
       "bound sets of layouts, and cut them at once, even where there are few (of many always)", NULL},
      {"without", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o.without,
       "leave one shortcut out: bound, relaxed, memory, shared or same-as-another; may be repeated", "NAME"},
      {"checkpoint", 0, 0, G_OPTION_ARG_FILENAME, &o.checkpoint, "keep what was simulated in this file", "FILE"},
      {"resume", 0, 0, G_OPTION_ARG_FILENAME, &o.resume, "go on from such a file, and keep on writing it", "FILE"},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads,
       "0: all cores (default); the answer is the same. Under mpirun or srun the ranks share the work", "N"},
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &o.out,
       "keep the winner as a scenario in FILE, to run, report or launch it (- prints it in place of the ranking)",
       "FILE"},
      {"launch", 0, 0, G_OPTION_ARG_STRING, &o.launch,
       "what starts the winner, in a form of docs/launch.md: megatron, modelzoo, slurm, k8s, ...", "FORM"},
      {"rank", 0, 0, G_OPTION_ARG_INT, &o.rank, "with --launch and --out: this one of the ranking instead of the first",
       "N"},
      {"strict", 0, 0, G_OPTION_ARG_NONE, &o.strict, "refuse what needs a figure that the machine's file only assumes",
       NULL},
      {"follow", 0, 0, G_OPTION_ARG_NONE, &o.follow,
       "a line of what was found so far whenever there is a better layout, before the answer; with --json several "
       "times a second, and the last line has everything",
       NULL},
      {"map", 0, 0, G_OPTION_ARG_NONE, &o.map,
       "with --json: step time and memory of all layouts, or of a sample that stands for them, for a picture", NULL},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json,
       "one JSON object; best[i].scenario is a complete scenario file. With --write-request that on one line", NULL},
      {NULL}};
  int status = 0;
  o.entries = entries;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    status = check(verb, &o, argc - 1);
    if (o.ask.around && !o.compare && !o.launch) o.compare = g_strdup(o.ask.around);
    if (status == 0) status = o.write_request ? keep_request(&o) : plan(verb, &o, argv[1]);
  }
  return ms_cli_done(entries, status);
}
