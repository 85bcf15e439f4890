/* src/launch/dialect_layers.c - MindSpeed's words for which layers there are, where they are, and which have experts.
 *
 * --num-layers counts the layers without weights (--noop-layers, from 0), which only fill stages up; the number of
 * stages divides it. Layer i has experts when i >= --first-k-dense-replace and --moe-layer-freq divides i. */
#include <string.h>

#include "layout/layout.h"
#include "launch/dialect.h"

enum { MOST_LAYERS = 10000, MOST_CHUNKS = 4096 };

typedef struct {
  MsArgs *args;
  GError **error;
  int layers, pp, chunks;      /* as written, with those without weights; virtual stages */
  guint8 noop[MOST_LAYERS];    /* 1: has no weights */
  int in_chunk[MOST_CHUNKS];   /* layers with weights */
  const MsArg *noops, *stages; /* what says so, or NULL */
} Layers;

static gboolean number(Layers *l, const char *flag, int absent, int *value) {
  const MsArg *arg = ms_args_take(l->args, flag);
  gint64 given = absent;
  if (arg && !ms_arg_int(l->args, arg, 1, MOST_LAYERS, &given, l->error)) return FALSE;
  *value = (int)given;
  return TRUE;
}

/* Integers separated by commas in the values of an argument, each handed to `take`. */
static gboolean each_number(Layers *l, const MsArg *arg, gboolean (*take)(Layers *, const MsArg *, int, int)) {
  g_autofree char *text = g_strjoinv(",", arg->values);
  g_auto(GStrv) parts = g_strsplit_set(text, ", ", -1);
  int n = 0;
  for (int i = 0; parts[i]; i++) {
    gint64 value;
    if (!*parts[i]) continue;
    if (!g_ascii_string_to_signed(parts[i], 10, 0, MOST_LAYERS, &value, NULL))
      return ms_arg_error(l->args, arg, l->error, "is \"%.60s\", must be integers separated by commas", text);
    if (!take(l, arg, n++, (int)value)) return FALSE;
  }
  return TRUE;
}

static gboolean take_noop(Layers *l, const MsArg *arg, int index, int layer) {
  (void)index;
  if (layer >= l->layers)
    return ms_arg_error(l->args, arg, l->error, "names layer %d of %d, the first is 0", layer, l->layers);
  l->noop[layer] = 1;
  return TRUE;
}

static gboolean take_stage(Layers *l, const MsArg *arg, int index, int layers) {
  if (index >= l->pp) return ms_arg_error(l->args, arg, l->error, "has more than PP = %d numbers", l->pp);
  l->in_chunk[index] = layers;
  l->chunks = index + 1;
  return TRUE;
}

/* --- stages --- */
static gboolean read_sizes(Layers *l) {
  return number(l, "--num-layers", 0, &l->layers) && number(l, "--pipeline-model-parallel-size", 1, &l->pp);
}

/* Virtual stages of an even split of all layers, with or without weights. */
static gboolean count_chunks(Layers *l) {
  int per_chunk, vpp;
  const MsArg *schedule = NULL;
  for (guint i = 0; i < l->args->list->len; i++) {
    const MsArg *arg = l->args->list->pdata[i];
    if (strcmp(arg->flag, "--schedules-method") == 0) schedule = arg;
  }
  gboolean folded = schedule && g_strcmp0(schedule->values[0], "dualpipev") == 0; /* two chunks a rank */
  if (!number(l, "--num-layers-per-virtual-pipeline-stage", 0, &per_chunk) ||
      !number(l, "--num-virtual-stages-per-pipeline-rank", folded ? 2 : 1, &vpp))
    return FALSE;
  l->chunks = per_chunk > 0 ? l->layers / per_chunk : l->pp * vpp;
  gboolean even = l->chunks > 0 && l->chunks <= MOST_CHUNKS && l->chunks % l->pp == 0 && l->layers % l->chunks == 0;
  return even ||
         ms_arg_error(l->args, l->noops, l->error,
                      "%d layers, those without weights among them, do not split evenly over PP %d", l->layers, l->pp);
}

static gboolean split_noops(Layers *l) {
  if (!each_number(l, l->noops, take_noop) || !count_chunks(l)) return FALSE;
  for (int i = 0; i < l->layers; i++) l->in_chunk[i / (l->layers / l->chunks)] += !l->noop[i];
  return TRUE;
}

static gboolean split_list(Layers *l) {
  int sum = 0;
  if (!each_number(l, l->stages, take_stage)) return FALSE;
  for (int i = 0; i < l->chunks; i++) sum += l->in_chunk[i];
  return (l->chunks == l->pp && sum == l->layers) ||
         ms_arg_error(l->args, l->stages, l->error, "has %d stages and %d layers, must have PP = %d and %d", l->chunks,
                      sum, l->pp, l->layers);
}

static void drop(MsArgs *args, const char *flag) {
  for (guint i = args->list->len; i-- > 0;)
    if (strcmp(((MsArg *)args->list->pdata[i])->flag, flag) == 0) g_ptr_array_remove_index(args->list, i);
}

/* The number of layers with weights and the stages they are on. */
static gboolean say_stages(Layers *l, const MsArg *source) {
  gint64 blocks = 0;
  const MsArg *mtp = ms_args_take(l->args, "--mtp-num-layers");
  if (mtp && !ms_arg_int(l->args, mtp, 0, 100, &blocks, l->error)) return FALSE;
  g_autofree MsChunk *chunks = g_new0(MsChunk, l->chunks);
  int real = 0;
  for (int i = 0; i < l->chunks; i++) {
    gboolean last = i == l->chunks - 1;
    real += l->in_chunk[i];
    chunks[i] = (MsChunk){
        .num_layers = l->in_chunk[i], .has_embedding = i == 0, .has_loss = last, .num_mtp = last ? (int)blocks : 0};
  }
  g_autofree char *text = ms_pipeline_layout_text(chunks, l->chunks), *count = g_strdup_printf("%d", real);
  ms_args_say(l->args, source, "--num-layers", count);
  if (l->chunks == 1) return TRUE;
  ms_args_say(l->args, source, "--pipeline-model-parallel-layout", text);
  drop(l->args, "--num-layers-per-virtual-pipeline-stage"); /* the layout says it */
  drop(l->args, "--num-virtual-stages-per-pipeline-rank");
  return TRUE;
}

/* --- experts --- */
static void say_pattern(Layers *l, const MsArg *source, int dense, int freq) {
  g_autoptr(GString) list = g_string_new(NULL);
  gboolean some_dense = FALSE;
  for (int i = 0; i < l->layers; i++) {
    gboolean moe = i >= dense && (freq == 0 || i % freq == 0);
    if (l->noop[i]) continue;
    some_dense |= !moe;
    g_string_append_printf(list, "%c%d", list->len ? ',' : '[', moe);
  }
  g_string_append_c(list, ']');
  ms_args_say(l->args, source, "--moe-layer-freq", some_dense ? list->str : "1");
}

static gboolean read_dense(Layers *l) {
  const MsArg *first = ms_args_take(l->args, "--first-k-dense-replace");
  const MsArg *freq = ms_args_take(l->args, "--moe-layer-freq");
  gint64 dense = 0, every = 1;
  gboolean moe = ms_args_has(l->args, "--num-experts");
  if (!moe || (!first && (!freq || !l->noops))) return TRUE;
  if (first && !ms_arg_int(l->args, first, -1, MOST_LAYERS, &dense, l->error)) return FALSE;
  if (freq && !ms_arg_int(l->args, freq, -MOST_LAYERS, MOST_LAYERS, &every, l->error)) return FALSE;
  if (dense == 0) every = 1; /* without dense layers in front the specification gives experts to all */
  say_pattern(l, first ? first : freq, (int)MAX(dense, 0), (int)ABS(every));
  return TRUE;
}

gboolean ms_dialect_layers(MsArgs *args, GError **error) {
  g_autofree Layers *l = g_new0(Layers, 1);
  l->args = args, l->error = error;
  l->noops = ms_args_take(args, "--noop-layers");
  l->stages = ms_args_take(args, "--num-layer-list");
  if (l->noops && (!l->noops->values[0] || strcmp(l->noops->values[0], "None") == 0)) l->noops = NULL;
  if (!l->noops && !l->stages && !ms_args_has(args, "--first-k-dense-replace")) return TRUE;
  if (!read_sizes(l)) return FALSE;
  if (l->layers == 0) return TRUE; /* missing, which the table says */
  if (l->noops ? !split_noops(l) : l->stages && !split_list(l)) return FALSE;
  if (!read_dense(l)) return FALSE;
  return (!l->noops && !l->stages) || say_stages(l, l->noops ? l->noops : l->stages);
}
