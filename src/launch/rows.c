/* src/launch/rows.c - the table at work: a scenario to arguments, arguments to a scenario. */
#include "base/err.h"
#include "base/text.h"
#include "launch/table.h"

#include <math.h>
#include <string.h>

/* --- keys by path ---------------------------------------------------------------------------------------------- */
static const MsField *walk(const MsFieldTable *table, void *object, const char *path, void **at) {
  const char *dot = strchr(path, '.');
  g_autofree char *key = dot ? g_strndup(path, (gsize)(dot - path)) : g_strdup(path);
  const MsField *field = ms_field_find(table, key);
  *at = object;
  if (!field || !dot) return field;
  return field->sub ? walk(field->sub, (char *)object + field->offset, dot + 1, at) : NULL;
}

const MsField *ms_key_find(const MsScenario *scenario, const char *path, void **object) {
  if (g_str_has_prefix(path, "model.")) return walk(&ms_model_table, scenario->model, path + strlen("model."), object);
  return walk(&ms_scenario_table, (void *)scenario, path, object);
}

void ms_key_reset(MsScenario *scenario, const char *path) {
  void *object;
  const MsField *field = ms_key_find(scenario, path, &object);
  const MsField one[] = {*field, {0}};
  const MsFieldTable alone = {"", "", one};
  ms_fields_defaults(&alone, object);
}

static void *member(const MsField *field, const void *object) { return (char *)object + field->offset; }

/* --- values as JSON nodes -------------------------------------------------------------------------------------- */
static JsonNode *constant(const char *json) {
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "table", NULL);
  if (!doc) MS_BUG("not JSON: %s", json);
  return ms_json_copy(ms_json_root(doc));
}

/* What a command line says for a field, into `node`. */
static gboolean node_of_text(const MsArgs *args, const MsArg *arg, const MsField *field, const char *text,
                             JsonNode *node, GError **error) {
  gint64 integer;
  double number;
  switch (field->type) {
  case MS_T_INT: /* every integer field has a range */
    if (!ms_arg_int(args, arg, (gint64)field->lo, (gint64)field->hi, &integer, error)) return FALSE;
    json_node_set_int(node, integer);
    return TRUE;
  case MS_T_F64:
    if (!ms_arg_number(args, arg, -G_MAXDOUBLE, G_MAXDOUBLE, &number, error)) return FALSE;
    json_node_set_double(node, number);
    return TRUE;
  default: json_node_set_string(node, text); return TRUE;
  }
}

static gboolean set_key(MsArgs *args, const MsArg *arg, const MsField *field, void *object, JsonNode *node,
                        GError **error) {
  g_autoptr(GError) why = NULL;
  if (ms_field_set(field, NULL, node, "", object, &why)) return TRUE;
  return arg ? ms_arg_error(args, arg, error, "%s", why->message)
             : ms_input_error(error, args->file, 0, field->key, "%s", why->message);
}

static gboolean is_of_model(const MsLaunchRow *row) { return row->fields && g_str_has_prefix(row->fields, "model."); }

/* --- reading --------------------------------------------------------------------------------------------------- */
static gboolean read_simple(const MsLaunchRow *row, MsArgs *args, MsScenario *s, GError **error) {
  void *object;
  const MsField *field = ms_key_find(s, row->fields, &object);
  const MsArg *arg = ms_args_take_any(args, row->flag);
  g_autoptr(JsonNode) node = NULL;
  if (arg && row->kind == MS_ROW_VALUE) {
    const char *text = ms_arg_value(args, arg, error);
    node = json_node_new(JSON_NODE_VALUE);
    if (!text || !node_of_text(args, arg, field, text, node, error)) return FALSE;
  } else if (arg || row->value) {
    node = constant(!arg ? row->value : row->kind == MS_ROW_ON ? "true" : "false");
  } else {
    return ms_input_error(error, args->file, 0, row->flag, "is missing: no launch of Megatron-LM goes without it%s%s",
                          args->open ? args->open : "", is_of_model(row) ? "; --model NAME says the whole model" : "");
  }
  return set_key(args, arg, field, object, node, error);
}

/* What a launch needs besides is understood when it stands as it would be written. */
static void read_fixed(const MsLaunchRow *row, MsArgs *args) {
  for (guint i = 0; i < args->list->len; i++) {
    MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, row->flag) == 0 && g_strcmp0(arg->values[0], row->value) == 0) arg->used = TRUE;
  }
}

static gboolean read_row(const MsLaunchRow *row, MsArgs *args, MsScenario *s, GError **error) {
  if (row->kind == MS_ROW_GROUP) return row->read(args, s, error);
  if (row->kind != MS_ROW_FIXED) return read_simple(row, args, s, error);
  read_fixed(row, args);
  return TRUE;
}

gboolean ms_args_read(MsArgs *args, MsScenario *scenario, GError **error) {
  for (int i = 0; i < ms_num_launch_rows; i++)
    if (!read_row(&ms_launch_rows[i], args, scenario, error)) return FALSE;
  return TRUE;
}

/* --- reading beside a known model ------------------------------------------------------------------------------ */
static const struct {
  const char *flag;
  size_t offset; /* of an int of MsModel */
} sizes[] = {{"--hidden-size", offsetof(MsModel, hidden_size)},
             {"--num-attention-heads", offsetof(MsModel, num_attention_heads)},
             {"--num-experts", offsetof(MsModel, num_experts)}};

/* A run of fewer layers than the model has: patterns of layers must say the same number. */
static gboolean read_layers(MsArgs *args, MsModel *m, GError **error) {
  const MsArg *arg = ms_args_take(args, "--num-layers");
  gint64 layers = m->num_layers;
  if (!arg || m->hybrid_layer_pattern) return TRUE;
  if (!ms_arg_int(args, arg, 1, 10000, &layers, error)) return FALSE;
  m->num_layers = (int)layers;
  return TRUE;
}

static gboolean check_sizes(MsArgs *args, const MsModel *m, GError **error) {
  for (guint i = 0; i < G_N_ELEMENTS(sizes); i++) {
    const MsArg *arg = ms_args_take(args, sizes[i].flag);
    int its = *(const int *)(const void *)((const char *)m + sizes[i].offset);
    gint64 said;
    if (arg && !ms_arg_int(args, arg, 0, 1 << 24, &said, error)) return FALSE;
    if (arg && said != its) return ms_arg_error(args, arg, error, "is %d, but %s has %d", (int)said, m->name, its);
  }
  return TRUE;
}

/* Marks what the rows of the model understand as used. */
static void take_model(MsArgs *args, const MsScenario *s) {
  MsScenario aside = *s;
  g_autoptr(MsModel) model = g_new0(MsModel, 1);
  ms_fields_defaults(&ms_model_table, model);
  aside.model = model;
  for (int i = 0; i < ms_num_launch_rows; i++)
    if (is_of_model(&ms_launch_rows[i])) read_row(&ms_launch_rows[i], args, &aside, NULL);
}

gboolean ms_args_read_around(MsArgs *args, MsScenario *s, GError **error) {
  if (!check_sizes(args, s->model, error) || !read_layers(args, s->model, error)) return FALSE;
  for (int i = 0; i < ms_num_launch_rows; i++)
    if (!is_of_model(&ms_launch_rows[i]) && !read_row(&ms_launch_rows[i], args, s, error)) return FALSE;
  if (!s->model->mtp_pattern && !ms_read_mtp(args, s, error)) return FALSE;
  take_model(args, s);
  return TRUE;
}

/* --- writing --------------------------------------------------------------------------------------------------- */
/* The value as a command line says it. (transfer full) */
static char *text_of(const MsField *field, const void *object) {
  char buf[32];
  const void *at = member(field, object);
  switch (field->type) {
  case MS_T_INT: return g_strdup_printf("%d", *(const int *)at);
  case MS_T_F64: return g_strdup(ms_double_text(*(const double *)at, buf));
  case MS_T_ENUM: return g_strdup(field->words[*(const int *)at]);
  case MS_T_STRING: return g_strdup(*(char *const *)at);
  default: MS_BUG("%s: no text for this type", field->key);
  }
}

/* TRUE when the member is what the release takes without the argument. */
static gboolean is_absent_value(const MsLaunchRow *row, const MsField *field, const void *object) {
  const void *at = member(field, object);
  if (!row->value) return FALSE;
  if (field->type == MS_T_BOOL) return (*(const gboolean *)at != 0) == (row->kind == MS_ROW_OFF);
  if (field->type == MS_T_F64 && isnan(*(const double *)at)) return strcmp(row->value, "null") == 0;
  g_autofree char *text = text_of(field, object);
  g_autofree char *quoted = g_strdup_printf("\"%s\"", text);
  return strcmp(row->value, text) == 0 || strcmp(row->value, quoted) == 0;
}

static char *main_flag(const MsLaunchRow *row) { return g_strndup(row->flag, strcspn(row->flag, " ")); }

/* Writes one argument; a key that the release has no argument for is added to `refused`. */
static void write_simple(const MsLaunchRow *row, const MsScenario *s, MsRelease release, MsArgs *args,
                         GPtrArray *refused) {
  void *object;
  const MsField *field = ms_key_find(s, row->fields, &object);
  gboolean absent = is_absent_value(row, field, object), own = release == MS_RELEASE_MT && row->mt,
           known = release == MS_RELEASE_MCORE || own || (row->flags & MS_ROW_MT);
  const char *with = own ? strchr(row->mt, ' ') : NULL;
  g_autofree char *flag = own ? g_strndup(row->mt, strcspn(row->mt, " ")) : main_flag(row);
  if (!known && !absent) g_ptr_array_add(refused, g_strdup_printf("%s (%s)", row->fields, flag));
  if (!known || (absent && !(row->flags & MS_ROW_ALWAYS))) return;
  if (row->kind == MS_ROW_VALUE) {
    g_autofree char *text = text_of(field, object);
    ms_args_add(args, row->section, flag, text, NULL);
  } else {
    ms_args_add(args, row->section, flag, with ? with + 1 : NULL, NULL);
  }
}

static gboolean is_said(const char *path) {
  if (ms_text_has_word(ms_launch_notes, path) || ms_text_has_word(ms_launch_unused, path)) return TRUE;
  for (int i = 0; i < ms_num_launch_rows; i++)
    if (ms_launch_rows[i].fields && ms_text_has_word(ms_launch_rows[i].fields, path)) return TRUE;
  return FALSE;
}

/* A key that no row says must be at its default: keys that the tables gain later are refused by name, never lost. */
static gboolean check_unsaid(const MsScenario *s, const MsFieldTable *table, const char *prefix, void *object,
                             GError **error) {
  for (const MsField *field = table->fields; field->key; field++) {
    g_autofree char *path = g_strconcat(prefix, field->key, NULL);
    if (field->type == MS_T_OBJECT && field->sub) {
      g_autofree char *below = g_strconcat(path, ".", NULL);
      if (!check_unsaid(s, field->sub, below, (char *)object + field->offset, error)) return FALSE;
    } else if (!is_said(path)) {
      g_autoptr(JsonNode) unusual = ms_field_node(field, object, FALSE);
      if (unusual)
        return ms_refuse_key(s, error, path, "no argument of %s says it; %s", ms_release_words[MS_RELEASE_MCORE],
                             g_str_has_prefix(path, "model.") ? "it has no model of this kind"
                                                              : "leave it at its default");
    }
  }
  return TRUE;
}

static gboolean check_all_said(const MsScenario *s, GError **error) {
  return check_unsaid(s, &ms_model_table, "model.", s->model, error) &&
         check_unsaid(s, &ms_training_table, "training.", (void *)&s->training, error) &&
         check_unsaid(s, &ms_layout_table, "layout.", (void *)&s->layout, error) &&
         check_unsaid(s, &ms_options_table, "options.", (void *)&s->options, error);
}

typedef struct {
  const MsScenario *scenario; /* canonical */
  MsRelease release;
  MsArgs *args;
  GPtrArray *refused; /* keys of simple rows that the release has no argument for */
} Writing;

static gboolean write_row(const Writing *w, const MsLaunchRow *row, GError **error) {
  MsArgs *args = w->args;
  guint before = args->list->len, variables = args->env->len;
  if (row->when && !row->when(w->scenario)) return TRUE;
  if (row->kind == MS_ROW_GROUP) {
    if (!row->write(w->scenario, w->release, args, error)) return FALSE;
    for (guint k = before; k < args->list->len; k++) ((MsArg *)args->list->pdata[k])->section = row->section;
  } else if (row->kind != MS_ROW_FIXED) {
    write_simple(row, w->scenario, w->release, args, w->refused);
  } else if (w->release == MS_RELEASE_MCORE || (row->flags & MS_ROW_MT)) {
    ms_args_add(args, row->section, row->flag, row->value, NULL);
  }
  for (; before < args->list->len; before++) ((MsArg *)args->list->pdata[before])->fields = row->fields;
  for (; variables < args->env->len; variables++) ((MsVariable *)args->env->pdata[variables])->fields = row->fields;
  return TRUE;
}

static gboolean are_refused(const Writing *w, GError **error) {
  if (w->refused->len == 0) return FALSE;
  g_ptr_array_add(w->refused, NULL);
  g_autofree char *keys = g_strjoinv(", ", (char **)w->refused->pdata);
  return !ms_refuse_key(w->scenario, error, keys, "%s has no such %s", ms_release_words[w->release],
                        w->refused->len > 2 ? "arguments" : "argument");
}

/* All rows, or those that say the model. NULL and *error. */
static MsArgs *written(const MsScenario *s, MsRelease release, gboolean model_alone, GError **error) {
  g_autoptr(MsArgs) args = ms_args_new("");
  g_autoptr(GPtrArray) refused = g_ptr_array_new_with_free_func(g_free);
  const Writing writing = {s, release, args, refused};
  for (int i = 0; i < ms_num_launch_rows; i++)
    if ((!model_alone || is_of_model(&ms_launch_rows[i])) && !write_row(&writing, &ms_launch_rows[i], error))
      return NULL;
  return are_refused(&writing, error) ? NULL : g_steal_pointer(&args);
}

MsArgs *ms_args_from_scenario(const MsScenario *scenario, MsRelease release, GError **error) {
  return check_all_said(scenario, error) ? written(scenario, release, FALSE, error) : NULL;
}

gboolean ms_args_say_model(const MsScenario *scenario, MsRelease release, GError **error) {
  if (!check_unsaid(scenario, &ms_model_table, "model.", scenario->model, error)) return FALSE;
  g_autoptr(MsArgs) args = written(scenario, release, TRUE, error);
  return args != NULL;
}
