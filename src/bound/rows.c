/* src/bound/rows.c - rows as the bounds read them: one list, or two beside each other, in the order in which they are
 * issued. */
#include "bound/rows.h"
#include "step/meeting.h"
#include "step/pair.h"

static void reserve(MsRows *rows, int n) {
  if (n <= rows->capacity) return;
  rows->capacity = n;
  rows->row = g_renew(MsRow, rows->row, n);
  rows->place = g_renew(int, rows->place, n);
}

static void add(MsRows *rows, const MsCosted *c, int i, MsTime duration, gboolean beside, int *place) {
  const MsOp *op = &c->list->op[i];
  MsRow *r = &rows->row[rows->n];
  *r = (MsRow){.stream = op->stream,
               .beside = beside,
               .host_waits = (op->flags & MS_OPF_SYNC) != 0,
               .sms = c->sms[i],
               .use = c->use[i],
               .kind = ms_row_kind(op, c->use[i]),
               .duration = duration,
               .launch = c->launch[i]};
  int n = 0;
  for (int j = 0; j < 3; j++) {
    int k = op->wait[j] >= 0 ? place[op->wait[j]] : -1;
    if (k >= 0) r->wait[n++] = k;
  }
  while (n < 3) r->wait[n++] = -1;
  place[i] = rows->n++;
}

static gboolean waits_at_all(const MsOp *op) { return op->wait[0] >= 0 || op->wait[1] >= 0 || op->wait[2] >= 0; }

void ms_rows_of_list(MsRows *rows, const MsCosted *c, MsListPart part) {
  int n = c->list->n;
  reserve(rows, n);
  rows->n = 0, rows->tip[0] = rows->tip[1] = -1;
  for (int i = 0; i < n; i++) {
    rows->place[i] = -1;
    if (!ms_in_list_part(&c->list->op[i], part)) continue;
    add(rows, c, i, c->duration[i], FALSE, rows->place);
    MsRow *r = &rows->row[rows->n - 1];
    r->opens = r->wait[0] < 0;
    rows->tip[0] = rows->n - 1;
  }
  if (n > 0 && rows->place[c->list->tip] >= 0) rows->tip[0] = rows->place[c->list->tip];
}

void ms_rows_of_pair(MsRows *rows, const MsCosted *f, const MsCosted *b, gboolean delay_wgrad) {
  int n = f->list->n + b->list->n;
  reserve(rows, n);
  rows->n = 0;
  g_autofree MsPairRow *order = g_new(MsPairRow, MAX(n, 1));
  n = ms_pair_order(f->list, b->list, delay_wgrad, order);
  int *place[] = {rows->place, rows->place + f->list->n};
  for (int i = 0; i < n; i++) rows->place[i] = -1;
  for (int i = 0; i < n; i++) {
    const MsCosted *c = order[i].backward ? b : f;
    add(rows, c, order[i].row, c->beside[order[i].row], order[i].backward, place[order[i].backward]);
    rows->row[rows->n - 1].opens = !waits_at_all(&c->list->op[order[i].row]);
  }
  rows->tip[0] = f->list->n > 0 ? place[0][f->list->tip] : -1;
  rows->tip[1] = b->list->n > 0 ? place[1][b->list->tip] : -1;
}

void ms_rows_clear(MsRows *rows) {
  g_free(rows->row);
  g_free(rows->place);
}
