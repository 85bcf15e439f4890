/* tests/unit/test_sched.c - schedules against written-out orders, closed forms, published bubble rates, and lists made
 * by the authors' generators. All times are small multiples of 1/2 or 1/4 and exact; published rates have 4 decimals.
 */
#include "sched/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  ONE_F1B = MS_SCHED_1F1B,
  ZB_H1 = MS_SCHED_ZB_H1,
  ZB_H2 = MS_SCHED_ZB_H2,
  ZB_1P = MS_SCHED_ZB_1P,
  ZB_2P = MS_SCHED_ZB_2P,
  ZB_V = MS_SCHED_ZB_V,
  V_HALF = MS_SCHED_V_HALF,
  V_MIN = MS_SCHED_V_MIN,
  DUALPIPE = MS_SCHED_DUALPIPE,
  DUALPIPEV = MS_SCHED_DUALPIPEV,
  GPIPE = MS_SCHED_GPIPE,
  EAGER = MS_SCHED_EAGER_1F1B,
  N_KINDS = MS_N_SCHEDULES
};

static MsSchedule *make(int kind, int p, int m, int v, int group, gboolean overlap) {
  char why[200] = "";
  MsSchedule *schedule = ms_schedule_new(kind, p, m, v, group, overlap, why, sizeof why);
  if (!schedule) fail_msg("%s p=%d m=%d v=%d N=%d: %s", ms_schedule_rows[kind].word, p, m, v, group, why);
  return schedule;
}

static void assert_valid(const MsSchedule *schedule) {
  char why[200] = "";
  if (!ms_schedule_valid(schedule, why, sizeof why))
    fail_msg("p=%d m=%d v=%d: %s", schedule->stages, schedule->microbatches, schedule->chunks, why);
}

static void append_pass(GString *text, const MsSchedule *schedule, char letter, int mb, int chunk) {
  g_string_append_printf(text, "%c%d", letter, mb);
  if (schedule->chunks > 1) g_string_append_printf(text, ".%d", chunk);
}

/* One stage's list: "F0 F1 B0", with chunks "F0.1 I0.1 W0.1", pairs "F4.0&B1.1". (transfer full) */
static char *order_of(const MsSchedule *schedule, int stage) {
  GString *text = g_string_new(NULL);
  for (int k = 0; k < schedule->n[stage]; k++) {
    const MsSlot *slot = &schedule->slot[stage][k];
    if (k) g_string_append_c(text, ' ');
    append_pass(text, schedule, slot->kind == MS_SLOT_FB ? 'F' : *ms_slot_words[slot->kind], slot->mb, slot->chunk);
    if (slot->kind != MS_SLOT_FB) continue;
    g_string_append_c(text, '&');
    append_pass(text, schedule, 'B', slot->mb2, slot->chunk2);
  }
  return g_string_free(text, FALSE);
}

static void assert_order(const MsSchedule *schedule, int stage, const char *order) {
  g_autofree char *text = order_of(schedule, stage);
  assert_string_equal(text, order);
}

/* Compares doubles exactly. */
static void assert_time(double is, double should) {
  if (is != should) fail_msg("%.17g, should be %.17g", is, should);
}

/* --- written-out orders (docs/theory/schedules.md 2, 3, 5.1) ------------------------------------------------------ */

static void order_of_1f1b(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(ONE_F1B, 4, 8, 1, 0, FALSE);
  assert_order(schedule, 0, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  assert_order(schedule, 1, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  assert_order(schedule, 2, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  assert_order(schedule, 3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

static void times_of_1f1b(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(ONE_F1B, 4, 8, 1, 0, FALSE);
  g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, 1, 1, 1, 3, 0);
  static const double first[][3] = {{3, 3, 4},    {4, 10, 12},  {5, 12, 13},  {6, 13, 15},
                                    {12, 22, 24}, {13, 25, 27}, {14, 28, 30}, {15, 31, 33}};
  for (size_t k = 0; k < G_N_ELEMENTS(first); k++) {
    assert_time(run->start[(int)first[k][0]], first[k][1]);
    assert_time(run->end[(int)first[k][0]], first[k][2]);
  }
  assert_time(run->start[48], 3), assert_time(run->end[48], 4); /* last stage: F0, B0, F1 */
  assert_time(run->start[49], 4), assert_time(run->end[49], 6);
  assert_time(run->start[50], 6), assert_time(run->end[50], 7);
}

static void order_of_interleaved(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(ONE_F1B, 4, 8, 2, 4, FALSE);
  assert_order(schedule, 0,
               "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 B3.1 F6.1 B0.0 "
               "F7.1 B1.0 B2.0 B3.0 "
               "B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  assert_order(schedule, 1,
               "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 B0.1 F5.0 B1.1 F6.0 B2.1 F7.0 B3.1 F4.1 B0.0 F5.1 B1.0 "
               "F6.1 B2.0 F7.1 B3.0 "
               "B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  assert_order(schedule, 2,
               "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 B0.1 F3.1 B1.1 F4.0 B2.1 F5.0 B3.1 F6.0 B0.0 F7.0 B1.0 F4.1 B2.0 "
               "F5.1 B3.0 F6.1 B4.1 "
               "F7.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  assert_order(schedule, 3,
               "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 F5.0 B1.0 F6.0 B2.0 F7.0 B3.0 "
               "F4.1 B4.1 F5.1 B5.1 "
               "F6.1 B6.1 F7.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, 1, 1, 1, 3, 0);
  for (int s = 0; s < 4; s++) { /* stage i runs from i to 57 - 2 i */
    assert_time(run->start[s * 32], s);
    assert_time(run->end[s * 32 + 31], 57 - 2 * s);
  }
}

static void order_with_a_smaller_last_group(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(ONE_F1B, 2, 5, 2, 3, FALSE); /* groups of 3 and 2; warm-up 2 + 3 = 5 and 3 */
  assert_order(schedule, 0,
               "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 B0.1 F3.0 B1.1 F4.0 B2.1 F3.1 B0.0 F4.1 B1.0 B2.0 B3.1 B4.1 B3.0 B4.0");
  assert_order(schedule, 1,
               "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0 F4.0 B1.0 F3.1 B2.0 F4.1 B3.1 B4.1 B3.0 B4.0");
  assert_valid(schedule);
}

static void order_with_overlap(void **state) {
  (void)state;
  g_autoptr(MsSchedule) one = make(ONE_F1B, 1, 3, 1, 0, TRUE);
  assert_order(one, 0, "F0 F1&B0 F2&B1 B2");
  g_autoptr(MsSchedule) two = make(ONE_F1B, 2, 2, 2, 0, TRUE);
  assert_order(two, 1, "F0.0 F1.0 F0.1 F1.1&B0.1 B1.1 B0.0 B1.0");
}

/* Groups of as many microbatches as stages run through the chunks, forward and then backward; the last group may be
 * smaller. */
static void order_of_gpipe_with_chunks(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(GPIPE, 2, 3, 2, 0, FALSE), whole = make(GPIPE, 2, 3, 2, 3, FALSE);
  for (int s = 0; s < 2; s++) {
    assert_order(schedule, s, "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1 B0.1 B1.1 B0.0 B1.0 B2.1 B2.0");
    assert_order(whole, s, "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 B0.1 B1.1 B2.1 B0.0 B1.0 B2.0");
  }
}

static void order_of_eager_1f1b(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(EAGER, 4, 8, 1, 0, FALSE);
  assert_order(schedule, 0, "F0 F1 F2 F3 F4 F5 F6 B0 F7 B1 B2 B3 B4 B5 B6 B7");
  assert_order(schedule, 1, "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 F7 B3 B4 B5 B6 B7");
  assert_order(schedule, 2, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  assert_order(schedule, 3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

static void order_of_zb_h1(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(ZB_H1, 4, 8, 1, 0, FALSE);
  assert_order(schedule, 0, "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7");
  assert_order(schedule, 1, "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7");
  assert_order(schedule, 2, "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7");
  assert_order(schedule, 3, "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7");
}

static void order_of_dualpipe(void **state) {
  (void)state;
  g_autoptr(MsSchedule) schedule = make(DUALPIPE, 4, 8, 1, 0, FALSE);
  assert_order(schedule, 0,
               "F0.0 F1.0 F2.0 F4.1 I4.1 W4.1 F5.1 F3.0&B5.1 F6.1&B0.0 B6.1 F7.1&B1.0 B7.1 I2.0 W2.0 I3.0 W3.0");
  assert_order(schedule, 1,
               "F0.0 F4.1 F1.0 F5.1 F2.0 B4.1 F6.1&B0.0 F3.0&B5.1 F7.1&B1.0 B6.1 B2.0 I7.1 I3.0 W7.1 W3.0");
  assert_order(schedule, 3,
               "F4.1 F5.1 F6.1 F0.0 I0.0 W0.0 F1.0 F7.1&B1.0 F2.0&B4.1 B2.0 F3.0&B5.1 B3.0 I6.1 W6.1 I7.1 W7.1");
}

/* --- the table of oracles (docs/theory/schedules.md 3, 4, 5, 6, 7, 8) --------------------------------------------- */

typedef struct {
  int kind, p, m, v, group, overlap;
  double f, i, w, pair, makespan, span;
  const char *peaks;
} Oracle;

static const Oracle oracles[] = {
    {ONE_F1B, 4, 8, 1, 0, 0, 1, 1, 1, 3, 33, 33, "4 3 2 1"},
    {ONE_F1B, 4, 4, 1, 0, 0, 1, 1, 1, 3, 21, 21, "4 3 2 1"},
    {ONE_F1B, 8, 16, 1, 0, 0, 1, 1, 1, 3, 69, 69, "8 7 6 5 4 3 2 1"},
    {ONE_F1B, 16, 128, 1, 0, 0, 1, 1, 1, 3, 429, 429, NULL},
    {ONE_F1B, 4, 8, 2, 0, 0, 1, 1, 1, 3, 57, 57, "11 9 7 5"},
    {ONE_F1B, 4, 8, 2, 8, 0, 1, 1, 1, 3, 57, 57, "15 13 11 9"},
    {ONE_F1B, 2, 4, 2, 0, 0, .5, .5, .5, 1.5, 13.5, 13.5, NULL},
    {ONE_F1B, 4, 16, 4, 0, 0, .25, .25, .25, .75, 50.25, 50.25, "19 17 15 13"},
    {ONE_F1B, 1, 8, 1, 0, 1, 1, 1, 1, 2, 17, 17, "2"},
    {ONE_F1B, 4, 8, 2, 0, 1, 1, 1, 1, 3, 57, 57, "12 10 8 6"},
    {ONE_F1B, 4, 8, 2, 0, 1, 1, 1, 1, 2.5, 51.5, 51.5, NULL},
    {ONE_F1B, 4, 8, 2, 0, 1, 1, 1, 1, 2, 46, 46, NULL},
    {ONE_F1B, 8, 16, 2, 0, 1, 1, 1, 1, 3, 117, 117, NULL},
    {ONE_F1B, 8, 16, 2, 0, 1, 1, 1, 1, 2.5, 105.5, 105.5, NULL},
    {ONE_F1B, 8, 16, 2, 0, 1, 1, 1, 1, 2, 94, 94, NULL},
    {ONE_F1B, 8, 32, 4, 0, 1, 1, 1, 1, 3, 405, 405, NULL},
    {ONE_F1B, 8, 32, 4, 0, 1, 1, 1, 1, 2.5, 353.5, 353.5, NULL},
    {ONE_F1B, 8, 32, 4, 0, 1, 1, 1, 1, 2, 302, 302, NULL},
    {ONE_F1B, 2, 8, 2, 0, 1, 1, 1, 1, 3, 51, 51, NULL},
    {ONE_F1B, 2, 8, 2, 0, 1, 1, 1, 1, 2.5, 44.5, 44.5, NULL},
    {ONE_F1B, 2, 8, 2, 0, 1, 1, 1, 1, 2, 38, 38, NULL},
    {ONE_F1B, 4, 16, 8, 4, 0, 1, 1, 1, 3, 393, 393, "35 33 31 29"},
    {ONE_F1B, 4, 16, 8, 4, 1, 1, 1, 1, 3, 393, 393, "36 34 32 30"},
    {ONE_F1B, 4, 16, 8, 4, 1, 1, 1, 1, 2.5, 343.5, 343.5, NULL},
    {ONE_F1B, 4, 16, 8, 4, 1, 1, 1, 1, 2, 294, 294, NULL},
    {ONE_F1B, 8, 128, 4, 8, 0, 1, 1, 1, 3, 1557, 1557, "39 37 35 33 31 29 27 25"},
    {ONE_F1B, 8, 128, 4, 8, 1, 1, 1, 1, 3, 1557, 1557, NULL},
    {ONE_F1B, 8, 128, 4, 8, 1, 1, 1, 1, 2.5, 1313.5, 1313.5, NULL},
    {ONE_F1B, 8, 128, 4, 8, 1, 1, 1, 1, 2, 1070, 1070, NULL},
    {ONE_F1B, 8, 256, 2, 8, 0, 1, 1, 1, 3, 1557, 1557, "23 21 19 17 15 13 11 9"},
    {ONE_F1B, 8, 256, 2, 8, 1, 1, 1, 1, 2.5, 1305.5, 1305.5, NULL},
    {ONE_F1B, 8, 256, 2, 8, 1, 1, 1, 1, 2, 1054, 1054, NULL},
    {ONE_F1B, 4, 128, 4, 4, 0, 1, 1, 1, 3, 1545, 1545, "19 17 15 13"},
    {ONE_F1B, 4, 128, 4, 4, 1, 1, 1, 1, 2.5, 1295.5, 1295.5, NULL},
    {ONE_F1B, 4, 128, 4, 4, 1, 1, 1, 1, 2, 1046, 1046, NULL},
    {GPIPE, 4, 8, 1, 0, 0, 1, 1, 1, 3, 33, 33, "8 8 8 8"},
    {ZB_H1, 4, 8, 1, 0, 0, 1, 1, 1, 3, 27, 27, "4 4 4 4"},
    {ZB_H1, 8, 16, 1, 0, 0, 1, 1, 1, 3, 55, 55, "8 8 8 8 8 8 8 8"},
    {ZB_H2, 4, 8, 1, 0, 0, 1, 1, 1, 3, 27, 24, "7 7 7 7"},
    {ZB_H2, 8, 16, 1, 0, 0, 1, 1, 1, 3, 55, 48, "15 15 15 15 15 15 15 15"},
    {ZB_1P, 4, 8, 1, 0, 0, 1, 1, 1, 3, 27, 27, "4 4 4 4"},
    {ZB_1P, 8, 16, 1, 0, 0, 1, 1, 1, 3, 55, 55, "8 8 8 8 8 8 8 8"},
    {ZB_2P, 4, 8, 1, 0, 0, 1, 1, 1, 3, 27, 24, "8 8 8 8"},
    {ZB_2P, 8, 16, 1, 0, 0, 1, 1, 1, 3, 55, 48, "16 16 16 16 16 16 16 16"},
    {ZB_V, 4, 8, 2, 0, 0, 1, 1, 1, 3, 51, 48, "8 8 8 8"},
    {ZB_V, 4, 12, 2, 0, 0, 1, 1, 1, 3, 75, 72, "8 8 8 8"},
    {ZB_V, 8, 16, 2, 0, 0, 1, 1, 1, 3, 103, 96, "16 16 16 16 16 16 16 16"},
    {V_HALF, 4, 8, 2, 0, 0, 1, 1, 1, 3, 53, 53, "6 6 6 6"},
    {V_HALF, 6, 12, 2, 0, 0, 1, 1, 1, 3, 83, 83, "8 8 8 8 8 8"},
    {V_HALF, 8, 16, 2, 0, 0, 1, 1, 1, 3, 113, 113, "10 10 10 10 10 10 10 10"},
    {V_HALF, 10, 20, 2, 0, 0, 1, 1, 1, 3, 143, 143, NULL},
    {V_HALF, 12, 24, 2, 0, 0, 1, 1, 1, 3, 173, 173, NULL},
    {V_MIN, 4, 8, 2, 0, 0, 1, 1, 1, 3, 59, 59, "4 4 4 4"},
    {V_MIN, 6, 12, 2, 0, 0, 1, 1, 1, 3, 89, 89, "6 6 6 6 6 6"},
    {V_MIN, 8, 16, 2, 0, 0, 1, 1, 1, 3, 123, 123, "7 8 8 8 8 8 8 8"}, /* the note gives the largest, 8 */
    {V_MIN, 10, 20, 2, 0, 0, 1, 1, 1, 3, 155, 155, "8 8 8 8 8 8 8 8 8 8"},
    {V_MIN, 12, 24, 2, 0, 0, 1, 1, 1, 3, 185, 185, NULL},
    {DUALPIPE, 4, 8, 1, 0, 0, 1, 1, 1, 3, 26, 26, "5 5 5 5"},
    {DUALPIPE, 4, 12, 1, 0, 0, 1, 1, 1, 3, 38, 38, "5 5 5 5"},
    {DUALPIPE, 8, 20, 1, 0, 0, 1, 1, 1, 3, 66, 66, "9 9 9 9 9 9 9 9"},
    {DUALPIPE, 8, 32, 1, 0, 0, 1, 1, 1, 3, 102, 102, NULL},
    {DUALPIPE, 4, 8, 1, 0, 0, 1, 1, 1, 2, 22, 22, NULL},
    {DUALPIPE, 4, 12, 1, 0, 0, 1, 1, 1, 2, 30, 30, NULL},
    {DUALPIPE, 8, 20, 1, 0, 0, 1, 1, 1, 2, 52, 52, NULL},
    {DUALPIPE, 8, 32, 1, 0, 0, 1, 1, 1, 2, 76, 76, NULL},
    {DUALPIPE, 4, 8, 2, 0, 0, 2, 2, 1, 5, 45, 45, NULL},
    {DUALPIPE, 4, 12, 2, 0, 0, 2, 2, 1, 5, 65, 65, NULL},
    {DUALPIPE, 8, 20, 2, 0, 0, 2, 2, 1, 5, 115, 115, NULL},
    {DUALPIPE, 8, 32, 2, 0, 0, 2, 2, 1, 5, 175, 175, NULL},
    {DUALPIPEV, 2, 8, 2, 0, 0, 1, 1, 1, 3, 50, 50, "5 5"},
    {DUALPIPEV, 4, 10, 2, 0, 0, 1, 1, 1, 3, 66, 66, "9 9 9 9"},
    {DUALPIPEV, 4, 16, 2, 0, 0, 1, 1, 1, 3, 102, 102, "9 9 9 9"},
};

static void makespans_and_peaks(void **state) {
  (void)state;
  for (size_t k = 0; k < G_N_ELEMENTS(oracles); k++) {
    const Oracle *oracle = &oracles[k];
    g_autoptr(MsSchedule) schedule =
        make(oracle->kind, oracle->p, oracle->m, oracle->v, oracle->group, oracle->overlap);
    assert_valid(schedule);
    g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, oracle->f, oracle->i, oracle->w, oracle->pair, 0);
    if (run->makespan != oracle->makespan || run->span != oracle->span)
      fail_msg("oracle %zu: makespan %g, span %g; should be %g, %g", k, run->makespan, run->span, oracle->makespan,
               oracle->span);
    GString *peaks = g_string_new(NULL);
    for (int s = 0; s < oracle->p; s++)
      g_string_append_printf(peaks, s ? " %d" : "%d", ms_schedule_peak_in_flight(schedule, s));
    if (oracle->peaks) assert_string_equal(peaks->str, oracle->peaks);
    g_string_free(peaks, TRUE);
  }
}

/* --- closed forms on grids ------------------------------------------------------------------------------------- */

static void closed_form_of_1f1b_and_zero_bubble(void **state) {
  (void)state;
  for (int p = 1; p <= 9; p++)
    for (int m = 1; m <= 24; m += m < 6 ? 1 : 5) {
      g_autoptr(MsSchedule) one = make(ONE_F1B, p, m, 1, 0, FALSE), h1 = make(ZB_H1, p, m, 1, 0, FALSE),
                            h2 = make(ZB_H2, p, m, 1, 0, FALSE);
      g_autoptr(MsScheduleRun) run = ms_schedule_run(one, 1, 1.5, .5, 0, 0),
                               run1 = ms_schedule_run(h1, 1, 1.5, .5, 0, 0),
                               run2 = ms_schedule_run(h2, 1, 1.5, .5, 0, 0), unit2 = ms_schedule_run(h2, 1, 1, 1, 0, 0);
      assert_time(run->makespan, (m + p - 1) * 3.0);
      assert_true(ABS(run->bubble_fraction - (p - 1.0) / (m + p - 1)) < 1e-15);
      for (int s = 0; s < p; s++) assert_int_equal(ms_schedule_peak_in_flight(one, s), MIN(m, p - s));
      if (m >= p) assert_time(run1->makespan, m * 3.0 + (p - 1) * 2.0); /* F + max(0, B - W) = 1 + 1 */
      if (m < 2 * p - 1) continue;
      assert_time(unit2->makespan, 3 * m + p - 1);
      assert_time(unit2->span, 3 * m);
      assert_time(run2->makespan, m * 3.0 + (p - 1) * 1.5); /* max(F, F + B - 2 W) = 1.5 */
      for (int s = 0; s < p; s++) assert_int_equal(ms_schedule_peak_in_flight(h2, s), 2 * p - 1);
    }
}

/* Without messages it is 1F1B, with 2 (p - s) - 1 live forwards on stage s. A message of up to half a forward and
 * backward lengthens start and end and nothing between; 1F1B waits for messages all the time. */
static void closed_form_of_eager_1f1b(void **state) {
  (void)state;
  for (int p = 1; p <= 9; p++)
    for (int m = 1; m <= 24; m += m < 6 ? 1 : 5)
      for (double comm = 0; comm <= 2; comm += .25) {
        g_autoptr(MsSchedule) eager = make(EAGER, p, m, 1, 0, FALSE), one = make(ONE_F1B, p, m, 1, 0, FALSE);
        g_autoptr(MsScheduleRun) run = ms_schedule_run(eager, 1, 1.5, .5, 0, comm),
                                 run1 = ms_schedule_run(one, 1, 1.5, .5, 0, comm);
        if (comm <= 1.5) assert_time(run->makespan, (m + p - 1) * 3.0 + 2 * (p - 1) * comm);
        if (comm == 0 || p == 1) assert_time(run->makespan, run1->makespan);
        assert_true(run->makespan <= run1->makespan);
        if (comm > 0 && p > 1 && m > 2 * p) assert_true(run->makespan < run1->makespan);
        for (int s = 0; s < p; s++) assert_int_equal(ms_schedule_peak_in_flight(eager, s), MIN(m, 2 * (p - s) - 1));
      }
}

static void closed_form_of_interleaved(void **state) {
  (void)state;
  for (int p = 2; p <= 6; p++)
    for (int v = 2; v <= 5; v++)
      for (int m = p; m <= 4 * p; m++)
        for (int group = p; group <= MIN(m, p + 3); group++) {
          if (m % group && m % group < p) continue;
          int n = m * v, last = (v - 1) * group + 1;
          g_autoptr(MsSchedule) plain = make(ONE_F1B, p, m, v, group, FALSE),
                                overlap = make(ONE_F1B, p, m, v, group, TRUE);
          assert_valid(plain), assert_valid(overlap);
          for (int s = 0; s < p; s++) {
            int peak = 2 * (p - s - 1) + (v - 1) * group + 1;
            assert_int_equal(ms_schedule_peak_in_flight(plain, s), MIN(n, peak));
            assert_int_equal(ms_schedule_peak_in_flight(overlap, s), MIN(n, peak + 1));
          }
          if (m % group) continue; /* the closed forms are for whole groups */
          g_autoptr(MsScheduleRun) run = ms_schedule_run(plain, 1, 1, 1, 3, 0);
          assert_time(run->makespan, 3.0 * (n + p - 1));
          g_autoptr(MsScheduleRun) same = ms_schedule_run(overlap, 1, 1, 1, 3, 0);
          assert_time(same->makespan, (p - 1 + last) * 3.0 + (n - last) * 3.0);
          g_autoptr(MsScheduleRun) fast = ms_schedule_run(overlap, 1, 1, 1, 2.5, 0);
          assert_time(fast->makespan, (p - 1 + last) * 3.0 + (n - last) * 2.5);
        }
}

static void closed_form_of_dualpipe(void **state) {
  (void)state;
  for (int p = 2; p <= 8; p += 2)
    for (int m = 2 * p; m <= 3 * p + 4; m += 2) {
      g_autoptr(MsSchedule) dual = make(DUALPIPE, p, m, 1, 0, FALSE), v = make(DUALPIPEV, p, m, 2, 0, FALSE);
      assert_valid(dual), assert_valid(v);
      g_autoptr(MsScheduleRun) run = ms_schedule_run(dual, 2, 2, 1, 5, 0), run_v = ms_schedule_run(v, 2, 2, 1, 5, 0);
      assert_time(run->makespan, m * 5.0 + (p / 2 - 1) * (5 + 3 - 3.0));
      assert_time(run_v->makespan, 2 * m * 5.0 + (p - 1) * (5 + 3 - 3.0));
      for (int s = 0; s < p; s++) {
        assert_int_equal(ms_schedule_peak_in_flight(dual, s), p + 1);
        assert_int_equal(ms_schedule_peak_in_flight(v, s), 2 * p + 1);
      }
    }
}

static void closed_form_of_interleaved_gpipe(void **state) {
  (void)state;
  for (int p = 2; p <= 6; p++)
    for (int v = 1; v <= 4; v++)
      for (int m = p; m <= 4 * p; m++)
        for (int group = v == 1 ? 0 : 1; group <= (v == 1 ? 0 : m); group++) {
          g_autoptr(MsSchedule) schedule = make(GPIPE, p, m, v, group, FALSE);
          assert_valid(schedule);
          for (int s = 0; s < p; s++) assert_int_equal(ms_schedule_peak_in_flight(schedule, s), m * v);
          g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, 1, 1.5, .5, 0, 0);
          double least = m * v * 3.0 + (p - 1) * 3.0; /* forwards fill and drain once, backwards too */
          if (v == 1 || (group >= p && m % group == 0)) assert_time(run->makespan, least);
          else
            assert_true(run->makespan >=
                        least); /* a group of less than p waits for its first microbatch to come round */
        }
  g_autoptr(MsSchedule) two = make(GPIPE, 2, 2, 2, 0, FALSE);
  assert_order(two, 0, "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0");
}

static void closed_forms_of_the_v_schedules(void **state) {
  (void)state;
  static const int min_bubble[] = {[4] = 11, [6] = 17, [8] = 27, [10] = 35, [12] = 41},
                   min_peak[] = {[4] = 4, [6] = 6, [8] = 8, [10] = 8, [12] = 10};
  for (int p = 4; p <= 12; p += 2)
    for (int m = 2 * p; m <= 3 * p; m += p / 2) {
      g_autoptr(MsSchedule) half = make(V_HALF, p, m, 2, 0, FALSE), min = make(V_MIN, p, m, 2, 0, FALSE),
                            zb = make(ZB_V, p, m, 2, 0, FALSE);
      g_autoptr(MsScheduleRun) half_run = ms_schedule_run(half, 1, 1, 1, 3, 0),
                               min_run = ms_schedule_run(min, 1, 1, 1, 3, 0),
                               zb_run = ms_schedule_run(zb, 1, 1, 1, 3, 0);
      assert_time(half_run->makespan, 6 * m + 3 * p - 7);
      assert_time(min_run->makespan, 6 * m + min_bubble[p]);
      assert_time(zb_run->makespan, 6 * m + p - 1);
      assert_time(zb_run->span, 6 * m);
      int live_min = 0;
      for (int s = 0; s < p; s++) {
        assert_int_equal(ms_schedule_peak_in_flight(half, s), p + 2);
        assert_int_equal(ms_schedule_peak_in_flight(zb, s), 2 * p);
        live_min = MAX(live_min, ms_schedule_peak_in_flight(min, s));
      }
      assert_int_equal(live_min, min_peak[p]);
      assert_int_equal(live_min, (2 * p + 2) / 3 + (p % 3 == 1 ? 1 : 2));
    }
}

/* Behind one forward that no backward runs beside: as many as ever where there are no pairs, at most one pass less
 * where there are; by chunks, what the closed form says. */
static void most_in_flight_by_chunks(void **state) {
  (void)state;
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++)
    for (int p = 2; p <= 8; p += 2)
      for (int m = 2 * p; m <= 3 * p; m += 2) {
        const MsScheduleRow *row = ms_schedule_row((MsScheduleKind)kind);
        int chunks = MAX(1, ms_schedule_chunks((MsScheduleKind)kind));
        g_autoptr(MsSchedule) schedule = ms_schedule_new(kind, p, m, chunks, 0, FALSE, NULL, 0);
        for (int s = 0; schedule && s < p; s++) {
          gint64 live[2] = {0};
          ms_schedule_most_in_flight(schedule, s, live);
          gint64 sum = live[0] + live[1], peak = ms_schedule_peak_in_flight(schedule, s);
          assert_true(sum <= peak && sum >= peak - (row->pairs == MS_PAIRS_ALWAYS));
          const MsScheduleNumbers numbers = {.stages = p, .microbatches = m, .chunks = chunks, .group = p};
          if (row->live(&numbers, s, 0) > 0) assert_int_equal(live[0], row->live(&numbers, s, 0));
        }
      }
}

/* --- DualPipe's program, step by step (docs/theory/schedules.md 6) ------------------------------------------------ */

typedef struct {
  const MsSchedule *schedule;
  int stage, at, flip;           /* chunk = phase ^ flip */
  int f[2], b[2];                /* next microbatch of each phase */
  int waits[64][2], first, last; /* (microbatch, chunk) of split backwards that wait for their weight gradients */
} Reader;

static void expect(Reader *r, int kind, int f_phase, int b_phase) {
  const MsSlot *slot = &r->schedule->slot[r->stage][r->at++];
  if (slot->kind != kind)
    fail_msg("stage %d, slot %d is %s, should be %s", r->stage, r->at - 1, ms_slot_words[slot->kind],
             ms_slot_words[kind]);
  if (kind == MS_SLOT_W) {
    assert_int_equal(slot->mb, r->waits[r->first][0]);
    assert_int_equal(slot->chunk, r->waits[r->first++][1]);
    return;
  }
  int b_mb = kind == MS_SLOT_FB ? slot->mb2 : slot->mb, b_chunk = kind == MS_SLOT_FB ? slot->chunk2 : slot->chunk;
  if (kind == MS_SLOT_F || kind == MS_SLOT_FB) {
    assert_int_equal(slot->chunk, f_phase ^ r->flip);
    assert_int_equal(slot->mb, r->f[f_phase]++);
    if (kind == MS_SLOT_F) return;
  }
  assert_int_equal(b_chunk, b_phase ^ r->flip);
  assert_int_equal(b_mb, r->b[b_phase]++);
  if (kind == MS_SLOT_I) r->waits[r->last][0] = b_mb, r->waits[r->last++][1] = b_chunk;
}

static void read_program(Reader *r, int half, int near, int steady) {
  int far = half - near - 1;
  for (int i = 0; i < 2 * far; i++) expect(r, MS_SLOT_F, 0, 0);                           /* 1 */
  for (int i = 0; i <= near; i++) expect(r, MS_SLOT_F, 0, 0), expect(r, MS_SLOT_F, 1, 0); /* 2 */
  for (int i = 0; i < far; i++)
    expect(r, MS_SLOT_I, 0, 1), expect(r, MS_SLOT_W, 0, 0), expect(r, MS_SLOT_F, 1, 0); /* 3 */
  for (int i = 0; i < steady; i++) {                                                    /* 4 */
    if (i == 0 && far == 0)
      expect(r, MS_SLOT_F, 0, 0), expect(r, MS_SLOT_B, 0, 1); /* the middle: its first pair is not overlapped */
    else expect(r, MS_SLOT_FB, 0, 1);
    expect(r, MS_SLOT_FB, 1, 0);
  }
  for (int i = 0; i < far; i++) expect(r, MS_SLOT_B, 0, 1), expect(r, MS_SLOT_FB, 1, 0); /* 5 */
  for (int k = 0; k < 2 * (near + 1); k++)
    expect(r, k > near ? MS_SLOT_I : MS_SLOT_B, 0, k % 2 ? 0 : 1);                      /* 6: the later half is split */
  for (int i = 0; i < far; i++) expect(r, MS_SLOT_W, 0, 0), expect(r, MS_SLOT_I, 0, 0); /* 7 */
  for (int i = 0; i <= near; i++) expect(r, MS_SLOT_W, 0, 0);                           /* 8 */
  assert_int_equal(r->at, r->schedule->n[r->stage]);
}

static void dualpipe_step_by_step(void **state) {
  (void)state;
  for (int p = 2; p <= 10; p += 2)
    for (int m = 2 * p; m <= 4 * p; m += 2) {
      g_autoptr(MsSchedule) dual = make(DUALPIPE, p, m, 1, 0, FALSE), v = make(DUALPIPEV, p, m, 2, 0, FALSE);
      for (int s = 0; s < p; s++) {
        int near = MIN(s, p - 1 - s), flip = s >= p / 2;
        Reader d = {.schedule = dual, .stage = s, .flip = flip}, w = {.schedule = v, .stage = s};
        d.f[1 ^ flip] = d.b[1 ^ flip] = m / 2; /* chunk 1 takes the second half of the microbatches */
        read_program(&d, p / 2, near, m / 2 - p + near + 1);
        read_program(&w, p, s, m - 2 * p + s + 1);
      }
    }
}

static void latency_lengthens_start_and_end(void **state) {
  (void)state;
  for (int p = 2; p <= 6; p++) { /* one microbatch: down and up the pipeline */
    g_autoptr(MsSchedule) schedule = make(ONE_F1B, p, 1, 1, 0, FALSE);
    g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, 1, 1, 1, 3, .25);
    assert_time(run->makespan, 3 * p + 2 * (p - 1) * .25);
  }
  g_autoptr(MsSchedule) v =
      make(ZB_V, 3, 1, 2, 0,
           FALSE); /* the turn of the V and its start stay on one stage: 4 edges down and up the V, each way */
  g_autoptr(MsScheduleRun) run = ms_schedule_run(v, 1, 1, 1, 3, .25);
  assert_time(run->makespan, 12 + 8 * .25 + 1); /* the last W of chunk 0 on stage 0 */
  g_autoptr(MsSchedule) ring =
      make(ONE_F1B, 2, 2, 2, 0, FALSE); /* chunk 0 of stage 1 to chunk 1 of stage 0 is an edge too */
  g_autoptr(MsScheduleRun) ring_run = ms_schedule_run(ring, 1, 1, 1, 3, 8);
  assert_true(ring_run->makespan >= 4 * 3 + 6 * 8.0);
}

static void every_schedule_is_valid_on_a_grid(void **state) {
  (void)state;
  int built[N_KINDS] = {0};
  for (int kind = 0; kind < N_KINDS; kind++)
    for (int p = 1; p <= 9; p++)
      for (int m = 1; m <= 40; m += m < 12 ? 1 : 7)
        for (int v = 1; v <= 3; v++)
          for (int overlap = 0; overlap < 2; overlap++) {
            char why[200] = "";
            g_autoptr(MsSchedule) schedule = ms_schedule_new(kind, p, m, v, 0, overlap, why, sizeof why);
            if (!schedule) {
              assert_true(strlen(why) > 10);
              continue;
            }
            assert_valid(schedule);
            built[kind]++;
            g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, 1, 1, 1, 3, 0);
            int work = kind == DUALPIPE ? 3 * m : 3 * m * v; /* no makespan below the work of a stage */
            assert_true(run->span >= work && run->makespan >= run->span);
          }
  for (int kind = 0; kind < N_KINDS; kind++)
    if (built[kind] < 20) fail_msg("%s: only %d built", ms_schedule_rows[kind].word, built[kind]);
}

/* --- what the rows say -------------------------------------------------------------------------------------------- */

static int slots_of(const MsSchedule *schedule, MsSlotKind kind) {
  int n = 0;
  for (int s = 0; s < schedule->stages; s++)
    for (int k = 0; k < schedule->n[s]; k++) n += schedule->slot[s][k].kind == kind;
  return n;
}

static void assert_row(const MsScheduleRow *row, const MsSchedule *schedule, const MsScheduleNumbers *n) {
  int whole = slots_of(schedule, MS_SLOT_B) + slots_of(schedule, MS_SLOT_FB), split = slots_of(schedule, MS_SLOT_I);
  MsScheduleSplits splits = !split ? MS_SPLITS_NONE : whole ? MS_SPLITS_SOME : MS_SPLITS_ALL;
  gboolean pairs = slots_of(schedule, MS_SLOT_FB) > 0;
  if (schedule->placement != row->placement) fail_msg("%s: placement %d", row->word, schedule->placement);
  if (splits != row->splits) fail_msg("%s: %d whole backwards, %d split ones", row->word, whole, split);
  if (pairs != (row->pairs == MS_PAIRS_ALWAYS || n->ep_overlap)) fail_msg("%s: pairs %d", row->word, pairs);
  if (row->chunks && schedule->chunks != (int)(row->chunks * row->copies))
    fail_msg("%s: %d chunks", row->word, schedule->chunks);
  int first, count;
  ms_chunk_microbatches(schedule, 0, &first, &count);
  assert_int_equal(count * (int)row->copies, schedule->microbatches);
  for (int s = 0; s < schedule->stages;
       s++) { /* a closed form never counts more than there are, and without pairs all */
    gint64 live = 0, peak = ms_schedule_peak_in_flight(schedule, s);
    for (int c = 0; c < schedule->chunks; c++) live += row->live(n, s, c);
    if (live != 0 && (n->ep_overlap ? live > peak : live != peak))
      fail_msg("%s p=%d m=%d v=%d stage %d: %d live, closed form %d", row->word, n->stages, n->microbatches, n->chunks,
               s, (int)peak, (int)live);
  }
}

static void rows_say_what_is_built(void **state) {
  (void)state;
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++) {
    const MsScheduleRow *row = ms_schedule_row((MsScheduleKind)kind);
    int built = 0, most = row->chunks ? (int)row->chunks : 3;
    assert_string_equal(row->word, ms_schedule_words[kind]);
    assert_true(strlen(row->about) > 20);
    for (int p = 2; p <= 8; p += 2)
      for (int m = 2 * p; m <= 4 * p; m += 2)
        for (int v = row->chunks ? most : 1; v <= most; v++)
          for (int overlap = 0; overlap < 2; overlap++) {
            MsScheduleNumbers n = {p, m, v, 0, overlap, 1, 1, 1, 0, 0};
            char why[200] = "";
            g_autoptr(MsSchedule) schedule = ms_schedule_for((MsScheduleKind)kind, &n, why, sizeof why);
            if (!schedule) continue;
            assert_row(row, schedule, &n);
            built++;
          }
    if (built < 10) fail_msg("%s: only %d built", row->word, built);
  }
}

/* A flush ends all that is under way: two of them take twice as long as one, and hold as much. */
static void flushes_follow_one_another(void **state) {
  (void)state;
  for (int chunks = 1; chunks <= 2; chunks++) {
    g_autoptr(MsSchedule) one = ms_schedule_new(MS_SCHED_1F1B, 4, 4, chunks, 4, FALSE, NULL, 0);
    MsScheduleNumbers n = {4, 8, chunks, 4, FALSE, 1, 1, 1, 0, 4};
    g_autoptr(MsSchedule) two = ms_schedule_for(MS_SCHED_1F1B, &n, NULL, 0);
    n.flush = 0;
    g_autoptr(MsSchedule) none = ms_schedule_for(MS_SCHED_1F1B, &n, NULL, 0);
    char why[200] = "";
    if (!ms_schedule_valid(two, why, sizeof why)) fail_msg("%s", why);
    g_autoptr(MsScheduleRun) a = ms_schedule_run(one, 1, 1, 1, 3, 0), b = ms_schedule_run(two, 1, 1, 1, 3, 0),
                             c = ms_schedule_run(none, 1, 1, 1, 3, 0);
    assert_true(a->makespan == 3 * (4 * chunks + 3) && b->makespan == 2 * a->makespan);
    assert_true(c->makespan == 3 * (8 * chunks + 3));
    for (int s = 0; s < 4; s++)
      assert_int_equal(ms_schedule_peak_in_flight(two, s), ms_schedule_peak_in_flight(one, s));
  }
}

/* --- published bubble rates and generators --------------------------------------------------------------------- */

static char *read_data(const char *name) {
  g_autofree char *path = g_build_filename(MS_SOURCE_DIR, "tests", "data", name, NULL);
  char *text = NULL;
  if (!g_file_get_contents(path, &text, NULL, NULL)) fail_msg("cannot read %s", path);
  return text;
}

/* Share of a microbatch's activations that I frees: all but the inputs of the linear layers, 32 of 34 h + 5 a s per
 * layer (the paper's Table 3 models). */
static double freed_by_i(const char *model) {
  double h = g_str_equal(model, "1.5B") ? 2304 : g_str_equal(model, "6.2B") ? 4096 : 5120;
  double a = g_str_equal(model, "1.5B") ? 24 : g_str_equal(model, "6.2B") ? 32 : 40, s = 1024;
  return (2 * h + 5 * a * s) / (34 * h + 5 * a * s);
}

static void assert_rate(MsSchedule *schedule, char **cell, int column) {
  g_autoptr(MsSchedule) owned = schedule;
  g_autoptr(MsScheduleRun) run = ms_schedule_run(owned, atof(cell[3]), atof(cell[4]), atof(cell[5]), 0, atof(cell[6]));
  if (!(ABS(run->bubble_fraction - atof(cell[column])) <= .00005 + 1e-12))
    fail_msg("%s m=%s: %.6f, the paper says %s (column %d)", cell[0], cell[2], run->bubble_fraction, cell[column],
             column);
}

static void bubble_rates_of_the_zero_bubble_paper(void **state) {
  (void)state;
  g_autofree char *text = read_data("zero-bubble.csv");
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  int rows = 0;
  for (int k = 2; line[k] && *line[k]; k++, rows++) {
    g_auto(GStrv) cell = g_strsplit(line[k], ",", -1);
    int p = atoi(cell[1]), m = atoi(cell[2]);
    double f = atof(cell[3]), i = atof(cell[4]), w = atof(cell[5]), comm = atof(cell[6]), freed = freed_by_i(cell[0]);
    assert_rate(make(ONE_F1B, p, m, 1, 0, FALSE), cell, 7);
    assert_rate(make(ZB_H1, p, m, 1, 0, FALSE), cell, 10);
    assert_rate(make(ZB_H2, p, m, 1, 0, FALSE), cell, 11);
    assert_rate(ms_schedule_zb_greedy(p, m, f, i, w, comm, p, freed, NULL, 0), cell, 12);
    assert_rate(ms_schedule_zb_greedy(p, m, f, i, w, comm, 2 * p, freed, NULL, 0), cell, 13);
  }
  assert_int_equal(rows, 9);
}

/* The paper's own interleaved run: Megatron's order comes out p messages longer, and without them the
 * rate is the paper's. */
static void interleaved_rates_of_the_zero_bubble_paper(void **state) {
  (void)state;
  g_autofree char *text = read_data("zero-bubble.csv");
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  for (int k = 2; line[k] && *line[k]; k++) {
    g_auto(GStrv) cell = g_strsplit(line[k], ",", -1);
    int p = atoi(cell[1]), m = atoi(cell[2]), v = atoi(cell[9]);
    double f = atof(cell[3]) / v, i = atof(cell[4]) / v, w = atof(cell[5]) / v, comm = atof(cell[6]),
           work = m * v * (f + i + w);
    g_autoptr(MsSchedule) schedule = make(ONE_F1B, p, m, v, 0, FALSE);
    g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, f, i, w, 0, comm);
    double cost = run->span - p * comm, rate = 1 - work / cost;
    if (fabs(rate - atof(cell[8])) > 1.5e-4) fail_msg("%s m=%d: %.5f, the paper says %s", cell[0], m, rate, cell[8]);
  }
}

static int kind_of(const char *word) {
  int kind = 0;
  while (!g_str_equal(ms_schedule_rows[kind].word, word)) kind++;
  return kind;
}

static void lists_of_the_authors_generators(void **state) {
  (void)state;
  g_autofree char *text = read_data("zero-bubble-orders.txt");
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  int compared = 0;
  for (int k = 3; line[k] && *line[k];) {
    g_auto(GStrv) word = g_strsplit(line[k++], " ", -1);
    int p = atoi(word[1]);
    g_autoptr(MsSchedule) schedule =
        g_str_equal(word[0], "costs") ? ms_schedule_zb_greedy(p, atoi(word[2]), atof(word[3]), atof(word[4]),
                                                              atof(word[5]), atof(word[6]), atof(word[7]), 0, NULL, 0)
                                      : make(kind_of(word[0]), p, atoi(word[2]), atoi(word[3]), 0, FALSE);
    for (int s = 0; s < p; s++, compared++) assert_order(schedule, s, line[k++]);
  }
  assert_int_equal(compared, 5 * (4 + 5 + 8) + 4 + 7 + 2 + 6 + 5 + 2 + 3 + 2 + 2 + 2 + 3 + 1 + 3);
}

/* Every slot of the part that repeats itself is told by the one a period before, to its ends and no further. */
static void assert_period(int kind, int p, int m, int v, int group, gboolean overlap, int microbatches, int slots) {
  g_autoptr(MsSchedule) schedule = make(kind, p, m, v, group, overlap);
  const MsPeriodOf *of = schedule->repeat;
  assert_int_equal(schedule->period, microbatches);
  for (int s = 0; s < p && microbatches > 0; s++) {
    const MsSlot *slot = schedule->slot[s];
    assert_int_equal(of[s].slots, slots);
    for (int k = 0; k + slots < schedule->n[s]; k++) {
      const MsSlot *a = &slot[k], *b = &slot[k + slots];
      gboolean follows = a->kind == b->kind && a->chunk == b->chunk && a->mb + microbatches == b->mb &&
                         (a->kind != MS_SLOT_FB || (a->chunk2 == b->chunk2 && a->mb2 + microbatches == b->mb2));
      gboolean inside = k >= of[s].from && k + slots < of[s].to;
      if (inside) assert_true(follows);
      else if (k + 1 == of[s].from || k + slots == of[s].to) assert_false(follows);
    }
  }
}

static void where_lists_repeat_themselves(void **state) {
  (void)state;
  int one_f1b = kind_of("1f1b");
  assert_period(one_f1b, 1, 32, 1, 0, FALSE, 1, 2);
  assert_period(one_f1b, 8, 64, 1, 0, FALSE, 1, 2);
  assert_period(one_f1b, 4, 64, 3, 0, FALSE, 4, 2 * 4 * 3);
  assert_period(one_f1b, 4, 96, 3, 6, FALSE, 6, 2 * 6 * 3);
  assert_period(one_f1b, 4, 64, 3, 0, TRUE, 4, 4 * 3);
  assert_period(one_f1b, 8, 8, 1, 0, FALSE, 0, 0); /* too few */
  assert_period(one_f1b, 4, 8, 3, 0, FALSE, 0, 0);
  assert_period(kind_of("zb-h1"), 4, 64, 1, 0, FALSE, 1, 3);
}

/* --- what is refused ------------------------------------------------------------------------------------------- */

static void assert_refused(int kind, int p, int m, int v, int group, gboolean overlap, const char *part) {
  char why[200] = "";
  g_autoptr(MsSchedule) schedule = ms_schedule_new(kind, p, m, v, group, overlap, why, sizeof why);
  assert_null(schedule);
  if (!strstr(why, part)) fail_msg("\"%s\" does not contain \"%s\"", why, part);
}

/* The search is called with costs of others: each of its limits alone, and what lies on it. */
static void impossible_searches_are_refused(void **state) {
  (void)state;
  static const struct {
    int stages, microbatches;
    double f, i, w, comm, limit, i_frees;
    gboolean fine;
  } rows[] = {
      {2, 4, 1, 1, 0, 0, 2, 0, TRUE},     {2, 4, 1, 1, 1, 0, 2, 1, TRUE},       {2, 4, 1, 1, 1, 0, 0.99, 0, FALSE},
      {0, 4, 1, 1, 1, 0, 2, 0, FALSE},    {2, 0, 1, 1, 1, 0, 2, 0, FALSE},      {2, 4, 0, 1, 1, 0, 2, 0, FALSE},
      {2, 4, 1, 0, 1, 0, 2, 0, FALSE},    {2, 4, 1, 1, -1, 0, 2, 0, FALSE},     {2, 4, 1, 1, 1, -1, 2, 0, FALSE},
      {2, 4, 1, 1, 1, 0, 2, -0.1, FALSE}, {2, 4, 1, 1, 1, 0, 2, 1.1, FALSE},    {2, 4, NAN, 1, 1, 0, 2, 0, FALSE},
      {2, 4, 1, 1, 1, 0, NAN, 0, FALSE},  {5001, 5000, 1, 1, 1, 0, 2, 0, FALSE}};
  for (guint k = 0; k < G_N_ELEMENTS(rows); k++) {
    char why[200] = "";
    g_autoptr(MsSchedule) schedule =
        ms_schedule_zb_greedy(rows[k].stages, rows[k].microbatches, rows[k].f, rows[k].i, rows[k].w, rows[k].comm,
                              rows[k].limit, rows[k].i_frees, why, sizeof why);
    if ((schedule != NULL) != rows[k].fine) fail_msg("search %u: %s", k, schedule ? "was not refused" : why);
    if (!schedule) assert_non_null(strstr(why, "the zero-bubble search needs"));
  }
}

static void impossible_numbers_are_refused(void **state) {
  (void)state;
  assert_refused(N_KINDS, 4, 8, 1, 0, 0, "unknown schedule");
  assert_refused(-1, 4, 8, 1, 0, 0, "unknown schedule");
  assert_refused(ONE_F1B, 0, 8, 1, 0, 0, "at least 1");
  assert_refused(ONE_F1B, 4, 8, 1, 0, 1, "at least 2 chunks");
  assert_refused(ONE_F1B, 1, 8, 2, 0, 0, "at least 2 stages");
  assert_refused(ONE_F1B, 4, 8, 2, 3, 0, "microbatch group 3");
  assert_refused(ONE_F1B, 4, 8, 2, 9, 0, "microbatch group 9");
  assert_refused(ONE_F1B, 4, 2, 2, 0, 0, "microbatch group 4");
  assert_refused(ONE_F1B, 4, 9, 2, 4, 0, "leave 1 after groups of 4");
  assert_refused(ONE_F1B, 4, 11, 2, 4, 0, "leave 3 after groups of 4");
  assert_refused(ONE_F1B, 1000, 30000, 1, 0, 0, "50 million");
  assert_refused(ONE_F1B, G_MAXINT, G_MAXINT, 1, 0, 0, "more than");
  assert_refused(ZB_H1, 4, 8, 2, 0, 0, "one chunk");
  assert_refused(ZB_V, 4, 8, 1, 0, 0, "2 chunks");
  assert_refused(V_MIN, 4, 8, 2, 0, 1, "overlap");
  assert_refused(GPIPE, 4, 8, 2, 9, 0, "group 9 is more than the 8");
  assert_refused(GPIPE, 1, 8, 2, 0, 0, "at least 2 stages");
  assert_refused(GPIPE, 4, 8, 1, 0, 1, "overlap");
  assert_refused(DUALPIPE, 3, 8, 1, 0, 0, "even number of stages");
  assert_refused(DUALPIPE, 4, 9, 1, 0, 0, "even number of microbatches");
  assert_refused(DUALPIPE, 4, 6, 1, 0, 0, "at least 8");
  assert_refused(DUALPIPEV, 4, 7, 2, 0, 0, "at least 8");
}

/* What lies on a limit is not refused. */
static void smallest_that_is_possible(void **state) {
  (void)state;
  static const int on_it[][6] = {
      {ONE_F1B, 1, 1, 1, 0, FALSE},  {ONE_F1B, 1, 2, 1, 0, TRUE},   {ONE_F1B, 4, 4, 2, 4, FALSE},
      {ONE_F1B, 4, 9, 2, 5, FALSE},  {GPIPE, 1, 1, 1, 0, FALSE},    {GPIPE, 4, 8, 2, 8, FALSE},
      {GPIPE, 4, 2, 2, 0, FALSE},    {ZB_H1, 1, 1, 1, 0, FALSE},    {ZB_H2, 1, 1, 1, 0, FALSE},
      {DUALPIPE, 4, 8, 1, 0, FALSE}, {DUALPIPEV, 4, 8, 2, 0, FALSE}};
  for (size_t k = 0; k < G_N_ELEMENTS(on_it); k++) {
    const int *x = on_it[k];
    g_autoptr(MsSchedule) schedule = make(x[0], x[1], x[2], x[3], x[4], x[5]);
    assert_valid(schedule);
  }
}

/* Each mutation of each slot of a valid list must be found. Swaps only where they break something. */
static void broken_lists_are_rejected(void **state) {
  (void)state;
  static const int kinds[][3] = {{ONE_F1B, 4, 1},  {ONE_F1B, 4, 2},   {ZB_H1, 3, 1},
                                 {DUALPIPE, 4, 1}, {DUALPIPEV, 3, 2}, {V_HALF, 3, 2}};
  char why[200];
  int rejected = 0;
  for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
    g_autoptr(MsSchedule) schedule = make(kinds[k][0], kinds[k][1], 8, kinds[k][2], 0, FALSE);
    for (int s = 0; s < schedule->stages; s++) {
      MsSlot *slot = schedule->slot[s];
      int n = schedule->n[s];
      for (int i = 0; i < n; i++) {
        MsSlot kept = slot[i];
        MsSlot broken[] = {kept, kept, kept, kept, kept, kept};
        broken[0].mb = (kept.mb + 1) % 8;
        broken[1].mb = 8;
        broken[2].chunk = (gint16)schedule->chunks;
        broken[3].chunk = -1;
        broken[4].kind = kept.kind == MS_SLOT_F ? MS_SLOT_B : MS_SLOT_F;
        broken[5].kind = MS_N_SLOTS;
        for (size_t j = 0; j < G_N_ELEMENTS(broken); j++) {
          slot[i] = broken[j];
          assert_false(ms_schedule_valid(schedule, why, sizeof why));
          assert_null(ms_schedule_run(schedule, 1, 1, 1, 3, 0));
          assert_true(strlen(why) > 10);
          rejected++;
        }
        slot[i] = kept;
      }
      schedule->n[s]--; /* the last slot is missing */
      assert_false(ms_schedule_valid(schedule, why, sizeof why));
      schedule->n[s]++;
    }
    assert_valid(schedule);
  }
  assert_true(rejected > 2000);
}

static void repeated_slots_are_rejected(void **state) {
  (void)state;
  static const int kinds[] = {ONE_F1B, ZB_H2, DUALPIPE};
  for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
    g_autoptr(MsSchedule) schedule = make(kinds[k], 4, 8, 1, 0, FALSE);
    int n = schedule->n[1];
    MsSlot *kept = schedule->slot[1];
    g_autofree MsSlot *longer = g_new(MsSlot, n + 1);
    schedule->n[1] = n + 1, schedule->slot[1] = longer;
    for (int i = 0; i < n; i++) { /* slot i once more, at the end */
      char why[200] = "";
      memcpy(longer, kept, sizeof *kept * n);
      longer[n] = kept[i];
      assert_false(ms_schedule_valid(schedule, why, sizeof why));
      assert_non_null(strstr(why, "repeats"));
    }
    schedule->n[1] = n, schedule->slot[1] = kept;
  }
}

static void deadlocks_are_found(void **state) {
  (void)state;
  char why[200] = "";
  g_autoptr(MsSchedule) schedule = make(ONE_F1B, 2, 2, 1, 0, FALSE); /* stage 0: F0 F1 B0 B1, stage 1: F0 B0 F1 B1 */
  MsSlot kept = schedule->slot[0][1];
  schedule->slot[0][1] = schedule->slot[0][2], schedule->slot[0][2] = schedule->slot[0][3], schedule->slot[0][3] = kept;
  assert_false(ms_schedule_valid(schedule, why, sizeof why)); /* B1 before F1 on one stage: the list itself is wrong */
  assert_non_null(strstr(why, "before its forward"));
  g_autoptr(MsSchedule) cross = make(ONE_F1B, 2, 2, 1, 0, FALSE);
  MsSlot *slot =
      cross->slot[1]; /* stage 1: F1 B1 F0 B0, while stage 0 wants B0 before it runs F1: each list is right alone */
  slot[0].mb = slot[1].mb = 1, slot[2].mb = slot[3].mb = 0;
  slot = cross->slot[0];
  kept = slot[1], slot[1] = slot[2], slot[2] = kept; /* stage 0: F0 B0 F1 B1 */
  assert_false(ms_schedule_valid(cross, why, sizeof why));
  assert_non_null(strstr(why, "deadlock"));
  assert_null(ms_schedule_run(cross, 1, 1, 1, 3, 0));
  g_autoptr(MsSchedule) pair = make(ONE_F1B, 1, 2, 1, 0, TRUE); /* F0 F1&B0 B1: a pair of one microbatch */
  pair->slot[0][1].mb2 = 1, pair->slot[0][2].mb = 0;
  assert_false(ms_schedule_valid(pair, why, sizeof why));
}

static void virtual_stages_and_owners_agree(void **state) {
  (void)state;
  static const int kinds[][3] = {{ONE_F1B, 4, 3}, {ZB_V, 5, 2}, {DUALPIPE, 4, 1}};
  for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
    g_autoptr(MsSchedule) schedule = make(kinds[k][0], kinds[k][1], 12, kinds[k][2], 0, FALSE);
    int ends = 0;
    for (int v = 0; v < schedule->stages * schedule->chunks; v++) {
      int stage, chunk;
      ms_virtual_owner(schedule, v, &stage, &chunk);
      assert_int_equal(ms_virtual_stage(schedule, stage, chunk), v);
      int next = ms_virtual_after(schedule, v);
      if (next >= 0) assert_int_equal(ms_virtual_before(schedule, next), v);
      else ends++;
    }
    assert_int_equal(ends, schedule->placement == MS_PLACE_BIDIRECTIONAL ? 2 : 1);
  }
}

static double end_with(const MsSchedule *schedule, const double *forward, const double *backward,
                       const MsPassHost *host) {
  g_autoptr(MsScheduleTurns) turns = ms_schedule_turns_new(schedule);
  assert_non_null(turns);
  g_autofree double *scratch = g_new(double, ms_schedule_turns_scratch(turns));
  return ms_schedule_turns_end(turns, &(MsPassTimes){forward, backward}, host, scratch);
}

static double end_of(const MsSchedule *schedule, const double *forward, const double *backward) {
  return end_with(schedule, forward, backward, NULL);
}

/* One stage, two microbatches of F 1 and B 2. A host that takes 2 to issue each pass ends the step; on two stages it
 * issues F1 of the second while that waits for F0, unless it waits for the message itself. */
static void a_slow_host_ends_later(void **state) {
  (void)state;
  g_autoptr(MsSchedule) one = make(ONE_F1B, 1, 2, 1, 0, FALSE), two = make(ONE_F1B, 2, 2, 1, 0, FALSE);
  static const double forward[] = {1, 1}, backward[] = {2, 2}, none[] = {0, 0}, issue[] = {2, 2}, never[] = {99, 99};
  const MsPassHost free_host = {.issue = {none, none}, .late = {none, none}, .early = {never, never}},
                   slow = {.issue = {issue, issue}, .late = {none, none}, .early = {never, never}};
  MsPassHost waits = slow;
  waits.waits = TRUE;
  assert_true(end_of(one, forward, backward) == 6);
  assert_true(end_with(one, forward, backward, &free_host) == 6);
  assert_true(end_with(one, forward, backward, &slow) == 8);
  /* stage 0: F0 2, F1 4, B0 (6: behind B0 of stage 1), B1; stage 1: F0 3, B0 5, F1 6, B1 8 */
  assert_true(end_with(two, forward, backward, &slow) == 10);
  /* issued from 2 on: F0 4, B0 6, F1 8, B1 10; stage 0: B0 8, B1 12 */
  assert_true(end_with(two, forward, backward, &waits) == 12);
}

/* One stage, two microbatches of F 4 and B 2. The host takes 1 to issue an F and 6 to issue a B, which ends 1 later. It
 * issues F1 while the device runs B0, unless it begins with an F no sooner than the device does. */
static void a_host_waits_within_passes(void **state) {
  (void)state;
  g_autoptr(MsSchedule) one = make(ONE_F1B, 1, 2, 1, 0, FALSE);
  static const double forward[] = {4}, backward[] = {2}, issue[] = {1}, issue_back[] = {6}, none[] = {0},
                      never[] = {99};
  MsPassHost host = {.issue = {issue, issue_back}, .late = {none, issue}, .early = {never, never}};
  /* F0 is issued at 1 and ends at 4, B0 7 and 8, F1 8 and 12, B1 14 and 15 */
  assert_true(end_with(one, forward, backward, &host) == 15);
  host.early.forward = none; /* F1 9 and 12, B1 15 and 16 */
  assert_true(end_with(one, forward, backward, &host) == 16);
  host.early.forward = (const double[]){0.25}; /* F1 8.75, B1 14.75 and 15.75 */
  assert_true(end_with(one, forward, backward, &host) == 15.75);
}

/* Stages of equal cost end as in ms_schedule_run, whatever the schedule; uneven ones as worked out by hand. */
static void uneven_stages_end_later(void **state) {
  (void)state;
  const struct {
    int kind, stages, microbatches, chunks;
  } cases[] = {{ONE_F1B, 4, 8, 1}, {ONE_F1B, 4, 8, 3}, {ZB_H1, 4, 8, 1}, {ZB_V, 4, 8, 2}, {DUALPIPE, 4, 8, 2}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    double forward[12], backward[12];
    for (int k = 0; k < 12; k++) forward[k] = 1, backward[k] = 2;
    g_autoptr(MsSchedule) schedule =
        make(cases[i].kind, cases[i].stages, cases[i].microbatches, cases[i].chunks, 0, FALSE);
    g_autoptr(MsScheduleRun) run = ms_schedule_run(schedule, 1, 1, 1, 3, 0);
    assert_true(end_of(schedule, forward, backward) == run->makespan);
  }
  /* two stages, two microbatches: F0 | F1 B0 | F1 B1 ... with a second stage that takes twice as long: 1 + (2 + 4) + (2
   * + 4) + 2 */
  g_autoptr(MsSchedule) two = make(ONE_F1B, 2, 2, 1, 0, FALSE);
  assert_true(end_of(two, (const double[]){1, 2}, (const double[]){2, 4}) == 15);
}

static double sum_along(const int *count, int stages, double time[MS_N_PASS_TIMES][6]) {
  double sum = 0;
  for (int what = 0; what < MS_N_PASS_TIMES; what++)
    for (int k = 0; k < stages; k++)
      sum += count[what * stages + k] * (what < MS_PASS_IS_EARLY ? time[what][k] : -time[what][k]);
  return sum;
}

static MsPassTimes times_of_kind(double time[MS_N_PASS_TIMES][6], int what) {
  return (MsPassTimes){time[what], time[what + 1]};
}

/* What stands on the path to a stage's last slot adds up to its end, and at any other times it ends no later. */
static void paths_bound_other_times(void **state) {
  (void)state;
  enum { RANKS = 3, STAGES = 6 };
  g_autoptr(GRand) rand = g_rand_new_with_seed(8);
  g_autoptr(MsSchedule) schedule = make(ONE_F1B, RANKS, 2 * RANKS, STAGES / RANKS, 0, FALSE);
  g_autoptr(MsScheduleTurns) turns = ms_schedule_turns_new(schedule);
  g_autofree double *scratch = g_new(double, ms_schedule_turns_scratch(turns));
  int on_path[MS_N_PASS_TIMES] = {0}, tight = 0;
  for (int i = 0; i < 600; i++) {
    double time[2][MS_N_PASS_TIMES][STAGES], end[2];
    int count[MS_N_PASS_TIMES * STAGES];
    for (int k = 0; k < 2 * MS_N_PASS_TIMES * STAGES; k++) {
      int what = k / STAGES % MS_N_PASS_TIMES; /* late by less than a pass takes, early by more */
      double scale = (what % 2 ? 2 : 1) * (what < MS_PASS_IS_LATE ? 1 : what < MS_PASS_IS_EARLY ? 0.1 : 4);
      (&time[0][0][0])[k] = scale * g_rand_double_range(rand, 0.5, 2);
    }
    gboolean issued = i % 3 > 0, waits = i % 3 > 1;
    for (int other = 1; other >= 0; other--) { /* the last run is that of the path */
      const MsPassHost host = {times_of_kind(time[other], MS_PASS_ISSUES), times_of_kind(time[other], MS_PASS_IS_LATE),
                               times_of_kind(time[other], MS_PASS_IS_EARLY), waits};
      const MsPassTimes passes = times_of_kind(time[other], MS_PASS_TAKES);
      ms_schedule_turns_end(turns, &passes, issued ? &host : NULL, scratch);
      end[other] = ms_schedule_turns_clock(turns, scratch)[i % RANKS];
    }
    assert_true(ms_schedule_turns_path(turns, i % RANKS, issued, waits, scratch, count));
    assert_true(fabs(sum_along(count, STAGES, time[0]) - end[0]) < 1e-9);
    assert_true(sum_along(count, STAGES, time[1]) <= end[1] + 1e-9);
    tight += sum_along(count, STAGES, time[1]) > 0.95 * end[1];
    for (int k = 0; k < MS_N_PASS_TIMES * STAGES; k++) on_path[k / STAGES] += count[k];
  }
  for (int what = 0; what < MS_N_PASS_TIMES; what++) assert_true(on_path[what] > 0);
  assert_true(tight > 60);
  g_autoptr(MsSchedule) split = make(ZB_H1, 4, 8, 1, 0, FALSE);
  g_autoptr(MsScheduleTurns) halves = ms_schedule_turns_new(split);
  int none[MS_N_PASS_TIMES * 4];
  assert_false(ms_schedule_turns_path(halves, 0, FALSE, FALSE, NULL, none));
}

/* No argument of the release names a schedule: it starts this one. */
static void one_is_launched(void **state) {
  (void)state;
  for (int kind = 0; kind < N_KINDS; kind++) assert_int_equal(!ms_schedule_row(kind)->refused, kind == ONE_F1B);
}

/* 1F1B whose weight gradients follow their input gradients, or all come at the end. (transfer full) */
static MsSchedule *weights_late(int p, int m, gboolean at_the_end) {
  MsSchedule *schedule = ms_schedule_alloc(p, m, 1, MS_PLACE_ROUND_ROBIN, 3 * m);
  for (int s = 0; s < p; s++) {
    int f = 0;
    while (f < p - 1 - s) ms_slot_put(schedule, s, MS_SLOT_F, f++, 0);
    for (int b = 0; b < m; b++) {
      if (f < m) ms_slot_put(schedule, s, MS_SLOT_F, f++, 0);
      ms_slot_put(schedule, s, MS_SLOT_I, b, 0);
      if (!at_the_end) ms_slot_put(schedule, s, MS_SLOT_W, b, 0);
    }
    for (int b = 0; at_the_end && b < m; b++) ms_slot_put(schedule, s, MS_SLOT_W, b, 0);
  }
  ms_schedule_find_period(schedule);
  return schedule;
}

/* Turns may be left out only of lists whose periods leave nothing waiting for later. */
static void periods_take_what_they_give(void **state) {
  (void)state;
  g_autoptr(MsSchedule) follow = weights_late(4, 64, FALSE), late = weights_late(4, 64, TRUE);
  assert_valid(follow), assert_valid(late);
  assert_int_equal(follow->period, 1);
  assert_int_equal(late->period, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paths_bound_other_times),
      cmocka_unit_test(one_is_launched),
      cmocka_unit_test(periods_take_what_they_give),
      cmocka_unit_test(order_of_1f1b),
      cmocka_unit_test(times_of_1f1b),
      cmocka_unit_test(order_of_interleaved),
      cmocka_unit_test(order_with_a_smaller_last_group),
      cmocka_unit_test(order_with_overlap),
      cmocka_unit_test(order_of_gpipe_with_chunks),
      cmocka_unit_test(order_of_eager_1f1b),
      cmocka_unit_test(order_of_zb_h1),
      cmocka_unit_test(order_of_dualpipe),
      cmocka_unit_test(makespans_and_peaks),
      cmocka_unit_test(closed_form_of_1f1b_and_zero_bubble),
      cmocka_unit_test(closed_form_of_eager_1f1b),
      cmocka_unit_test(closed_form_of_interleaved),
      cmocka_unit_test(closed_form_of_dualpipe),
      cmocka_unit_test(closed_form_of_interleaved_gpipe),
      cmocka_unit_test(closed_forms_of_the_v_schedules),
      cmocka_unit_test(most_in_flight_by_chunks),
      cmocka_unit_test(dualpipe_step_by_step),
      cmocka_unit_test(interleaved_rates_of_the_zero_bubble_paper),
      cmocka_unit_test(latency_lengthens_start_and_end),
      cmocka_unit_test(where_lists_repeat_themselves),
      cmocka_unit_test(every_schedule_is_valid_on_a_grid),
      cmocka_unit_test(rows_say_what_is_built),
      cmocka_unit_test(flushes_follow_one_another),
      cmocka_unit_test(bubble_rates_of_the_zero_bubble_paper),
      cmocka_unit_test(lists_of_the_authors_generators),
      cmocka_unit_test(smallest_that_is_possible),
      cmocka_unit_test(impossible_searches_are_refused),
      cmocka_unit_test(impossible_numbers_are_refused),
      cmocka_unit_test(broken_lists_are_rejected),
      cmocka_unit_test(repeated_slots_are_rejected),
      cmocka_unit_test(deadlocks_are_found),
      cmocka_unit_test(a_slow_host_ends_later),
      cmocka_unit_test(a_host_waits_within_passes),
      cmocka_unit_test(uneven_stages_end_later),
      cmocka_unit_test(virtual_stages_and_owners_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
