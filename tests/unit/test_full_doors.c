/* Command line, C, Python and `moesim serve` give the same answers to random requests, figure by figure, and refuse the
 * same ones in the same words. */
#include "lib/close.h"

#include "api/moesim.h"
#include "layout/layout.h"
#include "lib/cli.h"
#include "lib/draw.h"
#include "lib/draw_request.h"
#include "lib/tier.h"

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <string.h>

enum { REQUESTS = 64, LEAST_COMPARED = 50 }; /* one in two a plan, the others runs */

static char *program, *python_path, *library;

/* --- what is asked --------------------------------------------------------------------------------------------- */
static char *a_plan(GRand *rand) {
  g_autoptr(JsonNode) request = ms_draw_request(rand);
  MsDrawnKey key = ms_draw_key(rand);
  g_autoptr(JsonNode) list = json_node_init_array(json_node_alloc(), key.values);
  ms_request_put(request, key.section, key.key, list);
  ms_request_put_text(request, "layout", "tp", "[1, 2, 4]");
  ms_request_put_text(request, "layout", "pp", "[1, 2, 4]");
  ms_drawn_key_clear(&key);
  return json_to_string(request, FALSE);
}

/* Three in four obey the rules of layouts. */
static char *a_run(GRand *rand) {
  gboolean any = g_rand_int_range(rand, 0, 4) == 0;
  g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
  while (!any && (!ms_model_finish(s->model, NULL, "", NULL) || !ms_layout_check(s, NULL))) {
    ms_scenario_free(s);
    s = ms_test_draw(rand, FALSE);
  }
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(s, NULL, out);
  return ms_json_out_take(out);
}

/* --- what is answered ------------------------------------------------------------------------------------------ */
/* A document {"answer": ...} or {"error": ...} (transfer full) */
static MsJson *wrapped(const char *answer, const char *error) {
  if (answer) {
    g_autofree char *text = g_strdup_printf("{\"answer\": %s}", answer);
    return ms_cli_json(text, "answer");
  }
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "error", error);
  ms_json_out_end(out);
  g_autofree char *text = ms_json_out_take(out);
  return ms_cli_json(text, "error");
}

static MsJson *command_line(const char *verb, const char *file) {
  g_auto(MsCliRun) r = RUN(verb, "--json", file);
  if (*r.out) return wrapped(g_strchomp(r.out), NULL);
  assert_true(g_str_has_prefix(r.err, "moesim: "));
  return wrapped(NULL, g_strchomp(r.err) + strlen("moesim: "));
}

static MsJson *c(const char *verb, const char *file) {
  char *answer = NULL, *error = NULL;
  moesim_call(verb, file, NULL, NULL, NULL, &answer, &error);
  MsJson *doc = wrapped(answer, error);
  moesim_free(answer), moesim_free(error);
  return doc;
}

static MsJson *written(const char *file, const char *door) {
  g_autofree char *stem = g_strndup(file, strlen(file) - strlen("json")), *name = g_strconcat(stem, door, NULL);
  GError *error = NULL;
  MsJson *doc = ms_json_load(name, &error);
  if (!doc) fail_msg("%s", error->message);
  g_remove(name);
  return doc;
}

static gboolean same(JsonNode *a, JsonNode *b);

static gboolean same_members(JsonObject *a, JsonObject *b) {
  JsonObjectIter at;
  const char *key;
  JsonNode *value;
  json_object_iter_init(&at, a);
  while (json_object_iter_next(&at, &key, &value)) {
    JsonNode *other = json_object_get_member(b, key);
    if (strcmp(key, "elapsed_s") != 0 && !(other && same(value, other))) return FALSE;
  }
  return TRUE;
}

/* Every bit but the seconds that it took. */
static gboolean same(JsonNode *a, JsonNode *b) {
  if (json_node_get_node_type(a) != json_node_get_node_type(b)) return FALSE;
  if (JSON_NODE_HOLDS_OBJECT(a))
    return same_members(json_node_get_object(a), json_node_get_object(b)) &&
           same_members(json_node_get_object(b), json_node_get_object(a));
  if (!JSON_NODE_HOLDS_ARRAY(a)) return json_node_equal(a, b);
  JsonArray *x = json_node_get_array(a), *y = json_node_get_array(b);
  gboolean equal = json_array_get_length(x) == json_array_get_length(y);
  for (guint i = 0; equal && i < json_array_get_length(x); i++)
    equal = same(json_array_get_element(x, i), json_array_get_element(y, i));
  return equal;
}

static JsonNode *part(const MsJson *doc, const char *key) {
  return json_object_get_member(json_node_get_object(ms_json_root(doc)), key);
}

/* Of a run `serve` shows the result in its page, which has not the seconds of the prediction; a plan has its map. */
static gboolean serve_agrees(const MsJson *want, const MsJson *served) {
  JsonNode *a = part(want, "answer"), *b = part(served, "answer");
  if (!a || !b) return !a && !b;
  json_object_remove_member(json_node_get_object(b), "map");
  return same_members(json_node_get_object(b), json_node_get_object(a)) &&
         same_members(json_node_get_object(a), json_node_get_object(b));
}

/* A guard keeps what is large away from the server. */
static gboolean is_guarded(const MsJson *served) {
  JsonNode *error = part(served, "error");
  return error && strstr(json_node_get_string(error), "server");
}

/* --- all of it ------------------------------------------------------------------------------------------------- */
/* FALSE: there is no python3. */
static gboolean through_python(const char *folder) {
  g_autofree char *python = g_find_program_in_path("python3");
  if (!python) return FALSE;
  g_autoptr(GError) error = NULL;
  g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_STDERR_MERGE);
  g_subprocess_launcher_setenv(launcher, "PYTHONPATH", python_path, TRUE);
  g_subprocess_launcher_setenv(launcher, "MOESIM_LIBRARY", library, TRUE);
  g_subprocess_launcher_setenv(launcher, "PYTHONDONTWRITEBYTECODE", "1", TRUE);
  g_autoptr(GSubprocess) child = g_subprocess_launcher_spawn(
      launcher, &error, python, MS_SOURCE_DIR "/tests/python/doors.py", program, folder, NULL);
  if (!child || !g_subprocess_wait_check(child, NULL, &error)) fail_msg("%s", error->message);
  return TRUE;
}

static void all_doors_say_the_same(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(21);
  g_autofree char *folder = ms_cli_path("doors");
  assert_int_equal(g_mkdir(folder, 0700), 0);
  char *file[REQUESTS];
  for (int i = 0; i < REQUESTS; i++) {
    g_autofree char *name = g_strdup_printf("doors/%s-%02d.json", i % 2 ? "run" : "plan", i),
                    *text = i % 2 ? a_run(rand) : a_plan(rand);
    file[i] = ms_cli_written(name, text);
  }
  gboolean python = through_python(folder);
  if (!python) print_message("no python3: neither its door nor that of serve\n");
  int answered[2] = {0}, served = 0, compared = 0;
  for (int i = 0; i < REQUESTS; i++) {
    const char *verb = i % 2 ? "run" : "plan";
    g_autoptr(MsJson) want = command_line(verb, file[i]), mine = c(verb, file[i]);
    answered[i % 2] += part(want, "answer") != NULL;
    if (!same(ms_json_root(want), ms_json_root(mine))) fail_msg("%s %s: C differs", verb, file[i]);
    g_autoptr(MsJson) theirs = python ? written(file[i], "python") : NULL,
                      page = python ? written(file[i], "serve") : NULL;
    if (theirs && !same(ms_json_root(want), ms_json_root(theirs))) fail_msg("%s %s: Python differs", verb, file[i]);
    if (page && !is_guarded(page)) {
      served += part(page, "answer") != NULL, compared++;
      if (!serve_agrees(want, page)) fail_msg("%s %s: serve differs", verb, file[i]);
    }
    g_remove(file[i]), g_free(file[i]);
  }
  g_rmdir(folder);
  print_message("%d plans and %d runs answered, %d of them by serve; %d of %d compared at four doors\n", answered[0],
                answered[1], served, compared, REQUESTS);
  assert_true(answered[0] >= REQUESTS / 4 && answered[1] >= REQUESTS / 8);
  assert_true(!python || (served >= REQUESTS / 4 && compared >= LEAST_COMPARED));
}

int main(int argc, char **argv) {
  (void)argc;
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_doors_say_the_same)};
  g_autofree char *here = g_path_get_dirname(argv[0]), *build = g_build_filename(here, "..", NULL);
  program = g_build_filename(build, "moesim", NULL);
  python_path = g_build_filename(build, "python", NULL);
  library = g_build_filename(build, "libmoesim.so.0", NULL);
  ms_cli_begin(argv[0]);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ms_cli_end();
  g_free(program), g_free(python_path), g_free(library);
  return failed;
}
