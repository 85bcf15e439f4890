/* src/launch/import_lora.c - adapters that a script trains in place of the weights: --lora-r and its companions. */
#include <string.h>

#include "base/text.h"
#include "launch/import.h"

/* Bit of the fused layer that the target at `i` is, or is a part of. */
static guint32 fused(int i) {
  for (int k = 0; k < ms_n_lora_targets; k++)
    if (ms_lora_targets[k].part == MS_LORA_WHOLE && strcmp(ms_lora_targets[k].row[0], ms_lora_targets[i].row[0]) == 0 &&
        ms_lora_targets[k].where != MS_LORA_IN_MLA_FULL_Q && ms_lora_targets[k].where != MS_LORA_IN_MLA_LOW_RANK_Q)
      return 1u << k;
  return 1u << i;
}

static gboolean is_named(const MsLoraTarget *target, const char *name) {
  return strcmp(target->word, name) == 0 || ms_text_has_word(target->peft, name);
}

/* Layers of the model by a name of Megatron-LM's or Hugging Face's; 0 = none. Latent attention has two layers where
 * MindSpeed-LLM has one, linear_qkv. */
static guint32 targets_named(const MsModel *m, const char *name) {
  guint32 found = 0;
  gboolean latents = ms_model_has_mla(m) && strcmp(name, "linear_qkv") == 0;
  for (int i = 0; i < ms_n_lora_targets; i++) {
    const MsLoraTarget *t = &ms_lora_targets[i];
    gboolean latent = latents && (strcmp(t->word, "linear_q_down_proj") == 0 || strcmp(t->word, "linear_q_proj") == 0 ||
                                  strcmp(t->word, "linear_kv_down_proj") == 0);
    if (ms_lora_target_exists(t, m) && (latent || is_named(t, name))) found |= fused(i);
  }
  return found;
}

static gboolean read_targets(MsArgs *args, const MsModel *m, MsLora *lora, GError **error) {
  static const char all[] = "linear_qkv,linear_proj,linear_fc1,linear_fc2";
  const MsArg *arg = ms_args_take_any(args, "--lora-target-modules --target-modules");
  g_autofree char *joined = arg ? g_strjoinv(",", arg->values) : NULL;
  g_auto(GStrv) names = g_strsplit_set(!joined || strcmp(joined, "all-linear") == 0 ? all : joined, ", ", -1);
  lora->targets = 0;
  for (int i = 0; names[i]; i++) {
    guint32 found = *names[i] ? targets_named(m, names[i]) : 0;
    if (*names[i] && !found && arg)
      return ms_arg_error(args, arg, error, "\"%.60s\" is no linear layer of this model that moesim knows", names[i]);
    lora->targets |= found;
  }
  return TRUE;
}

gboolean ms_import_lora(MsImport *import, MsArgs *args, MsScenario *s, GError **error) {
  const MsArg *rank = ms_args_take_any(args, "--lora-r --lora-rank " MS_LORA_DIM), *alpha, *dropout;
  MsLora *lora = &s->training.lora;
  gint64 value;
  if (!rank) return TRUE; /* the others alone train nothing, and are lost words then */
  alpha = ms_args_take(args, "--lora-alpha"), dropout = ms_args_take(args, "--lora-dropout");
  if (!ms_arg_int(args, rank, 1, 65536, &value, error) ||
      (alpha && !ms_arg_number(args, alpha, 0, 1e6, &lora->alpha, error)) ||
      (dropout && !ms_arg_number(args, dropout, 0, 1, &lora->dropout, error)) ||
      !read_targets(args, s->model, lora, error))
    return FALSE;
  lora->rank = (int)value;
  ms_args_take_any(args, "--lora-load --lora-type --lora-ckpt-filter --lora-adapter-path --lora-sync-from-tensor "
                         "--lora-base-cpu-backup");
  if (ms_args_take(args, "--lora-fusion"))
    ms_import_remark(import, "--lora-fusion: adapters whose collectives and products are fused are not modelled");
  if (ms_lora_beside_experts(lora, s->model) && strcmp(rank->flag, MS_LORA_DIM) != 0)
    ms_import_remark(import,
                     "%s: the experts of a rank share one adapter here, as in Megatron-Bridge; MindSpeed-LLM "
                     "gives each one of its own",
                     rank->flag);
  return TRUE;
}
