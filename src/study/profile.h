/* src/study/profile.h - where the time of a step goes, in the same figures for a predicted and for a measured one.
 *
 * A scenario is simulated by `full`; one pipeline stage of the simulated step is then read like a profile of a GPU
 * (logs/trace.h), its rows as kernels of the class that covers them. A trace is read as it is. Saved are what `moesim
 * import kineto --json` and `moesim run --json` print; the latter knows families of operators only: it is coarse. */
#ifndef MS_STUDY_PROFILE_H
#define MS_STUDY_PROFILE_H

#include "logs/trace_times.h"
#include "sim/simulate.h"

typedef enum { MS_PROFILE_SCENARIO, MS_PROFILE_TRACE, MS_PROFILE_SAVED_TRACE, MS_PROFILE_SAVED_RUN } MsProfileKind;
extern const char *const ms_profile_words[]; /* scenario, trace, ... */

typedef struct {
  char *word; /* of software/kernels.json; coarse: gemm, grouped_gemm, attention, memory_bound, communication */
  double time_s;
} MsProfilePart;

typedef struct {         /* of one class, without a gap that is seen in MS_PROFILE_POINTS of a step */
  const char *word;      /* static text */
  double start_s, end_s; /* since the step began */
} MsProfileSpan;
enum { MS_PROFILE_POINTS = 4000 };

typedef struct {
  char *name;
  double busy_s;
  int n_parts, n_spans;
  MsProfilePart *part;
  MsProfileSpan *span; /* of the first whole step, by start; none: it was saved without */
} MsProfileStream;

typedef struct {
  char *file, *device; /* the machine's name, or what the profiler calls the GPU; NULL */
  MsProfileKind kind;
  gboolean coarse;
  int rank, ranks, stage; /* -1, 0, -1: not known */
  double step_s, busy_s;  /* NaN: not known */
  double reference_flops; /* of a trace by moesim exec (logs/trace.h); 0: not known */
  int n_parts, n_streams;
  MsProfilePart *part;
  MsProfileStream *stream;
  int n_products;
  MsTraceProduct *product; /* of known shape */
  MsTrace *trace;          /* every kernel, of a simulated stage every row by name and pass; NULL: saved */
  MsScenario *scenario;    /* of a scenario, and what was predicted; else NULL */
  MsResult *result;
} MsProfile;

/* `stage` -1: that of `rank`; and where that is -1 or none of the scenario's the one that computes longest. Of a trace
 * both mean nothing. A saved prediction does not say where its ranks are, but for rank 0: that is on the first stage.
 * NULL and *error; what was repaired goes to `notes`. (transfer full) */
MsProfile *ms_profile_load(const char *file, int stage, int rank, const MsKernelTable *table, GPtrArray *notes,
                           GError **error);
void ms_profile_free(MsProfile *profile);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsProfile, ms_profile_free)

/* How fast the machine was while a profile was taken, over the speed that `machine` is of (moesim calibrate): times
 * that times are those at the latter. 1: one of them does not say. */
double ms_profile_speed(const MsProfile *measured, const MsHardware *machine);

/* What a file is, by its first keys. FALSE and *error when it is none of these. */
gboolean ms_profile_kind(const char *file, MsProfileKind *kind, GError **error);

/* Classes folded to families of operators (coarse). */
void ms_profile_fold(MsProfile *profile, const MsKernelTable *table);

#endif
