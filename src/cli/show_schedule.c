#include <math.h>
#include <string.h>

#include "base/io.h"
#include "cli/show.h"
#include "report/report.h"

enum { MOST_DRAWN = 50000 /* passes in an SVG: browsers draw no more with ease */ };
enum { MOST_STAGES = 1024, MOST_MICROBATCHES = 65536, MOST_CHUNKS = 256, MOST_SLOTS = 4 * 1000 * 1000 };

typedef struct {
  double forward, input_grad, weight_grad, comm;
} Times;

static gboolean parse_times(const char *text, Times *t) {
  *t = (Times){1, 1, 1, 0};
  if (!text) return TRUE;
  double value[4];
  g_auto(GStrv) part = g_strsplit(text, ",", -1);
  if (g_strv_length(part) != G_N_ELEMENTS(value)) return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(value); i++) {
    char *end = NULL;
    value[i] = g_ascii_strtod(part[i], &end);
    if (end == part[i] || *end || !isfinite(value[i]) || value[i] < 0 || value[i] > 1e12) return FALSE;
  }
  *t = (Times){value[0], value[1], value[2], value[3]};
  return t->forward + t->input_grad + t->weight_grad > 0;
}

static int default_chunks(int kind) { return MAX(1, ms_schedule_chunks((MsScheduleKind)kind)); }

/* --- as JSON --------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *name;
  const MsSchedule *schedule;
  const MsScheduleRun *run;
} Shown;

static const void *stage_of(const void *schedule, guint i, MsFigureCursor *room) {
  return ms_figure_place(schedule, i, (guint)((const MsSchedule *)schedule)->stages, room);
}
static double peak_in_flight(const void *stage) {
  return ms_schedule_peak_in_flight(MS_FIGURE_OWNER(MsSchedule, stage), (int)MS_FIGURE_I(stage));
}

/* ["F", 0, 1], of a paired pass ["FB", 0, 1, 2, 3]. */
static void write_order(const void *schedule, const char *key, MsJsonOut *out) {
  const MsSchedule *s = schedule;
  ms_json_out_array(out, key);
  for (int i = 0; i < s->stages; i++) {
    ms_json_out_array(out, NULL);
    for (int k = 0; k < s->n[i]; k++) {
      const MsSlot *slot = &s->slot[i][k];
      const int number[] = {slot->mb, slot->chunk, slot->mb2, slot->chunk2};
      ms_json_out_array(out, NULL);
      ms_json_out_string(out, NULL, slot->kind == MS_SLOT_I ? "B" : ms_slot_words[slot->kind]);
      for (int n = 0; n < (slot->kind == MS_SLOT_FB ? 4 : 2); n++) ms_json_out_int(out, NULL, number[n]);
      ms_json_out_end(out);
    }
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

const MsFigures ms_show_schedule_figures = MS_FIGURE_TABLE(
    "schedule", "`moesim show schedule NAME --json`.", MS_FIGURE_AS("schedule", STRING, Shown, name, "", "its word"),
    MS_FIGURE_ROWS_AT(Shown, schedule,
                      MS_FIGURES(MS_FIGURE(INT, MsSchedule, stages, "", "of the pipeline"),
                                 MS_FIGURE(INT, MsSchedule, microbatches, "", "of a step"),
                                 MS_FIGURE(INT, MsSchedule, chunks, "", "of a stage"))),
    MS_FIGURE_ROWS_AT(
        Shown, run,
        MS_FIGURES(MS_FIGURE(F64, MsScheduleRun, makespan, "", "in units of --times"),
                   MS_FIGURE(F64, MsScheduleRun, span, "", "of the busiest stage, from its first pass to its last"),
                   MS_FIGURE(F64, MsScheduleRun, bubble_fraction, "1", "of the span, in which the stage waits"))),
    MS_FIGURE_ROWS_AT(Shown, schedule,
                      MS_FIGURES(MS_FIGURE_EACH("peak_in_flight", LIST, stage_of,
                                                MS_FIGURES(MS_FIGURE_OF("", INT, peak_in_flight, "", NULL)),
                                                .doc = "forwards alive at most, of each stage"),
                                 {.key = "order",
                                  .type = MS_FIGURE_FILE,
                                  .write = write_order,
                                  .doc = "of each stage its passes: kind, microbatch, chunk, and of a pair the "
                                         "microbatch and chunk of the backward"})));

static void print_json(const char *name, const MsSchedule *s, const MsScheduleRun *run) {
  ms_cli_print_file(ms_figures_json(&ms_show_schedule_figures, &(Shown){name, s, run}));
}

static void print_text(const char *name, const MsSchedule *s, const MsScheduleRun *run) {
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%s, %d stages, %d microbatches, %d chunk%s per stage\n", name, s->stages,
                         s->microbatches, s->chunks, s->chunks == 1 ? "" : "s");
  g_string_append_printf(out, "makespan %.6g, span %.6g, bubble %.2f %%\n", run->makespan, run->span,
                         100 * run->bubble_fraction);
  g_string_append(out, "forwards alive at most, by stage:");
  for (int i = 0; i < s->stages; i++) g_string_append_printf(out, " %d", ms_schedule_peak_in_flight(s, i));
  g_string_append(out, "\n\n");
  g_autofree char *picture = ms_report_schedule(s, run, ms_report_width(), ms_report_flags());
  g_string_append(out, picture);
  ms_cli_print_file(g_string_free(out, FALSE)); /* the picture has the width of the terminal */
}

static int check(const MsVerb *verb, const MsShow *show, int chunks) {
  if (!show->stages || !show->microbatches)
    return ms_cli_usage(verb, "show schedule needs --stages P and --microbatches M");
  if (show->stages < 1 || show->stages > MOST_STAGES)
    return ms_cli_usage(verb, "--stages %d: give 1 to %d", show->stages, MOST_STAGES);
  if (show->microbatches < 1 || show->microbatches > MOST_MICROBATCHES)
    return ms_cli_usage(verb, "--microbatches %d: give 1 to %d", show->microbatches, MOST_MICROBATCHES);
  if (chunks < 1 || chunks > MOST_CHUNKS) return ms_cli_usage(verb, "--chunks %d: give 1 to %d", chunks, MOST_CHUNKS);
  if (show->group != MS_CLI_UNSET && show->group < 1)
    return ms_cli_usage(verb, "--group %d: give a positive number", show->group);
  if ((gint64)show->stages * show->microbatches * chunks > MOST_SLOTS)
    return ms_cli_usage(verb, "stages x microbatches x chunks is over %d", MOST_SLOTS);
  if (show->svg && (gint64)show->stages * show->microbatches * chunks > MOST_DRAWN)
    return ms_cli_usage(verb, "--svg: stages x microbatches x chunks is over %d, too many to draw", MOST_DRAWN);
  if (show->json && show->svg && strcmp(show->svg, "-") == 0)
    return ms_cli_usage(verb, "--json and --svg cannot both go to standard output");
  return 0;
}

static int write_svg(const char *file, const char *name, const MsSchedule *schedule, const MsScheduleRun *run) {
  GError *error = NULL;
  g_autofree char *svg = ms_report_schedule_svg(name, schedule, run);
  return ms_write_file(file, svg, -1, &error) ? 0 : ms_cli_fail(error);
}

int ms_list_schedules(const MsShow *show) {
  MsJsonOut *out = show->json ? ms_json_out_new(0) : NULL;
  if (out) ms_json_out_array(out, NULL);
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++) {
    const MsScheduleRow *row = ms_schedule_row((MsScheduleKind)kind);
    if (out) ms_json_out_string(out, NULL, row->word);
    else printf("%-12s %s\n", row->word, row->about);
  }
  if (!out) return 0;
  ms_json_out_end(out);
  ms_cli_print_json(out);
  return 0;
}

int ms_show_schedule(const MsShow *show, const char *name) {
  const MsVerb *verb = ms_cli_verb("show");
  Times t;
  char why[256] = "";
  int kind = ms_cli_word(verb, "schedule", name, ms_schedule_words);
  if (kind < 0) return MS_ERROR_USAGE;
  int chunks = show->chunks != MS_CLI_UNSET ? show->chunks : default_chunks(kind), status = check(verb, show, chunks);
  if (status) return status;
  if (!parse_times(show->times, &t))
    return ms_cli_usage(verb, "--times %s: give four numbers F,B,W,COMM from 0 to 1e12, not all of F, B, W 0",
                        show->times);
  g_autoptr(MsSchedule) schedule =
      ms_schedule_new(kind, show->stages, show->microbatches, chunks, show->group != MS_CLI_UNSET ? show->group : 0,
                      show->ep_overlap, why, sizeof why);
  GError *error = NULL;
  if (!schedule) return ms_error(&error, MS_ERROR_INPUT, "schedule %s: %s", name, why), ms_cli_fail(error);
  MsScheduleRun *run = ms_schedule_run(schedule, t.forward, t.input_grad, t.weight_grad,
                                       t.forward + t.input_grad + t.weight_grad, t.comm);
  if (!run) MS_BUG("schedule %s does not run", name);
  if (show->svg) status = write_svg(show->svg, name, schedule, run);
  if (status == 0 && show->json) print_json(name, schedule, run);
  else if (status == 0 && !(show->svg && strcmp(show->svg, "-") == 0)) print_text(name, schedule, run);
  ms_schedule_run_free(run);
  return status;
}
