/* src/local/profile.c - curves and facts as the text of a profile, and whether to trust them. */
#include "local/calibrate.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/stats.h"
#include "calib/fit.h"

/* --- the machine itself ---------------------------------------------------------------------------------------- */
typedef struct {
  double peak_flops, copy_Bps, link_Bps;
  double reference_flops, kernel_jitter; /* 0, NaN: not measured */
  const char *date;
} Rates;

static void source(MsJsonOut *out, const char *key, const char *format, ...) G_GNUC_PRINTF(3, 4);
static void source(MsJsonOut *out, const char *key, const char *format, ...) {
  va_list list;
  va_start(list, format);
  g_autofree char *text = g_strdup_vprintf(format, list);
  va_end(list);
  ms_json_out_string(out, key, text);
}

static void put_facts(MsJsonOut *out, const MsMachine *m, const Rates *r) {
  static const char *const zero[] = {"kernel_launch_s", "graph_launch_s", "sync_s", "context_B"};
  g_autofree char *doc = g_strdup_printf("%s, %d cores, L2 %.0f KiB, L3 %.0f MiB; %s. A device is one core; the "
                                         "executor of moesim stores and computes in float what its lists "
                                         "count as BF16, so \"BF16\" here means its float kernels.",
                                         m->cpu, m->cores, m->l2_B / 1024, m->l3_B / 1048576, m->blas);
  ms_json_out_int(out, "schema", 1);
  ms_json_out_string(out, "name", "local");
  ms_json_out_string(out, "doc", doc);
  ms_json_out_string(out, "arch", m->cpu);
  ms_json_out_double(out, "peak_bf16_flops", r->peak_flops);
  ms_json_out_double(out, "peak_fp32_flops", r->peak_flops);
  ms_json_out_array(out, "unsupported_precisions");
  for (int p = 0; p < MS_N_PRECISIONS; p++)
    if (p != ms_precision_of(16, MS_DT_BF16)) ms_json_out_string(out, NULL, ms_precision_words[p]);
  ms_json_out_end(out);
  ms_json_out_double(out, "hbm_B", MAX(1, floor(m->memory_B / MAX(m->cores, 1))));
  ms_json_out_double(out, "hbm_Bps", r->copy_Bps);
  if (m->l2_B > 0) ms_json_out_double(out, "l2_B", m->l2_B);
  ms_json_out_int(out, "gpus_per_node", MAX(m->cores, 1));
  ms_json_out_int(out, "nvlink_domain_gpus", MAX(m->cores, 1));
  ms_json_out_string(out, "scaleup", "shared memory");
  ms_json_out_double(out, "scaleup_Bps", r->link_Bps);
  ms_json_out_double(out, "nic_Bps", r->link_Bps);
  ms_json_out_bool(out, "cuda_graphs", FALSE);
  ms_json_out_bool(out, "serial", TRUE);
  for (gsize i = 0; i < G_N_ELEMENTS(zero); i++) ms_json_out_int(out, zero[i], 0);
  ms_json_out_int(out, "reserve_ratio", 1);
  if (r->reference_flops > 0) ms_json_out_double(out, "reference_flops", r->reference_flops);
  if (r->kernel_jitter >= 0)
    ms_json_out_double(out, "kernel_jitter", ms_round_digits(MIN(r->kernel_jitter, MS_MOST_JITTER), 3));
  ms_json_out_int(out, "clock_spread", 0);
}

static void put_sources(MsJsonOut *out, const MsMachine *m, const Rates *r) {
  ms_json_out_object(out, "sources");
  source(out, "peak_bf16_flops",
         "moesim calibrate, %s: the fastest product of float matrices measured (%s) and 2 %%: a bound, no data-sheet "
         "figure",
         r->date, m->blas);
  source(out, "hbm_B", "/proc/meminfo over the cores");
  source(out, "hbm_Bps", "moesim calibrate, %s: a copy of 64 MiB, bytes read and written", r->date);
  source(
      out, "scaleup_Bps",
      "moesim calibrate, %s: the fastest message between two processes and 2 %%; a network (nic_Bps) was not measured",
      r->date);
  source(out, "serial",
         "Open MPI moves messages on the cores that compute: beside a product nothing of them is hidden (measured, "
         "docs/theory/fast-matmul.md 4)");
  source(out, "kernel_launch_s", "rows are timed from call to return, so their curves hold it");
  if (r->reference_flops > 0)
    source(out, "reference_flops",
           "moesim calibrate, %s: the product of 384 x 384 between the steps at its fastest; all curves are brought to "
           "that speed",
           r->date);
  if (r->kernel_jitter >= 0)
    source(out, "kernel_jitter",
           "moesim calibrate, %s: products of 512 x 512 on two cores at the same time, standard deviation from one to "
           "the other over their mean; the median of some places between the messages",
           r->date);
  source(out, "clock_spread", "no core has a lasting speed of its own: what differs for a moment is kernel_jitter");
  ms_json_out_end(out);
}

static char *facts_text(const MsMachine *machine, const Rates *rates, gboolean sources) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_object(out, NULL);
  put_facts(out, machine, rates);
  if (sources) put_sources(out, machine, rates);
  ms_json_out_array(out, "curves");
  ms_json_out_end(out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

char *ms_local_bare_profile(const MsMachine *machine) {
  return facts_text(machine, &(Rates){1e12, 1e12, 1e12, 0, NAN, ""}, FALSE);
}

/* --- rates that bound everything ------------------------------------------------------------------------------- */
static Rates rates_of(const MsRowSample *sample, guint n, const MsLocalFacts *facts) {
  Rates r = {.copy_Bps = facts->copy_Bps, .kernel_jitter = facts->kernel_jitter, .date = facts->date};
  for (guint i = 0; i < n; i++) {
    const MsRowSample *s = &sample[i];
    MsOpFamily family = ms_op_families[s->op.kind];
    r.reference_flops = MAX(r.reference_flops, s->reference_flops);
    if (family == MS_FAMILY_GEMM || family == MS_FAMILY_GROUPED)
      r.peak_flops = MAX(r.peak_flops, s->op.flop / s->time_s);
    if (family == MS_FAMILY_COMM) r.link_Bps = MAX(r.link_Bps, ms_row_bus_B(s) / s->time_s);
  }
  r.peak_flops = MAX(r.peak_flops, r.reference_flops); /* products so small that none is as fast: none is faster */
  r.peak_flops = ms_round_digits(1.02 * r.peak_flops, 4), r.copy_Bps = ms_round_digits(r.copy_Bps, 4);
  r.link_Bps = r.link_Bps > 0 ? ms_round_digits(1.02 * r.link_Bps, 4) : r.copy_Bps;
  return r;
}

/* --- whether to trust it --------------------------------------------------------------------------------------- */
static void judge(MsLocalProfile *p, MsRepeat repeat) {
  if (repeat.n > 0 && repeat.median > MS_TRUST_REPEAT)
    g_ptr_array_add(p->distrust, g_strdup_printf("the machine is too busy: the second fastest run of a row takes %.0f "
                                                 "%% longer than the fastest (median), limit %.0f %%",
                                                 100 * repeat.median, 100 * MS_TRUST_REPEAT));
  for (guint i = 0; i < p->curves->len; i++) {
    const MsRowCurve *c = &g_array_index(p->curves, MsRowCurve, i);
    gboolean message = c->curve.form == MS_FORM_SEGMENTS;
    double off = c->curve.provenance.residual_median, limit = message ? MS_TRUST_MESSAGE : MS_TRUST_STEP;
    if (!((message ? off : c->share * off) > limit)) continue;
    g_autofree char *name = ms_row_curve_name(&c->curve);
    g_autofree char *of_step =
        message ? g_strdup("") : g_strdup_printf(", which is %.1f %% of a step", 100 * c->share * off);
    g_ptr_array_add(p->distrust,
                    g_strdup_printf("%s: shapes held back are off by %.0f %% (median of %.0f)%s, limit %.0f %%", name,
                                    100 * off, c->curve.provenance.n_held_back, of_step, 100 * limit));
  }
}

/* --- the whole ------------------------------------------------------------------------------------------------- */
/* What no row was measured of (state-space scans, a sort) is as fast as what was, per byte: one curve over all
 * memory-bound rows. */
static void add_elementwise(GArray *curves, const MsRowSample *sample, guint n, const char *data,
                            const MsLocalFacts *facts) {
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsRowSample));
  for (guint i = 0; i < n; i++) {
    MsRowSample s = sample[i];
    if (ms_op_families[s.op.kind] != MS_FAMILY_MEMORY || s.op.read_B + s.op.write_B <= 0) continue;
    s.op = (MsOp){.name = "elementwise",
                  .kind = MS_OP_COPY,
                  .pass = MS_PASS_OPTIMIZER,
                  .dtype = MS_ODT_BF16,
                  .groups = 1,
                  .read_B = s.op.read_B,
                  .write_B = s.op.write_B};
    g_array_append_val(all, s);
  }
  GArray *one = ms_fit_rows((const MsRowSample *)(void *)all->data, all->len, data, facts->command, facts->date, NULL);
  for (guint i = 0; i < one->len; i++) {
    MsRowCurve c = g_array_index(one, MsRowCurve, i);
    g_free(c.curve.op);
    c.curve.op = g_strdup("elementwise");
    c.curve.provenance.note = g_strdup("serves operators that no measured step has");
    c.share = 0;
    g_array_append_val(curves, c);
  }
  g_array_unref(one); /* the curves moved */
}

/* Copies at the speed of the fastest reference; samples without one as they are. (transfer full) */
static MsRowSample *same_speed(const MsRowSample *sample, guint n, MsLocalProfile *p) {
  MsRowSample *same = g_memdup2(sample, n * sizeof *sample);
  for (guint i = 0; i < n; i++) {
    double flops = sample[i].reference_flops;
    if (!(flops > 0)) continue;
    p->reference_flops = MAX(p->reference_flops, flops);
    p->slowest_flops = p->slowest_flops > 0 ? MIN(p->slowest_flops, flops) : flops;
  }
  for (guint i = 0; i < n; i++) {
    double slower = sample[i].reference_flops / p->reference_flops;
    if (slower > 0) same[i].time_s *= slower, same[i].share *= slower;
  }
  return same;
}

MsLocalProfile *ms_local_profile(const MsRowSample *measured, guint n, const MsLocalFacts *facts, MsRepeat row_repeat,
                                 GError **error) {
  MsLocalProfile *p = g_new0(MsLocalProfile, 1);
  p->notes = g_ptr_array_new_with_free_func(g_free);
  p->distrust = g_ptr_array_new_with_free_func(g_free);
  g_autofree MsRowSample *sample = same_speed(measured, n, p);
  g_autofree char *data =
      g_strdup_printf("reduced steps and messages run on this machine (doc), reference %.4g to %.4g "
                      "GFLOP/s, brought to the latter",
                      p->slowest_flops / 1e9, p->reference_flops / 1e9);
  p->curves = ms_fit_rows(sample, n, data, facts->command, facts->date, p->notes);
  if (p->curves->len == 0) {
    ms_input_error(error, NULL, 0, NULL, "nothing was measured that a curve could be fitted to");
    ms_local_profile_free(p);
    return NULL;
  }
  add_elementwise(p->curves, sample, n, data, facts);
  judge(p, row_repeat);
  Rates rates = rates_of(sample, n, facts);
  g_autofree char *text = facts_text(facts->machine, &rates, TRUE);
  g_autoptr(GPtrArray) curves = g_ptr_array_new();
  for (guint i = 0; i < p->curves->len; i++) g_ptr_array_add(curves, &g_array_index(p->curves, MsRowCurve, i).curve);
  p->text = ms_profile_edit(text, "local.json", curves, NULL, error);
  if (!p->text) g_clear_pointer(&p, ms_local_profile_free);
  return p;
}

void ms_local_profile_free(MsLocalProfile *p) {
  if (!p) return;
  g_free(p->text);
  ms_row_curves_free(p->curves);
  g_ptr_array_unref(p->notes);
  g_ptr_array_unref(p->distrust);
  g_free(p);
}
