/* src/launch/export.c - a launch as text: its forms, notes, the order of checks. */
#include "launch/form.h"

#include <string.h>

#include "describe/framework.h"
#include "describe/vendor.h"
#include "layout/layout.h"
#include "launch/release.h"
#include "launch/deepspeed.h"
#include "launch/dialect.h"
#include "launch/titan.h"

const char *const ms_launch_words[] = {
    "megatron",          "modelzoo", "mt-megatron", "torchtitan",  "deepspeed", "slurm", "slurm:modelzoo",
    "slurm:mt-megatron", "k8s",      "k8s:jobset",  "k8s:volcano", "skypilot",  NULL};
static const MsLaunch launches[] = {{.form = MS_LAUNCH_MEGATRON},
                                    {.form = MS_LAUNCH_MODELZOO},
                                    {.form = MS_LAUNCH_MT},
                                    {.form = MS_LAUNCH_TORCHTITAN},
                                    {.form = MS_LAUNCH_DEEPSPEED},
                                    {.form = MS_LAUNCH_MEGATRON, .around = MS_AROUND_SLURM},
                                    {.form = MS_LAUNCH_MODELZOO, .around = MS_AROUND_SLURM},
                                    {.form = MS_LAUNCH_MT, .around = MS_AROUND_SLURM},
                                    {.form = MS_LAUNCH_MEGATRON, .around = MS_AROUND_PYTORCHJOB},
                                    {.form = MS_LAUNCH_MEGATRON, .around = MS_AROUND_JOBSET},
                                    {.form = MS_LAUNCH_MEGATRON, .around = MS_AROUND_VOLCANO},
                                    {.form = MS_LAUNCH_MEGATRON, .around = MS_AROUND_SKYPILOT}};
G_STATIC_ASSERT(G_N_ELEMENTS(ms_launch_words) == G_N_ELEMENTS(launches) + 1);

MsLaunch ms_launch_of_word(int word) { return launches[word]; }

static const struct {
  MsFramework framework;
  const char *suffix, *reader;           /* of a file with it alone; the kind of `moesim import` that reads it */
  void (*render)(const MsFormContext *); /* of arguments, as a script */
} forms[MS_N_LAUNCH_FORMS] = {[MS_LAUNCH_MEGATRON] = {MS_FRAMEWORK_MEGATRON, "sh", "megatron", ms_form_megatron},
                              [MS_LAUNCH_MODELZOO] = {MS_FRAMEWORK_MEGATRON, "yaml", "modelzoo", ms_form_modelzoo},
                              [MS_LAUNCH_MT] = {MS_FRAMEWORK_MT_MEGATRON, "sh", "megatron", ms_form_mt},
                              [MS_LAUNCH_TORCHTITAN] = {MS_FRAMEWORK_TORCHTITAN, "toml", "torchtitan"},
                              [MS_LAUNCH_DEEPSPEED] = {MS_FRAMEWORK_DEEPSPEED, "json", "deepspeed"}};

MsFramework ms_launch_framework(MsLaunch launch) { return forms[launch.form].framework; }
const char *ms_launch_reader(MsLaunch launch) { return forms[launch.form].reader; }

int ms_launch_word_for(const MsScenario *s, int word) {
  if (word != MS_LAUNCH_UNSAID) return word;
  for (int i = 0; ms_launch_words[i]; i++)
    if (!launches[i].around && ms_launch_framework(launches[i]) == s->framework) return i;
  return 0;
}

const char *ms_launch_suffix(MsLaunch launch) {
  return launch.around > MS_AROUND_SLURM ? "yaml" : launch.around ? "sh" : forms[launch.form].suffix;
}

/* --- notes --- */
static void note_string(JsonObject *notes, const char *key, const char *value) {
  if (value) json_object_set_string_member(notes, key, value);
}

/* What no argument of `release` says of a canonical scenario. */
static void notes_from_scenario(const MsScenario *s, MsRelease release, MsLaunch launch, JsonObject *notes) {
  const MsRouting *r = &s->training.routing;
  gboolean skewed = r->kind == MS_ROUTING_ZIPF || r->kind == MS_ROUTING_DIRICHLET;
  gboolean forced = r->kind == MS_ROUTING_BALANCED || (r->kind == MS_ROUTING_CAPACITY && r->forced_balance);
  note_string(notes, "name", s->name);
  note_string(notes, "doc", s->doc);
  if (s->framework != MS_FRAMEWORK_MEGATRON) note_string(notes, "framework", ms_framework(s)->word);
  note_string(notes, "software", s->software);
  if (s->hardware_json) json_object_set_member(notes, "hardware", ms_scenario_hardware_in(s, launch.file));
  else note_string(notes, "hardware", s->hardware->name);
  if (launch.form == MS_LAUNCH_MODELZOO)
    json_object_set_int_member(notes, "gpus", s->gpus); /* no argument and no launcher says it */
  note_string(notes, "model", s->model->name);
  MsRopeScaling said = ms_rope_scaling_said(s->model, release);
  if (!ms_rope_scaling_is(&said, &s->model->rope_scaling))
    json_object_set_member(notes, "rope_scaling", ms_key_node(&ms_model_table, "rope_scaling", s->model));
  if (ms_is_moe(s) && (skewed || (forced && release != MS_RELEASE_MCORE)))
    json_object_set_member(notes, "routing", ms_key_node(&ms_training_table, "routing", &s->training));
}

/* Lines "#moesim KEY JSON" of the notes. */
static void append_notes(GString *text, const MsArgs *args) {
  g_autoptr(GList) keys = json_object_get_members(args->notes);
  for (GList *k = keys; k; k = k->next) {
    g_autofree char *value = ms_json_text(json_object_get_member(args->notes, k->data), 0);
    g_string_append_printf(text, "#moesim %s %s\n", (const char *)k->data, value);
  }
}

/* --- the whole --- */
static GString *head_of(const MsFormContext *c, MsLaunch launch) {
  MsLaunchForm form = launch.form;
  GString *head = g_string_new(NULL);
  g_autofree char *model = ms_plain_name(c->scenario->model->name);
  g_string_append_printf(head, "# %s: %d GPUs, TP %d CP %d PP %d VPP %d EP %d ETP %d, written by moesim for %s.\n",
                         model, c->scenario->gpus, c->scenario->layout.tp, c->scenario->layout.cp,
                         c->scenario->layout.pp, c->scenario->layout.vpp, c->scenario->layout.ep,
                         c->scenario->layout.etp,
                         ms_release_words[form == MS_LAUNCH_MT ? MS_RELEASE_MT : MS_RELEASE_MCORE]);
  g_string_append(head, "# Data, tokenizer, learning rate and checkpoints are placeholders; lines \"#moesim\" say what "
                        "no argument says, `moesim import` reads them back.\n");
  ms_append_start_note(head, c->scenario, ms_launch_framework(launch));
  if (ms_args_has(c->args, "--moe-router-force-load-balancing"))
    g_string_append(head, "# --moe-router-force-load-balancing routes at random, as the scenario's balanced routing "
                          "does: for benchmarks, leave it out to train.\n");
  if (json_object_has_member(c->args->notes, "rope_scaling"))
    g_string_append(
        head, "# No argument says all of model.rope_scaling below: what it leaves out is as the release has it.\n");
  const MsModel *m = c->scenario->model;
  if (ms_args_has(c->args, "--mtp-depth")) /* musa_patch/multi_token_prediction/gpt_layer_specs.py and gpt_model.py */
    g_string_append_printf(head,
                           "# --mtp-depth %d: this release makes MTP blocks of the decoder's last layers, and leaves "
                           "it %d of %d.\n",
                           m->mtp_num_layers, m->num_layers - m->mtp_num_layers, m->num_layers);
  append_notes(head, c->args);
  return head;
}

static char *render(const MsFormContext *c, MsLaunch launch) {
  g_autoptr(GString) head = head_of(c, launch);
  if (launch.form == MS_LAUNCH_MODELZOO && !c->placed) { /* a YAML file, not a script */
    g_autofree char *yaml = ms_modelzoo_yaml(c);
    return g_strconcat(head->str, yaml, NULL);
  }
  forms[launch.form].render(c);
  return c->placed ? ms_around(c, launch, head)
                   : g_strconcat("#!/bin/bash\n", head->str, c->text->once->str, c->text->per_node->str, NULL);
}

static gboolean check(const MsScenario *s, MsLaunch launch, GError **error) {
  if (!ms_framework(s)->launched)
    return ms_refuse_key(s, error, "framework", "is %s, these forms start Megatron-LM", ms_framework(s)->word);
  if (!ms_launch_starts(s, ms_launch_framework(launch), error)) return FALSE;
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, error);
  if (!layout || !ms_release_check(s, error) || !ms_around_check(s, launch, error)) return FALSE;
  int per_node = s->hardware->gpus_per_node;
  return launch.form != MS_LAUNCH_MODELZOO || launch.around || per_node == 8 || per_node == 4 ||
         ms_refuse_key(s, error, "hardware.gpus_per_node", "is %d: the model zoo's scripts know nodes of 8 and 4 GPUs",
                       per_node);
}

static MsRelease release_of(MsLaunch launch) { return launch.form == MS_LAUNCH_MT ? MS_RELEASE_MT : MS_RELEASE_MCORE; }

/* As if it ran whole on every GPU: how it is split is not asked. */
static gboolean may_say_model(const MsScenario *base, MsLaunch launch, GError **error) {
  g_autoptr(MsScenario) whole = ms_scenario_copy(base, FALSE);
  g_free(whole->layout.pipeline_layout);
  ms_fields_defaults(&ms_layout_table, &whole->layout);
  g_autoptr(MsScenario) s = ms_launch_said(whole);
  return ms_args_say_model(s, release_of(launch), error);
}

gboolean ms_launch_may_start(const MsScenario *base, MsLaunch launch, gboolean (*open)(const char *, gconstpointer),
                             gconstpointer user, GError **error) {
  gboolean arguments = launch.form != MS_LAUNCH_TORCHTITAN && launch.form != MS_LAUNCH_DEEPSPEED;
  return ms_launch_starts(base, ms_launch_framework(launch), error) &&
         (!arguments || (ms_release_may_hold(base, open, user, error) && may_say_model(base, launch, error))) &&
         (launch.form != MS_LAUNCH_TORCHTITAN || ms_titan_has_model(base, error));
}

/* The canonical scenario with its arguments, or NULL and the error. (transfer full) */
static MsArgs *args_of(MsScenario *s, MsLaunch launch, GError **error) {
  MsRelease release = release_of(launch);
  MsArgs *args = check(s, launch, error) ? ms_args_from_scenario(s, release, error) : NULL;
  if (args && release == MS_RELEASE_MCORE && ms_has_mindspeed(s)) ms_say_mindspeed(args, s);
  return args;
}

char *ms_launch_text(const MsScenario *scenario, MsLaunch launch, GError **error) {
  if (launch.form == MS_LAUNCH_TORCHTITAN) return ms_titan_text(scenario, error);
  if (launch.form == MS_LAUNCH_DEEPSPEED) return ms_deepspeed_text(scenario, error);
  g_autoptr(MsScenario) s = ms_launch_said(scenario);
  g_autoptr(MsArgs) args = args_of(s, launch, error);
  if (!args) return NULL;
  notes_from_scenario(s, release_of(launch), launch, args->notes);
  MsLaunchText text = {.once = g_string_new(NULL), .per_node = g_string_new(NULL)};
  int per_node = MIN(s->gpus, s->hardware->gpus_per_node);
  MsFormContext context = {.scenario = s,
                           .args = args,
                           .text = &text,
                           .placed = launch.around != MS_AROUND_NOTHING,
                           .nodes = s->gpus / per_node,
                           .gpus_per_node = per_node};
  char *whole = render(&context, launch);
  g_string_free(text.once, TRUE);
  g_string_free(text.per_node, TRUE);
  return whole;
}

char *ms_launch_explain(const MsScenario *scenario, MsLaunch launch, GError **error) {
  if (launch.form == MS_LAUNCH_TORCHTITAN || launch.form == MS_LAUNCH_DEEPSPEED) {
    ms_refuse_key(scenario, error, "framework", "a configuration of %s has no arguments to explain",
                  ms_framework_words[ms_launch_framework(launch)]);
    return NULL;
  }
  g_autoptr(MsScenario) s = ms_launch_said(scenario);
  g_autoptr(MsArgs) args = args_of(s, launch, error);
  return args ? ms_explain_args(s, args) : NULL;
}
