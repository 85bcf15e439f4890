/* src/exec/rows.c - one list of rows: each is run, timed, and compared with what the list says of it. */
#include "exec/state_priv.h"

#include "base/clock.h"
#include <math.h>
#include <string.h>

/* --- ledger ---------------------------------------------------------------------------------------------------- */

static double tensors_B(Exec *x, const MsKept *kept, gboolean freeing) {
  const char *own[2];
  const char *const *part = ms_exec_kept_parts(x, kept, own);
  double bytes = 0;
  gboolean any = FALSE;
  if (part && !part[0]) return kept->bytes_B; /* only the framework holds it */
  for (int i = 0; part && part[i]; i++) {
    Tensor *t = ms_store_find(x->frame, part[i]);
    if (!t) continue;
    any = TRUE;
    bytes += (double)t->n * t->width_B;
    if (freeing && !t->read && !x->options->unchecked)
      ms_exec_fail(x, MS_ERROR_NOTHING,
                   "%s gives \"%s\" back (%.0f B kept as \"%s\"), which no row of the backward pass has read",
                   ms_exec_row_text(x), t->name, (double)t->n * t->width_B, kept->name);
  }
  if (!any && !x->options->unchecked)
    ms_exec_fail(x, MS_ERROR_NOTHING, "%s %s \"%s\" (%.0f B), and no such tensor is there", ms_exec_row_text(x),
                 freeing ? "gives back" : "keeps", kept->name, kept->bytes_B);
  return bytes;
}

/* --- natural routing: the list says what comes on average, so what depends on it is not compared --------------- */

static gboolean kept_routed(const Exec *x, const MsKept *kept) {
  static const char *const routed[] = {"expert input",
                                       "expert fc1 out",
                                       "permuted probs",
                                       "expert activation out",
                                       "expert activation, unweighted",
                                       NULL};
  return ms_exec_natural(x) && g_strv_contains(routed, kept->name);
}

static gboolean row_routed(const Exec *x, const MsOp *op) {
  gboolean crosses = ms_op_moves_tokens(op) || op->kind == MS_OP_GROUPED_GEMM || op->group == MS_GROUP_ETP;
  return ms_exec_natural(x) && crosses;
}

/* Bytes of one kept tensor; the list's sum is told where it could not know them. */
static double kept_bytes(Exec *x, const MsKept *kept, gboolean freeing) {
  double bytes = tensors_B(x, kept, freeing);
  if (kept_routed(x, kept)) x->said_B += (freeing ? -1 : 1) * (bytes - kept->bytes_B);
  return bytes;
}

static char *held_text(Exec *x, const MsPiece *piece, int row) {
  GString *text = g_string_new(NULL);
  for (int i = 0; i < piece->n_kept; i++) {
    const MsKept *k = &piece->kept[i];
    if (x->backward ? k->freed_at <= row : k->kept_at > row) continue;
    g_string_append_printf(text, "%s%s %.0f B (said %.0f)", text->len ? ", " : "", k->name, tensors_B(x, k, FALSE),
                           k->bytes_B);
  }
  return g_string_free(text, FALSE);
}

static void ledger(Exec *x, const MsPiece *piece, int row, const MsOp *op) {
  for (int i = 0; i < piece->n_kept; i++) {
    const MsKept *k = &piece->kept[i];
    if (!x->backward && k->kept_at == row) x->kept_B += kept_bytes(x, k, FALSE);
    if (x->backward && !x->split && k->freed_at == row) x->kept_B -= kept_bytes(x, k, TRUE);
  }
  x->said_B += op->keep_B - (x->split ? 0 : op->free_B);
  x->peak_B = MAX(x->peak_B, x->kept_B);
  if (fabs(x->kept_B - x->said_B) < 0.5 || x->options->unchecked) return;
  x->note = held_text(x, piece, row);
  ms_exec_fail(x, MS_ERROR_NOTHING,
               "ledger: after %s %.0f B are held for backward, the list says %.0f; this piece holds %s",
               ms_exec_row_text(x), x->kept_B, x->said_B, x->note);
}

/* Dropped as the list gives it back, so that no later row finds it. */
static void drop_freed(Exec *x, const MsPiece *piece, int row) {
  const char *own[2];
  for (int i = 0; i < piece->n_kept; i++) {
    if (piece->kept[i].freed_at != row) continue;
    const char *const *part = ms_exec_kept_parts(x, &piece->kept[i], own);
    for (int j = 0; part && part[j]; j++) ms_exec_drop(x, part[j]);
  }
}

void ms_exec_forward_ended(Exec *x, const MsPiece *piece) {
  const char *own[2];
  for (int i = x->frame->n - 1; i >= 0; i--) {
    gboolean keep = FALSE;
    for (int k = 0; k < piece->n_kept && !keep; k++) {
      const char *const *part = ms_exec_kept_parts(x, &piece->kept[k], own);
      for (int j = 0; part && part[j]; j++) keep |= strcmp(part[j], x->frame->t[i].name) == 0;
    }
    x->frame->t[i].read = FALSE;
    if (!keep) ms_store_drop(x, x->frame, i);
  }
}

void ms_exec_backward_ended(Exec *x, const MsPiece *piece) {
  if (x->split)
    for (int i = 0; i < piece->n_kept; i++)
      x->kept_B -= kept_bytes(x, &piece->kept[i], TRUE), x->said_B -= piece->kept[i].bytes_B;
  ms_store_clear(x, x->frame);
}

/* --- messages and FLOP ----------------------------------------------------------------------------------------- */

static gboolean near(double a, double b) { return fabs(a - b) <= 1e-9 * MAX(fabs(a), fabs(b)) + 1e-6; }

static void compare(Exec *x, const MsOp *op, double flop) {
  MsOpFamily family = ms_op_families[op->kind];
  if (x->options->unchecked || row_routed(x, op)) return;
  double said = isnan(x->said_message_B) ? op->message_B : x->said_message_B;
  if (!near(x->message_B, said)) /* rows that are no messages have 0 */
    ms_exec_fail(x, MS_ERROR_NOTHING, "messages: %s handed %.17g B to MPI, the list says %.17g", ms_exec_row_text(x),
                 x->message_B, said);
  gboolean counted = family == MS_FAMILY_GEMM || family == MS_FAMILY_GROUPED || family == MS_FAMILY_ATTENTION;
  if (counted && !near(flop, op->flop))
    ms_exec_fail(x, MS_ERROR_NOTHING, "FLOP: the kernels of %s counted %.17g, the list says %.17g", ms_exec_row_text(x),
                 flop, op->flop);
}

/* `start_s`: on the clock of the process. */
static void record(Exec *x, const Row *row, double start_s, double cpu_s, double wall_s, double flop) {
  MsExecRow *r = &g_array_index(x->results, MsExecRow, row->result);
  r->flop = flop, r->message_B = x->message_B;
  if (x->step < x->options->warm_steps) return;
  if (r->calls == 0 || wall_s < r->least_wall_s) r->least_wall_s = wall_s;
  r->calls++;
  r->cpu_s += cpu_s, r->wall_s += wall_s;
  if (!x->options->spans) return;
  MsExecSpan span = {row->result, x->step - x->options->warm_steps, start_s - x->since_s,
                     start_s - x->since_s + wall_s};
  g_array_append_val(x->spans, span);
}

static void run_row(Exec *x, const Row *row) {
  double flop = x->run.flop;
  x->row = row;
  x->message_B = 0, x->row_flop = x->said_message_B = NAN;
  double start = ms_clock_s(CLOCK_MONOTONIC), cpu = ms_process_cpu_s();
  row->handler->run(x);
  cpu = ms_process_cpu_s() - cpu;
  double wall = ms_clock_s(CLOCK_MONOTONIC) - start;
  ms_exec_scratch_clear(x);
  flop = isnan(x->row_flop) ? x->run.flop - flop : x->row_flop;
  x->step_flop += flop;
  x->step_message_B += x->message_B;
  record(x, row, start, cpu, wall, flop);
  compare(x, row->op, flop);
}

void ms_exec_rows(Exec *x, const RowList *rows, int from, int to, MsListPart part, const MsPiece *piece) {
  for (int i = from; i < to; i++) {
    const MsOp *op = rows->row[i].op;
    if (!ms_in_list_part(op, part)) continue;
    run_row(x, &rows->row[i]);
    if (!piece) continue;
    ledger(x, piece, i, op);
    if (x->backward && !x->split) drop_freed(x, piece, i);
  }
  x->row = NULL;
}
