#include "study/profile.h"

#include "base/err.h"
#include "base/order.h"
#include "logs/json_stream.h"

#include <math.h>
#include <string.h>

const char *const ms_profile_words[] = {"scenario", "trace", "saved profile", "saved prediction", NULL};

/* --- what a file is -------------------------------------------------------------------------------------------- */
static const struct {
  const char *key;
  MsProfileKind kind;
} telling[] = {
    {"traceEvents", MS_PROFILE_TRACE},   {"deviceProperties", MS_PROFILE_TRACE}, {"distributedInfo", MS_PROFILE_TRACE},
    {"schemaVersion", MS_PROFILE_TRACE}, {"traceName", MS_PROFILE_TRACE},        {"displayTimeUnit", MS_PROFILE_TRACE},
    {"classes", MS_PROFILE_SAVED_TRACE}, {"step_time_s", MS_PROFILE_SAVED_RUN},  {"layout", MS_PROFILE_SCENARIO},
    {"training", MS_PROFILE_SCENARIO},   {"model", MS_PROFILE_SCENARIO},         {"hardware", MS_PROFILE_SCENARIO}};

static gboolean unknown_file(const char *file, GError **error) {
  return ms_input_error(error, file, 0, NULL,
                        "is neither a scenario, nor a trace, nor what moesim run --json or import kineto --json print");
}

gboolean ms_profile_kind(const char *file, MsProfileKind *kind, GError **error) {
  g_autoptr(MsReader) reader = ms_reader_open(file, error);
  if (!reader) return FALSE;
  int first = ms_reader_peek(reader);
  *kind = MS_PROFILE_TRACE;
  if (first >= 0 && first != '{' && first != '[') return TRUE; /* no JSON: a table or a database */
  g_autoptr(MsJsonStream) json = ms_json_stream_new(reader, file);
  MsToken token = ms_json_stream_next(json, error);
  *kind = MS_PROFILE_TRACE;
  if (token == MS_TOKEN_LIST) return TRUE; /* the events alone */
  while (token == MS_TOKEN_OBJECT || token == MS_TOKEN_END || token < MS_TOKEN_DONE) {
    token = ms_json_stream_next(json, error);
    if (token != MS_TOKEN_KEY) break;
    for (gsize i = 0; i < G_N_ELEMENTS(telling); i++) {
      if (strcmp(ms_json_stream_text(json), telling[i].key) != 0) continue;
      *kind = telling[i].kind;
      return TRUE;
    }
    token = ms_json_stream_skip(json, ms_json_stream_next(json, error), error);
  }
  return token == MS_TOKEN_WRONG ? FALSE : unknown_file(file, error);
}

/* --- a simulated stage as a trace ------------------------------------------------------------------------------ */
static guint32 name_of_tag(const MsDetail *d, guint32 tag, guint32 *name_at, MsTrace *t, const MsKernelTable *table) {
  const MsOp *op = tag < d->n_tags ? d->tag_op[tag] : NULL;
  guint32 place = MIN(tag, d->n_tags);
  if (name_at[place] != G_MAXUINT32) return name_at[place];
  MsTraceName name = {op ? g_strdup_printf("%s %s", op->name, ms_pass_words[op->pass]) : g_strdup("p2p"), -1,
                      ms_kernel_class_of_op(table, ms_op_words[op ? op->kind : MS_OP_P2P])};
  g_array_append_val(t->names, name);
  return name_at[place] = t->names->len - 1;
}

/* Rows that multiply have shapes as a profiler records them. */
static guint32 shape_of_tag(const MsDetail *d, guint32 tag, MsTrace *t) {
  const MsOp *op = tag < d->n_tags ? d->tag_op[tag] : NULL;
  if (!op || op->kind != MS_OP_GEMM || !(op->m > 0 && op->n > 0 && op->k > 0)) return 0;
  MsTraceShape shape = {1, op->m, op->n, op->k, ""};
  g_strlcpy(shape.dtype, ms_odt_words[op->dtype], sizeof shape.dtype);
  g_array_append_val(t->shapes, shape);
  return t->shapes->len;
}

static gint64 nanoseconds(MsTime ps) { return (ps + 500) / 1000; }

MS_ORDER(by_start, MsTraceKernel, MS_LESS(x->start_ns, y->start_ns),
         x->stream != y->stream ? x->stream - y->stream : MS_LESS(x->name, y->name))

/* One stage: one step, streams by ms_stream_words. (transfer full) */
static MsTrace *trace_of_step(const MsDetail *d, int stage, const char *file, const MsKernelTable *table) {
  MsTrace *t = ms_trace_new(file);
  const MsTrajectory *run = d->trajectory;
  g_autofree guint32 *name_at = g_new(guint32, d->n_tags + 1), *shape_at = g_new0(guint32, d->n_tags + 1);
  memset(name_at, 0xff, sizeof *name_at * (d->n_tags + 1));
  for (int i = 0; i < MS_N_STREAMS; i++) {
    MsTraceStreamId id = {0, i, ms_stream_words[i]};
    g_array_append_val(t->streams, id);
  }
  for (guint32 tag = 0; tag < d->n_tags; tag++) shape_at[tag] = shape_of_tag(d, tag, t);
  for (guint32 i = 0; i < run->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    if ((int)task->device != stage || run->end[i] <= run->start[i]) continue;
    MsTraceKernel k = {.start_ns = nanoseconds(run->start[i]),
                       .length_ns = nanoseconds(run->end[i]) - nanoseconds(run->start[i]),
                       .name = name_of_tag(d, task->tag, name_at, t, table),
                       .link = shape_at[MIN(task->tag, d->n_tags)],
                       .stream = (guint16)MIN(task->stream, MS_N_STREAMS - 1)};
    g_array_append_val(t->kernels, k);
  }
  g_array_sort(t->kernels, by_start);
  MsTraceStep step = {0, nanoseconds(run->makespan), 0};
  g_array_append_val(t->steps, step);
  t->steps_by = "the simulation";
  return t;
}

/* --- profiles -------------------------------------------------------------------------------------------------- */
static MsProfile *profile_new(const char *file, MsProfileKind kind) {
  MsProfile *p = g_new0(MsProfile, 1);
  *p = (MsProfile){.file = g_strdup(file), .kind = kind, .rank = -1, .stage = -1, .step_s = NAN, .busy_s = NAN};
  return p;
}

static void add_part(MsProfilePart **parts, int *n, const char *word, double time_s) {
  for (int i = 0; i < *n; i++) {
    if (strcmp((*parts)[i].word, word) != 0) continue;
    (*parts)[i].time_s += time_s;
    return;
  }
  *parts = g_renew(MsProfilePart, *parts, *n + 1);
  (*parts)[(*n)++] = (MsProfilePart){g_strdup(word), time_s};
}

static MsProfileStream *add_stream(MsProfile *p, const char *name, double busy_s) {
  p->stream = g_renew(MsProfileStream, p->stream, p->n_streams + 1);
  p->stream[p->n_streams] = (MsProfileStream){.name = g_strdup(name), .busy_s = busy_s};
  return &p->stream[p->n_streams++];
}

static void parts_free(MsProfilePart *part, int n) {
  for (int i = 0; i < n; i++) g_free(part[i].word);
  g_free(part);
}

void ms_profile_free(MsProfile *p) {
  if (!p) return;
  parts_free(p->part, p->n_parts);
  for (int i = 0; i < p->n_streams; i++) {
    g_free(p->stream[i].name);
    parts_free(p->stream[i].part, p->stream[i].n_parts);
    g_free(p->stream[i].span);
  }
  g_free(p->stream);
  g_free(p->product);
  g_free(p->file);
  g_free(p->device);
  ms_trace_free(p->trace);
  ms_result_free(p->result);
  ms_scenario_free(p->scenario);
  g_free(p);
}

/* --- over time ------------------------------------------------------------------------------------------------- */
static MsProfileStream *stream_named(MsProfile *p, const char *name) {
  for (int i = 0; i < p->n_streams; i++)
    if (strcmp(p->stream[i].name, name) == 0) return &p->stream[i];
  return NULL;
}

/* Behind what is there: what cannot be seen apart becomes one, of the class that was there first. */
static void add_span(MsProfileStream *s, MsProfileSpan span, double point_s) {
  MsProfileSpan *last = s->n_spans > 0 ? &s->span[s->n_spans - 1] : NULL;
  gboolean close = last && span.start_s - last->end_s < point_s;
  if (close && (last->word == span.word || last->end_s - last->start_s < point_s)) {
    last->end_s = MAX(last->end_s, span.end_s);
    return;
  }
  if ((s->n_spans & (s->n_spans - 1)) == 0) s->span = g_renew(MsProfileSpan, s->span, 2 * MAX(s->n_spans, 1));
  s->span[s->n_spans++] = span;
}

/* Kernels of the first step. */
static void take_spans(MsProfile *p, const MsTrace *trace, const MsKernelTable *table) {
  const MsTraceStep *step = &g_array_index(trace->steps, MsTraceStep, 0);
  double point_s = p->step_s / MS_PROFILE_POINTS;
  g_autofree MsProfileStream **of = g_new0(MsProfileStream *, trace->streams->len + 1);
  for (guint i = 0; i < trace->streams->len; i++) {
    g_autofree char *name = ms_trace_stream_name(trace, (int)i);
    of[i] = stream_named(p, name);
  }
  for (guint i = 0; i < trace->kernels->len; i++) {
    const MsTraceKernel *k = &g_array_index(trace->kernels, MsTraceKernel, i);
    if (k->step != 0 || !of[k->stream]) continue;
    int class_index = g_array_index(trace->names, MsTraceName, k->name).class_index;
    double start_s = 1e-9 * (double)(k->start_ns - step->start_ns);
    add_span(of[k->stream],
             (MsProfileSpan){g_intern_string(ms_kernel_class_word(table, class_index)), start_s,
                             start_s + 1e-9 * (double)k->length_ns},
             point_s);
  }
}

static void take_times(MsProfile *p, const MsTrace *trace, const MsKernelTable *table) {
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, table);
  p->step_s = t->step_s, p->reference_flops = t->reference_flops;
  p->busy_s = t->busy_s;
  for (int i = 0; i < t->n_classes; i++) add_part(&p->part, &p->n_parts, t->classes[i].word, t->classes[i].time_s);
  for (int i = 0; i < t->n_streams; i++) {
    if (t->streams[i].kernels <= 0) continue;
    MsProfileStream *s = add_stream(p, t->streams[i].name, t->streams[i].busy_s);
    for (int k = 0; k < t->streams[i].n_parts; k++)
      add_part(&s->part, &s->n_parts, t->streams[i].parts[k].word, t->streams[i].parts[k].time_s);
  }
  p->product = g_memdup2(t->products, sizeof *t->products * (gsize)t->n_products);
  p->n_products = t->n_products;
  take_spans(p, trace, table);
}

static gboolean load_trace(MsProfile *p, const MsKernelTable *table, GPtrArray *notes, GError **error) {
  p->trace = ms_trace_load(p->file, -1, table, notes, error);
  if (!p->trace) return FALSE;
  p->device = g_strdup(p->trace->device);
  p->rank = p->trace->rank;
  p->ranks = p->trace->ranks;
  take_times(p, p->trace, table);
  return TRUE;
}

static int busiest(const MsResult *r) {
  int best = 0;
  for (int i = 1; i < r->stages; i++)
    if (r->stage_time[i].compute_s > r->stage_time[best].compute_s) best = i;
  return best;
}

static int stage_of_rank(const MsLayout *layout, int rank) {
  return rank < 0 || rank >= layout->world ? -1 : ms_rank_stage(layout, rank);
}

static gboolean load_scenario(MsProfile *p, int stage, int rank, const MsKernelTable *table, GError **error) {
  g_autoptr(MsDetail) detail = NULL;
  p->scenario = ms_scenario_load(p->file, error);
  p->result = p->scenario ? ms_simulate(p->scenario, MS_FIDELITY_FULL, &detail, error) : NULL;
  if (!p->result) return FALSE;
  if (!detail)
    return ms_input_error(error, p->file, 0, NULL, "the step was not simulated: %s",
                          p->result->why_infeasible ? p->result->why_infeasible : "it is infeasible");
  if (stage >= p->result->stages)
    return ms_input_error(error, p->file, 0, NULL, "has %d stages, counted from 0: no stage %d", p->result->stages,
                          stage);
  p->device = g_strdup(p->scenario->hardware->name);
  p->ranks = p->scenario->gpus;
  p->stage = stage >= 0 ? stage : stage_of_rank(detail->layout, rank);
  if (p->stage < 0) p->stage = busiest(p->result);
  p->trace = trace_of_step(detail, p->stage, p->file, table);
  take_times(p, p->trace, table);
  return TRUE;
}

/* --- what was saved -------------------------------------------------------------------------------------------- */
static double number(JsonObject *o, const char *key) { return ms_json_number(ms_json_member(o, key)); }

static const char *text(JsonObject *o, const char *key) { return ms_json_string(ms_json_member(o, key)); }

static JsonObject *object(JsonObject *o, const char *key) { return ms_json_object(ms_json_member(o, key)); }

static JsonArray *list(JsonObject *o, const char *key) { return ms_json_array(ms_json_member(o, key)); }

static guint length(JsonArray *a) { return a ? json_array_get_length(a) : 0; }

static JsonObject *element(JsonArray *a, guint i) { return ms_json_object(json_array_get_element(a, i)); }

/* [{"class": ..., "time_s": ...}, ...] */
static void take_parts(MsProfilePart **parts, int *n, JsonArray *classes) {
  for (guint i = 0; i < length(classes); i++) {
    JsonObject *one = element(classes, i);
    double time_s = number(one, "time_s");
    if (text(one, "class") && time_s >= 0) add_part(parts, n, text(one, "class"), time_s);
  }
}

static void take_saved_trace(MsProfile *p, JsonObject *root) {
  p->device = g_strdup(text(root, "device"));
  p->rank = (int)CLAMP(number(root, "rank"), -1, 1 << 28);
  p->ranks = (int)CLAMP(number(root, "ranks"), 0, 1 << 28);
  p->step_s = number(root, "step_s"), p->reference_flops = fmax(number(root, "reference_flops"), 0);
  p->busy_s = number(root, "busy_s");
  take_parts(&p->part, &p->n_parts, list(root, "classes"));
  for (guint i = 0; i < length(list(root, "streams")); i++) {
    JsonObject *one = element(list(root, "streams"), i);
    if (!text(one, "stream")) continue;
    MsProfileStream *s = add_stream(p, text(one, "stream"), number(one, "busy_s"));
    take_parts(&s->part, &s->n_parts, list(one, "classes"));
  }
}

static guint busiest_saved(JsonArray *stages) {
  guint best = 0;
  for (guint i = 1; i < length(stages); i++)
    if (number(element(stages, i), "compute_s") > number(element(stages, best), "compute_s")) best = i;
  return best;
}

/* `stage` -1: the one that computes longest. Results without their stages have the mean over them. */
static gboolean take_saved_run(MsProfile *p, JsonObject *root, int stage, GError **error) {
  static const char *const families[] = {"gemm", "grouped_gemm", "attention", "memory_bound"};
  JsonArray *stages = list(root, "stage_time");
  int n = (int)length(stages);
  if (stage >= MAX(n, 1))
    return ms_input_error(error, p->file, 0, NULL, "has %d stages, counted from 0: no stage %d", n, stage);
  p->stage = n == 0 ? -1 : stage >= 0 ? stage : (int)busiest_saved(stages);
  JsonObject *time = n > 0 ? element(stages, (guint)p->stage) : object(root, "time");
  JsonObject *family = object(time, "compute_by_family"), *comm = object(time, "comm");
  p->step_s = number(root, "step_time_s");
  p->coarse = TRUE;
  for (gsize i = 0; i < G_N_ELEMENTS(families); i++)
    if (number(family, families[i]) > 0) add_part(&p->part, &p->n_parts, families[i], number(family, families[i]));
  double sum_s = 0;
  for (int i = 0; i < MS_N_COMMS; i++) {
    double one_s = number(object(comm, ms_comm_words[i]), "total_s");
    if (one_s > 0) sum_s += one_s;
  }
  if (sum_s > 0) add_part(&p->part, &p->n_parts, "communication", sum_s);
  return TRUE;
}

static gboolean load_saved(MsProfile *p, int stage, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(p->file, error);
  if (!doc || !ms_json_need_object(doc, ms_json_root(doc), "", error)) return FALSE;
  JsonObject *root = json_node_get_object(ms_json_root(doc));
  if (p->kind == MS_PROFILE_SAVED_TRACE) take_saved_trace(p, root);
  else if (!take_saved_run(p, root, stage, error)) return FALSE;
  return p->n_parts > 0 || ms_json_error(doc, "", error, "holds no times of a step");
}

/* --- families -------------------------------------------------------------------------------------------------- */
static const char *family_word(const MsKernelTable *table, const char *word) {
  static const char *const words[] = {"gemm", "grouped_gemm", "attention", "memory_bound", "communication", "host"};
  static const char *const waits[] = {"exchange_wait", "collective", NULL};
  if (g_strv_contains(waits, word)) return "communication";
  for (int op = 0; op < MS_N_OPS; op++)
    if (strcmp(ms_kernel_class_word(table, ms_kernel_class_of_op(table, ms_op_words[op])), word) == 0)
      return words[ms_op_families[op]];
  return "memory_bound";
}

static void fold(MsProfilePart **parts, int *n, const MsKernelTable *table) {
  MsProfilePart *folded = NULL;
  int n_folded = 0;
  for (int i = 0; i < *n; i++) add_part(&folded, &n_folded, family_word(table, (*parts)[i].word), (*parts)[i].time_s);
  parts_free(*parts, *n);
  *parts = folded;
  *n = n_folded;
}

void ms_profile_fold(MsProfile *p, const MsKernelTable *table) {
  if (p->coarse) return;
  fold(&p->part, &p->n_parts, table);
  for (int i = 0; i < p->n_streams; i++) {
    MsProfileStream *s = &p->stream[i];
    fold(&s->part, &s->n_parts, table);
    for (int k = 0; k < s->n_spans; k++) s->span[k].word = family_word(table, s->span[k].word);
  }
  p->coarse = TRUE;
}

double ms_profile_speed(const MsProfile *measured, const MsHardware *machine) {
  double speed = measured->reference_flops / machine->reference_flops;
  return isfinite(speed) && speed > 0 ? speed : 1;
}

MsProfile *ms_profile_load(const char *file, int stage, int rank, const MsKernelTable *table, GPtrArray *notes,
                           GError **error) {
  MsProfileKind kind;
  if (!ms_profile_kind(file, &kind, error)) return NULL;
  g_autoptr(MsProfile) p = profile_new(file, kind);
  gboolean good = kind == MS_PROFILE_SCENARIO ? load_scenario(p, stage, rank, table, error)
                  : kind == MS_PROFILE_TRACE  ? load_trace(p, table, notes, error)
                                              : load_saved(p, stage < 0 && rank == 0 ? 0 : stage, error);
  if (good && kind == MS_PROFILE_SAVED_RUN)
    g_ptr_array_add(notes, g_strdup_printf("%s: has what the compute stream spends, by family: kernels of other "
                                           "streams (permutes beside compute) are not in it, the scenario has them",
                                           file));
  return good ? g_steal_pointer(&p) : NULL;
}
