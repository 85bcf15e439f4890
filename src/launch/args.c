/* src/launch/args.c - argument lists. */
#include "launch/args.h"

#include "base/err.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

static void arg_free(gpointer data) {
  MsArg *arg = data;
  g_free(arg->flag);
  g_strfreev(arg->values);
  g_free(arg);
}

static void variable_free(gpointer data) {
  MsVariable *variable = data;
  g_free(variable->name);
  g_free(variable->value);
  g_free(variable);
}

MsArgs *ms_args_new(const char *file) {
  MsArgs *args = g_new0(MsArgs, 1);
  args->file = g_strdup(file);
  args->list = g_ptr_array_new_with_free_func(arg_free);
  args->env = g_ptr_array_new_with_free_func(variable_free);
  args->notes = json_object_new();
  args->asked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  return args;
}

void ms_args_free(MsArgs *args) {
  if (!args) return;
  g_free(args->file);
  g_free(args->open);
  g_ptr_array_unref(args->list);
  g_ptr_array_unref(args->env);
  json_object_unref(args->notes);
  g_hash_table_unref(args->asked);
  g_free(args);
}

static MsArg *append(MsArgs *args, MsSection section, char *flag, GPtrArray *values, int line) {
  MsArg *arg = g_new0(MsArg, 1);
  g_ptr_array_add(values, NULL);
  *arg = (MsArg){.flag = flag, .values = (char **)g_ptr_array_free(values, FALSE), .line = line, .section = section};
  g_ptr_array_add(args->list, arg);
  return arg;
}

MsArg *ms_args_add(MsArgs *args, MsSection section, const char *flag, ...) {
  GPtrArray *values = g_ptr_array_new();
  va_list list;
  va_start(list, flag);
  for (const char *value; (value = va_arg(list, const char *));) g_ptr_array_add(values, g_strdup(value));
  va_end(list);
  return append(args, section, g_strdup(flag), values, 0);
}

void ms_args_addf(MsArgs *args, MsSection section, const char *flag, const char *format, ...) {
  va_list list;
  va_start(list, format);
  g_autofree char *value = g_strdup_vprintf(format, list);
  va_end(list);
  ms_args_add(args, section, flag, value, NULL);
}

void ms_args_say(MsArgs *args, const MsArg *source, const char *flag, const char *value) {
  int line = source->line;
  ms_args_add(args, source->section, flag, value, NULL)->line = line;
}

void ms_args_add_words(MsArgs *args, char *const *words, int line) {
  for (; *words && !ms_is_flag(*words); words++) {}
  while (*words) {
    const char *word = *words++, *equals = strchr(word, '=');
    GPtrArray *values = g_ptr_array_new();
    char *flag = equals ? g_strndup(word, (gsize)(equals - word)) : g_strdup(word);
    if (equals) g_ptr_array_add(values, g_strdup(equals + 1));
    for (; *words && !ms_is_flag(*words); words++) g_ptr_array_add(values, g_strdup(*words));
    append(args, MS_SECTION_DATA, flag, values, line);
  }
}

static void ask(const MsArgs *args, const char *flag) {
  if (!g_hash_table_contains(args->asked, flag)) g_hash_table_add(args->asked, g_strdup(flag));
}

MsArg *ms_args_take(MsArgs *args, const char *flag) {
  MsArg *last = NULL;
  ask(args, flag);
  for (guint i = 0; i < args->list->len; i++) {
    MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, flag) != 0) continue;
    arg->used = TRUE;
    last = arg;
  }
  return last;
}

MsArg *ms_args_take_any(MsArgs *args, const char *flags) {
  g_auto(GStrv) words = g_strsplit(flags, " ", -1);
  MsArg *last = NULL;
  for (int i = 0; words[i]; i++) ask(args, words[i]);
  for (guint i = 0; i < args->list->len; i++) {
    MsArg *arg = args->list->pdata[i];
    if (!g_strv_contains((const char *const *)words, arg->flag)) continue;
    arg->used = TRUE;
    last = arg;
  }
  return last;
}

MsArg *ms_args_find(const MsArgs *args, const char *flag) {
  ask(args, flag);
  for (guint i = args->list->len; i > 0; i--)
    if (strcmp(((MsArg *)args->list->pdata[i - 1])->flag, flag) == 0) return args->list->pdata[i - 1];
  return NULL;
}

gboolean ms_args_has(const MsArgs *args, const char *flag) { return ms_args_find(args, flag) != NULL; }

static MsVariable *find_variable(const MsArgs *args, const char *name) {
  for (guint i = 0; i < args->env->len; i++) {
    MsVariable *variable = args->env->pdata[i];
    if (strcmp(variable->name, name) == 0) return variable;
  }
  return NULL;
}

void ms_args_setenv(MsArgs *args, const char *name, const char *value) {
  MsVariable *variable = find_variable(args, name);
  if (!variable) {
    variable = g_new0(MsVariable, 1);
    variable->name = g_strdup(name);
    g_ptr_array_add(args->env, variable);
  }
  g_free(variable->value);
  variable->value = g_strdup(value);
}

const char *ms_args_getenv(MsArgs *args, const char *name) {
  MsVariable *variable = find_variable(args, name);
  if (!variable) return NULL;
  variable->used = TRUE;
  return variable->value;
}

gboolean ms_arg_error(const MsArgs *args, const MsArg *arg, GError **error, const char *format, ...) {
  va_list list;
  va_start(list, format);
  g_autofree char *message = g_strdup_vprintf(format, list);
  va_end(list);
  return ms_input_error(error, args->file, arg->line, arg->flag, "%s", message);
}

int ms_arg_word(const MsArgs *args, const MsArg *arg, const char *text, const char *const *words, GError **error) {
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], text) == 0) return i;
  const char *near = ms_nearest(text, words);
  g_autofree char *all = g_strjoinv(", ", (char **)words);
  if (near) ms_arg_error(args, arg, error, "unknown word \"%.60s\", did you mean \"%s\"?", text, near);
  else ms_arg_error(args, arg, error, "unknown word \"%.60s\", moesim has %s", text, all);
  return -1;
}

/* What to do about a value that a script leaves open; "" for others. (transfer full) */
static char *how_to_say(const char *text) {
  const char *dollar = strchr(text, '$'), *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  gboolean sum = dollar && g_str_has_prefix(dollar, "$((");
  if (!dollar || (dollar[1] == '(' && !sum))
    return g_strdup(dollar ? "; a command says it: put its result into the file" : "");
  const char *name = sum ? strpbrk(dollar, letters) : dollar + 1 + (dollar[1] == '{');
  if (!name) return g_strdup("");
  int n = (int)strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  if (g_ascii_isdigit(*name))
    return g_strdup_printf("; it is an argument of the script: give those behind the file, or --set %.*s=VALUE", n,
                           name);
  const char *end = n > 0 && name[n] == '[' ? strchr(name, ']') : NULL; /* an element, if its key has no variables */
  if (end) n = (int)(end + 1 - name);
  if (n == 0 || strpbrk(name, "@*$") == name + n - 2) return g_strdup("");
  return g_strdup_printf(
      end ? "; nothing sets it: give --set '%.*s=VALUE'" : "; nothing sets it: give --set %.*s=VALUE", n, name);
}

/* More words than one are no value, whatever the first is. What a script leaves open may be other arguments, and a
 * backslash is a mark of its next line. */
static gboolean is_one(const MsArgs *args, const MsArg *arg, GError **error) {
  if (!arg->values[1] || strchr("$`\\", *arg->values[1])) return TRUE;
  g_autofree char *all = g_strjoinv(" ", arg->values), *hint = how_to_say(all);
  return ms_arg_error(args, arg, error, "is \"%.60s\", must be one value%s", all, hint);
}

const char *ms_arg_value(const MsArgs *args, const MsArg *arg, GError **error) {
  if (arg->values[0]) return is_one(args, arg, error) ? arg->values[0] : NULL;
  ms_arg_error(args, arg, error, "has no value");
  return NULL;
}

char *ms_arg_list(const MsArgs *args, const MsArg *arg, GError **error) {
  if (arg->values[0]) return g_strjoinv(" ", arg->values);
  ms_arg_error(args, arg, error, "has no value");
  return NULL;
}

gboolean ms_arg_int(const MsArgs *args, const MsArg *arg, gint64 lo, gint64 hi, gint64 *value, GError **error) {
  const char *text = arg->values[0];
  if (!text) return ms_arg_value(args, arg, error) != NULL;
  g_autoptr(GError) why = NULL;
  if (g_ascii_string_to_signed(text, 10, lo, hi, value, &why)) return is_one(args, arg, error);
  g_autofree char *all = g_strjoinv(" ", arg->values), *hint = how_to_say(all); /* blanks may have split it */
  return ms_arg_error(args, arg, error,
                      "is \"%.60s\", must be an integer in [%" G_GINT64_FORMAT ", %" G_GINT64_FORMAT "]%s", text, lo,
                      hi, hint);
}

gboolean ms_args_int(MsArgs *args, const char *flag, gint64 absent, gint64 hi, gint64 *value, GError **error) {
  const MsArg *arg = ms_args_take(args, flag);
  *value = absent;
  return !arg || ms_arg_int(args, arg, 0, hi, value, error);
}

gboolean ms_arg_number(const MsArgs *args, const MsArg *arg, double lo, double hi, double *value, GError **error) {
  const char *text = arg->values[0];
  char *end, low[32], high[32];
  if (!text) return ms_arg_value(args, arg, error) != NULL;
  *value = g_ascii_strtod(text, &end);
  if (end != text && !*end && isfinite(*value) && *value >= lo && *value <= hi) return is_one(args, arg, error);
  if (lo <= -G_MAXDOUBLE) return ms_arg_error(args, arg, error, "is \"%.60s\", must be a number", text);
  return ms_arg_error(args, arg, error, "is \"%.60s\", must be a number in [%s, %s]", text, ms_double_text(lo, low),
                      ms_double_text(hi, high));
}
