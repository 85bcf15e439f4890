#include "study/parts.h"

#include <math.h>
#include <string.h>

const char *const ms_part_words[] = {"gemm",
                                     "grouped_gemm",
                                     "attention",
                                     "memory_bound",
                                     "other_compute",
                                     "exposed_tp",
                                     "exposed_cp",
                                     "exposed_ep",
                                     "exposed_etp",
                                     "exposed_pp",
                                     "exposed_dp",
                                     "exposed_edp",
                                     "exposed_offload",
                                     "bubble",
                                     "host",
                                     "optimizer",
                                     "other",
                                     NULL};
G_STATIC_ASSERT(G_N_ELEMENTS(ms_part_words) == MS_N_PARTS + 1);
const char *const ms_mem_part_words[] = {"parameters", "gradients", "optimizer", "activations",
                                         "transient",  "buffers",   "reserved",  NULL};
G_STATIC_ASSERT(G_N_ELEMENTS(ms_mem_part_words) == MS_N_MEMS + 1);

void ms_parts_of_time(const MsResult *r, double part_s[MS_N_PARTS]) {
  const MsTimeParts *t = &r->time;
  double sum = 0;
  memset(part_s, 0, MS_N_PARTS * sizeof *part_s);
  for (int f = 0; f < 4; f++)
    part_s[MS_PART_GEMM + f] = t->family_s[f], part_s[MS_PART_OTHER_COMPUTE] -= t->family_s[f];
  part_s[MS_PART_OTHER_COMPUTE] += t->compute_s;
  if (part_s[MS_PART_OTHER_COMPUTE] < 1e-9 * t->compute_s) part_s[MS_PART_OTHER_COMPUTE] = 0; /* rounding of the sums */
  for (int c = 0; c < MS_N_COMMS; c++) part_s[MS_PART_EXPOSED + c] = t->comm_exposed_s[c];
  part_s[MS_PART_BUBBLE] = t->bubble_s;
  part_s[MS_PART_HOST] = t->host_s;
  part_s[MS_PART_OPTIMIZER] = t->optimizer_s;
  for (int p = 0; p < MS_PART_OTHER; p++) sum += part_s[p];
  part_s[MS_PART_OTHER] = r->step_time_s - sum;
  if (fabs(part_s[MS_PART_OTHER]) < 1e-9 * r->step_time_s) part_s[MS_PART_OTHER] = 0;
}

static const MsStageMemory *fullest(const MsMemory *memory) {
  return memory && memory->stages > 0 ? &memory->stage[ms_memory_fullest(memory)] : NULL;
}

void ms_parts_of_memory(const MsResult *r, double part_B[MS_N_MEMS]) {
  const MsStageMemory *m = fullest(r->memory);
  const double value[MS_N_MEMS] = {m ? m->parameters_B : 0,  m ? m->gradients_B : 0, m ? m->optimizer_B : 0,
                                   m ? m->activations_B : 0, m ? m->transient_B : 0, m ? m->buffers_B : 0,
                                   m ? m->reserved_B : 0};
  memcpy(part_B, value, sizeof value);
}

double ms_device_B(const MsResult *r) {
  const MsStageMemory *m = fullest(r->memory);
  return m ? m->device_B : NAN;
}
