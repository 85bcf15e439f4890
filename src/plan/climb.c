/* src/plan/climb.c - a cut improved layer by layer: moved from one virtual stage to another as long as the pipeline
 * ends sooner.
 *
 * What a cut takes: the schedule slot by slot over some rounds of the pipeline, at its stages' costs; what the dearest
 * rank adds with every further round; what ranks do once a step. Most moves are seen to gain nothing by a bound of a
 * few sums, or by what the last slots of earlier runs waited for: passes that follow one another do so at all costs. */
#include "plan/climb_priv.h"
#include <math.h>
#include <string.h>

/* A climb may run the schedule so many times, half as many slots in any case and never more, a tenth of a millisecond:
 * of a long pipeline not every move is tried. */
enum { RUNS = 40, MOST_SLOTS = 20000 };

/* Rows of times: of a pass on the device, and those in front of what the two wait for one another. */
enum { FORWARD = MS_PASS_TAKES, BACKWARD, N_WORK = MS_PASS_IS_LATE };

/* A third of a stage's cost is its forward. */
#define FORWARD_SHARE (1.0 / 3)

/* Bytes of a parameter on the wire, of those of its gradient. */
#define GATHERED 0.5

/* What a move has to gain, as a share. */
#define GAIN 1e-4

/* Later than all that is timed, in layers: a host that does not wait is early by that. */
#define NEVER 1e15

static void sums_over_layers(const MsLayerCosts *c, double *before) {
  before[0] = 0;
  for (int i = 0; i < c->layers; i++) before[i + 1] = before[i] + c->layer[i];
}

static double *row_of(double **free, size_t n) {
  double *own = *free;
  *free += n;
  return own;
}

static void lay_out(MsCutTrial *t, size_t layers) {
  size_t n = (size_t)t->on.n, own = layers + 1, pools = (size_t)t->costs->n_others + 1,
         path = t->turns ? MS_N_PASS_TIMES * n : 0, scratch = t->turns ? ms_schedule_turns_scratch(t->turns) : 0;
  double *free = t->all = g_new(double, (6 + MS_N_PASS_TIMES) * n + (size_t)t->on.ranks + (pools + 2 + N_WORK) * own +
                                            MS_CUT_PATHS * path + scratch);
  t->cost = row_of(&free, n), t->issue = row_of(&free, n), t->sent = row_of(&free, n), t->updated = row_of(&free, n);
  for (int back = 0; back < 2; back++) t->turn[back] = row_of(&free, n);
  for (int what = 0; what < MS_N_PASS_TIMES; what++) t->time[what] = row_of(&free, n);
  for (int what = 0; what < N_WORK; what++) t->pass_before[what] = row_of(&free, own);
  t->load = row_of(&free, (size_t)t->on.ranks), t->before = row_of(&free, pools * own);
  t->sent_before = row_of(&free, own), t->updated_before = row_of(&free, own);
  for (int i = 0; i < MS_CUT_PATHS; i++) t->path[i].runs = row_of(&free, path);
  t->scratch = row_of(&free, scratch);
  t->first = g_new(int, (1 + MS_N_PASS_TIMES) * n), t->passes = t->first + n;
}

/* Of the pace, what stands in the first rows of times. */
static const MsLayerCosts *pass_costs(const MsPace *pace, int what) {
  return what < MS_PASS_ISSUES ? pace->device[what] : pace->host[what - MS_PASS_ISSUES];
}

MsCutTrial *ms_cut_trial_new(const MsLayerCosts *costs, const MsOnce *once, const MsPace *pace,
                             const MsVirtualStages *on, int rounds, const MsScheduleTurns *turns) {
  MsCutTrial *t = g_new0(MsCutTrial, 1);
  t->costs = pace ? pace->bare : costs;
  t->once = once, t->pace = pace, t->on = *on, t->rounds = rounds, t->turns = turns;
  t->n_times = pace ? MS_N_PASS_TIMES : MS_PASS_ISSUES;
  lay_out(t, (size_t)costs->layers);
  sums_over_layers(t->costs, t->before);
  for (int what = 0; pace && what < N_WORK; what++) sums_over_layers(pass_costs(pace, what), t->pass_before[what]);
  for (int i = 0; i < t->costs->n_others; i++)
    sums_over_layers(costs->other[i], t->before + (i + 1) * (costs->layers + 1));
  if (once) sums_over_layers(once->sent, t->sent_before), sums_over_layers(once->updated, t->updated_before);
  return t;
}

void ms_cut_trial_free(MsCutTrial *t) {
  if (!t) return;
  g_free(t->all);
  g_free(t->first);
  g_free(t);
}

static gboolean has_layers(const MsCutTrial *t, int k, int layers) {
  return layers > 0 || (k == ms_stages_last(&t->on) && t->pace->bare->mtp > 0);
}

/* What hosts and devices wait for one another within a pass of stage k with so many layers. The head is the last piece
 * of a forward and the first of a backward: the host has long issued it when the device comes to it, and waits for
 * nothing in it. */
static void lateness_of(const MsCutTrial *t, int k, int layers, double time[MS_N_PASS_TIMES]) {
  const MsPace *p = t->pace;
  gboolean filled = has_layers(t, k, layers), head = k == t->on.n - 1;
  for (int back = 0; back < 2; back++) {
    time[MS_PASS_IS_LATE + back] = filled ? p->late[back] : 0;
    time[MS_PASS_IS_EARLY + back] = filled && p->early[back] < NEVER ? p->early[back] : NEVER;
  }
  if (head) time[MS_PASS_IS_LATE] += MAX(0, p->device[0]->last - p->host[0]->last);
  if (head) time[MS_PASS_IS_EARLY + 1] -= p->device[1]->last;
}

/* Both passes in turn, where the device lets the host begin with pass `back` and ends that or the other behind it. */
static double turn_of(const double time[MS_N_PASS_TIMES], int back) {
  const double *take = time + MS_PASS_TAKES, *issue = time + MS_PASS_ISSUES, *late = time + MS_PASS_IS_LATE;
  int other = 1 - back;
  return issue[back] - time[MS_PASS_IS_EARLY + back] + MAX(late[back] + take[other], issue[other] + late[other]);
}

static void weigh_passes(MsCutTrial *t, int k, int layer, int layers) {
  double time[MS_N_PASS_TIMES];
  for (int what = 0; what < N_WORK; what++)
    time[what] = t->pass_before[what][layer + layers] - t->pass_before[what][layer] +
                 ms_layer_costs_ends(pass_costs(t->pace, what), &t->on, k);
  lateness_of(t, k, layers, time);
  for (int what = 0; what < MS_N_PASS_TIMES; what++) t->time[what][k] = time[what];
  for (int back = 0; back < 2; back++) t->turn[back][k] = turn_of(time, back);
  t->issue[k] = time[MS_PASS_ISSUES] + time[MS_PASS_ISSUES + 1];
}

static void split_pass(MsCutTrial *t, int k) {
  t->time[FORWARD][k] = FORWARD_SHARE * t->cost[k], t->time[BACKWARD][k] = t->cost[k] - t->time[FORWARD][k];
}

/* What stages lo .. hi cost, whose layers begin at t->first[lo]. */
static void weigh(MsCutTrial *t, const int *counts, int lo, int hi) {
  for (int k = lo, layer = t->first[lo]; k <= hi; k++) {
    const MsLayerCosts *c = ms_layer_costs_at(t->costs, &t->on, k);
    int pool = c == t->costs ? 0 : t->on.pool[t->on.rank[k]];
    const double *before = t->before + pool * (c->layers + 1);
    int to = layer + counts[k];
    t->first[k] = layer;
    t->cost[k] = before[to] - before[layer] + ms_layer_costs_ends(c, &t->on, k);
    if (t->once) {
      t->sent[k] = t->sent_before[to] - t->sent_before[layer] + ms_layer_costs_ends(t->once->sent, &t->on, k);
      t->updated[k] =
          t->updated_before[to] - t->updated_before[layer] + ms_layer_costs_ends(t->once->updated, &t->on, k);
    }
    if (t->pace) weigh_passes(t, k, layer, counts[k]);
    else split_pass(t, k);
    layer = to;
  }
}

/* Loads of the ranks, by what a stage costs; returns the largest. */
static double loads_of(MsCutTrial *t, const double *cost) {
  double most = 0;
  memset(t->load, 0, sizeof *t->load * (size_t)t->on.ranks);
  for (int k = 0; k < t->on.n; k++) t->load[t->on.rank[k]] += cost[k];
  for (int r = 0; r < t->on.ranks; r++) most = MAX(most, t->load[r]);
  return most;
}

/* Of the device, of the host, or of the two in turn: the loads are those of the device. */
static double most_of(MsCutTrial *t) {
  double most = 0;
  if (t->pace) most = MAX(loads_of(t, t->issue), MAX(loads_of(t, t->turn[0]), loads_of(t, t->turn[1])));
  return MAX(most, loads_of(t, t->cost));
}

static double dearest_update(const MsCutTrial *t) {
  double most = 0;
  for (int r = 0; r < t->on.ranks && t->once; r++) {
    double sum = 0;
    for (int k = r; k < t->on.n; k += t->on.ranks) sum += t->updated[k];
    most = MAX(most, sum);
  }
  return most;
}

static double least(MsCutTrial *t) {
  double ahead = 0, most = t->pace ? loads_of(t, t->issue) * t->rounds * t->on.ranks : 0;
  loads_of(t, t->cost);
  for (int r = 0; r < t->on.ranks; ahead += t->cost[r++])
    most = MAX(most, ahead + t->load[r] * t->rounds * t->on.ranks);
  return most + dearest_update(t);
}

/* By how much the first forwards are late that wait for their parameters: a rank gathers those of its first chunk
 * first. Of the very first stage a layer at a time. */
static double late_for_parameters(const MsCutTrial *t) {
  double late = 0, arrives = 0;
  for (int r = 0; r < t->on.ranks; arrives += t->time[FORWARD][r++]) {
    double gathered = 0, at = arrives;
    for (int k = r; k < t->on.n; k += t->on.ranks) {
      gathered += GATHERED * t->sent[k];
      late = MAX(late, (k == 0 ? gathered / (1 + t->first[1]) : gathered) - at);
      at += t->on.ranks * t->time[FORWARD][k];
    }
  }
  return late;
}

/* The moment when a rank that had run its last slot at `ends` has sent its gradients. It ends its last chunk first, and
 * each of the others a round of its backwards later. */
static double sent_by(const MsCutTrial *t, int rank, double ends) {
  double last = 0, behind = 0; /* what is sent from then on */
  for (int k = rank; k < t->on.n; k += t->on.ranks) {
    behind += t->sent[k];
    last = MAX(last, ends + behind);
    ends -= t->on.ranks * t->time[BACKWARD][k];
  }
  return last;
}

int ms_cut_rounds_run(int stages, int ranks, int rounds, gboolean paced) {
  enum { AT_LEAST = 2, SLOTS = 1024 };
  return MIN(rounds, paced ? MAX(AT_LEAST, SLOTS / (2 * ranks * stages)) : AT_LEAST);
}

/* Microbatches of the rounds that are not run. */
static int microbatches_left(const MsCutTrial *t) {
  return (t->rounds - ms_cut_rounds_run(t->on.n, t->on.ranks, t->rounds, t->pace != NULL)) * t->on.ranks;
}

static double more_rounds(MsCutTrial *t) {
  int left = microbatches_left(t);
  return left > 0 ? left * most_of(t) : 0;
}

/* When a rank has done what the end of the step waits for that had run its last slot at `ends`. */
static double done_by(const MsCutTrial *t, int rank, double ends) { return t->once ? sent_by(t, rank, ends) : ends; }

/* What the last slot of a rank waited for, in the place of the oldest of these. */
static void keep_path(MsCutTrial *t, int rank) {
  if (!ms_schedule_turns_path(t->turns, rank, t->pace != NULL, t->waits, t->scratch, t->passes)) return;
  t->kept++;
  MsCutPath *path = &t->path[t->n_paths < MS_CUT_PATHS ? t->n_paths++ : t->oldest];
  if (t->n_paths == MS_CUT_PATHS) t->oldest = (t->oldest + 1) % MS_CUT_PATHS;
  path->rank = rank;
  for (int i = 0; i < t->n_times * t->on.n; i++)
    path->runs[i] = i < MS_PASS_IS_EARLY * t->on.n ? t->passes[i] : -t->passes[i];
}

static MsPassTimes passes_of(const MsCutTrial *t, int what) { return (MsPassTimes){t->time[what], t->time[what + 1]}; }

static double end_of_step(MsCutTrial *t) {
  double more = more_rounds(t), last = 0;
  const MsPassTimes passes = passes_of(t, MS_PASS_TAKES);
  const MsPassHost host = {passes_of(t, MS_PASS_ISSUES), passes_of(t, MS_PASS_IS_LATE), passes_of(t, MS_PASS_IS_EARLY),
                           t->waits};
  int by = 0;
  t->slots += ms_schedule_turns_count(t->turns);
  ms_schedule_turns_end(t->turns, &passes, t->pace ? &host : NULL, t->scratch);
  const double *clock = ms_schedule_turns_clock(t->turns, t->scratch);
  for (int r = 0; r < t->on.ranks; r++) {
    double done = done_by(t, r, clock[r] + more);
    if (done > last) last = done, by = r;
  }
  keep_path(t, by);
  return t->once ? last + dearest_update(t) + late_for_parameters(t) : last;
}

static double along(const MsCutTrial *t, const MsCutPath *path) {
  double sum = 0;
  for (int what = 0; what < t->n_times; what++)
    for (int k = 0; k < t->on.n; k++) sum += path->runs[what * t->on.n + k] * t->time[what][k];
  return sum;
}

/* The step does not end before `most`, as ranks wait for what they waited for in earlier runs; these are tried from the
 * one that said so last. */
static gboolean ends_behind(MsCutTrial *t, double most) {
  double more = more_rounds(t), behind = t->once ? dearest_update(t) + late_for_parameters(t) : 0;
  for (int i = 0; i < t->n_paths; i++) {
    int k = (t->telling + i) % t->n_paths;
    const MsCutPath *path = &t->path[k];
    if (done_by(t, path->rank, along(t, path) + more) + behind < most * (1 + 1e-9)) continue; /* rounding */
    t->telling = k;
    return TRUE;
  }
  return FALSE;
}

/* When the step ends; `most` where it does not end before that. */
static double end_below(MsCutTrial *t, double most) {
  if (!ends_behind(t, most)) return end_of_step(t);
  t->slots += ms_schedule_turns_count(t->turns);
  return most;
}

static void weigh_all(MsCutTrial *t, const int *counts) {
  t->first[0] = 0;
  weigh(t, counts, 0, t->on.n - 1);
}

double ms_cut_least(MsCutTrial *t, const int *counts) {
  weigh_all(t, counts);
  return least(t);
}

double ms_cut_end(MsCutTrial *t, const int *counts) {
  weigh_all(t, counts);
  return end_of_step(t);
}

/* Only the ends may be without layers, and the stage before the loss where the MTP blocks stand there. */
static gboolean may_give(const MsVirtualStages *on, const int *counts, int from) {
  int last = ms_stages_last(on);
  return counts[from] > (from == 0 || from == last ? 0 : 1);
}

/* Nobody stands behind the MTP blocks but the loss. */
static gboolean may_take(const MsVirtualStages *on, int to) { return to <= ms_stages_last(on); }

/* The next stage behind `to` that is near: neighbours, and stages of the same rank or a neighbour's in the chunk before
 * or behind; the ends with all. */
static int next_near(const MsVirtualStages *on, int from, int to) {
  int last = ms_stages_last(on), chunk = on->ranks, next = on->n;
  if (on->n <= 12 || from == 0 || from == last) return to + 1;
  const int near[][2] = {{0, 0},
                         {from - chunk - 1, from - chunk + 1},
                         {from - 2, from + 2},
                         {from + chunk - 1, from + chunk + 1},
                         {last, last}};
  for (guint i = 0; i < G_N_ELEMENTS(near); i++)
    if (near[i][1] > to) next = MIN(next, MAX(near[i][0], to + 1));
  return next;
}

static void move(MsCutTrial *t, int *counts, int from, int to) {
  counts[from]--, counts[to]++;
  weigh(t, counts, MIN(from, to), MAX(from, to));
}

/* --- what a move changes, without making it --------------------------------------------------------------------- */

typedef struct {
  double forward, backward, sent;
} Stage;
typedef struct { /* what a stage costs more, and what it then takes */
  int stage;
  double cost, issue, turn[2], updated, time[MS_N_PASS_TIMES];
  Stage stage_with;
} Change;

typedef struct {
  MsCutTrial *t;
  int alike;         /* layers from here on cost the same, whatever is counted: a stage of them may begin anywhere */
  double *of_cut;    /* [SUMS][ranks] */
  double *with_move; /* the same */
  Change *change;    /* [n_changes] */
  int n_changes;
  double along[MS_CUT_PATHS]; /* what the cut takes along the paths... */
  int kept;                   /* ...as they were when so many had been kept */
} Standing;
enum {
  LOAD,
  ISSUED,
  TURN,
  UPDATES = TURN + 2,
  FIRST,
  SUMS
}; /* of a rank: its cost, issue, turns of both kinds and updated, and the cost of its first chunk */

static int alike_from(const MsLayerCosts *c, int at) {
  while (at > 0 && c->layer[at - 1] == c->layer[c->layers - 1]) at--;
  return at;
}

static Standing *standing_new(MsCutTrial *t) {
  size_t n = (size_t)t->on.n, sums = SUMS * (size_t)t->on.ranks;
  Standing *s = g_malloc(sizeof *s + 2 * sums * sizeof(double) + n * sizeof(Change));
  int last = t->costs->layers - 1;
  *s = (Standing){.t = t, .alike = alike_from(t->costs, last), .of_cut = (double *)(s + 1)};
  s->with_move = s->of_cut + sums, s->change = (Change *)(s->with_move + sums);
  for (int what = 0; t->pace && what < N_WORK; what++)
    s->alike = MAX(s->alike, alike_from(pass_costs(t->pace, what), last));
  if (t->once) s->alike = MAX(s->alike, MAX(alike_from(t->once->updated, last), alike_from(t->once->sent, last)));
  return s;
}

/* At the cut that is weighed. */
static void stand(Standing *s) {
  MsCutTrial *t = s->t;
  int ranks = t->on.ranks;
  s->kept = 0;
  memset(s->of_cut, 0, sizeof *s->of_cut * SUMS * (size_t)ranks);
  for (int k = 0; k < t->on.n; k++) {
    int own = t->on.rank[k];
    s->of_cut[LOAD * ranks + own] += t->cost[k];
    if (t->pace) s->of_cut[ISSUED * ranks + own] += t->issue[k];
    for (int back = 0; t->pace && back < 2; back++) s->of_cut[(TURN + back) * ranks + own] += t->turn[back][k];
    if (t->once) s->of_cut[UPDATES * ranks + k % ranks] += t->updated[k];
    if (k < ranks) s->of_cut[FIRST * ranks + k] = t->cost[k];
  }
}

static double more(const double *before, int was, int is, int had, int has) {
  return before[is + has] - before[is] - (before[was + had] - before[was]);
}

static void change_passes(const MsCutTrial *t, Change *c, int was, int is, int had, int has) {
  for (int what = 0; what < N_WORK; what++) c->time[what] = more(t->pass_before[what], was, is, had, has);
  c->cost = c->time[FORWARD] + c->time[BACKWARD], c->issue = c->time[MS_PASS_ISSUES] + c->time[MS_PASS_ISSUES + 1];
  if (has_layers(t, c->stage, had) != has_layers(t, c->stage, has)) {
    double with[MS_N_PASS_TIMES];
    lateness_of(t, c->stage, has, with);
    for (int what = MS_PASS_IS_LATE; what < MS_N_PASS_TIMES; what++)
      c->time[what] = with[what] - t->time[what][c->stage];
  }
  double with[MS_N_PASS_TIMES];
  for (int what = 0; what < MS_N_PASS_TIMES; what++) with[what] = t->time[what][c->stage] + c->time[what];
  for (int back = 0; back < 2; back++) c->turn[back] = turn_of(with, back) - t->turn[back][c->stage];
}

/* Of a stage of `had` layers from `was` on that has `has` from `is` on. */
static Change change_of(const MsCutTrial *t, int stage, int was, int is, int had, int has) {
  Change c = {.stage = stage};
  if (t->pace) change_passes(t, &c, was, is, had, has);
  else {
    c.cost = more(t->before, was, is, had, has);
    c.time[FORWARD] = FORWARD_SHARE * c.cost, c.time[BACKWARD] = c.cost - c.time[FORWARD];
  }
  if (!t->once) return c;
  c.updated = more(t->updated_before, was, is, had, has);
  c.stage_with = (Stage){t->time[FORWARD][stage] + c.time[FORWARD], t->time[BACKWARD][stage] + c.time[BACKWARD],
                         t->sent[stage] + more(t->sent_before, was, is, had, has)};
  return c;
}

static void find_changes(Standing *s, const int *counts, int from, int to) {
  const MsCutTrial *t = s->t;
  int lo = MIN(from, to), hi = MAX(from, to), n = 0;
  for (int k = lo; k <= hi; k++) {
    int was = t->first[k], is = k == lo ? was : was + (from < to ? -1 : 1);
    int had = counts[k], has = had - (k == from) + (k == to);
    if (k > lo && k < hi && MIN(was, is) >= s->alike) k = hi - 1;
    else s->change[n++] = change_of(t, k, was, is, had, has);
  }
  s->n_changes = n;
  int ranks = t->on.ranks;
  memcpy(s->with_move, s->of_cut, sizeof *s->of_cut * SUMS * (size_t)ranks);
  for (int i = 0; i < n; i++) {
    const Change *c = &s->change[i];
    s->with_move[LOAD * ranks + t->on.rank[c->stage]] += c->cost;
    s->with_move[ISSUED * ranks + t->on.rank[c->stage]] += c->issue;
    for (int back = 0; back < 2; back++) s->with_move[(TURN + back) * ranks + t->on.rank[c->stage]] += c->turn[back];
    s->with_move[UPDATES * ranks + c->stage % ranks] += c->updated;
    if (c->stage < ranks) s->with_move[FIRST * ranks + c->stage] += c->cost;
  }
}

static double most_of_ranks(const Standing *s, int sum) {
  double most = 0;
  int ranks = s->t->on.ranks;
  for (int r = 0; r < ranks; r++) most = MAX(most, s->with_move[sum * ranks + r]);
  return most;
}

/* What `least` says of the cut with the move. */
static double least_with(const Standing *s) {
  const MsCutTrial *t = s->t;
  int ranks = t->on.ranks;
  double ahead = 0, most = t->pace ? most_of_ranks(s, ISSUED) * t->rounds * ranks : 0;
  for (int r = 0; r < ranks; ahead += s->with_move[FIRST * ranks + r++])
    most = MAX(most, ahead + s->with_move[LOAD * ranks + r] * t->rounds * ranks);
  return most + (t->once ? most_of_ranks(s, UPDATES) : 0);
}

/* The stages that the move changes cost and send as with it, or again as without. Of the host only what the paths say
 * counts. */
static void swap_stages(Standing *s) {
  MsCutTrial *t = s->t;
  for (int i = 0; i < s->n_changes; i++) {
    Change *c = &s->change[i];
    const Stage was = {t->time[FORWARD][c->stage], t->time[BACKWARD][c->stage], t->sent[c->stage]};
    t->time[FORWARD][c->stage] = c->stage_with.forward, t->time[BACKWARD][c->stage] = c->stage_with.backward;
    t->sent[c->stage] = c->stage_with.sent;
    c->stage_with = was;
  }
}

/* Along a path of the trial. */
static double along_with(const Standing *s, int path) {
  const MsCutTrial *t = s->t;
  const MsCutPath *p = &t->path[path];
  double end = s->along[path];
  for (int i = 0; i < s->n_changes; i++)
    for (int what = 0; what < t->n_times; what++)
      end += p->runs[what * t->on.n + s->change[i].stage] * s->change[i].time[what];
  return end;
}

/* What all paths have behind them, without what is sent there and what parameters are late. */
static double behind_paths(const Standing *s) {
  const MsCutTrial *t = s->t;
  int left = microbatches_left(t);
  if (left == 0) return 0;
  double most = most_of_ranks(s, LOAD);
  for (int sum = ISSUED; t->pace && sum < UPDATES; sum++) most = MAX(most, most_of_ranks(s, sum));
  return left * most;
}

/* Some path ends behind `most`, counting what is `behind` it and, with `all`, what its rank still has to send. */
static gboolean path_ends_behind(Standing *s, double later, double behind, gboolean all, double most) {
  MsCutTrial *t = s->t;
  for (int i = 0; i < t->n_paths; i++) {
    int k = (t->telling + i) % t->n_paths;
    double end = along_with(s, k) + later;
    if ((all ? done_by(t, t->path[k].rank, end) : end) + behind < most * (1 + 1e-9)) continue; /* rounding */
    t->telling = k;
    return TRUE;
  }
  return FALSE;
}

/* What `ends_behind` says of the cut with the move: first by a part of it that takes a few sums. */
static gboolean stays_behind(Standing *s, int first_layers, double most) {
  MsCutTrial *t = s->t;
  double later = behind_paths(s), updates = t->once ? most_of_ranks(s, UPDATES) : 0;
  for (int i = 0; i < t->n_paths && s->kept != t->kept; i++) s->along[i] = along(t, &t->path[i]);
  s->kept = t->kept;
  if (path_ends_behind(s, later, updates, FALSE, most)) return TRUE;
  if (!t->once) return FALSE;
  int first = t->first[1];
  swap_stages(s), t->first[1] = first_layers;
  gboolean behind = path_ends_behind(s, later, updates + late_for_parameters(t), TRUE, most);
  swap_stages(s), t->first[1] = first;
  return behind;
}

/* The move does not end the step before `most`, as is seen from what it changes. */
static gboolean gains_nothing(Standing *s, const int *counts, int from, int to, double most) {
  if (s->t->on.pool) return FALSE; /* a stage costs another time elsewhere */
  find_changes(s, counts, from, to);
  if (least_with(s) >= most) return TRUE;
  if (!stays_behind(s, counts[0] - (from == 0) + (to == 0), most)) return FALSE;
  s->t->slots += ms_schedule_turns_count(s->t->turns);
  return TRUE;
}

/* Of the cut with the move, which has been made: what gains_nothing has not asked. */
static double end_with_move(MsCutTrial *t, double most) {
  if (!t->on.pool) return end_of_step(t);
  return least(t) >= most ? most : end_below(t, most);
}

double ms_cut_climb(MsCutTrial *t, int *counts, double end) {
  const MsVirtualStages *on = &t->on;
  gint64 until = t->slots + CLAMP(RUNS * ms_schedule_turns_count(t->turns), MOST_SLOTS / 2, MOST_SLOTS);
  g_autofree Standing *s = standing_new(t);
  weigh_all(t, counts);
  stand(s);
  for (gboolean moved = TRUE; moved;) {
    moved = FALSE;
    for (int from = 0; from < on->n; from++)
      for (int to = next_near(on, from, -1); to < on->n && t->slots < until && may_give(on, counts, from);
           to = next_near(on, from, to)) {
        if (from == to || !may_take(on, to)) continue;
        double most = end * (1 - GAIN);
        if (gains_nothing(s, counts, from, to, most)) continue;
        move(t, counts, from, to);
        double now = end_with_move(t, most);
        if (now < most) end = now, moved = TRUE, stand(s);
        else move(t, counts, to, from);
      }
  }
  return end;
}
