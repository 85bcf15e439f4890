"""bench/python.py - predictions of one Python thread per second of its core, in the source tree after `make python`:
PYTHONPATH=build/python MOESIM_LIBRARY=build/libmoesim.so.0 python3 bench/python.py"""

import copy
import json
import time
from pathlib import Path

import moesim

SECONDS = 1.5
SMALL = {
    "schema": 1,
    "model": "llama3-8b",
    "hardware": "h100-sxm",
    "gpus": 64,
    "training": {"seq_length": 4096, "global_batch_size": 1024},
    "layout": {"tp": 1},
    "options": {"recompute": {"granularity": "none"}},
}
LARGE = ("run-deepseek-v3-gb200-256", "run-llama3-70b-h100-64", "run-deepseek-v3-2048-pp16")


def same(scenario, i):
    """The same run again."""


def batch(scenario, i):
    """Another batch each time."""
    scenario["training"]["global_batch_size"] *= 1 + i % 8


def network(scenario, i):
    """Another network each time, never one that was there before."""
    scenario["hardware"] = {"base": scenario["hardware"], "nic_Bps": 40e9 + 1e3 * i}


def measure(name, scenario, fidelity, change):
    cases = []
    for i in range(6000):
        cases.append(copy.deepcopy(scenario))
        change(cases[-1], i)
    moesim.run(cases[0], fidelity)
    begun, n = time.process_time(), 0
    while time.process_time() - begun < SECONDS:
        moesim.run(cases[n % len(cases)], fidelity).step_time_s
        n += 1
    print(f"{name}, {fidelity}, {change.__doc__} {n / (time.process_time() - begun):.0f} runs/s of one core")


scenarios = {"llama3-8b-h100-64": SMALL}
scenarios.update((name, json.loads(Path(f"scenarios/{name}.json").read_text())) for name in LARGE)
for name, scenario in scenarios.items():
    measure(name, scenario, "bound", same)
    for change in (same, batch, network):
        measure(name, scenario, "fast", change)
