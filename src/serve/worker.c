#include "serve/worker.h"

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/err.h"

const char *const ms_worker_words[] = {"waiting", "running", "done", "failed", "stopped", NULL};

enum { CHUNK_BYTES = 64 * 1024, MESSAGE_BYTES = 16 * 1024, GRACE_S = 5 };

struct MsWorkers {
  char *program, *folder; /* an empty folder, removed in the end */
  MsWorkerLimits limits;
  GQueue all; /* MsWorker, oldest first */
  guint running, waiting;
  gboolean closing;
  pid_t server; /* this process */
};

struct MsWorker {
  MsWorkers *owner;
  char *id, **argv, *input;
  MsWorkerEnded ended;
  gpointer user;
  MsWorkerState state;
  gboolean stopped;
  GSubprocess *process;
  guint open; /* of its pipes and itself, how many are still to end */
  GString *text, *message;
  gsize line_end; /* of `text`: one past the last whole line; the answer stands before it */
  char *answer, *chunk[2];
  int status;
  guint timer, lease, lines;
};

const char *ms_worker_id(const MsWorker *w) { return w->id; }
MsWorkerState ms_worker_state(const MsWorker *w) { return w->state; }
const char *ms_worker_answer(const MsWorker *w) { return w->answer; }
const char *ms_worker_message(const MsWorker *w) { return w->message->str; }
guint ms_worker_lines(const MsWorker *w) { return w->lines; }
int ms_worker_status(const MsWorker *w) { return w->status; }

static void worker_free(MsWorker *w) {
  if (w->timer) g_source_remove(w->timer);
  if (w->lease) g_source_remove(w->lease);
  g_clear_object(&w->process);
  g_strfreev(w->argv);
  g_free(w->input);
  g_free(w->id);
  g_free(w->answer);
  g_free(w->chunk[0]);
  g_free(w->chunk[1]);
  g_string_free(w->text, TRUE);
  g_string_free(w->message, TRUE);
  g_free(w);
}

static gboolean is_over(const MsWorker *w) { return w->state >= MS_WORKER_DONE; }

/* --- limits ---------------------------------------------------------------------------------------------------- */
static void limit(int what, guint64 value) {
  struct rlimit r = {value, value};
  setrlimit(what, &r);
}

static void in_the_child(gpointer user) { /* between fork and exec */
  const MsWorkers *workers = user;
  const MsWorkerLimits *limits = &workers->limits;
  prctl(PR_SET_PDEATHSIG, SIGKILL);                      /* a server that is killed leaves nothing running, */
  if (getppid() != workers->server) _exit(MS_ERROR_ENV); /* not even what it had just begun */
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, 4 * (guint64)limits->time_s); /* of all its threads */
#ifndef __SANITIZE_ADDRESS__                      /* whose shadow alone is larger */
  if (limits->memory_B) limit(RLIMIT_AS, limits->memory_B);
#endif
}

/* --- the end of one, the start of the next --------------------------------------------------------------------- */
static void start_waiting(MsWorkers *workers);

static void forget_oldest(MsWorkers *workers) {
  for (GList *at = workers->all.head; at && workers->all.length > workers->limits.kept;) {
    GList *next = at->next;
    MsWorker *w = at->data;
    if (is_over(w)) {
      g_queue_delete_link(&workers->all, at);
      worker_free(w);
    }
    at = next;
  }
}

static void part_ended(MsWorker *w) {
  if (--w->open > 0) return;
  MsWorkers *workers = w->owner;
  gboolean exited = g_subprocess_get_if_exited(w->process);
  w->status = exited ? g_subprocess_get_exit_status(w->process) : -1;
  w->state = w->stopped                                        ? MS_WORKER_STOPPED
             : w->status == 0 || w->status == MS_ERROR_NOTHING ? MS_WORKER_DONE
                                                               : MS_WORKER_FAILED;
  if (w->timer) g_source_remove(w->timer);
  w->timer = 0;
  g_clear_object(&w->process); /* with its pipes: what it said is kept for long */
  workers->running--;
  if (workers->closing) return;
  if (w->ended) w->ended(w, w->user);
  forget_oldest(workers);
  start_waiting(workers);
}

static void process_ended(GObject *process, GAsyncResult *result, gpointer user) {
  g_subprocess_wait_finish(G_SUBPROCESS(process), result, NULL);
  part_ended(user);
}

/* --- pipes ----------------------------------------------------------------------------------------------------- */
static void take_output(MsWorker *w, gsize n) {
  g_string_append_len(w->text, w->chunk[0], (gssize)n);
  const char *end = memrchr(w->text->str, '\n', w->text->len);
  if (end) {
    const char *line = end;
    while (line > w->text->str && line[-1] != '\n') line--;
    w->lines++;
    g_free(w->answer);
    w->answer = g_strndup(line, (gsize)(end - line));
    g_string_erase(w->text, 0, end + 1 - w->text->str);
  }
  if (w->text->len > w->owner->limits.answer_B) g_subprocess_force_exit(w->process);
}

static void take_message(MsWorker *w, gsize n) {
  gsize room = MESSAGE_BYTES - MIN(w->message->len, MESSAGE_BYTES);
  g_string_append_len(w->message, w->chunk[1], (gssize)MIN(n, room));
}

static void read_on(MsWorker *w, int which);

static void has_read(MsWorker *w, int which, GObject *stream, GAsyncResult *result) {
  gssize n = g_input_stream_read_finish(G_INPUT_STREAM(stream), result, NULL);
  if (n > 0) {
    (which ? take_message : take_output)(w, (gsize)n);
    read_on(w, which);
  } else {
    part_ended(w);
  }
}
static void has_output(GObject *stream, GAsyncResult *result, gpointer user) { has_read(user, 0, stream, result); }
static void has_message(GObject *stream, GAsyncResult *result, gpointer user) { has_read(user, 1, stream, result); }

static void read_on(MsWorker *w, int which) {
  GInputStream *pipe = which ? g_subprocess_get_stderr_pipe(w->process) : g_subprocess_get_stdout_pipe(w->process);
  g_input_stream_read_async(pipe, w->chunk[which], CHUNK_BYTES, G_PRIORITY_DEFAULT, NULL,
                            which ? has_message : has_output, w);
}

static void input_closed(GObject *stream, GAsyncResult *result, gpointer user) {
  g_output_stream_close_finish(G_OUTPUT_STREAM(stream), result, NULL);
  part_ended(user);
}

static void has_written(GObject *stream, GAsyncResult *result, gpointer user) {
  g_output_stream_write_all_finish(G_OUTPUT_STREAM(stream), result, NULL,
                                   NULL); /* a worker that refuses early has closed it: its message says why */
  g_output_stream_close_async(G_OUTPUT_STREAM(stream), G_PRIORITY_DEFAULT, NULL, input_closed, user);
}

/* --- start and stop -------------------------------------------------------------------------------------------- */
static gboolean kill_now(gpointer user) {
  MsWorker *w = user;
  w->timer = 0;
  g_subprocess_force_exit(w->process);
  return G_SOURCE_REMOVE;
}

static gboolean time_is_over(gpointer user) {
  MsWorker *w = user;
  w->timer = 0;
  ms_worker_stop(w);
  return G_SOURCE_REMOVE;
}

void ms_worker_stop(MsWorker *w) {
  if (is_over(w)) return;
  w->stopped = TRUE;
  if (w->state == MS_WORKER_WAITING) {
    w->state = MS_WORKER_STOPPED;
    w->owner->waiting--;
    if (w->ended) w->ended(w, w->user);
    return;
  }
  g_subprocess_send_signal(w->process, SIGTERM);
  if (w->timer) g_source_remove(w->timer);
  w->timer = g_timeout_add_seconds(GRACE_S, kill_now, w);
}

static gboolean lease_is_over(gpointer user) {
  MsWorker *w = user;
  w->lease = 0;
  ms_worker_stop(w);
  return G_SOURCE_REMOVE;
}

void ms_worker_lease(MsWorker *w, guint seconds) {
  if (w->lease) g_source_remove(w->lease);
  w->lease = is_over(w) ? 0 : g_timeout_add_seconds(seconds, lease_is_over, w);
}

void ms_worker_abandon(MsWorker *w) {
  w->ended = NULL;
  if (is_over(w)) return;
  if (w->state == MS_WORKER_RUNNING) g_subprocess_force_exit(w->process);
  ms_worker_stop(w);
}

static void fail_to_start(MsWorker *w, GError *error) {
  g_string_assign(w->message, error->message);
  g_error_free(error);
  w->state = MS_WORKER_FAILED;
  w->status = MS_ERROR_ENV;
  if (w->ended) w->ended(w, w->user);
}

static void start(MsWorker *w) {
  MsWorkers *workers = w->owner;
  GError *error = NULL;
  g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(
      G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE);
  g_subprocess_launcher_set_cwd(launcher, workers->folder);
  g_subprocess_launcher_setenv(launcher, "NO_COLOR", "1", TRUE);
  g_subprocess_launcher_set_child_setup(launcher, in_the_child, workers, NULL);
  w->process = g_subprocess_launcher_spawnv(launcher, (const char *const *)w->argv, &error);
  if (!w->process) {
    fail_to_start(w, error);
    return;
  }
  w->state = MS_WORKER_RUNNING;
  workers->running++;
  w->open = 4;
  w->chunk[0] = g_malloc(CHUNK_BYTES), w->chunk[1] = g_malloc(CHUNK_BYTES);
  w->timer = g_timeout_add_seconds(workers->limits.time_s, time_is_over, w);
  g_subprocess_wait_async(w->process, NULL, process_ended, w);
  g_output_stream_write_all_async(g_subprocess_get_stdin_pipe(w->process), w->input, strlen(w->input),
                                  G_PRIORITY_DEFAULT, NULL, has_written, w);
  read_on(w, 0);
  read_on(w, 1);
}

static void start_waiting(MsWorkers *workers) {
  for (GList *at = workers->all.head; at && workers->running < workers->limits.running; at = at->next) {
    MsWorker *w = at->data;
    if (w->state != MS_WORKER_WAITING) continue;
    workers->waiting--;
    start(w);
  }
}

static gboolean start_soon(gpointer user) {
  start_waiting(user);
  return G_SOURCE_REMOVE;
}

MsWorker *ms_workers_start(MsWorkers *workers, const char *const *argv, const char *input, MsWorkerEnded ended,
                           gpointer user) {
  if (workers->closing || workers->waiting >= workers->limits.waiting) return NULL;
  MsWorker *w = g_new0(MsWorker, 1);
  *w = (MsWorker){.owner = workers,
                  .id = g_uuid_string_random(),
                  .input = g_strdup(input),
                  .ended = ended,
                  .user = user,
                  .text = g_string_new(NULL),
                  .message = g_string_new(NULL)};
  GStrvBuilder *all = g_strv_builder_new();
  g_strv_builder_add(all, workers->program);
  for (int i = 0; argv[i]; i++) g_strv_builder_add(all, argv[i]);
  w->argv = g_strv_builder_end(all);
  g_strv_builder_unref(all);
  g_queue_push_tail(&workers->all, w);
  workers->waiting++;
  forget_oldest(workers);
  g_idle_add(start_soon, workers); /* the caller is told of the end only after this returned */
  return w;
}

MsWorker *ms_workers_find(const MsWorkers *workers, const char *id) {
  for (GList *at = workers->all.head; at; at = at->next)
    if (strcmp(((MsWorker *)at->data)->id, id) == 0) return at->data;
  return NULL;
}

MsWorkers *ms_workers_new(const char *program, const MsWorkerLimits *limits, GError **error) {
  GError *why = NULL;
  char *folder = g_dir_make_tmp("moesim-serve-XXXXXX", &why);
  if (!folder) {
    g_set_error(error, MS_ERROR, MS_ERROR_ENV, "no folder for workers: %s", why->message);
    g_error_free(why);
    return NULL;
  }
  MsWorkers *workers = g_new0(MsWorkers, 1);
  *workers = (MsWorkers){.program = g_strdup(program), .folder = folder, .limits = *limits, .server = getpid()};
  g_queue_init(&workers->all);
  return workers;
}

void ms_workers_free(MsWorkers *workers) {
  if (!workers) return;
  workers->closing = TRUE;
  while (g_idle_remove_by_data(workers)) continue;
  for (GList *at = workers->all.head; at; at = at->next) {
    MsWorker *w = at->data;
    if (w->state == MS_WORKER_RUNNING) g_subprocess_force_exit(w->process);
  }
  while (workers->running > 0) g_main_context_iteration(NULL, TRUE);
  g_queue_clear_full(&workers->all, (GDestroyNotify)worker_free);
  g_rmdir(workers->folder);
  g_free(workers->folder);
  g_free(workers->program);
  g_free(workers);
}
