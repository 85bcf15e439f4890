/* src/step/lists.c - all lists of rows of a step, for who wants each of them. */
#include "step/program.h"

void ms_program_each_list(const MsProgram *p, void (*each)(const MsCosted *list, gpointer data), gpointer data) {
  for (int i = 0; i < p->work->n_pieces; i++)
    each(&p->piece[i].forward, data), each(&p->piece[i].backward, data), each(&p->piece[i].reload, data);
  for (int i = 0; p->unit && i < p->work->n_pieces; i++)
    for (int k = 0; k < MS_UNIT_LISTS; k++) each(&p->unit[i].list[k], data);
  for (int i = 0; i < p->layout->pp; i++) {
    const MsCostedStep *s = &p->step[i];
    each(&s->before, data), each(&s->reduce, data), each(&s->gather, data), each(&s->after, data);
  }
}
