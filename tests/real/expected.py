"""What a launch must be inside Megatron-LM: the keys of a model as the configuration object has them, model FLOP and
bytes of weights, gradients and optimizer by Megatron-LM's own formulas, with what those leave out by name."""
import re


def either(name):
    """Where 0, none and absent are one."""
    return lambda config, args: getattr(config, name) or 0


def same(name):
    return lambda config, args: getattr(config, name)


def said(name):
    return lambda config, args: getattr(args, name)


# Key of a model: what Megatron-LM has in its place. Those of a part that a model lacks are not looked at (`parts`).
PLAIN = {
    "hidden_size": same("hidden_size"), "ffn_hidden_size": same("ffn_hidden_size"),
    "num_attention_heads": same("num_attention_heads"), "qk_layernorm": same("qk_layernorm"),
    "attention_output_gate": same("attention_output_gate"), "vocab_size": said("vocab_size"),
    "gated": same("gated_linear_unit"),
    "activation": lambda config, args: config.activation_func.__name__,
    "normalization": same("normalization"), "norm_epsilon": same("layernorm_epsilon"),
    "layernorm_zero_centered_gamma": same("layernorm_zero_centered_gamma"), "init_method_std": same("init_method_std"),
    "position_embedding": said("position_embedding_type"), "add_bias_linear": same("add_bias_linear"),
    "tie_embeddings": lambda config, args: not args.untie_embeddings_and_output_weights,
    "mtp_num_layers": either("mtp_num_layers"), "hidden_dropout": same("hidden_dropout"),
    "attention_dropout": same("attention_dropout"),
    "softmax_sink": lambda config, args: config.softmax_type == "learnable",
    "sliding_window.window": lambda config, args: config.window_size[0] + 1 if config.window_size else 0,
    "sliding_window.period": lambda config, args: config.window_size and config.window_attn_skip_freq or 0,
}
HEADS = {"num_query_groups": same("num_query_groups"), "kv_channels": same("kv_channels"),
         "add_qkv_bias": lambda config, args: config.add_qkv_bias and not config.add_bias_linear}
LATENT = {f"multi_latent_attention.{key}": either(key) for key in
          ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")}
ROTARY = {key: lambda config, args, key=key: getattr(config, key, getattr(args, key))  # a member with latent attention
          for key in ("rotary_base", "rotary_percent")}
EXPERTS = {
    "num_experts": same("num_moe_experts"), "moe_router_topk": same("moe_router_topk"),
    "moe_ffn_hidden_size": same("moe_ffn_hidden_size"),
    "moe_shared_expert_intermediate_size": either("moe_shared_expert_intermediate_size"),
    "moe_shared_expert_gate": same("moe_shared_expert_gate"), "moe_router_num_groups": either("moe_router_num_groups"),
    "moe_router_group_topk": either("moe_router_group_topk"),
    "moe_router_score_function": same("moe_router_score_function"),
    "moe_router_pre_softmax": same("moe_router_pre_softmax"),
    "moe_router_topk_scaling_factor": either("moe_router_topk_scaling_factor"),
    "moe_router_load_balancing_type": same("moe_router_load_balancing_type"),
    "moe_router_enable_expert_bias": same("moe_router_enable_expert_bias"),
    "moe_aux_loss_coeff": same("moe_aux_loss_coeff"), "moe_latent_size": either("moe_latent_size"),
}
MAMBA = {f"mamba.{key}": same(f"mamba_{key}") for key in ("num_heads", "head_dim", "state_dim", "num_groups")}
LINEAR = {"linear_attention.num_key_heads": same("linear_num_key_heads"),
          "linear_attention.num_value_heads": same("linear_num_value_heads"),
          "linear_attention.key_head_dim": same("linear_key_head_dim"),
          "linear_attention.value_head_dim": same("linear_value_head_dim"),
          "linear_attention.conv_kernel": same("linear_conv_kernel_dim"),
          "linear_attention.frequency": same("linear_attention_freq")}
SPARSE = {"sparse_attention.indexer_num_heads": same("dsa_indexer_n_heads"),
          "sparse_attention.indexer_head_dim": same("dsa_indexer_head_dim"),
          "sparse_attention.indexer_topk": same("dsa_indexer_topk"),
          "sparse_attention.indexer_topk_freq": same("dsa_indexer_topk_freq"),
          "sparse_attention.indexer_skip_topk_offset": same("dsa_indexer_skip_topk_offset"),
          "sparse_attention.indexer_loss": lambda config, args: bool(config.dsa_indexer_loss_coeff)}
YARN = {"factor": "rotary_scaling_factor", "original_max_position_embeddings": "original_max_position_embeddings",
        "beta_fast": "beta_fast", "beta_slow": "beta_slow", "mscale": "mscale", "mscale_all_dim": "mscale_all_dim"}


def stretched(model):
    """Keys of rope_scaling; those of the latent attention that no argument says travel as a note of the script."""
    kind, latent = model["rope_scaling"]["type"], model["multi_latent_attention"]["kv_lora_rank"] > 0
    if kind == "yarn" and latent:
        return {f"rope_scaling.{key}": same(YARN[key]) for key in ("factor", "mscale", "mscale_all_dim")}
    if kind == "yarn":
        keys = {f"rope_scaling.{key}": same(f"yarn_{YARN[key]}") for key in YARN}
        return {**keys, "rope_scaling.truncate": same("yarn_correction_range_round_to_int")}
    if kind == "llama3":
        return {"rope_scaling.factor": said("rope_scaling_factor")}
    return {"rope_scaling.factor": lambda config, args: args.rotary_seq_len_interpolation_factor or 1}


def parts(model):
    pattern = (model["hybrid_layer_pattern"] or "") + (model["mtp_pattern"] or "")
    rotary = model["position_embedding"] in ("rope", "yarn")
    keys = [PLAIN, LATENT if model["multi_latent_attention"]["kv_lora_rank"] > 0 else HEADS]
    keys += [ROTARY, stretched(model)] if rotary else []
    keys += [EXPERTS] if model["num_experts"] else []
    keys += [MAMBA] if "M" in pattern else []
    keys += [LINEAR] if model["linear_attention"]["num_value_heads"] else []
    keys += [SPARSE] if model["sparse_attention"]["indexer_topk"] else []
    return {key: get for part in keys for key, get in part.items()}


def value_of(model, path):
    for key in path.split("."):
        model = model[key]
    return model


def model_differences(model, config, args):
    """Keys that change the trained model, as Megatron-LM would train it."""
    found = []
    for path, get in parts(model).items():
        try:
            has = get(config, args)
        except AttributeError as missing:
            has = str(missing)
        want = value_of(model, path)
        if path == "ffn_hidden_size" and want == 0:  # no dense layer has that width
            continue
        if path == "moe_router_topk_scaling_factor" and want == 1:
            want, has = 1, has or 1
        if path == "moe_router_group_topk" and not model["moe_router_num_groups"]:
            continue
        if has != want:
            found.append(f"model.{path}: Megatron-LM has {has}, moesim {want}")
    return found


# --- model FLOP ---
def windowed_core(model, args):
    """FLOP a token that Megatron-LM's formula counts beyond a window: it knows none."""
    window, period, s = model["sliding_window"]["window"], model["sliding_window"]["period"], args.seq_length
    if not window or window >= s:
        return 0
    layers = model["num_layers"] + model["mtp_num_layers"]
    windowed = sum(1 for layer in range(1, layers + 1) if period == 0 or layer % period != 0)
    pairs = window - window * window / (2 * s)
    return 12 * args.num_attention_heads * args.kv_channels * (s / 2 - pairs) * windowed


def flop_changes(model, args):
    """What moesim counts otherwise, by name, with the arguments that make Megatron-LM's formula count so."""
    unit = args.make_vocab_size_divisible_by
    padded = -(-args.vocab_size // unit) * unit
    if args.quick_geglu:
        yield "the gate counts with --swiglu only", {"swiglu": True}
    if args.padded_vocab_size != padded:
        yield "entries count that pad the vocabulary for TP", {"padded_vocab_size": padded}
    if args.linear_attention_freq and args.mtp_num_layers:
        every = args.linear_attention_freq
        linear = [int((i + 1) % every != 0) for i in range(args.num_layers)]
        yield "MTP blocks count as layers of linear attention", {
            "linear_attention_freq": linear + args.mtp_num_layers * [linear[-1]]}


def flop_per_token(count, model, args):
    """By Megatron-LM's formula, and what was changed in it, by name."""
    named, before = [], dict(vars(args))
    for name, members in flop_changes(model, args):
        named.append(name)
        vars(args).update(members)
    flop = count(args, 1) / args.seq_length
    vars(args).update(before)
    beyond = windowed_core(model, args)
    return flop - beyond, named + (["pairs beyond the window count"] if beyond else [])


# --- bytes ---
def bits_of(dtype):
    return {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}[str(dtype).split(".")[-1]]


def bytes_per_parameter(args, ranks):
    """Weights, gradients, and what the optimizer keeps, of which `ranks` share a copy. None: the run keeps others."""
    if args.fp8 or args.fp4 or args.optimizer_cpu_offload or args.optimizer != "adam":
        return None
    gradient = (bits_of(args.megatron_fsdp_main_grads_dtype) if args.use_megatron_fsdp
                else 4 if args.accumulate_allreduce_grads_in_fp32 else 2)
    weight = bits_of(args.main_params_dtype)
    if args.use_precision_aware_optimizer and args.bf16 and weight == 4:
        weight = 2  # the half that the BF16 weight lacks (store_param_remainders)
    states = weight + bits_of(args.exp_avg_dtype) + bits_of(args.exp_avg_sq_dtype)
    if args.use_megatron_fsdp:
        kinds = args.data_parallel_sharding_strategy
        return ((2 / ranks if "params" in kinds else 2) + (gradient / ranks if "grads" in kinds else gradient) +
                states / ranks)
    return 2 + gradient + (states / ranks if args.use_distributed_optimizer else states)


def stage_bytes(args, world, stage):
    """`stage`: numbers of dense and expert parameters of a rank."""
    copies = args.num_distributed_optimizer_instances
    dense = args.data_parallel_size * args.context_parallel_size // copies
    expert = world // (args.expert_tensor_parallel_size * args.expert_model_parallel_size *
                       args.pipeline_model_parallel_size) // copies
    each = bytes_per_parameter(args, dense), bytes_per_parameter(args, max(expert, 1))
    return None if None in each else stage["dense"] * each[0] + stage["expert"] * each[1]


# What Megatron-LM's report of theoretical memory leaves out, by the names of parameters; `tp`: it divides them by TP.
LEFT_OUT = (("that every rank of TP holds the latents' norms and down projections",
             r"self_attention\.linear_(q|kv)_(up_proj\.layer_norm_|down_proj\.)", True),
            ("norms of queries and keys", r"self_attention\.((q|k)_layernorm|linear_q_proj\.layer_norm)", False),
            ("biases", r"\.linear_\w+\.bias\d*$", False), ("sinks", r"softmax_offset", False),
            ("MTP's projection and norms", r"^mtp\..*(eh_proj|enorm|hnorm|final_layernorm)\.", False),
            ("learned positions", r"position_embeddings", False))


def left_out(name):
    return next((row for row in LEFT_OUT if re.search(row[1], name)), None)


def is_reported(args):
    """The report knows no layers of other kinds, no uneven stages, and 18 bytes a parameter or 6 and a share of 12."""
    plain = args.exp_avg_dtype == args.exp_avg_sq_dtype and bits_of(args.exp_avg_dtype) == 4
    return (plain and args.accumulate_allreduce_grads_in_fp32 and not args.hybrid_layer_pattern and
            not args.experimental_attention_variant and args.pipeline_model_parallel_size == 1 and
            args.context_parallel_size == 1 and args.num_distributed_optimizer_instances == 1 and
            not args.use_megatron_fsdp and bytes_per_parameter(args, 1) is not None)


def theoretical(report, args, world, stage):
    """Bytes of the one stage by Megatron-LM's report and what it leaves out, by name. None: it is not made for this."""
    if not is_reported(args):
        return None, []
    swiglu, args.swiglu = args.swiglu, args.swiglu or args.quick_geglu
    held = report(args) + stage_bytes(args, world, stage["left"])
    args.swiglu = swiglu
    return held, [f"theoretical memory lacks {name}" for name in sorted(stage["names"])]
