/* src/exec/exec.c - a run: what it refuses, what one rank sets up, its steps, and the result. */
#include "exec/state_priv.h"
#include "exec/subnormal.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/ranks.h"
#include "memory/memory.h"
#include <math.h>
#include <string.h>

const char *const ms_exec_list_words[] = {"forward", "backward", "unit gather", "unit reduce", "before",
                                          "reduce",  "gather",   "after",       "p2p",         NULL};

/* --- what is not executed, beside rows that have no handler ---------------------------------------------------- */

static const char *refusal(const Exec *x) {
  const MsScenario *s = x->scenario;
  const MsOptions *o = &s->options;
  const MsModel *m = x->model;
  if (s->training.sequence_lengths.n > 0) return "training.sequence_lengths: packed sequences are not executed";
  if (s->training.routing.kind > MS_ROUTING_NATURAL && m->num_experts > 0)
    return "training.routing: only \"balanced\" and \"natural\" are executed";
  if (m->num_experts > 0 && m->moe_router_score_function == MS_SCORE_SQRTSOFTPLUS)
    return "model.moe_router_score_function: sqrtsoftplus is not executed";
  if (!isnan(o->moe_expert_rank_capacity_factor))
    return "options.moe_expert_rank_capacity_factor: a budget of expert rows is not executed";
  if (m->num_experts > 0 && !o->moe_grouped_gemm)
    return "options.moe_grouped_gemm: experts one after another are not executed";
  if (ms_lora_is_on(&s->training.lora)) return "training.lora: adapters are not executed";
  if (m->sliding_window.chunked) return "model.sliding_window.chunked: attention in chunks is not executed";
  if (m->post_norm) return "model.post_norm: norms behind attention and MLP are not executed";
  if (m->attention_dropout > 0) return "model.attention_dropout: dropout is not executed";
  if (m->num_query_groups < x->layout->tp && !ms_model_has_mla(m))
    return "layout.tp: more tensor-parallel ranks than KV heads: replicated heads are not executed";
  if (m->num_experts > 0 && m->moe_shared_expert_intermediate_size > 0 && m->moe_shared_expert_gate)
    return "model.moe_shared_expert_gate: a gate of the shared expert is not executed";
  if (m->mtp_num_layers > 0 && x->layout->mtp_standalone)
    return "layout.pipeline_layout: MTP blocks in front of the last stage are not executed";
  if (m->tie_embeddings && x->layout->pp > 1 && x->schedule->placement != MS_PLACE_ROUND_ROBIN)
    return "model.tie_embeddings: with both ends of the model on one stage no row adds the two gradients of the table";
  if (o->recompute.granularity == MS_RECOMPUTE_FULL && o->recompute.method == MS_RECOMPUTE_UNIFORM &&
      o->recompute.num_layers > 1)
    return "options.recompute.num_layers: groups of several layers are not executed";
  if (o->fsdp >= MS_FSDP_OPTIM_GRADS) return "options.fsdp: sharded gradients or parameters are not executed";
  if (o->check_for_nan_in_loss_and_grad) return "options.check_for_nan_in_loss_and_grad: checks are not executed";
  if (o->deterministic_mode) return "options.deterministic_mode: fills and sorted sums are not executed";
  if (o->defer_embedding_wgrad_compute) return "options.defer_embedding_wgrad_compute: is not executed";
  if (x->layout->tp > 1 && o->tp_comm_overlap)
    return "options.tp_comm_overlap: messages in chunks beside their GEMM are not executed";
  return NULL;
}

static gboolean accept(const Exec *x, GError **error) {
  const char *why = refusal(x);
  if (why) g_set_error(error, MS_ERROR, MS_ERROR_INPUT, "%s: %s", x->scenario->file, why);
  for (int i = 0; i < x->work->n_pieces && !why; i++)
    for (int k = 0; k < x->work->pieces[i].n_kept; k++) {
      const char *own[2];
      if (ms_exec_kept_parts(x, &x->work->pieces[i].kept[k], own)) continue;
      return ms_error(error, MS_ERROR_INPUT, "%s: %s keeps \"%s\", which the executor does not make", x->scenario->file,
                      x->work->pieces[i].name, x->work->pieces[i].kept[k].name);
    }
  return !why;
}

/* --- rows ------------------------------------------------------------------------------------------------------ */

static gboolean bind(Exec *x, const MsOpList *list, RowList *out, MsExecList kind, int piece, GError **error) {
  g_autofree char *where =
      piece >= 0 ? g_strdup_printf("the %s list of the %s", ms_exec_list_words[kind], x->work->pieces[piece].name)
                 : g_strdup_printf("the rows %s of the step", ms_exec_list_words[kind]);
  if (!ms_exec_bind(x, list, out, where, error)) return FALSE;
  for (int i = 0; i < list->n; i++) {
    MsExecRow row = {.list = kind, .piece = piece, .row = i, .op = list->op[i]};
    out->row[i].result = (int)x->results->len;
    g_array_append_val(x->results, row);
  }
  return TRUE;
}

static gboolean bind_all(Exec *x, GError **error) {
  x->piece_rows = g_new0(PieceRows, x->work->n_pieces);
  for (int i = 0; i < x->work->n_pieces; i++) {
    const MsPiece *p = &x->work->pieces[i];
    RowList none = {0};
    if (!bind(x, &p->forward, &x->piece_rows[i].forward, MS_EXEC_FORWARD, i, error) ||
        !bind(x, &p->backward, &x->piece_rows[i].backward, MS_EXEC_BACKWARD, i, error))
      return FALSE;
    gboolean ok = bind(x, &p->reload, &none, MS_EXEC_BACKWARD, i, error);
    g_free(none.row);
    if (!ok) return FALSE;
  }
  ms_work_step_ops(x->work, x->stage, &x->step_ops);
  if (!bind(x, &x->step_ops.before, &x->before, MS_EXEC_BEFORE, -1, error) ||
      !bind(x, &x->step_ops.reduce, &x->reduce, MS_EXEC_REDUCE, -1, error) ||
      !bind(x, &x->step_ops.gather, &x->gather, MS_EXEC_GATHER, -1, error) ||
      !bind(x, &x->step_ops.after, &x->after, MS_EXEC_AFTER, -1, error))
    return FALSE;
  x->p2p = ms_work_p2p(x->work);
  MsExecRow row = {.list = MS_EXEC_P2P, .piece = -1, .op = x->p2p};
  x->p2p_rows = (RowList){.row = g_new0(Row, 1), .n = 1};
  x->p2p_rows.row[0] = (Row){.op = &x->p2p, .handler = &ms_exec_p2p_row, .result = (int)x->results->len};
  g_array_append_val(x->results, row);
  return TRUE;
}

/* --- ranges of parameters that are reduced and updated together ------------------------------------------------ */

static gint64 part_size(gint64 n, int parts, int i) { return n / parts + (i < n % parts); }

static void add_range(Exec *x, int kind, int bucket, int chunk, int piece, gint64 from, gint64 n) {
  MsGroupKind group = ms_layout_shards_in(x->layout, kind);
  int ranks = ms_comm_size(x->comm, group), index = ms_comm_index(x->comm, group);
  gboolean sharded = x->scenario->options.distributed_optimizer || x->scenario->options.fsdp != MS_FSDP_NONE;
  gboolean dual = x->schedule->placement == MS_PLACE_BIDIRECTIONAL && x->layout->pp > 1,
           low = x->stage < x->layout->pp / 2;
  Range r = {.kind = kind,
             .bucket = bucket,
             .chunk = chunk,
             .piece = piece,
             .from = from,
             .n = n,
             .shard = from,
             .own = from,
             .n_own = n,
             .counted = ms_comm_index(x->comm, MS_GROUP_INTER) == 0};
  if (sharded) {
    r.counts = g_new(gint64, ranks);
    for (int i = 0; i < ranks; i++) {
      r.counts[i] = part_size(n, ranks, i);
      if (i < index) r.shard += r.counts[i];
    }
    r.own = r.shard, r.n_own = r.counts[index];
  } else {
    r.counted = index == 0 && !(dual && !low);
  }
  r.other = r.own, r.n_other = 0;
  if (dual && sharded) {
    gint64 half = part_size(r.n_own, 2, 0), rest = r.n_own - half, first = r.own;
    r.own = low ? first : first + half, r.n_own = low ? half : rest;
    r.other = low ? first + half : first, r.n_other = low ? rest : half;
  } else if (dual) { /* both update everything */
    r.other = r.own, r.n_other = r.n_own;
  }
  x->range = g_renew(Range, x->range, x->n_ranges + 1);
  x->range[x->n_ranges++] = r;
}

/* A word embedding that other stages have too lies in a range of its own: its owners shard it alike, so that what the
 * data-parallel reduction left on each can be summed over the stages (Megatron gives it a bucket of its own for the
 * same reason). */
static void add_ranges(Exec *x, int kind, int bucket, int chunk, int piece, gint64 from, gint64 n) {
  gboolean shared = kind == 0 && x->layout->pp > 1 && (x->model->tie_embeddings || x->model->mtp_num_layers > 0);
  gint64 at = from, end = from + n;
  for (int i = 0; i < x->n_instances && shared; i++)
    for (int j = 0; j < x->instance[i].n; j++) {
      const Param *p = &x->instance[i].param[j];
      if (p->alias >= 0 || p->expert || p->at < from || p->at >= end ||
          strcmp(p->segment[0].name, "embedding.table") != 0)
        continue;
      if (p->at > at) add_range(x, kind, bucket, chunk, piece, at, p->at - at);
      at = p->at + p->rows * p->cols;
      add_range(x, kind, bucket, chunk, piece, p->at, at - p->at);
    }
  if (end > at || n == 0) add_range(x, kind, bucket, chunk, piece, at, end - at);
}

static gboolean starts_bucket(const Exec *x, int chunk, int at) {
  const MsStepOps *o = &x->step_ops;
  if (at == 0) return TRUE;
  for (int i = 0; i < o->reduce.n; i++)
    if (o->reduce_at[i].chunk == chunk && o->reduce_at[i].piece == at) return TRUE;
  for (int i = 0; i < o->gather.n; i++)
    if (o->gather_at[i].chunk == chunk && o->gather_at[i].piece == at) return TRUE;
  return FALSE;
}

static void make_ranges(Exec *x) {
  gboolean buckets = x->step_ops.reduce.n + x->step_ops.gather.n > 0;
  for (int kind = 0; kind < 2 && !buckets; kind++) add_ranges(x, kind, 0, -1, -1, 0, x->flat[kind].n);
  for (int i = 0, end; i < x->n_instances && buckets; i = end) {
    const Instance *p = &x->instance[i];
    for (end = i + 1; end < x->n_instances && !starts_bucket(x, x->instance[end].chunk, x->instance[end].at);) end++;
    for (int kind = 0; kind < 2; kind++) {
      gint64 to = end < x->n_instances ? x->instance[end].from[kind] : x->flat[kind].n;
      add_ranges(x, kind, i, p->chunk, p->at, p->from[kind], to - p->from[kind]);
    }
  }
  for (int i = 0; i < x->n_ranges; i++) {
    Range *r = &x->range[i];
    gsize size_B = (gsize)r->n_own * x->k->real_B;
    r->m = g_malloc0(size_B + 1), r->v = g_malloc0(size_B + 1), r->master = g_malloc(size_B + 1);
    memcpy(r->master, ms_exec_at(x, x->flat[r->kind].param, r->own), size_B);
  }
}

/* The list's counts against the elements that are here. */
static void check_parameters(Exec *x) {
  for (int i = 0; i < x->n_instances && !x->options->unchecked; i++) {
    const Instance *p = &x->instance[i];
    const MsPiece *piece = &x->work->pieces[p->piece];
    double own[2] = {0}, replicated = 0;
    for (int j = 0; j < p->n; j++) {
      const Param *q = &p->param[j];
      if (q->alias >= 0 || (q->copy && piece->kind == MS_PIECE_MTP)) continue; /* the copy is counted with the stage */
      own[q->expert] += (double)(q->rows * q->cols);
      if (q->replicated) replicated += (double)(q->rows * q->cols);
    }
    if (own[0] != piece->params_dense || own[1] != piece->params_expert || replicated != piece->params_tp_replicated)
      ms_exec_fail(x, MS_ERROR_NOTHING,
                   "parameters: the %s has %.0f dense (%.0f on all TP ranks alike) and %.0f of experts, the list says "
                   "%.0f (%.0f) and %.0f",
                   piece->name, own[0], replicated, own[1], piece->params_dense, piece->params_tp_replicated,
                   piece->params_expert);
  }
  MsStageParams stage = ms_work_stage_params(x->work, x->stage);
  if (!x->options->unchecked && ((double)x->flat[0].n != stage.params_dense + stage.embedding_copy ||
                                 (double)x->flat[1].n != stage.params_expert))
    ms_exec_fail(
        x, MS_ERROR_NOTHING, "parameters: the stage holds %.0f dense and %.0f of experts, the list says %.0f and %.0f",
        (double)x->flat[0].n, (double)x->flat[1].n, stage.params_dense + stage.embedding_copy, stage.params_expert);
}

/* --- set up ---------------------------------------------------------------------------------------------------- */

static void place(Exec *x) {
  int coord[4];
  const MsLayout *l = x->layout;
  ms_rank_coords(l, FALSE, x->rank, coord);
  x->ti = coord[0], x->ci = coord[1], x->di = coord[2], x->stage = coord[3];
  coord[3] = l->pp - 1 - x->stage;
  x->mirror = ms_rank_of(l, FALSE, coord);
  ms_rank_coords(l, TRUE, x->rank, coord);
  x->ui = coord[0], x->ei = coord[1], x->qi = coord[2];
  x->s = x->scenario->training.seq_length, x->b = x->scenario->training.micro_batch_size, x->h = x->model->hidden_size;
  x->t = l->tp, x->c = l->cp, x->sp = l->sequence_parallel && l->tp > 1;
  x->T = x->s * x->b / x->c, x->Tsp = x->sp ? x->T / x->t : x->T;
  x->pos = g_new(gint32, x->s), x->row_pos = g_new(gint32, x->T);
  ms_exec_positions(x, x->ci, 1, x->pos);
  for (gint64 i = 0; i < x->T; i++) x->row_pos[i] = x->pos[i / x->b];
}

static Exec *exec_new(const MsScenario *scenario, const MsLayout *layout, const MsExecOptions *options,
                      const MsBlas *blas, int rank) {
  Exec *x = g_new0(Exec, 1);
  x->scenario = scenario, x->model = scenario->model, x->layout = layout, x->options = options, x->rank = rank;
  x->k = ms_kernels(options->type == MS_BLAS_F64 ? 8 : 4);
  x->run.blas = blas;
  x->pool = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, (GDestroyNotify)g_ptr_array_unref);
  x->blocks = g_ptr_array_new_with_free_func(free);
  x->scratch = g_ptr_array_new();
  x->results = g_array_new(FALSE, TRUE, sizeof(MsExecRow));
  x->spans = g_array_new(FALSE, FALSE, sizeof(MsExecSpan));
  x->head = g_new0(Linear, 1 + scenario->model->mtp_num_layers);
  place(x);
  return x;
}

static void rows_free(RowList *rows) { g_free(rows->row); }

static void exec_free(Exec *x) {
  ms_exec_scratch_clear(x);
  int n = x->layout->vpp * x->layout->microbatches;
  for (int i = 0; x->microbatch && i < n; i++) {
    Microbatch *mb = &x->microbatch[i];
    ms_store_clear(x, &mb->stream);
    for (int j = 0; j < mb->length; j++) ms_store_clear(x, &mb->piece[j]), ms_exec_routing_free(mb->routing[j]);
    g_free(mb->piece), g_free(mb->routing);
  }
  g_free(x->microbatch);
  ms_exec_params_free(x);
  for (int i = 0; i < x->n_ranges; i++)
    g_free(x->range[i].counts), g_free(x->range[i].m), g_free(x->range[i].v), g_free(x->range[i].master);
  g_free(x->range);
  for (int i = 0; x->piece_rows && i < x->work->n_pieces; i++)
    rows_free(&x->piece_rows[i].forward), rows_free(&x->piece_rows[i].backward);
  g_free(x->piece_rows);
  rows_free(&x->before), rows_free(&x->reduce), rows_free(&x->gather), rows_free(&x->after), rows_free(&x->p2p_rows);
  ms_step_ops_clear(&x->step_ops);
  ms_comm_free(x->comm);
  ms_slot_walk_free(x->walk);
  ms_schedule_free(x->schedule);
  ms_work_free(x->work);
  g_free(x->pos), g_free(x->row_pos), g_free(x->head), g_free(x->timeline), g_free(x->note);
  g_hash_table_unref(x->pool);
  g_ptr_array_unref(x->blocks), g_ptr_array_unref(x->scratch);
  g_array_unref(x->results), g_array_unref(x->spans);
  g_clear_error(&x->error);
  g_free(x);
}

static void make_microbatches(Exec *x) {
  x->microbatch = g_new0(Microbatch, x->layout->vpp * x->layout->microbatches);
  for (int c = 0; c < x->layout->vpp; c++)
    for (int i = 0; i < x->layout->microbatches; i++) {
      Microbatch *mb = &x->microbatch[c * x->layout->microbatches + i];
      mb->length = ms_work_chunk_length(x->work, ms_layout_chunk(x->layout, x->stage, c));
      mb->piece = g_new0(Store, MAX(1, mb->length)), mb->routing = g_new0(Routing *, MAX(1, mb->length));
    }
}

static gboolean lower(Exec *x, GError **error) {
  char why[256] = "";
  x->work = ms_work_new(x->scenario, x->layout, error);
  if (!x->work) return FALSE;
  if (x->options->edit) x->options->edit(x->work, x->options->edit_data);
  const MsLayout *l = x->layout;
  x->schedule = ms_schedule_new((int)x->scenario->layout.schedule, l->pp, l->microbatches, l->vpp, l->group_size,
                                x->scenario->options.ep_overlap, why, sizeof why);
  if (!x->schedule) return ms_error(error, MS_ERROR_INPUT, "%s: layout.schedule: %s", x->scenario->file, why);
  x->timeline = ms_memory_timeline(x->work, x->schedule, x->stage);
  return accept(x, error) && bind_all(x, error);
}

/* --- steps and result ------------------------------------------------------------------------------------------ */

/* Of this core, while all ranks do the same. The clock of the spans stands still meanwhile. */
static double reference_flops(Exec *x) {
  if (!x->options->reference) return 0;
  ms_comm_barrier(x->comm);
  double wall = ms_clock_s(CLOCK_MONOTONIC), flops = ms_blas_reference_flops(x->run.blas);
  x->since_s += ms_clock_s(CLOCK_MONOTONIC) - wall;
  return flops;
}

/* What was read before and after the step `i`. Returns the latter. */
static double keep_reference(Exec *x, MsExecResult *r, int i, double before_flops) {
  double after_flops = reference_flops(x);
  if (r->reference_flops && i >= 0) r->reference_flops[i] = MAX(before_flops, after_flops);
  return after_flops;
}

/* All steps at it would take as long. */
static double mean_reference(const MsExecResult *r) {
  double done = 0, time_s = 0;
  for (int i = 0; r->reference_flops && i < r->steps; i++)
    done += r->step_s[i] * r->reference_flops[i], time_s += r->step_s[i];
  return time_s > 0 ? done / time_s : 0;
}

static void run_steps(Exec *x, MsExecResult *r) {
  int warm = x->options->warm_steps;
  double before_flops = reference_flops(x);
  MsProgress *progress = x->options->progress && x->rank == 0 ? ms_progress_begin("exec", warm + r->steps) : NULL;
  for (x->step = 0; x->step < warm + r->steps; x->step++) {
    ms_comm_barrier(x->comm);
    double wall = ms_clock_s(CLOCK_MONOTONIC), cpu = ms_process_cpu_s();
    if (x->step == warm) x->since_s = wall;
    ms_exec_step(x);
    if (x->step >= warm)
      r->own_start_s[x->step - warm] = wall - x->since_s,
                               r->step_s[x->step - warm] = ms_clock_s(CLOCK_MONOTONIC) - wall,
                               r->step_cpu_s[x->step - warm] = ms_process_cpu_s() - cpu;
    before_flops = keep_reference(x, r, x->step - warm, before_flops);
    double stop = ms_interrupted(); /* of any rank: all of them end with the same step */
    ms_comm_world_max(x->comm, &stop, 1);
    if (stop > 0 && x->step >= warm) r->steps = x->step - warm + 1;
    ms_progress_update(progress, x->step + 1, "steps");
  }
  ms_progress_end(progress);
}

static void collect(Exec *x, MsExecResult *r) {
  double loss = x->loss;
  ms_comm_world_sum(x->comm, &loss, 1);
  r->loss = loss / ((double)x->s * x->scenario->training.global_batch_size);
  r->gradient_norm = x->norm;
  r->own_reference_flops = mean_reference(r);
  if (r->reference_flops) ms_comm_world_min(x->comm, r->reference_flops, r->steps);
  ms_comm_world_max(x->comm, r->step_s, r->steps);
  ms_comm_world_min(x->comm, r->step_cpu_s, r->steps);
  r->peak_kept_B[x->rank] = x->peak_B, r->rank_flop[x->rank] = x->step_flop,
  r->rank_message_B[x->rank] = x->step_message_B;
  ms_comm_world_sum(x->comm, r->peak_kept_B, r->ranks);
  ms_comm_world_sum(x->comm, r->rank_flop, r->ranks);
  ms_comm_world_sum(x->comm, r->rank_message_B, r->ranks);
  r->n_rows = (int)x->results->len;
  r->rows = g_memdup2(x->results->data, sizeof(MsExecRow) * x->results->len);
  r->n_spans = (int)x->spans->len;
  r->span = g_memdup2(x->spans->data, sizeof(MsExecSpan) * x->spans->len);
}

static MsExecResult *result_new(const Exec *x, int steps) {
  MsExecResult *r = g_new0(MsExecResult, 1);
  r->ranks = x->layout->world, r->own = x->rank, r->steps = r->steps_asked = steps;
  r->loss = r->gradient_norm = r->gradient_difference = r->parameter_difference = r->probe_gradient = NAN;
  r->step_s = g_new0(double, steps), r->step_cpu_s = g_new0(double, steps), r->own_start_s = g_new0(double, steps);
  if (x->options->reference) r->reference_flops = g_new0(double, steps);
  r->peak_kept_B = g_new0(double, r->ranks), r->rank_flop = g_new0(double, r->ranks),
  r->rank_message_B = g_new0(double, r->ranks);
  return r;
}

void ms_exec_result_free(MsExecResult *r) {
  if (!r) return;
  g_free(r->step_s), g_free(r->step_cpu_s), g_free(r->own_start_s), g_free(r->reference_flops), g_free(r->span),
      g_free(r->rows), g_free(r->peak_kept_B), g_free(r->rank_flop), g_free(r->rank_message_B);
  g_free(r->gradient_worst), g_free(r->parameter_worst);
  g_free(r);
}

/* What may jump out of itself. */
static gboolean guarded(Exec *x, MsExecResult *r, GError **error) {
  if (setjmp(x->fail)) {
    g_propagate_error(error, g_steal_pointer(&x->error));
    return FALSE;
  }
  ms_exec_params_new(x);
  check_parameters(x);
  make_ranges(x);
  make_microbatches(x);
  run_steps(x, r);
  collect(x, r);
  if (ms_exec_dump(x, r, error)) return TRUE;
  if (error && !*error) ms_error(error, MS_ERROR_ENV, "another rank could not write or read its file");
  return FALSE;
}

MsExecResult *ms_exec_run(const MsScenario *scenario, const MsExecOptions *options, GError **error) {
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(scenario, error);
  if (!layout) return NULL;
  if (layout->world != ms_ranks_count())
    return ms_error(error, MS_ERROR_INPUT, "%s: gpus: the layout has %d, this run %d: start it with mpirun -n %d",
                    scenario->file, layout->world, ms_ranks_count(), layout->world),
           NULL;
  const MsBlas *blas = ms_blas_open(options->blas, error);
  if (!blas) return NULL;
  ms_blas_set_threads(blas, MAX(1, options->threads));
  Exec *x = exec_new(scenario, layout, options, blas, ms_ranks_own());
  MsExecResult *result = NULL;
  if (lower(x, error)) {
    x->comm = ms_comm_new(layout, x->rank, x->k->real_B);
    result = result_new(x, MAX(1, options->steps));
    unsigned subnormals = ms_subnormal_off();
    if (!guarded(x, result, error)) g_clear_pointer(&result, ms_exec_result_free);
    ms_subnormal_restore(subnormals);
  }
  exec_free(x);
  return result;
}
