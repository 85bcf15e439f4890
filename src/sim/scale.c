/* src/sim/scale.c - order statistics of a step: what its critical path gains when ranks differ. */
#include "sim/scale.h"

#include "base/stats.h"
#include "base/units.h"
#include "step/fetch.h"
#include "step/pair.h"

#include <math.h>
#include <string.h>

/* --- rows of a pass ---------------------------------------------------------------------------------------------- */

typedef struct { /* how far ranks are apart that last met in a group of each kind */
  double variance[MS_N_GROUPS], clock_s[MS_N_GROUPS]; /* s^2; s for each standard deviation of its clock */
} Apart;

typedef struct {
  const MsProgram *p;
  MsGpuSpread spread;
  double ahead;                              /* of the slowest of a stage, standard deviations of the clock */
  gboolean inside[MS_N_GROUPS][MS_N_GROUPS]; /* [of][group]: all of a group are in one of `of` */
  double left[MS_N_GROUPS];                  /* of a variance, once the last of a group is waited for */
} Meeting;

typedef struct { /* passes that follow one another again and again, or run beside one another (EP overlap) */
  const MsCosted *list[2];
  int n, from[3]; /* of the rows of each in arrays of all */
  gboolean paired;
  MsPairRow *order; /* [from[n]] in which they are issued */
} Passes;

typedef struct {                                     /* of a GPU and its host, as they go through them */
  double stream_s[MS_N_STREAMS], host_s, entry_s[2]; /* of each list */
  Apart *stream, *host, *entry;                      /* NULL: not asked for */
} Line;

static gboolean meets(const MsProgram *p, const MsOp *op) {
  return ms_op_families[op->kind] == MS_FAMILY_COMM && op->group != MS_GROUP_NONE && op->group != MS_GROUP_PP &&
         op->group != MS_GROUP_EMBEDDING && op->group != MS_GROUP_WORLD && p->layout->group[op->group].size > 1;
}

/* Of the row's time, what a standard deviation of the clock takes more. */
static double clocked(const Meeting *m, const MsOp *op) {
  MsOpFamily family = ms_op_families[op->kind];
  return family == MS_FAMILY_ATTENTION ? m->spread.clock * m->spread.attention
         : family < MS_FAMILY_MEMORY   ? m->spread.clock
                                       : 0;
}

/* The latest of what row i of list k waits for; *apart: of that, NULL where it is not asked for. */
static double ready_s(Line *l, const Passes *x, int k, int i, const double *end_s, const Apart *row,
                      const Apart **apart) {
  const MsCosted *c = x->list[k];
  const MsOp *op = &c->list->op[i];
  double from_s = l->stream_s[op->stream];
  gboolean own = FALSE;
  *apart = l->stream ? &l->stream[op->stream] : NULL;
  for (int j = 0; j < 3; j++) {
    if (op->wait[j] < 0) continue;
    int of = x->from[k] + op->wait[j];
    own = TRUE;
    if (end_s[of] > from_s) from_s = end_s[of], *apart = row ? &row[of] : NULL;
  }
  if (!own && l->entry_s[k] > from_s) from_s = l->entry_s[k], *apart = l->entry ? &l->entry[k] : NULL;
  if (c->launch[i] == 0) return from_s;
  l->host_s += (double)c->launch[i] / MS_PS_PER_S;
  if (l->host_s > from_s) from_s = l->host_s, *apart = l->host;
  return from_s;
}

static void meet(const Meeting *m, MsGroupKind of, Apart *a) {
  double variance = a->variance[of], clock_s = a->clock_s[of];
  for (int g = 0; g < MS_N_GROUPS; g++) {
    if (m->inside[of][g]) a->variance[g] = a->clock_s[g] = 0;
    a->variance[g] -= (1 - m->left[of]) * MIN(variance, a->variance[g]);
    a->clock_s[g] -= (1 - sqrt(m->left[of])) * MIN(clock_s, a->clock_s[g]);
  }
}

/* What the row waits for the last of its group, ranks being *a apart when they come; becomes what they are behind it.
 */
static double wait_s(const Meeting *m, const MsCosted *c, int i, double duration_s, Apart *a) {
  const MsOp *op = &c->list->op[i];
  double jitter_s = m->spread.kernel_jitter * duration_s, clock_s = clocked(m, op) * duration_s;
  for (int g = 0; g < MS_N_GROUPS && c->use[i] == MS_USE_COMPUTE; g++)
    a->variance[g] += jitter_s * jitter_s, a->clock_s[g] += clock_s;
  if (!meets(m->p, op)) return 0;
  double s =
      ms_scale_wait(sqrt(a->variance[op->group]), a->clock_s[op->group], m->ahead, m->p->layout->group[op->group].size);
  meet(m, op->group, a);
  return s;
}

static void run_row(const Meeting *m, const Passes *x, Line *l, int k, int i, const double *duration_s, double *end_s,
                    Apart *row, double *waits_s) {
  const MsCosted *c = x->list[k];
  const MsOp *op = &c->list->op[i];
  const Apart *apart;
  int at = x->from[k] + i;
  double jitter_s = ms_host_deviation(m->spread.host_jitter, c->launch[i], m->spread.operator_of_host) *
                    (double)c->launch[i] / MS_PS_PER_S;
  for (int g = 0; row && g < MS_N_GROUPS; g++) l->host->variance[g] += jitter_s * jitter_s;
  end_s[at] = l->stream_s[op->stream] = ready_s(l, x, k, i, end_s, row, &apart) + duration_s[at];
  if (row) {
    row[at] = *apart;
    waits_s[at] = wait_s(m, c, i, duration_s[at], &row[at]);
    l->stream[op->stream] = row[at];
  }
  if (!(op->flags & MS_OPF_SYNC) || !(end_s[at] > l->host_s)) return;
  l->host_s = end_s[at];
  if (row) *l->host = row[at];
}

/* What follows list k waits for its end: the same list where they run beside one another. */
static void leave(const Passes *x, Line *l, int k, const double *end_s, const Apart *row) {
  if (x->list[k]->list->n == 0) return;
  int tip = x->from[k] + x->list[k]->list->tip, next = x->paired ? k : (k + 1) % x->n;
  l->entry_s[next] = end_s[tip];
  if (row) l->entry[next] = row[tip];
}

enum { ROUNDS = 3 }; /* until the host is ahead or behind for good */

/* From the end of the passes to that of the next ones. waits_s[rows]: of the last round, NULL: not asked for. */
static double period_s(const Meeting *m, const Passes *x, const double *duration_s, double *waits_s) {
  int rows = x->from[x->n];
  g_autofree double *end_s = g_new0(double, MAX(rows, 1));
  g_autofree Apart *row = waits_s ? g_new(Apart, MAX(rows, 1)) : NULL, *apart = g_new0(Apart, MS_N_STREAMS + 3);
  Line l = {.stream_s = {0}};
  double before_s = 0;
  if (row) l.stream = apart, l.host = apart + MS_N_STREAMS, l.entry = l.host + 1;
  for (int round = 0; round < ROUNDS; round++) {
    before_s = l.stream_s[MS_STREAM_COMPUTE];
    for (int i = 0; i < rows; i++) {
      int k = x->order[i].backward ? 1 : 0;
      run_row(m, x, &l, k, x->order[i].row, duration_s, end_s, row, waits_s);
      if (!x->paired && x->order[i].row == x->list[k]->list->n - 1) leave(x, &l, k, end_s, row);
    }
    for (int k = 0; k < x->n && x->paired; k++) leave(x, &l, k, end_s, row);
  }
  return l.stream_s[MS_STREAM_COMPUTE] - before_s;
}

/* --- what they gain ---------------------------------------------------------------------------------------------- */

typedef struct {                          /* seconds that passes take more */
  double clock_s, jitter_s, gpu_s, nic_s; /* for a standard deviation of the clock; waits; where a GPU, a NIC is slow */
} More;

static void add(More *to, const More *more, double times) {
  to->clock_s += times * more->clock_s, to->jitter_s += times * more->jitter_s;
  to->gpu_s += times * more->gpu_s;
}

typedef enum { ALIKE, CLOCK, GPU } Change;

/* The row's time where its GPU's clock is that of the slowest, where its GPU is slow. */
static double changed_s(const Meeting *m, const MsCosted *c, int i, double s, Change change) {
  if (change == CLOCK) return s * (1 + m->ahead * clocked(m, &c->list->op[i]));
  return change == GPU && c->use[i] == MS_USE_COMPUTE ? s * m->p->scenario->cluster.slow_gpu_factor : s;
}

static Passes passes_of(const Meeting *m, const MsCosted *first, const MsCosted *then) {
  const MsOptions *o = &m->p->scenario->options;
  Passes x = {.list = {first, then}, .n = then ? 2 : 1, .paired = then && o->ep_overlap};
  for (int k = 0; k < x.n; k++) x.from[k + 1] = x.from[k] + x.list[k]->list->n;
  x.order = g_new(MsPairRow, MAX(x.from[x.n], 1));
  for (int k = 0; k < x.n; k++)
    for (int i = 0; i < x.list[k]->list->n; i++) x.order[x.from[k] + i] = (MsPairRow){k == 1, i};
  if (x.paired) ms_pair_order(first->list, then->list, o->delay_wgrad, x.order);
  return x;
}

/* s[rows of all] */
static void find_times(const Meeting *m, const Passes *x, Change change, double *s) {
  for (int k = 0; k < x->n; k++) {
    const MsCosted *c = x->list[k];
    const MsTime *time = x->paired ? c->beside : c->duration;
    for (int i = 0; i < c->list->n; i++) s[x->from[k] + i] = changed_s(m, c, i, (double)time[i] / MS_PS_PER_S, change);
  }
}

/* Of one microbatch; `then` NULL: none. */
static double alone_s(const Meeting *m, const MsCosted *first, const MsCosted *then, Change change) {
  Passes x = passes_of(m, first, then);
  g_autofree double *s = g_new(double, MAX(x.from[x.n], 1));
  g_autofree MsPairRow *order = x.order;
  find_times(m, &x, change, s);
  return period_s(m, &x, s, NULL);
}

static double longer_s(const Meeting *m, const Passes *x, const double *duration_s, double alone_s) {
  double gain_s = period_s(m, x, duration_s, NULL) - alone_s;
  return MAX(gain_s, 0);
}

/* Those of a microbatch, forward and (NULL: none) backward. */
static More more_of(const Meeting *m, const MsCosted *first, const MsCosted *then) {
  Passes x = passes_of(m, first, then);
  int rows = x.from[x.n];
  g_autofree double *s = g_new(double, 2 * MAX(rows, 1));
  g_autofree MsPairRow *order = x.order;
  double *changed = s + rows, gain_s[GPU + 1], alone_s;
  find_times(m, &x, ALIKE, s);
  alone_s = period_s(m, &x, s, NULL);
  for (Change change = CLOCK; change <= GPU; change++) {
    find_times(m, &x, change, changed);
    gain_s[change] = longer_s(m, &x, changed, alone_s);
  }
  More more = {.clock_s = m->ahead > 0 ? gain_s[CLOCK] / m->ahead : 0, .gpu_s = gain_s[GPU]};
  if (!(m->spread.kernel_jitter > 0) && !(m->spread.host_jitter > 0)) return more;
  period_s(m, &x, s, changed);
  for (int i = 0; i < rows; i++) changed[i] += s[i];
  more.jitter_s = longer_s(m, &x, changed, alone_s);
  return more;
}

/* --- groups ------------------------------------------------------------------------------------------------------ */

static void find_groups(Meeting *m) {
  const MsLayout *l = m->p->layout;
  g_autofree int *a = g_new(int, l->world), *b = g_new(int, l->world);
  for (int of = MS_GROUP_TP; of < MS_N_GROUPS; of++) {
    m->left[of] = ms_normal_maximum_variance(MAX(l->group[of].size, 1));
    if (of == MS_GROUP_PP || of == MS_GROUP_EMBEDDING || of == MS_GROUP_WORLD) continue;
    int n = ms_group_members(l, (MsGroupKind)of, 0, a, l->world);
    for (int g = MS_GROUP_TP; g < MS_N_GROUPS; g++) {
      int size = ms_group_members(l, (MsGroupKind)g, 0, b, l->world), both = 0;
      for (int i = 0, k = 0; i < size && k < n;) /* both ascend */
        if (a[k] == b[i]) both++, i++, k++;
        else if (a[k] < b[i]) k++;
        else i++;
      m->inside[of][g] = both == size;
    }
  }
}

/* What a standard deviation of the clock changes in attention, over that in products. */
static double attention_share(const MsScenario *s) {
  double derate = ms_sustained_clock(s, MS_FAMILY_GEMM), loss = s->laws.attention_clock_loss, clock = 1 + 1e-3;
  double slower = ms_sustained_clock(s, MS_FAMILY_ATTENTION) / (1 - loss * (1 - derate / clock));
  return (slower - 1) / (clock - 1);
}

/* --- stages ------------------------------------------------------------------------------------------------------ */

typedef struct {
  double base_s; /* the step if all other stages kept up with this one */
  More more;
  int ranks;
} Stage;

/* Of pieces one behind the other: all forward, then all backward, as the host is ahead through one and behind through
 * the other. */
typedef struct {
  const Meeting *m;
  const MsProgram *p;
  const int *piece; /* [layers] */
  Change change;
  int layers;
  Line line;
  int fetched; /* turn whose parameters (FSDP) are on their way, -1: none; there at ready_s */
  double ready_s;
} Stretch;

/* Behind what the line has done; the latest end of its rows. */
static double go_on_s(Stretch *x, const MsCosted *c) {
  int rows = c->list->n;
  Passes one = {.list = {c}, .n = 1, .from = {0, rows}};
  g_autofree double *s = g_new(double, 2 * MAX(rows, 1));
  double latest_s = 0, *end_s = s + rows;
  for (int i = 0; i < rows; i++) {
    s[i] = (double)c->duration[i] / MS_PS_PER_S;
    s[i] = changed_s(x->m, c, i, s[i], x->change);
    run_row(x->m, &one, &x->line, 0, i, s, end_s, NULL, NULL);
    latest_s = MAX(latest_s, end_s[i]);
  }
  leave(&one, &x->line, 0, end_s, NULL);
  return latest_s;
}

static int piece_of_turn(const Stretch *x, int turn) {
  return x->piece[turn < x->layers ? turn : 2 * x->layers - 1 - turn];
}

static gboolean gathers(const Stretch *x, int turn) {
  gboolean backward = turn >= x->layers;
  if (backward && x->p->unit && ms_unit_gathers(x->p->scenario) == MS_GATHERS_DROPPED) return FALSE;
  return ms_needs_params(x->p, piece_of_turn(x, turn), backward ? MS_SLOT_B : MS_SLOT_F);
}

static void fetch(Stretch *x, int turn, double from_s) {
  const MsCostedUnit *u = &x->p->unit[piece_of_turn(x, turn)];
  double again_s = 0;
  x->line.entry_s[0] = from_s;
  x->ready_s = go_on_s(x, &u->gather);
  if (turn >= x->layers) again_s = go_on_s(x, &u->again);
  x->ready_s = MAX(x->ready_s, again_s);
  x->fetched = turn;
}

/* Whose parameters are fetched while this turn computes; -1: none (ms_need_ahead). */
static int turn_ahead(const Stretch *x, int turn) {
  int next = (turn + 1) % (2 * x->layers);
  gboolean turns = next == 0 || next == x->layers, again = x->p->unit[piece_of_turn(x, turn)].again.list->n > 0;
  if (ms_passes_wait(x->p) && (turns || (turn >= x->layers && again))) return -1;
  return gathers(x, next) ? next : -1;
}

static void wait_for_parameters(Stretch *x, int turn) {
  double from_s = x->line.entry_s[0], ready_s = 0;
  int next = turn_ahead(x, turn);
  if (gathers(x, turn)) {
    if (x->fetched != turn) fetch(x, turn, from_s);
    ready_s = x->ready_s;
  }
  x->fetched = -1;
  if (next >= 0) fetch(x, next, from_s);
  x->line.entry_s[0] = MAX(from_s, ready_s);
  if (gathers(x, turn)) go_on_s(x, &x->p->unit[piece_of_turn(x, turn)].cast[turn >= x->layers]);
}

static void reduce_gradients(Stretch *x, int turn) {
  double *entry_s = &x->line.entry_s[0], tip_s = *entry_s,
         end_s = go_on_s(x, &x->p->unit[piece_of_turn(x, turn)].reduce);
  *entry_s = ms_passes_wait(x->p) && turn == 2 * x->layers - 1 ? MAX(tip_s, end_s) : tip_s;
}

static void take_turn(Stretch *x, int turn) {
  const MsCostedPiece *piece = &x->p->piece[piece_of_turn(x, turn)];
  if (x->p->unit) wait_for_parameters(x, turn);
  go_on_s(x, turn < x->layers ? &piece->forward : &piece->backward);
  if (x->p->unit && turn >= x->layers) reduce_gradients(x, turn);
}

static void stretch_times(Stretch *x, double *forward_s, double *backward_s) {
  const double *at_s = &x->line.stream_s[MS_STREAM_COMPUTE];
  for (int round = 0; round < ROUNDS; round++) {
    double begin_s = *at_s, turn_s;
    for (int i = 0; i < x->layers; i++) take_turn(x, i);
    turn_s = *at_s;
    for (int i = x->layers; i < 2 * x->layers; i++) take_turn(x, i);
    *forward_s = turn_s - begin_s, *backward_s = *at_s - turn_s;
  }
}

/* Pieces of the chunks [from, to) of a stage in the order of forwards. (transfer full) */
static GArray *pieces_of(const MsProgram *p, int stage, int from, int to) {
  GArray *piece = g_array_new(FALSE, FALSE, sizeof(int));
  for (int c = from; c < to; c++) {
    const MsChunk *chunk = ms_layout_chunk(p->layout, stage, c);
    for (int i = 0; i < ms_work_chunk_length(p->work, chunk); i++) {
      int own = ms_work_chunk_piece(p->work, chunk, i);
      g_array_append_val(piece, own);
    }
  }
  return piece;
}

/* Time of forwards and of backwards of pieces, one behind the other, with the costs of `p`. */
static void pass_times(const Meeting *m, const MsProgram *p, const GArray *pieces, Change change, double *forward_s,
                       double *backward_s) {
  *forward_s = *backward_s = 0;
  if (!p->scenario->options.ep_overlap) {
    Stretch x = {.m = m,
                 .p = p,
                 .piece = (const int *)(const void *)pieces->data,
                 .layers = (int)pieces->len,
                 .change = change,
                 .fetched = -1};
    stretch_times(&x, forward_s, backward_s);
    return;
  }
  for (guint i = 0; i < pieces->len; i++) {
    const MsCostedPiece *piece = &p->piece[g_array_index(pieces, int, i)];
    double pair_s = alone_s(m, &piece->forward, &piece->backward, change),
           first_s = alone_s(m, &piece->forward, NULL, change), then_s = alone_s(m, &piece->backward, NULL, change),
           share = first_s + then_s > 0 ? pair_s / (first_s + then_s) : 0;
    *forward_s += share * first_s, *backward_s += share * then_s;
  }
}

/* What the passes of a microbatch take a stage more for a standard deviation of the clock: its host may be ahead
 * through all of them, though behind through some piece on its own. */
static double clock_of_stage_s(const Meeting *m, int stage) {
  double alike_s[2], slow_s[2];
  if (!(m->ahead > 0)) return 0;
  g_autoptr(GArray) pieces = pieces_of(m->p, stage, 0, m->p->layout->vpp);
  pass_times(m, m->p, pieces, ALIKE, &alike_s[0], &alike_s[1]);
  pass_times(m, m->p, pieces, CLOCK, &slow_s[0], &slow_s[1]);
  return MAX(slow_s[0] + slow_s[1] - alike_s[0] - alike_s[1], 0) / m->ahead;
}

typedef struct { /* the slots of the step with a time for the passes of each stage of the model */
  const MsSchedule *schedule;
  MsScheduleTurns *turns;
  int n;
  double *forward_s[2], *backward_s[2], *mixed, *scratch; /* [n] alike, slow */
} Slots;

static Slots slots_of(const Meeting *m, const MsSchedule *schedule, const MsProgram *slower, gboolean slow_gpu) {
  gboolean copies = schedule->placement == MS_PLACE_BIDIRECTIONAL;
  Slots x = {.schedule = schedule, .n = schedule->stages * (copies ? 1 : schedule->chunks)};
  x.turns = ms_schedule_turns_new(schedule);
  x.mixed = g_new(double, 6 * (gsize)x.n), x.scratch = g_new(double, ms_schedule_turns_scratch(x.turns));
  for (int k = 0; k < 2; k++) {
    x.forward_s[k] = x.mixed + 2 * (k + 1) * x.n, x.backward_s[k] = x.forward_s[k] + x.n;
    for (int i = 0; i < x.n; i++) {
      int stage = i, chunk = 0;
      if (!copies) ms_virtual_owner(schedule, i, &stage, &chunk);
      g_autoptr(GArray) pieces = pieces_of(m->p, stage, chunk, chunk + 1);
      pass_times(m, k == 1 ? slower : m->p, pieces, k == 1 && slow_gpu ? GPU : ALIKE, &x.forward_s[k][i],
                 &x.backward_s[k][i]);
    }
  }
  return x;
}

static void slots_clear(Slots *x) { ms_schedule_turns_free(x->turns), g_free(x->mixed), g_free(x->scratch); }

/* What one stage holds: in a bidirectional pipeline also what the opposite one does. */
static gboolean holds(const MsSchedule *s, int stage, int of_model) {
  int own = of_model, chunk;
  if (s->placement == MS_PLACE_BIDIRECTIONAL) return stage == own || stage == s->stages - 1 - own;
  ms_virtual_owner(s, of_model, &own, &chunk);
  return stage == own;
}

enum { NO_STAGE = -1, ALL_STAGES = -2 };

/* End of the last slot where the passes of one stage are slow. */
static double slots_end_s(const Slots *x, int slow) {
  double *forward_s = x->mixed, *backward_s = x->mixed + x->n;
  for (int i = 0; i < x->n; i++) {
    int k = slow == ALL_STAGES || (slow != NO_STAGE && holds(x->schedule, slow, i)) ? 1 : 0;
    forward_s[i] = x->forward_s[k][i], backward_s[i] = x->backward_s[k][i];
  }
  return ms_schedule_turns_end(x->turns, &(MsPassTimes){forward_s, backward_s}, NULL, x->scratch);
}

/* What the passes of a stage take longer in a step where it is slow. */
static double slowed_s(const Slots *x, int stage) {
  double sum_s = 0;
  for (int i = 0; i < x->n; i++)
    if (holds(x->schedule, stage, i))
      sum_s += x->forward_s[1][i] - x->forward_s[0][i] + x->backward_s[1][i] - x->backward_s[0][i];
  return x->schedule->microbatches * sum_s;
}

/* later_s[stages]: what one slow rank of the stage adds to its own end, lead_s[s] before the step's: as much as the
 * step gains where it alone is slow, but no more than its passes do; and, as `chance` says how often others are slow,
 * what these make the first and the last microbatch later. Returns what the step gains with all stages slow. */
static double slow_stages_s(const Slots *x, double chance, const double *lead_s, double *later_s) {
  double alike_s = slots_end_s(x, NO_STAGE), all_s = slots_end_s(x, ALL_STAGES) - alike_s, most_s = 0;
  for (int s = 0; s < x->schedule->stages; s++) {
    double gain_s = MAX(slots_end_s(x, s) - alike_s, 0);
    later_s[s] = MIN(gain_s + lead_s[s], MAX(gain_s, slowed_s(x, s)));
    most_s = MAX(most_s, gain_s);
  }
  for (int s = 0; s < x->schedule->stages; s++) later_s[s] += chance * MAX(all_s - most_s, 0);
  return all_s;
}

static double chance_of_one(double of_each, int ranks) { return 1 - pow(1 - of_each, ranks); }

/* What a slow GPU, a slow NIC of a stage add to its own end. */
static void find_slow(const Meeting *m, const MsScaleOf *of, Stage *stage) {
  const MsClusterSpec *c = &m->p->scenario->cluster;
  int stages = m->p->layout->pp;
  g_autofree double *later_s = g_new0(double, stages), *lead_s = g_new(double, stages);
  for (int s = 0; s < stages; s++) lead_s[s] = of->step_s - stage[s].base_s;
  if (c->slow_gpu_rate > 0) {
    Slots x = slots_of(m, of->schedule, m->p, TRUE);
    slow_stages_s(&x, chance_of_one(c->slow_gpu_rate, stage->ranks), lead_s, later_s);
    for (int s = 0; s < stages; s++) stage[s].more.gpu_s += later_s[s];
    slots_clear(&x);
  }
  if (!of->slower) return;
  Slots x = slots_of(m, of->schedule, of->slower, FALSE);
  double passes_s = slow_stages_s(&x, chance_of_one(c->slow_nic_rate, stage->ranks), lead_s, later_s),
         rest_s = MAX(of->slower_s - of->step_s - passes_s, 0); /* of messages outside of the passes */
  for (int s = 0; s < stages; s++) stage[s].more.nic_s = later_s[s] + rest_s;
  slots_clear(&x);
}

static Stage *stages_of(const Meeting *m, const MsScaleOf *of, const MsResult *r) {
  const MsLayout *l = m->p->layout;
  Stage *stage = g_new0(Stage, l->pp);
  g_autofree More *piece = g_new0(More, m->p->work->n_pieces);
  double busiest_s = 0, turns = (double)l->microbatches * l->vpp;
  for (int i = 0; i < m->p->work->n_pieces; i++)
    piece[i] = more_of(m, &m->p->piece[i].forward, &m->p->piece[i].backward);
  for (int s = 0; s < l->pp; s++) busiest_s = MAX(busiest_s, of->step_s - r->stage_time[s].bubble_s);
  for (int s = 0; s < l->pp; s++) {
    double busy_s = of->step_s - r->stage_time[s].bubble_s;
    stage[s].ranks = l->world / l->pp;
    stage[s].base_s = of->step_s - (busiest_s - busy_s) * (l->pp > 1 ? 1 - 1 / turns : 0);
    for (MsStagePiece at = ms_stage_pieces(m->p->work, s); ms_next_piece(&at);)
      add(&stage[s].more, &piece[at.piece], l->microbatches);
    stage[s].more.clock_s = l->microbatches * clock_of_stage_s(m, s);
    stage[s].more.gpu_s = 0; /* of the passes: as the slots say */
    More last = more_of(m, &m->p->step[s].after, NULL);
    add(&stage[s].more, &last, 1);
  }
  find_slow(m, of, stage);
  return stage;
}

/* --- the distribution of the step -------------------------------------------------------------------------------- */

enum { CLOCKS = 1, JITTER = 2, GPUS = 4, NICS = 8, ALL = 15, GRID = 1024, SIMPSON = 64 };

typedef struct {
  const Stage *stage;
  int n;
  double engine;             /* standard deviations of the clock that the engine's GPUs have */
  double slow_gpu, slow_nic; /* chance of each */
  unsigned causes;
} Steps;

/* What the engine's GPUs take longer than one of mean clock; 0 where clocks differ. */
static double mean_clock_s(const Steps *d, const More *m) { return d->causes & CLOCKS ? 0 : d->engine * m->clock_s; }

/* Chance that one rank of the stage takes no more than x_s beyond its base. */
static double rank_below(const Steps *d, const More *m, double x_s, gboolean gpu, gboolean nic) {
  double left_s = x_s - (gpu ? m->gpu_s : 0) - (nic ? m->nic_s : 0);
  if (!(d->causes & CLOCKS) || !(m->clock_s > 0)) return left_s >= -mean_clock_s(d, m);
  return ms_normal_below(left_s / m->clock_s + d->engine);
}

static double rank_mixed(const Steps *d, const More *m, double x_s) {
  double p = d->causes & GPUS ? d->slow_gpu : 0, q = d->causes & NICS ? d->slow_nic : 0;
  double below = (1 - p) * (1 - q) * rank_below(d, m, x_s, FALSE, FALSE);
  if (p > 0) below += p * (1 - q) * rank_below(d, m, x_s, TRUE, FALSE);
  if (q > 0) below += (1 - p) * q * rank_below(d, m, x_s, FALSE, TRUE);
  if (p > 0 && q > 0) below += p * q * rank_below(d, m, x_s, TRUE, TRUE);
  return below;
}

static double jitter_s(const Steps *d, const Stage *s) { return d->causes & JITTER ? s->more.jitter_s : 0; }

static double step_below(const Steps *d, double y_s) {
  double below = 1;
  for (int i = 0; i < d->n && below > 0; i++)
    below *=
        pow(rank_mixed(d, &d->stage[i].more, y_s - d->stage[i].base_s - jitter_s(d, &d->stage[i])), d->stage[i].ranks);
  return below;
}

/* Between these the step surely is. */
static void reach(const Steps *d, double *from_s, double *to_s) {
  const double sure = 8;
  *from_s = *to_s = 0;
  for (int i = 0; i < d->n; i++) {
    const More *m = &d->stage[i].more;
    double clock_s = d->causes & CLOCKS ? m->clock_s : 0,
           base_s = d->stage[i].base_s + jitter_s(d, &d->stage[i]) - mean_clock_s(d, m);
    *from_s = MAX(*from_s, base_s - (sure + d->engine) * clock_s);
    *to_s = MAX(*to_s, base_s + sure * clock_s + (d->causes & GPUS && d->slow_gpu > 0 ? m->gpu_s : 0) +
                           (d->causes & NICS && d->slow_nic > 0 ? m->nic_s : 0));
  }
}

typedef struct {
  double mean_s, sd_s, p5_s, p95_s;
} Moments;

static Moments moments(const Steps *d) {
  double from_s, to_s, mean_s = 0, square = 0, last = 0;
  reach(d, &from_s, &to_s);
  Moments m = {from_s, 0, from_s, from_s};
  double h = (to_s - from_s) / GRID;
  if (!(h > 0)) return m;
  for (int i = 0; i <= GRID; i++) {
    double x_s = h * i, below = i < GRID ? step_below(d, from_s + x_s) : 1, weight = i == 0 || i == GRID ? 0.5 : 1;
    mean_s += weight * h * (1 - below), square += weight * h * 2 * x_s * (1 - below);
    if (last < 0.05 && below >= 0.05) m.p5_s = from_s + x_s - h * (below - 0.05) / (below - last);
    if (last < 0.95 && below >= 0.95) m.p95_s = from_s + x_s - h * (below - 0.95) / (below - last);
    last = below;
  }
  m.mean_s = from_s + mean_s, m.sd_s = sqrt(MAX(square - mean_s * mean_s, 0));
  return m;
}

/* What the expected step loses to a cause; what the integrals are off is nothing. */
static double cost_s(Steps d, unsigned cause, double mean_s) {
  d.causes = ALL & ~cause;
  double more_s = mean_s - moments(&d).mean_s;
  return fabs(more_s) > 1e-9 * mean_s ? more_s : 0;
}

/* --- the step ---------------------------------------------------------------------------------------------------- */

double ms_scale_wait(double sd_s, double clock_s, double ahead, double n) {
  if (!(sd_s > 0) || n < 2) return 0;
  double others_s = hypot(clock_s, sd_s), mean_s = -ahead * clock_s, sum_s = 0;
  const double edge_s[] = {-7 * sd_s, 7 * sd_s, MAX(7 * sd_s, mean_s + 7 * others_s)}; /* of both; of the others */
  for (int part = 0; part < 2; part++) {
    double h = (edge_s[part + 1] - edge_s[part]) / SIMPSON;
    for (int i = 0; i <= SIMPSON; i++) {
      double x_s = edge_s[part] + h * i, weight = i == 0 || i == SIMPSON ? 1 : i % 2 ? 4 : 2;
      double below = ms_normal_below(x_s / sd_s) * pow(ms_normal_below((x_s - mean_s) / others_s), n - 1);
      sum_s += weight * h / 3 * (1 - below);
    }
  }
  return MAX(edge_s[0] + sum_s, 0);
}

MsGpuSpread ms_scale_spread(const MsScenario *s) {
  if (!s->cluster.jitter) return (MsGpuSpread){0};
  return (MsGpuSpread){ms_clock_spread(s) / ms_clock_of(s, ms_normal_maximum(ms_gpus_that_meet(s))), attention_share(s),
                       ms_kernel_jitter(s), s->laws.host_jitter, ms_time_of(s->hardware->kernel_launch_s)};
}

static Meeting meeting_of(const MsProgram *p) {
  Meeting m = {.p = p, .spread = ms_scale_spread(p->scenario)};
  if (!p->scenario->cluster.jitter) return m;
  m.ahead = ms_normal_maximum((double)p->layout->world / p->layout->pp);
  find_groups(&m);
  return m;
}

static void fill(MsScale *to, const Steps *d, const Moments *all) {
  to->sd_s = all->sd_s, to->p5_s = all->p5_s, to->p95_s = all->p95_s;
  to->clocks_s = cost_s(*d, CLOCKS, all->mean_s), to->jitter_s = cost_s(*d, JITTER, all->mean_s);
  to->slow_gpus_s = cost_s(*d, GPUS, all->mean_s), to->slow_nics_s = cost_s(*d, NICS, all->mean_s);
}

double ms_scale_step(const MsProgram *p, const MsScaleOf *of, MsResult *r) {
  double step_s = of->step_s;
  const MsScenario *s = p->scenario;
  const MsClusterSpec *c = &s->cluster;
  Meeting m = meeting_of(p);
  g_autofree Stage *stage = stages_of(&m, of, r);
  Steps d = {.stage = stage,
             .n = p->layout->pp,
             .engine = m.spread.clock > 0 ? ms_normal_maximum(ms_gpus_that_meet(s)) : 0,
             .slow_gpu = c->slow_gpu_rate,
             .slow_nic = c->slow_nic_rate,
             .causes = ALL};
  Moments all = moments(&d);
  double expected_s = MAX(all.mean_s, step_s);
  r->scale.alike_s = step_s;
  fill(&r->scale, &d, &all);
  for (int i = 0; i < r->stages; i++) r->stage_time[i].other_s += expected_s - step_s;
  return expected_s;
}
