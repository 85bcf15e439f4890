/* src/describe/hardware_table.c - the keys of a machine. */
#include "describe/hardware.h"

#include "describe/curve.h"
#include "describe/rows.h"

#define S                       MsHardware
#define NUMBER(k, u, lo, hi, d) MS_F64(S, k, u, lo, hi, NULL, MS_NULLABLE, d)
#define FLOPS(k, d)             NUMBER(k, "flops", 1e9, 1e18, d)
#define BPS(k, d)               NUMBER(k, "Bps", 1e6, 1e15, d)
#define OVERHEAD(k, fb, d)      MS_F64(S, k, "s", 0, 1, fb, MS_NULLABLE, d)
#define FACTOR(k, fb, d)        MS_F64(S, k, "", 0.01, 100, fb, MS_NULLABLE, d)
static const char *const collectives_words[] = {
#define MS_COLLECTIVES(id, word, ...) word,
#include "describe/collectives.def"
#undef MS_COLLECTIVES
    NULL};
const MsCollectivesRow ms_collectives_rows[] = {
#define MS_COLLECTIVES(id, w, c1, c2, c3, c4, c5, c6) [MS_COLLECTIVES_##id] = {c1, c2, c3, c4, c5, c6, .word = w},
#include "describe/collectives.def"
#undef MS_COLLECTIVES
};
const MsFieldTable ms_hardware_table = MS_FIELD_TABLE(
    "hardware", "a machine, hardware/NAME.json", MS_SCHEMA(0),
    MS_STRING(S, name, 0, "name, by default that of the file"), MS_STRING(S, doc, MS_NULLABLE, "free text"),
    MS_STRING(S, vendor, MS_NULLABLE, "who makes it"),
    MS_STRING(S, arch, MS_NULLABLE, "architecture or compute capability"),
    FLOPS(peak_bf16_flops, "dense BF16 peak of one device"), FLOPS(peak_fp16_flops, "dense FP16 peak"),
    FLOPS(peak_fp8_flops, "dense FP8 peak"), FLOPS(peak_mxfp8_flops, "dense MXFP8 peak"),
    FLOPS(peak_nvfp4_flops, "dense NVFP4 peak"), FLOPS(peak_fp32_flops, "FP32 peak of the vector units"),
    MS_WORDS(S, unsupported_precisions, ms_precision_words, "[]", 0, "precisions that the device cannot do"),
    NUMBER(hbm_B, "B", 1e6, 1e15, "device memory"), BPS(hbm_Bps, "peak bandwidth of device memory"),
    NUMBER(l2_B, "B", 1e3, 1e12, "last-level cache; predictions take no notice"),
    BPS(l2_Bps, "bandwidth of the last-level cache, of copies inside of it"),
    MS_INT(S, sm_count, 0, 1000000, "0", MS_NULLABLE, "SMs, compute units or cores; 0 = unknown"),
    NUMBER(clock_Hz, "Hz", 1e7, 1e11, "boost clock, against which peaks are checked; predictions take no notice"),
    NUMBER(tdp_W, "W", 1, 1e5, "power limit"),
    MS_INT(S, gpus_per_node, 1, 65536, "8", 0, "devices under one operating system"),
    MS_INT(S, nvlink_domain_gpus, 0, 65536, "0", MS_NULLABLE, "devices joined by the scale-up link; 0 = gpus_per_node"),
    MS_STRING(S, scaleup, MS_NULLABLE, "name of the scale-up link"),
    BPS(scaleup_Bps, "scale-up link, per device and direction"), BPS(nic_Bps, "network, per device and direction"),
    OVERHEAD(network_latency_s, "0",
             "that a hop over the network takes longer than over InfiniBand: what the network plugin tells NCCL "
             "(EFA 7.5e-5)"),
    MS_F64(S, fabric_oversubscription, "", 1, 1000, "1", MS_NULLABLE, "1 = full bisection"),
    MS_INT(S, gpus_per_rail_group, 0, 1 << 20, "0", MS_NULLABLE, "devices below one switch group; 0 = no limit"),
    {MS_ROW(S, fabric, MS_T_CUSTOM, "", NULL, 0,
            "the network between nodes, in place of fabric_oversubscription; null = an ideal one"),
     .sub = &ms_fabric_table, .parse = ms_fabric_parse, .print = ms_fabric_print},
    BPS(host_link_Bps, "device to host, per direction"),
    MS_INT(S, host_link_gpus, 1, 4096, "1", 0,
           "devices behind one such link (a PCIe switch): all copy at the same time and share it"),
    MS_ENUM(
        S, collectives, collectives_words, "\"nccl\"", 0,
        "algorithms between domains: nccl (rings and trees, RCCL's too), nccl-pat (NCCL from 2.23: also PAT, where a "
        "domain has one rank of the group), hccl (halving and doubling where the servers are a power of two or eight "
        "and more, else a ring of them), hccl-a2 (Atlas A2: a ring of servers beside what runs inside them, or NHR "
        "and then inside, whichever is faster)"),
    MS_BOOL(S, nvls, "false", 0, "reduction in the scale-up switch"),
    MS_BOOL(S, sharp, "false", 0, "reduction in the network"), MS_BOOL(S, deepep, "false", 0, "DeepEP exists for it"),
    MS_BOOL(S, hybridep, "false", 0, "HybridEP exists for it"),
    MS_BOOL(S, cuda_graphs, "true", 0, "kernel graphs exist for it"),
    MS_BOOL(S, fp8_any_layout, "false", 0,
            "FP8 GEMMs read either operand along either dimension: one scaled copy of a tensor serves all passes"),
    MS_BOOL(S, serial, "false", 0,
            "messages keep the cores busy that compute (a CPU): the rows of a rank run one after another, nothing "
            "overlaps"),
    NUMBER(reference_flops, "flops", 1e6, 1e18,
           "moesim calibrate: what its reference kernel reached on a core at the speed that the curves are of"),
    NUMBER(kernel_jitter, "", 0, MS_MOST_JITTER,
           "standard deviation of the time of a kernel from one rank to the next, over it (moesim calibrate measures "
           "it); null: the law of this name"),
    NUMBER(clock_spread, "", 0, MS_MOST_JITTER,
           "standard deviation of the clocks of its devices, over them; null: the law"),
    OVERHEAD(kernel_launch_s, "5e-6", "host time to launch one kernel"),
    OVERHEAD(graph_launch_s, "1.5e-5", "host time to replay one graph"),
    OVERHEAD(sync_s, "2e-5", "host cost of one device synchronisation"),
    MS_F64(S, sustained_derate, "", 0.05, 2, "1", MS_NULLABLE, "clock in long runs over benchmark clock"),
    MS_INT(S, published_runs, 0, 1 << 20, "0", 0, "published runs that predictions on it were compared with"),
    MS_BOOL(S, attention_after_fa2, "false", 0,
            "the curves of attention are of kernels later than FlashAttention-2's, which run on it too (Hopper and "
            "later)"),
    MS_BOOL(
        S, grouped_gemm_of_te, "false", 0,
        "the curves of grouped GEMM are of TransformerEngine's layer, or no slower: its loop of dense products is no "
        "way around them where a GPU has two experts or more"),
    MS_INT(
        S, sustained_gpus, 0, 1 << 20, "0", MS_NULLABLE,
        "GPUs of the runs that sustained_derate was found by, of which the step waited for the slowest; 0 = unknown"),
    NUMBER(
        generation_year, "year", 1990, 2100,
        "when the first machines of its generation of chips shipped: kernels of the software of that time are slower"),
    MS_BOOL(S, vboost, "false", 0, "power is moved from the memory to the cores (nvidia-smi boost-slider --vboost 1)"),
    NUMBER(sustained_tdp_W, "W", 1, 1e5, "power limit under which sustained_derate was found; left out: tdp_W"),
    FACTOR(wgrad_factor, "1.05", "time of a weight-gradient GEMM over the forward one"),
    FACTOR(dgrad_factor, "1", "time of a data-gradient GEMM over the forward one"),
    FACTOR(attention_backward_factor, "0.8", "FLOP/s of backward over forward attention"),
    FACTOR(attention_sink_factor, "1", "FLOP/s of attention with a learned softmax sink over attention without"),
    MS_INT(S, nccl_sms, 0, 100000, "16", MS_NULLABLE, "SMs that a running collective takes"),
    MS_INT(S, deepep_sms, 0, 100000, "20", MS_NULLABLE, "SMs that DeepEP takes"),
    MS_INT(S, hybridep_sms, 0, 100000, "24", MS_NULLABLE, "SMs that HybridEP takes"),
    MS_F64(S, blas_workspace_B, "B", 0, 1e12, "33554432", MS_NULLABLE, "scratch of cuBLAS for each launching thread"),
    MS_F64(S, te_workspace_B, "B", 0, 1e12, "33554432", MS_NULLABLE, "scratch of TransformerEngine for its products"),
    MS_F64(S, context_B, "B", 0, 1e15, "2.5e9", MS_NULLABLE, "memory outside the framework's allocator"),
    MS_F64(S, reserve_ratio, "", 1, 100, "1.02", MS_NULLABLE, "reserved over allocated memory"),
    {MS_CUSTOM(curves, "", 0,
               "list of fitted curves; beside `base`: in place of those that describe the same, all others stay; [] = "
               "none"),
     .parse = ms_curves_parse, .take = ms_curves_take, .print = ms_curves_print},
    MS_OBJECT(S, anchor, &ms_anchor_table, MS_NULLABLE, "what was learned from runs on it (moesim anchor)"),
    MS_FREE(S, sources, "object: key -> where its figure comes from, a text or {mark, text, within}"),
    MS_STRING(S, curves_from, MS_NULLABLE, "profile whose curves serve for operators that this one has none for"),
    MS_FREE(S, variants,
            "list of profiles: a machine described upon this one whose peaks in BF16 and FP8, memory, bandwidth of it "
            "and power limit are those of one of them is upon that one"));
#undef S
