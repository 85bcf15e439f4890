/* src/launch/mindspeed.c - arguments of Megatron-LM in MindSpeed's words, the way back of the dialects. */
#include "launch/dialect.h"

static void rename_arg(MsArg *arg, const char *flag) {
  g_free(arg->flag);
  arg->flag = g_strdup(flag);
}

static void put_value(MsArg *arg, const char *value) {
  g_strfreev(arg->values);
  arg->values = g_new0(char *, 2);
  arg->values[0] = g_strdup(value);
}

static void say_context(MsArgs *args) {
  static const char theirs[] = "--context-parallel-algo";
  MsArg *how = ms_args_find(args, "--cp-comm-type"),
        *inner = ms_args_find(args, "--hierarchical-context-parallel-sizes");
  if (how) put_value(how, ms_dialect_their_word(theirs, how->values[0])), rename_arg(how, theirs);
  if (!inner) return;
  g_autofree char *heads = g_strdup(inner->values[0]);
  rename_arg(inner, MS_ULYSSES_DEGREE), put_value(inner, heads);
}

/* States that go to the host and back during the step, and weights that are the upper half of their masters. */
static void say_states(MsArgs *args, const MsOptions *o) {
  static const char swap[] = "options.swap_optimizer_times", reuse[] = "options.reuse_fp32_param";
  if (o->reuse_fp32_param) ms_args_add(args, MS_SECTION_TRAINING, "--reuse-fp32-param", NULL)->fields = reuse;
  if (o->swap_optimizer_times == 0) return;
  g_autofree char *times = g_strdup_printf("%d", o->swap_optimizer_times);
  ms_args_add(args, MS_SECTION_TRAINING, "--swap-optimizer", NULL)->fields = swap;
  ms_args_add(args, MS_SECTION_TRAINING, "--swap-optimizer-times", times, NULL)->fields = swap;
}

void ms_say_mindspeed(MsArgs *args, const MsScenario *s) {
  MsArg *products = ms_args_find(args, "--tp-comm-overlap"),
        *passes = ms_args_find(args, "--overlap-moe-expert-parallel-comm");
  if (products) rename_arg(products, "--use-ascend-mc2");
  if (passes) rename_arg(passes, "--moe-fb-overlap");
  say_states(args, &s->options);
  say_context(args);
  if (ms_attn_backends[s->options.attention_backend].stores_scores || ms_args_has(args, "--use-flash-attn")) return;
  ms_args_add(args, MS_SECTION_TRAINING, "--use-flash-attn", NULL)->fields = "options.attention_backend";
}
