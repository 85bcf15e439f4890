/* src/layout/seats.c - seating ranks, and how groups lie then. */
#include "layout/seats.h"

#include "base/hash.h"
#include "base/order.h"
#include "layout/internal.h"

#include <string.h>

/* Places of all jobs, each of which begins in a domain of its own where there are several. */
static int places(const MsSeats *s) {
  return s->jobs == 1 ? s->world : s->jobs * ((s->world + s->segment - 1) / s->segment) * s->segment;
}

/* --- nodes of the job, in the order in which ranks fill them --- */

/* The job's slots run through the segments of the domains; a slot of a whole node each. */
static int node_of_slot(const MsSeats *s, int slot) {
  int per_domain = s->segment / s->node_gpus;
  return slot / per_domain * (s->domain_gpus / s->node_gpus) + slot % per_domain;
}

/* The first `used` of `n` in a drawn order. */
static void shuffle(int *node, int n, int used, guint64 seed) {
  for (int i = 0; i < used; i++) {
    guint64 x = ms_mixed((seed + (guint64)i + 1) * MS_DRAW_STEP);
    int j = i + (int)(x % (guint64)(n - i)), was = node[i];
    node[i] = node[j], node[j] = was;
  }
}

/* Ranks next to each other on the same rail of the next node, leaf by leaf. */
static int by_rail(const MsSeats *s, int rank, int leaf_nodes) {
  int nodes = (places(s) + s->node_gpus - 1) / s->node_gpus, block = MIN(leaf_nodes > 0 ? leaf_nodes : nodes, nodes);
  int first = rank / (block * s->node_gpus) * block, here = MIN(block, nodes - first), at = rank - first * s->node_gpus;
  return (first + at % here) * s->node_gpus + at / here;
}

static void seat_listed(MsSeats *s, const MsFabric *f) {
  JsonArray *list = json_node_get_array(f->placement);
  for (int r = 0; r < s->world; r++)
    s->gpu[r] = (int)json_array_get_int_element(list, (guint)(r / s->node_gpus)) * s->node_gpus + r % s->node_gpus;
}

static void seat_scattered(MsSeats *s, const MsFabric *f, int slots) {
  int used = (places(s) + s->node_gpus - 1) / s->node_gpus;
  g_autofree int *node = g_new(int, slots);
  for (int i = 0; i < slots; i++) node[i] = node_of_slot(s, i);
  shuffle(node, slots, used, (guint64)f->seed);
  for (int r = 0; r < places(s); r++) s->gpu[r] = node[r / s->node_gpus] * s->node_gpus + r % s->node_gpus;
}

static int contiguous(const MsSeats *s, int rank) { return rank / s->segment * s->domain_gpus + rank % s->segment; }

/* Whole nodes of the fabric that a job may have, with as many GPUs of every domain as it takes. */
static int free_slots(const MsSeats *s) {
  int domain_nodes = s->domain_gpus / s->node_gpus, per_domain = s->segment / s->node_gpus;
  return s->nodes / domain_nodes * per_domain + MIN(s->nodes % domain_nodes, per_domain);
}

static gboolean list_fits(const MsSeats *s, const MsFabric *f, char *why, size_t size) {
  JsonArray *list = json_node_get_array(f->placement);
  int n = (int)json_array_get_length(list), used = (s->world + s->node_gpus - 1) / s->node_gpus;
  if (n != used) return ms_refuse(why, size, "placement names %d nodes, the job has %d", n, used);
  for (int i = 0; i < n; i++)
    if (json_array_get_int_element(list, (guint)i) >= s->nodes)
      return ms_refuse(why, size, "placement names node %d of a fabric of %d nodes",
                       (int)json_array_get_int_element(list, (guint)i), s->nodes);
  return TRUE;
}

/* Nodes that the fabric must have for the ranks as they are placed. */
static int needed(const MsSeats *s, const MsFabric *f) {
  if (ms_fabric_seating(f) != MS_SEAT_LIST) return contiguous(s, places(s) - 1) / s->node_gpus + 1;
  int most = 0;
  JsonArray *list = json_node_get_array(f->placement);
  for (guint i = 0; i < json_array_get_length(list); i++) most = MAX(most, (int)json_array_get_int_element(list, i));
  return most + 1;
}

static gboolean fits(MsSeats *s, const MsFabric *f, char *why, size_t size) {
  MsSeating placement = ms_fabric_seating(f);
  if (s->jobs > 1 && placement == MS_SEAT_LIST)
    return ms_refuse(why, size, "placement lists the nodes of one job, jobs is %d", s->jobs);
  if (s->segment > s->domain_gpus)
    return ms_refuse(why, size, "segments of %d GPUs in scale-up domains of %d", s->segment, s->domain_gpus);
  gboolean whole_nodes = s->segment % s->node_gpus == 0 && s->domain_gpus % s->node_gpus == 0;
  if (placement != MS_SEAT_CONTIGUOUS && !whole_nodes && s->domain_gpus > s->node_gpus)
    return ms_refuse(why, size, "nodes of %d GPUs can be moved where segments of %d hold whole ones only", s->node_gpus,
                     s->segment);
  int least = needed(s, f);
  if (s->nodes == 0) s->nodes = least;
  if (s->nodes < least && placement != MS_SEAT_LIST)
    return ms_refuse(why, size, "a fabric of %d nodes for %s %d", s->nodes,
                     s->jobs == 1 ? "a job that needs" : "jobs that need", least);
  return placement != MS_SEAT_LIST || list_fits(s, f, why, size);
}

MsSeats *ms_seats_new(const MsHardware *h, int world, char *why, size_t size) {
  const MsFabric *f = &h->fabric;
  MsSeating placement = ms_fabric_seating(f);
  g_autoptr(MsSeats) s = g_new0(MsSeats, 1);
  s->world = world, s->jobs = MAX(1, f->jobs), s->nodes = f->nodes, s->node_gpus = MAX(1, h->gpus_per_node);
  s->domain_gpus = MAX(1, h->nvlink_domain_gpus), s->segment = ms_gpus_per_domain(h, world);
  if (f->segment_gpus == 0 && placement != MS_SEAT_CONTIGUOUS && s->segment % s->node_gpus) s->segment = s->domain_gpus;
  if (!fits(s, f, why, size)) return NULL;
  s->gpu = g_new(int, places(s));
  if (placement == MS_SEAT_LIST) seat_listed(s, f);
  else if (placement == MS_SEAT_SCATTERED && s->domain_gpus >= s->node_gpus) seat_scattered(s, f, free_slots(s));
  else
    for (int r = 0; r < places(s); r++)
      s->gpu[r] = contiguous(s, placement == MS_SEAT_BY_RAIL ? by_rail(s, r, f->leaf_nodes) : r);
  for (int job = 1; job < s->jobs; job++)
    memmove(s->gpu + job * world, s->gpu + job * (places(s) / s->jobs), sizeof *s->gpu * (size_t)world);
  return g_steal_pointer(&s);
}

void ms_seats_free(MsSeats *s) {
  if (!s) return;
  g_free(s->gpu);
  g_free(s);
}

/* --- groups --- */

MS_ORDER(by_number, int, MS_LESS(*x, *y), 0)

/* Of the group whose members are in these places (sorted here). */
static MsTouch touch(int *place, int n) {
  MsTouch t = {.least = n};
  qsort(place, (size_t)n, sizeof *place, by_number);
  for (int i = 0, j; i < n; i = j) {
    for (j = i; j < n && place[j] == place[i];) j++;
    t.domains++, t.most = MAX(t.most, j - i), t.least = MIN(t.least, j - i);
  }
  return t;
}

static void measure_kind(MsLayout *l, const MsSeats *s, MsGroupKind kind, int *member, int *place) {
  MsGroup *g = &l->group[kind];
  g_autofree guint8 *seen = g_malloc0((gsize)l->world);
  MsTouch worst = {.least = g->size};
  int nodes = 1;
  for (int r = 0; r < l->world; r++) {
    if (seen[r]) continue;
    int n = ms_group_members(l, kind, r, member, l->world);
    for (int i = 0; i < n; i++) seen[member[i]] = 1, place[i] = ms_seats_domain(s, member[i]);
    MsTouch t = touch(place, n);
    if (ms_touch_worse(t, worst)) worst = t;
    for (int i = 0; i < n; i++) place[i] = ms_seats_node(s, member[i]);
    nodes = MAX(nodes, touch(place, n).domains);
  }
  g->domains = worst.domains, g->per_domain = worst.most, g->min_per_domain = worst.least, g->nodes = nodes;
}

/* In some pipeline. */
static gboolean pair_crosses(const MsLayout *l, const MsSeats *s, int stage) {
  for (int r = 0; r < l->world; r++) {
    int coord[4];
    ms_rank_coords(l, FALSE, r, coord);
    if (coord[3] != stage) continue;
    coord[3] = (stage + 1) % l->pp;
    if (ms_seats_domain(s, r) != ms_seats_domain(s, ms_rank_of(l, FALSE, coord))) return TRUE;
  }
  return FALSE;
}

void ms_layout_measure_seats(MsLayout *layout, const MsSeats *seats) {
  g_autofree int *member = g_new(int, layout->world), *place = g_new(int, layout->world);
  for (int kind = MS_GROUP_NONE + 1; kind < MS_N_GROUPS; kind++)
    if (layout->group[kind].size > 1) measure_kind(layout, seats, kind, member, place);
  for (int i = 0; i < layout->pp; i++) ms_layout_set_across(layout, i, pair_crosses(layout, seats, i));
}
