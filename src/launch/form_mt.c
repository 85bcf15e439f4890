/* src/launch/form_mt.c - the script and hostfile that MT-MegatronLM's examples use: sizes as variables, arrays of
 * arguments by subject, one torchrun a host (docs/launch.md). */
#include "describe/vendor.h"
#include "launch/form.h"

#include <string.h>

static const char *const arrays[MS_N_SECTIONS] = {[MS_SECTION_PARALLEL] = "MODEL_PARALLEL_ARGS",
                                                  [MS_SECTION_TRAINING] = "TRAINING_ARGS",
                                                  [MS_SECTION_MODEL] = "MODEL_ARGS",
                                                  [MS_SECTION_MOE] = "MOE_ARGS",
                                                  [MS_SECTION_PRECISION] = "MIXED_PRECISION_ARGS",
                                                  [MS_SECTION_DATA] = "DATA_ARGS"};
static const struct {
  const char *flag, *variable;
} sizes[] = {{"--tensor-model-parallel-size", "TP_SIZE"},
             {"--pipeline-model-parallel-size", "PP_SIZE"},
             {"--expert-model-parallel-size", "EP_SIZE"},
             {"--micro-batch-size", "MICRO_BATCH_SIZE"},
             {"--global-batch-size", "GLOBAL_BATCH_SIZE"}};

static const char *variable_of(const MsArg *arg) {
  for (guint i = 0; i < G_N_ELEMENTS(sizes); i++)
    if (strcmp(sizes[i].flag, arg->flag) == 0) return sizes[i].variable;
  return NULL;
}

static void append_array(GString *out, const MsFormContext *c, int section) {
  g_string_append_printf(out, "%s=(\n", arrays[section]);
  for (guint i = 0; i < c->args->list->len; i++) {
    const MsArg *arg = c->args->list->pdata[i];
    const char *variable = variable_of(arg);
    if ((int)arg->section != section) continue;
    g_string_append(out, "    ");
    if (variable) g_string_append_printf(out, "%s \"$%s\"", arg->flag, variable);
    else ms_append_arg(out, arg);
    g_string_append_c(out, '\n');
  }
  g_string_append(out, ")\n");
}

static void append_sizes(GString *out, const MsScenario *s) {
  const MsLayoutSpec *l = &s->layout;
  int dp = s->gpus / (l->tp * l->cp * l->pp);
  g_string_append_printf(
      out, "TP_SIZE=%d\nPP_SIZE=%d\nEP_SIZE=%d\nWORLD_SIZE=%d\nMICRO_BATCH_SIZE=%d\nNUM_MICROBATCHES=%d\n", l->tp,
      l->pp, l->ep, s->gpus, s->training.micro_batch_size,
      s->training.global_batch_size / s->training.micro_batch_size / dp);
  g_string_append_printf(out,
                         "DP_SIZE=$((WORLD_SIZE / (TP_SIZE * %d * PP_SIZE)))\nGLOBAL_BATCH_SIZE=$((MICRO_BATCH_SIZE * "
                         "NUM_MICROBATCHES * DP_SIZE))\n",
                         l->cp);
  g_string_append(out, "EXPNAME=\"tp${TP_SIZE}_pp${PP_SIZE}_dp${DP_SIZE}_mbs${MICRO_BATCH_SIZE}_numbs${NUM_"
                       "MICROBATCHES}_gbs${GLOBAL_BATCH_SIZE}_gpus${WORLD_SIZE}\"\n");
}

static void append_accelerator(GString *out, const MsFormContext *c) {
  const MsVendorRow *vendor = ms_vendor(c->scenario->hardware);
  const char *accelerator = vendor && vendor->accelerator ? vendor->accelerator : "cuda";
  g_autofree char *devices = g_ascii_strup(accelerator, -1);
  g_string_append_printf(out, "export ACCELERATOR_BACKEND=%s\nexport %s_VISIBLE_DEVICES=0", accelerator, devices);
  for (int i = 1; i < c->gpus_per_node; i++) g_string_append_printf(out, ",%d", i);
  g_string_append_c(out, '\n');
}

static const char *program(const MsScenario *s) {
  return ms_model_has_mla(s->model) ? "pretrain_deepseekv2.py"
         : ms_is_moe(s)             ? "pretrain_mixtral.py"
                                    : "pretrain_gpt.py";
}

static void append_places(GString *out, const MsFormContext *c) {
  if (!c->placed)
    g_string_append_printf(out,
                           "# hostfile: one host a line, %d of them. From one host: for h in $(cut -d' ' -f1 "
                           "hostfile); do ssh -fn $h \"cd $PWD && bash $0 hostfile\"; done\n"
                           "HOSTFILE=${1:-./hostfile}\nMASTER_ADDR=$(head -n 1 \"$HOSTFILE\" | cut -d ' ' -f 1)\n"
                           "NODE_RANK=$(($(grep -n -m 1 \"^$(hostname)\" \"$HOSTFILE\" | cut -d : -f 1) - "
                           "1))\nMASTER_PORT=${MASTER_PORT:-12355}\n",
                           c->nodes);
  g_string_append(out, "WORK_HOME=${WORK_HOME:-$PWD}\nPATCH_HOME=${PATCH_HOME:-$PWD/../..}\n"
                       "export PYTHONPATH=$PATCH_HOME/../Megatron-LM:$PATCH_HOME:${PYTHONPATH:-}\n");
}

void ms_form_mt(const MsFormContext *c) {
  GString *out = c->text->per_node;
  append_sizes(out, c->scenario);
  append_places(out, c);
  append_accelerator(out, c);
  ms_append_exports(out, c->args);
  g_string_append_printf(
      out,
      "DISTRIBUTED_ARGS=(\n    --nproc_per_node %d\n    --nnodes %d\n    --node_rank \"$NODE_RANK\"\n   "
      " --master_addr \"$MASTER_ADDR\"\n"
      "    --master_port \"$MASTER_PORT\"\n)\n",
      c->gpus_per_node, c->nodes);
  for (int section = 0; section < MS_N_SECTIONS; section++) append_array(out, c, section);
  g_string_append_printf(out,
                         "mkdir -p \"$WORK_HOME/logs/$EXPNAME\"\ntorchrun \"${DISTRIBUTED_ARGS[@]}\" \"$WORK_HOME/%s\"",
                         program(c->scenario));
  for (int section = 0; section < MS_N_SECTIONS; section++)
    g_string_append_printf(out, " \\\n    \"${%s[@]}\"", arrays[section]);
  g_string_append_c(out, '\n');
}
