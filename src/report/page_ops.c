/* src/report/page_ops.c - operators against the roofs of the machine, and communication by link level, from the
 * simulated step. */
#include <math.h>
#include <string.h>

#include "base/order.h"
#include "base/units.h"
#include "cost/curve.h"
#include "report/page.h"
#include "sim/simulate.h"

typedef struct { /* of all tasks with one tag */
  double n, time_s;
} TagSum;

/* --- roofs ----------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *dtype;
  double peak_flops;
} Roof;

static GArray *find_roofs(const MsScenario *s, const gboolean *used) {
  GArray *roofs = g_array_new(FALSE, FALSE, sizeof(Roof));
  for (int dtype = 0; dtype < MS_N_ODT; dtype++) {
    if (!used[dtype]) continue;
    MsDeviceRates rates = ms_device_rates(s->hardware, dtype, ms_precision(&s->training)->dtype == MS_DT_FP16);
    Roof roof = {ms_odt_words[dtype], rates.peak_flops};
    g_array_append_val(roofs, roof);
  }
  return roofs;
}

/* --- operators: one row per name, pass and type ---------------------------------------------------------------- */
typedef struct {
  const MsOp *op;
  const char *name;
  double n, time_s, flop, bytes_B; /* sums over all stages */
  int stages;
} Row;

static gboolean same(const Row *row, const MsOp *op, const char *name) {
  return row->op->kind == op->kind && row->op->pass == op->pass && row->op->dtype == op->dtype &&
         strcmp(row->name, name) == 0;
}

static void add_row(GArray *rows, const MsOp *op, const char *name, int stages, const TagSum *sum) {
  guint i = 0;
  while (i < rows->len && !same(&g_array_index(rows, Row, i), op, name)) i++;
  if (i == rows->len) {
    Row fresh = {.op = op, .name = name, .stages = stages};
    g_array_append_val(rows, fresh);
  }
  Row *row = &g_array_index(rows, Row, i);
  row->n += sum->n, row->time_s += sum->time_s;
  row->flop += sum->n * op->flop, row->bytes_B += sum->n * (op->read_B + op->write_B);
}

MS_ORDER(by_time, Row, MS_MORE(x->time_s, y->time_s), strcmp(x->name, y->name))

static TagSum *sum_tags(const MsDetail *d) {
  TagSum *sum = g_new0(TagSum, d->n_tags + 1);
  for (guint32 i = 0; i < d->trajectory->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    if (task->tag >= d->n_tags) continue;
    sum[task->tag].n++;
    sum[task->tag].time_s += (double)(d->trajectory->end[i] - d->trajectory->start[i]) / MS_PS_PER_S;
  }
  return sum;
}

static void find_operators(MsPageRun *run) {
  const MsDetail *d = run->detail;
  gboolean used[MS_N_ODT] = {FALSE};
  g_autofree TagSum *sum = sum_tags(d);
  run->operators = g_array_new(FALSE, FALSE, sizeof(Row));
  for (guint32 i = 0; i < d->n_tags; i++) {
    const MsOp *op = d->tag_op[i];
    if (!op || !(sum[i].n > 0) || ms_op_families[op->kind] >= MS_FAMILY_COMM) continue;
    if (op->flop > 0 && ms_op_families[op->kind] < MS_FAMILY_MEMORY) used[op->dtype] = TRUE;
    add_row(run->operators, op, d->tag_name[i], d->schedule->stages, &sum[i]);
  }
  g_array_sort(run->operators, by_time);
  run->roofs = find_roofs(run->scenario, used);
}

/* --- communication: bytes and time of every class on every stage ----------------------------------------------- */
typedef struct {
  int class, stage;
  double level_B[3], time_s, n;
  double exposed_s; /* NaN: not known */
  int group;        /* of the rows that carry most; the page spreads the bytes over its members */
  double group_B;
} CommSum;

static void add_comm(CommSum *c, const MsOp *op, const double level_B[3], double time_s) {
  double bytes = level_B[0] + level_B[1] + level_B[2];
  for (int i = 0; i < 3; i++) c->level_B[i] += level_B[i];
  c->time_s += time_s;
  c->n++;
  if (op->group == c->group) c->group_B += bytes;
  else if (bytes > c->group_B) c->group = op->group, c->group_B = bytes;
}

static void find_comm(MsPageRun *run) {
  const MsDetail *d = run->detail;
  const MsResult *result = run->result;
  int stages = d->schedule->stages;
  g_autofree CommSum *sum = g_new0(CommSum, (gsize)stages * MS_N_COMMS);
  g_autofree double *level_B = g_new0(double, 3 * ((gsize)d->n_tags + 1));
  for (guint32 i = 0; i < d->n_tags; i++)
    if (d->tag_op[i]) ms_cost_level_B(run->scenario, d->layout, d->tag_op[i], &level_B[3 * i]);
  for (guint32 i = 0; i < d->trajectory->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    const MsOp *op = task->tag < d->n_tags ? d->tag_op[task->tag] : NULL;
    if (!op || ms_op_families[op->kind] != MS_FAMILY_COMM || (int)task->device >= stages) continue;
    add_comm(&sum[task->device * MS_N_COMMS + ms_comm_class(op)], op, &level_B[3 * task->tag],
             (double)(d->trajectory->end[i] - d->trajectory->start[i]) / MS_PS_PER_S);
  }
  run->comm = g_array_new(FALSE, FALSE, sizeof(CommSum));
  for (int i = 0; i < stages * MS_N_COMMS; i++) {
    CommSum *c = &sum[i];
    if (!(c->n > 0)) continue;
    c->stage = i / MS_N_COMMS, c->class = i % MS_N_COMMS;
    c->exposed_s =
        result->stage_time && c->stage < result->stages ? result->stage_time[c->stage].comm_exposed_s[c->class] : NAN;
    g_array_append_vals(run->comm, c, 1);
  }
}

void ms_page_find_operators(MsPageRun *run) {
  find_comm(run);
  find_operators(run);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
#define OF(row) ((const Row *)(row))
static const char *family_word(const void *row) {
  static const char *const words[] = {"GEMM", "grouped GEMM", "attention", "memory-bound"};
  return words[ms_op_families[OF(row)->op->kind]];
}
static double calls(const void *row) { return OF(row)->n / OF(row)->stages; }
static double time_s(const void *row) { return OF(row)->time_s / OF(row)->stages; }
static double flop(const void *row) { return OF(row)->flop / OF(row)->n; }
static double bytes_B(const void *row) { return OF(row)->bytes_B / OF(row)->n; }
static double mean_s(const void *row) { return OF(row)->time_s / OF(row)->n; }

const MsFigures ms_page_operators_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_GARRAY("comm", MsPageRun, comm, CommSum,
                     MS_FIGURES(MS_FIGURE_WORDS("class", CommSum, class, ms_comm_words, "of communication"),
                                MS_FIGURE_WORDS("group", CommSum, group, ms_group_words, "that carries most of it"),
                                MS_FIGURE(INT, CommSum, stage, "", "pipeline stage"),
                                MS_FIGURE_AS("scaleup_B", F64, CommSum, level_B[0], "B", "in the scale-up domain"),
                                MS_FIGURE_AS("network_B", F64, CommSum, level_B[1], "B", "on the network"),
                                MS_FIGURE_AS("host_B", F64, CommSum, level_B[2], "B", "to and from the host"),
                                MS_FIGURE(F64, CommSum, time_s, "s", "of a step"),
                                MS_FIGURE(F64, CommSum, exposed_s, "s", "of it not hidden", MS_OR_NULL),
                                MS_FIGURE_AS("calls", F64, CommSum, n, "", "of a step"))),
    MS_FIGURE_GARRAY("roofs", MsPageRun, roofs, Roof,
                     MS_FIGURES(MS_FIGURE(STRING, Roof, dtype, "", "of a matrix product"),
                                MS_FIGURE(F64, Roof, peak_flops, "FLOP/s", "of the machine"))),
    MS_FIGURE_GARRAY("operators", MsPageRun, operators, Row,
                     MS_FIGURES(MS_FIGURE(STRING, Row, name, "", "of the operator"),
                                MS_FIGURE_ROWS_AT(
                                    Row, op,
                                    MS_FIGURES(MS_FIGURE_WORDS("op", MsOp, kind, ms_op_words, "its kind"),
                                               MS_FIGURE_WORDS("pass", MsOp, pass, ms_pass_words, "it is in"),
                                               MS_FIGURE_WORDS("dtype", MsOp, dtype, ms_odt_words, "of its operands"))),
                                MS_FIGURE_TEXT("family", family_word, "of curves"),
                                MS_FIGURE_OF("calls", F64, calls, "", "of a step and stage"),
                                MS_FIGURE_OF("time_s", F64, time_s, "s", "of a step and stage"),
                                MS_FIGURE_OF("flop", F64, flop, "FLOP", "of a call"),
                                MS_FIGURE_OF("bytes_B", F64, bytes_B, "B", "read and written by a call"),
                                MS_FIGURE_OF("mean_s", F64, mean_s, "s", "of a call"))));
