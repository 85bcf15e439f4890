/* src/sim/turns.c - turns alone, and what is kept of them. */
#include "sim/turns.h"
#include "base/kept.h"
#include "sim/account.h"
#include "sim/graph.h"
#include "step/fetch.h"
#include "step/meeting.h"
#include <string.h>

/* --- the event engine --- */

static MsTurnTime run(const MsProgram *p, MsChunks of, const MsOp *const *tag_op, gboolean stream) {
  MsTime makespan[2];
  MsTimeParts part[2] = {0};
  MsTurnTime x = {0};
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsGraph) graph = ms_lower_chunk(p, of, i == 0 ? MS_TURNS_FEW : MS_TURNS_MORE, stream);
    g_autoptr(MsTrajectory) t = ms_program_run(p, graph);
    makespan[i] = t->makespan, x.events += t->events;
    if (stream) continue;
    g_autofree MsTimeParts *all = g_new0(MsTimeParts, p->layout->pp);
    ms_account(p, graph, t, tag_op, all);
    part[i] = all[0];
  }
  const double *a = (double *)&part[0], *b = (double *)&part[1];
  double *out = (double *)&x.parts;
  for (size_t i = 0; i < sizeof x.parts / sizeof(double); i++) out[i] = (b[i] - a[i]) / (MS_TURNS_MORE - MS_TURNS_FEW);
  x.time = (makespan[1] - makespan[0]) / (MS_TURNS_MORE - MS_TURNS_FEW);
  return x;
}

/* --- what it follows from --- */

enum { MOST_KEPT = 512 };

static void add(GByteArray *key, gconstpointer data, gsize size) { g_byte_array_append(key, data, (guint)size); }

/* What kind of row it is, what it waits for: no shape, of which the costs speak. */
static void add_row(GByteArray *key, const MsOp *op) {
  add(key, &op->kind, G_STRUCT_OFFSET(MsOp, m) - G_STRUCT_OFFSET(MsOp, kind));
}

static void add_list(GByteArray *key, const MsCosted *c) {
  gsize n = (gsize)c->list->n;
  const int is[] = {c->list->n, c->list->tip};
  add(key, is, sizeof is);
  for (gsize i = 0; i < n; i++) add_row(key, &c->list->op[i]);
  if (n == 0) return;
  add(key, c->duration, n * sizeof *c->duration), add(key, c->beside, n * sizeof *c->beside);
  add(key, c->launch, n * sizeof *c->launch), add(key, c->sms, n * sizeof *c->sms), add(key, c->use, n);
}

static void add_program(GByteArray *key, const MsProgram *p, MsChunks of, gboolean stream) {
  const MsChunk *chunk = of.forward ? of.forward : of.backward;
  const MsHardware *machine = ms_program_machine(p, chunk->pool);
  const MsOpCost *message = ms_program_p2p_of(p, chunk, FALSE), *back = ms_program_p2p_of(p, chunk, TRUE);
  const MsOptions *o = &p->scenario->options;
  const gint64 is[] = {stream,
                       o->ep_overlap,
                       o->delay_wgrad,
                       of.kind,
                       of.leaves_head,
                       p->p2p_blocks,
                       p->p2p_in_turn,
                       machine->sm_count,
                       message->sms,
                       message->level,
                       of.forward != NULL,
                       of.backward != NULL,
                       p->p2p_op.kernels,
                       back->sms,
                       back->level};
  const double costs[] = {message->time_s, back->time_s, machine->kernel_launch_s, machine->sync_s};
  add(key, is, sizeof is), add(key, costs, sizeof costs), add_row(key, &p->p2p_op);
}

/* --- what is kept ---------------------------------------------------------------------------------------------- */
static MsKeep turns = {.most = MOST_KEPT}, rows = {.most = MOST_KEPT}; /* rows of a piece: a number, never one before */

/* Of pieces with the same rows the same. */
static guint64 number_of(const MsCostedPiece *piece) {
  static guint64 given;
  GByteArray *key = g_byte_array_sized_new(1 << 14);
  add_list(key, &piece->forward), add_list(key, &piece->backward);
  guint64 *kept = ms_kept_of(&rows, key), number;
  if (kept) {
    g_byte_array_unref(key);
  } else {
    kept = g_atomic_rc_box_new(guint64);
    *kept = __atomic_add_fetch(&given, 1, __ATOMIC_RELAXED);
    ms_kept_as(&rows, key, kept);
  }
  number = *kept;
  ms_kept_release(&rows, kept);
  return number;
}

static void add_pieces(GByteArray *key, const MsProgram *p, MsChunks of, guint64 *number) {
  for (MsPieceWalk w = ms_piece_walk(p->work, of); ms_piece_next(&w);) {
    const MsPieceTurn *turn[2] = {&w.forward, &w.backward};
    for (int i = 0; i < 2; i++) {
      int piece = turn[i]->piece;
      guint64 is[2] = {0, turn[i]->rows};
      if (piece >= 0 && number[piece] == 0) number[piece] = number_of(&p->piece[piece]);
      if (piece >= 0) is[0] = number[piece];
      add(key, is, sizeof is);
    }
  }
}

MsTurnTime ms_turn_time(const MsProgram *p, MsChunks of, const MsOp *const *tag_op, gboolean stream, guint64 *number) {
  if (ms_program_fetches(p) || p->meets)
    return run(p, of, tag_op, stream); /* it follows from what is fetched, or from the fabric, too */
  GByteArray *key = g_byte_array_sized_new(1 << 10);
  add_program(key, p, of, stream);
  add_pieces(key, p, of, number);
  MsTurnTime *kept = ms_kept_of(&turns, key);
  if (kept) {
    g_byte_array_unref(key);
  } else {
    kept = g_atomic_rc_box_new(MsTurnTime);
    *kept = run(p, of, tag_op, stream);
    ms_kept_as(&turns, key, kept);
  }
  MsTurnTime x = *kept;
  ms_kept_release(&turns, kept);
  return x;
}
