/* src/cli/gemm.c - moesim gemm decide|run|bench M N K, gemm source: matrix multiplication with fewer multiplications,
 * beside the libraries; kernels for GPUs are in gemm_device.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/gemm.h"
#include "cost/lcma.h"
#include "gpu/compute.h"
#include "lcma/bench.h"
#include "lcma/kernel.h"

typedef struct {
  char *dtype, *hardware, *library, *plan, *device, *dialect;
  int threads, reps, top, groups, trials;
  char *workspace; /* its size, 2GiB; a bare number is of GiB */
  double workspace_GiB;
  gboolean json, scale;
  MsBlasType type;
  gint64 m, n, k;
} Options;

/* --- decide ---------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *machine, *dtype;
  const GPtrArray *choices;
  double library_s;
  guint shown;
} Decided;
static const MsLcmaChoice *best_of(const void *d) { return ((const Decided *)d)->choices->pdata[0]; }
static const char *best_plan(const void *d) { return best_of(d)->plan; }
static double best_levels(const void *d) { return best_of(d)->levels; }
static double best_speedup(const void *d) { return ((const Decided *)d)->library_s / best_of(d)->time_s; }
static const void *candidate(const void *owner, guint i, MsFigureCursor *room) {
  return ms_figure_place(owner, i, ((const Decided *)owner)->shown, room);
}
static const void *choice_of(const void *at) { return MS_FIGURE_OWNER(Decided, at)->choices->pdata[MS_FIGURE_I(at)]; }
static double choice_speedup(const void *at) {
  return MS_FIGURE_OWNER(Decided, at)->library_s / ((const MsLcmaChoice *)choice_of(at))->time_s;
}

#define S MsLcmaChoice
static const MsFigures scheme_figures = MS_FIGURE_UNNAMED(MS_FIGURE_AS("scheme", STRING, S, plan, "", "or library"),
                                                          MS_FIGURE(INT, S, levels, "", "of recursion"));
static const MsFigures choice_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(F64, S, time_s, "s", "of the product"), MS_FIGURE(F64, S, split_s, "s", "of the sums before"),
    MS_FIGURE(F64, S, multiply_s, "s", "of the products"), MS_FIGURE(F64, S, merge_s, "s", "of the sums behind"),
    MS_FIGURE_AS("product_flop", F64, S, flop, "FLOP", "of the products"),
    MS_FIGURE(F64, S, workspace_B, "B", "beside the matrices"),
    MS_FIGURE_AS("error_growth", F64, S, growth, "1", "over the ordinary product's"));
#undef S
#define CHOICE(s) MS_FIGURE_ROWS_OF(choice_of, s)
const MsFigures ms_decide_figures = MS_FIGURE_TABLE(
    "gemm-decide", "`moesim gemm decide --json`.", MS_FIGURE(STRING, Decided, machine, "", "that was asked about"),
    MS_FIGURE(STRING, Decided, dtype, "", "of the matrices"),
    MS_FIGURE_TEXT("scheme", best_plan, "the fastest, or library"),
    MS_FIGURE_OF("levels", INT, best_levels, "", "of recursion"),
    MS_FIGURE_OF("speedup", F64, best_speedup, "1", "over the library"),
    MS_FIGURE(F64, Decided, library_s, "s", "of the library"),
    MS_FIGURE_EACH("candidates", LIST, candidate,
                   MS_FIGURES(CHOICE(&scheme_figures),
                              MS_FIGURE_OF("speedup", F64, choice_speedup, "1", "over the library"),
                              CHOICE(&choice_figures))));

static void print_choices(const Options *o, const GPtrArray *choices, const char *machine) {
  double library_s = ms_lcma_choice_of(choices, "library")->time_s;
  guint shown = MIN(choices->len, (guint)o->top);
  if (o->json) {
    const Decided d = {machine, ms_blas_type_words[o->type], choices, library_s, shown};
    ms_cli_print(ms_figures_json(&ms_decide_figures, &d));
    return;
  }
  MsTable *table = ms_table_of("  scheme|>levels|>time|>sums|>products|>merge|>FLOP saved|>workspace|>error|>gain");
  double flop = 2.0 * (double)o->m * (double)o->n * (double)o->k;
  for (guint i = 0; i < shown; i++) {
    const MsLcmaChoice *c = choices->pdata[i];
    ms_table_cellf(table, "%s %s", i == 0 ? "*" : " ", c->plan);
    MS_TABLE_ROW(table, MS_FORMAT("%d", c->levels), MS_SECONDS(c->time_s), MS_SECONDS(c->split_s),
                 MS_SECONDS(c->multiply_s), MS_SECONDS(c->merge_s), MS_FORMAT("%.1f %%", 100 * (1 - c->flop / flop)),
                 MS_BYTES(c->workspace_B), MS_FORMAT("x%.3g", c->growth), MS_FORMAT("%.3f", library_s / c->time_s));
  }
  printf("%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " %s on %s\n\n", o->m, o->n, o->k,
         ms_blas_type_words[o->type], machine);
  ms_cli_print(ms_table_take(table));
  printf("\n* is chosen: a scheme must be predicted to be faster than the library by more than its error\n"
         "error: bound of the rounding error over the definition's\n");
}

/* A plan by name that this CPU can run for the type. */
static gboolean plan_runs(const Options *o, GError **error) {
  g_autoptr(MsLcmaPlan) plan = o->plan ? ms_lcma_plan_new(o->plan, error) : NULL;
  if (!o->plan) return TRUE;
  if (plan && !ms_lcma_plan_runs(plan, o->type))
    ms_usage_error(error,
                   o->type != MS_BLAS_INT8 && plan->in_bf16
                       ? "scheme '%s' needs --dtype bf16 and a CPU with AVX512-BF16"
                   : o->type != MS_BLAS_INT8 ? "scheme '%s' needs --dtype int8 and a CPU with AVX512-VNNI"
                                             : "scheme '%s' is not one of int8: definition:int8, or one stage without "
                                               "fractions and :int16, on a CPU with AVX512-VNNI",
                   o->plan);
  return plan && ms_lcma_plan_runs(plan, o->type);
}

static MsLcma *open_lcma(const Options *o, GError **error) {
  char why[300] = "";
  if (!ms_blas_open(o->library, error) || !plan_runs(o, error)) return NULL;
  MsLcma *lcma = ms_lcma_new(o->library, o->threads, why, sizeof why);
  if (!lcma) g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s", why);
  else if (o->type == MS_BLAS_INT8 && !ms_kernel_whole((int)ms_vector(), 8)) {
    g_set_error(error, MS_ERROR, MS_ERROR_ENV, "this CPU has no AVX512-VNNI, which int8 needs");
    g_clear_pointer(&lcma, ms_lcma_free);
  } else if (!ms_blas_has(ms_lcma_blas(lcma), o->type) && o->type < MS_BLAS_BF16) {
    g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s has no multiplication for %s", ms_blas_name(ms_lcma_blas(lcma)),
                ms_blas_type_words[o->type]);
    g_clear_pointer(&lcma, ms_lcma_free);
  }
  if (lcma) ms_lcma_set_plan(lcma, o->plan);
  if (lcma) ms_lcma_set_scaling(lcma, o->scale);
  if (lcma && o->trials != MS_CLI_UNSET) ms_lcma_set_trials(lcma, o->trials);
  if (lcma) ms_lcma_set_workspace_limit(lcma, (size_t)(o->workspace_GiB * 1024 * 1024 * 1024));
  return lcma;
}

static char *this_machine(const MsBlas *blas, int threads) {
  const char *kernel = ms_blas_kernel(blas);
  return g_strdup_printf("this CPU, %d thread%s, %s %s%s%s", threads, threads == 1 ? "" : "s", ms_blas_name(blas),
                         ms_blas_version(blas), kernel ? " " : "", kernel ? kernel : "");
}

static int threads_of(const Options *o) { return o->threads ? o->threads : ms_cpus(); }

static int decide(const Options *o) {
  GError *error = NULL;
  MsLcmaShape shape = {(double)o->m, (double)o->n, (double)o->k, FALSE, o->workspace_GiB * 1024 * 1024 * 1024};
  if (o->hardware) {
    g_autoptr(MsHardware) hardware = ms_hardware_load(o->hardware, &error);
    MsLcmaProfile profile;
    MsCurve room;
    MsLaws laws;
    if (!hardware || !ms_laws_load(&laws, &error) ||
        !ms_lcma_profile_load(&profile, hardware, &laws, &room, o->type == MS_BLAS_F32, &error))
      return ms_cli_fail(error);
    g_autoptr(GPtrArray) choices = ms_lcma_decide(&profile.machine, &shape);
    print_choices(o, choices, hardware->name);
    return 0;
  }
  MsLcma *lcma = open_lcma(o, &error);
  if (!lcma) return ms_cli_fail(error);
  MsGemm gemm = {.type = o->type, .m = o->m, .n = o->n, .k = o->k, .alpha = 1};
  g_autofree char *machine = this_machine(ms_lcma_blas(lcma), threads_of(o));
  g_autoptr(GPtrArray) choices = ms_lcma_choices(lcma, &gemm);
  print_choices(o, choices, machine);
  ms_lcma_free(lcma);
  return 0;
}

/* --- run and bench --------------------------------------------------------------------------------------------- */
static MsProgress *progress;
static void draw(int done, int all) {
  (void)all;
  ms_progress_update(progress, done, NULL);
}

typedef struct {
  const char *machine, *dtype;
  int threads;
  const MsGemmBench *bench;
} Benched;
static const MsGemmBench *bench_of(const void *b) { return ((const Benched *)b)->bench; }
static const void *own_timing(const void *b) { return &bench_of(b)->timing[0]; }
static const void *fastest_timing(const void *b) {
  return bench_of(b)->fastest ? &bench_of(b)->timing[bench_of(b)->fastest] : NULL;
}
static const void *library_at(const void *b, guint i, MsFigureCursor *room) {
  (void)room;
  return (int)i + 1 < bench_of(b)->n ? &bench_of(b)->timing[i + 1] : NULL;
}

#define TIME MS_FIGURE_AS("time_s", F64, MsGemmTiming, median_s, "s", "median of a product")
#define BEST MS_FIGURE(F64, MsGemmTiming, best_s, "s", "the fastest")
#define SPEEDUP                                                                                            \
  MS_FIGURE_AS("speedup", F64, MsGemmTiming, ratio, "1", "of the scheme over this library, by the clock"), \
      MS_FIGURE_AS("speedup_cpu", F64, MsGemmTiming, busy_ratio, "1", "the same by CPU time")
#define ERROR         MS_FIGURE(F64, MsGemmTiming, relative_error, "1", "largest over largest element")
#define UNDISTURBED   "share of the runs that had their cores to themselves"
#define QUIET         MS_FIGURE_AS("undisturbed", F64, MsGemmTiming, quiet, "1", UNDISTURBED)
#define OF_BENCH(...) MS_FIGURE_ROWS_AT(Benched, bench, MS_FIGURES(__VA_ARGS__))
#define OF(f, ...)    MS_FIGURE_ROWS_OF(f, MS_FIGURES(__VA_ARGS__))
const MsFigures ms_gemm_bench_figures = MS_FIGURE_TABLE(
    "gemm-bench", "`moesim gemm bench --json`.", MS_FIGURE(STRING, Benched, machine, "", "it ran on"),
    MS_FIGURE(STRING, Benched, dtype, "", "of the matrices"), MS_FIGURE(INT, Benched, threads, "", "of each contender"),
    OF_BENCH(MS_FIGURE_AS("scheme", STRING, MsGemmBench, plan, "", "or library"),
             MS_FIGURE(INT, MsGemmBench, levels, "", "of recursion")),
    MS_FIGURE_ROWS_OF(fastest_timing, MS_FIGURES(SPEEDUP, MS_FIGURE(STRING, MsGemmTiming, library, "", "the fastest")),
                      .only = "there is a library"),
    OF(own_timing, ERROR),
    OF_BENCH(MS_FIGURE_AS("error_growth", F64, MsGemmBench, growth, "1", "over the ordinary product's")),
    OF(own_timing, TIME, BEST, QUIET),
    MS_FIGURE_EACH("libraries", LIST, library_at,
                   MS_FIGURES(MS_FIGURE_AS("name", STRING, MsGemmTiming, library, "", "of the library"), TIME, BEST,
                              SPEEDUP, ERROR, QUIET)));

static void put_bench(const Options *o, const MsGemmBench *b, const char *machine) {
  const Benched benched = {machine, ms_blas_type_words[o->type], threads_of(o), b};
  ms_cli_print(ms_figures_json(&ms_gemm_bench_figures, &benched));
}

static void print_bench(const Options *o, const MsGemmBench *b, const char *machine) {
  double flop = 2.0 * (double)o->m * (double)o->n * (double)o->k;
  MsTable *table = ms_table_of("|>median|>best|>GFLOP/s|>speed-up|>by CPU time|>relative error|>undisturbed");
  for (int i = 0; i < b->n; i++) {
    const MsGemmTiming *t = &b->timing[i];
    MS_TABLE_ROW(table, t->library ? t->library : b->plan, MS_SECONDS(t->median_s), MS_SECONDS(t->best_s),
                 MS_FORMAT("%.1f", 1e-9 * flop / t->best_s));
    if (i == 0) {
      MS_TABLE_ROW(table, "", "");
    } else {
      MS_TABLE_ROW(table, MS_FORMAT("%.3f", t->ratio), MS_FORMAT("%.3f", t->busy_ratio));
    }
    MS_TABLE_ROW(table, MS_FORMAT("%.2g", t->relative_error), MS_FORMAT("%.0f %%", 100 * t->quiet));
  }
  printf("%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " %s on %s\n\n", o->m, o->n, o->k,
         ms_blas_type_words[o->type], machine);
  ms_cli_print(ms_table_take(table));
  if (b->n > 1)
    puts("\nspeed-up: median over the paired runs of the library's time over ours. undisturbed: runs in which the "
         "process had its CPUs for itself.");
}

static int measure(const Options *o, gboolean with_libraries) {
  GError *error = NULL;
  MsLcma *lcma = open_lcma(o, &error);
  if (!lcma) return ms_cli_fail(error);
  const MsBlas *others[8] = {NULL};
  int n = 0;
  for (int i = 0; ms_blas_names[i] && with_libraries && n < 7; i++) {
    const MsBlas *blas =
        o->library && strcmp(o->library, ms_blas_names[i]) != 0 ? NULL : ms_blas_open(ms_blas_names[i], NULL);
    if (blas) others[n++] = blas;
  }
  const char *note = ms_blas_note(ms_lcma_blas(lcma));
  if (note) fprintf(stderr, "moesim: %s\n", note);
  progress = ms_progress_begin("gemm", (o->reps + 1) * (n + 1));
  g_autoptr(MsGemmBench) bench =
      ms_gemm_bench(lcma, others, threads_of(o), o->type, o->m, o->n, o->k, o->reps, draw, &error);
  ms_progress_end(progress);
  g_autofree char *machine = this_machine(ms_lcma_blas(lcma), threads_of(o));
  ms_lcma_free(lcma);
  if (!bench) return ms_cli_fail(error);
  if (o->json) put_bench(o, bench, machine);
  else print_bench(o, bench, machine);
  return 0;
}

/* --- the command line ------------------------------------------------------------------------------------------ */
static gboolean size_of(const char *text, gint64 *size) {
  return g_ascii_string_to_signed(text, 10, 1, 1 << 20, size, NULL);
}

/* What goes with generated kernels, and what does not. */
static int check_device(const MsVerb *verb, const Options *o, gboolean source, gboolean deciding) {
  if (o->dialect && !source) return ms_cli_usage(verb, "--dialect goes with source");
  if (o->device && (source || deciding)) return ms_cli_usage(verb, "--device goes with run and bench");
  if (o->groups != MS_CLI_UNSET && !source && !o->device)
    return ms_cli_usage(verb, "--groups goes with source and --device");
  if (o->groups != MS_CLI_UNSET && (o->groups < 1 || o->groups > MS_SCHEME_PRODUCTS))
    return ms_cli_usage(verb, "--groups is %d, not from 1 to %d", o->groups, MS_SCHEME_PRODUCTS);
  if (o->scale && (source || deciding || o->device))
    return ms_cli_usage(verb, "--scale goes with run and bench on this CPU");
  if (o->trials != MS_CLI_UNSET && (source || deciding || o->device || o->plan))
    return ms_cli_usage(verb, "--trials goes with run and bench on this CPU, without --scheme");
  if (o->trials != MS_CLI_UNSET && (o->trials < 0 || o->trials > 100))
    return ms_cli_usage(verb, "--trials is %d, not from 0 to 100", o->trials);
  if ((source || o->device) && (o->hardware || o->library || o->threads || o->workspace))
    return ms_cli_usage(verb, "--hardware, --library, --threads and --workspace are not of generated kernels");
  return 0;
}

static int of_device(const MsVerb *verb, const Options *o, gboolean source, gboolean alone) {
  MsGemmRequest q = {.device = o->device,
                     .scheme = o->plan,
                     .groups = o->groups == MS_CLI_UNSET ? 1 : o->groups,
                     .m = o->m,
                     .n = o->n,
                     .k = o->k,
                     .reps = o->reps,
                     .json = o->json};
  q.type = ms_cli_word(verb, "dtype", o->dtype ? o->dtype : "f32", ms_gpu_type_words);
  if (q.type < 0) return MS_ERROR_USAGE;
  if (!source) return ms_cli_gemm_device(&q, alone);
  q.dialect = ms_cli_word(verb, "dialect", o->dialect ? o->dialect : "cuda", ms_dialect_words);
  return q.dialect < 0 ? MS_ERROR_USAGE : ms_cli_gemm_source(&q);
}

static int check(const MsVerb *verb, Options *o, int argc, char **argv) {
  if (argc != 5) return ms_cli_usage(verb, "give what to do and three sizes: decide|run|bench M N K");
  gint64 *const to[] = {&o->m, &o->n, &o->k};
  for (int i = 0; i < 3; i++)
    if (!size_of(argv[2 + i], to[i]))
      return ms_cli_usage(verb, "%c is '%s', not a whole number from 1 to %d", "MNK"[i], argv[2 + i], 1 << 20);
  int type = o->device ? MS_BLAS_F32 : ms_cli_word(verb, "dtype", o->dtype ? o->dtype : "f32", ms_blas_type_words);
  if (type < 0 || (o->device && ms_cli_word(verb, "device", o->device, ms_compute_words) < 0)) return MS_ERROR_USAGE;
  o->type = (MsBlasType)type;
  if (o->threads < 0 || o->threads > 1024) return ms_cli_usage(verb, "--threads is %d, not from 1 to 1024", o->threads);
  if (o->reps != MS_CLI_UNSET && (o->reps < 1 || o->reps > 100000))
    return ms_cli_usage(verb, "--reps is %d, not from 1 to 100000", o->reps);
  if (o->top != MS_CLI_UNSET && o->top < 1) return ms_cli_usage(verb, "--top is %d, not 1 or more", o->top);
  g_autofree char *why = NULL;
  if (o->workspace && !ms_quantity_parse(o->workspace, "GiB", FALSE, &o->workspace_GiB, &why))
    return ms_cli_usage(verb, "--workspace: %s", why);
  if (!(o->workspace_GiB < 1e6)) return ms_cli_usage(verb, "--workspace %s: no machine has that", o->workspace);
  gboolean deciding = strcmp(argv[1], "decide") == 0;
  if (o->hardware && !deciding)
    return ms_cli_usage(verb, "--hardware goes with decide; run and bench are of this machine");
  if (o->hardware && (o->library || o->threads))
    return ms_cli_usage(verb, "--library and --threads are of this machine, they do not go with --hardware");
  if (o->hardware && (o->type == MS_BLAS_F64 || o->type == MS_BLAS_INT8))
    return ms_cli_usage(verb, "profiles have no rate for %s; f32 and bf16 can be decided", ms_blas_type_words[o->type]);
  if (o->reps != MS_CLI_UNSET && deciding)
    return ms_cli_usage(verb, "--reps goes with run and bench; decide multiplies nothing");
  if (o->top != MS_CLI_UNSET && !deciding) return ms_cli_usage(verb, "--top goes with decide");
  if (o->reps == MS_CLI_UNSET) o->reps = 5;
  if (o->top == MS_CLI_UNSET) o->top = 8;
  if (o->plan && deciding) return ms_cli_usage(verb, "--scheme goes with run and bench; decide compares all");
  return 0;
}

int ms_cli_gemm(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("gemm");
  static const char *const tasks[] = {"decide", "run", "bench", "source", NULL};
  enum { DECIDE, RUN, BENCH, SOURCE };
  Options o = {.reps = MS_CLI_UNSET, .top = MS_CLI_UNSET, .groups = MS_CLI_UNSET, .trials = MS_CLI_UNSET};
  const GOptionEntry entries[] = {
      {"dtype", 't', 0, G_OPTION_ARG_STRING, &o.dtype,
       "of A and B (default f32), summed in float, int8 in 32 bits; generated kernels have tf32 and fp16 too, not f64",
       "f32|f64|bf16|int8"},
      {"threads", 'p', 0, G_OPTION_ARG_INT, &o.threads, "default: the CPUs of this process", "T"},
      {"reps", 'n', 0, G_OPTION_ARG_INT, &o.reps, "run, bench: repetitions, each of all contenders (default 5)", "R"},
      {"hardware", 0, 0, G_OPTION_ARG_STRING, &o.hardware, "decide for a machine by its profile instead of this CPU",
       "NAME"},
      {"library", 'l', 0, G_OPTION_ARG_STRING, &o.library,
       "BLAS (default: $MOESIM_BLAS, else the first installed; bench: all)", "openblas|blis|mkl|onednn"},
      {"scheme", 's', 0, G_OPTION_ARG_STRING, &o.plan,
       "run this instead of what would be chosen: library, strassen, 3x4x5, strassen*strassen, …", "NAME"},
      {"workspace", 'w', 0, G_OPTION_ARG_STRING, &o.workspace,
       "memory beside the matrices, 200MB; a bare number is of GiB (default: no limit)", "SIZE"},
      {"top", 0, 0, G_OPTION_ARG_INT, &o.top, "decide: candidates shown (default 8)", "N"},
      {"trials", 0, 0, G_OPTION_ARG_INT, &o.trials,
       "run, bench: time the likeliest schemes and the library so often before, and take the fastest (default 5; 0: by "
       "prediction)",
       "N"},
      {"scale", 0, 0, G_OPTION_ARG_NONE, &o.scale,
       "run, bench: scale rows and columns by powers of two, so that small ones keep their digits", NULL},
      {"device", 'd', 0, G_OPTION_ARG_STRING, &o.device, "run, bench: a generated kernel on a GPU instead of this CPU",
       "cuda|opencl"},
      {"dialect", 0, 0, G_OPTION_ARG_STRING, &o.dialect, "source: of the kernel (default cuda)",
       "cuda|hip|musa|opencl"},
      {"groups", 0, 0, G_OPTION_ARG_INT, &o.groups,
       "generated kernels: products shared by so many groups of threads (default 1)", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    int task = argc > 1 ? ms_cli_word(verb, "task", argv[1], tasks) : DECIDE;
    status = task < 0 ? MS_ERROR_USAGE : check_device(verb, &o, task == SOURCE, task == DECIDE);
    if (status == 0 && task == SOURCE && (argc != 2 || o.reps != MS_CLI_UNSET || o.top != MS_CLI_UNSET || o.json))
      status = ms_cli_usage(verb, "source takes no sizes, --reps, --top or --json: the kernel is for all shapes");
    else if (status == 0 && task != SOURCE) status = check(verb, &o, argc, argv);
    if (status == 0)
      status = task == SOURCE || o.device ? of_device(verb, &o, task == SOURCE, task == RUN)
               : task == DECIDE           ? decide(&o)
                                          : measure(&o, task == BENCH);
  }
  return ms_cli_done(entries, status);
}
