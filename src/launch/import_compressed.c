/* src/launch/import_compressed.c - DeepSeek-V4's attention and residual streams in the words of MindSpeed-LLM
 * (mindspeed_llm/features_manager/transformer/multi_latent_attention/csa_feature.py, mhc) and of miles
 * (miles_plugins/models/deepseek_v4). Megatron-LM has no arguments for them. */
#include <string.h>

#include "launch/import.h"
#include "launch/table.h"

typedef struct {
  MsArgs *args;
  GError **error;
} Reader;

static gboolean number(Reader *r, const char *flags, int absent, int *value) {
  const MsArg *arg = ms_args_take_any(r->args, flags);
  gint64 given = absent;
  if (arg && !ms_arg_int(r->args, arg, 0, 1 << 20, &given, r->error)) return FALSE;
  *value = (int)given;
  return TRUE;
}

/* Numbers of layers, from 0, that have no weights: their entries of the list stand for nothing. (transfer full) */
static char **without_weights(const MsArgs *args) {
  for (guint i = args->list->len; i-- > 0;) {
    const MsArg *arg = args->list->pdata[i];
    if (strcmp(arg->flag, "--noop-layers") == 0 && arg->values[0]) return g_strsplit(arg->values[0], ",", -1);
  }
  return g_new0(char *, 1);
}

/* What stands between blanks, commas and brackets: "0 4 128" of a command line, "[0, 4, 128]" of a YAML file. (transfer
 * full) */
static char **words_of_list(const MsArg *arg) {
  g_autofree char *text = g_strjoinv(" ", arg->values);
  char **words = g_strsplit_set(text, " ,[]", -1);
  guint n = 0;
  for (guint i = 0; words[i]; i++)
    if (*words[i]) words[n++] = words[i];
    else g_free(words[i]);
  words[n] = NULL;
  return words;
}

/* One ratio for each layer with weights; the block behind them (MTP) sees its window only. (transfer full) */
static char *read_ratios(Reader *r, const MsArg *arg, int layers, int blocks) {
  g_auto(GStrv) words = words_of_list(arg), noops = without_weights(r->args);
  g_autoptr(GString) list = g_string_new("[");
  int given = (int)g_strv_length(words);
  for (int i = 0; i < layers; i++) {
    gint64 ratio;
    g_autofree char *index = g_strdup_printf("%d", i);
    if (g_strv_contains((const char *const *)noops, index)) continue;
    if (i >= given || !g_ascii_string_to_signed(words[i], 10, 0, 255, &ratio, NULL)) {
      ms_arg_error(r->args, arg, r->error, "must be integers from 0 to 255, one for each of %d layers", layers);
      return NULL;
    }
    g_string_append_printf(list, "%s%d", list->len > 1 ? "," : "", (int)ratio);
  }
  for (int i = 0; i < blocks; i++) g_string_append(list, ",0");
  return g_strdup(g_string_append_c(list, ']')->str);
}

/* Words of latent attention that mean something else here, and those that rows of other kinds of attention read. */
static void drop_other_kinds(MsArgs *args) {
  static const char *const flags[] = {"--multi-latent-attention",
                                      "--kv-lora-rank",
                                      "--v-head-dim",
                                      "--q-lora-rank",
                                      "--qk-head-dim",
                                      "--qk-pos-emb-head-dim",
                                      "--enable-dsa-indexer",
                                      "--experimental-attention-variant",
                                      NULL};
  for (guint i = args->list->len; i-- > 0;)
    if (g_strv_contains(flags, ((MsArg *)args->list->pdata[i])->flag)) g_ptr_array_remove_index(args->list, i);
}

static gboolean read_attention(Reader *r, const MsArg *ratios, MsCompressedAttention *a) {
  int layers, blocks;
  if (!number(r, "--num-layers", 0, &layers) || !number(r, "--mtp-num-layers", 0, &blocks) ||
      !number(r, "--q-lora-rank", 0, &a->q_lora_rank) || !number(r, "--qk-head-dim", 128, &a->head_dim) ||
      !number(r, "--qk-pos-emb-head-dim", 64, &a->qk_pos_emb_head_dim) ||
      !number(r, "--o-groups --dsv4-o-groups", 8, &a->o_groups) ||
      !number(r, "--o-lora-rank --dsv4-o-lora-rank", 1024, &a->o_lora_rank) ||
      !number(r, "--sliding-window-size --dsv4-window-size", 128, &a->window))
    return FALSE;
  a->compress_ratios = read_ratios(r, ratios, layers, blocks);
  return a->compress_ratios != NULL;
}

static gboolean read_indexer(Reader *r, MsSparseAttention *s) {
  double weight = 0;
  const MsArg *loss = ms_args_take_any(r->args, "--indexer-loss-coeff --dsa-indexer-loss-coeff");
  if (!number(r, "--index-n-heads --dsa-indexer-n-heads", 64, &s->indexer_num_heads) ||
      !number(r, "--index-head-dim --dsa-indexer-head-dim", 128, &s->indexer_head_dim) ||
      !number(r, "--index-topk --dsa-indexer-topk", 512, &s->indexer_topk) ||
      (loss && !ms_arg_number(r->args, loss, 0, 1e6, &weight, r->error)))
    return FALSE;
  s->indexer_topk_freq = 1, s->indexer_loss = weight > 0;
  return TRUE;
}

static gboolean read_streams(Reader *r, MsHyperConnections *h) {
  const MsArg *on = ms_args_take(r->args, "--enable-mhc"), *flag = on;
  for (guint i = 0; !flag && i < r->args->list->len; i++) {
    const MsArg *arg = r->args->list->pdata[i];
    if (strcmp(arg->flag, "--dsv4-hc-mult") == 0) flag = arg;
  }
  *h = (MsHyperConnections){.num_residual_streams = 1, .sinkhorn_iterations = 20};
  if (!flag) return TRUE;
  return number(r, "--hc-mult --dsv4-hc-mult", 4, &h->num_residual_streams) &&
         number(r, "--hc-sinkhorn-iters --dsv4-hc-sinkhorn-iters", 20, &h->sinkhorn_iterations);
}

static gboolean read_stretching(Reader *r, MsRopeScaling *s) {
  const MsArg *factor = ms_args_take_any(r->args, "--rope-factor --rotary-scaling-factor");
  *s = ms_rope_scaling_usual;
  s->type = MS_ROPE_YARN;
  ms_args_take_any(r->args, "--beta-fast --beta-slow"); /* 32 and 1 in both */
  if (!number(r, "--original-seq-len --original-max-position-embeddings", 65536, &s->original_max_position_embeddings))
    return FALSE;
  return !factor || ms_arg_number(r->args, factor, 1, 1e6, &s->factor, r->error);
}

gboolean ms_import_compressed(MsImport *import, MsArgs *args, MsModel *found, GError **error) {
  Reader r = {args, error};
  const MsArg *ratios = ms_args_take_any(args, "--compress-ratios --dsv4-compress-ratios");
  if (!ratios) return TRUE;
  if (!read_attention(&r, ratios, &found->compressed_attention) || !read_indexer(&r, &found->sparse_attention) ||
      !read_streams(&r, &found->hyper_connections) || !read_stretching(&r, &found->rope_scaling))
    return FALSE;
  ms_args_take_any(args, "--kv-compress --enable-dsa-indexer --spec --mtp-spec --experimental-attention-variant "
                         "--max-batch-size --use-triton-mhc --use-fused-mhc --dsv4-compress-rope-theta "
                         "--compress-rope-theta");
  if (ms_args_take_any(args, "--n-hash-layers --dsv4-n-hash-layers"))
    ms_import_remark(import, "layers that route by a hash of the token are counted with a router, as the others");
  const MsArg source = *ratios;
  drop_other_kinds(args);
  g_autofree char *width = g_strdup_printf("%d", found->compressed_attention.head_dim);
  ms_args_say(args, &source, "--group-query-attention", NULL);
  ms_args_say(args, &source, "--num-query-groups", "1");
  ms_args_say(args, &source, "--kv-channels", width);
  return TRUE;
}

void ms_import_put_compressed(MsModel *found, MsModel *model) {
  MsCompressedAttention *a = &model->compressed_attention;
  if (!found->compressed_attention.compress_ratios) return;
  g_free(a->compress_ratios);
  *a = found->compressed_attention;
  found->compressed_attention.compress_ratios = NULL;
  model->sparse_attention = found->sparse_attention;
  if (found->rope_scaling.factor > 1) model->rope_scaling = found->rope_scaling;
  model->hyper_connections = found->hyper_connections;
}
