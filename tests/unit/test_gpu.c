/* Calibrating a GPU, on one that exists on paper only (tests/fake): every call is checked by it, and the curves that
 * are fitted to what was measured must be its clock. */
#include "lib/close.h"

#include "base/err.h"
#include "calib/fit.h"
#include "gpu/survey.h"
#include "lib/world.h"

#include <glib/gstdio.h>
#include <unistd.h>
#include <string.h>

static char *folder;

/* A folder whose libraries are the paper GPU's, under the names that the loader looks for. */
static char *paper(const char *vendor) {
  g_autofree char *self = g_file_read_link("/proc/self/exe", NULL), *here = g_path_get_dirname(self);
  g_autofree char *base = g_strdup_printf("fake-%s.so", vendor), *library = g_build_filename(here, base, NULL);
  static const char *const names[2][4] = {{"libcudart.so.13", "libcublas.so.13", "libnccl.so.2", "libcuda.so.1"},
                                          {"libmusart.so.5", "libmublas.so.1.0", "libmccl.so.2", "libmusa.so.1.0"}};
  char *at = g_build_filename(folder, vendor, NULL);
  g_mkdir_with_parents(at, 0700);
  for (int i = 0; i < 4; i++) {
    g_autofree char *link = g_build_filename(at, names[strcmp(vendor, "musa") == 0][i], NULL);
    if (!g_file_test(link, G_FILE_TEST_EXISTS)) assert_int_equal(symlink(library, link), 0);
  }
  return at;
}

static void use(const char *vendor, const char *devices, const char *memory_MB, const char *fail) {
  g_autofree char *at = paper(vendor);
  g_setenv("MOESIM_GPU_LIBRARIES", at, TRUE);
  g_setenv("FAKE_GPU_DEVICES", devices, TRUE);
  g_setenv("FAKE_GPU_MEMORY_MB", memory_MB, TRUE);
  g_setenv("FAKE_GPU_FAIL", fail, TRUE);
}

static const MsGpuProtocol brief = {1e-4, 3};

static void times_are_those_of_the_device(void **state) {
  (void)state;
  static const char *const vendors[] = {"cuda", "musa"};
  for (int v = 0; v < 2; v++) {
    use(vendors[v], "4", "65536", "");
    GError *error = NULL;
    g_autoptr(MsGpu) gpu = ms_gpu_open(vendors[v], 0, &error);
    if (!gpu) fail_msg("%s", error->message);
    const MsGpuInfo *info = ms_gpu_info(gpu);
    assert_string_equal(info->vendor, vendors[v]);
    assert_string_equal(info->name, "Paper GPU 64GB");
    assert_int_equal(info->multiprocessors, 132);
    assert_true(info->has_collectives);
    double seconds = 0;
    for (int pass = 0; pass < 3; pass++) {
      if (!ms_gpu_gemm(gpu, (MsGpuGemmPass)pass, 1000, 512, 768, brief, &seconds, &error))
        fail_msg("pass %d: %s", pass, error->message);
      assert_close(seconds, 5e-6 + 2.0 * 1000 * 512 * 768 / 400e12, 1e-4);
    }
    if (!ms_gpu_copy(gpu, 1 << 26, brief, &seconds, &error)) fail_msg("%s", error->message);
    assert_close(seconds, 4e-6 + 2.0 * (1 << 26) / 2e12, 1e-4);
    for (int what = 0; what < MS_GPU_N_COLLECTIVES; what++)
      for (int ranks = 2; ranks <= 4; ranks++) {
        double bytes = 1200000; /* a multiple of 2, 3 and 4 elements */
        if (!ms_gpu_collective(gpu, (MsGpuCollective)what, ranks, bytes, brief, &seconds, &error))
          fail_msg("%d over %d: %s", what, ranks, error->message);
        assert_close(seconds, 20e-6 + bytes / 100e9, 1e-4);
      }
  }
}

static void what_is_missing_is_named(void **state) {
  (void)state;
  static const struct {
    const char *devices, *fail, *vendor;
    int device;
    const char *says;
  } cases[] = {{"0", "", "cuda", 0, "no device"},
               {"1", "", "cuda", 3, "no device 3, there are 1"},
               {"1", "count", "cuda", 0, "get_count returned 1"},
               {"1", "blas", "cuda", 0, "blas_create"},
               {"1", "", "musa", 0, "no libmusart.so.5"}};
  for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
    use("cuda", cases[i].devices, "65536", cases[i].fail);
    g_autoptr(GError) error = NULL;
    assert_null(ms_gpu_open(cases[i].vendor, cases[i].device, &error));
    assert_int_equal(error->code, MS_ERROR_ENV);
    if (!strstr(error->message, cases[i].says)) fail_msg("'%s' does not say '%s'", error->message, cases[i].says);
  }
  use("cuda", "1", "65536", "gemm");
  g_autoptr(MsGpu) gpu = ms_gpu_open(NULL, 0, NULL);
  assert_non_null(gpu);
  double seconds = 0;
  g_autoptr(GError) error = NULL;
  assert_false(ms_gpu_gemm(gpu, MS_GPU_FORWARD, 64, 64, 64, brief, &seconds, &error));
  assert_non_null(strstr(error->message, "gemm returned 1"));
  g_clear_error(&error);
  assert_false(ms_gpu_collective(gpu, MS_GPU_ALL_REDUCE, 2, 1024, brief, &seconds, &error));
}

static GPtrArray *tables_of(const MsSurvey *survey) {
  GPtrArray *files = g_ptr_array_new();
  for (int i = 0; i < survey->n; i++) g_ptr_array_add(files, survey->table[i].file);
  g_ptr_array_add(files, NULL);
  return files;
}

/* From the paper device to a profile: the curves must give its clock back on points that were held back from them. */
static void the_fitted_curves_are_the_clock_of_the_device(void **state) {
  (void)state;
  use("cuda", "2", "65536", "");
  GError *error = NULL;
  g_autoptr(MsGpu) gpu = ms_gpu_open(NULL, 0, &error);
  if (!gpu) fail_msg("%s", error->message);
  g_autofree char *out = g_build_filename(folder, "tables", NULL);
  g_autoptr(MsSurvey) survey = ms_gpu_survey(gpu, out, &(MsSurveyOptions){0}, &error);
  if (!survey) fail_msg("%s", error->message);
  assert_int_equal(survey->n, 4);
  assert_int_equal(survey->refused, 0);
  assert_true(strstr(survey->table[0].file, "paper-gpu-64gb-gemm.csv") != NULL);
  g_autoptr(GPtrArray) files = tables_of(survey);
  g_autoptr(GPtrArray) series = g_ptr_array_new_with_free_func((GDestroyNotify)ms_series_free);
  static const char *const names[] = {"h100-sxm", NULL};
  int rows[MS_N_ROW_KINDS] = {0};
  for (guint i = 0; i + 1 < files->len; i++) {
    g_autofree char *note = NULL;
    if (!ms_measure_read(files->pdata[i], names, series, &note, &error)) fail_msg("%s", error->message);
    if (note) fail_msg("%s: %s", (char *)files->pdata[i], note);
  }
  for (guint i = 0; i < series->len; i++) {
    const MsSeries *s = series->pdata[i];
    rows[s->kind] += (int)s->rows->len;
    for (guint j = 0; j < s->rows->len; j++) {
      const MsRow *row = &g_array_index(s->rows, MsRow, j);
      const double *x = row->x;
      double want = s->kind == MS_ROW_GEMM   ? 5e-6 + 2 * x[0] * x[1] * x[2] / 400e12
                    : s->kind == MS_ROW_CAST ? 4e-6 + x[0] / 2e12
                                             : 20e-6 + x[0] / 100e9;
      assert_close(row->time_s, want, 1e-3);
    }
  }
  assert_int_equal(rows[MS_ROW_GEMM], survey->table[0].rows + survey->table[1].rows);
  assert_in_range(rows[MS_ROW_CAST], 6, 8); /* with three of the cache; other small copies are left out */
  assert_int_equal(rows[MS_ROW_COLLECTIVE], survey->table[3].rows);
}

static void what_does_not_fit_is_left_out_and_counted(void **state) {
  (void)state;
  use("cuda", "1", "1024", "");
  GError *error = NULL;
  g_autoptr(MsGpu) gpu = ms_gpu_open(NULL, 0, &error);
  if (!gpu) fail_msg("%s", error->message);
  g_autofree char *out = g_build_filename(folder, "small", NULL);
  g_autoptr(MsSurvey) survey = ms_gpu_survey(gpu, out, &(MsSurveyOptions){.quick = TRUE}, &error);
  if (!survey) fail_msg("%s", error->message);
  assert_int_equal(survey->n, 3); /* one device has no collectives */
  assert_true(survey->refused > 0);
  assert_true(survey->table[0].rows > 0);
  g_autoptr(MsSurvey) none = ms_gpu_survey(gpu, "/proc/nothing/here", &(MsSurveyOptions){.quick = TRUE}, &error);
  assert_null(none);
  assert_int_equal(error->code, MS_ERROR_ENV);
  g_clear_error(&error);
}

static int setup(void **state) {
  (void)state;
  folder = g_dir_make_tmp("moesim-gpu-XXXXXX", NULL);
  return folder ? 0 : -1;
}

static void remove_tree(const char *path) {
  g_autoptr(GDir) dir = g_file_test(path, G_FILE_TEST_IS_SYMLINK) ? NULL : g_dir_open(path, 0, NULL);
  const char *entry;
  while (dir && (entry = g_dir_read_name(dir))) {
    g_autofree char *child = g_build_filename(path, entry, NULL);
    remove_tree(child);
  }
  g_remove(path);
}

static int teardown(void **state) {
  (void)state;
  remove_tree(folder);
  g_free(folder);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_those_of_the_device),
                                     cmocka_unit_test(what_is_missing_is_named),
                                     cmocka_unit_test(the_fitted_curves_are_the_clock_of_the_device),
                                     cmocka_unit_test(what_does_not_fit_is_left_out_and_counted)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
