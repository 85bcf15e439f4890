"""bench/python.py - predictions of one Python thread per second of its core, in the source tree after `make python`:
PYTHONPATH=build/python MOESIM_LIBRARY=build/libmoesim.so.0 python3 bench/python.py"""

import json
import time
from pathlib import Path

import moesim

FILES = ("scenarios/run-llama3-70b-h100-64.json", "scenarios/run-deepseek-v3-2048-pp16.json")
SECONDS = 3.0

for file in FILES:
    scenario = json.loads(Path(file).read_text())
    for fidelity in ("bound", "fast"):
        moesim.run(scenario, fidelity)
        begun, n = time.process_time(), 0
        while time.process_time() - begun < SECONDS:
            moesim.run(scenario, fidelity)
            n += 1
        print(f"{file} {fidelity}: {n / (time.process_time() - begun):.0f} runs/s of one core")
