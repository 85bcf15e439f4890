/* src/logs/training.c - logs of training runs. */
#include "logs/training.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/stats.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

enum { MOST_STEPS = 10000000, MOST_ARGUMENTS = 4096 };
#define SLOW    1.1 /* over the median: still warming up */
#define LONGEST 1e6 /* s, of a step */

typedef struct {
  MsTrainingLog *log;
  const char *file;
  MsReader *reader;
  GError **error;
  int form;                       /* of the table below; -1: not known yet */
  gboolean inside;                /* the block of arguments */
  double block_ms, block_samples; /* MLPerf */
  double step, samples;           /* Megatron-LM: number of the line before, and samples consumed by then; NaN */
  GHashTable *ranks;              /* that report memory */
  GHashTable *seen;               /* step lines, without what a launcher puts in front */
  GPtrArray *earlier;             /* the arguments in front of those of this block; NULL: none */
  int own_batch;                  /* that the arguments say; 0: they do not */
  char *speaker;                  /* what a launcher put in front of the step before */
  const char *line;               /* at hand */
} Reader;

static gboolean is_alike(const char *log, const char *what, int of_log, gint64 own, const MsScenario *run,
                         GError **error) {
  return of_log == 0 || of_log == own ||
         ms_input_error(error, log, 0, what, "is %d, %s has %" G_GINT64_FORMAT ": these are two runs", of_log,
                        run->file, own);
}

gboolean ms_training_log_is_of(const char *log, int batch, int gpus, const MsScenario *run, GError **error) {
  return is_alike(log, "global batch size", batch, ms_scenario_batch(run), run, error) &&
         is_alike(log, "world size", gpus, run->gpus, run, error);
}

void ms_training_log_free(MsTrainingLog *log) {
  if (!log) return;
  g_array_unref(log->steps);
  g_ptr_array_unref(log->arguments);
  g_free(log->changed);
  g_free(log);
}

/* --- numbers behind words -------------------------------------------------------------------------------------- */
/* Whether the comma at `at` stands between thousands ("5,812"), `before` digits from its group. */
static gboolean is_thousands(const char *at, gsize before) {
  return before >= 1 && before <= 3 && strspn(at + 1, "0123456789") == 3;
}

/* The number behind `key`, with thousands as TorchTitan prints them; NaN when there is none, and then *comma where that
 * is because of a decimal comma. `comma` may be NULL. */
static double number_behind(const char *line, const char *key, gboolean *comma) {
  const char *at = strstr(line, key);
  char digits[64], *end;
  gsize n = 0, group = 0; /* group: digits since the last comma */
  if (!at) return NAN;
  at += strlen(key);
  at += strspn(at, " :=");
  for (; *at && n + 1 < sizeof digits; at++) {
    if (*at == ',' && g_ascii_isdigit(at[1]) && group > 0) {
      if (!is_thousands(at, group)) {
        if (comma) *comma = TRUE;
        return NAN;
      }
      group = 0;
      continue;
    }
    if (!g_ascii_isalnum(*at) && !strchr("+-.", *at)) break;
    group = g_ascii_isdigit(*at) ? group + 1 : 0;
    digits[n++] = *at;
  }
  digits[n] = 0;
  double value = g_ascii_strtod(digits, &end);
  return end == digits ? NAN : value;
}

static double behind(const char *line, const char *key) { return number_behind(line, key, NULL); }

#define wrong(r, path, ...) ms_reader_wrong((r)->reader, path, (r)->error, __VA_ARGS__)

/* Says why there is no number behind `key`; `else_text` where it is no comma. */
static gboolean no_number(Reader *r, const char *line, const char *key, const char *path, const char *else_text) {
  gboolean comma = FALSE;
  number_behind(line, key, &comma);
  return wrong(r, path, "%s", comma ? "a comma is no decimal point: print the log with LC_ALL=C" : else_text);
}

/* What a launcher writes in front of each line: "[default0]:" of torchrun, "0: " of srun --label. */
static const char *behind_rank(const char *line) {
  const char *at = line + strspn(line, " "), *digits = at + strspn(at, "0123456789"), *bracket = strstr(line, "]:");
  if (digits > at && *digits == ':') return digits + 1;
  return *at == '[' && bracket && bracket - line < 24 ? bracket + 2 : line;
}

/* Whether the line at hand has a step again that another rank, or another logger, has printed. */
static gboolean is_repeated(Reader *r, int number) {
  const MsLogStep *last = r->log->steps->len ? &g_array_index(r->log->steps, MsLogStep, r->log->steps->len - 1) : NULL;
  g_autofree char *speaker = g_strndup(r->line, (gsize)(behind_rank(r->line) - r->line));
  gboolean other = g_strcmp0(speaker, r->speaker) != 0;
  if (last && (number == last->number || (other && number < last->number))) return TRUE;
  if (other) g_free(r->speaker), r->speaker = g_steal_pointer(&speaker);
  return FALSE;
}

/* Whether the line at hand stood there before: a restart prints other times, a log that is there twice the same. */
static gboolean is_copy(Reader *r) {
  return !g_hash_table_add(r->seen, GSIZE_TO_POINTER((gsize)ms_hash_text(behind_rank(r->line))));
}

static gboolean add_step(Reader *r, MsLogStep *step, const char *from) {
  gboolean timed = !isnan(step->time_s);
  if (timed && !(step->time_s > 0 && step->time_s < LONGEST))
    return wrong(r, from, "is %g s, must be above 0 and below %g", step->time_s, LONGEST);
  if (step->number < 0) step->number = (int)r->log->steps->len + 1;
  if (is_repeated(r, step->number)) return TRUE;
  if (is_copy(r)) return r->log->copies++, TRUE;
  if (r->log->steps->len >= MOST_STEPS) return wrong(r, NULL, "more than %d steps", MOST_STEPS);
  step->line = ms_reader_line_number(r->reader);
  g_array_append_val(r->log->steps, *step);
  return TRUE;
}

static void more_memory(double *most, double GiB) {
  if (GiB > 0 && GiB < 1e6 && !(*most >= GiB)) *most = GiB;
}

static int count_of(double value) { return value >= 0 && value < 1e9 ? (int)value : 0; }

/* -1: not known. */
static int step_number(double value) { return value >= 0 && value < 1e9 ? (int)value : -1; }

/* --- Megatron-LM, MindSpeed, Megatron Bridge ------------------------------------------------------------------- */
/* "[Rank 0] (after 10 iterations) memory (MB) | allocated: 23112.3 | max allocated: 51234.5 | reserved: ... | max
 * reserved: 60000.0" */
static void megatron_memory(Reader *r, const char *line) {
  const double to_GiB = 1.0 / 1024; /* its MB are 2^20 bytes */
  g_hash_table_add(r->ranks, g_strndup(line, strcspn(line, "]")));
  more_memory(&r->log->allocated_GiB, behind(line, "max allocated") * to_GiB);
  more_memory(&r->log->reserved_GiB, behind(line, "max reserved") * to_GiB);
}

static int batch_of(double value) { return value >= 1 && value < 1e9 && value == floor(value) ? (int)value : 0; }

/* The batch from what two steps consumed; 0: that does not say it. */
static int count_samples(Reader *r, double step, double samples) {
  double batch = (samples - r->samples) / (step - r->step);
  r->step = step, r->samples = samples;
  return batch_of(batch);
}

static gboolean megatron_line(Reader *r, const char *line) {
  static const char time_key[] = "elapsed time per iteration (ms)";
  if (strstr(line, "memory (MB)") && strstr(line, "max allocated")) return megatron_memory(r, line), TRUE;
  const char *iteration = strstr(line, "iteration ");
  if (!iteration || !strstr(line, time_key)) return TRUE;
  more_memory(&r->log->allocated_GiB, behind(line, "mem-max-allocated-gigabytes"));
  double loss = behind(line, "lm loss");
  int printed = batch_of(behind(line, "global batch size")),
      counted = count_samples(r, behind(iteration, "iteration "), behind(line, "consumed samples"));
  MsLogStep step = {.number = step_number(behind(iteration, "iteration ")),
                    .batch = printed ? printed : counted,
                    .time_s = behind(line, time_key) / 1e3,
                    .tokens_per_s = NAN,
                    .tflops = behind(line, "throughput per GPU (TFLOP/s/GPU)"),
                    .bad = behind(line, "number of nan iterations") > 0 ||
                           behind(line, "number of skipped iterations") > 0 ||
                           (strstr(line, "lm loss") && !isfinite(loss))};
  if (isnan(step.time_s)) return no_number(r, line, time_key, time_key, "no number follows");
  return add_step(r, &step, time_key);
}

static gboolean is_megatron(const char *line) { return strstr(line, "elapsed time per iteration (ms)") != NULL; }

/* "  hidden_size ..................................... 4096"; names of 48 letters and more have no dots. */
static void argument(Reader *r, const char *line) {
  const char *name = line + strspn(line, " ");
  gsize n = strspn(name, G_CSET_a_2_z G_CSET_A_2_Z G_CSET_DIGITS "_");
  if (n == 0 || name[n] != ' ' || r->log->arguments->len >= MOST_ARGUMENTS) return;
  const char *dots = name + n + 1;
  g_autofree char *dest = g_strndup(name, n), *value = g_strdup(dots + strspn(dots, "."));
  if (value[0] != ' ') return;
  g_strstrip(value);
  if (strcmp(dest, "world_size") == 0) r->log->world_size = count_of(g_ascii_strtod(value, NULL));
  if (strcmp(dest, "global_batch_size") == 0) r->own_batch = batch_of(g_ascii_strtod(value, NULL));
  g_ptr_array_add(r->log->arguments, g_strdup_printf("%s %s", dest, value));
}

/* Whether a printed argument ("name value") may be another at each start of one run. */
static gboolean is_of_a_start(const char *argument) {
  static const char *const names[] = {"load",
                                      "save",
                                      "rank",
                                      "local_rank",
                                      "iteration",
                                      "exit_interval",
                                      "train_iters",
                                      "finetune",
                                      "ckpt_step",
                                      "no_load_optim",
                                      "no_load_rng",
                                      "iterations_to_skip",
                                      "consumed_train_samples",
                                      "consumed_valid_samples",
                                      "exit_duration_in_mins",
                                      NULL};
  g_autofree char *name = g_strndup(argument, strcspn(argument, " "));
  return g_strv_contains(names, name);
}

/* The first argument of `a` that is not among `b`, but for those of a start; NULL: none. */
static const char *first_beyond(const GPtrArray *a, const GPtrArray *b) {
  g_autoptr(GHashTable) known = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < b->len; i++) g_hash_table_add(known, b->pdata[i]);
  for (guint i = 0; i < a->len; i++)
    if (!is_of_a_start(a->pdata[i]) && !g_hash_table_contains(known, a->pdata[i])) return a->pdata[i];
  return NULL;
}

/* Behind other arguments another run begins, of which nothing that was read so far says anything. */
static void arguments_end(Reader *r) {
  MsTrainingLog *log = r->log;
  r->inside = FALSE;
  const char *other = r->earlier ? first_beyond(log->arguments, r->earlier) : NULL;
  if (r->earlier && !other) other = first_beyond(r->earlier, log->arguments);
  if (!other) return;
  log->runs++;
  g_free(log->changed), log->changed = g_strndup(other, strcspn(other, " "));
  for (guint i = 0; i < log->steps->len; i++) g_array_index(log->steps, MsLogStep, i).other = TRUE;
  log->allocated_GiB = log->reserved_GiB = NAN;
  g_hash_table_remove_all(r->ranks);
}

static void arguments_begin(Reader *r) {
  r->inside = TRUE;
  if (r->log->arguments->len > 0) {
    g_clear_pointer(&r->earlier, g_ptr_array_unref);
    r->earlier = r->log->arguments;
    r->log->arguments = g_ptr_array_new_with_free_func(g_free);
  }
}

static void arguments_line(Reader *r, const char *line) {
  if (strstr(line, "end of arguments -")) arguments_end(r);
  else if (r->inside) argument(r, behind_rank(line));
  else if (strstr(line, "- arguments -")) arguments_begin(r);
  else if (strstr(line, "> padded vocab (size: ")) r->log->vocab_size = count_of(behind(line, "(size"));
}

/* --- NeMo 2 ---------------------------------------------------------------------------------------------------- */
/* "Training epoch 0, iteration 10/100 | lr: ... | global_step: 10 | reduced_train_loss: 11.0 | train_step_timing in s:
 * 9.12" */
static gboolean is_nemo(const char *line) { return strstr(line, "train_step_timing in s") != NULL; }

static gboolean nemo_line(Reader *r, const char *line) {
  if (!is_nemo(line)) return TRUE;
  double number = behind(line, "global_step");
  MsLogStep step = {.number = step_number(isnan(number) ? behind(line, "iteration ") : number),
                    .batch = batch_of(behind(line, "global_batch_size")),
                    .time_s = behind(line, "train_step_timing in s"),
                    .tokens_per_s = NAN,
                    .tflops = behind(line, "TFLOPS_per_GPU"),
                    .bad = strstr(line, "reduced_train_loss") && !isfinite(behind(line, "reduced_train_loss"))};
  if (isnan(step.time_s))
    return no_number(r, line, "train_step_timing in s", "train_step_timing in s", "no number follows");
  return add_step(r, &step, "train_step_timing in s");
}

/* --- TorchTitan ------------------------------------------------------------------------------------------------ */
/* "... step: 10  loss: 8.1  grad_norm: 1.2  memory: 42.10GiB(44.30%)  tps: 5,812  tflops: 312.40  mfu: 31.59%": memory
 * is what the allocator reserved at most, tps that of one GPU. */
static gboolean is_titan(const char *line) { return strstr(line, "step:") && strstr(line, "tps:"); }

static gboolean titan_line(Reader *r, const char *line) {
  if (!is_titan(line)) return TRUE;
  more_memory(&r->log->reserved_GiB, behind(line, "memory:"));
  MsLogStep step = {.number = step_number(behind(line, "step:")),
                    .time_s = NAN,
                    .tokens_per_s = behind(line, "tps:"),
                    .tflops = behind(line, "tflops:"),
                    .bad = !isfinite(behind(line, "loss:"))};
  if (!(step.tokens_per_s > 0)) return no_number(r, line, "tps:", "tps", "no number above 0 follows");
  return add_step(r, &step, "tps");
}

/* --- MLPerf ---------------------------------------------------------------------------------------------------- */
static gboolean is_mllog(const char *line) { return strstr(line, ":::MLLOG {") != NULL; }

static double member(JsonObject *object, const char *key) { return ms_json_number(ms_json_member(object, key)); }

static JsonObject *object_member(JsonObject *object, const char *key) {
  return ms_json_object(ms_json_member(object, key));
}

/* Statistics between two log points: a step's time, or samples a second of the whole machine. */
static gboolean mllog_stats(Reader *r, JsonObject *value, double number) {
  double time_s = member(value, "train_step_time"), rate = member(value, "throughput");
  if (isnan(time_s) && rate > 0 && r->log->global_batch > 0) time_s = r->log->global_batch / rate;
  MsLogStep step = {
      .number = step_number(number), .time_s = time_s, .tokens_per_s = NAN, .tflops = NAN, .bad = isnan(time_s)};
  return isnan(time_s) ? TRUE : add_step(r, &step, "tracked_stats");
}

/* A block between two evaluations: its time over the steps in it. */
static gboolean mllog_block(Reader *r, double ms, double samples) {
  double steps = (samples - r->block_samples) / r->log->global_batch, time_s = (ms - r->block_ms) / 1e3 / steps;
  MsLogStep step = {
      .number = step_number(samples / r->log->global_batch), .time_s = time_s, .tokens_per_s = NAN, .tflops = NAN};
  return steps >= 1 && time_s > 0 ? add_step(r, &step, "block_stop") : TRUE;
}

static gboolean mllog_event(Reader *r, JsonObject *event) {
  const char *word = ms_json_string(ms_json_member(event, "key")), *key = word ? word : "";
  JsonObject *value = object_member(event, "value"), *metadata = object_member(event, "metadata");
  double ms = member(event, "time_ms"), samples = member(metadata, "samples_count"), step = member(metadata, "step"),
         batch = member(event, "value");
  if (strcmp(key, "global_batch_size") == 0 && batch >= 1 && batch < 1e9) r->log->global_batch = (int)batch;
  if (strcmp(key, "tracked_stats") == 0 && value)
    return mllog_stats(r, value, isnan(step) ? samples / r->log->global_batch : step);
  if (strcmp(key, "block_stop") == 0 && r->log->global_batch > 0 && r->block_ms > 0 && !mllog_block(r, ms, samples))
    return FALSE;
  if (strcmp(key, "block_start") == 0) r->block_ms = ms, r->block_samples = samples;
  return TRUE;
}

static gboolean mllog_line(Reader *r, const char *line) {
  if (!is_mllog(line)) return TRUE;
  const char *text = strchr(strstr(line, ":::MLLOG"), '{');
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, r->file, NULL);
  if (!doc) return TRUE; /* half a line, or two ranks in one: others say the same */
  JsonObject *event = ms_json_object(ms_json_root(doc));
  return !event || mllog_event(r, event);
}

/* --- forms ----------------------------------------------------------------------------------------------------- */
static const struct {
  const char *name;
  gboolean (*is)(const char *line); /* a line that only this form has */
  gboolean (*line)(Reader *r, const char *line);
} forms[] = {{"Megatron-LM", is_megatron, megatron_line},
             {"NeMo", is_nemo, nemo_line},
             {"TorchTitan", is_titan, titan_line},
             {"MLPerf", is_mllog, mllog_line}};

static int form_of(const char *line) {
  for (int i = 0; i < (int)G_N_ELEMENTS(forms); i++)
    if (forms[i].is(line)) return i;
  return -1;
}

gboolean ms_training_log_is(MsReader *reader) {
  const char *line;
  while ((line = ms_reader_line(reader, NULL)))
    if (form_of(line) >= 0) return TRUE;
  return FALSE;
}

static gboolean read_lines(Reader *r) {
  const char *line;
  while ((line = ms_reader_line(r->reader, r->error))) {
    r->line = line;
    arguments_line(r, line);
    if (r->form < 0) r->form = form_of(line);
    if (r->form >= 0 && !forms[r->form].line(r, line)) return FALSE;
    if (r->form < 0 && strstr(line, "memory (MB)") && !megatron_line(r, line)) return FALSE;
  }
  return *r->error == NULL;
}

/* --- what counts ----------------------------------------------------------------------------------------------- */
static double length(const MsLogStep *s) { return isnan(s->time_s) ? 1 / s->tokens_per_s : s->time_s; }

static double median_of(const MsTrainingLog *log, gboolean all, double (*of)(const MsLogStep *), double quantile) {
  g_autofree double *values = g_new(double, log->steps->len + 1);
  guint n = 0;
  for (guint i = 0; i < log->steps->len; i++) {
    const MsLogStep *s = &g_array_index(log->steps, MsLogStep, i);
    if (!s->bad && !s->other && (all || !s->warm) && !isnan(of(s))) values[n++] = of(s);
  }
  return n ? ms_quantile(values, n, quantile) : NAN;
}

static double time_of(const MsLogStep *s) { return s->time_s; }
static double tokens_of(const MsLogStep *s) { return s->tokens_per_s; }
static double tflops_of(const MsLogStep *s) { return s->tflops; }

/* The batch of the steps that count: that of the arguments where steps have it (not those of a ramp), else the last. */
static int batch_that_counts(const MsTrainingLog *log, int own) {
  int last = 0;
  for (guint i = 0; i < log->steps->len; i++) {
    const MsLogStep *s = &g_array_index(log->steps, MsLogStep, i);
    if (s->other || s->batch == 0) continue;
    if (s->batch == own) return own;
    last = s->batch;
  }
  return last;
}

static void leave_other_batches(MsTrainingLog *log, int own) {
  int batch = batch_that_counts(log, own);
  for (guint i = 0; i < log->steps->len; i++) {
    MsLogStep *s = &g_array_index(log->steps, MsLogStep, i);
    log->other_batches += !s->other && s->batch > 0 && s->batch != batch;
    s->other |= s->batch > 0 && s->batch != batch;
  }
  if (batch > 0 || log->global_batch == 0) log->global_batch = batch > 0 ? batch : own;
}

static void mark(MsTrainingLog *log) {
  gboolean warming = FALSE;
  double usual = median_of(log, TRUE, length, 0.5);
  for (guint i = 0; i < log->steps->len; i++) {
    MsLogStep *s = &g_array_index(log->steps, MsLogStep, i);
    s->start = i == 0 || s->number < g_array_index(log->steps, MsLogStep, i - 1).number;
    warming = s->start || (warming && length(s) > SLOW * usual);
    s->warm = warming;
    if (s->other) continue;
    log->starts += s->start, log->warm += s->warm, log->bad += s->bad;
    if (s->bad || s->warm) continue;
    if (log->kept++ == 0) log->first = s->number;
    log->last = s->number;
  }
}

static void say_what_was_left_out(const Reader *r, GPtrArray *notes) {
  const MsTrainingLog *log = r->log;
  ms_note(notes, "%s: %u of %u steps of %s count (%d to %d); %d of warm-up left out", r->file, log->kept,
          log->steps->len, log->form, log->first, log->last, log->warm);
  if (log->starts > 1)
    ms_note(notes, "%s: the run was started %d times: the warm-up of each is left out", r->file, log->starts);
  if (log->bad > 0) ms_note(notes, "%s: %d NaN or skipped steps are left out", r->file, log->bad);
  if (log->copies > 0)
    ms_note(notes, "%s: %d lines of steps stand there again, and count once: does the file hold a log twice?", r->file,
            log->copies);
  if (log->other_batches > 0)
    ms_note(notes, "%s: %d steps of another global batch size than %d are left out", r->file, log->other_batches,
            log->global_batch);
  if (log->runs > 1)
    ms_note(notes, "%s: arguments of %d runs are printed, the last differ in %s: only the steps behind them count",
            r->file, log->runs, log->changed);
  if (ms_reader_cut(r->reader)) ms_note(notes, "%s: the log is cut short: what it holds until there is taken", r->file);
}

enum { MOST_STRANGE = 1 }; /* a run that follows another in the same file is one */

/* A restart goes back to steps that were printed before; runs that write into one file go back to others. */
static gboolean is_of_one_run(const Reader *r) {
  g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
  int strange = 0;
  for (guint i = 0; i < r->log->steps->len; i++) {
    const MsLogStep *s = &g_array_index(r->log->steps, MsLogStep, i);
    strange += i > 0 && s->start && !s->other && !g_hash_table_contains(seen, GINT_TO_POINTER(s->number));
    g_hash_table_add(seen, GINT_TO_POINTER(s->number));
  }
  return strange <= MOST_STRANGE ||
         ms_input_error(r->error, r->file, 0, NULL,
                        "the count of steps goes back %d times to where it has not been: are these several runs? Give "
                        "each its own file",
                        strange);
}

static gboolean no_step(const Reader *r) {
  const MsTrainingLog *log = r->log;
  if (log->steps->len == 0)
    return ms_input_error(r->error, r->file, 0, NULL,
                          "holds no step of Megatron-LM, NeMo, TorchTitan or MLPerf (:::MLLOG)%s",
                          ms_reader_cut(r->reader) ? ", and is cut short" : "");
  if (log->runs > 1)
    return ms_input_error(r->error, r->file, 0, NULL, "no step that counts follows the last arguments it prints");
  return ms_input_error(r->error, r->file, 0, NULL, "no step is left: %u steps, %d of them warm-up, %d NaN or skipped",
                        log->steps->len, log->warm, log->bad);
}

static gboolean evaluate(Reader *r, GPtrArray *notes) {
  MsTrainingLog *log = r->log;
  leave_other_batches(log, r->own_batch);
  mark(log);
  if (!is_of_one_run(r)) return FALSE;
  if (log->kept == 0) return no_step(r);
  log->form = forms[r->form].name;
  log->time_s = median_of(log, FALSE, time_of, 0.5), log->tokens_per_s = median_of(log, FALSE, tokens_of, 0.5);
  log->tflops = median_of(log, FALSE, tflops_of, 0.5);
  log->low_s = median_of(log, FALSE, time_of, 0.1), log->high_s = median_of(log, FALSE, time_of, 0.9);
  log->all_ranks = g_hash_table_size(r->ranks) > 1;
  say_what_was_left_out(r, notes);
  return TRUE;
}

MsTrainingLog *ms_training_log_read(MsReader *reader, const char *file, GPtrArray *notes, GError **error) {
  GError *cause = NULL;
  Reader r = {.log = g_new0(MsTrainingLog, 1),
              .file = file,
              .reader = reader,
              .error = &cause,
              .form = -1,
              .step = NAN,
              .samples = NAN};
  r.ranks = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL), r.seen = g_hash_table_new(NULL, NULL);
  r.log->steps = g_array_new(FALSE, FALSE, sizeof(MsLogStep));
  r.log->arguments = g_ptr_array_new_with_free_func(g_free);
  r.log->allocated_GiB = r.log->reserved_GiB = NAN, r.log->runs = 1;
  if (!read_lines(&r) || !evaluate(&r, notes)) {
    g_clear_pointer(&r.log, ms_training_log_free);
    g_propagate_error(error, cause);
  }
  g_hash_table_unref(r.ranks), g_hash_table_unref(r.seen);
  g_clear_pointer(&r.earlier, g_ptr_array_unref);
  g_free(r.speaker);
  return r.log;
}
