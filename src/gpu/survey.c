#include "gpu/survey.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"

/* --- what is measured ------------------------------------------------------------------------------------------ */
/* n x k of linear layers in models of 7 to 700 G parameters (models/): attention, MLP, experts, low-rank projections.
 */
static const int layer[][2] = {{4096, 4096},  {6144, 4096}, {28672, 4096}, {4096, 14336}, {10240, 8192}, {57344, 8192},
                               {8192, 28672}, {2048, 2048}, {1536, 7168},  {24576, 1536}, {7168, 16384}, {4096, 7168},
                               {7168, 2048},  {5120, 2880}, {2880, 4096},  {9216, 4096}};
static const int tokens[] = {1024, 4096, 8192, 16384};
enum { CLOUD = 96, SMALLEST = 256, LARGEST = 32768, STEP = 64 };

typedef struct {
  int m, n, k;
} Shape;

/* The i-th number of the van der Corput sequence in a base: deterministic and even. */
static double even(int i, int base) {
  double value = 0, share = 1.0 / base;
  for (; i > 0; i /= base, share /= base) value += share * (i % base);
  return value;
}

static int on_log_scale(double share) {
  double size = SMALLEST * pow((double)LARGEST / SMALLEST, share);
  return (int)(round(size / STEP) * STEP);
}

static GArray *gemm_shapes(gboolean quick) {
  GArray *shapes = g_array_new(FALSE, FALSE, sizeof(Shape));
  for (guint i = 0; i < G_N_ELEMENTS(layer); i += quick ? 2 : 1)
    for (guint j = 0; j < G_N_ELEMENTS(tokens); j += quick ? 3 : 1)
      g_array_append_val(shapes, ((Shape){tokens[j], layer[i][0], layer[i][1]}));
  for (int i = 1; i <= CLOUD / (quick ? 4 : 1); i++) {
    Shape shape = {on_log_scale(even(i, 2)), on_log_scale(even(i, 3)), on_log_scale(even(i, 5))};
    if (2.0 * shape.m * shape.n * shape.k < 2e13) g_array_append_val(shapes, shape);
  }
  return shapes;
}

/* --- tables ---------------------------------------------------------------------------------------------------- */
typedef struct {
  MsGpu *gpu;
  const MsSurveyOptions *options;
  MsGpuProtocol protocol;
  MsSurvey *survey;
  const char *folder;
  char *name; /* of the device, as a file name */
  MsProgress *progress;
  int done;
  GString *csv; /* being filled */
  int rows;
  double best; /* the highest rate of this table */
  GError **error;
} Work;

static void begin(Work *w, const char *header) {
  w->csv = g_string_new(header);
  g_string_append_c(w->csv, '\n');
  w->rows = 0;
  w->best = 0;
}

/* A measurement that does not fit into memory is left out; a device that fails ends the table. FALSE: stop. */
static gboolean measured(Work *w, gboolean ok, GError *reason) {
  ms_progress_update(w->progress, ++w->done, w->name);
  if (ok) w->rows++;
  else if (strstr(reason->message, "allocate returned")) w->survey->refused++;
  else {
    g_propagate_error(w->error, reason);
    return FALSE;
  }
  g_clear_error(&reason);
  if (ms_interrupted()) w->survey->interrupted = TRUE;
  return !w->survey->interrupted;
}

static void rate(Work *w, double value) { w->best = MAX(w->best, value); }

static gboolean end(Work *w, const char *what, double unit, const char *unit_word) {
  g_autofree char *base = g_strdup_printf("%s-%s.csv", w->name, what);
  g_autofree char *file = g_build_filename(w->folder, base, NULL);
  gboolean ok =
      w->rows == 0 || ms_write_file(file, w->csv->str, (gssize)w->csv->len, w->error && *w->error ? NULL : w->error);
  if (ok && w->rows > 0) {
    w->survey->table = g_renew(MsSurveyTable, w->survey->table, w->survey->n + 1);
    w->survey->table[w->survey->n++] =
        (MsSurveyTable){g_steal_pointer(&file), w->rows, g_strdup_printf("up to %.4g %s", w->best / unit, unit_word)};
  }
  g_string_free(w->csv, TRUE);
  return ok && !(w->error && *w->error) && !w->survey->interrupted;
}

static gboolean gemm_table(Work *w) {
  g_autoptr(GArray) shapes = gemm_shapes(w->options->quick);
  begin(w, "dtype,m,n,k,latency_us");
  for (guint i = 0; i < shapes->len; i++) {
    Shape s = g_array_index(shapes, Shape, i);
    double seconds = 0;
    GError *reason = NULL;
    gboolean ok = ms_gpu_gemm(w->gpu, MS_GPU_FORWARD, s.m, s.n, s.k, w->protocol, &seconds, &reason);
    if (ok)
      g_string_append_printf(w->csv, "bf16,%d,%d,%d,%.6g\n", s.m, s.n, s.k, seconds * 1e6),
          rate(w, 2.0 * s.m * s.n * s.k / seconds);
    if (!measured(w, ok, reason)) break;
  }
  return end(w, "gemm", 1e12, "TFLOP/s");
}

static gboolean train_gemm_table(Work *w) {
  static const char *const roles[] = {"fwd", "dgrad", "wgrad"};
  gboolean going = TRUE;
  begin(w, "role,m,n,k,latency_us");
  for (guint i = 0; i < G_N_ELEMENTS(layer) && going; i += w->options->quick ? 4 : 1)
    for (int pass = 0; pass < 3 && going; pass++) {
      int n = layer[i][0], k = layer[i][1], rows = 8192;
      Shape s = pass == MS_GPU_FORWARD ? (Shape){rows, n, k}
                : pass == MS_GPU_DGRAD ? (Shape){rows, k, n}
                                       : (Shape){n, k, rows};
      double seconds = 0;
      GError *reason = NULL;
      gboolean ok = ms_gpu_gemm(w->gpu, (MsGpuGemmPass)pass, s.m, s.n, s.k, w->protocol, &seconds, &reason);
      if (ok)
        g_string_append_printf(w->csv, "%s,%d,%d,%d,%.6g\n", roles[pass], s.m, s.n, s.k, seconds * 1e6),
            rate(w, 2.0 * s.m * s.n * s.k / seconds);
      going = measured(w, ok, reason);
    }
  return end(w, "train-gemm", 1e12, "TFLOP/s");
}

enum { CACHE_COPIES = 3 };

/* Copies of a 32nd, a 16th and an 8th of the last-level cache, four buffers of which stay in it. */
static gboolean cache_copies(Work *w) {
  for (int i = 0; i < CACHE_COPIES; i++) {
    double bytes = floor(ms_gpu_info(w->gpu)->cache_B / (32 >> i) / 4096) * 4096, seconds = 0;
    GError *reason = NULL;
    if (bytes <= 0) return TRUE;
    gboolean ok = ms_gpu_cache_copy(w->gpu, bytes, w->protocol, &seconds, &reason);
    if (ok) g_string_append_printf(w->csv, "cache_copy,%.0f,%.6g\n", 2 * bytes, seconds * 1e6);
    if (!measured(w, ok, reason)) return FALSE;
  }
  return TRUE;
}

static gboolean copy_table(Work *w) {
  begin(w, "op,bytes,latency_us");
  if (!cache_copies(w)) return end(w, "copy", 1e9, "GB/s");
  for (int power = 20; power <= 30; power += w->options->quick ? 2 : 1) {
    double bytes = ldexp(1, power), seconds = 0;
    GError *reason = NULL;
    gboolean ok = ms_gpu_copy(w->gpu, bytes, w->protocol, &seconds, &reason);
    if (ok) g_string_append_printf(w->csv, "copy,%.0f,%.6g\n", 2 * bytes, seconds * 1e6), rate(w, 2 * bytes / seconds);
    if (!measured(w, ok, reason)) break;
  }
  return end(w, "copy", 1e9, "GB/s");
}

static gboolean collective_table(Work *w) {
  gboolean going = TRUE;
  if (!ms_gpu_info(w->gpu)->has_collectives) return TRUE;
  begin(w, "op,num_gpus,bytes,latency_us");
  for (int ranks = 2; ranks <= ms_gpu_info(w->gpu)->count && going; ranks *= 2)
    for (int what = 0; what < MS_GPU_N_COLLECTIVES && going; what++)
      for (int power = 16; power <= 30 && going; power += w->options->quick ? 2 : 1) {
        double bytes = ldexp(1, power), seconds = 0;
        GError *reason = NULL;
        gboolean ok = ms_gpu_collective(w->gpu, (MsGpuCollective)what, ranks, bytes, w->protocol, &seconds, &reason);
        if (ok)
          g_string_append_printf(w->csv, "%s,%d,%.0f,%.6g\n", ms_gpu_collective_words[what], ranks, bytes,
                                 seconds * 1e6),
              rate(w, bytes / seconds);
        going = measured(w, ok, reason);
      }
  return end(w, "collectives", 1e9, "GB/s of buffer");
}

/* "NVIDIA H100 80GB HBM3" -> "nvidia-h100-80gb-hbm3" */
static char *file_name(const MsGpuInfo *info) {
  char *name = g_ascii_strdown(info->name[0] ? info->name : info->vendor, -1);
  g_strcanon(name, "abcdefghijklmnopqrstuvwxyz0123456789", '-');
  return name;
}

static int steps(const MsGpuInfo *info, gboolean quick) {
  g_autoptr(GArray) shapes = gemm_shapes(quick);
  int ranks = 0;
  for (int r = 2; info->has_collectives && r <= info->count; r *= 2) ranks++;
  return (int)shapes->len + 3 * (int)G_N_ELEMENTS(layer) / (quick ? 4 : 1) + (quick ? 6 : 11) + CACHE_COPIES +
         ranks * MS_GPU_N_COLLECTIVES * (quick ? 8 : 15);
}

MsSurvey *ms_gpu_survey(MsGpu *gpu, const char *folder, const MsSurveyOptions *options, GError **error) {
  GError *problem = NULL;
  if (g_mkdir_with_parents(folder, 0777) != 0)
    return ms_error(error, MS_ERROR_ENV, "%s: cannot be made: %s", folder, g_strerror(errno)), NULL;
  Work w = {.gpu = gpu,
            .options = options,
            .folder = folder,
            .survey = g_new0(MsSurvey, 1),
            .name = file_name(ms_gpu_info(gpu)),
            .error = &problem,
            .protocol = options->quick ? (MsGpuProtocol){2e-3, 3} : (MsGpuProtocol){10e-3, 7}};
  w.progress = options->progress ? ms_progress_begin("measuring", steps(ms_gpu_info(gpu), options->quick)) : NULL;
  gboolean ok = gemm_table(&w) && train_gemm_table(&w) && copy_table(&w) && collective_table(&w);
  ms_progress_end(w.progress);
  g_free(w.name);
  if (ok || (w.survey->interrupted && !problem)) return w.survey;
  ms_survey_free(w.survey);
  g_propagate_error(error, problem);
  return NULL;
}

void ms_survey_free(MsSurvey *survey) {
  if (!survey) return;
  for (int i = 0; i < survey->n; i++) {
    g_free(survey->table[i].file);
    g_free(survey->table[i].best);
  }
  g_free(survey->table);
  g_free(survey);
}
