/* 4,000 seeded mutations of each valid file, the first 1,000 of them in the quick tier: none may crash, hang, leak or
 * give a message that breaks its promise. Run it under SANITIZE=address,undefined now and then; tests/fuzz has the
 * open-ended version. */
#include "lib/close.h"

#include "describe/hardware.h"
#include "exec/dump_file.h"
#include "lib/data.h"
#include "lib/mutate.h"
#include "lib/tier.h"

#define ROUNDS ms_by_tier(400, 4000)

static void run(const char *text, guint32 seed, int accepted_whole) {
  assert_int_equal(ms_test_load_anything(text), accepted_whole);
  GRand *rand = g_rand_new_with_seed(seed);
  int accepted = 0, rounds = ROUNDS;
  for (int i = 0; i < rounds; i++) {
    char *damaged = ms_test_mutate(rand, text);
    accepted += ms_test_load_anything(damaged) > 0;
    g_free(damaged);
  }
  g_rand_free(rand);
  assert_in_range(accepted, rounds / 50, rounds * 4 / 5); /* the damage is neither hopeless nor harmless */
}

static void models(void **state) { (void)state, run(ms_test_moe, 1, 1); }
static void dense_models(void **state) { (void)state, run(ms_test_tiny, 2, 1); }
static void machines(void **state) { (void)state, run(ms_test_box, 3, 1); }
static const char cpu[] = /* what calibrated CPUs have and GPUs have not */
    "{\"name\": \"cpu\", \"peak_bf16_flops\": 2e11, \"hbm_B\": 1e10, \"hbm_Bps\": 2e10, \"gpus_per_node\": 2, "
    "\"scaleup_Bps\": 1e10, \"serial\": true, \"cuda_graphs\": false,\n"
    "  \"curves\": [{\"op\": \"gemm\", \"pass\": \"wgrad\", \"form\": \"terms\", \"params\": {\"launch_s\": 1e-6, "
    "\"mn_s\": 2e-10, \"flop_s\": 8e-12}},\n"
    "    {\"op\": \"adam\", \"form\": \"terms\", \"params\": {\"byte_s\": 2e-11, \"far_byte_s\": 5e-11, \"cache_B\": "
    "2097152},\n"
    "     \"grid\": {\"axes\": {\"bytes\": [1024, 1048576]}, \"log_ratio\": [0.1, -0.1]}},\n"
    "    {\"op\": \"p2p\", \"dtype\": \"fp32\", \"level\": \"nvlink\", \"ranks\": 2, \"form\": \"segments\", "
    "\"segments\": [[5e-7, 5e9]],\n"
    "     \"grid\": {\"axes\": {\"bytes\": [64, 4096]}, \"log_ratio\": [0, 0.3]}}]}\n";
static void cpus(void **state) { (void)state, run(cpu, 11, 1); }
static void machines_from_text(void **state) {
  (void)state;
  const char *const texts[] = {ms_test_box, cpu};
  GRand *rand = g_rand_new_with_seed(12);
  g_autofree char *file = ms_test_data_path("hardware/damaged.json");
  int accepted = 0, rounds = ROUNDS;
  for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
    assert_true(ms_test_machine_is_as_its_tree(file, texts[i]));
    for (int k = 0; k < rounds; k++) {
      g_autofree char *damaged = ms_test_mutate(rand, texts[i]);
      accepted += ms_test_machine_is_as_its_tree(file, damaged);
    }
  }
  assert_in_range(accepted, rounds / 25, rounds * 8 / 5);
  g_rand_free(rand);
}

static void scenarios(void **state) { (void)state, run(ms_test_scenario, 4, 2); } /* a request as well */
static void requests(void **state) { (void)state, run(ms_test_request, 5, 1); }
static void studies(void **state) {
  (void)state;
  char *text = g_strdup_printf("{\"schema\": 1, \"axes\": [{\"key\": \"layout.ep\", \"values\": [1, 2]}, {\"name\": "
                               "\"net\", \"points\": [{\"label\": \"slow\", "
                               "\"set\": {\"hardware.nic_Bps\": 1e9, \"gpus\": 16}}]}], \"base\": %s}",
                               ms_test_scenario);
  run(text, 6, 1);
  g_free(text);
}
static void disturbances(void **state) {
  (void)state;
  run("{\"schema\": 1, \"disturbances\": [{\"name\": \"as planned\", \"weight\": 6}, {\"name\": \"skew\", \"routing\": "
      "{\"zipf\": 0.3, \"seed\": 1}}, "
      "{\"name\": \"slow\", \"slow_gpu\": {\"rate\": 0.001, \"slowdown\": 1.1}, \"scale\": {\"nic_Bps\": 0.8}}, "
      "{\"name\": \"curves\", \"uncertainty\": {\"samples\": 4, \"seed\": 1}}]}",
      7, 1);
}

/* Rows of tokens, and what a user may have done to them. */
static void histograms(void **state) {
  (void)state;
  const char *text =
      "{\"schema\": 1, \"doc\": \"step 900\", \"tokens\": [[10, 20, 5.5, 0], [1, 2, 3, 4], [7, 7, 7, 7]]}";
  GRand *rand = g_rand_new_with_seed(6);
  for (int i = 0, rounds = ROUNDS; i < rounds; i++) {
    g_autofree char *damaged = ms_test_mutate(rand, text);
    ms_test_load_anything(damaged);
  }
  g_rand_free(rand);
}

static void baselines(void **state) {
  (void)state;
  char *text = g_strdup_printf("{\"schema\": 1, \"tolerance\": {\"default\": 0.001, \"time\": 0.01}, \"inputs\": "
                               "{\"model moe\": {\"num_layers\": 8}}, \"predictions\": "
                               "[{\"name\": \"a\", \"quantities\": {\"step_time_s\": 1.5, \"time.gemm_s\": 1, \"mfu\": "
                               "null}, \"scenario\": %s}]}",
                               ms_test_scenario);
  run(text, 7, 1);
  g_free(text);
}

static void goodputs(void **state) {
  (void)state;
  char *text = g_strdup_printf("{\"schema\": 1, \"reliability\": {\"failures\": [{\"component\": \"gpu\", \"per\": "
                               "\"node\", \"per_1000_days\": 6.5, \"detection_s\": 60, "
                               "\"source\": \"none\"}]}, \"checkpoint\": {\"mode\": \"synchronous\", \"storage_Bps\": "
                               "1e10}, \"recovery\": {\"restart_s\": 300, \"rewarm_s\": 60}, "
                               "\"spares\": {\"nodes\": 2}, \"budget\": {\"days\": 30}, \"run\": %s}",
                               ms_test_scenario);
  run(text, 8, 1);
  g_free(text);
}

/* Bytes rather than text: some are set to anything, some cut out, some doubled; most of it in the lines between the
 * numbers. */
static GString *damaged_dump(GRand *rand, const GString *dump) {
  GString *d = g_string_new_len(dump->str, (gssize)dump->len);
  for (int n = g_rand_int_range(rand, 1, 3); n > 0 && d->len > 1; n--) {
    gsize at = (gsize)g_rand_int_range(rand, 0, (gint32)d->len), length = (gsize)g_rand_int_range(rand, 1, 40);
    const char *tab = memchr(d->str + at, '\t', d->len - at);
    switch (g_rand_int_range(rand, 0, 5)) {
    case 0: d->str[at] = (char)g_rand_int(rand); break;
    case 1: g_string_erase(d, (gssize)at, (gssize)MIN(length, d->len - at)); break;
    case 2: g_string_truncate(d, at); break;
    case 3:
      if (tab) d->str[tab - d->str + 1] = "0123456789-+ \n"[g_rand_int_range(rand, 0, 14)];
      break;
    default: {
      GString *piece = g_string_new_len(d->str + at, (gssize)MIN(length, d->len - at));
      g_string_insert_len(d, g_rand_int_range(rand, 0, (gint32)d->len), piece->str, (gssize)piece->len);
      g_string_free(piece, TRUE);
    }
    }
  }
  return d;
}

static void dumps(void **state) {
  (void)state;
  const double elements[] = {1, -0.0, NAN, 1e308, 0.5, 3};
  GString *dump = ms_dump_text_new();
  ms_dump_text_add(dump, "embedding.table", 3, elements, elements + 3);
  ms_dump_text_add(dump, "layer 0 norm", 1, elements + 2, elements);
  ms_dump_text_add(dump, "head", 2, elements, elements + 1);
  assert_true(ms_test_load_dump(dump->str, dump->len));
  GRand *rand = g_rand_new_with_seed(12);
  int accepted = 0, rounds = ROUNDS;
  for (int i = 0; i < rounds; i++) {
    GString *d = damaged_dump(rand, dump);
    accepted += ms_test_load_dump(d->str, d->len);
    g_string_free(d, TRUE);
  }
  g_rand_free(rand);
  assert_in_range(accepted, rounds / 50, rounds * 4 / 5);
  for (gsize n = 0; n < dump->len; n++) { /* cut off: whole only between two matrices */
    gboolean whole = ms_test_load_dump(dump->str, n);
    assert_int_equal(whole, n == 19 || n == 19 + 18 + 48 || n == 19 + 18 + 48 + 15 + 16);
  }
  ms_dump_text_add(dump, "head", 1, elements, elements); /* twice */
  assert_false(ms_test_load_dump(dump->str, dump->len));
  g_string_free(dump, TRUE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(models),
                                     cmocka_unit_test(dense_models),
                                     cmocka_unit_test(machines),
                                     cmocka_unit_test(cpus),
                                     cmocka_unit_test(scenarios),
                                     cmocka_unit_test(requests),
                                     cmocka_unit_test(studies),
                                     cmocka_unit_test(histograms),
                                     cmocka_unit_test(baselines),
                                     cmocka_unit_test(disturbances),
                                     cmocka_unit_test(goodputs),
                                     cmocka_unit_test(dumps),
                                     cmocka_unit_test(machines_from_text)};
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
