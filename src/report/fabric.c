/* src/report/fabric.c - a fabric: switches, links, and what the job's collectives make of them.
 */
#include "base/err.h"
#include "base/text.h"
#include "fabric/pattern.h"
#include "report/report.h"

typedef struct {
  const char *group, *pattern;
  int size, domains, per_domain;
  MsFabricTime time;
  char busiest[MS_LINK_NAME];
} Row;

typedef struct {
  const char *name;
  guint32 links;
  double Bps; /* of one, unbroken */
} Tier;

struct MsFabricView {
  MsLayout *layout;
  MsFabricGraph *graph;
  int n_rows, n_tiers, n_levels; /* tiers between two levels of the drawing come first */
  Row row[MS_N_GROUPS * MS_N_PATTERNS];
  Tier tier[7];
};

void ms_fabric_view_free(MsFabricView *v) {
  if (!v) return;
  ms_fabric_graph_free(v->graph);
  ms_layout_free(v->layout);
  g_free(v);
}

/* --- what is shown --- */
static gboolean add_row(MsFabricView *v, MsGroupKind kind, MsPattern pattern, GError **error) {
  const MsGroup *g = &v->layout->group[kind];
  Row *row = &v->row[v->n_rows];
  *row = (Row){ms_group_words[kind], ms_pattern_words[pattern], g->size, g->domains, g->per_domain, {0}, ""};
  if (!ms_pattern_time(v->graph, v->layout, kind, pattern, &row->time, error)) return FALSE;
  if (row->time.flows > 0) ms_fabric_link_name(v->graph, row->time.busiest, row->busiest), v->n_rows++;
  return TRUE;
}

/* Collectives of the groups that are shown, in the order of the list. */
static gboolean add_rows(MsFabricView *v, GError **error) {
  enum { SUMS = 1 << MS_PATTERN_PAT | 1 << MS_PATTERN_HALVING | 1 << MS_PATTERN_RING | 1 << MS_PATTERN_TREE };
  static const struct {
    MsGroupKind kind;
    int patterns; /* bits */
  } shown[] = {{MS_GROUP_TP, 1 << MS_PATTERN_RING},
               {MS_GROUP_CP, 1 << MS_PATTERN_PAIR | 1 << MS_PATTERN_EXCHANGE},
               {MS_GROUP_TP_EP, 1 << MS_PATTERN_EXCHANGE},
               {MS_GROUP_PP, 1 << MS_PATTERN_PAIR},
               {MS_GROUP_DP_CP, SUMS},
               {MS_GROUP_EDP, SUMS},
               {MS_GROUP_EMBEDDING, 1 << MS_PATTERN_RING},
               {MS_GROUP_WORLD, 1 << MS_PATTERN_TREE},
               {MS_GROUP_INTRA_DP_CP, SUMS},
               {MS_GROUP_INTRA_EDP, SUMS},
               {MS_GROUP_INTER, SUMS}};
  for (guint i = 0; i < G_N_ELEMENTS(shown); i++) {
    const MsGroup *g = &v->layout->group[shown[i].kind];
    for (int pattern = 0; pattern < MS_N_PATTERNS && g->domains > 1; pattern++)
      if (shown[i].patterns >> pattern & 1 && ms_pattern_serves(v->graph->hardware, g, (MsPattern)pattern) &&
          !add_row(v, shown[i].kind, (MsPattern)pattern, error))
        return FALSE;
  }
  return TRUE;
}

static void add_tier(MsFabricView *v, guint32 first, guint32 links, double Bps) {
  if (links > 0) v->tier[v->n_tiers++] = (Tier){ms_fabric_link_tier(v->graph, first), links, Bps};
}

static void add_tiers(MsFabricView *v) {
  const MsFabricGraph *g = v->graph;
  double cables = g->fabric->kind == MS_FABRIC_DRAGONFLY ? 0.5 : 1; /* both ends are uplinks of a group */
  add_tier(v, 0, (guint32)(g->nodes * g->node_gpus), g->scaleup_Bps);
  add_tier(v, g->first_nic, (guint32)(g->nodes * g->nics), g->nic_Bps);
  if (g->leaves > 1) add_tier(v, g->first_leaf, (guint32)(g->leaves * g->uplinks), g->link_Bps);
  add_tier(v, g->first_spine, (guint32)(cables * g->pods * g->spines * g->spine_uplinks), g->link_Bps);
  add_tier(v, g->first_torus, (guint32)(g->nodes * g->dims * 2), g->link_Bps);
  v->n_levels = v->n_tiers;
  add_tier(v, g->first_pcie, (g->first_switch - g->first_pcie) / 2, g->pcie_Bps);
  add_tier(v, g->first_switch, (g->n_links - g->first_switch) / 2, g->pcie_Bps);
}

MsFabricView *ms_fabric_view_new(const MsScenario *s, GError **error) {
  if (s->hardware->fabric.kind == MS_FABRIC_NONE) {
    ms_input_error(error, s->file, 0, "hardware",
                   "has no fabric; give one in place of the name, {\"base\": \"%s\", \"fabric\": {\"kind\": "
                   "\"rail-optimized\"}}",
                   s->hardware->name);
    return NULL;
  }
  g_autoptr(MsFabricView) v = g_new0(MsFabricView, 1);
  v->layout = ms_layout_new_or_error(s, error);
  v->graph = v->layout ? ms_fabric_graph_new(s, error) : NULL;
  if (!v->graph || !add_rows(v, error)) return NULL;
  add_tiers(v);
  return g_steal_pointer(&v);
}

/* --- JSON --- */
static const char *view_kind(const void *v) {
  return ms_fabric_kind_words[((const MsFabricView *)v)->graph->fabric->kind];
}
#define GRAPH_COUNT(f) \
  static double view_##f(const void *v) { return ((const MsFabricView *)v)->graph->f; }
GRAPH_COUNT(nodes)
GRAPH_COUNT(leaves)
GRAPH_COUNT(pods)
GRAPH_COUNT(n_links)
static double view_spines(const void *v) {
  const MsFabricGraph *g = ((const MsFabricView *)v)->graph;
  return (double)g->spines * g->pods;
}

static const MsFigures tier_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(STRING, Tier, name, "", "which links"), MS_FIGURE(UINT, Tier, links, "", "how many"),
                      MS_FIGURE(F64, Tier, Bps, "B/s", "of one that is not broken, one direction"));
static const MsFigures row_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(STRING, Row, group, "", "kind of groups"),
                      MS_FIGURE(STRING, Row, pattern, "", "ring, tree, exchange, pair, pat or halving"),
                      MS_FIGURE(INT, Row, size, "", "ranks of a group"),
                      MS_FIGURE(INT, Row, domains, "", "scale-up domains that the worst group touches"),
                      MS_FIGURE(INT, Row, per_domain, "", "its ranks in the fullest of them"),
                      MS_FIGURE_AS("flows", UINT, Row, time.flows, "", "of all groups"),
                      MS_FIGURE_AS("slowdown", F64, Row, time.slowdown, "1", "time over that on an ideal network"),
                      MS_FIGURE(CHARS, Row, busiest, "", "the link that is full longest"),
                      MS_FIGURE_AS("load", F64, Row, time.load, "1", "share of the time in which it is full"));
const MsFigures ms_fabric_figures = MS_FIGURE_TABLE(
    "fabric", "`moesim show --json fabric`.", MS_FIGURE_TEXT("kind", view_kind, "how switches are joined"),
    MS_FIGURE_OF("nodes", INT, view_nodes, "", "of the fabric"),
    MS_FIGURE_OF("leaves", INT, view_leaves, "", "switches that NICs go to"),
    MS_FIGURE_OF("spines", INT, view_spines, "", "switches above them"),
    MS_FIGURE_OF("pods", INT, view_pods, "", "pods, or groups of a dragonfly+"),
    MS_FIGURE_OF("links", INT, view_n_links, "", "links of one direction that flows are laid on; trunks count once"),
    MS_FIGURE_HELD("tiers", MsFabricView, tier, n_tiers, &tier_figures),
    MS_FIGURE_HELD("collectives", MsFabricView, row, n_rows, &row_figures));

/* --- text --- */
/* "2048 NICs of 50.00 GB/s each": what joins a level to the one above it. */
static void append_tier(GString *out, const Tier *tier) {
  g_string_append_printf(out, "         |    %u x %s, %sB/s each\n", tier->links, tier->name, MS_COUNT(tier->Bps));
}

static const char *leaf_word(const MsFabricGraph *g) {
  return g->dims > 0 ? "routers" : g->rails > 1 ? "rail leaves" : g->leaves == 1 ? "leaf" : "leaves";
}

/* Switches, nodes and GPUs, one level a line, and the links between them. */
static void append_drawing(GString *out, const MsFabricView *v) {
  const MsFabricGraph *g = v->graph;
  const struct {
    double n;
    const char *name;
  } level[] = {{(double)g->nodes * g->node_gpus, "GPUs"},
               {g->nodes, "nodes"},
               {g->dims > 0 ? g->nodes : MAX(g->leaves, 1), leaf_word(g)},
               {view_spines(v), "spines"},
               {g->pods, g->fabric->kind == MS_FABRIC_DRAGONFLY ? "groups" : "pods"}};
  for (int i = v->n_levels; i >= 0; i--) {
    if (i < v->n_levels) append_tier(out, &v->tier[i]);
    if (g->dims == 0 || i < v->n_levels) g_string_append_printf(out, "%9.0f  %s\n", level[i].n, level[i].name);
  }
}

static char *row_table(const MsFabricView *v) {
  MsTable *t = ms_table_of("group|flows as|>ranks|>domains|>in one|>flows|>slowdown|fullest link|>full");
  for (int i = 0; i < v->n_rows; i++) {
    const Row *r = &v->row[i];
    MS_TABLE_ROW(t, r->group, r->pattern, MS_FORMAT("%d", r->size), MS_FORMAT("%d", r->domains),
                 MS_FORMAT("%d", r->per_domain), MS_FORMAT("%u", r->time.flows), MS_FORMAT("%.3f", r->time.slowdown),
                 r->busiest, MS_FORMAT("%.0f %%", 100 * r->time.load));
  }
  return ms_table_take(t);
}

static char *text_of(const MsFabricView *v) {
  const MsFabricGraph *g = v->graph;
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%s: %d nodes of %d GPUs and %d NICs", view_kind(v), g->nodes, g->node_gpus, g->nics);
  if (g->leaves > 0)
    g_string_append_printf(out, ", %d %s of %d nodes, %.0f spines, %d %s", g->leaves,
                           g->rails > 1 ? "rail leaves" : "leaves", g->leaf_nodes, view_spines(v), g->pods,
                           g->pods == 1 ? "pod" : "pods");
  g_string_append_printf(out, "\nthe job: %d ranks, up to %d in a scale-up domain of %d\n\n", g->seats->world,
                         g->seats->segment, g->seats->domain_gpus);
  char rate[MS_TEXT];
  if (g->pcie_switches > 0)
    g_string_append_printf(out, "in a node: %d PCIe switches of %d GPUs, links of %sB/s\n\n", g->pcie_switches,
                           g->pcie_gpus, ms_text_count(g->pcie_Bps, rate));
  g_autofree char *rows = row_table(v);
  append_drawing(out, v);
  g_string_append_printf(out, "\n%s", v->n_rows > 0 ? rows : "no group of ranks crosses scale-up domains\n");
  return g_strchomp(g_string_free(out, FALSE));
}

char *ms_report_fabric(const MsScenario *scenario, gboolean json, GError **error) {
  g_autoptr(MsFabricView) v = ms_fabric_view_new(scenario, error);
  if (!v) return NULL;
  return json ? ms_figures_json(&ms_fabric_figures, v) : text_of(v);
}
