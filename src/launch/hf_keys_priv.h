/* src/launch/hf_keys_priv.h - private to hf*.c: one config.json while it is read. */
#ifndef MS_LAUNCH_HF_KEYS_PRIV_H
#define MS_LAUNCH_HF_KEYS_PRIV_H

#include "launch/launch.h"

typedef struct {
  const MsJson *doc;
  JsonObject *json;
  MsModel *model;
  const char *within; /* "text_config." where the language model is a part of the file, else "" */
  GHashTable *used;   /* keys that say something */
  GPtrArray *remarks; /* char *: what the file says and a model cannot */
  guint32 traits;     /* MS_HF_* of its family */
  GError **error;
} MsHf;

enum { MS_HF_MOST_LAYERS = 10000 }; /* entries of a list over the layers */

typedef struct { /* a model_type */
  const char *type;
  gboolean (*read)(MsHf *config); /* what the family has by itself, after the keys that all share; NULL: refused */
  guint32 traits;                 /* MS_HF_*: what its layers have without a key that says so */
  const char *absent;             /* JSON object: what its class takes for keys that a text_config lacks; or NULL */
  const char *refused;            /* why it cannot be read, or NULL */
} MsHfFamily;

/* What a layer of a family has beside, or instead of, RMSNorm, rotary positions and a gated MLP with SiLU. */
enum {
  MS_HF_QKV_BIAS = 1 << 0,
  MS_HF_QK_NORM = 1 << 1,      /* a gain for every channel of a head */
  MS_HF_WIDE_QK_NORM = 1 << 2, /* one over all heads, counted as QK_NORM: a remark */
  MS_HF_BIASED = 1 << 3,       /* biases of all projections */
  MS_HF_LAYER_NORM = 1 << 4,
  MS_HF_PLAIN_GELU = 1 << 5, /* two matrices */
  MS_HF_GATED_GELU = 1 << 6,
  MS_HF_SQUARED_RELU = 1 << 7, /* two matrices */
  MS_HF_TIED = 1 << 8,         /* embedding and output share their weights unless the file says otherwise */
  MS_HF_GAIN_FROM_1 = 1 << 9,
  MS_HF_WINDOWED = 1 << 10,   /* sliding_window, in the layers that layer_types names, else in all */
  MS_HF_POST_NORMS = 1 << 11, /* two more norms a layer, behind attention and MLP */
  MS_HF_PARALLEL = 1 << 12,   /* attention and MLP beside each other: a remark */
  MS_HF_ALIBI = 1 << 13,
  MS_HF_LEARNED = 1 << 14, /* a table of positions */
  MS_HF_FILLED = 1 << 15,  /* `absent` counts for whole files, too */
  MS_HF_ACTS = MS_HF_PLAIN_GELU | MS_HF_GATED_GELU | MS_HF_SQUARED_RELU
};

/* Adds a sentence to the remarks. */
void ms_hf_remark(MsHf *config, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* Applies the traits of the family to the model. */
gboolean ms_hf_read_traits(MsHf *config);

/* --- hf_layers.c: lists over the layers --- */
gboolean ms_hf_is_integer(JsonNode *node, gint64 *value);
void ms_hf_list_add(GString *list, gint64 value);
char *ms_hf_list_text(const GString *list); /* "[a,b,c]", as a model file writes it */
/* 1 for layers with experts; nothing is said when all have them. */
void ms_hf_set_moe_layers(MsModel *model, const GString *list);
/* Which layers see a window: layer_types of sliding_attention (chunked_attention) and full_attention, else every
 * `period`-th sees all. */
gboolean ms_hf_read_windows(MsHf *config, int period);
/* A list of one integer again and again becomes that integer. */
void ms_hf_flatten(MsHf *config, const char *key);

/* --- hf_families.c: shared with the others --- */
gboolean ms_hf_has_silu(MsHf *config);
gboolean ms_hf_read_score(MsHf *config, const char *absent);
gboolean ms_hf_read_experts(MsHf *config, int absent);
gboolean ms_hf_read_norm_topk(MsHf *config, gboolean absent);
gboolean ms_hf_read_latent(MsHf *config);

/* --- hf_research.c: the projections of flash-linear-attention's transformer --- */
gboolean ms_hf_read_fla_transformer(MsHf *config);

/* --- hf_uneven.c --- */
/* attention_other_setting: the layers with a window have other heads than the rest, which all then have. */
gboolean ms_hf_read_other_heads(MsHf *config);

/* --- hf_experts.c, hf_dense.c, hf_research.c, hf_uneven.c: families, ended by a NULL type --- */
extern const MsHfFamily ms_hf_families[], ms_hf_dense_families[], ms_hf_expert_families[], ms_hf_research_families[],
    ms_hf_uneven_families[];

/* The key with what it lies within. (static text) */
const char *ms_hf_path(const MsHf *config, const char *key);
/* Sets the error at a key. Always FALSE. */
gboolean ms_hf_bad(const MsHf *config, const char *key, const char *format, ...) G_GNUC_PRINTF(3, 4);

/* The value of a key; NULL when it is missing or null. These mark the key as used. */
JsonNode *ms_hf_take(MsHf *config, const char *key);
gboolean ms_hf_take_int(MsHf *config, const char *key, int absent, int hi,
                        int *value); /* FALSE and the error when it is not an integer in [0, hi] */
const char *ms_hf_take_string(MsHf *config, const char *key); /* NULL when it is none */
gboolean ms_hf_is_true(MsHf *config, const char *key);
/* A list of words (transfer full), NULL when the key is missing. FALSE and the error when it is something else. */
gboolean ms_hf_take_words(MsHf *config, const char *key, char ***words);

#endif
