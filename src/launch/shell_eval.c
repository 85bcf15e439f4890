/* src/launch/shell_eval.c - arithmetic and tests of shell scripts. */
#include "launch/shell_eval.h"

#include <fnmatch.h>
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
typedef struct {
  char *const *words;
  int n, at, depth;
  gboolean double_brackets; /* the right side is a pattern */
  char ***groups;
} Test;

static const char *const numeric[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge", NULL};

static gboolean is_open(const char *text) { return strstr(text, "$(") || strstr(text, "${") || strchr(text, '`'); }

/* Extended regular expressions of POSIX are read by PCRE. What means another thing there: (? and (*, letters behind
 * backslashes. */
static gboolean is_extended(const char *expression) {
  for (const char *p = expression; *p; p++) {
    if (*p == '(' && (p[1] == '?' || p[1] == '*')) return FALSE;
    if (*p == '\\' && (g_ascii_isalnum(*++p) || strchr("<>`'", *p))) return FALSE; /* or the end */
  }
  return TRUE;
}

static int matches(const Test *t, const char *text, const char *expression) {
  if (is_open(text) || is_open(expression) || !is_extended(expression)) return -1;
  g_autofree char *limited = g_strconcat("(*LIMIT_MATCH=100000)", expression, NULL);
  g_autoptr(GRegex) regex = g_regex_new(limited, G_REGEX_RAW | G_REGEX_DOTALL | G_REGEX_DOLLAR_ENDONLY, 0, NULL);
  g_autoptr(GMatchInfo) found = NULL;
  g_autoptr(GError) error = NULL;
  if (!regex) return -1;
  gboolean matched = g_regex_match_full(regex, text, -1, 0, 0, &found, &error);
  if (error) return -1;
  g_strfreev(*t->groups);
  *t->groups = matched ? g_match_info_fetch_all(found) : g_new0(char *, 1);
  return matched;
}

static int compare_numbers(const char *a, const char *op, const char *b) {
  gint64 x, y;
  if (!g_ascii_string_to_signed(a, 10, G_MININT64, G_MAXINT64, &x, NULL) ||
      !g_ascii_string_to_signed(b, 10, G_MININT64, G_MAXINT64, &y, NULL))
    return -1;
  const int results[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
  int i = 0;
  while (strcmp(op, numeric[i]) != 0) i++;
  return results[i];
}

static int compare(const Test *t, const char *a, const char *op, const char *b) {
  if (g_strv_contains(numeric, op)) return compare_numbers(a, op, b);
  if (strcmp(op, "=~") == 0) return t->double_brackets ? matches(t, a, b) : -1;
  if (strcmp(op, "<") == 0) return strcmp(a, b) < 0;
  if (strcmp(op, ">") == 0) return strcmp(a, b) > 0;
  if (!strchr("=!", *op)) return -1; /* -nt, -ot, -ef */
  return (t->double_brackets ? fnmatch(b, a, 0) == 0 : strcmp(a, b) == 0) == (*op == '=');
}

static gboolean is_binary(const char *word) {
  static const char *const others[] = {"=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef", NULL};
  return g_strv_contains(numeric, word) || g_strv_contains(others, word);
}

static gboolean takes(Test *t, const char *word, const char *other) {
  gboolean is = t->at < t->n && (strcmp(t->words[t->at], word) == 0 || strcmp(t->words[t->at], other) == 0);
  t->at += is;
  return is;
}

static int any_of(Test *t);

static int in_parentheses(Test *t) {
  int result = any_of(t);
  return takes(t, ")", ")") ? result : -1;
}

static int plain_test(Test *t) {
  char *const *w = t->words + t->at;
  int left = t->n - t->at;
  if (left >= 3 && is_binary(w[1])) return t->at += 3, compare(t, w[0], w[1], w[2]);
  if (left >= 2 && strcmp(w[0], "(") == 0) return t->at++, in_parentheses(t);
  if (left >= 2 && w[0][0] == '-' && g_ascii_isalpha(w[0][1]) && !w[0][2]) {
    t->at += 2;
    return w[0][1] == 'z' ? !*w[1] : w[0][1] == 'n' ? *w[1] != '\0' : -1; /* of files */
  }
  return left > 0 ? t->at++, *w[0] != '\0' : -1;
}

static int one_test(Test *t) {
  gboolean inverse = FALSE;
  for (; t->n - t->at >= 2 && strcmp(t->words[t->at], "!") == 0; t->at++) {
    if (t->n - t->at >= 3 && is_binary(t->words[t->at + 1])) break;
    inverse = !inverse;
  }
  int result = plain_test(t);
  return result < 0 || !inverse ? result : !result;
}

static int all_of(Test *t) {
  int all = one_test(t);
  while (takes(t, "&&", "-a")) {
    int one = one_test(t);
    all = all == 0 || one == 0 ? 0 : MIN(all, one);
  }
  return all;
}

static int any_of(Test *t) {
  if (++t->depth > MAX_DEPTH) return -1;
  int any = all_of(t);
  while (takes(t, "||", "-o")) {
    int one = all_of(t);
    any = any == 1 || one == 1 ? 1 : MIN(any, one);
  }
  t->depth--;
  return any;
}

int ms_shell_test(char *const *words, int n, gboolean double_brackets, char ***groups) {
  Test t = {.words = words, .n = n, .double_brackets = double_brackets, .groups = groups};
  int result = any_of(&t);
  return t.at == n ? result : -1;
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
