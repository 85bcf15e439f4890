/* src/launch/machine.c - whose machines a script is for, by words that no other maker's scripts have.
 *
 * Facts: MooreThreads/MT-MegatronLM examples (ACCELERATOR_BACKEND musa or cuda), Ascend/MindSpeed-LLM examples and
 * features_manager (NPUS_PER_NODE is 16 on Atlas A3). */
#include <string.h>

#include "launch/machine.h"

static gboolean begins(const char *name, const char *const *prefixes) {
  for (; *prefixes; prefixes++)
    if (g_str_has_prefix(name, *prefixes)) return TRUE;
  return FALSE;
}

/* The first variable in the order of the alphabet with such a name; NULL. */
static const char *variable_of(const MsShell *shell, const char *const *prefixes) {
  const char *first = NULL;
  GHashTableIter at;
  gpointer name;
  g_hash_table_iter_init(&at, shell->variables);
  while (g_hash_table_iter_next(&at, &name, NULL))
    if (begins(name, prefixes) && (!first || strcmp(name, first) < 0)) first = name;
  return first;
}

static const char *argument_of(const MsArgs *args) {
  static const char *const own[] = {"--use-ascend-coc", "--use-ascend-mc2",    "--context-parallel-algo",
                                    "--swap-attention", "--o2-optimizer",      "--o2-gradient",
                                    "--hccl-op-mode",   "--npu-deterministic", NULL};
  for (int i = 0; own[i]; i++)
    if (ms_args_has(args, own[i])) return own[i];
  return NULL;
}

const char *ms_machine_of(const MsShell *shell, const MsArgs *args, const char **by, gboolean *musa) {
  static const char *const moore[] = {"MUSA_", "MCCL_", NULL}, *const huawei[] = {"HCCL_", "ASCEND_", "PYTORCH_NPU_",
                                                                                  "NPUS_PER_NODE", NULL};
  g_autofree char *backend = ms_shell_get(shell, "ACCELERATOR_BACKEND"), *npus = ms_shell_get(shell, "NPUS_PER_NODE");
  gboolean other = backend && strcmp(backend, "cuda") == 0; /* MT-MegatronLM on GPUs of NVIDIA */
  *by = backend && strcmp(backend, "musa") == 0 ? "ACCELERATOR_BACKEND" : other ? NULL : variable_of(shell, moore);
  *musa = *by != NULL;
  if (*musa) return "mtt-s5000";
  *by = other ? NULL : variable_of(shell, huawei);
  if (!*by && !other) *by = argument_of(args);
  return !*by ? NULL : g_strcmp0(npus, "16") == 0 ? "ascend-910c" : "ascend-910b";
}
