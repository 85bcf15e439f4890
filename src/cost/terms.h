/* src/cost/terms.h - what one operator row has of everything that a curve of the form "terms" charges for
 * (cost/curve.h). */
#ifndef MS_COST_TERMS_H
#define MS_COST_TERMS_H

#include "cost/curve.h"
#include "work/work.h"

/* Pure. Rows of every family that computes; attention pairs are those that the mask leaves (from its FLOP).
 * Memory-bound rows that do not say how many rows and elements they have count bytes only. */
MsTerms ms_op_terms(const MsOp *op);

#endif
