/* src/exec/rows_step.c - what runs once a step: zeroing, gradients summed over the ranks, their norm, Adam, parameters
 * back to all ranks. */
#include "exec/state_priv.h"

#include <math.h>
#include <string.h>

/* Ranges that the row at work is about: its bucket, or all. */
static gboolean concerns(const Exec *x, const Range *r, int kind) {
  return r->kind == kind && (x->bucket < 0 || r->bucket == x->bucket);
}

static void *grad_at(Exec *x, const Range *r, gint64 at) { return ms_exec_at(x, x->flat[r->kind].grad, at); }
static void *param_at(Exec *x, const Range *r, gint64 at) { return ms_exec_at(x, x->flat[r->kind].param, at); }

static void zero_gradients(Exec *x) {
  for (int kind = 0; kind < 2; kind++) memset(x->flat[kind].grad, 0, (size_t)x->flat[kind].n * x->k->real_B);
}

static void scale_gradients(Exec *x) { /* the mean over data-parallel and context-parallel ranks */
  double by = 1.0 / ((double)x->layout->dp * x->layout->cp);
  for (int i = 0; i < x->n_ranges; i++)
    if (x->bucket < 0 || x->range[i].bucket == x->bucket)
      x->k->scale(x->range[i].n, by, grad_at(x, &x->range[i], x->range[i].from));
}

static MsGroupKind group_of(const Exec *x, int kind) { return ms_layout_shards_in(x->layout, kind); }

static void reduce(Exec *x, int kind) {
  for (int i = 0; i < x->n_ranges; i++) {
    Range *r = &x->range[i];
    if (!concerns(x, r, kind)) continue;
    void *all = grad_at(x, r, r->from);
    ms_exec_sent(x, (double)r->n, ms_dtype_B(x->scenario->options.grad_reduce_dtype));
    if (x->row->op->kind == MS_OP_ALL_REDUCE) {
      ms_comm_all_reduce(x->comm, group_of(x, kind), all, r->n, FALSE);
      continue;
    }
    gint64 mine = r->counts[ms_comm_index(x->comm, group_of(x, kind))];
    void *sum = ms_exec_scratch(x, mine);
    ms_comm_reduce_scatter(x->comm, group_of(x, kind), all, sum, r->counts);
    memcpy(grad_at(x, r, r->shard), sum, (size_t)mine * x->k->real_B);
  }
}

/* The shard that this rank's instance has reduced; of Megatron-FSDP, where it shards the optimizer alone, all around it
 * too, which nobody reads. */
static void across(Exec *x, int kind) {
  gboolean whole = ms_work_sums_whole(x->scenario);
  for (int i = 0; i < x->n_ranges; i++) {
    const Range *r = &x->range[i];
    if (!concerns(x, r, kind)) continue;
    gint64 n = whole ? r->n : r->counts[ms_comm_index(x->comm, group_of(x, kind))];
    ms_comm_all_reduce(x->comm, MS_GROUP_INTER, grad_at(x, r, whole ? r->from : r->shard), n, FALSE);
    ms_exec_sent(x, (double)n, ms_dtype_B(x->scenario->options.grad_reduce_dtype));
  }
}

static void reduce_dense(Exec *x) { reduce(x, 0); }
static void reduce_expert(Exec *x) { reduce(x, 1); }
static void across_dense(Exec *x) { across(x, 0); }
static void across_expert(Exec *x) { across(x, 1); }

static void gather(Exec *x, int kind) {
  for (int i = 0; i < x->n_ranges; i++) {
    Range *r = &x->range[i];
    if (!concerns(x, r, kind)) continue;
    gint64 mine = r->counts[ms_comm_index(x->comm, group_of(x, kind))];
    void *own = ms_exec_scratch(x, mine);
    memcpy(own, param_at(x, r, r->shard), (size_t)mine * x->k->real_B);
    ms_comm_all_gather(x->comm, group_of(x, kind), own, param_at(x, r, r->from), r->counts, 0);
    ms_exec_sent(x, (double)r->n, 2);
  }
}

static void gather_dense(Exec *x) { gather(x, 0); }
static void gather_expert(Exec *x) { gather(x, 1); }

/* Without sequence parallelism all TP ranks saw the same of everything but of the heads. */
static gboolean sees_part(const Exec *x, const Param *p) {
  return x->sp ? p->replicated : g_str_has_prefix(p->name, "q norm") || g_str_has_prefix(p->name, "k norm");
}

/* --- gradients of what TP ranks hold alike but saw different tokens (or heads) of, in one buffer --------------- */

static gint64 replicated(Exec *x, char *buffer, gboolean back) {
  gint64 n = 0;
  for (int i = 0; i < x->n_instances; i++)
    for (int j = 0; j < x->instance[i].n; j++) {
      const Param *p = &x->instance[i].param[j];
      if (p->alias >= 0 || !sees_part(x, p)) continue;
      gint64 size = p->rows * p->cols;
      void *grad = ms_exec_at(x, x->flat[p->expert].grad, p->at);
      if (buffer && back) memcpy(grad, ms_exec_at(x, buffer, n), (size_t)size * x->k->real_B);
      else if (buffer) memcpy(ms_exec_at(x, buffer, n), grad, (size_t)size * x->k->real_B);
      n += size;
    }
  return n;
}

static void norm_gradients(Exec *x) {
  gint64 n = replicated(x, NULL, FALSE);
  void *all = ms_exec_scratch(x, n);
  replicated(x, all, FALSE);
  ms_comm_all_reduce(x->comm, MS_GROUP_TP, all, n, FALSE);
  replicated(x, all, TRUE);
  ms_exec_sent(x, (double)n, ms_dtype_B(x->scenario->options.main_grads_dtype));
}

static void embedding_gradients(Exec *x) { /* of the word embedding and its copies on other stages */
  double width = ms_dtype_B(x->scenario->options.main_grads_dtype);
  for (int i = 0; i < x->n_instances; i++)
    for (int j = 0; j < x->instance[i].n; j++) {
      const Param *p = &x->instance[i].param[j];
      if (p->alias >= 0 || strcmp(p->segment[0].name, "embedding.table") != 0) continue;
      ms_comm_all_reduce(x->comm, MS_GROUP_EMBEDDING, ms_exec_at(x, x->flat[0].grad, p->at), p->rows * p->cols, FALSE);
      ms_exec_sent(x, (double)(p->rows * p->cols), width);
    }
}

/* --- DualPipe: half of this rank's shard belongs to the other owner of its stages ------------------------------ */

static gint64 copy_ranges(Exec *x, char *buffer, gboolean theirs, gboolean params, gboolean from_buffer, gboolean add) {
  gint64 n = 0;
  for (int i = 0; i < x->n_ranges; i++) {
    Range *r = &x->range[i];
    gint64 at = theirs ? r->other : r->own, size = theirs ? r->n_other : r->n_own;
    void *data = params ? param_at(x, r, at) : grad_at(x, r, at);
    if (buffer && add) x->k->add(size, data, ms_exec_at(x, buffer, n), data);
    else if (buffer && from_buffer) memcpy(data, ms_exec_at(x, buffer, n), (size_t)size * x->k->real_B);
    else if (buffer) memcpy(ms_exec_at(x, buffer, n), data, (size_t)size * x->k->real_B);
    n += size;
  }
  return n;
}

static void mirror(Exec *x, gboolean params, double width) {
  gint64 out_n = copy_ranges(x, NULL, !params, params, FALSE, FALSE),
         in_n = copy_ranges(x, NULL, params, params, FALSE, FALSE);
  char *out = ms_exec_scratch(x, out_n), *in = ms_exec_scratch(x, in_n);
  copy_ranges(x, out, !params, params, FALSE, FALSE);
  ms_comm_send(x->comm, x->mirror, MS_EXEC_MIRROR_TAG + params, out, out_n);
  ms_comm_receive(x->comm, x->mirror, MS_EXEC_MIRROR_TAG + params, in, in_n);
  copy_ranges(x, in, params, params, TRUE, !params);
  ms_exec_sent(x, (double)out_n, width);
}

static void mirror_gradients(Exec *x) { mirror(x, FALSE, ms_dtype_B(x->scenario->options.grad_reduce_dtype)); }
static void mirror_parameters(Exec *x) { mirror(x, TRUE, 2); }

/* --- norm and update ------------------------------------------------------------------------------------------- */

static void add_squares(Exec *x, const Param *p, gint64 from, gint64 n, gpointer sum) {
  *(double *)sum += x->k->sum_squares(n, ms_exec_at(x, x->flat[p->expert].grad, from));
}

static void norm_end(Exec *x) {
  x->norm = sqrt(x->norm);
  x->clip = x->norm > 1 ? 1 / (x->norm + 1e-6) : 1;
}

static void gradient_norm(Exec *x) {
  x->norm = 0;
  for (int i = 0; i < x->n_ranges; i++)
    if (x->range[i].counted)
      ms_exec_counted(x, x->range[i].kind, x->range[i].own, x->range[i].n_own, add_squares, &x->norm);
  if (x->layout->world == 1) norm_end(x);
}

static void norm_sum(Exec *x) {
  ms_comm_world_sum(x->comm, &x->norm, 1);
  ms_exec_sent(x, 1, 4);
  norm_end(x);
}

static void adam(Exec *x) {
  for (int i = 0; i < x->n_ranges; i++) {
    Range *r = &x->range[i];
    x->k->adam(r->n_own, 1e-3, 0.9, 0.95, 1e-8, 0.1, x->clip, x->step + 1, grad_at(x, r, r->own), r->master, r->m, r->v,
               param_at(x, r, r->own));
  }
}

const Handler ms_exec_step_rows[] = {{MS_OP_ZERO_GRAD, "zero gradients", -1, PASS_O, zero_gradients},
                                     {MS_OP_GRAD_SCALE, "gradient scale", -1, PASS_O, scale_gradients},
                                     {MS_OP_REDUCE_SCATTER, "dp reduce", -1, PASS_O, reduce_dense},
                                     {MS_OP_ALL_REDUCE, "dp reduce", -1, PASS_O, reduce_dense},
                                     {MS_OP_REDUCE_SCATTER, "edp reduce", -1, PASS_O, reduce_expert},
                                     {MS_OP_ALL_REDUCE, "edp reduce", -1, PASS_O, reduce_expert},
                                     {MS_OP_ALL_REDUCE, "dp reduce across", -1, PASS_O, across_dense},
                                     {MS_OP_ALL_REDUCE, "edp reduce across", -1, PASS_O, across_expert},
                                     {MS_OP_ALL_GATHER, "dp gather", -1, PASS_O, gather_dense},
                                     {MS_OP_ALL_GATHER, "edp gather", -1, PASS_O, gather_expert},
                                     {MS_OP_ALL_REDUCE, "norm gradients", -1, PASS_O, norm_gradients},
                                     {MS_OP_ALL_REDUCE, "embedding gradients", -1, PASS_O, embedding_gradients},
                                     {MS_OP_P2P, "mirror gradients", -1, PASS_O, mirror_gradients},
                                     {MS_OP_P2P, "mirror parameters", -1, PASS_O, mirror_parameters},
                                     {MS_OP_GRAD_NORM, "gradient norm", -1, PASS_O, gradient_norm},
                                     {MS_OP_ALL_REDUCE, "gradient norm sum", -1, PASS_O, norm_sum},
                                     {MS_OP_ADAM, "adam", -1, PASS_O, adam},
                                     {0}};
