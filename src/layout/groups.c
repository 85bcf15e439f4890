/* src/layout/groups.c - coordinates of a rank in the two grids, members of its groups, and how groups lie on the
 * machine. */
#include "layout/internal.h"
#include "base/stats.h"

#include <string.h>

const char *const ms_group_words[] = {"none",           "tp",    "cp",       "dp",       "dp-cp",       "tp-cp",
                                      "tp-dp-cp",       "pp",    "ep",       "etp",      "etp-ep",      "edp",
                                      "embedding",      "world", "cp-inner", "cp-outer", "intra-dp-cp", "intra-edp",
                                      "inter-instance", NULL};

enum { TP, CP, DP, PP }; /* axes of the attention grid; the expert grid reads them as ETP EP EDP PP */

typedef enum { MS_PART_WHOLE, MS_PART_INTRA, MS_PART_INTER } MsPart; /* of optimizer instances: in one, across all */

static const struct {
  gboolean expert;
  guint8 axes;
  MsPart part;
} group_axes[MS_N_GROUPS] = {
    [MS_GROUP_TP] = {FALSE, 1 << TP},
    [MS_GROUP_CP] = {FALSE, 1 << CP},
    [MS_GROUP_DP] = {FALSE, 1 << DP},
    [MS_GROUP_DP_CP] = {FALSE, 1 << DP | 1 << CP},
    [MS_GROUP_TP_CP] = {FALSE, 1 << TP | 1 << CP},
    [MS_GROUP_TP_DP_CP] = {FALSE, 1 << TP | 1 << DP | 1 << CP},
    [MS_GROUP_PP] = {FALSE, 1 << PP},
    [MS_GROUP_EP] = {TRUE, 1 << CP},
    [MS_GROUP_ETP] = {TRUE, 1 << TP},
    [MS_GROUP_TP_EP] = {TRUE, 1 << TP | 1 << CP},
    [MS_GROUP_EDP] = {TRUE, 1 << DP},
    [MS_GROUP_EMBEDDING] = {FALSE, 1 << PP}, /* some stages of it */
    [MS_GROUP_WORLD] = {FALSE, 1 << TP | 1 << CP | 1 << DP | 1 << PP},
    [MS_GROUP_INTRA_DP_CP] = {FALSE, 1 << DP | 1 << CP, MS_PART_INTRA},
    [MS_GROUP_INTRA_EDP] = {TRUE, 1 << DP, MS_PART_INTRA},
    [MS_GROUP_INTER] = {FALSE, 1 << DP | 1 << CP, MS_PART_INTER},
};

/* --- coordinates ----------------------------------------------------------------------------------------------- */

typedef struct {
  int size[4], stride[4]; /* by axis */
  int order[4];           /* axes, fastest first */
} Grid;

static Grid grid_of(const MsLayout *layout, gboolean expert) {
  Grid grid = {.order = {TP, CP, DP, PP}};
  if (layout->order == MS_ORDER_PP_DP) {
    grid.order[2] = PP;
    grid.order[3] = DP;
  }
  grid.size[TP] = expert ? layout->etp : layout->tp;
  grid.size[CP] = expert ? layout->ep : layout->cp;
  grid.size[DP] = expert ? layout->edp : layout->dp;
  grid.size[PP] = layout->pp;
  for (int i = 0, stride = 1; i < 4; stride *= grid.size[grid.order[i++]]) grid.stride[grid.order[i]] = stride;
  return grid;
}

void ms_rank_coords(const MsLayout *layout, gboolean expert, int rank, int coord[4]) {
  Grid grid = grid_of(layout, expert);
  for (int axis = 0; axis < 4; axis++) coord[axis] = rank / grid.stride[axis] % grid.size[axis];
}

int ms_rank_of(const MsLayout *layout, gboolean expert, const int coord[4]) {
  Grid grid = grid_of(layout, expert);
  int rank = 0;
  for (int axis = 0; axis < 4; axis++) rank += coord[axis] * grid.stride[axis];
  return rank;
}

int ms_rank_stage(const MsLayout *layout, int rank) {
  int coord[4];
  ms_rank_coords(layout, FALSE, rank, coord);
  return coord[3];
}

/* The axes in `mask` (or, inverted, the others) as few arithmetic progressions, fastest first; axes of size 1 vanish.
 */
enum { MOST_AXES = 6 }; /* the four, one of them cut by a digit */
typedef struct {
  int n, size[MOST_AXES], stride[MOST_AXES];
} Axes;

static void add_axis(Axes *axes, int size, int stride) {
  if (size == 1) return;
  axes->size[axes->n] = size, axes->stride[axes->n++] = stride;
}

static Axes pick_axes(const Grid *grid, guint mask) {
  Axes axes = {0};
  for (int i = 0; i < 4; i++) {
    int axis = grid->order[i], size = grid->size[axis], stride = grid->stride[axis], last = axes.n - 1;
    if (!(mask >> axis & 1) || size == 1) continue;
    if (last >= 0 && axes.stride[last] * axes.size[last] == stride) axes.size[last] *= size;
    else {
      axes.size[axes.n] = size;
      axes.stride[axes.n++] = stride;
    }
  }
  return axes;
}

/* Ranks of neighbouring instances are so far apart, on either grid: which instance a rank is in is a digit of its
 * number (Megatron-Core parallel_state.py, create_hierarchical_groups, cuts each data-parallel group into runs). */
static int instance_stride(const MsLayout *layout, const Grid *grid) {
  return grid->stride[DP] * grid->size[DP] / layout->instances;
}

/* The progressions without a digit of the rank (`part` INTRA), or that digit alone. */
static Axes cut_axes(const Axes *axes, MsPart part, int digits, int stride) {
  Axes cut = {0};
  if (part == MS_PART_INTER) {
    add_axis(&cut, digits, stride);
    return cut;
  }
  for (int i = 0; i < axes->n; i++) {
    int size = axes->size[i], own = axes->stride[i];
    gboolean within = own <= stride && stride < own * size;
    add_axis(&cut, within ? stride / own : size, own);
    if (within) add_axis(&cut, size * own / (stride * digits), stride * digits);
  }
  return cut;
}

/* Members of a group of the kind, as distances from its first; of one rank where the instances are one. */
static Axes member_axes(const MsLayout *layout, const Grid *grid, MsGroupKind kind) {
  Axes axes = pick_axes(grid, group_axes[kind].axes);
  if (group_axes[kind].part == MS_PART_WHOLE) return axes;
  if (layout->instances == 1) return (Axes){0};
  return cut_axes(&axes, group_axes[kind].part, layout->instances, instance_stride(layout, grid));
}

static int axes_count(const Axes *axes) {
  int count = 1;
  for (int i = 0; i < axes->n; i++) count *= axes->size[i];
  return count;
}

/* Writes the first `capacity` sums of the progressions, ascending, each plus `base`. */
static void axes_list(const Axes *axes, int base, int *out, int capacity) {
  int digit[MOST_AXES] = {0};
  for (int k = 0, at = base; k < capacity; k++) {
    out[k] = at;
    for (int i = 0; i < axes->n; i++) {
      at += axes->stride[i];
      if (++digit[i] < axes->size[i]) break;
      at -= axes->size[i] * axes->stride[i];
      digit[i] = 0;
    }
  }
}

/* Stages in the embedding group: those that hold a copy of the word embedding (docs/theory/layouts.md 2, 5). Returns
 * 1-3. */
static int embedding_stages(const MsLayout *layout, int stages[3]) {
  int n = 0;
  for (int stage = 0; stage < layout->pp && n < 3; stage++) {
    gboolean holds = FALSE;
    for (int chunk = 0; chunk < layout->vpp; chunk++) {
      const MsChunk *c = ms_layout_chunk(layout, stage, chunk);
      holds |= c->has_embedding || c->has_loss || c->num_mtp > 0;
    }
    if (holds) stages[n++] = stage;
  }
  return n;
}

/* a2a+p2p cuts each CP group into runs of cp_inner neighbours; the ring goes through ranks of the same place in their
 * runs. */
static int cp_part(const MsLayout *layout, MsGroupKind kind, int *step) {
  Grid grid = grid_of(layout, FALSE);
  int inner = MAX(layout->cp_inner, 1);
  *step = grid.stride[CP] * (kind == MS_GROUP_CP_INNER ? 1 : inner);
  return layout->cp_inner <= 1 && kind == MS_GROUP_CP_OUTER ? 1
         : kind == MS_GROUP_CP_INNER                        ? inner
                                                            : layout->cp / inner;
}

int ms_group_members(const MsLayout *layout, MsGroupKind kind, int rank, int *members, int capacity) {
  if (kind == MS_GROUP_CP_INNER || kind == MS_GROUP_CP_OUTER) {
    int coord[4], step, n = cp_part(layout, kind, &step);
    ms_rank_coords(layout, FALSE, rank, coord);
    int place = kind == MS_GROUP_CP_INNER ? coord[CP] % n : n > 1 ? coord[CP] / layout->cp_inner : 0;
    for (int i = 0; i < MIN(n, capacity); i++) members[i] = rank + (i - place) * step;
    return n;
  }
  Grid grid = grid_of(layout, group_axes[kind].expert);
  Axes axes = member_axes(layout, &grid, kind);
  int base = rank, stages[3], size = axes_count(&axes);
  for (int i = 0; i < axes.n; i++) base -= rank / axes.stride[i] % axes.size[i] * axes.stride[i];
  if (kind == MS_GROUP_EMBEDDING) {
    size = embedding_stages(layout, stages);
    for (int i = 0; i < MIN(size, capacity); i++) members[i] = base + stages[i] * grid.stride[PP];
  } else {
    axes_list(&axes, base, members, MIN(size, capacity));
  }
  return size;
}

/* --- geometry -------------------------------------------------------------------------------------------------- */

static void count_domain(MsTouch *touch, int members) {
  touch->most = MAX(touch->most, members);
  touch->least = MIN(touch->least, members);
}

/* The group start, start + stride, ...; stride < domain, so that no domain between the ends is skipped. */
static MsTouch touch_progression(gint64 start, gint64 size, gint64 stride, gint64 domain) {
  gint64 first = start % domain, last = first + (size - 1) * stride;
  MsTouch touch = {.domains = (int)(last / domain + 1), .most = (int)size, .least = (int)size};
  if (touch.domains == 1) return touch;
  gint64 period = stride / ms_gcd(stride, domain), before = (domain - first + stride - 1) / stride;
  touch.most = touch.least = (int)before;
  count_domain(&touch, (int)(last % domain / stride) + 1);
  for (gint64 d = 1; d <= MIN(touch.domains - 2, period);
       d++) { /* whole domains between: counts repeat with `period` */
    gint64 through = ((d + 1) * domain - first + stride - 1) / stride;
    count_domain(&touch, (int)(through - before));
    before = through;
  }
  return touch;
}

static MsTouch touch_worst(gint64 world, gint64 size, gint64 stride, gint64 domain) {
  gint64 block = size * stride;
  if (size == 1 || world <= domain || domain % block == 0) return (MsTouch){1, (int)size, (int)size};
  if (stride >= domain) return (MsTouch){(int)size, 1, 1};
  if (block % domain == 0 && domain % stride == 0) {
    int members = (int)(domain / stride);
    return (MsTouch){(int)(block / domain), members, members};
  }
  MsTouch worst = {0};
  gint64 blocks = MIN(MAX(world / block, 1), domain / ms_gcd(block, domain)); /* later blocks repeat these phases */
  for (gint64 b = 0; b < blocks; b++)
    for (gint64 o = 0; o < stride; o++) {
      MsTouch touch = touch_progression(b * block + o, size, stride, domain);
      if (ms_touch_worse(touch, worst)) worst = touch;
    }
  return worst;
}

static MsGroup make_group(int size, int stride, MsTouch domain, MsTouch node) {
  return (MsGroup){.size = size,
                   .stride = stride,
                   .domains = domain.domains,
                   .per_domain = domain.most,
                   .min_per_domain = domain.least,
                   .nodes = node.domains};
}

MsGroup ms_group_geometry(int world, int size, int stride, int domain, int node) {
  return make_group(size, stride, touch_worst(world, size, stride, MAX(domain, 1)),
                    touch_worst(world, size, stride, MAX(node, 1)));
}

/* The group start + offset[0..n), offsets ascending from 0. */
static MsTouch touch_list(guint start, const int *offset, int n, guint domain) {
  MsTouch touch = {.least = n};
  guint end = 0; /* first rank behind the current domain */
  int members = 0;
  for (int i = 0; i < n; i++) {
    guint rank = start + (guint)offset[i];
    if (i > 0 && rank >= end) {
      count_domain(&touch, members);
      members = 0;
    }
    if (members++ == 0) {
      touch.domains++;
      end = (rank / domain + 1) * domain;
    }
  }
  count_domain(&touch, members);
  return touch;
}

/* Worst over all starts; starts that are equal modulo the domain lie alike. */
static MsTouch touch_worst_list(const Axes *starts, const int *offset, int n, guint domain) {
  enum { PHASES = 4096 };
  guint8 seen[PHASES] = {0};
  MsTouch worst = {0};
  int count = axes_count(starts), digit[MOST_AXES] = {0};
  guint at = 0, unseen = domain;
  for (int k = 0; k < count && unseen; k++) {
    guint phase = at % domain;
    if (domain > PHASES || !seen[phase]) {
      MsTouch touch = touch_list(phase, offset, n, domain);
      if (ms_touch_worse(touch, worst)) worst = touch;
      if (domain <= PHASES) {
        seen[phase] = 1;
        unseen--;
      }
    }
    for (int i = 0; i < starts->n; i++) {
      at += (guint)starts->stride[i];
      if (++digit[i] < starts->size[i]) break;
      at -= (guint)(starts->size[i] * starts->stride[i]);
      digit[i] = 0;
    }
  }
  return worst;
}

static MsGroup measure_list(const Axes *starts, const int *offset, int n, int domain, int node) {
  return make_group(n, n > 1 ? offset[1] - offset[0] : 1, touch_worst_list(starts, offset, n, (guint)domain),
                    touch_worst_list(starts, offset, n, (guint)node));
}

static MsGroup measure_embedding(const MsLayout *layout, const Grid *grid, int domain, int node) {
  int offset[3], n = embedding_stages(layout, offset), first = offset[0];
  Axes starts = pick_axes(grid, ~(guint)(1 << PP) & 15);
  for (int i = 0; i < n; i++) offset[i] = (offset[i] - first) * grid->stride[PP];
  return measure_list(&starts, offset, n, domain, node);
}

/* First ranks of all groups of a kind whose members are several progressions: of those in an instance once more for
 * every instance. */
static Axes start_axes(const MsLayout *layout, const Grid *grid, MsGroupKind kind) {
  Axes starts = pick_axes(grid, ~(guint)group_axes[kind].axes & 15);
  if (group_axes[kind].part == MS_PART_INTRA) add_axis(&starts, layout->instances, instance_stride(layout, grid));
  return starts;
}

static MsGroup measure_kind(const MsLayout *layout, MsGroupKind kind, const Grid *grid, int domain, int node) {
  Axes axes = member_axes(layout, grid, kind);
  if (kind == MS_GROUP_CP_INNER || kind == MS_GROUP_CP_OUTER) {
    int step, n = cp_part(layout, kind, &step);
    return ms_group_geometry(layout->world, n, step, domain, node);
  }
  if (kind == MS_GROUP_EMBEDDING) return measure_embedding(layout, grid, domain, node);
  if (axes.n == 0) return ms_group_geometry(layout->world, 1, 1, domain, node);
  if (axes.n == 1) return ms_group_geometry(layout->world, axes.size[0], axes.stride[0], domain, node);
  int size = axes_count(&axes);
  g_autofree int *offset = g_new(int, size);
  Axes starts = start_axes(layout, grid, kind);
  axes_list(&axes, 0, offset, size);
  return measure_list(&starts, offset, size, domain, node);
}

void ms_layout_measure_groups(MsLayout *layout, int domain, int node) {
  Grid grid[2] = {grid_of(layout, FALSE), grid_of(layout, TRUE)};
  domain = MAX(domain, 1);
  node = MAX(node, 1);
  for (int kind = 0; kind < MS_N_GROUPS; kind++)
    layout->group[kind] = measure_kind(layout, kind, &grid[group_axes[kind].expert], domain, node);
}

void ms_layout_measure_stages(MsLayout *layout, int stages, int domain, int node) {
  MsLayout part = *layout;
  part.world = layout->world / layout->pp * stages, part.pp = stages;
  Grid grid[2] = {grid_of(&part, FALSE), grid_of(&part, TRUE)};
  for (int kind = 0; kind < MS_N_GROUPS; kind++)
    if (!ms_group_spans_stages(kind))
      layout->group[kind] = measure_kind(&part, kind, &grid[group_axes[kind].expert], MAX(domain, 1), MAX(node, 1));
}

/* In some pipeline: the first rank of one stage and the last of the other lie in different domains. With PP before DP
 * every replica has such ranks of its own. */
static gboolean pair_crosses(const MsLayout *l, int low, int high, gint64 domain, int first) {
  const Grid grid = grid_of(l, FALSE);
  gint64 stride = grid.stride[PP], replica = stride * l->pp, behind = (high - low + 1) * stride - 1;
  int phases = l->order == MS_ORDER_PP_DP ? (int)MIN(l->dp, domain / ms_gcd(replica, domain)) : 1;
  for (int i = 0; i < phases; i++) {
    gint64 at = i * replica + (low - first) * stride;
    if (at / domain != (at + behind) / domain) return TRUE;
  }
  return FALSE;
}

void ms_layout_set_across(MsLayout *layout, int pair, gboolean across) {
  guint64 bit = (guint64)1 << pair % 64;
  if (across) layout->pp_across[pair / 64] |= bit;
  else layout->pp_across[pair / 64] &= ~bit;
}

void ms_layout_measure_pairs(MsLayout *layout, int domain, int first) {
  domain = MAX(domain, 1);
  memset(layout->pp_across, 0, sizeof layout->pp_across);
  for (int i = 0; i < layout->pp && layout->group[MS_GROUP_PP].domains > 1; i++) {
    int low = i + 1 < layout->pp ? i : 0, high = i + 1 < layout->pp ? i + 1 : i;
    ms_layout_set_across(layout, i, pair_crosses(layout, low, high, domain, first));
  }
}

MsGroup ms_group_between_pools(const MsGroup *group) {
  MsGroup across = *group;
  across.domains = 2, across.nodes = MAX(2, group->nodes);
  across.per_domain = group->size - group->size / 2, across.min_per_domain = group->size / 2;
  return across;
}

/* Schedulers cut a job into equal segments, one per domain (Slurm's --segment): 256 GPUs on NVL72 are 4 x 64, not 72 +
 * 72 + 72 + 40. */
int ms_gpus_per_domain(const MsHardware *hardware, int world) {
  int domain = MAX(1, hardware->nvlink_domain_gpus), node = MAX(1, hardware->gpus_per_node);
  if (hardware->fabric.segment_gpus > 0) return hardware->fabric.segment_gpus;
  if (world <= domain || domain <= node) return domain;
  for (int n = domain - domain % node; 2 * n >= domain; n -= node)
    if (world % n == 0) return n;
  return domain;
}
