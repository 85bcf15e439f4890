/* src/cluster/units.c - classes of places, refined until groups tell no two of one class apart. */
#include "cluster/units.h"

#include "base/order.h"
#include <string.h>

gboolean ms_meets_in_stage(MsGroupKind kind) {
  return kind != MS_GROUP_NONE && kind != MS_GROUP_PP && kind != MS_GROUP_EMBEDDING && kind != MS_GROUP_WORLD;
}

int *ms_ranks_by_stage(const MsLayout *l) {
  int places = l->world / l->pp, *rank = g_new(int, l->world);
  g_autofree int *n = g_new0(int, l->pp);
  for (int r = 0; r < l->world; r++) {
    int stage = ms_rank_stage(l, r);
    rank[stage * places + n[stage]++] = r;
  }
  return rank;
}

/* --- groups of places --- */

typedef struct {
  int n, *from, *place; /* [n + 1], members together */
  int *of;              /* [places] */
} Groups;

/* A model without experts may have an order of ranks in which groups of experts, where nobody meets, do not. */
static gboolean lies_in_stage(const MsLayout *l, MsGroupKind kind) {
  g_autofree int *member = g_new(int, l->world);
  int n = ms_group_members(l, kind, 0, member, l->world);
  for (int k = 0; k < n; k++)
    if (ms_rank_stage(l, member[k]) != ms_rank_stage(l, 0)) return FALSE;
  return TRUE;
}

/* Those of the first stage: every stage has the same. */
static Groups groups_of(const MsLayout *l, const MsUnits *u, MsGroupKind kind) {
  Groups g = {.from = g_new(int, u->places + 1), .place = g_new(int, u->places), .of = g_new(int, u->places)};
  g_autofree int *place_of = g_new(int, l->world), *member = g_new(int, l->world);
  int filled = 0;
  for (int i = 0; i < u->places; i++) place_of[u->rank[i]] = i, g.of[i] = -1;
  g.from[0] = 0;
  for (int i = 0; i < u->places; i++) {
    if (g.of[i] >= 0) continue;
    int n = ms_group_members(l, kind, u->rank[i], member, l->world);
    for (int k = 0; k < n; k++) g.of[place_of[member[k]]] = g.n, g.place[filled++] = place_of[member[k]];
    g.from[++g.n] = filled;
  }
  return g;
}

static void groups_clear(Groups *g) { g_free(g->from), g_free(g->place), g_free(g->of); }

/* --- numbers for what is told apart --- */

typedef struct {
  GHashTable *known; /* GBytes -> number + 1 */
  guint32 n;
} Numbers;

static Numbers numbers_new(void) {
  return (Numbers){g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, NULL), 0};
}

static guint32 number_of(Numbers *x, const guint32 *what, size_t n) {
  GBytes *key = g_bytes_new(what, n * sizeof *what);
  guint32 known = GPOINTER_TO_UINT(g_hash_table_lookup(x->known, key));
  if (known > 0) g_bytes_unref(key);
  else g_hash_table_insert(x->known, key, GUINT_TO_POINTER(known = ++x->n));
  return known - 1;
}

MS_ORDER(ascending, guint32, MS_LESS(*x, *y), 0)

/* The classes that meet in each group, as a number; class_of[places]. */
static guint32 number_groups(const Groups *g, const guint32 *class_of, guint32 *number, guint32 *room) {
  Numbers x = numbers_new();
  for (int k = 0; k < g->n; k++) {
    size_t n = 0, distinct = 0;
    for (int i = g->from[k]; i < g->from[k + 1]; i++) room[n++] = class_of[g->place[i]];
    qsort(room, n, sizeof *room, ascending);
    for (size_t i = 0; i < n; i++)
      if (i == 0 || room[i] != room[i - 1]) room[distinct++] = room[i];
    number[k] = number_of(&x, room, distinct);
  }
  g_hash_table_unref(x.known);
  return x.n;
}

/* --- refining --- */

static guint32 first_classes(const MsUnits *u, const guint32 *property, guint32 *class_of) {
  for (int i = 0; i < u->places; i++) class_of[i] = (guint32)i;
  if (!property) return (guint32)u->places;
  Numbers x = numbers_new();
  g_autofree guint32 *own = g_new(guint32, u->stages);
  for (int i = 0; i < u->places; i++) {
    for (int s = 0; s < u->stages; s++) own[s] = property[s * u->places + i];
    class_of[i] = number_of(&x, own, (size_t)u->stages);
  }
  g_hash_table_unref(x.known);
  return x.n;
}

/* One round; returns how many classes there are then. */
static guint32 refine(const MsUnits *u, const Groups *group, guint32 *class_of) {
  g_autofree guint32 *signature = g_new(guint32, (gsize)u->places * MS_N_GROUPS), *room = g_new(guint32, u->places),
                     *number = g_new(guint32, u->places);
  memset(signature, 0, sizeof *signature * (gsize)u->places * MS_N_GROUPS);
  for (int kind = 1; kind < MS_N_GROUPS; kind++) {
    if (group[kind].n == 0) continue;
    number_groups(&group[kind], class_of, number, room);
    for (int i = 0; i < u->places; i++) signature[i * MS_N_GROUPS + kind] = number[group[kind].of[i]];
  }
  Numbers x = numbers_new();
  for (int i = 0; i < u->places; i++) {
    signature[i * MS_N_GROUPS] = class_of[i]; /* the place of MS_GROUP_NONE */
    class_of[i] = number_of(&x, signature + i * MS_N_GROUPS, MS_N_GROUPS);
  }
  g_hash_table_unref(x.known);
  return x.n;
}

static void take_units(MsUnits *u, const guint32 *class_of, guint32 n) {
  u->units = n;
  u->unit_of = g_memdup2(class_of, sizeof *class_of * (gsize)u->places);
  u->place = g_new(int, n), u->places_of = g_new0(int, n);
  for (int i = u->places - 1; i >= 0; i--) u->place[class_of[i]] = i, u->places_of[class_of[i]]++;
}

static void take_groups(MsUnits *u, const Groups *g, MsMeet *meet) {
  g_autofree guint32 *number = g_new(guint32, g->n), *room = g_new(guint32, u->places);
  meet->n = number_groups(g, u->unit_of, number, room);
  meet->of = g_new(guint32, u->units), meet->example = g_new(guint32, meet->n);
  for (guint32 k = u->units; k-- > 0;) {
    meet->of[k] = number[g->of[u->place[k]]];
    meet->example[meet->of[k]] = k;
  }
}

MsUnits *ms_units_new(const MsLayout *l, const guint32 *property) {
  MsUnits *u = g_new0(MsUnits, 1);
  u->stages = l->pp, u->places = l->world / l->pp, u->rank = ms_ranks_by_stage(l);
  Groups group[MS_N_GROUPS] = {{0}};
  for (int kind = 1; kind < MS_N_GROUPS; kind++)
    if (ms_meets_in_stage((MsGroupKind)kind) && l->group[kind].size > 1 && lies_in_stage(l, (MsGroupKind)kind))
      group[kind] = groups_of(l, u, (MsGroupKind)kind);
  g_autofree guint32 *class_of = g_new(guint32, u->places);
  guint32 n = first_classes(u, property, class_of), before = 0;
  while (n != before && n < (guint32)u->places) before = n, n = refine(u, group, class_of);
  take_units(u, class_of, n);
  for (int kind = 1; kind < MS_N_GROUPS; kind++) {
    if (group[kind].n > 0) take_groups(u, &group[kind], &u->meet[kind]);
    groups_clear(&group[kind]);
  }
  return u;
}

void ms_units_free(MsUnits *u) {
  if (!u) return;
  for (int kind = 0; kind < MS_N_GROUPS; kind++) g_free(u->meet[kind].of), g_free(u->meet[kind].example);
  g_free(u->rank), g_free(u->unit_of), g_free(u->place), g_free(u->places_of);
  g_free(u);
}
