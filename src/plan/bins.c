/* src/plan/bins.c - all layouts of a space, counted by the bounds of their step and memory. */
#include <math.h>
#include <string.h>

#include "base/order.h"
#include "base/units.h"
#include "plan/bins_priv.h"
#include "plan/map.h"

enum {
  PER_OCTAVE = 8, /* bins in which the step doubles */
  PER_LIMIT = 24, /* below the limit of memory */
  HIGHEST = 128   /* the last of memory, with all above it */
};

typedef struct { /* where a key's value is in a candidate */
  int axis;
  const MsChoice *choice; /* NULL: it is the axis */
  int n, from;            /* values; the first one's place in the counts */
} Source;

typedef struct {
  gint64 place; /* of the step and of the memory */
  double layouts, counts[];
} Tally;

struct MsBins {
  const MsSpace *space;
  double width_B;
  GArray *sources; /* Source, of each key of the map */
  int n_counts, threads;
  GHashTable **tallies; /* [threads] by place */
};

/* --- keys ------------------------------------------------------------------------------------------------------ */
/* The value at a path of a scenario, as JSON. (transfer full) */
static char *value_at(const MsScenario *s, const char *path) {
  g_autoptr(JsonNode) root = ms_scenario_node(s);
  g_auto(GStrv) keys = g_strsplit(path, ".", -1);
  JsonNode *node = root;
  for (int i = 0; keys[i] && node; i++) node = ms_json_member(ms_json_object(node), keys[i]);
  return node ? json_to_string(node, FALSE) : g_strdup("null");
}

static char *value_of_choice(const MsSpace *space, const MsChoice *choice, int value) {
  g_autoptr(MsScenario) s = ms_space_scratch(space);
  ms_choice_apply(choice, value, s);
  return value_at(s, choice->open->path);
}

/* `values`: JSON texts, in the order of the source. */
static void add_key(MsBins *bins, GArray *keys, const char *path, Source source, GPtrArray *values) {
  source.from = bins->n_counts;
  bins->n_counts += source.n;
  g_array_append_val(bins->sources, source);
  g_ptr_array_add(values, NULL);
  g_autofree char *list = g_strjoinv(",", (char **)values->pdata);
  const MsMapKey key = {g_strdup(path), g_strdup_printf("[%s]", list)};
  g_array_append_val(keys, key);
}

static void add_axis(MsBins *bins, GArray *keys, int axis) {
  const MsIntAxis *a = &bins->space->axis[axis];
  g_autoptr(GPtrArray) values = g_ptr_array_new_with_free_func(g_free);
  for (int v = 0; v < a->n; v++) g_ptr_array_add(values, g_strdup_printf("%d", a->value[v]));
  if (a->n > 1) add_key(bins, keys, ms_axis_paths[axis], (Source){.axis = axis, .n = a->n}, values);
}

/* But for the cut, which is another for each layout. */
static void add_choice(MsBins *bins, GArray *keys, const MsChoice *c) {
  g_autoptr(GPtrArray) values = g_ptr_array_new_with_free_func(g_free);
  if (c->n < 2 || strcmp(c->open->path, "layout.pipeline_layout") == 0) return;
  for (int v = 0; v < c->n; v++) g_ptr_array_add(values, value_of_choice(bins->space, c, v));
  add_key(bins, keys, c->open->path, (Source){.choice = c, .n = c->n}, values);
}

static void find_keys(MsBins *bins, MsLayoutMap *map) {
  GArray *keys = g_array_new(FALSE, FALSE, sizeof(MsMapKey));
  for (int axis = 0; axis < MS_N_AXES; axis++) add_axis(bins, keys, axis);
  for (int i = 0; i < bins->space->n_choices; i++) add_choice(bins, keys, &bins->space->choice[i]);
  map->n_keys = (int)keys->len;
  map->key = (MsMapKey *)g_array_free(keys, FALSE);
}

static int value_in(const MsBins *bins, const Source *source, const MsCandidate *c) {
  return source->choice ? ms_choice_value(source->choice, c->combo)
                        : ms_axis_place(&bins->space->axis[source->axis], c->value[source->axis]);
}

/* --- counting -------------------------------------------------------------------------------------------------- */
MsBins *ms_bins_new(const MsSpace *space, int threads, MsLayoutMap *map) {
  const MsRequest *request = space->request;
  MsBins *bins = g_new0(MsBins, 1);
  *bins = (MsBins){.space = space,
                   .width_B = request->max_memory_fraction * request->base->hardware->hbm_B / PER_LIMIT,
                   .sources = g_array_new(FALSE, FALSE, sizeof(Source)),
                   .threads = threads,
                   .tallies = g_new(GHashTable *, threads)};
  for (int i = 0; i < threads; i++) bins->tallies[i] = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
  map->bin_ratio = exp2(1.0 / PER_OCTAVE), map->bin_B = bins->width_B;
  find_keys(bins, map);
  return bins;
}

static Tally *tally_at(const MsBins *bins, GHashTable *tallies, gint64 place) {
  Tally *t = g_hash_table_lookup(tallies, &place);
  if (t) return t;
  t = g_malloc0(sizeof *t + sizeof *t->counts * (gsize)bins->n_counts);
  t->place = place;
  g_hash_table_insert(tallies, &t->place, t);
  return t;
}

/* A bin of memory ends with what it is full of, so that the limit is the end of one. */
void ms_bins_add(MsBins *bins, const MsCandidate *c, double device_B, int thread) {
  int step = (int)floor(log2((double)MAX(c->bound, 1)) * PER_OCTAVE),
      memory = (int)CLAMP(ceil(device_B / bins->width_B) - 1, 0, HIGHEST);
  Tally *t = tally_at(bins, bins->tallies[thread], (gint64)step * (HIGHEST + 1) + memory);
  t->layouts++;
  for (guint i = 0; i < bins->sources->len; i++) {
    const Source *source = &g_array_index(bins->sources, Source, i);
    t->counts[source->from + value_in(bins, source, c)]++;
  }
}

MS_ORDER(by_place, Tally, MS_LESS(x->place, y->place), 0)

/* Whole numbers, which add up to the same in any order. */
static void add_up(const MsBins *bins, GHashTable *from) {
  GHashTableIter each;
  gpointer own;
  g_hash_table_iter_init(&each, from);
  while (g_hash_table_iter_next(&each, NULL, &own)) {
    const Tally *t = own;
    Tally *sum = tally_at(bins, bins->tallies[0], t->place);
    sum->layouts += t->layouts;
    for (int i = 0; i < bins->n_counts; i++) sum->counts[i] += t->counts[i];
  }
}

void ms_bins_take(MsBins *bins, MsLayoutMap *map) {
  for (int i = 1; i < bins->threads; i++) add_up(bins, bins->tallies[i]);
  g_autoptr(GList) all = g_list_sort(g_hash_table_get_values(bins->tallies[0]), by_place);
  map->bin = g_new0(MsMapBin, g_list_length(all) + 1);
  for (const GList *at = all; at; at = at->next) {
    const Tally *t = at->data;
    map->bin[map->n_bins++] =
        (MsMapBin){.step_time_s = exp2((double)(t->place / (HIGHEST + 1)) / PER_OCTAVE) / MS_PS_PER_S,
                   .device_B = (double)(t->place % (HIGHEST + 1)) * bins->width_B,
                   .layouts = t->layouts,
                   .n_counts = bins->n_counts,
                   .counts = g_memdup2(t->counts, sizeof *t->counts * (gsize)bins->n_counts)};
  }
}

void ms_bins_free(MsBins *bins) {
  if (!bins) return;
  for (int i = 0; i < bins->threads; i++) g_hash_table_unref(bins->tallies[i]);
  g_free(bins->tallies);
  g_array_unref(bins->sources);
  g_free(bins);
}
