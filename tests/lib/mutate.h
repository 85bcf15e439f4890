/* tests/lib/mutate.h - random damage to a text, and loading a text as everything it might be. */
#ifndef MS_TESTS_MUTATE_H
#define MS_TESTS_MUTATE_H

#include <glib.h>

/* A damaged copy: bytes flipped, pieces cut, doubled or moved, values replaced by nasty ones. (transfer full)
 */
char *ms_test_mutate(GRand *rand, const char *text);
/* Loads `text` as scenario, request, model, machine, what-if study, baseline and goodput study; ends the program on a
 * broken promise: no error on failure, more than one line, or something that does not load again after being written.
 * How many of the seven were accepted. */
int ms_test_load_anything(const char *text);
/* Writes `text` to `file` and reads a machine from it without a tree; ends the program where the tree says something
 * else, or that it is wrong. Whether it was read. */
gboolean ms_test_machine_is_as_its_tree(const char *file, const char *text);
/* Reads `bytes` as a dump of moesim exec; ends the program on a broken promise: no error on failure, more than one
 * line, or a dump that is not written again byte for byte. Whether it was accepted. */
gboolean ms_test_load_dump(const char *bytes, gsize length);

#endif
