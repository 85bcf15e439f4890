/* tests/lib/unshared.h - a step in which tasks do not share anything. For tests and benchmarks. */
#ifndef MS_TESTS_UNSHARED_H
#define MS_TESTS_UNSHARED_H

#include "engine/engine.h"
#include "work/work.h"

/* The same tasks and waits on `stages` stages, but communication takes no SMs and no link; `host` FALSE: all is issued
 * ahead of time, too. (transfer full) */
MsGraph *ms_test_unshared(const MsGraph *graph, int stages, gboolean host);

#endif
