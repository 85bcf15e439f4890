/* src/layout/resolve.c - from a scenario to its layout. */
#include "layout/internal.h"
#include "layout/seats.h"

#include "base/err.h"

#include <string.h>

gboolean ms_layout_check(const MsScenario *scenario, MsRefusal *refusal) {
  MsRefusal sink;
  char *why = refusal ? refusal->why : NULL;
  size_t size = refusal ? sizeof refusal->why : 0;
  if (!refusal) refusal = &sink;
  refusal->why[0] = '\0';
  for (refusal->rule = 0; refusal->rule < ms_num_rules; refusal->rule++)
    if (!ms_rules[refusal->rule].holds(scenario, why, size)) return FALSE;
  refusal->rule = -1;
  return TRUE;
}

int ms_layout_check_kinds(const MsScenario *scenario, guint kinds) {
  for (int i = 0; i < ms_num_rules; i++)
    if (ms_rules[i].kind & kinds && !ms_rules[i].holds(scenario, NULL, 0)) return i;
  return -1;
}

/* Of pieces and shapes alone, whose reductions nobody asks for, there may be more than ranks: then it is one. */
static int instances_of(const MsLayout *layout, const MsScenario *s) {
  int n = s->options.num_distributed_optimizer_instances;
  gboolean divide = n > 1 && layout->dp * layout->cp % n == 0 && (s->model->num_experts == 0 || layout->edp % n == 0);
  return divide ? n : 1;
}

static void set_sizes(MsLayout *layout, const MsScenario *s) {
  const MsLayoutSpec *spec = &s->layout;
  layout->world = s->gpus;
  layout->tp = spec->tp;
  layout->cp = spec->cp;
  layout->pp = spec->pp;
  layout->vpp = ms_layout_chunks_per_rank(s);
  layout->dp = s->gpus / (spec->tp * spec->cp * spec->pp);
  layout->cp_inner = 1;
  layout->ep = spec->ep;
  layout->etp = spec->etp;
  layout->edp = s->gpus / (spec->etp * spec->ep * spec->pp);
  layout->instances = instances_of(layout, s);
  layout->microbatches = s->training.global_batch_size / (s->training.micro_batch_size * layout->dp);
  layout->flush = ms_layout_flush(s, layout->microbatches);
  layout->group_size = spec->microbatch_group_size_per_virtual_pipeline_stage > 0
                           ? spec->microbatch_group_size_per_virtual_pipeline_stage
                           : spec->pp;
  layout->sequence_parallel = ms_layout_sequence_parallel(s);
  layout->order = spec->order;
  layout->pp_closes =
      spec->pp > 2 && layout->vpp > 1 && ms_schedule_row(spec->schedule)->placement == MS_PLACE_ROUND_ROBIN;
}

static void count_layers(MsChunk *chunk, const MsModel *model) {
  for (int i = chunk->first_layer; i < chunk->first_layer + chunk->num_layers; i++)
    if (model->num_experts > 0 && (!model->moe_layer || model->moe_layer[i])) chunk->num_moe++;
  chunk->num_dense = chunk->num_layers - chunk->num_moe;
}

/* Puts the virtual stages where the schedule has them. */
static void place_chunks(MsLayout *layout, const MsScenario *s) {
  int n, stage, chunk, loss_stage = 0, mtp_stage = -1;
  MsScheduleKind kind = s->layout.schedule;
  g_autofree MsChunk *cut = ms_layout_cut(s, layout->vpp, &n);
  layout->num_chunks = layout->pp * layout->vpp;
  layout->chunks = g_new0(MsChunk, layout->num_chunks);
  for (int i = 0; i < n; i++) {
    count_layers(&cut[i], s->model);
    ms_layout_place(kind, layout->pp, i, &stage, &chunk);
    layout->chunks[chunk * layout->pp + stage] = cut[i];
    if (ms_schedule_row(kind)->copies == MS_COPIES_TWO)
      layout->chunks[2 * layout->pp - 1 - stage] = cut[i]; /* the copy that runs the other way */
    if (cut[i].has_loss) loss_stage = stage;
    if (cut[i].num_mtp > 0) mtp_stage = stage;
  }
  layout->mtp_standalone = mtp_stage >= 0 && mtp_stage != loss_stage;
  for (int i = 0; s->pools.n > 0 && i < layout->num_chunks; i++)
    layout->chunks[i].pool = ms_pool_of_stage(&s->pools, s->gpus, layout->pp, i % layout->pp);
}

/* The most CP ranks of one scale-up domain among which the heads of a TP rank divide: the hierarchy of a2a+p2p. */
static int cp_inside(const MsLayout *layout, const MsScenario *s, int domain) {
  int heads = s->model->num_attention_heads / layout->tp, most = MAX(1, domain / layout->tp);
  int groups = ms_model_has_mla(s->model) ? heads : MAX(1, s->model->num_query_groups / layout->tp);
  for (int n = MIN(layout->cp, most); n > 1; n--)
    if (layout->cp % n == 0 && heads % n == 0 && groups % n == 0) return n;
  return 1;
}

static int inner_cp(const MsLayout *layout, const MsScenario *s, int domain) {
  switch (ms_cp_comm_row(s->layout.cp_comm_type)->heads) {
  case MS_CP_HEADS_STAY: break;
  case MS_CP_HEADS_AMONG_ALL: return layout->cp;
  case MS_CP_HEADS_INSIDE: return cp_inside(layout, s, domain);
  }
  return 1;
}

/* The layout as it lies on the machine of one pool: `gpus` of its own, from those of stage `first` on. Groups that meet
 * other pools cross the network. Of a pool of replicas it is not told which stages share a domain: none do. */
static void measure_on(MsLayout *layout, const MsScenario *s, const MsPool *pool, int first) {
  int domain = ms_gpus_per_domain(pool->hardware, pool->gpus);
  layout->cp_inner = inner_cp(layout, s, domain);
  ms_layout_measure_groups(layout, domain, pool->hardware->gpus_per_node);
  if (s->pools.shares > 0) {
    memset(layout->pp_across, 0xff, sizeof layout->pp_across);
  } else {
    ms_layout_measure_stages(layout, pool->gpus / (layout->world / layout->pp), domain, pool->hardware->gpus_per_node);
    ms_layout_measure_pairs(layout, domain, first);
  }
  for (int kind = 0; kind < MS_N_GROUPS; kind++) {
    MsGroup *group = &layout->group[kind];
    gboolean stages = kind == MS_GROUP_EMBEDDING || kind == MS_GROUP_WORLD,
             meets = s->pools.shares > 0 ? ms_group_spans_replicas((MsGroupKind)kind) : stages;
    if (meets && group->size > 1 && group->domains == 1) *group = ms_group_between_pools(group);
  }
}

static int first_stage(const MsLayout *layout, int pool) {
  int stage = 0;
  while (stage < layout->pp - 1 && ms_layout_pool(layout, stage) != pool) stage++;
  return stage;
}

static MsLayout *build_on_pools(MsLayout *layout, const MsScenario *s) {
  layout->n_pools = s->pools.n;
  layout->of_pool = g_new(MsLayout, s->pools.n);
  for (int i = 0; i < s->pools.n; i++) {
    MsLayout *own = &layout->of_pool[i];
    *own = *layout;
    own->n_pools = 0, own->of_pool = NULL;
    measure_on(own, s, &s->pools.pool[i], first_stage(layout, i));
  }
  memcpy(layout->group, layout->of_pool[0].group, sizeof layout->group);
  memcpy(layout->pp_across, layout->of_pool[0].pp_across, sizeof layout->pp_across);
  layout->cp_inner = layout->of_pool[0].cp_inner;
  return layout;
}

static MsLayout *build_beside(MsLayout *layout, const MsScenario *s) {
  MsLayout *beside = g_new(MsLayout, s->pools.shares);
  for (int i = 0; i < s->pools.shares; i++) {
    beside[i] = *layout;
    measure_on(&beside[i], s, &s->pools.pool[i], 0);
  }
  measure_on(layout, s, &s->pools.pool[s->pools.own], 0);
  layout->n_beside = s->pools.shares, layout->beside = beside;
  return layout;
}

MsLayout *ms_layout_build(const MsScenario *scenario) {
  MsLayout *layout = g_new0(MsLayout, 1);
  set_sizes(layout, scenario);
  place_chunks(layout, scenario);
  if (scenario->pools.n > 0) return build_on_pools(layout, scenario);
  if (scenario->pools.shares > 0) return build_beside(layout, scenario);
  int domain = ms_gpus_per_domain(scenario->hardware, layout->world);
  layout->cp_inner = inner_cp(layout, scenario, domain);
  ms_layout_measure_groups(layout, domain, scenario->hardware->gpus_per_node);
  ms_layout_measure_pairs(layout, domain, 0);
  if (ms_fabric_seating(&scenario->hardware->fabric) != MS_SEAT_CONTIGUOUS) {
    g_autoptr(MsSeats) seats = ms_seats_new(scenario->hardware, layout->world, NULL, 0);
    ms_layout_measure_seats(layout, seats);
  }
  return layout;
}

MsLayout *ms_layout_new(const MsScenario *scenario, MsRefusal *refusal) {
  return ms_layout_check(scenario, refusal) ? ms_layout_build(scenario) : NULL;
}

void ms_layout_free(MsLayout *layout) {
  if (!layout) return;
  g_free(layout->of_pool);
  g_free(layout->beside);
  g_free(layout->chunks);
  g_free(layout);
}

MsLayout *ms_layout_new_or_error(const MsScenario *scenario, GError **error) {
  MsRefusal refusal;
  MsLayout *layout = ms_layout_new(scenario, &refusal);
  if (!layout) {
    const MsRule *rule = &ms_rules[refusal.rule];
    ms_input_error(error, scenario->file, 0, rule->path, "%s (rule %s)", refusal.why, rule->name);
  }
  return layout;
}
