#include "study/near.h"

#include "study/knobs.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const splits[MS_NEAR_SPLITS] = {"training.micro_batch_size", "layout.tp", "layout.cp", "layout.vpp",
                                                   "layout.ep"},
                         *const sizes[MS_NEAR_SIZES - 1] = {"training.seq_length", "layout.pp",
                                                            "training.global_batch_size"},
                         *const kinds[MS_NEAR_KINDS] = {"training.precision", "options.recompute", "options.fsdp"},
                         *const launches[MS_NEAR_LAUNCHES] = {"options.dispatcher", "options.cuda_graph_scope"};

static double doublings(GHashTable *keys, const char *path) {
  const char *text = g_hash_table_lookup(keys, path);
  double value = text ? g_ascii_strtod(text, NULL) : 1; /* no number (null, a word): 0 */
  return value > 1 ? log2(value) : 0;
}

void ms_near_place_init(MsNearPlace *p, const char *model, double gpus, GHashTable *keys, const double *share) {
  memcpy(p->share, share, sizeof p->share);
  for (int i = 0; i < MS_NEAR_SPLITS; i++) p->split[i] = doublings(keys, splits[i]);
  p->size[0] = gpus > 1 ? log2(gpus) : 0;
  for (int i = 1; i < MS_NEAR_SIZES; i++) p->size[i] = doublings(keys, sizes[i - 1]);
  p->model = g_strdup(model);
  for (int i = 0; i < MS_NEAR_KINDS; i++) p->kind[i] = g_strdup(g_hash_table_lookup(keys, kinds[i]));
  for (int i = 0; i < MS_NEAR_LAUNCHES; i++) p->launch[i] = g_strdup(g_hash_table_lookup(keys, launches[i]));
}

void ms_near_place_clear(MsNearPlace *p) {
  g_clear_pointer(&p->model, g_free);
  for (int i = 0; i < MS_NEAR_KINDS; i++) g_clear_pointer(&p->kind[i], g_free);
  for (int i = 0; i < MS_NEAR_LAUNCHES; i++) g_clear_pointer(&p->launch[i], g_free);
}

static double apart(const double *a, const double *b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += fabs(a[i] - b[i]);
  return sum;
}

static int others(char *const *a, char *const *b, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += g_strcmp0(a[i], b[i]) != 0;
  return sum;
}

double ms_near_correlation(const MsLaws *laws, const MsNearPlace *a, const MsNearPlace *b) {
  return exp(-laws->anchor_near_share * apart(a->share, b->share, MS_N_ANCHORS) / 2 -
             laws->anchor_near_split * apart(a->split, b->split, MS_NEAR_SPLITS) -
             laws->anchor_near_size * apart(a->size, b->size, MS_NEAR_SIZES) -
             laws->anchor_near_model * others(&a->model, &b->model, 1) -
             laws->anchor_near_kind * others(a->kind, b->kind, MS_NEAR_KINDS) -
             laws->anchor_near_launch * others(a->launch, b->launch, MS_NEAR_LAUNCHES));
}

/* --- shares ---------------------------------------------------------------------------------------------------- */
#define STEP 0.1 /* of a log factor, for differences */

static gboolean fast_log_s(const MsScenario *s, double *log_s, GError **error) {
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, error);
  if (!r) return FALSE;
  *log_s = log(r->step_time_s);
  return r->step_time_s > 0;
}

gboolean ms_near_shares(MsScenario *s, double share[MS_N_ANCHORS], GError **error) {
  double base, moved;
  if (!fast_log_s(s, &base, error)) return FALSE;
  for (int c = 0; c < MS_N_ANCHORS; c++) {
    double *factor = &s->hardware->anchor.factor[c], before = *factor;
    *factor = (before > 0 ? before : 1) * exp(STEP);
    gboolean good = fast_log_s(s, &moved, error);
    *factor = before;
    if (!good) return FALSE;
    share[c] = (moved - base) / STEP;
  }
  return TRUE;
}

/* --- intervals ------------------------------------------------------------------------------------------------- */
static double between(double low, double high, double sd, const MsLaws *laws) {
  double wide = hypot(sd, laws->anchor_odd_run_noise), usual = 1 - laws->anchor_odd_chance;
  return usual * (gsl_cdf_ugaussian_P(high / sd) - gsl_cdf_ugaussian_P(low / sd)) +
         (1 - usual) * (gsl_cdf_cauchy_P(high, wide) - gsl_cdf_cauchy_P(low, wide));
}

double ms_near_half_width(const MsLaws *laws, int n, const double *weight, const double *at, const double *sd) {
  double low = 0, high = MS_ANCHOR_BAND_MOST;
  for (int i = 0; i < 40; i++) {
    double middle = (low + high) / 2, inside = 0;
    for (int k = 0; k < n; k++)
      if (weight[k] > 0) inside += weight[k] * between(-middle - at[k], middle - at[k], sd[k], laws);
    *(inside < 0.9 ? &low : &high) = middle;
  }
  return high;
}

/* --- what runs say of another ---------------------------------------------------------------------------------- */
typedef struct {
  guint n;
  MsNearPlace *place;
  double *left, *noise; /* what it shares with runs near it, as measured; its noise variance over that of weight 1 */
  double *moved;        /* what the factors hold of that, of its model */
} Known;

static void known_clear(Known *k) {
  for (guint i = 0; i < k->n; i++) ms_near_place_clear(&k->place[i]);
  g_free(k->place);
  g_free(k->left);
  g_free(k->noise);
  g_free(k->moved);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Known, known_clear)

static double sum_of(const double share[MS_N_ANCHORS]) {
  double sum = 0;
  for (int c = 0; c < MS_N_ANCHORS; c++) sum += share[c];
  return sum;
}

/* Of a run as describe/anchor.h has checked it; those that do not say what their step follows are left out. */
static void take(Known *k, JsonObject *run) {
  JsonArray *shares = json_object_has_member(run, "shares") ? json_object_get_array_member(run, "shares") : NULL;
  double share[MS_N_ANCHORS];
  if (!shares) return;
  for (guint c = 0; c < MS_N_ANCHORS; c++) share[c] = json_array_get_double_element(shares, c);
  JsonObject *keys = json_object_get_object_member(run, "keys");
  g_autoptr(GHashTable) text = g_hash_table_new(g_str_hash, g_str_equal);
  g_autoptr(GList) names = json_object_get_members(keys);
  for (GList *l = names; l; l = l->next)
    g_hash_table_insert(text, l->data, (gpointer)json_object_get_string_member(keys, l->data));
  ms_near_place_init(&k->place[k->n], json_object_get_string_member(run, "model"),
                     json_object_get_double_member(run, "gpus"), text, share);
  k->moved[k->n] = json_object_has_member(run, "moved") ? json_object_get_double_member(run, "moved") : 0;
  k->left[k->n] = json_object_get_double_member(run, "left") + k->moved[k->n] * sum_of(share);
  k->noise[k->n++] = json_object_has_member(run, "noise") ? json_object_get_double_member(run, "noise") : 1;
}

static Known known_of(const MsAnchor *anchor) {
  JsonArray *runs = anchor->runs ? json_node_get_array(anchor->runs) : NULL;
  guint n = runs ? json_array_get_length(runs) : 0;
  Known k = {0, g_new0(MsNearPlace, n + 1), g_new0(double, n + 1), g_new0(double, n + 1), g_new0(double, n + 1)};
  for (guint i = 0; i < n; i++) take(&k, json_array_get_object_element(runs, i));
  return k;
}

/* Mean and variance of what is near `at`, of a spread of 1 times anchor_near_spread, by those that are known. */
static void krige(const MsLaws *laws, const Known *k, const MsNearPlace *at, double *mean, double *variance,
                  double *nearest) {
  double own = laws->anchor_near_spread * laws->anchor_near_spread,
         noise = laws->anchor_run_noise * laws->anchor_run_noise;
  gsl_matrix *all = gsl_matrix_alloc(k->n, k->n);
  gsl_vector *to = gsl_vector_alloc(k->n), *weight = gsl_vector_alloc(k->n);
  *mean = *nearest = 0, *variance = own;
  for (guint i = 0; i < k->n; i++) {
    double shared = ms_near_correlation(laws, at, &k->place[i]);
    *nearest = MAX(*nearest, shared);
    gsl_vector_set(to, i, own * shared);
    for (guint j = 0; j < k->n; j++)
      gsl_matrix_set(all, i, j,
                     own * ms_near_correlation(laws, &k->place[i], &k->place[j]) + (i == j ? noise * k->noise[i] : 0));
  }
  gsl_linalg_cholesky_decomp1(all);
  gsl_linalg_cholesky_solve(all, to, weight);
  for (guint i = 0; i < k->n; i++) {
    *mean += gsl_vector_get(weight, i) * k->left[i];
    *variance -= gsl_vector_get(weight, i) * gsl_vector_get(to, i);
  }
  gsl_matrix_free(all);
  gsl_vector_free(to);
  gsl_vector_free(weight);
}

/* What the factors hold already: of a run of its model, else of any. */
static double moved_of(const Known *k, const MsAnchor *anchor, const MsNearPlace *at) {
  for (guint i = k->n; i > 0; i--)
    if (strcmp(k->place[i - 1].model, at->model) == 0) return k->moved[i - 1] * sum_of(at->share);
  return isfinite(anchor->moved) ? anchor->moved * sum_of(at->share) : 0;
}

gboolean ms_near_predict(MsScenario *s, double step_time_s, MsNear *near, GError **error) {
  const MsLaws *laws = &s->laws;
  const MsAnchor *anchor = &s->hardware->anchor;
  g_auto(Known) known = known_of(anchor);
  double share[MS_N_ANCHORS], mean, variance;
  *near = (MsNear){.runs = known.n};
  if (known.n == 0) return TRUE;
  if (!ms_near_shares(s, share, error)) return FALSE;
  g_autoptr(GHashTable) keys = ms_knobs_of_layout(s);
  MsNearPlace at;
  ms_near_place_init(&at, s->model->name, s->gpus, keys, share);
  krige(laws, &known, &at, &mean, &variance, &near->nearest);
  mean -= moved_of(&known, anchor, &at);
  ms_near_place_clear(&at);
  double scale = anchor->scale > 0 ? anchor->scale : 1, spread = anchor->spread > 0 ? anchor->spread : 0,
         sd = hypot(spread, scale * sqrt(MAX(variance, 0) + laws->anchor_run_noise * laws->anchor_run_noise));
  near->step_time_s = step_time_s * exp(mean);
  near->band = ms_near_half_width(laws, 1, &(double){1}, &(double){0}, &sd);
  return TRUE;
}
