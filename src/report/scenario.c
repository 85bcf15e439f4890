/* src/report/scenario.c - a scenario in one line, and whole. */
#include "report/report.h"
#include <string.h>

char *ms_report_recompute(const MsRecomputeSpec *r) {
  if (r->granularity != MS_RECOMPUTE_SELECTIVE) return g_strdup(ms_recompute_words[r->granularity]);
  GString *out = g_string_new(NULL);
  for (int i = 0; ms_recompute_module_words[i]; i++)
    if (r->modules & (1u << i)) g_string_append_printf(out, "%s%s", out->len ? "+" : "", ms_recompute_module_words[i]);
  if (!out->len) g_string_append(out, "none");
  return g_string_free(out, FALSE);
}

char *ms_report_layout(const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  g_autofree char *recompute = ms_report_recompute(&s->options.recompute);
  gboolean any = strcmp(recompute, "none") != 0;
  return g_strdup_printf("tp %d cp %d pp %d vpp %d ep %d etp %d mbs %d%s%s", l->tp, l->cp, l->pp, l->vpp, l->ep, l->etp,
                         s->training.micro_batch_size, any ? " recompute " : "", any ? recompute : "");
}

void ms_report_scenario(const void *scenario, const char *key, MsJsonOut *out) {
  ms_scenario_write(scenario, key, out);
}
