/* src/step/meeting.c - which kinds of rows a step has on the network, and how fast they are beside each other. */
#include "step/meeting.h"

#include <string.h>

G_STATIC_ASSERT((int)MS_MEETING_KINDS == (int)MS_SHARING_CLASSES);
G_STATIC_ASSERT(1 + MS_ROW_FORMS * MS_N_GROUPS <= 256);

typedef struct {
  const MsProgram *p;
  MsMeets *meets;
  MsMeetingKind kind[MS_MEETING_KINDS];
  int n;
  gboolean fabric;
} Finder;

int ms_row_parts(const MsProgram *p, const MsOp *op) { return ms_cost_meeting_kind(p->cost, p->layout, op).parts; }

/* Without a fabric kinds differ in their parts alone. */
static int class_of(Finder *f, const MsMeetingKind *kind) {
  for (int c = 0; c < f->n && !f->fabric; c++)
    if (f->kind[c].parts == kind->parts) return c;
  f->kind[f->n] = *kind;
  return f->n++;
}

/* Kinds beyond those that a meeting holds share in equal parts. */
static void note(Finder *f, const MsOp *op, int use) {
  guint8 kind = ms_row_kind(op, use), *of = &f->meets->sharing.of[kind];
  if (kind == 0 || *of != MS_SHARING_NONE || f->n == MS_MEETING_KINDS) return;
  MsMeetingKind meets = ms_cost_meeting_kind(f->p->cost, f->p->layout, op);
  *of = (guint8)class_of(f, &meets);
}

static void note_list(const MsCosted *c, gpointer finder) {
  for (int i = 0; i < c->list->n; i++) note(finder, &c->list->op[i], c->use[i]);
}

static void note_rows(Finder *f) {
  const MsProgram *p = f->p;
  ms_program_each_list(p, note_list, f);
  if (p->layout->pp > 1) note(f, &p->p2p_op, p->p2p.level ? MS_USE_LINK1 : MS_USE_LINK0);
}

static void rates(gconstpointer data, const guint8 *running, double *rate) { ms_meeting_rates(data, running, rate); }

gboolean ms_program_meet(MsProgram *p, GError **error) {
  if (p->meets) return TRUE;
  MsMeets *meets = g_new0(MsMeets, 1);
  memset(meets->sharing.of, MS_SHARING_NONE, sizeof meets->sharing.of);
  Finder f = {.p = p, .meets = meets, .fabric = ms_program_meets(p->scenario)};
  note_rows(&f);
  gboolean alike = f.n <= 1 && !f.fabric,
           ok = alike || ms_cost_meeting(p->cost, p->layout, f.kind, f.n, &meets->meeting, error);
  meets->sharing.rates = rates, meets->sharing.data = meets->meeting;
  if (ok && meets->meeting) p->meets = meets;
  else ms_meets_free(meets);
  return ok;
}

void ms_meets_free(MsMeets *meets) {
  if (!meets) return;
  ms_meeting_free(meets->meeting);
  g_free(meets);
}

double ms_meets_rate(const MsMeets *meets, int own, const guint8 running[MS_SHARING_CLASSES]) {
  double rate[MS_SHARING_CLASSES];
  ms_meeting_rates(meets->meeting, running, rate);
  return rate[own];
}

MsTrajectory *ms_program_run(const MsProgram *p, const MsGraph *graph, MsRound *round) {
  const MsSharing *sharing = p->meets ? &p->meets->sharing : NULL;
  if (!ms_graph_shares(graph)) return ms_engine_relax(graph);
  return round ? ms_engine_events_until_round(graph, sharing, round) : ms_engine_events(graph, sharing);
}
