/* src/plan/climb.c - a cut improved layer by layer: moved from one virtual stage to another as long as the pipeline
 * ends sooner.
 *
 * What a cut takes: the schedule slot by slot over some rounds of the pipeline, at its stages' costs; what the dearest
 * rank adds with every further round; what ranks do once a step. Most moves are seen to gain nothing by a bound of a
 * few sums, or by what the last slots of earlier runs waited for: passes that follow one another do so at all costs. */
#include "plan/climb_priv.h"
#include <math.h>
#include <string.h>

/* Slots that all runs of one climb take together, a fifth of a millisecond: of a long pipeline not every move is tried.
 */
enum { MOST_SLOTS = 40000 };

/* A third of a stage's cost is its forward. */
#define FORWARD_SHARE (1.0 / 3)

/* Bytes of a parameter on the wire, of those of its gradient. */
#define GATHERED 0.5

/* What a move has to gain, as a share. */
#define GAIN 1e-4

static void sums_over_layers(const MsLayerCosts *c, double *before) {
  before[0] = 0;
  for (int i = 0; i < c->layers; i++) before[i + 1] = before[i] + c->layer[i];
}

MsCutTrial *ms_cut_trial_new(const MsLayerCosts *costs, const MsOnce *once, const MsPace *pace,
                             const MsVirtualStages *on, int rounds, const MsScheduleTurns *turns) {
  MsCutTrial *t = g_new0(MsCutTrial, 1);
  size_t n = (size_t)on->n, ranks = (size_t)on->ranks, own = (size_t)costs->layers + 1,
         rows = own * (size_t)(costs->n_others + 1), paths = turns ? 2 * MS_CUT_PATHS * n : 0;
  t->costs = pace ? pace->bare : costs;
  t->once = once, t->pace = pace, t->on = *on, t->rounds = rounds, t->turns = turns;
  t->cost = g_new(double, 8 * n + ranks + rows + 3 * own + paths + (turns ? ms_schedule_turns_scratch(turns) : 0));
  t->forward = t->cost + n, t->backward = t->forward + n, t->load = t->backward + n;
  t->before = t->load + ranks, t->sent_before = t->before + rows, t->updated_before = t->sent_before + own;
  t->sent = t->updated_before + own, t->updated = t->sent + n, t->issue = t->updated + n;
  t->issue_before = t->issue + 3 * n, t->scratch = t->issue_before + own + paths;
  for (int i = 0; turns && i < MS_CUT_PATHS; i++)
    t->path[i].cost = t->issue_before + own + 2 * (size_t)i * n, t->path[i].issue = t->path[i].cost + n;
  t->first = g_new(int, 5 * n), t->passes = t->first + n;
  sums_over_layers(t->costs, t->before);
  if (pace) sums_over_layers(pace->host, t->issue_before);
  for (int i = 0; i < t->costs->n_others; i++)
    sums_over_layers(costs->other[i], t->before + (i + 1) * (costs->layers + 1));
  if (once) sums_over_layers(once->sent, t->sent_before), sums_over_layers(once->updated, t->updated_before);
  return t;
}

void ms_cut_trial_free(MsCutTrial *t) {
  if (!t) return;
  g_free(t->cost);
  g_free(t->first);
  g_free(t);
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
    if (t->pace)
      t->issue[k] = t->issue_before[to] - t->issue_before[layer] + ms_layer_costs_ends(t->pace->host, &t->on, k);
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

/* Of the device or of the host: the loads are those of the device. */
static double most_of(MsCutTrial *t) {
  double of_host = t->pace ? loads_of(t, t->issue) : 0;
  return MAX(of_host, loads_of(t, t->cost));
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
  for (int r = 0; r < t->on.ranks; arrives += t->forward[r++]) {
    double gathered = 0, at = arrives;
    for (int k = r; k < t->on.n; k += t->on.ranks) {
      gathered += GATHERED * t->sent[k];
      late = MAX(late, (k == 0 ? gathered / (1 + t->first[1]) : gathered) - at);
      at += t->on.ranks * t->forward[k];
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
    ends -= t->on.ranks * t->backward[k];
  }
  return last;
}

static void split_passes(const double *cost, int n, double *forward, double *backward) {
  for (int k = 0; k < n; k++) forward[k] = FORWARD_SHARE * cost[k], backward[k] = cost[k] - forward[k];
}

static void split_all(MsCutTrial *t) {
  split_passes(t->cost, t->on.n, t->forward, t->backward);
  if (t->pace) split_passes(t->issue, t->on.n, t->issue + t->on.n, t->issue + 2 * t->on.n);
}

static double more_rounds(MsCutTrial *t) { return MAX(0, t->rounds - MS_CUT_ROUNDS) * t->on.ranks * most_of(t); }

/* When a rank has done what the end of the step waits for that had run its last slot at `ends`. */
static double done_by(const MsCutTrial *t, int rank, double ends) { return t->once ? sent_by(t, rank, ends) : ends; }

/* What the last slot of a rank waited for, in the place of the oldest of these, as shares of what stages cost. */
static void keep_path(MsCutTrial *t, int rank) {
  int n = t->on.n;
  if (!ms_schedule_turns_path(t->turns, rank, t->pace != NULL, t->waits, t->scratch, t->passes)) return;
  t->kept++;
  MsCutPath *path = &t->path[t->n_paths < MS_CUT_PATHS ? t->n_paths++ : t->oldest];
  if (t->n_paths == MS_CUT_PATHS) t->oldest = (t->oldest + 1) % MS_CUT_PATHS;
  path->rank = rank;
  for (int k = 0; k < n; k++) {
    path->cost[k] = FORWARD_SHARE * t->passes[k] + (1 - FORWARD_SHARE) * t->passes[n + k];
    path->issue[k] = FORWARD_SHARE * t->passes[2 * n + k] + (1 - FORWARD_SHARE) * t->passes[3 * n + k];
  }
}

static double end_of_step(MsCutTrial *t) {
  double more = more_rounds(t), last = 0;
  const MsPassTimes passes = {t->forward, t->backward};
  const MsPassHost host = {{t->issue + t->on.n, t->issue + 2 * t->on.n}, t->waits};
  int by = 0;
  split_all(t);
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
  double sum = 0, issued = 0;
  for (int k = 0; k < t->on.n; k++) sum += path->cost[k] * t->cost[k];
  for (int k = 0; t->pace && k < t->on.n; k++) issued += path->issue[k] * t->issue[k];
  return sum + issued;
}

/* The step does not end before `most`, as ranks wait for what they waited for in earlier runs; these are tried from the
 * one that said so last. */
static gboolean ends_behind(MsCutTrial *t, double most) {
  split_all(t);
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
  double cost, issue, updated;
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
  UPDATES,
  FIRST,
  SUMS
}; /* of a rank: its cost, issue and updated, and the cost of its first chunk */

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
  if (t->pace) s->alike = MAX(s->alike, alike_from(t->pace->host, last));
  if (t->once) s->alike = MAX(s->alike, MAX(alike_from(t->once->updated, last), alike_from(t->once->sent, last)));
  return s;
}

/* At the cut that is weighed. */
static void stand(Standing *s) {
  MsCutTrial *t = s->t;
  int ranks = t->on.ranks;
  split_all(t);
  s->kept = 0;
  memset(s->of_cut, 0, sizeof *s->of_cut * SUMS * (size_t)ranks);
  for (int k = 0; k < t->on.n; k++) {
    s->of_cut[LOAD * ranks + t->on.rank[k]] += t->cost[k];
    if (t->pace) s->of_cut[ISSUED * ranks + t->on.rank[k]] += t->issue[k];
    if (t->once) s->of_cut[UPDATES * ranks + k % ranks] += t->updated[k];
    if (k < ranks) s->of_cut[FIRST * ranks + k] = t->cost[k];
  }
}

static double more(const double *before, int was, int is, int had, int has) {
  return before[is + has] - before[is] - (before[was + had] - before[was]);
}

/* Of a stage of `had` layers from `was` on that has `has` from `is` on. */
static Change change_of(const MsCutTrial *t, int stage, int was, int is, int had, int has) {
  Change c = {.stage = stage, .cost = more(t->before, was, is, had, has)};
  if (t->pace) c.issue = more(t->issue_before, was, is, had, has);
  if (!t->once) return c;
  double cost = t->cost[stage] + c.cost;
  c.updated = more(t->updated_before, was, is, had, has);
  c.stage_with.forward = FORWARD_SHARE * cost, c.stage_with.backward = cost - c.stage_with.forward;
  c.stage_with.sent = t->sent[stage] + more(t->sent_before, was, is, had, has);
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
    const Stage was = {t->forward[c->stage], t->backward[c->stage], t->sent[c->stage]};
    t->forward[c->stage] = c->stage_with.forward, t->backward[c->stage] = c->stage_with.backward;
    t->sent[c->stage] = c->stage_with.sent;
    c->stage_with = was;
  }
}

/* Along a path of the trial. */
static double along_with(const Standing *s, int path) {
  const MsCutPath *p = &s->t->path[path];
  double end = s->along[path];
  for (int i = 0; i < s->n_changes; i++)
    end += p->cost[s->change[i].stage] * s->change[i].cost + p->issue[s->change[i].stage] * s->change[i].issue;
  return end;
}

/* What all paths have behind them, without what is sent there and what parameters are late. */
static double behind_paths(const Standing *s) {
  const MsCutTrial *t = s->t;
  double later = MAX(0, t->rounds - MS_CUT_ROUNDS) * t->on.ranks;
  if (later > 0) later *= MAX(most_of_ranks(s, LOAD), most_of_ranks(s, ISSUED));
  return later;
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
  gint64 until = t->slots + MOST_SLOTS;
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
        else move(t, counts, to, from), split_all(t);
      }
  }
  return end;
}
