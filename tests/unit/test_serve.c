/* What a server lets in: hosts, origins, requests. The server itself is driven by tests/browser/serve.mjs. */
#include "lib/close.h"

#include "base/err.h"
#include "serve/guard.h"

#include <string.h>

static void hosts(void **state) {
  (void)state;
  static const struct {
    const char *host, *served;
    gboolean fine;
  } rows[] = {{"127.0.0.1:8080", "127.0.0.1:8080", TRUE},
              {"localhost:8080", "127.0.0.1:8080", TRUE},
              {"LOCALHOST:8080", "127.0.0.1:8080", TRUE},
              {"127.0.0.1", "127.0.0.1:8080", FALSE},
              {"127.0.0.1:80801", "127.0.0.1:8080", FALSE},
              {"localhost:80", "127.0.0.1:8080", FALSE},
              {"evil.example:8080", "127.0.0.1:8080", FALSE},
              {"127.0.0.1.evil.example:8080", "127.0.0.1:8080", FALSE},
              {"", "127.0.0.1:8080", FALSE},
              {NULL, "127.0.0.1:8080", FALSE},
              {"[::1]:8080", "[::1]:8080", TRUE},
              {"evil.example:8080", "[::1]:8080", FALSE},
              {"sim.example:8080", "0.0.0.0:8080", FALSE},
              {"localhost:8080", "0.0.0.0:8080", TRUE},
              {"localhost:8081", "0.0.0.0:8080", FALSE},
              {"10.1.2.3:8080", "0.0.0.0:8080", TRUE},
              {"10.1.2.3", "0.0.0.0:8080", TRUE},
              {"[fd00::1]:8080", "[::]:8080", TRUE},
              {"[fd00::1", "[::]:8080", FALSE},
              {"10.1.2.3.evil.example", "0.0.0.0:8080", FALSE},
              {"sim.allowed:8080", "0.0.0.0:8080", TRUE},
              {"SIM.allowed", "127.0.0.1:8080", TRUE},
              {"sim.allowed.evil:8080", "0.0.0.0:8080", FALSE},
              {NULL, "0.0.0.0:8080", FALSE}};
  static const char *const allowed[] = {"sim.allowed", NULL};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    if (ms_guard_host(rows[i].host, rows[i].served, allowed) != rows[i].fine)
      fail_msg("%s at %s", rows[i].host ? rows[i].host : "no host", rows[i].served);
}

/* A name alone: what a port or a scheme is part of would never be one. */
static void names(void **state) {
  (void)state;
  assert_true(ms_guard_is_name("sim.example"));
  static const char *const none[] = {"", "sim.example:80", "http://sim.example", "a b", "[::1]"};
  for (guint i = 0; i < G_N_ELEMENTS(none); i++) assert_false(ms_guard_is_name(none[i]));
}

static void origins(void **state) {
  (void)state;
  assert_true(ms_guard_origin("http://127.0.0.1:8080", "127.0.0.1:8080"));
  assert_false(ms_guard_origin("http://127.0.0.1:80801", "127.0.0.1:8080"));
  assert_false(ms_guard_origin("http://evil.example", "127.0.0.1:8080"));
  assert_false(ms_guard_origin("https://127.0.0.1:8080", "127.0.0.1:8080"));
  assert_false(ms_guard_origin("null", "127.0.0.1:8080"));
  assert_false(ms_guard_origin("http://127.0.0.1:8080", NULL));
}

static void lengths(void **state) {
  (void)state;
  static const char *const fine[] = {NULL, "0", "17", "131072"},
                           *const wrong[] = {"", "-5", "+5", "5 ", "5, 5", "0x10", "18446744073709551615"};
  for (guint i = 0; i < G_N_ELEMENTS(fine); i++) assert_true(ms_guard_length(fine[i]));
  for (guint i = 0; i < G_N_ELEMENTS(wrong); i++)
    if (ms_guard_length(wrong[i])) fail_msg("\"%s\"", wrong[i]);
}

static void requests(void **state) {
  (void)state;
  static const struct {
    const char *text, *why;
  } rows[] = {
      /* why NULL: it may */
      {"{\"model\":\"deepseek-v3\",\"gpus\":64}", NULL},
      {"{\"name\":\"a/b\",\"doc\":\"see "
       "https://x/y\",\"model\":{\"base\":\"x\",\"sources\":{\"k\":\"a/b\"}},\"measured\":{\"source\":\"p/q\"}}",
       NULL},
      {"{\"layout\":{\"pipeline_layout\":\"Et*3|(tt|)*29,m|L\"}}", NULL},
      {"{\"model\":\"/etc/passwd\"}", "model"},
      {"{\"model\":{\"base\":\"../x\"}}", "model.base"},
      {"{\"hardware\":\"x.json\"}", "hardware"},
      {"{\"model\":\"-\"}", "model"},
      {"{\"hardware\":{\"base\":\"x\",\"nic_Bps\":\"200Gb/s\",\"hbm_Bps\":\"4.8 TB/s\"}}", NULL},
      {"{\"hardware\":{\"base\":\"2x/s/s\"}}", "hardware.base"},
      {"{\"hardware\":{\"base\":\"200/s\"}}", "hardware.base"},
      {"{\"training\":{\"routing\":{\"histogram\":\"a\\\\b\"}}}", "training.routing.histogram"},
      {"{\"options\":{\"offload_modules\":[\"attn\",\"/x\"]}}", "options.offload_modules[1]"},
      {"[1]", "object"},
      {"{\"gpus\":65537}", "gpus"},
      {"{\"gpus\":8,\"training\":{\"global_batch_size\":32769}}", "global_batch_size"},
      {"{\"gpus\":8,\"training\":{\"global_batch_size\":32768}}", NULL},
      {"{\"layout\":{\"tp\":{\"from\":1,\"to\":500},\"pp\":{\"from\":1,\"to\":500}}}", "combinations"},
      {"{\"layout\":{\"tp\":{\"from\":1,\"to\":400},\"pp\":{\"from\":1,\"to\":500}}}", NULL}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsJson) doc = ms_json_parse(rows[i].text, -1, "request", &error);
    assert_non_null(doc);
    gboolean fine = ms_guard_request(doc, &error);
    if (fine != (rows[i].why == NULL)) fail_msg("%s: %s", rows[i].text, fine ? "let in" : error->message);
    if (!fine && (!g_error_matches(error, MS_ERROR, MS_ERROR_INPUT) || !strstr(error->message, rows[i].why)))
      fail_msg("%s: %s", rows[i].text, error->message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(hosts), cmocka_unit_test(names), cmocka_unit_test(origins),
                                     cmocka_unit_test(lengths), cmocka_unit_test(requests)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
