/* src/launch/shell.h - the commands of a shell script, with variables and arrays put in; nothing is ever run.
 *
 * Understood: comments, quotes, continuation lines, NAME=VALUE, NAME+=VALUE, NAME=( words ), export and declare, $NAME,
 * ${NAME}, ${NAME[@]}, ${NAME:-default} and its relatives, $1, $((arithmetic)), (( NAME = arithmetic )), if with [ ],
 * [[ ]] and test of strings, patterns (=~ with BASH_REMATCH) and numbers, case, && and ||, !, { }, eval, bash -c, ssh,
 * source, here-documents, read from <<<, functions (read as if called where they stand), for (once over words that have
 * no value), $(command) of names alone (dirname, basename, realpath, pwd, cd, echo) and of files (cat, <). Not
 * understood: while and until (skipped, with a remark), tests of files and results of commands (taken as false, with a
 * remark), any other $(command) and variables without a value (they stay as they are written). */
#ifndef MS_LAUNCH_SHELL_H
#define MS_LAUNCH_SHELL_H

#include <glib.h>

typedef struct {
  char **words;
  int line;
} MsCommand;

typedef struct MsShell {
  const char *file;
  GPtrArray *commands;             /* MsCommand * */
  GPtrArray *documents;            /* char *: here-documents */
  GPtrArray *remarks;              /* char * */
  GHashTable *variables;           /* char * -> char **: words; a plain variable has one */
  const char *const *words;        /* $1, $2, ... */
  const char *const *set;          /* NAME=VALUE of variables, whatever the script says; may be NULL */
  GHashTable *asked;               /* char *: names among them that were asked for */
  gboolean environment;            /* and those of the process */
  const char *folder;              /* of the script: where names without a folder are */
  char *(*load)(const char *path); /* text of a file that it sources, NULL when there is none; NULL: none is read */
} MsShell;

MsShell *ms_shell_new(const char *file); /* for messages; (transfer full) */
void ms_shell_free(MsShell *shell);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsShell, ms_shell_free)
/* Reads a NUL-terminated script. FALSE and an MS_ERROR_INPUT with the line when it cannot be read. */
gboolean ms_shell_read(MsShell *shell, const char *text, GError **error);
/* The value of a variable: its words joined; NULL when it has none. (transfer full) */
char *ms_shell_get(const MsShell *shell, const char *name);
char **ms_shell_words(const MsShell *shell, const char *name); /* those of an array apart */
/* The value it is given from outside (set, environment) or NULL. (transfer none) */
const char *ms_shell_given(const MsShell *shell, const char *name);

#endif
