/* src/describe/fabric.h - the network between GPUs as data: key `fabric` of a machine, hence of a scenario's machine.
 *
 * Switch tiers, rails, rates, what is broken, and where ranks sit on it. A description: layout/seats.h seats the ranks,
 * fabric/graph.h makes links of it. A machine without one has an ideal network. */
#ifndef MS_DESCRIBE_FABRIC_H
#define MS_DESCRIBE_FABRIC_H

#include "describe/field.h"

typedef enum { MS_FABRIC_NONE, MS_FABRIC_FAT_TREE, MS_FABRIC_RAILS, MS_FABRIC_DRAGONFLY, MS_FABRIC_TORUS } MsFabricKind;
typedef enum { MS_ROUTE_ADAPTIVE, MS_ROUTE_ECMP } MsFabricRouting;
typedef enum { MS_SEAT_CONTIGUOUS, MS_SEAT_BY_RAIL, MS_SEAT_SCATTERED, MS_SEAT_LIST } MsSeating;

#define MS_TORUS_DIMS    4
#define MS_FABRIC_NODES  (1 << 20)
#define MS_FABRIC_BROKEN 4096 /* links that `failed` or `slow` may name */

typedef struct {
  int kind;          /* MsFabricKind */
  int nodes;         /* 0: those of the jobs */
  int jobs;          /* alike, at once, seated one after another */
  int segment_gpus;  /* that the job takes of each scale-up domain; 0: as a scheduler cuts it */
  int nics_per_node; /* 0: one for each GPU */
  int pcie_gpus;     /* behind one PCIe switch, with their share of the NICs; 0: NICs are reached without a limit */
  double pcie_Bps;   /* of a link of a PCIe switch, one direction; NaN: that of the host link */
  int rails;         /* 0: as many as a node has NICs; of MS_FABRIC_RAILS */
  int leaf_nodes;    /* below one leaf (with rails: below one leaf of each rail); 0: all */
  int leaf_uplinks;  /* 0: from oversubscription */
  double oversubscription;
  double link_Bps;   /* between switches, one direction; NaN: that of a NIC */
  int spines;        /* of a pod, of a group; 0: one for each uplink of a leaf */
  int pod_nodes;     /* of a pod, of a dragonfly's group; 0: all */
  int spine_uplinks; /* to the core, to other groups; 0: from core_oversubscription */
  double core_oversubscription;
  int switch_ports;         /* 0: not looked at */
  int torus[MS_TORUS_DIMS]; /* nodes along each dimension, 0 behind the last */
  int routing;              /* MsFabricRouting */
  int seed;                 /* of hashes and of a scattered placement */
  int paths_per_flow;       /* queue pairs, each with a hash of its own */
  JsonNode *placement;      /* NULL: contiguous; a word, or a list of nodes */
  JsonNode *failed, *slow;  /* names of links; object of name -> times as slow; NULL: none */
} MsFabric;

extern const MsFieldTable ms_fabric_table;
extern const char *const ms_fabric_kind_words[];

/* CUSTOM row of the machine's table: an object, whose keys change what is there; null: none. */
gboolean ms_fabric_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
void ms_fabric_print(MsJsonOut *out, const char *key, const void *member);

MsSeating ms_fabric_seating(const MsFabric *fabric);

#endif
