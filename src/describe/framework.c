/* src/describe/framework.c - the rows of framework.def. */
#include "describe/framework.h"

#include "base/arguments.h"
#include "base/err.h"
#include "base/text.h"
#include "describe/recompute.h"

#include <string.h>

#define MS_EVERY_SCHEDULE G_MAXUINT64
#define MS_SCHEDULES(id)  ((guint64)1 << MS_SCHED_##id)

#define MS_FRAMEWORK(id, w, d, ...) [MS_FRAMEWORK_##id] = {__VA_ARGS__, .word = w, .doc = d},
const MsFrameworkRow ms_frameworks[] = {
#include "describe/framework.def"
};
#undef MS_FRAMEWORK

/* A row has as many as there are columns: one that leaves one out does not compile. */
enum {
  COLUMNS = 0
#define MS_COLUMN(type, name, doc) +1
#include "describe/framework_column.def"
#undef MS_COLUMN
};
#define MS_FRAMEWORK(id, w, d, ...) G_STATIC_ASSERT(MS_N_ARGUMENTS(__VA_ARGS__) == COLUMNS);
#include "describe/framework.def"
#undef MS_FRAMEWORK

/* `text`: a JSON object of ours. */
static void take(const char *text, const char *of, MsOptions *options) {
  if (!text) return;
  g_autoptr(GError) error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, strlen(text), of, &error);
  if (!doc ||
      !ms_fields_load(&ms_options_table, doc, json_node_get_object(ms_json_root(doc)), "", FALSE, options, &error))
    MS_BUG("defaults of %s: %s", of, error->message);
}

void ms_framework_defaults(MsFramework framework, MsOptions *options) {
  take(ms_frameworks[framework].defaults, ms_frameworks[framework].word, options);
}

void ms_family_defaults(const MsStackFamily *family, MsOptions *options) {
  take(family->options, "a family of stacks", options);
}

/* Options of a file that says nothing, of each framework. */
static gpointer make_defaults(gpointer unused) {
  (void)unused;
  MsOptions *all = g_new0(MsOptions, MS_N_FRAMEWORKS);
  for (int i = 0; i < MS_N_FRAMEWORKS; i++) {
    ms_fields_defaults(&ms_options_table, &all[i]);
    ms_framework_defaults((MsFramework)i, &all[i]);
  }
  return all;
}

static gsize size_of(MsFieldType type) {
  switch (type) {
  case MS_T_F64: return sizeof(double);
  case MS_T_WORDS: return sizeof(guint32);
  case MS_T_INT:
  case MS_T_BOOL:
  case MS_T_ENUM: return sizeof(int);
  default: return 0; /* objects are had as a whole, or not asked */
  }
}

/* Not given in a file, such a key follows from the rest: it is then settled, whatever the framework. */
static gboolean follows(const MsField *f, const MsOptions *own) {
  return (f->type == MS_T_BOOL || f->type == MS_T_ENUM) && *(const int *)((const char *)own + f->offset) < 0;
}

const MsField *ms_framework_lacks(MsFramework framework, const MsOptions *options) {
  static GOnce once = G_ONCE_INIT;
  const MsFrameworkRow *row = &ms_frameworks[framework];
  if (!row->options) return NULL;
  const MsOptions *own = (const MsOptions *)g_once(&once, make_defaults, NULL) + framework;
  for (const MsField *f = ms_options_table.fields; f->key; f++)
    if (!follows(f, own) &&
        memcmp((const char *)own + f->offset, (const char *)options + f->offset, size_of(f->type)) != 0 &&
        !ms_text_has_word(row->options, f->key))
      return f;
  return NULL;
}

guint32 ms_framework_lacked_modules(const MsScenario *s) {
  guint32 lacked = s->options.recompute.modules & ~ms_framework(s)->modules;
  return ms_recomputes(&s->options, lacked) ? lacked : 0;
}

gboolean ms_framework_schedules(const MsScenario *s) { return ms_framework(s)->schedules >> s->layout.schedule & 1; }

gboolean ms_framework_shards(const MsScenario *s) {
  const MsFrameworkRow *f = ms_framework(s);
  return s->options.fsdp >= f->shards_least && s->options.fsdp <= f->shards_most;
}

gboolean ms_framework_routes(const MsScenario *s) {
  return s->training.routing.kind != MS_ROUTING_ROUND_ROBIN || ms_framework(s)->fake_gate;
}

gboolean ms_framework_fits(const MsScenario *s) {
  return !ms_framework_lacks(s->framework, &s->options) && !ms_framework_lacked_modules(s) &&
         ms_framework_schedules(s) && ms_framework_shards(s) && ms_framework_routes(s) &&
         (s->layout.vpp <= 1 || ms_framework(s)->interleaves);
}

gboolean ms_framework_stores_scores(const MsScenario *s) {
  const MsAttnBackendRow *backend = &ms_attn_backends[s->options.attention_backend];
  gboolean local = s->options.transformer_impl == MS_IMPL_LOCAL && !ms_framework(s)->torch_parallel;
  return local ? backend->stores_scores_local : backend->stores_scores;
}
