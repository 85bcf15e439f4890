/* tests/lib/refusals.h - the negative corpus: tests/invalid/KIND.cases holds files that must be refused, each with the
 * line that it must give.
 *
 *   === NAME.json
 *   the text of the file
 *   ==> $FILE:4: model.num_layers: what is wrong
 *
 * $FILE stands for the file. MOESIM_BLESS=1 writes the lines anew instead; read the difference before committing it. */
#ifndef MS_TESTS_REFUSALS_H
#define MS_TESTS_REFUSALS_H

#include <glib.h>

/* Reads `text`, which is also what stands in `file`, if `file` is not NULL; the error, or NULL when it was accepted.
 * (transfer full) */
typedef GError *(*MsTestRefuse)(const char *kind, const char *file, const char *text, gsize length);
/* Every case of that kind is refused with its line, and there are `at_least` so many. Each text is written to a file of
 * its name in `folder` first. */
void ms_test_refusals(const char *kind, const char *folder, MsTestRefuse refuse, int at_least);

#endif
