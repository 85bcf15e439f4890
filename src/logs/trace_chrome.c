/* src/logs/trace_chrome.c - profiles in Chrome's trace format, as the PyTorch profiler writes them. */
#include "logs/trace_priv.h"

#include "base/err.h"
#include "base/text.h"
#include "logs/json_stream.h"

#include <math.h>
#include <string.h>

enum { MOST_DIMS = 24 };

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
  guint32 grid;
  double elements, ranks;
  double dim[MOST_DIMS]; /* of the operands, one behind the other */
  int operand[MOST_DIMS + 1], operands, dims;
} Event;

typedef struct {
  MsTraceBuild *b;
  MsJsonStream *json;
  GHashTable *shape_of_link;
  Event event;
  guint64 events;
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
  if (end == c || (*end && *end != '.')) {
    g_ascii_strtod(text, &end);
    return end > c && *end == 0; /* not "17,5" */
  }
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

/* 0: none that could be. */
static double rate(const char *text) {
  double value = g_ascii_strtod(text, NULL);
  return isfinite(value) && value > 0 ? value : 0;
}

/* --- members of an event --------------------------------------------------------------------------------------- */
static void event_clear(Event *e) {
  GString *kept[] = {e->name, e->collective, e->dtype, e->types};
  for (gsize i = 0; i < G_N_ELEMENTS(kept); i++) g_string_truncate(kept[i], 0);
  *e = (Event){.name = kept[0], .collective = kept[1], .dtype = kept[2], .types = kept[3]};
}

static MsToken next(Reading *r, GError **error) { return ms_json_stream_next(r->json, error); }

/* The key of the next member of an object, and the token that begins its value; no_member() of it: there is none. */
static MsToken next_member(Reading *r, char *key, gsize room, GError **error) {
  MsToken token = next(r, error);
  if (token != MS_TOKEN_KEY) return token;
  g_strlcpy(key, ms_json_stream_text(r->json), room);
  return next(r, error);
}

static gboolean no_member(MsToken token) { return token == MS_TOKEN_END || token >= MS_TOKEN_DONE; }

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

/* [4096, 1, 1]: behind its bracket; the hash of its numbers (FNV-1a). */
static MsToken read_grid(Reading *r, GError **error) {
  guint32 hash = 2166136261;
  int outer = ms_json_stream_depth(r->json);
  for (;;) {
    MsToken token = next(r, error);
    if (token >= MS_TOKEN_DONE || ms_json_stream_depth(r->json) < outer) {
      r->event.grid = MAX(hash, 1);
      return token;
    }
    for (const char *c = ms_json_stream_text(r->json); token == MS_TOKEN_NUMBER && *c; c++)
      hash = (hash ^ (guint8)*c) * 16777619;
    hash = (hash ^ ',') * 16777619;
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
    MsToken token = next_member(r, key, sizeof key, error);
    if (no_member(token)) return token;
    if (token == MS_TOKEN_LIST && strcmp(key, "Input Dims") == 0) token = read_dims(r, error);
    else if (token == MS_TOKEN_LIST && strcmp(key, "Input type") == 0) token = read_types(r, error);
    else if (token == MS_TOKEN_LIST && strcmp(key, "grid") == 0) token = read_grid(r, error);
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
    MsToken token = next_member(r, key, sizeof key, error);
    if (no_member(token)) return token;
    if (token == MS_TOKEN_OBJECT && strcmp(key, "args") == 0) token = read_arguments(r, error);
    else if (token == MS_TOKEN_NUMBER || token == MS_TOKEN_TEXT) take_member(r, key, ms_json_stream_text(r->json));
    else token = ms_json_stream_skip(r->json, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

/* --- events ---------------------------------------------------------------------------------------------------- */
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
    guint32 shape = s.k == size_of(e, a + 1, 1) ? ms_trace_build_shape(r->b, &s, e->types->str) : 0;
    if (shape) g_hash_table_insert(r->shape_of_link, GUINT_TO_POINTER((guint)e->link), GUINT_TO_POINTER(shape));
    return;
  }
}

/* A GPU: the device of a process. PyTorch writes the device as the process, a file of several ranks has processes of
 * each, with devices counted from 0 in every node. */
static gint64 gpu_of(const Event *e) {
  const gint64 most = G_GINT64_CONSTANT(1) << 40;
  return CLAMP(e->process, -most, most) * (1 << 20) + CLAMP(e->has_device ? e->device : e->process, 0, (1 << 20) - 1);
}

static gboolean take_kernel(Reading *r, GError **error) {
  const Event *e = &r->event;
  const MsTraceLaunch launch = {.name = e->name->str,
                                .collective = e->collective->len > 0 ? e->collective->str : NULL,
                                .device = gpu_of(e),
                                .stream = e->has_stream ? e->stream : e->thread,
                                .start_ns = e->start_ns,
                                .length_ns = e->timed ? e->length_ns : -1,
                                .link = (guint32)CLAMP(e->link, 0, G_MAXUINT32),
                                .grid = e->grid};
  guint32 name = G_MAXUINT32; /* stays when the kernel has no usable time */
  if (!ms_trace_build_kernel(r->b, &launch, ms_json_stream_line(r->json), &name, error)) return FALSE;
  if (name != G_MAXUINT32 && launch.collective && e->elements > 0 && e->ranks >= 2 && e->ranks < 1e7) {
    MsTraceMessage m = {name, e->elements * element_B(e->dtype->str), (double)e->length_ns, (int)e->ranks};
    g_array_append_val(r->b->t->messages, m);
  }
  return TRUE;
}

static void take_mark(const Event *e, GArray *marks) {
  const char *number = strchr(e->name->str, '#');
  MsTraceStep step = {e->start_ns, e->start_ns + e->length_ns, number ? whole(number + 1) : 0};
  if (g_str_has_prefix(e->name->str, "ProfilerStep") && e->timed && e->length_ns >= 0) g_array_append_val(marks, step);
}

static gboolean take_event(Reading *r, GError **error) {
  const Event *e = &r->event;
  r->events++;
  if (e->phase != 'X') return TRUE;
  if (e->category == CAT_KERNEL || e->category == CAT_COPY) return take_kernel(r, error);
  if (e->category == CAT_GPU_MARK) take_mark(e, r->b->gpu_marks);
  if (e->category == CAT_MARK || e->category == CAT_OPERATOR) take_mark(e, r->b->marks);
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
    MsToken token = next_member(r, key, sizeof key, error);
    if (no_member(token)) return token;
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
                ? read_pair(r, (const char *const[2]){NULL, NULL}, NULL, "name", &r->b->t->device, error)
                : ms_json_stream_skip(r->json, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

static MsToken read_member(Reading *r, const char *key, MsToken token, GError **error) {
  if (token == MS_TOKEN_LIST && strcmp(key, "traceEvents") == 0) return read_events(r, error);
  if (token == MS_TOKEN_LIST && strcmp(key, "deviceProperties") == 0) return read_devices(r, error);
  if (token == MS_TOKEN_NUMBER && strcmp(key, "reference_flops") == 0)
    r->b->t->reference_flops = rate(ms_json_stream_text(r->json));
  if (token == MS_TOKEN_OBJECT && strcmp(key, "distributedInfo") == 0)
    return read_pair(r, (const char *const[2]){"rank", "world_size"}, (int *[2]){&r->b->t->rank, &r->b->t->ranks}, NULL,
                     NULL, error);
  return ms_json_stream_skip(r->json, token, error);
}

static MsToken read_document(Reading *r, GError **error) {
  char key[32];
  MsToken token = next(r, error);
  if (token == MS_TOKEN_LIST) return read_events(r, error);
  if (token != MS_TOKEN_OBJECT) return token == MS_TOKEN_CUT || token == MS_TOKEN_WRONG ? token : MS_TOKEN_DONE;
  for (;;) {
    token = next_member(r, key, sizeof key, error);
    if (no_member(token)) return token;
    token = read_member(r, key, token, error);
    if (token >= MS_TOKEN_DONE) return token;
  }
}

/* --- all of it ------------------------------------------------------------------------------------------------- */
static void link_shapes(const Reading *r) {
  GArray *kernels = r->b->t->kernels;
  for (guint i = 0; i < kernels->len; i++) {
    MsTraceKernel *k = &g_array_index(kernels, MsTraceKernel, i);
    if (k->link) k->link = GPOINTER_TO_UINT(g_hash_table_lookup(r->shape_of_link, GUINT_TO_POINTER(k->link)));
  }
}

static gboolean sound(const Reading *r, GPtrArray *notes, GError **error) {
  const MsTraceBuild *b = r->b;
  const char *file = b->t->file;
  if (r->events == 0)
    return ms_input_error(error, file, 0, NULL, "holds no events of a profiler: \"traceEvents\" should list them");
  if (b->t->kernels->len == 0 && b->odd > 0)
    return ms_input_error(error, file, 0, NULL,
                          "none of its %" G_GUINT64_FORMAT " kernels has a usable \"ts\" and \"dur\"", b->odd);
  if (b->t->kernels->len == 0 && b->cut)
    return ms_input_error(error, file, ms_json_stream_line(r->json), NULL,
                          "ends early, before the first kernel of a GPU: copy the whole profile");
  if (b->t->kernels->len == 0)
    return ms_input_error(error, file, 0, NULL,
                          "%" G_GUINT64_FORMAT " events, but no kernel of a GPU among them (\"cat\": \"kernel\"): was "
                          "the profile taken with ProfilerActivity.CUDA?",
                          r->events);
  if (b->cut)
    ms_note(notes, "%s: ends early, in line %d: the %u kernels before that count", file, ms_json_stream_line(r->json),
            b->t->kernels->len);
  return TRUE;
}

static void note_rest(const Reading *r, GPtrArray *notes) {
  MsTrace *t = r->b->t;
  g_autoptr(GError) error = NULL;
  if (ms_json_stream_next(r->json, &error) == MS_TOKEN_WRONG)
    ms_note(notes, "%s: what follows its end is left out: two files behind each other?", t->file);
  if (t->ranks > 0 && t->rank >= t->ranks) {
    ms_note(notes, "%s: distributedInfo says rank %d of %d, which there is not: both are left out", t->file, t->rank,
            t->ranks);
    t->rank = -1, t->ranks = 0;
  }
}

gboolean ms_trace_chrome(MsTraceBuild *b, MsReader *reader, GPtrArray *notes, GError **error) {
  g_autoptr(MsJsonStream) json = ms_json_stream_new(reader, b->t->file);
  Reading r = {.b = b,
               .json = json,
               .shape_of_link = g_hash_table_new(NULL, NULL),
               .event = {.name = g_string_new(NULL),
                         .collective = g_string_new(NULL),
                         .dtype = g_string_new(NULL),
                         .types = g_string_new(NULL)}};
  MsToken last = read_document(&r, error);
  b->cut = last == MS_TOKEN_CUT || ms_reader_cut(reader);
  gboolean good = last != MS_TOKEN_WRONG && sound(&r, notes, error);
  if (good && last == MS_TOKEN_END) note_rest(&r, notes);
  if (good) link_shapes(&r);
  GString *const texts[] = {r.event.name, r.event.collective, r.event.dtype, r.event.types};
  for (gsize i = 0; i < G_N_ELEMENTS(texts); i++) g_string_free(texts[i], TRUE);
  g_hash_table_unref(r.shape_of_link);
  return good;
}
