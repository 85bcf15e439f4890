/* src/launch/groups_layout.c - context, expert and pipeline parallelism, rank order. */
#include "base/err.h"
#include "launch/dialect.h"
#include "layout/layout.h"
#include "launch/table.h"

#include <string.h>

#define SECTION MS_SECTION_PARALLEL

static gboolean set_int(MsArgs *args, const char *flags, int absent, int lo, int hi, int *value, GError **error) {
  const MsArg *arg = ms_args_take_any(args, flags);
  gint64 given = absent;
  if (arg && !ms_arg_int(args, arg, lo, hi, &given, error)) return FALSE;
  *value = (int)given;
  return TRUE;
}

/* --- context parallelism --- */
/* Each packed sequence on as few ranks as hold it (core/model_parallel_config.py). */
static gboolean write_hybrid_cp(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsOptions *o = &s->options;
  if (!o->hybrid_context_parallel) return TRUE;
  if (release != MS_RELEASE_MCORE)
    return ms_refuse_key(s, error, "options.hybrid_context_parallel", "%s has no --hybrid-context-parallel",
                         ms_release_words[release]);
  int most = o->max_seqlen_per_dp_cp_rank;
  ms_args_add(args, SECTION, "--hybrid-context-parallel", NULL);
  ms_args_addf(args, SECTION, "--max-seqlen-per-dp-cp-rank", "%d",
               most > 0 ? most : s->training.seq_length / s->layout.cp);
  return TRUE;
}

gboolean ms_write_context(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  int cp = s->layout.cp;
  MsCpComm type = s->layout.cp_comm_type;
  ms_args_addf(args, SECTION, "--context-parallel-size", "%d", cp);
  if (!write_hybrid_cp(s, release, args, error)) return FALSE;
  if (cp == 1) return TRUE;
  if (!ms_cp_comm_row(type)->spelling)
    return ms_refuse_key(s, error, "layout.cp_comm_type", "%s does not have %s", ms_release_words[release],
                         ms_cp_comm_words[type]);
  ms_args_add(args, SECTION, "--cp-comm-type", ms_cp_comm_words[type], NULL);
  if (ms_cp_comm_row(type)->heads != MS_CP_HEADS_INSIDE) return TRUE;
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, error);
  if (!layout) return FALSE;
  g_autofree char *inner = g_strdup_printf("%d", layout->cp_inner),
                  *outer = g_strdup_printf("%d", cp / layout->cp_inner);
  ms_args_add(args, SECTION, "--hierarchical-context-parallel-sizes", inner, outer, NULL);
  return TRUE;
}

static gboolean read_cp_type(MsArgs *args, const MsArg *arg, MsCpComm *type, GError **error) {
  if (!arg->values[0]) return ms_arg_value(args, arg, error) != NULL;
  for (int i = 1; arg->values[i]; i++)
    if (strcmp(arg->values[i], arg->values[0]) != 0)
      return ms_arg_error(args, arg, error, "differs from layer to layer, moesim has one type for all");
  const char *text = arg->values[0]; /* or the spelling of the option's help */
  for (int i = 0; i < MS_N_CP_COMMS; i++)
    if (g_strcmp0(text, ms_cp_comm_rows[i].spelling) == 0) text = ms_cp_comm_rows[i].word;
  int word = ms_arg_word(args, arg, text, ms_cp_comm_words, error);
  *type = (MsCpComm)MAX(word, 0);
  return word >= 0;
}

gboolean ms_read_context(MsArgs *args, MsScenario *s, GError **error) {
  s->layout.cp_comm_type = MS_CP_P2P;
  s->options.hybrid_context_parallel = ms_args_take(args, "--hybrid-context-parallel") != NULL;
  if (!set_int(args, "--context-parallel-size", 1, 1, 1024, &s->layout.cp, error) ||
      !set_int(args, "--max-seqlen-per-dp-cp-rank", 0, 0, 1 << 27, &s->options.max_seqlen_per_dp_cp_rank, error))
    return FALSE;
  if (!s->options.hybrid_context_parallel) s->options.max_seqlen_per_dp_cp_rank = 0;
  const MsArg *arg = ms_args_take(args, "--cp-comm-type");
  if (arg && !read_cp_type(args, arg, &s->layout.cp_comm_type, error)) return FALSE;
  if (ms_cp_comm_row(s->layout.cp_comm_type)->heads == MS_CP_HEADS_INSIDE)
    ms_args_take_any(args, "--hierarchical-context-parallel-sizes " MS_ULYSSES_DEGREE); /* they follow from the node */
  return TRUE;
}

/* --- expert parallelism --- */
gboolean ms_write_expert_parallel(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  ms_args_addf(args, SECTION, "--expert-model-parallel-size", "%d", s->layout.ep);
  (void)release, (void)error;
  ms_args_addf(args, SECTION, "--expert-tensor-parallel-size", "%d", s->layout.etp);
  return TRUE;
}

gboolean ms_read_expert_parallel(MsArgs *args, MsScenario *s, GError **error) {
  return set_int(args, "--expert-model-parallel-size", 1, 1, 16384, &s->layout.ep, error) &&
         set_int(args, "--expert-tensor-parallel-size", s->layout.tp, 1, 64, &s->layout.etp,
                 error); /* without it ETP is TP */
}

/* --- pipeline --- */
static void write_ends(int first, int last, MsArgs *args) {
  if (first > 0) ms_args_addf(args, SECTION, "--decoder-first-pipeline-num-layers", "%d", first);
  if (last > 0) ms_args_addf(args, SECTION, "--decoder-last-pipeline-num-layers", "%d", last);
}

static void write_split(const MsScenario *s, MsArgs *args) {
  const MsLayoutSpec *l = &s->layout;
  if (l->account_for_embedding_in_pipeline_split)
    ms_args_add(args, SECTION, "--account-for-embedding-in-pipeline-split", NULL);
  if (l->account_for_loss_in_pipeline_split) ms_args_add(args, SECTION, "--account-for-loss-in-pipeline-split", NULL);
  write_ends(l->decoder_first_pipeline_num_layers, l->decoder_last_pipeline_num_layers, args);
}

/* Exactly one of the ways to say VPP. */
static void write_chunks(const MsScenario *s, MsArgs *args) {
  const MsLayoutSpec *l = &s->layout;
  if (l->pipeline_layout) ms_args_add(args, SECTION, "--pipeline-model-parallel-layout", l->pipeline_layout, NULL);
  else if (l->vpp > 1) ms_args_addf(args, SECTION, "--num-virtual-stages-per-pipeline-rank", "%d", l->vpp);
  write_split(s, args);
}

/* MT-MegatronLM knows layers of the first, the last and of every virtual stage, however the scenario says the cut. */
static gboolean write_ends_alone(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  int first, last, chunks = ms_layout_chunks_per_rank(s);
  if (!ms_layout_said_by_ends(s, &first, &last))
    return ms_refuse_key(s, error, s->layout.pipeline_layout ? "layout.pipeline_layout" : "layout.pp",
                         "%s has layers of their own number on the first and last stage only, without VPP, and MTP "
                         "blocks on the last",
                         ms_release_words[release]);
  if (chunks > 1)
    ms_args_addf(args, SECTION, "--num-layers-per-virtual-pipeline-stage", "%d",
                 s->model->num_layers / s->layout.pp / chunks);
  write_ends(first, last, args);
  return TRUE;
}

gboolean ms_write_pipeline(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsLayoutSpec *l = &s->layout;
  const MsScheduleRow *row = ms_schedule_row(l->schedule);
  if (row->refused)
    return ms_refuse_key(s, error, "layout.schedule", "%s is not a schedule of %s: %s", row->word,
                         ms_release_words[release], row->refused);
  ms_args_addf(args, SECTION, "--pipeline-model-parallel-size", "%d", l->pp);
  if (release == MS_RELEASE_MT) {
    if (!write_ends_alone(s, release, args, error)) return FALSE;
  } else if (!ms_is_hybrid(s)) { /* else the pattern of layers says it */
    write_chunks(s, args);
  }
  if (l->microbatch_group_size_per_virtual_pipeline_stage > 0)
    ms_args_addf(args, SECTION, "--microbatch-group-size-per-virtual-pipeline-stage", "%d",
                 l->microbatch_group_size_per_virtual_pipeline_stage);
  return TRUE;
}

/* VPP from layers per chunk, as Megatron infers it. */
static gboolean chunks_of_layers(MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *arg = ms_args_take(args, "--num-layers-per-virtual-pipeline-stage"),
              *layers_arg = ms_args_take(args, "--num-layers");
  gint64 per_chunk, layers = 0;
  if (!arg) return TRUE;
  if (!ms_arg_int(args, arg, 1, 10000, &per_chunk, error)) return FALSE;
  if (layers_arg && !ms_arg_int(args, layers_arg, 1, 10000, &layers, error)) return FALSE;
  layers += s->layout.account_for_embedding_in_pipeline_split + s->layout.account_for_loss_in_pipeline_split;
  gint64 chunks = layers / s->layout.pp / per_chunk;
  if (chunks < 1 || chunks > 1024 || chunks * per_chunk * s->layout.pp != layers)
    return ms_arg_error(args, arg, error, "is %d, but %d layers on PP %d do not split so", (int)per_chunk, (int)layers,
                        s->layout.pp);
  s->layout.vpp = (int)chunks;
  return TRUE;
}

static gboolean read_schedule(MsArgs *args, MsLayoutSpec *l, GError **error) {
  const MsArg *arg = ms_args_take(args, MS_PIPELINE_SCHEDULE);
  l->schedule = MS_SCHED_1F1B;
  if (!arg) return TRUE;
  int word = ms_arg_word(args, arg, arg->values[0], ms_schedule_words, error);
  l->schedule = (MsScheduleKind)MAX(word, 0);
  if (ms_schedule_row(l->schedule)->chunks == MS_CHUNKS_TWO) l->vpp = 2;
  return word >= 0;
}

gboolean ms_read_pipeline(MsArgs *args, MsScenario *s, GError **error) {
  MsLayoutSpec *l = &s->layout;
  l->account_for_embedding_in_pipeline_split = ms_args_take(args, "--account-for-embedding-in-pipeline-split") != NULL;
  l->account_for_loss_in_pipeline_split = ms_args_take(args, "--account-for-loss-in-pipeline-split") != NULL;
  g_clear_pointer(&l->pipeline_layout, g_free);
  const MsArg *string = ms_args_take(args, "--pipeline-model-parallel-layout");
  if (string && !ms_arg_value(args, string, error)) return FALSE;
  if (string) l->pipeline_layout = g_strdup(string->values[0]);
  return set_int(args, "--pipeline-model-parallel-size", 1, 1, 1024, &l->pp, error) &&
         set_int(args, "--num-virtual-stages-per-pipeline-rank", 1, 1, 1024, &l->vpp, error) &&
         read_schedule(args, l, error) && chunks_of_layers(args, s, error) &&
         set_int(args, "--decoder-first-pipeline-num-layers", 0, 0, 10000, &l->decoder_first_pipeline_num_layers,
                 error) &&
         set_int(args, "--decoder-last-pipeline-num-layers", 0, 0, 10000, &l->decoder_last_pipeline_num_layers,
                 error) &&
         ms_read_hybrid_split(args, s, error) &&
         set_int(args, "--microbatch-group-size-per-virtual-pipeline-stage", 0, 0, 65536,
                 &l->microbatch_group_size_per_virtual_pipeline_stage, error);
}

/* --- rank order --- */
gboolean ms_write_order(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  (void)release, (void)error;
  if (s->layout.order == MS_ORDER_PP_DP) ms_args_add(args, SECTION, "--use-tp-pp-dp-mapping", NULL);
  return TRUE;
}

gboolean ms_read_order(MsArgs *args, MsScenario *s, GError **error) {
  (void)error;
  s->layout.order = ms_args_take(args, "--use-tp-pp-dp-mapping") ? MS_ORDER_PP_DP : MS_ORDER_DP_PP;
  return TRUE;
}
