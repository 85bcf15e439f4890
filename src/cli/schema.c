#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "describe/goodput.h"
#include "describe/whatif.h"
#include "logs/trace_times.h"
#include "report/page.h"
#include "report/report.h"
#include "sched/kind.h"
#include "study/baseline.h"
#include "work/work.h"

static const struct {
  const char *kind;
  const MsFieldTable *table;
  gboolean whole_file; /* stands on its own; the others are part of one that does */
} kinds[] = {{"scenario", &ms_scenario_table, TRUE},
             {"plan", &ms_plan_table, TRUE},
             {"whatif", &ms_whatif_table, TRUE},
             {"baseline", &ms_baseline_table, TRUE},
             {"goodput", &ms_goodput_table, TRUE},
             {"reliability", &ms_reliability_table, TRUE},
             {"under", &ms_under_table, TRUE},
             {"disturbance", &ms_disturbance_table, FALSE},
             {"histogram", &ms_histogram_table, TRUE},
             {"model", &ms_model_table, TRUE},
             {"hardware", &ms_hardware_table, TRUE},
             {"curve", &ms_curve_table, TRUE},
             {"anchor", &ms_anchor_table, FALSE},
             {"stack", &ms_stack_table, TRUE},
             {"stack-family", &ms_stack_family_table, TRUE},
             {"later", &ms_later_table, TRUE},
             {"kernel-class", &ms_kernel_class_table, TRUE},
             {"kernel-family", &ms_kernel_family_table, TRUE},
             {"laws", &ms_laws_table, FALSE},
             {"law-file", &ms_law_file_table, TRUE},
             {"training", &ms_training_table, FALSE},
             {"routing", &ms_routing_table, FALSE},
             {"lengths", &ms_lengths_table, FALSE},
             {"layout", &ms_layout_table, FALSE},
             {"options", &ms_options_table, FALSE},
             {"recompute", &ms_recompute_table, FALSE},
             {"measured", &ms_measured_table, FALSE}};

static const char reference_head[] = "# Keys of every file\n\n"
                                     "Made by `make reference` from the field tables that the loaders use; a test "
                                     "compares. `moesim schema` prints the same in a terminal.\n"
                                     "Units: `B` bytes, `Bps` bytes per second, `flops` FLOP per second, `s` seconds; "
                                     "`\"141GB\"`, `\"400Gb/s\"`, `\"989TFLOPS\"`, `\"8k\"` tokens and the like are "
                                     "understood. *required*: an error when missing.\n";

static void operators_markdown(GString *out) {
  g_string_append(out, "\n## operators\n\nKinds of rows in the operator list of a step, as `moesim show ops` prints "
                       "them.\n\n| operator | what it is |\n|---|---|\n");
  for (int op = 0; op < MS_N_OPS; op++) g_string_append_printf(out, "| `%s` | %s |\n", ms_op_words[op], ms_op_docs[op]);
}

static void schedules_markdown(GString *out) {
  static const char *const chunks[] = {"`vpp`", "1", "2"}, *const splits[] = {"whole", "some split", "split"};
  g_string_append(out, "\n## schedules\n\nWords of `schedule`. `moesim show schedule NAME` draws one.\n\n"
                       "| schedule | what it is | chunks | copies | backwards | messages | Megatron-Core |\n"
                       "|---|---|---|---|---|---|---|\n");
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++) {
    const MsScheduleRow *row = ms_schedule_row((MsScheduleKind)kind);
    g_string_append_printf(out, "| `%s` | %s | %s | %d | %s | %s | %s |\n", row->word, row->about, chunks[row->chunks],
                           (int)row->copies, splits[row->splits],
                           row->sends == MS_SENDS_BLOCK ? "waited for" : "beside passes",
                           row->refused ? row->refused : "launches it");
  }
}

/* --- what is printed ------------------------------------------------------------------------------------------- */
static const MsFigures *const outputs[] = {
    &ms_printed_run_figures, &ms_plan_figures,    &ms_sweep_figures,      &ms_whatif_figures,
    &ms_check_figures,       &ms_goodput_figures, &ms_validation_figures, &ms_crossval_figures,
    &ms_ops_figures,         &ms_exec_figures,    &ms_evaluation_figures, &ms_calibrate_figures,
    &ms_local_check_figures, &ms_survey_figures,  &ms_decide_figures,     &ms_gemm_bench_figures,
    &ms_gemm_device_figures, &ms_fabric_figures,  &ms_page_figures,       &ms_show_schedule_figures,
    &ms_show_model_figures,  &ms_trace_figures,   &ms_diff_figures,       &ms_anchor_figures};

static const char output_head[] =
    "# JSON that the commands print\n\n"
    "Made by `make reference` from the tables that print it; a test compares. `moesim schema --output` prints the "
    "same\n"
    "in a terminal.\n\n"
    "`--json` prints one object (`run`: one a line for each scenario). *optional*: not always there, with the case in\n"
    "brackets. `[]` are the elements of a list, `*` is any name, `.` is the object itself; a type `time`, `result` or\n"
    "`comparison` is an object as in the table of that name, `file` a whole file as the loaders read it\n"
    "(`moesim schema`), or a value of one. Numbers that are not known are `null`. Units: `s` seconds,\n"
    "`B` bytes, `1` a share or ratio; none: a count, or what the meaning says.\n";

static int print_outputs(const MsVerb *verb, const char *one, gboolean markdown) {
  const char *words[G_N_ELEMENTS(outputs) + 1] = {NULL};
  for (guint i = 0; i < G_N_ELEMENTS(outputs); i++) words[i] = outputs[i]->name;
  int place = one ? ms_cli_word(verb, "output", one, words) : -1;
  if (one && place < 0) return MS_ERROR_USAGE;
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  GString *out = g_string_new(markdown && !one ? output_head : NULL);
  for (int i = 0; i < (int)G_N_ELEMENTS(outputs); i++)
    if (place < 0 || place == i) ms_figures_document(outputs[i], markdown, seen, out);
  (markdown ? ms_cli_print_file : ms_cli_print)(g_string_free(out, FALSE));
  return 0;
}

/* The object inside a file that is called so: "lora", or as messages say, "scenario.training.lora"; NULL: none. */
static const MsFieldTable *part_in(const MsFieldTable *table, const char *word) {
  for (const MsField *field = table->fields; field->key; field++) {
    const char *last = field->sub ? strrchr(field->sub->name, '.') : NULL;
    if (!field->sub || field->sub == table) continue;
    if (strcmp(field->sub->name, word) == 0 || (last && strcmp(last + 1, word) == 0)) return field->sub;
    const MsFieldTable *deeper = part_in(field->sub, word);
    if (deeper) return deeper;
  }
  return NULL;
}

static const MsFieldTable *part_of_a_file(const char *word) {
  const MsFieldTable *part = NULL;
  for (gsize i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (strcmp(kinds[i].kind, word) == 0) return NULL;
  for (gsize i = 0; !part && i < G_N_ELEMENTS(kinds); i++)
    if (kinds[i].whole_file) part = part_in(kinds[i].table, word);
  return part;
}

static int print_part(const MsFieldTable *part, gboolean markdown) {
  GString *out = g_string_new(NULL);
  (markdown ? ms_fields_markdown : ms_fields_schema)(part, out);
  (markdown ? ms_cli_print_file : ms_cli_print)(g_string_free(out, FALSE));
  return 0;
}

int ms_cli_schema(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("schema");
  gboolean markdown = FALSE, output = FALSE;
  const GOptionEntry entries[] = {
      {"markdown", 0, 0, G_OPTION_ARG_NONE, &markdown, "the reference page, docs/reference.md", NULL},
      {"output", 0, 0, G_OPTION_ARG_NONE, &output, "what the verbs print with --json; with --markdown docs/json.md",
       NULL},
      {NULL}};
  int status = 0;
  if (!ms_cli_options(verb, entries, &argc, &argv, &status)) return status;
  if (argc > 2) return ms_cli_usage(verb, "give one kind or none, not %d", argc - 1);
  if (output) return print_outputs(verb, argc == 2 ? argv[1] : NULL, markdown);
  const MsFieldTable *part = argc == 2 ? part_of_a_file(argv[1]) : NULL;
  if (part) return print_part(part, markdown);
  const char *words[G_N_ELEMENTS(kinds) + 1] = {NULL};
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) words[i] = kinds[i].kind;
  int one = argc == 2 ? ms_cli_word(verb, "kind", argv[1], words) : -1;
  if (argc == 2 && one < 0) return MS_ERROR_USAGE;
  GString *out = g_string_new(markdown && one < 0 ? reference_head : NULL);
  for (int i = 0; i < (int)G_N_ELEMENTS(kinds); i++)
    if (one == i || (one < 0 && kinds[i].whole_file))
      (markdown ? ms_fields_markdown : ms_fields_schema)(kinds[i].table, out);
  if (markdown && one < 0) operators_markdown(out), schedules_markdown(out);
  (markdown ? ms_cli_print_file : ms_cli_print)(g_string_free(out, FALSE));
  return 0;
}
