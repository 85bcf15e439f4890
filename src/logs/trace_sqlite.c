/* src/logs/trace_sqlite.c - profiles as databases: what `nsys export --type sqlite` writes, and rocpd of ROCm.
 *
 * Tables and columns: Nsight Systems, "SQLite Export Schema Reference"; ROCprofiler SDK, schema of rocpd. Both differ
 * between releases: what a query needs is looked for first. Only tables are read, never a view of the file. libsqlite3
 * is loaded when such a file comes. */
#include "logs/trace_priv.h"

#include "base/err.h"
#include "base/text.h"

#include <dlfcn.h>
#include <string.h>

/* --- the library ----------------------------------------------------------------------------------------------- */
enum { OK = 0, ROW = 100, DONE = 101, OPEN_READONLY = 1 }; /* as sqlite3.h has them, for good */

typedef struct Database Database;
typedef struct Query Query;

static struct {
  int (*open)(const char *file, Database **db, int flags, const char *vfs);
  int (*close)(Database *db);
  int (*prepare)(Database *db, const char *sql, int length, Query **query, const char **tail);
  int (*step)(Query *query);
  int (*finalize)(Query *query);
  gint64 (*number)(Query *query, int column);
  const unsigned char *(*text)(Query *query, int column);
  const char *(*message)(Database *db);
} sqlite;

static gboolean load(void) {
  static const struct {
    const char *name;
    void *to;
  } symbols[] = {{"sqlite3_open_v2", &sqlite.open},       {"sqlite3_close", &sqlite.close},
                 {"sqlite3_prepare_v2", &sqlite.prepare}, {"sqlite3_step", &sqlite.step},
                 {"sqlite3_finalize", &sqlite.finalize},  {"sqlite3_column_int64", &sqlite.number},
                 {"sqlite3_column_text", &sqlite.text},   {"sqlite3_errmsg", &sqlite.message}};
  static gsize once;
  static gboolean loaded;
  if (!g_once_init_enter(&once)) return loaded;
  void *library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
  loaded = library != NULL;
  for (gsize i = 0; i < G_N_ELEMENTS(symbols) && loaded; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    loaded = symbol != NULL;
    memcpy(symbols[i].to, &symbol, sizeof symbol);
  }
  g_once_init_leave(&once, 1);
  return loaded;
}

/* --- queries --------------------------------------------------------------------------------------------------- */
typedef struct {
  MsTraceBuild *b;
  Database *db;
  GHashTable *device_of; /* process and device of nsys -> index + 1 */
} Reading;

static gboolean wrong(const Reading *r, GError **error) {
  return ms_input_error(error, r->b->t->file, 0, NULL, "cannot be read as SQLite: %s", sqlite.message(r->db));
}

/* `take` sees every row; FALSE of it ends the query and is the answer. */
typedef gboolean (*TakeRow)(Reading *r, Query *query, gpointer data, GError **error);
static gboolean each_row(Reading *r, const char *sql, TakeRow take, gpointer data, GError **error) {
  Query *query = NULL;
  if (sqlite.prepare(r->db, sql, -1, &query, NULL) != OK) return wrong(r, error);
  int state;
  gboolean good = TRUE;
  while (good && (state = sqlite.step(query)) == ROW) good = take(r, query, data, error);
  if (good && state != DONE) good = wrong(r, error);
  sqlite.finalize(query);
  return good;
}

static const char *text_at(Query *query, int column) {
  const char *text = (const char *)sqlite.text(query, column);
  return text ? text : "";
}

static gboolean keep_text(Reading *r, Query *query, gpointer data, GError **error) {
  (void)r, (void)error;
  char **to = data;
  if (!*to) *to = g_strdup(text_at(query, 0));
  return TRUE;
}

/* The first text that a query finds; NULL: none, or the query does not work. (transfer full) */
static char *first_text(Reading *r, const char *sql) {
  char *text = NULL;
  g_autoptr(GError) ignored = NULL;
  each_row(r, sql, keep_text, &text, &ignored);
  return text;
}

/* A table of this name, or of this name, an underscore and more; NULL. (transfer full) */
static char *table_of(Reading *r, const char *name) {
  g_autofree char *sql = g_strdup_printf("SELECT name FROM sqlite_master WHERE type = 'table' AND (name = '%s' OR "
                                         "name GLOB '%s_*') AND name NOT GLOB '*\"*' ORDER BY name LIMIT 1",
                                         name, name);
  return first_text(r, sql);
}

/* "k.NAME" where the table has that column, else `other`. (transfer full) */
static char *column_of(Reading *r, const char *table, const char *name, const char *other) {
  g_autofree char *sql = g_strdup_printf("SELECT name FROM pragma_table_info('%s') WHERE name = '%s'", table, name);
  g_autofree char *found = first_text(r, sql);
  return found ? g_strdup_printf("k.\"%s\"", name) : g_strdup(other);
}

static gboolean has_column(Reading *r, const char *table, const char *name) {
  g_autofree char *column = column_of(r, table, name, "");
  return *column != 0;
}

/* --- kernels: start, end, process, device, stream, name ---------------------------------------------------------- */
static gint64 device_index(Reading *r, gint64 process, gint64 device) {
  g_autofree char *key = g_strdup_printf("%" G_GINT64_FORMAT " %" G_GINT64_FORMAT, process, device);
  guint known = GPOINTER_TO_UINT(g_hash_table_lookup(r->device_of, key));
  if (known) return known - 1;
  g_hash_table_insert(r->device_of, g_steal_pointer(&key), GUINT_TO_POINTER(g_hash_table_size(r->device_of) + 1));
  return g_hash_table_size(r->device_of) - 1;
}

static gboolean take_kernel(Reading *r, Query *query, gpointer data, GError **error) {
  (void)data;
  gint64 start_ns = sqlite.number(query, 0), end_ns = sqlite.number(query, 1);
  const char *name = text_at(query, 5);
  const MsTraceLaunch launch = {.name = *name ? name : "unnamed",
                                .device = device_index(r, sqlite.number(query, 2), sqlite.number(query, 3)),
                                .stream = sqlite.number(query, 4),
                                .start_ns = start_ns,
                                .length_ns = start_ns > 0 && end_ns >= start_ns ? end_ns - start_ns : -1};
  return ms_trace_build_kernel(r->b, &launch, 0, NULL, error);
}

/* Devices are numbered as they come: the order of processes and devices. `name`: SQL of the name of a row. */
static gboolean read_activities(Reading *r, const char *table, const char *name, const char *join, GError **error) {
  if (!has_column(r, table, "start") || !has_column(r, table, "end"))
    return ms_input_error(error, r->b->t->file, 0, NULL, "table %s has no columns start and end", table);
  g_autofree char *process = column_of(r, table, "globalPid", "0"), *own = column_of(r, table, "deviceId", "0"),
                  *device = column_of(r, table, "agent_id", own), *stream = column_of(r, table, "streamId", NULL),
                  *other = column_of(r, table, "stream_id", "0"),
                  *sql = g_strdup_printf(
                      "SELECT k.\"start\", k.\"end\", %s, %s, %s, %s FROM \"%s\" AS k %s ORDER BY 3, 4, 1", process,
                      device, stream ? stream : other, name, table, join);
  return each_row(r, sql, take_kernel, NULL, error);
}

/* --- Nsight Systems ---------------------------------------------------------------------------------------------- */
static gboolean read_copies(Reading *r, GError **error) {
  static const struct {
    const char *table, *name;
  } copies[] = {{"CUPTI_ACTIVITY_KIND_MEMCPY", "'Memcpy'"}, {"CUPTI_ACTIVITY_KIND_MEMSET", "'Memset'"}};
  for (gsize i = 0; i < G_N_ELEMENTS(copies); i++) {
    g_autofree char *table = table_of(r, copies[i].table);
    if (table && !read_activities(r, table, copies[i].name, "", error)) return FALSE;
  }
  return TRUE;
}

/* Names of ranges that stand for one step: a word and perhaps a number, which is -1 without one. */
static gboolean is_step(const char *text, gint64 *number) {
  static const char *const words[] = {"profilerstep", "iteration", "iter",        "train_step", "trainstep",
                                      "train step",   "step",      "global_step", NULL};
  for (int i = 0; words[i]; i++) {
    const char *rest = text + strlen(words[i]);
    if (g_ascii_strncasecmp(text, words[i], strlen(words[i])) != 0) continue;
    rest += strspn(rest, " _#:=-");
    char *end;
    *number = g_ascii_strtoll(rest, &end, 10);
    if (end == rest) *number = -1;
    if (*end == 0 || *end == ' ' || *end == ',') return TRUE;
  }
  return FALSE;
}

static gboolean take_range(Reading *r, Query *query, gpointer data, GError **error) {
  (void)data, (void)error;
  MsTraceStep mark = {sqlite.number(query, 0), sqlite.number(query, 1), 0};
  if (!is_step(text_at(query, 2), &mark.number) || mark.start_ns <= 0 || mark.end_ns < mark.start_ns) return TRUE;
  if (mark.number < 0) mark.number = -1 - (gint64)r->b->marks->len; /* each is a step of its own */
  g_array_append_val(r->b->marks, mark);
  return TRUE;
}

/* Ranges of several processes mark the same steps: those of the first count. */
static gboolean read_ranges(Reading *r, GError **error) {
  g_autofree char *table = table_of(r, "NVTX_EVENTS"), *strings = table_of(r, "StringIds");
  if (!table || !has_column(r, table, "start") || !has_column(r, table, "end")) return TRUE;
  gboolean indirect = strings && has_column(r, table, "textId");
  g_autofree char *text = column_of(r, table, "text", "NULL"), *thread = column_of(r, table, "globalTid", "0"),
                  *sql = g_strdup_printf("SELECT k.\"start\", k.\"end\", COALESCE(%s, %s) FROM \"%s\" AS k %s WHERE "
                                         "%s >> 24 = (SELECT MIN(%s >> 24) FROM \"%s\" AS k) ORDER BY 1",
                                         text, indirect ? "s.value" : "''", table,
                                         indirect ? "LEFT JOIN \"StringIds\" AS s ON s.id = k.textId" : "", thread,
                                         thread, table);
  return each_row(r, sql, take_range, NULL, error);
}

static gboolean read_nsys(Reading *r, const char *table, GPtrArray *notes, GError **error) {
  g_autofree char *strings = table_of(r, "StringIds"), *graphs = table_of(r, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE");
  const char *name = has_column(r, table, "demangledName") ? "demangledName" : "shortName";
  if (!strings || !has_column(r, table, name))
    return ms_input_error(error, r->b->t->file, 0, NULL, "has no names of kernels (StringIds, %s.%s)", table, name);
  g_autofree char *join = g_strdup_printf("LEFT JOIN \"%s\" AS s ON s.id = k.\"%s\"", strings, name);
  r->b->t->form = MS_TRACE_NSYS;
  r->b->t->device = first_text(r, "SELECT name FROM TARGET_INFO_GPU ORDER BY id LIMIT 1");
  if (graphs)
    ms_note(notes, "%s: holds CUDA graphs whose kernels are not in it: profile with nsys --cuda-graph-trace=node",
            r->b->t->file);
  return read_activities(r, table, "s.value", join, error) && read_copies(r, error) && read_ranges(r, error);
}

/* --- rocpd ------------------------------------------------------------------------------------------------------- */
static gboolean read_rocpd(Reading *r, const char *table, GError **error) {
  g_autofree char *symbols = table_of(r, "rocpd_info_kernel_symbol");
  if (!symbols)
    return ms_input_error(error, r->b->t->file, 0, NULL, "has no names of kernels (rocpd_info_kernel_symbol)");
  gboolean shown = has_column(r, symbols, "display_name"), raw = has_column(r, symbols, "kernel_name"),
           ours = has_column(r, table, "guid") && has_column(r, symbols, "guid");
  const char *name = shown && raw ? "COALESCE(s.display_name, s.kernel_name)"
                     : shown      ? "s.display_name"
                                  : "s.kernel_name";
  g_autofree char *join =
      g_strdup_printf("LEFT JOIN \"%s\" AS s ON s.id = k.kernel_id%s", symbols, ours ? " AND s.guid = k.guid" : "");
  r->b->t->form = MS_TRACE_ROCPROF;
  return read_activities(r, table, name, join, error);
}

/* --- all of it --------------------------------------------------------------------------------------------------- */
static gboolean read_database(Reading *r, GPtrArray *notes, GError **error) {
  g_autofree char *nsys = table_of(r, "CUPTI_ACTIVITY_KIND_KERNEL"), *rocpd = table_of(r, "rocpd_kernel_dispatch"),
                  *any = first_text(r, "SELECT name FROM sqlite_master LIMIT 1");
  if (!nsys && !rocpd && !any) return wrong(r, error);
  if (!nsys && !rocpd)
    return ms_input_error(error, r->b->t->file, 0, NULL,
                          "holds no kernels: neither CUPTI_ACTIVITY_KIND_KERNEL (nsys profile --trace cuda) nor "
                          "rocpd_kernel_dispatch (rocprofv3 --kernel-trace)");
  if (!(nsys ? read_nsys(r, nsys, notes, error) : read_rocpd(r, rocpd, error))) return FALSE;
  return r->b->t->kernels->len > 0 ||
         ms_input_error(error, r->b->t->file, 0, NULL, "holds no kernel with a usable start and end");
}

gboolean ms_trace_sqlite(MsTraceBuild *b, const char *file, GPtrArray *notes, GError **error) {
  Reading r = {.b = b};
  if (!load())
    return ms_error(error, MS_ERROR_ENV,
                    "%s: is a database of SQLite, which needs libsqlite3.so.0 (Debian: "
                    "libsqlite3-0)",
                    file);
  if (sqlite.open(file, &r.db, OPEN_READONLY, NULL) != OK) {
    g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: cannot be read: %s", file,
                r.db ? sqlite.message(r.db) : "no memory");
    sqlite.close(r.db);
    return FALSE;
  }
  r.device_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  gboolean good = read_database(&r, notes, error);
  g_hash_table_unref(r.device_of);
  sqlite.close(r.db);
  return good;
}
