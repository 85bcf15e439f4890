/* src/launch/form.c - what the forms share: quoting, names, the program, keys. */
#include "launch/form.h"

#include <string.h>

#include "describe/vendor.h"

static void append_word(GString *text, const char *word) {
  gboolean plain = *word != '\0';
  for (const char *c = word; *c && plain; c++) plain = g_ascii_isalnum(*c) || strchr("_./:=,+-@%", *c);
  g_autofree char *quoted = plain ? g_strdup(word) : g_shell_quote(word);
  g_string_append(text, quoted);
}

void ms_append_arg(GString *text, const MsArg *arg) {
  g_string_append(text, arg->flag);
  for (int i = 0; arg->values[i]; i++) {
    g_string_append_c(text, ' ');
    append_word(text, arg->values[i]);
  }
}

void ms_append_exports(GString *text, const MsArgs *args) {
  for (guint i = 0; i < args->env->len; i++) {
    const MsVariable *variable = args->env->pdata[i];
    g_string_append_printf(text, "export %s=", variable->name);
    append_word(text, variable->value);
    g_string_append_c(text, '\n');
  }
}

char *ms_plain_name(const char *name) {
  return g_strcanon(g_strdup(name), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", '-');
}

const char *ms_program(const MsScenario *s) { return ms_is_hybrid(s) ? "pretrain_hybrid.py" : "pretrain_gpt.py"; }

JsonNode *ms_key_node(const MsFieldTable *table, const char *key, const void *object) {
  return ms_field_node(ms_field_find(table, key), object, TRUE);
}

/* --- where it starts --- */
gboolean ms_launch_starts(const MsScenario *s, MsFramework framework, GError **error) {
  MsStart start = ms_vendor_start(s->hardware, framework);
  return start.kind != MS_STAYS ||
         ms_refuse_key(s, error, "hardware.vendor", "is %s: %s", s->hardware->vendor, start.about);
}

void ms_append_start_note(GString *text, const MsScenario *s, MsFramework framework) {
  const MsHardware *h = s->hardware;
  MsStart start = ms_vendor_start(h, framework);
  g_autofree char *vendor = h->vendor ? ms_plain_name(h->vendor) : NULL;
  if (start.kind == MS_STARTS_WITH)
    g_string_append_printf(text, "# On machines of %s it needs %s.\n", vendor, start.about);
  if (start.kind == MS_START_UNKNOWN)
    g_string_append_printf(text, "# Whether it starts there is yours to know: hardware.vendor is %s.\n",
                           vendor ? vendor : "not said");
}
