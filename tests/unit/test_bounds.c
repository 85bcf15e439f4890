/* The tables of lags against the engines, on random lists: exact where nothing is shared, never above what sharing
 * gives. */
#include "lib/close.h"

#include "bound/bound_priv.h"
#include "step/pair.h"

enum { ROWS = 24, CASES = 10000, SM_COUNT = 100, LISTS = 4 };

/* A list of compute and communication rows with random waits, durations and host times. */
typedef struct {
  MsOp op[ROWS];
  MsOpList list;
  MsTime duration[ROWS], beside[ROWS], launch[ROWS];
  guint16 sms[ROWS];
  guint8 use[ROWS];
  MsCosted costed;
} List;

static void draw_list(GRand *rand, List *l, gboolean moe, gboolean backward) {
  static const guint8 streams[] = {MS_STREAM_COMPUTE, MS_STREAM_COMPUTE, MS_STREAM_COMPUTE,
                                   MS_STREAM_TP,      MS_STREAM_EP,      MS_STREAM_SIDE};
  int n = g_rand_int_range(rand, 1, ROWS + 1);
  *l = (List){.list = {.op = l->op, .n = n}};
  for (int i = 0; i < n; i++) {
    MsOp *op = &l->op[i];
    op->stream = streams[g_rand_int_range(rand, 0, G_N_ELEMENTS(streams))];
    op->node = !moe ? MS_NODE_ATTN : (guint8)MIN(MS_N_NODES - 1, i * MS_N_NODES / n);
    if (op->node == MS_NODE_DISPATCH || op->node == MS_NODE_COMBINE) op->stream = MS_STREAM_EP;
    op->pass = backward && g_rand_int_range(rand, 0, 3) == 0 ? MS_PASS_WGRAD
               : backward                                    ? MS_PASS_DGRAD
                                                             : MS_PASS_FORWARD;
    op->flags = g_rand_int_range(rand, 0, 12) == 0 ? MS_OPF_SYNC : 0;
    for (int j = 0; j < 3; j++)
      op->wait[j] = i > 0 && g_rand_boolean(rand) ? (gint16)g_rand_int_range(rand, MAX(0, i - 4), i) : -1;
    l->duration[i] = g_rand_int_range(rand, 1, 2000);
    l->beside[i] = op->stream == MS_STREAM_EP ? l->duration[i] + g_rand_int_range(rand, 0, 1000) : l->duration[i];
    l->launch[i] = g_rand_boolean(rand) ? g_rand_int_range(rand, 0, 60) : 0;
    gboolean beside =
        op->stream == MS_STREAM_EP && g_rand_int_range(rand, 0, 3) == 0; /* what a layer does around combine */
    l->use[i] = op->stream == MS_STREAM_COMPUTE || beside ? MS_USE_COMPUTE
                : op->stream == MS_STREAM_EP              ? MS_USE_LINK1
                                                          : MS_USE_LINK0;
    l->sms[i] = (guint16)(l->use[i] == MS_USE_COMPUTE ? 0 : g_rand_int_range(rand, 0, 20));
  }
  l->list.tip = g_rand_int_range(rand, 0, n);
  l->costed = (MsCosted){.list = &l->list,
                         .duration = l->duration,
                         .beside = l->beside,
                         .launch = l->launch,
                         .sms = l->sms,
                         .use = l->use};
}

/* Both lists laid on one device in the order of pair.c (or one alone), behind a task for each entry and one on the
 * compute stream. */
typedef struct {
  MsTime tip[2], compute;
} Ends;

static Ends run(const List *const list[2], const MsPairRow *order, int n, const MsTime before[MS_N_ENDS],
                gboolean shared) {
  g_autoptr(MsGraph) graph = ms_graph_new(1, MS_N_STREAMS + 2);
  ms_graph_set_sms(graph, SM_COUNT);
  guint32 entry[2], id[2][ROWS], last_compute;
  for (guint k = 0; k < 2; k++) {
    MsTask task = {.stream = (guint8)(MS_N_STREAMS + k), .use = MS_USE_NOTHING, .duration = before[k]};
    entry[k] = ms_graph_add(graph, &task, NULL, 0);
    for (int i = 0; i < ROWS; i++) id[k][i] = G_MAXUINT32;
  }
  MsTask busy = {.stream = MS_STREAM_COMPUTE, .use = MS_USE_NOTHING, .duration = before[MS_END_COMPUTE]};
  last_compute = ms_graph_add(graph, &busy, NULL, 0);
  for (int i = 0; i < n; i++) {
    guint k = order[i].backward;
    int row = order[i].row;
    const List *l = list[k];
    guint32 wait[4];
    guint waits = 0;
    gboolean own = FALSE;
    for (int j = 0; j < 3; j++) {
      if (l->op[row].wait[j] < 0) continue;
      own = TRUE;
      if (id[k][l->op[row].wait[j]] != G_MAXUINT32) wait[waits++] = id[k][l->op[row].wait[j]];
    }
    if (!own) wait[waits++] = entry[k];
    MsTask task = {.stream = l->op[row].stream,
                   .use = shared || l->op[row].stream == MS_STREAM_COMPUTE ? l->use[row] : MS_USE_NOTHING,
                   .sms = shared ? l->sms[row] : 0,
                   .duration = (list[1] ? l->beside : l->duration)[row],
                   .launch = l->launch[row],
                   .host_sync = (l->op[row].flags & MS_OPF_SYNC) != 0};
    id[k][row] = ms_graph_add(graph, &task, wait, waits);
    if (task.stream == MS_STREAM_COMPUTE) last_compute = id[k][row];
  }
  g_autoptr(MsTrajectory) t = shared ? ms_engine_events(graph, NULL) : ms_engine_relax(graph);
  Ends ends = {.compute = t->end[last_compute]};
  for (guint k = 0; k < 2; k++) ends.tip[k] = list[k] ? t->end[id[k][list[k]->list.tip]] : before[k];
  return ends;
}

static void draw_before(GRand *rand, MsTime before[MS_N_ENDS]) {
  for (int k = 0; k < MS_END_HOST; k++) before[k] = g_rand_int_range(rand, 0, 6000);
  before[MS_END_HOST] = 0;
}

/* `free_rows`: some may wait for nothing that the table knows (their waits come later in the order), and start earlier
 * in it than in the engine. */
static void compare(MsRows *rows, const List *const list[2], const MsPairRow *order, int n, gboolean free_rows,
                    GRand *rand, double *sum, int *tight) {
  MsLags unshared, lags;
  ms_lags_of_rows(rows, 0, MS_FROM_ALL, &unshared), ms_lags_of_rows(rows, SM_COUNT, MS_FROM_ALL, &lags);
  MsTime before[MS_N_ENDS], after[MS_N_ENDS];
  draw_before(rand, before);
  if (!list[1]) before[MS_END_BESIDE] = MS_NEVER;
  const MsTime starts[MS_N_ENDS] = {before[0], MAX(before[1], 0), before[2], 0};
  Ends exact = run(list, order, n, starts, FALSE), shared = run(list, order, n, starts, TRUE);
  ms_lags_run(&unshared, TRUE, before, after);
  const MsTime got[] = {after[MS_END_ENTRY], list[1] ? after[MS_END_BESIDE] : exact.tip[1], after[MS_END_COMPUTE]},
               want[] = {exact.tip[0], exact.tip[1], exact.compute};
  for (int k = 0; k < 3; k++) assert_true(free_rows ? got[k] <= want[k] : got[k] == want[k]);
  ms_lags_run(&lags, TRUE, before, after);
  assert_true(after[MS_END_ENTRY] >= got[0] && after[MS_END_ENTRY] <= shared.tip[0]);
  if (list[1]) assert_true(after[MS_END_BESIDE] >= got[1] && after[MS_END_BESIDE] <= shared.tip[1]);
  assert_true(after[MS_END_COMPUTE] >= got[2] && after[MS_END_COMPUTE] <= shared.compute);
  if (free_rows || shared.compute == exact.compute) return;
  *sum += (double)(after[MS_END_COMPUTE] - exact.compute) /
          (double)(shared.compute - exact.compute); /* share of what sharing costs that the table knows */
  ++*tight;
}

static void one_list(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(3);
  MsRows rows = {0};
  double sum = 0;
  int tight = 0;
  for (int i = 0; i < CASES; i++) {
    List l;
    draw_list(rand, &l, FALSE, FALSE);
    MsPairRow order[ROWS];
    for (int k = 0; k < l.list.n; k++) order[k] = (MsPairRow){FALSE, k};
    ms_rows_of_list(&rows, &l.costed, MS_LIST_ALL);
    compare(&rows, (const List *const[]){&l, NULL}, order, l.list.n, FALSE, rand, &sum, &tight);
  }
  ms_rows_clear(&rows);
  print_message("one list: %.0f %% of the cost of sharing\n", 100 * sum / tight);
  assert_true(sum / tight > 0.05);
}

static void two_lists_beside_each_other(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(4);
  MsRows rows = {0};
  double sum = 0;
  int tight = 0;
  for (int i = 0; i < CASES; i++) {
    List f, b;
    gboolean delay = g_rand_boolean(rand);
    draw_list(rand, &f, g_rand_int_range(rand, 0, 4) > 0, FALSE),
        draw_list(rand, &b, g_rand_int_range(rand, 0, 4) > 0, TRUE);
    MsPairRow order[2 * ROWS];
    int n = ms_pair_order(&f.list, &b.list, delay, order);
    assert_int_equal(n, f.list.n + b.list.n); /* every row once, those of a list in order but for weight gradients */
    int last[2] = {-1, -1};
    gboolean seen[2][ROWS] = {{FALSE}};
    for (int k = 0; k < n; k++) {
      const List *l = order[k].backward ? &b : &f;
      assert_false(seen[order[k].backward][order[k].row]);
      seen[order[k].backward][order[k].row] = TRUE;
      if (delay && l->op[order[k].row].pass == MS_PASS_WGRAD) continue;
      assert_true(order[k].row > last[order[k].backward]);
      last[order[k].backward] = order[k].row;
    }
    ms_rows_of_pair(&rows, &f.costed, &b.costed, delay);
    compare(&rows, (const List *const[]){&f, &b}, order, n, delay, rand, &sum, &tight);
  }
  ms_rows_clear(&rows);
  print_message("pairs: %.0f %% of the cost of sharing\n", 100 * sum / tight);
  assert_true(sum / tight > 0.005);
}

/* One table after another is their product. */
static void lists_in_a_row(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(5);
  MsRows rows = {0};
  for (int i = 0; i < CASES; i++) {
    List a, b;
    draw_list(rand, &a, FALSE, FALSE), draw_list(rand, &b, FALSE, FALSE);
    ms_rows_of_list(&rows, &a.costed, MS_LIST_ALL);
    MsLags first, then;
    ms_lags_of_rows(&rows, SM_COUNT, MS_FROM_ALL, &first);
    ms_rows_of_list(&rows, &b.costed, MS_LIST_ALL);
    ms_lags_of_rows(&rows, SM_COUNT, MS_FROM_ALL, &then);
    MsLags both = ms_lags_product(&then, &first);
    MsTime before[MS_N_ENDS], between[MS_N_ENDS], after[MS_N_ENDS], at_once[MS_N_ENDS];
    draw_before(rand, before);
    ms_lags_run(&first, TRUE, before, between), ms_lags_run(&then, TRUE, between, after),
        ms_lags_run(&both, TRUE, before, at_once);
    for (int k = 0; k < MS_N_ENDS; k++) assert_true(after[k] == at_once[k]);
  }
  ms_rows_clear(&rows);
}

/* Lists one behind the other on one device, with sharing; when the compute rows of each have ended. The input of the
 * third list is the end of the chain of the second, that of the others comes by itself. */
static void run_in_turn(const List *list, const MsTime *input, MsTime *compute) {
  g_autoptr(MsGraph) graph = ms_graph_new(1, MS_N_STREAMS + LISTS);
  ms_graph_set_sms(graph, SM_COUNT);
  guint32 id[LISTS][ROWS], last[LISTS];
  for (int k = 0; k < LISTS; k++) {
    MsTask comes = {.stream = (guint8)(MS_N_STREAMS + k), .use = MS_USE_NOTHING, .duration = input[k]};
    guint32 entry = k == 2 ? id[1][list[1].list.tip] : ms_graph_add(graph, &comes, NULL, 0);
    last[k] = k > 0 ? last[k - 1] : G_MAXUINT32;
    for (int i = 0; i < list[k].list.n; i++) {
      const MsOp *op = &list[k].op[i];
      guint32 wait[3];
      guint waits = 0;
      for (int j = 0; j < 3; j++)
        if (op->wait[j] >= 0) wait[waits++] = id[k][op->wait[j]];
      if (waits == 0) wait[waits++] = entry;
      MsTask task = {.stream = op->stream,
                     .use = list[k].use[i],
                     .sms = list[k].sms[i],
                     .duration = list[k].duration[i],
                     .launch = list[k].launch[i],
                     .host_sync = (op->flags & MS_OPF_SYNC) != 0};
      id[k][i] = ms_graph_add(graph, &task, wait, waits);
      if (task.stream == MS_STREAM_COMPUTE) last[k] = id[k][i];
    }
  }
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, NULL);
  for (int k = 0; k < LISTS; k++) compute[k] = last[k] == G_MAXUINT32 ? 0 : t->end[last[k]];
}

/* What lists force on the compute stream, with the rows that run on from one into the next. */
static void rows_that_run_on(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(6);
  MsRows rows = {0};
  int crossed = 0;
  for (int i = 0; i < CASES; i++) {
    List list[LISTS];
    MsForced forced[LISTS];
    MsTime input[LISTS], compute[LISTS];
    for (int k = 0; k < LISTS; k++) {
      draw_list(rand, &list[k], g_rand_boolean(rand), FALSE);
      input[k] = g_rand_int_range(rand, 0, 3000);
      ms_rows_of_list(&rows, &list[k].costed, MS_LIST_ALL);
      forced[k] = ms_rows_forced(&rows, SM_COUNT);
    }
    run_in_turn(list, input, compute);
    const MsForced both = ms_forced_product(&forced[2], &forced[1]); /* as pieces of a slot: then slots 0, 1-2, 3 */
    const MsForced *slot[] = {&forced[0], &both, &forced[3]};
    const MsTime end[] = {compute[0], compute[2], compute[3]};
    for (int from = -1; from < 2; from++) {
      MsTime least = from < 0 ? 0 : end[from], cross = 0;
      MsCross last = {0};
      for (int k = from + 1; k < 3; k++) {
        MsNeed need = ms_need_of(slot[k]);
        cross += need.cross.inside + ms_cross_cost(&need.cross, &last);
        least += need.forced;
        assert_true(end[k] >= least + cross);
        if (need.own > 0) last = need.cross;
      }
      crossed += cross > 0;
    }
  }
  ms_rows_clear(&rows);
  assert_true(crossed > CASES / 10);
}

/* Shared out, no two turns that follow one another get more than they cost, known or not; what they cost is found again
 * where the usual turn follows itself. */
static void turns_share_what_they_cost(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(7);
  MsRows rows = {0};
  int shared = 0;
  for (int i = 0; i < CASES; i++) {
    MsForced forced[LISTS];
    const MsForced *turn[LISTS];
    MsJoint joint[LISTS];
    for (int k = 0; k < LISTS; k++) {
      List list;
      draw_list(rand, &list, g_rand_boolean(rand), FALSE);
      ms_rows_of_list(&rows, &list.costed, MS_LIST_ALL);
      forced[k] = ms_rows_forced(&rows, SM_COUNT), turn[k] = &forced[k];
    }
    MsTime other = ms_joints_share(turn, LISTS, joint);
    if (forced[0].own == 0) continue;
    for (int u = 0; u < LISTS; u++)
      for (int w = 0; w < LISTS; w++) {
        if (forced[u].own == 0 || forced[w].own == 0) continue;
        MsTime cost = ms_cross_cost(&forced[w].cross, &forced[u].cross), own = joint[u].out + joint[w].in;
        assert_true(own <= cost);
        assert_true(joint[w].in - joint[0].in <= 0 && other + joint[0].in + joint[u].out <= 0);
        if (u == 0 && w == 0) assert_true(own == cost);
        shared += own > 0;
      }
  }
  ms_rows_clear(&rows);
  assert_true(shared > CASES / 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_list), cmocka_unit_test(two_lists_beside_each_other),
                                     cmocka_unit_test(lists_in_a_row), cmocka_unit_test(rows_that_run_on),
                                     cmocka_unit_test(turns_share_what_they_cost)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
