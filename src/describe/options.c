/* src/describe/options.c - the options of a framework. What is left out is Megatron-Core's default, or what its
 * performance recipes all set (overlapped reduction and gather, fused kernels). */
#include "describe/rows.h"
#include "describe/scenario.h"

const MsFieldTable ms_recompute_table = MS_FIELD_TABLE(
    "scenario.options.recompute", "activation recompute",
    MS_ENUM(MsRecomputeSpec, granularity, ms_recompute_words, "\"none\"", MS_OPEN, "what is recomputed"),
    MS_WORDS(MsRecomputeSpec, modules, ms_recompute_module_words, "[]", MS_OPEN, "of selective recompute"),
    MS_ENUM(MsRecomputeSpec, method, ms_recompute_method_words, "\"uniform\"", MS_OPEN, "of full recompute"),
    MS_INT(MsRecomputeSpec, num_layers, 1, 10000, "1", MS_NULLABLE | MS_OPEN, "of full recompute"));

#define SWITCH(k, fb, d) MS_BOOL(MsOptions, k, fb, MS_OPEN, d)
#define DTYPE(k, d)      MS_ENUM(MsOptions, k, ms_dtype_words, "\"fp32\"", MS_OPEN, d)
const MsFieldTable ms_options_table = MS_FIELD_TABLE(
    "scenario.options", "framework options, as Megatron-Core spells them",
    MS_BOOL(MsOptions, sequence_parallel, NULL, MS_NULLABLE | MS_OPEN | MS_AUTO,
            "sequence parallelism; auto: when tp > 1"),
    MS_ENUM(MsOptions, dispatcher, ms_dispatcher_words, NULL, MS_NULLABLE | MS_OPEN | MS_AUTO,
            "token dispatcher; auto: hybridep where the machine has it and its scale-up link joins several nodes, "
            "deepep where the machine has it and ETP x EP is a number of ranks that it knows, beyond one scale-up "
            "domain; else alltoall, which it is too in a plan request that leaves the key out"),
    SWITCH(ep_overlap, "false", "expert communication beside another microbatch's compute"),
    SWITCH(delay_wgrad, "false", "weight gradients delayed behind expert communication"),
    SWITCH(overlap_grad_reduce, "true", "gradient reduction beside the backward pass"),
    SWITCH(overlap_param_gather, "true", "parameter gather beside the forward pass"),
    SWITCH(tp_comm_overlap, "false", "tensor-parallel communication beside GEMMs"),
    MS_OBJECT(MsOptions, recompute, &ms_recompute_table, MS_OPEN, "activation recompute"),
    MS_WORDS(MsOptions, offload_modules, ms_offload_module_words, "[]", MS_OPEN, "activations that go to the host"),
    MS_F64(MsOptions, optimizer_offload_fraction, "", 0, 1, "0", MS_OPEN, "share of the optimizer on the host"),
    MS_WORDS(MsOptions, cuda_graph_scope, ms_cuda_graph_words, "[]", MS_OPEN, "what runs in captured graphs"),
    MS_ENUM(MsOptions, cuda_graph_impl, ms_graph_impl_words, "\"transformer_engine\"", MS_OPEN,
            "what captures them; local hands what a whole layer makes to the graph of the next one, without a copy"),
    SWITCH(distributed_optimizer, "true", "optimizer state sharded over data-parallel ranks"),
    MS_ENUM(MsOptions, fsdp, ms_fsdp_words, "\"none\"", MS_OPEN, "sharding of Megatron-FSDP"),
    SWITCH(fsdp_double_buffer, "true",
           "Megatron-FSDP holds two buffers of whole parameters and two of whole gradients, as its recipes have it and "
           "buffers that NCCL knows need it; false, as EP overlap asks for: as many as go to what is fetched ahead "
           "and what waits for its reduction"),
    DTYPE(main_grads_dtype, "main gradients"), DTYPE(grad_reduce_dtype, "gradients on the wire"),
    MS_ENUM(MsOptions, expert_grad_reduce_dtype, ms_dtype_words, NULL, MS_NULLABLE,
            "those of experts (NeMo AutoModel before June 2026: bf16); null = grad_reduce_dtype"),
    DTYPE(exp_avg_dtype, "first moment"), DTYPE(exp_avg_sq_dtype, "second moment"),
    DTYPE(main_params_dtype, "master weights"),
    SWITCH(fp8_param_gather, "false", "parameters kept and gathered in FP8"),
    SWITCH(cross_entropy_fusion, "true", "fused cross entropy"),
    MS_ENUM(MsOptions, attention_backend, ms_attn_backend_words, "\"fused\"", MS_OPEN | MS_AUTO,
            "attention kernels; unfused stores the scores; auto: those of the software stack, mostly fused"),
    MS_ENUM(MsOptions, transformer_impl, ms_impl_words, "\"transformer_engine\"", MS_OPEN, "implementation of layers"),
    MS_ENUM(MsOptions, cross_entropy_fusion_impl, ms_ce_impl_words, "\"native\"", MS_OPEN, "with cross_entropy_fusion"),
    MS_ENUM(MsOptions, optimizer_impl, ms_optimizer_impl_words, "\"fused\"", MS_OPEN,
            "Adam in one kernel, or as PyTorch's foreach and loops have it: operator by operator, each a pass over the "
            "states"),
    MS_ENUM(
        MsOptions, muon_tp_mode, ms_muon_tp_words, "\"duplicated\"", MS_OPEN,
        "matrices of muon that tensor parallelism cuts: whole on every rank, as Megatron-LM has it since August 2026; "
        "blockwise, as before, each rank its part alone; distributed, parts with sums of their Gram matrices"),
    MS_ENUM(
        MsOptions, linear_cp_mode, ms_linear_cp_words, "\"headwise\"", MS_OPEN,
        "gated delta nets over context-parallel ranks: heads of the whole sequence, or, on Megatron-LM's dev branch, "
        "chunks of it whose states are gathered"),
    MS_ENUM(MsOptions, mhc_backend, ms_mhc_backend_words, "\"triton\"", MS_OPEN,
            "kernels of hyper-connections: native is plain PyTorch; triton leaves the projection and one backward to "
            "it; cutile, a package of its own, does all"),
    SWITCH(
        apply_rope_fusion, "true",
        "fused rotary embedding (for latent attention only with YaRN, since June 2025); off: plain PyTorch, of sparse "
        "attention always"),
    SWITCH(moe_grouped_gemm, "true", "grouped products of the experts; off: one expert after another, each an MLP"),
    MS_ENUM(MsOptions, grouped_gemm_library, ms_grouped_library_words, "\"transformer_engine\"", 0,
            "whose grouped products; primus_turbo: AMD's, on machines that have curves of them, which Primus calls"),
    SWITCH(moe_router_fusion, "true", "fused router kernels"),
    SWITCH(moe_permute_fusion, "true", "fused permute kernels"),
    SWITCH(moe_shared_expert_overlap, "false", "shared expert beside dispatch and combine"),
    SWITCH(moe_router_padding_for_quantization, "false",
           "expert rows padded to the quantisation block in the router, before they leave; else by a copy in the "
           "expert module"),
    MS_F64(MsOptions, moe_expert_rank_capacity_factor, "", 1e-3, 1e4, NULL, MS_NULLABLE | MS_OPEN,
           "fixed token capacity per expert rank; null = none"),
    SWITCH(moe_paged_stash, "false", "paged activation stash"),
    MS_F64(MsOptions, moe_paged_stash_buffer_size_factor_cuda, "", 1, 1e4, "1.1", 0,
           "pages of the stash, over those of the balanced rows; sized by the largest step, Megatron-LM's negative "
           "values, it is not modelled"),
    SWITCH(use_transformer_engine_op_fuser, "false", "fused operators of Transformer Engine"),
    SWITCH(fused_grouped_mlp, "false", "fused grouped MLP kernels"),
    MS_INT(MsOptions, dispatcher_num_sms, 0, 100000, "0", MS_NULLABLE | MS_OPEN,
           "SMs of DeepEP or HybridEP; 0 = its own"),
    SWITCH(cuda_graph_shared_experts, "true", "shared experts are inside the captured graph"),
    MS_INT(MsOptions, cuda_device_max_connections, 0, 32, "0", MS_NULLABLE | MS_OPEN,
           "environment variable of the launch, predictions take no notice; 0 = unset"),
    MS_INT(MsOptions, cpu_offloading_num_layers, 0, 10000, "0", MS_OPEN, "layers whose activations go to the host"),
    SWITCH(offload_optimizer_states, "false", "master weights and moments live on the host between updates"),
    MS_INT(
        MsOptions, swap_optimizer_times, 0, 10000, "0", MS_OPEN,
        "parts in which states that live on the host visit the device during the update (MindSpeed --swap-optimizer, "
        "16 there); 0 = they do not"),
    SWITCH(reuse_fp32_param, "false",
           "BF16 weights lie in their FP32 masters, which the optimizer puts together again (MindSpeed)"),
    SWITCH(disable_parameter_transpose_cache, "false",
           "FP8 weights are turned for every backward pass instead of kept column by column as well"),
    SWITCH(fp4_param_gather, "false", "parameters gathered in FP4"),
    SWITCH(fp8_dot_product_attention, "false", "attention core in FP8"),
    SWITCH(fp8_output_proj, "false", "output projection in FP8"),
    SWITCH(tp_only_amax_red, "false",
           "delayed FP8: maxima are agreed on among tensor- and context-parallel ranks alone"),
    SWITCH(fp8_dispatch, "false",
           "tokens and their gradients go to the experts in the run's FP8; what comes back is BF16 (DeepSeek)"),
    SWITCH(activation_func_fp8_input_store, "false",
           "inputs of SwiGLU kept for the backward in FP8, recomputed activations included (DeepSeek)"),
    MS_INT(MsOptions, num_layers_at_start_in_bf16, 0, 10000, "0", MS_OPEN, "first layers kept in BF16"),
    MS_INT(MsOptions, num_layers_at_end_in_bf16, 0, 10000, "0", MS_OPEN, "last layers kept in BF16"),
    SWITCH(keep_mtp_spec_in_bf16, "false", "MTP block kept in BF16"),
    SWITCH(reuse_grad_buf_for_mxfp8_param_ag, "false",
           "the gather of MXFP8 parameters goes through the gradients' buffer: for the launch, which says so wherever "
           "fp8_param_gather is on; predictions take no other case"),
    SWITCH(overlap_param_gather_with_optimizer_step, "false", "for the launch: predictions take no notice"),
    SWITCH(defer_embedding_wgrad_compute, "false",
           "weight gradients of the head are computed after the last backward, beside the pipeline's flush; logit "
           "gradients and head inputs wait for it"),
    MS_INT(
        MsOptions, wgrad_deferral_limit, 0, 1 << 20, "0", MS_OPEN,
        "passes through the head that wait so, one per microbatch and MTP block; the others are not deferred; 0 = all"),
    MS_BOOL(
        MsOptions, optimizer_post_validation, NULL, MS_NULLABLE | MS_AUTO,
        "stages do not meet at the gradient norm, the step is checked afterwards; auto: with zero-bubble schedules"),
    MS_BOOL(MsOptions, overlap_p2p_comm, "true", MS_OPEN | MS_AUTO,
            "pipeline communication beside compute; auto: as the software stack does it, mostly true"),
    SWITCH(overlap_p2p_comm_warmup_flush, "false",
           "the same where no other direction hides it: before the first and behind the last pair of passes"),
    SWITCH(gradient_accumulation_fusion, "true", "weight gradients accumulated by the GEMM"),
    MS_BOOL(MsOptions, recompute_early_stop, "false", 0,
            "PyTorch's checkpointing without reentrance, which runs a region again up to the last tensor that its "
            "backward reads (torch.utils.checkpoint, early_stop)"),
    MS_BOOL(MsOptions, torch_compile, "true", 0,
            "layers of TorchTitan are compiled; false: norms, SwiGLU and sums run operator by operator"),
    MS_INT(MsOptions, num_distributed_optimizer_instances, 1, 65536, "1", MS_OPEN,
           "runs of data-parallel ranks that each shard the optimizer by themselves (HSDP)"),
    MS_ENUM(MsOptions, outer_dp_sharding_strategy, ms_outer_dp_words, "\"no_shard\"", MS_OPEN,
            "sharding over the outer groups"),
    SWITCH(moe_memory_efficient_permutation, "true",
           "router weights multiply inside the experts, so that unpermute keeps no expert output"),
    SWITCH(deterministic_mode, "false",
           "same result bit for bit: new tensors are filled, sums go through sorts, attention's backward is slower, no "
           "NVLink SHARP; needs cross_entropy_fusion and tp_comm_overlap off"),
    SWITCH(
        deterministic_attention, "false",
        "attention's backward without atomic sums (NVTE_ALLOW_NONDETERMINISTIC_ALGO=0), as deterministic_mode has it "
        "too"),
    SWITCH(use_fused_weighted_squared_relu, "true",
           "experts' squared ReLU and router weight in one kernel; else three, the last two of them in FP32"),
    SWITCH(check_for_nan_in_loss_and_grad, "false",
           "the host looks at every loss and at the norm of every bucket of gradients; Megatron-LM's own default is "
           "true, performance recipes turn it off"),
    SWITCH(hybrid_context_parallel, "false", "each packed sequence goes to as few context-parallel ranks as hold it"),
    MS_INT(MsOptions, max_seqlen_per_dp_cp_rank, 0, 1 << 27, "0", MS_NULLABLE | MS_OPEN,
           "tokens of one sequence that a rank holds with hybrid_context_parallel; 0 = seq_length / cp"),
    SWITCH(lcma, "false",
           "dense BF16 and FP32 matrix products by lower-complexity schemes (docs/lcma.md) where they are predicted to "
           "gain"),
    MS_F64(MsOptions, lcma_workspace_B, "B", 1, 1e13, "1073741824", MS_OPEN,
           "with lcma: memory set aside for sums and products"));
