/* Configurations of TorchTitan: TOML as JSON, import, export and back, what is refused by its key. */
#include "lib/close.h"

#include "launch/launch.h"
#include "launch/titan.h"
#include "launch/toml.h"
#include "layout/layout.h"
#include "lib/mutate.h"
#include "lib/world.h"

#include <string.h>

/* --- TOML --- */

static void toml_is_json_line_by_line(void **state) {
  (void)state;
  static const struct {
    const char *toml, *json;
  } cases[] = {
      {"", "{}"},
      {"# nothing\n\n", "{\n\n}"},
      {"a = 1_000\n[t]\nb = \"x \\\"y\\\"\" # c\nc = 'l\\n'\n",
       "{\"a\":1000\n,\"t\":{\n\"b\":\"x \\\"y\\\"\"\n\"c\":\"l\\\\n\"\n}}"},
      {"[a.b]\nk = [1, -2.5e3, # two\n  true,]\n[ \"c d\" ]\n",
       "{\"a.b\":{\n\"k\":[1,-2.5e3,\n  true]\n},\"c d\":{\n}}"},
      {"k = {a = 1, b.c = []}\r\n", "{\"k\":{\"a\":1,\"b.c\":[]}\n}"},
      {"u = \"\\u00e9\\t\"", "{\"u\":\"\xc3\xa9\\u0009\"}"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    g_autofree char *json = ms_toml_as_json(cases[i].toml, "t.toml", &error);
    if (!json) fail_msg("%s: %s", cases[i].toml, error->message);
    g_autoptr(MsJson) doc = ms_json_parse(json, -1, "t.toml", &error);
    if (!doc) fail_msg("%s: %s", json, error->message);
    g_autoptr(MsJson) want = ms_json_parse(cases[i].json, -1, "want", NULL);
    if (want && !json_node_equal(ms_json_root(doc), ms_json_root(want))) fail_msg("%s, not %s", json, cases[i].json);
  }
}

static void toml_errors_have_lines(void **state) {
  (void)state;
  static const struct {
    const char *toml, *why;
  } cases[] = {
      {"a = 1\na = 2", "t.toml:2: a: is given twice"},
      {"[t]\nx = 1\n[t]\n", "t.toml:3: t: is given twice"},
      {"\n[[t]]", "t.toml:2: is a list of tables"},
      {"a = \"\"\"x\"\"\"", "t.toml:1: has a string of several lines"},
      {"a = \"x\n", "t.toml:1: has a string without its end"},
      {"a = 1979-05-27", "t.toml:1: has a"},
      {"a = 0x10", "t.toml:1: has a"},
      {"a = 012", "t.toml:1: has a value that is no"},
      {"a = [1 2]", "t.toml:1: has a list without its \"]\""},
      {"a", "t.toml:1: has a key without \"=\""},
      {"= 1", "t.toml:1: must be a key and its value"},
      {"a = 1 b = 2", "t.toml:1: has more on the line"},
      {"a = \"\\q\"", "t.toml:1: has an unknown escape"},
      {"a = {b = 1", "t.toml:1: has a table without its \"}\""},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    if (ms_toml_as_json(cases[i].toml, "t.toml", &error)) fail_msg("%s was read", cases[i].toml);
    if (!g_str_has_prefix(error->message, cases[i].why)) fail_msg("\"%s\", not \"%s\"", error->message, cases[i].why);
  }
}

/* --- import --- */

static MsImport *imported(const char *text, int gpus, char **why) {
  const MsImportOptions options = {.gpus = gpus, .hardware = "h100-sxm"};
  g_autoptr(GError) error = NULL;
  MsImport *import = ms_import_torchtitan(text, strlen(text), "run.toml", &options, &error);
  if (!import) *why = g_strdup(error->message);
  return import;
}

/* Configurations of its main branch are functions of Python. */
static const char functions[] =
    "\"\"\"Written\nfor a test.\"\"\"\n"
    "from torchtitan.models.llama3 import model_registry\n\n\n"
    "def base() -> Trainer.Config:\n"
    "    \"\"\"Has: a docstring.\"\"\"\n"
    "    sequence = 8192  # tokens\n"
    "    spec = model_registry(\"70B\", attn_backend='flex')\n\n"
    "    def inner(sample):\n"
    "        return None\n\n"
    "    return Trainer.Config(\n"
    "        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(n=size(spec))),\n"
    "        model_spec=spec,\n"
    "        optimizer=default_adamw(lr=1.5e-4),\n"
    "        training=TrainingConfig(\n"
    "            num_tokens_per_microbatch_per_dp_rank=2 * sequence,\n"
    "            max_context_length=sequence,\n"
    "            num_tokens_per_train_step=512 * 8192,\n"
    "        ),\n"
    "        parallelism=ParallelismConfig(tensor_parallel_degree=8),\n"
    "        metrics=MetricsProcessor.Config(log_freq=1),\n"
    "        activation_checkpoint=FullAC.Config(),\n"
    "    )\n\n\n"
    "def deep() -> Trainer.Config:\n"
    "    config = base()\n"
    "    config.compile = CompileConfig(enable=True, enable_async_tensor_parallel=True)\n"
    "    config.parallelism.pipeline_parallel_degree = 2\n"
    "    config.parallelism.num_pp_microbatches = 4\n"
    "    config.activation_checkpoint = None\n"
    "    config.debug.moe_force_load_balance = False\n"
    "    return config\n\n\n"
    "def low() -> Trainer.Config:\n"
    "    config = base()\n"
    "    config.model_spec = model_registry(\n"
    "        \"70B\", converters=[\n"
    "            MXFP8LinearConverter.Config(model_compile_enabled=(a.b and \"x\" in c)),\n"
    "        ],\n"
    "    )\n"
    "    return config\n\n\n"
    "def rows() -> Trainer.Config:\n"
    "    config = base()\n"
    "    config.model_spec = model_registry(\"70B\", converters=[Float8LinearConverter.Config()])\n"
    "    return config\n\n\n"
    "def other() -> Trainer.Config:\n"
    "    config = base()\n"
    "    config.model_spec = model_registry(\"70B\", converters=chosen)\n"
    "    return config\n";

static MsImport *python_import(const char *name, const char *const *words, char **why) {
  g_autofree char *choice = g_strconcat("CONFIG=", name, NULL);
  const char *const set[] = {choice, NULL};
  const MsImportOptions options = {.gpus = 64, .hardware = "b200-sxm", .set = name ? set : NULL, .words = words};
  g_autoptr(GError) error = NULL;
  MsImport *import = ms_import_torchtitan(functions, strlen(functions), "my/recipe.py", &options, &error);
  if (!import) *why = g_strdup(error->message);
  return import;
}

static void functions_of_python(void **state) {
  (void)state;
  char *why = NULL;
  g_autoptr(MsImport) import = python_import("base", NULL, &why);
  if (!import) fail_msg("%s", why);
  const MsScenario *s = import->scenario;
  assert_string_equal(s->name, "base");
  assert_string_equal(s->model->name, "llama3-70b");
  assert_int_equal(s->training.seq_length, 8192);
  assert_int_equal(s->training.micro_batch_size, 2);
  assert_int_equal(s->training.global_batch_size, 512);
  assert_int_equal(s->layout.tp, 8);
  assert_int_equal(s->options.recompute.granularity, MS_RECOMPUTE_FULL);
  assert_int_equal(s->training.precision, MS_BF16);
  assert_int_equal(import->remarks->len, 3); /* chunks of the loss, a graph, the inner function */
  assert_string_equal(import->ignored->pdata[0], "metrics");
  const char *const words[] = {"--parallelism.tensor_parallel_degree=4", "--parallelism.pipeline_parallel_schedule",
                               "Interleaved1F1B", NULL};
  g_autoptr(MsImport) deep = python_import("deep", words, &why);
  if (!deep) fail_msg("%s", why);
  assert_int_equal(deep->scenario->layout.tp, 4);
  assert_int_equal(deep->scenario->layout.pp, 2);
  assert_int_equal(deep->scenario->layout.vpp, 2);
  assert_int_equal(deep->scenario->training.micro_batch_size, 2);
  assert_int_equal(deep->scenario->training.global_batch_size, 512);
  assert_true(deep->scenario->options.tp_comm_overlap);
  assert_int_equal(deep->scenario->options.recompute.granularity, MS_RECOMPUTE_NONE);
  g_autoptr(MsImport) low = python_import("low", NULL, &why);
  if (!low) fail_msg("%s", why);
  assert_int_equal(low->scenario->training.precision, MS_MXFP8);
}

static void functions_that_are_not_read(void **state) {
  (void)state;
  static const struct {
    const char *name, *words[3], *why;
  } rows[] = {
      {NULL, {NULL}, "has the configurations base, deep, low, rows, other: --set CONFIG=NAME says which"},
      {"inner", {NULL}, "has the configurations base"},
      {"rows", {NULL}, "recipe.py: quantize.linear.float8.recipe_name: is \"rowwise\""},
      {"other", {NULL}, "model.converters: holds a converter that is not modelled"},
      {"base", {"--training.max_context_length", "5000"}, "is no number of sequences of max_context_length = 5000"},
      {"base", {"--activation_checkpoint.mode", "none"}, "--activation_checkpoint.mode: is not read behind the file"},
      {"base", {"--parallelism.enable_sequence_parallel", "False"}, "enable_sequence_parallel: is false"},
      {"base", {"seq_len", "5"}, "is followed by \"seq_len\", must be --SECTION.KEY VALUE"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *why = NULL;
    g_autoptr(MsImport) import = python_import(rows[i].name, rows[i].words, &why);
    if (import || !strstr(why, rows[i].why)) fail_msg("%s: %s, not %s", rows[i].name, why, rows[i].why);
  }
  static const char *const broken[] = {"x = \"a\n", "def f() -> Trainer.Config:\n    return g()\n", "import x\n",
                                       "def f() -> Trainer.Config:\n    return f()\n"};
  for (guint i = 0; i < G_N_ELEMENTS(broken); i++) {
    const MsImportOptions options = {.gpus = 8, .hardware = "h100-sxm"};
    g_autoptr(GError) error = NULL;
    assert_null(ms_import_torchtitan(broken[i], strlen(broken[i]), "config.py", &options, &error));
    assert_true(g_str_has_prefix(error->message, "config.py"));
  }
}

/* A damaged file is taken or refused with its name. */
static void damaged_python(void **state) {
  (void)state;
  GRand *rand = g_rand_new_with_seed(11);
  const char *const set[] = {"CONFIG=deep", NULL};
  const MsImportOptions options = {.gpus = 64, .hardware = "h100-sxm", .set = set};
  for (int i = 0; i < 60; i++) {
    g_autofree char *other = ms_test_mutate(rand, functions);
    g_autoptr(GError) error = NULL;
    g_autoptr(MsImport) import = ms_import_torchtitan(other, strlen(other), "config.py", &options, &error);
    if (!import && !strstr(error->message, "config.py")) fail_msg("%s", error->message);
  }
  g_rand_free(rand);
}

/* Files of other programs, and a run of which a table is enough. */
static void other_files_are_named(void **state) {
  (void)state;
  static const char *const others[] = {"", "[package]\nname = \"x\"\n[dependencies]\nserde = 1\n", "model = 1\n",
                                       "[tool.black]\nline-length = 120\n"};
  for (guint i = 0; i < G_N_ELEMENTS(others); i++) {
    g_autofree char *why = NULL;
    g_autoptr(MsImport) import = imported(others[i], 8, &why);
    if (import) fail_msg("%s was read", others[i]);
    if (!strstr(why, "run.toml") || !strstr(why, "is no configuration of TorchTitan")) fail_msg("%s", why);
  }
  const MsImportOptions options = {.gpus = 8, .hardware = "h100-sxm", .model = "llama3-8b"};
  static const char text[] = "[job]\ndump_folder = \"x\"\n";
  g_autoptr(MsImport) import = ms_import_torchtitan(text, strlen(text), "run.toml", &options, NULL);
  assert_non_null(import);
}

/* What its own train_configs/llama3_405b.toml chooses, on a pipeline. */
static const char large[] = "[model]\nname = \"llama3\"\nflavor = \"405B\"\nconverters = [\"float8\"]\n"
                            "[optimizer]\nname = \"AdamW\"\nlr = 8e-5\n"
                            "[training]\nlocal_batch_size = 32\nseq_len = 8192\n"
                            "[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 8\n"
                            "enable_async_tensor_parallel = true\npipeline_parallel_degree = 8\n"
                            "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                            "[activation_checkpoint]\nmode = \"full\"\n[compile]\nenable = true\n"
                            "[float8]\nenable_fsdp_float8_all_gather = true\nfilter_fqns = [\"output\"]\n";

static void a_pipeline_of_405b(void **state) {
  (void)state;
  g_autofree char *why = NULL;
  g_autoptr(MsImport) import = imported(large, 512, &why);
  if (!import) fail_msg("%s", why);
  const MsScenario *s = import->scenario;
  assert_string_equal(s->model->name, "llama3-405b");
  assert_int_equal(s->framework, MS_FRAMEWORK_TORCHTITAN);
  assert_int_equal(s->training.precision, MS_FP8_TENSORWISE);
  assert_true(s->layout.tp == 8 && s->layout.pp == 8 && s->layout.vpp == 2);
  assert_true(s->layout.account_for_embedding_in_pipeline_split && s->layout.account_for_loss_in_pipeline_split);
  assert_true(s->training.micro_batch_size == 1 && s->training.global_batch_size == 32 * 8);
  assert_int_equal(s->options.fsdp, MS_FSDP_OPTIM);
  assert_true(s->options.tp_comm_overlap && s->options.fp8_param_gather);
  assert_int_equal(s->options.recompute.granularity, MS_RECOMPUTE_FULL);
  assert_int_equal(import->ignored->len, 1); /* the learning rate: the head is in BF16 here, too */
  MsRefusal refusal;
  if (!ms_layout_check(s, &refusal)) fail_msg("%s", refusal.why);
}

/* Until February 2025 a switch, off by default, since then a word. */
static void the_optimizer_is_fused_or_not(void **state) {
  (void)state;
  static const struct {
    const char *line;
    MsOptimizerImpl is;
  } files[] = {{"", MS_OPTIMIZER_FUSED},
               {"fused = true\n", MS_OPTIMIZER_FUSED},
               {"fused = false\n", MS_OPTIMIZER_FOREACH},
               {"implementation = \"fused\"\n", MS_OPTIMIZER_FUSED},
               {"implementation = \"foreach\"\n", MS_OPTIMIZER_FOREACH},
               {"implementation = \"for-loop\"\n", MS_OPTIMIZER_FOREACH}};
  for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autofree char *why = NULL, *text = g_strdup_printf("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[optimizer]\n%s"
                                                         "[training]\nlocal_batch_size = 1\n",
                                                         files[i].line);
    g_autoptr(MsImport) import = imported(text, 8, &why);
    if (!import) fail_msg("%s", why);
    assert_int_equal(import->scenario->options.optimizer_impl, files[i].is);
    assert_int_equal(import->ignored->len, 0);
  }
}

/* Layers and loss are compiled apart: torchtitan/models/llama3/infra/parallelize.py, components/loss.py. */
static void layers_and_loss_are_compiled_apart(void **state) {
  (void)state;
  static const struct {
    const char *lines;
    gboolean layers, loss;
  } files[] = {{"enable = true\n", TRUE, TRUE},
               {"enable = true\ncomponents = [\"model\", \"loss\"]\n", TRUE, TRUE},
               {"enable = true\ncomponents = [\"model\"]\n", TRUE, FALSE},
               {"enable = true\ncomponents = [\"loss\"]\n", FALSE, TRUE},
               {"enable = true\ncomponents = []\n", FALSE, FALSE},
               {"enable = false\ncomponents = [\"loss\"]\n", FALSE, FALSE}};
  for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autofree char *why = NULL, *text = g_strdup_printf("[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = "
                                                         "1\n[compile]\n%s",
                                                         files[i].lines);
    g_autoptr(MsImport) import = imported(text, 8, &why);
    if (!import) fail_msg("%s", why);
    if (import->scenario->options.torch_compile != files[i].layers ||
        import->scenario->options.cross_entropy_fusion != files[i].loss)
      fail_msg("%s: layers %d, loss %d", files[i].lines, import->scenario->options.torch_compile,
               import->scenario->options.cross_entropy_fusion);
  }
}

/* Their number until April 2025, that of the stages without it (torchtitan/parallelisms/pipelining_utils.py); since
 * then their size. */
static void microbatches_are_counted_or_sized(void **state) {
  (void)state;
  static const struct {
    const char *table, *lines;
    int size;
  } files[] = {{"experimental", "pipeline_parallel_microbatches = 2\n", 4},
               {"parallelism", "pipeline_parallel_microbatches = 2\n", 4},
               {"parallelism", "pipeline_parallel_microbatch_size = 2\n", 2},
               {"parallelism", "", 1},
               {"experimental", "", 2},
               {"experimental", "pipeline_parallel_schedule = \"Interleaved1F1B\"\n", 1}};
  for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autofree char *why = NULL, *text = g_strdup_printf("[model]\nflavor = \"8B\"\n[training]\nbatch_size = 8\n"
                                                         "data_parallel_shard_degree = 2\n[%s]\n"
                                                         "pipeline_parallel_degree = 4\n%s",
                                                         files[i].table, files[i].lines);
    g_autoptr(MsImport) import = imported(text, 8, &why);
    if (!import) fail_msg("%s", why);
    assert_int_equal(import->scenario->training.micro_batch_size, files[i].size);
    assert_int_equal(import->scenario->training.global_batch_size, 16);
    assert_int_equal(import->ignored->len, 0);
  }
}

/* Every key of a test stands in the smallest file. */
static void refusals_name_the_key(void **state) {
  (void)state;
  static const struct {
    const char *table, *line, *why;
  } cases[] = {
      {"model", "flavor = \"9B\"", "run.toml:3: model.flavor: llama3 9B is no model that moesim ships (llama3 8B, "},
      {"training", "seq_len = \"8k\"", "training.seq_len: must be an integer"},
      {"training", "local_batch_size = 0", "training.local_batch_size: is 0, must be 1 to"},
      {"training", "global_batch_size = 12", "training.global_batch_size: 12 is no multiple of"},
      {"training", "enable_cpu_offload = true", "training.enable_cpu_offload: is true: parameters on the host"},
      {"training", "mixed_precision_param = \"float32\"", "training.mixed_precision_param: is \"float32\""},
      {"optimizer", "name = \"Muon\"", "optimizer.name: is \"Muon\", moesim knows AdamW, Adam"},
      {"parallelism", "tensor_parallel_degree = 3", "parallelism: 1 x 2 data-parallel, 3 tensor"},
      {"parallelism",
       "tensor_parallel_degree = 1024\npipeline_parallel_degree = 1024\ncontext_parallel_degree = 1024\n"
       "data_parallel_replicate_degree = 65536\ndata_parallel_shard_degree = 1048576",
       "parallelism: makes 1073741824 ranks of one replica, moesim knows up to 1048576 GPUs"},
      {"parallelism", "pipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 3",
       "parallelism.pipeline_parallel_microbatch_size: 3 does not divide a local batch of 8"},
      {"experimental", "pipeline_parallel_degree = 2\npipeline_parallel_microbatches = 3",
       "experimental.pipeline_parallel_microbatches: 3 microbatches do not divide a local batch of 8"},
      {"parallelism", "data_parallel_replicate_degree = 8", "parallelism: replicates without sharding"},
      {"parallelism", "fsdp_reshard_after_forward = \"often\"",
       "parallelism.fsdp_reshard_after_forward: is \"often\", moesim knows default, always, never"},
      {"float8", "recipe_name = \"rowwise\"\n[model]\nconverters = [\"float8\"]", "float8.recipe_name: is \"rowwise\""},
      {"activation_checkpoint", "mode = \"selective\"\nselective_ac_option = \"x\"",
       "selective_ac_option: is \"x\", must be"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    gboolean model = strstr(cases[i].line, "[model]") || strcmp(cases[i].table, "model") == 0;
    g_autofree char *text = g_strdup_printf("%s[%s]\n%s%s\n", model ? "" : "[model]\nflavor = \"8B\"\n", cases[i].table,
                                            strstr(cases[i].line, "[model]") ? "" : "", cases[i].line);
    g_autofree char *why = NULL, *whole = strstr(cases[i].line, "[model]")
                                              ? g_strconcat(text, "flavor = \"8B\"\n", NULL)
                                              : g_strdup(text);
    g_autoptr(MsImport) import = imported(whole, 8, &why);
    if (import) fail_msg("%s was read", whole);
    const char *want = strstr(cases[i].why, "run.toml") ? strchr(strchr(cases[i].why, ':') + 1, ':') : cases[i].why;
    if (!strstr(why, want)) fail_msg("%s: \"%s\", not \"%s\"", whole, why, cases[i].why);
  }
}

/* --- and back --- */

/* Tokens go where the router sends them, unless the switch of either release forces them apart. */
static void experts_are_forced_or_not(void **state) {
  (void)state;
  static const struct {
    const char *line;
    MsRoutingKind kind;
  } rows[] = {{"", MS_ROUTING_NATURAL},
              {"[debug]\nmoe_force_load_balance = true\n", MS_ROUTING_BALANCED},
              {"[training]\ndebug_moe_force_load_balance = true\n", MS_ROUTING_BALANCED}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *text = g_strconcat("[model]\nname = \"qwen3\"\nflavor = \"30B-A3B\"\n", rows[i].line, NULL);
    char *why = NULL;
    g_autoptr(MsImport) import = imported(text, 8, &why);
    if (!import) fail_msg("%s", why);
    assert_int_equal(import->scenario->training.routing.kind, rows[i].kind);
    g_autofree char *said = ms_launch_text(import->scenario, (MsLaunch){.form = MS_LAUNCH_TORCHTITAN}, NULL);
    assert_non_null(strstr(said, i ? "\nmoe_force_load_balance = true\n" : "\nmoe_force_load_balance = false\n"));
  }
}

/* A slip of the hand is named, also beside the error that it leads to; a key that only resembles one is not. */
static void misspelt_keys_are_named(void **state) {
  (void)state;
  static const char text[] =
      "[model]\nflavor = \"8B\"\n[parallelism]\ntensor_paralel_degree = 4\n[checkpoint]\ninterval "
      "= 5\n";
  char *why = NULL;
  g_autoptr(MsImport) import = imported(text, 8, &why);
  if (!import) fail_msg("%s", why);
  assert_int_equal(import->remarks->len, 1);
  assert_string_equal(import->remarks->pdata[0], "parallelism.tensor_paralel_degree is not read: did you mean "
                                                 "parallelism.tensor_parallel_degree?");
  g_autofree char *bad = g_strconcat(text, "[training]\nseq_len = 0\n", NULL);
  assert_null(imported(bad, 8, &why));
  assert_non_null(strstr(why, "training.seq_len: is 0"));
  assert_null(strstr(why, "did you mean")); /* parallelism is read later */
  g_autofree char *later = g_strconcat(text, "[activation_checkpoint]\nmode = \"some\"\n", NULL);
  g_free(why);
  assert_null(imported(later, 8, &why));
  assert_non_null(strstr(why, "did you mean parallelism.tensor_parallel_degree?"));
  g_free(why);
}

static char *keys_of(const MsScenario *s) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "gpus", s->gpus);
  ms_json_out_string(out, "framework", ms_framework_words[s->framework]);
  ms_json_out_string(out, "model", s->model->name);
  ms_fields_write(&ms_training_table, &s->training, TRUE, out);
  ms_fields_write(&ms_layout_table, &s->layout, TRUE, out);
  ms_fields_write(&ms_options_table, &s->options, TRUE, out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

static void there_and_back(void **state) {
  (void)state;
  static const char *const runs[] = {
      "\"model\": \"llama3-8b\", \"gpus\": 8, \"training\": {\"seq_length\": 8192, \"micro_batch_size\": 2, "
      "\"global_batch_size\": 32}, \"options\": {\"recompute\": {\"granularity\": \"selective\", \"modules\": "
      "[\"operators\"]}, \"dispatcher\": \"alltoall\", \"optimizer_impl\": \"foreach\"}",
      "\"model\": \"llama3-8b\", \"gpus\": 8, \"training\": {\"seq_length\": 8192, \"micro_batch_size\": 1, "
      "\"global_batch_size\": 8}, \"options\": {\"torch_compile\": false, \"cross_entropy_fusion\": true, "
      "\"dispatcher\": \"alltoall\"}",
      "\"model\": \"llama3-70b\", \"gpus\": 64, \"training\": {\"seq_length\": 8192, \"micro_batch_size\": 4, "
      "\"global_batch_size\": 32, \"precision\": \"fp8-tensorwise\"}, \"layout\": {\"tp\": 8}, \"options\": "
      "{\"tp_comm_overlap\": true, \"fp8_param_gather\": true, \"num_distributed_optimizer_instances\": 2, "
      "\"fsdp\": \"optim-grads\", \"grad_reduce_dtype\": \"bf16\", \"cross_entropy_fusion\": true, \"dispatcher\": "
      "\"alltoall\"}",
      "\"model\": \"llama3-405b\", \"gpus\": 512, \"training\": {\"seq_length\": 32768, \"micro_batch_size\": 1, "
      "\"global_batch_size\": 32}, \"layout\": {\"tp\": 8, \"cp\": 2, \"pp\": 8, \"cp_comm_type\": \"all_gather\", "
      "\"account_for_embedding_in_pipeline_split\": true, \"account_for_loss_in_pipeline_split\": true}, \"options\": "
      "{\"fsdp\": \"optim\", \"recompute\": {\"granularity\": \"full\"}, \"dispatcher\": \"alltoall\"}",
      "\"model\": \"llama3-70b\", \"gpus\": 32, \"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, "
      "\"global_batch_size\": 32, \"local_batch_size\": 4}, \"layout\": {\"tp\": 2, \"pp\": 4, \"pipeline_layout\": "
      "\"Et*20|t*21|t*20|t*19L\"}, \"options\": {\"recompute\": {\"granularity\": \"full\", \"method\": \"block\", "
      "\"num_layers\": 10}, \"dispatcher\": \"alltoall\"}",
      "\"model\": \"qwen3-30b-a3b\", \"gpus\": 16, \"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, "
      "\"global_batch_size\": 16, \"routing\": \"natural\"}, \"layout\": {\"ep\": 8, \"pp\": 2, \"schedule\": "
      "\"zb-v\"}, \"options\": {\"dispatcher\": \"deepep\"}",
      "\"model\": {\"base\": \"deepseek-v3\", \"mtp_num_layers\": 0}, \"gpus\": 256, \"training\": {\"seq_length\": "
      "4096, "
      "\"micro_batch_size\": 1, \"global_batch_size\": 256}, \"layout\": {\"ep\": 64}, \"options\": {\"dispatcher\": "
      "\"deepep\"}",
  };
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_autofree char *json = g_strdup_printf("{\"framework\": \"torchtitan\", \"hardware\": \"h100-sxm\", %s}", runs[i]);
    g_autoptr(MsScenario) s = ms_test_scenario_of(json);
    g_autoptr(GError) error = NULL;
    g_autofree char *text = ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_TORCHTITAN}, &error);
    if (!text) fail_msg("%s", error->message);
    const MsImportOptions options = {0};
    g_autoptr(MsImport) import = ms_import_torchtitan(text, strlen(text), "run.toml", &options, &error);
    if (!import) fail_msg("%s:\n%s", error->message, text);
    g_autofree char *before = keys_of(s), *after = keys_of(import->scenario);
    if (strcmp(before, after) != 0) fail_msg("%s\nbecame\n%s\nby\n%s", before, after, text);
    assert_int_equal(import->scenario->model->mtp_num_layers, s->model->mtp_num_layers);
    if (s->training.precision == MS_FP8_TENSORWISE) assert_non_null(strstr(text, "\n[quantize.linear.float8]\n"));
  }
}

static void what_it_cannot_say(void **state) {
  (void)state;
  static const struct {
    const char *run, *why;
  } cases[] = {
      {"\"framework\": \"megatron\", \"model\": \"llama3-8b\"", "framework: is megatron"},
      {"\"framework\": \"megatron\", \"model\": \"llama3-8b\", \"layout\": {\"tp\": 5}", "framework: is megatron"},
      {"\"framework\": \"torchtitan\", \"model\": \"mixtral-8x7b\"", "model: is mixtral-8x7b, which is no flavor"},
      {"\"framework\": \"torchtitan\", \"model\": \"deepseek-v3\"", "model.mtp_num_layers: is 1, TorchTitan trains no"},
      {"\"framework\": \"torchtitan\", \"model\": \"llama3-8b\", \"options\": {\"fsdp\": \"optim\"}",
       "options.fsdp: is optim"},
      {"\"framework\": \"torchtitan\", \"model\": \"llama3-8b\", \"layout\": {\"cp\": 2, \"cp_comm_type\": \"a2a\"}",
       "layout.cp_comm_type: is a2a"},
      {"\"framework\": \"torchtitan\", \"model\": \"llama3-8b\", \"layout\": {\"tp\": 2}, \"options\": "
       "{\"sequence_parallel\": false}",
       "options.sequence_parallel: is false"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *json = g_strdup_printf("{\"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": {\"seq_length\": "
                                            "4096, \"global_batch_size\": 8}, %s}",
                                            cases[i].run);
    g_autoptr(MsScenario) s = ms_test_scenario_of(json);
    g_autoptr(GError) error = NULL;
    if (ms_launch_text(s, (MsLaunch){.form = MS_LAUNCH_TORCHTITAN}, &error)) fail_msg("%s was said", cases[i].run);
    if (!strstr(error->message, cases[i].why)) fail_msg("\"%s\", not \"%s\"", error->message, cases[i].why);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(toml_is_json_line_by_line),
      cmocka_unit_test(functions_of_python),
      cmocka_unit_test(functions_that_are_not_read),
      cmocka_unit_test(damaged_python),
      cmocka_unit_test(toml_errors_have_lines),
      cmocka_unit_test(other_files_are_named),
      cmocka_unit_test(a_pipeline_of_405b),
      cmocka_unit_test(refusals_name_the_key),
      cmocka_unit_test(the_optimizer_is_fused_or_not),
      cmocka_unit_test(layers_and_loss_are_compiled_apart),
      cmocka_unit_test(microbatches_are_counted_or_sized),
      cmocka_unit_test(experts_are_forced_or_not),
      cmocka_unit_test(misspelt_keys_are_named),
      cmocka_unit_test(there_and_back),
      cmocka_unit_test(what_it_cannot_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
