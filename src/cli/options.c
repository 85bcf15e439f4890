#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/cli.h"
#include "report/report.h"

int ms_cli_fail(GError *error) {
  if (!error) MS_BUG("a failure without a reason");
  int status = error->domain == MS_ERROR         ? error->code
               : error->domain == G_OPTION_ERROR ? MS_ERROR_USAGE
                                                 : MS_ERROR_ENV;
  fflush(stdout); /* what was printed before stands before the message */
  fprintf(stderr, "moesim: %s\n", error->message);
  g_error_free(error);
  return status;
}

int ms_cli_usage(const MsVerb *verb, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args);
  va_end(args);
  fprintf(stderr, "moesim %s: %s\nmoesim help %s   shows its options and examples\n", verb->name, message, verb->name);
  return MS_ERROR_USAGE;
}

int ms_cli_word(const MsVerb *verb, const char *what, const char *text, const char *const *words) {
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], text) == 0) return i;
  g_autofree char *all = g_strjoinv(", ", (char **)words);
  g_autofree char *suggestion = ms_suggest(text, words, NULL);
  if (suggestion) ms_cli_usage(verb, "unknown %s \"%s\", %s Known: %s", what, text, suggestion, all);
  else ms_cli_usage(verb, "unknown %s \"%s\". Known: %s", what, text, all);
  return -1;
}

gboolean ms_cli_count(const MsVerb *verb, const char *option, const char *text, int *count) {
  g_autofree char *why = NULL;
  double value;
  if (!text) return TRUE;
  if (!ms_quantity_parse(text, "", TRUE, &value, &why)) return ms_cli_usage(verb, "%s: %s", option, why), FALSE;
  if (value > G_MAXINT) return ms_cli_usage(verb, "%s %s: must be at most %d", option, text, G_MAXINT), FALSE;
  *count = (int)value;
  return TRUE;
}

const char *ms_cli_date(const char *date) {
  GDate day;
  g_date_clear(&day, 1);
  if (date && strlen(date) == 10) g_date_set_parse(&day, date);
  char again[11] = "";
  if (g_date_valid(&day)) g_date_strftime(again, sizeof again, "%Y-%m-%d", &day);
  return !date || strcmp(again, date) == 0 ? NULL : "--date takes YYYY-MM-DD";
}

const char *ms_cli_picture(const char *file) {
  return !file || g_str_has_suffix(file, ".svg") || g_str_has_suffix(file, ".png")
             ? NULL
             : "--plot takes a file that ends in .svg or .png";
}

/* What --time-limit says in seconds, INFINITY for NULL. FALSE after a message. */
static gboolean time_limit(const MsVerb *verb, const char *text, double *limit_s) {
  g_autofree char *why = NULL;
  *limit_s = INFINITY;
  if (!text || (ms_quantity_parse(text, "s", FALSE, limit_s, &why) && *limit_s > 0)) return TRUE;
  ms_cli_usage(verb, "--time-limit %s: give a time above 0, such as 90s, 5m, 2h or 1d", text);
  return FALSE;
}

int ms_cli_can_write(const char *const *files, size_t n) {
  GError *error = NULL;
  for (size_t i = 0; i < n; i++)
    if (!ms_can_write(files[i], &error)) return ms_cli_fail(error);
  return 0;
}

void ms_cli_say_stopped(const char *next) {
  static gboolean said;
  if (!ms_interrupted() || said) return;
  said = TRUE;
  fflush(stdout);
  fprintf(stderr, "moesim: %s: what is printed was found until then%s\n", ms_interrupt_reason(), next ? next : "");
}

int ms_cli_found(gboolean something) { return something || !ms_interrupted() ? 0 : MS_ERROR_NOTHING; }

void ms_cli_print(char *text) {
  if (*text == '{') return ms_cli_print_file(text);
  ms_cli_print_file(ms_text_folded(ms_report_printable(text, ms_report_flags())));
  g_free(text);
}

void ms_cli_print_file(char *text) {
  size_t length = strlen(text);
  fputs(text, stdout);
  if (length > 0 && text[length - 1] != '\n') fputc('\n', stdout);
  g_free(text);
}

int ms_cli_write(const char *file, const char *text) {
  GError *error = NULL;
  g_autofree char *lines = g_strconcat(text, g_str_has_suffix(text, "\n") ? "" : "\n", NULL);
  return ms_write_file(file ? file : "-", lines, -1, &error) ? 0 : ms_cli_fail(error);
}

void ms_cli_print_notes(const GPtrArray *notes) {
  for (guint i = 0; i < notes->len; i++) fprintf(stderr, "moesim: %s\n", (const char *)notes->pdata[i]);
}

void ms_cli_print_json(MsJsonOut *out) { ms_cli_print_file(ms_json_out_take(out)); }

static gboolean named_alike(gconstpointer a, gconstpointer b) { return g_strcmp0(a, b) == 0; }

/* The unknown long option among argv, as the user wrote it, with the nearest known one; NULL when there is none.
 * (transfer full) */
static char *unknown_option(const GOptionEntry *entries, int argc, char **argv) {
  g_autoptr(GPtrArray) known = g_ptr_array_new();
  for (const GOptionEntry *e = entries; e->long_name; e++) g_ptr_array_add(known, (gpointer)e->long_name);
  g_ptr_array_add(known, (gpointer) "help");
  g_ptr_array_add(known, NULL);
  for (int i = 1; i < argc; i++) {
    if (!g_str_has_prefix(argv[i], "--")) continue;
    g_autofree char *name = g_strndup(argv[i] + 2, strcspn(argv[i] + 2, "="));
    if (g_strv_contains((const char *const *)known->pdata, name)) continue;
    static const char *const sizes[] = {"tp", "cp", "pp", "vpp", "ep", "etp", "dp", "mbs", NULL};
    if (g_strv_contains(sizes, name) && g_ptr_array_find_with_equal_func(known, "write-request", named_alike, NULL))
      return g_strdup_printf("--%s is searched; to fix it, --write-request FILE keeps the request, whose %s takes it",
                             name, strcmp(name, "mbs") == 0 ? "training.micro_batch_size" : "layout");
    const char *near = ms_nearest(name, (const char *const *)known->pdata);
    return near ? g_strdup_printf("unknown option --%s, did you mean --%s?", name, near)
                : g_strdup_printf("unknown option --%s", name);
  }
  return NULL;
}

/* An option without a value that was given one, which GLib would pass over: --explain=false; NULL: none. (transfer
 * full)
 */
static char *needless_value(const GOptionEntry *entries, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    for (const GOptionEntry *e = entries; e->long_name; e++) {
      const char *value = g_str_has_prefix(argv[i], "--") && g_str_has_prefix(argv[i] + 2, e->long_name)
                              ? argv[i] + 2 + strlen(e->long_name)
                              : "";
      if (e->arg == G_OPTION_ARG_NONE && *value == '=') return g_strdup_printf("--%s takes no value", e->long_name);
    }
  return NULL;
}

static GOptionContext *context_new(const MsVerb *verb, const GOptionEntry *entries) {
  GOptionContext *context = g_option_context_new(verb->arguments);
  g_option_context_set_help_enabled(context, FALSE);
  g_option_context_add_main_entries(context, entries, NULL);
  g_autofree char *name = g_strdup_printf("moesim %s", verb->name);
  g_set_prgname(name);
  return context;
}

static gboolean wants_help(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (g_str_equal(argv[i], "--help") || g_str_equal(argv[i], "-h")) return TRUE;
  return FALSE;
}

static struct {
  MsOptionsSeen see;
  gpointer data;
} watcher; /* set while ms_cli_each_options runs */

void ms_cli_each_options(MsOptionsSeen see, gpointer data) {
  watcher.see = see;
  watcher.data = data;
  for (const MsVerb *verb = ms_verbs; verb->name; verb++) {
    char *argv[] = {(char *)verb->name, NULL};
    verb->run(1, argv);
  }
  watcher.see = NULL;
}

/* The table of a verb with what all that take long have besides. */
static GOptionEntry *with_time_limit(const MsVerb *verb, const GOptionEntry *entries, char **limit) {
  const GOptionEntry row = {
      "time-limit",
      0,
      0,
      G_OPTION_ARG_STRING,
      limit,
      "stop after this long and print what was found: seconds, or with s, m, h or d (90, 90s, 5m, 2h, 1d)",
      "TIME"};
  GArray *all = g_array_new(TRUE, TRUE, sizeof(GOptionEntry));
  for (; entries->long_name; entries++) g_array_append_vals(all, entries, 1);
  if (verb->takes_long) g_array_append_vals(all, &row, 1);
  return (GOptionEntry *)(void *)g_array_free(all, FALSE);
}

static gboolean parse(const MsVerb *verb, const GOptionEntry *entries, int *argc, char ***argv, int *status);

gboolean ms_cli_options(const MsVerb *verb, const void *entries, int *argc, char ***argv, int *status) {
  g_autofree char *text = NULL;
  g_autofree GOptionEntry *all = with_time_limit(verb, entries, &text);
  double limit_s;
  if (!parse(verb, all, argc, argv, status)) return FALSE;
  if (!time_limit(verb, text, &limit_s)) {
    *status = MS_ERROR_USAGE;
    return FALSE;
  }
  if (verb->takes_long) ms_interrupt_install(limit_s);
  return TRUE;
}

int ms_cli_done(const void *entries, int status) {
  for (const GOptionEntry *e = entries; e->long_name; e++) {
    if (e->arg == G_OPTION_ARG_STRING || e->arg == G_OPTION_ARG_FILENAME) g_free(*(char **)e->arg_data);
    if (e->arg == G_OPTION_ARG_STRING_ARRAY || e->arg == G_OPTION_ARG_FILENAME_ARRAY)
      g_strfreev(*(char ***)e->arg_data);
  }
  return status;
}

static gboolean parse(const MsVerb *verb, const GOptionEntry *entries, int *argc, char ***argv, int *status) {
  if (watcher.see) {
    watcher.see(verb, entries, watcher.data);
    *status = 0;
    return FALSE;
  }
  int head = 1; /* what stands before "--" may be options; what follows never is */
  while (head < *argc && strcmp((*argv)[head], "--") != 0) head++;
  int tail = MAX(*argc - head - 1, 0), before = head;
  g_autoptr(GOptionContext) context = context_new(verb, entries);
  if (wants_help(head, *argv)) {
    ms_cli_print(ms_cli_help(verb, entries));
    *status = 0;
    return FALSE;
  }
  g_autofree char *unknown = unknown_option(entries, head, *argv), *needless = needless_value(entries, head, *argv);
  g_autoptr(GError) error = NULL;
  if (needless) {
    *status = ms_cli_usage(verb, "%s", needless);
    return FALSE;
  }
  if (!g_option_context_parse(context, &head, argv, &error)) {
    *status = ms_cli_usage(verb, "%s", unknown ? unknown : error->message);
    return FALSE;
  }
  memmove(*argv + head, *argv + before + 1, sizeof **argv * (size_t)tail);
  *argc = head + tail;
  return TRUE;
}

const MsVerb *ms_cli_verb(const char *name) {
  for (const MsVerb *verb = ms_verbs; verb->name; verb++)
    if (strcmp(verb->name, name) == 0) return verb;
  return NULL;
}

char *ms_cli_date_of(const char *given) {
  if (given) return g_strdup(given);
  const char *epoch = g_getenv("SOURCE_DATE_EPOCH");
  gint64 seconds = epoch && *epoch ? g_ascii_strtoll(epoch, NULL, 10) : (gint64)time(NULL);
  g_autoptr(GDateTime) date = g_date_time_new_from_unix_utc(seconds);
  return date ? g_date_time_format(date, "%Y-%m-%d") : g_strdup("unknown");
}
