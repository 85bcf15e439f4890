/* src/exec/rows_linear.c - linear layers with their tensor-parallel messages, norms, activations of plain MLPs,
 * residual adds. */
#include "exec/state_priv.h"

#include <string.h>

/* --- the linear layers that rows name -------------------------------------------------------------------------- */

#define TENSORS(i, o)                                                                \
  .in = i, .out = o, .d_in = "d " i, .d_out = "d " o, .gathered_in = i ", gathered", \
  .gathered_d_out = "d " o ", gathered"
static const Linear linears[] = {
    {.name = "qkv",
     .module = -1,
     .kind = LINEAR_COLUMN,
     TENSORS("normed input", "qkv raw"),
     .weight = "qkv",
     .bias = "qkv bias"},
    {.name = "kv", .module = -1, .kind = LINEAR_COLUMN, TENSORS("normed input", "qkv raw"), .weight = "kv"},
    {.name = "attention out",
     .module = -1,
     .kind = LINEAR_ROW,
     .in = "attention out",
     .out = "attention projected",
     .d_in = "d attention out",
     .d_out = "d attention residual",
     .gathered_in = "",
     .gathered_d_out = "d attention projected, gathered",
     .weight = "attention out",
     .bias = "attention out bias",
     .keeps_d_out = TRUE},
    {.name = "q down", .module = -1, .kind = LINEAR_PLAIN, TENSORS("normed input", "q latent"), .weight = "q down"},
    {.name = "kv down",
     .module = -1,
     .kind = LINEAR_PLAIN,
     TENSORS("normed input", "kv down out"),
     .weight = "kv down"},
    {.name = "q up", .module = -1, .kind = LINEAR_COLUMN, TENSORS("normed q latent", "q up out"), .weight = "q up"},
    {.name = "kv up", .module = -1, .kind = LINEAR_COLUMN, TENSORS("normed kv latent", "kv up out"), .weight = "kv up"},
    {.name = "fc1",
     .module = -1,
     .kind = LINEAR_COLUMN,
     TENSORS("normed mlp input", "fc1 out"),
     .weight = "fc1",
     .bias = "fc1 bias"},
    {.name = "fc2",
     .module = -1,
     .kind = LINEAR_ROW,
     .in = "activation out",
     .out = "mlp out",
     .d_in = "d activation out",
     .d_out = "d mlp residual",
     .gathered_in = "",
     .gathered_d_out = "d mlp out, gathered",
     .weight = "fc2",
     .bias = "fc2 bias",
     .keeps_d_out = TRUE},
    {.name = "shared fc1",
     .module = -1,
     .kind = LINEAR_COLUMN,
     TENSORS("normed mlp input", "shared fc1 out"),
     .weight = "shared fc1"},
    {.name = "shared fc2",
     .module = -1,
     .kind = LINEAR_ROW,
     .in = "shared activation out",
     .out = "shared out",
     .d_in = "d shared activation out",
     .d_out = "d mlp residual",
     .gathered_in = "",
     .gathered_d_out = "d shared out, gathered",
     .weight = "shared fc2",
     .keeps_d_out = TRUE},
    {.name = "router",
     .module = -1,
     .kind = LINEAR_PLAIN,
     TENSORS("normed mlp input", "logits"),
     .weight = "router",
     .bias = "router bias"},
    {.name = "latent down",
     .module = -1,
     .kind = LINEAR_PLAIN,
     TENSORS("normed mlp input", "tokens"),
     .weight = "latent down"},
    {.name = "latent up",
     .module = -1,
     .kind = LINEAR_PLAIN,
     .in = "latent tokens",
     .out = "moe out",
     .d_in = "d latent tokens",
     .d_out = "d mlp residual",
     .gathered_in = "",
     .gathered_d_out = "",
     .weight = "latent up",
     .keeps_d_out = TRUE},
    {.name = "eh proj", .module = -1, .kind = LINEAR_COLUMN, TENSORS("mtp concat", "eh out"), .weight = "eh proj"},
};

/* The head runs once for the model and once for each MTP block: tensors of the further passes have its number behind
 * them. */
static const char *numbered(const char *format, int copy) {
  char name[64], number[16] = "";
  if (copy > 0) g_snprintf(number, sizeof number, " %d", copy + 1);
  g_snprintf(name, sizeof name, format, number);
  return g_intern_string(name);
}

const Linear *ms_exec_head(Exec *x, int copy) {
  Linear *l = &x->head[copy];
  if (l->name) return l;
  *l = (Linear){.name = "head",
                .module = -1,
                .kind = LINEAR_COLUMN,
                .in = numbered("final norm out%s", copy),
                .out = numbered("logits%s", copy),
                .weight = "table",
                .d_in = numbered("d final norm out%s", copy),
                .d_out = numbered("d logits%s", copy),
                .gathered_in = numbered("final norm out%s, gathered", copy),
                .gathered_d_out = ""};
  return l;
}

const Linear *ms_exec_linear(Exec *x, const MsOp *gemm, int turn) {
  int copies = 1 + x->model->mtp_num_layers;
  if (strcmp(gemm->name, "head") == 0)
    return turn < copies ? ms_exec_head(x, gemm->pass == MS_PASS_FORWARD ? turn : copies - 1 - turn) : NULL;
  for (guint i = 0; i < G_N_ELEMENTS(linears); i++) {
    const Linear *l = &linears[i];
    if (strcmp(l->name, gemm->name) != 0) continue;
    if (strcmp(l->name, "q up") == 0 && x->model->multi_latent_attention.q_lora_rank == 0 &&
        x->model->query_latent_size == 0 &&
        !ms_model_norms_query_input(x->model)) { /* no latent: straight from the normed input */
      static const Linear full = {
          .name = "q up", .module = -1, .kind = LINEAR_COLUMN, TENSORS("normed input", "q up out"), .weight = "q up"};
      return &full;
    }
    if (strcmp(l->name, "eh proj") == 0 && x->t == 1) { /* nothing to gather: what it makes is the input of the layer */
      static const Linear alone = {.name = "eh proj",
                                   .module = -1,
                                   .kind = LINEAR_COLUMN,
                                   .in = "mtp concat",
                                   .out = "layer input",
                                   .d_in = "d mtp concat",
                                   .d_out = "d layer out",
                                   .gathered_in = "",
                                   .gathered_d_out = "",
                                   .weight = "eh proj"};
      return &alone;
    }
    if (strcmp(l->name, "shared fc1") == 0 && x->scenario->options.moe_shared_expert_overlap) {
      static const Linear beside = {.name = "shared fc1",
                                    .module = -1,
                                    .kind = LINEAR_COLUMN,
                                    TENSORS("normed mlp input", "shared fc1 out"),
                                    .weight = "shared fc1",
                                    .keeps_gathered = TRUE};
      return &beside;
    }
    return l;
  }
  return NULL;
}

/* --- GEMMs ----------------------------------------------------------------------------------------------------- */

static gboolean has_tp(const Exec *x) { return x->t > 1; }
static gboolean gathers(const Exec *x, const Linear *l) { return l->kind == LINEAR_COLUMN && x->sp; }

static void add_bias(Exec *x, const Linear *l, void *y, gint64 rows, gint64 width) {
  if (l->bias && ms_exec_param_find(x, l->bias)) ms_exec_add_row(x, rows, width, ms_exec_param(x, l->bias), y);
}

static void linear_forward(Exec *x) {
  const Linear *l = x->row->linear;
  const MsOp *op = x->row->op;
  gint64 m = (gint64)op->m, n = (gint64)op->n, k = (gint64)op->k;
  const char *from = gathers(x, l) ? l->gathered_in : l->in;
  const void *in = ms_exec_get(x, from, m * k);
  void *out = ms_exec_new(x, l->out, m * n);
  x->k->gemm(&x->run, FALSE, TRUE, m, n, k, 1, in, k, ms_exec_param(x, l->weight), k, 0, out, n);
  if (gathers(x, l) && !l->keeps_gathered) ms_exec_drop(x, from);
  if (!(l->kind == LINEAR_ROW && has_tp(x))) add_bias(x, l, out, m, n); /* else behind the sum */
}

/* dX = dY W. A column layer's is a part of a sum over TP: its message adds it up. */
void ms_exec_linear_dgrad(Exec *x) {
  const Linear *l = x->row->linear;
  const MsOp *op = x->row->op;
  gint64 m = (gint64)op->m, n = (gint64)op->n, k = (gint64)op->k; /* rows, inputs, outputs */
  const void *dy = ms_exec_get(x, l->kind == LINEAR_ROW && x->sp ? l->gathered_d_out : l->d_out, m * k);
  const void *w = ms_exec_param(x, l->weight);
  if (l->kind == LINEAR_COLUMN && has_tp(x)) {
    x->k->gemm(&x->run, FALSE, FALSE, m, n, k, 1, dy, k, w, n, 0, ms_exec_new(x, "d input, part", m * n), n);
    return;
  }
  void *dx = ms_exec_find(x, l->d_in);
  double beta = dx ? 1 : 0;
  dx = dx ? ms_exec_get(x, l->d_in, m * n) : ms_exec_new(x, l->d_in, m * n);
  x->k->gemm(&x->run, FALSE, FALSE, m, n, k, 1, dy, k, w, n, beta, dx, n);
}

static void bias_gradient(Exec *x, const Linear *l, gint64 width) {
  if (!l->bias || !ms_exec_param_find(x, l->bias)) return;
  gint64 n = ms_exec_length(x, l->d_out);
  ms_exec_sum_rows(x, n / width, width, ms_exec_get(x, l->d_out, n), ms_exec_grad(x, l->bias));
}

/* dW += dY^T X; without fused accumulation into a tensor of its own, which a row of its own adds. */
static void linear_wgrad(Exec *x) {
  const Linear *l = x->row->linear;
  const MsOp *op = x->row->op;
  gint64 n = (gint64)op->m, k = (gint64)op->n, m = (gint64)op->k; /* outputs, inputs, rows */
  const char *in = gathers(x, l) ? l->gathered_in : l->in,
             *d_out = l->kind == LINEAR_ROW && x->sp ? l->gathered_d_out : l->d_out;
  const void *dy = ms_exec_get(x, d_out, m * n), *from = ms_exec_get(x, in, m * k);
  gboolean apart = !x->scenario->options.gradient_accumulation_fusion &&
                   (x->row[1].op && strcmp(x->row[1].op->name, "gradient accumulate") == 0);
  void *dw = apart ? ms_exec_new(x, "d weight", n * k) : ms_exec_grad(x, l->weight);
  x->k->gemm(&x->run, TRUE, FALSE, n, k, m, 1, dy, n, from, k, apart ? 0 : 1, dw, k);
  bias_gradient(x, l, n);
  if (gathers(x, l) && !l->keeps_gathered) ms_exec_drop(x, l->gathered_in);
  if (l->kind == LINEAR_ROW && x->sp) ms_exec_drop(x, l->gathered_d_out);
  if (!l->keeps_d_out) ms_exec_drop(x, l->d_out);
}

static void accumulate(Exec *x) {
  const Param *p = ms_exec_param_find(x, x->row->linear->weight);
  void *to = ms_exec_grad(x, x->row->linear->weight);
  x->k->add(p->rows * p->cols, to, ms_exec_get(x, "d weight", p->rows * p->cols), to);
  ms_exec_drop(x, "d weight");
}

/* --- their messages over TP ------------------------------------------------------------------------------------ */

static gint64 *even(Exec *x, gint64 n, int parts) {
  gint64 *counts = ms_exec_scratch_B(x, sizeof(gint64) * (size_t)parts);
  for (int i = 0; i < parts; i++) counts[i] = n / parts;
  return counts;
}

void ms_exec_tp_gather(Exec *x, const char *from, const char *to) {
  gint64 mine = ms_exec_length(x, from);
  const void *in = ms_exec_get(x, from, mine);
  void *all = ms_exec_new(x, to, mine * x->t);
  ms_comm_all_gather(x->comm, MS_GROUP_TP, in, all, even(x, mine * x->t, (int)x->t), 0);
  ms_exec_sent(x, (double)(mine * x->t), 2);
}

/* Sum over TP of `part`: shards of rows with sequence parallelism, everything without. Replaces `to`, or adds to it. */
void ms_exec_tp_sum(Exec *x, const char *part, const char *to, gboolean add) {
  gint64 n = ms_exec_length(x, part);
  void *all = ms_exec_get(x, part, n);
  ms_exec_sent(x, (double)n, 2);
  if (x->row->op->kind == MS_OP_ALL_REDUCE) {
    ms_comm_all_reduce(x->comm, MS_GROUP_TP, all, n, FALSE);
    if (add && ms_exec_find(x, to)) ms_exec_accumulate(x, to, all, n), ms_exec_drop(x, part);
    else if (strcmp(part, to) != 0) ms_exec_rename(x, part, to);
    return;
  }
  void *mine = ms_exec_scratch(x, n / x->t);
  ms_comm_reduce_scatter(x->comm, MS_GROUP_TP, all, mine, even(x, n, (int)x->t));
  ms_exec_drop(x, part);
  if (!add) ms_exec_drop(x, to);
  ms_exec_accumulate(x, to, mine, n / x->t);
}

static void tp_gather(Exec *x) {
  const Linear *l = x->row->linear;
  if (l->kind == LINEAR_ROW) ms_exec_tp_gather(x, l->d_out, l->gathered_d_out);
  else ms_exec_tp_gather(x, l->in, l->gathered_in);
}

static void tp_sum(Exec *x) {
  const Linear *l = x->row->linear;
  if (x->row->op->pass == MS_PASS_DGRAD) {
    ms_exec_tp_sum(x, "d input, part", l->d_in, TRUE);
    return;
  }
  ms_exec_tp_sum(x, l->out, l->out, FALSE);
  gint64 n = ms_exec_length(x, l->out);
  add_bias(x, l, ms_exec_get(x, l->out, n), n / x->h, x->h); /* row layers end at the hidden width */
}

/* --- norms ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name, *in, *out, *d_in, *d_out, *gain, *bias;
} Norm;
#define NORM(i, o) i, o, "d " i, "d " o
static const Norm norms[] = {
    {"input norm", NORM("layer input", "normed input"), "attention norm", "attention norm bias"},
    {"mlp norm", NORM("mlp input", "normed mlp input"), "mlp norm", "mlp norm bias"},
    {"q latent norm", NORM("q latent", "normed q latent"), "q latent norm", "q latent norm bias"},
    {"kv latent norm", NORM("kv latent", "normed kv latent"), "kv latent norm", "kv latent norm bias"},
    {"final norm", NORM("final norm in", "final norm out"), "final norm", "final norm bias"},
    {"mtp embedding norm", NORM("mtp embedding", "normed mtp embedding"), "mtp embedding norm",
     "mtp embedding norm bias"},
    {"mtp hidden norm", NORM("mtp hidden", "normed mtp hidden"), "mtp hidden norm", "mtp hidden norm bias"},
    {"mtp final norm", "mtp final norm in", "mtp out", "d mlp residual", "d mtp out", "mtp final norm",
     "mtp final norm bias"},
};

/* Of a query without a latent. */
static const Norm query_input_norm = {"q latent norm", NORM("normed input", "normed q latent"), "q latent norm",
                                      "q latent norm bias"};

static const Norm *norm_of(const Exec *x) {
  if (strcmp(x->row->op->name, "q latent norm") == 0 && ms_model_norms_query_input(x->model)) return &query_input_norm;
  for (guint i = 0; i < G_N_ELEMENTS(norms); i++)
    if (strcmp(norms[i].name, x->row->op->name) == 0) return &norms[i];
  return NULL;
}

static MsKernelNorm norm_kind(const Exec *x) {
  switch (x->model->normalization) {
  case MS_NORM_RMS: break;
  case MS_NORM_LAYER: return MS_KNORM_LAYER;
  }
  return MS_KNORM_RMS;
}
static const void *norm_bias(Exec *x, const char *name) {
  return norm_kind(x) == MS_KNORM_LAYER ? ms_exec_param(x, name) : NULL;
}

/* Over rows x width; also heads, whose gain they share. */
void ms_exec_norm(Exec *x, gint64 rows, gint64 width, const char *gain, const char *bias, const void *in, void *out) {
  x->k->norm_forward(norm_kind(x), rows, width, MS_EXEC_EPSILON, in, ms_exec_param(x, gain), norm_bias(x, bias), out);
}

void ms_exec_norm_back(Exec *x, gint64 rows, gint64 width, const char *gain, const char *bias, const void *in,
                       const void *d_out, void *d_in) {
  x->k->norm_backward(norm_kind(x), rows, width, MS_EXEC_EPSILON, in, ms_exec_param(x, gain), d_out, d_in,
                      ms_exec_grad(x, gain), norm_kind(x) == MS_KNORM_LAYER ? ms_exec_grad(x, bias) : NULL);
}

static void norm_forward(Exec *x) {
  const Norm *n = norm_of(x);
  gint64 rows = (gint64)x->row->op->m, width = (gint64)x->row->op->n;
  const void *in = ms_exec_get(x, n->in, rows * width);
  ms_exec_norm(x, rows, width, n->gain, n->bias, in, ms_exec_new(x, n->out, rows * width));
}

static void norm_backward(Exec *x) {
  const Norm *n = norm_of(x);
  gint64 rows = (gint64)x->row->op->m, width = (gint64)x->row->op->n;
  const void *d_out = ms_exec_get(x, n->d_out, rows * width), *in = ms_exec_get(x, n->in, rows * width);
  ms_exec_norm_back(x, rows, width, n->gain, n->bias, in, d_out, ms_exec_new(x, n->d_in, rows * width));
  ms_exec_drop(x, n->d_out);
}

/* --- the residual stream --------------------------------------------------------------------------------------- */

static gboolean in_attention(const Exec *x) { return x->row->op->module == MS_MODULE_ATTN; }

static void residual_add(Exec *x) {
  gint64 n = x->Tsp * x->h;
  gboolean attention = in_attention(x);
  const void *in = ms_exec_get(x, attention ? "layer input" : "mlp input", n);
  const char *part = attention ? "attention projected" : x->now->mixers & MS_MIX_MOE ? "moe out" : "mlp out";
  void *out = ms_exec_new(x,
                          attention && ms_exec_has_mlp(x)                       ? "mlp input"
                          : x->work->pieces[x->now->piece].kind == MS_PIECE_MTP ? "mtp final norm in"
                                                                                : "layer out",
                          n);
  x->k->add(n, in, ms_exec_get(x, part, n), out);
  ms_exec_drop(x, part);
  if (!attention && ms_exec_find(x, "shared out")) {
    x->k->add(n, out, ms_exec_get(x, "shared out", n), out);
    ms_exec_drop(x, "shared out");
  }
}

/* What flows past the sub-layer and what came through it. */
static void gradient_add(Exec *x) {
  gint64 n = x->Tsp * x->h;
  gboolean attention = in_attention(x);
  const void *past = ms_exec_get(x, attention ? "d attention residual" : "d mlp residual", n);
  const void *through = ms_exec_get(x, attention ? "d layer input" : "d mlp input", n);
  x->k->add(n, past, through,
            ms_exec_new(x, !attention && x->now->mixers & MS_MIX_ATTN ? "d attention residual" : "d layer out", n));
  ms_exec_drop(x, attention ? "d layer input" : "d mlp input");
}

/* --- activation between two linears ---------------------------------------------------------------------------- */

MsKernelActivation ms_exec_activation(const Exec *x) {
  switch (x->model->activation) {
  case MS_ACT_QUICK_GELU: return MS_KACT_GEGLU_QUICK;
  case MS_ACT_GELU: return MS_KACT_GELU;
  case MS_ACT_SQUARED_RELU: return MS_KACT_RELU2;
  case MS_ACT_SILU: break;
  }
  return MS_KACT_SWIGLU;
}

static double clamp(const Exec *x) { return x->model->activation == MS_ACT_QUICK_GELU ? MS_EXEC_CLAMP : 0; }

static void activation(Exec *x) {
  gboolean shared = x->row->op->module == MS_MODULE_SHARED, back = x->row->op->pass == MS_PASS_DGRAD;
  gint64 rows = (gint64)x->row->op->m, width = (gint64)x->row->op->n, wide = (x->model->gated ? 2 : 1) * width;
  const void *in = ms_exec_get(x, shared ? "shared fc1 out" : "fc1 out", rows * wide);
  if (!back) {
    x->k->activation_forward(ms_exec_activation(x), rows, width, clamp(x), in, NULL,
                             ms_exec_new(x, shared ? "shared activation out" : "activation out", rows * width));
    return;
  }
  const char *d = shared ? "d shared activation out" : "d activation out";
  void *d_in = ms_exec_new(x, shared ? "d shared fc1 out" : "d fc1 out", rows * wide);
  x->k->activation_backward(ms_exec_activation(x), rows, width, clamp(x), in, NULL, ms_exec_get(x, d, rows * width),
                            d_in, NULL);
  ms_exec_drop(x, d);
}

const Handler ms_exec_linear_rows[] = {{MS_OP_GEMM, NULL, -1, PASS_F, linear_forward},
                                       {MS_OP_GEMM, NULL, -1, PASS_D, ms_exec_linear_dgrad},
                                       {MS_OP_GEMM, NULL, -1, PASS_W, linear_wgrad}, /* those of the table */
                                       {MS_OP_ALL_GATHER, "tp gather", -1, PASS_F | PASS_D | PASS_W, tp_gather},
                                       {MS_OP_ALL_GATHER, "tp scatter", -1, PASS_D, tp_gather},
                                       {MS_OP_REDUCE_SCATTER, "tp scatter", -1, PASS_F, tp_sum},
                                       {MS_OP_REDUCE_SCATTER, "tp gather", -1, PASS_D, tp_sum},
                                       {MS_OP_ALL_REDUCE, "tp scatter", -1, PASS_F, tp_sum},
                                       {MS_OP_ALL_REDUCE, "tp gather", -1, PASS_D, tp_sum},
                                       {MS_OP_ADD, "gradient accumulate", -1, PASS_W, accumulate},
                                       {MS_OP_NORM, "input norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "input norm", -1, PASS_D, norm_backward},
                                       {MS_OP_NORM, "mlp norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "mlp norm", -1, PASS_D, norm_backward},
                                       {MS_OP_NORM, "q latent norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "q latent norm", -1, PASS_D, norm_backward},
                                       {MS_OP_NORM, "kv latent norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "kv latent norm", -1, PASS_D, norm_backward},
                                       {MS_OP_NORM, "final norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "final norm", -1, PASS_D, norm_backward},
                                       {MS_OP_NORM, "mtp embedding norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "mtp embedding norm", -1, PASS_D, norm_backward},
                                       {MS_OP_NORM, "mtp hidden norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "mtp hidden norm", -1, PASS_D, norm_backward},
                                       {MS_OP_NORM, "mtp final norm", -1, PASS_F, norm_forward},
                                       {MS_OP_NORM, "mtp final norm", -1, PASS_D, norm_backward},
                                       {MS_OP_ADD, "residual add", -1, PASS_F, residual_add},
                                       {MS_OP_ADD, "gradient add", -1, PASS_D, gradient_add},
                                       {MS_OP_ACTIVATION, "activation", -1, PASS_F | PASS_D, activation},
                                       {0}};
