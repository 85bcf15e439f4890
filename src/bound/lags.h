/* src/bound/lags.h - what rows do to the stage they run on.
 *
 * Every time in a step where nothing is shared is a maximum of sums of durations ("max-plus linear"), so what rows do
 * to their stage is a table of lags from (what the list waits for, what the list beside it waits for, the compute
 * stream is free, the host is free) to the same four afterwards. */
#ifndef MS_BOUND_LAGS_H
#define MS_BOUND_LAGS_H

#include "bound/rows.h"

typedef enum { MS_END_ENTRY, MS_END_BESIDE, MS_END_COMPUTE, MS_END_HOST, MS_N_ENDS } MsEnd;
typedef struct {
  MsTime to[MS_N_ENDS][MS_N_ENDS];
} MsLags; /* to[end][source] */
enum {
  MS_FROM_ENTRY = 1 << MS_END_ENTRY,
  MS_FROM_COMPUTE = 1 << MS_END_COMPUTE,
  MS_FROM_HOST = 1 << MS_END_HOST,
  MS_FROM_ALL = (1 << MS_N_ENDS) - 1
};                                    /* sets of sources */
#define MS_NEVER (-((MsTime)1 << 60)) /* minus infinity of max-plus; sums of a few of them do not overflow */
#define MS_NO_ROWS                                                                                               \
  {                                                                                                              \
    {                                                                                                            \
      {0, MS_NEVER, MS_NEVER, MS_NEVER}, {MS_NEVER, 0, MS_NEVER, MS_NEVER}, {MS_NEVER, MS_NEVER, 0, MS_NEVER}, { \
        MS_NEVER, MS_NEVER, MS_NEVER, 0                                                                          \
      }                                                                                                          \
    }                                                                                                            \
  }
extern const MsLags ms_no_rows;
/* Fills in the lags behind each of the sources. */
void ms_lags_of_rows(const MsRows *rows, int sm_count, guint sources, MsLags *lags);
MsLags ms_lags_product(const MsLags *then, const MsLags *first);
MsLags ms_lags_beside(const MsLags *lags); /* of a list that runs as the backward of a pair */
/* `pair`: there is a list beside it. */
static inline void ms_lags_run(const MsLags *lags, gboolean pair, const MsTime before[MS_N_ENDS],
                               MsTime after[MS_N_ENDS]) {
  MsTime entry = before[MS_END_ENTRY], beside = before[MS_END_BESIDE], compute = before[MS_END_COMPUTE],
         host = before[MS_END_HOST];
  after[MS_END_BESIDE] = MS_NEVER;
  for (int i = 0; i < MS_N_ENDS; i++) {
    const MsTime *to = lags->to[i];
    if (i == MS_END_BESIDE && !pair) continue;
    after[i] = MAX(MAX(MS_NEVER, entry + to[MS_END_ENTRY]), MAX(compute + to[MS_END_COMPUTE], host + to[MS_END_HOST]));
    if (pair) after[i] = MAX(after[i], beside + to[MS_END_BESIDE]);
  }
}

typedef struct MsPieceLags MsPieceLags;
/* Tables of pieces, made when they are asked for: not for two threads at once. `piece` is borrowed. Only the lags
 * behind `sources` are sure to be there. `like`: of other pieces, or NULL; what it knows of rows that are the same here
 * is taken over. */
MsPieceLags *ms_piece_lags_new(const MsCostedPiece *piece, int n, const MsScenario *scenario, const MsPieceLags *like);
/* Before they are asked for: what is found is kept for others with lists of the same numbers (step/number.h). */
void ms_piece_lags_keep(MsPieceLags *lags);
guint64 ms_piece_lags_number(MsPieceLags *lags, int piece, gboolean backward); /* of those that are kept */
/* The same of rows that run as if others took nothing from compute. Owned by `lags`. */
MsPieceLags *ms_piece_lags_unshared(MsPieceLags *lags);
void ms_piece_lags_free(MsPieceLags *lags);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPieceLags, ms_piece_lags_free)
const MsLags *ms_piece_lags_pass(MsPieceLags *lags, MsSlotKind kind /* F, B, I or W */, int piece, guint sources);
const MsLags *ms_piece_lags_pair(MsPieceLags *lags, int forward, int backward,
                                 guint sources); /* a layer beside a layer, with EP overlap */

#endif
