#!/usr/bin/env python3
"""bench/compare.py BUILD CALCULON SIMUMAX: moesim beside two simulators of others, on this machine.

CALCULON and SIMUMAX are checkouts of github.com/calculon-ai/calculon and github.com/MooreThreads/SimuMax; they run
under the python3 that runs this. Each predicts runs that somebody measured: Calculon the eight of its own validation
(arXiv 2205.05198, table 5, A100), SimuMax the runs of its release table (8 B200) that stand in
scenarios/published/simumax. moesim predicts the same runs from its scenarios. CPU seconds are of one thread, of a
prediction in a running process and of a process that predicts one run, the median of REPEATS. Prints the tables of
docs/compare.md. SimuMax imports three packages for one function each; where one is missing it is stood in for here.
"""

import contextlib
import io
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PUBLISHED = TOP / "scenarios/published"
REPEATS = 5


def cpu_seconds(work):
    """CPU seconds of a call: the median of REPEATS, after one that is not counted. And what it gave."""
    result = work()
    taken = []
    for _ in range(REPEATS):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return statistics.median(taken), result


def process_seconds(command, **kwargs):
    """CPU seconds of a process: the median of REPEATS."""
    taken = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kwargs)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(taken)


class Moesim:
    def __init__(self, build):
        os.environ.setdefault("MOESIM_LIBRARY", str(build / "libmoesim.so.0"))
        os.environ.setdefault("MOESIM_DATA", str(TOP))
        sys.path.insert(0, str(build / "python"))
        import moesim

        self.library, self.program = moesim, build / "moesim"

    def predict(self, scenario, fidelity="full"):
        return self.library.run(str(scenario), fidelity=fidelity).step_time_s


class Calculon:
    """Models, executions and the system of its own validation."""

    names = {"gpt-22b": "megatron-22B", "gpt3-175b": "gpt3-175B", "gpt-530b": "turing-530B", "gpt-1t": "megatron-1T"}

    def __init__(self, folder):
        self.folder = folder
        sys.path.insert(0, str(folder))
        import logging

        import calculon
        from calculon.llm import Llm

        self.Llm, self.System, self.logger = Llm, calculon.System, logging.getLogger("calculon")

    def files(self, scenario):
        model, mode = re.fullmatch(r"SR-(.*)-(full|seqsel)", scenario.stem).groups()
        name = self.names[model]
        return [
            self.folder / f"models/{name}.json",
            self.folder / f"validation/seqsel/tab5/{name}_{mode}.json",
            self.folder / "systems/a100_80g.json",
        ]

    def predict(self, scenario):
        model, execution, system = (json.loads(path.read_text()) for path in self.files(scenario))
        llm = self.Llm(self.Llm.Application(model), self.logger)
        system = self.System(system)
        llm.compile(system, self.Llm.Execution.from_json(execution))
        llm.run(system)
        return llm.get_total_time()


class SimuMax:
    """Its API with the strategies that the names of its release table say."""

    models = {
        "llama3_70b": "llama3-70b",
        "llama3_405b": "llama3-405b_padding_128",
        "deepseekv2": "deepseekv2",
        "deepseekv3": "deepseekv3",
    }

    def __init__(self, folder):
        self.folder, self.stood_in = folder, []
        sys.path.insert(0, str(folder))
        for package, name, function in (
            ("sympy", "divisors", lambda n: [d for d in range(1, n + 1) if n % d == 0]),
            ("tqdm", "tqdm", lambda x, *a, **k: x),
            ("tabulate", "tabulate", lambda *a, **k: ""),
        ):
            try:
                __import__(package)
            except ImportError:
                sys.modules[package] = types.ModuleType(package)
                setattr(sys.modules[package], name, function)
                self.stood_in.append(package)
        warnings.simplefilter("ignore")
        from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
        from simumax.core.perf_llm import PerfLLM

        self.kinds = ModelConfig, StrategyConfig, SystemConfig
        self.PerfLLM = PerfLLM
        self.released = {}
        (release,) = (path for path in (folder / "docs/b200").glob("*_summary.*") if path.suffix == ".md")
        for row in release.read_text().splitlines():
            cells = [cell.strip() for cell in row.split("|")]
            if len(cells) > 5 and cells[1].endswith("_cef"):
                self.released[cells[1]] = float(cells[4]) / 1e3

    def strategy(self, case):
        def of(word, default=1):
            found = re.search(rf"_{word}(\d+)(?=_|$)", case)
            return int(found.group(1)) if found else default

        base = json.loads((self.folder / "configs/strategy/tp1_pp2_dp4_mbs1.json").read_text())
        base.update(
            seq_len=of("seq", 4096),
            micro_batch_num=of("mbc"),
            tp_size=of("tp"),
            pp_size=of("pp"),
            ep_size=of("ep"),
            cp_size=of("cp"),
            enable_recompute=False,
            cross_entropy_loss_fusion=True,
        )
        return base, of("l", None)

    def predict(self, scenario):
        case = scenario.stem.removeprefix("SM-")
        strategy, layers = self.strategy(case)
        name = next(name for prefix, name in self.models.items() if case.startswith(prefix))
        model = json.loads((self.folder / f"configs/models/{name}.json").read_text())
        model["layer_num"] = layers
        if case.startswith("deepseekv3"):
            model["dense_layers"] = 1
        make_model, make_strategy, make_system = self.kinds
        perf = self.PerfLLM()
        with contextlib.redirect_stdout(io.StringIO()):
            perf.configure(
                strategy_config=make_strategy.init_from_dict(strategy),
                model_config=make_model.init_from_dict(model),
                system_config=make_system.init_from_config_file(
                    str(self.folder / "configs/system/b200_bf16_ceperm.json")
                ),
            )
            perf.run_estimate()
            cost = perf.analysis_cost()
        cost = getattr(cost, "data", cost)
        duration = cost.get("duration_time_per_iter") or cost["comm_result"]["duration_time_per_iter"]
        value, unit = re.fullmatch(r"([\d.]+) *(\w+)", str(duration)).groups()
        return float(value) * {"s": 1, "ms": 1e-3}[unit]


def signed(share):
    return f"{'−' if share < 0 else '+'}{abs(100 * share):.1f} %"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def side_by_side(moesim, other, name, scenarios):
    """Rows of errors, then those of time."""
    rows, errors, speed = [], {name: [], "moesim": []}, {name: [], "full": [], "fast": []}
    for scenario in scenarios:
        measured = json.loads(scenario.read_text())["measured"]["step_time_s"]
        taken, theirs = cpu_seconds(lambda: other.predict(scenario))
        speed[name].append(taken)
        taken, ours = cpu_seconds(lambda: moesim.predict(scenario))
        speed["full"].append(taken)
        speed["fast"].append(cpu_seconds(lambda: moesim.predict(scenario, "fast"))[0])
        errors[name].append(theirs / measured - 1)
        errors["moesim"].append(ours / measured - 1)
        case = scenario.stem[3:].removesuffix("_cef")
        rows.append([f"`{case}`", f"{measured:.3f}", signed(errors[name][-1]), signed(errors["moesim"][-1])])
    print(table(["run", "measured, s", name, "moesim"], rows))
    summary = []
    for who, list_of in errors.items():
        sizes = sorted(abs(e) for e in list_of)
        summary.append(
            [who]
            + [f"{100 * x:.1f} %" for x in (statistics.median(sizes), statistics.mean(sizes))]
            + [signed(max(list_of, key=abs))]
        )
    print("\n" + table(["error of the step time", "median", "mean", "worst"], summary) + "\n")
    theirs = statistics.median(speed[name])
    times = [[name, f"{1e3 * theirs:.2f}", "1"]]
    for fidelity in ("full", "fast"):
        ours = statistics.median(speed[fidelity])
        times.append([f"moesim, `{fidelity}`", f"{1e3 * ours:.2f}", f"{theirs / ours:.2g}"])
    print(table(["a prediction in a running process", "CPU ms, median", "predictions for one of theirs"], times) + "\n")


def main(build, calculon, simumax):
    build, calculon, simumax = Path(build).resolve(), Path(calculon).resolve(), Path(simumax).resolve()
    moesim = Moesim(build)
    print("### Calculon\n")
    scenarios = sorted((PUBLISHED / "selective-recompute").glob("SR-*.json"))
    other = Calculon(calculon)
    side_by_side(moesim, other, "Calculon", scenarios)
    one = scenarios[-1]
    theirs = process_seconds(
        [sys.executable, "bin/calculon", "llm", *map(str, other.files(one)), "-"],
        cwd=calculon,
        env={**os.environ, "PYTHONPATH": "."},
    )
    ours = process_seconds([str(moesim.program), "run", "--json", str(one)])
    print(f"A process that predicts one run: Calculon {theirs:.3f} s of CPU, moesim {ours:.3f} s.\n")
    print("### SimuMax\n")
    other = SimuMax(simumax)
    scenarios = sorted((PUBLISHED / "simumax").glob("SM-*.json"))
    away = max(abs(other.predict(s) / other.released[s.stem.removeprefix("SM-")] - 1) for s in scenarios)
    side_by_side(moesim, other, "SimuMax", scenarios)
    print(f"Run here, SimuMax is at most {100 * away:.1f} % from the predictions of its own release table.")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} BUILD CALCULON SIMUMAX")
    main(*sys.argv[1:])
