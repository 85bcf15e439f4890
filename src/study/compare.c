#include "study/compare.h"

#include "base/err.h"
#include "study/knobs.h"
#include "study/parts.h"

#include <string.h>

/* --- keys ------------------------------------------------------------------------------------------------------ */
static gint by_text(gconstpointer a, gconstpointer b) { return strcmp(a, b); }

static void compare_keys(MsComparison *c, const MsScenario *a, const MsScenario *b) {
  g_autoptr(GHashTable) of_a = ms_knobs_of_scenario(a),
                        of_b = ms_knobs_of_scenario(b); /* complete scenarios: the same keys in both */
  g_autoptr(GList) paths = g_list_sort(g_hash_table_get_keys(of_a), by_text);
  for (GList *at = paths; at; at = at->next) {
    const char *path = at->data, *x = g_hash_table_lookup(of_a, path), *y = g_hash_table_lookup(of_b, path);
    if (g_str_has_prefix(path, "model") || g_str_has_prefix(path, "hardware") || g_strcmp0(x, y) == 0) continue;
    c->key = g_renew(MsComparedKey, c->key, c->n_keys + 1);
    c->key[c->n_keys++] = (MsComparedKey){g_strdup(path), g_strdup(x), g_strdup(y ? y : "null")};
  }
}

/* --- parts ----------------------------------------------------------------------------------------------------- */
static MsComparedPart *part_named(MsComparedPart **list, int *n, const char *name) {
  for (int i = 0; i < *n; i++)
    if (strcmp((*list)[i].name, name) == 0) return &(*list)[i];
  *list = g_renew(MsComparedPart, *list, *n + 1);
  MsComparedPart *part = &(*list)[(*n)++];
  memset(part, 0, sizeof *part);
  g_strlcpy(part->name, name, sizeof part->name);
  return part;
}

/* Which memory-bound kernels have a part of their own differs from run to run. */
static const char *name_of(const MsGapPart *part) {
  return g_str_has_prefix(part->name, "memory-bound:") ? "memory-bound kernels" : part->name;
}

static void compare_times(MsComparison *c, const MsResult *a, const MsResult *b) {
  for (int i = 0; i < a->n_gap; i++)
    part_named(&c->time, &c->n_time, name_of(&a->gap[i]))->a += a->gap[i].fraction * a->step_time_s;
  for (int i = 0; i < b->n_gap; i++)
    part_named(&c->time, &c->n_time, name_of(&b->gap[i]))->b += b->gap[i].fraction * b->step_time_s;
}

static void compare_memory(MsComparison *c, const MsResult *a, const MsResult *b) {
  double x[MS_N_MEMS], y[MS_N_MEMS];
  ms_parts_of_memory(a, x), ms_parts_of_memory(b, y);
  for (int i = 0; i < MS_N_MEMS; i++) {
    MsComparedPart *part = part_named(&c->memory, &c->n_memory, ms_mem_part_words[i]);
    part->a = x[i], part->b = y[i];
  }
}

MsComparison *ms_compare(const MsScenario *a, const MsResult *result_a, const MsScenario *b, const MsResult *result_b) {
  MsComparison *c = g_new0(MsComparison, 1);
  compare_keys(c, a, b);
  compare_times(c, result_a, result_b);
  compare_memory(c, result_a, result_b);
  return c;
}

void ms_comparison_free(MsComparison *c) {
  if (!c) return;
  for (int i = 0; i < c->n_keys; i++) {
    g_free(c->key[i].path);
    g_free(c->key[i].a);
    g_free(c->key[i].b);
  }
  g_free(c->key);
  g_free(c->time);
  g_free(c->memory);
  g_free(c);
}

/* --- the task -------------------------------------------------------------------------------------------------- */
static gboolean same_object(const MsFieldTable *table, const void *a, const void *b) {
  g_autofree char *x = ms_fields_text(table, a, 0), *y = ms_fields_text(table, b, 0);
  return strcmp(x, y) == 0;
}

static gboolean differs(const MsScenario *other, GError **error, const char *path, const char *is, const char *wanted) {
  return ms_input_error(error, other->file, 0, path,
                        "is %s, must be %s as in the request: only layouts of one task can be compared", is, wanted);
}

static gboolean same_number(const MsScenario *other, GError **error, const char *path, int is, int wanted) {
  if (is == wanted) return TRUE;
  char a[16], b[16];
  g_snprintf(a, sizeof a, "%d", is), g_snprintf(b, sizeof b, "%d", wanted);
  return differs(other, error, path, a, b);
}

static const char *software_of(const MsScenario *s) { return s->software ? s->software : s->stack.name; }

/* Without a name it is whatever the other has, unless that has ways and factors of its own. */
static gboolean same_software(const MsScenario *a, const MsScenario *b) {
  if (a->software && b->software) return strcmp(a->software, b->software) == 0;
  return g_strcmp0(a->stack.name, b->stack.name) == 0;
}

gboolean ms_same_task(const MsScenario *task, const MsScenario *other, GError **error) {
  if (!same_object(&ms_model_table, task->model, other->model))
    return differs(other, error, "model",
                   strcmp(other->model->name, task->model->name) ? other->model->name : "a changed model",
                   task->model->name);
  if (!same_object(&ms_hardware_table, task->hardware, other->hardware))
    return differs(other, error, "hardware",
                   strcmp(other->hardware->name, task->hardware->name) ? other->hardware->name : "a changed machine",
                   task->hardware->name);
  if (!same_software(task, other)) return differs(other, error, "software", software_of(other), software_of(task));
  return same_number(other, error, "gpus", other->gpus, task->gpus) &&
         same_number(other, error, "training.seq_length", other->training.seq_length, task->training.seq_length) &&
         same_number(other, error, "training.global_batch_size", other->training.global_batch_size,
                     task->training.global_batch_size);
}
