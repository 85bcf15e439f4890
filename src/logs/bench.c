/* src/logs/bench.c - logs of benchmarks. */
#include "logs/bench.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

enum { MOST_WORDS = 32, MOST_ROWS = 100000 };

typedef struct {
  MsBench *bench;
  const char *file;
  MsReader *stream;
  GPtrArray *notes;
  GError **error;
  char *words[MOST_WORDS]; /* of the line at hand */
  int n;
  int size, time, alg, bus, redop, columns; /* of nccl-tests' head */
  double unit;                              /* of the column of perftest, B/s */
  gboolean sums;                            /* nccl-tests: the rows reduce */
  double share;                             /* bus over algorithm bandwidth, of the largest message */
  GHashTable *hosts;
  char *doubtful; /* what is wrong with the last line, when it is the last */
  int at;         /* its line */
} Reader;

typedef struct {
  gboolean (*line)(Reader *r, char *line);
  gboolean (*finish)(Reader *r, int ranks);
} Form;

void ms_bench_free(MsBench *b) {
  if (!b) return;
  g_free(b->file);
  g_free(b->device);
  g_array_unref(b->rows);
  g_free(b);
}

/* --- words and numbers ----------------------------------------------------------------------------------------- */
static void split(Reader *r, char *line, const char *between) {
  r->n = 0;
  for (char *p = line + strspn(line, between); *p && r->n < MOST_WORDS;) {
    r->words[r->n++] = p;
    p += strcspn(p, between);
    if (*p) *p++ = 0;
    p += strspn(p, between);
  }
}

#define wrong(r, path, ...) ms_reader_wrong((r)->stream, path, (r)->error, __VA_ARGS__)

static gboolean number(Reader *r, const char *word, const char *column, double least, double *value) {
  char *end;
  *value = g_ascii_strtod(word, &end);
  if (end != word && *end == 0 && *value >= least && *value < 1e18) return TRUE;
  if (end != word && *end == ',')
    return wrong(r, column, "is \"%s\": a comma is no decimal point, print the log with LC_ALL=C", word);
  return wrong(r, column, "is \"%s\", must be a number of at least %g", word, least);
}

static gboolean add(Reader *r, double size_B, double time_s) {
  MsBenchRow row = {size_B, time_s};
  if (r->bench->rows->len >= MOST_ROWS) return wrong(r, NULL, "more than %d rows", MOST_ROWS);
  g_array_append_val(r->bench->rows, row);
  return TRUE;
}

/* A row that is too short is half a row when nothing follows it. */
static gboolean doubt(Reader *r, int has, int must) {
  g_free(r->doubtful);
  r->doubtful = g_strdup_printf("has %d columns, must have %d", has, must);
  r->at = ms_reader_line_number(r->stream);
  return TRUE;
}

static gboolean is_count(const char *word) { return *word && strspn(word, "0123456789") == strlen(word); }

/* --- what was run ---------------------------------------------------------------------------------------------- */
static const char *op_in(const char *text) {
  static const char *const names[][2] = {
      {"all_reduce", "all_reduce"}, {"allreduce", "all_reduce"},          {"all_gather", "all_gather"},
      {"allgather", "all_gather"},  {"reduce_scatter", "reduce_scatter"}, {"reducescatter", "reduce_scatter"},
      {"alltoall", "all_to_all"},   {"all_to_all", "all_to_all"},         {"sendrecv", "p2p"}};
  for (gsize i = 0; i < G_N_ELEMENTS(names); i++)
    if (strstr(text, names[i][0])) return names[i][1];
  return NULL;
}

/* Of lines that name the program: "mpirun ... all_reduce_perf -b 8", "# Collective test starting: all_reduce_perf" */
static void look_for_op(Reader *r, const char *line, const char *suffix) {
  if (!r->bench->op && strstr(line, suffix)) r->bench->op = op_in(line);
}

/* Ranks and sizes of two tests would be taken for those of one. */
static gboolean second_test(Reader *r) { return wrong(r, NULL, "a second test begins here: give each its own file"); }

static gboolean needs_ranks(Reader *r, int ranks) {
  if (r->bench->ranks == 0) r->bench->ranks = ranks;
  if (ranks > 0 && ranks != r->bench->ranks)
    return ms_input_error(r->error, r->file, 0, NULL, "is of %d ranks, --gpus says %d", r->bench->ranks, ranks);
  if (r->bench->ranks >= 2) return TRUE;
  return ms_input_error(r->error, r->file, 0, NULL, "%s",
                        r->bench->ranks == 1 ? "is of one rank: a collective has at least 2"
                                             : "the log does not say how many ranks took part: give --gpus");
}

/* --- nccl-tests, rccl-tests ------------------------------------------------------------------------------------ */
/* "#  Rank  0 Group  0 Pid 1234 on host1 device  0 [0x1b] NVIDIA H100 80GB HBM3" */
static gboolean nccl_rank(Reader *r, const char *line) {
  const char *on = strstr(line, " on "), *name = strchr(line, ']');
  if (!strstr(line, "Rank ") || !on) return TRUE;
  if (r->bench->rows->len > 0) return second_test(r);
  on += 4 + strspn(on + 4, " ");
  r->bench->ranks++;
  g_hash_table_add(r->hosts, g_strndup(on, strcspn(on, " ")));
  if (name && !r->bench->device) r->bench->device = g_strstrip(g_utf8_make_valid(name + 1, -1));
  return TRUE;
}

static int column(const Reader *r, const char *name) {
  for (int i = 0; i < r->n; i++)
    if (strcmp(r->words[i], name) == 0) return i;
  return -1;
}

static void nccl_head(Reader *r, char *line) {
  split(r, line, "# \t");
  if (column(r, "size") != 0 || column(r, "time") < 0 || column(r, "algbw") < 0 || column(r, "busbw") < 0) return;
  r->size = 0, r->time = column(r, "time"), r->alg = column(r, "algbw"), r->bus = column(r, "busbw");
  r->redop = column(r, "redop"), r->columns = r->n;
}

static gboolean nccl_row(Reader *r) {
  double size, us, alg, bus, miss;
  if (r->columns == 0) return wrong(r, NULL, "a row before the line \"# size count type ... time algbw busbw\"");
  if (r->n < r->columns) return doubt(r, r->n, r->columns);
  if (!number(r, r->words[r->size], "size", 0, &size) || !number(r, r->words[r->time], "time", 0, &us) ||
      !number(r, r->words[r->alg], "algbw", 0, &alg) || !number(r, r->words[r->bus], "busbw", 0, &bus))
    return FALSE;
  const char *errors = r->bus + 1 < r->columns ? r->words[r->bus + 1] : "N/A";
  if (strcmp(errors, "N/A") != 0 && (!number(r, errors, "#wrong", 0, &miss) || miss > 0))
    return *r->error ? FALSE : wrong(r, "#wrong", "%s results were wrong: the times are of no use", errors);
  r->sums = r->redop >= 0 && strcmp(r->words[r->redop], "none") != 0;
  if (alg > 0) r->share = bus / alg;
  return size > 0 && us > 0 ? add(r, size, us * 1e-6) : TRUE;
}

static gboolean nccl_line(Reader *r, char *line) {
  look_for_op(r, line, "_perf");
  char *start = line + strspn(line, " \t");
  if (*start == '#') {
    if (!nccl_rank(r, start)) return FALSE;
    nccl_head(r, start);
    return TRUE;
  }
  split(r, start, " \t");
  return r->n > 0 && is_count(r->words[0]) && (r->columns > 0 || r->n >= 9) ? nccl_row(r) : TRUE;
}

/* A log that does not name its program: what it reduces and what it counts as bus bandwidth tell. */
static const char *nccl_op(const Reader *r) {
  double z = r->bench->ranks, part = (z - 1) / z;
  if (r->sums && fabs(r->share - 2 * part) < 0.02 * part && fabs(part - 2 * part) > 0.04) return "all_reduce";
  if (r->sums && fabs(r->share - part) < 0.02 * part) return "reduce_scatter";
  return !r->sums && part < 0.98 && fabs(r->share - 1) < 0.01 ? "p2p" : NULL;
}

static gboolean nccl_finish(Reader *r, int ranks) {
  MsBench *b = r->bench;
  b->hosts = (int)g_hash_table_size(r->hosts);
  if (!needs_ranks(r, ranks)) return FALSE;
  if (!b->op) b->op = op_in(r->file);
  if (!b->op) b->op = nccl_op(r);
  if (b->op) return TRUE;
  return ms_input_error(r->error, r->file, 0, NULL,
                        "which collective was run, the log does not say: put all_gather_perf, alltoall_perf, ... into "
                        "its name");
}

/* --- hccl-test ------------------------------------------------------------------------------------------------- */
/* "mpirun -n 8 ./bin/all_reduce_test -p 8 -b 8K ..." */
static gboolean hccl_command(Reader *r, char *line) {
  const char *op = strstr(line, "_test") ? op_in(line) : NULL;
  if (op && r->bench->rows->len > 0) return second_test(r);
  look_for_op(r, line, "_test");
  if (!strstr(line, "_test")) return TRUE;
  split(r, line, " \t");
  for (int i = 0; i + 1 < r->n; i++)
    if ((strcmp(r->words[i], "-n") == 0 || strcmp(r->words[i], "-np") == 0) && is_count(r->words[i + 1]))
      r->bench->ranks = (int)CLAMP(g_ascii_strtoll(r->words[i + 1], NULL, 10), 0, 1 << 20);
  return TRUE;
}

static gboolean hccl_line(Reader *r, char *line) {
  double size, us;
  if (!strchr(line, '|')) return hccl_command(r, line);
  split(r, line, " \t|");
  if (r->n == 0 || !is_count(r->words[0])) return TRUE;
  if (r->n < 3) return doubt(r, r->n, 4);
  if (r->n > 3 && strcmp(r->words[3], "failed") == 0)
    return wrong(r, "check_result", "results were wrong: the times are of no use");
  if (!number(r, r->words[0], "data_size", 0, &size) || !number(r, r->words[1], "aveg_time", 0, &us)) return FALSE;
  return size > 0 && us > 0 ? add(r, size, us * 1e-6) : TRUE;
}

static gboolean hccl_finish(Reader *r, int ranks) {
  if (!needs_ranks(r, ranks)) return FALSE;
  if (!r->bench->op) r->bench->op = op_in(r->file);
  if (r->bench->op) return TRUE;
  return ms_input_error(r->error, r->file, 0, NULL,
                        "which collective was run, the log does not say: put all_reduce_test, ... into its name");
}

/* --- perftest -------------------------------------------------------------------------------------------------- */
/* Older releases print "MB" for the same 2^20 bytes. */
static double unit_of_head(const char *line) {
  static const struct {
    const char *column;
    double Bps;
  } units[] = {{"BW average[Gb/sec]", 1e9 / 8}, {"BW average[MiB/sec]", 1 << 20}, {"BW average[MB/sec]", 1 << 20}};
  for (gsize i = 0; i < G_N_ELEMENTS(units); i++)
    if (strstr(line, units[i].column)) return units[i].Bps;
  return 0;
}

static gboolean perftest_line(Reader *r, char *line) {
  double size, rate;
  if (strstr(line, "BW average[")) {
    r->unit = unit_of_head(line);
    return r->unit > 0 ? TRUE : wrong(r, NULL, "unknown unit of \"BW average\", must be MiB/sec, MB/sec or Gb/sec");
  }
  split(r, line, " \t");
  if (r->unit == 0 || r->n == 0 || !is_count(r->words[0])) return TRUE;
  if (r->n < 4) return doubt(r, r->n, 5);
  if (!number(r, r->words[0], "#bytes", 1, &size) || !number(r, r->words[3], "BW average", 0, &rate)) return FALSE;
  return rate > 0 ? add(r, size, size / (rate * r->unit)) : TRUE;
}

static gboolean without_ranks(Reader *r, const char *op) { return r->bench->op = op, TRUE; }
static gboolean perftest_finish(Reader *r, int ranks) { return (void)ranks, without_ranks(r, "link"); }

/* --- STREAM ---------------------------------------------------------------------------------------------------- */
/* A line that begins with one of the names and a rate in 10^6 B/s, `must` columns in all. */
static gboolean memory_line(Reader *r, char *line, const char *const *names, int must) {
  double rate;
  line += strspn(line, " \t");
  for (int i = 0; names[i]; i++) {
    if (!g_str_has_prefix(line, names[i])) continue;
    split(r, line + strlen(names[i]), " \t:");
    if (r->n < 1) return doubt(r, 1, must);
    return number(r, r->words[0], names[i], 1e-3, &rate) && add(r, 1e9, 1e9 / (rate * 1e6));
  }
  return TRUE;
}

/* "Triad:          187654.3     0.013     0.012     0.014" */
static gboolean stream_line(Reader *r, char *line) {
  static const char *const kernels[] = {"Copy:", "Scale:", "Add:", "Triad:", NULL};
  return memory_line(r, line, kernels, 5);
}

static gboolean stream_finish(Reader *r, int ranks) { return (void)ranks, without_ranks(r, "memory"); }

/* --- Intel Memory Latency Checker ------------------------------------------------------------------------------ */
/* "2:1 Reads-Writes :\t149341.2": the mixes of Add, Copy and Triad; reads alone are faster than any operator. */
static gboolean mlc_line(Reader *r, char *line) {
  static const char *const mixes[] = {"2:1 Reads-Writes", "1:1 Reads-Writes", "Stream-triad like", NULL};
  return memory_line(r, line, mixes, 2);
}

static gboolean mlc_finish(Reader *r, int ranks) { return (void)ranks, without_ranks(r, "memory"); }

/* FORM(word, what reads its lines and finishes) */
#define FORMS                   \
  FORM("nccl-tests", nccl)      \
  FORM("rccl-tests", nccl)      \
  FORM("hccl-test", hccl)       \
  FORM("ib_write_bw", perftest) \
  FORM("stream", stream)        \
  FORM("mlc", mlc)
#define FORM(word, by) word,
const char *const ms_bench_words[] = {FORMS NULL};
#undef FORM
#define FORM(word, by) {by##_line, by##_finish},
static const Form forms[] = {FORMS};
#undef FORM

/* --- a log ----------------------------------------------------------------------------------------------------- */
static gboolean read_lines(Reader *r, int form) {
  const char *line;
  while ((line = ms_reader_line(r->stream, r->error))) {
    g_autofree char *copy = g_strdup(line);
    gboolean doubtful = r->doubtful != NULL;
    if (doubtful && *line) return ms_input_error(r->error, r->file, r->at, NULL, "%s", r->doubtful);
    if (!forms[form].line(r, copy)) return FALSE;
  }
  return *r->error == NULL;
}

static gboolean read_log(Reader *r, int form, int ranks) {
  if (!read_lines(r, form)) return FALSE;
  if (r->doubtful || ms_reader_cut(r->stream))
    g_ptr_array_add(r->notes, g_strdup_printf("%s: the log is cut short: what it holds until there is taken", r->file));
  if (r->bench->rows->len == 0)
    return ms_input_error(r->error, r->file, 0, NULL, "holds no row of %s", ms_bench_words[form]);
  return forms[form].finish(r, ranks);
}

MsBench *ms_bench_read(int form, MsReader *stream, const char *file, int ranks, GPtrArray *notes, GError **error) {
  GError *cause = NULL;
  Reader r = {.bench = g_new0(MsBench, 1), .file = file, .stream = stream, .notes = notes, .error = &cause};
  r.hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  r.bench->file = g_path_get_basename(file), r.bench->by = ms_bench_words[form];
  r.bench->rows = g_array_new(FALSE, FALSE, sizeof(MsBenchRow));
  if (!read_log(&r, form, ranks)) {
    g_clear_pointer(&r.bench, ms_bench_free);
    g_propagate_error(error, cause);
  }
  g_hash_table_unref(r.hosts);
  g_free(r.doubtful);
  return r.bench;
}
