/* src/bound/stages.c - what stages wait for and hand on. */
#include "bound/stages.h"

#define NEVER MS_NEVER

static void fill(MsTime *a, size_t n, MsTime value) {
  for (size_t i = 0; i < n; i++) a[i] = value;
}

MsStages ms_stages_new(const MsProgram *p, const MsSchedule *schedule) {
  MsStages s = {.p = p, .walk = ms_slot_walk_new(schedule, MS_ALL_STAGES, p->scenario->options.ep_overlap)};
  size_t n = (size_t)schedule->stages, tensors = (size_t)ms_slot_walk_tensors(s.walk);
  s.all = g_new(MsTime, 9 * n + tensors);
  s.compute = s.all, s.host = s.compute + n, s.stream_f = s.host + n, s.stream_b = s.stream_f + n;
  s.message = s.stream_b + n, s.tip = s.message + 2 * n, s.send = s.tip + n, s.made = s.send + 2 * n;
  s.host_decides = g_new0(gboolean, n);
  fill(s.compute, 6 * n, 0), fill(s.tip, 3 * n, NEVER);
  return s;
}

void ms_stages_send_messages(MsStages *s) {
  for (int i = 0; i < ms_scenario_stage_machines(s->p->scenario); i++) {
    const MsHardware *machine = ms_program_machine(s->p, i);
    s->launch[i] = ms_time_of(s->p->p2p_op.kernels * machine->kernel_launch_s);
    s->sync[i] = ms_time_of(machine->sync_s);
  }
  s->message[0] = ms_time_of(s->p->p2p.time_s);
  for (int i = 0; s->p->message && i < 2 * s->p->layout->pp; i++) s->message[i] = ms_time_of(s->p->message[i].time_s);
}

void ms_stages_clear(MsStages *s) {
  ms_slot_walk_free(s->walk);
  g_free(s->host_decides), g_free(s->all);
}

/* --- the step's own rows --- */

MsRowTimes ms_row_times(int rows) { return (MsRowTimes){.end = g_new0(MsTime, MAX(rows, 1))}; }

void ms_row_run(MsRowTimes *rows, const MsCosted *c, int i, MsTime start) {
  const MsOp *op = &c->list->op[i];
  start = MAX(start, rows->stream[op->stream]);
  if (c->launch[i] > 0) {
    rows->host += c->launch[i];
    start = MAX(start, rows->host);
  }
  rows->end[i] = rows->stream[op->stream] = start + c->duration[i];
  if (op->flags & MS_OPF_SYNC) rows->host = MAX(rows->host, rows->end[i]);
}

MsTime ms_row_waits(const MsRowTimes *rows, const MsOp *op, int from, MsTime none) {
  MsTime start = NEVER;
  gboolean any = FALSE;
  for (int j = 0; j < 3; j++)
    if (op->wait[j] >= from) start = MAX(start, rows->end[op->wait[j]]), any = TRUE;
  return any ? start : none;
}

MsRowTimes ms_stages_before(MsStages *s, int stage) {
  const MsCostedStep *step = &s->p->step[stage];
  const MsOpList *before = step->before.list;
  MsRowTimes rows = ms_row_times(MAX(before->n, step->gather.list->n));
  for (int i = 0; i < before->n; i++) ms_row_run(&rows, &step->before, i, ms_row_waits(&rows, &before->op[i], 0, 0));
  if (before->n > 0) s->tip[stage] = rows.end[before->tip];
  s->compute[stage] = rows.stream[MS_STREAM_COMPUTE];
  return rows;
}
