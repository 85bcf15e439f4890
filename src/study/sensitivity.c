#include "study/sensitivity.h"

#include "base/err.h"
#include "base/order.h"
#include "study/jobs.h"

#include <string.h>

#define MOST_KEYS 6

typedef struct {
  const char *what;
  double factor;
  gboolean planned;
  const char *key[MOST_KEYS + 1]; /* of the profile */
} Question;

static const Question questions[] = {
    {"+10 % scale-up bandwidth", 1.1, FALSE, {"scaleup_Bps"}},
    {"+10 % NIC bandwidth", 1.1, FALSE, {"nic_Bps"}},
    {"+10 % HBM bandwidth", 1.1, FALSE, {"hbm_Bps"}},
    {"+10 % FLOP/s",
     1.1,
     FALSE,
     {"peak_bf16_flops", "peak_fp16_flops", "peak_fp8_flops", "peak_mxfp8_flops", "peak_nvfp4_flops",
      "peak_fp32_flops"}},
    {"-10 % host overhead", 0.9, FALSE, {"kernel_launch_s", "graph_launch_s", "sync_s"}},
    {"+10 % HBM size", 1.1, TRUE, {"hbm_B"}},
    {"the memory of one more GPU", 2, TRUE, {"hbm_B"}},
};
enum { N_QUESTIONS = G_N_ELEMENTS(questions) };

typedef struct { /* changed ones of all pools; owned */
  int n;
  MsHardware *of[MS_MAX_POOLS];
} Machines;

static Machines machines_of(const Question *q, const MsScenario *s) {
  Machines m = {.n = ms_scenario_machines(s)};
  for (int i = 0; i < m.n; i++) {
    m.of[i] = ms_hardware_copy(ms_scenario_machine(s, i));
    for (int k = 0; q->key[k]; k++) ms_hardware_scale(m.of[i], q->key[k], q->factor);
  }
  return m;
}

/* They stay the caller's. */
static void lend(const Machines *m, MsScenario *s) {
  s->hardware = m->of[s->pools.own];
  for (int i = 0; i < ms_pools_count(&s->pools); i++) s->pools.pool[i].hardware = m->of[i];
}

static void machines_clear(Machines *m) {
  for (int i = 0; i < m->n; i++) ms_hardware_free(m->of[i]);
}

/* --- the same layout on another machine ------------------------------------------------------------------------ */
typedef struct {
  MsJob job; /* first, as ms_jobs_run wants it */
  MsScenario *scenario;
  Machines machines;
  MsResult *result;
  GError *error;
} Job;

static void simulate(gpointer item, gconstpointer data) {
  (void)data;
  Job *job = item;
  job->result = ms_simulate(job->scenario, MS_FIDELITY_FULL, NULL, &job->error);
}

static void job_clear(gpointer item) {
  Job *job = item;
  ms_result_free(job->result);
  ms_scenario_free(job->scenario);
  machines_clear(&job->machines);
  g_clear_error(&job->error);
}

static GArray *jobs_of(const MsScenario *winner) {
  GArray *jobs = g_array_new(FALSE, FALSE, sizeof(Job));
  g_array_set_clear_func(jobs, job_clear);
  for (int i = 0; i < N_QUESTIONS; i++) {
    if (questions[i].planned) continue;
    Job job = {{questions[i].what}, ms_scenario_copy(winner, TRUE), machines_of(&questions[i], winner), NULL, NULL};
    lend(&job.machines, job.scenario);
    g_array_append_val(jobs, job);
  }
  return jobs;
}

static MsSensitivity *add_row(MsSensitivities *s, const char *what, gboolean planned) {
  s->row = g_renew(MsSensitivity, s->row, s->n + 1);
  s->row[s->n] = (MsSensitivity){.what = g_strdup(what), .planned = planned};
  return &s->row[s->n++];
}

static gboolean simulated_rows(MsSensitivities *s, const MsPlanEntry *winner, const MsPlanOptions *options,
                               GError **error) {
  g_autoptr(GArray) jobs = jobs_of(winner->scenario);
  const MsJobsOptions shift = {"what would help", "questions", options->threads, options->progress};
  if (!ms_jobs_run_all(jobs, simulate, NULL, &shift, error)) return FALSE;
  for (guint i = 0; i < jobs->len; i++) {
    Job *job = &g_array_index(jobs, Job, i);
    if (!job->result) {
      g_propagate_error(error, g_steal_pointer(&job->error));
      return FALSE;
    }
    MsSensitivity *row = add_row(s, job->job.name, FALSE);
    row->step_time_s = job->result->step_time_s;
    row->gain = 1 - row->step_time_s / winner->result->step_time_s;
  }
  return TRUE;
}

/* --- the neighbourhood ----------------------------------------------------------------------------------------- */
typedef struct {
  const char *path;
  int value;
} Size;

static const MsOpenKey *open_key(const MsRequest *request, const char *path) {
  for (int i = 0; i < request->n_open; i++)
    if (strcmp(request->open[i].path, path) == 0) return &request->open[i];
  return NULL;
}

/* The planner searches what the request leaves out of its layout. */
static gboolean left_out(const MsRequest *request, const char *path) {
  if (!g_str_has_prefix(path, "layout.")) return FALSE;
  const MsField *field = ms_field_find(&ms_layout_table, path + strlen("layout."));
  return !((request->layout_given >> (field - ms_layout_table.fields)) & 1);
}

static void put_value(MsOpenKey *key, int value) {
  for (int i = 0; i < key->n; i++)
    if (json_node_get_int(key->values[i]) == value) return;
  key->values = g_renew(JsonNode *, key->values, key->n + 1);
  key->values[key->n] = json_node_init_int(json_node_alloc(), value);
  key->n++;
}

/* The nearest values of a list on either side of the centre, and the centre. */
static void from_list(MsOpenKey *to, const MsOpenKey *list, int centre) {
  int below = 0, above = 0;
  for (int i = 0; i < list->n; i++) {
    int v = (int)json_node_get_int(list->values[i]);
    if (v < centre && v > below) below = v;
    if (v > centre && (above == 0 || v < above)) above = v;
  }
  if (below > 0) put_value(to, below);
  put_value(to, centre);
  if (above > 0) put_value(to, above);
}

static void around(MsOpenKey *to, int centre) {
  if (centre % 2 == 0) put_value(to, centre / 2);
  put_value(to, centre);
  put_value(to, centre * 2);
}

static MsOpenKey *add_key(MsRequest *n, const char *path, const MsField *field) {
  n->open = g_renew(MsOpenKey, n->open, n->n_open + 1);
  n->open[n->n_open] = (MsOpenKey){.path = g_strdup(path), .field = field};
  return &n->open[n->n_open++];
}

static void open_size(MsRequest *n, const MsRequest *request, const Size *size) {
  const MsOpenKey *given = open_key(request, size->path);
  if (!given && !left_out(request, size->path)) return;
  gboolean layout = g_str_has_prefix(size->path, "layout.");
  const MsField *field = ms_field_find(layout ? &ms_layout_table : &ms_training_table, strchr(size->path, '.') + 1);
  MsOpenKey *key = add_key(n, size->path, field);
  if (given && given->n > 0) from_list(key, given, size->value);
  else around(key, size->value);
}

static void copy_key(MsRequest *n, const MsOpenKey *from) {
  MsOpenKey *key = add_key(n, from->path, from->field);
  for (key->n = 0; key->n < from->n; key->n++) {
    key->values = g_renew(JsonNode *, key->values, key->n + 1);
    key->values[key->n] = ms_json_copy(from->values[key->n]);
  }
}

/* Every size of the layout is settled now: by its neighbours or by the centre. */
static guint64 all_given(const MsRequest *request, const Size *size, int n) {
  guint64 given = request->layout_given;
  for (int i = 0; i < n; i++)
    if (g_str_has_prefix(size[i].path, "layout."))
      given |=
          (guint64)1 << (ms_field_find(&ms_layout_table, size[i].path + strlen("layout.")) - ms_layout_table.fields);
  return given;
}

MsRequest *ms_neighbourhood(const MsRequest *request, const MsScenario *centre, MsHardware *machine) {
  const MsLayoutSpec *l = &centre->layout;
  const Size size[] = {{"layout.tp", l->tp},
                       {"layout.cp", l->cp},
                       {"layout.pp", l->pp},
                       {"layout.vpp", l->vpp},
                       {"layout.ep", l->ep},
                       {"layout.etp", l->etp},
                       {"training.micro_batch_size", centre->training.micro_batch_size}};
  MsRequest *n = g_memdup2(request, sizeof *request);
  n->base = ms_scenario_copy(centre, TRUE);
  n->base->hardware = machine;
  if (!request->base->layout.pipeline_layout)
    g_clear_pointer(&n->base->layout.pipeline_layout, g_free); /* the planner's own: it balances again */
  if (request->base->options.sequence_parallel < 0) n->base->options.sequence_parallel = -1;
  n->n_open = 0, n->open = NULL;
  for (guint i = 0; i < G_N_ELEMENTS(size); i++) open_size(n, request, &size[i]);
  for (int i = 0; i < request->n_open; i++) {
    gboolean is_size = strcmp(request->open[i].path, "gpus") == 0; /* as many as the winner has */
    for (guint j = 0; j < G_N_ELEMENTS(size); j++) is_size |= strcmp(size[j].path, request->open[i].path) == 0;
    if (!is_size) copy_key(n, &request->open[i]);
  }
  n->layout_given = all_given(request, size, G_N_ELEMENTS(size));
  return n;
}

void ms_neighbourhood_free(MsRequest *n) {
  if (!n) return;
  for (int i = 0; i < n->n_open; i++) ms_open_key_clear(&n->open[i]);
  g_free(n->open);
  ms_scenario_free(n->base);
  g_free(n); /* the rest belongs to the request that it was made from */
}

/* --- more memory ----------------------------------------------------------------------------------------------- */
static gboolean planned_row(MsSensitivities *s, const Question *q, const MsRequest *request, const MsPlanEntry *winner,
                            const MsPlanOptions *options, GError **error) {
  Machines machines = machines_of(q, winner->scenario);
  MsRequest *near = ms_neighbourhood(request, winner->scenario, machines.of[0]);
  lend(&machines, near->base);
  MsPlanOptions one = *options;
  one.top = 1;
  g_autoptr(MsPlan) plan = ms_plan(near, &one, error);
  if (plan) {
    MsSensitivity *row = add_row(s, q->what, TRUE);
    row->step_time_s = winner->result->step_time_s;
    if (plan->n_best > 0 && plan->best[0].result->step_time_s < row->step_time_s) {
      row->step_time_s = plan->best[0].result->step_time_s;
      row->gain = 1 - row->step_time_s / winner->result->step_time_s;
      row->change = ms_compare(winner->scenario, winner->result, plan->best[0].scenario, plan->best[0].result);
    }
  }
  ms_neighbourhood_free(near);
  machines_clear(&machines);
  if (plan && plan->interrupted) g_set_error_literal(error, MS_ERROR, MS_ERROR_ENV, "interrupted");
  return plan && !plan->interrupted;
}

MS_ORDER(by_gain, MsSensitivity, MS_MORE(x->gain, y->gain), strcmp(x->what, y->what))

MsSensitivities *ms_sensitivities(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                                  GError **error) {
  g_autoptr(MsSensitivities) s = g_new0(MsSensitivities, 1);
  if (!simulated_rows(s, &plan->best[0], options, error)) return NULL;
  for (int i = 0; i < N_QUESTIONS; i++)
    if (questions[i].planned && !planned_row(s, &questions[i], request, &plan->best[0], options, error)) return NULL;
  qsort(s->row, (size_t)s->n, sizeof *s->row, by_gain);
  return g_steal_pointer(&s);
}

void ms_sensitivities_free(MsSensitivities *s) {
  if (!s) return;
  for (int i = 0; i < s->n; i++) {
    g_free(s->row[i].what);
    ms_comparison_free(s->row[i].change);
  }
  g_free(s->row);
  g_free(s);
}
