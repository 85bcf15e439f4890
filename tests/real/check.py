#!/usr/bin/env python3
"""Exported launches through Megatron-LM itself: parser, validation, configuration and models, without a GPU.

check.py MEGATRON CASE.json...: MEGATRON is a checkout at the commit that moesim names. Parameters and bytes of every
pipeline stage (torch's fake process groups, device meta), model FLOP, data-parallel size, microbatches, virtual
stages, what is recomputed and offloaded, and every key of the model must be what moesim says (expected.py). Exit 0:
all as they should; 1: not; 77: torch is missing."""
import contextlib
import io
import json
import logging
import os
import re
import sys
import warnings

try:
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore
except ImportError:
    print("skipped: PyTorch of 2.1 or later is not installed (tests/real/torch.sh makes one)")
    sys.exit(77)

import expected
import stubs

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
os.environ.setdefault("RANK", "0")
stubs.install()
sys.path.insert(0, sys.argv[1])

import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import megatron.core.extensions.transformer_engine  # noqa: F401
import megatron.core.transformer.attention  # noqa: F401
import megatron.core.transformer.mlp  # noqa: F401
import megatron.core.transformer.transformer_layer
import megatron.core.transformer.moe.experts  # noqa: F401
import megatron.core.transformer.moe.shared_experts  # noqa: F401
from gpt_builders import gpt_builder
from hybrid_builders import hybrid_builder
from megatron.core import mpu, parallel_state
from megatron.core.pipeline_parallel.utils import (is_pp_first_stage, is_pp_last_stage, is_vp_first_stage,
                                                   is_vp_last_stage)
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import random as tensor_random
from megatron.core.tokenizers.utils.build_tokenizer import vocab_size_with_padding
from megatron.training import arguments, global_vars, theoretical_memory_usage
from megatron.training.argument_utils import core_transformer_config_from_args
from megatron.training.training import num_floating_point_operations

for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("megatron") and "set_save_original_input" in vars(module):
        module.set_save_original_input = lambda _: None


def create_group(ranks=None, *_, **more):
    more.pop("pg_options", None)
    if ranks is not None and dist.get_rank() not in ranks:
        return dist.GroupMember.NON_GROUP_MEMBER
    return dist.new_group(ranks, backend="fake")


parallel_state.create_group = create_group
dist.all_reduce = lambda *_, **__: None
# offloading in a captured graph wants a later PyTorch than any distribution has; nothing is captured here
megatron.core.transformer.transformer_layer.is_torch_min_version = lambda _: True


class OnMeta(TorchFunctionMode):
    """Tensors that ask for a GPU are made on the device meta."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device")):
            kwargs["device"] = "meta"
        kwargs.pop("pin_memory", None)  # for a copy to a GPU: torch without CUDA has no such memory
        return args[0] if getattr(function, "__name__", "") == "cuda" else function(*args, **kwargs)


def major_of(arch):
    """What torch says of a device: compute capability of sm90 and sm100, of gfx942; MindSpeed says 8 of Huawei's."""
    version = re.search(r"sm(\d+)\d|gfx(\d+)\w\w$", arch or "")
    return int(version[1] or version[2]) if version else 8


def add_mindspeed(parser):
    """What MindSpeed's patches add to the parser, of words that launches for Huawei's machines are in."""
    group = parser.add_argument_group(title="MindSpeed")
    for flag in ("--use-ascend-mc2", "--moe-fb-overlap", "--reuse-fp32-param", "--swap-optimizer"):
        group.add_argument(flag, action="store_true")
    for flag in ("--context-parallel-algo", "--ulysses-degree-in-cp", "--swap-optimizer-times"):
        group.add_argument(flag)
    return parser


def parse(case):
    words = case["argv"]
    at = next(i for i, word in enumerate(words) if word.endswith(".py"))
    launcher = dict(zip(words[0:at:2], words[1:at:2]))
    world = int(launcher["--nnodes"]) * int(launcher["--nproc_per_node"])
    for name in [name for name in os.environ if name.startswith(("NCCL", "CUDA", "NVTE", "NVLINK"))]:
        del os.environ[name]
    os.environ.update(case["env"], WORLD_SIZE=str(world), RANK="0", LOCAL_RANK="0")
    stubs.Device.major = major_of(case["arch"])
    sys.argv = words[at:]
    args = arguments.parse_args(add_mindspeed if case["arch"] == "Da Vinci" else None, False)
    arguments.validate_args(args, {})
    args.padded_vocab_size = vocab_size_with_padding(args.vocab_size, args)
    global_vars._GLOBAL_ARGS = None
    global_vars.set_args(args)
    return args, world, hybrid_builder if words[at].endswith("hybrid.py") else gpt_builder


def initialize(args):
    order = "tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp"
    mpu.initialize_model_parallel(
        args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size, order=order)
    tensor_random.initialize_rng_tracker()
    type(tensor_random.get_cuda_rng_tracker()).fork = lambda self, *_, **__: contextlib.nullcontext()


def stage_parameters(args, build, config):
    """Of the stage of this rank, over its virtual stages."""
    groups = ProcessGroupCollection.use_mpu_process_groups()
    virtual, found = args.virtual_pipeline_model_parallel_size, {
        "dense": 0, "expert": 0, "left": {"dense": 0, "expert": 0}, "names": set()}
    for v in range(virtual or 1):
        stage = v if virtual else None
        first = is_pp_first_stage(groups.pp) and (not virtual or is_vp_first_stage(vp_stage=v, vp_size=virtual))
        last = is_pp_last_stage(groups.pp) and (not virtual or is_vp_last_stage(vp_stage=v, vp_size=virtual))
        with OnMeta(), torch.device("meta"):
            model = build(args, first, last, vp_stage=stage, config=config, pg_collection=groups)
        for name, p in model.named_parameters():
            kind, row = "dense" if getattr(p, "allreduce", True) else "expert", expected.left_out(name)
            found[kind] += p.numel()
            if row and not (row[2] and args.tensor_model_parallel_size == 1):
                found["left"][kind] += p.numel() * (1 - 1 / args.tensor_model_parallel_size if row[2] else 1)
                found["names"].add(row[0])
    return found


def parameters(args, world, build, config):
    found = []
    for stage in range(args.pipeline_model_parallel_size):
        args.rank = stage * (world // args.pipeline_model_parallel_size)
        os.environ["RANK"] = str(args.rank)
        dist.init_process_group("fake", rank=args.rank, world_size=world, store=FakeStore())
        try:
            initialize(args)
            found.append(stage_parameters(args, build, config))
        finally:
            mpu.destroy_model_parallel()
            dist.destroy_process_group()
    return found


def recomputed(config):
    kind = config.recompute_granularity
    return [kind, config.recompute_method, config.recompute_num_layers,
            config.recompute_modules if kind == "selective" else []]


def differences(case):
    args, world, build = parse(case)
    want, model, config = case["want"], case["model"], core_transformer_config_from_args(args)
    stages = parameters(args, world, build, config)
    flop, named = expected.flop_per_token(num_floating_point_operations, model, args)
    got = {"parameters": [stage["dense"] + stage["expert"] for stage in stages],
           "states": [expected.stage_bytes(args, world, stage) for stage in stages], "flop": flop,
           "stages": args.pipeline_model_parallel_size, "data_parallel": args.data_parallel_size,
           "microbatches": args.global_batch_size // (args.micro_batch_size * args.data_parallel_size),
           "virtual": args.virtual_pipeline_model_parallel_size or 1, "recompute": recomputed(config),
           "offload": config.offload_modules if config.fine_grained_activation_offloading else []}
    known = {key: value for key, value in got.items() if value is not None and value != [None] * len(stages)}
    wrong = [f"{key}: Megatron-LM has {known[key]}, moesim {want[key]}" for key in known if known[key] != want[key]]
    report, lacks = expected.theoretical(theoretical_memory_usage.compute_weight_and_optimizer_memory, args, world,
                                         stages[0])
    if report is not None and abs(report - want["states"][0]) > 1e-12 * report:
        wrong.append(f"theoretical memory: Megatron-LM has {report} ({', '.join(lacks)}), moesim {want['states'][0]}")
    named += lacks
    return wrong + expected.model_differences(model, config, args), named


def main(files):
    failed = 0
    for file in files:
        with open(file) as text:
            case = json.load(text)
        log = io.StringIO()
        try:
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                wrong, named = differences(case)
        except (Exception, SystemExit) as error:  # what the release refuses is the finding
            wrong, named = [f"{type(error).__name__}: {error} {log.getvalue()[-300:]}"], []
        name = os.path.basename(file)[:-len(".json")]
        print(f"{name}: {'; '.join(wrong) if wrong else ', but '.join(['ok'] + named)}", flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
