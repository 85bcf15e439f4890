/* Logs of benchmarks and of training runs: what is read, what comes out as a machine, what is refused. */
#include "lib/close.h"

#include "base/err.h"
#include "base/library.h"
#include "cost/bench.h"
#include "lib/data.h"
#include "lib/mutate.h"
#include "lib/refusals.h"
#include "lib/tier.h"
#include "logs/machine.h"
#include "logs/training.h"

#include <glib/gstdio.h>
#include <gsl/gsl_errno.h>
#include <math.h>
#include <string.h>

static char *sample(const char *name) { return g_build_filename(MS_SOURCE_DIR, "tests/data/logs", name, NULL); }

static int form_of(const char *word) {
  for (int i = 0; ms_bench_words[i]; i++)
    if (strcmp(ms_bench_words[i], word) == 0) return i;
  return -1;
}

static MsBench *bench(const char *word, const char *name, int ranks, GPtrArray *notes) {
  GError *error = NULL;
  g_autofree char *file = sample(name);
  g_autoptr(MsReader) reader = ms_reader_open(file, &error);
  assert_null(error);
  MsBench *b = ms_bench_read(form_of(word), reader, file, ranks, notes, &error);
  assert_null(error);
  return b;
}

static void benchmarks(void **state) {
  (void)state;
  static const struct {
    const char *word, *file, *op;
    int ranks, hosts;
    guint rows;
    double size_B, time_s; /* of the last row */
  } expect[] = {{"nccl-tests", "all_reduce-16.log", "all_reduce", 16, 2, 14, 8589934592, 48261.1e-6},
                {"rccl-tests", "all_reduce-8.log", "all_reduce", 8, 1, 14, 8589934592, 37307.9e-6},
                {"nccl-tests", "alltoall_perf-16.log", "all_to_all", 16, 2, 14, 8589934592, 136541e-6},
                {"hccl-test", "hccl_all_reduce.log", "all_reduce", 8, 0, 7, 1073741824, 15420.70e-6},
                {"ib_write_bw", "ib_write_bw.log", "link", 0, 0, 2, 1048576, 1048576 / (392.98e9 / 8)},
                {"stream", "stream.log", "memory", 0, 0, 4, 1e9, 1e9 / 2676543.1e6},
                {"mlc", "mlc.log", "memory", 0, 0, 3, 1e9, 1e9 / 128158.7e6}};
  for (gsize i = 0; i < G_N_ELEMENTS(expect); i++) {
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(MsBench) b = bench(expect[i].word, expect[i].file, 0, notes);
    assert_string_equal(b->op, expect[i].op);
    assert_int_equal(b->ranks, expect[i].ranks);
    assert_int_equal(b->hosts, expect[i].hosts);
    assert_int_equal(b->rows->len, expect[i].rows);
    const MsBenchRow *last = &g_array_index(b->rows, MsBenchRow, b->rows->len - 1);
    assert_close(last->size_B, expect[i].size_B, 1e-9);
    assert_close(last->time_s, expect[i].time_s, 1e-2);
    assert_int_equal(notes->len, 0);
  }
}

/* A log as the cost model itself would print it gives back the step and the rate it was made with, and the machine
 * file is one that loads, with the curves of its base behind its own. */
static void machine(void **state) {
  (void)state;
  GError *error = NULL;
  ms_test_data_write("wired.json", "{\"base\": \"box\", \"nic_Bps\": 5e10, \"curves\": [{\"op\": \"all_gather\", "
                                   "\"level\": \"network\", \"form\": \"segments\", \"segments\": [[9e-6, 31e9]]}]}");
  g_autofree char *wired = ms_test_data_path("wired.json");
  g_autoptr(MsHardware) base = ms_hardware_load(wired, &error), box = ms_hardware_load("box", NULL);
  assert_null(error);
  assert_int_equal(base->num_curves, box->num_curves + 1); /* those of its base that it does not give stay */
  MsScenario s = {.hardware = base};
  assert_true(ms_laws_load(&s.laws, &error));
  g_autoptr(GPtrArray) benches = g_ptr_array_new_with_free_func((GDestroyNotify)ms_bench_free),
                       notes = g_ptr_array_new_with_free_func(g_free);
  for (int ranks = 16; ranks <= 64; ranks *= 2) {
    MsBench *b = g_new0(MsBench, 1);
    *b = (MsBench){g_strdup("made"), "all_gather", ranks,
                   ranks / 8,        NULL,         g_array_new(FALSE, FALSE, sizeof(MsBenchRow))};
    MsGroup group = ms_bench_group(base, ranks, 8);
    assert_int_equal(group.domains, ranks / 8);
    for (double size = 1 << 16; size < 9e9; size *= 4) {
      MsBenchRow row = {size, ms_bench_collective_s(&s, "all_gather", &group, size)};
      g_array_append_val(b->rows, row);
    }
    g_ptr_array_add(benches, b);
  }
  const MsLogsMachine options = {wired, "mine", "2026-11-22", "a test"};
  g_autofree char *text = ms_logs_machine(benches, &options, notes, &error);
  assert_null(error);
  ms_test_data_write("mine.json", text);
  g_autofree char *file = ms_test_data_path("mine.json");
  g_autoptr(MsHardware) mine = ms_hardware_load(file, &error), shipped = ms_hardware_load(wired, NULL);
  assert_null(error);
  assert_string_equal(mine->name, "mine");
  assert_int_equal(mine->num_curves, shipped->num_curves); /* one in place of another */
  const MsCurve *curve = &mine->curves[0];
  assert_string_equal(curve->op, "all_gather");
  assert_close(curve->segment_alpha_s[0], 9e-6, 0.02);
  assert_close(curve->segment_Bps[0], 31e9, 0.02);
  assert_in_range((int)(1e4 * curve->provenance.residual_p90), 0, 100);
  assert_int_equal(notes->len, 1);
}

/* Of two sizes nothing is held back, so that nobody knows how well the curve fits. */
static void two_sizes(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) benches = g_ptr_array_new_with_free_func((GDestroyNotify)ms_bench_free),
                       notes = g_ptr_array_new_with_free_func(g_free);
  MsBench *b = g_new0(MsBench, 1);
  *b = (MsBench){g_strdup("made"), "all_reduce", 8, 1, NULL, g_array_new(FALSE, FALSE, sizeof(MsBenchRow))};
  const MsBenchRow rows[] = {{1 << 20, 40e-6}, {1 << 30, 5e-3}};
  g_array_append_vals(b->rows, rows, 2);
  g_ptr_array_add(benches, b);
  const MsLogsMachine options = {"box", "mine", "2026-11-22", "a test"};
  g_autofree char *text = ms_logs_machine(benches, &options, notes, &error);
  assert_null(error);
  assert_string_equal(notes->pdata[0], "all_reduce among 8 ranks of a domain: 2 sizes, too few to tell how well the "
                                       "curve fits");
}

static MsBench *collective(int ranks, const char *device, double s) {
  MsBench *b = g_new0(MsBench, 1);
  *b = (MsBench){
      g_strdup("made"), "all_reduce", ranks, 1, g_strdup(device), g_array_new(FALSE, FALSE, sizeof(MsBenchRow)),
      ms_bench_words[0]};
  for (double size = 1 << 20; size < 1e9; size *= 2) {
    MsBenchRow row = {size, s + size / 3e11};
    g_array_append_val(b->rows, row);
  }
  return b;
}

/* Takes both. NULL and *error. */
static char *machine_of(MsBench *first, MsBench *second, const char *base, GError **error) {
  g_autoptr(GPtrArray) benches = g_ptr_array_new_with_free_func((GDestroyNotify)ms_bench_free),
                       notes = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(benches, first);
  if (second) g_ptr_array_add(benches, second);
  return ms_logs_machine(benches, &(MsLogsMachine){base, "mine", "2026-11-22", "a test"}, notes, error);
}

/* Two logs of a group make one curve; the same one twice is no second measurement. */
static void two_logs(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = machine_of(collective(8, NULL, 2e-5), collective(8, NULL, 3e-5), "box", &error);
  assert_null(error);
  assert_non_null(strstr(text, "\"op\""));
  assert_null(strstr(strstr(text, "\"op\"") + 1, "\"op\""));
  assert_null(machine_of(collective(8, NULL, 2e-5), collective(8, NULL, 2e-5), "box", &error));
  assert_string_equal(error->message, "made: has the times of made: give each measurement once");
}

/* By the words that a driver names a GPU with, against the name or the architecture of the machine. */
static void other_gpu(void **state) {
  (void)state;
  g_autofree char *before = g_strdup(g_getenv("MOESIM_DATA")), *mine = ms_test_data_path("mine-h.json");
  ms_test_data_write("mine-h.json", "{\"base\": \"h100-sxm\", \"name\": \"mine\"}");
  g_setenv("MOESIM_DATA", MS_SOURCE_DIR, TRUE);
  const struct {
    const char *device, *base;
    gboolean refused;
  } table[] = {{"NVIDIA H100 80GB HBM3", "h100-sxm", FALSE},
               {"NVIDIA H100 80GB HBM3", "h200-sxm", TRUE},
               {"NVIDIA GB200", "b200-sxm", TRUE},
               {"NVIDIA GB200", "gb200-nvl72", FALSE},
               {"AMD Instinct MI300X", "mi300x", FALSE},
               {"AMD Instinct MI308X", "h100-sxm", TRUE},
               {"NVIDIA GeForce RTX 4090", "l40s", FALSE},
               {"MTT S5000", "mtt-s4000", TRUE},
               {"MTT S5000", "mtt-s5000", FALSE},
               {"NVIDIA H100 80GB HBM3", mine, FALSE},
               {"NVIDIA A100-SXM4-80GB", mine, TRUE}};
  for (gsize i = 0; i < G_N_ELEMENTS(table); i++) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = machine_of(collective(8, table[i].device, 2e-5), NULL, table[i].base, &error);
    if ((text == NULL) != table[i].refused)
      fail_msg("%s on %s: %s", table[i].device, table[i].base, error ? error->message : "");
    if (error) assert_non_null(strstr(error->message, "--hardware names the machine that the logs are of"));
  }
  g_setenv("MOESIM_DATA", before, TRUE);
}

static MsTrainingLog *training(const char *name, GPtrArray *notes) {
  GError *error = NULL;
  g_autofree char *file = sample(name);
  g_autoptr(MsReader) reader = ms_reader_open(file, &error);
  MsTrainingLog *log = ms_training_log_read(reader, file, notes, &error);
  assert_null(error);
  return log;
}

static void runs(void **state) {
  (void)state;
  static const struct {
    const char *file, *form;
    double time_s, tokens_per_s, allocated_GiB, reserved_GiB; /* 0: not printed */
    int kept, starts, bad, warm;
  } expect[] = {{"megatron.log", "Megatron-LM", 9.3062, 0, 61234.5 / 1024, 68002.0 / 1024, 26, 2, 1, 3},
                {"torchtitan.log", "TorchTitan", 0, 5768, 0, 46.99, 3, 1, 0, 1},
                {"nemo.log", "NeMo", 9.121, 0, 0, 0, 3, 1, 0, 1},
                {"mlperf.log", "MLPerf", 10.01, 0, 0, 0, 2, 1, 0, 1}};
  for (gsize i = 0; i < G_N_ELEMENTS(expect); i++) {
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(MsTrainingLog) log = training(expect[i].file, notes);
    const double is[] = {log->time_s, log->tokens_per_s, log->allocated_GiB, log->reserved_GiB},
                 must[] = {expect[i].time_s, expect[i].tokens_per_s, expect[i].allocated_GiB, expect[i].reserved_GiB};
    assert_string_equal(log->form, expect[i].form);
    for (gsize k = 0; k < G_N_ELEMENTS(is); k++)
      if (must[k] > 0) assert_close(is[k], must[k], 1e-4);
      else assert_true(isnan(is[k]));
    assert_int_equal(log->kept, expect[i].kept);
    assert_int_equal(log->starts, expect[i].starts);
    assert_int_equal(log->bad, expect[i].bad);
    assert_int_equal(log->warm, expect[i].warm);
    assert_int_equal(log->arguments->len > 0, strcmp(log->form, "Megatron-LM") == 0);
  }
}

/* --- what is refused ------------------------------------------------------------------------------------------- */
static GError *read_text(const char *kind, const char *text, gsize length) {
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsReader) reader = ms_reader_of(text, length, "log");
  if (strcmp(kind, "log") == 0) ms_training_log_free(ms_training_log_read(reader, "log", notes, &error));
  else ms_bench_free(ms_bench_read(form_of(kind), reader, "log", 0, notes, &error));
  return error;
}

static GError *refuse(const char *kind, const char *file, const char *text, gsize length) {
  (void)text, (void)length;
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsReader) reader = ms_reader_open(file, &error);
  if (strcmp(kind, "log") == 0) ms_training_log_free(ms_training_log_read(reader, file, notes, &error));
  else ms_bench_free(ms_bench_read(form_of(kind), reader, file, 0, notes, &error));
  return error;
}

static const char *argument_of(const MsTrainingLog *log, const char *name) {
  gsize n = strlen(name);
  for (guint i = 0; i < log->arguments->len; i++) {
    const char *line = log->arguments->pdata[i];
    if (strncmp(line, name, n) == 0 && line[n] == ' ') return line + n + 1;
  }
  return NULL;
}

/* As srun --label prints it; a name so long that no dots are left; the vocabulary of the tokenizer. */
static void labelled(void **state) {
  (void)state;
  static const char text[] =
      "0: ------------------------ arguments ------------------------\n"
      "0:   hidden_size ..................................... 3072\n"
      "0:   microbatch_group_size_per_virtual_pipeline_stage  4\n"
      "0: -------------------- end of arguments ---------------------\n"
      "0:  > padded vocab (size: 50257) with 431 dummy tokens (new size: 50688)\n"
      "0:  iteration 1/ 20 | consumed samples: 512 | elapsed time per iteration (ms): 9444.9 |\n"
      "0:  iteration 3/ 20 | consumed samples: 1536 | elapsed time per iteration (ms): 5533.8 |\n";
  g_autofree char *file = NULL;
  int fd = g_file_open_tmp("log-XXXXXX", &file, NULL);
  assert_true(fd >= 0 && g_file_set_contents(file, text, -1, NULL) && g_close(fd, NULL));
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsReader) reader = ms_reader_open(file, NULL);
  g_autoptr(MsTrainingLog) log = ms_training_log_read(reader, file, notes, NULL);
  g_unlink(file);
  assert_non_null(log);
  assert_string_equal(argument_of(log, "hidden_size"), "3072");
  assert_string_equal(argument_of(log, "microbatch_group_size_per_virtual_pipeline_stage"), "4");
  assert_int_equal(log->vocab_size, 50257);
  assert_int_equal(log->global_batch, 512);
}

static void append_steps(GString *text, const char *rank, int from, int to, int batch, double ms) {
  for (int i = from; i <= to; i++)
    g_string_append_printf(text,
                           "%s iteration %d/ 99 | elapsed time per iteration (ms): %g | global batch size: %d |\n",
                           rank, i, ms, batch);
}

static void append_arguments(GString *text, int layers, int batch, const char *load) {
  g_string_append_printf(text,
                         "--- arguments ---\n  num_layers ... %d\n  global_batch_size ... %d\n  load ... %s\n"
                         "--- end of arguments ---\n",
                         layers, batch, load);
}

static MsTrainingLog *of_text(const GString *text, GPtrArray *notes) {
  GError *error = NULL;
  g_autoptr(MsReader) reader = ms_reader_of(text->str, text->len, "log");
  MsTrainingLog *log = ms_training_log_read(reader, "log", notes, &error);
  assert_null(error);
  return log;
}

/* Of a batch that grows the steps of its last size count; where the arguments say a size, those of that. */
static void growing_batch(void **state) {
  (void)state;
  for (int own = 0; own <= 128; own += 128) {
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GString) text = g_string_new(NULL);
    if (own > 0) append_arguments(text, 8, own, "None");
    append_steps(text, "", 1, 9, 64, 1000), append_steps(text, "", 10, 15, 128, 2000);
    if (own > 0) append_steps(text, "", 16, 30, 256, 4000);
    g_autoptr(MsTrainingLog) log = of_text(text, notes);
    assert_close(log->time_s, 2, 1e-9);
    assert_int_equal(log->global_batch, 128);
    assert_int_equal(log->kept, 6);
    assert_int_equal(log->other_batches, own > 0 ? 24 : 9);
    assert_non_null(strstr(notes->pdata[1], "another global batch size than 128"));
  }
}

/* Behind other arguments another run begins; a restart of the same run prints the same, but for where it loads from. */
static void two_runs(void **state) {
  (void)state;
  for (int layers = 8; layers <= 16; layers += 8) {
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GString) text = g_string_new(NULL);
    append_arguments(text, 8, 64, "None"), append_steps(text, "", 1, 20, 64, 1000);
    append_arguments(text, layers, 64, "/checkpoints"), append_steps(text, "", 11, 15, 64, 2000);
    g_autoptr(MsTrainingLog) log = of_text(text, notes);
    assert_int_equal(log->runs, layers == 8 ? 1 : 2);
    assert_int_equal(log->starts, layers == 8 ? 2 : 1);
    assert_close(log->time_s, layers == 8 ? 1 : 2, 1e-9);
    assert_string_equal(argument_of(log, "num_layers"), layers == 8 ? "8" : "16");
    if (layers == 16) assert_non_null(strstr(notes->pdata[1], "the last differ in num_layers"));
  }
}

/* However often: a run that is started again and again is one, as long as it goes on from where it was. */
static void many_restarts(void **state) {
  (void)state;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GString) text = g_string_new(NULL);
  for (int i = 1; i <= 5; i++) append_steps(text, "", i, i + 2, 64, 1000 + i);
  g_autoptr(MsTrainingLog) log = of_text(text, notes);
  assert_int_equal(log->starts, 5);
  assert_int_equal(log->kept, 10);
}

/* A log that stands in a file twice counts once; NeMo counts from 0; an infinite loss is none. */
static void twice(void **state) {
  (void)state;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GString) text = g_string_new(NULL);
  for (int copy = 0; copy < 2; copy++)
    for (int i = 0; i < 9; i++)
      g_string_append_printf(text,
                             "iteration %d/9 | global_step: %d | reduced_train_loss: %s | "
                             "train_step_timing in s: %g\n",
                             i, i, i == 4 ? "inf" : "2.5", 9 + 0.01 * i);
  g_autoptr(MsTrainingLog) log = of_text(text, notes);
  assert_int_equal(log->steps->len, 9);
  assert_int_equal(log->copies, 8); /* the other is the step before again */
  assert_non_null(strstr(notes->pdata[2], "8 lines of steps stand there again"));
  assert_int_equal(log->starts, 1);
  assert_int_equal(log->bad, 1);
  assert_int_equal(log->kept, 7);
}

/* MLPerf: numbers of steps where they stand or follow from samples, else their place. */
static void mlperf_numbers(void **state) {
  (void)state;
  static const struct {
    const char *metadata;
    int last; /* of three */
  } table[] = {{"\"step\": %d", 30}, {"\"samples_count\": %d000", 300}, {"\"file\": \"%d\"", 3}};
  for (gsize i = 0; i < G_N_ELEMENTS(table); i++) {
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GString) text = g_string_new(":::MLLOG {\"key\": \"global_batch_size\", \"value\": 100}\n");
    for (int k = 10; k <= 30; k += 10) {
      g_string_append(text, ":::MLLOG {\"key\": \"tracked_stats\", \"value\": {\"throughput\": 50}, \"metadata\": {");
      g_string_append_printf(text, table[i].metadata, k);
      g_string_append(text, "}}\n");
    }
    g_autoptr(MsTrainingLog) log = of_text(text, notes);
    assert_int_equal(log->last, table[i].last);
    assert_close(log->time_s, 2, 1e-9);
  }
}

/* A step that several ranks print is one step, and no start. */
static void several_ranks(void **state) {
  (void)state;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GString) text = g_string_new(NULL);
  for (int i = 1; i <= 5; i++) append_steps(text, "0:", i, i, 64, 1000), append_steps(text, "1:", i, i, 64, 1001);
  append_steps(text, "0:", 6, 9, 64, 1000), append_steps(text, "1:", 6, 9, 64, 1001); /* in blocks, as buffers write */
  append_steps(text, "", 10, 10, 64, 1000), append_steps(text, "", 10, 10, 64, 1000); /* two handlers of one logger */
  g_autoptr(MsTrainingLog) log = of_text(text, notes);
  assert_int_equal(log->steps->len, 10);
  assert_int_equal(log->starts, 1);
  assert_int_equal(log->kept, 9);
}

static void corpus(void **state) {
  (void)state;
  g_autofree char *folder = ms_test_data_path("");
  ms_test_refusals("nccl-tests", folder, refuse, 7);
  ms_test_refusals("log", folder, refuse, 5);
}

/* Damaged logs: something is read, or one line says what is wrong. */
static void damaged(void **state) {
  (void)state;
  static const char *const files[][2] = {{"nccl-tests", "all_reduce-8.log"},
                                         {"hccl-test", "hccl_all_reduce.log"},
                                         {"ib_write_bw", "ib_write_bw.log"},
                                         {"stream", "stream.log"},
                                         {"mlc", "mlc.log"},
                                         {"log", "megatron.log"},
                                         {"log", "torchtitan.log"},
                                         {"log", "mlperf.log"},
                                         {"log", "nemo.log"}};
  g_autoptr(GRand) rand = g_rand_new_with_seed(23);
  for (gsize i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autofree char *file = sample(files[i][1]), *text = NULL;
    assert_true(g_file_get_contents(file, &text, NULL, NULL));
    int refused = 0, rounds = ms_by_tier(100, 2000);
    for (int k = 0; k < rounds; k++) {
      g_autofree char *other = ms_test_mutate(rand, text);
      g_autoptr(GError) error = read_text(files[i][0], other, strlen(other));
      refused += error != NULL;
      if (!error) continue;
      assert_int_equal(error->code, MS_ERROR_INPUT);
      assert_null(strchr(error->message, '\n'));
    }
    assert_true(refused < rounds);
  }
}

static char *packed_log(int first, gsize *written) {
  g_autoptr(GString) text = g_string_new(NULL);
  for (int i = first; i < first + 400; i++)
    g_string_append_printf(text, " iteration %d/ 900 | elapsed time per iteration (ms): %d.%d | lm loss: 1.0E+00 |\n",
                           i, 1000 + i * 7919 % 13, i * 31 % 10);
  GConverter *pack = G_CONVERTER(g_zlib_compressor_new(G_ZLIB_COMPRESSOR_FORMAT_GZIP, 9));
  char *packed = g_malloc(text->len);
  gsize read;
  GError *error = NULL;
  assert_int_equal(g_converter_convert(pack, text->str, text->len, packed, text->len, G_CONVERTER_INPUT_AT_END, &read,
                                       written, &error),
                   G_CONVERTER_FINISHED);
  g_object_unref(pack);
  return packed;
}

/* A gzip file that ends early is read as far as it goes, and said to be. */
static void cut_short(void **state) {
  (void)state;
  gsize written;
  GError *error = NULL;
  g_autofree char *packed = packed_log(1, &written);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsReader) reader = ms_reader_of(packed, written / 2, "cut.gz");
  g_autoptr(MsTrainingLog) log = ms_training_log_read(reader, "cut.gz", notes, &error);
  assert_null(error);
  assert_in_range(log->steps->len, 10, 390);
  assert_close(log->time_s, 1.006, 0.01);
  assert_non_null(strstr(notes->pdata[notes->len - 1], "cut short"));
}

/* Reading a large file ends when it is asked to. */
static void stopped(void **state) {
  (void)state;
  static const volatile int now = 1;
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *file = sample("megatron.log");
  g_autoptr(MsReader) reader = ms_reader_open(file, &error);
  ms_stop_use(&now);
  assert_null(ms_training_log_read(reader, file, notes, &error));
  ms_stop_use(NULL);
  assert_int_equal(error->code, MS_ERROR_NOTHING);
  assert_non_null(strstr(error->message, "megatron.log: stopped before it was read"));
}

/* Members of gzip behind each other are one text, as an appended log is; zeros behind the last are left out. */
static void members(void **state) {
  (void)state;
  gsize written;
  GError *error = NULL;
  gsize next;
  g_autofree char *packed = packed_log(1, &written), *behind = packed_log(401, &next),
                  *both = g_malloc0(written + next + 700);
  memcpy(both, packed, written), memcpy(both + written, behind, next);
  const struct {
    gsize length;
    guint members;
    gboolean cut;
  } table[] = {{written + next, 2, FALSE},
               {written + next + 700, 2, FALSE}, /* a tape's */
               {written + 1, 1, FALSE},          /* one byte is no member */
               {written + next - 30, 2, TRUE}};
  for (guint i = 0; i < G_N_ELEMENTS(table); i++) {
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(MsReader) reader = ms_reader_of(both, table[i].length, "both.gz");
    g_autoptr(MsTrainingLog) log = ms_training_log_read(reader, "both.gz", notes, &error);
    assert_null(error);
    assert_int_equal(ms_reader_cut(reader), table[i].cut);
    if (table[i].cut) assert_in_range(log->steps->len, 401, 799);
    else assert_int_equal(log->steps->len, table[i].members * 400);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(benchmarks),     cmocka_unit_test(machine),       cmocka_unit_test(runs),
      cmocka_unit_test(corpus),         cmocka_unit_test(damaged),       cmocka_unit_test(labelled),
      cmocka_unit_test(cut_short),      cmocka_unit_test(members),       cmocka_unit_test(stopped),
      cmocka_unit_test(growing_batch),  cmocka_unit_test(two_runs),      cmocka_unit_test(two_sizes),
      cmocka_unit_test(several_ranks),  cmocka_unit_test(many_restarts), cmocka_unit_test(twice),
      cmocka_unit_test(mlperf_numbers), cmocka_unit_test(two_logs),      cmocka_unit_test(other_gpu)};
  gsl_set_error_handler_off();
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
