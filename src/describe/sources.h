/* src/describe/sources.h - what the figures of a machine rest on.
 *
 * A profile says for every figure where it comes from: `sources` maps the key to a text, or to
 *
 *   {"mark": "measured", "text": "nvbandwidth on one board"}
 *   {"mark": "assumed", "within": 0.5, "text": "one 400 Gbit/s port a GPU, as on its relatives"}
 *
 * An assumed figure stands in for one that nobody has published, so that nothing is refused for want of it. `within` is
 * how far off it may be, relative, in 90 of 100 cases: it widens the band of a prediction by its share in the step
 * (sim/band.h), and every output that rests on it says so. Without `within` what follows from the assumption lies
 * inside of the machine's `band`, as published runs were predicted with it. A figure that an override gives is stated,
 * no longer assumed. */
#ifndef MS_DESCRIBE_SOURCES_H
#define MS_DESCRIBE_SOURCES_H

#include "describe/hardware.h"

typedef enum {
  MS_MARK_STATED,    /* a text alone */
  MS_MARK_MEASURED,  /* on the machine, or on one like it that the text names */
  MS_MARK_DATASHEET, /* the vendor's */
  MS_MARK_PUBLISHED, /* by others: reviews, repositories, papers */
  MS_MARK_ASSUMED,
  MS_N_MARKS
} MsMark;

MsMark ms_source_mark(const MsHardware *hardware, const char *key);
/* How far an assumed figure may be off, relative, 90 %; 0 where it is not assumed or says nothing. */
double ms_source_within(const MsHardware *hardware, const char *key);
/* Where the figure comes from, its mark in front: "assumed within 50 %: ..."; NULL: the profile does not say. (transfer
 * full) */
char *ms_source_text(const MsHardware *hardware, const char *key);

/* What measures such a figure, as a command or a program; NULL: nothing of ours does. (transfer none) */
const char *ms_source_measured_by(const char *key);
/* What the figure is, in words; NULL: its name says it. */
const char *ms_source_words(const char *key);

/* Writes the source of a figure that was measured, as a member of "sources". */
void ms_source_put_measured(MsJsonOut *out, const char *key, const char *text);
/* FALSE and *error when `sources` at `path` of `doc` holds anything else than said above. */
gboolean ms_sources_check(const MsHardware *hardware, const MsJson *doc, const char *path, GError **error);
/* Of a machine built upon another: what `base`, the sources of that one (may be NULL), say of figures that `changes`
 * does not give, and what `changes` says. A figure that it gives without a source is nobody's but the file's. */
void ms_sources_inherit(MsHardware *hardware, JsonNode *base, JsonObject *changes);
/* `strict` counts the figure as unknown: it is assumed with a `within`, and not of a link all of whose collectives and
 * messages between stages the machine has measured curves of, which it then does not move. */
gboolean ms_source_is_refused(const MsHardware *hardware, const char *key);
/* Those become unknown: what needs them is refused by name. */
void ms_sources_forget_assumed(MsHardware *hardware);

#endif
