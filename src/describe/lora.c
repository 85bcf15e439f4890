/* src/describe/lora.c - low-rank adapters: their table, and which layers of a model they may stand beside. */
#include "describe/lora.h"

#include "describe/rows.h"

#define N_ROWS(...) G_N_ELEMENTS(((const char *const[]){__VA_ARGS__}))
#define MS_LORA_TARGET(id, word, doc, where, part, peft, ...)                                     \
  _Static_assert(sizeof #id > 1 && N_ROWS(__VA_ARGS__) > 0 && N_ROWS(__VA_ARGS__) < MS_LORA_ROWS, \
                 word ": an id, and layers that it stands beside");
#include "describe/lora_target.def"
#undef MS_LORA_TARGET

/* Parentheses: an empty column is an error. */
const MsLoraTarget ms_lora_targets[] = {
#define MS_LORA_TARGET(id, word, doc, where, part, peft, ...) {(word), (doc), (where), (part), (peft), {__VA_ARGS__}},
#include "describe/lora_target.def"
#undef MS_LORA_TARGET
};
const int ms_n_lora_targets = G_N_ELEMENTS(ms_lora_targets);

const MsFieldTable ms_lora_table = MS_FIELD_TABLE(
    "scenario.training.lora", "low-rank adapters, all other weights frozen",
    MS_INT(MsLora, rank, 0, 65536, "0", 0, "rank of the adapters; all other weights are frozen; 0 = no adapters"),
    MS_F64(MsLora, alpha, "", 0, 1e6, "32", 0, "scale times rank, for the launch: predictions take no notice"),
    MS_F64(MsLora, dropout, "", 0, 1, "0", 0, "dropout in front of the adapters"),
    MS_WORDS(MsLora, targets, ms_lora_target_words, "[\"linear_qkv\", \"linear_proj\", \"linear_fc1\", \"linear_fc2\"]",
             0, "linear layers with an adapter"),
    MS_BOOL(MsLora, a2a, "false", 0,
            "with sequence parallelism the outputs of adapters behind row-parallel layers change shards by an "
            "all-to-all in place of a gather (a2a_experimental)"));

gboolean ms_lora_target_exists(const MsLoraTarget *target, const MsModel *m) {
  gboolean mla = ms_model_has_mla(m), low_rank_q = mla && m->multi_latent_attention.q_lora_rank > 0;
  switch (target->where) {
  case MS_LORA_IN_ATTENTION: return TRUE;
  case MS_LORA_IN_GQA: return !mla && m->query_latent_size == 0; /* else no product has all three */
  case MS_LORA_IN_MLA: return mla;
  case MS_LORA_IN_MLA_LOW_RANK_Q: return low_rank_q;
  case MS_LORA_IN_MLA_FULL_Q: return mla && !low_rank_q;
  case MS_LORA_IN_MLP: return TRUE;
  case MS_LORA_IN_GATED_MLP: return m->gated;
  }
  return FALSE;
}

const MsLoraTarget *ms_lora_beside_experts(const MsLora *lora, const MsModel *m) {
  for (int i = 0; m->num_experts > 0 && i < ms_n_lora_targets; i++)
    if (lora->targets >> i & 1 && ms_lora_targets[i].where >= MS_LORA_IN_MLP) return &ms_lora_targets[i];
  return NULL;
}
