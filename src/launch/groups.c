/* src/launch/groups.c - what the groups of the table share: the releases, kinds of models, keys that are refused. */
#include "base/err.h"
#include "launch/table.h"

const char *const ms_release_words[] = {"Megatron-LM at " MS_MCORE_COMMIT, "MT-MegatronLM (March 2025)", NULL};

gboolean ms_is_moe(const MsScenario *s) { return s->model->num_experts > 0; }
gboolean ms_is_hybrid(const MsScenario *s) { return s->model->hybrid_layer_pattern != NULL; }

gboolean ms_refuse_key(const MsScenario *scenario, GError **error, const char *path, const char *format, ...) {
  va_list list;
  va_start(list, format);
  g_autofree char *message = g_strdup_vprintf(format, list);
  va_end(list);
  return ms_input_error(error, scenario->file, 0, path, "%s", message);
}
