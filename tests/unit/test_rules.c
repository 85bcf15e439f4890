/* What rules.def says that a rule reads is what it reads: every key is changed under every rule, on random scenarios.
 * The planner asks rules once for all layouts that agree in those keys. */
#include "lib/close.h"
#include "lib/draw.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "plan/choices_priv.h"
#include "work/work.h"

#include <math.h>
#include <string.h>

/* --- scenarios in which many rules have something to say ------------------------------------------------------- */

static gboolean chance(GRand *rand, int percent) { return g_rand_int_range(rand, 0, 100) < percent; }
static int any_of(GRand *rand, const int *value, int n) { return value[g_rand_int_range(rand, 0, n)]; }
#define ANY(...) any_of(rand, (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

static MsScenario *draw(GRand *rand) {
  static const char *const odd[] = {"glm5-2", "deepseek-v4-flash", "qwen3-next-80b-a3b"}; /* kinds of layers */
  static MsScenario *loaded[G_N_ELEMENTS(odd)];
  g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
  if (!ms_model_finish(s->model, NULL, "", NULL)) return NULL;
  if (!chance(rand, 30)) return g_steal_pointer(&s);
  int i = g_rand_int_range(rand, 0, G_N_ELEMENTS(odd));
  if (!loaded[i]) loaded[i] = ms_test_run(odd[i], -1, "h100-sxm", 8);
  MsScenario *own = ms_scenario_copy(loaded[i], FALSE);
  int layers = ANY(12, 19, 27, 35, 100); /* stages begin here and there */
  own->model->num_layers = MIN(own->model->num_layers, layers);
  own->training = s->training, own->options = s->options, own->gpus = s->gpus;
  own->layout = s->layout, s->layout.pipeline_layout = NULL;
  return own;
}

/* As a user may write it, the MTP blocks with the loss or before it, or for another model. */
static char *any_string(GRand *rand, const MsScenario *s) {
  static const char *const text[] = {NULL, "Et|tL", "Ett|tt|tt|ttL", "E|t", "Ettt|(tt|)*2mL"};
  int stages = s->layout.pp * ANY(1, 1, 2), layers = s->model->num_layers, mtp = s->model->mtp_num_layers;
  if (stages < 2 || layers <= stages || chance(rand, 40))
    return g_strdup(text[g_rand_int_range(rand, 0, G_N_ELEMENTS(text))]);
  g_autofree char *blocks = g_strnfill((gsize)mtp, 'm');
  gboolean before = chance(rand, 50);
  if (stages == 2) return g_strdup_printf("Et*%d%s|%sL", layers, before ? blocks : "", before ? "" : blocks);
  return g_strdup_printf("Et*%d|(t|)*%dt%s|%sL", layers - stages + 2, stages - 3, before ? blocks : "",
                         before ? "" : blocks);
}

/* What a draw seldom has: few rules would be asked with the keys at work. */
static void season(GRand *rand, MsScenario *s) {
  MsOptions *o = &s->options;
  MsLayoutSpec *l = &s->layout;
  if (chance(rand, 20)) s->training.sequence_lengths = (MsLengths){.n = 1, .length = {ANY(512, 8192, 1 << 20)}};
  if (chance(rand, 15)) s->training.lora = (MsLora){.rank = ANY(1, 8, 16), .targets = (guint32)ANY(1, 16, 17, 48, 304)};
  if (chance(rand, 30)) o->hybrid_context_parallel = TRUE, o->max_seqlen_per_dp_cp_rank = ANY(0, 0, 256, 65536);
  if (chance(rand, 30)) o->deterministic_mode = TRUE;
  if (chance(rand, 20)) s->hardware->host_link_Bps = NAN;
  if (chance(rand, 20)) o->cpu_offloading_num_layers = 1;
  if (chance(rand, 30)) o->recompute.granularity = MS_RECOMPUTE_SELECTIVE;
  if (chance(rand, 20)) s->training.seq_length = ANY(1002, 1004, 4100); /* nothing much divides them */
  if (chance(rand, 20)) l->schedule = g_rand_int_range(rand, 0, MS_N_SCHEDULES);
  if (chance(rand, 50)) g_clear_pointer(&l->pipeline_layout, g_free);
  if (chance(rand, 30)) g_free(l->pipeline_layout), l->pipeline_layout = any_string(rand, s);
  if (chance(rand, 50)) l->account_for_embedding_in_pipeline_split = l->account_for_loss_in_pipeline_split = FALSE;
  if (chance(rand, 10)) l->dp = s->gpus / (l->tp * l->cp * l->pp);
  if (chance(rand, 10)) l->edp = s->gpus / (l->ep * l->etp * l->pp);
  if (chance(rand, 40)) s->framework = (MsFramework)g_rand_int_range(rand, 0, MS_N_FRAMEWORKS);
  if (chance(rand, 20)) l->decoder_last_pipeline_num_layers = ANY(1, 2, 3, 4);
  if (chance(rand, 20)) o->disable_parameter_transpose_cache = TRUE;
  if (chance(rand, 15)) { /* a machine with two libraries */
    ms_hardware_free(s->hardware);
    s->hardware = ms_hardware_load("mi300x", NULL), o->grouped_gemm_library = MS_GROUPED_TURBO;
  }
  if (chance(rand, 30)) o->optimizer_impl = MS_OPTIMIZER_FOREACH;
  if (chance(rand, 10)) o->recompute_early_stop = TRUE;
  if (chance(rand, 10) && s->gpus > 1) {
    int part = ANY(2, 2, 3, 4), first = MAX(1, s->gpus / part);
    s->pools =
        (MsPools){.n = 2, .pool = {{s->hardware, NULL, first}, {ms_hardware_copy(s->hardware), NULL, s->gpus - first}}};
    if (chance(rand, 50)) { /* of replicas */
      s->pools.n = 0, s->pools.shares = 2;
      s->pools.pool[0].batch = s->pools.pool[1].batch = s->training.global_batch_size;
    }
  }
}

/* --- another value of one key ---------------------------------------------------------------------------------- */

typedef struct {
  const char *prefix;
  const MsFieldTable *table;
} Object;
static const Object objects[] = {{"layout.", &ms_layout_table},
                                 {"training.", &ms_training_table},
                                 {"training.lora.", &ms_lora_table},
                                 {"options.", &ms_options_table},
                                 {"options.recompute.", &ms_recompute_table}};

static void *object_of(MsScenario *s, int object) {
  void *const at[] = {&s->layout, &s->training, &s->training.lora, &s->options, &s->options.recompute};
  return at[object];
}

static void change(GRand *rand, const MsField *field, MsScenario *s, void *object) {
  void *at = (char *)object + field->offset;
  int words = field->words ? (int)g_strv_length((char **)field->words) : 1;
  switch (field->type) {
  case MS_T_BOOL: *(gboolean *)at = *(gboolean *)at <= 0; return;
  case MS_T_ENUM: *(int *)at = g_rand_int_range(rand, 0, words); return;
  case MS_T_WORDS: *(guint32 *)at = g_rand_int(rand) & g_rand_int(rand) & ((1u << words) - 1); return;
  case MS_T_F64: *(double *)at = ANY(0, 1, 2) * 0.5; return;
  case MS_T_INT: *(int *)at = ANY(0, 1, 1, 2, 3, 4, 6, 8, 16, 64, 100, 4096); return;
  case MS_T_STRING: g_free(*(char **)at), *(char **)at = any_string(rand, s); return;
  default: break;
  }
  if (at == (void *)&s->training.sequence_lengths) {
    s->training.sequence_lengths = (MsLengths){.n = ANY(0, 1), .length = {ANY(512, 8192, 1 << 20)}};
  } else if (at == (void *)&s->training.routing) {
    s->training.routing.kind =
        ANY(MS_ROUTING_BALANCED, MS_ROUTING_CAPACITY, MS_ROUTING_CAPACITY, MS_ROUTING_ROUND_ROBIN),
    s->training.routing.pad_to_capacity = chance(rand, 50);
  }
}

/* --- verdicts -------------------------------------------------------------------------------------------------- */

enum { HOLDS, BREAKS, NOT_ASKED };
static const char *const is_readable[] = {"layout-string-reads", "layout-string-stages", "layout-string-layers",
                                          "schedule-chunks",     "ends-divide",          NULL};
static const char *const makes_sense[] = {"sizes-positive", "pp-in-range", "world-divides", "expert-world-divides",
                                          NULL};

/* Of every rule, where it may be asked: with sizes that make sense, and about the split when a string can be read. */
static void ask(const MsScenario *s, guint8 *verdict) {
  gboolean sizes = TRUE, split = TRUE;
  for (int i = 0; i < ms_num_rules; i++) {
    const MsRule *rule = &ms_rules[i];
    verdict[i] = NOT_ASKED;
    if (!sizes || (rule->kind == MS_RULE_SPLIT && !split)) continue;
    verdict[i] = rule->holds(s, NULL, 0) ? HOLDS : BREAKS;
    if (verdict[i] == HOLDS) continue;
    split = split && !g_strv_contains(is_readable, rule->name);
    sizes = sizes && !g_strv_contains(makes_sense, rule->name);
  }
}

typedef struct {
  GHashTable *seen; /* "rule key" whose change changed a verdict */
  int changed;
} Account;

static void compare(Account *a, const guint8 *before, const guint8 *after, const char *path) {
  for (int i = 0; i < ms_num_rules; i++) {
    if (before[i] == NOT_ASKED || after[i] == NOT_ASKED || before[i] == after[i]) continue;
    if (!ms_rule_reads(&ms_rules[i], path))
      fail_msg("rule %s reads %s, rules.def does not say so", ms_rules[i].name, path);
    g_hash_table_add(a->seen, g_strdup_printf("%s %s", ms_rules[i].name, path));
    a->changed++;
  }
}

/* --- sizes ----------------------------------------------------------------------------------------------------- */

enum { GPUS, TP, CP, EP, ETP, MBS, GBS, PP, VPP, N_SIZES };

static int *size_in(MsScenario *s, int which) {
  int *const at[N_SIZES] = {&s->gpus,
                            &s->layout.tp,
                            &s->layout.cp,
                            &s->layout.ep,
                            &s->layout.etp,
                            &s->training.micro_batch_size,
                            &s->training.global_batch_size,
                            &s->layout.pp,
                            &s->layout.vpp};
  return at[which];
}

static gboolean is_size(MsScenario *s, const void *at) {
  for (int i = 0; i < N_SIZES; i++)
    if (size_in(s, i) == at) return TRUE;
  return FALSE;
}

/* Of a step, and between two flushes. */
static gint64 microbatches(const MsScenario *s) {
  gint64 dp = MAX(1, s->gpus / ((gint64)s->layout.tp * s->layout.cp * s->layout.pp)),
         all = s->training.global_batch_size / (s->training.micro_batch_size * dp);
  return all * 100000 + ms_layout_flush(s, (int)MIN(all, 99999));
}

/* A rule about options does not read sizes, one about the split only PP and VPP, one about the pipeline those and the
 * microbatches. */
static void sizes_are_read_by_kind(GRand *rand, const MsScenario *s, const guint8 *before) {
  g_autofree guint8 *after = g_new(guint8, ms_num_rules);
  for (int which = 0; which < N_SIZES; which++) {
    g_autoptr(MsScenario) other = ms_scenario_copy(s, TRUE);
    *size_in(other, which) = ANY(1, 2, 3, 4, 8, 16, 64);
    ask(other, after);
    for (int i = 0; i < ms_num_rules; i++) {
      MsRuleKind kind = ms_rules[i].kind;
      gboolean may = kind == MS_RULE_RANKS || (kind & (MS_RULE_SPLIT | MS_RULE_PIPELINE) && which >= PP) ||
                     (kind == MS_RULE_PIPELINE && microbatches(other) != microbatches(s));
      if (may || before[i] == NOT_ASKED || after[i] == NOT_ASKED) continue;
      if (before[i] != after[i]) fail_msg("rule %s, of a kind that does not, reads size %d", ms_rules[i].name, which);
    }
  }
}

/* --- the tests ------------------------------------------------------------------------------------------------- */

static void one_draw(GRand *rand, MsScenario *s, Account *a) {
  g_autofree guint8 *before = g_new(guint8, ms_num_rules), *after = g_new(guint8, ms_num_rules);
  ask(s, before);
  sizes_are_read_by_kind(rand, s, before);
  for (guint o = 0; o < G_N_ELEMENTS(objects); o++)
    for (const MsField *field = objects[o].table->fields; field->key; field++) {
      g_autoptr(MsScenario) other = ms_scenario_copy(s, TRUE);
      void *object = object_of(other, (int)o);
      if (field->offset == MS_NO_OFFSET || is_size(other, (char *)object + field->offset)) continue;
      g_autofree char *path = g_strconcat(objects[o].prefix, field->key, NULL);
      change(rand, field, other, object);
      ask(other, after);
      compare(a, before, after, path);
    }
}

/* Every key of a row made a difference once. */
static void nothing_is_named_in_vain(const Account *a) {
  for (int i = 0; i < ms_num_rules; i++) {
    g_auto(GStrv) key = g_strsplit(ms_rules[i].reads, " ", -1);
    for (int k = 0; key[k]; k++) {
      gboolean found = FALSE;
      GHashTableIter iter;
      gpointer seen;
      g_autofree char *want = g_strdup_printf("%s %s", ms_rules[i].name, key[k]);
      g_hash_table_iter_init(&iter, a->seen);
      while (g_hash_table_iter_next(&iter, &seen, NULL)) found |= g_str_has_prefix(seen, want);
      if (!found) fail_msg("rule %s: no change of %s made a difference", ms_rules[i].name, key[k]);
    }
  }
}

static void rules_read_what_they_say(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(5);
  Account a = {g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL), 0};
  for (int i = 0, n = ms_by_tier(800, 15000); i < n; i++) {
    g_autoptr(MsScenario) s = draw(rand);
    if (!s) continue;
    season(rand, s);
    one_draw(rand, s, &a);
  }
  assert_true(a.changed > ms_by_tier(3000, 10000));
  if (ms_by_tier(0, 1)) nothing_is_named_in_vain(&a); /* of few draws some may not have met the values that matter */
  g_hash_table_unref(a.seen);
}

/* A split is judged once for all layouts with the same PP, VPP and keys of MS_ROLE_SHAPE. */
static void splits_follow_from_the_shape(void **state) {
  (void)state;
  for (int i = 0; i < ms_num_rules; i++) {
    g_auto(GStrv) key = g_strsplit(ms_rules[i].reads, " ", -1);
    for (int k = 0; ms_rules[i].kind == MS_RULE_SPLIT && key[k]; k++)
      if (ms_role_of_key(key[k]) != MS_ROLE_SHAPE) fail_msg("rule %s reads %s", ms_rules[i].name, key[k]);
  }
}

/* The planner builds pieces of sets of options before it knows those behind, with which a framework may refuse them. */
static void refused_options_make_pieces(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(6);
  int built = 0;
  for (int i = 0, n = ms_by_tier(300, 3000); i < n; i++) {
    g_autoptr(MsScenario) s = draw(rand);
    if (!s) continue;
    season(rand, s);
    s->framework = (MsFramework)g_rand_int_range(rand, 0, MS_N_FRAMEWORKS);
    if (ms_layout_check_kinds(s, MS_RULE_RANKS | MS_RULE_PIPELINE | MS_RULE_SPLIT) >= 0) continue;
    g_autoptr(MsLayout) layout = ms_layout_build(s);
    ms_work_free(ms_work_new(s, layout, NULL));
    built++;
  }
  assert_true(built > ms_by_tier(20, 200));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rules_read_what_they_say),
                                     cmocka_unit_test(splits_follow_from_the_shape),
                                     cmocka_unit_test(refused_options_make_pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
