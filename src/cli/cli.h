/* src/cli/cli.h - the verbs of the program. Each verb is one file and one row of the table in main.c; the same table
 * makes `--help`. A verb parses its own options (GOptionContext), works through study/, sim/, plan/, prints through
 * report/, and returns the exit status. */
#ifndef MS_CLI_CLI_H
#define MS_CLI_CLI_H

#include "base/err.h"
#include "base/figure.h"

typedef struct {
  const char *name;
  const char *arguments;             /* "SCENARIO..." */
  const char *summary;               /* one line */
  const char *examples;              /* a few lines for --help */
  int (*run)(int argc, char **argv); /* argv[0] is the verb */
  gboolean takes_long;    /* --time-limit; SIGINT, SIGTERM and the limit stop its work, and it prints what it has */
  gboolean (*here)(void); /* FALSE: moesim-all goes on, this program lacks a library that the verb needs; NULL: TRUE */
} MsVerb;
extern const MsVerb *ms_verbs; /* main sets it first of all; ends with a NULL name */

/* Prints "moesim: MESSAGE" on stderr and returns the exit status that the error carries; frees the error. */
int ms_cli_fail(GError *error);
/* Parses argv with `entries` (a GOptionEntry array); TRUE to go on. On --help prints and sets *status 0, on a wrong
 * option sets 2. A verb that takes long gets --time-limit with it, and from here on a signal or the end of that time
 * only stops its work (ms_interrupted). */
gboolean ms_cli_options(const MsVerb *verb, const void *entries, int *argc, char ***argv, int *status);
/* The end of a verb: frees the texts that the options of its table hold; returns `status`. */
int ms_cli_done(const void *entries, int status);
const MsVerb *ms_cli_verb(const char *name); /* NULL when unknown */

/* The program comes twice, so that it starts fast: `moesim`, and `moesim-all`, which is linked to MPI and libsoup too,
 * in the same folder or in libexec/moesim beside bin. The path of one of them, NULL: not there. (transfer full) */
char *ms_cli_beside(const char *name);
/* moesim-all takes over with the same arguments; returns only when it cannot, the exit status after a message. */
int ms_cli_hand_over(char **argv);

/* Every verb hands its option table (GOptionEntry, ends with a NULL name) to ms_cli_options and nowhere else. This
 * calls `see` with each of them without running anything: the man page and the completions are made from what the verbs
 * really parse. */
typedef void (*MsOptionsSeen)(const MsVerb *verb, const void *entries, gpointer data);
void ms_cli_each_options(MsOptionsSeen see, gpointer data);
/* Help of one verb, and of the program, folded to the terminal's width. (transfer full) */
char *ms_cli_help(const MsVerb *verb, const void *entries);
char *ms_cli_help_all(void);
char *ms_cli_man_page(void); /* roff, section 1 (transfer full) */
/* A script for "bash", "zsh" or "fish", NULL for another word (transfer full) */
char *ms_cli_completion(const char *shell);
/* Prints "moesim VERB: MESSAGE" and where to read more; returns MS_ERROR_USAGE. */
int ms_cli_usage(const MsVerb *verb, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* Index of `text` in `words` (NULL-terminated); -1 after a message that names the nearest word. */
int ms_cli_word(const MsVerb *verb, const char *what, const char *text, const char *const *words);
/* The value of an option that counts; NULL text leaves *count. FALSE after a usage message. */
gboolean ms_cli_count(const MsVerb *verb, const char *option, const char *text, int *count);
/* NULL, or what is wrong with the value of --date. */
const char *ms_cli_date(const char *date);
char *ms_cli_date_of(const char *given); /* NULL: $SOURCE_DATE_EPOCH, else today (transfer full) */
/* What is wrong with the name of a picture, NULL: nothing (or no picture). */
const char *ms_cli_picture(const char *file);
/* The files that a verb is going to write (NULL: not asked for), before its work: 0, or the status after a message. */
#define ms_cli_outputs(...) \
  ms_cli_can_write((const char *const[]){__VA_ARGS__}, G_N_ELEMENTS(((const char *const[]){__VA_ARGS__})))
int ms_cli_can_write(const char *const *files, size_t n);
/* Says that work was stopped, when it was, and perhaps how it goes on (`next`, NULL: nothing); once. Every verb that
 * takes long ends with it (main.c). */
void ms_cli_say_stopped(const char *next);
/* Exit status of what was stopped or not: 0, or MS_ERROR_NOTHING when it has nothing because it was. */
int ms_cli_found(gboolean something);
/* Of a numeric option whose 0 must not pass for "not given". */
#define MS_CLI_UNSET G_MININT
/* To stdout with a line end, lines folded (ms_text_folded) but those of JSON, which begins with "{"; frees the text. */
void ms_cli_print(char *text);
void ms_cli_print_file(char *text); /* the same as it is: what could stand in a file, such as a script */
int ms_cli_write(const char *file, const char *text); /* the same into a file, NULL: stdout; the exit status */
void ms_cli_print_notes(const GPtrArray *notes);      /* texts, to stderr */
void ms_cli_print_json(MsJsonOut *out);               /* one line to stdout; frees the writer */
/* {"form", "text"} of a launch, one line with its end (transfer full) */
char *ms_cli_launch_json(int word, const char *text);

int ms_cli_run(int argc, char **argv);
int ms_cli_plan(int argc, char **argv);
int ms_cli_whatif(int argc, char **argv);
int ms_cli_check(int argc, char **argv);
int ms_cli_goodput(int argc, char **argv);
int ms_cli_show(int argc, char **argv);
int ms_cli_schema(int argc, char **argv);
int ms_cli_validate(int argc, char **argv);
int ms_cli_fit(int argc, char **argv);
int ms_cli_gemm(int argc, char **argv);
int ms_cli_import(int argc, char **argv);
int ms_cli_launch(int argc, char **argv);
int ms_cli_diff(int argc, char **argv);
int ms_cli_anchor(int argc, char **argv);
int ms_cli_init(int argc, char **argv);
int ms_cli_report(int argc, char **argv);
int ms_cli_calibrate(int argc, char **argv);
int ms_cli_exec(int argc, char **argv);
int ms_cli_calibrate_gpu(const MsVerb *verb, const char *out, const char *vendor, int device, gboolean quick,
                         gboolean json);
int ms_cli_serve(int argc, char **argv);

/* What the verbs print with --json whose figures nothing else shows (the others are in report/report.h). */
extern const MsFigures ms_calibrate_figures, ms_local_check_figures, ms_survey_figures, ms_evaluation_figures,
    ms_exec_figures, ms_ops_figures, ms_decide_figures, ms_gemm_bench_figures, ms_gemm_device_figures,
    ms_show_schedule_figures, ms_show_model_figures;

#endif
