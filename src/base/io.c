/* src/base/io.c - files, standard output, progress, Ctrl-C. */
#include "base/io.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static gboolean env_error(GError **error, const char *filename, const char *what, int err) {
  char *shown = g_filename_display_name(filename);
  g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: %s: %s", shown, what, g_strerror(err));
  g_free(shown);
  return FALSE;
}

/* Returns 0 or errno. */
static int read_all(FILE *stream, gsize most, GString *text) {
  char buffer[65536];
  size_t n;
  errno = 0;
  while (text->len <= most && (n = fread(buffer, 1, sizeof buffer, stream)) > 0) g_string_append_len(text, buffer, (gssize)n);
  return ferror(stream) ? (errno ? errno : EIO) : 0;
}

char *ms_read_file(const char *filename, gsize most, gsize *length, GError **error) {
  gboolean standard = strcmp(filename, "-") == 0;
  FILE *stream = standard ? stdin : g_fopen(filename, "rb");
  GString *text = g_string_new(NULL);
  int err = stream ? read_all(stream, most, text) : errno;
  if (stream && !standard) fclose(stream);
  if (err) env_error(error, standard ? "<stdin>" : filename, "cannot be read", err);
  *length = text->len;
  return g_string_free(text, err != 0);
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

static int write_to_name(const char *name, int flags, const char *data, size_t length) {
  int fd = g_open(name, flags, 0666);
  if (fd < 0) return errno;
  int err = write_all(fd, data, length);
  if (close(fd) != 0 && !err) err = errno;
  return err;
}

/* A device or a pipe must not be replaced by a file. */
static gboolean is_special(const char *filename) {
  GStatBuf st;
  return g_stat(filename, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static gboolean write_stdout(const char *data, size_t length, GError **error) {
  fwrite(data, 1, length, stdout);
  return ms_flush_stdout(error);
}

gboolean ms_write_file(const char *filename, const char *data, gssize length, GError **error) {
  size_t n = length < 0 ? strlen(data) : (size_t)length;
  if (strcmp(filename, "-") == 0) return write_stdout(data, n, error);
  if (is_special(filename)) {
    int err = write_to_name(filename, O_WRONLY, data, n);
    return err ? env_error(error, filename, "cannot be written", err) : TRUE;
  }
  char *temporary = g_strdup_printf("%s.%ld.tmp", filename, (long)getpid());
  int err = write_to_name(temporary, O_WRONLY | O_CREAT | O_TRUNC, data, n);
  if (!err && g_rename(temporary, filename) != 0) err = errno;
  if (err) g_unlink(temporary);
  g_free(temporary);
  return err ? env_error(error, filename, "cannot be written", err) : TRUE;
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

const char *ms_data_dir(void) {
  const char *given = g_getenv("MOESIM_DATA");
  if (given && *given) return given;
#ifndef MS_NO_SOURCE_DATA /* a package must not look into the tree it was built in */
  if (g_file_test(MS_SOURCE_DIR "/models", G_FILE_TEST_IS_DIR)) return MS_SOURCE_DIR;
#endif
  return MS_DATA_DIR;
}

/* --- progress
 * ----------------------------------------------------------------------------------------------------- */
struct MsProgress {
  char *what;
  double total;
  gint64 drawn_us, begun_us;
};

MsProgress *ms_progress_begin(const char *what, double total) {
  if (!isatty(STDERR_FILENO)) return NULL;
  MsProgress *progress = g_new0(MsProgress, 1);
  *progress = (MsProgress){.what = g_strdup(what), .total = total, .begun_us = g_get_monotonic_time()};
  return progress;
}

void ms_progress_update(MsProgress *progress, double done, const char *note) {
  gint64 now_us = g_get_monotonic_time();
  if (!progress || now_us - progress->drawn_us < 100000) return;
  progress->drawn_us = now_us;
  double percent = progress->total > 0 ? 100 * done / progress->total : 0;
  double left_s = percent > 1 ? (100 - percent) / percent * (double)(now_us - progress->begun_us) / 1e6 : 0;
  char left[48] = "";
  if (left_s >= 1) g_snprintf(left, sizeof left, " (about %.0f %s left)", left_s < 120 ? left_s : left_s / 60, left_s < 120 ? "s" : "min");
  fprintf(stderr, "\r\033[K%s %3.0f %% %s%s", progress->what, CLAMP(percent, 0, 100), note ? note : "", left);
  fflush(stderr);
}

void ms_progress_end(MsProgress *progress) {
  if (!progress) return;
  if (progress->drawn_us) fputs("\r\033[K", stderr);
  g_free(progress->what);
  g_free(progress);
}

/* --- Ctrl-C: the one mutable variable of the program, as signals require
 * ------------------------------------------- */
static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
  if (interrupted) {
    signal(number, SIG_DFL);
    raise(number);
  }
  interrupted = 1;
}

void ms_interrupt_install(void) {
  struct sigaction action = {.sa_handler = on_signal};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

gboolean ms_interrupted(void) { return interrupted != 0; }

char *ms_user_data_file(const char *folder, const char *name) {
  g_autofree char *base = g_strconcat(name, ".json", NULL);
  return g_build_filename(g_get_user_data_dir(), "moesim", folder, base, NULL);
}
