/* src/describe/routing.c - reading and writing training.routing and histogram files. */
#include "describe/routing.h"

#include "describe/rows.h"

#include <math.h>
#include <string.h>

static const char *const placement_words[] = {"index", "load", NULL};

gboolean ms_routing_is_drawn(const MsRouting *r) {
  return r->kind == MS_ROUTING_ZIPF || r->kind == MS_ROUTING_DIRICHLET || r->kind == MS_ROUTING_HISTOGRAM;
}

/* --- histogram files ------------------------------------------------------------------------------------------- */
#define MOST_TOKENS 1e15

static gboolean parse_layer(const MsJson *doc, JsonNode *node, int layer, int experts, double *tokens, GError **error) {
  g_autofree char *path = g_strdup_printf("tokens[%d]", layer);
  if (!JSON_NODE_HOLDS_ARRAY(node))
    return ms_json_error(doc, path, error, "must be a list of tokens, one number for every expert");
  JsonArray *list = json_node_get_array(node);
  if ((int)json_array_get_length(list) != experts)
    return ms_json_error(doc, path, error, "has %u experts, the layers before it have %d", json_array_get_length(list),
                         experts);
  double sum = 0;
  for (int j = 0; j < experts; j++) {
    JsonNode *one = json_array_get_element(list, (guint)j);
    double value = ms_json_number(one);
    g_autofree char *at = g_strdup_printf("%s[%d]", path, j);
    if (!(value >= 0 && value <= MOST_TOKENS))
      return ms_json_error(doc, at, error, "must be a number of tokens from 0 to %g", MOST_TOKENS);
    sum += tokens[j] = value;
  }
  return sum > 0 || ms_json_error(doc, path, error, "has no token at all");
}

static gboolean parse_tokens(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsHistogram *h = member;
  JsonArray *layers = JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
  if (!layers || json_array_get_length(layers) == 0)
    return ms_json_error(doc, path, error, "must be a list of layers, each a list of tokens per expert");
  JsonNode *first = json_array_get_element(layers, 0);
  h->layers = (int)json_array_get_length(layers);
  h->experts = JSON_NODE_HOLDS_ARRAY(first) ? (int)json_array_get_length(json_node_get_array(first)) : 0;
  g_free(h->tokens);
  h->tokens = g_new0(double, (gsize)h->layers *(gsize)MAX(h->experts, 1));
  for (int i = 0; i < h->layers; i++)
    if (!parse_layer(doc, json_array_get_element(layers, (guint)i), i, h->experts,
                     h->tokens + (gsize)i * (gsize)h->experts, error))
      return FALSE;
  return TRUE;
}

const MsFieldTable ms_histogram_table =
    MS_FIELD_TABLE("histogram", "tokens per expert and layer, counted in a run: the file that training.routing names",
                   MS_SCHEMA(MS_REQUIRED), MS_IGNORED(doc, "free text, e.g. which run and step they were counted in"),
                   {MS_CUSTOM(tokens, "", MS_REQUIRED,
                              "tokens of each expert: a list for every MoE layer in order, or one list for all layers"),
                    .parse = parse_tokens});

MsHistogram *ms_histogram_parse(const MsJson *doc, const char *name, GError **error) {
  g_autoptr(MsHistogram) h = g_new0(MsHistogram, 1);
  g_atomic_ref_count_init(&h->refs);
  h->name = g_strdup(name);
  JsonNode *root = ms_json_root(doc);
  if (!JSON_NODE_HOLDS_OBJECT(root)) return ms_json_error(doc, "", error, "must be one JSON object"), NULL;
  if (!ms_fields_load(&ms_histogram_table, doc, json_node_get_object(root), "", TRUE, h, error)) return NULL;
  return g_steal_pointer(&h);
}

static MsHistogram *load_histogram(const char *filename, const char *name, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(filename, error);
  return doc ? ms_histogram_parse(doc, name, error) : NULL;
}

MsHistogram *ms_histogram_ref(MsHistogram *h) {
  if (h) g_atomic_ref_count_inc(&h->refs);
  return h;
}

void ms_histogram_unref(MsHistogram *h) {
  if (!h || !g_atomic_ref_count_dec(&h->refs)) return;
  g_free(h->name), g_free(h->tokens), g_free(h);
}

/* --- a word or an object --------------------------------------------------------------------------------------- */
typedef struct {
  double zipf, dirichlet, capacity_factor; /* NaN: not given */
  char *histogram;
  int seed;
  gboolean pad_to_capacity, forced_balance;
  double bias_update_rate;
  int bias_updates, replicas, placement;
} RoutingObject;

const MsFieldTable ms_routing_table = MS_FIELD_TABLE(
    "scenario.training.routing", "skew or token drop",
    MS_F64(RoutingObject, zipf, "", 0, 10, NULL, MS_NULLABLE, "exponent of a Zipf distribution over the experts"),
    MS_F64(RoutingObject, dirichlet, "", 1e-3, 1e6, NULL, MS_NULLABLE,
           "concentration of a Dirichlet distribution over the experts"),
    MS_STRING(RoutingObject, histogram, MS_NULLABLE,
              "file of tokens per expert and layer: {\"schema\": 1, \"tokens\": [[...], ...]}"),
    MS_F64(RoutingObject, capacity_factor, "", 1e-3, 1e4, NULL, MS_NULLABLE,
           "tokens beyond this multiple of the mean are dropped; the router chooses by itself but for forced_balance"),
    MS_INT(RoutingObject, seed, 0, G_MAXINT, "0", 0, "of the draw"),
    MS_BOOL(RoutingObject, pad_to_capacity, "false", 0, "every expert is padded to its capacity"),
    MS_BOOL(RoutingObject, forced_balance, "false", 0, "the router is forced into balance"),
    MS_F64(RoutingObject, bias_update_rate, "", 0, 1, "0", 0,
           "aux-loss-free balancing: an expert's bias moves by this every step; 0 = none"),
    MS_INT(RoutingObject, bias_updates, 1, 100000, "1000", 0, "steps of aux-loss-free balancing so far"),
    MS_INT(RoutingObject, replicas, 0, 65536, "0", 0,
           "further copies of the most loaded experts, over all ranks of an expert group"),
    MS_ENUM(RoutingObject, placement, placement_words, "\"index\"", 0,
            "experts on ranks: in blocks by number, or by load"));

static const char *const routing_words[] = {"balanced", "natural", "round-robin", NULL};
static const MsRoutingKind routing_kinds[] = {MS_ROUTING_BALANCED, MS_ROUTING_NATURAL, MS_ROUTING_ROUND_ROBIN};
#define ROUTING_FORMS "balanced, natural, round-robin or an object"

static gboolean routing_word(const MsJson *doc, const char *word, const char *path, MsRouting *routing,
                             GError **error) {
  for (int i = 0; routing_words[i]; i++)
    if (strcmp(word, routing_words[i]) == 0) {
      *routing = (MsRouting){.kind = routing_kinds[i]};
      return TRUE;
    }
  const char *near = ms_nearest(word, routing_words);
  if (near) return ms_json_error(doc, path, error, "unknown word \"%s\", did you mean \"%s\"?", word, near);
  return ms_json_error(doc, path, error, "unknown word \"%s\", must be " ROUTING_FORMS, word);
}

static MsRouting routing_of(const RoutingObject *o) {
  MsRouting r = {.seed = (guint32)o->seed,
                 .pad_to_capacity = o->pad_to_capacity,
                 .forced_balance = o->forced_balance,
                 .bias_update_rate = o->bias_update_rate,
                 .bias_updates = o->bias_update_rate > 0 ? o->bias_updates : 0,
                 .replicas = o->replicas,
                 .placement = o->placement};
  r.kind = !isnan(o->zipf)        ? MS_ROUTING_ZIPF
           : !isnan(o->dirichlet) ? MS_ROUTING_DIRICHLET
           : o->histogram         ? MS_ROUTING_HISTOGRAM
                                  : MS_ROUTING_CAPACITY;
  if (r.kind == MS_ROUTING_CAPACITY) r.capacity_factor = o->capacity_factor;
  else if (r.kind != MS_ROUTING_HISTOGRAM) r.skew = r.kind == MS_ROUTING_ZIPF ? o->zipf : o->dirichlet;
  return r;
}

static gboolean consistent(const MsJson *doc, const char *path, const RoutingObject *o, const MsRouting *r,
                           GError **error) {
  if (!isnan(o->zipf) + !isnan(o->dirichlet) + !isnan(o->capacity_factor) + (o->histogram != NULL) != 1)
    return ms_json_error(doc, path, error, "must have exactly one of zipf, dirichlet, histogram, capacity_factor");
  if (!ms_routing_is_drawn(r) && (r->bias_update_rate > 0 || r->replicas > 0 || r->placement != MS_PLACEMENT_INDEX))
    return ms_json_error(
        doc, path, error,
        "bias_update_rate, replicas and placement need zipf, dirichlet or histogram: without skew they change nothing");
  if (r->kind != MS_ROUTING_CAPACITY && (r->pad_to_capacity || r->forced_balance))
    return ms_json_error(doc, path, error,
                         "pad_to_capacity and forced_balance need capacity_factor; a router that is "
                         "forced into balance and drops nothing is \"balanced\"");
  if (r->replicas > 0 && r->placement != MS_PLACEMENT_LOAD)
    return ms_json_error(doc, path, error, "replicas need \"placement\": \"load\"");
  return TRUE;
}

static gboolean load_object(const MsJson *doc, JsonObject *json, const char *path, RoutingObject *o, MsRouting *routing,
                            GError **error) {
  if (!ms_fields_load(&ms_routing_table, doc, json, path, TRUE, o, error)) return FALSE;
  MsRouting r = routing_of(o);
  if (!consistent(doc, path, o, &r, error)) return FALSE;
  if (o->histogram) {
    g_autofree char *at = g_strdup_printf("%s.histogram", path);
    g_autofree char *file = ms_find_mentioned("histogram", o->histogram, doc, at, error);
    if (!file || !(r.histogram = load_histogram(file, o->histogram, error))) return FALSE;
  }
  *routing = r;
  return TRUE;
}

gboolean ms_routing_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsRouting *routing = member;
  g_clear_pointer(&routing->histogram, ms_histogram_unref);
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    RoutingObject o;
    ms_fields_defaults(&ms_routing_table, &o);
    gboolean ok = load_object(doc, json_node_get_object(node), path, &o, routing, error);
    ms_fields_clear(&ms_routing_table, &o);
    return ok;
  }
  if (ms_json_is(node, G_TYPE_STRING)) return routing_word(doc, json_node_get_string(node), path, routing, error);
  return ms_json_error(doc, path, error, "must be " ROUTING_FORMS);
}

static void print_object(MsJsonOut *out, const char *key, const MsRouting *r) {
  ms_json_out_object(out, key);
  if (r->kind == MS_ROUTING_ZIPF) ms_json_out_double(out, "zipf", r->skew);
  if (r->kind == MS_ROUTING_DIRICHLET) ms_json_out_double(out, "dirichlet", r->skew);
  if (r->kind == MS_ROUTING_HISTOGRAM) ms_json_out_string(out, "histogram", r->histogram ? r->histogram->name : NULL);
  if (r->kind == MS_ROUTING_CAPACITY) ms_json_out_double(out, "capacity_factor", r->capacity_factor);
  if (r->seed) ms_json_out_int(out, "seed", r->seed);
  if (r->kind == MS_ROUTING_CAPACITY || r->pad_to_capacity)
    ms_json_out_bool(out, "pad_to_capacity", r->pad_to_capacity);
  if (r->forced_balance) ms_json_out_bool(out, "forced_balance", TRUE);
  if (r->bias_update_rate > 0) ms_json_out_double(out, "bias_update_rate", r->bias_update_rate);
  if (r->bias_update_rate > 0) ms_json_out_int(out, "bias_updates", r->bias_updates);
  if (r->replicas) ms_json_out_int(out, "replicas", r->replicas);
  if (r->placement) ms_json_out_string(out, "placement", placement_words[r->placement]);
  ms_json_out_end(out);
}

void ms_routing_print(MsJsonOut *out, const char *key, const void *member) {
  const MsRouting *routing = member;
  for (int i = 0; routing_words[i]; i++)
    if (routing->kind == routing_kinds[i]) {
      ms_json_out_string(out, key, routing_words[i]);
      return;
    }
  print_object(out, key, routing);
}
