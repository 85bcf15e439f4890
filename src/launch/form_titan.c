/* src/launch/form_titan.c - a scenario as a configuration of TorchTitan. */
#include "launch/titan.h"

#include "layout/layout.h"

#include "describe/framework.h"
#include "describe/precision.h"
#include "launch/form.h"

#include <string.h>

typedef struct {
  const MsScenario *s;
  GString *out;
  GError **error;
} Form;

#define REFUSE(f, path, ...) ms_refuse_key((f)->s, (f)->error, path, __VA_ARGS__)

static void note(Form *f, const char *key, JsonNode *json, const char *string) {
  if (!json && !string) return;
  g_autofree char *text = json ? ms_json_text(json, 0) : ms_json_quoted(string);
  g_string_append_printf(f->out, "#moesim %s %s\n", key, text);
}

static const char *boolean(gboolean value) { return value ? "true" : "false"; }

static void head(Form *f) {
  const MsScenario *s = f->s;
  int per_node = MIN(s->gpus, s->hardware->gpus_per_node);
  g_string_append_printf(f->out,
                         "# %s on %d GPUs, written by moesim for TorchTitan v0.2, which reads TOML (its main branch\n"
                         "# has Python in place of it since February 2026): CONFIG_FILE=this file, torchrun\n"
                         "# --nproc_per_node %d --nnodes %d -m torchtitan.train on every node (run_train.sh).\n"
                         "# Data, tokenizer, learning rate and checkpoints are TorchTitan's defaults.\n",
                         s->model->name, s->gpus, per_node, s->gpus / per_node);
  ms_append_start_note(f->out, s, MS_FRAMEWORK_TORCHTITAN);
  note(f, "name", NULL, s->name);
  note(f, "doc", NULL, s->doc);
  note(f, "software", NULL, s->software);
  note(f, "hardware", s->hardware_json, s->hardware->name);
  g_string_append_printf(f->out, "#moesim gpus %d\n", s->gpus);
  if (s->model->num_experts > 0) {
    g_autoptr(JsonNode) routing = ms_key_node(&ms_training_table, "routing", &s->training);
    note(f, "routing", routing, NULL);
  }
}

/* The shipped model that it names, whole or without its MTP blocks; NULL: another. */
static const char *shipped_model(JsonNode *node) {
  if (!node || JSON_NODE_HOLDS_VALUE(node)) return node ? json_node_get_string(node) : NULL;
  JsonObject *model = ms_json_object(node);
  gboolean only = model && json_object_get_size(model) == 2 && json_object_has_member(model, "mtp_num_layers");
  return only ? json_object_get_string_member_with_default(model, "base", NULL) : NULL;
}

/* Name and flavor there; FALSE and *error where it has none, whatever the layout. */
static gboolean flavor_of(const MsScenario *s, const char **name, const char **flavor, GError **error) {
  const char *shipped = shipped_model(s->model_json);
  *flavor = shipped ? ms_titan_flavor(shipped, name) : NULL;
  if (!*flavor)
    return ms_refuse_key(s, error, "model", "is %s, which is no flavor of TorchTitan that moesim knows",
                         s->model->name ? s->model->name : "its own");
  return s->model->mtp_num_layers == 0 ||
         ms_refuse_key(
             s, error, "model.mtp_num_layers",
             "is %d, TorchTitan trains no such blocks: {\"base\": \"%s\", \"mtp_num_layers\": 0} is its model",
             s->model->mtp_num_layers, shipped);
}

gboolean ms_titan_has_model(const MsScenario *scenario, GError **error) {
  const char *name, *flavor;
  return flavor_of(scenario, &name, &flavor, error);
}

static gboolean model(Form *f) {
  const MsScenario *s = f->s;
  const char *name = NULL, *flavor = NULL;
  if (!flavor_of(s, &name, &flavor, f->error)) return FALSE;
  const char *converter = ms_precision(&s->training)->launch_titan, *quote = converter && *converter ? "\"" : "";
  if (!converter)
    return REFUSE(f, "training.precision", "is %s: TorchTitan has bf16, fp8-tensorwise and mxfp8",
                  ms_precision_words[s->training.precision]);
  g_string_append_printf(f->out, "\n[model]\nname = \"%s\"\nflavor = \"%s\"\nconverters = [%s%s%s]\n", name, flavor,
                         quote, converter, quote);
  return TRUE;
}

static gboolean training(Form *f, const MsLayout *layout) {
  const MsTraining *t = &f->s->training;
  const MsOptions *o = &f->s->options;
  if (t->optimizer != MS_OPT_ADAM) return REFUSE(f, "training.optimizer", "is not adam");
  if (t->lora.rank > 0) return REFUSE(f, "training.lora", "has no argument of TorchTitan");
  if (t->sequence_lengths.n > 0) return REFUSE(f, "training.sequence_lengths", "has no argument of TorchTitan");
  if (o->grad_reduce_dtype == MS_DT_FP16) return REFUSE(f, "options.grad_reduce_dtype", "is fp16");
  int local = layout->pp > 1 ? layout->flush * t->micro_batch_size : t->micro_batch_size;
  g_string_append_printf(f->out,
                         "\n[optimizer]\nname = \"AdamW\"\nimplementation = \"%s\"\n\n[training]\n"
                         "local_batch_size = %d\nglobal_batch_size = %d\n"
                         "seq_len = %d\nmixed_precision_param = \"bfloat16\"\nmixed_precision_reduce = \"%s\"\n",
                         ms_optimizer_impl_words[o->optimizer_impl], local, t->global_batch_size, t->seq_length,
                         o->grad_reduce_dtype == MS_DT_BF16 ? "bfloat16" : "float32");
  g_string_append_printf(f->out, "\n[compile]\nenable = %s\ncomponents = [%s%s%s]\n",
                         boolean(o->torch_compile || o->cross_entropy_fusion), o->torch_compile ? "\"model\"" : "",
                         o->torch_compile && o->cross_entropy_fusion ? ", " : "",
                         o->cross_entropy_fusion ? "\"loss\"" : "");
  if (f->s->model->num_experts > 0)
    g_string_append_printf(f->out, "\n[debug]\nmoe_force_load_balance = %s\n",
                           boolean(t->routing.kind == MS_ROUTING_BALANCED));
  if (strcmp(ms_precision(t)->launch_titan, "quantize.linear.float8") == 0)
    g_string_append_printf(
        f->out,
        "\n[quantize.linear.float8]\nrecipe_name = \"tensorwise\"\nenable_fsdp_float8_all_gather = %s\n"
        "precompute_float8_dynamic_scale_for_fsdp = %s\nfilter_fqns = [\"output\"]\n",
        boolean(o->fp8_param_gather), boolean(o->fp8_param_gather));
  return TRUE;
}

static gboolean checkpointing(Form *f, const MsLayout *layout) {
  const MsRecomputeSpec *r = &f->s->options.recompute;
  int chunk = f->s->model->num_layers / (layout->pp * f->s->layout.vpp), every = 0;
  if (r->granularity == MS_RECOMPUTE_FULL && r->method == MS_RECOMPUTE_BLOCK) {
    every = chunk / MAX(1, r->num_layers);
    if (every < 1 || chunk / every != r->num_layers)
      return REFUSE(f, "options.recompute.num_layers", "is %d of %d layers: TorchTitan checkpoints every nth",
                    r->num_layers, chunk);
  } else if (r->granularity == MS_RECOMPUTE_FULL && r->num_layers > 1) {
    return REFUSE(f, "options.recompute.num_layers", "is %d: TorchTitan checkpoints layer by layer", r->num_layers);
  }
  gboolean selective = r->granularity == MS_RECOMPUTE_SELECTIVE;
  g_string_append_printf(f->out, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                         selective || every > 1                ? "selective"
                         : r->granularity == MS_RECOMPUTE_FULL ? "full"
                                                               : "none");
  if (selective) g_string_append(f->out, "selective_ac_option = \"op\"\n");
  else if (every > 1) g_string_append_printf(f->out, "selective_ac_option = \"%d\"\n", every);
  if (f->s->options.recompute_early_stop) g_string_append(f->out, "early_stop = true\n");
  return TRUE;
}

static gboolean reshard(Form *f, const MsLayout *layout, const char **word) {
  MsFsdp fsdp = f->s->options.fsdp;
  if (fsdp == MS_FSDP_OPTIM_GRADS_PARAMS) return *word = layout->pp > 1 ? "always" : "default", TRUE;
  if (fsdp == MS_FSDP_OPTIM && layout->pp > 1) return *word = "default", TRUE;
  if (fsdp == MS_FSDP_OPTIM_GRADS && layout->pp == 1) return *word = "never", TRUE;
  return REFUSE(f, "options.fsdp",
                "is %s: TorchTitan reduces gradients behind the last microbatch of a pipeline, else behind each",
                ms_fsdp_words[fsdp]);
}

static gboolean pipeline(Form *f, const MsLayout *layout) {
  const MsLayoutSpec *l = &f->s->layout;
  if (layout->pp == 1) return TRUE;
  gboolean two = ms_schedule_row(l->schedule)->placement != MS_PLACE_ROUND_ROBIN;
  const char *name = ms_titan_schedule(l->schedule, !two && l->vpp > 1);
  int stages = layout->pp * (two ? 2 : l->vpp), layers = f->s->model->num_layers;
  gboolean embedding = l->account_for_embedding_in_pipeline_split, loss = l->account_for_loss_in_pipeline_split;
  if (!name) return REFUSE(f, "layout.schedule", "is %s, which TorchTitan has not", ms_schedule_words[l->schedule]);
  if (l->decoder_first_pipeline_num_layers > 0 || l->decoder_last_pipeline_num_layers > 0)
    return REFUSE(f, "layout.decoder_first_pipeline_num_layers",
                  "and decoder_last_pipeline_num_layers have no argument of TorchTitan");
  if (l->pipeline_layout) {
    g_autofree char *own = NULL;
    for (int way = 0; way < 4; way++) { /* which of the ends TorchTitan counts */
      g_free(own);
      embedding = !(way & 1), loss = !(way & 2);
      own = ms_titan_split(layers, stages, embedding, loss);
      if (own && ms_titan_same_split(own, l->pipeline_layout)) break;
      g_clear_pointer(&own, g_free);
    }
    if (!own)
      return REFUSE(f, "layout.pipeline_layout", "is \"%s\": TorchTitan splits layers evenly", l->pipeline_layout);
  }
  int counted = layers + embedding + loss;
  g_string_append_printf(f->out,
                         "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %d\n"
                         "pipeline_parallel_layers_per_stage = %d\npipeline_parallel_first_stage_less_layers = %d\n"
                         "pipeline_parallel_last_stage_less_layers = %d\n",
                         name, f->s->training.micro_batch_size, (counted + stages - 1) / stages, embedding, loss);
  return TRUE;
}

static const char *rotation(MsCpKeys keys) {
  switch (keys) {
  case MS_CP_KEYS_ARE_GATHERED: return "allgather";
  case MS_CP_KEYS_GO_ROUND:
  case MS_CP_KEYS_STAY: break; /* of heads that are exchanged, which TorchTitan does not do */
  }
  return "alltoall";
}

static gboolean parallelism(Form *f, const MsLayout *layout) {
  const MsOptions *o = &f->s->options;
  const MsLayoutSpec *l = &f->s->layout;
  const char *word = NULL;
  int instances = o->num_distributed_optimizer_instances;
  if (!reshard(f, layout, &word)) return FALSE;
  if (layout->tp > 1 && !layout->sequence_parallel)
    return REFUSE(f, "options.sequence_parallel", "is false: TorchTitan's tensor parallelism has it on");
  if (layout->dp % instances)
    return REFUSE(f, "options.num_distributed_optimizer_instances", "%d do not divide %d data-parallel ranks",
                  instances, layout->dp);
  const MsCpCommRow *keys = ms_cp_comm_row(l->cp_comm_type);
  if (layout->cp > 1 && keys->heads != MS_CP_HEADS_STAY)
    return REFUSE(f, "layout.cp_comm_type", "is %s: TorchTitan has p2p (alltoall) and all_gather",
                  ms_cp_comm_words[l->cp_comm_type]);
  g_string_append_printf(f->out,
                         "\n[parallelism]\ndata_parallel_replicate_degree = %d\ndata_parallel_shard_degree = %d\n"
                         "fsdp_reshard_after_forward = \"%s\"\ntensor_parallel_degree = %d\n"
                         "enable_async_tensor_parallel = %s\ncontext_parallel_degree = %d\n"
                         "context_parallel_rotate_method = \"%s\"\npipeline_parallel_degree = %d\n",
                         instances, layout->dp / instances, word, layout->tp, boolean(o->tp_comm_overlap), layout->cp,
                         rotation(keys->keys), layout->pp);
  const MsDispatcherRow *dispatcher = ms_dispatcher(o);
  if (f->s->model->num_experts > 0 && !dispatcher->launch_titan)
    return REFUSE(f, "options.dispatcher", "is %s, which TorchTitan does not have", dispatcher->word);
  if (f->s->model->num_experts > 0)
    g_string_append_printf(f->out,
                           "expert_parallel_degree = %d\nexpert_tensor_parallel_degree = %d\n"
                           "expert_parallel_comm_backend = \"%s\"\n",
                           layout->ep, layout->etp, dispatcher->launch_titan);
  return pipeline(f, layout);
}

char *ms_titan_text(const MsScenario *scenario, GError **error) {
  g_autoptr(GString) out = g_string_new(NULL);
  Form f = {.s = scenario, .out = out, .error = error};
  if (scenario->framework != MS_FRAMEWORK_TORCHTITAN) {
    REFUSE(&f, "framework", "is %s, this form starts torchtitan", ms_framework(scenario)->word);
    return NULL;
  }
  g_autoptr(MsLayout) layout =
      ms_launch_starts(scenario, MS_FRAMEWORK_TORCHTITAN, error) ? ms_layout_new_or_error(scenario, error) : NULL;
  if (!layout) return NULL;
  head(&f);
  if (!model(&f) || !training(&f, layout) || !parallelism(&f, layout) || !checkpointing(&f, layout)) return NULL;
  return g_string_free(g_steal_pointer(&out), FALSE);
}
