#include "local/run.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "exec/exec.h"
#include "layout/layout.h"
#include "local/machine.h"

void ms_step_run_free(MsStepRun *run) {
  if (!run) return;
  if (run->rows) g_array_unref(run->rows);
  g_free(run);
}

static MsStepRun *run_new(void) {
  MsStepRun *run = g_new0(MsStepRun, 1);
  run->ranks = 1;
  run->rows = g_array_new(FALSE, FALSE, sizeof(MsRunRow));
  return run;
}

MsStepRun *ms_step_run(const MsScenario *scenario, const char *blas, int steps, GError **error) {
  MsExecOptions options = {.type = MS_BLAS_F32, .blas = blas, .threads = 1, .steps = steps, .warm_steps = 1};
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(scenario, error);
  const MsBlas *library = layout ? ms_blas_open(blas, error) : NULL;
  if (!library) return NULL;
  double before_flops = ms_blas_reference_flops(library);
  g_autoptr(MsExecResult) result = ms_exec_run(scenario, &options, error);
  if (!result) return NULL;
  MsStepRun *run = run_new();
  run->ranks = result->ranks;
  run->reference_flops = MAX(before_flops, ms_blas_reference_flops(library));
  for (int i = 0; i < result->steps; i++) {
    if (run->step_cpu_s <= 0 || result->step_cpu_s[i] < run->step_cpu_s) run->step_cpu_s = result->step_cpu_s[i];
    if (run->step_s > 0 && result->step_s[i] >= run->step_s) continue;
    run->step_s = result->step_s[i];
    run->quiet = ms_machine_quiet(result->step_cpu_s[i], result->step_s[i]);
  }
  for (int i = 0; i < result->ranks; i++) run->kept_B = MAX(run->kept_B, result->peak_kept_B[i]);
  for (int i = 0; i < result->n_rows; i++) {
    const MsExecRow *row = &result->rows[i];
    if (row->calls == 0) continue;
    MsRunRow r = {.op = row->op,
                  .ranks = MAX(layout->group[row->op.group].size, 1),
                  .calls = (double)row->calls / result->steps,
                  .cpu_s = row->cpu_s / row->calls,
                  .wall_s = row->wall_s / row->calls};
    g_array_append_val(run->rows, r);
  }
  return run;
}

/* --- as text --------------------------------------------------------------------------------------------------- */
char *ms_step_run_text(const MsStepRun *run) {
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "step %d %.9g %.9g %d %.9g %.17g\n", run->ranks, run->step_s, run->step_cpu_s, run->quiet,
                         run->reference_flops, run->kept_B);
  for (guint i = 0; i < run->rows->len; i++) {
    const MsRunRow *r = &g_array_index(run->rows, MsRunRow, i);
    const MsOp *op = &r->op;
    g_string_append_printf(
        out, "row %d %d %d %d %d %d %d %d %d %.17g %.17g %.17g %.17g %.17g %.17g %.17g %.17g %.17g %.9g %.9g %s\n",
        op->kind, op->pass, op->dtype, op->flags, op->kernels, op->groups, op->kv_groups, op->group, r->ranks, op->m,
        op->n, op->k, op->flop, op->read_B, op->write_B, op->message_B, op->local_fraction, r->calls, r->cpu_s,
        r->wall_s, op->name);
  }
  return g_string_free(out, FALSE);
}

static gboolean parse_row(const char *line, MsRunRow *r) {
  int kind, pass, dtype, flags, kernels, groups, kv_groups, group, at = 0;
  MsOp *op = &r->op;
  *r = (MsRunRow){0};
  if (sscanf(line, "row %d %d %d %d %d %d %d %d %d %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %n", &kind, &pass,
             &dtype, &flags, &kernels, &groups, &kv_groups, &group, &r->ranks, &op->m, &op->n, &op->k, &op->flop,
             &op->read_B, &op->write_B, &op->message_B, &op->local_fraction, &r->calls, &r->cpu_s, &r->wall_s,
             &at) != 20)
    return FALSE;
  if (kind < 0 || kind >= MS_N_OPS || pass < 0 || pass >= MS_N_PASSES || dtype < 0 || dtype >= MS_N_ODT || group < 0 ||
      group >= MS_N_GROUPS)
    return FALSE;
  op->kind = (guint8)kind, op->pass = (guint8)pass, op->dtype = (guint8)dtype, op->flags = (guint16)flags,
  op->kernels = (guint16)kernels;
  op->groups = groups, op->kv_groups = kv_groups, op->group = (guint8)group, op->name = g_intern_string(line + at);
  return TRUE;
}

MsStepRun *ms_step_run_parse(const char *text, const char *filename, GError **error) {
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  g_autoptr(MsStepRun) run = run_new();
  int quiet = 0;
  if (sscanf(lines[0] ? lines[0] : "", "step %d %lf %lf %d %lf %lf", &run->ranks, &run->step_s, &run->step_cpu_s,
             &quiet, &run->reference_flops, &run->kept_B) != 6) {
    ms_input_error(error, filename, 1, NULL, "is no result of a step");
    return NULL;
  }
  run->quiet = quiet != 0;
  for (int i = 1; lines[i]; i++) {
    MsRunRow row;
    if (!*lines[i]) continue;
    if (!parse_row(lines[i], &row)) {
      ms_input_error(error, filename, i + 1, NULL, "is no row of a step");
      return NULL;
    }
    g_array_append_val(run->rows, row);
  }
  return g_steal_pointer(&run);
}
