/* src/describe/vendor.c - the rows of vendor.def. */
#include "describe/vendor.h"

#define STARTS(id)             [MS_FRAMEWORK_##id] = {MS_STARTS, NULL}
#define STARTS_WITH(id, about) [MS_FRAMEWORK_##id] = {MS_STARTS_WITH, (about)}
#define STAYS(id, about)       [MS_FRAMEWORK_##id] = {MS_STAYS, (about)}
/* Parentheses: an empty column is an error. */
#define MS_VENDOR(word, resource, mindspeed, accelerator, preflight, benchmark, ...) \
  {(word), (resource), (mindspeed), (accelerator), (preflight), (benchmark), {__VA_ARGS__}},
static const MsVendorRow rows[] = {
#include "describe/vendor.def"
};
#undef MS_VENDOR

const MsVendorRow *ms_vendor(const MsHardware *hardware) {
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    if (g_strcmp0(rows[i].word, hardware->vendor) == 0) return &rows[i];
  return NULL;
}

const MsVendorRow *ms_vendor_of_log(const char *device, const char *benchmark) {
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    if ((device && g_str_has_prefix(device, rows[i].word)) ||
        (benchmark && g_strcmp0(benchmark, rows[i].benchmark) == 0))
      return &rows[i];
  return NULL;
}

gboolean ms_has_mindspeed(const MsScenario *scenario) {
  const MsVendorRow *row = ms_vendor(scenario->hardware);
  return row && row->mindspeed && ms_framework(scenario)->mindspeed;
}

MsStart ms_vendor_start(const MsHardware *hardware, MsFramework framework) {
  const MsVendorRow *row = ms_vendor(hardware);
  return row ? row->start[framework] : (MsStart){MS_START_UNKNOWN, NULL};
}
