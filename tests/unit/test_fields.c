/* Field tables: every type loads, prints, copies and clears; defaults, nulls, ranges, reference. */
#include "lib/close.h"

#include "base/err.h"
#include "describe/rows.h"
#include "describe/scenario.h"
#include "lib/data.h"

#include <string.h>

typedef struct {
  int depth;
} Inner;
typedef struct {
  int count, maybe;
  double size, unknown;
  gboolean on, later;
  char *text, *note;
  int word;
  guint32 words;
  Inner inner;
  JsonNode *anything;
} Outer;

static const char *const colours[] = {"red", "green", "blue", NULL};
static const MsField inner_fields[] = {MS_INT(Inner, depth, 0, 9, "3", 0, "how deep"), {0}};
static const MsFieldTable inner_table = {"outer.inner", "inside", inner_fields};
static const MsField outer_fields[] = {MS_INT(Outer, count, 1, 100, NULL, MS_REQUIRED, "how many"),
                                       MS_INT(Outer, maybe, 0, 0, NULL, MS_NULLABLE, "perhaps"),
                                       MS_F64(Outer, size, "B", 0, 1e9, "2.5", MS_NULLABLE, "how large"),
                                       MS_F64(Outer, unknown, "s", 0, 1, NULL, MS_NULLABLE, "not known"),
                                       MS_BOOL(Outer, on, "true", 0, "switch"),
                                       MS_BOOL(Outer, later, NULL, MS_NULLABLE, "decided later"),
                                       {MS_ROW(Outer, text, MS_T_STRING, "", "\"none\"", 0, "a text")},
                                       MS_STRING(Outer, note, MS_NULLABLE, "a note"),
                                       MS_ENUM(Outer, word, colours, "\"green\"", 0, "a colour"),
                                       MS_WORDS(Outer, words, colours, "[\"red\"]", 0, "some colours"),
                                       MS_OBJECT(Outer, inner, &inner_table, MS_NULLABLE, "inside"),
                                       MS_FREE(Outer, anything, "free"),
                                       MS_IGNORED(ignored, "not kept"),
                                       {0}};
static const MsFieldTable outer_table = {"outer", "a test", outer_fields};

static gboolean load(Outer *outer, const char *text, GError **error) {
  MsJson *doc = ms_json_parse(text, -1, "f", error);
  assert_non_null(doc);
  ms_fields_defaults(&outer_table, outer);
  gboolean ok = ms_fields_load(&outer_table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, outer, error);
  ms_json_free(doc);
  return ok;
}

static char *written(const Outer *outer, gboolean all) {
  g_autoptr(JsonNode) node = ms_fields_node(&outer_table, outer, all);
  return ms_json_text(node, 0);
}

static void defaults(void **state) {
  (void)state;
  Outer outer;
  assert_true(load(&outer, "{\"count\":7}", NULL));
  assert_int_equal(outer.count, 7);
  assert_int_equal(outer.maybe, MS_NULL_INT);
  assert_close(outer.size, 2.5, 0);
  assert_true(isnan(outer.unknown));
  assert_true(outer.on);
  assert_int_equal(outer.later, -1);
  assert_string_equal(outer.text, "none");
  assert_null(outer.note);
  assert_int_equal(outer.word, 1);
  assert_int_equal(outer.words, 1);
  assert_int_equal(outer.inner.depth, 3);
  char *text = written(&outer, FALSE);
  assert_string_equal(text, "{\"count\":7}");
  g_free(text);
  ms_fields_clear(&outer_table, &outer);
}

static const char full[] =
    "{\"count\":7,\"maybe\":-5,\"size\":0.5,\"unknown\":1,\"on\":false,\"later\":true,\"text\":\"x\","
    "\"note\":\"y\","
    "\"word\":\"blue\",\"words\":[\"green\",\"blue\"],\"inner\":{\"depth\":9},\"anything\":[1,{\"a\":null}]}";

static void writes_what_it_read(void **state) {
  (void)state;
  Outer outer, copy;
  assert_true(load(&outer, full, NULL));
  ms_fields_copy(&outer_table, &outer, &copy);
  ms_fields_clear(&outer_table, &outer);
  for (int all = 0; all < 2; all++) {
    char *text = written(&copy, all);
    assert_string_equal(text, full);
    g_free(text);
  }
  ms_fields_clear(&outer_table, &copy);
}

static void null_means_default(void **state) {
  (void)state;
  Outer outer;
  assert_true(load(&outer,
                   "{\"count\":1,\"maybe\":null,\"size\":null,\"unknown\":null,\"later\":null,\"note\":null,"
                   "\"inner\":null,\"ignored\":[null]}",
                   NULL));
  assert_close(outer.size, 2.5, 0);
  assert_true(isnan(outer.unknown));
  assert_int_equal(outer.inner.depth, 3);
  ms_fields_clear(&outer_table, &outer);
}

static void all_writes_null(void **state) {
  (void)state;
  Outer outer;
  assert_true(load(&outer, "{\"count\":1}", NULL));
  char *text = written(&outer, TRUE);
  assert_string_equal(
      text, "{\"count\":1,\"maybe\":null,\"size\":2.5,\"unknown\":null,\"on\":true,\"later\":null,\"text\":"
            "\"none\","
            "\"note\":null,\"word\":\"green\",\"words\":[\"red\"],\"inner\":{\"depth\":3},\"anything\":null}");
  g_free(text);
  ms_fields_clear(&outer_table, &outer);
}

static void refuses(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{}", "f:1: count: required key is missing"},
      {"{\"count\":101}", "f:1: count: is 101, must be in [1, 100]"},
      {"{\"count\":1,\"maybe\":4294967296}", "f:1: maybe: is 4294967296, must be within +-2147483647"},
      {"{\"count\":1,\"maybe\":-2147483648}", "f:1: maybe: is -2147483648, must be within +-2147483647"},
      {"{\"count\":1,\"size\":-1}", "f:1: size: is -1, must be in [0, 1000000000] B"},
      {"{\"count\":1,\"on\":null}", "f:1: on: is null, must be true or false"},
      {"{\"count\":1,\n\"inner\":{\"depth\":\n10}}", "f:2: inner.depth: is 10, must be in [0, 9]"},
      {"{\"count\":1,\"inner\":{\"dept\":1}}", "f:1: inner.dept: unknown key, did you mean \"depth\"?"},
      {"{\"count\":1,\"word\":\"grene\"}", "f:1: word: unknown word \"grene\", did you mean \"green\"?"},
      {"{\"count\":1,\"words\":[\"red\",3]}", "f:1: words[1]: is an integer, must be one of red, green, blue"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    Outer outer;
    GError *error = NULL;
    assert_false(load(&outer, cases[i][0], &error));
    assert_string_equal(error->message, cases[i][1]);
    g_clear_error(&error);
    ms_fields_clear(&outer_table, &outer);
  }
}

static void sets_one_key_without_a_document(void **state) {
  (void)state;
  Outer outer;
  GError *error = NULL;
  assert_true(load(&outer, "{\"count\":1}", NULL));
  JsonNode *node = json_node_new(JSON_NODE_VALUE);
  json_node_set_int(node, 0);
  assert_false(ms_field_set(ms_field_find(&outer_table, "count"), NULL, node, "a.count", &outer, &error));
  assert_string_equal(error->message, "a.count: is 0, must be in [1, 100]");
  g_clear_error(&error);
  json_node_set_int(node, 50);
  assert_true(ms_field_set(ms_field_find(&outer_table, "count"), NULL, node, "a.count", &outer, &error));
  assert_int_equal(outer.count, 50);
  assert_null(ms_field_find(&outer_table, "nothing"));
  json_node_unref(node);
  ms_fields_clear(&outer_table, &outer);
}

/* Walks every table of the program: rows are complete and the defaults are what a load of nothing gives. */
static void check_table(const MsFieldTable *table) {
  assert_non_null(table->name);
  assert_non_null(table->doc);
  for (const MsField *field = table->fields; field->key; field++) {
    assert_non_null(field->doc);
    assert_non_null(field->unit);
    assert_true(field->type != MS_T_CUSTOM || field->parse);
    if (field->type != MS_T_STRING) /* which may have them */
      assert_true((field->type == MS_T_ENUM || field->type == MS_T_WORDS) == (field->words != NULL));
    assert_true(field->type == MS_T_OBJECT ? field->sub != NULL : !field->sub || field->type == MS_T_CUSTOM);
    assert_ptr_equal(ms_field_find(table, field->key), field);
    if (field->sub) check_table(field->sub);
  }
}

static void tables_are_complete(void **state) {
  (void)state;
  const MsFieldTable *const all[] = {&ms_scenario_table, &ms_model_table, &ms_hardware_table, &ms_curve_table,
                                     &ms_plan_table};
  for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
    check_table(all[i]);
    GString *text = g_string_new(NULL);
    ms_fields_schema(all[i], text);
    assert_true(g_str_has_prefix(text->str, all[i]->name));
    assert_non_null(strstr(text->str, all[i]->fields[0].key));
    assert_null(strstr(text->str, " \n"));
    g_string_free(text, TRUE);
  }
}

static int count(const char *const *words) { return (int)g_strv_length((char **)words); }

static void words_match_enums(void **state) {
  (void)state;
  assert_int_equal(count(ms_precision_words), MS_N_PRECISIONS);
  assert_int_equal(count(ms_dtype_words), MS_N_MsDtype);
  assert_int_equal(count(ms_schedule_words), MS_N_SCHEDULES);
  assert_int_equal(count(ms_curve_form_words), MS_N_FORMS);
  assert_string_equal(ms_schedule_words[MS_SCHED_GPIPE], "gpipe");
  assert_string_equal(ms_dispatcher_words[MS_DISPATCH_HYBRIDEP], "hybridep");
  assert_string_equal(ms_fsdp_words[MS_FSDP_OPTIM_GRADS_PARAMS], "optim-grads-params");
  assert_string_equal(ms_cp_comm_words[MS_CP_A2A_P2P], "a2a+p2p");
  assert_int_equal(count(ms_recompute_module_words), MS_N_RECOMPUTE_MODULES);
  assert_int_equal(count(ms_offload_module_words), MS_N_OFFLOAD_MODULES);
  assert_int_equal(count(ms_cuda_graph_words), MS_N_CUDA_GRAPHS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(writes_what_it_read),
      cmocka_unit_test(null_means_default),
      cmocka_unit_test(all_writes_null),
      cmocka_unit_test(refuses),
      cmocka_unit_test(sets_one_key_without_a_document),
      cmocka_unit_test(tables_are_complete),
      cmocka_unit_test(words_match_enums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
