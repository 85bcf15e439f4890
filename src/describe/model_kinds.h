/* src/describe/model_kinds.h - private to describe: tables and checks of the layer kinds beside attention, MLP, experts
 * and Mamba. */
#ifndef MS_DESCRIBE_MODEL_KINDS_H
#define MS_DESCRIBE_MODEL_KINDS_H

#include "describe/model.h"

extern const MsFieldTable ms_linear_attention_table, ms_sparse_attention_table, ms_compressed_attention_table,
    ms_rope_scaling_table, ms_hyper_connections_table, ms_front_end_table;

/* What one row of a table cannot see, and compress_ratio. On failure *key (static text) names the key and `why` the
 * reason. */
gboolean ms_model_finish_kinds(MsModel *model, const char **key, char *why, size_t size);

int ms_mixer_of(char letter); /* of a layer pattern: MS_MIX_*, 0 when it is none */

#endif
