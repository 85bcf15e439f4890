/* src/work/routing.h - skewed routing: the rows that every rank of an expert group gets in every layer.
 *
 * Popularity of the experts of a layer: zipf, p_j ~ j^-skew over a random order; dirichlet, all concentrations `skew`;
 * histogram, the user's counts. No expert can get more than one visit of every token. Aux-loss-free balancing (arXiv
 * 2408.15664) moves each expert's bias by `bias_update_rate` against its load, `bias_updates` times; a bias adds to the
 * logarithm of the popularity. Experts are placed in blocks by number, or by popularity (greedy: the largest first, on
 * the least loaded rank that has a place); replicas are given one by one to the expert with most tokens a copy, which
 * then share its tokens evenly. The tokens of the expert group are drawn last, one multinomial a layer. Same seed, same
 * draw. */
#ifndef MS_WORK_ROUTING_H
#define MS_WORK_ROUTING_H

#include "layout/layout.h"

typedef struct {
  int layers;   /* decoder layers of the model, and one that stands for its MTP blocks */
  int ranks;    /* of an expert group */
  double mean;  /* routed rows of a rank and microbatch when all get the same */
  double *rows; /* [layers][ranks]; a layer without experts has 0 */
} MsRoutingDraw;

/* NULL without *error: nothing to draw (balanced, natural, token drop, one rank, no experts). NULL with *error
 * (MS_ERROR_INPUT): the histogram is of another model, or the replicas cannot be spread evenly. rows_sp: tokens of a
 * rank. `like`: a draw for `like_scenario`, or NULL; where the same would be drawn it is that one once more. (transfer
 * full) */
MsRoutingDraw *ms_routing_draw(const MsScenario *scenario, const MsLayout *layout, double rows_sp, MsRoutingDraw *like,
                               const MsScenario *like_scenario, GError **error);
void ms_routing_draw_free(MsRoutingDraw *draw);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsRoutingDraw, ms_routing_draw_free)

double ms_routing_hottest(const MsRoutingDraw *draw,
                          int layer); /* rows of the rank that gets most: the others wait for it */
/* The rank that gets most (or least) of all layers of a stage together: whose memory peaks highest (lowest).
 * member[layers]: layers of the stage. */
int ms_routing_extreme_rank(const MsRoutingDraw *draw, const guint8 *member, gboolean least);

#endif
