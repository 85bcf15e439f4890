/* src/launch/shell.c - reading a script: words with their expansions, commands, assignments, conditions. */
#include "launch/shell.h"
#include "launch/args.h"
#include "launch/model_script.h"
#include "launch/shell_eval.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum {
  MOST_TEXT = 16 << 20,
  MOST_NESTING = 32,
  MOST_COMMANDS = 100000,
  MOST_ROUNDS = 10000,
  ROUND_TEXT = 64,
  MOST_EXPRESSION = 1000
};

typedef enum { FRAME_IF, FRAME_LOOP, FRAME_CASE, FRAME_GROUP } FrameKind;
typedef enum { CASE_SUBJECT, CASE_PATTERN, CASE_BODY } CaseState;
typedef struct {          /* for NAME in WORDS, for (( ; CONDITION; STEP )) */
  gboolean head, known;   /* before do; how often it runs can be told */
  gboolean open;          /* over words that cannot be told */
  char *name, **values;   /* owned; NULL for the other form */
  guint next;             /* value */
  char *condition, *step; /* owned */
  const char *start;      /* of the body */
  int line, rounds;
} Loop;
typedef struct {
  FrameKind kind;
  gboolean active, taken, condition; /* commands count here; a branch was taken; reading the condition of if */
  int result;                        /* of the condition so far */
  CaseState state;                   /* of case: what is read */
  gboolean matched;                  /* a pattern of the branch that begins */
  char *subject;                     /* owned */
  Loop loop;
} Frame;

typedef struct {
  MsShell *shell;
  const char *p;
  int line, depth;
  gsize *produced; /* characters of all words, against scripts that double a variable again and again */
  GArray *frames;
  GPtrArray *pending; /* delimiters of here-documents that begin on the next line */
  int status;         /* of the last command: 1, 0, -1 unknown */
  int gate;           /* 0 none, '&' or '|': the next command depends on it */
  gboolean negated;   /* by a ! before it */
  GError **error;
} Reader;

typedef struct { /* the words of the command being read */
  GPtrArray *words;
  GString *word;
  gboolean open;     /* a word has begun, perhaps empty */
  gboolean literal;  /* inside quotes */
  int assigned;      /* the command sets a variable: 1, -1: to what a command prints */
  gboolean no_split; /* inside an assignment or [[ ]] */
  gboolean in_test;  /* variables without a value are empty */
  char *here;        /* behind <<<, or NULL */
} Words;

static gboolean run_text(MsShell *shell, const char *text, int line, int depth, gsize *produced, GError **error);

static void command_free(gpointer data) {
  MsCommand *command = data;
  g_strfreev(command->words);
  g_free(command);
}

static gboolean fail(Reader *r, const char *message) {
  return ms_input_error(r->error, r->shell->file, r->line, "", "%s", message);
}

static void remark(Reader *r, const char *what) {
  g_ptr_array_add(r->shell->remarks, g_strdup_printf("line %d: %s", r->line, what));
}

static gboolean is_name(char c, gboolean first) {
  return g_ascii_isalpha(c) || c == '_' || (!first && g_ascii_isdigit(c));
}

static gsize name_length(const char *p) {
  gsize n = 0;
  while (is_name(p[n], n == 0)) n++;
  return n;
}

/* --- words ----------------------------------------------------------------------------------------------------- */
static const char *last_word(const Words *w) { return w->words->len > 0 ? w->words->pdata[w->words->len - 1] : ""; }

/* Between [[ and ]]. */
static gboolean in_double_brackets(const Words *w) {
  gboolean opened = w->no_split && w->words->len > 0 && strcmp(w->words->pdata[0], "[[") == 0;
  return opened && strcmp(last_word(w), "]]") != 0 && !(w->open && strcmp(w->word->str, "]]") == 0);
}

/* The right side of an operator of [[ ]], where characters inside quotes mean themselves. */
static gboolean in_pattern(const Words *w) {
  static const char *const operators[] = {"=", "==", "!=", "=~", NULL};
  return in_double_brackets(w) && g_strv_contains(operators, last_word(w));
}

static gboolean put_char(Reader *r, Words *w, char c) {
  w->open = TRUE;
  if (w->literal && c && strchr("\\^$.|?*+()[]{}", c) && in_pattern(w)) g_string_append_c(w->word, '\\');
  g_string_append_c(w->word, c);
  return ++*r->produced <= MOST_TEXT || fail(r, "expands to more than 16 MiB of text");
}

static gboolean put_text(Reader *r, Words *w, const char *text) {
  w->open = TRUE;
  if (w->literal && in_pattern(w)) {
    for (; *text; text++)
      if (!put_char(r, w, *text)) return FALSE;
    return TRUE;
  }
  g_string_append(w->word, text);
  *r->produced += strlen(text);
  return *r->produced <= MOST_TEXT || fail(r, "expands to more than 16 MiB of text");
}

static void finish_word(Words *w) {
  if (w->open) g_ptr_array_add(w->words, g_strdup(w->word->str));
  g_string_truncate(w->word, 0);
  w->open = FALSE;
}

/* The text of an expansion outside quotes: blanks separate words. */
static gboolean put_split(Reader *r, Words *w, const char *text) {
  for (; *text; text++) {
    if (g_ascii_isspace(*text) && !w->no_split) finish_word(w);
    else if (!put_char(r, w, *text)) return FALSE;
  }
  return TRUE;
}

static char **value_of(const MsShell *shell, const char *name);

static gboolean put_value(Reader *r, Words *w, char *const *values, gboolean quoted, gboolean each) {
  g_auto(GStrv) separators = value_of(r->shell, "IFS");
  char joint = separators && separators[0] && *separators[0] ? *separators[0] : ' ';
  for (int i = 0; values[i]; i++) {
    if (i > 0 && each && !w->no_split) finish_word(w);
    else if (i > 0 && !put_char(r, w, joint)) return FALSE;
    if (!(quoted ? put_text(r, w, values[i]) : put_split(r, w, values[i]))) return FALSE;
  }
  return TRUE;
}

/* --- variables ------------------------------------------------------------------------------------------------- */
static const char *set_to(const MsShell *shell, const char *name) {
  gsize n = strlen(name);
  for (int i = 0; shell->set && shell->set[i]; i++)
    if (strncmp(shell->set[i], name, n) == 0 && shell->set[i][n] == '=') {
      g_hash_table_add(shell->asked, g_strdup(name));
      return shell->set[i] + n + 1;
    }
  return NULL;
}

const char *ms_shell_given(const MsShell *shell, const char *name) {
  const char *set = set_to(shell, name);
  return set ? set : shell->environment ? g_getenv(name) : NULL;
}

static char **one_word(const char *text) { return g_strdupv((char *[]){(char *)text, NULL}); }

static char **argument(const MsShell *shell, const char *name) {
  gint64 index = g_ascii_strtoll(name, NULL, 10), count = shell->words ? g_strv_length((char **)shell->words) : 0;
  if (index == 0) return one_word(shell->file);
  return index <= count ? one_word(shell->words[index - 1]) : NULL;
}

/* Words of a variable or NULL. What --set says wins over the script. (transfer full) */
static char **value_of(const MsShell *shell, const char *name) {
  const char *set = set_to(shell, name);
  if (set) return one_word(set);
  if (g_ascii_isdigit(*name)) return argument(shell, name);
  if (strcmp(name, "BASH_SOURCE") == 0) return one_word(shell->file);
  if (strcmp(name, "@") == 0 || strcmp(name, "*") == 0) return shell->words ? g_strdupv((char **)shell->words) : NULL;
  char **own = g_hash_table_lookup(shell->variables, name);
  if (own) return g_strdupv(own);
  const char *given = ms_shell_given(shell, name);
  return given ? one_word(given) : NULL;
}

char **ms_shell_words(const MsShell *shell, const char *name) { return value_of(shell, name); }

char *ms_shell_get(const MsShell *shell, const char *name) {
  g_auto(GStrv) values = value_of(shell, name);
  return values ? g_strjoinv(" ", values) : NULL;
}

static char *variable(const void *shell, const char *name) { return ms_shell_get(shell, name); }
static gboolean arithmetic(const Reader *r, const char *text, gint64 *value) {
  return ms_shell_arithmetic(text, variable, r->shell, value);
}

static gboolean is_element(gpointer key, gpointer value, gpointer name) {
  (void)value;
  return g_str_has_prefix(key, name) && ((char *)key)[strlen(name)] == '[';
}

/* NAME=([key]=word ...). FALSE when the words are plain ones. */
static gboolean assign_pairs(MsShell *shell, const char *name, GPtrArray *words) {
  for (guint i = 0; i < words->len; i++) {
    const char *word = words->pdata[i];
    if (*word != '[' || !strstr(word, "]=")) return FALSE;
  }
  for (guint i = 0; i < words->len; i++) {
    g_auto(GStrv) pair = g_strsplit((char *)words->pdata[i] + 1, "]=", 2);
    g_hash_table_replace(shell->variables, g_strdup_printf("%s[%s]", name, pair[0]), one_word(pair[1]));
  }
  return words->len > 0;
}

static void assign(MsShell *shell, const char *name, GPtrArray *words, gboolean append, gboolean array) {
  if (array && !append) g_hash_table_foreach_remove(shell->variables, is_element, (gpointer)name);
  if (array && assign_pairs(shell, name, words)) return;
  g_auto(GStrv) old = append ? value_of(shell, name) : NULL;
  GPtrArray *all = g_ptr_array_new();
  for (int i = 0; old && old[i]; i++) g_ptr_array_add(all, g_strdup(old[i]));
  if (append && !array && all->len > 0 && words->len > 0) { /* text is appended to text */
    char *last = all->pdata[all->len - 1];
    all->pdata[all->len - 1] = g_strconcat(last, words->pdata[0], NULL);
    g_free(last);
  } else {
    for (guint i = 0; i < words->len; i++) g_ptr_array_add(all, g_strdup(words->pdata[i]));
  }
  g_ptr_array_add(all, NULL);
  g_hash_table_replace(shell->variables, g_strdup(name), g_ptr_array_free(all, FALSE));
}

/* --- expansions ------------------------------------------------------------------------------------------------ */
static gboolean read_part(Reader *r, Words *w, gboolean quoted);
static void words_init(Words *w);
static void words_clear(Words *w);

/* The end of a bracketed text whose opening bracket was just read, or NULL. Quotes are respected. */
static const char *closing(const char *p, char open, char close) {
  int depth = 1;
  for (char quote = 0; *p; p++) {
    if (*p == '\\' && quote != '\'') {
      if (!p[1]) return NULL;
      p++;
    } else if (quote) {
      if (*p == quote) quote = 0;
    } else if (*p == '"' || *p == '\'') {
      quote = *p;
    } else if (*p == open) {
      depth++;
    } else if (*p == close && --depth == 0) {
      return p;
    }
  }
  return NULL;
}

static void count_lines(Reader *r, const char *end) {
  for (const char *c = r->p; c < end; c++) r->line += *c == '\n';
}

/* Keeps what cannot be told as it is written. */
static gboolean keep_as_written(Reader *r, Words *w, const char *start, const char *end) {
  g_autofree char *text = g_strndup(start, (gsize)(end - start));
  count_lines(r, end);
  r->p = end;
  return w->in_test ? (w->open = TRUE) : put_text(r, w, text);
}

/* The default of ${NAME:-text}, itself expanded. */
static gboolean put_default(Reader *r, Words *w, const char *text, gsize n, gboolean quoted) {
  g_autofree char *copy = g_strndup(text, n);
  Reader inner = *r;
  inner.p = copy;
  inner.depth = r->depth + 1;
  if (inner.depth > MOST_NESTING) return fail(r, "is nested too deeply");
  while (*inner.p)
    if (!read_part(&inner, w, quoted)) return FALSE;
  return TRUE;
}

static void keep_first(char **values) {
  for (int i = 1; values && values[0] && values[i]; i++) g_clear_pointer(&values[i], g_free);
}

/* The text of a subscript, its variables replaced; NULL when it cannot be told. */
static gboolean read_subscript(Reader *r, const char *from, const char *end, char **key) {
  Words w;
  words_init(&w);
  w.no_split = TRUE;
  gboolean ok = put_default(r, &w, from, (gsize)(end - from), FALSE);
  *key = ok && !strchr(w.word->str, '$') ? g_strdup(w.word->str) : NULL;
  words_clear(&w);
  return ok;
}

/* Where a key stands in an array of `count` words, or -1: a word of an associative array, or beyond the end. */
static gint64 element_at(const MsShell *shell, const char *key, gint64 count) {
  gint64 at;
  if (!ms_shell_arithmetic(key, variable, shell, &at)) return -1;
  if (at < 0) at += count;
  return at >= 0 && at < count ? at : -1;
}

/* ${NAME[key]} as a word, NULL when nothing sets it. */
static gboolean element_of(Reader *r, const char *name, const char *from, const char *end, char ***values) {
  g_autofree char *key = NULL;
  *values = NULL;
  if (!read_subscript(r, from, end, &key)) return FALSE;
  if (!key) return TRUE;
  g_autofree char *whole = g_strdup_printf("%s[%s]", name, key);
  *values = value_of(r->shell, whole);
  if (*values) return TRUE;
  g_auto(GStrv) words = value_of(r->shell, name);
  gint64 at = words ? element_at(r->shell, key, g_strv_length(words)) : -1;
  if (at >= 0) *values = one_word(words[at]);
  return TRUE;
}

/* NAME[key]=word: in its place of an array, or as a variable of that name. */
static void set_element(MsShell *shell, const char *name, const char *key, const char *word) {
  char **words = g_hash_table_lookup(shell->variables, name);
  gint64 at = words ? element_at(shell, key, g_strv_length(words)) : -1;
  if (at >= 0) {
    g_free(words[at]);
    words[at] = g_strdup(word);
    return;
  }
  g_hash_table_replace(shell->variables, g_strdup_printf("%s[%s]", name, key), one_word(word));
}

/* ${#NAME}, ${#NAME[@]}: letters of a word, words of an array. */
static gboolean put_length(Reader *r, Words *w, char **values, gboolean all, const char *start, const char *end) {
  if (!values) return keep_as_written(r, w, start, end + 1);
  g_autofree char *text = g_strdup_printf("%zu", all ? g_strv_length(values) : values[0] ? strlen(values[0]) : 0);
  count_lines(r, end);
  r->p = end + 1;
  return put_text(r, w, text);
}

/* ${...}: r->p behind the brace. */
static gboolean read_braces(Reader *r, Words *w, gboolean quoted) {
  const char *start = r->p - 2, *end = closing(r->p, '{', '}');
  if (!end) return fail(r, "has ${ without }");
  const char *p = r->p + (*r->p == '!' || *r->p == '#');
  gsize n = g_ascii_isdigit(*p) ? strspn(p, "0123456789") : *p == '@' || *p == '*' ? 1 : name_length(p);
  g_autofree char *name = g_strndup(p, n);
  const char *after = p + n;
  gboolean each = g_str_has_prefix(after, "[@]"), all = each || g_str_has_prefix(after, "[*]");
  const char *key = !all && n > 0 && *after == '[' ? after + 1 : NULL, *close = key ? closing(key, '[', ']') : NULL;
  if (all) after += 3;
  else if (close && close < end) after = close + 1;
  else key = NULL;
  if (n == 0 || *r->p == '!' || (*r->p == '#' && after != end)) return keep_as_written(r, w, start, end + 1);
  g_auto(GStrv) values = key ? NULL : value_of(r->shell, name);
  if (key && !element_of(r, name, key, close, &values)) return FALSE;
  if (*r->p == '#') return put_length(r, w, values, all, start, end);
  if (!all && *name != '@' && *name != '*') keep_first(values); /* of an array without a subscript */
  gboolean colon = *after == ':', empty = values && (!values[0] || (!*values[0] && !values[1]));
  const char *op = after + colon;
  gboolean missing = !values || (colon && empty);
  count_lines(r, end);
  if (*op && strchr("-=+?", *op)) {
    r->p = end + 1;
    if (*op == '+') return missing || put_default(r, w, op + 1, (gsize)(end - op - 1), quoted);
    if (missing && *op != '?') {
      w->open |= quoted || w->no_split;
      return put_default(r, w, op + 1, (gsize)(end - op - 1), quoted);
    }
  } else if (after != end) {
    return keep_as_written(r, w, start, end + 1); /* cutting and replacing */
  }
  if (!values) return keep_as_written(r, w, start, end + 1);
  r->p = end + 1;
  w->open |= (quoted && !all) || w->no_split;
  return put_value(r, w, values, quoted, each || (all && !quoted) || (!all && !quoted));
}

/* A file that is not where a script says, in the folder of the script or up to four above it: the longest end of its
 * path that is there and has a folder. (transfer full) or NULL; *near becomes its path. */
static char *find_near(const MsShell *shell, const char *name, char **near) {
  g_autofree char *folder = g_strdup(shell->folder);
  for (int up = 0; up < 5; up++) {
    for (const char *end = name; (end = strchr(end, '/')) && strchr(end + 1, '/'); end++) {
      g_autofree char *path = g_build_filename(folder, end + 1, NULL), *text = shell->load(path);
      if (!text) continue;
      *near = g_steal_pointer(&path);
      return g_steal_pointer(&text);
    }
    char *above = g_build_filename(folder, "..", NULL);
    g_free(folder);
    folder = above;
  }
  return NULL;
}

/* The text of a file that a script names, and its path. (transfer full) or NULL */
static char *load_file(Reader *r, const char *name, char **path) {
  MsShell *shell = r->shell;
  *path = g_path_is_absolute(name) ? g_strdup(name) : g_build_filename(shell->folder, name, NULL);
  if (r->depth >= 4) return NULL;
  g_autofree char *text = shell->load(*path), *other = NULL;
  if (!text) text = find_near(shell, *path, &other);
  if (other) {
    g_autofree char *what = g_strdup_printf("%.200s is not there, %.200s is read", name, other);
    remark(r, what);
    g_free(*path);
    *path = g_steal_pointer(&other);
  }
  return g_steal_pointer(&text);
}

/* --- what a program of Python prints --------------------------------------------------------------------------- */
typedef struct {
  Reader *r;
  char *folder; /* of the files of models */
} ModelScripts;

static char *load_model_script(gpointer data, const char *model) {
  const ModelScripts *m = data;
  g_autofree char *name = g_strdup_printf("%s/%s.py", m->folder, model), *path = NULL;
  return load_file(m->r, name, &path);
}

static char *script_variable(const void *data, const char *name) {
  const ModelScripts *m = data;
  return ms_shell_get(m->r->shell, name);
}

/* python3 FOLDER/miles/utils/external_utils/model_args_utils.py MODEL. (transfer full) or NULL */
static char *model_arguments(Reader *r, const GPtrArray *commands) {
  char **words = commands->len == 1 ? commands->pdata[0] : NULL;
  int at = words && r->shell->load ? (int)g_strv_length(words) - 2 : -1;
  if (at < 1 || !g_str_has_suffix(words[at], "/" MS_MODEL_SCRIPT) || strpbrk(words[at + 1], "$`/")) return NULL;
  g_autofree char *folder = g_strdup(words[at]);
  for (int up = 0; up < 4 && strrchr(folder, '/'); up++) *strrchr(folder, '/') = '\0';
  ModelScripts m = {r, g_strconcat(folder, "/scripts/models", NULL)};
  g_autofree char *text = load_model_script(&m, words[at + 1]),
                  *all = text ? ms_model_script(text, load_model_script, script_variable, &m) : NULL;
  g_free(m.folder);
  return g_steal_pointer(&all);
}

/* cat FILES, where all can be read. (transfer full) or NULL */
static char *file_contents(Reader *r, const GPtrArray *commands) {
  char **words = commands->len == 1 ? commands->pdata[0] : NULL;
  if (!words || !r->shell->load || strcmp(words[0], "cat") != 0 || !words[1]) return NULL;
  g_autoptr(GString) all = g_string_new(NULL);
  for (char **name = words + 1; *name; name++) {
    g_autofree char *path = NULL, *text = strpbrk(*name, "$`*?") || **name == '-' ? NULL : load_file(r, *name, &path);
    if (!text || all->len + strlen(text) > MOST_TEXT) return NULL;
    g_string_append(all, text);
  }
  while (all->len > 0 && all->str[all->len - 1] == '\n') g_string_truncate(all, all->len - 1);
  return g_string_free(g_steal_pointer(&all), FALSE);
}

/* The command inside of $( ), where "< FILE" alone is "cat FILE". (transfer full) */
static char *command_of(const char *from, const char *end) {
  while (from < end && g_ascii_isspace(*from)) from++;
  gboolean reads = from + 1 < end && *from == '<' && !strchr("<(&", from[1]);
  g_autofree char *text = g_strndup(from, (gsize)(end - from));
  return reads ? g_strconcat("cat ", text + 1, NULL) : g_steal_pointer(&text);
}

/* What $(command) prints, where that is a matter of names alone or of a file that is there; else as written. The
 * command is between `from` and `end`, the whole from `start` to behind `end`. */
static gboolean put_output(Reader *r, Words *w, gboolean quoted, const char *start, const char *from, const char *end) {
  g_autofree char *script = command_of(from, end), *output = NULL;
  if (r->depth < 4 && !strchr(script, '|')) {
    MsShell inner = *r->shell;
    inner.commands = g_ptr_array_new_with_free_func(command_free);
    inner.remarks = g_ptr_array_new_with_free_func(g_free);
    inner.load = NULL;
    if (run_text(&inner, script, r->line, r->depth + 1, r->produced, NULL)) {
      g_autoptr(GPtrArray) commands = g_ptr_array_new();
      for (guint i = 0; i < inner.commands->len; i++)
        g_ptr_array_add(commands, ((MsCommand *)inner.commands->pdata[i])->words);
      output = model_arguments(r, commands);
      if (!output) output = file_contents(r, commands);
      if (!output) output = ms_shell_output(commands, r->shell->folder);
    }
    g_ptr_array_unref(inner.commands);
    g_ptr_array_unref(inner.remarks);
    g_hash_table_remove(r->shell->variables, "IFS"); /* was that of the subshell */
  }
  if (!output) return keep_as_written(r, w, start, end + 1);
  count_lines(r, end);
  r->p = end + 1;
  w->open |= quoted;
  return quoted ? put_text(r, w, output) : put_split(r, w, output);
}

static gboolean read_dollar(Reader *r, Words *w, gboolean quoted) {
  const char *start = r->p++;
  char buf[32];
  if (*r->p == '(' && r->p[1] == '(') {
    const char *end = closing(r->p + 2, '(', ')');
    gint64 value;
    if (!end || end[1] != ')') return fail(r, "has $(( without ))");
    g_autofree char *text = g_strndup(r->p + 2, (gsize)(end - r->p - 2));
    if (!arithmetic(r, text, &value)) return keep_as_written(r, w, start, end + 2);
    count_lines(r, end);
    r->p = end + 2;
    g_snprintf(buf, sizeof buf, "%" G_GINT64_FORMAT, value);
    return put_text(r, w, buf);
  }
  if (*r->p == '(') {
    const char *end = closing(r->p + 1, '(', ')');
    return end ? put_output(r, w, quoted, start, r->p + 1, end) : fail(r, "has $( without )");
  }
  if (*r->p == '{') {
    r->p++;
    return read_braces(r, w, quoted);
  }
  gsize n = g_ascii_isdigit(*r->p) || *r->p == '@' || *r->p == '*' ? 1 : name_length(r->p);
  if (n == 0) return put_char(r, w, '$');
  g_autofree char *name = g_strndup(r->p, n);
  g_auto(GStrv) values = value_of(r->shell, name);
  if (!values) return keep_as_written(r, w, start, r->p + n);
  r->p += n;
  gboolean list = *name == '@' || *name == '*';
  if (!list) keep_first(values); /* $NAME of an array is its first word */
  w->open |= quoted || w->no_split;
  return put_value(r, w, values, quoted, list && *name == '@');
}

static gboolean put_literal(Reader *r, Words *w, char c) {
  gboolean before = w->literal;
  w->literal = TRUE;
  gboolean ok = put_char(r, w, c);
  w->literal = before;
  return ok;
}

/* One character, quoted text or expansion of a word. */
static gboolean read_part(Reader *r, Words *w, gboolean quoted) {
  char c = *r->p;
  if (c == '$') return read_dollar(r, w, quoted);
  if (c == '`') {
    const char *end = strchr(r->p + 1, '`');
    return end ? put_output(r, w, quoted, r->p, r->p + 1, end) : fail(r, "has a backquote without its end");
  }
  if (c == '\\') {
    r->p++;
    if (*r->p == '\n') r->line++, r->p++;
    else if (*r->p == '\r' && r->p[1] == '\n') r->line++, r->p += 2;
    else if (!*r->p) return put_char(r, w, '\\');
    else {
      gboolean kept = quoted ? !strchr("$`\"\\", *r->p) : g_ascii_isalnum(*r->p) && in_pattern(w);
      if (kept && !put_char(r, w, '\\')) return FALSE;
      return put_literal(r, w, *r->p++);
    }
    return TRUE;
  }
  if (c == '\'' && !quoted) {
    const char *end = strchr(r->p + 1, '\'');
    if (!end) return fail(r, "has a quote without its end");
    w->open = TRUE;
    for (const char *q = r->p + 1; q < end; q++)
      if (!put_literal(r, w, *q)) return FALSE;
    count_lines(r, end);
    r->p = end + 1;
    return TRUE;
  }
  if (c == '"' && !quoted) {
    int line = r->line;
    w->open = w->literal = TRUE;
    for (r->p++; *r->p && *r->p != '"';)
      if (!read_part(r, w, TRUE)) return FALSE;
    w->literal = FALSE;
    if (!*r->p) {
      r->line = line;
      return fail(r, "has a quote without its end");
    }
    r->p++;
    return TRUE;
  }
  r->line += c == '\n';
  r->p++;
  return put_char(r, w, c);
}

/* --- assignments ----------------------------------------------------------------------------------------------- */
/* Length of "NAME=" or "NAME+=" at p, 0 when there is none. */
static gsize assignment_at(const char *p) {
  gsize n = name_length(p);
  if (n == 0) return 0;
  if (p[n] == '[') { /* NAME[key]= */
    const char *end = strchr(p + n, ']');
    if (!end || end[1] != '=') return 0;
    return (gsize)(end + 2 - p);
  }
  if (p[n] == '=') return n + 1;
  return p[n] == '+' && p[n + 1] == '=' ? n + 2 : 0;
}

static void words_init(Words *w) {
  *w = (Words){.words = g_ptr_array_new_with_free_func(g_free), .word = g_string_new(NULL)};
}
static void words_clear(Words *w) {
  g_ptr_array_unref(w->words);
  g_string_free(w->word, TRUE);
  g_free(w->here);
}

static void skip_comment(Reader *r) {
  while (*r->p && *r->p != '\n') r->p++;
}

static gboolean at_blank(const Reader *r) { return *r->p == ' ' || *r->p == '\t' || *r->p == '\r'; }

/* The words of NAME=( ... ), r->p behind the bracket. */
static gboolean read_array(Reader *r, Words *w) {
  while (*r->p && *r->p != ')') {
    if (at_blank(r) || *r->p == '\n') {
      finish_word(w);
      r->line += *r->p++ == '\n';
    } else if (*r->p == '#' && !w->open) {
      skip_comment(r);
    } else if (!read_part(r, w, FALSE)) {
      return FALSE;
    }
  }
  finish_word(w);
  if (!*r->p) return fail(r, "has ( without )");
  r->p++;
  return TRUE;
}

static gboolean ends_word(const Reader *r) { return !*r->p || at_blank(r) || strchr("\n;&|()<>", *r->p); }

static gboolean read_assignment(Reader *r, gsize length, gboolean active) {
  gboolean append = r->p[length - 2] == '+', array = r->p[length] == '(';
  g_autofree char *name = g_strndup(r->p, name_length(r->p));
  const char *bracket = r->p + strlen(name) + 1;
  g_autofree char *key = NULL;
  gboolean element = bracket[-1] == '[';
  if (element && !read_subscript(r, bracket, r->p + length - 2, &key)) return FALSE;
  Words w;
  words_init(&w);
  r->p += length + array;
  gboolean ok = TRUE;
  if (array) {
    ok = read_array(r, &w);
  } else {
    w.no_split = TRUE;
    while (ok && !ends_word(r)) ok = read_part(r, &w, FALSE);
    w.open = TRUE; /* an empty value is a value */
    finish_word(&w);
  }
  if (ok && active && key) set_element(r->shell, name, key, w.words->pdata[0]);
  else if (ok && active && !element) assign(r->shell, name, w.words, append, array);
  words_clear(&w);
  return ok;
}

/* --- conditions ------------------------------------------------------------------------------------------------ */
static gboolean is_active(const Reader *r) {
  for (guint i = 0; i < r->frames->len; i++)
    if (!g_array_index(r->frames, Frame, i).active) return FALSE;
  return TRUE;
}

/* The command that is read does not run, for the one before && or ||. */
static gboolean is_gated(const Reader *r) {
  return (r->gate == '&' && r->status == 0) || (r->gate == '|' && r->status == 1);
}

static Frame *top(Reader *r) { return r->frames->len ? &g_array_index(r->frames, Frame, r->frames->len - 1) : NULL; }

static void push(Reader *r, FrameKind kind, gboolean for_loop) {
  Frame frame = {.kind = kind, .active = kind == FRAME_IF, .condition = kind == FRAME_IF, .result = 1};
  if (kind == FRAME_LOOP && !for_loop && is_active(r)) remark(r, "a loop is skipped");
  frame.loop.head = for_loop;
  g_array_append_val(r->frames, frame);
}

static void pop(Reader *r) {
  Loop *loop = &top(r)->loop;
  g_free(top(r)->subject);
  g_free(loop->name), g_free(loop->condition), g_free(loop->step);
  g_strfreev(loop->values);
  g_array_set_size(r->frames, r->frames->len - 1);
}

/* The status of a command that ran: `result`, or its opposite behind !; what cannot be told before && or || counts in a
 * condition, elsewhere other commands are thought to succeed. */
static void set_status(Reader *r, int result) {
  const Frame *f = top(r);
  gboolean condition = f && f->condition;
  if (result < 0 && !condition) result = 1;
  if (r->negated && result >= 0) result = !result;
  r->negated = FALSE;
  gboolean open = r->gate && r->status < 0 && result == (r->gate == '&');
  r->status = open ? -1 : result;
}

static gboolean in_active_frame(const Reader *r) { /* the innermost one aside */
  for (guint i = 0; i + 1 < r->frames->len; i++)
    if (!g_array_index(r->frames, Frame, i).active) return FALSE;
  return TRUE;
}

/* Words of case up to the body of a branch: "SUBJECT in", then "PATTERN | PATTERN )". `end` ended them. */
static void read_case(Reader *r, Words *w, char end) {
  Frame *f = top(r);
  guint i = 0;
  if (f->state == CASE_SUBJECT && w->words->len > 0) {
    f->subject = g_strdup(w->words->pdata[0]);
    f->state = CASE_PATTERN;
    if (strchr(f->subject, '$') && in_active_frame(r)) remark(r, "a case cannot be told and is skipped");
    i = 2;
  }
  for (; f->state == CASE_PATTERN && i < w->words->len; i++)
    f->matched |= !strchr(f->subject, '$') && g_pattern_match_simple(w->words->pdata[i], f->subject);
  g_ptr_array_set_size(w->words, 0);
  if (f->state != CASE_PATTERN || end != ')') return;
  f->active = f->matched && !f->taken;
  f->taken |= f->active;
  f->state = CASE_BODY;
}

/* --- loops --- */
static void assign_text(MsShell *shell, const char *name, const char *text) {
  g_autoptr(GPtrArray) words = g_ptr_array_new();
  g_ptr_array_add(words, (gpointer)text);
  assign(shell, name, words, FALSE, FALSE);
}

/* NAME = EXPRESSION, NAME += EXPRESSION, NAME++ and the like, or an expression alone, whose value is *value. FALSE when
 * it cannot be told. */
static gboolean arithmetic_statement(Reader *r, const char *text, gint64 *value) {
  const char *name_at = text + strspn(text, " +-");
  gsize n = name_length(name_at), gap = n + strspn(name_at + n, " ");
  const char *op = name_at + gap;
  g_autofree char *name = g_strndup(name_at, n), *expression = NULL;
  if (n > 0 && op[0] == '=' && op[1] != '=') expression = g_strdup(op + 1);
  else if (n > 0 && (op[0] == '+' || op[0] == '-') && op[1] == '=')
    expression = g_strdup_printf("%s %c (%s)", name, op[0], op + 2);
  else if (n > 0 && (g_str_has_prefix(op, "++") || g_str_has_prefix(text, "++")))
    expression = g_strdup_printf("%s + 1", name);
  else if (n > 0 && (g_str_has_prefix(op, "--") || g_str_has_prefix(text, "--")))
    expression = g_strdup_printf("%s - 1", name);
  if (!expression) return arithmetic(r, text, value);
  if (!arithmetic(r, expression, value)) return FALSE;
  g_autofree char *number = g_strdup_printf("%" G_GINT64_FORMAT, *value);
  assign_text(r->shell, name, number);
  return TRUE;
}

/* "NAME in WORDS" between for and do. Over words that cannot be told the body is read once. */
static void read_for_words(Frame *f, GPtrArray *words) {
  Loop *loop = &f->loop;
  g_free(loop->name), g_strfreev(loop->values); /* of a line between that bash would not take */
  loop->name = g_strdup(words->pdata[0]);
  loop->known = words->len > 1 && strcmp(words->pdata[1], "in") == 0;
  g_autoptr(GPtrArray) values = g_ptr_array_new();
  for (guint i = 2; i < words->len; i++) {
    loop->open |= strpbrk(words->pdata[i], "$`*?") != NULL;
    g_ptr_array_add(values, words->pdata[i]);
  }
  g_autofree char *itself = g_strconcat("$", loop->name, NULL);
  if (loop->open) g_ptr_array_set_size(values, 0), g_ptr_array_add(values, itself);
  g_ptr_array_add(values, NULL);
  loop->values = g_strdupv((char **)values->pdata);
}

/* "(( START; CONDITION; STEP" of for. */
static void read_for_numbers(Reader *r, Frame *f, const char *text) {
  g_auto(GStrv) parts = g_strsplit(text, ";", 3);
  gint64 value;
  Loop *loop = &f->loop;
  loop->known = g_strv_length(parts) == 3 && (!in_active_frame(r) || arithmetic_statement(r, parts[0], &value));
  if (!loop->known) return;
  loop->condition = g_strdup(parts[1]);
  loop->step = g_strdup(parts[2]);
}

/* Whether the body is read (once more): its variable is set. */
static gboolean next_round(Reader *r, Loop *loop) {
  gint64 value;
  *r->produced += ROUND_TEXT; /* against loops in loops */
  if (!loop->known || loop->rounds++ >= MOST_ROUNDS || *r->produced > MOST_TEXT) return FALSE;
  if (loop->condition) return arithmetic(r, loop->condition, &value) && value;
  if (!loop->values[loop->next]) return FALSE;
  assign_text(r->shell, loop->name, loop->values[loop->next++]);
  return TRUE;
}

static void begin_loop(Reader *r, Frame *f) { /* do */
  Loop *loop = &f->loop;
  if (!loop->head) return;
  loop->head = FALSE;
  loop->start = r->p;
  loop->line = r->line;
  if (!in_active_frame(r)) return;
  if (!loop->known || loop->open)
    remark(r, loop->known ? "a loop over what cannot be told is read once" : "a loop is skipped");
  f->active = next_round(r, loop);
}

static void end_loop(Reader *r) { /* done */
  Frame *f = top(r);
  Loop *loop = &f->loop;
  gint64 value;
  gboolean again = loop->start && loop->known && in_active_frame(r);
  if (again && loop->step) again = arithmetic_statement(r, loop->step, &value);
  if (!again || !next_round(r, loop)) {
    pop(r);
    return;
  }
  f->active = TRUE;
  r->p = loop->start;
  r->line = loop->line;
}

/* break and continue: the rest of the body is not read. */
static void leave_round(Reader *r, gboolean for_good) {
  for (guint i = r->frames->len; i-- > 0;) {
    Frame *f = &g_array_index(r->frames, Frame, i);
    if (f->kind != FRAME_LOOP) continue;
    f->active = FALSE;
    if (for_good) f->loop.known = FALSE;
    return;
  }
}

/* { ... }: runs as one command. */
static void push_group(Reader *r) {
  Frame group = {.kind = FRAME_GROUP, .active = !is_gated(r)};
  g_array_append_val(r->frames, group);
}

static void end_branch(Frame *f) {
  f->active = f->matched = FALSE;
  f->state = CASE_PATTERN;
}

static void enter_branch(Reader *r, Frame *f) { /* then */
  f->condition = FALSE;
  f->active = TRUE;
  if (r->status < 0 && !f->taken && is_active(r)) remark(r, "a condition cannot be told and is taken as false");
  f->active = r->status == 1 && !f->taken;
  f->taken |= f->active;
}

/* TRUE when `word` at the start of a command is a keyword, which it obeys. */
static gboolean keyword(Reader *r, const char *word) {
  Frame *f = top(r);
  if (strcmp(word, "if") == 0) push(r, FRAME_IF, FALSE);
  else if (strcmp(word, "for") == 0) push(r, FRAME_LOOP, TRUE);
  else if (strcmp(word, "while") == 0 || strcmp(word, "until") == 0 || strcmp(word, "select") == 0)
    push(r, FRAME_LOOP, FALSE);
  else if (strcmp(word, "case") == 0) push(r, FRAME_CASE, FALSE);
  else if (f && f->kind == FRAME_LOOP && strcmp(word, "do") == 0) begin_loop(r, f);
  else if (f && f->kind == FRAME_LOOP && strcmp(word, "done") == 0) end_loop(r);
  else if (f && f->kind == FRAME_IF && strcmp(word, "then") == 0) enter_branch(r, f);
  else if (f && f->kind == FRAME_IF && strcmp(word, "elif") == 0) f->condition = TRUE, f->active = !f->taken;
  else if (f && f->kind == FRAME_IF && strcmp(word, "else") == 0) f->active = !f->taken, f->taken = TRUE;
  else if (f &&
           ((f->kind == FRAME_IF && strcmp(word, "fi") == 0) || (f->kind == FRAME_CASE && strcmp(word, "esac") == 0)))
    pop(r);
  else if (strcmp(word, "{") == 0) push_group(r);
  else if (strcmp(word, "!") == 0) return r->negated = !r->negated, TRUE;
  else if (f && f->kind == FRAME_GROUP && strcmp(word, "}") == 0) pop(r);
  else return strcmp(word, "do") == 0 || strcmp(word, "}") == 0 || strcmp(word, "function") == 0;
  r->gate = 0;
  return TRUE;
}

/* --- commands -------------------------------------------------------------------------------------------------- */
static void add_words_to(MsCommand *command, GPtrArray *words) {
  guint old = g_strv_length(command->words);
  command->words = g_renew(char *, command->words, old + words->len + 1);
  for (guint i = 0; i < words->len; i++) command->words[old + i] = g_strdup(words->pdata[i]);
  command->words[old + words->len] = NULL;
}

static gboolean keep_command(Reader *r, GPtrArray *words, int line) {
  GPtrArray *commands = r->shell->commands;
  if (commands->len >= MOST_COMMANDS) return fail(r, "has more than 100000 commands");
  if (ms_is_flag(words->pdata[0]) &&
      commands->len > 0) { /* a line that begins with an option goes on with the command before it */
    add_words_to(commands->pdata[commands->len - 1], words);
    return TRUE;
  }
  MsCommand *command = g_new0(MsCommand, 1);
  command->words = g_new0(char *, 1);
  command->line = line;
  add_words_to(command, words);
  g_ptr_array_add(commands, command);
  return TRUE;
}

/* ssh OPTIONS HOST WORDS: where the words begin, which a shell of that host reads anew. */
static guint remote_words(char **w, guint n) {
  guint at = 1;
  for (; at < n && w[at][0] == '-'; at++) at += strlen(w[at]) == 2 && strchr("bcDEeFIiJLlmOopQRSWw", w[at][1]) != NULL;
  return at + 1;
}

/* The script inside eval WORDS, ssh HOST WORDS and ... bash -c SCRIPT. (transfer full) or NULL */
static char *inner_script(GPtrArray *words) {
  char **w = (char **)words->pdata;
  guint from = strcmp(w[0], "eval") == 0 ? 1 : strcmp(w[0], "ssh") == 0 ? remote_words(w, words->len) : 0;
  if (from > 0 && from < words->len) {
    g_ptr_array_add(words, NULL);
    char *text = g_strjoinv(" ", (char **)words->pdata + from);
    g_ptr_array_set_size(words, (int)words->len - 1);
    return text;
  }
  if (from > 0 || strcmp(w[0], "echo") == 0 || strcmp(w[0], "printf") == 0) return NULL;
  for (guint i = 0; i + 2 < words->len; i++) {
    gboolean shell = g_str_has_suffix(w[i], "bash") || strcmp(w[i], "sh") == 0;
    if (shell && w[i + 1][0] == '-' && strchr(w[i + 1], 'c') && w[i + 1][1] != '-') return g_strdup(w[i + 2]);
  }
  return NULL;
}

/* source FILE: its variables, where it can be read. */
static gboolean read_sourced(Reader *r, const char *name) {
  MsShell *shell = r->shell;
  g_autofree char *near = NULL, *text = load_file(r, name, &near);
  if (!text) {
    g_autofree char *what = g_strdup_printf("%.200s cannot be read, what it sets is not known", name);
    remark(r, what);
    return TRUE;
  }
  const char *file = shell->file;
  shell->file = near;
  gboolean ok = run_text(shell, text, 1, r->depth + 1, r->produced, r->error);
  shell->file = file;
  return ok;
}

static gboolean is_source(const MsShell *shell, GPtrArray *words) {
  gboolean named = strcmp(words->pdata[0], "source") == 0 || strcmp(words->pdata[0], ".") == 0;
  return shell->load && named && words->len > 1 && !strpbrk(words->pdata[1], "$`");
}

static gboolean is_test(const char *word) {
  return strcmp(word, "[") == 0 || strcmp(word, "[[") == 0 || strcmp(word, "test") == 0;
}

/* [ WORDS ], [[ WORDS ]] or test WORDS. */
static int test_status(Reader *r, GPtrArray *words) {
  char **w = (char **)words->pdata;
  g_auto(GStrv) groups = NULL;
  int n = (int)words->len - (*w[0] == '[' ? 2 : 1);
  int result = ms_shell_test(w + 1, MAX(n, 0), strcmp(w[0], "[[") == 0, &groups);
  if (groups) g_hash_table_replace(r->shell->variables, g_strdup("BASH_REMATCH"), g_steal_pointer(&groups));
  if (result >= 0 || (top(r) && top(r)->condition)) return result;
  remark(r, "a condition cannot be told and is taken as false");
  return r->negated; /* false as a whole */
}

static int status_of(Reader *r, GPtrArray *words) {
  const char *first = words->pdata[0];
  if (is_test(first)) return test_status(r, words);
  return strcmp(first, "true") == 0 ? 1 : strcmp(first, "false") == 0 ? 0 : -1;
}

/* printf -v NAME FORMAT WORDS */
static void print_into(Reader *r, GPtrArray *words) {
  g_ptr_array_add(words, NULL);
  g_autofree char *text = ms_shell_printf((char **)words->pdata + 3);
  g_ptr_array_set_size(words, (int)words->len - 1);
  if (text) assign_text(r->shell, words->pdata[2], text);
}

/* read NAME... <<< TEXT: the words of the text, the last name gets the rest; with -a all of them. */
static void read_into(Reader *r, GPtrArray *words, const char *text) {
  guint at = 1;
  gboolean array = FALSE;
  for (; at < words->len && ((char *)words->pdata[at])[0] == '-'; at++) array |= strchr(words->pdata[at], 'a') != NULL;
  g_auto(GStrv) split = g_strsplit_set(text, " \t\n", -1);
  g_autoptr(GPtrArray) parts = g_ptr_array_new();
  for (int i = 0; split[i]; i++)
    if (*split[i]) g_ptr_array_add(parts, split[i]);
  if (array && at < words->len) {
    assign(r->shell, words->pdata[at], parts, FALSE, TRUE);
    return;
  }
  for (guint next = 0; at < words->len; at++, next++) {
    gboolean last = at + 1 == words->len;
    g_autoptr(GString) value = g_string_new(next < parts->len ? parts->pdata[next] : "");
    for (guint i = next + 1; last && i < parts->len; i++) g_string_append_printf(value, " %s", (char *)parts->pdata[i]);
    assign_text(r->shell, words->pdata[at], value->str);
  }
}

/* TRUE for commands that are understood and leave nothing behind. */
static gboolean run_builtin(Reader *r, GPtrArray *words, const char *here) {
  const char *first = words->pdata[0];
  if (strcmp(first, "break") == 0 || strcmp(first, "continue") == 0) leave_round(r, *first == 'b');
  else if (strcmp(first, "printf") == 0 && words->len > 3 && strcmp(words->pdata[1], "-v") == 0) print_into(r, words);
  else if (strcmp(first, "read") == 0 && here) read_into(r, words, here);
  else return FALSE;
  return TRUE;
}

static gboolean end_command(Reader *r, Words *w, int line) {
  finish_word(w);
  gboolean runs = is_active(r) && !is_gated(r);
  if (w->words->len == 0 && w->assigned && runs) set_status(r, w->assigned);
  w->assigned = 0;
  if (w->words->len == 0) return TRUE;
  if (top(r) && top(r)->loop.head) {
    read_for_words(top(r), w->words);
    g_ptr_array_set_size(w->words, 0);
    return TRUE;
  }
  if (runs) {
    set_status(r, status_of(r, w->words));
    g_autofree char *script = inner_script(w->words);
    if (is_source(r->shell, w->words) && !read_sourced(r, w->words->pdata[1])) return FALSE;
    if (!run_builtin(r, w->words, w->here) &&
        (script && r->depth < 4 ? !run_text(r->shell, script, line, r->depth + 1, r->produced, r->error)
                                : !keep_command(r, w->words, line)))
      return FALSE;
  }
  g_ptr_array_set_size(w->words, 0);
  g_clear_pointer(&w->here, g_free);
  w->in_test = w->no_split = r->negated = FALSE;
  return TRUE;
}

/* --- here-documents -------------------------------------------------------------------------------------------- */
static gboolean take_documents(Reader *r) { /* r->p at the start of a line */
  for (guint i = 0; i < r->pending->len; i++) {
    const char *end_word = r->pending->pdata[i];
    GString *text = g_string_new(NULL);
    gboolean found = FALSE;
    while (*r->p && !found) {
      gsize n = strcspn(r->p, "\n");
      g_autofree char *one = g_strndup(r->p, n);
      r->p += n + (r->p[n] == '\n');
      r->line++;
      g_strchomp(one);
      found = strcmp(one + strspn(one, "\t"), end_word) == 0;
      if (!found) g_string_append_printf(text, "%s\n", one);
    }
    g_ptr_array_add(r->shell->documents, g_string_free(text, FALSE));
    if (!found) return fail(r, "ends inside a here-document");
  }
  g_ptr_array_set_size(r->pending, 0);
  return TRUE;
}

static gboolean read_redirection(Reader *r, Words *command) {
  gboolean text = g_str_has_prefix(r->p, "<<<"), document = !text && g_str_has_prefix(r->p, "<<");
  r->p += strspn(r->p, "<>&|-");
  while (at_blank(r)) r->p++;
  Words w;
  words_init(&w);
  w.no_split = TRUE;
  gboolean ok = TRUE;
  while (ok && !ends_word(r)) ok = read_part(r, &w, FALSE);
  if (ok && document) g_ptr_array_add(r->pending, g_strdup(w.word->str));
  if (ok && text) g_free(command->here), command->here = g_strdup(w.word->str);
  words_clear(&w);
  return ok;
}

/* (( ... )) as a command: an assignment of a number, or a condition. r->p behind the brackets. */
static gboolean read_arithmetic_command(Reader *r) {
  const char *end = closing(r->p, '(', ')');
  if (!end || end[1] != ')') return fail(r, "has (( without ))");
  g_autofree char *text = g_strndup(r->p, (gsize)(end - r->p));
  gint64 value;
  count_lines(r, end);
  r->p = end + 2;
  if (top(r) && top(r)->loop.head) read_for_numbers(r, top(r), g_strstrip(text));
  else if (is_active(r) && !is_gated(r))
    set_status(r, arithmetic_statement(r, g_strstrip(text), &value) ? value != 0 : -1);
  r->negated = FALSE;
  return TRUE;
}

/* --- the script ------------------------------------------------------------------------------------------------ */
static gboolean is_declaration(GPtrArray *words) {
  static const char *const prefixes[] = {"export", "declare", "local", "readonly", "typeset", "env", NULL};
  if (words->len == 0 || !g_strv_contains(prefixes, words->pdata[0])) return words->len == 0;
  for (guint i = 1; i < words->len; i++)
    if (*(char *)words->pdata[i] != '-') return FALSE;
  return TRUE;
}

/* The word that ends here may be a keyword or open a test. */
static void look_at_first(Reader *r, Words *w) {
  if (w->words->len != 1) return;
  const char *first = w->words->pdata[0];
  if (keyword(r, first)) g_ptr_array_set_size(w->words, 0);
  else if (is_test(first)) w->in_test = TRUE, w->no_split = strcmp(first, "[[") == 0;
}

/* <PATH TO DATA>, what a script leaves to its reader, is a word and no redirection; its length, 0 for others. */
static gsize placeholder_at(const char *p) {
  gsize n = strspn(p + 1, G_CSET_a_2_z G_CSET_A_2_Z G_CSET_DIGITS " _-/.");
  return *p == '<' && g_ascii_isupper(p[1]) && p[1 + n] == '>' ? n + 2 : 0;
}

static gboolean is_joint(const char *word) { return strcmp(word, "&&") == 0 || strcmp(word, "||") == 0; }

/* This character belongs to the expression behind =~: all but a bracket that closes one outside of it. */
static gboolean in_expression(const Words *w, char c) {
  int depth = 0;
  if (!in_pattern(w) || strcmp(last_word(w), "=~") != 0 || w->word->len > MOST_EXPRESSION) return FALSE;
  for (const char *p = w->word->str; *p; p += *p == '\\' && p[1] ? 2 : 1) depth += (*p == '(') - (*p == ')');
  return c == '(' || c == '<' || c == '>' || (c == '|' && w->open) || (c == ')' && depth > 0);
}

/* An operator between [[ and ]]. */
static gboolean read_bracket_operator(Reader *r, Words *w) {
  char c = *r->p;
  gboolean twice = (c == '&' || c == '|') && r->p[1] == c;
  if (in_expression(w, c)) return r->p++, put_char(r, w, c);
  finish_word(w);
  if (c == '\n') r->line++;
  else g_ptr_array_add(w->words, g_strndup(r->p, 1u + twice));
  r->p += 1 + twice;
  return TRUE;
}

static gboolean read_operator(Reader *r, Words *w, int line) {
  char c = *r->p;
  gboolean twice = r->p[1] == c;
  gsize placeholder = placeholder_at(r->p);
  if (placeholder > 0) return keep_as_written(r, w, r->p, r->p + placeholder);
  if (in_double_brackets(w) && c != ';' && (c != '\n' || is_joint(last_word(w)))) {
    return read_bracket_operator(r, w);
  }
  if (c == '<' || c == '>') {
    gboolean number = w->open && strspn(w->word->str, "0123456789") == w->word->len;
    if (number) g_string_truncate(w->word, 0), w->open = FALSE; /* 2>&1 */
    finish_word(w);
    look_at_first(r, w);
    return read_redirection(r, w);
  }
  const char *at = r->p;
  finish_word(w);
  look_at_first(r, w);
  if (r->p != at) return TRUE; /* another round of a loop */
  Frame *f = top(r);
  if (f && f->kind == FRAME_CASE && f->state != CASE_BODY) {
    read_case(r, w, c);
    r->line += c == '\n';
    r->p++;
    return TRUE;
  }
  if (c == '(' && r->p[1] == '(' && w->words->len == 0) {
    r->p += 2;
    return read_arithmetic_command(r);
  }
  gboolean bare = w->words->len == 0 && !w->assigned; /* && and || go on with the next line */
  if (!end_command(r, w, line)) return FALSE;
  if (f && f->kind == FRAME_CASE && c == ';' && twice) end_branch(f);
  if (twice && (c == '&' || c == '|')) r->gate = c;
  else if (c != '\n' || !bare) r->gate = 0;
  r->p += 1 + (twice && c != '\n' && c != '(' && c != ')');
  if (c != '\n') return TRUE;
  r->line++;
  return take_documents(r);
}

/* Up to the end of the text. */
static gboolean read_on(Reader *r, Words *w, int *line) {
  while (*r->p) {
    gsize assignment;
    if (w->words->len == 0 && !w->open) *line = r->line;
    if (at_blank(r)) {
      r->p++;
      finish_word(w);
      look_at_first(r, w);
    } else if (*r->p == '#' && !w->open) {
      skip_comment(r);
    } else if (strchr("\n;&|()<>", *r->p)) {
      if (!read_operator(r, w, *line)) return FALSE;
    } else if (!w->open && is_declaration(w->words) && (assignment = assignment_at(r->p)) > 0) {
      const char *start = r->p;
      if (!read_assignment(r, assignment, is_active(r) && !is_gated(r))) return FALSE;
      g_autofree char *written = g_strndup(start, (gsize)(r->p - start));
      w->assigned = strpbrk(written, "`") || strstr(written, "$(") ? -1 : 1;
    } else if (!read_part(r, w, FALSE)) {
      return FALSE;
    }
  }
  finish_word(w);
  look_at_first(r, w); /* may be the end of a loop that goes on */
  return TRUE;
}

static gboolean read_script(Reader *r, Words *w) {
  int line = r->line;
  do {
    if (!read_on(r, w, &line)) return FALSE;
  } while (*r->p);
  return end_command(r, w, line);
}

static gboolean run_text(MsShell *shell, const char *text, int line, int depth, gsize *produced, GError **error) {
  Reader r = {
      .shell = shell, .p = text, .line = line, .depth = depth, .produced = produced, .status = 1, .error = error};
  Words w;
  words_init(&w);
  r.frames = g_array_new(FALSE, FALSE, sizeof(Frame));
  r.pending = g_ptr_array_new_with_free_func(g_free);
  gboolean ok = read_script(&r, &w);
  while (r.frames->len > 0) pop(&r);
  g_array_unref(r.frames);
  g_ptr_array_unref(r.pending);
  words_clear(&w);
  return ok;
}

gboolean ms_shell_read(MsShell *shell, const char *text, GError **error) {
  gsize produced = 0;
  return run_text(shell, text, 1, 0, &produced, error);
}

MsShell *ms_shell_new(const char *file) {
  MsShell *shell = g_new0(MsShell, 1);
  shell->file = file;
  shell->commands = g_ptr_array_new_with_free_func(command_free);
  shell->documents = g_ptr_array_new_with_free_func(g_free);
  shell->remarks = g_ptr_array_new_with_free_func(g_free);
  shell->variables = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_strfreev);
  shell->asked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  return shell;
}

void ms_shell_free(MsShell *shell) {
  if (!shell) return;
  g_ptr_array_unref(shell->commands);
  g_ptr_array_unref(shell->documents);
  g_ptr_array_unref(shell->remarks);
  g_hash_table_unref(shell->variables);
  g_hash_table_unref(shell->asked);
  g_free(shell);
}
