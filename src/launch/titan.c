/* src/launch/titan.c - what import and export of TorchTitan share: models, schedules, layers of stages. */
#include "launch/titan.h"

#include "layout/layout.h"

#include <string.h>

static const struct {
  const char *name, *flavor, *model;
} models[] = {
#define TORCHTITAN_MODEL(name, flavor, model) {(name), (flavor), (model)},
#include "launch/torchtitan.def"
#undef TORCHTITAN_MODEL
};

const char *ms_titan_model(const char *name, const char *flavor) {
  for (guint i = 0; i < G_N_ELEMENTS(models); i++)
    if (strcmp(models[i].name, name) == 0 && strcmp(models[i].flavor, flavor) == 0) return models[i].model;
  return NULL;
}

const char *ms_titan_flavor(const char *model, const char **name) {
  for (guint i = 0; i < G_N_ELEMENTS(models); i++)
    if (strcmp(models[i].model, model) == 0) return *name = models[i].name, models[i].flavor;
  return NULL;
}

char *ms_titan_flavors(const char *name) {
  GString *all = g_string_new(NULL);
  gboolean known = FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(models); i++) known |= strcmp(models[i].name, name) == 0;
  for (guint i = 0; i < G_N_ELEMENTS(models); i++) {
    if (known && strcmp(models[i].name, name) != 0) continue;
    g_string_append_printf(all, "%s%s %s", all->len ? ", " : "", models[i].name, models[i].flavor);
  }
  return g_string_free(all, FALSE);
}

/* torch/distributed/pipelining/schedules.py, and what a schedule is called here; those without a row have no equal. */
static const struct {
  const char *name, *word;
  gboolean interleaved;
} schedules[] = {{"1F1B", "1f1b", FALSE},
                 {"Interleaved1F1B", "1f1b", TRUE},
                 {"GPipe", "gpipe", FALSE},
                 {"ZBVZeroBubble", "zb-v", FALSE},
                 {"DualPipeV", "dualpipev", FALSE}};

const char *ms_titan_schedule(MsScheduleKind kind, gboolean interleaved) {
  for (guint i = 0; i < G_N_ELEMENTS(schedules); i++)
    if (strcmp(schedules[i].word, ms_schedule_words[kind]) == 0 && schedules[i].interleaved == interleaved)
      return schedules[i].name;
  return NULL;
}

int ms_titan_schedule_of(const char *name, gboolean *interleaved) {
  for (guint i = 0; i < G_N_ELEMENTS(schedules); i++) {
    if (g_ascii_strcasecmp(schedules[i].name, name) != 0) continue;
    *interleaved = schedules[i].interleaved;
    for (int kind = 0; ms_schedule_words[kind]; kind++)
      if (strcmp(schedules[i].word, ms_schedule_words[kind]) == 0) return kind;
  }
  return -1;
}

/* generate_llm_fqn_per_model_part: what is left over goes to the first stages, one each. */
char *ms_titan_split(int layers, int stages, gboolean embedding, gboolean loss) {
  int counted = layers + embedding + loss, each = counted / stages, more = counted % stages;
  if (more == 0) return NULL;
  GString *text = g_string_new("E");
  for (int i = 0; i < stages; i++) {
    int n = each + (i < more) - (embedding && i == 0) - (loss && i == stages - 1);
    if (n > 0) g_string_append_printf(text, "t*%d", n);
    g_string_append(text, i + 1 < stages ? "|" : "L");
  }
  return g_string_free(text, FALSE);
}

gboolean ms_titan_same_split(const char *a, const char *b) {
  char *text[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    char why[8];
    int chunks = 0;
    MsChunk *parsed = ms_pipeline_layout_parse(i ? b : a, &chunks, why, sizeof why);
    if (parsed) text[i] = ms_pipeline_layout_text(parsed, chunks);
    g_free(parsed);
  }
  gboolean same = text[0] && g_strcmp0(text[0], text[1]) == 0;
  g_free(text[0]), g_free(text[1]);
  return same;
}
