/* tests/unit/test_walk.c - the walks through a step: every slot once and none before what it needs, pieces in order,
 * rows behind the slots only when all stages have met. */
#include "lib/close.h"
#include "lib/world.h"

#include "base/units.h"
#include "step/after.h"
#include "step/reduce.h"

static void check_pass(const MsSchedule *s, const MsSlotPass *pass, guint8 *made, int *left, int *forwards) {
  int place = pass->stage * s->chunks + pass->chunk, owner = pass->stage, chunk;
  assert_int_equal(pass->here, ms_virtual_stage(s, pass->stage, pass->chunk));
  if (pass->in >= 0) assert_true(made[pass->in]);
  if (pass->from >= 0) ms_virtual_owner(s, pass->from, &owner, &chunk);
  assert_int_equal(pass->comes, owner != pass->stage);
  for (int k = 0; k < 2; k++) {
    int out = k ? pass->kept : pass->out;
    if (out < 0) continue;
    assert_false(made[out]); /* by nobody else */
    made[out] = 1;
  }
  if (pass->kind == MS_SLOT_F) assert_int_equal(pass->nth == 0, forwards[place]++ == 0);
  else if (pass->kind != MS_SLOT_I) assert_int_equal(pass->last, --left[place] == 0);
}

static const MsTurn *of_the_last_that_may_run(MsSlotWalk *walk, const MsSchedule *s, const guint8 *made) {
  int waits[MS_SLOT_WAITS];
  for (int stage = s->stages; stage-- > 0;) {
    if (!ms_slot_walk_waits(walk, stage, waits)) continue;
    for (int k = 0; k < MS_SLOT_WAITS; k++) assert_true(waits[k] < 0 || made[waits[k]]);
    return ms_slot_walk_take(walk, stage);
  }
  return NULL;
}

/* Every slot of every stage in the order of its list, each tensor made once and before it is needed. */
static void check_walk(const MsSchedule *s, gboolean beside, gboolean from_last) {
  int places = s->stages * s->chunks, first, turns = 0, slots = 0;
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(s, MS_ALL_STAGES, beside);
  g_autofree guint8 *made = g_new0(guint8, ms_slot_walk_tensors(walk));
  g_autofree int *left = g_new(int, places), *forwards = g_new0(int, places), *next = g_new0(int, s->stages);
  for (int i = 0; i < places; i++) ms_chunk_microbatches(s, i % s->chunks, &first, &left[i]);
  for (const MsTurn *turn; (turn = from_last ? of_the_last_that_may_run(walk, s, made) : ms_slot_walk_next(walk));
       turns++) {
    assert_int_equal(turn->index, next[turn->stage]);
    next[turn->stage] += turn->closes, slots += turn->closes;
    if (turn->forward) check_pass(s, turn->forward, made, left, forwards);
    if (turn->backward) check_pass(s, turn->backward, made, left, forwards);
  }
  int slot, pairs = 0;
  assert_int_equal(ms_slot_walk_stuck(walk, &slot), -1);
  for (int i = 0; i < s->stages; i++) {
    assert_int_equal(next[i], s->n[i]);
    for (int k = 0; k < s->n[i]; k++) pairs += s->slot[i][k].kind == MS_SLOT_FB;
  }
  assert_int_equal(turns, slots + (beside ? 0 : pairs));
  for (int i = 0; i < places; i++) assert_int_equal(left[i], 0);
}

static void every_schedule_is_walked(void **state) {
  (void)state;
  char why[192];
  int walked = 0;
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++)
    for (int p = 1; p <= 6; p++)
      for (int v = 1; v <= 2; v++)
        for (int overlap = 0; overlap < 2; overlap++) {
          g_autoptr(MsSchedule) s = ms_schedule_new(kind, p, 4 * p, v, 0, overlap, why, sizeof why);
          if (!s) continue;
          for (int order = 0; order < 2; order++) check_walk(s, TRUE, order), check_walk(s, FALSE, order);
          walked++;
        }
  assert_true(walked > 60);
}

/* One stage alone has the same turns as among all, whatever the others have done. */
static void one_stage_has_the_same_turns(void **state) {
  (void)state;
  g_autoptr(MsSchedule) s = ms_schedule_new(MS_SCHED_DUALPIPE, 4, 20, 2, 0, FALSE, NULL, 0);
  g_autoptr(MsSlotWalk) all = ms_slot_walk_new(s, MS_ALL_STAGES, FALSE);
  g_autoptr(MsSlotWalk) one = ms_slot_walk_new(s, 2, FALSE);
  int turns = 0;
  for (const MsTurn *a; (a = ms_slot_walk_next(all));) {
    if (a->stage != 2) continue;
    const MsTurn *b = ms_slot_walk_next(one);
    assert_non_null(b);
    assert_int_equal(b->stage, 2);
    assert_int_equal(b->index, a->index);
    const MsSlotPass *x = a->forward ? a->forward : a->backward, *y = b->forward ? b->forward : b->backward;
    assert_memory_equal(x, y, sizeof *x);
    turns++;
  }
  assert_null(ms_slot_walk_next(one));
  assert_true(turns > s->n[2]);
}

/* Two stages that wait for each other. */
static void a_deadlock_is_found(void **state) {
  (void)state;
  int n[] = {4, 4}, at;
  MsSlot first[] = {{MS_SLOT_F, 0, 0, 0, 0}, {MS_SLOT_B, 0, 0, 0, 0}, {MS_SLOT_F, 0, 0, 1, 0}, {MS_SLOT_B, 0, 0, 1, 0}},
         second[] = {{MS_SLOT_F, 0, 0, 1, 0},
                     {MS_SLOT_B, 0, 0, 1, 0},
                     {MS_SLOT_F, 0, 0, 0, 0},
                     {MS_SLOT_B, 0, 0, 0, 0}},
         *slot[] = {first, second};
  MsSchedule s = {.stages = 2, .microbatches = 2, .chunks = 1, .n = n, .slot = slot};
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(&s, MS_ALL_STAGES, TRUE);
  int turns = 0;
  while (ms_slot_walk_next(walk)) turns++;
  assert_int_equal(turns, 1);
  assert_int_equal(ms_slot_walk_stuck(walk, &at), 0);
  assert_int_equal(at, 1);
}

typedef struct {
  int places[64], n;
} Order;

static void order_of(const MsWork *w, MsChunks of, Order *forward, Order *backward, int *pairs) {
  forward->n = backward->n = *pairs = 0;
  for (MsPieceWalk p = ms_piece_walk(w, of); ms_piece_next(&p);) {
    *pairs += p.forward.at >= 0 && p.backward.at >= 0;
    if (p.forward.at >= 0) forward->places[forward->n++] = p.forward.at;
    if (p.backward.at < 0) continue;
    backward->places[backward->n++] = p.backward.at;
    gboolean head = p.backward.piece == w->piece_head && of.leaves_head;
    assert_int_equal(p.backward.rows, !head ? of.kind : of.kind == MS_SLOT_W ? MS_N_SLOTS : MS_SLOT_I);
  }
}

/* Forward from the first, backward from the last; ends alone, layers in pairs. */
static void pieces_come_in_order(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 1, "h100-sxm", 64);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsChunk *whole = ms_layout_chunk(l.layout, 0, 0);
  int n = ms_work_chunk_length(l.work, whole), layers = whole->num_layers + whole->num_mtp, pairs;
  MsChunks turns[] = {{.forward = whole},
                      {.backward = whole, .kind = MS_SLOT_B},
                      {.backward = whole, .kind = MS_SLOT_W, .leaves_head = TRUE},
                      {whole, whole, MS_SLOT_B, TRUE}};
  Order f, b;
  for (guint i = 0; i < G_N_ELEMENTS(turns); i++) {
    order_of(l.work, turns[i], &f, &b, &pairs);
    assert_int_equal(f.n, turns[i].forward ? n : 0);
    assert_int_equal(b.n, turns[i].backward ? n : 0);
    for (int k = 0; k < f.n; k++) assert_int_equal(f.places[k], k);
    for (int k = 0; k < b.n; k++) assert_int_equal(b.places[k], n - 1 - k);
    assert_int_equal(pairs, f.n && b.n ? layers : 0);
  }
}

/* Beside a forward the backward's embedding is left to the end, behind the forward's head (Megatron-LM
 * model_chunk_schedule_plan.py, run). */
static void the_embedding_comes_last(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 1, "h100-sxm", 64);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsChunk *whole = ms_layout_chunk(l.layout, 0, 0);
  int head = ms_work_chunk_length(l.work, whole) - 1, head_at = -1, embedding_at = -1, at = 0;
  for (MsPieceWalk p = ms_piece_walk(l.work, (MsChunks){whole, whole, MS_SLOT_B, FALSE}); ms_piece_next(&p); at++) {
    if (p.forward.at == head) head_at = at;
    if (p.backward.at == 0) embedding_at = at;
  }
  assert_true(head_at > 0 && embedding_at == head_at + 1 && embedding_at == at - 1);
}

/* Every row of every stage once, in order; a row that crosses only when all its stages have come to it. */
static void stages_meet_behind_the_slots(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "h100-sxm", 64);
  s->layout.pp = 4, s->layout.tp = 2;
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
  g_autoptr(MsProgram) program = ms_program_new(l.work, cost);
  int next[4] = {0}, met = 0, crossed = 0, worlds = 0;
  for (MsAfterWalk w = ms_after_walk(program); ms_after_next(&w);) {
    assert_int_equal(w.row, next[w.stage]);
    const MsOp *op = &program->step[w.stage].after.list->op[w.row];
    gboolean crosses = op->group == MS_GROUP_WORLD || op->group == MS_GROUP_EMBEDDING;
    assert_int_equal(crosses, w.event != MS_AFTER_ROW);
    if (w.event == MS_AFTER_MEETS) {
      assert_int_equal(w.first, met == crossed);
      met++;
      continue;
    }
    next[w.stage]++;
    if (w.event == MS_AFTER_CROSSES) crossed++, worlds += w.world;
    assert_true(crossed <= met);
  }
  assert_int_equal(met, crossed);
  assert_int_equal(worlds, 4);
  for (int i = 0; i < 4; i++) assert_int_equal(next[i], program->step[i].after.list->n);
}

static void check_no_deadlock(const MsScheduleNumbers *numbers) {
  char why[192];
  g_autoptr(MsSchedule) s = ms_schedule_for(MS_SCHED_1F1B, numbers, why, sizeof why);
  if (!s) return;
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(s, MS_ALL_STAGES, FALSE);
  while (ms_slot_walk_next(walk)) continue;
  int slot, stage = ms_slot_walk_stuck(walk, &slot);
  if (stage >= 0)
    fail_msg("%d stages, %d chunks, %d microbatches in groups of %d: stage %d stops at slot %d", s->stages, s->chunks,
             s->microbatches, numbers->group, stage, slot);
}

/* However long groups of microbatches are, and whatever passes wait for, some pass may always run. */
static void messages_never_deadlock(void **state) {
  (void)state;
  for (int p = 2; p <= 5; p++)
    for (int v = 2; v <= 4; v++)
      for (int m = p; m <= 4 * p; m++)
        for (int group = p; group <= m; group++)
          for (int waits = 1; waits < 6; waits++) /* 4, 5: pairs of EP overlap */
            check_no_deadlock(&(MsScheduleNumbers){.stages = p,
                                                   .microbatches = m,
                                                   .chunks = v,
                                                   .group = group,
                                                   .ep_overlap = waits >= 4,
                                                   .f = 1,
                                                   .i = 1,
                                                   .w = 1,
                                                   .exchanges = waits == 1 || waits == 3,
                                                   .receives = waits == 2 || waits == 3 || waits == 5});
}

static MsScenario *pipeline(int pp, int vpp, int microbatches) {
  MsScenario *s = ms_test_run("llama3-8b", -1, "h100-sxm", 64);
  s->layout.pp = pp, s->layout.vpp = vpp;
  s->options.overlap_grad_reduce = TRUE;
  s->training.global_batch_size = (gint64)microbatches * 64 / pp;
  return s;
}

static void check_reduce_slots(MsScenario *s, const int *expected) {
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
  g_autoptr(MsProgram) program = ms_program_new(l.work, cost);
  g_autoptr(MsSchedule) schedule = ms_program_schedule(program, NULL, 0);
  g_autofree int *slots = ms_reduce_slots(program, schedule);
  if (!expected) assert_null(slots);
  for (int i = 0; expected && i < s->layout.pp * s->layout.vpp; i++) assert_int_equal(slots[i], expected[i]);
}

/* By hand: of 4 stages, 8 microbatches and 2 chunks every list has 32 slots, and all end in B7.1 at 27 and B7.0 at 31.
 * Stage s begins with chunk 1 s backwards behind that, and with chunk 0 behind the last message. */
static void reductions_begin_together(void **state) {
  (void)state;
  static const int interleaved[] = {31, 27, 32, 28, 32, 29, 32, 30}, plain[] = {-1, 16, 16, 16};
  g_autoptr(MsScenario) two = pipeline(4, 2, 8);
  check_reduce_slots(two, interleaved);
  g_autoptr(MsScenario) one = pipeline(4, 1, 8);
  check_reduce_slots(one, plain);
  one->framework = MS_FRAMEWORK_DEEPSPEED;
  check_reduce_slots(one, NULL);
  g_autoptr(MsScenario) alone = pipeline(1, 1, 8);
  check_reduce_slots(alone, NULL);
}

/* What reductions take over so many GPUs: all but the last bucket where they overlap. */
static double reduction_s(int gpus, gboolean overlap, double crowded, double hbm_Bps, gboolean serial) {
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "h100-sxm", gpus);
  s->training.global_batch_size = gpus, s->options.overlap_grad_reduce = overlap;
  s->laws.crowded_collective = crowded, s->hardware->hbm_Bps = hbm_Bps, s->hardware->serial = serial;
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, NULL);
  g_autoptr(MsProgram) program = ms_program_new(l.work, cost);
  const MsCosted *list = overlap ? &program->step[0].reduce : &program->step[0].after;
  double bytes_B = 0, all_s = 0;
  for (int i = 0; i < list->list->n; i++) {
    const MsOp *op = &list->list->op[i];
    if (op->group != MS_GROUP_DP_CP || op->kind == MS_OP_ALL_GATHER) continue;
    if (overlap && program->step[0].ops.reduce_at[i].piece == 0) continue;
    bytes_B += op->message_B, all_s += (double)list->duration[i] / MS_PS_PER_S;
  }
  assert_true(bytes_B > 0);
  return all_s;
}

/* By the law: 1 + c 3.35 TB/s / m over the network, where passes run beside it. */
static void reductions_take_longer_beside_compute(void **state) {
  (void)state;
  const double hbm_Bps = 1.675e12;
  assert_close(reduction_s(64, TRUE, 0.25, hbm_Bps, FALSE), 1.5 * reduction_s(64, TRUE, 0, hbm_Bps, FALSE), 1e-9);
  assert_close(reduction_s(64, TRUE, 0.25, hbm_Bps, TRUE), reduction_s(64, TRUE, 0, hbm_Bps, TRUE), 1e-9);
  assert_close(reduction_s(8, TRUE, 0.25, hbm_Bps, FALSE), reduction_s(8, TRUE, 0, hbm_Bps, FALSE), 1e-9);
  assert_close(reduction_s(64, FALSE, 0.25, hbm_Bps, FALSE), reduction_s(64, FALSE, 0, hbm_Bps, FALSE), 1e-9);
}

/* The second of two stages sends its last gradient when it has it; only then are weight gradients scaled and reduced.
 */
static void the_last_message_leaves_first(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = pipeline(2, 1, 3);
  MsDetail *detail = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, &detail, NULL);
  MsTime sent = 0, left = 0, passed = 0, scales = 0;
  for (guint32 i = 0; i < ms_graph_count(detail->graph); i++) {
    const MsTask *task = ms_graph_task(detail->graph, i);
    const MsOp *op = detail->tag_op[task->tag];
    MsTime end = detail->trajectory->end[i], begin = end - task->duration;
    if (task->device != 1 || !op) continue;
    if (op->kind == MS_OP_P2P && task->duration > 0) sent = end, left = begin;
    if (op->kind == MS_OP_GRAD_SCALE) scales = begin;
    if (op->pass == MS_PASS_DGRAD && task->stream == MS_STREAM_COMPUTE) passed = end;
  }
  assert_true(passed > 0 && left == passed);
  assert_true(scales >= sent && sent > left);
  ms_detail_free(detail);
}

typedef struct {
  MsSlotKind kind;
  int chunk, mb;
} Given; /* what makes a tensor */

/* What makes tensors with[0] and with[1] of slot `index` of a stage, kind MS_N_SLOTS: nothing. */
static void waits_with(const MsScheduleNumbers *numbers, int stage, int index, gboolean *holds, Given given[2]) {
  g_autoptr(MsSchedule) s = ms_schedule_for(MS_SCHED_1F1B, numbers, NULL, 0);
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(s, MS_ALL_STAGES, FALSE);
  g_autofree Given *by = g_new0(Given, ms_slot_walk_tensors(walk));
  given[0].kind = given[1].kind = MS_N_SLOTS;
  for (const MsTurn *t; (t = ms_slot_walk_next(walk));) {
    const MsSlotPass *pass = t->forward ? t->forward : t->backward;
    if (t->stage == stage && t->index == index) {
      *holds = t->holds;
      for (int k = 0; k < 2; k++)
        if (t->with[k] >= 0) given[k] = by[t->with[k]];
    }
    if (pass->out >= 0) by[pass->out] = (Given){pass->kind, pass->chunk, pass->mb};
  }
  ms_slot_walk_must_end(walk);
}

static void assert_given(Given given, MsSlotKind kind, int chunk, int mb) {
  assert_int_equal(given.kind, kind);
  if (kind == MS_N_SLOTS) return;
  assert_int_equal(given.chunk, chunk);
  assert_int_equal(given.mb, mb);
}

/* By hand, of 4 stages, 8 microbatches and 2 chunks (docs/theory/schedules.md: F6.0 B0.1 at 10 and 11 of the first
 * stage, F0.1 B0.1 at 4 and 5 of the last). Of groups of 8 the first stage has 14 forwards ahead, and forward f waits
 * for what forward f - 4 gave on the last stage; the last has 8 ahead, and backward b, at 16 + b, for what b - 4 gave
 * on the first. */
static void exchanges_wait_for_both(void **state) {
  (void)state;
  MsScheduleNumbers n = {.stages = 4, .microbatches = 8, .chunks = 2, .group = 4, .exchanges = TRUE, .receives = TRUE};
  gboolean holds;
  Given given[2];
  waits_with(&n, 0, 10, &holds, given);
  assert_true(holds);
  assert_given(given[0], MS_SLOT_B, 1, 0);
  waits_with(&n, 3, 4, &holds, given);
  assert_true(holds);
  assert_given(given[0], MS_N_SLOTS, 0, 0); /* its own */
  waits_with(&n, 0, 9, &holds, given);
  assert_false(holds);
  n.group = 8;
  waits_with(&n, 0, 6, &holds, given);
  assert_given(given[1], MS_SLOT_F, 0, 2);
  n.exchanges = FALSE;
  waits_with(&n, 0, 4, &holds, given);
  assert_given(given[1], MS_SLOT_F, 0, 0);
  waits_with(&n, 3, 16 + 9, &holds, given);
  assert_given(given[1], MS_SLOT_B, 1, 5);
  n.receives = FALSE;
  waits_with(&n, 0, 4, &holds, given);
  assert_given(given[1], MS_N_SLOTS, 0, 0);
}

static guint32 first_row(const MsDetail *detail, int stage, int slot) {
  guint32 i = detail->slot_task[detail->slot_base[stage] + (guint32)slot];
  while (ms_graph_task(detail->graph, i)->stream != MS_STREAM_COMPUTE) i++;
  return i;
}

/* The first pair of the first stage, at 10: without overlap its forward waits for the first gradient. */
static void a_pair_waits_for_its_gradient(void **state) {
  (void)state;
  for (int overlap = 0; overlap < 2; overlap++) {
    g_autoptr(MsScenario) s = pipeline(4, 2, 8);
    s->options.overlap_p2p_comm = overlap;
    MsDetail *detail = NULL;
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, &detail, NULL);
    guint32 pair = first_row(detail, 0, 10);
    MsTime here = 0;
    for (guint32 i = 0; here == 0; i++) {
      const MsTask *task = ms_graph_task(detail->graph, i);
      if (task->device == 1 && task->stream == MS_STREAM_PP_RECV) here = detail->trajectory->end[i];
    }
    assert_int_equal(detail->trajectory->start[pair] >= here, !overlap);
    ms_detail_free(detail);
  }
}

/* The second of four stages, which the others wait for, has pairs up to 23 and backwards from 24 on: the first of these
 * does not wait until the last pair has sent its gradient, the second waits for what the first sends. */
static void a_flush_begins_beside_a_message(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = pipeline(4, 2, 8);
  s->options.overlap_p2p_comm = TRUE;
  g_free(s->layout.pipeline_layout);
  s->layout.pipeline_layout = g_strdup("Et*3|t*7|t*3|t*3|t*3|t*7|t*3|t*3L");
  MsDetail *detail = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, &detail, NULL);
  for (int slot = 24; slot <= 25; slot++) {
    guint32 row = first_row(detail, 1, slot), i = row;
    while (ms_graph_task(detail->graph, i)->device != 1 || ms_graph_task(detail->graph, i)->stream != MS_STREAM_PP_RECV)
      i--;
    assert_int_equal(detail->trajectory->start[row] >= detail->trajectory->end[i], slot == 25);
  }
  ms_detail_free(detail);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule_is_walked),
      cmocka_unit_test(one_stage_has_the_same_turns),
      cmocka_unit_test(a_deadlock_is_found),
      cmocka_unit_test(pieces_come_in_order),
      cmocka_unit_test(the_embedding_comes_last),
      cmocka_unit_test(stages_meet_behind_the_slots),
      cmocka_unit_test(reductions_begin_together),
      cmocka_unit_test(messages_never_deadlock),
      cmocka_unit_test(reductions_take_longer_beside_compute),
      cmocka_unit_test(the_last_message_leaves_first),
      cmocka_unit_test(exchanges_wait_for_both),
      cmocka_unit_test(a_pair_waits_for_its_gradient),
      cmocka_unit_test(a_flush_begins_beside_a_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
