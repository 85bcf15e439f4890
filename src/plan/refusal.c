/* src/plan/refusal.c - what was refused: counts by rule, and of each the example that missed by least. */
#include "plan/refusal_priv.h"
#include "base/order.h"
#include "base/ranks.h"
#include "base/text.h"
#include <math.h>
#include <string.h>

static const char *const more_names[MS_N_REFUSED] = {"memory", "deadline", "same-as-another", "not-simulated",
                                                     "not-started"};

void ms_refused_init(MsRefusedTable *t) {
  t->n = ms_num_rules + MS_N_REFUSED;
  t->row = g_new0(MsRefused, t->n);
}

void ms_refused_clear(MsRefusedTable *t) { g_clear_pointer(&t->row, g_free); }

static gboolean nearer(double miss, guint64 order, const MsRefused *than) {
  if (than->count == 0) return TRUE;
  return miss != than->miss ? miss < than->miss : order < than->order;
}

void ms_refused_add(MsRefusedTable *t, int row, guint64 count, double miss, guint64 order, const MsCandidate *example) {
  MsRefused *r = &t->row[row];
  if (nearer(miss, order, r)) r->miss = miss, r->order = order, r->example = *example;
  r->count += count;
}

void ms_refused_merge(MsRefusedTable *into, const MsRefusedTable *from) {
  for (int i = 0; i < into->n; i++)
    if (from->row[i].count > 0)
      ms_refused_add(into, i, from->row[i].count, from->row[i].miss, from->row[i].order, &from->row[i].example);
}

void ms_refused_gather(MsRefusedTable *into, const MsRefusedTable *own) {
  g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(MsRefused));
  g_array_append_vals(rows, own->row, (guint)own->n);
  ms_ranks_gather(rows);
  for (guint i = 0; i < rows->len; i += (guint)own->n) {
    const MsRefusedTable other = {own->n, &g_array_index(rows, MsRefused, i)};
    ms_refused_merge(into, &other);
  }
}

static char *why_of(int row, const MsRefused *r, const MsScenario *s, const MsPlanOptions *options) {
  switch (row - ms_num_rules) {
  case MS_REFUSED_MEMORY:
    return isinf(r->miss) ? g_strdup("fits in no cut") : g_strdup_printf("fits if at least %s less", MS_BYTES(r->miss));
  case MS_REFUSED_DEADLINE: return g_strdup_printf("at least %s too late", MS_SECONDS(r->miss));
  case MS_REFUSED_SAME:
    return g_strdup("an open key makes no difference here; the layout with its first value stands for all");
  case MS_REFUSED_ERROR: {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsResult) result = ms_simulate(s, MS_FIDELITY_BOUND, NULL, &error);
    return g_strdup(result ? "too large to simulate" : error->message);
  }
  case MS_REFUSED_START: {
    g_autoptr(GError) error = NULL;
    options->starts(s, options->starts_user, &error);
    return g_strdup(error->message);
  }
  }
  char why[192] = "";
  ms_rules[row].holds(s, why, sizeof why);
  return g_strdup(why);
}

static char *layout_text(const MsSpace *space, const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  g_autofree char *gpus = space->axis[MS_AXIS_GPUS].n > 1 ? g_strdup_printf("gpus %d ", s->gpus) : g_strdup("");
  return g_strdup_printf("%stp %d cp %d pp %d vpp %d ep %d etp %d mbs %d", gpus, l->tp, l->cp, l->pp, l->vpp, l->ep,
                         l->etp, s->training.micro_batch_size);
}

MS_ORDER(more_first, MsPlanRefusal, MS_MORE(x->count, y->count), strcmp(x->name, y->name))

void ms_plan_sort_refusals(MsPlan *plan) {
  if (plan->n_refusals > 1) qsort(plan->refusals, (size_t)plan->n_refusals, sizeof *plan->refusals, more_first);
}

void ms_refused_hand_over(const MsRefusedTable *t, const MsSpace *space, const MsPlanOptions *options, MsPlan *plan) {
  plan->refusals = g_new0(MsPlanRefusal, t->n);
  for (int i = 0; i < t->n; i++) {
    const MsRefused *r = &t->row[i];
    if (r->count == 0) continue;
    g_autoptr(MsScenario) s = ms_candidate_scenario(space, &r->example, NULL);
    g_autofree char *why = why_of(i, r, s, options);
    char *layout = layout_text(space, s);
    plan->refusals[plan->n_refusals++] =
        (MsPlanRefusal){.name = g_strdup(i < ms_num_rules ? ms_rules[i].name : more_names[i - ms_num_rules]),
                        .example = g_strdup_printf("%s: %s", layout, why),
                        .layout = layout,
                        .miss = r->miss,
                        .count = r->count};
  }
  ms_plan_sort_refusals(plan);
}
