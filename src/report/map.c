/* src/report/map.c - the figures of a map of all layouts (plan/map.h). */
#include "plan/map.h"
#include "report/report.h"

static double count(const void *point) { return ((const MsMapPoint *)point)->count; }
static const void *keys(const void *point) { return ((const MsMapPoint *)point)->set; }
static void write_keys(const void *text, const char *key, MsJsonOut *out) {
  g_autoptr(JsonNode) node = json_from_string(text, NULL);
  ms_json_out_node(out, key, node);
}

#define P MsMapPoint
static const MsFigure map_rows[] = {
    MS_FIGURE(F64, MsLayoutMap, layouts, "", "that obey the rules"),
    MS_FIGURE(BOOL, MsLayoutMap, drawn, "", "the points were drawn at random, and `layouts` is an estimate"),
    MS_FIGURE_ARRAY("points", LIST, MsLayoutMap, point, n,
                    MS_FIGURES(MS_FIGURE_OF("count", F64, count, "", "layouts that it stands for"),
                               MS_FIGURE(F64, P, step_time_s, "s", "at fidelity fast"),
                               MS_FIGURE(F64, P, device_B, "B", "of the fullest stage, whether it fits or not",
                                         .flags = MS_FIGURE_NULLABLE),
                               MS_FIGURE_FILE_OF("set", keys, write_keys,
                                                 "keys by path that differ from those of the first of `best`"))),
    {0}};
#undef P
const MsFigures ms_map_figures = {.rows = map_rows};
