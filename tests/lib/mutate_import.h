/* tests/lib/mutate_import.h - any bytes as everything that can be imported. */
#ifndef MS_TESTS_MUTATE_IMPORT_H
#define MS_TESTS_MUTATE_IMPORT_H

#include "launch/launch.h"

/* Imports `text`; ends the program on a broken promise: an error of another kind, more than one line, a scenario that
 * does not load again or is not its own canonical form. TRUE when it was accepted. */
gboolean ms_test_import_anything(const char *text, gsize length, gboolean modelzoo, const MsImportOptions *options);
/* The same for a config.json. */
gboolean ms_test_import_config(const char *text, gsize length);

#endif
