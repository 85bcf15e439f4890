/* src/launch/import_megatron.c - a command line or shell script: which of its commands trains, and on how many GPUs. */
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "describe/vendor.h"
#include "launch/dialect.h"
#include "launch/import.h"
#include "launch/machine.h"
#include "launch/shell.h"
#include "layout/layout.h"

enum { MOST_REMARKS = 200 }; /* against scripts of nothing else */

static int count_flags(char *const *words) {
  int n = 0;
  for (; *words; words++) n += ms_is_flag(*words);
  return n;
}

/* The command with the most options, the later of equals. */
static const MsCommand *training_command(const MsShell *shell) {
  const MsCommand *best = NULL;
  int most = 0;
  for (guint i = 0; i < shell->commands->len; i++) {
    const MsCommand *command = shell->commands->pdata[i];
    int flags = count_flags(command->words);
    if (flags > 0 && flags >= most) best = command, most = flags;
  }
  return best;
}

/* Options that no launch goes without, or none but a part of one. */
static gboolean trains(char *const *words) {
  static const char *const needed[] = {
      "--num-layers",           "--micro-batch-size",    "--tensor-model-parallel-size",
      "--hybrid-layer-pattern", "--use-checkpoint-args", NULL};
  for (; *words; words++)
    for (int i = 0; needed[i]; i++)
      if (g_str_has_prefix(*words, needed[i])) return TRUE;
  return FALSE;
}

/* Words of a text as a shell splits them; between blanks where its quotes have no end. */
static void add_split(GPtrArray *words, const char *text) {
  g_auto(GStrv) parsed = NULL;
  if (!g_shell_parse_argv(text, NULL, &parsed, NULL)) parsed = g_strsplit_set(text, " \t\r\n", -1);
  for (int i = 0; parsed[i]; i++)
    if (*parsed[i]) g_ptr_array_add(words, g_strdup(parsed[i]));
}

/* The words that a variable puts into a command; one of an array stays as it is but where it is an option with its
 * value. (transfer full) */
static char **words_of(const MsShell *shell, const char *name) {
  g_auto(GStrv) values = ms_shell_words(shell, name);
  GPtrArray *words = g_ptr_array_new();
  for (int i = 0; values && values[i]; i++) {
    if (!values[1] || ms_is_flag(values[i])) add_split(words, values[i]);
    else g_ptr_array_add(words, g_strdup(values[i]));
  }
  g_ptr_array_add(words, NULL);
  return (char **)g_ptr_array_free(words, FALSE);
}

static gboolean variables_train(const MsShell *shell) {
  GHashTableIter iter;
  gpointer name;
  g_hash_table_iter_init(&iter, shell->variables);
  while (g_hash_table_iter_next(&iter, &name, NULL)) {
    g_auto(GStrv) words = words_of(shell, name);
    if (trains(words)) return TRUE;
  }
  return FALSE;
}

/* Arrays and variables that hold options, for files that only define them. */
static gboolean add_variables(MsArgs *args, const MsShell *shell) {
  g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(shell->variables), (GCompareFunc)strcmp);
  gboolean any = FALSE;
  for (GList *n = names; n; n = n->next) {
    g_auto(GStrv) words = words_of(shell, n->data);
    if (count_flags(words) == 0) continue;
    any = TRUE;
    ms_args_add_words(args, words, 0);
  }
  return any;
}

/* --- GPUs --- */
static int to_count(const char *text) {
  gint64 value;
  return text && g_ascii_string_to_signed(text, 10, 1, 1 << 20, &value, NULL) ? (int)value : 0;
}

static int product(int a, int b) { return a > 0 && b > 0 && a <= (1 << 20) / b ? a * b : 0; }

static int launcher_count(MsArgs *launcher, const char *flags) {
  const MsArg *arg = ms_args_take_any(launcher, flags);
  return arg ? to_count(arg->values[0]) : 0;
}

static int variable_count(const MsShell *shell, const char *name) {
  g_autofree char *text = ms_shell_get(shell, name);
  return to_count(text);
}

/* "#SBATCH --nodes=64" and the like; the number behind `key`, 0 when there is none. */
static int sbatch_count(const char *text, const char *key) {
  const char *at = text;
  while ((at = strstr(at, "#SBATCH"))) {
    gsize n = strcspn(at, "\n");
    g_autofree char *line = g_strndup(at, n);
    const char *found = strstr(line, key);
    if (found) return to_count((g_strdelimit(line, " \t\r", '\0'), found + strlen(key)));
    at += n;
  }
  return 0;
}

static int gpus_of_slurm(const char *text) {
  int nodes = sbatch_count(text, "--nodes="), per_node = sbatch_count(text, "--gpus-per-node=");
  if (per_node == 0) per_node = sbatch_count(text, "--gres=gpu:");
  if (per_node == 0) per_node = sbatch_count(text, "--ntasks-per-node=");
  return product(nodes, per_node);
}

static int gpus_of_variables(const MsShell *shell) {
  int world = variable_count(shell, "WORLD_SIZE"), nodes = variable_count(shell, "NNODES"),
      per_node = variable_count(shell, "GPUS_PER_NODE");
  return world > 0 ? world : product(nodes, per_node);
}

/* --- words into launcher, script and arguments --- */
static int find_script(char *const *words) {
  for (int i = 0; words[i]; i++)
    if (g_str_has_suffix(words[i], ".py")) return i;
  return -1;
}

static void split_words(char *const *words, int line, MsArgs *launcher, MsArgs *args) {
  int script = find_script(words);
  if (script < 0) {
    ms_args_add_words(args, words, line);
    return;
  }
  g_autofree char **head = g_new0(char *, script + 1);
  memcpy(head, words, sizeof *head * (size_t)script);
  ms_args_add_words(launcher, head, line);
  ms_args_add_words(args, words + script + 1, line);
}

static gboolean matters(const char *name) {
  static const char *const prefixes[] = {"CUDA_DEVICE_", "NVTE_", "NCCL_", "PYTORCH_", "TORCH_NCCL_", "NVLINK_"};
  for (guint i = 0; i < G_N_ELEMENTS(prefixes); i++)
    if (g_str_has_prefix(name, prefixes[i])) return TRUE;
  return FALSE;
}

static void add_environment(MsArgs *args, const MsShell *shell) {
  g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(shell->variables), (GCompareFunc)strcmp);
  for (GList *n = names; n; n = n->next) {
    g_autofree char *value = ms_shell_get(shell, n->data);
    if (matters(n->data)) ms_args_setenv(args, n->data, value);
  }
}

/* What the launcher says of places and ranks is no part of a scenario. */
static void know_launcher(MsArgs *launcher) {
  ms_args_take_any(launcher, "--node_rank --node-rank --master_addr --master-addr --master_port --master-port "
                             "--rdzv_id --rdzv-id --rdzv_backend --rdzv-backend "
                             "--rdzv_endpoint --rdzv-endpoint --standalone --max_restarts --max-restarts --tee "
                             "--redirects --log_dir --log-dir --hostfile --force_multi");
}

/* The program that a command runs, NULL when it is none of Python. */
static const char *program_of(const MsCommand *command) {
  int script = command ? find_script(command->words) : -1;
  return script >= 0 ? command->words[script] : NULL;
}

/* ZeRO's stage where the script writes DeepSpeed's configuration itself: "stage": N in a here-document, or
 * s/ZERO_STAGE/N/ of sed. */
static void add_zero_stage(MsArgs *args, const MsShell *shell) {
  static const char key[] = "\"stage\":", edit[] = "s/ZERO_STAGE/";
  g_autofree char *stage = NULL;
  for (guint i = 0; i < shell->documents->len; i++) {
    const char *at = strstr(shell->documents->pdata[i], key);
    if (!at) continue;
    at += strlen(key), at += strspn(at, " $\"{");
    g_autofree char *word = g_strndup(at, strspn(at, G_CSET_a_2_z G_CSET_A_2_Z G_CSET_DIGITS "_"));
    g_free(stage);
    stage = g_ascii_isdigit(*word) ? g_strdup(word) : ms_shell_get(shell, word);
  }
  for (guint i = 0; i < shell->commands->len; i++) {
    char *const *words = ((MsCommand *)shell->commands->pdata[i])->words;
    for (; *words; words++)
      if (g_str_has_prefix(*words, edit)) g_free(stage), stage = g_strndup(*words + strlen(edit), 1);
  }
  if (stage && g_ascii_isdigit(*stage) && !ms_args_has(args, "--zero-stage") && ms_args_has(args, "--deepspeed"))
    ms_args_addf(args, MS_SECTION_TRAINING, "--zero-stage", "%s", stage);
}

static gboolean is_output(const char *word) { return g_str_has_prefix(word, "$(") || *word == '`'; }

/* The variable that holds what a command prints, which stands in the words as it was written, from `word` on. NULL: it
 * is in none. (transfer full) */
static char *holder_of(const MsShell *shell, const char *word) {
  GHashTableIter iter;
  gpointer name;
  char *first = NULL;
  g_hash_table_iter_init(&iter, shell->variables);
  while (g_hash_table_iter_next(&iter, &name, NULL)) {
    g_autofree char *text = ms_shell_get(shell, name);
    gboolean holds = g_str_has_prefix(text, word), plain = text[strcspn(text, "\n")] == '\0';
    gsize n = strlen(name), longest = first ? strlen(first) : 0;
    if (!holds || !plain || n < longest || (n == longest && strcmp(first, name) < 0)) continue;
    g_free(first);
    first = g_strdup(name);
  }
  return first;
}

/* Words that a command prints and that are not there, but the value of an option that is listed as ignored. */
static void remark_outputs(MsImport *import, const MsShell *shell, char *const *words, int line, gboolean listed) {
  for (int i = 0, depth = 0; words[i] && import->remarks->len < MOST_REMARKS; i++) {
    if (!is_output(words[i])) continue;
    g_autoptr(GString) text = g_string_new(NULL);
    g_autofree char *holder = holder_of(shell, words[i]), *where = line ? g_strdup_printf("line %d: ", line) : NULL;
    gboolean first = i == 0;
    for (;; i++) {
      g_string_append_printf(text, "%s%s", text->len ? " " : "", words[i]);
      for (const char *c = words[i]; *c; c++) depth += (*c == '(') - (*c == ')');
      if (depth <= 0 || !words[i + 1]) break;
    }
    if (first && listed) continue;
    g_autofree char *instead =
        holder ? g_strdup_printf("--set %s=\"...\" gives it", holder) : g_strdup("put its result into the file");
    ms_import_remark(import, "%swhat %.200s prints is not known and left out: %s", where ? where : "", text->str,
                     instead);
  }
}

/* Between the program and its first option. */
static void remark_leading(MsImport *import, const MsShell *shell, const MsCommand *command) {
  int from = find_script(command->words) + 1, n = 0;
  while (from > 0 && command->words[from + n] && !ms_is_flag(command->words[from + n])) n++;
  g_autofree char **leading = g_new0(char *, n + 1);
  memcpy(leading, command->words + from, sizeof *leading * (size_t)n);
  remark_outputs(import, shell, leading, command->line, FALSE);
}

static void remark_missing(MsImport *import, const MsShell *shell, const MsArgs *args) {
  for (guint i = 0; i < args->list->len; i++) {
    const MsArg *arg = args->list->pdata[i];
    remark_outputs(import, shell, arg->values, arg->line, !arg->used);
  }
}

/* What is missing may be what a command prints: the variable that holds it can be given instead. */
static void note_open(MsArgs *args, const MsShell *shell, char *const *words) {
  for (; *words && !g_str_has_prefix(*words, "$("); words++) {}
  g_autofree char *first = *words ? holder_of(shell, *words) : NULL;
  if (first) args->open = g_strdup_printf("; %s is what a command prints: --set %s=\"...\" gives it", first, first);
}

static gboolean collect(MsImport *import, MsShell *shell, const char *text, MsArgs *args, int *gpus, GError **error) {
  const MsCommand *command = training_command(shell);
  g_autoptr(MsArgs) launcher = ms_args_new(args->file);
  if (command && !trains(command->words) && variables_train(shell))
    command = NULL; /* what submits a job of variables */
  if (!ms_dialect_program(args, import->remarks, program_of(command), command ? command->line : 0, error)) return FALSE;
  if (command) {
    split_words(command->words, command->line, launcher, args);
    remark_leading(import, shell, command);
    note_open(args, shell, command->words + MAX(find_script(command->words), 0));
  } else if (!add_variables(args, shell)) {
    return ms_input_error(error, args->file, 0, "", "has no command with --options of Megatron-LM");
  }
  add_zero_stage(args, shell);
  int per_node = launcher_count(launcher, "--nproc_per_node --nproc-per-node --num_gpus");
  *gpus = product(launcher_count(launcher, "--nnodes --num_nodes"), per_node);
  if (*gpus == 0) *gpus = gpus_of_variables(shell);
  if (*gpus == 0) *gpus = gpus_of_slurm(text);
  if (*gpus == 0 && ms_args_has(args, "--deepspeed")) *gpus = variable_count(shell, "NUM_GPUS"); /* of its examples */
  if (*gpus == 0) *gpus = per_node; /* torchrun without --nnodes starts one node */
  know_launcher(launcher);
  add_environment(args, shell);
  ms_import_list_ignored(import, launcher);
  return TRUE;
}

/* The words behind "sh FILE" in a comment of the script itself, which shows how it is called. NULL when there are none.
 * (transfer full) */
static char **shown_call(const char *script, const char *file, int *line) {
  g_autofree char *base = g_path_get_basename(file);
  g_auto(GStrv) lines = g_strsplit(script, "\n", -1);
  for (int i = 0; lines[i]; i++) {
    const char *text = lines[i] + strspn(lines[i], " \t"), *name = strstr(text, base);
    char **words = NULL;
    if (*text != '#' || !name || !strstr(text, "sh ") || strstr(text, "sh ") > name) continue;
    gboolean ends = g_ascii_isspace(name[strlen(base)]);
    if (!ends || !g_shell_parse_argv(name + strlen(base), NULL, &words, NULL)) continue;
    *line = i + 1;
    return words;
  }
  return NULL;
}

/* A file that a script sources; NULL when it cannot be read as text. */
static char *load(const char *path) {
  gsize length;
  g_autofree char *text = ms_read_file(path, MS_IMPORT_MOST_BYTES, &length, NULL);
  return text && !memchr(text, 0, length) && g_utf8_validate(text, (gssize)length, NULL) ? g_steal_pointer(&text)
                                                                                         : NULL;
}

/* Whether MT-MegatronLM starts on that machine and Megatron-LM does not. */
static gboolean needs_mt(const char *name) {
  g_autoptr(MsHardware) machine = ms_hardware_load(name, NULL);
  return machine && ms_vendor_start(machine, MS_FRAMEWORK_MEGATRON).kind == MS_STAYS &&
         ms_vendor_start(machine, MS_FRAMEWORK_MT_MEGATRON).kind == MS_STARTS;
}

/* The machine where nothing says it, by its maker's words; whether MT-MegatronLM is for it, which is noted. */
static gboolean assume_machine(MsImport *import, const MsShell *shell, MsArgs *args, MsImportOptions *with) {
  const char *by;
  gboolean musa = with->hardware && needs_mt(with->hardware);
  if (!musa && (with->hardware || json_object_has_member(args->notes, "hardware"))) return FALSE;
  if (!with->hardware && (with->hardware = ms_machine_of(shell, args, &by, &musa)))
    ms_import_remark(import, "hardware: the file does not say it, %s is assumed after %s; --hardware NAME says another",
                     with->hardware, by);
  if (!musa || ms_import_note(args, "framework")) return FALSE;
  json_object_set_string_member(args->notes, "framework", ms_framework_words[MS_FRAMEWORK_MT_MEGATRON]);
  return TRUE;
}

/* MT-MegatronLM is what runs there, unless its rules refuse what Megatron-LM's do not. */
static void check_framework(MsImport *import) {
  MsScenario *s = import->scenario;
  MsRefusal refusal;
  gboolean runs = ms_layout_check(s, &refusal);
  s->framework = MS_FRAMEWORK_MEGATRON;
  if (!runs && ms_layout_check(s, &refusal)) return;
  s->framework = MS_FRAMEWORK_MT_MEGATRON;
  ms_import_remark(import, "framework: mt-megatron is assumed, which runs on these machines");
}

/* --- a script that starts another ------------------------------------------------------------------------------ */
enum { MOST_STARTS = 3 }; /* scripts that start each other */

static MsImport *import_script(const char *text, gsize length, const char *file, const MsImportOptions *options,
                               const MsShell *outer, int depth, GError **error);

static gboolean any_trains(const MsShell *shell) {
  for (guint i = 0; i < shell->commands->len; i++)
    if (trains(((MsCommand *)shell->commands->pdata[i])->words)) return TRUE;
  return variables_train(shell);
}

/* The last "bash FILE WORDS" with a file that can be read. *path and *text (transfer full) */
static const MsCommand *starting_command(const MsShell *shell, char **path, char **text) {
  for (guint i = shell->commands->len; shell->load && i > 0; i--) {
    const MsCommand *command = shell->commands->pdata[i - 1];
    char **w = command->words;
    gboolean starts = g_str_has_suffix(w[0], "bash") || strcmp(w[0], "sh") == 0;
    if (!starts || !w[1] || !g_str_has_suffix(w[1], ".sh")) continue;
    *path = g_path_is_absolute(w[1]) ? g_strdup(w[1]) : g_build_filename(shell->folder, w[1], NULL);
    if ((*text = shell->load(*path))) return command;
    g_clear_pointer(path, g_free);
  }
  return NULL;
}

/* Variables of the script that started this one, which may be exported. */
static void inherit(MsShell *shell, const MsShell *outer) {
  GHashTableIter at;
  gpointer name, words;
  g_hash_table_iter_init(&at, outer->variables);
  while (g_hash_table_iter_next(&at, &name, &words))
    g_hash_table_insert(shell->variables, g_strdup(name), g_strdupv(words));
}

/* What a script that has no training command starts. NULL without an error: nothing. */
static MsImport *import_started(const MsShell *shell, const MsImportOptions *options, int depth, GError **error) {
  g_autofree char *path = NULL, *text = NULL;
  const MsCommand *command = depth < MOST_STARTS && !any_trains(shell) ? starting_command(shell, &path, &text) : NULL;
  if (!command) return NULL;
  MsImportOptions with = *options;
  with.words = (const char *const *)command->words + 2;
  MsImport *import = import_script(text, strlen(text), path, &with, shell, depth + 1, error);
  if (import)
    g_ptr_array_insert(
        import->remarks, 0,
        g_strdup_printf("line %d starts %s, which is read: other lines are its", command->line, command->words[1]));
  return import;
}

static MsImport *import_script(const char *text, gsize length, const char *file, const MsImportOptions *options,
                               const MsShell *outer, int depth, GError **error) {
  g_autofree char *script = ms_import_text(text, length, file, error);
  if (!script) return NULL;
  g_autoptr(MsImport) import = ms_import_new();
  g_autoptr(MsArgs) args = ms_args_new(file);
  g_autoptr(MsShell) shell = ms_shell_new(file);
  int shown_line = 0;
  gboolean called = options->words && options->words[0];
  g_auto(GStrv) shown = called ? NULL : shown_call(script, file, &shown_line);
  shell->words = shown ? (const char *const *)shown : options->words;
  if (shown) {
    g_autofree char *words = g_strjoinv(" ", shown);
    ms_import_remark(import, "called as line %d shows (%.200s); other arguments may follow the file", shown_line,
                     words);
  }
  shell->set = options->set;
  shell->environment = options->environment;
  g_autofree char *folder = g_path_get_dirname(file);
  shell->folder = folder;
  shell->load = options->environment ? load : NULL;
  if (outer) inherit(shell, outer);
  int gpus = 0;
  if (!ms_import_notes(args, script, error) || !ms_shell_read(shell, script, error)) return NULL;
  GError *why = NULL;
  MsImport *started = import_started(shell, options, depth, &why);
  if (why) g_propagate_error(error, why);
  if (started || why) return started;
  if (!collect(import, shell, script, args, &gpus, error)) return NULL;
  for (guint i = 0; i < shell->remarks->len; i++)
    ms_import_remark(import, "%s", (const char *)shell->remarks->pdata[i]);
  const gboolean says_width =
      ms_args_has(args, "--moe-ffn-hidden-size") || ms_args_has(args, "--moe-intermediate-size");
  MsImportOptions with = *options;
  gboolean musa = assume_machine(import, shell, args, &with);
  if (!ms_import_scenario(import, args, gpus, &with, error)) return NULL;
  if (musa) check_framework(import);
  remark_missing(import, shell, args);
  const MsModel *m = import->scenario->model;
  if (m->moe_layer_freq && !says_width && m->moe_ffn_hidden_size == m->ffn_hidden_size)
    ms_import_remark(import, "--moe-ffn-hidden-size is not given: experts are %d wide, as the dense layers are",
                     m->moe_ffn_hidden_size);
  ms_import_remark_unasked(import, shell);
  return g_steal_pointer(&import);
}

MsImport *ms_import_megatron(const char *text, gsize length, const char *file, const MsImportOptions *options,
                             GError **error) {
  return import_script(text, length, file, options, NULL, 0, error);
}
