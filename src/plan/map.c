/* src/plan/map.c - a sample of all layouts with their predictions. */
#include "plan/map.h"
#include "plan/bins_priv.h"
#include "plan/enumerate_priv.h"
#include "plan/parallel_priv.h"

#include <math.h>

enum { TRIES = 100 };   /* for each point wanted */
#define FAST_SHARE  0.1 /* of the layouts, by their bounds, */
#define FAST_POINTS 0.5 /* that have this share of the points */

/* `points` places, evenly among [from, to). */
static void sample(const GArray *all, guint from, guint to, guint points, MsLayoutMap *map, GArray *chosen) {
  guint n = MIN(points, to - from);
  for (guint i = 0; i < n; i++) {
    guint at = from + (guint)((guint64)i * (to - from) / n);
    g_array_append_val(chosen, g_array_index(all, MsCandidate, at));
    map->point[map->n++].count = (double)(to - from) / n;
  }
}

static void choose(GArray *all, guint most, MsLayoutMap *map, GArray *chosen) {
  g_array_sort(all, ms_candidate_compare);
  guint first = all->len <= most ? all->len : (guint)ceil(FAST_SHARE * all->len),
        points = all->len <= most ? all->len : (guint)(FAST_POINTS * most);
  map->layouts = all->len;
  map->point = g_new0(MsMapPoint, MAX(1, MIN(all->len, most)));
  sample(all, 0, first, points, map, chosen);
  sample(all, first, all->len, most - points, map, chosen);
}

/* A layout of the space, each as likely. */
static void draw_one(const MsSpace *space, GRand *rand, MsCandidate *c) {
  for (int axis = 0; axis < MS_N_AXES; axis++)
    c->value[axis] = space->axis[axis].value[g_rand_int_range(rand, 0, space->axis[axis].n)];
  c->combo = MIN((gint64)(g_rand_double(rand) * (double)space->n_combos), space->n_combos - 1);
}

/* Draws until there are enough that obey the rules; *first: pieces of the first of them, which the others cut layers
 * by. */
static void draw(MsSpace *space, guint most, MsPieceMemo **first, MsLayoutMap *map, GArray *chosen) {
  g_autoptr(GRand) rand = g_rand_new_with_seed(1);
  guint tries = 0;
  map->point = g_new0(MsMapPoint, most);
  for (; tries < TRIES * most && chosen->len < most && !ms_interrupted(); tries++) {
    MsCandidate c = {0};
    MsRefusal refusal;
    draw_one(space, rand, &c);
    g_autoptr(MsScenario) s = ms_candidate_scenario(space, &c, NULL);
    if (!ms_layout_check(s, &refusal)) continue;
    if (!*first) space->like = *first = ms_memo_new(s, NULL);
    g_array_append_val(chosen, c);
  }
  map->drawn = TRUE;
  map->n = (int)chosen->len;
  map->layouts = tries > 0 ? ms_space_size(space) * map->n / tries : 0;
  for (int i = 0; i < map->n; i++) map->point[i].count = map->layouts / map->n;
}

typedef struct {
  const MsSpace *space;
  const GArray *chosen;
  MsLayoutMap *map;
} Job;

static double needs_B(const MsResult *r) {
  double most = NAN;
  for (int i = 0; r->memory && i < r->memory->stages; i++) most = fmax(most, r->memory->stage[i].device_B);
  return most;
}

static void predict(int index, int thread, gpointer data) {
  const Job *job = data;
  (void)thread;
  if (ms_interrupted()) return;
  g_autoptr(MsScenario) s = ms_candidate_scenario(job->space, &g_array_index(job->chosen, MsCandidate, index), NULL);
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  MsMapPoint *p = &job->map->point[index];
  if (!r || !(r->step_time_s > 0)) return;
  p->step_time_s = r->step_time_s, p->device_B = needs_B(r);
  p->scenario = g_steal_pointer(&s);
}

static void drop_unpredicted(MsLayoutMap *map) {
  int n = 0;
  for (int i = 0; i < map->n; i++)
    if (map->point[i].scenario) map->point[n++] = map->point[i];
  map->n = n;
}

/* Every layout, bounded; into bins where they are more than points. */
static gboolean count_all(MsSearch *search, guint most, MsLayoutMap *map, GError **error) {
  search->bins = ms_bins_new(search->space, ms_parallel_threads(search->options->threads), map);
  gboolean ok = ms_enumerate(search, error);
  if (ok && search->candidates->len > most) ms_bins_take(search->bins, map);
  ms_bins_free(search->bins);
  return ok;
}

static gboolean fill(MsSearch *search, guint most, MsLayoutMap *map, GError **error) {
  g_autoptr(GArray) chosen = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  if (ms_space_size(search->space) > MS_MAP_MOST) draw(search->space, most, &search->first, map, chosen);
  else if (count_all(search, most, map, error)) choose(search->candidates, most, map, chosen);
  else return FALSE;
  Job job = {search->space, chosen, map};
  ms_parallel_here(map->n, search->options->threads, predict, &job);
  drop_unpredicted(map);
  return TRUE;
}

MsLayoutMap *ms_layout_map(const MsRequest *request, const MsPlanOptions *options, int points, GError **error) {
  MsPlanOptions o = *options;
  o.without |= 1u << MS_SHORT_MEMORY; /* what does not fit is shown too */
  MsSpace *space = ms_space_new(request, ms_shortcut_on(&o, MS_SHORT_SHARED), error);
  if (!space) return NULL;
  g_autoptr(MsLayoutMap) map = g_new0(MsLayoutMap, 1);
  MsPlan counts = {.memory_limit_B = INFINITY};
  MsSearch search = {.space = space, .options = &o, .plan = &counts};
  search.candidates = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  ms_refused_init(&search.refused);
  gboolean ok = fill(&search, (guint)points, map, error);
  ms_refused_clear(&search.refused);
  g_array_unref(search.candidates);
  ms_memo_free(search.first);
  ms_space_free(space);
  return ok ? g_steal_pointer(&map) : NULL;
}

void ms_layout_map_free(MsLayoutMap *map) {
  if (!map) return;
  for (int i = 0; i < map->n; i++) {
    ms_scenario_free(map->point[i].scenario);
    g_free(map->point[i].set);
  }
  for (int i = 0; i < map->n_keys; i++) {
    g_free(map->key[i].path);
    g_free(map->key[i].values);
  }
  for (int i = 0; i < map->n_bins; i++) g_free(map->bin[i].counts);
  g_free(map->key);
  g_free(map->bin);
  g_free(map->point);
  g_free(map);
}
