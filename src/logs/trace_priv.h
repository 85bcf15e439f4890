/* src/logs/trace_priv.h - a trace in the making: what all readers of profiles share. Only for logs/trace*.c.
 *
 * A reader gives kernels and marks in any order, then ms_trace_build_take() sorts, finds the steps (logs/trace.h) and
 * gives every kernel its own. */
#ifndef MS_LOGS_TRACE_PRIV_H
#define MS_LOGS_TRACE_PRIV_H

#include "logs/trace.h"

typedef struct {
  const char *name, *collective; /* NULL: the profiler does not name one */
  gint64 device, stream;         /* as the file calls them */
  gint64 start_ns, length_ns;    /* length < 0: not usable, the kernel is counted as odd and left out */
  guint32 link;                  /* to a shape, as ms_trace_build_shape() gave it, or what the reader resolves later */
  guint32 grid;                  /* as of the kernel */
} MsTraceLaunch;

typedef struct {
  MsTrace *t;
  const MsKernelTable *table; /* borrowed */
  GHashTable *name_of, *stream_of;
  GArray *gpu_marks, *marks; /* MsTraceStep: of the GPU, of the host */
  guint64 odd;               /* kernels without a usable time */
  gboolean cut;              /* the file ended early */
} MsTraceBuild;

void ms_trace_build_init(MsTraceBuild *b, const char *file, MsTraceForm form, const MsKernelTable *table);
void ms_trace_build_clear(MsTraceBuild *b);

/* FALSE and *error (at `line`, 0: none) when there are more kernels or streams than a trace holds. `*name`: index of
 * its name; NULL: not wanted. */
gboolean ms_trace_build_kernel(MsTraceBuild *b, const MsTraceLaunch *launch, int line, guint32 *name, GError **error);
/* Index + 1 of the shape of a matrix product; 0 when it makes no sense or there are too many. */
guint32 ms_trace_build_shape(MsTraceBuild *b, const MsTraceShape *shape, const char *type);

/* Keeps the `device`-th of the devices that have kernels, in their order; -1: the first. Says in `notes` that there are
 * others; FALSE and *error when there are fewer. */
gboolean ms_trace_build_device(MsTraceBuild *b, int device, GPtrArray *notes, GError **error);
/* The trace, whose kernels are at least one; leaves `b` empty. (transfer full) */
MsTrace *ms_trace_build_take(MsTraceBuild *b, GPtrArray *notes);

/* --- readers: FALSE and *error; else `b` holds at least one kernel -------------------------------------------------
 */
gboolean ms_trace_chrome(MsTraceBuild *b, MsReader *reader, GPtrArray *notes, GError **error);
gboolean ms_trace_csv(MsTraceBuild *b, MsReader *reader, GPtrArray *notes, GError **error);
gboolean ms_trace_sqlite(MsTraceBuild *b, const char *file, GPtrArray *notes, GError **error);

#endif
