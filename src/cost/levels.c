/* src/cost/levels.c - bytes of one row by level of the machine. */
#include <math.h>

#include "base/err.h"
#include "cost/internal.h"

/* What a rank of the emptiest domain receives: the network's part is the one that the lower bound of the row's time
 * divides by the NIC's rate. */
static void of_collective(const MsGroup *g, MsCollKind kind, double M, double local_fraction, double level_B[2]) {
  double z = g->size, inside = CLAMP(g->per_domain, 1, g->size), R = CLAMP(g->min_per_domain, 1, inside);
  double all = M * (z - 1) / z, away = g->domains > 1 ? (1 - R / z) * M / R : 0;
  switch (kind) {
  case MS_COLL_AR: all *= 2, away *= 2; break;
  case MS_COLL_A2A:
    all = M * (1 - local_fraction);
    away = g->domains > 1 ? all / (z - 1) * (z - R) : 0;
    break;
  case MS_COLL_P2P: all = M, away = g->domains > 1 ? M : 0; break;
  default: break;
  }
  level_B[0] = MAX(all - away, 0), level_B[1] = MIN(away, all);
}

static MsCollKind crossing(MsCarry carry, gboolean back) {
  switch (carry) {
  case MS_CARRY_ALL: return back ? MS_COLL_RS : MS_COLL_AG;
  case MS_CARRY_COPIES:
  case MS_CARRY_ONCE: return MS_COLL_A2A;
  }
  return MS_COLL_A2A;
}

MsCollKind ms_collective_of(MsOpKind kind, MsCarry carry) {
  switch (kind) {
  case MS_OP_ALL_GATHER: return MS_COLL_AG;
  case MS_OP_REDUCE_SCATTER: return MS_COLL_RS;
  case MS_OP_ALL_REDUCE: return MS_COLL_AR;
  case MS_OP_P2P: return MS_COLL_P2P;
  case MS_OP_DISPATCH:
  case MS_OP_COMBINE: return crossing(carry, kind == MS_OP_COMBINE);
  case MS_OP_ALL_TO_ALL: return MS_COLL_A2A;
  default: MS_BUG("no collective moves %s", ms_op_words[kind]);
  }
}

void ms_cost_level_B(const MsScenario *s, const MsLayout *layout, const MsOp *op, double level_B[3]) {
  level_B[0] = level_B[1] = level_B[2] = 0;
  if (op->kind == MS_OP_D2H || op->kind == MS_OP_H2D) {
    level_B[2] = op->message_B > 0 ? op->message_B : MAX(op->read_B, op->write_B);
    return;
  }
  const MsGroup *g = &layout->group[op->group];
  if (ms_op_families[op->kind] != MS_FAMILY_COMM || g->size <= 1 || !(op->message_B > 0)) return;
  MsCarry carry = ms_dispatcher(&s->options)->carry;
  if (ms_op_moves_tokens(op) && carry == MS_CARRY_ONCE && (op->level_B[0] > 0 || op->level_B[1] > 0)) {
    level_B[0] = g->per_domain > 1 ? op->level_B[0] : 0;
    level_B[1] = g->domains > 1 ? op->level_B[1] : 0;
    return;
  }
  double local = op->local_fraction > 0 ? MIN(op->local_fraction, 1) : 1.0 / g->size;
  of_collective(g, ms_collective_of((MsOpKind)op->kind, carry), op->message_B, local, level_B);
}
