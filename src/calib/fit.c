/* src/calib/fit.c - a profile's curves from tables of measurements: which rows, which curve, what follows from them. */
#include "calib/fit_priv.h"

#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/stats.h"
#include "describe/scenario.h"

#include <math.h>
#include <string.h>

static const double most_scatter = 0.2; /* median error on points held back, beyond which rows teach nothing */

typedef struct {
  const MsFitOptions *options;
  MsHardware *hardware, *like; /* like: NULL when there is none */
  char *file;                  /* of the profile */
  GPtrArray *series;           /* MsSeries */
  GPtrArray *members;          /* for ms_profile_edit */
  MsFit *fit;
  MsLaws laws;
  MsProgress *progress;
  int fitted; /* series so far */
} Work;

/* --- which rows ------------------------------------------------------------------------------------------------ */
/* Best first; "*" matches anything. Own tables ("") and a consensus come first where rows are the kernel alone. */
static const struct {
  const char *op, *dtype;
  int head_dim;
  const char *library[7];
} prefer[] = {{"gemm", "bf16", 0, {"", "consensus", "trtllm*", "sglang*"}},
              {"gemm", NULL, 0, {"", "trtllm*", "sglang*", "consensus"}}, /* sources differ by 30 to 150 % */
              {"grouped_gemm", NULL, 0, {"", "trtllm*cutlass", "trtllm*deepgemm", "trtllm*moe_torch_flow"}},
              {"attention",
               NULL,
               192,
               {"", "sglang*trtllm_mla", "trtllm*default", "vllm*flash_attn_mla", "sglang*fa3",
                "sglang*trtllm_mha"}}, /* MLA not absorbed; then plain heads of that width, a third slower on Hopper */
              {"attention",
               NULL,
               0,
               {"", "sglang*fa3", "sglang*trtllm_mha", "sglang*flash_attention",
                "vllm*"}}, /* trtllm rows hold RoPE and the cache write */
              {"delta_rule",
               NULL,
               0,
               {"", "sglang*chunk_gated_delta_rule", "trtllm*chunk_gated_delta_rule",
                "vllm*chunk_gated_delta_rule"}}, /* the Triton kernel that training uses */
              {"quantize", NULL, 0, {"", "vllm*static_scaled*", "trtllm*"}},
              {"dispatch", NULL, 0, {"", "trtllm*TwoSided", "*"}},
              {"combine", NULL, 0, {"", "trtllm*TwoSided", "*"}}};

int ms_fit_preference(const MsSeries *series) {
  const MsCurveKey *key = &series->key;
  for (size_t i = 0; i < G_N_ELEMENTS(prefer); i++) {
    if (strcmp(prefer[i].op, key->op) != 0 || (prefer[i].dtype && g_strcmp0(prefer[i].dtype, key->dtype) != 0))
      continue;
    if (prefer[i].head_dim && prefer[i].head_dim != key->head_dim) continue;
    for (int j = 0; j < 7 && prefer[i].library[j]; j++)
      if (g_pattern_match_simple(prefer[i].library[j], series->library)) return j;
    return 7;
  }
  return 0;
}

static gboolean same_curve(const MsSeries *a, const MsSeries *b) {
  const MsCurveKey *p = &a->key, *q = &b->key;
  return a->kind == b->kind && a->machine == b->machine && a->training == b->training && strcmp(p->op, q->op) == 0 &&
         g_strcmp0(p->dtype, q->dtype) == 0 && g_strcmp0(p->pass, q->pass) == 0 && g_strcmp0(p->level, q->level) == 0 &&
         g_strcmp0(p->dispatcher, q->dispatcher) == 0 && p->head_dim == q->head_dim && p->ranks == q->ranks;
}

/* The preferred library, then the one with far more rows, then the newer version. */
static gboolean better(const MsSeries *a, const MsSeries *b) {
  int p = ms_fit_preference(a), q = ms_fit_preference(b);
  if (p != q) return p < q;
  if (a->rows->len > 2 * b->rows->len || b->rows->len > 2 * a->rows->len) return a->rows->len > b->rows->len;
  return strverscmp(a->library, b->library) > 0;
}

/* The rows of `from` join those of `into`: one library, measured in two tables. */
static void join(MsSeries *into, const MsSeries *from) {
  g_array_append_vals(into->rows, from->rows->data, from->rows->len);
  if (strcmp(into->file, from->file) == 0) return;
  char *file = g_strdup_printf("%s, %s", into->file, from->file);
  g_free(into->file);
  into->file = file;
}

/* One series per curve: the best library, over all tables. */
static void choose(GPtrArray *series) {
  for (guint i = 0; i < series->len; i++) {
    for (guint j = i + 1; j < series->len;) {
      MsSeries *a = series->pdata[i], *b = series->pdata[j];
      if (!same_curve(a, b)) {
        j++;
        continue;
      }
      if (strcmp(a->library, b->library) == 0) join(a, b);
      else if (better(b, a)) series->pdata[i] = b, series->pdata[j] = a;
      g_ptr_array_remove_index(series, j);
    }
  }
}

static double flop_of(const MsSeries *series, const double *x) {
  switch (series->kind) {
  case MS_ROW_GEMM: return 2 * x[0] * x[1] * x[2];
  case MS_ROW_GROUPED: return 2 * x[0] * x[2] * x[3];
  default: return 0;
  }
}

/* Rows whose median is above the machine's peak have another unit, or are of another machine; single ones may be off.
 */
static gboolean is_possible(const Work *work, const MsSeries *series, GError **error) {
  const MsHardware *machine = series->machine == 0 ? work->hardware : work->like;
  double peak = ms_device_rates(machine, series->dtype, FALSE).peak_flops;
  g_autofree double *rate = g_new(double, series->rows->len + 1);
  guint n = 0;
  for (guint i = 0; i < series->rows->len; i++) {
    const MsRow *row = &g_array_index(series->rows, MsRow, i);
    double flop = flop_of(series, row->x);
    if (flop > 0 && row->time_s > 0) rate[n++] = flop / row->time_s;
  }
  double usual = n > 0 ? ms_quantile(rate, n, 0.5) : 0;
  return !(peak > 0) || usual <= peak ||
         ms_input_error(error, series->file, 0, NULL,
                        "%u rows of %s %s come to %.4g TFLOP/s (median), the peak of %s is %.4g: are their times in "
                        "the unit that the header says?",
                        n, series->key.op, series->key.dtype, usual / 1e12, machine->name, peak / 1e12);
}

static gboolean read_all(Work *work, GError **error) {
  const char *names[] = {work->hardware->name, work->like ? work->like->name : NULL, NULL};
  for (int i = 0; work->options->files[i]; i++) {
    char *note = NULL;
    if (!ms_measure_read(work->options->files[i], names, work->series, &note, error)) return FALSE;
    if (note) g_ptr_array_add(work->fit->notes, g_strdup_printf("%s: %s", work->options->files[i], note));
    g_free(note);
  }
  choose(work->series);
  for (guint i = 0; i < work->series->len; i++) ms_series_merge(((MsSeries *)work->series->pdata[i])->rows);
  for (guint i = 0; i < work->series->len; i++)
    if (!is_possible(work, work->series->pdata[i], error)) return FALSE;
  if (work->series->len > 0) return TRUE;
  const char *why = work->fit->notes->len > 0 ? work->fit->notes->pdata[0] : NULL;
  return ms_input_error(error, NULL, 0, NULL, "no row of %s in the tables given%s%s", work->hardware->name,
                        why ? "; " : "", why ? why : "");
}

/* --- which curve ----------------------------------------------------------------------------------------------- */
static gboolean is_for(const MsCurve *curve, const MsCurveKey *key) {
  gboolean exchange = strcmp(curve->op, "dispatch") == 0 || strcmp(curve->op, "combine") == 0;
  gboolean pass = g_strcmp0(curve->pass, key->pass) == 0 || (!curve->pass && g_strcmp0(key->pass, "forward") == 0);
  return strcmp(curve->op, key->op) == 0 && g_strcmp0(curve->dtype, key->dtype) == 0 && pass &&
         g_strcmp0(curve->level, key->level) == 0 && g_strcmp0(curve->dispatcher, key->dispatcher) == 0 &&
         curve->head_dim == key->head_dim && (curve->ranks == key->ranks || (exchange && curve->ranks == 0));
}

int ms_fit_find_curve(const MsHardware *hardware, const MsSeries *series) {
  for (int i = 0; i < hardware->num_curves; i++)
    if (is_for(&hardware->curves[i], &series->key)) return i;
  return -1;
}

static MsCurve *fitted(const Work *work, const char *op, const char *dtype, const char *pass, int head_dim) {
  for (guint i = 0; i < work->fit->curves->len; i++) {
    MsCurve *c = work->fit->curves->pdata[i];
    if (strcmp(c->op, op) == 0 && g_strcmp0(c->dtype, dtype) == 0 && g_strcmp0(c->pass, pass) == 0 &&
        c->head_dim == head_dim)
      return c;
  }
  return NULL;
}

static void curve_free(gpointer data) {
  ms_fit_curve_clear(data);
  g_free(data);
}

static void set_provenance(const Work *work, const MsSeries *series, MsCurve *curve) {
  g_autofree char *gpu = *series->gpu ? g_strconcat(" of ", series->gpu, NULL) : g_strdup("");
  g_free(curve->provenance.data), g_free(curve->provenance.date), g_free(curve->provenance.command);
  curve->provenance.data = g_strdup_printf("%s: %u shapes%s%s%s", series->file, series->rows->len, gpu,
                                           *series->library ? ", " : "", series->library);
  curve->provenance.date = g_strdup(work->options->date);
  curve->provenance.command = g_strdup(work->options->command);
}

/* Launch of the bf16 GEMM: just fitted, else the profile's, else typical. */
static double kernel_launch(const Work *work) {
  const MsCurve *own = fitted(work, "gemm", "bf16", NULL, 0);
  if (own) return own->param[MS_C_LAUNCH];
  for (int i = 0; i < work->hardware->num_curves; i++) {
    const MsCurve *c = &work->hardware->curves[i];
    if (strcmp(c->op, "gemm") == 0 && g_strcmp0(c->dtype, "bf16") == 0) return c->param[MS_C_LAUNCH];
  }
  return work->laws.default_gemm_launch_s;
}

/* Why a fitted curve must not replace what the profile has: the rows are noise (Triton's grouped GEMMs on A100), or of
 * a network slower than this machine's. */
static char *refused(const Work *work, const MsSeries *series, const MsCurve *curve) {
  if (curve->provenance.residual_median > most_scatter)
    return g_strdup_printf("the rows scatter, median error %.0f %%", 100 * curve->provenance.residual_median);
  if (series->kind != MS_ROW_EXCHANGE) return NULL;
  MsDeviceRates none = {1, 1, 1};
  const double *x = g_array_index(series->rows, MsRow, series->rows->len - 1).x; /* the most tokens */
  double nodes = x[5], remote = (nodes - 1) / nodes;
  MsPrediction most = ms_predict(curve, &none, series, x);
  double nic_Bps = x[0] * most.at[2] * most.at[3] / most.time_s * remote;
  if (nodes > 1 && nic_Bps < 0.6 * work->hardware->nic_Bps)
    return g_strdup_printf("its network is slower than this machine's, %.0f GB/s a NIC", nic_Bps / 1e9);
  return NULL;
}

static MsCurve *keep(Work *work, const MsSeries *series, MsCurve *curve) {
  char *why = refused(work, series, curve);
  if (!why) {
    set_provenance(work, series, curve);
    g_ptr_array_add(work->fit->curves, curve);
    return curve;
  }
  g_ptr_array_add(work->fit->notes, g_strdup_printf("%s %s, %d ranks (%s, %s): not taken, %s", series->key.op,
                                                    series->key.dtype ? series->key.dtype : "", series->key.ranks,
                                                    series->file, series->library, why));
  g_free(why);
  curve_free(curve);
  return NULL;
}

static MsCurve *fit_one(Work *work, const MsSeries *series, const MsHardware *rates, const MsFitContext *context) {
  char *why = NULL;
  MsCurve *curve = g_new0(MsCurve, 1);
  MsDeviceRates device = ms_device_rates(rates, series->dtype, FALSE);
  if (ms_fit_series(series, &device, context, curve, &why)) return keep(work, series, curve);
  g_ptr_array_add(work->fit->notes, why);
  g_free(curve);
  return NULL;
}

/* The profile's own curve, at the level of a few rows. */
static void move_one(Work *work, const MsSeries *series, const MsCurve *shipped) {
  MsCurve *curve = g_new0(MsCurve, 1);
  MsDeviceRates device = ms_device_rates(work->hardware, series->dtype, FALSE);
  g_ptr_array_add(work->fit->notes, ms_fit_rescale(series, &device, shipped, curve));
  set_provenance(work, series, curve);
  g_ptr_array_add(work->fit->curves, curve);
}

/* Most that counts as crossing the link when the own rank's (node's) share is counted too, as in exchange() of
 * predict.c; NaN unknown. */
static double wire_Bps(const MsHardware *hardware, const MsSeries *series) {
  if (series->kind != MS_ROW_EXCHANGE || series->rows->len == 0) return NAN;
  const double *x = g_array_index(series->rows, MsRow, 0).x, peers = x[5] > 1 ? x[5] : x[4];
  return (x[5] > 1 ? hardware->nic_Bps : hardware->scaleup_Bps) * peers / (peers - 1);
}

static void fit_benchmarks(Work *work, gboolean launches) {
  for (guint i = 0; i < work->series->len && !ms_interrupted(); i++) {
    const MsSeries *series = work->series->pdata[i];
    gboolean first = series->kind == MS_ROW_GEMM && series->dtype == MS_ODT_BF16;
    if (series->training || series->machine != 0 || first != launches) continue;
    ms_progress_update(work->progress, ++work->fitted, series->key.op);
    int at = ms_fit_find_curve(work->hardware, series);
    const MsCurve *shipped = at >= 0 ? &work->hardware->curves[at] : NULL;
    if (ms_fit_is_small(series, shipped)) {
      move_one(work, series, shipped);
      continue;
    }
    gboolean cast = series->kind == MS_ROW_GEMM && series->dtype > MS_ODT_BF16;
    MsFitContext context = {cast ? kernel_launch(work) : NAN, shipped, wire_Bps(work->hardware, series)};
    fit_one(work, series, work->hardware, &context);
  }
}

/* --- what follows from the curves ------------------------------------------------------------------------------ */
static void add_note(MsCurve *curve, const char *text) {
  char *old = curve->provenance.note;
  curve->provenance.note = old ? g_strdup_printf("%s; %s", old, text) : g_strdup(text);
  g_free(old);
}

/* A grouped GEMM of 8192 rows an expert runs no faster than the dense kernel of its dtype in training, whose own
 * `sustained` counts. To first order: the factor scales the arithmetic, and what the time holds besides stays; repeated
 * until grouped is at most a tenth faster. */
static void level_grouped(const Work *work, MsCurve *curve) {
  enum { GROUPS = 8, ROWS = 8192, N = 4096, K = 7168 };
  MsSeries of = {.key = {.op = "gemm", .dtype = curve->dtype}};
  int odt = 0, at = ms_fit_find_curve(work->hardware, &of);
  const MsCurve *own = fitted(work, "gemm", curve->dtype, NULL, 0), *dense = own       ? own
                                                                             : at >= 0 ? &work->hardware->curves[at]
                                                                                       : NULL;
  while (odt < MS_N_ODT - 1 && strcmp(ms_odt_words[odt], curve->dtype) != 0) odt++;
  if (!dense) return;
  MsDeviceRates device = ms_device_rates(work->hardware, odt, FALSE);
  double w = ms_element_B(odt),
         one = ms_curve_gemm_s(dense, &device, ROWS, N, K, w) * GROUPS / (dense->sustained > 0 ? dense->sustained : 1);
  MsCurve slow = *curve;
  double all = ms_curve_grouped_gemm_s(curve, &device, (double)GROUPS * ROWS, GROUPS, N, K, N / 2, w);
  if (all >= 0.97 * one) return;
  for (curve->sustained = 1; all < 0.9 * one || slow.param[MS_G_E] == curve->param[MS_G_E];) {
    curve->sustained = ms_round_digits(curve->sustained * all / one, 3);
    slow.param[MS_G_E] = curve->param[MS_G_E] * curve->sustained;
    all = ms_curve_grouped_gemm_s(&slow, &device, (double)GROUPS * ROWS, GROUPS, N, K, N / 2, w);
  }
  add_note(curve, "sustained levels 8192 rows an expert with the dense GEMM, as TransformerEngine measures on B200 "
                  "(1095 against 1103 TFLOPS): the rows are "
                  "short bursts with uninitialised weights");
}

/* Rows of per-tensor FP8 are of an inference engine's kernels. */
static void slow_fp8(Work *work) {
  MsCurve *curve = fitted(work, "gemm", "fp8", NULL, 0);
  if (!curve) return;
  curve->sustained = work->laws.fp8_training_rate;
  add_note(curve, "sustained: TransformerEngine's kernels over this curve on B300 (2.02 of 2.158 ms)");
}

/* MXFP8 has no rows of its own: the shape of fp8-block, dense at TransformerEngine's rate, grouped levelled with dense
 * like the other grouped curves. (Nobody has measured TransformerEngine's grouped MXFP8 kernel in the open.) Where
 * there is MXFP8, TransformerEngine runs the blockwise recipe on its kernels ("emulated with MXFP8", its user guide on
 * FP8 blockwise scaling), so that fp8-block is sustained alike. */
static void derive_mxfp8(Work *work, const char *op) {
  MsCurve *from = fitted(work, op, "fp8-block", NULL, 0);
  if (!from || fitted(work, op, "mxfp8", NULL, 0) || !(work->hardware->peak_mxfp8_flops > 0)) return;
  MsCurve *curve = g_new(MsCurve, 1);
  ms_curve_copy(from, curve);
  g_free(curve->dtype);
  curve->dtype = g_strdup("mxfp8");
  gboolean grouped = strcmp(op, "grouped_gemm") == 0;
  curve->sustained =
      grouped ? 1 : ms_round_digits((from->sustained > 0 ? from->sustained : 1) * work->laws.mxfp8_training_rate, 3);
  g_autofree char *note =
      g_strdup_printf("no MXFP8 rows exist: the fp8-block curve (DeepGEMM, UE8M0 scales), sustained "
                      "times %g, TransformerEngine's kernel over it on B300 (1.99 of 2.365 ms)",
                      work->laws.mxfp8_training_rate);
  add_note(curve, grouped ? "no MXFP8 rows exist: the fp8-block curve (DeepGEMM, UE8M0 scales)" : note);
  if (grouped) level_grouped(work, curve);
  if (curve->sustained != (from->sustained > 0 ? from->sustained : 1)) {
    from->sustained = curve->sustained;
    add_note(from, "sustained as mxfp8, whose kernels TransformerEngine runs for this recipe on this machine");
  }
  g_ptr_array_add(work->fit->curves, curve);
}

/* --- training-grade rows --------------------------------------------------------------------------------------- */
static const MsSeries *training_rows(const Work *work, MsRowKind kind, const char *pass, int head_dim,
                                     const MsHardware **rates) {
  for (int machine = 0; machine < 2; machine++) {
    for (guint i = 0; i < work->series->len; i++) {
      const MsSeries *s = work->series->pdata[i];
      if (!s->training || s->kind != kind || s->machine != machine || g_strcmp0(s->key.pass, pass) != 0 ||
          s->key.head_dim != head_dim)
        continue;
      *rates = machine ? work->like : work->hardware;
      return s;
    }
  }
  return NULL;
}

/* Median of measured over predicted of a series on a curve. */
static double slowdown(const MsCurve *curve, const MsHardware *rates, const MsSeries *series) {
  MsDeviceRates device = ms_device_rates(rates, series->dtype, FALSE);
  g_autofree double *ratio = g_new(double, series->rows->len + 1);
  for (guint i = 0; i < series->rows->len; i++) {
    const MsRow *row = &g_array_index(series->rows, MsRow, i);
    ratio[i] = row->time_s / ms_predict(curve, &device, series, row->x).time_s;
  }
  return ms_quantile(ratio, series->rows->len, 0.5);
}

static void set_member(Work *work, const char *key, double value, const char *source) {
  char text[32];
  g_ptr_array_add(work->members, g_strdup(key));
  g_ptr_array_add(work->members, g_strdup(ms_double_text(ms_round_digits(value, 4), text)));
  g_ptr_array_add(work->members, ms_json_quoted(source));
}

/* dgrad and wgrad over forward, both relative to the curve, so that shapes need not be paired. */
static void fit_pass_factors(Work *work) {
  static const char *const passes[] = {"dgrad", "wgrad"}, *const keys[] = {"dgrad_factor", "wgrad_factor"};
  const MsHardware *rates = NULL, *other = NULL;
  MsCurve *curve = fitted(work, "gemm", "bf16", NULL, 0);
  const MsSeries *forward = curve ? training_rows(work, MS_ROW_GEMM, "forward", 0, &rates) : NULL;
  if (!forward) return;
  double base = slowdown(curve, rates, forward);
  for (int i = 0; i < 2; i++) {
    const MsSeries *series = training_rows(work, MS_ROW_GEMM, passes[i], 0, &other);
    if (!series || other != rates) continue;
    g_autofree char *source = g_strdup_printf(
        "%s, %s of %s: median of measured over curve, %u %s rows against %u forward rows; moesim fit, %s", series->file,
        series->library, series->gpu, series->rows->len, passes[i], forward->rows->len, work->options->date);
    set_member(work, keys[i], slowdown(curve, rates, series) / base, source);
  }
  g_autofree char *note = g_strdup_printf("forward GEMMs of a training framework under sustained load (%s of %s) run "
                                          "at %.2f of this curve's rate (median); not applied",
                                          forward->library, forward->gpu, 1 / base);
  add_note(curve, note);
}

/* Of the last-level cache: the slope between the smallest and the largest copy, so that no launch counts.
 * Its rows are no benchmark of a kernel: they make no curve. */
static void fit_cache(Work *work) {
  const MsHardware *rates = NULL;
  const MsSeries *series = training_rows(work, MS_ROW_CAST, NULL, 0, &rates);
  if (!series || rates != work->hardware || series->rows->len < 2) return;
  const MsRow *least = &g_array_index(series->rows, MsRow, 0), *most = least;
  for (guint i = 1; i < series->rows->len; i++) {
    const MsRow *row = &g_array_index(series->rows, MsRow, i);
    if (row->x[0] < least->x[0]) least = row;
    if (row->x[0] > most->x[0]) most = row;
  }
  if (!(most->time_s > least->time_s)) return;
  g_autofree char *source = g_strdup_printf("%s: slope between copies of %.4g and %.4g MB; moesim fit, %s",
                                            series->file, least->x[0] / 1e6, most->x[0] / 1e6, work->options->date);
  set_member(work, "l2_Bps", (most->x[0] - least->x[0]) / (most->time_s - least->time_s), source);
}

/* Forward rate of this machine over that of the machine the rows are of, as shares of peak, on 64 heads of 4096 tokens.
 */
static double forward_ratio(const Work *work, const MsHardware *rates, int head_dim) {
  MsSeries of = {.kind = MS_ROW_ATTENTION,
                 .dtype = MS_ODT_BF16,
                 .key = {.op = "attention", .dtype = "bf16", .head_dim = head_dim}};
  const double x[MS_ROW_X] = {1, 4096, 64, 64, head_dim, head_dim == 192 ? 128 : head_dim};
  const MsCurve *mine = fitted(work, "attention", "bf16", NULL, head_dim);
  int theirs = ms_fit_find_curve(rates, &of);
  gboolean ours = g_strcmp0(rates->curves_from, work->hardware->name) == 0; /* it inherits the curves of this machine */
  if (rates == work->hardware || !mine || (!ours && theirs < 0)) return 1;
  MsDeviceRates here = ms_device_rates(work->hardware, MS_ODT_BF16, FALSE),
                there = ms_device_rates(rates, MS_ODT_BF16, FALSE);
  double t = ms_predict(mine, &here, &of, x).time_s * here.peak_flops,
         u = ms_predict(ours ? mine : &rates->curves[theirs], &there, &of, x).time_s * there.peak_flops;
  return u / t;
}

/* Backward attention of one head dimension as a curve of its own; of a sister machine's rows in shares of peak. */
static void fit_backward(Work *work, int head_dim) {
  const MsHardware *rates = NULL;
  const MsSeries *series = training_rows(work, MS_ROW_ATTENTION, "backward", head_dim, &rates);
  const MsCurve *forward = fitted(work, "attention", "bf16", NULL, head_dim);
  if (!series) return;
  MsFitContext context = {NAN, forward};
  MsCurve *curve = fit_one(work, series, rates, &context);
  if (!curve || rates == work->hardware) return;
  double ratio = forward_ratio(work, rates, head_dim);
  curve->param[MS_A_E] = ms_round_digits(CLAMP(curve->param[MS_A_E] * ratio, 0.01, 1), 5);
  curve->param[MS_A_E_CP] = ms_round_digits(MAX(curve->param[MS_A_E_CP] * ratio, 0.01), 5);
  g_autofree char *note = g_strdup_printf("measured on %s, in shares of peak; efficiencies times %.3f, the ratio of "
                                          "the forward curves; residuals are those there",
                                          series->gpu, ratio);
  add_note(curve, note);
}

/* Only where no backward curve serves: FLOP/s of backward over forward where both fill the machine. */
static void fit_backward_factor(Work *work) {
  const MsHardware *rates = NULL, *other = NULL;
  const MsSeries *backward = training_rows(work, MS_ROW_ATTENTION, "backward", 128, &rates),
                 *forward = training_rows(work, MS_ROW_ATTENTION, "forward", 128, &other);
  if (!backward || !forward || rates != other) return;
  g_autoptr(GArray) ratio = g_array_new(FALSE, FALSE, sizeof(double));
  for (guint i = 0; i < backward->rows->len; i++) {
    const MsRow *b = &g_array_index(backward->rows, MsRow, i);
    for (guint j = 0; j < forward->rows->len; j++) {
      const MsRow *f = &g_array_index(forward->rows, MsRow, j);
      if (memcmp(b->x, f->x, 6 * sizeof(double)) != 0 || b->x[0] * b->x[2] * b->x[1] / 128 < 4.0 * rates->sm_count)
        continue;
      double r = 2.5 * f->time_s / b->time_s;
      g_array_append_val(ratio, r);
    }
  }
  if (ratio->len == 0) return;
  g_autofree char *source = g_strdup_printf("%s of %s: backward over forward FLOP/s, median of %u shapes of head "
                                            "dimension 128 that fill the machine; moesim fit, %s",
                                            backward->library, backward->gpu, ratio->len, work->options->date);
  set_member(work, "attention_backward_factor", ms_quantile((double *)(void *)ratio->data, ratio->len, 0.5), source);
}

/* --- the whole ------------------------------------------------------------------------------------------------- */
static gboolean fit_all(Work *work, GError **error) {
  if (!read_all(work, error)) return FALSE;
  fit_benchmarks(work, TRUE);
  fit_benchmarks(work, FALSE);
  if ((work->fit->interrupted = ms_interrupted())) return TRUE;
  slow_fp8(work);
  for (guint i = 0; i < work->fit->curves->len; i++) {
    MsCurve *curve = work->fit->curves->pdata[i];
    if (strcmp(curve->op, "grouped_gemm") == 0) level_grouped(work, curve);
  }
  derive_mxfp8(work, "gemm");
  derive_mxfp8(work, "grouped_gemm");
  fit_pass_factors(work);
  fit_cache(work);
  fit_backward(work, 64), fit_backward(work, 128), fit_backward(work, 192), fit_backward(work, 256);
  fit_backward_factor(work);
  g_ptr_array_add(work->members, NULL);
  gsize length;
  g_autofree char *text = ms_read_file(work->file, G_MAXINT32, &length, error);
  if (!text) return FALSE;
  work->fit->text =
      ms_profile_edit(text, work->file, work->fit->curves, (const char *const *)work->members->pdata, error);
  return work->fit->text != NULL;
}

static gboolean open_machines(Work *work, GError **error) {
  work->file = ms_find_data_file("hardware", work->options->hardware, error);
  work->hardware = work->file ? ms_hardware_load(work->options->hardware, error) : NULL;
  if (!work->hardware) return FALSE;
  if (!work->options->like) return TRUE;
  work->like = ms_hardware_load(work->options->like, error);
  return work->like != NULL;
}

MsFit *ms_fit(const MsFitOptions *options, GError **error) {
  MsFit *fit = g_new0(MsFit, 1);
  fit->curves = g_ptr_array_new_with_free_func(curve_free), fit->notes = g_ptr_array_new_with_free_func(g_free);
  Work work = {.options = options,
               .fit = fit,
               .series = g_ptr_array_new_with_free_func((GDestroyNotify)ms_series_free),
               .members = g_ptr_array_new_with_free_func(g_free)};
  work.progress = options->progress ? ms_progress_begin("fit", 0) : NULL;
  if (!ms_laws_load(&work.laws, error) || !open_machines(&work, error) || !fit_all(&work, error))
    g_clear_pointer(&fit, ms_fit_free);
  ms_progress_end(work.progress);
  g_ptr_array_unref(work.series);
  g_ptr_array_unref(work.members);
  g_free(work.file);
  ms_hardware_free(work.hardware);
  ms_hardware_free(work.like);
  return fit;
}

void ms_fit_free(MsFit *fit) {
  if (!fit) return;
  g_free(fit->text);
  g_ptr_array_unref(fit->curves);
  g_ptr_array_unref(fit->notes);
  g_free(fit);
}
