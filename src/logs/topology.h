/* src/logs/topology.h - a fabric from what clusters say of themselves.
 *
 *   slurm-topology  topology.conf of Slurm's topology/tree: switches, the nodes and switches below them
 *   ibnetdiscover   what InfiniBand's tool of that name prints: switches, their links, HCAs of nodes; leaves, spines
 *                   and core are found by what leads to what, groups of a dragonfly+ by spines that are joined
 *   nccl-topo       the XML of NCCL_TOPO_DUMP_FILE: GPUs and NICs of one node
 *
 * What comes out is text of a machine: {"base": NAME, "fabric": {...}}, keys of describe/fabric.h. */
#ifndef MS_LOGS_TOPOLOGY_H
#define MS_LOGS_TOPOLOGY_H

#include <glib.h>

typedef enum { MS_TOPOLOGY_SLURM, MS_TOPOLOGY_IB, MS_TOPOLOGY_NCCL } MsTopologyForm;

/* `base`: machine that the keys change, NULL: none is named. `nodes`: list of the job's nodes as Slurm writes it
 * ("node[0-3,7]"), which becomes the placement; NULL: none. notes: char *, what the file does not say. NULL and an
 * MS_ERROR_INPUT with the line. (transfer full) */
char *ms_topology_machine(MsTopologyForm form, const char *text, const char *file, const char *base, const char *nodes,
                          GPtrArray *notes, GError **error);

/* Names of a list as Slurm writes it, in its order. NULL and `why` when it cannot be read or names more than `most`.
 * (transfer full) */
GPtrArray *ms_host_list(const char *list, guint most, char **why);

#endif
