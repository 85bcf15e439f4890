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

typedef struct {
  const MsScenario *scenario;
  MsLayout *layout;
  MsFabricGraph *graph;
  int n_rows, n_tiers;
  Row row[MS_N_GROUPS * MS_N_PATTERNS];
  Tier tier[5];
} View;

static void view_clear(View *v) {
  ms_fabric_graph_free(v->graph);
  ms_layout_free(v->layout);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(View, view_clear)

/* --- what is shown --- */
static gboolean add_row(View *v, MsGroupKind kind, MsPattern pattern, GError **error) {
  const MsGroup *g = &v->layout->group[kind];
  Row *row = &v->row[v->n_rows];
  *row = (Row){ms_group_words[kind], ms_pattern_words[pattern], g->size, g->domains, g->per_domain, {0}, ""};
  if (!ms_pattern_time(v->graph, v->layout, kind, pattern, &row->time, error)) return FALSE;
  if (row->time.flows > 0) ms_fabric_link_name(v->graph, row->time.busiest, row->busiest), v->n_rows++;
  return TRUE;
}

static gboolean add_rows(View *v, GError **error) {
  static const struct {
    MsGroupKind kind;
    MsPattern pattern;
  } shown[] = {
      {MS_GROUP_TP, MS_PATTERN_RING},        {MS_GROUP_CP, MS_PATTERN_PAIR},   {MS_GROUP_CP, MS_PATTERN_EXCHANGE},
      {MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE}, {MS_GROUP_PP, MS_PATTERN_PAIR},   {MS_GROUP_DP_CP, MS_PATTERN_RING},
      {MS_GROUP_DP_CP, MS_PATTERN_TREE},     {MS_GROUP_EDP, MS_PATTERN_RING},  {MS_GROUP_EDP, MS_PATTERN_TREE},
      {MS_GROUP_EMBEDDING, MS_PATTERN_RING}, {MS_GROUP_WORLD, MS_PATTERN_TREE}};
  for (guint i = 0; i < G_N_ELEMENTS(shown); i++)
    if (v->layout->group[shown[i].kind].domains > 1 && !add_row(v, shown[i].kind, shown[i].pattern, error))
      return FALSE;
  return TRUE;
}

static void add_tier(View *v, const char *name, guint32 links, double Bps) {
  if (links > 0) v->tier[v->n_tiers++] = (Tier){name, links, Bps};
}

static void add_tiers(View *v) {
  const MsFabricGraph *g = v->graph;
  double cables = g->fabric->kind == MS_FABRIC_DRAGONFLY ? 0.5 : 1; /* both ends are uplinks of a group */
  add_tier(v, "scale-up port", (guint32)(g->nodes * g->node_gpus), g->scaleup_Bps);
  add_tier(v, "NIC", (guint32)(g->nodes * g->nics), g->nic_Bps);
  if (g->leaves > 1) add_tier(v, "leaf to spine", (guint32)(g->leaves * g->uplinks), g->link_Bps);
  add_tier(v, g->fabric->kind == MS_FABRIC_DRAGONFLY ? "group to group" : "spine to core",
           (guint32)(cables * g->pods * g->spines * g->spine_uplinks), g->link_Bps);
  add_tier(v, "torus link", (guint32)(g->nodes * g->dims * 2), g->link_Bps);
}

static gboolean look(View *v, const MsScenario *s, GError **error) {
  v->scenario = s;
  if (s->hardware->fabric.kind == MS_FABRIC_NONE)
    return ms_input_error(error, s->file, 0, "hardware",
                          "has no fabric; give one in place of the name, {\"base\": \"%s\", \"fabric\": {\"kind\": "
                          "\"rail-optimized\"}}",
                          s->hardware->name);
  v->layout = ms_layout_new_or_error(s, error);
  v->graph = v->layout ? ms_fabric_graph_new(s, error) : NULL;
  if (!v->graph || !add_rows(v, error)) return FALSE;
  add_tiers(v);
  return TRUE;
}

/* --- JSON --- */
static double row_slowdown(const void *row) { return ((const Row *)row)->time.slowdown; }
static double row_load(const void *row) { return ((const Row *)row)->time.load; }
static double row_flows(const void *row) { return ((const Row *)row)->time.flows; }
static const char *row_busiest(const void *row) { return ((const Row *)row)->busiest; }
static const char *view_kind(const void *v) { return ms_fabric_kind_words[((const View *)v)->graph->fabric->kind]; }
static const void *view_row(const void *owner, guint i, MsFigureCursor *room) {
  const View *v = owner;
  (void)room;
  return i < (guint)v->n_rows ? &v->row[i] : NULL;
}
static const void *view_tier(const void *owner, guint i, MsFigureCursor *room) {
  const View *v = owner;
  (void)room;
  return i < (guint)v->n_tiers ? &v->tier[i] : NULL;
}
#define GRAPH_COUNT(f) \
  static double view_##f(const void *v) { return ((const View *)v)->graph->f; }
GRAPH_COUNT(nodes)
GRAPH_COUNT(leaves)
GRAPH_COUNT(pods)
GRAPH_COUNT(n_links)
static double view_spines(const void *v) {
  const MsFabricGraph *g = ((const View *)v)->graph;
  return (double)g->spines * g->pods;
}

static const MsFigures tier_figures = {
    .rows = (const MsFigure[]){MS_FIGURE(STRING, Tier, name, "", "which links"),
                               MS_FIGURE(UINT, Tier, links, "", "how many"),
                               MS_FIGURE(F64, Tier, Bps, "B/s", "of one that is not broken, one direction"),
                               {0}}};
static const MsFigures row_figures = {
    .rows = (const MsFigure[]){MS_FIGURE(STRING, Row, group, "", "kind of groups"),
                               MS_FIGURE(STRING, Row, pattern, "", "ring, tree, exchange or pair"),
                               MS_FIGURE(INT, Row, size, "", "ranks of a group"),
                               MS_FIGURE(INT, Row, domains, "", "scale-up domains that the worst group touches"),
                               MS_FIGURE(INT, Row, per_domain, "", "its ranks in the fullest of them"),
                               MS_FIGURE_OF("flows", INT, row_flows, "", "of all groups"),
                               MS_FIGURE_OF("slowdown", F64, row_slowdown, "1", "time over that on an ideal network"),
                               MS_FIGURE_TEXT("busiest", row_busiest, "the link that is full longest"),
                               MS_FIGURE_OF("load", F64, row_load, "1", "share of the time in which it is full"),
                               {0}}};
const MsFigures ms_fabric_figures = {
    "fabric", "`moesim show --json fabric`.",
    (const MsFigure[]){MS_FIGURE_TEXT("kind", view_kind, "how switches are joined"),
                       MS_FIGURE_OF("nodes", INT, view_nodes, "", "of the fabric"),
                       MS_FIGURE_OF("leaves", INT, view_leaves, "", "switches that NICs go to"),
                       MS_FIGURE_OF("spines", INT, view_spines, "", "switches above them"),
                       MS_FIGURE_OF("pods", INT, view_pods, "", "pods, or groups of a dragonfly+"),
                       MS_FIGURE_OF("links", INT, view_n_links, "",
                                    "links of one direction that flows are laid on; trunks count once"),
                       MS_FIGURE_EACH("tiers", LIST, view_tier, &tier_figures),
                       MS_FIGURE_EACH("collectives", LIST, view_row, &row_figures),
                       {0}}};

/* --- text --- */
static char *tier_table(const View *v) {
  char buf[MS_TEXT];
  MsTable *t = ms_table_new();
  ms_table_column(t, "link", FALSE), ms_table_column(t, "cables", TRUE), ms_table_column(t, "each", TRUE);
  for (int i = 0; i < v->n_tiers; i++) {
    ms_table_cell(t, v->tier[i].name);
    ms_table_cellf(t, "%u", v->tier[i].links);
    ms_table_cellf(t, "%sB/s", ms_text_count(v->tier[i].Bps, buf));
  }
  return ms_table_take(t);
}

static char *row_table(const View *v) {
  static const struct {
    const char *title;
    gboolean right;
  } column[] = {{"group", FALSE}, {"flows as", FALSE}, {"ranks", TRUE},         {"domains", TRUE}, {"in one", TRUE},
                {"flows", TRUE},  {"slowdown", TRUE},  {"fullest link", FALSE}, {"full", TRUE}};
  MsTable *t = ms_table_new();
  for (guint i = 0; i < G_N_ELEMENTS(column); i++) ms_table_column(t, column[i].title, column[i].right);
  for (int i = 0; i < v->n_rows; i++) {
    const Row *r = &v->row[i];
    ms_table_cell(t, r->group), ms_table_cell(t, r->pattern);
    ms_table_cellf(t, "%d", r->size), ms_table_cellf(t, "%d", r->domains), ms_table_cellf(t, "%d", r->per_domain);
    ms_table_cellf(t, "%u", r->time.flows), ms_table_cellf(t, "%.3f", r->time.slowdown);
    ms_table_cell(t, r->busiest), ms_table_cellf(t, "%.0f %%", 100 * r->time.load);
  }
  return ms_table_take(t);
}

static char *text_of(const View *v) {
  const MsFabricGraph *g = v->graph;
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%s: %d nodes of %d GPUs and %d NICs", view_kind(v), g->nodes, g->node_gpus, g->nics);
  if (g->leaves > 0)
    g_string_append_printf(out, ", %d %s of %d nodes, %.0f spines, %d %s", g->leaves,
                           g->rails > 1 ? "rail leaves" : "leaves", g->leaf_nodes, view_spines(v), g->pods,
                           g->pods == 1 ? "pod" : "pods");
  g_string_append_printf(out, "\nthe job: %d ranks, up to %d in a scale-up domain of %d\n\n", g->seats->world,
                         g->seats->segment, g->seats->domain_gpus);
  g_autofree char *tiers = tier_table(v), *rows = row_table(v);
  g_string_append(out, tiers);
  g_string_append_printf(out, "\n%s", v->n_rows > 0 ? rows : "no group of ranks crosses scale-up domains\n");
  return g_strchomp(g_string_free(out, FALSE));
}

char *ms_report_fabric(const MsScenario *scenario, gboolean json, GError **error) {
  g_auto(View) v = {0};
  if (!look(&v, scenario, error)) return NULL;
  return json ? ms_figures_json(&ms_fabric_figures, &v) : text_of(&v);
}
