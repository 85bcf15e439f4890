/* Plausibility of the planner: what experts chose for the headline runs of scenarios/headline/index, beside the winner
 * of a plan over the same options. The test takes the runs whose plan is quick; `make headline` (this program with
 * --table) prints all of them as the table of docs/planner.md, or the scenarios that are named. */
#include "lib/close.h"

#include "base/units.h"
#include "study/parts.h"
#include "study/reasons.h"

#include <stdio.h>
#include <string.h>

#define INDEX  "scenarios/headline/index"
#define WITHIN 0.10

typedef struct {
  char *published, *request; /* request NULL: the one around the published run */
  gboolean quick;
} Run;

static void run_clear(gpointer data) {
  Run *run = data;
  g_free(run->request);
  g_free(run->published);
}

static GArray *runs_new(void) {
  GArray *runs = g_array_new(FALSE, FALSE, sizeof(Run));
  g_array_set_clear_func(runs, run_clear);
  return runs;
}

/* Lines "published [request] [slow]"; # starts a comment. */
static GArray *runs_of_index(void) {
  g_autofree char *text = NULL;
  GArray *runs = runs_new();
  if (!g_file_get_contents(INDEX, &text, NULL, NULL)) fail_msg("no %s", INDEX);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  for (int i = 0; lines[i]; i++) {
    g_auto(GStrv) word = g_strsplit(lines[i], " ", -1);
    if (!word[0] || !*word[0] || word[0][0] == '#') continue;
    gboolean request = word[1] && g_str_has_suffix(word[1], ".json");
    Run run = {g_strdup(word[0]), request ? g_strdup(word[1]) : NULL, !word[1] || !g_str_has_suffix(lines[i], " slow")};
    g_array_append_val(runs, run);
  }
  return runs;
}

typedef struct {
  MsRequest *request;
  MsPlan *plan;
  MsReasons *reasons;
} Judged;

static void judged_clear(Judged *j) {
  ms_reasons_free(j->reasons);
  ms_plan_free(j->plan);
  ms_request_free(j->request);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Judged, judged_clear)

/* Share of the device memory that the published layout is predicted to need. 0 with an error. */
static double own_fraction(const MsScenario *published, GError **error) {
  g_autoptr(MsResult) result = published ? ms_simulate(published, MS_FIDELITY_BOUND, NULL, error) : NULL;
  return result ? ms_device_B(result) / published->hardware->hbm_B : 0;
}

static MsRequest *request_of(const Run *run, GError **error) {
  if (run->request) return ms_request_load(run->request, error);
  g_autoptr(MsScenario) published = ms_scenario_load(run->published, error);
  double fraction = own_fraction(published, error);
  g_autofree char *text = fraction > 0 ? ms_request_around(published, fraction) : NULL;
  g_autoptr(MsJson) doc = text ? ms_json_parse(text, -1, run->published, error) : NULL;
  return doc ? ms_request_from_doc(doc, error) : NULL;
}

/* `fraction` > 0 instead of the request's own share of the memory. */
static Judged judge(const Run *run, double fraction) {
  GError *error = NULL;
  Judged j = {0};
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.top = 1;
  j.request = request_of(run, &error);
  if (j.request && fraction > 0) j.request->max_memory_fraction = fraction;
  if (j.request) j.plan = ms_plan(j.request, &options, &error);
  if (j.plan) j.reasons = ms_reasons_new(j.request, j.plan, &options, FALSE, run->published, &error);
  if (!j.reasons) fail_msg("%s: %s", run->published, error->message);
  if (j.plan->n_best == 0) fail_msg("%s: nothing feasible", run->published);
  return j;
}

/* No more memory than the published layout is predicted to need. */
static Judged judge_with_its_memory(const Run *run, const Judged *j) {
  return judge(run, ms_device_B(ms_reasons_named(j->reasons)) / j->request->base->hardware->hbm_B);
}

static double slower(const Judged *j) {
  return ms_reasons_named(j->reasons)->step_time_s / j->plan->best[0].result->step_time_s - 1;
}
static gboolean fits(const Judged *j) { return ms_device_B(ms_reasons_named(j->reasons)) <= j->plan->memory_limit_B; }

static void experts_choice_is_near_the_best(void **state) {
  (void)state;
  g_autoptr(GArray) runs = runs_of_index();
  guint judged = 0;
  for (guint i = 0; i < runs->len; i++) {
    const Run *run = &g_array_index(runs, Run, i);
    if (!run->quick) continue;
    g_auto(Judged) j = judge(run, 0);
    if (!fits(&j)) fail_msg("%s: the published layout does not fit", run->published);
    if (slower(&j) > WITHIN)
      fail_msg("%s: the published layout is %.1f %% slower than the winner", run->published, 100 * slower(&j));
    judged++;
  }
  assert_true(judged >= 4);
}

/* Of every run; those of a request of their own leave something open, so that their memory is not one number. */
static void with_its_memory_too(void **state) {
  (void)state;
  g_autoptr(GArray) runs = runs_of_index();
  guint judged = 0;
  for (guint i = 0; i < runs->len; i++) {
    const Run *run = &g_array_index(runs, Run, i);
    if (run->request) continue;
    g_autoptr(MsScenario) published = ms_scenario_load(run->published, NULL);
    g_auto(Judged) j = judge(run, own_fraction(published, NULL));
    if (slower(&j) > WITHIN)
      fail_msg("%s: with no more memory the winner is still faster, the published layout takes %.1f %% longer",
               run->published, 100 * slower(&j));
    judged++;
  }
  assert_true(judged >= 6);
}

/* --- the table ------------------------------------------------------------------------------------------------- */
static void print_layout(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  printf("TP%d", l->tp);
  if (l->cp > 1) printf(" CP%d", l->cp);
  printf(" PP%d VPP%d", l->pp, l->vpp);
  if (s->model->num_experts > 0) printf(" EP%d", l->ep);
  if (l->etp > 1) printf(" ETP%d", l->etp);
  printf(" b%d", s->training.micro_batch_size);
  const MsRecomputeSpec *r = &s->options.recompute;
  if (r->granularity == MS_RECOMPUTE_FULL) printf(" full recompute");
  for (int m = 0; r->granularity == MS_RECOMPUTE_SELECTIVE && ms_recompute_module_words[m]; m++)
    if (r->modules & (1u << m)) printf(" %s", ms_recompute_module_words[m]);
}

static void print_side(const MsScenario *s, const MsResult *r) {
  print_layout(s);
  printf(" | %.2f s | %.0f | ", r->step_time_s, ms_device_B(r) / MS_GIB);
}

static void print_row(const Run *run) {
  g_auto(Judged) j = judge(run, 0);
  const MsResult *named = ms_reasons_named(j.reasons);
  printf("| %s | ", j.request->base->name);
  print_side(j.reasons->named, named);
  print_side(j.plan->best[0].scenario, j.plan->best[0].result);
  printf("%.1f %%%s | ", 100 * slower(&j), fits(&j) ? "" : ", does not fit");
  g_auto(Judged) same = judge_with_its_memory(run, &j);
  printf("%.1f %% |\n", 100 * slower(&same));
  fflush(stdout);
}

/* Of the files, or of the index where none is named. */
static int print_table(int n, char **files) {
  g_autoptr(GArray) runs = n > 0 ? runs_new() : runs_of_index();
  for (int i = 0; i < n; i++) g_array_append_val(runs, ((Run){.published = g_strdup(files[i])}));
  printf("| run | published layout | step | GiB | winner | step | GiB | published slower by | with its memory "
         "|\n|---|---|--:|--:|---|--:|--:|--:|--:|\n");
  for (guint i = 0; i < runs->len; i++) print_row(&g_array_index(runs, Run, i));
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--table") == 0) return print_table(argc - 2, argv + 2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(experts_choice_is_near_the_best),
                                     cmocka_unit_test(with_its_memory_too)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
