/* src/work/lora.c - rows of low-rank adapters beside frozen linear layers (describe/lora.h), as Megatron-Bridge lays
 * them out (peft/utils.py, ParallelLinearAdapter): A splits its rank over the tensor-parallel ranks beside a column-
 * parallel or unsplit layer and its inputs beside a row-parallel one, B always its outputs. Halves are plain BF16
 * products whatever the layer's precision; sequences are whole in between. */
#include "work/build.h"

#include <string.h>

typedef struct {
  const MsLoraTarget *target;
  const char *row; /* the layer beside it */
  MsLinearKind kind;
  double m, k, n; /* of the layer on this rank; n: outputs that this adapter feeds */
  double split;   /* ranks that share A's rank, or its inputs, and B's outputs */
  gboolean input_kept, expert;
} Adapter;

enum { MOST_BESIDE = 4 };

static gboolean beside(const MsLoraTarget *target, const char *row) {
  for (int i = 0; i < MS_LORA_ROWS && target->row[i]; i++)
    if (strcmp(target->row[i], row) == 0) return TRUE;
  return FALSE;
}

/* The adapters beside a layer that is like `like` but for target and n. */
static int adapters_of(const MsBuild *b, const Adapter *like, const double part[3], Adapter out[MOST_BESIDE]) {
  guint32 targets = b->training->lora.targets;
  int n = 0;
  for (int i = 0; ms_frozen(b) && i < ms_n_lora_targets; i++) {
    const MsLoraTarget *t = &ms_lora_targets[i];
    if (!(targets >> i & 1) || !beside(t, like->row) || !ms_lora_target_exists(t, b->model)) continue;
    out[n] = *like;
    out[n].target = t;
    if (t->part != MS_LORA_WHOLE) out[n].n = part[t->part - MS_LORA_FIRST];
    n++;
  }
  return n;
}

static const char *name_of(const Adapter *a, const char *what) {
  g_autofree char *name = g_strdup_printf("%s %s", a->target->word, what),
                  *full = g_strdup_printf("%s, %s", name, a->row);
  return g_intern_string(full);
}

static double rank(const MsBuild *b) { return b->training->lora.rank; }

static MsLinear half(const Adapter *a, const char *name, guint16 split, double n, double k) {
  return (MsLinear){.name = name,
                    .kind = MS_LINEAR_PLAIN,
                    .m = a->m,
                    .n = n,
                    .k = k,
                    .weight = (guint16)((a->expert ? MS_OPF_EXPERT : 0) | (a->split > 1 ? split : 0)),
                    .comm_in = "",
                    .comm_out = "",
                    .fused_accumulate = TRUE,
                    .adapter = TRUE};
}

static MsLinear half_in(const MsBuild *b, const Adapter *a) {
  gboolean row = a->kind == MS_LINEAR_ROW;
  return half(a, name_of(a, "lora in"), row ? MS_OPF_COLUMNS_SPLIT : MS_OPF_ROWS_SPLIT,
              row ? rank(b) : rank(b) / a->split, a->k);
}

/* A column-parallel layer has split its outputs already. */
static MsLinear half_out(const MsBuild *b, const Adapter *a) {
  return half(a, name_of(a, "lora out"), MS_OPF_ROWS_SPLIT, a->kind == MS_LINEAR_COLUMN ? a->n : a->n / a->split,
              rank(b));
}

/* Elements of the layer's output on this rank, to which the adapter's is added. */
static double out_elements(const MsBuild *b, const Adapter *a) {
  return a->m * a->n / (a->kind == MS_LINEAR_ROW && b->sp && !a->expert ? b->t : 1);
}

static MsOp *over_tp(MsBuild *b, MsOpKind kind, const Adapter *a, const char *what, double elements) {
  return a->split > 1 ? ms_row_comm(b, kind, name_of(a, what), MS_STREAM_TP, MS_GROUP_TP, 2 * elements) : NULL;
}

static gboolean exchanges(const MsBuild *b, const Adapter *a) {
  return b->training->lora.a2a && b->sp && a->kind == MS_LINEAR_ROW;
}

/* Outputs of B, split by columns, to where the layer's output is; with `back` their gradients. */
static void outputs_between_ranks(MsBuild *b, const Adapter *a, gboolean back) {
  if (a->kind == MS_LINEAR_COLUMN) return;
  double whole = a->m * a->n;
  if (exchanges(b, a)) over_tp(b, MS_OP_ALL_TO_ALL, a, "lora exchange", whole / a->split);
  else if (!back || (a->kind == MS_LINEAR_ROW && b->sp)) over_tp(b, MS_OP_ALL_GATHER, a, "lora gather out", whole);
}

static void drop_row(MsBuild *b, const Adapter *a, gboolean back) {
  double x = a->m * a->k;
  if (b->training->lora.dropout > 0)
    ms_row_memory(b, MS_OP_ADD, name_of(a, "lora dropout"), (back ? 3 : 2) * x, (back ? 2 : 3) * x, 1);
}

static void count_params(MsBuild *b, const Adapter *a, double params) {
  if (b->pass != MS_PASS_FORWARD || b->list != &b->piece->forward) return;
  *(a->expert ? &b->piece->adapters_expert : &b->piece->adapters_dense) += params;
}

static void keep(MsBuild *b, const Adapter *a, const char *what, double bytes_B) {
  if (b->pass == MS_PASS_FORWARD) ms_keep(b, name_of(a, what), bytes_B);
}

/* Adapters beside one layer share its input, but not when each drops its own elements. */
static void keep_input(MsBuild *b, const Adapter *a, gboolean first) {
  double x = a->m * a->k;
  if (b->training->lora.dropout > 0) {
    keep(b, a, "lora mask", x);
    keep(b, a, "lora input", 2 * x);
  } else if (first && !a->input_kept) {
    keep(b, a, "lora input", 2 * x);
  }
}

static void forward(MsBuild *b, const Adapter *a, gboolean first) {
  MsLinear in = half_in(b, a), out = half_out(b, a);
  double y = out_elements(b, a);
  drop_row(b, a, FALSE);
  ms_layer_forward(b, &in);
  keep_input(b, a, first);
  over_tp(b, a->kind == MS_LINEAR_ROW ? MS_OP_ALL_REDUCE : MS_OP_ALL_GATHER, a, "lora rank", a->m * rank(b));
  ms_layer_forward(b, &out);
  keep(b, a, "lora middle", 2 * a->m * rank(b));
  outputs_between_ranks(b, a, FALSE);
  ms_row_memory(b, MS_OP_ADD, name_of(a, "lora scale"), 2 * y, 2 * y, 1);
  ms_row_memory(b, MS_OP_ADD, name_of(a, "lora add"), 4 * y, 2 * y, 1);
  count_params(b, a, in.n * in.k + out.n * out.k);
}

static void backward(MsBuild *b, const Adapter *a, gboolean first) {
  MsLinear in = half_in(b, a), out = half_out(b, a);
  double y = out_elements(b, a), x = a->m * a->k;
  b->pass = MS_PASS_DGRAD;
  ms_row_memory(b, MS_OP_ADD, name_of(a, "lora scale"), 2 * y, 2 * y, 1);
  outputs_between_ranks(b, a, TRUE);
  ms_layer_backward(b, &out);
  ms_free_kept(b, name_of(a, "lora middle"));
  b->pass = MS_PASS_DGRAD;
  over_tp(b, MS_OP_ALL_REDUCE, a, "lora rank", a->m * rank(b));
  ms_layer_backward(b, &in);
  b->pass = MS_PASS_DGRAD;
  /* with sequence parallelism the gradient of the gathered input is summed with the layer's, which is scattered */
  if (a->kind != MS_LINEAR_ROW && !b->sp && !a->expert) over_tp(b, MS_OP_ALL_REDUCE, a, "lora input", x);
  drop_row(b, a, TRUE);
  if (b->training->lora.dropout > 0 || first) ms_free_kept(b, name_of(a, "lora input"));
  ms_free_kept(b, name_of(a, "lora mask"));
  ms_row_memory(b, MS_OP_ADD, name_of(a, "lora gradient add"), 4 * x, 2 * x, 1);
}

static Adapter beside_linear(const MsBuild *b, const MsLinear *l) {
  return (Adapter){
      .row = l->name, .kind = l->kind, .m = l->m, .k = l->k, .n = l->n, .split = b->t, .input_kept = l->input_kept};
}

static void all_forward(MsBuild *b, const Adapter *like, const double part[3]) {
  Adapter a[MOST_BESIDE];
  for (int i = 0, n = adapters_of(b, like, part, a); i < n; i++) forward(b, &a[i], i == 0);
}

/* Last to first: what the first one keeps for all is freed behind the last use. */
static void all_backward(MsBuild *b, const Adapter *like, const double part[3]) {
  Adapter a[MOST_BESIDE];
  for (int i = adapters_of(b, like, part, a) - 1; i >= 0; i--) backward(b, &a[i], i == 0);
}

static gboolean has_adapters(const MsBuild *b, const MsLinear *l) { return !l->adapter && ms_frozen(b); }

void ms_linear_forward(MsBuild *b, const MsLinear *l) {
  ms_layer_forward(b, l);
  if (!has_adapters(b, l)) return;
  Adapter like = beside_linear(b, l);
  all_forward(b, &like, l->part);
}

void ms_linear_backward(MsBuild *b, const MsLinear *l) {
  b->pass = MS_PASS_DGRAD;
  if (has_adapters(b, l)) {
    Adapter like = beside_linear(b, l);
    all_backward(b, &like, l->part);
  }
  ms_layer_backward(b, l);
}

/* Experts are not split (rule lora-experts-whole). */
static Adapter beside_experts(const char *row, double rows, double n, double k) {
  return (Adapter){.row = row, .kind = MS_LINEAR_PLAIN, .m = rows, .k = k, .n = n, .split = 1, .expert = TRUE};
}

void ms_lora_experts_forward(MsBuild *b, const char *row, double rows, double n, double k) {
  Adapter like = beside_experts(row, rows, n, k);
  all_forward(b, &like, (const double[]){n / 2, n / 2, 0});
}

void ms_lora_experts_backward(MsBuild *b, const char *row, double rows, double n, double k) {
  Adapter like = beside_experts(row, rows, n, k);
  all_backward(b, &like, (const double[]){n / 2, n / 2, 0});
}
