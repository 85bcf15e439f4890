/* src/calib/measure.c - tables to series; see measure.h. */
#include "calib/measure.h"

#include "base/err.h"
#include "base/stats.h"
#include "calib/csv.h"

#include <math.h>
#include <string.h>

enum { MAX_NEED = 14 };

typedef struct Reader Reader;
typedef struct {
  const char *what;
  const char *need[MAX_NEED]; /* columns, in the order in which `read` counts them */
  const char *without[4];     /* columns of a richer table of another kind */
  void (*read)(Reader *reader);
  gboolean has_latency; /* the column latency_us is needed too */
} Table;

struct Reader {
  MsCsv *csv;
  const Table *table;
  int column[MAX_NEED], gpu, source, latency, kernel, suspect, dist, tp, nsrc;
  int machine;
  gboolean ok; /* no error in this row so far */
  GError **error;
  GPtrArray *series;
  guint first; /* of this table in `series` */
  MsSeries *last;
};

/* --- fields ---------------------------------------------------------------------------------------------------- */
static const char *text(const Reader *r, int i) { return ms_csv_text(r->csv, r->column[i]); }

static double number(Reader *r, int i, double lo, double hi) {
  double value = lo;
  if (r->ok) r->ok = ms_csv_number(r->csv, r->column[i], lo, hi, &value, r->error);
  return value;
}
static double size(Reader *r, int i) { return number(r, i, 1, 1e12); }

static double seconds(Reader *r, int column) {
  double us = 1;
  if (r->ok) r->ok = ms_csv_number(r->csv, column, 1e-3, 1e10, &us, r->error);
  return us * 1e-6;
}

/* Curve word of a dtype as tables spell it; NULL: no curve has it. */
static const char *dtype_of(const char *word) {
  static const char *const same[][2] = {{"bfloat16", "bf16"},       {"bf16", "bf16"},           {"float16", "bf16"},
                                        {"half", "bf16"},           {"fp16", "bf16"},           {"fp8", "fp8"},
                                        {"fp8_block", "fp8-block"}, {"fp8-block", "fp8-block"}, {"mxfp8", "mxfp8"},
                                        {"nvfp4", "nvfp4"},         {"fp32", "fp32"},           {"float32", "fp32"}};
  for (size_t i = 0; i < G_N_ELEMENTS(same); i++)
    if (strcmp(word, same[i][0]) == 0) return same[i][1];
  return NULL;
}

static int odt_of(const char *dtype) {
  for (int i = 0; dtype && i < MS_N_ODT; i++)
    if (strcmp(dtype, ms_odt_words[i]) == 0) return i;
  return MS_ODT_BF16;
}

/* "aic:trtllm-1.3.0rc20" and kernel "deepgemm" -> "trtllm-1.3.0rc20 deepgemm"; NCCL is one library whatever its
 * version. */
static char *library_of(const Reader *r) {
  const char *source = ms_csv_text(r->csv, r->source), *kernel = ms_csv_text(r->csv, r->kernel);
  if (r->nsrc >= 0) return g_strdup("consensus");
  if (g_str_has_prefix(source, "aic:nccl")) return g_strdup("nccl");
  if (!g_str_has_prefix(source, "aic:")) return g_strndup(source, strcspn(source, ":"));
  source += 4;
  return g_strdup_printf("%s%s%s", source, *kernel ? " " : "", kernel);
}

/* --- series ---------------------------------------------------------------------------------------------------- */
void ms_series_free(MsSeries *series) {
  if (!series) return;
  g_free(series->file);
  g_free(series->gpu);
  g_free(series->library);
  g_array_unref(series->rows);
  g_free(series);
}

static gboolean same_key(const MsCurveKey *a, const MsCurveKey *b) {
  return g_strcmp0(a->op, b->op) == 0 && g_strcmp0(a->dtype, b->dtype) == 0 && g_strcmp0(a->pass, b->pass) == 0 &&
         g_strcmp0(a->level, b->level) == 0 && g_strcmp0(a->dispatcher, b->dispatcher) == 0 &&
         a->head_dim == b->head_dim && a->ranks == b->ranks;
}

static gboolean is_series(const MsSeries *s, const Reader *r, MsRowKind kind, const MsCurveKey *key,
                          const char *library) {
  return s->kind == kind && s->machine == r->machine && same_key(&s->key, key) && strcmp(s->library, library) == 0;
}

static MsSeries *series_for(Reader *r, MsRowKind kind, const MsCurveKey *key, gboolean training) {
  g_autofree char *library = library_of(r);
  if (r->last && is_series(r->last, r, kind, key, library)) return r->last;
  for (guint i = r->first; i < r->series->len; i++)
    if (is_series(r->series->pdata[i], r, kind, key, library)) return r->series->pdata[i];
  MsSeries *s = g_new0(MsSeries, 1);
  *s = (MsSeries){.kind = kind,
                  .key = *key,
                  .dtype = odt_of(key->dtype),
                  .training = training,
                  .machine = r->machine,
                  .file = g_path_get_basename(ms_csv_filename(r->csv)),
                  .gpu = g_strdup(ms_csv_text(r->csv, r->gpu)),
                  .library = g_steal_pointer(&library),
                  .rows = g_array_new(FALSE, FALSE, sizeof(MsRow))};
  g_ptr_array_add(r->series, s);
  return s;
}

static void add(Reader *r, MsRowKind kind, const MsCurveKey *key, gboolean training, const MsRow *row) {
  if (!r->ok) return;
  r->last = series_for(r, kind, key, training);
  g_array_append_vals(r->last->rows, row, 1);
}

/* --- the tables ------------------------------------------------------------------------------------------------ */
static const char *role_of(const char *word) {
  if (strcmp(word, "fwd") == 0 || strcmp(word, "forward") == 0) return "forward";
  return strcmp(word, "dgrad") == 0   ? "dgrad"
         : strcmp(word, "wgrad") == 0 ? "wgrad"
         : strcmp(word, "bwd") == 0   ? "backward"
                                      : NULL;
}

enum {
  ROW_MULTIPLE = 8
}; /* of the rows of a GEMM in training, where they are whole sequences; other numbers take other kernels or are padded
      first */

static void read_gemm(Reader *r) {
  MsRow row = {.x = {size(r, 1), size(r, 2), size(r, 3)}, .time_s = seconds(r, r->latency)};
  const char *dtype = dtype_of(text(r, 0));
  if (dtype && fmod(row.x[0], ROW_MULTIPLE) == 0)
    add(r, MS_ROW_GEMM, &(MsCurveKey){.op = "gemm", .dtype = dtype}, FALSE, &row);
}

static void read_train_gemm(Reader *r) {
  MsRow row = {.x = {size(r, 1), size(r, 2), size(r, 3)}, .time_s = seconds(r, r->latency)};
  const char *pass = role_of(text(r, 0));
  if (pass) add(r, MS_ROW_GEMM, &(MsCurveKey){.op = "gemm", .dtype = "bf16", .pass = pass}, TRUE, &row);
}

static void read_train_grouped(Reader *r) {
  double groups = size(r, 1), rows = groups * size(r, 2);
  MsRow row = {.x = {rows, groups, size(r, 3), size(r, 4)}, .time_s = seconds(r, r->latency)};
  const char *pass = role_of(text(r, 0));
  gboolean fp32 = strcmp(text(r, 5), "bf16") != 0; /* the main gradient: Megatron's default */
  if (pass && fp32)
    add(r, MS_ROW_GROUPED, &(MsCurveKey){.op = "grouped_gemm", .dtype = "bf16", .pass = pass}, TRUE, &row);
}

static void read_layer(Reader *r) {
  double tp = 1;
  if (r->ok && r->tp >= 0) r->ok = ms_csv_number(r->csv, r->tp, 1, 1e6, &tp, r->error);
  MsRow row = {.x = {size(r, 1), size(r, 2), size(r, 3) / tp, size(r, 4), size(r, 5), size(r, 6), number(r, 7, 0, 1)},
               .time_s = seconds(r, r->latency)};
  const char *dtype = dtype_of(text(r, 0)), *dist = ms_csv_text(r->csv, r->dist);
  if (r->ok && (row.x[3] > row.x[4] || row.x[5] > row.x[4]))
    r->ok = ms_csv_error(r->csv, r->column[5], r->error, "fewer experts than topk or ep");
  if (dtype && (!*dist || strcmp(dist, "balanced") == 0))
    add(r, MS_ROW_LAYER, &(MsCurveKey){.op = "grouped_gemm", .dtype = dtype}, FALSE, &row);
}

static void add_attention(Reader *r, const char *dtype, const char *pass, gboolean training, const MsRow *row) {
  MsCurveKey key = {.op = "attention", .dtype = dtype, .pass = pass, .head_dim = (int)row->x[4]};
  if (r->ok && row->x[3] > row->x[2]) r->ok = ms_csv_error(r->csv, -1, r->error, "more KV heads than heads");
  if (dtype) add(r, MS_ROW_ATTENTION, &key, training, row);
}

static void read_attention(Reader *r) {
  double dim = number(r, 4, 1, 65536);
  MsRow row = {.x = {size(r, 5), size(r, 6), size(r, 2), size(r, 3), dim, dim}, .time_s = seconds(r, r->latency)};
  if (strcmp(text(r, 0), text(r, 1)) == 0) add_attention(r, dtype_of(text(r, 0)), NULL, FALSE, &row);
}

static void read_mla(Reader *r) {
  double heads = size(r, 2);
  MsRow row = {.x = {size(r, 3), size(r, 4), heads, heads, 192, 128}, .time_s = seconds(r, r->latency)};
  if (strcmp(text(r, 0), text(r, 1)) == 0) add_attention(r, dtype_of(text(r, 0)), NULL, FALSE, &row);
}

static void read_sdpa(Reader *r) {
  const char *pass = role_of(text(r, 0));
  MsRow row = {.x = {size(r, 1), size(r, 2), size(r, 3), size(r, 4), number(r, 5, 1, 65536), number(r, 6, 1, 65536)},
               .time_s = seconds(r, r->latency)};
  row.x[6] = pass && strcmp(pass, "backward") == 0;
  if (pass) add_attention(r, "bf16", pass, TRUE, &row);
}

/* Of the rows of a linear-attention layer: the chunked rule, not the convolution before it. */
static void read_delta(Reader *r) {
  const char *kernel = ms_csv_text(r->csv, r->kernel);
  MsRow row = {.x = {size(r, 0), size(r, 1), size(r, 2), size(r, 4), number(r, 3, 1, 65536), number(r, 5, 1, 65536)},
               .time_s = seconds(r, r->latency)};
  if (*kernel && !g_str_has_prefix(kernel, "chunk_gated_delta_rule")) return;
  if (r->ok && row.x[2] > row.x[3])
    r->ok = ms_csv_error(r->csv, r->column[2], r->error, "more key heads than value heads");
  add(r, MS_ROW_DELTA, &(MsCurveKey){.op = "delta_rule", .dtype = "bf16"}, FALSE, &row);
}

static void read_collective(Reader *r) {
  static const char *const same[][2] = {{"all_reduce", "all_reduce"},
                                        {"all_gather", "all_gather"},
                                        {"reduce_scatter", "reduce_scatter"},
                                        {"alltoall", "all_to_all"},
                                        {"all_to_all", "all_to_all"}};
  MsRow row = {.x = {size(r, 2), number(r, 1, 2, 1 << 20)}, .time_s = seconds(r, r->latency)};
  for (size_t i = 0; i < G_N_ELEMENTS(same); i++)
    if (strcmp(text(r, 0), same[i][0]) == 0)
      add(r, MS_ROW_COLLECTIVE, &(MsCurveKey){.op = same[i][1], .level = "nvlink", .ranks = (int)row.x[1]}, FALSE,
          &row);
}

enum { LEAST_TOKENS = 256 };

static void add_exchange(Reader *r, const char *op, const char *dispatcher, const MsRow *row) {
  gboolean network = row->x[5] > 1;
  MsCurveKey key = {
      .op = op, .level = network ? "network" : "nvlink", .dispatcher = dispatcher, .ranks = (int)row->x[4]};
  if (r->ok && (row->x[2] > row->x[3] || row->x[4] > row->x[3] || row->x[5] > row->x[4]))
    r->ok = ms_csv_error(r->csv, -1, r->error, "must have topk <= experts, ep <= experts, nodes <= ep");
  if (row->x[0] >= LEAST_TOKENS) add(r, MS_ROW_EXCHANGE, &key, FALSE, row);
}

static void read_deepep(Reader *r) {
  MsRow row = {.x = {size(r, 2), size(r, 3), size(r, 4), size(r, 5), number(r, 1, 2, 1 << 20), size(r, 0),
                     number(r, 6, 1, 1024), 1.03},
               .time_s = seconds(r, r->column[7])};
  add_exchange(r, "dispatch", "deepep", &row); /* fp8 with scales */
  row.x[6] = number(r, 8, 1, 1024), row.x[7] = 2, row.time_s = seconds(r, r->column[9]);
  add_exchange(r, "combine", "deepep", &row);
}

static void read_alltoall(Reader *r) {
  const char *op = text(r, 0), *dtype = dtype_of(text(r, 1));
  gboolean combine = strcmp(op, "alltoall_combine") == 0;
  MsRow row = {.x = {size(r, 2), size(r, 3), size(r, 4), size(r, 5), number(r, 6, 2, 1 << 20), 1, 1},
               .time_s = seconds(r, r->latency)};
  if (!dtype || (!combine && strcmp(op, "alltoall_dispatch") != 0)) return;
  row.x[7] = combine ? 2 : ms_element_B(odt_of(dtype));
  add_exchange(r, combine ? "combine" : "dispatch", "alltoall", &row);
}

enum { LEAST_CAST_B = 150000000 }; /* smaller tensors are read from the last-level cache */

static void read_cast(Reader *r) {
  if (strcmp(text(r, 0), "cast_scaled") != 0)
    return; /* the others are differences of two timings, some of them impossible */
  const char *dtype = dtype_of(text(r, 1));
  double elements = size(r, 2) * size(r, 3);
  MsRow row = {.x = {elements * (2 + ms_element_B(odt_of(dtype)))}, .time_s = seconds(r, r->latency)};
  if (dtype && row.x[0] >= LEAST_CAST_B)
    add(r, MS_ROW_CAST, &(MsCurveKey){.op = "quantize", .dtype = dtype}, FALSE, &row);
}

static void read_copy(Reader *r) { /* what a memory-bound kernel can reach at best: a copy inside the device */
  MsRow row = {.x = {size(r, 1)}, .time_s = seconds(r, r->latency)};
  if (strcmp(text(r, 0), "copy") == 0 && row.x[0] >= LEAST_CAST_B)
    add(r, MS_ROW_CAST, &(MsCurveKey){.op = "elementwise"}, FALSE, &row);
  if (strcmp(text(r, 0), "cache_copy") == 0) add(r, MS_ROW_CAST, &(MsCurveKey){.op = "cache_copy"}, TRUE, &row);
}

static const Table tables[] = {
    {"expert layers",
     {"dtype", "tokens", "hidden", "inter", "topk", "experts", "ep", "gated"},
     {NULL},
     read_layer,
     TRUE},
    {"attention of a training framework",
     {"pass", "batch", "seq", "heads", "kv_heads", "qk_dim", "v_dim"},
     {NULL},
     read_sdpa,
     TRUE},
    {"causal attention",
     {"attn_dtype", "kv_dtype", "heads", "kv_heads", "head_dim", "batch", "seq"},
     {NULL},
     read_attention,
     TRUE},
    {"MLA", {"attn_dtype", "kv_dtype", "heads", "batch", "seq"}, {"head_dim", "kv_heads"}, read_mla, TRUE},
    {"gated delta rules",
     {"batch", "seq", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"},
     {NULL},
     read_delta,
     TRUE},
    {"collectives", {"op", "num_gpus", "bytes"}, {NULL}, read_collective, TRUE},
    {"DeepEP",
     {"nodes", "ep", "tokens_per_rank", "hidden", "topk", "experts", "dispatch_sms", "dispatch_us", "combine_sms",
      "combine_us"},
     {NULL},
     read_deepep,
     FALSE},
    {"NVLink all-to-all",
     {"op", "dtype", "tokens_per_rank", "hidden", "topk", "experts", "ep"},
     {NULL},
     read_alltoall,
     TRUE},
    {"grouped GEMMs of a training framework",
     {"role", "groups", "m_per_group", "n", "k", "main_grad_dtype"},
     {NULL},
     read_train_grouped,
     TRUE},
    {"GEMMs of a training framework", {"role", "m", "n", "k"}, {"groups"}, read_train_gemm, TRUE},
    {"GEMMs", {"dtype", "m", "n", "k"}, {"role", "groups", "pass"}, read_gemm, TRUE},
    {"casts", {"op", "dtype", "m", "k"}, {"n"}, read_cast, TRUE},
    {"copies", {"op", "bytes"}, {"num_gpus", "tokens_per_rank"}, read_copy, TRUE}};

/* --- one file -------------------------------------------------------------------------------------------------- */
static gboolean fits(Reader *r, const Table *table) {
  for (int i = 0; table->need[i]; i++)
    if ((r->column[i] = ms_csv_column(r->csv, table->need[i])) < 0) return FALSE;
  for (int i = 0; table->without[i]; i++)
    if (ms_csv_column(r->csv, table->without[i]) >= 0) return FALSE;
  return !table->has_latency || r->latency >= 0;
}

static const Table *recognise(Reader *r) {
  r->gpu = ms_csv_column(r->csv, "gpu"), r->source = ms_csv_column(r->csv, "source"),
  r->latency = ms_csv_column(r->csv, "latency_us");
  r->kernel = ms_csv_column(r->csv, "kernel"), r->suspect = ms_csv_column(r->csv, "suspect"),
  r->dist = ms_csv_column(r->csv, "dist");
  r->tp = ms_csv_column(r->csv, "tp"), r->nsrc = ms_csv_column(r->csv, "nsrc");
  for (size_t i = 0; i < G_N_ELEMENTS(tables); i++)
    if (fits(r, &tables[i])) return &tables[i];
  return NULL;
}

gboolean ms_measure_is_gpu(const char *name, const char *word) {
  size_t length = strlen(word);
  for (size_t i = 0; i < length; i++)
    if (name[i] == '\0' || (word[i] == '_' ? '-' : g_ascii_tolower(word[i])) != g_ascii_tolower(name[i])) return FALSE;
  return length > 0 && (name[length] == '\0' || name[length] == '-');
}

/* Which of the machines a row is of, -1 none. Rows of one machine mostly stand together. */
static int machine_of(const Reader *r, const char *const *names) {
  if (r->gpu < 0) return 0;
  const char *word = ms_csv_text(r->csv, r->gpu);
  if (r->last && strcmp(r->last->gpu, word) == 0) return r->last->machine;
  for (int i = 0; names[i]; i++)
    if (ms_measure_is_gpu(names[i], word)) return i;
  return -1;
}

static guint columns_present(const Reader *r, const Table *table) {
  guint n = table->has_latency && r->latency >= 0;
  for (int i = 0; table->need[i]; i++) n += ms_csv_column(r->csv, table->need[i]) >= 0;
  return n;
}

static double share_present(const Reader *r, const Table *table) {
  return (double)columns_present(r, table) / (g_strv_length((char **)table->need) + table->has_latency);
}

/* The table that a file of no table comes nearest to, and which others there are. (transfer full) */
static char *columns_wanted(const Reader *r) {
  const Table *nearest = &tables[0];
  g_autoptr(GString) others = g_string_new(NULL);
  for (size_t i = 1; i < G_N_ELEMENTS(tables); i++)
    if (share_present(r, &tables[i]) >= share_present(r, nearest)) nearest = &tables[i];
  for (size_t i = 0; i < G_N_ELEMENTS(tables); i++)
    if (&tables[i] != nearest) g_string_append_printf(others, "%s%s", others->len ? ", " : "", tables[i].what);
  g_autofree char *need = g_strjoinv(",", (char **)nearest->need);
  return g_strdup_printf("its columns are those of no table that curves are fitted to; nearest are %s, which need "
                         "%s%s; others are %s",
                         nearest->what, need, nearest->has_latency ? ",latency_us" : "", others->str);
}

gboolean ms_measure_read(const char *filename, const char *const *names, GPtrArray *series, char **note,
                         GError **error) {
  GError *problem = NULL;
  g_autoptr(MsCsv) csv = ms_csv_open(filename, error);
  if (note) *note = NULL;
  if (!csv) return FALSE;
  Reader r = {.csv = csv, .ok = TRUE, .error = &problem, .series = series, .first = series->len};
  r.table = recognise(&r);
  while (r.table && r.ok && ms_csv_next(csv, &problem)) {
    r.machine = machine_of(&r, names);
    if (r.machine < 0 || strcmp(ms_csv_text(csv, r.suspect), "1") == 0) continue;
    r.table->read(&r);
  }
  if (problem) {
    g_propagate_error(error, problem);
    return FALSE;
  }
  if (note && !r.table) *note = columns_wanted(&r);
  else if (note && series->len == r.first)
    *note = g_strdup_printf("%s: no row of %s that a curve could describe", r.table->what, names[0]);
  return TRUE;
}

/* --- rows ------------------------------------------------------------------------------------------------------ */
static int by_shape(const void *a, const void *b) {
  const MsRow *p = a, *q = b;
  for (int i = 0; i < MS_ROW_X; i++)
    if (p->x[i] != q->x[i]) return p->x[i] < q->x[i] ? -1 : 1;
  return (p->time_s > q->time_s) - (p->time_s < q->time_s);
}

void ms_series_merge(GArray *rows) {
  MsRow *row = (MsRow *)(void *)rows->data;
  guint out = 0;
  if (rows->len == 0) return;
  qsort(row, rows->len, sizeof *row, by_shape);
  for (guint from = 0, to; from < rows->len; from = to) {
    for (to = from + 1; to < rows->len && memcmp(row[to].x, row[from].x, sizeof row->x) == 0;) to++;
    MsRow merged = row[from];
    merged.time_s = (row[from + (to - from - 1) / 2].time_s + row[from + (to - from) / 2].time_s) / 2;
    row[out++] = merged;
  }
  g_array_set_size(rows, out);
}

int ms_row_bucket(MsRowKind kind, const double *x) {
  guint64 hash = 0xcbf29ce484222325u ^ (guint64)kind;
  for (int i = 0; i < MS_ROW_X; i++) {
    guint64 bits = (guint64)llround(x[i] * 64);
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((bits >> shift) & 0xff)) * 0x100000001b3u;
  }
  hash ^= hash >> 33, hash *= 0xff51afd7ed558ccdu,
      hash ^= hash >> 33; /* spreads: the low bytes of shapes are mostly zero */
  return (int)(hash % 1000);
}
