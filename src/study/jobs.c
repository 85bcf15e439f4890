#include "study/jobs.h"

#include "base/err.h"
#include "base/io.h"

typedef struct {
  MsJobFunc func;
  gconstpointer data;
  GAsyncQueue *done;
} Shift;

static void work(gpointer item, gpointer data) {
  const Shift *shift = data;
  shift->func(item, shift->data);
  g_async_queue_push(shift->done, item);
}

gboolean ms_jobs_run(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options, GError **error) {
  g_autoptr(GAsyncQueue) done = g_async_queue_new();
  Shift shift = {func, data, done};
  int threads = options->threads > 0 ? options->threads : (int)g_get_num_processors();
  gsize size = g_array_get_element_size(items);
  ms_data_dir(); /* resolved once, before there are threads */
  GThreadPool *pool = g_thread_pool_new(work, &shift, threads, TRUE, NULL);
  if (!pool) {
    g_set_error_literal(error, MS_ERROR, MS_ERROR_ENV, "cannot start threads");
    return FALSE;
  }
  for (guint i = 0; i < items->len; i++) g_thread_pool_push(pool, items->data + i * size, NULL);
  MsProgress *progress = options->progress ? ms_progress_begin(options->what, items->len) : NULL;
  for (guint i = 0; i < items->len; i++) {
    char *const *name = g_async_queue_pop(done);
    if (progress) ms_progress_update(progress, i + 1, *name);
  }
  ms_progress_end(progress);
  g_thread_pool_free(pool, FALSE, TRUE);
  if (!ms_interrupted()) return TRUE;
  g_set_error_literal(error, MS_ERROR, MS_ERROR_ENV, options->interrupted);
  return FALSE;
}
