#include "study/variant.h"

#include <string.h>

MsRequest ms_variant_of(const MsRequest *request) {
  MsRequest r = *request;
  r.base = ms_scenario_copy(request->base, TRUE);
  r.open = g_memdup2(request->open, (gsize)request->n_open * sizeof *request->open);
  return r;
}

void ms_variant_clear(MsRequest *r) {
  ms_scenario_free(r->base);
  g_free(r->open);
}

void ms_close_key(MsRequest *r, const char *path) {
  int at = ms_open_place(r, path);
  if (at < 0) return;
  memmove(&r->open[at], &r->open[at + 1], (size_t)(r->n_open - at - 1) * sizeof *r->open);
  r->n_open--;
}

gboolean ms_close_auto(MsRequest *r, const char *path) {
  int at = ms_open_place(r, path);
  if (at < 0 || r->open[at].n > 0) return FALSE;
  ms_close_key(r, path);
  return TRUE;
}

void ms_close_size(MsRequest *r, const char *key, int *value) {
  g_autofree char *path = g_strconcat("layout.", key, NULL);
  guint64 bit = (guint64)1 << (ms_field_find(&ms_layout_table, key) - ms_layout_table.fields);
  if ((r->layout_given & bit) || (ms_request_leaves_open(r, path) && !ms_close_auto(r, path))) return;
  r->layout_given |= bit;
  *value = 1;
}

void ms_close_dispatcher(MsRequest *r) {
  if (!ms_close_auto(r, "options.dispatcher")) return;
  r->base->options.dispatcher = MS_DISPATCH_ALLTOALL; /* without buffers, and the default */
}
