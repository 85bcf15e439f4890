/* src/exec/state.c - what any row may ask of the run it is part of, and how a run ends that cannot go on. */
#include "exec/state_priv.h"

#include <stdarg.h>
#include <stdio.h>

void ms_exec_fail(Exec *x, MsErrorCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  if (x->layout->world > 1) {
    fprintf(stderr, "moesim: %s: rank %d: %s\n", x->scenario->file ? x->scenario->file : "scenario", x->rank, text);
    fflush(stderr);
    ms_comm_abort(x->comm, code);
  }
  g_set_error(&x->error, MS_ERROR, code, "%s: %s", x->scenario->file ? x->scenario->file : "scenario", text);
  g_free(g_steal_pointer(&text)); /* the jump passes the automatic one by */
  longjmp(x->fail, 1);
}

const char *ms_exec_row_text(const Exec *x) {
  static _Thread_local char text[200];
  const MsOp *op = x->row ? x->row->op : NULL;
  if (!op) return "the executor";
  g_snprintf(text, sizeof text, "%s \"%s\" (%s, %s%s%s)", ms_op_words[op->kind], op->name, ms_module_words[op->module],
             ms_pass_words[op->pass], x->now ? ", " : "", x->now ? x->work->pieces[x->now->piece].name : "");
  return text;
}

void ms_exec_sent(Exec *x, double elements, double width_B) { x->message_B += elements * width_B; }

gboolean ms_exec_natural(const Exec *x) {
  return x->model->num_experts > 0 && x->scenario->training.routing.kind == MS_ROUTING_NATURAL;
}
