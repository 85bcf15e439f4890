/* The planner: pruned and exhaustive searches agree on the whole list, threads do not matter, counts add up, refusals have names. */
#include "lib/close.h"

#include "base/err.h"
#include "plan/plan_priv.h"

#include <string.h>

/* A request: what differs from one to the next, the rest is the same. */
typedef struct { const char *name, *model, *hardware; int gpus, seq, batch; const char *training, *layout, *options; } Small;

static const Small requests[] = {
    {"llama on 8 H100", "\"llama3-8b\"", "h100-sxm", 8, 8192, 64, "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"", "", ""},
    {"llama in three precisions", "{\"base\": \"llama3-70b\", \"num_layers\": 16}", "b200-sxm", 16, 8192, 64, "\"precision\": \"auto\", \"micro_batch_size\": 1",
     "\"tp\": [1, 2, 4, 8], \"cp\": [1, 2], \"pp\": [1, 2, 4], \"vpp\": [1, 2]", ""},
    {"llama with recompute", "{\"base\": \"llama3-70b\", \"num_layers\": 20}", "h100-sxm", 16, 8192, 32, "\"micro_batch_size\": \"auto\", \"precision\": \"bf16\"",
     "\"tp\": [2, 4, 8], \"cp\": 1, \"vpp\": {\"from\": 1, \"to\": 5}", "\"recompute\": \"auto\","},
    {"gpt on A100, uneven", "{\"base\": \"gpt3-175b\", \"num_layers\": 22}", "a100-sxm-80g", 32, 2048, 64, "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": [4, 8], \"cp\": 1", "\"sequence_parallel\": null,"},
    {"mixtral, every dispatcher", "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "h100-sxm", 16, 4096, 64, "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"etp\": [1, 2]", "\"dispatcher\": \"auto\","},
    {"mixtral on A100", "{\"base\": \"mixtral-8x22b\", \"num_layers\": 8}", "a100-sxm-80g", 32, 4096, 64, "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": [1, 2, 4], \"cp\": 1, \"vpp\": [1, 2], \"etp\": 1", "\"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"full\"}],"},
    {"qwen3 on H100", "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 12}", "h100-sxm", 16, 4096, 128, "\"micro_batch_size\": [1, 2, 4], \"precision\": \"bf16\"",
     "\"cp\": 1, \"etp\": 1, \"tp\": [1, 2], \"vpp\": [1, 2, 3]", "\"recompute\": \"auto\","},
    {"qwen3 on long context", "{\"base\": \"qwen3-235b-a22b\", \"num_layers\": 8}", "h200-sxm", 32, 32768, 32, "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": [1, 2, 4], \"cp\": [1, 2, 4], \"pp\": [1, 2], \"vpp\": 1, \"etp\": 1", "\"dispatcher\": [\"alltoall\", \"deepep\"],"},
    {"deepseek-v3 with mtp on GB200", "{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\"}", "gb200-nvl72", 32, 4096, 128,
     "\"micro_batch_size\": [1, 2], \"precision\": \"mxfp8\"", "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2], \"ep\": [8, 16, 32], \"etp\": 1",
     "\"dispatcher\": \"hybridep\", \"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"selective\", \"modules\": [\"mla_up_proj\", \"mlp\"]}],"},
    {"deepseek-v3 on H800", "{\"base\": \"deepseek-v3\", \"num_layers\": 10, \"moe_layer_freq\": \"[0]*2+[1]*8\", \"mtp_num_layers\": 0}", "h800-sxm", 64, 4096, 256,
     "\"micro_batch_size\": 1, \"precision\": \"fp8-blockwise\"", "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2, 4, 5], \"vpp\": [1, 2], \"ep\": [8, 16, 32], \"etp\": 1",
     "\"dispatcher\": [\"deepep\", \"alltoall\"], \"recompute\": \"auto\","},
    {"deepseek-v2-lite, gpipe and 1f1b", "{\"base\": \"deepseek-v2-lite\", \"num_layers\": 12, \"moe_layer_freq\": \"[0]*1+[1]*11\"}", "h100-sxm", 8, 4096, 64,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"", "\"tp\": 1, \"cp\": 1, \"etp\": 1, \"vpp\": [1, 2], \"schedule\": [\"1f1b\", \"gpipe\"]", ""},
    {"gpt-oss with windows", "{\"base\": \"gpt-oss-20b\", \"num_layers\": 12, \"moe_layer_freq\": \"[1]*12\"}", "b200-sxm", 8, 4096, 64,
     "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"", "\"cp\": 1, \"tp\": [1, 2], \"etp\": 1, \"vpp\": [1, 2]", ""},
    {"qwen2 with shared experts", "{\"base\": \"qwen2-57b-a14b\", \"num_layers\": 8}", "mi300x", 16, 4096, 64, "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"cp\": 1, \"tp\": [1, 2], \"etp\": 1, \"vpp\": [1, 2]", ""},
    {"kimi-k2, memory is short", "{\"base\": \"kimi-k2\", \"num_layers\": 6, \"moe_layer_freq\": \"[0]*1+[1]*5\"}", "h100-sxm", 64, 4096, 128,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2, 3], \"vpp\": 1, \"etp\": [1, 2]", "\"recompute\": \"auto\","},
};

static MsRequest *request_of(const Small *r) {
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"name\": \"%s\", \"model\": %s, \"hardware\": \"%s\", \"gpus\": %d, \"training\": {\"seq_length\": %d, \"global_batch_size\": %d, "
      "\"routing\": \"balanced\", %s}, \"layout\": {%s}, \"options\": {%s%s%s\"ep_overlap\": false, \"delay_wgrad\": false, \"overlap_grad_reduce\": true, "
      "\"overlap_param_gather\": true, \"tp_comm_overlap\": false, %s\"offload_modules\": [], \"optimizer_offload_fraction\": 0, \"cuda_graph_scope\": [], "
      "\"distributed_optimizer\": true, \"fsdp\": \"none\", \"main_grads_dtype\": \"fp32\", \"grad_reduce_dtype\": \"fp32\", \"exp_avg_dtype\": \"fp32\", "
      "\"exp_avg_sq_dtype\": \"fp32\", \"fp8_param_gather\": false, \"cross_entropy_fusion\": true}}",
      r->name, r->model, r->hardware, r->gpus, r->seq, r->batch, r->training, r->layout, r->options,
      strstr(r->options, "dispatcher") ? "" : "\"dispatcher\": \"alltoall\", ", strstr(r->options, "sequence_parallel") ? "" : "\"sequence_parallel\": null, ",
      strstr(r->options, "\"recompute\"") ? "" : "\"recompute\": {\"granularity\": \"none\"}, ");
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "request", &error);
  MsRequest *request = doc ? ms_request_from_doc(doc, &error) : NULL;
  if (!request) fail_msg("%s: %s", r->name, error->message);
  return request;
}

static MsPlan *plan(const MsRequest *request, gboolean prune, int threads, int top) {
  GError *error = NULL;
  MsPlan *found = ms_plan(request, &(MsPlanOptions){.top = top, .prune = prune, .threads = threads}, &error);
  if (!found) fail_msg("%s: %s", request->base->name, error->message);
  return found;
}

static char *scenario_text(const MsScenario *s) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(s, NULL, out);
  return ms_json_out_take(out);
}

static void assert_same_list(const MsRequest *request, const MsPlan *a, const MsPlan *b) {
  if (a->n_best != b->n_best) fail_msg("%s: %d and %d layouts", request->base->name, a->n_best, b->n_best);
  for (int i = 0; i < a->n_best; i++) {
    g_autofree char *x = scenario_text(a->best[i].scenario), *y = scenario_text(b->best[i].scenario);
    if (a->best[i].result->step_time_s != b->best[i].result->step_time_s || strcmp(x, y))
      fail_msg("%s: place %d is %s (%.9g s) or %s (%.9g s)", request->base->name, i + 1, a->best[i].scenario->name, a->best[i].result->step_time_s,
               b->best[i].scenario->name, b->best[i].result->step_time_s);
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

static void check_counts(const MsRequest *request, const MsPlan *p) {
  g_autoptr(GError) error = NULL;
  MsSpace *space = ms_space_new(request, &error);
  assert_non_null(space);
  assert_close((double)p->searched, ms_space_size(space), 0); /* every candidate is looked at */
  ms_space_free(space);
  guint64 by_rule = 0;
  for (int i = 0; i < p->n_refusals; i++) {
    const MsPlanRefusal *r = &p->refusals[i];
    assert_true(r->count > 0 && r->example && *r->example);
    if (rule_named(r->name)) by_rule += r->count;
    else if (strcmp(r->name, "memory")) fail_msg("%s: refused by \"%s\": %s", request->base->name, r->name, r->example);
    if (i > 0) assert_true(p->refusals[i - 1].count >= r->count);
  }
  assert_int_equal(p->searched, p->valid + by_rule);
  assert_int_equal(p->searched, refused(p) + p->pruned + p->simulated);
  assert_true(p->simulated <= p->feasible && p->feasible <= p->pruned + p->simulated); /* what was cut early was not looked at that closely */
  assert_true((guint64)p->n_best <= p->simulated);
}

static void check_list(const MsRequest *request, const MsPlan *p) {
  for (int i = 0; i < p->n_best; i++) {
    const MsPlanEntry *e = &p->best[i];
    assert_true(e->result->feasible);
    assert_int_equal(e->result->fidelity, MS_FIDELITY_FULL);
    assert_true(e->result->step_time_lower_s <= e->result->step_time_s);
    for (int s = 0; s < e->result->stages; s++) assert_true(e->result->memory->stage[s].device_B <= p->memory_limit_B);
    if (i > 0) assert_true(p->best[i - 1].result->step_time_s <= e->result->step_time_s);
    MsRefusal refusal;
    assert_true(ms_layout_check(e->scenario, &refusal));
    assert_int_equal(e->scenario->gpus, request->base->gpus);
    /* what is printed is what was simulated: the scenario, written and read again, gives the same time */
    g_autofree char *text = scenario_text(e->scenario);
    g_autoptr(GError) error = NULL;
    g_autoptr(MsJson) doc = ms_json_parse(text, -1, "best", &error);
    g_autoptr(MsScenario) again = doc ? ms_scenario_from_doc(doc, &error) : NULL;
    if (!again) fail_msg("%s: %s", request->base->name, error->message);
    g_autoptr(MsResult) result = ms_simulate(again, MS_FIDELITY_FULL, NULL, &error);
    assert_non_null(result);
    assert_close(result->step_time_s, e->result->step_time_s, 0);
  }
}

static void pruned_list_is_the_exhaustive_list(void **state) {
  (void)state;
  guint64 pruned = 0, simulated = 0, all = 0;
  for (guint i = 0; i < G_N_ELEMENTS(requests); i++) {
    g_autoptr(MsRequest) request = request_of(&requests[i]);
    g_autoptr(MsPlan) quick = plan(request, TRUE, 1, 10);
    g_autoptr(MsPlan) two = plan(request, TRUE, 2, 10);
    g_autoptr(MsPlan) exhaustive = plan(request, FALSE, 2, 10);
    if (exhaustive->n_best == 0) fail_msg("%s: nothing feasible", requests[i].name);
    assert_same_list(request, quick, exhaustive);
    assert_same_list(request, quick, two);
    assert_int_equal(quick->simulated, two->simulated);
    assert_int_equal(quick->pruned, two->pruned);
    assert_int_equal(exhaustive->pruned, 0);
    assert_int_equal(exhaustive->feasible, exhaustive->simulated);
    check_counts(request, quick);
    check_counts(request, exhaustive);
    check_list(request, quick);
    pruned += quick->pruned, simulated += quick->simulated, all += exhaustive->simulated;
  }
  print_message("%u requests: %" G_GUINT64_FORMAT " simulated instead of %" G_GUINT64_FORMAT "\n", (guint)G_N_ELEMENTS(requests), simulated, all);
  assert_true(simulated + pruned >= all); /* of what was cut, some would not have fitted */
  assert_true(simulated < all);
}

/* The winner does not depend on how many are kept, though less is simulated for fewer. */
static void fewer_kept_is_a_prefix(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(requests); i += 3) {
    g_autoptr(MsRequest) request = request_of(&requests[i]);
    g_autoptr(MsPlan) ten = plan(request, TRUE, 2, 10);
    g_autoptr(MsPlan) one = plan(request, TRUE, 2, 1);
    assert_int_equal(one->n_best, 1);
    assert_true(one->simulated <= ten->simulated);
    g_autofree char *x = scenario_text(one->best[0].scenario), *y = scenario_text(ten->best[0].scenario);
    assert_string_equal(x, y);
  }
}

static void nothing_fits(void **state) {
  (void)state;
  const Small r = {"too large", "\"deepseek-v3\"", "h100-sxm", 8, 4096, 8, "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"cp\": 1", ""};
  g_autoptr(MsRequest) request = request_of(&r);
  g_autoptr(MsPlan) p = plan(request, TRUE, 2, 10);
  assert_int_equal(p->n_best, 0);
  assert_int_equal(p->feasible, 0);
  gboolean memory = FALSE;
  for (int i = 0; i < p->n_refusals; i++) memory |= !strcmp(p->refusals[i].name, "memory");
  assert_true(memory);
  check_counts(request, p);
}

/* A setting that the request closes is not opened by the planner. */
static void what_is_given_stays(void **state) {
  (void)state;
  const Small r = {"given", "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "h100-sxm", 8, 8192, 16, "\"micro_batch_size\": 2, \"precision\": \"bf16\"",
                   "\"tp\": 2, \"cp\": 1, \"pp\": [1, 2]", "\"sequence_parallel\": false,"};
  g_autoptr(MsRequest) request = request_of(&r);
  g_autoptr(MsPlan) p = plan(request, TRUE, 1, 10);
  assert_true(p->n_best > 0);
  for (int i = 0; i < p->n_best; i++) {
    assert_int_equal(p->best[i].scenario->layout.tp, 2);
    assert_int_equal(p->best[i].scenario->layout.cp, 1);
    assert_int_equal(p->best[i].scenario->training.micro_batch_size, 2);
    assert_true(p->best[i].scenario->options.sequence_parallel == FALSE);
  }
}

static void auto_without_candidates_is_an_error(void **state) {
  (void)state;
  const Small r = {"no auto", "\"llama3-8b\"", "h100-sxm", 8, 8192, 16, "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"cp_comm_type\": \"auto\"", ""};
  g_autoptr(MsRequest) request = request_of(&r);
  GError *error = NULL;
  assert_null(ms_plan(request, &(MsPlanOptions){.top = 1, .prune = TRUE, .threads = 1}, &error));
  assert_int_equal(error->code, MS_ERROR_INPUT);
  assert_non_null(strstr(error->message, "layout.cp_comm_type"));
  g_error_free(error);
}

/* --- pieces -------------------------------------------------------------------------------------------------------------------------- */
static void partitions_are_balanced(void **state) {
  (void)state;
  int counts[64];
  for (int layers = 4; layers <= 96; layers += 7)
    for (int stages = 2; stages <= MIN(32, layers); stages++) {
      if (!ms_partition(layers, stages, 0.3, 0.8, counts)) continue;
      int sum = 0, most = 0, least = layers;
      for (int i = 0; i < stages; i++) sum += counts[i];
      for (int i = 1; i + 1 < stages; i++) most = MAX(most, counts[i]), least = MIN(least, counts[i]);
      assert_int_equal(sum, layers);
      if (stages > 2) assert_true(most - least <= 1);
      assert_true(counts[0] <= most + 1 || stages == 2);
      g_autofree char *text = ms_partition_text(counts, stages, 1);
      int chunks;
      char why[128];
      MsChunk *chunk = ms_pipeline_layout_parse(text, &chunks, why, sizeof why);
      if (!chunk) fail_msg("%s: %s", text, why);
      assert_int_equal(chunks, stages);
      for (int i = 0; i < stages; i++) assert_int_equal(chunk[i].num_layers, counts[i]);
      assert_int_equal(chunk[stages - 1].num_mtp, 1);
      g_free(chunk);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pruned_list_is_the_exhaustive_list), cmocka_unit_test(fewer_kept_is_a_prefix), cmocka_unit_test(nothing_fits),
      cmocka_unit_test(what_is_given_stays), cmocka_unit_test(auto_without_candidates_is_an_error), cmocka_unit_test(partitions_are_balanced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
