/* src/describe/dispatcher.c - the rows of dispatcher.def. */
#include "describe/dispatcher.h"

#include <stddef.h>

/* As many parameters as MsDispatcherRow has columns: a row that leaves one out does not compile. */
#define MS_DISPATCHER(id, w, d, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, \
                      c20, c21, c22, c23, c24, c25, c26, c27, c28, c29, c30, c31, c32, c33)                           \
  [MS_DISPATCH_##id] = {c1,  c2,  c3,  c4,  c5,  c6,  c7,  c8,  c9,  c10,       c11,     c12,                         \
                        c13, c14, c15, c16, c17, c18, c19, c20, c21, c22,       c23,     c24,                         \
                        c25, c26, c27, c28, c29, c30, c31, c32, c33, .word = w, .doc = d},
#define MS_NO_KEY        0 /* the first member of MsHardware is its file */
#define MS_EVERY_MACHINE MS_NO_KEY
#define MS_KEY(key)      offsetof(MsHardware, key)
#define MS_ANY_RANKS     NULL
#define MS_RANKS(...) \
  (const guint8[]) { __VA_ARGS__, 0 }
const MsDispatcherRow ms_dispatchers[] = {
#include "describe/dispatcher.def"
};

MsDispatcher ms_dispatcher_usual(void) {
  int i = 0;
  while (i < MS_N_DISPATCHERS - 1 && ms_dispatchers[i].usual != MS_USUAL_ELSE) i++;
  return (MsDispatcher)i;
}

static int member(const MsHardware *hardware, size_t key) { return *(const int *)((const char *)hardware + key); }

gboolean ms_dispatcher_exists(const MsDispatcherRow *row, const MsHardware *hardware) {
  return row->machine_key == MS_EVERY_MACHINE || member(hardware, row->machine_key);
}

gboolean ms_dispatcher_takes(const MsDispatcherRow *row, gint64 ranks) {
  for (const guint8 *count = row->rank_counts; count && *count != ranks; count++)
    if (*count == 0) return FALSE;
  return TRUE;
}

int ms_dispatcher_sms(const MsDispatcherRow *row, const MsHardware *hardware, gboolean network) {
  int own = row->sms_key ? member(hardware, row->sms_key) : 0;
  return own > 0 ? own : network ? row->network_sms : row->sms;
}
