/* src/bound/turns.c - what one turn of a stage adds to it at least, whichever turns stand before and behind it. */
#include "bound/turns.h"
#include "bound/bound_priv.h"
#include <string.h>

struct MsTurns {
  int n_pieces, n_pairs;
  const MsPair *pair;
  const MsForced **turn; /* [n_pairs + kinds * n_pieces] pairs, then passes by kind */
  MsJoint *joint;        /* [n of them] */
  MsTime other, ends;
};

static gboolean computes(const MsForced *turn) { return turn->own > 0; } /* the others are passed through */

MsTime ms_joints_share(const MsForced *const *turn, int n, MsJoint *joint) {
  const MsCross *most = &turn[0]->cross, alone = {.sms = most->sms, .sm_count = most->sm_count, .leads = TRUE};
  MsTime largest = 0;
  memset(joint, 0, sizeof *joint * (size_t)n);
  joint[0].in = ms_cross_cost(most, &alone);
  for (int u = 0; u < n; u++)
    if (computes(turn[u])) joint[u].out = ms_cross_cost(most, &turn[u]->cross) - joint[0].in;
  for (int w = 1; w < n; w++) {
    if (!computes(turn[w])) continue;
    joint[w].in = joint[0].in; /* behind a turn that is not known, which gets as much less than nothing */
    for (int u = 0; u < n; u++)
      if (computes(turn[u])) {
        MsTime left = ms_cross_cost(&turn[w]->cross, &turn[u]->cross) - joint[u].out;
        joint[w].in = MIN(joint[w].in, left);
      }
  }
  for (int u = 0; u < n; u++) largest = MAX(largest, joint[u].out);
  return -joint[0].in - largest;
}

MsTurns *ms_turns_new(const MsWork *work, const MsCostedPiece *piece, MsPieceLags *lags, gboolean splits,
                      const MsPair *pairs, int n_pairs) {
  const MsScenario *s = work->scenario;
  gboolean parts = splits || s->options.defer_embedding_wgrad_compute;
  int passes = (parts ? MS_SLOT_W + 1 : MS_SLOT_B + 1) * work->n_pieces, n = n_pairs + passes;
  if (n_pairs == 0 || work->of_pool || !ms_pieces_cross(piece, work->n_pieces, s->hardware->sm_count)) return NULL;
  MsTurns *t = g_new0(MsTurns, 1);
  *t = (MsTurns){.n_pieces = work->n_pieces, .n_pairs = n_pairs, .pair = pairs, .turn = g_new(const MsForced *, n)};
  for (int i = 0; i < n_pairs; i++) t->turn[i] = ms_piece_forced_pair(lags, pairs[i].forward, pairs[i].backward);
  for (int i = 0; i < passes; i++)
    t->turn[n_pairs + i] = ms_piece_forced_pass(lags, (MsSlotKind)(i / work->n_pieces), i % work->n_pieces);
  t->joint = g_new(MsJoint, n);
  t->other = ms_joints_share(t->turn, n, t->joint);
  MsJoint most = {0};
  for (int i = 0; i < n; i++) most.in = MAX(most.in, t->joint[i].in), most.out = MAX(most.out, t->joint[i].out);
  t->ends = most.in + most.out;
  return t;
}

void ms_turns_free(MsTurns *t) {
  if (!t) return;
  g_free(t->turn), g_free(t->joint);
  g_free(t);
}

static MsTime takes(const MsTurns *t, int i) {
  if (!computes(t->turn[i])) return 0;
  MsNeed need = ms_need_of(t->turn[i]);
  return need.forced + need.cross.inside + t->joint[i].out + t->joint[i].in;
}

MsTime ms_turns_pass(const MsTurns *t, MsSlotKind kind, int piece) {
  return takes(t, t->n_pairs + (int)kind * t->n_pieces + piece);
}

MsTime ms_turns_pair(const MsTurns *t, int forward, int backward) {
  int i = 0;
  while (t->pair[i].forward != forward || t->pair[i].backward != backward) i++;
  return takes(t, i);
}

MsTime ms_turns_other(const MsTurns *t) { return t->other; }

MsTime ms_turns_ends(const MsTurns *t) { return t->ends; }
