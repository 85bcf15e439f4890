/* src/cli/init.c - `moesim init`: a machine or a model of one's own, as what differs from a known one. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"
#include "describe/hardware.h"
#include "describe/model.h"
#include "describe/sources.h"
#include "local/probe.h"

typedef struct {
  const char *key, *ask;
} Question;

static const Question of_cluster[] = {{"gpus_per_node", "GPUs in a node"},
                                      {"hbm_B", "memory of a GPU (80GiB)"},
                                      {"nic_Bps", "network of a GPU, one direction (400Gb/s)"},
                                      {"tdp_W", "power limit of a GPU (700W)"},
                                      {"fabric_oversubscription", "oversubscription of the network, 1: none"},
                                      {NULL}};
static const Question of_model[] = {{"num_layers", "layers"},
                                    {"hidden_size", "width"},
                                    {"num_attention_heads", "query heads"},
                                    {"num_query_groups", "key-value heads"},
                                    {"ffn_hidden_size", "width of the feed-forward layers"},
                                    {"num_experts", "experts, 0: dense"},
                                    {"moe_router_topk", "experts of a token"},
                                    {"moe_ffn_hidden_size", "width of an expert"},
                                    {"vocab_size", "vocabulary"},
                                    {NULL}};

typedef struct {
  const char *word; /* of the command line */
  const char *base, *name;
  const Question *questions;
  const MsFieldTable *table;
} Kind;
static const Kind kinds[] = {{"cluster", NULL, "my-cluster", of_cluster, &ms_hardware_table},
                             {"model", "llama3-8b", "my-model", of_model, &ms_model_table}};
enum { CLUSTER, MODEL };

typedef struct {
  char *text, *source; /* as a person writes it; where it comes from, NULL: said */
} Answer;

typedef struct {
  const Kind *kind;
  char *like, *name;
  GHashTable *answers; /* key -> Answer */
  GPtrArray *order;    /* keys of them (char *), borrowed from the table */
  gboolean asks;       /* somebody is there to answer */
  char **sets, *out;
  gboolean ask, quiet;
  MsProbe probe;
} Init;

static void answer_free(gpointer data) {
  Answer *a = data;
  g_free(a->text);
  g_free(a->source);
  g_free(a);
}

static void answer(Init *x, const char *key, const char *text, const char *source) {
  Answer *a = g_new0(Answer, 1);
  a->text = g_strdup(text), a->source = g_strdup(source);
  if (!g_hash_table_contains(x->answers, key)) g_ptr_array_add(x->order, g_strdup(key));
  g_hash_table_replace(x->answers, g_strdup(key), a);
}

/* --- the file ---------------------------------------------------------------------------------------------------- */
/* "sliding_window.window": a member of an object, beside those that were said before. */
static void put_value(JsonObject *object, const char *key, const char *text) {
  const char *dot = strchr(key, '.');
  g_autofree char *outer = dot ? g_strndup(key, (gsize)(dot - key)) : NULL;
  if (!dot) {
    json_object_set_member(object, key, ms_json_of_word(text));
    return;
  }
  JsonObject *inner = ms_json_object(ms_json_member(object, outer));
  if (!inner) json_object_set_object_member(object, outer, inner = json_object_new());
  put_value(inner, dot + 1, text);
}

static void write_values(const Init *x, MsJsonOut *out) {
  g_autoptr(JsonObject) all = json_object_new();
  for (guint i = 0; i < x->order->len; i++)
    put_value(all, x->order->pdata[i], ((Answer *)g_hash_table_lookup(x->answers, x->order->pdata[i]))->text);
  for (MsJsonMember at = ms_json_members(all); ms_json_next(&at);) ms_json_out_node(out, at.key, at.value);
}

static void write_sources(const Init *x, MsJsonOut *out) {
  ms_json_out_object(out, "sources");
  for (guint i = 0; i < x->order->len; i++) {
    const char *key = x->order->pdata[i];
    const Answer *a = g_hash_table_lookup(x->answers, key);
    if (strchr(key, '.')) continue; /* sources are of whole keys */
    if (!a->source) {
      ms_json_out_string(out, key, "as said to moesim init");
      continue;
    }
    ms_source_put_measured(out, key, a->source);
  }
  ms_json_out_end(out);
}

static char *doc_of(const Init *x) {
  GString *doc = g_string_new(NULL);
  g_string_append_printf(doc, "Like %s, written by moesim init.", x->like);
  if (x->kind == &kinds[CLUSTER] && x->probe.gpu)
    g_string_append_printf(doc, " A node of %d %s", x->probe.gpus, x->probe.gpu);
  if (x->kind == &kinds[CLUSTER] && x->probe.gpu && x->probe.host)
    g_string_append_printf(doc, ", host %s", x->probe.host);
  if (x->kind == &kinds[CLUSTER] && x->probe.gpu) g_string_append_c(doc, '.');
  return g_string_free(doc, FALSE);
}

/* (transfer full) */
static char *file_text(const Init *x) {
  MsJsonOut *out = ms_json_out_new(2);
  g_autofree char *doc = doc_of(x);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "schema", 1);
  ms_json_out_string(out, "name", x->name);
  ms_json_out_string(out, "doc", doc);
  ms_json_out_string(out, "base", x->like);
  write_values(x, out);
  if (x->kind == &kinds[CLUSTER] && x->order->len > 0) write_sources(x, out);
  ms_json_out_end(out);
  g_autofree char *text = ms_json_out_take(out);
  return g_strconcat(text, "\n", NULL);
}

/* Whether the file loads as it is now. */
static gboolean loads(const Init *x, GError **error) {
  g_autofree char *text = file_text(x);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, x->name, error);
  if (!doc) return FALSE;
  if (x->kind == &kinds[CLUSTER]) {
    g_autoptr(MsHardware) machine = ms_hardware_from_json(doc, ms_json_root(doc), "", error);
    return machine != NULL;
  }
  g_autoptr(MsModel) model = ms_model_from_json(doc, ms_json_root(doc), "", error);
  return model != NULL;
}

/* --- questions --------------------------------------------------------------------------------------------------- */
/* A line of standard input without blanks around it; NULL at its end. (transfer full) */
static char *read_line(void) {
  char line[1024];
  return fgets(line, sizeof line, stdin) ? g_strdup(g_strstrip(line)) : NULL;
}

/* What was typed, "" for the default. (transfer full) */
static char *asked(Init *x, const char *what, const char *usual, const char *from) {
  fprintf(stderr, "%s [%s%s%s]: ", what, usual, from ? ", " : "", from ? from : "");
  fflush(stderr);
  char *line = read_line();
  if (line) return line;
  fputc('\n', stderr);
  x->asks = FALSE; /* nobody is there any more: defaults */
  return g_strdup("");
}

/* The value of a key of the base, as a file says it. (transfer full) */
static char *value_in(const MsFieldTable *table, const void *object, const char *key) {
  g_autoptr(JsonNode) node = ms_field_node(ms_field_find(table, key), object, TRUE);
  return node ? json_to_string(node, FALSE) : g_strdup("null");
}

/* One question, again until what is said loads. */
static void ask_key(Init *x, const Question *q, const void *base) {
  const Answer *known = g_hash_table_lookup(x->answers, q->key);
  if (known && !known->source) return; /* said already */
  g_autofree char *usual = known ? g_strdup(known->text) : value_in(x->kind->table, base, q->key);
  g_autofree char *from = g_strdup(known ? known->source : x->like);
  while (x->asks) {
    g_autofree char *said = asked(x, q->ask, usual, from);
    if (!*said) return;
    g_autoptr(GError) error = NULL;
    answer(x, q->key, said, NULL);
    if (loads(x, &error)) return;
    const char *why = strstr(error->message, q->key);
    fprintf(stderr, "  %s\n", why ? why : error->message);
    if (known) answer(x, q->key, usual, from); /* as before */
    else {
      g_hash_table_remove(x->answers, q->key);
      g_ptr_array_remove_index(x->order, x->order->len - 1);
    }
  }
}

/* --- what is known before ---------------------------------------------------------------------------------------- */
static int gpus_of_node(const Init *x, const MsHardware *base) {
  const Answer *a = g_hash_table_lookup(x->answers, "gpus_per_node");
  int gpus = a ? atoi(a->text) : base->gpus_per_node;
  return gpus > 0 ? gpus : 1;
}

/* Tools report what the driver leaves of a board's memory; a board with more or less of it is further off. */
#define SAME_BOARD 0.1

/* What the tools of the node said, for keys that nobody has said. */
static void take_probe(Init *x, const MsHardware *base) {
  const MsProbe *p = &x->probe;
  if (p->gpus > 0 && !g_hash_table_contains(x->answers, "gpus_per_node")) {
    g_autofree char *count = g_strdup_printf("%d", p->gpus),
                    *from = g_strdup_printf("%s: %d x %s", p->gpu_tool, p->gpus, p->gpu);
    answer(x, "gpus_per_node", count, from);
  }
  if (fabs(p->gpu_memory_B / base->hbm_B - 1) > SAME_BOARD && !g_hash_table_contains(x->answers, "hbm_B")) {
    g_autofree char *memory = g_strdup_printf("%.0fMiB", p->gpu_memory_B / MS_MIB),
                    *from = g_strdup_printf("%s: memory of %s", p->gpu_tool, p->gpu);
    answer(x, "hbm_B", memory, from);
  }
  if (p->gpu_limit_W > 0 && !g_hash_table_contains(x->answers, "tdp_W")) {
    g_autofree char *watts = g_strdup_printf("%g", p->gpu_limit_W), *from = g_strdup_printf("%s: limit", p->gpu_tool);
    answer(x, "tdp_W", watts, from);
  }
  if (p->ports > 0 && !g_hash_table_contains(x->answers, "nic_Bps")) {
    int gpus = gpus_of_node(x, base);
    g_autofree char *rate = g_strdup_printf("%gGb/s", p->ports * p->port_bps / gpus / 1e9),
                    *from = g_strdup_printf("ibstat: %d active ports of %g Gbit/s for %d GPUs", p->ports,
                                            p->port_bps / 1e9, gpus);
    answer(x, "nic_Bps", rate, from);
  }
}

/* Where the scale-up domain of the base is its node, so is that of a node of another size. */
static void settle(Init *x, const MsHardware *base) {
  const Answer *a = g_hash_table_lookup(x->answers, "gpus_per_node");
  if (!a || g_hash_table_contains(x->answers, "nvlink_domain_gpus") ||
      base->nvlink_domain_gpus != base->gpus_per_node || atoi(a->text) == base->gpus_per_node)
    return;
  g_autofree char *count = g_strdup(a->text), *from = g_strdup(a->source);
  answer(x, "nvlink_domain_gpus", count, from);
}

/* "KEY=VALUE" of --set. */
static gboolean take_sets(const MsVerb *verb, Init *x) {
  for (int i = 0; x->sets && x->sets[i]; i++) {
    const char *equals = strchr(x->sets[i], '=');
    if (!equals || equals == x->sets[i] || !equals[1])
      return ms_cli_usage(verb, "--set %s: give KEY=VALUE", x->sets[i]), FALSE;
    g_autofree char *key = g_strndup(x->sets[i], (gsize)(equals - x->sets[i]));
    answer(x, key, equals + 1, NULL);
  }
  return TRUE;
}

static void *load_base(const Init *x, const char *name, GError **error) {
  return x->kind == &kinds[CLUSTER] ? (void *)ms_hardware_load(name, error) : (void *)ms_model_load(name, error);
}

static void free_base(const Init *x, void *base) {
  if (x->kind == &kinds[CLUSTER]) ms_hardware_free(base);
  else ms_model_free(base);
}

/* The known machine or model to start from; NULL after a message. */
static void *find_base(const MsVerb *verb, Init *x, int *status) {
  gboolean cluster = x->kind == &kinds[CLUSTER], given = x->like != NULL;
  g_autofree char *usual = given ? g_strdup(x->like) : g_strdup(x->kind->base), *from = NULL;
  if (!given && x->probe.gpu) {
    usual = ms_probe_machine(x->probe.gpu, x->probe.gpu_memory_B);
    from = g_strdup_printf("%s: %s", x->probe.gpu_tool, x->probe.gpu);
    if (!usual) fprintf(stderr, "moesim: no machine of hardware/ is like %s\n", from);
  }
  for (;;) {
    GError *error = NULL;
    g_autofree char *said = NULL;
    if (x->asks && !given)
      said = asked(x, cluster ? "which known machine is it like" : "which known model is it like", usual ? usual : "-",
                   from);
    g_free(x->like);
    x->like = g_strdup(said && *said ? said : usual);
    if (!x->like && x->asks) continue;
    if (!x->like) {
      *status = ms_cli_usage(verb, "which machine is it like? Give --like NAME; `moesim show hardware` lists them");
      return NULL;
    }
    void *base = load_base(x, x->like, &error);
    if (base) return base;
    if (!x->asks || given) {
      *status = ms_cli_fail(error);
      return NULL;
    }
    fprintf(stderr, "  %s\n", error->message);
    g_error_free(error);
  }
}

static void ask_name(Init *x) {
  if (x->name) return;
  g_autofree char *said = x->asks ? asked(x, "name", x->kind->name, NULL) : g_strdup("");
  x->name = g_strdup(*said ? said : x->kind->name);
}

static void ask_all(Init *x, const void *base) {
  for (const Question *q = x->kind->questions; q->key; q++) {
    gboolean dense = x->kind == &kinds[MODEL] && ((const MsModel *)base)->num_experts == 0;
    gboolean of_experts = strcmp(q->key, "moe_router_topk") == 0 || strcmp(q->key, "moe_ffn_hidden_size") == 0;
    if (of_experts && dense && !g_hash_table_contains(x->answers, "num_experts")) continue;
    ask_key(x, q, base);
  }
}

/* --- the verb ---------------------------------------------------------------------------------------------------- */
static int put(const MsVerb *verb, const Init *x) {
  GError *error = NULL;
  g_autofree char *usual = g_strconcat(x->name, ".json", NULL), *text = file_text(x);
  const char *file = x->out ? x->out : usual;
  if (!x->out && g_file_test(file, G_FILE_TEST_EXISTS))
    return ms_cli_usage(verb, "%s is there already: --out gives another name, - is standard output", file);
  if (!loads(x, &error) || !ms_write_file(file, text, -1, &error)) return ms_cli_fail(error);
  if (strcmp(file, "-") == 0) return 0;
  g_autofree char *path = strchr(file, '/') ? g_strdup(file) : g_strconcat("./", file, NULL);
  if (x->kind == &kinds[CLUSTER])
    fprintf(stderr, "moesim: wrote %s; next: moesim plan --model llama3-8b --hardware %s --gpus 64\n", file, path);
  else fprintf(stderr, "moesim: wrote %s; next: moesim show model %s\n", file, path);
  return 0;
}

static int init(const MsVerb *verb, Init *x, const char *word) {
  static const char *const words[] = {"cluster", "model", NULL};
  int status = 0, kind = ms_cli_word(verb, "kind", word, words);
  if (kind < 0) return MS_ERROR_USAGE;
  x->kind = &kinds[kind];
  x->asks = x->ask || (isatty(STDIN_FILENO) && !x->quiet);
  if (!take_sets(verb, x)) return MS_ERROR_USAGE;
  if (kind == CLUSTER) ms_probe_run(&x->probe);
  void *base = find_base(verb, x, &status);
  if (!base) return status;
  ask_name(x);
  if (kind == CLUSTER) take_probe(x, base);
  ask_all(x, base);
  if (kind == CLUSTER) settle(x, base);
  free_base(x, base);
  return put(verb, x);
}

int ms_cli_init(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("init");
  Init x = {.answers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, answer_free),
            .order = g_ptr_array_new_with_free_func(g_free)};
  const GOptionEntry entries[] = {
      {"like", 'l', 0, G_OPTION_ARG_STRING, &x.like,
       "the known machine or model that it is like (default: the one with the GPUs of this node, llama3-8b)", "NAME"},
      {"name", 0, 0, G_OPTION_ARG_STRING, &x.name, "name of the new one (default my-cluster, my-model)", "NAME"},
      {"set", 's', 0, G_OPTION_ARG_STRING_ARRAY, &x.sets,
       "a key that differs, such as nic_Bps=200Gb/s; `moesim schema hardware` and `moesim schema model` list them",
       "KEY=VALUE"},
      {"ask", 0, 0, G_OPTION_ARG_NONE, &x.ask, "ask, even where standard input is no terminal", NULL},
      {"yes", 'y', 0, G_OPTION_ARG_NONE, &x.quiet, "ask nothing, take the defaults", NULL},
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &x.out, "write there (default NAME.json, which must be new)", "FILE"},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    if (argc != 2) status = ms_cli_usage(verb, "give cluster or model");
    else if (x.ask && x.quiet) status = ms_cli_usage(verb, "--ask and --yes say different things");
    else status = init(verb, &x, argv[1]);
  }
  g_hash_table_unref(x.answers);
  g_ptr_array_unref(x.order);
  g_strfreev(x.sets);
  g_free(x.like), g_free(x.name), g_free(x.out);
  ms_probe_clear(&x.probe);
  return status;
}
