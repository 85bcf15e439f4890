#!/usr/bin/env python3
"""mk/machines.py MOESIM [PAGE] - docs/machines.md on standard output: what plans give on every shipped machine, with
band, what it rests on and published runs. `make machines` writes the page; tests/machines.sh compares it and gives the
page, whose last column is then kept: the validation behind it is most of the work, and test_full_accuracy, which does
it anyway, compares that column."""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """\
# Machines

Written by `make machines`, compared by the full tier: the winner of a plan, as MFU of the precision's dense peak with
its 90 % band. Dense is llama3-8b, MoE qwen3-30b-a3b (small experts: the host decides), FP8 llama3-8b in tensorwise
FP8, each on 64 GPUs at 4,096 tokens; FSDP is llama3-8b on 64 GPUs as TorchTitan trains it, LoRA llama2-70b on 8 GPUs
with adapters of rank 16 at 8,192 tokens, as MLPerf has it. "none": no such precision, or nothing fits. Sizes are
searched where they matter (`mk/machines.py` has the requests); recomputation, CUDA graphs, dispatcher and overlap of
expert messages are open.
`moesim show hardware NAME` has every figure with its source; assumed ones widen the band and are named. The last
column: published runs of the machine in `scenarios/published`, and how far predictions are from them (median).

| machine | dense BF16 | MoE BF16 | dense FP8 | LoRA | FSDP | rests on | published |
|---|--:|--:|--:|--:|--:|---|---|
"""
FOOT = """
The vendor of the S5000 says 60 % MFU for dense and about 40 % for MoE training (reportify.ai, ldeepai.com): the
predictions of llama3-8b and of qwen3-235b-a22b lie within their bands of it (test_sources).

Gaudi 2 and 3 are here with the rates of their data sheets and the kernels and host of their nearest relative: none of
their runs was compared. Google's TPU and Amazon's Trainium are not: their chips stand in a torus and pass data along
its axes, while every collective here has a scale-up domain and a network behind it (docs/theory/communication.md).
`--hardware tpu-v5p` says so.
"""
BATCH = {"seq_length": 4096, "global_batch_size": 1024, "micro_batch_size": "auto"}
DENSE = {
    "model": "llama3-8b",
    "gpus": 64,
    "training": BATCH,
    "layout": {"tp": [1, 2, 4], "cp": 1, "pp": [1, 2, 4, 8], "vpp": [1, 2, 4, 8]},
    "options": {"recompute": "auto", "cuda_graph_scope": "auto"},
}
MOE = {
    "model": "qwen3-30b-a3b",
    "gpus": 64,
    "training": BATCH | {"micro_batch_size": [1, 2, 4, 8]},
    "layout": {"tp": [1, 2], "cp": 1, "pp": [1, 2, 4, 8], "vpp": [1, 3, 4], "ep": [1, 4, 8], "etp": 1},
    "options": {key: "auto" for key in ("recompute", "dispatcher", "ep_overlap", "cuda_graph_scope")},
}
LORA = {
    "model": "llama2-70b",
    "gpus": 8,
    "training": {"seq_length": 8192, "global_batch_size": 8, "micro_batch_size": 1, "lora": {"rank": 16}},
    "layout": {},
    "options": {"recompute": "auto"},
}
FSDP = {
    "model": "llama3-8b",
    "gpus": 64,
    "framework": "torchtitan",
    "training": BATCH,
    "layout": {"tp": [1, 2, 4], "cp": 1, "pp": [1, 2, 4]},
    "options": {"recompute": "auto"},
}
COLUMNS = (DENSE, MOE, DENSE | {"training": BATCH | {"precision": "fp8-tensorwise"}}, LORA, FSDP)


def answer(*command):
    """All that moesim finds, however busy the machine; plans of which nothing fits exit with 1."""
    moesim, verb, *rest = command
    done = subprocess.run([moesim, verb, "--time-limit", "2h", *rest], capture_output=True, text=True)
    found = json.loads(done.stdout) if done.returncode in (0, 1) else {}
    if not found or found.get("interrupted"):
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return found


def winners(moesim, request):
    """Of every machine of a request the best layout, or None."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(request, file)
        file.flush()
        cells = answer(moesim, "plan", "--json", "--top", "1", file.name)["cells"]
    assert [cell["hardware"] for cell in cells] == request["hardware"]
    for cell in cells:
        if cell["why"]:
            sys.exit(f"{cell['model']} on {cell['hardware']}: {cell['why']}")
    return [cell["best"][0] if cell["best"] else None for cell in cells]


def cell(best):
    return f"{100 * best['mfu']:.0f} % ± {100 * best['error_band']:.0f} %" if best else "none"


def rests(best):
    caveat = best and best.get("caveat")
    return caveat.split(": ", 1)[1] if caveat else "measured and published figures"


def runs(moesim):
    """Published runs of each machine: how many, and the median of how far predictions are from their step times."""
    groups = {}
    for row in answer(moesim, "validate", "--json", "scenarios/published")["rows"]:
        if row["metric"] == "step_time" and row["counted"]:
            groups.setdefault(row["gpu"], []).append(abs(row["error"]))
    return {
        gpu: f"{len(of)} run{'s' if len(of) > 1 else ''}: {100 * statistics.median(of):.1f} %"
        for gpu, of in groups.items()
    }


def runs_of_page(page):
    rows = [line.split("|") for line in page.read_text().splitlines() if line.startswith("| ")]
    return {row[1].strip(): row[-2].strip() for row in rows}


def main(moesim, page=None):
    machines = sorted(file.stem for file in Path("hardware").glob("*.json"))
    columns = [winners(moesim, column | {"hardware": machines}) for column in COLUMNS]
    published = runs_of_page(Path(page)) if page else runs(moesim)
    sys.stdout.write(HEAD)
    for machine, *best in zip(machines, *columns):
        print("|", " | ".join([machine, *map(cell, best), rests(best[0]), published.get(machine, "none")]), "|")
    sys.stdout.write(FOOT)


main(*sys.argv[1:])
