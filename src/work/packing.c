/* src/work/packing.c - see packing.h. */
#include "work/packing.h"
#include "base/order.h"
#include "base/stats.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <string.h>

enum { GROUPS = 64, MICROBATCHES = 16, STEPS = 8, MOST_RANKS = 256, MOST_SEQUENCES = 1 << 20 }; /* drawn at most */
enum { MOST_PLACES = 1 << 14 }; /* of a pack, where sequences may start */

double ms_packing_mean(const MsPackLengths *l, int first, int last, double (*of)(double, const void *),
                       const void *data) {
  double tokens = 0, sum = 0;
  for (int i = first; i < last; i++) tokens += l->tokens[i], sum += l->tokens[i] * of(l->length[i], data);
  return tokens > 0 ? sum / tokens : 0;
}

static double itself(double length, const void *data) {
  (void)data;
  return length;
}

double ms_packing_busiest(const MsPacking *k, double mean, double whole) {
  if (k->dealt) return k->skew * mean;
  return k->length > k->mean ? mean + (k->length - k->mean) / (k->whole - k->mean) * (whole - mean) : mean;
}

/* --- expected lengths ------------------------------------------------------------------------------------------ */

typedef struct { /* places in a pack where sequences may start */
  const MsLengths *lengths;
  double room, place; /* tokens of a pack; from one place to the next */
  int places, span[MS_MAX_LENGTHS];
  double chance[MS_MAX_LENGTHS];
} Grid;

/* Places are as far apart as lengths can tell, and more where that makes too many. */
static Grid grid_of(const MsTraining *t) {
  const MsLengths *l = &t->sequence_lengths;
  gint64 room = (gint64)t->seq_length * t->micro_batch_size, step = room;
  double weight = 0;
  for (int i = 0; i < l->n; i++) step = ms_gcd(step, l->length[i]), weight += l->weight[i];
  Grid g = {.lengths = l, .room = (double)room, .places = (int)MIN(room / step, MOST_PLACES)};
  g.place = g.room / g.places;
  for (int i = 0; i < l->n; i++)
    g.span[i] = (int)MAX(1, round(l->length[i] / g.place)), g.chance[i] = l->weight[i] / weight;
  return g;
}

/* Into the first bin whose end `most` they do not exceed. */
static void add_pieces(MsPackLengths *bins, const double *most, double length, double pieces) {
  int i = 0;
  while (i < bins->n - 1 && most[i] < length) i++;
  bins->tokens[i] += pieces * length, bins->length[i] += pieces * length * length;
}

MS_ORDER(shorter_first, double, MS_LESS(*x, *y), 0)

/* Upper ends of the bins: the lengths themselves, and powers of two times `mark` for cut ones. */
static int bins_of(const Grid *g, double mark, double *most) {
  int n = 0;
  for (int i = 0; i < g->lengths->n; i++) most[n++] = g->lengths->length[i];
  while (mark > 1) mark /= 2;
  for (; mark < g->room && n < MS_MAX_PACK_LENGTHS; mark *= 2) most[n++] = mark;
  qsort(most, (size_t)n, sizeof *most, shorter_first);
  return n;
}

/* Sums to means and shares; empty bins go. */
static void settle(MsPackLengths *bins) {
  double tokens = 0;
  int n = 0;
  for (int i = 0; i < bins->n; i++) tokens += bins->tokens[i];
  for (int i = 0; i < bins->n; i++)
    if (bins->tokens[i] > 0)
      bins->length[n] = bins->length[i] / bins->tokens[i], bins->tokens[n++] = bins->tokens[i] / tokens;
  bins->n = n;
}

/* Sequences that start at each place, in expectation, and what of them the pack has room for. */
static void fill(const Grid *g, const double *most, MsPackLengths *bins) {
  g_autofree double *starts = g_new0(double, g->places);
  double whole[MS_MAX_LENGTHS] = {0};
  starts[0] = 1;
  for (int at = 0; at < g->places; at++) {
    double cut = 0;
    for (int i = 0; i < g->lengths->n && starts[at] > 0; i++) {
      double begun = starts[at] * g->chance[i];
      int end = at + g->span[i];
      *(end > g->places ? &cut : &whole[i]) += begun;
      if (end < g->places) starts[end] += begun;
    }
    if (cut > 0) add_pieces(bins, most, (g->places - at) * g->place, cut);
  }
  for (int i = 0; i < g->lengths->n; i++) add_pieces(bins, most, g->lengths->length[i], whole[i]);
}

MsPackLengths ms_pack_lengths(const MsTraining *t, double mark) {
  if (t->sequence_lengths.n == 0) return (MsPackLengths){.n = 1, .length = {t->seq_length}, .tokens = {1}};
  double most[MS_MAX_PACK_LENGTHS];
  Grid g = grid_of(t);
  MsPackLengths bins = {.n = bins_of(&g, mark, most)};
  fill(&g, most, &bins);
  settle(&bins);
  return bins;
}

/* Most tokens of a sequence on one rank of hybrid context parallelism. */
static int hybrid_cp_tokens(const MsScenario *s) {
  int most = s->options.max_seqlen_per_dp_cp_rank;
  return most > 0 ? most : MAX(1, s->training.seq_length / s->layout.cp);
}

/* Ranks for a sequence of `length` tokens with hybrid context parallelism. */
static int hybrid_cp_ranks(const MsScenario *s, double length) {
  int ranks = 1;
  while ((double)ranks * hybrid_cp_tokens(s) < length) ranks *= 2;
  return ranks;
}

/* --- draws ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const MsLengths *lengths;
  gsl_rng *rng;
  gsl_ran_discrete_t *table;
  double room, mean; /* tokens of a pack; squares of one, expected */
} Packer;

/* The next sequence of a pack that has room for `left` tokens more. MIN and MAX evaluate what they return twice: no
 * draw stands in them. */
static double draw_length(const Packer *p, double left) {
  double length = p->lengths->length[gsl_ran_discrete(p->rng, p->table)];
  return MIN(left, length);
}

/* Sum of squares of one pack; the last sequence is cut where the pack ends. */
static double draw_pack(const Packer *p) {
  double left = p->room, squares = 0;
  while (left > 0) {
    double length = draw_length(p, left);
    squares += length * length, left -= length;
  }
  return squares;
}

static double busiest_of(const Packer *p, int packs) {
  double most = 0;
  for (int i = 0; i < packs; i++) {
    double squares = draw_pack(p);
    most = MAX(most, squares);
  }
  return most;
}

/* Packs of one expert group wait for each other in every layer. */
static double group_skew(const Packer *p, int group) {
  double most = 0;
  if (group <= 1) return 1;
  for (int i = 0; i < GROUPS; i++) most += busiest_of(p, group) / GROUPS;
  return MAX(1, most / p->mean);
}

/* The largest sum over the microbatches of a step, over what a group has with `skew`; with more microbatches than are
 * drawn the spread shrinks as 1 / sqrt. */
static double step_late(const Packer *p, double skew, int group, int replicas, int microbatches) {
  int groups = MIN(MAX(1, replicas / MAX(group, 1)), MOST_RANKS), drawn = MIN(microbatches, MICROBATCHES);
  double late = 0;
  if (groups <= 1) return 0;
  for (int step = 0; step < STEPS; step++) {
    double most = 0;
    for (int i = 0; i < groups; i++) {
      double sum = 0;
      for (int m = 0; m < drawn; m++) sum += busiest_of(p, group);
      most = MAX(most, sum);
    }
    late += (most / (drawn * skew * p->mean) - 1) / STEPS;
  }
  return MAX(late, 0) * sqrt((double)drawn / microbatches);
}

/* --- hybrid: longest first, to the least loaded ranks ---------------------------------------------------------- */

MS_ORDER(longer_first, int, MS_MORE(*x, *y), 0)
MS_ORDER(lighter_first, double, MS_LESS(*x, *y), 0)

/* All packs of a step over the ranks of `pool` (Megatron's scheduler forms groups of even load from the whole batch);
 * load of the busiest over the mean. */
static double deal(const MsScenario *s, const Packer *p, int pool, int packs) {
  g_autoptr(GArray) lengths = g_array_new(FALSE, FALSE, sizeof(int));
  g_autofree double *load = g_new0(double, pool);
  double total = 0;
  for (int i = 0; i < packs; i++)
    for (double left = p->room; left > 0;) {
      int length = (int)draw_length(p, left);
      g_array_append_val(lengths, length);
      left -= length;
    }
  g_array_sort(lengths, longer_first);
  for (guint i = 0; i < lengths->len; i++) {
    double length = g_array_index(lengths, int, i);
    int ranks = MIN(hybrid_cp_ranks(s, (int)length), pool);
    if (ranks == 1) { /* the least loaded rank, without a sort */
      int at = 0;
      for (int r = 1; r < pool; r++)
        if (load[r] < load[at]) at = r;
      load[at] += length * length;
    } else { /* the group of neighbours whose busiest rank has least */
      qsort(load, (size_t)pool, sizeof *load, lighter_first);
      double after = load[ranks - 1] + length * length / ranks; /* they start together */
      for (int r = 0; r < ranks; r++) load[r] = after;
    }
    total += length * length;
  }
  double most = 0;
  for (int r = 0; r < pool; r++) most = MAX(most, load[r]);
  return most / (total / pool);
}

/* --- the whole ------------------------------------------------------------------------------------------------- */

static double tokens_of(const MsPackLengths *l, int first, int last) {
  double tokens = 0;
  for (int i = first; i < last; i++) tokens += l->tokens[i];
  return tokens;
}

static void add_part(MsPacking *k, const MsTraining *t, int ranks, int first, int last) {
  const MsPackLengths *l = &k->lengths;
  MsPackPart *p = &k->part[k->n++];
  *p = (MsPackPart){
      .ranks = ranks, .first = first, .last = last, .tokens = tokens_of(l, first, last) / tokens_of(l, 0, l->n)};
  p->length = k->dealt ? ms_packing_mean(l, first, last, itself, NULL) : k->length;
  p->sequences = p->tokens * t->seq_length * t->micro_batch_size / p->length;
}

static void draw(MsPacking *k, const MsScenario *s, const MsLayout *l) {
  const MsTraining *t = &s->training;
  Packer p = {&t->sequence_lengths, gsl_rng_alloc(gsl_rng_mt19937),
              gsl_ran_discrete_preproc((size_t)t->sequence_lengths.n, t->sequence_lengths.weight),
              (double)t->seq_length * t->micro_batch_size, 0};
  gsl_rng_set(p.rng, t->sequence_lengths.seed);
  p.mean = p.room * k->mean;
  double sequences = 0; /* of one pack */
  for (int i = 0; i < k->lengths.n; i++) sequences += p.room * k->lengths.tokens[i] / k->lengths.length[i];
  if (s->options.hybrid_context_parallel) {
    int replicas = MIN(l->dp, GROUPS), rounds = 2;
    int packs = (int)MAX(
        replicas, MIN(MIN((double)replicas * l->microbatches, MOST_RANKS), MOST_SEQUENCES / 8 / MAX(sequences, 1)));
    double most = 0;
    for (int i = 0; i < rounds; i++) most += deal(s, &p, replicas * l->cp, packs) / rounds;
    k->skew = most;
  } else {
    int group = s->model->num_experts > 0
                    ? (int)MIN((gint64)l->dp, MAX(1, (gint64)l->ep * l->etp / ((gint64)l->tp * l->cp)))
                    : 1;
    group = (int)MAX(1, MIN(group, MOST_SEQUENCES / GROUPS / MAX(sequences, 1)));
    k->skew = group_skew(&p, group);
    double work = sequences * group * MIN(l->microbatches, MICROBATCHES) * MIN(l->dp / group, MOST_RANKS) * STEPS;
    int replicas = work > 8.0 * MOST_SEQUENCES ? (int)MAX(group, l->dp * 8.0 * MOST_SEQUENCES / work)
                                               : l->dp; /* some stand for all */
    k->late = step_late(&p, k->skew, group, replicas, l->microbatches);
  }
  gsl_ran_discrete_free(p.table);
  gsl_rng_free(p.rng);
}

/* Sequences that run on as many ranks make a part. */
static void hybrid_parts(MsPacking *k, const MsScenario *s) {
  const MsPackLengths *l = &k->lengths;
  for (int first = 0, last; first < l->n && k->n < MS_MAX_PACK_PARTS; first = last) {
    int ranks = hybrid_cp_ranks(s, l->length[first]);
    for (last = first + 1; last < l->n && hybrid_cp_ranks(s, l->length[last]) == ranks;) last++;
    add_part(k, &s->training, ranks, first, last);
  }
}

MsPacking ms_packing_of(const MsScenario *s, const MsLayout *l) {
  const MsTraining *t = &s->training;
  MsPacking k = {.packed = t->sequence_lengths.n > 0, .whole = t->seq_length, .skew = 1};
  k.dealt = k.packed && s->options.hybrid_context_parallel;
  k.lengths = ms_pack_lengths(t, k.dealt ? hybrid_cp_tokens(s) : t->seq_length);
  k.mean = k.length = ms_packing_mean(&k.lengths, 0, k.lengths.n, itself, NULL);
  if (k.packed) draw(&k, s, l);
  if (!k.dealt) k.length *= k.skew * (1 + k.late);
  if (k.dealt) hybrid_parts(&k, s);
  else add_part(&k, t, l->cp, 0, k.lengths.n);
  return k;
}
