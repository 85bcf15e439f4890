#include "study/advice.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "study/parts.h"

static const MsPick *of_kind(const MsPicks *p, MsPickKind kind) {
  for (int i = 1; i < p->n; i++)
    if (p->pick[i].kinds & (1u << kind)) return &p->pick[i];
  return NULL;
}

static int number_of(const MsPicks *p, const MsPick *pick) { return (int)(pick - p->pick) + 1; }

/* "costs 2.8 %", "is 1.2 % faster" */
static const char *price(double slower, char *buf) {
  g_snprintf(buf, MS_TEXT, slower >= 0 ? "costs %.1f %% of the step" : "is %.1f %% faster", 100 * fabs(slower));
  return buf;
}

static const char *noise(const MsPick *pick) { return pick->tied ? ", which is noise" : ""; }

/* Doubled from `gpus` on until, with a quarter lost to scale, the deadline would be kept. */
static int enough_gpus(const MsBudget *b, int gpus) {
  enum { MOST = 1 << 20 };
  double needed = 1.25 * gpus * b->days / b->deadline_days;
  while (gpus < needed && gpus <= MOST / 2) gpus *= 2;
  return gpus;
}

/* Machines of several kinds have no one number of GPUs to search. */
static void say_too_late(GPtrArray *out, const MsBudget *b, const MsScenario *s, const char *tokens) {
  g_autofree char *search = g_strdup_printf("give more GPUs (--gpus %d..%d finds how many, or a list as \"gpus\" of a "
                                            "request)",
                                            s->gpus, enough_gpus(b, s->gpus));
  ms_note(out, "the %s tokens take %.1f of the %.4g days: LATE, so %s", tokens, b->days, b->deadline_days,
          ms_pools_count(&s->pools) > 0 ? "give one of the pools more GPUs" : search);
}

static void say_budget(GPtrArray *out, const MsBudget *b, const MsScenario *s) {
  char tokens[MS_TEXT];
  if (!(b->days > 0)) return;
  ms_text_tokens(b->tokens, tokens);
  if (b->deadline_days > 0 && b->late) say_too_late(out, b, s, tokens);
  else if (b->deadline_days > 0)
    ms_note(out, "the %s tokens take %.1f of the %.4g days", tokens, b->days, b->deadline_days);
  else
    ms_note(out, "the %s tokens take %s", tokens,
            b->days < 0.1 ? MS_SECONDS(b->days * MS_DAY_S) : MS_FORMAT("%.1f days", b->days));
}

/* The two parts of the step that the named layout pays most for. */
static void append_costliest(GString *out, const MsComparison *c, double step_s) {
  const MsComparedPart *most[2] = {NULL, NULL};
  for (int i = 0; i < c->n_time; i++) {
    const MsComparedPart *part = &c->time[i];
    double more_s = part->b - part->a;
    if (!(more_s > 0)) continue;
    if (!most[0] || more_s > most[0]->b - most[0]->a) most[1] = most[0], most[0] = part;
    else if (!most[1] || more_s > most[1]->b - most[1]->a) most[1] = part;
  }
  for (int k = 0; k < 2 && most[k]; k++)
    g_string_append_printf(out, "%s%s +%.1f %%", k ? ", " : ": ", most[k]->name,
                           100 * (most[k]->b - most[k]->a) / step_s);
}

/* What the layout that the user named loses against the winner, and on what. Faster beyond noise is only what the
 * request does not leave open, or what does not fit. */
static void say_named(GPtrArray *out, const MsPicks *p, const MsReasons *r, double limit_B) {
  if (!r || !r->compared) return;
  const MsResult *named = ms_reasons_named(r);
  double slower = named->step_time_s / p->pick[0].entry->result->step_time_s - 1, over_B = ms_device_B(named) - limit_B;
  const char *name = r->named->name;
  g_autoptr(GString) why = g_string_new(NULL);
  if (slower > p->noise) {
    append_costliest(why, r->compared, p->pick[0].entry->result->step_time_s);
    ms_note(out, "%s takes %.1f %% longer than 1%s", name, 100 * slower, why->str);
  } else if (over_B > 0) {
    ms_note(out, "%s needs %s more of a GPU than a plan may use", name, MS_BYTES(over_B));
  } else if (slower < -p->noise) {
    ms_note(out, "%s is %.1f %% faster than 1: keep it, or open what differs below in the request", name,
            -100 * slower);
  } else {
    ms_note(out, "%s is as fast as 1 (%+.1f %%, which is noise): keep it", name, 100 * slower);
  }
}

/* Of a pipeline that waits for its first and last microbatches, twice the batch, where it is worth saying. */
static void say_batch(GPtrArray *out, const MsPicks *p) {
  enum { LEAST_PERCENT = 2 };
  const MsScenario *s = p->pick[0].entry->scenario;
  const MsResult *first = p->pick[0].entry->result;
  double bubble = first->time.bubble_s / first->step_time_s;
  if (s->layout.pp < 2 || first->n_shares > 0 || 100 * bubble < LEAST_PERCENT ||
      s->training.global_batch_size > G_MAXINT / 2)
    return;
  g_autoptr(MsScenario) more = ms_scenario_copy(s, TRUE);
  more->training.global_batch_size *= 2;
  g_autoptr(MsResult) r = ms_simulate(more, first->fidelity, NULL, NULL);
  double gain = r && r->feasible ? 100 * (2 * first->step_time_s / r->step_time_s - 1) : 0;
  if (gain < LEAST_PERCENT) return;
  ms_note(out,
          "a batch of %d leaves 1 with %d microbatches for %d stages, a bubble of %.1f %% of the step: with %d, if the "
          "training bears it, 1 trains %.1f %% more tokens a second (bubble %.1f %%)",
          s->training.global_batch_size, first->microbatches, s->layout.pp, 100 * bubble,
          more->training.global_batch_size, gain, 100 * r->time.bubble_s / r->step_time_s);
}

/* Nobody needs memory that a run leaves anyway, nor gives much of the step for it. */
static gboolean pays(const MsPick *spare, const MsResult *first) {
  const double tight = 0.8;
  return ms_device_B(first) >= tight * first->capacity_B && spare->slower <= MS_PICK_LOSS;
}

void ms_picks_advise(MsPicks *p, const MsPlan *plan, const MsReasons *reasons) {
  GPtrArray *out = g_ptr_array_new();
  const MsResult *first = p->pick[0].entry->result;
  ms_note(out, "take 1, %s a step +-%s, %.0f tokens/s/GPU%s", MS_SECONDS(first->step_time_s), MS_PERCENT(first->band),
          first->tokens_per_s_per_gpu, p->all_tied ? "; all choices are within noise of it, so that any will do" : "");
  say_named(out, p, reasons, plan->memory_limit_B);
  say_budget(out, &p->pick[0].budget, p->pick[0].entry->scenario);
  say_batch(out, p);
  const MsPick *spare = of_kind(p, MS_PICK_MEMORY), *simple = of_kind(p, MS_PICK_SIMPLEST);
  if (spare && pays(spare, first))
    ms_note(out, "%.0f %% of the memory is used: %d frees %s of each GPU, and %s%s",
            100 * ms_device_B(first) / first->capacity_B, number_of(p, spare), MS_BYTES(spare->more_free_B),
            price(spare->slower, MS_ROOM), noise(spare));
  if (simple && simple != spare && simple->slower <= MS_PICK_LOSS)
    ms_note(out, "%d needs less to be set up, and %s%s", number_of(p, simple), price(simple->slower, MS_ROOM),
            noise(simple));
  p->n_advice = (int)out->len;
  p->advice = (char **)g_ptr_array_free(out, FALSE);
}

/* --- clusters -------------------------------------------------------------------------------------------------- */
static const MsPlanEntry *best_of(const MsSweepCell *cell) {
  return cell->plan && cell->plan->n_best > 0 ? &cell->plan->best[0] : NULL;
}

/* Steps of different models, batches or lengths do not compare. */
static gboolean one_task(const MsSweep *s) {
  const MsScenario *first = s->cell[0].request->base;
  for (int i = 1; i < s->n_cells; i++) {
    const MsScenario *other = s->cell[i].request->base;
    if (strcmp(first->model->name, other->model->name) != 0 ||
        first->training.seq_length != other->training.seq_length ||
        first->training.global_batch_size != other->training.global_batch_size)
      return FALSE;
  }
  return TRUE;
}

static double price_of_cell(const MsSweepCell *cell) { return cell->budget.price; }
static double step_of_cell(const MsSweepCell *cell) { return best_of(cell)->result->step_time_s; }
static double per_token_of_cell(const MsSweepCell *cell) { return 1 / best_of(cell)->result->tokens_per_s_per_gpu; }

/* The cell with the smallest figure, of those that keep the deadline where `in_time`; NULL: none. `but`: not this. */
static const MsSweepCell *least(const MsSweep *s, double (*figure)(const MsSweepCell *), gboolean in_time,
                                const MsSweepCell *but) {
  const MsSweepCell *found = NULL;
  for (int i = 0; i < s->n_cells; i++) {
    const MsSweepCell *cell = &s->cell[i];
    if (cell == but || !best_of(cell) || (in_time && cell->budget.late) || isnan(figure(cell))) continue;
    if (!found || figure(cell) < figure(found)) found = cell;
  }
  return found;
}

/* "64 x b200-sxm" (transfer full) */
static char *name_of(const MsSweepCell *cell) {
  const MsScenario *s = best_of(cell)->scenario;
  return g_strdup_printf("%d x %s", s->gpus, s->hardware->name);
}

/* "8.0 of the 20 days, price 30.6k" (transfer full) */
static char *bill(const MsSweepCell *cell) {
  const MsBudget *b = &cell->budget;
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%.1f", b->days);
  if (b->deadline_days > 0) g_string_append_printf(out, " of the %.4g", b->deadline_days);
  g_string_append(out, " days");
  if (b->price > 0) g_string_append_printf(out, ", price %s", ms_text_tokens(b->price, MS_ROOM));
  return g_string_free(out, FALSE);
}

/* A difference that the bands of two machines do not tell apart is said so. */
static const char *perhaps(const MsSweepCell *a, const MsSweepCell *b, double ratio) {
  return ratio - 1 <= fmax(best_of(a)->result->band, best_of(b)->result->band) ? ", which is within their bands" : "";
}

static void say_fastest(GPtrArray *out, const MsSweep *s, const MsSweepCell *taken) {
  const MsSweepCell *fastest = least(s, step_of_cell, FALSE, NULL);
  if (!fastest || fastest == taken) return;
  g_autofree char *name = name_of(fastest), *amount = bill(fastest);
  ms_note(out, "%s is the fastest: %s", name, amount);
}

double ms_sweep_late_s(const MsSweepCell *cell) {
  const MsPlan *plan = cell->plan;
  for (int i = 0; plan && plan->n_best == 0 && i < plan->n_refusals; i++)
    if (strcmp(plan->refusals[i].name, "deadline") == 0) return plan->refusals[i].miss;
  return INFINITY;
}

/* Of clusters of which none has a layout that is in time. */
static void say_late(GPtrArray *out, const MsSweep *s) {
  const MsSweepCell *nearest = NULL;
  for (int i = 0; i < s->n_cells; i++)
    if (ms_sweep_late_s(&s->cell[i]) < (nearest ? ms_sweep_late_s(nearest) : INFINITY)) nearest = &s->cell[i];
  if (!nearest) return;
  ms_note(out, "none keeps the deadline; %s comes nearest, with at least %.4g days more than the %.4g. Give more GPUs",
          nearest->request->base->hardware->name, ms_sweep_late_s(nearest) / MS_DAY_S,
          nearest->request->deadline_s / MS_DAY_S);
}

static void advise_training(GPtrArray *out, const MsSweep *s) {
  gboolean priced = least(s, price_of_cell, FALSE, NULL) != NULL;
  double (*figure)(const MsSweepCell *) = priced ? price_of_cell : step_of_cell;
  const MsSweepCell *taken = least(s, figure, TRUE, NULL), *next = taken ? least(s, figure, TRUE, taken) : NULL;
  if (!taken) {
    const MsSweepCell *nearest = least(s, step_of_cell, FALSE, NULL);
    g_autofree char *name = name_of(nearest), *amount = bill(nearest);
    ms_note(out, "none keeps the deadline; %s comes nearest: %s. Give more GPUs", name, amount);
    return;
  }
  g_autofree char *name = name_of(taken), *amount = bill(taken);
  ms_note(out, "take %s: %s, the %s", name, amount, priced ? "cheapest" : "fastest");
  if (next && priced) {
    double ratio = next->budget.price / taken->budget.price;
    g_autofree char *other = name_of(next), *others = bill(next);
    ms_note(out, "%s costs %.1f %% more%s: %s", other, 100 * (ratio - 1), perhaps(taken, next, ratio), others);
    if (next == least(s, step_of_cell, FALSE, NULL)) return;
  }
  say_fastest(out, s, taken);
}

static void advise_steps(GPtrArray *out, const MsSweep *s) {
  const MsSweepCell *fastest = least(s, step_of_cell, FALSE, NULL), *thrifty = least(s, per_token_of_cell, FALSE, NULL);
  g_autofree char *fast = name_of(fastest), *frugal = name_of(thrifty);
  ms_note(out, "%s takes the shortest step: %s", fast, MS_SECONDS(step_of_cell(fastest)));
  ms_note(out, "%s trains most per GPU: %.0f tokens/s", frugal, 1 / per_token_of_cell(thrifty));
  ms_note(out, "--tokens, --deadline and --gpu-hour say what the whole training takes on each");
}

void ms_sweep_advise(MsSweep *s) {
  GPtrArray *out = g_ptr_array_new();
  if (s->n_cells > 1 && one_task(s) && least(s, step_of_cell, FALSE, NULL)) {
    gboolean known = FALSE;
    for (int i = 0; i < s->n_cells; i++) known |= s->cell[i].budget.days > 0;
    (known ? advise_training : advise_steps)(out, s);
  } else if (s->n_cells > 1 && one_task(s)) say_late(out, s);
  s->n_advice = (int)out->len;
  s->advice = (char **)g_ptr_array_free(out, FALSE);
}
