#!/usr/bin/env python3
"""Writes what tests/real/check.py checks: launches of shipped models and what moesim says of them.

cases.py MOESIM FOLDER [TECHNIQUE...]: for each case FOLDER/NAME.json with the arguments and environment that the
exported script hands to torchrun, and with what the run is by moesim: parameters and bytes of weights, gradients and
optimizer of every stage, model FLOP, data-parallel size, microbatches, virtual stages, what is recomputed and
offloaded, and every key of the model. Without TECHNIQUE the cases of the table below; with some (or `all`) every
shipped model with each of them, and how many of those moesim refuses, with the reasons. `drawn:N` or `drawn:N:SEED` are
N launches of a model, a machine, a layout and options that are drawn, in the form that is drawn with them, whose script
must pass ShellCheck and come back as the same run."""
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

TORCHRUN = """#!/usr/bin/env python3
import json, os, sys
keep = ("NCCL", "CUDA", "PYTORCH", "NVTE", "NVLINK")
json.dump({"argv": sys.argv[1:], "env": {k: v for k, v in os.environ.items() if k.startswith(keep)}},
          open(os.environ["ARGUMENTS"], "w"))
"""

# name: model, GPUs, layout, options
CASES = {
    "deepseek-v2-lite": ("deepseek-v2-lite", 8, {"tp": 2, "ep": 8}, {}),
    "deepseek-v3": ("deepseek-v3", 64, {"tp": 2, "ep": 64}, {}),
    "deepseek-v3-pp": ("deepseek-v3", 128, {"pp": 4, "ep": 32, "pipeline_layout": "Et*15|t*16|t*15|t*15mL"}, {}),
    "deepseek-v3.2": ("deepseek-v3.2", 64, {"tp": 2, "ep": 64}, {}),
    "glm5-2": ("glm5-2", 64, {"tp": 2, "ep": 64}, {}),
    "gpt-oss-20b": ("gpt-oss-20b", 8, {"tp": 2, "ep": 8}, {}),
    "gpt3-175b": ("gpt3-175b", 64, {"tp": 8, "pp": 8, "vpp": 2}, {}),
    "kimi-k2": ("kimi-k2", 64, {"ep": 64}, {}),
    "llama3-405b": ("llama3-405b", 64, {"tp": 8, "pp": 2}, {}),
    "mixtral-8x7b": ("mixtral-8x7b", 32, {"tp": 2, "pp": 4, "vpp": 2, "ep": 4}, {}),
    "moonlight": ("moonlight-16b-a3b", 8, {"tp": 2, "ep": 8}, {}),
    "nemotron-3-nano": ("nemotron-3-nano", 16, {"tp": 2, "pp": 2, "ep": 8}, {}),
    "nemotron-3-nano-vpp": ("nemotron-3-nano", 16, {"tp": 2, "pp": 2, "vpp": 2, "ep": 8}, {}),
    "nemotron-3-super": ("nemotron-3-super", 64, {"tp": 2, "pp": 4, "ep": 8}, {}),
    "nemotron-3-nano-4b": ("nemotron-3-nano-4b", 16, {"tp": 2, "pp": 2}, {}),
    "qwen3-30b-a3b": ("qwen3-30b-a3b", 8, {"ep": 8},
                      {"recompute": {"granularity": "selective", "modules": ["moe_act", "layernorm"]}}),
    "qwen3-next": ("qwen3-next-80b-a3b", 32, {"tp": 2, "pp": 2, "ep": 8}, {}),
}


# of every shipped model: layout, options, training, beside TP 2 (and EP 8, ETP 1 with experts)
FSDP = {"sequence_parallel": True, "fsdp": "optim-grads-params"}
TECHNIQUES = {
    "plain": ({}, {}, {}),
    "pp4": ({"pp": 4}, {}, {}),
    "full": ({}, {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}, {}),
    "fp8": ({}, {}, {"precision": "fp8-blockwise"}),
    "fp8-gather": ({}, {"fp8_param_gather": True}, {"precision": "fp8-blockwise"}),
    "fp8-delayed": ({}, {}, {"precision": "fp8-delayed"}),
    "fsdp": ({}, FSDP, {}),
    "fsdp-grads": ({}, {**FSDP, "fsdp": "optim-grads"}, {}),
    "hsdp": ({}, {**FSDP, "num_distributed_optimizer_instances": 2}, {}),
    "cp2": ({"cp": 2}, {}, {}),
    "offload": ({}, {"optimizer_offload_fraction": 1}, {}),
    "vpp": ({"pp": 2, "vpp": 2}, {}, {}),
    "block": ({}, {"recompute": {"granularity": "full", "method": "block", "num_layers": 2}}, {}),
    "selective": ({}, {"recompute": {"granularity": "selective", "modules": ["core_attn", "layernorm"]}}, {}),
    "modules": ({}, {"offload_modules": ["core_attn", "attn_proj"]}, {}),
    "moments": ({}, {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, {}),
    "replicated": ({}, {"distributed_optimizer": False, "overlap_param_gather": False}, {}),
    "graphs": ({}, {"cuda_graph_scope": ["attn"]}, {}),
    "deepep": ({}, {"dispatcher": "deepep"}, {}),
}

# what is drawn: layout, training, options; each key is left out as often as it is there
DRAWN = {
    "layout": {"tp": (1, 2, 4, 8), "pp": (1, 2, 4), "cp": (1, 2), "ep": (1, 2, 4, 8, 16), "etp": (1, 2), "vpp": (2, 4),
               "cp_comm_type": ("p2p", "all_gather", "a2a")},
    "training": {"seq_length": (2048, 4096, 8192), "micro_batch_size": (1, 2), "optimizer": ("adam", "muon"),
                 "precision": ("bf16", "bf16", "fp16", "fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8",
                               "nvfp4")},
    "options": {
        "dispatcher": ("alltoall", "allgather", "deepep", "hybridep"), "moe_shared_expert_overlap": (True, False),
        "moe_permute_fusion": (True, False), "moe_router_fusion": (True, False), "distributed_optimizer": (True, False),
        "overlap_grad_reduce": (True, False), "overlap_param_gather": (True, False), "tp_comm_overlap": (True, False),
        "fsdp": ("none", "none", "optim", "optim-grads", "optim-grads-params"), "fp8_param_gather": (True, False),
        "cuda_graph_scope": ([], [], ["attn"], ["attn", "moe_router"], ["mlp"]), "ep_overlap": (False, False, True),
        "offload_modules": ([], [], ["core_attn"], ["expert_fc1", "moe_act"], ["attn_proj"]),
        "optimizer_offload_fraction": (0, 0, 1, 0.5), "exp_avg_dtype": ("fp32", "fp32", "bf16"),
        "exp_avg_sq_dtype": ("fp32", "fp32", "bf16"), "cross_entropy_fusion": (True, False),
        "gradient_accumulation_fusion": (True, False), "attention_backend": ("flash", "fused", "unfused"),
        "apply_rope_fusion": (True, False), "num_distributed_optimizer_instances": (1, 1, 2),
        "deterministic_mode": (False, False, True), "delay_wgrad": (False, False, True),
        "recompute": ({"granularity": "full", "method": "uniform", "num_layers": 1},
                      {"granularity": "full", "method": "block", "num_layers": 1},
                      {"granularity": "selective", "modules": ["core_attn"]},
                      {"granularity": "selective", "modules": ["layernorm", "mlp"]},
                      {"granularity": "selective", "modules": ["moe_act", "layernorm"]},
                      {"granularity": "selective", "modules": ["mla_up_proj"]})}}
FORMS = ("megatron", "modelzoo", "slurm", "slurm:modelzoo", "k8s", "k8s:jobset", "k8s:volcano", "skypilot")
MOST_DRAWS = 100  # for each that is launched


class Refused(Exception):
    pass


def scenario(name, model, gpus, layout, options, training):
    training = {"seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 512, "precision": "bf16", **training}
    options = {"sequence_parallel": True, "dispatcher": "alltoall", **options}
    return {"schema": 1, "name": name, "model": model, "hardware": "h100-sxm", "gpus": gpus, "training": training,
            "layout": layout, "options": options}


def moesim(binary, *words):
    run = subprocess.run([binary, *words], capture_output=True, text=True)
    if run.returncode:
        raise Refused(f"moesim {' '.join(words)}: {run.stderr}")
    return run.stdout


def predicted(binary, place, run):
    with open(f"{place}/predicted.json", "w") as out:
        json.dump(run, out)
    return json.loads(moesim(binary, "run", "--fidelity", "fast", "--json", f"{place}/predicted.json"))


def stage_parameters(binary, place, run):
    """Of every stage: its weights' bytes where they are BF16, whole and without low-precision copies, two each."""
    options = {key: value for key, value in run["options"].items() if key not in ("fsdp", "fp8_param_gather")}
    options.pop("num_distributed_optimizer_instances", None)
    plain = {**run, "options": options, "training": {**run["training"], "precision": "bf16"}}
    return [stage["parameters_B"] / 2 for stage in predicted(binary, place, plain)["memory"]["stages"]]


def held(stage):
    return stage["parameters_B"] + stage["gradients_B"] + stage["optimizer_B"]


def virtual_of(layout):
    split = layout.get("pipeline_layout")
    return len(split.split("|")) // layout["pp"] if split else layout.get("vpp", 1)


def write_case(binary, folder, name, run):
    layout, options, gpus = run["layout"], run["options"], run["gpus"]
    with tempfile.TemporaryDirectory() as place:
        file, script, tool = f"{place}/{name}.json", f"{place}/run.sh", f"{place}/torchrun"
        with open(file, "w") as out:
            json.dump(run, out)
        with open(script, "w") as out:
            out.write(moesim(binary, "show", "launch", file))
        with open(tool, "w") as out:
            out.write(TORCHRUN)
        os.chmod(tool, 0o755)
        arguments = f"{place}/arguments.json"
        subprocess.run(["bash", script], check=True,
                       env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "ARGUMENTS": arguments})
        parameters = stage_parameters(binary, place, run)
        result = predicted(binary, place, run)
        case = json.load(open(arguments))
    pp, ranks = layout.get("pp", 1), gpus // (layout.get("tp", 1) * layout.get("cp", 1) * layout.get("pp", 1))
    recompute, training = options.get("recompute", {}), run["training"]
    case["want"] = {"parameters": parameters, "states": [held(stage) for stage in result["memory"]["stages"]],
                    "flop": result["model_flop_per_token"], "stages": pp, "data_parallel": ranks,
                    "microbatches": training["global_batch_size"] // training["micro_batch_size"] // ranks,
                    "virtual": virtual_of(layout),
                    "recompute": [recompute.get("granularity"), recompute.get("method"), recompute.get("num_layers"),
                                  recompute.get("modules", [])],
                    "offload": options.get("offload_modules", [])}
    case["model"] = json.loads(moesim(binary, "show", "model", run["model"], "--json"))["model"]
    case["arch"] = json.loads(moesim(binary, "show", "hardware", run["hardware"], "--json"))["arch"]
    with open(f"{folder}/{name}.json", "w") as out:
        json.dump(case, out)


def uneven(layout, model):
    """The layout with its layers split as evenly as they can be, in place of an even split that does not exist."""
    stages, layers = layout["pp"] * layout.get("vpp", 1), model["num_layers"]
    parts = [f"t*{layers // stages + (i < layers % stages)}" for i in range(stages)]
    split = {**layout, "pipeline_layout": f"E{'|'.join(parts)}{'m' * model['mtp_num_layers']}L"}
    return {key: value for key, value in split.items() if key != "vpp"}


def write_table(binary, folder):
    for name, case in CASES.items():
        try:
            write_case(binary, folder, name, scenario(name, *case, {}))
        except Refused as why:
            sys.exit(str(why))
    print(f"{len(CASES)} cases in {folder}")


def write_techniques(binary, folder, techniques):
    written, refused = 0, collections.Counter()
    for model in json.loads(moesim(binary, "show", "model", "--json")):
        keys = json.loads(moesim(binary, "show", "model", model, "--json"))["model"]
        for technique in techniques:
            layout, options, training = TECHNIQUES[technique]
            stages = layout.get("pp", 1) * layout.get("vpp", 1)
            layout = {"tp": 2, **({"ep": 8, "etp": 1} if keys["num_experts"] else {}), **layout}
            if keys["num_layers"] % stages:
                layout = uneven(layout, keys)
            try:
                name = f"{model}--{technique}"
                write_case(binary, folder, name, scenario(name, model, 64, layout, options, training))
                written += 1
            except Refused as why:
                refused[str(why).split(".json: ")[-1].strip()[:100]] += 1
    print(f"{written} cases in {folder}, {refused.total()} refused by name")
    for why, number in refused.most_common():
        print(f"  {number}: {why}")


# --- drawn ---
def some(rand, choices):
    return {key: rand.choice(words) for key, words in choices.items() if rand.random() < 0.5}


def draw(rand, models, machines):
    model = rand.choice(sorted(models))
    keys, layout, training = models[model], some(rand, DRAWN["layout"]), some(rand, DRAWN["training"])
    options = dict(rand.sample(sorted(some(rand, DRAWN["options"]).items()), 4))
    tp, pp, cp = (layout.get(key, 1) for key in ("tp", "pp", "cp"))
    if not keys["num_experts"]:
        layout.pop("ep", 0), layout.pop("etp", 0)
    if keys["num_layers"] % (pp * layout.get("vpp", 1)):
        layout = uneven({**layout, "pp": pp}, keys)
    ranks = rand.choice((1, 2, 4, 8)) * max(1, layout.get("ep", 1) * layout.get("etp", tp) // (tp * cp))
    size = training.setdefault("micro_batch_size", 1)
    training["global_batch_size"] = ranks * size * rand.choice((4, 8, 16))
    run = scenario("drawn", model, tp * pp * cp * ranks, layout, {"sequence_parallel": tp > 1, **options}, training)
    return {**run, "hardware": rand.choice(machines)}


def come_back(binary, place, run, form):
    """What is wrong with the script of a form: ShellCheck, or that it comes back as another run or with remarks."""
    with open(f"{place}/drawn.json", "w") as out:
        json.dump(run, out)
    text = moesim(binary, "launch", "--form", form, f"{place}/drawn.json")
    with open(f"{place}/script", "w") as out:
        out.write(text)
    if text.startswith("#!") and shutil.which("shellcheck"):
        check = subprocess.run(["shellcheck", f"{place}/script"], capture_output=True, text=True)
        if check.returncode:
            return check.stdout
    reader = "modelzoo" if form.endswith("modelzoo") else "megatron"
    back = subprocess.run([binary, "import", reader, f"{place}/script", "--out", f"{place}/back.json"],
                          capture_output=True, text=True)
    if back.returncode or back.stderr:
        return back.stderr
    again = moesim(binary, "launch", "--form", form, f"{place}/back.json")
    return None if again == text else "comes back as another run"


def write_drawn(binary, folder, number, seed):
    rand, refused, draws = random.Random(seed), collections.Counter(), 0
    models = {name: json.loads(moesim(binary, "show", "model", name, "--json"))["model"]
              for name in json.loads(moesim(binary, "show", "model", "--json"))}
    machines = json.loads(moesim(binary, "show", "hardware", "--json"))
    for i in range(number):
        for draws in range(MOST_DRAWS):
            run, form = draw(rand, models, machines), rand.choice(FORMS)
            name = f"{run['model']}--drawn-{seed}-{i}"
            try:
                with tempfile.TemporaryDirectory() as place:
                    wrong = come_back(binary, place, {**run, "name": name}, form)
                if wrong:
                    sys.exit(f"{name}, {form}: {wrong}\n{json.dumps(run)}")
                write_case(binary, folder, name, run)
                break
            except Refused as why:
                refused[str(why).split(".json: ")[-1].strip()[:100]] += 1
        else:
            sys.exit(f"drawn:{number}:{seed}: {MOST_DRAWS} draws in turn are refused: {refused.most_common(5)}")
    print(f"{number} drawn cases in {folder}, {refused.total()} refused by name")


if __name__ == "__main__":
    os.makedirs(sys.argv[2], exist_ok=True)
    drawn = [word.split(":")[1:] for word in sys.argv[3:] if word.startswith("drawn:")]
    if drawn:
        for number, *seed in drawn:
            write_drawn(sys.argv[1], sys.argv[2], int(number), int(seed[0]) if seed else 1)
    elif len(sys.argv) > 3:
        write_techniques(sys.argv[1], sys.argv[2], list(TECHNIQUES) if sys.argv[3] == "all" else sys.argv[3:])
    else:
        write_table(sys.argv[1], sys.argv[2])
