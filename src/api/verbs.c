/* src/api/verbs.c - moesim_call: a verb, what it works on, options by the names of the command line; JSON comes back.
 */
#include "api/library.h"
#include "api/moesim.h"

#include "base/err.h"
#include "base/io.h"
#include "base/library.h"
#include "describe/rows.h"
#include "launch/launch.h"
#include "report/page.h"
#include "study/anchor.h"
#include "study/ask.h"
#include "study/parts.h"

enum { MOST_DRAWS = 1000000, MOST_TOP = 10000, MOST_THREADS = 1024, MOST_BATCH = 1 << 30 };

typedef struct {
  MsAsk ask; /* first: rows of its members serve for these, too */
  int fidelity, draws, top, threads, form;
  gboolean explain, strict, front, map, decide;
  char *compare, *under, *files, *name, *date;
} Options;

typedef struct {
  MsJson *doc; /* what it works on; NULL where the verb takes options alone */
  const Options *o;
  const moesim_watch *watch; /* may be NULL */
  gboolean nothing;          /* out: it has nothing to show (exit status 1 of the command line) */
} Call;

/* Text of what it answers (transfer full), NULL and *error. */
typedef char *(*Answer)(Call *call, GError **error);

/* --- run, launch, page ----------------------------------------------------------------------------------------- */
static MsScenario *scenario_of(const Call *c, GError **error) {
  MsScenario *s = ms_scenario_from_doc(c->doc, error);
  if (s && c->o->strict) ms_scenario_be_strict(s);
  return s;
}

/* Also of machines of several kinds. */
static MsScenario *mixed_scenario_of(const Call *c, GError **error) {
  MsScenario *s = ms_scenario_from_doc_mixed(c->doc, error);
  if (s && c->o->strict) ms_scenario_be_strict(s);
  return s;
}

static char *run(Call *c, GError **error) {
  const MsFidelity fidelity = (MsFidelity)c->o->fidelity;
  g_autoptr(MsScenario) s = c->o->draws > 0 ? scenario_of(c, error) : mixed_scenario_of(c, error);
  g_autoptr(MsResult) result = s ? ms_simulate(s, fidelity, NULL, error) : NULL;
  if (!result) return NULL;
  MsDraws draws;
  if (c->o->draws > 0 && !ms_draws_run(s, fidelity, c->o->draws, c->o->threads, FALSE, &draws, error)) return NULL;
  c->nothing = c->o->draws > 0 && draws.n == 0;
  g_autoptr(MsActingLaws) acting = c->o->explain ? ms_acting_laws(s, error) : NULL;
  if (c->o->explain && !acting) return NULL;
  g_autoptr(MsChanges) changes = c->o->explain && fidelity == MS_FIDELITY_FULL ? ms_changes_new(s) : NULL;
  const MsPrintedRun printed = {
      .result = result, .draws = c->o->draws > 0 ? &draws : NULL, .acting = acting, .changes = changes};
  return ms_figures_json(&ms_printed_run_figures, &printed);
}

static char *launch(Call *c, GError **error) {
  g_autoptr(MsScenario) s = scenario_of(c, error);
  return s ? ms_launch_text(s, ms_launch_of_word(ms_launch_word_for(s, c->o->form)), error) : NULL;
}

static char *page(Call *c, GError **error) {
  g_autoptr(MsScenario) s = scenario_of(c, error);
  MsPage *html = s ? ms_page_new(NULL) : NULL;
  gboolean ok = s && ms_page_add_run(html, s, NULL, error);
  g_autofree char *text = html ? ms_page_take(html) : NULL;
  return ok ? g_steal_pointer(&text) : NULL;
}

/* --- plan ------------------------------------------------------------------------------------------------------ */
static void report_so_far(const MsPlan *so_far, double done, gpointer user) {
  const moesim_watch *w = user;
  g_autofree char *text = ms_report_plan_so_far(so_far, done);
  w->progress(done, text, w->user);
}

static void report_sweep_so_far(const MsSweep *so_far, double done, gpointer user) {
  const moesim_watch *w = user;
  g_autofree char *text = ms_report_sweep_so_far(so_far, done);
  w->progress(done, text, w->user);
}

static MsPlanOptions plan_options(const Call *c, const MsRequest *first) {
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.progress = FALSE;
  options.threads = c->o->threads;
  if (first->top > 0) options.top = first->top;
  if (c->o->top > 0) options.top = c->o->top;
  if (c->watch && c->watch->progress) options.watch = report_so_far, options.watch_user = (gpointer)c->watch;
  return options;
}

static char *plan_one(Call *c, const MsRequest *request, GError **error) {
  g_autoptr(MsDisturbances) given = c->o->under ? ms_disturbances_load(c->o->under, error) : NULL;
  if (c->o->under && !given) return NULL;
  const MsExtrasAsked asked = {
      .under = given, .explain = c->o->explain, .compare = c->o->compare, .map = c->o->map, .decide = c->o->decide};
  if (!ms_plan_extras_check(request, &asked, error)) return NULL;
  MsPlanOptions options = plan_options(c, request);
  int top = options.top;
  if (given || request->under) options.top = MAX(top, MS_ROBUST_CANDIDATES);
  if (c->o->decide) options.top = MAX(options.top, MS_DECIDE_CANDIDATES);
  g_autoptr(MsPlan) plan = ms_plan(request, &options, error);
  options.watch = NULL;
  g_auto(MsPlanExtras) extras = {0};
  if (!plan || !ms_plan_extras(request, plan, &options, &asked, &extras, error)) return NULL;
  c->nothing = !ms_plan_answers(request, plan, &extras);
  return ms_report_plan_json(request, plan, &extras, top);
}

static char *plan(Call *c, GError **error) {
  g_autoptr(GPtrArray) requests = ms_requests_from_doc(c->doc, error);
  if (!requests) return NULL;
  for (guint i = 0; c->o->strict && i < requests->len; i++)
    ms_scenario_be_strict(((MsRequest *)g_ptr_array_index(requests, i))->base);
  const MsRequest *first = g_ptr_array_index(requests, 0);
  if (requests->len == 1 && !c->o->front) return plan_one(c, first, error);
  if (c->o->map && c->o->front) {
    ms_usage_error(error, "map does not go with front, which searches several times");
    return NULL;
  }
  if (c->o->explain || c->o->compare || c->o->under || c->o->decide || first->under) {
    ms_usage_error(error,
                   "explain, compare, decide and under (or plan.under) take one search; %s has %u, and front makes "
                   "several of one",
                   ms_json_filename(c->doc), requests->len);
    return NULL;
  }
  for (guint i = 0; i < requests->len; i++)
    if (!ms_scenario_refuse_pools(((const MsRequest *)g_ptr_array_index(requests, i))->base,
                                  "a front, or several clusters or models at once, is", error))
      return NULL;
  MsPlanOptions options = plan_options(c, first);
  const MsSweepAsked asked = {.front = c->o->front,
                              .map = c->o->map,
                              .watch = options.watch ? report_sweep_so_far : NULL,
                              .user = options.watch_user};
  options.watch = NULL;
  g_autoptr(MsSweep) sweep = ms_sweep(requests, &options, &asked, error);
  if (!sweep) return NULL;
  c->nothing = !ms_sweep_answers(sweep);
  return ms_report_sweep_json(sweep);
}

static char *request(Call *c, GError **error) {
  MsAsk ask = c->o->ask;
  if (ask.seq_length == 0) ask.seq_length = MS_ASK_UNSET;
  if (ask.global_batch_size == 0) ask.global_batch_size = MS_ASK_UNSET;
  return ms_ask_request(&ask, FALSE, error);
}

static char *anchor(Call *c, GError **error) {
  const Options *o = c->o;
  if (!o->files || !*o->files || !o->date) return ms_usage_error(error, "give files and date"), NULL;
  g_auto(GStrv) files = g_strsplit(o->files, ",", -1);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  const MsAnchorOptions options = {(const char *const *)files, o->ask.hardware, o->name, o->date, o->threads};
  g_autoptr(MsAnchored) anchored = ms_anchor(&options, notes, error);
  return anchored ? g_steal_pointer(&anchored->text) : NULL;
}

/* --- studies --------------------------------------------------------------------------------------------------- */
static char *whatif(Call *c, GError **error) {
  MsWhatif *study = ms_whatif_from_doc(g_steal_pointer(&c->doc), error);
  g_autoptr(MsWhatifRun) done =
      study ? ms_whatif_run(study, &(MsWhatifOptions){.threads = c->o->threads}, error) : NULL;
  if (!done) return NULL;
  c->nothing = done->extent.done == 0;
  return ms_report_whatif_json(done);
}

static char *goodput(Call *c, GError **error) {
  MsGoodput *study = ms_goodput_from_doc(c->doc, error);
  g_autoptr(MsGoodputResult) done =
      study ? ms_goodput_run(study, &(MsGoodputOptions){.threads = c->o->threads}, error) : NULL;
  if (!done) return NULL;
  c->nothing = done->extent.done == 0 && ms_extent_stopped(&done->extent);
  return ms_figures_json(&ms_goodput_figures, done);
}

typedef struct {
  char **models, **machines;
} Names;
static const MsFigures names_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_STRV("models", Names, models, &ms_figure_texts, .doc = "of the data folder"),
                      MS_FIGURE_STRV("hardware", Names, machines, &ms_figure_texts, .doc = "of the data folder"));

static char *names(Call *c, GError **error) {
  g_autoptr(GPtrArray) models = ms_model_names();
  g_autoptr(GPtrArray) machines = ms_data_names("hardware");
  (void)c, (void)error;
  return ms_figures_json(&names_figures, &(Names){(char **)models->pdata, (char **)machines->pdata});
}

/* --- options of each verb -------------------------------------------------------------------------------------- */
#define THREADS MS_INT(Options, threads, 0, MOST_THREADS, "0", 0, "0: all cores; the answer is the same")
#define STRICT  MS_BOOL(Options, strict, "false", 0, "refuse what needs a figure that the machine's file only assumes")
static const MsField run_fields[] = {
    MS_ENUM(Options, fidelity, ms_fidelity_words, "\"full\"", 0, "closed form, schedule of chunks, or every operator"),
    MS_INT(Options, draws, 0, MOST_DRAWS, "0", 0, "also draw the routing so many times"),
    MS_BOOL(Options, explain, "false", 0, "the laws that act"),
    STRICT,
    THREADS,
    {0}};
static const MsField plan_fields[] = {
    MS_INT(Options, top, 0, MOST_TOP, "0", 0, "how many layouts to keep; 0: the request's plan.top, else 10"),
    MS_BOOL(Options, explain, "false", 0, "what bounds the winner, what would help most, the runner-up"),
    MS_STRING(Options, compare, MS_NULLABLE, "file: a layout of the same task beside the winner"),
    MS_STRING(Options, under, MS_NULLABLE, "file: disturbances to choose under"),
    MS_BOOL(Options, decide, "false", 0, "how sure the choice is, and which short runs would settle it"),
    MS_BOOL(Options, map, "false", 0, "step time and memory of all layouts, or of a sample that stands for them"),
    MS_BOOL(Options, front, "false", 0, "front of step time, free memory and GPUs"),
    STRICT,
    THREADS,
    {0}};
static const MsField request_fields[] = {
    MS_STRING(MsAsk, model, MS_NULLABLE, "what to train; several separated by commas"),
    MS_STRING(MsAsk, hardware, MS_NULLABLE, "on which machine; several separated by commas"),
    MS_STRING(MsAsk, gpus, MS_NULLABLE, "on how many GPUs; several separated by commas, 256..2048 doubles"),
    MS_STRING(MsAsk, seq_lengths, MS_NULLABLE, "instead of seq_length: several, separated by commas"),
    MS_STRING(MsAsk, global_batch_sizes, MS_NULLABLE, "instead of global_batch_size: several, separated by commas"),
    MS_STRING(MsAsk, tokens, MS_NULLABLE, "of the whole training, 15T"),
    MS_STRING(MsAsk, critical_batch_tokens, MS_NULLABLE, "tokens of a batch that needs twice `tokens`, 4Mi"),
    MS_STRING(MsAsk, deadline, MS_NULLABLE, "for these tokens, 30d"),
    MS_STRING(MsAsk, gpu_hour, MS_NULLABLE, "price of a GPU-hour, or of each machine: \"2.50,3.80\""),
    MS_STRING(MsAsk, max_watts, MS_NULLABLE, "of all GPUs together, 1.2MW"),
    MS_STRING(MsAsk, max_memory, MS_NULLABLE, "of a GPU that a plan may use: a share of it, 0.9, or 70GB"),
    MS_STRING(MsAsk, lora, MS_NULLABLE,
              "rank of adapters (LoRA) beside frozen weights, 16; null: all weights are trained"),
    MS_STRING(MsAsk, precision, MS_NULLABLE, "default bf16; auto tries all that the machine has"),
    MS_INT(MsAsk, seq_length, 0, MOST_BATCH, "0", 0, "tokens of a sequence; 0: 4096"),
    MS_INT(MsAsk, global_batch_size, 0, MOST_BATCH, "0", 0, "sequences of a step; 0: 4 Mi tokens"),
    MS_STRING(MsAsk, around, MS_NULLABLE, "instead of all these the file of a run: its layout is left open"),
    {0}};
static const MsField anchor_fields[] = {
    MS_STRING(Options, files, MS_NULLABLE,
              "scenarios with `measured`, each with the profile or the log of its run behind it; separated by commas"),
    MS_STRING(MsAsk, hardware, MS_NULLABLE, "machine to start from, in place of that of the scenarios"),
    MS_STRING(Options, name, MS_NULLABLE, "of the new machine; null: NAME-anchored"),
    MS_STRING(Options, date, MS_NULLABLE, "of the provenance, YYYY-MM-DD"),
    THREADS,
    {0}};
static const MsField threads_fields[] = {THREADS, {0}};
static const MsField launch_fields[] = {MS_ENUM(Options, form, ms_launch_words, NULL, MS_NULLABLE,
                                                "of the launch; null: the one of the scenario's framework"),
                                        {0}};
static const MsField no_fields[] = {{0}};

static const struct {
  Answer answer;
  gboolean alone; /* takes no document */
  MsFieldTable options;
} verbs[] = {
    {run, FALSE, {"run", "a scenario; what `moesim run --json` prints", run_fields}},
    {plan, FALSE, {"plan", "a plan request; what `moesim plan --json` prints", plan_fields}},
    {request, TRUE, {"request", "a plan request from a few words, as `moesim plan --write-request`", request_fields}},
    {whatif, FALSE, {"whatif", "a study; what `moesim whatif --json` prints", threads_fields}},
    {goodput, FALSE, {"goodput", "a study; what `moesim goodput --json` prints", threads_fields}},
    {anchor, TRUE, {"anchor", "the machine file that `moesim anchor` writes", anchor_fields}},
    {launch, FALSE, {"launch", "a scenario; the text that starts it (no JSON)", launch_fields}},
    {page, FALSE, {"page", "a scenario; the page of `moesim report` (HTML)", no_fields}},
    {names, TRUE, {"names", "models and machines that are shipped", no_fields}},
};

/* --- the call -------------------------------------------------------------------------------------------------- */
static int place_of(const char *verb, GError **error) {
  const char *known[G_N_ELEMENTS(verbs) + 1] = {NULL};
  for (guint i = 0; i < G_N_ELEMENTS(verbs); i++) {
    known[i] = verbs[i].options.name;
    if (g_strcmp0(verb, known[i]) == 0) return (int)i;
  }
  g_autofree char *suggestion = verb ? ms_suggest(verb, known, NULL) : NULL;
  ms_usage_error(error, "verb %s is unknown%s%s", verb ? verb : "NULL", suggestion ? ": " : "",
                 suggestion ? suggestion : "");
  return -1;
}

static gboolean load_options(const MsFieldTable *table, const char *text, Options *o, GError **error) {
  ms_fields_defaults(table, o);
  if (!text) return TRUE;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "options", error);
  if (!doc || !ms_json_need_object(doc, ms_json_root(doc), "", error)) return FALSE;
  return ms_fields_load(table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, o, error);
}

static MsJson *load_doc(gboolean alone, const char *file, const char *json, GError **error) {
  if (alone && (file || json))
    g_set_error_literal(error, MS_ERROR, MS_ERROR_USAGE, "this verb takes options alone, no document");
  else if (!alone && !file && !json)
    g_set_error_literal(error, MS_ERROR, MS_ERROR_USAGE, "file and json are both NULL: give one of them");
  else if (json) return ms_json_parse(json, -1, file ? file : "json", error);
  else if (file) return ms_json_load(file, error);
  return NULL;
}

/* Exit status of the command line. */
static int status_of(gboolean answered, gboolean nothing, const GError *reason) {
  if (answered) return nothing ? MS_ERROR_NOTHING : 0;
  return reason && reason->domain == MS_ERROR ? reason->code : MS_ERROR_ENV;
}

static void tell_error(gboolean answered, GError *reason, char **error) {
  if (!answered && error) *error = g_strdup(reason ? reason->message : "stopped");
  g_clear_error(&reason);
}

static gboolean may_predict(moesim_fidelity fidelity, const void *scenario, const void *result, GError **error) {
  if (scenario && result) return ms_api_has_fidelity(fidelity, error);
  g_propagate_error(error, ms_api_missing(scenario ? "result" : "scenario"));
  return FALSE;
}

int moesim_predict(const char *file, const char *json, moesim_fidelity fidelity, int strict, moesim_scenario **scenario,
                   moesim_result **result, char **error) {
  MS_API_CALL;
  GError *reason = NULL;
  const Options o = {.fidelity = (int)fidelity, .strict = strict != 0};
  gboolean may = may_predict(fidelity, scenario, result, &reason);
  Call c = {.o = &o, .doc = may ? load_doc(FALSE, file, json, &reason) : NULL};
  MsScenario *s = c.doc ? mixed_scenario_of(&c, &reason) : NULL;
  MsResult *r = s ? ms_simulate(s, (MsFidelity)o.fidelity, NULL, &reason) : NULL;
  ms_json_free(c.doc);
  if (!r) g_clear_pointer(&s, ms_scenario_free);
  if (scenario) *scenario = (moesim_scenario *)s;
  if (result) *result = (moesim_result *)r;
  int status = status_of(r != NULL, FALSE, reason);
  tell_error(r != NULL, reason, error);
  return status;
}

int moesim_call(const char *verb, const char *file, const char *json, const char *options, const moesim_watch *watch,
                char **answer, char **error) {
  MS_API_CALL;
  GError *reason = NULL;
  Options o = {0};
  char *text = NULL;
  gboolean nothing = FALSE;
  int place = place_of(verb, &reason);
  const MsFieldTable *table = place < 0 ? NULL : &verbs[place].options;
  const volatile int *before = ms_stop_used();
  ms_stop_use(watch ? watch->stop : NULL);
  if (table && load_options(table, options, &o, &reason)) {
    Call c = {.o = &o, .watch = watch, .doc = load_doc(verbs[place].alone, file, json, &reason)};
    if (!reason) text = verbs[place].answer(&c, &reason);
    nothing = c.nothing;
    ms_json_free(c.doc);
  }
  ms_stop_use(before);
  if (table) ms_fields_clear(table, &o);
  int status = status_of(text != NULL, nothing, reason);
  tell_error(text != NULL, reason, error);
  if (answer) *answer = text;
  else g_free(text);
  return status;
}
