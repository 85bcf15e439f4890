/* src/launch/import_modelzoo.c - the YAML of the model zoo, with its variables and what its script appends. */
#include <string.h>

#include "base/err.h"
#include "launch/import.h"
#include "launch/modelzoo.h"
#include "launch/shell.h"
#include "launch/yaml.h"

static const char *lookup(const char *name, void *data) { return ms_shell_given(data, name); }

/* ${NAME} and $NAME as envsubst replaces them; names without a value stay. (transfer full) */
static char *substitute(const MsShell *shell, const char *text) {
  GString *out = g_string_new(NULL);
  while (*text) {
    gsize n = 0;
    const char *name = text + 1 + (text[0] == '$' && text[1] == '{');
    while (text[0] == '$' && (g_ascii_isalpha(name[n]) || name[n] == '_' || (n > 0 && g_ascii_isdigit(name[n])))) n++;
    gboolean braces = n > 0 && text[1] == '{', whole = n > 0 && (!braces || name[n] == '}');
    g_autofree char *key = whole ? g_strndup(name, n) : NULL;
    const char *value = key ? ms_shell_given(shell, key) : NULL;
    if (!value) {
      g_string_append_c(out, *text++);
      continue;
    }
    g_string_append(out, value);
    text = name + n + braces;
  }
  return g_string_free(out, FALSE);
}

static int number(const MsShell *shell, const char *name) {
  const char *text = ms_shell_given(shell, name);
  gint64 value;
  return text && g_ascii_string_to_signed(text, 10, 1, 1 << 16, &value, NULL) ? (int)value : 0;
}

/* Layers of a chunk, which the zoo's runtime table derives: NUM_LAYERS / PP / VPP, nothing without VPP. */
static char *layers_per_chunk(const MsShell *shell) {
  int layers = number(shell, "NUM_LAYERS"), stages = number(shell, "PP"), chunks = number(shell, "VPP");
  gboolean split = chunks > 1 && stages > 0 && layers / stages / chunks > 0;
  return split ? g_strdup_printf("%d", layers / stages / chunks) : NULL;
}

/* The value as the shell behind the zoo's script would hand it on: one pair of quotes around it goes. */
static void unquote(char *value) {
  gsize n = strlen(value);
  if (n < 2 || value[n - 1] != *value || (*value != '\'' && *value != '"')) return;
  memmove(value, value + 1, n - 2);
  value[n - 2] = '\0';
}

/* "[attn moe_router]" is what Megatron-LM's own tests write for the words of a list
 * (tests/functional_tests/shell_test_utils/_run_training.sh); a list with commas or of several brackets is one word. */
static void unbracket(char *value) {
  gsize n = strlen(value);
  if (n < 3 || *value != '[' || strcspn(value, "],") != n - 1) return;
  memmove(value, value + 1, n - 2);
  value[n - 2] = '\0';
}

static void add_pair(MsArgs *args, const MsShell *shell, const MsYamlPair *pair) {
  gboolean chunk = strcmp(pair->value, "${LAYERS_PER_VP}") == 0 && !ms_shell_given(shell, "LAYERS_PER_VP");
  g_autofree char *value = chunk ? layers_per_chunk(shell) : substitute(shell, pair->value);
  if (!value || strcmp(value, "false") == 0) return;
  unquote(value);
  unbracket(value);
  g_autofree char *text = strcmp(value, "true") == 0 ? g_strdup(pair->key) : g_strdup_printf("%s %s", pair->key, value);
  g_auto(GStrv) parts = g_strsplit_set(text, " \t\n", -1);
  g_autoptr(GPtrArray) words = g_ptr_array_new();
  for (int i = 0; parts[i]; i++)
    if (*parts[i]) g_ptr_array_add(words, parts[i]);
  g_ptr_array_add(words, NULL);
  ms_args_add_words(args, (char *const *)words->pdata, pair->line);
}

/* Arguments behind the file, as behind sbatch_benchmarking.sh, which hands them to a shell once more. */
static void add_words(MsArgs *args, const char *const *words) {
  g_autoptr(GPtrArray) plain = g_ptr_array_new_with_free_func(g_free);
  for (int i = 0; words && words[i]; i++) {
    char *word = g_strdup(words[i]);
    unquote(word);
    g_ptr_array_add(plain, word);
  }
  g_ptr_array_add(plain, NULL);
  if (plain->len > 1) ms_args_add_words(args, (char *const *)plain->pdata, 0);
}

static void add_maps(MsArgs *args, const MsShell *shell, const MsYaml *yaml) {
  for (guint i = 0; i < yaml->environment->len; i++) {
    const MsYamlPair *pair = yaml->environment->pdata[i];
    g_autofree char *value = substitute(shell, pair->value);
    ms_args_setenv(args, pair->key, value);
  }
  for (guint i = 0; i < yaml->arguments->len; i++) add_pair(args, shell, yaml->arguments->pdata[i]);
}

/* The YAML itself, or the one in a here-document of a script. */
static MsYaml *read_yaml(const char *text, const char *file, GError **error) {
  if (!g_str_has_prefix(text, "#!")) return ms_yaml_read(text, strlen(text), file, error);
  g_autoptr(MsShell) shell = ms_shell_new(file);
  if (!ms_shell_read(shell, text, error)) return NULL;
  for (guint i = 0; i < shell->documents->len; i++)
    if (strstr(shell->documents->pdata[i], "MODEL_ARGS"))
      return ms_yaml_read(shell->documents->pdata[i], strlen(shell->documents->pdata[i]), file, error);
  ms_input_error(error, file, 0, "", "is a script without a here-document that holds MODEL_ARGS");
  return NULL;
}

MsImport *ms_import_modelzoo(const char *text, gsize length, const char *file, const MsImportOptions *options,
                             GError **error) {
  g_autofree char *copy = ms_import_text(text, length, file, error);
  if (!copy) return NULL;
  g_autoptr(MsYaml) yaml = read_yaml(copy, file, error);
  if (!yaml) return NULL;
  g_autoptr(MsImport) import = ms_import_new();
  g_autoptr(MsArgs) args = ms_args_new(file);
  g_autoptr(MsShell) shell = ms_shell_new(file);
  shell->set = options->set;
  shell->environment = options->environment;
  if (!ms_import_notes(args, copy, error)) return NULL;
  add_maps(args, shell, yaml);
  ms_modelzoo_assemble(args, lookup, shell);
  add_words(args, options->words);
  for (guint i = 0; i < yaml->other->len; i++) g_ptr_array_add(import->ignored, g_strdup(yaml->other->pdata[i]));
  int gpus = number(shell, "NNODES") * (number(shell, "GB200_CLUSTER") == 1 ? 4 : 8);
  if (!ms_import_scenario(import, args, gpus, options, error)) return NULL;
  ms_import_remark_unasked(import, shell);
  return g_steal_pointer(&import);
}
