/* src/plan/plan_priv.h - internal to plan/: the space, candidates and their bounds, refusals, and the pieces of the
 * search. */
#ifndef MS_PLAN_PRIV_H
#define MS_PLAN_PRIV_H

#include "base/io.h"
#include "bound/bound.h"
#include "plan/plan.h"

/* FNV-1a over 32-bit words, for tables whose keys are structs of integers. */
static inline guint ms_hash_words(const gint32 *word, size_t n) {
  guint h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (guint)word[i]) * 16777619u;
  return h ^ h >> 15;
}

/* --- the space: axes of integers times choices of everything else that is open (space.c, choices.c) ------------ */
typedef struct {
  int n, *value;
} MsIntAxis; /* ascending, owned */

enum { MS_AXIS_GPUS, MS_AXIS_TP, MS_AXIS_CP, MS_AXIS_EP, MS_AXIS_ETP, MS_AXIS_MBS, MS_AXIS_PP, MS_AXIS_VPP, MS_N_AXES };
enum { MS_N_OUTER = MS_AXIS_PP };         /* the axes before pp: what pieces of work depend on */
extern const char *const ms_axis_paths[]; /* "gpus", "layout.tp", ... */

/* What the values of an open key change, the most first: combinations that differ only in the later
 * kinds share what the bound computes */
typedef enum {
  MS_ROLE_WORK,    /* any row of the pieces */
  MS_ROLE_KERNELS, /* rows, but no matrix product */
  MS_ROLE_BESIDE,  /* no compute row: messages, and what runs beside what */
  MS_ROLE_ADDED,   /* rows or kept bytes on top of those of "none" (recompute, offloading, graphs) */
  MS_ROLE_SHAPE,   /* no row: which pieces stand where, in which order their passes come, how far messages go
                    */
  MS_ROLE_STATE,   /* bytes of parameters, gradients and optimizer states, what follows the gradient norm;
                      not the first bound of the time */
  MS_ROLE_BLIND,   /* neither: what only the second bound and the simulation see */
  MS_N_ROLES
} MsRole;

typedef struct { /* one value of one open key, ready to be written into a scenario */
  union {
    int i;
    guint32 bits;
    double f;
    MsRecomputeSpec recompute;
  } value;
  char *text; /* strings */
} MsPatch;

typedef struct {
  const MsOpenKey *open;
  MsRole role;
  gboolean in_rules; /* some rule reads it together with the axes */
  size_t offset;     /* of the member in MsScenario */
  size_t size;       /* 0: a string */
  int n;
  MsPatch *value;
  gint64 stride; /* combinations of the choices behind it in the space */
} MsChoice;

MsRole ms_role_of_key(const char *path);
/* A key of MS_ROLE_WORK that no piece depends on: only cuts, states and what follows the gradient norm do. */
gboolean ms_key_leaves_pieces(const char *path);

/* NULL and *error for an "auto" that has no candidates of its own. Appends to `choice`. */
gboolean ms_choice_init(MsChoice *choice, const MsRequest *request, const MsOpenKey *open, GError **error);
void ms_choice_clear(MsChoice *choice);
/* What "auto" tries for options.recompute; FALSE past the last. */
gboolean ms_recompute_candidate(const MsScenario *scenario, int i, MsRecomputeSpec *spec);
void ms_choice_apply(const MsChoice *choice, int value, MsScenario *scenario);

typedef struct MsPieceMemo
    MsPieceMemo; /* pieces of one setting of the outer axes and the work keys, costed once (memo.c) */

typedef struct { /* the request taken apart */
  const MsRequest *request;
  MsIntAxis axis[MS_N_AXES];
  MsOpenKey cut; /* layout.pipeline_layout, where the request does not say */
  struct MsCuts *cuts;
  const MsPieceMemo *like; /* the search's first pieces, borrowed: others share their kernel curves */
  int n_choices;           /* by role, in the order of MsRole */
  MsChoice *choice;
  gint64 n_of_role[MS_N_ROLES]; /* combinations of the choices of one role */
  gint64 stride[MS_N_ROLES]; /* combinations of the choices of all later roles: a combination is the sum of stride x the
                              * role's own; in each the last choice varies fastest */
  gint64 n_combos;
  /* what rules see of a combination; only after ms_space_tabulate */
  int n_classes;        /* combinations of the choices that rules read together with the axes */
  guint16 *class_of;    /* [n_combos] */
  gint16 *refused_by;   /* [n_combos] rule that refuses it whatever the axes are, -1 = none */
  guint32 *class_count; /* [n_classes] combinations that no such rule refuses */
  int *class_example;   /* [n_classes] one of them, -1 = none */
} MsSpace;

/* With `shared` FALSE every open key counts as one of MS_ROLE_WORK: nothing is shared between combinations. */
MsSpace *ms_space_new(const MsRequest *request, gboolean shared, GError **error);
void ms_space_free(MsSpace *space);
double ms_space_size(const MsSpace *space);
/* The last role of the open keys that a rule reads: its verdict is settled with them and, if it is of that kind, the
 * sizes. MS_ROLE_WORK where it reads none. */
MsRole ms_latest_role_read(const MsSpace *space, const MsRule *rule);
/* A unit is one setting of the outer axes, an inner one of pp and vpp: how many there are, and their values. */
int ms_space_units(const MsSpace *space);
void ms_space_unit(const MsSpace *space, int unit, gint32 *value); /* the inner axes: their first values */
int ms_space_inners(const MsSpace *space);
void ms_space_inner(const MsSpace *space, int inner, gint32 *value);
/* The planner's own candidates of an axis and what the scenario has, ascending. `axis` is empty; its values are the
 * caller's. */
void ms_axis_candidates(const MsScenario *scenario, int which, MsIntAxis *axis);
/* Asks the rules about options of every combination. FALSE when there are too many for a table. */
gboolean ms_space_tabulate(MsSpace *space);

typedef struct {
  gint32 value[MS_N_AXES];
  gint64 combo;
  MsTime bound; /* of the step */
  double cost;  /* of the objective, for that bound */
} MsCandidate;

/* A scenario to write candidates into: model and hardware are borrowed from the request. (transfer full) */
MsScenario *ms_space_scratch(const MsSpace *space);
void ms_space_apply_combo(const MsSpace *space, gint64 combo, MsScenario *scenario);
void ms_space_apply_choices(const MsSpace *space, MsRole role, gint64 combo,
                            MsScenario *scenario); /* those of one role */
void ms_space_apply_axes(const gint32 *value, MsScenario *scenario);
/* "options.fsdp", say, is open. */
gboolean ms_request_leaves_open(const MsRequest *request, const char *path);
/* Both, and the pipeline layout: the complete scenario of a candidate, named. `memo` as in ms_cut_costs. (transfer
 * full) */
MsScenario *ms_candidate_scenario(const MsSpace *space, const MsCandidate *candidate, MsPieceMemo *memo);
int ms_candidate_compare(const void *a, const void *b); /* by cost of the bound, then bound, then values */
/* Number of the combination's values of keys of MS_ROLE_SHAPE. */
int ms_space_shape_of(const MsSpace *space, gint64 combo);

/* A combination whose choices make no difference with these axes (cp_comm_type with CP 1): another combination, the one
 * with the key's first value, stands for it. `scenario` has both written in. */
gboolean ms_space_same_as_another(const MsSpace *space, gint64 combo, const MsScenario *scenario);
/* The same as far as keys before MS_ROLE_STATE go. */
gboolean ms_space_same_as_another_shape(const MsSpace *space, gint64 combo, const MsScenario *scenario);
/* As far as keys before `before` go, MS_ROLE_SHAPE at most: these look at the outer axes alone. */
gboolean ms_space_idle_before(const MsSpace *space, gint64 combo, const MsScenario *scenario, MsRole before);

/* --- layers to virtual stages (partition.c, layer_costs.c, cuts.c, cut_store.c) --------------------------------- */
/* What each layer takes, forward and backward; the embedding (first), the head with its loss (last), and all MTP
 * blocks. Any unit. */
typedef struct MsLayerCosts {
  int layers;
  double *layer, first, last, mtp;
  int n_others;                        /* pools behind the first: what the same costs on their machines */
  struct MsLayerCosts **other;         /* [n_others] */
  struct MsLayerCosts *dense, *expert; /* of the same, owned: parameters of a GPU; NULL: not counted */
  struct MsLayerCosts *bare, *host;    /* with pieces and no pools: the costs are the larger of what they take and of
                                          what the host takes to issue them; owned, NULL: not told apart */
} MsLayerCosts;
/* All costs one after the other: those of the layers, then first, last and mtp. */
static inline int ms_layer_costs_count(const MsLayerCosts *c) { return c->layers + 3; }
static inline double *ms_layer_cost(MsLayerCosts *c, int i) {
  return i < c->layers ? &c->layer[i] : i == c->layers ? &c->first : i == c->layers + 1 ? &c->last : &c->mtp;
}
MsLayerCosts *ms_layer_costs_blank(int layers); /* nothing costs anything */
MsLayerCosts *ms_layer_costs_new(MsPieceMemo *memo,
                                 const MsScenario *scenario); /* picoseconds; NULL memo: by FLOP, in layers */
MsLayerCosts *ms_layer_costs_flat(const MsScenario *scenario,
                                  const MsPieceMemo *like); /* of the scenario's pieces without a pipeline */
/* In units of the last layer; the embedding, the head and the MTP blocks, and all other layers together, are within a
 * `quantum` each. */
/* With pools: those of the other machines in units of a layer on the first, to a 128th. */
MsLayerCosts *ms_layer_costs_rounded(const MsLayerCosts *costs, double quantum);
GBytes *ms_layer_costs_bytes(const MsLayerCosts *costs); /* equal when the costs are */
void ms_layer_costs_free(MsLayerCosts *costs);
/* As they would have to be for cuts balanced by cost to give the pools layers by their memory, to a `share` of that: 0
 * by time, 1 in proportion to memory. (transfer full) */
MsLayerCosts *ms_layer_costs_by_memory(const MsLayerCosts *costs, const MsPools *pools, double share);

typedef struct { /* the virtual stages that a model is cut into */
  int n, ranks;
  const int *rank;    /* [n] where each stands */
  const int *pool;    /* [ranks] on which machine; NULL: all are alike */
  gboolean mtp_apart; /* the MTP blocks stand on the stage before the loss, which stands alone; else with it */
} MsStages;
/* The last that may have decoder layers. */
static inline int ms_stages_last(const MsStages *on) { return on->n - 1 - (on->mtp_apart ? 1 : 0); }
/* What stage k has beside decoder layers. */
static inline double ms_layer_costs_ends(const MsLayerCosts *c, const MsStages *on, int k) {
  return (k == 0 ? c->first : 0) + (k == on->n - 1 ? c->last : 0) + (k == ms_stages_last(on) ? c->mtp : 0);
}
/* What layers cost on stage k. */
static inline const MsLayerCosts *ms_layer_costs_at(const MsLayerCosts *c, const MsStages *on, int k) {
  int pool = on->pool && c->n_others > 0 ? on->pool[on->rank[k]] : 0;
  return pool > 0 ? c->other[pool - 1] : c;
}
/* Cuts, the decoder layers of each stage: counts[n_slacks][n]. The dearest rank costs least, then, when no rank may
 * cost more than (1 + slack) of that, the dearest stage. How many there are: one for each slack; of mixed layers
 * (partition.c) one for all; 0 when there are too few layers. Layers that equal stages cannot share stand behind, where
 * fewer are kept; in `front`, [n] or NULL, in front, for the first slack; front[0] -1: there is no such cut.
 * Deterministic. */
int ms_partition_by_cost(const MsLayerCosts *costs, const MsStages *stages, const double *slack, int n_slacks,
                         int *counts, int *front);
void ms_stage_costs(const MsLayerCosts *costs, const MsStages *stages, const int *counts, double *cost /* [n] */);
/* The layout string of such a partition. (transfer full) */
char *ms_partition_text(const int *counts, int stages, int mtp, gboolean mtp_apart);

typedef struct MsCuts MsCuts; /* those made so far, of all threads */
MsCuts *ms_cuts_new(void);
void ms_cuts_free(MsCuts *cuts);
/* Number of what the layers of a scenario cost, which has the axes and the combination written in; -1: nothing is left
 * to the planner. `memo`: pieces of the combination that do not depend on the cut; NULL: they are made. */
int ms_cut_costs(const MsSpace *space, const gint32 *value, gint64 combo, MsPieceMemo *memo,
                 const MsScenario *scenario);
/* The planner's own cuts of a layout: balanced by what a step costs, or the first and the second of the ways in which
 * the layers, counted, divide; where there is no second one, balanced by the passes alone. */
typedef enum { MS_CUT_BALANCED, MS_CUT_EVEN, MS_CUT_OTHER, MS_N_CUTS } MsCut;
/* With pools also: from that by time step by step to one by memory, which layers fit into that do not into the first.
 */
enum { MS_CUT_MEMORY_STEPS = 4, MS_N_POOL_CUTS = MS_N_CUTS + MS_CUT_MEMORY_STEPS };
MsCut ms_space_cut_of(const MsSpace *space, gint64 combo);
/* Writes the pipeline layout. FALSE: a counted cut is asked for, and there is none, or the layers stand no different
 * from those balanced by cost, or nothing is left to the planner (costs -1). */
gboolean ms_space_balance(const MsSpace *space, int costs, MsCut cut, MsScenario *scenario);
/* FALSE: what ms_space_balance returns, and whether the layout obeys the rules, does not depend on what layers cost. */
gboolean ms_space_makes_cut(const MsScenario *scenario, MsCut cut);
typedef struct {
  gboolean given, same;
} MsUnbalanced;
/* The same, to be undone; `same`: it returned FALSE. */
MsUnbalanced ms_space_try_balance(const MsSpace *space, int costs, MsCut cut, MsScenario *scenario);
void ms_space_undo_balance(MsUnbalanced before, MsScenario *scenario);

/* Weight of the head in layers, from FLOP. */
double ms_head_weight(const MsModel *model, int seq_length);

/* --- the bound (memo.c, bound.c): step time and device memory of a layout, never above what `full` finds -------- */
typedef struct MsShape
    MsShape; /* which pieces stand on which stage, and how many live there, for one (pp, vpp, microbatches) */
typedef struct MsShapes MsShapes; /* those made so far, of one thread */

typedef struct {       /* picoseconds of one piece, both passes (piece_times.c) */
  MsTime direct, line; /* the larger of the sums of either counts; line 0: only the first holds */
  MsTime start, end;   /* off `line` for the first and last piece of each chunk */
  MsTime ahead;        /* from its input to its output, alone */
  MsTime late;         /* of that, at most after its backward has handed on its gradient */
  MsTime usual;        /* no bound: what it usually adds to its stage, for cuts balanced by cost */
  MsTime host;         /* what the host takes to issue it */
} MsPieceTime;
/* How often each piece stands in the whole model: [n_pieces]. (transfer full) */
int *ms_pieces_of_model(const MsWork *work);
/* `splits`: the schedule may run a backward as its input gradients and, later, its weight gradients. */
void ms_piece_times(const MsWork *work, const MsCostedPiece *piece, MsPieceLags *lags, gboolean splits,
                    MsPieceTime *time);

/* `like` may be NULL: the first one of a search prepares the kernel curves that the others borrow (ms_memo_cost). What
 * is known of pieces that are the same in `like` is taken over. */
MsPieceMemo *ms_memo_new(const MsScenario *scenario, const MsPieceMemo *like, GError **error);
/* Groups of layers that are recomputed together depend on where the stages are cut; so does what a rank keeps when its
 * expert rows are drawn. */
gboolean ms_pieces_depend_on_cut(const MsScenario *scenario);
void ms_leave_pipeline_out(MsScenario *scenario); /* where they do not: one stage, 1F1B */
const MsCost *ms_memo_cost(const MsPieceMemo *memo);
void ms_memo_free(MsPieceMemo *memo);

/* The rule about the split into stages that the cut of a combination breaks, -1 = none; `known` as in ms_cut_costs.
 * Then, with `memo`, the pieces of that cut, or ms_num_rules + MS_REFUSED_ERROR when they cannot be costed. `scenario`
 * has axes and combination written in, the cut only meanwhile. */
int ms_try_cut(const MsSpace *space, const gint32 *value, gint64 combo, MsPieceMemo *known, MsScenario *scenario,
               const MsPieceMemo *like, MsPieceMemo **memo);

/* Kept for ms_cut_costs, by PP and the share of the optimizer that the host has, which the pieces do not depend on; -1:
 * not known. Until the next call. */
int *ms_memo_cost_number(MsPieceMemo *memo, int pp, double host_share);
/* Parameters that a GPU trains of one layer, or of embedding, head or MTP block `index`. */
double ms_memo_params(const MsPieceMemo *memo, MsPieceKind kind, int index, gboolean expert);
typedef enum {
  MS_LAYER_BARE, /* on the device */
  MS_LAYER_HOST, /* to issue it */
  MS_LAYER_PACE  /* the larger: a host that issues kernels for longer than they run sets the pace */
} MsLayerTime;
/* Picoseconds of one layer, or of embedding, head or MTP block `index`, for one microbatch, forward and backward, on
 * the machine of a pool (0 without pools). */
double ms_memo_layer(MsPieceMemo *memo, int pool, MsLayerTime what, MsPieceKind kind, int index);
typedef enum {
  MS_TOTAL_PRODUCTS, /* matrix products */
  MS_TOTAL_ROWS,     /* compute rows */
  MS_TOTAL_STREAM,   /* rows of the busiest stream */
  MS_TOTAL_SPAN      /* from the first to the last compute row of each piece */
} MsTotal;
/* Picoseconds of the whole model for one microbatch, forward and backward: what the stages of any pipeline have to
 * share evenly. With pools: a bound of that. Let a piece take r times as long on a machine as on the fastest for it, at
 * least, for all pieces; of the time T of a stage there no more than T / r is work of the fastest. So the stages of
 * pool i, a share g(i) of all, do g(i) / r(i) of their number, and the work is shared by the sum of these. */
double ms_memo_total(MsPieceMemo *memo, MsTotal total, gboolean splits);

MsShapes *ms_shapes_new(void);
void ms_shapes_free(MsShapes *shapes);
/* Number of the way in which the memo's layers are pieces: shapes differ by it. */
int ms_shapes_map(MsShapes *shapes, const MsPieceMemo *memo);
/* The shape of a candidate whose ranks obey the rules; `scenario` has it written in, but no balanced pipeline layout
 * yet: one is written in while a shape is made. *rule: the rule about the split into stages that refuses it, or
 * ms_num_rules + MS_REFUSED_SAME (the result is NULL then), else -1. Borrowed. */
const MsShape *ms_shapes_get(MsShapes *shapes, int map, MsPieceMemo *memo, const MsSpace *space, const MsCandidate *c,
                             MsScenario *scenario, int *rule);

gboolean ms_shape_same(const MsShape *a, const MsShape *b); /* their bounds are the same whatever the pieces are */

typedef struct { /* bytes per parameter of a rank: of every copy, and of what its data-parallel replicas share */
  double whole_B, frozen_B, low_B,
      shared_B; /* frozen: of weights that are not trained; low: added for parameters that low precision stores */
  gboolean shards;
} MsStateBytes;
/* `scenario` agrees with the memo's in everything but keys of MS_ROLE_STATE and later. */
MsStateBytes ms_state_bytes(MsPieceMemo *memo, const MsScenario *scenario);
MsTime ms_bound_time(const MsShape *shape, MsPieceMemo *memo);
/* What the passes of a complete scenario of these pieces take in their schedule (ms_relaxed_passes). */
MsTime ms_bound_passes(MsPieceMemo *memo, const MsScenario *scenario);
/* dp, edp: of the layout; dp counts CP ranks. `scenario`: whose machines; with pools in bytes of the first one, the
 * share of its own machine's memory that the fullest stage needs. */
double ms_bound_device_B(const MsShape *shape, const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp,
                         double edp, const MsScenario *scenario);
/* The same of whatever cut of the model into the scenario's stages; 0 with pools. */
double ms_bound_any_cut_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp,
                          const MsScenario *scenario);

double ms_memo_kept_B(const MsPieceMemo *memo); /* for one microbatch by a rank that has the whole model */
/* Of the states alone, shared out evenly by `pp` stages: whatever microbatches keep there; 0 with pools. */
double ms_bound_states_B(const MsPieceMemo *memo, const MsStateBytes *bytes, double dp_cp, double edp, int pp,
                         const MsScenario *scenario);

/* --- refusals (refusal.c): counted by rule, one example of each kept as numbers and worded at the end ---------- */
enum { MS_REFUSED_MEMORY, MS_REFUSED_DEADLINE, MS_REFUSED_SAME, MS_REFUSED_ERROR, MS_N_REFUSED }; /* after the rules */
typedef struct {
  guint64 count, order;
  double miss;
  MsCandidate example;
} MsRefused;
typedef struct {
  int n;
  MsRefused *row;
} MsRefusedTable; /* row = number of the rule, or ms_num_rules + MS_REFUSED_... */

void ms_refused_init(MsRefusedTable *table);
void ms_refused_clear(MsRefusedTable *table);
/* Keeps the example that missed by least, of equals the first in `order`; so tables can be added up in any order. */
void ms_refused_add(MsRefusedTable *table, int row, guint64 count, double miss, guint64 order,
                    const MsCandidate *example);
void ms_refused_merge(MsRefusedTable *into, const MsRefusedTable *from);
void ms_refused_gather(MsRefusedTable *into, const MsRefusedTable *own); /* `own` of every rank */
void ms_plan_sort_refusals(MsPlan *plan);                                /* by descending count */
/* Words them, sorted. */
void ms_refused_hand_over(const MsRefusedTable *table, const MsSpace *space, MsPlan *plan);

/* --- enumeration (enumerate.c): every layout ruled out or bounded ---------------------------------------------- */
typedef struct {
  MsSpace *space;
  const MsPlanOptions *options;
  MsPlan *plan; /* searched, valid and pruned are counted into it */
  MsRefusedTable refused;
  GArray *candidates;   /* MsCandidate that this rank found, those that may fit */
  guint64 n_candidates; /* of all ranks */
  MsPieceMemo
      *first; /* of the first layout that obeys the rules: its kernel curves are everybody's; NULL when there is none */
  MsProgress *progress;
  struct MsBins *bins; /* what may fit is counted into them; NULL: nothing is counted */
} MsSearch;
gboolean ms_enumerate(MsSearch *search, GError **error);

/* --- layouts counted by their bounds (bins.c) ------------------------------------------------------------------ */
typedef struct MsBins MsBins;
struct MsLayoutMap;
/* Names keys and sizes of the map's bins; `threads` may count at once, each with its own number. */
MsBins *ms_bins_new(const MsSpace *space, int threads, struct MsLayoutMap *map);
void ms_bins_add(MsBins *bins, const MsCandidate *c, double device_B, int thread);
void ms_bins_take(MsBins *bins, struct MsLayoutMap *map); /* what was counted */
void ms_bins_free(MsBins *bins);                          /* NULL is fine */

/* --- what was simulated, kept in a file (checkpoint.c) --------------------------------------------------------- */
/* DEAR: it was seen not to enter the list before it had ended, its step is above what is said */
typedef enum { MS_OUTCOME_RUN, MS_OUTCOME_ERROR, MS_OUTCOME_DEAR } MsOutcomeKind;
typedef struct { /* of one candidate, at `full` */
  MsCandidate candidate;
  double step_time_s;
  gint32 kind, index; /* index: of the job it belongs to */
} MsOutcome;

typedef MsPlanKnown MsCheckpoint; /* without a file: what searches of this process know of each other */
/* NULL file: nothing is kept. With `resume` what an earlier run of the same request kept is read first; it is an error
 * when there is none. */
MsCheckpoint *ms_checkpoint_new(const MsSpace *space, const char *file, const char *resume, GError **error);
const MsOutcome *ms_checkpoint_find(const MsCheckpoint *checkpoint /* may be NULL */,
                                    const MsCandidate *candidate); /* NULL: not simulated yet */
void ms_checkpoint_add(MsCheckpoint *checkpoint, const MsOutcome *outcome);
/* Writes the file when something was added (and, unless `now`, the last writing is a second ago). */
gboolean ms_checkpoint_write(MsCheckpoint *checkpoint, gboolean now, GError **error);
void ms_checkpoint_free(MsCheckpoint *checkpoint);

/* Everything that was kept or added; the rows belong to the checkpoint. */
const MsOutcome *ms_checkpoint_rows(const MsCheckpoint *checkpoint, guint *n);

/* --- a search under way (planner.c): the list, and simulation -------------------------------------------------- */
enum {
  MS_BATCH = 16,
  MS_LEAST_BATCH = 4
}; /* candidates simulated between two updates of the threshold: fixed, so that counts do not depend on threads or ranks
    */

typedef struct { /* of the list */
  MsCandidate candidate;
  double cost, step_time_s;
  MsResult *result; /* NULL until somebody wants to see it */
} MsListed;

typedef struct {
  MsSearch s;
  MsCheckpoint *checkpoint;
  MsListed *list; /* [top + 1] ascending */
  int n_list, top;
  gint64 began_us;
  GError *error;
} MsPlanner;

gboolean ms_planner_cuts(const MsPlanner *planner, MsShortcut shortcut); /* the shortcut is on */
double ms_planner_threshold(const MsPlanner *planner);                   /* what costs more cannot enter the list */
const MsCost *ms_planner_like(const MsPlanner *planner);
/* What is kept of it, as far as it is known: of no more than `most` it has to be more than that it costs more. */
const MsOutcome *ms_planner_known(const MsPlanner *planner, const MsCandidate *candidate, double most);
/* Of a layout of so many GPUs, now: a step that cannot enter the list, memory that there is not. */
MsWorth ms_planner_worth(const MsPlanner *planner, int gpus);
gboolean ms_planner_stopped(MsPlanner *planner); /* Ctrl-C or an error, on any rank */
/* Seconds by which the training of a candidate misses the deadline. */
double ms_planner_late_s(const MsPlanner *planner, const MsCandidate *candidate, double step_s);
void ms_planner_refuse(MsPlanner *planner, int row /* MS_REFUSED_... */, double miss, const MsCandidate *candidate);
/* Simulates n <= MS_BATCH candidates on all threads and ranks and puts them into the list. done[n], may be NULL: FALSE
 * for those that an interrupt left out. */
void ms_planner_simulate(MsPlanner *planner, const MsCandidate *candidate, int n, gboolean *done);
/* Simulates them likewise, without the list: outcome[n] of those that done[n] says. */
void ms_planner_outcomes(MsPlanner *planner, const MsCandidate *candidate, int n, MsOutcome *outcome, gboolean *done);
/* Into the list. Takes `result`, the whole prediction, which may be NULL. */
void ms_planner_settle(MsPlanner *planner, const MsOutcome *outcome, MsResult *result);
void ms_planner_forget(MsPlanner *planner); /* empties the list */
/* Says on the terminal, and to whom watches, how far it is: `done` of 1. */
void ms_planner_tell(MsPlanner *planner, double done, const char *note);
void ms_planner_hand_over(MsPlanner *planner); /* fills the plan: its list, on rank 0, and what was refused */

/* Looks at every layout, so that what was refused is counted rule by rule (every.c). */
gboolean ms_search_every(MsPlanner *planner, GError **error);
/* Of the same layouts those that no faster one beats in free memory, fastest first (every.c): calls `found` for each,
 * which lowers plan->memory_limit_B for the next, or returns FALSE: enough. Of a search that was stopped `lower_cost`
 * is what is proven of the last; else it is the cost of the layout. */
typedef struct {
  MsCandidate candidate;
  double cost, step_time_s, device_B, lower_cost;
} MsFrontFound;
gboolean ms_search_front(MsPlanner *planner, gboolean (*found)(const MsFrontFound *found, gpointer user), gpointer user,
                         GError **error);
/* Branch and bound (tree.c): cuts sets of layouts at once by bounds that hold for all of them. */
void ms_search_tree(MsPlanner *planner);
/* Seconds that every layout of the space takes at least for each sequence of its step's batch, and so in proportion to
 * any other batch: the tree's bounds down to what all pieces take, shared evenly by the stages. 0: nothing is known. */
double ms_tree_least_per_sequence_s(MsPlanner *planner);

/* How many layouts are kept. */
static inline int ms_plan_top(const MsPlanOptions *options, const MsRequest *request) {
  return options->top > 0 ? options->top : request->top > 0 ? request->top : MS_PLAN_TOP;
}

/* --- one search (plan.c), of which pools of replicas take one for each way to share the batch (shares.c) -----------
 */
/* least_s, not NULL: nothing but ms_tree_least_per_sequence_s, an empty plan. */
MsPlan *ms_plan_search(const MsRequest *request, const MsPlanOptions *options, double *least_s, GError **error);

/* --- threads and ranks (parallel.c) ---------------------------------------------------------------------------- */
/* Calls `work` for every index below n on one of the ranks, on `threads` threads of each (0 = all cores); `thread`
 * counts from 0. Returns when this rank has nothing more to do. What was found is gathered before the next call. */
typedef void (*MsWorkFunc)(int index, int thread, gpointer data);
int ms_parallel_threads(int wanted);
void ms_parallel(int n, int threads, MsWorkFunc work, gpointer data);
void ms_parallel_here(int n, int threads, MsWorkFunc work, gpointer data); /* every index, whatever other ranks do */

#endif
