/* src/exec/params.c - the parameters of one rank: which part of which matrix of the model it holds, in two flat arrays
 * (dense, experts), and their gradients. */
#include "exec/state_priv.h"

#include <math.h>
#include <string.h>

/* --- one piece ------------------------------------------------------------------------------------------------- */

typedef struct {
  Instance *to;
  char prefix[32];
  const Cut *cut;
  const MsModel *m;
} Making;

static Param *param(Making *k, const char *name, gboolean expert, gboolean replicated) {
  Instance *to = k->to;
  to->param = g_renew(Param, to->param, to->n + 1);
  Param *p = &to->param[to->n++];
  *p = (Param){.name = name, .expert = expert, .replicated = replicated, .alias = -1};
  return p;
}

/* Rows [row, row + rows) and columns [col, col + cols) of the model's matrix prefix.name. */
static void segment(Making *k, Param *p, const char *name, gint64 model_rows, gint64 model_cols, gint64 row,
                    gint64 rows, gint64 col, gint64 cols) {
  g_autofree char *whole = g_strconcat(k->prefix, name, NULL);
  p->segment = g_renew(Segment, p->segment, p->n_segments + 1);
  p->segment[p->n_segments++] = (Segment){g_intern_string(whole), rows, cols, row, col, model_rows, model_cols};
  p->rows += rows, p->cols = cols;
}

static void whole(Making *k, const char *name, gint64 rows, gint64 cols) {
  segment(k, param(k, name, FALSE, TRUE), name, rows, cols, 0, rows, 0, cols);
}

static void norm(Making *k, const char *name, const char *bias, gint64 width) {
  whole(k, name, 1, width);
  if (k->m->normalization == MS_NORM_LAYER) whole(k, bias, 1, width);
}

static void by_rows(Making *k, Param *p, const char *name, gint64 rows, gint64 cols) {
  segment(k, p, name, rows, cols, k->cut->ti * (rows / k->cut->t), rows / k->cut->t, 0, cols);
}

static void by_cols(Making *k, const char *name, gint64 rows, gint64 cols) {
  segment(k, param(k, name, FALSE, FALSE), name, rows, cols, 0, rows, k->cut->ti * (cols / k->cut->t),
          cols / k->cut->t);
}

/* A bias is a row; its segments are pieces of one, laid side by side as rows of one column. */
static void make_gqa(Making *k) {
  const MsModel *m = k->m;
  gint64 h = m->hidden_size, q = (gint64)m->num_attention_heads * m->kv_channels,
         kv = (gint64)m->num_query_groups * m->kv_channels;
  gint64 ql = m->query_latent_size;
  if (ql > 0) {
    whole(k, "q down", ql, h), norm(k, "q latent norm", "q latent norm bias", ql);
    by_rows(k, param(k, "q up", FALSE, FALSE), "q up", q, ql);
  }
  Param *p = param(k, ql > 0 ? "kv" : "qkv", FALSE, FALSE);
  if (ql == 0) by_rows(k, p, "q", q, h);
  if (m->attention_output_gate) by_rows(k, p, "output gate", q, h);
  by_rows(k, p, "k", kv, h), by_rows(k, p, "v", kv, h);
  if (m->add_bias_linear || m->add_qkv_bias) {
    p = param(k, "qkv bias", FALSE, FALSE);
    by_rows(k, p, "q bias", q, 1), by_rows(k, p, "k bias", kv, 1), by_rows(k, p, "v bias", kv, 1);
  }
  by_cols(k, "attention out", h, q);
  if (m->add_bias_linear) whole(k, "attention out bias", h, 1);
  if (m->softmax_sink) by_rows(k, param(k, "sink", FALSE, FALSE), "sink", m->num_attention_heads, 1);
  if (m->qk_layernorm)
    norm(k, "q norm", "q norm bias", m->kv_channels), norm(k, "k norm", "k norm bias", m->kv_channels);
}

static void make_mla(Making *k) {
  const MsMla *a = &k->m->multi_latent_attention;
  gint64 h = k->m->hidden_size, n = k->m->num_attention_heads, dqk = a->qk_head_dim + a->qk_pos_emb_head_dim;
  if (a->q_lora_rank > 0)
    whole(k, "q down", a->q_lora_rank, h), norm(k, "q latent norm", "q latent norm bias", a->q_lora_rank);
  else if (ms_model_norms_query_input(k->m)) norm(k, "q latent norm", "q latent norm bias", h);
  whole(k, "kv down", a->kv_lora_rank + a->qk_pos_emb_head_dim, h);
  norm(k, "kv latent norm", "kv latent norm bias", a->kv_lora_rank);
  by_rows(k, param(k, "q up", FALSE, FALSE), "q up", n * dqk, a->q_lora_rank > 0 ? a->q_lora_rank : h);
  by_rows(k, param(k, "kv up", FALSE, FALSE), "kv up", n * (a->qk_head_dim + a->v_head_dim), a->kv_lora_rank);
  by_cols(k, "attention out", h, n * a->v_head_dim);
}

static void make_mlp(Making *k, const char *fc1, const char *fc2, gint64 f, gboolean biased) {
  g_autofree char *gate = g_strconcat(fc1, " gate", NULL);
  g_autofree char *fc1_bias = g_strconcat(fc1, " bias", NULL), *gate_bias = g_strconcat(fc1, " gate bias", NULL),
                  *fc2_bias = g_strconcat(fc2, " bias", NULL);
  gint64 h = k->m->hidden_size;
  Param *p = param(k, fc1, FALSE, FALSE);
  if (k->m->gated) by_rows(k, p, gate, f, h);
  by_rows(k, p, fc1, f, h);
  by_cols(k, fc2, h, f);
  if (!biased) return;
  p = param(k, g_intern_string(fc1_bias), FALSE, FALSE);
  if (k->m->gated) by_rows(k, p, gate_bias, f, 1);
  by_rows(k, p, fc1_bias, f, 1);
  whole(k, g_intern_string(fc2_bias), h, 1);
}

/* One segment for each expert (two for a gated first layer), cut over the ETP ranks. */
static void expert_matrix(Making *k, const char *name, gint64 rows, gint64 cols, gboolean cut_rows, gboolean gated) {
  const Cut *c = k->cut;
  gint64 local = k->m->num_experts / c->e;
  Param *p = param(k, name, TRUE, FALSE);
  for (gint64 i = 0; i < local; i++)
    for (int half = gated ? 0 : 1; half < 2; half++) {
      g_autofree char *one = g_strdup_printf("%s%s %" G_GINT64_FORMAT, name, half ? "" : " gate", c->ei * local + i);
      if (cut_rows) segment(k, p, one, rows, cols, c->ui * (rows / c->u), rows / c->u, 0, cols);
      else segment(k, p, one, rows, cols, 0, rows, c->ui * (cols / c->u), cols / c->u);
    }
}

static void make_moe(Making *k) {
  const MsModel *m = k->m;
  gint64 h = m->hidden_size, width = m->moe_latent_size > 0 ? m->moe_latent_size : h;
  whole(k, "router", m->num_experts, h);
  if (m->add_bias_linear) whole(k, "router bias", m->num_experts, 1);
  if (m->moe_shared_expert_intermediate_size > 0)
    make_mlp(k, "shared fc1", "shared fc2", m->moe_shared_expert_intermediate_size, FALSE);
  if (m->moe_shared_expert_intermediate_size > 0 && m->moe_shared_expert_gate) whole(k, "shared gate", 1, h);
  if (m->moe_latent_size > 0) whole(k, "latent down", width, h), whole(k, "latent up", h, width);
  expert_matrix(k, "expert fc1", m->moe_ffn_hidden_size, width, TRUE, m->gated);
  expert_matrix(k, "expert fc2", width, m->moe_ffn_hidden_size, FALSE, FALSE);
  if (!m->add_bias_linear) return;
  expert_matrix(k, "expert fc1 bias", m->moe_ffn_hidden_size, 1, TRUE, m->gated);
  Param *p = param(k, "expert fc2 bias", TRUE, FALSE);
  for (gint64 i = 0, local = m->num_experts / k->cut->e; i < local; i++) {
    g_autofree char *one = g_strdup_printf("expert fc2 bias %" G_GINT64_FORMAT, k->cut->ei * local + i);
    segment(k, p, one, h, 1, 0, h, 0, 1);
  }
}

static void make_layer(Making *k, guint8 mixers) {
  gint64 h = k->m->hidden_size;
  if (mixers & MS_MIX_ATTN) {
    norm(k, "attention norm", "attention norm bias", h);
    if (ms_model_has_mla(k->m)) make_mla(k);
    else make_gqa(k);
  }
  if (mixers & (MS_MIX_MLP | MS_MIX_MOE)) norm(k, "mlp norm", "mlp norm bias", h);
  if (mixers & MS_MIX_MLP) make_mlp(k, "fc1", "fc2", k->m->ffn_hidden_size, k->m->add_bias_linear);
  if (mixers & MS_MIX_MOE) make_moe(k);
}

void ms_exec_piece_params(const MsModel *m, Instance *to, MsPieceKind kind, const Cut *cut, int padded_vocab,
                          gboolean head_table, int positions) {
  Making k = {.to = to, .cut = cut, .m = m};
  gint64 h = m->hidden_size;
  switch (kind) {
  case MS_PIECE_EMBEDDING:
    g_strlcpy(k.prefix, "embedding.", sizeof k.prefix);
    by_rows(&k, param(&k, "table", FALSE, FALSE), "table", padded_vocab, h);
    if (ms_model_learns_positions(m)) whole(&k, "positions", positions, h);
    break;
  case MS_PIECE_LAYER:
  case MS_PIECE_MTP:
    g_snprintf(k.prefix, sizeof k.prefix, "layers.%d.", to->layer);
    make_layer(&k, to->mixers);
    if (kind == MS_PIECE_LAYER) break;
    by_rows(&k, param(&k, "eh proj", FALSE, FALSE), "eh proj", h, 2 * h);
    norm(&k, "mtp embedding norm", "mtp embedding norm bias", h);
    norm(&k, "mtp hidden norm", "mtp hidden norm bias", h);
    norm(&k, "mtp final norm", "mtp final norm bias", h);
    break;
  case MS_PIECE_SCALES: break;
  case MS_PIECE_HEAD:
    g_strlcpy(k.prefix, "head.", sizeof k.prefix);
    norm(&k, "final norm", "final norm bias", h);
    if (!head_table) break;
    if (m->tie_embeddings) g_strlcpy(k.prefix, "embedding.", sizeof k.prefix);
    by_rows(&k, param(&k, "table", FALSE, FALSE), "table", padded_vocab, h);
    to->param[to->n - 1].copy = m->tie_embeddings;
    break;
  }
}

/* --- all of a stage -------------------------------------------------------------------------------------------- */

static const Param *find_in(const Instance *piece, const char *name) {
  for (int i = 0; i < piece->n; i++)
    if (strcmp(piece->param[i].name, name) == 0) return &piece->param[i];
  return NULL;
}

const Param *ms_exec_param_find(const Exec *x, const char *name) {
  const Param *p = find_in(x->now, name);
  return p && p->alias >= 0 ? find_in(&x->instance[p->alias], name) : p;
}

static const Param *must(Exec *x, const char *name) {
  const Param *p = ms_exec_param_find(x, name);
  if (!p) ms_exec_fail(x, MS_ERROR_INPUT, "%s has no parameter \"%s\"", ms_exec_row_text(x), name);
  return p;
}

void *ms_exec_param(Exec *x, const char *name) {
  const Param *p = must(x, name);
  return ms_exec_at(x, x->flat[p->expert].param, p->at);
}

void *ms_exec_grad(Exec *x, const char *name) {
  const Param *p = must(x, name);
  return ms_exec_at(x, x->flat[p->expert].grad, p->at);
}

/* A parameter that another piece of the stage holds. */
static void refer(Instance *piece, const char *name, int owner) {
  piece->param = g_renew(Param, piece->param, piece->n + 1);
  piece->param[piece->n++] = (Param){.name = name, .alias = owner};
}

static int instance_of(const Exec *x, MsPieceKind kind) { /* the first, -1 = none */
  for (int i = 0; i < x->n_instances; i++)
    if (x->work->pieces[x->instance[i].piece].kind == kind) return i;
  return -1;
}

static void make_params(Exec *x, int i, const Cut *cut) {
  Instance *p = &x->instance[i];
  MsPieceKind kind = x->work->pieces[p->piece].kind;
  int embedding = instance_of(x, MS_PIECE_EMBEDDING), mtp = instance_of(x, MS_PIECE_MTP);
  gboolean again = p->piece == x->work->piece_mtp_again;
  gboolean own_table = !(x->model->tie_embeddings && x->layout->pp == 1);
  if (again) {
    for (int j = 0; j < x->instance[mtp].n; j++) {
      const Param *first = &x->instance[mtp].param[j];
      refer(p, first->name, first->alias >= 0 ? first->alias : mtp);
    }
    return;
  }
  ms_exec_piece_params(x->model, p, kind, cut, x->work->padded_vocab, own_table,
                       (int)MAX(x->model->seq_length_max, x->s));
  if (kind == MS_PIECE_HEAD && !own_table) refer(p, "table", embedding);
  if (kind != MS_PIECE_MTP) return;
  if (embedding >= 0) refer(p, "table", embedding);
  else if (i != mtp) refer(p, "table", mtp);
  else { /* the stage's own copy of the word embedding */
    Making k = {.to = p, .cut = cut, .m = x->model, .prefix = "embedding."};
    by_rows(&k, param(&k, "table", FALSE, FALSE), "table", x->work->padded_vocab, x->model->hidden_size);
    p->param[p->n - 1].copy = TRUE;
  }
}

/* Scale of the seeded weights: about what keeps activations at the size of their input. */
static void initialize(Exec *x, const Param *p) {
  void *to = ms_exec_at(x, x->flat[p->expert].param, p->at);
  gboolean gain = g_str_has_suffix(p->name, "norm");
  gint64 i = 0;
  for (int s = 0; s < p->n_segments; s++) {
    const Segment *g = &p->segment[s];
    double scale = gain                                                      ? 0.1
                   : g->model_cols == 1 || g_str_has_suffix(p->name, "bias") ? 0.05
                   : strcmp(p->name, "table") == 0 || strcmp(p->name, "positions") == 0
                       ? 0.5
                       : 1.5 / sqrt((double)g->model_cols);
    for (gint64 r = 0; r < g->rows; r++)
      for (gint64 c = 0; c < g->cols; c++, i++) {
        gint64 index = (g->row + r) * g->model_cols + g->col + c;
        gboolean probed = x->options->probe && index == x->options->probe_at && strcmp(g->name, x->options->probe) == 0;
        ms_exec_write(x, to, i,
                      (gain ? 1 : 0) + scale * ms_exec_weight(g->name, index) + (probed ? x->options->probe_by : 0));
      }
  }
}

/* Chunks in the order of the flat arrays: DualPipe's two owners of a stage lay its halves down alike. */
static int chunk_at(const Exec *x, int i) {
  gboolean swapped =
      ms_schedule_row(x->scenario->layout.schedule)->copies == MS_COPIES_TWO && x->stage >= x->layout->pp / 2;
  return swapped ? x->layout->vpp - 1 - i : i;
}

static void make_instances(Exec *x) {
  x->instance_at = g_new(int, x->layout->vpp);
  for (int i = 0; i < x->layout->vpp; i++) {
    int c = chunk_at(x, i);
    const MsChunk *chunk = ms_layout_chunk(x->layout, x->stage, c);
    x->instance_at[c] = x->n_instances;
    for (int j = 0; j < ms_work_chunk_length(x->work, chunk); j++) {
      int piece = ms_work_chunk_piece(x->work, chunk, j), first = chunk->has_embedding ? 1 : 0;
      MsPieceKind kind = x->work->pieces[piece].kind;
      x->instance = g_renew(Instance, x->instance, x->n_instances + 1);
      Instance *p = &x->instance[x->n_instances++];
      *p = (Instance){.piece = piece, .chunk = c, .at = j, .layer = -1};
      if (kind == MS_PIECE_LAYER)
        p->layer = chunk->first_layer + j - first, p->mixers = ms_model_mixers(x->model, p->layer);
      if (kind == MS_PIECE_MTP)
        p->layer = x->model->num_layers + j - first - chunk->num_layers, p->mixers = ms_model_mtp_mixers(x->model);
    }
  }
}

void ms_exec_params_new(Exec *x) {
  Cut cut = {x->layout->tp, x->ti, x->layout->ep, x->ei, x->layout->etp, x->ui};
  make_instances(x);
  for (int i = 0; i < x->n_instances; i++) {
    Instance *p = &x->instance[i];
    make_params(x, i, &cut);
    for (int kind = 0; kind < 2; kind++) p->from[kind] = x->flat[kind].n;
    for (int j = 0; j < p->n; j++)
      if (p->param[j].alias < 0) {
        Param *q = &p->param[j];
        q->at = x->flat[q->expert].n;
        x->flat[q->expert].n += q->rows * q->cols;
      }
    for (int kind = 0; kind < 2; kind++) p->count[kind] = x->flat[kind].n - p->from[kind];
  }
  for (int kind = 0; kind < 2; kind++) {
    x->flat[kind].param = g_malloc((gsize)x->flat[kind].n * x->k->real_B + 1);
    x->flat[kind].grad = g_malloc0((gsize)x->flat[kind].n * x->k->real_B + 1);
  }
  for (int i = 0; i < x->n_instances; i++)
    for (int j = 0; j < x->instance[i].n; j++)
      if (x->instance[i].param[j].alias < 0) initialize(x, &x->instance[i].param[j]);
}

static void clear_instance(Instance *p) {
  for (int j = 0; j < p->n; j++) g_free(p->param[j].segment);
  g_free(p->param);
}

void ms_exec_params_free(Exec *x) {
  for (int i = 0; i < x->n_instances; i++) clear_instance(&x->instance[i]);
  g_free(x->instance), g_free(x->instance_at);
  for (int kind = 0; kind < 2; kind++) g_free(x->flat[kind].param), g_free(x->flat[kind].grad);
}

/* Parameters that several ranks hold alike are counted by the first of them: TP rank 0 of what TP replicates, the
 * embedding's own stage of its copies. */
void ms_exec_counted(Exec *x, int kind, gint64 from, gint64 n, ExecPart see, gpointer data) {
  for (int i = 0; i < x->n_instances; i++)
    for (int j = 0; j < x->instance[i].n; j++) {
      const Param *p = &x->instance[i].param[j];
      if (p->alias >= 0 || p->expert != kind || p->copy || (p->replicated && x->ti > 0)) continue;
      gint64 first = MAX(from, p->at), end = MIN(from + n, p->at + p->rows * p->cols);
      if (end > first) see(x, p, first, end - first, data);
    }
}
