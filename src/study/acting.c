/* src/study/acting.c - each law halved and doubled: does the run move? */
#include "study/acting.h"

#include "study/jobs.h"
#include "study/parts.h"

#include <math.h>
#include <string.h>

typedef struct {
  double step_time_s, device_B, band;
} Figures;

typedef struct {
  const MsScenario *scenario;
  Figures shipped;
} Run;

/* FALSE and *error, or what a law may move. */
static gboolean predict(const MsScenario *s, Figures *f, GError **error) {
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, error);
  if (r) *f = (Figures){r->step_time_s, r->memory ? ms_device_B(r) : 0, isfinite(r->band) ? r->band : 0};
  return r != NULL;
}

static double relative(double value, double of) { return value == of ? 0 : of > 0 ? value / of - 1 : NAN; }

/* A scenario that a value breaks says nothing of the law. */
static MsLawEffect effect(const Run *run, MsLaw law, double value) {
  Figures f;
  MsScenario moved = *run->scenario;
  ms_law_set(&moved.laws, law, value);
  if (!predict(&moved, &f, NULL)) return (MsLawEffect){0};
  return (MsLawEffect){relative(f.step_time_s, run->shipped.step_time_s), relative(f.device_B, run->shipped.device_B),
                       f.band - run->shipped.band};
}

static void try_law(gpointer item, gconstpointer data) {
  const Run *run = data;
  MsActingLaw *law = item;
  const MsField *field = ms_laws_table.fields;
  while (strcmp(field->key, law->key) != 0) field++;
  MsLaw which = (MsLaw)(field - ms_laws_table.fields);
  law->halved = effect(run, which, law->value / 2);
  law->doubled = effect(run, which, law->value > 0 ? 2 * law->value : field->hi);
}

static double moves(const MsActingLaw *law) { return MAX(fabs(law->halved.step), fabs(law->doubled.step)); }

static gboolean acts(const MsActingLaw *law) {
  const MsLawEffect *a = &law->halved, *b = &law->doubled;
  return a->step != 0 || b->step != 0 || a->memory != 0 || b->memory != 0 || a->band != 0 || b->band != 0;
}

static gint by_effect(gconstpointer a, gconstpointer b) {
  double x = moves(a), y = moves(b);
  return x != y ? (x < y ? 1 : -1) : strcmp(((const MsActingLaw *)a)->key, ((const MsActingLaw *)b)->key);
}

static void law_clear(gpointer item) {
  MsActingLaw *law = item;
  g_free(law->source);
  g_free(law->fitted_on);
}

static GArray *all_laws(const MsLaws *laws, const MsLawEntry *entries) {
  GArray *all = g_array_sized_new(FALSE, TRUE, sizeof(MsActingLaw), MS_N_LAWS);
  g_array_set_clear_func(all, law_clear);
  for (int i = 0; i < MS_N_LAWS; i++) {
    const MsField *field = &ms_laws_table.fields[i];
    MsActingLaw law = {.job = {field->key},
                       .key = field->key,
                       .unit = field->unit,
                       .value = ms_law_get(laws, (MsLaw)i),
                       .given = laws->given[i],
                       .source = g_strdup(entries[i].source),
                       .fitted_on = g_strdup(entries[i].fitted_on)};
    g_array_append_val(all, law);
  }
  return all;
}

MsActingLaws *ms_acting_laws(const MsScenario *scenario, GError **error) {
  Run run = {.scenario = scenario};
  MsLawEntry *entries = ms_law_entries_load(error);
  if (!entries) return NULL;
  g_autoptr(GArray) laws = all_laws(&scenario->laws, entries);
  ms_law_entries_free(entries);
  const MsJobsOptions shift = {"laws", "laws", 0, FALSE};
  if (!predict(scenario, &run.shipped, error) || !ms_jobs_run_all(laws, try_law, &run, &shift, error)) return NULL;
  for (guint i = laws->len; i-- > 0;)
    if (!acts(&g_array_index(laws, MsActingLaw, i))) g_array_remove_index(laws, i);
  g_array_sort(laws, by_effect);
  MsActingLaws *acting = g_new(MsActingLaws, 1);
  acting->n = (int)laws->len;
  acting->law = (MsActingLaw *)(void *)g_array_steal(laws, NULL);
  return acting;
}

void ms_acting_laws_free(MsActingLaws *acting) {
  for (int i = 0; acting && i < acting->n; i++) law_clear(&acting->law[i]);
  if (acting) g_free(acting->law);
  g_free(acting);
}
