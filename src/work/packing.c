/* src/work/packing.c - see packing.h. */
#include "work/packing.h"
#include "base/order.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <string.h>

enum { GROUPS = 64, MICROBATCHES = 16, STEPS = 8, MOST_RANKS = 256, MOST_SEQUENCES = 1 << 20 }; /* drawn at most */

double ms_packing_mean(const MsLengths *l, int first, int last, double (*of)(double, const void *), const void *data) {
  double tokens = 0, sum = 0;
  for (int i = first; i < last; i++)
    tokens += l->weight[i] * l->length[i], sum += l->weight[i] * l->length[i] * of(l->length[i], data);
  return tokens > 0 ? sum / tokens : 0;
}

static double itself(double length, const void *data) {
  (void)data;
  return length;
}

static double tokens_of(const MsLengths *l, int first, int last) {
  double tokens = 0;
  for (int i = first; i < last; i++) tokens += l->weight[i] * l->length[i];
  return tokens;
}

/* Ranks for a sequence of `length` tokens with hybrid context parallelism. */
static int hybrid_cp_ranks(const MsScenario *s, int length) {
  int most = s->options.max_seqlen_per_dp_cp_rank > 0 ? s->options.max_seqlen_per_dp_cp_rank
                                                      : MAX(1, s->training.seq_length / s->layout.cp),
      ranks = 1;
  while ((gint64)ranks * most < length) ranks *= 2;
  return ranks;
}

/* --- draws ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const MsLengths *lengths;
  gsl_rng *rng;
  gsl_ran_discrete_t *table;
  double room;
} Packer;

/* Sum of squares of one pack; the last sequence is cut where the pack ends. */
static double draw_pack(const Packer *p) {
  double left = p->room, squares = 0;
  while (left > 0) {
    double length = MIN(left, (double)p->lengths->length[gsl_ran_discrete(p->rng, p->table)]);
    squares += length * length, left -= length;
  }
  return squares;
}

static double busiest_of(const Packer *p, int packs) {
  double most = 0;
  for (int i = 0; i < packs; i++) most = MAX(most, draw_pack(p));
  return most;
}

/* Packs of one expert group wait for each other in every layer. */
static double group_skew(const Packer *p, int group) {
  double most = 0, mean = 0;
  if (group <= 1) return 1;
  for (int i = 0; i < GROUPS; i++) most += busiest_of(p, group);
  for (int i = 0; i < GROUPS * 4; i++) mean += draw_pack(p) / 4;
  return MAX(1, most / mean);
}

/* The largest sum over the microbatches of a step, over the mean; with more microbatches than are drawn the spread
 * shrinks as 1 / sqrt. */
static double step_late(const Packer *p, int group, int replicas, int microbatches) {
  int groups = MIN(MAX(1, replicas / MAX(group, 1)), MOST_RANKS), drawn = MIN(microbatches, MICROBATCHES);
  double late = 0;
  if (groups <= 1) return 0;
  for (int step = 0; step < STEPS; step++) {
    double most = 0, all = 0;
    for (int i = 0; i < groups; i++) {
      double sum = 0;
      for (int m = 0; m < drawn; m++) sum += busiest_of(p, group);
      most = MAX(most, sum), all += sum;
    }
    late += (most / (all / groups) - 1) / STEPS;
  }
  return late * sqrt((double)drawn / microbatches);
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
      int length = (int)MIN(left, (double)p->lengths->length[gsl_ran_discrete(p->rng, p->table)]);
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

static void add_part(MsPacking *k, const MsTraining *t, int ranks, int first, int last) {
  const MsLengths *l = &t->sequence_lengths;
  MsPackPart *p = &k->part[k->n++];
  *p = (MsPackPart){
      .ranks = ranks, .first = first, .last = last, .tokens = tokens_of(l, first, last) / tokens_of(l, 0, l->n)};
  p->length = ms_packing_mean(l, first, last, itself, NULL);
  p->sequences = p->tokens * t->seq_length * t->micro_batch_size / p->length;
}

static void draw(MsPacking *k, const MsScenario *s, const MsLayout *l) {
  const MsTraining *t = &s->training;
  Packer p = {&t->sequence_lengths, gsl_rng_alloc(gsl_rng_mt19937),
              gsl_ran_discrete_preproc((size_t)t->sequence_lengths.n, t->sequence_lengths.weight),
              (double)t->seq_length * t->micro_batch_size};
  gsl_rng_set(p.rng, t->sequence_lengths.seed);
  double sequences = 0, weight = 0; /* of one pack */
  for (int i = 0; i < p.lengths->n; i++) weight += p.lengths->weight[i];
  sequences = p.room / (tokens_of(p.lengths, 0, p.lengths->n) / weight);
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
    k->late = step_late(&p, group, replicas, l->microbatches);
  }
  gsl_ran_discrete_free(p.table);
  gsl_rng_free(p.rng);
}

MsPacking ms_packing_of(const MsScenario *s, const MsLayout *l) {
  const MsTraining *t = &s->training;
  const MsLengths *lengths = &t->sequence_lengths;
  MsPacking k = {.packed = lengths->n > 0, .length = t->seq_length, .skew = 1};
  if (!k.packed) {
    k.part[k.n++] =
        (MsPackPart){.ranks = l->cp, .tokens = 1, .length = t->seq_length, .sequences = t->micro_batch_size};
    return k;
  }
  k.length = ms_packing_mean(lengths, 0, lengths->n, itself, NULL);
  if (!s->options.hybrid_context_parallel) {
    add_part(&k, t, l->cp, 0, lengths->n);
  } else {
    for (int first = 0, last; first < lengths->n && k.n < MS_MAX_PACK_PARTS; first = last) {
      int ranks = hybrid_cp_ranks(s, lengths->length[first]);
      for (last = first + 1; last < lengths->n && hybrid_cp_ranks(s, lengths->length[last]) == ranks;) last++;
      add_part(&k, t, ranks, first, last);
    }
  }
  draw(&k, s, l);
  return k;
}
