/* src/plan/checkpoint.c - what a search has simulated, kept in a file, so that a run that was cut off goes on where it
 * stood.
 *
 * {"moesim_plan_checkpoint": 1, "request": "<digest>", "simulated": [[kind, step_time_s, combination, gpus, tp, cp, ep,
 * etp, microbatch size, pp, vpp], ...]} The digest is of everything that a step time depends on: request, model,
 * machine with its curves. Bounds are computed again: they take a fraction of the time. Rank 0 writes; every rank
 * reads. */
#include "plan/checkpoint_priv.h"
#include "base/hash.h"
#include "base/ranks.h"
#include "base/io.h"
#include <math.h>
#include <string.h>

#define FORMAT 1
enum { COLUMNS = 3 + MS_N_AXES };

typedef struct {
  gint32 combo[2], value[MS_N_AXES];
} Key;

struct MsPlanKnown {
  char *file, *digest;  /* NULL: kept for searches of this process only */
  const MsSpace *space; /* NULL likewise */
  GHashTable *known;    /* Key -> its place in the rows */
  GArray *rows;         /* MsOutcome, one of each candidate, in the order in which they were found */
  gboolean changed;     /* since they were written */
  gint64 written_us;
};

MS_HASHED(key, Key)

static Key key_of(const MsCandidate *c) {
  Key key = {.combo = {(gint32)(c->combo >> 31), (gint32)(c->combo & G_MAXINT32)}};
  memcpy(key.value, c->value, sizeof key.value);
  return key;
}

/* --- digest --- */

static void digest_text(GChecksum *sum, const char *text) {
  g_checksum_update(sum, (const guchar *)(text ? text : "-"), text ? (gssize)strlen(text) + 1 : 1);
}
static void digest_numbers(GChecksum *sum, const double *x, int n) {
  g_checksum_update(sum, (const guchar *)x, (gssize)sizeof *x * n);
}

static void digest_table(GChecksum *sum, const MsFieldTable *table, const void *object) {
  g_autofree char *text = ms_fields_text(table, object, 0);
  digest_text(sum, text);
}

static void digest_curves(GChecksum *sum, const MsHardware *h) {
  for (int i = 0; i < h->num_curves; i++) {
    const MsCurve *c = &h->curves[i];
    const double whole[] = {c->head_dim, c->ranks, c->form, c->sustained, c->n_segments};
    const char *const word[] = {c->op, c->dtype, c->pass, c->level, c->dispatcher, c->library};
    for (guint k = 0; k < G_N_ELEMENTS(word); k++) digest_text(sum, word[k]);
    digest_numbers(sum, whole, G_N_ELEMENTS(whole));
    digest_numbers(sum, c->param, MS_CURVE_PARAMS);
    digest_numbers(sum, c->segment_alpha_s, 4), digest_numbers(sum, c->segment_Bps, 4);
    int cells = c->grid.dims > 0;
    for (int d = 0; d < c->grid.dims; d++) cells *= c->grid.n[d], digest_numbers(sum, c->grid.axis[d], c->grid.n[d]);
    if (cells) digest_numbers(sum, c->grid.log_ratio, cells);
  }
}

static char *digest_of(const MsSpace *space) {
  GChecksum *sum = g_checksum_new(G_CHECKSUM_SHA256);
  const MsRequest *r = space->request;
  g_autofree char *base = ms_scenario_text(r->base, 0);
  digest_text(sum, base);
  digest_table(sum, &ms_model_table, r->base->model);
  for (int i = 0; i < ms_scenario_machines(r->base); i++) {
    digest_table(sum, &ms_hardware_table, ms_scenario_machine(r->base, i));
    digest_curves(sum, ms_scenario_machine(r->base, i));
  }
  for (int i = 0; i < space->n_choices; i++) {
    const MsChoice *c = &space->choice[i];
    digest_text(sum, c->open->path);
    for (int k = 0; k < c->n; k++) {
      char number[64] = "";
      if (c->size == sizeof(int)) g_snprintf(number, sizeof number, "%d", c->value[k].value.i);
      else if (c->size == sizeof(double)) g_snprintf(number, sizeof number, "%.17g", c->value[k].value.f);
      else if (c->size) {
        const MsRecomputeSpec *p = &c->value[k].value.recompute;
        g_snprintf(number, sizeof number, "%d %u %d %d", (int)p->granularity, p->modules, (int)p->method,
                   p->num_layers);
      }
      digest_text(sum, c->size ? number : c->value[k].text);
    }
  }
  char *text = g_strdup(g_checksum_get_string(sum));
  g_checksum_free(sum);
  return text;
}

/* --- reading --- */

static gboolean large_number(JsonNode *node, gint64 lo, gint64 hi, gint64 *out) {
  if (!ms_json_is(node, G_TYPE_INT64)) return FALSE;
  *out = json_node_get_int(node);
  return *out >= lo && *out <= hi;
}

static gboolean whole_number(JsonNode *node, gint64 lo, gint64 hi, gint32 *out) {
  gint64 value = 0;
  gboolean ok = large_number(node, lo, hi, &value);
  *out = (gint32)value;
  return ok;
}

static gboolean read_row(const MsCheckpoint *c, JsonNode *node, MsOutcome *o) {
  if (!JSON_NODE_HOLDS_ARRAY(node) || json_array_get_length(json_node_get_array(node)) != COLUMNS) return FALSE;
  JsonArray *row = json_node_get_array(node);
  JsonNode *time = json_array_get_element(row, 1);
  memset(o, 0, sizeof *o);
  if (!whole_number(json_array_get_element(row, 0), MS_OUTCOME_RUN, MS_OUTCOME_DEAR, &o->kind) ||
      isnan(ms_json_number(time)) ||
      !large_number(json_array_get_element(row, 2), 0, c->space->n_combos - 1, &o->candidate.combo))
    return FALSE;
  o->step_time_s = json_node_get_double(time);
  for (int i = 0; i < MS_N_AXES; i++)
    if (!whole_number(json_array_get_element(row, 3 + (guint)i), 1, G_MAXINT32, &o->candidate.value[i]) ||
        ms_axis_place(&c->space->axis[i], o->candidate.value[i]) < 0)
      return FALSE;
  return o->step_time_s >= 0 && isfinite(o->step_time_s);
}

static MsOutcome *find(const MsCheckpoint *c, const MsCandidate *candidate) {
  Key key = key_of(candidate);
  gpointer at;
  gboolean known = g_hash_table_lookup_extended(c->known, &key, NULL, &at);
  return known ? &g_array_index(c->rows, MsOutcome, GPOINTER_TO_UINT(at)) : NULL;
}

/* What was seen to be dear for one list and was simulated for a longer one is one layout. */
static void put(MsCheckpoint *c, const MsOutcome *o) {
  Key key = key_of(&o->candidate);
  MsOutcome *before = find(c, &o->candidate);
  if (before && before->kind != MS_OUTCOME_DEAR) return;
  c->changed = TRUE;
  if (before) {
    *before = *o;
    return;
  }
  g_hash_table_insert(c->known, g_memdup2(&key, sizeof key), GUINT_TO_POINTER(c->rows->len));
  g_array_append_val(c->rows, *o);
}

static gboolean read_rows(MsCheckpoint *c, const MsJson *doc, JsonObject *root, GError **error) {
  JsonNode *list = json_object_get_member(root, "simulated");
  if (!list || !JSON_NODE_HOLDS_ARRAY(list)) return ms_json_error(doc, "simulated", error, "must be a list");
  JsonArray *rows = json_node_get_array(list);
  for (guint i = 0; i < json_array_get_length(rows); i++) {
    MsOutcome o;
    if (!read_row(c, json_array_get_element(rows, i), &o)) {
      g_autofree char *path = g_strdup_printf("simulated[%u]", i);
      return ms_json_error(doc, path, error, "is not a simulated layout of this request");
    }
    put(c, &o);
  }
  return TRUE;
}

static gboolean read_file(MsCheckpoint *c, const char *file, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(file, error);
  if (!doc) return FALSE;
  gint32 format;
  if (!JSON_NODE_HOLDS_OBJECT(ms_json_root(doc)))
    return ms_json_error(doc, "", error, "must be a checkpoint that `moesim plan --checkpoint` wrote");
  JsonObject *root = json_node_get_object(ms_json_root(doc));
  JsonNode *version = json_object_get_member(root, "moesim_plan_checkpoint"),
           *request = json_object_get_member(root, "request");
  if (!version || !whole_number(version, FORMAT, FORMAT, &format))
    return ms_json_error(doc, "moesim_plan_checkpoint", error,
                         "must be a checkpoint of format %d that `moesim plan --checkpoint` wrote", FORMAT);
  if (!ms_json_is(request, G_TYPE_STRING) || strcmp(json_node_get_string(request), c->digest))
    return ms_json_error(doc, "request", error, "belongs to another request, model or machine; start without --resume");
  return read_rows(c, doc, root, error);
}

MsCheckpoint *ms_checkpoint_new(const MsSpace *space, const char *file, const char *resume, GError **error) {
  MsCheckpoint *c = g_new0(MsCheckpoint, 1);
  c->space = space;
  c->file = g_strdup(file);
  c->digest = file || resume ? digest_of(space) : NULL;
  c->known = g_hash_table_new_full(hash_key, equal_key, g_free, NULL);
  c->rows = g_array_new(FALSE, FALSE, sizeof(MsOutcome));
  if (!resume || read_file(c, resume, error)) return c;
  ms_checkpoint_free(c);
  return NULL;
}

void ms_checkpoint_free(MsCheckpoint *c) {
  if (!c) return;
  g_free(c->file);
  g_free(c->digest);
  g_hash_table_unref(c->known);
  g_array_unref(c->rows);
  g_free(c);
}

/* --- use --- */

const MsOutcome *ms_checkpoint_find(const MsCheckpoint *c, const MsCandidate *candidate) {
  return c ? find(c, candidate) : NULL;
}

const MsOutcome *ms_checkpoint_rows(const MsCheckpoint *c, guint *n) {
  *n = c->rows->len;
  return (const MsOutcome *)(gconstpointer)c->rows->data;
}

void ms_checkpoint_add(MsCheckpoint *c, const MsOutcome *o) { put(c, o); }

MsPlanKnown *ms_plan_known_new(void) { return ms_checkpoint_new(NULL, NULL, NULL, NULL); }
void ms_plan_known_free(MsPlanKnown *known) { ms_checkpoint_free(known); }

static char *text_of(const MsCheckpoint *c) {
  MsJsonOut *out = ms_json_out_new(1);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "moesim_plan_checkpoint", FORMAT);
  ms_json_out_string(out, "request", c->digest);
  ms_json_out_array(out, "simulated");
  for (guint i = 0; i < c->rows->len; i++) {
    const MsOutcome *o = &g_array_index(c->rows, MsOutcome, i);
    ms_json_out_array(out, NULL);
    ms_json_out_int(out, NULL, o->kind);
    ms_json_out_double(out, NULL, o->step_time_s);
    ms_json_out_int(out, NULL, o->candidate.combo);
    for (int k = 0; k < MS_N_AXES; k++) ms_json_out_int(out, NULL, o->candidate.value[k]);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

gboolean ms_checkpoint_write(MsCheckpoint *c, gboolean now, GError **error) {
  gint64 us = g_get_monotonic_time();
  if (!c->file || ms_ranks_own() != 0) return TRUE;
  if (!c->changed && (c->written_us || !now)) return TRUE;
  if (!now && us - c->written_us < G_USEC_PER_SEC) return TRUE;
  g_autofree char *text = text_of(c);
  c->changed = FALSE, c->written_us = us;
  return ms_write_file(c->file, text, -1, error);
}
