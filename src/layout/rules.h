/* src/layout/rules.h - what the files with the tests of the rules share (rules_*.c). Not for other layers. */
#ifndef MS_LAYOUT_RULES_H
#define MS_LAYOUT_RULES_H

#include "layout/internal.h"

/* A test: TRUE, or FALSE with the reason in why[size]. */
#define RULE(id)    gboolean ms_rule_##id(const MsScenario *s, char *why, size_t size)
#define REFUSE(...) ms_refuse(why, size, __VA_ARGS__)

#define RULE_ROW(id, word, path, number, doc, kind, reads) RULE(id);
#include "layout/rules.def"
#undef RULE_ROW

/* Products saturate, so that no value a file may hold can overflow. */
static inline gint64 times(gint64 a, gint64 b) {
  gint64 product;
  return __builtin_mul_overflow(a, b, &product) ? G_MAXINT64 : product;
}

static inline gboolean is_moe(const MsScenario *s) { return s->model->num_experts > 0; }
static inline gint64 dense_ranks(const MsScenario *s) { return times(times(s->layout.tp, s->layout.cp), s->layout.pp); }
static inline gint64 expert_ranks(const MsScenario *s) {
  return times(times(s->layout.etp, s->layout.ep), s->layout.pp);
}
static inline int data_parallel(const MsScenario *s) { return (int)(s->gpus / dense_ranks(s)); }
static inline gint64 microbatches(const MsScenario *s) {
  return s->training.global_batch_size / times(s->training.micro_batch_size, data_parallel(s));
}
static inline gboolean has_ends(const MsScenario *s) {
  return s->layout.decoder_first_pipeline_num_layers > 0 || s->layout.decoder_last_pipeline_num_layers > 0;
}
static inline gboolean has_account(const MsScenario *s) {
  return s->layout.account_for_embedding_in_pipeline_split || s->layout.account_for_loss_in_pipeline_split;
}

#endif
