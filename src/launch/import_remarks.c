/* src/launch/import_remarks.c - an import as it is made: what it remarks and what it ignored. */
#include "base/json.h"
#include "launch/import.h"

#include <string.h>

MsImport *ms_import_new(void) {
  MsImport *import = g_new0(MsImport, 1);
  import->ignored = g_ptr_array_new_with_free_func(g_free);
  import->remarks = g_ptr_array_new_with_free_func(g_free);
  return import;
}

void ms_import_free(MsImport *import) {
  if (!import) return;
  ms_scenario_free(import->scenario);
  g_ptr_array_unref(import->ignored);
  g_ptr_array_unref(import->remarks);
  g_free(import);
}

void ms_import_remark(MsImport *import, const char *format, ...) {
  va_list list;
  va_start(list, format);
  g_ptr_array_add(import->remarks, g_strdup_vprintf(format, list));
  va_end(list);
}

void ms_import_remark_unasked(MsImport *import, const MsShell *shell) {
  for (int i = 0; shell->set && shell->set[i]; i++) {
    g_autofree char *name = g_strndup(shell->set[i], strcspn(shell->set[i], "="));
    if (!g_hash_table_contains(shell->asked, name))
      ms_import_remark(import, "--set %s: nothing that is read of the file asks for %s", shell->set[i], name);
  }
}

static const char misspelt[] = " is not read: did you mean ";

void ms_import_remark_misspelt(MsImport *import, const char *where, const char *word, GHashTable *asked) {
  guint n;
  g_autofree char **known = (char **)g_hash_table_get_keys_as_array(asked, &n);
  const char *meant = g_hash_table_contains(asked, word) ? NULL : ms_misspelt(word, (const char *const *)known);
  if (meant) ms_import_remark(import, "%s%s%s%s?", where, word, misspelt, meant);
}

void ms_import_blame_misspelt(const MsImport *import, GError **error) {
  for (guint i = 0; error && *error && i < import->remarks->len; i++) {
    const char *remark = import->remarks->pdata[i];
    if (!strstr(remark, misspelt)) continue;
    g_autofree char *whole = g_strdup_printf("%s; %s", (*error)->message, remark);
    g_free((*error)->message);
    (*error)->message = g_steal_pointer(&whole);
    return;
  }
}

void ms_import_list_ignored(MsImport *import, const MsArgs *args) {
  for (guint i = 0; i < args->list->len; i++) {
    const MsArg *arg = args->list->pdata[i];
    g_autofree char *values = g_strjoinv(" ", arg->values),
                    *where = arg->line > 0 ? g_strdup_printf("line %d: ", arg->line) : g_strdup("");
    if (arg->used || arg->plain) continue;
    g_ptr_array_add(import->ignored, g_strdup_printf("%s%s%s%s", where, arg->flag, *values ? " " : "", values));
    ms_import_remark_misspelt(import, where, arg->flag, args->asked);
  }
  for (guint i = 0; i < args->env->len; i++) {
    const MsVariable *variable = args->env->pdata[i];
    if (!variable->used) g_ptr_array_add(import->ignored, g_strdup_printf("%s=%s", variable->name, variable->value));
  }
}
