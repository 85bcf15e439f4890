/* src/describe/lengths.c - reading and writing training.sequence_lengths. */
#include "describe/lengths.h"

#include "describe/rows.h"

#include <string.h>

#define MOST_TOKENS (1 << 27)
#define MOST_WEIGHT 1e15

static gboolean numbers(const MsJson *doc, JsonNode *node, const char *path, double lo, double hi, double *value,
                        int *n, GError **error) {
  if (!JSON_NODE_HOLDS_ARRAY(node) || json_array_get_length(json_node_get_array(node)) == 0)
    return ms_json_error(doc, path, error, "must be a list of numbers");
  JsonArray *list = json_node_get_array(node);
  if (json_array_get_length(list) > MS_MAX_LENGTHS)
    return ms_json_error(doc, path, error, "has %u entries, at most %d are taken: merge some",
                         json_array_get_length(list), MS_MAX_LENGTHS);
  *n = (int)json_array_get_length(list);
  for (int i = 0; i < *n; i++) {
    JsonNode *one = json_array_get_element(list, (guint)i);
    g_autofree char *at = g_strdup_printf("%s[%d]", path, i);
    value[i] = ms_json_number(one);
    if (!(value[i] >= lo && value[i] <= hi))
      return ms_json_error(doc, at, error, "must be a number in [%g, %g]", lo, hi);
  }
  return TRUE;
}

static gboolean parse_lengths(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsLengths *l = member;
  double value[MS_MAX_LENGTHS];
  if (!numbers(doc, node, path, 1, MOST_TOKENS, value, &l->n, error)) return FALSE;
  for (int i = 0; i < l->n; i++) {
    l->length[i] = (int)value[i];
    if (l->length[i] != value[i]) return ms_json_error(doc, path, error, "has %g, must be whole tokens", value[i]);
    if (i > 0 && l->length[i] <= l->length[i - 1])
      return ms_json_error(doc, path, error, "must ascend: %d stands behind %d", l->length[i], l->length[i - 1]);
  }
  return TRUE;
}

typedef struct {
  int n;
  double weight[MS_MAX_LENGTHS];
} Weights;

static gboolean parse_weights(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  Weights *w = member;
  return numbers(doc, node, path, 1e-15, MOST_WEIGHT, w->weight, &w->n, error);
}

typedef struct {
  MsLengths lengths;
  Weights weights;
  int seed;
} Object;

const MsFieldTable ms_lengths_table = MS_FIELD_TABLE(
    "scenario.training.sequence_lengths", "lengths of the sequences packed into one of seq_length tokens",
    {MS_ROW(Object, lengths, MS_T_CUSTOM, "tokens", NULL, MS_REQUIRED,
            "tokens of a sequence, ascending, at most seq_length"),
     .parse = parse_lengths},
    {MS_ROW(Object, weights, MS_T_CUSTOM, "", NULL, MS_REQUIRED, "sequences of each length, any unit"),
     .parse = parse_weights},
    MS_INT(Object, seed, 0, G_MAXINT, "0", 0, "of the packs drawn"));

gboolean ms_lengths_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  Object o = {0};
  MsLengths *l = member;
  if (JSON_NODE_HOLDS_NULL(node)) return *l = (MsLengths){0}, TRUE;
  if (!JSON_NODE_HOLDS_OBJECT(node))
    return ms_json_error(doc, path, error, "must be null or an object with lengths and weights");
  if (!ms_fields_load(&ms_lengths_table, doc, json_node_get_object(node), path, TRUE, &o, error)) return FALSE;
  if (o.weights.n != o.lengths.n)
    return ms_json_error(doc, path, error, "has %d lengths and %d weights, must have as many", o.lengths.n,
                         o.weights.n);
  *l = o.lengths;
  memcpy(l->weight, o.weights.weight, sizeof l->weight);
  l->seed = (guint32)o.seed;
  return TRUE;
}

void ms_lengths_print(MsJsonOut *out, const char *key, const void *member) {
  const MsLengths *l = member;
  if (l->n == 0) {
    ms_json_out_null(out, key);
    return;
  }
  ms_json_out_object(out, key);
  ms_json_out_array(out, "lengths");
  for (int i = 0; i < l->n; i++) ms_json_out_int(out, NULL, l->length[i]);
  ms_json_out_end(out);
  ms_json_out_array(out, "weights");
  for (int i = 0; i < l->n; i++) ms_json_out_double(out, NULL, l->weight[i]);
  ms_json_out_end(out);
  if (l->seed) ms_json_out_int(out, "seed", l->seed);
  ms_json_out_end(out);
}
