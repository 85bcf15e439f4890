/* Models, machines, scenarios and requests as they come out of files. */
#include "lib/close.h"

#include "base/err.h"
#include "describe/moe_freq.h"
#include "describe/scenario.h"
#include "lib/data.h"

#include <string.h>

#define TRY(expression)                                                      \
  do {                                                                       \
    error = NULL;                                                            \
    if (!(expression)) fail_msg("%s", error ? error->message : #expression); \
  } while (0)

static GError *error;

static MsModel *model_of(const char *json) {
  MsJson *doc = ms_json_parse(json, -1, "f", &error);
  assert_non_null(doc);
  error = NULL;
  MsModel *model = ms_model_from_json(doc, ms_json_root(doc), "model", &error);
  ms_json_free(doc);
  return model;
}

static MsScenario *scenario_of(const char *json) {
  error = NULL;
  MsJson *doc = ms_json_parse(json, -1, "f", &error);
  MsScenario *scenario = doc ? ms_scenario_from_doc(doc, &error) : NULL;
  ms_json_free(doc);
  return scenario;
}

/* --- models ------------------------------------------------------------------------------------------------------- */
static void dense_model(void **state) {
  (void)state;
  MsModel *m;
  TRY(m = ms_model_load("tiny", &error));
  assert_string_equal(m->name, "tiny");
  assert_int_equal(m->num_query_groups, 8);
  assert_int_equal(m->kv_channels, 64);
  assert_int_equal(m->activation, MS_ACT_GELU);
  assert_int_equal(m->position_embedding, MS_POS_LEARNED);
  assert_false(m->gated);
  assert_false(ms_model_has_mla(m));
  for (int i = 0; i < m->num_layers; i++) assert_int_equal(m->moe_layer[i], 0);
  assert_int_equal(ms_model_padded_vocab(m, 1), 50304);
  assert_int_equal(ms_model_padded_vocab(m, 8), 51200);
  assert_false(ms_model_layer_is_windowed(m, 0));
  ms_model_free(m);
}

static void moe_model(void **state) {
  (void)state;
  MsModel *m;
  TRY(m = ms_model_load("moe", &error));
  assert_true(ms_model_has_mla(m));
  assert_int_equal(m->moe_layer[0], 0);
  for (int i = 1; i < 8; i++) assert_int_equal(m->moe_layer[i], 1);
  assert_true(ms_model_layer_is_windowed(m, 0));
  assert_false(ms_model_layer_is_windowed(m, 1)); /* every 2nd layer, counted from 1, sees everything */
  MsModel *copy = ms_model_copy(m);
  ms_model_free(m);
  assert_string_equal(copy->moe_layer_freq, "[0]*1+[1]*7");
  assert_int_equal(copy->moe_layer[7], 1);
  ms_model_free(copy);
}

static void overrides(void **state) {
  (void)state;
  MsModel *m;
  TRY(m = model_of("{\"base\":\"tiny\",\"hidden_size\":1024,\"num_attention_heads\":16,\"num_layers\":4,"
                   "\"num_experts\":8,"
                   "\"moe_router_topk\":2,\"moe_ffn_hidden_size\":256,\"moe_layer_freq\":\"[0]+[1]*3\","
                   "\"activation\":\"silu\"}"));
  assert_int_equal(m->num_query_groups, 16); /* still a head of its own each */
  assert_int_equal(m->kv_channels, 64);
  assert_memory_equal(m->moe_layer, "\0\1\1\1", 4);
  assert_string_equal(m->name, "tiny");
  ms_model_free(m);
  TRY(m = model_of("{\"base\":\"moe\",\"multi_latent_attention\":{\"q_lora_rank\":null},\"kv_channels\":128}"));
  assert_int_equal(m->multi_latent_attention.q_lora_rank, 0);
  assert_int_equal(m->multi_latent_attention.kv_lora_rank, 128); /* merged over the base */
  assert_int_equal(m->kv_channels, 128);
  ms_model_free(m);
  TRY(m = model_of("{\"base\":\"moe\",\"multi_latent_attention\":null}"));
  assert_false(ms_model_has_mla(m));
  ms_model_free(m);
}

static void other_number_of_layers(void **state) {
  (void)state;
  static const struct {
    int layers;
    const char *freq;
  } cases[] = {{12, "[0]*1+[1]*11"}, {3, "[0]*1+[1]*2"}, {1, "[0]*1+[1]*0"}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    char *json = g_strdup_printf("{\"base\":\"moe\",\"num_layers\":%d}", cases[i].layers);
    MsModel *m;
    TRY(m = model_of(json));
    assert_string_equal(m->moe_layer_freq, cases[i].freq);
    ms_model_free(m);
    g_free(json);
  }
  ms_test_data_write("models/alternating.json",
                     "{\"num_layers\":4,\"hidden_size\":64,\"num_attention_heads\":4,\"vocab_size\":100,"
                     "\"ffn_hidden_size\":64,\"num_experts\":4,\"moe_router_topk\":1,\"moe_ffn_hidden_size\":64,"
                     "\"moe_layer_freq\":\"([0]+[1])*2\"}");
  MsModel *m;
  TRY(m = ms_model_load("alternating", &error));
  assert_string_equal(m->name, "alternating");
  assert_memory_equal(m->moe_layer, "\0\1\0\1", 4);
  ms_model_free(m);
  assert_null(model_of("{\"base\":\"alternating\",\"num_layers\":6}"));
  assert_string_equal(error->message, "f:1: model.moe_layer_freq: gives 4 layers, must give num_layers = 6");
  g_clear_error(&error);
}

static void layer_frequencies(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int n;
    const char *layers;
  } cases[] = {{"[0]*3+[1]*2", 5, "00011"},
               {"[0,1,1]", 3, "011"},
               {" [ 0 , 1 ] * 2 + [1] ", 5, "01011"},
               {"([0]*1+[1]*2)*2", 6, "011011"},
               {"3*[1]", 3, "111"},
               {"[]", 0, ""},
               {"[1]*0", 0, ""},
               {"[]*1000000000", 0, ""},
               {"[1]*2*2", 4, "1111"},
               {"[0]*10+[1]*0", 10, "0000000000"},
               {"2", 10, "1010101010"},
               {"1", 10, "1111111111"},
               {"[1]*11", -1, ""},
               {"", -1, ""},
               {"[2]", -1, ""},
               {"[0", -1, ""},
               {"(0)", -1, ""},
               {"[0]+", -1, ""},
               {"[0]x", -1, ""},
               {"0", -1, ""},
               {"99999999999999999999", 10, "1000000000"},
               {"[1]*99999999999999999999", -1, ""}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    guint8 layer[10] = {0};
    char why[160];
    int n = ms_moe_freq_parse(cases[i].text, layer, 10, why, sizeof why);
    assert_int_equal(n, cases[i].n);
    for (int k = 0; k < n; k++) assert_int_equal(layer[k], cases[i].layers[k] - '0');
  }
}

static void data_files(void **state) {
  (void)state;
  char *file;
  TRY(file = ms_find_data_file("models", "tiny", &error));
  assert_true(g_str_has_suffix(file, "/models/tiny.json"));
  g_free(file);
  TRY(file = ms_find_data_file("models", "./some/where", &error));
  assert_string_equal(file, "./some/where");
  g_free(file);
  assert_null(ms_find_data_file("models", "meta-llama/Llama-3.1-70B", &error));
  assert_non_null(strstr(error->message, "`moesim import hf`"));
  g_clear_error(&error);
  assert_null(ms_find_data_file("hardware", "boxx", &error));
  assert_string_equal(error->message, "unknown hardware \"boxx\", did you mean \"box\"?");
  g_clear_error(&error);
  assert_null(ms_find_data_file("models", "", &error));
  assert_int_equal(error->code, MS_ERROR_INPUT);
  g_clear_error(&error);
}

/* A path is looked up beside the file that mentions it. */
static void model_beside_scenario(void **state) {
  (void)state;
  ms_test_data_write("mine.json", ms_test_tiny);
  char **parts = g_strsplit(ms_test_scenario, "{\"base\": \"moe\", \"num_layers\": 6}", 2);
  char *text = g_strconcat(parts[0], "\"mine.json\"", parts[1], NULL), *path = ms_test_data_path("scenario.json");
  ms_test_data_write("scenario.json", text);
  MsScenario *s;
  TRY(s = ms_scenario_load(path, &error));
  assert_string_equal(s->model->name, "tiny");
  ms_scenario_free(s);
  g_strfreev(parts);
  g_free(text);
  g_free(path);
}

/* --- machines ----------------------------------------------------------------------------------------------------- */
static void machine(void **state) {
  (void)state;
  MsHardware *h;
  TRY(h = ms_hardware_load("box", &error));
  assert_close(h->peak_bf16_flops, 989.5e12, 0);
  assert_true(isnan(h->nic_Bps));
  assert_int_equal(h->nvlink_domain_gpus, 8);
  assert_close(h->kernel_launch_s, 5e-6, 0);
  assert_close(h->context_B, 2.5e9, 0);
  assert_close(ms_hardware_peak_flops(h, MS_FP8_BLOCKWISE), 1979e12, 0);
  assert_true(isnan(ms_hardware_peak_flops(h, MS_NVFP4)));
  assert_true(isnan(ms_hardware_peak_flops(h, MS_MXFP8)));
  assert_false(ms_hardware_need(h, h->nic_Bps, "nic_Bps", &error));
  assert_string_equal(error->message, "hardware box: nic_Bps is unknown; give it in the profile, or in place of the "
                                      "name {\"base\": \"box\", \"nic_Bps\": NUMBER}");
  g_clear_error(&error);
  g_free(h->name);
  h->name = g_strdup("inline"); /* described in the file itself, without a name that a base could have */
  assert_false(ms_hardware_need(h, h->nic_Bps, "nic_Bps", &error));
  assert_true(g_str_has_prefix(error->message, "hardware: nic_Bps is unknown; give it beside the others"));
  g_clear_error(&error);
  assert_true(ms_hardware_need(h, h->hbm_B, "hbm_B", &error));
  ms_hardware_free(h);
}

static void curves(void **state) {
  (void)state;
  MsHardware *h, *copy;
  TRY(h = ms_hardware_load("box", &error));
  copy = ms_hardware_copy(h);
  ms_hardware_free(h);
  assert_int_equal(copy->num_curves, 2);
  const MsCurve *gemm = &copy->curves[0], *ring = &copy->curves[1];
  assert_int_equal(gemm->form, MS_FORM_GEMM_SATURATING);
  assert_close(gemm->param[5], 70, 0);
  assert_int_equal(gemm->grid.dims, 2);
  assert_string_equal(gemm->grid.name[1], "n");
  assert_close(gemm->grid.log2_axis[0][1], 10, 0);
  assert_close(gemm->grid.log_ratio[2], -0.1, 0);
  assert_string_equal(gemm->provenance.note, "by hand");
  assert_true(isnan(gemm->provenance.residual_p90));
  assert_int_equal(ring->ranks, 8);
  assert_int_equal(ring->n_segments, 2);
  assert_close(ring->segment_Bps[1], 3e11, 0);
  assert_null(ring->dtype);
  ms_hardware_free(copy);
}

static void inherited_curves(void **state) {
  (void)state;
  MsHardware *h;
  TRY(h = ms_hardware_load("other", &error));
  assert_int_equal(h->num_curves, 2); /* its own all_reduce, and gemm of box */
  assert_null(h->curves[0].provenance.note);
  assert_string_equal(h->curves[1].op, "gemm");
  assert_string_equal(h->curves[1].provenance.note, "shape inherited from box; by hand");
  assert_int_equal(h->curves[1].grid.n[1], 3);
  ms_hardware_free(h);
}

static MsHardware *machine_of(const char *json) {
  MsHardware *h;
  MsJson *doc;
  TRY(doc = ms_json_parse(json, -1, "f", &error));
  TRY(h = ms_hardware_from_json(doc, ms_json_root(doc), "hardware", &error));
  ms_json_free(doc);
  return h;
}

#define GEMM(dtype, share)                                                                         \
  "{\"op\": \"gemm\"" dtype ", \"form\": \"gemm-saturating\", \"params\": {\"efficiency\": " share \
  ", \"bw_efficiency\": 0.5, \"launch_s\": 1e-6, \"m_half\": 1, \"n_half\": 1, \"k_half\": 1}}"

/* A curve of its own for any type: that of another machine for one type does not stand before it, nor that of a base;
 * one for another type does stand beside it. */
static void own_curves_come_first(void **state) {
  (void)state;
  static const struct {
    const char *json;
    int n;
    double first;
  } machines[] = {
      {"{\"name\": \"a\", \"peak_bf16_flops\": 1e14, \"hbm_B\": 4e10, \"curves_from\": \"box\", \"curves\": "
       "[" GEMM("", "0.3") "]}",
       2, 0.3},
      {"{\"base\": \"box\", \"curves\": [" GEMM("", "0.3") "]}", 2, 0.3},
      {"{\"base\": \"box\", \"curves\": [" GEMM(", \"dtype\": \"bf16\"", "0.3") "]}", 2, 0.3},
      {"{\"base\": \"box\", \"curves\": [" GEMM(", \"dtype\": \"fp8\"", "0.3") "]}", 3, 0.3}};
  for (guint i = 0; i < G_N_ELEMENTS(machines); i++) {
    MsHardware *h = machine_of(machines[i].json);
    assert_int_equal(h->num_curves, machines[i].n); /* with the all-reduce of box */
    assert_close(h->curves[0].param[0], machines[i].first, 0);
    for (int c = 1; c < h->num_curves; c++) assert_true(i == 3 || strcmp(h->curves[c].op, "gemm") != 0);
    ms_hardware_free(h);
  }
}

/* A rate that is changed in a scenario scales what was measured at the old one: bandwidth, not latency; and says so. */
static void curves_follow_a_changed_link(void **state) {
  (void)state;
  MsHardware *base, *half, *same, *given;
  TRY(base = ms_hardware_load("box", &error));
  const MsCurve *ring = &base->curves[1];
  char *text = g_strdup_printf("{\"base\": \"box\", \"scaleup_Bps\": %.17g}", base->scaleup_Bps / 2);
  half = machine_of(text);
  assert_close(half->curves[1].segment_Bps[0], ring->segment_Bps[0] / 2, 0);
  assert_close(half->curves[1].segment_Bps[1], ring->segment_Bps[1] / 2, 0);
  assert_close(half->curves[1].segment_alpha_s[1], ring->segment_alpha_s[1], 0);
  assert_non_null(strstr(half->curves[1].provenance.note, "bandwidth scaled with scaleup_Bps"));
  assert_memory_equal(half->curves[0].param, base->curves[0].param,
                      sizeof base->curves[0].param); /* a kernel: relative to the peaks already */
  same = machine_of("{\"base\": \"box\", \"nic_Bps\": 5e10, \"hbm_Bps\": 1e12}"); /* a network of a machine that has no
                                                                                     curve of one */
  assert_close(same->curves[1].segment_Bps[0], ring->segment_Bps[0], 0);
  assert_null(same->curves[1].provenance.note);
  given = machine_of("{\"base\": \"box\", \"scaleup_Bps\": 1e11, \"curves\": [{\"op\": \"all_reduce\", \"level\": "
                     "\"nvlink\", \"ranks\": 8,"
                     " \"form\": \"segments\", \"segments\": [[1e-5, 7e10]]}]}");
  assert_close(given->curves[0].segment_Bps[0], 7e10, 0); /* what stands beside the changed rate was measured at it */
  g_free(text);
  ms_hardware_free(given);
  ms_hardware_free(same);
  ms_hardware_free(half);
  ms_hardware_free(base);
}

/* Copies share what they say alike, longer than the first of them lives; what is changed is their own. */
static void changed_curves_share_the_rest(void **state) {
  (void)state;
  MsHardware *base, *once, *twice;
  TRY(base = ms_hardware_load("box", &error));
  once = ms_hardware_copy(base);
  ms_hardware_scale(once, "scaleup_Bps", 0.5);
  twice = ms_hardware_copy(once);
  ms_hardware_scale(twice, "scaleup_Bps", 4);
  assert_ptr_equal(twice->curves[0].op, base->curves[0].op);
  assert_ptr_equal(twice->curves[1].op, base->curves[1].op);
  assert_ptr_not_equal(once->curves[1].provenance.note, twice->curves[1].provenance.note);
  assert_null(base->curves[1].provenance.note);
  ms_hardware_free(base);
  ms_hardware_free(once);
  const MsCurve *kernel = &twice->curves[0], *ring = &twice->curves[1];
  assert_string_equal(kernel->op, "gemm");
  assert_string_equal(ring->op, "all_reduce");
  const char *first = strstr(ring->provenance.note, "bandwidth scaled with scaleup_Bps");
  assert_non_null(first);
  assert_non_null(strstr(first + 1, "; bandwidth scaled with scaleup_Bps"));
  ms_hardware_free(twice);
}

/* The same in a program: what a sensitivity does. Dispatch: the link's rate, not what SMs can issue. */
static void scaled_machine(void **state) {
  (void)state;
  MsHardware *h = machine_of("{\"base\": \"box\", \"nic_Bps\": 5e10, \"scaleup_Bps\": 1e11, \"curves\": ["
                             "{\"op\": \"dispatch\", \"level\": \"network\", \"form\": \"dispatch\", \"params\": "
                             "{\"alpha_s\": 1e-5, \"per_sm_Bps\": 1e10, \"link_Bps\": 4e10}},"
                             "{\"op\": \"p2p\", \"form\": \"segments\", \"segments\": [[1e-5, 7e10]]}]}");
  ms_hardware_scale(h, "nic_Bps", 1.5);
  assert_close(h->nic_Bps, 7.5e10, 0);
  assert_close(h->curves[0].param[0], 1e-5, 0);
  assert_close(h->curves[0].param[1], 1e10, 0);
  assert_close(h->curves[0].param[2], 6e10, 0);
  assert_close(h->curves[1].segment_Bps[0], 7e10, 0);
  ms_hardware_scale(h, "scaleup_Bps", 0.5);
  assert_close(h->curves[0].param[2], 6e10, 0);
  assert_close(h->curves[1].segment_Bps[0], 3.5e10, 0); /* of no level: the scale-up link */
  double peak = h->peak_bf16_flops;
  ms_hardware_scale(h, "peak_bf16_flops", 1.1);
  assert_close(h->peak_bf16_flops, 1.1 * peak, 0);
  ms_hardware_scale(h, "peak_nvfp4_flops", 1.1); /* a hole stays one */
  assert_true(isnan(h->peak_nvfp4_flops));
  ms_hardware_free(h);
}

static void machine_writes_what_it_read(void **state) {
  (void)state;
  char *text[2];
  MsHardware *h;
  TRY(h = ms_hardware_load("other", &error));
  for (int round = 0; round < 2; round++) {
    MsJsonOut *out = ms_json_out_new(2);
    ms_json_out_object(out, NULL);
    ms_fields_write(&ms_hardware_table, h, round == 0, out);
    ms_json_out_end(out);
    ms_hardware_free(h);
    text[round] = ms_json_out_take(out);
    MsJson *doc = ms_json_parse(text[round], -1, "f", &error);
    TRY(h = ms_hardware_from_json(doc, ms_json_root(doc), "hardware", &error));
    ms_json_free(doc);
    assert_int_equal(h->num_curves, 2);
    assert_close(h->curves[1].grid.log_ratio[4], 0.05, 0);
  }
  assert_true(strlen(text[1]) < strlen(text[0])); /* without the defaults */
  ms_hardware_free(h);
  g_free(text[0]);
  g_free(text[1]);
}

/* --- scenarios ---------------------------------------------------------------------------------------------------- */
static void scenario(void **state) {
  (void)state;
  MsScenario *s;
  TRY(s = scenario_of(ms_test_scenario));
  assert_string_equal(s->file, "f");
  assert_int_equal(s->gpus, 8);
  assert_int_equal(s->model->num_layers, 6);
  assert_int_equal(s->training.routing.kind, MS_ROUTING_CAPACITY);
  assert_close(s->training.routing.capacity_factor, 1.25, 0);
  assert_true(s->training.routing.pad_to_capacity);
  assert_int_equal(s->training.optimizer, MS_OPT_ADAM);
  assert_int_equal(s->layout.tp, 2);
  assert_int_equal(s->layout.cp, 1);
  assert_int_equal(s->layout.dp, MS_NULL_INT);
  assert_int_equal(s->options.recompute.modules, MS_RM_CORE_ATTN | MS_RM_MOE_ACT);
  assert_int_equal(s->options.recompute.num_layers, 1);
  assert_true(s->options.moe_permute_fusion);
  assert_true(isnan(s->options.moe_expert_rank_capacity_factor));
  assert_true(s->has_measured);
  assert_close(s->measured.step_time_s, 1.5, 0);
  assert_close(s->measured.weight, 1, 0);
  assert_true(isnan(s->measured.tflops_per_gpu));
  ms_scenario_free(s);
}

static void scenario_writes_what_it_read(void **state) {
  (void)state;
  MsScenario *s, *copy, *shared, *again;
  TRY(s = scenario_of(ms_test_scenario));
  copy = ms_scenario_copy(s, FALSE);
  shared = ms_scenario_copy(s, TRUE);
  assert_ptr_equal(shared->model, s->model);
  char *a = ms_scenario_text(shared, 2);
  ms_scenario_free(shared);
  ms_scenario_free(s);
  char *b = ms_scenario_text(copy, 2);
  ms_scenario_free(copy);
  assert_string_equal(a, b);
  TRY(again = scenario_of(a));
  char *c = ms_scenario_text(again, 2);
  assert_string_equal(a, c);
  ms_scenario_free(again);
  g_free(a);
  g_free(b);
  g_free(c);
}

static void routings(void **state) {
  (void)state;
  static const struct {
    const char *json;
    MsRoutingKind kind;
    double skew;
    guint32 seed;
  } cases[] = {{"\"balanced\"", MS_ROUTING_BALANCED, 0, 0},
               {"\"natural\"", MS_ROUTING_NATURAL, 0, 0},
               {"\"round-robin\"", MS_ROUTING_ROUND_ROBIN, 0, 0},
               {"{\"zipf\": 0.8, \"seed\": 1}", MS_ROUTING_ZIPF, 0.8, 1},
               {"{\"dirichlet\": 1.0, \"seed\": 7}", MS_ROUTING_DIRICHLET, 1, 7}};
  const char *old = "{\"capacity_factor\": 1.25, \"pad_to_capacity\": true}";
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    char **parts = g_strsplit(ms_test_scenario, old, 2), *json = g_strconcat(parts[0], cases[i].json, parts[1], NULL);
    MsScenario *s;
    TRY(s = scenario_of(json));
    assert_int_equal(s->training.routing.kind, cases[i].kind);
    assert_close(s->training.routing.skew, cases[i].skew, 0);
    assert_int_equal(s->training.routing.seed, cases[i].seed);
    char *text = ms_scenario_text(s, 2);
    MsScenario *again;
    TRY(again = scenario_of(text));
    assert_memory_equal(&again->training.routing, &s->training.routing, sizeof s->training.routing);
    ms_scenario_free(again);
    ms_scenario_free(s);
    g_free(text);
    g_free(json);
    g_strfreev(parts);
  }
}

/* --- requests ----------------------------------------------------------------------------------------------------- */
static MsRequest *request_of(const char *json) {
  error = NULL;
  MsJson *doc = ms_json_parse(json, -1, "f", &error);
  MsRequest *request = doc ? ms_request_from_doc(doc, &error) : NULL;
  ms_json_free(doc);
  return request;
}

static const MsOpenKey *open_key(const MsRequest *request, const char *path) {
  for (int i = 0; i < request->n_open; i++)
    if (strcmp(request->open[i].path, path) == 0) return &request->open[i];
  return NULL;
}

static gboolean given(const MsRequest *request, const char *key) {
  return (request->layout_given >> (ms_field_find(&ms_layout_table, key) - ms_layout_table.fields)) & 1;
}

static void request(void **state) {
  (void)state;
  MsRequest *r;
  TRY(r = request_of(ms_test_request));
  assert_int_equal(r->n_open, 8);
  assert_string_equal(r->open[0].path, "training.micro_batch_size"); /* file order */
  assert_int_equal(open_key(r, "layout.tp")->n, 3);
  assert_int_equal(open_key(r, "layout.pp")->n, 8);
  assert_int_equal(json_node_get_int(open_key(r, "layout.pp")->values[7]), 8);
  assert_int_equal(open_key(r, "layout.ep")->n, 0);
  assert_int_equal(open_key(r, "training.precision")->n, 0);
  assert_int_equal(open_key(r, "options.cuda_graph_scope")->n, 2);
  assert_true(given(r, "cp") && !given(r, "tp") && !given(r, "ep") && !given(r, "vpp"));
  assert_int_equal(r->top, 5);
  assert_close(r->max_memory_fraction, 0.94, 0);
  const MsScenario *base = r->base; /* first values and defaults */
  assert_int_equal(base->options.dispatcher, MS_DISPATCH_DEEPEP);
  assert_int_equal(base->options.sequence_parallel, -1);
  assert_true(base->options.distributed_optimizer);
  assert_int_equal(base->options.offload_modules, MS_OM_CORE_ATTN);
  assert_int_equal(base->training.precision, MS_BF16);
  assert_int_equal(base->training.routing.kind, MS_ROUTING_BALANCED);
  ms_request_free(r);
}

/* Every value of every open key can be set on a copy of the base, in any order, and leaves nothing behind. */
static void values_can_be_set(void **state) {
  (void)state;
  MsRequest *r;
  TRY(r = request_of(ms_test_request));
  MsScenario *s = ms_scenario_copy(r->base, TRUE);
  const MsOpenKey *tp = open_key(r, "layout.tp"), *recompute = open_key(r, "options.recompute");
  TRY(ms_field_set(tp->field, NULL, tp->values[2], tp->path, &s->layout, &error));
  assert_int_equal(s->layout.tp, 4);
  TRY(ms_field_set(recompute->field, NULL, recompute->values[1], recompute->path, &s->options, &error));
  assert_int_equal(s->options.recompute.modules, MS_RM_CORE_ATTN);
  TRY(ms_field_set(recompute->field, NULL, recompute->values[0], recompute->path, &s->options, &error));
  assert_int_equal(s->options.recompute.modules, 0);
  ms_scenario_free(s);
  ms_request_free(r);
}

static void scenario_is_a_request(void **state) {
  (void)state;
  MsRequest *r;
  TRY(r = request_of(ms_test_scenario));
  assert_int_equal(r->n_open, 0);
  assert_true(given(r, "tp") && given(r, "pipeline_layout") && !given(r, "cp"));
  assert_int_equal(r->base->layout.pp, 2);
  assert_int_equal(r->top, 0);
  ms_request_free(r);
}

static void smallest_request(void **state) {
  (void)state;
  MsRequest *r;
  TRY(r = request_of("{\"schema\":1,\"name\":\"x\",\"model\":\"tiny\",\"hardware\":\"box\",\"gpus\":8,"
                     "\"training\":{\"seq_length\":1024,\"global_batch_size\":8},\"options\":{\"recompute\":{"
                     "\"granularity\":"
                     "[\"none\",\"full\"]}},\"plan\":{\"max_memory_fraction\":0.5}}"));
  assert_int_equal(r->layout_given, 0);
  assert_int_equal(open_key(r, "options.recompute.granularity")->n, 2);
  assert_close(r->max_memory_fraction, 0.5, 0);
  assert_int_equal(r->base->training.micro_batch_size, 1);
  ms_request_free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dense_model),
      cmocka_unit_test(moe_model),
      cmocka_unit_test(overrides),
      cmocka_unit_test(other_number_of_layers),
      cmocka_unit_test(layer_frequencies),
      cmocka_unit_test(data_files),
      cmocka_unit_test(model_beside_scenario),
      cmocka_unit_test(machine),
      cmocka_unit_test(curves),
      cmocka_unit_test(inherited_curves),
      cmocka_unit_test(own_curves_come_first),
      cmocka_unit_test(curves_follow_a_changed_link),
      cmocka_unit_test(changed_curves_share_the_rest),
      cmocka_unit_test(scaled_machine),
      cmocka_unit_test(machine_writes_what_it_read),
      cmocka_unit_test(scenario),
      cmocka_unit_test(scenario_writes_what_it_read),
      cmocka_unit_test(routings),
      cmocka_unit_test(request),
      cmocka_unit_test(values_can_be_set),
      cmocka_unit_test(scenario_is_a_request),
      cmocka_unit_test(smallest_request),
  };
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
