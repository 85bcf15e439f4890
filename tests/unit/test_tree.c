/* Trees of JSON: order, changes, equality, counting from several threads. */
#include "lib/close.h"

#include "base/json.h"

static JsonNode *tree(const char *text) {
  JsonNode *node = ms_json_node(text);
  if (!node) fail_msg("%s: no JSON", text);
  return node;
}

static void is(JsonNode *node, const char *text) {
  g_autofree char *own = ms_json_text(node, 0);
  assert_string_equal(own, text);
}

/* Members stay where they were first put, however many there are. */
static void order(void **state) {
  (void)state;
  for (int n = 1; n < 70; n++) {
    g_autoptr(JsonNode) node = json_node_take_object(json_node_alloc(), json_object_new());
    JsonObject *object = json_node_get_object(node);
    for (int i = 0; i < n; i++) {
      g_autofree char *key = g_strdup_printf("k%d", 7 * i);
      json_object_set_int_member(object, key, i);
    }
    json_object_set_string_member(object, "k0", "first");
    json_object_set_int_member(object, "last", 1);
    for (int round = 0; round < 2; round++) {
      json_object_remove_member(object, "k7"), json_object_remove_member(object, "nobody");
      g_autoptr(GList) keys = json_object_get_members(object), values = json_object_get_values(object);
      assert_int_equal(g_list_length(keys), json_object_get_size(object));
      assert_string_equal(keys->data, "k0");
      assert_string_equal(json_node_get_string(values->data), "first");
      assert_string_equal(g_list_last(keys)->data, "last");
      gint64 before = 0;
      for (GList *l = keys->next; l->next; l = l->next) {
        assert_true(json_object_has_member(object, l->data));
        gint64 i = json_object_get_int_member(object, l->data);
        assert_true(i > before);
        before = i;
      }
    }
    assert_false(json_object_has_member(object, "k7"));
    json_object_set_null_member(object, "k7");
    g_autoptr(GList) keys = json_object_get_members(object);
    assert_string_equal(g_list_last(keys)->data, "k7");
  }
}

static void equality(void **state) {
  (void)state;
  static const struct {
    const char *a, *b;
    gboolean equal;
  } cases[] = {{"4", "4.0", TRUE},
               {"4", "4.5", FALSE},
               {"1", "true", FALSE},
               {"0", "null", FALSE},
               {"\"a\"", "\"a\"", TRUE},
               {"\"a\"", "\"b\"", FALSE},
               {"[1,2]", "[1,2]", TRUE},
               {"[1,2]", "[2,1]", FALSE},
               {"[1]", "[1,1]", FALSE},
               {"{\"a\":1,\"b\":[{}]}", "{\"b\":[{}],\"a\":1}", TRUE},
               {"{\"a\":1}", "{\"a\":1,\"b\":2}", FALSE},
               {"{\"a\":1}", "{\"b\":1}", FALSE},
               {"{\"a\":null}", "{\"b\":null}", FALSE}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(JsonNode) a = tree(cases[i].a), b = tree(cases[i].b);
    if (json_node_equal(a, b) != cases[i].equal || json_node_equal(b, a) != cases[i].equal)
      fail_msg("%s and %s", cases[i].a, cases[i].b);
  }
}

/* Of another kind: nothing, 0, or the number that a truth is. */
static void kinds(void **state) {
  (void)state;
  g_autoptr(JsonNode) node = tree("[null,true,-3,2.75,\"x\",[1],{\"a\":1}]");
  static const struct {
    double number;
    gint64 whole;
    gboolean value, text, list, object;
  } want[] = {{0, 0, FALSE, FALSE, FALSE, FALSE},  {1, 1, TRUE, FALSE, FALSE, FALSE},
              {-3, -3, TRUE, FALSE, FALSE, FALSE}, {2.75, 2, TRUE, FALSE, FALSE, FALSE},
              {0, 0, TRUE, TRUE, FALSE, FALSE},    {0, 0, FALSE, FALSE, TRUE, FALSE},
              {0, 0, FALSE, FALSE, FALSE, TRUE}};
  JsonArray *all = json_node_get_array(node);
  assert_null(json_array_get_element(all, json_array_get_length(all)));
  for (guint i = 0; i < json_array_get_length(all); i++) {
    JsonNode *x = json_array_get_element(all, i);
    assert_int_equal(json_node_kind(x), i);
    assert_true(json_node_get_double(x) == want[i].number && json_node_get_int(x) == want[i].whole);
    assert_int_equal(json_node_get_boolean(x), want[i].number != 0);
    assert_int_equal(JSON_NODE_HOLDS_VALUE(x), want[i].value);
    assert_int_equal(json_node_get_string(x) != NULL, want[i].text);
    assert_int_equal(json_node_get_array(x) != NULL, want[i].list);
    assert_int_equal(json_node_get_object(x) != NULL, want[i].object);
  }
  assert_false(JSON_NODE_HOLDS_NULL(NULL) || JSON_NODE_HOLDS_VALUE(NULL));
}

/* A copy shares nothing; a node may become another kind, of its own text too. */
static void changes(void **state) {
  (void)state;
  g_autoptr(JsonNode) node = tree("{\"a\":[1,{\"b\":\"x\"}]}");
  g_autoptr(JsonNode) other = ms_json_copy(node);
  JsonArray *list = json_object_get_array_member(json_node_get_object(node), "a");
  json_object_set_double_member(json_array_get_object_element(list, 1), "b", 0.5);
  json_array_add_string_element(list, "y");
  is(node, "{\"a\":[1,{\"b\":0.5},\"y\"]}");
  is(other, "{\"a\":[1,{\"b\":\"x\"}]}");
  JsonNode *text = json_array_get_element(list, 2);
  json_node_init_string(text, json_node_get_string(text));
  json_node_init_object(json_array_get_element(list, 0), json_array_get_object_element(list, 1));
  is(node, "{\"a\":[{\"b\":0.5},{\"b\":0.5},\"y\"]}");
}

static gpointer hold(gpointer node) {
  for (int i = 0; i < 20000; i++) {
    JsonNode *own = json_node_ref(node);
    JsonObject *object = json_object_ref(json_node_get_object(own));
    json_node_unref(own);
    json_object_unref(object);
  }
  return NULL;
}

/* Threads that hold one tree for a while leave it as it was. */
static void threads(void **state) {
  (void)state;
  g_autoptr(JsonNode) node = tree("{\"a\":1}");
  GThread *thread[4];
  for (guint i = 0; i < G_N_ELEMENTS(thread); i++) thread[i] = g_thread_new("tree", hold, node);
  for (guint i = 0; i < G_N_ELEMENTS(thread); i++) g_thread_join(thread[i]);
  is(node, "{\"a\":1}");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(order), cmocka_unit_test(equality), cmocka_unit_test(kinds),
                                     cmocka_unit_test(changes), cmocka_unit_test(threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
