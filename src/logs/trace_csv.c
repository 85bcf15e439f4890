/* src/logs/trace_csv.c - profiles as tables: a kernel in each row, what wrote them known by the titles of the columns.
 */
#include "logs/trace_priv.h"

#include "base/err.h"
#include "base/text.h"
#include "calib/csv.h"

#include <math.h>
#include <string.h>

enum { MOST_COLUMNS = 256, MOST_PREAMBLE = 200, MOST_DIMS = 16 };

/* Columns of a table by their titles; NULL: it has none of that. */
typedef struct {
  MsTraceForm form;
  gboolean micro; /* times in microseconds, else nanoseconds */
  const char *name, *start;
  const char *end, *length; /* one of both */
  const char *device, *stream, *second_stream;
  const char *type, *step; /* of the operator; number of the step */
  const char *inputs, *types, *outputs;
} Form;

/* Titles as the tools write them: Nsight Systems user guide, cuda_gpu_trace; ROCm documentation, rocprofv3
 * --kernel-trace and rocprof --stats; CANN documentation, op_summary and torch_npu's kernel_details. */
static const Form forms[] = {
    {MS_TRACE_NSYS, .name = "Name", .start = "Start (ns)", .length = "Duration (ns)", .device = "Device",
     .stream = "Strm"},
    {MS_TRACE_ROCPROF, .name = "Kernel_Name", .start = "Start_Timestamp", .end = "End_Timestamp", .device = "Agent_Id",
     .stream = "Stream_Id", .second_stream = "Queue_Id"},
    {MS_TRACE_ROCPROF, .name = "KernelName", .start = "BeginNs", .end = "EndNs", .device = "gpu-id",
     .stream = "queue-id"},
    {MS_TRACE_MSPROF, .micro = TRUE, .name = "Op Name", .start = "Task Start Time(us)", .length = "Task Duration(us)",
     .device = "Device_id", .stream = "Stream ID", .type = "OP Type", .inputs = "Input Shapes",
     .types = "Input Data Types", .outputs = "Output Shapes"},
    {MS_TRACE_MSPROF, .micro = TRUE, .name = "Name", .start = "Start Time(us)", .length = "Duration(us)",
     .device = "Device_id", .stream = "Stream ID", .type = "Type", .step = "Step Id", .inputs = "Input Shapes",
     .types = "Input Data Types", .outputs = "Output Shapes"}};

typedef struct {
  int name, start, end, length, device, stream, type, step, inputs, types, outputs; /* -1: there is none */
  int columns;
} Columns;

typedef struct {
  MsTraceBuild *b;
  const Form *form;
  Columns at;
  GHashTable *device_of; /* text -> index + 1 */
  char *field[MOST_COLUMNS];
  int fields;
  guint64 rows, odd; /* odd: of another number of columns */
} Reading;

/* --- the header ------------------------------------------------------------------------------------------------ */
static int column(char *const *field, int n, const char *title) {
  for (int i = 0; i < n && title; i++)
    if (strcmp(g_strstrip(field[i]), title) == 0) return i;
  return -1;
}

static gboolean matches(const Form *form, char *const *field, int n, Columns *at) {
  *at = (Columns){column(field, n, form->name),   column(field, n, form->start),   column(field, n, form->end),
                  column(field, n, form->length), column(field, n, form->device),  column(field, n, form->stream),
                  column(field, n, form->type),   column(field, n, form->step),    column(field, n, form->inputs),
                  column(field, n, form->types),  column(field, n, form->outputs), n};
  if (at->stream < 0) at->stream = column(field, n, form->second_stream);
  return at->name >= 0 && at->start >= 0 && (form->end ? at->end : at->length) >= 0;
}

/* `nsys stats` says what it does before the table. */
static gboolean read_header(Reading *r, MsReader *reader, GError **error) {
  for (int line = 0; line < MOST_PREAMBLE; line++) {
    GError *cause = NULL;
    const char *wrong, *text = ms_reader_line(reader, &cause);
    if (cause) return g_propagate_error(error, cause), FALSE;
    if (!text) break;
    g_autofree char *own = g_strdup(g_str_has_prefix(text, "\xef\xbb\xbf") ? text + 3 : text);
    int n = ms_csv_cut(own, r->field, MOST_COLUMNS, &wrong);
    for (gsize i = 0; i < G_N_ELEMENTS(forms) && n > 0; i++)
      if (matches(r->form = &forms[i], r->field, n, &r->at)) return TRUE;
  }
  return ms_input_error(error, r->b->t->file, 0, NULL,
                        "is no profile that is known: JSON of the PyTorch profiler; SQLite or cuda_gpu_trace CSV of "
                        "nsys; kernel_trace.csv of rocprofv3; op_summary or kernel_details.csv of CANN");
}

/* --- cells ----------------------------------------------------------------------------------------------------- */
static char *cell(const Reading *r, int at) { return at >= 0 && at < r->fields ? g_strstrip(r->field[at]) : NULL; }

/* A decimal number of ns or us as nanoseconds, exactly; FALSE when it is none. */
static gboolean to_ns(const Reading *r, const char *text, gint64 *ns) {
  char *end;
  if (!text || !g_ascii_isdigit(text[0])) return FALSE;
  guint64 whole = g_ascii_strtoull(text, &end, 10), thousandth = 0;
  if (*end == '.' && g_ascii_isdigit(end[1])) {
    const char *digit = end + 1;
    for (int i = 0; i < 3; i++)
      thousandth = 10 * thousandth + (g_ascii_isdigit(*digit) ? (guint64)(*digit++ - '0') : 0);
    while (g_ascii_isdigit(*digit)) digit++;
    end = (char *)digit;
  }
  if (*end != 0 || whole > (r->form->micro ? (guint64)G_MAXINT64 / 4096 : (guint64)G_MAXINT64 / 4)) return FALSE;
  *ns = r->form->micro ? (gint64)(1000 * whole + thousandth) : (gint64)whole;
  return TRUE;
}

/* Numbers stay what they are; other names ("NVIDIA H100 (0)", "Agent 2") count by their first row. */
static gint64 number_of(Reading *r, const char *text) {
  char *end;
  if (!text || !*text) return 0;
  gint64 number = g_ascii_strtoll(text, &end, 10);
  if (*end == 0) return number;
  guint known = GPOINTER_TO_UINT(g_hash_table_lookup(r->device_of, text));
  if (known) return known - 1;
  g_hash_table_insert(r->device_of, g_strdup(text), GUINT_TO_POINTER(g_hash_table_size(r->device_of) + 1));
  return g_hash_table_size(r->device_of) - 1;
}

/* "4096,7168;7168,1536": sizes of the operand `which`; their number. Quotes stay of some versions. */
static int dims_of(const char *text, int which, double *dim) {
  int n = 0;
  const char *c = text;
  for (int operand = 0; operand < which && c; operand++) c = (c = strchr(c, ';')) ? c + 1 : NULL;
  while (c && *c && *c != ';' && n < MOST_DIMS) {
    if (!g_ascii_isdigit(*c)) {
      c++;
      continue;
    }
    char *end;
    dim[n++] = g_ascii_strtod(c, &end);
    c = end;
  }
  return n;
}

static double all_of(const double *dim, int n) {
  double product = n > 0 ? 1 : 0;
  for (int i = 0; i < n; i++) product *= dim[i];
  return product;
}

/* C[..., m, n] from operands of either order: the depth is what A holds beside m, and B must agree. */
static guint32 shape_of(const Reading *r) {
  const char *inputs = cell(r, r->at.inputs), *outputs = cell(r, r->at.outputs), *types = cell(r, r->at.types);
  double a[MOST_DIMS], b[MOST_DIMS], c[MOST_DIMS];
  if (!inputs || !outputs) return 0;
  int na = dims_of(inputs, 0, a), nb = dims_of(inputs, 1, b), nc = dims_of(outputs, 0, c);
  if (na < 2 || nb < 2 || nc < 2) return 0;
  MsTraceShape s = {all_of(c, nc) / (c[nc - 1] * c[nc - 2]), c[nc - 2], c[nc - 1], 0, ""};
  s.k = all_of(a, na) / (s.groups * s.m);
  gboolean agrees = s.k == floor(s.k) && (all_of(b, nb) == s.groups * s.k * s.n || all_of(b, nb) == s.k * s.n);
  return agrees ? ms_trace_build_shape(r->b, &s, types ? types : "") : 0;
}

/* CANN: the type says what a kernel is; where it is missing the end of the name does
 * (aclnnMatmul_MatMulCommon_MatMulV2). Collectives have their own names (hcom_allReduce__123_0). */
static const char *kernel_name(const Reading *r) {
  const char *name = cell(r, r->at.name), *type = cell(r, r->at.type);
  gboolean typed = type && *type && g_ascii_strcasecmp(type, "N/A") != 0;
  if (r->form->form != MS_TRACE_MSPROF || !name || g_ascii_strncasecmp(name, "hcom", 4) == 0) return name;
  if (typed) return type;
  const char *last = g_str_has_prefix(name, "aclnn") ? strrchr(name, '_') : NULL;
  return last && last[1] ? last + 1 : name;
}

/* --- rows ------------------------------------------------------------------------------------------------------ */
/* A step is from the first kernel of its number to the first of the next. */
static void take_step(const Reading *r, gint64 start_ns, gint64 length_ns) {
  const char *text = cell(r, r->at.step);
  char *end;
  gint64 number = text && g_ascii_isdigit(*text) ? g_ascii_strtoll(text, &end, 10) : -1;
  if (number < 0) return;
  GArray *marks = r->b->gpu_marks;
  for (guint i = marks->len; i-- > 0 && i + 64 > marks->len;) {
    MsTraceStep *mark = &g_array_index(marks, MsTraceStep, i);
    if (mark->number != number) continue;
    mark->start_ns = MIN(mark->start_ns, start_ns);
    mark->end_ns = MAX(mark->end_ns, start_ns + length_ns);
    return;
  }
  MsTraceStep mark = {start_ns, start_ns + length_ns, number};
  g_array_append_val(marks, mark);
}

static gboolean take_row(Reading *r, int line, GError **error) {
  MsTraceLaunch launch = {.name = kernel_name(r), .length_ns = -1};
  gint64 end_ns = 0;
  gboolean timed = to_ns(r, cell(r, r->at.start), &launch.start_ns);
  if (timed && r->at.end >= 0) timed = to_ns(r, cell(r, r->at.end), &end_ns);
  if (timed && r->at.end >= 0) launch.length_ns = end_ns - launch.start_ns;
  else if (timed && !to_ns(r, cell(r, r->at.length), &launch.length_ns)) launch.length_ns = -1;
  if (!launch.name || !*launch.name) launch.length_ns = -1;
  if (launch.length_ns >= 0) {
    launch.device = number_of(r, cell(r, r->at.device));
    launch.stream = number_of(r, cell(r, r->at.stream));
    launch.link = r->at.inputs >= 0 ? shape_of(r) : 0;
    take_step(r, launch.start_ns, launch.length_ns);
  }
  return ms_trace_build_kernel(r->b, &launch, line, NULL, error);
}

static gboolean read_rows(Reading *r, MsReader *reader, GPtrArray *notes, GError **error) {
  GError *cause = NULL;
  const char *wrong, *text;
  gboolean last_odd = FALSE;
  while ((text = ms_reader_line(reader, &cause))) {
    if (!*text) continue;
    g_autofree char *own = g_strdup(text);
    r->fields = ms_csv_cut(own, r->field, MOST_COLUMNS, &wrong);
    last_odd = r->fields < r->at.columns - 1; /* some tools leave out the last, empty one */
    r->rows++;
    r->odd += last_odd;
    if (!last_odd && !take_row(r, ms_reader_line_number(reader), error)) return FALSE;
  }
  if (cause) return g_propagate_error(error, cause), FALSE;
  r->b->cut = last_odd || ms_reader_cut(reader);
  if (r->b->cut)
    ms_note(notes, "%s: ends early, in line %d: the %u kernels before that count", r->b->t->file,
            ms_reader_line_number(reader), r->b->t->kernels->len);
  if (r->odd > (guint64)last_odd)
    ms_note(notes, "%s: %" G_GUINT64_FORMAT " lines are no rows of the table and are left out", r->b->t->file,
            r->odd - (guint64)last_odd);
  return TRUE;
}

static gboolean not_empty(const Reading *r, GError **error) {
  if (r->b->t->kernels->len > 0) return TRUE;
  if (r->rows == 0) return ms_input_error(error, r->b->t->file, 0, NULL, "has a header and no kernels");
  return ms_input_error(error, r->b->t->file, 0, NULL,
                        "none of its %" G_GUINT64_FORMAT " rows has a usable \"%s\" and \"%s\"", r->rows,
                        r->form->start, r->form->end ? r->form->end : r->form->length);
}

gboolean ms_trace_csv(MsTraceBuild *b, MsReader *reader, GPtrArray *notes, GError **error) {
  Reading r = {.b = b, .device_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL)};
  gboolean good = read_header(&r, reader, error);
  if (good) b->t->form = r.form->form;
  good = good && read_rows(&r, reader, notes, error) && not_empty(&r, error);
  g_hash_table_unref(r.device_of);
  return good;
}
