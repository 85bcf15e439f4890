/* src/launch/args.h - an argument list with its environment: what every launch form renders and every import reads.
 *
 * Export fills one from a scenario (table.h) and a form writes it down; import reads a form into one and the same table
 * makes the scenario of it. Later duplicates win, as in argparse. Reading marks what was understood; what is not marked
 * in the end was ignored and is listed to the user. */
#ifndef MS_LAUNCH_ARGS_H
#define MS_LAUNCH_ARGS_H

#include <glib.h>
#include <json-glib/json-glib.h>

/* Where an argument belongs; sections of the written forms, arrays of MT-Megatron */
typedef enum {
  MS_SECTION_PARALLEL,
  MS_SECTION_TRAINING,
  MS_SECTION_MODEL,
  MS_SECTION_MOE,
  MS_SECTION_PRECISION,
  MS_SECTION_DATA,
  MS_N_SECTIONS
} MsSection;

typedef struct {
  char *flag;    /* "--hidden-size" */
  char **values; /* NULL-terminated, empty for a switch */
  int line;      /* in the file it was read from; 0 = none */
  MsSection section;
  gboolean used;      /* understood on import */
  gboolean plain;     /* import: a framework's default, not listed when it is not used */
  const char *fields; /* export: keys of a scenario that it says, separated by spaces; NULL: what a run needs besides */
} MsArg;

typedef struct {
  char *name, *value;
  gboolean used;
  const char *fields; /* as of MsArg */
} MsVariable;

typedef struct MsArgs {
  char *file;        /* for messages; "" when written */
  GPtrArray *list;   /* MsArg *, in order */
  GPtrArray *env;    /* MsVariable *: environment, in order, each name once */
  JsonObject *notes; /* what no argument says: lines "#moesim KEY JSON" (form.h) */
  GHashTable *asked; /* char * -> itself: flags that a reader looked for, whether they are there or not */
  char *open;        /* "; ..." about words that stayed as written and may hold what is missing; NULL */
} MsArgs;

MsArgs *ms_args_new(const char *file); /* for messages; (transfer full) */
void ms_args_free(MsArgs *args);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsArgs, ms_args_free)

/* Appends `flag` with copies of the values (NULL-terminated varargs of const char *). */
MsArg *ms_args_add(MsArgs *args, MsSection section, const char *flag, ...) G_GNUC_NULL_TERMINATED;
/* Appends with one printed value. */
void ms_args_addf(MsArgs *args, MsSection section, const char *flag, const char *format, ...) G_GNUC_PRINTF(4, 5);
/* Appends `flag` with one value (NULL: a switch) in the place of `source`, which says the same in other words. */
void ms_args_say(MsArgs *args, const MsArg *source, const char *flag, const char *value);
/* Takes apart the words of a command: "--flag value value", "--flag=value"; words before the first flag are dropped. */
void ms_args_add_words(MsArgs *args, char *const *words, int line);

/* The last occurrence of `flag`; all of them become used. NULL when absent. */
MsArg *ms_args_take(MsArgs *args, const char *flag);
/* The same for the last occurrence of any of several spellings ("--a --b", separated by spaces). */
MsArg *ms_args_take_any(MsArgs *args, const char *flags);
/* These two mark nothing; the last occurrence, NULL when absent. */
MsArg *ms_args_find(const MsArgs *args, const char *flag);
gboolean ms_args_has(const MsArgs *args, const char *flag);

void ms_args_setenv(MsArgs *args, const char *name, const char *value); /* replaces */
const char *ms_args_getenv(MsArgs *args, const char *name);             /* marks it used; NULL when unset */

/* Sets *error to "file:line: --flag: message" (MS_ERROR_INPUT); returns FALSE. */
gboolean ms_arg_error(const MsArgs *args, const MsArg *arg, GError **error, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* The one value of an argument; an error when there are none or more. */
const char *ms_arg_value(const MsArgs *args, const MsArg *arg, GError **error);
/* All of them, blanks between; an error when there are none. (transfer full) */
char *ms_arg_list(const MsArgs *args, const MsArg *arg, GError **error);
/* The one value as a number within bounds. */
gboolean ms_arg_number(const MsArgs *args, const MsArg *arg, double lo, double hi, double *value, GError **error);
gboolean ms_arg_int(const MsArgs *args, const MsArg *arg, gint64 lo, gint64 hi, gint64 *value, GError **error);
/* The last `flag`, which becomes used, as a number from 0 to hi; `absent` without one. */
gboolean ms_args_int(MsArgs *args, const char *flag, gint64 absent, gint64 hi, gint64 *value, GError **error);
/* Index of `text` in words, or an error that names the nearest one: -1. */
int ms_arg_word(const MsArgs *args, const MsArg *arg, const char *text, const char *const *words, GError **error);

static inline gboolean ms_is_flag(const char *word) { return g_str_has_prefix(word, "--") && g_ascii_isalpha(word[2]); }

#endif
