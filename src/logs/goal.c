/* src/logs/goal.c - reading a GOAL schedule, and its time. */
#include "logs/goal.h"

#include "base/err.h"
#include "base/heap.h"
#include "base/order.h"
#include "base/units.h"

#include <math.h>
#include <string.h>

enum { MOST_RANKS = 1 << 17, MOST_CPUS = 64 };
#define MOST_SIZE 1000000000000000 /* bytes, ns */
#define NONE      G_MAXUINT32

typedef enum { CALC, SEND, RECV } Kind;

typedef struct {
  guint64 size; /* bytes, ns */
  guint32 line, tag, pending;
  gint32 rank, peer;
  guint8 kind, cpu, done;
} Operation;

typedef struct {
  guint32 before, after;
  gboolean start; /* irequires: when it has begun */
} Edge;

typedef struct {
  const char *file;
  GError **error;
  guint32 line;
  int ranks, rank;    /* -1: outside of a rank */
  GArray *op, *edge;  /* Operation, Edge */
  GHashTable *labels; /* of the rank: name -> index + 1 */
  guint8 *seen;       /* [ranks] */
} Reader;

/* --- words ------------------------------------------------------------------------------------------------------- */

static gboolean bad(const Reader *r, guint32 line, const char *format, ...) G_GNUC_PRINTF(3, 4);
static gboolean bad(const Reader *r, guint32 line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *why = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_input_error(r->error, r->file, (int)line, "", "%s", why);
}

static gboolean number(const char *word, const char *suffix, guint64 most, guint64 *value) {
  if (!word || !g_str_has_suffix(word, suffix)) return FALSE;
  g_autofree char *digits = g_strndup(word, strlen(word) - strlen(suffix));
  return g_ascii_string_to_unsigned(digits, 10, 0, most, value, NULL);
}

/* cpu N, nic N, tag N in any order. */
static gboolean read_places(Reader *r, char **word, Operation *op) {
  for (; *word; word += 2) {
    guint64 value = 0;
    gboolean tag = strcmp(*word, "tag") == 0, cpu = strcmp(*word, "cpu") == 0, nic = strcmp(*word, "nic") == 0;
    if (!tag && !cpu && !nic) return bad(r, r->line, "unknown word \"%s\", must be tag, cpu or nic", *word);
    if (!number(word[1], "", tag ? G_MAXUINT32 : cpu ? MOST_CPUS - 1 : 0, &value))
      return bad(r, r->line, "%s takes a number%s", *word, nic ? ", and ranks have one NIC, 0" : "");
    if (tag) op->tag = (guint32)value;
    if (cpu) op->cpu = (guint8)value;
  }
  return TRUE;
}

static gboolean read_message(Reader *r, char **word, Operation *op) {
  guint64 peer = 0;
  const char *towards = op->kind == SEND ? "to" : "from";
  if (!number(word[0], "b", MOST_SIZE, &op->size)) return bad(r, r->line, "bytes must stand as 100b");
  if (g_strcmp0(word[1], towards) != 0) return bad(r, r->line, "must go on with \"%s RANK\"", towards);
  if (!number(word[2], "", (guint64)r->ranks - 1, &peer))
    return bad(r, r->line, "must name a rank from 0 to %d", r->ranks - 1);
  op->peer = (gint32)peer;
  return (op->peer != r->rank || bad(r, r->line, "rank %d talks to itself", r->rank)) && read_places(r, word + 3, op);
}

static gboolean read_operation(Reader *r, char **word, char *label) {
  Operation op = {.line = r->line, .rank = r->rank, .peer = -1};
  gboolean ok = TRUE;
  if (g_strcmp0(word[0], "calc") == 0) {
    if (!number(word[1], "", MOST_SIZE, &op.size)) return bad(r, r->line, "calc takes whole nanoseconds");
    ok = read_places(r, word + 2, &op);
  } else if (g_strcmp0(word[0], "send") == 0 || g_strcmp0(word[0], "recv") == 0) {
    op.kind = word[0][0] == 's' ? SEND : RECV;
    ok = read_message(r, word + 1, &op);
  } else return bad(r, r->line, "\"%s\" is no operation, must be calc, send or recv", word[0] ? word[0] : "");
  if (!ok) return FALSE;
  if (r->op->len == NONE - 1) return bad(r, r->line, "more than 4 billion operations");
  g_array_append_val(r->op, op);
  if (label && !g_hash_table_insert(r->labels, g_strdup(label), GUINT_TO_POINTER(r->op->len)))
    return bad(r, r->line, "label %s stands twice in rank %d", label, r->rank);
  return TRUE;
}

static gboolean read_edge(Reader *r, char **word) {
  Edge e = {.start = word[1][0] == 'i'};
  for (int i = 0; i < 3; i += 2) {
    guint32 at = word[2] ? GPOINTER_TO_UINT(g_hash_table_lookup(r->labels, word[i])) : 0;
    if (at == 0) return bad(r, r->line, "rank %d has no label %s above", r->rank, word[2] ? word[i] : "");
    *(i == 0 ? &e.after : &e.before) = at - 1;
  }
  if (word[3]) return bad(r, r->line, "\"%s\" follows on two labels", word[3]);
  g_array_index(r->op, Operation, e.after).pending++;
  g_array_append_val(r->edge, e);
  return TRUE;
}

static gboolean read_head(Reader *r, char **word) {
  guint64 value = 0;
  if (strcmp(word[0], "num_ranks") == 0) {
    if (r->ranks > 0 || !number(word[1], "", MOST_RANKS, &value) || value == 0)
      return bad(r, r->line, "num_ranks must stand once, with 1 to %d", MOST_RANKS);
    r->ranks = (int)value, r->seen = g_new0(guint8, r->ranks);
    return TRUE;
  }
  if (strcmp(word[0], "rank") != 0) return bad(r, r->line, "\"%s\" outside of a rank", word[0]);
  if (r->ranks == 0) return bad(r, r->line, "num_ranks must stand first");
  if (!number(word[1], "", (guint64)r->ranks - 1, &value) || g_strcmp0(word[2], "{") != 0)
    return bad(r, r->line, "must be \"rank N {\" with N from 0 to %d", r->ranks - 1);
  if (r->seen[value]) return bad(r, r->line, "rank %d stands twice", (int)value);
  r->rank = (int)value, r->seen[value] = 1;
  g_hash_table_remove_all(r->labels);
  return TRUE;
}

static gboolean read_line(Reader *r, char *text) {
  char *comment = strstr(text, "//"), *words[12] = {NULL};
  int n = 0;
  if (comment) *comment = 0;
  for (char *rest = NULL, *word; (word = strtok_r(n == 0 ? text : NULL, " \t\r", &rest));) {
    if (n == (int)G_N_ELEMENTS(words) - 1) return bad(r, r->line, "more words than an operation has");
    words[n++] = word;
  }
  if (n == 0) return TRUE;
  if (r->rank < 0) return read_head(r, words);
  if (strcmp(words[0], "}") == 0) {
    r->rank = -1;
    return TRUE;
  }
  if (n > 1 && (strcmp(words[1], "requires") == 0 || strcmp(words[1], "irequires") == 0)) return read_edge(r, words);
  if (!g_str_has_suffix(words[0], ":")) return read_operation(r, words, NULL);
  words[0][strlen(words[0]) - 1] = 0;
  return read_operation(r, words + 1, words[0]);
}

static gboolean read_text(Reader *r, const char *text) {
  g_autoptr(GString) line = g_string_new(NULL);
  for (const char *at = text; *at; at += *at == '\n') {
    size_t length = strcspn(at, "\n");
    g_string_truncate(line, 0);
    g_string_append_len(line, at, (gssize)length);
    r->line++;
    if (!read_line(r, line->str)) return FALSE;
    at += length;
    if (!*at) break;
  }
  if (r->rank >= 0) return bad(r, r->line, "rank %d is not closed by }", r->rank);
  return r->ranks > 0 || bad(r, 1, "no num_ranks: this is no GOAL schedule");
}

/* --- time -------------------------------------------------------------------------------------------------------- */

typedef struct {
  gint64 at; /* ps */
  guint64 order;
  guint32 op;
  enum { READY, ARRIVES, ENDS } what;
} Event;

typedef struct {
  gint32 from, to;
  guint32 tag;
} Channel;

typedef struct {
  Channel channel;    /* first: the key */
  GQueue sent, asked; /* of sends that have arrived, of receptions that have begun: indices */
} Line;

typedef struct {
  Reader *r;
  const MsGoalLinks *links;
  GArray *heap; /* Event */
  guint64 order;
  guint32 *first, *edges; /* [operations + 1]; edges of operation i by number */
  gint64 *cpu;            /* [ranks * MOST_CPUS] free again */
  gint64 *out, *in;       /* [ranks] ports */
  gint64 *there;          /* [operations] of sends: the last byte */
  gint64 *calc;           /* [ranks * MOST_CPUS] in all */
  GHashTable *lines;
  guint64 done;
  MsGoalRun *run;
  gint64 end;
} Simulation;

MS_ORDER(by_time, Event, MS_LESS(x->at, y->at), MS_LESS(x->order, y->order))

static void push(Simulation *x, gint64 at, guint32 op, int what) {
  ms_heap_push(x->heap, &(Event){at, x->order++, op, what}, by_time);
}

static Operation *op_at(const Simulation *x, guint32 i) { return &g_array_index(x->r->op, Operation, i); }

static void release(Simulation *x, guint32 i, gboolean start, gint64 at) {
  for (guint32 k = x->first[i]; k < x->first[i + 1]; k++) {
    const Edge *e = &g_array_index(x->r->edge, Edge, x->edges[k]);
    if (e->start == start && --op_at(x, e->after)->pending == 0) push(x, at, e->after, READY);
  }
}

static guint channel_hash(gconstpointer key) {
  const Channel *c = key;
  return (guint)c->from * 2654435761u ^ (guint)c->to * 40503u ^ c->tag * 2246822519u;
}

static gboolean channel_equal(gconstpointer a, gconstpointer b) { return memcmp(a, b, sizeof(Channel)) == 0; }

static void line_free(gpointer data) {
  Line *l = data;
  g_queue_clear(&l->sent), g_queue_clear(&l->asked);
  g_free(l);
}

static Line *line_of(Simulation *x, const Operation *op) {
  Channel c = {op->kind == SEND ? op->rank : op->peer, op->kind == SEND ? op->peer : op->rank, op->tag};
  Line *l = g_hash_table_lookup(x->lines, &c);
  if (l) return l;
  l = g_new0(Line, 1);
  l->channel = c;
  g_hash_table_insert(x->lines, l, l);
  return l;
}

static double ps_of(const Simulation *x, const Operation *op) {
  const MsGoalLinks *n = x->links;
  gboolean inside = n->node_ranks > 0 && op->rank / n->node_ranks == op->peer / n->node_ranks;
  return (double)op->size / (inside ? n->inside_Bps : n->between_Bps) * MS_PS_PER_S;
}

/* A reception and the send that it takes. */
static gboolean matched(Simulation *x, guint32 send, guint32 recv, gint64 now) {
  const Operation *s = op_at(x, send), *r = op_at(x, recv);
  if (s->size != r->size)
    return bad(x->r, r->line, "%" G_GUINT64_FORMAT " bytes are awaited, line %u sends %" G_GUINT64_FORMAT, r->size,
               s->line, s->size);
  push(x, MAX(now, x->there[send]), recv, ENDS);
  return TRUE;
}

static gboolean ready(Simulation *x, guint32 i, gint64 now) {
  Operation *op = op_at(x, i);
  gint64 *cpu = &x->cpu[(gsize)op->rank * MOST_CPUS + op->cpu];
  if (op->kind == RECV) {
    Line *l = line_of(x, op);
    release(x, i, TRUE, now);
    if (!g_queue_is_empty(&l->sent)) return matched(x, GPOINTER_TO_UINT(g_queue_pop_head(&l->sent)), i, now);
    g_queue_push_tail(&l->asked, GUINT_TO_POINTER(i));
    return TRUE;
  }
  gint64 from = MAX(now, *cpu);
  if (op->kind == CALC) {
    *cpu = from + (gint64)op->size * 1000, x->calc[(gsize)op->rank * MOST_CPUS + op->cpu] += (gint64)op->size * 1000;
    release(x, i, TRUE, from);
    push(x, *cpu, i, ENDS);
    return TRUE;
  }
  from = MAX(from, x->out[op->rank]);
  x->out[op->rank] = from + (gint64)(ps_of(x, op) + 0.5), *cpu = from;
  release(x, i, TRUE, from);
  push(x, from, i, ENDS);
  push(x, from + (gint64)(x->links->latency_s * MS_PS_PER_S + 0.5), i, ARRIVES);
  return TRUE;
}

static gboolean arrives(Simulation *x, guint32 i, gint64 now) {
  const Operation *op = op_at(x, i);
  Line *l = line_of(x, op);
  x->there[i] = x->in[op->peer] = MAX(now, x->in[op->peer]) + (gint64)(ps_of(x, op) + 0.5);
  if (!g_queue_is_empty(&l->asked)) return matched(x, i, GPOINTER_TO_UINT(g_queue_pop_head(&l->asked)), now);
  g_queue_push_tail(&l->sent, GUINT_TO_POINTER(i));
  return TRUE;
}

static void ends(Simulation *x, guint32 i, gint64 now) {
  Operation *op = op_at(x, i);
  op->done = 1, x->done++;
  if (now > x->end || (now == x->end && op->rank < x->run->last_rank)) x->run->last_rank = op->rank;
  x->end = MAX(x->end, now);
  release(x, i, FALSE, now);
}

static gboolean walk(Simulation *x) {
  for (guint32 i = 0; i < x->r->op->len; i++)
    if (op_at(x, i)->pending == 0) push(x, 0, i, READY);
  while (x->heap->len > 0) {
    Event e;
    ms_heap_pop(x->heap, &e, by_time);
    if (e.what == READY && !ready(x, e.op, e.at)) return FALSE;
    if (e.what == ARRIVES && !arrives(x, e.op, e.at)) return FALSE;
    if (e.what == ENDS) ends(x, e.op, e.at);
  }
  for (guint32 i = 0; i < x->r->op->len; i++) {
    const Operation *op = op_at(x, i);
    if (!op->done)
      return bad(x->r, op->line,
                 "never %s: %" G_GUINT64_FORMAT " operations wait in a circle or for messages that "
                 "nobody sends",
                 op->pending > 0 ? "begins" : "ends", x->r->op->len - x->done);
    if (op->kind == SEND && !g_queue_is_empty(&line_of(x, op)->sent))
      return bad(x->r, op->line, "rank %d sends rank %d more messages of tag %u than it receives", op->rank, op->peer,
                 op->tag);
  }
  return TRUE;
}

static void sort_edges(Simulation *x) {
  guint32 n = x->r->op->len;
  x->first = g_new0(guint32, (gsize)n + 2), x->edges = g_new(guint32, MAX(x->r->edge->len, 1));
  for (guint k = 0; k < x->r->edge->len; k++) x->first[g_array_index(x->r->edge, Edge, k).before + 2]++;
  for (guint32 i = 1; i < n + 2; i++) x->first[i] += x->first[i - 1];
  for (guint k = 0; k < x->r->edge->len; k++) x->edges[x->first[g_array_index(x->r->edge, Edge, k).before + 1]++] = k;
}

static gboolean simulate(Reader *r, const MsGoalLinks *links, MsGoalRun *run) {
  gsize ranks = (gsize)r->ranks;
  Simulation x = {.r = r, .links = links, .run = run, .heap = g_array_new(FALSE, FALSE, sizeof(Event))};
  sort_edges(&x);
  x.cpu = g_new0(gint64, ranks * MOST_CPUS), x.calc = g_new0(gint64, ranks * MOST_CPUS);
  x.out = g_new0(gint64, ranks), x.in = g_new0(gint64, ranks), x.there = g_new0(gint64, MAX(r->op->len, 1));
  x.lines = g_hash_table_new_full(channel_hash, channel_equal, NULL, line_free);
  gboolean ok = walk(&x);
  gint64 calc = 0;
  for (gsize i = 0; i < ranks * MOST_CPUS; i++) calc = MAX(calc, x.calc[i]);
  run->end_s = (double)x.end / MS_PS_PER_S, run->calc_s = (double)calc / MS_PS_PER_S;
  g_array_unref(x.heap), g_hash_table_unref(x.lines);
  g_free(x.first), g_free(x.edges), g_free(x.cpu), g_free(x.calc), g_free(x.out), g_free(x.in), g_free(x.there);
  return ok;
}

gboolean ms_goal_run(const char *text, const char *file, const MsGoalLinks *links, MsGoalRun *run, GError **error) {
  Reader r = {.file = file, .error = error, .rank = -1};
  r.op = g_array_new(FALSE, TRUE, sizeof(Operation)), r.edge = g_array_new(FALSE, FALSE, sizeof(Edge));
  r.labels = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  gboolean ok = read_text(&r, text);
  *run = (MsGoalRun){.ranks = r.ranks, .operations = r.op->len};
  for (guint i = 0; i < r.op->len; i++) {
    const Operation *op = &g_array_index(r.op, Operation, i);
    if (op->kind == SEND) run->messages++, run->bytes_B += (double)op->size;
  }
  ok = ok && simulate(&r, links, run);
  g_array_unref(r.op), g_array_unref(r.edge), g_hash_table_unref(r.labels), g_free(r.seen);
  return ok;
}
