/* src/describe/stack.c - reading software/stacks.json. */
#include "describe/stack.h"

#include "base/io.h"
#include "base/kept.h"
#include "describe/enums.h"
#include "describe/rows.h"
#include "describe/scenario.h"

#include <string.h>

#define S MsStack
static const MsField stack_fields[] = {
    MS_STRING(S, name, MS_REQUIRED, "the word that scenarios write in `software`"),
    MS_F64(S, gemm, "", 0.2, 5, "1", 0, "factor on the time of dense GEMMs"),
    MS_F64(S, grouped_gemm, "", 0.2, 5, "1", 0, "factor on the time of expert GEMMs"),
    MS_F64(S, attention, "", 0.2, 5, "1", 0, "factor on the time of attention"),
    MS_F64(S, memory_bound, "", 0.2, 5, "1", 0, "factor on the time of memory-bound kernels"),
    MS_F64(S, communication, "", 0.2, 5, "1", 0, "factor on the time of communication"),
    MS_F64(S, host, "", 0.05, 20, "1", 0, "factor on the host time per framework operator"),
    MS_BOOL(S, pipeline_scatter, "false", 0,
            "without sequence parallelism, pipeline messages are cut into one share for each tensor rank and gathered "
            "on arrival"),
    MS_ENUM(S, attention_backend, ms_attn_backend_words, "\"fused\"", 0,
            "attention kernels of scenarios that name none"),
    MS_BOOL(S, overlap_p2p_comm, "true", 0, "pipeline communication beside compute, of scenarios that do not say"),
    MS_F64(S, released_year, "year", 0, 3000, "0", 0,
           "when it was released, from the lists `releases` and `megatron_core` of the file or from the name; 0: not "
           "known"),
    MS_INT(S, transformer_engine, 0, 999, "0", 0,
           "minor version of TransformerEngine 2, from the list `transformer_engine` of the file; 0: not known, as the "
           "newest"),
    MS_STRING(S, source, MS_NULLABLE, "what the factors were fitted on"),
    {0}};
#undef S
const MsFieldTable ms_stack_table = {"stack", "one software stack, software/stacks.json", stack_fields};

typedef struct { /* a row of `families` */
  char *prefix, *source;
  int framework, flash; /* MsStackFamily */
  JsonNode *options;
} Family;

#define S Family
static const MsField family_fields[] = {
    MS_STRING(S, prefix, MS_REQUIRED, "names in `software` that begin so, up to their end or a dash"),
    MS_ENUM(S, framework, ms_framework_words, "\"megatron\"", 0,
            "framework of scenarios that name none, where it has what they ask for"),
    MS_ENUM(S, flash, ms_attn_backend_words, "\"flash\"", 0, "kernels that scenarios call flash"),
    MS_FREE(S, options, "keys of scenario.options with values other than their defaults"),
    MS_STRING(S, source, MS_NULLABLE, "where that is said"),
    {0}};
#undef S
const MsFieldTable ms_stack_family_table = {"stack-family", "all releases of one name, software/stacks.json",
                                            family_fields};

#define S MsLater
static const MsField later_fields[] = {
    MS_STRING(S, option, MS_REQUIRED, "key of scenario.options"),
    MS_FREE(S, value, "of scenarios that leave it out, run by a release older than that"),
    MS_F64(S, since_year, "year", 1990, 2100, NULL, MS_REQUIRED, "when Megatron-Core got it, or a library below"),
    MS_BOOL(S, latent_attention, "false", 0, "of models with multi-latent attention only"),
    MS_F64(S, generation_year, "year", 0, 2100, "0", 0, "on machines whose generation shipped since then only"),
    MS_STRING(S, source, MS_NULLABLE, "where that is said"),
    {0}};
#undef S
const MsFieldTable ms_later_table = {"later", "what older releases had not, software/stacks.json", later_fields};

static gboolean load_one(const MsJson *doc, JsonArray *list, guint i, const char *software, MsStack *stack,
                         gboolean *found, GError **error) {
  g_autofree char *path = g_strdup_printf("stacks[%u]", i);
  JsonNode *node = json_array_get_element(list, i);
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  MsStack one = {0};
  ms_fields_defaults(&ms_stack_table, &one);
  gboolean ok = ms_fields_load(&ms_stack_table, doc, json_node_get_object(node), path, TRUE, &one, error);
  if (ok && !strcmp(one.name, software)) {
    ms_stack_clear(stack);
    *stack = one;
    *found = TRUE;
    return TRUE;
  }
  ms_stack_clear(&one);
  return ok;
}

/* The stack of that name into *stack; it stays as it is when there is none. */
static gboolean load_list(const MsJson *doc, const char *software, MsStack *stack, gboolean *found, GError **error) {
  JsonNode *root = ms_json_root(doc);
  JsonObject *object = JSON_NODE_HOLDS_OBJECT(root) ? json_node_get_object(root) : NULL;
  JsonNode *list = object ? json_object_get_member(object, "stacks") : NULL;
  if (!list || !JSON_NODE_HOLDS_ARRAY(list))
    return ms_json_error(doc, "", error, "must be an object with a list \"stacks\"");
  JsonArray *stacks = json_node_get_array(list);
  gboolean ok = TRUE;
  for (guint i = 0; ok && !*found && i < json_array_get_length(stacks); i++)
    ok = load_one(doc, stacks, i, software, stack, found, error);
  return ok;
}

static const MsStackFamily no_family = {.flash = MS_ATTN_FLASH};

static gsize length_of_prefix(const char *software, const char *prefix) {
  gsize n = strlen(prefix);
  return g_str_has_prefix(software, prefix) && (software[n] == 0 || software[n] == '-') ? n : 0;
}

static void take_family(const Family *row, MsStackFamily *out) {
  g_free(out->options);
  *out = (MsStackFamily){row->framework, row->flash, row->options ? ms_json_text(row->options, 0) : NULL};
}

static gboolean has_good_options(const MsJson *doc, const char *path, const Family *row, GError **error) {
  MsOptions options;
  g_autofree char *at = g_strconcat(path, ".options", NULL);
  if (!row->options) return TRUE;
  ms_fields_defaults(&ms_options_table, &options);
  return ms_json_need_object(doc, row->options, at, error) &&
         ms_fields_load(&ms_options_table, doc, json_node_get_object(row->options), at, FALSE, &options, error);
}

static gboolean load_family(const MsJson *doc, JsonNode *node, const char *path, const char *software, gsize *longest,
                            MsStackFamily *out, GError **error) {
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  Family one;
  ms_fields_defaults(&ms_stack_family_table, &one);
  gboolean ok = ms_fields_load(&ms_stack_family_table, doc, json_node_get_object(node), path, TRUE, &one, error) &&
                has_good_options(doc, path, &one, error);
  gsize n = ok ? length_of_prefix(software, one.prefix) : 0;
  if (n > *longest) *longest = n, take_family(&one, out);
  ms_fields_clear(&ms_stack_family_table, &one);
  return ok;
}

static gboolean load_families(const MsJson *doc, const char *software, MsStackFamily *out, GError **error) {
  JsonNode *list = json_object_get_member(json_node_get_object(ms_json_root(doc)), "families");
  *out = no_family;
  if (!list || !software) return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY(list)) return ms_json_error(doc, "families", error, "must be a list");
  gsize longest = 0;
  gboolean ok = TRUE;
  for (guint i = 0; ok && i < json_array_get_length(json_node_get_array(list)); i++) {
    g_autofree char *path = g_strdup_printf("families[%u]", i);
    JsonNode *node = json_array_get_element(json_node_get_array(list), i);
    ok = load_family(doc, node, path, software, &longest, out, error);
  }
  return ok;
}

/* Year and month behind a dash, 2024-12, 24.12 or as arXiv numbers papers, 2412.01234; the end of them in `end`. */
static gboolean month_of(const char *at, int *year, int *month, int *end) {
  int number = 0;
  if (sscanf(at, "-%4d-%2d%n", year, month, end) == 2 && *year >= 1000) return TRUE;
  gboolean dotted = sscanf(at, "-%2d.%2d%n", year, month, end) == 2 && at[3] == '.';
  if (!dotted && (sscanf(at, "-%2d%2d.%5d%n", year, month, &number, end) != 3 || at[5] != '.' || *end < 10))
    return FALSE;
  *year += 2000;
  return TRUE;
}

/* The end of the month that a name gives; 0: none. */
static double year_of_name(const char *software) {
  for (const char *at = strchr(software, '-'); at; at = strchr(at + 1, '-')) {
    int year = 0, month = 0, end = 0;
    if (!month_of(at, &year, &month, &end)) continue;
    if (year >= 2016 && year < 2100 && month >= 1 && month <= 12 && !g_ascii_isdigit(at[end]))
      return year + month / 12.0;
  }
  return 0;
}

/* What the file says of that release in one of its lists, whether or not it has factors; NULL when nothing. */
static gboolean find_listed(const MsJson *doc, const char *list, const char *software, JsonNode **said,
                            GError **error) {
  JsonNode *releases = json_object_get_member(json_node_get_object(ms_json_root(doc)), list);
  *said = NULL;
  if (!releases || !software) return TRUE;
  if (!ms_json_need_object(doc, releases, list, error)) return FALSE;
  *said = json_object_get_member(json_node_get_object(releases), software);
  return TRUE;
}

static gboolean take_year(const MsJson *doc, const char *list, const char *key, double *year, GError **error) {
  JsonNode *said;
  if (!find_listed(doc, list, key, &said, error)) return FALSE;
  if (!said) return TRUE;
  if (!JSON_NODE_HOLDS_VALUE(said) || !(json_node_get_double(said) > 0))
    return ms_json_error(doc, list, error, "%s must be the year of the release, with its fraction", key);
  *year = json_node_get_double(said);
  return TRUE;
}

/* "0.12" of megatron-0.12.0rc3 and mcore-0.12; NULL: not a version of Megatron-Core. (transfer full) */
static char *core_version(const char *software) {
  static const char *const names[] = {"mcore-0.", "megatron-0.", "megatron-core-0.", "megatron-lm-0."};
  int minor = 0;
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_has_prefix(software, names[i]) && sscanf(software + strlen(names[i]), "%3d", &minor) == 1)
      return g_strdup_printf("0.%d", minor);
  return NULL;
}

/* "releases" {name: year}, else that of its version in "megatron_core", else the date of the name. */
static gboolean date(const MsJson *doc, const char *software, MsStack *stack, GError **error) {
  g_autofree char *version = software ? core_version(software) : NULL;
  if (software) stack->released_year = year_of_name(software);
  return take_year(doc, "megatron_core", version, &stack->released_year, error) &&
         take_year(doc, "releases", software, &stack->released_year, error);
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
static gboolean date_library(const MsJson *doc, const char *software, MsStack *stack, GError **error) {
  JsonNode *version;
  if (!find_listed(doc, "transformer_engine", software, &version, error)) return FALSE;
  if (!version) return TRUE;
  const char *text = JSON_NODE_HOLDS_VALUE(version) ? json_node_get_string(version) : NULL;
  guint64 minor = 0;
  if (!text || !g_str_has_prefix(text, "2.") || !g_ascii_string_to_unsigned(text + 2, 10, 1, 999, &minor, NULL))
    return ms_json_error(doc, "transformer_engine", error, "%s must be a version like \"2.14\"", software);
  stack->transformer_engine = (int)minor;
  return TRUE;
}

static void stack_clear(gpointer stack) { ms_stack_clear(stack); }
static MsKeep kept = {.clear = stack_clear};

static void keep(const char *file, const char *software, const MsStamp *stamp, const MsStack *stack) {
  MsStack *own = g_atomic_rc_box_new(MsStack);
  ms_stack_copy(stack, own);
  ms_kept_add(&kept, file, software, stamp, own);
  ms_kept_release(&kept, own);
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
  stack->later = NULL;
  if (!g_file_test(file, G_FILE_TEST_EXISTS)) return TRUE;
  g_autoptr(MsJson) doc = ms_json_load(file, error);
  gboolean found = FALSE, ok = doc && (!software || load_list(doc, software, stack, &found, error));
  ok = ok && (found || load_list(doc, "default", stack, &found, error)) && date(doc, software, stack, error) &&
       date_library(doc, software, stack, error) && load_families(doc, software, &stack->family, error) &&
       load_laters(doc, stack, error);
  if (ok) keep(file, software ? software : "", &stamp, stack);
  else ms_stack_clear(stack);
  return ok;
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
