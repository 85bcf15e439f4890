#include "lib/draw_request.h"
#include "lib/close.h"

#include <string.h>

#include "describe/scenario.h"

static int pick(GRand *rand, const int *values, int n) { return values[g_rand_int_range(rand, 0, n)]; }
#define PICK(...) pick(rand, (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))
static gboolean chance(GRand *rand, int percent) { return g_rand_int_range(rand, 0, 100) < percent; }

static JsonNode *parse(const char *json) {
  GError *error = NULL;
  JsonNode *node = json_from_string(json, &error);
  if (!node) fail_msg("%s: %s", json, error->message);
  return node;
}

void ms_request_put(JsonNode *request, const char *section, const char *key, JsonNode *value) {
  JsonObject *object = json_node_get_object(request);
  json_object_set_member(*section ? json_object_get_object_member(object, section) : object, key, ms_json_copy(value));
}

void ms_request_put_text(JsonNode *request, const char *section, const char *key, const char *json) {
  g_autoptr(JsonNode) value = parse(json);
  ms_request_put(request, section, key, value);
}

static void put_int(JsonNode *request, const char *section, const char *key, int value) {
  g_autofree char *text = g_strdup_printf("%d", value);
  ms_request_put_text(request, section, key, text);
}

/* --- one layout ------------------------------------------------------------------------------------------------ */
static const struct {
  const char *json;
  gboolean moe;
} models[] = {
    {"{\"base\": \"llama3-8b\", \"num_layers\": 8}", FALSE},
    {"{\"base\": \"gpt3-175b\", \"num_layers\": 8}", FALSE},
    {"{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", TRUE},
    {"{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 8}", TRUE},
    {"{\"base\": \"gpt-oss-20b\", \"num_layers\": 8, \"moe_layer_freq\": \"[1]*8\"}", TRUE},
    {"{\"base\": \"deepseek-v2-lite\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\"}", TRUE},
    {"{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\", \"mtp_num_layers\": 0}",
     TRUE},
    {"{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*2+[1]*6\"}", TRUE},
    {"\"nemotron-3-nano\"", TRUE},
};
static const char *const machines[] = {"h100-sxm", "h100-sxm", "gb200-nvl72", "b200-sxm", "a100-sxm-80g", "mtt-s5000"};
static const char settled[] =
    "{\"schema\": 1, \"name\": \"drawn\", \"training\": {\"precision\": \"bf16\", \"routing\": \"balanced\"}, "
    "\"layout\": {}, \"plan\": {}, \"options\": {\"sequence_parallel\": null, \"dispatcher\": \"alltoall\", "
    "\"ep_overlap\": false, \"delay_wgrad\": false, \"overlap_grad_reduce\": true, \"overlap_param_gather\": true, "
    "\"tp_comm_overlap\": false, \"recompute\": {\"granularity\": \"none\"}, \"offload_modules\": [], "
    "\"optimizer_offload_fraction\": 0, \"cuda_graph_scope\": [], \"distributed_optimizer\": true, \"fsdp\": \"none\", "
    "\"main_grads_dtype\": \"fp32\", \"grad_reduce_dtype\": \"fp32\", \"fp8_param_gather\": false, "
    "\"cross_entropy_fusion\": true}}";

static void draw_layout(GRand *rand, JsonNode *request, gboolean moe) {
  int tp = PICK(1, 1, 2, 4), cp = PICK(1, 1, 1, 2), pp = PICK(1, 2, 2, 4), ep = moe ? PICK(1, 2, 4, 8) : 1;
  int gpus = MAX(tp * cp, ep) * pp * PICK(1, 2), replicas = gpus / (tp * cp * pp);
  put_int(request, "layout", "tp", tp), put_int(request, "layout", "cp", cp), put_int(request, "layout", "pp", pp);
  put_int(request, "layout", "ep", ep), put_int(request, "layout", "etp", 1);
  put_int(request, "layout", "vpp", pp > 1 ? PICK(1, 1, 2) : 1);
  put_int(request, "", "gpus", gpus);
  put_int(request, "training", "seq_length", PICK(2048, 4096));
  put_int(request, "training", "micro_batch_size", 1);
  put_int(request, "training", "global_batch_size", MAX(replicas, 1) * PICK(4, 8, 16));
  if (chance(rand, 10)) ms_request_put_text(request, "training", "optimizer", "\"muon\"");
  if (moe && chance(rand, 20)) ms_request_put_text(request, "training", "routing", "{\"zipf\": 0.5}");
}

JsonNode *ms_draw_request(GRand *rand) {
  JsonNode *request = parse(settled);
  int model = g_rand_int_range(rand, 0, G_N_ELEMENTS(models));
  g_autofree char *machine = g_strdup_printf("\"%s\"", machines[g_rand_int_range(rand, 0, G_N_ELEMENTS(machines))]);
  ms_request_put_text(request, "", "model", models[model].json);
  ms_request_put_text(request, "", "hardware", machine);
  draw_layout(rand, request, models[model].moe);
  for (int i = PICK(0, 1, 2); i > 0; i--) { /* options at other values */
    MsDrawnKey key = ms_draw_key(rand);
    if (strcmp(key.section, "options") == 0)
      ms_request_put(request, key.section, key.key, json_array_get_element(key.values, 0));
    ms_drawn_key_clear(&key);
  }
  return request;
}

/* --- values of a key ------------------------------------------------------------------------------------------- */
static void add(JsonArray *to, JsonNode *value) { /* takes the value */
  for (guint i = 0; i < json_array_get_length(to); i++)
    if (json_node_equal(json_array_get_element(to, i), value)) {
      json_node_unref(value);
      return;
    }
  json_array_add_element(to, value);
}

static void add_words(JsonArray *to, const MsField *field) {
  for (int i = 0; field->words[i]; i++) {
    const char *form = field->type == MS_T_ENUM ? "\"%s\"" : "[\"%s\"]";
    g_autofree char *text = strcmp(form, "\"%s\"") == 0 ? g_strdup_printf("\"%s\"", field->words[i])
                                                        : g_strdup_printf("[\"%s\"]", field->words[i]);
    add(to, parse(text));
  }
  if (field->type != MS_T_ENUM) add(to, parse("[]"));
}

static void add_texts(JsonArray *to, const char *const *texts) {
  for (; *texts; texts++) add(to, parse(*texts));
}

static gboolean in_range(const MsField *field, double value) {
  return !(field->lo < field->hi) || (value >= field->lo && value <= field->hi);
}

static void all_values(JsonArray *to, const MsField *field) {
  static const char *const bools[] = {"null", "true", "false", NULL}, *const ints[] = {"1", "2", "4", "0", NULL},
                           *const shares[] = {"0", "0.5", "1", NULL},
                           *const recompute[] = {"{\"granularity\": \"none\"}",
                                                 "{\"granularity\": \"full\"}",
                                                 "{\"granularity\": \"full\", \"num_layers\": 2}",
                                                 "{\"granularity\": \"selective\", \"modules\": [\"core_attn\"]}",
                                                 "{\"granularity\": \"selective\", \"modules\": [\"layernorm\"]}",
                                                 "{\"granularity\": \"selective\", \"modules\": [\"moe_act\"]}",
                                                 "{\"granularity\": \"selective\", \"modules\": [\"mlp\", \"moe\"]}",
                                                 NULL};
  if (strcmp(field->key, "recompute") == 0) add_texts(to, recompute);
  else if (field->type == MS_T_BOOL) add_texts(to, &bools[field->flags & MS_NULLABLE ? 0 : 1]);
  else if (field->type == MS_T_ENUM || field->type == MS_T_WORDS) add_words(to, field);
  else
    for (const char *const *t = field->type == MS_T_INT ? ints : shares; *t; t++)
      if (in_range(field, g_ascii_strtod(*t, NULL))) add(to, parse(*t));
}

static gboolean can_be_drawn(const MsField *field) {
  if (strcmp(field->key, "disable_parameter_transpose_cache") == 0) return FALSE; /* few precisions have it */
  gboolean known = field->type == MS_T_BOOL || field->type == MS_T_ENUM || field->type == MS_T_WORDS ||
                   field->type == MS_T_INT || field->type == MS_T_F64 || strcmp(field->key, "recompute") == 0;
  return known && field->flags & MS_OPEN;
}

static const MsField *draw_field(GRand *rand, const MsFieldTable *table) {
  int n = 0;
  for (const MsField *f = table->fields; f->key; f++) n += can_be_drawn(f);
  int at = g_rand_int_range(rand, 0, n);
  for (const MsField *f = table->fields; f->key; f++)
    if (can_be_drawn(f) && at-- == 0) return f;
  g_assert_not_reached();
}

static void shuffle(GRand *rand, GPtrArray *all) {
  for (guint i = all->len; i > 1; i--) {
    guint j = (guint)g_rand_int_range(rand, 0, (gint32)i);
    gpointer swap = all->pdata[i - 1];
    all->pdata[i - 1] = all->pdata[j], all->pdata[j] = swap;
  }
}

/* Sizes of groups change with the GPUs; they are opened by who wants them open. Layers of the first stage in a list
 * exclude the planner's other cuts, which a single 0 does not. */
static gboolean is_size(const char *key) {
  static const char *const sizes[] = {"gpus", "dp", "edp", "cp", "pp", "etp", "decoder_first_pipeline_num_layers",
                                      NULL};
  return g_strv_contains(sizes, key);
}

MsDrawnKey ms_draw_key(GRand *rand) {
  for (;;) {
    int which = g_rand_int_range(rand, 0, 10);
    const MsFieldTable *table = which < 6 ? &ms_options_table : which < 9 ? &ms_layout_table : &ms_training_table;
    const MsField *field = draw_field(rand, table);
    g_autoptr(JsonArray) all = json_array_new();
    all_values(all, field);
    if (is_size(field->key) || json_array_get_length(all) < 2) continue;
    g_autoptr(GPtrArray) order = g_ptr_array_new();
    for (guint i = 0; i < json_array_get_length(all); i++) g_ptr_array_add(order, json_array_get_element(all, i));
    shuffle(rand, order);
    JsonArray *values = json_array_new();
    for (guint i = 0; i < order->len && i < (guint)PICK(2, 2, 3); i++)
      json_array_add_element(values, ms_json_copy(order->pdata[i]));
    return (MsDrawnKey){which < 6 ? "options" : which < 9 ? "layout" : "training", field->key, values};
  }
}

void ms_drawn_key_clear(MsDrawnKey *key) { g_clear_pointer(&key->values, json_array_unref); }
