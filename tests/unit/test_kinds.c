/* Layer kinds beside attention, MLP, experts and Mamba: gated delta net, sparse and compressed attention,
 * hyper-connections, front end. Counts are in test_count; here: rows, what switches move, and costs. */
#include "lib/close.h"

#include "calib/measure.h"
#include "cost/cost.h"
#include "lib/sound.h"
#include "lib/world.h"
#include "work/build.h"

#include <string.h>

/* --- sums over lists ------------------------------------------------------------------------------------------- */

typedef double (*Of)(const MsOp *op);
static double flop(const MsOp *op) { return op->flop; }
static double traffic(const MsOp *op) { return op->read_B + op->write_B; }
static double message(const MsOp *op) { return op->message_B; }
static double alive(const MsOp *op) { return op->transient_B; }
static double one(const MsOp *op) { return op->n > 0 || op->n <= 0 ? 1 : 0; }

/* Over rows of a name (NULL: all) and kind (-1: all). */
static double sum(const MsOpList *list, const char *name, int kind, Of of) {
  double total = 0;
  for (int i = 0; i < list->n; i++)
    if ((!name || !strcmp(list->op[i].name, name)) && (kind < 0 || list->op[i].kind == kind)) total += of(&list->op[i]);
  return total;
}

static const MsPiece *layer(const MsLowered *l, int i) { return &l->work->pieces[l->work->piece_of_layer[i]]; }

static double kept(const MsPiece *piece, const char *name) {
  for (int i = 0; i < piece->n_kept; i++)
    if (!strcmp(piece->kept[i].name, name)) return piece->kept[i].bytes_B;
  return 0;
}

/* --- gated delta net ------------------------------------------------------------------------------------------- */

static void delta_net_rows(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("qwen3-next-80b-a3b", 0, "h100-sxm", 8);
  s->layout.ep = 8;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *delta = layer(&l, 0), *attention = layer(&l, 3);
  assert_ptr_not_equal(delta, attention);
  assert_ptr_equal(delta, layer(&l, 1));
  assert_ptr_equal(attention, layer(&l, 47));
  double T = 4096, h = 2048;
  assert_close(sum(&delta->forward, "delta in", -1, flop), 2 * T * h * (2 * 2048 + 2 * 4096 + 64), 0);
  assert_close(sum(&delta->forward, "delta out", -1, flop), 2 * T * h * 4096, 0);
  assert_true(sum(&delta->forward, NULL, MS_OP_ATTENTION, one) == 0 &&
              sum(&attention->forward, NULL, MS_OP_DELTA_RULE, one) == 0);
  assert_close(sum(&delta->backward, NULL, MS_OP_DELTA_RULE, flop),
               3 * sum(&delta->forward, NULL, MS_OP_DELTA_RULE, flop), 1e-12);
  /* linears of the layer, and the delta rule of the convention, are the convention */
  double convention = 2 * T * (4.0 * (2 * 2048 + 4096) + 32 * 128.0 * 128 * 4);
  double linears = sum(&delta->forward, "delta in", -1, flop) + sum(&delta->forward, "delta out", -1, flop);
  assert_close(linears + convention, T * ms_flop_delta(s->model), 1e-14);
  assert_close(kept(delta, "delta projected"), 2 * T * (2 * 2048 + 2 * 4096 + 64), 0);
  /* `gdn_norm_out` drops the input of the output projection and the norm's output, and makes them again; softmax layers
   * do not notice */
  s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_SELECTIVE, MS_RM_GDN_NORM_OUT, 0, 1};
  g_auto(MsLowered) again = ms_test_lower(s);
  assert_close(delta->kept_B - layer(&again, 0)->kept_B, 2 * 2 * T * 4096, 1e-12);
  assert_close(layer(&again, 3)->kept_B, attention->kept_B, 0);
  assert_close(sum(&layer(&again, 0)->backward, "gated norm", -1, traffic) -
                   sum(&delta->backward, "gated norm", -1, traffic),
               sum(&delta->forward, "gated norm", -1, traffic), 1e-12);
  s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_NONE, 0, 0, 1};
  /* twice the sequence: twice the rule, four times the softmax core */
  s->training.seq_length = 8192;
  g_auto(MsLowered) longer = ms_test_lower(s);
  assert_close(sum(&layer(&longer, 0)->forward, NULL, MS_OP_DELTA_RULE, flop),
               2 * sum(&delta->forward, NULL, MS_OP_DELTA_RULE, flop), 1e-12);
  assert_close(sum(&layer(&longer, 3)->forward, NULL, MS_OP_ATTENTION, flop),
               4 * sum(&attention->forward, NULL, MS_OP_ATTENTION, flop), 1e-12);
}

static double kept_of(const MsPiece *p, const char *name) {
  for (int i = 0; i < p->n_kept; i++)
    if (g_str_equal(p->kept[i].name, name)) return p->kept[i].bytes_B;
  return 0;
}

static void delta_net_in_parallel(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("qwen3-next-80b-a3b", 0, "h100-sxm", 16);
  s->layout.ep = 8;
  g_auto(MsLowered) whole = ms_test_lower(s);
  s->layout.cp = 2;
  g_auto(MsLowered) heads = ms_test_lower(s); /* 2 x 2048 + 2 x 4096 + 2 x 32 columns in, 4096 out */
  const MsPiece *h = layer(&heads, 0), *w = layer(&whole, 0);
  double in = 2 * 2048.0 * 12352, out = 2 * 2048.0 * 4096;
  assert_close(sum(&h->forward, "cp a2a in", -1, message), in, 0);
  assert_close(sum(&h->backward, "cp a2a in", -1, message), in, 0);
  assert_close(sum(&h->forward, "cp a2a out", -1, message), out, 0);
  assert_close(sum(&h->forward, "heads by rank", -1, traffic), 2 * (2 * in + out), 1e-12);
  assert_close(sum(&h->backward, "tokens in order", -1, traffic), 2 * (3 * in + out), 1e-12);
  assert_close(sum(&h->forward, NULL, MS_OP_DELTA_RULE, flop), sum(&w->forward, NULL, MS_OP_DELTA_RULE, flop) / 2,
               1e-12);
  assert_true(sum(&h->forward, "cp gather states", -1, one) == 0);
  s->options.linear_cp_mode = MS_LINEAR_CP_CHUNKWISE;
  g_auto(MsLowered) halves = ms_test_lower(s);
  const MsPiece *a = layer(&whole, 0), *b = layer(&halves, 0);
  assert_close(sum(&b->forward, NULL, MS_OP_DELTA_RULE, flop), sum(&a->forward, NULL, MS_OP_DELTA_RULE, flop) / 2,
               1e-12);
  /* queries and keys 4096 wide: three passes in, two out and 4096 for each; values and gate 4096; 32 heads */
  assert_close(sum(&a->forward, "delta gates", -1, traffic),
               4096 * (2.0 * (3 * 4096 + 2 * 4096 + 2 * 4096 + 8192 + 2 * 4096) + 12 * 32), 1e-12);
  assert_close(sum(&a->backward, "delta gradients joined", -1, traffic), 4 * 4096.0 * (4 * 4096 - 2 * 2048 + 64),
               1e-12);
  assert_true(sum(&a->forward, "cp a2a in", -1, one) == 0 && sum(&b->forward, "cp a2a in", -1, one) == 0);
  assert_true(sum(&b->forward, "cp gather states", -1, one) == 1);
  assert_close(kept_of(h, "delta gate"), 2.0 * 2048 * 4096, 0);
  for (int i = 0; i < h->forward.n; i++) /* the rule sees the whole sequence, or a slice of it */
    if (h->forward.op[i].kind == MS_OP_DELTA_RULE) assert_close(h->forward.op[i].m, 4096, 0);
  for (int i = 0; i < b->forward.n; i++)
    if (b->forward.op[i].kind == MS_OP_DELTA_RULE) assert_close(b->forward.op[i].m, 2048, 0);
  s->layout.cp = 1, s->layout.tp = 2;
  g_auto(MsLowered) split = ms_test_lower(s);
  const MsPiece *c = layer(&split, 0);
  assert_close(sum(&c->forward, NULL, MS_OP_DELTA_RULE, flop), sum(&a->forward, NULL, MS_OP_DELTA_RULE, flop) / 2,
               1e-12);
  assert_close(sum(&c->forward, "delta in", -1, flop), sum(&a->forward, "delta in", -1, flop) / 2, 1e-12);
  g_autoptr(MsResult) r = sound(s);
  assert_true(r->time.comm_total_s[MS_COMM_TP] > 0);
}

/* The simulator costs a row as the fit predicts the measured one: same FLOP, bytes and coordinates. */
static void delta_rule_costs_its_curve(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("qwen3-next-80b-a3b", 0, "h100-sxm", 8);
  s->layout.ep = 8;
  g_auto(MsLowered) l = ms_test_lower(s);
  GError *error = NULL;
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
  assert_non_null(cost);
  for (int i = 0; i < layer(&l, 0)->forward.n; i++) {
    const MsOp *op = &layer(&l, 0)->forward.op[i];
    if (op->kind != MS_OP_DELTA_RULE) continue;
    MsOpCost c = ms_cost_op(cost, op);
    assert_non_null(c.curve);
    assert_string_equal(c.curve->op, "delta_rule");
    MsDeviceRates device = ms_device_rates(s->hardware, MS_ODT_BF16, FALSE);
    MsSeries series = {.kind = MS_ROW_DELTA, .dtype = MS_ODT_BF16};
    double derate = ms_sustained_clock(s, MS_FAMILY_ATTENTION);
    MsPrediction p = ms_predict(c.curve, &device, &series, (const double[MS_ROW_X]){1, 4096, 16, 32, 128, 128});
    double factor = s->stack.attention > 0 ? s->stack.attention : 1;
    assert_close(c.time_s, p.time_s / derate * factor, 1e-9);
    return;
  }
  fail_msg("no delta rule");
}

/* --- sparse attention ------------------------------------------------------------------------------------------ */

static MsScenario *sparse(int seq) {
  MsScenario *s = ms_test_run("glm5-2", 0, "h200-sxm", 32);
  s->layout.ep = 32;
  s->training.seq_length = seq;
  return s;
}

static void sparse_attention_sees_its_keys(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = sparse(1024);
  g_auto(MsLowered) few = ms_test_lower(s);
  double per_key = 2.0 * 64 * (576 + 512);
  assert_close(sum(&layer(&few, 2)->forward, NULL, MS_OP_SPARSE_ATTENTION, flop), per_key * 64 * 64 * (16 * 17 / 2),
               1e-12); /* all before it, itself included, in blocks of 64 */
  s->training.seq_length = 65536;
  g_auto(MsLowered) many = ms_test_lower(s);
  assert_close(sum(&layer(&many, 2)->forward, NULL, MS_OP_SPARSE_ATTENTION, flop),
               per_key * ((65536.0 - 2048) * 2048 + 64 * 64 * (32 * 33 / 2)), 1e-12);
  assert_close(sum(&layer(&many, 2)->forward, NULL, MS_OP_INDEXER, flop), 2.0 * 32 * 128 * 65536 * 65536,
               1e-12); /* head by head, later keys too */
  assert_true(sum(&layer(&many, 2)->forward, "sum indexer heads", -1, one) == 1);
  /* dense attention of the same model: everything but the core and its absorbed projections is alike */
  s->model->sparse_attention.indexer_topk = 0;
  g_auto(MsLowered) dense = ms_test_lower(s);
  const MsPiece *a = layer(&many, 4), *b = layer(&dense, 4);
  assert_close(sum(&b->forward, NULL, MS_OP_ATTENTION, flop) / sum(&a->forward, NULL, MS_OP_SPARSE_ATTENTION, flop),
               32768.0 * 512 / (2048 * 1088.0), 0.02);
  assert_close(sum(&a->forward, NULL, MS_OP_GROUPED_GEMM, flop), sum(&b->forward, NULL, MS_OP_GROUPED_GEMM, flop), 0);
  double up = sum(&a->forward, "k up, absorbed", -1, flop) + sum(&a->forward, "v up, absorbed", -1, flop);
  assert_close(up, sum(&b->forward, "kv up", -1, flop), 1e-12);
  assert_close(a->params_dense, b->params_dense, 1e-12); /* a layer that shares its keys has no indexer */
}

/* cuDNN scores in one piece what starts at the first query and fits 1 GiB, and packed sequences cut over ranks. */
static void scores_fused_or_by_head(void **state) {
  (void)state;
  static const struct {
    int freq, seq, cp, packed, fused;
  } cases[] = {{1, 16384, 1, 0, 1}, {1, 32768, 1, 0, 0}, {4, 16384, 1, 0, 0}, {1, 16384, 1, 1, 0},
               {1, 16384, 8, 0, 0}, {1, 16384, 8, 1, 1}, {4, 16384, 8, 1, 1}, {1, 65536, 8, 1, 1}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = sparse(cases[i].seq);
    s->model->sparse_attention.indexer_topk_freq = cases[i].freq;
    s->layout.cp = cases[i].cp, s->layout.cp_comm_type = MS_CP_ALL_GATHER;
    if (cases[i].packed) s->training.sequence_lengths = (MsLengths){.n = 1, .length = {cases[i].seq}, .weight = {1}};
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *own = layer(&l, 2);
    double pairs = (double)cases[i].seq / cases[i].cp * cases[i].seq;
    assert_close(sum(&own->forward, NULL, MS_OP_INDEXER, flop), 2.0 * 32 * 128 * pairs / (cases[i].fused ? 2 : 1),
                 1e-9);
    assert_true(sum(&own->forward, "sum indexer heads", -1, one) == !cases[i].fused);
    assert_close(sum(&own->forward, cases[i].fused ? "indexer scores" : "sum indexer heads", -1, alive),
                 (cases[i].fused ? 1 : 2) * MIN(4 * pairs, 1073741824.0), 1e-12);
    /* queries without a key are looked for, unless packed sequences over ranks say there are none */
    gboolean known = cases[i].freq == 1 && cases[i].packed && cases[i].cp > 1;
    assert_true(sum(&own->backward, "gather queries", -1, one) == !known &&
                sum(&own->backward, "spread query gradients", -1, one) == !known);
    assert_true(sum(&own->forward, "lengths agree", -1, one) == (cases[i].cp > 1 && !cases[i].packed));
  }
}

/* FlashMLA and cuDNN take 64 heads: what TP leaves of them is padded, and the indexer sees its inputs whole. */
static void heads_of_sparse_attention_are_padded(void **state) {
  (void)state;
  double core = 0, other = 0;
  for (int tp = 1; tp <= 2; tp++) {
    g_autoptr(MsScenario) s = sparse(4096);
    s->layout.tp = tp, s->layout.ep = 16, s->options.sequence_parallel = TRUE;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *own = layer(&l, 2);
    double flops = sum(&own->forward, NULL, MS_OP_SPARSE_ATTENTION, flop),
           lift = sum(&own->forward, "v up, absorbed", -1, flop);
    if (tp == 1) core = flops, other = lift;
    assert_close(flops, core, 1e-12);
    assert_close(lift, other / tp, 1e-12);
    assert_close(kept(own, "attention out, latent"), 2.0 * 4096 * 64 * 512, 1e-12);
    assert_true(sum(&own->forward, "pad heads", -1, one) == (tp > 1) &&
                sum(&own->backward, "pad heads", -1, one) == 2 * (tp > 1));
    assert_close(sum(&own->forward, "indexer k", -1, flop), 2.0 * 4096 * 6144 * 128, 1e-12);
    assert_close(kept(own, "indexer inputs"), tp > 1 ? 2.0 * 4096 * (6144 + 2048) : 0, 1e-12);
    assert_close(sum(&own->forward, "tp gather index", -1, message), tp > 1 ? 2.0 * 4096 * (6144 + 2048) : 0, 1e-12);
    assert_close(sum(&own->backward, "tp sum index targets", -1, message), tp > 1 ? 4.0 * 4096 * 2048 : 0, 1e-12);
    /* 32 heads of the indexer learn as 64 */
    assert_true(sum(&own->backward, "pad indexer heads", -1, one) == 1);
  }
}

static void shared_choice_of_keys(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = sparse(4096);
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *own = layer(&l, 6), *shared = layer(&l, 7); /* layers 7 and 8 from 1: (7 - 3) % 4 = 0 */
  assert_true(sum(&own->forward, NULL, MS_OP_INDEXER, one) == 1 &&
              sum(&shared->forward, NULL, MS_OP_INDEXER, one) == 0);
  assert_close(sum(&own->forward, NULL, MS_OP_SPARSE_ATTENTION, flop),
               sum(&shared->forward, NULL, MS_OP_SPARSE_ATTENTION, flop), 0);
  assert_close(own->params_dense - shared->params_dense, 2048.0 * 32 * 128 + 6144.0 * 128 + 2 * 128 + 6144.0 * 32,
               1e-12);
  assert_true(kept(own, "chosen keys") > 0 && kept(shared, "chosen keys") == 0);
  double learns = sum(&own->backward, NULL, MS_OP_INDEXER, one), forward = sum(&own->forward, NULL, -1, traffic),
         sorts = sum(&own->forward, "sort chosen keys", -1, traffic);
  assert_true(sum(&shared->forward, "sort chosen keys", -1, one) == 0);
  assert_true(learns == 1);
  s->model->sparse_attention.indexer_loss = FALSE;
  g_auto(MsLowered) fixed = ms_test_lower(s);
  assert_true(sum(&layer(&fixed, 6)->backward, NULL, MS_OP_INDEXER, one) == 0);
  assert_close(sum(&layer(&fixed, 6)->forward, NULL, -1, traffic), forward - sorts / 2,
               1e-12); /* lists are sorted twice, for the loss twice more */
  assert_true(layer(&fixed, 6)->kept_B < own->kept_B);
}

static void sparse_attention_pays_at_length(void **state) {
  (void)state;
  double gain[2];
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsScenario) s = sparse(i ? 131072 : 4096);
    s->model->sparse_attention.indexer_topk_freq = 1;
    s->layout.cp = 8, s->layout.cp_comm_type = MS_CP_ALL_GATHER;
    s->training.global_batch_size = 8;
    s->training.sequence_lengths = (MsLengths){.n = 1, .length = {s->training.seq_length}, .weight = {1}};
    g_autoptr(MsResult) on = sound(s);
    assert_true(on->time.comm_total_s[MS_COMM_CP] > 0);
    s->model->sparse_attention.indexer_topk = 0;
    g_autoptr(MsResult) off = sound(s);
    gain[i] = off->step_time_s / on->step_time_s;
    assert_close(on->model_flop_per_token, off->model_flop_per_token, 1e-12); /* the convention does not know */
  }
  assert_true(gain[1] > 1.5 && gain[0] < 1.1);
}

/* --- DeepSeek-V4 ----------------------------------------------------------------------------------------------- */

static void compressed_attention_by_ratio(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v4-flash", 1, "gb200-nvl72", 64);
  s->layout.ep = 64;
  s->training.seq_length = 16384;
  g_auto(MsLowered) l = ms_test_lower(s);
  const MsPiece *window = layer(&l, 0), *chosen = layer(&l, 2), *all = layer(&l, 3);
  double T = 16384, per_key = 2.0 * 64 * 1024; /* lists are as long for the first query as for the last */
  assert_close(sum(&window->forward, NULL, MS_OP_SPARSE_ATTENTION, flop), per_key * T * 128, 1e-12);
  assert_close(sum(&chosen->forward, NULL, MS_OP_SPARSE_ATTENTION, flop), per_key * T * (128 + 512), 1e-12);
  assert_close(sum(&all->forward, NULL, MS_OP_SPARSE_ATTENTION, flop), per_key * T * (128 + T / 128), 1e-12);
  assert_true(sum(&window->forward, "compressor", -1, one) == 0 && sum(&all->forward, "compressor", -1, one) == 1);
  assert_true(sum(&all->forward, NULL, MS_OP_INDEXER, one) == 0 &&
              sum(&chosen->forward, NULL, MS_OP_INDEXER, one) == 1);
  /* executed against the convention, which leaves out keys that are masked in the core, and lets the indexer score
   * those that are still to come */
  for (int i = 0; i < 4; i++) {
    double core = sum(&layer(&l, i)->forward, NULL, MS_OP_SPARSE_ATTENTION, flop) +
                  sum(&layer(&l, i)->forward, NULL, MS_OP_INDEXER, flop);
    double linears = sum(&layer(&l, i)->forward, NULL, MS_OP_GEMM, flop);
    double want_core = T * ms_flop_compressed_core(s->model, i, T), want = T * ms_flop_compressed_linear(s->model, i);
    if (i == 2) want_core -= 64 * 128.0 / 4 * T * T;
    assert_true(core >= want_core * (1 - 1e-9) && core < want_core * 1.4);
    double mlp = 2 * T * 4096.0 * (256 + 3 * 2048); /* router and shared expert */
    assert_close(linears - mlp, want - 2 * T * (1024 + 512), 1e-9);
  }
  /* the MTP block sees the window only */
  assert_close(sum(&l.work->pieces[l.work->piece_mtp].forward, NULL, MS_OP_SPARSE_ATTENTION, flop), per_key * T * 128,
               1e-12);
}

/* NVIDIA/cudnn-frontend#318: BF16, 4096 queries, width 512, on B200 */
static void sparse_backward_as_measured(void **state) {
  (void)state;
  static const struct {
    int heads, keys;
    double measured_s;
  } table[] = {{64, 128, 0.560e-3},  {64, 512, 1.233e-3},  {64, 1024, 2.155e-3}, {64, 2048, 4.019e-3},
               {128, 128, 1.066e-3}, {128, 512, 2.424e-3}, {128, 1024, 4.303e-3}};
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v4-flash", 1, "b200-sxm", 64);
  s->layout.ep = 64;
  g_auto(MsLowered) l = ms_test_lower(s);
  g_autoptr(GError) error = NULL;
  MsCost *cost = ms_cost_new(s, l.layout, &error);
  for (size_t i = 0; i < G_N_ELEMENTS(table); i++) {
    double rows = 4096, heads = table[i].heads, keys = table[i].keys, tensor = 2 * rows * heads * 512;
    MsOp op = {.kind = MS_OP_SPARSE_ATTENTION,
               .pass = MS_PASS_DGRAD,
               .dtype = MS_ODT_BF16,
               .m = rows,
               .n = keys,
               .k = 1024,
               .groups = table[i].heads,
               .kv_groups = 1,
               .flop = 2 * rows * heads * keys * 5 * 512,
               .read_B = 3 * tensor + 4 * rows * keys,
               .write_B = tensor};
    assert_close(ms_cost_op(cost, &op).time_s * ms_sustained_clock(s, MS_FAMILY_ATTENTION), table[i].measured_s, 0.015);
  }
  ms_cost_free(cost);
}

static void streams(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("qwen3-30b-a3b", 0, "h100-sxm", 16);
  s->layout.pp = 2, s->layout.ep = 8;
  s->training.global_batch_size = 64;
  g_auto(MsLowered) plain = ms_test_lower(s);
  g_autoptr(MsResult) without = sound(s);
  s->model->hyper_connections.num_residual_streams = 4;
  g_auto(MsLowered) four = ms_test_lower(s);
  g_autoptr(MsResult) with = sound(s);
  const MsPiece *a = layer(&plain, 1), *b = layer(&four, 1);
  assert_close(sum(&a->forward, NULL, MS_OP_GEMM, flop), sum(&b->forward, NULL, MS_OP_GEMM, flop), 0);
  assert_close(sum(&a->backward, NULL, MS_OP_GROUPED_GEMM, flop), sum(&b->backward, NULL, MS_OP_GROUPED_GEMM, flop), 0);
  assert_close(sum(&a->forward, NULL, MS_OP_ATTENTION, flop), sum(&b->forward, NULL, MS_OP_ATTENTION, flop), 0);
  assert_true(sum(&a->forward, NULL, MS_OP_STREAM_MIX, one) == 0 && sum(&b->forward, NULL, MS_OP_STREAM_MIX, one) == 8);
  assert_close(with->time.comm_total_s[MS_COMM_EP], without->time.comm_total_s[MS_COMM_EP], 0.01);
  assert_true(with->time.comm_total_s[MS_COMM_PP] >
              2 * without->time.comm_total_s[MS_COMM_PP]); /* four times the message */
  assert_close(with->model_flop_per_token, without->model_flop_per_token, 1e-12);
  double x = 2.0 * 4096 * 2048;
  assert_close(kept(b, "attention streams"), 4 * x, 0);
  assert_close(b->params_dense - a->params_dense, 2 * (24 * (4 * 2048.0 + 1) + 3), 1e-12);
  /* fewer kernels of its own, more passes over the streams; nothing else changes */
  double times[3];
  for (int backend = MS_MHC_NATIVE; backend <= MS_MHC_CUTILE; backend++) {
    s->options.mhc_backend = (MsMhcBackend)backend;
    g_auto(MsLowered) by = ms_test_lower(s);
    const MsPiece *d = layer(&by, 1);
    times[backend] =
        sum(&d->forward, NULL, MS_OP_STREAM_MIX, traffic) + sum(&d->backward, NULL, MS_OP_STREAM_MIX, traffic);
    double others = sum(&d->backward, NULL, -1, traffic) - sum(&d->backward, NULL, MS_OP_STREAM_MIX, traffic);
    assert_close(others, sum(&b->backward, NULL, -1, traffic) - sum(&b->backward, NULL, MS_OP_STREAM_MIX, traffic),
                 1e-12);
    assert_true(d->kept_B == b->kept_B);
  }
  assert_true(times[MS_MHC_NATIVE] > times[MS_MHC_TRITON] && times[MS_MHC_TRITON] > 1.5 * times[MS_MHC_CUTILE]);
  s->options.mhc_backend = MS_MHC_TRITON;
  s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = MS_RM_MHC;
  g_auto(MsLowered) again = ms_test_lower(s);
  const MsPiece *c = layer(&again, 1);
  assert_close(sum(&c->forward, NULL, -1, traffic), sum(&b->forward, NULL, -1, traffic), 0);
  /* gone: streams of the second half, both inputs and their norms */
  assert_close(b->kept_B - c->kept_B, 4 * x + 2 * x + 2 * x, 1e-12);
  assert_true(sum(&c->backward, NULL, -1, traffic) > sum(&b->backward, NULL, -1, traffic));
}

static void one_stream_is_the_plain_residual(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 8);
  s->layout.ep = 8;
  g_autoptr(MsResult) plain = sound(s);
  s->model->hyper_connections.num_residual_streams = 1, s->model->hyper_connections.sinkhorn_iterations = 5;
  g_autoptr(MsResult) one_stream = sound(s);
  assert_close(one_stream->step_time_s, plain->step_time_s, 0);
  assert_close(one_stream->memory->stage[0].peak_B, plain->memory->stage[0].peak_B, 0);
}

/* --- front end ------------------------------------------------------------------------------------------------- */

static void front_end(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  s->layout.pp = 2;
  s->training.global_batch_size = 32;
  g_autoptr(MsResult) without = sound(s);
  s->model->front_end =
      (MsFrontEnd){.parameters = 6e8, .forward_flop = 5e12, .forward_B = 1e9, .kept_B = 2e9, .frozen = TRUE};
  g_autoptr(MsResult) frozen = sound(s);
  s->model->front_end.frozen = FALSE;
  g_autoptr(MsResult) trained = sound(s);
  double passes = s->training.global_batch_size / 4.0, rate = s->hardware->peak_bf16_flops;
  double added = frozen->stage_time[0].compute_s - without->stage_time[0].compute_s;
  assert_true(added > passes * 5e12 / rate && added < passes * 5e12 / (0.5 * rate));
  assert_close(trained->stage_time[0].compute_s - without->stage_time[0].compute_s, 3 * added, 0.15);
  assert_close(trained->stage_time[1].compute_s, without->stage_time[1].compute_s, 1e-9);
  assert_close(frozen->memory->stage[0].parameters_B - without->memory->stage[0].parameters_B, 2 * 6e8, 1e-9);
  assert_close(frozen->memory->stage[0].gradients_B, without->memory->stage[0].gradients_B, 0);
  assert_close(frozen->memory->stage[0].activations_B, without->memory->stage[0].activations_B, 0);
  assert_close(trained->memory->stage[0].gradients_B - without->memory->stage[0].gradients_B, 4 * 6e8, 1e-9);
  assert_close(trained->memory->stage[0].activations_B - without->memory->stage[0].activations_B, 2 * 2e9,
               1e-9); /* two microbatches in flight */
  assert_close(trained->memory->stage[1].peak_B, without->memory->stage[1].peak_B, 1e-12);
  assert_close(trained->model_flop_per_token, without->model_flop_per_token,
               0); /* the convention counts the language model */
}

/* --- all of them, at every fidelity, recomputed and not -------------------------------------------------------- */

static void every_kind_runs(void **state) {
  (void)state;
  static const struct {
    const char *model, *hardware;
    int gpus, pp, ep;
    MsPrecision precision;
  } runs[] = {
      {"qwen3-next-80b-a3b", "h100-sxm", 64, 4, 8, MS_BF16},
      {"qwen3-next-80b-a3b", "gb200-nvl72", 64, 1, 64, MS_MXFP8},
      {"deepseek-v3.2", "gb200-nvl72", 256, 1, 64, MS_MXFP8},
      {"glm5-2", "h200-sxm", 352, 11, 32, MS_FP8_BLOCKWISE},
      {"deepseek-v4-flash", "gb200-nvl72", 64, 1, 64, MS_MXFP8},
      {"deepseek-v4-pro", "gb300-nvl72", 64, 1, 64, MS_NVFP4},
  };
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_autoptr(MsScenario) s = ms_test_run(runs[i].model, 0, runs[i].hardware, runs[i].gpus);
    s->layout.pp = runs[i].pp, s->layout.ep = runs[i].ep, s->training.precision = runs[i].precision;
    s->training.global_batch_size = runs[i].gpus / runs[i].pp * 4;
    if (runs[i].pp == 11)
      s->layout.pipeline_layout =
          g_strdup("Etttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttt|ttttL");
    g_autoptr(MsResult) plain = sound(s);
    s->options.recompute.granularity = MS_RECOMPUTE_FULL;
    g_autoptr(MsResult) again = sound(s);
    assert_true(again->step_time_s > 1.15 * plain->step_time_s && again->step_time_s < 1.5 * plain->step_time_s);
    assert_true(again->memory->stage[0].activations_B < 0.3 * plain->memory->stage[0].activations_B);
  }
}

/* Four groups of Qwen3 on eight tensor-parallel ranks: the columns of qkv are split all the same and gathered behind
 * the product, keys and values of one group stay on each rank (Megatron-LM core/transformer/attention.py). */
static void fewer_groups_than_ranks(void **state) {
  (void)state;
  double T = 4096, h = 2048, Q = 32 * 128, K = 4 * 128;
  for (int tp = 4; tp <= 8; tp *= 2) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-30b-a3b", 0, "h100-sxm", 8);
    s->layout.tp = tp, s->options.sequence_parallel = TRUE;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *p = layer(&l, 0);
    assert_close(sum(&p->forward, "qkv", MS_OP_GEMM, flop), 2 * T * h * (Q + 2 * K) / tp, 1e-14);
    double gathered = tp > 4 ? 2 * T * (Q + 2 * K) : 0;
    assert_close(sum(&p->forward, "tp gather qkv", MS_OP_ALL_GATHER, message), gathered, 1e-14);
    assert_close(sum(&p->backward, "tp scatter qkv", MS_OP_REDUCE_SCATTER, message), gathered, 1e-14);
    for (int i = 0; i < p->n_kept; i++)
      if (!strcmp(p->kept[i].name, "qkv")) assert_close(p->kept[i].bytes_B, 2 * T * (Q / tp + 2 * 128), 1e-14);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(delta_net_rows),
      cmocka_unit_test(delta_net_in_parallel),
      cmocka_unit_test(delta_rule_costs_its_curve),
      cmocka_unit_test(sparse_attention_sees_its_keys),
      cmocka_unit_test(scores_fused_or_by_head),
      cmocka_unit_test(heads_of_sparse_attention_are_padded),
      cmocka_unit_test(shared_choice_of_keys),
      cmocka_unit_test(sparse_attention_pays_at_length),
      cmocka_unit_test(compressed_attention_by_ratio),
      cmocka_unit_test(sparse_backward_as_measured),
      cmocka_unit_test(streams),
      cmocka_unit_test(one_stream_is_the_plain_residual),
      cmocka_unit_test(front_end),
      cmocka_unit_test(every_kind_runs),
      cmocka_unit_test(fewer_groups_than_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
