/* src/describe/vendor.h - the columns of vendor.def: what is known of who makes a machine. */
#ifndef MS_DESCRIBE_VENDOR_H
#define MS_DESCRIBE_VENDOR_H

#include "describe/framework.h"
#include "describe/hardware.h"

typedef enum { MS_START_UNKNOWN, MS_STARTS, MS_STARTS_WITH, MS_STAYS } MsStartKind;
typedef struct {
  MsStartKind kind;
  const char *about; /* MS_STARTS_WITH: what it needs beside itself; MS_STAYS: why not, a clause; else NULL */
} MsStart;
typedef struct {
  const char *word;        /* hardware.vendor */
  const char *resource;    /* of a container of Kubernetes; NULL: not known */
  gboolean mindspeed;      /* its Megatron-LM is patched by MindSpeed */
  const char *accelerator; /* ACCELERATOR_BACKEND of MT-MegatronLM; NULL: has none */
  gboolean preflight;      /* the script that checks nodes knows its tools */
  const char *benchmark;   /* of its own library of collectives (logs/bench.c); NULL: others run it too */
  MsStart start[MS_N_FRAMEWORKS];
} MsVendorRow;

/* NULL: a machine file that says no vendor, or another one. (transfer none) */
const MsVendorRow *ms_vendor(const MsHardware *hardware);
/* Of a log: drivers put the name in front of that of the device. NULL: not known. */
const MsVendorRow *ms_vendor_of_log(const char *device, const char *benchmark);
/* MindSpeed patches what trains there: the rows of the vendor and of the framework say so. */
gboolean ms_has_mindspeed(const MsScenario *scenario);
MsStart ms_vendor_start(const MsHardware *hardware, MsFramework framework);

#endif
