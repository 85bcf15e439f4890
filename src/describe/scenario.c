/* src/describe/scenario.c - the other tables of scenario files, their loading and writing. */
#include "describe/scenario.h"

#include "base/err.h"
#include "describe/dispatcher.h"
#include "describe/framework.h"
#include "describe/rows.h"
#include "describe/sources.h"

#include <math.h>
#include <string.h>

/* --- training, layout, measured --------------------------------------------------------------------------------- */
const MsFieldTable ms_training_table = MS_FIELD_TABLE(
    "scenario.training", "what is trained on how much",
    {MS_ROW(MsTraining, seq_length, MS_T_INT, "tokens", NULL, MS_REQUIRED, "tokens per sequence s; \"8k\" = 8192"),
     .lo = 1, .hi = 1 << 27},
    MS_INT(MsTraining, micro_batch_size, 1, 65536, "1", MS_OPEN, "sequences per microbatch b"),
    MS_INT(MsTraining, global_batch_size, 1, 1 << 24, NULL, MS_REQUIRED, "sequences per step"),
    MS_INT(MsTraining, local_batch_size, 0, 1 << 24, "0", MS_NULLABLE,
           "sequences of a replica between two flushes of its pipeline, where gradients are accumulated over several "
           "(TorchTitan training.local_batch_size, AutoModel step_scheduler.local_batch_size); 0 = all of the step"),
    MS_ENUM(MsTraining, precision, ms_precision_words, "\"bf16\"", MS_OPEN, "compute precision"),
    MS_ENUM(MsTraining, optimizer, ms_optimizer_words, "\"adam\"", 0, "optimizer"),
    {MS_ROW(MsTraining, routing, MS_T_CUSTOM, "", "\"balanced\"", 0,
            "balanced (forced), natural, round-robin (experts in turn and no router, as NeMo AutoModel's fake gate has "
            "it, whose balanced it is) or an object: {\"zipf\": x}, {\"dirichlet\": x}, {\"histogram\": FILE} or "
            "{\"capacity_factor\": x}, and "
            "more keys, see scenario.training.routing"),
     .sub = &ms_routing_table, .parse = ms_routing_parse, .print = ms_routing_print},
    {MS_ROW(MsTraining, sequence_lengths, MS_T_CUSTOM, "", "null", MS_NULLABLE,
            "histogram {\"lengths\": [tokens, ...], \"weights\": [sequences, ...], \"seed\": n} of what is packed into "
            "a sequence; null = nothing, all are seq_length long"),
     .sub = &ms_lengths_table, .parse = ms_lengths_parse, .print = ms_lengths_print},
    MS_OBJECT(MsTraining, lora, &ms_lora_table, MS_NULLABLE,
              "adapters in place of the weights; null = all weights are trained"));

/* Sizes are so limited that tp*cp*pp and etp*ep*pp fit an int. */
const MsFieldTable ms_layout_table = MS_FIELD_TABLE(
    "scenario.layout", "how ranks share the model",
    MS_INT(MsLayoutSpec, tp, 1, 1024, "1", MS_OPEN, "tensor-parallel size"),
    MS_INT(MsLayoutSpec, cp, 1, 1024, "1", MS_OPEN, "context-parallel size"),
    MS_INT(MsLayoutSpec, pp, 1, 1024, "1", MS_OPEN, "pipeline stages"),
    MS_INT(MsLayoutSpec, vpp, 1, 1024, "1", MS_OPEN, "model chunks per pipeline stage"),
    MS_INT(MsLayoutSpec, ep, 1, 16384, "1", MS_OPEN, "expert-parallel size"),
    MS_INT(MsLayoutSpec, etp, 1, 64, "1", MS_OPEN, "tensor-parallel size of experts"),
    MS_INT(MsLayoutSpec, dp, 1, 1 << 20, NULL, MS_NULLABLE | MS_OPEN | MS_AUTO,
           "data-parallel size; auto: gpus / (tp cp pp)"),
    MS_INT(MsLayoutSpec, edp, 1, 1 << 20, NULL, MS_NULLABLE | MS_OPEN | MS_AUTO,
           "expert data-parallel size; auto: gpus / (etp ep pp)"),
    MS_INT(MsLayoutSpec, microbatch_group_size_per_virtual_pipeline_stage, 0, 65536, "0", MS_NULLABLE | MS_OPEN,
           "microbatches per virtual stage in a row; 0 = pp"),
    MS_ENUM(MsLayoutSpec, schedule, ms_schedule_words, "\"1f1b\"", MS_OPEN, "pipeline schedule"),
    MS_STRING(MsLayoutSpec, pipeline_layout, MS_NULLABLE | MS_OPEN,
              "layers of the virtual stages, e.g. \"Et*3|(tt|)*29,m|L\"; null = even"),
    MS_BOOL(MsLayoutSpec, account_for_embedding_in_pipeline_split, "false", MS_OPEN, "the embedding counts as a layer"),
    MS_BOOL(MsLayoutSpec, account_for_loss_in_pipeline_split, "false", MS_OPEN, "the loss counts as a layer"),
    MS_INT(MsLayoutSpec, decoder_first_pipeline_num_layers, 0, 10000, "0", MS_NULLABLE | MS_OPEN,
           "layers of the first stage; 0 = even"),
    MS_INT(MsLayoutSpec, decoder_last_pipeline_num_layers, 0, 10000, "0", MS_NULLABLE | MS_OPEN,
           "layers of the last stage; 0 = even"),
    MS_ENUM(MsLayoutSpec, cp_comm_type, ms_cp_comm_words, "\"p2p\"", MS_OPEN, "communication of context parallelism"),
    MS_ENUM(MsLayoutSpec, order, ms_order_words, "\"tp-cp-ep-dp-pp\"", MS_OPEN, "rank order"));

static const char *const memory_ranks[] = {"max", "0", "last", NULL};
static const char *const confidences[] = {"exact", "inferred", "unknown", NULL};
static const char *const time_sources[] = {"published", "tokens_per_s", "samples_per_s", "tflops", "mfu", NULL};
#define FIGURE(k, u, d) MS_F64(MsMeasured, k, u, 0, 1e18, NULL, MS_NULLABLE, d)
const MsFieldTable ms_measured_table = MS_FIELD_TABLE(
    "scenario.measured", "figures of a real run", FIGURE(step_time_s, "s", "time of one step"),
    FIGURE(tokens_per_s_per_gpu, "1/s", "throughput"),
    FIGURE(tflops_per_gpu, "TFLOP/s", "model FLOP throughput, see flops_convention"),
    FIGURE(peak_memory_GiB, "GiB", "peak allocated"), FIGURE(allocated_memory_GiB, "GiB", "allocated between steps"),
    FIGURE(peak_reserved_GiB, "GiB", "peak reserved by the allocator"),
    MS_WORD(MsMeasured, memory_rank, memory_ranks, "rank whose memory it is, max where it is not said"),
    MS_BOOL(MsMeasured, out_of_memory, "false", 0, "the run did not fit"),
    MS_STRING(MsMeasured, flops_convention, MS_NULLABLE,
              "how the source counts model FLOP: causal-half, full-attention, ..."),
    MS_STRING(MsMeasured, source, MS_NULLABLE, "who measured"),
    MS_WORD(MsMeasured, config_confidence, confidences, "whether the configuration is that of the run"),
    MS_WORD(MsMeasured, time_from, time_sources, "what the step time is worked out from"),
    MS_F64(MsMeasured, weight, "", 0, 1e6, "1", MS_NULLABLE, "weight in fits and summaries"),
    MS_F64(MsMeasured, rounding, "", 0, 1, NULL, MS_NULLABLE, "half of the last printed digit, as a fraction"),
    FIGURE(activation_memory_GiB, "GiB", "activations, first stage"),
    FIGURE(model_state_memory_GiB, "GiB", "parameters, gradients, optimizer, first stage"),
    FIGURE(activation_memory_relative, "", "share of the run without sequence parallelism and recompute"),
    MS_IGNORED(peak_memory_first_last_stage_GiB, "both ends of the pipeline; not compared"),
    MS_IGNORED(published, "figures as printed; not compared"),
    MS_FREE(MsMeasured, unknown,
            "list of what the file had to guess; `moesim validate` tries others of vpp, mbs, recompute and ep"),
    MS_IGNORED(breakdown_s, "free-form; not compared"), MS_IGNORED(step_time_range_s, "free-form; not compared"),
    MS_IGNORED(notes, "free-form; not compared"));

/* --- the whole file ----------------------------------------------------------------------------------------------- */
static gboolean model_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsScenario *scenario = member;
  scenario->model = ms_model_from_json(doc, node, path, error);
  scenario->model_json = json_node_ref(node);
  return scenario->model != NULL;
}

static gboolean hardware_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsScenario *scenario = member;
  scenario->hardware = ms_hardware_from_json(doc, node, path, error);
  scenario->hardware_json = json_node_ref(node);
  return scenario->hardware != NULL;
}

/* As it was written; the name alone when the struct was made by hand. */
static void print_mention(MsJsonOut *out, const char *key, JsonNode *json, const char *name) {
  if (json) ms_json_out_node(out, key, json);
  else ms_json_out_string(out, key, name);
}

static void model_print(MsJsonOut *out, const char *key, const void *member) {
  const MsScenario *scenario = member;
  print_mention(out, key, scenario->model_json, scenario->model ? scenario->model->name : NULL);
}

static void hardware_print(MsJsonOut *out, const char *key, const void *member) {
  const MsScenario *scenario = member;
  if (ms_pools_count(&scenario->pools) > 0) return;
  print_mention(out, key, scenario->hardware_json, scenario->hardware ? scenario->hardware->name : NULL);
}

static const MsField scenario_fields[] = {
    MS_SCHEMA(0),
    MS_STRING(MsScenario, name, 0, "name of the run, by default that of the file"),
    MS_ENUM(MsScenario, framework, ms_framework_words, "\"megatron\"", 0,
            "what trains: whose options there are, what is left out, how states are held; of a file that names none: "
            "what its software is known to be, else this"),
    MS_STRING(
        MsScenario, software, MS_NULLABLE,
        "software stack and release that ran it; its name says framework, kernels and options that files leave out "
        "(software/stacks.json)"),
    MS_STRING(MsScenario, doc, MS_NULLABLE, "free text"),
    {MS_ROW(MsScenario, pools, MS_T_CUSTOM, "", NULL, MS_NULLABLE,
            "in place of hardware and gpus: several kinds of machines in the order of ranks, a list of "
            "{\"hardware\": ..., \"gpus\": N}; every pipeline stage lies in one of them, or with batch every replica"),
     .sub = &ms_pool_table, .parse = ms_pools_parse, .print = ms_pools_print},
    {MS_CUSTOM(model, "", MS_REQUIRED, "a name in models/, a path, or {\"base\": NAME, ...overrides}"),
     .parse = model_parse, .print = model_print},
    {MS_CUSTOM(hardware, "", MS_REQUIRED, "a name in hardware/, a path, or {\"base\": NAME, ...overrides}"),
     .parse = hardware_parse, .print = hardware_print},
    MS_BOOL(MsScenario, strict, "false", 0,
            "figures that the machine's file assumes count as unknown: what needs them is refused"),
    MS_INT(MsScenario, gpus, 1, 1 << 20, NULL, MS_REQUIRED | MS_OPEN, "devices W"),
    MS_OBJECT(MsScenario, training, &ms_training_table, MS_REQUIRED, "what is trained on how much"),
    MS_OBJECT(MsScenario, layout, &ms_layout_table, 0, "how ranks share the model"),
    MS_OBJECT(MsScenario, options, &ms_options_table, 0, "framework options"),
    {MS_ROW(MsScenario, laws, MS_T_CUSTOM, "", NULL, 0, "laws in place of those of software/laws.json"),
     .sub = &ms_laws_table, .parse = ms_laws_parse, .print = ms_laws_print},
    MS_OBJECT(MsScenario, cluster, &ms_cluster_table, 0,
              "what differs between GPUs: drawn by run --fidelity cluster, expected of fast and full"),
    MS_OBJECT(MsScenario, measured, &ms_measured_table, MS_NULLABLE, "figures of a real run; null = none"),
    {0}};
const MsFieldTable ms_scenario_table = {"scenario", "one training run, scenarios/**/*.json", scenario_fields};

/* --- loading ------------------------------------------------------------------------------------------------------ */
gboolean ms_scenario_states(const MsScenario *scenario, const MsFieldTable *table, const char *key) {
  const char *section = strchr(table->name, '.') + 1; /* of "scenario.options" */
  JsonNode *object = scenario->stated ? json_object_get_member(scenario->stated, section) : NULL;
  if (!object || !JSON_NODE_HOLDS_OBJECT(object)) return FALSE;
  JsonNode *node = json_object_get_member(json_node_get_object(object), key);
  return node && !JSON_NODE_HOLDS_NULL(node) && !ms_field_is_auto(ms_field_find(table, key), node);
}

static void add_default(const char *key, JsonNode *node, GString *out) {
  g_autofree char *json = ms_json_text(node, 0);
  gboolean word = ms_json_is(node, G_TYPE_STRING);
  g_string_append_printf(out, "%s%s %s", out->len ? ", " : "", key, word ? json_node_get_string(node) : json);
}

/* The values of keys that the file leaves out: all of them but for objects, or those that are not the fixed default of
 * their row. */
static void add_defaults(const MsScenario *s, const MsFieldTable *table, const void *object, gboolean all,
                         GString *out) {
  for (const MsField *field = table->fields; field->key; field++) {
    if (ms_scenario_states(s, table, field->key)) continue;
    g_autoptr(JsonNode) node = ms_field_node(field, object, all && field->type != MS_T_OBJECT);
    if (node && !JSON_NODE_HOLDS_NULL(node)) add_default(field->key, node, out);
  }
}

/* Where the name of the software says it, or would but for an option that it does not have. */
static void add_framework(const MsScenario *s, GString *out) {
  gboolean plain = s->framework == MS_FRAMEWORK_MEGATRON && s->stack.family.framework == MS_FRAMEWORK_MEGATRON;
  if (!plain && !json_object_has_member(s->stated, "framework"))
    g_string_append_printf(out, "framework %s", ms_framework(s)->word);
}

char *ms_scenario_defaults(const MsScenario *scenario) {
  GString *out = g_string_new(NULL);
  if (scenario->stated) {
    add_framework(scenario, out);
    add_defaults(scenario, &ms_training_table, &scenario->training, TRUE, out);
    add_defaults(scenario, &ms_options_table, &scenario->options, FALSE, out);
  }
  return g_string_free(out, FALSE);
}

static gboolean concerns(const MsLater *row, const MsScenario *s) {
  return (int)s->framework == row->framework && !ms_scenario_states(s, &ms_options_table, row->option) &&
         (!row->latent_attention || ms_model_has_mla(s->model)) &&
         (row->generation_year == 0 || s->hardware->generation_year >= row->generation_year);
}

/* What the framework had not when the software was released, of options that the file leaves out. */
static void take_from_time(MsScenario *s) {
  if (!s->stack.later) return;
  g_autoptr(MsJson) doc = ms_json_parse(s->stack.later, -1, "stacks.json", NULL);
  JsonArray *rows = json_node_get_array(ms_json_root(doc));
  for (guint i = 0; i < json_array_get_length(rows); i++) {
    MsLater row;
    ms_fields_defaults(&ms_later_table, &row);
    ms_fields_load(&ms_later_table, doc, json_array_get_object_element(rows, i), "", TRUE, &row, NULL);
    if (concerns(&row, s))
      ms_field_set(ms_field_find(&ms_options_table, row.option), doc, row.value, row.option, &s->options, NULL);
    ms_fields_clear(&ms_later_table, &row);
  }
}

/* Megatron-Core fuses the rotary embedding of latent attention with YaRN only, and refuses to be asked for more
 * (transformer_config.py). */
static void take_plain_rotation(MsScenario *s) {
  gboolean yarn = s->model->position_embedding == MS_POS_YARN || s->model->rope_scaling.type == MS_ROPE_YARN;
  if (ms_model_has_mla(s->model) && !yarn && !ms_scenario_states(s, &ms_options_table, "apply_rope_fusion"))
    s->options.apply_rope_fusion = FALSE;
}

/* Where the software drops tokens so, and the file does not say otherwise. */
static void take_padding(MsScenario *s) {
  JsonNode *training = json_object_get_member(s->stated, "training"), *routing;
  if (!s->stack.family.pad_to_capacity || s->training.routing.kind != MS_ROUTING_CAPACITY) return;
  routing = json_object_get_member(json_node_get_object(training), "routing");
  s->training.routing.pad_to_capacity |= !json_object_has_member(json_node_get_object(routing), "pad_to_capacity");
}

/* TorchTitan compiles the loss with the model, where it compiles. */
static void take_loss(MsScenario *s) {
  if (!s->options.torch_compile && !ms_scenario_states(s, &ms_options_table, "cross_entropy_fusion"))
    s->options.cross_entropy_fusion = FALSE;
}

static void take_flex(MsScenario *s) {
  if (ms_framework(s)->flex_latent && ms_model_has_mla(s->model) &&
      !ms_scenario_states(s, &ms_options_table, "attention_backend"))
    s->options.attention_backend = MS_ATTN_FA2;
}

/* Options that the file leaves out and the software stack has its own way with. */
static void take_from_stack(MsScenario *scenario) {
  if (ms_framework(scenario)->defaults) { /* which have their own */
    take_from_time(scenario);
    take_flex(scenario);
    take_loss(scenario);
    return;
  }
  if (!ms_scenario_states(scenario, &ms_options_table, "attention_backend"))
    scenario->options.attention_backend = (MsAttnBackend)scenario->stack.attention_backend;
  if (!ms_scenario_states(scenario, &ms_options_table, "overlap_p2p_comm"))
    scenario->options.overlap_p2p_comm = scenario->stack.overlap_p2p_comm;
  take_from_time(scenario);
  take_plain_rotation(scenario);
}

/* Forced balance is what the framework has for it: AutoModel's fake gate hands experts out in turn. */
static void take_gate(MsScenario *s) {
  if (ms_framework(s)->fake_gate && s->training.routing.kind == MS_ROUTING_BALANCED)
    s->training.routing.kind = MS_ROUTING_ROUND_ROBIN;
}

static gboolean can_use(const MsScenario *s, MsDispatcher dispatcher) {
  const MsDispatcherRow *row = &ms_dispatchers[dispatcher];
  gint64 ranks = (gint64)s->layout.etp * s->layout.ep;
  gboolean pads = s->training.routing.kind == MS_ROUTING_CAPACITY && s->training.routing.pad_to_capacity;
  return ms_dispatcher_exists(row, s->hardware) && ranks >= row->least_ranks && ms_dispatcher_takes(row, ranks) &&
         (!pads || row->pads_to_capacity);
}

static gboolean is_usual(const MsScenario *s, MsDispatcher dispatcher) {
  const MsHardware *hardware = s->hardware;
  if (s->model->num_experts == 0 || !can_use(s, dispatcher)) return FALSE;
  switch (ms_dispatchers[dispatcher].usual) {
  case MS_USUAL_ON_RACKS: return hardware->nvlink_domain_gpus > hardware->gpus_per_node;
  case MS_USUAL_BEYOND_DOMAINS: return (gint64)s->layout.etp * s->layout.ep > hardware->nvlink_domain_gpus;
  case MS_USUAL_ELSE:
  case MS_USUAL_NEVER: break;
  }
  return FALSE;
}

static MsDispatcher usual_on(const MsScenario *s) {
  MsDispatcher best = ms_dispatcher_usual();
  for (int i = 0; i < MS_N_DISPATCHERS; i++)
    if (is_usual(s, (MsDispatcher)i) && ms_dispatchers[i].usual < ms_dispatchers[best].usual) best = (MsDispatcher)i;
  return best;
}

/* What is usual on all machines. */
static MsDispatcher usual_dispatcher(const MsScenario *s) {
  MsDispatcher usual = usual_on(s);
  for (int i = 1; i < ms_scenario_machines(s); i++) {
    const MsScenario there = ms_scenario_of_pool(s, i);
    if (usual_on(&there) != usual) return ms_dispatcher_usual();
  }
  return usual;
}

void ms_scenario_be_strict(MsScenario *scenario) {
  scenario->strict = TRUE;
  ms_sources_forget_assumed(scenario->hardware);
  for (int i = 1; i < ms_scenario_machines(scenario); i++) ms_sources_forget_assumed(scenario->pools.pool[i].hardware);
}

MsScenario ms_scenario_of_pool(const MsScenario *scenario, int pool) {
  MsScenario view = *scenario;
  view.hardware = scenario->pools.pool[pool].hardware, view.pools.n = 0;
  view.pools.shares = 0;
  view.borrowed = TRUE, view.stated = NULL;
  return view;
}

MsScenario ms_scenario_seen_from(const MsScenario *scenario, int own) {
  const MsPool *pool = &scenario->pools.pool[own];
  MsScenario view = *scenario;
  gint64 as_one = (gint64)pool->batch * scenario->gpus;
  view.hardware = pool->hardware, view.pools.own = own;
  view.training.global_batch_size = as_one % pool->gpus ? 0 : (int)MIN(as_one / pool->gpus, G_MAXINT);
  view.borrowed = TRUE, view.stated = NULL;
  return view;
}

char *ms_scenario_machines_text(const MsScenario *s) {
  GString *out = g_string_new(NULL);
  for (int i = 0; i < ms_scenario_machines(s); i++)
    g_string_append_printf(out, "%s%d x %s", i ? " + " : "", ms_scenario_machine_gpus(s, i),
                           ms_scenario_machine(s, i)->name);
  return g_string_free(out, FALSE);
}

gboolean ms_scenario_refuse_pools(const MsScenario *scenario, const char *what, GError **error) {
  return ms_pools_count(&scenario->pools) == 0 ||
         ms_input_error(error, scenario->file, 0, "pools",
                        "%s not modelled for machines of several kinds (that is: run at bound, fast and full, "
                        "plan, show, report, whatif of a scenario, goodput); give one machine as hardware",
                        what);
}

/* Machines of which only one kind may be in a job; the first becomes the scenario's. */
static gboolean finish_pools(MsScenario *s, const MsJson *doc, GError **error) {
  if (s->pools.n == 0) return TRUE;
  ms_hardware_free(s->pools.pool[0].hardware);
  s->pools.pool[0].hardware = s->hardware;
  for (int i = 0; i < s->pools.n; i++) {
    g_autofree char *path = g_strdup_printf("pools[%d].hardware", i);
    if (s->pools.pool[i].hardware->fabric.kind != MS_FABRIC_NONE)
      return ms_json_error(doc, path, error,
                           "has a fabric, which says how machines of one kind are cabled; leave it "
                           "out of machines of several kinds");
    if (s->pools.pool[i].hardware->serial)
      return ms_json_error(doc, path, error,
                           "is a machine whose rows run one after another (serial), which only a job "
                           "of one kind of machine is");
  }
  return !s->cluster.expected || ms_json_error(doc, "cluster.expected", error,
                                               "is of GPUs of one kind; leave it out of machines of several kinds");
}

/* Pools that say a batch hold replicas, whose ranks follow one another if DP is the outermost axis: the default of the
 * order. `closed`: nothing is left to a planner. */
static gboolean finish_shares(MsScenario *s, const MsJson *doc, gboolean closed, GError **error) {
  int given = 0, searched = 0;
  for (int i = 0; i < s->pools.n; i++)
    given += s->pools.pool[i].batch != 0, searched += s->pools.pool[i].batch == MS_POOL_SEARCHED;
  if (given == 0) return TRUE;
  if (given < s->pools.n || (searched > 0 && searched < given))
    return ms_json_error(doc, "pools", error,
                         "give each machine a batch, or all of them \"auto\", or none, to share the stages instead");
  if (searched > 0 && closed)
    return ms_json_error(doc, "pools[0].batch", error, "\"auto\" is what `moesim plan` finds; a run says its batch");
  s->pools.shares = s->pools.n, s->pools.n = 0;
  if (!ms_scenario_states(s, &ms_layout_table, "order")) s->layout.order = MS_ORDER_PP_DP;
  gint64 batch = ms_pools_batch(&s->pools);
  return searched > 0 || batch == s->training.global_batch_size ||
         ms_json_error(doc, "training.global_batch_size", error,
                       "is %d sequences, but the pools do %" G_GINT64_FORMAT " between them",
                       s->training.global_batch_size, batch);
}

/* Takes what was loaded to what is predicted: every value that depends on others is settled, but for sequence
 * parallelism, which follows a TP that the planner may still choose. */
static gboolean finish(MsScenario *scenario, const MsJson *doc, JsonObject *json, gboolean closed, GError **error) {
  if (!finish_pools(scenario, doc, error) || !ms_cluster_check(&scenario->cluster, scenario->gpus, doc, error))
    return FALSE;
  scenario->stated = json_object_ref(json);
  if (!finish_shares(scenario, doc, closed, error)) return FALSE;
  take_from_stack(scenario);
  take_padding(scenario);
  take_gate(scenario);
  if (scenario->strict) ms_scenario_be_strict(scenario);
  if ((int)scenario->options.dispatcher < 0)
    scenario->options.dispatcher = closed ? usual_dispatcher(scenario) : ms_dispatcher_usual();
  if (!scenario->name) scenario->name = ms_name_of_file(ms_json_filename(doc));
  JsonNode *measured = json_object_get_member(json, "measured");
  scenario->has_measured = measured && JSON_NODE_HOLDS_OBJECT(measured);
  return TRUE;
}

/* What trains: `as`, or by the name of its software (-1). */
static gboolean find_stack(MsScenario *scenario, JsonObject *json, int as, GError **error) {
  JsonNode *node = json_object_get_member(json, "software");
  const char *software = ms_json_is(node, G_TYPE_STRING) ? json_node_get_string(node) : NULL;
  if (!ms_stack_find(software, &scenario->stack, error)) return FALSE;
  scenario->framework = (MsFramework)(as < 0 ? scenario->stack.family.framework : as);
  return TRUE;
}

/* `framework` comes before everything that it has another default of. */
static gboolean take_framework(MsScenario *scenario, const MsJson *doc, JsonObject *json, GError **error) {
  JsonNode *node = json_object_get_member(json, "framework");
  if (node && !ms_field_set(ms_field_find(&ms_scenario_table, "framework"), doc, node, "framework", scenario, error))
    return FALSE;
  ms_framework_defaults(scenario->framework, &scenario->options);
  if ((int)scenario->framework == scenario->stack.family.framework)
    ms_family_defaults(&scenario->stack.family, &scenario->options);
  return TRUE;
}

/* The one way of a framework to recompute selectively stands for modules that it has not; of one with several they are
 * refused. Left alone where nothing is selected, unless that is still searched. */
static void take_modules(MsScenario *scenario, gboolean said, gboolean searched) {
  guint32 own = ms_framework(scenario)->modules, lacked = scenario->options.recompute.modules & ~own;
  gboolean one = own && !(own & (own - 1));
  if (!said && one && (searched ? lacked : ms_framework_lacked_modules(scenario)))
    scenario->options.recompute.modules = own;
}

void ms_scenario_take_modules(MsScenario *scenario, const MsScenario *base) {
  take_modules(scenario, base->stated && json_object_has_member(base->stated, "framework"), TRUE);
}

void ms_scenario_take_sharding(MsScenario *s) {
  gboolean asked = json_object_has_member(s->stated, "framework") && ms_scenario_states(s, &ms_options_table, "fsdp");
  if (s->layout.pp > 1 && s->options.fsdp == MS_FSDP_OPTIM_GRADS_PARAMS && !asked)
    s->options.fsdp = ms_framework(s)->pipeline_fsdp;
}

static MsScenario *load(const MsJson *doc, JsonObject *json, gboolean closed, int as, GError **error) {
  MsScenario *scenario = g_new0(MsScenario, 1);
  ms_fields_defaults(&ms_scenario_table, scenario);
  scenario->file = g_strdup(ms_json_filename(doc));
  if (!ms_laws_load(&scenario->laws, error) || !find_stack(scenario, json, as, error) ||
      !take_framework(scenario, doc, json, error) ||
      !ms_fields_load(&ms_scenario_table, doc, json, "", TRUE, scenario, error) ||
      !finish(scenario, doc, json, closed, error))
    g_clear_pointer(&scenario, ms_scenario_free);
  return scenario;
}

MsScenario *ms_scenario_from_object(const MsJson *doc, JsonObject *file, gboolean closed, int framework,
                                    GError **error) {
  JsonObject *json = ms_pools_settled(doc, file, error);
  if (!json) return NULL;
  MsScenario *scenario = load(doc, json, closed, framework, error);
  gboolean said = json_object_has_member(json, "framework");
  if (scenario) take_modules(scenario, said, FALSE);
  if (scenario && !said && framework < 0 && !ms_framework_fits(scenario)) {
    ms_scenario_free(scenario);
    scenario = load(doc, json, closed, MS_FRAMEWORK_MEGATRON, error);
  }
  if (scenario && closed) ms_scenario_take_sharding(scenario);
  json_object_unref(json);
  return scenario;
}

static gboolean refuse_open(const MsJson *doc, const char *wanted, GError **error) {
  g_autofree char *open = ms_first_open(&ms_scenario_table, json_node_get_object(ms_json_root(doc)), "");
  return !open ||
         ms_json_error(doc, open, error, "is left open: this is a plan request (moesim plan), must be %s", wanted);
}

/* A kind of file is known by a key that only it has; a plan request has those of a scenario, too. */
gboolean ms_doc_check_kind(const MsJson *doc, const char *key, GError **error) {
  static const struct {
    const char *key, *is, *takes;
  } kind[] = {{"plan", "a plan request", "moesim plan"},
              {"training", "a scenario", "moesim run"},
              {"axes", "a what-if study", "moesim whatif"},
              {"disturbances", "a list of disturbances", "moesim plan --under"},
              {"predictions", "a baseline of predictions", "moesim check"},
              {"tokens", "a histogram of tokens", "training.routing of a scenario names it"},
              {"run", "a goodput study", "moesim goodput"},
              {"num_layers", "a model", "moesim plan --model"},
              {"gpus_per_node", "a machine", "moesim plan --hardware"}};
  enum { SCENARIO = 1 };
  JsonNode *root = ms_json_root(doc);
  if (!JSON_NODE_HOLDS_OBJECT(root)) return ms_json_error(doc, "", error, "must be one JSON object");
  JsonObject *json = json_node_get_object(root);
  guint is = 0, wanted = 0;
  while (is < G_N_ELEMENTS(kind) && !json_object_has_member(json, kind[is].key)) is++;
  while (strcmp(kind[wanted].key, key) != 0) wanted++;
  if (is == G_N_ELEMENTS(kind) || is == wanted || (json_object_has_member(json, key) && (is > 0 || wanted > 1)))
    return TRUE;
  if (is == SCENARIO && !refuse_open(doc, kind[wanted].is, error)) return FALSE;
  return ms_json_error(doc, "", error, "must be %s, this is %s: %s", kind[wanted].is, kind[is].is, kind[is].takes);
}

MsScenario *ms_scenario_from_doc_mixed(const MsJson *doc, GError **error) {
  if (!ms_doc_check_kind(doc, "training", error)) return NULL;
  GError *wrong = NULL;
  MsScenario *s = ms_scenario_from_object(doc, json_node_get_object(ms_json_root(doc)), TRUE, -1, &wrong);
  if (wrong && refuse_open(doc, "a scenario", error)) g_propagate_error(error, g_steal_pointer(&wrong));
  g_clear_error(&wrong);
  return s;
}

MsScenario *ms_scenario_load_mixed(const char *filename, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(filename, error);
  return doc ? ms_scenario_from_doc_mixed(doc, error) : NULL;
}

gboolean ms_put_on(const MsJson *doc, const char *hardware, GError **error) {
  JsonNode *root = ms_json_root(doc);
  if (!hardware || !JSON_NODE_HOLDS_OBJECT(root)) return TRUE; /* whoever loads it refuses the latter */
  JsonObject *json = json_node_get_object(root);
  if (json_object_has_member(json, "pools"))
    return ms_json_error(doc, "pools", error, "has its machines, another cannot stand in their place");
  g_autofree char *file = ms_find_data_file("hardware", hardware, error);
  if (!file) return FALSE;
  g_autofree char *path = g_canonicalize_filename(file, NULL); /* documents mention what lies beside them */
  JsonNode *own = json_object_get_member(json, "hardware");
  gboolean changes = ms_json_member(ms_json_object(own), "base") != NULL;
  json_object_set_string_member(changes ? json_node_get_object(own) : json, changes ? "base" : "hardware", path);
  return TRUE;
}

MsScenario *ms_scenario_load_on(const char *filename, const char *hardware, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(filename, error);
  return doc && ms_put_on(doc, hardware, error) ? ms_scenario_from_doc_mixed(doc, error) : NULL;
}

static MsScenario *of_one_kind(MsScenario *s, GError **error) {
  if (s && !ms_scenario_refuse_pools(s, "this is", error)) g_clear_pointer(&s, ms_scenario_free);
  return s;
}

MsScenario *ms_scenario_from_doc(const MsJson *doc, GError **error) {
  return of_one_kind(ms_scenario_from_doc_mixed(doc, error), error);
}

MsScenario *ms_scenario_load(const char *filename, GError **error) {
  return of_one_kind(ms_scenario_load_mixed(filename, error), error);
}

MsScenario *ms_scenario_copy(const MsScenario *from, gboolean share) {
  MsScenario *copy = g_new(MsScenario, 1);
  *copy = *from;
  ms_fields_copy(&ms_scenario_table, from, copy);
  ms_stack_copy(&from->stack, &copy->stack);
  copy->file = g_strdup(from->file);
  ms_histogram_ref(copy->training.routing.histogram);
  copy->borrowed = share;
  copy->stated = NULL;
  if (share) return copy;
  copy->model = from->model ? ms_model_copy(from->model) : NULL;
  copy->hardware = from->hardware ? ms_hardware_copy(from->hardware) : NULL;
  copy->model_json = from->model_json ? json_node_ref(from->model_json) : NULL;
  copy->hardware_json = from->hardware_json ? json_node_ref(from->hardware_json) : NULL;
  ms_pools_own(&copy->pools, copy->hardware);
  return copy;
}

static void free_owned(MsScenario *scenario) {
  MsPool *own = &scenario->pools.pool[scenario->pools.own];
  if (own->hardware == scenario->hardware) own->hardware = NULL;
  ms_pools_clear(&scenario->pools);
  ms_model_free(scenario->model);
  ms_hardware_free(scenario->hardware);
  g_clear_pointer(&scenario->model_json, json_node_unref);
  g_clear_pointer(&scenario->hardware_json, json_node_unref);
}

void ms_scenario_free(MsScenario *scenario) {
  if (!scenario) return;
  if (!scenario->borrowed) free_owned(scenario);
  ms_fields_clear(&ms_scenario_table, scenario);
  ms_stack_clear(&scenario->stack);
  ms_histogram_unref(scenario->training.routing.histogram);
  g_clear_pointer(&scenario->stated, json_object_unref);
  g_free(scenario->file);
  g_free(scenario);
}

void ms_scenario_write(const MsScenario *scenario, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  for (const MsField *field = scenario_fields; field->key; field++) {
    if (!scenario->has_measured && strcmp(field->key, "measured") == 0) continue;
    if (ms_pools_count(&scenario->pools) > 0 && strcmp(field->key, "gpus") == 0) continue; /* pools say it */
    ms_field_write(field, scenario, TRUE, out);
  }
  ms_json_out_end(out);
}

char *ms_scenario_text(const MsScenario *scenario, int indent) {
  MsJsonOut *out = ms_json_out_new(indent);
  ms_scenario_write(scenario, NULL, out);
  return ms_json_out_take(out);
}

static void move_mention(JsonObject *in, const char *key, const char *from, const char *to) {
  JsonNode *node = json_object_get_member(in, key);
  JsonObject *own = ms_json_object(node);
  if (own) {
    move_mention(own, "base", from, to);
    move_mention(own, "curves_from", from, to);
  } else if (ms_json_is(node, G_TYPE_STRING)) {
    g_autofree char *moved = ms_mention_in(json_node_get_string(node), from, to);
    json_object_set_string_member(in, key, moved);
  }
}

static const char *file_of(const char *file) { return file ? file : "-"; }

JsonNode *ms_scenario_hardware_in(const MsScenario *scenario, const char *file) {
  static const char key[] = "hardware";
  g_autoptr(JsonObject) in = json_object_new();
  json_object_set_member(in, key, ms_json_copy(scenario->hardware_json));
  move_mention(in, key, file_of(scenario->file), file_of(file));
  return json_object_dup_member(in, key);
}

char *ms_scenario_text_in(const MsScenario *scenario, const char *file) {
  g_autoptr(JsonNode) node = ms_scenario_node(scenario);
  const char *from = file_of(scenario->file), *to = file_of(file);
  JsonObject *json = json_node_get_object(node);
  JsonArray *pools = json_object_has_member(json, "pools") ? json_object_get_array_member(json, "pools") : NULL;
  move_mention(json, "model", from, to);
  move_mention(json, "hardware", from, to);
  for (guint i = 0; pools && i < json_array_get_length(pools); i++)
    move_mention(json_array_get_object_element(pools, i), "hardware", from, to);
  return ms_json_text(node, 2);
}

JsonNode *ms_scenario_node(const MsScenario *scenario) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(scenario, NULL, out);
  return ms_json_out_take_node(out);
}
