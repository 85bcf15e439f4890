/* src/launch/import_titan.c - a configuration of TorchTitan as a scenario. */
#include "launch/import.h"

#include "base/err.h"
#include "launch/titan.h"
#include "launch/toml.h"

#include <string.h>

typedef struct {
  const MsJson *doc;
  JsonObject *root;
  GHashTable *used, *asked; /* "table.key": of the file, and all that were looked for */
  GHashTable *lines;        /* "table.key" -> line of the file that said it, of what is no TOML; else NULL */
  char path[160];           /* of what was taken last */
  MsImport *import;
  GError **error;
} Titan;

/* The tables that a key has stood in, newest first. */
#define PARALLEL(key) "parallelism." key " experimental." key " training." key
#define AC(key)       "activation_checkpoint." key
#define FLOAT8(key)   "quantize.linear.float8." key " float8." key
#define TRAINING(key) "training." key

/* The first of `names` that the file has; the first one is the path of it where there is none. */
static JsonNode *take(Titan *t, const char *names) {
  g_auto(GStrv) name = g_strsplit(names, " ", -1);
  g_strlcpy(t->path, name[0], sizeof t->path);
  for (int i = 0; name[i]; i++) g_hash_table_add(t->asked, g_strdup(name[i]));
  for (int i = 0; name[i]; i++) {
    char *dot = strrchr(name[i], '.');
    g_autofree char *table = g_strndup(name[i], (gsize)(dot - name[i]));
    JsonNode *members = json_object_get_member(t->root, table);
    JsonNode *node = members && JSON_NODE_HOLDS_OBJECT(members)
                         ? json_object_get_member(json_node_get_object(members), dot + 1)
                         : NULL;
    if (!node) continue;
    g_strlcpy(t->path, name[i], sizeof t->path);
    g_hash_table_add(t->used, g_strdup(name[i]));
    return node;
  }
  return NULL;
}

G_GNUC_PRINTF(2, 3) static gboolean wrong(Titan *t, const char *format, ...) {
  va_list list;
  va_start(list, format);
  g_autofree char *why = g_strdup_vprintf(format, list);
  va_end(list);
  int line = t->lines ? GPOINTER_TO_INT(g_hash_table_lookup(t->lines, t->path)) : ms_json_line(t->doc, t->path);
  return ms_input_error(t->error, ms_json_filename(t->doc), line, t->path, "%s", why);
}

static gboolean integer(Titan *t, const char *names, int absent, int lo, int hi, int *value) {
  JsonNode *node = take(t, names);
  *value = absent;
  if (!node) return TRUE;
  if (!ms_json_is(node, G_TYPE_INT64)) return wrong(t, "must be an integer");
  gint64 given = json_node_get_int(node);
  if (given < lo || given > hi) return wrong(t, "is %" G_GINT64_FORMAT ", must be %d to %d", given, lo, hi);
  *value = (int)given;
  return TRUE;
}

static gboolean boolean(Titan *t, const char *names, gboolean absent, gboolean *value) {
  JsonNode *node = take(t, names);
  *value = absent;
  if (!node) return TRUE;
  if (!ms_json_is(node, G_TYPE_BOOLEAN)) return wrong(t, "must be true or false");
  *value = json_node_get_boolean(node);
  return TRUE;
}

static gboolean word(Titan *t, const char *names, const char *absent, const char **value) {
  JsonNode *node = take(t, names);
  *value = absent;
  if (!node) return TRUE;
  if (!ms_json_is(node, G_TYPE_STRING)) return wrong(t, "must be a string");
  *value = json_node_get_string(node);
  return TRUE;
}

/* One of `words` (separated by blanks), as its number. */
static gboolean choice(Titan *t, const char *names, const char *words, int absent, int *value) {
  const char *given;
  g_auto(GStrv) known = g_strsplit(words, " ", -1);
  if (!word(t, names, known[absent], &given)) return FALSE;
  for (*value = 0; known[*value]; (*value)++)
    if (strcmp(known[*value], given) == 0) return TRUE;
  g_autofree char *all = g_strjoinv(", ", known);
  return wrong(t, "is \"%s\", moesim knows %s", given, all);
}

/* Switches of what is not modelled. */
static gboolean off(Titan *t, const char *names, const char *what) {
  gboolean on;
  if (!boolean(t, names, FALSE, &on)) return FALSE;
  return !on || wrong(t, "is true: %s not modelled", what);
}

/* Lists that must be empty. */
static gboolean empty(Titan *t, const char *names, const char *instead) {
  JsonNode *node = take(t, names);
  if (!node || JSON_NODE_HOLDS_NULL(node)) return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY(node)) return wrong(t, "must be a list");
  return json_array_get_length(json_node_get_array(node)) == 0 || wrong(t, "is not read: %s", instead);
}

static gboolean has_member(JsonNode *list, const char *text) {
  JsonArray *array = ms_json_array(list);
  for (guint i = 0; array && i < json_array_get_length(array); i++) {
    JsonNode *node = json_array_get_element(array, i);
    if (ms_json_is(node, G_TYPE_STRING) && strcmp(json_node_get_string(node), text) == 0) return TRUE;
  }
  return FALSE;
}

/* --- what is trained on what ------------------------------------------------------------------------------------- */

typedef struct {
  const char *model, *precision;
  int layers, experts_of_model, gpus, seq_length, local_batch, global_batch;
  int tp, cp, pp, ep, etp, replicate, shard;
  int vpp, stages, microbatch;
  gboolean embedding, loss, interleaved, async_tp, fp8_gather, compiled, compiled_loss, early_stop;
  int schedule, reshard, rotate, reduce, optimizer; /* places in their lists of words */
  MsDispatcher dispatcher;
  const char *granularity; /* of recomputation; */
  gboolean operators;      /* modules */
  int block;               /* layers of a stage that are, 0: all */
  char *split;             /* layout string, or NULL */
  gboolean balanced;       /* experts get the same number of tokens, by force */
  gboolean without_mtp;    /* the shipped model has MTP blocks, which TorchTitan's lacks */
} Run;

static gboolean read_model(Titan *t, const MsImportOptions *options, Run *r) {
  const char *name, *flavor;
  if (!word(t, "model.name", "llama3", &name) || !word(t, "model.flavor", "debugmodel", &flavor)) return FALSE;
  r->model = options->model ? options->model : ms_titan_model(name, flavor);
  if (!r->model) {
    g_autofree char *known = ms_titan_flavors(name);
    return wrong(t, "%s %s is no model that moesim ships (%s); --model NAME says another", name, flavor, known);
  }
  g_autoptr(MsModel) model = ms_model_load(r->model, t->error);
  if (!model) return FALSE;
  r->layers = model->num_layers;
  r->experts_of_model = model->num_experts;
  r->without_mtp = !options->model && model->mtp_num_layers > 0;
  return TRUE;
}

/* Of the model with this converter, "": with none; NULL: no precision has it. */
static const char *precision_with(const char *converter) {
  for (int i = 0; i < MS_N_PRECISIONS; i++)
    if (g_strcmp0(ms_precisions[i].launch_titan, converter) == 0) return ms_precisions[i].word;
  return NULL;
}

static gboolean read_precision(Titan *t, Run *r) {
  JsonNode *list = take(t, "model.converters");
  gboolean old_switch, fp8 = has_member(list, "float8") || has_member(list, "quantize.linear.float8"),
                       mx = has_member(list, "mx") || has_member(list, "quantize.linear.mx");
  int known = fp8 + mx,
      n = list && JSON_NODE_HOLDS_ARRAY(list) ? (int)json_array_get_length(json_node_get_array(list)) : 0;
  if (n > known) return wrong(t, "holds a converter that is not modelled: float8 and mx are");
  if (known > 1) return wrong(t, "holds float8 and mx, a layer has one");
  if (!boolean(t, FLOAT8("enable_float8_linear"), fp8, &old_switch)) return FALSE;
  fp8 = fp8 || old_switch;
  const char *recipe = NULL;
  if (!word(t, FLOAT8("recipe_name"), "tensorwise", &recipe)) return FALSE;
  if (fp8 && strcmp(recipe, "tensorwise") != 0)
    return wrong(t, "is \"%s\": scales of rows are not modelled, tensorwise is", recipe);
  if (!boolean(t, FLOAT8("enable_fsdp_float8_all_gather"), FALSE, &r->fp8_gather)) return FALSE;
  const char *converter = fp8 ? "quantize.linear.float8" : mx ? "quantize.linear.mx" : "";
  r->precision = precision_with(converter);
  if (!r->precision) return wrong(t, "\"%s\" is a converter of no precision of moesim's", converter);
  r->fp8_gather = r->fp8_gather && fp8;
  take(t, FLOAT8("precompute_float8_dynamic_scale_for_fsdp"));
  take(t, FLOAT8("force_recompute_fp8_weight_in_bwd"));
  JsonNode *kept = take(t, FLOAT8("filter_fqns")); /* the head alone is not quantized here, another list is ignored */
  if (kept && !((has_member(kept, "output") || has_member(kept, "lm_head")) &&
                json_array_get_length(json_node_get_array(kept)) == 1))
    g_hash_table_remove(t->used, t->path);
  return TRUE;
}

/* A switch of the training until December 2025, of debugging since. */
static gboolean read_routing(Titan *t, Run *r) {
  return boolean(t, "debug.moe_force_load_balance training.debug_moe_force_load_balance", FALSE, &r->balanced);
}

/* components: of the model and the loss, what is compiled; both without. */
static gboolean read_compile(Titan *t, Run *r) {
  gboolean on;
  if (!boolean(t, "compile.enable training.compile", FALSE, &on)) return FALSE;
  JsonNode *parts = take(t, "compile.components");
  if (parts && !JSON_NODE_HOLDS_ARRAY(parts)) return wrong(t, "must be a list");
  r->compiled = on && (!parts || has_member(parts, "model"));
  r->compiled_loss = on && (!parts || has_member(parts, "loss"));
  return TRUE;
}

static gboolean read_training(Titan *t, Run *r) {
  const char *param, *dtype;
  if (!integer(t, TRAINING("seq_len"), 2048, 1, 1 << 27, &r->seq_length) ||
      !integer(t, TRAINING("local_batch_size") " training.batch_size", 8, 1, 65536, &r->local_batch) ||
      !integer(t, TRAINING("global_batch_size"), -1, -1, 1 << 24, &r->global_batch) ||
      !off(t, TRAINING("enable_cpu_offload"), "parameters on the host between steps are") ||
      !off(t, TRAINING("deterministic") " debug.deterministic", "PyTorch's deterministic algorithms are") ||
      !off(t, "optimizer.early_step_in_backward", "an optimizer inside the backward pass is") ||
      !word(t, TRAINING("dtype"), "float32", &dtype))
    return FALSE;
  if (strcmp(dtype, "float32") != 0) return wrong(t, "is \"%s\": FP32 weights are modelled", dtype);
  if (!word(t, TRAINING("mixed_precision_param"), "bfloat16", &param)) return FALSE;
  if (strcmp(param, "bfloat16") != 0) return wrong(t, "is \"%s\": bfloat16 is modelled", param);
  int unused;
  if (!choice(t, "optimizer.name", "AdamW Adam", 0, &unused)) return FALSE;
  gboolean fused; /* until February 2025 */
  if (!choice(t, "optimizer.implementation", "fused foreach for-loop", 0, &r->optimizer) ||
      !boolean(t, "optimizer.fused", r->optimizer == 0, &fused))
    return FALSE;
  r->optimizer |= !fused;
  if (!choice(t, TRAINING("mixed_precision_reduce"), "float32 bfloat16", 0, &r->reduce)) return FALSE;
  return read_compile(t, r) && read_routing(t, r);
}

/* --- how -----------------------------------------------------------------------------------------------------------
 */

static gboolean read_dispatcher(Titan *t, MsDispatcher *dispatcher) {
  g_autoptr(GString) words = g_string_new(NULL);
  int of_word[MS_N_DISPATCHERS], n = 0;
  for (int i = 0; i < MS_N_DISPATCHERS; i++) {
    if (!ms_dispatchers[i].launch_titan) continue;
    g_string_append_printf(words, "%s%s", n ? " " : "", ms_dispatchers[i].launch_titan);
    of_word[n++] = i;
  }
  int word;
  if (!choice(t, PARALLEL("expert_parallel_comm_backend"), words->str, 0, &word)) return FALSE;
  *dispatcher = (MsDispatcher)of_word[word];
  return TRUE;
}

static gboolean read_degrees(Titan *t, Run *r) {
  gboolean whole_loss, sequence;
  if (!integer(t, PARALLEL("tensor_parallel_degree"), 1, 1, 1024, &r->tp) ||
      !integer(t, PARALLEL("pipeline_parallel_degree"), 1, 1, 1024, &r->pp) ||
      !integer(t, PARALLEL("context_parallel_degree"), 1, 1, 1024, &r->cp) ||
      !integer(t, PARALLEL("expert_parallel_degree"), 1, 1, 16384, &r->ep) ||
      !integer(t, PARALLEL("expert_tensor_parallel_degree"), 1, 1, 64, &r->etp) ||
      !integer(t, PARALLEL("data_parallel_replicate_degree"), 1, 1, 65536, &r->replicate) ||
      !integer(t, PARALLEL("data_parallel_shard_degree") " training.data_parallel_degree", -1, -1, 1 << 20,
               &r->shard) ||
      !boolean(t, PARALLEL("enable_async_tensor_parallel"), FALSE, &r->async_tp) ||
      !boolean(t, PARALLEL("disable_loss_parallel"), FALSE, &whole_loss))
    return FALSE;
  if (whole_loss && r->tp > 1)
    return wrong(t, "is true: logits of the whole vocabulary on every rank are not modelled");
  if (!boolean(t, "parallelism.enable_sequence_parallel", TRUE, &sequence)) return FALSE;
  if (!sequence && r->tp > 1) return wrong(t, "is false: tensor parallelism of TorchTitan is modelled with it on");
  return choice(t, PARALLEL("fsdp_reshard_after_forward"), "default always never", 0, &r->reshard) &&
         choice(t, PARALLEL("context_parallel_rotate_method"), "allgather alltoall", 0, &r->rotate) &&
         read_dispatcher(t, &r->dispatcher);
}

static gboolean count_gpus(Titan *t, const MsArgs *args, const MsImportOptions *options, Run *r) {
  gint64 noted = json_object_has_member(args->notes, "gpus") ? json_object_get_int_member(args->notes, "gpus") : 0;
  gint64 ranks = (gint64)r->tp * r->cp * r->pp; /* each at most 1024 */
  g_strlcpy(t->path, "parallelism", sizeof t->path);
  if (ranks > MS_IMPORT_MOST_GPUS)
    return wrong(t, "makes %" G_GINT64_FORMAT " ranks of one replica, moesim knows up to %d GPUs", ranks,
                 MS_IMPORT_MOST_GPUS);
  gint64 said = ranks * r->replicate * MAX(r->shard, 1);
  gint64 gpus = options->gpus > 0 ? options->gpus : noted > 0 ? noted : said;
  if (gpus > MS_IMPORT_MOST_GPUS)
    return wrong(t, "makes %" G_GINT64_FORMAT " GPUs, moesim knows up to %d", gpus, MS_IMPORT_MOST_GPUS);
  if (options->gpus <= 0 && noted <= 0 && r->shard < 0)
    ms_import_remark(t->import,
                     "gpus: the file does not say them, %d are assumed, the fewest this layout runs on; --gpus N says "
                     "another number",
                     (int)gpus);
  gint64 replicas = gpus / ranks, shard = r->shard > 0 ? r->shard : replicas / r->replicate;
  if (gpus % ranks || shard * r->replicate != replicas)
    return wrong(
        t, "%d x %d data-parallel, %d tensor, %d context and %d pipeline ranks do not make %" G_GINT64_FORMAT " GPUs",
        r->replicate, (int)shard, r->tp, r->cp, r->pp, gpus);
  if (shard * r->cp == 1 && r->replicate > 1) return wrong(t, "replicates without sharding: DDP is not modelled");
  r->gpus = (int)gpus;
  return TRUE;
}

/* Until March 2025 the keys of pipelines stood under experimental. */
static gboolean is_before_parallelism(const Titan *t) {
  JsonNode *node = json_object_get_member(t->root, "experimental");
  g_autoptr(GList) keys =
      node && JSON_NODE_HOLDS_OBJECT(node) ? json_object_get_members(json_node_get_object(node)) : NULL;
  for (GList *k = keys; k; k = k->next)
    if (g_str_has_prefix(k->data, "pipeline_parallel_")) return TRUE;
  return FALSE;
}

/* Sequences of a pipeline's microbatch: said, or until April 2025 by their number, which was that of the stages where a
 * file did not say it. */
static gboolean read_microbatch(Titan *t, Run *r) {
  int size, count;
  gboolean sized = take(t, PARALLEL("pipeline_parallel_microbatch_size")) != NULL;
  if (!integer(t, PARALLEL("pipeline_parallel_microbatch_size"), 1, 1, 65536, &size)) return FALSE;
  if (r->pp > 1 && sized && r->local_batch % size)
    return wrong(t, "%d does not divide a local batch of %d", size, r->local_batch);
  int absent = is_before_parallelism(t) ? r->stages : r->local_batch;
  if (!sized && !integer(t, PARALLEL("pipeline_parallel_microbatches"), absent, 1, 65536, &count)) return FALSE;
  if (r->pp > 1 && !sized && r->local_batch % count)
    return wrong(t, "%d microbatches do not divide a local batch of %d", count, r->local_batch);
  r->microbatch = r->pp == 1 ? r->local_batch : sized ? size : r->local_batch / count;
  return TRUE;
}

/* Microbatches, and how many of them a step has. */
static gboolean read_batch(Titan *t, Run *r) {
  int replicas = r->gpus / (r->tp * r->cp * r->pp);
  if (!read_microbatch(t, r)) return FALSE;
  gint64 step = (gint64)r->local_batch * replicas, all = r->global_batch > 0 ? r->global_batch : step;
  g_strlcpy(t->path, "training.global_batch_size", sizeof t->path);
  if (all % step)
    return wrong(t, "%" G_GINT64_FORMAT " is no multiple of local batch x data-parallel ranks = %" G_GINT64_FORMAT, all,
                 step);
  if (all > 1 << 24) return wrong(t, "is %" G_GINT64_FORMAT " sequences, moesim knows up to %d", all, 1 << 24);
  r->global_batch = (int)all;
  return TRUE;
}

static gboolean read_pipeline(Titan *t, Run *r) {
  int given, first, last;
  const char *name;
  if (!word(t, PARALLEL("pipeline_parallel_schedule"), "1F1B", &name)) return FALSE;
  r->schedule = ms_titan_schedule_of(name, &r->interleaved);
  if (r->pp > 1 && r->schedule < 0)
    return wrong(t, "is \"%s\": moesim has 1F1B, Interleaved1F1B, GPipe, ZBVZeroBubble and DualPipeV", name);
  if (!empty(t, PARALLEL("pipeline_parallel_split_points"), "pipeline_parallel_layers_per_stage says it evenly") ||
      !empty(t, PARALLEL("module_fqns_per_model_part"), "pipeline_parallel_layers_per_stage says it evenly") ||
      !integer(t, PARALLEL("pipeline_parallel_layers_per_stage"), 0, 0, 10000, &given) ||
      !integer(t, PARALLEL("pipeline_parallel_first_stage_less_layers"), 1, 0, 1, &first) ||
      !integer(t, PARALLEL("pipeline_parallel_last_stage_less_layers"), 1, 0, 1, &last))
    return FALSE;
  r->vpp = 1;
  if (r->pp == 1) return r->schedule = MS_SCHED_1F1B, TRUE;
  gboolean two = ms_schedule_row((MsScheduleKind)r->schedule)->placement != MS_PLACE_ROUND_ROBIN;
  int counted = r->layers + first + last, stages = r->pp * (r->interleaved || two ? 2 : 1);
  if (given > 0) stages = (counted + given - 1) / given;
  if (stages % r->pp || (two && stages != 2 * r->pp) || (!two && !r->interleaved && stages != r->pp) ||
      stages > counted)
    return wrong(t, "makes %d stages of %d layers, which %s on %d ranks does not take", stages, r->layers, name, r->pp);
  if (!two) r->vpp = stages / r->pp;
  r->stages = stages;
  r->split = ms_titan_split(r->layers, stages, first, last);
  r->embedding = first && !r->split, r->loss = last && !r->split;
  return TRUE;
}

static gboolean read_checkpointing(Titan *t, Run *r) {
  int mode;
  const char *option;
  JsonNode *node = take(t, AC("selective_ac_option"));
  gboolean number = ms_json_is(node, G_TYPE_INT64);
  g_autofree char *text = number ? g_strdup_printf("%" G_GINT64_FORMAT, json_node_get_int(node)) : NULL;
  if (number) option = text;
  else if (!word(t, AC("selective_ac_option"), "2", &option)) return FALSE;
  if (!choice(t, AC("mode"), "none full selective", 2, &mode)) return FALSE;
  if (!boolean(t, AC("early_stop"), FALSE, &r->early_stop)) return FALSE;
  r->operators = mode == 2 && strcmp(option, "op") == 0;
  r->granularity = mode == 0 ? "none" : r->operators ? "selective" : "full";
  if (mode < 2 || r->operators) return TRUE;
  gint64 every;
  g_strlcpy(t->path, AC("selective_ac_option"), sizeof t->path);
  if (!g_ascii_string_to_signed(option, 10, 1, 10000, &every, NULL))
    return wrong(t, "is \"%s\", must be \"op\" or a number of layers", option);
  int chunk = r->layers / (r->pp * r->vpp), again = chunk / (int)every;
  if (again < 1)
    return wrong(t, "is %d: a stage has %d layers, none is checkpointed; say mode none", (int)every, chunk);
  r->block = every > 1 ? again : 0;
  return TRUE;
}

/* --- the scenario ---------------------------------------------------------------------------------------------------
 */

static const char *sharding(const Run *r) {
  static const char *const whole = "optim-grads-params";
  if (r->reshard == 1) return whole;
  if (r->pp > 1) return "optim"; /* gathered once, reduced behind the last microbatch */
  return r->reshard == 2 ? "optim-grads" : whole;
}

static void put_layout(const Run *r, MsJsonOut *out) {
  ms_json_out_object(out, "layout");
  ms_json_out_int(out, "tp", r->tp);
  ms_json_out_int(out, "cp", r->cp);
  ms_json_out_int(out, "pp", r->pp);
  ms_json_out_int(out, "vpp", r->vpp);
  ms_json_out_int(out, "ep", r->ep);
  ms_json_out_int(out, "etp", r->etp);
  ms_json_out_string(out, "schedule", ms_schedule_words[r->schedule]);
  if (r->split) ms_json_out_string(out, "pipeline_layout", r->split);
  ms_json_out_bool(out, "account_for_embedding_in_pipeline_split", r->embedding);
  ms_json_out_bool(out, "account_for_loss_in_pipeline_split", r->loss);
  ms_json_out_string(out, "cp_comm_type", r->cp == 1 || r->rotate ? "p2p" : "all_gather");
  ms_json_out_end(out);
}

static void put_options(const Run *r, MsJsonOut *out) {
  ms_json_out_object(out, "options");
  ms_json_out_object(out, "recompute");
  ms_json_out_string(out, "granularity", r->granularity);
  if (r->operators) {
    ms_json_out_array(out, "modules");
    ms_json_out_string(out, NULL, "operators");
    ms_json_out_end(out);
  }
  if (r->block > 0) {
    ms_json_out_string(out, "method", "block");
    ms_json_out_int(out, "num_layers", r->block);
  }
  ms_json_out_end(out);
  ms_json_out_string(out, "fsdp", sharding(r));
  ms_json_out_bool(out, "tp_comm_overlap", r->async_tp && r->tp > 1);
  ms_json_out_bool(out, "fp8_param_gather", r->fp8_gather);
  ms_json_out_bool(out, "cross_entropy_fusion", r->compiled_loss);
  if (!r->compiled) ms_json_out_bool(out, "torch_compile", FALSE);
  if (r->early_stop) ms_json_out_bool(out, "recompute_early_stop", TRUE);
  ms_json_out_string(out, "optimizer_impl", r->optimizer ? "foreach" : "fused");
  ms_json_out_string(out, "grad_reduce_dtype", r->reduce ? "bf16" : "fp32");
  ms_json_out_int(out, "num_distributed_optimizer_instances", r->replicate);
  ms_json_out_string(out, "dispatcher", ms_dispatcher_words[r->dispatcher]);
  ms_json_out_end(out);
}

static void put_head(Titan *t, const MsArgs *args, const MsImportOptions *options, const Run *r, MsJsonOut *out) {
  g_autoptr(JsonNode) machine = ms_import_hardware(t->import, args, options);
  JsonNode *routing = json_object_get_member(args->notes, "routing");
  const char *name = options->name ? options->name : ms_import_note(args, "name");
  g_autofree char *base = g_path_get_basename(ms_json_filename(t->doc));
  char *end = g_str_has_suffix(base, ".toml") || g_str_has_suffix(base, ".yaml") || g_str_has_suffix(base, ".py")
                  ? strrchr(base, '.')
                  : NULL;
  if (end && end > base) *end = '\0';
  ms_json_out_string(out, "name", name ? name : base);
  if (ms_import_note(args, "software")) ms_json_out_string(out, "software", ms_import_note(args, "software"));
  if (ms_import_note(args, "doc")) ms_json_out_string(out, "doc", ms_import_note(args, "doc"));
  ms_json_out_string(out, "framework", ms_framework_words[MS_FRAMEWORK_TORCHTITAN]);
  if (r->without_mtp) {
    ms_json_out_object(out, "model");
    ms_json_out_string(out, "base", r->model);
    ms_json_out_int(out, "mtp_num_layers", 0);
    ms_json_out_end(out);
  } else {
    ms_json_out_string(out, "model", r->model);
  }
  ms_json_out_node(out, "hardware", machine);
  ms_json_out_int(out, "gpus", r->gpus);
  ms_json_out_object(out, "training");
  ms_json_out_int(out, "seq_length", r->seq_length);
  ms_json_out_int(out, "micro_batch_size", r->microbatch);
  ms_json_out_int(out, "global_batch_size", r->global_batch);
  if (r->pp > 1 && r->global_batch > r->local_batch * (r->gpus / (r->tp * r->cp * r->pp)))
    ms_json_out_int(out, "local_batch_size", r->local_batch);
  ms_json_out_string(out, "precision", r->precision);
  if (routing) ms_json_out_node(out, "routing", routing);
  else if (r->experts_of_model) ms_json_out_string(out, "routing", r->balanced ? "balanced" : "natural");
  ms_json_out_end(out);
}

static void list_ignored(Titan *t) {
  g_autoptr(GList) tables = json_object_get_members(t->root);
  for (GList *i = tables; i; i = i->next) {
    JsonNode *node = json_object_get_member(t->root, i->data);
    g_autoptr(GList) keys = JSON_NODE_HOLDS_OBJECT(node) ? json_object_get_members(json_node_get_object(node)) : NULL;
    if (!JSON_NODE_HOLDS_OBJECT(node)) g_ptr_array_add(t->import->ignored, g_strdup(i->data));
    for (GList *k = keys; k; k = k->next) {
      g_autofree char *path = g_strdup_printf("%s.%s", (char *)i->data, (char *)k->data);
      if (g_hash_table_contains(t->used, path)) continue;
      ms_import_remark_misspelt(t->import, "", path, t->asked);
      g_ptr_array_add(t->import->ignored, g_steal_pointer(&path));
    }
  }
}

static gboolean read_all(Titan *t, const MsArgs *args, const MsImportOptions *options, Run *r) {
  return read_model(t, options, r) && read_precision(t, r) && read_training(t, r) && read_degrees(t, r) &&
         count_gpus(t, args, options, r) && read_pipeline(t, r) && read_batch(t, r) && read_checkpointing(t, r);
}

/* Any table of TorchTitan; a file without one is of another program. */
static gboolean is_titan(Titan *t) {
  static const char *const tables[] = {
      "model", "training", "parallelism", "experimental", "activation_checkpoint", "optimizer", "compile", "job", NULL};
  for (int i = 0; tables[i]; i++) {
    JsonNode *node = json_object_get_member(t->root, tables[i]);
    if (node && JSON_NODE_HOLDS_OBJECT(node)) return TRUE;
  }
  return ms_json_error(t->doc, "", t->error,
                       "is no configuration of TorchTitan: it has none of the tables [model], [training], "
                       "[parallelism]");
}

static MsScenario *scenario_of(Titan *t, const MsArgs *args, const MsImportOptions *options, const Run *r) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  put_head(t, args, options, r, out);
  put_layout(r, out);
  put_options(r, out);
  ms_json_out_end(out);
  g_autofree char *text = ms_json_out_take(out);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, ms_json_filename(t->doc), t->error);
  return doc ? ms_scenario_from_doc(doc, t->error) : NULL;
}

gboolean ms_import_titan_keys(MsImport *import, const MsJson *doc, GHashTable *lines, const MsArgs *args,
                              const MsImportOptions *options, GError **error) {
  Titan t = {
      .doc = doc, .root = json_node_get_object(ms_json_root(doc)), .lines = lines, .import = import, .error = error};
  Run r = {0};
  GHashTableIter iter;
  gpointer key, line;
  t.used = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  t.asked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  if (lines) g_hash_table_iter_init(&iter, lines);
  while (lines && g_hash_table_iter_next(&iter, &key, &line))
    if (GPOINTER_TO_INT(line) == 0) g_hash_table_add(t.used, g_strdup(key));
  if (is_titan(&t) && read_all(&t, args, options, &r)) import->scenario = scenario_of(&t, args, options, &r);
  list_ignored(&t);
  if (!import->scenario) ms_import_blame_misspelt(import, error);
  g_hash_table_unref(t.used), g_hash_table_unref(t.asked);
  g_free(r.split);
  return import->scenario != NULL;
}

MsImport *ms_import_torchtitan(const char *text, gsize length, const char *file, const MsImportOptions *options,
                               GError **error) {
  g_autofree char *copy = ms_import_text(text, length, file, error);
  g_autoptr(MsImport) import = ms_import_new();
  gboolean python = g_str_has_suffix(file, ".py");
  g_autofree char *json = copy && !python ? ms_toml_as_json(copy, file, error) : NULL;
  g_autoptr(MsJson) doc = json             ? ms_json_parse(json, -1, file, error)
                          : copy && python ? ms_titan_python(copy, file, options, import, error)
                                           : NULL;
  g_autoptr(MsArgs) args = ms_args_new(file);
  if (!doc || !ms_import_notes(args, copy, error)) return NULL;
  MsImportOptions with = *options;
  if (python && !with.name) with.name = ms_titan_config_name(options->set);
  g_autoptr(GHashTable) none = g_hash_table_new(g_str_hash, g_str_equal);
  return ms_import_titan_keys(import, doc, python ? none : NULL, args, &with, error) ? g_steal_pointer(&import) : NULL;
}
