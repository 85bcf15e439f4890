/* src/launch/printed.c - what Megatron-LM prints of its arguments, as a command with the same arguments: names of the
 * parsed values back to flags (megatron/training/arguments.py, _print_args and `dest`), values of Python back to words.
 * What is printed was parsed: every argument is there, with its default or with what other arguments made of it. */
#include "launch/printed.h"

#include <string.h>

/* --- names ------------------------------------------------------------------------------------------------------- */
static const struct {
  const char *dest, *off; /* the switch that turns off what is on without it */
} switches[] = {{"add_bias_linear", "--disable-bias-linear"},
                {"bias_gelu_fusion", "--no-bias-gelu-fusion"},
                {"bias_swiglu_fusion", "--no-bias-swiglu-fusion"},
                {"bias_dropout_fusion", "--no-bias-dropout-fusion"},
                {"masked_softmax_fusion", "--no-masked-softmax-fusion"},
                {"gradient_accumulation_fusion", "--no-gradient-accumulation-fusion"},
                {"overlap_p2p_comm", "--no-overlap-p2p-communication"},
                {"check_for_nan_in_loss_and_grad", "--no-check-for-nan-in-loss-and-grad"},
                {"scatter_gather_tensors_in_pipeline", "--no-scatter-gather-tensors-in-pipeline"},
                {"yarn_correction_range_round_to_int", "--no-yarn-correction-range-round-to-int"},
                {"torch_fsdp2_reshard_after_forward", "--torch-fsdp2-no-reshard-after-forward"},
                {"apply_rope_fusion", "--no-rope-fusion"}};

static const char *const renamed[][2] = {
    {"fp8", "--fp8-format"}, {"fp4", "--fp4-format"}, {"nccl_ub", "--use-nccl-ub"}};

static const char *switch_off(const char *dest) {
  for (gsize i = 0; i < G_N_ELEMENTS(switches); i++)
    if (strcmp(dest, switches[i].dest) == 0) return switches[i].off;
  return NULL;
}

/* (transfer full) */
static char *flag_of(const char *dest) {
  for (gsize i = 0; i < G_N_ELEMENTS(renamed); i++)
    if (strcmp(dest, renamed[i][0]) == 0) return g_strdup(renamed[i][1]);
  char *flag = g_strconcat("--", dest, NULL);
  return g_strdelimit(flag, "_", '-');
}

/* --- values ------------------------------------------------------------------------------------------------------ */
static gboolean is_nothing(const char *value) {
  return strcmp(value, "None") == 0 || strcmp(value, "False") == 0 || !*value || strcmp(value, "[]") == 0;
}

/* A member of an enumeration, "AttnBackend.auto" or "<CudaGraphModule.attn: 1>", is the word behind the dot; a type of
 * PyTorch has a short name. (transfer full) */
static char *plain_word(const char *value) {
  static const char *const types[][2] = {{"torch.float32", "fp32"},
                                         {"torch.bfloat16", "bf16"},
                                         {"torch.float16", "fp16"},
                                         {"torch.uint8", "fp8"},
                                         {"torch.float8_e4m3fn", "fp8"}};
  static const char *const enums[] = {"AttnBackend.", "CudaGraphScope.", "CudaGraphModule."};
  for (gsize i = 0; i < G_N_ELEMENTS(types); i++)
    if (strcmp(value, types[i][0]) == 0) return g_strdup(types[i][1]);
  const char *at = value + (*value == '<');
  for (gsize i = 0; i < G_N_ELEMENTS(enums); i++)
    if (g_str_has_prefix(at, enums[i])) return g_strndup(at + strlen(enums[i]), strcspn(at + strlen(enums[i]), ":>"));
  return g_strdup(value);
}

static void add_quoted(GString *command, const char *word) {
  g_autofree char *quoted = g_shell_quote(word);
  g_string_append_printf(command, " %s", quoted);
}

/* "['p2p', 'a2a']": word by word. */
static void add_list(GString *command, const char *value) {
  g_auto(GStrv) items = g_strsplit_set(value, "[],", -1);
  for (int i = 0; items[i]; i++) {
    g_strdelimit(items[i], "'\"", ' ');
    g_autofree char *word = plain_word(g_strstrip(items[i]));
    if (*word) add_quoted(command, word);
  }
}

/* A pattern of layers, "[0, 1, 1]", or a pair, "(127, 0)", is one word without blanks or parentheses. */
static void add_whole(GString *command, const char *value) {
  g_auto(GStrv) parts = g_strsplit_set(value, " ()", -1);
  g_autofree char *word = g_strjoinv("", parts);
  add_quoted(command, word);
}

/* One printed argument, "hidden_size 4096", as words of a command. */
static void add_argument(GString *command, const char *line) {
  gsize n = strcspn(line, " ");
  g_autofree char *dest = g_strndup(line, n), *flag = flag_of(dest);
  const char *value = line[n] ? line + n + 1 : "", *off = strcmp(value, "False") == 0 ? switch_off(dest) : NULL;
  if (off) g_string_append_printf(command, " %s", off);
  if (is_nothing(value)) return;
  g_string_append_printf(command, " %s", flag);
  if (strcmp(value, "True") == 0) return;
  if (*value == '(' || (*value == '[' && g_str_has_suffix(dest, "_freq"))) add_whole(command, value);
  else if (*value == '[') add_list(command, value);
  else {
    g_autofree char *word = plain_word(value);
    add_quoted(command, word);
  }
}

/* --- what is off ------------------------------------------------------------------------------------------------- */
/* Modules that a model lacks have sizes all the same: what is off says nothing. */
static const struct {
  const char *on;   /* arguments, separated by blanks: one of them is on, */
  const char *idle; /* with another value than None, False, 0 and this one (or NULL) */
  const char *own;  /* beginnings of those that say nothing otherwise */
} modules[] = {{"multi_latent_attention", NULL,
                "q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim mscale_all_dim"},
               {"num_experts", NULL, "moe_"},
               {"encoder", NULL, "encoder_"},
               {"hybrid_layer_pattern hybrid_override_pattern is_hybrid_model hybrid_attention_ratio hybrid_mlp_ratio",
                NULL, "mamba_ hybrid_attention_ratio hybrid_mlp_ratio"},
               {"experimental_attention_variant linear_attention_freq linear_attention_type", NULL, "linear_ dsa_"},
               {"enable_mhc_connections enable_hyper_connections", NULL, "mhc_ num_residual_streams"},
               {"retro_add_retriever", NULL, "retro_"},
               {"biencoder_projection_dim", "0", "retriever_"},
               {"fine_grained_activation_offloading", NULL, "activation_offload_fraction"},
               {"gtp_weight_remat_size", "1", "tensor_parallel_num_weight_shards"},
               {"expert_gtp_weight_remat_size", "1", "expert_tensor_parallel_num_weight_shards"}};

static gboolean among(const char *line, const char *names, gboolean whole) {
  g_auto(GStrv) name = g_strsplit(names, " ", -1);
  for (int i = 0; name[i]; i++) {
    gsize n = strlen(name[i]);
    if (strncmp(line, name[i], n) == 0 && (!whole || line[n] == ' ')) return TRUE;
  }
  return FALSE;
}

static gboolean is_on(const GPtrArray *arguments, const char *names, const char *idle) {
  for (guint i = 0; i < arguments->len; i++) {
    const char *line = arguments->pdata[i], *value = strchr(line, ' ');
    if (!value || !among(line, names, TRUE)) continue;
    gboolean zero = g_ascii_isdigit(value[1]) && g_ascii_strtod(value + 1, NULL) == 0;
    if (!is_nothing(value + 1) && !zero && g_strcmp0(value + 1, idle) != 0) return TRUE;
  }
  return FALSE;
}

static gboolean says_nothing(const GPtrArray *arguments, const char *line) {
  for (gsize k = 0; k < G_N_ELEMENTS(modules); k++)
    if (among(line, modules[k].own, FALSE) && !is_on(arguments, modules[k].on, modules[k].idle)) return TRUE;
  return FALSE;
}

char *ms_launch_printed(const GPtrArray *arguments, int world_size) {
  GString *command = g_string_new("torchrun");
  if (world_size > 0) g_string_append_printf(command, " --nnodes 1 --nproc-per-node %d", world_size);
  g_string_append(command, " pretrain_gpt.py");
  for (guint i = 0; i < arguments->len; i++)
    if (!says_nothing(arguments, arguments->pdata[i])) add_argument(command, arguments->pdata[i]);
  return g_string_free(command, FALSE);
}
