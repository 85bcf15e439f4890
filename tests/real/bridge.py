#!/usr/bin/env python3
"""`moesim import hf` against Megatron-Bridge, which trains from the same config.json.

bridge.py MOESIM BRIDGE MEGATRON CONFIG.json...: BRIDGE is a checkout of Megatron-Bridge (067f987d), MEGATRON one of
Megatron-LM at the commit that moesim names. Every key of the imported model is what the provider has that the bridge of
the file's class makes of it (a dataclass over Megatron-LM's configuration). Exit 0: all as they should; 1: not;
77: torch is missing."""
import contextlib
import importlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import types
import warnings

try:
    import torch
    import torch._dynamo  # noqa: F401 - before the packages that stand for others
except ImportError:
    print("skipped: PyTorch of 2.1 or later is not installed (tests/real/torch.sh makes one)")
    sys.exit(77)

import expected
import stubs

MOESIM, BRIDGE, MEGATRON = (os.path.abspath(word) for word in sys.argv[1:4])
BRIDGES = {}  # by the class of a file, and by its model_type

# What classes of transformers have where a file says nothing.
ABSENT = {"attention_dropout": 0.0, "mlp_bias": False, "torch_dtype": "bfloat16", "tie_word_embeddings": False}

# What Megatron-Bridge sets by itself, by its model_type and the key of the model: why moesim has another value.
NAMED = {
    ("deepseek_v2", "moe_aux_loss_coeff"): "0 where the file does not say it, transformers has 0.001",
    ("deepseek_v2", "multi_latent_attention.q_lora_rank"): "Megatron-LM's default where the file does not say it",
    ("deepseek_v4", "moe_router_load_balancing_type"): "by the bias of the experts alone",
    ("deepseek_v4", "sparse_attention.indexer_loss"): "the indexer is not trained",
    ("gemma", "activation"): "another approximation of GELU",
    ("gemma2", "activation"): "another approximation of GELU",
    ("gemma2", "sliding_window.period"): "in the attention of its own",
    ("gemma3", "activation"): "another approximation of GELU",
    ("gemma3", "tie_embeddings"): "tied by the class where the file does not say it",
    ("glm_moe_dsa", "mtp_num_layers"): "MTP blocks are left out",
    ("gpt_oss", "moe_aux_loss_coeff"): "that of the file, which no training had",
    ("minimax_m2", "moe_ffn_hidden_size"): "derived",
    ("minimax_m2", "moe_router_load_balancing_type"): "over the batch, the published one over sequences",
    ("minimax_m2", "mtp_num_layers"): "MTP blocks are left out",
    ("qwen3_moe", "moe_aux_loss_coeff"): "0.001 whatever the file says",
}

# Keys that a provider says in layers of its own.
OWN = {"deepseek_v4": ("rope_scaling",), "gemma3": ("sliding_window", "rope_scaling", "rotary_base")}
NEAREST = ("mimo_v2_flash",)  # which moesim reads as the nearest that a model can say


def bare(name, place):
    """A package whose __init__, which imports all there is, does not run."""
    package = types.ModuleType(name)
    package.__path__ = [place]
    sys.modules[name] = package


def install():
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    stubs.PACKAGES += ("transformers", "omegaconf", "hydra", "rich", "safetensors", "modelopt", "nvidia_resiliency_ext",
                       "huggingface_hub", "accelerate", "peft", "datasets", "tqdm", "timm", "PIL", "wandb", "diffusers")
    stubs.install()
    sys.path.insert(0, MEGATRON)
    import megatron.core  # noqa: F401
    import megatron
    megatron.__path__ = [*megatron.__path__, f"{BRIDGE}/src/megatron"]
    for name in ("bridge", "bridge.models", "bridge.models.conversion"):
        bare(f"megatron.{name}", f"{BRIDGE}/src/megatron/{name.replace('.', '/')}")
    model_bridge = importlib.import_module("megatron.bridge.models.conversion.model_bridge")

    def remember(*, source, target, bridge_class):
        BRIDGES[source if isinstance(source, str) else source.__name__] = bridge_class
        if getattr(bridge_class, "MODEL_TYPE", None):
            BRIDGES[bridge_class.MODEL_TYPE] = bridge_class

    model_bridge.register_bridge_implementation = remember


def load_bridges():
    """All of them; those of images and sound, and what wants a package without a stand-in, stay out."""
    place = f"{BRIDGE}/src/megatron/bridge/models"
    for folder, _, files in sorted(os.walk(place)):
        for file in sorted(files):
            if file.endswith("_bridge.py") and "conversion" not in folder and "_vl" not in folder:
                name = os.path.relpath(os.path.join(folder, file), f"{BRIDGE}/src")[:-3].replace("/", ".")
                parent = name.split(".")[:-1]
                for depth in range(4, len(parent) + 1):
                    package = ".".join(parent[:depth])
                    if package not in sys.modules:
                        bare(package, f"{BRIDGE}/src/{package.replace('.', '/')}")
                try:
                    importlib.import_module(name)
                except Exception as error:
                    print(f"{name}: not read: {type(error).__name__}: {error}")


class Pretrained:
    """A config.json as transformers would hand it on."""

    def __init__(self, keys):
        keys = {**keys, "torch_dtype": getattr(torch, keys["torch_dtype"] or "bfloat16")}
        self.config = types.SimpleNamespace(**{**keys, "dtype": keys["torch_dtype"]},
                                            to_dict=lambda: dict(keys))
        self.generation_config = None


class Arguments:
    """The provider where Megatron-LM's arguments have another name."""

    def __init__(self, provider):
        self.provider = provider

    def __getattr__(self, name):
        if name == "untie_embeddings_and_output_weights":
            return not self.provider.share_embeddings_and_output_weights
        if name == "rotary_seq_len_interpolation_factor":
            return self.provider.seq_len_interpolation_factor
        if name == "rope_scaling_factor" and not hasattr(self.provider, name):
            return 1
        return getattr(self.provider, name)


def imported(place, file):
    model = f"{place}/model.json"
    for words in (["import", "hf", file, "--out", model], ["show", "model", model, "--json"]):
        run = subprocess.run([MOESIM, *words], capture_output=True, text=True)
        if run.returncode:
            raise ValueError(run.stderr.strip().splitlines()[-1])
    return json.loads(run.stdout)["model"]


def plain(path, value, model):
    """Values that say the same as one."""
    if path in ("moe_router_num_groups", "moe_router_topk_scaling_factor", "rope_scaling.mscale_all_dim"):
        return 0 if value in (None, 1) else value  # one group, a factor of one: none
    if path == "moe_router_pre_softmax":  # of a softmax
        return value and model["moe_router_score_function"] == "softmax"
    if value is None:  # derived
        return {"kv_channels": model["hidden_size"] // model["num_attention_heads"],
                "num_query_groups": model["num_attention_heads"], "rope_scaling.mscale": 1}.get(path)
    return value


def differences(model, provider, kind):
    """What differs, and why what differs by name does."""
    found, named, args = [], [], Arguments(provider)
    for path, get in expected.parts(model).items():
        own = path.split(".")[0] in OWN.get(kind, ())
        has, want = (plain(path, value, model) for value in (
            None if own else get(provider, args), expected.value_of(model, path)))
        if own:
            named.append(f"model.{path} is in layers of its own")
            continue
        unused = path == "ffn_hidden_size" and want == 0
        unused |= path == "moe_router_group_topk" and plain("moe_router_num_groups", model["moe_router_num_groups"],
                                                            model) == 0
        if has == want or unused:
            continue
        why = NAMED.get((kind, path))
        (named if why else found).append(f"model.{path}: Megatron-Bridge has {has}, moesim {want}" +
                                         (f" ({why})" if why else ""))
    return found, named


class Skipped(Exception):
    pass


def check(place, file):
    with open(file) as text:
        keys = {**ABSENT, **json.load(text)}
    names = keys.get("model_type"), (keys.get("architectures") or [None])[0]
    kind = next((BRIDGES[name] for name in names if name in BRIDGES), None)
    if kind is None or "text_config" in keys:
        raise Skipped("Megatron-Bridge has no bridge of its class for text")
    if getattr(kind, "MODEL_TYPE", None) in NEAREST:
        raise Skipped("moesim reads it as the nearest that a model can say")
    model, bridge = imported(place, file), kind()
    bridge.hf_config = Pretrained(keys).config
    try:
        provider = bridge.provider_bridge(Pretrained(keys))
    except (AttributeError, AssertionError, TypeError, ValueError) as error:  # what a class would fill in
        raise Skipped(f"Megatron-Bridge wants more than the file has: {error}") from error
    return differences(model, provider, bridge.MODEL_TYPE)


def main():
    install()
    load_bridges()
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        for file in sys.argv[4:]:
            name = os.path.basename(file)[:-len(".json")]
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    wrong, named = check(place, file)
            except Skipped as why:
                print(f"{name}: skipped: {why}")
                continue
            except Exception as error:
                wrong, named = [f"{type(error).__name__}: {error}"], []
            print(f"{name}: {'; '.join(wrong) if wrong else ', but '.join(['ok'] + named)}", flush=True)
            failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
