#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/import.h"
#include "cli/plan_launch.h"
#include "launch/launch.h"
#include "layout/layout.h"
#include "logs/goal.h"
#include "logs/topology.h"

typedef struct {
  char *out, *model, *model_out, *hardware, *name, *date, *into, *tables, *scenario;
  gboolean json;
  char *gpus_text, *vocab_text; /* counts */
  int gpus, vocab_size, device;
  char **set, **allow;
} Options;

typedef MsImport *(*Reader)(const char *text, gsize length, const char *file, const MsImportOptions *options,
                            GError **error);

typedef struct Kind {
  const char *word;
  int (*run)(const MsVerb *verb, const Options *o, const struct Kind *kind, int argc, char **words);
  Reader reader; /* of what describes a run */
  int form;      /* MsTraceForm, MsTopologyForm */
} Kind;

/* stderr, so that stdout stays a file. */
static void print_remarks(const char *file, const GPtrArray *lines) {
  for (guint i = 0; i < lines->len; i++) fprintf(stderr, "moesim: %s: %s\n", file, (const char *)lines->pdata[i]);
}

/* What means nothing to a prediction, in one line. */
static void print_ignored(const char *file, const GPtrArray *words) {
  GString *list = g_string_new(NULL);
  for (guint i = 0; i < words->len; i++)
    g_string_append_printf(list, "%s%s", i ? ", " : "", (const char *)words->pdata[i]);
  if (list->len > 0) fprintf(stderr, "moesim: %s: ignored: %s\n", file, list->str);
  g_string_free(list, TRUE);
}

static int put(const char *file, char *text) {
  int status = ms_cli_write(file, text);
  g_free(text);
  return status;
}

/* Python writes Infinity, which JSON does not have, for bounds that no shape depends on: as null. */
static void without_infinities(char *text) {
  static const char word[] = "Infinity";
  gboolean quoted = FALSE;
  for (char *c = text; *c; c++) {
    if (*c == '\\' && quoted && c[1]) c++;
    else if (*c == '"') quoted = !quoted;
    else if (!quoted && g_str_has_prefix(c, word)) {
      memcpy(c, "null    ", strlen(word));
      if (c > text && c[-1] == '-') c[-1] = ' ';
    }
  }
}

static MsJson *load_config(const char *file, GError **error) {
  gsize length;
  g_autofree char *text = ms_read_file(file, MS_IMPORT_MOST_BYTES, &length, error);
  if (!text) return NULL;
  if (!memchr(text, 0, length)) without_infinities(text);
  return ms_json_parse(text, (gssize)length, file, error);
}

static int import_hf(const Options *o, const char *file) {
  GError *error = NULL;
  g_autoptr(GPtrArray) ignored = g_ptr_array_new_with_free_func(g_free),
                       remarks = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsJson) doc = load_config(file, &error);
  g_autoptr(MsModel) model = doc ? ms_import_hf(doc, ignored, remarks, &error) : NULL;
  if (!model) return ms_cli_fail(error);
  if (o->name) {
    g_free(model->name);
    model->name = g_strdup(o->name);
  }
  print_remarks(file, remarks);
  print_ignored(file, ignored);
  return put(o->out, ms_fields_text(&ms_model_table, model, 2));
}

/* The model apart, mentioned by its path; beside the scenario by its name. */
static int write_model(const Options *o, MsScenario *scenario) {
  g_autofree char *folder = g_path_get_dirname(o->model_out), *ours = g_path_get_dirname(o->out ? o->out : "-"),
                  *base = g_path_get_basename(o->model_out);
  int status = put(o->model_out, ms_fields_text(&ms_model_table, scenario->model, 2));
  JsonNode *mention = json_node_new(JSON_NODE_VALUE);
  json_node_set_string(mention, o->out && strcmp(folder, ours) == 0 ? base : o->model_out);
  g_clear_pointer(&scenario->model_json, json_node_unref);
  scenario->model_json = mention;
  return status;
}

/* 0: not given. */
static int given(int value) { return value == MS_CLI_UNSET ? 0 : value; }

static MsImportOptions options_of(const Options *o, char **words) {
  return (MsImportOptions){.hardware = o->hardware,
                           .name = o->name,
                           .model = o->model,
                           .gpus = given(o->gpus),
                           .into = o->into,
                           .vocab_size = given(o->vocab_size),
                           .words = (const char *const *)words,
                           .allow = (const char *const *)o->allow,
                           .set = (const char *const *)o->set,
                           .environment = TRUE};
}

/* What a file says is written even where no run can be like that: GPUs may be missing, or what moesim can do. */
static void print_refusal(const char *file, const MsScenario *scenario) {
  MsRefusal refusal;
  if (ms_layout_check(scenario, &refusal)) {
    g_autofree char *why = ms_cli_why_not_started(scenario);
    if (why) fprintf(stderr, "moesim: %s: moesim launch will refuse this: %s\n", file, why);
    return;
  }
  const MsRule *rule = &ms_rules[refusal.rule];
  fprintf(stderr, "moesim: %s: moesim run will refuse this: %s: %s (rule %s)\n", file, rule->path, refusal.why,
          rule->name);
}

static int import_scenario(const Options *o, Reader reader, const char *file, char **words) {
  GError *error = NULL;
  gsize length;
  const MsImportOptions options = options_of(o, words);
  g_autofree char *text = ms_read_file(file, MS_IMPORT_MOST_BYTES, &length, &error);
  if (!text) return ms_cli_fail(error);
  g_autoptr(MsImport) import = reader(text, length, file, &options, &error);
  if (!import) return ms_cli_fail(error);
  print_remarks(file, import->remarks);
  print_ignored(file, import->ignored);
  print_refusal(file, import->scenario);
  int status = o->model_out ? write_model(o, import->scenario) : 0;
  return status ? status : put(o->out, ms_scenario_text_in(import->scenario, o->out));
}

static int check(const MsVerb *verb, const Options *o, gboolean model, int words) {
  if (o->date || o->into)
    return ms_cli_usage(verb, "--date and --into belong to logs, --into to peft and deepspeed too");
  if (words < 1) return ms_cli_usage(verb, "give one file (\"-\" is standard input)");
  if (o->vocab_size != MS_CLI_UNSET && (o->vocab_size < 1 || o->vocab_size > 1 << 24))
    return ms_cli_usage(verb, "--vocab-size %d: give 1 to %d", o->vocab_size, 1 << 24);
  for (int i = 0; o->set && o->set[i]; i++)
    if (!strchr(o->set[i], '=')) return ms_cli_usage(verb, "--set %s: give NAME=VALUE", o->set[i]);
  gboolean runs_only = o->model || o->model_out || o->hardware || o->gpus != MS_CLI_UNSET ||
                       o->vocab_size != MS_CLI_UNSET || o->set || o->allow || words > 1;
  if (model && runs_only)
    return ms_cli_usage(verb, "import hf takes one file, --name and --out: it makes a model, not a run");
  return 0;
}

static int import_model(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  (void)kind;
  int status = check(verb, o, TRUE, argc);
  return status ? status : import_hf(o, words[0]);
}

static int import_run(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  int status = check(verb, o, FALSE, argc);
  return status ? status : import_scenario(o, kind->reader, words[0], words + 1);
}

static int import_torchtitan(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  int status = check(verb, o, FALSE, argc);
  gboolean python = argc > 0 && g_str_has_suffix(words[0], ".py"); /* which has several, and options behind it */
  if (!status && ((!python && (argc > 1 || o->set)) || o->allow || o->vocab_size != MS_CLI_UNSET))
    return ms_cli_usage(verb,
                        "import torchtitan takes one file, --model, --hardware, --gpus, --name and --out; of Python "
                        "--set CONFIG=NAME and words behind it, too");
  return status ? status : import_scenario(o, kind->reader, words[0], words + 1);
}

static int import_deepspeed(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  if (argc != 1 || o->date || o->set || o->allow || o->vocab_size != MS_CLI_UNSET)
    return ms_cli_usage(verb,
                        "import deepspeed takes one file, --into or --model, --hardware, --gpus, --name and --out");
  return import_scenario(o, kind->reader, words[0], words + 1);
}

/* Settings of PEFT are no run by themselves: they go into one. */
static int import_peft(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  (void)kind;
  if (argc != 1) return ms_cli_usage(verb, "give one adapter_config.json (\"-\" is standard input)");
  if (!o->into) return ms_cli_usage(verb, "import peft needs --into, the scenario that gets the adapters");
  if (o->model || o->model_out || o->hardware || o->gpus != MS_CLI_UNSET || o->vocab_size != MS_CLI_UNSET || o->set ||
      o->allow || o->date)
    return ms_cli_usage(verb, "import peft takes one file, --into, --name and --out");
  GError *error = NULL;
  g_autoptr(GPtrArray) ignored = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsJson) doc = load_config(words[0], &error);
  g_autoptr(MsScenario) scenario = doc ? ms_scenario_load(o->into, &error) : NULL;
  if (!scenario || !ms_import_peft(doc, scenario->model, &scenario->training.lora, ignored, &error))
    return ms_cli_fail(error);
  if (o->name) {
    g_free(scenario->name);
    scenario->name = g_strdup(o->name);
  }
  print_ignored(words[0], ignored);
  return put(o->out, ms_scenario_text_in(scenario, o->out));
}

static int import_bench(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  const char *form = kind->word;
  if (argc < 1) return ms_cli_usage(verb, "give logs (\"-\" is standard input)");
  if (!o->hardware) return ms_cli_usage(verb, "import %s needs --hardware, the machine that the logs are of", form);
  if (o->model || o->model_out || o->vocab_size != MS_CLI_UNSET || o->set || o->allow || o->into)
    return ms_cli_usage(verb, "import %s takes logs, --hardware, --gpus, --name, --date and --out", form);
  const char *date = ms_cli_date(o->date);
  if (date) return ms_cli_usage(verb, "%s", date);
  return ms_cli_import_bench(form, &(MsImportBench){o->hardware, o->name, o->out, o->date, given(o->gpus)}, words);
}

static int import_log(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  (void)kind;
  if (argc != 1) return ms_cli_usage(verb, "give one log (\"-\" is standard input)");
  if (o->model || o->model_out || o->date || o->set)
    return ms_cli_usage(verb, "--model-out, --date and --set are not for a log");
  const MsImportOptions options = options_of(o, words + 1);
  return ms_cli_import_log(words[0], o->into, &options, o->out);
}

static int import_trace(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  if (argc < 1) return ms_cli_usage(verb, "give traces (\"-\" is standard input)");
  if (o->model || o->model_out || o->vocab_size != MS_CLI_UNSET || o->set || o->allow || o->into || o->hardware ||
      o->name || o->date || o->gpus != MS_CLI_UNSET)
    return ms_cli_usage(verb, "import %s takes traces, --json, --tables, --scenario, --device and --out", kind->word);
  const MsImportTrace trace = {
      o->out, o->tables, o->scenario, o->json, (MsTraceForm)kind->form, o->device == MS_CLI_UNSET ? -1 : o->device};
  return ms_cli_import_trace(&trace, words);
}

/* What a cluster says of its switches, or a node of its NICs, as a machine with a fabric. */
static int import_topology(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  MsTopologyForm form = (MsTopologyForm)kind->form;
  gboolean switches = form != MS_TOPOLOGY_NCCL;
  GError *error = NULL;
  gsize length;
  if (argc < 1 || argc > 1 + switches)
    return ms_cli_usage(verb, "import %s takes one file%s", kind->word,
                        switches ? " and perhaps a list of the job's nodes" : "");
  if (o->model || o->model_out || o->vocab_size != MS_CLI_UNSET || o->set || o->allow || o->into || o->date ||
      o->name || o->gpus != MS_CLI_UNSET)
    return ms_cli_usage(verb, "import %s takes --hardware and --out", kind->word);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *text = ms_read_file(words[0], MS_IMPORT_MOST_BYTES, &length, &error);
  char *json = text ? ms_topology_machine(form, text, words[0], o->hardware, words[1], notes, &error) : NULL;
  if (!json) return ms_cli_fail(error);
  for (guint i = 0; i < notes->len; i++) fprintf(stderr, "moesim: %s\n", (const char *)notes->pdata[i]);
  return put(o->out, json);
}

/* Links of a machine; of none they take no time. */
static gboolean goal_links(const char *hardware, MsGoalLinks *links, GError **error) {
  MsLaws laws;
  *links = (MsGoalLinks){0, INFINITY, INFINITY, 0};
  if (!hardware) return TRUE;
  g_autoptr(MsHardware) h = ms_hardware_load(hardware, error);
  if (!h || !ms_laws_load(&laws, error) || !ms_hardware_need(h, h->nic_Bps, "nic_Bps", error)) return FALSE;
  *links = (MsGoalLinks){laws.default_p2p_alpha_s, h->scaleup_Bps > 0 ? h->scaleup_Bps : h->nic_Bps, h->nic_Bps,
                         MAX(h->gpus_per_node, 1)};
  return TRUE;
}

static void print_goal(const char *file, const MsGoalRun *run, const MsGoalLinks *links) {
  printf("%s   [GOAL, %d ranks, %" G_GUINT64_FORMAT " operations]\n", file, run->ranks, run->operations);
  printf("  messages     %" G_GUINT64_FORMAT " of %s in all\n", run->messages, MS_BYTES(run->bytes_B));
  printf("  time         %s, rank %d ends last\n", MS_SECONDS(run->end_s), run->last_rank);
  printf("  calculation  %s on the busiest cpu\n", MS_SECONDS(run->calc_s));
  if (links->node_ranks == 0) printf("  links        messages take no time; --hardware gives them latency and rates\n");
  else
    printf("  links        %s and %.4g GB/s, inside nodes of %d %.4g GB/s\n", MS_SECONDS(links->latency_s),
           links->between_Bps / 1e9, links->node_ranks, links->inside_Bps / 1e9);
}

#define MOST_GOAL_B ((gsize)4 << 30)

static int import_goal(const MsVerb *verb, const Options *o, const Kind *kind, int argc, char **words) {
  (void)kind;
  GError *error = NULL;
  gsize length;
  MsGoalLinks links;
  MsGoalRun run;
  if (argc != 1) return ms_cli_usage(verb, "import goal takes one file");
  if (o->model || o->model_out || o->vocab_size != MS_CLI_UNSET || o->set || o->allow || o->into || o->date ||
      o->name || o->out || o->gpus != MS_CLI_UNSET)
    return ms_cli_usage(verb, "import goal takes --hardware");
  if (!goal_links(o->hardware, &links, &error)) return ms_cli_fail(error);
  g_autofree char *text = ms_read_file(words[0], MOST_GOAL_B, &length, &error);
  if (text && length > MOST_GOAL_B) ms_input_error(&error, words[0], 0, "", "larger than 4 GiB");
  if (error || !ms_goal_run(text, words[0], &links, &run, &error)) return ms_cli_fail(error);
  print_goal(words[0], &run, &links);
  return 0;
}

static const Kind kinds[] = {{"hf", import_model},
                             {"megatron", import_run, ms_import_megatron},
                             {"modelzoo", import_run, ms_import_modelzoo},
                             {"primus", import_run, ms_import_primus},
                             {"torchtitan", import_torchtitan, ms_import_torchtitan},
                             {"deepspeed", import_deepspeed, ms_import_deepspeed},
                             {"peft", import_peft},
                             {"log", import_log},
                             {"kineto", import_trace, .form = MS_TRACE_KINETO},
                             {"nsys", import_trace, .form = MS_TRACE_NSYS},
                             {"rocprof", import_trace, .form = MS_TRACE_ROCPROF},
                             {"msprof", import_trace, .form = MS_TRACE_MSPROF},
                             {"nccl-tests", import_bench},
                             {"rccl-tests", import_bench},
                             {"hccl-test", import_bench},
                             {"ib_write_bw", import_bench},
                             {"stream", import_bench},
                             {"mlc", import_bench},
                             {"slurm-topology", import_topology, .form = MS_TOPOLOGY_SLURM},
                             {"ibnetdiscover", import_topology, .form = MS_TOPOLOGY_IB},
                             {"nccl-topo", import_topology, .form = MS_TOPOLOGY_NCCL},
                             {"goal", import_goal}};

/* The kind that reads what `launch` prints in a form of that name; NULL: there is no such form. */
static const char *reader_of_form(const char *name) {
  for (int i = 0; ms_launch_words[i]; i++)
    if (strcmp(ms_launch_words[i], name) == 0) return ms_launch_reader(ms_launch_of_word(i));
  return NULL;
}

/* Words that people have for what is read under another. */
static const struct {
  const char *word, *kind;
} others[] = {{"mindspeed", "megatron"},
              {"mindspeed-llm", "megatron"},
              {"megatron-lm", "megatron"},
              {"megatron-bridge", "log"},
              {"nemo", "log"},
              {"mt-megatronlm", "megatron"},
              {"pai-megatron", "megatron"},
              {"slime", "megatron"},
              {"miles", "megatron"},
              {"transformers", "hf"},
              {"huggingface", "hf"},
              {"nsight", "nsys"},
              {"rocm", "rocprof"},
              {"cann", "msprof"},
              {"lora", "peft"},
              {"nccl", "nccl-tests"},
              {"rccl", "rccl-tests"},
              {"hccl", "hccl-test"}};

static const char *kind_of_other(const char *word) {
  for (gsize i = 0; i < G_N_ELEMENTS(others); i++)
    if (g_ascii_strcasecmp(others[i].word, word) == 0) return others[i].kind;
  return NULL;
}

/* A word that is no kind: a usage message where it is known what reads what goes by it, else 0. */
static int read_by_another(const MsVerb *verb, const char *word) {
  const char *reader = reader_of_form(word), *other = kind_of_other(word);
  if (reader)
    return ms_cli_usage(verb, "what launch prints in the form %s is read by: moesim import %s FILE", word, reader);
  if (g_strcmp0(other, "log") == 0)
    return ms_cli_usage(
        verb, "no import reads how %s is set up; what its run prints is read by: moesim import log FILE", word);
  return other ? ms_cli_usage(verb, "what is of %s is read by: moesim import %s FILE", word, other) : 0;
}

static int import_one(const MsVerb *verb, const Options *o, int argc, char **argv) {
  const char *words[G_N_ELEMENTS(kinds) + 1] = {NULL};
  for (gsize i = 0; i < G_N_ELEMENTS(kinds); i++) words[i] = kinds[i].word;
  g_autofree char *all = g_strjoinv(", ", (char **)words);
  if (argc < 2) return ms_cli_usage(verb, "import what? one of %s, and a file", all);
  int status = g_strv_contains(words, argv[1]) ? 0 : read_by_another(verb, argv[1]);
  if (status != 0) return status;
  int kind = ms_cli_word(verb, "kind", argv[1], words);
  if (kind < 0) return MS_ERROR_USAGE;
  if (o->gpus != MS_CLI_UNSET && (o->gpus < 1 || o->gpus > 1 << 20))
    return ms_cli_usage(verb, "--gpus %d: give 1 to %d", o->gpus, 1 << 20);
  if ((o->json || o->tables || o->scenario || o->device != MS_CLI_UNSET) && kinds[kind].run != import_trace)
    return ms_cli_usage(verb, "--json, --tables, --scenario and --device are for traces");
  if (o->device != MS_CLI_UNSET && o->device < 0)
    return ms_cli_usage(verb, "--device %d: give 0 for the first GPU of the trace", o->device);
  return kinds[kind].run(verb, o, &kinds[kind], argc - 2, argv + 2);
}

int ms_cli_import(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("import");
  Options o = {.gpus = MS_CLI_UNSET, .vocab_size = MS_CLI_UNSET, .device = MS_CLI_UNSET};
  const GOptionEntry entries[] = {
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &o.out, "write there instead of to standard output", "FILE"},
      {"model-out", 0, 0, G_OPTION_ARG_FILENAME, &o.model_out, "write the model apart; the scenario mentions it",
       "FILE"},
      {"name", 0, 0, G_OPTION_ARG_STRING, &o.name, "name of the scenario or model (default: of the file)", "NAME"},
      {"model", 0, 0, G_OPTION_ARG_STRING, &o.model,
       "scripts: the model, a name in models/ or a path, where the arguments do not say it", "NAME"},
      {"hardware", 0, 0, G_OPTION_ARG_STRING, &o.hardware, "machine: a name in hardware/ or a path", "NAME"},
      {"gpus", 0, 0, G_OPTION_ARG_STRING, &o.gpus_text, "GPUs, when the file does not say them", "N"},
      {"into", 0, 0, G_OPTION_ARG_FILENAME, &o.into,
       "a training log, adapters of PEFT, settings of DeepSpeed: the scenario that gets what they say", "FILE"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "traces: one JSON object a line for each", NULL},
      {"tables", 0, 0, G_OPTION_ARG_FILENAME, &o.tables,
       "traces: write matrix products and collectives of known size there, as tables for moesim fit", "FOLDER"},
      {"scenario", 0, 0, G_OPTION_ARG_FILENAME, &o.scenario,
       "traces: the run that they are of, whose operators give products shapes that were not recorded", "FILE"},
      {"device", 0, 0, G_OPTION_ARG_INT, &o.device,
       "traces: which GPU of a file that holds several, from 0 (default: the first)", "N"},
      {"date", 0, 0, G_OPTION_ARG_STRING, &o.date,
       "logs of benchmarks: date of the provenance (default: $SOURCE_DATE_EPOCH, else today)", "YYYY-MM-DD"},
      {"vocab-size", 0, 0, G_OPTION_ARG_STRING, &o.vocab_text, "vocabulary, when only the tokenizer knows it", "N"},
      {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o.set,
       "value of a variable or argument (1, 2, ...) of the file, whatever it says itself", "NAME=VALUE"},
      {"allow", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o.allow,
       "ignore this argument although it changes the model or its time", "--ARGUMENT"},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    g_autofree char **words = g_new0(char *, argc + 1); /* ends with NULL */
    memcpy(words, argv, sizeof *words * (size_t)argc);
    status = ms_cli_count(verb, "--gpus", o.gpus_text, &o.gpus) &&
                     ms_cli_count(verb, "--vocab-size", o.vocab_text, &o.vocab_size)
                 ? import_one(verb, &o, argc, words)
                 : MS_ERROR_USAGE;
  }
  return ms_cli_done(entries, status);
}
