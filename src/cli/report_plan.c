#include "cli/report_plan.h"

#include "base/err.h"
#include "base/io.h"
#include "study/ask.h"
#include "study/sweep.h"

enum { MOST_PLANS = 16 };

static GPtrArray *requests_of(const char *file, gboolean around, GError **error) {
  if (!around) return ms_requests_load(file, error);
  const MsAsk ask = {.around = file, .seq_length = MS_ASK_UNSET, .global_batch_size = MS_ASK_UNSET};
  g_autofree char *text = ms_ask_request(&ask, TRUE, error);
  g_autoptr(MsJson) doc = text ? ms_json_parse(text, -1, file, error) : NULL;
  return doc ? ms_requests_from_doc(doc, error) : NULL;
}

static gboolean add_picks(MsPage *page, const MsPlan *plan, const MsPicks *picks, GError **error) {
  if (!picks) return ms_page_add_run(page, plan->best[0].scenario, NULL, error); /* stopped before there were any */
  for (int i = 0; i < picks->n && (i == 0 || !ms_interrupted()); i++) {
    g_autofree char *title = ms_report_pick_title(&picks->pick[i]), *name = g_strdup_printf("%d: %s", i + 1, title);
    if (!ms_page_add_run(page, picks->pick[i].entry->scenario, name, error)) return FALSE;
  }
  return TRUE;
}

static gboolean add_plan(MsPage *page, const MsRequest *request, const char *mine, GPtrArray *shown, GError **error) {
  const MsExtrasAsked asked = {.compare = mine, .map = TRUE};
  if (!ms_plan_extras_check(request, &asked, error)) return FALSE;
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.progress = TRUE;
  g_autoptr(MsPlan) plan = ms_plan(request, &options, error);
  if (!plan) return FALSE;
  if (plan->n_best == 0)
    return ms_error(error, MS_ERROR_NOTHING, "%s: nothing fits; `moesim plan` says what would", request->base->name);
  g_auto(MsPlanExtras) extras = {0};
  MsScenario *run = mine ? ms_scenario_load(mine, error) : NULL;
  if (run) g_ptr_array_add(shown, run);
  gboolean ok = !mine || (run && ms_page_add_run(page, run, NULL, error));
  ok = ok && ms_plan_extras(request, plan, &options, &asked, &extras, error);
  ok = ok && add_picks(page, plan, extras.picks, error);
  if (!ok) return FALSE;
  g_autofree char *json = ms_report_plan_json(request, plan, &extras, 1);
  ms_page_set_plan(page, json);
  return TRUE;
}

/* Several plans: of each the winner in full, and all choices beside the map. */
static gboolean add_sweep(MsPage *page, const GPtrArray *requests, GError **error) {
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.progress = TRUE;
  g_autoptr(MsSweep) sweep = ms_sweep(requests, &options, &(MsSweepAsked){.map = TRUE}, error);
  gboolean any = FALSE;
  for (int i = 0; sweep && i < sweep->n_cells && !ms_interrupted(); i++) {
    const MsPlan *plan = sweep->cell[i].plan;
    if (!plan || plan->n_best == 0) continue;
    const MsScenario *best = plan->best[0].scenario;
    g_autofree char *name = g_strdup_printf("%d: %s, %d x %s, batch %d", i + 1, best->model->name, best->gpus,
                                            best->hardware->name, best->training.global_batch_size);
    if (!ms_page_add_run(page, best, name, error)) return FALSE;
    any = TRUE;
  }
  if (!sweep) return FALSE;
  if (!any) return ms_error(error, MS_ERROR_NOTHING, "nothing fits; `moesim plan` says what would");
  g_autofree char *json = ms_report_sweep_json(sweep);
  ms_page_set_plan(page, json);
  return TRUE;
}

static void show_all(GPtrArray *requests, GPtrArray *shown) {
  for (guint i = 0; i < requests->len; i++)
    g_ptr_array_add(shown, g_steal_pointer(&((MsRequest *)g_ptr_array_index(requests, i))->base));
}

gboolean ms_cli_report_plan(const char *file, gboolean around, MsPage *page, GPtrArray *shown, GError **error) {
  g_autoptr(GPtrArray) requests = requests_of(file, around, error);
  if (!requests) return FALSE;
  if (requests->len > MOST_PLANS)
    return ms_input_error(error, file, 0, "", "asks for %u plans: a page takes at most %d", requests->len, MOST_PLANS);
  if (requests->len > 1) {
    if (!add_sweep(page, requests, error)) return FALSE;
    show_all(requests, shown);
    return TRUE;
  }
  MsRequest *request = g_ptr_array_index(requests, 0);
  if (!add_plan(page, request, around ? file : NULL, shown, error)) return FALSE;
  if (!around) g_ptr_array_add(shown, g_steal_pointer(&request->base));
  return TRUE;
}
