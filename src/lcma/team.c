#include "lcma/team.h"

#include <dirent.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "lcma/kernel.h"

/* A thread that waits looks again and again before it sleeps, as long as falling asleep and waking up take: phases of
 * one multiplication follow each other at once, and nobody waits more than twice what is needed. */
enum { LOOK_US = 50 };

struct MsTeam {
  int threads;
  GThread **helpers; /* threads - 1 */
  GMutex mutex;
  GCond start, done;
  int phase;   /* counts the calls of ms_team_run; -1: go home; changed under the lock, read without */
  int working; /* helpers that have not finished this phase; the same */
  MsTask task;
  void *context;
  int tasks, next; /* next is atomic */
  int resting;     /* nobody looks; atomic */
};

typedef struct {
  MsTeam *team;
  int worker;
} Helper;

static void work(MsTeam *team, int worker) {
  for (int i; (i = g_atomic_int_add(&team->next, 1)) < team->tasks;) team->task(team->context, i, worker);
  ms_kernel_fence(); /* streamed stores before the lock that others take afterwards */
}

static void pause_once(void) {
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

/* TRUE as soon as *value is not `old` any more, FALSE when that takes longer than LOOK_US or the team rests. The CPU is
 * not given away meanwhile: on a busy host the others would keep it for their whole slices, many times as long, while
 * who sleeps is woken before them. */
static gboolean changes(const MsTeam *team, const int *value, int old) {
  gint64 until = g_get_monotonic_time() + LOOK_US;
  while (g_atomic_int_get(value) == old)
    if (g_atomic_int_get(&team->resting) || g_get_monotonic_time() > until) return FALSE;
    else pause_once();
  return TRUE;
}

static gpointer helper_main(gpointer data) {
  Helper self = *(Helper *)data;
  MsTeam *team = self.team;
  g_free(data);
  for (int seen = 0;;) {
    changes(team, &team->phase, seen);
    g_mutex_lock(&team->mutex);
    while (team->phase == seen) g_cond_wait(&team->start, &team->mutex);
    seen = team->phase;
    g_mutex_unlock(&team->mutex);
    if (seen < 0) return NULL;
    work(team, self.worker);
    g_mutex_lock(&team->mutex);
    g_atomic_int_add(&team->working, -1);
    if (team->working == 0) g_cond_signal(&team->done);
    g_mutex_unlock(&team->mutex);
  }
}

MsTeam *ms_team_new(int threads) {
  MsTeam *team = g_new0(MsTeam, 1);
  team->threads = MAX(threads, 1);
  g_mutex_init(&team->mutex);
  g_cond_init(&team->start);
  g_cond_init(&team->done);
  team->helpers = g_new0(GThread *, team->threads);
  for (int i = 1; i < team->threads; i++) {
    Helper *helper = g_new(Helper, 1);
    *helper = (Helper){team, i};
    team->helpers[i - 1] = g_thread_new("lcma", helper_main, helper);
  }
  return team;
}

void ms_team_free(MsTeam *team) {
  if (!team) return;
  g_mutex_lock(&team->mutex);
  g_atomic_int_set(&team->phase, -1);
  g_cond_broadcast(&team->start);
  g_mutex_unlock(&team->mutex);
  for (int i = 1; i < team->threads; i++) g_thread_join(team->helpers[i - 1]);
  g_free(team->helpers);
  g_mutex_clear(&team->mutex);
  g_cond_clear(&team->start);
  g_cond_clear(&team->done);
  g_free(team);
}

int ms_team_threads(const MsTeam *team) { return team->threads; }

double ms_team_clock_s(const MsTeam *team) {
  return team->threads == 1 ? ms_process_cpu_s() : ms_clock_s(CLOCK_MONOTONIC);
}

double ms_team_waited_s(void) {
  double waited_s = 0;
  DIR *threads = opendir("/proc/self/task");
  for (const struct dirent *e; threads && (e = readdir(threads));) {
    char name[sizeof "/proc/self/task//schedstat" + sizeof e->d_name], text[100] = "";
    snprintf(name, sizeof name, "/proc/self/task/%s/schedstat", e->d_name);
    const int file = open(name, O_RDONLY | O_CLOEXEC);
    unsigned long long waited_ns;
    if (file >= 0 && read(file, text, sizeof text - 1) > 0 && sscanf(text, "%*u %llu", &waited_ns) == 1)
      waited_s += 1e-9 * (double)waited_ns;
    if (file >= 0) close(file);
  }
  if (threads) closedir(threads);
  return waited_s;
}

int ms_team_undisturbed(double waited_s, double time_s) { return waited_s < 0.02 * time_s + 20e-6; }

void ms_team_rest(MsTeam *team) { g_atomic_int_set(&team->resting, TRUE); }

void ms_team_run(MsTeam *team, MsTask task, void *context, int tasks) {
  g_atomic_int_set(&team->resting, FALSE);
  team->task = task;
  team->context = context;
  team->tasks = tasks;
  g_atomic_int_set(&team->next, 0);
  if (team->threads == 1 || tasks <= 1) {
    work(team, 0);
    return;
  }
  g_mutex_lock(&team->mutex);
  team->working = team->threads - 1;
  g_atomic_int_set(&team->phase, team->phase == G_MAXINT ? 1 : team->phase + 1);
  g_cond_broadcast(&team->start);
  g_mutex_unlock(&team->mutex);
  work(team, 0);
  for (int left; (left = g_atomic_int_get(&team->working)) > 0 && changes(team, &team->working, left);) {}
  g_mutex_lock(&team->mutex);
  while (team->working > 0) g_cond_wait(&team->done, &team->mutex);
  g_mutex_unlock(&team->mutex);
}
