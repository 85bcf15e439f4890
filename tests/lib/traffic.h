/* tests/lib/traffic.h - messages over a fabric for outside simulators to time, and asking one of them. */
#ifndef MS_TESTS_TRAFFIC_H
#define MS_TESTS_TRAFFIC_H

#include "fabric/pattern.h"

/* Incast, a permutation, two jobs, the exchange of experts, messages to replicas and to neighbours. */
enum { MS_TEST_TRAFFICS = 6 };
extern MsFlows *(*const ms_test_traffic[MS_TEST_TRAFFICS])(const MsFabricGraph *, const MsLayout *);

/* A C++ file of tests/oracles, compiled with these libraries ("-lx -ly") into a new folder; NULL: `header` or a
 * compiler is missing, or it does not compile. ms_test_oracle_remove removes both. */
char *ms_test_oracle_new(const char *header, const char *source, const char *libraries);
void ms_test_oracle_remove(char *program);
/* What it answers; fails the test when it cannot be run. */
char *ms_test_oracle_ask(const char *program, const char *question);

#endif
