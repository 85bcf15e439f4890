/* src/report/plan_figures.c - the figures of a plan: all of it when it is done, and in short while it is searched. */
#include "report/report.h"

int ms_plan_shown(const MsPlan *plan, int top) { return top > 0 ? MIN(top, plan->n_best) : plan->n_best; }

static const MsPrintedPlan *printed(const void *o) { return o; }
static const char *request_name(const void *o) { return printed(o)->request->base->name; }
static const char *assumption(const void *o) { return printed(o)->assumes; }
static const char *objective_unit(const void *plan) { return ms_objective_unit(((const MsPlan *)plan)->objective); }
static double elapsed_s(const void *o) { return printed(o)->plan->elapsed_s; }
static gboolean stands_alone(const void *o) { return !printed(o)->in_sweep; }
static double proven_within(const void *o) { return ms_plan_gap(printed(o)->plan, printed(o)->request); }
static const void *best_shown(const void *o, guint i, MsFigureCursor *room) {
  (void)room;
  return i < (guint)printed(o)->shown ? &printed(o)->plan->best[i] : NULL;
}
static const void *with_reasons(const void *o) { return printed(o)->reasons ? o : NULL; }

#define OF_PLAN(...) MS_FIGURE_ROWS_AT(MsPrintedPlan, plan, MS_FIGURES(__VA_ARGS__))
const MsFigures ms_plan_figures = MS_FIGURE_TABLE(
    "plan",
    "`moesim plan --json`. A request with lists of models, machines or GPUs, and "
    "`--front`, print a [sweep](#sweep) of these.",
    MS_FIGURE_TEXT("request", request_name, "its name"),
    OF_PLAN(MS_FIGURE(U64, MsPlan, searched, "", "layouts of the space"),
            MS_FIGURE(U64, MsPlan, valid, "", "that obey the rules"),
            MS_FIGURE(U64, MsPlan, feasible, "", "that fit into memory, of those looked at"),
            MS_FIGURE(U64, MsPlan, pruned, "", "that a bound ruled out; 0 when the search was stopped"),
            MS_FIGURE(U64, MsPlan, simulated, "", "in full"), MS_FIGURE(U64, MsPlan, bounded, "", "in time and memory"),
            MS_FIGURE(U64, MsPlan, screened, "", "bounded again, more tightly"),
            MS_FIGURE(U64, MsPlan, resumed, "", "taken from a checkpoint"),
            MS_FIGURE_WORDS("objective", MsPlan, objective, ms_goal_words, "what they are ranked by"),
            MS_FIGURE_TEXT("objective_unit", objective_unit, "of `objective_value`")),
    MS_FIGURE_TEXT("objective_assumes", assumption, "in words", MS_OR_NULL),
    MS_FIGURE_OF("elapsed_s", F64, elapsed_s, "s", "of the search; the only figure that differs between two calls",
                 .when = stands_alone, .only = "not of a cell of a sweep"),
    OF_PLAN(MS_FIGURE(BOOL, MsPlan, interrupted, "", "the ranking may miss better ones"),
            MS_FIGURE(BOOL, MsPlan, branched, "", "searched by branch and bound")),
    MS_FIGURE_OF("proven_within", F64, proven_within, "1", "no layout is better than the first by more than this share",
                 MS_OR_NULL),
    OF_PLAN(MS_FIGURE(F64, MsPlan, memory_limit_B, "B", "that a layout may use"),
            MS_FIGURE_ARRAY("refused", LIST, MsPlan, refusals, n_refusals,
                            MS_FIGURES(MS_FIGURE_AS("rule", STRING, MsPlanRefusal, name, "", "that refused layouts"),
                                       MS_FIGURE(U64, MsPlanRefusal, count, "", "of them"),
                                       MS_FIGURE(STRING, MsPlanRefusal, example, "", "the nearest miss", MS_OR_NULL)))),
    MS_FIGURE_EACH(
        "best", LIST, best_shown,
        MS_FIGURES(
            MS_FIGURE_ROWS_AT(MsPlanEntry, result, &ms_result_figures, .doc = "best first; and the two keys below"),
            MS_FIGURE_AS("objective_value", F64, MsPlanEntry, figure, "", "in `objective_unit`"),
            MS_FIGURE_FILE_AT("scenario", MsPlanEntry, scenario, ms_report_scenario, "complete: it runs"))),
    MS_FIGURE_ROWS_OF(with_reasons, &ms_reasons_figures, .only = ""),
    MS_FIGURE_OBJECT_AT("robust", MsPrintedPlan, robust, &ms_robust_figures, .only = "`--under`"),
    MS_FIGURE_OBJECT_AT("decision", MsPrintedPlan, decision, &ms_decision_figures, .only = "`--decide`"),
    MS_FIGURE_OBJECT_AT("choices", MsPrintedPlan, picks, &ms_picks_figures, .only = "something fits"),
    MS_FIGURE_OBJECT_AT("map", MsPrintedPlan, map, &ms_map_figures, .only = "`--map`"),
    MS_FIGURE_OBJECT_AT("would_fit", MsPrintedPlan, ways, &ms_ways_figures, .only = "nothing fits, or is in time"));

MsPrintedPlan ms_printed_plan(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras, int top) {
  return (MsPrintedPlan){.request = request,
                         .plan = plan,
                         .reasons = extras ? extras->reasons : NULL,
                         .robust = extras ? extras->robust : NULL,
                         .decision = extras ? extras->decision : NULL,
                         .ways = extras ? extras->ways : NULL,
                         .picks = extras ? extras->picks : NULL,
                         .map = extras ? extras->map : NULL,
                         .shown = ms_plan_shown(plan, top),
                         .assumes = ms_objective_assumption(request)};
}

char *ms_report_plan_json(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras, int top) {
  MsPrintedPlan p = ms_printed_plan(request, plan, extras, top);
  char *text = ms_figures_json(&ms_plan_figures, &p);
  g_free(p.assumes);
  return text;
}

/* --- while it is searched -------------------------------------------------------------------------------------- */
typedef struct {
  const MsPlan *plan;
  double done;
} SoFar;

static const char *const few_figures[] = {"step_time_s", "tokens_per_s_per_gpu", "mfu", "memory", NULL};

#define L       MsScenario
#define SIZE(m) MS_FIGURE_AS(#m, INT, L, layout.m, "", NULL)
static const MsFigures entry_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_ROWS_AT(MsPlanEntry, result, &ms_result_figures, .few = few_figures),
    MS_FIGURE_OBJECT_AT("layout", MsPlanEntry, result, MS_FIGURES(MS_FIGURE(INT, MsResult, dp, "", NULL))),
    MS_FIGURE_OBJECT_AT(
        "scenario", MsPlanEntry, scenario,
        MS_FIGURES(MS_FIGURE_GROUP("layout", MS_FIGURES(SIZE(tp), SIZE(cp), SIZE(pp), SIZE(vpp), SIZE(ep), SIZE(etp))),
                   MS_FIGURE_GROUP("training", MS_FIGURES(MS_FIGURE_AS("micro_batch_size", INT, L,
                                                                       training.micro_batch_size, "", NULL))))));

static const MsFigures so_far_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(F64, SoFar, done, "1", "share of the space"),
    MS_FIGURE_ROWS_AT(SoFar, plan,
                      MS_FIGURES(MS_FIGURE(U64, MsPlan, searched, "", "layouts"),
                                 MS_FIGURE(U64, MsPlan, simulated, "", "in full"),
                                 MS_FIGURE_ARRAY("best", LIST, MsPlan, best, n_best, &entry_figures))));

char *ms_report_plan_so_far(const MsPlan *plan, double done) {
  return ms_figures_json(&so_far_figures, &(SoFar){plan, done});
}
