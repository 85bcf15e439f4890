/* src/step/pair.c - a forward chunk beside a backward chunk with EP overlap (docs/theory/communication.md 8): which
 * pieces go in pairs, and in which order the rows of a pair are issued.
 *
 * Each list of a pair is cut at its two crossings of the expert group: before dispatch, dispatch, experts, combine and
 * after. The cuts of the two lists are issued alternately, so that each crossing of one runs beside compute of the
 * other. What a layer does behind combine (forward) or in front of its gradient (backward) is on the stream of the
 * crossings (work/dispatch.c). */
#include "step/pair.h"
#include <string.h>

/* --- pieces --- */

MsPairWalk ms_pair_walk(const MsChunk *f, const MsChunk *b) {
  return (MsPairWalk){.forward = f, .backward = b, .next_b = ms_work_chunk_length(b) - 1, .f = -1, .b = -1};
}

static gboolean is_layer(const MsChunk *c, int i) {
  int first = c->has_embedding ? 1 : 0;
  return i >= first && i < first + c->num_layers + c->num_mtp;
}

/* The ends of the chunks alone, layers in pairs, first forward layer with last backward layer. */
gboolean ms_pair_step(MsPairWalk *w) {
  gboolean any_f = w->next_f < ms_work_chunk_length(w->forward), any_b = w->next_b >= 0;
  gboolean f_layer = any_f && is_layer(w->forward, w->next_f), b_layer = any_b && is_layer(w->backward, w->next_b);
  gboolean pair = f_layer && b_layer, embeds = any_f && !f_layer && w->next_f == 0 && w->forward->has_embedding;
  gboolean lone_b = !pair && any_b && !embeds;
  w->b = pair || lone_b ? w->next_b-- : -1;
  w->f = any_f && !lone_b ? w->next_f++ : -1;
  return any_f || any_b;
}

/* --- rows --- */

static int first_at(const MsOpList *list, int from, MsNode node, gboolean comm_only) {
  for (int i = from; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    if (op->node == node && (!comm_only || op->stream == MS_STREAM_EP)) return i;
  }
  return list->n;
}

void ms_pair_cut(const MsOpList *list, gboolean backward, int cut[MS_PAIR_NODES + 1]) {
  int dispatch = first_at(list, 0, MS_NODE_DISPATCH, TRUE);
  int experts = first_at(list, dispatch, MS_NODE_EXPERTS, FALSE),
      combine = first_at(list, experts, MS_NODE_COMBINE, TRUE);
  if (dispatch == list->n) { /* a dense layer: no crossings; everything is the outer segment */
    int outer = backward ? 3 : 0;
    for (int s = 0; s <= MS_PAIR_NODES; s++) cut[s] = s <= outer ? 0 : list->n;
    return;
  }
  /* forward: A | D | M | C and after. backward: to dispatch | M | combine | rest */
  const int forward_cut[] = {0, dispatch, experts, combine, list->n};
  int behind = combine; /* of an exchange that sorts by itself, the rows in front of it are its own */
  while (behind < list->n && list->op[behind].node == MS_NODE_COMBINE && list->op[behind].stream == MS_STREAM_EP)
    behind++;
  const int backward_cut[] = {0, experts, combine, behind, list->n};
  memcpy(cut, backward ? backward_cut : forward_cut, sizeof forward_cut);
}

typedef struct {
  const MsOpList *list[2];
  int cut[2][MS_PAIR_NODES + 1], n;
  MsPairRow *order;
} Issue; /* [0] forward, [1] backward */

typedef enum { EVERY_ROW, ALL_BUT_WEIGHTS, WEIGHTS_ONLY } Which;

static void issue(Issue *o, gboolean backward, int segment, Which which) {
  for (int i = o->cut[backward][segment]; i < o->cut[backward][segment + 1]; i++) {
    gboolean weight = o->list[backward]->op[i].pass == MS_PASS_WGRAD;
    if (which == EVERY_ROW || weight == (which == WEIGHTS_ONLY)) o->order[o->n++] = (MsPairRow){backward, i};
  }
}

int ms_pair_order(const MsOpList *f, const MsOpList *b, gboolean delay_wgrad, MsPairRow *order) {
  Issue o = {.list = {f, b}, .order = order};
  Which now = delay_wgrad ? ALL_BUT_WEIGHTS : EVERY_ROW;
  ms_pair_cut(f, FALSE, o.cut[0]), ms_pair_cut(b, TRUE, o.cut[1]);
  issue(&o, TRUE, 0, now);
  issue(&o, FALSE, 0, EVERY_ROW);
  issue(&o, TRUE, 1, now);
  issue(&o, FALSE, 1, EVERY_ROW);
  if (delay_wgrad) issue(&o, TRUE, 1, WEIGHTS_ONLY); /* of the experts: they hide the next crossing */
  issue(&o, TRUE, 2, EVERY_ROW);
  issue(&o, FALSE, 2, EVERY_ROW);
  issue(&o, FALSE, 3, EVERY_ROW);
  issue(&o, TRUE, 3, now);
  if (delay_wgrad) issue(&o, TRUE, 0, WEIGHTS_ONLY), issue(&o, TRUE, 3, WEIGHTS_ONLY);
  return o.n;
}
