/* src/logs/machine.c - benchmarks of a cluster as a machine file. */
#include "logs/machine.h"

#include "base/err.h"
#include "base/stats.h"
#include "base/quantity.h"
#include "base/text.h"
#include "calib/fit.h"
#include "calib/solve.h"
#include "cost/bench.h"
#include "describe/sources.h"
#include "describe/vendor.h"

#include <math.h>
#include <string.h>

typedef struct {
  const MsLogsMachine *options;
  MsScenario scenario; /* hardware and laws only */
  MsHardware *hardware;
  GArray *curves;  /* MsCurve */
  GPtrArray *data; /* of what: sources of all curves together */
  GPtrArray *notes;
  double nic_Bps;
  char *nic_source;
} Work;

static void note(Work *w, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void note(Work *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_ptr_array_add(w->notes, g_strdup_vprintf(format, args));
  va_end(args);
}

static MsGroup group_of(const Work *w, const MsBench *b) {
  return ms_bench_group(w->hardware, b->ranks, b->hosts > 0 ? (b->ranks + b->hosts - 1) / b->hosts : 0);
}

static gboolean is_message(const MsBench *b) { return strcmp(b->op, "link") != 0 && strcmp(b->op, "memory") != 0; }
static gboolean crosses(const Work *w, const MsBench *b) { return is_message(b) && group_of(w, b).domains > 1; }

/* "4 logs, all_reduce among 8 and 16 ranks" is the caller's; of one log: its file, device and size of the group. */
static char *data_of(const MsBench *b) {
  g_autofree char *on = b->device ? g_strdup_printf(" of %s", b->device) : g_strdup("");
  if (!is_message(b)) return g_strdup_printf("%s: %u rows", b->file, b->rows->len);
  g_autofree char *hosts = b->hosts > 0 ? g_strdup_printf(" on %d host%s", b->hosts, b->hosts > 1 ? "s" : "") : NULL;
  return g_strdup_printf("%s: %u sizes of %s among %d ranks%s%s", b->file, b->rows->len, b->op, b->ranks, on,
                         hosts ? hosts : "");
}

static void add_curve(Work *w, MsCurve *curve, char *data) {
  curve->sustained = 1;
  curve->provenance.data = g_strdup(data);
  curve->provenance.command = g_strdup(w->options->command);
  curve->provenance.date = g_strdup(w->options->date);
  g_array_append_val(w->curves, *curve);
  g_ptr_array_add(w->data, data);
}

static char *data_of_all(const GPtrArray *benches) {
  GString *text = g_string_new(NULL);
  for (guint k = 0; k < benches->len; k++) {
    g_autofree char *one = data_of(benches->pdata[k]);
    g_string_append_printf(text, "%s%s", k ? "; " : "", one);
  }
  return g_string_free(text, FALSE);
}

/* --- one scale-up domain: as moesim fit does ------------------------------------------------------------------- */
static gboolean is_inside(const Work *w, const MsBench *b) {
  return is_message(b) && strcmp(b->op, "p2p") != 0 && !crosses(w, b);
}

/* The logs of the collective and the ranks of that at `first`; NULL: one in front of it has them, too. (transfer
 * container) */
static GPtrArray *group_from(const Work *w, const GPtrArray *benches, guint first) {
  const MsBench *own = benches->pdata[first];
  GPtrArray *group = g_ptr_array_new();
  for (guint i = 0; i < benches->len; i++) {
    MsBench *b = benches->pdata[i];
    if (is_inside(w, b) && strcmp(b->op, own->op) == 0 && b->ranks == own->ranks) g_ptr_array_add(group, b);
  }
  if (group->len > 0 && group->pdata[0] != own) g_clear_pointer(&group, g_ptr_array_unref);
  return group;
}

static void add_rows(const MsBench *b, GArray *rows) {
  for (guint i = 0; i < b->rows->len; i++) {
    const MsBenchRow *row = &g_array_index(b->rows, MsBenchRow, i);
    MsRow as = {.x = {row->size_B, b->ranks}, .time_s = row->time_s};
    g_array_append_val(rows, as);
  }
}

/* Logs of one collective among as many ranks. */
static gboolean fit_inside(Work *w, const GPtrArray *group, GError **error) {
  const MsBench *b = group->pdata[0];
  MsSeries series = {.kind = MS_ROW_COLLECTIVE,
                     .key = {.op = b->op, .level = "nvlink", .ranks = b->ranks},
                     .dtype = MS_ODT_BF16,
                     .file = b->file,
                     .gpu = (char *)"",
                     .library = (char *)"",
                     .rows = g_array_new(FALSE, FALSE, sizeof(MsRow))};
  const MsDeviceRates rates = {1, 1, 1};
  const MsFitContext context = {.launch_s = NAN, .wire_Bps = NAN};
  MsCurve curve = {0};
  g_autofree char *why = NULL;
  for (guint k = 0; k < group->len; k++) add_rows(group->pdata[k], series.rows);
  ms_series_merge(series.rows);
  guint sizes = series.rows->len;
  gboolean ok = ms_fit_series(&series, &rates, &context, &curve, &why);
  g_array_unref(series.rows);
  if (!ok) return ms_input_error(error, b->file, 0, NULL, "%s", why);
  const char *error_text = isnan(curve.provenance.residual_median)
                               ? "too few to tell how well the curve fits"
                               : MS_FORMAT("median error %.1f %%", 100 * curve.provenance.residual_median);
  note(w, "%s among %d ranks of a domain: %u sizes, %s", b->op, b->ranks, sizes, error_text);
  add_curve(w, &curve, data_of_all(group));
  return TRUE;
}

/* --- over the network, and messages: one step and one rate ----------------------------------------------------- */
typedef struct {
  Work *work;
  MsScenario scenario;
  MsHardware hardware;
  const char *op, *level;
  MsCurve *curves;    /* of `hardware`: ours in front of the base's */
  GPtrArray *benches; /* MsBench, not owned */
  guint n;
  guint *of, *row; /* which bench, which row */
} Level;

static double predicted(const Level *l, guint i) {
  const MsBench *b = l->benches->pdata[l->of[i]];
  MsGroup group = group_of(l->work, b);
  return ms_bench_collective_s(&l->scenario, l->op, &group, g_array_index(b->rows, MsBenchRow, l->row[i]).size_B);
}

static double measured(const Level *l, guint i) {
  const MsBench *b = l->benches->pdata[l->of[i]];
  return g_array_index(b->rows, MsBenchRow, l->row[i]).time_s;
}

static double residual(const double *p, guint i, const void *data) {
  Level *l = (Level *)data; /* the curve that the model reads is ours to change */
  l->curves[0].segment_alpha_s[0] = p[0], l->curves[0].segment_Bps[0] = p[1];
  return log(predicted(l, i) / measured(l, i));
}

static void collect(Level *l, const GPtrArray *benches) {
  guint rows = 0;
  l->benches = g_ptr_array_new();
  for (guint k = 0; k < benches->len; k++) {
    MsBench *b = benches->pdata[k];
    gboolean network = crosses(l->work, b);
    if (strcmp(b->op, l->op) == 0 && network == (strcmp(l->level, "network") == 0))
      g_ptr_array_add(l->benches, b), rows += b->rows->len;
  }
  l->of = g_new(guint, rows + 1), l->row = g_new(guint, rows + 1);
  for (guint k = 0; k < l->benches->len; k++)
    for (guint i = 0; i < ((const MsBench *)l->benches->pdata[k])->rows->len; i++) l->of[l->n] = k, l->row[l->n++] = i;
}

/* The machine with our curve in place of the base's of that collective and level. */
static void place(Level *l) {
  const MsHardware *base = l->work->hardware;
  l->hardware = *base;
  l->hardware.curves = l->curves = g_new0(MsCurve, base->num_curves + 1);
  l->curves[0] = (MsCurve){
      .op = (char *)l->op, .level = (char *)l->level, .form = MS_FORM_SEGMENTS, .sustained = 1, .n_segments = 1};
  l->hardware.num_curves = 1;
  for (int i = 0; i < base->num_curves; i++)
    if (strcmp(base->curves[i].op, l->op) != 0 || g_strcmp0(base->curves[i].level, l->level) != 0)
      l->curves[l->hardware.num_curves++] = base->curves[i];
  l->scenario = l->work->scenario;
  l->scenario.hardware = &l->hardware;
}

static void residuals(const Level *l, MsProvenance *p) {
  g_autofree double *miss = g_new(double, l->n + 1);
  for (guint i = 0; i < l->n; i++) miss[i] = fabs(predicted(l, i) / measured(l, i) - 1);
  p->residual_median = ms_quantile(miss, l->n, 0.5), p->residual_p90 = ms_quantile(miss, l->n, 0.9);
}

static void report_level(Work *w, const Level *l, const MsCurve *c) {
  double most = w->scenario.laws.network_share * w->hardware->nic_Bps;
  note(w, "%s over %s: %u sizes, %.3g us a step, %.4g GB/s%s, median error %.1f %%", l->op,
       strcmp(l->level, "network") == 0 ? "the network" : "the scale-up link", l->n, 1e6 * c->segment_alpha_s[0],
       c->segment_Bps[0] / 1e9, strcmp(l->level, "network") == 0 ? " a NIC" : "", 100 * c->provenance.residual_median);
  if (strcmp(l->level, "network") == 0 && c->segment_Bps[0] >= 0.999 * most)
    note(w, "%s is as fast as %.0f %% of nic_Bps of %s allow, or faster: is %.4g GB/s a GPU right?", l->op,
         100 * w->scenario.laws.network_share, w->options->base, w->hardware->nic_Bps / 1e9);
}

/* Nothing where there is no such log. */
static void fit_level(Work *w, const GPtrArray *benches, const char *op, const char *level) {
  Level l = {.work = w, .op = op, .level = level};
  collect(&l, benches);
  if (l.n > 0) {
    place(&l);
    gboolean network = strcmp(level, "network") == 0;
    double wire = network ? w->scenario.laws.network_share * w->hardware->nic_Bps : w->hardware->scaleup_Bps;
    if (!(wire > 0)) wire = 1e11;
    const MsBound bound[] = {{1e-7, 1e-2, TRUE}, {1e6, wire, TRUE}};
    const double starts[][MS_MAX_PARAMS] = {{5e-6, wire * 0.8}, {2e-5, wire * 0.4}, {2e-6, wire * 0.1}};
    double p[MS_MAX_PARAMS] = {0};
    ms_solve(2, bound, l.n, residual, &l, 3, starts, p);
    p[0] = ms_round_digits(p[0], 4), p[1] = ms_round_digits(p[1], 4);
    residual(p, 0, &l);
    MsCurve curve = {.op = g_strdup(op), .level = g_strdup(level), .form = MS_FORM_SEGMENTS, .n_segments = 1};
    curve.segment_alpha_s[0] = p[0], curve.segment_Bps[0] = p[1];
    curve.provenance = (MsProvenance){.form = g_strdup("one ring step and one rate, through the cost model of "
                                                       "collectives"),
                                      .cast_launch_s = NAN,
                                      .cast_bw_efficiency = NAN,
                                      .n_fitted = l.n};
    residuals(&l, &curve.provenance);
    report_level(w, &l, &curve);
    add_curve(w, &curve, data_of_all(l.benches));
    g_free(l.curves);
  }
  g_ptr_array_unref(l.benches), g_free(l.of), g_free(l.row);
}

/* --- a NIC, memory --------------------------------------------------------------------------------------------- */
static double best_rate(const MsBench *b) {
  double best = 0;
  for (guint i = 0; i < b->rows->len; i++) {
    const MsBenchRow *row = &g_array_index(b->rows, MsBenchRow, i);
    best = MAX(best, row->size_B / row->time_s);
  }
  return best;
}

static void take_link(Work *w, const MsBench *b) {
  double rate = ms_round_digits(best_rate(b), 4);
  if (w->nic_Bps > 0 && rate >= w->nic_Bps) return; /* the slowest NIC decides */
  w->nic_Bps = rate;
  g_free(w->nic_source);
  w->nic_source = g_strdup_printf("%s: largest of %u averages of perftest; one NIC a GPU", b->file, b->rows->len);
  note(w, "a NIC carries %.4g GB/s (%s has %.4g); one NIC a GPU is taken", rate / 1e9, w->options->base,
       w->hardware->nic_Bps / 1e9);
}

/* Where several logs are of memory, the slowest decides, as of NICs. */
static double slowest_memory(const GPtrArray *benches) {
  double slowest = INFINITY;
  for (guint i = 0; i < benches->len; i++) slowest = MIN(slowest, best_rate(benches->pdata[i]));
  return slowest;
}

static void add_memory_curve(Work *w, const char *op, double share, const GPtrArray *benches) {
  const MsBench *first = benches->pdata[0];
  MsCurve curve = {.op = g_strdup(op), .form = MS_FORM_BANDWIDTH};
  curve.param[MS_B_E] = ms_round_digits(share, 4), curve.param[MS_B_LAUNCH] = w->scenario.laws.default_memory_launch_s;
  curve.provenance = (MsProvenance){.form = g_strdup_printf("best rate of %s over hbm_Bps", first->by),
                                    .cast_launch_s = NAN,
                                    .cast_bw_efficiency = NAN,
                                    .n_fitted = first->rows->len,
                                    .residual_median = NAN,
                                    .residual_p90 = NAN};
  add_curve(w, &curve, data_of_all(benches));
}

/* `benches`: the logs of memory. */
static gboolean take_memory(Work *w, const GPtrArray *benches, GError **error) {
  static const char *const kernels[] = {"elementwise", "copy", "add"};
  if (benches->len == 0) return TRUE;
  double rate = slowest_memory(benches), share = rate / w->hardware->hbm_Bps;
  if (!(share > 0 && share <= 1))
    return ms_input_error(error, ((const MsBench *)benches->pdata[0])->file, 0, NULL,
                          "%.4g GB/s is above hbm_Bps of %s, %.4g GB/s", rate / 1e9, w->options->base,
                          w->hardware->hbm_Bps / 1e9);
  for (gsize i = 0; i < G_N_ELEMENTS(kernels); i++) add_memory_curve(w, kernels[i], share, benches);
  note(w, "memory reaches %.0f %% of hbm_Bps", 100 * share);
  return TRUE;
}

/* --- logs that are not of this machine, or count already ------------------------------------------------------- */
/* "h100" of h100-sxm, "s5000" of mtt-s5000: the first word of a machine's name that has a digit. NULL: none has.
 * (transfer full) */
static char *chip_of(const char *machine) {
  g_auto(GStrv) words = g_strsplit(machine, "-", -1);
  for (int i = 0; words[i]; i++)
    if (strpbrk(words[i], "0123456789")) return g_strdup(words[i]);
  return NULL;
}

/* "NVIDIA H100 80GB HBM3" has h100, and neither h10 nor h1000. */
static gboolean has_chip(const char *device, const char *chip) {
  g_autofree char *lower = g_ascii_strdown(device, -1);
  g_auto(GStrv) words = g_strsplit_set(lower, " -_/()", -1);
  return g_strv_contains((const char *const *)words, chip);
}

static gboolean is_of_arch(const char *shipped, const MsHardware *h) {
  g_autoptr(MsHardware) other = ms_hardware_load(shipped, NULL);
  return !other || !other->arch || !h->arch || strcmp(other->arch, h->arch) == 0;
}

/* Of a GPU that no shipped machine is called after nothing is known; of a machine that is called after none, its
 * architecture tells. */
static gboolean is_another_chip(const char *device, const MsHardware *h) {
  g_autoptr(GPtrArray) shipped = ms_data_names("hardware");
  g_autofree char *own = chip_of(h->name);
  gboolean is_shipped = FALSE, is_known = FALSE, alike = FALSE;
  for (guint i = 0; own && i + 1 < shipped->len; i++) {
    g_autofree char *chip = chip_of(shipped->pdata[i]);
    is_shipped |= g_strcmp0(chip, own) == 0;
  }
  for (guint i = 0; i + 1 < shipped->len; i++) {
    g_autofree char *chip = chip_of(shipped->pdata[i]);
    if (!chip || !has_chip(device, chip)) continue;
    is_known = TRUE;
    alike |= is_shipped ? strcmp(chip, own) == 0 : is_of_arch(shipped->pdata[i], h);
  }
  return is_known && !alike;
}

static gboolean is_of_machine(const Work *w, const MsBench *b, GError **error) {
  const MsVendorRow *vendor = ms_vendor_of_log(b->device, b->by), *known = ms_vendor(w->hardware);
  gboolean other = vendor && known && vendor != known;
  if (!other && !(b->device && is_another_chip(b->device, w->hardware))) return TRUE;
  return ms_input_error(error, b->file, 0, NULL,
                        "is of %s, not of %s: --hardware names the machine that the logs are of",
                        b->device ? b->device : vendor->word, w->options->base);
}

enum { TELLING_ROWS = 3 }; /* so many times are not the same by chance */

static gboolean is_copy(const MsBench *a, const MsBench *b) {
  return strcmp(a->op, b->op) == 0 && a->ranks == b->ranks && a->rows->len >= TELLING_ROWS &&
         a->rows->len == b->rows->len && memcmp(a->rows->data, b->rows->data, a->rows->len * sizeof(MsBenchRow)) == 0;
}

/* The same measurement twice would count as two. */
static gboolean counts_once(const GPtrArray *benches, guint at, GError **error) {
  const MsBench *own = benches->pdata[at];
  for (guint i = 0; i < at; i++) {
    const MsBench *other = benches->pdata[i];
    if (is_copy(own, other))
      return ms_input_error(error, own->file, 0, NULL, "has the times of %s: give each measurement once", other->file);
  }
  return TRUE;
}

/* --- the file -------------------------------------------------------------------------------------------------- */
static void put_curves(const Work *w, MsJsonOut *out) {
  ms_json_out_array(out, "curves");
  for (guint i = 0; i < w->curves->len; i++)
    ms_fields_object(&ms_curve_table, &g_array_index(w->curves, MsCurve, i), FALSE, NULL, out);
  ms_json_out_end(out);
}

static char *machine_text(const Work *w) {
  MsJsonOut *out = ms_json_out_new(1);
  g_autofree char *base = ms_mentioned_path(w->options->base, "-"),
                  *name = w->options->name ? NULL : g_strconcat(w->hardware->name, "-measured", NULL);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "schema", 1);
  ms_json_out_string(out, "name", name ? name : w->options->name);
  ms_json_out_string(out, "base", base);
  if (w->nic_Bps > 0) ms_json_out_double(out, "nic_Bps", w->nic_Bps);
  if (w->curves->len > 0) put_curves(w, out);
  ms_json_out_object(out, "sources");
  if (w->nic_source) ms_source_put_measured(out, "nic_Bps", w->nic_source);
  if (w->data->len > 0) {
    g_ptr_array_add(w->data, NULL);
    g_autofree char *all = g_strjoinv("; ", (char **)w->data->pdata);
    ms_source_put_measured(out, "curves", all);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

static gboolean take_alone(Work *w, const GPtrArray *benches, GError **error) {
  g_autoptr(GPtrArray) memory = g_ptr_array_new();
  for (guint i = 0; i < benches->len; i++) {
    MsBench *b = benches->pdata[i];
    if (strcmp(b->op, "link") == 0) take_link(w, b);
    else if (strcmp(b->op, "memory") == 0) g_ptr_array_add(memory, b);
  }
  return take_memory(w, memory, error);
}

static gboolean convert(Work *w, const GPtrArray *benches, GError **error) {
  static const char *const ops[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"};
  for (guint i = 0; i < benches->len; i++)
    if (!is_of_machine(w, benches->pdata[i], error) || !counts_once(benches, i, error)) return FALSE;
  if (!take_alone(w, benches, error)) return FALSE;
  for (guint i = 0; i < benches->len; i++) {
    g_autoptr(GPtrArray) group = group_from(w, benches, i);
    if (group && group->len > 0 && !fit_inside(w, group, error)) return FALSE;
  }
  fit_level(w, benches, "p2p", "nvlink");
  for (gsize i = 0; i < G_N_ELEMENTS(ops); i++) fit_level(w, benches, ops[i], "network");
  return TRUE;
}

char *ms_logs_machine(const GPtrArray *benches, const MsLogsMachine *options, GPtrArray *notes, GError **error) {
  Work w = {.options = options, .notes = notes};
  char *text = NULL;
  w.hardware = ms_hardware_load(options->base, error);
  if (!w.hardware || !ms_laws_load(&w.scenario.laws, error)) return ms_hardware_free(w.hardware), NULL;
  w.scenario.hardware = w.hardware;
  w.curves = g_array_new(FALSE, TRUE, sizeof(MsCurve));
  w.data = g_ptr_array_new_with_free_func(g_free);
  if (convert(&w, benches, error)) text = machine_text(&w);
  for (guint i = 0; i < w.curves->len; i++) ms_fit_curve_clear(&g_array_index(w.curves, MsCurve, i));
  g_array_unref(w.curves);
  g_ptr_array_unref(w.data);
  g_free(w.nic_source);
  ms_hardware_free(w.hardware);
  return text;
}
