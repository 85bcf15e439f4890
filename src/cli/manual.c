/* src/cli/manual.c - the man page and the shell completions, from the verb table and the option tables that the verbs
 * parse. */
#include <string.h>

#include "cli/cli.h"
#include "launch/launch.h"

#define VERSION_DATE "2026-11-22" /* of MS_VERSION: the page must not depend on the day of its build */

/* --- what both read -------------------------------------------------------------------------------------------- */

/* "bound|fast|full" of an option, or the leading "model|hardware NAME" of a verb: its words. NULL when the text lists
 * none. (transfer full) */
static char **words_of(const char *text) {
  if (!text) return NULL;
  g_autofree char *first = g_strndup(text, strcspn(text, " ["));
  if (!strchr(first, '|')) return NULL;
  for (const char *c = first; *c; c++)
    if (!g_ascii_islower(*c) && !g_ascii_isdigit(*c) && !strchr("|-", *c))
      return NULL; /* "DIR|FILE…" are kinds of argument, not words */
  return g_strsplit(first, "|", -1);
}

static gboolean takes_value(const GOptionEntry *e) { return e->arg != G_OPTION_ARG_NONE; }

/* The words that the value of an option may be; NULL when it may be anything. (transfer full) */
static char **values_of(const GOptionEntry *e) {
  if (!takes_value(e)) return NULL;
  if (g_strcmp0(e->arg_description, "FORM") == 0) return g_strdupv((char **)ms_launch_words);
  return words_of(e->arg_description);
}

/* --- man page -------------------------------------------------------------------------------------------------- */

/* Text for troff: backslashes and leading dots are plain, "-" is the ASCII one, the ellipsis is three dots. */
static void roff(GString *out, const char *text) {
  gboolean line_start = TRUE;
  for (const char *c = text; *c; c = g_utf8_next_char(c)) {
    if (line_start && (*c == '.' || *c == '\'')) g_string_append(out, "\\&");
    line_start = *c == '\n';
    gunichar u = g_utf8_get_char(c);
    if (*c == '\\') g_string_append(out, "\\e");
    else if (*c == '-') g_string_append(out, "\\-");
    else if (u == 0x2026) g_string_append(out, "...");
    else g_string_append_unichar(out, u);
  }
}

static void roff_option(GString *out, const GOptionEntry *e) {
  g_string_append(out, ".TP\n.B ");
  if (e->short_name) g_string_append_printf(out, "\\-%c\\fR,\\fB ", e->short_name);
  g_string_append(out, "\\-\\-");
  roff(out, e->long_name);
  if (takes_value(e)) {
    g_string_append(out, "\\fR=\\fI");
    roff(out, e->arg_description ? e->arg_description : "VALUE");
    g_string_append(out, "\\fR");
  }
  g_string_append_c(out, '\n');
  roff(out, e->description ? e->description : "");
  g_string_append_c(out, '\n');
}

static void roff_verb(const MsVerb *verb, const void *entries, gpointer data) {
  GString *out = data;
  g_string_append(out, ".SS moesim ");
  roff(out, verb->name);
  g_string_append_c(out, ' ');
  roff(out, verb->arguments);
  g_string_append_c(out, '\n');
  roff(out, verb->summary);
  g_string_append(out, ".\n");
  for (const GOptionEntry *e = entries; e->long_name; e++) roff_option(out, e);
  g_string_append(out, ".PP\nExamples:\n.PP\n.nf\n");
  roff(out, verb->examples);
  g_string_append(out, ".fi\n");
}

char *ms_cli_man_page(void) {
  GString *out = g_string_new(
      ".\\\" made by `moesim help --man`\n.TH MOESIM 1 \"" VERSION_DATE "\" \"moesim " MS_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nmoesim \\- simulator and parallelism planner for training mixture\\-of\\-experts and dense models\n"
      ".SH SYNOPSIS\n.B moesim\n.I VERB\n[\\fIOPTION\\fR...] [\\fIFILE\\fR...]\n.SH DESCRIPTION\n"
      "Predicts step time, throughput, memory and communication of a training run from its model, machine and parallel "
      "layout,\n"
      "and finds the layout that does it best. \"\\-\" is standard input or output; what follows \"\\-\\-\" is never "
      "an option.\n"
      ".SH VERBS\n");
  ms_cli_each_options(roff_verb, out);
  g_string_append(
      out,
      ".SH EXIT STATUS\n0 fine, 1 nothing feasible or a regression found, 2 command line, 3 a file's content, 4 "
      "environment, 70 a bug.\n"
      ".SH ENVIRONMENT\n.TP\n.B MOESIM_DATA\nfolder of models, machines and scenarios; default beside the program.\n"
      ".TP\n.B MOESIM_VECTOR\nvector unit of own kernels: amx, avx512, avx2, sse2, neon, sve or plain; default the "
      "widest of the CPU.\n"
      ".TP\n.B MOESIM_PROGRESS_S\nseconds between two lines of progress where standard error is no terminal; default "
      "30, 0 is every step.\n"
      ".TP\n.B NO_COLOR\nno colours.\n");
  return g_string_free(out, FALSE);
}

/* --- completions ----------------------------------------------------------------------------------------------- */

/* An option whose value is the name of a shipped machine or model: "hardware" of `--hardware=NAME`. NULL for others.
 * What is after `show` lists the names. */
static const char *names_of(const GOptionEntry *e) {
  static const char *const kinds[] = {"hardware", "model"};
  if (!takes_value(e) || g_strcmp0(e->arg_description, "NAME") != 0) return NULL;
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (strcmp(e->long_name, kinds[i]) == 0) return kinds[i];
  return NULL;
}

static char *verb_words(void) {
  GString *out = g_string_new(NULL);
  for (const MsVerb *verb = ms_verbs; verb->name; verb++) g_string_append_printf(out, "%s ", verb->name);
  return g_string_free(g_string_append(out, "help"), FALSE);
}

static void bash_verb(const MsVerb *verb, const void *entries, gpointer data) {
  GString *out = data, *options = g_string_new("--help"), *values = g_string_new(NULL);
  for (const GOptionEntry *e = entries; e->long_name; e++) {
    g_string_append_printf(options, " --%s", e->long_name);
    if (names_of(e))
      g_string_append_printf(values, "        --%s) words=$(\"${typed[0]}\" show %s 2>/dev/null) ;;\n", e->long_name,
                             names_of(e));
    g_auto(GStrv) words = values_of(e);
    if (!words) continue;
    g_autofree char *all = g_strjoinv(" ", words);
    g_string_append_printf(values, "        --%s) words=\"%s\" ;;\n", e->long_name, all);
  }
  g_auto(GStrv) words = words_of(verb->arguments);
  g_autofree char *subjects = words ? g_strjoinv(" ", words) : g_strdup("");
  g_string_append_printf(out, "    %s)\n      options=\"%s\" subjects=\"%s\"\n", verb->name, options->str, subjects);
  if (values->len) g_string_append_printf(out, "      case $previous in\n%s      esac\n", values->str);
  g_string_append(out, "      ;;\n");
  g_string_free(options, TRUE);
  g_string_free(values, TRUE);
}

/* The words of the line up to the cursor are taken apart here, because readline breaks them at '=' and ':' as well: the
 * value behind --option= is completed as that behind a space, and what readline has as finished is left out of it. */
static char *bash_script(void) {
  g_autofree char *verbs = verb_words();
  GString *out = g_string_new("# bash completion of moesim, made by `moesim help --completion bash`\n_moesim() {\n"
                              "  local line=${COMP_LINE:0:COMP_POINT} head='' options='' subjects='' words='' typed\n"
                              "  read -ra typed <<< \"$line\"\n"
                              "  case $line in *[[:space:]]) typed+=(\"\") ;; esac\n"
                              "  local at=$((${#typed[@]} - 1))\n"
                              "  local current=${typed[at]} previous=${typed[at > 0 ? at - 1 : 0]} verb=${typed[1]}\n"
                              "  case $current in --*=*)\n"
                              "    previous=${current%%=*} head=$previous= current=${current#*=}\n"
                              "    case $COMP_WORDBREAKS in *=*) head= ;; esac ;;\n"
                              "  esac\n"
                              "  COMPREPLY=()\n");
  g_string_append_printf(out,
                         "  if [ \"$at\" -eq 1 ]; then\n    mapfile -t COMPREPLY < <(compgen -W \"%s --help "
                         "--version\" -- \"$current\")\n    return\n  fi\n",
                         verbs);
  g_string_append_printf(out, "  case $verb in\n    help) words=\"%s\" ;;\n", verbs);
  ms_cli_each_options(bash_verb, out);
  g_string_append(
      out,
      "  esac\n"
      "  if [ -z \"$words\" ] && [ \"${current:0:1}\" = - ]; then words=$options; fi\n"
      "  if [ -z \"$words\" ] && [ \"$at\" -eq 2 ]; then words=$subjects; fi\n"
      "  if [ -z \"$words\" ] && [ \"$verb\" = show ] && [ \"$at\" -eq 3 ]; then\n"
      "    case $previous in model|hardware) words=$(\"${typed[0]}\" show \"$previous\" 2>/dev/null) "
      ";; esac\n  fi\n"
      "  if [ -n \"$words\" ]; then\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "  else\n    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n    compopt -o filenames "
      "2>/dev/null\n  fi\n"
      "  COMPREPLY=(\"${COMPREPLY[@]/#/$head}\")\n"
      "  case $COMP_WORDBREAKS in *:*) COMPREPLY=(\"${COMPREPLY[@]#\"${current%\"${current##*:}\"}\"}\") ;; esac\n}\n"
      "complete -F _moesim moesim\n");
  return g_string_free(out, FALSE);
}

/* Inside single quotes of zsh and fish, and without what _arguments gives a meaning to. */
static void quoted(GString *out, const char *text) {
  for (const char *c = text; *c; c++)
    if (*c == '\'') g_string_append(out, "'\\''");
    else if (strchr("[]:", *c)) g_string_append_printf(out, "\\%c", *c);
    else g_string_append_c(out, *c);
}

static void zsh_verb(const MsVerb *verb, const void *entries, gpointer data) {
  GString *out = data;
  g_string_append_printf(out, "        %s)\n          _arguments -S '--help[show options and examples]'", verb->name);
  for (const GOptionEntry *e = entries; e->long_name; e++) {
    g_string_append_printf(out, " \\\n            '--%s%s[", e->long_name, takes_value(e) ? "=" : "");
    quoted(out, e->description ? e->description : "");
    g_string_append_c(out, ']');
    g_auto(GStrv) words = values_of(e);
    g_autofree char *all = words ? g_strjoinv(" ", words) : NULL;
    g_autoptr(GString) escaped = g_string_new(all);
    g_string_replace(escaped, ":", "\\:", 0);
    if (all) g_string_append_printf(out, ":value:(%s)", escaped->str);
    else if (names_of(e)) g_string_append_printf(out, ":name: _moesim_names %s", names_of(e));
    else if (e->arg == G_OPTION_ARG_FILENAME) g_string_append(out, ":file:_files");
    else if (takes_value(e)) g_string_append(out, ":value: ");
    g_string_append_c(out, '\'');
  }
  g_auto(GStrv) words = words_of(verb->arguments);
  g_autofree char *all = words ? g_strjoinv(" ", words) : NULL;
  if (all) g_string_append_printf(out, " \\\n            '1:subject:(%s)'", all);
  if (strcmp(verb->name, "show") == 0) g_string_append(out, " \\\n            '2:name:_moesim_shown'");
  g_string_append(out, " \\\n            '*:file:_files' ;;\n");
}

static char *zsh_script(void) {
  GString *out =
      g_string_new("#compdef moesim\n# zsh completion of moesim, made by `moesim help --completion zsh`\n"
                   "_moesim_names() { # model or hardware\n  local -a names\n  names=(${(f)\"$(_call_program names "
                   "moesim show $1 2>/dev/null)\"})\n  compadd -a names\n}\n"
                   "_moesim_shown() { # the word behind `show model`; words[1] is the verb here\n"
                   "  case $words[2] in\n    model|hardware) _moesim_names $words[2]; _files -g '*.json' ;;\n    *) "
                   "_files ;;\n  esac\n}\n"
                   "_moesim() {\n  local -a verbs\n  verbs=(\n");
  for (const MsVerb *verb = ms_verbs; verb->name; verb++) {
    g_string_append_printf(out, "    '%s:", verb->name);
    quoted(out, verb->summary);
    g_string_append(out, "'\n");
  }
  g_string_append(out, "    'help:options and examples of a verb'\n  )\n  _arguments -C '1:verb:->verb' "
                       "'*::argument:->argument'\n  case $state in\n"
                       "    verb) _describe verb verbs ;;\n    argument)\n      case $words[1] in\n        help) "
                       "_describe verb verbs ;;\n");
  ms_cli_each_options(zsh_verb, out);
  g_string_append(out, "      esac ;;\n  esac\n}\n_moesim \"$@\"\n");
  return g_string_free(out, FALSE);
}

static void fish_quoted(GString *out, const char *text) {
  for (const char *c = text; *c; c++) {
    if (*c == '\'' || *c == '\\') g_string_append_c(out, '\\');
    g_string_append_c(out, *c);
  }
}

static void fish_verb(const MsVerb *verb, const void *entries, gpointer data) {
  GString *out = data;
  for (const GOptionEntry *e = entries; e->long_name; e++) {
    g_string_append_printf(out, "complete -c moesim -n '__fish_seen_subcommand_from %s' -l %s", verb->name,
                           e->long_name);
    if (e->short_name) g_string_append_printf(out, " -s %c", e->short_name);
    g_auto(GStrv) words = values_of(e);
    g_autofree char *all = words ? g_strjoinv(" ", words) : NULL;
    if (all) g_string_append_printf(out, " -x -a '%s'", all);
    else if (names_of(e)) g_string_append_printf(out, " -r -a '(moesim show %s 2>/dev/null)'", names_of(e));
    else if (takes_value(e)) g_string_append(out, e->arg == G_OPTION_ARG_FILENAME ? " -r" : " -x");
    g_string_append(out, " -d '");
    fish_quoted(out, e->description ? e->description : "");
    g_string_append(out, "'\n");
  }
  g_auto(GStrv) words = words_of(verb->arguments);
  g_autofree char *all = words ? g_strjoinv(" ", words) : NULL;
  if (all)
    g_string_append_printf(
        out, "complete -c moesim -n '__fish_seen_subcommand_from %s; and not __fish_seen_subcommand_from %s' -a '%s'\n",
        verb->name, all, all);
  for (int i = 0; words && strcmp(verb->name, "show") == 0 && words[i]; i++)
    if (strcmp(words[i], "model") == 0 || strcmp(words[i], "hardware") == 0)
      g_string_append_printf(out,
                             "complete -c moesim -n '__fish_seen_subcommand_from show; and __fish_seen_subcommand_from "
                             "%s' -a '(moesim show %s 2>/dev/null)'\n",
                             words[i], words[i]);
}

static char *fish_script(void) {
  GString *out = g_string_new("# fish completion of moesim, made by `moesim help --completion fish`\n");
  for (const MsVerb *verb = ms_verbs; verb->name; verb++) {
    g_string_append_printf(out, "complete -c moesim -n __fish_use_subcommand -a %s -d '", verb->name);
    fish_quoted(out, verb->summary);
    g_string_append(out, "'\n");
  }
  g_string_append(out, "complete -c moesim -n __fish_use_subcommand -a help -d 'options and examples of a verb'\n");
  ms_cli_each_options(fish_verb, out);
  return g_string_free(out, FALSE);
}

char *ms_cli_completion(const char *shell) {
  if (strcmp(shell, "bash") == 0) return bash_script();
  if (strcmp(shell, "zsh") == 0) return zsh_script();
  if (strcmp(shell, "fish") == 0) return fish_script();
  return NULL;
}
