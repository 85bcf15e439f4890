/* src/plan/parallel.c - one function on many indices, shared out between ranks and threads. Which thread takes which
 * index does not show in results: what is gathered is put in order or added up afterwards. */
#include "plan/parallel_priv.h"
#include "base/library.h"
#include "base/ranks.h"

typedef struct {
  int n, thread;
  gint *next;
  MsWorkFunc work;
  gpointer data;
  const volatile int *stop;
} Worker; /* next: NULL = shared out with other ranks */

/* -1: no more. */
static int take(const Worker *w) {
  if (!w->next) return ms_ranks_work_take();
  int index = g_atomic_int_add(w->next, 1);
  return index < w->n ? index : -1;
}

static gpointer run(gpointer data) {
  const Worker *w = data;
  ms_stop_use(w->stop);
  for (int i; (i = take(w)) >= 0;) w->work(i, w->thread, w->data);
  return NULL;
}

int ms_parallel_threads(int wanted) {
  int cores = (int)g_get_num_processors();
  if (wanted > 0) return wanted;
  return MAX(1, cores / ms_ranks_local());
}

static void share_out(int n, gint *next, int threads, MsWorkFunc work, gpointer data) {
  threads = MIN(ms_parallel_threads(threads), MAX(1, n));
  g_autofree Worker *worker = g_new(Worker, threads);
  g_autofree GThread **thread = g_new0(GThread *, threads);
  for (int i = 0; i < threads; i++) worker[i] = (Worker){n, i, next, work, data, ms_stop_used()};
  for (int i = 1; i < threads; i++)
    thread[i] = g_thread_try_new("plan", run, &worker[i], NULL); /* without it, the others do its share */
  run(&worker[0]);
  for (int i = 1; i < threads; i++)
    if (thread[i]) g_thread_join(thread[i]);
}

void ms_parallel_here(int n, int threads, MsWorkFunc work, gpointer data) {
  gint next = 0;
  share_out(n, &next, threads, work, data);
}

void ms_parallel(int n, int threads, MsWorkFunc work, gpointer data) {
  if (ms_ranks_count() == 1) { /* then several threads of a program may plan at once */
    ms_parallel_here(n, threads, work, data);
    return;
  }
  ms_ranks_work_begin(n);
  share_out(n, NULL, threads, work, data);
}
