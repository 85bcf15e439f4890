/* src/launch/groups_hybrid.c - layers that are not attention and an MLP: hybrid patterns with Mamba, linear and sparse
 * attention.
 *
 * A hybrid model is told to Megatron-LM as one pattern of letters, with '|' between the pipeline's virtual stages and
 * '/' before each MTP block; arguments that split layers any other way are refused beside it. So the pattern says the
 * split, too, and an import reads it from there. */
#include "base/err.h"
#include "layout/layout.h"
#include "launch/launch.h"
#include "launch/table.h"

#include <math.h>
#include <string.h>

#define MODEL MS_SECTION_MODEL
#define SPEC  "megatron.core.models.hybrid.hybrid_layer_specs"

static const char *const patterns = "--hybrid-layer-pattern --hybrid-override-pattern";

/* --- the split ------------------------------------------------------------------------------------------------- */
static gboolean same_chunks(const MsLayout *a, const MsLayout *b) {
  gboolean same = a->num_chunks == b->num_chunks;
  for (int i = 0; same && i < a->num_chunks; i++) {
    const MsChunk *p = &a->chunks[i], *q = &b->chunks[i];
    same = p->num_layers == q->num_layers && p->num_mtp == q->num_mtp && !p->has_embedding == !q->has_embedding &&
           !p->has_loss == !q->has_loss;
  }
  return same;
}

void ms_hybrid_canonical_split(MsScenario *s) {
  MsLayoutSpec *l = &s->layout;
  g_autoptr(MsLayout) given = ms_layout_new_or_error(s, NULL);
  if (!given || ms_schedule_row(l->schedule)->refused) return;
  g_autofree char *text = ms_pipeline_layout_text(given->chunks, given->num_chunks);
  l->account_for_embedding_in_pipeline_split = l->account_for_loss_in_pipeline_split = FALSE;
  l->decoder_first_pipeline_num_layers = l->decoder_last_pipeline_num_layers = 0;
  g_clear_pointer(&l->pipeline_layout, g_free);
  l->vpp = given->num_chunks / l->pp;
  g_autoptr(MsLayout) even = ms_layout_new_or_error(s, NULL);
  if (!even || !same_chunks(given, even)) l->pipeline_layout = g_steal_pointer(&text);
}

/* Letters of the layers with '|' between virtual stages; NULL and the error when a stage holds what they cannot say.
 * (transfer full) */
static char *split_pattern(const MsScenario *s, GError **error) {
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, error);
  g_autoptr(GString) text = g_string_new(NULL);
  if (!layout) return NULL;
  for (int i = 0; i < layout->num_chunks; i++) {
    const MsChunk *chunk = &layout->chunks[i];
    gboolean last = i == layout->num_chunks - 1;
    if (!chunk->has_embedding != (i > 0) || !chunk->has_loss != !last || (!last && chunk->num_mtp > 0)) {
      ms_refuse_key(s, error, "layout.pipeline_layout",
                    "a pattern of layers has the embedding on the first virtual stage, MTP and loss on the last");
      return NULL;
    }
    if (i > 0) g_string_append_c(text, '|');
    g_string_append_len(text, s->model->hybrid_layer_pattern + chunk->first_layer, chunk->num_layers);
  }
  return g_string_free(g_steal_pointer(&text), FALSE);
}

gboolean ms_read_hybrid_split(MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *arg = ms_args_take_any(args, patterns);
  if (!arg) return TRUE;
  const char *pattern = ms_arg_value(args, arg, error);
  if (!pattern) return FALSE;
  g_auto(GStrv) parts = g_strsplit(pattern, "/", -1), segments = g_strsplit(parts[0] ? parts[0] : "", "|", -1);
  int n = (int)g_strv_length(segments), blocks = MAX((int)g_strv_length(parts) - 1, 0), pp = s->layout.pp;
  if (n <= 1) return TRUE;
  if (n % pp != 0) return ms_arg_error(args, arg, error, "has %d stages, must be a multiple of PP = %d", n, pp);
  g_autofree MsChunk *chunks = g_new0(MsChunk, n);
  for (int i = 0; i < n; i++)
    chunks[i] = (MsChunk){.num_layers = (int)MIN(strlen(segments[i]), 10000),
                          .has_embedding = i == 0,
                          .has_loss = i == n - 1,
                          .num_mtp = i == n - 1 ? MIN(blocks, 100) : 0};
  s->layout.vpp = n / pp;
  g_free(s->layout.pipeline_layout);
  s->layout.pipeline_layout = ms_pipeline_layout_text(chunks, n);
  return TRUE;
}

/* --- hybrid models --------------------------------------------------------------------------------------------- */
static const struct {
  const char *flag;
  size_t offset;
  int absent; /* what the release takes without it */
} mamba_rows[] = {{"--mamba-num-heads", offsetof(MsMamba, num_heads), 0},
                  {"--mamba-head-dim", offsetof(MsMamba, head_dim), 64},
                  {"--mamba-state-dim", offsetof(MsMamba, state_dim), 128},
                  {"--mamba-num-groups", offsetof(MsMamba, num_groups), 8}};
enum { MAMBA_TAPS = 4 }; /* of the short convolution; no argument says it */

static int *mamba_member(MsMamba *mamba, guint i) { return (int *)(void *)((char *)mamba + mamba_rows[i].offset); }

static gboolean write_mamba(const MsScenario *s, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  gboolean used = strchr(m->hybrid_layer_pattern, 'M') || (m->mtp_pattern && strchr(m->mtp_pattern, 'M'));
  if (!used) return TRUE;
  if (m->mamba.conv_kernel != MAMBA_TAPS)
    return ms_refuse_key(s, error, "model.mamba.conv_kernel", "is %d, Megatron-LM's has %d taps", m->mamba.conv_kernel,
                         MAMBA_TAPS);
  MsMamba mamba = m->mamba;
  for (guint i = 0; i < G_N_ELEMENTS(mamba_rows); i++)
    ms_args_addf(args, MODEL, mamba_rows[i].flag, "%d", *mamba_member(&mamba, i));
  return TRUE;
}

gboolean ms_write_hybrid(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  ms_args_addf(args, MODEL, "--num-layers", "%d", m->num_layers);
  if (!m->hybrid_layer_pattern)
    return !m->mtp_pattern || ms_refuse_key(s, error, "model.mtp_pattern", "belongs to a hybrid_layer_pattern");
  if (release != MS_RELEASE_MCORE)
    return ms_refuse_key(s, error, "model.hybrid_layer_pattern", "%s has no --hybrid-layer-pattern",
                         ms_release_words[release]);
  g_autofree char *split = split_pattern(s, error);
  if (!split) return FALSE;
  g_autoptr(GString) text = g_string_new(split);
  for (int i = 0; i < m->mtp_num_layers; i++) g_string_append_printf(text, "/%s", m->mtp_pattern);
  ms_args_add(args, MODEL, "--spec", SPEC, "hybrid_stack_spec", NULL);
  ms_args_add(args, MODEL, "--hybrid-layer-pattern", text->str, NULL);
  return write_mamba(s, args, error);
}

/* A specification of layers that says nothing more than a pattern does; NULL: there is none. */
static MsArg *find_stack(MsArgs *args) {
  static const char *const known[] = {"hybrid_stack_spec", "mamba_stack_spec", NULL};
  for (guint i = 0; i < args->list->len; i++) {
    MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, "--spec") != 0 || !arg->values[0]) continue;
    const char *last = arg->values[g_strv_length(arg->values) - 1];
    if (g_strv_contains(known, last) || g_str_has_suffix(arg->values[0], ".mamba_spec")) return arg;
  }
  return NULL;
}

/* Turns `count` letters M of a pattern into `letter`, as evenly as Megatron-LM does with the space between two of them
 * (core/ssm/mamba_hybrid_layer_allocation.py, before hybrid patterns). */
static void spread(char *pattern, int count, double space, char letter) {
  double left = space;
  for (char *p = pattern; count > 0 && *p; p++) {
    if (*p != 'M') continue;
    if (left < 0.5) *p = letter, left += space;
    else left -= 1;
  }
}

/* The pattern of parts of attention and MLPs among layers of Mamba. */
static gboolean say_pattern(MsArgs *args, const MsArg *stack, GError **error) {
  const MsArg *layers = ms_args_take(args, "--num-layers"), *attention, *mlps;
  gint64 n = 0;
  double part[2] = {0, 0};
  attention = ms_args_take(args, "--hybrid-attention-ratio"), mlps = ms_args_take(args, "--hybrid-mlp-ratio");
  if (!layers) return TRUE;
  if (!ms_arg_int(args, layers, 1, 10000, &n, error) ||
      (attention && !ms_arg_number(args, attention, 0, 1, &part[0], error)) ||
      (mlps && !ms_arg_number(args, mlps, 0, 1, &part[1], error)))
    return FALSE;
  double with = rint((double)n * part[0]), wide = rint((double)n * part[1]); /* to even, as Python's round */
  if (with + wide > (double)n) return ms_arg_error(args, mlps, error, "leaves no layer to Mamba");
  g_autofree char *pattern = g_strnfill((gsize)n, 'M');
  spread(pattern, (int)with, ((double)n - with) / (with + 1), '*');
  spread(pattern, (int)wide, wide > 0 ? ((double)n - with - wide) / wide : 0, '-');
  ms_args_say(args, stack, "--hybrid-layer-pattern", pattern);
  return TRUE;
}

static gboolean read_mamba(MsArgs *args, MsScenario *s, GError **error) {
  MsMamba *mamba = &s->model->mamba;
  for (guint i = 0; i < G_N_ELEMENTS(mamba_rows); i++) {
    const MsArg *arg = ms_args_take(args, mamba_rows[i].flag);
    gint64 value = mamba_rows[i].absent;
    if (arg && !ms_arg_int(args, arg, 1, 65536, &value, error)) return FALSE;
    *mamba_member(mamba, i) = (int)value;
  }
  const MsArg *wider = ms_args_take(args, "--mamba-expand"), *taps = ms_args_take(args, "--mamba-d-conv");
  gint64 times = 2, kernel = MAMBA_TAPS; /* the release's, which has no such arguments; MindSpeed-LLM has */
  if ((wider && !ms_arg_int(args, wider, 1, 64, &times, error)) ||
      (taps && !ms_arg_int(args, taps, MAMBA_TAPS, MAMBA_TAPS, &kernel, error)))
    return FALSE;
  ms_args_take(args, "--mamba-chunk-size"); /* tokens that one block of the kernel scans */
  if (mamba->num_heads == 0) mamba->num_heads = (int)(times * s->model->hidden_size / mamba->head_dim);
  mamba->conv_kernel = (int)kernel;
  return TRUE;
}

static gboolean read_pattern(MsArgs *args, const MsArg *arg, MsScenario *s, GError **error) {
  MsModel *m = s->model;
  const MsArg *old = ms_args_take(args, "--mtp-hybrid-override-pattern");
  const char *pattern = ms_arg_value(args, arg, error);
  if (!pattern) return FALSE;
  g_auto(GStrv) parts = g_strsplit(pattern, "/", -1), segments = g_strsplit(parts[0] ? parts[0] : "", "|", -1);
  m->hybrid_layer_pattern = g_strjoinv("", segments);
  size_t n = strlen(m->hybrid_layer_pattern);
  if (n < 1 || n > 10000) return ms_arg_error(args, arg, error, "has %zu layers, must have 1 to 10000", n);
  m->num_layers = (int)n;
  int blocks = (int)g_strv_length(parts) - 1;
  for (int i = 1; i < blocks; i++)
    if (strcmp(parts[i], parts[i + 1]) != 0)
      return ms_arg_error(args, arg, error, "has MTP blocks of different layers, moesim has one kind");
  if (blocks > 0) m->mtp_pattern = g_strdup(parts[1]), m->mtp_num_layers = MIN(blocks, 100);
  else if (old && old->values[0]) m->mtp_pattern = g_strdup(old->values[0]);
  return !strchr(m->hybrid_layer_pattern, 'M') || read_mamba(args, s, error);
}

gboolean ms_read_hybrid(MsArgs *args, MsScenario *s, GError **error) {
  MsModel *m = s->model;
  const MsArg *layers = ms_args_take(args, "--num-layers"), *pattern = ms_args_take_any(args, patterns);
  MsArg *stack = find_stack(args);
  gint64 n = 0;
  if (!pattern && stack) {
    if (!say_pattern(args, stack, error)) return FALSE;
    pattern = ms_args_take_any(args, patterns);
  }
  g_clear_pointer(&m->hybrid_layer_pattern, g_free);
  g_clear_pointer(&m->mtp_pattern, g_free);
  m->mamba = (MsMamba){.conv_kernel = MAMBA_TAPS};
  ms_args_take(args, "--is-hybrid-model");
  if (pattern && !read_pattern(args, pattern, s, error)) return FALSE;
  if (pattern && stack) stack->used = TRUE;
  if (pattern) return TRUE; /* says the number of layers, whatever --num-layers does */
  if (!layers)
    return ms_input_error(error, args->file, 0, "--num-layers", "is missing: no launch of Megatron-LM goes without it");
  if (!ms_arg_int(args, layers, 1, 10000, &n, error)) return FALSE;
  m->num_layers = (int)n;
  return TRUE;
}

/* The number that the pattern gives stands in --mtp-num-layers, too, or alone. */
gboolean ms_write_mtp(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  int blocks = s->model->mtp_num_layers;
  if (blocks == 0) return TRUE;
  (void)error;
  if (release == MS_RELEASE_MT) ms_args_add(args, MODEL, "--use-multi-token-prediction", NULL);
  ms_args_addf(args, MODEL, release == MS_RELEASE_MT ? "--mtp-depth" : "--mtp-num-layers", "%d", blocks);
  return TRUE;
}

gboolean ms_read_mtp(MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *arg = ms_args_take(args, "--mtp-num-layers");
  gboolean mt = ms_args_take(args, "--use-multi-token-prediction") != NULL;
  if (mt && !arg) arg = ms_args_take(args, "--mtp-depth");
  gint64 blocks = s->model->mtp_pattern ? s->model->mtp_num_layers : 0;
  gboolean said = s->model->mtp_pattern && blocks > 0;
  if (arg && !said && !ms_arg_int(args, arg, 0, 100, &blocks, error)) return FALSE;
  s->model->mtp_num_layers = (int)blocks;
  return TRUE;
}

/* --- variants of attention ------------------------------------------------------------------------------------- */
typedef struct {
  const char *flag;
  size_t offset; /* of an int */
  int absent;
} IntRow;

static int *int_at(void *object, const IntRow *row) { return (int *)(void *)((char *)object + row->offset); }

static gboolean read_ints(MsArgs *args, const IntRow *rows, int n, void *object, GError **error) {
  for (int i = 0; i < n; i++) {
    const MsArg *arg = ms_args_take(args, rows[i].flag);
    gint64 value = rows[i].absent;
    if (arg && !ms_arg_int(args, arg, 0, 1 << 24, &value, error)) return FALSE;
    *int_at(object, &rows[i]) = (int)value;
  }
  return TRUE;
}

static const IntRow linear_rows[] = {
    {"--linear-num-key-heads", offsetof(MsLinearAttention, num_key_heads), 16},
    {"--linear-num-value-heads", offsetof(MsLinearAttention, num_value_heads), 32},
    {"--linear-key-head-dim", offsetof(MsLinearAttention, key_head_dim), 128},
    {"--linear-value-head-dim", offsetof(MsLinearAttention, value_head_dim), 128},
    {"--linear-conv-kernel-dim", offsetof(MsLinearAttention, conv_kernel), 4},
};

static const IntRow sparse_rows[] = {
    {"--dsa-indexer-n-heads", offsetof(MsSparseAttention, indexer_num_heads), 0},
    {"--dsa-indexer-head-dim", offsetof(MsSparseAttention, indexer_head_dim), 0},
    {"--dsa-indexer-topk", offsetof(MsSparseAttention, indexer_topk), 0},
    {"--dsa-indexer-topk-freq", offsetof(MsSparseAttention, indexer_topk_freq), 1},
    {"--dsa-indexer-skip-topk-offset", offsetof(MsSparseAttention, indexer_skip_topk_offset), 0},
};
#define INDEXER_LOSS "0.001" /* weight, where the model has that loss; Megatron-Bridge's of GLM-5 */

/* What work/sparse.c predicts: Megatron-LM's default is plain operators over all pairs of tokens, and a loss over all
 * of them (core/transformer/transformer_config.py, dsa_kernel_backend, dsa_indexer_use_sparse_loss). */
#define DSA_KERNELS "cudnn"

static gboolean uses_linear(const MsModel *m) { return m->linear_attention.num_value_heads > 0; }
static gboolean uses_sparse(const MsModel *m) { return m->sparse_attention.indexer_topk > 0; }

static void write_ints(MsArgs *args, const IntRow *rows, int n, const void *object) {
  for (int i = 0; i < n; i++) ms_args_addf(args, MODEL, rows[i].flag, "%d", *int_at((void *)object, &rows[i]));
}

gboolean ms_write_variants(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  gboolean linear = uses_linear(m), sparse = uses_sparse(m) && !ms_model_has_compressed_attention(m);
  if (!linear && !sparse) return TRUE;
  const char *path = linear ? "model.linear_attention" : "model.sparse_attention";
  if (release != MS_RELEASE_MCORE)
    return ms_refuse_key(s, error, path, "%s has no --experimental-attention-variant", ms_release_words[release]);
  if (linear && sparse) return ms_refuse_key(s, error, path, "Megatron-LM has one variant of attention in a model");
  ms_args_add(args, MODEL, "--experimental-attention-variant", linear ? "gdn" : "dsa", NULL);
  if (linear) write_ints(args, linear_rows, G_N_ELEMENTS(linear_rows), &m->linear_attention);
  if (linear && m->linear_attention.frequency > 0)
    ms_args_addf(args, MODEL, "--linear-attention-freq", "%d", m->linear_attention.frequency);
  if (sparse) write_ints(args, sparse_rows, G_N_ELEMENTS(sparse_rows), &m->sparse_attention);
  if (sparse && s->options.apply_rope_fusion) ms_args_add(args, MODEL, "--no-rope-fusion", NULL); /* asserted */
  if (sparse) ms_args_add(args, MODEL, "--dsa-kernel-backend", DSA_KERNELS, NULL);
  if (sparse && m->sparse_attention.indexer_loss) {
    ms_args_add(args, MODEL, "--dsa-indexer-loss-coeff", INDEXER_LOSS, NULL);
    ms_args_add(args, MODEL, "--dsa-indexer-use-sparse-loss", NULL);
  }
  return TRUE;
}

static gboolean read_linear(MsArgs *args, MsScenario *s, GError **error) {
  MsLinearAttention *a = &s->model->linear_attention;
  const MsArg *freq = ms_args_take(args, "--linear-attention-freq");
  gint64 every = 0;
  if (!read_ints(args, linear_rows, G_N_ELEMENTS(linear_rows), a, error)) return FALSE;
  if (freq && !ms_arg_int(args, freq, 1, 10000, &every, error)) return FALSE;
  a->frequency = (int)every;
  return freq || s->model->hybrid_layer_pattern ||
         ms_arg_error(args, &(MsArg){.flag = (char *)"--linear-attention-freq"}, error, "is missing");
}

static gboolean read_sparse(MsArgs *args, MsScenario *s, GError **error) {
  MsSparseAttention *a = &s->model->sparse_attention;
  const MsArg *loss = ms_args_take(args, "--dsa-indexer-loss-coeff");
  const MsArg *kernels = ms_args_take(args, "--dsa-kernel-backend");
  ms_args_take(args, "--no-rope-fusion"), ms_args_take(args, "--dsa-indexer-use-sparse-loss");
  double weight = 0;
  const char *backend = kernels ? ms_arg_value(args, kernels, error) : DSA_KERNELS;
  if (!backend) return FALSE;
  if (strcmp(backend, "none") == 0)
    return ms_arg_error(args, kernels, error, "is none: moesim has sparse attention by fused kernels only");
  if (!read_ints(args, sparse_rows, G_N_ELEMENTS(sparse_rows), a, error) ||
      (loss && !ms_arg_number(args, loss, 0, 1e6, &weight, error)))
    return FALSE;
  a->indexer_loss = weight > 0;
  return a->indexer_topk > 0 || ms_arg_error(args, &(MsArg){.flag = (char *)"--dsa-indexer-topk"}, error,
                                             "is missing, the variant dsa needs it");
}

gboolean ms_read_variants(MsArgs *args, MsScenario *s, GError **error) {
  static const char *const words[] = {"gdn", "gated_delta_net", "dsa", NULL};
  MsModel *m = s->model;
  const MsArg *arg = ms_args_take(args, "--experimental-attention-variant");
  m->linear_attention = (MsLinearAttention){.conv_kernel = 4};
  m->sparse_attention = (MsSparseAttention){.indexer_topk_freq = 1, .indexer_loss = TRUE};
  if (!arg) return TRUE;
  const char *text = ms_arg_value(args, arg, error);
  int word = text ? ms_arg_word(args, arg, text, words, error) : -1;
  if (word < 0) return FALSE;
  return word < 2 ? read_linear(args, s, error) : read_sparse(args, s, error);
}
