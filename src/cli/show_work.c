#include <string.h>

#include "base/text.h"
#include "cli/show.h"
#include "report/report.h"

/* A scenario with everything that stands between it and its operator list. */
typedef struct {
  MsScenario *scenario;
  MsLayout *layout;
  MsWork *work;
} Lowered;

static void lowered_clear(Lowered *l) {
  ms_work_free(l->work);
  ms_layout_free(l->layout);
  ms_scenario_free(l->scenario);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Lowered, lowered_clear)

static gboolean lower(const char *name, Lowered *l, GError **error) {
  l->scenario = ms_scenario_load_mixed(name, error);
  l->layout = l->scenario ? ms_layout_new_or_error(l->scenario, error) : NULL;
  l->work = l->layout ? ms_work_new(l->scenario, l->layout, error) : NULL;
  return l->work != NULL;
}

static MsSchedule *schedule_of(const Lowered *l, GError **error) {
  char why[256] = "";
  const MsScenario *s = l->scenario;
  const MsScheduleNumbers numbers = ms_layout_schedule_numbers(s, l->layout);
  MsSchedule *schedule = ms_schedule_for(s->layout.schedule, &numbers, why, sizeof why);
  if (!schedule) ms_input_error(error, s->file, 0, "layout.schedule", "%s", why);
  return schedule;
}

/* --- operators ------------------------------------------------------------------------------------------------- */
static void shape_cell(MsTable *table, const MsOp *op) {
  if (op->groups > 1 && op->k > 0) ms_table_cellf(table, "%d x [%.6g %.6g %.6g]", op->groups, op->m, op->n, op->k);
  else if (op->k > 0) ms_table_cellf(table, "%.6g x %.6g x %.6g", op->m, op->n, op->k);
  else if (op->m > 0) ms_table_cellf(table, "%.6g x %.6g", op->m, op->n);
  else ms_table_cell(table, "");
}

static void figure_cell(MsTable *table, double value) {
  ms_table_cell(table, value > 0 ? MS_FORMAT("%.4g", value) : "");
}

static void op_rows(MsTable *table, const MsOpList *list) {
  for (int i = 0; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    ms_table_cellf(table, "  %s", op->name);
    const char *stream = ms_stream_words[op->stream], *group = ms_group_words[op->group];
    gboolean alone = op->group == MS_GROUP_NONE || strcmp(group, stream) == 0;
    MS_TABLE_ROW(table, ms_op_words[op->kind], ms_pass_words[op->pass],
                 alone ? stream : MS_FORMAT("%s, %s", stream, group));
    shape_cell(table, op);
    ms_table_cell(table, ms_odt_words[op->dtype]);
    figure_cell(table, op->flop / 1e9);
    figure_cell(table, (op->read_B + op->write_B + op->message_B) / 1e6); /* of a row the one or the other */
    figure_cell(table, op->keep_B / 1e6);
  }
}

static void append_ops(GString *out, const MsOpList *const *list, int n) {
  MsTable *table = ms_table_of("  row|op|pass|stream, group|shape|type|>GFLOP|>moves MB|>keeps MB");
  for (int i = 0; i < n; i++) op_rows(table, list[i]);
  ms_table_append(table, out);
}

#define SIZE(m, d)  MS_FIGURE(F64, MsOp, m, "", d)
#define BYTES(m, d) MS_FIGURE(F64, MsOp, m, "B", d)
static const MsFigures op_figures = MS_FIGURE_TABLE(
    "operator", "A row of work: `moesim schema` lists the operators.", MS_FIGURE(STRING, MsOp, name, "", "of the row"),
    MS_FIGURE_WORDS("op", MsOp, kind, ms_op_words, "operator"),
    MS_FIGURE_WORDS("pass", MsOp, pass, ms_pass_words, "forward, dgrad, wgrad, ..."),
    MS_FIGURE_WORDS("stream", MsOp, stream, ms_stream_words, "it runs on"),
    MS_FIGURE_WORDS("group", MsOp, group, ms_group_words, "of ranks that communicate"),
    MS_FIGURE_WORDS("dtype", MsOp, dtype, ms_odt_words, "of the operands"), SIZE(m, "rows"), SIZE(n, "columns"),
    SIZE(k, "depth"), MS_FIGURE(INT, MsOp, groups, "", "local experts; attention: batch x heads"),
    MS_FIGURE(F64, MsOp, flop, "FLOP", "executed"), BYTES(read_B, "of memory"), BYTES(write_B, "of memory"),
    BYTES(message_B, "sent"), BYTES(keep_B, "kept for backward from its end on"),
    BYTES(free_B, "no longer kept from its end on"));
static const MsFigures piece_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(CHARS, MsPiece, name, "", "of the piece"), MS_FIGURE(F64, MsPiece, params_dense, "", "on a rank"),
    MS_FIGURE(F64, MsPiece, params_expert, "", "on a rank"),
    MS_FIGURE(F64, MsPiece, kept_B, "B", "for backward, of a microbatch"),
    MS_FIGURE(F64, MsPiece, model_flop, "FLOP", "of a microbatch"),
    MS_FIGURE_ARRAY("forward", LIST, MsPiece, forward.op, forward.n, &op_figures),
    MS_FIGURE_ARRAY("backward", LIST, MsPiece, backward.op, backward.n, &op_figures));
const MsFigures ms_ops_figures = MS_FIGURE_TABLE(
    "ops", "`moesim show --json ops`.", MS_FIGURE_ARRAY("pieces", LIST, MsWork, pieces, n_pieces, &piece_figures));

static void append_piece(GString *out, const MsPiece *p) {
  g_string_append_printf(out, "%s: %s dense and %s expert parameters on a rank, keeps %s per microbatch\n", p->name,
                         MS_COUNT(p->params_dense), MS_COUNT(p->params_expert), MS_BYTES(p->kept_B));
  append_ops(out, (const MsOpList *const[]){&p->forward, &p->backward}, 2);
  g_string_append_c(out, '\n');
}

int ms_show_ops(const MsShow *show, const char *name) {
  GError *error = NULL;
  g_auto(Lowered) l = {0};
  if (!lower(name, &l, &error)) return ms_cli_fail(error);
  if (show->json) {
    ms_cli_print(ms_figures_json(&ms_ops_figures, l.work));
    return 0;
  }
  GString *out = g_string_new(NULL);
  for (int i = 0; i < l.work->n_pieces; i++) append_piece(out, &l.work->pieces[i]);
  MsStepOps step;
  ms_work_step_ops(l.work, 0, &step);
  g_string_append(out, "once per step, stage 0: before, parameter gather, gradient reduction, after\n");
  append_ops(out, (const MsOpList *const[]){&step.before, &step.gather, &step.reduce, &step.after}, 4);
  ms_step_ops_clear(&step);
  ms_cli_print(g_string_free(out, FALSE));
  return 0;
}

/* --- memory ---------------------------------------------------------------------------------------------------- */
static void append_kept(GString *out, const MsPiece *p) {
  if (p->n_kept == 0) return;
  MsTable *table = ms_table_new();
  g_autofree char *title = g_strdup_printf("%s keeps per microbatch", p->name);
  ms_table_column(table, title, FALSE);
  ms_table_columns(table, ">bytes|>share");
  for (int i = 0; i < p->n_kept; i++) {
    ms_table_cellf(table, "  %s", p->kept[i].name);
    MS_TABLE_ROW(table, MS_BYTES(p->kept[i].bytes_B), p->kept_B > 0 ? MS_PERCENT(p->kept[i].bytes_B / p->kept_B) : "");
  }
  MS_TABLE_ROW(table, "  sum", MS_BYTES(p->kept_B), "");
  ms_table_append_below(table, out);
}

int ms_show_memory(const MsShow *show, const char *name) {
  GError *error = NULL;
  g_auto(Lowered) l = {0};
  if (!lower(name, &l, &error)) return ms_cli_fail(error);
  g_autoptr(MsSchedule) schedule = schedule_of(&l, &error);
  if (!schedule) return ms_cli_fail(error);
  g_autoptr(MsMemory) memory = ms_memory_new(l.work, schedule);
  double capacity_B = memory->stage[memory->peak_stage].capacity_B;
  if (show->json) {
    ms_cli_print(ms_figures_json(&ms_memory_figures, &(MsResult){.memory = memory, .capacity_B = capacity_B}));
    return 0;
  }
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%s\n", l.scenario->name);
  ms_text_append(out, ms_report_memory(memory, capacity_B, G_MAXINT));
  for (int i = 0; i < l.work->n_pieces; i++) append_kept(out, &l.work->pieces[i]);
  ms_cli_print(g_string_free(out, FALSE));
  return 0;
}
