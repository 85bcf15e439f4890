"""Stands for the packages that need a GPU, so that Megatron-LM's parser and models run without one.

Modules of Transformer Engine keep the shapes of their parameters (on the device `meta`); everything else of those
packages is an object that answers every call with nothing."""
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

import torch
from torch import nn

PACKAGES = ("transformer_engine", "transformer_engine_torch", "fused_weight_gradient_mlp_cuda", "triton", "deep_ep",
            "grouped_gemm", "mamba_ssm", "causal_conv1d", "fla", "fast_hadamard_transform", "flash_mla", "cudnn")
SUBMODULES = ("common", "recipe", "pytorch", "module", "ops", "float8_tensor", "fp8", "distributed", "tensor",
              "attention", "optimizers", "cpp_extensions", "utils", "permutation", "router", "cross_entropy", "graph",
              "constants")


class _Class(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Nothing(metaclass=_Class):
    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Package(types.ModuleType):
    def __getattr__(self, name):
        if name == "__version__":
            return "2.14.0"
        if name.startswith("__"):
            raise AttributeError(name)
        if name in SUBMODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        made = _Class(name, (Nothing,), {})
        setattr(self, name, made)
        return made

    def __call__(self, *_, **__):
        return Nothing()


def weights(*shape):
    return nn.Parameter(torch.empty(*shape, device="meta"))


def split(inputs, outputs, mode, group, size):
    ranks = torch.distributed.get_world_size(group) if group is not None else size
    if mode == "column":
        return inputs, outputs // ranks
    return (inputs // ranks, outputs) if mode == "row" else (inputs, outputs)


class Linear(nn.Module):
    def __init__(self, in_features, out_features, tp_group=None, tp_size=1, bias=True, parallel_mode=None, **_):
        super().__init__()
        i, o = split(in_features, out_features, parallel_mode, tp_group, tp_size)
        self.in_features, self.out_features, self.use_bias = i, o, bias
        self.weight = weights(o, i)
        self.bias = weights(o) if bias else None


class LayerNormLinear(Linear):
    def __init__(self, in_features, out_features, normalization="LayerNorm", **more):
        super().__init__(in_features, out_features, **more)
        self.layer_norm_weight = weights(in_features)
        self.layer_norm_bias = weights(in_features) if normalization != "RMSNorm" else None


class GroupedLinear(nn.Module):
    def __init__(self, num_gemms, in_features, out_features, tp_group=None, tp_size=1, bias=True, parallel_mode=None,
                 **_):
        super().__init__()
        i, o = split(in_features, out_features, parallel_mode, tp_group, tp_size)
        self.num_gemms = num_gemms
        for k in range(num_gemms):
            setattr(self, f"weight{k}", weights(o, i))
            if bias:
                setattr(self, f"bias{k}", weights(o))


class RMSNorm(nn.Module):
    def __init__(self, hidden_size=None, *_, normalized_shape=None, **__):
        super().__init__()
        self.weight = weights(hidden_size if hidden_size is not None else normalized_shape)


class LayerNorm(RMSNorm):
    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.bias = weights(self.weight.shape[0])


class DotProductAttention(nn.Module):
    def __init__(self, num_attention_heads=None, *_, softmax_type="vanilla", tp_group=None, **__):
        super().__init__()
        ranks = torch.distributed.get_world_size(tp_group) if tp_group is not None else 1
        if softmax_type == "learnable":
            self.softmax_offset = weights(num_attention_heads // ranks)


def no_context(*_, **__):
    return contextlib.nullcontext(), None


def fill(package):
    name = package.__name__
    if name == "transformer_engine.pytorch":
        for made in (Linear, LayerNormLinear, GroupedLinear, RMSNorm, LayerNorm, DotProductAttention):
            setattr(package, made.__name__, made)
        package.get_cpu_offload_context = no_context
    if "cpu_offload" in name:
        package.get_cpu_offload_context = no_context
    if name == "mamba_ssm.ops.triton.layernorm_gated":
        package.RMSNorm = RMSNorm


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        ours = name.split(".")[0] in PACKAGES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec):
        package = Package(spec.name)
        package.__path__ = []
        return package

    def exec_module(self, package):
        fill(package)


class Device:
    """What torch.cuda says of the GPU that is not there."""
    major, minor, name, multi_processor_count, total_memory = 9, 0, "none", 132, 80 << 30


def install():
    sys.meta_path.insert(0, Finder())
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 8
    cuda.get_device_properties = lambda *_: Device()
    cuda.get_device_capability = lambda *_: (Device.major, 0)
    cuda.current_device = lambda: torch.device("meta")
    cuda.get_device_name = lambda *_: Device.name
    cuda.mem_get_info = lambda *_: (Device.total_memory, Device.total_memory)
    cuda.Stream = cuda.Event = Nothing
    cuda.current_stream = cuda.default_stream = lambda *_: Nothing()
    cuda.stream = lambda *_: Nothing()
    cuda.get_rng_state = lambda *_, **__: torch.zeros(1)
    for name in ("set_device", "synchronize", "empty_cache", "set_rng_state"):
        setattr(cuda, name, lambda *_, **__: None)
    for name in ("float8_e8m0fnu", "float4_e2m1fn_x2"):
        if not hasattr(torch, name):
            setattr(torch, name, torch.uint8)
    nn.Module.cuda = lambda self, *_, **__: self
