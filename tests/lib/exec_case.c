#include "lib/exec_case.h"

#include "base/json.h"
#include <string.h>

#include "lib/close.h"
#include "lib/world.h"

const char *const ms_test_exec_models[] = {"dense",     "gpt",    "window",       "moe", "mla",
                                           "mla-input", "latent", "query-latent", NULL};

#define SIZES                                                                                                         \
  "\"num_layers\": 4, \"hidden_size\": 32, \"ffn_hidden_size\": 64, \"num_attention_heads\": 4, \"kv_channels\": 8, " \
  "\"vocab_size\": 128, \"make_vocab_size_divisible_by\": 16"
#define EXPERTS \
  "\"num_experts\": 8, \"moe_router_topk\": 2, \"moe_ffn_hidden_size\": 24, \"moe_layer_freq\": \"[0,1,1,1]\""
static const struct {
  const char *name, *json;
} models[] = {
    {"dense", "\"base\": \"qwen3-8b\", \"num_query_groups\": 2, " SIZES},
    {"gpt", "\"base\": \"gpt-tiny\", \"num_query_groups\": 4, \"seq_length_max\": 32, \"hidden_dropout\": 0, "
            "\"attention_dropout\": 0, " SIZES},
    {"window", "\"base\": \"qwen3-8b\", \"num_query_groups\": 2, \"sliding_window\": {\"window\": 8, \"period\": 2}, "
               "\"softmax_sink\": true, \"tie_embeddings\": true, "
               "\"add_qkv_bias\": true, " SIZES},
    {"moe", "\"base\": \"qwen3-235b-a22b\", \"num_query_groups\": 4, " SIZES ", " EXPERTS},
    {"mla", "\"base\": \"deepseek-v3\", \"num_query_groups\": 4, \"moe_shared_expert_intermediate_size\": 40, "
            "\"moe_router_num_groups\": 0, \"moe_router_group_topk\": 0, "
            "\"mtp_num_layers\": 1, \"multi_latent_attention\": {\"q_lora_rank\": 24, \"kv_lora_rank\": 16, "
            "\"qk_head_dim\": 8, \"qk_pos_emb_head_dim\": 4, \"v_head_dim\": 8}, " SIZES ", " EXPERTS},
    {"mla-input",
     "\"base\": \"deepseek-v2-lite\", \"num_query_groups\": 4, \"moe_shared_expert_intermediate_size\": 40, "
     "\"multi_latent_attention\": {\"q_lora_rank\": null, \"kv_lora_rank\": 16, "
     "\"qk_head_dim\": 8, \"qk_pos_emb_head_dim\": 4, \"v_head_dim\": 8}, " SIZES ", " EXPERTS},
    {"latent", "\"base\": \"qwen3-235b-a22b\", \"num_query_groups\": 4, \"gated\": false, \"activation\": "
               "\"squared_relu\", \"moe_latent_size\": 16, "
               "\"moe_shared_expert_intermediate_size\": 40, " SIZES ", " EXPERTS},
    {"query-latent", "\"base\": \"qwen3-8b\", \"num_query_groups\": 2, \"query_latent_size\": 12, " SIZES},
};

static const char *const text =
    "{\"name\": \"exec\", \"model\": {%s}, \"hardware\": \"h100-sxm\", \"gpus\": 1, \"training\": "
    "{\"seq_length\": 32, \"micro_batch_size\": 1, \"global_batch_size\": 8}, \"options\": "
    "{\"sequence_parallel\": true, \"overlap_grad_reduce\": false, \"overlap_param_gather\": false}}";

MsScenario *ms_test_exec_scenario(const char *model) {
  for (guint i = 0; i < G_N_ELEMENTS(models); i++) {
    if (strcmp(models[i].name, model) != 0) continue;
    g_autofree char *json = g_strdup_printf(text, models[i].json);
    return ms_test_scenario_of(json);
  }
  fail_msg("no model \"%s\"", model);
  return NULL;
}

MsScenario *ms_test_exec_case(const MsExecCase *c) {
  MsScenario *s = ms_test_exec_scenario(c->model);
  s->gpus = MAX(1, c->gpus);
  MsLayoutSpec *l = &s->layout;
  l->tp = MAX(1, c->tp), l->cp = MAX(1, c->cp), l->pp = MAX(1, c->pp), l->vpp = MAX(1, c->vpp), l->ep = MAX(1, c->ep),
  l->etp = MAX(1, c->etp);
  l->schedule = c->schedule, l->cp_comm_type = c->cp_comm;
  MsOptions *o = &s->options;
  o->dispatcher = c->dispatcher;
  if (c->no_sp) o->sequence_parallel = FALSE;
  o->distributed_optimizer = !c->no_distopt;
  o->num_distributed_optimizer_instances = MAX(1, c->instances);
  o->overlap_grad_reduce = c->overlap, o->overlap_param_gather = c->overlap && !c->no_distopt;
  o->ep_overlap = o->delay_wgrad = c->ep_overlap;
  if (c->fsdp) o->fsdp = MS_FSDP_OPTIM;
  o->moe_shared_expert_overlap = c->shared_overlap;
  if (c->unfused) o->attention_backend = MS_ATTN_UNFUSED;
  if (c->te_loss) o->cross_entropy_fusion_impl = MS_CE_TE;
  if (c->natural) s->training.routing.kind = MS_ROUTING_NATURAL;
  if (c->no_fusion) o->gradient_accumulation_fusion = o->moe_permute_fusion = FALSE;
  if (c->recompute)
    o->recompute = (MsRecomputeSpec){.granularity = c->recompute == ~0u ? MS_RECOMPUTE_FULL : MS_RECOMPUTE_SELECTIVE,
                                     .modules = c->recompute == ~0u ? 0 : c->recompute,
                                     .num_layers = 1};
  return s;
}
