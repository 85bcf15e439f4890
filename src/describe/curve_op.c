/* src/describe/curve_op.c - which operators have curves, and in which forms. */
#include "describe/curve.h"

#include <string.h>

const char *const ms_curve_form_words[] = {"gemm-saturating", "gemm-tiled", "grouped-gemm", "attention", "segments",
                                           "dispatch",        "bandwidth",  "terms",        NULL};

#define FORM(id) (1u << MS_FORM_##id)
/* By column `curves` of op.def. */
enum {
  NONE,
  BANDWIDTH = FORM(BANDWIDTH) | FORM(TERMS),
  GEMM = FORM(GEMM_SATURATING) | FORM(GEMM_TILED) | FORM(TERMS),
  GROUPED_GEMM = FORM(GROUPED_GEMM) | FORM(TERMS),
  ATTENTION = FORM(ATTENTION) | FORM(TERMS),
  SEGMENTS = FORM(SEGMENTS),
  DISPATCH = FORM(DISPATCH)
};
#define OP(id, ...) _Static_assert(sizeof #id > 1, "an operator without an id");
#include "describe/op.def"
#undef OP
static const struct {
  const char *op;
  unsigned forms;
} timed[] = {
    {"elementwise", BANDWIDTH}, /* any operator that moves memory and has none of its own */
#define OP(id, word, family, curves, doc) {word, (curves)},
#include "describe/op.def"
#undef OP
};

/* 0: none. */
static unsigned forms_of(const char *op) {
  for (guint i = 0; i < G_N_ELEMENTS(timed); i++)
    if (strcmp(timed[i].op, op) == 0) return timed[i].forms;
  return NONE;
}

/* "bandwidth or terms" (transfer full) */
static char *words_of(unsigned forms) {
  GString *words = g_string_new(NULL);
  for (int i = 0; i < MS_N_FORMS; i++)
    if (forms >> i & 1) g_string_append_printf(words, "%s%s", words->len ? " or " : "", ms_curve_form_words[i]);
  return g_string_free(words, FALSE);
}

static gboolean unknown_op(const MsJson *doc, const char *path, const char *op, GError **error) {
  const char *known[G_N_ELEMENTS(timed) + 1] = {NULL};
  for (guint i = 0, n = 0; i < G_N_ELEMENTS(timed); i++)
    if (timed[i].forms) known[n++] = timed[i].op;
  g_autofree char *key = g_strconcat(path, ".op", NULL), *list = g_strjoinv(", ", (char **)known),
                  *near = ms_suggest(op, known, NULL);
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
