/* src/describe/model.h - a transformer as its training framework describes it. const after load.
 *
 * Symbols of docs/theory/operators.md beside each member. A model file is models/NAME.json, one object with these keys.
 */
#ifndef MS_DESCRIBE_MODEL_H
#define MS_DESCRIBE_MODEL_H

#include "describe/enums.h"
#include "describe/field.h"

typedef struct { /* multi-latent attention; q_lora_rank 0 = plain q projection; kv_lora_rank 0 = the model has no MLA */
  int q_lora_rank;         /* ql */
  int kv_lora_rank;        /* kl */
  int qk_head_dim;         /* dn, without RoPE */
  int qk_pos_emb_head_dim; /* dr */
  int v_head_dim;          /* dv */
} MsMla;

typedef struct { /* every `period`-th layer (1-based) is full attention, the others see `window` tokens; window 0 = none
                  */
  int window;    /* span in tokens, the token itself included */
  int period;    /* 0: every layer is windowed */
  gboolean chunked; /* the sequence is cut into spans of `window` tokens, and a token sees those of its own span up to
                       itself (Llama 4), in place of the latest ones */
} MsSlidingWindow;

typedef struct { /* Mamba-2 mixer; num_heads 0 = the model has none */
  int num_heads, head_dim, state_dim, num_groups, conv_kernel;
} MsMamba;

typedef struct { /* gated delta net: linear attention with a short convolution and a gated output; num_value_heads 0 =
                    the model has none */
  int num_key_heads, num_value_heads; /* queries have the heads of the keys; value heads are a multiple of them */
  int key_head_dim, value_head_dim, conv_kernel;
  int frequency; /* every frequency-th layer (1-based) is softmax attention, the others are this; 0 =
                    hybrid_layer_pattern says (letter G) */
} MsLinearAttention;

typedef struct { /* lightning indexer, and attention to the keys it chooses; indexer_topk 0 = the model has none */
  int indexer_num_heads, indexer_head_dim;
  int indexer_topk;      /* keys that a query attends to */
  int indexer_topk_freq; /* from layer indexer_skip_topk_offset on, one layer in this many chooses; the others have no
                            indexer and use its choice */
  int indexer_skip_topk_offset; /* 1-based; 0 counts as 1 */
  gboolean indexer_loss;        /* the indexer learns to imitate the attention (a loss of its own) */
} MsSparseAttention;

typedef struct { /* DeepSeek-V4's attention: one key-value head, keys grouped and compressed, a window beside them;
                    head_dim 0 = the model has none */
  int q_lora_rank, head_dim, qk_pos_emb_head_dim; /* head_dim includes the part with RoPE; keys are the values */
  int o_groups, o_lora_rank;                      /* grouped low-rank output projection */
  int window;                                     /* latest tokens, seen uncompressed */
  char *compress_ratios; /* tokens in one compressed key, a list over the layers and then the MTP blocks: 0 window only,
                            4 with an indexer, else all keys */
} MsCompressedAttention;

typedef struct { /* manifold-constrained hyper-connections; num_residual_streams 1 = the plain residual stream */
  int num_residual_streams, sinkhorn_iterations;
} MsHyperConnections;

typedef struct { /* an opaque stage before the decoder (vision or audio encoder), on the ranks of the embedding; all
                    zero = none. Per sequence of the batch */
  double parameters;
  double forward_flop, forward_B; /* executed; HBM bytes moved */
  double kept_B;                  /* activations kept for its backward */
  gboolean frozen;                /* no backward, no gradients, no optimizer states */
} MsFrontEnd;

typedef struct { /* rotary frequencies stretched for longer sequences than the model was first trained on; no prediction
                    depends on it. Members that `type` does not use are ignored */
  MsRopeKind type;
  double factor;
  int original_max_position_embeddings;
  double low_freq_factor, high_freq_factor;            /* llama3 */
  double beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn */
  gboolean truncate;                                   /* yarn: its range is rounded to whole dimensions */
} MsRopeScaling;

/* What a layer is made of, in this order; a standard layer is attention and an MLP or experts */
enum {
  MS_MIX_MAMBA = 1,
  MS_MIX_ATTN = 2,
  MS_MIX_MLP = 4,
  MS_MIX_MOE = 8,
  MS_MIX_DELTA = 16 /* gated delta net, runs where attention would */
};

typedef struct MsModel {
  char *name;
  char *doc;               /* free text */
  char *source;            /* where the dimensions come from */
  int num_layers;          /* L */
  int hidden_size;         /* h */
  int ffn_hidden_size;     /* f, dense layers */
  int num_attention_heads; /* n */
  int num_query_groups;    /* g; equal to n for MHA */
  int kv_channels;         /* dh; 0 = hidden_size / num_attention_heads, resolved at load */
  gboolean of_a_study;     /* listed behind the models that people use */
  int query_latent_size;   /* ql; grouped attention whose queries come from a normed latent that all heads share
                              (Step-3's multi-matrix factorisation); 0 = projected at once */
  gboolean qk_layernorm;   /* per-head norm of q and k (GQA) or latent norms (MLA; always present there) */
  gboolean attention_output_gate;
  gboolean
      post_norm; /* norms behind attention and MLP, in front of what adds them to the residual stream (Gemma 2, 3) */
  MsMla multi_latent_attention;
  MsSlidingWindow sliding_window;
  gboolean softmax_sink; /* learnable softmax offset per head (GPT-OSS) */
  int vocab_size;
  int make_vocab_size_divisible_by;
  int seq_length_max;                      /* positions of a learned table; 0 when there is none */
  int num_experts;                         /* E; 0 = dense model */
  int moe_router_topk;                     /* k */
  int moe_ffn_hidden_size;                 /* fm */
  int moe_shared_expert_intermediate_size; /* fs, total width */
  gboolean moe_shared_expert_gate;
  int moe_router_num_groups; /* G, 0 = none */
  int moe_router_group_topk; /* kg */
  MsRouterScore moe_router_score_function;
  gboolean moe_router_pre_softmax;       /* softmax over all experts, before the choice */
  double moe_router_topk_scaling_factor; /* of the weights of the chosen experts; 0 = none */
  gboolean moe_router_enable_expert_bias;
  MsBalance moe_router_load_balancing_type;
  double moe_aux_loss_coeff; /* of the loss that balances the experts; 0 = none */
  char *moe_layer_freq;      /* as written, e.g. "[0]*3+[1]*58"; NULL = every layer is MoE when num_experts > 0 */
  guint8 *moe_layer;         /* derived: [num_layers], 1 where the layer is MoE */
  int moe_latent_size;       /* z: routed experts work at this width between two projections; 0 = at h */
  MsMamba mamba;
  MsLinearAttention linear_attention;
  MsSparseAttention sparse_attention;
  MsCompressedAttention compressed_attention;
  guint8 *compress_ratio; /* derived: [num_compress_ratios], the layers and then the MTP blocks */
  int num_compress_ratios;
  MsHyperConnections hyper_connections;
  MsFrontEnd front_end;
  char *hybrid_layer_pattern; /* one letter a layer: M Mamba, G gated delta net, * attention, E experts, - MLP; NULL =
                                 standard layers */
  char *mtp_pattern;          /* the same for one MTP block; NULL = the last layer's kind */
  gboolean mtp_use_repeated_layer; /* all MTP blocks share one set of weights */
  guint8 *mixers; /* derived from hybrid_layer_pattern: [num_layers] MS_MIX_* bits; NULL = standard layers */
  gboolean gated; /* gated MLP: three matrices */
  MsActivation activation;
  MsNorm normalization;
  double norm_epsilon;
  gboolean layernorm_zero_centered_gamma; /* gains are stored as their distance from 1 */
  MsPosition position_embedding;
  double rotary_base, rotary_percent;
  MsRopeScaling rope_scaling;
  double init_method_std; /* of the weights at the start */
  gboolean tie_embeddings;
  gboolean add_bias_linear;
  gboolean add_qkv_bias;
  int mtp_num_layers;                       /* M */
  double hidden_dropout, attention_dropout; /* probabilities; above 0 a mask byte per element is kept */
} MsModel;

extern const MsFieldTable ms_model_table;

/* A name in models/, a path to a file, or "-"; `relative_to` (may be NULL) is the file that mentions it. NULL and
 * *error on failure. (transfer full). */
MsModel *ms_model_load(const char *name, GError **error);
GPtrArray *ms_model_names(void); /* as ms_data_names, those of studies last */
/* From the value of a scenario's "model" key: a string or an object {"base": NAME, ...overrides}. */
MsModel *ms_model_from_json(const MsJson *doc, JsonNode *node, const char *path, GError **error);
MsModel *ms_model_copy(const MsModel *model);
void ms_model_free(MsModel *model);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsModel, ms_model_free)

/* Derives moe_layer and kv_channels and checks what one row cannot see (heads, groups, MLA, frequency length).
 * `doc`/`path` only for the message; doc may be NULL. */
gboolean ms_model_finish(MsModel *model, const MsJson *doc, const char *path, GError **error);

static inline gboolean ms_model_has_mla(const MsModel *m) { return m->multi_latent_attention.kv_lora_rank > 0; }
/* Latent attention whose queries come straight from the layer's input: Megatron-LM's norm of queries and keys is then
 * in the module of that projection, over the hidden width and behind the norm before the layer. */
static inline gboolean ms_model_norms_query_input(const MsModel *m) {
  return ms_model_has_mla(m) && m->qk_layernorm && m->multi_latent_attention.q_lora_rank == 0 &&
         m->sparse_attention.indexer_topk == 0;
}
static inline gboolean ms_model_has_compressed_attention(const MsModel *m) {
  return m->compressed_attention.head_dim > 0;
}
static inline int ms_model_streams(const MsModel *m) { return MAX(m->hyper_connections.num_residual_streams, 1); }
/* Tokens in one compressed key of a layer (compressed attention); layers from num_layers on are MTP blocks. */
int ms_model_compress_ratio(const MsModel *model, int layer);
static inline gboolean ms_model_rotates(const MsModel *m) { /* queries and keys, by their position */
  switch (m->position_embedding) {
  case MS_POS_ROPE:
  case MS_POS_YARN: return TRUE;
  case MS_POS_LEARNED:
  case MS_POS_NONE: break;
  }
  return FALSE;
}
static inline gboolean ms_model_learns_positions(const MsModel *m) { /* a table of them is added to the embedding */
  switch (m->position_embedding) {
  case MS_POS_LEARNED: return TRUE;
  case MS_POS_ROPE:
  case MS_POS_YARN:
  case MS_POS_NONE: break;
  }
  return FALSE;
}
static inline gboolean ms_model_scores_apart(const MsModel *m) { /* the router scores each expert by itself */
  switch (m->moe_router_score_function) {
  case MS_SCORE_SOFTMAX: return FALSE;
  case MS_SCORE_SIGMOID:
  case MS_SCORE_SQRTSOFTPLUS: break;
  }
  return TRUE;
}
/* DeepSeek sparse attention asserts plain rotary embedding (Megatron-LM transformer_config.py). */
static inline gboolean ms_model_may_fuse_rope(const MsModel *m) {
  return ms_model_rotates(m) && m->sparse_attention.indexer_topk == 0;
}
/* TRUE when the layer attends to keys that an indexer chose, and TRUE when it has that indexer itself. MTP blocks as
 * above. */
gboolean ms_model_layer_is_sparse(const MsModel *model, int layer);
gboolean ms_model_layer_has_indexer(const MsModel *model, int layer);
/* Mixers of a layer and of an MTP block. */
guint8 ms_model_mixers(const MsModel *model, int layer);
guint8 ms_model_mtp_mixers(const MsModel *model);
/* TRUE when layer `i` (0-based; an MTP block is as the last layer) attends to a window only. */
gboolean ms_model_layer_is_windowed(const MsModel *model, int layer);
/* Padded vocabulary for a tensor-parallel size: rounded up to make_vocab_size_divisible_by * tp (docs/theory/layouts.md
 * rule 9). */
int ms_model_padded_vocab(const MsModel *model, int tp);

#endif
