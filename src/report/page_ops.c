/* src/report/page_ops.c - operators against the roofs of the machine, and communication by link level, from the
 * simulated step. */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "cost/curve.h"
#include "report/page.h"
#include "sim/simulate.h"

typedef struct { /* of all tasks with one tag */
  double n, time_s;
} TagSum;

/* --- roofs ----------------------------------------------------------------------------------------------------- */
static void write_roofs(const MsScenario *s, const gboolean *used, MsJsonOut *out) {
  ms_json_out_array(out, "roofs");
  for (int dtype = 0; dtype < MS_N_ODT; dtype++) {
    if (!used[dtype]) continue;
    MsDeviceRates rates = ms_device_rates(s->hardware, dtype, ms_precision(&s->training)->dtype == MS_DT_FP16);
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "dtype", ms_odt_words[dtype]);
    ms_json_out_double(out, "peak_flops", rates.peak_flops);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

/* --- operators: one row per name, pass and type ---------------------------------------------------------------- */
typedef struct {
  const MsOp *op;
  const char *name;
  double n, time_s, flop, bytes_B;
} Row;

static gboolean same(const Row *row, const MsOp *op, const char *name) {
  return row->op->kind == op->kind && row->op->pass == op->pass && row->op->dtype == op->dtype &&
         strcmp(row->name, name) == 0;
}

static void add_row(GArray *rows, const MsOp *op, const char *name, const TagSum *sum) {
  guint i = 0;
  while (i < rows->len && !same(&g_array_index(rows, Row, i), op, name)) i++;
  if (i == rows->len) {
    Row fresh = {op, name, 0, 0, 0, 0};
    g_array_append_val(rows, fresh);
  }
  Row *row = &g_array_index(rows, Row, i);
  row->n += sum->n, row->time_s += sum->time_s;
  row->flop += sum->n * op->flop, row->bytes_B += sum->n * (op->read_B + op->write_B);
}

static int by_time(gconstpointer a, gconstpointer b) {
  double x = ((const Row *)a)->time_s, y = ((const Row *)b)->time_s;
  return x < y ? 1 : x > y ? -1 : strcmp(((const Row *)a)->name, ((const Row *)b)->name);
}

static void write_row(const Row *row, int stages, MsJsonOut *out) {
  static const char *const family_words[] = {"GEMM", "grouped GEMM", "attention", "memory-bound"};
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "name", row->name);
  ms_json_out_string(out, "op", ms_op_words[row->op->kind]);
  ms_json_out_string(out, "pass", ms_pass_words[row->op->pass]);
  ms_json_out_string(out, "dtype", ms_odt_words[row->op->dtype]);
  ms_json_out_string(out, "family", family_words[ms_op_families[row->op->kind]]);
  ms_json_out_double(out, "calls", row->n / stages);
  ms_json_out_double(out, "time_s", row->time_s / stages);
  ms_json_out_double(out, "flop", row->flop / row->n);
  ms_json_out_double(out, "bytes_B", row->bytes_B / row->n);
  ms_json_out_double(out, "mean_s", row->time_s / row->n);
  ms_json_out_end(out);
}

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

void ms_page_operators(const MsScenario *s, const MsDetail *d, MsJsonOut *out) {
  gboolean used[MS_N_ODT] = {FALSE};
  g_autofree TagSum *sum = sum_tags(d);
  GArray *rows = g_array_new(FALSE, FALSE, sizeof(Row));
  for (guint32 i = 0; i < d->n_tags; i++) {
    const MsOp *op = d->tag_op[i];
    if (!op || !(sum[i].n > 0) || ms_op_families[op->kind] >= MS_FAMILY_COMM) continue;
    if (op->flop > 0 && ms_op_families[op->kind] < MS_FAMILY_MEMORY) used[op->dtype] = TRUE;
    add_row(rows, op, d->tag_name[i], &sum[i]);
  }
  g_array_sort(rows, by_time);
  write_roofs(s, used, out);
  ms_json_out_array(out, "operators");
  for (guint i = 0; i < rows->len; i++) write_row(&g_array_index(rows, Row, i), d->schedule->stages, out);
  ms_json_out_end(out);
  g_array_free(rows, TRUE);
}

/* --- communication: bytes and time of every class on every stage ----------------------------------------------- */
typedef struct {
  double level_B[3], time_s, n;
  int group; /* of the rows that carry most; the page spreads the bytes over its members */
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

static void write_comm(int class, int stage, const CommSum *c, const MsTimeParts *parts, MsJsonOut *out) {
  static const char *const level_words[] = {"scaleup_B", "network_B", "host_B"};
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "class", ms_comm_words[class]);
  ms_json_out_string(out, "group", ms_group_words[c->group]);
  ms_json_out_int(out, "stage", stage);
  for (int i = 0; i < 3; i++) ms_json_out_double(out, level_words[i], c->level_B[i]);
  ms_json_out_double(out, "time_s", c->time_s);
  ms_json_out_double(out, "exposed_s", parts ? parts->comm_exposed_s[class] : NAN);
  ms_json_out_double(out, "calls", c->n);
  ms_json_out_end(out);
}

void ms_page_comm(const MsScenario *s, const MsDetail *d, const MsResult *result, MsJsonOut *out) {
  int stages = d->schedule->stages;
  g_autofree CommSum *sum = g_new0(CommSum, (gsize)stages * MS_N_COMMS);
  g_autofree double *level_B = g_new0(double, 3 * ((gsize)d->n_tags + 1));
  for (guint32 i = 0; i < d->n_tags; i++)
    if (d->tag_op[i]) ms_cost_level_B(s, d->layout, d->tag_op[i], &level_B[3 * i]);
  for (guint32 i = 0; i < d->trajectory->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    const MsOp *op = task->tag < d->n_tags ? d->tag_op[task->tag] : NULL;
    if (!op || ms_op_families[op->kind] != MS_FAMILY_COMM || (int)task->device >= stages) continue;
    add_comm(&sum[task->device * MS_N_COMMS + ms_comm_class(op)], op, &level_B[3 * task->tag],
             (double)(d->trajectory->end[i] - d->trajectory->start[i]) / MS_PS_PER_S);
  }
  ms_json_out_array(out, "comm");
  for (int stage = 0; stage < stages; stage++)
    for (int class = 0; class < MS_N_COMMS; class ++) {
      const CommSum *c = &sum[stage * MS_N_COMMS + class];
      if (c->n > 0)
        write_comm(class, stage, c, result->stage_time && stage < result->stages ? &result->stage_time[stage] : NULL,
                   out);
    }
  ms_json_out_end(out);
}
