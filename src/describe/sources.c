/* src/describe/sources.c - where the figures of a machine come from, and which are assumed. */
#include "describe/sources.h"

#include <math.h>

static const char *const mark_words[] = {"stated", "measured", "datasheet", "published", "assumed", NULL};

static JsonNode *source_of(const MsHardware *hardware, const char *key) {
  if (!hardware->sources || !JSON_NODE_HOLDS_OBJECT(hardware->sources)) return NULL;
  return json_object_get_member(json_node_get_object(hardware->sources), key);
}

/* NULL: no such member, or no text. */
static const char *text_in(JsonObject *source, const char *key) {
  JsonNode *node = json_object_get_member(source, key);
  return node && JSON_NODE_HOLDS_VALUE(node) ? json_node_get_string(node) : NULL;
}

static const char *member_text(JsonNode *source, const char *key) {
  if (!source) return NULL;
  if (JSON_NODE_HOLDS_VALUE(source)) return strcmp(key, "text") == 0 ? json_node_get_string(source) : NULL;
  return text_in(json_node_get_object(source), key);
}

static int mark_of_word(const char *word) {
  for (int i = 0; word && mark_words[i]; i++)
    if (strcmp(word, mark_words[i]) == 0) return i;
  return -1;
}

MsMark ms_source_mark(const MsHardware *hardware, const char *key) {
  return (MsMark)MAX(mark_of_word(member_text(source_of(hardware, key), "mark")), MS_MARK_STATED);
}

double ms_source_within(const MsHardware *hardware, const char *key) {
  JsonNode *source = source_of(hardware, key);
  if (mark_of_word(member_text(source, "mark")) != MS_MARK_ASSUMED) return 0;
  return json_object_get_double_member_with_default(json_node_get_object(source), "within", 0);
}

char *ms_source_text(const MsHardware *hardware, const char *key) {
  const char *text = member_text(source_of(hardware, key), "text");
  MsMark mark = ms_source_mark(hardware, key);
  double within = ms_source_within(hardware, key);
  if (!text || mark == MS_MARK_STATED) return g_strdup(text);
  return within > 0 ? g_strdup_printf("assumed within %.0f %%: %s", 100 * within, text)
                    : g_strdup_printf("%s: %s", mark_words[mark], text);
}

typedef struct {
  const char *prefix, *words, *by; /* what the figure is in words; what measures it */
} Spoken;

static const Spoken *spoken_of(const char *key) {
  static const Spoken all[] = {
      {"peak_", "FLOP a second", "moesim calibrate --gpu, then moesim fit"},
      {"hbm_Bps", "bandwidth of the memory", "moesim calibrate --gpu, then moesim fit"},
      {"l2_Bps", "bandwidth of the cache", "moesim calibrate --gpu, then moesim fit"},
      {"scaleup_Bps", "bandwidth inside a node", "nccl-tests inside of a node, then moesim import nccl-tests"},
      {"nic_Bps", "bandwidth of the network", "nccl-tests over several nodes, then moesim import nccl-tests"},
      {"host_link_Bps", "bandwidth to the host", "nvbandwidth or its like"},
      {"sustained_derate", "clock in long runs", "a run that its products decide, then moesim anchor"},
      {"kernel_launch_s", "host time of a kernel", "a run that waits for its host, then moesim anchor"}};
  for (guint i = 0; i < G_N_ELEMENTS(all); i++)
    if (g_str_has_prefix(key, all[i].prefix)) return &all[i];
  return NULL;
}

const char *ms_source_measured_by(const char *key) {
  const Spoken *spoken = spoken_of(key);
  return spoken ? spoken->by : NULL;
}

const char *ms_source_words(const char *key) {
  const Spoken *spoken = spoken_of(key);
  return spoken ? spoken->words : NULL;
}

/* --- checks ---------------------------------------------------------------------------------------------------- */
static gboolean check_within(JsonNode *node, gboolean assumed, const MsJson *doc, const char *path, GError **error) {
  if (!node) return TRUE;
  if (!assumed) return ms_json_error(doc, path, error, "only an assumed figure has it; its mark says otherwise");
  gboolean number = JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) != G_TYPE_STRING &&
                    json_node_get_value_type(node) != G_TYPE_BOOLEAN;
  double within = number ? json_node_get_double(node) : NAN;
  return (within > 0 && within <= 2) ||
         ms_json_error(doc, path, error,
                       "must be a number above 0, at most 2: how far off the figure may be, relative");
}

void ms_source_put_measured(MsJsonOut *out, const char *key, const char *text) {
  ms_json_out_object(out, key);
  ms_json_out_string(out, "mark", mark_words[MS_MARK_MEASURED]);
  ms_json_out_string(out, "text", text);
  ms_json_out_end(out);
}

static gboolean check_marked(JsonObject *source, const MsJson *doc, const char *path, GError **error) {
  static const char *const known[] = {"mark", "text", "within", NULL};
  g_autoptr(GList) keys = json_object_get_members(source);
  for (GList *l = keys; l; l = l->next)
    if (!g_strv_contains(known, l->data))
      return ms_json_error(doc, path, error, "unknown key \"%s\"; a source has mark, text and within",
                           (const char *)l->data);
  const char *mark = text_in(source, "mark");
  if (mark_of_word(mark) <= MS_MARK_STATED)
    return ms_json_error(doc, path, error, "needs a mark: measured, datasheet, published or assumed");
  if (!text_in(source, "text"))
    return ms_json_error(doc, path, error, "needs a text that says where the figure comes from");
  g_autofree char *deeper = g_strconcat(path, ".within", NULL);
  return check_within(json_object_get_member(source, "within"), mark_of_word(mark) == MS_MARK_ASSUMED, doc, deeper,
                      error);
}

gboolean ms_sources_check(const MsHardware *hardware, const MsJson *doc, const char *path, GError **error) {
  if (!hardware->sources) return TRUE;
  if (!ms_json_need_object(doc, hardware->sources, path, error)) return FALSE;
  JsonObject *sources = json_node_get_object(hardware->sources);
  g_autoptr(GList) keys = json_object_get_members(sources);
  for (GList *l = keys; l; l = l->next) {
    JsonNode *source = json_object_get_member(sources, l->data);
    g_autofree char *deeper = g_strconcat(path, ".", (const char *)l->data, NULL);
    if (ms_json_is(source, G_TYPE_STRING)) continue;
    if (!JSON_NODE_HOLDS_OBJECT(source))
      return ms_json_error(doc, deeper, error, "must be a text, or {\"mark\": ..., \"text\": ...}");
    if (!check_marked(json_node_get_object(source), doc, deeper, error)) return FALSE;
  }
  return TRUE;
}

/* --- changes --------------------------------------------------------------------------------------------------- */
static void add_members(JsonObject *to, JsonNode *from, JsonObject *except) {
  if (!from || !JSON_NODE_HOLDS_OBJECT(from)) return;
  for (MsJsonMember at = ms_json_members(json_node_get_object(from)); ms_json_next(&at);)
    if (!except || !json_object_has_member(except, at.key)) json_object_set_member(to, at.key, json_node_ref(at.value));
}

void ms_sources_inherit(MsHardware *hardware, JsonNode *base, JsonObject *changes) {
  JsonObject *sources = json_object_new();
  add_members(sources, base, changes);
  if (json_object_has_member(changes, "sources")) add_members(sources, hardware->sources, NULL);
  if (hardware->sources) json_node_unref(hardware->sources);
  hardware->sources = json_node_init_object(json_node_alloc(), sources);
  json_object_unref(sources);
}

static void forget(MsHardware *hardware, const MsField *field) {
  void *member = (char *)hardware + field->offset;
  if (field->type == MS_T_F64) *(double *)member = NAN;
  if (field->type == MS_T_INT) *(int *)member = 0;
}

static gboolean is_measured(const MsHardware *hardware, const char *op, const char *level) {
  for (int i = 0; i < hardware->num_curves; i++) {
    const MsCurve *c = &hardware->curves[i];
    if (strcmp(c->op, op) == 0 && g_strcmp0(c->level, level) == 0 && ms_curve_is_own(c)) return TRUE;
  }
  return FALSE;
}

/* A link all of whose messages were measured on the machine: what is assumed of its bandwidth moves none of them. */
static gboolean is_out_of_use(const MsHardware *hardware, const char *key) {
  static const char *const ops[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"};
  const char *level = strcmp(key, "nic_Bps") == 0 ? "network" : strcmp(key, "scaleup_Bps") == 0 ? "nvlink" : NULL;
  if (!level) return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(ops); i++)
    if (!is_measured(hardware, ops[i], level)) return FALSE;
  return TRUE;
}

gboolean ms_source_is_refused(const MsHardware *hardware, const char *key) {
  return ms_source_within(hardware, key) > 0 && !is_out_of_use(hardware, key);
}

void ms_sources_forget_assumed(MsHardware *hardware) {
  for (const MsField *field = ms_hardware_table.fields; field->key; field++)
    if (ms_source_is_refused(hardware, field->key)) forget(hardware, field);
}
