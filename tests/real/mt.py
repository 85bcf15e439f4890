#!/usr/bin/env python3
"""Exported launches through MT-MegatronLM itself, without a GPU.

mt.py MOESIM MT MEGATRON: MT is a checkout of MT-MegatronLM (e53585c), MEGATRON one of the Megatron-LM that it patches
(d0df563d). Every shipped model with every technique, written by `moesim launch --form mt-megatron`, run by bash up to
torchrun, parsed and validated with musa_patch, its model made by the model_provider of the program that the script
starts (device meta): TP, PP, CP, EP, data-parallel size, microbatches, and the parameters of every pipeline stage are
moesim's. Exit 0: all as they should; 1: not; 77: torch is missing."""
import contextlib
import functools
import glob
import importlib
import importlib.util
import io
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import types
import warnings

try:
    import torch
    import torch._dynamo  # before the packages that stand for others
    from torch.testing._internal.distributed.fake_pg import FakeStore
except ImportError:
    print("skipped: PyTorch of 2.1 or later is not installed (tests/real/torch.sh makes one)")
    sys.exit(77)

import cases
import stubs

MOESIM, MT, MEGATRON = (os.path.abspath(word) for word in sys.argv[1:4])
GPUS = 64

# layout, options
TECHNIQUES = {
    "plain": ({}, {}),
    "tp2": ({"tp": 2}, {"sequence_parallel": True}),
    "pp2": ({"pp": 2}, {}),
    "pp4": ({"pp": 4}, {}),
    "vpp": ({"pp": 2, "vpp": 2}, {}),
    "cp2": ({"cp": 2}, {}),
    "full": ({}, {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}),
    "block": ({}, {"recompute": {"granularity": "full", "method": "block", "num_layers": 2}}),
    "selective": ({}, {"recompute": {"granularity": "selective", "modules": ["core_attn"]}}),
    "replicated": ({}, {"distributed_optimizer": False, "overlap_param_gather": False}),
}


def install():
    """torch_musa is torch.cuda with the device meta behind it."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    stubs.PACKAGES += ("torch_musa", "flash_attn", "apex", "amp_C", "six", "regex")
    stubs.install()
    torch.cuda.get_device_capability = lambda *_: (8, 3)
    torch.musa = torch.cuda
    torch.Tensor.musa = lambda self, *_, **__: self
    torch.distributed.all_reduce = lambda *_, **__: None
    os.environ.update(RANK="0", LOCAL_RANK="0", ACCELERATOR_BACKEND="musa")
    sys.path[:0] = [MEGATRON, MT]
    engine = importlib.import_module("transformer_engine")
    engine.musa = types.SimpleNamespace(pytorch=importlib.import_module("transformer_engine.pytorch"))
    with contextlib.redirect_stdout(io.StringIO()):  # it says what it patches
        import musa_patch  # noqa: F401
    torch.cuda.current_device = lambda: torch.device("meta")


@functools.cache
def program(name):
    """A program of its examples, whose model_provider is the model of the run."""
    path = sorted(glob.glob(f"{MT}/examples/*/{name}"))[-1]
    spec = importlib.util.spec_from_file_location(name[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launch(place, run):
    """Arguments as bash hands them to torchrun."""
    with open(f"{place}/run.json", "w") as out:
        json.dump(run, out)
    with open(f"{place}/run.sh", "w") as out:
        out.write(cases.moesim(MOESIM, "launch", "--form", "mt-megatron", f"{place}/run.json"))
    with open(f"{place}/hostfile", "w") as out:
        out.write(f"{socket.gethostname()} slots=8\n")
    with open(f"{place}/torchrun", "w") as out:
        out.write(cases.TORCHRUN)
    os.chmod(f"{place}/torchrun", 0o755)
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    subprocess.run(["bash", "run.sh", "hostfile"], check=True, cwd=place, env={
        **outside, "PATH": f"{place}:{os.environ['PATH']}", "ARGUMENTS": f"{place}/arguments.json"})
    with open(f"{place}/arguments.json") as text:
        return json.load(text)


def parse(case):
    from megatron.training import arguments, global_vars
    from megatron.training.tokenizer.tokenizer import _vocab_size_with_padding
    words = case["argv"]
    at = next(i for i, word in enumerate(words) if word.endswith(".py"))
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(case["env"], WORLD_SIZE=str(GPUS))
    sys.argv = words[at:]
    args = arguments.parse_args()
    arguments.validate_args(args, {})
    args.padded_vocab_size = _vocab_size_with_padding(args.vocab_size, args)
    global_vars._GLOBAL_ARGS = None
    global_vars.set_args(args)
    return args, program(os.path.basename(words[at]))


def initialize(args):
    from megatron.core import mpu
    from megatron.core.tensor_parallel import random
    groups = torch.distributed.new_group
    torch.distributed.new_group = lambda ranks=None, **_: groups(ranks, backend="fake")
    try:
        mpu.initialize_model_parallel(
            args.tensor_model_parallel_size, args.pipeline_model_parallel_size,
            args.virtual_pipeline_model_parallel_size, context_parallel_size=args.context_parallel_size,
            expert_model_parallel_size=args.expert_model_parallel_size,
            expert_tensor_parallel_size=args.expert_tensor_parallel_size)
    finally:
        torch.distributed.new_group = groups
    type(random.get_cuda_rng_tracker()).fork = lambda self, *_, **__: contextlib.nullcontext()


def taken(model, args):
    """What MTP blocks have otherwise, by what MT-MegatronLM's own modules hold: as many layers like theirs are missing
    at the end of the decoder, and every rank of TP holds their projections whole."""
    block = getattr(model, "mtp_block", None)
    if block is None:
        return 0
    layers = sum(p.numel() for p in block.layers.parameters() if p.requires_grad)
    whole = sum(p.weight.numel() for p in block.linear_projections)
    return layers - whole * (1 - 1 / args.tensor_model_parallel_size)


def stage_parameters(args, provider):
    from megatron.core import mpu
    virtual, found = args.virtual_pipeline_model_parallel_size, 0
    for v in range(virtual or 1):
        if virtual:
            mpu.set_virtual_pipeline_model_parallel_rank(v)
        model = provider(mpu.is_pipeline_first_stage(), mpu.is_pipeline_last_stage())
        found += sum(p.numel() for p in model.parameters() if p.requires_grad)  # not the bias of experts
        found += taken(model, args)
    return found


def in_child(function, *words):
    """What the function returns in a process of its own: the patches keep process groups that nothing destroys."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = {"found": function(*words)}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as text:
        answer = json.load(text)
    os.waitpid(child, 0)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["found"]


def of_stage(args, provider, stage):
    args.rank = stage * (GPUS // args.pipeline_model_parallel_size)
    os.environ["RANK"] = str(args.rank)
    torch.distributed.init_process_group("fake", rank=args.rank, world_size=GPUS, store=FakeStore())
    initialize(args)
    return stage_parameters(args, provider)


def parameters(args, provider):
    return [in_child(of_stage, args, provider, stage) for stage in range(args.pipeline_model_parallel_size)]


@functools.cache
def keys_of(model):
    return json.loads(cases.moesim(MOESIM, "show", "model", model, "--json"))["model"]


def lacks(keys):
    """Parameters of the one norm a layer that Megatron-LM has by now before queries without a latent."""
    latent = keys["multi_latent_attention"]
    return keys["num_layers"] * keys["hidden_size"] if latent["kv_lora_rank"] and not latent["q_lora_rank"] else 0


def check(place, model, technique):
    layout, options = TECHNIQUES[technique]
    keys = keys_of(model)
    layout = {"tp": 1, **({"ep": 8, "etp": 1} if keys["num_experts"] else {}), **layout}
    run = cases.scenario(f"{keys['name']}--{technique}", model, GPUS, layout, options, {})
    run.update(framework="mt-megatron", hardware="mtt-s5000")
    run["options"] = {"dispatcher": "alltoall", **options}
    args, source = parse(launch(place, run))
    ranks = GPUS // (layout["tp"] * layout.get("cp", 1) * layout.get("pp", 1))
    said = {"TP": (args.tensor_model_parallel_size, layout["tp"]),
            "PP": (args.pipeline_model_parallel_size, layout.get("pp", 1)),
            "CP": (args.context_parallel_size, layout.get("cp", 1)),
            "EP": (args.expert_model_parallel_size, layout.get("ep", 1)),
            "virtual stages": (args.virtual_pipeline_model_parallel_size or 1, layout.get("vpp", 1)),
            "data parallel": (args.data_parallel_size, ranks),
            "microbatches": (args.global_batch_size // (args.micro_batch_size * args.data_parallel_size),
                             512 // ranks),
            "parameters": (parameters(args, source.model_provider), [
                held - lacks(keys) / layout.get("pp", 1) for held in cases.stage_parameters(MOESIM, place, run)])}
    return [f"{what}: MT-MegatronLM has {has}, moesim {want}" for what, (has, want) in said.items() if has != want]


def main():
    install()
    failed = 0
    models = json.loads(cases.moesim(MOESIM, "show", "model", "--json"))
    with tempfile.TemporaryDirectory() as place:
        for model in sys.argv[4:] or models:
            for technique in TECHNIQUES:
                log = io.StringIO()
                try:
                    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                        wrong = check(place, model, technique)
                except cases.Refused as why:
                    print(f"{model}--{technique}: refused: {str(why).split('.json: ')[-1].strip()}")
                    continue
                except (Exception, SystemExit) as error:
                    wrong = [f"{type(error).__name__}: {error} {log.getvalue()[-300:]}"]
                print(f"{model}--{technique}: {'; '.join(wrong) if wrong else 'ok'}", flush=True)
                failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
