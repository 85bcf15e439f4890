/* src/layout/layout.h - parallel folding: one set of ranks, two grids, and which layers live where.
 *
 *   attention grid  W = TP * CP * DP * PP      rank = tp + TP (cp + CP (dp + DP pp))
 *   expert grid     W = ETP * EP * EDP * PP    rank = etp + ETP (ep + EP (edp + EDP pp))
 * (order tp-cp-ep-dp-pp; with tp-cp-ep-pp-dp the pp and dp axes change places.) Source: docs/theory/layouts.md 1-3,
 * read in Megatron-Core parallel_state.py. Everything here is arithmetic on integers: no seconds, no bytes. const after
 * resolve. */
#ifndef MS_LAYOUT_LAYOUT_H
#define MS_LAYOUT_LAYOUT_H

#include "describe/scenario.h"

/* GROUP kinds that collectives name */
typedef enum {
  MS_GROUP_NONE,
  MS_GROUP_TP,
  MS_GROUP_CP,
  MS_GROUP_DP,
  MS_GROUP_DP_CP,
  MS_GROUP_TP_CP,
  MS_GROUP_TP_DP_CP,
  MS_GROUP_PP,
  MS_GROUP_EP,
  MS_GROUP_ETP,
  MS_GROUP_TP_EP /* ETP x EP */,
  MS_GROUP_EDP,
  MS_GROUP_EMBEDDING /* stages with a copy of the word embedding: first, standalone MTP, last */,
  MS_GROUP_WORLD,
  MS_GROUP_CP_INNER,
  MS_GROUP_CP_OUTER, /* a2a+p2p: all-to-all inside, ring of those outside; of one rank otherwise */
  MS_GROUP_INTRA_DP_CP,
  MS_GROUP_INTRA_EDP,
  MS_GROUP_INTER, /* several optimizer instances: those of dp-cp and edp in one instance, and the ranks of all instances
                     that have the same shard, dense and expert alike; of one rank otherwise */
  MS_N_GROUPS
} MsGroupKind;
extern const char *const ms_group_words[]; /* none tp cp dp dp-cp tp-cp tp-dp-cp pp ep etp etp-ep edp embedding world
                                              cp-inner cp-outer intra-dp-cp intra-edp inter-instance */

/* Geometry of the worst group of one kind on the machine: ranks are placed consecutively, N = nvlink_domain_gpus. */
typedef struct {
  int size;           /* ranks in a group; 1 = no communication */
  int stride;         /* rank distance of neighbours (first two members) */
  int domains;        /* scale-up domains that the worst group touches */
  int per_domain;     /* members in the fullest domain of that group (its own included) */
  int min_per_domain; /* members in its emptiest touched domain */
  int nodes;          /* operating-system nodes touched, the most of any group */
} MsGroup;

typedef struct {               /* one virtual stage: what one model chunk holds */
  int first_layer, num_layers; /* decoder layers [first_layer, first_layer + num_layers) */
  int num_dense, num_moe;      /* of those */
  gboolean has_embedding, has_loss;
  int num_mtp; /* MTP blocks here; such a chunk also holds a copy of the word embedding unless has_embedding */
  int pool;    /* of machines, that its stage lies in; 0 where all are of one kind */
} MsChunk;

#define MS_MAX_PP 1024
typedef struct MsLayout {
  int world;                  /* W */
  int tp, cp, dp, pp, vpp;    /* t c d p v; v resolved: from the string, 2 for the V schedules and dualpipe */
  int cp_inner;               /* ranks of a CP group that exchange heads (describe/cp_comm.h) */
  int ep, etp, edp;           /* e u q */
  int instances;              /* of the distributed optimizer: runs of neighbours among the data-parallel ranks */
  int microbatches;           /* m per DP replica and step */
  int flush;                  /* microbatches between two flushes of the pipeline: m but for local_batch_size */
  int group_size;             /* N: microbatches per virtual-pipeline group */
  gboolean sequence_parallel; /* resolved: never TRUE when tp == 1 */
  MsRankOrder order;
  int num_chunks;  /* pp * vpp, index chunk * pp + stage; the V schedules and dualpipe place layers as sched.h does */
  MsChunk *chunks; /* owned */
  gboolean mtp_standalone;           /* MTP not on the last pipeline stage */
  MsGroup group[MS_N_GROUPS];        /* with pools: as in pool 0 */
  gboolean pp_closes;                /* the last stage sends to the first: interleaved, of more than two stages */
  guint64 pp_across[MS_MAX_PP / 64]; /* bit of a stage: messages between it and the next (of the last: and the first)
                                        pass from one scale-up domain to another in some pipeline; with pools: in 0 */
  /* Machines of several kinds: the same layout as the stages of each pool see it, its groups lying on that pool's
   * machine; groups that span pools touch two of its domains at least. Chunks are shared. */
  int n_pools;              /* 0: one kind */
  struct MsLayout *of_pool; /* [n_pools] owned */
  /* Pools of replicas: the layout is as the scenario's own pool sees it, and this as the others do. */
  int n_beside;
  struct MsLayout *beside; /* [n_beside] owned; the own one is not used */
} MsLayout;

static inline const MsChunk *ms_layout_chunk(const MsLayout *l, int stage, int chunk) {
  return &l->chunks[chunk * l->pp + stage];
}

static inline int ms_layout_pool(const MsLayout *l, int stage) { return l->chunks[stage].pool; }
/* What costs of a stage are of. */
static inline const MsLayout *ms_layout_on(const MsLayout *l, int pool) {
  return l->n_pools > 0 ? &l->of_pool[pool] : l;
}
/* The stage whose bit in pp_across, and whose place in tables by pair of neighbours, is that of a message between these
 * two; -1: they are no neighbours. */
static inline int ms_layout_pair(const MsLayout *l, int from, int to) {
  int low = MIN(from, to), high = MAX(from, to);
  return high - low == 1 ? low : low == 0 && high == l->pp - 1 && high > 0 ? high : -1;
}
/* A message between two stages of the pool that the layout is of passes over the network. */
static inline gboolean ms_layout_message_crosses(const MsLayout *l, int from, int to) {
  int pair = ms_layout_pair(l, from, to);
  return l->group[MS_GROUP_PP].domains > 1 && (pair < 0 || l->pp_across[pair / 64] >> pair % 64 & 1);
}
/* A message from a stage of one pool to one of another: between nodes, whatever stages of the same pool lie on. */
MsGroup ms_group_between_pools(const MsGroup *group);
/* Collectives over such a group meet all stages. */
static inline gboolean ms_group_spans_stages(MsGroupKind kind) {
  return kind == MS_GROUP_PP || kind == MS_GROUP_EMBEDDING || kind == MS_GROUP_WORLD;
}

/* Collectives over such a group meet all replicas. */
static inline gboolean ms_group_spans_replicas(MsGroupKind kind) {
  return kind == MS_GROUP_DP || kind == MS_GROUP_DP_CP || kind == MS_GROUP_TP_DP_CP || kind == MS_GROUP_EDP ||
         kind == MS_GROUP_WORLD || kind == MS_GROUP_INTRA_DP_CP || kind == MS_GROUP_INTRA_EDP || kind == MS_GROUP_INTER;
}

/* Over which gradients of dense or expert parameters are reduced into shards, and parameters gathered from them: all
 * data-parallel ranks, or those of an optimizer instance. */
static inline MsGroupKind ms_layout_shards_in(const MsLayout *l, gboolean expert) {
  return l->instances > 1 ? (expert ? MS_GROUP_INTRA_EDP : MS_GROUP_INTRA_DP_CP)
                          : (expert ? MS_GROUP_EDP : MS_GROUP_DP_CP);
}

/* --- refusal: which rule, and why ------------------------------------------------------------------------------ */
typedef struct {
  int rule;      /* index into ms_rules; -1 = accepted */
  char why[192]; /* "EP 7 does not divide 256 experts" */
} MsRefusal;

/* What a rule reads, so that a planner asks it once for all layouts that agree in that */
typedef enum {
  MS_RULE_RANKS = 1 << 0,    /* anything: sizes, batch, options */
  MS_RULE_PIPELINE = 1 << 1, /* what MS_RULE_SPLIT does, and microbatches: of a step, and between two flushes */
  MS_RULE_SPLIT = 1 << 2,    /* model, pp, vpp and the other keys of `layout`, but not gpus, tp, cp, ep, etp */
  MS_RULE_OPTIONS = 1 << 3,  /* model, hardware, training and options, `layout.schedule`: no sizes of groups, no
                                batch */
} MsRuleKind;

typedef struct MsRule MsRule;
struct MsRule {
  const char *name; /* stable word: "ep-divides-experts" */
  const char *path; /* key of the scenario it speaks about, for messages: "layout.ep" */
  int number;       /* of docs/theory/layouts.md section 4, 0 = ours */
  const char *doc;  /* the rule in one sentence */
  /* TRUE when the scenario obeys it; otherwise writes `why` (size 0: does not). No allocation. May rely on the rows
   * above. */
  gboolean (*holds)(const MsScenario *scenario, char *why, size_t size);
  MsRuleKind kind;
  const char *reads; /* keys beside model, hardware and sizes, with spaces between; one of an object: all in it */
};
extern const MsRule ms_rules[];
extern const int ms_num_rules;
/* Its verdict may depend on the key (or, of an object, on some key in it). */
gboolean ms_rule_reads(const MsRule *rule, const char *path);

/* All rules in order; FALSE with the first that does not hold. Division-free safe for any field values in range. */
gboolean ms_layout_check(const MsScenario *scenario, MsRefusal *refusal);

/* The verdict of the rules of some kinds: -1, or the first that does not hold. */
int ms_layout_check_kinds(const MsScenario *scenario, guint kinds);

/* Builds the layout of a scenario that is known to obey the rules; for its chunks and what its pieces are alone those
 * of MS_RULE_SPLIT are enough. (transfer full) */
MsLayout *ms_layout_build(const MsScenario *scenario);
/* Builds the layout. NULL with *refusal when a rule does not hold (refusal may be NULL). (transfer full) */
MsLayout *ms_layout_new(const MsScenario *scenario, MsRefusal *refusal);
void ms_layout_free(MsLayout *layout);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsLayout, ms_layout_free)
/* The same with the refusal turned into `file: layout.ep: ... (rule ep-divides-experts)`. */
MsLayout *ms_layout_new_or_error(const MsScenario *scenario, GError **error);

/* Chunks per pipeline rank. Some schedules always have two; else the string decides, else layout.vpp.
 * -1 when the pipeline layout string cannot be read or does not fit pp. */
int ms_layout_chunks_per_rank(const MsScenario *scenario);
int ms_layout_flush(const MsScenario *scenario, int microbatches); /* between two flushes, of those of a replica */
/* What the schedule of a layout is built for; times are 1. */
MsScheduleNumbers ms_layout_schedule_numbers(const MsScenario *scenario, const MsLayout *layout);
/* Virtual stages that the model is cut into: pp * chunks per rank, over the copies that the ranks hold. */
gint64 ms_layout_virtual_stages(const MsScenario *scenario, int chunks_per_rank);

/* --- pieces used by the above and by tests --------------------------------------------------------------------- */
/* Coordinates of `rank` in one grid (expert FALSE: tp cp dp pp; TRUE: etp ep edp pp). */
void ms_rank_coords(const MsLayout *layout, gboolean expert, int rank, int coord[4]);
int ms_rank_of(const MsLayout *layout, gboolean expert, const int coord[4]);
int ms_rank_stage(const MsLayout *layout, int rank);
/* Members of the group of `kind` that holds `rank`, ascending; returns their number (<= capacity written). */
int ms_group_members(const MsLayout *layout, MsGroupKind kind, int rank, int *members, int capacity);
/* GPUs that a job of `world` ranks takes of each scale-up domain: the largest whole number of nodes, at least half a
 * domain, that divides the job evenly; the whole domain when none does. */
int ms_gpus_per_domain(const MsHardware *hardware, int world);
/* Geometry of groups {o + i*stride, 0 <= i < size} over all valid starts of a world of `world` ranks, with scale-up
 * domains of `domain` and nodes of `node` of them. */
MsGroup ms_group_geometry(int world, int size, int stride, int domain, int node);

/* Parses a pipeline layout string ("Et*3|(tt|)*29,m|L", docs/theory/layouts.md 5) into virtual stages. Returns a new
 * array of *num_chunks with first_layer/num_layers/has_embedding/has_loss/num_mtp set (num_dense/num_moe not), or NULL
 * with why. */
MsChunk *ms_pipeline_layout_parse(const char *text, int *num_chunks, char *why, size_t size);
/* Inverse, in the shortest form with repeats. (transfer full) */
char *ms_pipeline_layout_text(const MsChunk *chunks, int num_chunks);
/* TRUE when the stages could be said by decoder_first_ and decoder_last_pipeline_num_layers alone: *first and *last
 * layers, 0 where the stage has as many as those between. FALSE where VPP goes with them, a stage in between differs,
 * an end has no layer, or MTP blocks are not with the loss. */
gboolean ms_layout_said_by_ends(const MsScenario *scenario, int *first, int *last);

#endif
