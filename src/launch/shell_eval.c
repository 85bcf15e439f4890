/* src/launch/shell_eval.c - arithmetic and tests of shell scripts. */
#include "launch/shell_eval.h"

#include <string.h>

/* --- arithmetic: precedence climbing --- */
typedef struct {
  MsShellLookup *value_of;
  const void *data;
  const char *p;
  int depth;
  gboolean bad;
} Expression;

#define MAX_DEPTH 32

static gint64 expression(Expression *e, int level);

static void skip_space(Expression *e) {
  while (g_ascii_isspace(*e->p)) e->p++;
}

static gint64 failed(Expression *e) {
  e->bad = TRUE;
  return 0;
}

static gint64 variable(Expression *e) {
  gsize n = 0;
  while (g_ascii_isalnum(e->p[n]) || e->p[n] == '_') n++;
  g_autofree char *name = g_strndup(e->p, n), *text = e->value_of(e->data, name);
  gint64 value = 0;
  e->p += n;
  return text && g_ascii_string_to_signed(text, 10, G_MININT, G_MAXINT, &value, NULL) ? value : failed(e);
}

static gint64 number(Expression *e) {
  char *end;
  gint64 value = g_ascii_strtoll(e->p, &end, 10);
  if (value > G_MAXINT) return failed(e);
  e->p = end;
  return value;
}

static gint64 primary(Expression *e) {
  skip_space(e);
  if (++e->depth > MAX_DEPTH) return failed(e);
  gint64 value;
  if (*e->p == '(') {
    e->p++;
    value = expression(e, 0);
    skip_space(e);
    if (*e->p++ != ')') {
      e->p--;
      return failed(e);
    }
  } else if (*e->p == '-') {
    e->p++;
    value = -primary(e);
  } else if (*e->p == '!') {
    e->p++;
    value = !primary(e);
  } else if (g_ascii_isdigit(*e->p)) {
    value = number(e);
  } else if (*e->p == '$' && e->p[1] == '{') {
    e->p += 2;
    value = variable(e);
    if (*e->p == '}') e->p++;
    else value = failed(e);
  } else {
    e->p += *e->p == '$';
    value = g_ascii_isalpha(*e->p) || *e->p == '_' ? variable(e) : failed(e);
  }
  e->depth--;
  return value;
}

static const struct {
  const char *word;
  int level;
} operators[] = {{"||", 0}, {"&&", 1}, {"==", 2}, {"!=", 2}, {"<=", 3}, {">=", 3}, {"<", 3},
                 {">", 3},  {"+", 4},  {"-", 4},  {"*", 5},  {"/", 5},  {"%", 5}};

static int operator_at(const char *p) {
  for (guint i = 0; i < G_N_ELEMENTS(operators); i++)
    if (g_str_has_prefix(p, operators[i].word)) return (int)i;
  return -1;
}

static gint64 apply(Expression *e, int op, gint64 a, gint64 b) {
  gint64 result = 0;
  switch (op) {
  case 0: return a || b;
  case 1: return a && b;
  case 2: return a == b;
  case 3: return a != b;
  case 4: return a <= b;
  case 5: return a >= b;
  case 6: return a < b;
  case 7: return a > b;
  case 8: return __builtin_add_overflow(a, b, &result) ? failed(e) : result;
  case 9: return __builtin_sub_overflow(a, b, &result) ? failed(e) : result;
  case 10: return __builtin_mul_overflow(a, b, &result) ? failed(e) : result;
  default: return b == 0 || (b == -1 && a == G_MININT64) ? failed(e) : op == 11 ? a / b : a % b;
  }
}

static gint64 expression(Expression *e, int level) {
  gint64 left = primary(e);
  while (!e->bad) {
    skip_space(e);
    int op = operator_at(e->p);
    if (op < 0 || operators[op].level < level) break;
    e->p += strlen(operators[op].word);
    left = apply(e, op, left, expression(e, operators[op].level + 1));
  }
  return left;
}

gboolean ms_shell_arithmetic(const char *text, MsShellLookup *value_of, const void *data, gint64 *value) {
  Expression e = {.value_of = value_of, .data = data, .p = text};
  *value = expression(&e, 0);
  skip_space(&e);
  return !e.bad && !*e.p;
}

/* --- tests --- */
static int compare(const char *op, const char *a, const char *b) {
  static const char *const words[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
  if (strcmp(op, "=") == 0 || strcmp(op, "==") == 0)
    return strpbrk(b, "*?[") ? g_pattern_match_simple(b, a) : strcmp(a, b) == 0;
  if (strcmp(op, "!=") == 0) return strcmp(a, b) != 0;
  gint64 x, y;
  for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
    if (strcmp(op, words[i]) != 0) continue;
    if (!g_ascii_string_to_signed(a, 10, G_MININT64, G_MAXINT64, &x, NULL) ||
        !g_ascii_string_to_signed(b, 10, G_MININT64, G_MAXINT64, &y, NULL))
      return -1;
    const int results[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    return results[i];
  }
  return -1;
}

static int simple_test(char *const *w, int n) {
  if (n > 0 && strcmp(w[0], "!") == 0) {
    int rest = simple_test(w + 1, n - 1);
    return rest < 0 ? rest : !rest;
  }
  if (n == 1) return *w[0] != '\0';
  if (n == 2 && strcmp(w[0], "-z") == 0) return *w[1] == '\0';
  if (n == 2 && strcmp(w[0], "-n") == 0) return *w[1] != '\0';
  return n == 3 ? compare(w[1], w[0], w[2]) : -1;
}

/* Alternatives of conjunctions, as [[ a && b || c ]] binds them. */
int ms_shell_test(char *const *words, int n) {
  int all = 1, start = 0;
  for (int i = 0; i <= n; i++) {
    gboolean either = i == n || strcmp(words[i], "||") == 0 || strcmp(words[i], "-o") == 0;
    if (!either && strcmp(words[i], "&&") != 0 && strcmp(words[i], "-a") != 0) continue;
    int one = simple_test(words + start, i - start);
    if (all != 0) all = one == 0 ? 0 : one < 0 ? -1 : all;
    start = i + 1;
    if (!either) continue;
    if (all != 0 || i == n) return all;
    all = 1;
  }
  return -1;
}

/* --- what a command prints --- */
char *ms_shell_printf(char *const *words) {
  g_autoptr(GString) text = g_string_new(NULL);
  char *const *next = words + 1;
  if (!words[0]) return NULL;
  for (const char *c = words[0]; *c; c++) {
    if (*c == '\\' || strpbrk(c, "$`")) return NULL;
    if (*c != '%') g_string_append_c(text, *c);
    else if (c[1] != 's' && c[1] != 'd') return NULL;
    else c++, g_string_append(text, *next ? *next++ : "");
  }
  for (char *const *w = words; *w; w++)
    if (strpbrk(*w, "$`")) return NULL;
  return *next ? NULL : g_string_free(g_steal_pointer(&text), FALSE);
}

/* "cd [--] FOLDER": the folder from there on. FALSE when it has no one name. */
static gboolean change_folder(char *const *w, guint n, char **folder) {
  guint i = n > 1 && strcmp(w[1], "--") == 0 ? 2 : 1;
  if (n != i + 1) return FALSE;
  char *to =
      g_path_is_absolute(w[i]) || strcmp(*folder, ".") == 0 ? g_strdup(w[i]) : g_build_filename(*folder, w[i], NULL);
  g_free(*folder);
  *folder = to;
  return TRUE;
}

static char *printed(char *const *w, guint n, const char *folder) {
  guint i = n > 1 && (strcmp(w[1], "--") == 0 || strcmp(w[1], "-f") == 0) ? 2 : 1;
  const char *name = n > i ? w[i] : NULL;
  if (strcmp(w[0], "pwd") == 0) return g_strdup(folder);
  if (strcmp(w[0], "echo") == 0) return g_strjoinv(" ", (char **)w + 1);
  if (!name) return NULL;
  if (strcmp(w[0], "dirname") == 0) return g_path_get_dirname(name);
  if (strcmp(w[0], "realpath") == 0 || strcmp(w[0], "readlink") == 0) return g_strdup(name);
  if (strcmp(w[0], "basename") != 0) return NULL;
  char *base = g_path_get_basename(name);
  if (n > i + 1 && g_str_has_suffix(base, w[i + 1])) base[strlen(base) - strlen(w[i + 1])] = '\0';
  return base;
}

char *ms_shell_output(const GPtrArray *commands, const char *folder) {
  g_autofree char *here = g_strdup(folder ? folder : "."), *text = NULL;
  for (guint i = 0; i < commands->len; i++) {
    char **words = commands->pdata[i];
    guint n = g_strv_length(words);
    for (guint k = 0; k < n; k++)
      if (strpbrk(words[k], "$`")) return NULL;
    if (strcmp(words[0], "cd") == 0) {
      if (!change_folder(words, n, &here)) return NULL;
      continue;
    }
    if (text) return NULL; /* more than one output */
    text = printed(words, n, here);
    if (!text) return NULL;
  }
  return g_steal_pointer(&text);
}
