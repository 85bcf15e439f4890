/* src/describe/find.c - from the name of a model or a machine to its file; and what all loaders share. */
#include "base/err.h"
#include "base/io.h"
#include "base/order.h"
#include "describe/rows.h"
#include "describe/scenario.h"

#include <string.h>

static gboolean is_path(const char *name) { return strchr(name, '/') || g_str_has_suffix(name, ".json"); }

static char *data_file(const char *folder, const char *name) {
  char *base = g_strconcat(name, ".json", NULL);
  char *file = g_build_filename(ms_data_dir(), folder, base, NULL);
  g_free(base);
  return file;
}

GPtrArray *ms_data_names(const char *folder) {
  GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
  char *path = g_build_filename(ms_data_dir(), folder, NULL);
  GDir *dir = g_dir_open(path, 0, NULL);
  const char *entry;
  while (dir && (entry = g_dir_read_name(dir)))
    if (g_str_has_suffix(entry, ".json")) g_ptr_array_add(names, g_strndup(entry, strlen(entry) - 5));
  g_ptr_array_sort(names, ms_by_text);
  g_ptr_array_add(names, NULL);
  if (dir) g_dir_close(dir);
  g_free(path);
  return names;
}

/* What to say of a name without a file. (transfer full) */
static char *unknown_name(const char *folder, const char *name) {
  gboolean model = strcmp(folder, "models") == 0;
  const char *what = model ? "model" : folder;
  GPtrArray *names = ms_data_names(folder);
  g_autofree char *suggestion = ms_suggest(name, (const char *const *)names->pdata, NULL);
  gboolean shown = model || strcmp(folder, "hardware") == 0; /* by `moesim show` */
  gboolean none = shown && names->len == 1;                  /* the NULL at its end */
  char *text =
      none ? g_strdup_printf("unknown %s \"%s\": %s/%s holds no file; MOESIM_DATA names the folder of models and "
                             "machines",
                             what, name, ms_data_dir(), folder)
      : suggestion ? g_strdup_printf("unknown %s \"%s\", %s", what, name, suggestion)
      : shown ? g_strdup_printf("unknown %s \"%s\", must be a path or a name: `moesim show %s` lists them", what, name,
                                what)
              : g_strdup_printf("unknown %s \"%s\", must be the name of a file in %s/ or a path", what, name, folder);
  g_ptr_array_free(names, TRUE);
  return text;
}

static char *find(const char *folder, const char *name) {
  if (is_path(name)) return g_strdup(name);
  char *file = data_file(folder, name);
  if (g_file_test(file, G_FILE_TEST_EXISTS)) return file;
  g_free(file);
  file = ms_user_data_file(folder, name); /* moesim calibrate writes local.json there */
  if (!g_file_test(file, G_FILE_TEST_EXISTS)) g_clear_pointer(&file, g_free);
  return file;
}

/* "meta-llama/Llama-3.1-70B", and no file that is there. */
static gboolean is_hub_name(const char *folder, const char *name) {
  const char *slash = strchr(name, '/');
  return !strcmp(folder, "models") && slash && slash != name && *name != '.' && !strchr(slash + 1, '/') &&
         !g_str_has_suffix(name, ".json") && !g_file_test(name, G_FILE_TEST_EXISTS);
}

char *ms_find_data_file(const char *folder, const char *name, GError **error) {
  char *file = find(folder, name);
  if (file && !is_hub_name(folder, name)) return file;
  char *text = file
                   ? g_strdup_printf("there is no file \"%s\"; of a model on Hugging Face `moesim import hf` reads the "
                                     "config.json",
                                     name)
                   : unknown_name(folder, name);
  g_free(file);
  ms_input_error(error, NULL, 0, NULL, "%s", text);
  g_free(text);
  return NULL;
}

/* `name` beside the file that mentions it, when it is there. (transfer full) */
static char *beside(const char *name, const char *mentions) {
  if (g_path_is_absolute(name)) return NULL;
  char *folder = g_path_get_dirname(mentions);
  char *file = g_build_filename(folder, name, NULL);
  g_free(folder);
  if (!g_file_test(file, G_FILE_TEST_IS_REGULAR)) g_clear_pointer(&file, g_free);
  return file;
}

char *ms_find_mentioned(const char *folder, const char *name, const MsJson *doc, const char *path, GError **error) {
  char *file = doc && is_path(name) ? beside(name, ms_json_filename(doc)) : NULL;
  if (!file) file = find(folder, name);
  if (file && g_file_test(file, G_FILE_TEST_IS_REGULAR)) return file;
  g_autofree char *near = file ? ms_file_suggestion(file) : NULL;
  char *text = near   ? g_strdup_printf("there is no file \"%s\", did you mean %s?", name, near)
               : file ? g_strdup_printf("there is no file \"%s\"", name)
                      : unknown_name(folder, name);
  ms_json_error(doc, path, error, "%s", text);
  g_free(text);
  g_free(file);
  return NULL;
}

static gboolean in_one_folder(const char *a, const char *b) {
  g_autofree char *x = g_path_get_dirname(a), *y = g_path_get_dirname(b);
  g_autofree char *p = g_canonicalize_filename(x, NULL), *q = g_canonicalize_filename(y, NULL);
  return strcmp(p, q) == 0;
}

char *ms_mentioned_path(const char *name, const char *mentions) {
  if (!is_path(name) || g_path_is_absolute(name)) return g_strdup(name);
  g_autofree char *near = beside(name, mentions);
  return g_canonicalize_filename(near ? near : name, NULL);
}

char *ms_mention_in(const char *name, const char *mentions, const char *file) {
  g_autofree char *near = is_path(name) ? beside(name, mentions) : NULL;
  return near && in_one_folder(mentions, file) ? g_strdup(name) : ms_mentioned_path(name, mentions);
}

/* --- shared by the loaders ---------------------------------------------------------------------------------------- */
gboolean ms_schema_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  (void)member;
  gboolean one = ms_json_is(node, G_TYPE_INT64) && json_node_get_int(node) == 1;
  return one || ms_json_error(doc, path, error, "must be 1, the only version of the format that this program reads");
}

void ms_schema_print(MsJsonOut *out, const char *key, const void *member) {
  (void)member;
  ms_json_out_int(out, key, 1);
}

gboolean ms_build_object(MsJson *doc, GError **error) {
  return ms_json_build(doc, error) &&
         (JSON_NODE_HOLDS_OBJECT(ms_json_root(doc)) || ms_json_error(doc, "", error, "must be one JSON object"));
}

MsJson *ms_load_object(const char *filename, GError **error) {
  MsJson *doc = ms_json_open(filename, error);
  if (doc && !ms_build_object(doc, error)) g_clear_pointer(&doc, ms_json_free);
  return doc;
}

char *ms_name_of_file(const char *filename) {
  char *name = g_path_get_basename(filename);
  if (g_str_has_suffix(name, ".json")) name[strlen(name) - 5] = '\0';
  return name;
}

JsonObject *ms_object_without(JsonObject *object, const char *key) {
  JsonObject *rest = json_object_new();
  for (MsJsonMember at = ms_json_members(object); ms_json_next(&at);)
    if (strcmp(at.key, key) != 0) json_object_set_member(rest, at.key, ms_json_copy(at.value));
  return rest;
}
