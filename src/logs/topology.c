/* src/logs/topology.c - reading topology.conf, ibnetdiscover and NCCL's description of a node. */
#include "logs/topology.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

const char *const ms_topology_words[] = {"slurm-topology", "ibnetdiscover", "nccl-topo", NULL};

#define MOST_NODES (1 << 20)

/* --- lists of names ---------------------------------------------------------------------------------------------- */

typedef struct {
  GPtrArray *names;
  guint most;
  char **why;
} Hosts;

static gboolean bad_list(Hosts *h, const char *why, const char *at) {
  if (!*h->why) *h->why = g_strdup_printf("%s at \"%.40s\"", why, at);
  return FALSE;
}

static gboolean expand(Hosts *h, const char *done, const char *rest);

/* "[0-3,7]suffix" behind `done`. */
static gboolean expand_brackets(Hosts *h, const char *done, const char *rest) {
  const char *close = strchr(rest, ']');
  if (!close) return bad_list(h, "a bracket is not closed", rest);
  g_autofree char *inside = g_strndup(rest + 1, (gsize)(close - rest - 1));
  g_auto(GStrv) part = g_strsplit(inside, ",", -1);
  for (int i = 0; part[i]; i++) {
    char *end;
    guint64 from = g_ascii_strtoull(part[i], &end, 10), to = from;
    int width = (int)(end - part[i]);
    if (end == part[i]) return bad_list(h, "not a number", part[i]);
    if (*end == '-') to = g_ascii_strtoull(end + 1, &end, 10);
    if (*end || to < from || to - from >= h->most) return bad_list(h, "not a range of numbers", part[i]);
    for (guint64 k = from; k <= to; k++) {
      g_autofree char *name = g_strdup_printf("%s%0*" G_GUINT64_FORMAT, done, width, k);
      if (!expand(h, name, close + 1)) return FALSE;
    }
  }
  return part[0] != NULL || bad_list(h, "an empty bracket", rest);
}

static gboolean expand(Hosts *h, const char *done, const char *rest) {
  const char *open = strchr(rest, '[');
  g_autofree char *name =
      open ? g_strdup_printf("%s%.*s", done, (int)(open - rest), rest) : g_strconcat(done, rest, NULL);
  if (open) return expand_brackets(h, name, open);
  if (!*name) return bad_list(h, "an empty name", rest);
  if (h->names->len >= h->most) return bad_list(h, "too many names", rest);
  g_ptr_array_add(h->names, g_steal_pointer(&name));
  return TRUE;
}

GPtrArray *ms_host_list(const char *list, guint most, char **why) {
  g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
  Hosts h = {names, most, why};
  *why = NULL;
  int depth = 0;
  for (const char *from = list, *c = list;; c++) { /* commas outside of brackets */
    depth += (*c == '[') - (*c == ']');
    if (*c && (*c != ',' || depth > 0)) continue;
    g_autofree char *one = g_strndup(from, (gsize)(c - from));
    if (!expand(&h, "", one)) return NULL;
    if (!*c) break;
    from = c + 1;
  }
  return g_steal_pointer(&names);
}

/* --- switches ---------------------------------------------------------------------------------------------------- */

typedef struct {
  char *name;
  int line, level;          /* 0: nodes hang on it */
  GPtrArray *nodes, *below; /* names; NULL: none */
  int parent;               /* -1: none */
} Switch;

typedef struct {
  const char *file;
  GArray *all;        /* Switch */
  GHashTable *number; /* name -> index + 1 */
  GHashTable *node;   /* name -> number of the node + 1 */
  int leaves, leaf_nodes, pods, pod_leaves;
} Tree;

static void switch_clear(gpointer data) {
  Switch *s = data;
  g_free(s->name);
  if (s->nodes) g_ptr_array_unref(s->nodes);
  if (s->below) g_ptr_array_unref(s->below);
}

static gboolean fail(const Tree *t, int line, GError **error, const char *format, ...) G_GNUC_PRINTF(4, 5);
static gboolean fail(const Tree *t, int line, GError **error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *why = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_input_error(error, t->file, line, "", "%s", why);
}

static Switch *switch_of(const Tree *t, int i) { return &g_array_index(t->all, Switch, i); }

static GPtrArray *names_of(const Tree *t, int line, const char *list, GError **error) {
  g_autofree char *why = NULL;
  GPtrArray *names = ms_host_list(list, MOST_NODES, &why);
  if (!names) fail(t, line, error, "%s", why);
  return names;
}

/* "SwitchName=s1 Nodes=node[0-3]" */
static gboolean read_switch(Tree *t, int line, char *text, GError **error) {
  Switch s = {.line = line, .parent = -1};
  gboolean ok = TRUE;
  g_auto(GStrv) word = g_strsplit_set(g_strstrip(text), " \t", -1);
  for (int i = 0; word[i] && ok; i++) {
    char *value = strchr(word[i], '=');
    if (!*word[i]) continue;
    if (!value) ok = fail(t, line, error, "\"%s\" is not KEY=VALUE", word[i]);
    else if (g_ascii_strncasecmp(word[i], "SwitchName=", 11) == 0) s.name = s.name ? s.name : g_strdup(value + 1);
    else if (g_ascii_strncasecmp(word[i], "Nodes=", 6) == 0)
      ok = (s.nodes = names_of(t, line, value + 1, error)) != NULL;
    else if (g_ascii_strncasecmp(word[i], "Switches=", 9) == 0)
      ok = (s.below = names_of(t, line, value + 1, error)) != NULL;
    else if (g_ascii_strncasecmp(word[i], "LinkSpeed=", 10) != 0)
      ok = fail(t, line, error, "unknown key \"%.*s\", must be SwitchName, Nodes, Switches or LinkSpeed",
                (int)(value - word[i]), word[i]);
  }
  if (ok && !s.name) ok = fail(t, line, error, "SwitchName is missing");
  if (ok && !s.nodes == !s.below)
    ok = fail(t, line, error, "switch %s must have Nodes or Switches, and one of them", s.name);
  if (ok && g_hash_table_contains(t->number, s.name)) ok = fail(t, line, error, "switch %s stands here twice", s.name);
  if (!ok) {
    switch_clear(&s);
    return FALSE;
  }
  g_array_append_val(t->all, s);
  g_hash_table_insert(t->number, s.name, GINT_TO_POINTER((int)t->all->len));
  return TRUE;
}

static gboolean read_lines(Tree *t, const char *text, GError **error) {
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  GString *whole = g_string_new(NULL);
  gboolean ok = TRUE;
  for (int i = 0; line[i] && ok; i++) {
    char *comment = strchr(line[i], '#');
    if (comment) *comment = 0;
    g_strchomp(line[i]);
    gboolean goes_on = g_str_has_suffix(line[i], "\\");
    if (goes_on) line[i][strlen(line[i]) - 1] = 0;
    g_string_append_printf(whole, " %s", line[i]);
    if (goes_on) continue;
    g_strstrip(whole->str);
    if (*whole->str) ok = read_switch(t, i + 1, whole->str, error);
    g_string_truncate(whole, 0);
  }
  g_string_free(whole, TRUE);
  return ok && (t->all->len > 0 || fail(t, 1, error, "no SwitchName: this is no topology.conf of topology/tree"));
}

/* --- their shape ------------------------------------------------------------------------------------------------- */

static gboolean join(Tree *t, GError **error) {
  for (int i = 0; i < (int)t->all->len; i++) {
    Switch *s = switch_of(t, i);
    for (guint k = 0; s->below && k < s->below->len; k++) {
      int child = GPOINTER_TO_INT(g_hash_table_lookup(t->number, s->below->pdata[k])) - 1;
      if (child < 0)
        return fail(t, s->line, error, "switch %s has an unknown switch %s below it", s->name,
                    (char *)s->below->pdata[k]);
      if (child == i) return fail(t, s->line, error, "switch %s is below itself", s->name);
      if (switch_of(t, child)->parent < 0) switch_of(t, child)->parent = i; /* others are parallel spines */
    }
  }
  for (int i = 0; i < (int)t->all->len; i++) {
    int level = 0;
    for (int k = i; !switch_of(t, k)->nodes; level++) {
      k = GPOINTER_TO_INT(g_hash_table_lookup(t->number, switch_of(t, k)->below->pdata[0])) - 1;
      if (level > 8)
        return fail(t, switch_of(t, i)->line, error, "switch %s: more than eight tiers, or a circle",
                    switch_of(t, i)->name);
    }
    switch_of(t, i)->level = level;
    if (level > 2)
      return fail(t, switch_of(t, i)->line, error, "switch %s is of a fourth tier, a fabric has three",
                  switch_of(t, i)->name);
  }
  return TRUE;
}

/* The spine that a leaf hangs on, as the first of its tier that names it. */
static int pod_of(const Tree *t, int leaf) { return switch_of(t, leaf)->parent; }

static gboolean measure(Tree *t, GPtrArray *notes, GError **error) {
  int last_pod = -2, in_pod = 0, most_in_pod = 0, roots = 0;
  for (int i = 0; i < (int)t->all->len; i++) {
    const Switch *s = switch_of(t, i);
    roots += s->parent < 0 && s->level > 0;
    if (s->level > 0) continue;
    t->leaves++, t->leaf_nodes = MAX(t->leaf_nodes, (int)s->nodes->len);
    in_pod = pod_of(t, i) == last_pod ? in_pod + 1 : 1;
    t->pods += pod_of(t, i) != last_pod;
    most_in_pod = MAX(most_in_pod, in_pod), last_pod = pod_of(t, i);
  }
  t->pod_leaves = most_in_pod;
  for (int i = 0; i < (int)t->all->len; i++) {
    const Switch *s = switch_of(t, i);
    if (s->level == 0 && s->parent < 0 && t->leaves > 1)
      return fail(t, s->line, error, "switch %s is joined to no other", s->name);
    if (s->level == 0 && (int)s->nodes->len < t->leaf_nodes)
      g_ptr_array_add(notes, g_strdup_printf("%s:%d: switch %s has %u nodes, taken to have room for %d as the largest",
                                             t->file, s->line, s->name, s->nodes->len, t->leaf_nodes));
    if (s->level == 1 && s->parent < 0 && t->pods > 1)
      return fail(t, s->line, error, "switch %s is joined to no other", s->name);
  }
  return TRUE;
}

/* Nodes are numbered leaf by leaf, pods begin at multiples of their leaves. */
static gboolean number_nodes(Tree *t, GError **error) {
  int last_pod = -2, leaf = 0, pod = -1;
  for (int i = 0; i < (int)t->all->len; i++) {
    const Switch *s = switch_of(t, i);
    if (s->level > 0) continue;
    if (pod_of(t, i) != last_pod) leaf = ++pod * t->pod_leaves;
    last_pod = pod_of(t, i);
    for (guint k = 0; k < s->nodes->len; k++) {
      if (g_hash_table_contains(t->node, s->nodes->pdata[k]))
        return fail(t, s->line, error, "node %s hangs on two switches", (char *)s->nodes->pdata[k]);
      g_hash_table_insert(t->node, s->nodes->pdata[k], GINT_TO_POINTER(leaf * t->leaf_nodes + (int)k + 1));
    }
    leaf++;
  }
  return TRUE;
}

/* Numbers of the job's nodes; empty when `nodes` is NULL. NULL and *error. (transfer full) */
static GArray *placement_of(const Tree *t, const char *nodes, GError **error) {
  g_autofree char *why = NULL;
  g_autoptr(GArray) place = g_array_new(FALSE, FALSE, sizeof(int));
  g_autoptr(GPtrArray) names = nodes ? ms_host_list(nodes, MOST_NODES, &why) : g_ptr_array_new();
  if (!names) return fail(t, 0, error, "list of nodes: %s", why), NULL;
  for (guint i = 0; i < names->len; i++) {
    int node = GPOINTER_TO_INT(g_hash_table_lookup(t->node, names->pdata[i])) - 1;
    if (node < 0) return fail(t, 0, error, "no switch has the node %s", (char *)names->pdata[i]), NULL;
    g_array_append_val(place, node);
  }
  return g_steal_pointer(&place);
}

static MsJsonOut *begin(const char *base) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_object(out, NULL);
  if (base) ms_json_out_string(out, "base", base);
  return out;
}

static char *end(MsJsonOut *out) {
  ms_json_out_end(out), ms_json_out_end(out);
  return ms_json_out_take(out);
}

static char *write_tree(const Tree *t, const char *base, const GArray *place, GPtrArray *notes) {
  MsJsonOut *out = begin(base);
  ms_json_out_object(out, "fabric");
  ms_json_out_string(out, "kind", "fat-tree");
  ms_json_out_int(out, "nodes", t->pods * t->pod_leaves * t->leaf_nodes);
  ms_json_out_int(out, "leaf_nodes", t->leaf_nodes);
  if (t->pods > 1) ms_json_out_int(out, "pod_nodes", t->pod_leaves * t->leaf_nodes);
  if (place->len > 0) ms_json_out_array(out, "placement");
  for (guint i = 0; i < place->len; i++) ms_json_out_int(out, NULL, g_array_index(place, int, i));
  if (place->len > 0) ms_json_out_end(out);
  g_ptr_array_add(notes, g_strdup_printf("%s: says no links between switches: full bisection is taken; set "
                                         "oversubscription, or leaf_uplinks, spines and link_Bps",
                                         t->file));
  return end(out);
}

static char *from_slurm(const char *text, const char *file, const char *base, const char *nodes, GPtrArray *notes,
                        GError **error) {
  Tree t = {.file = file, .all = g_array_new(FALSE, FALSE, sizeof(Switch))};
  g_array_set_clear_func(t.all, switch_clear);
  t.number = g_hash_table_new(g_str_hash, g_str_equal), t.node = g_hash_table_new(g_str_hash, g_str_equal);
  gboolean ok = read_lines(&t, text, error) && join(&t, error) && measure(&t, notes, error) && number_nodes(&t, error);
  g_autoptr(GArray) place = ok ? placement_of(&t, nodes, error) : NULL;
  char *json = place ? write_tree(&t, base, place, notes) : NULL;
  g_hash_table_unref(t.number), g_hash_table_unref(t.node), g_array_unref(t.all);
  return json;
}

/* --- what ibnetdiscover prints -------------------------------------------------------------------------------------
 */

typedef struct {
  int line;
  GPtrArray *nodes;       /* names, each once, in the order of ports */
  GHashTable *hcas, *ups; /* sets of HCAs and of switches that it is joined to */
  int uplinks;
  double Bps; /* of the slowest link to a switch, 0: none */
} Leaf;

typedef struct {
  Tree tree;           /* for its messages and numbers of nodes */
  GHashTable *by_name; /* name of a switch -> Leaf */
  GPtrArray *order;    /* Leaf, in the order of the file */
  Leaf *at;            /* whose block is read, NULL: that of an HCA */
} Fabric;

static void leaf_free(gpointer data) {
  Leaf *l = data;
  g_ptr_array_unref(l->nodes), g_hash_table_unref(l->hcas), g_hash_table_unref(l->ups);
  g_free(l);
}

/* "4xHDR" at the end of a line, data rate of one direction; 0: none that is known. */
static double speed_of(const char *line) {
  static const struct {
    const char *word;
    double Gbps; /* of a lane */
  } lanes[] = {{"SDR", 2},  {"DDR", 4},  {"QDR", 8},   {"FDR10", 10}, {"FDR", 13.64},
               {"EDR", 25}, {"HDR", 50}, {"NDR", 100}, {"XDR", 200}};
  const char *word = strrchr(line, ' ');
  char *end;
  double width = word ? g_ascii_strtod(word + 1, &end) : 0;
  for (guint i = 0; width > 0 && *end == 'x' && i < G_N_ELEMENTS(lanes); i++)
    if (g_str_equal(end + 1, lanes[i].word)) return width * lanes[i].Gbps * 1e9 / 8;
  return 0;
}

/* What stands between the first two quotes behind `from`. (transfer full) */
static char *quoted(const char *from) {
  const char *a = from ? strchr(from, '"') : NULL, *b = a ? strchr(a + 1, '"') : NULL;
  return b ? g_strndup(a + 1, (gsize)(b - a - 1)) : NULL;
}

static void add_node(Leaf *l, const char *description) {
  g_autofree char *name = g_strndup(description, strcspn(description, " "));
  for (guint i = 0; i < l->nodes->len; i++)
    if (g_str_equal(l->nodes->pdata[i], name)) return;
  g_ptr_array_add(l->nodes, g_steal_pointer(&name));
}

/* [21] "S-..."[5] # "spine01" lid 1 4xHDR */
static gboolean read_port(Fabric *f, int line, const char *text, GError **error) {
  g_autofree char *peer = quoted(text), *description = quoted(strchr(text, '#'));
  if (!f->at) return TRUE;
  if (!peer || !description || (peer[0] != 'H' && peer[0] != 'S'))
    return fail(&f->tree, line, error, "a port must be joined to \"H-...\" or \"S-...\" and say what that is behind #");
  if (peer[0] == 'H') {
    add_node(f->at, description), g_hash_table_add(f->at->hcas, g_steal_pointer(&peer));
    return TRUE;
  }
  double Bps = speed_of(text);
  f->at->uplinks++;
  if (Bps > 0) f->at->Bps = f->at->Bps > 0 ? MIN(f->at->Bps, Bps) : Bps;
  g_hash_table_add(f->at->ups, g_steal_pointer(&peer));
  return TRUE;
}

static gboolean read_ports(Fabric *f, const char *text, GError **error) {
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  for (int i = 0; line[i]; i++) {
    g_strchomp(line[i]);
    if (line[i][0] == '[' && !read_port(f, i + 1, line[i], error)) return FALSE;
    if (g_str_has_prefix(line[i], "Ca") || g_str_has_prefix(line[i], "Rt")) f->at = NULL;
    if (!g_str_has_prefix(line[i], "Switch\t") && !g_str_has_prefix(line[i], "Switch ")) continue;
    char *name = quoted(line[i]);
    if (!name) return fail(&f->tree, i + 1, error, "a switch without a name");
    f->at = g_new0(Leaf, 1);
    f->at->line = i + 1, f->at->nodes = g_ptr_array_new_with_free_func(g_free);
    f->at->hcas = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    f->at->ups = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_ptr_array_add(f->order, f->at), g_hash_table_replace(f->by_name, name, f->at);
  }
  return f->order->len > 0 || fail(&f->tree, 1, error, "no Switch: this is nothing that ibnetdiscover prints");
}

typedef struct {
  int nodes, leaf_nodes, rails, nics, uplinks, spines; /* nodes: with room for the largest leaf */
  double Bps;
} Shape;

/* Leaves of the same nodes are rails of one another; nodes are numbered by the first of them. */
static gboolean find_shape(Fabric *f, Shape *s, GPtrArray *notes, GError **error) {
  int hcas = 0, blocks = 0;
  for (guint i = 0; i < f->order->len; i++) {
    const Leaf *l = f->order->pdata[i];
    if (l->nodes->len == 0) continue;
    s->leaf_nodes = MAX(s->leaf_nodes, (int)l->nodes->len);
    if (s->uplinks > 0 && l->uplinks != s->uplinks)
      g_ptr_array_add(notes, g_strdup_printf("%s:%d: a leaf of %d links up beside one of %d: the fewer are taken",
                                             f->tree.file, l->line, l->uplinks, s->uplinks));
    s->uplinks = s->uplinks > 0 ? MIN(s->uplinks, l->uplinks) : l->uplinks;
    s->spines = MAX(s->spines, (int)g_hash_table_size(l->ups));
    if (l->Bps > 0) s->Bps = s->Bps > 0 ? MIN(s->Bps, l->Bps) : l->Bps;
    hcas += (int)g_hash_table_size(l->hcas);
    GHashTableIter iter;
    gpointer up;
    g_hash_table_iter_init(&iter, l->ups);
    while (g_hash_table_iter_next(&iter, &up, NULL)) {
      const Leaf *spine = g_hash_table_lookup(f->by_name, up);
      if (spine && spine->nodes->len > 0)
        return fail(&f->tree, l->line, error, "two switches with nodes are joined: a fabric has leaves and spines");
    }
  }
  if (s->leaf_nodes == 0) return fail(&f->tree, 1, error, "no switch has a node");
  for (guint i = 0; i < f->order->len; i++) {
    const Leaf *l = f->order->pdata[i];
    gboolean known = l->nodes->len > 0 && g_hash_table_contains(f->tree.node, l->nodes->pdata[0]);
    for (guint k = 0; !known && k < l->nodes->len; k++)
      g_hash_table_insert(f->tree.node, l->nodes->pdata[k], GINT_TO_POINTER(blocks * s->leaf_nodes + (int)k + 1));
    blocks += !known && l->nodes->len > 0, s->rails += known;
  }
  s->rails = s->rails / blocks + 1, s->nics = hcas / MAX((int)g_hash_table_size(f->tree.node), 1);
  s->nodes = blocks * s->leaf_nodes;
  if (blocks * s->rails > 1 && s->uplinks == 0) return fail(&f->tree, 1, error, "a leaf is joined to no other switch");
  return TRUE;
}

static char *write_shape(const Shape *s, const char *base, const GArray *place) {
  MsJsonOut *out = begin(base);
  ms_json_out_object(out, "fabric");
  ms_json_out_string(out, "kind", s->rails > 1 ? "rail-optimized" : "fat-tree");
  ms_json_out_int(out, "nodes", s->nodes);
  ms_json_out_int(out, "nics_per_node", MAX(s->nics, 1));
  if (s->rails > 1) ms_json_out_int(out, "rails", s->rails);
  ms_json_out_int(out, "leaf_nodes", s->leaf_nodes);
  if (s->uplinks > 0) ms_json_out_int(out, "leaf_uplinks", s->uplinks);
  if (s->spines > 0 && s->uplinks % s->spines == 0) ms_json_out_int(out, "spines", s->spines);
  if (s->Bps > 0) ms_json_out_double(out, "link_Bps", s->Bps);
  if (place->len > 0) ms_json_out_array(out, "placement");
  for (guint i = 0; i < place->len; i++) ms_json_out_int(out, NULL, g_array_index(place, int, i));
  if (place->len > 0) ms_json_out_end(out);
  return end(out);
}

static char *from_ib(const char *text, const char *file, const char *base, const char *nodes, GPtrArray *notes,
                     GError **error) {
  Fabric f = {.tree = {.file = file}, .order = g_ptr_array_new_with_free_func(leaf_free)};
  Shape s = {0};
  f.tree.node = g_hash_table_new(g_str_hash, g_str_equal);
  f.by_name = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  gboolean ok = read_ports(&f, text, error) && find_shape(&f, &s, notes, error);
  g_autoptr(GArray) place = ok ? placement_of(&f.tree, nodes, error) : NULL;
  char *json = place ? write_shape(&s, base, place) : NULL;
  g_hash_table_unref(f.tree.node), g_hash_table_unref(f.by_name), g_ptr_array_unref(f.order);
  return json;
}

/* --- NCCL's description of a node ----------------------------------------------------------------------------------
 */

typedef struct {
  int gpus, nics;
  double slowest_Mbps;
} Node;

static void element(GMarkupParseContext *context, const char *name, const char **key, const char **value, gpointer data,
                    GError **error) {
  Node *n = data;
  (void)context, (void)error;
  if (g_str_equal(name, "gpu")) n->gpus++;
  if (!g_str_equal(name, "net")) return;
  n->nics++;
  for (int i = 0; key[i]; i++) {
    double speed = g_str_equal(key[i], "speed") ? g_ascii_strtod(value[i], NULL) : 0;
    if (speed > 0) n->slowest_Mbps = n->slowest_Mbps > 0 ? MIN(n->slowest_Mbps, speed) : speed;
  }
}

static gboolean read_node(const char *text, const char *file, Node *n, GError **error) {
  static const GMarkupParser parser = {.start_element = element};
  GError *bad = NULL;
  GMarkupParseContext *context = g_markup_parse_context_new(&parser, G_MARKUP_DEFAULT_FLAGS, n, NULL);
  if (!g_markup_parse_context_parse(context, text, -1, &bad) || !g_markup_parse_context_end_parse(context, &bad)) {
    int line;
    g_markup_parse_context_get_position(context, &line, NULL);
    ms_input_error(error, file, line, "", "%s", bad->message);
  }
  g_markup_parse_context_free(context);
  if (bad) {
    g_error_free(bad);
    return FALSE;
  }
  if (n->gpus == 0) return ms_input_error(error, file, 1, "", "no <gpu>: this is no file of NCCL_TOPO_DUMP_FILE");
  if (n->nics == 0) return ms_input_error(error, file, 1, "", "no <net>: the node has no NIC that NCCL knows");
  return (n->nics % n->gpus == 0 || n->gpus % n->nics == 0) ||
         ms_input_error(error, file, 1, "", "%d NICs for %d GPUs, must be a multiple or a divisor", n->nics, n->gpus);
}

static char *from_nccl(const char *text, const char *file, const char *base, GPtrArray *notes, GError **error) {
  Node n = {0};
  if (!read_node(text, file, &n, error)) return NULL;
  MsJsonOut *out = begin(base);
  ms_json_out_int(out, "gpus_per_node", n.gpus);
  if (n.slowest_Mbps > 0) ms_json_out_double(out, "nic_Bps", n.slowest_Mbps / 8 * 1e6 * n.nics / n.gpus);
  ms_json_out_object(out, "fabric");
  ms_json_out_string(out, "kind", "rail-optimized");
  ms_json_out_int(out, "nics_per_node", n.nics);
  g_ptr_array_add(notes, g_strdup_printf("%s: says nothing of switches: one rail for each NIC and full bisection are "
                                         "taken; set leaf_nodes and oversubscription",
                                         file));
  return end(out);
}

char *ms_topology_machine(MsTopologyForm form, const char *text, const char *file, const char *base, const char *nodes,
                          GPtrArray *notes, GError **error) {
  if (form == MS_TOPOLOGY_NCCL) return from_nccl(text, file, base, notes, error);
  return (form == MS_TOPOLOGY_SLURM ? from_slurm : from_ib)(text, file, base, nodes, notes, error);
}
