"""Predict and plan training runs of mixture-of-experts and dense transformers.

    import moesim
    run = moesim.run("scenarios/run-llama3-70b-h100-64.json")
    print(run.step_time_s, run.mfu, run.memory.peak_B)
    plan = moesim.plan(model="qwen3-30b-a3b", hardware="h100-sxm", gpus=64)
    moesim.run(plan.best[0].scenario)

A scenario, a request or a study is the path of a file or a dict with the same keys (`moesim schema`, moesim.files for
type checkers). What comes back are the objects of docs/json.md with attributes. The functions are those of the command
line and give the same answers; they release the GIL, may be called from several threads at once, and raise MoesimError
with file, line and path of what is wrong. A run that does not fit into memory, and a plan of which nothing fits, are
results, no exceptions.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Literal, Union

from ._library import (
    EnvironmentFailure,
    InputError,
    MoesimError,
    Predicted as _Predicted,
    Stopped,
    UsageError,
    call as _call,
    version as __version__,
)
from .records import Record
from .shapes import Goodput, Plan, Run, Sweep, Whatif

__all__ = [
    "EnvironmentFailure",
    "Goodput",
    "InputError",
    "MoesimError",
    "Page",
    "Plan",
    "Record",
    "Run",
    "Stopped",
    "Sweep",
    "UsageError",
    "Whatif",
    "anchor",
    "goodput",
    "launch",
    "machines",
    "models",
    "page",
    "plan",
    "request",
    "run",
    "whatif",
]

Document = Union[str, "os.PathLike[str]", Mapping[str, Any]]
Names = Union[str, int, Iterable[Union[str, int]]]
Progress = Callable[[float, dict], object]


def _commas(names: Names | None) -> str | None:
    if names is None or isinstance(names, (str, int)):
        return None if names is None else str(names)
    return ",".join(str(name) for name in names)


def _text(value: str | float | None) -> str | None:
    return None if value is None else value if isinstance(value, str) else repr(value)


def _path(file: str | os.PathLike[str] | None) -> str | None:
    return None if file is None else os.fspath(file)


def run(
    scenario: Document,
    fidelity: Literal["bound", "fast", "full"] = "full",
    *,
    draws: int = 0,
    explain: bool = False,
    strict: bool = False,
    threads: int = 0,
) -> Run:
    """Predicts one run, as `moesim run`.

    fidelity: closed form ("bound"), schedule of chunks ("fast", milliseconds) or every operator ("full").
    draws: also draw the routing so many times. explain: the laws that act. strict: refuse what needs a figure that the
    machine's file only assumes. threads: of the draws; 0 is all cores.
    """
    if fidelity in ("bound", "fast", "full") and draws == 0 and not explain and threads == 0:
        return Run._later(_Predicted(scenario, fidelity, strict))
    options = dict(fidelity=fidelity, draws=draws, explain=explain, strict=strict, threads=threads)
    return Run(json.loads(_call("run", scenario, options, long=draws > 0 or explain)))


def request(
    model: Names | None = None,
    hardware: Names | None = None,
    gpus: Names | None = None,
    *,
    precision: str | None = None,
    seq_length: Names | None = None,
    global_batch_size: Names | None = None,
    tokens: str | float | None = None,
    critical_batch_tokens: str | float | None = None,
    deadline: str | float | None = None,
    gpu_hour: float | None = None,
    max_watts: str | float | None = None,
    max_memory: str | float | None = None,
    lora: int | str | None = None,
    around: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """The plan request of a few words, as `moesim plan --write-request`: to change it and hand it to plan().

    model, hardware, gpus: names or numbers; several as a list or separated by commas. precision: default "bf16", "auto"
    tries all that the machine has. seq_length in tokens (default 4096), global_batch_size in sequences (default 4 Mi
    tokens); several of each as a list. tokens of the whole training (15e12 or "15T"), critical_batch_tokens ("4Mi") of
    a batch that needs twice as many, deadline for them ("30d", or seconds), gpu_hour: price of a GPU-hour, max_watts of
    all GPUs together ("1.2MW"), max_memory of a GPU that a plan may use (0.9 of it, "70GB"): as the options of the
    command line. lora: rank of adapters beside frozen weights (all weights are trained without it). around: instead of
    all these the file of a run, whose layout is left open.
    """
    options = dict(
        model=_commas(model),
        hardware=_commas(hardware),
        gpus=_commas(gpus),
        precision=precision,
        seq_lengths=_commas(seq_length),
        global_batch_sizes=_commas(global_batch_size),
        tokens=_text(tokens),
        critical_batch_tokens=_text(critical_batch_tokens),
        deadline=_text(deadline),
        gpu_hour=_text(gpu_hour),
        max_watts=_text(max_watts),
        max_memory=_text(max_memory),
        lora=None if lora is None else str(lora),
        around=_path(around),
    )
    return json.loads(_call("request", None, options))


def plan(
    request: Document | None = None,
    *,
    top: int = 0,
    threads: int = 0,
    explain: bool = False,
    compare: str | os.PathLike[str] | None = None,
    under: str | os.PathLike[str] | None = None,
    front: bool = False,
    map: bool = False,
    decide: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
    **words: Any,
) -> Plan | Sweep:
    """Finds the layouts that do it best, as `moesim plan`: of a request, or of a few words (see moesim.request).

    top: how many to keep (default: the request's plan.top, else 10). explain: what bounds the winner, what would
    help. compare: file of a layout of the same task. under: file of disturbances to choose under. front: front of
    step time, free memory and GPUs. map: step time and memory of all layouts, for a picture. decide: how
    sure the choice is, and which short runs would settle it. Several models, machines or numbers of GPUs, and front,
    give a Sweep.
    progress(done, so_far): called after every batch with the share that is done and what was found; False ends the
    search with that, an exception ends it and comes out here. Ctrl-C ends it as well.
    """
    if request is None:
        request = globals()["request"](**words)
    elif words:
        raise TypeError(f"a request says itself what {', '.join(words)} would: give one or the other")
    options = dict(
        top=top,
        threads=threads,
        explain=explain,
        compare=_path(compare),
        under=_path(under),
        front=front,
        map=map,
        decide=decide,
        strict=strict,
    )
    answer = json.loads(_call("plan", request, options, progress, long=True))
    return Sweep(answer) if "cells" in answer else Plan(answer)


def whatif(study: Document, *, threads: int = 0) -> Whatif:
    """Runs a what-if study, as `moesim whatif`: every point, and its differences from the base part by part."""
    return Whatif(json.loads(_call("whatif", study, {"threads": threads}, long=True)))


def goodput(study: Document, *, threads: int = 0) -> Goodput:
    """How much of the time a run trains, with failures and restarts, as `moesim goodput`."""
    return Goodput(json.loads(_call("goodput", study, {"threads": threads}, long=True)))


def anchor(
    *files: str | os.PathLike[str],
    hardware: str | os.PathLike[str] | None = None,
    name: str | None = None,
    date: str | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """A machine that holds what runs of your own say, as `moesim anchor`: what later scenarios have as hardware.

    files: scenarios with `measured`, each with the profile or the log of its run behind it. hardware: machine to start
    from, in place of theirs. name: of the new one. date: of its provenance (default: $SOURCE_DATE_EPOCH, else today).
    """
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    options = dict(
        files=_commas([os.fspath(file) for file in files]),
        hardware=_path(hardware),
        name=name,
        date=date or time.strftime("%Y-%m-%d", time.gmtime(now)),
        threads=threads,
    )
    return json.loads(_call("anchor", None, options, long=True))


def launch(scenario: Document, form: str | None = None) -> str:
    """What starts the run, as `moesim launch`: in the form of the scenario's framework, or another one of
    docs/launch.md (slurm, k8s, modelzoo, ...)."""
    return _call("launch", scenario, {"form": form})


class Page(str):
    """The page of `moesim report` as text: a notebook shows it, save() keeps it. One file, no network."""

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" width="100%" height="900" sandbox="allow-scripts"></iframe>'

    def save(self, file: str | os.PathLike[str]) -> None:
        Path(file).write_text(self, encoding="utf-8")


def page(scenario: Document) -> Page:
    """The page of a run: timeline, memory, communication, layout map, with what stands behind each figure."""
    return Page(_call("page", scenario, long=True))


def models() -> list[str]:
    """Names of the models that are shipped."""
    return json.loads(_call("names"))["models"]


def machines() -> list[str]:
    """Names of the machines that are shipped."""
    return json.loads(_call("names"))["hardware"]
