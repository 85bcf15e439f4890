#include "logs/trace.h"

#include "base/err.h"
#include "logs/json_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KERNELS = 1 << 24, MOST_STREAMS = 1 << 12, MOST_STEPS = 1 << 14, MOST_SHAPES = 1 << 20, MOST_DIMS = 24 };

typedef enum { CAT_OTHER, CAT_KERNEL, CAT_COPY, CAT_GPU_MARK, CAT_MARK, CAT_OPERATOR } Category;
static const struct {
  const char *word;
  Category category;
} categories[] = {{"kernel", CAT_KERNEL},        {"gpu_memcpy", CAT_COPY}, {"gpu_memset", CAT_COPY},
                  {"memcpy", CAT_COPY},          {"memset", CAT_COPY},     {"gpu_user_annotation", CAT_GPU_MARK},
                  {"user_annotation", CAT_MARK}, {"cpu_op", CAT_OPERATOR}, {"operator", CAT_OPERATOR}};

/* An event as its members come. */
typedef struct {
  char phase;
  Category category;
  GString *name, *collective, *dtype, *types;
  gint64 start_ns, length_ns, thread, process, stream, device, link;
  gboolean timed, has_stream, has_device;
  double elements, ranks;
  double dim[MOST_DIMS]; /* of the operands, one behind the other */
  int operand[MOST_DIMS + 1], operands, dims;
} Event;

typedef struct {
  MsTrace *t;
  MsJsonStream *json;
  const char *file;
  const MsKernelTable *table;
  GHashTable *name_of, *stream_of, *shape_of_link; /* name -> index + 1; device, stream -> index + 1 */
  GArray *gpu_marks, *marks;                       /* MsTraceStep */
  Event event;
  guint64 events, odd; /* odd: kernels without a usable time */
  gboolean cut;
} Reading;

/* --- values ---------------------------------------------------------------------------------------------------- */
/* Microseconds in decimals as nanoseconds, exactly: a double holds today's clocks to a quarter of a microsecond only.
 */
static gboolean to_ns(const char *text, gint64 *ns) {
  const char *c = text + (*text == '-');
  char *end;
  guint64 us = g_ascii_strtoull(c, &end, 10), fraction = 0;
  double plain = g_ascii_strtod(text, NULL);
  if (!(fabs(plain) < 9e15)) return FALSE;
  *ns = (gint64)llround(plain * 1000); /* with an exponent */
  if (end == c || (*end && *end != '.')) return end != c || *c == '.';
  for (int i = 0; i < 3; i++) {
    if (*end == '.') end++;
    fraction = 10 * fraction + (g_ascii_isdigit(*end) ? (guint64)(*end++ - '0') : 0);
  }
  while (g_ascii_isdigit(*end)) end++;
  if (*end == 0) *ns = (gint64)(1000 * us + fraction) * (*text == '-' ? -1 : 1);
  return TRUE;
}

/* A number, or a text that is one ("stream": "7"). */
static gint64 whole(const char *text) { return g_ascii_strtoll(text, NULL, 10); }

/* --- members of an event --------------------------------------------------------------------------------------- */
static void event_clear(Event *e) {
  GString *kept[] = {e->name, e->collective, e->dtype, e->types};
  for (gsize i = 0; i < G_N_ELEMENTS(kept); i++) g_string_truncate(kept[i], 0);
  *e = (Event){.name = kept[0], .collective = kept[1], .dtype = kept[2], .types = kept[3]};
}

static MsToken next(Reading *r, GError **error) { return ms_json_stream_next(r->json, error); }

/* [[4096, 7168], [7168, 1536], []]: behind its first bracket. Token as of the last. */
static MsToken read_dims(Reading *r, GError **error) {
  Event *e = &r->event;
  int outer = ms_json_stream_depth(r->json);
  e->operands = e->dims = 0;
  for (;;) {
    MsToken token = next(r, error);
    int depth = ms_json_stream_depth(r->json);
    if (token >= MS_TOKEN_DONE || depth < outer) return token;
    if (token == MS_TOKEN_LIST && depth == outer + 1 && e->operands < MOST_DIMS) e->operand[e->operands++] = e->dims;
    if (token == MS_TOKEN_NUMBER && depth == outer + 1 && e->operands > 0 && e->dims < MOST_DIMS)
      e->dim[e->dims++] = g_ascii_strtod(ms_json_stream_text(r->json), NULL);
    e->operand[e->operands] = e->dims;
  }
}

/* ["c10::BFloat16", ...]: the first. */
static MsToken read_types(Reading *r, GError **error) {
  int outer = ms_json_stream_depth(r->json);
  for (;;) {
    MsToken token = next(r, error);
    if (token >= MS_TOKEN_DONE || ms_json_stream_depth(r->json) < outer) return token;
    if (token == MS_TOKEN_TEXT && r->event.types->len == 0)
      g_string_assign(r->event.types, ms_json_stream_text(r->json));
  }
}

static void take_argument(Event *e, const char *key, const char *text) {
  if (strcmp(key, "stream") == 0) e->stream = whole(text), e->has_stream = TRUE;
  else if (strcmp(key, "device") == 0) e->device = whole(text), e->has_device = TRUE;
  else if (strcmp(key, "External id") == 0 || strcmp(key, "external id") == 0) e->link = whole(text);
  else if (strcmp(key, "Collective name") == 0) g_string_assign(e->collective, text);
  else if (strcmp(key, "dtype") == 0) g_string_assign(e->dtype, text);
  else if (strcmp(key, "In msg nelems") == 0 || strcmp(key, "Out msg nelems") == 0)
    e->elements = MAX(e->elements, g_ascii_strtod(text, NULL));
  else if (strcmp(key, "Group size") == 0) e->ranks = g_ascii_strtod(text, NULL);
}

/* Behind "args": {. */
static MsToken read_arguments(Reading *r, GError **error) {
  char key[32];
  for (;;) {
    MsToken token = next(r, error);
    if (token != MS_TOKEN_KEY) return token;
    g_strlcpy(key, ms_json_stream_text(r->json), sizeof key);
    token = next(r, error);
    if (token == MS_TOKEN_LIST && strcmp(key, "Input Dims") == 0) token = read_dims(r, error);
    else if (token == MS_TOKEN_LIST && strcmp(key, "Input type") == 0) token = read_types(r, error);
    else if (token == MS_TOKEN_NUMBER || token == MS_TOKEN_TEXT)
      take_argument(&r->event, key, ms_json_stream_text(r->json));
    else token = ms_json_stream_skip(r->json, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

static Category category_of(const char *text) {
  for (gsize i = 0; i < G_N_ELEMENTS(categories); i++)
    if (g_ascii_strcasecmp(text, categories[i].word) == 0) return categories[i].category;
  return CAT_OTHER;
}

static void take_member(Reading *r, const char *key, const char *text) {
  Event *e = &r->event;
  if (strcmp(key, "ph") == 0) e->phase = text[0] && !text[1] ? text[0] : 0;
  else if (strcmp(key, "cat") == 0) e->category = category_of(text);
  else if (strcmp(key, "name") == 0) g_string_assign(e->name, text);
  else if (strcmp(key, "ts") == 0) e->timed = to_ns(text, &e->start_ns);
  else if (strcmp(key, "dur") == 0 && !to_ns(text, &e->length_ns)) e->length_ns = -1;
  else if (strcmp(key, "tid") == 0) e->thread = whole(text);
  else if (strcmp(key, "pid") == 0) e->process = whole(text);
}

/* Behind the {. of an event. */
static MsToken read_event(Reading *r, GError **error) {
  char key[16];
  event_clear(&r->event);
  for (;;) {
    MsToken token = next(r, error);
    if (token != MS_TOKEN_KEY) return token;
    g_strlcpy(key, ms_json_stream_text(r->json), sizeof key);
    token = next(r, error);
    if (token == MS_TOKEN_OBJECT && strcmp(key, "args") == 0) token = read_arguments(r, error);
    else if (token == MS_TOKEN_NUMBER || token == MS_TOKEN_TEXT) take_member(r, key, ms_json_stream_text(r->json));
    else token = ms_json_stream_skip(r->json, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

/* --- events ---------------------------------------------------------------------------------------------------- */
static guint32 name_index(Reading *r) {
  const Event *e = &r->event;
  const char *collective = e->collective->len > 0 ? e->collective->str : NULL;
  g_autofree char *key = g_strdup_printf("%s\n%s", e->name->str, collective ? collective : "");
  guint known = GPOINTER_TO_UINT(g_hash_table_lookup(r->name_of, key));
  if (known) return known - 1;
  MsTraceName name = {g_strdup(e->name->str), ms_kernel_family(r->table, e->name->str, collective), -1};
  if (name.family >= 0)
    name.class_index = g_array_index(r->table->families, MsKernelFamily, (guint)name.family).class_index;
  g_array_append_val(r->t->names, name);
  g_hash_table_insert(r->name_of, g_steal_pointer(&key), GUINT_TO_POINTER(r->t->names->len));
  return r->t->names->len - 1;
}

/* -1: too many. */
static int stream_index(Reading *r) {
  const Event *e = &r->event;
  MsTraceStreamId id = {e->has_device ? e->device : e->process, e->has_stream ? e->stream : e->thread, NULL};
  g_autofree char *key = g_strdup_printf("%" G_GINT64_FORMAT " %" G_GINT64_FORMAT, id.device, id.number);
  guint known = GPOINTER_TO_UINT(g_hash_table_lookup(r->stream_of, key));
  if (known) return (int)known - 1;
  if (r->t->streams->len == MOST_STREAMS) return -1;
  g_array_append_val(r->t->streams, id);
  g_hash_table_insert(r->stream_of, g_steal_pointer(&key), GUINT_TO_POINTER(r->t->streams->len));
  return (int)r->t->streams->len - 1;
}

static const char *dtype_of(const char *type) {
  static const char *const words[][2] = {{"bfloat16", "bf16"}, {"half", "bf16"}, {"float8", "fp8"},
                                         {"float16", "bf16"},  {"fp16", "bf16"}, {"float", "fp32"}};
  g_autofree char *low = g_ascii_strdown(type, -1);
  for (gsize i = 0; i < G_N_ELEMENTS(words); i++)
    if (strstr(low, words[i][0])) return words[i][1];
  return "";
}

static double element_B(const char *dtype) {
  g_autofree char *low = g_ascii_strdown(dtype, -1);
  return strstr(low, "8") && !strstr(low, "bfloat") ? 1 : strstr(low, "16") || strstr(low, "half") ? 2 : 4;
}

/* Which operands of an operator are its matrices. */
static const struct {
  const char *name;
  int a;
} products[] = {{"aten::mm", 0}, {"aten::addmm", 1}, {"aten::bmm", 0}, {"aten::baddbmm", 1}, {"aten::_scaled_mm", 0}};

/* Of operand `i` the size `place`, counted from the last. */
static double size_of(const Event *e, int i, int place) {
  int at = e->operand[i + 1] - 1 - place;
  return at >= e->operand[i] ? e->dim[at] : 1;
}

static void take_operator(Reading *r) {
  const Event *e = &r->event;
  for (gsize i = 0; i < G_N_ELEMENTS(products); i++) {
    int a = products[i].a;
    if (strcmp(e->name->str, products[i].name) != 0 || e->operands < a + 2 || e->link <= 0 || e->link > G_MAXUINT32)
      continue;
    MsTraceShape s = {size_of(e, a, 2), size_of(e, a, 1), size_of(e, a + 1, 0), size_of(e, a, 0), ""};
    gboolean sound = s.m >= 1 && s.n >= 1 && s.k >= 1 && s.k == size_of(e, a + 1, 1) && s.m * s.n * s.k < 1e18;
    if (!sound || r->t->shapes->len == MOST_SHAPES) return;
    g_strlcpy(s.dtype, dtype_of(e->types->str), sizeof s.dtype);
    g_array_append_val(r->t->shapes, s);
    g_hash_table_insert(r->shape_of_link, GUINT_TO_POINTER((guint)e->link), GUINT_TO_POINTER(r->t->shapes->len));
    return;
  }
}

static gboolean take_kernel(Reading *r, GError **error) {
  const Event *e = &r->event;
  MsTrace *t = r->t;
  if (!e->timed || e->length_ns < 0 || e->length_ns > G_GINT64_CONSTANT(1) << 53) {
    r->odd++;
    return TRUE;
  }
  int stream = stream_index(r);
  if (stream < 0 || t->kernels->len == MOST_KERNELS)
    return ms_input_error(error, r->file, ms_json_stream_line(r->json), NULL, "holds more than %d %s",
                          stream < 0 ? MOST_STREAMS : MOST_KERNELS, stream < 0 ? "streams" : "kernels");
  MsTraceKernel k = {.start_ns = e->start_ns,
                     .length_ns = e->length_ns,
                     .name = name_index(r),
                     .link = (guint32)CLAMP(e->link, 0, G_MAXUINT32),
                     .stream = (guint16)stream};
  g_array_append_val(t->kernels, k);
  if (e->collective->len > 0 && e->elements > 0 && e->ranks >= 2 && e->ranks < 1e7) {
    MsTraceMessage m = {k.name, e->elements * element_B(e->dtype->str), (double)k.length_ns, (int)e->ranks};
    g_array_append_val(t->messages, m);
  }
  return TRUE;
}

static void take_mark(const Event *e, GArray *marks) {
  if (!g_str_has_prefix(e->name->str, "ProfilerStep") || !e->timed || e->length_ns < 0 || marks->len >= MOST_STEPS)
    return;
  const char *number = strchr(e->name->str, '#');
  MsTraceStep step = {e->start_ns, e->start_ns + e->length_ns, number ? whole(number + 1) : 0};
  g_array_append_val(marks, step);
}

static gboolean take_event(Reading *r, GError **error) {
  const Event *e = &r->event;
  r->events++;
  if (e->phase != 'X') return TRUE;
  if (e->category == CAT_KERNEL || e->category == CAT_COPY) return take_kernel(r, error);
  if (e->category == CAT_GPU_MARK) take_mark(e, r->gpu_marks);
  if (e->category == CAT_MARK || e->category == CAT_OPERATOR) take_mark(e, r->marks);
  if (e->category == CAT_OPERATOR) take_operator(r);
  return TRUE;
}

/* Behind the [ of the events. */
static MsToken read_events(Reading *r, GError **error) {
  for (;;) {
    MsToken token = next(r, error);
    if (token == MS_TOKEN_OBJECT) {
      token = read_event(r, error);
      if (token == MS_TOKEN_END && !take_event(r, error)) return MS_TOKEN_WRONG;
    } else if (token == MS_TOKEN_END || token >= MS_TOKEN_DONE) return token;
    else token = ms_json_stream_skip(r->json, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

/* --- the document ---------------------------------------------------------------------------------------------- */
/* Scalars of an object behind its {: those named `number` and `text`. */
static MsToken read_pair(Reading *r, const char *const number[2], int *into[2], const char *text, char **to,
                         GError **error) {
  char key[32];
  for (;;) {
    MsToken token = next(r, error);
    if (token != MS_TOKEN_KEY) return token;
    g_strlcpy(key, ms_json_stream_text(r->json), sizeof key);
    token = next(r, error);
    for (int i = 0; i < 2 && token == MS_TOKEN_NUMBER; i++)
      if (number[i] && strcmp(key, number[i]) == 0)
        *into[i] = (int)CLAMP(whole(ms_json_stream_text(r->json)), -1, 1 << 28);
    if (token == MS_TOKEN_TEXT && text && !*to && strcmp(key, text) == 0) *to = g_strdup(ms_json_stream_text(r->json));
    token = ms_json_stream_skip(r->json, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

static MsToken read_devices(Reading *r, GError **error) {
  for (;;) {
    MsToken token = next(r, error);
    if (token == MS_TOKEN_END || token >= MS_TOKEN_DONE) return token;
    token = token == MS_TOKEN_OBJECT
                ? read_pair(r, (const char *const[2]){NULL, NULL}, NULL, "name", &r->t->device, error)
                : ms_json_stream_skip(r->json, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

static MsToken read_member(Reading *r, const char *key, MsToken token, GError **error) {
  if (token == MS_TOKEN_LIST && strcmp(key, "traceEvents") == 0) return read_events(r, error);
  if (token == MS_TOKEN_LIST && strcmp(key, "deviceProperties") == 0) return read_devices(r, error);
  if (token == MS_TOKEN_OBJECT && strcmp(key, "distributedInfo") == 0)
    return read_pair(r, (const char *const[2]){"rank", "world_size"}, (int *[2]){&r->t->rank, &r->t->ranks}, NULL, NULL,
                     error);
  return ms_json_stream_skip(r->json, token, error);
}

static MsToken read_document(Reading *r, GError **error) {
  char key[32];
  MsToken token = next(r, error);
  if (token == MS_TOKEN_LIST) return read_events(r, error);
  if (token != MS_TOKEN_OBJECT) return token == MS_TOKEN_CUT || token == MS_TOKEN_WRONG ? token : MS_TOKEN_DONE;
  for (;;) {
    token = next(r, error);
    if (token != MS_TOKEN_KEY) return token;
    g_strlcpy(key, ms_json_stream_text(r->json), sizeof key);
    token = next(r, error);
    if (token < MS_TOKEN_DONE) token = read_member(r, key, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

/* --- steps ----------------------------------------------------------------------------------------------------- */
static int by_kernel_start(gconstpointer a, gconstpointer b) {
  const MsTraceKernel *x = a, *y = b;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  return (x->stream > y->stream) - (x->stream < y->stream);
}

static int by_start(gconstpointer a, gconstpointer b) {
  const MsTraceStep *x = a, *y = b;
  return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static int by_number(gconstpointer a, gconstpointer b) {
  const MsTraceStep *x = a, *y = b;
  return x->number == y->number ? by_start(a, b) : x->number < y->number ? -1 : 1;
}

static const MsTraceKernel *kernel_at(const MsTrace *t, guint i) {
  return &g_array_index(t->kernels, MsTraceKernel, i);
}

static gboolean is_class(const Reading *r, const MsTraceKernel *k, const char *word) {
  int index = g_array_index(r->t->names, MsTraceName, k->name).class_index;
  return index >= 0 && strcmp(ms_kernel_class_word(r->table, index), word) == 0;
}

static gint64 last_end(const MsTrace *t) {
  gint64 end = G_MININT64;
  for (guint i = 0; i < t->kernels->len; i++) end = MAX(end, kernel_at(t, i)->start_ns + kernel_at(t, i)->length_ns);
  return end;
}

/* A step ends where products follow the optimizer. What is behind the last end is no whole step. */
static void steps_by_optimizer(Reading *r) {
  MsTrace *t = r->t;
  gboolean updated = FALSE;
  gint64 start = kernel_at(t, 0)->start_ns;
  for (guint i = 0; i < t->kernels->len; i++) {
    const MsTraceKernel *k = kernel_at(t, i);
    if (is_class(r, k, "optimizer")) updated = TRUE;
    if (!updated || !is_class(r, k, "gemm") || t->steps->len >= MOST_STEPS) continue;
    MsTraceStep step = {start, k->start_ns, 0};
    g_array_append_val(t->steps, step);
    start = k->start_ns;
    updated = FALSE;
  }
  MsTraceStep final = {start, last_end(t), 0};
  if (updated && t->steps->len < MOST_STEPS) g_array_append_val(t->steps, final);
  if (t->steps->len > 0) t->steps_by = "its optimizer";
}

/* The GPU's marks of a step are one for each stream. A step ends where the next begins at the latest. */
static void steps_by_marks(Reading *r, GArray *marks, const char *by) {
  GArray *steps = r->t->steps;
  g_array_sort(marks, by_number);
  for (guint i = 0; i < marks->len; i++) {
    MsTraceStep m = g_array_index(marks, MsTraceStep, i);
    MsTraceStep *before = steps->len > 0 ? &g_array_index(steps, MsTraceStep, steps->len - 1) : NULL;
    if (before && m.number == before->number) before->end_ns = MAX(before->end_ns, m.end_ns);
    else g_array_append_val(steps, m);
  }
  g_array_sort(steps, by_start);
  for (guint i = 0; i + 1 < steps->len; i++) {
    MsTraceStep *step = &g_array_index(steps, MsTraceStep, i);
    step->end_ns = MIN(step->end_ns, step[1].start_ns);
  }
  r->t->steps_by = by;
}

static void find_steps(Reading *r) {
  MsTrace *t = r->t;
  if (r->gpu_marks->len > 0) steps_by_marks(r, r->gpu_marks, "marks of the GPU");
  else if (r->marks->len > 0) steps_by_marks(r, r->marks, "marks of the host");
  else steps_by_optimizer(r);
  if (t->steps->len == 0) {
    MsTraceStep all = {kernel_at(t, 0)->start_ns, last_end(t), 0};
    g_array_append_val(t->steps, all);
    t->steps_by = "nothing: all is one";
  }
}

/* Every kernel to its step; those behind the last step of an optimizer stay out (-1), so does a step that was cut. */
static void give_steps(Reading *r) {
  MsTrace *t = r->t;
  guint step = 0, whole_steps = t->steps->len - (r->cut && t->steps->len > 1);
  gboolean open = strcmp(t->steps_by, "its optimizer") == 0;
  for (guint i = 0; i < t->kernels->len; i++) {
    MsTraceKernel *k = &g_array_index(t->kernels, MsTraceKernel, i);
    while (step + 1 < t->steps->len && k->start_ns >= g_array_index(t->steps, MsTraceStep, step + 1).start_ns) step++;
    gboolean behind = open && k->start_ns >= g_array_index(t->steps, MsTraceStep, step).end_ns;
    k->step = step < whole_steps && !behind ? (gint16)step : -1;
  }
  g_array_set_size(t->steps, whole_steps);
}

/* --- all of it ------------------------------------------------------------------------------------------------- */
static void clear_name(gpointer name) { g_free(((MsTraceName *)name)->name); }

MsTrace *ms_trace_new(const char *file) {
  MsTrace *t = g_new0(MsTrace, 1);
  *t = (MsTrace){.file = g_strdup(file),
                 .rank = -1,
                 .kernels = g_array_new(FALSE, FALSE, sizeof(MsTraceKernel)),
                 .names = g_array_new(FALSE, FALSE, sizeof(MsTraceName)),
                 .shapes = g_array_new(FALSE, TRUE, sizeof(MsTraceShape)),
                 .streams = g_array_new(FALSE, FALSE, sizeof(MsTraceStreamId)),
                 .steps = g_array_new(FALSE, FALSE, sizeof(MsTraceStep)),
                 .messages = g_array_new(FALSE, FALSE, sizeof(MsTraceMessage))};
  g_array_set_clear_func(t->names, clear_name);
  return t;
}

void ms_trace_free(MsTrace *t) {
  if (!t) return;
  GArray *const arrays[] = {t->kernels, t->names, t->shapes, t->streams, t->steps, t->messages};
  for (gsize i = 0; i < G_N_ELEMENTS(arrays); i++) g_array_unref(arrays[i]);
  g_free(t->file);
  g_free(t->device);
  g_free(t);
}

static void note(GPtrArray *notes, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void note(GPtrArray *notes, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_ptr_array_add(notes, g_strdup_vprintf(format, args));
  va_end(args);
}

static void link_shapes(Reading *r) {
  for (guint i = 0; i < r->t->kernels->len; i++) {
    MsTraceKernel *k = &g_array_index(r->t->kernels, MsTraceKernel, i);
    k->link = k->link ? GPOINTER_TO_UINT(g_hash_table_lookup(r->shape_of_link, GUINT_TO_POINTER(k->link))) : 0;
    if (!is_class(r, k, "gemm")) k->link = 0; /* beside a product an operator launches copies and casts */
  }
}

static gboolean finish(Reading *r, MsReader *reader, MsToken last, GPtrArray *notes, GError **error) {
  MsTrace *t = r->t;
  r->cut = last == MS_TOKEN_CUT || ms_reader_cut(reader);
  if (r->events == 0)
    return ms_input_error(error, r->file, 0, NULL, "holds no events of a profiler: \"traceEvents\" should list them");
  if (t->kernels->len == 0 && r->odd > 0)
    return ms_input_error(error, r->file, 0, NULL,
                          "none of its %" G_GUINT64_FORMAT " kernels has a usable \"ts\" and \"dur\"", r->odd);
  if (t->kernels->len == 0)
    return ms_input_error(error, r->file, 0, NULL,
                          "%" G_GUINT64_FORMAT " events, but no kernel of a GPU among them (\"cat\": \"kernel\"): was "
                          "the profile taken with ProfilerActivity.CUDA?",
                          r->events);
  if (r->cut)
    note(notes, "%s: ends early, in line %d: the %u kernels before that count", r->file, ms_json_stream_line(r->json),
         t->kernels->len);
  if (r->odd > 0) note(notes, "%s: %" G_GUINT64_FORMAT " kernels without a usable time are left out", r->file, r->odd);
  g_array_sort(t->kernels, by_kernel_start);
  link_shapes(r);
  find_steps(r);
  give_steps(r);
  return TRUE;
}

MsTrace *ms_trace_read(MsReader *reader, const char *file, const MsKernelTable *table, GPtrArray *notes,
                       GError **error) {
  g_autoptr(MsTrace) t = ms_trace_new(file);
  g_autoptr(MsJsonStream) json = ms_json_stream_new(reader, file);
  Reading r = {.t = t,
               .json = json,
               .file = file,
               .table = table,
               .name_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
               .stream_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
               .shape_of_link = g_hash_table_new(NULL, NULL),
               .gpu_marks = g_array_new(FALSE, FALSE, sizeof(MsTraceStep)),
               .marks = g_array_new(FALSE, FALSE, sizeof(MsTraceStep)),
               .event = {.name = g_string_new(NULL),
                         .collective = g_string_new(NULL),
                         .dtype = g_string_new(NULL),
                         .types = g_string_new(NULL)}};
  MsToken last = read_document(&r, error);
  gboolean good = last != MS_TOKEN_WRONG && finish(&r, reader, last, notes, error);
  GString *const texts[] = {r.event.name, r.event.collective, r.event.dtype, r.event.types};
  for (gsize i = 0; i < G_N_ELEMENTS(texts); i++) g_string_free(texts[i], TRUE);
  GHashTable *const tables[] = {r.name_of, r.stream_of, r.shape_of_link};
  for (gsize i = 0; i < G_N_ELEMENTS(tables); i++) g_hash_table_unref(tables[i]);
  g_array_unref(r.gpu_marks);
  g_array_unref(r.marks);
  return good ? g_steal_pointer(&t) : NULL;
}
