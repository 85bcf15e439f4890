/* src/launch/hf_layers.c - lists over the layers, and the traits that a family's layers have without a key. */
#include <math.h>
#include <string.h>

#include "launch/hf_keys_priv.h"

/* --- lists --- */
void ms_hf_list_add(GString *list, gint64 value) {
  g_string_append_printf(list, "%c%" G_GINT64_FORMAT, list->len > 0 ? ',' : '[', value);
}
char *ms_hf_list_text(const GString *list) { return g_strconcat(list->str, "]", NULL); }

void ms_hf_set_moe_layers(MsModel *m, const GString *list) {
  if (strchr(list->str, '0')) m->moe_layer_freq = ms_hf_list_text(list);
}

gboolean ms_hf_is_integer(JsonNode *node, gint64 *value) {
  if (!ms_json_is(node, G_TYPE_INT64)) return FALSE;
  *value = json_node_get_int(node);
  return TRUE;
}

void ms_hf_flatten(MsHf *c, const char *key) {
  JsonArray *list = ms_json_array(json_object_get_member(c->json, key));
  gint64 first, other;
  guint n = list ? json_array_get_length(list) : 0;
  if (n == 0 || !ms_hf_is_integer(json_array_get_element(list, 0), &first)) return;
  for (guint i = 1; i < n; i++)
    if (!ms_hf_is_integer(json_array_get_element(list, i), &other) || other != first) return;
  json_object_set_int_member(c->json, key, first);
}

/* --- windows --- */
/* 1 for layers that see all. NULL and no error when the file has no such list. (transfer full) */
static guint8 *full_layers(MsHf *c, gboolean *ok) {
  g_auto(GStrv) types = NULL;
  const MsModel *m = c->model;
  *ok = ms_hf_take_words(c, "layer_types", &types);
  if (!types) return NULL;
  if ((int)g_strv_length(types) < m->num_layers) {
    *ok = ms_hf_bad(c, "layer_types", "has %u layers, must have %d", g_strv_length(types), m->num_layers);
    return NULL;
  }
  g_autofree guint8 *full = g_new0(guint8, m->num_layers);
  for (int i = 0; i < m->num_layers; i++) {
    full[i] = strcmp(types[i], "full_attention") == 0 || strcmp(types[i], "attention") == 0;
    gboolean windowed = strcmp(types[i], "sliding_attention") == 0 || strcmp(types[i], "chunked_attention") == 0;
    if (full[i] || windowed) continue;
    *ok = ms_hf_bad(c, "layer_types", "is \"%.40s\" at layer %d, must be full_attention or sliding_attention", types[i],
                    i);
    return NULL;
  }
  return g_steal_pointer(&full);
}

/* Every how many layers one sees all, as MsSlidingWindow has it: the last of each period. Lists that are not so get the
 * period that comes nearest in number. */
static int period_of(MsHf *c, const guint8 *full) {
  int layers = c->model->num_layers, count = 0, first = -1;
  for (int i = 0; i < layers; i++) {
    count += full[i];
    if (full[i] && first < 0) first = i;
  }
  if (count == 0) return 0;
  int period = first + 1;
  gboolean exact = TRUE;
  for (int i = 0; i < layers; i++) exact &= full[i] == ((i + 1) % period == 0);
  if (exact) return period;
  period = MAX(1, (int)lround((double)layers / count));
  ms_hf_remark(c,
               "layer_types: %d of %d layers see all, in an order that a model cannot say; every %d-th is taken, %d in "
               "all",
               count, layers, period, layers / period);
  return period;
}

gboolean ms_hf_read_windows(MsHf *c, int period) {
  MsSlidingWindow *w = &c->model->sliding_window;
  int window, chunk;
  gboolean ok,
      unused = json_object_has_member(c->json, "use_sliding_window") && !ms_hf_is_true(c, "use_sliding_window");
  if (!ms_hf_take_int(c, "sliding_window", 0, 1 << 30, &window) ||
      !ms_hf_take_int(c, "attention_chunk_size", 0, 1 << 30, &chunk) ||
      !ms_hf_take_int(c, "sliding_window_pattern", period, MS_HF_MOST_LAYERS, &period))
    return FALSE;
  g_autofree guint8 *full = full_layers(c, &ok);
  if (!ok) return FALSE;
  w->window = unused ? 0 : window > 0 ? window : chunk;
  w->chunked = w->window > 0 && window == 0;
  if (w->window > 0) w->period = full ? period_of(c, full) : period;
  if (w->window == 0 || w->period == 1) *w = (MsSlidingWindow){0};
  return TRUE;
}

/* --- traits --- */
static gboolean has_gelu(MsHf *c) {
  static const char *const keys[] = {"hidden_act", "hidden_activation", "activation_function", "activation"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++) {
    const char *act = ms_hf_take_string(c, keys[i]);
    if (act && !g_str_has_prefix(act, "gelu")) return ms_hf_bad(c, keys[i], "is \"%.40s\", this family has gelu", act);
  }
  return TRUE;
}

static gboolean read_act(MsHf *c) {
  MsModel *m = c->model;
  guint32 acts = c->traits & MS_HF_ACTS;
  if (!acts) return TRUE;
  if (acts == MS_HF_SQUARED_RELU) {
    const char *act = ms_hf_take_string(c, "hidden_act");
    m->activation = MS_ACT_SQUARED_RELU;
    m->gated = FALSE;
    return !act || strcmp(act, "relu2") == 0 || ms_hf_bad(c, "hidden_act", "is \"%.40s\", this family has relu2", act);
  }
  m->activation = MS_ACT_GELU;
  m->gated = acts == MS_HF_GATED_GELU;
  return has_gelu(c);
}

gboolean ms_hf_read_traits(MsHf *c) {
  MsModel *m = c->model;
  guint32 t = c->traits;
  gboolean biases_said = json_object_has_member(c->json, "attention_bias") ||
                         json_object_has_member(c->json, "use_qkv_bias") ||
                         json_object_has_member(c->json, "add_qkv_bias");
  if (t & MS_HF_QKV_BIAS && !biases_said) m->add_qkv_bias = TRUE;
  if (t & (MS_HF_QK_NORM | MS_HF_WIDE_QK_NORM)) m->qk_layernorm = TRUE;
  if (t & MS_HF_WIDE_QK_NORM)
    ms_hf_remark(c, "norms of whole queries and keys are counted as norms of one head: a few thousand parameters a "
                    "layer are missing");
  if (t & MS_HF_BIASED) m->add_bias_linear = TRUE;
  if (t & MS_HF_LAYER_NORM) m->normalization = MS_NORM_LAYER;
  if (t & MS_HF_TIED && !json_object_has_member(c->json, "tie_word_embeddings")) m->tie_embeddings = TRUE;
  if (t & MS_HF_GAIN_FROM_1) m->layernorm_zero_centered_gamma = TRUE;
  if (t & MS_HF_POST_NORMS) m->post_norm = TRUE;
  if (t & MS_HF_PARALLEL)
    ms_hf_remark(c, "attention and MLP run beside each other from one norm: here one after the other, with two");
  if (t & MS_HF_ALIBI) m->position_embedding = MS_POS_NONE;
  if (t & MS_HF_LEARNED) {
    m->position_embedding = MS_POS_LEARNED;
    if (!ms_hf_take_int(c, "n_positions", 0, 1 << 30, &m->seq_length_max)) return FALSE;
    if (m->seq_length_max == 0 && !ms_hf_take_int(c, "max_position_embeddings", 2048, 1 << 30, &m->seq_length_max))
      return FALSE;
  }
  return read_act(c) && (!(t & MS_HF_WINDOWED) || ms_hf_read_windows(c, 0));
}
