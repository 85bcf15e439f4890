/* What a whole training takes, and how it is asked for: words to a request, days and prices by hand. */
#include "lib/close.h"
#include "lib/tier.h"

#include "base/err.h"
#include "report/report.h"
#include "study/ask.h"
#include "study/budget.h"
#include "study/sweep.h"

#include <math.h>
#include <string.h>

static const MsAsk usual = {
    .model = "llama3-8b", .hardware = "h100-sxm", .gpus = "8", .seq_length = MS_ASK_UNSET, .global_batch_size = 64};

static GPtrArray *requests_of(const char *text) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "asked", &error);
  GPtrArray *requests = doc ? ms_requests_from_doc(doc, &error) : NULL;
  if (!requests) fail_msg("%s", error->message);
  return requests;
}

static GPtrArray *asked(MsAsk ask) {
  GError *error = NULL;
  g_autofree char *text = ms_ask_request(&ask, TRUE, &error);
  if (!text) fail_msg("%s", error->message);
  return requests_of(text);
}

static void ranges_and_lists_make_requests(void **state) {
  (void)state;
  MsAsk ask = usual;
  ask.gpus = "96..500", ask.seq_lengths = "4k,8k", ask.global_batch_sizes = "1024,2048";
  g_autoptr(GPtrArray) requests = asked(ask);
  assert_int_equal(requests->len, 4 * 2 * 2);
  static const int gpus[] = {96, 192, 384, 500};
  for (guint i = 0; i < requests->len; i++) {
    const MsScenario *s = ((MsRequest *)requests->pdata[i])->base;
    assert_int_equal(s->gpus, gpus[i / 4]);
    assert_int_equal(s->training.seq_length, i / 2 % 2 ? 8192 : 4096);
    assert_int_equal(s->training.global_batch_size, i % 2 ? 2048 : 1024);
  }
}

static void a_deadline_leaves_the_number_of_gpus_open(void **state) {
  (void)state;
  MsAsk ask = usual;
  ask.gpus = "8..32", ask.tokens = "15T", ask.deadline = "30d", ask.gpu_hour = "2.50", ask.max_watts = "12kW";
  g_autoptr(GPtrArray) requests = asked(ask);
  assert_int_equal(requests->len, 1);
  const MsRequest *r = requests->pdata[0];
  assert_int_equal(r->objective, MS_GOAL_DEADLINE);
  assert_true(r->training_tokens == 15e12 && r->deadline_s == 30 * 86400.0 && r->gpu_hour_price == 2.5);
  assert_true(r->max_power_W == 12e3);
  for (int i = 0; i < r->n_open; i++)
    if (strcmp(r->open[i].path, "gpus") == 0) assert_int_equal(r->open[i].n, 2); /* 32 draw 22 kW */
}

static double memory_asked(const char *hardware, const char *text) {
  MsAsk ask = usual;
  ask.hardware = hardware, ask.max_memory = text;
  g_autoptr(GPtrArray) requests = asked(ask);
  return ((MsRequest *)requests->pdata[0])->max_memory_fraction;
}

static void memory_is_a_share_or_a_size(void **state) {
  (void)state;
  assert_true(memory_asked("h100-sxm", NULL) == 0.94);
  assert_true(memory_asked("h100-sxm", "0.8") == 0.8);
  assert_true(memory_asked("h100-sxm", "60GiB") == 0.75);
  assert_true(memory_asked("h100-sxm,h800-sxm", "60GiB") == 0.75);
  g_autoptr(GError) error = NULL;
  MsAsk ask = usual;
  ask.hardware = "h100-sxm,b200-sxm", ask.max_memory = "60GiB";
  assert_null(ms_ask_request(&ask, TRUE, &error));
  assert_non_null(strstr(error->message, "--max-memory 60GiB: the machines differ in memory"));
}

static void every_machine_has_its_price(void **state) {
  (void)state;
  MsAsk ask = usual;
  ask.hardware = "h100-sxm,b200-sxm", ask.gpus = "8,16", ask.tokens = "1T", ask.gpu_hour = "2.5,6";
  g_autoptr(GPtrArray) requests = asked(ask);
  assert_int_equal(requests->len, 4);
  for (guint i = 0; i < 4; i++) assert_true(((MsRequest *)requests->pdata[i])->gpu_hour_price == (i < 2 ? 2.5 : 6));
  ask.gpu_hour = "2.5";
  g_autoptr(GPtrArray) alike = asked(ask);
  for (guint i = 0; i < 4; i++) assert_true(((MsRequest *)alike->pdata[i])->gpu_hour_price == 2.5);
}

/* Of two machines the cheaper one is advised, whichever that is at the prices given, and the faster one named. */
static void the_cheapest_cluster_is_advised(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  static const struct {
    const char *prices, *deadline, *first, *other;
  } rows[] = {
      {"2,9", "1000d", "take 8 x h100-sxm: ", "8 x b200-sxm costs "},
      {"9,2", "1000d", "take 8 x b200-sxm: ", "8 x h100-sxm costs "},
      {"2,9", "36d", "take 8 x b200-sxm: ", NULL}, /* the other is late */
      {"2,9", "1d", "none keeps the deadline; 8 x b200-sxm comes nearest: ", NULL},
      {NULL, "1000d", "take 8 x b200-sxm: ", NULL},
  };
  static const MsPlanOptions few = {.top = 1, .prune = TRUE, .threads = 1};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i += (guint)ms_by_tier(2, 1)) {
    MsAsk ask = usual;
    ask.hardware = "h100-sxm,b200-sxm", ask.tokens = "300G", ask.deadline = rows[i].deadline,
    ask.gpu_hour = rows[i].prices;
    g_autoptr(GPtrArray) requests = asked(ask);
    g_autoptr(MsSweep) sweep = ms_sweep(requests, &few, NULL, NULL);
    assert_true(sweep->n_advice >= 1);
    if (!g_str_has_prefix(sweep->advice[0], rows[i].first)) fail_msg("%s, not %s", sweep->advice[0], rows[i].first);
    assert_int_equal(ms_sweep_answers(sweep), !g_str_has_prefix(rows[i].first, "none"));
    if (!rows[i].other) assert_int_equal(sweep->n_advice, 1);
    else if (!g_str_has_prefix(sweep->advice[1], rows[i].other)) fail_msg("%s", sweep->advice[1]);
  }
}

/* Also where the number of GPUs was searched, and of one cluster. */
static void a_sweep_that_is_late_says_so(void **state) {
  (void)state;
  MsAsk ask = usual;
  ask.hardware = "h100-sxm,h200-sxm", ask.gpus = "8,16", ask.tokens = "300G", ask.deadline = "2d";
  g_autoptr(GPtrArray) requests = asked(ask);
  static const MsPlanOptions few = {.top = 1, .prune = TRUE, .threads = 1};
  g_autoptr(MsSweep) sweep = ms_sweep(requests, &few, NULL, NULL);
  assert_false(ms_sweep_answers(sweep));
  assert_int_equal(sweep->n_advice, 1);
  if (!g_str_has_prefix(sweep->advice[0], "none keeps the deadline; h200-sxm comes nearest, with at least "))
    fail_msg("%s", sweep->advice[0]);
  g_autofree char *table = ms_report_sweep(sweep);
  assert_true(strstr(table, " 8 to 16 ") && strstr(table, "nothing in time"));
  ask.hardware = "h100-sxm", ask.gpus = "8";
  g_autoptr(GPtrArray) one = asked(ask);
  g_autoptr(MsPlan) plan = ms_plan(one->pdata[0], &few, NULL);
  assert_true(plan->n_best == 1 && !ms_plan_in_time(one->pdata[0], plan));
  ((MsRequest *)one->pdata[0])->deadline_s = 1e9;
  assert_true(ms_plan_in_time(one->pdata[0], plan));
}

/* What no number of GPUs of the request keeps is said so, and more of them that do. */
static void a_deadline_that_cannot_be_kept_says_what_could(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY(); /* it plans for every machine that is shipped */
  MsAsk ask = usual;
  GError *error = NULL;
  ask.gpus = "8,16", ask.tokens = "100G", ask.deadline = "4d";
  g_autoptr(GPtrArray) requests = asked(ask);
  MsRequest *request = requests->pdata[0];
  const MsPlanOptions options = {.top = 1, .prune = TRUE, .threads = 1};
  g_autoptr(MsPlan) plan = ms_plan(request, &options, &error);
  assert_true(plan && plan->n_best == 0);
  g_auto(MsPlanExtras) extras = {0};
  assert_true(ms_plan_extras(request, plan, &options, &(MsExtrasAsked){0}, &extras, &error));
  assert_true(extras.ways->n >= 2);
  for (int i = 0; i < extras.ways->n; i++) {
    const MsWay *way = &extras.ways->way[i];
    double steps = ceil(100e9 / (64 * 4096.0));
    assert_true(way->kind == (i == 0 ? MS_WAY_GPUS : MS_WAY_MACHINE) && way->scenario->gpus <= 32);
    assert_true(steps * way->step_time_s <= 4 * 86400);
  }
  g_autofree char *text = ms_report_plan(request, plan, &extras, 1, 0);
  assert_non_null(strstr(text, "nothing keeps the deadline: "));
  assert_non_null(strstr(text, "\nin time "));
}

/* The words of a document are those of the options, as texts or as numbers. */
static void a_document_asks_alike(void **state) {
  (void)state;
#define WORDS "\"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8"
  MsAsk ask = {.model = "llama3-8b",
               .hardware = "h100-sxm",
               .gpus = "8",
               .seq_lengths = "8k,16384",
               .seq_length = MS_ASK_UNSET,
               .global_batch_size = MS_ASK_UNSET,
               .tokens = "1T",
               .gpu_hour = "2.5",
               .max_memory = "0.5",
               .deadline = "30d",
               .lora = "16"};
  static const struct {
    const char *text, *why; /* why NULL: as `ask` */
  } rows[] = {
      {"{" WORDS ", \"seq_length\": [\"8k\", 16384], \"tokens\": 1e12, \"gpu_hour\": 2.5, \"max_memory\": 0.5, "
       "\"deadline\": \"30d\", \"lora\": 16, \"max_watts\": null}",
       NULL},
      {"{" WORDS ", \"seq_lengths\": \"8k,16384\", \"tokens\": \"1T\", \"gpu_hour\": \"2.50\", \"max_memory\": "
       "\"0.5\", \"deadline\": 2592000, \"lora\": \"16\"}",
       NULL},
      {"{" WORDS ", \"seq_length\": 16.9}", "seq_length 16.9: give numbers from 1 to"},
      {"{" WORDS ", \"seq_length\": true}", "request:1: seq_length: must be a text, a number, or a list of them"},
      {"{" WORDS ", \"seq_length\": [[1]]}", "request:1: seq_length: must be a text, a number, or a list of them"},
      {"{" WORDS ", \"seq_length\": 1, \"seq_lengths\": 2}", "request:1: seq_lengths: is given in two keys"},
      {"{" WORDS ", \"deadlin\": \"3d\"}", "request:1: deadlin: unknown key, did you mean \"deadline\"?"},
      {"{" WORDS ", \"around\": \"x.json\"}", "request:1: around: unknown key"},
      {"{" WORDS ", \"tokens\": \"1e308\"}", "plan.training_tokens: is 1e+308, must be in"},
      {"{" WORDS ", \"max_memory\": \"1B\"}", "plan.max_memory_fraction: is "},
      {"{\"model\": \"llama3-8b\"}", "give model, hardware and gpus"},
      {"[]", "request:1: "}};
  g_autofree char *want = ms_ask_request(&ask, TRUE, NULL);
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsJson) doc = ms_json_parse(rows[i].text, -1, "request", NULL);
    g_autofree char *text = ms_ask_document(doc, &error);
    if (!rows[i].why) assert_string_equal(text, want);
    else if (text || !strstr(error->message, rows[i].why))
      fail_msg("%s: %s", rows[i].text, text ? text : error->message);
  }
}

static void wrong_words_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *gpus, *tokens, *deadline, *gpu_hour, *max_watts, *batches, *says, *max_memory;
  } rows[] = {
      {"32..8", NULL, NULL, NULL, NULL, NULL, "--gpus 32..8: the range ends"},
      {"8..x", NULL, NULL, NULL, NULL, NULL, "--gpus 8..x: give numbers"},
      {"8..", NULL, NULL, NULL, NULL, NULL, "--gpus 8..: give numbers"},
      {"8", "15X", NULL, NULL, NULL, NULL, "--tokens 15X: "},
      {"8", "0", NULL, NULL, NULL, NULL, "--tokens 0: must be positive"},
      {"8", NULL, "30d", NULL, NULL, NULL, "--deadline needs the tokens"},
      {"8", NULL, NULL, "2", NULL, NULL, "--gpu-hour needs the tokens"},
      {"8", "1T", NULL, "2,3", NULL, NULL, "--gpu-hour 2,3: give one price, or one for each of the 1 machines"},
      {"8", "1T", NULL, "2,,3", NULL, NULL, "--gpu-hour 2,,3: give one price"},
      {"8", "1T", "soon", NULL, NULL, NULL, "--deadline soon: "},
      {"8", NULL, NULL, NULL, "1kW", NULL, "--max-watts 1 kW: of GPUs of 700 W these are at most 1"},
      {"8", NULL, NULL, NULL, NULL, "64,,128", "--global-batch-size 64,,128: give numbers"},
      {"8", NULL, NULL, NULL, NULL, "4Mi", "--global-batch-size counts sequences: 4194304 of 4096 tokens are more"},
      {"8", NULL, NULL, NULL, NULL, NULL, "--max-memory 1.5: give a share of a GPU's memory", "1.5"},
      {"8", NULL, NULL, NULL, NULL, NULL, "--max-memory 90GB: give a share of a GPU's memory", "90GB"},
      {"8", NULL, NULL, NULL, NULL, NULL, "--max-memory much: ", "much"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    MsAsk ask = usual;
    ask.gpus = rows[i].gpus, ask.tokens = rows[i].tokens, ask.deadline = rows[i].deadline;
    ask.gpu_hour = rows[i].gpu_hour, ask.max_watts = rows[i].max_watts, ask.global_batch_sizes = rows[i].batches;
    ask.max_memory = rows[i].max_memory;
    assert_null(ms_ask_request(&ask, TRUE, &error));
    assert_int_equal(error->code, MS_ERROR_USAGE);
    if (!g_str_has_prefix(error->message, rows[i].says)) fail_msg("%s, not %s", error->message, rows[i].says);
  }
}

#define TASK(plan)                                                                                                   \
  "{\"name\": \"task\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 8}, \"hardware\": \"h100-sxm\", "       \
  "\"gpus\": 8, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 32}, \"layout\": {\"tp\": 1, \"cp\": 1," \
  " \"pp\": 1, \"vpp\": 1}, \"plan\": " plan "}"

static MsBudget budget_of(const char *text) {
  g_autoptr(GPtrArray) requests = requests_of(text);
  const MsRequest *request = requests->pdata[0];
  MsResult result = {.step_time_s = 0.5};
  MsBudget b;
  ms_budget_of(request, request->base, &result, &b);
  b.reliability = NULL; /* was the request's */
  return b;
}

static void same(double got, double want) {
  if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("%.17g, not %.17g", got, want);
}

/* Steps are whole: a few tokens take as long as all of the first one, failures and checkpoints included. */
static void the_last_step_is_whole(void **state) {
  (void)state;
  MsBudget one = budget_of(TASK("{\"training_tokens\": 1}")), few = budget_of(TASK("{\"training_tokens\": 1000}")),
           all = budget_of(TASK("{\"training_tokens\": 131072}"));
  assert_true(all.goodput > 0);
  same(one.goodput, all.goodput), same(few.goodput, all.goodput);
  same(one.days, all.days), same(few.gpu_hours, all.gpu_hours);
}

static void days_prices_and_energy_by_hand(void **state) {
  (void)state;
  MsBudget b = budget_of(TASK("{\"training_tokens\": 1e12, \"deadline_s\": 86400, \"goodput\": 0.8, \"gpu_power_W\": "
                              "650, \"gpu_hour_price\": 2.5, \"gpu_hour_price_source\": \"x\", "
                              "\"grid_kg_per_kWh\": 0.1}"));
  double steps = ceil(1e12 / (32 * 4096)), days = steps * 0.5 / 86400 / 0.8;
  same(b.step_days, steps * 0.5 / 86400), same(b.days, days), same(b.goodput, 0.8);
  same(b.gpu_hours, days * 24 * 8), same(b.price, days * 24 * 8 * 2.5);
  same(b.energy_MWh, days * 24 * 8 * 650 / 1e6), same(b.co2_t, days * 24 * 8 * 650 / 1e6 * 0.1);
  same(b.power_W, 8 * 650), same(b.deadline_days, 1);
  assert_true(b.late);
}

/* A batch as large as the critical one needs twice the tokens, in as many steps as batches without limit need at least.
 */
static void large_batches_need_more_tokens(void **state) {
  (void)state;
  MsBudget small = budget_of(TASK("{\"training_tokens\": 131072e4, \"goodput\": 1}")),
           critical = budget_of(TASK("{\"training_tokens\": 131072e4, \"goodput\": 1, \"critical_batch_tokens\": "
                                     "131072}"));
  same(critical.tokens, 2 * small.tokens), same(critical.days, 2 * small.days);
  same(small.step_days, 1e4 * 0.5 / 86400);
  g_autoptr(GError) error = NULL;
  MsAsk ask = {.model = "llama3-8b",
               .hardware = "h100-sxm",
               .gpus = "8",
               .critical_batch_tokens = "4Mi",
               .seq_length = MS_ASK_UNSET,
               .global_batch_size = MS_ASK_UNSET};
  assert_null(ms_ask_request(&ask, TRUE, &error));
  assert_non_null(strstr(error->message, "--critical-batch-tokens needs the tokens of the whole training"));
  ask.tokens = "15T";
  g_autofree char *text = ms_ask_request(&ask, TRUE, NULL);
  assert_non_null(strstr(text, "\"critical_batch_tokens\": 4194304"));
}

static void failures_cost_days_and_more_of_them_more(void **state) {
  (void)state;
  MsBudget usual_failures = budget_of(TASK("{\"training_tokens\": 1e12}")),
           more = budget_of(TASK("{\"training_tokens\": 1e12, \"reliability\": \"meta-rsc1\"}")),
           nothing_asked = budget_of(TASK("{}"));
  assert_true(usual_failures.goodput > 0.9 && usual_failures.goodput < 1);
  assert_true(more.goodput < usual_failures.goodput && more.days > usual_failures.days);
  assert_true(usual_failures.days > usual_failures.step_days);
  assert_true(isnan(usual_failures.price) && isnan(usual_failures.deadline_days) && !usual_failures.late);
  assert_true(isnan(nothing_asked.days) && isnan(nothing_asked.tokens));
}

static void refused(const char *text, const char *says) {
  g_autoptr(GPtrArray) requests = requests_of(text);
  g_autoptr(GError) error = NULL;
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.progress = FALSE;
  assert_null(ms_plan(requests->pdata[0], &options, &error));
  if (!strstr(error->message, says)) fail_msg("%s, not %s", error->message, says);
}

static void more_than_the_power_and_unknown_failures_are_refused(void **state) {
  (void)state;
  refused(TASK("{\"max_power_W\": 5000}"), "8 GPUs of 700 W draw 5.6 kW, more than plan.max_power_W, 5 kW: at most 7");
  refused(TASK("{\"training_tokens\": 1e12, \"reliability\": \"llama4\"}"), "plan.reliability: ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_and_lists_make_requests),
      cmocka_unit_test(a_deadline_leaves_the_number_of_gpus_open),
      cmocka_unit_test(memory_is_a_share_or_a_size),
      cmocka_unit_test(every_machine_has_its_price),
      cmocka_unit_test(the_cheapest_cluster_is_advised),
      cmocka_unit_test(the_last_step_is_whole),
      cmocka_unit_test(a_document_asks_alike),
      cmocka_unit_test(a_sweep_that_is_late_says_so),
      cmocka_unit_test(a_deadline_that_cannot_be_kept_says_what_could),
      cmocka_unit_test(wrong_words_are_refused),
      cmocka_unit_test(days_prices_and_energy_by_hand),
      cmocka_unit_test(large_batches_need_more_tokens),
      cmocka_unit_test(failures_cost_days_and_more_of_them_more),
      cmocka_unit_test(more_than_the_power_and_unknown_failures_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
