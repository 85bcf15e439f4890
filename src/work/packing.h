/* src/work/packing.h - variable-length sequences packed into one (THD): what attention pays for them, on how many
 * ranks, and who waits for whom.
 *
 * A pack of seq_length tokens holds sequences of the histogram training.sequence_lengths; attention costs the sum of
 * their squares, everything else the tokens. A pack is filled with sequences drawn one after the other; the last is cut
 * where the pack ends, so no pack costs more than one unbroken sequence. Means below are over the tokens of such packs.
 * Context parallelism cuts every sequence into 2 cp slices, so its ranks stay even. Packs of different data-parallel
 * ranks differ: those that share an expert group wait for each other in every MoE layer, all of them at the end of the
 * step. Both are drawn: same seed, same draw. The rank that a step shows is the one that all wait for.
 *
 * Hybrid context parallelism (Megatron's --hybrid-context-parallel): a sequence of length l runs on 2^ceil(log2(l / M))
 * ranks, at least 1, instead of all cp, and the packs of all ranks are dealt out again (longest first, to the least
 * loaded ranks). */
#ifndef MS_WORK_PACKING_H
#define MS_WORK_PACKING_H

#include "layout/layout.h"

enum { MS_MAX_PACK_PARTS = 16, MS_MAX_PACK_LENGTHS = 2 * MS_MAX_LENGTHS };

typedef struct { /* lengths in packs, cut ones too; alike ones as one of their mean */
  int n;
  double length[MS_MAX_PACK_LENGTHS]; /* ascending */
  double tokens[MS_MAX_PACK_LENGTHS]; /* share that stands in them */
} MsPackLengths;

typedef struct { /* sequences that run on the same number of ranks */
  int ranks;
  int first, last;  /* of lengths, [first, last) */
  double tokens;    /* share of a rank's tokens */
  double length;    /* mean over tokens of the rank that ends last: attention costs length / 2 pairs a token */
  double sequences; /* of that mean length, in a microbatch */
} MsPackPart;

typedef struct {
  gboolean packed;
  gboolean dealt; /* out again over all ranks: hybrid context parallelism */
  MsPackLengths lengths;
  int n;
  MsPackPart part[MS_MAX_PACK_PARTS];
  double whole;  /* tokens of an unbroken sequence */
  double mean;   /* length, over all tokens */
  double length; /* the same of the rank that ends last; hybrid: as `mean` */
  double skew;   /* attention of the busiest rank that others wait for in every layer, over the mean */
  double late;   /* attention that the busiest data-parallel rank of the step has beyond that, over what all have */
} MsPacking;

/* Of a run without packing: one part, skew 1, late 0. */
MsPacking ms_packing_of(const MsScenario *scenario, const MsLayout *layout);
/* Expected of a pack; of a run without packing seq_length alone. Cut lengths on both sides of `mark` x 2^i stay apart.
 */
MsPackLengths ms_pack_lengths(const MsTraining *training, double mark);
/* Mean over the tokens of lengths [first, last) of a function of the length of their sequence. */
double ms_packing_mean(const MsPackLengths *lengths, int first, int last, double (*of)(double length, const void *data),
                       const void *data);
/* What the busiest rank has of something that packs have `mean` of and an unbroken sequence `whole`: as far from the
 * one to the other as its squares are. */
double ms_packing_busiest(const MsPacking *packing, double mean, double whole);

#endif
