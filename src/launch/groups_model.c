/* src/launch/groups_model.c - attention, latent attention, activation, vocabulary. */
#include "launch/table.h"

#include "describe/moe_freq.h"

#include <stdio.h>
#include <string.h>

#define MODEL MS_SECTION_MODEL

enum { MOST_SKIPS = 10000 };

static gboolean refuse_mt(const MsScenario *s, MsRelease release, const char *path, const char *flag, GError **error) {
  return ms_refuse_key(s, error, path, "%s has no %s", ms_release_words[release], flag);
}

/* --- attention --- */
gboolean ms_write_attention(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  const MsSlidingWindow *w = &m->sliding_window;
  ms_args_addf(args, MODEL, "--num-attention-heads", "%d", m->num_attention_heads);
  ms_args_addf(args, MODEL, "--kv-channels", "%d", m->kv_channels);
  if (!ms_model_has_mla(m) && m->num_query_groups != m->num_attention_heads) { /* the two ways exclude each other */
    ms_args_add(args, MODEL, "--group-query-attention", NULL);
    ms_args_addf(args, MODEL, "--num-query-groups", "%d", m->num_query_groups);
  }
  if (w->chunked)
    return ms_refuse_key(s, error, "model.sliding_window.chunked", "no argument of %s says it, its windows slide",
                         ms_release_words[release]);
  if (release != MS_RELEASE_MCORE && w->window > 0)
    return refuse_mt(s, release, "model.sliding_window", "--window-size", error);
  if (release != MS_RELEASE_MCORE && m->softmax_sink)
    return refuse_mt(s, release, "model.softmax_sink", "--softmax-type", error);
  if (w->window > 0)
    ms_args_addf(args, MODEL, "--window-size", "%d,0",
                 w->window - 1); /* earlier and later tokens, without the token itself */
  if (w->window > 0 && w->period > 0) ms_args_addf(args, MODEL, "--window-attn-skip-freq", "%d", w->period);
  if (m->softmax_sink) ms_args_add(args, MODEL, "--softmax-type", "learnable", NULL);
  return TRUE;
}

/* How often a list of layers with (1) and without the window has one without: 0, none. */
static gboolean read_skips(const MsArgs *args, const MsArg *skip, int layers, gint64 *period, GError **error) {
  guint8 windowed[MOST_SKIPS];
  char why[160];
  g_autofree char *text = g_strjoinv(" ", skip->values);
  int n = ms_moe_freq_parse(text, windowed, MIN(layers, MOST_SKIPS), why, sizeof why);
  if (n < 0) return ms_arg_error(args, skip, error, "%s", why);
  if (n != layers) return ms_arg_error(args, skip, error, "gives %d layers, must give --num-layers = %d", n, layers);
  int every = 1;
  while (every <= n && windowed[every - 1]) every++;
  *period = every <= n ? every : 0;
  for (int i = 0; every <= n && i < n; i++)
    if (windowed[i] == ((i + 1) % every == 0))
      return ms_arg_error(args, skip, error,
                          "is a list; moesim knows one full layer after every N - 1 windowed ones, written as N");
  return TRUE;
}

static gboolean read_window(MsArgs *args, MsModel *m, GError **error) {
  MsSlidingWindow *w = &m->sliding_window;
  const MsArg *arg = ms_args_take(args, "--window-size"), *skip = ms_args_take(args, "--window-attn-skip-freq");
  *w = (MsSlidingWindow){0};
  if (!arg) return TRUE;
  g_autofree char *text = ms_arg_list(args, arg, error);
  if (!text) return FALSE;
  int left, right;
  if (sscanf(text + strspn(text, "([ "), "%9d , %9d", &left, &right) != 2 || left < -1)
    return ms_arg_error(args, arg, error, "is \"%.60s\", must be two numbers such as 127,0", text);
  if (left < 0) return TRUE; /* no limit */
  gint64 period = 0;
  gboolean list = skip && skip->values[0] && strchr(skip->values[0], '[');
  if (list && !read_skips(args, skip, m->num_layers, &period, error)) return FALSE;
  if (skip && !list && !ms_arg_int(args, skip, 1, 10000, &period, error)) return FALSE;
  if (list && period == 1) return TRUE; /* no layer has the window */
  *w = (MsSlidingWindow){.window = left + 1, .period = (int)period};
  return TRUE;
}

gboolean ms_read_attention(MsArgs *args, MsScenario *s, GError **error) {
  MsModel *m = s->model;
  const MsArg *heads = ms_args_take(args, "--num-attention-heads"), *channels = ms_args_take(args, "--kv-channels");
  gboolean grouped = ms_args_take(args, "--group-query-attention") != NULL;
  const MsArg *groups = ms_args_take(args, "--num-query-groups"), *softmax = ms_args_take(args, "--softmax-type");
  gint64 n = 0, g = 1, dh = 0;
  if (!heads) return ms_arg_error(args, &(MsArg){.flag = (char *)"--num-attention-heads"}, error, "is missing");
  if (!ms_arg_int(args, heads, 1, 65536, &n, error) ||
      (channels && !ms_arg_int(args, channels, 0, 65536, &dh, error)) ||
      (groups && !ms_arg_int(args, groups, 1, 65536, &g, error)))
    return FALSE;
  m->num_attention_heads = (int)n;
  m->num_query_groups = grouped ? (int)g : (int)n;
  m->kv_channels = (int)dh;
  m->softmax_sink = softmax && softmax->values[0] && strcmp(softmax->values[0], "learnable") == 0;
  return read_window(args, m, error);
}

/* --- latent attention --- */
static const struct {
  const char *flag;
  size_t offset;
  int absent; /* what the release takes without it */
} mla_rows[] = {{"--q-lora-rank", offsetof(MsMla, q_lora_rank), 0},
                {"--kv-lora-rank", offsetof(MsMla, kv_lora_rank), 32},
                {"--qk-head-dim", offsetof(MsMla, qk_head_dim), 128},
                {"--qk-pos-emb-head-dim", offsetof(MsMla, qk_pos_emb_head_dim), 64},
                {"--v-head-dim", offsetof(MsMla, v_head_dim), 128}};

static int *mla_member(MsMla *mla, guint i) { return (int *)(void *)((char *)mla + mla_rows[i].offset); }

gboolean ms_write_latent_attention(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  (void)release, (void)error;
  if (!ms_model_has_mla(s->model)) return TRUE;
  ms_args_add(args, MODEL, "--multi-latent-attention", NULL);
  for (guint i = 0; i < G_N_ELEMENTS(mla_rows); i++) {
    int value = *mla_member(&s->model->multi_latent_attention, i);
    if (value > 0) ms_args_addf(args, MODEL, mla_rows[i].flag, "%d", value);
    else if (mla_rows[i].absent > 0) ms_args_addf(args, MODEL, mla_rows[i].flag, "0");
  }
  return TRUE;
}

gboolean ms_read_latent_attention(MsArgs *args, MsScenario *s, GError **error) {
  MsMla *mla = &s->model->multi_latent_attention;
  *mla = (MsMla){0};
  if (!ms_args_take(args, "--multi-latent-attention")) return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS(mla_rows); i++) {
    const MsArg *arg = ms_args_take(args, mla_rows[i].flag);
    gint64 value = mla_rows[i].absent;
    if (arg && !ms_arg_int(args, arg, 0, 65536, &value, error)) return FALSE;
    *mla_member(mla, i) = (int)value;
  }
  return mla->kv_lora_rank > 0 || ms_arg_error(args, &(MsArg){.flag = (char *)"--kv-lora-rank"}, error,
                                               "is 0, must be at least 1 with --multi-latent-attention");
}

/* --- activation --- */
static const struct {
  gboolean gated;
  MsActivation activation;
  const char *flag; /* NULL: what the release does without one */
} activations[] = {{FALSE, MS_ACT_GELU, NULL},
                   {TRUE, MS_ACT_SILU, "--swiglu"},
                   {TRUE, MS_ACT_QUICK_GELU, "--quick-geglu"},
                   {FALSE, MS_ACT_SQUARED_RELU, "--squared-relu"}};

gboolean ms_write_activation(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  for (guint i = 0; i < G_N_ELEMENTS(activations); i++) {
    if (!activations[i].gated != !m->gated || activations[i].activation != m->activation) continue;
    if (release != MS_RELEASE_MCORE && m->activation == MS_ACT_QUICK_GELU)
      return refuse_mt(s, release, "model.activation", "--quick-geglu", error);
    if (activations[i].flag) ms_args_add(args, MODEL, activations[i].flag, NULL);
    return TRUE;
  }
  return ms_refuse_key(s, error, "model.activation",
                       "%s %s MLP: %s has gelu, gated silu, gated quick_gelu and squared_relu",
                       m->gated ? "gated" : "ungated", ms_activation_words[m->activation], ms_release_words[release]);
}

gboolean ms_read_activation(MsArgs *args, MsScenario *s, GError **error) {
  (void)error;
  guint found = 0;
  for (guint i = 1; i < G_N_ELEMENTS(activations); i++)
    if (ms_args_take(args, activations[i].flag)) found = i;
  gboolean gelu = ms_args_take(args, MS_GATED_GELU) != NULL;
  s->model->gated = gelu || activations[found].gated;
  s->model->activation = gelu ? MS_ACT_GELU : activations[found].activation;
  return TRUE;
}

/* --- norms behind attention and MLP: of layers that a fork or a specification of its own has --- */
gboolean ms_write_post_norm(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  (void)args;
  return !s->model->post_norm ||
         ms_refuse_key(s, error, "model.post_norm", "no argument of %s says it, its layers have norms in front only",
                       ms_release_words[release]);
}

gboolean ms_read_post_norm(MsArgs *args, MsScenario *s, GError **error) {
  (void)error;
  s->model->post_norm = ms_args_take(args, MS_POST_NORM) != NULL;
  return TRUE;
}

/* --- hyper-connections --- */
gboolean ms_write_streams(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsHyperConnections *h = &s->model->hyper_connections;
  if (h->num_residual_streams == 1) return TRUE;
  if (release != MS_RELEASE_MCORE)
    return refuse_mt(s, release, "model.hyper_connections.num_residual_streams", "--enable-mhc-connections", error);
  ms_args_add(args, MODEL, "--enable-mhc-connections", NULL);
  ms_args_addf(args, MODEL, "--mhc-num-residual-streams", "%d", h->num_residual_streams);
  ms_args_addf(args, MODEL, "--mhc-sinkhorn-iterations", "%d", h->sinkhorn_iterations);
  return TRUE;
}

gboolean ms_read_streams(MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *on = ms_args_take_any(args, "--enable-mhc-connections --enable-hyper-connections"),
              *streams = ms_args_take_any(args, "--mhc-num-residual-streams --num-residual-streams"),
              *iterations = ms_args_take(args, "--mhc-sinkhorn-iterations");
  gint64 n = 4, steps = 20;
  s->model->hyper_connections = (MsHyperConnections){.num_residual_streams = 1, .sinkhorn_iterations = 20};
  if (!on) return TRUE;
  if ((streams && !ms_arg_int(args, streams, 1, 64, &n, error)) ||
      (iterations && !ms_arg_int(args, iterations, 1, 1000, &steps, error)))
    return FALSE;
  s->model->hyper_connections = (MsHyperConnections){(int)n, (int)steps};
  return TRUE;
}

/* --- vocabulary: 0 when the file does not say it (a tokenizer does) --- */
gboolean ms_write_vocabulary(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  (void)release, (void)error;
  ms_args_addf(args, MODEL, "--vocab-size", "%d", s->model->vocab_size);
  ms_args_addf(args, MODEL, "--make-vocab-size-divisible-by", "%d", s->model->make_vocab_size_divisible_by);
  return TRUE;
}

gboolean ms_read_vocabulary(MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *size = ms_args_take(args, "--vocab-size"), *unit = ms_args_take(args, "--make-vocab-size-divisible-by"),
              *padded = ms_args_take(args, "--padded-vocab-size");
  gint64 vocab = 0, divisor = 128;
  if ((size && !ms_arg_int(args, size, 1, 1 << 24, &vocab, error)) ||
      (unit && !ms_arg_int(args, unit, 1, 1 << 20, &divisor, error)) ||
      (padded && !ms_arg_int(args, padded, 1, 1 << 24, &vocab, error)))
    return FALSE;
  if (padded) divisor = 1; /* the table has exactly these rows, whatever the tokenizer knows */
  s->model->vocab_size = (int)vocab;
  s->model->make_vocab_size_divisible_by = (int)divisor;
  return TRUE;
}
