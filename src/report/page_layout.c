/* src/report/page_layout.c - who holds what: the rank grids and the layers of every stage, and what is kept at a
 * stage's peak. */
#include <math.h>
#include <string.h>

#include "report/page.h"
#include "base/order.h"

#define R(run)    ((const MsPageRun *)(run))
#define LAYOUT(o) (R(o)->detail->layout)

/* --- rank grids: axes in rank order, fastest first -------------------------------------------------------------- */
static const void *axis(const void *run, guint i, MsFigureCursor *room) { return ms_figure_place(run, i, 4, room); }

/* The two outer axes change places where pipeline stages are next to each other. */
static guint axis_at(const void *at) {
  guint i = MS_FIGURE_I(at);
  return i < 2 || LAYOUT(MS_FIGURE_OWNER(MsPageRun, at))->order == MS_ORDER_DP_PP ? i : 5 - i;
}
static const char *attention_axis(const void *at) {
  return ((const char *const[]){"tp", "cp", "dp", "pp"})[axis_at(at)];
}
static const char *expert_axis(const void *at) {
  return ((const char *const[]){"etp", "ep", "edp", "pp"})[axis_at(at)];
}
static double attention_size(const void *at) {
  const MsLayout *l = LAYOUT(MS_FIGURE_OWNER(MsPageRun, at));
  return ((const int[]){l->tp, l->cp, l->dp, l->pp})[axis_at(at)];
}
static double expert_size(const void *at) {
  const MsLayout *l = LAYOUT(MS_FIGURE_OWNER(MsPageRun, at));
  return ((const int[]){l->etp, l->ep, l->edp, l->pp})[axis_at(at)];
}

/* --- stages and their chunks; groups ---------------------------------------------------------------------------- */
static const void *stage_of_layout(const void *run, guint i, MsFigureCursor *room) {
  return ms_figure_place(LAYOUT(run), i, (guint)LAYOUT(run)->pp, room);
}
static const void *chunk_of_stage(const void *at, guint i, MsFigureCursor *room) {
  (void)room;
  const MsLayout *l = MS_FIGURE_OWNER(MsLayout, at);
  return i < (guint)l->vpp ? ms_layout_chunk(l, (int)MS_FIGURE_I(at), (int)i) : NULL;
}
static const void *group_of_layout(const void *run, guint i, MsFigureCursor *room) {
  guint g = i + MS_GROUP_NONE + 1;
  if (g >= MS_N_GROUPS) return NULL;
  return LAYOUT(run)->group[g].size > 1 ? ms_figure_place(LAYOUT(run), g, MS_N_GROUPS, room) : ms_figure_skip;
}
static const char *group_word(const void *at) { return ms_group_words[MS_FIGURE_I(at)]; }
static const void *group_at(const void *at) { return &MS_FIGURE_OWNER(MsLayout, at)->group[MS_FIGURE_I(at)]; }

static const void *layout(const void *run) { return LAYOUT(run); }
static double gpus_per_domain(const void *run) {
  return ms_gpus_per_domain(R(run)->scenario->hardware, LAYOUT(run)->world);
}
static double gpus_per_node(const void *run) { return R(run)->scenario->hardware->gpus_per_node; }
static double experts(const void *run) { return R(run)->scenario->model->num_experts; }

static const MsFigures chunk_figures =
    MS_FIGURE_TABLE("chunk", "Of `moesim report --json`: layers of one chunk of a stage.",
                    MS_FIGURE(INT, MsChunk, first_layer, "", "number of its first layer"),
                    MS_FIGURE_AS("layers", INT, MsChunk, num_layers, "", "of the model"),
                    MS_FIGURE_AS("moe", INT, MsChunk, num_moe, "", "of them with experts"),
                    MS_FIGURE_AS("embedding", BOOL, MsChunk, has_embedding, "", "before them"),
                    MS_FIGURE_AS("loss", BOOL, MsChunk, has_loss, "", "behind them"),
                    MS_FIGURE_AS("mtp", INT, MsChunk, num_mtp, "", "MTP blocks behind them"));
static const MsFigures placement_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_ROWS_OF(layout, MS_FIGURES(MS_FIGURE_AS("gpus", INT, MsLayout, world, "", "of the job"))),
    MS_FIGURE_OF("gpus_per_domain", INT, gpus_per_domain, "", "joined by the scale-up links"),
    MS_FIGURE_OF("gpus_per_node", INT, gpus_per_node, "", "under one operating system"),
    MS_FIGURE_EACH("attention", LIST, axis,
                   MS_FIGURES(MS_FIGURE_TEXT("axis", attention_axis, "of the rank grid, fastest first"),
                              MS_FIGURE_OF("size", INT, attention_size, "", "ranks along it"))),
    MS_FIGURE_EACH("expert", LIST, axis,
                   MS_FIGURES(MS_FIGURE_TEXT("axis", expert_axis, "of the grid of the expert layers"),
                              MS_FIGURE_OF("size", INT, expert_size, "", "ranks along it"))),
    MS_FIGURE_OF("experts", INT, experts, "", "of a layer"),
    MS_FIGURE_ROWS_OF(layout, MS_FIGURES(MS_FIGURE_AS("chunks", INT, MsLayout, vpp, "", "of a stage"))),
    MS_FIGURE_EACH("stages", LIST, stage_of_layout,
                   MS_FIGURES({.key = "", .type = MS_FIGURE_LIST, .item = chunk_of_stage, .sub = &chunk_figures}),
                   .doc = "of each stage its chunks"),
    MS_FIGURE_EACH("groups", LIST, group_of_layout,
                   MS_FIGURES(MS_FIGURE_TEXT("group", group_word, "ranks that communicate, more than one"),
                              MS_FIGURE_ROWS_OF(
                                  group_at, MS_FIGURES(MS_FIGURE(INT, MsGroup, size, "", "ranks of the group"),
                                                       MS_FIGURE(INT, MsGroup, stride, "", "between neighbours"),
                                                       MS_FIGURE(INT, MsGroup, domains, "",
                                                                 "scale-up domains that the widest one touches"),
                                                       MS_FIGURE(INT, MsGroup, nodes, "", "nodes that it touches"))))));
const MsFigures ms_page_placement_figures = MS_FIGURE_UNNAMED(MS_FIGURE_GROUP("placement", &placement_figures));

/* --- what is kept when the peak's pass begins ------------------------------------------------------------------ */
typedef struct {
  const char *name, *module;
  double bytes_B;
} Kept;

typedef struct {
  int stage, live_forwards;
  guint n;
  Kept *tensor; /* owned */
} StageKept;

static void add_kept(GArray *rows, const MsKept *kept, double times) {
  for (guint i = 0; i < rows->len; i++) {
    Kept *row = &g_array_index(rows, Kept, i);
    if (strcmp(row->name, kept->name) == 0 && row->module == ms_module_words[kept->module]) {
      row->bytes_B += times * kept->bytes_B;
      return;
    }
  }
  Kept row = {kept->name, ms_module_words[kept->module], times * kept->bytes_B};
  g_array_append_val(rows, row);
}

MS_ORDER(by_bytes, Kept, MS_MORE(x->bytes_B, y->bytes_B), strcmp(x->name, y->name))

static void live_chunks(const MsSchedule *schedule, int stage, int before, int *live) {
  for (int k = 0; k < MIN(before, schedule->n[stage]); k++) {
    const MsSlot *slot = &schedule->slot[stage][k];
    if (slot->kind == MS_SLOT_F || slot->kind == MS_SLOT_FB) live[slot->chunk]++;
    if (slot->kind == MS_SLOT_B || slot->kind == MS_SLOT_W) live[slot->chunk]--;
    if (slot->kind == MS_SLOT_FB) live[slot->chunk2]--;
  }
}

static StageKept stage_kept(const MsDetail *d, int stage, const MsStageMemory *m) {
  const MsLayout *l = d->layout;
  g_autofree int *live = g_new0(int, l->vpp);
  GArray *rows = g_array_new(FALSE, FALSE, sizeof(Kept));
  StageKept kept = {.stage = stage};
  live_chunks(d->schedule, stage, m->peak_slot, live);
  for (int c = 0; c < l->vpp; c++) {
    const MsChunk *chunk = ms_layout_chunk(l, stage, c);
    kept.live_forwards += live[c];
    for (int i = 0; i < ms_work_chunk_length(d->work, chunk); i++) {
      const MsPiece *piece = &d->work->pieces[ms_work_chunk_piece(d->work, chunk, i)];
      for (int k = 0; k < piece->n_kept; k++) add_kept(rows, &piece->kept[k], live[c]);
    }
  }
  g_array_sort(rows, by_bytes);
  while (kept.n < rows->len && g_array_index(rows, Kept, kept.n).bytes_B > 0) kept.n++;
  kept.tensor = (Kept *)(void *)g_array_free(rows, FALSE);
  return kept;
}

static void stage_kept_clear(gpointer kept) { g_free(((StageKept *)kept)->tensor); }

void ms_page_find_kept(MsPageRun *run) {
  const MsMemory *memory = run->result->memory;
  run->kept = g_array_new(FALSE, FALSE, sizeof(StageKept));
  g_array_set_clear_func(run->kept, stage_kept_clear);
  for (int s = 0; s < memory->stages && s < run->detail->schedule->stages; s++) {
    StageKept kept = stage_kept(run->detail, s, &memory->stage[s]);
    g_array_append_val(run->kept, kept);
  }
}

const MsFigures ms_page_kept_figures = MS_FIGURE_UNNAMED(MS_FIGURE_GARRAY(
    "kept", MsPageRun, kept, StageKept,
    MS_FIGURES(MS_FIGURE(INT, StageKept, stage, "", "pipeline stage"),
               MS_FIGURE(INT, StageKept, live_forwards, "", "whose activations it holds at its peak"),
               MS_FIGURE_ARRAY("tensors", LIST, StageKept, tensor, n,
                               MS_FIGURES(MS_FIGURE(STRING, Kept, name, "", "kept for the backward"),
                                          MS_FIGURE(STRING, Kept, module, "", "that keeps it"),
                                          MS_FIGURE(F64, Kept, bytes_B, "B", "of all live forwards"))))));
