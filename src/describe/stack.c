/* src/describe/stack.c - reading software/stacks.json. */
#include "describe/stack.h"

#include "base/io.h"
#include "base/kept.h"
#include "describe/enums.h"
#include "describe/rows.h"
#include "describe/scenario.h"
#include "describe/software.h"

#include <string.h>

const MsFieldTable ms_stack_table = MS_FIELD_TABLE(
    "stack", "one software stack, software/stacks.json",
    MS_STRING(MsStack, name, MS_REQUIRED, "the word that scenarios write in `software`"),
    MS_F64(MsStack, gemm, "", 0.2, 5, "1", 0, "factor on the time of dense GEMMs"),
    MS_F64(MsStack, grouped_gemm, "", 0.2, 5, "1", 0, "factor on the time of expert GEMMs"),
    MS_F64(MsStack, attention, "", 0.2, 5, "1", 0, "factor on the time of attention"),
    MS_F64(MsStack, memory_bound, "", 0.2, 5, "1", 0, "factor on the time of memory-bound kernels"),
    MS_F64(MsStack, communication, "", 0.2, 5, "1", 0, "factor on the time of communication"),
    MS_F64(MsStack, host, "", 0.05, 20, "1", 0, "factor on the host time per framework operator"),
    MS_BOOL(MsStack, pipeline_scatter, "false", 0,
            "without sequence parallelism, pipeline messages are cut into one share for each tensor rank and gathered "
            "on arrival"),
    MS_ENUM(MsStack, attention_backend, ms_attn_backend_words, "\"fused\"", 0,
            "attention kernels of scenarios that name none"),
    MS_BOOL(MsStack, overlap_p2p_comm, "true", 0,
            "pipeline communication beside compute, of scenarios that do not say"),
    MS_F64(MsStack, released_year, "year", 0, 3000, "0", 0,
           "when it was released, from the list `releases` of the file or from the name; 0: not known"),
    MS_INT(MsStack, transformer_engine, 0, 999, "0", 0,
           "minor version of TransformerEngine 2, from the name (te2.11), the list `transformer_engine` of the file or "
           "what listed releases had by then; 0: not known, as the newest"),
    MS_STRING(MsStack, source, MS_NULLABLE, "what the factors were fitted on"));

typedef struct { /* a row of `families` */
  char *prefix, *source;
  int framework, flash; /* MsStackFamily */
  gboolean pad_to_capacity;
  JsonNode *options;
} Family;

const MsFieldTable ms_stack_family_table = MS_FIELD_TABLE(
    "stack-family", "all releases of one name, software/stacks.json",
    MS_STRING(Family, prefix, MS_REQUIRED, "names in `software` that begin so, up to their end, a dash or a dot"),
    MS_ENUM(Family, framework, ms_framework_words, "\"megatron\"", 0,
            "framework of scenarios that name none, where it has what they ask for"),
    MS_ENUM(Family, flash, ms_attn_backend_words, "\"flash\"", 0, "kernels that scenarios call flash"),
    MS_FREE(Family, options, "keys of scenario.options with values other than their defaults"),
    MS_BOOL(Family, pad_to_capacity, "false", 0,
            "experts that drop tokens are padded to their capacity, of scenarios that do not say"),
    MS_STRING(Family, source, MS_NULLABLE, "where that is said"));

const MsFieldTable ms_later_table = MS_FIELD_TABLE(
    "later", "what older releases had not, software/stacks.json",
    MS_STRING(MsLater, option, MS_REQUIRED, "key of scenario.options"),
    MS_FREE(MsLater, value, "of scenarios that leave it out, run by a release older than that"),
    MS_F64(MsLater, since_year, "year", 1990, 2100, NULL, MS_REQUIRED, "when the framework got it, or a library below"),
    MS_ENUM(MsLater, framework, ms_framework_words, "\"megatron\"", 0, "which got it"),
    MS_BOOL(MsLater, latent_attention, "false", 0, "of models with multi-latent attention only"),
    MS_F64(MsLater, generation_year, "year", 0, 2100, "0", 0, "on machines whose generation shipped since then only"),
    MS_STRING(MsLater, source, MS_NULLABLE, "where that is said"));

/* How much of the software's name a listed one is. */
static gsize begins_with(const char *software, const char *listed) {
  g_autofree char *spelled = ms_software_spelled(listed);
  return ms_software_begins(software, spelled);
}

static gboolean load_one(const MsJson *doc, JsonArray *list, guint i, const char *software, gsize *longest,
                         MsStack *stack, GError **error) {
  g_autofree char *path = g_strdup_printf("stacks[%u]", i);
  JsonNode *node = json_array_get_element(list, i);
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  MsStack one = {0};
  ms_fields_defaults(&ms_stack_table, &one);
  gboolean ok = ms_fields_load(&ms_stack_table, doc, json_node_get_object(node), path, TRUE, &one, error);
  gsize n = ok && software ? begins_with(software, one.name) : 0;
  gboolean stands_in = ok && *longest == 0 && strcmp(one.name, "default") == 0;
  if (n > *longest || stands_in) {
    ms_stack_clear(stack);
    *stack = one, *longest = n;
    return TRUE;
  }
  ms_stack_clear(&one);
  return ok;
}

/* The stack of that name (NULL: none), or whose name it goes on from, else the default one, into *stack; it stays as it
 * is when there is none. */
static gboolean load_list(const MsJson *doc, JsonArray *stacks, const char *software, MsStack *stack, GError **error) {
  gboolean ok = TRUE;
  gsize longest = 0;
  for (guint i = 0; ok && i < json_array_get_length(stacks); i++)
    ok = load_one(doc, stacks, i, software, &longest, stack, error);
  return ok;
}

static const MsStackFamily no_family = {.flash = MS_ATTN_FLASH};

static void take_family(const Family *row, MsStackFamily *out) {
  g_free(out->options);
  *out = (MsStackFamily){row->framework, row->flash, row->pad_to_capacity,
                         row->options ? ms_json_text(row->options, 0) : NULL};
}

/* Onto options that stand there already. */
static gboolean load_options(const MsJson *doc, const char *path, const Family *row, MsOptions *options,
                             GError **error) {
  g_autofree char *at = g_strconcat(path, ".options", NULL);
  return !row->options ||
         (ms_json_need_object(doc, row->options, at, error) &&
          ms_fields_load(&ms_options_table, doc, json_node_get_object(row->options), at, FALSE, options, error));
}

/* What a family says stands before what the stack has (`own`). */
static gboolean load_family(const MsJson *doc, JsonNode *node, const char *path, const char *software,
                            const MsOptions *own, gsize *longest, MsStack *stack, GError **error) {
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  Family one;
  MsOptions options = *own;
  ms_fields_defaults(&ms_stack_family_table, &one);
  gboolean ok = ms_fields_load(&ms_stack_family_table, doc, json_node_get_object(node), path, TRUE, &one, error) &&
                load_options(doc, path, &one, &options, error);
  gsize n = ok ? begins_with(software, one.prefix) : 0;
  if (n > *longest) {
    *longest = n, take_family(&one, &stack->family), stack->unlisted = FALSE;
    stack->attention_backend = (int)options.attention_backend, stack->overlap_p2p_comm = options.overlap_p2p_comm;
  }
  ms_fields_clear(&ms_stack_family_table, &one);
  return ok;
}

static gboolean load_families(const MsJson *doc, const char *software, MsStack *stack, GError **error) {
  JsonNode *list = json_object_get_member(json_node_get_object(ms_json_root(doc)), "families");
  MsOptions own;
  stack->family = no_family;
  if (!list || !software) return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY(list)) return ms_json_error(doc, "families", error, "must be a list");
  ms_fields_defaults(&ms_options_table, &own);
  own.attention_backend = (MsAttnBackend)stack->attention_backend, own.overlap_p2p_comm = stack->overlap_p2p_comm;
  gsize longest = 0;
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < json_array_get_length(json_node_get_array(list)); i++) {
    g_autofree char *path = g_strdup_printf("families[%u]", i);
    JsonNode *node = json_array_get_element(json_node_get_array(list), i);
    ok = load_family(doc, node, path, software, &own, &longest, stack, error);
  }
  return ok;
}

/* An object of the file. FALSE and *error when it is none; NULL when the file has none. */
static gboolean list_of(const MsJson *doc, const char *list, JsonObject **object, GError **error) {
  JsonNode *node = json_object_get_member(json_node_get_object(ms_json_root(doc)), list);
  *object = NULL;
  if (!node) return TRUE;
  if (!ms_json_need_object(doc, node, list, error)) return FALSE;
  *object = json_node_get_object(node);
  return TRUE;
}

/* The member with the longest key that the name goes on from, and how much of it that is; NULL: none. */
static JsonNode *longest_member(JsonObject *list, const char *software, gsize *longest) {
  JsonNode *said = NULL;
  *longest = 0;
  for (MsJsonMember at = ms_json_members(list); ms_json_next(&at);) {
    gsize n = begins_with(software, at.key);
    if (n > *longest) *longest = n, said = at.value;
  }
  return said;
}

/* What the file says of that release in one of its lists, whether or not it has factors; NULL when nothing. */
static gboolean find_listed(const MsJson *doc, const char *list, const char *software, JsonNode **said,
                            GError **error) {
  JsonObject *object;
  gsize n;
  *said = NULL;
  if (!list_of(doc, list, &object, error)) return FALSE;
  if (object && software) *said = longest_member(object, software, &n);
  return TRUE;
}

#define MOST_ALIASES 4 /* one leads to the next */

/* (transfer full) The name as it is spelled, with what `aliases` has for its beginning. */
static gboolean settle_name(const MsJson *doc, const char *software, char **settled, GError **error) {
  JsonObject *aliases;
  *settled = NULL;
  if (!list_of(doc, "aliases", &aliases, error)) return FALSE;
  if (software) *settled = ms_software_spelled(software);
  for (int i = 0; software && aliases && i < MOST_ALIASES; i++) {
    gsize n;
    JsonNode *as = longest_member(aliases, *settled, &n);
    if (!as) return TRUE;
    if (!ms_json_is(as, G_TYPE_STRING)) return ms_json_error(doc, "aliases", error, "must be names of other names");
    char *next = g_strconcat(json_node_get_string(as), *settled + n, NULL);
    g_free(*settled);
    *settled = next;
  }
  return TRUE;
}

static gboolean take_year(const MsJson *doc, JsonNode *year, const char *software, double *out, GError **error) {
  if (!JSON_NODE_HOLDS_VALUE(year) || !(json_node_get_double(year) > 0))
    return ms_json_error(doc, "releases", error, "%s must be the year of the release, with its fraction", software);
  *out = json_node_get_double(year);
  return TRUE;
}

/* "releases" {name: year}, else the date of the name. */
static gboolean date(const MsJson *doc, const char *software, double *released, GError **error) {
  JsonNode *year;
  *released = software ? ms_software_year(software) : 0;
  return find_listed(doc, "releases", software, &year, error) &&
         (!year || take_year(doc, year, software, released, error));
}

static gboolean load_later(const MsJson *doc, JsonNode *node, guint i, const MsStack *stack, JsonArray *out,
                           GError **error) {
  g_autofree char *path = g_strdup_printf("later[%u]", i);
  MsOptions scratch;
  MsLater one;
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  ms_fields_defaults(&ms_later_table, &one);
  ms_fields_defaults(&ms_options_table, &scratch);
  gboolean ok = ms_fields_load(&ms_later_table, doc, json_node_get_object(node), path, TRUE, &one, error);
  const MsField *field = ok ? ms_field_find(&ms_options_table, one.option) : NULL;
  if (ok && (!field || !one.value))
    ok = ms_json_error(doc, path, error, "must name a key of scenario.options, and its value");
  ok = ok && ms_field_set(field, doc, one.value, path, &scratch, error);
  if (ok && stack->released_year < one.since_year) json_array_add_element(out, json_node_ref(node));
  ms_fields_clear(&ms_later_table, &one);
  return ok;
}

/* Of a release whose date is known. */
static gboolean load_laters(const MsJson *doc, MsStack *stack, GError **error) {
  JsonNode *list = json_object_get_member(json_node_get_object(ms_json_root(doc)), "later");
  if (!list || !(stack->released_year > 0)) return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY(list)) return ms_json_error(doc, "later", error, "must be a list");
  JsonArray *rows = json_node_get_array(list);
  g_autoptr(JsonArray) younger = json_array_new();
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < json_array_get_length(rows); i++)
    ok = load_later(doc, json_array_get_element(rows, i), i, stack, younger, error);
  if (!ok || json_array_get_length(younger) == 0) return ok;
  g_autoptr(JsonNode) node = json_node_init_array(json_node_alloc(), younger);
  stack->later = ms_json_text(node, 0);
  return TRUE;
}

/* "2.14" */
static gboolean take_version(const MsJson *doc, JsonNode *version, const char *software, int *minor, GError **error) {
  const char *text = JSON_NODE_HOLDS_VALUE(version) ? json_node_get_string(version) : NULL;
  guint64 number = 0;
  if (!text || !g_str_has_prefix(text, "2.") || !g_ascii_string_to_unsigned(text + 2, 10, 1, 999, &number, NULL))
    return ms_json_error(doc, "transformer_engine", error, "%s must be a version like \"2.14\"", software);
  *minor = (int)number;
  return TRUE;
}

/* The newest that a listed release had by then; where none was out, the oldest listed. */
static gboolean library_of_date(const MsJson *doc, JsonObject *list, double year, int *minor, GError **error) {
  int newest = 0, oldest = 0;
  for (MsJsonMember at = ms_json_members(list); ms_json_next(&at);) {
    int own;
    double released;
    g_autofree char *spelled = ms_software_spelled(at.key);
    if (!take_version(doc, at.value, at.key, &own, error) || !date(doc, spelled, &released, error)) return FALSE;
    if (released > 0 && released <= year) newest = MAX(newest, own);
    oldest = oldest ? MIN(oldest, own) : own;
  }
  *minor = newest ? newest : oldest;
  return TRUE;
}

/* As the name says, else as listed, else what a release of its day had. */
static gboolean date_library(const MsJson *doc, const char *software, MsStack *stack, GError **error) {
  JsonNode *version;
  JsonObject *list;
  if (software) stack->transformer_engine = ms_software_engine(software);
  if (!find_listed(doc, "transformer_engine", software, &version, error)) return FALSE;
  if (stack->transformer_engine > 0) return TRUE;
  if (version) return take_version(doc, version, software, &stack->transformer_engine, error);
  return list_of(doc, "transformer_engine", &list, error) &&
         (!list || !(stack->released_year > 0) ||
          library_of_date(doc, list, stack->released_year, &stack->transformer_engine, error));
}

static void stack_clear(gpointer stack) { ms_stack_clear(stack); }
static MsKeep kept = {.clear = stack_clear};

static void keep(const char *file, const char *software, const MsStamp *stamp, const MsStack *stack) {
  MsStack *own = g_atomic_rc_box_new(MsStack);
  ms_stack_copy(stack, own);
  ms_kept_add(&kept, file, software, stamp, own);
  ms_kept_release(&kept, own);
}

/* Before families are read, which may know the name too. */
static gboolean is_unlisted(const char *name, const char *settled, const MsStack *stack) {
  g_autofree char *spelled = name ? ms_software_spelled(name) : NULL;
  return name && strcmp(spelled, settled) == 0 && strcmp(stack->name, "default") == 0 && !(stack->released_year > 0) &&
         stack->transformer_engine == 0;
}

static gboolean load_named(const MsJson *doc, const char *name, MsStack *stack, GError **error) {
  g_autofree char *software = NULL;
  JsonArray *stacks = ms_json_need_list(doc, "stacks", error);
  if (!stacks || !settle_name(doc, name, &software, error) || !load_list(doc, stacks, software, stack, error) ||
      !date(doc, software, &stack->released_year, error) || !date_library(doc, software, stack, error))
    return FALSE;
  stack->unlisted = is_unlisted(name, software, stack);
  return load_families(doc, software, stack, error) && load_laters(doc, stack, error);
}

gboolean ms_stack_find(const char *software, MsStack *stack, GError **error) {
  MsStamp stamp;
  g_autofree char *file = g_build_filename(ms_data_dir(), "software", "stacks.json", NULL);
  MsStack *known = ms_kept_find(&kept, file, software ? software : "", &stamp);
  if (known) ms_stack_copy(known, stack);
  ms_kept_release(&kept, known);
  if (known) return TRUE;
  ms_fields_defaults(&ms_stack_table, stack);
  stack->name = g_strdup("default");
  stack->family = no_family;
  stack->later = NULL, stack->unlisted = FALSE;
  if (!g_file_test(file, G_FILE_TEST_EXISTS)) return TRUE;
  g_autoptr(MsJson) doc = ms_json_load(file, error);
  if (!doc || !load_named(doc, software, stack, error)) return ms_stack_clear(stack), FALSE;
  keep(file, software ? software : "", &stamp, stack);
  return TRUE;
}

void ms_stack_clear(MsStack *stack) {
  ms_fields_clear(&ms_stack_table, stack);
  g_clear_pointer(&stack->family.options, g_free);
  g_clear_pointer(&stack->later, g_free);
}

void ms_stack_copy(const MsStack *from, MsStack *to) {
  *to = *from;
  ms_fields_copy(&ms_stack_table, from, to);
  to->family.options = g_strdup(from->family.options);
  to->later = g_strdup(from->later);
}
