#include "study/check.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "study/jobs.h"

#define FLOOR 0.001 /* of the whole: smaller parts are compared with this */

/* --- predicting all -------------------------------------------------------------------------------------------- */
typedef struct {
  MsJob job; /* first, as ms_jobs_run wants it */
  const MsBaseline *baseline;
  int index;
  MsPrediction *out;
} Job;

static void job_run(gpointer item, gconstpointer data) {
  (void)data;
  Job *job = item;
  ms_prediction_make(job->baseline, job->index, job->out);
  job->out->made = TRUE;
}

static void predictions_free(MsPrediction *today, int n) {
  for (int i = 0; today && i < n; i++) {
    g_free(today[i].refused);
    g_free(today[i].why_infeasible);
  }
  g_free(today);
}

/* [baseline->n] without names and scenarios, those that were `made`; NULL and *error. */
static MsPrediction *predict_all(const MsBaseline *b, const MsCheckOptions *options, MsExtent *extent, GError **error) {
  MsPrediction *today = g_new0(MsPrediction, b->n);
  g_autoptr(GArray) jobs = g_array_new(FALSE, TRUE, sizeof(Job));
  for (int i = 0; i < b->n; i++) {
    Job job = {{b->prediction[i].name}, b, i, &today[i]};
    g_array_append_val(jobs, job);
  }
  const MsJobsOptions shift = {"check", "predictions", options->threads, options->progress};
  if (ms_jobs_run(jobs, job_run, NULL, &shift, extent, error)) return today;
  predictions_free(today, b->n);
  return NULL;
}

gboolean ms_check_update(MsBaseline *b, const MsCheckOptions *options, GError **error) {
  MsExtent extent;
  MsPrediction *today = predict_all(b, options, &extent, error);
  if (!today) return FALSE;
  if (ms_extent_stopped(&extent)) { /* half of a baseline is none */
    predictions_free(today, b->n);
    return ms_error(error, MS_ERROR_NOTHING, "%s after %u of %u predictions: nothing was written",
                    ms_interrupt_reason(), extent.done, extent.of);
  }
  for (int i = 0; i < b->n; i++) {
    MsPrediction *p = &b->prediction[i];
    g_free(p->refused);
    g_free(p->why_infeasible);
    p->refused = today[i].refused, p->why_infeasible = today[i].why_infeasible;
    memcpy(p->value, today[i].value, sizeof p->value);
  }
  g_free(today);
  if (b->inputs) json_node_unref(b->inputs);
  b->inputs = ms_baseline_inputs(b);
  for (int i = 0; i < b->n_tolerances; i++)
    if (!isnan(options->tolerance) && g_str_equal(b->tolerance[i].of, "default"))
      b->tolerance[i].tolerance = options->tolerance;
  return TRUE;
}

/* --- comparing quantities -------------------------------------------------------------------------------------- */
/* The quantity that a part belongs to; itself for a total. */
static int whole_of(int q) { return q < MS_Q_TIME ? q : q < MS_Q_MEMORY ? MS_Q_STEP_TIME : MS_Q_DEVICE; }

static double change_of(int q, const double *stored, const double *today) {
  double floor = q < MS_Q_TIME ? 0 : FLOOR * fabs(stored[whole_of(q)]), scale = MAX(fabs(stored[q]), floor);
  if (isnan(stored[q]) || isnan(today[q])) return isnan(stored[q]) && isnan(today[q]) ? 0 : INFINITY;
  if (stored[q] == today[q]) return 0;
  return scale > 0 ? (today[q] - stored[q]) / scale : INFINITY;
}

/* Share of its whole that a drift is; totals before all parts. */
static double weight(const MsDrift *d, const double *stored) {
  if (d->quantity < MS_Q_TIME) return 1e6 - d->quantity;
  double whole = stored[whole_of(d->quantity)], share = whole > 0 ? fabs(d->today - d->stored) / whole : 0;
  return isfinite(share) ? share : 1;
}

static void sort(MsDrift *drift, int n, const double *stored) { /* few; stable */
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && weight(&drift[j], stored) > weight(&drift[j - 1], stored); j--) {
      MsDrift swap = drift[j];
      drift[j] = drift[j - 1], drift[j - 1] = swap;
    }
}

/* The part of the time whose difference is largest. */
static char *moved_part(const double *stored, const double *today) {
  char name[MS_QUANTITY_TEXT];
  int most = -1;
  double largest = 0;
  for (int q = MS_Q_TIME; q < MS_Q_COMM; q++)
    if (fabs(today[q] - stored[q]) > largest) largest = fabs(today[q] - stored[q]), most = q;
  return most < 0 ? NULL : g_strdup(ms_quantity_name(most, name));
}

static char *state_change(const char *was, const char *is, const char *begins, const char *ends) {
  if (is && !was) return g_strdup_printf("%s: %s", begins, is);
  return was && !is ? g_strdup_printf("%s; it was: %s", ends, was) : NULL;
}

static void compare(const MsBaseline *b, const MsPrediction *stored, const MsPrediction *today,
                    const MsCheckOptions *options, MsChecked *out) {
  out->name = stored->name;
  out->state = state_change(stored->refused, today->refused, "does not run any more", "runs now");
  if (out->state || today->refused) return;
  out->state = state_change(stored->why_infeasible, today->why_infeasible, "does not fit any more", "fits now");
  out->drift = g_new0(MsDrift, MS_N_QUANTITIES);
  gboolean step = FALSE;
  for (int q = 0; q < MS_N_QUANTITIES; q++) {
    double tolerance = isnan(options->tolerance) ? ms_baseline_tolerance(b, q) : options->tolerance,
           change = change_of(q, stored->value, today->value);
    if (q < MS_Q_TIME) out->worst = MAX(out->worst, fabs(change));
    if (fabs(change) <= tolerance) continue;
    step = step || q == MS_Q_STEP_TIME;
    out->drift[out->n++] = (MsDrift){q, stored->value[q], today->value[q], change, tolerance};
  }
  sort(out->drift, out->n, stored->value);
  if (step) out->part = moved_part(stored->value, today->value);
}

/* --- comparing inputs ------------------------------------------------------------------------------------------ */
static char *text_of(JsonNode *node) {
  if (!node) return NULL;
  if (ms_json_is(node, G_TYPE_STRING)) return g_strdup(json_node_get_string(node));
  return ms_json_text(node, 0);
}

/* The object that a curve's text is; NULL for other texts. */
static MsJson *object_of(const char *text) {
  MsJson *doc = text && *text == '{' ? ms_json_parse(text, -1, "inputs", NULL) : NULL;
  if (doc && JSON_NODE_HOLDS_OBJECT(ms_json_root(doc))) return doc;
  ms_json_free(doc);
  return NULL;
}

static void add_input(MsCheck *c, const char *of, const char *key, JsonNode *stored, JsonNode *today);

/* Members of `a`, of the input `of` or behind its `key`, that are different in `b`, or with `added` those that `b` has
 * not; `a` is then today's. */
static void add_members(MsCheck *c, const char *of, const char *key, JsonObject *a, JsonObject *b, gboolean added) {
  for (MsJsonMember at = ms_json_members(a); ms_json_next(&at);) {
    g_autofree char *path = key ? g_strdup_printf("%s, %s", key, at.key) : g_strdup(at.key);
    JsonNode *other = ms_json_member(b, at.key);
    if (!added) add_input(c, of, path, at.value, other);
    else if (!other) add_input(c, of, path, NULL, at.value);
  }
}

static void add_input(MsCheck *c, const char *of, const char *key, JsonNode *stored, JsonNode *today) {
  g_autofree char *was = text_of(stored), *is = text_of(today);
  if (g_strcmp0(was, is) == 0) return;
  g_autoptr(MsJson) a = object_of(was), b = object_of(is);
  if (a && b) {
    JsonObject *before = json_node_get_object(ms_json_root(a)), *after = json_node_get_object(ms_json_root(b));
    add_members(c, of, key, before, after, FALSE);
    add_members(c, of, key, after, before, TRUE);
    return;
  }
  c->input = g_renew(MsInputChange, c->input, c->n_inputs + 1);
  c->input[c->n_inputs++] = (MsInputChange){g_strdup(of), g_strdup(key), g_steal_pointer(&was), g_steal_pointer(&is)};
}

static void compare_inputs(MsCheck *c, JsonNode *today) {
  JsonObject *now = ms_json_object(today);
  if (!c->baseline->inputs) return;
  for (MsJsonMember at = ms_json_members(json_node_get_object(c->baseline->inputs)); ms_json_next(&at);) {
    JsonObject *was = json_node_get_object(at.value), *is = ms_json_object(ms_json_member(now, at.key));
    add_members(c, at.key, NULL, was, is, FALSE);
    if (is) add_members(c, at.key, NULL, is, was, TRUE);
  }
}

/* --- all together ---------------------------------------------------------------------------------------------- */
MsCheck *ms_check(MsBaseline *baseline, const MsCheckOptions *options, GError **error) {
  MsCheck *c = g_new0(MsCheck, 1);
  c->baseline = baseline;
  MsPrediction *today = predict_all(baseline, options, &c->extent, error);
  if (!today) {
    ms_check_free(c);
    return NULL;
  }
  c->checked = g_new0(MsChecked, baseline->n);
  for (int i = 0; i < baseline->n; i++) {
    c->checked[i].compared = today[i].made;
    if (today[i].made) compare(baseline, &baseline->prediction[i], &today[i], options, &c->checked[i]);
    else c->checked[i].name = baseline->prediction[i].name;
    c->drifted += c->checked[i].state || c->checked[i].n > 0;
  }
  JsonNode *inputs = ms_baseline_inputs(baseline);
  compare_inputs(c, inputs);
  json_node_unref(inputs);
  predictions_free(today, baseline->n);
  return c;
}

void ms_check_free(MsCheck *c) {
  if (!c) return;
  for (int i = 0; c->checked && i < c->baseline->n; i++) {
    g_free(c->checked[i].state);
    g_free(c->checked[i].part);
    g_free(c->checked[i].drift);
  }
  for (int i = 0; i < c->n_inputs; i++) {
    g_free(c->input[i].of);
    g_free(c->input[i].key);
    g_free(c->input[i].stored);
    g_free(c->input[i].today);
  }
  g_free(c->input);
  g_free(c->checked);
  ms_baseline_free(c->baseline);
  g_free(c);
}
