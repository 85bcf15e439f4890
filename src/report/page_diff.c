/* src/report/page_diff.c - two profiles of a step beside each other: what the page draws its bars and lanes from. */
#include "report/page.h"

/* {"name", "spans": [class, start in us, length in us, ...]} of every stream; classes by their place in `words`. */
static void put_lanes(const MsProfile *p, GPtrArray *words, MsJsonOut *out) {
  ms_json_out_array(out, NULL);
  for (int i = 0; i < p->n_streams; i++) {
    const MsProfileStream *s = &p->stream[i];
    if (s->n_spans == 0) continue;
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "name", s->name);
    ms_json_out_array(out, "spans");
    for (int k = 0; k < s->n_spans; k++) {
      guint at = 0;
      while (at < words->len && words->pdata[at] != (gpointer)s->span[k].word) at++;
      if (at == words->len) g_ptr_array_add(words, (gpointer)s->span[k].word);
      ms_json_out_int(out, NULL, (gint64)at);
      ms_json_out_double(out, NULL, 1e6 * s->span[k].start_s);
      ms_json_out_double(out, NULL, 1e6 * (s->span[k].end_s - s->span[k].start_s));
    }
    ms_json_out_end(out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

char *ms_page_diff_text(const MsDiff *d) {
  const char *title[2];
  g_autoptr(GPtrArray) words = g_ptr_array_new();
  MsJsonOut *out = ms_json_out_new(0);
  ms_report_diff_titles(d, &title[0], &title[1]);
  ms_json_out_object(out, NULL);
  ms_json_out_array(out, "titles");
  for (int i = 0; i < 2; i++) ms_json_out_string(out, NULL, title[i]);
  ms_json_out_end(out);
  ms_figures_write(&ms_diff_figures, d, "diff", out);
  ms_json_out_array(out, "lanes");
  put_lanes(d->a, words, out);
  put_lanes(d->b, words, out);
  ms_json_out_end(out);
  ms_json_out_array(out, "words");
  for (guint i = 0; i < words->len; i++) ms_json_out_string(out, NULL, words->pdata[i]);
  ms_json_out_end(out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}
