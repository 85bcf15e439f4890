#include "study/jobs.h"

#include "base/err.h"
#include "base/io.h"
#include "base/library.h"
#include "base/ranks.h"

#include <string.h>

typedef struct {
  MsJobFunc func;
  gconstpointer data;
  GAsyncQueue *ended;
  const volatile int *stop;
} Shift;

static void work(gpointer item, gpointer data) {
  const Shift *shift = data;
  MsJob *job = item;
  ms_stop_use(shift->stop);
  if (!ms_interrupted()) {
    job->done = TRUE;
    shift->func(item, shift->data);
  }
  g_async_queue_push(shift->ended, item);
}

/* One item at a time may take long: who waits hears of it all the same. */
static const MsJob *wait_for_one(GAsyncQueue *ended, MsProgress *progress, guint done, const char *last) {
  const MsJob *job;
  while (!(job = g_async_queue_timeout_pop(ended, G_USEC_PER_SEC))) ms_progress_update(progress, done, last);
  return job;
}

gboolean ms_extent_stopped(const MsExtent *extent) { return extent->done < extent->of; }

gboolean ms_jobs_run(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options, MsExtent *extent,
                     GError **error) {
  g_autoptr(GAsyncQueue) ended = g_async_queue_new();
  Shift shift = {func, data, ended, ms_stop_used()};
  int threads = options->threads > 0 ? options->threads : (int)g_get_num_processors();
  gsize size = g_array_get_element_size(items);
  *extent = (MsExtent){0, items->len, options->items};
  ms_data_dir(); /* resolved once, before there are threads */
  GThreadPool *pool = g_thread_pool_new(work, &shift, threads, TRUE, NULL);
  if (!pool) return ms_error(error, MS_ERROR_ENV, "cannot start threads");
  for (guint i = 0; i < items->len; i++) g_thread_pool_push(pool, items->data + i * size, NULL);
  MsProgress *progress = options->progress ? ms_progress_begin(options->what, items->len) : NULL;
  const char *last = NULL;
  for (guint i = 0; i < items->len; i++) {
    const MsJob *job = wait_for_one(ended, progress, extent->done, last);
    if (!job->done) continue;
    extent->done++;
    ms_progress_update(progress, extent->done, last = job->name);
  }
  ms_progress_end(progress);
  g_thread_pool_free(pool, FALSE, TRUE);
  return TRUE;
}

/* The first item of a rank; rank 0 has the first of all. */
static guint first_of(int rank, guint n) {
  guint64 ranks = (guint64)ms_ranks_count();
  return (guint)(((guint64)rank * n + ranks - 1) / ranks);
}

gboolean ms_jobs_own(guint n, guint item) {
  return item >= first_of(ms_ranks_own(), n) && item < first_of(ms_ranks_own() + 1, n);
}

gboolean ms_jobs_run_on_ranks(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options,
                              MsExtent *extent, GError **error) {
  if (ms_ranks_count() == 1) return ms_jobs_run(items, func, data, options, extent, error);
  gsize size = g_array_get_element_size(items);
  guint from = first_of(ms_ranks_own(), items->len), to = first_of(ms_ranks_own() + 1, items->len);
  MsJobsOptions mine = *options;
  if (mine.threads <= 0) mine.threads = MAX(1, (int)g_get_num_processors() / ms_ranks_local());
  mine.progress = options->progress && ms_ranks_own() == 0;
  g_autoptr(GArray) part = g_array_new(FALSE, FALSE, (guint)size);
  g_array_append_vals(part, items->data + from * size, to - from);
  gboolean ok = ms_jobs_run(part, func, data, &mine, extent, error);
  if (ms_ranks_any(!ok)) {
    if (ok) ms_error(error, MS_ERROR_ENV, "another rank cannot start threads");
    return FALSE;
  }
  ms_ranks_gather(part);
  *extent = (MsExtent){0, items->len, options->items};
  for (guint i = 0; i < items->len; i++) {
    MsJob *job = (MsJob *)(void *)(items->data + i * size);
    const char *name = job->name;
    memcpy(job, part->data + i * size, size);
    job->name = name;
    extent->done += job->done;
  }
  return TRUE;
}

gboolean ms_jobs_run_all(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options,
                         GError **error) {
  MsExtent extent;
  if (!ms_jobs_run(items, func, data, options, &extent, error)) return FALSE;
  if (!ms_extent_stopped(&extent)) return TRUE;
  return ms_error(error, MS_ERROR_NOTHING, "%s: %u of %u %s were done", ms_interrupt_reason(), extent.done, extent.of,
                  extent.what);
}
