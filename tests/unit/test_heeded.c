/* Every key of a run's layout, training and options, and of its machine, moves a prediction somewhere: nothing is
 * parsed and ignored. */
#include "lib/close.h"
#include "lib/draw.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "describe/precision.h"

#include <string.h>

typedef struct {
  const MsFieldTable *table;
  size_t offset; /* in MsScenario */
} Object;
#define OBJECT(table, member) \
  { &table, offsetof(MsScenario, member) }
static const Object objects[] = {OBJECT(ms_layout_table, layout),
                                 OBJECT(ms_training_table, training),
                                 OBJECT(ms_lora_table, training.lora),
                                 OBJECT(ms_options_table, options),
                                 OBJECT(ms_recompute_table, options.recompute),
                                 OBJECT(ms_hardware_table, hardware)};

typedef struct {
  double step_s, device_B, tokens_per_s, band;
} Outcome;

/* FALSE: it cannot run. */
static gboolean outcome(const MsScenario *s, Outcome *of) {
  MsRefusal refusal;
  if (!ms_layout_check(s, &refusal)) return FALSE;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  if (!r) return FALSE;
  *of = (Outcome){r->step_time_s, 0, r->tokens_per_s_per_gpu, r->band};
  for (int i = 0; i < r->memory->stages; i++) of->device_B += r->memory->stage[i].device_B;
  return TRUE;
}

static double within(const MsField *field, double value) {
  return field->lo < field->hi ? CLAMP(value, field->lo, field->hi) : value;
}

/* Value `i` to try. FALSE: no more, or not of a type that has others. */
static gboolean change(const MsField *field, void *at, int i) {
  static const int ints[] = {0, 1, 2, 3, 4, 8, 512};
  static const double floats[] = {0, 0.25, 1, 2}, times[] = {0.5, 0.9, 4};
  enum { N_FLOATS = G_N_ELEMENTS(floats), N_TIMES = G_N_ELEMENTS(times) };
  int words = field->words ? (int)g_strv_length((char **)field->words) : 0;
  switch (field->type) {
  case MS_T_BOOL: return *(gboolean *)at = i, i < 2;
  case MS_T_ENUM: return *(int *)at = i, i < words;
  case MS_T_WORDS: return *(guint32 *)at ^= 1u << i, i < words;
  case MS_T_INT: return i < (int)G_N_ELEMENTS(ints) && (*(int *)at = (int)within(field, ints[i]), TRUE);
  case MS_T_F64:
    *(double *)at = within(field, i < N_FLOATS ? floats[i] : *(double *)at * times[MIN(i - N_FLOATS, N_TIMES - 1)]);
    return i < N_FLOATS + N_TIMES;
  default: return FALSE;
  }
}

/* What a key is for where no prediction follows from it stands in its sentence, or here. */
static const char *const others[] = {
    "dp",                                      /* a check of what follows from the other sizes */
    "edp",                                     /* likewise */
    "account_for_embedding_in_pipeline_split", /* layers divide with it or without */
    "account_for_loss_in_pipeline_split",      /* likewise: test_layout */
    "hybrid_context_parallel",                 /* with sequences of several lengths: test_packing */
    "max_seqlen_per_dp_cp_rank",               /* likewise */
    "l2_Bps",                            /* of machines measured for matrices with fewer multiplications: test_lcma */
    "nvls",                              /* of sums within a domain without a curve: test_savings */
    "kernel_jitter",                     /* what GPUs that differ are waited for: test_cluster */
    "reuse_grad_buf_for_mxfp8_param_ag", /* predictions take no other case */
    NULL};

static gboolean tried(const MsField *field) {
  char none[64] = {0};
  gboolean predicts = !strstr(field->doc, "predictions take no notice") && !g_str_has_prefix(field->doc, "moesim ");
  return predicts && field->offset != MS_NO_OFFSET && !g_strv_contains(others, field->key) && change(field, none, 0);
}

typedef union {
  double d;
  int i;
  guint32 words;
} Value;

static gboolean moves(MsScenario *s, const Outcome *was, const Object *object, const MsField *field) {
  gboolean of_machine = object->table == &ms_hardware_table, moved = FALSE, more = TRUE;
  char *at = (of_machine ? (char *)s->hardware : (char *)s + object->offset) + field->offset;
  size_t size = field->type == MS_T_F64 ? sizeof(double) : sizeof(int);
  Value value = {0};
  memcpy(&value, at, size);
  for (int i = 0; more && !moved; i++) {
    Outcome is;
    more = change(field, at, i);
    moved = more && (outcome(s, &is) ? memcmp(&is, was, sizeof is) != 0 : of_machine); /* some say what it can */
    memcpy(at, &value, size);
  }
  return moved;
}

typedef struct {
  const Object *object;
  const MsField *field;
} Key;

/* Leaves in `left` what nothing of this run moves. */
static void try_all(MsScenario *s, GArray *left) {
  Outcome was;
  if (!outcome(s, &was)) return;
  for (guint i = left->len; i-- > 0;) {
    const Key *key = &g_array_index(left, Key, i);
    if (moves(s, &was, key->object, key->field)) g_array_remove_index(left, i);
  }
}

/* What draws do not have: keys that others must go with. */
static const char *const cases[] = {
    "\"hardware\": \"h100-sxm\", \"layout\": {}, \"options\": {\"fsdp\": \"optim-grads-params\", "
    "\"num_distributed_optimizer_instances\": 2}",
    "\"hardware\": \"h100-sxm\", \"layout\": {\"pp\": 4, \"schedule\": \"zb-h1\"}, \"options\": {}",
    "\"hardware\": {\"base\": \"h100-sxm\", \"fabric_oversubscription\": 4, \"curves\": [], \"nvls\": false}, "
    "\"layout\": {\"tp\": 4}, \"options\": {\"tp_comm_overlap\": false, \"sequence_parallel\": false}",
    "\"hardware\": \"h100-sxm\", \"cluster\": {\"expected\": true}, \"layout\": {}, \"options\": {}",
    "\"hardware\": \"h100-sxm\", \"layout\": {}, \"options\": {\"lcma\": true}",
    "\"hardware\": \"mi300x\", \"layout\": {}, \"options\": {\"grouped_gemm_library\": \"primus_turbo\"}",
};

static MsScenario *case_of(int i) {
  g_autofree char *text =
      g_strdup_printf("{\"model\": \"%s\", \"gpus\": 16, \"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, "
                      "\"global_batch_size\": 64}, %s}",
                      strstr(cases[i], "primus") ? "qwen3-30b-a3b" : "llama3-8b", cases[i]);
  return ms_test_scenario_of(text);
}

static void every_key_moves_something(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autoptr(GRand) rand = g_rand_new_with_seed(1);
  g_autoptr(GArray) left = g_array_new(FALSE, FALSE, sizeof(Key));
  for (guint o = 0; o < G_N_ELEMENTS(objects); o++)
    for (const MsField *field = objects[o].table->fields; field->key; field++)
      if (tried(field)) g_array_append_val(left, ((Key){&objects[o], field}));
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = case_of((int)i);
    try_all(s, left);
  }
  for (int i = 0; i < 400 && left->len; i++) {
    g_autoptr(MsScenario) s = i % 3 ? ms_test_draw(rand, FALSE) : ms_test_draw_hybrid(rand);
    if (ms_model_finish(s->model, NULL, "", NULL)) try_all(s, left);
  }
  g_autoptr(GPtrArray) files = ms_test_files("scenarios/published");
  for (guint i = 0; i < files->len && left->len; i += 3) {
    g_autoptr(MsScenario) s = ms_scenario_load(g_ptr_array_index(files, i), NULL);
    if (s) try_all(s, left);
  }
  for (guint i = 0; i < left->len; i++) {
    const Key *key = &g_array_index(left, Key, i);
    print_error("%s.%s moves nothing\n", key->object->table->name, key->field->key);
  }
  assert_int_equal(left->len, 0);
}

static const MsField *key_at(size_t offset) {
  for (const MsField *field = ms_hardware_table.fields; field->key; field++)
    if (field->offset == offset) return field;
  return NULL;
}

static void is_peak(const char *word, MsPeak peak) {
  const MsField *field = key_at(peak.offset);
  if (!field || strcmp(field->key, peak.key) != 0) fail_msg("%s: no key of a machine says %s", word, peak.key);
}

/* What a row reads of a machine is a key that a file can give. */
static void rows_read_keys_of_machines(void **state) {
  (void)state;
  for (int i = 0; i < MS_N_PRECISIONS; i++) is_peak(ms_precision_words[i], ms_precisions[i].peak);
  for (int i = 0; i < MS_N_ODT; i++) is_peak(ms_odt_words[i], ms_op_dtypes[i].peak);
  for (int i = 0; i < MS_N_DISPATCHERS; i++) {
    const MsDispatcherRow *row = &ms_dispatchers[i];
    if ((row->machine_key && !key_at(row->machine_key)) || (row->sms_key && !key_at(row->sms_key)))
      fail_msg("%s reads what no key of a machine says", row->word);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_key_moves_something),
      cmocka_unit_test(rows_read_keys_of_machines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
