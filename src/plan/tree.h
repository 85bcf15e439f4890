/* src/plan/tree.h - internal to plan/: nodes of the branch and bound over a space too large to look at every layout.
 *
 * A node stands for all layouts that agree in what it has settled; its cost is below that of each of them. The levels
 * settle, one after the other:
 *
 *   level      settled                       bound of the step
 *   UNIT       outer axes, MS_ROLE_WORK      matrix products of the whole model, shared out evenly by the stages; those
 *                                            of one microbatch on its way through all of them, here and below
 *   KERNELS    + MS_ROLE_KERNELS             all compute rows, nothing recomputed or offloaded
 *   BESIDE     + MS_ROLE_BESIDE              the same, from the first to the last compute row of each piece;
 *                                            shared out where passes run in pairs
 *   ADDED      + MS_ROLE_ADDED               the same of the pieces as they are; once some of its shapes have been
 *                                            taken, the least first bound of those left that may fit
 *   SHAPE      + pp, vpp, MS_ROLE_SHAPE      the first bound of the layout (bound.c); the passes in their
 *                                            schedule, with the pieces of the node above
 *   STATE      + MS_ROLE_STATE               the same, and what follows the gradient norm; by then it is known to fit;
 *                                            left out where nothing but LAYOUT is behind it, and SHAPE with it
 *                                            where the pieces of the node above stand for the layout's own
 *   LAYOUT     everything                    the second bound of the layout (ms_screen), which also says whether
 *                                            it fits */
#ifndef MS_PLAN_TREE_H
#define MS_PLAN_TREE_H

#include "plan/bound_priv.h"
#include "plan/every_priv.h"
#include "plan/planner_priv.h"

typedef enum {
  MS_LEVEL_UNIT,
  MS_LEVEL_KERNELS,
  MS_LEVEL_BESIDE,
  MS_LEVEL_ADDED,
  MS_LEVEL_SHAPE,
  MS_LEVEL_STATE,
  MS_LEVEL_LAYOUT,
  MS_N_LEVELS
} MsLevel;
typedef struct {
  MsCandidate c;
  gint32 level;
  gfloat was[MS_LEVEL_LAYOUT]; /* cost of its ancestors and itself, by level; 0: there was none of that level */
  double had; /* MS_LEVEL_ADDED: shapes whose first bound costs no more were taken before (0: none); of a front.
               * MS_LEVEL_SHAPE: device memory that it needs at least; MS_LEVEL_LAYOUT: that it needs */
} MsBranch;

typedef struct {
  MsListed listed;
  double device_B;
} MsOnFront;

typedef struct { /* a node of the first level whose states alone take more memory than there is, whatever is kept beside
                  * them; it has the pp at which they need least */
  MsBranch node;
  double miss_B, kept_B; /* kept: of one microbatch by the whole model, where nothing is recomputed or offloaded */
} MsTooLarge;

typedef struct {
  const MsShape *shape; /* its own, which others in the group equal; NULL: a rule refuses it */
  gint32 vpp, choice;   /* combination of the keys of MS_ROLE_SHAPE */
} MsShapeUse;
typedef struct {
  const MsShape *shape;
  int rule;
  guint schedules; /* bits of those that some use has */
  int uses_of[MS_N_SCHEDULES];
  GArray *use;                            /* MsShapeUse */
} MsShapeGroup;                           /* of one PP: all that have the same shape, or (NULL) that a rule refuses */
typedef struct MsShapeLists MsShapeLists; /* those made so far */

typedef struct {
  MsStateBytes *of; /* [n] those of which no other is smaller in everything */
  int n;
} MsBytesList;

enum { MS_WHOLE, MS_SHARDED, MS_N_GRADIENTS };
/* The values of options.fsdp by what becomes of gradients. */
typedef struct {
  const MsChoice *choice; /* NULL: each value has nodes of its own from the first level on */
  int n[MS_N_GRADIENTS], *value[MS_N_GRADIENTS];
  gboolean wait; /* the kind is settled at MS_LEVEL_BESIDE */
} MsGradientKinds;

typedef struct {     /* of one thread */
  GArray *children;  /* MsBranch */
  GArray *too_large; /* MsTooLarge */
  MsRefusedTable refused;
  guint64 bounded, screened, feasible;
  double left_cost; /* least first bound of the shapes that the node being expanded leaves for later */
  MsShapes *shapes;
  MsShapeLists *lists;
  GHashTable *sharded; /* of ms_sharded_new */
  MsBytesList *bytes;  /* [n_late] of one combination of MS_ROLE_WORK, by the late key */
  gint64 bytes_of;     /* that combination with the key's first value; -1 = none yet */
  MsLevel bytes_level; /* what it stands for is that of this level */
  MsScenario *scratch, *flat;
  MsPieceMemo *last;
} MsTreeWorker;

typedef struct {
  MsPlanner *x;
  MsSpace *space;
  GArray *heap[MS_N_LEVELS][MS_N_SCHEDULES]; /* MsBranch, cheapest first; by schedule where it is settled */
  GArray *too_large;                         /* MsTooLarge of all ranks, the nearest miss first */
  MsTreeWorker *worker;
  int threads;
  int n_late; /* values of the key of MS_ROLE_WORK that no piece depends on (optimizer_offload_fraction): nodes of
               * levels before MS_LEVEL_SHAPE have its first value and stand for all */
  const MsChoice *late; /* that key; NULL: it is settled */
  MsGradientKinds gradients;
  gboolean *asked[MS_N_LEVELS], *settled; /* [ms_num_rules] rules about options that a level before the shape settles;
                                           * rules settled with the shape, but those about the split, which are asked
                                           * when it is made. The rest is asked of layouts only */
  gint32 *of_order;    /* [n_of_role[MS_ROLE_SHAPE]] combination that differs from this one in the rank order alone, and
                        * has the first one: the shapes are the same */
  guint8 *schedule_of; /* [n_of_role[MS_ROLE_SHAPE]] */
  guint schedules;     /* bits of those; 0: the schedule is settled before the shape */
  MsRole *of_schedule; /* [ms_num_rules] of rules about options that read the schedule: the last role of the other
                        * open keys that they read; of all others MS_N_ROLES */
  double threshold;    /* of this round */
  gboolean in_proportion; /* only bounds that grow as the batch does */
  GArray *front;          /* MsOnFront: all that was simulated, and dear nodes are kept; NULL: one list */
  const MsBranch *round;
  int rounds;
  gint64 worked[2];                                  /* on the cheapest nodes, on hopeful ones */
  double hope[MS_N_LEVELS][MS_N_SCHEDULES], hope_of; /* what layouts cost by their bound on each level: where no
                                                      * schedule is settled, of the best one, which costs hope_of */
  double climbed;                                    /* cost of the best layout when those near it were looked at */
} MsTree;

/* --- branch.c: the children of a node, bounded; dear ones are dropped ------------------------------------------ */
void ms_tree_expand(MsTree *tree, MsTreeWorker *worker, const MsBranch *node); /* of any level but MS_LEVEL_LAYOUT */
void ms_tree_expand_axes(MsTree *tree, MsTreeWorker *worker,
                         int unit);                     /* the first level: one setting of the outer axes */
gboolean ms_tree_dear(const MsTree *tree, double cost); /* more than what may enter the list */
/* The rule about sizes that do not divide, so that no shape can be made; -1 = none. */
int ms_tree_size_rule(const MsTree *tree, const gint32 *value);
/* Counts all layouts below as short of memory; `tell`: one of them may be named as what comes nearest. */
void ms_tree_refuse_too_large(const MsTree *tree, MsTreeWorker *worker, const MsTooLarge *of, gboolean tell);
/* Pieces of the first unit for which they can be made: their kernel curves are everybody's. */
void ms_tree_find_first(MsTree *tree);
void ms_tree_sort_keys(MsTree *tree); /* which level settles which key and which rule */

/* --- gradients.c: ways of FSDP that share pieces ---------------------------------------------------------------- */
void ms_gradients_find(MsTree *tree);
void ms_gradients_clear(MsTree *tree);
/* A node of the first level has this combination's value of options.fsdp. */
gboolean ms_gradients_first(const MsTree *tree, gint64 combo);
/* The combination with value i of those that its own stands for on a level; -1: past the last. */
gint64 ms_gradients_nth(const MsTree *tree, gint64 combo, MsLevel level, int i);
/* That with the value which stands for kind i behind MS_LEVEL_KERNELS; -1: past the last. */
gint64 ms_gradients_kind(const MsTree *tree, gint64 combo, int i);
int ms_gradients_count(const MsTree *tree, gint64 combo, MsLevel level); /* how many values its own stands for */
/* A rule may hold of one of these and not of another. */
gboolean ms_gradients_decide(const MsTree *tree, const MsRule *rule);

/* --- near.c: layouts near the best one, before their turn ------------------------------------------------------ */
/* From the best of the list, which is full, to a better one near it, while there is one. */
void ms_tree_climb(MsTree *tree);

/* --- shape_list.c: shapes of one pipeline size that the tree bounds at once ------------------------------------ */
MsShapeLists *ms_shape_lists_new(void);
void ms_shape_lists_free(MsShapeLists *lists);
void ms_shape_lists_trim(MsShapeLists *lists); /* forgets them when they are many; what was borrowed is gone then */
/* Writes the axes and the keys of MS_ROLE_SHAPE into the worker's scratch. */
void ms_tree_write_shape(const MsTree *tree, MsTreeWorker *worker, const MsCandidate *c);
/* MsShapeGroup of a node's pieces at the PP of `c`, which divides; the worker's scratch has the node's combination
 * written in. Borrowed. */
const GArray *ms_shape_list(const MsTree *tree, MsTreeWorker *worker, MsPieceMemo *memo, int map, const MsCandidate *c);
/* MsLive of these, the fewest of every VPP and schedule with as many copies of the model: made without a cut.
 * Borrowed. */
const GArray *ms_shape_lives(const MsTree *tree, MsTreeWorker *worker, const MsCandidate *c);

/* --- sharded.c: what FSDP moves around every pass of shapes that fit in no other way ---------------------------- */
GHashTable *ms_sharded_new(void); /* what is known of it */
/* Picoseconds that a shape of a node's pieces, of which `c` is a layout, takes at least with its states sharded in one
 * of these ways: bits of MsFsdp. 0: not known. */
MsTime ms_sharded_least(const MsTree *tree, MsTreeWorker *worker, MsPieceMemo *memo, int map, const MsCandidate *c,
                        const MsShape *shape, guint ways);
/* The same of all shapes of that pipeline size: an even share of the stages, which is so many microbatches of the whole
 * model. */
double ms_sharded_share(const MsTree *tree, MsTreeWorker *worker, MsPieceMemo *memo, int map, const MsCandidate *c,
                        double microbatches, guint ways);

/* Branch and bound (tree.c): cuts sets of layouts at once by bounds that hold for all of them. */
void ms_search_tree(MsPlanner *planner);
/* The same for the best layout of each limit of memory (every_priv.h): what is too dear for one is kept for the next.
 */
void ms_search_tree_front(MsPlanner *planner, MsFrontTell *found, gpointer user);
/* Seconds that every layout of the space takes at least for each sequence of its step's batch, and so in proportion to
 * any other batch: the tree's bounds down to what all pieces take, shared evenly by the stages. 0: nothing is known. */
double ms_tree_least_per_sequence_s(MsPlanner *planner);

#endif
