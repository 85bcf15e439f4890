#!/usr/bin/env python3
"""bench/compare_network.py BUILD ASTRA SIMAI: collectives over 1 to 64 nodes by moesim, ASTRA-sim and SimAI.

ASTRA and SIMAI are checkouts of github.com/astra-sim/astra-sim and github.com/aliyun/SimAI whose analytical programs
are built (build/astra_analytical/build.sh, scripts/build.sh -c analytical); python3 has protobuf. What is predicted
are nanotron's collectives of 256 MB on H100 with EFA, which BUILD/tests/test_bandwidths holds with moesim's own
predictions. ASTRA-sim gets its own validated H100 node (examples/network/analytical/HGX-H100-validated.yml) and,
beyond it, a NIC of 50 GB/s for each GPU with LINK_US of latency, and rings in both dimensions; two dimensions are for
its program without congestion, which is given one chunk at a time, as two would have the whole link each. SimAI gets
the same rates, which it scales by the tables of bandwidths that it carries. CPU seconds are of a process each. Prints
the tables of docs/compare.md.
"""

import csv
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BYTES = 256e6
NIC_GBPS = 50.0
LINK_US = 4.5  # of a ring's step over the network: docs/theory/costs.md
NODE_GBPS = 400.0  # of a GPU inside its node, as the validated file has it
KINDS = {"reduce": ("ALL_REDUCE", "ALLREDUCE", 2), "gather": ("ALL_GATHER", "ALLGATHER", 1),
         "scatter": ("REDUCE_SCATTER", "REDUCESCATTER", 1)}


def child(command, cwd):
    """What a process prints, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(build):
    """{(nodes, kind): (moesim's GB/s, the published median, its best)}, and CPU seconds of one of them."""
    text, seconds = child([build / "tests/test_bandwidths"], ".")
    row = re.compile(r" *(\d+) nodes, (\w+): (\d+) GB/s, published (\d+), best (\d+)")
    found = {(int(m[1]), m[2]): tuple(float(x) for x in m.groups()[2:]) for m in row.finditer(text)}
    return found, seconds / len(found)


class Astra:
    def __init__(self, top, room):
        self.top, self.room = top, room
        sys.path.insert(0, str(top / "extern/graph_frontend/chakra/schema/protobuf"))
        import et_def_pb2
        from google.protobuf.internal.encoder import _VarintBytes

        self.et, self.length = et_def_pb2, _VarintBytes
        self.system = json.loads((top / "examples/system/native_collectives/HGX-H100-validated.json").read_text())
        node = (top / "examples/network/analytical/HGX-H100-validated.yml").read_text()
        self.node_ns = float(re.search(r"latency: \[ *([\d.]+)", node)[1])
        assert float(re.search(r"bandwidth: \[ *([\d.]+)", node)[1]) == NODE_GBPS

    def trace(self, gpus, kind):
        """One collective on each GPU, as Chakra writes it; the message of a gather is what each GPU gives."""
        et = self.et
        size = int(BYTES / gpus) if kind == "gather" else int(BYTES)
        for gpu in range(gpus):
            node = et.Node(id=gpu, name=kind, type=et.COMM_COLL_NODE)
            node.attr.append(et.AttributeProto(name="is_cpu_op", bool_val=False))
            node.attr.append(et.AttributeProto(name="comm_type", int64_val=getattr(et, KINDS[kind][0])))
            node.attr.append(et.AttributeProto(name="comm_size", int64_val=size))
            with open(self.room / f"trace.{gpu}.et", "wb") as file:
                for message in (et.GlobalMetadata(version="0.0.4"), node):
                    data = message.SerializeToString()
                    file.write(self.length(len(data)) + data)

    def seconds(self, nodes, kind):
        self.trace(8 * nodes, kind)
        levels = [("Switch", 8, NODE_GBPS, self.node_ns)]
        if nodes > 1:
            levels.append(("Switch", nodes, NIC_GBPS, 1e3 * LINK_US))
        keys = ("topology", "npus_count", "bandwidth", "latency")
        (self.room / "network.yml").write_text(
            "".join(f"{key}: [ {', '.join(str(level[i]) for level in levels)} ]\n" for i, key in enumerate(keys)))
        for key in self.system:
            if key.endswith("-implementation"):
                self.system[key] = ["ring"] * len(levels)
        self.system["active-chunks-per-dimension"] = 2 if nodes == 1 else 1
        (self.room / "system.json").write_text(json.dumps(self.system))
        program = "AstraSim_Analytical_Congestion_" + ("Aware" if nodes == 1 else "Unaware")
        text, cpu_s = child([self.top / "build/astra_analytical/build/bin" / program,
                             f"--workload-configuration={self.room}/trace",
                             f"--system-configuration={self.room}/system.json",
                             f"--network-configuration={self.room}/network.yml", "--remote-memory-configuration="
                             f"{self.top}/examples/remote_memory/analytical/no_memory_expansion.json"], self.room)
        return max(int(ns) for ns in re.findall(r"Wall time: (\d+)", text)) * 1e-9, cpu_s


class Simai:
    def __init__(self, top, room):
        self.top, self.room = top, room

    def seconds(self, nodes, kind):
        """The collective as that of a tensor-parallel group of all GPUs: what its tables of bandwidths are for."""
        gpus = 8 * nodes
        (self.room / "work.txt").write_text(
            f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {gpus} ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: "
            f"{gpus} checkpoints: 0 checkpoint_initiates: 0\n1\n"
            f"layer -1 1 {KINDS[kind][1]} {int(BYTES)} 1 NONE 0 1 NONE 0 100\n")
        _, cpu_s = child([self.top / "bin/SimAI_analytical", "-w", self.room / "work.txt", "-g", str(gpus), "-g_p_s",
                          "8", "-nv", str(NODE_GBPS), "-nic", str(NIC_GBPS), "-n_p_s", "8", "-r", "compare-"], self.top)
        with open(self.top / "results/compare-EndToEnd.csv", newline="") as file:
            rows = list(csv.reader(file))
        titles = next(row for row in rows if row[0] == "layer_name")
        return float(rows[-1][titles.index("fwd total comm")]) * 1e-6, cpu_s


def table(title, rows):
    print(f"| {title[0]} | " + " | ".join(title[1:]) + " |")
    print("|---|" + "--:|" * (len(title) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()
def main():
    build, astra, simai = (Path(arg).resolve() for arg in sys.argv[1:4])
    found, own_s = measured(build)
    with tempfile.TemporaryDirectory() as room:
        others = {"ASTRA-sim": Astra(astra, Path(room)), "SimAI": Simai(simai, Path(room))}
        errors = {"moesim": [], **{name: [] for name in others}}
        cpu = {name: [] for name in others}
        rows = []
        for (nodes, kind), (own, median, best) in found.items():
            gpus = 8 * nodes
            row = {"moesim": own}
            for name, tool in others.items():
                seconds, cpu_s = tool.seconds(nodes, kind)
                cpu[name].append(cpu_s)
                row[name] = KINDS[kind][2] * (gpus - 1) / gpus * BYTES / seconds / 1e9
            for name, got in row.items():
                errors[name].append(got / best - 1)
            rows.append([f"{nodes}, {kind}", f"{best:.0f}", f"{median:.0f}",
                         *(f"{row[name]:.0f}" for name in ("ASTRA-sim", "SimAI", "moesim"))])
    table(["nodes of 8, collective", "best run, GB/s", "median run", "ASTRA-sim", "SimAI", "moesim"], rows)
    table(["error beside the best run", "median", "mean", "worst", "CPU ms each"],
          [[name, f"{statistics.median(map(abs, e)):.0%}", f"{statistics.mean(map(abs, e)):.0%}",
            f"{max(e, key=abs):+.0%}", f"{1e3 * (statistics.median(cpu[name]) if name in cpu else own_s):.1f}"]
           for name, e in errors.items()])


if __name__ == "__main__":
    main()
