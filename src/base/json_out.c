/* src/base/json_out.c - the only place that writes JSON. */
#include "base/err.h"
#include "base/json.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINE_WIDTH 110 /* long lists of scalars are filled up to here */

typedef struct {
  char close;        /* '}' or ']' */
  gboolean any;      /* something was written */
  gboolean vertical; /* the closing bracket stands on a line of its own */
} Level;

struct MsJsonOut {
  GString *text;
  int indent;
  GArray *levels;
};

MsJsonOut *ms_json_out_new(int indent) {
  MsJsonOut *out = g_new0(MsJsonOut, 1);
  *out = (MsJsonOut){g_string_new(NULL), indent, g_array_new(FALSE, FALSE, sizeof(Level))};
  return out;
}

char *ms_json_out_take(MsJsonOut *out) {
  if (out->levels->len) MS_BUG("JSON text taken with %u open brackets", out->levels->len);
  char *text = g_string_free(out->text, FALSE);
  g_array_free(out->levels, TRUE);
  g_free(out);
  return text;
}

JsonNode *ms_json_out_take_node(MsJsonOut *out) {
  g_autofree char *text = ms_json_out_take(out);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "written", NULL);
  if (!doc) MS_BUG("what was written is not JSON");
  return ms_json_copy(ms_json_root(doc));
}

char *ms_json_text(JsonNode *node, int indent) {
  MsJsonOut *out = ms_json_out_new(indent);
  ms_json_out_node(out, NULL, node);
  return ms_json_out_take(out);
}

char *ms_json_quoted(const char *value) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_string(out, NULL, value);
  return ms_json_out_take(out);
}

MsJson *ms_json_doc(JsonNode *node, const char *filename) {
  g_autofree char *text = ms_json_text(node, 0);
  g_autoptr(GError) error = NULL;
  MsJson *doc = ms_json_parse(text, -1, filename, &error);
  if (!doc) MS_BUG("a document that was read cannot be read again: %s", error->message);
  return doc;
}

static Level *top(MsJsonOut *out) {
  return out->levels->len ? &g_array_index(out->levels, Level, out->levels->len - 1) : NULL;
}

static void newline(MsJsonOut *out) {
  if (out->indent <= 0) return;
  g_string_append_c(out->text, '\n');
  for (guint i = 0; i < out->levels->len * (guint)out->indent; i++) g_string_append_c(out->text, ' ');
}

void ms_json_quote(GString *text, const char *value) {
  g_string_append_c(text, '"');
  for (const char *p = value; *p; p++) {
    guchar c = (guchar)*p;
    if (c == '"' || c == '\\') g_string_append_printf(text, "\\%c", c);
    else if (c == '\n') g_string_append(text, "\\n");
    else if (c == '\t') g_string_append(text, "\\t");
    else if (c < 0x20 || c == 0x7f) g_string_append_printf(text, "\\u%04x", c);
    else g_string_append_c(text, *p);
  }
  g_string_append_c(text, '"');
}

/* Characters since the last newline, counted no further than a full line. */
static int column(const GString *text) {
  int n = 0;
  for (gsize i = text->len; i > 0 && n <= LINE_WIDTH && text->str[i - 1] != '\n'; i--) n++;
  return n;
}

/* The separator of a value in a list: scalars share lines, containers begin one. */
static void list_break(MsJsonOut *out, Level *level, gboolean scalar) {
  gboolean first = !level->any;
  if (!first) g_string_append_c(out->text, ',');
  if (!scalar || (out->indent > 0 && column(out->text) > LINE_WIDTH)) {
    level->vertical = TRUE;
    newline(out);
  } else if (!first && out->indent > 0) {
    g_string_append_c(out->text, ' ');
  }
}

static void begin_value(MsJsonOut *out, const char *key, gboolean scalar) {
  Level *level = top(out);
  if (!level) {
    if (key || out->text->len) MS_BUG("JSON root with a key or a second root");
    return;
  }
  if ((level->close == '}') != (key != NULL))
    MS_BUG("JSON member %s in the wrong container", key ? key : "without key");
  if (!key) {
    list_break(out, level, scalar);
  } else {
    if (level->any) g_string_append_c(out->text, ',');
    level->vertical = TRUE;
    newline(out);
    ms_json_quote(out->text, key);
    g_string_append(out->text, out->indent > 0 ? ": " : ":");
  }
  level->any = TRUE;
}

static void scalar_text(MsJsonOut *out, const char *key, const char *text) {
  begin_value(out, key, TRUE);
  g_string_append(out->text, text);
}

static void open_level(MsJsonOut *out, const char *key, char open, char close) {
  begin_value(out, key, FALSE);
  g_string_append_c(out->text, open);
  Level level = {.close = close};
  g_array_append_val(out->levels, level);
}

void ms_json_out_object(MsJsonOut *out, const char *key) { open_level(out, key, '{', '}'); }
void ms_json_out_array(MsJsonOut *out, const char *key) { open_level(out, key, '[', ']'); }

void ms_json_out_end(MsJsonOut *out) {
  Level *level = top(out);
  if (!level) MS_BUG("ms_json_out_end without an open bracket");
  Level ended = *level;
  g_array_set_size(out->levels, out->levels->len - 1);
  if (ended.any && ended.vertical) newline(out);
  g_string_append_c(out->text, ended.close);
}

void ms_json_out_string(MsJsonOut *out, const char *key, const char *value) {
  if (!value) {
    ms_json_out_null(out, key);
    return;
  }
  begin_value(out, key, TRUE);
  char *valid = g_utf8_make_valid(value, -1);
  ms_json_quote(out->text, valid);
  g_free(valid);
}

void ms_json_out_double(MsJsonOut *out, const char *key, double value) {
  char buf[32];
  scalar_text(out, key, ms_double_text(value, buf));
}

void ms_json_out_int(MsJsonOut *out, const char *key, gint64 value) {
  char buf[32];
  g_snprintf(buf, sizeof buf, "%" G_GINT64_FORMAT, value);
  scalar_text(out, key, buf);
}

void ms_json_out_bool(MsJsonOut *out, const char *key, gboolean value) {
  scalar_text(out, key, value ? "true" : "false");
}

void ms_json_out_null(MsJsonOut *out, const char *key) { scalar_text(out, key, "null"); }

static void out_object_node(MsJsonOut *out, const char *key, JsonObject *object) {
  ms_json_out_object(out, key);
  for (MsJsonMember at = ms_json_members(object); ms_json_next(&at);) ms_json_out_node(out, at.key, at.value);
  ms_json_out_end(out);
}

static void out_array_node(MsJsonOut *out, const char *key, JsonArray *array) {
  ms_json_out_array(out, key);
  for (guint i = 0; i < json_array_get_length(array); i++)
    ms_json_out_node(out, NULL, json_array_get_element(array, i));
  ms_json_out_end(out);
}

void ms_json_out_node(MsJsonOut *out, const char *key, JsonNode *node) {
  if (!node || JSON_NODE_HOLDS_NULL(node)) ms_json_out_null(out, key);
  else if (JSON_NODE_HOLDS_OBJECT(node)) out_object_node(out, key, json_node_get_object(node));
  else if (JSON_NODE_HOLDS_ARRAY(node)) out_array_node(out, key, json_node_get_array(node));
  else if (json_node_get_value_type(node) == G_TYPE_STRING) ms_json_out_string(out, key, json_node_get_string(node));
  else if (json_node_get_value_type(node) == G_TYPE_BOOLEAN) ms_json_out_bool(out, key, json_node_get_boolean(node));
  else if (json_node_get_value_type(node) == G_TYPE_INT64) ms_json_out_int(out, key, json_node_get_int(node));
  else ms_json_out_double(out, key, json_node_get_double(node));
}

const char *ms_double_text(double value, char *buf) {
  if (!isfinite(value)) return memcpy(buf, "null", 5);
  if (value == 0) return memcpy(buf, "0", 2); /* never "-0" */
  if (fabs(value) < 1e15 && value == (double)(gint64)value) {
    g_snprintf(buf, 32, "%" G_GINT64_FORMAT, (gint64)value);
    return buf;
  }
  for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) { /* 15 always read back as written */
    const char format[] = {'%', '.', (char)('0' + digits / 10), (char)('0' + digits % 10), 'g', 0};
    g_ascii_formatd(buf, 32, format, value);
    if (g_ascii_strtod(buf, NULL) == value) break;
  }
  /* Whole numbers beyond 2^53 are no integers to our reader: mark them as doubles. */
  if (fabs(value) > 9007199254740992.0 && !strpbrk(buf, ".e")) g_strlcat(buf, ".0", 32);
  return buf;
}
