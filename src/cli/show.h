/* src/cli/show.h - what `moesim show` can show: one function per word, one row each in show.c. Functions return the
 * exit status. */
#ifndef MS_CLI_SHOW_H
#define MS_CLI_SHOW_H

#include "cli/cli.h"
#include "describe/scenario.h"

typedef struct {
  gboolean json;
  /* of `show schedule` only */
  int stages, microbatches; /* 0 = not given */
  int chunks, group;        /* MS_CLI_UNSET = not given */
  char *times;              /* NULL = "1,1,1,0" */
  gboolean ep_overlap;
  char *svg;  /* file for the picture, NULL = none */
  char *form; /* of `show launch` only; NULL = megatron */
} MsShow;

int ms_show_model(const MsShow *show, const char *name);
int ms_show_hardware(const MsShow *show, const char *name);
int ms_show_scenario(const MsShow *show, const char *name);
int ms_show_ops(const MsShow *show, const char *name);
int ms_show_memory(const MsShow *show, const char *name);
int ms_show_fabric(const MsShow *show, const char *name);
int ms_show_launch(const MsShow *show, const char *name);
int ms_list_schedules(const MsShow *show);
int ms_show_laws(const MsShow *show, const char *name); /* NULL: all */
int ms_show_schedule(const MsShow *show, const char *name);

/* Says on standard error that what is launched does not fit; it is written all the same, as machine files may say less
 * than there is. */
void ms_cli_warn_of_memory(const MsScenario *scenario);

#endif
