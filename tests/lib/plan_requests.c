#include "lib/plan_requests.h"

#include "base/err.h"
#include "lib/close.h"
#include "lib/world.h"
#include "plan/plan.h"
#include "plan/space_priv.h"

#include <string.h>

const MsSmallRequest ms_small_requests[] = {
    {"llama on 8 H100", "\"llama3-8b\"", "h100-sxm", 8, 8192, 64,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"", "", ""},
    {"llama in three precisions", "{\"base\": \"llama3-70b\", \"num_layers\": 16}", "b200-sxm", 16, 8192, 64,
     "\"precision\": \"auto\", \"micro_batch_size\": 1",
     "\"tp\": [1, 2, 4, 8], \"cp\": [1, 2], \"pp\": [1, 2, 4], \"vpp\": [1, 2]", ""},
    {"llama with recompute", "{\"base\": \"llama3-70b\", \"num_layers\": 20}", "h100-sxm", 16, 8192, 32,
     "\"micro_batch_size\": \"auto\", \"precision\": \"bf16\"",
     "\"tp\": [2, 4, 8], \"cp\": 1, \"vpp\": {\"from\": 1, \"to\": 5}", "\"recompute\": \"auto\","},
    {"gpt on A100, uneven", "{\"base\": \"gpt3-175b\", \"num_layers\": 22}", "a100-sxm-80g", 32, 2048, 64,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"", "\"tp\": [4, 8], \"cp\": 1",
     "\"sequence_parallel\": null,"},
    {"mixtral, every dispatcher", "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "h100-sxm", 16, 4096, 64,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"etp\": [1, 2]",
     "\"dispatcher\": \"auto\","},
    {"mixtral on A100", "{\"base\": \"mixtral-8x22b\", \"num_layers\": 8}", "a100-sxm-80g", 32, 4096, 64,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": [1, 2, 4], \"cp\": 1, \"vpp\": [1, 2], \"etp\": 1",
     "\"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"full\"}],"},
    {"qwen3 on H100", "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 12}", "h100-sxm", 16, 4096, 128,
     "\"micro_batch_size\": [1, 2, 4], \"precision\": \"bf16\"",
     "\"cp\": 1, \"etp\": 1, \"tp\": [1, 2], \"vpp\": [1, 2, 3]", "\"recompute\": \"auto\","},
    {"qwen3 on long context", "{\"base\": \"qwen3-235b-a22b\", \"num_layers\": 8}", "h200-sxm", 32, 32768, 32,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": [1, 2, 4], \"cp\": [1, 2, 4], \"pp\": [1, 2], \"vpp\": 1, \"etp\": 1",
     "\"dispatcher\": [\"alltoall\", \"deepep\"],"},
    {"deepseek-v3 with mtp on GB200",
     "{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\"}", "gb200-nvl72", 32, 4096,
     128, "\"micro_batch_size\": [1, 2], \"precision\": \"mxfp8\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2], \"ep\": [8, 16, 32], \"etp\": 1",
     "\"dispatcher\": \"hybridep\", \"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"selective\", "
     "\"modules\": [\"mla_up_proj\", \"mlp\"]}],"},
    {"deepseek-v3 on H800",
     "{\"base\": \"deepseek-v3\", \"num_layers\": 10, \"moe_layer_freq\": \"[0]*2+[1]*8\", \"mtp_num_layers\": 0}",
     "h800-sxm", 64, 4096, 256, "\"micro_batch_size\": 1, \"precision\": \"fp8-blockwise\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2, 4, 5], \"vpp\": [1, 2], \"ep\": [8, 16, 32], \"etp\": 1",
     "\"dispatcher\": [\"deepep\", \"alltoall\"], \"recompute\": \"auto\","},
    {"deepseek-v2-lite, gpipe and 1f1b",
     "{\"base\": \"deepseek-v2-lite\", \"num_layers\": 12, \"moe_layer_freq\": \"[0]*1+[1]*11\"}", "h100-sxm", 8, 4096,
     64, "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": 1, \"cp\": 1, \"etp\": 1, \"vpp\": [1, 2], \"schedule\": [\"1f1b\", \"gpipe\"]", ""},
    {"gpt-oss with windows", "{\"base\": \"gpt-oss-20b\", \"num_layers\": 12, \"moe_layer_freq\": \"[1]*12\"}",
     "b200-sxm", 8, 4096, 64, "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"cp\": 1, \"tp\": [1, 2], \"etp\": 1, \"vpp\": [1, 2]", ""},
    {"qwen2 with shared experts", "{\"base\": \"qwen2-57b-a14b\", \"num_layers\": 8}", "mi300x", 16, 4096, 64,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"", "\"cp\": 1, \"tp\": [1, 2], \"etp\": 1, \"vpp\": [1, 2]",
     ""},
    {"kimi-k2, memory is short", "{\"base\": \"kimi-k2\", \"num_layers\": 6, \"moe_layer_freq\": \"[0]*1+[1]*5\"}",
     "h100-sxm", 64, 4096, 128, "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2, 3], \"vpp\": 1, \"etp\": [1, 2]", "\"recompute\": \"auto\","},
    {"mixtral, overlap and graphs", "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "h100-sxm", 16, 4096, 64,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2], \"etp\": 1, \"ep\": [4, 8]",
     "\"ep_overlap\": \"auto\", \"delay_wgrad\": \"auto\", \"cuda_graph_scope\": \"auto\","},
    {"llama, sharded in every way", "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "h100-sxm", 8, 4096, 32,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"", "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1",
     "\"fsdp\": \"auto\", \"distributed_optimizer\": \"auto\","},
    {"llama, every schedule", "{\"base\": \"llama3-8b\", \"num_layers\": 16}", "h100-sxm", 8, 4096, 32,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [2, 4], \"vpp\": [1, 2], \"schedule\": \"auto\"", ""},
    {"llama, context in every way", "{\"base\": \"llama3-8b\", \"num_layers\": 4}", "h100-sxm", 16, 32768, 16,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": [1, 2, 4], \"pp\": [1, 2], \"vpp\": 1, \"cp_comm_type\": \"auto\", \"order\": \"auto\"",
     ""},
    {"llama, groups of microbatches", "{\"base\": \"llama3-8b\", \"num_layers\": 16}", "h100-sxm", 8, 4096, 64,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2, 4], "
     "\"microbatch_group_size_per_virtual_pipeline_stage\": \"auto\"",
     ""},
    {"llama, offloaded", "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "h100-sxm", 8, 4096, 16,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1",
     "\"offload_modules\": \"auto\", \"optimizer_offload_fraction\": \"auto\", \"offload_optimizer_states\": "
     "\"auto\","},
    {"llama, overlap of gradients", "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "a100-sxm-80g", 16, 4096, 32,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2]",
     "\"overlap_grad_reduce\": \"auto\", \"overlap_param_gather\": \"auto\", \"overlap_p2p_comm\": \"auto\","},
    {"llama, tensor overlap", "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "h100-sxm", 8, 4096, 32,
     "\"micro_batch_size\": [1, 2], \"precision\": [\"bf16\", \"fp8-tensorwise\"]",
     "\"cp\": 1, \"pp\": [1, 2], \"vpp\": 1", "\"tp_comm_overlap\": \"auto\", \"sequence_parallel\": [true, false],"},
    {"llama, groups of layers recomputed", "{\"base\": \"llama3-8b\", \"num_layers\": 12}", "h100-sxm", 8, 8192, 32,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2]",
     "\"recompute\": [{\"granularity\": \"full\", \"num_layers\": 3}, {\"granularity\": \"full\", \"method\": "
     "\"block\", \"num_layers\": 2}, {\"granularity\": \"none\"}],"},
    {"llama, whole layers offloaded", "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "h100-sxm", 8, 8192, 16,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"tp\": [1, 2, 4], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1",
     "\"cpu_offloading_num_layers\": [0, 2, 4], \"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": "
     "\"full\"}],"},
    {"llama, first layers in BF16", "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "b200-sxm", 8, 4096, 32,
     "\"micro_batch_size\": 1, \"precision\": [\"bf16\", \"mxfp8\"]",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2]",
     "\"num_layers_at_start_in_bf16\": [0, 1], \"num_layers_at_end_in_bf16\": [0, 1],"},
    {"deepseek-v3 both ways",
     "{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\", \"mtp_num_layers\": 0}",
     "h200-sxm", 32, 4096, 256, "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": 1, \"cp\": 1, \"pp\": [2, 4], \"vpp\": [1, 2], \"ep\": [8, 16], \"etp\": 1, \"schedule\": [\"1f1b\", "
     "\"dualpipe\", \"dualpipev\"]",
     "\"dispatcher\": \"auto\", \"ep_overlap\": \"auto\", \"recompute\": [{\"granularity\": \"none\"}, "
     "{\"granularity\": \"selective\", \"modules\": [\"moe_act\"]}],"},
    {"qwen3 in NVFP4", "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 8}", "b200-sxm", 16, 4096, 64,
     "\"micro_batch_size\": \"auto\", \"precision\": \"auto\"",
     "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1, \"ep\": [8, 16], \"etp\": 1", ""},
    {"mixtral, hybrid sharding", "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "h100-sxm", 32, 4096, 64,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1, \"etp\": 1, \"ep\": [4, 8]",
     "\"num_distributed_optimizer_instances\": [1, 2], \"exp_avg_dtype\": [\"fp32\", \"bf16\"],"},
    {"llama, its stages given", "{\"base\": \"llama3-8b\", \"num_layers\": 10}", "h100-sxm", 8, 4096, 32,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [2, 4], \"vpp\": 1, \"pipeline_layout\": [\"Et*5|t*5L\", \"Ett|t*3|t*3|ttL\", "
     "\"Et|t*4|t*4|tL\"]",
     ""},
    {"gpt, the embedding counted", "{\"base\": \"gpt3-175b\", \"num_layers\": 14}", "a100-sxm-80g", 32, 2048, 64,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": [4, 8], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2], \"account_for_embedding_in_pipeline_split\": "
     "[true, false], \"account_for_loss_in_pipeline_split\": [true, false]",
     ""},
    {"llama with adapters", "{\"base\": \"llama3-70b\", \"num_layers\": 16}", "h100-sxm", 16, 8192, 32,
     "\"micro_batch_size\": [1, 2], \"precision\": \"fp8-delayed\", \"lora\": {\"rank\": 8, \"dropout\": 0.1}",
     "\"tp\": [1, 2, 4, 8], \"cp\": [1, 2], \"vpp\": [1, 2]",
     "\"fp8_param_gather\": [true, false], \"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"full\"}],"},
};

const guint ms_n_small_requests = G_N_ELEMENTS(ms_small_requests);

MsRequest *ms_small_request_gpus(const MsSmallRequest *r, const char *gpus) {
  g_autofree char *text =
      g_strdup_printf("{\"name\": \"%s\", \"model\": %s, \"hardware\": \"%s\", \"gpus\": %s, "
                      "\"training\": {\"seq_length\": %d, \"global_batch_size\": %d, %s}, "
                      "\"layout\": {%s}, \"options\": {%s\"cross_entropy_fusion\": true}}",
                      r->name, r->model, r->hardware, gpus, r->seq, r->batch, r->training, r->layout, r->options);
  return ms_test_request_of(text);
}

MsRequest *ms_small_request(const MsSmallRequest *r) {
  g_autofree char *gpus = g_strdup_printf("%d", r->gpus);
  return ms_small_request_gpus(r, gpus);
}

MsPlan *ms_small_plan(const MsRequest *request, gboolean prune, int threads, int top) {
  GError *error = NULL;
  MsPlan *found = ms_plan(request, &(MsPlanOptions){.top = top, .prune = prune, .threads = threads}, &error);
  if (!found) fail_msg("%s: %s", request->base->name, error->message);
  return found;
}

void ms_assert_same_plans(const MsRequest *request, const MsPlan *a, const MsPlan *b) {
  if (a->n_best != b->n_best) fail_msg("%s: %d and %d layouts", request->base->name, a->n_best, b->n_best);
  for (int i = 0; i < a->n_best; i++) {
    g_autofree char *x = ms_scenario_text(a->best[i].scenario, 0), *y = ms_scenario_text(b->best[i].scenario, 0);
    if (a->best[i].result->step_time_s != b->best[i].result->step_time_s || strcmp(x, y))
      fail_msg("%s: place %d is %s (%.9g s) or %s (%.9g s)", request->base->name, i + 1, a->best[i].scenario->name,
               a->best[i].result->step_time_s, b->best[i].scenario->name, b->best[i].result->step_time_s);
  }
}

static guint64 refused(const MsPlan *p) {
  guint64 n = 0;
  for (int i = 0; i < p->n_refusals; i++) n += p->refusals[i].count;
  return n;
}

static const MsRule *rule_named(const char *name) {
  for (int i = 0; i < ms_num_rules; i++)
    if (!strcmp(ms_rules[i].name, name)) return &ms_rules[i];
  return NULL;
}

void ms_assert_counts(const MsRequest *request, const MsPlan *p, double space) {
  assert_close((double)p->searched, space, 0); /* every candidate is looked at */
  guint64 by_rule = 0;
  for (int i = 0; i < p->n_refusals; i++) {
    const MsPlanRefusal *r = &p->refusals[i];
    assert_true(r->count > 0 && r->example && *r->example);
    if (rule_named(r->name)) by_rule += r->count;
    else if (!strcmp(r->name, "same-as-another")) by_rule += r->count;
    else if (strcmp(r->name, "memory")) fail_msg("%s: refused by \"%s\": %s", request->base->name, r->name, r->example);
    if (i > 0) assert_true(p->refusals[i - 1].count >= r->count);
  }
  assert_int_equal(p->searched, p->valid + by_rule);
  assert_int_equal(p->searched, refused(p) + p->pruned + p->simulated);
  assert_true(p->simulated <= p->feasible &&
              p->feasible <= p->pruned + p->simulated); /* what was cut early was not looked at that closely */
  assert_true((guint64)p->n_best <= p->simulated);
}

void ms_assert_list(const MsRequest *request, const MsPlan *p) {
  for (int i = 0; i < p->n_best; i++) {
    const MsPlanEntry *e = &p->best[i];
    assert_true(e->result->feasible);
    assert_int_equal(e->result->fidelity, MS_FIDELITY_FULL);
    if (e->result->step_time_lower_s > e->result->step_time_s)
      fail_msg("%s: %s: bound %.9g s above %.9g s", request->base->name, e->scenario->name,
               e->result->step_time_lower_s, e->result->step_time_s);
    for (int s = 0; s < e->result->stages; s++) assert_true(e->result->memory->stage[s].device_B <= p->memory_limit_B);
    if (i > 0) assert_true(p->best[i - 1].result->step_time_s <= e->result->step_time_s);
    MsRefusal refusal;
    assert_true(ms_layout_check(e->scenario, &refusal));
    assert_int_equal(e->scenario->gpus, request->base->gpus);
    /* what is printed is what was simulated: the scenario, written and read again, gives the same time */
    g_autofree char *text = ms_scenario_text(e->scenario, 0);
    g_autoptr(MsScenario) again = ms_test_scenario_of(text);
    g_autoptr(MsResult) result = ms_test_simulate(again, MS_FIDELITY_FULL);
    assert_close(result->step_time_s, e->result->step_time_s, 0);
  }
}

void ms_assert_exhaustive(const MsSmallRequest *small) {
  g_autoptr(MsRequest) request = ms_small_request(small);
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  assert_non_null(space);
  double size = ms_space_size(space);
  ms_space_free(space);
  g_autoptr(MsPlan) quick = ms_small_plan(request, TRUE, 1, 10);
  g_autoptr(MsPlan) two = ms_small_plan(request, TRUE, 2, 10);
  g_autoptr(MsPlan) exhaustive = ms_small_plan(request, FALSE, 2, 10);
  if (exhaustive->n_best == 0) fail_msg("%s: nothing feasible", small->name);
  ms_assert_same_plans(request, quick, exhaustive);
  ms_assert_same_plans(request, quick, two);
  assert_int_equal(quick->simulated, two->simulated);
  assert_int_equal(quick->pruned, two->pruned);
  assert_int_equal(quick->screened, two->screened);
  assert_int_equal(exhaustive->pruned, 0);
  assert_int_equal(exhaustive->feasible, exhaustive->simulated);
  assert_true(quick->simulated + quick->pruned >=
              exhaustive->simulated); /* of what was cut, some would not have fitted */
  assert_true(quick->simulated <= exhaustive->simulated);
  ms_assert_counts(request, quick, size);
  ms_assert_counts(request, exhaustive, size);
  ms_assert_list(request, quick);
}
