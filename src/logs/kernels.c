#include "logs/kernels.h"

#include "base/err.h"
#include "base/io.h"

#include <string.h>

/* --- rows of the file ------------------------------------------------------------------------------------------ */
/* A list of texts; the row's member gets them as they stand. */
static gboolean check_texts(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  if (!JSON_NODE_HOLDS_ARRAY(node)) return ms_json_error(doc, path, error, "must be a list of texts");
  JsonArray *list = json_node_get_array(node);
  for (guint i = 0; i < json_array_get_length(list); i++) {
    JsonNode *one = json_array_get_element(list, i);
    if (!ms_json_is(one, G_TYPE_STRING)) return ms_json_error(doc, path, error, "must be a list of texts");
  }
  return TRUE;
}

static gboolean parse_ops(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  if (!check_texts(doc, node, path, error)) return FALSE;
  *(JsonNode **)member = ms_json_copy(node);
  return TRUE;
}

static gboolean parse_names(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  if (!check_texts(doc, node, path, error)) return FALSE;
  JsonArray *list = json_node_get_array(node);
  GPtrArray *patterns = *(GPtrArray **)member;
  for (guint i = 0; i < json_array_get_length(list); i++) {
    g_autofree char *low = g_ascii_strdown(json_array_get_string_element(list, i), -1);
    g_ptr_array_add(patterns, g_pattern_spec_new(low));
  }
  return TRUE;
}

#define TEXT(S, k, m, d) \
  { .key = k, .type = MS_T_STRING, .unit = "", .offset = offsetof(S, m), .flags = MS_REQUIRED, .doc = d }
#define TEXTS(S, k, m, f, d) \
  { .key = k, .type = MS_T_CUSTOM, .unit = "", .offset = offsetof(S, m), .flags = MS_REQUIRED, .parse = f, .doc = d }
const MsFieldTable ms_kernel_class_table =
    MS_FIELD_TABLE("kernel-class", "a class of kernels, software/kernels.json",
                   TEXT(MsKernelClass, "class", word, "the word of the class"),
                   TEXTS(MsKernelClass, "ops", ops, parse_ops, "operators that it covers"),
                   TEXT(MsKernelClass, "doc", doc, "what belongs to it"));

const MsFieldTable ms_kernel_family_table =
    MS_FIELD_TABLE("kernel-family", "a family of kernels, software/kernels.json",
                   TEXT(MsKernelFamily, "family", name, "whose kernels they are"),
                   TEXT(MsKernelFamily, "class", class_word, "word of the class"),
                   TEXTS(MsKernelFamily, "names", patterns, parse_names, "patterns of names, with * and ?"));

/* --- the file -------------------------------------------------------------------------------------------------- */
static void clear_class(gpointer row) {
  MsKernelClass *c = row;
  ms_fields_clear(&ms_kernel_class_table, c);
  g_clear_pointer(&c->ops, json_node_free);
}

static void clear_family(gpointer row) {
  MsKernelFamily *f = row;
  ms_fields_clear(&ms_kernel_family_table, f);
  g_ptr_array_unref(f->patterns);
}

void ms_kernel_table_free(MsKernelTable *table) {
  if (!table) return;
  g_array_unref(table->classes);
  g_array_unref(table->families);
  g_free(table);
}

static gboolean add_class(MsKernelTable *t, const MsJson *doc, JsonObject *row, const char *path, GError **error) {
  MsKernelClass c = {0};
  gboolean good = ms_fields_load(&ms_kernel_class_table, doc, row, path, TRUE, &c, error);
  g_array_append_val(t->classes, c);
  return good;
}

static int class_index(const MsKernelTable *t, const char *word) {
  for (guint i = 0; i < t->classes->len; i++)
    if (strcmp(g_array_index(t->classes, MsKernelClass, i).word, word) == 0) return (int)i;
  return -1;
}

static gboolean add_family(MsKernelTable *t, const MsJson *doc, JsonObject *row, const char *path, GError **error) {
  MsKernelFamily f = {.patterns = g_ptr_array_new_with_free_func((GDestroyNotify)g_pattern_spec_free)};
  gboolean good = ms_fields_load(&ms_kernel_family_table, doc, row, path, TRUE, &f, error);
  f.class_index = good ? class_index(t, f.class_word) : -1;
  if (good && f.class_index < 0)
    good = ms_json_error(doc, path, error, "\"%s\" is no class of this file", f.class_word);
  g_array_append_val(t->families, f);
  return good;
}

static gboolean load_rows(MsKernelTable *t, const MsJson *doc, const char *key,
                          gboolean (*add)(MsKernelTable *, const MsJson *, JsonObject *, const char *, GError **),
                          GError **error) {
  JsonArray *rows = ms_json_need_list(doc, key, error);
  gboolean good = rows != NULL;
  for (guint i = 0; good && i < json_array_get_length(rows); i++) {
    g_autofree char *path = g_strdup_printf("%s[%u]", key, i);
    JsonNode *node = json_array_get_element(rows, i);
    good = ms_json_need_object(doc, node, path, error) && add(t, doc, json_node_get_object(node), path, error);
  }
  return good;
}

static MsKernelTable *parse(const MsJson *doc, GError **error) {
  g_autoptr(MsKernelTable) t = g_new0(MsKernelTable, 1);
  t->classes = g_array_new(FALSE, TRUE, sizeof(MsKernelClass));
  t->families = g_array_new(FALSE, TRUE, sizeof(MsKernelFamily));
  g_array_set_clear_func(t->classes, clear_class);
  g_array_set_clear_func(t->families, clear_family);
  gboolean good = load_rows(t, doc, "classes", add_class, error) && load_rows(t, doc, "families", add_family, error);
  return good ? g_steal_pointer(&t) : NULL;
}

MsKernelTable *ms_kernel_table_load(GError **error) {
  g_autofree char *file = g_build_filename(ms_data_dir(), "software", "kernels.json", NULL);
  g_autoptr(MsJson) doc = ms_json_load(file, error);
  return doc ? parse(doc, error) : NULL;
}

enum { MOST_OF_NAME = 2048 }; /* templates have longer names, which say nothing new by then */

/* --- questions ------------------------------------------------------------------------------------------------- */
static int first_family(const MsKernelTable *t, const char *name) {
  g_autofree char *low = g_ascii_strdown(name, (gssize)strnlen(name, MOST_OF_NAME));
  guint length = (guint)strlen(low);
  for (guint i = 0; i < t->families->len; i++) {
    const MsKernelFamily *f = &g_array_index(t->families, MsKernelFamily, i);
    for (guint k = 0; k < f->patterns->len; k++)
      if (g_pattern_spec_match(f->patterns->pdata[k], length, low, NULL)) return (int)i;
  }
  return -1;
}

int ms_kernel_family(const MsKernelTable *t, const char *name, const char *collective) {
  if (!collective) return first_family(t, name);
  g_autofree char *word = g_strconcat("collective:", collective, NULL);
  return first_family(t, word);
}

int ms_kernel_class_of_op(const MsKernelTable *t, const char *op) {
  for (guint i = 0; i < t->classes->len; i++) {
    JsonArray *ops = json_node_get_array(g_array_index(t->classes, MsKernelClass, i).ops);
    for (guint k = 0; k < json_array_get_length(ops); k++)
      if (strcmp(json_array_get_string_element(ops, k), op) == 0) return (int)i;
  }
  return -1;
}

const char *ms_kernel_class_word(const MsKernelTable *t, int index) {
  return index >= 0 && (guint)index < t->classes->len ? g_array_index(t->classes, MsKernelClass, (guint)index).word
                                                      : "unrecognised";
}
