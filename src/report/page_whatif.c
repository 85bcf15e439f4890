/* src/report/page_whatif.c - a what-if study as the page draws it: curves along its last axis, and the parts of every
 * point. */
#include "report/page.h"

static void write_axes(const MsWhatif *w, MsJsonOut *out) {
  ms_json_out_array(out, "axes");
  for (int a = 0; a < w->n_axes; a++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "name", w->axis[a].name);
    ms_json_out_array(out, "labels");
    for (int p = 0; p < w->axis[a].n; p++) ms_json_out_string(out, NULL, w->axis[a].point[p].label);
    ms_json_out_end(out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

static void write_row(const MsWhatifRow *row, const char *key, MsJsonOut *out) {
  const MsResult *r = row->result;
  ms_json_out_object(out, key);
  ms_json_out_string(out, "label", row->label);
  ms_json_out_string(out, "why", row->done ? row->why : "the study was stopped before this point");
  ms_json_out_bool(out, "runs", r != NULL);
  if (r) {
    ms_json_out_bool(out, "fits", r->feasible);
    ms_json_out_double(out, "value_s", row->value_s);
    ms_json_out_double(out, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
    ms_json_out_double(out, "mfu", r->mfu);
    ms_json_out_double(out, "band", r->band);
    double device_B = 0;
    for (int m = 0; m < MS_N_MEMS; m++) device_B += row->memory_B[m];
    ms_json_out_double(out, "device_B", device_B);
    ms_json_out_object(out, "parts_s");
    for (int p = 0; p < MS_N_PARTS; p++) ms_json_out_double(out, ms_part_words[p], row->part_s[p]);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

void ms_page_whatif(const MsWhatifRun *run, MsJsonOut *out) {
  const MsWhatif *w = run->whatif;
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "name", w->name);
  ms_json_out_string(out, "doc", w->doc);
  ms_json_out_string(out, "per", ms_whatif_per_words[w->per]);
  ms_json_out_bool(out, "crossed", w->combine == MS_WHATIF_CROSS);
  write_axes(w, out);
  write_row(&run->base, "base", out);
  ms_json_out_array(out, "points");
  for (int i = 0; i < run->n; i++) write_row(&run->row[i], NULL, out);
  ms_json_out_end(out);
  ms_json_out_end(out);
}
