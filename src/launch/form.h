/* src/launch/form.h - private to launch: arguments rendered as text. */
#ifndef MS_LAUNCH_FORM_H
#define MS_LAUNCH_FORM_H

#include "launch/launch.h"
#include "launch/table.h"

typedef struct {     /* a launch in two parts, so that sbatch can stand around either */
  GString *once;     /* shell text before the nodes start */
  GString *per_node; /* what every node runs; needs NODE_RANK, MASTER_ADDR, MASTER_PORT */
} MsLaunchText;

typedef struct {
  const MsScenario *scenario; /* canonical */
  const MsArgs *args;
  MsLaunchText *text;
  gboolean placed; /* NODE_RANK, MASTER_ADDR, MASTER_PORT come from what is around the form */
  int nodes, gpus_per_node;
} MsFormContext;

void ms_form_megatron(const MsFormContext *context);
void ms_form_mt(const MsFormContext *context);
void ms_form_modelzoo(const MsFormContext *context);
char *ms_modelzoo_yaml(const MsFormContext *context); /* (transfer full) */

/* A comment line where the framework needs more than itself on machines of that vendor, or nothing is known of it. */
void ms_append_start_note(GString *text, const MsScenario *scenario, MsFramework framework);

/* --- around.c --- */
/* FALSE and *error when what is around cannot name the machine. */
gboolean ms_around_check(const MsScenario *scenario, MsLaunch launch, GError **error);
/* The whole text, comments `head` on top. (transfer full) */
char *ms_around(const MsFormContext *context, MsLaunch launch, const GString *head);
/* --- explain.c --- */
/* Arguments and environment with the keys of the canonical scenario that they say. (transfer full) */
char *ms_explain_args(const MsScenario *scenario, const MsArgs *args);

/* One key as it stands in a file. (transfer full) */
JsonNode *ms_key_node(const MsFieldTable *table, const char *key, const void *object);
/* A name as one harmless word: letters, digits, "-_.". (transfer full) */
char *ms_plain_name(const char *name);
/* The program of Megatron-LM that builds this model. */
const char *ms_program(const MsScenario *scenario);
/* " --flag value ..." */
void ms_append_arg(GString *text, const MsArg *arg);
void ms_append_exports(GString *text, const MsArgs *args);

#endif
