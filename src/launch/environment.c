/* src/launch/environment.c - environment variables that change time or memory, and the attention kernels they help to
 * choose (docs/launch.md). */
#include "describe/module_sets.h"
#include "launch/table.h"

#include <stdlib.h>
#include <string.h>

#include "launch/launch.h"

/* --- attention backend --- */
gboolean ms_write_attention_backend(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsAttnBackendRow *backend = &ms_attn_backends[s->options.attention_backend];
  (void)error;
  ms_args_add(args, MS_SECTION_TRAINING, "--attention-backend", backend->word, NULL);
  if (release == MS_RELEASE_MT && backend->local_flag)
    ms_args_add(args, MS_SECTION_TRAINING, backend->local_flag, NULL);
  return TRUE;
}

/* Without a backend Transformer Engine takes the first of its rows that its variables do not switch off;
 * --use-flash-attn speaks about the local implementation only, which has no fused one. */
static MsAttnBackend backend_of_environment(MsArgs *args, const MsScenario *s, gboolean use_flash) {
  const char *fused = ms_args_getenv(args, "NVTE_FUSED_ATTN"), *flash = ms_args_getenv(args, "NVTE_FLASH_ATTN");
  gboolean local = s->options.transformer_impl == MS_IMPL_LOCAL && !fused;
  gboolean no_fused = local || g_strcmp0(fused, "0") == 0, no_flash = local ? !use_flash : g_strcmp0(flash, "0") == 0;
  const MsAttnBackendRow *row = ms_attn_backends;
  while ((no_fused && strcmp(row->nvte_fused, "1") == 0) || (no_flash && strcmp(row->nvte_flash, "1") == 0)) row++;
  return (MsAttnBackend)(row - ms_attn_backends);
}

gboolean ms_read_attention_backend(MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *arg = ms_args_take(args, "--attention-backend");
  gboolean use_flash = ms_args_take(args, "--use-flash-attn") != NULL;
  const char *text = arg ? ms_arg_value(args, arg, error) : "auto";
  if (!text) return FALSE;
  s->options.attention_backend = backend_of_environment(args, s, use_flash);
  if (strcmp(text, "auto") == 0) return TRUE;
  int word = ms_arg_word(args, arg, strcmp(text, "local") == 0 ? "unfused" : text, ms_attn_backend_words, error);
  s->options.attention_backend = (MsAttnBackend)MAX(word, 0);
  return word >= 0;
}

/* --- variables --- */
/* Whether torch says major version 9 or less of the device: compute capability, or gfx9 of AMD (gfx942, gfx950); for
 * Huawei MindSpeed answers 8 (core/megatron_basic/megatron_basic.py). */
static gboolean before_blackwell(const MsHardware *hardware) {
  const char *arch = hardware->arch ? hardware->arch : "", *sm = strstr(arch, "sm");
  return sm ? atoi(sm + 2) < 100 : strstr(arch, "gfx9") || g_str_has_prefix(arch, "Da Vinci");
}

gboolean ms_launch_asserts_connections(const MsScenario *s) {
  return (s->layout.tp > 1 || s->layout.cp > 1) && s->options.fsdp == MS_FSDP_NONE && !s->options.ep_overlap &&
         before_blackwell(s->hardware);
}

int ms_launch_connections(const MsScenario *s) {
  if (s->options.cuda_device_max_connections > 0) return s->options.cuda_device_max_connections;
  if (s->options.ep_overlap) return 32; /* several streams at once: what the recipes with EP overlap set */
  return ms_launch_asserts_connections(s) ? 1 : 0;
}

gboolean ms_write_environment(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsOptions *o = &s->options;
  int given = ms_launch_connections(s), connections = release == MS_RELEASE_MT ? 1 : given;
  if (given > 1 && connections == 1)
    return ms_refuse_key(s, error, "options.cuda_device_max_connections", "is %d, %s asserts 1", given,
                         ms_release_words[release]);
  if (given != connections) json_object_set_int_member(args->notes, "cuda_device_max_connections", given);
  g_autofree char *text = g_strdup_printf("%d", connections);
  if (connections > 0) ms_args_setenv(args, "CUDA_DEVICE_MAX_CONNECTIONS", text);
  if (o->deterministic_attention) ms_args_setenv(args, "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0");
  if (release != MS_RELEASE_MCORE)
    return !o->fused_grouped_mlp || ms_refuse_key(s, error, "options.fused_grouped_mlp", "%s has no fused grouped MLP",
                                                  ms_release_words[release]);
  if (o->fused_grouped_mlp) ms_args_setenv(args, "NVTE_CUTEDSL_FUSED_GROUPED_MLP", "1");
  ms_args_setenv(args, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
  if (ms_captures_modules(o))
    ms_args_setenv(args, "NCCL_GRAPH_REGISTER", "0"); /* asserted beside expandable segments */
  if (o->offload_modules)
    ms_args_setenv(args, "NVTE_CPU_OFFLOAD_V1", "1"); /* asserted with Transformer Engine >= 2.10 */
  if (o->ep_overlap) {                                /* SMs left to the dispatcher's kernels */
    ms_args_setenv(args, "NVTE_FWD_LAYERNORM_SM_MARGIN", "24");
    ms_args_setenv(args, "NVTE_BWD_LAYERNORM_SM_MARGIN", "24");
  }
  const char *domain_size = ms_is_moe(s) ? ms_dispatcher(o)->launch_domain : NULL;
  g_autofree char *domain = g_strdup_printf("%d", s->hardware->nvlink_domain_gpus);
  if (domain_size) ms_args_setenv(args, domain_size, domain);
  return TRUE;
}

gboolean ms_read_environment(MsArgs *args, MsScenario *s, GError **error) {
  static const char *const implied[] = {"PYTORCH_CUDA_ALLOC_CONF",      "NCCL_GRAPH_REGISTER",
                                        "NVTE_CPU_OFFLOAD_V1",          "NVTE_FWD_LAYERNORM_SM_MARGIN",
                                        "NVTE_BWD_LAYERNORM_SM_MARGIN", NULL};
  const char *connections = ms_args_getenv(args, "CUDA_DEVICE_MAX_CONNECTIONS");
  gint64 value = 0;
  if (connections && *connections && !g_ascii_string_to_signed(connections, 10, 1, 32, &value, NULL))
    return ms_arg_error(args, &(MsArg){.flag = (char *)"CUDA_DEVICE_MAX_CONNECTIONS"}, error,
                        "is \"%.60s\", must be an integer in [1, 32]", connections);
  if (json_object_has_member(args->notes, "cuda_device_max_connections")) value = 0; /* the release asserted another */
  s->options.cuda_device_max_connections = (int)value;
  s->options.fused_grouped_mlp = g_strcmp0(ms_args_getenv(args, "NVTE_CUTEDSL_FUSED_GROUPED_MLP"), "1") == 0;
  s->options.deterministic_attention = g_strcmp0(ms_args_getenv(args, "NVTE_ALLOW_NONDETERMINISTIC_ALGO"), "0") == 0;
  for (int i = 0; implied[i]; i++) ms_args_getenv(args, implied[i]);
  for (int i = 0; i < MS_N_DISPATCHERS; i++)
    if (ms_dispatchers[i].launch_domain) ms_args_getenv(args, ms_dispatchers[i].launch_domain);
  return TRUE;
}
