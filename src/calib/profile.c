/* src/calib/profile.c - new curves in the text of a profile. Everything that is not replaced stays as it was, to the
 * byte. */
#include "calib/fit_priv.h"

#include "base/err.h"
#include "base/json.h"
#include "base/order.h"

#include <math.h>
#include <string.h>

/* --- one curve as text, in the style of the shipped profiles --------------------------------------------------- */
static void put_text(GString *out, const char *key, const char *value) {
  if (!value) return;
  g_autofree char *quoted = ms_json_quoted(value);
  g_string_append_printf(out, "%s\"%s\": %s", out->str[out->len - 1] == '{' ? "" : ", ", key, quoted);
}

static void put_number(GString *out, const char *key, double value) {
  char text[32];
  if (!isfinite(value)) return;
  g_string_append_printf(out, "%s\"%s\": %s", out->str[out->len - 1] == '{' ? "" : ", ", key,
                         ms_double_text(value, text));
}

static void put_list(GString *out, const double *value, int n) {
  char text[32];
  for (int i = 0; i < n; i++)
    g_string_append_printf(out, "%s%s", i ? ", " : "", ms_double_text(value[i] == 0 ? 0 : value[i], text));
}

static void put_grid(GString *out, const MsGrid *grid) {
  int size = 1, line = grid->n[grid->dims - 1] * (grid->dims > 1 ? grid->n[grid->dims - 2] : 1);
  g_string_append(out, ",\n     \"grid\": {\"axes\": {");
  for (int d = 0; d < grid->dims; d++) {
    g_string_append_printf(out, "%s\"%s\": [", d ? ", " : "", grid->name[d]);
    put_list(out, grid->axis[d], grid->n[d]);
    g_string_append_c(out, ']');
    size *= grid->n[d];
  }
  g_string_append(out, "}, \"log_ratio\": [");
  for (int i = 0; i < size; i += line) {
    g_string_append(out, i ? ",\n       " : "\n       ");
    put_list(out, grid->log_ratio + i, line);
  }
  g_string_append(out, "]}");
}

static void put_provenance(GString *out, const MsProvenance *p) {
  g_string_append(out, ",\n     \"provenance\": {");
  put_text(out, "data", p->data);
  put_text(out, "library", p->library);
  put_text(out, "form", p->form);
  put_text(out, "command", p->command);
  put_text(out, "date", p->date);
  put_text(out, "note", p->note);
  put_number(out, "cast_launch_s", p->cast_launch_s);
  put_number(out, "cast_bw_efficiency", p->cast_bw_efficiency);
  put_number(out, "n_fitted", p->n_fitted);
  put_number(out, "n_held_back", p->n_held_back);
  put_number(out, "residual_median", p->residual_median);
  put_number(out, "residual_p90", p->residual_p90);
  g_string_append(out, "}}");
}

static char *curve_text(const MsCurve *curve) {
  GString *out = g_string_new("{");
  put_text(out, "op", curve->op);
  put_text(out, "dtype", curve->dtype);
  put_text(out, "pass", curve->pass);
  put_text(out, "level", curve->level);
  put_text(out, "dispatcher", curve->dispatcher);
  put_text(out, "library", curve->library);
  if (curve->head_dim) put_number(out, "head_dim", curve->head_dim);
  if (curve->ranks) put_number(out, "ranks", curve->ranks);
  put_text(out, "form", ms_curve_form_words[curve->form]);
  if (curve->sustained > 0 && curve->sustained != 1) put_number(out, "sustained", curve->sustained);
  if (curve->form == MS_FORM_SEGMENTS) {
    g_string_append(out, ",\n     \"segments\": [");
    for (int i = 0; i < curve->n_segments; i++) {
      g_string_append(out, i ? ", [" : "[");
      put_list(out, (const double[2]){curve->segment_alpha_s[i], curve->segment_Bps[i]}, 2);
      g_string_append_c(out, ']');
    }
    g_string_append_c(out, ']');
  } else {
    g_string_append(out, ",\n     \"params\": {");
    for (int i = 0; ms_curve_param_words[curve->form][i]; i++)
      if (i < ms_curve_required(curve->form) || curve->param[i] > 0)
        put_number(out, ms_curve_param_words[curve->form][i], curve->param[i]);
    g_string_append_c(out, '}');
  }
  if (curve->grid.dims) put_grid(out, &curve->grid);
  put_provenance(out, &curve->provenance);
  return g_string_free(out, FALSE);
}

/* --- places in a text that the JSON reader accepted ------------------------------------------------------------ */
typedef struct {
  const char *from, *to;
} Span; /* to: one past the end; from NULL: not there */

static const char *skip_blank(const char *p) { return p + strspn(p, " \t\r\n"); }

static const char *skip_string(const char *p) {
  for (p++; *p && *p != '"'; p++)
    if (*p == '\\' && p[1]) p++;
  return *p ? p + 1 : p;
}

static const char *skip_value(const char *p) {
  int depth = 0;
  do {
    if (*p == '"') {
      p = skip_string(p);
      continue;
    }
    if (*p == '{' || *p == '[') depth++;
    if (*p == '}' || *p == ']') depth--;
    if (depth == 0 && *p != '}' && *p != ']') return p + strcspn(p, ",]} \t\r\n");
    p++;
  } while (*p && depth > 0);
  return p;
}

/* Value of `key` in the object that begins at `object`. */
static Span member(const char *object, const char *key) {
  const char *p = skip_blank(object + 1);
  size_t length = strlen(key);
  while (*p == '"') {
    const char *name = p + 1, *end = skip_string(p);
    const char *value = skip_blank(skip_blank(end) + 1), *after = skip_value(value);
    if ((size_t)(end - 1 - name) == length && strncmp(name, key, length) == 0) return (Span){value, after};
    p = skip_blank(after);
    if (*p == ',') p = skip_blank(p + 1);
  }
  return (Span){NULL, NULL};
}

/* --- edits ----------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *from, *to;
  char *text;
} Edit;

static void edit(GArray *edits, const char *from, const char *to, char *text) {
  g_array_append_vals(edits, &(Edit){from, to, text}, 1);
}

MS_ORDER(by_place, Edit, MS_LESS(x->from, y->from), 0)

static void set_member(GArray *edits, const char *object, const char *key, const char *value, const char *margin) {
  Span at = member(object, key);
  if (at.from) edit(edits, at.from, at.to, g_strdup(value));
  else
    edit(edits, object + 1, object + 1,
         g_strdup_printf("\n%s\"%s\": %s%s", margin, key, value, *skip_blank(object + 1) == '}' ? "" : ","));
}

static gboolean same_key(const MsCurve *a, const MsCurve *b) {
  gboolean exchange = strcmp(a->op, "dispatch") == 0 || strcmp(a->op, "combine") == 0;
  return strcmp(a->op, b->op) == 0 && g_strcmp0(a->dtype, b->dtype) == 0 && g_strcmp0(a->pass, b->pass) == 0 &&
         g_strcmp0(a->level, b->level) == 0 && g_strcmp0(a->dispatcher, b->dispatcher) == 0 &&
         a->head_dim == b->head_dim && (a->ranks == b->ranks || (exchange && (a->ranks == 0 || b->ranks == 0)));
}

/* The old curves are `n` elements of the list at `list`, in the order of hardware->curves. */
static void edit_curves(GArray *edits, const char *list, const MsHardware *hardware, const GPtrArray *curves) {
  g_autofree gboolean *placed = g_new0(gboolean, curves->len + 1);
  const char *p = skip_blank(list + 1), *last = NULL;
  for (int i = 0; *p && *p != ']' && i < hardware->num_curves; i++) {
    const char *end = skip_value(p);
    for (guint c = 0; c < curves->len; c++) {
      if (placed[c] || !same_key(curves->pdata[c], &hardware->curves[i])) continue;
      edit(edits, p, end, curve_text(curves->pdata[c]));
      placed[c] = TRUE;
      break;
    }
    last = end;
    p = skip_blank(end);
    if (*p == ',') p = skip_blank(p + 1);
  }
  g_autoptr(GString) more = g_string_new(NULL);
  for (guint c = 0; c < curves->len; c++) {
    if (placed[c]) continue;
    g_autofree char *text = curve_text(curves->pdata[c]);
    g_string_append_printf(more, "%s\n    %s", last || more->len ? "," : "", text);
  }
  if (more->len) edit(edits, last ? last : list + 1, last ? last : list + 1, g_strdup(more->str));
}

static char *apply(const char *text, GArray *edits) {
  GString *out = g_string_new(NULL);
  if (edits->len) qsort(edits->data, edits->len, sizeof(Edit), by_place);
  for (guint i = 0; i < edits->len; i++) {
    Edit *e = &g_array_index(edits, Edit, i);
    g_string_append_len(out, text, e->from - text);
    g_string_append(out, e->text);
    text = e->to;
    g_free(e->text);
  }
  g_string_append(out, text);
  return g_string_free(out, FALSE);
}

char *ms_profile_edit(const char *text, const char *filename, const GPtrArray *curves, const char *const *members,
                      GError **error) {
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, filename, error);
  g_autoptr(MsHardware) hardware = doc ? ms_hardware_from_json(doc, ms_json_root(doc), "", error) : NULL;
  if (!hardware) return NULL;
  g_autoptr(GArray) edits = g_array_new(FALSE, FALSE, sizeof(Edit));
  const char *root = skip_blank(text);
  Span list = member(root, "curves"), sources = member(root, "sources");
  for (int i = 0; members && members[i]; i += 3) {
    set_member(edits, root, members[i], members[i + 1], "  ");
    if (sources.from && members[i + 2]) set_member(edits, sources.from, members[i], members[i + 2], "    ");
  }
  if (list.from) edit_curves(edits, list.from, hardware, curves);
  else set_member(edits, root, "curves", "[]", "  ");
  g_autofree char *changed = apply(text, edits);
  if (list.from || curves->len == 0) return g_steal_pointer(&changed);
  return ms_profile_edit(changed, filename, curves, NULL, error);
}
