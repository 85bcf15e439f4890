/* src/describe/curve_op.c - which operators have curves, and in which forms. */
#include "describe/curve.h"

#include <string.h>

const char *const ms_curve_form_words[] = {"gemm-saturating", "gemm-tiled", "grouped-gemm", "attention", "segments",
                                           "dispatch",        "bandwidth",  "terms",        NULL};

/* The words of work/op.def (test_work holds these to it), and "elementwise", any operator that moves memory and has
 * none of its own. What runs on the host or its links has figures of its own. */
#define FORM(id) (1u << MS_FORM_##id)
static const struct {
  const char *ops; /* words */
  unsigned forms;
} timed[] = {
    {"elementwise embedding rmsnorm rope copy swiglu weighted_swiglu add router_topk dispatch_preprocess permute "
     "unpermute sort_chunks cross_entropy cross_entropy_te quantize amax transpose softmax conv1d scan gates topk pool "
     "stream_mix zero_grad grad_scale grad_norm adam fill",
     FORM(BANDWIDTH) | FORM(TERMS)},
    {"gemm front_end", FORM(GEMM_SATURATING) | FORM(GEMM_TILED) | FORM(TERMS)},
    {"grouped_gemm", FORM(GROUPED_GEMM) | FORM(TERMS)},
    {"attention sparse_attention indexer_scores delta_rule", FORM(ATTENTION) | FORM(TERMS)},
    {"all_gather reduce_scatter all_reduce all_to_all p2p", FORM(SEGMENTS)},
    {"dispatch combine", FORM(DISPATCH)}};

static gboolean has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words; length > 0 && (at = strstr(at, word)); at += length)
    if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return TRUE;
  return FALSE;
}

/* 0: none. */
static unsigned forms_of(const char *op) {
  for (guint i = 0; i < G_N_ELEMENTS(timed); i++)
    if (has_word(timed[i].ops, op)) return timed[i].forms;
  return 0;
}

/* "bandwidth or terms" (transfer full) */
static char *words_of(unsigned forms) {
  GString *words = g_string_new(NULL);
  for (int i = 0; i < MS_N_FORMS; i++)
    if (forms >> i & 1) g_string_append_printf(words, "%s%s", words->len ? " or " : "", ms_curve_form_words[i]);
  return g_string_free(words, FALSE);
}

static gboolean unknown_op(const MsJson *doc, const char *path, const char *op, GError **error) {
  g_autoptr(GString) all = g_string_new(timed[0].ops);
  for (guint i = 1; i < G_N_ELEMENTS(timed); i++) g_string_append_printf(all, " %s", timed[i].ops);
  g_auto(GStrv) known = g_strsplit(all->str, " ", -1);
  g_autofree char *key = g_strconcat(path, ".op", NULL), *list = g_strjoinv(", ", known),
                  *near = ms_suggest(op, (const char *const *)known, NULL);
  return near ? ms_json_error(doc, key, error, "unknown operator \"%s\", %s", op, near)
              : ms_json_error(doc, key, error, "unknown operator \"%s\", must be one of %s", op, list);
}

/* Nothing would ask for such a curve: it would be passed over in silence. */
gboolean ms_curve_check_op(const MsJson *doc, const char *path, const MsCurve *curve, GError **error) {
  unsigned forms = forms_of(curve->op);
  if (forms >> curve->form & 1) return TRUE;
  if (!forms) return unknown_op(doc, path, curve->op, error);
  g_autofree char *key = g_strconcat(path, ".form", NULL), *words = words_of(forms);
  return ms_json_error(doc, key, error, "is %s, must be %s for %s", ms_curve_form_words[curve->form], words, curve->op);
}
