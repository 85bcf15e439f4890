/* libFuzzer target: any bytes through the strict reader; what it accepts is written, read again and written
 * the same. make fuzz (clang), then build-fuzz/fuzz/fuzz_json tests/fuzz/json */
#include "base/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *written(const MsJson *doc, int indent) {
  MsJsonOut *out = ms_json_out_new(indent);
  ms_json_out_node(out, NULL, ms_json_root(doc));
  return ms_json_out_take(out);
}

static gboolean take(MsJsonCursor *cursor, gpointer node) {
  return (*(JsonNode **)node = ms_json_take_node(cursor)) != NULL;
}

/* Read without a tree: the same, or not at all. */
static void is_taken_alike(const MsJson *doc, const char *text) {
  JsonNode *node = NULL;
  if (ms_json_take(doc, take, &node)) {
    MsJsonOut *out = ms_json_out_new(0);
    ms_json_out_node(out, NULL, node);
    char *taken = ms_json_out_take(out);
    if (strcmp(taken, text) != 0) abort();
    g_free(taken);
  }
  if (node) json_node_unref(node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  GError *error = NULL;
  MsJson *doc = ms_json_parse((const char *)data, (gssize)size, "fuzz", &error);
  if (!doc != (error != NULL)) abort();
  if (doc) {
    char *one = written(doc, 0), *pretty = written(doc, 2);
    MsJson *again = ms_json_parse(pretty, -1, "again", NULL);
    if (!again) abort();
    char *two = written(again, 0);
    if (strcmp(one, two) != 0) abort();
    is_taken_alike(doc, one);
    ms_json_line(doc, "a.b[1].c");
    ms_json_line(doc, one);
    ms_json_free(again);
    g_free(one);
    g_free(two);
    g_free(pretty);
  }
  g_clear_error(&error);
  ms_json_free(doc);
  return 0;
}
