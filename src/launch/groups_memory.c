/* src/launch/groups_memory.c - recompute, offload, CUDA graphs. */
#include "describe/module_sets.h"
#include "describe/recompute.h"
#include "launch/table.h"

#include <string.h>

#define TRAINING MS_SECTION_TRAINING

static gboolean refuse_mt(const MsScenario *s, MsRelease release, const char *path, const char *flag, GError **error) {
  return ms_refuse_key(s, error, path, "%s has no %s", ms_release_words[release], flag);
}

/* --flag word word ... for the bits of a set; the argument is added even for an empty set. */
static void add_words(MsArgs *args, const char *flag, guint32 bits, const char *const *words) {
  MsArg *arg = ms_args_add(args, TRAINING, flag, NULL);
  GPtrArray *values = g_ptr_array_new();
  for (int i = 0; words[i]; i++)
    if (bits >> i & 1) g_ptr_array_add(values, g_strdup(words[i]));
  g_ptr_array_add(values, NULL);
  g_strfreev(arg->values);
  arg->values = (char **)g_ptr_array_free(values, FALSE);
}

/* Bits of the values of an argument; values may also be separated by commas. */
static gboolean read_words(const MsArgs *args, const MsArg *arg, const char *const *words, guint32 *bits,
                           GError **error) {
  *bits = 0;
  for (int i = 0; arg->values[i]; i++) {
    g_auto(GStrv) parts = g_strsplit(arg->values[i], ",", -1);
    for (int j = 0; parts[j]; j++) {
      if (!*parts[j]) continue;
      int word = ms_arg_word(args, arg, parts[j], words, error);
      if (word < 0) return FALSE;
      *bits |= 1u << word;
    }
  }
  return TRUE;
}

/* --- recompute --- */
gboolean ms_write_recompute(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsRecomputeSpec *r = &s->options.recompute;
  if (r->granularity == MS_RECOMPUTE_NONE) return TRUE;
  ms_args_add(args, TRAINING, "--recompute-granularity", ms_recompute_words[r->granularity], NULL);
  if (r->granularity == MS_RECOMPUTE_FULL) {
    ms_args_add(args, TRAINING, "--recompute-method", ms_recompute_method_words[r->method], NULL);
    ms_args_addf(args, TRAINING, "--recompute-num-layers", "%d", r->num_layers);
  } else if (release == MS_RELEASE_MCORE) {
    add_words(args, "--recompute-modules", r->modules, ms_recompute_module_words);
  } else if (r->modules != ms_recompute_default()) {
    return refuse_mt(s, release, "options.recompute.modules", "--recompute-modules: selective is core_attn there",
                     error);
  }
  return TRUE;
}

static gboolean read_full(MsArgs *args, MsRecomputeSpec *r, GError **error) {
  const MsArg *method = ms_args_take(args, "--recompute-method"),
              *layers = ms_args_take(args, "--recompute-num-layers");
  gint64 count = 1;
  const char *text = method ? ms_arg_value(args, method, error) : ms_recompute_method_words[0];
  int word = text ? ms_arg_word(args, method, text, ms_recompute_method_words, error) : -1;
  if (word < 0 || (layers && !ms_arg_int(args, layers, 0, 10000, &count, error))) return FALSE;
  if (count == 0) { /* the scripts of MT-MegatronLM say "no recompute" so */
    r->granularity = MS_RECOMPUTE_NONE;
    return TRUE;
  }
  r->method = (MsRecomputeMethod)word;
  r->num_layers = (int)count;
  return TRUE;
}

static gboolean read_selective(MsArgs *args, MsRecomputeSpec *r, GError **error) {
  const MsArg *modules = ms_args_take(args, "--recompute-modules");
  r->modules = ms_recompute_default();
  return !modules || read_words(args, modules, ms_recompute_module_words, &r->modules, error);
}

gboolean ms_read_recompute(MsArgs *args, MsScenario *s, GError **error) {
  MsRecomputeSpec *r = &s->options.recompute;
  *r = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_NONE, .num_layers = 1};
  const MsArg *arg = ms_args_take(args, "--recompute-granularity");
  guint32 older = 0;
  for (int i = 0; i < MS_N_RECOMPUTE_MODULES; i++)
    if (ms_recompute_modules[i].launch_flag && ms_args_take(args, ms_recompute_modules[i].launch_flag))
      older |= 1u << i;
  if (ms_args_take(args, "--recompute-activations") || older) r->granularity = MS_RECOMPUTE_SELECTIVE;
  if (arg) {
    const char *text = ms_arg_value(args, arg, error);
    int word = text ? ms_arg_word(args, arg, text, ms_recompute_words, error) : -1;
    if (word < 0) return FALSE;
    r->granularity = (MsRecompute)word;
  }
  if (r->granularity == MS_RECOMPUTE_FULL) return read_full(args, r, error);
  if (r->granularity == MS_RECOMPUTE_SELECTIVE && !read_selective(args, r, error)) return FALSE;
  r->modules |= older;
  return TRUE;
}

/* --- offload --- */
gboolean ms_write_offload(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsOptions *o = &s->options;
  char buf[32];
  if (o->offload_optimizer_states) /* --offload-optimizer-states is an argument of the dev branch, read below */
    return ms_refuse_key(s, error, "options.offload_optimizer_states",
                         "no argument of %s says it; leave it at its default", ms_release_words[release]);
  if (release != MS_RELEASE_MCORE) {
    if (o->offload_modules)
      return refuse_mt(s, release, "options.offload_modules", "--fine-grained-activation-offloading", error);
    return !(o->optimizer_offload_fraction > 0) ||
           refuse_mt(s, release, "options.optimizer_offload_fraction", "--optimizer-cpu-offload", error);
  }
  if (o->offload_modules) {
    ms_args_add(args, TRAINING, "--fine-grained-activation-offloading", NULL);
    add_words(args, "--offload-modules", o->offload_modules, ms_offload_module_words);
  }
  if (o->optimizer_offload_fraction > 0) {
    ms_args_add(args, TRAINING, "--optimizer-cpu-offload", NULL);
    ms_args_add(args, TRAINING, "--optimizer-offload-fraction", ms_double_text(o->optimizer_offload_fraction, buf),
                NULL);
  }
  return TRUE;
}

enum { MINDSPEED_PARTS = 16 }; /* the default of --swap-optimizer-times */

gboolean ms_read_offload(MsArgs *args, MsScenario *s, GError **error) {
  MsOptions *o = &s->options;
  o->offload_modules = 0;
  o->optimizer_offload_fraction = 0;
  o->offload_optimizer_states = ms_args_take(args, "--offload-optimizer-states") != NULL;
  const MsArg *swaps = ms_args_take(args, "--swap-optimizer"), *times = ms_args_take(args, "--swap-optimizer-times");
  gint64 parts = MINDSPEED_PARTS;
  if (swaps && times && !ms_arg_int(args, times, 0, 10000, &parts, error)) return FALSE;
  o->swap_optimizer_times = swaps ? (int)MAX(parts, 1) : 0; /* 0 there: all at once */
  if (ms_args_take(args, "--fine-grained-activation-offloading")) {
    const MsArg *arg = ms_args_take(args, "--offload-modules");
    if (arg && !read_words(args, arg, ms_offload_module_words, &o->offload_modules, error)) return FALSE;
  }
  if (ms_args_take(args, "--optimizer-cpu-offload")) {
    const MsArg *arg = ms_args_take(args, "--optimizer-offload-fraction");
    o->optimizer_offload_fraction = 1;
    if (arg && !ms_arg_number(args, arg, 0, 1, &o->optimizer_offload_fraction, error)) return FALSE;
  }
  return TRUE;
}

/* --- CUDA graphs: an empty module list is the whole layer --- */
gboolean ms_write_graphs(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  guint32 scope = s->options.cuda_graph_scope;
  if (!scope) return TRUE;
  if (release != MS_RELEASE_MCORE) return refuse_mt(s, release, "options.cuda_graph_scope", "--cuda-graph-impl", error);
  ms_args_add(args, TRAINING, "--cuda-graph-impl",
              MS_GRAPHS(scope, whole_step) ? "full_iteration" : ms_graph_impl_words[s->options.cuda_graph_impl], NULL);
  if (!MS_GRAPHS(scope, alone)) add_words(args, "--cuda-graph-modules", scope, ms_cuda_graph_words);
  return TRUE;
}

static gboolean read_scope(MsArgs *args, guint32 *scope, GError **error) {
  const MsArg *modules = ms_args_take_any(args, "--cuda-graph-modules --cuda-graph-scope");
  if (modules && modules->values[0] && strcmp(modules->values[0], "full") == 0)
    modules = NULL; /* the older word for no list */
  if (modules && !read_words(args, modules, ms_cuda_graph_words, scope, error)) return FALSE;
  if (*scope == 0) *scope = MS_GRAPHS(~0u, whole_layer);
  return TRUE;
}

gboolean ms_read_graphs(MsArgs *args, MsScenario *s, GError **error) {
  static const char *const impls[] = {"none", "local", "transformer_engine", "full_iteration", NULL};
  guint32 *scope = &s->options.cuda_graph_scope;
  const MsArg *arg = ms_args_take(args, "--cuda-graph-impl");
  int impl = ms_args_take(args, "--external-cuda-graph") ? 2 : ms_args_take(args, "--enable-cuda-graph") ? 1 : 0;
  *scope = 0, s->options.cuda_graph_impl = MS_GRAPH_TE;
  if (arg) {
    const char *text = ms_arg_value(args, arg, error);
    impl = text ? ms_arg_word(args, arg, text, impls, error) : -1;
    if (impl < 0) return FALSE;
  }
  if (impl == 0) return TRUE;
  if (impl == 3) {
    *scope = MS_GRAPHS(~0u, whole_step);
    return TRUE;
  }
  if (impl == 1) s->options.cuda_graph_impl = MS_GRAPH_LOCAL;
  return read_scope(args, scope, error);
}
