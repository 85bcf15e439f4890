#include "study/ask.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/quantity.h"
#include "describe/vendor.h"
#include "plan/plan.h"
#include "study/parts.h"

enum { DEFAULT_SEQ_LENGTH = 4096, DEFAULT_BATCH_TOKENS = 4 << 20, MOST_GPUS = 1 << 20, MOST_RANK = 1 << 16 };
#define FEWEST_TOKENS 1e6 /* of a training, written without k, M, G or T */

/* "--seq-length" or "seq_length". (transfer full) */
static char *named(const char *key, gboolean dashes) {
  return dashes ? g_strdelimit(g_strconcat("--", key, NULL), "_", '-') : g_strdup(key);
}

/* FALSE with "KEY WHAT". */
static gboolean wrong(GError **error, gboolean dashes, const char *key, const char *format, ...) G_GNUC_PRINTF(4, 5);
static gboolean wrong(GError **error, gboolean dashes, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *name = named(key, dashes), *what = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_usage_error(error, "%s%s", name, what);
}

/* One number of a list of `key`, from 1 to `most`; `text` is the whole list. */
static gboolean read_count(const char *word, const char *unit, const char *key, const char *text, gint64 most,
                           gboolean dashes, gint64 *value, GError **error) {
  g_autofree char *why = NULL;
  double number = 0;
  gboolean ok = ms_quantity_parse(word, unit, TRUE, &number, &why);
  if (!ok && ms_quantity_has_suffix(word)) return wrong(error, dashes, key, ": %s", why);
  *value = ok && number <= (double)most ? (gint64)number : 0;
  return *value >= 1 ||
         wrong(error, dashes, key, " %s: give numbers from 1 to %" G_GINT64_FORMAT ", separated by commas", text, most);
}

static gboolean read_list(const char *text, const char *unit, const char *key, gint64 most, gboolean dashes,
                          GArray *list, GError **error) {
  g_auto(GStrv) words = g_strsplit(text, ",", -1);
  for (int i = 0; words[i]; i++) {
    gint64 value;
    if (!read_count(words[i], unit, key, text, most, dashes, &value, error)) return FALSE;
    g_array_append_val(list, value);
  }
  return list->len > 0 || wrong(error, dashes, key, " %s: give at least one number", text);
}

/* "256..2048": 256, 512, 1024, 2048; "96..500": 96, 192, 384, 500. */
static gboolean read_doubling(const char *text, const char *dots, gboolean dashes, GArray *gpus, GError **error) {
  g_autofree char *first = g_strndup(text, (gsize)(dots - text));
  gint64 from, to;
  if (!read_count(first, "", "gpus", text, MOST_GPUS, dashes, &from, error) ||
      !read_count(dots + 2, "", "gpus", text, MOST_GPUS, dashes, &to, error))
    return FALSE;
  if (from > to) return wrong(error, dashes, "gpus", " %s: the range ends before it begins", text);
  for (; from < to; from *= 2) g_array_append_val(gpus, from);
  g_array_append_val(gpus, to);
  return TRUE;
}

static gboolean read_gpus(const char *text, gboolean dashes, GArray *gpus, GError **error) {
  const char *dots = strstr(text, "..");
  return dots ? read_doubling(text, dots, dashes, gpus, error)
              : read_list(text, "", "gpus", MOST_GPUS, dashes, gpus, error);
}

/* --- the training as a whole ----------------------------------------------------------------------------------- */
typedef struct {
  double tokens, critical_tokens, deadline_s, max_W, memory_share; /* 0: not given */
  GArray *gpu_hour; /* of double: of every machine, or of each; empty: not given */
} Budget;

static void budget_clear(Budget *b) { g_clear_pointer(&b->gpu_hour, g_array_unref); }
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Budget, budget_clear)

static gboolean read_amount(const char *text, const char *unit, const char *key, gboolean dashes, double *value,
                            GError **error) {
  g_autofree char *why = NULL;
  if (!text) return TRUE;
  if (!ms_quantity_parse(text, unit, FALSE, value, &why)) return wrong(error, dashes, key, " %s: %s", text, why);
  return *value > 0 || wrong(error, dashes, key, " %s: must be positive", text);
}

static gboolean read_prices(const MsAsk *a, char *const *machines, gboolean dashes, GArray *prices, GError **error) {
  g_auto(GStrv) words = g_strsplit(a->gpu_hour ? a->gpu_hour : "", ",", -1);
  guint n = g_strv_length(words), of = g_strv_length((char **)(gpointer)machines);
  if (n > 1 && n != of)
    return wrong(error, dashes, "gpu_hour", " %s: give one price, or one for each of the %u machines", a->gpu_hour, of);
  for (guint i = 0; i < n; i++) {
    double price = 0;
    if (!read_amount(words[i], "", "gpu_hour", dashes, &price, error)) return FALSE;
    g_array_append_val(prices, price);
  }
  return TRUE;
}

/* "90%" is 0.9. */
static gboolean read_share(const char *text, gboolean dashes, double *share, GError **error) {
  g_autofree char *number = text ? g_strndup(text, strcspn(text, "%")) : NULL;
  gboolean percent = text && g_str_has_suffix(text, "%") && strlen(number) + 1 == strlen(text);
  if (!read_amount(percent ? number : text, "", "max_memory", dashes, share, error)) return FALSE;
  if (percent) *share /= 100;
  return TRUE;
}

/* As a share of the GPU's memory; of several machines a size is one share only where they have as much. */
static gboolean read_memory(const MsAsk *a, char *const *machines, gboolean dashes, double *share, GError **error) {
  gboolean size = a->max_memory && !g_str_has_suffix(a->max_memory, "%") && ms_quantity_has_suffix(a->max_memory);
  double most, hbm_B = 0;
  if (!(size ? read_amount(a->max_memory, "B", "max_memory", dashes, share, error)
             : read_share(a->max_memory, dashes, share, error)))
    return FALSE;
  most = *share;
  for (int i = 0; size && machines[i]; i++) {
    g_autoptr(MsHardware) machine = ms_hardware_load(machines[i], error);
    if (!machine) return FALSE;
    if (i > 0 && machine->hbm_B != hbm_B)
      return wrong(error, dashes, "max_memory", " %s: the machines differ in memory; give a share of it",
                   a->max_memory);
    hbm_B = machine->hbm_B, *share = most / hbm_B;
  }
  return *share <= 1 || wrong(error, dashes, "max_memory",
                              " %s: give a share of a GPU's memory up to 1, or a size within it", a->max_memory);
}

static gboolean read_budget(const MsAsk *a, char *const *machines, gboolean dashes, Budget *b, GError **error) {
  if (!read_amount(a->tokens, "", "tokens", dashes, &b->tokens, error) ||
      !read_amount(a->critical_batch_tokens, "", "critical_batch_tokens", dashes, &b->critical_tokens, error) ||
      !read_amount(a->deadline, "s", "deadline", dashes, &b->deadline_s, error) ||
      !read_prices(a, machines, dashes, b->gpu_hour, error) ||
      !read_amount(a->max_watts, "W", "max_watts", dashes, &b->max_W, error) ||
      !read_memory(a, machines, dashes, &b->memory_share, error))
    return FALSE;
  if (a->tokens && b->tokens < FEWEST_TOKENS && !ms_quantity_has_suffix(a->tokens))
    return wrong(error, dashes, "tokens", " %s: are those of the whole training; \"%sT\" was probably meant", a->tokens,
                 a->tokens);
  if (dashes && a->deadline && !ms_quantity_has_suffix(a->deadline))
    return wrong(error, dashes, "deadline", " %s: give its unit; \"%sd\" was probably meant", a->deadline, a->deadline);
  if (b->deadline_s > 0 && !(b->tokens > 0))
    return wrong(error, dashes, "deadline", " needs the tokens of the whole training beside it");
  if (b->critical_tokens > 0 && !(b->tokens > 0))
    return wrong(error, dashes, "critical_batch_tokens", " needs the tokens of the whole training beside it");
  if (b->gpu_hour->len > 0 && !(b->tokens > 0))
    return wrong(error, dashes, "gpu_hour", " needs the tokens of the whole training beside it");
  return TRUE;
}

/* Leaves out what draws more on every machine. */
static gboolean within_power(const Budget *b, char *const *machines, gboolean dashes, GArray *gpus, GError **error) {
  double least_W = INFINITY;
  for (int i = 0; b->max_W > 0 && machines[i]; i++) {
    g_autoptr(MsHardware) machine = ms_hardware_load(machines[i], error);
    if (!machine) return FALSE;
    if (machine->tdp_W > 0) least_W = MIN(least_W, machine->tdp_W);
  }
  if (!(b->max_W > 0) || isinf(least_W)) return TRUE;
  for (guint i = gpus->len; i-- > 0;)
    if ((double)g_array_index(gpus, gint64, i) * least_W > b->max_W) g_array_remove_index(gpus, i);
  return gpus->len > 0 || wrong(error, dashes, "max_watts", " %.6g kW: of GPUs of %g W these are at most %d",
                                b->max_W / 1e3, least_W, (int)(b->max_W / least_W));
}

static void write_budget(MsJsonOut *out, const Budget *b, gboolean several_gpus) {
  if (!(b->tokens > 0) && !(b->max_W > 0) && !(b->memory_share > 0)) return;
  ms_json_out_object(out, "plan");
  if (b->deadline_s > 0 && several_gpus) ms_json_out_string(out, "objective", ms_goal_words[MS_GOAL_DEADLINE]);
  if (b->tokens > 0) ms_json_out_double(out, "training_tokens", b->tokens);
  if (b->critical_tokens > 0) ms_json_out_double(out, "critical_batch_tokens", b->critical_tokens);
  if (b->deadline_s > 0) ms_json_out_double(out, "deadline_s", b->deadline_s);
  if (b->gpu_hour->len > 0) {
    gboolean several = b->gpu_hour->len > 1;
    if (several) ms_json_out_array(out, "gpu_hour_price");
    for (guint i = 0; i < b->gpu_hour->len; i++)
      ms_json_out_double(out, several ? NULL : "gpu_hour_price", g_array_index(b->gpu_hour, double, i));
    if (several) ms_json_out_end(out);
    ms_json_out_string(out, "gpu_hour_price_source", "as asked");
  }
  if (b->max_W > 0) ms_json_out_double(out, "max_power_W", b->max_W);
  if (b->memory_share > 0) ms_json_out_double(out, "max_memory_fraction", b->memory_share);
  ms_json_out_end(out);
}

static gboolean precision_known(const char *text, gboolean dashes, GError **error) {
  if (!text || !strcmp(text, "auto") || g_strv_contains(ms_precision_words, text)) return TRUE;
  g_autofree char *suggestion = ms_suggest(text, ms_precision_words, ms_word_sentences(ms_precision_words)),
                  *words = g_strjoinv(", ", (char **)(gpointer)ms_precision_words);
  if (suggestion) return wrong(error, dashes, "precision", " %s: %s", text, suggestion);
  return wrong(error, dashes, "precision", " %s: must be auto or one of %s", text, words);
}

static gboolean any_experts(char *const *models, gboolean *any, GError **error) {
  *any = FALSE;
  for (int i = 0; models[i]; i++) {
    g_autoptr(MsModel) model = ms_model_load(models[i], error);
    if (!model) return FALSE;
    *any |= model->num_experts > 0;
  }
  return TRUE;
}

static MsFramework framework_on(const MsHardware *machine) {
  for (int f = 0; f < MS_N_FRAMEWORKS; f++) {
    MsStartKind kind = ms_vendor_start(machine, f).kind;
    if (kind == MS_STARTS || kind == MS_STARTS_WITH) return f;
  }
  return MS_FRAMEWORK_MEGATRON;
}

/* What trains on all of these machines: Megatron, or where it does not start the first that does. */
static gboolean find_framework(char *const *machines, MsFramework *framework, GError **error) {
  gboolean alike = TRUE;
  for (int i = 0; machines[i]; i++) {
    g_autoptr(MsHardware) machine = ms_hardware_load(machines[i], error);
    if (!machine) return FALSE;
    MsFramework starts = framework_on(machine);
    alike &= i == 0 || starts == *framework;
    *framework = alike ? starts : MS_FRAMEWORK_MEGATRON;
  }
  return TRUE;
}

static void write_names(MsJsonOut *out, const char *key, char *const *names) {
  gboolean several = names[1] != NULL;
  if (several) ms_json_out_array(out, key);
  for (int i = 0; names[i]; i++) ms_json_out_string(out, several ? NULL : key, names[i]);
  if (several) ms_json_out_end(out);
}

static void write_numbers(MsJsonOut *out, const char *key, const GArray *list) {
  if (list->len > 1) ms_json_out_array(out, key);
  for (guint i = 0; i < list->len; i++)
    ms_json_out_int(out, list->len > 1 ? NULL : key, g_array_index(list, gint64, i));
  if (list->len > 1) ms_json_out_end(out);
}

static gint64 common_multiple(gint64 a, gint64 b) {
  gint64 x = a, y = b;
  while (y > 0) {
    gint64 rest = x % y;
    x = y, y = rest;
  }
  return a / x * b;
}

/* A multiple of every number of GPUs, so that every data-parallel size divides it; of the largest alone where that
 * would be far more sequences. */
static gint64 default_batch(const GArray *gpus, int seq_length) {
  gint64 sequences = MAX(DEFAULT_BATCH_TOKENS / seq_length, 1), most = 1, common = 1;
  for (guint i = 0; i < gpus->len; i++) {
    gint64 n = g_array_index(gpus, gint64, i);
    most = MAX(most, n);
    if (common <= MOST_GPUS) common = common_multiple(common, n);
  }
  gint64 unit = common <= MAX(sequences, most) ? common : most;
  return (sequences + unit - 1) / unit * unit;
}

static void write_open_options(MsJsonOut *out, gboolean experts) {
  static const char *const all[] = {"recompute", "cuda_graph_scope"}, *const of_experts[] = {"dispatcher",
                                                                                             "ep_overlap"};
  ms_json_out_object(out, "options");
  for (guint i = 0; i < G_N_ELEMENTS(all); i++) ms_json_out_string(out, all[i], "auto");
  for (guint i = 0; experts && i < G_N_ELEMENTS(of_experts); i++) ms_json_out_string(out, of_experts[i], "auto");
  ms_json_out_end(out);
}

/* Names, and files by theirs, joined by commas. (transfer full) */
static char *short_names(char **names) {
  GString *out = g_string_new(NULL);
  for (int i = 0; names[i]; i++) {
    g_autofree char *base = g_path_get_basename(names[i]);
    if (g_str_has_suffix(base, ".json")) base[strlen(base) - strlen(".json")] = '\0';
    g_string_append_printf(out, "%s%s", i ? "," : "", base);
  }
  return g_string_free(out, FALSE);
}

/* What runs is known to fit, whatever is predicted of its memory, which is the same at every fidelity. */
static char *request_around(const char *file, gboolean dashes, GError **error) {
  g_autoptr(MsScenario) run = ms_scenario_load_mixed(file, error);
  gboolean one_kind = run && ms_scenario_refuse_pools(run, dashes ? "--around is" : "around is", error);
  g_autoptr(MsResult) result = one_kind ? ms_simulate(run, MS_FIDELITY_BOUND, NULL, error) : NULL;
  return result ? ms_request_around(run, ms_device_B(result) / run->hardware->hbm_B) : NULL;
}

#define MOST_STEP_TOKENS ((gint64)1 << 33)

/* Sequence lengths and batches: those of the lists, else of the numbers, else the usual ones. */
static gboolean read_sizes(const MsAsk *a, gboolean dashes, const GArray *gpus, GArray *seq, GArray *batch,
                           GError **error) {
  gint64 length = a->seq_length != MS_ASK_UNSET ? a->seq_length : DEFAULT_SEQ_LENGTH;
  if (!a->seq_lengths) g_array_append_val(seq, length);
  else if (!read_list(a->seq_lengths, "tokens", "seq_length", G_MAXINT, dashes, seq, error)) return FALSE;
  gint64 longest = 0;
  for (guint i = 0; i < seq->len; i++) longest = MAX(longest, g_array_index(seq, gint64, i));
  gint64 sequences = a->global_batch_size != MS_ASK_UNSET ? a->global_batch_size : default_batch(gpus, (int)longest);
  if (!a->global_batch_sizes) g_array_append_val(batch, sequences);
  else if (!read_list(a->global_batch_sizes, "", "global_batch_size", G_MAXINT, dashes, batch, error)) return FALSE;
  gboolean given = a->global_batch_sizes || a->global_batch_size != MS_ASK_UNSET;
  for (guint i = 0; given && i < batch->len; i++)
    if (g_array_index(batch, gint64, i) > MOST_STEP_TOKENS / longest)
      return wrong(error, dashes, "global_batch_size",
                   " counts sequences: %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                   " tokens are more than %" G_GINT64_FORMAT " tokens a step, as nobody trains; %" G_GINT64_FORMAT
                   " are 4 Mi tokens",
                   g_array_index(batch, gint64, i), longest, MOST_STEP_TOKENS, MAX(1, (4 << 20) / longest));
  return TRUE;
}

/* FALSE when what is given cannot be asked, whatever models and machines there are. */
static gboolean sizes_make_sense(const MsAsk *a, gboolean dashes, GError **error) {
  if (a->seq_length != MS_ASK_UNSET && a->seq_length < 1)
    return wrong(error, dashes, "seq_length", " must be positive");
  if (a->global_batch_size != MS_ASK_UNSET && a->global_batch_size < 1)
    return wrong(error, dashes, "global_batch_size", " must be positive");
  return TRUE;
}

/* A request that does not load is none. Takes `text`. */
static char *checked(char *text, gboolean dashes, GError **error) {
  g_autoptr(MsJson) doc = text ? ms_json_parse(text, -1, dashes ? "command line" : "request", error) : NULL;
  g_autoptr(GPtrArray) requests = doc ? ms_requests_from_doc(doc, error) : NULL;
  if (!requests) g_clear_pointer(&text, g_free);
  return text;
}

static gboolean is_complete(const MsAsk *a, gboolean dashes, GError **error) {
  return (a->model && a->hardware && a->gpus) ||
         ms_usage_error(error, dashes ? "give a request file, or --model, --hardware and --gpus"
                                      : "give model, hardware and gpus");
}

char *ms_ask_request(const MsAsk *a, gboolean dashes, GError **error) {
  if (a->around) return checked(request_around(a->around, dashes, error), dashes, error);
  if (!is_complete(a, dashes, error) || !sizes_make_sense(a, dashes, error)) return NULL;
  g_autoptr(GArray) gpus = g_array_new(FALSE, FALSE, sizeof(gint64));
  g_autoptr(GArray) seq = g_array_new(FALSE, FALSE, sizeof(gint64));
  g_autoptr(GArray) batch = g_array_new(FALSE, FALSE, sizeof(gint64));
  g_auto(Budget) budget = {.gpu_hour = g_array_new(FALSE, FALSE, sizeof(double))};
  g_auto(GStrv) models = g_strsplit(a->model, ",", -1), machines = g_strsplit(a->hardware, ",", -1);
  gboolean experts;
  MsFramework framework = MS_FRAMEWORK_MEGATRON;
  gint64 lora = 0;
  if (!models[0] || !machines[0])
    return wrong(error, dashes, models[0] ? "hardware" : "model", ": give at least one name"), NULL;
  if (!precision_known(a->precision, dashes, error) || !read_gpus(a->gpus, dashes, gpus, error) ||
      !any_experts(models, &experts, error) || !find_framework(machines, &framework, error) ||
      !read_budget(a, machines, dashes, &budget, error) || !within_power(&budget, machines, dashes, gpus, error) ||
      !read_sizes(a, dashes, gpus, seq, batch, error) ||
      (a->lora && !read_count(a->lora, "", "lora", a->lora, MOST_RANK, dashes, &lora, error)))
    return NULL;
  g_autofree char *what = short_names(models), *where = short_names(machines),
                  *name = g_strdup_printf("%s-%s-%s", what, where, a->gpus);
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "schema", 1);
  ms_json_out_string(out, "name", name);
  write_names(out, "model", models);
  write_names(out, "hardware", machines);
  write_numbers(out, "gpus", gpus);
  if (framework != MS_FRAMEWORK_MEGATRON) ms_json_out_string(out, "framework", ms_framework_words[framework]);
  ms_json_out_object(out, "training");
  write_numbers(out, "seq_length", seq);
  write_numbers(out, "global_batch_size", batch);
  ms_json_out_string(out, "micro_batch_size", "auto");
  ms_json_out_string(out, "precision", a->precision ? a->precision : "bf16");
  if (lora > 0) {
    ms_json_out_object(out, "lora");
    ms_json_out_int(out, "rank", lora);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_object(out, "layout"); /* what is left out of it is searched */
  ms_json_out_string(out, "pipeline_layout", "auto");
  ms_json_out_end(out);
  write_open_options(out, experts);
  write_budget(out, &budget, gpus->len > 1);
  ms_json_out_end(out);
  return checked(ms_json_out_take(out), dashes, error);
}

/* --- the same from a document ---------------------------------------------------------------------------------- */
#define WORD(key) \
  { #key, offsetof(MsAsk, key) }
static const struct {
  const char *key;
  size_t offset;
} asked_words[] = {WORD(model),
                   WORD(hardware),
                   WORD(gpus),
                   WORD(precision),
                   WORD(seq_lengths),
                   WORD(global_batch_sizes),
                   {"seq_length", offsetof(MsAsk, seq_lengths)},
                   {"global_batch_size", offsetof(MsAsk, global_batch_sizes)},
                   WORD(tokens),
                   WORD(critical_batch_tokens),
                   WORD(deadline),
                   WORD(gpu_hour),
                   WORD(max_watts),
                   WORD(max_memory),
                   WORD(lora)};

/* A text or a number as the command line would have it, of a list its own joined by commas; FALSE: it is none. */
static gboolean append_words(GString *out, JsonNode *node) {
  char number[32];
  if (JSON_NODE_HOLDS_ARRAY(node)) {
    JsonArray *list = json_node_get_array(node);
    for (guint i = 0; i < json_array_get_length(list); i++) {
      JsonNode *one = json_array_get_element(list, i);
      if (i > 0) g_string_append_c(out, ',');
      if (JSON_NODE_HOLDS_ARRAY(one) || !append_words(out, one)) return FALSE;
    }
    return TRUE;
  }
  const char *text = ms_json_string(node);
  double value = ms_json_number(node);
  if (!text && isnan(value)) return FALSE;
  g_string_append(out, text ? text : ms_double_text(value, number));
  return TRUE;
}

static gboolean unknown_word(const MsJson *doc, const char *key, GError **error) {
  const char *known[G_N_ELEMENTS(asked_words) + 1] = {NULL};
  for (guint i = 0; i < G_N_ELEMENTS(asked_words); i++) known[i] = asked_words[i].key;
  g_autofree char *suggestion = ms_suggest(key, known, NULL), *all = g_strjoinv(", ", (char **)(gpointer)known);
  return suggestion ? ms_json_error(doc, key, error, "unknown key, %s", suggestion)
                    : ms_json_error(doc, key, error, "unknown key, must be one of %s", all);
}

/* `texts` keeps what the ask borrows. */
static gboolean take_word(const MsJson *doc, const MsJsonMember *at, MsAsk *ask, GPtrArray *texts, GError **error) {
  guint i = 0;
  while (i < G_N_ELEMENTS(asked_words) && strcmp(asked_words[i].key, at->key) != 0) i++;
  if (i == G_N_ELEMENTS(asked_words)) return unknown_word(doc, at->key, error);
  if (JSON_NODE_HOLDS_NULL(at->value)) return TRUE;
  const char **word = (const char **)(void *)((char *)ask + asked_words[i].offset);
  if (*word) return ms_json_error(doc, at->key, error, "is given in two keys: leave one of them out");
  g_autoptr(GString) text = g_string_new(NULL);
  if (!append_words(text, at->value))
    return ms_json_error(doc, at->key, error, "must be a text, a number, or a list of them");
  *word = g_strdup(text->str);
  g_ptr_array_add(texts, (gpointer)*word);
  return TRUE;
}

char *ms_ask_document(const MsJson *doc, GError **error) {
  g_autoptr(GPtrArray) texts = g_ptr_array_new_with_free_func(g_free);
  MsAsk ask = {.seq_length = MS_ASK_UNSET, .global_batch_size = MS_ASK_UNSET};
  if (!ms_json_need_object(doc, ms_json_root(doc), "", error)) return NULL;
  for (MsJsonMember at = ms_json_members(json_node_get_object(ms_json_root(doc))); ms_json_next(&at);)
    if (!take_word(doc, &at, &ask, texts, error)) return NULL;
  return ms_ask_request(&ask, FALSE, error);
}
