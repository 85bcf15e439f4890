/* src/study/refit.c - the data files with what a cross-validation fitted on all runs: the same text, other numbers. */
#include "study/crossval.h"

#include "base/err.h"
#include "base/io.h"

#include <glib/gstdio.h>
#include <string.h>

/* The number at `key` behind `anchor`, in the same object, times `factor`, in three digits. One that is not there is 1,
 * and written behind the anchor; without an anchor it stays away. */
static void multiply(GString *text, const char *anchor, const char *key, double factor) {
  char value[G_ASCII_DTOSTR_BUF_SIZE];
  g_autofree char *quoted = g_strdup_printf("\"%s\": ", key);
  char *from = strstr(text->str, anchor);
  if (!from || factor == 1) return;
  from += strlen(anchor);
  char *end = NULL, *at = g_strstr_len(from, (gssize)(*anchor ? strcspn(from, "}") : strlen(from)), quoted);
  double old = at ? g_ascii_strtod(at + strlen(quoted), &end) : 1;
  if (!*anchor && (!at || end == at + strlen(quoted))) return; /* its base says it */
  g_ascii_formatd(value, sizeof value, "%.3g", old * factor);
  gssize where = (at ? at + strlen(quoted) : from) - text->str;
  if (at) g_string_erase(text, where, end - (at + strlen(quoted)));
  g_autofree char *new = at ? g_strdup(value) : g_strdup_printf(", %s%s", quoted, value);
  g_string_insert(text, where, new);
}

/* A GPU's clock is its own, host time everybody's. */
static void refit_machine(const MsCrossval *c, const char *name, GString *text) {
  for (guint i = 0; i < c->n_shared; i++) {
    const MsCrossShared *s = &c->shared[i];
    if (s->kind == MS_SHARED_HOST) multiply(text, "", "kernel_launch_s", s->factor);
    if (s->kind == MS_SHARED_CLOCK && strcmp(s->of, name) == 0) multiply(text, "", "sustained_derate", s->factor);
  }
}

/* Faster matrix kernels are shorter ones; attention follows the clock by its law only. */
static void refit_stacks(const MsCrossval *c, const char *name, GString *text) {
  MsLaws laws;
  if (strcmp(name, "stacks") != 0 || !ms_laws_load(&laws, NULL)) return;
  for (guint i = 0; i < c->n_shared; i++) {
    const MsCrossShared *s = &c->shared[i];
    if (s->kind != MS_SHARED_STACK) continue;
    g_autofree char *anchor = g_strdup_printf("\"name\": \"%s\"", s->of);
    multiply(text, anchor, "attention", 1 / (1 - laws.attention_clock_loss * (1 - s->factor)));
    multiply(text, anchor, "grouped_gemm", 1 / s->factor);
    multiply(text, anchor, "gemm", 1 / s->factor);
  }
}

static void refit_laws(const MsCrossval *c, const char *name, GString *text) {
  for (guint i = 0; i < c->n_shared && strcmp(name, "laws") == 0; i++) {
    g_autofree char *anchor = g_strdup_printf("\"%s\": {", c->shared[i].of ? c->shared[i].of : "");
    if (c->shared[i].kind == MS_SHARED_LAW) multiply(text, anchor, "value", c->shared[i].factor);
  }
}

static gboolean refit_file(const MsCrossval *c, const char *from, const char *to, GError **error) {
  g_autofree char *old = NULL, *name = g_path_get_basename(from);
  if (!g_file_get_contents(from, &old, NULL, error)) return FALSE;
  *strrchr(name, '.') = 0;
  g_autoptr(GString) text = g_string_new(old);
  if (g_str_has_suffix(to, "hardware")) refit_machine(c, name, text);
  else refit_stacks(c, name, text), refit_laws(c, name, text);
  g_autofree char *file = g_strdup_printf("%s/%s.json", to, name);
  return strcmp(text->str, old) == 0 || ms_write_file(file, text->str, (gssize)text->len, error);
}

static gboolean refit_folder(const MsCrossval *c, const char *from, const char *to, GError **error) {
  gboolean good = TRUE;
  g_autoptr(GDir) dir = g_dir_open(from, 0, error);
  for (const char *name; dir && good && (name = g_dir_read_name(dir));) {
    g_autofree char *file = g_build_filename(from, name, NULL);
    good = !g_str_has_suffix(name, ".json") || refit_file(c, file, to, error);
  }
  return dir && good;
}

static const char *const folders[] = {"software", "hardware"};

gboolean ms_crossval_can_write(const char *folder, GError **error) {
  for (guint i = 0; folder && i < G_N_ELEMENTS(folders); i++) {
    g_autofree char *to = g_build_filename(folder, folders[i], NULL);
    if (!ms_make_folder(to, error)) return FALSE;
  }
  return TRUE;
}

gboolean ms_crossval_write(const MsCrossval *c, const char *folder, GError **error) {
  if (folder && c->n_shared == 0) { /* what is shipped is no fit */
    return ms_error(error, MS_ERROR_NOTHING, "%s before anything was refitted: nothing is written",
                    ms_interrupt_reason());
  }
  for (guint i = 0; folder && i < G_N_ELEMENTS(folders); i++) {
    g_autofree char *from = g_build_filename(ms_data_dir(), folders[i], NULL),
                    *to = g_build_filename(folder, folders[i], NULL);
    if (!refit_folder(c, from, to, error)) return FALSE;
  }
  return TRUE;
}
