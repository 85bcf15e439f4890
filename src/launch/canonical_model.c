/* src/launch/canonical_model.c - one way to say each model. */
#include "launch/launch.h"
#include "launch/table.h"

#include <string.h>

/* "[0]*3+[1]*58" for any pattern; NULL when every layer has experts. (transfer full) */
static char *runs_of(const guint8 *layer, int n) {
  if (!memchr(layer, 0, (size_t)n)) return NULL;
  GString *text = g_string_new(NULL);
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && layer[end] == layer[i]; end++) {}
    g_string_append_printf(text, "%s[%d]*%d", i ? "+" : "", layer[i], end - i);
  }
  return g_string_free(text, FALSE);
}

static void without_experts(MsModel *m) {
  m->moe_router_topk = m->moe_ffn_hidden_size = m->moe_shared_expert_intermediate_size = 0;
  m->moe_router_num_groups = m->moe_router_group_topk = m->moe_latent_size = 0;
  m->moe_shared_expert_gate = m->moe_router_enable_expert_bias = FALSE;
  m->moe_router_score_function = MS_SCORE_SOFTMAX;
  m->moe_aux_loss_coeff = 0.001; /* the default of the key */
  m->moe_router_load_balancing_type = MS_BALANCE_AUX;
  m->moe_router_pre_softmax = FALSE;
  m->moe_router_topk_scaling_factor = 0;
  g_clear_pointer(&m->moe_layer_freq, g_free);
}

static void with_experts(MsModel *m) {
  if (m->moe_layer && !m->mixers) {
    g_free(m->moe_layer_freq);
    m->moe_layer_freq = runs_of(m->moe_layer, m->num_layers);
  }
  if (m->moe_router_num_groups == 0) m->moe_router_group_topk = 0;
  gboolean softmax = !ms_model_scores_apart(m);
  if (!softmax) m->moe_router_pre_softmax = FALSE;
  else if (m->moe_router_topk == 1) m->moe_router_pre_softmax = TRUE; /* a softmax over one is no gate */
  if (m->moe_router_topk_scaling_factor == 1) m->moe_router_topk_scaling_factor = 0;
  if (m->moe_shared_expert_intermediate_size == 0) m->moe_shared_expert_gate = FALSE;
}

/* What a pattern of layers does not use, and what it says in any case. */
static void canonical_hybrid(MsModel *m) {
  static const struct {
    int mixer;
    char letter;
  } letters[] = {{MS_MIX_MAMBA, 'M'}, {MS_MIX_DELTA, 'G'}, {MS_MIX_ATTN, '*'}, {MS_MIX_MLP, '-'}, {MS_MIX_MOE, 'E'}};
  gboolean blocks = m->mtp_num_layers > 0;
  if (!blocks) g_clear_pointer(&m->mtp_pattern, g_free);
  if (m->hybrid_layer_pattern && blocks && !m->mtp_pattern) {
    g_autoptr(GString) text = g_string_new(NULL);
    for (guint i = 0; i < G_N_ELEMENTS(letters); i++)
      if (ms_model_mtp_mixers(m) & letters[i].mixer) g_string_append_c(text, letters[i].letter);
    m->mtp_pattern = g_strdup(text->str);
  }
  gboolean mamba = (m->hybrid_layer_pattern && strchr(m->hybrid_layer_pattern, 'M')) ||
                   (m->mtp_pattern && strchr(m->mtp_pattern, 'M'));
  if (!mamba) m->mamba = (MsMamba){.conv_kernel = 4};
  if (m->linear_attention.num_value_heads == 0) m->linear_attention = (MsLinearAttention){.conv_kernel = 4};
  if (m->sparse_attention.indexer_topk == 0)
    m->sparse_attention = (MsSparseAttention){.indexer_topk_freq = 1, .indexer_loss = TRUE};
}

void ms_model_canonical(MsModel *m, int seq_length) {
  if (m->num_experts == 0) without_experts(m);
  else with_experts(m);
  ms_rope_scaling_canonical(m);
  canonical_hybrid(m);
  if (ms_model_has_mla(m)) m->num_query_groups = m->num_attention_heads;
  if (m->add_bias_linear) m->add_qkv_bias = FALSE; /* included */
  if (m->sliding_window.window == 0) m->sliding_window.period = 0;
  m->seq_length_max = ms_model_learns_positions(m) ? MAX(m->seq_length_max, seq_length) : 0;
  if (m->mtp_num_layers == 0) m->mtp_use_repeated_layer = FALSE;
  g_clear_pointer(&m->doc, g_free);
  g_clear_pointer(&m->source, g_free);
}
