/* src/base/figure.c - printing and documenting objects by their tables of figures. */
#include "base/figure.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

const char ms_figure_skip[] = "";

static const MsFigure number_rows[] = {{.key = "", .type = MS_FIGURE_F64}, {0}};
const MsFigures ms_figure_numbers = {.rows = number_rows};
static const MsFigure text_rows[] = {{.key = "", .type = MS_FIGURE_STRING, .unit = ""}, {0}};
const MsFigures ms_figure_texts = {.rows = text_rows};

const char *ms_figure_first_string(const void *element) { return *(char *const *)element; }

const void *ms_figure_place(const void *owner, guint i, guint n, MsFigureCursor *room) {
  *room = (MsFigureCursor){owner, i};
  return i < n ? room : NULL;
}

/* A table ends with a row that has neither a key nor a type of its own. */
static gboolean is_end(const MsFigure *f) { return !f->key && f->type == MS_FIGURE_F64; }
static gboolean is_value(const MsFigures *table) { return table->rows[0].key && !*table->rows[0].key; }

/* --- where a figure is ----------------------------------------------------------------------------------------- */
static const void *member(const MsFigure *f, const void *object) { return (const char *)object + f->offset; }

static const void *target(const MsFigure *f, const void *object) {
  if (f->at) return f->at(object);
  return f->pointer ? *(const void *const *)member(f, object) : member(f, object);
}

static gboolean is_there(const MsFigure *f, const void *object) {
  if (f->when && !f->when(object)) return FALSE;
  return !f->only || f->type < MS_FIGURE_OBJECT || f->item || f->garray || target(f, object);
}

static const void *text_at(const char *const *texts, guint i) { return texts[i] ? &texts[i] : NULL; }
static const void *array_at(const GArray *array, gsize stride, guint i) {
  return array && i < array->len ? array->data + i * stride : NULL;
}

static const void *any_element(const MsFigure *f, const void *owner, guint i, MsFigureCursor *room) {
  if (f->item) return f->item(owner, i, room);
  if (f->type == MS_FIGURE_LIST && f->words) return text_at(f->words, i);
  const char *first = target(f, owner);
  if (f->garray) return array_at((const void *)first, f->stride, i);
  if (f->stride == 0) return text_at((const void *)first, i);
  guint n = f->words ? g_strv_length((char **)f->words) : *(const guint *)((const char *)owner + f->n_offset);
  return first && i < n ? first + i * f->stride : NULL;
}

/* Element i of a list or map; NULL after the last. */
static const void *element(const MsFigure *f, const void *owner, guint i, MsFigureCursor *room) {
  const void *at = any_element(f, owner, i, room);
  return at && f->keep && !f->keep(at) ? ms_figure_skip : at;
}

static const char *name_of(const MsFigure *f, const void *item, guint i) {
  return f->type == MS_FIGURE_LIST ? NULL : f->words ? f->words[i] : f->name(item);
}

/* --- values ---------------------------------------------------------------------------------------------------- */
static gint64 integer(const MsFigure *f, const void *object) {
  const void *at = member(f, object);
  if (f->number) return (gint64)f->number(object);
  if (f->type == MS_FIGURE_U64) return (gint64) * (const guint64 *)at;
  return f->type == MS_FIGURE_UINT ? (gint64) * (const guint *)at : *(const int *)at;
}

static double real(const MsFigure *f, const void *object) {
  return f->number ? f->number(object) : *(const double *)member(f, object);
}

static const char *string(const MsFigure *f, const void *object) {
  if (f->text) return f->text(object);
  if (f->type == MS_FIGURE_WORD)
    return f->words[f->stride == 1 ? *(const guint8 *)member(f, object) : *(const int *)member(f, object)];
  return f->type == MS_FIGURE_CHARS ? member(f, object) : *(char *const *)member(f, object);
}

static MsFigureValue value_of(const MsFigure *f, const void *object) {
  if (f->type >= MS_FIGURE_STRING) return (MsFigureValue){NAN, string(f, object)};
  return (MsFigureValue){f->type == MS_FIGURE_F64 ? real(f, object) : (double)integer(f, object), NULL};
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */
static void write_element(const MsFigures *table, const void *item, const char *key, MsJsonOut *out);

static void write_elements(const MsFigure *f, const void *owner, MsJsonOut *out) {
  MsFigureCursor room;
  const void *item;
  for (guint i = 0; (item = element(f, owner, i, &room)) != NULL; i++)
    if (item != ms_figure_skip) write_element(f->sub, item, name_of(f, item, i), out);
}

static void write_object(const MsFigure *f, const void *object, const char *key, MsJsonOut *out) {
  if (object) ms_figures_write(f->sub, object, key, out);
  else ms_json_out_null(out, key);
}

static void write_list(const MsFigure *f, const void *owner, const char *key, MsJsonOut *out) {
  ms_json_out_array(out, key);
  write_elements(f, owner, out);
  ms_json_out_end(out);
}

static void write_map(const MsFigure *f, const void *owner, const char *key, MsJsonOut *out) {
  if (key) ms_json_out_object(out, key);
  write_elements(f, owner, out);
  if (key) ms_json_out_end(out);
}

static void write_members(const MsFigures *table, const char *const *few, const void *object, MsJsonOut *out);

static void write_figure(const MsFigure *f, const void *object, const char *key, MsJsonOut *out) {
  switch (f->type) {
  case MS_FIGURE_F64: ms_json_out_double(out, key, real(f, object)); break;
  case MS_FIGURE_INT:
  case MS_FIGURE_UINT:
  case MS_FIGURE_U64: ms_json_out_int(out, key, integer(f, object)); break;
  case MS_FIGURE_BOOL: ms_json_out_bool(out, key, integer(f, object) != 0); break;
  case MS_FIGURE_STRING:
  case MS_FIGURE_CHARS:
  case MS_FIGURE_WORD: ms_json_out_string(out, key, string(f, object)); break;
  case MS_FIGURE_OBJECT: write_object(f, target(f, object), key, out); break;
  case MS_FIGURE_MEMBERS: write_members(f->sub, f->few, target(f, object), out); break;
  case MS_FIGURE_LIST: write_list(f, object, key, out); break;
  case MS_FIGURE_MAP: write_map(f, object, key, out); break;
  case MS_FIGURE_FILE: f->write(target(f, object), key, out); break;
  }
}

static void write_element(const MsFigures *table, const void *item, const char *key, MsJsonOut *out) {
  if (is_value(table)) write_figure(&table->rows[0], item, key, out);
  else ms_figures_write(table, item, key, out);
}

static void write_members(const MsFigures *table, const char *const *few, const void *object, MsJsonOut *out) {
  for (const MsFigure *f = table->rows; !is_end(f); f++)
    if ((!few || g_strv_contains(few, f->key)) && is_there(f, object)) write_figure(f, object, f->key, out);
}

void ms_figures_write(const MsFigures *table, const void *object, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  write_members(table, NULL, object, out);
  ms_json_out_end(out);
}

char *ms_figures_json(const MsFigures *table, const void *object) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_figures_write(table, object, NULL, out);
  return ms_json_out_take(out);
}

/* --- one figure by its path ------------------------------------------------------------------------------------ */
/* What follows `step` in the path; NULL when the path does not begin with it. */
static const char *after(const char *path, const char *step) {
  size_t n = strlen(step);
  return strncmp(path, step, n) == 0 && (!path[n] || path[n] == '.' || path[n] == '[') ? path + n : NULL;
}

static gboolean get_in(const MsFigures *table, const void *object, const char *rest, MsFigureValue *value);

static gboolean get_of_list(const MsFigure *f, const void *owner, const char *rest, MsFigureValue *value) {
  MsFigureCursor room;
  char *end;
  if (rest[0] != '[' || !g_ascii_isdigit(rest[1])) return FALSE;
  guint64 place = g_ascii_strtoull(rest + 1, &end, 10);
  for (guint i = 0; *end == ']' && i <= place; i++) {
    const void *item = element(f, owner, i, &room);
    if (!item) return FALSE;
    if (item == ms_figure_skip) place++;
    else if (i == place) return get_in(f->sub, item, end + 1, value);
  }
  return FALSE;
}

static gboolean get_of_map(const MsFigure *f, const void *owner, const char *rest, MsFigureValue *value) {
  MsFigureCursor room;
  const void *item;
  for (guint i = 0; (item = element(f, owner, i, &room)) != NULL; i++) {
    const char *more = item == ms_figure_skip ? NULL : after(rest, name_of(f, item, i));
    if (more) return get_in(f->sub, item, more, value);
  }
  return FALSE;
}

/* `rest` begins after the key of the row. */
static gboolean get_of(const MsFigure *f, const void *object, const char *rest, MsFigureValue *value) {
  if (f->type == MS_FIGURE_LIST) return get_of_list(f, object, rest, value);
  if (f->type == MS_FIGURE_MAP) return *rest == '.' && get_of_map(f, object, rest + 1, value);
  if (f->type == MS_FIGURE_OBJECT) return get_in(f->sub, target(f, object), rest, value);
  if (*rest || f->type == MS_FIGURE_FILE) return FALSE;
  *value = value_of(f, object);
  return TRUE;
}

/* Below an element or object: ".key...", or nothing where the element is the value. */
static gboolean get_in(const MsFigures *table, const void *object, const char *rest, MsFigureValue *value) {
  if (is_value(table)) return get_of(&table->rows[0], object, rest, value);
  return object && *rest == '.' && ms_figures_get(table, object, rest + 1, value);
}

gboolean ms_figures_get(const MsFigures *table, const void *object, const char *path, MsFigureValue *value) {
  for (const MsFigure *f = table->rows; !is_end(f); f++) {
    if (!is_there(f, object)) continue;
    const char *key = f->key, *rest = key ? after(path, key) : NULL;
    if (rest) return get_of(f, object, rest, value);
    if (!key && f->type == MS_FIGURE_MEMBERS && ms_figures_get(f->sub, target(f, object), path, value)) return TRUE;
    if (!key && f->type == MS_FIGURE_MAP && get_of_map(f, object, path, value)) return TRUE;
  }
  return FALSE;
}

double ms_figures_number(const MsFigures *table, const void *object, const char *path) {
  MsFigureValue value;
  return ms_figures_get(table, object, path, &value) ? value.number : NAN;
}

/* --- text ------------------------------------------------------------------------------------------------------ */
const MsFigure *ms_figures_find(const MsFigures *table, const char *key) {
  for (const MsFigure *f = table->rows; !is_end(f); f++)
    if (f->key && strcmp(f->key, key) == 0) return f;
  MS_BUG("no figure %s", key);
}

static const char *print_figure(const MsFigure *f, const void *object, char *buf) {
  MsFigureValue value = value_of(f, object);
  if (f->type >= MS_FIGURE_STRING) return value.text ? value.text : "-";
  if (f->print) return f->print(value.number, buf);
  g_snprintf(buf, MS_TEXT, f->type == MS_FIGURE_F64 ? "%.4g" : "%.0f", value.number);
  return buf;
}

void ms_figures_columns(const MsFigures *table, const char *const *keys, MsTable *to) {
  for (int i = 0; keys[i]; i++) {
    const MsFigure *f = ms_figures_find(table, keys[i]);
    ms_table_column(to, f->title, f->type < MS_FIGURE_STRING);
  }
}

void ms_figures_cells(const MsFigures *table, const char *const *keys, const void *object, MsTable *to) {
  char buf[MS_TEXT];
  for (int i = 0; keys[i]; i++) ms_table_cell(to, print_figure(ms_figures_find(table, keys[i]), object, buf));
}

/* --- CSV ------------------------------------------------------------------------------------------------------- */
void ms_csv_cell_text(GString *out, const char *text, char end) {
  if (!strpbrk(text, ",\"\n")) {
    g_string_append(out, text);
  } else {
    g_autoptr(GString) quoted = g_string_new(text);
    g_string_replace(quoted, "\"", "\"\"", 0);
    g_string_append_printf(out, "\"%s\"", quoted->str);
  }
  g_string_append_c(out, end);
}

void ms_csv_cell_number(GString *out, double value, char end) {
  char text[32];
  if (isfinite(value)) g_string_append(out, ms_double_text(value, text));
  g_string_append_c(out, end);
}

GString *ms_figures_csv(const char *const *paths) {
  g_autofree char *head = g_strjoinv(",", (char **)paths);
  GString *out = g_string_new(head);
  return g_string_append_c(out, '\n');
}

void ms_figures_csv_cells(const MsFigures *table, const char *const *paths, const void *object, char end,
                          GString *out) {
  for (int i = 0; paths[i]; i++) {
    MsFigureValue value = {NAN, NULL};
    if (object) ms_figures_get(table, object, paths[i], &value);
    if (value.text) ms_csv_cell_text(out, value.text, paths[i + 1] ? ',' : end);
    else ms_csv_cell_number(out, value.number, paths[i + 1] ? ',' : end);
  }
}

/* --- what the figures are -------------------------------------------------------------------------------------- */
typedef struct {
  MsTable *rows; /* as text; NULL: `markdown` */
  GString *markdown;
  GPtrArray *used; /* named tables */
} Document;

static const char *type_word(const MsFigure *f) {
  static const char *const words[] = {"number", "number", "number", "number", "bool",   "string", "string",
                                      "string", "object", "object", "object", "object", "file"};
  if (f->sub && f->sub->name) return f->sub->name;
  return words[f->type];
}

/* "optional (`--front`): sentence" */
static char *meaning(const MsFigure *f, const char *only) {
  if (!only) return g_strdup(f->doc ? f->doc : "");
  return g_strdup_printf("optional%s%s%s%s%s", *only ? " (" : "", only, *only ? ")" : "", f->doc ? ": " : "",
                         f->doc ? f->doc : "");
}

static void document_row(const Document *d, const char *path, const MsFigure *f, const MsFigure *value,
                         const char *only) {
  g_autofree char *text = meaning(f, only);
  const char *null = (f->flags & MS_FIGURE_NULLABLE) ? " or null" : "", *unit = f->unit ? f->unit : "";
  if (!*path) path = "."; /* the object itself is also one of that table */
  if (d->rows) {
    ms_table_cellf(d->rows, "  %s", path);
    ms_table_cellf(d->rows, "%s%s", type_word(value), null);
    ms_table_cell(d->rows, unit);
    ms_table_cell(d->rows, text);
  } else {
    g_string_append_printf(d->markdown, "| `%s` | %s%s |%s%s |%s%s |\n", path, type_word(value), null, *unit ? " " : "",
                           unit, *text ? " " : "", text);
  }
}

static void document_rows(Document *d, const MsFigures *table, const char *before, const char *only);

static void document_figure(Document *d, const MsFigure *f, const char *before, const char *only) {
  gboolean inside = f->type == MS_FIGURE_MEMBERS, named = f->key && !(f->flags & MS_FIGURE_ANY_KEY);
  const char *step = inside ? "" : named ? f->key : "*";
  const char *end = f->type == MS_FIGURE_LIST ? "[]" : f->type == MS_FIGURE_MAP && f->key ? ".*" : "";
  g_autoptr(GString) name = g_string_new(before);
  g_string_append_printf(name, "%s%s%s", *before && !inside ? "." : "", step, end);
  const MsFigure *value = f;
  while (value->sub && is_value(value->sub)) { /* lists of lists: "stages[][]" */
    value = &value->sub->rows[0];
    if (value->type == MS_FIGURE_LIST) g_string_append(name, "[]");
  }
  const char *path = name->str;
  if (value->sub && value->sub->name) g_ptr_array_add(d->used, (gpointer)value->sub);
  if (value->sub && !value->sub->name) document_rows(d, f->sub, path, only);
  else if (f->doc || !(f->flags & MS_FIGURE_ANY_KEY)) document_row(d, path, f, value, only);
}

/* The first row of an optional object says when it is there, the others that they are optional too. */
static void document_rows(Document *d, const MsFigures *table, const char *before, const char *only) {
  for (const MsFigure *f = table->rows; !is_end(f); f++) {
    document_figure(d, f, before, f->only && (!only || *f->only) ? f->only : only);
    if (only) only = g_str_has_prefix(only, "rare") ? "rare" : "";
  }
}

void ms_figures_document(const MsFigures *table, gboolean markdown, GHashTable *seen, GString *out) {
  if (!g_hash_table_add(seen, (gpointer)table->name)) return;
  g_autoptr(GPtrArray) used = g_ptr_array_new();
  Document d = {markdown ? NULL : ms_table_of("  key|type|unit|meaning"), out, used};
  if (markdown) g_string_append_printf(out, "\n## %s\n\n%s\n\n", table->name, table->doc);
  else g_string_append_printf(out, "%s%s: %s\n", out->len ? "\n" : "", table->name, table->doc);
  if (markdown) g_string_append(out, "| key | type | unit | meaning |\n|---|---|---|---|\n");
  document_rows(&d, table, "", NULL);
  g_autofree char *text = d.rows ? ms_table_take(d.rows) : NULL;
  if (text) g_string_append(out, text);
  for (guint i = 0; i < used->len; i++) ms_figures_document(used->pdata[i], markdown, seen, out);
}
