/* src/describe/routing.h - how tokens spread over experts: the key training.routing. */
#ifndef MS_DESCRIBE_ROUTING_H
#define MS_DESCRIBE_ROUTING_H

#include "describe/field.h"

typedef enum {
  MS_ROUTING_BALANCED,
  MS_ROUTING_NATURAL,
  MS_ROUTING_ZIPF,
  MS_ROUTING_DIRICHLET,
  MS_ROUTING_CAPACITY,
  MS_ROUTING_HISTOGRAM,
  MS_ROUTING_ROUND_ROBIN /* no router: token t of a rank goes to experts t k to t k + k - 1, modulo their number (NeMo
                            AutoModel's FakeBalancedGate, components/moe/layers.py) */
} MsRoutingKind;

/* A user's file of tokens per expert: {"schema": 1, "tokens": [[E numbers], ...]}, one list for every MoE layer in
 * order, or one list for all. const after load, shared by the copies of a scenario. */
typedef struct {
  gatomicrefcount refs;
  char *name; /* as the scenario writes it */
  int layers, experts;
  double *tokens; /* [layers][experts], each layer's sum > 0 */
} MsHistogram;
extern const MsFieldTable ms_histogram_table; /* of the file */
MsHistogram *ms_histogram_parse(const MsJson *doc, const char *name, GError **error);
MsHistogram *ms_histogram_ref(MsHistogram *histogram); /* NULL is fine */
void ms_histogram_unref(MsHistogram *histogram);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsHistogram, ms_histogram_unref)

typedef enum {
  MS_PLACEMENT_INDEX /* experts in blocks, by number */,
  MS_PLACEMENT_LOAD /* the most loaded first, on the least loaded rank */
} MsExpertPlacement;

typedef struct {
  MsRoutingKind kind;
  double skew; /* zipf exponent or dirichlet concentration */
  guint32 seed;
  double capacity_factor; /* kind CAPACITY */
  gboolean pad_to_capacity, forced_balance;
  MsHistogram *histogram; /* kind HISTOGRAM, else NULL */
  /* what-ifs of the drawn kinds (zipf, dirichlet, histogram) */
  double bias_update_rate; /* aux-loss-free balancing: step of the experts' biases; 0 = none */
  int bias_updates;        /* steps it has had */
  int replicas;            /* further copies of busy experts in the whole expert group */
  int placement;           /* MsExpertPlacement */
} MsRouting;

gboolean ms_routing_is_drawn(const MsRouting *routing);
/* CUSTOM row of a table: parse and print of an MsRouting. What it owns is freed and copied by the scenario. */
gboolean ms_routing_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
void ms_routing_print(MsJsonOut *out, const char *key, const void *member);
extern const MsFieldTable ms_routing_table; /* of the object */

#endif
