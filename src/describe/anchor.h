/* src/describe/anchor.h - what was learned from runs and profiles on a machine of one's own, beside the figures of its
 * data sheet and its curves: factors on time (moesim anchor writes them, docs/theory/anchor.md). They multiply those of
 * the software stack (describe/stack.h). */
#ifndef MS_DESCRIBE_ANCHOR_H
#define MS_DESCRIBE_ANCHOR_H

#include "describe/field.h"

typedef enum { /* rows of ms_anchor_table, in this order */
               MS_ANCHOR_GEMM,
               MS_ANCHOR_GROUPED_GEMM,
               MS_ANCHOR_ATTENTION,
               MS_ANCHOR_MEMORY_BOUND,
               MS_ANCHOR_COMMUNICATION,
               MS_ANCHOR_HOST,
               MS_N_ANCHORS
} MsAnchorClass;

#define MS_ANCHOR_LEAST 0.05 /* of a factor, and most */
#define MS_ANCHOR_MOST  20.0

/* One run in `runs`: "left" is the logarithm of measured over predicted beside the factors, "keys" has those of its
 * layout, training and options, each value as JSON text. */
#define MS_ANCHOR_RUN \
  "{\"model\": text, \"gpus\": number, \"step_s\": number, \"left\": number of -3 to 3, \"keys\": {path: text}}"

typedef struct {
  double factor[MS_N_ANCHORS]; /* on the time of each; 1: as predicted */
  JsonNode *models;            /* object: name of a model -> factor on all of its time; NULL */
  JsonNode *rested;            /* object: assumed figure of the machine -> share of a step of its runs that followed it,
                                  the largest; NULL */
  JsonNode *runs;              /* list of what MS_ANCHOR_RUN says of each run that was seen; NULL */
  double band, models_band;    /* what errors of all its runs have in common, relative, 90 %; of those models; NaN */
} MsAnchor;

extern const MsFieldTable ms_anchor_table;

/* `models` holds factors, `rested` shares, `runs` runs. FALSE and *error. */
gboolean ms_anchor_check(const MsAnchor *anchor, const MsJson *doc, const char *path, GError **error);
/* Of a class of operators of a model; 1 where nothing was learned. */
double ms_anchor_factor(const MsAnchor *anchor, MsAnchorClass class_index, const char *model);
/* Share of a step that followed this assumed figure in what was seen: so far the factors tell how far off it was. */
double ms_anchor_rested(const MsAnchor *anchor, const char *key);
/* The band for a model, NaN where nothing was learned. */
double ms_anchor_band(const MsAnchor *anchor, const char *model);

#endif
