/* src/study/parts.h - what a prediction is made of, in named parts that add up: step time, and memory of the fullest
 * stage. */
#ifndef MS_STUDY_PARTS_H
#define MS_STUDY_PARTS_H

#include "sim/result.h"

/* Mean over stages; other_compute: on the compute stream, but of no family */
typedef enum {
  MS_PART_GEMM,
  MS_PART_GROUPED_GEMM,
  MS_PART_ATTENTION,
  MS_PART_MEMORY_BOUND,
  MS_PART_OTHER_COMPUTE,
  MS_PART_EXPOSED, /* the first of MS_N_COMMS, by MsCommClass */
  MS_PART_BUBBLE = MS_PART_EXPOSED + MS_N_COMMS,
  MS_PART_HOST,
  MS_PART_OPTIMIZER,
  MS_PART_OTHER,
  MS_N_PARTS
} MsPart;
extern const char *const ms_part_words[]; /* gemm grouped_gemm attention memory_bound other_compute exposed_tp ...
                                             exposed_offload bubble host optimizer other */

typedef enum {
  MS_MEM_PARAMETERS,
  MS_MEM_GRADIENTS,
  MS_MEM_OPTIMIZER,
  MS_MEM_ACTIVATIONS,
  MS_MEM_TRANSIENT,
  MS_MEM_BUFFERS,
  MS_MEM_RESERVED,
  MS_N_MEMS
} MsMemPart;
extern const char
    *const ms_mem_part_words[]; /* parameters gradients optimizer activations transient buffers reserved */

/* Seconds of each part; their sum is the step time but for rounding (what is left over goes to `other`). */
void ms_parts_of_time(const MsResult *result, double part_s[MS_N_PARTS]);
/* Bytes of each part on the stage that needs most of its device; their sum is its device_B. Zero without memory. */
void ms_parts_of_memory(const MsResult *result, double part_B[MS_N_MEMS]);
/* Bytes of the device that the fullest stage needs; NaN without memory. */
double ms_device_B(const MsResult *result);

#endif
