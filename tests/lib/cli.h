/* tests/lib/cli.h - the program as a user runs it: what it returns and prints, and the JSON of it. Whatever goes wrong
 * on the way ends the test with its message. */
#ifndef MS_TESTS_CLI_H
#define MS_TESTS_CLI_H

#include "base/json.h"

/* Finds the program beside the test's own (argv[0]) and makes a folder for the files of the test; the end removes the
 * folder, which must be empty then. */
void ms_cli_begin(const char *argv0);
void ms_cli_end(void);

typedef struct {
  int status;
  char *out, *err;
} MsCliRun; /* status: 0 .. 255, or 1000 + the signal */
void ms_cli_run_clear(MsCliRun *r);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MsCliRun, ms_cli_run_clear)

/* `argv` without the program, NULL-terminated; `input` stands on standard input. */
MsCliRun ms_cli_run(const char *const *argv, const char *input);
#define RUN(...) ms_cli_run((const char *const[]){__VA_ARGS__, NULL}, "")
/* Runs what would take very long, and sends `signal` as soon as it tells of progress that holds `told` for the first
 * time, whenever that is. */
MsCliRun ms_cli_stop(const char *const *argv, const char *told, int signal);
/* Fails, with the standard error, when it did not return `status`. */
void ms_cli_expect(const MsCliRun *r, int status, const char *what);

MsJson *ms_cli_json(const char *text, const char *what); /* (transfer full) */
/* The value at a path such as "memory.stages[0].peak_B"; there must be one. */
JsonNode *ms_cli_at(JsonNode *node, const char *path);

char *ms_cli_shipped(const char *name);                   /* path of a file of scenarios/ (transfer full) */
char *ms_cli_path(const char *name);                      /* a name in the folder of the test (transfer full) */
char *ms_cli_written(const char *name, const char *text); /* a file there (transfer full) */

#endif
