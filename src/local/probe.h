/* src/local/probe.h - what the tools of this node say of its GPUs, adapters and host.
 *
 * nvidia-smi, rocm-smi, ibstat and lscpu are run where PATH has them; what is not there, fails, or prints something
 * else leaves its figures unknown. Nothing is changed on the node. */
#ifndef MS_LOCAL_PROBE_H
#define MS_LOCAL_PROBE_H

#include <glib.h>

typedef struct {
  char *gpu;           /* "NVIDIA H100 80GB HBM3"; NULL: no GPU was seen */
  char *gpu_tool;      /* "nvidia-smi" */
  int gpus;            /* of the node, all of that name; others are left out */
  double gpu_memory_B; /* of one; NaN */
  double gpu_limit_W;  /* its power limit; NaN */
  int ports;           /* active ports of the fastest rate (slower ones are for storage and management); 0 */
  double port_bps;     /* bits per second of one; NaN */
  char *host;          /* "2 x Intel(R) Xeon(R) Platinum 8480C"; NULL */
} MsProbe;

void ms_probe_run(MsProbe *probe);
void ms_probe_clear(MsProbe *probe);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MsProbe, ms_probe_clear)

/* The machine of hardware/ that a GPU of that name and memory (NaN: unknown) stands in: its first word is one of the
 * name ("h100"), then as many of its other words as the name has ("pcie", "80g"), then the nearest memory, then the one
 * with the most published runs. NULL: none is like it. (transfer full) */
char *ms_probe_machine(const char *gpu, double memory_B);

#endif
