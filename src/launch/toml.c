/* src/launch/toml.c - TOML v1.0 (toml.io), the part that configurations use, written as JSON line by line. */
#include "launch/toml.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

typedef struct {
  const char *at, *file;
  int line;
  GString *out;
  GHashTable *seen; /* "table" and "table\nkey" */
  GError **error;
} Toml;

static gboolean wrong(Toml *t, const char *what) { return ms_input_error(t->error, t->file, t->line, "", "%s", what); }

static void skip_blanks(Toml *t) { t->at += strspn(t->at, " \t\r"); }

static void skip_comment(Toml *t) {
  skip_blanks(t);
  if (*t->at == '#') t->at += strcspn(t->at, "\n");
}

/* The end of a line, which JSON has in the same place. */
static gboolean end_line(Toml *t) {
  skip_comment(t);
  if (*t->at == '\0') return TRUE;
  if (*t->at != '\n') return wrong(t, "has more on the line than a key and its value");
  t->at++, t->line++;
  g_string_append_c(t->out, '\n');
  return TRUE;
}

static void skip_lines(Toml *t) { /* inside a list */
  for (skip_comment(t); *t->at == '\n'; skip_comment(t)) {
    t->at++, t->line++;
    g_string_append_c(t->out, '\n');
  }
}

static gboolean escaped(Toml *t, GString *text) {
  static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
  const char *found = *t->at ? strchr(from, *t->at) : NULL;
  int digits = *t->at == 'u' ? 4 : *t->at == 'U' ? 8 : 0;
  if (found) {
    g_string_append_c(text, to[found - from]);
    t->at++;
    return TRUE;
  }
  gunichar code = 0;
  for (int i = 1; i <= digits; i++) {
    if (!g_ascii_isxdigit(t->at[i])) return wrong(t, "has an unfinished \\u in a string");
    code = 16 * code + (gunichar)g_ascii_xdigit_value(t->at[i]);
  }
  if (digits == 0 || code == 0 || !g_unichar_validate(code)) return wrong(t, "has an unknown escape in a string");
  g_string_append_unichar(text, code);
  t->at += digits + 1;
  return TRUE;
}

/* "basic" or 'literal'. (transfer full) */
static char *string(Toml *t) {
  char quote = *t->at++;
  g_autoptr(GString) text = g_string_new(NULL);
  if (t->at[0] == quote && t->at[1] == quote) {
    wrong(t, "has a string of several lines, which is not read");
    return NULL;
  }
  while (*t->at != quote) {
    if (*t->at == '\0' || *t->at == '\n') {
      wrong(t, "has a string without its end");
      return NULL;
    }
    if (quote == '"' && *t->at == '\\') {
      t->at++;
      if (!escaped(t, text)) return NULL;
    } else {
      g_string_append_c(text, *t->at++);
    }
  }
  t->at++;
  return g_string_free(g_steal_pointer(&text), FALSE);
}

static gboolean number(Toml *t) {
  g_autoptr(GString) digits = g_string_new(NULL);
  const char *from = t->at;
  size_t n = strspn(from, "+-0123456789_.eE");
  for (size_t i = *from == '+'; i < n; i++)
    if (from[i] != '_') g_string_append_c(digits, from[i]);
  /* JSON's own reader takes it from here: a date or 0x1 leaves a rest */
  const char *first = digits->str + (*digits->str == '-');
  char *end;
  g_ascii_strtod(digits->str, &end);
  gboolean zero = first[0] == '0' && g_ascii_isdigit(first[1]);
  if (!g_ascii_isdigit(*first) || *end || end[-1] == '.' || zero)
    return wrong(t, "has a value that is no string, number, list, true or false");
  g_string_append(t->out, digits->str);
  t->at += n;
  if (*t->at && !strchr(" \t\r\n,]}#", *t->at))
    return wrong(t, "has a date or number that is not read: give a decimal number");
  return TRUE;
}

static gboolean value(Toml *t, int depth);

static gboolean list(Toml *t, int depth) {
  int n = 0;
  t->at++;
  g_string_append_c(t->out, '[');
  for (skip_lines(t); *t->at != ']'; skip_lines(t)) {
    if (n++) g_string_append_c(t->out, ',');
    if (!value(t, depth + 1)) return FALSE;
    skip_lines(t);
    if (*t->at == ',') t->at++;
    else if (*t->at != ']') return wrong(t, "has a list without its \"]\"");
  }
  t->at++;
  g_string_append_c(t->out, ']');
  return TRUE;
}

/* Bare, quoted or with dots. (transfer full) */
static char *key(Toml *t) {
  g_autoptr(GString) whole = g_string_new(NULL);
  for (;;) {
    skip_blanks(t);
    size_t n = 0;
    while (g_ascii_isalnum(t->at[n]) || (t->at[n] && strchr("_-", t->at[n]))) n++;
    if (*t->at == '"' || *t->at == '\'') {
      g_autofree char *part = string(t);
      if (!part) return NULL;
      g_string_append(whole, part);
    } else if (n > 0) {
      g_string_append_len(whole, t->at, (gssize)n);
      t->at += n;
    } else {
      wrong(t, "must be a key and its value, or [table]");
      return NULL;
    }
    skip_blanks(t);
    if (*t->at != '.') return g_string_free(g_steal_pointer(&whole), FALSE);
    t->at++;
    g_string_append_c(whole, '.');
  }
}

static gboolean once(Toml *t, const char *table, const char *name) {
  char *path = g_strdup_printf("%s\n%s", table, name ? name : "");
  if (g_hash_table_add(t->seen, path)) return TRUE;
  return ms_input_error(t->error, t->file, t->line, name ? name : table, "is given twice");
}

static gboolean pair(Toml *t, int depth, const char *table) {
  g_autofree char *name = key(t);
  if (!name || (table && !once(t, table, name))) return FALSE;
  if (*t->at != '=') return wrong(t, "has a key without \"=\"");
  t->at++;
  skip_blanks(t);
  ms_json_quote(t->out, name);
  g_string_append_c(t->out, ':');
  return value(t, depth);
}

static gboolean inline_table(Toml *t, int depth) {
  int n = 0;
  t->at++;
  g_string_append_c(t->out, '{');
  for (skip_blanks(t); *t->at != '}'; skip_blanks(t)) {
    if (n++) g_string_append_c(t->out, ',');
    if (!pair(t, depth + 1, NULL)) return FALSE;
    skip_blanks(t);
    if (*t->at == ',') t->at++;
    else if (*t->at != '}') return wrong(t, "has a table without its \"}\"");
  }
  t->at++;
  g_string_append_c(t->out, '}');
  return TRUE;
}

enum { DEEPEST = 32 };

static gboolean value(Toml *t, int depth) {
  if (depth > DEEPEST) return wrong(t, "is nested too deep");
  if (*t->at == '"' || *t->at == '\'') {
    g_autofree char *text = string(t);
    if (text) ms_json_quote(t->out, text);
    return text != NULL;
  }
  if (*t->at == '[') return list(t, depth);
  if (*t->at == '{') return inline_table(t, depth);
  for (int i = 0; i < 2; i++) {
    const char *word = i ? "true" : "false";
    if (!g_str_has_prefix(t->at, word)) continue;
    t->at += strlen(word);
    g_string_append(t->out, word);
    return TRUE;
  }
  return number(t);
}

/* [a.b] (transfer full) */
static char *header(Toml *t) {
  t->at++;
  if (*t->at == '[') {
    wrong(t, "is a list of tables, which is not read");
    return NULL;
  }
  g_autofree char *name = key(t);
  if (!name) return NULL;
  if (*t->at != ']') {
    wrong(t, "has a table without its \"]\"");
    return NULL;
  }
  t->at++;
  return once(t, name, NULL) ? g_steal_pointer(&name) : NULL;
}

static gboolean document(Toml *t) {
  g_autofree char *table = g_strdup("");
  int pairs = 0, tables = 0;
  g_string_append_c(t->out, '{');
  for (skip_comment(t); *t->at; skip_comment(t)) {
    if (*t->at == '[') {
      g_free(table);
      if (!(table = header(t))) return FALSE;
      g_string_append_printf(t->out, "%s%s", tables ? "}" : "", tables || pairs ? "," : "");
      ms_json_quote(t->out, table);
      g_string_append(t->out, ":{");
      tables++, pairs = 0;
    } else if (*t->at != '\n') {
      if (pairs++) g_string_append_c(t->out, ',');
      if (!pair(t, 0, table)) return FALSE;
    }
    if (!end_line(t)) return FALSE;
  }
  g_string_append(t->out, tables ? "}}" : "}");
  return TRUE;
}

char *ms_toml_as_json(const char *text, const char *file, GError **error) {
  Toml t = {.at = text, .file = file, .line = 1, .out = g_string_new(NULL), .error = error};
  t.seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  gboolean ok = document(&t);
  g_hash_table_unref(t.seen);
  return g_string_free(t.out, !ok);
}
