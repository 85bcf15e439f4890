/* src/work/rows.c - laying down rows: the chain, communication, kept tensors. */
#include "work/build.h"
#include "base/err.h"
#include "describe/vendor.h"
#include <math.h>
#include <string.h>

enum { FEW_ROWS = 16 }; /* a list of a stage holds a few rows, one of a layer a hundred */

static MsOp *append(MsOpList *list) {
  if (list->n == list->capacity) {
    list->capacity = list->capacity ? 2 * list->capacity : FEW_ROWS;
    list->op = g_renew(MsOp, list->op, list->capacity);
  }
  MsOp *op = &list->op[list->n++];
  memset(op, 0, sizeof *op);
  op->wait[0] = op->wait[1] = op->wait[2] = -1;
  return op;
}

static MsOp *lay(MsBuild *b, MsOpKind kind, const char *name, MsStream stream) {
  MsOp *op = append(b->list);
  op->name = name;
  op->kind = (guint8)kind;
  op->pass = (guint8)b->pass;
  op->stream = (guint8)(ms_serial(b) ? MS_STREAM_COMPUTE : stream);
  op->node = (guint8)b->node;
  op->module = (guint8)b->module;
  op->dtype = MS_ODT_BF16;
  op->kernels = 1;
  op->groups = op->kv_groups = 1;
  int n = 0;
  if (b->tip >= 0) op->wait[n++] = (gint16)b->tip;
  for (int i = 0; i < 2; i++)
    if (b->join[i] >= 0 && b->join[i] != b->tip) op->wait[n++] = (gint16)b->join[i];
  b->join[0] = b->join[1] = -1;
  return op;
}

int ms_row_index(const MsBuild *b, const MsOp *op) { return (int)(op - b->list->op); }

MsOp *ms_row(MsBuild *b, MsOpKind kind, const char *name) {
  MsOp *op = lay(b, kind, name, b->beside);
  b->tip = ms_row_index(b, op);
  return op;
}

MsOp *ms_row_async(MsBuild *b, MsOpKind kind, const char *name, MsStream stream) {
  int join[2] = {b->join[0], b->join[1]};
  MsOp *op = lay(b, kind, name, stream);
  b->join[0] = join[0], b->join[1] = join[1]; /* the chain still has to join them */
  return op;
}

void ms_join(MsBuild *b, int row) {
  if (row < 0) return;
  for (int i = 0; i < 2; i++)
    if (b->join[i] < 0 || b->join[i] == row) {
      b->join[i] = row;
      return;
    }
  MS_BUG("more than two joins before one row");
}

MsOp *ms_row_memory(MsBuild *b, MsOpKind kind, const char *name, double read_B, double write_B, int kernels) {
  MsOp *op = ms_row(b, kind, name);
  op->read_B = read_B;
  op->write_B = write_B;
  op->kernels = (guint16)kernels;
  return op;
}

void ms_row_passing(MsBuild *b, MsOpKind kind, const char *name, double read_B, double write_B, int kernels) {
  if (!ms_serial(b)) ms_row_memory(b, kind, name, read_B, write_B, kernels);
}

void ms_row_batch_first(MsBuild *b, const char *name, double width) {
  double x = 2 * b->rows * width;
  if (b->training->micro_batch_size > 1) ms_row_memory(b, MS_OP_COPY, name, x, x, 1);
}

void ms_row_exchange(MsBuild *b, const MsExchange *of, const char *before, const char *message, const char *after,
                     double width) {
  double all_B = 2 * b->rows * width;
  if (b->c <= 1) return;
  ms_row_memory(b, MS_OP_COPY, before, of->before * all_B, of->before * all_B, of->before_kernels);
  ms_row_comm(b, MS_OP_ALL_TO_ALL, message, MS_STREAM_CP, MS_GROUP_CP, all_B)->kernels = (guint16)of->messages;
  ms_row_memory(b, MS_OP_COPY, after, of->after * all_B, of->after * all_B, of->after_kernels);
}

/* Without a fused kernel (Megatron-LM models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd): passes over
 * the rotated elements, and kernels for queries and keys together. Forward cosine, sine, their scale and cast, two
 * products, a negated half, its concatenation, the sum and the concatenation with what is not rotated; latent attention
 * also brings even and odd columns side by side, joins queries and keys, and copies the values
 * (transformer/multi_latent_attention.py). Backward a slice's gradient is a tensor of zeros and a copy into it. */
static const struct {
  double read, write;
  int kernels;
} plain_rope[2][2] = {{{6.5, 5.5, 24}, {7, 8, 20}}, {{7.5, 6.5, 29}, {9, 11, 34}}}; /* [latent][backward] */

void ms_row_plain_rope(MsBuild *b, double rotated, double joined) {
  int latent = ms_model_has_mla(b->model), back = b->pass == MS_PASS_DGRAD;
  ms_row_memory(b, MS_OP_ROPE, "rope", 2 * (plain_rope[latent][back].read * rotated + joined),
                2 * (plain_rope[latent][back].write * rotated + joined),
                (int)ceil(plain_rope[latent][back].kernels * b->scenario->laws.plain_operators));
}

static void set_message(MsOp *op, MsGroupKind group, double message_B) {
  op->group = (guint8)group;
  op->message_B = message_B;
}

MsOp *ms_row_comm_async(MsBuild *b, MsOpKind kind, const char *name, MsStream stream, MsGroupKind group,
                        double message_B) {
  if (b->layout->group[group].size <= 1 || message_B <= 0) return NULL;
  MsOp *op = ms_row_async(b, kind, name, stream);
  set_message(op, group, message_B);
  return op;
}

/* The last compute row so far: a collective issued in order waits for everything that was issued to the compute stream
 * before it. */
int ms_last_compute(const MsOpList *list) {
  int i = list->n - 1;
  while (i >= 0 && list->op[i].stream != MS_STREAM_COMPUTE) i--;
  return i;
}

MsOp *ms_row_comm(MsBuild *b, MsOpKind kind, const char *name, MsStream stream, MsGroupKind group, double message_B) {
  if (b->layout->group[group].size <= 1 || message_B <= 0) return NULL;
  int issued = ms_last_compute(b->list);
  if (issued > b->tip) ms_join(b, issued);
  MsOp *op = lay(b, kind, name, stream);
  b->tip = ms_row_index(b, op);
  set_message(op, group, message_B);
  return op;
}

/* --- kept tensors --- */

static MsKept *find_kept(MsPiece *piece, const char *name) {
  for (int i = 0; i < piece->n_kept; i++) {
    const char *kept = piece->kept[i].name;
    if (kept == name || (*kept == *name && !strcmp(kept, name))) return &piece->kept[i];
  }
  return NULL;
}

/* Tensors of each offload module, in the order of the bits (docs/theory/memory.md 5). */
static const char *const offloads[][6] = {
#define MS_OFFLOAD_MODULE(id, word, doc, c1, c2, c3, c4, c5, c6, first, ...) {(first), ##__VA_ARGS__},
#include "describe/offload_module.def"
#undef MS_OFFLOAD_MODULE
};

enum { SMALLEST_OFFLOAD = 1 << 20 }; /* elements: smaller tensors stay */

/* A norm that is one module with the product behind it has no offload of its own, nor has one at the border of a graph:
 * its input leaves with that of the product (Megatron-LM core/transformer/transformer_layer.py, _set_offload_modules;
 * core/models/gpt/gpt_layer_specs.py). Delta nets have none of these. */
static guint32 offloads_here(const MsBuild *b) {
  guint32 modules = b->options->offload_modules, graphs = b->options->cuda_graph_scope;
  gboolean alone = b->options->transformer_impl == MS_IMPL_LOCAL || ms_has_mindspeed(b->scenario),
           latent = ms_model_has_mla(b->model) || ms_model_has_compressed_attention(b->model);
  switch (b->module) {
  case MS_MODULE_ATTN:
    if (graphs & MS_CG_ATTN) modules &= ~(guint32)MS_OM_ATTN_NORM;
    if (alone || latent) return modules;
    return modules & MS_OM_QKV_LINEAR ? modules | MS_OM_ATTN_NORM : modules & ~(guint32)MS_OM_ATTN_NORM;
  case MS_MODULE_MLP: return alone ? modules : modules & ~(guint32)MS_OM_MLP_NORM;
  case MS_MODULE_ROUTER: return graphs & (MS_CG_ATTN | MS_CG_MOE_ROUTER) ? modules & ~(guint32)MS_OM_MLP_NORM : modules;
  case MS_MODULE_DELTA: return 0;
  default: return modules;
  }
}

static gboolean goes_to_host(const MsBuild *b, const char *name, double bytes_B) {
  if (bytes_B < SMALLEST_OFFLOAD * b->act_B) return FALSE;
  if (b->offload_all) return TRUE;
  guint32 modules = offloads_here(b);
  for (guint i = 0; modules >> i; i++)
    for (const char *const *tensor = offloads[i]; (modules >> i & 1) && *tensor; tensor++)
      if (!strcmp(*tensor, name)) return TRUE;
  return FALSE;
}

static void reload_row(MsPiece *piece, double bytes_B) {
  MsOp *op = append(&piece->reload);
  op->name = "reload";
  op->kind = MS_OP_H2D, op->pass = MS_PASS_DGRAD, op->stream = MS_STREAM_H2D, op->dtype = MS_ODT_BF16;
  op->kernels = 1, op->groups = op->kv_groups = 1;
  op->message_B = bytes_B;
  piece->reload.tip = piece->reload.n - 1;
}

/* Leaves on its own stream as soon as it is there; comes back in one piece, before the backward. */
static void send_to_host(MsBuild *b, double bytes_B) {
  MsOp *op = ms_row_async(b, MS_OP_D2H, "offload", MS_STREAM_D2H);
  op->message_B = bytes_B;
  b->piece->offload_B += bytes_B;
  reload_row(b->piece, bytes_B);
}

/* Hooks of saved tensors send a tensor with every module that saves it (Megatron-LM
 * core/pipeline_parallel/fine_grained_activation_offload.py, on_save_for_backward), also one that somebody else keeps
 * or makes again; what lies at one address once in MindSpeed (core/memory/adaptive_recomputing/prefetch.py). */
void ms_send_copy(MsBuild *b, guint32 modules, double bytes_B) {
  if (!b->keeping || !(b->options->offload_modules & modules) || bytes_B < SMALLEST_OFFLOAD * b->act_B) return;
  if (ms_has_mindspeed(b->scenario)) return;
  send_to_host(b, bytes_B);
  b->piece->offload_copy_B += bytes_B;
}

enum { SOME = 32 }; /* kept tensors for which room is made at once */

static void keep(MsBuild *b, const char *name, double bytes_B, int row) {
  if (bytes_B <= 0 || !(b->keeping || b->reviving)) return;
  MsPiece *piece = b->piece;
  gboolean leaves = goes_to_host(b, name, bytes_B);
  if (b->reviving && !leaves) b->list->op[row].keep_B += bytes_B;
  if (!b->keeping) return;
  if (leaves) {
    send_to_host(b, bytes_B);
    return;
  }
  if (find_kept(piece, name)) MS_BUG("%s: tensor %s kept twice", piece->name, name);
  if (piece->n_kept % SOME == 0) piece->kept = g_renew(MsKept, piece->kept, piece->n_kept + SOME);
  piece->kept[piece->n_kept++] =
      (MsKept){.name = name, .bytes_B = bytes_B, .module = (guint8)b->module, .kept_at = row, .freed_at = -1};
  piece->kept_B += bytes_B;
  b->list->op[row].keep_B += bytes_B;
}

void ms_keep(MsBuild *b, const char *name, double bytes_B) { keep(b, name, bytes_B, b->list->n - 1); }
void ms_keep_throughout(MsBuild *b, const char *name, double bytes_B) { keep(b, name, bytes_B, 0); }

void ms_free_kept(MsBuild *b, const char *name) {
  MsKept *kept = find_kept(b->piece, name);
  if (!kept) return;
  b->list->op[b->list->n - 1].free_B += kept->bytes_B;
  kept->freed_at = b->list->n - 1;
}

void ms_keep_input(MsBuild *b, const char *name, double bytes_B) {
  if (!ms_frozen(b)) ms_keep(b, name, bytes_B);
}

double ms_input_B(const MsBuild *b, double elements, gboolean low) {
  return elements * (low && b->quantized ? b->quant_B : b->act_B);
}
