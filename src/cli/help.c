/* src/cli/help.c - what `moesim --help` and `moesim help VERB` print, folded to the terminal. */
#include <string.h>

#include "cli/cli.h"
#include "report/report.h"

const MsVerb *ms_verbs;

enum { MOST_WIDTH = 110, LEAST_TEXT = 30 };

/* Appends `text` word by word; the cursor stands in column `at`, further lines begin in column `indent`. Ends the line.
 */
static void fold(GString *out, const char *text, int at, int indent) {
  int width = MIN(ms_report_width(), MOST_WIDTH);
  width = MAX(width, indent + LEAST_TEXT);
  g_auto(GStrv) words = g_strsplit(text, " ", -1);
  for (int i = 0; words[i]; i++) {
    int length = (int)g_utf8_strlen(words[i], -1);
    if (i > 0 && at + 1 + length > width) {
      g_string_append_printf(out, "\n%*s", indent, "");
      at = indent;
    } else if (i > 0) {
      g_string_append_c(out, ' ');
      at++;
    }
    g_string_append(out, words[i]);
    at += length;
  }
  g_string_append_c(out, '\n');
}

/* "  heading   text": the text in column `indent`, on a line of its own where the heading is too long. */
static void entry(GString *out, const char *heading, const char *text, int indent) {
  int length = (int)g_utf8_strlen(heading, -1);
  g_string_append_printf(out, "  %s", heading);
  if (length + 4 > indent) g_string_append_printf(out, "\n%*s", indent, "");
  else g_string_append_printf(out, "%*s", indent - length - 2, "");
  fold(out, text, indent, indent);
}

/* Lines of examples and what is said behind them: a remark that does not fit beside its command stands below it. */
static void examples(GString *out, const char *text) {
  enum { REMARK = 8 };
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  for (int i = 0; lines[i] && (lines[i][0] || lines[i + 1]); i++) {
    char *gap = *lines[i] == ' ' ? strstr(lines[i] + 2, "  ") : NULL;
    if (*lines[i] != ' ') fold(out, lines[i], 0, 0);
    else if (gap && g_utf8_strlen(lines[i], -1) > MIN(ms_report_width(), MOST_WIDTH)) {
      g_string_append_len(out, lines[i], gap - lines[i]);
      g_string_append_printf(out, "\n%*s", REMARK, "");
      fold(out, gap + strspn(gap, " "), REMARK, REMARK);
    } else g_string_append_printf(out, "%s\n", lines[i]);
  }
}

char *ms_cli_help(const MsVerb *verb, const void *entries) {
  enum { TEXT = 30 };
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "Usage: moesim %s [OPTION…]%s%s\n\n", verb->name, *verb->arguments ? " " : "",
                         verb->arguments);
  fold(out, verb->summary, 0, 0);
  g_string_append(out, "\nOptions:\n");
  for (const GOptionEntry *e = entries; e->long_name; e++) {
    g_autoptr(GString) heading = g_string_new(NULL);
    if (e->short_name) g_string_append_printf(heading, "-%c, ", e->short_name);
    g_string_append_printf(heading, "--%s", e->long_name);
    if (e->arg != G_OPTION_ARG_NONE)
      g_string_append_printf(heading, "=%s", e->arg_description ? e->arg_description : "VALUE");
    entry(out, heading->str, e->description ? e->description : "", TEXT);
  }
  g_string_append(out, "\nExamples:\n");
  examples(out, verb->examples);
  return g_string_free(out, FALSE);
}

char *ms_cli_help_all(void) {
  enum { TEXT = 13 };
  static const char *const end[] = {
      "`moesim help VERB` shows the arguments, options and examples of a verb; `moesim --version` the version.",
      "`moesim help --man` prints the man page, `moesim help --completion bash|zsh|fish` a completion script; `make "
      "install` puts both in place.",
      "\"-\" is standard input or output; what follows \"--\" is never an option.",
      "Models, machines and scenarios are looked up in $MOESIM_DATA, else beside the program.",
      "NO_COLOR=1 turns colours off. Data goes to stdout, messages to stderr.",
      "Exit status: 0 fine, 1 nothing feasible or a regression found, 2 command line, 3 a file's content, 4 "
      "environment, 70 a bug."};
  GString *out = g_string_new("Usage: moesim VERB [OPTION…] [FILE…]\n\n");
  for (const MsVerb *verb = ms_verbs; verb->name; verb++) entry(out, verb->name, verb->summary, TEXT);
  g_string_append_c(out, '\n');
  for (guint i = 0; i < G_N_ELEMENTS(end); i++) fold(out, end[i], 0, 2);
  return g_string_free(out, FALSE);
}
