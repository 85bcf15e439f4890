/* src/launch/deepspeed.c - DeepSpeed's configuration, both ways: rows of deepspeed.def, and here what several keys say
 * together.
 *
 * Defaults: gradients are reduced in the type of the weights, and accumulated in it with ZeRO, in FP32 without
 * (runtime/engine.py, communication_data_type and get_data_types); overlap_comm is on in stage 3 (zero/config.py). */
#include "launch/deepspeed.h"

#include "describe/framework.h"
#include "describe/vendor.h"
#include "launch/import.h"
#include "layout/layout.h"

#include <string.h>

static const struct {
  const char *path, *key;
} copied_keys[] = {
#define DEEPSPEED_SAME(path, key) {(path), (key)},
#define DEEPSPEED_OFF(path, what)
#define DEEPSPEED_ON(path, what)
#include "launch/deepspeed.def"
#undef DEEPSPEED_SAME
#undef DEEPSPEED_OFF
#undef DEEPSPEED_ON
};
static const struct {
  const char *path, *what;
  gboolean on; /* must be, else must not */
} unmodelled[] = {
#define DEEPSPEED_SAME(path, key)
#define DEEPSPEED_OFF(path, what) {(path), (what), FALSE},
#define DEEPSPEED_ON(path, what)  {(path), (what), TRUE},
#include "launch/deepspeed.def"
#undef DEEPSPEED_SAME
#undef DEEPSPEED_OFF
#undef DEEPSPEED_ON
};

/* --- members by path --- */

static JsonObject *parent(JsonObject *root, char **names, gboolean make) {
  for (int i = 0; names[i + 1]; i++) {
    JsonNode *node = json_object_get_member(root, names[i]);
    if (!node && !make) return NULL;
    if (!node) json_object_set_object_member(root, names[i], json_object_new());
    else if (!JSON_NODE_HOLDS_OBJECT(node)) return NULL;
    root = json_object_get_object_member(root, names[i]);
  }
  return root;
}

static JsonNode *find(JsonObject *root, const char *path) {
  g_auto(GStrv) names = g_strsplit(path, ".", -1);
  JsonObject *in = parent(root, names, FALSE);
  return in ? json_object_get_member(in, names[g_strv_length(names) - 1]) : NULL;
}

/* Takes `node`. */
static void put(JsonObject *root, const char *path, JsonNode *node) {
  g_auto(GStrv) names = g_strsplit(path, ".", -1);
  json_object_set_member(parent(root, names, TRUE), names[g_strv_length(names) - 1], node);
}

static void put_string(JsonObject *root, const char *path, const char *value) {
  put(root, path, json_node_init_string(json_node_alloc(), value));
}
static void put_int(JsonObject *root, const char *path, gint64 value) {
  put(root, path, json_node_init_int(json_node_alloc(), value));
}
static void put_bool(JsonObject *root, const char *path, gboolean value) {
  put(root, path, json_node_init_boolean(json_node_alloc(), value));
}

static void drop(JsonObject *root, const char *path) {
  g_auto(GStrv) names = g_strsplit(path, ".", -1);
  JsonObject *in = parent(root, names, FALSE);
  if (in) json_object_remove_member(in, names[g_strv_length(names) - 1]);
}

/* --- to DeepSpeed --- */

static const char *const said[] = {"training.precision", "training.optimizer", "options.fsdp",
                                   "options.optimizer_offload_fraction"};

static gboolean can_be_said(const MsScenario *s, GError **error) {
  const MsOptions *o = &s->options;
  if (s->framework != MS_FRAMEWORK_DEEPSPEED)
    return ms_refuse_key(s, error, "framework", "is %s, this form starts deepspeed", ms_framework(s)->word);
  if (!ms_launch_starts(s, MS_FRAMEWORK_DEEPSPEED, error)) return FALSE;
  if (s->training.optimizer != MS_OPT_ADAM) return ms_refuse_key(s, error, "training.optimizer", "is not adam");
  if (!ms_precision(&s->training)->launch_deepspeed)
    return ms_refuse_key(s, error, "training.precision", "is %s: DeepSpeed has bf16 and fp16",
                         ms_precision_words[s->training.precision]);
  if (o->fsdp == MS_FSDP_OPTIM)
    return ms_refuse_key(s, error, "options.fsdp", "is optim: ZeRO-1 is distributed_optimizer with fsdp none");
  return o->num_distributed_optimizer_instances == 1 ||
         ms_refuse_key(s, error, "options.num_distributed_optimizer_instances",
                       "is %d: MiCS shards parameters alone, which is not modelled",
                       o->num_distributed_optimizer_instances);
}

static int stage_of(const MsOptions *o) {
  return o->fsdp == MS_FSDP_OPTIM_GRADS_PARAMS ? 3 : o->fsdp == MS_FSDP_OPTIM_GRADS ? 2 : o->distributed_optimizer;
}

static void say_start(const MsScenario *s, JsonObject *run) {
  int per_node = MIN(s->gpus, s->hardware->gpus_per_node);
  g_autofree char *start = g_strdup_printf("deepspeed --num_nodes %d --num_gpus %d PROGRAM --deepspeed_config FILE",
                                           s->gpus / per_node, per_node);
  json_object_set_string_member(run, "start", start);
  MsStart there = ms_vendor_start(s->hardware, MS_FRAMEWORK_DEEPSPEED);
  if (there.kind == MS_STARTS_WITH) json_object_set_string_member(run, "needs", there.about);
}

char *ms_deepspeed_text(const MsScenario *s, GError **error) {
  if (!can_be_said(s, error)) return NULL;
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, error);
  if (!layout) return NULL;
  g_autoptr(JsonNode) whole = ms_scenario_node(s);
  JsonObject *run = json_node_get_object(whole), *root = json_object_new();
  const MsOptions *o = &s->options;
  for (guint i = 0; i < G_N_ELEMENTS(copied_keys); i++) {
    put(root, copied_keys[i].path, ms_json_copy(find(run, copied_keys[i].key)));
    drop(run, copied_keys[i].key);
  }
  put_int(root, "gradient_accumulation_steps", layout->microbatches);
  put_bool(root, ms_precision(&s->training)->launch_deepspeed, TRUE);
  put_string(root, "optimizer.type", "AdamW");
  put_int(root, "zero_optimization.stage", stage_of(o));
  if (o->optimizer_offload_fraction > 0) {
    put_string(root, "zero_optimization.offload_optimizer.device", "cpu");
    put(root, "zero_optimization.offload_optimizer.ratio",
        json_node_init_double(json_node_alloc(), o->optimizer_offload_fraction));
  }
  for (guint i = 0; i < G_N_ELEMENTS(said); i++) drop(run, said[i]);
  if (stage_of(o) < 2) drop(run, "options.distributed_optimizer");
  drop(run, "schema"), drop(run, "framework"), drop(run, "measured");
  say_start(s, run);
  json_object_set_object_member(root, "moesim", json_object_ref(run));
  JsonNode *node = json_node_init_object(json_node_alloc(), root);
  g_autofree char *text = ms_json_text(node, 2);
  json_node_unref(node);
  json_object_unref(root);
  return g_strconcat(text, "\n", NULL);
}

/* --- from DeepSpeed --- */

typedef struct {
  MsImport *import;
  const MsJson *doc;
  JsonObject *root, *run; /* what is read, what is made of it */
  MsScenario *into;       /* of --into, or NULL */
  JsonNode *said;         /* and its keys */
  GHashTable *used;       /* paths that were looked at */
  GError **error;
} Reader;

static gboolean is_auto(const Reader *r, const char *path) {
  JsonNode *node = find(r->root, path);
  return ms_json_is(node, G_TYPE_STRING) && strcmp(json_node_get_string(node), "auto") == 0;
}

/* An "auto" that nothing but a run can tell. */
static gboolean needs_run(Reader *r, const char *path) {
  return ms_json_error(r->doc, path, r->error, "is \"auto\", which the program fills in: --into RUN says it");
}

/* NULL: absent, null, or "auto", which the program fills in. */
static JsonNode *take(Reader *r, const char *path) {
  JsonNode *node = find(r->root, path);
  const char *dot = strchr(path, '.'), *inner = dot ? strchr(dot + 1, '.') : NULL; /* of a section in a section */
  g_hash_table_add(r->used, g_strdup(path));
  if (inner) g_hash_table_add(r->used, g_strndup(path, (gsize)(inner - path)));
  if (!node || JSON_NODE_HOLDS_NULL(node)) return NULL;
  if (!is_auto(r, path)) return node;
  ms_import_remark(r->import, "%s: is \"auto\", which the program fills in: %s", path,
                   r->into ? "as the run of --into has it" : "as if it were not said");
  return NULL;
}

static gboolean integer(Reader *r, const char *path, gint64 absent, gint64 lo, gint64 hi, gint64 *value) {
  JsonNode *node = take(r, path);
  *value = absent;
  if (!node) return TRUE;
  if (!ms_json_is(node, G_TYPE_INT64)) return ms_json_error(r->doc, path, r->error, "must be an integer");
  *value = json_node_get_int(node);
  return (*value >= lo && *value <= hi) ||
         ms_json_error(r->doc, path, r->error,
                       "is %" G_GINT64_FORMAT ", must be %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, *value, lo, hi);
}

/* A switch, a number above 1, a device or a section that is not off. */
static gboolean is_on(JsonNode *node) {
  if (JSON_NODE_HOLDS_ARRAY(node)) return json_array_get_length(json_node_get_array(node)) > 0;
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    JsonObject *o = json_node_get_object(node);
    JsonNode *inner = json_object_get_member(o, "enabled");
    if (!inner) inner = json_object_get_member(o, "device");
    return inner ? is_on(inner) : json_object_get_size(o) > 0;
  }
  GType type = json_node_get_value_type(node);
  if (type == G_TYPE_BOOLEAN) return json_node_get_boolean(node);
  if (type == G_TYPE_STRING) return strcmp(json_node_get_string(node), "none") != 0;
  return type == G_TYPE_INT64 ? json_node_get_int(node) > 1 : TRUE;
}

static gboolean check_unmodelled(Reader *r) {
  for (guint i = 0; i < G_N_ELEMENTS(unmodelled); i++) {
    JsonNode *node = take(r, unmodelled[i].path);
    if (node && is_on(node) != unmodelled[i].on)
      return ms_json_error(r->doc, unmodelled[i].path, r->error, "is %s: %s not modelled",
                           unmodelled[i].on ? "off" : "on", unmodelled[i].what);
  }
  return TRUE;
}

/* Whether a precision is on, which "auto" leaves to the run. */
static gboolean precision_is(Reader *r, const char *path, const char *precision, gboolean *open) {
  JsonNode *node = take(r, path);
  gboolean left = is_auto(r, path);
  *open |= left;
  return node ? is_on(node)
              : left && r->into && strcmp(ms_precision_words[r->into->training.precision], precision) == 0;
}

static gboolean read_precision(Reader *r, const char **own) {
  gboolean open = FALSE, fp16 = precision_is(r, "fp16.enabled", "fp16", &open),
           bf16 = precision_is(r, "bf16.enabled", "bf16", &open);
  const char *path = is_auto(r, "fp16.enabled") && !is_auto(r, "bf16.enabled") ? "fp16.enabled" : "bf16.enabled";
  bf16 = bf16 || precision_is(r, "bfloat16.enabled", "bf16", &open);
  *own = fp16 ? "fp16" : "bf16";
  put_string(r->run, "training.precision", *own);
  if (fp16 || bf16) return TRUE;
  if (open && !r->into) return needs_run(r, path);
  if (open)
    return ms_json_error(r->doc, path, r->error,
                         "is \"auto\", and the run of --into is in %s: DeepSpeed has bf16 and fp16",
                         ms_precision_words[r->into->training.precision]);
  return ms_json_error(r->doc, path, r->error, "is not on, nor fp16: moesim has no training in FP32");
}

static gboolean read_zero(Reader *r, const char *own) {
  static const char *const fsdp[] = {"none", "none", "optim-grads", "optim-grads-params"};
  gint64 stage, shards;
  if (!integer(r, "zero_optimization.stage", 0, 0, 3, &stage) ||
      !integer(r, "zero_optimization.mics_shard_size", -1, -1, 1 << 20, &shards))
    return FALSE;
  if (is_auto(r, "zero_optimization.stage")) {
    if (!r->into) return needs_run(r, "zero_optimization.stage");
    stage = stage_of(&r->into->options);
  }
  if (shards > 0)
    return ms_json_error(r->doc, "zero_optimization.mics_shard_size", r->error, "is on: shards of MiCS not modelled");
  put_string(r->run, "options.fsdp", fsdp[stage]);
  if (stage < 2) put_bool(r->run, "options.distributed_optimizer", stage == 1);
  put_bool(r->run, "options.overlap_grad_reduce", stage == 3);
  put_string(r->run, "options.grad_reduce_dtype", own);
  put_string(r->run, "options.main_grads_dtype", stage > 0 ? own : "fp32");
  return TRUE;
}

static gboolean read_offload(Reader *r) {
  static const char device[] = "zero_optimization.offload_optimizer.device",
                    ratio[] = "zero_optimization.offload_optimizer.ratio";
  JsonNode *where = take(r, device), *share = take(r, ratio), *old = take(r, "zero_optimization.cpu_offload");
  if (is_auto(r, device) && !r->into) return needs_run(r, device);
  double left = is_auto(r, device) ? r->into->options.optimizer_offload_fraction : 0;
  gboolean on = (old && is_on(old)) || (where && is_on(where)) || left > 0;
  if (where && !ms_json_is(where, G_TYPE_STRING)) return ms_json_error(r->doc, device, r->error, "must be a string");
  if (on && where && strcmp(json_node_get_string(where), "cpu") != 0)
    return ms_json_error(r->doc, device, r->error, "is \"%s\": cpu is modelled", json_node_get_string(where));
  double fraction = share && JSON_NODE_HOLDS_VALUE(share) ? json_node_get_double(share) : left > 0 ? left : 1;
  if (share && !(fraction >= 0 && fraction <= 1))
    return ms_json_error(r->doc, ratio, r->error, "must be a share between 0 and 1");
  put(r->run, "options.optimizer_offload_fraction", json_node_init_double(json_node_alloc(), on ? fraction : 0));
  return TRUE;
}

static gboolean read_optimizer(Reader *r) {
  JsonNode *type = take(r, "optimizer.type");
  take(r, "optimizer.params");
  put_string(r->run, "training.optimizer", "adam");
  if (!type) return TRUE;
  const char *word = JSON_NODE_HOLDS_VALUE(type) ? json_node_get_string(type) : NULL;
  return (word && (g_ascii_strcasecmp(word, "adam") == 0 || g_ascii_strcasecmp(word, "adamw") == 0)) ||
         ms_json_error(r->doc, "optimizer.type", r->error, "must be Adam or AdamW, others are not modelled");
}

/* The section says how layers are checkpointed and how many times in a pass; whether they are says the program. */
static gboolean read_checkpointing(Reader *r) {
  gint64 number;
  if (!integer(r, "activation_checkpointing.number_checkpoints", 0, 0, 10000, &number)) return FALSE;
  if (number == 0 && find(r->root, "activation_checkpointing"))
    ms_import_remark(r->import,
                     "activation_checkpointing: says how, not whether; options.recompute of the run says it");
  if (number == 0) return TRUE;
  put_string(r->run, "options.recompute.granularity", "full");
  put_string(r->run, "options.recompute.method", "uniform");
  put_int(r->run, "options.recompute.num_layers", 1);
  return TRUE;
}

/* What of a run's layout is known before it is one, at most what a layout can have. */
static gint64 degree(Reader *r, const char *key) {
  JsonNode *node = find(r->run, key);
  gboolean whole = ms_json_is(node, G_TYPE_INT64);
  return whole ? CLAMP(json_node_get_int(node), 1, MS_IMPORT_MOST_GPUS) : 1;
}

/* Of microbatch and batch what is "auto" and the others do not make, from the run. */
static gboolean fill_batch(Reader *r, gint64 steps, gint64 *micro, gint64 *all) {
  static const char micro_path[] = "train_micro_batch_size_per_gpu", all_path[] = "train_batch_size";
  gboolean micro_left = r->into && is_auto(r, micro_path), all_left = r->into && is_auto(r, all_path);
  if (micro_left && !(*all > 0 && steps > 0)) *micro = r->into->training.micro_batch_size;
  if (all_left && !(*micro > 0 && steps > 0)) *all = r->into->training.global_batch_size;
  if (*all > 0 || *micro > 0) return TRUE;
  if (is_auto(r, micro_path) || is_auto(r, all_path)) return needs_run(r, is_auto(r, all_path) ? all_path : micro_path);
  return ms_json_error(r->doc, all_path, r->error, "or train_micro_batch_size_per_gpu must be given");
}

/* Two of microbatch, accumulation and batch make the third, as deepspeed/runtime/config.py has it. */
static gboolean read_batch(Reader *r) {
  static const char steps_path[] = "gradient_accumulation_steps", all_path[] = "train_batch_size";
  gint64 tp, replicas, micro, steps, all;
  if (!integer(r, "tensor_parallel.autotp_size", 0, 0, 1024, &tp)) return FALSE;
  if (tp > 1) put_int(r->run, "layout.tp", tp);
  gint64 ranks = degree(r, "layout.tp") * degree(r, "layout.cp") * degree(r, "layout.pp");
  replicas = degree(r, "gpus") / ranks;
  if (replicas < 1)
    return ms_json_error(r->doc, "tensor_parallel.autotp_size", r->error,
                         "and the groups of the run do not fit on its %d GPUs", (int)degree(r, "gpus"));
  if (!integer(r, "train_micro_batch_size_per_gpu", 0, 1, 65536, &micro) ||
      !integer(r, steps_path, 0, 1, 1 << 20, &steps) || !integer(r, all_path, 0, 1, 1 << 24, &all))
    return FALSE;
  if (!fill_batch(r, steps, &micro, &all)) return FALSE;
  if (micro == 0) micro = MAX(1, all / MAX(steps, 1) / replicas);
  if (all == 0) all = micro * MAX(steps, 1) * replicas;
  if (steps == 0) steps = MAX(1, all / micro / replicas);
  put_int(r->run, "training.micro_batch_size", micro);
  put_int(r->run, "training.global_batch_size", all);
  return all == micro * steps * replicas ||
         ms_json_error(r->doc, all_path, r->error,
                       "is %" G_GINT64_FORMAT ", but microbatch %" G_GINT64_FORMAT " x accumulation %" G_GINT64_FORMAT
                       " x %" G_GINT64_FORMAT " data-parallel ranks is %" G_GINT64_FORMAT,
                       all, micro, steps, replicas, micro * steps * replicas);
}

static void read_same(Reader *r) {
  for (guint i = 0; i < G_N_ELEMENTS(copied_keys); i++) {
    if (g_str_has_prefix(copied_keys[i].path, "train_")) continue; /* read_batch */
    JsonNode *node = take(r, copied_keys[i].path);
    if (!node && r->into && is_auto(r, copied_keys[i].path))
      node = find(json_node_get_object(r->said), copied_keys[i].key);
    if (node) put(r->run, copied_keys[i].key, ms_json_copy(node));
  }
}

static void ignore(Reader *r, const char *path) {
  ms_import_remark_misspelt(r->import, "", path, r->used);
  g_ptr_array_add(r->import->ignored, g_strdup(path));
}

/* Keys that no row looked at, sections member by member. */
static void list_ignored(Reader *r) {
  g_autoptr(GList) keys = json_object_get_members(r->root);
  for (GList *k = keys; k; k = k->next) {
    JsonNode *node = json_object_get_member(r->root, k->data);
    if (strcmp(k->data, "moesim") == 0 || g_hash_table_contains(r->used, k->data)) continue;
    if (!JSON_NODE_HOLDS_OBJECT(node)) {
      ignore(r, k->data);
      continue;
    }
    g_autoptr(GList) members = json_object_get_members(json_node_get_object(node));
    for (GList *m = members; m; m = m->next) {
      g_autofree char *path = g_strdup_printf("%s.%s", (char *)k->data, (char *)m->data);
      if (!g_hash_table_contains(r->used, path)) ignore(r, path);
    }
  }
}

/* The run that the settings go into: of the file's own member, else of --into, else of --model. */
static gboolean begin(Reader *r, const MsImportOptions *options) {
  JsonNode *own = json_object_get_member(r->root, "moesim");
  if (own && !JSON_NODE_HOLDS_OBJECT(own)) return ms_json_error(r->doc, "moesim", r->error, "must be an object");
  if (options->into) {
    r->into = ms_scenario_load(options->into, r->error);
    if (!r->into) return FALSE;
    JsonNode *whole = ms_scenario_node(r->into);
    r->said = ms_json_copy(whole);
    r->run = json_object_ref(json_node_get_object(whole));
    json_node_unref(whole);
    JsonNode *recompute = find(r->run, "options.recompute");
    recompute = recompute ? ms_json_copy(recompute) : NULL;
    drop(r->run, "options"), drop(r->run, "measured");
    if (recompute) put(r->run, "options.recompute", recompute);
  } else if (own) {
    JsonNode *copy = ms_json_copy(own);
    r->run = json_object_ref(json_node_get_object(copy));
    json_node_unref(copy);
    drop(r->run, "start"), drop(r->run, "needs");
  } else if (options->model) {
    r->run = json_object_new();
    put_int(r->run, "training.seq_length", 4096);
    put_int(r->run, "gpus", 8);
    put_string(r->run, "hardware", MS_IMPORT_HARDWARE);
    ms_import_remark(r->import,
                     "training.seq_length: DeepSpeed's configuration does not say it, 4096 is assumed; --into "
                     "RUN takes it from a run");
    if (!options->gpus) ms_import_remark(r->import, "gpus: 8 are assumed; --gpus N says another number");
    if (!options->hardware)
      ms_import_remark(r->import, "hardware: " MS_IMPORT_HARDWARE " is assumed; --hardware NAME says another");
  } else {
    return ms_json_error(r->doc, "", r->error, "does not say what is trained: --model NAME or --into RUN does");
  }
  if (options->model) put_string(r->run, "model", options->model);
  if (options->hardware) put_string(r->run, "hardware", options->hardware);
  if (options->gpus > 0) put_int(r->run, "gpus", options->gpus);
  if (options->name) put_string(r->run, "name", options->name);
  put_string(r->run, "framework", ms_framework_words[MS_FRAMEWORK_DEEPSPEED]);
  return TRUE;
}

static MsScenario *finish(Reader *r) {
  JsonNode *node = json_node_init_object(json_node_alloc(), r->run);
  g_autoptr(MsJson) doc = ms_json_doc(node, ms_json_filename(r->doc));
  json_node_unref(node);
  return ms_scenario_from_doc(doc, r->error);
}

MsImport *ms_import_deepspeed(const char *text, gsize length, const char *file, const MsImportOptions *options,
                              GError **error) {
  const char *own;
  g_autofree char *copy = ms_import_text(text, length, file, error);
  g_autoptr(MsJson) doc = copy ? ms_json_parse(copy, -1, file, error) : NULL;
  if (!doc) return NULL;
  if (!JSON_NODE_HOLDS_OBJECT(ms_json_root(doc))) {
    ms_json_error(doc, "", error, "must be one JSON object");
    return NULL;
  }
  g_autoptr(MsImport) import = ms_import_new();
  Reader r = {.import = import, .doc = doc, .root = json_node_get_object(ms_json_root(doc)), .error = error};
  r.used = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  if (begin(&r, options) && check_unmodelled(&r) && read_precision(&r, &own) && read_zero(&r, own) &&
      read_offload(&r) && read_optimizer(&r) && read_checkpointing(&r) && read_batch(&r)) {
    read_same(&r);
    import->scenario = finish(&r);
  }
  list_ignored(&r);
  if (!import->scenario) ms_import_blame_misspelt(import, error);
  g_hash_table_unref(r.used);
  if (r.run) json_object_unref(r.run);
  if (r.said) json_node_unref(r.said);
  ms_scenario_free(r.into);
  return import->scenario ? g_steal_pointer(&import) : NULL;
}
