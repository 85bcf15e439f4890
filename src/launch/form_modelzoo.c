/* src/launch/form_modelzoo.c - the YAML of Megatron-MoE-ModelZoo: ENV_VARS and MODEL_ARGS (docs/launch.md).
 *
 * All values are literal, so that the file is complete by itself. sbatch_benchmarking.sh appends arguments of its own
 * by the variables PR, DISPATCHER, VPP, A2A_OVERLAP, OPTIMIZER_OFFLOAD; the comment at the top gives them so that they
 * agree with the file, and names what they would override. */
#include <string.h>

#include "launch/form.h"
#include "launch/modelzoo.h"

static void append_scalar(GString *out, const char *text) {
  gboolean plain = *text != '\0';
  for (const char *c = text; *c && plain; c++) plain = g_ascii_isalnum(*c) || strchr("_./-", *c);
  if (plain && *text != '-') g_string_append(out, text);
  else {
    g_autofree char *escaped = g_strescape(text, NULL);
    g_string_append_printf(out, "\"%s\"", escaped);
  }
}

static void append_maps(GString *out, const MsArgs *args) {
  g_string_append(out, args->env->len ? "ENV_VARS:\n" : "ENV_VARS: {}\n");
  for (guint i = 0; i < args->env->len; i++) {
    const MsVariable *variable = args->env->pdata[i];
    g_string_append_printf(out, "  %s: ", variable->name);
    append_scalar(out, variable->value);
    g_string_append_c(out, '\n');
  }
  g_string_append(out, "MODEL_ARGS:\n");
  for (int section = 0; section < MS_N_SECTIONS; section++)
    for (guint i = 0; i < args->list->len; i++) {
      const MsArg *arg = args->list->pdata[i];
      if ((int)arg->section != section) continue;
      g_autofree char *value = arg->values[0] ? g_strjoinv(" ", arg->values) : g_strdup("true");
      g_string_append_printf(out, "  %s: ", arg->flag);
      append_scalar(out, value);
      g_string_append_c(out, '\n');
    }
}

/* The variables of sbatch_benchmarking.sh that say the same as the file. */
static void append_variables(GString *out, const MsFormContext *c) {
  const MsScenario *s = c->scenario;
  const MsLayoutSpec *l = &s->layout;
  const MsOptions *o = &s->options;
  g_string_append_printf(out, "PR=%s TP=%d CP=%d EP=%d PP=%d VPP=%d NUM_LAYERS=%d MBS=%d GBS=%d SEQ_LEN=%d NNODES=%d",
                         ms_precision(&s->training)->launch_modelzoo, l->tp, l->cp, l->ep, l->pp, l->vpp,
                         s->model->num_layers, s->training.micro_batch_size, s->training.global_batch_size,
                         s->training.seq_length, c->nodes);
  if (ms_is_moe(s)) g_string_append_printf(out, " DISPATCHER=%s", ms_dispatcher_words[o->dispatcher]);
  if (l->decoder_first_pipeline_num_layers > 0 && l->decoder_last_pipeline_num_layers > 0)
    g_string_append_printf(out, " PP_FIRST=%d PP_LAST=%d", l->decoder_first_pipeline_num_layers,
                           l->decoder_last_pipeline_num_layers);
  g_string_append_printf(out, " A2A_OVERLAP=%d OPTIMIZER_OFFLOAD=%d", o->ep_overlap && o->delay_wgrad,
                         o->optimizer_offload_fraction > 0);
  if (s->hardware->gpus_per_node == 4)
    g_string_append_printf(out, " GB200_CLUSTER=1 SEGMENT=%d", MAX(1, l->ep * l->etp / 4));
}

char *ms_modelzoo_yaml(const MsFormContext *c) {
  GString *out = g_string_new(NULL);
  if (!c->placed) {
    g_autoptr(GString) variables = g_string_new(NULL);
    g_autofree char *model = ms_plain_name(c->scenario->model->name);
    append_variables(variables, c);
    g_string_append_printf(out, "# To run: MODEL=%s TRAINING_PARAMS_PATH=<this file> %s bash sbatch_benchmarking.sh\n",
                           model, variables->str);
    ms_modelzoo_append_overrides(out, c->args, variables->str);
  }
  append_maps(out, c->args);
  return g_string_free(out, FALSE);
}

/* With sbatch around it the file is written beside the job and its maps are handed to Megatron as they stand. */
void ms_form_modelzoo(const MsFormContext *c) {
  g_autofree char *yaml = ms_modelzoo_yaml(c);
  g_string_append_printf(c->text->once,
                         "export CONFIG=$PWD/moesim-$SLURM_JOB_ID.yaml\ncat > \"$CONFIG\" <<'YAML'\n%sYAML\n", yaml);
  g_string_append(c->text->once, "words() { python3 -c 'import shlex, sys, yaml\n"
                                 "for key, value in yaml.safe_load(open(sys.argv[1]))[sys.argv[2]].items():\n"
                                 "  if value is not False: print(sys.argv[3].format(key, \"\" if value is True else \" "
                                 "\".join(map(shlex.quote, str(value).split()))))' \"$@\"; }\n"
                                 "ZOO_ENV=$(words \"$CONFIG\" ENV_VARS 'export {}={}') ZOO_ARGS=$(words "
                                 "\"$CONFIG\" MODEL_ARGS '{} {}' | tr '\\n' ' ')\nexport ZOO_ENV ZOO_ARGS\n");
  g_string_append_printf(c->text->per_node,
                         "eval \"$ZOO_ENV\"\neval \"torchrun --nnodes %d --nproc_per_node %d --node_rank $NODE_RANK "
                         "--master_addr $MASTER_ADDR --master_port $MASTER_PORT "
                         "${MEGATRON_PATH:-.}/%s $ZOO_ARGS\"\n",
                         c->nodes, c->gpus_per_node, ms_program(c->scenario));
}
