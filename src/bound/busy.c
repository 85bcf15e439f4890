/* src/bound/busy.c - how long rows keep the compute stream at least, sharing included.
 *
 * Number the compute rows 0, 1, ... and call what a list waits for its entry. A communication row that follows compute
 * row a (or the entry) and that compute row b waits for (both through any chain of waits) runs between the end of a and
 * the start of b.
 *   - b = a + 1: nothing can be computed meanwhile. The gap between the two lasts at least as long as the longest chain
 * of such rows in it.
 *   - b > a + 1: it may run beside compute. For every second it does, compute loses sms / sm_count of a second; for
 * every second it does not, the stream waits, which costs more, unless it waits anyway: in one of the gaps between a
 * and b. So it costs at least (duration - those gaps) sms / sm_count. A row that computes on another stream (what an
 * exchange sorts) is such a row too: it and the stream that it runs beside each get half of the SMs that are left, so
 * that it costs compute its own duration. Between the end of a and the start of b lie therefore at least the compute
 * rows, the gaps and the costs of all rows whose a and b are within, for any a and b; and at least the chain of rows
 * itself. The longest way through all of these is the result. (The costs of rows that run at the same time add up as
 * long as compute keeps a tenth of the SMs, the engine's floor; where streams could take more, no costs are counted.
 * The stream may wait longer than the gaps: a second of that lets at most a second's worth of costs go by, since those
 * who compute get what the others leave. Sharing of links only makes rows longer.)
 *
 * Rows of the stream of experts' messages that no compute row of their own list waits for run on into the next list,
 * where some compute row waits for a later row of the stream; so do rows that begin with the input of that list, behind
 * the last of the first. They lie between a compute row of the first list and one of the second, and cost what they
 * last beyond the gaps in between (MsCross): their share of the SMs, or, of those that compute, all of it. */
#include "bound/bound_priv.h"
#include <string.h>

enum { ENTRY = -1, NOTHING = -2 };

static gboolean computes(const MsRow *row) { return row->stream == MS_STREAM_COMPUTE; }
static gboolean takes_compute(const MsRow *row) { return row->sms > 0 || row->use == MS_USE_COMPUTE; }

typedef struct {               /* of a communication row */
  int row, after, before;      /* numbers of compute rows; before = n: none waits for it */
  int next_after, next_before; /* the next window with the same; -1 = none */
  MsTime chain, loss;          /* from `after` to its end, along rows that it waits for; what it costs */
} Window;

typedef struct {
  const MsRows *rows;
  int n, n_windows;                /* compute rows, communication rows */
  int *number;                     /* [rows] of a compute row its number, of another its window */
  Window *window;                  /* in order */
  int *first_after, *first_before; /* [n + 1], [n]: window that begins behind compute row k (k + 1 = 0: at the entry),
                                      ends before row k; -1 = none */
  MsTime *own, *gap, *start; /* [n] duration of a compute row; wait in front of it; when it starts at the earliest */
  MsForced *told; /* only gaps and costs count, no windows that leave the stream free to compute, and this gets
                   * what its inputs and outputs have of them; NULL: all counts */
  gboolean any;   /* entries count that open a later row than the first, too */
} Busy;

/* What each row follows: the last compute row, else the entry of its list when its own waits lead there. Streams lead
 * back to compute rows only. */
static void find_after(Busy *b) {
  int stream[MS_N_STREAMS];
  for (int s = 0; s < MS_N_STREAMS; s++) stream[s] = NOTHING;
  for (int i = 0; i < b->rows->n; i++) {
    const MsRow *r = &b->rows->row[i];
    int after = MAX(r->opens ? ENTRY : NOTHING, stream[r->stream]);
    for (int j = 0; j < 3 && r->wait[j] >= 0; j++) {
      const MsRow *w = &b->rows->row[r->wait[j]];
      int number = b->number[r->wait[j]];
      after = MAX(after, computes(w) ? number : b->window[number].after);
    }
    if (computes(r)) {
      after = b->number[i] = b->n;
      b->own[b->n++] = r->duration;
    } else {
      b->number[i] = b->n_windows;
      b->window[b->n_windows++] = (Window){.row = i, .after = after};
    }
    if (after >= 0) stream[r->stream] = after;
  }
}

/* The first compute row that waits for each row. */
static void find_before(Busy *b) {
  int stream[MS_N_STREAMS]; /* first compute row behind the later rows of a stream */
  for (int s = 0; s < MS_N_STREAMS; s++) stream[s] = b->n;
  for (int k = 0; k < b->n_windows; k++) b->window[k].before = b->n;
  for (int i = b->rows->n - 1; i >= 0; i--) {
    const MsRow *r = &b->rows->row[i];
    int before = b->number[i];
    if (!computes(r)) {
      Window *w = &b->window[b->number[i]];
      before = w->before = stream[r->stream] = MIN(w->before, stream[r->stream]);
    }
    for (int j = 0; j < 3 && r->wait[j] >= 0; j++) {
      int k = r->wait[j];
      if (!computes(&b->rows->row[k])) b->window[b->number[k]].before = MIN(b->window[b->number[k]].before, before);
    }
  }
}

/* Windows by where they begin and end. */
static void link_windows(Busy *b) {
  for (int k = 0; k <= b->n; k++) b->first_after[k] = -1;
  for (int k = 0; k < b->n; k++) b->first_before[k] = -1;
  for (int i = b->n_windows - 1; i >= 0; i--) {
    Window *w = &b->window[i];
    if (w->after >= ENTRY) w->next_after = b->first_after[w->after + 1], b->first_after[w->after + 1] = i;
    if (w->before < b->n) w->next_before = b->first_before[w->before], b->first_before[w->before] = i;
  }
}

/* Chains of communication behind a compute row, and the gaps that they make. */
static void measure_gaps(Busy *b) {
  for (int k = 0; k < b->n_windows; k++) {
    Window *w = &b->window[k];
    const MsRow *r = &b->rows->row[w->row];
    for (int j = 0; j < 3 && r->wait[j] >= 0; j++) {
      const Window *v = &b->window[b->number[r->wait[j]]];
      if (!computes(&b->rows->row[r->wait[j]]) && v->after == w->after) w->chain = MAX(w->chain, v->chain);
    }
    w->chain += r->duration;
    if (w->after >= 0 && w->before == w->after + 1 && w->before < b->n)
      b->gap[w->before] = MAX(b->gap[w->before], w->chain);
  }
}

static gboolean losses_add_up(const MsRows *rows, int sm_count) {
  int most[MS_N_STREAMS] = {0};
  for (int i = 0; i < rows->n; i++) most[rows->row[i].stream] = MAX(most[rows->row[i].stream], rows->row[i].sms);
  return sm_count > 0 && 10 * ms_sum_sms(most) <= 9 * sm_count;
}

static MsTime loss(const Busy *b, const Window *w, int from, MsTime gaps, int sm_count) {
  const MsRow *r = &b->rows->row[w->row];
  MsTime left = r->duration - gaps;
  for (int k = from; k <= w->before && k < b->n && left > 0; k++) left -= b->gap[k];
  return left <= 0 ? 0 : r->use == MS_USE_COMPUTE ? left : left / sm_count * r->sms;
}

/* What rows beside compute take from it. */
static void measure_losses(Busy *b, int sm_count) {
  for (int k = 0; k < b->n_windows; k++) {
    Window *w = &b->window[k];
    if (w->after >= 0 && w->before > w->after + 1 && w->before < b->n && takes_compute(&b->rows->row[w->row]))
      w->loss = loss(b, w, w->after + 1, 0, sm_count);
  }
}

static void lift(MsTime *a, MsTime to) { *a = MAX(*a, to); }

/* From compute row a on: start[] of what waits for rows that begin there. `stretch`: the costs within add up from here
 * on; `entry`: also those of rows that begin at the entry. */
static void onward(Busy *b, int a, gboolean stretch, gboolean entry) {
  MsTime end = b->start[a] + b->own[a], inside = 0;
  for (int i = b->first_after[a + 1]; i >= 0; i = b->window[i].next_after) {
    const Window *w = &b->window[i];
    stretch |= w->loss > 0;
    if (w->before < b->n && !b->told) lift(&b->start[w->before], end + w->chain);
  }
  for (int k = a + 1; k < b->n; k++) {
    inside += b->gap[k];
    for (int i = stretch ? b->first_before[k] : -1; i >= 0; i = b->window[i].next_before)
      if (b->window[i].after >= a || (entry && b->window[i].after == ENTRY)) inside += b->window[i].loss;
    lift(&b->start[k], end + inside);
    if (!stretch) break; /* the next row takes it from here */
    inside += b->own[k];
  }
}

static void onward_from(Busy *b, int first, gboolean entry) {
  onward(b, first, TRUE, entry);
  for (int k = first + 1; k < b->n; k++) onward(b, k, FALSE, FALSE);
}

/* From the moment when the stream is free for the first compute row. */
static void from_compute(Busy *b) {
  if (b->n == 0) return;
  b->start[0] = 0;
  onward_from(b, 0, FALSE);
}

static gboolean begins_at_entry(const Busy *b, const Window *w, gboolean beside) {
  return w->after == ENTRY && b->rows->row[w->row].beside == beside;
}

/* From the entry of one of the lists: to the first compute row that follows it, and on from there. */
static void from_entry(Busy *b, gboolean beside, int sm_count) {
  int first = b->n;
  for (int i = 0; i < b->rows->n; i++) {
    const MsRow *r = &b->rows->row[i];
    if (!computes(r) || !r->opens || r->beside != beside || (!b->any && b->number[i] > 0)) continue;
    first = MIN(first, b->number[i]);
    b->start[b->number[i]] = 0;
  }
  for (int k = b->first_after[0]; k >= 0; k = b->window[k].next_after) {
    const Window *w = &b->window[k];
    if (!begins_at_entry(b, w, beside) || w->before == b->n || (!b->any && w->before > 0)) continue;
    first = MIN(first, w->before);
    lift(&b->start[w->before], w->chain);
  }
  if (first == b->n) return;
  if (first == 0 && b->told) b->told->opens[beside] = b->start[0];
  for (int k = b->first_after[0]; k >= 0; k = b->window[k].next_after) { /* what runs from the entry beside compute */
    Window *w = &b->window[k];
    gboolean costs = sm_count > 0 && begins_at_entry(b, w, beside) && w->before > first && w->before < b->n;
    w->loss = costs ? loss(b, w, first + 1, b->start[first], sm_count) : 0;
  }
  onward_from(b, first, TRUE);
}

/* When the output of a list is there, behind which compute row it is; FALSE: it has none, or is not behind the source.
 */
static gboolean output(const Busy *b, int side, MsTime *there, int *last) {
  int tip = b->rows->tip[side];
  if (tip < 0) return FALSE;
  const Window *w = &b->window[b->number[tip]];
  gboolean compute = computes(&b->rows->row[tip]);
  *last = compute ? b->number[tip] : w->after;
  if (*last < 0 || b->start[*last] < 0) return FALSE;
  *there = b->start[*last] + b->own[*last] + (compute ? 0 : w->chain);
  return TRUE;
}

static void hand_over(const Busy *b, int source, MsLags *lags) {
  if (b->n > 0 && b->start[b->n - 1] >= 0)
    lift(&lags->to[MS_END_COMPUTE][source], b->start[b->n - 1] + b->own[b->n - 1]);
  for (int side = 0, last; side < 2; side++) {
    MsTime there;
    if (!output(b, side, &there, &last)) continue;
    if (source == MS_END_COMPUTE && b->told) b->told->tip[side] = there;
    if (!b->told || last == b->n - 1) lift(&lags->to[side ? MS_END_BESIDE : MS_END_ENTRY][source], there);
  }
}

static void begin(Busy *b) {
  for (int k = 0; k < b->n; k++) b->start[k] = -1; /* not behind the source */
}

/* From inputs, whatever row they open. */
static void tell_reach(Busy *b, int sm_count) {
  b->any = TRUE;
  for (int in = 0, last; in < 2; in++) {
    begin(b);
    from_entry(b, in == MS_END_BESIDE, sm_count);
    if (b->start[b->n - 1] < 0) continue;
    b->told->reach[in] = b->start[b->n - 1] + b->own[b->n - 1];
    for (int out = 0; out < 2; out++) output(b, out, &b->told->through[in][out], &last);
  }
}

/* From each of the sources in turn: starts of the compute rows, and what follows from them for the lags. */
static void measure(Busy *b, int sm_count, guint sources, MsLags *lags) {
  find_after(b);
  find_before(b);
  link_windows(b);
  memset(b->gap, 0, sizeof(MsTime) * (size_t)b->n);
  measure_gaps(b);
  gboolean losses = losses_add_up(b->rows, sm_count);
  if (losses) measure_losses(b, sm_count);
  for (int source = 0; source < MS_END_HOST; source++) {
    if (!(sources & 1u << source)) continue;
    begin(b);
    if (source == MS_END_COMPUTE) from_compute(b);
    else from_entry(b, source == MS_END_BESIDE, losses ? sm_count : 0);
    hand_over(b, source, lags);
  }
  if (b->told && b->n > 0) tell_reach(b, losses ? sm_count : 0);
}

static MsTime sent_between(const Busy *b) {
  MsTime sum = 0;
  for (int k = 0; k < b->n_windows; k++) {
    const Window *w = &b->window[k];
    if (b->rows->row[w->row].use == MS_USE_LINK1 && w->after >= 0 && w->before < b->n)
      sum += b->rows->row[w->row].duration;
  }
  return sum;
}

/* --- rows that run on into the next list --- */

static gboolean is_message(const Busy *b, const Window *w) { return b->rows->row[w->row].stream == MS_STREAM_EP; }

static void add_crossing(const Busy *b, const Window *w, MsRunOn *sum, MsCross *cross) {
  const MsRow *r = &b->rows->row[w->row];
  if (r->use == MS_USE_COMPUTE) sum->computes += r->duration;
  else if (r->sms > 0) sum->sends += r->duration, cross->sms = MIN(cross->sms, r->sms);
}

/* Between compute rows, the first not included. */
static MsTime gaps_between(const Busy *b, int from, int to) {
  MsTime sum = 0;
  for (int k = from + 1; k <= to && k < b->n; k++) sum += b->gap[k];
  return sum;
}

static MsCross crossing(const Busy *b, int sm_count) {
  MsCross cross = {.sms = sm_count, .sm_count = sm_count};
  int first_out = b->n, last_after = -1, first_before = b->n, last_in = -1;
  for (int k = 0; k < b->n_windows; k++) {
    const Window *w = &b->window[k];
    if (!is_message(b, w)) continue;
    last_after = MAX(last_after, w->after), first_before = MIN(first_before, w->before);
    if (w->after >= 0 && w->before == b->n)
      first_out = MIN(first_out, w->after), add_crossing(b, w, &cross.out, &cross);
    if (w->after == ENTRY && w->before < b->n) last_in = MAX(last_in, w->before), add_crossing(b, w, &cross.in, &cross);
  }
  cross.leads = last_after >= 0, cross.awaits = first_before < b->n;
  cross.behind = gaps_between(b, MIN(first_out, last_after), b->n - 1);
  cross.before = gaps_between(b, -1, MAX(first_before, last_in));
  return cross;
}

/* Those that compute cost more, and may all have run in the gaps. */
MsTime ms_cross_cost(const MsCross *then, const MsCross *first) {
  if (!first->leads || !then->awaits || then->sm_count <= 0) return 0;
  MsTime gaps = first->behind + then->before, computes = first->out.computes + then->in.computes,
         sends = first->out.sends + then->in.sends - MAX(0, gaps - computes);
  return MAX(0, computes - gaps) + MAX(0, sends) / then->sm_count * MIN(first->sms, then->sms);
}

/* *forced, or NULL: all that it has beside the lags, which are then its own. */
static void busy(const MsRows *rows, int sm_count, guint sources, MsLags *lags, MsForced *forced) {
  enum { FEW = 160 };
  int few_numbers[3 * FEW + 1], n = rows->n;
  Window few_windows[FEW];
  MsTime few_times[3 * FEW];
  gboolean many = n > FEW;
  Busy b = {.rows = rows,
            .number = many ? g_new(int, 3 * n + 1) : few_numbers,
            .window = many ? g_new(Window, n) : few_windows,
            .own = many ? g_new(MsTime, 3 * n) : few_times,
            .told = forced,
            .any = !forced};
  b.first_before = b.number + n, b.first_after = b.first_before + n;
  b.gap = b.own + n, b.start = b.gap + n;
  if (n > 0) measure(&b, sm_count, sources, lags);
  if (forced) forced->network = sent_between(&b), forced->cross = crossing(&b, sm_count);
  if (!many) return;
  g_free(b.number);
  g_free(b.window);
  g_free(b.own);
}

void ms_rows_busy(const MsRows *rows, int sm_count, guint sources, MsLags *lags) {
  busy(rows, sm_count, sources, lags, NULL);
}

const MsForced ms_nothing_forced = {.lags = MS_NO_ROWS,
                                    .shared = {MS_NO_ROWS, MS_NO_ROWS},
                                    .opens = {MS_NEVER, MS_NEVER},
                                    .tip = {MS_NEVER, MS_NEVER},
                                    .reach = {MS_NEVER, MS_NEVER},
                                    .through = {{MS_NEVER, MS_NEVER}, {MS_NEVER, MS_NEVER}},
                                    .met = TRUE};

MsForced ms_rows_forced(const MsRows *rows, int sm_count) {
  MsForced f = ms_nothing_forced;
  f.met = FALSE;
  gboolean any = FALSE;
  for (int i = 0; i < rows->n; i++)
    if (computes(&rows->row[i])) any = TRUE, f.own += rows->row[i].duration;
  if (!any) return f;
  for (int i = 0; i < MS_N_ENDS; i++)
    for (int k = 0; k < MS_N_ENDS; k++) f.lags.to[i][k] = MS_NEVER;
  busy(rows, sm_count, MS_FROM_ALL, &f.lags, &f);
  return f;
}
