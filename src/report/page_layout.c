/* src/report/page_layout.c - who holds what: the rank grids and the layers of every stage, and what is kept at a
 * stage's peak. */
#include <math.h>
#include <string.h>

#include "report/page.h"

static void write_grid(MsJsonOut *out, const char *key, const char *const *axis,
                       const int *size) { /* axes in rank order, fastest first */
  ms_json_out_array(out, key);
  for (int i = 0; i < 4; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "axis", axis[i]);
    ms_json_out_int(out, "size", size[i]);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

static void swap_outer(const char **axis, int *size) {
  const char *a = axis[2];
  int n = size[2];
  axis[2] = axis[3], size[2] = size[3];
  axis[3] = a, size[3] = n;
}

static void write_chunk(const MsChunk *c, MsJsonOut *out) {
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "first_layer", c->first_layer);
  ms_json_out_int(out, "layers", c->num_layers);
  ms_json_out_int(out, "moe", c->num_moe);
  ms_json_out_bool(out, "embedding", c->has_embedding);
  ms_json_out_bool(out, "loss", c->has_loss);
  ms_json_out_int(out, "mtp", c->num_mtp);
  ms_json_out_end(out);
}

static void write_groups(const MsLayout *l, MsJsonOut *out) {
  ms_json_out_array(out, "groups");
  for (int g = MS_GROUP_NONE + 1; g < MS_N_GROUPS; g++) {
    if (l->group[g].size <= 1) continue;
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "group", ms_group_words[g]);
    ms_json_out_int(out, "size", l->group[g].size);
    ms_json_out_int(out, "stride", l->group[g].stride);
    ms_json_out_int(out, "domains", l->group[g].domains);
    ms_json_out_int(out, "nodes", l->group[g].nodes);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

void ms_page_layout(const MsScenario *s, const MsLayout *l, MsJsonOut *out) {
  const char *attention[] = {"tp", "cp", "dp", "pp"}, *expert[] = {"etp", "ep", "edp", "pp"};
  int attention_size[] = {l->tp, l->cp, l->dp, l->pp}, expert_size[] = {l->etp, l->ep, l->edp, l->pp};
  if (l->order != MS_ORDER_DP_PP) swap_outer(attention, attention_size), swap_outer(expert, expert_size);
  ms_json_out_object(out, "placement");
  ms_json_out_int(out, "gpus", l->world);
  ms_json_out_int(out, "gpus_per_domain", ms_gpus_per_domain(s->hardware, l->world));
  ms_json_out_int(out, "gpus_per_node", s->hardware->gpus_per_node);
  write_grid(out, "attention", attention, attention_size);
  write_grid(out, "expert", expert, expert_size);
  ms_json_out_int(out, "experts", s->model->num_experts);
  ms_json_out_int(out, "chunks", l->vpp);
  ms_json_out_array(out, "stages"); /* of each stage its chunks */
  for (int stage = 0; stage < l->pp; stage++) {
    ms_json_out_array(out, NULL);
    for (int c = 0; c < l->vpp; c++) write_chunk(ms_layout_chunk(l, stage, c), out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  write_groups(l, out);
  ms_json_out_end(out);
}

/* --- what is kept when the peak's pass begins ------------------------------------------------------------------ */
typedef struct {
  const char *name, *module;
  double bytes_B;
} Kept;

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

static int by_bytes(gconstpointer a, gconstpointer b) {
  double x = ((const Kept *)a)->bytes_B, y = ((const Kept *)b)->bytes_B;
  return x < y ? 1 : x > y ? -1 : strcmp(((const Kept *)a)->name, ((const Kept *)b)->name);
}

static void live_chunks(const MsSchedule *schedule, int stage, int before, int *live) {
  for (int k = 0; k < MIN(before, schedule->n[stage]); k++) {
    const MsSlot *slot = &schedule->slot[stage][k];
    if (slot->kind == MS_SLOT_F || slot->kind == MS_SLOT_FB) live[slot->chunk]++;
    if (slot->kind == MS_SLOT_B || slot->kind == MS_SLOT_W) live[slot->chunk]--;
    if (slot->kind == MS_SLOT_FB) live[slot->chunk2]--;
  }
}

static void write_stage_kept(const MsDetail *d, int stage, const MsStageMemory *m, MsJsonOut *out) {
  const MsLayout *l = d->layout;
  g_autofree int *live = g_new0(int, l->vpp);
  GArray *rows = g_array_new(FALSE, FALSE, sizeof(Kept));
  int microbatches = 0;
  live_chunks(d->schedule, stage, m->peak_slot, live);
  for (int c = 0; c < l->vpp; c++) {
    const MsChunk *chunk = ms_layout_chunk(l, stage, c);
    microbatches += live[c];
    for (int i = 0; i < ms_work_chunk_length(chunk); i++) {
      const MsPiece *piece = &d->work->pieces[ms_work_chunk_piece(d->work, chunk, i)];
      for (int k = 0; k < piece->n_kept; k++) add_kept(rows, &piece->kept[k], live[c]);
    }
  }
  g_array_sort(rows, by_bytes);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "stage", stage);
  ms_json_out_int(out, "live_forwards", microbatches);
  ms_json_out_array(out, "tensors");
  for (guint i = 0; i < rows->len; i++) {
    const Kept *row = &g_array_index(rows, Kept, i);
    if (!(row->bytes_B > 0)) continue;
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "name", row->name);
    ms_json_out_string(out, "module", row->module);
    ms_json_out_double(out, "bytes_B", row->bytes_B);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
  g_array_free(rows, TRUE);
}

void ms_page_kept(const MsMemory *memory, const MsDetail *d, MsJsonOut *out) {
  ms_json_out_array(out, "kept");
  for (int s = 0; s < memory->stages && s < d->schedule->stages; s++) write_stage_kept(d, s, &memory->stage[s], out);
  ms_json_out_end(out);
}
