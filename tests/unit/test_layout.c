/* tests/unit/test_layout.c - ranks and groups, the validity rules, layers on stages (docs/theory/layouts.md). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "describe/framework.h"
#include "lib/tier.h"
#include "layout/layout.h"

/* --- a scenario that obeys every rule; each case changes what it is about -------------------------------------- */

typedef struct {
  MsModel model;
  MsHardware hardware;
  MsScenario s;
} Case;

static Case *case_new(int gpus, int tp, int cp, int pp, int ep, int etp) {
  Case *c = g_new0(Case, 1);
  c->model = (MsModel){.num_layers = 64,
                       .hidden_size = 4096,
                       .ffn_hidden_size = 16384,
                       .num_attention_heads = 64,
                       .num_query_groups = 8,
                       .num_experts = 256,
                       .moe_router_topk = 8,
                       .moe_ffn_hidden_size = 2048,
                       .moe_router_score_function = MS_SCORE_SIGMOID,
                       .vocab_size = 32000};
  c->hardware = (MsHardware){.name = (char *)"test",
                             .host_link_Bps = 5e10,
                             .gpus_per_node = 8,
                             .nvlink_domain_gpus = 8,
                             .deepep = TRUE,
                             .hybridep = TRUE,
                             .cuda_graphs = TRUE};
  c->s.model = &c->model;
  c->s.hardware = &c->hardware;
  c->s.gpus = gpus;
  c->s.training = (MsTraining){.seq_length = 4096, .micro_batch_size = 1, .global_batch_size = 16384};
  c->s.layout = (MsLayoutSpec){
      .tp = tp, .cp = cp, .pp = pp, .vpp = 1, .ep = ep, .etp = etp, .dp = MS_NULL_INT, .edp = MS_NULL_INT};
  c->s.options = (MsOptions){.sequence_parallel = -1,
                             .num_distributed_optimizer_instances = 1,
                             .overlap_p2p_comm = TRUE,
                             .torch_compile = TRUE,
                             .cuda_graph_shared_experts = TRUE,
                             .overlap_grad_reduce = TRUE,
                             .distributed_optimizer = TRUE};
  return c;
}

static MsLayout *layout_of(Case *c) {
  MsRefusal refusal;
  MsLayout *layout = ms_layout_new(&c->s, &refusal);
  if (!layout) fail_msg("refused by %s: %s", ms_rules[refusal.rule].name, refusal.why);
  return layout;
}

static MsLayout *make(int gpus, int tp, int cp, int pp, int ep, int etp) {
  Case *c = case_new(gpus, tp, cp, pp, ep, etp);
  MsLayout *layout = layout_of(c);
  g_free(c);
  return layout;
}

static void assert_refused(Case *c, const char *rule) {
  MsRefusal refusal;
  if (ms_layout_check(&c->s, &refusal)) fail_msg("%s did not refuse", rule);
  if (strcmp(ms_rules[refusal.rule].name, rule) != 0)
    fail_msg("%s, not %s: %s", ms_rules[refusal.rule].name, rule, refusal.why);
  assert_true(strlen(refusal.why) > 0);
  assert_false(ms_layout_check(&c->s, NULL));
  assert_null(ms_layout_new(&c->s, NULL));
}

/* --- groups ---------------------------------------------------------------------------------------------------- */

/* The group that holds `rank`, as "0 2 4 6". */
static void assert_group(const MsLayout *layout, MsGroupKind kind, int rank, const char *expected) {
  int members[2048], n = ms_group_members(layout, kind, rank, members, G_N_ELEMENTS(members));
  g_autoptr(GString) text = g_string_new(NULL);
  for (int i = 0; i < n; i++) g_string_append_printf(text, i ? " %d" : "%d", members[i]);
  assert_string_equal(text->str, expected);
}

static void worked_groups_of_16(void **state) {
  g_autoptr(MsLayout) a = make(16, 2, 2, 2, 4, 1), b = make(16, 2, 1, 2, 4, 2);
  (void)state;
  assert_int_equal(a->dp, 2);
  assert_int_equal(a->edp, 2);
  assert_group(a, MS_GROUP_TP, 1, "0 1");
  assert_group(a, MS_GROUP_TP, 2, "2 3");
  assert_group(a, MS_GROUP_CP, 0, "0 2");
  assert_group(a, MS_GROUP_CP, 3, "1 3");
  assert_group(a, MS_GROUP_CP, 4, "4 6");
  assert_group(a, MS_GROUP_DP, 4, "0 4");
  assert_group(a, MS_GROUP_DP, 2, "2 6");
  assert_group(a, MS_GROUP_DP_CP, 6, "0 2 4 6");
  assert_group(a, MS_GROUP_DP_CP, 1, "1 3 5 7");
  assert_group(a, MS_GROUP_DP_CP, 8, "8 10 12 14");
  assert_group(a, MS_GROUP_TP_CP, 5, "4 5 6 7");
  assert_group(a, MS_GROUP_TP_DP_CP, 5, "0 1 2 3 4 5 6 7");
  assert_group(a, MS_GROUP_PP, 0, "0 8");
  assert_group(a, MS_GROUP_PP, 9, "1 9");
  assert_group(a, MS_GROUP_EMBEDDING, 9, "1 9");
  assert_group(a, MS_GROUP_EP, 2, "0 1 2 3");
  assert_group(a, MS_GROUP_EP, 4, "4 5 6 7");
  assert_group(a, MS_GROUP_EDP, 0, "0 4");
  assert_group(a, MS_GROUP_EDP, 5, "1 5");
  assert_group(a, MS_GROUP_ETP, 5, "5");
  assert_group(a, MS_GROUP_NONE, 5, "5");
  assert_group(b, MS_GROUP_EP, 0, "0 2 4 6");
  assert_group(b, MS_GROUP_EP, 7, "1 3 5 7");
  assert_group(b, MS_GROUP_TP_EP, 0, "0 1 2 3 4 5 6 7");
  assert_group(b, MS_GROUP_TP_EP, 9, "8 9 10 11 12 13 14 15");
  assert_group(b, MS_GROUP_EDP, 3, "3");
  assert_group(b, MS_GROUP_DP, 0, "0 2 4 6");
}

static void worked_groups_of_recipes(void **state) {
  g_autoptr(MsLayout) a = make(256, 4, 2, 8, 8, 1), qwen = make(256, 2, 1, 8, 32, 1), dsv3 = make(1024, 2, 1, 8, 64, 1),
                      mixtral = make(64, 1, 1, 4, 8, 1);
  (void)state;
  assert_group(a, MS_GROUP_TP, 0, "0 1 2 3");
  assert_group(a, MS_GROUP_CP, 0, "0 4");
  assert_group(a, MS_GROUP_TP_CP, 3, "0 1 2 3 4 5 6 7");
  assert_group(a, MS_GROUP_EP, 3, "0 1 2 3 4 5 6 7");
  assert_group(a, MS_GROUP_DP, 0, "0 8 16 24");
  assert_group(a, MS_GROUP_EDP, 0, "0 8 16 24");
  assert_group(a, MS_GROUP_PP, 0, "0 32 64 96 128 160 192 224");
  assert_int_equal(qwen->dp, 16);
  assert_int_equal(qwen->edp, 1);
  assert_int_equal(qwen->group[MS_GROUP_EP].size, 32);
  assert_int_equal(qwen->group[MS_GROUP_EP].domains, 4);
  assert_int_equal(qwen->group[MS_GROUP_EP].per_domain, 8);
  assert_int_equal(qwen->group[MS_GROUP_EP].nodes, 4);
  assert_int_equal(qwen->group[MS_GROUP_PP].stride, 32);
  assert_int_equal(dsv3->dp, 64);
  assert_group(dsv3, MS_GROUP_EDP, 64, "0 64");
  assert_int_equal(dsv3->group[MS_GROUP_PP].stride, 128);
  assert_int_equal(dsv3->group[MS_GROUP_EDP].domains, 2);
  assert_int_equal(mixtral->dp, 16);
  assert_int_equal(mixtral->edp, 2);
  assert_int_equal(mixtral->group[MS_GROUP_EP].domains, 1);
  assert_group(mixtral, MS_GROUP_EDP, 8, "0 8");
  assert_int_equal(mixtral->group[MS_GROUP_PP].stride, 16);
}

/* Every group kind cuts the world into disjoint groups of one size, and every member is told the same one. Their
 * members, group after group, the number of groups in *n_groups. (transfer full) */
static int *groups_of(const MsLayout *layout, MsGroupKind kind, int *n_groups) {
  int size = layout->group[kind].size, wrong = 0, n = 0;
  g_autofree int *seen = g_new0(int, layout->world), *members = g_new(int, layout->world),
                 *of = g_new(int, layout->world);
  int *groups = g_new(int, layout->world);
  for (int rank = 0; rank < layout->world; rank++) of[rank] = -1;
  for (int rank = 0; rank < layout->world; rank++) {
    assert_int_equal(ms_group_members(layout, kind, rank, members, layout->world), size);
    int first = members[0];
    if (first == rank) {
      of[rank] = n++;
      memcpy(groups + of[rank] * size, members, (gsize)size * sizeof *members);
      for (int i = 0; i < size; i++) seen[members[i]]++, wrong += i > 0 && members[i] <= members[i - 1];
    }
    wrong += of[first] < 0 || memcmp(members, groups + of[first] * size, (gsize)size * sizeof *members) != 0;
    if (kind == MS_GROUP_EMBEDDING) seen[rank] = 1; /* stages between have no copy; the group is their pipeline's */
    else wrong += ms_group_members(layout, kind, rank, members, 0) != size;
  }
  for (int rank = 0; rank < layout->world; rank++) wrong += seen[rank] != 1;
  assert_int_equal(wrong, 0);
  *n_groups = n;
  return groups;
}

/* Geometry from the members of every group, by counting. */
static void assert_geometry(const MsGroup *group, const int *groups, int n_groups, int domain, int node) {
  int worst = 0, least = 0, most = 0, nodes = 0, n = group->size;
  for (const int *members = groups; members < groups + n_groups * n; members += n) {
    int d = 0, lo = n, hi = 0, k = 0;
    for (int i = 0, run = 0; i < n; i++) {
      run++;
      if (i + 1 < n && members[i + 1] / domain == members[i] / domain) continue;
      d++;
      lo = MIN(lo, run);
      hi = MAX(hi, run);
      run = 0;
    }
    for (int i = 0; i < n; i++) k += i == 0 || members[i] / node != members[i - 1] / node;
    nodes = MAX(nodes, k);
    if (d > worst || (d == worst && (lo < least || (lo == least && hi < most)))) {
      worst = d;
      least = lo;
      most = hi;
    }
  }
  assert_int_equal(group->domains, worst);
  assert_int_equal(group->min_per_domain, least);
  assert_int_equal(group->per_domain, most);
  assert_int_equal(group->nodes, nodes);
}

static void assert_bijection(const MsLayout *layout, gboolean expert) {
  int coord[4],
      size[2][4] = {{layout->tp, layout->cp, layout->dp, layout->pp},
                    {layout->etp, layout->ep, layout->edp, layout->pp}},
      wrong = 0;
  for (int rank = 0; rank < layout->world; rank++) {
    ms_rank_coords(layout, expert, rank, coord);
    for (int i = 0; i < 4; i++) wrong += coord[i] < 0 || coord[i] >= size[expert][i];
    wrong += ms_rank_of(layout, expert, coord) != rank;
  }
  assert_int_equal(wrong, 0);
}

/* Messages between neighbouring stages, from the members of every pipeline. */
static void assert_pairs(const MsLayout *layout, const int *groups, int n_groups, int domain) {
  int n = layout->pp;
  for (int i = 0; i < n; i++) {
    gboolean crosses = FALSE;
    for (const int *member = groups; member < groups + n_groups * n; member += n)
      crosses |= member[i] / domain != member[(i + 1) % n] / domain;
    assert_int_equal(ms_layout_message_crosses(layout, i, (i + 1) % n), crosses);
    assert_int_equal(ms_layout_message_crosses(layout, (i + 1) % n, i), crosses);
  }
}

/* Instances are runs of the data-parallel groups, ranks in ascending order; those of the same place in the runs of a
 * group are the same whether the group is that of dense or of expert parameters. */
static void assert_instances(const MsLayout *l, gboolean expert) {
  int wrong = 0, n = l->instances;
  g_autofree int *all = g_new(int, l->world), *intra = g_new(int, l->world), *inter = g_new(int, l->world);
  for (int rank = 0; rank < l->world; rank++) {
    int size = ms_group_members(l, expert ? MS_GROUP_EDP : MS_GROUP_DP_CP, rank, all, l->world), run = size / n, at = 0;
    while (all[at] != rank) at++;
    wrong += ms_group_members(l, expert ? MS_GROUP_INTRA_EDP : MS_GROUP_INTRA_DP_CP, rank, intra, l->world) != run;
    for (int i = 0; i < run; i++) wrong += intra[i] != all[at / run * run + i];
    wrong += ms_group_members(l, MS_GROUP_INTER, rank, inter, l->world) != n;
    for (int i = 0; i < n; i++) wrong += inter[i] != all[at % run + i * run];
  }
  assert_int_equal(wrong, 0);
}

static int assert_layout_properties(int gpus, int tp, int cp, int pp, int ep, int etp, MsRankOrder order, int domain,
                                    int node, int instances) {
  Case *c = case_new(gpus, tp, cp, pp, ep, etp);
  c->model.num_layers = 12;
  c->s.training.seq_length = 4096 * 9;
  c->model.num_attention_heads = c->model.num_query_groups = 144;
  c->model.num_experts = 144;
  c->model.ffn_hidden_size = c->model.moe_ffn_hidden_size = 144;
  c->s.training.global_batch_size = gpus * 2;
  c->s.layout.order = order;
  c->hardware.nvlink_domain_gpus = domain;
  c->hardware.gpus_per_node = node;
  c->s.options.num_distributed_optimizer_instances = instances;
  g_autoptr(MsLayout) layout = ms_layout_new(&c->s, NULL);
  g_free(c);
  if (!layout) return 0;
  if (instances > 1) assert_instances(layout, FALSE), assert_instances(layout, TRUE);
  assert_bijection(layout, FALSE);
  assert_bijection(layout, TRUE);
  for (int kind = MS_GROUP_TP; kind < MS_N_GROUPS; kind++) {
    int n_groups;
    g_autofree int *groups = groups_of(layout, kind, &n_groups);
    assert_geometry(&layout->group[kind], groups, n_groups, domain, node);
    if (kind == MS_GROUP_PP) assert_pairs(layout, groups, n_groups, domain);
  }
  int dense[64], expert[4]; /* the pipeline groups of both grids are the same */
  int n = ms_group_members(layout, MS_GROUP_PP, gpus / 2, dense, 64);
  for (int i = 0; i < n; i++) {
    int here[4];
    ms_rank_coords(layout, TRUE, dense[i], here);
    if (i == 0) memcpy(expert, here, sizeof expert);
    expert[3] = i;
    assert_memory_equal(here, expert, sizeof expert);
  }
  return 1;
}

static void properties_over_a_grid(void **state) {
  static const int sizes[] = {1, 2, 3, 4, 6}, worlds[] = {24, 48, 144, 288},
                   domains[][2] = {{8, 8}, {72, 4}, {12, 4}, {10, 5}};
  int built = 0, cut = 0;
  (void)state;
  for (guint k = 0; k < 5 * 5 * 5 * 5 * 2; k += (guint)ms_by_tier(17, 1))
    for (guint w = 0; w < G_N_ELEMENTS(worlds); w++)
      for (int order = 0; order < 2; order++) {
        const int *machine = domains[(k + w) % G_N_ELEMENTS(domains)];
        built += assert_layout_properties(worlds[w], sizes[k % 5], sizes[k / 5 % 5], sizes[k / 25 % 5],
                                          sizes[k / 125 % 5], k / 625 ? 2 : 1, order, machine[0], machine[1], 1);
        cut +=
            assert_layout_properties(worlds[w], sizes[k % 5], sizes[k / 5 % 5], sizes[k / 25 % 5], sizes[k / 125 % 5],
                                     k / 625 ? 2 : 1, order, machine[0], machine[1], 2 + (int)(k % 3));
      }
  assert_true(built > ms_by_tier(40, 1000));
  assert_true(cut > ms_by_tier(12, 300));
}

/* Nodes of 8. TP 2, 2 stages of 32 ranks: runs of 16 data-parallel ranks, 2 apart, are a run of 8 on two nodes each. */
static void worked_instances(void **state) {
  Case *c = case_new(64, 2, 2, 2, 4, 1);
  (void)state;
  c->s.options.num_distributed_optimizer_instances = 2;
  g_autoptr(MsLayout) l = layout_of(c);
  assert_group(l, MS_GROUP_DP_CP, 33, "33 35 37 39 41 43 45 47 49 51 53 55 57 59 61 63");
  assert_group(l, MS_GROUP_INTRA_DP_CP, 33, "33 35 37 39 41 43 45 47");
  assert_group(l, MS_GROUP_INTRA_DP_CP, 18, "16 18 20 22 24 26 28 30");
  assert_group(l, MS_GROUP_INTRA_EDP, 33, "33 37 41 45");
  assert_group(l, MS_GROUP_INTER, 33, "33 49");
  assert_int_equal(l->group[MS_GROUP_INTRA_DP_CP].nodes, 2);
  assert_int_equal(l->group[MS_GROUP_INTRA_EDP].nodes, 2);
  assert_int_equal(l->group[MS_GROUP_INTER].nodes, 2);
  assert_int_equal(l->group[MS_GROUP_EDP].nodes, 4);
  c->s.options.num_distributed_optimizer_instances = 4; /* each on a node of its own */
  g_autoptr(MsLayout) four = layout_of(c);
  assert_group(four, MS_GROUP_INTRA_DP_CP, 33, "33 35 37 39");
  assert_group(four, MS_GROUP_INTER, 33, "33 41 49 57");
  assert_int_equal(four->group[MS_GROUP_INTRA_DP_CP].nodes, 1);
  assert_int_equal(four->group[MS_GROUP_INTRA_EDP].nodes, 1);
  c->s.options.num_distributed_optimizer_instances = 2, c->s.layout.order = MS_ORDER_PP_DP, c->s.layout.ep = 4;
  g_autoptr(MsLayout) last = layout_of(c); /* stages inside a replica: 8 ranks, of 4 apart */
  assert_group(last, MS_GROUP_INTRA_DP_CP, 5, "5 7 13 15 21 23 29 31");
  assert_group(last, MS_GROUP_INTER, 5, "5 37");
  c->s.options.num_distributed_optimizer_instances = 1;
  g_autoptr(MsLayout) one = layout_of(c);
  for (int kind = MS_GROUP_INTRA_DP_CP; kind <= MS_GROUP_INTER; kind++) assert_int_equal(one->group[kind].size, 1);
  g_free(c);
}

static void rank_order_pp_dp(void **state) {
  Case *c = case_new(16, 2, 2, 2, 4, 1);
  c->s.layout.order = MS_ORDER_PP_DP;
  g_autoptr(MsLayout) layout = layout_of(c);
  (void)state;
  assert_group(layout, MS_GROUP_PP, 0, "0 4");
  assert_group(layout, MS_GROUP_DP, 0, "0 8");
  assert_group(layout, MS_GROUP_DP_CP, 0, "0 2 8 10");
  assert_group(layout, MS_GROUP_TP_DP_CP, 15, "4 5 6 7 12 13 14 15");
  assert_group(layout, MS_GROUP_EDP, 1, "1 9");
  assert_int_equal(layout->group[MS_GROUP_DP_CP].domains, 2);
  assert_int_equal(layout->group[MS_GROUP_DP_CP].per_domain, 2);
  g_free(c);
}

static void assert_shape(MsGroup g, int domains, int per, int least, int nodes) {
  assert_int_equal(g.domains, domains);
  assert_int_equal(g.per_domain, per);
  assert_int_equal(g.min_per_domain, least);
  assert_int_equal(g.nodes, nodes);
}

static void geometry_of_progressions(void **state) {
  (void)state;
  assert_shape(ms_group_geometry(1024, 8, 1, 8, 8), 1, 8, 8, 1);
  assert_shape(ms_group_geometry(1024, 64, 1, 8, 8), 8, 8, 8, 8);
  assert_shape(ms_group_geometry(1024, 4, 2, 8, 8), 1, 4, 4, 1);
  assert_shape(ms_group_geometry(1024, 8, 4, 8, 8), 4, 2, 2, 4);
  assert_shape(ms_group_geometry(1024, 8, 128, 8, 8), 8, 1, 1, 8);
  assert_shape(ms_group_geometry(72, 64, 1, 72, 4), 1, 64, 64, 16);
  /* 64 consecutive ranks on domains of 72: [64,128) leaves 8 in the first, [128,192) 16, ... */
  assert_shape(ms_group_geometry(576, 64, 1, 72, 4), 2, 56, 8, 16);
  assert_shape(ms_group_geometry(128, 64, 1, 72, 4), 2, 56, 8, 16);
  assert_shape(ms_group_geometry(64, 64, 1, 72, 4), 1, 64, 64, 16);
  assert_shape(ms_group_geometry(4096, 2, 40, 72, 4), 2, 1, 1, 2); /* every domain has a pair that leaves it */
  assert_shape(ms_group_geometry(1 << 17, 1 << 17, 1, 72, 8), 1821, 72, 32, 1 << 14);
  assert_shape(ms_group_geometry(16, 1, 1, 8, 8), 1, 1, 1, 1);
}

/* --- layers on stages ------------------------------------------------------------------------------------------ */

/* "stage contents" as dense+moe letters per chunk: "Edmm|..." in the order of the virtual stages. */
static char *chunk_text(const MsChunk *chunk) {
  GString *out = g_string_new(chunk->has_embedding ? "E" : "");
  if (chunk->num_dense) g_string_append_printf(out, "d%d", chunk->num_dense);
  if (chunk->num_moe) g_string_append_printf(out, "e%d", chunk->num_moe);
  if (chunk->num_mtp) g_string_append_printf(out, "m%d", chunk->num_mtp);
  if (chunk->has_loss) g_string_append_c(out, 'L');
  return g_string_free(out, FALSE);
}

static void assert_stage(const MsLayout *layout, int stage, const char *expected) {
  g_autoptr(GString) text = g_string_new(NULL);
  for (int c = 0; c < layout->vpp; c++) {
    g_autofree char *one = chunk_text(ms_layout_chunk(layout, stage, c));
    g_string_append_printf(text, "[%s]", one);
  }
  assert_string_equal(text->str, expected);
}

static Case *deepseek_v3(int gpus, int pp, const char *string) {
  Case *c = case_new(gpus, 1, 1, pp, 8, 1);
  static guint8 moe_layer[61];
  for (int i = 0; i < 61; i++) moe_layer[i] = i >= 3;
  c->model.moe_layer = moe_layer;
  c->model.num_layers = 61;
  c->model.mtp_num_layers = 1;
  c->s.layout.pipeline_layout = (char *)string;
  return c;
}

static void layout_string_deepseek_v3(void **state) {
  Case *c = deepseek_v3(64, 8, "Et|(tt|)*30mL");
  g_autoptr(MsLayout) layout = layout_of(c);
  (void)state;
  assert_int_equal(layout->vpp, 4);
  assert_int_equal(layout->num_chunks, 32);
  assert_stage(layout, 0, "[Ed1][e2][e2][e2]");
  assert_stage(layout, 1, "[d2][e2][e2][e2]");
  for (int stage = 2; stage < 7; stage++) assert_stage(layout, stage, "[e2][e2][e2][e2]");
  assert_stage(layout, 7, "[e2][e2][e2][m1L]");
  assert_int_equal(ms_layout_chunk(layout, 7, 2)->first_layer, 45);
  assert_false(layout->mtp_standalone);
  g_free(c);
}

static void layout_string_standalone_mtp(void **state) {
  Case *c = deepseek_v3(128, 16, "Et*3|(tt|)*29,m|L");
  g_autoptr(MsLayout) layout = layout_of(c);
  (void)state;
  assert_int_equal(layout->vpp, 2);
  assert_stage(layout, 0, "[Ed3][e2]");
  for (int stage = 1; stage < 14; stage++) assert_stage(layout, stage, "[e2][e2]");
  assert_stage(layout, 14, "[e2][m1]");
  assert_stage(layout, 15, "[e2][L]");
  assert_true(layout->mtp_standalone);
  assert_group(layout, MS_GROUP_EMBEDDING, 3, "3 115 123"); /* the MTP stage holds a copy of the word embedding */
  assert_int_equal(layout->group[MS_GROUP_EMBEDDING].size, 3);
  g_free(c);
}

static void layout_string_of_16_stages(void **state) {
  int n;
  char why[192];
  g_autofree MsChunk *chunks = ms_pipeline_layout_parse("Et*4|(tttt|)*14tmL", &n, why, sizeof why);
  (void)state;
  assert_non_null(chunks);
  assert_int_equal(n, 16);
  for (int i = 0; i < 15; i++) {
    assert_int_equal(chunks[i].num_layers, 4);
    assert_int_equal(chunks[i].first_layer, 4 * i);
  }
  assert_int_equal(chunks[15].num_layers, 1);
  assert_int_equal(chunks[15].num_mtp, 1);
  assert_true(chunks[0].has_embedding && chunks[15].has_loss);
}

static void layout_string_round_trip(void **state) {
  static const char *const strings[][2] = {
      /* as written, as printed */
      {"Et|(tt|)*30mL", "Et|(tt|)*30mL"},
      {"Et*3|(tt|)*29,m|L", "Ettt|(tt|)*29m|L"},
      {"Et*4|(tttt|)*14tmL", "Et*4|(t*4|)*14tmL"},
      {"EtL", "EtL"},
      {"E|(t|)*3|*4L", "E|t|t|t||*4L"},
      {"E|t|t|L", "E|t|t|L"},
      {"Et*4|(t*4|)*14t*1mL", "Et*4|(t*4|)*14tmL"},
      {"Et*6|(t*6|)*2(t*5|)*4t*5mL", "Et*6|t*6|t*6|(t*5|)*4t*5mL"},
      {"E,|,t,*,1,0,|,L", "E|t*10|L"},
      {"(Et)*1|L", "Et|L"},
      {"Et(t|m)*1|L", "Ett|m|L"},
      {"E(t|t)*3(tt|)*2(mm)*2L", "Et|tt|tt|ttt|tt|m*4L"},
  };
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(strings); i++) {
    int n, again;
    char why[192] = "";
    g_autofree MsChunk *chunks = ms_pipeline_layout_parse(strings[i][0], &n, why, sizeof why);
    assert_string_equal(why, "");
    g_autofree char *text = ms_pipeline_layout_text(chunks, n);
    assert_string_equal(text, strings[i][1]);
    g_autofree MsChunk *twice = ms_pipeline_layout_parse(text, &again, why, sizeof why);
    assert_int_equal(n, again);
    assert_memory_equal(chunks, twice, sizeof *chunks * (size_t)n);
  }
}

static void assert_no_layout(const char *text, const char *message) {
  int n;
  char why[192] = "";
  assert_null(ms_pipeline_layout_parse(text, &n, why, sizeof why));
  if (!strstr(why, message)) fail_msg("'%.40s': got '%s', not '%s'", text, why, message);
  assert_null(ms_pipeline_layout_parse(text, &n, NULL, 0));
}

static void hostile_strings(void **state) {
  (void)state;
  assert_no_layout("", "begins with E");
  assert_no_layout(",,,", "begins with E");
  assert_no_layout("(((", "a group inside a group at character 2");
  assert_no_layout("(", "'(' is not closed");
  assert_no_layout(")", "')' without '('");
  assert_no_layout("()*3", "an empty group");
  assert_no_layout("*3", "not one of E t m L");
  assert_no_layout("E(*3)*2L", "not one of E t m L");
  assert_no_layout("Et*L", "'*' without a number");
  assert_no_layout("Et*-1L", "'*' without a number");
  assert_no_layout("E(t|)L", "a group without *k");
  assert_no_layout("Et*0L", "a repeat of 0");
  assert_no_layout("Et*2*3L", "a repeat of a repeat");
  assert_no_layout("E(t|)*2*3L", "a repeat of a repeat");
  assert_no_layout("Et*999999999L", "a repeat above 100000");
  assert_no_layout("Et*99999999999999999999999L", "a repeat above 100000");
  assert_no_layout("E(t*99999)*99999L", "more than 100000 layers");
  assert_no_layout("E(|*99999)*99999L", "more than 100000 virtual stages");
  assert_no_layout("Em*99999m*99999L", "more than 100000 MTP blocks");
  assert_no_layout("tL", "E does not come first");
  assert_no_layout("|EtL", "E does not come first");
  assert_no_layout("EtEL", "more than one E or L");
  assert_no_layout("E*2tL", "more than one E or L");
  assert_no_layout("Et", "L is missing");
  assert_no_layout("EtLt", "something after L");
  assert_no_layout("EtL|", "something after L");
  assert_no_layout("EmtL", "a decoder layer after an MTP block");
  assert_no_layout("Et|m|mL", "MTP blocks in two virtual stages");
  assert_no_layout("Ex", "not one of");
  assert_no_layout("E t L", "not one of");
  assert_no_layout("E\xff", "not one of");
  const size_t megabyte = 1 << 20;
  g_autofree char *many = g_malloc(megabyte + 16), *commas = g_malloc(megabyte + 16);
  memset(many, 't', megabyte);
  many[0] = 'E';
  many[megabyte] = '\0';
  assert_no_layout(many, "more than 100000 layers");
  memset(commas, ',', megabyte);
  memcpy(commas, "E(t", 3);
  strcpy(commas + megabyte, ")*99999L");
  assert_no_layout(commas, "too many repeats");
  memcpy(commas + 1000, ")*99999L", 9);
  assert_no_layout(commas, "too many repeats");
  memset(many, '(', megabyte);
  assert_no_layout(many, "a group inside a group");
}

static void even_split(void **state) {
  Case *c = case_new(32, 1, 1, 4, 4, 1);
  (void)state;
  c->s.layout.vpp = 2;
  c->model.mtp_num_layers = 1;
  g_autoptr(MsLayout) layout = layout_of(c);
  assert_stage(layout, 0, "[Ee8][e8]");
  assert_stage(layout, 3, "[e8][e8m1L]");
  assert_int_equal(ms_layout_chunk(layout, 1, 1)->first_layer, 40);
  assert_false(layout->mtp_standalone);
  c->model.num_experts = 0;
  c->s.layout.ep = 1;
  g_autoptr(MsLayout) dense = layout_of(c);
  assert_stage(dense, 1, "[d8][d8]");
  g_free(c);
}

static void accounted_split(void **state) { /* the Qwen3-235B recipe: 94 + 2 layers on 8 x 4 chunks */
  Case *c = case_new(256, 2, 1, 8, 32, 1);
  (void)state;
  c->model.num_layers = 94;
  c->s.layout.vpp = 4;
  c->s.layout.account_for_embedding_in_pipeline_split = c->s.layout.account_for_loss_in_pipeline_split = TRUE;
  g_autoptr(MsLayout) layout = layout_of(c);
  assert_stage(layout, 0, "[Ee2][e3][e3][e3]");
  assert_stage(layout, 7, "[e3][e3][e3][e2L]");
  assert_int_equal(ms_layout_chunk(layout, 7, 3)->first_layer, 92);
  g_free(c);
}

static void uneven_ends(void **state) {
  Case *c = case_new(32, 1, 1, 4, 8, 1);
  (void)state;
  c->model.num_layers = 60;
  c->s.layout.vpp = 2;
  c->s.layout.decoder_first_pipeline_num_layers = 14;
  c->s.layout.decoder_last_pipeline_num_layers = 11;
  assert_refused(c, "ends-divide");
  c->s.layout.decoder_last_pipeline_num_layers = 14;
  g_autoptr(MsLayout) layout = layout_of(c);
  assert_stage(layout, 0, "[Ee7][e7]");
  assert_stage(layout, 1, "[e8][e8]");
  assert_stage(layout, 3, "[e7][e7L]");
  assert_int_equal(ms_layout_chunk(layout, 0, 1)->first_layer, 30);
  g_free(c);
}

static void v_schedules(void **state) { /* chunk 1 comes back: rank 0 holds both ends of the model */
  Case *c = case_new(32, 1, 1, 4, 8, 1);
  (void)state;
  c->s.layout.schedule = MS_SCHED_ZB_V;
  g_autoptr(MsLayout) layout = layout_of(c);
  assert_int_equal(layout->vpp, 2);
  assert_stage(layout, 0, "[Ee8][e8L]");
  assert_int_equal(ms_layout_chunk(layout, 3, 1)->first_layer, 32);
  assert_int_equal(ms_layout_chunk(layout, 0, 1)->first_layer, 56);
  assert_int_equal(layout->group[MS_GROUP_EMBEDDING].size, 1);
  c->s.layout.schedule = MS_SCHED_DUALPIPE;
  g_autoptr(MsLayout) dual = layout_of(c);
  assert_stage(dual, 0, "[Ee16][e16L]");
  assert_stage(dual, 3, "[e16L][Ee16]");
  assert_int_equal(ms_layout_chunk(dual, 1, 1)->first_layer, 32);
  g_free(c);
}

/* --- rules ----------------------------------------------------------------------------------------------------- */

/* One row per rule: what makes the good scenario break it. */
#define BREAKS(id) static void break_##id(Case *c)
#define LAYOUT     c->s.layout
#define OPTIONS    c->s.options
#define TRAINING   c->s.training
BREAKS(sizes) { LAYOUT.tp = 0; }
BREAKS(pp) { LAYOUT.pp = 2048; }
BREAKS(vpp_huge) { LAYOUT.vpp = G_MAXINT; }
BREAKS(world) { LAYOUT.tp = 3; }
BREAKS(world_huge) { LAYOUT.tp = LAYOUT.cp = G_MAXINT; }
BREAKS(ep_dense) { c->model.num_experts = 0; }
BREAKS(etp_dense) { c->model.num_experts = 0, LAYOUT.ep = 1, LAYOUT.etp = 4; }
BREAKS(expert_world) { LAYOUT.ep = 128; }
BREAKS(expert_world_huge) { LAYOUT.ep = LAYOUT.etp = G_MAXINT; }
BREAKS(dp) { LAYOUT.dp = 3; }
BREAKS(edp) { LAYOUT.edp = 1; }
BREAKS(order) { LAYOUT.order = MS_ORDER_PP_DP; }
#define POOLS(first)                                                                      \
  (MsPools) {                                                                             \
    .n = 2, .pool = { {&c->hardware, NULL, (first)}, {&c->hardware, NULL, 64 - (first)} } \
  }
BREAKS(pools) { c->s.pools = POOLS(16); }
BREAKS(pools_replicas) {
  c->s.pools = (MsPools){.shares = 2, .pool = {{&c->hardware, NULL, 36}, {&c->hardware, NULL, 28}}};
}
BREAKS(pools_order) {
  c->s.pools = POOLS(32);
  c->model.num_experts = 0, LAYOUT.ep = 1;
  LAYOUT.order = MS_ORDER_PP_DP;
}
BREAKS(pools_vendor) {
  static MsHardware other;
  c->hardware.vendor = (char *)"NVIDIA", other = c->hardware, other.vendor = (char *)"AMD";
  c->s.pools = POOLS(32);
  c->s.pools.pool[1].hardware = &other;
}
BREAKS(pools_schedule) {
  c->s.pools = POOLS(32);
  LAYOUT.schedule = MS_SCHED_DUALPIPE;
}
BREAKS(fabric) { c->hardware.fabric = (MsFabric){.kind = MS_FABRIC_FAT_TREE, .nodes = 1}; }
BREAKS(instances) { OPTIONS.num_distributed_optimizer_instances = 3; }
BREAKS(expert_instances) {
  OPTIONS.num_distributed_optimizer_instances = 2;
  LAYOUT.ep = c->s.gpus / (LAYOUT.etp * LAYOUT.pp);
}
BREAKS(instances_of_dp) {
  c->model.num_experts = 0, LAYOUT.ep = 1, LAYOUT.etp = 1, LAYOUT.order = MS_ORDER_PP_DP;
  LAYOUT.tp = 1, LAYOUT.cp = 4, LAYOUT.pp = c->s.gpus / 8;
  OPTIONS.num_distributed_optimizer_instances = 4; /* of DP 2 x CP 4 */
}
BREAKS(instances_alone) { OPTIONS.num_distributed_optimizer_instances = 2, OPTIONS.distributed_optimizer = FALSE; }
BREAKS(heads) { c->model.num_attention_heads = 63; }
#define ADAPTERS(r, t) \
  (MsLora) { .rank = (r), .targets = (t) }
BREAKS(lora_mtp) { TRAINING.lora = ADAPTERS(8, 1), c->model.mtp_num_layers = 1; }
BREAKS(lora_nothing) { TRAINING.lora = ADAPTERS(8, 0), c->model.mtp_num_layers = 0; }
BREAKS(lora_rank) { TRAINING.lora = ADAPTERS(3, 1), c->model.mtp_num_layers = 0; }
BREAKS(lora_experts) { TRAINING.lora = ADAPTERS(8, 1 << 8), c->model.mtp_num_layers = 0, LAYOUT.etp = 2; }
BREAKS(lora_mlp_again) {
  TRAINING.lora = ADAPTERS(8, 1), c->model.mtp_num_layers = 0;
  OPTIONS.recompute = (MsRecomputeSpec){MS_RECOMPUTE_SELECTIVE, MS_RM_MLP, 0, 1};
}
BREAKS(lora_deferred) {
  TRAINING.lora = ADAPTERS(8, 1), c->model.mtp_num_layers = 0, OPTIONS.defer_embedding_wgrad_compute = TRUE;
}
BREAKS(transpose_cache) { OPTIONS.disable_parameter_transpose_cache = TRUE; }
BREAKS(reused_masters) { OPTIONS.reuse_fp32_param = TRUE, OPTIONS.fsdp = MS_FSDP_OPTIM; }
BREAKS(swapped_states) { OPTIONS.swap_optimizer_times = 16, OPTIONS.offload_optimizer_states = TRUE; }
BREAKS(grouped_library) { OPTIONS.grouped_gemm_library = MS_GROUPED_TURBO; }
BREAKS(kv_groups) { c->model.num_query_groups = 3; }
BREAKS(experts) { c->model.num_experts = 100; }
BREAKS(moe_sp) { OPTIONS.sequence_parallel = FALSE; }
BREAKS(tp_overlap) {
  c->model.num_experts = 0, LAYOUT.ep = 1, OPTIONS.sequence_parallel = FALSE, OPTIONS.tp_comm_overlap = TRUE;
}
BREAKS(cp_seq) { TRAINING.seq_length = 4098; }
BREAKS(sp_seq) { LAYOUT.cp = 1, TRAINING.seq_length = 4097; }
BREAKS(ffn) {
  static guint8 mixed[64] = {0, 1};
  c->model.moe_layer = mixed, c->model.ffn_hidden_size = 4097;
}
BREAKS(expert_ffn) { LAYOUT.etp = 2, c->model.moe_ffn_hidden_size = 77; }
BREAKS(shared) { c->model.moe_shared_expert_intermediate_size = 77; }
BREAKS(ulysses) { c->model.num_query_groups = 2, LAYOUT.cp_comm_type = MS_CP_A2A; }
BREAKS(batch) { TRAINING.micro_batch_size = 3; }
BREAKS(flushes) { c->s.framework = MS_FRAMEWORK_MEGATRON, TRAINING.local_batch_size = TRAINING.micro_batch_size; }
BREAKS(batch_huge) { TRAINING.micro_batch_size = G_MAXINT; }
BREAKS(router_groups) { c->model.moe_router_num_groups = 7, c->model.moe_router_group_topk = 4; }
BREAKS(router_group_topk) { c->model.moe_router_num_groups = 8, c->model.moe_router_group_topk = 9; }
BREAKS(expert_bias) {
  c->model.moe_router_enable_expert_bias = TRUE, c->model.moe_router_score_function = MS_SCORE_SOFTMAX;
}
BREAKS(moe_bias) { LAYOUT.etp = 2, c->model.add_bias_linear = TRUE; }
BREAKS(string_reads) { LAYOUT.pipeline_layout = (char *)"((("; }
BREAKS(string_alone) {
  LAYOUT.pipeline_layout = (char *)"Et*32|t*32L", LAYOUT.account_for_loss_in_pipeline_split = TRUE;
}
BREAKS(string_alone2) { LAYOUT.pipeline_layout = (char *)"Et*32|t*32L", LAYOUT.decoder_last_pipeline_num_layers = 4; }
BREAKS(string_stages) { LAYOUT.pipeline_layout = (char *)"Et*32|t*16|t*16L"; }
BREAKS(string_vpp) { LAYOUT.pipeline_layout = (char *)"Et*32|t*32L", LAYOUT.vpp = 4; }
BREAKS(string_schedule) { LAYOUT.pipeline_layout = (char *)"Et*32|t*32L", LAYOUT.schedule = MS_SCHED_ZB_V; }
BREAKS(string_layers) { LAYOUT.pipeline_layout = (char *)"Et*32|t*31L"; }
BREAKS(string_mtp) { LAYOUT.pipeline_layout = (char *)"Et*32|t*32mL"; }
BREAKS(string_mtp_rank0) { LAYOUT.pipeline_layout = (char *)"Et*32|t*32|m|L", c->model.mtp_num_layers = 1; }
BREAKS(string_mtp_chunk) { LAYOUT.pipeline_layout = (char *)"Et*32|t*32m||L", c->model.mtp_num_layers = 1; }
BREAKS(schedule_vpp) { LAYOUT.schedule = MS_SCHED_ZB_H1, LAYOUT.vpp = 2; }
BREAKS(schedule_v) { LAYOUT.schedule = MS_SCHED_V_MIN, LAYOUT.vpp = 4; }
BREAKS(fp8_dispatch) { OPTIONS.fp8_dispatch = TRUE; }
BREAKS(post_validation) { OPTIONS.optimizer_post_validation = TRUE; }
BREAKS(schedule_split) { LAYOUT.schedule = MS_SCHED_ZB_H1, LAYOUT.pipeline_layout = (char *)"Et*16|(t*16|)*2t*16L"; }
BREAKS(layers) { c->model.num_layers = 63; }
BREAKS(layers_vpp) { LAYOUT.vpp = 5; }
BREAKS(layers_account) { LAYOUT.account_for_loss_in_pipeline_split = TRUE; }
BREAKS(ends) { LAYOUT.decoder_first_pipeline_num_layers = 65; }
BREAKS(ends_account) { LAYOUT.decoder_first_pipeline_num_layers = 2, LAYOUT.account_for_loss_in_pipeline_split = TRUE; }
BREAKS(ends_rest) { LAYOUT.decoder_first_pipeline_num_layers = 2, LAYOUT.decoder_last_pipeline_num_layers = 2; }
BREAKS(ends_huge) { LAYOUT.decoder_first_pipeline_num_layers = LAYOUT.decoder_last_pipeline_num_layers = G_MAXINT; }
BREAKS(vpp_pp) { LAYOUT.pp = 1, LAYOUT.vpp = 2; }
BREAKS(vpp_p2p) { LAYOUT.vpp = 2, OPTIONS.overlap_p2p_comm = FALSE; }
BREAKS(flush_p2p) { OPTIONS.overlap_p2p_comm_warmup_flush = TRUE, OPTIONS.overlap_p2p_comm = FALSE; }
BREAKS(group_small) { LAYOUT.vpp = 2, LAYOUT.microbatch_group_size_per_virtual_pipeline_stage = 1; }
BREAKS(group_large) { LAYOUT.vpp = 2, LAYOUT.microbatch_group_size_per_virtual_pipeline_stage = 1 << 20; }
BREAKS(group_rest) { LAYOUT.vpp = 2, TRAINING.global_batch_size = 8 * 9; }
BREAKS(dualpipe) { LAYOUT.schedule = MS_SCHED_DUALPIPE, TRAINING.global_batch_size = 8 * 9; }
BREAKS(dualpipev) { LAYOUT.schedule = MS_SCHED_DUALPIPEV, TRAINING.global_batch_size = 8 * 3; }
BREAKS(deepep) { OPTIONS.dispatcher = MS_DISPATCH_DEEPEP, c->hardware.deepep = FALSE; }
BREAKS(hybridep) { OPTIONS.dispatcher = MS_DISPATCH_HYBRIDEP, c->hardware.hybridep = FALSE; }
BREAKS(flex) { OPTIONS.dispatcher = MS_DISPATCH_HYBRIDEP, LAYOUT.ep = 1; }
BREAKS(deepep_size) {
  OPTIONS.dispatcher = MS_DISPATCH_DEEPEP, c->s.gpus = 5 * 64, c->model.num_experts = 250, LAYOUT.ep = 5,
  TRAINING.global_batch_size = 400;
}
BREAKS(overlap_ep) { OPTIONS.ep_overlap = TRUE, LAYOUT.ep = 1; }
BREAKS(overlap_dispatcher) { OPTIONS.ep_overlap = TRUE, OPTIONS.dispatcher = MS_DISPATCH_ALLGATHER; }
BREAKS(overlap_schedule) { OPTIONS.ep_overlap = TRUE, LAYOUT.schedule = MS_SCHED_ZB_H1; }
BREAKS(overlap_full) { OPTIONS.ep_overlap = TRUE, OPTIONS.recompute.granularity = MS_RECOMPUTE_FULL; }
BREAKS(overlap_pairs) {
  c->hardware.vendor = (char *)"Huawei", OPTIONS.ep_overlap = TRUE, LAYOUT.vpp = 2;
  OPTIONS.recompute.granularity = MS_RECOMPUTE_FULL, OPTIONS.recompute.num_layers = 2;
}
BREAKS(overlap_moe) {
  OPTIONS.ep_overlap = TRUE, OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE,
  OPTIONS.recompute.modules = MS_RM_MOE;
}
BREAKS(overlap_shared) { OPTIONS.ep_overlap = OPTIONS.moe_shared_expert_overlap = TRUE; }
BREAKS(overlap_mtp) { OPTIONS.ep_overlap = TRUE, c->model.mtp_num_layers = 2; }
BREAKS(overlap_vpp) { OPTIONS.ep_overlap = TRUE; }
BREAKS(overlap_graphs) { OPTIONS.ep_overlap = TRUE, LAYOUT.vpp = 2, OPTIONS.cuda_graph_scope = MS_CG_MLP; }
BREAKS(delay_wgrad) { OPTIONS.delay_wgrad = TRUE; }
BREAKS(deepep_pad) {
  OPTIONS.dispatcher = MS_DISPATCH_DEEPEP, TRAINING.routing.kind = MS_ROUTING_CAPACITY,
  TRAINING.routing.pad_to_capacity = TRUE;
}
BREAKS(allgather_pad) {
  OPTIONS.dispatcher = MS_DISPATCH_ALLGATHER, OPTIONS.moe_router_padding_for_quantization = TRUE;
}
BREAKS(shared_dispatcher) { OPTIONS.dispatcher = MS_DISPATCH_ALLGATHER, OPTIONS.moe_shared_expert_overlap = TRUE; }
BREAKS(shared_recompute) {
  OPTIONS.moe_shared_expert_overlap = TRUE, OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE,
  OPTIONS.recompute.modules = MS_RM_SHARED_EXPERTS;
}
BREAKS(offload_link) { OPTIONS.offload_modules = MS_OM_MOE_ACT, c->hardware.host_link_Bps = 0; }
BREAKS(optimizer_on_host) { OPTIONS.optimizer_offload_fraction = 0.5, TRAINING.optimizer = MS_OPT_MUON; }
BREAKS(optimizer_link) { OPTIONS.optimizer_offload_fraction = 0.5, c->hardware.host_link_Bps = 0; }
BREAKS(precision) { TRAINING.precision = MS_NVFP4, c->hardware.unsupported_precisions = 1u << MS_NVFP4; }
BREAKS(fp8_params) { OPTIONS.fp8_param_gather = TRUE; }
BREAKS(fp4_params) { OPTIONS.fp4_param_gather = TRUE, TRAINING.precision = MS_MXFP8; }
BREAKS(delayed_ends) { TRAINING.precision = MS_FP8_DELAYED, OPTIONS.num_layers_at_end_in_bf16 = 1; }
BREAKS(delayed_recompute) {
  TRAINING.precision = MS_FP8_DELAYED, OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE,
  OPTIONS.recompute.modules = MS_RM_MOE_ACT;
}
BREAKS(bf16_ends) { OPTIONS.num_layers_at_start_in_bf16 = OPTIONS.num_layers_at_end_in_bf16 = G_MAXINT; }
BREAKS(gather_overlap) { OPTIONS.overlap_param_gather = TRUE, OPTIONS.distributed_optimizer = FALSE; }
BREAKS(offload_fp8) {
  OPTIONS.optimizer_offload_fraction = 0.5, OPTIONS.fp8_param_gather = TRUE, TRAINING.precision = MS_MXFP8;
}
BREAKS(cpu_offload) { OPTIONS.cpu_offloading_num_layers = 2; }
BREAKS(cpu_offload2) {
  LAYOUT.pp = 1, OPTIONS.cpu_offloading_num_layers = 2, OPTIONS.recompute.granularity = MS_RECOMPUTE_FULL;
}
BREAKS(input_store) {
  OPTIONS.activation_func_fp8_input_store = TRUE, c->model.gated = TRUE, c->model.activation = MS_ACT_QUICK_GELU;
}
BREAKS(framework_options) {
  c->s.framework = MS_FRAMEWORK_NANOTRON;
  OPTIONS.ep_overlap = TRUE;
}
BREAKS(framework_schedule) {
  c->s.framework = MS_FRAMEWORK_NANOTRON;
  ms_fields_defaults(&ms_options_table, &OPTIONS);
  ms_framework_defaults(c->s.framework, &OPTIONS);
  LAYOUT.schedule = MS_SCHED_ZB_H1;
}
BREAKS(framework_stages) {
  c->s.framework = MS_FRAMEWORK_MT_MEGATRON;
  ms_fields_defaults(&ms_options_table, &OPTIONS);
  ms_framework_defaults(c->s.framework, &OPTIONS);
  c->model.num_layers = 5;
  LAYOUT.pp = LAYOUT.vpp = 2;
  LAYOUT.pipeline_layout = (char *)"Ett|t|t|tL";
}
BREAKS(framework_chunks) {
  c->s.framework = MS_FRAMEWORK_NANOTRON;
  ms_fields_defaults(&ms_options_table, &OPTIONS);
  ms_framework_defaults(c->s.framework, &OPTIONS);
  LAYOUT.pp = LAYOUT.vpp = 2;
}
BREAKS(framework_sequences) {
  c->s.framework = MS_FRAMEWORK_MT_MEGATRON;
  ms_fields_defaults(&ms_options_table, &OPTIONS);
  ms_framework_defaults(c->s.framework, &OPTIONS);
  c->model.moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
}
BREAKS(framework_latent) {
  c->s.framework = MS_FRAMEWORK_MT_MEGATRON;
  ms_fields_defaults(&ms_options_table, &OPTIONS);
  ms_framework_defaults(c->s.framework, &OPTIONS);
  c->model.multi_latent_attention.kv_lora_rank = 64, LAYOUT.tp = 2;
}
BREAKS(framework_routing) { c->s.training.routing.kind = MS_ROUTING_ROUND_ROBIN; }
BREAKS(framework_recompute) {
  OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE, OPTIONS.recompute.modules = MS_RM_OPERATORS;
}
BREAKS(framework_shards) {
  c->s.framework = MS_FRAMEWORK_TORCHTITAN;
  ms_fields_defaults(&ms_options_table, &OPTIONS);
  ms_framework_defaults(c->s.framework, &OPTIONS);
  OPTIONS.fsdp = MS_FSDP_NONE;
}
BREAKS(framework_compiles) { OPTIONS.torch_compile = FALSE; }
BREAKS(early_stop) { OPTIONS.recompute_early_stop = TRUE; }
BREAKS(foreach_megatron) { OPTIONS.optimizer_impl = MS_OPTIMIZER_FOREACH; }
BREAKS(foreach_muon) {
  c->s.framework = MS_FRAMEWORK_AUTOMODEL;
  ms_fields_defaults(&ms_options_table, &OPTIONS);
  ms_framework_defaults(c->s.framework, &OPTIONS);
  OPTIONS.dispatcher = MS_DISPATCH_ALLTOALL, TRAINING.optimizer = MS_OPT_MUON;
}
BREAKS(outer_alone) { OPTIONS.outer_dp_sharding_strategy = MS_OUTER_OPTIM; }
BREAKS(outer_grads) { OPTIONS.outer_dp_sharding_strategy = MS_OUTER_OPTIM, OPTIONS.fsdp = MS_FSDP_OPTIM_GRADS; }
BREAKS(attn_proj) { OPTIONS.offload_modules = MS_OM_ATTN_PROJ; }
BREAKS(no_graphs) { OPTIONS.cuda_graph_scope = MS_CG_ATTN, c->hardware.cuda_graphs = FALSE; }
BREAKS(graph_alone) { OPTIONS.cuda_graph_scope = MS_CG_ATTN | MS_CG_FULL_ITERATION; }
BREAKS(graph_checks) { OPTIONS.cuda_graph_scope = MS_CG_FULL_ITERATION, OPTIONS.check_for_nan_in_loss_and_grad = TRUE; }
BREAKS(graph_preprocess) { OPTIONS.cuda_graph_scope = MS_CG_MOE_PREPROCESS; }
BREAKS(graph_full) { OPTIONS.cuda_graph_scope = MS_CG_ATTN, OPTIONS.recompute.granularity = MS_RECOMPUTE_FULL; }
BREAKS(graph_moe) {
  OPTIONS.cuda_graph_scope = MS_CG_MOE_ROUTER, OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE,
  OPTIONS.recompute.modules = MS_RM_MOE;
}
BREAKS(shared_keys) {
  c->model.multi_latent_attention.kv_lora_rank = 64,
  c->model.sparse_attention =
      (MsSparseAttention){.indexer_num_heads = 2, .indexer_head_dim = 8, .indexer_topk = 64, .indexer_topk_freq = 3},
  LAYOUT.cp_comm_type = MS_CP_ALL_GATHER;
}
BREAKS(deterministic_loss) { OPTIONS.deterministic_mode = OPTIONS.cross_entropy_fusion = TRUE; }
BREAKS(deterministic_tp) { OPTIONS.deterministic_mode = OPTIONS.tp_comm_overlap = TRUE; }
BREAKS(deterministic_delta) {
  OPTIONS.deterministic_mode = TRUE;
  c->model.linear_attention = (MsLinearAttention){.num_key_heads = 4,
                                                  .num_value_heads = 4,
                                                  .key_head_dim = 8,
                                                  .value_head_dim = 8,
                                                  .conv_kernel = 4,
                                                  .frequency = 4};
}
BREAKS(delta_heads) {
  c->model.linear_attention = (MsLinearAttention){.num_key_heads = 3,
                                                  .num_value_heads = 3,
                                                  .key_head_dim = 8,
                                                  .value_head_dim = 8,
                                                  .conv_kernel = 4,
                                                  .frequency = 4};
}
BREAKS(compressed_tp) { c->model.compressed_attention.head_dim = 64; }
BREAKS(sparse_cp) {
  c->model.multi_latent_attention.kv_lora_rank = 64,
  c->model.sparse_attention =
      (MsSparseAttention){.indexer_num_heads = 2, .indexer_head_dim = 8, .indexer_topk = 64, .indexer_topk_freq = 1};
}
BREAKS(sparse_unfused) {
  c->model.multi_latent_attention.kv_lora_rank = 64, c->model.sparse_attention.indexer_topk = 64,
  c->model.sparse_attention.indexer_topk_freq = 1, LAYOUT.cp_comm_type = MS_CP_ALL_GATHER,
  OPTIONS.attention_backend = MS_ATTN_UNFUSED;
}
static void pack(Case *c, int longest) {
  TRAINING.sequence_lengths = (MsLengths){.n = 2, .length = {64, longest}, .weight = {1, 1}};
}
BREAKS(lengths) { pack(c, TRAINING.seq_length + 1); }
BREAKS(packed_unfused) { pack(c, TRAINING.seq_length), OPTIONS.attention_backend = MS_ATTN_UNFUSED; }
BREAKS(hybrid_alone) { OPTIONS.max_seqlen_per_dp_cp_rank = 512; }
BREAKS(hybrid_unpacked) { LAYOUT.pp = 1, OPTIONS.hybrid_context_parallel = TRUE; }
BREAKS(hybrid_pp) { pack(c, TRAINING.seq_length), OPTIONS.hybrid_context_parallel = TRUE; }
BREAKS(hybrid_fsdp) {
  pack(c, TRAINING.seq_length), LAYOUT.pp = 1, OPTIONS.hybrid_context_parallel = TRUE, OPTIONS.fsdp = MS_FSDP_OPTIM;
}
BREAKS(hybrid_gather) {
  pack(c, TRAINING.seq_length), LAYOUT.pp = 1, OPTIONS.hybrid_context_parallel = TRUE,
                                LAYOUT.cp_comm_type = MS_CP_ALL_GATHER;
}
BREAKS(hybrid_ranks) {
  pack(c, TRAINING.seq_length), LAYOUT.pp = 1, OPTIONS.hybrid_context_parallel = TRUE,
                                OPTIONS.max_seqlen_per_dp_cp_rank = 1;
}
BREAKS(mhc_plain) { OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE, OPTIONS.recompute.modules = MS_RM_MHC; }
BREAKS(norm_out) {
  OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE, OPTIONS.recompute.modules = MS_RM_GDN_NORM_OUT;
}
BREAKS(mhc_mlp) {
  c->model.hyper_connections.num_residual_streams = 4, OPTIONS.recompute.granularity = MS_RECOMPUTE_SELECTIVE,
  OPTIONS.recompute.modules = MS_RM_MHC | MS_RM_MLP;
}

static const struct {
  const char *rule;
  void (*breaks)(Case *c);
} refusals[] = {
    {"sizes-positive", break_sizes},
    {"pp-in-range", break_pp},
    {"pp-in-range", break_vpp_huge},
    {"world-divides", break_world},
    {"world-divides", break_world_huge},
    {"ep-needs-experts", break_ep_dense},
    {"etp-needs-experts", break_etp_dense},
    {"expert-world-divides", break_expert_world},
    {"expert-world-divides", break_expert_world_huge},
    {"dp-agrees", break_dp},
    {"edp-agrees", break_edp},
    {"order-pp-last", break_order},
    {"pools-hold-stages", break_pools},
    {"pools-hold-replicas", break_pools_replicas},
    {"pools-order", break_pools_order},
    {"pools-vendor", break_pools_vendor},
    {"pools-schedule", break_pools_schedule},
    {"fabric-holds-job", break_fabric},
    {"optimizer-instances-divide", break_instances},
    {"optimizer-instances-divide", break_expert_instances},
    {"optimizer-instances-divide", break_instances_of_dp},
    {"tp-divides-heads", break_heads},
    {"tp-fits-kv-groups", break_kv_groups},
    {"ep-divides-experts", break_experts},
    {"moe-tp-needs-sp", break_moe_sp},
    {"tp-comm-overlap-needs-sp", break_tp_overlap},
    {"deterministic-loss", break_deterministic_loss},
    {"deterministic-tp-overlap", break_deterministic_tp},
    {"deterministic-delta", break_deterministic_delta},
    {"cp-divides-sequence", break_cp_seq},
    {"sp-divides-sequence", break_sp_seq},
    {"tp-divides-ffn", break_ffn},
    {"etp-divides-expert-ffn", break_expert_ffn},
    {"tp-divides-shared-expert", break_shared},
    {"ulysses-divides-heads", break_ulysses},
    {"batch-divides", break_batch},
    {"batch-divides", break_batch_huge},
    {"flushes-divide", break_flushes},
    {"router-groups-divide", break_router_groups},
    {"router-groups-divide", break_router_group_topk},
    {"expert-bias-needs-sigmoid", break_expert_bias},
    {"moe-bias-needs-etp1", break_moe_bias},
    {"layout-string-reads", break_string_reads},
    {"layout-string-alone", break_string_alone},
    {"layout-string-alone", break_string_alone2},
    {"layout-string-stages", break_string_stages},
    {"layout-string-stages", break_string_vpp},
    {"layout-string-stages", break_string_schedule},
    {"layout-string-layers", break_string_layers},
    {"layout-string-layers", break_string_mtp},
    {"layout-string-mtp-place", break_string_mtp_rank0},
    {"layout-string-mtp-place", break_string_mtp_chunk},
    {"schedule-chunks", break_schedule_vpp},
    {"schedule-chunks", break_schedule_v},
    {"schedule-chunks", break_schedule_split},
    {"post-validation-schedule", break_post_validation},
    {"fp8-dispatch-needs-fp8", break_fp8_dispatch},
    {"layers-divide", break_layers},
    {"layers-divide", break_layers_vpp},
    {"layers-divide", break_layers_account},
    {"ends-divide", break_ends},
    {"ends-divide", break_ends_account},
    {"ends-divide", break_ends_rest},
    {"ends-divide", break_ends_huge},
    {"vpp-needs-pp", break_vpp_pp},
    {"vpp-without-p2p-overlap", break_vpp_p2p},
    {"flush-without-p2p-overlap", break_flush_p2p},
    {"microbatch-group", break_group_small},
    {"microbatch-group", break_group_large},
    {"microbatch-group", break_group_rest},
    {"schedule-microbatches", break_dualpipe},
    {"schedule-microbatches", break_dualpipev},
    {"dispatcher-on-hardware", break_deepep},
    {"dispatcher-on-hardware", break_hybridep},
    {"dispatcher-needs-group", break_flex},
    {"dispatcher-group-size", break_deepep_size},
    {"ep-overlap-needs-ep", break_overlap_ep},
    {"ep-overlap-dispatcher", break_overlap_dispatcher},
    {"ep-overlap-schedule", break_overlap_schedule},
    {"ep-overlap-recompute", break_overlap_full},
    {"ep-overlap-recompute", break_overlap_pairs},
    {"ep-overlap-recompute", break_overlap_moe},
    {"ep-overlap-shared", break_overlap_shared},
    {"ep-overlap-mtp", break_overlap_mtp},
    {"ep-overlap-vpp", break_overlap_vpp},
    {"ep-overlap-graphs", break_overlap_graphs},
    {"delay-wgrad-needs-overlap", break_delay_wgrad},
    {"dispatcher-pads-capacity", break_deepep_pad},
    {"dispatcher-pads-blocks", break_allgather_pad},
    {"shared-overlap-dispatcher", break_shared_dispatcher},
    {"shared-overlap-recompute", break_shared_recompute},
    {"precision-on-hardware", break_precision},
    {"fp8-params-need-fp8", break_fp8_params},
    {"fp4-params-need-fp4", break_fp4_params},
    {"delayed-recipe", break_delayed_ends},
    {"delayed-recipe", break_delayed_recompute},
    {"bf16-ends-fit", break_bf16_ends},
    {"param-gather-overlap", break_gather_overlap},
    {"optimizer-offload-fp8", break_offload_fp8},
    {"cpu-offloading", break_cpu_offload},
    {"cpu-offloading-recompute", break_cpu_offload2},
    {"offload-attn-proj", break_attn_proj},
    {"offload-link-known", break_offload_link},
    {"optimizer-link-known", break_optimizer_link},
    {"optimizer-on-host-adam", break_optimizer_on_host},
    {"fp8-input-store-swiglu", break_input_store},
    {"framework-options", break_framework_options},
    {"framework-schedule", break_framework_schedule},
    {"framework-sequences", break_framework_sequences},
    {"framework-latent", break_framework_latent},
    {"framework-routing", break_framework_routing},
    {"framework-recompute", break_framework_recompute},
    {"framework-stages", break_framework_stages},
    {"framework-chunks", break_framework_chunks},
    {"framework-shards", break_framework_shards},
    {"framework-compiles", break_framework_compiles},
    {"early-stop-needs-torch", break_early_stop},
    {"foreach-needs-torch", break_foreach_megatron},
    {"foreach-needs-torch", break_foreach_muon},
    {"optimizer-instances-shard", break_instances_alone},
    {"outer-sharding-needs-fsdp", break_outer_alone},
    {"outer-sharding-needs-fsdp", break_outer_grads},
    {"graphs-on-hardware", break_no_graphs},
    {"graph-scope-alone", break_graph_alone},
    {"graph-checks", break_graph_checks},
    {"graph-preprocess", break_graph_preprocess},
    {"graph-recompute", break_graph_full},
    {"graph-recompute", break_graph_moe},
    {"shared-keys-in-stage", break_shared_keys},
    {"tp-divides-delta-heads", break_delta_heads},
    {"compressed-without-tp", break_compressed_tp},
    {"sparse-cp-gathers", break_sparse_cp},
    {"sparse-needs-fused", break_sparse_unfused},
    {"lengths-fit", break_lengths},
    {"packing-needs-fused", break_packed_unfused},
    {"hybrid-cp", break_hybrid_alone},
    {"hybrid-cp", break_hybrid_unpacked},
    {"hybrid-cp-ranks", break_hybrid_pp},
    {"hybrid-cp", break_hybrid_fsdp},
    {"hybrid-cp", break_hybrid_gather},
    {"hybrid-cp-ranks", break_hybrid_ranks},
    {"recompute-needs", break_mhc_plain},
    {"recompute-excludes", break_mhc_mlp},
    {"recompute-needs", break_norm_out},
    {"lora-models", break_lora_mtp},
    {"lora-targets", break_lora_nothing},
    {"lora-rank-divides", break_lora_rank},
    {"lora-experts-whole", break_lora_experts},
    {"lora-recompute", break_lora_mlp_again},
    {"lora-overlap", break_lora_deferred},
    {"transpose-cache", break_transpose_cache},
    {"reused-masters", break_reused_masters},
    {"swapped-states", break_swapped_states},
    {"grouped-library", break_grouped_library},
};

/* The good scenario: 64 GPUs, TP 2 x CP 2 x PP 2 x DP 8; EP 8 x EDP 4. */
static Case *good_case(void) { return case_new(64, 2, 2, 2, 8, 1); }

static void every_rule_refuses(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(refusals); i++) {
    Case *c = good_case();
    g_autoptr(MsLayout) layout = layout_of(c);
    refusals[i].breaks(c);
    assert_refused(c, refusals[i].rule);
    g_free(c);
  }
  for (int r = 0; r < ms_num_rules; r++) { /* and no rule is without a case */
    gboolean found = FALSE;
    for (guint i = 0; i < G_N_ELEMENTS(refusals); i++) found |= !strcmp(refusals[i].rule, ms_rules[r].name);
    if (!found) fail_msg("no case for rule %s", ms_rules[r].name);
  }
}

static void refusal_says_why(void **state) {
  Case *c = good_case();
  MsRefusal refusal;
  (void)state;
  c->model.num_experts = 100;
  c->s.file = (char *)"run.json";
  assert_false(ms_layout_check(&c->s, &refusal));
  assert_string_equal(refusal.why, "EP 8 does not divide 100 experts");
  assert_int_equal(ms_rules[refusal.rule].number, 4);
  g_autoptr(GError) error = NULL;
  assert_null(ms_layout_new_or_error(&c->s, &error));
  assert_string_equal(error->message,
                      "run.json: layout.ep: EP 8 does not divide 100 experts (rule ep-divides-experts)");
  c->model.num_experts = 256;
  assert_true(ms_layout_check(&c->s, &refusal));
  assert_int_equal(refusal.rule, -1);
  g_free(c);
}

/* A batch that leaves the pipeline too few microbatches: the reason says the nearest that do, and they do. */
static void refusal_says_batches(void **state) {
  static const struct {
    int microbatches, group;
    const char *ends;
  } rows[] = {{3, 0, "; a global batch of 32 would do"},
              {11, 0, "; a global batch of 64 or 96 would do"},
              {15, 12, "; a global batch of 96 or 128 would do"}};
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    Case *c = case_new(64, 2, 1, 4, 8, 1);
    MsRefusal refusal;
    LAYOUT.vpp = 2;
    LAYOUT.microbatch_group_size_per_virtual_pipeline_stage = rows[i].group;
    TRAINING.global_batch_size = 8 * rows[i].microbatches;
    if (ms_layout_check(&c->s, &refusal)) fail_msg("%d microbatches are taken", rows[i].microbatches);
    assert_string_equal(ms_rules[refusal.rule].name, "microbatch-group");
    if (!g_str_has_suffix(refusal.why, rows[i].ends)) fail_msg("%s", refusal.why);
    g_free(c);
  }
}

static void resolved_values(void **state) {
  Case *c = good_case();
  (void)state;
  g_autoptr(MsLayout) layout = layout_of(c);
  assert_true(layout->sequence_parallel);
  assert_int_equal(layout->microbatches, 2048);
  assert_int_equal(layout->group_size, 2);
  c->s.layout.tp = 1; /* rule 6: cleared, not refused */
  c->s.options.sequence_parallel = TRUE;
  g_autoptr(MsLayout) flat = layout_of(c);
  assert_false(flat->sequence_parallel);
  g_free(c);
}

/* Any integers: a verdict, never a trap (run under UBSan). */
static void arbitrary_values(void **state) {
  static const int values[] = {1, 2, 3, 4, 8, 64, 1 << 16, G_MAXINT - 1, G_MAXINT};
  g_autoptr(GRand) random = g_rand_new_with_seed(1);
  (void)state;
  for (int i = 0; i < 200000; i++) {
    Case *c = good_case();
    int *fields[] = {&c->s.gpus,
                     &LAYOUT.tp,
                     &LAYOUT.cp,
                     &LAYOUT.pp,
                     &LAYOUT.vpp,
                     &LAYOUT.ep,
                     &LAYOUT.etp,
                     &LAYOUT.microbatch_group_size_per_virtual_pipeline_stage,
                     &LAYOUT.decoder_first_pipeline_num_layers,
                     &LAYOUT.decoder_last_pipeline_num_layers,
                     &TRAINING.seq_length,
                     &TRAINING.micro_batch_size,
                     &TRAINING.global_batch_size,
                     &c->model.num_layers,
                     &c->model.num_attention_heads,
                     &c->model.num_query_groups,
                     &c->model.num_experts,
                     &OPTIONS.num_distributed_optimizer_instances};
    for (int k = g_rand_int_range(random, 0, 4); k >= 0; k--)
      *fields[g_rand_int_range(random, 0, G_N_ELEMENTS(fields))] =
          values[g_rand_int_range(random, 0, G_N_ELEMENTS(values))];
    LAYOUT.schedule = (MsScheduleKind)g_rand_int_range(random, 0, MS_N_SCHEDULES);
    MsRefusal refusal;
    ms_layout_check(&c->s, &refusal);
    g_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(worked_groups_of_16),
      cmocka_unit_test(worked_groups_of_recipes),
      cmocka_unit_test(properties_over_a_grid),
      cmocka_unit_test(worked_instances),
      cmocka_unit_test(rank_order_pp_dp),
      cmocka_unit_test(geometry_of_progressions),
      cmocka_unit_test(layout_string_deepseek_v3),
      cmocka_unit_test(layout_string_standalone_mtp),
      cmocka_unit_test(layout_string_of_16_stages),
      cmocka_unit_test(layout_string_round_trip),
      cmocka_unit_test(hostile_strings),
      cmocka_unit_test(even_split),
      cmocka_unit_test(accounted_split),
      cmocka_unit_test(uneven_ends),
      cmocka_unit_test(v_schedules),
      cmocka_unit_test(every_rule_refuses),
      cmocka_unit_test(refusal_says_why),
      cmocka_unit_test(refusal_says_batches),
      cmocka_unit_test(resolved_values),
      cmocka_unit_test(arbitrary_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
