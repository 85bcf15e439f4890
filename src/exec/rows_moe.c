/* src/exec/rows_moe.c - router, dispatch, experts, combine. */
#include "exec/exec_priv.h"

struct Routing { int unused; };
void ms_exec_routing_free(Routing *routing) { g_free(routing); }

const Handler ms_exec_moe_rows[] = {{0}};
