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
  GError **error;
} MsHf;

enum { MS_HF_MOST_LAYERS = 10000 }; /* entries of a list over the layers */

typedef struct { /* a model_type */
  const char *type;
  gboolean (*read)(MsHf *config); /* what the family has by itself, after the keys that all share */
} MsHfFamily;

/* The family of the file; NULL and the error of the file when it has none that moesim knows. */
const MsHfFamily *ms_hf_family(MsHf *config);

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
