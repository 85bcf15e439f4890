/* src/fabric/pattern.c - collectives as flows, their time on a fabric over that on an ideal network. */
#include "fabric/pattern.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

#define MOST_FLOWS 4e6
#define SLACK      0.005 /* flows of one collective that end within half a percent end together */
#define SAME       1e-9  /* a slowdown of less than this is rounding */

const char *const ms_pattern_words[] = {"ring", "tree", "exchange", "pair", "pat", "halving", NULL};

gboolean ms_pattern_serves(const MsHardware *h, const MsGroup *g, MsPattern pattern) {
  const MsCollectivesRow *library = &ms_collectives_rows[h->collectives];
  gboolean halves = library->halves && g->domains > 1 && (g->domains & (g->domains - 1)) == 0,
           nhr = library->nhr && g->domains > 2;
  switch (pattern) {
  case MS_PATTERN_HALVING: return halves;
  case MS_PATTERN_PAT: return nhr || (library->pat && g->per_domain == 1);
  case MS_PATTERN_RING: return !halves;
  case MS_PATTERN_TREE: return !library->server_rings;
  case MS_PATTERN_EXCHANGE:
  case MS_PATTERN_PAIR:
  case MS_N_PATTERNS: break;
  }
  return TRUE;
}

/* --- the groups of a kind --- */

typedef struct {
  const MsLayout *layout;
  MsGroupKind kind;
  guint8 *seen;
  int rank, n, *member; /* of the group at hand */
  int job;              /* whose */
} Groups;

static Groups groups_of(const MsLayout *l, MsGroupKind kind) {
  return (Groups){.layout = l, .kind = kind, .seen = g_malloc0((gsize)l->world), .member = g_new(int, l->world)};
}

static gboolean next_group(Groups *g) {
  for (; g->rank < g->layout->world; g->rank++) {
    if (g->seen[g->rank]) continue;
    g->n = ms_group_members(g->layout, g->kind, g->rank, g->member, g->layout->world);
    gboolean known = g->seen[g->member[0]];
    g->seen[g->rank] = 1;
    for (int i = 0; i < g->n; i++) g->seen[g->member[i]] = 1;
    if (!known) return TRUE;
  }
  g_free(g->seen), g_free(g->member);
  return FALSE;
}

/* Index into the seats. */
static int seat_of(const Groups *g, int member) { return g->job * g->layout->world + g->member[member]; }

/* --- one group by scale-up domains, these in the order of their first ranks --- */

typedef struct {
  int n, least, *from, *gpu; /* [n + 1], GPUs of each domain together; the fewest in one */
  int *place, *of;           /* [domains of the fabric] index here, -1; [members] */
} Domains;

static Domains domains_new(const MsFabricGraph *g, int world) {
  int all = g->nodes * g->node_gpus / g->seats->domain_gpus + 1;
  Domains d = {.from = g_new(int, world + 2), .gpu = g_new(int, world), .of = g_new(int, world)};
  d.place = g_new(int, all);
  memset(d.place, 0xff, sizeof(int) * (gsize)all);
  return d;
}

static void domains_clear(Domains *d) { g_free(d->from), g_free(d->gpu), g_free(d->of), g_free(d->place); }

static void sort_out(Domains *d, const MsSeats *seats, const Groups *g) {
  d->n = 0, d->least = g->n;
  memset(d->from, 0, sizeof(int) * (gsize)(g->n + 2));
  for (int i = 0; i < g->n; i++) {
    int *place = &d->place[ms_seats_domain(seats, seat_of(g, i))];
    if (*place < 0) *place = d->n++;
    d->of[i] = *place, d->from[*place + 2]++;
  }
  for (int i = 0; i < d->n; i++) d->least = MIN(d->least, d->from[i + 2]), d->from[i + 2] += d->from[i + 1];
  for (int i = 0; i < g->n; i++) {
    d->gpu[d->from[d->of[i] + 1]++] = seats->gpu[seat_of(g, i)];
    d->place[ms_seats_domain(seats, seat_of(g, i))] = -1;
  }
}

static int gpus_in(const Domains *d, int domain) { return d->from[domain + 1] - d->from[domain]; }
/* The `channel`th GPU of a domain, again from the first when there are fewer. */
static int gpu_of(const Domains *d, int domain, int channel) {
  return d->gpu[d->from[domain] + channel % gpus_in(d, domain)];
}

/* --- flows --- */

typedef struct {
  const MsFabricGraph *graph;
  MsFlows *flows;
  Domains at;
  GArray *sender; /* int: of each flow of a pair the rank that sends; NULL: nobody asks */
} Maker;

/* Hops at one pace: those of one session are added to it. */
static void hop(Maker *m, int from, int to, int part, int salt) {
  guint32 link[MS_FABRIC_PATH_MAX];
  int n = ms_fabric_path(m->graph, from, to, part, (guint32)salt, link);
  ms_flows_also(m->flows, link, (guint32)n);
}

static void session(Maker *m, double bytes) { ms_flows_add(m->flows, bytes, NULL, 0); }

static void ring(Maker *m, int channel, int part) {
  session(m, m->graph->nic_Bps / m->graph->parts);
  for (int i = 0; i < m->at.n; i++)
    hop(m, gpu_of(&m->at, i, channel), gpu_of(&m->at, (i + 1) % m->at.n, channel), part, 0);
}

/* NCCL's: the parent of a rank is it with its lowest bit moved up. */
static int parent_of(int rank, int n) {
  int bit = rank & -rank, up = (rank ^ bit) | bit << 1;
  return up < n ? up : rank ^ bit;
}

/* The second tree is the first with ranks mirrored, or moved by one where they are odd in number: leaves become inner
 * ranks. Bytes go up and come down, half of them in each tree. */
static void tree(Maker *m, int channel, int part) {
  int n = m->at.n;
  for (int second = 0; second < 2; second++) {
    session(m, m->graph->nic_Bps / m->graph->parts / 2);
    for (int r = 1; r < n; r++) {
      int child = r, parent = parent_of(r, n);
      if (second) child = n % 2 ? (child + 1) % n : n - 1 - child, parent = n % 2 ? (parent + 1) % n : n - 1 - parent;
      int a = gpu_of(&m->at, child, channel), b = gpu_of(&m->at, parent, channel);
      hop(m, a, b, part, second), hop(m, b, a, part, second);
    }
  }
}

static void exchange(Maker *m, int members) {
  const Domains *d = &m->at;
  double unit = m->graph->nic_Bps / (members - d->least) / m->graph->parts;
  for (int a = 0; a < d->n; a++)
    for (int b = 0; b < d->n; b++)
      for (int k = 0; a != b && k < gpus_in(d, a); k++)
        for (int part = 0; part < m->graph->parts; part++) {
          session(m, unit * gpus_in(d, b));
          hop(m, gpu_of(d, a, k), gpu_of(d, b, k), part, 0);
        }
}

/* Rounds, one after the other, of so many domains. */
static int rounds_of(MsPattern pattern, int domains) {
  int rounds = 0;
  if (pattern < MS_PATTERN_PAT) return 1;
  while (1 << rounds < domains) rounds++;
  return rounds;
}

/* A round: blocks for or of so many domains go to the partner. */
static void doubling(Maker *m, MsPattern pattern, int round, int channel, int part) {
  int n = m->at.n, away = 1 << round,
      blocks = pattern == MS_PATTERN_HALVING ? away : (n - away + 2 * away - 1) / (2 * away);
  for (int i = 0; i < n && away < n; i++) {
    int to = pattern == MS_PATTERN_HALVING ? i ^ away : (i + away) % n;
    if (to >= n) continue; /* a group over fewer domains than the worst */
    session(m, m->graph->nic_Bps / m->graph->parts * blocks / (n - 1));
    hop(m, gpu_of(&m->at, i, channel), gpu_of(&m->at, to, channel), part, round);
  }
}

/* The last member sends to the first: everywhere but in a pipeline that is not interleaved. */
static gboolean closes(const MsLayout *l, MsGroupKind kind) { return kind != MS_GROUP_PP || l->pp_closes; }

/* To the next member, or back from it. */
static void pairs(Maker *m, const Groups *g, gboolean back) {
  const MsSeats *seats = m->graph->seats;
  for (int i = 0; i < (closes(g->layout, g->kind) ? g->n : g->n - 1); i++) {
    int next = (i + 1) % g->n, from = seat_of(g, back ? next : i), to = seat_of(g, back ? i : next);
    for (int part = 0; part < m->graph->parts && ms_seats_domain(seats, from) != ms_seats_domain(seats, to); part++) {
      if (m->sender) g_array_append_val(m->sender, g->member[i]);
      session(m, m->graph->nic_Bps / m->graph->parts);
      hop(m, seats->gpu[from], seats->gpu[to], part, 0);
    }
  }
}

enum { ALL_ROUNDS = -1, BACK = -2 /* of pairs: the other way */ };

static void group_flows(Maker *m, const Groups *g, MsPattern pattern, int round) {
  if (pattern == MS_PATTERN_PAIR) {
    pairs(m, g, round == BACK);
    return;
  }
  sort_out(&m->at, m->graph->seats, g);
  if (m->at.n < 2) return;
  if (pattern == MS_PATTERN_EXCHANGE) exchange(m, g->n);
  else
    for (int c = 0; c < m->at.least; c++)
      for (int part = 0; part < m->graph->parts; part++) {
        if (pattern < MS_PATTERN_PAT) (pattern == MS_PATTERN_RING ? ring : tree)(m, c, part);
        for (int k = 0; pattern >= MS_PATTERN_PAT && k < rounds_of(pattern, m->at.n); k++)
          if (round == ALL_ROUNDS || round == k) doubling(m, pattern, k, c, part);
      }
}

static gboolean can_hold(const MsFabricGraph *graph, const MsLayout *l, MsGroupKind kind, MsPattern pattern,
                         GError **error) {
  double flows = (double)l->world * graph->seats->jobs * MAX(1, l->group[kind].domains - 1) * graph->parts;
  return pattern != MS_PATTERN_EXCHANGE || flows <= MOST_FLOWS ||
         ms_input_error(error, NULL, 0, "hardware.fabric",
                        "an exchange over groups %s of %d domains is %.3g "
                        "flows, at most %.3g",
                        ms_group_words[kind], l->group[kind].domains, flows, MOST_FLOWS);
}

/* `end`: of each group the number of flows then, guint32; `sender`: as in Maker; NULL: not asked for. */
static MsFlows *flows_by_group(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                               int round, GArray *end, GArray *sender, GError **error) {
  if (!can_hold(graph, layout, kind, pattern, error)) return NULL;
  Maker m = {graph, ms_flows_new(graph->n_links), domains_new(graph, layout->world), sender};
  for (int job = 0; job < graph->seats->jobs; job++)
    for (Groups g = groups_of(layout, kind); next_group(&g);) {
      g.job = job;
      group_flows(&m, &g, pattern, round);
      if (end && job == 0) g_array_append_val(end, m.flows->n);
    }
  domains_clear(&m.at);
  return m.flows;
}

MsFlows *ms_pattern_flows(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                          GError **error) {
  return flows_by_group(graph, layout, kind, pattern, ALL_ROUNDS, NULL, NULL, error);
}

/* --- times --- */

/* `ideal`: where only NICs have a limit. */
static MsFlowTimes *times_of(const MsFabricGraph *g, const MsFlows *flows, gboolean ideal) {
  g_autofree double *Bps = g_new(double, g->n_links);
  for (guint32 l = 0; l < g->n_links; l++)
    Bps[l] = ideal ? ms_fabric_ideal_Bps(g, l) : ms_fabric_is_port(g, l) ? HUGE_VAL : g->Bps[l];
  return ms_flows_run(flows, Bps, SLACK);
}

static double slowdown_of(double real_s, double ideal_s) {
  return real_s > ideal_s * (1 + SAME) ? real_s / ideal_s : 1;
}

static void find_busiest(const MsFabricGraph *g, const MsFlows *flows, double time_s, MsFabricTime *time) {
  g_autofree double *carried = ms_flows_carried(flows);
  for (guint32 l = g->first_nic; l < g->n_links; l++) {
    double load = carried[l] > 0 ? carried[l] / g->Bps[l] / time_s : 0;
    if (load > time->load) time->load = load, time->busiest = l;
  }
}

gboolean ms_pattern_time(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                         MsFabricTime *time, GError **error) {
  *time = (MsFabricTime){.slowdown = 1};
  if (layout->group[kind].domains <= 1) return TRUE;
  double real_s = 0, ideal_s = 0;
  for (int k = 0; k < rounds_of(pattern, layout->group[kind].domains); k++) {
    g_autoptr(MsFlows) flows = flows_by_group(graph, layout, kind, pattern, k, NULL, NULL, error);
    if (!flows) return FALSE;
    g_autoptr(MsFlowTimes) real = times_of(graph, flows, FALSE);
    g_autoptr(MsFlowTimes) ideal = times_of(graph, flows, TRUE);
    real_s += real->makespan_s, ideal_s += ideal->makespan_s;
  }
  g_autoptr(MsFlows) all = ms_pattern_flows(graph, layout, kind, pattern, error);
  if (!all || all->n == 0) return all != NULL;
  time->slowdown = slowdown_of(real_s, ideal_s);
  time->flows = all->n;
  find_busiest(graph, all, real_s, time);
  return TRUE;
}

static double last_end_s(const MsFlowTimes *t, guint32 from, guint32 to) {
  double last = 0;
  for (guint32 i = from; i < to; i++) last = MAX(last, t->end_s[i]);
  return last;
}

gboolean ms_pattern_group_times(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                                double *times, GError **error) {
  g_autofree double *real_s = g_new0(double, 2 * (gsize)layout->world);
  double *ideal_s = real_s + layout->world;
  for (int r = 0; r < layout->world; r++) times[r] = 1;
  if (layout->group[kind].domains <= 1) return TRUE;
  for (int k = 0; k < rounds_of(pattern, layout->group[kind].domains); k++) {
    g_autoptr(GArray) end = g_array_new(FALSE, FALSE, sizeof(guint32));
    g_autoptr(MsFlows) flows = flows_by_group(graph, layout, kind, pattern, k, end, NULL, error);
    if (!flows) return FALSE;
    g_autoptr(MsFlowTimes) real = times_of(graph, flows, FALSE);
    g_autoptr(MsFlowTimes) ideal = times_of(graph, flows, TRUE);
    for (guint32 nth = 0, from = 0; nth < end->len; from = g_array_index(end, guint32, nth++)) {
      guint32 to = g_array_index(end, guint32, nth);
      real_s[nth] += last_end_s(real, from, to), ideal_s[nth] += last_end_s(ideal, from, to);
    }
  }
  guint32 nth = 0;
  for (Groups g = groups_of(layout, kind); next_group(&g); nth++)
    for (int i = 0; i < g.n; i++) times[g.member[i]] = slowdown_of(real_s[nth], ideal_s[nth]);
  return TRUE;
}

gboolean ms_pattern_message_times(const MsFabricGraph *graph, const MsLayout *layout, double *times, GError **error) {
  g_autofree double *real_s = g_new0(double, 2 * (gsize)layout->world);
  double *ideal_s = real_s + layout->world;
  for (int r = 0; r < layout->world; r++) times[r] = 1;
  if (layout->group[MS_GROUP_PP].domains <= 1) return TRUE;
  g_autoptr(GArray) sender = g_array_new(FALSE, FALSE, sizeof(int));
  g_autoptr(MsFlows) flows =
      flows_by_group(graph, layout, MS_GROUP_PP, MS_PATTERN_PAIR, ALL_ROUNDS, NULL, sender, error);
  if (!flows) return FALSE;
  g_autoptr(MsFlowTimes) real = times_of(graph, flows, FALSE);
  g_autoptr(MsFlowTimes) ideal = times_of(graph, flows, TRUE);
  guint own = sender->len / (guint)graph->seats->jobs; /* this job's come first */
  for (guint i = 0; i < own; i++) {
    int r = g_array_index(sender, int, i);
    real_s[r] = MAX(real_s[r], real->end_s[i]), ideal_s[r] = MAX(ideal_s[r], ideal->end_s[i]);
  }
  for (int r = 0; r < layout->world; r++) times[r] = slowdown_of(real_s[r], ideal_s[r]);
  return TRUE;
}

static void carry(const MsFlows *flows, guint32 flow, double times, double *carried_B) {
  for (guint32 k = flows->first[flow]; k < flows->first[flow + 1]; k++)
    carried_B[flows->link[k]] += times * flows->bytes[flow];
}

/* A flow's bytes are those of a NIC that moves nic_Bps. */
static gboolean carry_way(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                          int round, const double *stage_B, double *carried_B, GError **error) {
  g_autoptr(GArray) end = g_array_new(FALSE, FALSE, sizeof(guint32));
  g_autoptr(GArray) sender = g_array_new(FALSE, FALSE, sizeof(int));
  g_autoptr(MsFlows) flows = flows_by_group(graph, layout, kind, pattern, round, end, sender, error);
  if (!flows) return FALSE;
  guint32 flow = 0, nth = 0;
  for (Groups g = groups_of(layout, kind); next_group(&g); nth++)
    for (; flow < g_array_index(end, guint32, nth); flow++) {
      int rank = kind == MS_GROUP_PP && pattern == MS_PATTERN_PAIR ? g_array_index(sender, int, flow) : g.member[0];
      carry(flows, flow, stage_B[ms_rank_stage(layout, rank)] / graph->nic_Bps, carried_B);
    }
  return TRUE;
}

gboolean ms_pattern_carry(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                          const double *stage_B, double *carried_B, GError **error) {
  if (layout->group[kind].domains <= 1) return TRUE;
  gboolean both = kind == MS_GROUP_PP && pattern == MS_PATTERN_PAIR;
  return carry_way(graph, layout, kind, pattern, ALL_ROUNDS, stage_B, carried_B, error) &&
         (!both || carry_way(graph, layout, kind, pattern, BACK, stage_B, carried_B, error));
}

double ms_fabric_port_slowdown(const MsFabricGraph *g) {
  double most = 1;
  for (int r = 0; r < g->seats->world; r++) {
    guint32 out = 2 * (guint32)g->seats->gpu[r];
    most = MAX(most, g->scaleup_Bps / MIN(g->Bps[out], g->Bps[out + 1]));
  }
  return isfinite(most) ? most : 1;
}

/* --- slowdowns of groups seen before --- */

struct MsFabricCosts {
  gatomicrefcount refs;
  MsFabricGraph *graph;
  GMutex lock;
  GHashTable *known; /* key of groups and pattern -> double */
};

MsFabricCosts *ms_fabric_costs_new(const MsScenario *scenario, GError **error) {
  MsFabricGraph *graph = ms_fabric_graph_new(scenario, error);
  if (!graph) return NULL;
  MsFabricCosts *c = g_new0(MsFabricCosts, 1);
  g_atomic_ref_count_init(&c->refs);
  g_mutex_init(&c->lock);
  c->graph = graph, c->known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  return c;
}

MsFabricCosts *ms_fabric_costs_ref(MsFabricCosts *c) {
  if (c) g_atomic_ref_count_inc(&c->refs);
  return c;
}

void ms_fabric_costs_unref(MsFabricCosts *c) {
  if (!c || !g_atomic_ref_count_dec(&c->refs)) return;
  ms_fabric_graph_free(c->graph);
  g_hash_table_unref(c->known);
  g_mutex_clear(&c->lock);
  g_free(c);
}

const MsFabricGraph *ms_fabric_costs_graph(const MsFabricCosts *c) { return c->graph; }

/* Groups of the same ranks have the same flows, whatever they are called; in a pipeline they do not close. */
static char *key_of(const MsLayout *l, MsGroupKind kind, MsPattern pattern) {
  GChecksum *sum = g_checksum_new(G_CHECKSUM_SHA256);
  for (Groups g = groups_of(l, kind); next_group(&g);) {
    g_checksum_update(sum, (const guchar *)&g.n, sizeof g.n);
    g_checksum_update(sum, (const guchar *)g.member, (gssize)(sizeof(int) * (gsize)g.n));
  }
  char *key =
      g_strdup_printf("%d %d %s", pattern, pattern == MS_PATTERN_PAIR && !closes(l, kind), g_checksum_get_string(sum));
  g_checksum_free(sum);
  return key;
}

gboolean ms_fabric_slowdown(MsFabricCosts *c, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                            double *slowdown, GError **error) {
  *slowdown = 1;
  if (layout->group[kind].domains <= 1) return TRUE;
  g_autofree char *key = key_of(layout, kind, pattern);
  g_mutex_lock(&c->lock);
  const double *known = g_hash_table_lookup(c->known, key);
  MsFabricTime time = {.slowdown = known ? *known : 1};
  gboolean ok = known || ms_pattern_time(c->graph, layout, kind, pattern, &time, error);
  if (ok && !known) g_hash_table_insert(c->known, g_steal_pointer(&key), g_memdup2(&time.slowdown, sizeof(double)));
  g_mutex_unlock(&c->lock);
  *slowdown = time.slowdown;
  return ok;
}

gboolean ms_fabric_pair_slowdowns(MsFabricCosts *c, const MsLayout *layout, double *times, GError **error) {
  g_autofree char *of = key_of(layout, MS_GROUP_PP, MS_PATTERN_PAIR), *key = g_strconcat(of, " pairs", NULL);
  g_mutex_lock(&c->lock);
  const double *known = g_hash_table_lookup(c->known, key);
  g_autofree double *each = known ? NULL : g_new(double, layout->world);
  gboolean ok = known || ms_pattern_message_times(c->graph, layout, each, error);
  for (int i = 0; ok && i < layout->pp; i++) times[i] = known ? known[i] : 1;
  for (int r = 0; ok && !known && r < layout->world; r++) {
    int stage = ms_rank_stage(layout, r);
    times[stage] = MAX(times[stage], each[r]);
  }
  if (ok && !known)
    g_hash_table_insert(c->known, g_steal_pointer(&key), g_memdup2(times, sizeof(double) * (gsize)layout->pp));
  g_mutex_unlock(&c->lock);
  return ok;
}
