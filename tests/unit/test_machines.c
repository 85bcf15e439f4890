/* Every shipped model on every shipped machine, on about as many GPUs as its states need: a plan is an answer or a
 * named reason why there is none, never an error, and its figures are ones that a machine can have. All pairs in the
 * full tier with layouts told apart by `fast`, with `make soak` by `full`; a sample in the quick tier. */
#include "lib/close.h"

#include "base/io.h"
#include "lib/tier.h"
#include "lib/world.h"
#include "plan/plan.h"
#include "work/work.h"

#include <math.h>
#include <string.h>

/* Twice what weights, gradients and optimizer take when they are all sharded, as a power of two. */
static int enough_gpus(const MsModel *model, const MsHardware *hardware) {
  const double bytes_per_parameter = 18, share = 0.5;
  double need = ms_model_params(model).total * bytes_per_parameter / (share * hardware->hbm_B);
  int gpus = 8;
  while (gpus < need) gpus *= 2;
  return gpus;
}

static MsRequest *small_request(const char *model, const char *hardware, int gpus) {
  g_autofree char *text = g_strdup_printf(
      "{\"name\": \"pair\", \"model\": \"%s\", \"hardware\": \"%s\", \"gpus\": %d, "
      "\"training\": {\"seq_length\": 4096, \"global_batch_size\": %d}, "
      "\"layout\": {\"tp\": [1, 8], \"cp\": 1, \"pp\": [1, 8], \"vpp\": 1, \"ep\": [1, 8, 64], \"etp\": 1}, "
      "\"options\": {\"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"full\"}]}}",
      model, hardware, gpus, 4 * gpus);
  return ms_test_request_of(text);
}

/* Bounds of what somebody could have measured. Under 1 % are models of hundreds of experts, all on one GPU, whose host
 * launches them one by one; nothing has been seen above 75 %. */
static void check_figures(const char *model, const MsHardware *h, const MsResult *r) {
  const double least_mfu = 0.005, most_mfu = 0.75, least_band = 0.05, most_band = 0.6;
  if (!(isfinite(r->step_time_s) && r->step_time_s > 0 && r->mfu > least_mfu && r->mfu < most_mfu))
    fail_msg("%s on %s: a step of %g s, MFU %g", model, h->name, r->step_time_s, r->mfu);
  if (!(r->band > least_band && r->band < most_band)) fail_msg("%s on %s: a band of %g", model, h->name, r->band);
  for (int i = 0; i < r->memory->stages; i++)
    if (!(r->memory->stage[i].device_B > 0 && r->memory->stage[i].device_B <= h->hbm_B))
      fail_msg("%s on %s: %g of %g bytes", model, h->name, r->memory->stage[i].device_B, h->hbm_B);
  const double least_named = 0.001; /* of the step, that the first of the assumed figures can move */
  gboolean named =
      h->published_runs == 0 || (r->n_assumed > 0 && r->assumed[0].share * r->assumed[0].within > least_named);
  if (named && (!r->caveat || !strstr(r->caveat, h->name)))
    fail_msg("%s on %s: no caveat with %d assumed figures", model, h->name, r->n_assumed);
}

/* Whether something fits. */
static gboolean pair(const char *model, const char *hardware) {
  GError *error = NULL;
  g_autoptr(MsModel) m = ms_model_load(model, &error);
  g_autoptr(MsHardware) h = m ? ms_hardware_load(hardware, &error) : NULL;
  if (!h) fail_msg("%s on %s: %s", model, hardware, error->message);
  g_autoptr(MsRequest) request = small_request(model, hardware, enough_gpus(m, h));
  g_autoptr(MsPlan) plan =
      ms_plan(request, &(MsPlanOptions){.top = 1, .prune = TRUE, .rough = ms_soak_s() <= 0, .threads = 1}, &error);
  if (!plan) fail_msg("%s on %s: %s", model, hardware, error->message);
  for (int i = 0; i < plan->n_best; i++) check_figures(model, h, plan->best[i].result);
  if (plan->n_best == 0 && plan->n_refusals == 0) fail_msg("%s on %s: nothing, and no reason", model, hardware);
  return plan->n_best > 0;
}

static void every_pair_plans(void **state) {
  (void)state;
  g_autoptr(GPtrArray) models = ms_data_names("models"), machines = ms_data_names("hardware");
  const int every = ms_soak_s() > 0 ? 1 : ms_by_tier(31, 1); /* prime: samples meet all models and machines in turn */
  int number = 0, looked_at = 0, fit = 0;
  for (guint h = 0; h + 1 < machines->len; h++)
    for (guint m = 0; m + 1 < models->len; m++) {
      if (number++ % every != 0) continue;
      looked_at++;
      gboolean fits = pair(models->pdata[m], machines->pdata[h]);
      if (!fits) print_message("%s on %s: nothing fits\n", (char *)models->pdata[m], (char *)machines->pdata[h]);
      fit += fits;
    }
  if (fit < 0.8 * looked_at) fail_msg("of %d pairs %d fit", looked_at, fit);
}

static gboolean take_machine(MsJsonCursor *cursor, gpointer machine) {
  return ms_fields_take(&ms_hardware_table, cursor, machine);
}
static gboolean take_laws(MsJsonCursor *cursor, gpointer entries) {
  return ms_fields_take(&ms_law_file_table, cursor, entries);
}

/* Files as they are shipped need no tree, and say without it what they say with it. */
static void shipped_files_need_no_tree(void **state) {
  (void)state;
  g_autoptr(GPtrArray) names = ms_data_names("hardware");
  int bases = 0;
  for (guint i = 0; i + 1 < names->len; i++) {
    g_autofree char *file = g_strdup_printf("%s/hardware/%s.json", ms_data_dir(), (char *)names->pdata[i]);
    g_autoptr(MsJson) doc = ms_json_load(file, NULL);
    assert_non_null(doc);
    JsonNode *root = ms_json_root(doc);
    if (json_object_has_member(json_node_get_object(root), "base")) {
      bases++;
      continue;
    }
    MsHardware *plain = g_new0(MsHardware, 1);
    ms_fields_defaults(&ms_hardware_table, plain), ms_fields_defaults(&ms_fabric_table, &plain->fabric);
    if (!ms_json_take(doc, take_machine, plain)) fail_msg("%s is read as a tree", file);
    ms_hardware_free(plain);
    g_autoptr(MsHardware) is = ms_hardware_load(names->pdata[i], NULL);
    g_autoptr(MsHardware) tree = ms_hardware_from_json(doc, root, "", NULL);
    g_autofree char *text = ms_fields_text(&ms_hardware_table, is, 0),
                    *must_be = ms_fields_text(&ms_hardware_table, tree, 0);
    assert_string_equal(text, must_be);
  }
  assert_true(bases > 0 && bases + 10 < (int)names->len);
  g_autofree char *laws = g_build_filename(ms_data_dir(), "software", "laws.json", NULL);
  g_autoptr(MsJson) doc = ms_json_open(laws, NULL);
  MsLawEntry *entries = g_new0(MsLawEntry, MS_N_LAWS);
  assert_true(ms_json_take(doc, take_laws, entries));
  ms_law_entries_free(entries);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shipped_files_need_no_tree), cmocka_unit_test(every_pair_plans)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
