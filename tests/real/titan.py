#!/usr/bin/env python3
"""Exported configurations through TorchTitan itself, without a GPU.

titan.py MOESIM TORCHTITAN: TORCHTITAN is a checkout from before its TOML became Python (9810191b, February 2026). Of
every flavor that moesim ships and every technique: keys and words are those of its JobConfig, the degrees make up the
GPUs, and the parameters of every pipeline stage, split by its own function and counted on its own model (device meta),
are moesim's. Exit 0: all as they should; 1: not; 77: torch is missing."""
import ast
import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import types
import typing

try:
    import torch
    import torch._dynamo  # before the packages that stand for others
    import torch.distributed.checkpoint as checkpoint
    import torch.distributed.tensor
    import torch.nn.attention.flex_attention  # noqa: F401
except ImportError:
    print("skipped: PyTorch of 2.6 or later is not installed (tests/real/torch.sh makes one)")
    sys.exit(77)

import stubs

MOESIM, TITAN = sys.argv[1], sys.argv[2]
GPUS, BATCH, SEQUENCE = 64, 512, 4096

# layout, options beside sequence parallelism and weights that are sharded whole
TECHNIQUES = {
    "plain": ({}, {}),
    "tp8": ({"tp": 8}, {}),
    "cp2": ({"cp": 2}, {}),
    "ep8": ({"ep": 8, "etp": 1}, {}),
    "pp2": ({"pp": 2}, {}),
    "pp4": ({"pp": 4}, {}),
    "interleaved": ({"pp": 2, "vpp": 2}, {}),
    "hsdp": ({}, {"num_distributed_optimizer_instances": 2}),
    "full": ({}, {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}),
    "selective": ({}, {"recompute": {"granularity": "selective", "modules": ["core_attn"]}}),
    "float8": ({}, {"precision": "fp8-tensorwise"}),
}


def bare(name):
    """A package whose __init__, which imports a whole trainer, does not run."""
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(TITAN, *name.split("."))]
    sys.modules[name] = package
    return package


def install():
    torch.compile = lambda function=None, **_: function
    stubs.PACKAGES += ("tyro", "tokenizers", "torchao", "torchtitan.components", "torchtitan.hf_datasets")
    sys.meta_path.insert(0, stubs.Finder())
    for name in ("HuggingFaceStorageReader", "HuggingFaceStorageWriter"):  # of a later PyTorch
        if not hasattr(checkpoint, name):
            setattr(checkpoint, name, stubs.Nothing)
    varlen = types.ModuleType("torch.nn.attention.varlen")
    varlen.varlen_attn = lambda *_, **__: None
    sys.modules.setdefault(varlen.__name__, varlen)
    for name in ("", ".config", ".distributed", ".protocols", ".tools", ".models", ".models.llama3", ".models.qwen3",
                 ".models.deepseek_v3", ".models.gpt_oss", ".components"):
        bare("torchtitan" + name)
    components = types.ModuleType("torchtitan.components.tokenizer")
    components.BaseTokenizer = stubs.Nothing
    sys.modules[components.__name__] = components
    config = sys.modules["torchtitan.config"]
    config.JobConfig = importlib.import_module("torchtitan.config.job_config").JobConfig
    protocols = importlib.import_module("torchtitan.protocols.model")
    spec = types.ModuleType("torchtitan.protocols.train_spec")
    for name in ("BaseModelArgs", "ModelProtocol"):
        setattr(spec, name, getattr(protocols, name))
    spec.ParallelizeFunction = typing.Any
    sys.modules[spec.__name__] = spec


# --- the configuration ---
def fits(value, kind):
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is list:
        return isinstance(value, list)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return not isinstance(kind, type) or type(value) is kind


def read(kind, data, path=""):
    """As ConfigManager does it, with the type of every value."""
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    values = {}
    for key, value in data.items():
        if key not in fields:
            raise ValueError(f"{path}{key} is no key of TorchTitan")
        whole = dataclasses.is_dataclass(fields[key])
        if not whole and not fits(value, fields[key]):
            raise ValueError(f"{path}{key} is {value!r}, TorchTitan has {fields[key]}")
        values[key] = read(fields[key], value, f"{path}{key}.") if whole else value
    return kind(**values)


# --- the model ---
def flavor_of(model, flavor):
    """The arguments of a flavor, of the table in the package's __init__, and the class that takes them."""
    place = os.path.join(TITAN, "torchtitan", "models", model)
    with open(os.path.join(place, "__init__.py")) as text:
        source = text.read()
    scope = {"__builtins__": __builtins__}
    for part in ("args", "model"):
        scope.update(vars(importlib.import_module(f"torchtitan.models.{model}.model.{part}")))
    scope.update(MoEArgs=importlib.import_module("torchtitan.models.moe.moe").MoEArgs)
    table = next(node for node in ast.parse(source).body
                 if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict))
    value = compile(ast.Expression(table.value), place, "eval")
    return eval(value, scope)[flavor], next(scope[name] for name in (  # dataclasses with constants
        "Transformer", "DeepSeekV3Model", "Qwen3Model", "GptOssModel") if name in scope)


@functools.cache
def splitter():
    """Its function that splits layers, without the module around it, which wants a later PyTorch."""
    with open(os.path.join(TITAN, "torchtitan/distributed/pipeline_parallel.py")) as text:
        tree, name, scope = ast.parse(text.read()), "generate_llm_fqn_per_model_part", {}
    tree.body = [node for node in tree.body if getattr(node, "name", "") == name]
    exec(compile(tree, name, "exec"), scope)
    return scope[name]


def stages_of(config, layers):
    """Modules of every virtual stage, as pipeline_llm finds them."""
    split, p = splitter(), config.parallelism
    ends = p.pipeline_parallel_first_stage_less_layers, p.pipeline_parallel_last_stage_less_layers
    each = p.pipeline_parallel_layers_per_stage
    virtual = -(-(layers + sum(ends)) // each) if each else p.pipeline_parallel_degree
    return split(virtual, layers, *ends)


@functools.cache
def modules_of(model, flavor):
    """The number of layers, and parameters of every module that a stage may have."""
    args, build = flavor_of(model, flavor)
    args.moe_impl = "standard"  # what a configuration without DeepEP sets
    with torch.device("meta"):
        whole = build(args)
    return args.n_layers, {name: sum(p.numel() for p in module.parameters()) for name, module in whole.named_modules()
                           if name.count(".") < 2}


def parameters(config):
    layers, modules = modules_of(config.model.name, config.model.flavor)
    found = [0] * config.parallelism.pipeline_parallel_degree
    for stage, names in enumerate(stages_of(config, layers)):
        found[stage % len(found)] += sum(modules.get(name, 0) for name in names)
    return found


# --- moesim ---
class Refused(Exception):
    pass


def moesim(*words):
    run = subprocess.run([MOESIM, *words], capture_output=True, text=True)
    if run.returncode:
        raise Refused(run.stderr.strip().split(".json: ")[-1])
    return run.stdout


def write(place, **run):
    with open(place, "w") as out:
        json.dump({"schema": 1, "name": "x", "hardware": "h100-sxm", **run}, out)
    return place


@functools.cache
def model_of(name):
    """The shipped model without MTP blocks, which TorchTitan's models lack, and the parameters of one norm a layer that
    Megatron-LM has before queries without a latent."""
    keys = json.loads(moesim("show", "model", name, "--json"))["model"]
    latent = keys["multi_latent_attention"]
    extra = latent["kv_lora_rank"] and not latent["q_lora_rank"] and keys["num_layers"] * keys["hidden_size"]
    return {"base": name, "mtp_num_layers": 0} if keys["mtp_num_layers"] else name, extra


def check(place, name, technique):
    layout, options = TECHNIQUES[technique]
    model, extra = model_of(name)
    training = {"seq_length": SEQUENCE, "micro_batch_size": 1, "global_batch_size": BATCH, "precision": "bf16"}
    options = dict(options)
    training["precision"] = options.pop("precision", "bf16")
    sharded = "optim" if "pp" in layout else "optim-grads-params"
    text = moesim("launch", "--form", "torchtitan", write(
        f"{place}/run.json", framework="torchtitan", model=model, gpus=GPUS, training=training, layout=layout,
        options={"sequence_parallel": layout.get("tp", 1) > 1, "fsdp": sharded, **options}))
    config = read(sys.modules["torchtitan.config"].JobConfig, tomllib.loads(text))
    p, wrong = config.parallelism, []
    ranks = p.data_parallel_replicate_degree * p.data_parallel_shard_degree
    degrees = ranks * p.tensor_parallel_degree * p.context_parallel_degree * p.pipeline_parallel_degree
    said = {"GPUs": (degrees, GPUS), "TP": (p.tensor_parallel_degree, layout.get("tp", 1)),
            "CP": (p.context_parallel_degree, layout.get("cp", 1)),
            "EP": (p.expert_parallel_degree, layout.get("ep", 1)),
            "sequence": (config.training.seq_len, SEQUENCE), "batch": (config.training.global_batch_size, BATCH),
            "whole batches": (BATCH % (config.training.local_batch_size * ranks), 0)}
    plain = {key: value for key, value in layout.items() if key in ("pp", "vpp")}
    stages = json.loads(moesim("run", "--fidelity", "fast", "--json", write(
        f"{place}/plain.json", model=model, gpus=plain.get("pp", 1), layout=plain,
        training={**training, "precision": "bf16"})))["memory"]["stages"]
    said["parameters"] = (parameters(config), [stage["parameters_B"] / 2 - extra / len(stages) for stage in stages])
    for what, (has, want) in said.items():
        if has != want:
            wrong.append(f"{what}: TorchTitan has {has}, moesim {want}")
    return wrong


def main():
    install()
    failed = refused = 0
    with open(os.path.join(os.path.dirname(__file__), "../../src/launch/torchtitan.def")) as rows:
        names = [row.split('"')[5] for row in rows if row.startswith("TORCHTITAN_MODEL")]
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            for technique in TECHNIQUES:
                try:
                    wrong = check(place, name, technique)
                except Refused as why:
                    refused += 1
                    print(f"{name}--{technique}: refused: {why}")
                    continue
                except Exception as error:
                    wrong = [f"{type(error).__name__}: {error}"]
                print(f"{name}--{technique}: {'; '.join(wrong) if wrong else 'ok'}", flush=True)
                failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
