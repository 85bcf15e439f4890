/* src/describe/laws.h - laws: numbers that were chosen by looking at runs and measurements.
 *
 * What a data sheet, a source file or arithmetic gives stands where it is used; what somebody fitted or guessed is a
 * law: a row of laws.def (name, unit, range, meaning) with its value, source and data in software/laws.json. A scenario
 * may say otherwise (`"laws": {"natural_spread": 0.5}`), a what-if study may vary it (laws.natural_spread), and
 * `moesim validate --cross-validate` and `make laws` fit those that training runs tell of. */
#ifndef MS_DESCRIBE_LAWS_H
#define MS_DESCRIBE_LAWS_H

#include "describe/field.h"

/* Machine memory that the laws of crowding are stated at: an H100's (data sheet). */
#define MS_CROWDED_HBM_BPS 3.35e12

typedef enum {
#define MS_LAW(key, unit, lo, hi, doc) MS_LAW_##key,
#include "describe/laws.def"
#undef MS_LAW
  MS_N_LAWS
} MsLaw;

typedef struct {
#define MS_LAW(key, unit, lo, hi, doc) double key;
#include "describe/laws.def"
#undef MS_LAW
  gboolean given[MS_N_LAWS]; /* by the scenario */
} MsLaws;

extern const MsFieldTable ms_laws_table;     /* what a scenario may override; row i is law i */
extern const MsFieldTable ms_law_file_table; /* software/laws.json */

/* The values of software/laws.json. FALSE and *error when it is missing or wrong. */
gboolean ms_laws_load(MsLaws *laws, GError **error);

double ms_law_get(const MsLaws *laws, MsLaw law);
void ms_law_set(MsLaws *laws, MsLaw law, double value); /* within its range */

typedef struct { /* an entry of the file */
  double value;
  double spread; /* standard deviation of its logarithm before any run is seen; NaN: training runs do not tell */
  char *source, *fitted_on;
} MsLawEntry;
/* All of them, in the order of MsLaw. NULL and *error. (transfer full) */
MsLawEntry *ms_law_entries_load(GError **error);
void ms_law_entries_free(MsLawEntry *entries);

/* The row "laws" of a scenario. */
gboolean ms_laws_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
void ms_laws_print(MsJsonOut *out, const char *key, const void *member); /* those that the scenario gives, if any */

#endif
