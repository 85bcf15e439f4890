/* src/launch/preflight.c - a script that checks one node against the machine file before a run, and keeps what it saw.
 *
 * Facts: nvidia-smi --help-query-gpu, sysfs of InfiniBand (Documentation/ABI/stable/sysfs-class-infiniband). */
#include <math.h>
#include <string.h>

#include "describe/vendor.h"
#include "launch/form.h"

#define GIGABIT 1e9

static const char checks[] =
    "host=$(hostname)\n"
    "problems=0\n"
    "problem() { echo \"$host: $*\" >&2; problems=$((problems + 1)); }\n"
    "\n"
    "# GPUs: how many, memory, power limit, who else is on them, errors of memory. A board of less than half the "
    "memory\n"
    "# is for a screen, and [N/A] is no number.\n"
    "field() {\n"
    "  nvidia-smi --query-gpu=\"memory.total,$1\" --format=csv,noheader,nounits |\n"
    "    awk -F ', ' -v half=$((want_MiB / 2)) '$1 >= half { print $2 }'\n"
    "}\n"
    "numbers() { field \"$1\" | grep -o '^[0-9][0-9]*' | sort -n; }\n"
    "gpus=$(field name | grep -c .)\n"
    "[ \"$gpus\" -eq \"$want_gpus\" ] || problem \"$gpus GPUs, not $want_gpus\"\n"
    "least_MiB=$(numbers memory.total | head -n 1)\n"
    "[ \"${least_MiB:-0}\" -ge \"$want_MiB\" ] || problem \"a GPU has ${least_MiB:-0} MiB, not $want_MiB\"\n"
    "most_used_MiB=$(numbers memory.used | tail -n 1)\n"
    "[ \"${most_used_MiB:-0}\" -le 2048 ] || problem \"a GPU is in use: $most_used_MiB MiB\"\n"
    "least_W=$(numbers power.limit | head -n 1)\n"
    "[ \"${least_W:-$want_W}\" -ge \"$want_W\" ] || problem \"a GPU may draw $least_W W only, not $want_W\"\n"
    "if field ecc.errors.uncorrected.volatile.total | grep -q '[1-9]'; then problem \"uncorrected errors of memory\"; "
    "fi\n"
    "if nvidia-smi nvlink --status 2>/dev/null | grep -qi inactive; then problem \"a link of NVLink is down\"; fi\n"
    "\n"
    "# Adapters: ports that are up, and their rate\n"
    "nic_Gbps=0\n"
    "adapters=${ADAPTERS:-/sys/class/infiniband}\n"
    "for port in \"$adapters\"/*/ports/*; do\n"
    "  [ -r \"$port/rate\" ] || continue\n"
    "  if grep -q ACTIVE \"$port/state\"; then\n"
    "    rate=$(cut -d ' ' -f 1 \"$port/rate\" | cut -d . -f 1)\n"
    "    nic_Gbps=$((nic_Gbps + rate))\n"
    "  else\n"
    "    problem \"port ${port#\"$adapters\"/} is down\"\n"
    "  fi\n"
    "done\n"
    "[ \"$want_nodes\" -eq 1 ] || [ \"$nic_Gbps\" -ge \"$want_Gbps\" ] || problem \"adapters give $nic_Gbps Gb/s, not "
    "$want_Gbps\"\n"
    "\n"
    "# The first node by its name, shared memory, versions\n"
    "if [ -n \"${MASTER_ADDR:-}\" ]; then\n"
    "  getent hosts \"$MASTER_ADDR\" >/dev/null || problem \"MASTER_ADDR $MASTER_ADDR has no address\"\n"
    "fi\n"
    "shm_MiB=$(df -Pm /dev/shm | awk 'NR == 2 { print $2 }')\n"
    "[ \"${shm_MiB:-0}\" -ge 1024 ] || problem \"/dev/shm has ${shm_MiB:-0} MiB, data loaders want 1024\"\n"
    "driver=$(field driver_version | head -n 1)\n"
    "versions=$(python3 -c 'import torch; print(torch.__version__, torch.version.cuda, "
    "\".\".join(map(str, torch.cuda.nccl.version())))' 2>/dev/null) || problem \"python3 has no torch\"\n"
    "\n"
    "# Links between the GPUs, where nccl-tests is there: its log is what moesim import nccl-tests makes a machine of\n"
    "bus_GBps=null\n"
    "if [ \"$gpus\" -gt 1 ] && command -v all_reduce_perf >/dev/null; then\n"
    "  log=preflight-$host-all_reduce.log\n"
    "  all_reduce_perf -b 1M -e 4G -f 4 -n 20 -g \"$gpus\" >\"$log\" || problem \"all_reduce_perf failed\"\n"
    "  bus_GBps=$(awk '$1 ~ /^[0-9]+$/ && $8 + 0 > most { most = $8 + 0 } END { print most + 0 }' \"$log\")\n"
    "  echo \"$host: all_reduce over $gpus GPUs: $bus_GBps GB/s on the bus at most, $log\" >&2\n"
    "fi\n"
    "\n"
    "printf '{\"host\":\"%s\",\"date\":\"%s\",\"gpus\":%s,\"memory_MiB\":%s,\"nic_Gbps\":%s,\"all_reduce_GBps\":%s,"
    "\"driver\":\"%s\",\"torch_cuda_nccl\":\"%s\",\"problems\":%s}\\n' \\\n"
    "  \"$host\" \"$(date -u +%FT%TZ)\" \"$gpus\" \"${least_MiB:-0}\" \"$nic_Gbps\" \"$bus_GBps\" \"$driver\" "
    "\"$versions\" \"$problems\" >\"preflight-$host.json\"\n"
    "[ \"$problems\" -eq 0 ] || { echo \"$host: $problems problems\" >&2; exit 1; }\n"
    "echo \"$host: as the machine file says\"\n";

static long whole(double value) { return isfinite(value) && value > 0 && value < 1e12 ? lround(value) : 0; }

char *ms_launch_preflight(const MsScenario *s, GError **error) {
  const MsHardware *h = s->hardware;
  const MsVendorRow *vendor = ms_vendor(h);
  if (!vendor || !vendor->preflight)
    return ms_refuse_key(s, error, "hardware.vendor", "is %s: the preflight script knows the tools of NVIDIA only",
                         h->vendor ? h->vendor : "not said"),
           NULL;
  int per_node = MIN(s->gpus, h->gpus_per_node), nodes = s->gpus / MAX(per_node, 1);
  GString *out = g_string_new("#!/bin/bash\n");
  g_autofree char *machine = ms_plain_name(h->name);
  g_string_append_printf(
      out,
      "# Checks a node against the machine %s of moesim in less than a minute. On all %d nodes:\n"
      "#   srun --nodes=%d --ntasks-per-node=1 bash preflight.sh\n"
      "# Exit 1 where something is less than the file says. preflight-HOST.json keeps what was seen, to compare other\n"
      "# days with, preflight-HOST-all_reduce.log the links, to anchor a machine with:\n"
      "#   moesim import nccl-tests --hardware %s preflight-HOST-all_reduce.log --out my-cluster.json\n"
      "set -u\n",
      machine, nodes, nodes, machine);
  g_string_append_printf(out, "want_nodes=%d want_gpus=%d want_MiB=%ld want_W=%ld want_Gbps=%ld\n", nodes, per_node,
                         whole(0.93 * h->hbm_B / (1 << 20)), whole(0.98 * h->tdp_W),
                         whole(0.98 * h->nic_Bps * 8 / GIGABIT * per_node));
  g_string_append(out, checks);
  return g_string_free(out, FALSE);
}
