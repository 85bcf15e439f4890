/* src/launch/model_script.c - the few expressions of Python that files of model arguments are written in. */
#include "launch/model_script.h"
#include "launch/python_text.h"

#include <string.h>

enum { DEEPEST = 16, MOST_LAYERS = 10000 };

typedef struct {
  MsModelScriptLoad *load;
  MsShellLookup *variable;
  gpointer data;
  GHashTable *values; /* name -> text, of constants and parameters */
  int depth;
} Script;

static gboolean evaluate(Script *s, const char *text, char **value);
static char *run(Script *s, const char *text);

static char *lookup(const void *values, const char *name) {
  return g_strdup(g_hash_table_lookup((GHashTable *)values, name));
}

/* One behind the other, "text" and f"text {expression}". */
static gboolean literals(Script *s, const char *p, char **value) {
  g_autoptr(GString) out = g_string_new(NULL);
  for (p += strspn(p, " \n"); *p; p += strspn(p, " \n")) {
    gboolean formatted = *p == 'f';
    p += formatted;
    const char *end = *p == '"' || *p == '\'' ? ms_python_string_end(p) : NULL;
    if (!end) return FALSE;
    for (p++; p < end; p++) {
      const char *close = formatted && *p == '{' ? strchr(p, '}') : NULL;
      if (*p == '\\') return FALSE;
      if (!close || close > end) {
        g_string_append_c(out, *p);
        continue;
      }
      g_autofree char *expression = g_strndup(p + 1, (gsize)(close - p - 1)), *part = NULL;
      if (!evaluate(s, expression, &part) || !part) return FALSE;
      g_string_append(out, part);
      p = close;
    }
    p = end + 1;
  }
  *value = g_string_free(g_steal_pointer(&out), FALSE);
  return TRUE;
}

/* name=value of a call or of a definition (name: type = value), into `values`; others are passed over. */
static gboolean keywords(Script *s, const char *list, gboolean defaults, GHashTable *values) {
  for (const char *p = list, *end; *p; p = *end ? end + 1 : end) {
    if (!(end = ms_python_span(p, ","))) return FALSE;
    g_autofree char *one = g_strndup(p, (gsize)(end - p)), *value = NULL;
    char *name = g_strstrip(one), *equals = strchr(name, '=');
    if (!equals || *name == '"') continue;
    if (!evaluate(s, equals + 1, &value)) return FALSE;
    name[strcspn(name, " :=")] = '\0';
    if (value && !(defaults && g_hash_table_contains(values, name)))
      g_hash_table_insert(values, g_strdup(name), g_steal_pointer(&value));
  }
  return TRUE;
}

static gboolean integer(GHashTable *values, const char *name, gint64 *value) {
  const char *text = g_hash_table_lookup(values, name);
  return text && g_ascii_string_to_signed(text, 10, 0, MOST_LAYERS, value, NULL);
}

/* "[0,1,1]": dense layers in front, then those with experts. */
static gboolean layer_pattern(Script *s, const char *list, char **value) {
  g_autoptr(GHashTable) given = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  gint64 layers, dense;
  if (!keywords(s, list, FALSE, given) || !integer(given, "nlayers", &layers) ||
      !integer(given, "first_k_dense_replace", &dense))
    return FALSE;
  g_autoptr(GString) out = g_string_new("[");
  for (gint64 i = 0; i < layers; i++) g_string_append_printf(out, "%s%d", i ? "," : "", i >= dense);
  *value = g_strdup(g_string_append_c(out, ']')->str);
  return TRUE;
}

/* What another file says with these parameters. */
static gboolean sibling(Script *s, const char *list, char **value) {
  g_autoptr(GHashTable) given = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  const char *open = strchr(list, '"'), *close = open ? ms_python_string_end(open) : NULL;
  if (!close || s->depth >= DEEPEST || !keywords(s, list, FALSE, given)) return FALSE;
  g_autofree char *name = g_strndup(open + 1, (gsize)(close - open - 1)), *text = s->load(s->data, name);
  Script other = *s;
  other.values = given, other.depth++;
  *value = text ? run(&other, text) : NULL;
  return *value != NULL;
}

static gboolean environment(Script *s, const char *list, char **value) {
  g_autofree char *name = NULL;
  if (!literals(s, list, &name)) return FALSE;
  *value = s->variable(s->data, name);
  return TRUE;
}

/* With one space where there is any. (transfer full) */
static char *on_one_line(const char *text) {
  g_autoptr(GString) out = g_string_new(NULL);
  for (const char *p = text; *p; p++) {
    gboolean blank = strchr(" \t\r\n", *p) != NULL;
    if (!blank) g_string_append_c(out, *p);
    else if (out->len && out->str[out->len - 1] != ' ') g_string_append_c(out, ' ');
  }
  return g_strchomp(g_strdup(out->str));
}

/* The inside of CALL( ), where the whole of `text` is that. (transfer full) or NULL */
static char *inside(const char *text, const char *call) {
  gsize n = strlen(call);
  if (!g_str_has_prefix(text, call) || text[n] != '(') return NULL;
  const char *end = ms_python_span(text + n + 1, ")");
  return end && *end && !end[1 + strspn(end + 1, " \n")] ? g_strndup(text + n + 1, (gsize)(end - text) - n - 1) : NULL;
}

static gboolean is_name(const char *text) {
  return (g_ascii_isalpha(*text) || *text == '_') && !text[strspn(text, "_" G_CSET_a_2_z G_CSET_A_2_Z G_CSET_DIGITS)];
}

/* X if X is not None else Y; X or Y. *is: whether it is one of them. */
static gboolean choice(Script *s, const char *text, char **value, gboolean *is) {
  static const char *const words[] = {" is not None else ", " or "};
  for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
    const char *at = strstr(text, words[i]);
    if (!(*is = at != NULL)) continue;
    g_autofree char *first = g_strndup(text, (gsize)(at - text));
    char *condition = i == 0 ? strstr(first, " if ") : NULL;
    if (condition) *condition = '\0';
    gboolean none = is_name(first) && !g_hash_table_contains(s->values, first); /* a parameter that is not given */
    if (!none && !evaluate(s, first, value)) return FALSE;
    if (*value && **value) return TRUE;
    g_clear_pointer(value, g_free);
    return evaluate(s, at + strlen(words[i]), value);
  }
  return FALSE;
}

/* The whole is CALL(list), one of those that are known. */
static gboolean called(Script *s, const char *text, char **value, gboolean *is) {
  static const struct {
    const char *call;
    gboolean (*read)(Script *, const char *, char **);
  } calls[] = {{"", evaluate},
               {"int", evaluate},
               {"os.environ.get", environment},
               {"moe_layer_freq", layer_pattern},
               {"load_sibling_model_args", sibling}};
  for (guint i = 0; i < G_N_ELEMENTS(calls); i++) {
    g_autofree char *list = inside(text, calls[i].call);
    if ((*is = list != NULL)) return calls[i].read(s, list, value);
  }
  return FALSE;
}

static gboolean plain(Script *s, const char *text, char **value) {
  gint64 number;
  if (strcmp(text, "None") == 0) return TRUE;
  if (is_name(text)) *value = lookup(s->values, text);
  else if (*text && !text[strspn(text, G_CSET_DIGITS ".")]) *value = g_strdup(text);
  else if (ms_shell_arithmetic(text, lookup, s->values, &number)) *value = g_strdup_printf("%" G_GINT64_FORMAT, number);
  return *value != NULL;
}

/* *value: its text, NULL for None. FALSE: it is not understood. */
static gboolean evaluate(Script *s, const char *raw, char **value) {
  g_autofree char *text = on_one_line(raw);
  gboolean is = FALSE;
  *value = NULL;
  if (++s->depth > DEEPEST) return FALSE;
  gboolean ok = called(s, text, value, &is);
  if (!is && (is = strchr("\"'", *text) || g_str_has_prefix(text, "f\""))) ok = literals(s, text, value);
  if (!is) ok = choice(s, text, value, &is);
  if (!is) ok = plain(s, text, value);
  s->depth--;
  return ok;
}

/* One statement. *value: what it returns. */
static gboolean statement(Script *s, const char *text, char **value) {
  g_autofree char *list = NULL;
  if (!*text || g_str_has_prefix(text, "import ") || g_str_has_prefix(text, "from ")) return TRUE;
  if (g_str_has_prefix(text, "return ")) return evaluate(s, text + strlen("return "), value);
  if (g_str_has_prefix(text, "def model_args(")) {
    const char *open = strchr(text, '(') + 1, *end = ms_python_span(open, ")");
    list = end ? g_strndup(open, (gsize)(end - open)) : NULL;
    return list && keywords(s, list, TRUE, s->values);
  }
  size_t n = strcspn(text, " =");
  g_autofree char *name = g_strndup(text, n), *given = NULL;
  text += n + strspn(text + n, " ");
  if (!is_name(name) || *text != '=' || text[1] == '=') return FALSE;
  if (!evaluate(s, text + 1, &given)) return FALSE;
  if (given) g_hash_table_insert(s->values, g_strdup(name), g_steal_pointer(&given));
  return TRUE;
}

static char *run(Script *s, const char *text) {
  g_autofree char *plain = ms_python_without_comments(text), *value = NULL;
  for (const char *p = plain, *end; p && *p && !value; p = *end ? end + 1 : end) {
    if (!(end = ms_python_span(p, "\n"))) return NULL;
    g_autofree char *line = g_strstrip(g_strndup(p, (gsize)(end - p)));
    if (!statement(s, line, &value)) return NULL;
  }
  return g_steal_pointer(&value);
}

char *ms_model_script(const char *text, MsModelScriptLoad *load, MsShellLookup *variable, gpointer data) {
  g_autoptr(GHashTable) values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  Script s = {.load = load, .variable = variable, .data = data, .values = values};
  return run(&s, text);
}
