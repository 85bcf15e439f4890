/* src/launch/explain.c - what each argument of a launch stands for: the keys of the scenario that it says. */
#include <string.h>

#include "base/text.h"
#include "launch/form.h"

/* "KEY = VALUE: what it is" */
static void append_key(GString *out, const MsScenario *s, const char *path) {
  void *object;
  const MsField *field = ms_key_find(s, path, &object);
  g_autoptr(JsonNode) node = ms_field_node(field, object, TRUE);
  if (!node) return;
  g_autofree char *value = ms_json_text(node, 0);
  gboolean told = field->doc && *field->doc;
  ms_text_paragraph(out, 6, "    %s = %s%s%s", path, value, told ? ": " : "", told ? field->doc : "");
}

static void append_keys(GString *out, const MsScenario *s, const char *fields) {
  if (!fields) {
    g_string_append(out, "    (no key: what a run of this kind needs besides)\n");
    return;
  }
  g_auto(GStrv) paths = g_strsplit(fields, " ", -1);
  for (int i = 0; paths[i]; i++) append_key(out, s, paths[i]);
}

char *ms_explain_args(const MsScenario *s, const MsArgs *args) {
  GString *out = g_string_new(NULL);
  const char *open = NULL;
  gboolean any = FALSE;
  for (guint i = 0; i < args->list->len; i++) {
    const MsArg *arg = args->list->pdata[i];
    if (any && arg->fields != open) append_keys(out, s, open);
    ms_append_arg(out, arg);
    g_string_append_c(out, '\n');
    open = arg->fields;
    any = TRUE;
  }
  if (any) append_keys(out, s, open);
  for (guint i = 0; i < args->env->len; i++) {
    const MsVariable *variable = args->env->pdata[i];
    g_string_append_printf(out, "%s=%s\n", variable->name, variable->value);
    append_keys(out, s, variable->fields);
  }
  return g_string_free(out, FALSE);
}
