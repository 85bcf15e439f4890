/* src/describe/lengths.h - lengths of the sequences that are packed into one: the key training.sequence_lengths. */
#ifndef MS_DESCRIBE_LENGTHS_H
#define MS_DESCRIBE_LENGTHS_H

#include "describe/field.h"

enum { MS_MAX_LENGTHS = 64 };

typedef struct { /* a histogram; n 0: every sequence is seq_length tokens long */
  int n;
  int length[MS_MAX_LENGTHS];    /* tokens, ascending */
  double weight[MS_MAX_LENGTHS]; /* sequences of this length, any unit, > 0 */
  guint32 seed;                  /* of the packs that are drawn from it */
} MsLengths;

/* CUSTOM row of a table: parse and print of an MsLengths. */
gboolean ms_lengths_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
void ms_lengths_print(MsJsonOut *out, const char *key, const void *member);
extern const MsFieldTable ms_lengths_table; /* of the object */

#endif
