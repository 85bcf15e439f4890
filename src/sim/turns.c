/* src/sim/turns.c - turns alone, and what is kept of them. */
#include "sim/turns.h"
#include "base/kept.h"
#include "sim/account.h"
#include "sim/graph.h"
#include "step/fetch.h"
#include "step/meeting.h"
#include "step/number.h"

/* --- the event engine --- */

static void add_difference(MsTimeParts *x, const MsTimeParts *less, const MsTimeParts *more) {
  const double *from = (const double *)less, *to = (const double *)more;
  double *out = (double *)x;
  for (size_t i = 0; i < sizeof *x / sizeof(double); i++) out[i] = (to[i] - from[i]) / (MS_TURNS_MORE - MS_TURNS_FEW);
}

/* How long the messages take that are among the tasks from `from` on, of which `lasts` tells. */
static void take_messages(const MsProgram *p, const MsGraph *graph, guint32 from, guint32 n, const MsTime *lasts,
                          MsTime sent[2]) {
  for (guint32 i = 0; i < n; i++) {
    const MsTask *task = ms_graph_task(graph, from + i);
    if (task->tag == p->p2p_tag) sent[task->stream == MS_STREAM_PP_RECV] = lasts[i];
  }
}

/* In the middle of a pipeline. */
static MsTurnTime run_stream(const MsProgram *p, MsChunks of) {
  g_autoptr(MsGraph) graph = ms_lower_chunk(p, of, MS_TURNS_MORE, TRUE), fewer = NULL;
  guint32 n = ms_graph_count(graph) / MS_TURNS_MORE, from = (MS_TURNS_MORE - 2) * n; /* not the last: none is behind */
  g_autofree MsTime *lasts = g_new(MsTime, MAX(n, 1));
  MsRound round = {.lasts = lasts};
  g_autoptr(MsTrajectory) more = ms_program_run(p, graph, &round), few = NULL;
  MsTurnTime x = {.time = round.time, .events = round.events};
  if (more) {
    fewer = ms_lower_chunk(p, of, MS_TURNS_FEW, TRUE), few = ms_program_run(p, fewer, NULL);
    x.time = (more->makespan - few->makespan) / (MS_TURNS_MORE - MS_TURNS_FEW);
    x.events = more->events + few->events;
    for (guint32 i = 0; i < n; i++) lasts[i] = more->end[from + i] - more->start[from + i];
  }
  take_messages(p, graph, more ? from : 0, n, lasts, x.sent);
  return x;
}

/* The first turns of the longer run tell what fewer do, unless those behind reach into them, or fetch from them. */
static MsTurnTime run(const MsProgram *p, MsChunks of, const MsOp *const *tag_op, gboolean stream) {
  if (stream) return run_stream(p, of);
  g_autoptr(MsGraph) graph = ms_lower_chunk(p, of, MS_TURNS_MORE, FALSE), fewer = NULL;
  g_autoptr(MsTrajectory) more = ms_program_run(p, graph, NULL), few = NULL;
  guint32 n = more->n / MS_TURNS_MORE * MS_TURNS_FEW;
  MsTime end = ms_program_fetches(p) ? -1 : ms_trajectory_first_end(more, n);
  MsTurnTime x = {.events = more->events};
  if (end < 0) {
    fewer = ms_lower_chunk(p, of, MS_TURNS_FEW, FALSE);
    few = ms_program_run(p, fewer, NULL);
    end = few->makespan, x.events += few->events;
  }
  x.time = (more->makespan - end) / (MS_TURNS_MORE - MS_TURNS_FEW);
  g_autofree MsTimeParts *a = g_new(MsTimeParts, p->layout->pp), *b = g_new(MsTimeParts, p->layout->pp);
  if (few) ms_account(p, fewer, few, tag_op, a), ms_account(p, graph, more, tag_op, b);
  else ms_account_first(p, graph, more, tag_op, n, end, a, b);
  add_difference(&x.parts, a, b);
  return x;
}

/* --- what it follows from --- */

static void add(GByteArray *key, gconstpointer data, gsize size) { g_byte_array_append(key, data, (guint)size); }

/* Messages are sent in the middle of a pipeline only. */
static void add_message(GByteArray *key, const MsOpCost *message) {
  const double costs[] = {message->time_s, message->sms, message->level};
  add(key, costs, sizeof costs);
}

static void add_kinds(GByteArray *key, const MsMeeting *meeting) {
  add(key, meeting->kind, sizeof *meeting->kind * (gsize)meeting->n);
}

static void add_program(GByteArray *key, const MsProgram *p, MsChunks of, gboolean stream) {
  const MsChunk *chunk = of.forward ? of.forward : of.backward;
  const MsHardware *machine = ms_program_machine(p, chunk->pool);
  const MsOptions *o = &p->scenario->options;
  const gint64 is[] = {stream,
                       o->ep_overlap,
                       o->delay_wgrad,
                       of.kind,
                       of.leaves_head,
                       p->p2p_blocks,
                       p->p2p_in_turn,
                       machine->sm_count,
                       of.forward != NULL,
                       of.backward != NULL};
  add(key, is, sizeof is);
  if (p->meets) add(key, p->meets->sharing.of, sizeof p->meets->sharing.of), add_kinds(key, p->meets->meeting);
  if (!stream) return;
  const double host[] = {machine->kernel_launch_s, p->p2p_op.kernels};
  add(key, host, sizeof host), add(key, ms_row_bytes(&p->p2p_op), MS_ROW_BYTES);
  add_message(key, ms_program_p2p_of(p, chunk, FALSE)), add_message(key, ms_program_p2p_of(p, chunk, TRUE));
}

static void add_pieces(GByteArray *key, const MsProgram *p, MsChunks of, MsPieceLags *lags) {
  for (MsPieceWalk w = ms_piece_walk(p->work, of); ms_piece_next(&w);) {
    const MsPieceTurn *turn[2] = {&w.forward, &w.backward};
    for (int i = 0; i < 2; i++) {
      int piece = turn[i]->piece;
      const guint64 is[2] = {piece < 0 ? 0 : ms_piece_lags_number(lags, piece, i), turn[i]->rows};
      add(key, is, sizeof is);
    }
  }
}

MsTurnTime ms_turn_time(const MsProgram *p, MsChunks of, const MsOp *const *tag_op, gboolean stream,
                        MsPieceLags *lags) {
  static MsKeep turns = {.most = 256};
  if (ms_program_fetches(p) || ms_program_meets(p->scenario))
    return run(p, of, tag_op, stream); /* it follows from what is fetched, or from the fabric, too */
  GByteArray *key = g_byte_array_sized_new(1 << 10);
  add_program(key, p, of, stream);
  add_pieces(key, p, of, lags);
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
