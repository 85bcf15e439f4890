/* src/layout/rules.c - the rules a scenario must obey before anything is computed about it (docs/theory/layouts.md 4).
 *
 * Each is a row of rules.def: a word, the key it speaks about, the number in the table, a sentence; its test is in
 * rules_*.c. A test may rely on the rows above its own (sizes are positive from the first row on). Products are in
 * gint64 and saturate, so that no value a file may hold can overflow.
 *
 * Of the table, these cannot be stated with the keys of a scenario or must not refuse:
 *    6  SP without TP is cleared, not refused (ms_layout_sequence_parallel)
 *    9  the vocabulary is padded to fit (ms_model_padded_vocab)
 *   16  three launcher flags for one thing; here it is vpp or the string
 *   17  offload of expert_fc1 with ncclep: no such dispatcher
 *   18  early memory release, dispatch-backward overlap: no such keys
 *   21  loss kinds that go with a capacity factor: no such key
 *   22  variable sequence length: no such key
 *   27  hierarchical sizes of a2a+p2p: no such key
 *   29  CUDA_DEVICE_MAX_CONNECTIONS and 30 fused cross-entropy: older releases allowed what HEAD refuses
 *   32  method of selective recompute (the key has a default), positions of MTP (YaRN counts as RoPE)
 *   33  expandable segments: no such key */
#include "layout/rules.h"

#include <string.h>

const MsRule ms_rules[] = {
#define RULE_ROW(id, word, path, number, doc, kind, reads) \
  {word, path, number, doc, ms_rule_##id, MS_RULE_##kind, reads},
#include "layout/rules.def"
#undef RULE_ROW
};
const int ms_num_rules = G_N_ELEMENTS(ms_rules);

/* `whole` is `part`, or the object that it is a member of. */
static gboolean holds_key(const char *whole, size_t size, const char *part) {
  return !strncmp(whole, part, size) && (part[size] == '\0' || part[size] == '.');
}

gboolean ms_rule_reads(const MsRule *rule, const char *path) {
  for (const char *at = rule->reads; *at;) {
    size_t size = strcspn(at, " "), asked = strlen(path);
    g_autofree char *key = g_strndup(at, size);
    if (holds_key(key, size, path) || holds_key(path, asked, key)) return TRUE;
    at += size + strspn(at + size, " ");
  }
  return FALSE;
}
