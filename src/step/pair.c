/* src/step/pair.c - a forward piece beside a backward piece with EP overlap (docs/theory/communication.md 8): in which
 * order their rows are issued.
 *
 * Each list of a pair is cut at its two crossings of the expert group: before dispatch, dispatch, experts, combine and
 * after. The cuts of the two lists are issued alternately, so that each crossing of one runs beside compute of the
 * other. What a layer does behind combine (forward) or in front of its gradient (backward) is on the stream of the
 * crossings (work/dispatch.c). */
#include "step/pair.h"
#include <string.h>

static int first_at(const MsOpList *list, int from, MsNode node, gboolean comm_only) {
  for (int i = from; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    if (op->node == node && (!comm_only || op->stream == MS_STREAM_EP)) return i;
  }
  return list->n;
}

void ms_pair_cut(const MsOpList *list, gboolean backward, int cut[MS_PAIR_NODES + 1]) {
  int again = 0; /* MindSpeed's: a checkpointed layer runs forward once more in front of its pair, beside nothing */
  while (backward && again < list->n && list->op[again].pass == MS_PASS_RECOMPUTE) again++;
  int dispatch = first_at(list, again, MS_NODE_DISPATCH, TRUE);
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
