/* src/launch/shell_eval.h - arithmetic and tests of shell scripts. */
#ifndef MS_LAUNCH_SHELL_EVAL_H
#define MS_LAUNCH_SHELL_EVAL_H

#include <glib.h>

/* The value of a variable, or NULL. (transfer full) */
typedef char *MsShellLookup(const void *data, const char *name);
/* Integer arithmetic with + - * / % ( ) comparisons && ||, numbers and variables. FALSE when it is anything else. */
gboolean ms_shell_arithmetic(const char *text, MsShellLookup *value_of, const void *data, gint64 *value);
/* FORMAT WORDS... as printf does with %s and %d. NULL: cannot be told. (transfer full) */
char *ms_shell_printf(char *const *words);
/* What these commands (char **: words) print when that is a matter of names alone, without the last newline; names
 * without a folder are in `folder`. NULL: cannot be told. (transfer full) */
char *ms_shell_output(const GPtrArray *commands, const char *folder);
/* The words between [ and ] or after test, or between [[ and ]], where right sides are patterns (a quoted character has
 * a backslash before it) and *groups becomes what those of =~ match. -1: cannot be told. */
int ms_shell_test(char *const *words, int n, gboolean double_brackets, char ***groups);

#endif
