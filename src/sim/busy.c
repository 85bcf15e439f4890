/* src/sim/busy.c - how long a list of rows keeps the compute stream at least, sharing included.
 *
 * Number the compute rows 0, 1, ... and call the entry of the list -1. A communication row that follows compute row a and that compute row b waits for
 * (both through any chain of waits) runs between the end of a and the start of b.
 *   - b = a + 1: nothing can be computed meanwhile. The gap between the two lasts at least as long as the longest chain of such rows in it.
 *   - b > a + 1: it may run beside compute. For every second it does, compute loses sms / sm_count of a second; for every second it does not, the stream
 *     waits, which costs more, unless it waits anyway: in one of the gaps between a and b. So it costs at least (duration - those gaps) sms / sm_count.
 * Between the end of a and the start of b lie therefore at least the compute rows, the gaps and the costs of all rows whose a and b are within, for any
 * a and b; and at least the chain of rows itself. The longest way through all of these is the result. (The costs of rows that run at the same time add
 * up as long as compute keeps a tenth of the SMs, the engine's floor; where streams could take more, no costs are counted. Sharing of links only makes
 * rows longer.) */
#include "sim/lower.h"

enum { ENTRY = -1, NOBODY = -2 };

static gboolean takes_part(const gboolean *laid, int row) { return !laid || laid[row]; }
static gboolean computes(const MsOpList *list, int row) { return list->op[row].stream == MS_STREAM_COMPUTE; }

typedef struct {
  const MsOpList *list;
  const MsTime *duration;
  const gboolean *laid;
  MsWindow *w;      /* [rows]; `before` of a compute row is its own number */
  int n;            /* compute rows */
  MsTime *own, *gap, *start; /* [n] duration of a compute row; wait in front of it; when it starts at the earliest */
} Busy;

/* The last compute row that each row follows. */
static void find_after(Busy *b) {
  int stream[MS_N_STREAMS];
  for (int s = 0; s < MS_N_STREAMS; s++) stream[s] = ENTRY;
  for (int i = 0; i < b->list->n; i++) {
    const MsOp *op = &b->list->op[i];
    b->w[i] = (MsWindow){ENTRY, NOBODY, 0, 0};
    if (!takes_part(b->laid, i)) continue;
    int after = stream[op->stream];
    for (int j = 0; j < 3; j++) {
      int k = op->wait[j];
      if (k < 0 || !takes_part(b->laid, k)) continue;
      int of = computes(b->list, k) ? b->w[k].before : b->w[k].after;
      after = MAX(after, of);
    }
    b->w[i].after = after;
    if (computes(b->list, i)) b->w[i].before = after = b->n++;
    stream[op->stream] = after;
  }
}

static void sooner(int *at, int compute) {
  if (*at == NOBODY || compute < *at) *at = compute;
}

/* The first compute row that waits for each row. */
static void find_before(Busy *b) {
  int stream[MS_N_STREAMS]; /* first compute row behind the later rows of a stream */
  for (int s = 0; s < MS_N_STREAMS; s++) stream[s] = NOBODY;
  for (int i = b->list->n - 1; i >= 0; i--) {
    const MsOp *op = &b->list->op[i];
    if (!takes_part(b->laid, i)) continue;
    if (!computes(b->list, i)) {
      if (stream[op->stream] != NOBODY) sooner(&b->w[i].before, stream[op->stream]);
      stream[op->stream] = b->w[i].before;
    }
    for (int j = 0; j < 3 && b->w[i].before != NOBODY; j++) {
      int k = op->wait[j];
      if (k >= 0 && takes_part(b->laid, k) && !computes(b->list, k)) sooner(&b->w[k].before, b->w[i].before);
    }
  }
}

/* Chains of communication behind a compute row, and the gaps that they make. */
static void measure_gaps(Busy *b) {
  for (int i = 0; i < b->list->n; i++) {
    if (!takes_part(b->laid, i)) continue;
    MsWindow *w = &b->w[i];
    if (computes(b->list, i)) {
      b->own[w->before] = b->duration[i];
      continue;
    }
    for (int j = 0; j < 3; j++) {
      int k = b->list->op[i].wait[j];
      if (k >= 0 && takes_part(b->laid, k) && !computes(b->list, k) && b->w[k].after == w->after) w->chain = MAX(w->chain, b->w[k].chain);
    }
    w->chain += b->duration[i];
    if (w->before == w->after + 1) b->gap[w->before] = MAX(b->gap[w->before], w->chain);
  }
}

static gboolean losses_add_up(const MsOpList *list, const guint16 *sms, int sm_count) {
  guint16 most[MS_N_STREAMS] = {0};
  int sum = 0;
  for (int i = 0; i < list->n; i++) most[list->op[i].stream] = MAX(most[list->op[i].stream], sms[i]);
  for (int s = 0; s < MS_N_STREAMS; s++) sum += most[s];
  return sm_count > 0 && 10 * sum <= 9 * sm_count;
}

/* What rows beside compute take from it. */
static void measure_losses(Busy *b, const guint16 *sms, int sm_count) {
  if (!losses_add_up(b->list, sms, sm_count)) return;
  for (int i = 0; i < b->list->n; i++) {
    MsWindow *w = &b->w[i];
    if (!takes_part(b->laid, i) || computes(b->list, i) || sms[i] == 0 || w->before <= w->after + 1) continue;
    MsTime left = b->duration[i];
    for (int k = w->after + 1; k <= w->before && left > 0; k++) left -= b->gap[k];
    if (left > 0) w->loss = left / sm_count * sms[i];
  }
}

static void from(Busy *b, int a, MsTime end) { /* everything that begins at the end of compute row a, or of the entry */
  MsTime inside = 0, lost = 0;
  gboolean begins = FALSE;
  for (int i = 0; i < b->list->n; i++) {
    const MsWindow *w = &b->w[i];
    if (!takes_part(b->laid, i) || computes(b->list, i) || w->after != a || w->before == NOBODY) continue;
    begins |= w->loss > 0;
    b->start[w->before] = MAX(b->start[w->before], end + w->chain);
  }
  for (int k = a + 1; k < b->n; k++) {
    inside += b->gap[k];
    for (int i = 0; begins && i < b->list->n; i++) /* rows whose time ends here */
      if (b->w[i].loss > 0 && b->w[i].before == k && b->w[i].after >= a) lost += b->w[i].loss;
    b->start[k] = MAX(b->start[k], end + inside + lost);
    inside += b->own[k];
    if (!begins) break; /* the next row takes it from here */
  }
}

/* To the end of the last compute row, from the entry or from the start of the first one. */
static MsTime longest(Busy *b, gboolean entry) {
  for (int k = 0; k < b->n; k++) b->start[k] = 0;
  if (entry) from(b, ENTRY, 0);
  for (int k = 0; k < b->n; k++) from(b, k, b->start[k] + b->own[k]);
  return b->n > 0 ? b->start[b->n - 1] + b->own[b->n - 1] : 0;
}

MsBusy ms_list_busy(const MsOpList *list, const MsTime *duration, const guint16 *sms, int sm_count, const gboolean *laid, MsWindow *window) {
  enum { FEW = 64 };
  MsTime few[3 * FEW] = {0};
  Busy b = {.list = list, .duration = duration, .laid = laid, .w = window};
  find_after(&b);
  g_autofree MsTime *many = b.n > FEW ? g_new0(MsTime, 3 * b.n) : NULL;
  b.own = many ? many : few, b.gap = b.own + b.n, b.start = b.gap + b.n;
  find_before(&b);
  measure_gaps(&b);
  measure_losses(&b, sms, sm_count);
  MsBusy busy = {.from_compute = longest(&b, FALSE), .from_entry = longest(&b, TRUE), .tail = -1};
  int tip = list->tip;
  if (b.n == 0 || tip < 0 || !takes_part(laid, tip)) return busy;
  if (computes(list, tip)) busy.tail = window[tip].before == b.n - 1 ? 0 : -1;
  else if (window[tip].after == b.n - 1) busy.tail = window[tip].chain;
  return busy;
}
