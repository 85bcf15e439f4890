/* src/report/cluster.c - steps of a job whose GPUs differ, as text and figures. */
#include "report/report.h"

static const MsFigures share_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(INT, MsRankShare, rank, "", "of the job"), MS_FIGURE(INT, MsRankShare, stage, "", "its pipeline stage"),
    MS_FIGURE(F64, MsRankShare, path_s, "s", "of the critical path of the first draw that ran on it"),
    MS_FIGURE(F64, MsRankShare, awaited_s, "s",
              "summed over the ranks of its collectives: how long they waited when it came last"));
const MsFigures ms_link_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(CHARS, MsLinkLoad, name, "", "as in `moesim show fabric`"),
                      MS_FIGURE(STRING, MsLinkLoad, tier, "", "what it joins"),
                      MS_FIGURE(F64, MsLinkLoad, bytes_B, "B", "of this job that pass it in a step"),
                      MS_FIGURE(F64, MsLinkLoad, load, "1", "of what it could carry in a step"));

static const MsFigures cause_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_WORDS("cause", MsCauseCost, cause, ms_cause_words, "what makes GPUs differ"),
                      MS_FIGURE(F64, MsCauseCost, cost_s, "s",
                                "mean of the step over what the same step takes without it: GPUs of mean "
                                "clock, no jitter, none slow"));

const MsFigures ms_cluster_figures = MS_FIGURE_UNNAMED(
    MS_REPORT_EXTENT(MsCluster, extent), MS_FIGURE(INT, MsCluster, world, "", "ranks, each with durations of its own"),
    MS_FIGURE_AS("ranks_told_apart", UINT, MsCluster, units, "",
                 "of each stage; the others are one of these to the bit"),
    MS_FIGURE(UINT, MsCluster, first_seed, "", "of the first draw"),
    MS_FIGURE_AS("full_step_time_s", F64, MsCluster, full_s, "s",
                 "at fidelity full: no jitter, every GPU as slow as the slowest is expected to be"),
    MS_FIGURE_PART("step_time_s", MsCluster, step_s, &ms_spread_figures, .unit = "s"),
    MS_FIGURE_HELD("causes", MsCluster, cause, n_causes, &cause_figures),
    MS_FIGURE_BY_WORD("waits_s", MsCluster, waits_s, ms_group_words, "s",
                      "of a rank in collectives of this group for the last to come, whether hidden or not"),
    MS_FIGURE(F64, MsCluster, path_compute_s, "s",
              "of the critical path over all ranks, first draw, of one step from its beginning to its end (longer than "
              "`step_time_s` where steps overlap, as with optimizer_post_validation): kernels"),
    MS_FIGURE(F64, MsCluster, path_comm_s, "s", "messages"), MS_FIGURE(F64, MsCluster, path_host_s, "s", "launches"),
    MS_FIGURE(F64, MsCluster, path_other_s, "s", "copies and other work of the host"),
    MS_FIGURE(INT, MsCluster, path_ranks, "", "ranks that it passes"),
    MS_FIGURE_HELD("ranks", MsCluster, share, n_shares, &share_figures),
    MS_FIGURE_GARRAY("links", MsCluster, links, MsLinkLoad, &ms_link_figures, .only = "machines with a fabric"),
    MS_FIGURE(U64, MsCluster, tasks, "", "of one step, times ranks that are told apart"));

/* --- text --- */

static void append_causes(GString *out, const MsCluster *c) {
  if (c->n_causes == 0) return;
  MsTable *t = ms_table_of("  what it costs|>a step|>of it");
  for (int i = 0; i < c->n_causes; i++) {
    ms_table_cellf(t, "  %s", ms_cause_words[c->cause[i].cause]);
    MS_TABLE_ROW(t, MS_SECONDS(c->cause[i].cost_s), MS_PERCENT(c->cause[i].cost_s / c->step_s.mean));
  }
  ms_table_append_below(t, out);
}

static void append_waits(GString *out, const MsCluster *c) {
  gboolean any = FALSE;
  for (int g = 0; g < MS_N_GROUPS; g++) {
    if (c->waits_s[g] < 1e-6) continue;
    g_string_append_printf(out, "%s %s %s",
                           any ? "," : "\n  waits of a rank for the last of its group:", ms_group_words[g],
                           MS_SECONDS(c->waits_s[g]));
    any = TRUE;
  }
  if (any) g_string_append_c(out, '\n');
}

static void append_path(GString *out, const MsCluster *c) {
  g_string_append_printf(out,
                         "  critical path of the first draw over %d ranks: kernels %s, messages %s, launches %s, "
                         "copies %s\n\n",
                         c->path_ranks, MS_SECONDS(c->path_compute_s), MS_SECONDS(c->path_comm_s),
                         MS_SECONDS(c->path_host_s), MS_SECONDS(c->path_other_s));
  MsTable *t = ms_table_of("  rank|>stage|>of the path|>others waited for it");
  for (int i = 0; i < MIN(c->n_shares, 8); i++) {
    MS_TABLE_ROW(t, MS_FORMAT("  %d", c->share[i].rank), MS_FORMAT("%d", c->share[i].stage),
                 MS_SECONDS(c->share[i].path_s), MS_SECONDS(c->share[i].awaited_s));
  }
  ms_table_append(t, out);
}

static void append_links(GString *out, const MsCluster *c) {
  if (!c->links || c->links->len == 0) return;
  MsTable *t = ms_table_of("  fullest links|>a step|>full");
  for (guint i = 0; i < MIN(c->links->len, 5); i++) {
    const MsLinkLoad *l = &g_array_index(c->links, MsLinkLoad, i);
    ms_table_cellf(t, "  %s", l->name);
    MS_TABLE_ROW(t, MS_BYTES(l->bytes_B), MS_PERCENT(l->load));
  }
  ms_table_append_below(t, out);
}

char *ms_report_cluster(const MsCluster *c) {
  GString *out = g_string_new("\n");
  ms_report_extent(out, &c->extent);
  if (c->extent.done == 0) return g_string_free(out, FALSE);
  g_string_append_printf(out,
                         "cluster   %d GPUs on their own (%u of each stage told apart), %u draws: step %s, sd %s, "
                         "median %s, p95 %s, longest %s; full %s\n",
                         c->world, c->units, c->extent.done, MS_SECONDS(c->step_s.mean), MS_SECONDS(c->step_s.sd),
                         MS_SECONDS(c->step_s.p50), MS_SECONDS(c->step_s.p95), MS_SECONDS(c->step_s.most),
                         MS_SECONDS(c->full_s));
  append_causes(out, c);
  append_waits(out, c);
  append_path(out, c);
  append_links(out, c);
  return g_string_free(out, FALSE);
}
