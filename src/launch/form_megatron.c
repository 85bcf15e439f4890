/* src/launch/form_megatron.c - one torchrun command. */
#include "launch/form.h"

void ms_form_megatron(const MsFormContext *c) {
  GString *out = c->text->per_node;
  ms_append_exports(out, c->args);
  g_string_append_printf(out,
                         "torchrun --nnodes %d --nproc_per_node %d --node_rank \"${NODE_RANK:-0}\" --master_addr "
                         "\"${MASTER_ADDR:-localhost}\" "
                         "--master_port \"${MASTER_PORT:-29500}\" \\\n  \"${MEGATRON_PATH:-.}/%s\"",
                         c->nodes, c->gpus_per_node, ms_program(c->scenario));
  for (int section = 0; section < MS_N_SECTIONS; section++)
    for (guint i = 0; i < c->args->list->len; i++) {
      const MsArg *arg = c->args->list->pdata[i];
      if ((int)arg->section != section) continue;
      g_string_append(out, " \\\n  ");
      ms_append_arg(out, arg);
    }
  g_string_append_c(out, '\n');
}
