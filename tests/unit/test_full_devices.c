/* Every machine with every technique: it runs, or it is refused by the name of what the device cannot do. Where a
 * profile leaves a rate open (it was never published), the run is refused by the key until the user gives it, as this
 * test then does. */
#include "describe/sources.h"
#include "lib/close.h"

#include "base/err.h"
#include "lib/world.h"
#include "sim/simulate.h"

#include <string.h>

typedef struct {
  char *name;
  MsHardware *hardware;
} Machine;

static void machine_clear(Machine *m) { g_free(m->name), ms_hardware_free(m->hardware); }

static GArray *machines(void) {
  GArray *all = g_array_new(FALSE, FALSE, sizeof(Machine));
  g_autoptr(GPtrArray) files = ms_test_files("hardware");
  g_array_set_clear_func(all, (GDestroyNotify)(void (*)(void))machine_clear);
  for (guint i = 0; i < files->len; i++) {
    GError *error = NULL;
    MsHardware *h = ms_hardware_load(g_ptr_array_index(files, i), &error);
    if (!h) fail_msg("%s", error->message);
    g_array_append_val(all, ((Machine){g_strdup(h->name), h}));
  }
  return all;
}

static gboolean known(double x) { return x > 0 && isfinite(x); }

/* What the user would have to give; FALSE when nothing was missing. */
static gboolean fill(MsHardware *h) {
  gboolean missing = !known(h->peak_bf16_flops) || !known(h->nic_Bps) || !known(h->scaleup_Bps) ||
                     !known(h->host_link_Bps) || !known(h->peak_fp16_flops);
  if (!known(h->peak_bf16_flops)) h->peak_bf16_flops = 300e12;
  if (!known(h->peak_fp16_flops)) h->peak_fp16_flops = h->peak_bf16_flops;
  if (!known(h->nic_Bps)) h->nic_Bps = 25e9;
  if (!known(h->scaleup_Bps)) h->scaleup_Bps = 100e9;
  if (!known(h->host_link_Bps)) h->host_link_Bps = 25e9;
  return missing;
}

static MsScenario *run_on(const MsHardware *h) {
  MsScenario *s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 32);
  ms_hardware_free(s->hardware);
  s->hardware = ms_hardware_copy(h);
  s->model->num_layers = 8;
  s->layout.tp = 2, s->layout.pp = 2, s->layout.ep = 4;
  s->options.sequence_parallel = s->options.distributed_optimizer = s->options.overlap_grad_reduce =
      s->options.overlap_param_gather = TRUE;
  s->training.global_batch_size = 8 * 8;
  return s;
}

/* --- techniques, and what of the device they need -------------------------------------------------------------- */
typedef void (*Turn)(MsScenario *s, int i);
static void precision(MsScenario *s, int i) { s->training.precision = (MsPrecision)i; }
static void schedule(MsScenario *s, int i) { s->layout.schedule = (MsScheduleKind)i; }
static void dispatcher(MsScenario *s, int i) { s->options.dispatcher = (MsDispatcher)i; }
static void graphs(MsScenario *s, int i) { s->options.cuda_graph_scope = 1u << i; }
static void recompute(MsScenario *s, int i) {
  s->options.recompute =
      (MsRecomputeSpec){i ? MS_RECOMPUTE_FULL : MS_RECOMPUTE_SELECTIVE, i ? 0 : MS_RM_MOE_ACT, MS_RECOMPUTE_UNIFORM, 1};
}
static void fsdp(MsScenario *s, int i) { s->options.fsdp = (MsFsdp)i, s->layout.pp = 1; }
static void overlap(MsScenario *s, int i) {
  s->layout.vpp = 2, s->options.ep_overlap = TRUE, s->options.delay_wgrad = i;
}
static void offload(MsScenario *s, int i) {
  if (i == 0) s->options.offload_modules = MS_OM_EXPERT_FC1;
  else if (i == 1) s->options.optimizer_offload_fraction = 0.5;
  else s->options.offload_optimizer_states = TRUE;
}
static void other(MsScenario *s, int i) {
  switch (i) {
  case 0: s->options.tp_comm_overlap = TRUE; break;
  case 1: s->training.optimizer = MS_OPT_MUON; break;
  case 2: s->training.routing = (MsRouting){.kind = MS_ROUTING_ZIPF, .skew = 0.5, .seed = 1}; break;
  case 3: s->layout.cp = 2, s->layout.tp = 1, s->options.sequence_parallel = FALSE; break;
  case 4: s->options.moe_permute_fusion = FALSE; break;
  default:
    s->training.routing = (MsRouting){.kind = MS_ROUTING_CAPACITY, .capacity_factor = 1.2, .pad_to_capacity = TRUE};
    break;
  }
}

static gboolean has_precision(const MsHardware *h, int i) { return !(h->unsupported_precisions >> i & 1); }
static gboolean has_dispatcher(const MsHardware *h, int i) {
  return i == MS_DISPATCH_DEEPEP ? h->deepep : i == MS_DISPATCH_HYBRIDEP ? h->hybridep : TRUE;
}
static gboolean has_graphs(const MsHardware *h, int i) { return (void)i, h->cuda_graphs; }
static gboolean any(const MsHardware *h, int i) { return (void)h, (void)i, TRUE; }
static const char *const graph_words[] = {"cuda_graph_scope", "cuda_graph_scope", NULL};

static const struct {
  const char *what;
  Turn turn;
  int n;
  gboolean (*has)(const MsHardware *h, int i);
  const char *const *words; /* what the refusal names */
  const char *rule;
} techniques[] = {
    {"precision", precision, MS_N_PRECISIONS, has_precision, ms_precision_words, "(rule precision-on-hardware)"},
    {"schedule", schedule, MS_N_SCHEDULES, any, NULL, NULL},
    {"dispatcher", dispatcher, MS_DISPATCH_HYBRIDEP + 1, has_dispatcher, ms_dispatcher_words,
     "(rule dispatcher-on-hardware)"},
    {"graphs", graphs, 2, has_graphs, graph_words, "(rule graphs-on-hardware)"},
    {"recompute", recompute, 2, any, NULL, NULL},
    {"fsdp", fsdp, MS_FSDP_OPTIM_GRADS_PARAMS + 1, any, NULL, NULL},
    {"EP overlap", overlap, 2, any, NULL, NULL},
    {"offload", offload, 3, any, NULL, NULL},
    {"other", other, 6, any, NULL, NULL}};

static void check_run(const char *machine, const char *what, int i, const MsScenario *s) {
  GError *error = NULL;
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
  if (!full) fail_msg("%s, %s %d: %s", machine, what, i, error->message);
  g_autoptr(MsResult) bound = ms_simulate(s, MS_FIDELITY_BOUND, NULL, NULL);
  assert_true(isfinite(full->step_time_s) && full->step_time_s > 0);
  assert_true(bound->step_time_s <= full->step_time_s);
  assert_true(full->memory->stage[0].peak_B > 0);
}

static void check_refused(const char *machine, const char *word, const char *rule, const MsScenario *s) {
  GError *error = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
  if (r) fail_msg("%s runs %s", machine, word);
  assert_int_equal(error->code, MS_ERROR_INPUT);
  if (!strstr(error->message, word) || !strstr(error->message, machine) || !strstr(error->message, rule))
    fail_msg("%s: \"%s\" does not name %s and %s", machine, error->message, word, rule);
  g_clear_error(&error);
}

static void every_machine_with_every_technique(void **state) {
  (void)state;
  g_autoptr(GArray) all = machines();
  int ran = 0, refused = 0;
  assert_true(all->len >= 15);
  for (guint m = 0; m < all->len; m++) {
    Machine *at = &g_array_index(all, Machine, m);
    fill(at->hardware);
    for (guint t = 0; t < G_N_ELEMENTS(techniques); t++)
      for (int i = 0; i < techniques[t].n; i++) {
        g_autoptr(MsScenario) s = run_on(at->hardware);
        techniques[t].turn(s, i);
        if (techniques[t].has(at->hardware, i)) check_run(at->name, techniques[t].what, i, s), ran++;
        else check_refused(at->name, techniques[t].words[i], techniques[t].rule, s), refused++;
      }
  }
  assert_true(ran > 400 && refused > 40);
}

/* What no CUDA machine is: each of these is refused at least something, and runs the rest. */
static void machines_without_cuda_refuse_what_is_cuda(void **state) {
  (void)state;
  static const char *const names[] = {"mtt-s4000", "mtt-s5000", "ascend-910b", "ascend-910c", "mi300x"};
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    g_autoptr(MsHardware) h = ms_hardware_load(names[i], NULL);
    assert_non_null(h);
    assert_true(h->deepep == (strcmp(h->vendor, "AMD") == 0)); /* ported to ROCm alone */
    assert_false(h->hybridep || h->nvls || h->sharp);
    assert_false(has_precision(h, MS_NVFP4) || has_precision(h, MS_MXFP8));
  }
}

/* A rate that was never published, and is not assumed: the refusal is its key. */
static void unknown_rates_are_named(void **state) {
  (void)state;
  g_autoptr(GArray) all = machines();
  int named = 0;
  for (guint m = 0; m < all->len; m++) {
    const Machine *at = &g_array_index(all, Machine, m);
    ms_sources_forget_assumed(at->hardware);
    g_autoptr(MsScenario) s = run_on(at->hardware);
    s->options.offload_modules = MS_OM_EXPERT_FC1;
    GError *error = NULL;
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
    const char *key = !known(at->hardware->host_link_Bps)                                         ? "host_link_Bps"
                      : !known(at->hardware->peak_bf16_flops)                                     ? "peak_bf16_flops"
                      : !known(at->hardware->scaleup_Bps) && at->hardware->nvlink_domain_gpus > 1 ? "scaleup_Bps"
                      : !known(at->hardware->nic_Bps)                                             ? "nic_Bps"
                                                                                                  : NULL;
    if (!r && !key) fail_msg("%s: %s", at->name, error->message);
    if (key && (r || !strstr(error->message, key)))
      fail_msg("%s: %s, should name %s", at->name, r ? "runs" : error->message, key);
    if (key) named++;
    g_clear_error(&error);
  }
  assert_true(named >= 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_machine_with_every_technique),
                                     cmocka_unit_test(machines_without_cuda_refuse_what_is_cuda),
                                     cmocka_unit_test(unknown_rates_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
