/* src/launch/yaml.h - private to launch: maps of YAML files, through libyaml: the two of a model-zoo file, and those of
 * any file. */
#ifndef MS_LAUNCH_YAML_H
#define MS_LAUNCH_YAML_H

#include <glib.h>

typedef struct {
  char *key, *value; /* of a list: its items with blanks between */
  int line;
  gboolean list; /* of ms_yaml_flatten alone */
} MsYamlPair;

typedef struct {
  GPtrArray *environment, *arguments; /* MsYamlPair *, in order, of ENV_VARS and MODEL_ARGS */
  GPtrArray *other;                   /* char *: other keys at the top */
} MsYaml;

void ms_yaml_free(MsYaml *yaml);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsYaml, ms_yaml_free)
/* NULL and an MS_ERROR_INPUT with the line on anything but one document with these maps. (transfer full) */
MsYaml *ms_yaml_read(const char *text, gsize length, const char *file, GError **error);
/* Every plain value of one document, a map, with the path to it: "modules.pre_trainer.model". MsYamlPair *, in order;
 * `value` is NULL for null, and lists that hold more than plain values are left out. (transfer container) */
GPtrArray *ms_yaml_flatten(const char *text, gsize length, const char *file, GError **error);

#endif
