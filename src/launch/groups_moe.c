/* src/launch/groups_moe.c - dispatcher, routing, and which layers hold experts. */
#include "launch/table.h"

#include <string.h>

#define MOE MS_SECTION_MOE

/* --- dispatcher: always said, since the release would take allgather --- */
gboolean ms_write_dispatcher(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsDispatcherRow *row = ms_dispatcher(&s->options);
  if (!ms_is_moe(s)) return TRUE;
  if (!row->launch_type || (row->launch_backend && release != MS_RELEASE_MCORE))
    return ms_refuse_key(s, error, "options.dispatcher", "%s does not have %s", ms_release_words[release], row->word);
  ms_args_add(args, MOE, "--moe-token-dispatcher-type", row->launch_type, NULL);
  if (!row->launch_backend) return TRUE;
  ms_args_add(args, MOE, "--moe-flex-dispatcher-backend", row->launch_backend, NULL);
  if (s->options.dispatcher_num_sms > 0)
    ms_args_addf(args, MOE, "--moe-flex-dispatcher-num-sms", "%d", s->options.dispatcher_num_sms);
  return TRUE;
}

static gboolean read_backend(MsArgs *args, MsOptions *o, GError **error) {
  const MsArg *arg = ms_args_take(args, "--moe-flex-dispatcher-backend"),
              *sms = ms_args_take(args, "--moe-flex-dispatcher-num-sms");
  const char *words[MS_N_DISPATCHERS + 1] = {NULL}, *text = NULL;
  gint64 count = 0;
  int of_word[MS_N_DISPATCHERS], n = 0;
  for (int i = 0; i < MS_N_DISPATCHERS; i++) {
    const MsDispatcherRow *row = &ms_dispatchers[i];
    if (!row->launch_backend) continue;
    of_word[n] = i, words[n++] = row->launch_backend;
    if (row->launch_old_word && ms_args_take(args, row->launch_old_word)) text = row->launch_backend;
  }
  if (!text) text = arg ? ms_arg_value(args, arg, error) : words[0];
  int word = text ? ms_arg_word(args, arg, text, words, error) : -1;
  if (word < 0) return FALSE;
  o->dispatcher = (MsDispatcher)of_word[word];
  if (!sms) sms = ms_args_take(args, ms_dispatcher(o)->launch_sms);
  if (sms && !ms_arg_int(args, sms, 0, 100000, &count, error)) return FALSE;
  o->dispatcher_num_sms = (int)count;
  return TRUE;
}

gboolean ms_read_dispatcher(MsArgs *args, MsScenario *s, GError **error) {
  const char *words[2 * MS_N_DISPATCHERS + 1] = {NULL};
  int of_word[2 * MS_N_DISPATCHERS], n = 0;
  for (int i = 0; i < MS_N_DISPATCHERS; i++) {
    const MsDispatcherRow *row = &ms_dispatchers[i];
    if (!row->launch_type) continue;
    if (!g_strv_contains(words, row->launch_type)) of_word[n] = i, words[n++] = row->launch_type;
    if (!row->launch_backend && row->launch_old_word) of_word[n] = i, words[n++] = row->launch_old_word;
  }
  const MsArg *arg = ms_args_take(args, "--moe-token-dispatcher-type");
  const char *text = arg ? ms_arg_value(args, arg, error) : ms_dispatchers[MS_DISPATCH_ALLGATHER].launch_type;
  int word = text ? ms_arg_word(args, arg, text, words, error) : -1;
  s->options.dispatcher_num_sms = 0;
  if (word < 0) return FALSE;
  s->options.dispatcher = (MsDispatcher)of_word[word];
  return !ms_dispatcher(&s->options)->launch_backend || read_backend(args, &s->options, error);
}

/* --- routing: what no argument says (a skew; forced balance where a release cannot force it) travels as a note --- */
gboolean ms_write_routing(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsRouting *r = &s->training.routing;
  char buf[32];
  (void)error;
  if (!ms_is_moe(s)) return TRUE;
  gboolean forced = r->kind == MS_ROUTING_BALANCED || (r->kind == MS_ROUTING_CAPACITY && r->forced_balance);
  if (r->kind == MS_ROUTING_CAPACITY) {
    ms_args_add(args, MOE, "--moe-expert-capacity-factor", ms_double_text(r->capacity_factor, buf), NULL);
    if (r->pad_to_capacity) ms_args_add(args, MOE, "--moe-pad-expert-input-to-capacity", NULL);
  }
  if (forced && release == MS_RELEASE_MCORE) ms_args_add(args, MOE, "--moe-router-force-load-balancing", NULL);
  return TRUE;
}

gboolean ms_read_routing(MsArgs *args, MsScenario *s, GError **error) {
  MsRouting *r = &s->training.routing;
  const MsArg *factor = ms_args_take(args, "--moe-expert-capacity-factor");
  gboolean forced = ms_args_take(args, "--moe-router-force-load-balancing") != NULL;
  *r = (MsRouting){.kind = forced ? MS_ROUTING_BALANCED : MS_ROUTING_NATURAL};
  if (!factor) return TRUE;
  double value;
  if (!ms_arg_number(args, factor, -1e4, 1e4, &value, error)) return FALSE;
  if (value >= 0 && value < 1e-3)
    return ms_arg_error(args, factor, error, "is %s, must be at least 0.001", factor->values[0]);
  if (value < 0) return TRUE; /* Megatron takes a negative factor as none */
  gboolean padded = ms_args_take(args, "--moe-pad-expert-input-to-capacity") != NULL;
  *r = (MsRouting){
      .kind = MS_ROUTING_CAPACITY, .capacity_factor = value, .pad_to_capacity = padded, .forced_balance = forced};
  return TRUE;
}

/* --- scores: MT-MegatronLM has a sigmoid only before the choice and beside the loss of whole sequences, where its
 * patches read node groups and the bias of experts, too --- */
static gboolean refuse_scores(const MsScenario *s, MsRelease release, const char *path, GError **error) {
  return ms_refuse_key(s, error, path, "%s has it only with moe_router_load_balancing_type seq_aux_loss",
                       ms_release_words[release]);
}

gboolean ms_write_scores(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  gboolean mcore = release == MS_RELEASE_MCORE, softmax = !ms_model_scores_apart(m),
           patched = mcore || m->moe_router_load_balancing_type == MS_BALANCE_SEQ_AUX;
  if (!patched && m->moe_router_num_groups > 0) return refuse_scores(s, release, "model.moe_router_num_groups", error);
  if (!patched && m->moe_router_enable_expert_bias)
    return refuse_scores(s, release, "model.moe_router_enable_expert_bias", error);
  if (!patched && !softmax) return refuse_scores(s, release, "model.moe_router_score_function", error);
  if (!mcore && !softmax && m->moe_router_score_function != MS_SCORE_SIGMOID)
    return ms_refuse_key(s, error, "model.moe_router_score_function", "%s does not have %s", ms_release_words[release],
                         ms_router_score_words[m->moe_router_score_function]);
  if (mcore && !softmax)
    ms_args_add(args, MOE, "--moe-router-score-function", ms_router_score_words[m->moe_router_score_function], NULL);
  if (m->moe_router_pre_softmax || (!mcore && !softmax)) ms_args_add(args, MOE, "--moe-router-pre-softmax", NULL);
  if (mcore || softmax) return TRUE;
  ms_args_add(args, MOE, "--moe-router-use-sigmoid", NULL);
  ms_args_add(args, MOE, "--moe-router-norm-topk-prob", NULL);
  ms_args_add(args, MOE, "--moe-complementary-seq-aux-loss", NULL);
  return TRUE;
}

gboolean ms_read_scores(MsArgs *args, MsScenario *s, GError **error) {
  MsModel *m = s->model;
  const MsArg *arg = ms_args_take(args, "--moe-router-score-function");
  m->moe_router_score_function = ms_args_take(args, "--moe-router-use-sigmoid") ? MS_SCORE_SIGMOID : MS_SCORE_SOFTMAX;
  m->moe_router_pre_softmax = ms_args_take(args, "--moe-router-pre-softmax") != NULL;
  ms_args_take(args, "--moe-router-norm-topk-prob");
  ms_args_take(args, "--moe-complementary-seq-aux-loss");
  if (!arg) return TRUE;
  const char *text = ms_arg_value(args, arg, error);
  int word = text ? ms_arg_word(args, arg, text, ms_router_score_words, error) : -1;
  m->moe_router_score_function = (MsRouterScore)MAX(word, 0);
  return word >= 0;
}

/* --- the loss that balances the experts; what forks call theirs is left to the list of what was ignored --- */
gboolean ms_write_balancing(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  MsBalance type = s->model->moe_router_load_balancing_type;
  if (type == MS_BALANCE_AUX) return TRUE;
  if (release != MS_RELEASE_MCORE && type != MS_BALANCE_SINKHORN && type != MS_BALANCE_NONE &&
      type != MS_BALANCE_SEQ_AUX)
    return ms_refuse_key(s, error, "model.moe_router_load_balancing_type", "%s does not have %s",
                         ms_release_words[release], ms_balance_words[type]);
  ms_args_add(args, MOE, "--moe-router-load-balancing-type", ms_balance_words[type], NULL);
  return TRUE;
}

gboolean ms_read_balancing(MsArgs *args, MsScenario *s, GError **error) {
  (void)error;
  s->model->moe_router_load_balancing_type = MS_BALANCE_AUX;
  MsArg *arg = ms_args_take(args, "--moe-router-load-balancing-type");
  if (!arg) return TRUE;
  for (int i = 0; ms_balance_words[i]; i++) {
    gboolean is = arg->values[0] && !arg->values[1] && strcmp(ms_balance_words[i], arg->values[0]) == 0;
    if (is) return s->model->moe_router_load_balancing_type = (MsBalance)i, TRUE;
  }
  arg->used = FALSE;
  return TRUE;
}

/* --- widths of the two kinds of MLP, and which layer has which --- */
gboolean ms_write_widths(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  (void)release, (void)error;
  if (m->ffn_hidden_size > 0) ms_args_addf(args, MOE, "--ffn-hidden-size", "%d", m->ffn_hidden_size);
  if (!ms_is_moe(s)) return TRUE;
  ms_args_addf(args, MOE, "--num-experts", "%d", m->num_experts);
  ms_args_addf(args, MOE, "--moe-ffn-hidden-size", "%d", m->moe_ffn_hidden_size);
  if (m->moe_layer_freq) ms_args_addf(args, MOE, "--moe-layer-freq", "(%s)", m->moe_layer_freq);
  return TRUE;
}

static gboolean read_width(MsArgs *args, const char *flag, int lo, int hi, int *width, GError **error) {
  const MsArg *arg = ms_args_take(args, flag);
  gint64 value = 0;
  if (arg && !ms_arg_int(args, arg, lo, hi, &value, error)) return FALSE;
  *width = (int)value;
  return TRUE;
}

/* The width Megatron gives dense layers that are not told one. */
static int default_width(MsArgs *args, const MsModel *m) {
  gint64 wide = 4 * (gint64)m->hidden_size;
  return (int)MIN(ms_args_has(args, "--swiglu") ? wide * 2 / 3 / 64 * 64 : wide, 1048576);
}

gboolean ms_read_widths(MsArgs *args, MsScenario *s, GError **error) {
  MsModel *m = s->model;
  const MsArg *freq = ms_args_take(args, "--moe-layer-freq");
  g_clear_pointer(&m->moe_layer_freq, g_free);
  if (!read_width(args, "--ffn-hidden-size", 1, 1048576, &m->ffn_hidden_size, error) ||
      !read_width(args, "--num-experts", 0, 65536, &m->num_experts, error) ||
      !read_width(args, "--moe-ffn-hidden-size", 1, 1048576, &m->moe_ffn_hidden_size, error))
    return FALSE;
  g_autofree char *layers = freq ? ms_arg_list(args, freq, error) : NULL;
  if (freq && !layers) return FALSE;
  gboolean every = freq && (strcmp(layers, "1") == 0 || strcmp(layers, "-1") == 0); /* a fork's -1 */
  if (freq && m->num_experts > 0 && !every) m->moe_layer_freq = g_steal_pointer(&layers);
  gboolean own_width = m->moe_ffn_hidden_size > 0, only_moe = m->num_experts > 0 && !m->moe_layer_freq;
  if (m->ffn_hidden_size == 0 && !(only_moe && own_width)) m->ffn_hidden_size = default_width(args, m);
  if (m->num_experts > 0 && !own_width) m->moe_ffn_hidden_size = m->ffn_hidden_size;
  return TRUE;
}
