/* src/plan/gradients.c - ways of FSDP that share pieces, so that the tree has no nodes of its own for each.
 *
 * Products overwrite sharded gradients and add to whole ones; nothing else of options.fsdp is seen by a piece. Its
 * values are of two kinds, then, and what tells those of a kind apart (bytes of states, messages around the passes) is
 * settled with the states: until there the first of a kind stands for all. What is written over takes no longer than
 * what is read and added to, where the type on the wire is no wider than that of the gradients. So sharded gradients
 * also bound whole ones, and as long as only sums of rows are compared, which cannot grow when a row gets shorter, they
 * stand for both. */
#include "plan/tree.h"

static const char path[] = "options.fsdp";

static int kind_of(const MsChoice *c, int value) {
  return c->value[value].value.i >= MS_FSDP_OPTIM_GRADS ? MS_SHARDED : MS_WHOLE;
}

static int kind_in(const MsChoice *c, gint64 combo) { return kind_of(c, ms_choice_value(c, combo)); }

/* Sharded gradients take no longer in any row: no wider ones are written, and the clock is the same. */
static gboolean sharded_take_less(const MsRequest *r) {
  static const char *const open[] = {"options.main_grads_dtype", "options.grad_reduce_dtype",
                                     "options.expert_grad_reduce_dtype"};
  const MsOptions *o = &r->base->options;
  for (guint i = 0; i < G_N_ELEMENTS(open); i++)
    if (ms_request_leaves_open(r, open[i])) return FALSE;
  double main_B = ms_dtype_B(o->main_grads_dtype);
  return ms_dtype_B(o->grad_reduce_dtype) <= main_B && ms_expert_reduce_B(o) <= main_B && !r->base->cluster.expected;
}

void ms_gradients_find(MsTree *t) {
  MsGradientKinds *g = &t->gradients;
  const MsSpace *space = t->space;
  if (!ms_planner_cuts(t->x, MS_SHORT_SHARED)) return;
  g->choice = ms_space_choice(space, path);
  if (!g->choice) return;
  for (int k = 0; k < MS_N_GRADIENTS; k++) g->value[k] = g_new(int, g->choice->n);
  for (int i = 0; i < g->choice->n; i++) {
    int kind = kind_of(g->choice, i);
    g->value[kind][g->n[kind]++] = i;
  }
  g->wait = g->n[MS_WHOLE] > 0 && g->n[MS_SHARDED] > 0 && sharded_take_less(space->request);
}

void ms_gradients_clear(MsTree *t) {
  for (int k = 0; k < MS_N_GRADIENTS; k++) g_free(t->gradients.value[k]);
}

static gboolean waits(const MsTree *t, MsLevel level) { return t->gradients.wait && level < MS_LEVEL_BESIDE; }

gboolean ms_gradients_first(const MsTree *t, gint64 combo) {
  const MsGradientKinds *g = &t->gradients;
  if (!g->choice) return TRUE;
  int value = ms_choice_value(g->choice, combo), kind = kind_of(g->choice, value);
  return value == g->value[kind][0] && (kind == MS_SHARDED || !g->wait);
}

gint64 ms_gradients_nth(const MsTree *t, gint64 combo, MsLevel level, int i) {
  const MsGradientKinds *g = &t->gradients;
  if (i >= ms_gradients_count(t, combo, level)) return -1;
  if (!g->choice || level >= MS_LEVEL_STATE) return combo;
  if (waits(t, level)) return ms_choice_with(g->choice, combo, i);
  return ms_choice_with(g->choice, combo, g->value[kind_in(g->choice, combo)][i]);
}

gint64 ms_gradients_kind(const MsTree *t, gint64 combo, int i) {
  const MsGradientKinds *g = &t->gradients;
  if (i >= (g->wait ? MS_N_GRADIENTS : 1)) return -1;
  return g->wait ? ms_choice_with(g->choice, combo, g->value[i][0]) : combo;
}

int ms_gradients_count(const MsTree *t, gint64 combo, MsLevel level) {
  const MsGradientKinds *g = &t->gradients;
  if (!g->choice || level >= MS_LEVEL_STATE) return 1;
  return waits(t, level) ? g->choice->n : g->n[kind_in(g->choice, combo)];
}

gboolean ms_gradients_decide(const MsTree *t, const MsRule *rule) {
  return t->gradients.choice && ms_rule_reads(rule, path);
}
