/* src/launch/yaml.c - ENV_VARS and MODEL_ARGS of a model-zoo file, and all values of any. */
#include "launch/yaml.h"

#include <string.h>
#include <yaml.h>

#include "base/err.h"

typedef struct {
  yaml_parser_t parser;
  yaml_event_t event;
  gboolean has_event;
  const char *file;
  GError **error;
} Reader;

static int line_of(const Reader *r) { return (int)MIN(r->event.start_mark.line + 1, 1000000000); }

static gboolean fail(Reader *r, const char *path, const char *message) {
  return ms_input_error(r->error, r->file, line_of(r), path, "%s", message);
}

static gboolean next(Reader *r) {
  if (r->has_event) yaml_event_delete(&r->event);
  r->has_event = yaml_parser_parse(&r->parser, &r->event) != 0;
  if (r->has_event) return TRUE;
  g_autofree char *problem = g_utf8_make_valid(r->parser.problem ? r->parser.problem : "cannot be read", -1);
  return ms_input_error(r->error, r->file, (int)MIN(r->parser.problem_mark.line + 1, 1000000000), "", "not YAML: %s",
                        problem);
}

/* The text of a scalar event; NULL and *error when it is another one or holds a NUL. (transfer none) */
static const char *scalar(Reader *r, const char *path, const char *wanted) {
  if (r->event.type == YAML_ALIAS_EVENT) return fail(r, path, "is an alias; write it out"), NULL;
  if (r->event.type != YAML_SCALAR_EVENT) return fail(r, path, wanted), NULL;
  const char *text = (const char *)r->event.data.scalar.value;
  if (strlen(text) != r->event.data.scalar.length) return fail(r, path, "holds a NUL character"), NULL;
  return text;
}

static gboolean read_list(Reader *r, const char *path, GString *value) {
  for (;;) {
    if (!next(r)) return FALSE;
    if (r->event.type == YAML_SEQUENCE_END_EVENT) return TRUE;
    const char *text = scalar(r, path, "must be a list of plain values");
    if (!text) return FALSE;
    g_string_append_printf(value, "%s%s", value->len ? " " : "", text);
  }
}

static void pair_free(gpointer data) {
  MsYamlPair *pair = data;
  g_free(pair->key);
  g_free(pair->value);
  g_free(pair);
}

static gboolean has_key(const GPtrArray *pairs, const char *key) {
  for (guint i = 0; i < pairs->len; i++)
    if (strcmp(((const MsYamlPair *)pairs->pdata[i])->key, key) == 0) return TRUE;
  return FALSE;
}

static gboolean is_null(const Reader *r) {
  const char *text = (const char *)r->event.data.scalar.value;
  return r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
         (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0);
}

static gboolean read_pair(Reader *r, const char *map, GPtrArray *pairs) {
  const char *text = scalar(r, map, "must have plain keys");
  if (!text) return FALSE;
  g_autofree char *key = g_strdup(text), *path = g_strdup_printf("%s.%s", map, key);
  int line = line_of(r);
  if (has_key(pairs, key)) return fail(r, path, "is given twice");
  if (pairs->len >= 10000) return fail(r, path, "has more than 10000 members");
  if (!next(r)) return FALSE;
  g_autoptr(GString) value = g_string_new(NULL);
  if (r->event.type == YAML_SEQUENCE_START_EVENT) {
    if (!read_list(r, path, value)) return FALSE;
  } else if (!is_null(r)) {
    if (!(text = scalar(r, path, "must be a plain value or a list of them"))) return FALSE;
    g_string_append(value, text);
  }
  MsYamlPair *pair = g_new0(MsYamlPair, 1);
  *pair = (MsYamlPair){.key = g_steal_pointer(&key), .value = g_strdup(value->str), .line = line};
  g_ptr_array_add(pairs, pair);
  return TRUE;
}

static gboolean read_map(Reader *r, const char *map, GPtrArray *pairs) {
  if (!next(r)) return FALSE;
  if (is_null(r)) return TRUE;
  if (r->event.type != YAML_MAPPING_START_EVENT) return fail(r, map, "must be a map");
  for (;;) {
    if (!next(r)) return FALSE;
    if (r->event.type == YAML_MAPPING_END_EVENT) return TRUE;
    if (!read_pair(r, map, pairs)) return FALSE;
  }
}

/* Passes over the value that comes next. libyaml's time grows with the square of the depth of nesting: no file of
 * anybody is so deep. */
static gboolean skip_value(Reader *r, const char *key) {
  enum { DEEPEST = 100 };
  int depth = 0;
  do {
    if (!next(r)) return FALSE;
    if (depth > DEEPEST) return fail(r, key, "is nested more than 100 deep");
    yaml_event_type_t type = r->event.type;
    depth += (type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT) -
             (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT);
  } while (depth > 0);
  return TRUE;
}

static gboolean read_top(Reader *r, MsYaml *yaml) {
  gboolean seen[2] = {FALSE, FALSE};
  for (;;) {
    if (!next(r)) return FALSE;
    if (r->event.type == YAML_MAPPING_END_EVENT) break;
    const char *key = scalar(r, "", "must have plain keys");
    if (!key) return FALSE;
    int map = strcmp(key, "ENV_VARS") == 0 ? 0 : strcmp(key, "MODEL_ARGS") == 0 ? 1 : -1;
    if (map >= 0 && seen[map]) return fail(r, key, "is given twice");
    if (map < 0) {
      g_ptr_array_add(yaml->other, g_strdup(key)); /* the event that holds the key is gone after the next one */
      if (!skip_value(r, yaml->other->pdata[yaml->other->len - 1])) return FALSE;
    } else {
      seen[map] = TRUE;
      if (!read_map(r, map == 0 ? "ENV_VARS" : "MODEL_ARGS", map == 0 ? yaml->environment : yaml->arguments))
        return FALSE;
    }
  }
  return seen[1] || fail(r, "MODEL_ARGS", "is missing: a model-zoo file has the maps ENV_VARS and MODEL_ARGS");
}

static gboolean read_stream(Reader *r, MsYaml *yaml) {
  if (!next(r) || !next(r)) return FALSE; /* stream, document */
  if (r->event.type != YAML_DOCUMENT_START_EVENT) return fail(r, "", "is empty");
  if (!next(r)) return FALSE;
  if (r->event.type != YAML_MAPPING_START_EVENT) return fail(r, "", "must be a map with ENV_VARS and MODEL_ARGS");
  if (!read_top(r, yaml) || !next(r) || !next(r)) return FALSE;
  return r->event.type == YAML_STREAM_END_EVENT || fail(r, "", "has a second document");
}

/* --- any file --- */
enum { DEEPEST_MAP = 32, MOST_PAIRS = 100000 };

static gboolean flatten_map(Reader *r, const char *path, int depth, GPtrArray *pairs);

static gboolean add_flat(Reader *r, const char *path, const char *value, int line, GPtrArray *pairs) {
  if (pairs->len >= MOST_PAIRS) return fail(r, path, "is in a file of more than 100000 values");
  MsYamlPair *pair = g_new0(MsYamlPair, 1);
  *pair = (MsYamlPair){.key = g_strdup(path), .value = g_strdup(value), .line = line};
  g_ptr_array_add(pairs, pair);
  return TRUE;
}

/* After the start of a list. */
static gboolean flatten_list(Reader *r, const char *path, int line, GPtrArray *pairs) {
  g_autoptr(GString) value = g_string_new(NULL);
  gboolean plain = TRUE;
  for (int depth = 0;;) {
    if (!next(r)) return FALSE;
    yaml_event_type_t type = r->event.type;
    if (type == YAML_SEQUENCE_END_EVENT && depth == 0) break;
    gboolean opens = type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
    depth += opens - (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT);
    if (depth > DEEPEST_MAP) return fail(r, path, "is nested more than 32 deep");
    plain &= !opens && depth == 0;
    const char *text = plain ? scalar(r, path, "must be a list of plain values") : NULL;
    if (plain && !text) return FALSE;
    if (plain) g_string_append_printf(value, "%s%s", value->len ? " " : "", text);
  }
  if (!plain) return TRUE;
  if (!add_flat(r, path, value->str, line, pairs)) return FALSE;
  ((MsYamlPair *)pairs->pdata[pairs->len - 1])->list = TRUE;
  return TRUE;
}

static gboolean flatten_value(Reader *r, const char *path, int depth, GPtrArray *pairs) {
  if (!next(r)) return FALSE;
  int line = line_of(r);
  if (r->event.type == YAML_MAPPING_START_EVENT) return flatten_map(r, path, depth + 1, pairs);
  if (r->event.type == YAML_SEQUENCE_START_EVENT) return flatten_list(r, path, line, pairs);
  if (is_null(r)) return add_flat(r, path, NULL, line, pairs);
  const char *text = scalar(r, path, "must be a plain value, a list or a map");
  return text && add_flat(r, path, text, line, pairs);
}

/* After the start of a map. */
static gboolean flatten_map(Reader *r, const char *path, int depth, GPtrArray *pairs) {
  if (depth > DEEPEST_MAP) return fail(r, path, "is nested more than 32 deep");
  g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (;;) {
    if (!next(r)) return FALSE;
    if (r->event.type == YAML_MAPPING_END_EVENT) return TRUE;
    const char *key = scalar(r, path, "must have plain keys");
    if (!key) return FALSE;
    g_autofree char *inner = *path ? g_strconcat(path, ".", key, NULL) : g_strdup(key);
    if (!g_hash_table_add(seen, g_strdup(key))) return fail(r, inner, "is given twice");
    if (!flatten_value(r, inner, depth, pairs)) return FALSE;
  }
}

static gboolean flatten_stream(Reader *r, GPtrArray *pairs) {
  if (!next(r) || !next(r)) return FALSE; /* stream, document */
  if (r->event.type != YAML_DOCUMENT_START_EVENT) return fail(r, "", "is empty");
  if (!next(r)) return FALSE;
  if (r->event.type != YAML_MAPPING_START_EVENT) return fail(r, "", "must be a map");
  if (!flatten_map(r, "", 0, pairs) || !next(r) || !next(r)) return FALSE;
  return r->event.type == YAML_STREAM_END_EVENT || fail(r, "", "has a second document");
}

/* --- entries --- */
static gboolean run(Reader *r, const char *text, gsize length, MsYaml *yaml, GPtrArray *pairs) {
  if (!yaml_parser_initialize(&r->parser))
    return ms_input_error(r->error, r->file, 0, "", "the YAML reader has no memory");
  yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, length);
  gboolean ok = yaml ? read_stream(r, yaml) : flatten_stream(r, pairs);
  if (r->has_event) yaml_event_delete(&r->event);
  yaml_parser_delete(&r->parser);
  return ok;
}

GPtrArray *ms_yaml_flatten(const char *text, gsize length, const char *file, GError **error) {
  Reader r = {.file = file, .error = error};
  g_autoptr(GPtrArray) pairs = g_ptr_array_new_with_free_func(pair_free);
  return run(&r, text, length, NULL, pairs) ? g_steal_pointer(&pairs) : NULL;
}

MsYaml *ms_yaml_read(const char *text, gsize length, const char *file, GError **error) {
  Reader r = {.file = file, .error = error};
  MsYaml *yaml = g_new0(MsYaml, 1);
  yaml->environment = g_ptr_array_new_with_free_func(pair_free);
  yaml->arguments = g_ptr_array_new_with_free_func(pair_free);
  yaml->other = g_ptr_array_new_with_free_func(g_free);
  if (!run(&r, text, length, yaml, NULL)) g_clear_pointer(&yaml, ms_yaml_free);
  return yaml;
}

void ms_yaml_free(MsYaml *yaml) {
  if (!yaml) return;
  g_ptr_array_unref(yaml->environment);
  g_ptr_array_unref(yaml->arguments);
  g_ptr_array_unref(yaml->other);
  g_free(yaml);
}
