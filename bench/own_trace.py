#!/usr/bin/env python3
"""bench/own_trace.py BUILD FOLDER [PASSES]: what a trace of one run on this CPU is worth for other runs.

FOLDER is what `moesim calibrate --check --out FOLDER` left: steps on one rank and on two, on a machine that `moesim
calibrate` made. Every step runs for real (moesim exec), in PASSES passes (default 3) over all of them, and leaves a
trace; its fastest run counts, the median of whose steps is the truth. Then each step in turn is the only one known: its
trace anchors the machine, and the others of as many ranks are predicted. Prints the errors of the machine as it is,
after each anchor, and over all pairs. Times are brought to the speed of the machine by the reference kernel beside the
steps, as the anchors are; what the errors are without that stands behind. What takes a core away from a rank no speed
shows: the host should be quiet.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 5  # of one run


def moesim(*args, ranks=1):
    start = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*start, PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"moesim {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


class Step:
    def __init__(self, file, work):
        run = json.loads(Path(file).read_text())
        del run["measured"]
        self.name, self.ranks, self.hardware = run["name"], run["gpus"], run["hardware"]
        self.file, self.run, self.work = work / f"{self.name}.json", run, work
        self.file.write_text(json.dumps(run))
        self.machine_flops = json.loads(Path(self.hardware).read_text())["reference_flops"]
        self.least_s, self.best_s, self.trace = float("inf"), float("inf"), None

    def measure(self, attempt):
        trace = self.work / f"{self.name}-{attempt}.trace.json"
        text = moesim("exec", "--json", "--no-check", "--steps", str(STEPS), "--trace", str(trace), str(self.file),
                      ranks=self.ranks)
        ran = json.loads(text)
        least = statistics.median(ran["step_s"])
        if least < self.least_s:
            ranked = trace.with_name(trace.name.replace(".json", "-rank0.json"))
            at_speed = [s * flops / self.machine_flops for s, flops in zip(ran["step_s"], ran["reference_flops"])]
            self.least_s, self.best_s = least, statistics.median(at_speed)
            self.trace = trace if trace.exists() else ranked

    def error(self, hardware, plain=False):
        self.run["hardware"] = str(hardware)
        self.file.write_text(json.dumps(self.run))
        predicted_s = json.loads(moesim("run", "--json", str(self.file)))["step_time_s"]
        return predicted_s / (self.least_s if plain else self.best_s) - 1

    def anchor(self):
        out = self.work / f"{self.name}.machine.json"
        self.run["hardware"] = self.hardware
        self.file.write_text(json.dumps(self.run))
        moesim("anchor", str(self.file), str(self.trace), "--out", str(out))
        return out


def summary(errors):
    sizes = sorted(abs(e) for e in errors)
    return (f"median {statistics.median(sizes):.1%}, p90 {sizes[int(0.9 * (len(sizes) - 1) + 0.5)]:.1%}, "
            f"bias {statistics.median(errors):+.1%}")


def main():
    passes = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    with tempfile.TemporaryDirectory() as folder:
        steps = [Step(file, Path(folder)) for file in sorted(Path(sys.argv[2]).glob("*.json"))]
        for attempt in range(passes):
            for step in steps:
                step.measure(attempt)
        for ranks in sorted({step.ranks for step in steps}):
            some = [step for step in steps if step.ranks == ranks]
            plain, pairs = {step: step.error(step.hardware) for step in some}, []
            print(f"{ranks} rank(s), the machine as it is: {summary(plain.values())}; "
                  f"without that {summary([step.error(step.hardware, True) for step in some])}")
            for known in some:
                machine = known.anchor()
                errors = [step.error(machine) for step in some if step is not known]
                pairs += errors
                print(f"  {known.name:22s} {known.least_s * 1e3:7.1f} ms, off {plain[known]:+6.1%}; "
                      f"by its trace the others: {summary(errors)}")
            print(f"  all {len(pairs)} pairs: {summary(pairs)}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAM = f"{sys.argv[1]}/moesim-all"
    main()
