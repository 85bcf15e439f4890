/* src/plan/cuts.c - the pipeline layout of a layout whose request leaves it to the planner.
 *
 * What layers, head and MTP blocks cost depends on the layout (TP, EP, recomputation, ...), so the costs are those of
 * its own pieces, in layers and rounded: many layouts then share a cut. Cuts that give way a little more in the dearest
 * rank for a cheaper dearest stage, MTP blocks with the loss or before it, are run through the schedule slot by slot;
 * those that end first are improved layer by layer (climb.c), and the best of them is the layout's. */
#include "plan/cuts_priv.h"
#include "plan/climb_priv.h"
#include "plan/cut_store_priv.h"
#include "base/kept.h"
#include "base/order.h"
#include "describe/framework.h"
#include "layout/layout.h"
#include <math.h>
#include <string.h>

/* By how much the dearest rank may cost more than it must, in return for a cheaper dearest stage: with these four the
 * choice was within 0.03 % of the best of sixteen on average, 1.4 % at most, with costs not rounded
 * (docs/theory/search.md 3). */
static const double slacks[] = {0, 0.005, 0.02, 0.08};

enum { MOST_ROUNDS = 8 };                      /* microbatches / PP that are told apart */
enum { SOME_CUTS = G_N_ELEMENTS(slacks) + 1 }; /* balanced by one kind of costs */
enum { MOST_CUTS = 3 * SOME_CUTS };            /* of one place of the MTP blocks */
enum { MOST_CLIMBS = 2 };                      /* cuts that are improved */

/* Dear stages in front keep more microbatches of more layers: they have to end sooner by this share. */
#define FRONT_GAIN 0.005

/* --- costs --- */

/* Costs are rounded to a 24th of what a rank has or less. */
static double quantum_of(const MsModel *model, int pp) {
  double q = 1;
  for (; q > 1.0 / 64 && q * 24 * pp > model->num_layers;) q /= 2;
  return q;
}

static double microbatches_of(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  gint64 replicas = MAX(1, s->gpus / ((gint64)l->tp * l->cp * l->pp));
  return (double)(s->training.global_batch_size / (s->training.micro_batch_size * replicas));
}
/* Rounds of the pipeline in a step. Beside what is done once a step more of them are told apart, to a factor of the
 * square root of two. */
static double rounds_of(const MsScenario *s) { return MAX(1.0, microbatches_of(s) / s->layout.pp); }
static int told_apart(double rounds, gboolean once) {
  return once && rounds > MOST_ROUNDS ? (int)exp2(nearbyint(log2(rounds))) : (int)MIN(rounds, MOST_ROUNDS);
}

static void append_costs(GByteArray *all, const MsLayerCosts *costs) {
  g_autoptr(GBytes) bytes = ms_layer_costs_bytes(costs);
  g_byte_array_append(all, g_bytes_get_data(bytes, NULL), (guint)g_bytes_get_size(bytes));
}

static void append_pace(GByteArray *all, const MsPace *pace) {
  for (int back = 0; back < 2; back++) append_costs(all, pace->device[back]), append_costs(all, pace->host[back]);
  g_byte_array_append(all, (const guint8 *)pace->late, sizeof pace->late);
  g_byte_array_append(all, (const guint8 *)pace->early, sizeof pace->early);
}

static GBytes *bytes_of(const MsRoundedCosts *r) {
  GByteArray *all = g_byte_array_new();
  guint8 parts[2] = {r->once != NULL, r->pace != NULL};
  g_byte_array_append(all, parts, sizeof parts);
  append_costs(all, r->costs);
  if (r->once) append_costs(all, r->once->sent), append_costs(all, r->once->updated);
  if (r->pace) append_pace(all, r->pace);
  return g_byte_array_free_to_bytes(all);
}

/* With the lock. Takes what `own` has; its `without` -1: itself. */
static int numbered(MsCuts *cuts, MsRoundedCosts own) {
  GBytes *key = bytes_of(&own);
  gpointer number;
  if (g_hash_table_lookup_extended(cuts->numbers, key, NULL, &number)) {
    ms_rounded_costs_clear(&own);
    g_bytes_unref(key);
    return GPOINTER_TO_INT(number);
  }
  if (own.without < 0) own.without = (gint32)cuts->rounded->len;
  g_hash_table_insert(cuts->numbers, key, GINT_TO_POINTER((int)cuts->rounded->len));
  g_ptr_array_add(cuts->rounded, g_memdup2(&own, sizeof own));
  return (int)cuts->rounded->len - 1;
}

static int number_of(const MsSpace *space, const MsLayerCosts *costs, const MsScenario *s) {
  MsCuts *cuts = space->cuts;
  double quantum = quantum_of(s->model, s->layout.pp);
  MsOnce *once = s->pools.n > 0 ? NULL : ms_once_new(costs, s, microbatches_of(s));
  MsRoundedCosts passes = {ms_layer_costs_rounded(costs, quantum), NULL, ms_pace_new(costs), -1}, all = {NULL};
  if (once) all = (MsRoundedCosts){ms_layer_costs_rounded(costs, quantum), once, ms_pace_new(costs), -1};
  g_mutex_lock(&cuts->lock);
  int number = all.without = numbered(cuts, passes);
  if (once) number = numbered(cuts, all);
  g_mutex_unlock(&cuts->lock);
  return number;
}

/* Groups that do not divide the GPUs, or the experts, have no pieces; such a layout is only ever shown as an example of
 * what is refused. */
static gboolean has_pieces(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  return s->gpus % ((gint64)l->tp * l->cp) == 0 && s->gpus % ((gint64)l->etp * l->ep) == 0 &&
         s->model->num_experts % l->ep == 0;
}

/* Of pieces, which keys of MS_ROLE_SHAPE and later do not change. */
static MsCostsKey key_of(const MsSpace *space, const gint32 *value, gint64 combo, int pp) {
  gint64 own = combo - combo % space->stride[MS_ROLE_ADDED];
  MsCostsKey key = {.combo = {(gint32)(own >> 32), (gint32)own}, .pp = pp};
  memcpy(key.value, value, sizeof key.value);
  return key;
}

/* Borrowed from the cuts. */
static const MsLayerCosts *costs_of(const MsSpace *space, const gint32 *value, gint64 combo) {
  MsCuts *cuts = space->cuts;
  const MsCostsKey key = key_of(space, value, combo, 0);
  gpointer costs;
  if (ms_cuts_find(cuts, cuts->costs, &key, &costs)) return costs;
  g_autoptr(MsScenario) s = ms_space_scratch(space);
  ms_space_apply_combo(space, combo - combo % space->stride[MS_ROLE_ADDED], s);
  ms_space_apply_axes(value, s);
  costs = has_pieces(s) ? ms_layer_costs_flat(s, space->like) : ms_layer_costs_new(NULL, s);
  return ms_cuts_add(cuts, cuts->costs, &key, sizeof key, costs, (GDestroyNotify)ms_layer_costs_free);
}

/* --- the cut --- */

/* The request says how, or there is nothing to cut. */
static gboolean is_settled(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  return l->pp < 2 || l->pipeline_layout || l->account_for_embedding_in_pipeline_split ||
         l->account_for_loss_in_pipeline_split || l->decoder_first_pipeline_num_layers > 0 ||
         l->decoder_last_pipeline_num_layers > 0;
}

int ms_cut_costs(const MsSpace *space, const gint32 *value, gint64 combo, MsPieceMemo *memo, const MsScenario *s) {
  if (is_settled(s)) return -1;
  MsCuts *cuts = space->cuts;
  int *number = memo ? ms_memo_cost_number(memo, s->layout.pp, s->options.optimizer_offload_fraction) : NULL;
  if (number && *number >= 0) return *number;
  const MsCostsKey key = key_of(space, value, combo, s->layout.pp);
  gpointer found;
  if (!ms_cuts_find(cuts, cuts->number, &key, &found)) {
    MsLayerCosts *own = memo ? ms_layer_costs_new(memo, s) : NULL;
    found = GINT_TO_POINTER(number_of(space, own ? own : costs_of(space, value, combo), s));
    ms_layer_costs_free(own);
    ms_cuts_add(cuts, cuts->number, &key, sizeof key, found, NULL);
  }
  if (number) *number = GPOINTER_TO_INT(found);
  return GPOINTER_TO_INT(found);
}

/* Two copies of the model share a rank. */
static void place_stages(MsPlacement placement, int pp, int stages, int *rank) {
  for (int k = 0; k < stages; k++) {
    rank[k] = ms_placement_stage(placement, pp, k);
    if (placement == MS_PLACE_BIDIRECTIONAL) rank[k] = MIN(rank[k], pp - 1 - rank[k]);
  }
}

/* A cut that may be the layout's: `least` bounds the end of its step from below. */
typedef struct {
  double least, end, share; /* share: of `end` that counts */
  int order;
  int *counts;
  MsCutTrial *trial;
} Candidate;

MS_ORDER(by_least, Candidate, MS_LESS(x->least, y->least), MS_LESS(x->order, y->order))

MS_ORDER(by_end, Candidate, MS_LESS(x->share * x->end, y->share * y->end), MS_LESS(x->order, y->order))

static gboolean is_among(const Candidate *all, int n, const MsCutTrial *trial, const int *counts) {
  for (int i = 0; i < n; i++)
    if (all[i].trial == trial && !memcmp(all[i].counts, counts, sizeof *counts * (size_t)trial->on.n)) return TRUE;
  return FALSE;
}

/* How many there are, then the layers of every stage of each, and of the one whose dear ranks are in front. */
static GBytes *cuts_by_cost(const MsCutTrial *trial, const MsLayerCosts *costs) {
  size_t stages = (size_t)trial->on.n, behind = G_N_ELEMENTS(slacks) * stages;
  g_autofree int *counts = g_new0(int, behind + stages);
  gint16 *all = g_new(gint16, 1 + behind + stages);
  all[0] = (gint16)ms_partition_by_cost(costs, &trial->on, slacks, G_N_ELEMENTS(slacks), counts, counts + behind);
  for (size_t i = 0; i < behind + stages; i++) all[1 + i] = (gint16)counts[i];
  return g_bytes_new_take(all, sizeof *all * (1 + behind + stages));
}

/* Made once for all layouts whose layers cost the same, whatever hosts and steps do; but not those of machines that
 * differ. (transfer full) */
static GBytes *known_cuts(MsCuts *cuts, const MsCutKey *key, const MsCutTrial *trial, const MsLayerCosts *costs) {
  if (trial->on.pool) return cuts_by_cost(trial, costs);
  const gint32 of[] = {key->stages, key->ranks, key->placing, trial->on.mtp_apart};
  GByteArray *bytes = g_byte_array_new();
  g_byte_array_append(bytes, (const guint8 *)of, sizeof of);
  append_costs(bytes, costs);
  g_autoptr(GBytes) name = g_byte_array_free_to_bytes(bytes);
  g_mutex_lock(&cuts->lock);
  GBytes *known = g_hash_table_lookup(cuts->by_cost, name);
  if (known) g_bytes_ref(known);
  g_mutex_unlock(&cuts->lock);
  if (known) return known;
  known = cuts_by_cost(trial, costs);
  g_mutex_lock(&cuts->lock);
  g_hash_table_insert(cuts->by_cost, g_bytes_ref(name), g_bytes_ref(known));
  g_mutex_unlock(&cuts->lock);
  return known;
}

/* As ms_partition_by_cost. */
static int find_cuts(MsCuts *cuts, const MsCutKey *key, const MsCutTrial *trial, const MsLayerCosts *costs,
                     int *counts) {
  gsize size;
  g_autoptr(GBytes) found = known_cuts(cuts, key, trial, costs);
  const gint16 *all = g_bytes_get_data(found, &size);
  for (gsize i = 1; i < size / sizeof *all; i++) counts[i - 1] = all[i];
  return all[0];
}

/* Appends the cuts of one place of the MTP blocks to `all`, balanced by `costs`; their number. */
static int add_cuts(MsCuts *cuts, const MsCutKey *key, MsCutTrial *trial, const MsLayerCosts *costs, int *counts,
                    Candidate *all, int n) {
  size_t stages = (size_t)trial->on.n;
  int *front = counts + G_N_ELEMENTS(slacks) * stages, behind = find_cuts(cuts, key, trial, costs, counts);
  for (int i = 0; i <= behind; i++) {
    int *own = i < behind ? counts + (size_t)i * stages : front;
    if (own[0] < 0 || is_among(all, n, trial, own)) continue;
    all[n] = (Candidate){.least = trial->turns ? ms_cut_least(trial, own) : 0,
                         .end = INFINITY,
                         .share = i < behind ? 1 : 1 + FRONT_GAIN,
                         .order = n,
                         .counts = own,
                         .trial = trial};
    n++;
  }
  return n;
}

/* For a framework that can be told layers of the first and the last stage only: those between have as many as evenly
 * cut ones, one less to two more. Appended to the empty `all`, whose cuts are in `counts`; their number. */
static int add_ends(MsCutTrial *trial, GArray *counts, GArray *all) {
  int stages = trial->on.n, layers = trial->costs->layers, most = stages > 2 ? layers / stages + 2 : 1;
  for (int middle = stages > 2 ? MAX(1, layers / stages - 1) : 1; middle <= most; middle++) {
    int ends = layers - middle * (stages - 2);
    for (int first = 1; first < ends; first++)
      for (int k = 0, own; k < stages; k++) {
        own = k == 0 ? first : k == stages - 1 ? ends - first : middle;
        g_array_append_val(counts, own);
      }
  }
  for (guint i = 0; i < counts->len / (guint)stages; i++) {
    int *own = &g_array_index(counts, int, i *(guint)stages);
    Candidate one = {
        .least = ms_cut_least(trial, own), .end = INFINITY, .share = 1, .order = (int)i, .counts = own, .trial = trial};
    g_array_append_val(all, one);
  }
  return (int)all->len;
}

/* The plain split of the rules, which needs no string. */
static gboolean is_plain(const int *counts, int stages, gboolean apart) {
  for (int k = 1; k < stages; k++)
    if (counts[k] != counts[0]) return FALSE;
  return !apart;
}

/* The cut that ends first; of those that end together the one that was proposed first. Where no schedule is run, the
 * first of all. */
static const Candidate *first_to_end(Candidate *all, int n, int climbs) {
  double first = INFINITY;
  int best = 0;
  if (n == 0) return NULL;
  qsort(all, (size_t)n, sizeof *all, by_least);
  if (!all->trial->turns) return all;
  for (int i = 0; i < n && all[i].least <= first * (1 + 1e-9); i++) {
    all[i].end = ms_cut_end(all[i].trial, all[i].counts);
    first = MIN(first, all[i].end);
  }
  qsort(all, (size_t)n, sizeof *all, by_end);
  for (int i = 0; i < MIN(n, climbs) && !isinf(all[i].end); i++)
    all[i].end = ms_cut_climb(all[i].trial, all[i].counts, all[i].end);
  for (int i = 1; i < n; i++) {
    double end = all[i].share * all[i].end, of_best = all[best].share * all[best].end;
    gboolean together = fabs(end - of_best) <= of_best * 1e-9;
    if (together ? all[i].order < all[best].order : end < of_best) best = i;
  }
  return &all[best];
}

/* Borrowed from the cuts; NULL: none is run. */
static const MsScheduleTurns *turns_of(MsCuts *cuts, const MsCutKey *of, gboolean paced) {
  MsCutKey key = {
      .stages = of->stages, .ranks = of->ranks, .rounds = ms_cut_rounds_run(of->stages, of->ranks, of->rounds, paced)};
  gpointer turns = NULL;
  if (key.rounds == 0 || ms_cuts_find(cuts, cuts->turns, &key, &turns)) return turns;
  g_autoptr(MsSchedule) schedule =
      ms_schedule_new(MS_SCHED_1F1B, key.ranks, key.rounds * key.ranks, key.stages / key.ranks, 0, FALSE, NULL, 0);
  return ms_cuts_add(cuts, cuts->turns, &key, sizeof key, schedule ? ms_schedule_turns_new(schedule) : NULL,
                     (GDestroyNotify)ms_schedule_turns_free);
}

/* The same for a framework whose ends alone may differ; with VPP the plain cut. */
static char *cut_ends(MsCuts *cuts, const MsRoundedCosts *rounded, const MsCutKey *key, const int *pool, int mtp) {
  const MsScheduleTurns *turns = turns_of(cuts, key, rounded->pace != NULL);
  if (key->stages != key->ranks || key->stages < 2 || !turns) return g_strdup("");
  g_autofree int *rank = g_new(int, (gsize)key->stages);
  g_autoptr(GArray) counts = g_array_new(FALSE, FALSE, sizeof(int));
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(Candidate));
  place_stages((MsPlacement)key->placing, key->ranks, key->stages, rank);
  MsVirtualStages on = {.n = key->stages, .ranks = key->ranks, .rank = rank, .pool = pool};
  g_autoptr(MsCutTrial) trial = ms_cut_trial_new(rounded->costs, rounded->once, rounded->pace, &on, key->rounds, turns);
  trial->waits = key->waits;
  int n = add_ends(trial, counts, all);
  const Candidate *best = first_to_end((Candidate *)(gpointer)all->data, n, 0);
  return !best || is_plain(best->counts, key->stages, FALSE) ? g_strdup("")
                                                             : ms_partition_text(best->counts, key->stages, mtp, FALSE);
}

/* Those that are balanced by the passes; where ranks have something to do once a step those that are balanced by the
 * whole of it; where the host sets the pace those that are balanced by what the device does. */
static int add_place(MsCuts *cuts, const MsCutKey *key, MsCutTrial *trial, const MsRoundedCosts *r,
                     const MsLayerCosts *whole, int *counts, Candidate *all, int n) {
  size_t some = SOME_CUTS * (size_t)trial->on.n;
  n = add_cuts(cuts, key, trial, r->costs, counts, all, n);
  if (whole) n = add_cuts(cuts, key, trial, whole, counts + some, all, n);
  return r->pace ? add_cuts(cuts, key, trial, r->pace->bare, counts + 2 * some, all, n) : n;
}

/* `pool` [ranks] or NULL: machines that differ. */
static char *cut(MsCuts *cuts, const MsRoundedCosts *rounded, const MsCutKey *key, const int *pool, int mtp) {
  MsLayerCosts *costs = rounded->costs;
  size_t stages = (size_t)key->stages, slots = MOST_CUTS * stages;
  g_autofree int *rank = g_new(int, stages + 2 * slots);
  Candidate all[2 * MOST_CUTS];
  const MsScheduleTurns *turns = turns_of(cuts, key, rounded->pace != NULL);
  g_autoptr(MsCutTrial) with = NULL;
  g_autoptr(MsCutTrial) apart = NULL;
  place_stages((MsPlacement)key->placing, key->ranks, key->stages, rank);
  MsVirtualStages on = {.n = key->stages, .ranks = key->ranks, .rank = rank, .pool = pool};
  MsLayerCosts *whole = rounded->once ? ms_once_with(rounded->once, costs, (double)key->rounds * key->ranks) : NULL;
  with = ms_cut_trial_new(costs, rounded->once, rounded->pace, &on, key->rounds, turns);
  with->waits = key->waits;
  int n = add_place(cuts, key, with, rounded, whole, rank + stages, all, 0);
  if (costs->mtp > 0 && key->stages > 2 && rank[stages - 2] != 0) {
    on.mtp_apart = TRUE;
    apart = ms_cut_trial_new(costs, rounded->once, rounded->pace, &on, key->rounds, turns);
    apart->waits = key->waits;
    n = add_place(cuts, key, apart, rounded, whole, rank + stages + slots, all, n);
  }
  ms_layer_costs_free(whole);
  const Candidate *best = first_to_end(all, n, MOST_CLIMBS);
  return !best || is_plain(best->counts, key->stages, best->trial->on.mtp_apart)
             ? g_strdup("")
             : ms_partition_text(best->counts, key->stages, mtp, best->trial->on.mtp_apart);
}

static char *cut_by_time(MsCuts *cuts, const MsRoundedCosts *rounded, const MsCutKey *key, const MsScenario *s) {
  g_autofree int *pool = s->pools.n > 0 ? g_new(int, key->ranks) : NULL;
  for (int r = 0; pool && r < key->ranks; r++) pool[r] = ms_pool_of_stage(&s->pools, s->gpus, key->ranks, r);
  return (ms_framework(s)->ends_only ? cut_ends : cut)(cuts, rounded, key, pool, s->model->mtp_num_layers);
}

static char *cut_by_memory(MsCuts *cuts, const MsRoundedCosts *rounded, const MsCutKey *key, const MsScenario *s) {
  MsLayerCosts *own = ms_layer_costs_by_memory(rounded->costs, &s->pools, (double)key->by_memory / MS_CUT_MEMORY_STEPS);
  const MsRoundedCosts of_memory = {.costs = own};
  char *text = cut_by_time(cuts, &of_memory, key, s);
  ms_layer_costs_free(own);
  return text;
}

/* Cuts of this process by all that they follow from: a search more of the same task finds most of those that it needs.
 */
static MsKeep texts = {.most = 16384};

static GByteArray *bytes_of_cut(const MsRoundedCosts *rounded, const MsCutKey *key, const MsScenario *s) {
  const gint32 is[] = {key->stages,
                       key->ranks,
                       key->placing,
                       key->rounds,
                       key->waits,
                       ms_framework(s)->ends_only,
                       s->model->mtp_num_layers};
  g_autoptr(GBytes) costs = bytes_of(rounded);
  GByteArray *bytes = g_byte_array_new();
  g_byte_array_append(bytes, (const guint8 *)is, sizeof is);
  return g_byte_array_append(bytes, g_bytes_get_data(costs, NULL), (guint)g_bytes_get_size(costs));
}

/* (transfer full) */
static char *known_text(MsCuts *cuts, const MsRoundedCosts *rounded, const MsCutKey *key, const MsScenario *s) {
  if (key->by_memory) return cut_by_memory(cuts, rounded, key, s);
  if (s->pools.n > 0) return cut_by_time(cuts, rounded, key, s);
  GByteArray *bytes = bytes_of_cut(rounded, key, s);
  char *kept = ms_kept_of(&texts, bytes), *text;
  if (kept) {
    text = g_strdup(kept);
    g_byte_array_unref(bytes);
  } else {
    text = cut_by_time(cuts, rounded, key, s);
    kept = strcpy(g_atomic_rc_box_alloc(strlen(text) + 1), text);
    ms_kept_as(&texts, bytes, kept);
  }
  ms_kept_release(&texts, kept);
  return text;
}

/* Borrowed from the cuts; NULL: no string. `once`: what is done once a step counts where it does. */
static const char *text_by_cost(const MsSpace *space, const MsScenario *s, int stages, int costs, int by_memory,
                                gboolean once) {
  MsCuts *cuts = space->cuts;
  const MsLayoutSpec *l = &s->layout;
  MsPlacement placing = ms_schedule_row(l->schedule)->placement;
  gboolean in_turn = placing == MS_PLACE_ROUND_ROBIN;
  gboolean blocks = ms_schedule_row(l->schedule)->sends == MS_SENDS_BLOCK && stages == l->pp;
  MsCutKey key = {stages, l->pp, placing, 0, costs, by_memory, blocks}; /* as if interleaved messages did not block */
  g_mutex_lock(&cuts->lock);
  const MsRoundedCosts *rounded = cuts->rounded->pdata[costs];
  if (!once || !in_turn) key.costs = rounded->without, rounded = cuts->rounded->pdata[key.costs];
  if (in_turn) key.rounds = told_apart(rounds_of(s), rounded->once != NULL);
  const char *text = g_hash_table_lookup(cuts->texts, &key);
  g_mutex_unlock(&cuts->lock);
  if (!text) text = ms_cuts_add(cuts, cuts->texts, &key, sizeof key, known_text(cuts, rounded, &key, s), g_free);
  return *text ? text : NULL;
}

/* The ways to count layers that divide among the stages as a user can ask for: plainly, the loss counted as one, the
 * embedding, both. `which`: 0 the first of them, 1 the second. FALSE: there is no such. */
static gboolean count_regularly(const MsScenario *s, int stages, int which, int *counts) {
  static const struct { int embedding, loss; } way[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  int layers = s->model->num_layers, found = 0;
  for (guint i = 0; i < G_N_ELEMENTS(way); i++) {
    int counted = layers + way[i].embedding + way[i].loss;
    if (counted % stages != 0 || found++ < which) continue;
    for (int k = 0; k < stages; k++) counts[k] = counted / stages;
    counts[0] -= way[i].embedding, counts[stages - 1] -= way[i].loss;
    return TRUE;
  }
  return FALSE;
}

/* A regular cut; FALSE where there is none, or the second is the first (two stages, embedding and loss counted).
 * *text NULL: the plain one. */
static gboolean text_regular(const MsScenario *s, int stages, int which, char **text) {
  g_autofree int *counts = g_new(int, 2 * (gsize)stages);
  if (!count_regularly(s, stages, which, counts)) return FALSE;
  if (which > 0 && count_regularly(s, stages, 0, counts + stages) &&
      !memcmp(counts, counts + stages, sizeof *counts * (size_t)stages))
    return FALSE;
  if (!is_plain(counts, stages, FALSE)) *text = ms_partition_text(counts, stages, s->model->mtp_num_layers, FALSE);
  return TRUE;
}

static gboolean is_regular(const MsScenario *s, int stages, const char *text) {
  gboolean found = FALSE;
  for (int which = 0; which < 2 && !found; which++) {
    g_autofree char *regular = NULL;
    found = text_regular(s, stages, which, &regular) && g_strcmp0(regular, text) == 0;
  }
  return found;
}

static int stages_of(const MsScenario *s) {
  gint64 stages = ms_layout_virtual_stages(s, ms_layout_chunks_per_rank(s));
  return stages < 1 || stages > s->model->num_layers + 2 ? 0 : (int)stages;
}

gboolean ms_space_makes_cut(const MsScenario *s, MsCut cut) {
  int stages = is_settled(s) ? 0 : stages_of(s);
  g_autofree char *text = NULL;
  return stages > 0 && (cut != MS_CUT_EVEN || text_regular(s, stages, 0, &text));
}

gboolean ms_space_balance(const MsSpace *space, int costs, MsCut cut, MsScenario *s) {
  MsLayoutSpec *l = &s->layout;
  int stages = stages_of(s);
  if (costs < 0 || !ms_space_makes_cut(s, cut)) return cut == MS_CUT_BALANCED;
  const char *text = text_by_cost(space, s, stages, costs, MAX(0, (int)cut - MS_N_CUTS + 1), TRUE);
  if (cut >= MS_N_CUTS) {
    const char *before = text_by_cost(space, s, stages, costs, (int)cut - MS_N_CUTS, TRUE);
    if (g_strcmp0(before, text) == 0 || is_regular(s, stages, text)) return FALSE;
    l->pipeline_layout = g_strdup(text);
    return TRUE;
  }
  if (cut == MS_CUT_BALANCED) {
    l->pipeline_layout = g_strdup(text);
    return TRUE;
  }
  if (text_regular(s, stages, cut - MS_CUT_EVEN, &l->pipeline_layout)) return g_strcmp0(l->pipeline_layout, text) != 0;
  if (cut != MS_CUT_OTHER) return FALSE;
  const char *passes = text_by_cost(space, s, stages, costs, 0, FALSE);
  g_autofree char *even = NULL;
  gboolean same = !g_strcmp0(passes, text) || (text_regular(s, stages, 0, &even) && !g_strcmp0(passes, even));
  if (!same) l->pipeline_layout = g_strdup(passes);
  return !same;
}

MsUnbalanced ms_space_try_balance(const MsSpace *space, int costs, MsCut cut, MsScenario *s) {
  MsUnbalanced before = {.given = s->layout.pipeline_layout != NULL};
  before.same = !ms_space_balance(space, costs, cut, s);
  return before;
}

void ms_space_undo_balance(MsUnbalanced before, MsScenario *s) {
  if (!before.given) g_clear_pointer(&s->layout.pipeline_layout, g_free);
}

int ms_try_cut(const MsSpace *space, const gint32 *value, gint64 combo, MsPieceMemo *known, MsScenario *s,
               const MsPieceMemo *like, MsPieceMemo **memo) {
  const MsUnbalanced before =
      ms_space_try_balance(space, ms_cut_costs(space, value, combo, known, s), ms_space_cut_of(space, combo), s);
  int rule = ms_layout_check_kinds(s, MS_RULE_SPLIT);
  if (memo && rule < 0 && !(*memo = ms_memo_new(s, like))) rule = ms_num_rules + MS_REFUSED_ERROR;
  ms_space_undo_balance(before, s);
  return rule;
}
