/* src/sim/rivals.c - collectives of the step beside slots, served as a fluid. */
#include "sim/rivals.h"

#include "step/meeting.h"

#include <string.h>

MsRivals ms_rivals_new(const MsMeets *meets) {
  MsRivals r = {.meets = meets, .rows = g_array_new(FALSE, FALSE, sizeof(MsRival))};
  for (int s = 0; s < MS_N_STREAMS; s++) r.head[s] = r.last[s] = -1;
  return r;
}

void ms_rivals_clear(MsRivals *r) { g_array_unref(r->rows); }

static MsRival *rival(const MsRivals *r, int i) { return &g_array_index(r->rows, MsRival, i); }

int ms_rivals_add(MsRivals *r, const MsCosted *list, int row, MsTime ready, const int wait[3]) {
  MsRival x = {.list = list, .row = row, .ready = ready, .end = -1, .left = (double)list->duration[row], .next = -1};
  int stream = list->list->op[row].stream, i = (int)r->rows->len;
  for (int j = 0; j < 3; j++) x.wait[j] = wait[j];
  g_array_append_val(r->rows, x);
  if (r->head[stream] < 0) r->head[stream] = i;
  else rival(r, r->last[stream])->next = i;
  r->last[stream] = i, r->left++;
  return i;
}

/* From when the row may run; G_MAXINT64: it waits for one that has not ended. */
static MsTime opens(const MsRivals *r, const MsRival *x) {
  MsTime at = x->ready;
  for (int j = 0; j < 3; j++) {
    if (x->wait[j] < 0) continue;
    MsTime end = rival(r, x->wait[j])->end;
    if (end < 0) return G_MAXINT64;
    at = MAX(at, end);
  }
  return at;
}

static gboolean runs(const MsRivals *r, int i) { return i >= 0 && opens(r, rival(r, i)) <= r->now; }

/* -1: none that others use. */
static int link_of(const MsRival *x) { return MAX(-1, (int)x->list->use[x->row] - (int)MS_USE_LINK0); }

/* MS_SHARING_NONE: it shares in equal parts. */
static int class_of(const MsRivals *r, const MsRival *x) {
  return ms_meets_class(r->meets, ms_row_kind(&x->list->list->op[x->row], x->list->use[x->row]));
}

static MsBeside beside_of(const MsRivals *r) {
  MsBeside b = {0};
  for (int s = 0; s < MS_N_STREAMS; s++) {
    if (!runs(r, r->head[s])) continue;
    const MsRival *x = rival(r, r->head[s]);
    int link = link_of(x), class = class_of(r, x);
    if (class != MS_SHARING_NONE) b.running[class]++;
    b.sms += x->list->sms[x->row];
    if (link >= 0) b.link[link]++;
  }
  return b;
}

gboolean ms_rivals_beside(const MsRivals *r, MsBeside *beside) {
  *beside = beside_of(r);
  return r->left > 0;
}

/* By class, alone with its like and beside one of the others. */
static double rate_met(const MsRivals *r, int class, const MsBeside *beside, const MsLinkUse *use) {
  double used = use->class == MS_SHARING_NONE ? 0 : use->of[MS_USE_LINK1 - MS_USE_LINK0];
  guint8 running[MS_SHARING_CLASSES];
  memcpy(running, beside->running, sizeof running);
  double rate = ms_meets_rate(r->meets, class, running);
  if (used <= 0) return rate;
  running[use->class]++;
  return (1 - used) * rate + used * ms_meets_rate(r->meets, class, running);
}

/* A link is split between the rows that use it; others use it for a share of the time. */
static double rate_of(const MsRivals *r, const MsRival *x, const MsBeside *beside, const MsLinkUse *use) {
  int link = link_of(x), class = class_of(r, x);
  if (link < 0) return 1;
  if (class != MS_SHARING_NONE) return rate_met(r, class, beside, use);
  double n = beside->link[link];
  return (1 - use->of[link]) / n + use->of[link] / (n + 1);
}

/* When another row may begin, or one that runs ends. */
static MsTime next_change(const MsRivals *r, const MsBeside *beside, const MsLinkUse *use) {
  MsTime next = G_MAXINT64;
  for (int s = 0; s < MS_N_STREAMS; s++) {
    if (r->head[s] < 0) continue;
    const MsRival *x = rival(r, r->head[s]);
    MsTime at = opens(r, x);
    next = MIN(next, at > r->now ? at : r->now + (MsTime)(x->left / rate_of(r, x, beside, use)) + 1);
  }
  return next;
}

void ms_rivals_go(MsRivals *r, MsTime until, const MsLinkUse *use) {
  MsBeside beside = beside_of(r);
  MsTime next = next_change(r, &beside, use);
  until = MIN(until, next);
  int running[MS_N_STREAMS], n = 0;
  for (int s = 0; s < MS_N_STREAMS; s++)
    if (runs(r, r->head[s])) running[n++] = s;
  for (int i = 0; i < n; i++) {
    MsRival *x = rival(r, r->head[running[i]]);
    x->left -= (double)(until - r->now) * rate_of(r, x, &beside, use);
    if (x->left < 1) x->end = until, r->head[running[i]] = x->next, r->left--;
  }
  r->now = until;
}

static const MsLinkUse nobody = {.class = MS_SHARING_NONE};

void ms_rivals_alone(MsRivals *r, MsTime until) {
  while (r->now < until && r->left > 0) ms_rivals_go(r, until, &nobody);
  r->now = MAX(r->now, until);
}

static double left_on(const MsRivals *r, int link) {
  double left = 0;
  for (guint i = 0; i < r->rows->len; i++)
    if (rival(r, (int)i)->end < 0 && link_of(rival(r, (int)i)) == link) left += rival(r, (int)i)->left;
  return left;
}

MsTime ms_rivals_delay(const MsRivals *r, int use, guint8 kind, MsTime alone) {
  MsBeside beside = beside_of(r);
  int link = use - MS_USE_LINK0, class = ms_meets_class(r->meets, kind);
  if (beside.link[link] == 0) return 0;
  if (class != MS_SHARING_NONE) beside.running[class]++;
  double share =
      class != MS_SHARING_NONE ? ms_meets_rate(r->meets, class, beside.running) : 1.0 / (1 + beside.link[link]);
  if (share >= 1) return 0;
  return (MsTime)(MIN((double)alone / share, left_on(r, link) / (1 - share)) * (1 - share));
}

MsTime ms_rivals_end(MsRivals *r, int row) {
  while (rival(r, row)->end < 0) ms_rivals_go(r, G_MAXINT64 / 2, &nobody);
  return rival(r, row)->end;
}
