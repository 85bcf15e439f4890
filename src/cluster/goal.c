/* src/cluster/goal.c - the tasks of a step, rank by rank, in the words of GOAL. */
#include "cluster/goal.h"

#include "base/err.h"
#include "base/io.h"

#include <math.h>
#include <string.h>

enum { CPU_HOST = MS_N_STREAMS, CPU_RECV, FLUSH_B = 1 << 20 };

typedef struct {
  const MsScenario *scenario;
  const MsStepPlan *plan;
  const MsLayout *layout;
  MsWriter *sink;
  GString *text;
  double *sent_B;     /* [tags] that a rank sends, -1: not worked out yet */
  int *by_stage;      /* [stages * places] ranks */
  int places;         /* of a stage */
  int rank, place;    /* whose schedule is written */
  guint32 stage;      /* its */
  guint32 label;      /* of its last operation */
  guint32 *end;       /* [tasks] label of what ends the task on this rank, 0: none */
  guint32 *last;      /* [streams] that of the last task */
  guint32 host, held; /* that of the last launch, of what the next one waits for */
  int met[2];         /* collectives over embeddings, over all ranks */
  int *member, n;     /* of the group at hand */
  GArray *before;     /* labels that the task at hand requires */
} Goal;

/* --- lines --- */

static guint32 calc(Goal *g, MsTime took, int cpu) {
  g_string_append_printf(g->text, "l%u: calc %" G_GINT64_FORMAT " cpu %d\n", ++g->label, (took + 500) / 1000, cpu);
  return g->label;
}

static guint32 message(Goal *g, gboolean sends, double bytes_B, int peer, guint32 tag, int cpu) {
  g_string_append_printf(g->text, "l%u: %s %.0fb %s %d tag %u cpu %d\n", ++g->label, sends ? "send" : "recv",
                         MAX(1, ceil(bytes_B)), sends ? "to" : "from", peer, tag, cpu);
  return g->label;
}

static void require(Goal *g, guint32 what, guint32 before) {
  if (before > 0) g_string_append_printf(g->text, "l%u requires l%u\n", what, before);
}

static void require_all(Goal *g, guint32 what) {
  for (guint i = 0; i < g->before->len; i++) require(g, what, g_array_index(g->before, guint32, i));
}

static void flush(Goal *g) {
  ms_writer_put(g->sink, g->text->str, g->text->len);
  g_string_truncate(g->text, 0);
}

/* --- collectives --- */

typedef enum { FORM_NONE, FORM_RING, FORM_RING_TWICE, FORM_EXCHANGE, FORM_NEXT, FORM_DOUBLING } Form;

static const MsOp *op_of(const Goal *g, guint32 i) {
  return g->plan->detail->tag_op[ms_graph_task(g->plan->detail->graph, i)->tag];
}

/* FORM_NONE: it moves nothing between ranks that meet, and is a time. */
static Form form_of(const Goal *g, guint32 i, MsGroupKind *kind) {
  const MsTask *task = ms_graph_task(g->plan->detail->graph, i);
  const MsOp *op = op_of(g, i);
  MsRole role = (MsRole)g->plan->task[i].role;
  gboolean link = task->use == MS_USE_LINK0 || task->use == MS_USE_LINK1;
  if (!op || !link || role == MS_ROLE_PASSES) return FORM_NONE;
  *kind = (MsGroupKind)op->group;
  if (role != MS_ROLE_MEETS && role != MS_ROLE_WORLD && *kind != MS_GROUP_EMBEDDING) return FORM_NONE;
  if (g->layout->group[*kind].size <= 1) return FORM_NONE;
  if (role == MS_ROLE_WORLD) return FORM_DOUBLING;
  switch ((MsOpKind)op->kind) {
  case MS_OP_ALL_GATHER:
  case MS_OP_REDUCE_SCATTER: return FORM_RING;
  case MS_OP_ALL_REDUCE: return FORM_RING_TWICE;
  case MS_OP_P2P: return FORM_NEXT;
  case MS_OP_DISPATCH:
  case MS_OP_COMBINE: return ms_dispatcher(&g->scenario->options)->carry == MS_CARRY_ALL ? FORM_RING : FORM_EXCHANGE;
  default: return FORM_EXCHANGE;
  }
}

static int rounds_of(Form form, int n) {
  switch (form) {
  case FORM_RING: return n - 1;
  case FORM_RING_TWICE: return 2 * (n - 1);
  case FORM_EXCHANGE: return n - 1; /* all at once */
  case FORM_NEXT: return 1;
  case FORM_DOUBLING: return (int)g_bit_storage((gulong)n - 1);
  default: return 0;
  }
}

/* Bytes of one message. */
static double message_B(Goal *g, guint32 i, Form form) {
  const MsTask *task = ms_graph_task(g->plan->detail->graph, i);
  const MsOp *op = op_of(g, i);
  if (form == FORM_RING || form == FORM_RING_TWICE) return op->message_B / g->n;
  if (form != FORM_EXCHANGE) return op->message_B;
  if (g->sent_B[task->tag] < 0) {
    double level_B[3];
    ms_cost_level_B(g->scenario, g->layout, op, level_B);
    g->sent_B[task->tag] = level_B[0] + level_B[1];
  }
  return g->sent_B[task->tag] / (g->n - 1);
}

/* Round by round: what is received is sent on. */
static void rounds(Goal *g, Form form, double bytes_B, int own, guint32 tag, int cpu, guint32 begin) {
  guint32 received = begin, sent = begin;
  for (int k = 0, n = rounds_of(form, g->n); k < n; k++) {
    int far = form == FORM_DOUBLING ? 1 << k : 1;
    int next = g->member[(own + far) % g->n], prev = g->member[(own - far % g->n + g->n) % g->n];
    guint32 s = message(g, TRUE, bytes_B, next, tag, cpu);
    require(g, s, received);
    guint32 r = message(g, FALSE, bytes_B, prev, tag, CPU_RECV);
    require(g, r, k == 0 ? begin : received);
    sent = s, received = r;
  }
  guint32 end = calc(g, 0, cpu);
  require(g, end, sent), require(g, end, received);
}

static void exchange(Goal *g, double bytes_B, int own, guint32 tag, int cpu, guint32 begin) {
  guint32 first = g->label + 1;
  for (int k = 1; k < g->n; k++) {
    guint32 s = message(g, TRUE, bytes_B, g->member[(own + k) % g->n], tag, cpu);
    require(g, s, begin);
    guint32 r = message(g, FALSE, bytes_B, g->member[(own - k + g->n) % g->n], tag, CPU_RECV);
    require(g, r, begin);
  }
  guint32 last = g->label, end = calc(g, 0, cpu);
  for (guint32 l = first; l <= last; l++) require(g, end, l);
}

static void collective(Goal *g, guint32 i, Form form, MsGroupKind kind, int cpu) {
  guint32 tag = i;
  if (kind == MS_GROUP_EMBEDDING || kind == MS_GROUP_WORLD) { /* of several stages, each of which has a task of it */
    gboolean world = kind == MS_GROUP_WORLD;
    tag = g->plan->n + 2 * (guint32)g->met[world]++ + world;
  }
  g->n = ms_group_members(g->layout, kind, g->rank, g->member, g->layout->world);
  int own = 0;
  while (own < g->n && g->member[own] != g->rank) own++;
  guint32 begin = calc(g, 0, cpu);
  require_all(g, begin);
  double bytes_B = message_B(g, i, form);
  if (form == FORM_EXCHANGE) exchange(g, bytes_B, own, tag, cpu, begin);
  else rounds(g, form, bytes_B, own, tag, cpu, begin);
}

/* --- tasks --- */

static gboolean passes_to(const Goal *g, guint32 i, guint32 stage) {
  const MsStepTask *t = &g->plan->task[i];
  return t->role == MS_ROLE_PASSES && t->to == stage && ms_graph_task(g->plan->detail->graph, i)->device != stage;
}

static double passed_B(const Goal *g, guint32 i) { return op_of(g, i)->message_B; }

/* What ends task `i` for this rank: of a message from another stage its reception, laid down when first asked for. */
static guint32 end_of(Goal *g, guint32 i) {
  guint32 from = ms_graph_task(g->plan->detail->graph, i)->device;
  if (g->end[i] > 0 || from == g->stage || !passes_to(g, i, g->stage)) return g->end[i];
  return g->end[i] = message(g, FALSE, passed_B(g, i), g->by_stage[(int)from * g->places + g->place], i, CPU_RECV);
}

static void find_before(Goal *g, const MsTask *task, guint32 i) {
  const guint32 *wait;
  guint n = ms_graph_waits(g->plan->detail->graph, i, &wait);
  g_array_set_size(g->before, 0);
  g_array_append_val(g->before, g->last[task->stream]);
  for (guint k = 0; k < n; k++) {
    guint32 end = end_of(g, wait[k]);
    if (end != g->last[task->stream]) g_array_append_val(g->before, end);
  }
  if (task->launch == 0) return;
  guint32 before = g->host;
  g->host = calc(g, task->launch, CPU_HOST);
  require(g, g->host, before), require(g, g->host, g->held);
  g->held = 0;
  g_array_append_val(g->before, g->host);
}

static void put_task(Goal *g, guint32 i) {
  const MsTask *task = ms_graph_task(g->plan->detail->graph, i);
  const MsStepTask *t = &g->plan->task[i];
  MsGroupKind kind = MS_GROUP_NONE;
  Form form = form_of(g, i, &kind);
  find_before(g, task, i);
  if (form != FORM_NONE) collective(g, i, form, kind, task->stream);
  else {
    gboolean passes = t->role == MS_ROLE_PASSES && passes_to(g, i, t->to);
    guint32 l = passes ? message(g, TRUE, passed_B(g, i), g->by_stage[t->to * g->places + g->place], i, task->stream)
                       : calc(g, t->duration, task->stream);
    require_all(g, l);
  }
  g->end[i] = g->last[task->stream] = g->label;
  if (task->host_sync) g->held = g->label;
  if (g->text->len > FLUSH_B) flush(g);
}

static void put_rank(Goal *g) {
  g->label = g->host = g->held = 0, g->met[0] = g->met[1] = 0;
  memset(g->end, 0, sizeof *g->end * MAX(g->plan->n, 1)), memset(g->last, 0, sizeof *g->last * MS_N_STREAMS);
  g_string_append_printf(g->text, "\nrank %d {\n", g->rank);
  for (guint32 i = 0; i < g->plan->n; i++)
    if (ms_graph_task(g->plan->detail->graph, i)->device == g->stage) put_task(g, i);
  g_string_append(g->text, "}\n");
}

/* Operations of all ranks. */
static double count(const Goal *g) {
  double n = 0;
  for (guint32 i = 0; i < g->plan->n; i++) {
    MsGroupKind kind = MS_GROUP_NONE;
    Form form = form_of(g, i, &kind);
    n += form == FORM_NONE ? 2 : 3 + 2.0 * rounds_of(form, g->layout->group[kind].size);
  }
  return n * g->places;
}

gboolean ms_goal_write(const MsScenario *s, const MsDetail *d, const char *file, GError **error) {
  g_autoptr(MsStepPlan) plan = ms_step_plan_new(d, 0);
  Goal g = {.scenario = s, .plan = plan, .layout = d->layout, .places = d->layout->world / d->layout->pp};
  double ops = count(&g);
  if (ops > MS_GOAL_MOST_OPS)
    return ms_input_error(error, s->file, 0, "", "a GOAL schedule of %.3g operations, at most %.3g are written", ops,
                          MS_GOAL_MOST_OPS);
  g.sink = ms_writer_open(file, error);
  if (!g.sink) return FALSE;
  g.by_stage = ms_ranks_by_stage(d->layout), g.member = g_new(int, d->layout->world);
  g.end = g_new(guint32, MAX(plan->n, 1)), g.last = g_new(guint32, MS_N_STREAMS);
  g.sent_B = g_new(double, MAX(d->n_tags, 1)), g.text = g_string_new(NULL);
  g.before = g_array_new(FALSE, FALSE, sizeof(guint32));
  for (guint32 i = 0; i < d->n_tags; i++) g.sent_B[i] = -1;
  g_string_append_printf(g.text, "num_ranks %d\n", d->layout->world);
  g_autofree int *slot = g_new(int, d->layout->world);
  for (int k = 0; k < d->layout->world; k++) slot[g.by_stage[k]] = k;
  for (g.rank = 0; g.rank < d->layout->world && !ms_interrupted(); g.rank++) {
    g.stage = (guint32)(slot[g.rank] / g.places), g.place = slot[g.rank] % g.places;
    put_rank(&g);
  }
  flush(&g);
  g_free(g.by_stage), g_free(g.member), g_free(g.end), g_free(g.last), g_free(g.sent_B);
  g_string_free(g.text, TRUE), g_array_unref(g.before);
  return ms_writer_close_unless_stopped(g.sink, error);
}
