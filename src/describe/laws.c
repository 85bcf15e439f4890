/* src/describe/laws.c - reading software/laws.json, and what a scenario says otherwise. */
#include "describe/laws.h"

#include "base/io.h"
#include "base/kept.h"
#include "describe/rows.h"

#include <string.h>

#define MS_LAW(key, unit, lo, hi, doc) MS_F64(MsLaws, key, unit, lo, hi, NULL, 0, doc),
static const MsField law_fields[] = {
#include "describe/laws.def"
    {0}};
#undef MS_LAW
const MsFieldTable ms_laws_table = {"laws", "laws in place of those of software/laws.json, scenario.laws", law_fields};

static const MsFieldTable entry_table = MS_FIELD_TABLE(
    "laws.laws.NAME", "one law",
    MS_F64(MsLawEntry, value, "", 0, 1e18, NULL, MS_REQUIRED, "in the unit and range of the law"),
    MS_F64(MsLawEntry, spread, "", 1e-3, 10, NULL, MS_REQUIRED | MS_NULLABLE,
           "standard deviation of its logarithm before any training run is seen; null: training runs do not tell"),
    MS_STRING(MsLawEntry, source, MS_REQUIRED, "public source of the mechanism or of the figure"),
    MS_STRING(MsLawEntry, fitted_on, MS_REQUIRED, "runs and measurements that the value was chosen by"));

static gboolean entries_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
static gboolean entries_take(MsJsonCursor *cursor, void *member);

const MsFieldTable ms_law_file_table =
    MS_FIELD_TABLE("law-file", "values of the laws, software/laws.json", MS_SCHEMA(MS_REQUIRED),
                   {MS_CUSTOM(laws, "", MS_REQUIRED, "object: name of a law -> its value and where it comes from"),
                    .parse = entries_parse, .take = entries_take, .sub = &entry_table});

/* --- the file -------------------------------------------------------------------------------------------------- */
static double *member_of(MsLaws *laws, MsLaw law) { return (double *)(void *)((char *)laws + law_fields[law].offset); }

double ms_law_get(const MsLaws *laws, MsLaw law) {
  return *(const double *)(const void *)((const char *)laws + law_fields[law].offset);
}

void ms_law_set(MsLaws *laws, MsLaw law, double value) {
  *member_of(laws, law) = CLAMP(value, law_fields[law].lo, law_fields[law].hi);
}

static gboolean entry_parse(const MsJson *doc, JsonNode *node, const char *path, MsLaw law, MsLawEntry *entry,
                            GError **error) {
  g_autofree char *value_path = g_strconcat(path, ".value", NULL);
  MsLaws scratch;
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  JsonObject *json = json_node_get_object(node);
  return ms_fields_load(&entry_table, doc, json, path, TRUE, entry, error) &&
         ms_field_set(&law_fields[law], doc, json_object_get_member(json, "value"), value_path, &scratch, error);
}

/* Every law has an entry, and every entry a law. */
static gboolean entries_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsLawEntry *entries = member;
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  JsonObject *json = json_node_get_object(node);
  if (!ms_fields_check_keys(&ms_laws_table, doc, json, path, error)) return FALSE;
  for (int i = 0; i < MS_N_LAWS; i++) {
    g_autofree char *full = g_strdup_printf("%s.%s", path, law_fields[i].key);
    JsonNode *entry = json_object_get_member(json, law_fields[i].key);
    if (!entry) return ms_json_error(doc, full, error, "required key is missing");
    if (!entry_parse(doc, entry, full, (MsLaw)i, &entries[i], error)) return FALSE;
  }
  return TRUE;
}

/* Laws stand in their order. */
static gboolean entries_take(MsJsonCursor *cursor, void *member) {
  MsLawEntry *entries = member;
  gboolean more;
  if (!ms_json_take_open(cursor, '{', &more)) return FALSE;
  for (int i = 0; i < MS_N_LAWS; i++) {
    MsJsonWord key;
    const MsField *law = &law_fields[i];
    ms_fields_defaults(&entry_table, &entries[i]);
    if (!more || !ms_json_take_key(cursor, &key) || !ms_json_word_is(&key, law->key) ||
        !ms_fields_take(&entry_table, cursor, &entries[i]) ||
        !(entries[i].value >= law->lo && entries[i].value <= law->hi) || !ms_json_take_next(cursor, '{', &more))
      return FALSE;
  }
  return !more;
}

static gboolean take_entries(MsJsonCursor *cursor, gpointer entries) {
  return ms_fields_take(&ms_law_file_table, cursor, entries);
}

static char *law_file(void) { return g_build_filename(ms_data_dir(), "software", "laws.json", NULL); }

MsLawEntry *ms_law_entries_load(GError **error) {
  g_autofree char *file = law_file();
  g_autoptr(MsJson) doc = ms_json_open(file, error);
  MsLawEntry *entries = doc ? g_new0(MsLawEntry, MS_N_LAWS) : NULL;
  if (!doc || ms_json_take(doc, take_entries, entries)) return entries;
  ms_law_entries_free(entries);
  entries = g_new0(MsLawEntry, MS_N_LAWS);
  if (ms_build_object(doc, error) &&
      ms_fields_load(&ms_law_file_table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, entries, error))
    return entries;
  ms_law_entries_free(entries);
  return NULL;
}

void ms_law_entries_free(MsLawEntry *entries) {
  for (int i = 0; entries && i < MS_N_LAWS; i++) ms_fields_clear(&entry_table, &entries[i]);
  g_free(entries);
}

gboolean ms_laws_load(MsLaws *laws, GError **error) {
  static MsKeep kept;
  MsStamp stamp;
  g_autofree char *file = law_file();
  MsLaws *known = ms_kept_find(&kept, file, "", &stamp);
  if (known) *laws = *known;
  ms_kept_release(&kept, known);
  if (known) return TRUE;
  MsLawEntry *entries = ms_law_entries_load(error);
  memset(laws, 0, sizeof *laws);
  for (int i = 0; entries && i < MS_N_LAWS; i++) ms_law_set(laws, (MsLaw)i, entries[i].value);
  ms_law_entries_free(entries);
  if (!entries) return FALSE;
  known = g_atomic_rc_box_dup(sizeof *laws, laws);
  ms_kept_add(&kept, file, "", &stamp, known);
  ms_kept_release(&kept, known);
  return TRUE;
}

/* --- a scenario says otherwise --------------------------------------------------------------------------------- */
gboolean ms_laws_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsLaws *laws = member;
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  JsonObject *json = json_node_get_object(node);
  if (!ms_fields_load(&ms_laws_table, doc, json, path, FALSE, laws, error)) return FALSE;
  for (int i = 0; i < MS_N_LAWS; i++) laws->given[i] |= json_object_has_member(json, law_fields[i].key);
  return TRUE;
}

void ms_laws_print(MsJsonOut *out, const char *key, const void *member) {
  const MsLaws *laws = member;
  gboolean any = FALSE;
  for (int i = 0; i < MS_N_LAWS; i++) {
    if (!laws->given[i]) continue;
    if (!any) ms_json_out_object(out, key);
    any = TRUE;
    ms_json_out_double(out, law_fields[i].key, ms_law_get(laws, (MsLaw)i));
  }
  if (any) ms_json_out_end(out);
}
