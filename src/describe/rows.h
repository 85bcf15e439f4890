/* src/describe/rows.h - for modules that define tables: short ways to write table rows, and what the loaders share.
 *
 * In every row macro: S struct, k member and key, fallback JSON text or NULL, flags, d one sentence. */
#ifndef MS_DESCRIBE_ROWS_H
#define MS_DESCRIBE_ROWS_H

#include "describe/field.h"

#include <stddef.h>

#define MS_ROW(S, k, t, u, fb, fl, d) \
  .key = #k, .type = t, .unit = u, .offset = offsetof(S, k), .flags = fl, .fallback = fb, .doc = d
/* A CUSTOM row that fills several members: its functions get the whole struct. */
#define MS_CUSTOM(k, u, fl, d) .key = #k, .type = MS_T_CUSTOM, .unit = u, .flags = fl, .doc = d
#define MS_INT(S, k, lo_, hi_, fb, fl, d) \
  { MS_ROW(S, k, MS_T_INT, "", fb, fl, d), .lo = lo_, .hi = hi_ }
#define MS_F64(S, k, u, lo_, hi_, fb, fl, d) \
  { MS_ROW(S, k, MS_T_F64, u, fb, fl, d), .lo = lo_, .hi = hi_ }
#define MS_BOOL(S, k, fb, fl, d) \
  { MS_ROW(S, k, MS_T_BOOL, "", fb, fl, d) }
#define MS_STRING(S, k, fl, d) \
  { MS_ROW(S, k, MS_T_STRING, "", NULL, fl, d) }
#define MS_WORD(S, k, w, d) \
  { MS_ROW(S, k, MS_T_STRING, "", NULL, MS_NULLABLE, d), .words = w }
#define MS_ENUM(S, k, w, fb, fl, d) \
  { MS_ROW(S, k, MS_T_ENUM, "", fb, fl, d), .words = w }
#define MS_WORDS(S, k, w, fb, fl, d) \
  { MS_ROW(S, k, MS_T_WORDS, "", fb, fl, d), .words = w }
#define MS_OBJECT(S, k, t, fl, d) \
  { MS_ROW(S, k, MS_T_OBJECT, "", NULL, fl, d), .sub = t }
#define MS_FREE(S, k, d) \
  { MS_ROW(S, k, MS_T_FREE, "", NULL, MS_NULLABLE, d) }
#define MS_IGNORED(k, d) \
  { .key = #k, .type = MS_T_FREE, .unit = "", .offset = MS_NO_OFFSET, .doc = d }
#define MS_SCHEMA(fl)                                                                                                  \
  {                                                                                                                    \
    .key = "schema", .type = MS_T_CUSTOM, .unit = "", .flags = fl, .parse = ms_schema_parse, .print = ms_schema_print, \
    .doc = "version of the file format: 1"                                                                             \
  }

/* The row "schema": 1. */
gboolean ms_schema_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
void ms_schema_print(MsJsonOut *out, const char *key, const void *member);

/* A file whose root is an object. (transfer full) */
MsJson *ms_load_object(const char *filename, GError **error);
/* ms_json_build of one. */
gboolean ms_build_object(MsJson *doc, GError **error);
/* "models/x.json" -> "x". (transfer full) */
char *ms_name_of_file(const char *filename);
/* The object without one of its members. (transfer full) */
JsonObject *ms_object_without(JsonObject *object, const char *key);
/* ms_find_data_file for a name that stands in `doc` at `path`: paths are also looked up beside that file, and the
 * message says where the name stands. doc may be NULL. (transfer full) */
char *ms_find_mentioned(const char *folder, const char *name, const MsJson *doc, const char *path, GError **error);
/* What stands in `file` for a model or machine that the file `mentions` names: the same where both lie in one folder or
 * it is no relative path, else the whole path. (transfer full) */
char *ms_mention_in(const char *name, const char *mentions, const char *file);

/* A list of values, a range or "auto", of a key that may have them. */
gboolean ms_field_is_open(const MsField *field, JsonNode *node);
/* The path of the first key that has several values, as a plan request may leave it, "layout.tp"; NULL: each has one.
 * (transfer full) */
char *ms_first_open(const MsFieldTable *table, JsonObject *json, const char *path);

struct MsScenario;
/* A scenario from an object of `doc`, or from a changed copy of it; `closed`: the layout is no longer open;
 * `framework`: what trains where `json` does not say it, -1: what the name of the software says, if that has what
 * `json` asks for. */
struct MsScenario *ms_scenario_from_object(const MsJson *doc, JsonObject *json, gboolean closed, int framework,
                                           GError **error);
/* Whole sharding of a pipeline as the framework has it by itself (pipeline_fsdp of describe/framework.def), unless the
 * file names the framework and asks for it. Where PP is a list nothing is taken: other layouts of it are no pipeline.
 */
void ms_scenario_take_sharding(struct MsScenario *scenario);
/* Selective recompute of a file that knows Megatron-Core's modules only is that of the framework, unless `base`, which
 * was read from the file, names it: also of a list of a request. */
void ms_scenario_take_modules(struct MsScenario *scenario, const struct MsScenario *base);

#endif
