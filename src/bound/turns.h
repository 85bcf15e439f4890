/* src/bound/turns.h - what one turn of a stage adds to it at least, whichever turns stand before and behind it.
 *
 * With EP overlap experts' messages run on from one turn into the next and cost compute there (busy.c): what a stage
 * takes is at least what its turns force, and what each two of them that follow one another cost. So that turns can be
 * counted without knowing their order, that cost is shared out between the two: turn u gets out(u) of what follows it,
 * turn w in(w) of what comes before it, so that no two of them get more than they cost. The pair that most turns are
 * of gets all that it costs behind itself; out(u) is what u costs before that pair less what the pair gets, in(w) the
 * least that w costs behind any u less out(u) (the dual of putting turns in order). What the first turn of a stage gets
 * of what comes before it, and the last of what follows, is not there: ms_turns_ends. */
#ifndef MS_BOUND_TURNS_H
#define MS_BOUND_TURNS_H

#include "bound/lags.h"

typedef struct MsTurns MsTurns;
typedef struct { /* pieces that run beside each other */
  int forward, backward;
} MsPair;
/* Turns of one layer each, or of two beside each other: all passes of the pieces, and pairs[n_pairs], the first of
 * which gives most turns. `splits`: backwards may run in two parts. NULL where no costs are counted. Borrows `lags` and
 * `pairs`. */
MsTurns *ms_turns_new(const MsWork *work, const MsCostedPiece *piece, MsPieceLags *lags, gboolean splits,
                      const MsPair *pairs, int n_pairs);
void ms_turns_free(MsTurns *turns);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsTurns, ms_turns_free)
MsTime ms_turns_pass(const MsTurns *turns, MsSlotKind kind /* F, B, I or W */, int piece);
MsTime ms_turns_pair(const MsTurns *turns, int forward, int backward); /* one of pairs[] */
/* What a pair that is not one of them takes at least, beside its compute rows: it is negative. */
MsTime ms_turns_other(const MsTurns *turns);
MsTime ms_turns_ends(const MsTurns *turns); /* taken off once for all turns of a stage */

#endif
