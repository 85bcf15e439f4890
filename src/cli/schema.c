#include <stdio.h>

#include "cli/cli.h"
#include "describe/whatif.h"

typedef struct {
  const char *kind;
  const MsFieldTable *table;
  gboolean whole_file; /* stands on its own; the others are part of one that does */
} Kind;

int ms_cli_schema(int argc, char **argv) {
  static const char *const words[] = {"scenario", "plan", "whatif", "model", "hardware", "curve", "training", "layout", "options", "recompute", "measured", NULL};
  const Kind kinds[] = {{"scenario", &ms_scenario_table, TRUE}, {"plan", &ms_plan_table, TRUE}, {"whatif", &ms_whatif_table, TRUE},
                        {"model", &ms_model_table, TRUE},       {"hardware", &ms_hardware_table, TRUE},
                        {"curve", &ms_curve_table, TRUE},       {"training", &ms_training_table, FALSE},
                        {"layout", &ms_layout_table, FALSE},    {"options", &ms_options_table, FALSE},
                        {"recompute", &ms_recompute_table, FALSE}, {"measured", &ms_measured_table, FALSE}};
  const MsVerb *verb = ms_cli_verb("schema");
  const GOptionEntry entries[] = {{NULL}};
  int status = 0;
  if (!ms_cli_options(verb, entries, &argc, &argv, &status)) return status;
  if (argc > 2) return ms_cli_usage(verb, "give one kind or none, not %d", argc - 1);
  int one = argc == 2 ? ms_cli_word(verb, "kind", argv[1], words) : -1;
  if (argc == 2 && one < 0) return MS_ERROR_USAGE;
  g_autoptr(GString) out = g_string_new(NULL);
  for (int i = 0; i < (int)G_N_ELEMENTS(kinds); i++)
    if (one == i || (one < 0 && kinds[i].whole_file)) ms_fields_schema(kinds[i].table, out);
  fputs(out->str, stdout);
  return 0;
}
