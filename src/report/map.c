/* src/report/map.c - the figures of a map of all layouts (plan/map.h). */
#include "plan/map.h"
#include "report/report.h"

static double count(const void *point) { return ((const MsMapPoint *)point)->count; }
static void write_json(const void *text, const char *key, MsJsonOut *out) {
  g_autoptr(JsonNode) node = json_from_string(text, NULL);
  ms_json_out_node(out, key, node);
}

static gboolean has_bins(const void *map) { return ((const MsLayoutMap *)map)->n_bins > 0; }

static const MsFigure map_rows[] = {
    MS_FIGURE(F64, MsLayoutMap, layouts, "", "that obey the rules"),
    MS_FIGURE(BOOL, MsLayoutMap, drawn, "", "the points were drawn at random, and `layouts` is an estimate"),
    MS_FIGURE_ARRAY("points", LIST, MsLayoutMap, point, n,
                    MS_FIGURES(MS_FIGURE_OF("count", F64, count, "", "layouts that it stands for"),
                               MS_FIGURE(F64, MsMapPoint, step_time_s, "s", "at fidelity fast"),
                               MS_FIGURE(F64, MsMapPoint, device_B, "B", "of the fullest stage, whether it fits or not",
                                         MS_OR_NULL),
                               MS_FIGURE_FILE_AT("set", MsMapPoint, set, write_json,
                                                 "keys by path that differ from those of the first of `best`"))),
#define BINNED "rare: more layouts than points, and not drawn"
    MS_FIGURE(F64, MsLayoutMap, bin_ratio, "", "of the most to the least step of a bin", .only = BINNED,
              .when = has_bins),
    MS_FIGURE(F64, MsLayoutMap, bin_B, "B", "memory that a bin spans", .only = BINNED, .when = has_bins),
    MS_FIGURE_ARRAY("keys", LIST, MsLayoutMap, key, n_keys,
                    MS_FIGURES(MS_FIGURE(STRING, MsMapKey, path, "", "an open key with several values"),
                               MS_FIGURE_FILE_AT("values", MsMapKey, values, write_json, "a list of them")),
                    .only = BINNED, .when = has_bins),
    MS_FIGURE_ARRAY("bins", LIST, MsLayoutMap, bin, n_bins,
                    MS_FIGURES(MS_FIGURE(F64, MsMapBin, step_time_s, "s", "the least bound of the step in it"),
                               MS_FIGURE(F64, MsMapBin, device_B, "B", "the least bound of the memory in it"),
                               MS_FIGURE(F64, MsMapBin, layouts, "", "how many have such bounds"),
                               MS_FIGURE_ARRAY("counts", LIST, MsMapBin, counts, n_counts, &ms_figure_numbers,
                                               .doc = "of them by value of each key, keys laid end to end")),
                    .only = BINNED, .when = has_bins),
    {0}};
#undef BINNED
const MsFigures ms_map_figures = {.rows = map_rows};
