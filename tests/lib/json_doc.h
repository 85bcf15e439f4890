/* tests/lib/json_doc.h - what docs/json.md says of the JSON that the commands print, and whether some output agrees. */
#ifndef MS_TESTS_JSON_DOC_H
#define MS_TESTS_JSON_DOC_H

#include "base/json.h"

typedef struct MsJsonDoc MsJsonDoc;

/* The tables of a page as docs/json.md is one (its head explains them). A line that is no such row fails the test.
 * (transfer full) */
MsJsonDoc *ms_json_doc_load(const char *filename);
void ms_json_doc_free(MsJsonDoc *doc);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsJsonDoc, ms_json_doc_free)

/* Fails the test where `node` is not an object as the table `name` has it: a key that is not listed, one of another
 * type, one that is missing. Counts the rows that were met, for ms_json_doc_check_met. */
void ms_json_doc_check(MsJsonDoc *doc, const char *name, JsonNode *node);
/* Fails the test for a row of the table that nothing met yet and that is not rare. */
void ms_json_doc_check_met(const MsJsonDoc *doc, const char *name);

#endif
