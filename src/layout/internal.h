/* src/layout/internal.h - what the files of this layer share. Not for other layers. */
#ifndef MS_LAYOUT_INTERNAL_H
#define MS_LAYOUT_INTERNAL_H

#include "describe/recompute.h"
#include "layout/layout.h"

enum {
  MS_MAX_VIRTUAL_STAGES = 100000, /* of a pipeline layout string, and pp * vpp */
  MS_MAX_STRING_LAYERS = 100000,
};

/* Writes the reason (nothing when size is 0: the caller only wants to know whether) and returns FALSE. */
gboolean ms_refuse(char *why, size_t size, const char *format, ...) G_GNUC_PRINTF(3, 4);

/* What a pipeline layout string says, without building it. */
typedef struct {
  int virtual_stages, layers, mtp;
  int mtp_stage; /* virtual stage that holds the MTP blocks, -1 = none */
} MsPipelineScan;

/* Reads the string; allocates nothing. With `chunks` (room for virtual_stages of an earlier scan of the same text)
 * the stages are written too. FALSE and `why` when it is not a layout. */
gboolean ms_pipeline_layout_scan(const char *text, MsPipelineScan *scan, MsChunk *chunks, char *why, size_t size);

/* Place of virtual stage `index` (docs/theory/schedules.md 3, 5.4, 6; DualPipe: of its first copy). */
void ms_layout_place(MsScheduleKind kind, int pp, int index, int *stage, int *chunk);

/* The virtual stages in the order of the model. (transfer full) */
MsChunk *ms_layout_cut(const MsScenario *scenario, int chunks_per_rank, int *n);

/* Decoder layers and whatever counts as one. */
gint64 ms_layout_counted_layers(const MsScenario *scenario);
/* Stages, and their layers, between those whose layers are given. */
void ms_layout_between_ends(const MsScenario *scenario, int *stages, int *layers);

static inline gboolean ms_layout_sequence_parallel(const MsScenario *scenario) { /* rule 6: cleared without TP */
  return scenario->layout.tp > 1 && scenario->options.sequence_parallel != FALSE;
}

typedef struct {            /* how one group lies on domains */
  int domains, most, least; /* members of one of them */
} MsTouch;
/* More domains is worse; then the smaller remainder alone in a domain (its ranks cross most); then the less crowded
 * one. */
static inline gboolean ms_touch_worse(MsTouch a, MsTouch b) {
  if (a.domains != b.domains) return a.domains > b.domains;
  return a.least != b.least ? a.least < b.least : a.most < b.most;
}

/* Fills layout->group[]; needs sizes, order and chunks. */
void ms_layout_measure_groups(MsLayout *layout, int domain, int node);
/* Groups of a stage as so many stages have them that follow one another from the first rank of a domain on: what those
 * of others would cross is no matter. */
void ms_layout_measure_stages(MsLayout *layout, int stages, int domain, int node);
/* Fills layout->pp_across; needs the groups. `first`: the stage of the machine's first rank. */
void ms_layout_measure_pairs(MsLayout *layout, int domain, int first);
void ms_layout_set_across(MsLayout *layout, int pair, gboolean across);
/* The same as both for ranks that do not sit in a row: what is known of sizes stays. */
struct MsSeats;
void ms_layout_measure_seats(MsLayout *layout, const struct MsSeats *seats);

#endif
