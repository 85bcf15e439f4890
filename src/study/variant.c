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

/* Where the request leaves it out, so that the planner would try all. */
static void close_vpp(MsRequest *r) {
  guint64 bit = (guint64)1 << (ms_field_find(&ms_layout_table, "vpp") - ms_layout_table.fields);
  if ((r->layout_given & bit) || (ms_request_leaves_open(r, "layout.vpp") && !ms_close_auto(r, "layout.vpp"))) return;
  r->layout_given |= bit;
  r->base->layout.vpp = 1;
}

void ms_close_overlaps(MsRequest *r) {
  MsOptions *o = &r->base->options;
  if (ms_close_auto(r, "options.cuda_graph_scope")) o->cuda_graph_scope = 0;
  if (ms_close_auto(r, "options.ep_overlap")) o->ep_overlap = FALSE;
  if (ms_close_auto(r, "options.delay_wgrad")) o->delay_wgrad = FALSE;
  if (ms_close_auto(r, "options.dispatcher")) o->dispatcher = MS_DISPATCH_ALLTOALL; /* the default */
  if (ms_close_auto(r, "layout.schedule")) r->base->layout.schedule = MS_SCHED_1F1B;
  close_vpp(r);
}
