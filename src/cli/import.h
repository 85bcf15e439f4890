/* src/cli/import.h - internal to cli/: what `moesim import` makes of measurements. */
#ifndef MS_CLI_IMPORT_H
#define MS_CLI_IMPORT_H

#include "launch/launch.h"
#include "logs/trace.h"

typedef struct {
  const char *hardware, *name, *out, *date; /* all but the first may be NULL */
  int gpus;                                 /* ranks of logs that do not say them; 0 */
} MsImportBench;

typedef struct {
  const char *out, *tables; /* NULL: standard output; a folder for tables of fit, NULL: none */
  const char *scenario;     /* the run that the traces are of: gives shapes that were not recorded; NULL */
  gboolean json;
  MsTraceForm form;
  int device; /* which GPU of a file that holds several; -1: the first */
} MsImportTrace;

/* Profiles of a GPU (logs/trace.h): where their time went. The exit status. */
int ms_cli_import_trace(const MsImportTrace *options, char **files);
/* Logs of the form `word` (logs/bench.h) as a machine file. The exit status. */
int ms_cli_import_bench(const char *word, const MsImportBench *options, char **files);
/* A training log: the scenario `into` with what was measured, else that of the arguments which the log prints, else
 * {"measured": ...} alone. The exit status. */
int ms_cli_import_log(const char *file, const char *into, const MsImportOptions *options, const char *out);

#endif
