/* src/base/io.c - files, standard output, progress, Ctrl-C. */
#include "base/io.h"

#include "base/err.h"
#include "base/json.h"
#include "base/library.h"
#include "base/order.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static gboolean env_error(GError **error, const char *filename, const char *what, int err) {
  char *shown = g_filename_display_name(filename);
  g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: %s: %s", shown, what, g_strerror(err));
  g_free(shown);
  return FALSE;
}

/* --- a file that is not there ---------------------------------------------------------------------------------- */
static char *stem_of(const char *name) {
  const char *dot = strrchr(name, '.');
  return g_strndup(name, dot && dot > name ? (gsize)(dot - name) : strlen(name));
}

/* Of the files of `folder` that end as `name` does, or of all where it has no ending, the one that is called nearly so.
 * (transfer full) */
static char *nearest_in(const char *folder, const char *name) {
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free), stems = g_ptr_array_new_with_free_func(g_free);
  const char *entry, *ending = strrchr(name, '.');
  while (dir && (entry = g_dir_read_name(dir)))
    if (!ending || g_str_has_suffix(entry, ending)) g_ptr_array_add(files, g_strdup(entry));
  g_ptr_array_sort(files, ms_by_text); /* of equally near ones always the same */
  for (guint i = 0; i < files->len; i++) g_ptr_array_add(stems, stem_of(files->pdata[i]));
  g_ptr_array_add(stems, NULL);
  g_autofree char *stem = stem_of(name);
  const char *near = ms_nearest(stem, (const char *const *)stems->pdata);
  for (guint i = 0; near && i < files->len; i++)
    if (stems->pdata[i] == near) return g_build_filename(folder, files->pdata[i], NULL);
  return NULL;
}

char *ms_file_suggestion(const char *filename) {
  g_autofree char *folder = g_path_get_dirname(filename), *name = g_path_get_basename(filename);
  g_autofree char *near = nearest_in(folder, name);
  return near ? g_strdup(g_str_has_prefix(near, "./") && filename[0] != '.' ? near + 2 : near) : NULL;
}

/* It may also be one of the shipped scenarios without its folder. */
static gboolean cannot_read(GError **error, const char *filename, int err) {
  g_autofree char *near = err == ENOENT ? ms_file_suggestion(filename) : NULL;
  g_autofree char *shipped = g_build_filename(ms_data_dir(), "scenarios", NULL), *name = g_path_get_basename(filename);
  if (err == ENOENT && !near) near = nearest_in(shipped, name);
  if (!near) return env_error(error, filename, "cannot be read", err);
  g_autofree char *shown = g_filename_display_name(filename);
  return ms_error(error, MS_ERROR_ENV, "%s: there is no such file, did you mean %s?", shown, near);
}

/* Returns 0 or errno. A file is read in one piece. */
static int read_all(FILE *stream, gsize most, GString *text) {
  struct stat st;
  gboolean file = fstat(fileno(stream), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
  gsize piece = file ? MIN((gsize)st.st_size, most) + 1 : 65536;
  errno = 0;
  while (text->len <= most && !feof(stream) && !ferror(stream)) {
    gsize before = text->len;
    g_string_set_size(text, before + piece);
    g_string_set_size(text, before + fread(text->str + before, 1, piece, stream));
  }
  return ferror(stream) ? (errno ? errno : EIO) : 0;
}

char *ms_read_file(const char *filename, gsize most, gsize *length, GError **error) {
  gboolean standard = strcmp(filename, "-") == 0;
  FILE *stream = standard ? stdin : g_fopen(filename, "rb");
  GString *text = g_string_new(NULL);
  int err = stream ? read_all(stream, most, text) : errno;
  if (stream && !standard) fclose(stream);
  if (err) cannot_read(error, standard ? "<stdin>" : filename, err);
  *length = text->len;
  return g_string_free(text, err != 0);
}

GInputStream *ms_open_file(const char *filename, GError **error) {
  gboolean standard = strcmp(filename, "-") == 0;
  const char *name = standard ? "/dev/stdin" : filename;
  g_autoptr(GFile) file = g_file_new_for_path(name);
  GFileInputStream *in = g_file_read(file, NULL, NULL);
  if (in) return G_INPUT_STREAM(in);
  int err = g_access(name, R_OK) != 0 ? errno : g_file_test(name, G_FILE_TEST_IS_DIR) ? EISDIR : EIO;
  cannot_read(error, standard ? "<stdin>" : filename, err);
  return NULL;
}

/* Returns 0 or errno. */
static int write_all(int fd, const char *data, size_t length) {
  while (length > 0) {
    ssize_t n = write(fd, data, length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    data += n;
    length -= (size_t)n;
  }
  return 0;
}

/* A device or a pipe must not be replaced by a file. */
static gboolean is_special(const char *filename) {
  GStatBuf st;
  return g_stat(filename, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

gboolean ms_make_folder(const char *folder, GError **error) {
  if (!folder || g_mkdir_with_parents(folder, 0777) == 0) return TRUE;
  return ms_error(error, MS_ERROR_ENV, "%s: %s", folder, g_strerror(errno));
}

gboolean ms_can_write(const char *filename, GError **error) {
  if (!filename || strcmp(filename, "-") == 0) return TRUE;
  if (g_file_test(filename, G_FILE_TEST_IS_DIR)) return env_error(error, filename, "cannot be written", EISDIR);
  if (is_special(filename))
    return g_access(filename, W_OK) == 0 || env_error(error, filename, "cannot be written", errno);
  g_autofree char *folder = g_path_get_dirname(filename); /* a file is made anew beside the old one */
  if (g_access(folder, W_OK) != 0) return env_error(error, filename, "cannot be written", errno);
  return g_file_test(folder, G_FILE_TEST_IS_DIR) || env_error(error, filename, "cannot be written", ENOTDIR);
}

enum { WRITER_BYTES = 1 << 20 };
struct MsWriter {
  char *target, *temporary; /* temporary NULL: written in place */
  int fd;                   /* -1: standard output */
  int err;                  /* first errno */
  size_t used;
  char buffer[WRITER_BYTES];
};

static void writer_free(MsWriter *writer) {
  g_free(writer->target), g_free(writer->temporary);
  g_free(writer);
}

MsWriter *ms_writer_open(const char *filename, GError **error) {
  MsWriter *writer = g_malloc(sizeof *writer);
  writer->target = g_strdup(filename), writer->temporary = NULL, writer->fd = -1, writer->err = 0, writer->used = 0;
  if (strcmp(filename, "-") == 0) return writer;
  if (!is_special(filename)) writer->temporary = g_strdup_printf("%s.%ld.tmp", filename, (long)getpid());
  writer->fd = writer->temporary ? g_open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666)
                                 : g_open(filename, O_WRONLY, 0666);
  if (writer->fd >= 0) return writer;
  env_error(error, filename, "cannot be written", errno);
  writer_free(writer);
  return NULL;
}

static void writer_pass(MsWriter *writer, const char *data, size_t length) {
  if (writer->fd < 0) fwrite(data, 1, length, stdout); /* ms_flush_stdout sees what went wrong */
  else if (!writer->err) writer->err = write_all(writer->fd, data, length);
}

void ms_writer_put(MsWriter *writer, const char *data, size_t length) {
  if (length > WRITER_BYTES - writer->used) {
    writer_pass(writer, writer->buffer, writer->used);
    writer->used = 0;
    if (length > WRITER_BYTES) {
      writer_pass(writer, data, length);
      return;
    }
  }
  memcpy(writer->buffer + writer->used, data, length);
  writer->used += length;
}

gboolean ms_writer_close(MsWriter *writer, GError **error) {
  gboolean standard = writer->fd < 0;
  writer_pass(writer, writer->buffer, writer->used);
  if (!standard && close(writer->fd) != 0 && !writer->err) writer->err = errno;
  if (!writer->err && writer->temporary && g_rename(writer->temporary, writer->target) != 0) writer->err = errno;
  if (writer->err && writer->temporary) g_unlink(writer->temporary);
  gboolean whole = standard      ? ms_flush_stdout(error)
                   : writer->err ? env_error(error, writer->target, "cannot be written", writer->err)
                                 : TRUE;
  writer_free(writer);
  return whole;
}

gboolean ms_writer_close_unless_stopped(MsWriter *writer, GError **error) {
  if (!ms_interrupted()) return ms_writer_close(writer, error);
  if (writer->fd >= 0) close(writer->fd);
  if (writer->temporary) g_unlink(writer->temporary);
  ms_error(error, MS_ERROR_NOTHING, "%s: stopped before it was whole%s", writer->target,
           writer->temporary ? ", nothing is written" : "");
  writer_free(writer);
  return FALSE;
}

gboolean ms_write_file(const char *filename, const char *data, gssize length, GError **error) {
  MsWriter *writer = ms_writer_open(filename, error);
  if (!writer) return FALSE;
  ms_writer_put(writer, data, length < 0 ? strlen(data) : (size_t)length);
  return ms_writer_close(writer, error);
}

gboolean ms_stdout_abandoned(void) {
  struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
  return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

gboolean ms_flush_stdout(GError **error) {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) return TRUE;
  return env_error(error, "standard output", "cannot be written", errno ? errno : ms_stdout_abandoned() ? EPIPE : EIO);
}

static char *data_folder;

void ms_data_dir_set(const char *folder) {
  g_free(data_folder);
  data_folder = g_strdup(folder);
}

#ifndef MS_NO_SOURCE_DATA /* a package must not look into the tree it was built in */
static gboolean has_data(const char *folder) {
  g_autofree char *models = g_build_filename(folder, "models", NULL),
                  *data = g_build_filename(folder, "software", NULL);
  return g_file_test(models, G_FILE_TEST_IS_DIR) && g_file_test(data, G_FILE_TEST_IS_DIR);
}

/* The tree that the program lies in (build/moesim, build/tests/test_io): a copy of a tree has data of its own; else the
 * one it was built in. NULL: neither is there. */
static const char *source_folder(void) {
  enum { DEEPEST = 3 };
  static char *found;
  static gsize once;
  if (g_once_init_enter(&once)) {
    char *folder = g_file_read_link("/proc/self/exe", NULL);
    for (int i = 0; folder && !found && i < DEEPEST; i++) {
      char *above = g_path_get_dirname(folder);
      g_free(folder), folder = above;
      if (has_data(folder)) found = g_strdup(folder);
    }
    g_free(folder);
    if (!found && has_data(MS_SOURCE_DIR)) found = g_strdup(MS_SOURCE_DIR);
    g_once_init_leave(&once, 1);
  }
  return found;
}
#endif

const char *ms_data_dir(void) {
  const char *given = g_getenv("MOESIM_DATA");
  if (given && *given) return given;
  if (data_folder) return data_folder;
#ifndef MS_NO_SOURCE_DATA
  if (source_folder()) return source_folder();
#endif
  return MS_DATA_DIR;
}

/* --- Ctrl-C and the time limit: signals require variables ----------------------------------------------------------
 */
static volatile sig_atomic_t interrupted, /* number of the signal */
    began_s;                              /* monotonic clock; 0: no long work */

static void on_signal(int number) {
  if (interrupted && number != SIGALRM) {
    signal(number, SIG_DFL);
    raise(number);
  }
  if (!interrupted) interrupted = number;
}

/* Waits at most as long as the timer can count, which is longer than any machine runs. */
static void set_timer(double limit_s) {
  struct itimerval timer = {0};
  if (isfinite(limit_s)) {
    gint64 us = MAX(1, (gint64)(MIN(limit_s, 1e8) * 1e6));
    timer.it_value = (struct timeval){us / G_USEC_PER_SEC, us % G_USEC_PER_SEC};
  }
  setitimer(ITIMER_REAL, &timer, NULL);
}

void ms_interrupt_install(double limit_s) {
  static const int signals[] = {SIGINT, SIGTERM, SIGALRM};
  struct sigaction action = {.sa_handler = on_signal};
  sigemptyset(&action.sa_mask);
  interrupted = 0;
  began_s = (sig_atomic_t)(g_get_monotonic_time() / G_USEC_PER_SEC);
  for (size_t i = 0; i < G_N_ELEMENTS(signals); i++) sigaction(signals[i], &action, NULL);
  set_timer(limit_s);
}

static __thread const volatile int *own_stop; /* of one caller of a library, handed on to the threads of its work */

void ms_stop_use(const volatile int *stop) { own_stop = stop; }
const volatile int *ms_stop_used(void) { return own_stop; }

gboolean ms_interrupted(void) { return interrupted != 0 || (own_stop && *own_stop); }

const char *ms_interrupt_reason(void) {
  return !ms_interrupted() ? NULL : interrupted == SIGALRM ? "the time limit was reached" : "interrupted";
}

/* --- progress ----------------------------------------------------------------------------------------------------- */
struct MsProgress {
  char *what;
  double total;
  gboolean terminal;
  gint64 drawn_us, begun_us;
  gint64 every_us, lines; /* of a pipe: lines that were due when the last was printed */
};

/* Seconds between two lines in a pipe. */
static double line_every_s(void) {
  const char *given = g_getenv("MOESIM_PROGRESS_S");
  double s = given && *given ? g_ascii_strtod(given, NULL) : 30;
  return s >= 0 && s < 1e6 ? s : 30;
}

/* Lines due since the long work began, which may be many short pieces of progress. */
static gint64 lines_due(const MsProgress *p, gint64 now_us) {
  return (now_us - (gint64)began_s * G_USEC_PER_SEC) / p->every_us;
}

MsProgress *ms_progress_begin(const char *what, double total) {
  gboolean terminal = isatty(STDERR_FILENO);
  if (!terminal && !began_s) return NULL;
  MsProgress *p = g_new0(MsProgress, 1);
  *p = (MsProgress){.what = g_strdup(what), .total = total, .terminal = terminal, .begun_us = g_get_monotonic_time()};
  p->every_us = (gint64)(line_every_s() * 1e6);
  if (p->every_us > 0) p->lines = lines_due(p, p->begun_us);
  return p;
}

static gboolean is_due(MsProgress *p, gint64 now_us) {
  if (!p->terminal && p->every_us > 0) {
    gint64 due = lines_due(p, now_us);
    if (due == p->lines) return FALSE;
    p->lines = due;
  }
  if (p->terminal && now_us - p->drawn_us < 100000) return FALSE;
  p->drawn_us = now_us;
  return TRUE;
}

/* "34 % (about 20 s left) ", or nothing when nobody knows. */
static void share_text(const MsProgress *p, double done, gint64 now_us, char *text, gsize size) {
  *text = '\0';
  if (!(p->total > 0)) return;
  double share = CLAMP(done / p->total, 0, 1),
         left_s = share > 0.01 ? (1 - share) / share * (double)(now_us - p->begun_us) / 1e6 : 0;
  if (left_s >= 1)
    g_snprintf(text, size, " %3.0f %% (about %.0f %s left)", 100 * share, left_s < 120 ? left_s : left_s / 60,
               left_s < 120 ? "s" : "min");
  else g_snprintf(text, size, " %3.0f %%", 100 * share);
}

void ms_progress_update(MsProgress *p, double done, const char *note) {
  gint64 now_us = g_get_monotonic_time();
  if (!p || !is_due(p, now_us)) return;
  char share[64];
  share_text(p, done, now_us, share, sizeof share);
  if (p->terminal) fprintf(stderr, "\r\033[K%s%s %s", p->what, share, note ? note : "");
  else
    fprintf(stderr, "moesim: %s%s%s%s, %.0f s so far\n", p->what, share, note ? ": " : "", note ? note : "",
            (double)now_us / 1e6 - (double)began_s);
  fflush(stderr);
}

void ms_progress_end(MsProgress *progress) {
  if (!progress) return;
  if (progress->terminal && progress->drawn_us) fputs("\r\033[K", stderr);
  g_free(progress->what);
  g_free(progress);
}

char *ms_user_data_file(const char *folder, const char *name) {
  g_autofree char *base = g_strconcat(name, ".json", NULL);
  return g_build_filename(g_get_user_data_dir(), "moesim", folder, base, NULL);
}
