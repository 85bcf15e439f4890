#include "sim/result.h"

#include <math.h>

const char *const ms_comm_words[] = {"tp", "cp", "ep", "etp", "pp", "dp", "edp", "offload", NULL};
static const char *const family_words[] = {"gemm", "grouped_gemm", "attention", "memory_bound"};

void ms_result_free(MsResult *result) {
  if (!result) return;
  g_free(result->name);
  g_free(result->why_infeasible);
  g_free(result->stage_time);
  g_free(result->passes);
  ms_memory_free(result->memory);
  g_free(result->bottleneck);
  g_free(result->origins);
  g_free(result->gap);
  g_free(result);
}

static void write_parts(const MsTimeParts *t, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_double(out, "compute_s", t->compute_s);
  ms_json_out_double(out, "exposed_comm_s", t->exposed_comm_s);
  ms_json_out_double(out, "bubble_s", t->bubble_s);
  ms_json_out_double(out, "host_s", t->host_s);
  ms_json_out_double(out, "optimizer_s", t->optimizer_s);
  ms_json_out_double(out, "other_s", t->other_s);
  ms_json_out_object(out, "comm");
  for (int c = 0; c < MS_N_COMMS; c++) {
    ms_json_out_object(out, ms_comm_words[c]);
    ms_json_out_double(out, "total_s", t->comm_total_s[c]);
    ms_json_out_double(out, "exposed_s", t->comm_exposed_s[c]);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_object(out, "compute_by_family");
  for (guint f = 0; f < G_N_ELEMENTS(family_words); f++) ms_json_out_double(out, family_words[f], t->family_s[f]);
  ms_json_out_end(out);
  ms_json_out_end(out);
}

void ms_memory_write(const MsMemory *memory, double capacity_B, const char *key, MsJsonOut *out) {
  if (!memory) {
    ms_json_out_null(out, key);
    return;
  }
  ms_json_out_object(out, key);
  ms_json_out_double(out, "peak_B", memory->stages > 0 ? memory->stage[memory->peak_stage].peak_B : 0);
  ms_json_out_double(out, "capacity_B", capacity_B);
  ms_json_out_int(out, "peak_stage", memory->peak_stage);
  ms_json_out_array(out, "stages");
  for (int i = 0; i < memory->stages; i++) {
    const MsStageMemory *s = &memory->stage[i];
    ms_json_out_object(out, NULL);
    ms_json_out_int(out, "stage", i);
    ms_json_out_double(out, "parameters_B", s->parameters_B);
    ms_json_out_double(out, "gradients_B", s->gradients_B);
    ms_json_out_double(out, "optimizer_B", s->optimizer_B);
    ms_json_out_double(out, "activations_B", s->activations_B);
    ms_json_out_double(out, "transient_B", s->transient_B);
    ms_json_out_double(out, "buffers_B", s->buffers_B);
    ms_json_out_double(out, "reserved_B", s->reserved_B);
    ms_json_out_double(out, "peak_B", s->peak_B);
    ms_json_out_double(out, "between_steps_B", s->between_steps_B);
    ms_json_out_double(out, "device_B", s->device_B);
    ms_json_out_string(out, "peak_where", s->peak_where);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
}

static void write_origins(const MsResult *result, MsJsonOut *out) {
  ms_json_out_array(out, "origins");
  for (int i = 0; i < result->n_origins; i++) {
    const MsOrigin *o = &result->origins[i];
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "op", o->op);
    ms_json_out_double(out, "time_s", o->time_s);
    ms_json_out_string(out, "data", o->curve ? o->curve->provenance.data : "data sheet");
    ms_json_out_double(out, "residual_p90", o->curve ? o->curve->provenance.residual_p90 : NAN);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

static void write_gap(const MsResult *result, MsJsonOut *out) {
  ms_json_out_array(out, "gap");
  for (int i = 0; i < result->n_gap; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "part", result->gap[i].name);
    ms_json_out_double(out, "fraction_of_step", result->gap[i].fraction);
    ms_json_out_double(out, "mfu_points", 100 * result->gap[i].fraction);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

static void write_routing(const MsResult *result, MsJsonOut *out) {
  const MsRoutingLoad *r = &result->routing;
  if (!(r->hottest > 0)) return;
  ms_json_out_object(out, "routing");
  ms_json_out_double(out, "hottest_rank_over_mean", r->hottest);
  ms_json_out_double(out, "hottest_rank_over_mean_of_worst_layer", r->hottest_most);
  ms_json_out_double(out, "peak_of_hottest_rank_B", r->peak_B);
  ms_json_out_double(out, "peak_of_coldest_rank_B", r->peak_coldest_B);
  ms_json_out_end(out);
}

static void write_passes(const MsResult *result, MsJsonOut *out) {
  if (!result->passes) return;
  ms_json_out_array(out, "passes");
  for (int s = 0; s < result->stages; s++) {
    const MsPasses *p = &result->passes[s];
    ms_json_out_object(out, NULL);
    for (int kind = 0; kind < MS_N_SLOTS; kind++) {
      if (p->count[kind] == 0) continue;
      ms_json_out_object(out, ms_slot_words[kind]);
      ms_json_out_int(out, "count", p->count[kind]);
      ms_json_out_double(out, "total_s", p->total_s[kind]);
      ms_json_out_end(out);
    }
    ms_json_out_double(out, "bubble_s", p->bubble_s);
    ms_json_out_double(out, "optimizer_s", p->optimizer_s);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

void ms_result_write_members(const MsResult *result, MsJsonOut *out) {
  ms_json_out_string(out, "name", result->name);
  ms_json_out_bool(out, "feasible", result->feasible);
  ms_json_out_string(out, "why_infeasible", result->why_infeasible);
  ms_json_out_double(out, "step_time_s", result->step_time_s);
  ms_json_out_double(out, "tokens_per_s_per_gpu", result->tokens_per_s_per_gpu);
  ms_json_out_double(out, "model_flop_per_token", result->model_flop_per_token);
  ms_json_out_double(out, "tflops_per_gpu", result->tflops_per_gpu);
  ms_json_out_double(out, "mfu", result->mfu);
  ms_json_out_double(out, "mfu_peak_flops", result->peak_flops > 0 ? result->peak_flops : NAN);
  ms_json_out_double(out, "model_flop_over_run_flop", result->counted_over_run > 0 ? result->counted_over_run : NAN);
  ms_json_out_double(out, "error_band", result->band);
  ms_json_out_object(out, "bound");
  ms_json_out_double(out, "step_time_lower_s", result->step_time_lower_s);
  ms_json_out_end(out);
  write_parts(&result->time, "time", out);
  if (result->pass_s[MS_SLOT_F] > 0) {
    ms_json_out_object(out, "pass_s");
    for (int kind = 0; kind < MS_N_SLOTS; kind++)
      if (result->pass_s[kind] > 0) ms_json_out_double(out, ms_slot_words[kind], result->pass_s[kind]);
    ms_json_out_end(out);
  }
  if (result->lcma_growth > 0) {
    ms_json_out_object(out, "lcma");
    ms_json_out_double(out, "time_s", result->lcma_s);
    ms_json_out_double(out, "error_growth", result->lcma_growth);
    ms_json_out_end(out);
  }
  write_routing(result, out);
  write_passes(result, out);
  ms_json_out_array(out, "stage_time");
  for (int i = 0; result->stage_time && i < result->stages; i++) write_parts(&result->stage_time[i], NULL, out);
  ms_json_out_end(out);
  ms_memory_write(result->memory, result->capacity_B, "memory", out);
  ms_json_out_object(out, "layout");
  ms_json_out_int(out, "dp", result->dp);
  ms_json_out_int(out, "edp", result->edp);
  ms_json_out_int(out, "microbatches", result->microbatches);
  ms_json_out_end(out);
  ms_json_out_string(out, "bottleneck", result->bottleneck);
  write_gap(result, out);
  write_origins(result, out);
  ms_json_out_int(out, "events", (gint64)result->events);
  ms_json_out_string(out, "fidelity", ms_fidelity_words[result->fidelity]);
  ms_json_out_double(out, "elapsed_s", result->elapsed_s);
}

void ms_result_write(const MsResult *result, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_result_write_members(result, out);
  ms_json_out_end(out);
}
