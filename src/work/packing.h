/* src/work/packing.h - variable-length sequences packed into one (THD): what attention pays for them, on how many
 * ranks, and who waits for whom.
 *
 * A pack of seq_length tokens holds sequences of the histogram training.sequence_lengths; attention costs the sum of
 * their squares, everything else the tokens. A token stands in a sequence of length l with probability ~ weight x l:
 * means below are over tokens. Context parallelism cuts every sequence into 2 cp slices, so its ranks stay even. Packs
 * of different data-parallel ranks differ: those that share an expert group wait for each other in every MoE layer, all
 * of them at the end of the step. Both are drawn: same seed, same draw.
 *
 * Hybrid context parallelism (Megatron's --hybrid-context-parallel): a sequence of length l runs on 2^ceil(log2(l / M))
 * ranks, at least 1, instead of all cp, and the packs of all ranks are dealt out again (longest first, to the least
 * loaded ranks). */
#ifndef MS_WORK_PACKING_H
#define MS_WORK_PACKING_H

#include "layout/layout.h"

enum { MS_MAX_PACK_PARTS = 16 };

typedef struct { /* sequences that run on the same number of ranks */
  int ranks;
  int first, last;  /* lengths of the histogram, [first, last) */
  double tokens;    /* share of a rank's tokens */
  double length;    /* mean over tokens: attention costs length / 2 pairs a token */
  double sequences; /* of that mean length, in a microbatch */
} MsPackPart;

typedef struct {
  gboolean packed;
  int n;
  MsPackPart part[MS_MAX_PACK_PARTS];
  double length; /* mean over all tokens */
  double skew;   /* attention of the busiest rank that others wait for in every layer, over the mean */
  double late;   /* attention that the busiest data-parallel rank of the step has beyond that, over what all have */
} MsPacking;

/* Of a run without packing: one part, skew 1, late 0. */
MsPacking ms_packing_of(const MsScenario *scenario, const MsLayout *layout);
/* Mean over the tokens of lengths [first, last) of a function of the length of their sequence. */
double ms_packing_mean(const MsLengths *lengths, int first, int last, double (*of)(double length, const void *data),
                       const void *data);

#endif
