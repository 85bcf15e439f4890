/* src/logs/topology.c - reading topology.conf, ibnetdiscover and NCCL's description of a node. */
#include "logs/topology.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

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
    gboolean name = g_ascii_strncasecmp(word[i], "SwitchName=", 11) == 0,
             nodes = g_ascii_strncasecmp(word[i], "Nodes=", 6) == 0,
             below = g_ascii_strncasecmp(word[i], "Switches=", 9) == 0;
    if (!value) ok = fail(t, line, error, "\"%s\" is not KEY=VALUE", word[i]);
    else if ((name && s.name) || (nodes && s.nodes) || (below && s.below))
      ok = fail(t, line, error, "%.*s stands here twice", (int)(value - word[i]), word[i]);
    else if (name) s.name = g_strdup(value + 1);
    else if (nodes) ok = (s.nodes = names_of(t, line, value + 1, error)) != NULL;
    else if (below) ok = (s.below = names_of(t, line, value + 1, error)) != NULL;
    else if (g_ascii_strncasecmp(word[i], "LinkSpeed=", 10) != 0)
      ok = fail(t, line, error, "unknown key \"%.*s\", must be SwitchName, Nodes, Switches or LinkSpeed",
                (int)(value - word[i]), word[i]);
  }
  if (ok && (!s.name || !*s.name)) ok = fail(t, line, error, "SwitchName is missing");
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
  g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
  if (!names) return fail(t, 0, error, "list of nodes: %s", why), NULL;
  for (guint i = 0; i < names->len; i++) {
    int node = GPOINTER_TO_INT(g_hash_table_lookup(t->node, names->pdata[i])) - 1;
    if (node < 0) return fail(t, 0, error, "no switch has the node %s", (char *)names->pdata[i]), NULL;
    if (!g_hash_table_add(seen, GINT_TO_POINTER(node + 1)))
      return fail(t, 0, error, "list of nodes: %s stands in it twice", (char *)names->pdata[i]), NULL;
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

/* --- what ibnetdiscover prints ----------------------------------------------------------------------------------- */

typedef struct {
  int line;
  char *name, *peer; /* of a port: the switch it leads to, as the file names it */
  int to;            /* its index, -1 until it is looked up */
  double Bps;        /* 0: not known */
} Port;

typedef struct {
  char *name;
  int line;         /* 0: only named by others */
  int tier;         /* 0: nodes hang on it, 1: above those, 2: above these; -1: none leads to it */
  int pod;          /* first of those that are joined below the core */
  GPtrArray *nodes; /* names, each once, in the order of ports */
  GHashTable *hcas; /* set */
  GArray *ports;    /* Port, to switches */
} IbSwitch;

typedef struct {
  Tree tree;           /* for its messages and numbers of nodes */
  GHashTable *by_name; /* name of a switch -> index + 1 */
  GPtrArray *order;    /* IbSwitch, in the order of the file */
  IbSwitch *at;        /* whose block is read, NULL: that of an HCA */
} Fabric;

static void port_clear(gpointer data) { g_free(((Port *)data)->peer); }

static void ib_switch_free(gpointer data) {
  IbSwitch *s = data;
  g_ptr_array_unref(s->nodes), g_hash_table_unref(s->hcas), g_array_unref(s->ports);
  g_free(s->name), g_free(s);
}

static IbSwitch *ib_switch(const Fabric *f, int i) { return f->order->pdata[i]; }

/* That of the name, made when it is new. */
static int ib_switch_of(Fabric *f, const char *name) {
  int known = GPOINTER_TO_INT(g_hash_table_lookup(f->by_name, name));
  if (known > 0) return known - 1;
  IbSwitch *s = g_new0(IbSwitch, 1);
  s->name = g_strdup(name), s->tier = -1, s->pod = (int)f->order->len;
  s->nodes = g_ptr_array_new_with_free_func(g_free), s->ports = g_array_new(FALSE, TRUE, sizeof(Port));
  s->hcas = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  g_array_set_clear_func(s->ports, port_clear);
  g_ptr_array_add(f->order, s);
  g_hash_table_insert(f->by_name, s->name, GINT_TO_POINTER((int)f->order->len));
  return (int)f->order->len - 1;
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

static void add_node(IbSwitch *s, const char *description) {
  g_autofree char *name = g_strndup(description, strcspn(description, " "));
  for (guint i = 0; i < s->nodes->len; i++)
    if (g_str_equal(s->nodes->pdata[i], name)) return;
  g_ptr_array_add(s->nodes, g_steal_pointer(&name));
}

/* [21] "S-..."[5] # "spine01" lid 1 4xHDR */
static gboolean read_port(Fabric *f, int line, const char *text, GError **error) {
  g_autofree char *peer = quoted(text), *description = quoted(strchr(text, '#'));
  if (!f->at) return TRUE;
  if (!peer || !description || (peer[0] != 'H' && peer[0] != 'S'))
    return fail(&f->tree, line, error, "a port must be joined to \"H-...\" or \"S-...\" and say what that is behind #");
  if (strstr(description, "Aggregation Node")) return TRUE; /* of the switch itself, for SHARP: no node hangs on it */
  if (peer[0] == 'H') {
    add_node(f->at, description), g_hash_table_add(f->at->hcas, g_steal_pointer(&peer));
    return TRUE;
  }
  g_array_append_val(f->at->ports, ((Port){line, NULL, g_steal_pointer(&peer), -1, speed_of(text)}));
  return TRUE;
}

static gboolean read_ports(Fabric *f, const char *text, GError **error) {
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  for (int i = 0; line[i]; i++) {
    g_strchomp(line[i]);
    if (line[i][0] == '[' && !read_port(f, i + 1, line[i], error)) return FALSE;
    if (g_str_has_prefix(line[i], "Ca") || g_str_has_prefix(line[i], "Rt")) f->at = NULL;
    if (!g_str_has_prefix(line[i], "Switch\t") && !g_str_has_prefix(line[i], "Switch ")) continue;
    g_autofree char *name = quoted(line[i]);
    if (!name) return fail(&f->tree, i + 1, error, "a switch without a name");
    f->at = ib_switch(f, ib_switch_of(f, name));
    if (f->at->line > 0) return fail(&f->tree, i + 1, error, "switch %s stands here twice", name);
    f->at->line = i + 1;
  }
  return f->order->len > 0 || fail(&f->tree, 1, error, "no Switch: this is nothing that ibnetdiscover prints");
}

/* --- its tiers and pods --- */

static Port *port_of(const IbSwitch *s, guint i) { return &g_array_index(s->ports, Port, i); }

/* Switches that nodes hang on are leaves, what they lead to spines, what only those lead to the core. */
static gboolean find_tiers(Fabric *f, GError **error) {
  int first = -1;
  for (guint i = 0; i < f->order->len; i++) /* grows by those that only ports name */
    for (guint k = 0; k < ib_switch(f, (int)i)->ports->len; k++) {
      int to = ib_switch_of(f, port_of(ib_switch(f, (int)i), k)->peer);
      port_of(ib_switch(f, (int)i), k)->to = to;
    }
  for (guint i = f->order->len; i-- > 0;)
    if (ib_switch(f, (int)i)->nodes->len > 0) ib_switch(f, (int)i)->tier = 0, first = (int)i;
  if (first < 0) return fail(&f->tree, 1, error, "no switch has a node");
  for (int tier = 0; tier < 3; tier++)
    for (guint i = 0; i < f->order->len; i++) {
      const IbSwitch *s = ib_switch(f, (int)i);
      for (guint k = 0; s->tier == tier && k < s->ports->len; k++) {
        IbSwitch *up = ib_switch(f, port_of(s, k)->to);
        if (up->tier < 0) up->tier = tier + 1;
        if (up->tier > 2)
          return fail(&f->tree, port_of(s, k)->line, error, "%s is of a fourth tier, a fabric has three", up->name);
      }
    }
  return TRUE;
}

static int root_of(const Fabric *f, int i) {
  while (ib_switch(f, i)->pod != i) i = ib_switch(f, i)->pod;
  return i;
}

static void join_switches(const Fabric *f, int a, int b) {
  a = root_of(f, a), b = root_of(f, b);
  ib_switch(f, MAX(a, b))->pod = MIN(a, b);
}

/* Those of the same node, and of links whose lower end is of tier `below` at most. */
static void join_below(const Fabric *f, int below) {
  g_autoptr(GHashTable) leaf = g_hash_table_new(g_str_hash, g_str_equal);
  for (int i = 0; i < (int)f->order->len; i++) {
    const IbSwitch *s = ib_switch(f, i);
    for (guint k = 0; k < s->nodes->len; k++) {
      int other = GPOINTER_TO_INT(g_hash_table_lookup(leaf, s->nodes->pdata[k])) - 1;
      if (other >= 0) join_switches(f, i, other);
      else g_hash_table_insert(leaf, s->nodes->pdata[k], GINT_TO_POINTER(i + 1));
    }
    for (guint k = 0; k < s->ports->len; k++)
      if (s->tier >= 0 && MIN(s->tier, ib_switch(f, port_of(s, k)->to)->tier) <= below)
        join_switches(f, i, port_of(s, k)->to);
  }
}

typedef struct {
  int nodes, leaf_nodes, rails, nics, uplinks, spines; /* nodes: with room for the largest leaf and pod */
  int pods, pod_blocks, spine_uplinks;                 /* leaves of a pod that differ in their nodes */
  gboolean groups;                                     /* spines are joined with those of other pods: a dragonfly+ */
  double Bps, core_Bps;                                /* of the slowest link, 0: none that is known */
} Shape;

static double slower(double a, double b) { return a > 0 && b > 0 ? MIN(a, b) : MAX(a, b); }

/* Links of one tier: between spines only in a dragonfly+, and there between its groups. */
static gboolean judge_level_links(const Fabric *f, Shape *s, GError **error) {
  gboolean core = FALSE;
  for (guint i = 0; i < f->order->len; i++) core |= ib_switch(f, (int)i)->tier == 2;
  for (guint i = 0; i < f->order->len; i++) {
    const IbSwitch *from = ib_switch(f, (int)i);
    for (guint k = 0; from->tier >= 0 && k < from->ports->len; k++) {
      const IbSwitch *to = ib_switch(f, port_of(from, k)->to);
      if (to->tier != from->tier) continue;
      if (from->tier == 0)
        return fail(&f->tree, from->line, error, "two switches with nodes are joined: a fabric has leaves and spines");
      if (core || root_of(f, (int)i) == root_of(f, port_of(from, k)->to))
        return fail(&f->tree, port_of(from, k)->line, error, "%s and %s are joined and of one tier", from->name,
                    to->name);
      s->groups = TRUE;
    }
  }
  return TRUE;
}

static int leaf_links(const Fabric *f, const IbSwitch *leaf, int *spines, double *Bps) {
  g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
  int n = 0;
  for (guint k = 0; k < leaf->ports->len; k++)
    if (ib_switch(f, port_of(leaf, k)->to)->tier == 1) {
      n++, *Bps = slower(*Bps, port_of(leaf, k)->Bps);
      g_hash_table_add(seen, GINT_TO_POINTER(port_of(leaf, k)->to + 1));
    }
  *spines = MAX(*spines, (int)g_hash_table_size(seen));
  return n;
}

static gboolean find_leaves(const Fabric *f, Shape *s, GPtrArray *notes, GError **error) {
  int leaves = 0, hcas = 0;
  const IbSwitch *alone = NULL;
  for (guint i = 0; i < f->order->len; i++) {
    const IbSwitch *l = ib_switch(f, (int)i);
    if (l->tier != 0) continue;
    int links = leaf_links(f, l, &s->spines, &s->Bps);
    if (leaves > 0 && links != s->uplinks)
      g_ptr_array_add(notes, g_strdup_printf("%s:%d: a leaf of %d links up beside one of %d: the fewer are taken",
                                             f->tree.file, l->line, links, s->uplinks));
    if (links == 0 && !alone) alone = l;
    s->uplinks = leaves > 0 ? MIN(s->uplinks, links) : links;
    s->leaf_nodes = MAX(s->leaf_nodes, (int)l->nodes->len);
    hcas += (int)g_hash_table_size(l->hcas), leaves++;
  }
  if (leaves > 1 && alone)
    return fail(&f->tree, alone->line, error, "disconnected: switch %s is joined to no other", alone->name);
  g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < f->order->len; i++)
    for (guint k = 0; k < ib_switch(f, (int)i)->nodes->len; k++)
      g_hash_table_add(names, ib_switch(f, (int)i)->nodes->pdata[k]);
  s->nics = hcas / (int)g_hash_table_size(names);
  return TRUE;
}

/* Leaves of the same nodes are rails of one another; nodes are numbered by the first of them, pod by pod. */
static gboolean number_ib_nodes(Fabric *f, Shape *s, GPtrArray *notes, GError **error) {
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  g_autofree int *block = g_new0(int, f->order->len), *pod = g_new(int, f->order->len);
  g_autofree gboolean *is_rail = g_new0(gboolean, f->order->len);
  int rails = 0, blocks = 0;
  for (guint i = 0; i < f->order->len; i++) {
    const IbSwitch *l = ib_switch(f, (int)i);
    int root = root_of(f, (int)i);
    if (l->tier != 0) continue;
    if (block[root] == 0) pod[root] = s->pods++;
    is_rail[i] = g_hash_table_contains(seen, l->nodes->pdata[0]);
    for (guint k = 0; k < l->nodes->len; k++) {
      if (g_hash_table_contains(seen, l->nodes->pdata[k]) != is_rail[i])
        return fail(&f->tree, l->line, error, "switch %s has some nodes of an earlier switch, and others", l->name);
      g_hash_table_add(seen, l->nodes->pdata[k]);
    }
    rails += is_rail[i], blocks += !is_rail[i], block[root] += !is_rail[i];
    s->pod_blocks = MAX(s->pod_blocks, block[root]);
  }
  s->rails = rails / blocks + 1;
  for (guint i = 0; i < f->order->len; i++) block[i] = 0;
  for (guint i = 0; i < f->order->len; i++) {
    const IbSwitch *l = ib_switch(f, (int)i);
    int root = root_of(f, (int)i);
    if (l->tier != 0 || is_rail[i]) continue;
    int first = (pod[root] * s->pod_blocks + block[root]++) * s->leaf_nodes;
    for (guint k = 0; k < l->nodes->len; k++)
      g_hash_table_insert(f->tree.node, l->nodes->pdata[k], GINT_TO_POINTER(first + (int)k + 1));
  }
  for (guint i = 0; i < f->order->len; i++)
    if (block[i] > 0 && block[i] < s->pod_blocks)
      g_ptr_array_add(notes, g_strdup_printf("%s:%d: the pod of %s has %d leaves, taken to have room for %d as the "
                                             "largest",
                                             f->tree.file, ib_switch(f, (int)i)->line, ib_switch(f, (int)i)->name,
                                             block[i], s->pod_blocks));
  s->nodes = s->pods * s->pod_blocks * s->leaf_nodes;
  return TRUE;
}

/* Links of the spines of each pod to the core, or to other groups; the fewest count. */
static void find_core(const Fabric *f, Shape *s, GPtrArray *notes) {
  g_autofree int *links = g_new0(int, f->order->len);
  int fewest = 0;
  for (guint i = 0; i < f->order->len; i++) {
    const IbSwitch *spine = ib_switch(f, (int)i);
    for (guint k = 0; spine->tier == 1 && k < spine->ports->len; k++)
      if (ib_switch(f, port_of(spine, k)->to)->tier == (s->groups ? 1 : 2))
        links[root_of(f, (int)i)]++, s->core_Bps = slower(s->core_Bps, port_of(spine, k)->Bps);
  }
  for (guint i = 0; i < f->order->len; i++)
    if (links[i] > 0) fewest = fewest > 0 ? MIN(fewest, links[i]) : links[i];
  s->spine_uplinks = MAX(1, fewest / MAX(s->spines, 1));
  if (s->core_Bps > 0 && s->Bps > 0 && s->core_Bps != s->Bps)
    g_ptr_array_add(notes, g_strdup_printf("%s: links of leaves have %g B/s, those above spines %g: the slower is "
                                           "taken for both",
                                           f->tree.file, s->Bps, s->core_Bps));
  s->Bps = slower(s->Bps, s->core_Bps);
}

/* Behind this all switches that are joined have one root. */
static gboolean is_connected(const Fabric *f, GError **error) {
  int first = -1;
  join_below(f, 2);
  for (int i = 0; i < (int)f->order->len; i++) {
    const IbSwitch *l = ib_switch(f, i);
    if (l->tier != 0) continue;
    if (first < 0) first = i;
    else if (root_of(f, i) != root_of(f, first))
      return fail(&f->tree, l->line, error, "disconnected: no way from %s to %s", ib_switch(f, first)->name, l->name);
  }
  return TRUE;
}

static gboolean find_shape(Fabric *f, Shape *s, GPtrArray *notes, GError **error) {
  if (!find_tiers(f, error)) return FALSE;
  join_below(f, 0);
  if (!judge_level_links(f, s, error) || !find_leaves(f, s, notes, error) || !number_ib_nodes(f, s, notes, error))
    return FALSE;
  if (s->spines > 0 && s->uplinks % s->spines != 0) s->spines = s->uplinks;
  if (s->pods > 1) find_core(f, s, notes);
  return is_connected(f, error);
}

static char *write_shape(const Shape *s, const char *base, const GArray *place) {
  MsJsonOut *out = begin(base);
  ms_json_out_object(out, "fabric");
  ms_json_out_string(out, "kind", s->groups ? "dragonfly+" : s->rails > 1 ? "rail-optimized" : "fat-tree");
  ms_json_out_int(out, "nodes", s->nodes);
  ms_json_out_int(out, "nics_per_node", MAX(s->nics, 1));
  if (s->rails > 1) ms_json_out_int(out, "rails", s->rails);
  ms_json_out_int(out, "leaf_nodes", s->leaf_nodes);
  if (s->uplinks > 0) ms_json_out_int(out, "leaf_uplinks", s->uplinks);
  if (s->spines > 0) ms_json_out_int(out, "spines", s->spines);
  if (s->pods > 1) ms_json_out_int(out, "pod_nodes", s->pod_blocks * s->leaf_nodes);
  if (s->pods > 1) ms_json_out_int(out, "spine_uplinks", s->spine_uplinks);
  if (s->Bps > 0) ms_json_out_double(out, "link_Bps", s->Bps);
  if (place->len > 0) ms_json_out_array(out, "placement");
  for (guint i = 0; i < place->len; i++) ms_json_out_int(out, NULL, g_array_index(place, int, i));
  if (place->len > 0) ms_json_out_end(out);
  return end(out);
}

static char *from_ib(const char *text, const char *file, const char *base, const char *nodes, GPtrArray *notes,
                     GError **error) {
  Fabric f = {.tree = {.file = file}, .order = g_ptr_array_new_with_free_func(ib_switch_free)};
  Shape s = {0};
  f.tree.node = g_hash_table_new(g_str_hash, g_str_equal);
  f.by_name = g_hash_table_new(g_str_hash, g_str_equal);
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
  (void)context;
  if (g_str_equal(name, "gpu")) n->gpus++;
  if (!g_str_equal(name, "net")) return;
  n->nics++;
  for (int i = 0; key[i]; i++) {
    if (!g_str_equal(key[i], "speed")) continue;
    char *end;
    double speed = g_ascii_strtod(value[i], &end);
    if (*end || !(speed >= 1 && speed <= 1e8)) {
      g_set_error(error, G_MARKUP_ERROR, G_MARKUP_ERROR_INVALID_CONTENT,
                  "<net speed=\"%s\">: must be 1 to 1e8, in Mbit/s", value[i]);
      return;
    }
    n->slowest_Mbps = n->slowest_Mbps > 0 ? MIN(n->slowest_Mbps, speed) : speed;
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
