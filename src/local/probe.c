#include "local/probe.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>

#include "describe/hardware.h"
#include "describe/scenario.h"

#define MIB 1048576.0

/* What a program prints, NULL where it is not there or fails. (transfer full) */
static char *printed(const char *const *argv) {
  char *text = NULL;
  int status = 0;
  g_autofree char *program = g_find_program_in_path(argv[0]);
  if (!program) return NULL;
  gboolean ran = g_spawn_sync(NULL, (char **)(gpointer)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDERR_TO_DEV_NULL,
                              NULL, NULL, &text, NULL, &status, NULL);
  if (ran && g_spawn_check_wait_status(status, NULL) && text) return text;
  g_free(text);
  return NULL;
}

static double number(const char *text) {
  char *end;
  double value = text ? g_ascii_strtod(text, &end) : NAN;
  return text && end != text ? value : NAN;
}

/* One more GPU of the node; another kind than the first is left out. */
static void add_gpu(MsProbe *p, const char *tool, const char *name, double memory_B, double limit_W) {
  if (!p->gpu) {
    p->gpu = g_strdup(name);
    p->gpu_tool = g_strdup(tool);
    p->gpu_memory_B = memory_B, p->gpu_limit_W = limit_W;
  }
  p->gpus += strcmp(p->gpu, name) == 0;
}

/* "NVIDIA H100 80GB HBM3, 81559, 700.00" a line */
static void read_nvidia(MsProbe *p) {
  static const char *const argv[] = {"nvidia-smi", "--query-gpu=name,memory.total,power.limit",
                                     "--format=csv,noheader,nounits", NULL};
  g_autofree char *text = printed(argv);
  g_auto(GStrv) lines = g_strsplit(text ? text : "", "\n", -1);
  for (int i = 0; lines[i]; i++) {
    g_auto(GStrv) cell = g_strsplit(lines[i], ",", -1);
    if (g_strv_length(cell) != 3 || !*g_strstrip(cell[0])) continue;
    add_gpu(p, argv[0], cell[0], number(cell[1]) * MIB, number(cell[2]));
  }
}

/* The text of the member whose name begins so, whatever its case: its spelling changes from release to release. */
static const char *member_like(JsonObject *card, const char *name) {
  g_autoptr(GList) keys = json_object_get_members(card);
  for (GList *l = keys; l; l = l->next)
    if (g_ascii_strncasecmp(l->data, name, strlen(name)) == 0) {
      JsonNode *node = json_object_get_member(card, l->data);
      return JSON_NODE_HOLDS_VALUE(node) ? json_node_get_string(node) : NULL;
    }
  return NULL;
}

/* {"card0": {"Card Series": "AMD Instinct MI300X", "VRAM Total Memory (B)": "...", "Max Graphics Package Power (W)":
 * "750.0"}, ...} */
static void read_rocm(MsProbe *p) {
  static const char *const argv[] = {
      "rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showmaxpower", "--json", NULL};
  g_autofree char *text = printed(argv);
  const char *object = text ? strchr(text, '{') : NULL; /* warnings stand before it */
  g_autoptr(JsonNode) root = object ? json_from_string(object, NULL) : NULL;
  if (!root || !JSON_NODE_HOLDS_OBJECT(root)) return;
  JsonObject *cards = json_node_get_object(root);
  g_autoptr(GList) names = g_list_sort(json_object_get_members(cards), (GCompareFunc)strcmp);
  for (GList *l = names; l; l = l->next) {
    JsonNode *node = json_object_get_member(cards, l->data);
    if (!g_str_has_prefix(l->data, "card") || !JSON_NODE_HOLDS_OBJECT(node)) continue;
    JsonObject *card = json_node_get_object(node);
    const char *name = member_like(card, "Card Series");
    if (name)
      add_gpu(p, argv[0], name, number(member_like(card, "VRAM Total Memory")),
              number(member_like(card, "Max Graphics Package Power")));
  }
}

/* "label: value" of a line, NULL for another label. */
static const char *value_of(const char *line, const char *label) {
  while (g_ascii_isspace(*line)) line++;
  if (!g_str_has_prefix(line, label) || line[strlen(label)] != ':') return NULL;
  line += strlen(label) + 1;
  while (g_ascii_isspace(*line)) line++;
  return line;
}

/* Ports one behind the other, each with "State: Active" and "Rate: 400" (Gbit/s). */
static void read_ibstat(MsProbe *p) {
  static const char *const argv[] = {"ibstat", NULL};
  g_autofree char *text = printed(argv);
  g_auto(GStrv) lines = g_strsplit(text ? text : "", "\n", -1);
  gboolean active = FALSE;
  for (int i = 0; lines[i]; i++) {
    const char *state = value_of(lines[i], "State"), *rate = value_of(lines[i], "Rate");
    if (state) active = g_str_has_prefix(state, "Active");
    double bps = rate ? number(rate) * 1e9 : NAN;
    if (!active || !(bps > 0)) continue;
    if (!(bps <= p->port_bps)) p->port_bps = bps, p->ports = 0;
    p->ports += bps == p->port_bps;
  }
}

static void read_lscpu(MsProbe *p) {
  static const char *const argv[] = {"lscpu", NULL};
  g_autofree char *text = printed(argv), *model = NULL;
  g_auto(GStrv) lines = g_strsplit(text ? text : "", "\n", -1);
  double sockets = NAN;
  for (int i = 0; lines[i]; i++) {
    const char *name = value_of(lines[i], "Model name"), *count = value_of(lines[i], "Socket(s)");
    if (name && !model) model = g_strdup(name);
    if (count) sockets = number(count);
  }
  if (model && sockets > 1) p->host = g_strdup_printf("%.0f x %s", sockets, model);
  else p->host = g_steal_pointer(&model);
}

void ms_probe_run(MsProbe *p) {
  *p = (MsProbe){.gpu_memory_B = NAN, .gpu_limit_W = NAN, .port_bps = NAN};
  read_nvidia(p);
  if (!p->gpu) read_rocm(p);
  read_ibstat(p);
  read_lscpu(p);
}

void ms_probe_clear(MsProbe *p) {
  g_clear_pointer(&p->gpu, g_free);
  g_clear_pointer(&p->gpu_tool, g_free);
  g_clear_pointer(&p->host, g_free);
}

/* --- which machine ---------------------------------------------------------------------------------------------- */
/* Words of letters and digits, in small letters. (transfer full) */
static GStrv words_of(const char *text) {
  g_autofree char *small = g_ascii_strdown(text, -1);
  for (char *c = small; *c; c++)
    if (!g_ascii_isalnum(*c)) *c = ' ';
  return g_strsplit(small, " ", -1);
}

static gboolean any_begins_with(GStrv words, const char *start) {
  for (int i = 0; words[i]; i++)
    if (*words[i] && g_str_has_prefix(words[i], start)) return TRUE;
  return FALSE;
}

typedef struct {
  int matched, missing; /* words of the machine's name behind the first */
  double off;           /* of the memory, relative */
  int runs;             /* published */
} Likeness;

static gboolean better(const Likeness *a, const Likeness *b) {
  if (a->matched != b->matched) return a->matched > b->matched;
  if (a->missing != b->missing) return a->missing < b->missing;
  if (a->off != b->off) return a->off < b->off;
  return a->runs > b->runs;
}

/* FALSE where the first word, that of the chip, is not one of the GPU's name. */
static gboolean likeness(GStrv gpu, const char *machine, double memory_B, Likeness *like) {
  g_auto(GStrv) word = words_of(machine);
  if (!g_strv_contains((const char *const *)gpu, word[0])) return FALSE;
  g_autoptr(MsHardware) hw = ms_hardware_load(machine, NULL);
  if (!hw) return FALSE;
  *like = (Likeness){.runs = hw->published_runs};
  for (int i = 1; word[i]; i++) {
    gboolean found = any_begins_with(gpu, word[i]);
    like->matched += found;
    like->missing += !found && strcmp(word[i], "sxm") != 0; /* boards on a socket seldom say so */
  }
  like->off = memory_B > 0 ? fabs(hw->hbm_B / memory_B - 1) : 0;
  return TRUE;
}

char *ms_probe_machine(const char *gpu, double memory_B) {
  g_auto(GStrv) words = words_of(gpu);
  g_autoptr(GPtrArray) names = ms_data_names("hardware");
  const char *best = NULL;
  Likeness most = {0};
  for (guint i = 0; i + 1 < names->len; i++) {
    Likeness like;
    if (!likeness(words, names->pdata[i], memory_B, &like) || (best && !better(&like, &most))) continue;
    best = names->pdata[i], most = like;
  }
  return g_strdup(best);
}
